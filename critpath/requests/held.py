"""What loops did while requests waited for them: whom they worked for, and what blocked them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import numpy as np

from critpath.model import I64, State
from critpath.model.details import NO_DETAIL, Detail
from critpath.model.requests import (
    NONE,
    Endpoints,
    RequestTable,
    Slices,
    Subrequests,
)
from critpath.model.vectors import find_distinct
from critpath.requests._finding import find_most
from critpath.requests.blocking import Blocked, find_waiting
from critpath.requests.owners import argsort_codes, find_loops, thread_keys
from critpath.schema.notes import LoopBlocked
from critpath.schema.parameters.requests import BLOCKING

_NOBODYS: Final = -2  # technical: a request that no slice is of, nor of none


def name_held(
    pieces: I64, keys: I64, spent: SpentSlices, names: HeldNames
) -> tuple[I64, tuple[Detail, ...]]:
    """Return what the threads of pieces did that others had: codes of details, -1 for none.

    Parameters
    ----------
    pieces : int64 [pieces, 6]
        As `critpath.requests._pieces.Composer` makes them.
    keys : int64
        Of their threads.
    spent : SpentSlices
        What of slices lies in those that wait.
    names : HeldNames
    """
    found = np.full(len(pieces), NONE, np.int64)
    waits = spent.waits
    table: dict[Detail, int] = {}
    if not len(waits):
        return found, ()
    label = spent.find_most("label", pieces[waits, 5], none=0)
    target = spent.find_most("target", np.full(len(waits), _NOBODYS), none=NONE)
    for thread, mine in spent.by_thread():
        key = int(keys[thread])
        loop = names.loops.get(key, "")
        many = np.zeros(len(mine), np.int64)
        if loop:
            many = names.count_under_way(key, pieces[waits[mine], 1], pieces[waits[mine], 2])
        each, place = find_distinct(np.column_stack([label[mine], target[mine], many]))
        codes = []
        for name, of, under_way in each.tolist():
            made = Detail(
                loop=loop,
                request=names.strings[name],
                asks=names.targets[of] if of >= 0 else "",
                under_way=under_way,
            )
            codes.append(NONE if made == NO_DETAIL else table.setdefault(made, len(table)))
        found[waits[mine]] = np.array(codes, np.int64)[place]
    return found, tuple(table)


def note_blocked(held: Held) -> tuple[LoopBlocked, ...]:
    """Note which loops were blocked by what for a good part of the time, the most first."""
    blocked, requests = held.blocked, held.requests
    if not len(blocked.key):
        return ()
    waiting = find_waiting(held.endpoints, requests, held.subs, held.reader)
    target = np.array(["", *held.name_targets(blocked.call[blocked.call >= 0])])
    target = target[np.where(blocked.call >= 0, np.cumsum(blocked.call >= 0), 0)]
    found = []
    for key, loop in held.loops.items():
        mine = held.reader == key
        span = int(requests.end_ns[mine].max() - requests.begin_ns[mine].min())
        there = waiting[waiting[:, 0] == key]
        for name in np.unique(target[blocked.key == key]).tolist():
            rows = np.flatnonzero((blocked.key == key) & (target == name))
            begin, end = blocked.begin[rows], blocked.end[rows]
            first = np.searchsorted(end, there[:, 1], side="right")  # that ends after it came
            some = first < len(rows)
            some[some] = begin[first[some]] < there[some, 2]
            share = float((end - begin).sum()) / max(span, 1)
            if share < BLOCKING.worth or not some.any():
                continue
            mean = float((there[some, 2] - there[some, 1]).mean())
            found.append(LoopBlocked(loop, name, share, int(some.sum()), mean))
    return tuple(sorted(found, key=lambda note: -note.share))


class ThreadSlices:
    """Slices by thread, and in order of time: of threads that are numbered.

    ``codes`` are of each slice, in the order of the table.
    """

    def __init__(self, keys: I64, slices: Slices, **codes: I64) -> None:
        worker = thread_keys(slices.host, slices.tid)
        at = np.searchsorted(keys, worker)
        theirs = np.flatnonzero(np.append(keys, NONE)[at] == worker)
        order = theirs[argsort_codes(at[theirs], len(keys))]
        self.start = np.searchsorted(at[order], np.arange(len(keys) + 1))
        self.begin, self.end = slices.begin_ns[order], slices.end_ns[order]
        self.request = slices.request[order]
        self.codes = {name: of[order].astype(np.int32) for name, of in codes.items()}


class SpentSlices:
    """What of which slices lies in pieces that wait for what their thread does for others."""

    def __init__(self, pieces: I64, slices: ThreadSlices) -> None:
        states = (int(State.QUEUED), int(State.SHARED))
        self.waits = np.flatnonzero(np.isin(pieces[:, 3], states))
        self._thread, self._begin, self._end = pieces[self.waits, :3].T
        self._slices = slices

    def by_thread(self) -> Iterator[tuple[int, I64]]:
        """Yield threads, and which of the pieces that wait are of each."""
        order = argsort_codes(self._thread, len(self._slices.start))
        threads, first = np.unique(self._thread[order], return_index=True)
        yield from zip(threads.tolist(), np.split(order, first[1:]), strict=False)

    def find_longest(self, name: str, own: I64, none: int) -> tuple[I64, I64]:
        """Return which of some codes most of each piece has of slices of others, and how long.

        Parameters
        ----------
        name : str
            Which codes.
        own : int64 [waits]
            The request whose slices do not count.
        none : int
            What is no code.
        """
        of, code = self._slices, self._slices.codes[name]
        return find_most(
            *(self._thread, self._begin, self._end, own, of.start, of.begin, of.end),
            *(of.request, code, int(code.max(initial=0)) + 1, none),
        )

    def find_most(self, name: str, own: I64, none: int) -> I64:
        """Return the code that most of the time of each piece has, where that is most of it."""
        found, spent = self.find_longest(name, own, none)
        most = spent > BLOCKING.most * (self._end - self._begin)  # of one at most
        return np.where(most, found, none)


class HeldNames:
    """What is said of threads that worked for others: the codes of `Held` as texts, and how many.

    Attributes
    ----------
    strings, targets : sequence of str
        What ``label`` and ``target`` are codes into.
    loops : mapping of int to str
        The service of each loop.
    """

    def __init__(self, held: Held) -> None:
        self.strings, self.targets, self.loops = held.requests.strings, held.targets, held.loops
        self._under_way: dict[int, tuple[I64, I64]] = {}
        for key in self.loops:
            mine = held.reader == key
            begin, end = (of[mine] for of in (held.requests.begin_ns, held.requests.end_ns))
            self._under_way[key] = np.sort(begin), np.sort(end)

    def count_under_way(self, key: int, begin: I64, end: I64) -> I64:
        """Return how many requests a loop had not answered in the middle of some times."""
        (began, ended), middle = self._under_way[key], (begin + end) // 2
        return np.asarray(
            np.searchsorted(began, middle, side="right")
            - np.searchsorted(ended, middle, side="right")
        )


class Held:
    """Whom threads worked for in each slice, and what blocked them."""

    def __init__(
        self,
        endpoints: Endpoints,
        requests: RequestTable,
        subs: Subrequests,
        slices: Slices,
        blocked: Blocked,
    ) -> None:
        self.endpoints, self.requests, self.subs, self.slices = endpoints, requests, subs, slices
        self.blocked = blocked
        host = endpoints.host[requests.endpoint]
        self.reader = thread_keys(host, requests.reader_tid)
        self._key = thread_keys(slices.host, slices.tid)
        self.who = slices.request.astype(np.int64)
        self.target, self.targets = self._find_targets(blocked)
        label = requests.message.astype(np.int64)
        alike = np.zeros(len(slices), np.int64)
        for key in np.unique(self._key[self.who < 0]).tolist():
            mine = np.flatnonzero((self._key == key) & (self.who < 0))
            alike[mine] = self._find_alike(key, mine)
        self.label = np.where(self.who >= 0, label[np.maximum(self.who, 0)], alike)

    def _find_targets(self, blocked: Blocked) -> tuple[I64, list[str]]:
        """Return whom the call goes to that blocks a loop in each slice, -1 for none."""
        target = np.full(len(self.slices), NONE, np.int64)
        names: dict[str, int] = {}
        called = np.flatnonzero(blocked.call >= 0)
        of = blocked.call[called]
        places = [names.setdefault(name, len(names)) for name in self.name_targets(of)]
        for key in np.unique(blocked.key[called]).tolist():
            theirs = np.flatnonzero(blocked.key[called] == key)
            mine = np.flatnonzero(self._key == key)
            begin, end = blocked.begin[called[theirs]], blocked.end[called[theirs]]
            at = np.searchsorted(begin, self.slices.begin_ns[mine], side="right") - 1
            inside = (at >= 0) & (self.slices.end_ns[mine] <= end[np.maximum(at, 0)])
            target[mine[inside]] = np.array(places, np.int64)[theirs[at[inside]]]
        return target, list(names)

    def name_targets(self, calls: I64) -> list[str]:
        """Return whom calls go to: a service, or an address."""
        subs, ends, requests = self.subs, self.endpoints, self.requests
        child, at = subs.child[calls].tolist(), subs.endpoint[calls].tolist()
        return [
            requests.strings[requests.service[one]]
            if one >= 0
            else f"{ends.strings[ends.remote_address[of]]}:{ends.remote_port[of]}"
            for one, of in zip(child, at, strict=True)
        ]

    @cached_property
    def loops(self) -> dict[int, str]:
        """The service of each loop."""
        requests = self.requests
        keys, number = np.unique(self.reader, return_inverse=True)
        number = number.reshape(-1)
        times = np.column_stack([requests.begin_ns, requests.received_ns, requests.end_ns])
        loops = np.flatnonzero(find_loops(times, number.astype(np.int32), len(keys)))
        most = [int(np.bincount(requests.service[number == loop]).argmax()) for loop in loops]
        return {int(keys[at]): requests.strings[of] for at, of in zip(loops, most, strict=True)}

    def _find_alike(self, key: int, mine: I64) -> I64:
        """Return what all requests are called that a thread had not answered, 0 where not one."""
        requests, slices = self.requests, self.slices
        middle = (slices.begin_ns[mine] + slices.end_ns[mine]) // 2
        of = np.flatnonzero(self.reader == key)
        found = np.zeros(len(mine), np.int64)

        def count(some: I64) -> I64:
            begun = np.searchsorted(np.sort(requests.received_ns[some]), middle, side="right")
            return np.asarray(begun - np.searchsorted(np.sort(requests.end_ns[some]), middle))

        whole = count(of)
        for label in np.unique(requests.message[of]).tolist():
            many = count(of[requests.message[of] == label])
            found[(many == whole) & (whole > 0)] = label
        return found
