"""What threads do with sockets and with each other, from events as they come."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from critpath.model import I32, I64, U8, Bool, EventChunk, EventClass, Events, Kind, Workers
from critpath.model.gaps import BASE, Gaps, hide_layers
from critpath.model.requests import NONE, Act, Activity, Collected, Frame, FrameFlag
from critpath.requests._activity import Activities
from critpath.requests.calls import CallEvents
from critpath.requests.endpoints import EndpointColumn, read_dumped
from critpath.requests.packets import PacketEvents, Rows
from critpath.requests.tasks import read_tasks
from critpath.schema.ways import BY_CALLS, BY_LENGTHS

SOCKETS: Final = frozenset(
    {Kind.SOCKET_SEND, Kind.SOCKET_RECEIVE, Kind.SOCKET_ARRIVAL, Kind.SOCKET_STATE, Kind.SOCKET_OF}
)
_THREADS: Final = frozenset(
    {
        *(Kind.SWITCH, Kind.WAKING, Kind.FORK, Kind.EXIT, Kind.CURRENT),
        *(Kind.SOFTIRQ_RAISE, Kind.SOFTIRQ_ENTRY, Kind.SOFTIRQ_EXIT),
        *(Kind.IRQ_ENTRY, Kind.IRQ_EXIT, Kind.TIMER_ENTRY, Kind.TIMER_EXIT),
        *(Kind.VECTOR_ENTRY, Kind.VECTOR_EXIT),
    }
)
# What is recorded also in gaps.
_LIVES: Final = frozenset({Kind.FORK, Kind.EXEC, Kind.EXIT, Kind.STATEDUMP})
# Fields of each kind that nothing can be made of it without.
_NEEDED: Final = {
    **dict.fromkeys((Kind.SOCKET_SEND, Kind.SOCKET_RECEIVE), 4),
    **dict.fromkeys((Kind.SOCKET_ARRIVAL, Kind.SOCKET_OF), 3),
    Kind.SOCKET_STATE: 4,
    Kind.SWITCH: 5,
}


# technical: fields of a message's label, of a stream's, of one that says who received it.
_NAMED, _STREAM, _WHOLE = 4, 8, 9


class ActivityEvents:
    """Collects what finding requests asks for, from events as they come.

    Parameters
    ----------
    runnable : int64 [hosts, n]
        Previous states of threads that could go on.
    waking : bool
        Whether the recording has ``sched_waking``; else wakes are ``sched_wakeup``.
    leaving : bool
        Whether it is asked when a thread's packets leave: `Act.LEAVE`.
    sockets : bool
        Keep nothing of what threads do to each other: who sent and received alone.
    sleeps : bool
        But keep the last sleep of each before it sends or receives.
    every : bool
        Keep what all threads do to each other, not only those that use sockets.
    way : str
        What tells of sockets: their own events (``sockets``), these and packets (``lengths``), or
        system calls.
    gaps : Gaps, optional
        When nothing was recorded: of who had which cpu before, nothing is known after.
    """

    def __init__(
        self,
        runnable: I64,
        *,
        waking: bool,
        leaving: bool = False,
        sockets: bool = False,
        sleeps: bool = False,
        every: bool = False,
        way: str = "sockets",
        gaps: Gaps | None = None,
    ) -> None:
        # What a descriptor is may change while no calls are recorded.
        calls = way in BY_CALLS
        base = hide_layers(gaps or Gaps()) if calls else (gaps or Gaps())
        base = base.of(BASE)
        self._gaps, self._gaps_passed = base.take(np.argsort(base.end, kind="stable")), 0
        self._every = every
        self._way, self._calls = way, CallEvents() if calls else None
        self._packets = PacketEvents() if way in BY_LENGTHS else None
        self._rows = Activities(np.ascontiguousarray(runnable, np.int64), sockets, sleeps)
        self._kinds: U8 = np.zeros(0, np.uint8)
        self._hosts: I64 = np.zeros(0, np.int64)
        self._dumps: Bool = np.zeros(0, np.bool_)
        self._labels: Bool = np.zeros(0, np.bool_)
        self._labelled: list[tuple[int, I64, I64]] = []
        self._known: Sequence[EventClass] = ()
        self._dumped: list[tuple[int, EventClass, list[int]]] = []
        wake = Kind.WAKING if waking else Kind.WAKEUP
        told = SOCKETS if self._calls is None else frozenset[Kind]()
        if self._packets is not None:
            told -= {Kind.SOCKET_ARRIVAL}
        self._wanted = (_THREADS - {Kind.WAKING}) | told | {wake, Kind.TASKS}
        if leaving:
            self._wanted |= {Kind.NET_SEND}

    def feed(self, chunk: EventChunk | Events, classes: Sequence[EventClass]) -> None:
        """Take note of some events, which come after those before."""
        if len(classes) > len(self._kinds):
            self._known = classes
            self._kinds = np.array([self._kind_of(c) for c in classes], np.uint8)
            self._hosts = np.array([c.host for c in classes], np.int64)
            self._dumps = np.array([c.kind == Kind.SOCKET_STATEDUMP for c in classes], np.bool_)
            self._labels = np.array([c.kind == Kind.MESSAGE_LABEL for c in classes], np.bool_)
        if not len(chunk.timestamp):
            return
        if len(self._gaps):
            self._feed_between_gaps(chunk, classes)
        else:
            self._feed_acts(chunk, classes)
        if self._dumps.any():
            for row in np.flatnonzero(self._dumps[chunk.event_class]).tolist():
                of = classes[chunk.event_class[row]]
                at = int(chunk.offset[row])
                self._dumped.append((of.host, of, chunk.values[at : at + len(of.fields)].tolist()))
        if self._labels.any():
            self._feed_labels(chunk, classes)

    def _feed_acts(self, chunk: EventChunk | Events, classes: Sequence[EventClass]) -> None:
        self._rows.feed(
            *(chunk.timestamp, chunk.cpu, chunk.event_class, chunk.offset, chunk.values),
            *(self._kinds, self._hosts),
        )
        if self._calls is not None:
            self._calls.feed(chunk, classes)
        if self._packets is not None:
            self._packets.feed(chunk, classes)

    def _feed_between_gaps(self, chunk: EventChunk | Events, classes: Sequence[EventClass]) -> None:
        """Pass over what lies in the edges of gaps, and forget at their ends."""
        lives = np.array([c.kind in _LIVES for c in classes], np.bool_)
        host = np.array([c.host for c in classes], np.int64)[chunk.event_class]
        hidden = self._gaps.overlap(host, chunk.timestamp, chunk.timestamp + 1)
        kept = np.flatnonzero(lives[chunk.event_class] | ~hidden)
        time = chunk.timestamp[kept]
        last = int(np.searchsorted(self._gaps.end, chunk.timestamp[-1], side="right"))
        ends = self._gaps.end[self._gaps_passed : last]
        cuts = [0, *np.searchsorted(time, ends, side="left").tolist(), len(kept)]
        for at, (begin, end) in enumerate(pairwise(cuts)):
            if at:
                passed = self._gaps_passed + at - 1
                ended = int(self._gaps.host[passed])
                self._rows.end_gap(ended, int(self._gaps.end[passed]))
                if self._calls is not None:
                    self._calls.end_gap(ended)
            if begin < end:
                rows = kept[begin:end]
                part = EventChunk(
                    *(chunk.timestamp[rows], chunk.cpu[rows]),
                    *(chunk.event_class[rows], chunk.offset[rows]),
                    chunk.values,
                )
                self._feed_acts(part, classes)
        self._gaps_passed = last

    def _feed_labels(self, chunk: EventChunk | Events, classes: Sequence[EventClass]) -> None:
        for number in np.flatnonzero(self._labels).tolist():
            types = classes[number].types
            if types[1:2] != ("str",) or "absent" in types[:_NAMED]:
                continue
            rows = np.flatnonzero(chunk.event_class == number)
            if len(rows):
                fits = (n for n in (_WHOLE, _STREAM) if n <= len(types))
                told = next((n for n in fits if "absent" not in types[:n]), _NAMED)
                values = chunk.values[chunk.offset[rows][:, np.newaxis] + np.arange(told)]
                self._labelled.append((classes[number].host, chunk.timestamp[rows], values))

    def _kind_of(self, of: EventClass) -> Kind:
        """Return a class's kind if its events tell something here."""
        if of.kind not in self._wanted or "absent" in of.types[: _NEEDED.get(of.kind, 1)]:
            return Kind.OTHER
        # A trace of others may have numbers where marks have text.
        if of.kind == Kind.TASKS and of.types[:1] != ("str",):
            return Kind.OTHER
        return of.kind

    def finish(self, workers: Workers, strings: Sequence[str]) -> Collected:
        """Return what was found; unless all is kept, of processes that use sockets."""
        dumped = [
            (
                of_host,
                *(
                    strings[v] if kind == "str" else v
                    for v, kind in zip(values, of.types, strict=True)
                ),
            )
            for of_host, of, values in self._dumped
        ]
        alone = self._calls is None and self._packets is None
        if alone and not self._every:  # before it is a table, which has as much again
            self._rows.keep_threads(_find_users(self._rows.find_users(), workers))
        table = _replace_marks(self._rows.take_rows(), workers, strings)
        told = None
        if self._calls is not None:
            told = self._calls.finish([read_dumped(row) for row in dumped])
            table = _merge_rows(table, told.rows)
        named = None
        if self._packets is not None:
            named = self._packets.finish(
                table, self._rows.take_endpoints(), [read_dumped(row) for row in dumped]
            )
            table = named.rows
        if not self._every and not (alone and (table[1] != Act.TASK).all()):
            table = _keep_users(table, workers)
        kept = Activity(*table)
        messages, frames, called = self._tell_labels(strings)
        if told is None:
            ends = self._rows.take_endpoints() if named is None else named.endpoints
            hidden, unknown = self._rows.hidden, 0 if named is None else named.unknown
            one = len(np.unique(ends[:, EndpointColumn.SOCKET])) == 1
            alike = one and self._rows.renamed > 0
            return Collected(
                *(kept, ends, dumped, hidden, messages, frames, called),
                alike=alike,
                way=self._way,
                unknown=unknown,
            )
        return Collected(
            *(kept, told.endpoints, dumped, 0, messages, frames, called, told.paths),
            way=self._way,
            unknown=told.unknown,
            rings=told.rings,
        )

    def _tell_labels(
        self, strings: Sequence[str]
    ) -> tuple[list[tuple[int, int, int, int, int, str]], I64, tuple[str, ...]]:
        """Return the labels of messages, and what is known of streams, with their labels."""
        messages = []
        frames = [np.zeros((0, len(Frame)), np.int64)]
        for host, times, known in self._labelled:
            values = np.zeros((len(known), _WHOLE), np.int64)
            values[:, : known.shape[1]] = known
            streams = (values[:, 5] > 0) | ((values[:, 6] & FrameFlag.SESSION) > 0)
            messages += [
                (when, host, socket, high, low, strings[label])
                for when, (socket, label, high, low) in zip(
                    times[~streams].tolist(), values[~streams, :_NAMED].tolist(), strict=True
                )
            ]
            if streams.any():
                socket, label, high, low, length, stream, flags, size, tid = values[streams].T
                of = np.full(len(socket), host)
                columns = (times[streams], of, socket, length, stream, flags, size, high, low)
                frames.append(np.stack([*columns, label, tid], axis=1))
        rows = np.concatenate(frames)
        codes, rows[:, Frame.LABEL] = np.unique(rows[:, Frame.LABEL], return_inverse=True)
        return messages, rows, tuple(strings[code] for code in codes.tolist())


