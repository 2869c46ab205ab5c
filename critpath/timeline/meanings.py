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


# What a thread waits for that is woken from what an event begins, by the event's qualifier.
_STATES: Final[dict[Kind, Callable[[str], State]]] = {Kind.IRQ_ENTRY: device_state}


class EventSemantics(NamedTuple):
    """What an event class says by its name and its fields.

    Attributes
    ----------
    kind, host : int
    detail : int
        Code of what the class's name says: system call, vector.
    state : int
        What a thread waits for that it is about, -1 if that is open.
    qualifier : int
        Field of `Kind.qualifier`, which says detail and state instead; -1 where there is none.
    has_success, has_target : bool
        Whether a wake has a ``success`` field and a ``target_cpu``.
    """

    kind: Kind
    host: int
    detail: int = 0
    state: int = 0
    qualifier: int = -1
    has_success: bool = False
    has_target: bool = False


def event_semantics(event_class: EventClass, code: Callable[[str], int]) -> EventSemantics:
    """Return what an event class means; ``code`` interns the names it gives."""
    kind, host = event_class.kind, event_class.host
    types = dict(zip(event_class.fields, event_class.types, strict=True))
    if kind == Kind.SYSCALL_ENTRY:
        name = syscall_name(event_class.name)
        waits = syscall_state(name)
        return EventSemantics(kind, host, code(name), _NOT_SAID if waits is None else int(waits))
    if kind in {Kind.VECTOR_ENTRY, Kind.VECTOR_EXIT}:
        name = vector_name(event_class.name)
        return EventSemantics(kind, host, code(name), int(vector_state(name)))
    if kind in _WAKES:
        has = {field for field, its in types.items() if its != "absent"}
        return EventSemantics(
            kind, host, has_success="success" in has, has_target="target_cpu" in has
        )
    detail, state, qualifier = 0, 0, -1
    if kind == Kind.IRQ_ENTRY:
        detail, state = code("irq"), int(device_state("irq"))
    if kind.qualifier is not None and types.get(kind.qualifier.field) in kind.qualifier.types:
        qualifier = event_class.fields.index(kind.qualifier.field)
    return EventSemantics(kind, host, detail, state, qualifier)


def qualify(
    kind: Kind, value: int, code: Callable[[str], int], text: Callable[[int], str]
) -> tuple[int, int]:
    """Return the detail (a code) and the state that a value of the qualifying field says."""
    detail = value
    if kind.qualifier is not None and kind.qualifier.form:
        detail = code(kind.qualifier.text(value))
    state = _STATES[kind](text(detail)) if kind in _STATES else State.UNKNOWN
    return detail, int(state)


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
