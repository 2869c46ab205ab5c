"""The path of a request through its sketch: which thread worked for it when, and when none did.

A loop is woken for one request by whoever sent another: its waits tell nothing of the request.  So
a request is cut at its sub-requests and at its slices; within each piece the path of the piece's
thread is the request's.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np

from critpath.model import F64, I32, I64, Bool, State
from critpath.model.details import Detail
from critpath.model.requests import (
    NONE,
    Act,
    Activity,
    Certainty,
    Endpoints,
    Pieces,
    RequestTable,
    Slices,
    Subrequests,
)
from critpath.model.vectors import find_distinct
from critpath.requests._pieces import Composer
from critpath.requests.blocking import find_arrivals
from critpath.requests.connections import LaidWaits, Waits
from critpath.requests.crossings import find_first_departures, find_transits
from critpath.requests.held import Held, HeldNames, SpentSlices, ThreadSlices, name_held
from critpath.requests.owners import find_loops, thread_keys

_LEAST: Final = 1e-9  # technical: of a probability
_DOUBLINGS: Final = 6  # technical: 64 tiers: more are not followed
WALK: Final = int(State.UNKNOWN)  # of a piece: its thread's path says what the state was


class Composition:
    """Requests, cut into pieces as they are asked for: of each piece one thread or state accounts.

    So pieces are there of those requests alone whose paths are walked next.

    Parameters
    ----------
    activity : Activity
    endpoints : Endpoints
    requests, subrequests, slices
        Who worked for whom (`critpath.requests.links.attribute`).
    rows : int64 array
        Of the requests, in the order wanted.
    doubtful : bool
        Follow what is doubtful, too.
    hosts : sequence of str
        Of several, what they are called: what one asks of another is on its way between them.
    calls : (int64 array, int64 array) or None
        Of each of `rows`, the sub-request that it is where it was asked, and when that began: its
        path begins and ends there (`find_calls`).
    waits : sequence of Waits
        When requests waited for a connection (`find_pool_waits`), or lay in a queue.
    held : Held or None
        Whom threads worked for; with it, what loops did while others waited is named.
    doubted : bool [requests], optional
        Of which requests it is doubtful what they asked, besides those of a doubtful sub-request.

    Attributes
    ----------
    left : int
        Requests of which it is doubtful what they asked: their paths do not follow it.
    arrivals, work
        As `critpath.model.requests.Pieces` has them.
    rows, seen : int64 array
        Of the requests; the same, or those that they are where they were asked.
    """

    def __init__(
        self,
        activity: Activity,
        endpoints: Endpoints,
        requests: RequestTable,
        subrequests: Subrequests,
        slices: Slices,
        rows: I64,
        *,
        doubtful: bool = False,
        hosts: Sequence[str] = (),
        calls: tuple[I64, I64] | None = None,
        waits: Sequence[Waits] = (),
        held: Held | None = None,
        doubted: Bool | None = None,
    ) -> None:
        self.rows = self.seen = rows
        self.arrivals = find_arrivals(activity, endpoints, requests)
        root = find_roots(requests)
        self.work = _find_work(slices, root)
        if calls is not None:
            root = np.append(root, root[subrequests.child[calls[0]]])
            self.seen = len(requests) + np.arange(len(rows))
            requests, subrequests = _add_clients(requests, subrequests, *calls)
            if held is not None:
                of = held.blocked.call
                blocked = replace(held.blocked, call=np.where(of >= 0, of + len(calls[0]), NONE))
                held = Held(endpoints, requests, subrequests, slices, blocked)
        mine = _sort_asked(subrequests)
        unknown = np.zeros(len(requests), np.bool_)
        if doubted is not None and not doubtful:
            unknown[: len(doubted)] = doubted
        transits = np.full((len(mine), 4), NONE, np.int64)
        if len(hosts) > 1:
            transits = find_transits(activity, endpoints, requests, subrequests)[mine]
        self._composer, self._keys = _make_composer(
            *(activity, endpoints, requests, subrequests, slices),
            *(doubtful, mine, transits, unknown),
        )
        self.left = self._composer.count_doubtful(np.ascontiguousarray(self.seen, np.int64))
        # Who may have asked something, and is not known to, stays on its thread anyway.
        asks = np.isin(np.arange(len(requests)), subrequests.request[mine])
        self.left += int((unknown & ~asks)[rows].sum())
        self._waits = LaidWaits(waits)
        self._askers = _find_askers(endpoints, subrequests, len(requests))
        self._asking, number = np.unique(self._askers, return_inverse=True)
        codes = {"by": number.reshape(-1)[slices.request]}
        if held is not None:
            codes |= {"label": held.label, "target": held.target}
        self._slices = ThreadSlices(self._keys, slices, **codes)
        self._names = None if held is None else HeldNames(held)
        self._links = _Links(requests, subrequests, mine)
        self._hosts, self._endpoints = hosts, endpoints
        self._flights = subrequests.endpoint[mine], subrequests.child[mine]
        self._root = np.append(root, NONE)
        self._served_at = np.append(requests.endpoint, NONE).astype(np.int64)

    def take(self, rows: I64) -> Composition:
        """Return some of the requests, in the order of their positions ``rows``."""
        taken = copy(self)
        taken.rows, taken.seen = self.rows[rows], self.seen[rows]
        return taken

    def cut(self, rows: slice) -> Pieces:
        """Return the pieces of the requests at some positions."""
        seen = np.ascontiguousarray(self.seen[rows], np.int64)
        start, table = self._composer.compose(seen)
        start, table, pool = self._waits.lay(start, table)
        about, names = _name_transits(table[:, 4], *self._flights, self._endpoints, self._hosts)
        details = tuple(Detail(device=name) for name in names)
        about = np.where(pool >= 0, len(details) + pool, about)
        details += self._waits.details
        spent = SpentSlices(table, self._slices)
        if self._names is not None:
            named, more = name_held(table, self._keys, spent, self._names)
            about = np.where(named >= 0, len(details) + named, about)
            details += more
        of_row = np.repeat(self.rows[rows], np.diff(start))
        keys = self._keys[table[:, 0]]
        return Pieces(
            start=start,
            host=keys >> 32,
            tid=keys & 0xFFFFFFFF,
            begin=table[:, 1].copy(),
            end=table[:, 2].copy(),
            state=table[:, 3].astype(np.uint8),
            by=_find_most_asking(table[:, 3], of_row, spent, self._asking),
            about=about,
            details=details,
            confidence=self._links.multiply(table, of_row),
            asker=self._askers[table[:, 5]],
            root=self._root[table[:, 5]],
            endpoint=self._served_at[table[:, 5]],
        )


def _find_most_asking(state: I64, row: I64, spent: SpentSlices, askers: I64) -> I64:
    """Return who asked for most of what was done for others while pieces waited for that."""
    found = np.full(len(state), NONE, np.int64)
    most, _ = spent.find_longest("by", row[spent.waits], NONE)
    found[spent.waits] = np.append(askers, NONE)[most]
    return np.where(state == State.QUEUED, found, NONE)


def find_calls(activity: Activity, requests: RequestTable, subs: Subrequests) -> tuple[I64, I64]:
    """Return the sub-request that each request is where it was asked, -1 unknown, and its begin.

    It begins when its first bytes left, and not after they were there, whatever clocks say.
    """
    calls = np.full(len(requests), NONE, np.int64)
    known = np.flatnonzero(
        (subs.child >= 0) & (subs.connects == 0) & (subs.tid > 0) & (subs.end_ns > subs.begin_ns)
    )
    child = subs.child[known]
    calls[child] = known
    begin = requests.begin_ns.copy()
    begin[child] = np.minimum(begin[child], find_first_departures(activity, subs, known))
    return calls, begin


def find_roots(requests: RequestTable) -> I64:
    """Return of each request that for which it is in the end, itself where nobody's."""
    root = np.where(requests.parent >= 0, requests.parent, np.arange(len(requests)))
    for _ in range(_DOUBLINGS):  # each time twice as far up
        root = root[root]
    return root.astype(np.int64)


