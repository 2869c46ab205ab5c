"""Clocks of several hosts: messages found, clocks aligned, events moved to one time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from critpath.clocks.hosts import align_clocks, move_times
from critpath.clocks.messages import (
    HostPackets,
    HostSockets,
    JoinedAccount,
    find_crossings,
    pair_packets,
)
from critpath.model import I64, EventChunk, EventClass, Events, Kind, Loss, Workers
from critpath.model.clocks import REFERENCE, ClockAlignment, ClockFacts, join_crossings
from critpath.requests.activity import ActivityEvents
from critpath.requests.endpoints import EndpointColumn, resolve_endpoints
from critpath.text import clocks as words
from critpath.timeline.network import HEADERS, PACKETS
from critpath.timeline.replay import prev_states

_TCP: Final = (6, 262)


@dataclass(frozen=True, eq=False)
class HostMessages:
    """What one host sent and received."""

    sockets: HostSockets
    packets: HostPackets


class MessageEvents:
    """Collects what hosts sent and received, from events as they come; each by its own time.

    Parameters
    ----------
    hosts : sequence of str
    environment : sequence of mapping
        As `Events` has it.
    waking : bool
        Whether there are ``sched_waking``.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        environment: Sequence[Mapping[str, str | int]],
        *,
        waking: bool,
    ) -> None:
        runnable = prev_states(tuple(hosts), tuple(environment))[:, 2:]
        self._sockets = ActivityEvents(runnable, waking=waking, leaving=True)
        self._count = len(hosts)
        self._packets: list[I64] = [np.zeros((0, 3 + len(HEADERS)), np.int64)]

    def feed(self, chunk: EventChunk | Events, classes: Sequence[EventClass]) -> None:
        """Take note of some events."""
        self._sockets.feed(chunk, classes)
        for number, of in enumerate(classes):
            rows = np.flatnonzero(chunk.event_class == number) if of.kind in PACKETS else ()
            if not len(rows):
                continue
            found = np.zeros((len(rows), 3 + len(HEADERS)), np.int64)
            found[:, 0], found[:, 1] = chunk.timestamp[rows], of.host
            found[:, 2] = of.kind == Kind.NET_RECEIVE
            for place, name in enumerate(HEADERS, 3):
                if name in of.fields:
                    at = chunk.offset[rows] + of.fields.index(name)
                    found[:, place] = chunk.values[at]
            self._packets.append(found[found[:, 3:].any(axis=1)])

    def finish(
        self, strings: Sequence[str], end: int, losses: Sequence[Loss]
    ) -> list[HostMessages]:
        """Return what each host sent and received."""
        collected = self._sockets.finish(_NO_WORKERS, strings)
        table = collected.endpoints
        endpoints = resolve_endpoints(collected, [frozenset()] * len(table), end)
        stream = np.isin(table[:, EndpointColumn.PROTOCOL], _TCP)
        packets = np.concatenate(self._packets)
        found = []
        for host in range(self._count):
            sockets = HostSockets(
                collected.activity,
                endpoints,
                stream & (endpoints.host == host),
                [(loss.begin, loss.end) for loss in losses if loss.host == host],
            )
            mine = packets[packets[:, 1] == host]
            found.append(
                HostMessages(sockets, HostPackets(mine[:, 0], mine[:, 2] > 0, mine[:, 3:]))
            )
        return found


def _no_workers() -> Workers:
    none = np.zeros(0, np.int64)
    narrow = none.astype(np.int32)
    return Workers(none, none, none, narrow, none, none, none, none, narrow)


_NO_WORKERS: Final = _no_workers()


def align_messages(
    facts: Sequence[ClockFacts], messages: Sequence[HostMessages], reference: int = 0
) -> tuple[ClockAlignment, JoinedAccount]:
    """Align the clocks of hosts by what they sent each other."""
    packets = pair_packets([of.packets for of in messages])
    crossings, account = find_crossings([of.sockets for of in messages])
    joined = {
        pair: join_crossings([of[pair] for of in (packets, crossings) if pair in of])
        for pair in {**packets, **crossings}
    }
    return align_clocks(facts, joined, reference), account


def align_events(events: Events) -> Events:
    """Move the events of all hosts to the time of the first.

    Parameters
    ----------
    events : Events

    Returns
    -------
    Events
        The same where there is one host.  Warnings say how surely each clock is known; a host
        without messages in both directions keeps its own.
    """
    if len(events.hosts) < 2:
        return events
    alignment, account = align_together(events)
    host_of = np.array([c.host for c in events.classes], np.int64)[events.event_class]
    time = events.timestamp.copy()
    warnings = list(events.warnings)
    bound = 0
    for place, clock in enumerate(alignment.hosts):
        if clock.source == REFERENCE:
            continue
        warnings.append(words.clock_aligned(clock, alignment.reference))
        claim = words.claim_text(clock)
        warnings += [claim] if claim else []
        mine = host_of == place
        time[mine] = move_times(clock, time[mine])
        bound = max(bound, clock.bound)
    warnings += words.messages_left_out(account.joined, account.unmatched, account.lost)
    order = np.argsort(time, kind="stable")
    return replace(
        events,
        timestamp=time[order],
        cpu=events.cpu[order],
        event_class=events.event_class[order],
        offset=events.offset[order],
        begin=min(events.begin, int(time.min(initial=events.begin))),
        end=max(events.end, int(time.max(initial=events.end))),
        environment=(*events.environment, {"clocks_sure_to_ns": bound}),
        warnings=tuple(warnings),
    )


def align_together(events: Events) -> tuple[ClockAlignment, JoinedAccount]:
    """Align the clocks of hosts whose events are in one table, each by its own time."""
    collector = MessageEvents(
        events.hosts,
        events.environment,
        waking=any(c.kind == Kind.WAKING for c in events.classes),
    )
    collector.feed(events, events.classes)
    messages = collector.finish(events.strings, events.end, events.losses)
    host_of = np.array([c.host for c in events.classes], np.int64)[events.event_class]
    facts = []
    for place, name in enumerate(events.hosts):
        times = events.timestamp[host_of == place]
        ends = (times[0], times[-1]) if len(times) else (events.begin, events.end)
        facts.append(ClockFacts(name, int(ends[0]), int(ends[1])))
    return align_messages(facts, messages)
