"""Endpoints: lives of sockets from drawn events, and whatever events may say."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.model import EventChunk, EventClass, Kind, Workers
from critpath.model.requests import Act
from critpath.read.event_names import SOCKET_EVENTS
from critpath.requests import turns
from critpath.requests.activity import ActivityEvents
from critpath.requests.endpoints import read_dumped, resolve_endpoints

DRAWINGS = Path(__file__).parent / "drawings" / "endpoints.txt"
WIDTHS = {
    request.kind: len(request.fields) for request in SOCKET_EVENTS if request.kind != Kind.TASKS
}
KINDS = (*WIDTHS, Kind.SWITCH, Kind.WAKING)
WIDTHS |= {Kind.SWITCH: 5, Kind.WAKING: 4}
CLASSES = [
    EventClass(k.name, k, tuple(map(str, range(WIDTHS[k]))), ("int",) * WIDTHS[k]) for k in KINDS
]
HOWS = ("", "accepted", "connected", "listened", "bound", "first")


def no_workers():
    empty = np.zeros(0, np.int64)
    return Workers(*(empty,) * 3, empty.astype(np.int32), *(empty,) * 4, empty.astype(np.int32))


def collect(events, strings=("",), gaps=None):
    """Return what is collected of (time, cpu, kind, fields), but in gaps."""
    values = [v for *_, fields in events for v in fields]
    offsets = np.cumsum([0, *(len(fields) for *_, fields in events)])[:-1]
    chunk = EventChunk(
        np.array([e[0] for e in events], np.int64),
        np.array([e[1] for e in events], np.int32),
        np.array([KINDS.index(e[2]) for e in events], np.int32),
        offsets.astype(np.int64),
        np.array(values, np.int64),
    )
    found = ActivityEvents(np.array([[0, 256]], np.int64), waking=True, gaps=gaps)
    found.feed(chunk, CLASSES)
    return found.finish(no_workers(), strings)


def ends(version, *texts):
    """Return sport, dport, family and the addresses as events have them."""
    addresses, ports = zip(*(text.rsplit(":", 1) for text in texts), strict=True)
    family = 2 if version == "4" else 10
    numbers = [ipaddress.ip_address(a) for a in addresses]
    v4 = [int(n) if n.version == 4 else 0 for n in numbers]
    v6 = [int(n) if n.version == 6 else 0 for n in numbers]
    halves = [h for n in v6 for h in (n >> 64, n & (2**64 - 1))]
    signed = [h - 2**64 if h >> 63 else h for h in halves]
    return [int(p) for p in ports] + [family, *v4, *signed]


def read_event(line, at):
    """Return an event; each socket is used by a thread of its own, @N by thread N."""
    line, _, who = line.partition(" @")
    what, socket, *rest = line.split(" ")
    address = (ord(socket) << 8) + (1 << 40)
    thread = int(who) if who else 7
    text = ""
    if what == "state":
        old, new = (int(x) for x in rest[0].split(">"))
        fields = [address, *ends(*rest[1:]), 6, old, new]
        kind = Kind.SOCKET_STATE
    elif what == "of":
        kind, fields = Kind.SOCKET_OF, [address, *ends(*rest)]
    elif what == "dump" and rest[0] == "unix":
        kind, text = Kind.SOCKET_STATEDUMP, rest[2]
        fields = [address, 0, 0, 1, *[0] * 6, 1, 0, int(rest[1]), 0, 0]
    elif what == "dump":
        kind = Kind.SOCKET_STATEDUMP
        fields = [address, *ends(rest[0], *rest[2:]), 6, 0, int(rest[1]), 0, 0]
    else:
        family, protocol = int(rest[0]), int(rest[1])
        kind = {
            "arrive": Kind.SOCKET_ARRIVAL,
            "receive": Kind.SOCKET_RECEIVE,
            "send": Kind.SOCKET_SEND,
        }[what]
        fields = [address, family, protocol]
        fields += [100, 0] if kind != Kind.SOCKET_ARRIVAL else []
    return at, thread, kind, fields, text


def read_drawings():
    for block in re.split(r"\n\s*\n", DRAWINGS.read_text().split("\n\n", 1)[1]):
        title, *lines = block.strip("\n").split("\n")
        yield pytest.param(lines, id=title)


def describe(endpoints, at):
    of = endpoints
    if of.family[at] == 1:
        name = "unix"
    else:
        address = of.strings[of.local_address[at]]
        name = f"{address or '?'}:{of.local_port[at]}"
    if of.serves[at] < 0:
        return f"{name} is not known"
    does = "serves" if of.serves[at] else "asks"
    path = of.strings[of.path[at]]
    text = f"{name} {does} {HOWS[of.role_how[at]]} peer {of.peer[at]}"
    return text + (f" at {path}" if path else "")


@pytest.mark.parametrize("lines", list(read_drawings()))
def test_a_drawing(lines):
    strings, events, expected = [""], [], []
    for at, line in enumerate(lines):
        if line.startswith("="):
            expected.append(re.sub(" of [ab]$", "", line[2:]))
            continue
        time, cpu, kind, fields, text = read_event(line, (at + 2) * 10)
        if kind == Kind.SOCKET_STATEDUMP:
            strings.append(text)
            fields.append(len(strings) - 1)
        # Whoever does it has its own cpu.
        events += [(time - 1, cpu, Kind.SWITCH, [0, 0, 0, 0, cpu]), (time, cpu, kind, fields)]
    collected = collect(events)
    texts = [(*row[:-1], strings[row[-1]]) for row in collected.dumped]
    collected = type(collected)(collected.activity, collected.endpoints, texts)
    users = [set() for _ in collected.endpoints]
    for act, endpoint, tid in zip(
        collected.activity.act, collected.activity.endpoint, collected.activity.tid, strict=True
    ):
        if act in {Act.RECEIVE, Act.SEND}:
            users[endpoint].add(int(tid))
    found = resolve_endpoints(collected, [frozenset(u) for u in users], 10_000)
    described = [describe(found, at) for at in range(len(found))]
    if any(line.startswith(("arrive b 1", "send a 1")) for line in lines):
        # Of unix sockets the one that is heard of first comes first.
        described, expected = sorted(described), sorted(map(swap, expected))
        described = sorted(map(swap, described))
    assert described == expected


def swap(text):
    """Return a description without the number of its peer."""
    return re.sub(r"peer [01]", "peer", text)


NUMBERS = st.one_of(
    st.integers(0, 3),
    st.sampled_from([0, 1, 2, 3, 6, 7, 8, 10, 17, 80, 100, 262]),
    st.integers(-(2**63), 2**63 - 1),
)


@st.composite
def mutated(draw):
    events, time = [], 0
    for _ in range(draw(st.integers(0, 40))):
        time += draw(st.integers(0, 20))
        kind = draw(st.sampled_from(KINDS))
        fields = draw(st.lists(NUMBERS, min_size=WIDTHS[kind], max_size=WIDTHS[kind]))
        if kind == Kind.SOCKET_STATEDUMP:
            fields[-1] = 0
        events.append((time, draw(st.sampled_from([-1, 0, 1, 40_000])), kind, fields))
    return events


@given(mutated())
def test_whatever_events_say_requests_of_an_endpoint_never_overlap(events):
    found = turns.find_turns(collect(events), no_workers(), lambda _: "x", end=10_000)
    requests = found.requests
    for endpoint in np.unique(requests.endpoint):
        mine = requests.endpoint == endpoint
        begin, end = requests.begin_ns[mine], requests.end_ns[mine]
        assert (begin <= end).all()
        assert (begin[1:] >= end[:-1]).all()


@pytest.mark.parametrize(("together", "called"), [(1, False), (2, True), (8, True)])
def test_several_requests_at_once_on_a_connection_are_noticed(together, called):
    random = np.random.default_rng(together)
    intrusions = random.binomial(together - 1, 0.4, 200)
    endpoint = np.zeros(200, np.int64)
    found = turns.find_multiplexed(endpoint, np.arange(1, 201), intrusions, np.zeros(1, np.int64))
    assert found.tolist() == [called]


def test_a_connection_of_a_service_that_shares_them_is_judged_with_the_others():
    of = [60, 60, 60, 240]  # turns; of the last one enough to tell that it is not shared
    endpoint = np.repeat(np.arange(4), of)
    number = np.concatenate([np.arange(1, n + 1) for n in of])
    intrusions = np.zeros(len(endpoint), np.int64)
    intrusions[[10, 20, 30, 40, 70, 80, 90]] = 1
    found = turns.find_multiplexed(endpoint, number, intrusions, np.zeros(4, np.int64))
    assert found.tolist() == [True, True, True, False]


def test_what_settles_how_a_connection_goes_on_is_no_sign():
    endpoint, number = np.repeat(np.arange(20), 10), np.tile(np.arange(1, 11), 20)
    found = turns.find_multiplexed(endpoint, number, (number <= 3) * 1, np.zeros(20, np.int64))
    assert not found.any()


def test_a_header_and_a_body_sent_apart_are_no_two_requests():
    endpoint, intrusions = np.zeros(200, np.int64), np.ones(200, np.int64)
    found = turns.find_multiplexed(endpoint, np.arange(1, 201), intrusions, np.zeros(1, np.int64))
    assert not found.any()


def test_an_ipv4_address_within_ipv6_is_the_ipv4_one_where_it_was_written_down():
    mapped = [0, 0xFFFF_0A00_0001, 0, 0xFFFF_0A00_0002]
    of = read_dumped([0, 1 << 40, 80, 4000, 10, 0, 0, *mapped, 6, 0, 1, 7, 9, ""])
    assert (of.local, of.remote) == ((0, 0x0A000001, 80), (0, 0x0A000002, 4000))
    other = [0x20010DB8 << 32, 1, 0, 1]
    assert read_dumped([0, 1, 80, 1, 10, 0, 0, *other, 6, 0, 1, 7, 9, ""]).local[0] == other[0]


def test_connections_of_a_unix_socket_whose_addresses_are_used_again_each_time():
    # php-fpm behind Apache: no event tells of a unix socket that it is opened or closed, but a
    # connection makes data arrive at what listens.  Here both ends change places each time.
    listener, one, other, client, server = 9 << 40, 1 << 40, 2 << 40, 11, 12
    events = [(1, 0, Kind.SWITCH, [0, 0, 0, 0, 0])]

    def put(tid, kind, *fields):
        at = 10 * len(events)
        events.append((at, 0, Kind.SWITCH, [0, 0, 1, 0, tid]))
        events.append((at + 10, 0, kind, [*fields]))

    expected = 6
    for turn in range(expected):
        mine, theirs = (one, other) if turn % 2 else (other, one)
        put(client, Kind.SOCKET_ARRIVAL, listener, 1, 0)
        for length in (8, 700):
            put(client, Kind.SOCKET_ARRIVAL, theirs, 1, 0)
            put(client, Kind.SOCKET_SEND, mine, 1, 0, length, 0)
        put(server, Kind.SOCKET_RECEIVE, theirs, 1, 0, 708, 0)
        put(server, Kind.SOCKET_ARRIVAL, mine, 1, 0)
        put(server, Kind.SOCKET_SEND, theirs, 1, 0, 72, 0)
        put(client, Kind.SOCKET_RECEIVE, mine, 1, 0, 72, 0)
        put(server, Kind.SOCKET_RECEIVE, theirs, 1, 0, 0, 0)
    found = turns.find_turns(collect(events), no_workers(), lambda _: "", end=1 << 40)
    assert len(found.requests) == expected
    ends = found.endpoints
    asked = [int(at) for at in found.requests.endpoint.tolist()]
    assert all(ends.serves[at] == 1 and ends.role_how[at] == 1 for at in asked)  # accepted
    assert len({int(ends.peer[at]) for at in asked}) == expected


def test_a_call_moves_no_more_bytes_than_linux_lets_it():
    """Found by fuzzing: of two such calls the sum overflowed."""
    kinds = (Kind.SOCKET_RECEIVE, Kind.SOCKET_SEND)
    moving = [(at, 0, kind, [1 << 40, 2, 6, 2**63 - 1, 0]) for at, kind in enumerate(kinds)]
    activity = collect(moving).activity
    assert activity.value.tolist() == [0x7FFFF000] * 2
