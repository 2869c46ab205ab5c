"""Loops in paths: runs of one unit of states, kept as one iteration and a count.

Where iterations of a loop belong in an alignment cannot be seen from the states alone,
and thousands of them cost most of the time.  So rows are aligned with one iteration of
every run, and the others are put back behind it, left-justified.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from critpath.model import I32, U8, Loop
from critpath.schema.parameters.align import LOOPS


class RepeatedRun(Struct, frozen=True):
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


class Collapsed(Struct, frozen=True, eq=False):
    """A row with one iteration of each of its runs.

    Attributes
    ----------
    letters : uint8 array
    runs : tuple of RepeatedRun
        In the whole row, from left to right, disjoint.
    """

    letters: U8
    runs: tuple[RepeatedRun, ...]

    def begins(self) -> list[int]:
        """Return where each run's iteration stands in `letters`."""
        dropped, result = 0, []
        for run in self.runs:
            result.append(run.first - dropped)
            dropped += run.period * (run.iterations - 1)
        return result


def find_units(rows: Sequence[U8]) -> frozenset[bytes]:
    """Return the units of the loops in some rows."""
    longest: Counter[bytes] = Counter()
    units = runs_of(rows, LOOPS.least_iterations, LOOPS.least_states, longest)
    short = {loop: unit for loop, unit in units.items() if longest[loop] < LOOPS.long}
    for row in rows:
        for loop in _find_broken(row, short):
            units.pop(loop, None)
    return frozenset(units.values())


def runs_of(
    rows: Sequence[U8], iterations: int, states: int, longest: Counter[bytes] | None = None
) -> dict[bytes, bytes]:
    """Return the units that rows repeat: least rotation -> where most runs begin."""
    starts: dict[bytes, Counter[bytes]] = {}
    for row in rows:
        for run in _choose_runs(row, iterations):
            if run.last - run.first >= states:
                unit = row[run.first : run.first + run.period].tobytes()
                loop = _least_rotation(unit)
                starts.setdefault(loop, Counter())[unit] += 1
                if longest is not None:
                    longest[loop] = max(longest[loop], run.iterations)
    return {
        loop: min(count, key=lambda unit: (-count[unit], unit)) for loop, count in starts.items()
    }


def find_runs(row: U8, units: dict[bytes, bytes]) -> list[tuple[RepeatedRun, bytes]]:
    """Return the runs of known units (see `runs_of`) in a row, of two iterations and more."""
    return [
        (run, row[run.first : run.first + run.period].tobytes())
        for run in _choose_runs(row, LOOPS.least_known, units)
    ]


def _find_broken(row: U8, known: dict[bytes, bytes]) -> set[bytes]:
    """Return the loops of which a row has two runs next to each other."""
    result = set()
    ends: dict[bytes, int] = {}
    for run in _choose_runs(row, LOOPS.least_known, known):
        loop = _least_rotation(row[run.first : run.first + run.period].tobytes())
        if run.first - ends.get(loop, -(10**9)) <= LOOPS.break_ * run.period:
            result.add(loop)
        ends[loop] = run.last
    return result


