"""Requests by system calls: descriptors from drawn calls."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from test_endpoints import no_workers

from critpath.model import EventChunk, EventClass, Kind
from critpath.model.requests import Act
from critpath.read.event_names import CALL_EVENTS, CALLS, KERNEL_EVENTS, SOCKET_EVENTS
from critpath.requests.activity import ActivityEvents
from critpath.requests.turns import find_turns

ENTRY, EXIT, PACKET = CALL_EVENTS[:3]
FIELDS = {f"syscall_entry_{name}": [f[0] for f in ENTRY.fields] for name in CALLS}
FIELDS |= {f"syscall_exit_{name}": [f[0] for f in EXIT.fields] for name in CALLS}
KERNEL = {r.kind: [f[0] for f in r.fields] for r in (*KERNEL_EVENTS, *SOCKET_EVENTS, *CALL_EVENTS)}
KERNEL[Kind.NET_RECEIVE] = [*KERNEL[Kind.NET_RECEIVE], *(f[0] for f in PACKET.fields)]
KINDS = {
    "fork": Kind.FORK,
    "exec": Kind.EXEC,
    "exit": Kind.EXIT,
    "fd": Kind.DESCRIPTOR_STATEDUMP,
    "packet": Kind.NET_RECEIVE,
    "wake": Kind.WAKING,
    "switch": Kind.SWITCH,
    "dump": Kind.SOCKET_STATEDUMP,
}
CLASSES = [
    EventClass(n, Kind.SYSCALL_ENTRY, tuple(f), ("int",) * len(f)) for n, f in FIELDS.items()
]
CLASSES += [EventClass(n, k, tuple(KERNEL[k]), ("int",) * len(KERNEL[k])) for n, k in KINDS.items()]
NUMBER = {of.name: number for number, of in enumerate(CLASSES)}
SERVER, CLIENT = 7, 8  # threads, each a process
NEAR, FAR = 0x0A000001, 0x0A000002


class Drawing:
    """Events as they come, one every 10 ns."""

    def __init__(self):
        self.events = []

    def put(self, name, **fields):
        of = CLASSES[NUMBER[name]]
        values = [fields.pop(f.rpartition(".")[2], 0) for f in of.fields]
        assert not fields, fields
        self.events.append((10 * len(self.events) + 10, NUMBER[name], values))
        return self.events[-1][0]

    def call(self, tid, name, ret, between=(), **arguments):
        """Put a system call, and what happens while the thread is in it."""
        self.put(f"syscall_entry_{name}", tid=tid, **arguments)
        for event, fields in between:
            self.put(event, **fields)
        return self.put(f"syscall_exit_{name}", tid=tid, ret=ret)

    def packet(self, tid, size, sport, dport, saddr=FAR, daddr=NEAR, flags=24):
        fields = {"saddr": saddr, "daddr": daddr, "source_port": sport, "dest_port": dport}
        header = {"ihl": 5, "data_offset": 5, "flags": flags, "len": 40 + size}
        return "packet", {"tid": tid, **fields, **header}

    def find(self, way="calls+packets"):
        found = ActivityEvents(np.array([[0]], np.int64), waking=True, way=way)
        times, classes, values = zip(*self.events, strict=True)
        offsets = np.cumsum([0, *map(len, values)])[:-1].astype(np.int64)
        flat = np.array([v for row in values for v in row], np.int64)
        zeros = np.zeros(len(times), np.int32)
        chunk = EventChunk(
            np.array(times, np.int64), zeros, np.array(classes, np.int32), offsets, flat
        )
        found.feed(chunk, CLASSES)
        collected = found.finish(no_workers(), ("", "/run/served"))
        assert (np.diff(collected.activity.time_ns) >= 0).all()
        assert collected.activity.endpoint.max(initial=-1) < len(collected.endpoints)
        return find_turns(collected, no_workers(), lambda _: "", end=times[-1] + 10)


def acts(found, endpoint):
    of = found.activity
    return [Act(a).name for a in of.act[of.endpoint == endpoint].tolist()]


def test_what_is_accepted_serves_and_a_request_begins_with_its_packet():
    drawn = Drawing()
    first = drawn.put(*[(p := drawn.packet(0, 100, 4000, 80))[0]], **p[1])
    drawn.call(SERVER, "accept4", 5, fd=3, flags=0)
    drawn.call(SERVER, "recvfrom", 100, fd=5, flags=0)
    end = drawn.call(SERVER, "sendto", 40, [drawn.packet(SERVER, 40, 80, 4000, NEAR, FAR)], fd=5)
    found = drawn.find()
    [turn] = range(len(found.requests))
    assert (found.requests.begin_ns[turn], found.requests.end_ns[turn]) == (first, end)
    assert (found.requests.bytes_in[turn], found.requests.tid[turn]) == (100, SERVER)
    of = found.requests.endpoint[turn]
    assert found.endpoints.strings[found.endpoints.remote_address[of]] == "10.0.0.2"
    assert (found.endpoints.local_port[of], found.endpoints.remote_port[of]) == (80, 4000)
    assert found.account.way == "calls+packets"


def test_without_packets_a_request_begins_when_its_reader_was_woken_or_reads():
    drawn = Drawing()
    drawn.call(SERVER, "accept4", 5, fd=3)
    drawn.put("syscall_entry_read", tid=SERVER, fd=5)
    woken = drawn.put("wake", tid=SERVER)
    drawn.put("syscall_exit_read", tid=SERVER, ret=10)
    drawn.call(SERVER, "write", 10, fd=5)
    read = drawn.call(SERVER, "read", 10, fd=5)
    drawn.call(SERVER, "write", 10, fd=5)
    found = drawn.find("calls")
    assert found.requests.begin_ns.tolist() == [woken, read]
    assert found.requests.boundary.tolist() == [1, 2]


def test_messages_are_not_counted_as_bytes():
    drawn = Drawing()
    drawn.call(SERVER, "accept4", 5, fd=3)
    drawn.call(SERVER, "recvmmsg", 3, fd=5)
    drawn.call(SERVER, "sendmmsg", 2, fd=5)
    found = drawn.find("calls")
    assert found.requests.bytes_in.tolist() == found.requests.bytes_out.tolist() == [0]
    acts_of = acts(found, found.requests.endpoint[0])
    assert (acts_of.count("RECEIVE"), acts_of.count("SEND")) == (3, 2)


def test_who_was_forked_shares_names_until_one_of_both_changes_them():
    drawn = Drawing()
    drawn.call(SERVER, "accept4", 5, fd=3)
    drawn.put("fork", parent_tid=SERVER, parent_pid=SERVER, child_tid=9, child_pid=9)
    drawn.put("fork", parent_tid=9, parent_pid=9, child_tid=10, child_pid=10)
    drawn.put("syscall_entry_close", tid=9, fd=5)
    drawn.put("syscall_entry_close", tid=SERVER, fd=5)
    drawn.call(10, "recvfrom", 100, fd=5)
    drawn.call(10, "sendto", 100, fd=5)
    assert drawn.find("calls").requests.tid.tolist() == [10]
    drawn.put("exit", tid=10)
    found = drawn.find("calls")
    assert "CLOSE" in acts(found, found.requests.endpoint[0])


def test_ports_that_are_used_again_and_again_are_another_connection_each_time():
    drawn = Drawing()
    for _ in range(50):
        name, fields = drawn.packet(0, 100, 4000, 80)
        drawn.put(name, **fields)
        drawn.call(SERVER, "accept4", 5, fd=3)
        drawn.call(SERVER, "recvfrom", 100, fd=5)
        packet = drawn.packet(SERVER, 40, 80, 4000, NEAR, FAR)
        drawn.call(SERVER, "sendto", 40, [packet], fd=5)
        drawn.put("syscall_entry_close", tid=SERVER, fd=5)
    found = drawn.find()
    assert len(found.requests) == len({*found.requests.endpoint.tolist()}) == 50
    assert set(found.requests.boundary.tolist()) == {0}


def test_names_are_shared_inherited_and_ended_one_by_one():
    drawn = Drawing()
    drawn.call(SERVER, "accept", 5, fd=3)
    drawn.call(SERVER, "dup2", 9, fd=5, newfd=9)
    drawn.put("fork", parent_tid=SERVER, parent_pid=SERVER, child_tid=20, child_pid=20)
    drawn.call(SERVER, "close", 0, fd=5)
    drawn.call(SERVER, "fcntl", 11, fd=9, newfd=1030)
    drawn.call(SERVER, "close", 0, fd=9)
    drawn.call(SERVER, "close", 0, fd=11)
    drawn.call(20, "read", 10, fd=9)
    drawn.call(20, "write", 10, fd=5)
    drawn.put("exit", tid=20)
    found = drawn.find("calls")
    assert found.requests.tid.tolist() == [20]
    assert acts(found, found.requests.endpoint[0]) == ["OPEN", "RECEIVE", "SEND", "CLOSE"]


def test_a_number_that_is_used_again_is_another_endpoint():
    drawn = Drawing()
    for _ in range(3):
        drawn.call(SERVER, "accept", 5, fd=3)
        drawn.call(SERVER, "read", 10, fd=5)
        drawn.call(SERVER, "write", 10, fd=5)
        drawn.call(SERVER, "close", 0, fd=5)
    drawn.call(SERVER, "read", 10, fd=5)  # of a file
    found = drawn.find("calls")
    assert len(set(found.requests.endpoint.tolist())) == len(found.requests) == 3
    assert found.account.unknown == 0


def test_what_nobody_knows_is_counted_and_no_request():
    drawn = Drawing()
    drawn.call(SERVER, "recvmsg", 10, fd=5)  # it came from another process, over a unix socket
    drawn.call(SERVER, "sendmsg", 10, fd=5)
    drawn.call(SERVER, "io_uring_enter", 1, fd=6)
    drawn.call(SERVER, "read", 10, fd=7)
    found = drawn.find("calls")
    assert (len(found.requests), found.account.unknown, found.account.rings) == (0, 2, 1)


def test_what_nobody_knew_is_known_by_its_packets():
    drawn = Drawing()
    drawn.call(SERVER, "recvfrom", 10, fd=5)
    drawn.call(SERVER, "write", 40, [drawn.packet(SERVER, 40, 80, 4000, NEAR, FAR)], fd=5)
    drawn.put(*[(p := drawn.packet(0, 10, 4000, 80))[0]], **p[1])
    drawn.call(SERVER, "recvfrom", 10, fd=5)
    drawn.call(SERVER, "write", 40, fd=5)
    found = drawn.find()
    assert (len(found.requests), found.account.unknown) == (1, 0)


def test_a_program_that_is_begun_has_no_names_but_those_it_is_given():
    drawn = Drawing()
    drawn.call(SERVER, "accept", 5, fd=3)
    drawn.put("exec", tid=SERVER)
    drawn.call(SERVER, "read", 10, fd=5)
    drawn.call(SERVER, "write", 10, fd=5)
    assert len(drawn.find("calls").requests) == 0


def test_looking_is_not_receiving_and_an_end_is_none():
    drawn = Drawing()
    drawn.call(SERVER, "accept", 5, fd=3)
    drawn.call(SERVER, "recvfrom", 10, fd=5, flags=2)
    drawn.call(SERVER, "recvfrom", -11, fd=5)
    drawn.call(SERVER, "recvfrom", 10, fd=5)
    drawn.call(SERVER, "sendto", 10, fd=5)
    drawn.call(SERVER, "recvfrom", 0, fd=5)
    found = drawn.find("calls")
    of = found.requests.endpoint[0]
    assert acts(found, of) == ["OPEN", "RECEIVE", "SEND", "FINISH"]


def test_a_receive_that_was_under_way_when_the_recording_began():
    drawn = Drawing()
    drawn.put("fd", pid=SERVER, fd=5, inode=70)
    drawn.put("fd", pid=SERVER, fd=5, inode=70, in_tid=SERVER)
    dump = {"family": 2, "saddr": NEAR, "daddr": FAR, "sport": 80, "dport": 4000, "protocol": 6}
    drawn.put("dump", **dump, newstate=1, inode=70)
    drawn.put("dump", family=2, saddr=NEAR, sport=80, protocol=6, newstate=10, inode=71)
    drawn.put(*[(p := drawn.packet(0, 10, 4000, 80))[0]], **p[1])
    received = drawn.put("syscall_exit_recvfrom", tid=SERVER, ret=10)
    drawn.call(SERVER, "sendto", 10, fd=5)
    drawn.call(SERVER, "recvfrom", -4, fd=5)
    found = drawn.find()
    assert found.requests.received_ns.tolist() == [received]


WORDS = st.integers(-2, 12)
EVENTS = st.lists(
    st.tuples(st.sampled_from(sorted(NUMBER)), st.lists(WORDS, min_size=16, max_size=16)),
    min_size=1,
    max_size=120,
)


@given(EVENTS)
def test_whatever_events_say(events):
    drawn = Drawing()
    for name, words in events:
        of = CLASSES[NUMBER[name]]
        values = words[: len(of.fields)]
        if name in {"switch", "dump"}:
            values = [abs(v) for v in values]
        drawn.events.append((10 * len(drawn.events) + 10, NUMBER[name], values))
    if any(name == "dump" for name, _ in events):
        drawn.events = [
            (t, n, [min(v, 1) for v in values] if CLASSES[n].name == "dump" else values)
            for t, n, values in drawn.events
        ]
    for way in ("calls", "calls+packets"):
        found = drawn.find(way)
        assert (found.requests.end_ns >= found.requests.begin_ns).all()
