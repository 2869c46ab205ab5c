"""What a symbol is called in a sentence."""

from __future__ import annotations

from typing import Final

from critpath.model import State

IDLE: Final = "idle"  # detail of WAIT_CPU: nobody ran instead
OTHERS: Final = "others, mostly "  # before a name that holds less than half
# Below this nobody is held back: an idle cpu takes as long to start a thread,
# more so a virtual one. (A quota's period is 100 ms unless set otherwise.)
LATE_NS: Final = 2_000_000
LATE: Final = "runnable but its cpu was idle (late to start it)"
THROTTLED: Final = "runnable but its cpu was idle (held back by a quota or an affinity: throttled)"

# {} stands for " (detail)" where there is one.
_WHAT: Final[dict[State, str]] = {
    State.UNKNOWN: "not observed",
    State.RUN: "running",
    State.RUN_USER: "running in user space",
    State.RUN_SYSCALL: "running in a system call{}",
    State.IRQ: "interrupted by a device{}",
    State.SOFTIRQ: "interrupted by a softirq{}",
    State.WAIT_TASK: "waiting for another thread{}",
    State.WAIT_DISK: "waiting for the disk{}",
    State.WAIT_NET: "waiting for the network{}",
    State.WAIT_TIMER: "waiting for a timer{}",
    State.WAIT_DEVICE: "waiting for a device{}",
    State.WAIT_SOFTIRQ: "waiting for a softirq{}",
    State.WAIT_IPI: "waiting for an interrupt between cpus{}",
    State.WAIT_FUTEX: "waiting for a lock or a condition (futex){}",
    State.WAIT_POLL: "waiting in poll{}",
    State.WAIT_PIPE: "waiting for a pipe{}",
    State.WAIT_STOPPED: "stopped{}",
    State.NET_TRANSIT: "waiting for a packet in flight{}",
    State.WAIT_UNEXPLAINED: "blocked, and the trace does not say why{}",
}
_RUNS: Final = frozenset({State.RUN, State.RUN_USER, State.RUN_SYSCALL, State.IRQ, State.SOFTIRQ})


def quoted(name: str) -> str:
    """Return a name between backticks."""
    return f"`{name}`"


def doing(state: State, detail: str, ns: float) -> str:
    """Say what a thread was doing, for example ``waiting for the disk (virtio0-req.0)``."""
    if state != State.WAIT_CPU:
        return _WHAT[state].format(f" ({detail})" if detail else "")
    if detail == IDLE:
        return THROTTLED if abs(ns) >= LATE_NS else LATE
    if detail.startswith(OTHERS):
        return f"kept off the cpu by {OTHERS}{quoted(detail.removeprefix(OTHERS))}"
    return f"kept off the cpu by {quoted(detail)}" if detail else "kept off the cpu"


def describe(state: State, detail: str, thread: str, ns: float) -> str:
    """Say what the time was spent on.

    Parameters
    ----------
    state : State
    detail : str
        The segment's qualifier; "" for none.
    thread : str
        The other thread it was spent on, "" for the subject's own.
    ns : float
        How much time it is about.

    Returns
    -------
    str
        For example ``waiting for the disk (virtio0-req.0) in `jbd2/vda-8```.
    """
    what = doing(state, detail, ns)
    if not thread:
        return what
    if state in _RUNS or state == State.WAIT_CPU:
        return f"waiting for thread {quoted(thread)}, which was {what}"
    return f"{what} in {quoted(thread)}"


def describe_before(name: str) -> str:
    """Say what came just before, from a symbol's name; "" where nothing did."""
    state, _, role = name.partition("@")
    if not state:
        return ""
    return f", after its own {state}" if not role else f", after {state} of {quoted(role)}"
