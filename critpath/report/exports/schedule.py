"""Who ran on each cpu and who woke whom, as ftrace's events: Perfetto's own tracks come of these.

What critpath knows better than the kernel's events is in them: switches that a kernel left out
were put in, see `critpath.timeline`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from critpath.model import I32, I64, State, Timelines
from critpath.report.exports.protobuf import message, number, packed, text
from critpath.units import safe_text

# Field numbers, by the message that they are of.
_BUNDLE, _TREE = 1, 2  # of TracePacket
_CPU, _EVENT, _COMPACT = 1, 2, 4  # of FtraceEventBundle
_TIME, _PID, _SWITCH = 1, 2, 4  # of FtraceEvent
_SWITCH_TIME, _SWITCH_STATE, _SWITCH_PID, _SWITCH_PRIORITY, _NAMES, _SWITCH_NAME = 1, 2, 3, 4, 5, 6
_WAKE_TIME, _WAKE_PID, _WAKE_CPU, _WAKE_PRIORITY, _WAKE_NAME = 7, 8, 9, 10, 11
_WAKE_FLAGS: Final = 12
_PREV_COMM, _PREV_PID, _PREV_PRIO, _PREV_STATE = 1, 2, 3, 4  # of SchedSwitchFtraceEvent
_NEXT_COMM, _NEXT_PID, _NEXT_PRIO = 5, 6, 7
_PROCESSES, _THREADS = 1, 2  # of ProcessTree
_OF_PID, _OF_COMMAND, _OF_COMMAND_IS_COMM = 1, 3, 9
_OF_TID, _OF_NAME, _OF_GROUP = 1, 2, 3

# Kernel's letters for what a thread does that left its cpu.
_RUNNABLE, _SLEEPS, _SLEEPS_DEEPLY, _STOPPED = 0, 1, 2, 4
_PRIORITY: Final = 120  # an ordinary thread's: which it had is not known
_BATCH: Final = 8192  # switches, or wakes, of a bundle


def find_processes(timelines: Timelines) -> dict[int, int]:
    """Return the process of each thread, where it is known."""
    workers = timelines.workers
    known = (workers.tid > 0) & (workers.pid > 0)
    return dict(zip(workers.tid[known].tolist(), workers.pid[known].tolist(), strict=True))


def pack_schedule(timelines: Timelines) -> Iterator[bytes]:
    """Yield the contents of packets: processes, and the events of each cpu.

    Parameters
    ----------
    timelines : Timelines
        Of one host.
    """
    yield _pack_tree(timelines)
    index = _Intervals(timelines)
    wake_cpu, wake_time, woken, target = index.find_wakes()
    names = [safe_text(name).encode("utf-8", "replace")[:15] for name in timelines.strings]
    for place, (_, cpu) in enumerate(timelines.processors):
        time, after, state = index.find_switches(place)
        mine = np.flatnonzero(wake_cpu == cpu)
        mine = mine[np.argsort(wake_time[mine], kind="stable")]
        if len(time):
            yield _pack_first(timelines, names, cpu, int(time[0]), int(after[0]))
        # A bundle has the wakes between its switches: who wakes is who runs.
        firsts = [*range(1, len(time), _BATCH)] or [len(time)]
        ends = np.searchsorted(wake_time[mine], time[firsts[1:]]).tolist()
        for at, low, high in zip(firsts, [0, *ends], [*ends, len(mine)], strict=True):
            some, rows = slice(at, at + _BATCH), mine[low:high]
            yield message(
                _BUNDLE,
                number(_CPU, cpu),
                message(
                    _COMPACT,
                    *_pack_switches(
                        timelines, names, time[some], after[some], state[some], woken[rows]
                    ),
                    packed(_WAKE_TIME, _deltas(wake_time[rows])),
                    packed(_WAKE_PID, _tids(timelines, woken[rows])),
                    packed(_WAKE_CPU, target[rows].astype(np.int64)),
                    packed(_WAKE_PRIORITY, np.full(len(rows), _PRIORITY)),
                    packed(_WAKE_FLAGS, np.zeros(len(rows), np.int64)),
                ),
            )


class _Intervals:
    """Finds what a thread did at a time."""

    def __init__(self, timelines: Timelines) -> None:
        self._of = timelines
        self._owner = np.repeat(
            np.arange(len(timelines.workers), dtype=np.int64), np.diff(timelines.start)
        )

    def _last(self, worker: I64, time: I64) -> I64:
        """Return the last interval of each thread that begins at a time or before, -1 for none."""
        of = self._of
        low, high = of.start[worker].astype(np.int64), of.start[worker + 1].astype(np.int64)
        first = low.copy()
        while True:  # all at once: rows of a thread are in order of time
            open_ = np.flatnonzero(low < high)
            if not len(open_):
                break
            middle = (low[open_] + high[open_]) // 2
            before = of.begin[middle] <= time[open_]
            low[open_] = np.where(before, middle + 1, low[open_])
            high[open_] = np.where(before, high[open_], middle)
        return np.where(low > first, low - 1, -1)

    def find_switches(self, place: int) -> tuple[I64, I64, I64]:
        """Return when who came (a worker) to a processor, and the state of who left.

        A stretch of which nothing is known is idle's.
        """
        of = self._of
        rows = slice(int(of.ran_start[place]), int(of.ran_start[place + 1]))
        begin, end = of.ran_begin[rows], of.ran_end[rows]
        worker = of.ran_worker[rows].astype(np.int64)
        idle = np.flatnonzero(
            (of.workers.tid == 0) & (of.workers.idle_cpu == of.processors[place][1])
        )
        nobody = int(idle[0]) if len(idle) else -1
        gaps = np.flatnonzero(end[:-1] < begin[1:])
        time = np.concatenate([begin, end[gaps], end[-1:]])
        after = np.concatenate([worker, np.full(len(gaps) + len(end[-1:]), nobody)])
        order = np.argsort(time, kind="stable")
        time, after = time[order], after[order]
        before = np.concatenate([[-1], after]).astype(np.int64)[:-1]
        changes = before != after
        time, before, after = time[changes], before[changes], after[changes]
        return time, after, self._state_after(before, time)

    def _state_after(self, worker: I64, time: I64) -> I64:
        """Return the kernel's state of threads that left a cpu at a time."""
        of = self._of
        known = (worker >= 0) & (of.workers.tid[np.maximum(worker, 0)] > 0)
        found = np.zeros(len(worker), np.int64)
        rows = self._last(worker[known], time[known])
        state = of.state[rows] if len(of.state) else np.zeros(len(rows), np.uint8)
        found[known] = np.select(
            [
                (rows < 0) | (of.begin[rows] < time[known]) if len(rows) else rows < 0,
                state == State.WAIT_CPU,
                state == State.WAIT_DISK,
                state == State.WAIT_STOPPED,
            ],
            [_SLEEPS, _RUNNABLE, _SLEEPS_DEEPLY, _STOPPED],
            _SLEEPS,
        )
        return found

    def find_wakes(self) -> tuple[I32, I64, I64, I32]:
        """Return on which cpu and when each wake of a thread by another was, whose, and its cpu."""
        of = self._of
        # Of a wait for a cpu the "waker" is who took it.
        slept = (of.waker >= 0) & (of.woken >= 0) & (of.state != State.WAIT_CPU)
        rows = np.flatnonzero(slept)
        waker = of.waker[rows].astype(np.int64)
        at = self._last(waker, of.woken[rows])
        # Where the woken thread went next.
        later = np.minimum(rows + 1, max(len(of.cpu) - 1, 0))
        target = np.where(self._owner[later] == self._owner[rows], of.cpu[later], of.cpu[rows])
        known = (at >= 0) & (of.cpu[at] >= 0)
        return (
            of.cpu[at][known],
            of.woken[rows][known],
            self._owner[rows][known],
            np.maximum(target, 0)[known],
        )


