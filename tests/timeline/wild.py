"""Events that no machine would write: whatever a damaged or odd trace may hold."""

from __future__ import annotations

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
    Kind.TIMER_ENTRY: st.just(()),
    Kind.TIMER_EXIT: st.just(()),
    Kind.SYSCALL_ENTRY: st.sampled_from([("futex",), ("recvfrom",), ("read",)]),
    Kind.SYSCALL_EXIT: st.just(()),
    Kind.NET_SEND: st.tuples(st.integers(1, 3)),
    Kind.NET_RECEIVE: st.tuples(st.integers(1, 3)),
}


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
    lost = []
    for _ in range(draw(st.integers(0, 2)) if losses else 0):
        begin = draw(st.integers(95, now))
        end = begin + draw(st.integers(0, 10))
        lost.append(Loss(begin, end, 0, draw(st.integers(-1, CPUS - 1)), 1, 0, "discarded"))
    return build(rows, losses=lost, end=now + draw(st.integers(0, 3)))
