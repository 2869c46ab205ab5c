"""Who is named for a wait for a cpu: whoever ran instead, or nobody."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from detailing import texts_of

from critpath.model.details import word_detail

sys.path.insert(0, str(Path(__file__).parents[1] / "timeline"))
from building import build

from critpath.graph.execution_graph import critical_paths
from critpath.model import Kind, State
from critpath.timeline.replay import replay

MS = 1_000_000


def switch(time, leaving, coming, cpu=0):
    """What leaves a cpu could have gone on."""
    return (round(time * MS), cpu, Kind.SWITCH, (leaving, 0, coming))


def named(*others, end=110):
    """Thread 1 leaves cpu 0 at 10 ms and has it again at 100 ms; who ran in between?"""
    rows = [(0, 0, Kind.SWITCH, (0, 0, 1)), *others, switch(end, 1, 0)]
    timelines = replay(build(rows))
    worker = np.flatnonzero(timelines.workers.tid == 1)
    window = np.array([0]), np.array([end * MS])
    paths = critical_paths(timelines, worker, *window)
    waits = np.flatnonzero(paths.state == State.WAIT_CPU)
    return [texts_of(paths)[row] for row in waits]


def test_who_held_the_cpu_is_named():
    assert named(switch(10, 1, 2), switch(100, 2, 1)) == ["t2 (2)"]


def test_nobody_held_it():
    assert named(switch(10, 1, 0), switch(100, 0, 1)) == ["idle"]


def test_under_a_quota_others_run_in_the_meantime():
    others = switch(10, 1, 2), switch(60, 2, 0), switch(80, 0, 3), switch(100, 3, 1)
    assert named(*others) == ["idle"]


@pytest.mark.parametrize(
    ("idle", "who"),
    [(1.9, "t2 (2)"), (9.1, "idle")],
    ids=["a late start", "held back"],
)
def test_a_short_time_idle_proves_nothing(idle, who):
    others = switch(10, 1, 2), switch(100 - idle, 2, 0), switch(100, 0, 1)
    assert named(*others) == [who]


def test_a_crumb_of_a_long_wait_proves_nothing():
    others = switch(10, 1, 2), switch(96, 2, 0), switch(100, 0, 1)
    assert named(*others) == ["t2 (2)"]


def taken(turns, rounds=400):
    """Thread 1 waits many times while others have the cpu in turns (ms); who had what share?"""
    rows, time = [(0, 0, Kind.SWITCH, (0, 0, 1))], 0.0
    for _ in range(rounds):
        time += 1.0317
        leaving = 1
        for who, length in turns:
            rows.append(switch(time, leaving, who))
            leaving, time = who, time + length
        rows.append(switch(time, leaving, 1))
    timelines = replay(build([*rows, switch(time + 1, 1, 0)]))
    worker = np.flatnonzero(timelines.workers.tid == 1)
    window = np.array([0]), np.array([round((time + 1) * MS)])
    paths = critical_paths(timelines, worker, *window)
    waits = np.flatnonzero(paths.state == State.WAIT_CPU)
    whole = paths.duration[waits].sum()
    return {
        word_detail(paths.details[d]): paths.duration[waits][paths.detail[waits] == d].sum() / whole
        for d in np.unique(paths.detail[waits])
    }


def test_over_many_waits_each_has_the_share_that_it_had():
    shares = taken([(2, 4), (3, 3), (4, 3)])
    assert shares == pytest.approx({"t2 (2)": 0.4, "t3 (3)": 0.3, "t4 (4)": 0.3}, abs=0.08)


def test_one_among_many_has_its_share_too():
    shares = taken([(2, 3), *((who, 4) for who in range(3, 12))])
    assert shares["t2 (2)"] == pytest.approx(3 / 39, abs=0.04)


def test_who_had_nearly_all_of_a_wait_is_who_it_was_for():
    assert taken([(2, 0.1), (3, 1.8), (4, 0.1)]) == {"t3 (3)": 1.0}


def test_times_idle_are_nobodys_share():
    shares = taken([(2, 4), (0, 0.1), (3, 4)])
    assert set(shares) == {"t2 (2)", "t3 (3)"}
