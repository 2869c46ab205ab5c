"""What joins stacks with segments, and the graph of a window, against plain twins; all is drawn."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from critpath.errors import UsageError
from critpath.graph import execution_graph
from critpath.graph import stacks as joining
from critpath.graph.execution_graph import ExecutionGraph, count_edges, window_graph
from critpath.model import State
from critpath.model.stacks import RUN, SAMPLE, SLEEP, Frames, Stacks
from critpath.schema.parameters.replay import WAITING

NONE = Frames((), (), np.zeros(0, np.int32), (), np.zeros(0, np.bool_))
SEEDS = range(30)


def draw_stacks(seed: int) -> Stacks:
    """Return events of three threads, some at the same time, some without a stack."""
    rng = np.random.default_rng(seed)
    many = int(rng.integers(0, 30)) if seed else 0
    kinds = [SAMPLE, SAMPLE, SLEEP, RUN] if seed % 2 else [SAMPLE, SLEEP]
    return Stacks(
        np.cumsum(rng.integers(0, 6, many)), rng.integers(7, 10, many), np.zeros(many, np.int64),
        rng.choice(kinds, many).astype(np.uint8), rng.integers(-1, 4, many).astype(np.int32),
        ("a", "b", "c", "d"), NONE, False, (0, 1, 2, 5)[seed % 4],
    )  # fmt: skip


def draw_spans(seed: int) -> Any:
    """Return times of these threads, and one more that has no events; some lie in others."""
    rng = np.random.default_rng(1000 + seed)
    many = int(rng.integers(0, 20))
    begin = rng.integers(0, 90, many)
    return joining._Spans(
        rng.integers(6, 10, many), begin, begin + rng.integers(0, 15, many), rng.random(many) < 0.5
    )


def events_of(stacks: Stacks, kind: int, tid: int) -> list[int]:
    rows = zip(stacks.kind.tolist(), stacks.tid.tolist(), strict=True)
    return [at for at, row in enumerate(rows) if row == (kind, tid)]


def nearest(values: list[int], to: int) -> int:
    """Return the place of the nearest value: of two that are as near, of the first not before."""
    behind = [at for at, value in enumerate(values) if value >= to]
    before = [at for at, value in enumerate(values) if value < to]
    if not behind or (before and to - values[before[-1]] < values[behind[0]] - to):
        return before[-1]
    return behind[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_who_is_nearest_both_ways(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, to = (np.sort(rng.integers(0, 40, 1 + seed % 9)) for _ in range(2))
    found = joining._find_closest(values, to).tolist()
    assert found == [nearest(values.tolist(), at) for at in to.tolist()]
    for apart in (0, 2, 100):
        want = []
        for number, at in enumerate(to.tolist()):
            there = nearest(values.tolist(), at)
            back = nearest(to.tolist(), int(values[there]))
            want.append(there if back == number and abs(values[there] - at) <= apart else -1)
        assert joining._find_mutual(values, to, apart).tolist() == want


@pytest.mark.parametrize("seed", SEEDS)
def test_the_event_of_a_thread_before_or_nearest(seed: int) -> None:
    stacks, spans = draw_stacks(seed), draw_spans(seed)
    tid, time = spans.tid, spans.begin
    chosen = stacks.kind == SLEEP
    last, near = [], []
    for of, at in zip(tid.tolist(), time.tolist(), strict=True):
        mine = events_of(stacks, SLEEP, of)
        before = [e for e in mine if stacks.time[e] <= at]
        last.append(before[-1] if before else -1)
        times = stacks.time[mine].tolist()
        asked = sorted({int(t) for o, t in zip(tid, time, strict=True) if o == of})
        there = nearest(times, at) if mine else -1
        agreed = mine and asked[nearest(asked, times[there])] == at
        close = agreed and abs(times[there] - at) <= WAITING.apart
        near.append(mine[there] if close else -1)
    assert joining._find_last(stacks, chosen, tid, time).tolist() == last
    assert joining._find_nearest(stacks, chosen, stacks.tid, tid, time).tolist() == near
    assert joining.find_sleeps(stacks, tid, time).tolist() == near
    none = joining._find_nearest(stacks, chosen, stacks.tid, tid, time, 0)
    exact = [e if e >= 0 and stacks.time[e] == at else -1 for e, at in zip(near, time, strict=True)]
    assert none.tolist() == exact


def list_samples(stacks: Stacks) -> list[tuple[int, int]]:
    """Return the row of every sample, and which of its row it is: a row is noted at changes."""
    period, found = max(1, stacks.period), []
    for tid in sorted({*stacks.tid.tolist()}):
        mine = events_of(stacks, SAMPLE, tid)
        for at, row in enumerate(mine):
            time = int(stacks.time[row])
            until = int(stacks.time[mine[at + 1]]) if at + 1 < len(mine) else time + 1
            many = min(max((until - time + period // 2) // period, 1), joining._MOST_REPEATED)
            found += [(row, number) for number in range(many)]
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_samples_are_counted_where_threads_sleep_or_run(seed: int) -> None:
    stacks, spans = draw_stacks(seed), draw_spans(seed)
    events, number = joining._list_samples(stacks)
    want = list_samples(stacks)
    assert list(zip(events.tolist(), number.tolist(), strict=True)) == want
    counts: Counter[tuple[bool, int]] = Counter()
    rows = sorted(zip(*(c.tolist() for c in spans), strict=True), key=lambda span: span[1])
    for event, count in want:
        time = int(stacks.time[event]) + count * stacks.period
        begun = [span for span in rows if span[0] == stacks.tid[event] and span[1] <= time]
        inside = begun and max(end for _, _, end, _ in begun) > time
        if inside and stacks.stack[event] >= 0:
            counts[begun[-1][3], int(stacks.stack[event])] += 1
    found = joining._count_samples(stacks, spans)
    assert found.tolist() == [[counts[runs, of] for of in range(4)] for runs in (False, True)]


@pytest.mark.parametrize("seed", range(60))
def test_a_span_has_the_stack_of_most_samples(seed: int) -> None:
    stacks, spans = draw_stacks(seed), draw_spans(seed)
    running = np.random.default_rng(seed).random(4) < 0.5
    period, want = max(1, stacks.period), []
    for tid, begin, end, runs in zip(*(c.tolist() for c in spans), strict=True):
        mine = events_of(stacks, SAMPLE, tid)
        times = [int(stacks.time[e]) for e in mine]
        best, most = -1, 0
        first = max(sum(time <= begin for time in times) - 1, 0)
        for at in range(first, sum(time < end for time in times)):
            until = times[at + 1] if at + 1 < len(times) else times[at] + period
            # The samples of a row, up to half a period before the next row's.
            many = 1 + max(until - times[at] - period // 2, 0) // period
            samples = [times[at] + period * n for n in range(many)]
            here = sum(begin <= time < end for time in samples)
            if runs and samples[0] <= begin and samples[-1] >= end:
                here = max(here, 1)  # between two of the same stack
            of = int(stacks.stack[mine[at]])
            if of >= 0 and running[of] == runs and here >= max(most, 1):
                best, most = mine[at], here
        want.append(best)
    assert joining._find_sampled(stacks, spans, running).tolist() == want


def test_the_next_segment_of_a_thread_and_what_is_between() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        many = seed
        path, tid = np.sort(rng.integers(0, 3, many)), rng.integers(7, 10, many)
        begin = np.arange(many) * 10
        of = SimpleNamespace(path=path, tid=tid, begin=begin, end=begin + 10)
        want = []
        for at in range(many):
            later = [n for n in range(at + 1, many) if (path[n], tid[n]) == (path[at], tid[at])]
            want.append(later[0] if later else -1)
        assert joining._next_of_thread(of).tolist() == want
        runs = rng.random(many) < 0.7
        mine, waits = joining._find_others_turns(of, runs)
        turns = [at for at in range(many) if runs[at] and want[at] > at + 1]
        assert mine.tolist() == turns
        assert waits.begin.tolist() == [begin[at] + 10 for at in turns]
        assert waits.end.tolist() == [begin[want[at]] for at in turns]
        assert not waits.runs.any()


def draw_graph(seed: int) -> ExecutionGraph:
    """Return intervals of a few workers, links between them, and who created whom."""
    rng = np.random.default_rng(seed)
    workers = 1 + seed % 4
    start, begins, ends, born = [0], list[int](), list[int](), list[int]()
    for _ in range(workers):
        many = int(rng.integers(0, 6))
        edges = np.cumsum(rng.integers(1, 6, many + 1)) + int(rng.integers(0, 10))
        begins += edges[:-1].tolist()
        ends += edges[1:].tolist()
        start.append(len(begins))
        born.append(int(edges[0]) - int(rng.integers(-1, 4)) if rng.random() < 0.7 else -1)
    counts = rng.integers(0, 4, workers)
    links = int(counts.sum())
    time = np.concatenate([np.sort(rng.integers(0, 40, n)) for n in counts]).astype(np.int64)
    return ExecutionGraph(
        np.array(start), np.array(begins, np.int64), np.array(ends, np.int64),
        rng.choice([int(State.RUN), int(State.WAIT_TASK)], len(begins)).astype(np.uint8),
        np.concatenate([[0], np.cumsum(counts)]), time, rng.integers(0, workers, links),
        time - rng.integers(0, 8, links), rng.integers(0, 4, links).astype(np.uint8),
        np.where(np.array(born) >= 0, rng.integers(-1, workers, workers), -1), np.array(born),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(50))
def test_the_graph_of_a_window(seed: int) -> None:
    graph = draw_graph(seed)
    begin = 4 + seed % 7
    end = begin + 3 + seed % 17
    edges, cuts = [], {(0, begin + 2)}
    owner = np.repeat(np.arange(len(graph)), np.diff(graph.link_start)).tolist()
    columns = (graph.link_source, graph.link_sent, graph.link_time, graph.link_kind)
    for to, source, sent, time, kind in zip(owner, *(c.tolist() for c in columns), strict=True):
        if begin < time <= end:
            name = ("wake", "net", "hold", "net")[kind]
            edges.append(((source, max(sent, begin)), (to, time), name, -1))
    for worker, (parent, born) in enumerate(zip(graph.parent, graph.born, strict=True)):
        some = graph.start[worker] < graph.start[worker + 1]
        first = int(graph.begin[graph.start[worker]]) if some else -1
        if parent >= 0 and begin <= born <= first <= end:
            edges.append(((int(parent), int(born)), (worker, first), "create", -1))
    moments = {moment for edge in edges for moment in edge[:2]} | cuts
    for worker in range(len(graph)):
        for row in range(graph.start[worker], graph.start[worker + 1]):
            low, high = max(int(graph.begin[row]), begin), min(int(graph.end[row]), end)
            inner = sorted(t for w, t in moments if w == worker and low < t < high)
            times = [low, *inner, high] if low < high else []
            edges += [
                ((worker, a), (worker, b), State(graph.state[row]).name, row)
                for a, b in pairwise(times)
            ]
    found = graph.to_networkx(begin, end, cuts)
    got = [
        (one, other, data["state"] or data["kind"], data["interval"])
        for one, other, data in found.edges(data=True)
    ]
    assert sorted(got) == sorted(edges)
    for one, other, data in found.edges(data=True):
        assert data["duration"] == other[1] - one[1]
        assert (data["kind"] == "interval") == (data["interval"] >= 0)
    inside = sum(b < end and e > begin for b, e in zip(graph.begin, graph.end, strict=True))
    links = sum(begin < time <= end for time in graph.link_time)
    births = sum(begin <= born <= end for born in graph.born)
    assert count_edges(graph, begin, end) == inside + 3 * (links + births)
    assert graph.to_networkx(begin, end).number_of_edges() <= count_edges(graph, begin, end)


@pytest.mark.parametrize("seed", range(12))
def test_threads_near_a_path_are_those_that_lead_to_it(seed: int) -> None:
    graph = draw_graph(40 + seed)
    whole = graph.to_networkx(0, 60)
    for path in ({0}, {1, 2}):
        near = {one[0] for one, other in whole.edges() if other[0] in path} | path
        found = execution_graph._keep_near(whole, path)
        assert {*found} == {node for node in whole if node[0] in near}
        assert found.number_of_edges() == sum(
            one[0] in near and other[0] in near for one, other in whole.edges()
        )
        away = [node for node in whole if node[0] not in near]
        assert found.graph["left_out"] == (len(away), len({node[0] for node in away}))


def test_a_window_with_too_many_edges_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = draw_graph(7)
    most = count_edges(graph, 0, 60)
    monkeypatch.setattr(execution_graph, "MOST_EDGES", most)
    assert window_graph(graph, 0, 60).number_of_edges() <= most
    monkeypatch.setattr(execution_graph, "MOST_EDGES", most - 1)
    with pytest.raises(UsageError, match=f"up to {most:,} edges"):
        window_graph(graph, 0, 60)
