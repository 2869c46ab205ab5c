"""What descriptors name, by drawings of system calls and by a plain twin."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath_record.stacks.descriptors import (
    Descriptors,
    Named,
    address_name,
    short_names,
)

CLOEXEC = 0o2000000


def call(found, tid, name, *arguments, given=None, gives=0):
    found.enter(tid, name, [*arguments, 0, 0, 0, 0, 0], given)
    found.leave(tid, name, gives)


def open_file(found, tid, path, fd, flags=0):
    call(found, tid, "openat", -100, 0, flags, given=path + bytes(256 - len(path)), gives=fd)


def waiting_in(found, tid, name="fsync", fd=3):
    found.enter(tid, name, [fd, 0, 0, 0, 0, 0], None)
    try:
        return found.find(tid)
    finally:
        found.leave(tid, name, 0)


def test_a_file_is_known_until_it_is_closed():
    found = Descriptors()
    open_file(found, 7, b"/var/audit.log", 3)
    assert waiting_in(found, 7) == ("fsync", "/var/audit.log")
    call(found, 7, "close", 3)
    assert waiting_in(found, 7) == ("fsync", "descriptor 3")
    assert found.find(7) is None


def test_an_open_that_fails_or_whose_path_is_not_known_names_nothing():
    found = Descriptors()
    open_file(found, 7, b"a", 3)
    open_file(found, 7, b"b", -2)
    assert waiting_in(found, 7) == ("fsync", "a")
    call(found, 7, "openat", -100, given=None, gives=3)
    assert waiting_in(found, 7) == ("fsync", "descriptor 3")


def test_duplicates_name_the_same():
    found = Descriptors()
    open_file(found, 7, b"a", 3)
    call(found, 7, "dup", 3, gives=4)
    call(found, 7, "dup2", 3, 9, gives=9)
    call(found, 7, "fcntl", 3, 1030, gives=5)
    call(found, 7, "close", 3)
    assert [waiting_in(found, 7, fd=fd) for fd in (4, 9, 5)] == [("fsync", "a")] * 3
    call(found, 7, "close_range", 4, 0xFFFFFFFF - (1 << 32), 0)
    assert waiting_in(found, 7, fd=9) == ("fsync", "descriptor 9")


def test_threads_share_and_children_copy():
    found = Descriptors()
    open_file(found, 7, b"a", 3)
    found.fork(7, 8, 0x400)
    found.fork(7, 9, 0)
    open_file(found, 8, b"b", 3)
    assert waiting_in(found, 7) == ("fsync", "b")
    assert waiting_in(found, 9) == ("fsync", "a")
    found.exit(7)
    assert waiting_in(found, 8) == ("fsync", "b")


def test_a_new_program_has_what_does_not_close():
    found = Descriptors()
    open_file(found, 7, b"kept", 3)
    open_file(found, 7, b"closed", 4, CLOEXEC)
    open_file(found, 7, b"set", 5)
    call(found, 7, "fcntl", 5, 2, 1)
    found.exec(7, 7)
    names = [waiting_in(found, 7, fd=fd) for fd in (3, 4, 5)]
    assert [name for _, name in names] == ["kept", "descriptor 4", "descriptor 5"]


def test_peers_have_names():
    found = Descriptors()
    peer = struct.pack("<H", socket.AF_INET) + (5432).to_bytes(2, "big") + bytes([127, 0, 0, 1])
    call(found, 7, "socket", 2, 1 | CLOEXEC, gives=3)
    assert waiting_in(found, 7, "recvfrom") == ("recvfrom", "socket")
    found.enter(7, "connect", [3, 0, 16], peer.ljust(112, b"\0"))
    assert found.find(7) == ("connect", "127.0.0.1:5432")
    found.leave(7, "connect", -115)
    assert waiting_in(found, 7, "read") == ("read", "127.0.0.1:5432")
    found.exec(7, 7)
    assert waiting_in(found, 7, "read") == ("read", "descriptor 3")
    call(found, 8, "bind", 4, given=peer)
    call(found, 8, "accept4", 4, 0, 0, 0, gives=5)
    assert waiting_in(found, 8, "read", 5) == ("read", "client of 127.0.0.1:5432")


def test_a_path_is_that_of_where_its_process_works():
    """Two servers open the same, each below its own directory; a child goes on from there."""
    found = Descriptors()
    for tid, place in ((7, "/srv/a"), (8, "/srv/b")):
        found.dump([tid], {4: Named("/srv/wal")}, place)
        open_file(found, tid, b"pg_wal/1", 3)
    assert [waiting_in(found, tid) for tid in (7, 8)] == [
        ("fsync", "/srv/a/pg_wal/1"),
        ("fsync", "/srv/b/pg_wal/1"),
    ]
    found.fork(7, 9, 0)
    found.fork(7, 10, 0x600)
    call(found, 10, "chdir", 0, given=b"base\0", gives=0)
    call(found, 8, "chdir", 0, given=b"/gone\0", gives=-2)
    call(found, 8, "openat", 4, 0, 0, given=b"2", gives=5)
    assert waiting_in(found, 8, fd=5) == ("fsync", "/srv/wal/2")
    for tid, path in ((7, "/srv/a/base/x"), (8, "/srv/b/x"), (9, "/srv/a/x")):
        call(found, tid, "open", 0, 0, given=b"x", gives=3)
        assert waiting_in(found, tid) == ("fsync", path)
    call(found, 9, "fchdir", 4, gives=0)
    found.exec(9, 9)
    open_file(found, 9, b"y", 3)
    assert waiting_in(found, 9) == ("fsync", "/srv/wal/y")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\1\0/run/db.sock\0rest", "/run/db.sock"),
        (b"\1\0\0hidden\0", "@hidden"),
        (struct.pack("<H", 10) + b"\1\xbb" + bytes(4) + b"\0" * 15 + b"\1", "[::1]:443"),
        (
            struct.pack("<H", 10) + b"\1\xbb" + bytes(14) + b"\xff\xff" + bytes([10, 0, 0, 9]),
            "10.0.0.9:443",
        ),
        (b"\1\0a\x1b[2Jb\n\0", "a?[2Jb?"),
        (b"\x10\0", ""),
        (b"\2\0\0", ""),
        (b"", ""),
    ],
)
def test_addresses(data, name):
    assert address_name(data) == name


def test_a_poll_of_one_descriptor_is_about_it():
    found = Descriptors()
    found.dump([7], {3: Named("10.0.0.9:80")})
    found.enter(7, "poll", [0, 1, 100, 0, 0, 0], struct.pack("<iHH", 3, 1, 0))
    assert found.find(7) == ("poll", "10.0.0.9:80")
    found.enter(7, "poll", [0, 2, 100, 0, 0, 0], None)
    assert found.find(7) is None


def test_short_names_tell_apart():
    names = ["/a/x/data.log", "/b/y/data.log", "/c/audit.log", "127.0.0.1:80", "/"]
    short = ["x/data.log", "y/data.log", "audit.log", "127.0.0.1:80", "/"]
    names += ["/srv/a/pg_wal/1", "/srv/b/pg_wal/1", "/srv/b/old/1"]
    short += ["a/pg_wal/1", "b/pg_wal/1", "old/1"]
    assert short_names(names) == dict(zip(names, short, strict=True))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "close", "dup2", "fork", "thread", "exec", "exit"]),
        st.integers(1, 4),
        st.integers(0, 3),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=30,
)


@given(STEPS)
def test_descriptors_are_those_of_a_plain_twin(steps):
    """Each process of the twin is a list of who shares it and a table."""
    found, twin = Descriptors(), {}
    for number, (what, tid, a, b, flag) in enumerate(steps):
        own = twin.setdefault(tid, {})
        if what == "open":
            open_file(found, tid, b"f%d" % number, a, CLOEXEC if flag else 0)
            own[a] = f"f{number}", flag
        elif what == "close":
            call(found, tid, "close", a)
            own.pop(a, None)
        elif what == "dup2" and a != b:
            call(found, tid, "dup2", a, b, gives=b)
            own.pop(b, None)
            if a in own:
                own[b] = own[a][0], False
        elif what in {"fork", "thread"}:
            child = tid % 4 + 1
            found.fork(tid, child, 0x400 if what == "thread" else 0)
            twin[child] = own if what == "thread" else dict(own)
        elif what == "exec":
            found.exec(tid, tid)
            twin[tid] = {fd: one for fd, one in own.items() if not one[1]}
        elif what == "exit":
            found.exit(tid)
            del twin[tid]
        for thread, table in twin.items():
            for fd in range(4):
                name = table[fd][0] if fd in table else f"descriptor {fd}"
                assert waiting_in(found, thread, fd=fd) == ("fsync", name)


@given(st.binary(max_size=300), st.sampled_from(["openat", "connect", "bind", "poll", "open"]))
def test_no_memory_of_a_program_is_too_odd(given, name):
    found = Descriptors()
    call(found, 7, name, 3, 3, 3, given=given, gives=3)
    found.enter(7, "read", [3, 0, 0, 0, 0, 0], None)
    _, text = found.find(7)
    assert text.isprintable()
    assert 0 < len(text) <= 200
