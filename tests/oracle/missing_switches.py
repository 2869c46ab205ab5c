"""Plain twin of the search for missing switches: looked up in all events of a recording.

The way of critpath 0.6; since then the search is one pass over events as they come.

Some kernels leave out a few per cent of the switches, most of them from the idle thread
to another, for every tracer and without counting them as lost (docs/evaluation.md has
figures).  What the thread does then would be taken for idle's, and who it wakes would
have no waker.

The cpu's next switch names the thread that ran.  An idle cpu runs a thread as soon as it
is woken: the missing switch is put after the thread's last wake before that switch, and
after the interrupts that were open on the cpu then.  Otherwise it is put before the
first event of which the trace says that this thread was current (``critpath_current``,
which the ftrace recorder puts in).  Where neither is there, or events were lost, nothing
is put in.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np

from critpath.model import I64, Events, Kind
from critpath.schema.environment import Environment

_OPENS: Final = frozenset({Kind.IRQ_ENTRY, Kind.SOFTIRQ_ENTRY, Kind.TIMER_ENTRY, Kind.VECTOR_ENTRY})
_CLOSES: Final = frozenset({Kind.IRQ_EXIT, Kind.SOFTIRQ_EXIT, Kind.TIMER_EXIT, Kind.VECTOR_EXIT})
# Fields of a switch, in the canonical order.
_PREV_COMM, _PREV_TID, _NEXT_COMM, _NEXT_TID = 0, 1, 3, 4
_FIELDS: Final = 5
_IDLE: Final = 0
_RUNNABLE, _SLEEPS = 0, 1  # prev_state


def repair_switches(events: Events) -> Events:
    """Return the events with the switches that the kernel left out.

    Parameters
    ----------
    events : Events
        Fields in the canonical order of each `Kind`.

    Returns
    -------
    Events
        With an ``environment`` of its own that tells how many were put in; the same
        object if none was.
    """
    pairs = contradictions(events)
    if not len(pairs):
        return events
    places = _Places(events)
    put = []
    for before, following in pairs:
        place = places.after(before, following)
        if place >= 0:
            put.append((place, before, following, places.left_as(before, place)))
    return _insert(events, np.array(sorted(put), np.int64)) if put else events


def contradictions(events: Events) -> list[tuple[int, int]]:
    """Pairs of rows: a switch, and the cpu's next, which is from another thread."""
    last: dict[tuple[int, int], int] = {}
    found = []
    for row, (cpu, number) in enumerate(
        zip(events.cpu.tolist(), events.event_class.tolist(), strict=True)
    ):
        event_class = events.classes[number]
        if event_class.kind != Kind.SWITCH or cpu < 0:
            continue
        before = last.get((event_class.host, cpu))
        if before is not None:
            went_to = events.values[events.offset[before] + _NEXT_TID]
            if went_to != events.values[events.offset[row] + _PREV_TID]:
                found.append((before, row))
        last[event_class.host, cpu] = row
    return found


class _ByThread:
    """Rows of some events by the thread that they are about."""

    def __init__(self, host: I64, tid: I64, rows: I64) -> None:
        keys = (host << 32) + tid
        order = np.argsort(keys, kind="stable")
        self._keys, self._rows = keys[order], rows[order]

    def of(self, host: int, tid: int) -> I64:
        """Return the rows of a thread, ascending."""
        key = (host << 32) + tid
        low, high = np.searchsorted(self._keys, [key, key + 1])
        return self._rows[low:high]


