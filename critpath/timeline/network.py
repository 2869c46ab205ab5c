"""Network links: from the thread that sent a packet to the thread it woke."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from critpath.model import I32, I64, Events
from critpath.timeline.packets import match_packets


class NetRecord(NamedTuple):
    """What the replay knows of the moments at which packets passed.

    Attributes
    ----------
    worker : int32 [network events]
        Of one that sends: who was on its cpu, -1 if idle or unknown.
    end : int64 [network events]
        Of one that receives: the end of the interrupt work around it (ns).
    sleeper : int32 [sleeps]
        Workers whose sleep the network ended without a thread's doing.
    host : int32 [sleeps]
    woken : int64 [sleeps]
        Time of the wake (ns), ascending.
    slept : int64 [sleeps]
        End of the sleep (ns).
    """

    worker: I32
    end: I64
    sleeper: I32
    host: I32
    woken: I64
    slept: I64


def linked_packets(events: Events, record: NetRecord) -> tuple[tuple[int, int, int, int], ...]:
    """Return the packets that link a thread to another, as `Timelines.packets` has them.

    A packet's sender is the thread on the cpu that queued it, unless that is idle;
    the packet woke the first thread whose sleep ended from the network softirq
    that received it.  A packet that woke nobody links nothing.

    Parameters
    ----------
    events : Events
        The ``net_dev_queue`` and ``net_if_receive_skb`` of a recording, nothing else.
    record : NetRecord
        Of a replay that was fed the same events, and all others.

    Returns
    -------
    tuple of (int, int, int, int)
        Sender worker, sent (ns), receiver worker, received (ns).
    """
    sent, received = match_packets(events)
    hosts = [c.host for c in events.classes]
    taken: set[int] = set()
    packets = []
    for leave, arrive in zip(sent.tolist(), received.tolist(), strict=True):
        sender = int(record.worker[leave])
        first = int(np.searchsorted(record.woken, events.timestamp[arrive]))
        # The wake must come from the softirq that the packet was received in.
        if (
            sender < 0
            or events.cpu[arrive] < 0
            or first == len(record.woken)
            or first in taken
            or record.woken[first] > record.end[arrive]
            or record.host[first] != hosts[events.event_class[arrive]]
        ):
            continue
        taken.add(first)
        packets.append(
            (
                sender,
                int(events.timestamp[leave]),
                int(record.sleeper[first]),
                int(record.slept[first]),
            )
        )
    return tuple(packets)
