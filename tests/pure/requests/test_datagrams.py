"""Datagrams of UDP: each is a request if it is answered, and whose an answer is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_endpoints import collect, no_workers

from critpath.model import Kind
from critpath.requests.turns import WHYS, find_turns

SERVER, ONE, OTHER = 3 << 40, 4 << 40, 5 << 40
SERVING, ASKING, SECOND, ELSEWHERE = 7, 8, 9, 0  # threads; 0: what no thread of this machine does
SOCKETS = {ASKING: ONE, SECOND: OTHER}


class Drawing:
    """Events as they come, one every 10 ns: who does it has the cpu then."""

    def __init__(self):
        self.events = [(1, 0, Kind.SWITCH, [0, 0, 0, 0, 0])]

    def put(self, tid, kind, fields):
        at = 10 * len(self.events)
        self.events.append((at, 0, Kind.SWITCH, [0, 0, 1, 0, tid]))
        self.events.append((at + 10, 0, kind, fields))
        return at + 10

    def ask(self, tid):
        """Send a datagram to the server, from here or from elsewhere."""
        at = self.put(tid, Kind.SOCKET_ARRIVAL, [SERVER, 2, 17])
        if tid:
            self.put(tid, Kind.SOCKET_SEND, [SOCKETS[tid], 2, 17, 30, 0])
        return at

    def receive(self, tid=SERVING):
        self.put(tid, Kind.SOCKET_RECEIVE, [SERVER, 2, 17, 30, 0])

    def answer(self, to, tid=SERVING):
        if to:
            self.put(tid, Kind.SOCKET_ARRIVAL, [SOCKETS[to], 2, 17])
        return self.put(tid, Kind.SOCKET_SEND, [SERVER, 2, 17, 60, 0])

    def find(self):
        found = find_turns(collect(self.events), no_workers(), lambda _: "dns", end=1 << 40)
        table = found.requests
        whys = [WHYS[code] for code in table.why.tolist()]
        spans = zip(table.begin_ns.tolist(), table.end_ns.tolist(), strict=True)
        return [*spans], whys, found


@pytest.mark.parametrize("who", [ASKING, ELSEWHERE])
def test_each_datagram_and_its_answer_are_a_request(who):
    drawn, expected = Drawing(), []
    for _ in range(3):
        begin = drawn.ask(who)
        drawn.receive()
        expected.append((begin, drawn.answer(who)))
    spans, whys, found = drawn.find()
    assert spans == expected
    assert {*whys} == {""}
    assert found.account.datagrams == 0


def test_whose_an_answer_is_shows_the_peer_it_goes_to():
    drawn = Drawing()
    first, second = drawn.ask(ASKING), drawn.ask(SECOND)
    drawn.receive()
    drawn.receive()
    overtakes = drawn.answer(SECOND)
    spans, whys, _ = drawn.find()
    assert spans == [(second, overtakes)]
    late = drawn.answer(ASKING)
    spans, whys, _ = drawn.find()
    assert spans == [(first, late), (second, overtakes)]
    assert {*whys} == {""}


def test_answers_to_elsewhere_are_in_doubt_where_several_could_be_meant():
    drawn = Drawing()
    drawn.ask(ELSEWHERE)
    drawn.ask(ELSEWHERE)
    drawn.receive()
    drawn.receive()
    drawn.answer(ELSEWHERE)
    drawn.answer(ELSEWHERE)
    spans, whys, found = drawn.find()
    assert len(spans) == 2
    assert whys == ["one of several datagrams", ""]
    assert found.account.datagrams == 1


def test_who_received_it_tells_where_threads_share_a_socket():
    drawn = Drawing()
    first, second = drawn.ask(ELSEWHERE), drawn.ask(ELSEWHERE)
    drawn.receive(SERVING)
    drawn.receive(SERVING + 20)
    fast = drawn.answer(ELSEWHERE, SERVING + 20)
    slow = drawn.answer(ELSEWHERE, SERVING)
    spans, whys, _ = drawn.find()
    assert spans == [(first, slow), (second, fast)]
    assert {*whys} == {""}


def test_what_is_not_answered_is_no_request():
    drawn = Drawing()
    drawn.ask(ASKING)
    drawn.receive()
    spans, _, found = drawn.find()
    assert (spans, found.account.incomplete) == ([], 1)
