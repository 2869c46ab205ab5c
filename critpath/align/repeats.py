"""Loops in paths: runs of one unit of states, kept as one iteration and a count.

Where iterations of a loop belong in an alignment cannot be told from the states alone,
and thousands of them cost most of the time.  So rows are aligned with one iteration of
every run, and the others are put back behind it, left-justified.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from critpath.model import U8

MOST_PERIOD = 16
# A run of so many iterations and states is a loop, ...
LEAST_ITERATIONS = 12
LEAST_STATES = 24
# ... and then so is a run of so many iterations of the same unit, in any row.
LEAST_OF_KNOWN = 2
# Where a loop is broken in some row, going on within so many iterations' length, its
# parts would be taken for each other; so it stays as it is, unless it is this long.
BREAK = 4
LONG_ITERATIONS = 1_000


@dataclass(frozen=True)
class Run:
    """Identical iterations, one after another.

    Attributes
    ----------
    first : int
        Where they begin in the row.
    period, iterations : int
    """

    first: int
    period: int
    iterations: int

    @property
    def last(self) -> int:
        """Return one past the last state."""
        return self.first + self.period * self.iterations


@dataclass(frozen=True, eq=False)
class Collapsed:
    """A row with one iteration of each of its runs.

    Attributes
    ----------
    letters : uint8 array
    runs : tuple of Run
        In the whole row, from left to right, disjoint.
    """

    letters: U8
    runs: tuple[Run, ...]

    def begins(self) -> list[int]:
        """Return where each run's iteration stands in `letters`."""
        dropped, result = 0, []
        for run in self.runs:
            result.append(run.first - dropped)
            dropped += run.period * (run.iterations - 1)
        return result


def find_units(rows: Sequence[U8]) -> frozenset[bytes]:
    """Return the units of the loops in some rows.

    At the leftmost position where a unit of at most 16 states is repeated 12 times
    (and fills 24 states), the unit that accounts for most states counts, among those
    the smallest.  Units
    that differ in where an iteration begins are one loop; it begins as most of its
    runs do.

    A loop with a broken run, one that goes on after at most four iterations' length,
    counts only if some row runs it 1,000 times: of a part nothing would tell which of the
    others' it belongs to, and what broke the loop is often what is sought.  These limits
    are where ``tests/benchmarks/msa.py`` loses nothing; with 4 iterations it loses a third
    of some families.

    Parameters
    ----------
    rows : sequence of uint8 arrays
        Distinct ones, so that copies of a row decide nothing.
    """
    longest: Counter[bytes] = Counter()
    units = runs_of(rows, LEAST_ITERATIONS, LEAST_STATES, longest)
    short = {loop: unit for loop, unit in units.items() if longest[loop] < LONG_ITERATIONS}
    for row in rows:
        for loop in _broken(row, short):
            units.pop(loop, None)
    return frozenset(units.values())


def runs_of(
    rows: Sequence[U8], iterations: int, states: int, longest: Counter[bytes] | None = None
) -> dict[bytes, bytes]:
    """Return the units that rows repeat: least rotation -> where most runs begin.

    Parameters
    ----------
    rows : sequence of uint8 arrays
    iterations, states : int
        A run has at least so many.
    longest : Counter, optional
        Receives the most iterations of a run of each.
    """
    starts: dict[bytes, Counter[bytes]] = {}
    for row in rows:
        for run in _greedy(row, iterations):
            if run.last - run.first >= states:
                unit = row[run.first : run.first + run.period].tobytes()
                loop = _least_rotation(unit)
                starts.setdefault(loop, Counter())[unit] += 1
                if longest is not None:
                    longest[loop] = max(longest[loop], run.iterations)
    return {
        loop: min(count, key=lambda unit: (-count[unit], unit)) for loop, count in starts.items()
    }


def find_runs(row: U8, units: dict[bytes, bytes]) -> list[tuple[Run, bytes]]:
    """Return the runs of known units (see `runs_of`) in a row, of two iterations and more."""
    return [
        (run, row[run.first : run.first + run.period].tobytes())
        for run in _greedy(row, LEAST_OF_KNOWN, units)
    ]


def _broken(row: U8, known: dict[bytes, bytes]) -> set[bytes]:
    """Return the loops of which a row has two runs next to each other."""
    result = set()
    ends: dict[bytes, int] = {}
    for run in _greedy(row, LEAST_OF_KNOWN, known):
        loop = _least_rotation(row[run.first : run.first + run.period].tobytes())
        if run.first - ends.get(loop, -(10**9)) <= BREAK * run.period:
            result.add(loop)
        ends[loop] = run.last
    return result


def collapse(row: U8, units: Collection[bytes]) -> Collapsed:
    """Keep one iteration of every run of a known unit.

    Parameters
    ----------
    row : uint8 array
    units : collection of bytes
        See `find_units`; none is a rotation of another.
    """
    runs = _greedy(row, LEAST_OF_KNOWN, {_least_rotation(u): u for u in units}) if units else []
    keep = np.ones(len(row), bool)
    for run in runs:
        keep[run.first + run.period : run.last] = False
    return Collapsed(row[keep], tuple(runs))


@lru_cache(maxsize=4096)
def _least_rotation(unit: bytes) -> bytes:
    return min(unit[i:] + unit[:i] for i in range(len(unit)))


# The rows of a group are asked for every execution that is aligned with it.
@lru_cache(maxsize=256)
def _stretches(letters: bytes) -> tuple[tuple[int, int, int], ...]:
    """Return the longest stretches with a period that hold two iterations of it.

    Period, begin and end (one past the last state) of each, the shortest period first.
    """
    row = np.frombuffer(letters, np.uint8)
    found: list[tuple[int, int, int]] = []
    for period in range(1, min(MOST_PERIOD, len(row) // 2) + 1):
        equal = np.concatenate(([False], row[:-period] == row[period:], [False]))
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        begin, end = edges[::2], edges[1::2] + period
        enough = end - begin >= LEAST_OF_KNOWN * period
        found += [
            (period, first, last)
            for first, last in zip(begin[enough].tolist(), end[enough].tolist(), strict=True)
        ]
    return tuple(found)


def _greedy(row: U8, least: int, known: dict[bytes, bytes] | None = None) -> list[Run]:
    """Choose disjoint runs from left to right, of known units (least rotation -> unit) only."""
    heap: list[tuple[int, int, int, int]] = []  # begin, minus states covered, period, end

    def offer(begin: int, end: int, period: int) -> None:
        if known is not None:
            piece = row[begin : begin + period].tobytes()
            unit = known.get(_least_rotation(piece))
            if unit is None:
                return
            begin += (piece + piece).index(unit)
        covered = (end - begin) // period * period
        if covered >= least * period:
            heapq.heappush(heap, (begin, -covered, period, end))

    for period, begin, end in _stretches(row.tobytes()):
        if end - begin >= least * period:
            offer(begin, end, period)
    runs: list[Run] = []
    reached = 0
    while heap:
        begin, covered, period, end = heapq.heappop(heap)
        if begin < reached:
            if reached < end:
                offer(reached, end, period)
            continue
        runs.append(Run(begin, period, -covered // period))
        reached = begin - covered
    return runs
