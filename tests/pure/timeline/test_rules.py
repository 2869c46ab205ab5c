"""Each rule of the specification's section 3, and each context, drawn.

Thread 1 is the subject, 2 its waker, on cpu 0 and 1; times are small numbers.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from detailing import texts_of

sys.path.insert(0, str(Path(__file__).parent))
from building import build, drawn

from critpath.errors import UnreadableError
from critpath.graph.execution_graph import critical_paths
from critpath.model import Kind, Loss, State
from critpath.model.task_states import UNKNOWN_RELEASE, find_prev_state
from critpath.timeline.contexts import SOFTIRQS, device_state
from critpath.timeline.replay import replay

SWITCH, WAKING, WAKEUP = Kind.SWITCH, Kind.WAKING, Kind.WAKEUP


def on(time, tid, cpu=0):
    """The thread gets the cpu from idle."""
    return (time, cpu, SWITCH, (0, 0, tid))


def off(time, tid, state, cpu=0):
    """The thread leaves the cpu to idle."""
    return (time, cpu, SWITCH, (tid, state, 0))


def life(rows, tid=1, **options):
    (text,) = drawn(replay(build(rows, **options)), tid)
    return text


def test_a_wake_by_a_thread():
    rows = [
        *(on(0, 1), on(0, 2, 1), off(10, 1, 1)),
        (20, 1, WAKING, (1, 0)),
        (22, 0, WAKEUP, (1, 0)),
        *(on(30, 1), off(40, 1, 0)),
    ]
    # The waker and its time are waking's; runnable only from wakeup on.
    assert life(rows) == "0-10 RUN, 10-22 WAIT_TASK<2@20, 22-30 WAIT_CPU, 30-40 RUN"


def test_without_waking_the_waker_is_wakeups():
    rows = [on(0, 1), on(0, 2, 1), off(10, 1, 1), (22, 1, WAKEUP, (1, 0)), on(30, 1), off(40, 1, 0)]
    assert life(rows) == "0-10 RUN, 10-22 WAIT_TASK<2@22, 22-30 WAIT_CPU, 30-40 RUN"


def test_wakeup_is_read_in_no_context_where_waking_exists():
    """sched_wakeup comes from the target's cpu, where anything may run."""
    rows = [
        *(on(0, 1), on(0, 2, 1), off(10, 1, 1), on(12, 3)),
        *((15, 1, WAKING, (4, 0)), (22, 0, WAKEUP, (1, 0))),
        *((30, 0, SWITCH, (3, 1, 1)), off(40, 1, 0)),
    ]
    assert "10-22 WAIT_UNEXPLAINED(context_unknown)<@22" in life(rows)


def test_waking_without_wakeup_makes_runnable():
    rows = [on(0, 1), on(0, 2, 1), off(10, 1, 1), (20, 1, WAKING, (1, 0)), on(30, 1), off(40, 1, 0)]
    assert life(rows) == "0-10 RUN, 10-20 WAIT_TASK<2@20, 20-30 WAIT_CPU, 30-40 RUN"


@pytest.mark.parametrize("kind", [WAKING, WAKEUP])
def test_a_wake_that_races_the_switch_out_ends_the_block(kind):
    """Rule 3: nothing blocked, all of it is waiting for the cpu."""
    rows = [on(0, 1), on(0, 2, 1), (9, 1, kind, (1, 0)), off(10, 1, 1), on(30, 1), off(40, 1, 0)]
    assert life(rows) == "0-10 RUN, 10-30 WAIT_CPU, 30-40 RUN"


def test_the_late_half_of_a_racing_wake_is_not_a_second_one():
    rows = [
        *(on(0, 1), on(0, 2, 1), (9, 1, WAKING, (1, 0)), off(10, 1, 1)),
        *((12, 0, WAKEUP, (1, 0)), on(30, 1), off(40, 1, 0)),
    ]
    assert life(rows) == "0-10 RUN, 10-30 WAIT_CPU, 30-40 RUN"


def test_a_later_wake_takes_the_place_of_one_that_raced():
    rows = [
        *(on(0, 1), on(0, 2, 1), (9, 1, WAKING, (1, 0)), off(10, 1, 1)),
        *((20, 1, WAKING, (1, 0)), (21, 0, WAKEUP, (1, 0)), on(30, 1), off(40, 1, 0)),
    ]
    assert life(rows) == "0-10 RUN, 10-21 WAIT_TASK<2@20, 21-30 WAIT_CPU, 30-40 RUN"


