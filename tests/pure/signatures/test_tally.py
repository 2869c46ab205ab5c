"""Counting a trace, against a plain loop over its events."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from critpath.model import EventChunk, EventClass, Kind
from critpath.signatures.tally import Owners, Tally
from critpath.signatures.terms import event_term, normal_term, qualified_term

TEXTS = ["", "eth0-rx-1", "eth0-rx-2", "/critpath-1", "/other"]
CLASSES = [
    EventClass("sched_switch", Kind.SWITCH, ("next_tid",), ("int",)),
    EventClass("sched_process_fork", Kind.FORK, ("parent_tid", "child_tid"), ("int", "int")),
    EventClass("syscall_entry_read", Kind.OTHER, (), ()),
    EventClass("syscall_exit_read", Kind.OTHER, (), ()),
    EventClass("irq_handler_entry", Kind.IRQ_ENTRY, ("name",), ("str",)),
    EventClass("irq_softirq_entry", Kind.SOFTIRQ_ENTRY, ("vec",), ("uint",)),
    EventClass("app:begin", Kind.OTHER, (), (), domain="ust"),
    EventClass(
        "cgroup_attach_task",
        Kind.OTHER,
        ("pid", "dst_path", "dst_root"),
        ("int", "str", "int"),
    ),
]
TERMS = ["sched_switch", "sched_process_fork", "sys:read", "", "irq:", "softirq:", ""]
TERMS += ["cgroup_attach_task"]


def drawn(draw, count):
    """Return chunks of events, and the same as rows."""
    rows = []
    time = 0
    for _ in range(count):
        time += int(draw.integers(1, 40))
        of = int(draw.choice(8, p=[0.2, 0.1, 0.3, 0.1, 0.1, 0.1, 0.05, 0.05]))
        fields = {
            0: (int(draw.integers(1, 9)),),
            1: (int(draw.integers(1, 9)), int(draw.integers(1, 9))),
            4: (int(draw.integers(1, 3)),),
            5: (int(draw.integers(0, 12)),),
            7: (int(draw.integers(1, 9)), int(draw.integers(3, 5)), 1),
        }.get(of, ())
        rows.append((time, int(draw.integers(0, 2)), of, fields))
    chunks = []
    while rows[sum(map(len, chunks)) :]:
        part = rows[sum(map(len, chunks)) :][: int(draw.integers(1, 50))]
        sizes = [len(row[3]) for row in part]
        chunks.append(
            EventChunk(
                np.array([row[0] for row in part], np.int64),
                np.array([row[1] for row in part], np.int32),
                np.array([row[2] for row in part], np.int32),
                np.cumsum([0, *sizes[:-1]]).astype(np.int64),
                np.array([v for row in part for v in row[3]], np.int64),
            )
        )
    return rows, chunks


def term_of(row):
    _, _, of, fields = row
    if of == 4:
        return qualified_term("irq:", TEXTS[fields[0]])
    return qualified_term("softirq:", fields[0]) if of == 5 else TERMS[of]


def plainly(rows, windows, group):
    """Count one event after the other."""
    current, members, found = {}, set(), Counter()
    for row in rows:
        time, cpu, of, fields = row
        inside = current.get(cpu, -1) in members
        if of == 7:
            (members.add if fields[1] == 3 else members.discard)(fields[0])
            inside_now = current.get(cpu, -1) in members
            # An event comes before what it changes.
            inside = inside if inside_now != inside else inside_now
        if term_of(row) and (inside or not group):
            for number, (begin, end) in enumerate(windows):
                if begin <= time < end:
                    found[number, term_of(row)] += 1
        if of == 0:
            current[cpu] = fields[0]
        if of == 1:
            (members.add if fields[0] in members else members.discard)(fields[1])
    return found


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("width", [3, 150, 100_000])
@pytest.mark.parametrize("seed", range(5))
def test_against_a_plain_loop(seed, width, group):
    draw = np.random.default_rng(seed)
    rows, chunks = drawn(draw, 600)
    begin = np.arange(0, 600 * 20, width + 1, dtype=np.int64)
    end = begin + width
    owners = Owners(groups=("/critpath-1",)) if group else None
    tally = Tally(begin, end, owners)
    for chunk in chunks:
        tally.add(chunk, CLASSES, TEXTS.__getitem__)
    counts = tally.counts("x", np.zeros(len(begin), np.bool_))
    found = {
        (int(d), counts.vocabulary[t]): int(n)
        for d, t, n in zip(counts.document, counts.term, counts.count, strict=True)
    }
    windows = list(zip(begin.tolist(), end.tolist(), strict=True))
    assert found == dict(plainly(rows, windows, group))


def test_executions_of_threads_overlap():
    draw = np.random.default_rng(9)
    rows, chunks = drawn(draw, 400)
    windows = [(0, 3000, 1), (1000, 5000, 2), (2000, 2500, 3)]
    owners = Owners(threads={tid: [(b, e, n)] for n, (b, e, tid) in enumerate(windows)})
    begin, end = (np.array([w[i] for w in windows], np.int64) for i in (0, 1))
    tally = Tally(begin, end, owners, apart=False)
    for chunk in chunks:
        tally.add(chunk, CLASSES, TEXTS.__getitem__)
    counts = tally.counts("x", np.zeros(3, np.bool_))
    current, expected = {}, Counter()
    for row in rows:
        for n, (b, e, tid) in enumerate(windows):
            if current.get(row[1]) == tid and b <= row[0] < e and term_of(row):
                expected[n] += 1
        if row[2] == 0:
            current[row[1]] = row[3][0]
    assert counts.hits.tolist() == [expected[n] for n in range(3)]


@pytest.mark.parametrize(
    ("name", "term"),
    [
        ("syscall_entry_newfstat", "sys:fstat"),
        ("syscalls:sys_enter_read", "sys:read"),
        ("compat_syscall_entry_open", "sys:open"),
        ("syscall_exit_read", ""),
        ("exit_syscall", ""),
        ("raw_syscalls:sys_enter", ""),
        ("sched:sched_switch", "sched_switch"),
        ("irq:softirq_raise", "irq_softirq_raise"),
        ("lttng_statedump_start", ""),
        ("critpath_current", ""),
        ("print", ""),
        ("hrtimer_setup", "timer_hrtimer_init"),
    ],
)
def test_terms_mean_the_same_by_every_tracer(name, term):
    assert event_term(name) == term
    assert event_term(name, "ust") == ""


def test_instances_have_no_numbers():
    assert normal_term("irq:virtio1-req.0") == "irq:virtio#-req.#"
    assert qualified_term("softirq:", 3) == "softirq:NET_RX"
    assert qualified_term("softirq:", 99) == "softirq:#other"