def _find_work(slices: Slices, root: I64) -> I64:
    """Return what threads did for requests, as `Pieces.work` has it."""
    sure = np.flatnonzero(slices.attribution != Certainty.DOUBTFUL)
    whose = np.append(root, NONE)[slices.request[sure]]
    key = thread_keys(slices.host[sure], slices.tid[sure])
    work = np.column_stack([key, slices.begin_ns[sure], slices.end_ns[sure], whose])
    return work[np.lexsort((work[:, 1], work[:, 0]))].astype(np.int64)


def _add_clients(
    requests: RequestTable, subs: Subrequests, calls: I64, begin: I64
) -> tuple[RequestTable, Subrequests]:
    """Add a request for each of some calls: from its send to its last receive, in its thread.

    All that such a request does is that call.  What is asked for another request is asked for that
    one as well; its links say how probable it is that it was.
    """
    child = subs.child[calls]
    added = {
        **{name: getattr(requests, name)[child] for name in _COLUMNS},
        "endpoint": subs.endpoint[calls],
        **dict.fromkeys(("begin_ns", "received_ns"), begin),
        **dict.fromkeys(("answered_ns", "end_ns"), subs.end_ns[calls]),
        **dict.fromkeys(("reader_tid", "tid"), subs.tid[calls]),
        "parent": np.full(len(calls), NONE, np.int32),
    }
    more: dict[str, Any] = {
        name: np.concatenate([getattr(requests, name), added[name]]) for name in _COLUMNS
    }
    copies = {
        **{name: getattr(subs, name)[calls] for name in _ASKED},
        "request": np.arange(len(calls), dtype=np.int32) + np.int32(len(requests)),
        "attribution": np.full(len(calls), Certainty.CERTAIN, np.uint8),
        "probability": np.ones(len(calls)),
    }
    # In front: for whom else it was asked counts where both say so.
    asked = {name: np.concatenate([copies[name], getattr(subs, name)]) for name in _ASKED}
    return replace(requests, **more), Subrequests(**asked)


