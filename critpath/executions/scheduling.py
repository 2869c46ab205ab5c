"""Which thread an event belongs to, and its name at a time."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct

from critpath.executions.fields import field_numbers
from critpath.model import I32, I64, Bool, Events, Kind
from critpath.model._lookup import Numbers
from critpath.model.gaps import BASE
from critpath.units import plural

UNKNOWN = -1  # technical


def rows_of_kind(events: Events, kind: Kind) -> I64:
    """Return the positions of every event of a kind."""
    mine = [i for i, c in enumerate(events.classes) if c.kind == kind]
    return np.flatnonzero(np.isin(events.event_class, mine))


class Scheduling:
    """Which thread held each cpu, from ``sched_switch``.

    Needs the SWITCH events with ``prev_tid``, ``prev_comm``, ``next_tid`` and ``next_comm``;
    without any, every answer is unknown.
    """

    def __init__(self, events: Events) -> None:
        self.events = events
        rows = rows_of_kind(events, Kind.SWITCH)
        keys = self._place(rows)
        # Events are in order of time over all cpus; a stable sort by cpu keeps that.
        order = np.argsort(keys, kind="stable")
        self.rows = rows[order]
        self._keys = keys[order]
        self._stretches = self._stretch(self.rows)
        self.prev_tid = events.column(self.rows, "prev_tid")
        self.next_tid = events.column(self.rows, "next_tid")

    def _place(self, rows: I64) -> I64:
        """Return one number per event that orders by host, cpu, then position."""
        cpus = int(self.events.cpu.max(initial=0)) + 2
        processor = self.events.hosts_of(rows) * cpus + self.events.cpu[rows] + 1
        return processor * (len(self.events) + 1) + rows

    def _stretch(self, rows: I64) -> I64:
        """Return between which gaps of its host each event lies; one within a gap, alone."""
        result = np.zeros(len(rows), np.int64)
        time, host = self.events.timestamp[rows], self.events.hosts_of(rows)
        for name in sorted(set(self.events.gaps.host.tolist())):
            base = self.events.gaps.of(BASE, name)
            mine = host == name
            ended = np.searchsorted(base.end, time[mine], side="right")
            begun = np.searchsorted(base.begin, time[mine], side="right")
            result[mine] = np.where(begun > ended, -1 - rows[mine], ended)
        return result

    def current(self, rows: I64) -> I64:
        """Return the tid that held the cpu of every event, -1 where unknown.

        The switch before an event shows which thread came, the one after it which left; where
        they contradict each other a switch was lost between them, and the answer is unknown.  A
        SWITCH event itself belongs to the thread that leaves.
        """
        if self.events.current is None:
            return self._find_current(rows)
        result: I64 = self.events.current[rows]
        rest = np.flatnonzero(result < UNKNOWN)
        result[rest] = self._find_current(rows[rest])
        return result

    def _find_current(self, rows: I64) -> I64:
        result = np.full(len(rows), UNKNOWN, np.int64)
        if not len(self.rows):
            return result
        wanted = self._place(rows)
        span = len(self.events) + 1
        after = np.searchsorted(self._keys, wanted)
        before = after - 1
        has_before = (before >= 0) & (self._keys[before] // span == wanted // span)
        after = np.minimum(after, len(self._keys) - 1)
        has_after = (self._keys[after] >= wanted) & (self._keys[after] // span == wanted // span)
        result[has_after] = self.prev_tid[after[has_after]]
        result[has_before] = self.next_tid[before[has_before]]
        # What a cpu did in a gap is not known.
        stretch = self._stretch(rows)
        has_after &= self._stretches[after] == stretch
        has_before &= self._stretches[before] == stretch
        result[~has_before] = UNKNOWN
        result[has_after & ~has_before] = self.prev_tid[after[has_after & ~has_before]]
        lost = has_before & has_after & (self.next_tid[before] != self.prev_tid[after])
        result[lost | (self.events.cpu[rows] < 0)] = UNKNOWN
        return result

    def names(self, host: I64, tid: I64, rows: I64, *, forward: bool = False) -> list[str]:
        """Return the names of threads at some positions, "" for threads never seen."""
        threads, wanted_group = np.unique((host << 32) + tid, return_inverse=True)
        if not len(threads) or not len(self.rows):
            return [""] * len(tid)
        row = np.concatenate([self.rows, self.rows])
        seen = (self.events.hosts_of(row) << 32) + np.concatenate([self.prev_tid, self.next_tid])
        group = np.minimum(np.searchsorted(threads, seen), len(threads) - 1)
        mine = threads[group] == seen
        group, row = group[mine], row[mine]
        code = np.concatenate(
            [self.events.column(self.rows, f) for f in ("prev_comm", "next_comm")]
        )[mine]
        known = (np.bincount(group, minlength=len(threads)) > 0)[wanted_group]
        if not known.any():
            return [""] * len(tid)
        span = len(self.events) + 1
        key = group * span + row
        order = np.argsort(key, kind="stable")
        key, code = key[order], code[order]
        side: Literal["left", "right"] = "left" if forward else "right"
        after = np.searchsorted(key, wanted_group * span + rows, side)
        before = after - 1
        in_before = (before >= 0) & (key[before] // span == wanted_group)
        after = np.minimum(after, len(key) - 1)
        in_after = key[after] // span == wanted_group
        first, second = (after, before) if forward else (before, after)
        has_first = in_after if forward else in_before
        chosen = np.where(has_first, first, second)
        return [
            self.events.strings[code[c]] if k else "" for c, k in zip(chosen, known, strict=True)
        ]

    def find_named(self, name: str, thread: tuple[I64, I64], rows: tuple[I64, I64]) -> Bool:
        """Return which threads have a name at any time between two positions.

        A thread is created with the name of its parent, and renames itself later.
        """
        codes = [code for code, text in enumerate(self.events.strings) if text == name]
        threads, asked = np.unique((thread[0] << 32) + thread[1], return_inverse=True)
        span = len(self.events) + 1
        keys = [np.zeros(0, np.int64)]
        for side, tid in (("prev", self.prev_tid), ("next", self.next_tid)):
            mine = np.isin(self.events.column(self.rows, f"{side}_comm"), codes)
            at = self.rows[mine]
            who = (self.events.hosts_of(at) << 32) + tid[mine]
            known = np.isin(who, threads)
            keys.append(np.searchsorted(threads, who[known]) * span + at[known])
        key = np.sort(np.concatenate(keys))
        first, last = (np.searchsorted(key, asked * span + r) for r in (rows[0], rows[1] + 1))
        found: Bool = last > first
        return found


def find_parents(events: Events, host: I64, tid: I64, rows: I64) -> I64:
    """Return the tid that forked each thread, given with a position; -1 where unknown."""
    forks = rows_of_kind(events, Kind.FORK)
    born = (events.hosts_of(forks) << 32) + events.column(forks, "child_tid")
    order = np.argsort(born, kind="stable")
    parent = events.column(forks, "parent_tid")[order]
    born, forks = born[order], forks[order]
    result = np.full(len(rows), UNKNOWN, np.int64)
    for place, (thread, row) in enumerate(zip(((host << 32) + tid).tolist(), rows, strict=True)):
        low, high = np.searchsorted(born, thread, "left"), np.searchsorted(born, thread, "right")
        last = low + np.searchsorted(forks[low:high], row)
        if last > low:
            result[place] = parent[last - 1]
    return result


class Doubts(NamedTuple):
    """Of how many events it was not plain whose they are."""

    interrupts: int = 0
    namespaced: int = 0
    moved: int = 0

    def word(self) -> tuple[str, ...]:
        """Return a note for each kind that there is."""
        said = (
            "on an idle cpu: of no thread",
            (
                "out of a pid namespace (the vtid is no thread that sched_switch shows there): "
                "the kernel's thread id was used"
            ),
            "emitted while the thread moved to another cpu: the vtid was used",
        )
        notes = zip(self, said, strict=True)
        return tuple(f"{plural(count, 'event')} {what}" for count, what in notes if count)


class Owners(Struct, frozen=True, eq=False):
    """The thread of every event: host, the kernel's tid (-1 where unknown), and notes."""

    host: I64
    tid: I64
    notes: tuple[str, ...]
    doubts: Doubts = Doubts()


