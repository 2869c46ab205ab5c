"""What event classes, hosts and losses mean to the replay: its tables, prepared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from critpath.model import I64, EventClass, Kind, Loss, State
from critpath.timeline.contexts import (
    SOFTIRQS,
    device_state,
    syscall_name,
    syscall_state,
    vector_name,
    vector_state,
)
from critpath.timeline.prev_state import prev_state_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DETAILS: Final = (
    "no_wake",
    "idle_waker",
    "context_unknown",
    "lost_events",
    "hrtimer",
    "idle",
)
_WAKES: Final = frozenset({Kind.WAKING, Kind.WAKEUP, Kind.WAKEUP_NEW})
_NOT_SAID: Final = -1
_HAS_SUCCESS, _HAS_NAME, _HAS_TARGET = 1, 2, 4


class Meaning(NamedTuple):
    """What an event class says by its name and its fields.

    Attributes
    ----------
    kind, host : int
    detail : int
        Code of the qualifier: system call, vector.
    state : int
        What a thread waits for that it is about, -1 if that is open.
    flags : int
        Bit 0 where a wake has a ``success`` field, bit 1 where an interrupt has a name,
        bit 2 where a wake has a ``target_cpu``.
    """

    kind: int
    host: int
    detail: int
    state: int
    flags: int


def meaning_of(event_class: EventClass, code: Callable[[str], int]) -> Meaning:
    """Return what an event class means; ``code`` interns the names it gives."""
    c = event_class
    has = {f for f, t in zip(c.fields, c.types, strict=True) if t != "absent"}
    detail, state, flags = 0, 0, 0
    if c.kind == Kind.SYSCALL_ENTRY:
        name = syscall_name(c.name)
        detail = code(name)
        waits = syscall_state(name)
        state = _NOT_SAID if waits is None else int(waits)
    elif c.kind in {Kind.VECTOR_ENTRY, Kind.VECTOR_EXIT}:
        name = vector_name(c.name)
        detail, state = code(name), int(vector_state(name))
    elif c.kind == Kind.IRQ_ENTRY:
        detail, state = code("irq"), int(device_state("irq"))
        flags = _HAS_NAME if ("name", "str") in zip(c.fields, c.types, strict=True) else 0
    elif c.kind in _WAKES:
        flags = _HAS_SUCCESS if "success" in has else 0
        flags |= _HAS_TARGET if "target_cpu" in has else 0
    return Meaning(int(c.kind), c.host, detail, state, flags)


def fixed_tables(code: Callable[[str], int]) -> dict[str, Any]:
    """Return what the replay knows of texts of its own, as it takes them."""
    details = {name: code(name) for name in _DETAILS}
    softirqs = [code(name) for name, _ in SOFTIRQS] + [code("softirq")]
    states = [state for _, state in SOFTIRQS] + [State.WAIT_SOFTIRQ]
    return {
        "details": details,
        "timer_state": int(State.WAIT_TIMER),
        "softirq_state": np.array(states, np.int32),
        "softirq_detail": np.array(softirqs, np.int32),
    }


def prev_states(
    hosts: Sequence[str], environment: Sequence[Mapping[str, str | int]]
) -> NDArray[np.int64]:
    """Return per host: dead mask, stopped mask, then the runnable values (padded by repeats)."""
    releases = {
        str(e.get("hostname", "")): str(e["kernel_release"])
        for e in environment
        if "kernel_release" in e
    }
    rows = []
    for host in hosts:
        meaning = prev_state_of(releases.get(host, ""))
        runnable = sorted(meaning.runnable)
        rows.append(
            [meaning.dead, meaning.stopped, *runnable, *[runnable[0]] * (5 - len(runnable))]
        )
    return np.array(rows, np.int64)


def loss_table(losses: Sequence[Loss]) -> I64:
    """Return the ends, hosts and cpus of losses, in order of the ends."""
    rows = [(loss.end, loss.host, loss.cpu) for loss in sorted(losses, key=lambda x: x.end)]
    return np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, 3).T)
