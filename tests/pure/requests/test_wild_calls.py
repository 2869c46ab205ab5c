"""What drawn system calls come to: rows and endpoints, in whole.

Each call is possible by itself; descriptors are few, so that their numbers are used again, shared
and inherited all the time.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_calls import CLASSES as KNOWN
from test_calls import FAR, NEAR

from critpath.model import EventChunk, EventClass, Kind
from critpath.model.requests import Act
from critpath.read.event_names import CALLS, SOCKET_EVENTS
from critpath.requests.calls import CallEvents
from critpath.requests.endpoints import (
    EndpointColumn,
    format_address,
    read_dumped,
    take_address,
)

HERE = Path(__file__).resolve().parent
_ENDS = [f[0] for f in next(r for r in SOCKET_EVENTS if r.kind == Kind.SOCKET_OF).fields[1:]]
_MORE = {
    "state": (Kind.SOCKET_STATE, ["skaddr", *_ENDS, "protocol", "oldstate", "newstate", "tid"]),
    "of": (Kind.SOCKET_OF, ["skaddr", *_ENDS, "tid"]),
    "segment": (Kind.SOCKET_SEGMENT, [*_ENDS, "data_len", "tid"]),
}
CLASSES = [*KNOWN]
CLASSES += [EventClass(n, k, tuple(f), ("int",) * len(f)) for n, (k, f) in _MORE.items()]
NUMBER = {of.name: number for number, of in enumerate(CLASSES)}
MOVES = tuple(name for name in CALLS if name.startswith(("read", "recv", "write", "send")))


class Recording:
    """Events of two processes, 7 and 8, and of what they fork: one every 10 ns."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.events: list[tuple[int, int, list[int]]] = []
        self.open: dict[int, str] = {}  # the call that each thread is in
        self.tids = [7, 8]

    def put(self, name: str, **fields: int) -> None:
        of = CLASSES[NUMBER[name]]
        values = [int(fields.pop(f.rpartition(".")[2], 0)) for f in of.fields]
        self.events.append((10 * len(self.events) + 10, NUMBER[name], values))

    def pick(self, *of: Any) -> Any:
        return of[int(self.rng.integers(0, len(of)))]

    def enter(self, tid: int) -> None:
        name = self.pick(
            *CALLS, *["accept4", "read", "sendto", "recvmsg", "write"] * 4, *["connect"] * 3
        )
        self.open[tid] = name
        fields = {"fd": 3 if name.startswith("accept") else self.pick(4, 5, 6)}
        if name == "socket":
            fields |= {"newfd": self.pick(1, 2, 1 | 0o4000, 3), "family": self.pick(2, 10, 1)}
        elif name == "connect":
            fields |= {"family": self.pick(0, 2, 1), "dport": self.pick(0, 80)}
        elif name == "fcntl":
            fields |= {"newfd": self.pick(0, 1030, 3)}
        elif name == "splice":
            fields |= {"newfd": self.pick(3, 4, 5, 6)}
        elif name.startswith("recv"):
            fields |= {"flags": self.pick(0, 0, 2, 3, 4)}
        pid = self.pick(-1, 0, tid)
        self.put(f"syscall_entry_{name}", tid=tid, pid=pid, **fields)

    def leave(self, tid: int) -> None:
        name = self.open.pop(tid, "") or self.pick("read", "accept4", "write", "recvfrom")
        ret = self.pick(0, 5, 40, 40, 40, -11)
        if name in {"accept", "accept4", "socket", "fcntl"} or name.startswith("dup"):
            ret = self.pick(4, 5, 6, 4, 5, 6, -11)
        elif name == "connect":
            ret = self.pick(0, -115, -111)
        elif name.endswith("mmsg"):
            ret = self.pick(0, 1, 3, -11)
        elif self.rng.random() < 0.05:
            ret = self.pick(16_384, 20_000)
        peer = {"family": self.pick(0, 2, 1), "sport": self.pick(0, 4000, 4001)}
        fields = peer if name.startswith("accept") else {}
        self.put(f"syscall_exit_{name}", tid=tid, ret=ret, **fields)

    def packet(self, tid: int) -> None:
        near, far = self.pick((NEAR, FAR), (FAR, NEAR), (NEAR, NEAR))
        size = self.pick(0, 5, 40, 40, 40, 40, 16_384)
        ports = self.pick(*[(80, 4000), (4000, 80)] * 3, (4001, 80), (80, 4001), (0, 80), (80, 0))
        kind = self.pick("packet", "packet", "segment", "of", "state")
        if kind == "packet":
            header = self.pick(0, 5, 6)
            fields = {"saddr": near, "daddr": far, "source_port": ports[0], "dest_port": ports[1]}
            fields |= {"ihl": header, "data_offset": self.pick(0, 5, 5, 5)}
            fields |= {"flags": self.pick(24, 18, 2), "len": 4 * (header or 10) + 20 + size}
        else:
            family = self.pick(2, 2, 10)
            fields = {"sport": ports[0], "dport": ports[1], "saddr": near, "daddr": far}
            fields |= {"family": family}
            if kind == "segment":
                fields |= {"data_len": size}
            if kind == "state":
                fields |= {"newstate": self.pick(1, 1, 10, 7)}
        self.put(kind, tid=self.pick(tid, tid, 0), **fields)

    def step(self) -> None:
        tid = self.pick(*self.tids)
        what = int(self.rng.integers(0, 30))
        if what < 17:
            (self.leave if tid in self.open else self.enter)(tid)
        elif what < 25:
            self.packet(tid)
        elif what == 25:
            self.leave(tid)
        elif what == 26 and len(self.tids) < 6:
            child = 10 + len(self.tids)
            pid = self.pick(child, 7 if tid == 7 else child)
            parent = {"parent_tid": tid, "parent_pid": tid}
            self.put("fork", **parent, child_tid=child, child_pid=pid)
            self.tids.append(child)
        elif what == 27:
            self.put(self.pick("exit", "exec"), tid=tid)
        elif what == 28:
            inode = self.pick(70, 71, 72)
            begun = self.pick(0, 0, tid)
            self.put("fd", pid=tid, fd=self.pick(1, 3, 4, 5), inode=inode, in_tid=begun)

    def chunk(self) -> EventChunk:
        times, classes, values = zip(*self.events, strict=True)
        offsets = np.cumsum([0, *map(len, values)])[:-1].astype(np.int64)
        flat = np.array([v for row in values for v in row], np.int64)
        zeros = np.zeros(len(times), np.int32)
        columns = np.array(times, np.int64), zeros, np.array(classes, np.int32)
        return EventChunk(*columns, offsets, flat)


