"""Critical paths found again on the networkx graph alone, by another implementation.

`Walker` below follows the rules over the in-edges of the graph that
`ExecutionGraph.to_networkx` gives, and uses nothing else of critpath; the native walk
must agree.  Interrupt work stays in running time: the graph knows none.
"""

from __future__ import annotations

import bisect
import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from drawing import graph_of, intervals_of, links_of, merged, path_of
from test_drawn import DRAWN, TWO_HOSTS

from critpath.executions.find import find_executions
from critpath.executions.specification import parse_specification
from critpath.graph.critical_path import find_lifetimes, subject_workers
from critpath.graph.execution_graph import build_graph, walk_paths
from critpath.model import State
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import read_events
from critpath.timeline.replay import replay

RUNS = {"RUN", "RUN_USER", "RUN_SYSCALL", "IRQ", "SOFTIRQ"}
# What no event from elsewhere ends.
OWN = {*RUNS, "UNKNOWN", "WAIT_CPU", "WAIT_STOPPED"}


class Walker:
    """The walk of the rules over one networkx graph."""

    def __init__(self, graph):
        self.graph = graph
        self.moments = {}
        self.births = {}
        for worker, time in graph:
            self.moments.setdefault(worker, []).append(time)
        for times in self.moments.values():
            times.sort()
        for source, target, data in graph.edges(data=True):
            if data["kind"] == "create":
                self.births[target[0]] = source

    def course(self, edges):
        """The one edge among some that is the worker's own course, None if it has none."""
        own = [e for e in edges if e[2]["kind"] == "interval"]
        assert len(own) <= 1, "a worker is in two states at once"
        return own[0] if own else None

    def before(self, worker, time):
        """The edge of the worker's course over the moment just before ``time``."""
        times = self.moments.get(worker, [])
        # Where a walk begins or a link's time was cut, the moment need not be a vertex.
        for place in range(bisect.bisect_left(times, time), len(times)):
            edge = self.course(self.graph.in_edges((worker, times[place]), data=True))
            if edge is not None:
                return edge if edge[0][1] < time else None
        return None

    def link(self, worker, time):
        """The link that arrives at a vertex: a packet explains what delivered it."""
        arriving = [
            (("wake", "net", "hold").index(data["kind"]), source)
            for source, _, data in self.graph.in_edges((worker, time), data=True)
            if data["kind"] in {"wake", "net", "hold"}
        ]
        return max(arriving, default=None)

    def asked(self, worker, time):
        """Who had the processor that is waited for, if the path's own thread had asked it."""
        for source, _, data in self.graph.in_edges((worker, time), data=True):
            if data["kind"] == "asked" and data["asked"] >= self.begin:
                return source[0]
        return None

    def whole(self, edge):
        """Begin and end of the interval that an edge is a piece of."""
        low, high, _ = edge
        interval = edge[2]["interval"]
        while True:
            more = self.course(self.graph.in_edges(low, data=True))
            if more is None or more[2]["interval"] != interval:
                break
            low = more[0]
        while True:
            more = self.course(self.graph.out_edges(high, data=True))
            if more is None or more[2]["interval"] != interval:
                break
            high = more[1]
        return low[1], high[1]

    def path(self, subject, begin, end):
        self.out, self.left, self.begin = [], [], begin
        self.down(subject, begin, end)
        return self.out[::-1]

    def emit(self, low, high, worker, state):
        if high > low:
            self.out.append((low, high, worker, State[state]))

    def follow(self, worker, link, low, time):
        kind, (source, sent) = link
        sent = min(max(sent, low), time)
        self.emit(sent, time, worker, ("WAIT_CPU", "NET_TRANSIT", "WAIT_TIMER")[kind])
        self.left.append((worker, time))
        self.down(source, low, sent)
        self.left.pop()

    def down(self, worker, low, time):
        bypassed = rewound = None
        while time > low:
            edge = self.before(worker, time)
            if edge is None:
                creator = self.births.get(worker)
                if creator is not None and creator[1] <= time:
                    parent, born = creator[0], max(creator[1], low)
                    self.emit(born, time, worker, "WAIT_CPU")
                    self.down(parent, low, born)
                    return
                if bypassed is not None and not rewound:
                    rewound, (link, at, length) = True, bypassed
                    del self.out[length:]
                    self.follow(worker, link, low, at)
                    return
                self.emit(low, time, worker, "UNKNOWN")
                return
            state, top = edge[2]["state"], edge[1][1]
            link = self.link(worker, time) if top == time else None
            first, last = self.whole(edge)
            asked = self.asked(worker, time) if state == "WAIT_CPU" and last == time else None
            if asked is not None and asked not in {w for w, t in self.left if t == time} | {worker}:
                self.left.append((worker, time))
                self.down(asked, max(first, low), time)
                self.left.pop()
                time = max(first, low)
                continue
            if link is not None and state not in OWN and last == time:
                busy = {w for w, t in self.left if t == time} | {worker}
                if not (link[1][1] >= time and link[1][0] in busy):
                    self.follow(worker, link, max(first, low), time)
                    time = max(first, low)
                    continue
            elif link is not None and not rewound:
                bypassed = link, time, len(self.out)
            start = max(edge[0][1], low)
            self.emit(start, time, worker, state)
            time = start


