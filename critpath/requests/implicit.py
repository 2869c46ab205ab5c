"""Slices without a network: what cuts threads into stretches, and which caused which.

A slice is implicit: no message begins and ends it, but a sleep that another thread ends.  Which
sleeps count is the marker's (`MARKERS`); rules and a drawing are in docs/slices.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar, Final

import numpy as np

from critpath.model import I64, Bool, Column, Loss, Workers
from critpath.model.requests import MARKERS, NONE, Act, Activity
from critpath.model.table import Declared, Table, col
from critpath.records import dataclass

_OPEN: Final = np.iinfo(np.int64).max  # the end of what the recording did not see end
_OF_THREADS: Final = (Act.SLEEP, Act.WAKE, Act.CREATE, Act.EXIT, Act.RUN, Act.PREEMPT, Act.RECEIVE)
# A condition variable of glibc sleeps now on one and now on the other of two words, which share
# eight bytes; a mutex or a barrier begins at such a place.
_FUTEX: Final = ~np.int64(7)
# technical: slices of one thread, for several objects, that may be in one another
_DEEPEST: Final = 8
UNIX: Final = 1  # technical: the family of sockets


@dataclass(frozen=True, eq=False)
class Calls:
    """What threads asked of the kernel, or were sent, in order of time.

    Attributes
    ----------
    time_ns, host, tid : int64 [n]
    call : int64 [n]
        Position in `names`.
    begins : bool [n]
        The call begins; else it is over.
    value : int64 [n]
        What the call is about, or its result.
    names : tuple of str
    """

    time_ns: I64
    host: I64
    tid: I64
    call: I64
    begins: Bool
    value: I64
    names: tuple[str, ...]

    def of(self, names: Sequence[str]) -> Bool:
        """Return which rows are of some calls."""
        found: Bool = np.isin(self.call, [i for i, n in enumerate(self.names) if n in names])
        return found


@dataclass(frozen=True, eq=False)
class ImplicitSlices(Table):
    """Slices in order of their begin; of every thread of the machine.

    Attributes
    ----------
    incomplete : int64 [m, 3]
        Host, thread and begin of what the end of the recording, or a gap, cuts.
    lost : int
        Left out because events were lost while they lasted.
    """

    COUNTED = "slice"
    COMPUTED: ClassVar = {"root": Declared("its first cause: itself, where nothing caused it")}
    ORDER = ("tid", "host", "begin_ns", "end_ns", "parent", "root")

    host: I64 = field(metadata=col("where"))
    tid: I64 = field(metadata=col("whose it is"))
    begin_ns: I64 = field(metadata=col("when it begins"))
    end_ns: I64 = field(metadata=col("when it ends"))
    parent: I64 = field(metadata=col("the slice that caused it, before it", least=0))
    incomplete: I64
    lost: int = 0

    def __len__(self) -> int:
        return len(self.tid)

    def link_columns(self) -> dict[str, Column]:
        """Return a row per slice that another caused: from that, to it, when."""
        caused = np.flatnonzero(self.parent >= 0)
        return {
            "from_slice": Column(self.parent[caused]),
            "to_slice": Column(caused),
            "sent_ns": Column(self.begin_ns[caused]),
        }

    @property
    def root(self) -> I64:
        """The first cause of every slice: itself, where nothing caused it."""
        root = np.where(self.parent < 0, np.arange(len(self)), self.parent)
        while True:
            further = root[root]
            if (further == root).all():
                return root
            root = further


def find_slices(
    activity: Activity,
    workers: Workers,
    marker: str,
    calls: Calls | None = None,
    families: I64 | None = None,
    losses: Sequence[Loss] = (),
    resumed: Bool | None = None,
) -> ImplicitSlices:
    """Find the slices that a marker cuts.

    Parameters
    ----------
    activity : Activity
        Of all threads.
    workers : Workers
        Which thread is of which process.
    marker : str
        A key of `MARKERS`.
    calls : Calls or None
        For markers that need system calls or signals.
    families : int64 [endpoints] or None
        For ``unix``: what kind of socket each endpoint is.
    losses : sequence of Loss
    resumed : bool [hosts] or None
        Of which hosts, as they stand for stretches between gaps, threads were there before.

    Returns
    -------
    ImplicitSlices
    """
    threads = _Threads(activity, workers, resumed)
    if marker == "fork":
        made = threads.lives()
    elif marker == "signal":
        made = threads.answer_signals(calls)
    elif marker == "wake":
        made = threads.cut(np.zeros(len(threads.sleep), np.int64), threads.own, created=True)
    else:
        if marker == "unix":
            of, chosen = threads.receive_on(np.flatnonzero(families == UNIX))
        else:
            of, chosen = threads.wait_in(marker, calls)
        made = threads.cut(of, chosen)
    return _link(made, losses)


@dataclass(eq=False)
class _Made:
    """Slices before they are in order: key of the thread, times, who began them and when."""

    key: I64
    begin: I64
    end: I64
    by: I64
    sent: I64


class _Threads:
    """What happened to each thread, in order, and its sleeps."""

    def __init__(self, activity: Activity, workers: Workers, resumed: Bool | None = None) -> None:
        about = np.isin(activity.act, (Act.WAKE, Act.CREATE))
        subject = np.where(about, activity.value, activity.tid)
        rows = np.flatnonzero(np.isin(activity.act, _OF_THREADS) & (subject > 0))
        host = activity.host[rows].astype(np.int64)
        key = _key(host, subject[rows])
        order = np.argsort(key, kind="stable")
        rows = rows[order]
        self.activity, self.rows, self.key = activity, rows, key[order]
        self.time, self.act = activity.time_ns[rows], activity.act[rows]
        self.endpoint = activity.endpoint[rows]
        by = activity.tid[rows].astype(np.int64)
        self.by = np.where(by > 0, _key(host[order], by), 0)
        fresh = np.diff(self.key, prepend=-1) != 0
        self.life = np.cumsum(fresh | (self.act == Act.CREATE)) - 1
        count = int(self.life[-1]) + 1 if len(rows) else 0
        self.first = np.searchsorted(self.life, np.arange(count))
        self.resumed = np.zeros(count, np.bool_)
        if resumed is not None and count:
            self.resumed = resumed[self.key[self.first] >> 32]
            self.resumed &= self.act[self.first] != Act.CREATE
        self.gone = np.full(count, _OPEN, np.int64)
        exits = np.flatnonzero(self.act == Act.EXIT)[::-1]
        self.gone[self.life[exits]] = self.time[exits]  # of several the first
        of = _key(workers.host, workers.tid)
        place = np.argsort(of, kind="stable")
        pid = np.where(workers.pid > 0, workers.pid, workers.tid)
        self._known = of[place], pid[place]
        forked = np.flatnonzero((workers.parent >= 0) & (pid == workers.tid))
        self._creators = dict(
            zip(pid[forked].tolist(), pid[workers.parent[forked]].tolist(), strict=True)
        )
        self._find_sleeps()

    def process(self, key: I64) -> I64:
        """Return the process of every thread; its own id where that is not known."""
        known, pid = self._known
        at = np.maximum(np.searchsorted(known, key, side="right") - 1, 0)
        own = key & 0xFFFFFFFF
        if not len(known):
            return own
        return np.asarray(np.where(known[at] == key, pid[at], own))

    def _find_sleeps(self) -> None:
        """Find what ended every sleep: the row of it, when, by whom."""
        last = len(self.rows) - 1
        at = np.flatnonzero(self.act == Act.SLEEP)
        after, before = np.minimum(at + 1, last), np.maximum(at - 1, 0)
        mine = (self.life[after] == self.life[at]) & (after > at)
        woken = mine & (self.act[after] == Act.WAKE)
        # Noted between the moment when the thread gave itself up and the switch.
        early = mine & (self.act[after] == Act.RUN) & (self.act[before] == Act.WAKE)
        early &= (self.life[before] == self.life[at]) & (before < at)
        source = np.where(woken, after, before)
        # Asleep when the recording began: the wake is the first that is known of the thread.
        begun = self.first[self.act[self.first] == Act.WAKE]
        keep = woken | early
        self.sleep = np.concatenate([at[keep], begun])
        self.since = np.concatenate([self.time[at[keep]], np.full(len(begun), NONE, np.int64)])
        source = np.concatenate([source[keep], begun])
        self.until = np.maximum(self.time[source], self.since)
        self.sent, self.waker = self.time[source], self.by[source]
        self.woken_by_thread = self.waker > 0
        order = np.argsort(self.sleep, kind="stable")
        for name in ("sleep", "since", "until", "sent", "waker", "woken_by_thread"):
            setattr(self, name, getattr(self, name)[order])
        key = self.key[self.sleep]
        same = self.process(np.maximum(self.waker, 0)) == self.process(key)
        self.own = self.woken_by_thread & same & (self.waker >> 32 == key >> 32)
        # After its end a thread sleeps for good.
        alive = self.until <= self.gone[self.life[self.sleep]]
        self.own &= alive
        self.woken_by_thread &= alive

    def lives(self) -> _Made:
        """Return the life of every thread that was created."""
        born = self.first[self.act[self.first] == Act.CREATE]
        return _Made(
            self.key[born], self.time[born], self.gone[self.life[born]], self.by[born],
            self.time[born],
        )  # fmt: skip

    def cut(self, of: I64, chosen: Bool, *, created: bool = False) -> _Made:
        """Cut threads at the chosen sleeps: slices last from the end of one to the next's begin.

        `of` says what each sleep waits for: only those for the same thing cut each other.  If
        `created`, the first slice of a thread begins when it is created, or first woken by any.
        """
        life = self.life[self.sleep]
        cuts = np.flatnonzero(chosen)
        columns = [life[cuts], of[cuts], self.since[cuts], self.until[cuts]]
        by, sent = self.waker[cuts], self.sent[cuts]
        begins = self.woken_by_thread[cuts]
        if created:
            born = self.first[self.act[self.first] == Act.CREATE]
            others = np.flatnonzero(self.woken_by_thread & ~self.resumed[life])
            _, earliest = np.unique(life[others], return_index=True)
            others = others[earliest]
            others = others[~chosen[others] & ~np.isin(life[others], self.life[born])]
            more = (
                np.concatenate([self.life[born], life[others]]),
                np.zeros(len(born) + len(others), np.int64),
                np.full(len(born) + len(others), NONE, np.int64),
                np.concatenate([self.time[born], self.until[others]]),
            )
            columns = [np.concatenate(pair) for pair in zip(columns, more, strict=True)]
            by = np.concatenate([by, self.by[born], self.waker[others]])
            sent = np.concatenate([sent, self.time[born], self.sent[others]])
            begins = np.concatenate([begins, np.ones(len(born) + len(others), np.bool_)])
        order = np.lexsort((columns[3], columns[1], columns[0]))
        life, of, since, until = (column[order] for column in columns)
        by, sent, begins = by[order], sent[order], begins[order]
        end = self.gone[life]
        followed = (np.diff(life, append=-1) == 0) & (np.diff(of, append=0) == 0)
        at = np.flatnonzero(followed)
        # A thread may sleep once more after its exit.
        end[at] = np.where(since[at + 1] >= 0, np.minimum(since[at + 1], end[at]), end[at])
        key = self.key[self.first[life]]
        return _Made(*(column[begins] for column in (key, until, end, by, sent)))

    def answer_signals(self, calls: Calls | None) -> _Made:
        """Return what each thread did from a signal's arrival to its next sleep."""
        if calls is None:
            raise TypeError("signals are events that have to be read")
        delivered = np.flatnonzero(calls.of(("signal_deliver",)))
        key, time = _key(calls.host[delivered], calls.tid[delivered]), calls.time_ns[delivered]
        closes = np.flatnonzero((self.act == Act.SLEEP) | (self.act == Act.EXIT))[::-1]
        after = _last_before(self.key[closes], -self.time[closes], key, -time)
        end = np.where(after >= 0, np.append(self.time[closes], 0)[after], _OPEN)
        # Of several signals before one sleep the first begins the slice.
        order = np.lexsort((time, end, key))
        _, kept = np.unique(np.stack([key, end])[:, order], axis=1, return_index=True)
        sends = np.flatnonzero(calls.of(("signal_generate",)))
        to, when = _key(calls.host[sends], calls.value[sends]), calls.time_ns[sends]
        # To a thread, or to its process.
        process = (key & ~np.int64(0xFFFFFFFF)) | self.process(key)
        last = _last_before(to, when, key, time)
        last = np.where(last >= 0, last, _last_before(to, when, process, time))
        by = np.append(_key(calls.host[sends], calls.tid[sends]), 0)[last]
        sent = np.where(last >= 0, np.append(when, 0)[last], time)
        return _Made(*(column[order][kept] for column in (key, time, end, by, sent)))

    def receive_on(self, endpoints: I64) -> tuple[I64, Bool]:
        """Return the endpoint that each sleep waited at, and which did at any of these."""
        of = np.full(len(self.sleep), NONE, np.int64)
        rows = np.flatnonzero((self.act == Act.RECEIVE) & np.isin(self.endpoint, endpoints))
        at = np.searchsorted(self.sleep, rows) - 1
        known = (at >= 0) & (self.life[self.sleep[np.maximum(at, 0)]] == self.life[rows])
        # The first thing received after a sleep is what it was for.
        rows, at = rows[known][::-1], at[known][::-1]
        of[at] = self.endpoint[rows]
        # Not if anything else was received before it.
        others = np.flatnonzero((self.act == Act.RECEIVE) & ~np.isin(self.endpoint, endpoints))
        before = np.searchsorted(others, self.sleep)
        earlier = np.append(others, len(self.rows))[before]
        first = np.full(len(self.sleep), len(self.rows), np.int64)
        first[at] = rows
        return of, (of >= 0) & (first < earlier) & self.woken_by_thread

    def wait_in(self, marker: str, calls: Calls | None) -> tuple[I64, Bool]:
        """Return what each sleep waited for, and which were in one of the marker's calls."""
        if calls is None:
            raise TypeError("system calls are events that have to be read")
        reasons = MARKERS[marker]
        reads = dict(reasons.calls)
        key = self.key[self.sleep]
        open_at = _Within(calls, calls.of([*reads, *dict(reasons.writes)]))
        # Of a sleep that began before the recording the call is not known.
        call = open_at.find(key, self.since)
        waits = (call >= 0) & np.append(calls.of([*reads]), False)[call]
        of = np.where(waits, np.append(calls.value, 0)[call], 0)
        if marker == "futex":
            of &= _FUTEX
        if reasons.writes:
            wrote = open_at.find(np.maximum(self.waker, 0), self.sent)
            waits &= (wrote >= 0) & np.append(calls.of([*dict(reasons.writes)]), False)[wrote]
            waits &= self._is_kind(marker, calls, key, of)
        # One that a time-out ended ends a slice, and begins none.
        return of, waits

    def _is_kind(self, marker: str, calls: Calls, key: I64, of: I64) -> Bool:
        """Return which descriptors can be of the marker's kind, by the calls that used them.

        A number is used again: what counts is the last call before the sleep.  Who was forked has
        the descriptors of who forked it.
        """
        others = MARKERS[marker].others
        made = (
            ~calls.begins & (calls.value >= 0) & calls.of([n for n, field in others if not field])
        )
        named = calls.begins & calls.of([name for name, field in others if field])
        rows = np.flatnonzero(made | named)
        events = calls.of([n for n, _ in others if n.startswith("eventfd")])
        closed = calls.of(("close",))
        process = self.process(_key(calls.host[rows], calls.tid[rows]))
        # Numbers of processes, which have their host in their upper half.
        every, number = np.unique(process, return_inverse=True)
        place = (number.astype(np.int64) << 32) | (calls.value[rows] & 0xFFFFFFFF)
        asked, unknown = self.process(key), np.ones(len(key), np.bool_)
        kind = np.full(len(key), NONE, np.int64)  # the call that says it
        for _ in range(_DEEPEST):
            at = np.minimum(np.searchsorted(every, asked), max(len(every) - 1, 0))
            there = np.append(every, NONE)[at] == asked
            where = np.where(there, (at << 32) | (of & 0xFFFFFFFF), NONE)
            last = _last_before(place, calls.time_ns[rows], where, self.since)
            fresh = unknown & there & (last >= 0)
            kind[fresh] = rows[last[fresh]]
            unknown &= ~fresh
            creators = (self._creators.get(pid, NONE) for pid in asked.tolist())
            asked = np.fromiter(creators, np.int64, len(asked))
            unknown &= asked >= 0
        known: Bool = (kind >= 0) & ~np.append(closed, False)[kind]
        made_so: Bool = known & np.append(events, False)[kind]
        return made_so if marker == "eventfd" else ~known