_COLUMNS: Final = tuple(f.name for f in fields(RequestTable) if f.name != "strings")
_ASKED: Final = tuple(f.name for f in fields(Subrequests))


class _Links:
    """How probable it is that what was done for one request was for another, above it."""

    def __init__(self, requests: RequestTable, subs: Subrequests, mine: I64) -> None:
        least = np.log(_LEAST)
        sure = np.maximum(np.log(np.maximum(subs.probability, _LEAST)), least)
        # From a request to those below it: its parents' links, those nearest to it first.
        above = np.full(len(requests), NONE, np.int64)
        whole = np.zeros(len(requests))
        linked = np.flatnonzero((subs.child >= 0) & (subs.request >= 0) & (subs.connects == 0))
        above[subs.child[linked]] = subs.request[linked]
        whole[subs.child[linked]] = sure[linked]
        for _ in range(_DOUBLINGS):  # each time twice as far up
            up = np.flatnonzero(above >= 0)
            if not len(up):
                break
            whole[up] += whole[above[up]]
            above[up] = above[above[up]]
        self._whole, self._sure = whole, sure[mine]

    def multiply(self, pieces: I64, root: I64) -> F64:
        """Return how probable it is that each piece is for the root: all links between."""
        found = self._whole[pieces[:, 5]] - self._whole[root]
        flies = np.flatnonzero(pieces[:, 4] >= 0)
        found[flies] += self._sure[pieces[flies, 4] >> 1]
        return np.asarray(np.exp(np.clip(found, None, 0.0)))


def _sort_asked(subs: Subrequests) -> I64:
    """Return of every request what it asked: those that end last come last."""
    mine = np.flatnonzero((subs.request >= 0) & (subs.connects == 0))
    return mine[np.lexsort((subs.end_ns[mine], subs.request[mine]))]


def _name_transits(
    about: I64, endpoint: I32, child: I32, endpoints: Endpoints, hosts: Sequence[str]
) -> tuple[I64, tuple[str, ...]]:
    """Return what each piece that is on its way goes to or comes from: codes, -1 for none.

    ``endpoint`` and ``child`` are of the sub-requests that pieces are about.
    """
    some = np.flatnonzero(about >= 0)
    found = np.full(len(about), NONE, np.int64)
    if not len(some):
        return found, ()
    of = about[some] >> 1
    keys = np.column_stack([endpoint[of], about[some] & 1, child[of] >= 0])
    each, number = find_distinct(keys)
    names: dict[str, int] = {}
    codes = [
        names.setdefault(_name_transit(endpoints, hosts, *key), len(names)) for key in each.tolist()
    ]
    found[some] = np.array(codes, np.int64)[number]
    return found, tuple(names)