def test_a_wake_long_before_a_sleep_does_not_end_it():
    rows = [
        *(on(0, 1), on(0, 2, 1), (5, 1, WAKING, (1, 0)), off(10, 1, 0)),
        *(on(12, 1), off(20, 1, 1), on(30, 1), off(40, 1, 0)),
    ]
    assert life(rows) == (
        "0-10 RUN, 10-12 WAIT_CPU, 12-20 RUN, 20-30 WAIT_UNEXPLAINED(no_wake), 30-40 RUN"
    )


def test_a_second_wake_of_a_runnable_thread_is_ignored():
    """Rule 4: no false edge, no new begin of the wait."""
    rows = [
        *(on(0, 1), on(0, 2, 1), off(10, 1, 1)),
        *((20, 1, WAKING, (1, 0)), (21, 0, WAKEUP, (1, 0))),
        *((25, 1, SWITCH, (2, 0, 3)), (26, 1, WAKING, (1, 0)), (27, 0, WAKEUP, (1, 0))),
        *(on(30, 1), off(40, 1, 0)),
    ]
    assert life(rows) == "0-10 RUN, 10-21 WAIT_TASK<2@20, 21-30 WAIT_CPU, 30-40 RUN"


def test_a_wake_of_a_preempted_thread_is_ignored():
    rows = [
        *(on(0, 1), on(0, 2, 1), off(10, 1, 256), (15, 1, WAKING, (1, 0)), (16, 1, WAKEUP, (1, 0))),
        *(on(30, 1), off(40, 1, 0)),
    ]
    assert life(rows) == "0-10 RUN, 10-30 WAIT_CPU, 30-40 RUN"


def test_idle_is_never_a_waker():
    """Rule 5."""
    rows = [on(0, 1), on(0, 2, 1), off(5, 2, 1, 1), off(10, 1, 1), (20, 1, WAKING, (1, 0)),
            (20, 0, WAKEUP, (1, 0)), on(30, 1), off(40, 1, 0)]  # fmt: skip
    assert life(rows).startswith("0-10 RUN, 10-20 WAIT_UNEXPLAINED(idle_waker)<@20, 20-30 WAIT_CPU")


def test_a_waker_whose_cpu_was_never_seen_is_unknown():
    rows = [on(0, 1), off(10, 1, 1), (20, 1, WAKING, (1, 0)), on(30, 1), off(40, 1, 0)]
    assert "10-20 WAIT_UNEXPLAINED(context_unknown)<@20" in life(rows)


def test_a_sleep_that_nobody_ended():
    rows = [on(0, 1), off(10, 1, 1), on(30, 1), off(40, 1, 0)]
    assert life(rows) == "0-10 RUN, 10-30 WAIT_UNEXPLAINED(no_wake), 30-40 RUN"


# A device's interrupt, which may raise softirqs: of those without it, some are a thread's doing.
DEVICE = ((Kind.IRQ_ENTRY, (7, "device")), (Kind.IRQ_EXIT, (7,)))


def wake_in(*context):
    """Thread 1 sleeps 10-20 and is woken on cpu 1, where thread 2 runs, inside a context."""
    return [
        *(on(0, 1), on(0, 2, 1), off(10, 1, 1)),
        *((16 + i, 1, kind, fields) for i, (kind, fields) in enumerate(context)),
        *((20, 1, WAKING, (1, 0)), (20, 0, WAKEUP, (1, 0)), on(30, 1), off(40, 1, 0)),
    ]


