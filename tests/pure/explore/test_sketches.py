"""Sketches over hosts: who has a lane, where it stands, and how sure a way between hosts is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from critpath.model import CriticalPaths, State
from critpath.report.explore.sketches import MOST_LANES, draw_sketches


@pytest.fixture
def one_path(load):
    """Return a function from steps (host, thread, length) to a set of one path."""
    made = load("pure/explore/made.py").paths(1)

    def path_of(steps, uncertainty=None, confidence=None):
        hosts = ["app", "db", "web"]
        names = sorted({f"t{tid}@{hosts[host]}" for host, tid, _ in steps})
        end = np.cumsum([length for *_, length in steps])
        begin = end - [length for *_, length in steps]
        n = len(steps)
        critical = CriticalPaths(
            start=np.array([0, n]),
            begin=begin,
            end=end,
            state=np.full(n, State.RUN, np.uint8),
            detail=np.zeros(n, np.int32),
            comm=np.array([1 + names.index(f"t{t}@{hosts[h]}") for h, t, _ in steps], np.int32),
            tid=np.array([tid for _, tid, _ in steps]),
            host=np.array([host for host, *_ in steps]),
            cpu=np.zeros(n, np.int32),
            lossy=np.zeros(n, np.bool_),
            strings=("", *names),
            uncertainty=np.array(uncertainty or [0] * n),
            confidence=np.array(confidence or [1.0] * n),
        )
        host, tid, _ = steps[0]
        executions = replace(
            made.executions,
            begin=begin[:1],
            end=end[-1:],
            host=np.array([host]),
            tid=np.array([tid]),
            comm=(f"t{tid}@{hosts[host]}",),
        )
        return replace(made, executions=executions, paths=critical)

    return path_of


def drawn(paths):
    return draw_sketches(paths, [0], {})[0]


def test_each_host_has_a_lane_however_many_threads_another_has(one_path):
    steps = [(2, 1, 50), *((0, 10 + n, 100 + n) for n in range(12)), (1, 1, 20), (0, 10, 5)]
    sketch = drawn(one_path(steps))
    assert [lane[3] for lane in sketch.lanes] == ["web", *["app"] * 6, "db"]
    assert len(sketch.lanes) == MOST_LANES
    assert sketch.left_out == 6  # the shortest
    assert [lane[0] for lane in sketch.lanes[1:-1]] == [f"t{10 + n}" for n in range(6, 12)]


def test_who_is_only_interrupted_on_the_way_has_no_lane(one_path):
    sketch = drawn(one_path([(2, 1, 5_000), (0, 9, 1), (0, 2, 5_000), (1, 3, 1), (0, 2, 10)]))
    # What is on db is short, but nothing else is there.
    assert [lane[:2] for lane in sketch.lanes] == [["t1", 1], ["t2", 2], ["t3", 3]]
    assert sketch.left_out == 1


def test_a_way_that_goes_through_threads_that_are_not_drawn_is_as_unsure_as_these(one_path):
    steps = [(2, 1, 5_000), (0, 9, 1), (0, 2, 5_000), (2, 1, 5_000)]
    wrong, sure = [0, 70, 50, 0], [1.0, 0.5, 0.9, 0.9]
    sketch = drawn(one_path(steps, wrong, sure))
    assert sketch.links == [[0, 1, 5_001, 500, 70], [1, 0, 10_001, 900, 50]]
    unknown = drawn(one_path(steps, [0, 70, -1, 0]))
    assert unknown.links == [[0, 1, 5_001, 1000, 70], [1, 0, 10_001, 1000, -1]]


def test_of_one_host_a_way_has_nothing_more(one_path):
    steps = [(0, 1, 100), (0, 2, 100), (0, 1, 100)]
    sketch = drawn(one_path(steps))
    assert sketch.links == [[0, 1, 100], [1, 0, 200]]
    assert [lane[0] for lane in sketch.lanes] == ["t1@app", "t2@app"]
