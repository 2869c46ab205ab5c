"""What a state, a thread and the time in it are called in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from critpath.model import LOCAL_PACKET, RUNNING, State, is_recorder
from critpath.model.details import OTHERS, SOFTIRQS, Detail, Kin, word_detail
from critpath.model.vectors import show_family
from critpath.schema.parameters.text import WORDS

# In a word or two, for who waits for the rest of the answer.
VERDICTS: Final = {
    "anomaly": "slower",
    "by_machine": "slower, by the machine",
    "ok": "no slower",
    "inconclusive": "inconclusive",
}


class Phrase(NamedTuple):
    """What a thread does in a state.

    Attributes
    ----------
    listed : str
        Beside figures; {} stands for " (detail)" where there is one.
    which_was : str
        Of another thread, while it was waited for.
    legend : str
        Beside a letter or a colour.
    """

    listed: str
    which_was: str
    legend: str


def _same(words: str) -> Phrase:
    return Phrase(words + "{}", words, words)


PHRASES: Final[dict[State, Phrase]] = {
    State.UNKNOWN: Phrase(
        "not observed: no event of the trace says what it did", "not observed", "not observed"
    ),
    State.RUN: _same("running"),
    State.RUN_USER: Phrase("running in user space{}", "running", "running its own code"),
    State.RUN_SYSCALL: Phrase("running in a system call{}", "running", "running in a system call"),
    State.IRQ: _same("interrupted by a device"),
    State.SOFTIRQ: _same("interrupted by deferred work"),
    State.WAIT_CPU: Phrase("waiting for a CPU", "waiting for a CPU", "waiting for a CPU"),
    State.WAIT_TASK: _same("waiting for another thread"),
    State.WAIT_DISK: Phrase("waiting for the disk{}", "waiting for the disk", "waiting for a disk"),
    State.WAIT_NET: Phrase(
        "waiting for the network{}", "waiting for a packet", "waiting for the network"
    ),
    State.WAIT_TIMER: Phrase("waiting for a timer{}", "sleeping", "waiting for a timer"),
    State.WAIT_DEVICE: _same("waiting for a device"),
    State.WAIT_SOFTIRQ: _same("waiting for deferred work"),
    State.WAIT_IPI: Phrase(
        "waiting for an interrupt between CPUs{}",
        "waiting for another CPU",
        "waiting for another CPU",
    ),
    State.WAIT_FUTEX: Phrase(
        "waiting for a lock or a condition (futex){}", "waiting for a lock", "waiting for a lock"
    ),
    State.WAIT_POLL: Phrase(
        "waiting in poll{}", "waiting for input", "waiting for one of several things"
    ),
    State.WAIT_PIPE: _same("waiting for a pipe"),
    State.WAIT_STOPPED: Phrase("stopped{}", "stopped", "stopped or traced"),
    State.NET_TRANSIT: Phrase(
        "waiting for a packet in flight{}", "waiting for a packet in flight", "a packet in flight"
    ),
    State.WAIT_UNEXPLAINED: Phrase(
        "blocked, and no event of the trace says why{}",
        "blocked: the recording does not tell by what",
        "blocked, cause not in the trace",
    ),
    State.WAIT_QUOTA: Phrase(
        "held back by a cpu quota{}", "throttled by a CPU quota", "held back by a cpu quota"
    ),
    State.RECLAIM: _same("freeing memory"),
    State.QUEUED: Phrase(
        "waiting behind other requests{}",
        "working for other requests",
        "waiting behind other requests",
    ),
    State.SHARED: Phrase(
        "on a loop shared with other requests{}",
        "working for several requests by turns",
        "on a loop shared with other requests",
    ),
    State.NOT_RECORDED: _same("not recorded"),
    State.WAIT_POOL: Phrase(
        "waiting for a connection{}",
        "waiting for a connection that other requests held",
        "waiting for a connection",
    ),
    State.WAIT_QUEUE: Phrase(
        "in the queue of a broker{}", "waiting in the queue of a broker", "in a broker's queue"
    ),
}


# What a thread sleeps for, in a column of a table.
BLOCKERS: Final[dict[State, str]] = {
    State.WAIT_TASK: "thread",
    State.WAIT_DISK: "disk",
    State.WAIT_NET: "network",
    State.WAIT_TIMER: "timer",
    State.WAIT_DEVICE: "device",
    State.WAIT_SOFTIRQ: "deferred work",
    State.WAIT_IPI: "another CPU",
    State.WAIT_FUTEX: "lock",
    State.WAIT_POLL: "poll",
    State.WAIT_PIPE: "pipe",
    State.WAIT_STOPPED: "stopped",
    State.WAIT_UNEXPLAINED: "not known",
    State.WAIT_QUOTA: "CPU quota",
    State.WAIT_POOL: "connection",
    State.WAIT_QUEUE: "broker",
}


def word_state(name: str) -> str:
    """Return a state's name in words; that of a later version stays as it is."""
    return PHRASES[State[name]].legend if name in State.__members__ else name


