"""What loops did while requests waited for them: whom they worked for, and what blocked them."""

from __future__ import annotations

from collections.abc import Iterator

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
from critpath.requests.blocking import Blocked, find_waiting
from critpath.requests.owners import find_loops, thread_keys
from critpath.schema.notes import LoopBlocked
from critpath.schema.parameters.requests import BLOCKING


def name_held(
    pieces: I64,
    keys: I64,
    endpoints: Endpoints,
    requests: RequestTable,
    subs: Subrequests,
    slices: Slices,
    blocked: Blocked,
) -> tuple[I64, tuple[Detail, ...]]:
    """Return what the threads of pieces did that others had: codes of details, -1 for none.

    Parameters
    ----------
    pieces : int64 [pieces, 6]
        As `critpath.requests._pieces.Composer` makes them.
    keys : int64
        Of their threads.
    endpoints, requests, subs, slices
    blocked : Blocked
    """
    found = np.full(len(pieces), NONE, np.int64)
    waits = np.flatnonzero(np.isin(pieces[:, 3], (int(State.QUEUED), int(State.SHARED))))
    table: dict[Detail, int] = {}
    if not len(waits):
        return found, ()
    work = _Work(endpoints, requests, subs, slices, blocked)
    loops = work.name_loops()
    for key, mine, which, at, spent in overlap_slices(pieces, keys, waits, slices):
        other = work.who[at] != pieces[mine[which], 5]
        label = np.where(other, work.label[at], 0)
        length = pieces[mine, 2] - pieces[mine, 1]
        of = find_most(which, label, spent, length, none=0)
        asks = find_most(which, work.target[at], spent, length, none=NONE)
        loop = loops.get(key, "")
        many = work.count_under_way(key, pieces[mine, 1], pieces[mine, 2])
        rows = np.column_stack([of, asks, many if loop else np.zeros_like(many)])
        each, place = find_distinct(rows)
        codes = []
        for name, target, under_way in each.tolist():
            made = Detail(
                loop=loop,
                request=requests.strings[name],
                asks=work.targets[target] if target >= 0 else "",
                under_way=under_way,
            )
            codes.append(NONE if made == NO_DETAIL else table.setdefault(made, len(table)))
        found[mine] = np.array(codes, np.int64)[place]
    return found, tuple(table)


def note_blocked(
    endpoints: Endpoints,
    requests: RequestTable,
    subs: Subrequests,
    slices: Slices,
    blocked: Blocked,
) -> tuple[LoopBlocked, ...]:
    """Note which loops were blocked by what for a good part of the time, the most first."""
    if not len(blocked.key):
        return ()
    work = _Work(endpoints, requests, subs, slices, blocked)
    reader = thread_keys(endpoints.host[requests.endpoint], requests.reader_tid)
    waiting = find_waiting(endpoints, requests, subs, reader)
    target = np.array(["", *work.name_targets(blocked.call[blocked.call >= 0])])
    target = target[np.where(blocked.call >= 0, np.cumsum(blocked.call >= 0), 0)]
    found = []
    for key, loop in work.name_loops().items():
        mine = reader == key
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


def overlap_slices(
    pieces: I64, keys: I64, waits: I64, slices: Slices
) -> Iterator[tuple[int, I64, I64, I64, I64]]:
    """Yield of each thread its key, some pieces, and what of which slices lies in which of them."""
    worker = thread_keys(slices.host, slices.tid)
    for thread in np.unique(pieces[waits, 0]).tolist():
        mine = waits[pieces[waits, 0] == thread]
        of = np.flatnonzero(worker == keys[thread])  # in order, and none overlaps another
        first = np.searchsorted(slices.end_ns[of], pieces[mine, 1], side="right")
        many = np.searchsorted(slices.begin_ns[of], pieces[mine, 2]) - first
        which = np.repeat(np.arange(len(mine)), many)
        at = of[np.arange(len(which)) - np.repeat(np.cumsum(many) - many - first, many)]
        low = np.maximum(slices.begin_ns[at], pieces[mine[which], 1])
        spent = np.minimum(slices.end_ns[at], pieces[mine[which], 2]) - low
        yield int(keys[thread]), mine, which, at, spent


