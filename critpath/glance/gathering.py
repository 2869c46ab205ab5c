"""What threads and processors did in all, gathered block by block."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from critpath.model import I64, RUNNING, Blocks, State
from critpath.model.timelines import Columns
from critpath.schema.kinds import WAITS

_STATES: Final = len(State)
_LENGTH_BITS: Final = 40  # technical: of a wait (ns), which is no longer than 18 minutes
_LONGEST: Final = (1 << _LENGTH_BITS) - 1
_NEVER: Final = np.iinfo(np.int64).min
_SLEEPS: Final = np.isin(np.arange(_STATES), sorted(WAITS - {State.WAIT_CPU}))
_RUNS: Final = np.isin(np.arange(_STATES), sorted(RUNNING))


class Waits:
    """Waits for a processor, of which each is one however it was cut.

    Attributes
    ----------
    count, preempted, length, begin, cpu : int64 [workers]
        How many, how many of them began as their thread had to leave; of the longest, the first
        of equals, how long it was, when it began and where it was; -1 where that is not known.
    """

    def __init__(self, workers: int) -> None:
        self.count, self.preempted = np.zeros(workers, np.int64), np.zeros(workers, np.int64)
        self.length, self.begin = np.zeros(workers, np.int64), np.zeros(workers, np.int64)
        self.cpu = np.full(workers, -1, np.int64)
        self._lengths: list[I64] = []
        # Of each worker's last row, so far: when it ended, whether it ran; and where that was
        # a wait, when this began, where it is and whether it was preempted.
        self._end = np.full(workers, _NEVER, np.int64)
        self._ran = np.zeros(workers, np.bool_)
        self._open = np.zeros(workers, np.bool_)
        self._since, self._left = np.zeros(workers, np.int64), np.zeros(workers, np.bool_)
        self._place = np.full(workers, -1, np.int64)

    def add(self, worker: I64, begin: I64, end: I64, state: Any, cpu: Any) -> None:
        """Add rows, in order of worker and time."""
        if not len(worker):
            return
        waits = state == State.WAIT_CPU
        first = np.ones(len(worker), np.bool_)
        first[1:] = worker[1:] != worker[:-1]
        last = np.ones(len(worker), np.bool_)
        last[:-1] = first[1:]
        # What was just before a row of the same worker.
        ended, ran, waited = np.roll(end, 1), np.roll(_RUNS[state], 1), np.roll(waits, 1)
        heads = worker[first]
        ended[first], ran[first], waited[first] = (
            self._end[heads],
            self._ran[heads],
            self._open[heads],
        )
        follows = ended == begin
        joined = waits & waited & follows
        # Waits of earlier blocks that do not go on.
        over = heads[self._open[heads] & ~joined[first]]
        self._close(over, self._since[over], self._end[over], self._place[over], self._left[over])
        ends = waits.copy()
        ends[:-1] &= ~joined[1:] | first[1:]
        begins = waits & ~joined
        begins |= joined & first
        at, to = np.flatnonzero(begins), np.flatnonzero(ends)
        since, left = begin[at], ran[at] & follows[at]
        of = worker[at]
        going = joined[at]
        since[going], left[going] = self._since[of[going]], self._left[of[going]]
        place = np.where(cpu[to] >= 0, cpu[to], cpu[at]).astype(np.int64)
        done = ~last[to]
        self._close(of[done], since[done], end[to[done]], place[done], left[done])
        tails = worker[last]
        self._end[tails], self._ran[tails] = end[last], _RUNS[state[last]]
        self._open[tails] = waits[last]
        still = of[~done]
        self._since[still], self._left[still] = since[~done], left[~done]
        self._place[still] = place[~done]

    def finish(self) -> None:
        """Close what is open."""
        over = np.flatnonzero(self._open)
        self._close(over, self._since[over], self._end[over], self._place[over], self._left[over])
        self._open[:] = False

    def _close(self, worker: I64, begin: I64, end: I64, cpu: I64, left: Any) -> None:
        if not len(worker):
            return
        length = end - begin
        self._lengths.append(worker << _LENGTH_BITS | np.minimum(length, _LONGEST))
        self.count += np.bincount(worker, minlength=len(self.count))
        self.preempted += np.bincount(worker[left], minlength=len(self.count))
        longer = np.flatnonzero(length > self.length[worker])
        longer = longer[np.lexsort((-begin[longer], length[longer], worker[longer]))]
        of = worker[longer]
        best = longer[np.append(of[1:] != of[:-1], np.ones(min(len(of), 1), np.bool_))]
        of = worker[best]
        self.length[of], self.begin[of], self.cpu[of] = length[best], begin[best], cpu[best]

    def quantiles(self, group: I64, groups: int, q: tuple[float, ...]) -> list[I64]:
        """Return quantiles (nearest rank) of groups of workers; -1 of one that never waited.

        Parameters
        ----------
        group : int64 [workers]
            Of which group each is; -1 for none.
        """
        keys = np.concatenate([np.zeros(0, np.int64), *self._lengths])
        of = group[keys >> _LENGTH_BITS]
        keys &= _LONGEST
        keys |= of << _LENGTH_BITS
        keys = keys[of >= 0]
        keys.sort()
        starts = np.searchsorted(keys, np.arange(groups + 1) << _LENGTH_BITS)
        counts = np.diff(starts)
        found = []
        for each in q:
            rank = np.maximum(np.ceil(each * counts).astype(np.int64) - 1, 0)
            value = np.full(groups, -1, np.int64)
            some = counts > 0
            value[some] = keys[starts[:-1][some] + rank[some]] & _LONGEST
            found.append(value)
        return found


class Gathered:
    """Sums of all blocks.

    Parameters
    ----------
    workers, processors : int
    idle : bool [workers]
    last : int
        End of the recording (ns).

    Attributes
    ----------
    states : int64 [workers, states]
        Time (ns).
    begin, end : int64 [workers]
        First and last time that anything is known of it; begin after end for nothing.
    turns, migrations, woken, wakes, unwoken : int64 [workers]
        The last one is time (ns) in sleeps that the recording's end cut.
    waits : Waits
    busy, idle, interrupts, softirqs, taken : int64 [processors]
        Times (ns), and how often a thread got it.
    stolen : dict of (State, int) to int
        Time (ns) of interrupt work, by its detail.
    """

    def __init__(self, workers: int, processors: int, idle: Any, last: int) -> None:
        self._is_idle, self._last = idle, last
        self.states = np.zeros((workers, _STATES), np.int64)
        self.begin = np.full(workers, np.iinfo(np.int64).max, np.int64)
        self.end = np.full(workers, _NEVER, np.int64)
        self.turns, self.migrations = np.zeros(workers, np.int64), np.zeros(workers, np.int64)
        self.woken, self.wakes = np.zeros(workers, np.int64), np.zeros(workers, np.int64)
        self.unwoken = np.zeros(workers, np.int64)
        self._place = np.full(workers, -1, np.int64)  # the processor of its last turn
        self.waits = Waits(workers)
        of_processors = [np.zeros(processors, np.int64) for _ in range(5)]
        self.busy, self.idle, self.interrupts, self.softirqs, self.taken = of_processors
        self.stolen: dict[tuple[State, int], int] = {}

    def add(self, intervals: Columns, stolen: Columns, ran: Columns) -> None:
        """Add the tables of a block."""
        self._add_intervals(*intervals)
        self._add_turns(*ran)
        self._add_interrupts(*stolen)

    def _add_intervals(
        self, start: I64, begin: I64, end: I64, state: Any, _: Any, cpu: Any, waker: Any, woken: I64
    ) -> None:
        worker = np.repeat(np.arange(len(start) - 1), np.diff(start))
        np.add.at(self.states.ravel(), worker * _STATES + state, end - begin)
        some = np.flatnonzero(np.diff(start))
        self.begin[some] = np.minimum(self.begin[some], begin[start[some]])
        self.end[some] = np.maximum(self.end[some], end[start[some + 1] - 1])
        self.waits.add(worker, begin, end, state, cpu)
        sleeps = _SLEEPS[state]
        cut = np.flatnonzero(sleeps & (woken < 0) & (end >= self._last))
        np.add.at(self.unwoken, worker[cut], end[cut] - begin[cut])
        ended = sleeps & (woken >= 0)
        self.woken += np.bincount(worker[ended], minlength=len(self.woken))
        by = waker[ended]
        self.wakes += np.bincount(by[by >= 0], minlength=len(self.wakes))

    def _add_turns(self, start: I64, begin: I64, end: I64, worker: Any) -> None:
        processor = np.repeat(np.arange(len(start) - 1), np.diff(start))
        length, idle = end - begin, self._is_idle[worker]
        np.add.at(self.idle, processor[idle], length[idle])
        threads = ~idle
        np.add.at(self.busy, processor[threads], length[threads])
        self.taken += np.bincount(processor[threads], minlength=len(self.taken))
        self.turns += np.bincount(worker[threads], minlength=len(self.turns))
        order = np.flatnonzero(threads)
        order = order[np.lexsort((begin[order], worker[order]))]
        of, place = worker[order], processor[order]
        if not len(of):
            return
        first = np.append(True, of[1:] != of[:-1])
        before = np.roll(place, 1)
        before[first] = self._place[of[first]]
        moved = (before >= 0) & (before != place)
        self.migrations += np.bincount(of[moved], minlength=len(self.migrations))
        last = np.append(first[1:], True)
        self._place[of[last]] = place[last]

    def _add_interrupts(self, start: I64, begin: I64, end: I64, state: Any, detail: Any) -> None:
        processor = np.repeat(np.arange(len(start) - 1), np.diff(start))
        length, soft = end - begin, state == State.SOFTIRQ
        np.add.at(self.softirqs, processor[soft], length[soft])
        np.add.at(self.interrupts, processor[~soft], length[~soft])
        kinds, places = np.unique(detail.astype(np.int64) << 1 | soft, return_inverse=True)
        times = np.zeros(len(kinds), np.int64)
        np.add.at(times, places, length)
        for kind, time in zip(kinds.tolist(), times.tolist(), strict=True):
            key = (State.SOFTIRQ if kind & 1 else State.IRQ), kind >> 1
            self.stolen[key] = self.stolen.get(key, 0) + time


class Holder:
    """Who had a processor while somebody waited for it.

    Attributes
    ----------
    worker : int
        Who had it longest, the first of equals; -1 where it is not known.
    time : int
        How long that one did (ns).
    others : int
        How many more threads did.
    """

    def __init__(self, times: dict[int, int], idle: Any) -> None:
        self.worker = max(times, key=times.__getitem__, default=-1)
        self.time = times.get(self.worker, 0)
        self.others = sum(not idle[of] for of in times if of != self.worker)


def find_holders(
    blocks: Blocks, windows: list[tuple[int, int, int]], idle: Any
) -> Iterator[Holder]:
    """Yield who had a processor in each of some windows.

    Parameters
    ----------
    blocks : Blocks
    windows : list of (int, int, int)
        Processor, begin and end (ns); processor -1 where it is not known.
    idle : bool [workers]
    """
    found: list[dict[int, int]] = [{} for _ in windows]
    cuts = blocks.cuts.tolist()
    asked = sorted((begin, of) for of, (place, begin, _) in enumerate(windows) if place >= 0)
    pending = deque(asked)
    # A row may begin long before the block that it ended in, so a window is looked for from the
    # first block that was cut after its begin, until one whose rows all begin after its end.
    active: list[int] = []
    for number in range(len(blocks)):
        while pending and pending[0][0] < cuts[number]:
            active.append(pending.popleft()[1])
        if not active:
            continue
        start, begin, end, worker = blocks[number].ran()
        still = []
        for of in active:
            place, low, high = windows[of]
            if place >= len(start) - 1:
                still.append(of)
                continue
            rows = slice(int(start[place]), int(start[place + 1]))
            at = rows.start + int(np.searchsorted(end[rows], low, "right"))
            to = rows.start + int(np.searchsorted(begin[rows], high, "left"))
            times = np.minimum(end[at:to], high) - np.maximum(begin[at:to], low)
            for who, time in zip(worker[at:to].tolist(), times.tolist(), strict=True):
                found[of][who] = found[of].get(who, 0) + time
            if rows.stop == rows.start or end[rows.stop - 1] < high:
                still.append(of)
        active = still
    return (Holder(times, idle) for times in found)