def native(graph, subject, begin, end):
    _, low, high, worker, _, state = walk_paths(
        graph, np.array([subject]), np.array([begin]), np.array([end])
    )
    rows = zip(low.tolist(), high.tolist(), worker.tolist(), state.tolist(), strict=True)
    return merged([(b, e, w, State(s)) for b, e, w, s in rows])


@pytest.mark.parametrize("name", [*DRAWN, "two_hosts"])
def test_drawn_graphs_survive_the_way_through_networkx(name):
    timelines, arrows, expected = DRAWN.get(name, TWO_HOSTS)
    intervals = intervals_of(timelines)
    graph = graph_of(intervals, *links_of(arrows))
    begin, end = intervals[0][0][0], intervals[0][-1][1]
    found = Walker(graph.to_networkx(begin, end)).path(0, begin, end)
    assert merged(found) == path_of(expected)


@pytest.fixture(scope="module")
def normal(guest):
    specification = parse_specification("events:app:request_begin,app:request_end,key=id")
    events = read_events(guest("normal"), (*KERNEL_EVENTS, *specification.get_requests()))
    timelines = replay(events)
    executions = find_executions(events, specification)
    return build_graph(timelines), subject_workers(timelines.workers, executions), executions


def test_paths_of_executions_on_the_graph_of_their_own_window(normal):
    graph, subjects, executions = normal
    resolved = 0
    for i in range(0, len(executions), 3):
        window = int(executions.begin[i]), int(executions.end[i])
        ours = native(graph, int(subjects[i]), *window)
        walker = Walker(graph.to_networkx(*window))
        assert merged(walker.path(int(subjects[i]), *window)) == ours
        assert (ours[0][0], ours[-1][1]) == window
        resolved += any(worker != subjects[i] for _, _, worker, _ in ours)
    # Most go through another thread; else this would compare little.
    assert resolved >= 15


def test_paths_of_executions_on_the_graph_of_the_whole_recording(normal):
    graph, subjects, executions = normal
    begin, end = int(executions.begin.min()), int(executions.end.max())
    walker = Walker(graph.to_networkx(begin, end))
    for i in range(len(executions)):
        window = int(subjects[i]), int(executions.begin[i]), int(executions.end[i])
        assert merged(walker.path(*window)) == native(graph, *window), executions.id[i]


@pytest.mark.parametrize(
    ("tid", "run", "wait_cpu"), [(338, 4_862_100, 263_400), (340, 5_482_800, 210_100)]
)
def test_paths_of_the_specification_on_the_graph_alone(shared, tid, run, wait_cpu):
    timelines = replay(read_events(shared("public/tc-bug446190"), KERNEL_EVENTS))
    graph = build_graph(timelines)
    life = find_lifetimes(
        timelines.workers, timelines.strings, tid, None, (None, None), (0, 1 << 62)
    )
    (subject,) = subject_workers(timelines.workers, life).tolist()
    window = int(life.begin[0]), int(life.end[0])
    found = Walker(graph.to_networkx(*window)).path(subject, *window)
    assert merged(found) == native(graph, subject, *window)
    totals = {}
    for low, high, _, state in found:
        name = "RUN" if state.name in RUNS else state.name
        totals[name] = totals.get(name, 0) + high - low
    assert (totals["RUN"], totals["WAIT_CPU"]) == (run, wait_cpu)


def test_the_graph_of_a_window_is_made_of_the_windows_intervals(normal):
    graph, _, executions = normal
    begin, end = int(executions.begin[4]), int(executions.end[4])
    nx_graph = graph.to_networkx(begin, end)
    assert (nx_graph.graph["begin"], nx_graph.graph["end"]) == (begin, end)
    assert all(begin <= time <= end for _, time in nx_graph)
    time = np.zeros(len(graph), np.int64)
    for source, target, data in nx_graph.edges(data=True):
        assert data["duration"] == target[1] - source[1] >= 0
        if data["kind"] == "interval":
            assert source[0] == target[0]
            time[source[0]] += data["duration"]
        else:
            assert source[0] != target[0] or data["kind"] == "net"
    low, high = np.maximum(graph.begin, begin), np.minimum(graph.end, end)
    owner = np.repeat(np.arange(len(graph)), np.diff(graph.start))
    expected = np.zeros(len(graph), np.int64)
    np.add.at(expected, owner, np.maximum(high - low, 0))
    assert time.tolist() == expected.tolist()
    json.dumps([data for *_, data in nx_graph.edges(data=True)])  # plain Python values
