"""Events written by hand: rows ``(time, cpu, kind, fields)`` in the twin's notation.

Fields: SWITCH (prev, prev_state, next), WAKING / WAKEUP / WAKEUP_NEW (tid[, target cpu]),
FORK (parent, child[, processes of both]), EXIT, EXEC and CURRENT (tid), IRQ_ENTRY (irq, name),
IRQ_EXIT (irq), SOFTIRQ (vec), SOFTIRQ_RAISE (vec, flags of ftrace), TIMER (),
TIMER_FUNCTION (address), VECTOR (name), STATEDUMP (tid, status[, process, its parent, name]),
SYSCALL_ENTRY (name), SYSCALL_EXIT (), NET_SEND and NET_RECEIVE (buffer[, source address]),
FILE_LOCK (what it returns, inode, owner, type, first, last), FUTEX (address).
"""

from __future__ import annotations

import numpy as np

from critpath.model import EventClass, Events, Kind, State
from critpath.read.event_names import KERNEL_EVENTS
from critpath.schema.environment import read_environment

TEXT = {"prev_comm", "next_comm", "comm", "parent_comm", "child_comm", "name", "filename"}
KSOFTIRQD = {90: 0, 91: 1}  # tid -> cpu
FUNCTIONS = {-4096: "tcp_delack_timer", 8192: "process_timeout"}
WAKES = {Kind.WAKING, Kind.WAKEUP, Kind.WAKEUP_NEW}


def canonical(kind, fields, cpu):
    """The fields of an event in the order of the one table of spellings."""

    def comm(tid):
        if tid in KSOFTIRQD:
            return f"ksoftirqd/{KSOFTIRQD[tid]}"
        return f"t{tid}" if tid else "swapper"

    if kind == Kind.SWITCH:
        prev, state, following = fields
        return [comm(prev), prev, state, comm(following), following]
    if kind in WAKES:
        target, *where = fields
        return [target, comm(target), *(where or [cpu]), 1]
    if kind == Kind.FORK:
        parent, child, *processes = fields
        mother, own = processes or fields
        return [parent, mother, child, own, comm(parent), comm(child)]
    if kind in {Kind.EXIT, Kind.EXEC}:
        return [fields[0], comm(fields[0])]
    if kind == Kind.STATEDUMP:
        tid, status, *known = fields
        process, parent, name = known or (tid, 0, comm(tid))
        return [tid, process, name, status, cpu, 0, parent]
    if kind in {Kind.TIMER_ENTRY, Kind.TIMER_EXIT}:
        return [0]
    if kind in {Kind.SYSCALL_ENTRY, Kind.SYSCALL_EXIT}:
        return []
    if kind == Kind.FILE_LOCK:
        ret, inode, *rest = fields
        return [ret, 7, inode, *rest]
    if kind in {Kind.NET_SEND, Kind.NET_RECEIVE}:
        buffer, *source = fields
        return [buffer, 0, *(source or [0]), *[0] * 6]
    return list(fields)


def class_name(kind, fields):
    if kind == Kind.SYSCALL_ENTRY:
        return f"syscall_entry_{fields[0]}"
    if kind in {Kind.VECTOR_ENTRY, Kind.VECTOR_EXIT}:
        return f"x86_irq_vectors_{fields[0]}_{'entry' if kind == Kind.VECTOR_ENTRY else 'exit'}"
    return next(w for w in KERNEL_EVENTS if w.kind == kind).names[0]


def build(rows, *, kernel="6.1.0", losses=(), end=None, success=False):
    """Return the `Events` of some rows, which must be in order of time."""
    strings, codes = [""], {"": 0}
    classes, places = [], {}
    values, offset, event_class = [], [], []
    for _, cpu, kind, fields in rows:
        name = class_name(kind, fields)
        # A call and what is said of its futex have one name.
        if (name, kind) not in places:
            wanted = next(w for w in KERNEL_EVENTS if w.kind == kind)
            names = tuple(spellings[0] for spellings in wanted.fields)
            types = tuple("str" if n in TEXT else "int" for n in names)
            if kind in WAKES and not success:
                types = (*types[:3], "absent")
            places[name, kind] = len(classes)
            classes.append(EventClass(name, kind, names, types))
        event_class.append(places[name, kind])
        offset.append(len(values))
        given = canonical(kind, fields, cpu)
        for value in [*given, *[0] * (len(classes[event_class[-1]].fields) - len(given))]:
            if isinstance(value, str):
                if value not in codes:
                    codes[value] = len(strings)
                    strings.append(value)
                value = codes[value]  # noqa: PLW2901 - a text is its code from here on
            values.append(value)
    times = [row[0] for row in rows]
    return Events(
        timestamp=np.array(times, np.int64),
        cpu=np.array([row[1] for row in rows], np.int32),
        event_class=np.array(event_class, np.int32),
        offset=np.array(offset, np.int64),
        values=np.array(values, np.int64),
        classes=tuple(classes),
        strings=tuple(strings),
        hosts=("host",),
        losses=tuple(losses),
        begin=times[0],
        end=times[-1] if end is None else end,
        total=len(rows),
        environment=(
            read_environment(
                {
                    "hostname": "host",
                    "kernel_release": kernel,
                    "timer_functions": "fffffffffffff000=tcp_delack_timer,"
                    "2000=process_timeout,=x,1",
                    "net_devices": "tsnep-3=eth9,=x,1,virtio2-input.0=eth0",
                }
            ),
        ),
    )


def find_lifetimes(timelines):
    """(tid, intervals) of every worker but idle ones, wakers as tids: as the twin has them."""
    workers = timelines.workers
    result = []
    for w in np.flatnonzero(workers.idle_cpu < 0).tolist():
        rows = range(int(timelines.start[w]), int(timelines.start[w + 1]))
        intervals = []
        for row in rows:
            waker = int(timelines.waker[row])
            woken = int(timelines.woken[row])
            intervals.append(
                [
                    int(timelines.begin[row]),
                    int(timelines.end[row]),
                    State(int(timelines.state[row])),
                    timelines.strings[timelines.detail[row]],
                    None if waker < 0 else int(workers.tid[waker]),
                    None if woken < 0 else woken,
                ]
            )
        result.append((int(workers.tid[w]), intervals))
    return result


def drawn(timelines, tid):
    """``0-5 RUN, 5-9 WAIT_DISK(nvme0q1)<7@8``: the lives of a thread, one text each."""
    texts = []
    for owner, intervals in find_lifetimes(timelines):
        if owner == tid:
            parts = []
            for begin, end, state, detail, waker, woken in intervals:
                text = f"{begin}-{end} {state.name}" + (f"({detail})" if detail else "")
                if woken is not None:
                    text += f"<{'' if waker is None else waker}@{woken}"
                parts.append(text)
            texts.append(", ".join(parts))
    return texts
