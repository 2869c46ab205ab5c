"""Real events in the notation of the replay's plain twin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from critpath.model import Kind

WAKES = (Kind.WAKING, Kind.WAKEUP, Kind.WAKEUP_NEW)


def rows_of(events):
    """Real events in the twin's notation, without what it does not know."""
    of = {c.kind for c in events.classes}
    assert Kind.SWITCH in of
    rows, kept = [], []
    columns = zip(
        events.timestamp.tolist(),
        events.cpu.tolist(),
        events.event_class.tolist(),
        events.offset.tolist(),
        strict=True,
    )
    known = {
        *(Kind.SWITCH, Kind.FORK, Kind.EXIT, Kind.IRQ_ENTRY, Kind.IRQ_EXIT, Kind.SOFTIRQ_ENTRY),
        *(Kind.SOFTIRQ_EXIT, Kind.SOFTIRQ_RAISE, Kind.TIMER_ENTRY, Kind.TIMER_EXIT, *WAKES),
    }
    for row, (time, cpu, index, offset) in enumerate(columns):
        kind = events.classes[index].kind
        v = events.values[offset : offset + 8].tolist()
        if kind not in known:
            continue
        kept.append(row)
        if kind == Kind.SWITCH:
            fields = (v[1], v[2], v[4])
        elif kind == Kind.FORK:
            fields = (v[0], v[2])
        elif kind == Kind.IRQ_ENTRY:
            fields = (v[0], events.strings[v[1]])
        elif kind in {Kind.TIMER_ENTRY, Kind.TIMER_EXIT}:
            fields = ()
        elif kind == Kind.SOFTIRQ_RAISE:
            fields = (v[0], v[1])
        else:
            fields = (v[0],)
        rows.append((time, cpu, kind, fields))
    chosen = np.array(kept)
    return rows, replace(
        events,
        timestamp=events.timestamp[chosen],
        cpu=events.cpu[chosen],
        event_class=events.event_class[chosen],
        offset=events.offset[chosen],
    )


def find_ksoftirqd(events):
    """The cpu of each thread that runs a processor's deferred softirqs, by tid."""
    found = {-1: -1}
    for row in np.flatnonzero([c.kind == Kind.SWITCH for c in events.classes]).tolist():
        for place in events.offset[events.event_class == row].tolist():
            name = events.strings[events.values[place + 3]]
            if name.startswith("ksoftirqd/"):
                found[int(events.values[place + 4])] = int(name.partition("/")[2])
    return found
