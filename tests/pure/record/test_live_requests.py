"""Requests as they are followed live: the same turns as the analysis finds in a recording."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import random
import struct
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.flow import extract_recording
from critpath.model import EventChunk, EventClass, ExtractSettings, Kind, Workers
from critpath.read import KERNEL_EVENTS, SOCKET_EVENTS
from critpath.read.recording import Recording
from critpath.requests import turns
from critpath.requests.activity import ActivityEvents
from critpath_record.flight import kinds as kinds_module
from critpath_record.flight._requests import Requests
from critpath_record.flight.kinds import HeldLabels, Kinds
from critpath_record.flight.live import Formats, LiveExecutions
from critpath_record.flight.pages import HEAD
from critpath_record.ftrace import decrypted as decrypted_module
from critpath_record.ftrace.frames import SESSION
from critpath_record.ftrace.received import read_labels

ROOT = Path(__file__).resolve().parents[3]
WIDTHS = {request.kind: len(request.fields) for request in SOCKET_EVENTS} | {Kind.SWITCH: 5}
KINDS = tuple(WIDTHS)
CLASSES = [
    EventClass(k.name, k, tuple(map(str, range(WIDTHS[k]))), ("int",) * WIDTHS[k]) for k in KINDS
]
# As Linux 6.18 has them: number of the event here, and where its fields are.
FORMATS = {
    Kind.SOCKET_ARRIVAL: (11, 2, (20, 8, 16, 18, -1, -1, -1, -1)),
    Kind.SOCKET_RECEIVE: (12, 3, (28, 8, 16, 18, 20, 24, -1, -1)),
    Kind.SOCKET_SEND: (13, 4, (28, 8, 16, 18, 20, 24, -1, -1)),
    Kind.SOCKET_OF: (14, 5, (22, 8, 20, -1, -1, -1, 16, 18)),
    Kind.SOCKET_STATE: (15, 6, (32, 8, 28, 30, 16, 20, 24, 26)),
}
TABLE = Formats(5, 8, 9, 8, tuple(FORMATS.values()))
TCP, UNIX, ESTABLISHED, SYN_SENT, SYN_RECV, CLOSED, LISTEN = 6, 1, 1, 2, 3, 7, 10
Event = tuple[int, int, Kind, list[int]]  # ns, thread, kind, the analysis's fields
# Threads by their processes.
PROCESSES = {7: 7, 8: 8, 9: 8, 10: 10, 11: 10, 12: 12}
NAMES = {7: "client", 8: "web", 10: "worker-3", 12: "db"}


def make_record(event: Event) -> bytes:
    """Return what the kernel writes for an event."""
    _, tid, kind, v = event
    head = struct.pack("=HBBi", FORMATS[kind][0], 0, 0, tid)
    if kind == Kind.SOCKET_ARRIVAL:
        return head + struct.pack("=qHHI", v[0], v[1], v[2], 0) + bytes(8)
    if kind in {Kind.SOCKET_RECEIVE, Kind.SOCKET_SEND}:
        return head + struct.pack("=qHHii", v[0], v[1], v[2], v[3], v[4])
    if kind == Kind.SOCKET_OF:
        return head + struct.pack("=qHHH", v[0], v[1], v[2], v[3]) + bytes(42)
    return head + struct.pack("=qiiHHHH", v[0], v[11], v[12], v[1], v[2], v[3], v[10]) + bytes(40)


def make_pages(events: list[Event], cpus: int = 2) -> list[tuple[int, bytes]]:
    """Return pages of several cpus, each with when it begins."""
    pages = []
    for cpu in range(cpus):
        mine = [e for e in events if e[1] % cpus == cpu]
        for first in range(0, len(mine), 40):
            some = mine[first : first + 40]
            at = begin = some[0][0]
            data = b""
            for event in some:
                record = make_record(event)
                record = record.ljust(-(-len(record) // 4) * 4, b"\0")
                delta, at = event[0] - at, event[0]
                if delta >= 1 << 27:
                    data += struct.pack("=II", 30 | (delta & 0x7FF_FFFF) << 5, delta >> 27)
                    delta = 0
                data += struct.pack("=I", len(record) // 4 | delta << 5) + record
            pages.append((begin, HEAD.pack(begin, len(data)) + data))
    return sorted(pages)


def follow(
    events: list[Event], every: int = 1 << 62, begin: int = 0, listened: tuple[int, ...] = ()
) -> tuple[list[Any], Any]:
    """Return the turns that are found live, looked at every so often, and what found them."""
    kinds = Kinds(lambda tid: (PROCESSES.get(tid, tid), NAMES.get(PROCESSES.get(tid), "?"), ""))
    live = LiveExecutions(TABLE, kinds)
    live.requests.listen(listened, every=bool(listened))
    rows: list[Any] = []
    live.requests.keep_turns(rows)
    pages = make_pages(events)
    at, last = begin + every, max((e[0] for e in events), default=0)
    while pages:
        # What a look moves may go on beyond it; what came before it is there.
        some = [page for page in pages if page[0] < at]
        pages = pages[len(some) :]
        live.add([page for _, page in some], min(at, last + 1))
        at += every
    live.add([], last + (5 << 30))
    live.requests.look_at_open(1 << 60)
    return [(*row[:4], kinds.names[row[4]], *row[5:]) for row in rows], live


def analyse(events: list[Event], listened: tuple[int, ...] = ()) -> list[Any]:
    """Return the turns that the analysis finds."""
    acts = [
        one
        for time, tid, kind, fields in events
        # Whoever does it has its own cpu.
        for one in ((time, tid, Kind.SWITCH, [0, 0, 0, 0, tid]), (time, tid, kind, fields))
    ]
    for port in listened:
        fields = [0, port, 0, 2, *[0] * 6, TCP, 0, LISTEN, 1, 1, 0]
        acts.insert(0, (1, 1, Kind.SOCKET_STATEDUMP, fields))
    values = [v for *_, fields in acts for v in fields]
    chunk = EventChunk(
        np.array([a[0] for a in acts], np.int64),
        np.array([a[1] for a in acts], np.int32),
        np.array([KINDS.index(a[2]) for a in acts], np.int32),
        np.cumsum([0, *(len(fields) for *_, fields in acts)])[:-1].astype(np.int64),
        np.array(values, np.int64),
    )
    found = ActivityEvents(np.array([[0, 256]], np.int64), waking=True)
    found.feed(chunk, CLASSES)
    names = sorted(set(NAMES.values()))
    tids = sorted(PROCESSES)
    nothing = np.zeros(len(tids), np.int64)
    workers = Workers(
        *(nothing, np.array(tids), np.array([PROCESSES[t] for t in tids])),
        np.array([names.index(NAMES[PROCESSES[t]]) for t in tids], np.int32),
        *(nothing,) * 4,
        nothing.astype(np.int32),
    )
    collected = found.finish(workers, [""])
    end = max((e[0] for e in events), default=0) + 1
    of = turns.find_turns(collected, workers, lambda code: names[code], end=end)
    requests, sockets = of.requests, collected.endpoints[:, 0]
    return [
        (
            int(sockets[requests.endpoint[i]]),
            *(int(c[i]) for c in (requests.begin_ns, requests.end_ns, requests.tid)),
            requests.strings[requests.service[i]].removesuffix(" (multiplexed)"),
            *(int(c[i]) for c in (requests.bytes_in, requests.bytes_out)),
        )
        for i in range(len(requests))
    ]


SEEDS = st.integers(0, 1 << 30)

# Threads that talk, in any order


class Connection:
    """One connection: who asks, who may answer, over which sockets."""

    def __init__(self, number: int, family: int, port: int, askers: list[int], servers: list[int]):
        self.family, self.port, self.remote = family, port, 40_000 + number
        self.protocol = 0 if family == UNIX else TCP
        self.near, self.far = (1 << 40) + 2 * number, (1 << 40) + 2 * number + 1
        self.askers, self.servers = askers, servers
        self.inbox, self.answers = 0, 0

    def ends(self, serving: bool) -> list[int]:
        ports = [self.port, self.remote] if serving else [self.remote, self.port]
        return [*ports, 2, *[0] * 6]


Step = tuple[int, Kind, list[int]]


def connect(of: Connection, tid: int) -> Iterator[Step]:
    def state(serving: bool, old: int, new: int) -> Step:
        socket = of.far if serving else of.near
        return tid, Kind.SOCKET_STATE, [socket, *of.ends(serving), TCP, old, new]

    yield state(False, CLOSED, SYN_SENT)
    yield state(True, LISTEN, SYN_RECV)
    yield state(True, SYN_RECV, ESTABLISHED)
    yield state(False, SYN_SENT, ESTABLISHED)
    yield tid, Kind.SOCKET_ARRIVAL, [1 << 39, 2, TCP]


def move(of: Connection, kind: Kind, serving: bool, tid: int, count: int) -> Iterator[Step]:
    mine, theirs = (of.far, of.near) if serving else (of.near, of.far)
    if kind == Kind.SOCKET_SEND:
        yield tid, Kind.SOCKET_ARRIVAL, [theirs, of.family, of.protocol]
    elif of.family != UNIX:
        yield tid, Kind.SOCKET_OF, [mine, *of.ends(serving)]
    yield tid, kind, [mine, of.family, of.protocol, count, 0]


def ask(of: Connection, tid: int, counts: list[int], opens: bool) -> Generator[Step | None]:
    """Ask so many times, in pieces of these sizes; None lets others go on."""
    if opens:
        yield from connect(of, tid)
    for count in counts:
        yield from move(of, Kind.SOCKET_SEND, False, tid, count)
        of.inbox += 1
        while not of.answers:
            yield None
        of.answers -= 1
        yield from move(of, Kind.SOCKET_RECEIVE, False, tid, 7)
    if opens:
        for new in (4, 5, CLOSED):
            yield tid, Kind.SOCKET_STATE, [of.near, *of.ends(False), TCP, ESTABLISHED, new]
            yield tid, Kind.SOCKET_STATE, [of.far, *of.ends(True), TCP, 8, new]


def serve(of: Connection, tid: int, pieces: list[int]) -> Generator[Step | None]:
    """Answer whatever comes, each with so many pieces."""
    for many in itertools.cycle(pieces):
        while not of.inbox:
            yield None
        of.inbox -= 1
        yield from move(of, Kind.SOCKET_RECEIVE, True, tid, 20)
        for piece in range(many):
            sent = move(of, Kind.SOCKET_SEND, True, tid, 100)
            yield next(sent)
            # Who asked may have the answer before the call that sends it has ended.
            if piece == many - 1:
                of.answers += 1
            yield None
            yield from sent


def talk(seed: int) -> list[Event]:
    """Return what threads do at once on some connections, in an order of chance."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    actors: list[tuple[int, Generator[Step | None]]] = []
    sending: dict[int, Generator[Step | None]] = {}
    for number in range(draw.randint(1, 4)):
        family = draw.choice([2, 2, UNIX])
        port, servers = draw.choice([(80, [8, 9]), (5432, [12]), (9000, [10, 11])])
        of = Connection(number, family, 0 if family == UNIX else port, [7], servers)
        counts = [draw.choice([5, 300, 1448]) for _ in range(draw.randint(1, 20))]
        opens = family == 2 and draw.random() < 0.5
        actors.append((7, ask(of, 7, counts, opens=opens)))
        pieces = [draw.randint(1, 3) for _ in range(3)]
        mine = servers[: draw.randint(1, 2)]
        actors += [(tid, serve(of, tid, pieces)) for tid in mine]
    events: list[Event] = []
    at, longest = 1_000_000_000, draw.choice([1_000, 100_000, 3_000_000])
    for _ in range(draw.randint(1, 600)):
        at += draw.randint(1, longest)
        tid, actor = draw.choice(actors)
        # A thread does nothing else until its send has ended.
        if sending.get(tid, actor) is actor and (found := next(actor, None)) is not None:
            events.append((at, *found))
            sending.pop(tid, None)
            if found[1] == Kind.SOCKET_ARRIVAL:
                sending[tid] = actor
    return events


