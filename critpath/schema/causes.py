"""The catalogue of causes: every kind of cause, declared once.

A kind says which states it is about, what tells it from other kinds of the same state, how sure
it is, what its sentence needs, what ranks it, how it is drawn and where docs/what-next.md goes
on.  Its sentences are in `critpath.text.explanation`, by its id; `localize` finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from critpath.schema.kinds import State

Sureness = Literal["observed", "inferred", "unknown"]
# What pictures show of a thread: states of one family have one colour and texture.
Doing = Literal[
    "running",
    "cpu",
    "throttled",
    "timer",
    "disk",
    "network",
    "interrupts",
    "waiting",
    "unknown",
    "queued",
    "shared",
]
# What ranks a cause:
# growth    that its own time grew
# rival     shared weather, which tells only where somebody has the cpu who normally has not
# unseen    nothing was seen that could be the reason
Evidence = Literal["growth", "rival", "unseen"]

# Functions of timers that the kernel runs for somebody: no sleep that a program asked for.
KERNEL_TIMERS: Final = frozenset(
    {"tcp_delack_timer", "tcp_write_timer", "tcp_keepalive_timer", "reqsk_timer_handler"}
    | {"neigh_timer_handler", "delayed_work_timer_fn"}
)


class Signs(NamedTuple):
    """What tells kinds of one state apart.

    Attributes
    ----------
    rival : bool
        It is known who else had what was waited for.
    ours : bool
        Who is a thread of the program itself.
    idle, late : bool
        Nobody had the cpu; and for so short a time that a quota was not the reason.
    quota : bool
        A quota throttled threads while only the sample was recorded.
    local : bool or None
        Whether a packet came from this host; None if nothing tells.
    timer : str
        The function of the timer that ended a sleep.
    """

    rival: bool = False
    ours: bool = False
    idle: bool = False
    late: bool = False
    quota: bool = False
    local: bool | None = None
    timer: str = ""


def _always(_signs: Signs) -> bool:
    return True


class CauseKind(Struct, frozen=True, kw_only=True):
    """A kind of cause.

    Attributes
    ----------
    id : str
        What it is called in JSON, whatever the sentence is: it stays.
    states : tuple of State
    next : str
        The heading of docs/what-next.md that goes on from here.
    their_next : str
        That, where another thread is waited for that does this; "" for the same.
    when : callable
        Whether it is this kind, of those of a state; the last of a state is what is left.
    sure : Sureness
    doubt : str
        The sign that makes it only inferred.
    needs : tuple of str
        Facts that the sentence may need besides those of every cause.
    most : bool
        Its peer is named only where it has most of the time.
    evidence : Evidence
        The same for all kinds of a state.
    doing : Doing
    profile : str
        What `critpath record --profile` tells more of it with; "" for none.
    """

    id: str
    states: tuple[State, ...]
    next: str
    their_next: str = ""
    when: Callable[[Signs], bool] = _always
    sure: Sureness = "observed"
    doubt: str = ""
    needs: tuple[str, ...] = ()
    most: bool = False
    evidence: Evidence = "growth"
    doing: Doing = "waiting"
    profile: str = ""


MORE_OFTEN: Final = "They wait for X many times instead of once"  # of any, with another thread
_HOLDER = "They wait for thread X, which was running"
_CODE = "They run longer in their own code"
_CPU = "They wait for a CPU"
_MEMORY = "They free memory"
_DISK = "They wait for the disk"
_SLEEP = "They sleep longer, or more often"
_NETWORK = "They wait for the network"
_OTHERS = "They wait behind other requests"
_THREAD = "They wait for a lock, a pipe, input or another thread"
_INTERRUPTS = "They are interrupted"
_STOPPED = "They are stopped"
_UNTOLD = "The recording does not tell for what"

_RIVAL = ("peer", "kin", "place", "elsewhere_idle", "cpu", "host")
_LOOP = (
    *("loop", "request", "asks", "under_way"),
    *("meanwhile", "meanwhile_before", "meanwhile_after"),
)
_LIMIT = ("control_group", "limit")
_USAGE = ("kernel_before", "kernel_after", "faults_before", "faults_after")

CATALOGUE: Final = (
    CauseKind(
        id="own-code", states=(State.RUN, State.RUN_USER), doing="running",
        needs=("location", "caller", *_USAGE), next=_CODE, their_next=_HOLDER,
    ),
    CauseKind(
        id="system-call", states=(State.RUN_SYSCALL,), doing="running",
        needs=("call",), next=_CODE, their_next=_HOLDER,
    ),
    CauseKind(
        id="interrupt", states=(State.IRQ,), doing="interrupts",
        needs=("device",), next=_INTERRUPTS,
    ),
    CauseKind(
        id="softirq", states=(State.SOFTIRQ,), doing="interrupts",
        needs=("device", "route"), next=_INTERRUPTS,
    ),
    CauseKind(
        id="held-back", states=(State.WAIT_CPU,), doing="throttled", evidence="rival",
        when=lambda s: not s.rival and (not s.late if s.idle else s.quota),
        sure="inferred", needs=_RIVAL, next=_CPU,
    ),
    CauseKind(
        id="late-start", states=(State.WAIT_CPU,), doing="cpu", evidence="rival",
        when=lambda s: s.idle, needs=_RIVAL, next=_CPU,
    ),
    CauseKind(
        id="own-threads", states=(State.WAIT_CPU,), doing="cpu", evidence="rival",
        when=lambda s: s.ours, doubt="quota", needs=_RIVAL, next=_CPU,
    ),
    CauseKind(
        id="busy-cpu", states=(State.WAIT_CPU,), doing="cpu", evidence="rival",
        when=lambda s: s.rival, doubt="quota", needs=_RIVAL, next=_CPU,
    ),
    CauseKind(
        id="cpu", states=(State.WAIT_CPU,), doing="cpu", evidence="rival",
        doubt="quota", needs=_RIVAL, next=_CPU,
    ),
    # Of when it held them, only counts tell.
    CauseKind(
        id="quota", states=(State.WAIT_QUOTA,), doing="throttled", sure="inferred",
        needs=_LIMIT, next=_CPU,
    ),
    CauseKind(
        id="memory", states=(State.RECLAIM,), doing="running", needs=_LIMIT, next=_MEMORY,
    ),
    CauseKind(
        id="queue", states=(State.QUEUED,), doing="queued",
        needs=("peer", *_LOOP), most=True, next=_OTHERS,
    ),
    CauseKind(
        id="connection", states=(State.WAIT_POOL,), doing="queued", sure="inferred",
        needs=("device", "connections", "request", "held"), next=_OTHERS,
    ),
    CauseKind(
        id="broker", states=(State.WAIT_QUEUE,), doing="queued", sure="inferred",
        needs=("device",), next=_OTHERS,
    ),
    CauseKind(
        id="shared-loop", states=(State.SHARED,), doing="shared",
        needs=_LOOP, next=_OTHERS,
    ),
    CauseKind(
        id="disk", states=(State.WAIT_DISK,), doing="disk", profile="io",
        needs=("device", "peer", "peer_share", *_LIMIT, "call"), next=_DISK,
    ),
    CauseKind(
        id="packet-from-here", states=(State.WAIT_NET,), doing="network", sure="unknown",
        when=lambda s: s.local is True, needs=("local", "call"), next=_NETWORK,
    ),
    CauseKind(
        id="network", states=(State.WAIT_NET,), doing="network",
        when=lambda s: s.local is False, needs=("local", "device", "call"), next=_NETWORK,
    ),
    CauseKind(
        id="packet", states=(State.WAIT_NET,), doing="network", sure="unknown",
        needs=("local", "call"), next=_NETWORK,
    ),
    CauseKind(
        id="packet-in-flight", states=(State.NET_TRANSIT,), doing="network",
        needs=("call",), next=_NETWORK,
    ),
    CauseKind(
        id="kernel-timer", states=(State.WAIT_TIMER,), doing="timer",
        when=lambda s: s.timer in KERNEL_TIMERS, next=_SLEEP,
    ),
    CauseKind(
        id="sleep", states=(State.WAIT_TIMER,), doing="timer", profile="locks",
        needs=("call",), next=_SLEEP,
    ),
    CauseKind(
        id="lock", states=(State.WAIT_FUTEX,), profile="locks", needs=("call",), next=_THREAD,
    ),
    CauseKind(id="thread", states=(State.WAIT_TASK,), needs=("call",), next=_THREAD),
    CauseKind(id="input", states=(State.WAIT_POLL,), needs=("call",), next=_THREAD),
    CauseKind(id="pipe", states=(State.WAIT_PIPE,), needs=("call",), next=_THREAD),
    CauseKind(
        id="device", states=(State.WAIT_DEVICE,), doing="disk", needs=("call",), next=_INTERRUPTS,
    ),
    CauseKind(
        id="deferred-work", states=(State.WAIT_SOFTIRQ,), doing="interrupts",
        needs=("call",), next=_INTERRUPTS,
    ),
    CauseKind(
        id="other-cpu", states=(State.WAIT_IPI,), doing="interrupts",
        needs=("call",), next=_INTERRUPTS,
    ),
    CauseKind(id="stopped", states=(State.WAIT_STOPPED,), next=_STOPPED),
    CauseKind(
        id="unexplained", states=(State.WAIT_UNEXPLAINED,), doing="unknown",
        sure="unknown", evidence="unseen", next=_UNTOLD,
    ),
    CauseKind(
        id="not-observed", states=(State.UNKNOWN,), doing="unknown",
        sure="unknown", evidence="unseen", next=_UNTOLD,
    ),
    CauseKind(
        id="not-recorded", states=(State.NOT_RECORDED,), doing="unknown",
        sure="unknown", evidence="unseen", next=_UNTOLD,
    ),
)  # fmt: skip
BY_ID: Final = {kind.id: kind for kind in CATALOGUE}
OF_STATE: Final = {
    state: tuple(kind for kind in CATALOGUE if state in kind.states) for state in State
}


def find_kind(state: State, signs: Signs) -> CauseKind:
    """Return which kind of cause time in a state is."""
    return next(kind for kind in OF_STATE[state] if kind.when(signs))


def evidence_of(state: State) -> Evidence:
    """Return what ranks a cause of a state."""
    return OF_STATE[state][-1].evidence


def needs_of(state: State) -> frozenset[str]:
    """Return which facts the sentences of a state may need."""
    return frozenset(name for kind in OF_STATE[state] for name in kind.needs)


def doing_of_state(state: State) -> Doing:
    """Return what pictures call a state, where nothing tells more of it."""
    return OF_STATE[state][-1].doing
