"""Streams of HTTP/2: one request each, from the heads of frames; drawn and simulated with truth."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_endpoints import collect, ends, no_workers

from critpath.model import Kind
from critpath.model.requests import Certainty, FrameFlag
from critpath.requests.turns import WHYS, find_turns

SERVER, CLIENT = 3 << 40, 4 << 40
SERVING, ASKING = 7, 8
HEADERS, END, SENT, RESET = (FrameFlag[n] for n in ("HEADERS", "END", "SENT", "RESET"))
WHOLE = HEADERS | END
HEAD = 9


class Connection:
    """A connection as the kernel's events have it, and frames as the recorder tells them."""

    def __init__(self, *, here=True, first=100):
        self.now, self.here = first, here
        self.events, self.frames, self.labels = [(1, 0, Kind.SWITCH, [0, 0, 0, 0, 0])], [], [""]
        numbers = "127.0.0.1:50051", "127.0.0.1:40000"
        self.put(SERVING, Kind.SOCKET_STATE, [SERVER, *ends("4", *numbers), 6, 3, 1])
        if here:
            self.put(ASKING, Kind.SOCKET_STATE, [CLIENT, *ends("4", *numbers[::-1]), 6, 2, 1])

    def put(self, tid, kind, fields, wait=10):
        self.now += wait
        self.events.append((self.now, 0, Kind.SWITCH, [0, 0, 1, 0, tid]))
        self.now += wait
        self.events.append((self.now, 0, kind, fields))
        return self.now

    def tell(self, socket, length, frames, *, sent):
        """Write down what a message had, at most a little before or after its event."""
        for stream, flags, label in frames:
            if label not in self.labels:
                self.labels.append(label)
            self.frames.append([
                *(self.now + (3 if self.now % 20 else -3), 0, socket, length, stream),
                *(flags | (SENT if sent else 0), length // len(frames), 0, 0),
                *(self.labels.index(label), SERVING),
            ])  # fmt: skip

    def send(self, frames, *, answers=False, wait=10):
        """Send frames of (stream, flags, label); return when they arrived and were sent."""
        length = HEAD * len(frames)
        one, other, tid = (SERVER, CLIENT, SERVING) if answers else (CLIENT, SERVER, ASKING)
        came = self.now
        if self.here or not answers:
            thread = tid if self.here else 0
            came = self.put(thread, Kind.SOCKET_ARRIVAL, [other, 2, 6], wait)
        if self.here or answers:
            self.put(tid, Kind.SOCKET_SEND, [one, 2, 6, length, 0])
            self.tell(one, length, frames, sent=True)
        return came, self.now

    def receive(self, frames, *, answers=False, wait=10):
        length = HEAD * len(frames)
        socket, tid = (CLIENT, ASKING) if answers else (SERVER, SERVING)
        self.put(tid, Kind.SOCKET_RECEIVE, [socket, 2, 6, length, 0], wait)
        self.tell(socket, length, frames, sent=False)
        return self.now

    def find(self, **how):
        collected = collect(self.events)
        collected = type(collected)(**{
            **vars(collected), "frames": np.array(self.frames, np.int64).reshape(-1, 11),
            "called": self.labels,
        })  # fmt: skip
        return find_turns(collected, no_workers(), lambda _: "greeter", end=1 << 50, **how)


def spans(found):
    table = found.requests
    columns = table.turn, table.begin_ns, table.received_ns, table.end_ns
    return sorted(zip(*(c.tolist() for c in columns), strict=True))


@pytest.mark.parametrize("here", [True, False])
def test_each_stream_is_a_request_from_its_arrival_to_its_end(here):
    drawn = Connection(here=here)
    truth = {}
    for stream in (1, 3, 5):
        came, _ = drawn.send([(stream, WHOLE, "")])
        got = drawn.receive([(stream, WHOLE, "POST /a.B/C")])
        truth[stream] = [came, got]
    for stream in (5, 1, 3):
        _, sent = drawn.send([(stream, HEADERS, ""), (stream, END, "")], answers=True)
        truth[stream].append(sent)
    found = drawn.find()
    assert spans(found) == [((n + 1) // 2, *truth[n]) for n in (1, 3, 5)]
    assert found.requests.boundary.tolist() == [Certainty.CERTAIN] * 3
    assert {found.requests.strings[c] for c in found.requests.message} == {"POST /a.B/C"}
    assert {found.requests.strings[c] for c in found.requests.service} == {":50051"}
    assert found.account.incomplete == 0


def test_streams_that_are_received_at_once_came_when_their_sender_sent_them():
    drawn = Connection()
    first, _ = drawn.send([(1, WHOLE, "")])
    second, _ = drawn.send([(3, WHOLE, ""), (5, WHOLE, "")])
    got = drawn.receive([(1, WHOLE, "GET /a"), (3, WHOLE, "GET /b"), (5, WHOLE, "GET /b")])
    _, sent = drawn.send([(s, END, "") for s in (1, 3, 5)], answers=True)
    drawn.receive([(s, END, "") for s in (1, 3, 5)], answers=True)
    found = drawn.find()
    assert spans(found) == [(1, first, got, sent), (2, second, got, sent), (3, second, got, sent)]
    names = [found.requests.strings[c] for c in found.requests.message.tolist()]
    assert names == ["GET /a", "GET /b", "GET /b"]
    # Their other ends are endpoints that ask, each the peer of its own.
    peers = found.endpoints.peer[found.requests.endpoint]
    assert found.endpoints.serves[peers].tolist() == [0, 0, 0]
    assert len({*peers.tolist()}) == 3


def test_with_which_of_several_arrivals_a_stream_of_elsewhere_came_is_likely():
    drawn = Connection(here=False)
    first, _ = drawn.send([(1, WHOLE, "")])
    drawn.send([(3, WHOLE, "")])
    drawn.receive([(1, WHOLE, ""), (3, WHOLE, "")])
    drawn.send([(1, END, ""), (3, END, "")], answers=True)
    found = drawn.find()
    assert found.requests.begin_ns.tolist() == [first, first]
    assert [WHYS[c] for c in found.requests.why] == ["came with one of several"] * 2
    assert found.requests.boundary.tolist() == [Certainty.LIKELY] * 2


def test_a_stream_with_pieces_both_ways_is_one_request():
    drawn = Connection()
    came, _ = drawn.send([(1, HEADERS, "")])
    got = drawn.receive([(1, HEADERS, "POST /talk")])
    drawn.send([(1, HEADERS, "")], answers=True)
    for _ in range(3):
        drawn.send([(1, FrameFlag(0), "")])
        drawn.receive([(1, FrameFlag(0), "")])
        drawn.send([(1, FrameFlag(0), "")], answers=True)
    _, sent = drawn.send([(1, END, "")], answers=True)
    assert spans(drawn.find()) == [(1, came, got, sent)]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_not_seen_from_begin_to_end_is_counted(seed):
    drawn, rng = Connection(), random.Random(seed)  # noqa: S311 - no secrets
    for stream in range(1, 21, 2):
        drawn.send([(stream, WHOLE, "")])
        drawn.receive([(stream, WHOLE, "GET /")])
    drawn.send([(7, FrameFlag(0), "")])  # more of one that began before
    drawn.receive([(101, FrameFlag(0), "")])
    answered = rng.sample(range(1, 21, 2), rng.randrange(1, 10))
    for stream in answered:
        drawn.send([(stream, END, "")], answers=True)
    found = drawn.find()
    assert sorted(found.requests.turn.tolist()) == sorted((s + 1) // 2 for s in answered)
    assert found.account.incomplete == 11 - len(answered)


def test_without_frames_nothing_changes_and_of_other_connections_neither():
    drawn = Connection()
    for stream in (1, 3):
        drawn.send([(stream, WHOLE, "")])
        drawn.receive([(stream, WHOLE, "")])
        drawn.send([(stream, END, "")], answers=True)
    drawn.frames = []
    before = drawn.find()
    assert len(before.requests) == 2
    assert before.connection.tolist() == [*range(len(before.endpoints))]
    drawn.tell(99 << 40, 9, [(1, WHOLE, "")], sent=False)
    assert spans(drawn.find()) == spans(before)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("streams", [1, 8, 64])
def test_simulated_streams_are_found_as_they_were(seed, streams):
    """Sends are gathered, receives have what lies there, answers come in any order."""
    drawn, rng = Connection(), random.Random(seed)  # noqa: S311 - no secrets
    truth, number = {}, 1
    waiting, lying, working = [], [], []  # to be sent, sent but not read, not answered yet
    while len(truth) < 150 or lying or working or waiting:
        what = rng.random()
        under_way = len(waiting) + len(lying) + len(working)
        if what < 0.35 and number < 300 and under_way < streams:
            waiting.append(number)
            number += 2
        elif waiting and what < 0.5:
            frames = [(s, WHOLE, "") for s in waiting]
            came, _ = drawn.send(frames, wait=rng.choice((10, 50_000)))
            truth |= {s: [came] for s in waiting}
            lying += waiting
            waiting = []
        elif lying and what < 0.7:
            got = drawn.receive([(s, WHOLE, f"GET /{s % 3}") for s in lying])
            for stream in lying:
                truth[stream].append(got)
            working += lying
            lying = []
        elif working and what < 0.95:
            rng.shuffle(working)
            many = rng.randrange(1, len(working) + 1)
            done, working = working[:many], working[many:]
            _, sent = drawn.send([(s, WHOLE, "") for s in done], answers=True)
            for stream in done:
                truth[stream].append(sent)
            drawn.receive([(s, WHOLE, "") for s in done], answers=True)
        elif number >= 300 and not (waiting or lying or working):
            break
    found = drawn.find()
    assert spans(found) == [((s + 1) // 2, *times) for s, times in sorted(truth.items())]
    assert {*found.requests.boundary.tolist()} == {Certainty.CERTAIN}
    names = [found.requests.strings[c] for c in found.requests.message.tolist()]
    stream = found.requests.turn * 2 - 1
    assert names == [f"GET /{s % 3}" for s in stream.tolist()]
