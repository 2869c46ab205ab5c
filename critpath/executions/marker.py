"""Executions that a program marks with messages: ``critpath:begin NAME [KEY [MORE...]]``.

Any tracer's message event will do: ``echo critpath:begin job 7 >
/sys/kernel/tracing/trace_marker``, LTTng's logger file, ``tracef``, Python's
``logging`` through the LTTng agent.  ``@TID`` at the end names the thread it is about,
where that is not the one that writes: ``critpath mark`` is a process of its own and
speaks for its shell.  In names and keys ``%XX`` stands for a byte of UTF-8; words behind the
key are a part of the label; ``@chance=P`` says by which chance a recording under a budget has
chosen the execution.  A program
with its own tracepoints can emit events named ``critpath:begin`` and ``critpath:end``
with fields ``name``, ``key``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Hashable
from typing import Final
from urllib.parse import unquote

import numpy as np
from msgspec import Struct

from critpath.executions.events import build_executions, pair_events
from critpath.executions.fields import (
    CONTEXTS,
    Condition,
    EventPattern,
    Texts,
    field_texts,
    find_occurrences,
    has_field,
)
from critpath.executions.scheduling import UNKNOWN, Owners, Scheduling, find_owners, find_parents
from critpath.model import F64, I64, EventRequest, Events, Executions, Kind
from critpath.units import plural, safe_text, shorten

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

MARKER_EVENTS: Final = (
    *(EventRequest(Kind.OTHER, (name,), ((field,), *CONTEXTS)) for name, field in MESSAGES),
    *(
        EventRequest(Kind.OTHER, (f"critpath:{what}",), (("name",), ("key",), *CONTEXTS))
        for what in ("begin", "end")
    ),
)


# A word like @4711 is no key: it names the thread; so is @4026532281:7, which names one
# as a pid namespace numbers it.
_WORD: Final = r"(?!@(?:[\d:]+\s*$|chance=))\S+"
_TEXT: Final = (
    rf"(?:^|\s)critpath:{{what}}[ \t]+(?P<name>\S+)(?:[ \t]+(?P<key>{_WORD}))?"
    rf"(?P<more>(?:[ \t]+{_WORD})*)"
    rf"(?:[ \t]+@chance=(?P<chance>[0-9.e-]{{{{1,16}}}}))?"
    rf"(?:[ \t]+@(?P<thread>[\d:]{{{{1,32}}}}))?\s*$"
)
_LEAST_CHANCE: Final = 1e-7  # technical: less is nothing that a recorder has said
_OURS: Final = re.compile(r"^\s*critpath:(?P<text>.*)", re.DOTALL)


def find_markers(events: Events) -> Executions:
    """Find executions between ``critpath:begin`` and ``critpath:end`` of the same name.

    With a key they pair by name and key across threads (the subject is the thread of the
    end); without one, by name in one thread.  The id is the key, else ``TID@BEGIN``; the label
    is the name.  A mark's thread is the one it names, ``@TID`` in the kernel's numbers, else
    the one that made it.  A number of a pid namespace only distinguishes marks; the subject is
    then the thread that forked the mark's process (``critpath mark`` speaks for its parent).
    """
    scheduling = Scheduling(events)
    begins, ends = _find_marks(events, "begin"), _find_marks(events, "end")
    # Together: whether a vtid is the kernel's is judged from all of its events.
    owners = find_owners(events, np.concatenate([begins.rows, ends.rows]), scheduling)
    count = len(begins.rows)
    begin_tid = begins.threads_of(events, owners.host[:count], owners.tid[:count])
    end_tid = ends.threads_of(events, owners.host[count:], owners.tid[count:])
    found = pair_events(
        begins.rows,
        begins.groups(owners.host[:count], begin_tid),
        ends.rows,
        ends.groups(owners.host[count:], end_tid),
    )
    first, last = found.begin, found.end
    subject = np.where(end_tid[last] == UNKNOWN, begin_tid[first], end_tid[last])
    notes = [*begins.notes, *ends.notes, *found.notes()]
    if found.unknown:
        notes.append(f"{plural(found.unknown, 'event')} left out: without a known thread")
    if more := int((begins.more != "").sum()):
        notes.append(
            f"{plural(more, 'mark')} with words behind the key: they are a part of the label "
            "(%20 stands for a blank in a name or key)"
        )
    notes += _note_odd_messages(events, np.concatenate([begins.rows, ends.rows]))
    notes += [
        f"no event of the recording says {what}"
        for what, marks in (("critpath:begin", begins), ("critpath:end", ends))
        if not len(marks.rows)
    ]
    # The context of a mark that names another thread is the mark's own process.
    own = (begin_tid[first] == subject) & (owners.tid[:count][first] == subject)
    names = field_texts(events, begins.rows[first], "procname")
    return build_executions(
        events,
        scheduling,
        (begins.rows[first], ends.rows[last]),
        Owners(owners.host[count:][last], subject, owners.notes),
        [begins.key[b] for b in first],
        [begins.name[b] + begins.more[b] for b in first],
        incomplete=found.incomplete,
        notes=tuple(dict.fromkeys(notes)),
        names=[n if n is not None and mine else "" for n, mine in zip(names, own, strict=True)],
        chance=chance if np.isfinite(chance := begins.chances[first]).any() else None,
    )


class _Marks(Struct, frozen=True, eq=False):
    """Marks of one kind.

    Attributes
    ----------
    rows : int64 [n]
        Positions in the events, ascending.
    name, key, thread, more : object [n]
        ``key`` and ``thread`` are None where a mark has none; ``more`` is what is behind the
        key, with a blank before it, "" for nothing.
    chance : object [n]
        Alike.
    notes : tuple of str
    """

    rows: I64
    name: Texts
    key: Texts
    thread: Texts
    more: Texts
    chance: Texts
    notes: tuple[str, ...]

    @property
    def chances(self) -> F64:
        """By which chance each was chosen, NaN for one that was not."""
        result = np.full(len(self.rows), np.nan)
        for place, text in enumerate(self.chance.tolist()):
            with contextlib.suppress(ValueError):
                if text is not None and _LEAST_CHANCE <= float(text) <= 1:
                    result[place] = float(text)
        return result

    def threads_of(self, events: Events, host: I64, made_by: I64) -> I64:
        """Return the thread that each mark is about."""
        tid = made_by.copy()
        inside = []
        for place, text in enumerate(self.thread.tolist()):
            # The kernel's numbers end at 2^22.
            if text is not None and text.isdigit() and 0 < int(text) < 1 << 31:
                tid[place] = int(text)
            elif text is not None and ":" in text:
                inside.append(place)
        if inside:
            forked = find_parents(events, host[inside], made_by[inside], self.rows[inside])
            tid[inside] = np.where(forked == UNKNOWN, tid[inside], forked)
        return tid

    def groups(self, host: I64, tid: I64) -> list[Hashable]:
        """Return what a begin and its end must share, None where that is unknown."""
        rows = zip(
            host.tolist(), tid.tolist(), self.name, self.key, self.thread.tolist(), strict=True
        )
        return [
            (h, n, "key", k)
            if k is not None
            else (h, n, "inside", inside)
            if inside is not None and ":" in inside
            else (h, n, "thread", t)
            if t != UNKNOWN
            else None
            for h, t, n, k, inside in rows
        ]


def _find_marks(events: Events, what: str) -> _Marks:
    """Return every mark of one kind."""
    expression = re.compile(_TEXT.format(what=what))
    recorded = {c.name for c in events.classes}
    found = [
        find_occurrences(events, EventPattern(name, (Condition(field, expression=expression),)))
        for name, field in MESSAGES
        if has_field(events, name, field)
    ]
    texts = len(found)
    native = f"critpath:{what}"
    if native in recorded:
        found.append(find_occurrences(events, EventPattern(native)))
    rows = np.concatenate([np.zeros(0, np.int64), *(f.rows for f in found)])
    order = np.argsort(rows, kind="stable")
    columns = {
        field: np.concatenate(
            [
                np.zeros(0, object),
                # Only in a text blanks are in the way; a field of its own is as it is.
                *(
                    _unquote(f.texts(field)) if i < texts else f.texts(field)
                    for i, f in enumerate(found)
                ),
            ]
        )[order]
        for field in ("name", "key", "thread", "more", "chance")
    }
    # A tracepoint always has the field; nothing in it means there is no key.
    columns["key"][columns["key"] == ""] = None
    more = columns["more"]
    more[:] = [" ".join(["", *text.split()]) if text else "" for text in more.tolist()]
    notes = tuple(note for f in found for note in f.notes)
    return _Marks(
        rows[order], **{k: v for k, v in columns.items() if k != "more"}, more=more, notes=notes
    )


def _note_odd_messages(events: Events, marks: I64) -> list[str]:
    """Return a note on messages that begin as a mark does and are none."""
    odd: list[str] = []
    for name, field in MESSAGES:
        if has_field(events, name, field):
            found = find_occurrences(
                events, EventPattern(name, (Condition(field, expression=_OURS),))
            )
            other = ~np.isin(found.rows, marks)
            odd += found.texts("text")[other].tolist()
    if not odd:
        return []
    shown = safe_text(shorten(f"critpath:{odd[0]}".strip()))
    one = len(odd) == 1
    said = f"{plural(len(odd), 'message')} that begin{'s' * one} with critpath: and "
    said += f"{'is no mark' if one else 'are no marks'}, as {shown}: "
    return [said + "write critpath:begin NAME [KEY] or critpath:end NAME [KEY]"]


def _unquote(texts: Texts) -> Texts:
    result = texts.copy()
    for place, text in enumerate(texts.tolist()):
        if text is not None and "%" in text:
            result[place] = unquote(text, errors="replace")
    return result
