"""Network links: from the thread that sent a packet to the thread it woke."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from critpath.model import I32, I64, Events, Kind
from critpath.read import HEADERS, PACKETS


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
    that received it.  A packet that woke no thread links nothing.

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


def network_events(events: Events) -> Events:
    """Return the events of packets alone."""
    kinds = np.array([c.kind in PACKETS for c in events.classes], bool)
    rows = np.flatnonzero(kinds[events.event_class]) if kinds.any() else np.zeros(0, np.int64)
    return replace(
        events,
        timestamp=events.timestamp[rows],
        cpu=events.cpu[rows],
        event_class=events.event_class[rows],
        offset=events.offset[rows],
        current=None,
    )


def match_packets(events: Events) -> tuple[I64, I64]:
    """Pair the sending of packets with their reception.

    By addresses, ports, sequence numbers and flags, where the trace has them: a
    packet sent again has the same, so a reception belongs to the last sending
    before it; between hosts, whose clocks may not agree yet, to the first.  Traces
    without headers (lttng-modules before 2.10) pair by the
    address of the socket buffer, within one host.
    """
    kinds = np.array([c.kind for c in events.classes], np.int64)
    kind = kinds[events.event_class] if len(kinds) else np.zeros(0, np.int64)
    rows = np.flatnonzero((kind == Kind.NET_SEND) | (kind == Kind.NET_RECEIVE))
    if not len(rows):
        return rows, rows
    hosts = np.array([c.host for c in events.classes], np.int64)[events.event_class[rows]]
    headers = np.column_stack([events.column(rows, name) for name in HEADERS])
    buffers = events.column(rows, "skbaddr")
    waiting: dict[tuple[int, ...], int] = {}
    pairs: list[tuple[int, int]] = []
    several = len(set(hosts.tolist())) > 1
    keys = [
        (0, *header) if any(header) else (1, host, buffer)
        for header, host, buffer in zip(
            headers.tolist(), hosts.tolist(), buffers.tolist(), strict=True
        )
    ]
    receives = kind[rows] == Kind.NET_RECEIVE
    if several:
        for key, row, receive in zip(keys, rows.tolist(), receives.tolist(), strict=True):
            if not receive:
                waiting.setdefault(key, row)
        found = [
            (waiting[key], row)
            for key, row, receive in zip(keys, rows.tolist(), receives.tolist(), strict=True)
            if receive and key in waiting
        ]
        pairs = list({sent: (sent, row) for sent, row in reversed(found)}.values())[::-1]
    else:
        for key, row, receive in zip(keys, rows.tolist(), receives.tolist(), strict=True):
            if not receive:
                waiting[key] = row
            elif key in waiting:
                pairs.append((waiting.pop(key), row))
    both = np.array(sorted(pairs, key=lambda p: p[1]), np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]
