"""The few events of a recording that the finders of executions ask about.

A recording has one switch for every few events; finders ask who had a cpu when a mark was
made, and what some threads were called.  For that it is enough to keep

- every event that is not one of the kernel's frequent ones, and who had the cpu then: that is
  known at its next switch (`Events.current`),
- of each thread, in each of its lives, the first and the last switch that names it, and
  both sides of every change of its name.

Whatever is asked of a thread's name at a position is then answered by the same name: a
switch that is left out lies between two that are kept and have its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from enum import IntFlag
from typing import TYPE_CHECKING, Final

import numpy as np

from critpath.executions._prefilter import EventFilter
from critpath.executions.specification import Specification, name_marker_events
from critpath.model import I64, U8, EventChunk, EventClass, Events, Kind
from critpath.model.events import Aside
from critpath.model.gaps import BASE, Gaps

if TYPE_CHECKING:
    from critpath.model.timelines import Columns

# technical: events that are in memory together before marks are set aside, 6 MB.
_TOGETHER: Final = 1 << 16


class Action(IntFlag):
    """What is done with the events of a class."""

    DROP = 0
    KEEP = 1
    MARK = 2  # the thread that has its cpu just then is asked for
    SWITCH = 4
    BIRTH = 8  # the thread in its first field begins anew
    FORK = 16  # the thread in its third field does


# What finders ask of the kernel's own events; every other of them is left out.
_KINDS: Final = {
    Kind.OTHER: Action.KEEP | Action.MARK,
    Kind.SWITCH: Action.SWITCH,
    Kind.WAKEUP_NEW: Action.KEEP | Action.BIRTH,
    Kind.FORK: Action.KEEP | Action.FORK,
    Kind.EXEC: Action.KEEP,
    Kind.EXIT: Action.KEEP,
    Kind.STATEDUMP: Action.KEEP,
    Kind.NET_SEND: Action.KEEP,
    Kind.NET_RECEIVE: Action.KEEP,
    Kind.FILE_LOCK: Action.KEEP,
}


class Prefilter:
    """Keeps the events of a stream with gaps, or none, that `find_executions` needs.

    Events that one of the specifications names are kept, however frequent they are; aside
    (`Events.aside`) where nothing else is asked of them, and there is a place to keep them.

    Parameters
    ----------
    specifications : collection of Specification
    gaps : Gaps
    keep : callable or None
        Takes columns, and returns what gives them back.
    """

    def __init__(
        self,
        specifications: Collection[Specification],
        gaps: Gaps,
        keep: Callable[[Columns], Callable[[], Columns]] | None = None,
    ) -> None:
        patterns = [p for s in specifications for p in (s.begin, s.end) if p is not None]
        self._named = {pattern.name for pattern in patterns}
        self._named.update(name for s in specifications for name in name_marker_events(s))
        # Whether what threads do to each other is asked for: of all, or of those with sockets.
        self.slices = any(s.kind == "slices" for s in specifications)
        self.requests = self.slices or any(s.kind == "requests" for s in specifications)
        base = gaps.of(BASE)
        order = np.argsort(base.host, kind="stable")
        hosts = np.arange(int(base.host.max(initial=-1)) + 2)
        start = np.searchsorted(base.host[order], hosts).astype(np.int64)
        self._filter = EventFilter(start, base.begin[order], base.end[order])
        plain = [s.marks_alone for s in specifications]
        self._keep = keep if plain and all(plain) and not len(gaps) else None
        self._parts: list[Callable[[], Columns]] = []
        self._rest = 0
        self._aside: U8 = np.zeros(0, np.uint8)
        self._known = 0
        self._actions: U8 = np.zeros(0, np.uint8)
        self._hosts: I64 = np.zeros(0, np.int64)
        self._widths: I64 = np.zeros(0, np.int64)

    def feed(self, chunk: EventChunk, classes: Sequence[EventClass]) -> None:
        """Take the next events; ``classes`` are those known now, which only ever grow."""
        if len(classes) != self._known:
            self._known = len(classes)
            self._actions = np.array([self._action(c) for c in classes], np.uint8)
            self._hosts = np.array([c.host for c in classes], np.int64)
            self._widths = np.array([len(c.fields) for c in classes], np.int64)
            self._aside = np.array([self._is_aside(c) for c in classes], np.uint8)
        self._filter.feed(
            chunk.timestamp,
            chunk.cpu,
            chunk.event_class,
            chunk.offset,
            chunk.values,
            self._actions,
            self._hosts,
            self._widths,
        )
        if self._keep is not None and self._filter.kept_count - self._rest >= _TOGETHER:
            self._cut(self._keep, all_of_them=False)

    def _cut(self, keep: Callable[[Columns], Callable[[], Columns]], *, all_of_them: bool) -> None:
        part = self._filter.cut(self._aside, all_of_them)
        self._rest = self._filter.kept_count
        if len(part[0]):
            self._parts.append(keep(part))

    def events(self, recording: Events) -> Events:
        """Return the events kept, with everything but the columns from ``recording``."""
        if self._parts and self._keep is not None:
            self._cut(self._keep, all_of_them=True)
        timestamp, cpu, event_class, offset, values, current, position = self._filter.take()
        return replace(
            recording,
            timestamp=timestamp,
            cpu=cpu,
            event_class=event_class,
            offset=offset,
            values=values,
            current=current,
            aside=Aside(position, tuple(self._parts)) if self._parts else None,
        )

    def _is_aside(self, of: EventClass) -> bool:
        return of.kind == Kind.OTHER and of.name in self._named

    def _action(self, of: EventClass) -> Action:
        action = _KINDS.get(of.kind, Action.DROP)
        return action | Action.KEEP | Action.MARK if of.name in self._named else action
