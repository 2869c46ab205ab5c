"""What a sleep is about, as the program in the kernel tells it, has a name."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath_record.stacks.descriptors import Names, address_name, real_names, short_names
from critpath_record.stacks.lookup import (
    ADDRESS,
    FILE,
    HEAD,
    INET_FACTS,
    NOTHING,
    PATH,
    SOCKET,
    UNIX_FACTS,
)

CALLS = {0: "read", 1: "fsync", 2: "openat", 3: "connect", 4: "futex", 5: "accept4"}
LISTEN, ESTABLISHED = 10, 1


def name(kind, data=b"", *, call=1, fd=3, whole=True, given=b"", names=None):
    """Return what a record is about."""
    head = HEAD.pack(5, 7, 6, fd, call, kind, whole, len(given), len(given) + len(data))
    found = (names or Names(CALLS)).find(head + given + data + b"left of the last one")
    return found and found[1]


def walked(path):
    """Return names from the file up, as the program reads them."""
    return b"".join(part.encode() + b"\0" for part in path.split("/")[::-1] if part)


def inet(state, local, remote, family=2):
    addresses = [ipaddress.ip_address(of[0]).packed.ljust(16, b"x") for of in (remote, local)]
    port = remote[1].to_bytes(2, "big")
    return INET_FACTS.pack(family, state, port, local[1], *addresses)


def unix(state, own, peer):
    texts = [struct.pack("<H", 1) + of.encode() + b"\0" if of else b"" for of in (own, peer)]
    parts = [part for text in texts for part in (len(text), text.ljust(112, b"x"))]
    return UNIX_FACTS.pack(1, state, *parts)


def test_files_have_their_paths():
    assert name(FILE, walked("/var/audit.log")) == "/var/audit.log"
    assert name(FILE, walked("deep/audit.log"), whole=False) == "deep/audit.log"
    assert name(FILE, b"a\x1b[31m\xff\0srv\0") == "/srv/a?[31m\N{REPLACEMENT CHARACTER}"


def test_what_is_in_no_directory_is_called_by_its_kind():
    assert name(FILE, b"\0", whole=False) == "pipe"
    assert name(FILE, b"[eventfd]\0", whole=False) == "eventfd"


@given(st.lists(st.text("ab.", min_size=1), max_size=4), st.text("ab/", min_size=1))
def test_a_path_is_that_of_where_its_process_works(place, text):
    base = "/" + "/".join(place)
    found = name(PATH, walked(base), call=2, given=text.encode() + b"\0")
    assert found == (text if text[0] == "/" else f"{base.rstrip('/')}/{text}")


def test_a_directory_that_could_not_be_read_leaves_what_was_given():
    assert name(PATH, given=b"pg_wal/1\0", whole=False) == "pg_wal/1"


def test_peers_have_names():
    names = Names(CALLS, {5432})
    one, other = ("10.0.0.1", 40_000), ("10.0.0.9", 80)
    assert name(SOCKET, inet(ESTABLISHED, one, other), names=names) == "10.0.0.9:80"
    of_own = inet(ESTABLISHED, ("10.0.0.9", 5432), one)
    assert name(SOCKET, of_own, names=names) == "client of 10.0.0.9:5432"
    assert name(SOCKET, inet(ESTABLISHED, other, one), names=names) == "10.0.0.1:40000"
    # One that listens is known from then on.
    assert name(SOCKET, inet(LISTEN, other, ("0.0.0.1", 0)), names=names) == "10.0.0.9:80"
    assert name(SOCKET, inet(ESTABLISHED, other, one), names=names) == "client of 10.0.0.9:80"
    six = inet(ESTABLISHED, ("::1", 1), ("::1", 443), family=10)
    assert name(SOCKET, six) == "[::1]:443"
    assert name(SOCKET, unix(LISTEN, "/db.sock", "")) == "/db.sock"
    assert name(SOCKET, unix(ESTABLISHED, "/db.sock", "")) == "client of /db.sock"
    assert name(SOCKET, unix(ESTABLISHED, "", "/db.sock")) == "/db.sock"
    assert name(SOCKET, unix(ESTABLISHED, "", "")) == "socket"
    assert name(SOCKET, struct.pack("<HBx4x", 16, 1)) == "socket"
    given = struct.pack("<HH4B", 2, 0x5000, 10, 0, 0, 9)
    assert name(ADDRESS, given, call=3) == "10.0.0.9:80"


def test_a_call_of_a_descriptor_that_could_not_be_read_has_its_number():
    assert name(NOTHING, call=0) == "descriptor 3"
    assert name(NOTHING, call=4) is None
    assert name(NOTHING, call=-1) is None


@given(st.binary(max_size=300), st.integers(0, 5), st.integers(0, 5), st.integers(0, 300))
def test_no_memory_of_a_program_is_too_odd(data, kind, call, of):
    head = HEAD.pack(5, 7, 6, 3, call, kind, 1, min(of, len(data)), len(data))
    found = Names(CALLS).find(head + data)
    assert found is None or (found[1].isprintable() and 0 < len(found[1]) <= 200)


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


def test_short_names_tell_apart():
    names = ["/a/x/data.log", "/b/y/data.log", "/c/audit.log", "127.0.0.1:80", "/"]
    short = ["x/data.log", "y/data.log", "audit.log", "127.0.0.1:80", "/"]
    names += ["/srv/a/pg_wal/1", "/srv/b/pg_wal/1", "/srv/b/old/1"]
    short += ["a/pg_wal/1", "b/pg_wal/1", "old/1"]
    assert short_names(names) == dict(zip(names, short, strict=True))


def test_one_file_by_two_names_is_one_and_others_are_not(tmp_path):
    """As a server opens by a link what was open before by its path."""
    (tmp_path / "wal").mkdir()
    (tmp_path / "pg_wal").symlink_to("wal")
    link, real, other = (f"{tmp_path}/{name}/1" for name in ("pg_wal", "wal", "other"))
    alone, peer = f"{tmp_path}/pg_wal/2", "127.0.0.1:80"
    found = real_names({link, real, other, alone, peer})
    assert found == {link: real, real: real, other: other, alone: alone, peer: peer}