def _find_users(users: I64, workers: Workers) -> I64:
    """Return threads, and all others of their processes."""
    of_thread, of_process = _key(workers.host, workers.tid), _key(workers.host, workers.pid)
    processes = np.unique(of_process[np.isin(of_thread, users) & (workers.pid > 0)])
    return np.union1d(users, of_thread[np.isin(of_process, processes)])


def _keep_users(rows: Rows, workers: Workers) -> Rows:
    """Return what endpoints have, and what was done by or to threads of processes that use any."""
    time, act, tid, host, endpoint, value = rows
    moves = (act == Act.RECEIVE) | (act == Act.SEND)
    threads = _find_users(np.unique(_key(host[moves], tid[moves])), workers)
    keep = (endpoint >= 0) | np.isin(_key(host, tid), threads)
    about = (act == Act.WAKE) | (act == Act.CREATE)
    keep[about] |= np.isin(_key(host[about], value[about]), threads)
    return time[keep], act[keep], tid[keep], host[keep], endpoint[keep], value[keep]


def _replace_marks(rows: Rows, workers: Workers, strings: Sequence[str]) -> Rows:
    """Return the rows with what marks of tasks say in place of the marks."""
    time, act, tid, host, endpoint, value = rows
    marks = np.flatnonzero(act == Act.TASK)
    if not len(marks):
        return rows
    texts = [strings[code] for code in value[marks].tolist()]
    said = zip(time[marks].tolist(), host[marks].tolist(), tid[marks].tolist(), texts, strict=True)
    found = read_tasks(list(said), workers)
    more = np.full((len(found[0]), 6), Act.TASK, np.int64)
    more[:, 0], more[:, 2], more[:, 3], more[:, 4], more[:, 5] = *found[:3], NONE, found[3]
    kept = np.flatnonzero(act != Act.TASK)
    return _merge_rows(
        (time[kept], act[kept], tid[kept], host[kept], endpoint[kept], value[kept]), more
    )


def _merge_rows(rows: Rows, more: I64) -> Rows:
    """Return the columns of both in order of time."""
    time = np.concatenate([rows[0], more[:, 0]])
    order = np.argsort(time, kind="stable")

    def small(number: int) -> I32:
        both = np.concatenate([rows[number], more[:, number]])
        return both[order].astype(np.int32)

    act, value = (np.concatenate([rows[n], more[:, n]])[order] for n in (1, 5))
    return time[order], act.astype(np.uint8), small(2), small(3), small(4), value


def _key(host: I32 | I64, tid: I32 | I64) -> I64:
    """Return one number for a thread of a host."""
    return (host.astype(np.int64) << 32) | (tid.astype(np.int64) & 0xFFFFFFFF)
