"""Requests beside gaps: those that avoid them are as they were, the rest is counted."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "oracle"))
import gapped_turns
from test_endpoints import collect, ends, no_workers
from test_requesting import CLIENT, NORMAL, SERVER, replayed, talk
from test_turns import make_activity, make_endpoints

from critpath.executions.specification import parse_specification
from critpath.model import Kind
from critpath.model.gaps import BASE, make_gaps
from critpath.model.requests import Act
from critpath.requests import turns as native
from critpath.requests.find import find_requests
from critpath.requests.implicit import find_slices
from critpath.requests.left_out import find_chances
from critpath.requests.stretches import Stretches, part_activity
from critpath.text.notes import slices_left_out, word

ROOT = Path(__file__).resolve().parents[3]
HOSTS = "cpu-1-8", "cpu-6-8", "lock-4-8", "outer-3-8", "select1-2-8", "sleep-5-8"


def gaps_at(*times):
    return make_gaps([(begin, begin, end, end, BASE, 0, 0) for begin, end in times])


def find(events, gaps, text="requests"):
    switches = [(end, 0, Kind.SWITCH, [0, 7, 0, 0, 7]) for end in gaps.end.tolist()]
    events = sorted([*events, *switches], key=lambda event: event[0])
    both = replayed(events)
    both = replace(both, events=replace(both.events, gaps=gaps), sockets=collect(events, gaps=gaps))
    return find_requests(both, parse_specification(text), NORMAL)


def spans(executions):
    return list(zip(executions.begin.tolist(), executions.end.tolist(), strict=True))


def left_out(events):
    [found] = [of.requests.left_out for of in events.environment if of.requests is not None]
    return found


def test_one_request_between_two_gaps_is_found():
    """Whatever the connection did before, and does after."""
    executions, events, _ = find(talk(), gaps_at((160, 195), (255, 290)))
    assert spans(executions) == [(100, 150), (200, 250), (300, 350)]
    assert not left_out(events)


@pytest.mark.parametrize(
    ("gap", "lasts"),
    [
        ((195, 205), 45),  # it had arrived: it goes on for so long
        ((205, 215), 35),  # it was received meanwhile
        ((220, 230), 20),  # twice 20 are seen of it, of one request
        ((245, 255), 45),  # and may go on
        ((195, 255), 0),  # nothing is seen of it
    ],
)
def test_what_a_gap_cuts_is_counted_once(gap, lasts):
    executions, events, _ = find(talk(), gaps_at(gap))
    assert spans(executions) == [(100, 150), (300, 350)]
    if not lasts:
        assert not left_out(events)
        return
    found = left_out(events)[":80"]
    assert (found["requests"], found["longest_ns"], found["whole"]) == (1, lasts, 2)
    said = word(executions.notes[1])
    assert said.startswith(
        "left out, as gaps cut them or hide what else was asked: 1 of :80 (1 cut"
    )
    assert said.endswith("long ones more often than short ones")


def test_a_connection_that_was_opened_in_a_gap():
    """That it was accepted is not seen; who else was shows that the port is served."""
    opened = 60
    other = SERVER + 1
    known = [SERVER, *ends("4", "10.0.0.1:80", "10.0.0.2:4000"), 6, 3, 1]
    of = [other, *ends("4", "10.0.0.1:80", "10.0.0.2:5000"), 6, 3, 1]
    named = [other, *ends("4", "10.0.0.1:80", "10.0.0.2:5000")]
    events = [
        *talk()[:1],
        (2, 0, Kind.SOCKET_STATE, known),
        (opened, 0, Kind.SOCKET_STATE, of),
        (200, 0, Kind.SOCKET_ARRIVAL, [other, 2, 6]),
        (205, 0, Kind.SOCKET_OF, named),
        (210, 0, Kind.SOCKET_RECEIVE, [other, 2, 6, 100, 0]),
        (250, 0, Kind.SOCKET_SEND, [other, 2, 6, 100, 0]),
    ]
    executions, _, _ = find(events, gaps_at((50, 190)))
    assert spans(executions) == [(200, 250)]
    assert executions.id == ("10.0.0.2:5000>80#1",)


@pytest.mark.parametrize("late", [5, 15, 60])
def test_a_socket_that_another_connection_has_after_a_gap(late):
    """Closed and opened in the gap, at one address of the kernel: ports tell, when they come."""
    named = [SERVER, *ends("4", "10.0.0.1:80", "10.0.0.2:5000")]
    events = [
        *talk(times=2),
        (500, 0, Kind.SOCKET_ARRIVAL, [SERVER, 2, 6]),
        (510, 0, Kind.SOCKET_RECEIVE, [SERVER, 2, 6, 100, 0]),
        (550, 0, Kind.SOCKET_SEND, [SERVER, 2, 6, 100, 0]),
        (500 + late, 0, Kind.SOCKET_OF, named),
    ]
    executions, _, _ = find(events, gaps_at((400, 450)))
    assert spans(executions) == [(100, 150), (200, 250), (500, 550)]
    assert executions.id == (*(f"10.0.0.2:4000>80#{n}" for n in (1, 2)), "10.0.0.2:5000>80#1")


def test_requests_in_pieces_may_have_begun_in_the_gap_before():
    """Where those of the service come in pieces, the one next to a gap is not trusted."""
    events = talk(times=0)
    for at in range(1000, 30_000, 1000):
        events += [
            (at, 0, Kind.SOCKET_ARRIVAL, [SERVER, 2, 6]),
            (at + 10, 0, Kind.SOCKET_RECEIVE, [SERVER, 2, 6, 100, 0]),
            (at + 100, 0, Kind.SOCKET_ARRIVAL, [SERVER, 2, 6]),
            (at + 110, 0, Kind.SOCKET_RECEIVE, [SERVER, 2, 6, 100, 0]),
            (at + 150, 0, Kind.SOCKET_SEND, [SERVER, 2, 6, 100, 0]),
        ]
    executions, events_, _ = find(events, gaps_at((5500, 6050)))
    assert (6100, 6150) not in spans(executions)
    assert left_out(events_)[":80"]["requests"] == 1


def test_who_is_alone_only_since_a_gap_is_not_trusted():
    """A loop answers one that began before: what it asked meanwhile may be for that one."""
    other, peer = SERVER + 1, CLIENT + 5
    events = talk(times=0)
    events.append(
        (3, 0, Kind.SOCKET_STATE, [other, *ends("4", "10.0.0.1:80", "10.0.0.2:5000"), 6, 3, 1])
    )
    events.append(
        (4, 0, Kind.SOCKET_STATE, [peer, *ends("4", "10.0.0.1:6000", "10.0.0.9:99"), 6, 7, 2])
    )

    def turn(at, socket, takes):
        return [
            (at, 0, Kind.SOCKET_ARRIVAL, [socket, 2, 6]),
            (at + 1, 0, Kind.SOCKET_RECEIVE, [socket, 2, 6, 100, 0]),
            (at + takes, 0, Kind.SOCKET_SEND, [socket, 2, 6, 100, 0]),
        ]

    def ask(at):
        return [
            (at, 0, Kind.SOCKET_SEND, [peer, 2, 6, 10, 0]),
            (at + 5, 0, Kind.SOCKET_RECEIVE, [peer, 2, 6, 10, 0]),
        ]

    for at in range(100, 1000, 200):
        events += [*turn(at, SERVER, 100), *turn(at + 20, other, 50), *ask(at + 3), *ask(at + 30)]
    events.sort(key=lambda e: e[0])
    whole = spans(find(events, gaps_at())[0])
    gap = (510, 515)  # the request of 500 is open
    executions, told, _ = find(events, gaps_at(gap))
    assert (500, 600) in whole
    assert spans(executions) == [each for each in whole if each not in {(500, 600), (520, 570)}]
    found = left_out(told)[":80"]
    assert (found["requests"], found["unsure"]) == (1, 1)


@pytest.mark.parametrize("seed", range(20))
def test_those_that_are_seen_whole_stand_for_all(seed):
    """Weighed by their chance, as many as begin between gaps, and they last as long on average."""
    rng = np.random.default_rng(seed)
    begin = np.sort(rng.integers(0, 10**9, 40_000))
    took = (rng.exponential(200_000, len(begin)) + 1000).astype(np.int64)
    took = np.minimum(took, 1_500_000)  # the longest windows are longer
    edges = np.cumsum(rng.integers(500_000, 3_000_000, 700))
    gaps = gaps_at(*edges.reshape(-1, 2).tolist())
    stretches = Stretches(gaps, 1)
    activity = make_activity([(0, Act.ARRIVAL, 1, 0, 0)])
    parts = part_activity(activity, make_endpoints([-1], [1]), stretches)
    none = np.zeros(len(begin), np.int64)
    whole = ~gaps.overlap(none, begin, begin + took) & (begin + took < 10**9)
    recorded = ~gaps.overlap(none, begin, begin + 1)
    chance = find_chances(parts, none, took, (0, 10**9))
    weight = 1 / chance[whole]
    assert abs(weight.sum() / recorded.sum() - 1) < 0.03
    mean = (took[whole] * weight).sum() / weight.sum()
    assert abs(mean / took.mean() - 1) < 0.05
    assert took[whole].mean() < 0.95 * took.mean()  # without weights they seem shorter


@pytest.mark.parametrize("seed", range(60))
def test_what_gaps_cut_is_what_the_plain_twin_says(seed):
    rng = np.random.default_rng(seed)
    acts = [Act.ARRIVAL, Act.RECEIVE, Act.SEND, Act.ARRIVAL, Act.RECEIVE, Act.SEND]
    acts += [Act.OPEN, Act.CLOSE]
    times = np.sort(rng.choice(5000, 80, replace=False))
    rows = [
        (int(t), acts[rng.integers(len(acts))], int(rng.integers(1, 4)), int(rng.integers(3)), 10)
        for t in times
    ]
    marks = np.sort(rng.choice(5000, 2 * int(rng.integers(1, 5)), replace=False)).tolist()
    spans = list(zip(marks[::2], marks[1::2], strict=True))
    gaps = gaps_at(*spans)
    rows = [row for row in rows if not any(b <= row[0] < e for b, e in spans)]
    activity, of = make_activity(rows), make_endpoints([-1] * 3, [1, 1, 0])
    parts = part_activity(activity, of, Stretches(gaps, 1))
    seen = native.cut_turns(activity, of, 1, parts)
    every, cut, _ = native.add_partial(seen, parts)
    edges = [None, *marks, None]
    stretches = list(zip(edges[::2], edges[1::2], strict=True))
    columns = (native.BEGIN, native.RECEIVED, native.END, native.TID)
    for at in range(2):
        mine = np.flatnonzero(cut & (every.column(native.ENDPOINT) == at))
        found = sorted(zip(*(every.column(c)[mine].tolist() for c in columns), strict=True))
        whole = seen.column(native.ENDPOINT) == at
        turns = zip(
            seen.column(native.BEGIN)[whole].tolist(),
            seen.column(native.END)[whole].tolist(),
            strict=True,
        )
        acts_of = [(t, act, tid) for t, act, tid, place, _ in rows if place == at]
        assert found == gapped_turns.cut(acts_of, stretches, list(turns))


# Recorded servers.


@pytest.fixture
def cut(load):
    return load("evaluation/recording/gaps.py")


def test_a_request_that_avoids_all_gaps_is_as_in_the_whole_recording(cut, unpack):
    """Of one server: owner, path and all."""
    place = unpack(ROOT / "fixtures/requests/memcached.tar.xz") / "memcached"
    held, _, differ = cut.judge(place, 60)
    assert held.same == held.found > 0.9 * held.clear, differ
    assert not held.beyond


def test_so_is_it_beside_others_in_a_loop(cut, unpack):
    """Few requests in few loops: what is usual for them is known less well between gaps."""
    place = unpack(ROOT / "fixtures/hosts/outer-3-8.tar.xz") / "outer-3-8" / "recording"
    held, _, differ = cut.judge(place, 40)
    assert held.same > 0.85 * held.found, differ
    assert held.found > 0.6 * held.clear
    assert not held.beyond


def test_an_answer_of_fewer_bytes_than_any_other_may_go_on_in_a_gap(cut, unpack):
    """Its second piece came 5.3 ms later, as that of no other: the gap begins 5.0 ms later."""
    place = unpack(ROOT / "fixtures/hosts/cpu-6-8.tar.xz") / "cpu-6-8" / "recording"
    gaps = gaps_at((2466105640159, 2466110882731))
    of = cut.Cut(place)
    held = cut.hold(cut.rows_of(of.find(gaps_at())), cut.rows_of(of.find(gaps)), gaps)
    assert (held.beyond, held.found > 0.8 * held.clear) == (0, True)


def test_what_was_asked_is_seen_between_gaps_and_no_request(cut, unpack):
    place = unpack(ROOT / "fixtures/hosts/outer-3-8.tar.xz") / "outer-3-8" / "recording"
    of = cut.Cut(place)
    begin, end = of.span
    found = of.find(gaps_at((begin, begin + 246174953), (begin + 321547624, end)))
    assert len(found.executions) == 0


@pytest.mark.deep
@pytest.mark.parametrize("name", ["memcached", *HOSTS])
def test_ten_thousand_gaps(cut, unpack, name):
    archive = (
        ROOT / "fixtures" / ("requests" if name == "memcached" else "hosts") / f"{name}.tar.xz"
    )
    place = unpack(archive) / name
    alone = name == "memcached"
    held, count, differ = cut.judge(place if alone else place / "recording", 1429)
    assert count >= 1429
    assert held.same >= (1.0 if alone else 0.85) * held.found, differ
    assert not held.beyond


def test_slices_that_gaps_cut_are_counted_by_kind():
    """With how long one is known to last: to the gap."""
    cut = {"worker-#": (9, 3_100_000), "io": (1, 500)}
    assert slices_left_out(cut, 2, gaps=True) == (
        (
            "10 slices cut by gaps or the end of the recording, long ones more often: "
            "9 of `worker-#` (the longest 3.10 ms or more), 1 of `io` (500 ns or more)"
        ),
        "2 slices left out, as events were lost meanwhile",
    )
    rows = [(0, Act.CREATE, 1, -1, 2), (50, Act.EXIT, 2, -1, 0), (60, Act.CREATE, 1, -1, 3)]
    found = find_slices(make_activity(rows), no_workers(), "fork")
    assert found.incomplete.tolist() == [[0, 3, 60]]
