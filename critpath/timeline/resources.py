"""What a recording says of resources besides threads and processors: quotas, disks, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from critpath.model import I64, EventChunk, EventClass, Events, Kind, Resources

# The kernel's function that ends a period of a quota.
PERIOD_TIMER: Final = "sched_cfs_period_timer"
_WANTED: Final = (
    *(Kind.TIMER_ENTRY, Kind.DISK_INSERT, Kind.DISK_ISSUE, Kind.DISK_COMPLETE),
    *(Kind.RECLAIM_BEGIN, Kind.RECLAIM_END),
)
_FUNCTION: Final = 1  # technical: field of a timer's entry
_ISSUED: Final = 5  # technical: fields of a request that is issued


class ResourceEvents:
    """Collects what `critpath.graph.resources` asks for, from events as they come.

    Parameters
    ----------
    functions : collection of int
        Addresses of `PERIOD_TIMER`.
    """

    def __init__(self, functions: Sequence[int]) -> None:
        self._functions = np.array(functions, np.int64)
        self._kinds = np.zeros(0, np.uint8)
        self._memcg = np.zeros(0, np.bool_)
        self._found: dict[Kind, list[I64]] = {kind: [] for kind in _WANTED}

    def feed(self, chunk: EventChunk | Events, classes: Sequence[EventClass]) -> None:
        """Take note of some events, which come after those before."""
        if len(classes) > len(self._kinds):
            self._kinds = np.array([self._wanted(c) for c in classes], np.uint8)
            self._memcg = np.array(["memcg" in c.name for c in classes], np.bool_)
        if not self._kinds.any():
            return
        kinds = self._kinds[chunk.event_class]
        for kind in _WANTED:
            rows = np.flatnonzero(kinds == kind)
            if len(rows):
                self._found[kind].append(self._take(kind, chunk, rows))

    def _wanted(self, of: EventClass) -> Kind:
        """Return a class's kind if its events tell something here."""
        if of.kind not in _WANTED or "absent" in of.types[:4]:
            return Kind.OTHER
        if of.kind == Kind.TIMER_ENTRY and (not len(self._functions) or len(of.fields) < 2):
            return Kind.OTHER
        return of.kind

    def _take(self, kind: Kind, chunk: EventChunk | Events, rows: I64) -> I64:
        time, at = chunk.timestamp[rows], chunk.offset[rows]
        if kind == Kind.TIMER_ENTRY:
            mine = np.isin(chunk.values[at + _FUNCTION], self._functions)
            return np.stack([time[mine], chunk.values[at[mine]]], axis=1)
        if kind in {Kind.RECLAIM_BEGIN, Kind.RECLAIM_END}:
            group = self._memcg[chunk.event_class[rows]].astype(np.int64)
            return np.stack([time, chunk.values[at], group], axis=1)
        fields = range(3 if kind == Kind.DISK_COMPLETE else _ISSUED)
        return np.stack([time, *(chunk.values[at + i] for i in fields)], axis=1)

    def finish(self, end: int) -> Resources:
        """Return what was found until the recording's end."""

        def all_of(kind: Kind, width: int) -> I64:
            return np.concatenate([np.zeros((0, width), np.int64), *self._found[kind]])

        return Resources(
            all_of(Kind.TIMER_ENTRY, 2),
            _pair_requests(
                all_of(Kind.DISK_INSERT, 6),
                all_of(Kind.DISK_ISSUE, 6),
                all_of(Kind.DISK_COMPLETE, 4),
                end,
            ),
            _pair_reclaims(all_of(Kind.RECLAIM_BEGIN, 3), all_of(Kind.RECLAIM_END, 3), end),
        )


def _pair_requests(inserted: I64, issued: I64, completed: I64, end: int) -> I64:
    """Return a row for each request: begun, completed, device, thread, its name's code.

    A request begins in its disk's queue, if it waits there: a worker of the kernel may issue it
    for the thread that made it.
    """
    result = np.zeros((len(issued), 5), np.int64)
    result[:, 0] = issued[:, 0]
    result[:, 1] = end
    result[:, 2:] = issued[:, [1, 4, 5]]
    tables = (inserted, issued, completed)
    events = [
        (time, which, device, sector, row)
        for which, table in enumerate(tables)
        for row, (time, device, sector) in enumerate(table[:, :3].tolist())
    ]
    queued: dict[tuple[int, int], int] = {}
    open_: dict[tuple[int, int], list[int]] = {}
    for time, which, device, sector, row in sorted(events):
        key = device, sector
        if not which:
            queued[key] = row
        elif which == 1:
            if (made := queued.pop(key, None)) is not None:
                result[row, [0, 3, 4]] = inserted[made, [0, 4, 5]]
            open_.setdefault(key, []).append(row)
        elif waiting := open_.get(key):
            result[waiting.pop(0), 1] = time
    return result


def _pair_reclaims(begun: I64, ended: I64, end: int) -> I64:
    """Return a row for each: begin, end, thread, whether for its group's limit; none nested."""
    rows = [(*row, True) for row in begun.tolist()] + [(*row, False) for row in ended.tolist()]
    open_: dict[int, tuple[int, int]] = {}
    result = []
    for time, tid, group, begins in sorted(rows):
        if begins:
            open_.setdefault(tid, (time, group))
        elif tid in open_:
            result.append((open_[tid][0], time, tid, open_.pop(tid)[1]))
    result += [(began, end, tid, group) for tid, (began, group) in open_.items()]
    return np.array(sorted(result), np.int64).reshape(-1, 4)
