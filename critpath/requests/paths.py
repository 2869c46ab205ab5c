"""The path of a request through its sketch: which thread worked for it when, and when none did.

A loop is woken for one request by whoever sent another: its waits tell nothing of the request.  So
a request is cut at its sub-requests and at its slices; within each piece the path of the piece's
thread is the request's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np

from critpath.model import F64, I64, Bool, State
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
from critpath.requests.blocking import Blocked, find_arrivals
from critpath.requests.connections import Waits, lay_waits
from critpath.requests.crossings import find_first_departures, find_transits
from critpath.requests.held import name_held, overlap_slices
from critpath.requests.owners import find_loops, thread_keys

_LEAST: Final = 1e-9  # technical: of a probability
_DOUBLINGS: Final = 6  # technical: 64 tiers: more are not followed
WALK: Final = int(State.UNKNOWN)  # of a piece: its thread's path says what the state was


def compose_paths(
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
    blocked: Blocked | None = None,
    doubted: Bool | None = None,
) -> tuple[Pieces, int]:
    """Cut requests into pieces, each of which one thread or state accounts for.

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
    blocked : Blocked or None
        When loops slept though requests were there; with it, what loops did is named.
    doubted : bool [requests], optional
        Of which requests it is doubtful what they asked, besides those of a doubtful sub-request.

    Returns
    -------
    pieces : Pieces
    left : int
        Requests of which it is doubtful what they asked: their paths do not follow it.
    """
    seen, served, root = rows, requests, find_roots(requests)
    if calls is not None:
        root = np.append(root, root[subrequests.child[calls[0]]])
        seen = len(requests) + np.arange(len(rows))
        requests, subrequests = _add_clients(requests, subrequests, *calls)
    mine = _sort_asked(subrequests)
    unknown = np.zeros(len(requests), np.bool_)
    if doubted is not None and not doubtful:
        unknown[: len(doubted)] = doubted
    transits = np.full((len(mine), 4), NONE, np.int64)
    if len(hosts) > 1:
        transits = find_transits(activity, endpoints, requests, subrequests)[mine]
    composer, keys = _make_composer(
        *(activity, endpoints, requests, subrequests, slices),
        *(doubtful, mine, transits, unknown),
    )
    start, table, left = composer.compose(np.ascontiguousarray(seen, np.int64))
    # Who may have asked something, and is not known to, stays on its thread anyway.
    asks = np.isin(np.arange(len(requests)), subrequests.request[mine])
    left += int((unknown & ~asks)[rows].sum())
    start, table, pool = lay_waits(start, table, waits)
    askers = _find_askers(endpoints, subrequests, len(requests))
    about, names = _name_transits(table[:, 4], subrequests, mine, endpoints, hosts)
    details = tuple(Detail(device=name) for name in names)
    about = np.where(pool >= 0, len(details) + pool, about)
    details += tuple(detail for of in waits for detail in of.details)
    if blocked is not None:
        tables = endpoints, requests, subrequests, slices, blocked
        held, more = name_held(table, keys, *tables)
        about = np.where(held >= 0, len(details) + held, about)
        details += more
    of_row = np.repeat(rows, np.diff(start))
    return Pieces(
        start=start,
        host=keys[table[:, 0]] >> 32,
        tid=keys[table[:, 0]] & 0xFFFFFFFF,
        begin=table[:, 1].copy(),
        end=table[:, 2].copy(),
        state=table[:, 3].astype(np.uint8),
        by=_find_most_asking(table, of_row, keys, askers, slices),
        about=about,
        details=details,
        confidence=_multiply_links(table, of_row, requests, subrequests, mine),
        asker=askers[table[:, 5]],
        root=np.append(root, NONE)[table[:, 5]],
        endpoint=np.append(requests.endpoint, NONE).astype(np.int64)[table[:, 5]],
        arrivals=find_arrivals(activity, endpoints, served),
        work=_find_work(slices, root),
    ), left


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


def _multiply_links(
    pieces: I64, root: I64, requests: RequestTable, subs: Subrequests, mine: I64
) -> F64:
    """Return how probable it is that what each piece does is for the root: all links between."""
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
    found = whole[pieces[:, 5]] - whole[root]
    flies = np.flatnonzero(pieces[:, 4] >= 0)
    found[flies] += sure[mine[pieces[flies, 4] >> 1]]
    return np.asarray(np.exp(np.clip(found, None, 0.0)))


def _sort_asked(subs: Subrequests) -> I64:
    """Return of every request what it asked: those that end last come last."""
    mine = np.flatnonzero((subs.request >= 0) & (subs.connects == 0))
    return mine[np.lexsort((subs.end_ns[mine], subs.request[mine]))]


def _name_transits(
    about: I64, subs: Subrequests, mine: I64, endpoints: Endpoints, hosts: Sequence[str]
) -> tuple[I64, tuple[str, ...]]:
    """Return what each piece that is on its way goes to or comes from: codes, -1 for none."""
    some = np.flatnonzero(about >= 0)
    found = np.full(len(about), NONE, np.int64)
    if not len(some):
        return found, ()
    of = mine[about[some] >> 1]
    at, back = subs.endpoint[of], about[some] & 1
    keys = np.column_stack([at, back, subs.child[of] >= 0])
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


def _find_most_asking(pieces: I64, row: I64, keys: I64, asker: I64, slices: Slices) -> I64:
    """Return who asked for most of what was done for others while pieces waited for that."""
    found = np.full(len(pieces), NONE, np.int64)
    askers, number = np.unique(asker, return_inverse=True)
    number = number.reshape(-1)
    waits = np.flatnonzero(pieces[:, 3] == State.QUEUED)
    for _, mine, which, at, spent in overlap_slices(pieces, keys, waits, slices):
        other = slices.request[at] != row[mine[which]]
        by = number[slices.request[at[other]]]
        pairs, place = np.unique(which[other] * len(askers) + by, return_inverse=True)
        order = np.argsort(np.bincount(place.reshape(-1), spent[other]), kind="stable")
        longest = pairs[order]  # comes last
        found[mine[longest // len(askers)]] = askers[longest % len(askers)]
    return found


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