@pytest.mark.parametrize(
    ("context", "what"),
    [
        (((Kind.TIMER_ENTRY, ()),), "WAIT_TIMER(hrtimer)"),
        (((Kind.IRQ_ENTRY, (7, "rcar-du")),), "WAIT_DEVICE(rcar-du)"),
        (((Kind.IRQ_ENTRY, (7, "virtio0-req.1")),), "WAIT_DISK(virtio0-req.1)"),
        (((Kind.IRQ_ENTRY, (7, "virtio1-input.0")),), "WAIT_NET(virtio1-input.0)"),
        *(
            ((*DEVICE, (Kind.SOFTIRQ_ENTRY, (vec,))), f"{state.name}({name})")
            for vec, (name, state) in enumerate(SOFTIRQS)
        ),
        (((Kind.SOFTIRQ_ENTRY, (33,)),), "WAIT_SOFTIRQ(softirq)"),
        # The innermost counts.
        (((Kind.IRQ_ENTRY, (7, "nvme0q1")), (Kind.SOFTIRQ_ENTRY, (4,))), "WAIT_DISK(BLOCK)"),
        (((Kind.SOFTIRQ_ENTRY, (1,)), (Kind.IRQ_ENTRY, (7, "eth0"))), "WAIT_NET(eth0)"),
        # One that has been left does not.
        (((Kind.SOFTIRQ_ENTRY, (3,)), (Kind.SOFTIRQ_EXIT, (3,))), "WAIT_TASK<2"),
    ],
)
def test_the_context_of_the_wake_says_what_was_waited_for(context, what):
    text = life(wake_in(*context))
    assert text.startswith(f"0-10 RUN, 10-20 {what}"), text
    assert ("<2@20" in text) == what.startswith("WAIT_TASK")


def test_softirqs_mean_what_the_specification_says():
    meaning = {vec: state for vec, (_, state) in enumerate(SOFTIRQS)}
    assert {v for v, s in meaning.items() if s == State.WAIT_TIMER} == {1, 8}
    assert {v for v, s in meaning.items() if s == State.WAIT_DISK} == {4, 5}
    assert {v for v, s in meaning.items() if s == State.WAIT_NET} == {2, 3}


@pytest.mark.parametrize(
    ("names", "state"),
    [
        (("virtio0-req.0", "virtio12-req.3", "nvme0q4", "ahci[0000:00:1f.2]", "mmc0"), "WAIT_DISK"),
        (("virtio0-input.0", "eth0", "eth1-TxRx-3", "mlx5_comp4@pci"), "WAIT_NET"),
        (("rcar-du-r8a7790", "RGX", "i915", "", "virtio0-config"), "WAIT_DEVICE"),
    ],
)
def test_device_names(names, state):
    assert {device_state(name).name for name in names} == {state}


def test_an_entry_that_lost_its_exit_is_closed_by_the_one_around_it():
    rows = wake_in(
        (Kind.IRQ_ENTRY, (7, "nvme0q1")), (Kind.SOFTIRQ_ENTRY, (4,)), (Kind.IRQ_EXIT, (7,))
    )
    rows.sort(key=lambda row: row[0])
    assert life(rows).startswith("0-10 RUN, 10-20 WAIT_TASK<2@20")


def test_an_exit_without_an_entry_changes_nothing():
    rows = wake_in((Kind.TIMER_ENTRY, ()), (Kind.SOFTIRQ_EXIT, (3,)))
    assert "10-20 WAIT_TIMER(hrtimer)" in life(rows)


def test_a_loss_resets_the_context_stack():
    """Rule 9: an interrupt that never ended is over where its exit may have been lost."""
    rows = wake_in((Kind.IRQ_ENTRY, (7, "nvme0q1")))
    assert "WAIT_DISK(nvme0q1)" in life(rows)
    loss = Loss(begin=17, end=18, host=0, cpu=1, events=3, packets=0, reason="discarded")
    assert "10-20 WAIT_UNEXPLAINED(context_unknown)<@20" in life(rows, losses=[loss])
    elsewhere = Loss(begin=18, end=19, host=0, cpu=0, events=3, packets=0, reason="discarded")
    assert "WAIT_DISK(nvme0q1)" in life(rows, losses=[elsewhere])


def test_a_missing_wake_next_to_a_loss_is_the_losss():
    rows = [on(0, 1), off(10, 1, 1), on(30, 1), off(40, 1, 0)]
    loss = Loss(begin=12, end=15, host=0, cpu=1, events=3, packets=0, reason="discarded")
    timelines = replay(build(rows, losses=[loss]))
    worker = np.flatnonzero(timelines.workers.tid == 1)
    paths = critical_paths(timelines, worker, np.array([0]), np.array([40]))
    found = [
        (State(s).name, text, bool(flag))
        for s, text, flag in zip(paths.state, texts_of(paths), paths.lossy, strict=True)
    ]
    assert found == [
        ("RUN", "", False),
        ("WAIT_UNEXPLAINED", "lost_events", True),
        ("RUN", "", False),
    ]


