"""What a state, a thread and the time in it are called in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from critpath.model import LOCAL_PACKET, State, is_recorder
from critpath.model.details import OTHERS, SOFTIRQS, read_detail, whose_packet
from critpath.schema.parameters.text import WORDS

# In a word or two, for who waits for the rest of the answer.
VERDICTS: Final = {"anomaly": "slower", "ok": "no slower", "inconclusive": "inconclusive"}

# {} stands for " (detail)" where there is one.
_WHAT: Final[dict[State, str]] = {
    State.UNKNOWN: "not observed: no event of the trace says what it did",
    State.RUN: "running{}",
    State.RUN_USER: "running in user space{}",
    State.RUN_SYSCALL: "running in a system call{}",
    State.IRQ: "interrupted by a device{}",
    State.SOFTIRQ: "interrupted by deferred work{}",
    State.WAIT_TASK: "waiting for another thread{}",
    State.WAIT_DISK: "waiting for the disk{}",
    State.WAIT_NET: "waiting for the network{}",
    State.WAIT_TIMER: "waiting for a timer{}",
    State.WAIT_DEVICE: "waiting for a device{}",
    State.WAIT_SOFTIRQ: "waiting for deferred work{}",
    State.WAIT_IPI: "waiting for an interrupt between cpus{}",
    State.WAIT_FUTEX: "waiting for a lock or a condition (futex){}",
    State.WAIT_POLL: "waiting in poll{}",
    State.WAIT_PIPE: "waiting for a pipe{}",
    State.WAIT_STOPPED: "stopped{}",
    State.NET_TRANSIT: "waiting for a packet in flight{}",
    State.WAIT_UNEXPLAINED: "blocked, and no event of the trace says why{}",
    State.WAIT_QUOTA: "held back by a cpu quota{}",
    State.RECLAIM: "freeing memory{}",
    State.QUEUED: "waiting behind other requests{}",
    State.SHARED: "on a loop shared with other requests{}",
    State.NOT_RECORDED: "not recorded{}",
}
# What is waited for that is no network, or perhaps none, by `whose_packet`.
PACKETS: Final[dict[bool | None, str]] = {
    True: f"a {LOCAL_PACKET}, whose sender was not recorded",
    None: "a packet of unknown origin",
}
# Timers that the kernel runs for somebody, by their function.
_TIMERS: Final = {
    "tcp_delack_timer": "waiting for data that TCP, without TCP_NODELAY, "
    "held back until a delayed ACK",
    "tcp_write_timer": "waiting for TCP to send a packet again (retransmission)",
    "tcp_keepalive_timer": "waiting for TCP's keep-alive timer",
    "reqsk_timer_handler": "waiting for TCP to repeat a connection's handshake",
    "neigh_timer_handler": "waiting for a neighbour's address to be asked for again (ARP)",
    "process_timeout": "waiting for a timer (time-out)",
    "hrtimer": "waiting for a timer (a sleep or a time-out)",
    "delayed_work_timer_fn": "waiting for the kernel's delayed work",
}
# How a finding differs from the normal executions.
KINDS: Final[dict[str, str]] = {
    "new-state": "new here",
    "extra": "more often",
    "longer": "longer",
    "missing": "missing",
    "shorter": "shorter",
    "loop-count": "other rounds",
}


def location(name: str) -> str:
    """Return ``handle (app/views.py:17)`` with the function between backticks."""
    function, place, rest = name.partition(" (")
    return f"{quoted(function)}{place}{rest}"


def in_function(function: str, caller: str) -> str:
    """Say in which function the time was spent, under which of the project's."""
    under = f", under {location(caller)}" if caller else ""
    return f"in {location(function)}{under}"


def quoted(name: str) -> str:
    """Return a name between backticks."""
    return f"`{name}`"


def thread_name(comm: str, tid: int = -1) -> str:
    """Return how a thread is called: its name, and its id where that is one and known."""
    whose = " of the recorder" if is_recorder(comm) else ""
    return quoted(comm) + whose + (f" (tid {tid})" if tid > 0 else "")


def listed(parts: Sequence[str]) -> str:
    """Join parts as a sentence does: ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]])) if parts else ""


def doing(state: State, detail: str) -> str:
    """Say what a thread was doing."""
    of = read_detail(state, detail)
    if of.function:
        return f"running {OTHERS if of.others else ''}{in_function(of.function, of.caller)}"
    if state != State.WAIT_CPU:
        return _qualified(state, detail)
    what = "waiting for a cpu"
    if of.idle:
        return f"{what} that was idle"
    who = thread_name(of.peer, of.tid)
    if of.others:
        return f"{what} that others had, {OTHERS}{who}"
    return f"{what} that {who} had" if detail else what


def _qualified(state: State, detail: str) -> str:
    """Say a state that is no wait for a cpu, with its detail."""
    phrase = _WHAT[state]
    if state == State.WAIT_TIMER:
        phrase = _TIMERS.get(detail, phrase)
    if state == State.WAIT_NET and (packet := PACKETS.get(whose_packet(detail))):
        # Of the machine itself, or perhaps: not to be called the network.
        softirq = f"softirq {detail}" if detail in SOFTIRQS else detail
        phrase = f"waiting for {packet}" + (f" ({softirq})" if softirq not in packet else "")
    elif detail in SOFTIRQS:
        detail = f"softirq {detail}"
    elif state == State.QUEUED and detail:
        detail = f"of {detail}"
    elif state == State.WAIT_FUTEX and detail == "futex":
        detail = ""
    return phrase.format(f" ({detail})" if detail else "")


def say_elsewhere(share: float | None, cpu: int | None, host: str = "") -> str:
    """Say that another cpu was idle during waits for one, from a half of their time on.

    Of several hosts, ``host`` has that cpu.
    """
    if share is None or share < WORDS.half:
        return ""
    part = "" if share >= WORDS.nearly_all else f" for {100 * share:.0f} % of that time"
    if cpu is None:
        return f"; another cpu was idle{part or ' meanwhile'}"
    where = f" of {host}" if host else ""
    return f"; all on cpu {cpu}{where} while another was idle{part}"


def state_words(state: State) -> str:
    """Say a state without its detail."""
    if state == State.WAIT_CPU:
        return "waiting for a CPU"
    return _WHAT[state].partition(":")[0].format("")