def find_most(which: I64, code: I64, spent: I64, length: I64, none: int) -> I64:
    """Return of each piece the code that most of its time has, where that is most of it."""
    found = np.full(len(length), none, np.int64)
    kept = code != none
    codes, place = np.unique(code[kept], return_inverse=True)
    if not len(codes):
        return found
    pairs, at = np.unique(which[kept] * len(codes) + place.reshape(-1), return_inverse=True)
    sums = np.bincount(at.reshape(-1), spent[kept])
    piece = pairs // len(codes)
    most = sums > BLOCKING.most * length[piece]  # of one at most
    found[piece[most]] = codes[pairs[most] % len(codes)]
    return found


class _Work:
    """Whom threads worked for in each slice, and what blocked them."""

    def __init__(
        self,
        endpoints: Endpoints,
        requests: RequestTable,
        subs: Subrequests,
        slices: Slices,
        blocked: Blocked,
    ) -> None:
        self._endpoints, self._requests, self._subs, self._slices = (
            endpoints,
            requests,
            subs,
            slices,
        )
        host = endpoints.host[requests.endpoint]
        self._reader = thread_keys(host, requests.reader_tid)
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
        target = np.full(len(self._slices), NONE, np.int64)
        names: dict[str, int] = {}
        called = np.flatnonzero(blocked.call >= 0)
        of = blocked.call[called]
        places = [names.setdefault(name, len(names)) for name in self.name_targets(of)]
        for key in np.unique(blocked.key[called]).tolist():
            theirs = np.flatnonzero(blocked.key[called] == key)
            mine = np.flatnonzero(self._key == key)
            begin, end = blocked.begin[called[theirs]], blocked.end[called[theirs]]
            at = np.searchsorted(begin, self._slices.begin_ns[mine], side="right") - 1
            inside = (at >= 0) & (self._slices.end_ns[mine] <= end[np.maximum(at, 0)])
            target[mine[inside]] = np.array(places, np.int64)[theirs[at[inside]]]
        return target, list(names)

    def name_targets(self, calls: I64) -> list[str]:
        """Return whom calls go to: a service, or an address."""
        subs, ends, requests = self._subs, self._endpoints, self._requests
        child, at = subs.child[calls].tolist(), subs.endpoint[calls].tolist()
        return [
            requests.strings[requests.service[one]]
            if one >= 0
            else f"{ends.strings[ends.remote_address[of]]}:{ends.remote_port[of]}"
            for one, of in zip(child, at, strict=True)
        ]

    def name_loops(self) -> dict[int, str]:
        """Return the service of each loop."""
        requests = self._requests
        keys, number = np.unique(self._reader, return_inverse=True)
        number = number.reshape(-1)
        times = np.column_stack([requests.begin_ns, requests.received_ns, requests.end_ns])
        loops = np.flatnonzero(find_loops(times, number.astype(np.int32), len(keys)))
        most = [int(np.bincount(requests.service[number == loop]).argmax()) for loop in loops]
        return {int(keys[at]): requests.strings[of] for at, of in zip(loops, most, strict=True)}

    def count_under_way(self, key: int, begin: I64, end: I64) -> I64:
        """Return how many requests a thread had not answered in the middle of some times."""
        mine, middle = self._reader == key, (begin + end) // 2
        began, ended = np.sort(self._requests.begin_ns[mine]), np.sort(self._requests.end_ns[mine])
        return np.asarray(
            np.searchsorted(began, middle, side="right")
            - np.searchsorted(ended, middle, side="right")
        )

    def _find_alike(self, key: int, mine: I64) -> I64:
        """Return what all requests are called that a thread had not answered, 0 where not one."""
        requests, slices = self._requests, self._slices
        middle = (slices.begin_ns[mine] + slices.end_ns[mine]) // 2
        of = np.flatnonzero(self._reader == key)
        found = np.zeros(len(mine), np.int64)

        def count(some: I64) -> I64:
            begun = np.searchsorted(np.sort(requests.received_ns[some]), middle, side="right")
            return np.asarray(begun - np.searchsorted(np.sort(requests.end_ns[some]), middle))

        whole = count(of)
        for label in np.unique(requests.message[of]).tolist():
            many = count(of[requests.message[of] == label])
            found[(many == whole) & (whole > 0)] = label
        return found
