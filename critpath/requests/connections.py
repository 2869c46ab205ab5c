"""Connections that the requests of a process share: who holds each when, and who waits for one.

A pool is all connections of one process to one target, where several requests use one after the
other.  A request holds a connection from its first call over it to the answer of its last.  One
that does nothing while every connection of the pool is held by others, and asks next over one that
was just given back, waited for that: no event says so, but nothing else explains all three.

Where it is in doubt who asks, as on a loop, it is still certain how many do nothing: those that are
open, less the calls under way.  A pool serves who came first, so those that came last wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from critpath.model import F64, I32, I64, Bool, State, Workers
from critpath.model.details import Detail
from critpath.model.requests import (
    NONE,
    Act,
    Activity,
    Certainty,
    Endpoints,
    RequestTable,
    Slices,
    Subrequests,
)
from critpath.model.vectors import find_distinct, number_codes
from critpath.records import dataclass
from critpath.requests.owners import process_keys, thread_keys
from critpath.schema.notes import Note, PoolHeld
from critpath.schema.parameters.requests import CONNECTIONS

_NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Waits:
    """Waits of requests for a connection, or of one other state, in no order.

    Attributes
    ----------
    request : int64 [waits]
    begin, end : int64 [waits]
    about : int64 [waits]
        What for: codes into ``details``.
    details : tuple of Detail
    notes : tuple of Note
    state : State
    """

    request: I64
    begin: I64
    end: I64
    about: I64
    details: tuple[Detail, ...]
    notes: tuple[Note, ...] = ()
    state: State = State.WAIT_POOL


def find_pool_waits(
    activity: Activity,
    workers: Workers,
    endpoints: Endpoints,
    requests: RequestTable,
    subrequests: Subrequests,
    slices: Slices,
) -> Waits:
    """Find who waits for a connection of a pool that others hold.

    Parameters
    ----------
    activity, workers, endpoints
    requests, subrequests, slices
        Who worked for whom (`critpath.requests.links.attribute`).

    Returns
    -------
    Waits
    """
    calls = _Calls(workers, endpoints, requests, subrequests)
    pools = [_Pool(mine, calls, endpoints, requests) for mine in calls.find_pools()]
    pools = [pool for pool in pools if pool.is_shared]
    found: list[I64] = [np.zeros((0, 4), np.int64)]
    details: list[Detail] = []
    notes: list[PoolHeld] = []
    if not pools:
        nothing = np.zeros(0, np.int64)
        return Waits(nothing, nothing, nothing, nothing, ())
    resting = _Resting(activity, workers, endpoints, requests, subrequests, slices)
    for pool in pools:
        waits = np.vstack([pool.find_waits(resting), pool.find_unsure_waits(resting)])
        if not len(waits):
            continue
        target = _name_target(pool.endpoints, endpoints, requests, subrequests)
        found.append(np.column_stack([waits, np.full(len(waits), len(details))]))
        details.append(pool.find_detail(target, waits))
        waited = np.unique(waits[:, 0])
        askers = np.bincount(requests.service[waited])
        notes.append(
            PoolHeld(
                requests.strings[int(askers.argmax())],
                target,
                pool.size,
                pool.share_all_held(),
                len(waited),
                float((waits[:, 2] - waits[:, 1]).sum() / len(waited)),
            )
        )
    request, begin, end, about = np.vstack(found).T.copy()
    return Waits(request, begin, end, about, tuple(details), tuple(notes))


class LaidWaits:
    """Waits for connections, in the place of what the threads of the requests did.

    Attributes
    ----------
    details : tuple of Detail
        What for.
    """

    def __init__(self, waits: Sequence[Waits]) -> None:
        self.details = tuple(detail for of in waits for detail in of.details)
        firsts = np.cumsum([0, *(len(of.details) for of in waits)]).tolist()
        self._state = np.repeat([int(of.state) for of in waits], np.diff(firsts))
        every = [
            np.column_stack([of.request, of.begin, of.end, of.about + first])
            for of, first in zip(waits, firsts, strict=False)
        ]
        self._many = sum(map(len, every))
        if not self._many:
            return
        request, begin, end, code = np.vstack(every).T
        order = np.lexsort((end, begin, request))
        request, begin, self._end, self._code = (of[order] for of in (request, begin, end, code))
        # Of two at once the later begins where the earlier ends.
        until = _accumulate(request, self._end)
        begin = begin.copy()
        begin[1:] = np.where(
            request[1:] == request[:-1], np.maximum(begin[1:], until[:-1]), begin[1:]
        )
        self._begin = begin
        self._by_begin, self._by_end = _Ordered(request, begin), _Ordered(request, until)

    def lay(self, start: I64, table: I64) -> tuple[I64, I64, I64]:
        """Put the waits into pieces.

        Parameters
        ----------
        start, table : int64
            As `critpath.requests._pieces.Composer.compose` returns them.

        Returns
        -------
        start, table
            With more pieces.
        pool : int64 [pieces]
            What for; -1 elsewhere.
        """
        if not self._many:
            return start, table, np.full(len(table), NONE, np.int64)
        begin, end, code, state = self._begin, self._end, self._code, self._state
        of, since, to = table[:, 5], table[:, 1], table[:, 2]
        low = self._by_end.count(of, since, at=True)
        high = self._by_begin.count(of, to, at=False)
        many = np.where(table[:, 3] == int(State.NET_TRANSIT), 0, np.maximum(high - low, 0))
        piece, at = _expand(low, many)
        cuts = np.column_stack(
            [np.maximum(begin[at], since[piece]), np.minimum(end[at], to[piece])]
        )
        kept = cuts[:, 0] < cuts[:, 1]
        piece, cuts, about = piece[kept], cuts[kept], code[at[kept]]
        # What is left of a piece before each wait, the waits, and what is left at its end.
        before, rest = since[piece].copy(), since.copy()
        again = np.flatnonzero(piece[1:] == piece[:-1]) + 1
        before[again] = cuts[again - 1, 1]
        np.maximum.at(rest, piece, cuts[:, 1])
        which = np.concatenate([piece, piece, np.arange(len(table))])
        laid = table[which]
        laid[:, 1] = np.concatenate([before, cuts[:, 0], rest])
        laid[:, 2] = np.concatenate([cuts[:, 0], cuts[:, 1], to])
        pool = np.concatenate([np.full(len(piece), NONE), about, np.full(len(table), NONE)])
        laid[pool >= 0, 3], laid[pool >= 0, 4] = state[pool[pool >= 0]], NONE
        order = np.lexsort((laid[:, 2], laid[:, 1], which))
        whole = rest[which[order]] == since[which[order]]
        order = order[(laid[order, 2] > laid[order, 1]) | whole]
        begins = np.concatenate([[0], np.cumsum(np.bincount(which[order], minlength=len(table)))])
        return begins[start], laid[order], pool[order]


class _Calls:
    """What processes ask over connections, by connection and in order of time."""

    def __init__(
        self, workers: Workers, endpoints: Endpoints, requests: RequestTable, subs: Subrequests
    ) -> None:
        rows = np.flatnonzero((subs.connects == 0) & (subs.end_ns > subs.begin_ns))
        rows = rows[np.lexsort((subs.begin_ns[rows], subs.endpoint[rows]))]
        self.endpoint = subs.endpoint[rows].astype(np.int64)
        self.begin, self.end = subs.begin_ns[rows], subs.end_ns[rows]
        host = endpoints.host[self.endpoint]
        self.asker = thread_keys(host, subs.tid[rows])
        self.process = process_keys(workers, self.asker)
        self.child = subs.child[rows]
        known = (subs.request[rows] >= 0) & (subs.attribution[rows] != Certainty.DOUBTFUL)
        self.request = np.where(known, subs.request[rows], NONE).astype(np.int64)
        served = thread_keys(endpoints.host[requests.endpoint], requests.tid)
        self._serves = process_keys(workers, served)
        self._settled = np.zeros(len(requests), np.bool_)
        self._settled[self.request[known]] = True
        in_doubt = subs.request[rows[~known]]
        self._settled[in_doubt[in_doubt >= 0]] = False
        peer = endpoints.peer[self.endpoint]
        self._target = np.column_stack(
            [
                self.process,
                endpoints.remote_address[self.endpoint],
                endpoints.remote_port[self.endpoint],
                np.where(peer >= 0, endpoints.path[peer], 0),
            ]
        )

    def find_pools(self) -> Iterator[I64]:
        """Yield the calls of each process to each target, of processes whose requests may wait.

        One that serves none, and asks for none that is known, as a client does, has nobody to wait.
        """
        waits = (self.request >= 0) | np.isin(self.process, self._serves)
        if not waits.any():
            return
        pool = find_distinct(self._target)[1]
        some = np.bincount(pool, waits) > 0
        order = np.argsort(pool, kind="stable")
        of_each = np.split(order, np.cumsum(np.bincount(pool))[:-1])
        yield from (calls for calls, mine in zip(of_each, some.tolist(), strict=True) if mine)

    def find_unsure(self, process: int) -> tuple[I64, I64, Bool]:
        """Return the requests of a process, those of which some call is in doubt, and its calls.

        Whoever asks nothing for certain may have asked what is in doubt.
        """
        mine = self.process == process
        rows = np.flatnonzero(self._serves == process)
        in_doubt = (mine & (self.request < 0)).any()
        return rows, rows[~self._settled[rows] & in_doubt], mine


class _Pool:
    """Who holds its connections when, and when all are held."""

    def __init__(
        self, mine: I64, calls: _Calls, endpoints: Endpoints, requests: RequestTable
    ) -> None:
        self._mine, self._calls, self._requests = mine, calls, requests
        endpoint, request = calls.endpoint[mine], calls.request[mine]
        begins = np.ones(len(mine), np.bool_)
        begins[1:] = (
            (endpoint[1:] != endpoint[:-1]) | (request[1:] != request[:-1]) | (request[1:] < 0)
        )
        first = np.flatnonzero(begins)
        self._endpoint, self._request = endpoint[first], request[first]
        self._begin = calls.begin[mine][first]
        self._end = np.maximum.reduceat(calls.end[mine], first)
        self._asker = calls.asker[mine][first]
        self._usual = float(np.median(calls.end[mine] - calls.begin[mine]))
        # By whom a connection is used next: places of holds.
        self._before = np.flatnonzero(self._endpoint[1:] == self._endpoint[:-1])
        one, other = self._request[self._before], self._request[self._before + 1]
        self.is_shared = bool(((one != other) | (one < 0)).any())
        self.endpoints = np.unique(endpoint)
        opened = np.sort(endpoints.opened_ns[self.endpoints])
        closed = np.sort(endpoints.closed_ns[self.endpoints])
        there = np.searchsorted(opened, opened, "right") - np.searchsorted(closed, opened, "right")
        self.size = int(there.max(initial=1))
        self._opened, self._closed = opened, closed

    def _count_free(self, until: I64) -> tuple[I64, I64]:
        """Return how many connections are free from when on, as held until some times."""
        time = np.concatenate([self._begin, until, self._opened, self._closed])
        many = [len(until)] * 2 + [len(self._opened)] * 2
        return _add_up(time, np.repeat([-1, 1, 1, -1], many))

    def _follow_holds(self, resting: _Resting) -> None:
        """Find until when connections were held, and when all were."""
        before, after = self._before, self._before + 1
        begin, end, request = self._begin, self._end, self._request
        gap = begin[after] - end[before]
        soon = resting.went_on(self._asker[after], end[before], begin[after])
        soon |= gap <= CONNECTIONS.handed * self._usual
        # Who is known may hold one until the request is answered.  Of whom it is in doubt, one that
        # is handed on at once was not free.
        self._busy = end.copy()
        self._busy[before[soon]] = begin[after[soon]]
        known = request >= 0
        until = np.where(known, np.maximum(end, self._requests.end_ns[request]), end)
        until[before] = np.minimum(until[before], begin[after])
        self._time, free = self._count_free(until)
        self._full = free <= 0
        held = np.diff(self._time, append=self._time[-1]) * self._full
        self._held = np.concatenate([[0], np.cumsum(held)])  # how long all were, before each step

    def share_held(self, begin: I64, end: I64) -> F64:
        """Return in what share of some times all connections were held."""
        spent = []
        for moment in (begin, end):
            at = np.searchsorted(self._time, moment, "right") - 1
            past = (moment - self._time[at]) * self._full[at]
            spent.append(np.where(at >= 0, self._held[at] + past, 0))
        share: F64 = (spent[1] - spent[0]) / np.maximum(end - begin, 1)
        return share

    def share_all_held(self) -> float:
        """Return in what share of the time from first to last use all connections were held."""
        begin, end = self._begin.min(keepdims=True), self._end.max(keepdims=True)
        return float(self.share_held(begin, end)[0])

    def find_waits(self, resting: _Resting) -> I64:
        """Return request, begin and end of each wait of those whose calls are known."""
        self._follow_holds(resting)
        given, taken = self._before, self._before + 1
        mine = (self._request[taken] >= 0) & (self._request[taken] != self._request[given])
        given, taken = given[mine], taken[mine]
        waits = resting.find(self._request[taken], self._end[given], self._begin[taken])
        some = waits[:, 1] < waits[:, 2]
        some[some] = self.share_held(waits[some, 1], self._end[given[some]]) >= CONNECTIONS.held
        return waits[some]

    def find_unsure_waits(self, resting: _Resting) -> I64:
        """Return request, begin and end of waits of those of whose calls some are in doubt.

        How many wait follows from how many are open and how many calls are under way; that they
        wait for this, from that who gives a connection back hands it on.  Who still does nothing
        when one is not handed on waits for something else.
        """
        calls = self._calls
        rows, unsure, mine = calls.find_unsure(int(calls.process[self._mine[0]]))
        if not len(unsure) or self._is_of_threads(resting):
            return np.zeros((0, 3), np.int64)
        mine[self._mine] = False
        others = np.flatnonzero(mine)
        moments, free = self._count_free(self._busy)

        def count_idle(some: I64) -> tuple[I64, I64]:
            """Return how many of some requests do nothing, from when on."""
            of = np.append(np.isin(np.arange(len(self._requests)), some), True)
            holds, asked = of[self._request], others[of[calls.request[others]]]
            changes = (
                (self._requests.received_ns[some], 1),
                (self._requests.end_ns[some], -1),
                (calls.begin[asked], -1),
                (calls.end[asked], 1),
                (self._begin[holds], -1),
                (self._busy[holds], 1),
                (moments, 0),
            )
            time = np.concatenate([times for times, _ in changes])
            return _add_up(
                time, np.repeat([step for _, step in changes], [*map(len, (t for t, _ in changes))])
            )

        time, idle = count_idle(unsure)
        every, of_all = count_idle(rows)
        idle = np.minimum(idle, of_all[np.searchsorted(every, time, "right") - 1])
        full = free[np.maximum(np.searchsorted(moments, time, "right") - 1, 0)] <= 0
        # Who gave back the last connection does nothing either, for a moment.
        ends = np.flatnonzero(~full)
        after = np.minimum(np.searchsorted(ends, np.arange(len(time))), len(ends) - 1)
        left = np.maximum(idle[ends[after]] - 1, 0) if len(ends) else 0
        waiting = np.where(full, np.maximum(idle - left, 0), 0)
        begin, end = self._requests.received_ns[unsure], self._requests.end_ns[unsure]
        return resting.keep_asleep(_choose_last(unsure, begin, end, time, waiting))

    def _is_of_threads(self, resting: _Resting) -> bool:
        """Tell whether each connection is one helper's own: then one waits for the helper."""
        pairs = find_distinct(np.column_stack([self._endpoint, self._asker]))[0]
        own = len(pairs) == len(np.unique(pairs[:, 0])) == len(np.unique(pairs[:, 1]))
        return own and not resting.answers(pairs[:, 1]).all()

    def find_detail(self, target: str, waits: I64) -> Detail:
        """Return what was waited for, and what held it for the most part."""
        calls = self._calls
        begin, end = (
            _sum_until(times[self._mine], waits[:, 1], waits[:, 2])
            for times in (calls.begin, calls.end)
        )
        child = calls.child[self._mine]
        message = np.where(child >= 0, self._requests.message[child], NONE)
        codes, number = np.unique(message, return_inverse=True)
        spent = np.bincount(number.reshape(-1), end - begin)
        most = int(spent.argmax())
        label = self._requests.strings[int(codes[most])] if codes[most] >= 0 else ""
        held = round(100 * float(spent[most]) / float(spent.sum())) if label else 0
        return Detail(device=target, connections=self.size, request=label, held=held)


