"""Loops in an alignment: where rows repeat a unit of states, and how often each does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from critpath.align.repeats import find_runs, runs_of
from critpath.model import I32, U8, Loop

# What is worth being called a loop; fewer iterations are states like others.
LEAST_ITERATIONS = 4
LEAST_STATES = 8


def find_loops(positions: I32, rows: Sequence[U8]) -> tuple[Loop, ...]:
    """Find the loops of aligned rows.

    A unit that some row repeats at least four times is a loop wherever rows repeat it.
    Runs of one unit whose columns overlap are the same loop, the parts of a broken run
    too where another row's run goes on between them.  A row runs it as often as the unit
    stands in its letters there.  Of loops that share columns the widest counts.

    Parameters
    ----------
    positions : int32 [rows, columns]
        Position of every letter in its row, -1 for a gap.
    rows : sequence of uint8 arrays
        Distinct, none empty.

    Returns
    -------
    tuple of Loop
        From left to right, disjoint; `iterations` of every row.
    """
    units = runs_of(rows, LEAST_ITERATIONS, LEAST_STATES)
    if not units:
        return ()
    columns = [np.flatnonzero(row >= 0) for row in positions]
    spans: dict[bytes, list[tuple[int, int]]] = {}
    for row, at in zip(rows, columns, strict=True):
        for run, unit in find_runs(row, units):
            spans.setdefault(unit, []).append((int(at[run.first]), int(at[run.last - 1]) + 1))
    found = [
        (last - first, first, last, unit)
        for unit, parts in spans.items()
        for first, last in _joined(parts)
    ]
    loops: list[Loop] = []
    for _, first, last, unit in sorted(found, key=lambda f: (-f[0], *f[1:])):
        if all(last <= loop.first or loop.last <= first for loop in loops):
            iterations = [
                _turns(row[np.searchsorted(at, first) : np.searchsorted(at, last)].tobytes(), unit)
                for row, at in zip(rows, columns, strict=True)
            ]
            if max(iterations) >= LEAST_ITERATIONS:
                turns = np.array(iterations, np.int32)
                loops.append(Loop(first, last, len(unit), turns))
    return tuple(sorted(loops, key=lambda loop: loop.first))


# Rows are asked again and again: one group is aligned with many executions.
@lru_cache(maxsize=4096)
def _turns(text: bytes, unit: bytes) -> int:
    """Return how often a unit stands in a row's letters, wherever an iteration begins."""
    return max(text.count(unit[i:] + unit[:i]) for i in range(len(unit)))


def _joined(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join stretches of columns that overlap."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(parts):
        if result and first < result[-1][1]:
            result[-1] = result[-1][0], max(result[-1][1], last)
        else:
            result.append((first, last))
    return result