@given(SEEDS, st.integers(1 << 20, 1 << 28))
def test_turns_are_those_of_the_analysis(seed: int, every: int) -> None:
    events = talk(seed)
    found, _ = follow(events, every, 1_000_000_000)
    assert sorted(found) == sorted(analyse(events))


@given(SEEDS)
def test_who_listens_tells_who_serves(seed: int) -> None:
    events, listened = talk(seed), (80, 5432, 9000)
    found, _ = follow(events, listened=listened)
    assert sorted(found) == sorted(analyse(events, listened))


# A recording, as its recorder saw it


def read_sockets(place: Path) -> tuple[list[Event], tuple[int, ...]]:
    """Return what happened to sockets in a recording, and the ports that somebody listened at."""
    every = Recording(place).read((*KERNEL_EVENTS, *SOCKET_EVENTS))
    kinds = np.array([c.kind for c in every.classes])[every.event_class]
    current: dict[int, int] = {}
    events: list[Event] = []
    listened = set()
    rows = np.flatnonzero(np.isin(kinds, [*WIDTHS]))
    columns = (every.timestamp, every.cpu, every.offset, kinds)
    for time, cpu, offset, kind in zip(*(c[rows].tolist() for c in columns), strict=True):
        v = every.values[offset : offset + WIDTHS[kind]].tolist()
        if kind == Kind.SWITCH:
            current[cpu] = v[4]
        elif kind == Kind.SOCKET_STATEDUMP:
            listened |= {v[1]} if v[12] == LISTEN and v[3] != UNIX else set()
        elif cpu in current:
            events.append((time, current[cpu], Kind(kind), v))
    return events, tuple(sorted(listened))