def _add_up(time: I64, step: I64) -> tuple[I64, I64]:
    """Return each time once, in order, and what steps up to it add up to."""
    order = np.argsort(time, kind="stable")
    time, total = time[order], np.cumsum(step[order])
    last = np.flatnonzero(np.append(time[1:] != time[:-1], True))
    return time[last], total[last]


def _choose_last(rows: I64, begin: I64, end: I64, time: I64, waiting: I64) -> I64:
    """Return row, begin and end of those that wait: of the open ones, those that came last.

    Parameters
    ----------
    rows, begin, end : int64 [requests]
    time, waiting : int64 [steps]
        How many wait from each step to the next.
    """
    kept = np.flatnonzero(waiting[:-1] > 0)
    latest = np.argsort(-begin, kind="stable")
    low, high = (
        np.searchsorted(kept, np.searchsorted(time, ends[latest])) for ends in (begin, end)
    )
    which, step = _expand(low, np.maximum(high - low, 0))
    order = np.argsort(step, kind="stable")
    which, step = which[order], step[order]
    place = np.arange(len(step)) - np.searchsorted(step, step)
    mine = place < waiting[kept[step]]
    which, step = latest[which[mine]], kept[step[mine]]
    order = np.lexsort((step, which))
    which, step = which[order], step[order]
    goes_on = np.zeros(len(step), np.bool_)
    goes_on[1:] = (which[1:] == which[:-1]) & (step[1:] == step[:-1] + 1)
    first = np.flatnonzero(~goes_on)
    last = np.append(first[1:], len(step))[: len(first)] - 1
    return np.column_stack([rows[which[first]], time[step[first]], time[step[last] + 1]])


