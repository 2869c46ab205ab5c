"""Executions that are threads: each one's whole life in the recording."""

from __future__ import annotations

from typing import Final

import numpy as np

from critpath.executions.matching import build
from critpath.executions.membership import Where, belong, known_places
from critpath.executions.process import COMM_LENGTH
from critpath.executions.scheduling import Owners, Scheduling, hosts_of, rows_of_kind
from critpath.model import I64, Events, Executions, Kind
from critpath.units import plural

# Events that touch a thread, and the field that names it.  A wake is not among
# them: it says that the thread exists, not that it does anything.
TOUCHES: Final = (
    (Kind.FORK, "child_tid"),
    (Kind.WAKEUP_NEW, "tid"),
    (Kind.SWITCH, "prev_tid"),
    (Kind.SWITCH, "next_tid"),
    (Kind.EXIT, "tid"),
)


def find_threads(events: Events, where: Where | None = None) -> Executions:
    """Find the life of every thread: first to last event that touches it.

    A thread id that is created again begins another life.  Idle threads (tid 0)
    are no executions.

    Parameters
    ----------
    events : Events
        SWITCH, FORK, WAKEUP_NEW and EXIT of the recording.
    where : Where, optional
        Only threads of this namespace, control group or name.
    """
    row, thread, born = _touches(events)
    # A creation shows up as a fork and then a first wake: one life begins, not two.
    same = np.diff(thread, prepend=-1) == 0
    after_birth = np.concatenate([[False], born[:-1]]) & same
    starts = np.flatnonzero(~same | (born & ~after_birth))
    ends = np.append(starts[1:], len(row))[: len(starts)] - 1
    first, last = row[starts], row[ends]
    once = events.timestamp[first] == events.timestamp[last]
    counts = [(int(once.sum()), "seen at a single instant left out")]
    keep = ~once
    scheduling = Scheduling(events)
    if where:
        host, tid = thread[starts] >> 32, thread[starts] & 0xFFFFFFFF
        inside, unknown = belong(events, where, host, tid, last)
        if where.comm:
            inside &= scheduling.called(where.comm[:COMM_LENGTH], (host, tid), (first, last))
        counts.append((int((keep & ~inside).sum()), "not of those asked for"))
        counts.append((unknown, "of which the trace does not tell the namespace or group"))
        keep &= inside
    first, last, of_thread = first[keep], last[keep], thread[starts][keep]
    return build(
        events,
        scheduling,
        (first, last),
        Owners(of_thread >> 32, of_thread & 0xFFFFFFFF, ()),
        [None] * len(first),
        [""] * len(first),
        incomplete=0,
        notes=(
            *(known_places(events, where) if where and not len(first) else ()),
            *(f"{plural(count, 'thread')} {why}" for count, why in counts if count),
        ),
        forward=True,
    )


def _touches(events: Events) -> tuple[I64, I64, I64]:
    """Return every touch as (row, host and tid in one number, is a creation), by thread."""
    parts = []
    for kind, name in TOUCHES:
        rows = rows_of_kind(events, kind)
        tid = events.column(rows, name)
        rows, tid = rows[tid > 0], tid[tid > 0]
        born = np.full(len(rows), kind in {Kind.FORK, Kind.WAKEUP_NEW}, np.int64)
        parts.append(np.stack([rows, (hosts_of(events, rows) << 32) + tid, born]))
    row, thread, born = np.concatenate(parts, axis=1)
    order = np.lexsort((row, thread))
    return row[order], thread[order], born[order]