def _pack_tree(timelines: Timelines) -> bytes:
    """Return threads and processes with their names."""
    parts = []
    workers = timelines.workers
    columns = (workers.tid.tolist(), workers.pid.tolist(), workers.name.tolist())
    for tid, pid, name in dict.fromkeys(zip(*columns, strict=True)):
        said = text(_OF_COMMAND if tid == pid else _OF_NAME, safe_text(timelines.strings[name]))
        if tid <= 0 or pid <= 0:
            continue
        if tid == pid:
            whole = number(_OF_COMMAND_IS_COMM, 1)
            parts.append(message(_PROCESSES, number(_OF_PID, pid), said, whole))
        else:
            parts.append(message(_THREADS, number(_OF_TID, tid), said, number(_OF_GROUP, pid)))
    return message(_TREE, *parts)


def _tids(timelines: Timelines, worker: I64) -> I64:
    return np.where(worker >= 0, np.maximum(timelines.workers.tid[worker], 0), 0)


def _deltas(time: I64) -> I64:
    return np.diff(time, prepend=0)


def _pack_first(
    timelines: Timelines, names: list[bytes], cpu: int, time: int, worker: int
) -> bytes:
    """Return a cpu's first switch, from idle: the compact form does not say who left."""
    tid = max(int(timelines.workers.tid[worker]), 0) if worker >= 0 else 0
    name = names[int(timelines.workers.name[worker])] if worker >= 0 else b""
    switch = message(
        _SWITCH,
        *(message(_PREV_COMM, b"swapper"), number(_PREV_PID, 0), number(_PREV_PRIO, _PRIORITY)),
        *(number(_PREV_STATE, 0), message(_NEXT_COMM, name), number(_NEXT_PID, tid)),
        number(_NEXT_PRIO, _PRIORITY),
    )
    event = message(_EVENT, number(_TIME, time), number(_PID, 0), switch)
    return message(_BUNDLE, number(_CPU, cpu), event)


def _pack_switches(
    timelines: Timelines, names: list[bytes], time: I64, after: I64, state: I64, woken: I64
) -> Iterator[bytes]:
    """Yield the columns of switches, and the names of those and of who is woken."""
    workers = np.concatenate([after, woken])
    code = np.where(workers >= 0, timelines.workers.name[workers], 0)
    used, places = np.unique(code, return_inverse=True)
    places = places.reshape(-1).astype(np.int64)
    yield packed(_SWITCH_TIME, _deltas(time))
    yield packed(_SWITCH_STATE, state)
    yield packed(_SWITCH_PID, _tids(timelines, after))
    yield packed(_SWITCH_PRIORITY, np.full(len(time), _PRIORITY))
    yield from (message(_NAMES, names[one]) for one in used.tolist())
    yield packed(_SWITCH_NAME, places[: len(after)])
    yield packed(_WAKE_NAME, places[len(after) :])
