"""Gaps cut into recordings: what a recorder that was off for a while would have left."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from critpath.model import Kind
from critpath.model.gaps import BASE, make_gaps

LIVES = (Kind.OTHER, Kind.FORK, Kind.EXEC, Kind.EXIT, Kind.STATEDUMP, Kind.SOCKET_STATEDUMP)
_OTHER = 4


def draw_gaps(events, rng, count, *, share=0.3, edge=20_000, hosts=1):
    """Return random gaps of `base` over a recording: often tiny, sometimes touching."""
    rows = []
    span = events.end - events.begin
    for host in range(hosts):
        marks = np.sort(rng.integers(events.begin - 10, events.end + 10, 2 * count))
        last = events.begin - 20
        for low, high in marks.reshape(-1, 2).tolist():
            begin = max(low, last)
            end = min(high, begin + int(span * share / count * rng.exponential()) + 4)
            widths = np.sort(rng.integers(0, min(edge, end - begin) + 1, 2)) if end > begin else [0]
            if end <= begin:
                continue
            closed = begin + int(widths[0]) // 2
            opening = max(closed, end - int(widths[-1]) // 2)
            rows.append((begin, closed, opening, end, BASE, _OTHER, host))
            last = end if rng.integers(2) else end + 1
    return make_gaps(sorted(rows))


def cut_gaps(events, gaps, *, lives=True):
    """Take out of the events of a recording what its gaps leave out."""
    kinds = np.array([c.kind for c in events.classes] or [0])[events.event_class]
    hosts = np.array([c.host for c in events.classes] or [0])[events.event_class]
    user = np.array([c.domain == "ust" for c in events.classes] or [0], bool)[events.event_class]
    gone = np.zeros(len(events), bool)
    for closed, opening, host in zip(
        gaps.closed.tolist(), gaps.opening.tolist(), gaps.host.tolist(), strict=True
    ):
        gone |= (events.timestamp > closed) & (events.timestamp < opening) & (hosts == host)
    gone &= ~user
    gone &= ~np.isin(kinds, LIVES) if lives else True
    kept = np.flatnonzero(~gone)
    return replace(
        events,
        timestamp=events.timestamp[kept],
        cpu=events.cpu[kept],
        event_class=events.event_class[kept],
        offset=events.offset[kept],
        gaps=gaps,
    )