@pytest.mark.parametrize("archive", ["requests/memcached", "hosts/outer-3-8"])
def test_turns_of_a_recording(unpack: Any, archive: str) -> None:
    name = archive.partition("/")[2]
    place = unpack(ROOT / "fixtures" / f"{archive}.tar.xz") / name
    place = place / "recording" if archive.startswith("hosts") else place
    [whole] = extract_recording(Recording(place), ExtractSettings("requests", "native"))
    of = whole.executions
    columns = zip(of.begin.tolist(), of.end.tolist(), of.tid.tolist(), of.label, strict=True)
    known = {(*row[:3], row[3].partition(" ")[0].partition(":")[2]) for row in columns}
    events, listened = read_sockets(place)
    found, _ = follow(events, 1 << 28, events[0][0], listened)
    live = {(*row[1:4], row[4].partition(":")[2]) for row in found}
    assert len(known) > 100
    assert live == known


# Gaps, bounds, what is still open


def served(requests: Requests | None = None) -> tuple[Requests, Kinds]:
    """Return what follows requests, and what calls them by their ports."""
    kinds = Kinds(lambda tid: (PROCESSES[tid], NAMES[PROCESSES[tid]], ""))
    return requests or Requests(TABLE.table, kinds.find), kinds


def feed(requests: Requests, events: list[Event], until: int = 0) -> None:
    for _, page in make_pages(sorted(events)):
        requests.add(page)
    requests.advance(until or events[-1][0] + 1)


