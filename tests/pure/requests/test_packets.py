"""Requests where no event tells that data arrived: packets name sockets and tell arrivals."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from test_endpoints import no_workers

from critpath.model import EventChunk, EventClass, Kind
from critpath.model.requests import Act
from critpath.read.event_names import KERNEL_EVENTS, PACKET_EVENTS, SOCKET_EVENTS
from critpath.requests.activity import ActivityEvents
from critpath.requests.endpoints import EndpointColumn
from critpath.requests.packets import PacketEvents
from critpath.requests.turns import find_turns
from critpath.schema.ways import way_of_requests

FIELDS = {r.kind: [f[0] for f in r.fields] for r in (*KERNEL_EVENTS, *SOCKET_EVENTS)}
LENGTHS = [f[0] for f in PACKET_EVENTS[-1].fields]
for kind in (Kind.NET_SEND, Kind.NET_RECEIVE):
    FIELDS[kind] = [*FIELDS[kind], *LENGTHS]
KINDS = (
    *(Kind.SWITCH, Kind.NET_SEND, Kind.NET_RECEIVE),
    *(Kind.SOCKET_SEND, Kind.SOCKET_RECEIVE, Kind.SOCKET_ARRIVAL),
)
CLASSES = [EventClass(k.name, k, tuple(FIELDS[k]), ("int",) * len(FIELDS[k])) for k in KINDS]
HOME, SERVER = 0x7F000001, 1
FULL = 1448  # bytes that a packet carries at most


class World:
    """A server and its clients on one machine, each thread on a cpu of its own."""

    def __init__(self, seed):
        self.random = random.Random(seed)  # noqa: S311 - a world, no secret
        self.now, self.events, self.sequence = 1000, [], {}
        self.arrivals, self.ends = [], {}
        self.truth = True

    def put(self, kind, cpu, **fields):
        self.now += self.random.randint(1, 50)
        names = [name.rpartition(".")[2] for name in FIELDS[kind]]
        values = [fields.get(name, 0) for name in names]
        assert set(fields) <= set(names), fields
        self.events.append((self.now, cpu, kind, values))
        return self.now

    def packet(self, kind, cpu, port, peer, size, sequence):
        return self.put(
            *(kind, cpu),
            saddr=HOME,
            daddr=HOME,
            source_port=port,
            dest_port=peer,
            len=40 + size,
            ihl=5,
            data_offset=5,
            seq=sequence % 2**32,
            flags=24,
        )

    def send(self, thread, socket, port, peer, size, to):
        """Put a send: what it queues, what comes of it, and the end of the call."""
        at = self.sequence.setdefault((port, peer), self.random.randrange(2**32))
        pieces = [min(FULL, size - done) for done in range(0, size, FULL)]
        begins = [at + sum(pieces[:n]) for n in range(len(pieces))]
        self.sequence[port, peer] = at + size
        parts = list(zip(begins, pieces, strict=True))
        for begin, piece in parts:
            self.packet(Kind.NET_SEND, thread, port, peer, piece, begin)
        come = parts[:]
        self.random.shuffle(come)
        seen, there = set(), 0
        for begin, piece in come:
            when = self.packet(Kind.NET_RECEIVE, thread, port, peer, piece, begin)
            seen.add(begin)
            before = there
            while there < len(parts) and parts[there][0] in seen:
                there += 1
            if there > before:
                self.arrivals.append((when, to, thread))
        if self.random.random() < 0.3:  # sent again, though it came
            begin, piece = self.random.choice(parts)
            self.packet(Kind.NET_RECEIVE, 0, port, peer, piece, begin)
        self.put(Kind.SOCKET_SEND, thread, sk=socket, family=2, protocol=6, ret=size)
        self.ends[socket, self.now] = port, peer

    def receive(self, thread, socket, size):
        self.put(Kind.SOCKET_RECEIVE, thread, sk=socket, family=2, protocol=6, ret=size)

    def collect(self):
        found = ActivityEvents(np.array([[0]], np.int64), waking=True, way="lengths+packets")
        cut = self.random.randrange(len(self.events) + 1)
        for part in (self.events[:cut], self.events[cut:]):
            times, cpus, kinds, values = zip(*part, strict=True) if part else ((),) * 4
            offsets = np.cumsum([0, *map(len, values)])[: len(part)]
            found.feed(
                EventChunk(
                    np.array(times, np.int64),
                    np.array(cpus, np.int32),
                    np.array([KINDS.index(kind) for kind in kinds], np.int32),
                    offsets.astype(np.int64),
                    np.array([v for row in values for v in row], np.int64),
                ),
                CLASSES,
            )
        return found.finish(no_workers(), ("",))


def serve(seed, connections=3, requests=3, *, again=False):
    """Clients ask one after the other; ``again``: sockets have the addresses of those before."""
    world = World(seed)
    for thread in range(connections + 1 + SERVER):
        world.put(Kind.SWITCH, thread, next_tid=thread, next_comm=0)
    for c in range(connections):
        thread, port = SERVER + 1 + c, 4000 + c
        mine, theirs = (1 << 40, 2 << 40) if again else ((10 + c) << 40, (50 + c) << 40)
        for _ in range(requests):
            size, answer = (world.random.choice([20, 300, 1448, 5000]) for _ in range(2))
            world.send(thread, mine, port, 80, size, (80, port))
            world.receive(SERVER, theirs, size)
            world.send(SERVER, theirs, 80, port, answer, (port, 80))
            world.receive(thread, mine, answer)
        if again:
            world.receive(SERVER, theirs, 0)
            world.receive(thread, mine, 0)
    return world


def ends_of(collected, at):
    row = collected.endpoints[at]
    return int(row[EndpointColumn.LOCAL_PORT]), int(row[EndpointColumn.REMOTE_PORT])


@given(st.integers(0, 2**32), st.booleans())
def test_packets_name_sockets_and_tell_when_data_arrived(seed, again):
    world = serve(seed, again=again)
    collected = world.collect()
    of = collected.activity
    found = [
        (int(time), ends_of(collected, at), int(tid))
        for time, act, at, tid in zip(of.time_ns, of.act, of.endpoint, of.tid, strict=True)
        if act == Act.ARRIVAL
    ]
    assert found == world.arrivals
    assert collected.unknown == 0
    for time, act, at in zip(of.time_ns, of.act, of.endpoint, strict=True):
        if act == Act.SEND:
            [ends] = [e for (_, when), e in world.ends.items() if when == time]
            assert ends_of(collected, at) == ends


@pytest.mark.parametrize("again", [False, True])
def test_requests_begin_where_their_packets_came(again):
    world = serve(1, again=again)
    found = find_turns(world.collect(), no_workers(), lambda _: "", end=world.now + 10)
    begins = sorted(found.requests.begin_ns.tolist())
    first = [  # of each request the first packet that came
        min(when for when, to, _ in world.arrivals if to == ends and low < when <= high)
        for ends, low, high in rounds(world)
    ]
    assert begins == first
    assert len(begins) == 9


def rounds(world):
    """Yield the server's end of each request, and between which two of its receives it came."""
    last = 0
    sends = sorted((when, ends) for (_, when), ends in world.ends.items())
    for when, (port, peer) in sends:
        if peer == 80:
            yield (80, port), last, when
        last = when


