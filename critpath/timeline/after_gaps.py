"""What was going on at the end of each gap, as the events after it tell.

A gap hides who has each cpu, and what interrupts it is in.  The cpu's next switch names the thread
that had it, interrupts that end and did not begin were going on, a system call that ends was in
progress.  All that is known only later: a recording with gaps is searched in one pass
(`AfterGaps`), and the replay is told at the end of each gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct, field

from critpath.model import I64, U8, EventChunk, EventClass, Events, Kind
from critpath.model.gaps import BASE, Gaps
from critpath.timeline.contexts import vector_name

# What `Resumed` says; the same numbers are in `_gaps.pxi`.
ON_CPU, IN_CONTEXTS, IS_OBSCURE, IN_CALL = range(4)

_WAKES: Final = (Kind.WAKING, Kind.WAKEUP, Kind.WAKEUP_NEW)
_ENTRIES: Final = (Kind.IRQ_ENTRY, Kind.SOFTIRQ_ENTRY, Kind.TIMER_ENTRY, Kind.VECTOR_ENTRY)
_EXITS: Final = (Kind.IRQ_EXIT, Kind.SOFTIRQ_EXIT, Kind.TIMER_EXIT, Kind.VECTOR_EXIT)
_SOME_CALL: Final = "?"  # which, its end does not say
_CALLS: Final = (Kind.SYSCALL_ENTRY, Kind.FUTEX, Kind.SYSCALL_EXIT)
_MENTIONS: Final = (*_WAKES, Kind.SWITCH, Kind.FORK)
_SWITCH_OR_CALL: Final = np.array([Kind.SWITCH, *_CALLS], np.uint8)
_CONTEXTS: Final = np.array([*_ENTRIES, *_EXITS], np.uint8)


def gap_tables(gaps: Gaps) -> tuple[I64, I64]:
    """Return gaps of `base` as the native replay takes them, and their edges in order of time.

    Returns
    -------
    gaps : int64 [5, gaps]
        Begin, closed, opening, end and host.
    edges : int64 [2 * gaps, 2]
        Time, and twice the gap, plus 1 for its end.
    """
    base = gaps.of(BASE)
    table = np.array([base.begin, base.closed, base.opening, base.end, base.host], np.int64)
    number = 2 * np.arange(len(base), dtype=np.int64)
    times = np.concatenate([base.begin, base.end])
    which = np.concatenate([number, number + 1])
    # Where one ends when the next begins, it ends first.
    order = np.lexsort((1 - (which & 1), times))
    return table.reshape(5, -1), np.column_stack([times, which])[order].astype(np.int64)


class _Cpu(Struct):
    """What a cpu did since a gap, as long as it is not known who had it then."""

    gap: int = -1
    open: list[Any] = field(default_factory=list)  # entries that have not ended
    ended: int = 0  # contexts that ended and did not begin


class AfterGaps:
    """Finds what was going on at the ends of gaps, in events as they come.

    Parameters
    ----------
    gaps : Gaps
    """

    def __init__(self, gaps: Gaps) -> None:
        self._table, _ = gap_tables(gaps)
        hosts = np.unique(self._table[4]).tolist()
        self._of_host = {host: np.flatnonzero(self._table[4] == host) for host in hosts}
        self._rows: list[tuple[int, int, int, int]] = []
        self._cpus: dict[tuple[int, int], _Cpu] = {}
        self._known: dict[tuple[int, int], int] = {}  # (host, cpu): gap since which it is known
        self._since: dict[int, int] = {}  # host: gap
        self._seen: dict[int, list[I64]] = {}  # host: threads named since
        self._on: dict[tuple[int, int], int] = {}  # (host, cpu): thread
        self._told: dict[int, set[int]] = {}  # host: threads whose call is known
        self._open_calls: dict[tuple[int, int], tuple[int, str]] = {}
        self._names: dict[str, int] = {}

    def feed(self, chunk: EventChunk | Events, classes: Sequence[EventClass]) -> None:
        """Search the next events; ``classes`` are those known now."""
        kinds = np.array([int(c.kind) for c in classes] or [0], np.uint8)
        hosts = np.array([c.host for c in classes] or [0], np.int64)
        wanted = np.isin(kinds, np.array([*_MENTIONS, *_ENTRIES, *_EXITS, *_CALLS], np.uint8))
        for name, gaps in self._of_host.items():
            rows = np.flatnonzero((wanted & (hosts == name))[chunk.event_class])
            time = chunk.timestamp[rows]
            after = np.searchsorted(self._table[3, gaps], time, side="right")
            begins = np.append(self._table[0, gaps], np.iinfo(np.int64).max)[after]
            keep = (after > 0) & (time < begins)
            rows, after = rows[keep], after[keep]
            turns = np.flatnonzero(np.diff(after)) + 1
            for some, of in zip(np.split(rows, turns), np.split(after, turns), strict=True):
                if len(some):
                    gap = int(gaps[of[0] - 1])
                    self._search(chunk, classes, name, some, gap, kinds[chunk.event_class[some]])

    def _search(
        self,
        chunk: EventChunk | Events,
        classes: Sequence[EventClass],
        host: int,
        rows: I64,
        gap: int,
        kinds: U8,
    ) -> None:
        """Search events of one host that come after one gap.

        One by one those of a cpu of which it is not known yet who had it, which are few; of the
        others the first call of each thread.
        """
        if self._since.get(host, -1) != gap:
            self._since[host], self._seen[host], self._told[host] = gap, [], set()
        told, cpus, values = self._told[host], chunk.cpu[rows].astype(np.int64), chunk.values
        at = chunk.offset[rows]
        switches = np.flatnonzero(kinds == Kind.SWITCH)
        late = np.ones(len(rows), np.bool_)  # after the first switch of its cpu
        for cpu in np.unique(cpus).tolist():
            if self._known.get((host, cpu), -1) != gap:
                mine = switches[cpus[switches] == cpu]
                end = int(mine[0]) + 1 if len(mine) else len(rows)
                late[:end] &= cpus[:end] != cpu
        mentions = _list_mentions(kinds, at, values)
        slow = ~late & (np.isin(kinds, _SWITCH_OR_CALL) | ((cpus >= 0) & np.isin(kinds, _CONTEXTS)))
        for one in np.flatnonzero(slow).tolist():
            key, kind = (host, int(cpus[one])), int(kinds[one])
            if kind == Kind.SWITCH:
                leaves = int(values[at[one] + 1])
                earlier = mentions[1][: np.searchsorted(mentions[0], one)]
                is_seen = any(bool((of == leaves).any()) for of in (*self._seen[host], earlier))
                self._resolve(key, gap, leaves, told, is_seen=is_seen)
                self._known[key] = gap
            elif kind in _CALLS:
                if self._open_calls.get(key, (-1, ""))[0] != gap:
                    name = self._name_call(chunk, classes, int(rows[one]), kind)
                    self._open_calls[key] = gap, name
            else:
                self._note_context(chunk, classes, int(rows[one]), kind, key, gap, int(at[one]))
        self._seen[host].append(np.unique(mentions[1]))
        calls = np.flatnonzero(late & np.isin(kinds, _CALLS))
        for cpu in np.unique(cpus).tolist():
            mine = switches[cpus[switches] == cpu]
            own = calls[cpus[calls] == cpu]
            comes = np.append(values[at[mine] + 4], self._on.get((host, cpu), 0))
            last = np.searchsorted(mine, own) - 1
            self._note_calls(chunk, classes, rows[own], comes[last], kinds[own], gap, told)
            self._on[host, cpu] = int(comes[-2 if len(mine) else -1])

    def _note_calls(
        self,
        chunk: EventChunk | Events,
        classes: Sequence[EventClass],
        rows: I64,
        tids: I64,
        kinds: U8,
        gap: int,
        told: set[int],
    ) -> None:
        """Note the first event of a system call of each thread since a gap."""
        names, firsts = np.unique(tids, return_index=True)
        for tid, first in zip(names.tolist(), firsts.tolist(), strict=True):
            if tid > 0 and tid not in told:
                told.add(tid)
                name = self._name_call(chunk, classes, int(rows[first]), int(kinds[first]))
                self._rows.append((gap, IN_CALL, tid, self._number(name)))

    def _name_call(
        self, chunk: EventChunk | Events, classes: Sequence[EventClass], row: int, kind: int
    ) -> str:
        ends = kind == Kind.SYSCALL_EXIT
        return _call_name(classes[int(chunk.event_class[row])].name) if ends else ""

    def _note_context(
        self,
        chunk: EventChunk | Events,
        classes: Sequence[EventClass],
        row: int,
        kind: int,
        key: tuple[int, int],
        gap: int,
        at: int,
    ) -> None:
        """Keep which contexts ended that did not begin since a gap."""
        of = self._cpus.setdefault(key, _Cpu())
        if of.gap != gap:
            self._flush(key)
            of.gap, of.open, of.ended = gap, [], 0
        of_class = classes[int(chunk.event_class[row])]
        which: object = int(chunk.values[at]) if of_class.fields else 0
        if kind in {Kind.TIMER_ENTRY, Kind.TIMER_EXIT}:
            which = 0
        elif kind in {Kind.VECTOR_ENTRY, Kind.VECTOR_EXIT}:
            which = vector_name(of_class.name)
        if kind in _ENTRIES:
            of.open.append((_ENTRIES.index(Kind(kind)), which))
            return
        entry = (_EXITS.index(Kind(kind)), which)
        if entry in of.open:
            del of.open[len(of.open) - 1 - of.open[::-1].index(entry) :]
        else:
            # What was entered since, and has lost its exit, was within it.
            of.open = []
            of.ended += 1

    def _number(self, name: str) -> int:
        if name == _SOME_CALL:
            return -1
        return self._names.setdefault(name, len(self._names) + 1) if name else 0

    def _flush(self, key: tuple[int, int]) -> None:
        """Note the contexts that a cpu was in at the end of a gap."""
        of = self._cpus[key]
        if of.gap >= 0 and of.ended:
            self._rows.append((of.gap, IN_CONTEXTS, key[1], of.ended))

    def _resolve(
        self, key: tuple[int, int], gap: int, tid: int, told: set[int], *, is_seen: bool
    ) -> None:
        """Note who had a cpu: its first switch since a gap tells, unless that thread came later."""
        if key in self._cpus and self._cpus[key].gap == gap:
            self._flush(key)
            self._cpus[key].gap = -1
        if tid and is_seen:
            self._rows.append((gap, IS_OBSCURE, tid, 0))
            return
        self._rows.append((gap, ON_CPU, key[1], tid))
        since, name = self._open_calls.get(key, (-1, ""))
        if since == gap and tid > 0 and tid not in told:
            told.add(tid)
            self._rows.append((gap, IN_CALL, tid, self._number(name)))

    def finish(self) -> Resumed:
        """Return what was going on at the end of every gap."""
        for key in self._cpus:
            self._flush(key)
        table = np.array(self._rows, np.int64).reshape(-1, 4)
        # Who has a cpu is told before what it was doing.
        order = np.lexsort((table[:, 2], table[:, 1], table[:, 0]))
        return Resumed(np.ascontiguousarray(table[order]), ("", *self._names))


class Resumed(Struct, frozen=True, eq=False):
    """What was going on at the ends of gaps of `base`.

    Attributes
    ----------
    rows : int64 [n, 4]
        Gap (in the order of `gap_tables`), what is known, of which cpu or thread, and a thread,
        a number of contexts, or which of ``calls``; in order of the gaps.
    calls : tuple of str
        Names of system calls; the first is none.
    """

    rows: I64
    calls: tuple[str, ...]


NOTHING: Final = Resumed(np.zeros((0, 4), np.int64), ("",))


def find_resumed(
    chunks: Iterator[EventChunk] | Sequence[Events], classes: Sequence[EventClass], gaps: Gaps
) -> Resumed:
    """Search all events of a recording."""
    search = AfterGaps(gaps)
    for chunk in chunks:
        search.feed(chunk, classes)
    return search.finish()


def _list_mentions(kinds: U8, at: I64, values: I64) -> tuple[I64, I64]:
    """Return which threads events name, and which of the events do, in their order."""
    found = [
        (rows, values[at[rows] + place])
        for of, place in ((_WAKES, 0), ((Kind.FORK,), 2), ((Kind.SWITCH,), 1), ((Kind.SWITCH,), 4))
        for rows in (np.flatnonzero(np.isin(kinds, np.array(of, np.uint8))),)
    ]
    rows, names = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(rows, kind="stable")
    return rows[order], names[order]


def _call_name(event: str) -> str:
    """Return which system call an event is the end of."""
    for mark in ("syscall_exit_", "sys_exit_"):
        if mark in event:
            return event.partition(mark)[2]
    return _SOME_CALL