class _Shown(NamedTuple):
    """Whose events are by what `sched_switch` shows, and by what user space says of itself."""

    host: I64
    tid: I64
    interrupts: int
    vpid: I64
    vtid: I64
    has_vtid: Bool


def _show_owners(events: Events, rows: I64, scheduling: Scheduling) -> _Shown:
    user = np.array([c.domain == "ust" for c in events.classes] or [False])
    user = user[events.event_class[rows]]
    host = events.hosts_of(rows)
    tid = scheduling.current(rows)
    # The idle threads (one per cpu, all of tid 0) belong to no execution.  User-space events
    # that seem to be theirs were emitted elsewhere: the cpu was read before a move.
    idle = tid == 0
    tid[idle] = UNKNOWN
    if not user.all():
        context, has_context = field_numbers(events, rows, "tid")
        use = ~user & has_context & (tid == UNKNOWN) & ~idle & (context > 0)
        tid[use] = context[use]
    vtid, has_vtid = field_numbers(events, rows, "vtid")
    vpid, _ = field_numbers(events, rows, "vpid")
    return _Shown(host, tid, int((idle & ~user).sum()), vpid, vtid, has_vtid & user)


class Sightings:
    """Which threads of user space `sched_switch` shows under their own ids."""

    def __init__(self) -> None:
        self._threads, self._places = Numbers(), Numbers()
        self._seen: Bool = np.zeros(0, np.bool_)

    def see(self, events: Events, rows: I64, scheduling: Scheduling) -> None:
        """Take some events."""
        self.add(_show_owners(events, rows, scheduling))

    def add(self, shown: _Shown) -> None:
        """Take what is shown of some events."""
        number = self._number(shown)
        agrees = (shown.tid != UNKNOWN) & (shown.tid == shown.vtid)
        self._seen[number[agrees[shown.has_vtid]]] = True

    def confirm(self, shown: _Shown) -> Bool:
        """Return of which events the thread was seen."""
        result = np.zeros(len(shown.tid), np.bool_)
        result[shown.has_vtid] = self._seen[self._number(shown)]
        return result

    def _number(self, shown: _Shown) -> I32:
        has = shown.has_vtid
        thread = self._threads.add(shown.vpid[has], shown.vtid[has])
        number = self._places.add(thread.astype(np.int64), shown.host[has])
        more = np.zeros(len(self._places) - len(self._seen), np.bool_)
        self._seen = np.append(self._seen, more)
        return number


