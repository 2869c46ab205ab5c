"""Waits with time-outs and tries for file locks: who had what was waited for, drawn.

Thread 1 waits on cpu 0; thread 2 works on cpu 1, and thread 3 besides.  Times in microseconds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "oracle"))
import replay as twin
from building import FUNCTIONS, KSOFTIRQD, build
from test_against_twin import schedules

from critpath.graph.execution_graph import critical_paths
from critpath.model import Kind, Loss, State
from critpath.timeline import holders
from critpath.timeline.replay import replay

SWITCH, WAKING, LOCK = Kind.SWITCH, Kind.WAKING, Kind.FILE_LOCK
LENGTH = 5000  # of a sleep until it times out
READ, WRITE, FREE = 0, 1, 2


def timed(begin, tid=1, cpu=0, length=LENGTH):
    """A thread sleeps until a timer."""
    end = begin + length
    return [
        (begin, cpu, SWITCH, (tid, 1, 0)),
        (end, cpu, Kind.TIMER_ENTRY, ()),
        (end, cpu, WAKING, (tid,)),
        (end + 1, cpu, Kind.TIMER_EXIT, ()),
        (end + 2, cpu, SWITCH, (0, 0, tid)),
    ]


def waits(begin, timeouts=2, tail=1000, run=20, waker=(2, 1)):
    """Thread 1 waits with time-outs, until another wakes it; return the end too."""
    rows = []
    for _ in range(timeouts):
        rows += timed(begin)
        begin += LENGTH + 2 + run
    end = begin + tail
    rows += [(begin, 0, SWITCH, (1, 1, 0)), (end, waker[1], WAKING, (1,))]
    rows += [(end + 5, 0, SWITCH, (0, 0, 1))]
    return rows, end + 500


def scene(*pieces, first=((0, 0, SWITCH, (0, 0, 1)), (0, 1, SWITCH, (0, 0, 2)))):
    rows = sorted([*first, *(row for piece in pieces for row in piece)], key=lambda row: row[0])
    return [(time * 1000, *row) for time, *row in rows]


def many(times=3, **options):
    rows, begin = [], 1000
    for _ in range(times):
        more, begin = waits(begin, **options)
        rows += more
    return rows, begin


def holds_of(rows, **options):
    """The holds as (holder's tid, released, sleeper's tid, end), in microseconds."""
    timelines = replay(build(rows, **options))
    tid = timelines.workers.tid.tolist()
    return [(tid[h], sent // 1000, tid[s], end // 1000) for h, sent, s, end in timelines.holds]


def path_of(rows):
    timelines = replay(build(rows))
    [one] = np.flatnonzero(timelines.workers.tid == 1)
    last = rows[-1][0]
    path = critical_paths(timelines, np.array([one]), np.array([1]), np.array([last]))
    return {
        (State(state).name, tid): int((path.end - path.begin)[rows].sum()) // 1000
        for state, tid in set(zip(path.state.tolist(), path.tid.tolist(), strict=True))
        for rows in [(path.state == state) & (path.tid == tid)]
    }


def test_time_outs_are_of_the_thread_that_ends_the_wait_and_worked_all_the_time():
    rows, _ = many()
    found = holds_of(scene(rows))
    assert len(found) == 6
    assert {(holder, sleeper) for holder, _, sleeper, _ in found} == {(2, 1)}
    spent = path_of(scene(rows))
    assert ("WAIT_TIMER", 1) not in spent
    assert spent["RUN", 2] >= 6 * LENGTH


@pytest.mark.parametrize("sleeps", [4, 12])
def test_who_mostly_works_after_sleeping_does_not_wait(sleeps):
    """Thread 1 sleeps on purpose, works, and now and then has to ask thread 2, who never rests."""
    rows, begin = many()
    for _ in range(sleeps):
        rows += timed(begin)
        begin += LENGTH + 500  # it works in between
    assert len(holds_of(scene(rows))) == (6 if sleeps < 6 else 0)


def test_two_time_outs_are_chance():
    assert holds_of(scene(many(times=1)[0])) == []


def test_who_does_something_else_in_between_waits_anew():
    assert holds_of(scene(many(run=60)[0])) == []


def test_the_last_sleep_is_no_longer_than_a_time_out():
    assert holds_of(scene(many(tail=LENGTH + 300)[0])) == []
    assert holds_of(scene(many(tail=LENGTH)[0]))


def test_a_sleep_of_another_length_is_no_try():
    """Thread 1 sleeps on purpose, and then waits with time-outs."""
    rows, begin = [], 1000
    for _ in range(6):
        rows += timed(begin, length=1000)
        more, end = waits(begin + 1020)
        rows += more
        begin = end
    found = holds_of(scene(rows))
    assert len(found) == 12
    assert not {end for *_, end in found} & {t for t, *_ in timed(1000, length=1000)}


def test_lost_events_end_a_wait():
    rows = scene(many()[0])
    everything = Loss(rows[0][0], rows[-1][0], 0, -1, 1, 0, "discarded")
    assert holds_of(rows, losses=[everything]) == []


def test_other_system_calls_are_other_waits():
    rows, begin, call = [], 1000, Kind.SYSCALL_ENTRY
    for _ in range(5):
        more, end = waits(begin, timeouts=1)
        rows += [*more, (begin - 5, 0, call, ("clock_nanosleep",))]
        rows += [(begin + LENGTH + 3, 0, call, ("read",))]
        begin = end
    assert holds_of(scene(rows)) == []
    same = [(t, c, k, ("futex",) if k == call else f) for t, c, k, f in rows]
    assert len(holds_of(scene(same))) == 5


@pytest.mark.parametrize("asks", [False, True])
def test_a_server_that_sleeps_until_it_is_asked_is_no_holder(asks):
    """Thread 1 paces itself by a timer; a server happens to work at half of its time-outs."""
    rows, begin = [], 10_000
    for round_ in range(8):
        more, end = waits(begin, timeouts=1)
        rows += more
        timeout = begin + LENGTH
        if round_ % 2 or asks:
            rows += [(begin - 100, 1, SWITCH, (2, 1, 0)), (timeout + 10, 0, WAKING, (2,))]
            rows += [(timeout + 20, 1, SWITCH, (0, 0, 2))]
        begin = end + 3000
    assert holds_of(scene(rows)) == []


def test_an_unrelated_thread_that_works_throughout_is_no_holder():
    """Thread 2 computes without end on cpu 1; thread 3 is asked, and answers, on cpu 2."""
    rows, begin = [(1, 2, SWITCH, (0, 0, 3)), (2, 2, SWITCH, (3, 1, 0))], 1000
    for _ in range(6):
        more, end = waits(begin, timeouts=1, waker=(3, 2))
        asked = begin + LENGTH + 10
        rows += [*more, (asked, 0, WAKING, (3,)), (asked + 5, 2, SWITCH, (0, 0, 3))]
        rows += [(end - 400, 2, SWITCH, (3, 1, 0))]
        begin = end
    assert holds_of(scene(rows)) == []


def test_a_holder_that_hands_on_before_the_end_is_followed():
    """Thread 3 waits as well, gets it from 2 and gives it to 1."""
    rows, begin = [(1, 2, SWITCH, (0, 0, 3))], 1000
    for _ in range(5):
        more, end = waits(begin, timeouts=1, waker=(3, 2))
        rows += [(begin - 50, 2, SWITCH, (3, 1, 0)), *more]
        rows += [(begin + LENGTH + 200, 1, WAKING, (3,))]
        rows += [(begin + LENGTH + 210, 2, SWITCH, (0, 0, 3))]
        begin = end
    assert [holder for holder, *_ in holds_of(scene(rows))] == [2] * 5


# The address of the futex that is waited on, and woken.
FUTEX, DONE = Kind.FUTEX, Kind.SYSCALL_EXIT


def futex_waits(begin, timeouts=2, waited=64, woken=64, **options):
    """As `waits`, in system calls of a futex."""
    rows, end = waits(begin, timeouts, **options)
    sleeps = [row for row in rows if row[2] == SWITCH and row[3][0] == 1]
    rows += [(time - 1, 0, FUTEX, (waited,)) for time, *_ in sleeps]
    rows += [(row[0] + 1, 0, DONE, ()) for row in rows if row[2] == SWITCH and row[3][2] == 1]
    [(wake, cpu, *_)] = [row for row in rows if row[2] == WAKING and row[1] != 0]
    return [*rows, (wake - 1, cpu, FUTEX, (woken,)), (wake + 1, cpu, DONE, ())], end


def test_who_wakes_the_futex_that_was_waited_on_is_the_holder():
    """Once is enough, and the holder may sleep meanwhile, as one who keeps a lock."""
    rows, _ = futex_waits(10_000, woken=68)  # of the two words of one condition variable
    rows += [(12_000, 1, SWITCH, (2, 1, 0)), *timed(12_000, tid=2, cpu=1, length=9000)[1:]]
    [one, two] = holds_of(scene(rows))
    assert one == (2, 15_000, 1, 15_000)
    assert two[0] == 2


def test_another_futex_is_another_wait():
    assert holds_of(scene(futex_waits(10_000, waited=64, woken=72)[0])) == []
    rows = [
        (t, c, k, (128,) if k == FUTEX and c == 0 and t < 12_000 else f)
        for t, c, k, f in futex_waits(10_000)[0]
    ]
    assert len(holds_of(scene(rows))) == 1  # the second time-out only


def test_lost_events_hide_what_a_futex_tells():
    rows = scene(futex_waits(10_000)[0])
    everything = Loss(rows[0][0], rows[-1][0], 0, -1, 1, 0, "discarded")
    assert holds_of(rows, losses=[everything]) == []


# File locks: (what it returns, inode, owner, type, first, last byte).
def locks(time, cpu, ret, kind, owner, inode=9, first=0, last=10):
    return (time, cpu, LOCK, (ret, inode, owner, kind, first, last))


def test_a_refused_file_lock_is_its_holders():
    rows = [locks(100, 1, 0, WRITE, 2), locks(900, 0, -11, WRITE, 1), *timed(1000)]
    rows += [locks(6100, 0, -11, READ, 1), *timed(6200), locks(8000, 1, 0, FREE, 2)]
    rows += [locks(11_300, 0, 0, READ, 1), *timed(11_500), (20_000, 0, SWITCH, (1, 1, 0))]
    assert holds_of(scene(rows)) == [(2, 6000, 1, 6000), (2, 8000, 1, 11_200)]
    spent = path_of(scene(rows))
    # What it slept for too long, and what it did not sleep for a lock.
    assert spent["WAIT_TIMER", 1] == 3200 + LENGTH


@pytest.mark.parametrize(
    "held",
    [
        locks(100, 1, 0, READ, 2),
        locks(100, 1, 0, WRITE, 2, inode=8),
        locks(100, 1, 0, WRITE, 2, first=11, last=20),
        locks(100, 1, 0, WRITE, 1),
        locks(100, 1, -11, WRITE, 2),
    ],
)
def test_a_lock_that_does_not_conflict_is_nobodys(held):
    rows = [held, locks(900, 0, -11, READ, 1), *timed(1000)]
    assert holds_of(scene(rows)) == []


def test_a_part_of_a_range_that_is_given_back_is_free():
    rows = [locks(100, 1, 0, WRITE, 2, last=20), locks(200, 1, 0, FREE, 2, last=10)]
    assert holds_of(scene([*rows, locks(900, 0, -11, READ, 1), *timed(1000)])) == []
    rows.append(locks(900, 0, -11, READ, 1, first=11, last=12))
    assert len(holds_of(scene([*rows, *timed(1000)]))) == 1


def records_of(rows, end):
    """What the replay says of every timed sleep, as the twin has it."""
    with mock.patch("critpath.timeline.replay.find_holds", wraps=holders.find_holds) as spied:
        replay(build(rows, end=end))
    record, workers = spied.call_args.args[1:3]
    tid = workers.tid.tolist()
    names = {-1: "none", -2: "some"}
    return sorted(
        (
            *(tid[s], b, e),
            names[h] if h < 0 else tid[h],
            since if h >= 0 else 0,
            None if w < 0 else tid[w],
            None if a < 0 else a,
            observed,
        )
        for s, b, e, h, since, w, a, observed in zip(*(c.tolist() for c in record[:8]), strict=True)
    )


@given(schedules(), st.sampled_from([1, 4000, 15_000, 400_000]))
def test_random_schedules(drawn, scale):
    rows, end = drawn
    if not any(kind == Kind.SWITCH for _, _, kind, _ in rows):
        return
    rows = [(time * scale, *row) for time, *row in rows]
    lives = twin.replay(rows, ksoftirqd=KSOFTIRQD, functions=FUNCTIONS, end=end * scale)
    number = {id(thread): tid for tid, thread in lives}
    expected = [
        (
            *(tid, begin, until),
            holder if isinstance(holder, str) else number[id(holder)],
            since if not isinstance(holder, str) else 0,
            None if waker is None else number[id(waker)],
            refused,
            observed,
        )
        for tid, thread in lives
        for begin, until, holder, since, waker, refused, observed in thread.tries
    ]
    key = repr
    assert sorted(records_of(rows, end * scale), key=key) == sorted(expected, key=key)
