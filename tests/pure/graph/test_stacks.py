"""Stacks get to the segments of paths that they belong to, and to no others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from critpath.graph.stacks import add_stacks, find_sleeps, usual_distance
from critpath.model import CriticalPaths, Executions, PathSet, State
from critpath.model.stacks import (
    RUN,
    SAMPLE,
    SLEEP,
    WAKE,
    Frame,
    Frames,
    Stacks,
    location_of,
)
from critpath.schema.parameters.replay import WAITING

NONE = Frames((), (), np.zeros(0, np.int32), (), np.zeros(0, np.bool_))
US = 1000


def path_of(*segments):
    """Return one path of thread 7: (state, thread, microseconds), from 1 ms on."""
    n = len(segments)
    edges = (1000 + np.cumsum([0, *(length for *_, length in segments)])) * US
    tid = np.array([thread for _, thread, _ in segments], np.int64)
    zeros = np.zeros(n, np.int64)
    narrow = np.zeros(n, np.int32)
    state = np.array([state for state, *_ in segments], np.uint8)
    paths = CriticalPaths(
        *(np.array([0, n]), edges[:-1], edges[1:], state, narrow, narrow, tid, zeros, narrow),
        *(np.zeros(n, np.bool_), ("",)),
    )
    one = np.zeros(1, np.int64)
    executions = Executions(("0",), edges[:1], edges[-1:], one + 7, one, ("",), ("",))
    return PathSet(executions, paths, one, ("here",), "thread", (), np.zeros(1, np.bool_))


def stacks_of(*rows, complete=False):
    """Return stacks: (microseconds, thread, whom it woke, kind), each one of its own."""
    time, tid, woken, kind = np.array(sorted(rows), np.int64).reshape(-1, 4).T
    stacks = [(Frame(f"f{at}_{of}", "", 0, "app"),) for at, of in zip(time, tid, strict=True)]
    which = np.arange(len(time), dtype=np.int32)
    return Stacks(time * US, tid, woken, kind.astype(np.uint8), which, stacks, NONE, complete)


def joined(paths, stacks):
    found = add_stacks(paths, stacks).paths
    return [
        tuple(found.stacks[code][0].function if code >= 0 else None for code in pair)
        for pair in zip(found.stack.tolist(), found.waker_stack.tolist(), strict=True)
    ]


def test_a_wait_has_the_stack_of_its_sleep_and_of_its_wake():
    paths = path_of((State.RUN, 7, 100), (State.WAIT_TASK, 7, 500), (State.RUN, 7, 100))
    stacks = stacks_of((1102, 7, 0, SLEEP), (1597, 9, 7, WAKE), (1300, 9, 0, SLEEP))
    assert joined(paths, stacks) == [("f1102_7", None), ("f1102_7", "f1597_9"), (None, None)]


def test_a_wait_that_an_interrupt_ended_has_no_waker():
    """Whoever was on the processor when the timer or the disk was done has not woken anybody."""
    stacks = stacks_of((1102, 7, 0, SLEEP), (1597, 9, 7, WAKE))
    for state in (State.WAIT_TIMER, State.WAIT_DISK, State.WAIT_NET, State.WAIT_DEVICE):
        paths = path_of((State.RUN, 7, 100), (state, 7, 500), (State.RUN, 7, 100))
        assert joined(paths, stacks)[1] == ("f1102_7", None)


def test_a_thread_that_runs_for_another_has_the_stack_of_the_wake():
    paths = path_of((State.RUN, 7, 100), (State.RUN, 9, 500), (State.RUN, 7, 100))
    stacks = stacks_of((1100, 7, 0, SLEEP), (1600, 9, 7, WAKE), (1700, 7, 0, SLEEP))
    assert joined(paths, stacks) == [("f1100_7", None), ("f1600_9", None), ("f1700_7", None)]


def test_samples_say_where_a_thread_ran():
    paths = path_of((State.RUN, 7, 30_000))
    samples = [(1000 + 5000 * i, 7, 0, RUN) for i in range(1, 6)]
    assert joined(paths, stacks_of(*samples, (31_000, 7, 0, SLEEP))) == [("f16000_7", None)]


def test_the_sample_that_an_interrupt_takes_is_of_what_runs_around_it():
    """It lies in the interrupt, and what runs behind that would have the stack of its wake."""
    paths = path_of(
        *((State.WAIT_TASK, 7, 50), (State.RUN, 9, 4000), (State.IRQ, 9, 5), (State.SOFTIRQ, 9, 9)),
        *((State.RUN, 9, 900), (State.RUN, 7, 100), (State.IRQ, 7, 5)),
    )
    stacks = stacks_of((5052, 9, 0, RUN), (5964, 9, 7, WAKE), (6066, 7, 0, RUN), (6300, 7, 0, RUN))
    at = [name for name, _ in joined(paths, stacks)]
    assert at[1:] == ["f5052_9", None, None, "f5052_9", "f6066_7", None]


def test_waits_for_a_cpu_have_none_and_others_threads_none_either():
    paths = path_of((State.WAIT_CPU, 7, 100), (State.WAIT_TIMER, 7, 100))
    assert joined(paths, stacks_of((1000, 7, 0, SLEEP), (1100, 8, 0, SLEEP))) == [(None, None)] * 2


@given(
    st.lists(st.tuples(st.integers(120, 3000), st.integers(1, 50)), min_size=1, max_size=30),
    st.integers(-49, 49),
    st.data(),
)
def test_no_stack_goes_to_another_sleep(lengths, shift, data):
    """Clocks apart by less than `APART`, any stacks lost: each sleep has its own or none."""
    segments = [
        (s, 7, n) for w, r in lengths for s, n in ((State.WAIT_DISK, w), (State.RUN, r + 100))
    ]
    paths = path_of(*segments)
    begins = paths.paths.begin[::2] // US
    kept = data.draw(st.sets(st.sampled_from(range(len(begins)))))
    rows = [(int(begins[i]) + shift, 7, 0, SLEEP) for i in kept]
    if not rows:
        return
    found = [stack for stack, _ in joined(paths, stacks_of(*rows))[::2]]
    wanted = [f"f{int(at) + shift}_7" if i in kept else None for i, at in enumerate(begins)]
    assert abs(shift) * US < WAITING.apart
    assert found == wanted


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(12, 400), st.integers(0, 500), st.booleans(), st.booleans()),
            min_size=1, max_size=25,
        ),
        min_size=1, max_size=3,
    ),
    st.sampled_from([0, 0, -45, 45]),
)  # fmt: skip
def test_no_switch_of_any_thread_has_the_stack_of_another(threads, shift):
    """Each: from the last on (us), how late its stack is (ns), and which tracer has lost it.

    They are 12 us apart or more, with shifted clocks so much that both can be told. Of one
    thread, with as many as all others, nothing is lost.
    """
    switches = []
    whole = [(50, n, True, True) for n in range(sum(map(len, threads)))]
    for tid, each in enumerate([whole, *threads], 6):
        at = 1_000_000
        for gap, late, in_trace, in_stacks in each:
            at += (gap + 2 * abs(shift)) * US
            switches.append((tid, at, at + shift * US + 500 + late, in_trace, in_stacks))
    kept = [(time, tid) for tid, _, time, _, there in switches if there]
    traced = [(tid, at, time if there else -1) for tid, at, time, known, there in switches if known]
    time, of = np.array(sorted(kept), np.int64).T
    zeros = np.zeros(len(time), np.int64)
    code = np.arange(len(time), dtype=np.int32)
    stacks = Stacks(time, of, zeros, zeros.astype(np.uint8), code, ("f\t\t0\t",) * len(time), NONE)
    tid, begin, wanted = np.array(traced, np.int64).T
    found = find_sleeps(stacks, tid, begin, usual_distance(stacks, tid, begin))
    assert np.where(found >= 0, time[found], -1).tolist() == wanted.tolist()


def test_without_stacks_there_is_nothing():
    paths = path_of((State.RUN, 7, 100), (State.WAIT_TASK, 7, 500))
    assert joined(paths, stacks_of()) == [(None, None)] * 2
    assert (paths.paths.stack == -1).all()


def test_a_thread_that_has_slept_for_long_has_the_stack_of_that_sleep_unless_any_was_lost():
    paths = path_of((State.RUN, 7, 900), (State.WAIT_TIMER, 9, 500))
    rows = (1200, 9, 0, SLEEP), (1000, 9, 0, SLEEP), (1900, 7, 0, SLEEP), (1960, 9, 0, SLEEP)
    assert joined(paths, stacks_of(*rows, complete=True))[1] == ("f1200_9", None)
    assert joined(paths, stacks_of(*rows))[1] == (None, None)
    nothing = stacks_of((1960, 9, 0, SLEEP), (1900, 8, 0, SLEEP), complete=True)
    assert joined(paths, nothing)[1] == (None, None)


def test_what_the_kernels_threads_do_is_for_the_sleep_of_the_thread_that_waits_for_them():
    """As in fsync: queue and disk are waited for by other threads than its own."""
    segments = ((State.RUN, 7, 100), (State.RUN, 9, 100), (State.WAIT_DISK, 5, 300))
    segments += ((State.RUN, 6, 100), (State.RUN, 9, 100), (State.RUN, 5, 50), (State.RUN, 7, 10))
    paths = path_of(*segments)
    name = np.array([0, 0, 1, 2, 0, 1, 0], np.int32)
    helped = replace(paths.paths, comm=name, strings=("app", "kworker/u4:1", "jbd2/vda-8"))
    paths = replace(paths, paths=helped)
    # Thread 7 waits for 9, which sleeps twice; 5 has events of its own that are of no stack.
    stacks = stacks_of(
        *((1100, 7, 0, SLEEP), (1150, 9, 0, SLEEP), (1199, 9, 0, SLEEP), (1210, 5, 0, SLEEP)),
        *((1690, 9, 0, SLEEP), (1755, 7, 0, SLEEP)),
        complete=True,
    )
    none = replace(stacks, stack=np.where(stacks.tid == 5, -1, stacks.stack).astype(np.int32))
    found = [at for at, _ in joined(paths, none)]
    assert found[2:4] == ["f1199_9", "f1199_9"]
    assert found[5] == "f1100_7"
    lost = replace(none, complete=False)
    assert [at for at, _ in joined(paths, lost)][2:4] == [None, None]


def test_what_the_kernels_threads_do_for_another_meanwhile_is_not_for_that_ones_file():
    """Thread 8 is on the path as a queue is shared; what is waited for is the sleep of 7."""
    segments = ((State.RUN, 7, 100), (State.WAIT_DISK, 5, 100), (State.RUN, 8, 50))
    paths = path_of(*segments, (State.WAIT_DISK, 5, 100), (State.RUN, 7, 10))
    comm = np.array([0, 1, 0, 1, 0], np.int32)
    paths = replace(paths, paths=replace(paths.paths, comm=comm, strings=("app", "kworker/0:1")))
    stacks = stacks_of((1100, 7, 0, SLEEP), (1101, 8, 0, SLEEP), (1255, 8, 0, SLEEP), complete=True)
    found = [at for at, _ in joined(paths, stacks)]
    assert (found[1], found[3]) == ("f1100_7", "f1100_7")


def test_a_thread_that_sleeps_some_time_after_its_wake_is_there_nevertheless():
    """It sends, which wakes the peer, and receives 200 microseconds later."""
    paths = path_of((State.RUN, 7, 100), (State.RUN, 9, 500), (State.RUN, 7, 100))
    stacks = stacks_of((1300, 7, 0, SLEEP), (1900, 7, 0, SLEEP), complete=True)
    assert [at for at, _ in joined(paths, stacks)] == ["f1300_7", None, None]
    early = stacks_of((900, 7, 0, SLEEP), (1900, 7, 0, SLEEP), complete=True)
    assert [at for at, _ in joined(paths, early)] == [None, None, None]


def test_a_short_wait_does_not_get_the_stack_of_the_next():
    paths = path_of((State.RUN, 7, 100), (State.WAIT_TIMER, 7, 20), (State.RUN, 7, 100))
    assert joined(paths, stacks_of((1121, 7, 0, SLEEP)))[1] == (None, None)


def test_a_file_stands_before_the_code_that_waits_for_it():
    paths = path_of((State.RUN, 7, 100), (State.WAIT_TASK, 7, 500), (State.RUN, 7, 100))
    stacks = stacks_of((1102, 7, 0, SLEEP), (1597, 9, 7, WAKE))
    files = replace(stacks_of((1101, 7, 0, SLEEP)), distinct=[(Frame("fsync(a.log)", "", 0, ""),)])
    found = add_stacks(add_stacks(paths, stacks), files).paths
    stack = found.stacks[found.stack[1]]
    assert location_of(stack) == "fsync(a.log) in f1102_7 (app)"
    assert [f.function for f in stack] == ["fsync(a.log)", "f1102_7"]
    assert location_of(found.stacks[found.waker_stack[1]]) == "f1597_9 (app)"


def sampled(paths, *rows):
    """Return the places of segments, by samples 5 ms apart."""
    stacks = stacks_of(*((at, tid, 0, SAMPLE) for at, tid in rows))
    return [stack for stack, _ in joined(paths, replace(stacks, period=5000 * US))]


def test_a_segment_has_the_stack_of_most_samples_within_it():
    paths = path_of((State.RUN, 7, 12_000), (State.WAIT_DISK, 7, 30_000), (State.RUN, 9, 50_000))
    found = sampled(paths, (3000, 7), (11_500, 7), (14_000, 7), (34_000, 7), (90_000, 9))
    assert found == ["f3000_7", "f14000_7", "f90000_9"]


def test_a_segment_without_a_sample_has_no_stack():
    """Between two samples a thread may have been anywhere."""
    paths = path_of((State.RUN, 7, 3000), (State.WAIT_DISK, 7, 2000), (State.RUN, 7, 20_000))
    assert sampled(paths, (2000, 7), (7000, 7)) == ["f2000_7", None, "f7000_7"]
    assert sampled(paths, (2000, 8)) == [None] * 3


def test_what_runs_between_two_samples_of_one_place_was_there():
    """A thread that others interrupt runs for less than a period at a time."""
    paths = path_of(
        (State.RUN, 7, 1200),
        *[(State.WAIT_CPU, 7, 300), (State.RUN, 7, 1200)] * 10,
        *[(State.WAIT_FUTEX, 7, 300), (State.RUN, 7, 300)] * 2,
    )
    found = sampled(paths, (1500, 7), (21_400, 7))
    assert found[:18:2] == ["f1500_7"] * 9
    assert found[22:] == [None] * 3  # the last sample there was before
    assert set(found[1::2]) == {None}  # no wait
    # Samples of another place came between.
    found = sampled(paths, (1500, 7), (6400, 7), (7900, 7))
    assert found[4] is None


def test_what_others_are_waited_for_in_is_where_the_thread_is_meanwhile():
    """The path goes to the other; what the thread ran before was sampled where it ran last."""
    paths = path_of((State.RUN, 7, 6000), (State.RUN, 7, 900), (State.RUN, 9, 40_000))
    again = path_of((State.RUN, 7, 900), (State.RUN, 9, 40_000), (State.RUN, 7, 100))
    rows = ((1100, 7), (2100, 7), (30_000, 7))
    assert sampled(again, *rows)[0] == "f2100_7"
    assert sampled(paths, *rows)[1] != "f30000_7"  # never on the path again
    short = path_of((State.RUN, 7, 900), (State.RUN, 9, 700), (State.RUN, 7, 100))
    assert sampled(short, (1100, 7), (9000, 7))[0] == "f1100_7"


def test_a_place_in_which_others_are_waited_for_is_none_at_which_threads_run():
    """It is on the path only where its thread runs: while it sleeps, the others are."""
    paths = path_of(*[(State.RUN, 7, 900), (State.RUN, 9, 30_000), (State.RUN, 7, 6000)] * 3)
    rows = [(1000 + 36_900 * i + at, 7, 0, SAMPLE) for i in range(3) for at in (2000, 34_900)]
    stacks = replace(
        stacks_of(*rows),
        distinct=[(Frame(name, "", 0, "app"),) for name in ("query", "idle")],
        stack=np.array([0, 1] * 3, np.int32),
        period=5000 * US,
    )
    assert [at for at, _ in joined(paths, stacks)][::3] == ["query"] * 3


def test_a_sample_is_of_one_row_though_it_lies_beside_its_period():
    paths = path_of((State.RUN, 7, 900), (State.RUN, 9, 200), (State.RUN, 7, 10))
    assert sampled(paths, (-2950, 7), (2150, 7)) == [None] * 3


@given(st.integers(0, 100), st.integers(0, 4999), st.integers(10, 60))
def test_a_place_is_one_at_which_threads_sleep_or_run(early, phase, rounds):
    """A thread waits for 7 ms in one place and runs for 6 ms in another; samples come too early."""
    paths = path_of(*[(State.WAIT_DISK, 7, 7000), (State.RUN, 7, 6000)] * rounds)
    times = np.arange(1000 + phase, 1000 + 13_000 * rounds, 5000)
    waits = (times - 1000) % 13_000 < 7000
    changes = np.append(True, np.diff(waits) != 0)
    rows = [(int(at) - early, 7, 0, SAMPLE) for at in times[changes]]
    stacks = stacks_of(*rows)
    stacks = replace(
        stacks,
        distinct=[(Frame(name, "", 0, "app"),) for name in ("run", "wait")],
        stack=waits[changes].astype(np.int32),
        period=5000 * US,
    )
    found = [stack for stack, _ in joined(paths, stacks)]
    wrong = [
        (n, stack) for n, stack in enumerate(found) if stack not in (None, ("wait", "run")[n % 2])
    ]
    assert len(wrong) <= len(found) // 5


def test_stacks_of_threads_that_are_on_no_path_cost_nothing():
    paths = path_of((State.RUN, 7, 20), (State.WAIT_FUTEX, 7, 100))
    stacks = stacks_of((1020, 7, 0, SLEEP), (1030, 9, 0, SLEEP), (1120, 8, 7, WAKE))
    found = add_stacks(paths, stacks).paths.stacks
    assert [stack[0].function for stack in found] == ["f1020_7", "f1120_8"]