class _Places:
    """Where missing switches belong."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self._kind = np.array([c.kind for c in events.classes], np.uint8)
        self._host = np.array([c.host for c in events.classes], np.int64)

    def _rows(self, *kinds: Kind) -> I64:
        return np.flatnonzero(np.isin(self._kind, kinds)[self.events.event_class])

    def _by_thread(self, rows: I64, tid: I64) -> _ByThread:
        return _ByThread(self._host[self.events.event_class[rows]], tid, rows)

    @cached_property
    def _wakes(self) -> _ByThread:
        rows = self._rows(Kind.WAKING, Kind.WAKEUP, Kind.WAKEUP_NEW)
        return self._by_thread(rows, self.events.column(rows, "tid"))

    @cached_property
    def _current(self) -> _ByThread:
        rows = self._rows(Kind.CURRENT)
        return self._by_thread(rows, self.events.column(rows, "tid"))

    @cached_property
    def _arrivals(self) -> _ByThread:
        rows = self._rows(Kind.SWITCH)
        return self._by_thread(rows, self.events.values[self.events.offset[rows] + _NEXT_TID])

    def after(self, before: int, following: int) -> int:
        """Return the row that a missing switch follows, -1 where it is not known."""
        events = self.events
        host = int(self._host[events.event_class[before]])
        tid = int(events.values[events.offset[following] + _PREV_TID])
        if tid == _IDLE or self._lost(host, before, following):
            return -1
        last = following
        seen = self._current.of(host, tid)
        seen = seen[(seen > before) & (seen < following)]
        seen = seen[events.cpu[seen] == events.cpu[before]]
        if len(seen):
            last = int(seen[0])
        if events.values[events.offset[before] + _NEXT_TID] == _IDLE:
            wakes = self._wakes.of(host, tid)
            at = int(np.searchsorted(wakes, last)) - 1
            if at >= 0 and wakes[at] > before:
                place = self._out_of_interrupts(host, before, int(wakes[at]), following)
                return min(place, last - 1) if len(seen) else place
        return last - 1 if len(seen) else -1

    def left_as(self, before: int, place: int) -> int:
        """Return the state in which the thread before left the cpu."""
        events = self.events
        host = int(self._host[events.event_class[before]])
        tid = int(events.values[events.offset[before] + _NEXT_TID])
        if tid == _IDLE:
            return _RUNNABLE
        wakes, arrivals = self._wakes.of(host, tid), self._arrivals.of(host, tid)
        woken = wakes[np.searchsorted(wakes, place, "right") :]
        came = arrivals[np.searchsorted(arrivals, place, "right") :]
        slept = len(woken) and (not len(came) or woken[0] < came[0])
        return _SLEEPS if slept or not len(came) else _RUNNABLE

    def _lost(self, host: int, before: int, following: int) -> bool:
        cpu = self.events.cpu[before]
        begin, end = self.events.timestamp[before], self.events.timestamp[following]
        return any(
            loss.host == host and loss.cpu in {-1, cpu} and loss.begin <= end and begin <= loss.end
            for loss in self.events.losses
        )

    def _out_of_interrupts(self, host: int, before: int, wake: int, following: int) -> int:
        """Return the row at which the cpu leaves the interrupts that are open at a wake."""
        classes = self.events.event_class[before:following]
        here = (self.events.cpu[before:following] == self.events.cpu[before]) & (
            self._host[classes] == host
        )
        depth = 0
        last = wake
        for offset in np.flatnonzero(here).tolist():
            kind = self._kind[classes[offset]]
            if before + offset > wake and depth <= 0:
                break
            depth += kind in _OPENS
            depth -= kind in _CLOSES
            last = max(wake, before + offset)
        return last


def _insert(events: Events, put: I64) -> Events:
    """Put switches in after some rows."""
    place, before, following, state = put.T
    values = events.values
    new = np.zeros((len(put), _FIELDS), np.int64)
    new[:, 0] = values[events.offset[before] + _NEXT_COMM]
    new[:, 1] = values[events.offset[before] + _NEXT_TID]
    new[:, 2] = state
    new[:, 3] = values[events.offset[following] + _PREV_COMM]
    new[:, 4] = values[events.offset[following] + _PREV_TID]
    at = place + 1
    kinds = np.array([c.kind for c in events.classes], np.uint8)
    written = int((kinds[events.event_class] == Kind.SWITCH).sum())
    counted = Environment(switches_put_in=len(put), switches_written=written)
    return replace(
        events,
        timestamp=np.insert(events.timestamp, at, events.timestamp[place]),
        cpu=np.insert(events.cpu, at, events.cpu[before]),
        event_class=np.insert(events.event_class, at, events.event_class[before]),
        offset=np.insert(events.offset, at, len(values) + _FIELDS * np.arange(len(put))),
        values=np.concatenate([values, new.ravel()]),
        environment=(*events.environment, counted),
    )
