"""The drawn graphs of the specification, and random ones against the plain twin."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "oracle"))
import itertools

from drawing import graph_of, intervals_of, links_of, merged, path_of
from walk import walk

from critpath.graph.execution_graph import walk_paths
from critpath.model import State

# name: timelines, links, expected path of worker 0 over its whole life
DRAWN = {
    "basic": ("0: 0 R 1", "", "0-1 R0"),
    # A timer's link comes from no thread: the replay has made the wait a WAIT_TIMER.
    "wakeup_self": ("0: 0 R 1 R 2 TIMER 3 R 4", "", "0-2 R0, 2-3 TIMER0, 3-4 R0"),
    "wakeup_missing": ("0: 0 R 2 B 4 R 6", "", "0-2 R0, 2-4 B0, 4-6 R0"),
    "wakeup_unknown": (
        "0: 0 R 2 B 4 R 6",
        "1@3->0@4 net",
        "0-2 R0, 2-3 UNKNOWN1, 3-4 NET0, 4-6 R0",
    ),
    "wakeup_new": (
        "0: 0 R 2 R 4 B 6 R 8; 1: 3 R 6",
        "0@2->1@3 create, 1@6->0@6",
        "0-4 R0, 4-6 R1, 6-8 R0",
    ),
    "opened": ("0: 0 R 3 B 6 R 9; 1: 0 R 6 R 9", "1@6->0@6", "0-3 R0, 3-6 R1, 6-9 R0"),
    "opened_delay": ("0: 0 R 3 B 6 R 9; 1: 0 R 2 R 5", "1@2->0@6", "0-3 R0, 3-6 LINK0, 6-9 R0"),
    "mutual": (
        "0: 0 R 1 R 2 R 3 B 4 R 5; 1: 0 R 1 B 2 R 3 R 4 R 5",
        "0@2->1@2, 1@4->0@4",
        "0-3 R0, 3-4 R1, 4-5 R0",
    ),
    "embedded": (
        "0: 0 R 2 R 4 R 6 B 8 B 10 R 12; 1: 4 R 8; 2: 2 R 10",
        "0@2->2@2 create, 0@4->1@4 create, 1@8->0@8, 2@10->0@10",
        "0-6 R0, 6-8 R1, 8-10 R2, 10-12 R0",
    ),
    "interleave": (
        "0: 0 R 2 R 4 R 6 B 8 B 10 R 12; 1: 2 R 8; 2: 4 R 10",
        "0@2->1@2 create, 0@4->2@4 create, 1@8->0@8, 2@10->0@10",
        "0-6 R0, 6-8 R1, 8-10 R2, 10-12 R0",
    ),
    "nested": (
        "0: 0 R 1 B 6 R 7; 1: 1 R 2 B 5 R 6; 2: 2 R 3 B 4 R 5; 3: 3 R 4",
        "0@1->1 create, 1@2->2 create, 2@3->3 create, 3@4->2@4, 2@5->1@5, 1@6->0@6",
        "0-1 R0, 1-2 R1, 2-3 R2, 3-4 R3, 4-5 R2, 5-6 R1, 6-7 R0",
    ),
    # A wait with two time-outs, which 1 ends, and which has worked all the time.
    "held": (
        "0: 0 R 1 TIMER 5 R 6 TIMER 10 R 11 B 12 R 13; 1: 0 R 13",
        "1@5->0@5 hold, 1@10->0@10 hold, 1@12->0@12",
        "0-1 R0, 1-5 R1, 5-6 R0, 6-10 R1, 10-11 R0, 11-12 R1, 12-13 R0",
    ),
    # Asleep until the timer, although what it wants is free from 3 on.
    "polled": (
        "0: 0 R 1 TIMER 5 R 6; 1: 0 R 3 B 6",
        "1@3->0@5 hold",
        "0-1 R0, 1-3 R1, 3-5 TIMER0, 5-6 R0",
    ),
    "net1": (
        "0: 0 R 1 B 11 R 12; 1: 3 R 4 R 5; 2: 6 R 7 R 8; 3: 9 R 10 R 11",
        "1@4->2@7 net, 2@8->3@10 net, 3@11->0@11",
        "0-1 R0, 1-3 UNKNOWN1, 3-4 R1, 4-7 NET2, 7-8 R2, 8-10 NET3, 10-11 R3, 11-12 R0",
    ),
}

# server threads 100, 101 are workers 3, 4; client 200, 201 workers 0, 1; irq thread 50 worker 2
TWO_HOSTS = (
    (
        "1: 10 P 15 R 60; 0: 10 R 15 NET 70 P 75; 2: 55 P 60 R 75; 4: 5 R 40 P 55; "
        "3: 5 NET 35 P 40 R 55"
    ),
    "0@13->3@35 net, 3@45->0@70 net",
    "10-15 R0, 15-35 NET3, 35-40 P3, 40-45 R3, 45-70 NET0, 70-75 P0",
)


def native(graph, subject, lo, hi, arrivals=(), own=-1):
    came = np.array(arrivals, np.int64).reshape(-1, 3)
    _, begin, end, worker, _, state = walk_paths(
        *(graph, np.array([subject]), np.array([lo]), np.array([hi])),
        *(came, np.array([own])),
    )
    rows = zip(begin.tolist(), end.tolist(), worker.tolist(), state.tolist(), strict=True)
    return [(b, e, w, State(s)) for b, e, w, s in rows]


@pytest.mark.parametrize("name", [*DRAWN, "two_hosts"])
def test_drawn_graph_has_the_expected_path(name):
    timelines, arrows, expected = DRAWN.get(name, TWO_HOSTS)
    intervals = intervals_of(timelines)
    links, births = links_of(arrows)
    lo, hi = intervals[0][0][0], intervals[0][-1][1]
    graph = graph_of(intervals, links, births)
    assert merged(native(graph, 0, lo, hi)) == path_of(expected)
    assert merged(walk(intervals, links, births, 0, lo, hi)) == path_of(expected)


# The loop 0 is woken by clients 1 and 2, which sleep between; 1 asks over endpoint 7, 2 over 8.
LOOP = "0: 0 R 2 B 6 R 7 B 10 R 12; 1: 0 TIMER 6 R 7 B 12; 2: 0 TIMER 10 R 11"
WAKES = "1@6->0@6, 2@10->0@10"
ARRIVALS = {
    "all is followed where nothing is known of it": (
        (),
        7,
        "0-2 R0, 2-6 TIMER1, 6-7 R0, 7-10 TIMER2, 10-12 R0",
    ),
    "what another asked is not": (
        ((0, 10, 8),),
        7,
        "0-2 R0, 2-6 TIMER1, 6-7 R0, 7-10 SHARED0, 10-12 R0",
    ),
    "more of what was asked is": (
        ((0, 6, 7), (0, 10, 8)),
        7,
        "0-2 R0, 2-6 TIMER1, 6-7 R0, 7-10 SHARED0, 10-12 R0",
    ),
    "both at one moment": (
        ((0, 6, 7), (0, 6, 8), (0, 10, 8)),
        7,
        "0-2 R0, 2-6 TIMER1, 6-7 R0, 7-10 SHARED0, 10-12 R0",
    ),
    "of nobody known": (
        ((0, 6, 7), (0, 10, 8)),
        -1,
        "0-2 R0, 2-6 SHARED0, 6-7 R0, 7-10 SHARED0, 10-12 R0",
    ),
    "at other times": (
        ((0, 5, 7), (0, 9, 8), (1, 10, 8)),
        -1,
        "0-2 R0, 2-6 TIMER1, 6-7 R0, 7-10 TIMER2, 10-12 R0",
    ),
}


@pytest.mark.parametrize("name", ARRIVALS)
def test_what_others_ask_a_loop_is_not_followed_to_them(name):
    arrivals, own, expected = ARRIVALS[name]
    intervals, (links, births) = intervals_of(LOOP), links_of(WAKES)
    graph = graph_of(intervals, links, births)
    assert merged(native(graph, 0, 0, 12, arrivals, own)) == path_of(expected)
    assert merged(walk(intervals, links, births, 0, 0, 12, arrivals, own)) == path_of(expected)


def test_who_waits_for_a_loop_has_asked_it():
    """0 asks the loop 1, which waits for that and for 2, and answers 0 at 8."""
    intervals = intervals_of("0: 0 R 4 B 8 R 9; 1: 0 R 1 B 4 R 5 B 7 R 8; 2: 0 TIMER 7 R 9")
    links, births = links_of("0@4->1@4, 2@7->1@7, 1@8->0@8")
    graph, arrivals = graph_of(intervals, links, births), ((1, 4, 7), (1, 7, 8))
    expected = path_of("0-4 R0, 4-5 R1, 5-7 SHARED1, 7-8 R1, 8-9 R0")
    assert merged(native(graph, 0, 0, 9, arrivals)) == expected
    assert merged(walk(intervals, links, births, 0, 0, 9, arrivals)) == expected


STATES = st.sampled_from([State.RUN, State.WAIT_CPU, State.WAIT_UNEXPLAINED, State.WAIT_TASK])


@st.composite
def graphs(draw):
    workers = draw(st.integers(1, 5))
    intervals = {}
    for worker in range(workers):
        times = sorted(draw(st.sets(st.integers(0, 20), min_size=0, max_size=8)))
        rows = [
            (a, b, draw(STATES)) for a, b in itertools.pairwise(times) if draw(st.integers(0, 9))
        ]
        intervals[worker] = rows
    moments = st.integers(0, 20)
    links = []
    for _ in range(draw(st.integers(0, 10))):
        target = draw(st.integers(0, workers - 1))
        ends = [b for _, b, _ in intervals[target]]
        time = draw(st.sampled_from(ends)) if ends and draw(st.booleans()) else draw(moments)
        sent = min(draw(moments), time)
        links.append(
            (draw(st.integers(0, workers - 1)), sent, target, time, draw(st.integers(0, 3)))
        )
    # One link per target, moment and kind: between equals the order is not defined.
    links = list({k[2:]: k for k in links}.values())
    births = {
        child: (draw(st.integers(0, workers - 1)), draw(moments))
        for child in range(workers)
        if draw(st.booleans())
    }
    somebody = st.tuples(st.integers(0, workers - 1), moments, st.integers(0, 1))
    return intervals, links, births, workers, draw(st.lists(somebody, max_size=6, unique=True))


@given(graphs(), st.integers(0, 20), st.integers(0, 20))
def test_native_walk_equals_its_plain_twin_and_tiles_the_window(drawn, a, b):
    intervals, links, births, workers, arrivals = drawn
    lo, hi = sorted((a, b))
    graph = graph_of(intervals, links, births, workers)
    got = native(graph, 0, lo, hi)
    assert got == walk(intervals, links, births, 0, lo, hi)
    told = native(graph, 0, lo, hi, arrivals, 1)
    assert told == walk(intervals, links, births, 0, lo, hi, arrivals, 1)
    assert sum(e - s for s, e, *_ in got) == hi - lo
    assert all(x[1] == y[0] for x, y in itertools.pairwise(got))
    assert not got or (got[0][0], got[-1][1]) == (lo, hi)


def test_received_while_it_ran():
    """Bytes are looked for past wakes, also where both are links: as where a row has its wake."""
    intervals = {0: [(2, 4, State.RUN), (7, 8, State.RUN)], 1: []}
    links = [(0, 0, 0, 0, 0), (1, 0, 0, 3, 3), (0, 0, 0, 4, 0)]
    got = native(graph_of(intervals, links, {}, 2), 0, 0, 4)
    assert got == walk(intervals, links, {}, 0, 0, 4)


# Walks that came back to where they were without going back in time, found at random.
CYCLES = {
    # Rewinding to a thread's own wake.
    "own_wake": ("0: 2 P 3", "0@3->0@3", 1, 3, "1-2 UNKNOWN0, 2-3 P0"),
    # Created by the thread that waits for it.
    "creator": ("0:; 1: 9 B 15", "0@15->1@15 net, 1@15->0@15 create", 3, 15, None),
    "creator_rewound": ("0:; 1: 4 R 5", "0@5->1@5, 1@5->0@5 create", 0, 6, None),
    # Two that wake each other at one moment while neither waits.
    "each_other": ("0: 2 R 3; 1: 2 R 3", "0@3->1@3, 1@3->0@3", 0, 3, None),
}


@pytest.mark.parametrize("name", CYCLES)
def test_a_cycle_in_no_time_ends(name):
    timelines, arrows, lo, hi, expected = CYCLES[name]
    intervals = intervals_of(timelines)
    links, births = links_of(arrows)
    got = native(graph_of(intervals, links, births), 0, lo, hi)
    assert got == walk(intervals, links, births, 0, lo, hi)
    assert (got[0][0], got[-1][1]) == (lo, hi)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(got))
    if expected is not None:
        assert got == path_of(expected)
