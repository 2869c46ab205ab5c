"""Switches out of idle that a kernel did not write, put where they must have been.

Some kernels leave out a few per cent of the switches from the idle thread to another,
for every tracer and without counting them as lost (measured on a 6.18 guest kernel: 2 to
8 % of all switches, the same with ``perf record``; see docs/evaluation.md).  What the
thread does then would be taken for idle's, and who it wakes would have no waker.

The cpu's next switch names the thread that ran, and an idle cpu runs a thread as soon as
it is woken.  So the missing switch is put after the thread's last wake before that
switch, and after the interrupts that were open on the cpu then.  Where the thread was
not woken in between, or events were lost there, nothing is put in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from critpath.model import I64, U8, Events, Kind
from critpath.timeline._missing import contradictions
from critpath.units import plural

_WAKES: Final = (Kind.WAKING, Kind.WAKEUP, Kind.WAKEUP_NEW)
_OPENS: Final = frozenset({Kind.IRQ_ENTRY, Kind.SOFTIRQ_ENTRY, Kind.TIMER_ENTRY, Kind.VECTOR_ENTRY})
_CLOSES: Final = frozenset({Kind.IRQ_EXIT, Kind.SOFTIRQ_EXIT, Kind.TIMER_EXIT, Kind.VECTOR_EXIT})
# Fields of a switch, in the canonical order.
_PREV_COMM, _PREV_TID, _NEXT_COMM = 0, 1, 3


def with_missing_switches(events: Events) -> Events:
    """Return the events with the switches out of idle that the kernel left out.

    Parameters
    ----------
    events : Events
        Fields in the canonical order of each `Kind`.

    Returns
    -------
    Events
        With a warning that tells how many were put in; the same object if none was.
    """
    kinds = np.array([c.kind for c in events.classes] or [0], np.uint8)
    hosts = np.array([c.host for c in events.classes] or [0], np.int64)
    pairs = contradictions(
        events.cpu,
        events.event_class,
        events.offset,
        events.values,
        kinds,
        hosts,
        len(events.hosts),
        int(events.cpu.max(initial=0)) + 1,
        int(Kind.SWITCH),
    )
    if not len(pairs):
        return events
    places = _Places(events, kinds, hosts)
    found = [(places.after(before, nxt), before, nxt) for before, nxt in pairs.tolist()]
    put = sorted((place, before, nxt) for place, before, nxt in found if place >= 0)
    if not put:
        return events
    return _insert(events, np.array(put, np.int64))


class _Places:
    """Where missing switches belong."""

    def __init__(self, events: Events, kinds: U8, hosts: I64) -> None:
        self.events = events
        self.kinds = kinds
        self.hosts = hosts
        is_wake = np.isin(kinds, _WAKES)
        rows = np.flatnonzero(is_wake[events.event_class])
        tid = events.column(rows, "tid")
        host = hosts[events.event_class[rows]]
        order = np.argsort((host << 32) + tid, kind="stable")
        self._keys = ((host << 32) + tid)[order]
        self._rows = rows[order]

    def after(self, before: int, following: int) -> int:
        """Return the row that a missing switch follows, -1 where it is not known."""
        events = self.events
        host = int(self.hosts[events.event_class[before]])
        tid = int(events.values[events.offset[following] + _PREV_TID])
        low, high = np.searchsorted(self._keys, [(host << 32) + tid, (host << 32) + tid + 1])
        wakes = self._rows[low:high]
        at = int(np.searchsorted(wakes, following)) - 1
        if at < 0 or wakes[at] <= before or self._lost(host, before, following):
            return -1
        return self._out_of_interrupts(host, before, int(wakes[at]), following)

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
            self.hosts[classes] == host
        )
        depth = 0
        last = wake
        for offset in np.flatnonzero(here).tolist():
            kind = self.kinds[classes[offset]]
            if before + offset > wake and depth <= 0:
                break
            depth += kind in _OPENS
            depth -= kind in _CLOSES
            last = max(wake, before + offset)
        return last


def _insert(events: Events, put: I64) -> Events:
    """Put switches from idle in after some rows."""
    place, before, following = put.T
    values = events.values
    new = np.zeros((len(put), 5), np.int64)
    new[:, 0] = values[events.offset[before] + _NEXT_COMM]
    new[:, 3] = values[events.offset[following] + _PREV_COMM]
    new[:, 4] = values[events.offset[following] + _PREV_TID]
    at = place + 1
    times = plural(len(put), "time")
    note = (
        f"{times} the kernel did not write a switch out of idle (some kernels do that): "
        "the thread is taken to run from its wake on"
    )
    return replace(
        events,
        timestamp=np.insert(events.timestamp, at, events.timestamp[place]),
        cpu=np.insert(events.cpu, at, events.cpu[before]),
        event_class=np.insert(events.event_class, at, events.event_class[before]),
        offset=np.insert(events.offset, at, len(values) + 5 * np.arange(len(put))),
        values=np.concatenate([values, new.ravel()]),
        warnings=(*events.warnings, note),
    )
