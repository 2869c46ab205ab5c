"""Connections that the requests of a process share: who holds each when, and who waits for one.

A pool is all connections of one process to one target, where several requests use one after the
other.  A request holds a connection from its first call over it to the answer of its last.  One
that does nothing while every connection of the pool is held by others, and asks next over one that
was just given back, waited for that: no event says so, but nothing else explains all three.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from critpath.model import I32, I64, Workers
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
from critpath.requests.owners import process_keys, thread_keys
from critpath.schema.notes import PoolHeld
from critpath.schema.parameters.requests import CONNECTIONS

_NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class PoolWaits:
    """Waits of requests for a connection, in no order.

    Attributes
    ----------
    request : int64 [waits]
    begin, end : int64 [waits]
    about : int64 [waits]
        What for: codes into ``names``.
    names : tuple of str
        ``one of 4 connections to postgres:5432``.
    notes : tuple of PoolHeld
    """

    request: I64
    begin: I64
    end: I64
    about: I64
    names: tuple[str, ...]
    notes: tuple[PoolHeld, ...] = ()


@dataclass(slots=True)
class _Hold:
    """Of one connection, from the first call of a request to the answer of its last."""

    endpoint: int
    request: int  # -1: not known whose it is
    begin: int
    end: int
    until: int  # not longer than that: the next that has it begins, or the request is answered
    label: str


def find_pool_waits(
    activity: Activity,
    workers: Workers,
    endpoints: Endpoints,
    requests: RequestTable,
    subrequests: Subrequests,
    slices: Slices,
) -> PoolWaits:
    """Find who waits for a connection of a pool that others hold.

    Parameters
    ----------
    activity, workers, endpoints
    requests, subrequests, slices
        Who worked for whom (`critpath.requests.links.attribute`).

    Returns
    -------
    PoolWaits
    """
    resting = _Resting(activity, workers, requests, subrequests, slices)
    found: list[tuple[int, int, int, int]] = []
    names: list[str] = []
    notes: list[PoolHeld] = []
    for holds in _find_pools(workers, endpoints, requests, subrequests):
        pool = _Pool(holds, endpoints)
        waits = [wait for wait in pool.find_waits(resting) if wait is not None]
        if not waits:
            continue
        target = _name_target(holds, endpoints, requests, subrequests)
        found += [(*wait, len(names)) for wait in waits]
        names.append(pool.describe(target, waits))
        askers = Counter(requests.service[[request for request, *_ in waits]].tolist())
        notes.append(
            PoolHeld(
                requests.strings[askers.most_common(1)[0][0]],
                target,
                pool.size,
                pool.share_held(holds[0].begin, max(hold.until for hold in holds)),
                len(waits),
                float(np.mean([end - begin for _, begin, end in waits])),
            )
        )
    table = np.array(found, np.int64).reshape(-1, 4)
    request, begin, end, about = table.T.copy()
    return PoolWaits(request, begin, end, about, tuple(names), tuple(notes))


def _find_pools(
    workers: Workers, endpoints: Endpoints, requests: RequestTable, subs: Subrequests
) -> list[list[_Hold]]:
    """Return who held which connections of each pool, by connection and in order of time."""
    asked = np.flatnonzero((subs.connects == 0) & (subs.end_ns > subs.begin_ns))
    asked = asked[np.lexsort((subs.begin_ns[asked], subs.endpoint[asked]))]
    process = process_keys(
        workers, thread_keys(endpoints.host[subs.endpoint[asked]], subs.tid[asked])
    )
    pools: dict[tuple[int, ...], list[_Hold]] = defaultdict(list)
    last: _Hold | None = None
    for row, of in zip(asked.tolist(), process.tolist(), strict=True):
        endpoint, request = int(subs.endpoint[row]), int(subs.request[row])
        if request >= 0 and subs.attribution[row] == Certainty.DOUBTFUL:
            request = NONE
        begin, end = int(subs.begin_ns[row]), int(subs.end_ns[row])
        if last is not None and last.endpoint == endpoint:
            if last.request == request >= 0:
                last.end = max(last.end, end)
                continue
            last.until = min(last.until, begin)
        child = int(subs.child[row])
        label = requests.strings[requests.message[child]] if child >= 0 else ""
        answered = int(requests.end_ns[request]) if request >= 0 else end
        last = _Hold(endpoint, request, begin, end, max(answered, end), label)
        peer = int(endpoints.peer[endpoint])
        path = int(endpoints.path[peer]) if peer >= 0 else 0
        target = endpoints.remote_address[endpoint], endpoints.remote_port[endpoint], path
        pools[of, *map(int, target)].append(last)
    return [holds for holds in pools.values() if _is_shared(holds)]


def _is_shared(holds: list[_Hold]) -> bool:
    """Tell whether several requests use some connection, one after the other."""
    return any(
        one.endpoint == other.endpoint and one.request != other.request
        for one, other in pairwise(holds)
    )


class _Pool:
    """Who holds its connections when, and when all are held."""

    def __init__(self, holds: list[_Hold], endpoints: Endpoints) -> None:
        self._holds = holds
        each = np.unique([hold.endpoint for hold in holds])
        steps = [
            *((hold.begin, -1) for hold in holds),
            *((hold.until, 1) for hold in holds),
            *((int(endpoints.opened_ns[at]), 1) for at in each.tolist()),
            *((int(endpoints.closed_ns[at]), -1) for at in each.tolist()),
        ]
        table = np.array(sorted(steps), np.int64)
        self._time = table[:, 0]
        free = np.cumsum(table[:, 1])
        held = np.diff(self._time, append=self._time[-1]) * (free <= 0)
        self._held = np.concatenate([[0], np.cumsum(held)])  # how long all were, before each step
        self._full = free <= 0
        opened = np.sort(endpoints.opened_ns[each])
        closed = np.sort(endpoints.closed_ns[each])
        there = np.searchsorted(opened, opened, "right") - np.searchsorted(closed, opened, "right")
        self.size = int(there.max(initial=1))

    def share_held(self, begin: int, end: int) -> float:
        """Return in what share of a time all connections were held."""
        at = np.searchsorted(self._time, [begin, end], "right") - 1
        if at[0] < 0 or end <= begin:
            return 0.0
        past = np.array([begin, end]) - self._time[at]
        spent = self._held[at] + past * self._full[at]
        return float(spent[1] - spent[0]) / (end - begin)

    def find_waits(self, resting: _Resting) -> list[tuple[int, int, int] | None]:
        """Return request, begin and end of each wait; None where there was none."""
        return [
            self._find_wait(before, hold, resting)
            for before, hold in pairwise(self._holds)
            if hold.endpoint == before.endpoint
            and hold.request >= 0
            and hold.request != before.request
        ]

    def _find_wait(
        self, before: _Hold, hold: _Hold, resting: _Resting
    ) -> tuple[int, int, int] | None:
        found = resting.find(hold.request, before.end, hold.begin)
        if found is None or self.share_held(found[0], before.end) < CONNECTIONS.held:
            return None
        return hold.request, *found

    def describe(self, target: str, waits: list[tuple[int, int, int]]) -> str:
        """Say what was waited for, and what held it for the most part."""
        spent: Counter[str] = Counter()
        labelled = [hold for hold in self._holds if hold.label]
        ends = np.array([(hold.begin, hold.until) for hold in labelled], np.int64).reshape(-1, 2)
        low, high = (_sum_until(column, waits) for column in ends.T)
        for hold, overlap in zip(labelled, (high - low).tolist(), strict=True):
            spent[hold.label] += overlap
        total, which = spent.total(), ""
        if total:
            label, most = spent.most_common(1)[0]
            which = f", which {label} held ({100 * most / total:.0f} %)"
        many = "the only connection" if self.size == 1 else f"one of {self.size} connections"
        return f"{many} to {target}{which}"


def _sum_until(times: I64, waits: list[tuple[int, int, int]]) -> I64:
    """Return how long all waits together had lasted at some times."""
    found = np.zeros(len(times), np.int64)
    for column, sign in ((1, 1), (2, -1)):
        at = np.sort(np.array([wait[column] for wait in waits], np.int64))
        many = np.searchsorted(at, times)
        found += sign * (many * times - np.concatenate([[0], np.cumsum(at)])[many])
    return found


class _Resting:
    """When requests did nothing: no slice, no call under way, or their own thread asleep."""

    def __init__(
        self,
        activity: Activity,
        workers: Workers,
        requests: RequestTable,
        subs: Subrequests,
        slices: Slices,
    ) -> None:
        self._received = requests.received_ns
        self._slices = _by(slices.request, slices.begin_ns)
        self._of_slices = slices.begin_ns, slices.end_ns, thread_keys(slices.host, slices.tid)
        self._subs = _by(subs.request, subs.begin_ns)
        self._of_subs = subs.begin_ns, subs.end_ns
        threads = np.flatnonzero(np.isin(activity.act, (Act.SLEEP, Act.RUN, Act.WAKE)))
        woken = activity.act[threads] == Act.WAKE
        who = np.where(woken, activity.value[threads], activity.tid[threads])
        keys = thread_keys(activity.host[threads], who)
        order = np.argsort(keys, kind="stable")
        self._rows, self._keys = threads[order], keys[order]
        self._time, self._act = activity.time_ns[self._rows], activity.act[self._rows]
        self._activity, self._workers = activity, workers

    def find(self, request: int, given: int, taken: int) -> tuple[int, int] | None:
        """Return since when a request did nothing as a connection was given back, and till when.

        Parameters
        ----------
        request : int
        given, taken : int
            When who had it before had its last answer; when the request first used it.
        """
        last = int(self._received[request])
        if not last < given < taken:
            return None
        begins, ends = self._of_subs
        for row in self._subs.get(request, ()):
            if begins[row] <= given < ends[row] or given <= begins[row] < taken:
                return None
            if ends[row] <= given:
                last = max(last, int(ends[row]))
        begins, ends, thread = self._of_slices
        before = [row for row in self._slices.get(request, ()) if begins[row] <= given]
        if before and ends[before[-1]] > given:
            return self._find_sleep(int(thread[before[-1]]), given, taken)
        # Of a loop, which works for others meanwhile: since the last that is known of it.
        return max([last, *(int(ends[row]) for row in before[-1:])]), given

    def _find_sleep(self, thread: int, given: int, taken: int) -> tuple[int, int] | None:
        """Return the sleep of a thread that another of its process ended, after a time."""
        low, high = np.searchsorted(self._keys, [thread, thread + 1])
        at = int(low) + int(np.searchsorted(self._time[low:high], given, "right"))
        if not low < at < high or self._act[at - 1] != Act.SLEEP:
            return None
        if self._act[at] != Act.WAKE or self._time[at] > taken:
            return None
        woken = self._rows[at]
        by = thread_keys(self._activity.host[[woken]], self._activity.tid[[woken]])
        both = process_keys(self._workers, np.append(by, thread))
        if both[0] != both[1]:
            return None
        return int(self._time[at - 1]), int(self._time[at])


def _by(request: I32, time: I64) -> dict[int, list[int]]:
    """Return the rows of each request in order of time."""
    found: dict[int, list[int]] = defaultdict(list)
    order = np.argsort(time, kind="stable")
    for row in order[request[order] >= 0].tolist():
        found[int(request[row])].append(row)
    return found


def _name_target(
    holds: list[_Hold], endpoints: Endpoints, requests: RequestTable, subs: Subrequests
) -> str:
    """Return whom the connections lead to: the service that answers, else the address."""
    each = np.unique([hold.endpoint for hold in holds])
    children = subs.child[np.isin(subs.endpoint, each) & (subs.child >= 0)]
    if len(children):
        service = np.bincount(requests.service[children]).argmax()
        return requests.strings[int(service)]
    at = int(each[0])
    address = endpoints.strings[endpoints.remote_address[at]]
    return f"{address}:{endpoints.remote_port[at]}"