@pytest.mark.parametrize("several", [False, True])
def test_packets_over_ipv6_are_told_by_their_ports(several):
    """Of them LTTng tells no addresses; sockets of two addresses with equal ports are not told."""
    world = serve(5, connections=1)
    for _, _, kind, values in world.events:
        if kind in {Kind.NET_SEND, Kind.NET_RECEIVE}:
            names = [name.rpartition(".")[2] for name in FIELDS[kind]]
            values[names.index("saddr")] = values[names.index("daddr")] = 0
            values[names.index("ihl")] = 0
            values[names.index("len")] += 20  # ten words, not five
    packets = PacketEvents()
    times, cpus, kinds, values = zip(*world.events, strict=True)
    offsets = np.cumsum([0, *map(len, values)])[:-1]
    chunk = EventChunk(
        np.array(times, np.int64),
        np.array(cpus, np.int32),
        np.array([KINDS.index(kind) for kind in kinds], np.int32),
        offsets.astype(np.int64),
        np.array([v for row in values for v in row], np.int64),
    )
    packets.feed(chunk, CLASSES)
    one, other = 0x20010DB8 << 32, 0x20010DB9 << 32
    ends = [(one, 1, 4000, one, 2, 80), (one, 2, 80, one, 1, 4000)]
    ends += [(other, 1, 4000, other, 2, 80), (other, 2, 80, other, 1, 4000)] * several
    endpoints = np.full((len(ends), len(EndpointColumn)), -1, np.int64)
    endpoints[:, EndpointColumn.LOCAL_HIGH : EndpointColumn.REMOTE_PORT + 1] = ends
    endpoints[:, [EndpointColumn.KNOWN, EndpointColumn.PROTOCOL]] = 1, 6
    endpoints[:, EndpointColumn.HOST] = 0
    nothing = np.zeros(0, np.int64)
    found = packets.finish((nothing,) * 6, endpoints)
    arrivals = [
        (time, at)
        for time, act, at in zip(found.rows[0], found.rows[1], found.rows[4], strict=True)
        if act == Act.ARRIVAL
    ]
    expected = [(when, 1 if to[0] == 80 else 0) for when, to, _ in world.arrivals]
    assert arrivals == ([] if several else sorted(expected))


def test_a_lost_packet_does_not_hide_what_comes_after_it():
    world = serve(3, connections=1, requests=120)
    lost = next(at for at, event in enumerate(world.events) if event[2] == Kind.NET_RECEIVE)
    del world.events[lost]
    of = world.collect().activity
    told = int((of.act == Act.ARRIVAL).sum())
    assert len(world.arrivals) - told < 80


@pytest.mark.parametrize(
    ("events", "packets", "way"),
    [
        (("sock_send_length", "sock_recv_length", "net_if_receive_skb"), True, "lengths+packets"),
        (("sock_send_length", "sock_recv_length", "inet_sock_set_state"), False, "lengths"),
        (("sock_send_length", "sock_recv_length"), False, ""),
        (("sock_send_length", "sock_recv_length", "syscall_*"), False, "calls"),
        (("sock_*", "sk_data_ready", "inet_sock_set_state", "net_*"), True, "sockets"),
    ],
)
def test_what_tells_of_requests(events, packets, way):
    assert way_of_requests(events, *(("net_if_receive_skb",) if packets else ())) == way