def test_statedump_fills_only_threads_never_seen():
    """Rule 2: 5 is LTTng's "waits for an event"."""
    rows = [
        *((0, 0, Kind.STATEDUMP, (1, 5)), (0, 0, Kind.STATEDUMP, (3, 5)), on(1, 1), off(10, 1, 0)),
        *((12, 0, Kind.STATEDUMP, (1, 5)), on(20, 1), off(30, 1, 1), on(40, 3)),
        (50, 0, SWITCH, (3, 1, 0)),
    ]
    text = life(rows)
    # Runnable at 12 whatever the dump says; asleep from 0 because it had not been seen.
    assert text == (
        "0-1 WAIT_UNEXPLAINED(no_wake), 1-10 RUN, 10-20 WAIT_CPU, 20-30 RUN, "
        "30-50 WAIT_UNEXPLAINED(no_wake)"
    )
    assert life(rows, 3).startswith("0-40 WAIT_UNEXPLAINED(no_wake), 40-50 RUN")


def test_statedump_does_not_make_a_thread_seen():
    timelines = replay(build([(0, 0, Kind.STATEDUMP, (1, 3)), on(5, 2), off(10, 2, 1)]))
    row = int(np.flatnonzero(timelines.workers.tid == 1)[0])
    assert timelines.workers.first[row] == -1
    assert timelines.workers.pid[row] == 1
    assert timelines.strings[timelines.workers.name[row]] == "t1"


def test_a_fork_is_the_creation_where_nothing_wakes_the_child():
    """Rule 6."""
    rows = [on(0, 2), (5, 0, Kind.FORK, (2, 1)), on(20, 1, 1), off(30, 1, 1, 1)]
    timelines = replay(build(rows))
    workers = timelines.workers
    child, parent = (int(np.flatnonzero(workers.tid == tid)[0]) for tid in (1, 2))
    assert (workers.parent[child], workers.born[child]) == (parent, 5)
    paths = critical_paths(timelines, np.array([child]), np.array([0]), np.array([30]))
    assert paths.tid.tolist()[0] == 2
    assert paths.begin.tolist()[0] == 0


def test_a_new_threads_first_wake_makes_it_runnable():
    rows = [
        *(on(0, 2), (5, 0, Kind.FORK, (2, 1)), (7, 0, Kind.WAKEUP_NEW, (1, 1))),
        *(on(20, 1, 1), off(30, 1, 1, 1)),
    ]
    assert life(rows) == "7-20 WAIT_CPU, 20-30 RUN"


def test_a_tid_that_is_used_again_is_another_worker():
    """Rule 8."""
    rows = [
        *(on(0, 1), off(10, 1, 16), on(12, 2), (15, 0, Kind.FORK, (2, 1)), off(18, 2, 1)),
        *((18, 0, Kind.WAKEUP_NEW, (1, 0)), on(20, 1), off(30, 1, 1)),
    ]
    timelines = replay(build(rows))
    assert drawn(timelines, 1) == ["0-10 RUN", "18-20 WAIT_CPU, 20-30 RUN"]
    lives = np.flatnonzero(timelines.workers.tid == 1)
    assert timelines.workers.parent[lives].tolist()[0] == -1
    assert timelines.workers.tid[timelines.workers.parent[lives[1]]] == 2


def test_a_fork_ends_a_life_whose_end_was_not_seen():
    rows = [on(0, 1), off(10, 1, 1), on(12, 2), (15, 0, Kind.FORK, (2, 1)), off(18, 2, 1)]
    assert drawn(replay(build(rows)), 1) == [
        "0-10 RUN, 10-15 WAIT_UNEXPLAINED(no_wake)",
        "",
    ]


def test_a_dead_thread_that_runs_is_another_life():
    rows = [on(0, 1), off(10, 1, 16), on(20, 1), off(30, 1, 1)]
    assert drawn(replay(build(rows)), 1) == ["0-10 RUN", "20-30 RUN"]


def test_idle_threads_are_one_per_cpu():
    timelines = replay(build([on(0, 1), on(0, 2, 1), off(5, 1, 1), off(6, 2, 1, 1)]))
    workers = timelines.workers
    idle = np.flatnonzero(workers.tid == 0)
    assert workers.idle_cpu[idle].tolist() == [0, 1]


def test_idle_creates_no_worker_by_forking():
    rows = [(0, 0, Kind.FORK, (0, 3)), on(1, 1), off(5, 1, 1)]
    workers = replay(build(rows)).workers
    assert ((workers.tid != 0) | (workers.idle_cpu >= 0)).all()
    assert workers.parent[workers.tid == 3].tolist() == [-1]