def test_a_name_that_cannot_be_had_is_counted_and_ends_nothing() -> None:
    """What calls kinds by names fails for a thread: its requests are of "other"."""

    def find(tid: int, *_: int) -> int:
        if tid == 12:
            raise LookupError(tid)
        return 1

    requests = Requests(TABLE.table, find)
    one, two = (Connection(n, 2, 80, [7], [12 + n]) for n in range(2))
    feed(requests, exchange(one, 1_000_000, 9), 1 << 30)
    assert requests.unnamed >= 1
    assert counts(requests)[0][0] == 1
    feed(requests, exchange(two, 9 << 30, 9, 13), 10 << 30)
    assert counts(requests)[1][0] == 1


def exchange(of: Connection, at: int, took: int, tid: int = 12) -> list[Event]:
    """Return what one request is, from when it arrives to its answer."""
    steps = [
        *move(of, Kind.SOCKET_SEND, False, 7, 5),
        *move(of, Kind.SOCKET_RECEIVE, True, tid, 5),
    ]
    events = [(at + n, *step) for n, step in enumerate(steps)]
    if took:
        sent = move(of, Kind.SOCKET_SEND, True, tid, 9)
        events += [(at + took - 1 + n, *step) for n, step in enumerate(sent)]
    return events


def counts(requests: Requests) -> dict[int, tuple[int, int, int]]:
    """Return of each kind that had anything how many there were, were cut, were reset."""
    return {row[0]: (row[1], row[3], row[4]) for row in requests.take_block()}


def test_what_a_gap_touches_is_cut_and_neither_fast_nor_slow() -> None:
    requests, _ = served()
    rows: list[Any] = []
    requests.keep_turns(rows)
    one, two = (Connection(n, 2, 5432, [7], [12]) for n in range(2))
    feed(requests, exchange(one, 1_000, 500) + exchange(two, 1_010, 500), 10_000_000)
    feed(requests, exchange(one, 11_000_000, 0), 20_000_000)
    requests.cross_gap(30_000_000)
    # What is seen of it afterwards is its end alone; then all is as ever.
    answer = [
        (31_000_000 + n, *step) for n, step in enumerate(move(one, Kind.SOCKET_SEND, True, 12, 9))
    ]
    feed(requests, [*answer, *exchange(one, 40_000_000, 600)], 1 << 40)
    feed(requests, exchange(two, (1 << 40) + 1000, 700), 1 << 41)
    assert counts(requests) == {1: (4, 1, 0)}
    assert sorted(row[2] - row[1] for row in rows) == [500, 500, 600, 700]


def test_recording_may_begin_between_a_request_and_its_answer() -> None:
    """The server is seen to send first, of a connection whose ports are known later."""
    requests, _ = served()
    requests.listen([5432], every=True)
    rows: list[Any] = []
    requests.keep_turns(rows)
    of = Connection(0, 2, 5432, [7], [12])
    answer = [(1_000 + n, *step) for n, step in enumerate(move(of, Kind.SOCKET_SEND, True, 12, 9))]
    received = [
        (2_000 + n, *step) for n, step in enumerate(move(of, Kind.SOCKET_RECEIVE, False, 7, 9))
    ]
    events = [*answer, *received]
    for n in range(3):
        events += exchange(of, 1_000_000 * (n + 1), 500 + n)
    feed(requests, events, 1 << 40)
    # When the first began is not known: its arrival was at what did not seem to serve.
    assert [row[2] - row[1] for row in rows] == [501, 502]


def test_what_lacks_events_is_cut_as_by_a_gap() -> None:
    requests, _ = served()
    of = Connection(0, 2, 5432, [7], [12])
    feed(requests, exchange(of, 1_000, 0), 2_000)
    [(begin, page)] = make_pages(exchange(of, 5_000, 100), 1)
    lost = HEAD.pack(begin, HEAD.unpack_from(page)[1] | 1 << 31) + page[HEAD.size :]
    requests.add(lost)
    requests.advance(1 << 40)
    # It may be the rest of the one before.
    assert counts(requests) == {1: (0, 1, 0)}


def test_a_reset_of_what_was_not_answered_is_an_error() -> None:
    requests, _ = served()
    of = Connection(0, 2, 5432, [7], [12])
    opened = [(n, *step) for n, step in enumerate(connect(of, 7), 100)]

    def close(at: int, old: int, new: int) -> Event:
        fields = [of.far, *of.ends(serving=True), TCP, old, new]
        return at, 12, Kind.SOCKET_STATE, fields

    feed(requests, [*opened, *exchange(of, 1_000, 0), close(2_000, ESTABLISHED, CLOSED)])
    assert counts(requests) == {1: (0, 0, 1)}
    # Who goes after the answer, and who says that he goes (of PostgreSQL a message of its own).
    feed(requests, [*opened, *exchange(of, 3_000, 10), close(4_000, ESTABLISHED, CLOSED)])
    assert counts(requests) == {1: (1, 0, 0)}
    feed(requests, [*opened, *exchange(of, 5_000, 0), close(6_000, 8, 9), close(7_000, 9, CLOSED)])
    assert counts(requests) == {}


