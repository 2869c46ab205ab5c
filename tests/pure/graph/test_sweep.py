"""Paths from blocks: the same wherever timelines were cut, and as the plain twin has them."""

from __future__ import annotations

import itertools
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "oracle"))
import critical_paths as twin
from cutting import cut_up, differences

from critpath.graph import critical_path
from critpath.graph.critical_path import Sweep, find_lifetimes, subject_workers, sweep_paths
from critpath.graph.execution_graph import critical_paths
from critpath.model import Loss, State, Timelines, Workers
from critpath.model.packing import pack
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import read_events
from critpath.schema.parameters import overridden
from critpath.timeline.replay import replay
from critpath.timeline.streaming import SpilledBlocks

LAST = 30
PROCESSORS = ((0, 0), (0, 1), (1, 0))
STRINGS = ("", "no_wake", "lost_events", "idle", "a", "b", "c")
STATES = st.sampled_from([
    *(State.RUN, State.RUN, State.RUN_USER, State.WAIT_CPU, State.WAIT_CPU),
    *(State.WAIT_TASK, State.WAIT_TASK, State.WAIT_STOPPED, State.WAIT_UNEXPLAINED),
])  # fmt: skip
MOMENTS = st.integers(0, LAST)


def facts(timelines):
    return (
        timelines.workers,
        timelines.strings,
        timelines.processors,
        timelines.packets,
        timelines.losses,
    )


def links(timelines):
    return {"receipts": timelines.receipts}


def swept(timelines, blocks, subjects, begin, end, **options):
    options |= links(timelines)
    found = sweep_paths(blocks, *facts(timelines), subjects, begin, end, **options)
    # Of packed blocks a thread's rows are read when a walk comes to it.
    with closing(SpilledBlocks(1 << 20, limited=False)) as packed:
        for block in blocks:
            packed.append(pack(block))
        lazily = sweep_paths(packed, *facts(timelines), subjects, begin, end, **options)
    assert not differences(lazily, found)
    return found


def stretches(draw, most=8):
    """Draw times that do not overlap, with gaps."""
    times = sorted(draw(st.sets(MOMENTS, max_size=most)))
    return [pair for pair in itertools.pairwise(times) if draw(st.integers(0, 7))]


def starts(rows):
    return np.cumsum([0, *(len(of) for of in rows)])


def columns(rows, width):
    return np.array([row for of in rows for row in of], np.int64).reshape(-1, width).T.copy()


@st.composite
def recordings(draw):
    """Draw timelines in which anything may wake anything, and only times are in order."""
    count = draw(st.integers(1, 5))
    someone = st.integers(0, count - 1)
    rows, stolen, ran = [], [], []
    for _ in range(count):
        of = []
        for begin, end in stretches(draw):
            waker = draw(st.integers(-1, count - 1))
            woken = min(draw(MOMENTS), end) if waker >= 0 else -1
            detail, cpu = draw(st.integers(0, 4)), draw(st.integers(-1, 1))
            of.append((begin, end, draw(STATES), detail, cpu, waker, woken))
        rows.append(of)
    for _ in PROCESSORS:
        stolen.append([
            (*pair, draw(st.sampled_from([State.IRQ, State.SOFTIRQ])), draw(st.integers(0, 4)))
            for pair in stretches(draw)
        ])  # fmt: skip
        ran.append([(*pair, draw(someone)) for pair in stretches(draw, 12)])
    packets = []
    for _ in range(draw(st.integers(0, 3))):
        to = draw(someone)
        ends = [row[1] for row in rows[to]]
        time = draw(st.sampled_from(ends)) if ends and draw(st.booleans()) else draw(MOMENTS)
        packets.append((draw(someone), min(draw(MOMENTS), time), to, time))
    receipts = {}
    for _ in range(draw(st.integers(0, 3))):
        to, time = draw(someone), draw(MOMENTS)
        receipts[to, time] = (draw(someone), min(draw(MOMENTS), time), to, time)
    born = [draw(MOMENTS) if draw(st.integers(0, 3)) == 0 else -1 for _ in range(count)]
    workers = Workers(
        host=np.array([draw(st.integers(0, 1)) for _ in range(count)]),
        tid=np.arange(count),
        pid=np.arange(count),
        name=np.array([draw(st.integers(3, 6)) for _ in range(count)], np.int32),
        first=np.array([min((r[0] for r in of), default=-1) for of in rows]),
        last=np.array([max((r[1] for r in of), default=-1) for of in rows]),
        parent=np.array([draw(someone) if b >= 0 else -1 for b in born]),
        born=np.array(born),
        idle_cpu=np.array([draw(st.sampled_from([-1, -1, 0])) for _ in range(count)], np.int32),
    )
    begin, end, state, detail, cpu, waker, woken = columns(rows, 7)
    stolen_columns, ran_columns = columns(stolen, 4), columns(ran, 3)
    losses = tuple(
        Loss(*sorted((draw(MOMENTS), draw(MOMENTS))), 0, 0, 1, 0, "buffer")
        for _ in range(draw(st.integers(0, 1)))
    )
    return Timelines(
        workers=workers,
        start=starts(rows),
        begin=begin,
        end=end,
        state=state.astype(np.uint8),
        detail=detail.astype(np.int32),
        cpu=cpu.astype(np.int32),
        waker=waker.astype(np.int32),
        woken=woken,
        stolen_start=starts(stolen),
        stolen_begin=stolen_columns[0],
        stolen_end=stolen_columns[1],
        stolen_state=stolen_columns[2].astype(np.uint8),
        stolen_detail=stolen_columns[3].astype(np.int32),
        ran_start=starts(ran),
        ran_begin=ran_columns[0],
        ran_end=ran_columns[1],
        ran_worker=ran_columns[2].astype(np.int32),
        processors=PROCESSORS,
        strings=STRINGS,
        losses=losses,
        packets=tuple(packets),
        receipts=tuple(receipts.values()),
    )


