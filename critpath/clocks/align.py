"""Clocks of several hosts: messages found, clocks aligned, events moved to one time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from critpath.clocks.connections import UNIX, HostSockets
from critpath.clocks.hosts import align_clocks, move_times
from critpath.clocks.messages import (
    HostPackets,
    bound_messages,
    find_crossings,
    find_messages,
    pair_packets,
)
from critpath.errors import UsageError
from critpath.model import I64, EventChunk, EventClass, Events, Kind, Loss, Manifest, Workers
from critpath.model.clocks import (
    REFERENCE,
    ClockAlignment,
    ClockFacts,
    JoinedAccount,
    Messages,
    join_crossings,
)
from critpath.model.requests import Collected
from critpath.model.task_states import prev_states
from critpath.progress import Progress, Stage
from critpath.read import (
    HEADERS,
    KERNEL_EVENTS,
    PACKETS,
    SOCKET_EVENTS,
    EventStream,
    OutOfOrder,
    Recording,
    find_recordings,
)
from critpath.requests import UDP, ActivityEvents, EndpointColumn, find_receipts, resolve_endpoints
from critpath.schema.environment import Environment
from critpath.text import clocks as words
from critpath.text.notes import KEPT, word_all
from critpath.units import safe_text

if TYPE_CHECKING:
    from critpath.read import Trace

_TCP: Final = (6, 262)  # technical
# What a clock can say: an error of a quarter of an hour says nothing, and sums must not overflow.
_LARGEST_ERROR: Final = 10**12  # technical: ns
_LATEST: Final = 1 << 61  # technical: ns since the epoch: in the year 2043


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
    environment : sequence of Environment
        As `Events` has it.
    waking : bool
        Whether there are ``sched_waking``.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        environment: Sequence[Environment],
        *,
        waking: bool,
    ) -> None:
        runnable = prev_states(tuple(hosts), tuple(environment))[:, 2:]
        self._sockets = ActivityEvents(runnable, waking=waking, leaving=True, sockets=True)
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
        packets = np.concatenate(self._packets)
        found = []
        for host, sockets in enumerate(sockets_by_host(collected, end, self._count, losses)):
            mine = packets[packets[:, 1] == host]
            found.append(
                HostMessages(sockets, HostPackets(mine[:, 0], mine[:, 2] > 0, mine[:, 3:]))
            )
        return found


def sockets_by_host(
    collected: Collected, end: int, hosts: int, losses: Sequence[Loss]
) -> list[HostSockets]:
    """Return what each host of a recording did with sockets."""
    table = collected.endpoints
    endpoints = resolve_endpoints(collected, [frozenset()] * len(table), end)
    datagram = table[:, EndpointColumn.PROTOCOL] == UDP
    paired = np.isin(table[:, EndpointColumn.PROTOCOL], _TCP) | datagram
    paired |= table[:, EndpointColumn.FAMILY] == UNIX
    return [
        HostSockets(
            collected.activity,
            endpoints,
            paired & (endpoints.host == host),
            [(loss.begin, loss.end) for loss in losses if loss.host == host],
            host,
            datagram,
        )
        for host in range(hosts)
    ]


def find_replayed_messages(
    collected: Collected,
    end: int,
    hosts: int,
    losses: Sequence[Loss],
    alignment: ClockAlignment | None = None,
) -> tuple[Messages, JoinedAccount]:
    """Find who received whose bytes in a recording that is replayed, of one host or several.

    Parameters
    ----------
    collected : Collected
        Of `ActivityEvents` with ``leaving``, else it is less surely known when bytes left.
    end : int
        Of the recording (ns).
    hosts : int
        How many hosts it has.
    losses : sequence of Loss
    alignment : ClockAlignment or None
        By which all times were moved to the reference's, where there are several hosts.

    Returns
    -------
    messages : Messages
        Hosts and endpoints as in `collected`; all times are those of the replay.
    account : JoinedAccount
    """
    found, account = find_messages(sockets_by_host(collected, end, hosts, losses), together=True)
    return (found if alignment is None else bound_messages(found, alignment)), account


def _no_workers() -> Workers:
    none = np.zeros(0, np.int64)
    narrow = none.astype(np.int32)
    return Workers(none, none, none, narrow, none, none, none, none, narrow)


_NO_WORKERS: Final = _no_workers()


class Aligned(NamedTuple):
    """The clocks of several hosts, and what became of their messages."""

    clocks: ClockAlignment
    account: JoinedAccount

    def tell(self, events: Events) -> Events:
        """Say of aligned events how surely each clock is known."""
        alignment = self.clocks
        warnings: list[str] = []
        for clock in alignment.hosts:
            if clock.source != REFERENCE:
                claim = words.claim_text(clock)
                warnings += [
                    words.clock_aligned(clock, alignment.reference),
                    *([claim] if claim else []),
                ]
        bound = max(clock.bound for clock in alignment.hosts)
        return replace(
            events,
            environment=(*events.environment, Environment(clocks_sure_to_ns=bound)),
            clocks=alignment.hosts,
            warnings=(
                *events.warnings,
                *warnings,
                *words.one_kernel(alignment.hosts),
                *words.messages_left_out(self.account),
            ),
        )


def align_messages(
    facts: Sequence[ClockFacts],
    messages: Sequence[HostMessages],
    reference: int = 0,
    *,
    nearest: bool = False,
) -> Aligned:
    """Align the clocks of hosts by what they sent each other."""
    packets = pair_packets([of.packets for of in messages])
    found, account = find_messages([of.sockets for of in messages])
    crossings = find_crossings(found)
    joined = {
        pair: join_crossings([of[pair] for of in (packets, crossings) if pair in of])
        for pair in {**packets, **crossings}
    }
    return Aligned(align_clocks(facts, joined, reference, nearest=nearest), account)


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
    aligned = align_together(events)
    host_of = np.array([c.host for c in events.classes], np.int64)[events.event_class]
    time = events.timestamp.copy()
    for place, clock in enumerate(aligned.clocks.hosts):
        mine = host_of == place
        time[mine] = move_times(clock, time[mine])
    events = aligned.tell(events)
    order = np.argsort(time, kind="stable")
    return replace(
        events,
        timestamp=time[order],
        cpu=events.cpu[order],
        event_class=events.event_class[order],
        offset=events.offset[order],
        begin=min(events.begin, int(time.min(initial=events.begin))),
        end=max(events.end, int(time.max(initial=events.end))),
    )


def link_hosts(
    collected: Collected, workers: Workers, events: Events
) -> tuple[tuple[tuple[int, int, int, int], ...], Messages]:
    """Return what leads from thread to thread over hosts of one clock, and what these sent."""
    alignment = ClockAlignment("", events.clocks) if events.clocks else None
    messages, _ = find_replayed_messages(
        collected, events.end, len(events.hosts), events.losses, alignment
    )
    between = messages.take(
        (messages.sender_host != messages.receiver_host) & (messages.bound_ns >= 0)
    )
    return find_receipts(collected.activity, between, workers), between


def align_together(events: Events) -> Aligned:
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


# Recordings of hosts, named one by one.


@dataclass(frozen=True, eq=False)
class FoundClocks:
    """The clocks of some recordings.

    Attributes
    ----------
    alignment : ClockAlignment
    account : JoinedAccount
    facts : tuple of ClockFacts
        In the order of the alignment's hosts.
    warnings : tuple of str
    """

    alignment: ClockAlignment
    account: JoinedAccount
    facts: tuple[ClockFacts, ...]
    warnings: tuple[str, ...]


def read_clocks(
    sources: Sequence[Path],
    reference: str | None = None,
    progress: Progress | None = None,
    *,
    nearest: bool = False,
) -> FoundClocks:
    """Read recordings of several hosts as far as their clocks ask for it.

    Parameters
    ----------
    sources : sequence of Path
        Recordings, CTF traces, or directories with several; each host of each is one.
    reference : str or None
        The host whose clock the others are expressed in; None for the first by name.
    progress : callable or None
    nearest : bool
        As `align_clocks`.

    Raises
    ------
    UsageError
        With fewer than two hosts, or where none is called like the reference.
    """
    facts: list[ClockFacts] = []
    places: list[str] = []
    messages: list[HostMessages] = []
    warnings: list[str] = []
    seen: set[Path] = set()
    for source in sources:
        for path in find_recordings(source):
            if path.resolve() in seen:
                raise UsageError(f"{path}: named twice", "name each recording once")
            seen.add(path.resolve())
            recording = Recording(path)
            warnings += recording.notes
            stage = Stage(progress, f"reading {recording}")
            for clock, found, about in _read_hosts(recording, stage):
                facts.append(clock)
                places.append(path.name)
                messages.append(found)
                warnings += word_all(about.warnings, KEPT)
    if len(facts) < 2:
        only = safe_text(", ".join(of.host or "(no name)" for of in facts))
        raise UsageError(f"one host only: {only}", "name the recordings of two or more hosts")
    facts = _name_apart(facts, places)
    order = sorted(range(len(facts)), key=lambda place: facts[place].host)
    facts = [facts[place] for place in order]
    names = [of.host for of in facts]
    if reference is not None and reference not in names:
        raise UsageError(
            f"no host is called {safe_text(reference)}",
            f"choose one of {safe_text(', '.join(names))}",
        )
    alignment, account = align_messages(
        facts,
        [messages[place] for place in order],
        0 if reference is None else names.index(reference),
        nearest=nearest,
    )
    warnings += [words.CLOCKS_NEAREST] if nearest else []
    warnings += words.one_kernel(alignment.hosts)
    warnings += words.messages_left_out(account)
    for of in alignment.hosts:
        if not of.aligned:
            warnings.append(words.clock_aligned(of, alignment.reference))
        claim = words.claim_text(of)
        warnings += [claim] if claim and not of.claim_held else []
    return FoundClocks(alignment, account, tuple(facts), tuple(dict.fromkeys(warnings)))


def align_traces(recording: Recording, stage: Stage) -> Aligned:
    """Align the clocks of the hosts of one recording, with the first: each is read once."""
    read = list(_read_hosts(recording, stage, named=True))
    return align_messages([of for of, _, _ in read], [of for _, of, _ in read])


def _read_hosts(
    recording: Recording, stage: Stage, *, named: bool = False
) -> Iterator[tuple[ClockFacts, HostMessages, Events]]:
    """Yield what each host says of its clock, and what it sent and received.

    By the name that its manifest has for it, or (`named`) that its traces have.
    """
    groups: dict[str, list[Trace]] = {}
    for trace in recording.traces:
        groups.setdefault(trace.host, []).append(trace)
    manifests = recording.manifests
    if len(groups) == 1 and not manifests and not named:
        manifests = {next(iter(groups)): recording.manifest}
    for host, mine in groups.items():
        found, about = _read_messages(recording, mine, stage)
        facts = _tell_facts(host, about, manifests.get(host))
        for of in recording.hosts:
            if of.name == host:
                probes = np.array(of.probes, np.int64).reshape(-1, 3)
                facts = replace(facts, probes=probes, asker=of.asker)
        yield replace(facts, host=host) if named or len(groups) > 1 else facts, found, about


def _read_messages(
    recording: Recording, traces: Sequence[Trace], stage: Stage
) -> tuple[HostMessages, Events]:
    """Return what one host sent and received, and everything about its events but these."""
    wanted = (*KERNEL_EVENTS, *SOCKET_EVENTS)
    waking = any(name.endswith("sched_waking") for trace in traces for name in trace.event_names)
    host, environment = [traces[0].host], [trace.schema.environment for trace in traces]
    collector = MessageEvents(host, environment, waking=waking)
    try:
        with EventStream(traces, wanted, reached=stage.reach) as stream:
            for chunk in stream:
                collector.feed(chunk, stream.classes)
            about, strings = stream.finish(), stream.strings()
    except OutOfOrder:
        collector = MessageEvents(host, environment, waking=waking)
        about = Recording(recording.path, traces=tuple(traces)).read(wanted, "native")
        strings = about.strings
        collector.feed(about, about.classes)
    [found] = collector.finish(strings, about.end, about.losses)
    return found, about


def _tell_facts(host: str, about: Events, manifest: Manifest | None) -> ClockFacts:
    """Return what a recording says of its clock; what is malformed is left out."""
    name = host
    kernel, error, synchronised = "", -1, ""
    samples = np.zeros((0, 2), np.int64)
    if manifest is not None:
        said = manifest.host.get("name")
        name = said if isinstance(said, str) and said else host
        boot = manifest.host.get("boot_id")
        kernel = boot if isinstance(boot, str) else ""
        clock = manifest.clock
        how, wrong = clock.get("synchronised"), clock.get("error_ns")
        synchronised = how if isinstance(how, str) else ""
        if (
            type(wrong) is int
            and 0 <= wrong < _LARGEST_ERROR
            and synchronised not in {"", "no", "unknown"}
        ):
            error = wrong
        samples = _read_samples(clock.get("samples"))
    return ClockFacts(name, about.begin, about.end, kernel, samples, error, synchronised)


def _read_samples(found: object) -> I64:
    """Return the samples of both clocks; only those at which neither goes back."""
    rows = [
        row
        for row in (found if isinstance(found, list) else [])
        if isinstance(row, list)
        and len(row) == 2
        and all(type(value) is int and 0 <= value < _LATEST for value in row)
    ]
    samples = np.array(sorted(rows), np.int64).reshape(-1, 2)
    kept: I64 = samples[samples[:, 1] == np.maximum.accumulate(samples[:, 1])]
    return kept


def _name_apart(facts: Sequence[ClockFacts], places: Sequence[str]) -> list[ClockFacts]:
    """Call hosts of one name by their directories where these differ, else number them."""
    names = [of.host for of in facts]
    alike = [names.count(name) > 1 for name in names]
    if len({*places}) == len(places):
        names = [
            place if as_other else name
            for name, place, as_other in zip(names, places, alike, strict=True)
        ]
    seen: dict[str, int] = {}
    named = []
    for of in [replace(of, host=name) for of, name in zip(facts, names, strict=True)]:
        seen[of.host] = seen.get(of.host, 0) + 1
        more = f" ({seen[of.host]})" if seen[of.host] > 1 else ""
        named.append(replace(of, host=(of.host or "host") + more))
    return named
