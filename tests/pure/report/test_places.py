"""Where in the code the time of executions goes: ``critpath path --top``."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from critpath.graph.stacks import mark_own
from critpath.model import RUNNING
from critpath.model.stacks import Frame
from critpath.report.document.path import summarize_code
from critpath.report.text.path import render_code

STACKS = (
    (Frame("nap", "src/log.c", 3, "app"), Frame("flush", "src/log.c", 12, "app")),
    (Frame("malloc", "", 0, "libc.so.6"), Frame("flush", "src/log.c", 12, "app")),
    (Frame("poll", "", 0, "libc.so.6"),),
)
PLACES = ("nap (src/log.c:3)", "flush (src/log.c:12)", "")


def with_stacks(paths, drawn):
    """Return paths whose segments have stacks as drawn: places in `STACKS`, -1 for none."""
    stack = np.resize(np.array(drawn, np.int32), len(paths.paths.begin))
    return replace(paths, paths=replace(paths.paths, stack=stack, stacks=STACKS))


@given(st.lists(st.integers(-1, 2), min_size=1, max_size=40), st.integers(1, 4))
def test_the_sums_are_those_of_a_plain_walk(factory, drawn, most):
    paths = with_stacks(factory.comparison(samples=4, anomalous=1).sample, drawn)
    path = paths.paths
    time, runs, count, seen = Counter(), Counter(), Counter(), defaultdict(set)
    for at in range(len(path.begin)):
        name = PLACES[path.stack[at]] if path.stack[at] >= 0 else ""
        time[name] += int(path.duration[at])
        runs[name] += int(path.duration[at]) * (int(path.state[at]) in {int(s) for s in RUNNING})
        count[name] += 1
        seen[name].add(int(path.path[at]))
    rows, left = summarize_code(paths, most)
    whole, size = sum(time.values()), len(paths)
    # Of places that have as much time the order is open.
    assert [time[row.location] for row in rows] == sorted(time.values(), reverse=True)[:most]
    for row in rows:
        assert row.time == time[row.location] / size
        assert row.running == runs[row.location] / size
        assert row.count == count[row.location] / size
        assert row.executions == len(seen[row.location])
        assert row.share == time[row.location] / whole
    assert (left is None) == (len(time) <= most)
    shares = sum(row.share for row in rows) + (left.share if left else 0)
    assert shares == pytest.approx(1)


def test_whose_functions_are_the_programs_own_can_be_said(factory):
    paths = with_stacks(factory.comparison(samples=2, anomalous=0).sample, [0])
    assert summarize_code(paths, 5)[0][0].location == "nap (src/log.c:3)"
    assert summarize_code(mark_own(paths, "", "nap"), 5)[0][0].location == "flush (src/log.c:12)"
    assert mark_own(paths, "", "") is paths
    hidden = with_stacks(paths, [2])
    assert summarize_code(hidden, 5)[0][0].location == ""
    assert summarize_code(mark_own(hidden, "poll", ""), 5)[0][0].location == "poll (libc.so.6)"


def test_the_table_counts_what_it_leaves_out(factory):
    paths = with_stacks(factory.comparison(samples=4, anomalous=0).sample, [0, 1, -1])
    text = io.StringIO()
    rows, left = summarize_code(paths, 1)
    render_code(rows, left, len(paths), Console(file=text, width=100))
    assert "4 runs, by place in the code" in text.getvalue()
    assert "(2 further places)" in text.getvalue()