def _expand(first: I64, many: I64) -> tuple[I64, I64]:
    """Return which row each is of, and its place, of rows of so many from a first one on."""
    which = np.repeat(np.arange(len(many)), many)
    return which, np.arange(len(which)) + np.repeat(first - np.cumsum(many) + many, many)


def _sum_until(times: I64, begin: I64, end: I64) -> I64:
    """Return how long all waits together had lasted at some times."""
    found = np.zeros(len(times), np.int64)
    for column, sign in ((begin, 1), (end, -1)):
        at = np.sort(column)
        many = np.searchsorted(at, times)
        found += sign * (many * times - np.concatenate([[0], np.cumsum(at)])[many])
    return found


class _Ordered:
    """Rows of groups, in order of time, of which many are looked up at once."""

    def __init__(self, group: I64, time: I64) -> None:
        self._times = np.sort(time)
        self._many = len(time) + 1
        rank = np.searchsorted(self._times, time, "right")
        self._groups, number = number_codes(group)
        keys = number * self._many + rank
        self.order = np.argsort(keys, kind="stable")
        self._keys = keys[self.order]

    def count(self, group: I64, time: I64, *, at: bool) -> I64:
        """Return how many rows come before a time of a group, or also at it."""
        number = np.searchsorted(self._groups, group)
        there = np.append(self._groups, -1)[number] == group
        rank = np.searchsorted(self._times, time, "right" if at else "left")
        found = np.searchsorted(self._keys, number * self._many + rank, "right")
        return np.where(there, found, 0)

    def begin(self, group: I64) -> I64:
        """Return how many rows come before a group."""
        return np.searchsorted(self._keys, np.searchsorted(self._groups, group) * self._many)