def _name_transit(
    endpoints: Endpoints, hosts: Sequence[str], at: int, back: int, known: int
) -> str:
    peer, port = int(endpoints.peer[at]), int(endpoints.remote_port[at])
    host = hosts[endpoints.host[peer]] if peer >= 0 else ""
    where = f"{host or endpoints.strings[endpoints.remote_address[at]] or '?'}:{port}"
    if known:
        return f"from {where}" if back else f"to {where}"
    return f"{where}, not found" if peer >= 0 else f"{where}, not recorded"


def _find_askers(endpoints: Endpoints, subs: Subrequests, requests: int) -> I64:
    """Return the thread that asked for each request; the last is of no request: -1."""
    asker = np.full(requests + 1, NONE, np.int64)
    known = np.flatnonzero(subs.child >= 0)
    keys = thread_keys(endpoints.host[subs.endpoint[known]], subs.tid[known])
    asker[subs.child[known]] = np.where(subs.tid[known] > 0, keys, NONE)
    return asker


def _make_composer(
    activity: Activity,
    endpoints: Endpoints,
    requests: RequestTable,
    subs: Subrequests,
    slices: Slices,
    follow: bool,
    mine: I64,
    transits: I64,
    unknown: Bool,
) -> tuple[Composer, I64]:
    """Sort slices and sub-requests by thread and by request; return the threads' keys, too."""
    host = endpoints.host[requests.endpoint]
    threads = thread_keys(host, requests.tid), thread_keys(host, requests.reader_tid)
    asker = thread_keys(endpoints.host[subs.endpoint[mine]], subs.tid[mine])
    # Of others only what is theirs for sure; -1 is a shared stretch.
    sure = (slices.request < 0) | (slices.attribution != Certainty.DOUBTFUL) | follow
    kept = np.flatnonzero(sure & (slices.end_ns > slices.begin_ns))
    worker = thread_keys(slices.host[kept], slices.tid[kept])
    keys = np.unique(np.concatenate([*threads, asker, worker]))
    answerer, reader, asker, worker = (np.searchsorted(keys, k) for k in (*threads, asker, worker))
    of, slice_first = _sort_by_thread(worker, slices.begin_ns[kept], len(keys))
    kept = kept[of]
    sleeps = np.flatnonzero((activity.act == Act.SLEEP) & (activity.tid >= 0))
    asleep = thread_keys(activity.host[sleeps], activity.tid[sleeps])
    at = np.minimum(np.searchsorted(keys, asleep), max(len(keys) - 1, 0))
    some = np.flatnonzero(keys[at] == asleep) if len(keys) else at[:0]
    of, sleep_first = _sort_by_thread(at[some], activity.time_ns[sleeps[some]], len(keys))
    times = np.column_stack([requests.begin_ns, requests.received_ns, requests.end_ns])
    columns = (
        asker,
        subs.child[mine],
        ((subs.attribution[mine] == Certainty.DOUBTFUL) & (not follow))
        | unknown[subs.request[mine]],
        # What is answered here, but by no request that was found, is not understood.
        endpoints.peer[subs.endpoint[mine]] < 0,
    )
    return Composer(
        np.ascontiguousarray(times, np.int64),
        np.column_stack([answerer, reader]).astype(np.int32),
        (requests.boundary == Certainty.DOUBTFUL).astype(np.uint8),
        np.searchsorted(subs.request[mine], np.arange(len(requests) + 1)),
        np.column_stack([subs.begin_ns[mine], subs.end_ns[mine], transits]),
        np.column_stack(columns).astype(np.int32),
        *(slice_first, slices.begin_ns[kept], slices.end_ns[kept]),
        slices.request[kept].astype(np.int64),
        *(sleep_first, activity.time_ns[sleeps[some][of]]),
        find_loops(times, reader.astype(np.int32), len(keys)).astype(np.uint8),
        (WALK, State.QUEUED, State.SHARED, State.WAIT_NET, State.NET_TRANSIT),
    ), keys


def _sort_by_thread(thread: I64, time: I64, threads: int) -> tuple[I64, I64]:
    """Return rows by thread and in order of time, and where each thread's begin."""
    order = np.lexsort((time, thread))
    return order, np.searchsorted(thread[order], np.arange(threads + 1))
