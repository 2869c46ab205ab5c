"""Sessions of TLS: which receive or send each message was in; drawn and simulated with truth."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from test_endpoints import collect, ends, no_workers

from critpath.model import Kind
from critpath.model.requests import Act, FrameFlag
from critpath.requests.sessions import place_sessions
from critpath.requests.turns import find_turns

SENT, SESSION = FrameFlag.SENT, FrameFlag.SESSION
WHOLE = FrameFlag.HEADERS | FrameFlag.END
RECORD = 22  # bytes that a record has besides
SERVER, PORT = 7, 8443


class Loop:
    """Threads that receive and send on encrypted connections, and what a library tells of it."""

    def __init__(self):
        self.now, self.labels = 100, [""]
        self.events = [(1, 0, Kind.SWITCH, [0, 0, 0, 0, 0])]
        self.frames, self.truth = [], []

    def connect(self, number):
        """Accept a connection; return its socket."""
        socket = (3 << 40) + (number << 8)
        where = ends("4", f"127.0.0.1:{PORT}", f"127.0.0.1:{40000 + number}")
        self.put(SERVER, Kind.SOCKET_STATE, [socket, *where, 6, 3, 1])
        return socket

    def put(self, tid, kind, fields):
        self.now += 10
        self.events.append((self.now, 0, Kind.SWITCH, [0, 0, 1, 0, tid]))
        self.now += 10
        self.events.append((self.now, 0, kind, fields))
        return self.now

    def arrive(self, socket):
        self.put(0, Kind.SOCKET_ARRIVAL, [socket, 2, 6])

    def receive(self, socket, length, tid=SERVER):
        return self.put(tid, Kind.SOCKET_RECEIVE, [socket, 2, 6, length, 0]), length

    def send(self, socket, length, tid=SERVER):
        return self.put(tid, Kind.SOCKET_SEND, [socket, 2, 6, length, 0]), length

    def tell(self, session, length, socket, moved, *, label="", flags=0, stream=0, tid=SERVER):
        """Write down what a library says, and which socket and receive or send it truly was."""
        if label not in self.labels:
            self.labels.append(label)
        self.now += 10
        self.frames.append([
            *(self.now, 0, session, length, stream, flags | SESSION, length, 0, 0),
            *(self.labels.index(label), tid),
        ])  # fmt: skip
        self.truth.append((moved[0], socket, moved[1]) if moved else None)

    def collect(self):
        collected = collect(self.events)
        return type(collected)(**{
            **vars(collected), "called": self.labels,
            "frames": np.array(self.frames, np.int64).reshape(-1, 11),
        })  # fmt: skip


def test_what_a_thread_reads_it_has_received_and_what_it_writes_it_sends():
    loop = Loop()
    one, other = loop.connect(1), loop.connect(2)
    # Of one the head and the rest of a record apart, within the call; of the other all at once.
    loop.receive(one, 5)
    loop.tell(901, 60, one, loop.receive(one, 60 + 17), label="GET /a")
    loop.tell(902, 80, other, loop.receive(other, 80 + RECORD), label="GET /b")
    # Written in two calls, and sent with the second.
    length = 30 + 40 + 2 * RECORD
    for size in (30, 40):
        loop.tell(902, size, other, None, flags=SENT, stream=1)
    sent = loop.send(other, length)
    loop.truth[-2:] = [(sent[0], other, length)] * 2
    placed = place_sessions(loop.collect())
    assert [(m[0], m[2], m[5]) for m in placed.messages] == [
        (loop.truth[0][0], one, "GET /a"), (loop.truth[1][0], other, "GET /b"),
    ]  # fmt: skip
    assert placed.frames[:, [0, 2, 3, 5]].tolist() == [[sent[0], other, length, SENT]] * 2


def test_without_sessions_nothing_changes():
    loop = Loop()
    loop.connect(1)
    collected = loop.collect()
    assert place_sessions(collected) is collected


@pytest.mark.parametrize("received", [False, True])
def test_a_session_of_which_nobody_knows_the_socket_is_left_out(received):
    loop = Loop()
    one, other = loop.connect(1), loop.connect(2)
    for number, socket in enumerate((one, other)):
        if received:  # by a thread that hands it on
            loop.receive(socket, 100, tid=9)
        loop.tell(901 + number, 60, socket, None, label="GET /a", tid=33)
    placed = place_sessions(loop.collect())
    assert (placed.messages, len(placed.frames)) == ([], 0)


def simulate(seed, connections, requests, *, gathers):
    """Serve connections on one loop, some of which stay for one request only."""
    draw = random.Random(seed)  # noqa: S311 - draws
    loop = Loop()
    open_ = {}
    session = 900
    for _ in range(requests):
        ready = []
        for place in draw.sample(range(connections), draw.randint(1, connections)):
            if place not in open_ or draw.random() < 0.3:
                session += 1
                open_[place] = loop.connect(session), session
            ready.append(open_[place])
        work = []
        for socket, number in ready:
            loop.arrive(socket)
            size = draw.randint(60, 600)
            # The end of a handshake may come with the first request.
            more = RECORD + (74 if draw.random() < 0.1 else 0)
            got = loop.receive(socket, size + more)
            if draw.random() < 0.2:  # the loop is woken by a thread
                loop.put(SERVER, Kind.SOCKET_RECEIVE, [5 << 40, 1, 0, 1, 0])
            work.append((number, size, socket, got))
            if not gathers:
                answer(loop, draw, *work.pop())
        for one in work:
            answer(loop, draw, *one)
    return loop


def answer(loop, draw, number, size, socket, got):
    loop.tell(number, size, socket, got, label="GET /a")
    loop.now += draw.randint(0, 500)
    if draw.random() < 0.5:
        size = draw.randint(100, 3000)
        loop.tell(number, size, socket, None, flags=SENT, stream=1)
        loop.truth[-1] = (loop.send(socket, size + RECORD)[0], socket, size + RECORD)
    else:
        loop.send(socket, draw.randint(100, 3000))


@given(st.integers(0, 1 << 30), st.integers(1, 12), st.booleans())
def test_every_message_is_placed_where_it_truly_was(seed, connections, gathers):
    loop = simulate(seed, connections, 30, gathers=gathers and connections > 1)
    placed = place_sessions(loop.collect())
    streams = [row[4] > 0 for row in loop.frames]
    told = {(m[0], m[2]) for m in placed.messages}
    truth = {t[:2] for t, stream in zip(loop.truth, streams, strict=True) if not stream}
    frames = {tuple(row) for row in placed.frames[:, [0, 2, 3]].tolist()}
    of_frames = {t for t, stream in zip(loop.truth, streams, strict=True) if stream}
    if gathers:  # what is received for several before any is read is told apart by sizes
        assert len(told - truth) <= 0.1 * len(truth)
    else:
        assert told == truth
        assert frames == of_frames


def test_streams_of_encrypted_connections_are_requests():
    loop = Loop()
    socket = loop.connect(1)
    spans = []
    for stream in (1, 3, 5):
        loop.arrive(socket)
        begin = loop.now
        loop.tell(901, 60, socket, loop.receive(socket, 82), label="POST /a.B/C", stream=stream)
        loop.frames[-1][5] |= WHOLE
        spans.append([begin])
    for place, stream in ((1, 3), (0, 1), (2, 5)):
        loop.tell(901, 70, socket, None, flags=SENT | WHOLE, stream=stream)
        spans[place].append(loop.send(socket, 92)[0])
    found = find_turns(loop.collect(), no_workers(), lambda _: "greeter", end=1 << 50)
    table = found.requests
    assert sorted(zip(table.begin_ns.tolist(), table.end_ns.tolist(), strict=True)) == sorted(
        map(tuple, spans)
    )
    assert {table.strings[c] for c in table.message.tolist()} == {"POST /a.B/C"}
    assert (found.activity.act == Act.SEND).sum() == 3
