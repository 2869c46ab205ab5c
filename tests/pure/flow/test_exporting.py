"""The graph of a window as GraphML: read back, its critical path is ours."""

from __future__ import annotations

import sys
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from critpath import flow
from critpath.errors import UsageError
from critpath.graph import choose_executions, window
from critpath.graph import execution_graph as window_module
from critpath.graph.critical_path import take_executions
from critpath.model import State
from critpath.report.exports.as_graphml import graphml
from critpath.timeline import read_timelines

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "graph"))
from drawing import merged
from test_networkx import Walker

SPECIFICATION = "events:app:request_begin,app:request_end,key=id"


def read(pieces):
    """The graph of a file, its vertices as the walk wants them, and tids of workers."""
    file = nx.read_graphml(BytesIO(b"".join(pieces)), force_multigraph=True)
    names = {node: (data["worker"], data["time"]) for node, data in file.nodes(data=True)}
    assert all(node == f"{worker}@{time}" for node, (worker, time) in names.items())
    tids = {data["worker"]: data["tid"] for _, data in file.nodes(data=True)}
    return nx.relabel_nodes(file, names), tids


@pytest.fixture(scope="module")
def recording(guest):
    source = guest("sample-lock")
    # The graph knows no interrupt work, so the paths that it is held against have none.
    return source, flow.extract([source], specification=SPECIFICATION, interrupts=False)


@pytest.mark.parametrize("index", range(11))
def test_the_path_found_in_the_file_is_ours(recording, index):
    source, every = recording
    paths = take_executions(every, np.array([index]))
    graph, tids = read(graphml(*window(source, begin=None, end=None, paths=paths)))
    begin, end = int(paths.executions.begin[0]), int(paths.executions.end[0])
    assert (graph.graph["begin"], graph.graph["end"]) == (begin, end)
    (subject,) = [
        worker
        for worker, tid in tids.items()
        if tid == paths.executions.tid[0] and (worker, end) in graph
    ]
    found = merged(Walker(graph).path(subject, begin, end))
    ours = paths.paths
    expected = merged(
        [
            (b, e, tid, State(s))
            for b, e, tid, s in zip(
                *(getattr(ours, name).tolist() for name in ("begin", "end", "tid", "state")),
                strict=True,
            )
        ]
    )
    assert [(b, e, tids[worker], state) for b, e, worker, state in found] == expected
    # What is marked is this path: pieces that lie end to end, all on its threads.
    marked = sorted(
        (a[1], b[1], i, data)
        for i, (a, b, data) in enumerate(graph.edges(data=True))
        if data["critical"] and (data["kind"] == "interval" or data["duration"])
    )
    assert (marked[0][0], marked[-1][1]) == (begin, end)
    # A wake may have been on its way since before its thread began to wait.
    assert all(
        x[1] == y[0] or (y[3]["kind"] == "wake" and y[1] >= x[1] >= y[0])
        for x, y in pairwise(marked)
    )
    of_states = {
        name: sum(d["duration"] for _, _, _, d in marked if d.get("state") == name)
        for name in ("RUN", "WAIT_TIMER", "WAIT_TASK")
    }
    assert of_states == {
        name: sum(e - b for b, e, _, state in expected if state.name == name) for name in of_states
    }
    # Every wake is a link that is marked; others were on their way before they mattered.
    links = {
        (source[1], tids[source[0]], tids[target[0]])
        for source, target, data in graph.edges(data=True)
        if data["kind"] != "interval" and data["critical"]
    }
    wakes = {
        (int(ours.end[i]), int(ours.tid[i]), int(ours.tid[i + 1]))
        for i in np.flatnonzero(ours.wakes).tolist()
    }
    assert wakes <= links
    assert not {time for time, _, _ in links - wakes} & set(ours.end.tolist())
    threads = [tid for _, _, tid, _ in expected]
    assert bool(wakes) == (len(set(threads)) > 1)


def test_a_window_without_a_subject_marks_nothing(recording):
    source, paths = recording
    begin = int(paths.executions.begin[3])
    span = {"begin": begin, "end": begin + 2_000_000}
    graph, _ = read(graphml(*window(source, **span)))
    assert graph.number_of_edges()
    assert not any("critical" in data for _, _, data in graph.edges(data=True))
    kinds = {data["kind"] for _, _, data in graph.edges(data=True)}
    assert kinds <= {"interval", "wake", "net", "create"}
    first = b"".join(graphml(*window(source, **span)))
    assert first == b"".join(graphml(*window(source, **span)))


def test_windows_that_are_too_large_or_empty_are_refused(recording, monkeypatch):
    source, paths = recording
    monkeypatch.setattr(window_module, "MOST_EDGES", 100)
    with pytest.raises(UsageError, match=r"the window has up to [\d,]+ edges") as error:
        window(source, begin=None, end=None)
    assert "--from and --to" in error.value.do
    with pytest.raises(UsageError, match="nothing was recorded"):
        window(source, begin=1, end=2)
    del paths


@pytest.mark.parametrize("begin", [0, 1, 10**7])
def test_the_count_of_edges_is_an_upper_bound(recording, begin):
    source, paths = recording
    begin += int(paths.executions.begin[0])
    end = begin + 30_000_000
    from critpath.graph.execution_graph import build_graph  # noqa: PLC0415 - only here

    _, timelines = read_timelines(source)
    graph = build_graph(timelines)
    made = graph.to_networkx(begin, end).number_of_edges()
    assert 0 < made <= window_module.count_edges(graph, begin, end)


HOSTILE = (
    *("</data><node id='x'/>", "\x00\x1b[2J", "a\u2028b", "\ud800", "]]>", "&lt;\"'", "\ufffe"),
    *("abc\u202egnp", "two\nlines\r\t"),
)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_a_trace_are_only_text(recording, name):
    source, paths = recording
    begin = int(paths.executions.begin[0])
    graph, timelines = window(source, begin=begin, end=begin + 1_000_000)
    strings = tuple(name if text else "" for text in timelines.strings)
    usual, _ = read(graphml(graph, timelines))
    found, _ = read(graphml(graph, replace(timelines, strings=strings)))
    assert set(found) == set(usual)
    assert found.number_of_edges() == usual.number_of_edges()
    shown = {data.get("comm", "") for _, data in found.nodes(data=True)}
    assert not any(c in text for text in shown for c in "\x00\x1b\u2028\u202e\ufffe\n\r\t")
    if name.isprintable():
        assert name in shown


def test_executions_that_are_taken_out_keep_their_paths(recording):
    _, every = recording
    rows = np.array([4, 0, 9])
    taken = take_executions(every, rows)
    assert taken.executions.id == tuple(every.executions.id[row] for row in rows)
    for new, old in enumerate(rows):
        mine = slice(*taken.paths.start[new : new + 2])
        theirs = slice(*every.paths.start[old : old + 2])
        for name in ("begin", "end", "state", "detail", "comm", "tid", "cpu", "lossy", "host"):
            assert (getattr(taken.paths, name)[mine] == getattr(every.paths, name)[theirs]).all()
    assert len(take_executions(every, rows[:0])) == 0
    assert choose_executions(every, ()) is every
    assert choose_executions(every, ["8"]).executions.id == ("8",)
