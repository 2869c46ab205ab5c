"""Events -> Timelines: prepares the tables, runs the native replay, sorts its columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from critpath.errors import UnreadableError
from critpath.model import Events, Kind, State, Timelines, Workers
from critpath.timeline._replay import Replay, group
from critpath.timeline.contexts import (
    SOFTIRQS,
    device_state,
    syscall_name,
    syscall_state,
    vector_name,
    vector_state,
)
from critpath.timeline.prev_state import prev_state_of

_DETAILS = ("no_wake", "idle_waker", "context_unknown", "lost_events", "hrtimer", "idle")


class _Strings:
    """Interned text: the events' strings and what this stage adds."""

    def __init__(self, strings: tuple[str, ...]) -> None:
        self.all = list(strings) or [""]
        self.codes = {text: code for code, text in reversed(list(enumerate(self.all)))}

    def code(self, text: str) -> int:
        if text not in self.codes:
            self.codes[text] = len(self.all)
            self.all.append(text)
        return self.codes[text]


def replay(events: Events) -> Timelines:
    """Rebuild what every thread was doing from scheduling events.

    Parameters
    ----------
    events : Events
        At least ``sched_switch``; fields in the canonical order of each `Kind`.

    Returns
    -------
    Timelines
        Intervals per worker, interrupt work and occupation per processor.

    Raises
    ------
    UnreadableError
        If there is no ``sched_switch`` event: without it no thread has a state.

    Notes
    -----
    Giraldeau and Dagenais, "Wait analysis of distributed systems using kernel
    tracing" (TPDS 2016), with the corrections listed in docs/critical-path.md:
    a wake is read from ``sched_waking`` and its interrupt context, a wake that
    races the switch-out is kept, idle is never a waker.
    """
    kinds = np.array([c.kind for c in events.classes], np.uint8)
    present = np.unique(events.event_class)
    if not np.any(kinds[present] == Kind.SWITCH):
        raise UnreadableError(
            "the trace has no sched_switch event",
            "record with the sched tracepoints enabled (critpath's `minimal` profile)",
        )
    strings = _Strings(events.strings)
    details = {name: strings.code(name) for name in _DETAILS}
    softirq_detail = [strings.code(name) for name, _ in SOFTIRQS] + [strings.code("softirq")]
    softirq_state = [state for _, state in SOFTIRQS] + [State.WAIT_SOFTIRQ]
    class_detail, class_state, class_flags = _by_class(events, strings)
    irq_state = np.array([device_state(text) for text in strings.all], np.int32)
    sleeps = [syscall_state(text) for text in strings.all]
    cpus = int(events.cpu.max(initial=0)) + 1
    if cpus > 65536:
        raise UnreadableError(
            f"the trace names cpu {cpus - 1}, which no machine has",
            "the trace is damaged; record it again",
        )
    core = Replay(
        len(events.hosts),
        cpus,
        has_waking=int(np.any(kinds[present] == Kind.WAKING)),
        has_syscalls=int(np.any(kinds[present] == Kind.SYSCALL_ENTRY)),
        details=details,
        timer_state=int(State.WAIT_TIMER),
        irq_state=irq_state,
        syscall_state=np.array([-1 if s is None else s for s in sleeps], np.int32),
        softirq_state=np.array(softirq_state, np.int32),
        softirq_detail=np.array(softirq_detail, np.int32),
        prev_states=_prev_states(events),
    )
    losses = sorted(events.losses, key=lambda loss: loss.end)
    last = int(events.timestamp[-1])
    core.run(
        events.timestamp,
        events.cpu,
        events.event_class,
        events.offset,
        events.values,
        kinds,
        np.array([c.host for c in events.classes], np.int64),
        class_detail,
        class_state,
        class_flags,
        np.array([loss.end for loss in losses], np.int64),
        np.array([loss.host for loss in losses], np.int64),
        np.array([loss.cpu for loss in losses], np.int32),
        max(last, events.end),
    )
    return _assemble(core, events, tuple(strings.all))


def _by_class(events: Events, strings: _Strings) -> tuple[Any, Any, Any]:
    """Return what an event class says by its name: detail code, wake state, flags."""
    n = len(events.classes)
    detail, state, flags = np.zeros(n, np.int32), np.zeros(n, np.int32), np.zeros(n, np.uint8)
    for i, c in enumerate(events.classes):
        has = {f for f, t in zip(c.fields, c.types, strict=True) if t != "absent"}
        if c.kind == Kind.SYSCALL_ENTRY:
            detail[i] = strings.code(syscall_name(c.name))
        elif c.kind in {Kind.VECTOR_ENTRY, Kind.VECTOR_EXIT}:
            detail[i] = strings.code(vector_name(c.name))
            state[i] = vector_state(vector_name(c.name))
        elif c.kind == Kind.IRQ_ENTRY:
            detail[i] = strings.code("irq")
            flags[i] |= 2 if "name" in has else 0
        elif c.kind in {Kind.WAKING, Kind.WAKEUP, Kind.WAKEUP_NEW}:
            flags[i] |= 1 if "success" in has else 0
            flags[i] |= 4 if "target_cpu" in has else 0
    return detail, state, flags


def _prev_states(events: Events) -> Any:
    """Return per host: dead mask, stopped mask, then the runnable values (padded by repeats)."""
    releases = {str(e.get("hostname", "")): str(e["kernel_release"])
                for e in events.environment if "kernel_release" in e}  # fmt: skip
    rows = []
    for host in events.hosts:
        meaning = prev_state_of(releases.get(host, ""))
        runnable = sorted(meaning.runnable)
        rows.append(
            [meaning.dead, meaning.stopped, *runnable, *[runnable[0]] * (5 - len(runnable))]
        )
    return np.array(rows, np.int64)


def _assemble(core: Replay, events: Events, strings: tuple[str, ...]) -> Timelines:
    workers = Workers(**core.worker_table())
    processors = core.processor_table()
    order, start = group(core.interval_worker.array(), len(workers))
    by_cpu, stolen_start = group(core.stolen_processor.array(), len(processors))
    by_run, ran_start = group(core.ran_processor.array(), len(processors))
    return Timelines(
        workers=workers,
        start=start,
        begin=core.interval_begin.array()[order],
        end=core.interval_end.array()[order],
        state=core.interval_state.array()[order].astype(np.uint8),
        detail=core.interval_detail.array()[order],
        cpu=core.interval_cpu.array()[order],
        waker=core.interval_waker.array()[order],
        woken=core.interval_woken.array()[order],
        stolen_start=stolen_start,
        stolen_begin=core.stolen_begin.array()[by_cpu],
        stolen_end=core.stolen_end.array()[by_cpu],
        stolen_state=core.stolen_state.array()[by_cpu].astype(np.uint8),
        stolen_detail=core.stolen_detail.array()[by_cpu],
        ran_start=ran_start,
        ran_begin=core.ran_begin.array()[by_run],
        ran_end=core.ran_end.array()[by_run],
        ran_worker=core.ran_worker.array()[by_run],
        processors=processors,
        strings=strings,
        losses=events.losses,
    )