def find_owners(
    events: Events, rows: I64, scheduling: Scheduling, seen: Sightings | None = None
) -> Owners:
    """Find the kernel thread that emitted each event (given by position).

    A user-space event carries ``vtid``, the thread id in its own pid namespace.  If
    ``sched_switch`` never shows that id on the event's cpu for any event of this (vpid, vtid),
    the process lives in a pid namespace and ``sched_switch`` is right.  If it does for some
    events, the thread moved between reading the cpu number and reading the clock in the others,
    and ``vtid`` is right.  Events without ``vtid`` belong to the thread that ``sched_switch``
    shows, else to the ``tid`` context of a kernel event.

    `seen` has taken all events before, where these are not all.
    """
    found = _show_owners(events, rows, scheduling)
    if seen is None:
        seen = Sightings()
        seen.add(found)
    confirmed = seen.confirm(found)
    tid = found.tid
    shown = tid != UNKNOWN
    contradicts = found.has_vtid & shown & (tid != found.vtid)
    doubts = Doubts(
        found.interrupts,
        int((contradicts & ~confirmed).sum()),
        int((contradicts & confirmed).sum()),
    )
    take = found.has_vtid & (confirmed | ~shown)
    tid[take] = found.vtid[take]
    return Owners(found.host, tid, doubts.word(), doubts)