class _Within:
    """Which call each thread is in at a time."""

    def __init__(self, calls: Calls, rows: Bool) -> None:
        self._rows = np.flatnonzero(rows)
        self._begins = calls.begins
        self._key = _key(calls.host[self._rows], calls.tid[self._rows])
        self._time = calls.time_ns[self._rows]

    def find(self, key: I64, time: I64) -> I64:
        """Return the row of the call's begin, -1 where the thread is in none."""
        last = _last_before(self._key, self._time, key, time)
        row = np.append(self._rows, NONE)[last]
        return np.where((row >= 0) & np.append(self._begins, False)[row], row, NONE)


def _last_before(keys: I64, times: I64, key: I64, time: I64) -> I64:
    """Return the place of the last of a thread's moments at or before a time, -1 for none."""
    count = len(keys)
    asked = np.repeat([False, True], [count, len(key)])
    every = np.concatenate([keys, key])
    order = np.lexsort((asked, np.concatenate([times, time]), every))
    latest = np.maximum.accumulate(np.where(asked[order], NONE, np.arange(len(order))))
    found = np.where(latest >= 0, order[latest], NONE)
    place = np.full(len(key), NONE, np.int64)
    queries = asked[order]
    place[order[queries] - count] = found[queries]
    return np.where((place >= 0) & (np.append(keys, 0)[place] == key), place, NONE)