def test_a_thread_waits_for_the_cpu_where_it_queues():
    """It left cpu 0 to thread 3 and came back on cpu 1, which was idle all the while."""
    rows = [on(0, 1), on(1, 2, 1), off(2, 2, 1, 1), (10, 0, SWITCH, (1, 0, 3)), on(30, 1, 1),
            off(40, 1, 1, 1), off(50, 3, 1)]  # fmt: skip
    timelines = replay(build(rows))
    worker = np.flatnonzero(timelines.workers.tid == 1)
    paths = critical_paths(timelines, worker, np.array([0]), np.array([40]))
    assert texts_of(paths) == ["", "t3 (3)", ""]
    assert paths.cpu.tolist() == [0, 0, 1]


def test_a_processor_that_goes_away_and_comes_back():
    """Threads 1 and 3 are moved from cpu 1 by its stopper, 9; it is off line from 16 to 60."""
    rows = [
        *(on(0, 2), on(0, 1, 1)),
        (10, 1, SWITCH, (1, 0, 9)),  # the stopper takes the cpu: 1 has to wait
        *((12, 1, WAKEUP, (3, 0)), (15, 1, SWITCH, (9, 1, 0)), (16, 1, SWITCH, (0, 0, 8))),
        *((20, 0, SWITCH, (2, 1, 1)), (30, 0, SWITCH, (1, 0, 3)), (40, 0, SWITCH, (3, 1, 1))),
        (50, 0, SWITCH, (1, 1, 0)),
        # Back: another thread of the kernel's starts it, and thread 1 is woken onto it.
        *((60, 1, SWITCH, (0, 0, 9)), (62, 1, SWITCH, (9, 1, 0))),
        *((70, 1, WAKEUP, (1, 1)), on(72, 1, 1), off(80, 1, 1, 1)),
    ]
    timelines = replay(build(rows))
    assert drawn(timelines, 1)[0].startswith("0-10 RUN, 10-20 WAIT_CPU")
    assert "20-30 RUN, 30-40 WAIT_CPU" in drawn(timelines, 1)[0]
    assert drawn(timelines, 1)[0].endswith("70-72 WAIT_CPU, 72-80 RUN")
    worker = np.flatnonzero(timelines.workers.tid == 1)
    paths = critical_paths(timelines, worker, np.array([0]), np.array([80]))
    assert int((paths.end - paths.begin).sum()) == 80
    assert set(paths.cpu[paths.state == State.RUN].tolist()) == {0, 1}


def test_a_woken_thread_waits_for_the_cpu_its_wake_chose():
    rows = [
        *(on(0, 1), on(0, 2, 1), off(10, 1, 1), on(11, 3)),
        *((20, 1, WAKING, (1, 1)), (20, 1, WAKEUP, (1, 1))),
        *((30, 0, SWITCH, (3, 1, 1)), off(40, 1, 1), off(41, 2, 1, 1)),
    ]
    timelines = replay(build(rows))
    worker = int(np.flatnonzero(timelines.workers.tid == 1)[0])
    of = slice(timelines.start[worker], timelines.start[worker + 1])
    waits = timelines.state[of] == State.WAIT_CPU
    assert timelines.cpu[of][waits].tolist() == [1]


# ------------------------------------------------------------------ prev_state

