"""In which containers others are: who had the cpu, and who is waited for."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "timeline"))
from building import build

from critpath.graph.execution_graph import critical_paths
from critpath.graph.kin import tell_places
from critpath.model import BlockList, Executions, Kind, PathSet, ReplayedRecording, State
from critpath.model.containers import Places
from critpath.timeline.replay import replay

MS = 1_000_000
WAITER, RIVAL, THREAD = 10, 30, 31
WEB, HOG = "pod shop/web-*", "pod batch/loader"


def told_places(moves):
    """A thread waits for a cpu that a thread of another process has, and then for that one."""
    rows = [
        (1, 0, Kind.STATEDUMP, (THREAD, 5, RIVAL, 1, "")),
        (100, 0, Kind.SWITCH, (0, 0, WAITER)),
        (10 * MS, 0, Kind.SWITCH, (WAITER, 0, THREAD)),
        (50 * MS, 0, Kind.SWITCH, (THREAD, 0, WAITER)),
        (60 * MS, 0, Kind.SWITCH, (WAITER, 1, THREAD)),
        (80 * MS, 0, Kind.WAKEUP, (WAITER, 0)),
        (90 * MS, 0, Kind.SWITCH, (THREAD, 0, WAITER)),
        (95 * MS, 0, Kind.SWITCH, (WAITER, 0, 0)),
    ]
    events = build(rows)
    timelines = replay(events)
    worker = np.flatnonzero(timelines.workers.tid == WAITER)
    begin, end = np.array([100]), np.array([95 * MS])
    paths = critical_paths(timelines, worker, begin, end)
    of = Executions(("one",), begin, end, np.array([WAITER]), np.array([0]), ("x",), ("",))
    made = PathSet(of, paths, np.zeros(1, np.int64), ("here",), "thread", (), np.zeros(1, np.bool_))
    replayed = ReplayedRecording(
        *(events.without_rows(), BlockList(), timelines.workers, timelines.processors),
        *(0, (), (), ()),
        places=Places(moves),
    )
    told = tell_places(made, replayed).paths
    states = [State(code) for code in told.state.tolist()]
    details = [told.details[code].place for code in told.detail.tolist()]
    return [*zip(states, told.tid.tolist(), details, strict=True)]


def test_who_had_the_cpu_and_who_is_waited_for_say_where_they_are():
    told = told_places([(0, WAITER, 0, WEB), (0, RIVAL, 0, HOG)])
    waits = [place for state, _, place in told if state == State.WAIT_CPU]
    others = [place for state, tid, place in told if tid == THREAD and state != State.WAIT_CPU]
    own = [place for state, tid, place in told if tid == WAITER and state != State.WAIT_CPU]
    assert {*waits} == {HOG}
    assert {*others} == {HOG}
    assert {*own} == {""}


@pytest.mark.parametrize(
    "moves",
    [
        [],
        [(0, WAITER, 0, WEB), (0, RIVAL, 0, WEB)],  # as the execution's own
        [(0, WAITER, 0, WEB)],
        [(0, RIVAL, 0, WEB), (0, WAITER, 0, ""), (0, WAITER, 70 * MS, WEB)],  # by its end
    ],
)
def test_of_the_same_place_nothing_is_said(moves):
    assert {place for _, _, place in told_places(moves)} == {""}