def test_tables_are_bounded_and_what_was_used_last_is_kept() -> None:
    kinds = Kinds(lambda tid: (tid, f"p{tid}", ""), most=10)
    requests = Requests(TABLE.table, kinds.find, endpoints=100, kinds=11)
    busy = Connection(5_000, 2, 80, [7], [12])
    rows: list[Any] = []
    requests.keep_turns(rows)
    for n in range(2_000):
        other = Connection(n, 2, 80, [7], [12])
        at = 1_000_000 * (n + 1)
        feed(requests, exchange(other, at, 0, 100 + n % 50) + exchange(busy, at + 500, 9, 99))
        assert requests.count_tables()[0] <= 100
    assert len(rows) == 1_999  # the last may go on
    assert requests.forgotten > 3_000
    assert len(kinds.names) == 11
    found = counts(requests)
    assert kinds.beyond
    assert found[0][1] > 1_000  # cut, in "other"


def test_an_open_request_is_counted_once_when_it_is_too_long() -> None:
    requests, _ = served()
    of = Connection(0, 2, 5432, [7], [12])
    feed(requests, exchange(of, 1_000, 500), 5 << 30)
    requests.take_block()
    requests.set_limit(1, 1_000_000)
    feed(requests, exchange(of, 6 << 30, 0), 7 << 30)
    assert requests.count_open(1, 1_000_000) == 1
    assert requests.count_open(1, 1 << 40) == 0
    for _ in range(2):
        requests.look_at_open(1 << 60)
    [row] = requests.take_block()
    assert (row[1], row[8]) == (0, 1)
    answer = [
        ((8 << 30) + n, *step) for n, step in enumerate(move(of, Kind.SOCKET_SEND, True, 12, 9))
    ]
    feed(requests, answer, 20 << 30)
    [row] = requests.take_block()
    assert (row[1], row[5], row[8]) == (1, 1, 0)  # it is among those that were counted before
    assert requests.count_open(1, 0) == 0