def _link(made: _Made, losses: Sequence[Loss]) -> ImplicitSlices:
    """Put slices in order, find each one's parent, and leave out what is not whole."""
    order = np.lexsort((made.end, made.key, made.begin))
    key, begin, end = made.key[order], made.begin[order], made.end[order]
    by, sent = made.by[order], made.sent[order]
    parent = _find_parents(key, begin, end, by, sent)
    host = key >> 32
    cut = end == _OPEN
    lost = np.zeros(len(key), np.bool_)
    for loss in losses:
        lost |= (host == loss.host) & (begin <= loss.end) & (end >= loss.begin)
    lost &= ~cut
    keep = ~cut & ~lost & (end > begin)
    place = np.append(np.where(keep, np.cumsum(keep) - 1, NONE), NONE)
    return ImplicitSlices(
        host[keep],
        (key & 0xFFFFFFFF)[keep],
        begin[keep],
        end[keep],
        place[parent[keep]],
        np.stack([host[cut], (key & 0xFFFFFFFF)[cut], begin[cut]], axis=1),
        int(lost.sum()),
    )


def _find_parents(key: I64, begin: I64, end: I64, by: I64, sent: I64) -> I64:
    """Return the slice that whoever began each one was in then: the last begun, -1 for none."""
    order = np.lexsort((begin, key))
    keys = key[order]
    at = _last_before(keys, begin[order], by, sent)
    parent = np.full(len(key), NONE, np.int64)
    for _ in range(_DEEPEST):
        row = np.append(order, NONE)[at]
        # Nothing is the cause of what began before it.
        fits = (row >= 0) & (parent < 0) & (row < np.arange(len(key)))
        fits &= np.append(end, NONE)[row] >= sent
        parent[fits] = row[fits]
        back = np.maximum(at - 1, 0)
        further = (at > 0) & (parent < 0) & (np.append(keys, 0)[back] == by)
        at = np.where(further, back, NONE)
    return parent


def _key(host: I64, tid: I64) -> I64:
    """Return one number for a thread of a host."""
    return (host << 32) | (tid & 0xFFFFFFFF)
