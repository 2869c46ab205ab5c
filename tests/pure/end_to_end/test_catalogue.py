"""Every kind of cause of the catalogue, reached through the pipeline: from drawn kernel events.

Each execution is thread 1 running on cpu 0, with one stretch in between that is what the kind is
about: of 1 ms before and of 6 ms after.  Thread 90 is another program's; 2 is the program's own.
Where a kind needs more than one kernel's events, paths are drawn, and `PATHS` says why.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "timeline"))
from building import build

from critpath import flow
from critpath.graph.execution_graph import critical_paths
from critpath.model import (
    LOCAL_PACKET,
    CompareSettings,
    CriticalPaths,
    Executions,
    Kind,
    PathSet,
    State,
)
from critpath.model.details import Detail, memory_of, quota_of, read_detail
from critpath.report.document.comparison import comparison_document
from critpath.schema.causes import BY_ID
from critpath.timeline.replay import replay

GOLDEN = Path(__file__).with_name("golden") / "catalogue.txt"
MS = 1_000_000
QUOTA = quota_of("/web", 4 * MS, 10 * MS)
MEMORY = memory_of("/web", 64 << 20, of_group=True)
EACH = 12  # executions of a set
RUNS, ASLEEP, STOPPED = 0, 1, 4  # what a thread that leaves its cpu is in


def switch(leaving, state, coming):
    return Kind.SWITCH, (leaving, state, coming)


def asleep(*context, call=None, state=ASLEEP, last=()):
    """Thread 1 sleeps, in a call perhaps, until cpu 1 wakes it in a context."""
    entered = [(0, 0, Kind.SYSCALL_ENTRY, (call,))] if call else []
    left = [(1.001, 0, Kind.SYSCALL_EXIT, ())] if call else []
    return [
        *entered,
        (0, 0, *switch(1, state, 0)),
        *((1, 1, *event) for event in context),
        *((1, 1, kind, (1, 0)) for kind in (Kind.WAKING, Kind.WAKEUP)),
        *((1, 1, *event) for event in last),
        (1, 0, *switch(0, RUNS, 1)),
        *left,
    ]


def interrupted(begin, end):
    return [(0, 0, *begin), (1, 0, *end)]


def irq(name):
    return (Kind.IRQ_ENTRY, (7, name)), (Kind.IRQ_EXIT, (7,))


def softirq(vector):
    return (Kind.SOFTIRQ_ENTRY, (vector,)), (Kind.SOFTIRQ_EXIT, (vector,))


def woken_by_device(name):
    enters, leaves = irq(name)
    return asleep(enters, last=[leaves])


def woken_by_softirq(vector, *within, ends=()):
    """A device's interrupt raised it: without, it may be a thread's doing."""
    enters, leaves = softirq(vector)
    return asleep(*irq("x"), enters, *within, last=[*ends, leaves])


# By kind: events of a stretch, (part of its length that has passed, cpu, kind, fields).
DRAWN = {
    "own-code": [],
    "system-call": [(0, 0, Kind.SYSCALL_ENTRY, ("read",)), (1, 0, Kind.SYSCALL_EXIT, ())],
    "interrupt": interrupted(*irq("virtio0-req.0")),
    "softirq": interrupted(*softirq(3)),
    "held-back": [(0, 0, *switch(1, RUNS, 0)), (1, 0, *switch(0, RUNS, 1))],
    "own-threads": [(0, 0, *switch(1, RUNS, 2)), (1, 0, *switch(2, RUNS, 1))],
    "busy-cpu": [(0, 0, *switch(1, RUNS, 90)), (1, 0, *switch(90, RUNS, 1))],
    "disk": woken_by_device("virtio0-req.0"),
    "network": woken_by_device("eth0"),
    "packet": woken_by_softirq(3),
    "sleep": asleep((Kind.TIMER_ENTRY, ()), last=[(Kind.TIMER_EXIT, ())]),
    "kernel-timer": woken_by_softirq(1, (Kind.TIMER_FUNCTION, (-4096,))),
    # Woken by nobody: the call is all that tells.
    "lock": asleep(call="futex"),
    "input": asleep(call="poll"),
    "other-cpu": asleep(
        (Kind.VECTOR_ENTRY, ("reschedule",)), last=[(Kind.VECTOR_EXIT, ("reschedule",))]
    ),
    "device": woken_by_device("rcar-du"),
    "deferred-work": woken_by_softirq(6),
    "stopped": asleep(*irq("x"), state=STOPPED),
    "unexplained": [(0, 0, *switch(1, ASLEEP, 0)), (1, 0, *switch(0, RUNS, 1))],
    "late-start": [
        row
        for part in np.arange(0, 1, 0.02).tolist()
        for row in ((part, 0, *switch(1, RUNS, 0)), (part + 0.016, 0, *switch(0, RUNS, 1)))
    ],
}
# What has to stand beside a stretch for the verdict: a neighbour alone slows nothing of ours.
BESIDE = {"busy-cpu": DRAWN["sleep"]}
# By kind: state, detail, and why no events are drawn here.
PATHS = {
    "cpu": (State.WAIT_CPU, "", "who had the cpu was lost"),
    "queue": (State.QUEUED, "", "of requests: tests/pure/requests/test_paths.py"),
    "broker": (State.WAIT_QUEUE, "", "of requests: tests/pure/requests/test_jobs.py"),
    "connection": (State.WAIT_POOL, "", "of requests: tests/pure/requests/test_connections.py"),
    "shared-loop": (State.SHARED, "", "of requests: tests/pure/requests/test_paths.py"),
    "packet-from-here": (State.WAIT_NET, LOCAL_PACKET, "the packets: timeline/test_local_peers.py"),
    "packet-in-flight": (State.NET_TRANSIT, "", "of two hosts: timeline/test_network.py"),
    "thread": (State.WAIT_TASK, "", "a waker that nothing follows: graph/test_pieces.py"),
    "pipe": (State.WAIT_PIPE, "", "no system call is known for it yet"),
    "quota": (State.WAIT_QUOTA, QUOTA, "what groups count: graph/test_resources.py"),
    "memory": (State.RECLAIM, MEMORY, "what groups count: graph/test_resources.py"),
    "not-observed": (State.UNKNOWN, "", "before a thread's first event"),
    "not-recorded": (State.NOT_RECORDED, "", "gaps: tests/pure/flow/test_partial.py"),
}


def draw(stretch, length):
    """Return a set of executions whose stretch lasts so long (ms)."""
    rows, windows, time = [(0, 0, *switch(0, RUNS, 1)), (0, 1, *switch(0, RUNS, 9))], [], 0
    rows.append((1, 1, *switch(9, ASLEEP, 0)))
    for number in range(EACH):
        begin = time = time + MS
        time += 2 * MS + 1000 * number
        lasts = round(length * MS * (1 + number / 100))
        rows += [
            (time + round(part * lasts) + place, cpu, kind, fields)
            for place, (part, cpu, kind, fields) in enumerate(stretch)
        ]
        time += lasts + 2 * MS
        windows.append((begin, time))
    rows.append((time + MS, 0, *switch(1, ASLEEP, 0)))
    timelines = replay(build(rows))
    worker = np.flatnonzero(timelines.workers.tid == 1)[:1]
    begin, end = np.array(windows).T
    paths = critical_paths(timelines, np.repeat(worker, EACH), begin, end)
    return set_of(paths, begin, end)


def set_of(paths: CriticalPaths, begin, end) -> PathSet:
    n = len(begin)
    executions = Executions(
        tuple(map(str, range(n))), begin, end, np.ones(n, np.int64), np.zeros(n, np.int64),
        ("t1",) * n, ("",) * n,
    )  # fmt: skip
    zeros = np.zeros(n, np.int64)
    return PathSet(executions, paths, zeros, ("drawn",), "process", (), zeros.astype(bool))


def _read(state, detail):
    return detail if isinstance(detail, Detail) else read_detail(state, detail)


def draw_paths(state, detail, length):
    """Return a set of paths whose stretch is in a state, by its detail."""
    drawn = draw(DRAWN["sleep"], length)
    paths = drawn.paths
    there = paths.state == State.WAIT_TIMER
    paths = replace(
        paths,
        state=np.where(there, np.uint8(state), paths.state),
        detail=np.where(there, len(paths.details), paths.detail).astype(np.int32),
        details=(*paths.details, _read(state, detail)),
    )
    return replace(drawn, paths=paths)


def sets_of(kind):
    if kind in PATHS:
        state, detail, _ = PATHS[kind]
        return (draw_paths(state, detail, length) for length in (1, 6))
    beside = BESIDE.get(kind, [])
    if not beside:
        return (draw(DRAWN[kind], length) for length in (1, 6))
    both = [(part / 2, *of) for part, *of in beside], [(0.5 + p / 2, *of) for p, *of in DRAWN[kind]]
    return draw(both[0], 1), draw([*both[0], *both[1]], 6)


@pytest.fixture(scope="module")
def reached():
    """Return, by kind, the cause of its sets that is of this kind, as a sentence; "" for none."""
    found = {}
    for kind in BY_ID:
        document = comparison_document(
            flow.compare(*sets_of(kind), CompareSettings(permutations=999))
        )
        mine = [c.sentence for c in document.causes if c.facts and c.facts.cause_id == kind]
        found[kind] = mine[0] if mine else ""
    return found


@pytest.mark.parametrize("kind", BY_ID)
def test_a_trace_reaches_the_kind(reached, kind):
    assert reached[kind]


def test_their_sentences(reached, golden):
    golden(GOLDEN, "".join(f"{kind}: {sentence}\n" for kind, sentence in reached.items()))


def test_kinds_of_which_no_events_are_drawn_are_few():
    assert len(PATHS) * 2 < len(BY_ID)
