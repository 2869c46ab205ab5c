"""Sums over blocks: whatever the cuts, they are those of a twin that goes row by row."""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "timeline"))
sys.path.insert(0, str(Path(__file__).parents[2] / "oracle"))
from building import build
from test_blocks import SCHEDULES, streamed

from critpath.glance.gathering import Gathered, find_holders
from critpath.model import Kind, State
from critpath.model.timelines import BlockList
from critpath.schema.kinds import WAITS
from critpath.timeline.replay import replay

QUANTILES = (0.5, 0.99)
RUNS = {State.RUN, State.RUN_USER, State.RUN_SYSCALL}


def gather(events, sizes=(10**9,), cut=lambda: False):
    """Return the sums of events that are fed in chunks, and the blocks and workers."""
    replayer, blocks, _ = streamed(events, sizes, cut)
    workers = replayer.workers()
    end = max(events.end, blocks[-1].cut)
    sums = Gathered(len(workers), len(replayer.processors), workers.idle_cpu >= 0, end)
    for block in blocks:
        sums.add(block.intervals(), block.stolen(), block.ran())
    sums.waits.finish()
    return sums, BlockList(blocks), workers, replayer.processors


def waits_of(whole, worker):
    """The waits of a worker for a processor: begin, end, whether it ran just before."""
    found, before = [], None
    for row in range(whole.start[worker], whole.start[worker + 1]):
        begin, end, state = (int(c[row]) for c in (whole.begin, whole.end, whole.state))
        follows = before is not None and before[0] == begin
        if state == State.WAIT_CPU:
            if follows and before[1] == State.WAIT_CPU:
                found[-1][1] = end
            else:
                found.append([begin, end, follows and before[1] in RUNS])
        before = end, state
    return found


def rank(values, q):
    return sorted(values)[max(math.ceil(q * len(values)) - 1, 0)] if values else -1


@given(SCHEDULES, st.data())
def test_sums_are_those_of_the_rows(events, data):
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=60, max_size=60))
    sums, _, workers, processors = gather(events, (*sizes, 10**9), lambda: data.draw(st.booleans()))
    whole = replay(events)
    turns, moves, wakes, woken = Counter(), Counter(), Counter(), Counter()
    places = defaultdict(list)
    busy, idle = Counter(), Counter()
    for processor in range(len(processors)):
        for row in range(whole.ran_start[processor], whole.ran_start[processor + 1]):
            worker = int(whole.ran_worker[row])
            length = int(whole.ran_end[row] - whole.ran_begin[row])
            if workers.idle_cpu[worker] >= 0:
                idle[processor] += length
                continue
            busy[processor] += length
            turns[worker] += 1
            held = int(whole.ran_begin[row]), int(whole.ran_end[row]), processor
            places[worker].append(held)
    for worker, held in places.items():
        pairs = list(zip(sorted(held), sorted(held)[1:], strict=False))
        moves[worker] = sum(a[2] != b[2] for a, b in pairs)
        if any(a[1] >= b[0] for a, b in pairs):  # on two at once: the order means nothing
            moves[worker] = int(sums.migrations[worker])
    for worker in range(len(workers)):
        rows = slice(int(whole.start[worker]), int(whole.start[worker + 1]))
        length = whole.end[rows] - whole.begin[rows]
        expected = np.bincount(whole.state[rows], length, len(State))
        assert sums.states[worker].tolist() == expected.tolist()
        waits = waits_of(whole, worker)
        longest = max(waits, key=lambda w: (w[1] - w[0], -w[0]), default=[0, 0])
        assert sums.waits.count[worker] == len(waits)
        assert sums.waits.preempted[worker] == sum(w[2] for w in waits)
        assert sums.waits.length[worker] == longest[1] - longest[0]
        if waits:
            assert sums.waits.begin[worker] == longest[0]
        for row in range(rows.start, rows.stop):
            if State(int(whole.state[row])) in WAITS - {State.WAIT_CPU} and whole.woken[row] >= 0:
                woken[worker] += 1
                wakes[int(whole.waker[row])] += whole.waker[row] >= 0
    every = np.arange(len(workers))
    found = sums.waits.quantiles(every, len(workers), QUANTILES)
    lengths = [[e - b for b, e, _ in waits_of(whole, worker)] for worker in every]
    for q, values in zip(QUANTILES, found, strict=True):
        assert values.tolist() == [rank(of, q) for of in lengths]
    together = [length for of in lengths for length in of]
    for q, values in zip(QUANTILES, sums.waits.quantiles(every * 0, 1, QUANTILES), strict=True):
        assert values.tolist() == [rank(together, q)]
    for counted, column in (
        *((turns, sums.turns), (moves, sums.migrations), (wakes, sums.wakes)),
        *((woken, sums.woken), (busy, sums.busy), (idle, sums.idle)),
    ):
        assert column.tolist() == [counted[at] for at in range(len(column))]


