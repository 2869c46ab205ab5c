"""Plain twin of how packets are linked: looked up in the timelines of a whole recording.

The way of critpath 0.6; since then the replay notes what linking needs as it goes.
"""

from __future__ import annotations

import numpy as np

from critpath.model import I64, Events, State, Timelines
from critpath.timeline.network import match_packets


def link_packets(events: Events, timelines: Timelines) -> list[tuple[int, int, int, int]]:
    """Return the matched packets of a recording, as `Timelines.packets` has them."""
    sent, received = match_packets(events)
    if not len(sent):
        return []
    hosts = [c.host for c in events.classes]
    processors = {key: index for index, key in enumerate(timelines.processors)}
    sleeps = np.flatnonzero(
        (timelines.state == State.WAIT_NET) & (timelines.waker < 0) & (timelines.woken >= 0)
    )
    sleeps = sleeps[np.argsort(timelines.woken[sleeps], kind="stable")]
    woken = timelines.woken[sleeps]
    owner = np.searchsorted(timelines.start, sleeps, side="right") - 1
    taken: set[int] = set()
    packets = []
    for leave, arrive in zip(sent.tolist(), received.tolist(), strict=True):
        from_ = processors.get((hosts[events.event_class[leave]], int(events.cpu[leave])))
        to = processors.get((hosts[events.event_class[arrive]], int(events.cpu[arrive])))
        if from_ is None or to is None:
            continue
        sender = _running(timelines, from_, int(events.timestamp[leave]))
        moment = int(events.timestamp[arrive])
        first = int(np.searchsorted(woken, moment))
        if sender < 0 or first == len(sleeps) or first in taken:
            continue
        # The wake must come from the softirq that the packet was received in.
        if woken[first] > _softirq_end(timelines, to, moment):
            continue
        if timelines.workers.host[owner[first]] != timelines.processors[to][0]:
            continue
        taken.add(first)
        packets.append(
            (
                sender,
                int(events.timestamp[leave]),
                int(owner[first]),
                int(timelines.end[sleeps[first]]),
            )
        )
    return packets


def _running(timelines: Timelines, processor: int, moment: int) -> int:
    """Return the worker on a processor, -1 if it is idle or unknown."""
    low, high = timelines.ran_start[processor], timelines.ran_start[processor + 1]
    at = low + int(np.searchsorted(timelines.ran_begin[low:high], moment, side="right")) - 1
    if at < low or timelines.ran_end[at] < moment:
        return -1
    worker = int(timelines.ran_worker[at])
    return -1 if timelines.workers.idle_cpu[worker] >= 0 else worker


def _softirq_end(timelines: Timelines, processor: int, moment: int) -> int:
    """Return the end of the interrupt work around a moment, the moment itself if none."""
    low, high = timelines.stolen_start[processor], timelines.stolen_start[processor + 1]
    ends: I64 = timelines.stolen_end[low:high]
    at = int(low) + int(np.searchsorted(ends, moment, side="right"))
    end = moment
    # Nested interrupts cut the work into pieces that touch each other.
    while at < high and timelines.stolen_begin[at] <= end:
        end = int(timelines.stolen_end[at])
        at += 1
    return end
