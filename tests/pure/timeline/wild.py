"""Events that no machine would write: whatever a damaged or odd trace may hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from building import build
from hypothesis import strategies as st

from critpath.model import Kind, Loss

CPUS = 3
IRQS = ((1, "virtio0-req.1"), (2, "eth0-rx"), (3, "some-device"))
_tids = st.integers(0, 5)
_prev_states = st.sampled_from((0, 1, 2, 4, 16, 256, 1026))
_wake = st.tuples(_tids.filter(bool))

FIELDS = {
    Kind.SWITCH: st.tuples(_tids, _prev_states, _tids),
    Kind.WAKING: _wake,
    Kind.WAKEUP: _wake,
    Kind.WAKEUP_NEW: _wake,
    Kind.FORK: st.tuples(_tids, _tids.filter(bool)),
    Kind.EXIT: st.tuples(_tids),
    Kind.STATEDUMP: st.tuples(_tids, st.sampled_from((1, 5))),
    Kind.CURRENT: st.tuples(_tids),
    Kind.IRQ_ENTRY: st.sampled_from(IRQS),
    Kind.IRQ_EXIT: st.sampled_from([(number,) for number, _ in IRQS]),
    Kind.SOFTIRQ_ENTRY: st.sampled_from([(1,), (3,)]),
    Kind.SOFTIRQ_EXIT: st.sampled_from([(1,), (3,)]),
    Kind.SOFTIRQ_RAISE: st.tuples(st.sampled_from((1, 3, 4)), st.sampled_from((0, 1, 9))),
    Kind.TIMER_FUNCTION: st.sampled_from([(-4096,), (8192,), (7,)]),
    Kind.TIMER_ENTRY: st.just(()),
    Kind.TIMER_EXIT: st.just(()),
    Kind.SYSCALL_ENTRY: st.sampled_from([("futex",), ("recvfrom",), ("read",)]),
    Kind.SYSCALL_EXIT: st.just(()),
    Kind.NET_SEND: st.tuples(st.integers(1, 3)),
    Kind.NET_RECEIVE: st.tuples(st.integers(1, 3)),
    Kind.EXEC: st.tuples(_tids),
    Kind.VECTOR_ENTRY: st.sampled_from([("local_timer",), ("thermal",)]),
    Kind.VECTOR_EXIT: st.sampled_from([("local_timer",), ("thermal",)]),
    Kind.FILE_LOCK: st.sampled_from([(0, 1, 2, 1, 0, 9), (-11, 1, 2, 1, 0, 9), (0, 1, 2, 2, 0, 9)]),
    Kind.FUTEX: st.sampled_from([(64,), (68,)]),
}


def _losses(draw, now):
    lost = []
    for _ in range(draw(st.integers(0, 2))):
        begin = draw(st.integers(95, now))
        end = begin + draw(st.integers(0, 10))
        lost.append(Loss(begin, end, 0, draw(st.integers(-1, CPUS - 1)), 1, 0, "discarded"))
    return lost


@st.composite
def wild_events(draw, kinds=tuple(FIELDS), most=60, *, losses=True):
    """Events of any kinds in any order, some at the same time, some without a cpu."""
    often = (Kind.SWITCH, Kind.SWITCH, *kinds)
    now, rows = 100, []
    for _ in range(draw(st.integers(1, most))):
        now += draw(st.integers(0, 2))
        kind = draw(st.sampled_from(often))
        cpu = draw(st.sampled_from((-1, *(list(range(CPUS)) * 6))))
        rows.append((now, cpu, kind, draw(FIELDS[kind])))
    rows.append((now, 0, Kind.SWITCH, (0, 0, 1)))
    lost = _losses(draw, now) if losses else ()
    return build(rows, losses=lost, end=now + draw(st.integers(0, 3)))


@st.composite
def on_two_hosts(draw, events):
    """The same events, some of them on another host, whose threads have the same ids."""
    one = draw(events)
    n = len(one.classes)
    other = draw(st.lists(st.booleans(), min_size=len(one), max_size=len(one)))
    lost = [replace(loss, host=draw(st.integers(0, 1))) for loss in one.losses]
    return replace(
        one,
        event_class=one.event_class + np.array(other, np.int32) * np.int32(n),
        classes=(*one.classes, *(replace(c, host=1) for c in one.classes)),
        hosts=("host", "other"),
        losses=tuple(lost),
    )


_INTERRUPTS = (
    *(Kind.IRQ_ENTRY, Kind.IRQ_EXIT, Kind.SOFTIRQ_ENTRY, Kind.SOFTIRQ_EXIT),
    *(Kind.TIMER_ENTRY, Kind.TIMER_EXIT),
)


@st.composite
def gapped_events(draw, *, losses=True):
    """Threads that wake each other and come and go; some of their switches are not there."""
    now, rows, on = 100, [], {}
    actions = ("switch",) * 4 + ("wake",) * 3 + ("interrupt", "current", "other")
    for _ in range(draw(st.integers(1, 60))):
        now += draw(st.integers(0, 2))
        action = draw(st.sampled_from(actions))
        cpu = draw(st.sampled_from((0, 0, 0, 1, 1, 2, -1)))
        if action == "switch":
            following = draw(st.sampled_from((0, 0, 1, 2, 3)))
            prev, on[cpu] = on.get(cpu, 0), following
            # One in four is left out, and what comes after contradicts what was before.
            if draw(st.integers(0, 3)):
                rows.append((now, cpu, Kind.SWITCH, (prev, draw(st.integers(0, 1)), following)))
        elif action == "wake":
            kind = draw(st.sampled_from((Kind.WAKING, Kind.WAKEUP, Kind.WAKEUP_NEW)))
            rows.append((now, cpu, kind, (draw(st.integers(1, 3)), 0)))
        elif action == "interrupt":
            kind = draw(st.sampled_from(_INTERRUPTS))
            rows.append((now, cpu, kind, draw(FIELDS[kind])))
        elif action == "current":
            rows.append((now, cpu, Kind.CURRENT, (on.get(cpu, 0),)))
        else:
            rows.append((now, cpu, Kind.SYSCALL_EXIT, ()))
    rows.append((now, 0, Kind.SWITCH, (on.get(0, 0), 0, 1)))
    return build(rows, losses=_losses(draw, now) if losses else ())


@st.composite
def packet_events(draw):
    """Threads on three cpus that send and receive packets, and sleep until one comes."""
    now, rows, on = 100, [], {}
    for _ in range(draw(st.integers(1, 30))):
        now += draw(st.integers(0, 2))
        cpu = draw(st.integers(0, CPUS - 1))
        buffer = draw(st.integers(1, 2))
        action = draw(st.sampled_from(("switch", "switch", "send", "receive", "receive")))
        if action == "switch":
            following = draw(st.integers(0, 2))
            rows.append((now, cpu, Kind.SWITCH, (on.get(cpu, 0), 1, following)))
            on[cpu] = following
        elif action == "send":
            rows.append((now, cpu, Kind.NET_SEND, (buffer,)))
        else:
            steps = [
                (Kind.SOFTIRQ_ENTRY, (3,)),
                (Kind.NET_RECEIVE, (buffer,)),
                (Kind.IRQ_ENTRY, (2, "eth0-rx")),
                (Kind.IRQ_EXIT, (2,)),
                (Kind.WAKING, (draw(st.integers(1, 2)),)),
                (Kind.WAKEUP, (draw(st.integers(1, 2)),)),
                (Kind.SOFTIRQ_EXIT, (3,)),
            ]
            for kind, fields in steps:
                now += draw(st.integers(0, 1))
                if draw(st.integers(0, 5)):
                    rows.append((now, cpu, kind, fields))
    rows.append((now, 0, Kind.SWITCH, (on.get(0, 0), 0, 1)))
    return build(rows, losses=_losses(draw, now), end=now + draw(st.integers(0, 3)))