def word_symbol(name: str) -> str:
    """Return the name of a symbol, a state and of which thread, in words."""
    state, _, role = name.partition("@")
    return f"{word_state(state)} ({show_family(role)})" if role else word_state(state)


# What is waited for that is no network, or perhaps none, by `Detail.local`.
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


# Who else had the cpu, by what it is to who waited; {} is its name.
_KIN: Final[dict[str, str]] = {
    Kin.THREAD: "other threads of {their} own process ({})",
    Kin.CHILD: "{their} child {}",
    Kin.PARENT: "{their} parent {}",
    Kin.PROGRAM: "{} of {their} own program",
    Kin.SIBLING: "another {}",
    Kin.NAMESAKE: "another {}",
}


def name_kin(name: str, kin: str, their: str) -> str:
    """Return how a child, or a namesake in another process, is called; "" for who is neither."""
    words = _KIN[kin] if kin in {Kin.CHILD, Kin.SIBLING, Kin.NAMESAKE} else ""
    return words.format(quoted(name), their=their)


def rival_name(name: str, kin: str, their: str, place: str = "") -> str:
    """Return how a thread is called that had the cpu: with what it is to who waited, and where."""
    return _KIN.get(kin, "{}").format(quoted(show_family(name)), their=their) + in_place(place)


def in_place(place: str) -> str:
    """Say in which container, pod or service it is: `` (pod shop/web-*)``."""
    return f" ({place})" if place else ""


# What people call the executions of a set in their labels, by what they are called here.
_SAME_WORDS: Final = {
    "request": frozenset({"req", "reqs", "request", "requests"}),
    "run": frozenset({"run", "runs"}),
    "process": frozenset({"process", "proc"}),
    "thread": frozenset({"thread", "threads"}),
}


def name_kind(label: str, noun: str) -> str:
    """Return what executions of a label are called: ```cpu` requests``, never "req requests"."""
    of = next((same for one, same in _SAME_WORDS.items() if noun.startswith(one)), ())
    return noun if not label or label.lower() in of else f"{quoted(label)} {noun}"


def listed(parts: Sequence[str]) -> str:
    """Join parts as a sentence does: ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]])) if parts else ""


def doing(state: State, of: Detail) -> str:
    """Say what a thread was doing."""
    if of.function and state in RUNNING:
        return f"running {OTHERS if of.others else ''}{in_function(of.function, of.caller)}"
    if state != State.WAIT_CPU:
        return _qualified(state, of)
    what = "waiting for a cpu"
    if of.idle:
        return f"{what} that was idle"
    who = thread_name(of.peer, of.peer_tid) + in_place(of.place)
    if of.others:
        return f"{what} that others had, {OTHERS}{who}"
    return f"{what} that {who} had" if of.peer else what


def _qualified(state: State, of: Detail) -> str:
    """Say a state that is no wait for a cpu, with its detail."""
    phrase, detail = PHRASES[state].listed, word_detail(of)
    if state == State.WAIT_TIMER:
        phrase = _TIMERS.get(detail, phrase)
    if state == State.WAIT_NET and (packet := PACKETS.get(of.local)):
        # Of the machine itself, or perhaps: not to be called the network.
        softirq = f"softirq {detail}" if detail in SOFTIRQS else detail
        phrase = f"waiting for {packet}" + (f" ({softirq})" if softirq not in packet else "")
    elif detail in SOFTIRQS:
        detail = f"softirq {detail}"
    elif state == State.QUEUED and of.peer and not of.loop:
        detail = f"of {detail}"
    elif state == State.WAIT_FUTEX and detail == "futex":
        detail = ""
    return phrase.format(f" ({detail})" if detail else "")


def say_elsewhere(share: float | None) -> str:
    """Say that another CPU was idle during waits for one, from a half of their time on."""
    if share is None or share < WORDS.half:
        return ""
    part = " meanwhile" if share >= WORDS.nearly_all else f" for {100 * share:.0f} % of that time"
    return f"; another CPU was idle{part}"


def state_words(state: State) -> str:
    """Say a state without its detail."""
    if state == State.WAIT_CPU:
        return PHRASES[state].which_was
    return PHRASES[state].listed.partition(":")[0].format("")