# What prev_state says by kernel: still runnable, gone for good, stopped, else asleep.
RUNNABLE, DEAD, STOPPED, ASLEEP = "WAIT_CPU", None, "WAIT_STOPPED", "WAIT_UNEXPLAINED"
PREV = {
    "3.6.11-rt": {0: RUNNABLE, 512: RUNNABLE, 64: DEAD, 16: DEAD, 32: DEAD, 1: ASLEEP,
                  130: ASLEEP},
    "3.8.13": {512: RUNNABLE, 2: ASLEEP},
    "3.9.0": {0: RUNNABLE, 1024: RUNNABLE, 512: ASLEEP, 64: DEAD},
    "3.10.31": {0: RUNNABLE, 1024: RUNNABLE, 64: DEAD, 16: DEAD, 32: DEAD, 130: ASLEEP},
    "3.19.3": {0: RUNNABLE, 1024: RUNNABLE, 64: DEAD, 1: ASLEEP, 2: ASLEEP},
    "4.1.0": {0: RUNNABLE, 1024: RUNNABLE, 2: ASLEEP},
    "4.4.3": {0: RUNNABLE, 2048: RUNNABLE, 64: DEAD, 1: ASLEEP, 130: ASLEEP, 258: ASLEEP},
    "4.11.0": {0: RUNNABLE, 4096: RUNNABLE, 2: ASLEEP, 1026: ASLEEP},
    "4.15.0-20-generic": {0: RUNNABLE, 4096: RUNNABLE, 128: DEAD, 1026: ASLEEP, 1: ASLEEP},
    "4.17.19": {0: RUNNABLE, 4096: RUNNABLE, 128: DEAD, 1026: ASLEEP},
    "4.18.0": {0: RUNNABLE, 256: RUNNABLE, 16: DEAD, 32: DEAD, 128: ASLEEP, 1: ASLEEP},
    # LTTng's modules of that time write the raw state: preempted is 0x1000.
    "4.19.37": {0: RUNNABLE, 256: RUNNABLE, 4096: RUNNABLE, 64: ASLEEP, 128: ASLEEP, 1026: ASLEEP},
    "5.15.0": {0: RUNNABLE, 256: RUNNABLE, 1: ASLEEP, 2: ASLEEP, 64: ASLEEP, 128: ASLEEP, 32: DEAD},
    "6.1.0-50-cloud-amd64": {0: RUNNABLE, 256: RUNNABLE, 16: DEAD, 32: DEAD, 128: ASLEEP,
                             2: ASLEEP, 130: ASLEEP, 258: ASLEEP, 1026: ASLEEP},
    "6.18.0-rc1": {0: RUNNABLE, 256: RUNNABLE, 1: ASLEEP, 2: ASLEEP, 64: ASLEEP, 128: ASLEEP,
                   16: DEAD, 32: DEAD},
    # Not said: only markers that mean one thing everywhere.
    "": {0: RUNNABLE, 256: RUNNABLE, 1024: RUNNABLE, 2048: RUNNABLE, 4096: RUNNABLE,
         1: ASLEEP, 2: ASLEEP, 130: ASLEEP, 1026: ASLEEP, 16: DEAD, 32: DEAD},
}  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "state", "then"),
    [
        (kernel, state, then)
        for kernel, table in PREV.items()
        for state, then in {**table, 4: STOPPED, 8: STOPPED}.items()
    ],
)
def test_prev_state_of_each_kernel(kernel, state, then):
    rows = [on(0, 1), off(10, 1, state), on(20, 1), off(30, 1, 0)]
    lives = drawn(replay(build(rows, kernel=kernel)), 1)
    if then is DEAD:
        assert lives == ["0-10 RUN", "20-30 RUN"]
    else:
        assert len(lives) == 1
        assert lives[0].split(", ")[1].startswith(f"10-20 {then}")


def test_an_exit_decides_where_the_state_is_ambiguous():
    rows = [on(0, 1), (9, 0, Kind.EXIT, (1,)), off(10, 1, 64), on(20, 1), off(30, 1, 0)]
    assert drawn(replay(build(rows, kernel="")), 1) == ["0-10 RUN", "20-30 RUN"]


@pytest.mark.parametrize("kernel", ["6.18.0", ""])
@pytest.mark.parametrize("state", [0, 1, 2])
def test_a_thread_may_sleep_on_its_way_out(kernel, state):
    """Linux 6.16 and later write the exit first, then release memory, files and sockets."""
    rows = [
        *(on(0, 1), on(0, 2, 1), (9, 0, Kind.EXIT, (1,)), off(10, 1, state)),
        *((20, 1, WAKING, (1, 0)), (22, 0, WAKEUP, (1, 0))),
        *(on(30, 1), off(40, 1, 16 if kernel else 64)),
    ]
    waits = "10-22 WAIT_TASK<2@20, 22-30 WAIT_CPU" if state else "10-30 WAIT_CPU"
    assert life(rows, kernel=kernel) == f"0-10 RUN, {waits}, 30-40 RUN"


@pytest.mark.parametrize("release", ["", "unknown", "v6.1"])
def test_a_release_that_says_nothing(release):
    assert find_prev_state(release) is UNKNOWN_RELEASE


# ----------------------------------------------------------------- system calls


