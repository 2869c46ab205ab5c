"""Bytes between hosts: when they left one, when they were there on the other, who slept for them.

All times are of one clock; how surely, `critpath.model.clocks.HostClock.bounds` says.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from critpath.model import I32, I64, Workers
from critpath.model.clocks import Messages
from critpath.model.requests import NONE, Act, Activity, Endpoints, RequestTable, Subrequests
from critpath.model.vectors import find_distinct
from critpath.requests._finding import EndpointRows

LEFT, ARRIVED, ANSWER_LEFT, ANSWERED = range(4)
_OPERATIONS: Final = (Act.SEND, Act.RECEIVE)


class OperationRows:
    """Some rows of an activity, found by their endpoint and row or time."""

    def __init__(self, activity: Activity, *acts: Act) -> None:
        self._time = activity.time_ns
        self._rows = EndpointRows(activity.act, activity.endpoint, mask_acts(*acts))

    def before(self, endpoint: I64, row: I64) -> I64:
        """Return the last row of each endpoint before another, -1 where none is."""
        return self._rows.before(endpoint, row)

    def after(self, endpoint: I64, row: I64) -> I64:
        """Return the first row of each endpoint after another, -1 where none is."""
        return self._rows.after(endpoint, row)

    def last(self, endpoint: I32 | I64, time: I64, *, before: bool = False) -> I64:
        """Return the last row of each endpoint up to a time (or before it), -1 where none is."""
        row = np.searchsorted(self._time, time, side="left" if before else "right")
        return self.before(endpoint.astype(np.int64), row)


def mask_acts(*acts: Act) -> int:
    """Return a bit for each of some acts, as native passes take them."""
    return sum(1 << act for act in acts)


def find_previous(activity: Activity, endpoint: I32, time: I64) -> I64:
    """Return when each endpoint last received or sent before a time; long ago if never."""
    rows = OperationRows(activity, *_OPERATIONS).last(endpoint, time, before=True)
    never = np.iinfo(np.int64).min
    return np.where(rows >= 0, activity.time_ns[rows] if len(activity) else never, never)


def find_departures(activity: Activity) -> I64:
    """Return of every row when its bytes left: with its thread's first packet, else its own time.

    A send is recorded when its call ends, up to tens of microseconds after the packet.
    """
    result = activity.time_ns.copy()
    wanted = np.isin(activity.act, (*_OPERATIONS, Act.LEAVE)) & (activity.tid > 0)
    rows = np.flatnonzero(wanted)
    thread = _threads(activity, rows)
    rows = rows[np.argsort(thread, kind="stable")]
    thread = _threads(activity, rows)
    left = activity.act[rows[:-1]] == Act.LEAVE
    sent = left & (activity.act[rows[1:]] == Act.SEND) & (thread[1:] == thread[:-1])
    result[rows[1:][sent]] = activity.time_ns[rows[:-1][sent]]
    return result


def find_first_departures(activity: Activity, subs: Subrequests, rows: I64) -> I64:
    """Return when the first bytes of some sub-requests left."""
    begin = subs.begin_ns[rows]
    sent = OperationRows(activity, Act.SEND).last(subs.endpoint[rows], begin)
    found: I64 = np.where(sent >= 0, find_departures(activity)[sent], begin)
    return np.minimum(found, begin)


def find_transits(
    activity: Activity, endpoints: Endpoints, requests: RequestTable, subrequests: Subrequests
) -> I64:
    """Find when what hosts asked of each other was on its way.

    Returns
    -------
    int64 [subrequests, 4]
        When it left, was there, its answer left, and was there; in order.  -1 of what stays on
        one host; of what is not in the recording on the other side, the two in the middle.
    """
    found = np.full((len(subrequests), 4), NONE, np.int64)
    peer = endpoints.peer[subrequests.endpoint]
    host = endpoints.host[subrequests.endpoint]
    far = (peer < 0) | (endpoints.host[peer] != host) if len(peer) else peer < 0
    rows = np.flatnonzero(far & (subrequests.connects == 0))
    if not len(rows):
        return found
    departure = find_departures(activity)
    sends, arrivals = OperationRows(activity, Act.SEND), OperationRows(activity, Act.ARRIVAL)
    of, begin, end = (
        subrequests.endpoint[rows],
        subrequests.begin_ns[rows],
        subrequests.end_ns[rows],
    )
    sent, came = sends.last(of, begin), arrivals.last(of, end)
    left = np.where(sent >= 0, departure[sent], begin)
    answered = np.where(came >= 0, activity.time_ns[came], end)
    child = subrequests.child[rows]
    known = child >= 0
    arrived, answer_left = left.copy(), answered.copy()
    there = child[known]
    arrived[known] = requests.begin_ns[there]
    last = sends.last(requests.endpoint[there], requests.end_ns[there])
    answer_left[known] = np.where(last >= 0, departure[last], requests.end_ns[there])
    # No path goes back in time: what clocks do not tell exactly is bound by what happened.
    left = np.minimum(np.minimum(left, begin), np.where(known, arrived, begin))
    answered = np.minimum(np.maximum(answered, np.where(known, arrived, begin)), end)
    answer_left = np.minimum(np.maximum(answer_left, np.where(known, arrived, begin)), answered)
    found[rows, LEFT], found[rows, ANSWERED] = left, answered
    found[rows[known], ARRIVED] = arrived[known]
    found[rows[known], ANSWER_LEFT] = answer_left[known]
    return found


# Who slept until bytes of another host came: links, whoever woke the thread.


def find_receipts(
    activity: Activity, messages: Messages, workers: Workers
) -> tuple[tuple[int, int, int, int], ...]:
    """Find the receives that ended a sleep, with who sent what another host's thread slept for.

    Parameters
    ----------
    activity : Activity
    messages : Messages
        Between hosts whose times are of one clock.
    workers : Workers

    Returns
    -------
    tuple of (int, int, int, int)
        Sender worker, left (ns), receiver worker, when the first of the bytes were there (ns).
    """
    rows, slept = _find_first_receives(activity)
    # Of what a receive got, the first byte is what there was to wait for.
    end, got = messages.receiver_endpoint.astype(np.int64), messages.received_ns
    order = np.lexsort((messages.position, got, end))
    key = np.column_stack([end[order], got[order]])
    first = order[np.flatnonzero((np.diff(key, axis=0, prepend=-1) != 0).any(axis=1))]
    of_row = np.full(len(activity) + 1, NONE, np.int64)
    receives = OperationRows(activity, Act.RECEIVE).last(
        messages.receiver_endpoint[first], got[first]
    )
    of_row[receives] = first
    message = of_row[rows]
    rows, slept, message = (of[message >= 0] for of in (rows, slept, message))
    came = OperationRows(activity, Act.ARRIVAL).after(
        activity.endpoint[rows].astype(np.int64), slept
    )
    known = (came >= 0) & (came < rows)
    rows, message, came = rows[known], message[known], came[known]
    time = activity.time_ns
    sent = OperationRows(activity, Act.SEND).last(
        messages.sender_endpoint[message], messages.sent_ns[message]
    )
    known = sent >= 0
    rows, came, sent = rows[known], came[known], sent[known]
    # Never back in time, and never none: of one moment nobody could tell which was first.
    left = np.minimum(find_departures(activity)[sent], time[came] - 1)
    lives = _Lives(workers)
    sender = lives.find(activity.host[sent], activity.tid[sent], left)
    receiver = lives.find(activity.host[rows], activity.tid[rows], time[rows])
    links = np.column_stack([sender, left, receiver, time[came]])
    links = find_distinct(links[(sender >= 0) & (receiver >= 0)])[0]
    return tuple((a, b, c, d) for a, b, c, d in links.tolist())


def _find_first_receives(activity: Activity) -> tuple[I64, I64]:
    """Return the receives that come first after their thread slept, and the row of that sleep."""
    wanted = np.isin(activity.act, (*_OPERATIONS, Act.SLEEP)) & (activity.tid > 0)
    rows = np.flatnonzero(wanted)
    thread = _threads(activity, rows)
    order = np.argsort(thread, kind="stable")
    rows, thread = rows[order], thread[order]
    before, after = rows[:-1], rows[1:]
    first = (activity.act[before] == Act.SLEEP) & (activity.act[after] == Act.RECEIVE)
    first &= thread[1:] == thread[:-1]
    return after[first], before[first]


def _threads(activity: Activity, rows: I64) -> I64:
    key: I64 = (activity.host[rows].astype(np.int64) << 32) | activity.tid[rows].astype(np.int64)
    return key


class _Lives:
    """Lives of threads by host, id and time."""

    def __init__(self, workers: Workers) -> None:
        rows = np.flatnonzero((workers.first >= 0) & (workers.idle_cpu < 0) & (workers.tid > 0))
        key = (workers.host[rows].astype(np.int64) << 32) | workers.tid[rows]
        order = np.lexsort((workers.first[rows], key))
        self._rows, self._key, self._first = rows[order], key[order], workers.first[rows][order]

    def find(self, host: I32, tid: I32, time: I64) -> I64:
        """Return the life that each time falls into, -1 where a thread never appears."""
        key = (host.astype(np.int64) << 32) | tid.astype(np.int64)
        low = np.searchsorted(self._key, key, side="left")
        high = np.searchsorted(self._key, key, side="right")
        found = np.full(len(key), NONE, np.int64)
        for at in np.flatnonzero(high > low).tolist():
            lives = self._first[low[at] : high[at]]
            which = max(int(np.searchsorted(lives, time[at], side="right")) - 1, 0)
            found[at] = self._rows[low[at] + which]
        return found
