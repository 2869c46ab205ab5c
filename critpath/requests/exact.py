"""Whose calls are exactly: of one trace, as both messages say; or of the one that can have asked.

Who passes requests on asks for each as soon as it was received.  So mostly one request that is
under way has not asked when something is asked, and it is its: no other answer is possible.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from critpath.model import I64, Workers
from critpath.model.requests import NONE, Certainty, Endpoints, RequestTable, Rule, Subrequests
from critpath.requests.owners import process_keys, thread_keys
from critpath.schema.parameters.requests import OWNERS, POOLS, TOKENS

if TYPE_CHECKING:
    from critpath.requests.assign import Process


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


@dataclass
class _Waiting:
    """The requests of one thread that have not asked, as far as that is known."""

    requests: set[int] = field(default_factory=set)
    asked: int = 0  # how many of them have, not known which


def follow_proxy(process: Process) -> I64 | None:
    """Return whose what is asked is where only one can be (`NONE` elsewhere); None of no proxy.

    A proxy's requests ask once, and are answered after they were.
    """
    from critpath.requests.assign import What  # noqa: PLC0415 - that module asks this one

    endpoint, opens = process.asks[:, 1].tolist(), (process.asks[:, 3] & 1).tolist()
    owner = np.full(len(process.asks), NONE, np.int64)
    done = np.zeros(len(process.asks), np.bool_)
    asks_of: dict[int, int] = {}  # of each request what it asked
    reader: dict[int, int] = {}
    opened: dict[int, int] = {}  # of each endpoint that was opened for somebody, for whom
    waiting: dict[int, _Waiting] = {}
    silent = wrong = 0
    columns = (process.what, process.thread, process.row)
    for what, thread, row in zip(*(column.tolist() for column in columns), strict=True):
        mine = waiting.setdefault(thread, _Waiting())
        if what == What.RECEIVE:
            mine.requests.add(row)
            reader[row] = thread
        elif what == What.RESULT:
            done[row] = True
        elif what == What.ASK and endpoint[row] in opened:
            owner[row] = opened.pop(endpoint[row])
            asks_of[int(owner[row])] = row
        elif what == What.ASK and mine.requests:
            if len(mine.requests) > 1 or mine.asked:
                mine.asked += 1
                if mine.asked == len(mine.requests):
                    mine.requests.clear()
                    mine.asked = 0
            else:
                owner[row] = mine.requests.pop()
                if opens[row]:
                    opened[endpoint[row]] = int(owner[row])
                else:
                    asks_of[int(owner[row])] = row
        elif what == What.ANSWERED and row in reader:
            its = waiting[reader[row]]
            if row in asks_of:
                wrong += not done[asks_of[row]]
            elif row in its.requests:
                its.requests.discard(row)
                silent += not its.asked
                its.asked = max(its.asked - 1, 0)
    many = len(process.root)
    found = int((owner[np.flatnonzero(process.asks[:, 3] & 1 == 0)] >= 0).sum())
    if not found or silent > OWNERS.exchanged * many or wrong > TOKENS.unsure * found:
        return None
    asked = int((process.asks[:, 3] & 1 == 0).sum())
    once = abs(asked - many) <= OWNERS.exchanged * many
    return owner if once and found >= POOLS.sure * asked else None
