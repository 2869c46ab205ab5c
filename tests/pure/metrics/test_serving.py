"""Who may ask for metrics: this is decided before a word of theirs is read."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from critpath.errors import UsageError
from critpath.metrics.serving import Server, find_owner, parse_port

MINE = os.geteuid()
CONTENT = b"metric 1\n# EOF\n"


@contextmanager
def serve(place: str, users: set[int]) -> Iterator[Server]:
    server = Server(place, users, "text/plain", lambda: CONTENT)
    server.timeout = 60
    try:
        yield server
    finally:
        server.server_close()


def ask(server: Server, request: bytes = b"GET /metrics HTTP/1.0\r\n\r\n") -> bytes:
    """Return what it answers to one connection."""
    family = server.address_family
    with socket.socket(family) as to:
        to.settimeout(60)
        to.connect(server.server_address)
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        answer = b""
        with suppress(OSError):
            to.sendall(request)
            to.shutdown(socket.SHUT_WR)
            while part := to.recv(1 << 16):
                answer += part
        answering.join()
    return answer


@pytest.fixture(params=["127.0.0.1:0", "unix:"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found: str = request.param
    return f"{found}{tmp_path / 's'}" if found == "unix:" else found


def test_who_may_is_answered(place: str) -> None:
    with serve(place, {MINE}) as server:
        answer = ask(server)
        assert answer.startswith(b"HTTP/1.0 200")
        assert answer.endswith(b"\r\n\r\n" + CONTENT)
        assert ask(server, b"GET /elsewhere HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 404")
        assert ask(server, b"POST /metrics HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 501")
        # What is no HTTP, or too much of it, ends the connection and nothing else.
        for words in (b"\0" * 100, b"G" * 100_000, b"GET / HTTP/1.0\r\n" + b"a: b\r\n" * 300):
            assert CONTENT not in ask(server, words)
        assert CONTENT in ask(server)


def test_others_are_refused(place: str) -> None:
    with serve(place, {MINE + 1}) as server:
        answer = ask(server)
        assert CONTENT not in answer
        assert answer == b"" or answer.startswith(b"HTTP/1.0 403")


def test_who_cannot_be_told_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "tcp"
    table.write_text("head\n", "ascii")
    server = Server("127.0.0.1:0", {MINE}, "text/plain", lambda: CONTENT, tables=table)
    server.timeout = 60
    try:
        assert CONTENT not in ask(server)
    finally:
        server.server_close()


def test_a_socket_is_its_users_alone_unless_another_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s"
    for users, mode in (({MINE, 0}, 0o600), ({MINE, 0, 12345}, 0o666)):
        with serve(f"unix:{path}", users):
            assert path.stat().st_mode & 0o777 == mode
        assert not path.exists()


def test_what_was_left_is_replaced_and_what_is_used_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()  # its name stays
    with serve(f"unix:{path}", {MINE}) as server:
        assert CONTENT in ask(server)
        with pytest.raises(UsageError, match="cannot listen"):
            Server(f"unix:{path}", {MINE}, "text/plain", lambda: CONTENT)
        server.handle_request()  # of who looked whether somebody answers there
        assert CONTENT in ask(server)
    path.write_text("somebody's")
    with pytest.raises(UsageError, match="cannot listen"):
        Server(f"unix:{path}", {MINE}, "text/plain", lambda: CONTENT)
    assert path.read_text() == "somebody's"


@pytest.mark.parametrize("text", ["0.0.0.0:9464", "[::]:9464", "host:1", "9464", ":99999", ""])
def test_what_others_reach_is_no_place(text: str) -> None:
    with pytest.raises(UsageError, match="no port of this machine alone"):
        parse_port(text)


@pytest.mark.parametrize("text", [":9464", "localhost:9464", "127.0.0.1:9464"])
def test_a_port_is_of_this_machine_alone(text: str) -> None:
    assert parse_port(text) == ("127.0.0.1", 9464)


def test_the_owner_is_of_the_other_end() -> None:
    """The accepted end is listed as well, with both addresses the other way round."""
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
        "   0: 0100007F:24F8 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0\n"
        "   1: 0100007F:C350 0100007F:24F8 01 00000000:00000000 00:00000000 00000000  4242\n"
    )
    assert sys.byteorder == "little"
    ends = SimpleNamespace(
        getsockname=lambda: ("127.0.0.1", 9464), getpeername=lambda: ("127.0.0.1", 50000)
    )
    assert find_owner(table, ends) == 4242
    assert find_owner(table.replace("C350", "C351"), ends) is None