@given(SCHEDULES, st.data())
def test_nothing_is_longer_than_the_recording(events, data):
    sums, *_ = gather(events, (7,) * 60, lambda: data.draw(st.booleans()))
    span = events.end - events.begin
    assert (sums.states.sum(axis=1) <= span).all()
    assert (sums.busy + sums.idle <= span).all()
    assert (sums.begin[sums.end > sums.begin] >= events.begin).all()
    assert (sums.wakes.sum() <= sums.woken.sum()).all()


@given(SCHEDULES, st.data())
def test_who_had_a_processor_is_found_in_whatever_blocks(events, data):
    _, blocks, workers, processors = gather(events, (5,) * 60, lambda: data.draw(st.booleans()))
    whole = replay(events)
    idle = workers.idle_cpu >= 0
    times = st.integers(events.begin - 2, events.end + 2)
    windows = [
        (
            data.draw(st.integers(-1, len(processors) - 1)),
            *sorted(data.draw(st.tuples(times, times))),
        )
        for _ in range(4)
    ]
    for (place, low, high), found in zip(windows, find_holders(blocks, windows, idle), strict=True):
        had = Counter()
        rows = range(whole.ran_start[place], whole.ran_start[place + 1]) if place >= 0 else ()
        for row in rows:
            begin, end = max(int(whole.ran_begin[row]), low), min(int(whole.ran_end[row]), high)
            if end > begin:
                had[int(whole.ran_worker[row])] += end - begin
        assert found.time == max(had.values(), default=0)
        assert had[found.worker] == found.time
        assert found.others == sum(not idle[w] for w in had if w != found.worker)


def test_a_wait_that_was_cut_is_one():
    """A thread that is preempted while who had asked it waits, and what blocks cut."""
    rows = [
        (0, 0, Kind.SWITCH, (0, 0, 1)),
        (10, 0, Kind.SWITCH, (1, 0, 2)),
        (20, 0, Kind.SWITCH, (2, 0, 3)),
        (30, 0, Kind.SWITCH, (3, 0, 1)),
        (40, 0, Kind.SWITCH, (1, 1, 0)),
    ]
    for cut in (False, True):
        sums, _, workers, _ = gather(build(rows), (1,) * 9, lambda cut=cut: cut)
        mine = workers.tid.tolist().index(1)
        assert (sums.waits.count[mine], sums.waits.preempted[mine]) == (1, 1)
        assert (sums.waits.length[mine], sums.waits.begin[mine]) == (20, 10)
        assert (sums.turns[mine], sums.migrations[mine]) == (2, 0)


def test_waits_of_several_threads_go_on_in_a_later_block():
    """Threads 1, 2 and 3 wait all along, while others come and go and blocks are cut."""
    rows = [(0, 0, Kind.WAKEUP_NEW, (tid,)) for tid in (1, 2, 3)]
    rows += [(tid, 0, Kind.SWITCH, (0 if tid == 4 else tid - 1, 0, tid)) for tid in range(4, 9)]
    rows += [(9, 0, Kind.SWITCH, (8, 1, 1)), (19, 0, Kind.SWITCH, (1, 1, 2))]
    rows += [(29, 0, Kind.SWITCH, (2, 1, 3)), (39, 0, Kind.SWITCH, (3, 1, 0))]
    sums, _, workers, _ = gather(build(rows), (1,) * 20, lambda: True)
    waited = dict(zip(workers.tid.tolist(), sums.waits.length.tolist(), strict=True))
    assert [waited[tid] for tid in (1, 2, 3)] == [9, 19, 29]
