"""The native replay against its plain twin: random schedules and real traces."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "oracle"))
import replay as twin
from building import FUNCTIONS, KSOFTIRQD, build, find_lifetimes
from twin_rows import find_ksoftirqd, rows_of

from critpath.model import Kind
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import read_events
from critpath.timeline.replay import replay

TIDS = (*range(1, 7), *KSOFTIRQD)
PREV_STATES = (0, 0, 256, 1, 1, 2, 4, 8, 128, 1026, 16, 32)
IRQS = ((1, "virtio0-req.1"), (2, "eth0-rx"), (3, "some-device"))
VECTORS = ("local_timer", "reschedule", "thermal")
SYSCALLS = ("futex", "epoll_wait", "recvfrom", "read", "clock_nanosleep")
ENTRIES = (Kind.IRQ_ENTRY, Kind.SOFTIRQ_ENTRY, Kind.TIMER_ENTRY, Kind.VECTOR_ENTRY)
EXITS = (Kind.IRQ_EXIT, Kind.SOFTIRQ_EXIT, Kind.TIMER_EXIT, Kind.VECTOR_EXIT)


class Machine:
    """A machine that does what it is told, as far as a machine can."""

    def __init__(self, cpus):
        self.cpus = cpus
        self.now = 100
        self.rows = []
        self.on = {}  # cpu -> tid, 0 for idle
        self.dead = set()
        self.unborn = set()
        self.seen = set()
        self.depth = dict.fromkeys(range(cpus), 0)

    def add(self, cpu, kind, *fields):
        self.rows.append((self.now, cpu, kind, fields))

    def do(self, action, cpu, pick, more):
        cpu %= self.cpus
        running = {tid for tid in self.on.values() if tid}
        free = [t for t in TIDS if t not in running and t not in self.dead]
        if action == "switch":
            prev = self.on.get(cpu, [0, *free][pick % (len(free) + 1)])
            choice = [t for t in (0, *free) if t != prev and t not in self.unborn]
            if not choice:
                return
            following = choice[more % len(choice)]
            state = PREV_STATES[pick % len(PREV_STATES)] if prev else 0
            self.add(cpu, Kind.SWITCH, prev, state, following)
            if prev and state & 48:
                self.dead.add(prev)
            self.seen |= {prev, following}
            self.unborn -= {prev, following}
            self.on[cpu] = following
        elif action in {"waking", "wakeup"}:
            target = TIDS[pick % len(TIDS)]
            self.seen.add(target)
            self.add(cpu, Kind.WAKING if action == "waking" else Kind.WAKEUP, target)
        elif action == "fork":
            children = [t for t in TIDS if t in self.dead or t not in self.seen]
            if children:
                child = children[pick % len(children)]
                self.dead.discard(child)
                self.seen.add(child)
                self.unborn.add(child)
                self.add(cpu, Kind.FORK, self.on.get(cpu, 0), child)
        elif action == "new":
            if self.unborn:
                child = sorted(self.unborn)[pick % len(self.unborn)]
                self.unborn.discard(child)
                self.add(cpu, Kind.WAKEUP_NEW, child)
        elif action == "exit":
            if self.on.get(cpu):
                self.add(cpu, Kind.EXIT, self.on[cpu])
        elif action == "enter":
            if self.depth[cpu] < 12:
                self.depth[cpu] += 1
                fields = (IRQS[pick % 3], (pick % 10,), (), (VECTORS[pick % 3],))[more % 4]
                self.add(cpu, ENTRIES[more % 4], *fields)
        elif action == "leave":
            fields = ((IRQS[pick % 3][0],), (pick % 10,), (), (VECTORS[pick % 3],))[more % 4]
            self.add(cpu, EXITS[more % 4], *fields)
        elif action == "raise":
            self.add(cpu, Kind.SOFTIRQ_RAISE, (1, 2, 3, 3, 4, 6)[pick % 6], (0, 1, 9)[more % 3])
        elif action == "expire":
            self.add(cpu, Kind.TIMER_FUNCTION, (*FUNCTIONS, 7)[pick % 3])
        elif action == "softirq":
            # A packet, often a thread's own, and perhaps another that it causes.
            if self.depth[cpu] < 12:
                self.depth[cpu] += 1
                self.add(cpu, Kind.SOFTIRQ_ENTRY, (3, 3, 4, 2)[pick % 4])
        elif action == "receive":
            self.add(cpu, Kind.NET_RECEIVE, 1, (OWN_IP, OWN_IP, 77, 0)[pick % 4])
        elif action == "call":
            self.add(cpu, Kind.SYSCALL_ENTRY, SYSCALLS[pick % len(SYSCALLS)])
        elif action == "return":
            self.add(cpu, Kind.SYSCALL_EXIT)
        elif action == "futex":
            self.add(cpu, Kind.FUTEX, (64, 68, 72)[pick % 3])
        elif action == "lock":
            self.add(cpu, Kind.FILE_LOCK, (0, -11)[pick % 2], 1, more % 3, pick % 3, 0, 9)
        elif action == "exec":
            if self.on.get(cpu):
                self.add(cpu, Kind.EXEC, self.on[cpu])
        elif action == "dump":
            self.add(cpu, Kind.STATEDUMP, (0, *TIDS)[pick % (len(TIDS) + 1)], (1, 5)[more % 2])


ACTIONS = (
    "switch",
    "switch",
    "switch",
    "waking",
    "wakeup",
    "fork",
    "new",
    "exit",
    "enter",
    "leave",
    "raise",
    "raise",
    "expire",
    "softirq",
    "softirq",
    "receive",
    "lock",
    "exec",
    "dump",
)
OWN_IP = 0x7F000001
CALLS = ("call", "call", "futex", "return")


@st.composite
def schedules(draw):
    machine = Machine(draw(st.integers(1, 3)))
    small = st.integers(0, 60)
    actions = draw(st.sampled_from([ACTIONS, tuple(a for a in ACTIONS if a != "waking")]))
    actions += draw(st.sampled_from([(), CALLS]))
    steps = st.tuples(st.integers(0, 3), st.sampled_from(actions), small, small, small)
    for wait, *step in draw(st.lists(steps, min_size=1, max_size=60)):
        machine.now += wait
        machine.do(*step)
    # Without a switch a trace has no timeline.
    machine.do("switch", 0, 0, 1)
    return machine.rows, machine.now + draw(st.integers(0, 3))


def expected(rows, *, ksoftirqd=None, **options):
    lives = twin.replay(rows, ksoftirqd=ksoftirqd or KSOFTIRQD, functions=FUNCTIONS, **options)
    return [(tid, thread.intervals) for tid, thread in lives]


@given(schedules())
def test_random_schedules(drawn):
    rows, end = drawn
    if not any(kind == Kind.SWITCH for _, _, kind, _ in rows):
        return
    timelines = replay(build(rows, end=end), {OWN_IP})
    assert find_lifetimes(timelines) == expected(rows, end=end, own_ips={OWN_IP})
    assert_sane(timelines)


def assert_sane(timelines):
    """No worker is in two states at once, no cpu in two contexts or held by two."""
    for start, begin, end in (
        (timelines.start, timelines.begin, timelines.end),
        (timelines.stolen_start, timelines.stolen_begin, timelines.stolen_end),
        (timelines.ran_start, timelines.ran_begin, timelines.ran_end),
    ):
        # A thread may hold a cpu for no time at all; it is in no state for no time.
        assert (end > begin).all() if start is not timelines.ran_start else (end >= begin).all()
        for low, high in pairwise(start.tolist()):
            assert (begin[low:high][1:] >= end[low:high][:-1]).all()


@pytest.mark.parametrize("name", ["normal", "sample-quota", "steady-sample-lock", "plain"])
def test_recordings_of_the_guest(guest, name):
    events = read_events(guest(name), KERNEL_EVENTS)
    rows, events = rows_of(events)
    timelines = replay(events)
    options = {"ksoftirqd": find_ksoftirqd(events), "end": max(events.end, rows[-1][0])}
    assert find_lifetimes(timelines) == expected(rows, **options)
    assert_sane(timelines)


@pytest.mark.parametrize(
    ("name", "runnable", "dead"),
    [
        ("tc-bug446190", (0, 1024), 16 | 32 | 64),
        ("bt-tracefile-rotation", (0, 256, 4096), 16 | 32 | 128),
    ],
)
def test_public_traces(shared, name, runnable, dead):
    events = read_events(shared(f"public/{name}"), KERNEL_EVENTS)
    rows, events = rows_of(events)
    timelines = replay(events)
    options = {"runnable": runnable, "dead": dead, "end": max(events.end, rows[-1][0])}
    options["ksoftirqd"] = find_ksoftirqd(events)
    assert find_lifetimes(timelines) == expected(rows, **options)
    assert_sane(timelines)


@pytest.mark.parametrize("name", ["full", "lossy", "sample-quota", "steady-normal"])
def test_nothing_overlaps_with_everything_that_was_traced(guest, name):
    assert_sane(replay(read_events(guest(name), KERNEL_EVENTS)))


@pytest.mark.parametrize("name", ["tc-many-threads", "selora-old_trace", "tc-scp_dest"])
def test_nothing_overlaps_in_public_traces(shared, name):
    assert_sane(replay(read_events(shared(f"public/{name}"), KERNEL_EVENTS)))
