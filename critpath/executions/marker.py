"""Executions that a program marks with messages: ``critpath:begin NAME [KEY]``.

Any tracer's message event will do: ``echo critpath:begin job 7 >
/sys/kernel/tracing/trace_marker``, LTTng's logger file, ``tracef``, Python's
``logging`` through the LTTng agent.  A program with its own tracepoints can emit
events named ``critpath:begin`` and ``critpath:end`` with fields ``name``, ``key``.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from critpath.executions.events import find_between
from critpath.executions.fields import Occurrences, has_field, occurrences
from critpath.executions.pattern import CONTEXTS, Condition, EventPattern
from critpath.model import Events, Executions, Kind, Wanted

# The event that carries a message, and its field: ftrace's trace_marker as its own
# tools and perf name it, LTTng's logger file, LTTng-UST's tracef and tracelog, and
# its agents for Python, java.util.logging and log4j.
MESSAGES: Final = (
    ("print", "buf"),
    ("ftrace:print", "buf"),
    ("trace_marker", "msg"),
    ("lttng_logger", "msg"),
    ("lttng_ust_tracef:event", "msg"),
    ("lttng_ust_tracelog:TRACE_INFO", "msg"),
    ("lttng_python:event", "msg"),
    ("lttng_jul:event", "msg"),
    ("lttng_log4j:event", "msg"),
)

WANTED: Final = (
    *(Wanted(Kind.OTHER, (name,), ((field,), *CONTEXTS)) for name, field in MESSAGES),
    *(
        Wanted(Kind.OTHER, (f"critpath:{what}",), (("name",), ("key",), *CONTEXTS))
        for what in ("begin", "end")
    ),
)


def find_markers(events: Events) -> Executions:
    """Find executions between ``critpath:begin`` and ``critpath:end`` of the same name.

    With a key they pair by name and key across threads (the subject is the thread
    of the end); without one, by name in one thread.  The id is the key, else
    ``TID@BEGIN``; the label is the name.
    """
    begins, ends = _marks(events, "begin"), _marks(events, "end")
    keyed, plain = (
        find_between(
            events,
            _subset(begins, keyed=with_key),
            _subset(ends, keyed=with_key),
            key="key" if with_key else "",
            within="name",
            label="name",
        )
        for with_key in (True, False)
    )
    notes = [
        note for note in (*keyed.notes, *plain.notes) if not note.startswith("no event of the")
    ]
    notes += [
        f"no event of the recording says {side.pattern.name}"
        for side in (begins, ends)
        if not len(side.rows)
    ]
    return _joined(keyed, plain, tuple(dict.fromkeys(notes)))


def _marks(events: Events, what: str) -> Occurrences:
    """Return every mark of one kind with its name and its key (None without one)."""
    text = rf"(?:^|\s)critpath:{what} (?P<name>\S+)(?: +(?P<key>\S+))?\s*$"
    recorded = {c.name for c in events.classes}
    found = [
        occurrences(events, EventPattern(name, (Condition(field, expression=re.compile(text)),)))
        for name, field in MESSAGES
        if has_field(events, name, field)
    ]
    native = f"critpath:{what}"
    if native in recorded:
        found.append(occurrences(events, EventPattern(native)))
    rows = np.concatenate([np.zeros(0, np.int64), *(f.rows for f in found)])
    order = np.argsort(rows)
    columns = {
        field: np.concatenate([np.zeros(0, object), *(f.texts(field) for f in found)])[order]
        for field in ("name", "key")
    }
    # A tracepoint always has the field; nothing in it means there is no key.
    columns["key"][columns["key"] == ""] = None
    notes = tuple(note for f in found for note in f.notes)
    return Occurrences(events, EventPattern(native), rows[order], columns, notes)


def _subset(marks: Occurrences, *, keyed: bool) -> Occurrences:
    mine = np.array([(k is not None) == keyed for k in marks.parsed["key"]], np.bool_)
    columns = {field: column[mine] for field, column in marks.parsed.items()}
    return Occurrences(marks.events, marks.pattern, marks.rows[mine], columns, marks.notes)


def _joined(one: Executions, other: Executions, notes: tuple[str, ...]) -> Executions:
    begin, end, tid, host = (
        np.concatenate([getattr(one, c), getattr(other, c)])
        for c in ("begin", "end", "tid", "host")
    )
    order = np.lexsort((tid, end, begin))

    def texts(name: str) -> tuple[str, ...]:
        both = (*getattr(one, name), *getattr(other, name))
        return tuple(both[i] for i in order.tolist())

    return Executions(
        id=texts("id"),
        begin=begin[order],
        end=end[order],
        tid=tid[order],
        host=host[order],
        comm=texts("comm"),
        label=texts("label"),
        incomplete=one.incomplete + other.incomplete,
        notes=notes,
    )