@st.composite
def cuttings(draw):
    """Draw where to cut, and how many blocks later than need be each row comes."""
    cuts = draw(st.lists(MOMENTS, max_size=8))
    late = draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
    return cuts, lambda count: np.resize(np.array(late), count)


@st.composite
def executions(draw):
    """Draw subjects, one that never appears among them, and windows beyond the recording."""
    rows = draw(
        st.lists(
            st.tuples(st.integers(-1, 4), st.integers(-2, LAST + 3), st.integers(-2, LAST + 3)),
            max_size=6,
        )
    )
    subject, low, high = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    return subject, np.minimum(low, high), np.maximum(low, high)


@given(recordings(), cuttings(), st.lists(executions(), max_size=4), st.sampled_from([0, 1 << 20]))
def test_what_is_kept_of_earlier_executions_makes_no_difference(timelines, cutting, groups, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(critical_path, "MOST_CARRIED", most)
        again = Sweep(cut_up(timelines, *cutting), *facts(timelines), **links(timelines))
        for subjects, begin, end in groups:
            known = np.minimum(subjects, len(timelines.workers) - 1)
            expected = twin.critical_paths(timelines, known, begin, end)
            assert differences(again.paths(known, begin, end), expected) == []


@given(recordings(), cuttings(), executions(), st.booleans(), st.integers(0, 3))
def test_the_cutting_makes_no_difference(timelines, cutting, drawn, interrupts, held_back):
    subjects, begin, end = drawn
    subjects = np.minimum(subjects, len(timelines.workers) - 1)
    # A time that such small recordings reach.
    with pytest.MonkeyPatch.context() as patch, overridden("waiting.held_back", held_back):
        patch.setattr(twin, "HELD_BACK_NS", held_back)
        options = {"interrupts": interrupts}
        expected = twin.critical_paths(timelines, subjects, begin, end, **options)
        whole = critical_paths(timelines, subjects, begin, end, **options)
        assert differences(whole, expected) == []
        pieces = swept(timelines, cut_up(timelines, *cutting), subjects, begin, end, **options)
        assert differences(pieces, expected) == []


# The twin in Python takes long for the larger ones.
FIXTURES = (
    *("sample-lock", "sample-quota", "lossy", "plain"),
    *(pytest.param(name, marks=pytest.mark.deep) for name in ("normal", "python")),
)


@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize("what", ["lives", "window"])
def test_recordings_of_the_guest(guest, name, what):
    compare(replay(read_events(guest(name), KERNEL_EVENTS)), what)


@pytest.mark.parametrize(
    "name",
    [pytest.param("selora-old_trace", marks=pytest.mark.deep), "tc-bug446190", "tc-scp_dest"],
)
def test_public_traces(shared, name):
    compare(replay(read_events(shared(f"public/{name}"), KERNEL_EVENTS)), "lives")


def compare(timelines, what):
    generator = np.random.default_rng(7)
    begin, end = int(timelines.begin.min()), int(timelines.end.max())
    window = (None, None) if what == "lives" else (begin + (end - begin) // 3, end)
    asked = find_lifetimes(timelines.workers, timelines.strings, None, None, window, (begin, end))
    subjects = subject_workers(timelines.workers, asked)
    subjects[::17] = -1
    expected = twin.critical_paths(timelines, subjects, asked.begin, asked.end)
    assert len(expected.begin) > 50
    # Some cuts are where executions begin and end.
    some = np.concatenate([asked.begin[:3], asked.end[:3]]).tolist()
    for count in (0, 3, 40, 400):
        cuts = [*generator.integers(begin, end, count).tolist(), *some[: 2 * count]]
        late = None if count == 3 else lambda rows: generator.geometric(0.7, rows) - 1
        blocks = cut_up(timelines, cuts, late)
        found = swept(timelines, blocks, subjects, asked.begin, asked.end)
        assert differences(found, expected) == [], count


class Counted:
    """Blocks of which it is known how often each was fetched."""

    def __init__(self, blocks):
        self.blocks, self.cuts = blocks, blocks.cuts
        self.fetched = np.zeros(len(blocks), np.int64)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        self.fetched[index] += 1
        return self.blocks[index]


@pytest.mark.parametrize("most", [0, 1 << 30])
def test_blocks_are_fetched_few_times(guest, monkeypatch, most):
    monkeypatch.setattr(critical_path, "MOST_CARRIED", most)
    timelines = replay(read_events(guest("normal"), KERNEL_EVENTS))
    begin, end = int(timelines.begin.min()), int(timelines.end.max())
    asked = find_lifetimes(
        timelines.workers, timelines.strings, None, None, (None, None), (begin, end)
    )
    subjects = subject_workers(timelines.workers, asked)
    # Executions of the second half only.
    low = np.maximum(asked.begin, (begin + end) // 2)
    high = np.maximum(asked.end, low)
    blocks = Counted(cut_up(timelines, np.linspace(begin, end, 21)[1:-1].astype(int).tolist()))
    found = sweep_paths(blocks, *facts(timelines), subjects, low, high)
    assert differences(found, critical_paths(timelines, subjects, low, high)) == []
    assert blocks.fetched[:10].sum() == 0
    assert blocks.fetched[10:].min() >= 2
    if most:
        assert blocks.fetched.max() <= 4


def test_no_executions(guest):
    timelines = replay(read_events(guest("normal"), KERNEL_EVENTS))
    nothing = np.zeros(0, np.int64)
    paths = critical_paths(timelines, nothing, nothing, nothing)
    assert (len(paths), len(paths.begin)) == (0, 0)


def test_which_life_of_a_thread_an_execution_is_of(guest):
    generator = np.random.default_rng(3)
    timelines = replay(read_events(guest("normal"), KERNEL_EVENTS))
    # Few threads with many lives, also ones whose numbers are not in order of time.
    count = len(timelines.workers)
    workers = replace(
        timelines.workers,
        tid=generator.integers(1, 6, count),
        host=generator.integers(0, 2, count),
        first=generator.integers(-1, 20, count),
    )
    asked = find_lifetimes(
        timelines.workers, timelines.strings, None, None, (None, None), (0, 1 << 62)
    )
    size = len(asked)
    asked = replace(
        asked,
        tid=generator.integers(1, 8, size),
        host=generator.integers(0, 3, size),
        begin=np.full(size, -5),
        end=generator.integers(-4, 22, size),
    )
    expected = []
    for host, tid, end in zip(asked.host, asked.tid, asked.end, strict=True):
        found = -1
        for w in range(count):
            mine = (workers.host[w], workers.tid[w]) == (host, tid)
            alive = workers.first[w] >= 0 and workers.idle_cpu[w] < 0
            if mine and alive and (workers.first[w] <= end or found < 0):
                found = w
        expected.append(found)
    assert subject_workers(workers, asked).tolist() == expected