def collapse(row: U8, units: Collection[bytes]) -> Collapsed:
    """Keep one iteration of every run of a known unit."""
    runs = (
        _choose_runs(row, LOOPS.least_known, {_least_rotation(u): u for u in units})
        if units
        else []
    )
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
    for period in range(1, min(LOOPS.most_period, len(row) // 2) + 1):
        equal = np.concatenate(([False], row[:-period] == row[period:], [False]))
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        begin, end = edges[::2], edges[1::2] + period
        enough = end - begin >= LOOPS.least_known * period
        found += [
            (period, first, last)
            for first, last in zip(begin[enough].tolist(), end[enough].tolist(), strict=True)
        ]
    return tuple(found)


def _choose_runs(row: U8, least: int, known: dict[bytes, bytes] | None = None) -> list[RepeatedRun]:
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
    runs: list[RepeatedRun] = []
    reached = 0
    while heap:
        begin, covered, period, end = heapq.heappop(heap)
        if begin < reached:
            if reached < end:
                offer(reached, end, period)
            continue
        runs.append(RepeatedRun(begin, period, -covered // period))
        reached = begin - covered
    return runs


# Loops in an alignment.


def find_loops(positions: I32, rows: Sequence[U8]) -> tuple[Loop, ...]:
    """Find the loops of aligned rows.

    A unit that some row repeats at least four times is a loop wherever rows repeat it.
    Runs of one unit whose columns overlap are the same loop, the parts of a broken run
    too where another row's run goes on between them.  A row runs it as often as the unit
    stands in its letters there.  Of loops that share columns the widest counts.
    """
    units = runs_of(rows, LOOPS.named, LOOPS.named_states)
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
        for first, last in _join_stretches(parts)
    ]
    loops: list[Loop] = []
    for _, first, last, unit in sorted(found, key=lambda f: (-f[0], *f[1:])):
        if all(last <= loop.first or loop.last <= first for loop in loops):
            iterations = [
                _turns(row[np.searchsorted(at, first) : np.searchsorted(at, last)].tobytes(), unit)
                for row, at in zip(rows, columns, strict=True)
            ]
            if max(iterations) >= LOOPS.named:
                turns = np.array(iterations, np.int32)
                loops.append(Loop(first, last, len(unit), turns))
    return tuple(sorted(loops, key=lambda loop: loop.first))


# Rows are asked again and again: one group is aligned with many executions.
@lru_cache(maxsize=4096)
def _turns(text: bytes, unit: bytes) -> int:
    """Return how often a unit stands in a row's letters, wherever an iteration begins."""
    return max(text.count(unit[i:] + unit[:i]) for i in range(len(unit)))


def _join_stretches(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join stretches of columns that overlap."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(parts):
        if result and first < result[-1][1]:
            result[-1] = result[-1][0], max(result[-1][1], last)
        else:
            result.append((first, last))
    return result


# Expansion: collapsed rows get their iterations back.


I8 = npt.NDArray[np.int8]
Block = tuple[tuple[int, ...], bytes]  # columns of a unit, and its letters


def expand(codes: I8, rows: Sequence[Collapsed], of: Sequence[int]) -> I32:
    """Put the iterations back that were left out when rows were collapsed.

    Runs of one unit whose iteration stands in the same columns are one loop; its further
    iterations get columns of their own behind these, as many as the row with most
    needs, filled from the left.
    """
    width = codes.shape[1]
    columns = [np.flatnonzero(codes[i] >= 0) for i in range(len(codes))]
    blocks: dict[Block, dict[int, int]] = {}  # row -> iterations
    for number, row in enumerate(rows):
        for run, block in _blocks_of(row, columns[of[number]]):
            blocks.setdefault(block, {})[number] = run.iterations
    # By column and letters alone, so that a row added later moves nothing.
    order = sorted(blocks, key=lambda block: (block[0][-1], block))
    extra = [len(key) * (max(blocks[key, unit].values()) - 1) for key, unit in order]
    behind = np.zeros(width + 1, np.int64)
    np.add.at(behind, np.array([key[-1] + 1 for key, _ in order], np.int64), extra)
    place = np.arange(width) + np.cumsum(behind)[:width]
    room: dict[Block, int] = {}  # where the further iterations begin
    taken = np.zeros(width, np.int64)
    for block, wide in zip(order, extra, strict=True):
        last = block[0][-1]
        room[block] = int(place[last] + 1 + taken[last])
        taken[last] += wide
    positions = np.full((len(rows), width + sum(extra)), -1, np.int32)
    for number, row in enumerate(rows):
        _fill(positions[number], row, columns[of[number]], place, room)
    return positions


def _blocks_of(row: Collapsed, columns: npt.NDArray[np.intp]) -> list[tuple[RepeatedRun, Block]]:
    """Return the runs of a row, each with where its one iteration is aligned."""
    result = []
    for run, begin in zip(row.runs, row.begins(), strict=True):
        end = begin + run.period
        result.append((run, (tuple(columns[begin:end].tolist()), row.letters[begin:end].tobytes())))
    return result


def _fill(
    positions: I32,
    row: Collapsed,
    columns: npt.NDArray[np.intp],
    place: npt.NDArray[np.int64],
    room: dict[Block, int],
) -> None:
    """Write one row's positions, in place."""
    at = done = 0  # in the collapsed and in the whole row
    for run, block in _blocks_of(row, columns):
        end = at + run.first + run.period - done
        positions[place[columns[at:end]]] = np.arange(done, run.first + run.period)
        further = run.last - run.first - run.period
        start = room[block]
        positions[start : start + further] = np.arange(run.first + run.period, run.last)
        at, done = end, run.last
    left = len(columns) - at
    positions[place[columns[at:]]] = np.arange(done, done + left)