def test_a_thread_that_is_gone_is_of_whoever_began_it() -> None:
    kinds = Kinds(lambda tid: (8, "web", "") if tid == 8 else None)
    fork = (16, 8, (24, -1, -1, -1, 12, 20, -1, -1))
    live = LiveExecutions(Formats(5, 8, 9, 8, (*FORMATS.values(), fork)), kinds)
    rows: list[Any] = []
    live.requests.keep_turns(rows)
    steps = [
        struct.pack("=HBBiIiIi", 16, 0, 0, parent, 0, parent, 0, child)
        for parent, child in ((8, 50), (50, 51))
    ]
    data = b"".join(struct.pack("=I", len(step) // 4) + step for step in steps)
    of = Connection(0, 2, 80, [7], [51])
    live.add([HEAD.pack(1, len(data)) + data])
    pages = make_pages(sorted(exchange(of, 1_000, 500, 51)))
    live.add([page for _, page in pages], 1 << 40)
    assert [kinds.names[row[4]] for row in rows] == ["web:80"]
    assert live.requests.find_parent(99) == 0


@given(st.lists(st.binary(max_size=200), max_size=6), SEEDS)
def test_whatever_pages_hold_does_no_harm(damage: list[bytes], seed: int) -> None:
    requests, _ = served()
    pages = [page for _, page in make_pages(talk(seed % 1000))]
    draw = random.Random(seed)  # noqa: S311 - no secret
    for data in damage:
        pages.insert(
            draw.randint(0, len(pages)), HEAD.pack(draw.randint(0, 1 << 63), len(data)) + data
        )
    for page in pages:
        torn = bytearray(page)
        if torn and draw.random() < 0.5:
            torn[draw.randrange(len(torn))] ^= 1 << draw.randrange(8)
        requests.add(bytes(torn))
        requests.advance(draw.randint(0, 1 << 62))
    requests.take_block()
    requests.look_at_open(0)


# Who asks whom, and where time goes

DB = Connection(90, 2, 5432, [8], [12])


def ask_db(at: int, took: int, tid: int, of: Connection = DB) -> list[Event]:
    """Return what a question to the database is, whose answer arrives after so long."""
    steps = [
        *move(of, Kind.SOCKET_SEND, False, tid, 5),
        *move(of, Kind.SOCKET_RECEIVE, True, 12, 5),
    ]
    sent = [*move(of, Kind.SOCKET_SEND, True, 12, 9), *move(of, Kind.SOCKET_RECEIVE, False, tid, 9)]
    begin = [(at + n - 1, *step) for n, step in enumerate(steps)]  # its send is at `at`
    return begin + [(at + took + n, *step) for n, step in enumerate(sent)]


def answer(of: Connection, at: int, tid: int) -> list[Event]:
    sent = move(of, Kind.SOCKET_SEND, True, tid, 9)
    return [(at - 1 + n, *step) for n, step in enumerate(sent)]


def list_time(requests: Requests, kinds: Kinds, name: str) -> tuple[int, int, dict[str, Any]]:
    """Return ns queued, ns that are shared, and of whom was asked how often, and ns."""
    queued, shared, _, asked = requests.read_time(kinds.names.index(name))
    return queued, shared, {kinds.name_asked(kind): (count, ns) for kind, count, ns in asked}


WEB = [Connection(n, 2, 80, [7], [8]) for n in range(3)]


def test_what_a_thread_asks_is_for_the_request_that_it_received() -> None:
    requests, kinds = served()
    one = exchange(WEB[0], 1_000, 0, 8)
    feed(requests, [*one, *ask_db(2_000, 300, 8), *ask_db(3_000, 200, 8)], 5_000)
    # Nothing is asked for what is answered.
    feed(requests, answer(WEB[0], 6_000, 8) + ask_db(7_000, 100, 8), 1 << 40)
    assert list_time(requests, kinds, "web:80") == (3, 0, {"db:5432": (2, 500)})
    assert requests.unowned == 0


def test_what_a_worker_asks_is_for_the_request_that_it_answers() -> None:
    requests, kinds = served()
    more = Connection(91, 2, 5432, [9], [12])
    read = exchange(WEB[0], 1_000, 0, 8) + exchange(WEB[1], 1_100, 0, 8)
    feed(
        requests, sorted([*read, *ask_db(2_000, 300, 9, more), *ask_db(3_000, 50, 9, more)]), 4_000
    )
    feed(requests, answer(WEB[1], 5_000, 9), 5_500)
    feed(requests, ask_db(6_000, 70, 9, more) + answer(WEB[0], 7_000, 9), 1 << 40)
    assert list_time(requests, kinds, "web:80")[1:] == (0, {"db:5432": (3, 420)})
    rows = [row for row in requests.take_block() if kinds.names[row[0]] == "web:80"]
    assert [row[1] for row in rows] == [2]


def ask_among_several(requests: Requests) -> None:
    read = exchange(WEB[0], 1_000, 0, 8) + exchange(WEB[1], 1_100, 0, 8)
    feed(requests, sorted([*read, *ask_db(2_000, 300, 8)]), 4_000)
    feed(requests, answer(WEB[0], 5_001, 8) + ask_db(6_000, 70, 8), 6_500)  # one is left: alone
    feed(requests, answer(WEB[1], 8_101, 8), 1 << 40)


def test_what_a_loop_asks_for_one_of_several_is_known_of_its_service_alone() -> None:
    requests, kinds = served()
    requests.find_service = kinds.find_service
    kinds.find(8, 80, 2, 0)
    ask_among_several(requests)
    assert list_time(requests, kinds, "web:80")[1:] == (0, {"db:5432": (2, 370)})
    assert requests.unowned == 1


def test_of_a_loop_with_several_open_requests_it_is_not_known_for_which_it_asks() -> None:
    requests, kinds = served()
    requests.find_service = kinds.find_service
    requests.keep_messages(lambda kind, _: kinds.find_message(kind, "GET /"), 9)
    ring, end = make_ring([(at, of.far, 8, b"x") for at, of in ((1_002, WEB[0]), (1_102, WEB[1]))])
    requests.add_messages(ring, 0, end, lambda *_: 1)
    ask_among_several(requests)
    queued, shared, asked = list_time(requests, kinds, "web:80 GET /")
    assert asked == {"db:5432": (1, 70)}
    assert shared == 4_001 + 7_001 - 70 - queued


def test_what_threads_ask_that_answer_nobody_is_known_of_their_service() -> None:
    requests, kinds = served()
    requests.find_service = kinds.find_service
    more = Connection(91, 2, 5432, [9], [12])
    feed(requests, sorted([*exchange(WEB[0], 1_000, 0, 8), *ask_db(2_000, 300, 9, more)]), 4_000)
    feed(requests, answer(WEB[0], 5_000, 8), 1 << 40)
    assert list_time(requests, kinds, "web:80")[2] == {}
    requests.take_block()
    assert requests.read_time(kinds.names.index("web:80"))[2] == 300
    assert list_time(requests, kinds, "web:80")[2] == {"db:5432": (1, 300)}


def test_what_is_asked_at_once_is_waited_for_once() -> None:
    requests, kinds = served()
    more = Connection(91, 2, 9000, [8], [10])
    asked = ask_db(2_000, 300, 8)
    other = [
        (at, 10 if tid == 12 else tid, *rest) for at, tid, *rest in ask_db(2_100, 500, 8, more)
    ]
    feed(requests, sorted([*exchange(WEB[0], 1_000, 0, 8), *asked, *other]), 4_000)
    feed(requests, answer(WEB[0], 5_000, 8), 1 << 40)
    assert list_time(requests, kinds, "web:80")[2] == {
        "db:5432": (1, 300),
        "worker:9000": (1, 300),
    }


def test_who_is_elsewhere_is_called_by_the_port() -> None:
    requests, kinds = served()
    far = [e for e in ask_db(2_000, 300, 8) if e[1] == 8 and e[2] != Kind.SOCKET_ARRIVAL]
    far.insert(2, (2_300, 8, Kind.SOCKET_ARRIVAL, [DB.near, 2, TCP]))
    feed(requests, sorted([*exchange(WEB[0], 1_000, 0, 8), *far]), 4_000)
    feed(requests, answer(WEB[0], 5_000, 8), 1 << 40)
    assert list_time(requests, kinds, "web:80")[2] == {":5432": (1, 300)}


@given(SEEDS, st.integers(1 << 20, 1 << 28))
def test_nobody_waits_for_longer_than_a_request_takes(seed: int, every: int) -> None:
    _, live = follow(talk(seed), every, 1_000_000_000)
    for number, name in enumerate(live.kinds.names):
        if number and name:
            _, took, *_ = live.requests.read_kind(number)
            queued, shared, _, asked = live.requests.read_time(number)
            assert 0 <= queued + shared + sum(ns for *_, ns in asked) <= took


def test_of_a_kind_the_slowest_and_a_few_by_chance_are_kept() -> None:
    requests, _ = served()
    of = Connection(0, 2, 5432, [7], [12])
    for n in range(50):
        feed(requests, exchange(of, (n + 1) << 31, 1_000 + n % 40), ((n + 2) << 31) - 10)
    found = requests.take_sample()
    assert [row[0] for row in found] == [1, 1, 1]
    assert found[0][2] - found[0][1] == 1_039
    assert [row[4] for row in found] == [1.0, 2 / 49, 2 / 49]
    assert requests.take_sample() == []


# What is called by its first bytes


def make_ring(rows: list[tuple[int, int, int, bytes]]) -> tuple[bytes, int]:
    """Return a kernel's ring with messages, twice: when, socket, thread, bytes."""
    data = b"".join(
        struct.pack("=IIQQII64s", 88, 0, when, sock, tid, len(text), text[:64])
        for when, sock, tid, text in rows
    )
    return data.ljust(1 << 16, b"\0") * 2, len(data)


def test_requests_are_called_by_what_was_received() -> None:
    requests, kinds = served()
    asked: list[bytes] = []
    texts = ["", "GET /cart", "GET /:id"]

    def label(_: int, data: bytes) -> int:
        asked.append(data.rstrip(b"\0"))
        return 1 if data.startswith(b"GET /cart") else 2 if data.startswith(b"GET") else 0

    requests.keep_messages(lambda kind, n: kinds.find_message(kind, texts[n]), 4)
    words = (b"GET /cart?a=1", b"GET /cart?b=2", b"GET /1234 H", b"GET /98765 H", b"GET /v2 H")
    messages, events = [], []
    for n, text in enumerate((*words, b"whatever")):
        at = 1_000 * (n + 1)
        events += exchange(WEB[0], at, 500, 8)
        messages.append((at + 2, WEB[0].far, 8, text))
    ring, end = make_ring(messages)
    assert requests.add_messages(ring, 0, end, label) == end
    feed(requests, events, 1 << 40)
    names = {kinds.names[row[0]]: row[1] for row in requests.take_block()}
    assert names == {"web:80 GET /cart": 2, "web:80 GET /:id": 3, "web:80": 1}
    # What varies makes no other label; a version's number may.
    assert asked == [words[0], words[2], words[4], b"whatever"]
    assert [row[0] for row in requests.list_messages(2_500)] == [3_002, 4_002, 5_002]
    assert kinds.list_named("web:80") == kinds.list_named("")


def test_what_a_thread_decrypts_is_what_it_has_received() -> None:
    requests, kinds = served()
    texts = ["", "GET /a", "GET /b"]
    requests.keep_messages(lambda kind, n: kinds.find_message(kind, texts[n]), 9)
    # On one loop: of each what is decrypted is of what was received just before.
    events = sorted(exchange(WEB[0], 1_000, 500, 8) + exchange(WEB[1], 1_100, 700, 8))
    rows = [
        (1_050, 901, 8, b"1"),
        (1_150, 902, 8, b"2"),
        (9_000, 901, 8, b"1"),
        (9_001, 5, 33, b"1"),
    ]
    ring, end = make_ring(rows)
    requests.add_messages(ring, 0, end, lambda _, data: int(data[:1]), sessions=True)
    feed(requests, events, 1 << 40)
    named = {kinds.names[row[0]]: row[3] for row in requests.take_block()}
    assert {*named} == {"web:80 GET /a", "web:80 GET /b"}
    assert [(row[1], row[5]) for row in requests.list_messages(9_001)] == [(5, True)]


def test_a_service_has_only_so_many_labels() -> None:
    kinds = Kinds(lambda tid: (tid, "web", ""))
    service = kinds.find(8, 80, 2, 0)
    for n in range(200):
        kinds.find_message(service, f"GET /{n}")
    assert len(kinds.names) == 67
    assert kinds.names[-1] == "web:80 GET …"
    kinds.free([service + 1])
    assert kinds.find_message(service, "GET /0") == kinds.find_message(service, "GET /0") > 0
    kinds.free([service])
    assert kinds.find_message(0, "GET /") == 0


@given(st.binary(max_size=400), st.integers(0, 500))
def test_whatever_a_ring_holds_does_no_harm(data: bytes, end: int) -> None:
    requests, _ = served()
    requests.keep_messages(lambda kind, _: kind, 8)
    ring = data.ljust(512, b"\xff") * 2
    assert requests.add_messages(ring, 0, end, lambda *_: 1) <= end + 512
    requests.advance(1 << 40)


# Datagrams


def datagram(near: int, far: int, at: int, took: int, *, local: bool, tid: int = 12) -> list[Event]:
    """Return what a question over UDP is, and its answer."""
    data = [2, 17, 30, 0]
    asks = [(at, 7 if local else 0, Kind.SOCKET_ARRIVAL, [far, 2, 17])]
    asks += [(at + 1, 7, Kind.SOCKET_SEND, [near, *data])] if local else []
    asks.append((at + 2, tid, Kind.SOCKET_RECEIVE, [far, *data]))
    sent = [(at + took - 1, tid, Kind.SOCKET_ARRIVAL, [near, 2, 17])] if local else []
    return [*asks, *sent, (at + took, tid, Kind.SOCKET_SEND, [far, *data])]


@pytest.mark.parametrize("local", [True, False])
def test_datagrams_are_requests(local: bool) -> None:
    requests, kinds = served()
    rows: list[Any] = []
    requests.keep_turns(rows)
    far = 1 << 41
    first = datagram(far + 1, far, 1_000, 900, local=local, tid=12 if local else 11)
    second = datagram(far + 2, far, 1_200, 100, local=local, tid=10)
    feed(requests, sorted(first + second), 1 << 30)
    assert sorted((row[1], row[2]) for row in rows) == [(1_000, 1_900), (1_200, 1_300)]
    assert kinds.names[rows[0][4]] == "worker:udp"


def test_the_oldest_datagrams_without_an_answer_are_given_up() -> None:
    requests, _ = served()
    rows: list[Any] = []
    requests.keep_turns(rows)
    far = 1 << 41
    events = [e for n in range(500) for e in datagram(0, far, 1_000 * n + 1, 10, local=False)[:2]]
    feed(requests, [*events, *datagram(0, far, 600_000, 50, local=False)], 1 << 30)
    assert len(rows) == 1


class PlayedProbe:
    """In place of the kernel's program: a ring with what it handed over."""

    def __init__(self) -> None:
        self.taken, self.given = bytearray(8), bytearray(mmap.PAGESIZE + (1 << 17))
        self.closing = contextlib.ExitStack()

    def hand_over(self, rows: list[tuple[int, int, int, bytes]]) -> None:
        ring, end = make_ring(rows)
        self.given[mmap.PAGESIZE :] = ring
        self.given[:8] = struct.pack("=Q", end)

    def take(self) -> list[Any]:
        return []

    def lost(self) -> int:
        return 3

    def detach(self) -> None: ...


class PlayedDecrypted:
    """In place of probes at libraries of TLS: ten calls of 2 us so far."""

    def __init__(self, **_: bool) -> None:
        self.labels, self.is_closed = PlayedProbe(), False

    def measure(self) -> float:
        return 2e-6

    def count_calls(self) -> int:
        return 10

    def __exit__(self, *_: object) -> None:
        self.is_closed = True


def test_labels_of_what_is_decrypted_are_held_and_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds_module, "open_probe", lambda **_: PlayedProbe())
    monkeypatch.setattr(kinds_module, "_measure_receive", lambda: 1e-6)
    made = PlayedDecrypted()
    monkeypatch.setattr(decrypted_module, "Decrypted", lambda **_: made)
    requests, kinds = served()
    labels = HeldLabels(requests, kinds, 1 << 20, tls=True)
    made.labels.hand_over([(1_050, 901, 8, b"GET /cart HTTP/1.1\r\n")])
    labels.take()
    feed(requests, exchange(WEB[0], 1_000, 500, 8), 1 << 40)
    assert [kinds.names[row[0]] for row in requests.take_block()] == ["web:80 GET /cart"]
    assert labels.charge() == pytest.approx(2e-5)
    assert labels.charge() == 0
    said = labels.save(tmp_path / "labels", 1_000)
    assert (said["from"], said["count"], said["lost"]) == ("bytes,tls", 1, 6)
    [row] = read_labels(tmp_path / "labels")
    assert row == (1_050, 901, 8, 20, bytes(16), 0, SESSION, 0, "GET /cart")
    labels.close()
    assert made.is_closed


def test_labels_are_held_for_a_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = PlayedProbe()
    monkeypatch.setattr(kinds_module, "open_probe", lambda **_: probe)
    costs = iter([1e-6, 3e-6])
    monkeypatch.setattr(kinds_module, "_measure_receive", lambda: next(costs))
    requests, kinds = served()
    labels = HeldLabels(requests, kinds, 1 << 20)
    one = (1_002, WEB[0].far, 8, b"GET /cart HTTP/1.1\r\n")
    probe.hand_over([one, (900, (1 << 64) - 5, 8, b"GET /x HTTP/1.1\r\n")])
    labels.take()
    feed(requests, exchange(WEB[0], 1_000, 500, 8), 1 << 40)
    assert [kinds.names[row[0]] for row in requests.take_block()] == ["web:80 GET /cart"]
    assert labels.charge() == pytest.approx(2e-6)  # of one receive
    assert labels.charge() == 0
    said = labels.save(tmp_path / "labels", 1_000)
    assert (said["from"], said["count"], said["lost"]) == ("bytes", 1, 3)
    assert [*read_labels(tmp_path / "labels")] == [
        (1_002, WEB[0].far, 8, 20, bytes(16), 0, 0, 0, "GET /cart")
    ]
    labels.save(tmp_path / "all", 0)
    assert [row[1] for row in read_labels(tmp_path / "all")] == [WEB[0].far, (1 << 64) - 5]
    labels.close()
