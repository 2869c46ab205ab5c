"""Whose calls are exactly: of one trace, as both messages say; or of the one that can have asked.

Who passes requests on asks once for each at most, and passes an answer on before it sleeps again.
So its requests and calls are pairs; a pair that is in every way to make them all is certain.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict

import numpy as np

from critpath.model import F64, I32, I64, Bool, Workers
from critpath.model.requests import (
    NONE,
    PROBABLE,
    Act,
    Activity,
    Certainty,
    Endpoints,
    RequestTable,
    Rule,
    Subrequests,
)
from critpath.records import dataclass
from critpath.requests.crossings import OperationRows
from critpath.requests.matching import match_most
from critpath.requests.owners import process_keys, thread_keys
from critpath.schema.parameters.requests import CHAINS, OWNERS, PROXIES


def settle_traced(
    workers: Workers, endpoints: Endpoints, requests: RequestTable, subrequests: Subrequests
) -> Subrequests:
    """Say of sub-requests that carry a trace whose they are, if one request of it is under way.

    Parameters
    ----------
    workers, endpoints, requests
        Of the recording; of requests what they are called.
    subrequests : Subrequests
        With their children.
    """
    trace = requests.trace_id
    rows = np.flatnonzero(subrequests.child >= 0)
    rows = rows[trace[subrequests.child[rows]] > 0] if len(trace) else rows[:0]
    if not len(rows):
        return subrequests
    served = np.flatnonzero(trace > 0)
    readers = thread_keys(endpoints.host[requests.endpoint[served]], requests.reader_tid[served])
    askers = thread_keys(endpoints.host[subrequests.endpoint[rows]], subrequests.tid[rows])
    of_trace: dict[tuple[int, int], list[int]] = defaultdict(list)
    of_reader = process_keys(workers, readers).tolist()
    for process, code, row in zip(of_reader, trace[served].tolist(), served.tolist(), strict=True):
        of_trace[process, code].append(row)
    found = np.full(len(subrequests), -1, np.int32)
    columns = (rows, process_keys(workers, askers), trace[subrequests.child[rows]])
    for row, process, code in zip(*(c.tolist() for c in columns), strict=True):
        time = subrequests.begin_ns[row]
        before = [one for one in of_trace[process, code] if requests.received_ns[one] <= time]
        open_then = [one for one in before if requests.answered_ns[one] >= time]
        # Who answers first and works later has answered.
        some = open_then or before
        if len(some) == 1:
            found[row] = some[0]
    known = found >= 0
    return dataclasses.replace(
        subrequests,
        request=np.where(known, found, subrequests.request),
        how=np.where(known, Rule.TRACED, subrequests.how).astype(np.uint8),
        attribution=np.where(known, Certainty.CERTAIN, subrequests.attribution).astype(np.uint8),
        probability=np.where(known, 1.0, subrequests.probability),
    )


@dataclass(frozen=True, eq=False)
class Passing:
    """What a process is asked, and what it asks.

    Attributes
    ----------
    received, answered, end : int64 [requests]
        The first receive, and the first and the last send of the answer.
    tid : int32 [requests]
        Who receives and answers; -1 where these are two.
    endpoint, asker : int32 [calls]
    opened, begin, over : int64 [calls]
        When a connection was opened for it, else as `begin`; the first send, and the last receive
        of the answer.
    """

    received: I64
    answered: I64
    end: I64
    tid: I32
    endpoint: I32
    asker: I32
    opened: I64
    begin: I64
    over: I64


@dataclass(frozen=True, eq=False)
class Paired:
    """Which request made each call (`NONE`: none can have), how surely, how probably."""

    owner: I64
    sure: I64
    probability: F64


@dataclass(frozen=True, eq=False)
class _Matching:
    """One way to give each call its request.

    Attributes
    ----------
    call : int64 [requests]
        `NONE` of who asked nothing.
    certain : bool [requests]
        Whether that is so in every way.
    circle : int64 [requests]
        Requests that may exchange their calls have the same.
    """

    call: I64
    certain: Bool
    circle: I64


def pair_calls(activity: Activity, passing: Passing) -> Paired | None:
    """Pair the requests of a process with its calls; None of what passes nothing on."""
    requests, calls = len(passing.received), len(passing.begin)
    if not calls or calls > (1 + OWNERS.odd) * requests:
        return None
    of, call = _find_possible(activity, passing)
    if len(of) < (1 - OWNERS.odd) * calls:
        return None
    match = _Matching(*match_most(of, call, requests, calls))
    paired = np.flatnonzero(match.call >= 0)
    # Who can have asked and did not, and what nobody can have asked: more is asked than once.
    silent = len(np.unique(of)) - len(paired)
    if silent > OWNERS.odd * requests or calls - len(paired) > OWNERS.odd * calls:
        return None
    if np.count_nonzero(match.certain) < PROXIES.certain * calls:
        return None
    owner = np.full(calls, NONE, np.int64)
    sure = np.full(calls, Certainty.DOUBTFUL, np.int64)
    probability = np.zeros(calls)
    owner[match.call[paired]] = paired
    probability[match.call[paired]] = 1 / np.bincount(match.circle)[match.circle[paired]]
    certain = match.call[match.certain]
    sure[certain], probability[certain] = Certainty.CERTAIN, 1.0
    rows, made, agree = _pair_in_order(passing, paired[~match.certain[paired]], match)
    owner[made] = rows
    if len(made) >= OWNERS.few and agree.mean() >= PROXIES.in_order:
        sure[made[agree]] = Certainty.LIKELY
        probability[made[agree]] = PROBABLE[Certainty.LIKELY]
    return Paired(owner, sure, probability)


def _pair_in_order(passing: Passing, rows: I64, match: _Matching) -> tuple[I64, I64, Bool]:
    """Pair requests that may exchange their calls in the order in which they were received.

    Returns
    -------
    rows, calls : int64
    agree : bool
        Whether they are answered in the order in which the answers ended, too.
    """
    calls, circle = match.call[rows], match.circle[rows]
    columns = (passing.received[rows], passing.answered[rows])
    received, answered = (np.lexsort((times, circle)) for times in columns)
    columns = (passing.opened[calls], passing.over[calls])
    begun, over = (np.lexsort((times, circle)) for times in columns)
    last = np.empty(len(rows), np.int64)
    last[answered] = calls[over]
    return rows[received], calls[begun], last[received] == calls[begun]


def _find_possible(activity: Activity, passing: Passing) -> tuple[I64, I64]:
    """Return which requests can have made which calls, by the order of what their thread did."""
    order = np.argsort(passing.begin, kind="stable")
    begin = passing.begin[order]
    first = np.searchsorted(begin, passing.received)
    many = np.maximum(np.searchsorted(begin, passing.answered) - first, 0)
    many[passing.tid < 0] = 0
    if many.sum() > CHAINS.open * len(many):
        many[many > CHAINS.open] = 0
    of = np.repeat(np.arange(len(many)), many)
    place = np.arange(len(of)) - np.repeat(np.cumsum(many) - many, many)
    call = order[np.repeat(first, many) + place]
    met = (passing.asker[call] == passing.tid[of]) & (passing.over[call] <= passing.end[of])
    of, call = of[met], call[met]
    rows = OperationRows(activity, Act.RECEIVE).last(passing.endpoint[call], passing.answered[of])
    told = np.where(rows >= 0, activity.time_ns[rows], 0)
    slept = np.flatnonzero(activity.act == Act.SLEEP)
    met = told >= passing.begin[call]
    for tid in np.unique(passing.tid[of]).tolist():
        times = activity.time_ns[slept[activity.tid[slept] == tid]]
        mine = np.flatnonzero(passing.tid[of] == tid)
        since = np.searchsorted(times, told[mine])
        met[mine] &= since == np.searchsorted(times, passing.answered[of[mine]])
    return of[met], call[met]