def dump(inode: int, state: int, ports: tuple[int, int], *of: Any) -> Any:
    """Return a socket that was there before: family, protocol and path may be given."""
    family, protocol, path = (*of, 2, 6, "")[: len(of)] + (2, 6, "")[len(of) :]
    addresses = (NEAR, FAR, 0, 0, 0, 0)
    row = (0, 9, *ports, family, *addresses, protocol, 0, state, inode, 0, path)
    return read_dumped(row)


DUMPED = (
    dump(70, 1, (80, 4000)),
    dump(71, 10, (80, 0)),
    dump(72, 1, (0, 0), 1, 0, "/run/served"),
)


def tell(found: Any) -> Iterator[str]:
    for time, act, tid, host, end, value in found.rows.tolist():
        yield f"{time} {Act(act).name} {tid} {host} #{end} {value}"
    for at, row in enumerate(found.endpoints.tolist()):
        yield f"#{at} {' '.join(map(str, row))}"
    yield f"{found.paths} unknown {found.unknown} rings {found.rings}"


def test_what_drawn_calls_come_to(golden: Any) -> None:
    lines = []
    for seed in range(30):
        drawn = Recording(seed)
        for _ in range(120):
            drawn.step()
        events = CallEvents()
        if seed % 4 == 3:  # events of a thread are lost
            half = len(drawn.events) // 2
            whole, drawn.events = drawn.events, drawn.events[:half]
            events.feed(drawn.chunk(), CLASSES)
            events.end_gap(seed % 8 // 4)
            drawn.events = whole[half:]
        events.feed(drawn.chunk(), CLASSES)
        found = events.finish(DUMPED if seed % 2 else ())
        lines += [f"drawn {seed}", *tell(found)]
        assert found.endpoints.shape[1] == len(EndpointColumn)
        assert (np.diff(found.rows[:, 0]) >= 0).all()
        assert set(found.rows[:, 4].tolist()) <= {*range(len(found.endpoints))}
    golden(HERE / "snapshots" / "wild_calls.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("name", MOVES)
def test_which_way_bytes_go(name: str) -> None:
    """Of a number of messages it is not known how long they are."""
    drawn = Recording(0)
    drawn.put("syscall_entry_accept4", tid=7, fd=3)
    drawn.put("syscall_exit_accept4", tid=7, ret=5)
    drawn.put(f"syscall_entry_{name}", tid=7, fd=5)
    drawn.put(f"syscall_exit_{name}", tid=7, ret=4)
    events = CallEvents()
    events.feed(drawn.chunk(), CLASSES)
    _, *rows = events.finish(()).rows.tolist()
    act = Act.RECEIVE if name.startswith(("read", "recv")) else Act.SEND
    many, size = (4, 0) if name.endswith("mmsg") else (1, 4)
    assert [(row[1], row[2], row[5]) for row in rows] == [(act, 7, size)] * many


@pytest.mark.parametrize("name", [name for name in MOVES if name.endswith(("to", "from", "msg"))])
def test_what_only_sockets_do_makes_an_endpoint(name: str) -> None:
    """Of another call nobody knows whether it reads a file."""
    for call, some in ((name, True), ("read", False), ("write", False)):
        drawn = Recording(0)
        drawn.put(f"syscall_entry_{call}", tid=7, fd=5)
        drawn.put(f"syscall_exit_{call}", tid=7, ret=1)
        events = CallEvents()
        events.feed(drawn.chunk(), CLASSES)
        found = events.finish(())
        assert (len(found.rows) > 0, found.unknown) == (some, int(some))


def test_looking_is_not_receiving_whatever_else_is_asked() -> None:
    for flags in range(8):
        for name, looks in (("recvmsg", flags & 2), ("read", 0)):
            drawn = Recording(0)
            drawn.put("syscall_entry_accept4", tid=7, fd=3)
            drawn.put("syscall_exit_accept4", tid=7, ret=5)
            drawn.put(f"syscall_entry_{name}", tid=7, fd=5, flags=flags)
            drawn.put(f"syscall_exit_{name}", tid=7, ret=4)
            events = CallEvents()
            events.feed(drawn.chunk(), CLASSES)
            assert (len(events.finish(()).rows) == 2) == (not looks)


TEXTS = (
    *("0.0.0.1", "10.0.0.1", "127.0.0.1", "255.255.255.255", "192.168.1.2"),
    *("::1", "fe80::1", "2001:db8::ff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "1::"),
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("how", ["as it is", "mapped"])
def test_addresses_are_read_as_people_write_them(text: str, how: str) -> None:
    address = ipaddress.ip_address(text)
    number = int(address)
    if address.version == 4 and how == "mapped":
        halves, family, v4 = (0, 0xFFFF << 32 | number), 10, 0
    elif address.version == 4:
        halves, family, v4 = (0, 0), 2, number - (1 << 32 if number >> 31 else 0)
    else:
        halves, family, v4 = (number >> 64, number & (2**64 - 1)), 10, 99
    signed = [half - (1 << 64) if half >> 63 else half for half in halves]
    for each in (halves, signed):
        high, low = take_address(family, v4, *each)
        assert -(2**63) <= low < 2**63
        shown = format_address(high, low)
        # (What is left of an address of which only the last four bytes are not 0.)
        few = address.version == 6 and number < 1 << 32
        assert shown == (str(ipaddress.IPv4Address(number)) if few else str(address))


def find_rows(*events: tuple[str, dict[str, int]]) -> list[tuple[str, int, int]]:
    """Return what acts calls come to, by which thread, and how much they moved."""
    drawn = Recording(0)
    for name, fields in events:
        drawn.put(name, **fields)
    calls = CallEvents()
    calls.feed(drawn.chunk(), CLASSES)
    return [(Act(row[1]).name, row[2], row[5]) for row in calls.finish(()).rows.tolist()]


def call(name: str, tid: int, ret: int, **fields: int) -> list[tuple[str, dict[str, int]]]:
    return [
        (f"syscall_entry_{name}", {"tid": tid, **fields}),
        (f"syscall_exit_{name}", {"tid": tid, "ret": ret}),
    ]


ACCEPTED = call("accept4", 7, 5, fd=3)


@pytest.mark.parametrize("name", ["read", "accept4", "write", "recvfrom"])
def test_the_end_of_another_call_than_was_begun_is_of_its_own(name: str) -> None:
    """Its begin was lost; what it read, and from what, nobody knows: but that it read."""
    for begun in ("futex", "dup", "write", "sendto", "connect"):
        entry = f"syscall_entry_{begun}"
        if entry not in NUMBER or begun == name:
            continue
        rows = find_rows(
            *ACCEPTED, (entry, {"tid": 7, "fd": 5}),
            (f"syscall_exit_{name}", {"tid": 7, "ret": 9}),
        )  # fmt: skip
        more = [("OPEN", 7, 1)] if name == "accept4" else []
        assert [row for row in rows if row[0] != "CLOSE"] == [("OPEN", 7, 1), *more]


@pytest.mark.parametrize("pid", [9, 7])
def test_a_process_of_a_number_that_was_used_before_has_no_names_of_it(pid: int) -> None:
    """Its end was lost.  Who is a thread of its creator has the creator's."""
    # One of its threads makes it: it has what the process has.
    fork = ("fork", {"parent_tid": 11, "parent_pid": 7, "child_tid": 9, "child_pid": pid})
    old = call("accept4", 9, 8, fd=3)
    rows = find_rows(*ACCEPTED, *old, fork, *call("read", 9, 4, fd=8), *call("read", 9, 6, fd=5))
    if pid == 9:
        assert rows == [("OPEN", 7, 1), ("OPEN", 9, 1), ("CLOSE", 9, 0), ("RECEIVE", 9, 6)]
    else:
        assert rows == [("OPEN", 7, 1), ("OPEN", 9, 1), ("RECEIVE", 9, 6)]


@pytest.mark.parametrize("fd", range(6))
def test_only_standard_descriptors_outlive_another_program(fd: int) -> None:
    accepted = call("accept4", 7, fd, fd=9)
    rows = find_rows(*accepted, ("exec", {"tid": 7}), *call("read", 7, 4, fd=fd))
    kept = fd <= 2
    assert rows == [("OPEN", 7, 1), ("RECEIVE", 7, 4) if kept else ("CLOSE", 7, 0)]


@pytest.mark.parametrize("ret", [-11, 0, 1, 2, 1500])
def test_nothing_is_the_end_and_less_is_an_error(ret: int) -> None:
    for name in ("read", "recvmsg", "write", "sendto"):
        rows = find_rows(*ACCEPTED, *call(name, 7, ret, fd=5))
        receives = name[0] == "r"
        if ret < 0 or (ret == 0 and not receives):
            assert rows == [("OPEN", 7, 1)]
        else:
            act = "SEND" if not receives else "RECEIVE" if ret else "FINISH"
            assert rows == [("OPEN", 7, 1), (act, 7, ret)]


@pytest.mark.parametrize("ret", [-115, -111, -1, 0, 1])
def test_who_connects_has_a_connection_or_soon_will(ret: int) -> None:
    rows = find_rows(*call("connect", 7, ret, fd=5, family=2), *call("sendto", 7, 3, fd=5))
    opened = [("OPEN", 7, 2)] if ret in {0, -115} else []
    assert rows == [*opened, ("SEND", 7, 3)]


def test_names_end_with_the_last_of_them() -> None:
    twice = [*ACCEPTED, *call("dup2", 7, 8, fd=5, newfd=8)]
    for first, last in ((5, 8), (8, 5)):
        closed = [*twice, *call("close", 7, 0, fd=first)]
        assert find_rows(*closed, *call("read", 7, 2, fd=last)) == [
            ("OPEN", 7, 1), ("RECEIVE", 7, 2),
        ]  # fmt: skip
        both = [*closed, *call("close", 7, 0, fd=last)]
        assert find_rows(*both, *call("read", 7, 2, fd=last)) == [("OPEN", 7, 1), ("CLOSE", 7, 0)]
    # What a number named before, it names no longer.
    other = [*ACCEPTED, *call("accept4", 7, 6, fd=3), *call("dup2", 7, 5, fd=6, newfd=5)]
    assert find_rows(*other)[-1] == ("CLOSE", 7, 0)
    for cmd, made in ((0, True), (1030, True), (1, False), (1029, False)):
        rows = find_rows(
            *ACCEPTED, *call("fcntl", 7, 8, fd=5, newfd=cmd), *call("read", 7, 2, fd=8)
        )
        assert (("RECEIVE", 7, 2) in rows) == made
