"""What ``/proc/net`` says of sockets, whole, cut off and hostile."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath_record import sockets
from critpath_record.sockets import LISTEN, find_servers, parse_inet, parse_unix, scan_sockets

FOUR = b"""\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1511 1 \
00000000ab3243ca 100 0 0 10 0
   1: 0100007F:A0ED 0200007F:07E8 01 00000000:00000000 00:00000000 00000000     0        0 1512 1 \
ffff88ffab3243ca 20 4 30 10 -1
   2: 0100007F:A0EE 0200007F:07E8 06 00000000:00000000 03:00001765 00000000     0        0 0 3 \
00000000ab3243ca
"""
SIX = FOUR.replace(b"0100007F", b"000080FE000000000000000001000000").replace(
    b"0200007F", b"0000000000000000FFFF00000200007F"
)
UNIX = b"""\
Num       RefCount Protocol Flags    Type St Inode Path
00000000b18c11cc: 00000003 00000000 00000000 0001 03  1507
00000000fdf23ad0: 00000002 00000000 00010000 0001 01  1508 /run/a b.sock
ffff88ffab3243ca: 00000003 00000000 00000000 0001 03  1509 @abstract
"""


def test_addresses_are_those_of_the_wire():
    listens, connected = parse_inet(FOUR, 2, 6)
    assert listens == (1511, 2, 6, LISTEN, "7f000001", 2024, "00000000", 0, 0, "")
    assert connected[3:8] == (1, "7f000001", 0xA0ED, "7f000002", 2024)
    assert connected[8] == 0xFFFF88FFAB3243CA  # the other was a hash
    six, mapped = parse_inet(SIX.replace(b" 00000000:0000 ", b" " + b"0" * 32 + b":0000 "), 10, 6)
    assert six[4] == "fe80" + "0" * 20 + "00000001"
    assert mapped[6] == "0" * 20 + "ffff7f000002"


def test_unix_sockets_have_their_path():
    listens, accepted = parse_unix(UNIX)
    assert listens == (1508, 1, 1, LISTEN, "", 0, "", 0, 0, "/run/a b.sock")
    assert (accepted[3], accepted[-1]) == (1, "@abstract")


@given(st.sampled_from((FOUR, SIX, UNIX)), st.data())
def test_what_is_cut_off_or_garbage_breaks_nothing(text, data):
    cut = data.draw(st.integers(0, len(text)))
    garbage = data.draw(st.binary(max_size=200))
    for broken in (text[:cut], text[:cut] + garbage + text[cut:], garbage):
        for row in (*parse_inet(broken, 2, 6), *parse_inet(broken, 10, 6), *parse_unix(broken)):
            inode, _, _, state, local, port, remote, other, place, path = row
            assert 0 < inode < 1 << 63
            assert 0 < state < 16
            assert {len(local), len(remote)} <= {0, 8, 32}
            assert 0 <= port < 1 << 16
            assert 0 <= other < 1 << 16
            assert 0 <= place < 1 << 64
            assert len(path) <= 108


def test_a_path_of_many_bytes_and_lines_stays_one_short_text():
    forged = b"\n00000000fdf23ad0: 00000002 00000000 00010000 0001 01 x /run/other"
    rows = list(parse_unix(UNIX.replace(b"/run/a b.sock", b"/run/\xff\x1b[2J" * 40 + forged)))
    assert [len(row[-1]) <= 108 for row in rows] == [True, True]


def test_a_socket_of_this_process_is_found():
    with socket.socket() as listening, socket.socket(socket.AF_UNIX) as unix:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        unix.bind(f"\0critpath-test-{os.getpid()}")
        port = listening.getsockname()[1]
        rows, left_out = scan_sockets()
        assert left_out == 0
        some, left_out = scan_sockets(most=1)
        assert (len(some), left_out > 0) == (1, True)
    try:
        here = Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        pytest.skip("there is no /proc/self/ns/net")
    [mine] = [row for row in rows if row[7] == port and row[5] == LISTEN]
    assert (mine[1], mine[3:7]) == (here, (2, 6, LISTEN, "7f000001"))
    assert [row for row in rows if row[-1] == f"@critpath-test-{os.getpid()}"]


def test_servers_are_programs_that_listen_by_tcp(monkeypatch):
    rows = [
        (0, 1, 11, 2, 6, LISTEN, "", 8080, "", 0, 0, ""),
        (0, 1, 12, 10, 6, LISTEN, "", 8080, "", 0, 0, ""),
        (0, 1, 13, 2, 6, 1, "", 8080, "", 999, 0, ""),
        (0, 1, 14, 2, 17, 7, "", 53, "", 0, 0, ""),
        (0, 1, 15, 2, 6, LISTEN, "", 22, "", 0, 0, ""),
        (0, 1, 16, 1, 1, LISTEN, "", 0, "", 0, 0, "/run/a"),
        (0, 1, 17, 2, 6, LISTEN, "", 99, "", 0, 0, ""),
    ]
    names = {1: "nginx", 2: "nginx: worker", 3: "sshd", 4: "curl"}
    held = [(1, 11), (2, 11), (1, 12), (4, 13), (3, 15), (4, 16)]
    monkeypatch.setattr(sockets, "scan_sockets", lambda: (rows, 0))
    found = [(0, pid, 5, inode, 0) for pid, inode in held]
    monkeypatch.setattr(sockets, "scan_descriptors", lambda: (found, 0))
    monkeypatch.setattr(sockets, "read_name", names.get)
    assert find_servers() == ["nginx:8080"]
