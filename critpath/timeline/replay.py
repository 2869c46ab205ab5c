"""Events -> Timelines: prepares the tables, runs the native replay, sorts its columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from critpath.errors import UnreadableError
from critpath.model import Events, Kind, State, Timelines, Workers
from critpath.timeline._replay import Replay
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
    present = kinds[np.flatnonzero(np.bincount(events.event_class, minlength=len(kinds)))]
    if not np.any(present == Kind.SWITCH):
        raise UnreadableError(
            "the trace has no sched_switch event",
            "record with the sched tracepoints enabled (critpath's `minimal` profile)",
        )
    strings = _Strings(events.strings)
    details = {name: strings.code(name) for name in _DETAILS}
    softirq_detail = [strings.code(name) for name, _ in SOFTIRQS] + [strings.code("softirq")]
    softirq_state = [state for _, state in SOFTIRQS] + [State.WAIT_SOFTIRQ]
    class_detail, class_state, class_flags = _by_class(events, strings)
    irq_state = np.full(len(strings.all), State.WAIT_DEVICE, np.int32)
    for code in _irq_names(events):
        irq_state[code] = device_state(strings.all[code])
    sleep_state = np.full(len(strings.all), -1, np.int32)
    for code in {int(class_detail[i]) for i in np.flatnonzero(kinds == Kind.SYSCALL_ENTRY)}:
        state = syscall_state(strings.all[code])
        sleep_state[code] = -1 if state is None else state
    cpus = int(events.cpu.max(initial=0)) + 1
    if cpus > 32768:
        raise UnreadableError(
            f"the trace names cpu {cpus - 1}, which no machine has",
            "the trace is damaged; record it again",
        )
    core = Replay(
        len(events.hosts),
        cpus,
        has_waking=int(np.any(present == Kind.WAKING)),
        has_syscalls=int(np.any(present == Kind.SYSCALL_ENTRY)),
        details=details,
        timer_state=int(State.WAIT_TIMER),
        irq_state=irq_state,
        syscall_state=sleep_state,
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
    warnings: tuple[str, ...] = ()
    if core.unplaced:
        warnings = (f"{core.unplaced:,} kernel events name no cpu and were left out",)
    return replace(_assemble(core, events, tuple(strings.all)), warnings=warnings)


def _irq_names(events: Events) -> list[int]:
    """Return the codes of the names that interrupts have in the trace."""
    codes: set[int] = set()
    for index, event_class in enumerate(events.classes):
        if event_class.kind == Kind.IRQ_ENTRY and "name" in event_class.fields:
            rows = events.offset[events.event_class == index]
            codes.update(events.values[rows + event_class.fields.index("name")].tolist())
    return sorted(codes)


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
    (intervals, stolen, ran) = core.columns()
    start, begin, end, state, detail, cpu, waker, woken = intervals
    return Timelines(
        workers=workers,
        start=start,
        begin=begin,
        end=end,
        state=state,
        detail=detail,
        cpu=cpu,
        waker=waker,
        woken=woken,
        stolen_start=stolen[0],
        stolen_begin=stolen[1],
        stolen_end=stolen[2],
        stolen_state=stolen[3],
        stolen_detail=stolen[4],
        ran_start=ran[0],
        ran_begin=ran[1],
        ran_end=ran[2],
        ran_worker=ran[3],
        processors=core.processor_table(),
        strings=strings,
        losses=events.losses,
    )
