"""The events of a recording as one table: a row each, a column for each field that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np

from critpath.model import I32, I64, Bool, Column, EventChunk, EventClass, EventRequest, Kind, Rows

# What every event has; a field of one of these names is called with _ behind it.
EVENT_COLUMNS: Final = {
    "recording": "where the event comes from",
    "time_ns": "when it was, on the trace's clock",
    "cpu": "where it was",
    "host": "of several hosts, whose it is",
    "name": "what it is called; its fields are columns too, by their names",
    "current_tid": "the thread that had the cpu, by the switches before",
}
_SWITCHES: Final = "*sched_switch"
_NEXT: Final = ("next_tid", "next_pid")
_UNSEEN: Final = -1
_LONG: Final = 1 << 62


@dataclass(frozen=True)
class EventQuestion:
    """Which events are wanted, and what of them.

    Attributes
    ----------
    names : tuple of str
        Patterns, of which a name matches one; none for every event.
    begin, end : int
        Between which times (ns), both included.
    cpus, tids : frozenset of int or None
        On which cpus, and during which threads; None for all.
    columns : frozenset of str or None
        Which columns; None for all.
    """

    names: tuple[str, ...] = ()
    begin: int = -_LONG
    end: int = _LONG
    cpus: frozenset[int] | None = None
    tids: frozenset[int] | None = None
    columns: frozenset[str] | None = None

    def wants(self, column: str) -> bool:
        """Return whether a column is wanted."""
        return self.columns is None or column in self.columns

    @property
    def follows_threads(self) -> bool:
        """Whether it has to be known which thread has a cpu."""
        return self.tids is not None or self.wants("current_tid")

    @property
    def requests(self) -> tuple[EventRequest, ...]:
        """What a reader has to decode."""
        names = self.names or ("*",)
        if self.follows_threads and self.names:
            names = *names, _SWITCHES
        return (EventRequest(Kind.OTHER, names, (("*",),)),)


@dataclass
class _Field:
    """A column that some events have: its parts, the rows that each is of, and their types."""

    rows: list[I64] = field(default_factory=list)
    values: list[I64] = field(default_factory=list)
    types: list[str] = field(default_factory=list)


class EventTable:
    """Collects events of one recording or several.

    Parameters
    ----------
    question : EventQuestion
    most : int
        Bytes of the table at most.
    """

    def __init__(self, question: EventQuestion, most: int) -> None:
        self._question, self._left = question, most
        self._fixed: list[tuple[I64, I32, I64, I32, I64, int]] = []  # ..., and which recording
        self._fields: dict[str, _Field] = {}
        self._names: dict[str, int] = {}
        self._hosts: dict[str, int] = {}
        self._words: dict[str, int] = {}
        self._recordings: list[str] = []
        self._rows = 0
        self._current: dict[int, int] = {}
        self._before = 0, 0, most

    def begin(self, recording: str) -> None:
        """Begin with a recording."""
        self._recordings.append(recording)
        self._current.clear()
        self._before = self._rows, len(self._fixed), self._left

    def forget(self) -> None:
        """Take back the recording that was begun last."""
        self._recordings.pop()
        self._rows, parts, self._left = self._before
        del self._fixed[parts:]
        for of in self._fields.values():
            kept = sum(bool(len(rows)) and int(rows[0]) < self._rows for rows in of.rows)
            for column in (of.rows, of.values, of.types):
                del column[kept:]

    def add(
        self,
        chunk: EventChunk,
        classes: Sequence[EventClass],
        hosts: Sequence[str],
        text: Callable[[int], str],
    ) -> bool:
        """Add the next events; False if the table would become too large."""
        asked = self._question
        of_class = np.array([self._matches(one.name) for one in classes] or [False], np.bool_)
        kept = of_class[chunk.event_class]
        kept &= (chunk.timestamp >= asked.begin) & (chunk.timestamp <= asked.end)
        if asked.cpus is not None:
            kept &= np.isin(chunk.cpu, list(asked.cpus))
        host = np.array([one.host for one in classes] or [0], np.int64)[chunk.event_class]
        current = np.full(len(chunk), _UNSEEN, np.int64)
        if asked.follows_threads:
            current = self._follow(chunk, classes, host)
        if asked.tids is not None:
            kept &= np.isin(current, list(asked.tids))
        rows = np.flatnonzero(kept)
        if not len(rows):
            return True
        name_codes = np.array(
            [self._names.setdefault(one.name, len(self._names)) for one in classes], np.int64
        )
        host_codes = np.array(
            [self._hosts.setdefault(one, len(self._hosts)) for one in (*hosts, "")], np.int32
        )
        event_class = chunk.event_class[rows]
        self._fixed.append(
            (
                *(chunk.timestamp[rows].copy(), chunk.cpu[rows].copy(), name_codes[event_class]),
                *(host_codes[host[rows]], current[rows], len(self._recordings) - 1),
            )
        )
        self._left -= 48 * len(rows)
        for number in np.unique(event_class).tolist():
            self._add_fields(chunk, classes[number], rows, event_class == number, text)
        self._rows += len(rows)
        return self._left >= 0

    def _matches(self, name: str) -> bool:
        names = self._question.names
        return not names or any(fnmatchcase(name, pattern) for pattern in names)

    def _add_fields(
        self,
        chunk: EventChunk,
        of: EventClass,
        rows: I64,
        mine: Bool,
        text: Callable[[int], str],
    ) -> None:
        """Add the fields of the events of one class."""
        places = np.flatnonzero(mine)
        offset = chunk.offset[rows[places]]
        for at, (name, kind) in enumerate(zip(of.fields, of.types, strict=True)):
            title = name + "_" * (name in EVENT_COLUMNS)
            if kind == "absent" or not self._question.wants(title):
                continue
            values = chunk.values[offset + at]
            if kind == "str":
                codes, where = np.unique(values, return_inverse=True)
                known = [self._words.setdefault(text(c), len(self._words)) for c in codes.tolist()]
                values = np.array(known, np.int64)[where.reshape(-1)]
            found = self._fields.setdefault(title, _Field())
            found.rows.append(places + self._rows)
            found.values.append(values)
            found.types.append(kind)
            self._left -= 16 * len(values)

    def _follow(self, chunk: EventChunk, classes: Sequence[EventClass], host: I64) -> I64:
        """Return which thread had the cpu at each event."""
        following = np.full(len(chunk), _UNSEEN, np.int64)
        switches = np.zeros(len(chunk), np.bool_)
        for number, one in enumerate(classes):
            at = next((i for i, name in enumerate(one.fields) if name in _NEXT), None)
            if at is None or not fnmatchcase(one.name, _SWITCHES):
                continue
            mine = np.flatnonzero(chunk.event_class == number)
            following[mine] = chunk.values[chunk.offset[mine] + at]
            switches[mine] = True
        current = np.full(len(chunk), _UNSEEN, np.int64)
        place = host << 32 | chunk.cpu
        for key in np.unique(place).tolist():
            mine = np.flatnonzero(place == key)
            # The last switch at or before each event, and then the one before that.
            last = np.where(switches[mine], np.arange(len(mine)), -1)
            last = np.maximum.accumulate(last)
            before = np.concatenate([[-1], last[:-1]])
            known = self._current.get(key, _UNSEEN)
            current[mine] = np.where(before >= 0, following[mine[np.maximum(before, 0)]], known)
            if len(last) and last[-1] >= 0:
                self._current[key] = int(following[mine[last[-1]]])
        return current

    def finish(self) -> Rows:
        """Return the table."""
        time, cpu, name, host, current, recording = self._join()
        columns: dict[str, Column] = {
            "recording": Column(recording, tuple(self._recordings) or ("",)),
            "time_ns": Column(time),
            "cpu": Column(cpu, valid=cpu >= 0),
            "host": Column(host, tuple(self._hosts) or ("",)),
            "name": Column(name, tuple(self._names) or ("",)),
            "current_tid": Column(current, valid=current >= 0),
        }
        columns = {name: of for name, of in columns.items() if self._question.wants(name)}
        for title, of in self._fields.items():
            columns[title] = self._column(of)
        return Rows("events", columns or {"time_ns": Column(time)})

    def _join(self) -> tuple[Any, ...]:
        parts: Iterable[Sequence[Any]] = zip(*self._fixed, strict=True)
        *arrays, which = [list(part) for part in parts] or [[] for _ in range(6)]
        kinds = (np.int64, np.int32, np.int64, np.int32, np.int64)
        joined = [
            np.concatenate(part) if part else np.zeros(0, kind)
            for part, kind in zip(arrays, kinds, strict=True)
        ]
        sizes = [len(part) for part in arrays[0]]
        return *joined, np.repeat(np.array(which, np.int32), sizes)

    def _column(self, of: _Field) -> Column:
        """Return a field's column: numbers, or text where some event has text in it."""
        kinds = set(of.types)
        valid = np.zeros(self._rows, np.bool_)
        if "str" in kinds and len(kinds) > 1:
            words: Mapping[str, int] = dict(self._words)
            texts = {code: text for text, code in words.items()}
            found = [""] * self._rows
            for rows, values, kind in zip(of.rows, of.values, of.types, strict=True):
                valid[rows] = True
                for row, value in zip(rows.tolist(), values.tolist(), strict=True):
                    found[row] = texts[value] if kind == "str" else str(value)
            return Column(found, valid=valid)
        table = np.zeros(self._rows, np.float64 if "float" in kinds else np.int64)
        for rows, values, kind in zip(of.rows, of.values, of.types, strict=True):
            valid[rows] = True
            table[rows] = values.view(np.float64) if kind == "float" else values
        if "str" in kinds:
            return Column(table, tuple(self._words), valid=valid)
        return Column(table, valid=valid)