class _Resting:
    """When requests did nothing: no slice, no call under way, or their own thread asleep."""

    def __init__(
        self,
        activity: Activity,
        workers: Workers,
        endpoints: Endpoints,
        requests: RequestTable,
        subs: Subrequests,
        slices: Slices,
    ) -> None:
        self._received = requests.received_ns
        self._subs = _Ordered(subs.request.astype(np.int64), subs.begin_ns)
        # Behind the last of each is one that nothing is of.
        order = self._subs.order
        self._until = np.append(_accumulate(subs.request[order], subs.end_ns[order]), 0)
        self._slices = _Ordered(slices.request.astype(np.int64), slices.begin_ns)
        order = self._slices.order
        self._slice_end = np.append(slices.end_ns[order], 0)
        self._slice_thread = thread_keys(slices.host, slices.tid)[order]
        self._answers = thread_keys(endpoints.host[requests.endpoint], requests.tid)
        rows = np.flatnonzero(np.isin(activity.act, (Act.SLEEP, Act.RUN, Act.WAKE)))
        woken = activity.act[rows] == Act.WAKE
        who = np.where(woken, activity.value[rows], activity.tid[rows])
        thread = thread_keys(activity.host[rows], who)
        asks = thread_keys(endpoints.host[subs.endpoint], subs.tid)
        some = np.isin(thread, np.concatenate([self._answers, self._slice_thread, asks]))
        rows, thread = rows[some], thread[some]
        self._threads = _Ordered(thread, activity.time_ns[rows])
        order = self._threads.order
        self._thread = np.append(thread[order], NONE)
        self._time, self._act = (
            np.append(column[rows][order], 0) for column in (activity.time_ns, activity.act)
        )
        slept = self._act == Act.SLEEP
        self._slept = np.concatenate([[0], np.cumsum(slept)])
        # Sleeps that a thread of the same process ended, by the rows that follow them.
        who = thread_keys(activity.host[rows], activity.tid[rows])[order]
        both = process_keys(workers, np.concatenate([who, thread[order]]))
        self._ours = np.append(both[: len(who)] == both[len(who) :], False)
        self._ours &= self._act == Act.WAKE
        self._ours[1:] &= slept[:-1] & (self._thread[1:] == self._thread[:-1])
        # Where a sleep follows such a one at once, the first of these.
        sleeps = np.flatnonzero(slept)
        again = np.zeros(len(sleeps), np.bool_)
        again[1:] = self._ours[sleeps[:-1] + 1] & (
            self._thread[sleeps[1:]] == self._thread[sleeps[:-1]]
        )
        again[1:] &= self._time[sleeps[1:]] - self._time[sleeps[:-1] + 1] <= CONNECTIONS.again
        first = np.maximum.accumulate(np.where(again, 0, np.arange(len(sleeps))))
        self._chain = np.arange(len(self._time))
        self._chain[sleeps] = sleeps[first]

    def find(self, request: I64, given: I64, taken: I64) -> I64:
        """Return since when requests did nothing as connections were given back, and till when.

        Parameters
        ----------
        request : int64 [n]
        given, taken : int64 [n]
            When who had it before had its last answer; when the request first used it.

        Returns
        -------
        int64 [n, 3]
            Request, begin and end: the same where it did something.
        """
        begun = self._subs.count(request, given, at=True)
        asked = begun > self._subs.begin(request)
        last = np.where(asked, self._until[begun - 1], 0)
        idle = (self._received[request] < given) & (given < taken) & (last <= given)
        idle &= self._subs.count(request, taken, at=False) <= begun  # nobody else meanwhile
        last = np.maximum(last, self._received[request])
        begun = self._slices.count(request, given, at=True)
        works = begun > self._slices.begin(request)
        until = (
            np.where(works, self._slice_end[begun - 1], 0) if len(self._slice_end) else 0 * given
        )
        # Of a loop, which works for others meanwhile: since the last that is known of it.
        found = np.column_stack([request, np.maximum(last, until), given])
        own = np.flatnonzero(idle & (until > given))
        sleeps = self._find_sleeps(self._slice_thread[begun[own] - 1], given[own], taken[own])
        found[own, 1], found[own, 2] = np.maximum(sleeps[:, 0], last[own]), sleeps[:, 1]
        found[~idle, 1:] = 0
        return found

    def _find_sleeps(self, thread: I64, given: I64, taken: I64) -> I64:
        """Return the sleeps of threads that others of their process ended, after a time.

        Who is woken and finds that another took it sleeps again: that is one wait.
        """
        at = self._threads.count(thread, given, at=True)
        found = np.column_stack([self._time[self._chain[at - 1]], self._time[at]])
        right = (self._thread[at - 1] == thread) & self._ours[at] & (self._time[at] <= taken)
        found[~right] = 0
        return found

    def answers(self, thread: I64) -> Bool:
        """Tell which threads answer requests themselves."""
        return np.isin(thread, self._answers)

    def went_on(self, thread: I64, since: I64, until: I64) -> Bool:
        """Tell which threads did not sleep between two times."""
        slept = (
            self._slept[self._threads.count(thread, until, at=False)]
            - self._slept[self._threads.count(thread, since, at=True)]
        )
        return np.asarray(slept <= 0)

    def keep_asleep(self, waits: I64) -> I64:
        """Return the waits in most of which the threads that answer the requests slept.

        While a loop works it is what holds others up, also those that have no connection.
        """
        thread = self._answers[waits[:, 0]]
        low = np.maximum(self._threads.count(thread, waits[:, 1], at=True) - 1, 0)
        many = self._threads.count(thread, waits[:, 2], at=False) - low
        which, at = _expand(low, np.maximum(many, 0))
        mine = (self._act[at] == Act.SLEEP) & (self._thread[at] == thread[which])
        which, at = which[mine], at[mine]
        until = np.where(self._thread[at + 1] == self._thread[at], self._time[at + 1], _NEVER)
        begin = np.maximum(self._time[at], waits[which, 1])
        slept = np.bincount(which, np.minimum(until, waits[which, 2]) - begin, len(waits))
        return waits[slept >= CONNECTIONS.asleep * (waits[:, 2] - waits[:, 1])]


def _accumulate(request: I32 | I64, until: I64) -> I64:
    """Return the latest end up to each row, of rows in order of their request."""
    if not len(until):
        return until
    least, span = until.min(), until.max() - until.min() + 1
    number = np.cumsum(np.append(False, request[1:] != request[:-1]))
    low = np.asarray(until - least)
    # Each request's are above those of all before it.
    return np.asarray(np.maximum.accumulate(low + number * span) - number * span + least)


def _name_target(each: I64, endpoints: Endpoints, requests: RequestTable, subs: Subrequests) -> str:
    """Return whom the connections lead to: the service that answers, else the address."""
    children = subs.child[np.isin(subs.endpoint, each) & (subs.child >= 0)]
    if len(children):
        service = np.bincount(requests.service[children]).argmax()
        return requests.strings[int(service)]
    at = int(each[0])
    address = endpoints.strings[endpoints.remote_address[at]]
    return f"{address}:{endpoints.remote_port[at]}"