def test_system_calls_split_running_and_name_what_a_sleeper_waits_in():
    entry, leave = Kind.SYSCALL_ENTRY, Kind.SYSCALL_EXIT
    rows = [
        *(on(0, 1), on(0, 2, 1), (2, 0, entry, ("read",)), (4, 0, leave, ())),
        *((6, 0, entry, ("futex",)), off(10, 1, 1)),
        *((20, 1, WAKING, (1, 0)), (20, 0, WAKEUP, (1, 0)), on(30, 1)),
        *((32, 0, leave, ()), off(40, 1, 0)),
    ]
    assert life(rows) == (
        "0-2 RUN, 2-4 RUN_SYSCALL(read), 4-6 RUN_USER, 6-10 RUN_SYSCALL(futex), "
        "10-20 WAIT_FUTEX(futex)<2@20, 20-30 WAIT_CPU, 30-32 RUN_SYSCALL(futex), 32-40 RUN_USER"
    )


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("nanosleep", "WAIT_TIMER(nanosleep)"),
        ("clock_nanosleep", "WAIT_TIMER(clock_nanosleep)"),
        ("poll", "WAIT_POLL(poll)"),
        ("epoll_wait", "WAIT_POLL(epoll_wait)"),
        ("recvmsg", "WAIT_NET(recvmsg)"),
        ("fsync", "WAIT_DISK(fsync)"),
        ("read", "WAIT_UNEXPLAINED(idle_waker)"),
    ],
)
def test_where_idle_wakes_the_system_call_says_what_for(call, what):
    rows = [
        *(on(0, 1), on(0, 2, 1), off(5, 2, 1, 1), (6, 0, Kind.SYSCALL_ENTRY, (call,))),
        *(off(10, 1, 1), (20, 1, WAKING, (1, 0)), (20, 0, WAKEUP, (1, 0)), on(30, 1)),
        off(40, 1, 0),
    ]
    assert f"10-20 {what}<@20" in life(rows)


# ---------------------------------------------------------------------- limits


def test_without_a_switch_there_is_no_timeline():
    with pytest.raises(UnreadableError, match="sched_switch"):
        replay(build([(0, 0, WAKING, (1, 0))]))


def test_a_failed_wake_of_an_old_tracer_is_none():
    events = build(
        [on(0, 1), on(0, 2, 1), off(10, 1, 1), (20, 1, WAKEUP, (1, 0)), on(30, 1), off(40, 1, 0)],
        success=True,
    )
    values = events.values.copy()
    (row,) = events.rows("sched_wakeup").tolist()
    values[events.offset[row] + 3] = 0
    object.__setattr__(events, "values", values)
    assert drawn(replay(events), 1) == ["0-10 RUN, 10-30 WAIT_UNEXPLAINED(no_wake), 30-40 RUN"]


def test_a_switch_out_that_is_missing_leaves_a_gap_of_knowledge():
    """Another thread leaves the cpu that thread 1 was last seen on."""
    rows = [on(0, 1), (10, 0, SWITCH, (3, 1, 2)), (20, 0, SWITCH, (2, 1, 1)), off(30, 1, 0)]
    assert life(rows) == "0-20 UNKNOWN, 20-30 RUN"


def test_interrupts_nest_and_are_taken_out_of_running_time():
    rows = [
        *(on(0, 1), (10, 0, Kind.IRQ_ENTRY, (7, "nvme0q1")), (12, 0, Kind.SOFTIRQ_ENTRY, (4,))),
        *((15, 0, Kind.SOFTIRQ_EXIT, (4,)), (16, 0, Kind.IRQ_EXIT, (7,)), off(30, 1, 1)),
    ]
    timelines = replay(build(rows))
    worker = np.flatnonzero(timelines.workers.tid == 1)
    paths = critical_paths(timelines, worker, np.array([0]), np.array([30]))
    assert [
        (b, e, State(s).name, text)
        for b, e, s, text in zip(paths.begin, paths.end, paths.state, texts_of(paths), strict=True)
    ] == [
        (0, 10, "RUN", ""),
        (10, 12, "IRQ", "nvme0q1"),
        (12, 15, "SOFTIRQ", "BLOCK"),
        (15, 16, "IRQ", "nvme0q1"),
        (16, 30, "RUN", ""),
    ]
    whole = critical_paths(timelines, worker, np.array([0]), np.array([30]), interrupts=False)
    assert whole.state.tolist() == [State.RUN]
