"""What is open already is named, and what programs gave to calls is found by thread and time."""

from __future__ import annotations

import os
import socket

from critpath_record.stacks.descriptors import Named
from critpath_record.stacks.files import Arguments, _open_now, name_sockets, real_names


def test_what_this_process_has_open(tmp_path):
    place = tmp_path / "a\nb.log"
    with place.open("wb") as file, socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as peer:
            os.set_inheritable(file.fileno(), True)
            table = dict(_open_now(f"/proc/{os.getpid()}", name_sockets()))
            ends = [table[one.fileno()].name for one in (server, client, peer)]
    named = {one.name: one for one in table.values()}
    assert named[f"{tmp_path}/a?b.log"] == Named(f"{tmp_path}/a?b.log", closes=False)
    assert ends == [f"127.0.0.1:{port}", f"127.0.0.1:{port}", f"client of 127.0.0.1:{port}"]


def test_a_process_that_has_ended_has_nothing_open():
    assert not [*_open_now("/proc/0", {})]


def test_what_a_call_was_given_is_that_of_its_thread_and_time():
    told = Arguments({257: "openat", 42: "connect"})
    for when, number, tid, data in (
        (1_000_000, 257, 7, b"a"),
        (1_090_000, 257, 7, b"b"),
        (1_090_000, 42, 7, b"c"),
        (1_000_500, 257, 8, b"d"),
    ):
        told.add(when, number, tid, data)
    assert told.find(1_000_100, "openat", 7) == b"a"
    assert told.find(1_089_000, "openat", 7) == b"b"
    assert told.find(1_089_000, "connect", 7) == b"c"
    assert told.find(1_200_000, "openat", 7) is None
    assert told.find(1_000_000, "openat", 9) is None


def test_calls_that_follow_each_other_at_once_keep_what_each_was_given():
    """As programs open their locale: ten files within 50 µs."""
    found = Arguments({257: "openat"})
    for number in range(40):
        found.add(1_000_000 + 3000 * number, 257, 7, b"%d" % number)
    for number in range(40):
        for apart in (-900, 900):
            assert found.find(1_000_000 + 3000 * number + apart, "openat", 7) == b"%d" % number


def test_one_file_by_two_names_is_one_and_others_are_not(tmp_path):
    """As a server opens by a link what was open before by its path."""
    (tmp_path / "wal").mkdir()
    (tmp_path / "pg_wal").symlink_to("wal")
    link, real, other = (f"{tmp_path}/{name}/1" for name in ("pg_wal", "wal", "other"))
    alone, peer = f"{tmp_path}/pg_wal/2", "127.0.0.1:80"
    found = real_names({link, real, other, alone, peer})
    assert found == {link: real, real: real, other: other, alone: alone, peer: peer}
