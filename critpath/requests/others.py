"""Whose sub-requests are by one thing alone: other tools' methods, for comparison.

``thread``: who was last received by the thread, or had a result in it (thread-following tracers).
``delays``: the assignment that makes delays most alike (TraceWeaver, simplified).  ``gap``: the
steps of assignments of PInfer, by second-order transitions of kinds and by what else changes
between one exchange and the next.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from critpath.model import F64, I64
from critpath.model.requests import Act
from critpath.requests.matching import IMPOSSIBLE, match
from critpath.requests.transitions import END, Transitions
from critpath.schema.parameters.requests import TOKENS

if TYPE_CHECKING:
    from critpath.requests.assign import Tables

_AT_ONCE: Final = 400  # technical: requests of one assignment
_MOST: Final = 64  # technical: steps of one request


def assign_otherwise(method: str, tables: Tables, found: I64) -> tuple[I64, F64]:
    """Return whose every sub-request is, by one thing alone, and how probably."""
    owner = np.full(len(found), -1, np.int64)
    if method == "thread":
        _follow_threads(tables, owner)
    else:
        for process in np.unique(tables.of_request).tolist():
            subs = np.flatnonzero((tables.of_sub == process) & (tables.subrequests.connects == 0))
            requests = np.flatnonzero(tables.of_request == process)
            if method == "delays":
                _match_delays(tables, requests, subs, owner)
            else:
                _match_steps(tables, requests, subs, owner, found)
    return owner, np.where(owner >= 0, 0.5, 0.0)


def _follow_threads(tables: Tables, owner: I64) -> None:
    activity, requests, subs = tables.activity, tables.requests, tables.subrequests
    receives = np.flatnonzero(activity.act == Act.RECEIVE)
    of_sub = {
        (int(e), int(t)): row
        for row, (e, t) in enumerate(zip(subs.endpoint, subs.end_ns, strict=True))
    }
    events = [
        (
            int(activity.time_ns[row]),
            0,
            int(activity.host[row]),
            int(activity.tid[row]),
            of_sub[key],
        )
        for row in receives.tolist()
        if (key := (int(activity.endpoint[row]), int(activity.time_ns[row]))) in of_sub
    ]
    hosts = tables.endpoints.host
    for what, times, at, tids in (
        (1, requests.received_ns, requests.endpoint, requests.reader_tid),
        (2, subs.begin_ns, subs.endpoint, subs.tid),
    ):
        columns = (times, hosts[at], tids)
        lists = (column.tolist() for column in columns)
        events += [
            (time, what, host, tid, row)
            for row, (time, host, tid) in enumerate(zip(*lists, strict=True))
        ]
    last: dict[tuple[int, int], int] = {}  # by host and thread: thread ids are of one host
    for _, what, host, tid, row in sorted(events):
        if what == 0:
            last[host, tid] = int(owner[row])
        elif what == 1:
            last[host, tid] = row
        else:
            owner[row] = last.get((host, tid), -1)


def _match_delays(tables: Tables, requests: I64, subs: I64, owner: I64) -> None:
    """Assign kind by kind, in the order in which they are usually asked."""
    table, below = tables.requests, tables.subrequests
    begin, end = table.received_ns[requests], table.end_ns[requests]
    for _, mine in _positions(tables, requests, subs):
        times = below.begin_ns[mine]
        middle = 0.0
        for number in range(TOKENS.rounds):
            logs = []
            for one in _chunks(requests):
                first, last = begin[one].min(), end[one].max()
                some = np.flatnonzero((times >= first) & (times <= last))
                delay = times[some][np.newaxis, :] - begin[one][:, np.newaxis]
                fits = (delay >= 0) & (times[some][np.newaxis, :] <= end[one][:, np.newaxis])
                log = np.log(np.maximum(delay, 1000))
                cost = np.where(fits, (log - middle) ** 2 if number else log, IMPOSSIBLE)
                for at, to in _solve(cost):
                    owner[mine[some[to]]] = requests[one[at]]
                    logs.append(log[at, to])
            middle = float(np.median(logs)) if logs else middle


def _positions(tables: Tables, requests: I64, subs: I64) -> list[tuple[int, I64]]:
    """Return sub-requests by kind, each as often as requests ask it."""
    found = []
    for kind in np.unique(tables.kind[subs]).tolist():
        mine = subs[tables.kind[subs] == kind]
        each = max(1, round(len(mine) / max(1, len(requests))))
        found += [(kind, mine[part::each]) for part in range(each)]
    return found


def _match_steps(tables: Tables, requests: I64, subs: I64, owner: I64, found: I64) -> None:
    """Let every request take its next sub-request, all at once, until none takes any."""
    known, changes = _train(tables, requests, subs, found)
    below, table = tables.subrequests, tables.requests
    begin, finish = below.begin_ns[subs], below.end_ns[subs]
    free = np.ones(len(subs), np.bool_)
    for one in _chunks(requests):
        rows = requests[one].tolist()
        histories = {row: [int(tables.root[row])] for row in rows}
        since = {row: int(table.received_ns[row]) for row in rows}
        last = dict.fromkeys(rows, -1)
        active = list(rows)
        for _ in range(_MOST):
            spans = [(since[row], int(table.end_ns[row])) for row in active]
            if not spans:
                break
            low, high = min(s for s, _ in spans), max(e for _, e in spans)
            some = np.flatnonzero(free & (begin >= low) & (begin <= high))
            cost = np.full((len(active), len(some) + len(active)), IMPOSSIBLE)
            for at, row in enumerate(active):
                before = tuple(histories[row][-2:])
                cost[at, len(some) + at] = -math.log(known.probability(before, END))
                for to, sub in enumerate(subs[some].tolist()):
                    if spans[at][0] <= begin[some[to]] <= spans[at][1]:
                        weight = known.probability(before, int(tables.kind[sub]))
                        weight *= changes.get(_change(tables, row, last[row], sub), TOKENS.strange)
                        cost[at, to] = -math.log(weight)
            going = []
            for at, to in _solve(cost):
                if to < len(some):
                    row, sub = active[at], int(subs[some[to]])
                    owner[sub], free[some[to]], last[row] = row, False, sub
                    histories[row].append(int(tables.kind[sub]))
                    since[row] = int(finish[some[to]])
                    going.append(row)
            active = going


def _change(tables: Tables, row: int, last: int, sub: int) -> tuple[bool, ...]:
    """Return whether thread, connection and peer change from one exchange to the next."""
    below, ends = tables.subrequests, tables.endpoints
    if last < 0:
        return int(tables.requests.reader_tid[row]) != int(below.tid[sub]), True, True
    one, other = int(below.endpoint[last]), int(below.endpoint[sub])
    peers = [(int(ends.remote_address[e]), int(ends.remote_port[e])) for e in (one, other)]
    return int(below.tid[last]) != int(below.tid[sub]), one != other, peers[0] != peers[1]


def _train(
    tables: Tables, requests: I64, subs: I64, found: I64
) -> tuple[Transitions, Mapping[tuple[bool, ...], float]]:
    """Learn from what the rules found, which is at least what sequential requests would tell."""
    asked: dict[int, list[int]] = defaultdict(list)
    for sub in subs[np.argsort(tables.subrequests.begin_ns[subs], kind="stable")].tolist():
        if found[sub] >= 0:
            asked[int(found[sub])].append(sub)
    known = Transitions(tables.kinds)
    counts: Counter[tuple[bool, ...]] = Counter()
    histories: list[Sequence[int]] = []
    for row in requests.tolist():
        mine = asked.get(row, [])
        kinds = tables.kind[mine].tolist() if mine else []
        histories.append([int(tables.root[row]), *kinds, END])
        for last, sub in zip([-1, *mine], mine, strict=False):
            counts[_change(tables, row, last, sub)] += 1
    known.learn(histories)
    total = max(1, counts.total())
    return known, {change: many / total for change, many in counts.items()}


def _chunks(requests: I64) -> list[I64]:
    return [
        np.arange(first, min(first + _AT_ONCE, len(requests)))
        for first in range(0, len(requests), _AT_ONCE)
    ]


def _solve(cost: F64) -> list[tuple[int, int]]:
    """Return the pairs of the cheapest assignment that are possible."""
    return [(at, to) for at, to in enumerate(match(cost).tolist()) if to >= 0]
