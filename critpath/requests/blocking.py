"""Loops that sleep though requests are there: blocked in a call, a sleep, a lock or a file.

A loop that waits in epoll, select or poll is woken by whatever arrives.  One that sleeps on while
a message is there that it takes only later waits for something else.  No event says so: that it
was not woken does.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np

from critpath.model import I32, I64, U8, Bool
from critpath.model.requests import (
    NONE,
    PROBABLE,
    Act,
    Activity,
    Certainty,
    Endpoints,
    RequestTable,
    Rule,
    Slices,
    Subrequests,
)
from critpath.model.vectors import find_distinct
from critpath.records import dataclass
from critpath.requests._finding import find_causes
from critpath.requests.crossings import mask_acts
from critpath.requests.owners import find_loops, find_targets, spend_thread, thread_keys
from critpath.requests.stretches import Parts
from critpath.schema.parameters.requests import BLOCKING

_NEVER: Final = np.iinfo(np.int64).max
_SETTLED: Final = ("request", "how", "attribution", "probability")
_COMES: Final = (Act.ARRIVAL, Act.OPEN, Act.FINISH)
_MOVES: Final = (Act.RECEIVE, Act.SEND, Act.OPEN)


@dataclass(frozen=True, eq=False)
class Blocked:
    """Sleeps of loops that nothing but what they waited for could end, in order of time.

    Attributes
    ----------
    key : int64
        Thread (`thread_keys`).
    begin, end : int64
        Of the whole call, where it is one.
    call : int64
        The sub-request that was waited for; -1: no call of a socket.
    owner : int64
        The request that it was for; -1: not known.
    attribution : uint8
        `Certainty` of that.
    """

    key: I64
    begin: I64
    end: I64
    call: I64
    owner: I64
    attribution: U8


def find_blocked(
    activity: Activity,
    endpoints: Endpoints,
    requests: RequestTable,
    subs: Subrequests,
    parts: Parts | None = None,
) -> Blocked:
    """Find when loops slept though something was there that they took only later.

    Calls to whom a loop always is asleep like that are found where nothing came meanwhile, too.
    """
    host = endpoints.host[requests.endpoint]
    reader = thread_keys(host, requests.reader_tid)
    keys, number = np.unique(reader, return_inverse=True)
    times = np.column_stack([requests.begin_ns, requests.received_ns, requests.end_ns])
    loops = keys[find_loops(times, number.reshape(-1).astype(np.int32), len(keys))]
    sleeps = _find_sleeps(activity, loops, parts)
    if not len(sleeps):
        none = np.zeros(0, np.int64)
        return Blocked(none, none, none, none, none, none.astype(np.uint8))
    asker = thread_keys(endpoints.host[subs.endpoint], subs.tid)
    blocked = _outlasts(sleeps, find_waiting(endpoints, requests, subs, reader))
    call, alone = _find_calls(activity, sleeps, subs, asker)
    both = np.column_stack([asker, find_targets(endpoints, subs)])
    blocked |= _find_habits(call, blocked, alone, both, subs.connects == 0)
    rows = np.flatnonzero(blocked)
    # A call in which it slept twice is one.
    _, first = np.unique(np.where(call[rows] >= 0, call[rows], -1 - rows), return_index=True)
    key, begin, end = sleeps[rows[first]].T.copy()
    call = call[rows[first]]
    called = call >= 0
    begin[called], end[called] = subs.begin_ns[call[called]], subs.end_ns[call[called]]
    order = np.argsort(begin, kind="stable")
    key, begin, end, call = (of[order] for of in (key, begin, end, call))
    return Blocked(key, begin, end, call, *_find_owners(endpoints, requests, subs, key, end, call))


def find_departures(
    endpoints: Endpoints, requests: RequestTable, subs: Subrequests, key: int
) -> tuple[I64, I64, I64]:
    """Return when a thread answered or asked, in order; of which request, and which call it is."""
    host = endpoints.host[requests.endpoint]
    answers = np.flatnonzero(thread_keys(host, requests.tid) == key)
    calls = np.flatnonzero(thread_keys(endpoints.host[subs.endpoint], subs.tid) == key)
    known = (subs.attribution[calls] != Certainty.DOUBTFUL) & (subs.request[calls] >= 0)
    # An answer's last part, too: what it is about may have been made after its head was sent.
    parts = (requests.answered_ns[answers], requests.end_ns[answers], subs.begin_ns[calls])
    time = np.concatenate([*parts, [_NEVER]])
    whose = np.where(known, subs.request[calls], NONE)
    whose = np.concatenate([answers, answers, whose, [NONE]])
    which = np.concatenate([np.full(2 * len(answers), NONE), calls, [NONE]])
    order = np.argsort(time, kind="stable")
    return time[order], whose[order], which[order]


def _find_owners(
    endpoints: Endpoints, requests: RequestTable, subs: Subrequests, key: I64, end: I64, call: I64
) -> tuple[I64, U8]:
    """Return for which requests loops were blocked, and how sure that is.

    What blocks a loop goes on when that is over: whose answer or call comes next, before anything
    else is received, it was.
    """
    owner, sure = np.full(len(key), NONE, np.int64), np.full(len(key), Certainty.DOUBTFUL, np.uint8)
    host = endpoints.host[requests.endpoint]
    readers, askers = (
        thread_keys(host, requests.reader_tid),
        thread_keys(endpoints.host[subs.endpoint], subs.tid),
    )
    for one in np.unique(key).tolist():
        mine = np.flatnonzero(key == one)
        time, whose, which = find_departures(endpoints, requests, subs, one)
        received = np.concatenate(
            [requests.received_ns[readers == one], subs.end_ns[askers == one], [_NEVER]]
        )
        received.sort()
        at = np.searchsorted(time, end[mine])
        soon = time[at] <= received[np.searchsorted(received, end[mine], side="right")]
        following = dict(zip(call[mine].tolist(), range(len(mine)), strict=True))
        found = np.where(soon, whose[at], NONE)
        for row in range(len(mine) - 1, -1, -1):  # who blocks it again goes on after that
            then = following.get(int(which[at[row]]), -1) if soon[row] else -1
            if which[at[row]] >= 0 and then > row:
                found[row] = found[then]
        owner[mine], sure[mine[found >= 0]] = found, Certainty.LIKELY
    known = np.flatnonzero(call >= 0)
    known = known[subs.attribution[call[known]] == Certainty.CERTAIN]
    owner[known], sure[known] = subs.request[call[known]], Certainty.CERTAIN
    inside = (owner >= 0) & (end <= requests.end_ns[owner])
    return np.where(inside, owner, NONE), np.where(inside, sure, np.uint8(Certainty.DOUBTFUL))


def find_arrivals(activity: Activity, endpoints: Endpoints, requests: RequestTable) -> I64:
    """Return what came for loops to serve: thread, when it woke it or was there, endpoint.

    It says nothing of any other request that the loop has in hand.
    """
    reader = thread_keys(endpoints.host[requests.endpoint], requests.reader_tid)
    keys, number = np.unique(reader, return_inverse=True)
    times = np.column_stack([requests.begin_ns, requests.received_ns, requests.end_ns])
    loop = find_loops(times, number.reshape(-1).astype(np.int32), len(keys))
    reads = np.full(len(endpoints) + 1, NONE, np.int64)
    reads[requests.endpoint] = np.where(loop[number.reshape(-1)], reader, NONE)
    came = np.flatnonzero(activity.act == Act.ARRIVAL)
    there = np.column_stack([reads[activity.endpoint[came]], came, came])
    # What came right before a thread woke another, woke that.
    rows, cause = find_causes(
        *(activity.act, activity.tid, activity.host, activity.endpoint, endpoints.serves),
        mask_acts(*_COMES),
    )
    woken = thread_keys(activity.host[rows], activity.value[rows])
    woken = np.where(np.isin(woken, keys[loop]), woken, NONE)
    every = np.concatenate([there, np.column_stack([woken, rows, cause])])
    every = every[every[:, 0] >= 0]
    key, at, of = every.T
    return np.column_stack([key, activity.time_ns[at], activity.endpoint[of]]).astype(np.int64)


def settle_blocked(subs: Subrequests, blocked: Blocked) -> Subrequests:
    """Return sub-requests of which those that blocked their loop are of who went on after them."""
    rows = np.flatnonzero((blocked.call >= 0) & (blocked.attribution == Certainty.LIKELY))
    # The opening of a connection right before its first call is the same request's.
    each, first = np.unique(subs.endpoint, return_index=True)
    opening = first[np.searchsorted(each, subs.endpoint[blocked.call[rows]])]
    opens = (subs.connects[opening] == 1) & (subs.attribution[opening] != Certainty.CERTAIN)
    order = np.argsort(subs.endpoint, kind="stable")
    after = np.full(len(subs), NONE, np.int64)
    after[order[:-1]] = order[1:]
    opens &= after[opening] == blocked.call[rows]
    at = np.concatenate([opening[opens], blocked.call[rows]])
    of = np.concatenate([blocked.owner[rows[opens]], blocked.owner[rows]])
    columns = {name: getattr(subs, name).copy() for name in _SETTLED}
    columns["request"][at], columns["how"][at] = of, Rule.BLOCKED
    columns["attribution"][at] = Certainty.LIKELY
    columns["probability"][at] = PROBABLE[Certainty.LIKELY]
    return dataclasses.replace(subs, **columns)


def _find_sleeps(activity: Activity, loops: I64, parts: Parts | None) -> I64:
    """Return thread, begin and end of the sleeps of loops that a wake ended."""
    acts = np.flatnonzero(np.isin(activity.act, (Act.SLEEP, Act.WAKE, Act.RUN)))
    woken = activity.act[acts] == Act.WAKE
    who = np.where(woken, activity.value[acts], activity.tid[acts])
    keys = thread_keys(activity.host[acts], who)
    mine = np.isin(keys, loops) & (who >= 0)
    acts, keys = acts[mine], keys[mine]
    order = np.argsort(keys, kind="stable")
    acts, keys = acts[order], keys[order]
    sleeps = np.flatnonzero(activity.act[acts[:-1]] == Act.SLEEP) if len(acts) else acts
    sleeps = sleeps[
        (keys[sleeps + 1] == keys[sleeps]) & (activity.act[acts[sleeps + 1]] == Act.WAKE)
    ]
    begin, end = activity.time_ns[acts[sleeps]], activity.time_ns[acts[sleeps + 1]]
    found = np.column_stack([keys[sleeps], begin, end])
    if parts is not None:  # of a gap it is not known what came in it
        ends = [parts.stretches.find(found[:, 0] >> 32, found[:, at]) for at in (1, 2)]
        found = found[ends[0] == ends[1]]
    return found


def find_waiting(
    endpoints: Endpoints, requests: RequestTable, subs: Subrequests, reader: I64
) -> I64:
    """Return thread, begin and end of when messages were there that it had not taken yet."""
    sure = requests.boundary == Certainty.CERTAIN
    # What comes before a connection is accepted waits for whoever accepts it.
    there = np.maximum(requests.begin_ns, endpoints.opened_ns[requests.endpoint])
    asked = np.flatnonzero((subs.child >= 0) & (subs.connects == 0))
    answers = np.column_stack(
        [
            thread_keys(endpoints.host[subs.endpoint[asked]], subs.tid[asked]),
            requests.end_ns[subs.child[asked]],
            subs.end_ns[asked],
        ]
    )
    same = endpoints.host[requests.endpoint[subs.child[asked]]] == (answers[:, 0] >> 32)
    found = np.column_stack([reader, there, requests.received_ns])[sure]
    return np.concatenate([found, answers[same]])


def _outlasts(sleeps: I64, waiting: I64) -> Bool:
    """Return which sleeps go on for a while though a message is there that is taken later."""
    result = np.zeros(len(sleeps), np.bool_)
    for key in np.unique(sleeps[:, 0]).tolist():
        mine, of = np.flatnonzero(sleeps[:, 0] == key), waiting[waiting[:, 0] == key]
        of = of[np.argsort(of[:, 1], kind="stable")]
        latest = np.maximum.accumulate(of[:, 2]) if len(of) else of[:, 2]
        last = np.searchsorted(of[:, 1], sleeps[mine, 2] - BLOCKING.asleep, side="right") - 1
        long = sleeps[mine, 2] - sleeps[mine, 1] >= BLOCKING.asleep
        there = (last >= 0) & long
        there[there] = latest[last[there]] >= sleeps[mine[there], 2]
        result[mine] = there
    return result


def _find_calls(activity: Activity, sleeps: I64, subs: Subrequests, asker: I64) -> tuple[I64, Bool]:
    """Return the sub-request that each sleep was for, -1 for none, and calls without others.

    A thread that sleeps in a call does nothing else between its send and its answer, which ends
    the sleep.
    """
    call, alone = np.full(len(sleeps), NONE, np.int64), np.zeros(len(subs), np.bool_)
    moves, low, high = _list_by_thread(activity, np.isin(activity.act, _MOVES), sleeps[:, 0])
    for key, one, end in zip(np.unique(sleeps[:, 0]).tolist(), low, high, strict=True):
        time, endpoint = (
            of[moves[one:end]] for of in (activity.time_ns, activity.endpoint.astype(np.int64))
        )
        asked = np.flatnonzero((asker == key) & (subs.connects == 0))
        asked = asked[np.argsort(subs.begin_ns[asked], kind="stable")]
        if not len(asked) or not len(time):
            continue
        first = np.minimum(np.searchsorted(time, subs.begin_ns[asked]), len(time) - 1)
        last = np.searchsorted(time, subs.end_ns[asked], side="right") - 1
        changes = np.cumsum(np.diff(endpoint, prepend=endpoint[0]) != 0)
        alone[asked] = changes[np.maximum(last, 0)] == changes[first]
        alone[asked] &= endpoint[first] == subs.endpoint[asked]
        mine = np.flatnonzero(sleeps[:, 0] == key)
        at = np.searchsorted(subs.begin_ns[asked], sleeps[mine, 1], side="right") - 1
        of = asked[np.maximum(at, 0)]
        inside = (at >= 0) & alone[of] & (subs.end_ns[of] >= sleeps[mine, 2])
        call[mine[inside]] = of[inside]
    known = np.flatnonzero(call >= 0)
    of = call[known]
    ended = _ends_with_answer(
        activity, subs.endpoint[of], np.column_stack([subs.begin_ns[of], sleeps[known, 2]])
    )
    call[known[~ended]] = NONE
    return call, alone


def _ends_with_answer(activity: Activity, endpoint: I32, times: I64) -> Bool:
    """Return which sleeps end as something arrives at an endpoint: from a call's begin to that.

    Where nothing that arrives is recorded, nothing contradicts.
    """
    rows = np.flatnonzero((activity.act == Act.ARRIVAL) & np.isin(activity.endpoint, endpoint))
    rows = rows[np.lexsort((activity.time_ns[rows], activity.endpoint[rows]))]
    result = np.ones(len(times), np.bool_)
    of, time = activity.endpoint[rows], activity.time_ns[rows]
    for at in np.unique(endpoint).tolist():
        arrivals = time[slice(*np.searchsorted(of, [at, at + 1]))]
        mine = np.flatnonzero(endpoint == at)
        last = np.searchsorted(arrivals, times[mine, 1], side="right") - 1
        came = np.append(arrivals, 0)[last]
        some = (last >= 0) & (came >= times[mine, 0])
        result[mine] = ~some | (came >= times[mine, 1] - BLOCKING.asleep)
    return result


def _list_by_thread(
    activity: Activity, chosen: Bool, keys: I64
) -> tuple[I64, list[int], list[int]]:
    """Return rows of some threads by thread, and where those of each begin and end."""
    rows = np.flatnonzero(chosen & (activity.tid >= 0) & (activity.endpoint >= 0))
    of, each = thread_keys(activity.host[rows], activity.tid[rows]), np.unique(keys)
    mine = np.isin(of, each)
    rows, of = rows[mine], of[mine]
    order = np.argsort(of, kind="stable")
    bounds = (np.searchsorted(of[order], each, side=side).tolist() for side in ("left", "right"))
    low, high = bounds
    return rows[order], low, high


def _find_habits(call: I64, blocked: Bool, alone: Bool, both: I64, asked: Bool) -> Bool:
    """Return which sleeps are in calls to those of whom nearly all a loop's calls block it.

    ``both``: of each sub-request who asked whom.
    """
    known = np.flatnonzero(call >= 0)
    pair = find_distinct(both)[1]
    many = np.bincount(pair[asked], minlength=int(pair.max(initial=0)) + 1)
    mixed = np.bincount(pair[asked & ~alone], minlength=len(many))
    seen = np.bincount(pair[np.unique(call[known[blocked[known]]])], minlength=len(many))
    habit = (seen >= BLOCKING.calls) & (mixed <= BLOCKING.odd * many)
    result = np.zeros(len(call), np.bool_)
    result[known] = habit[pair[call[known]]]
    return result


def cut_blocked(
    activity: Activity,
    endpoints: Endpoints,
    requests: RequestTable,
    subs: Subrequests,
    slices: Slices,
    blocked: Blocked,
) -> Slices:
    """Return slices in which a loop that is blocked works for whom that is for.

    A call is cut out of what there is; another sleep is added where no slice is.
    """
    if not len(blocked.key):
        return slices
    host = endpoints.host[requests.endpoint]
    reader = thread_keys(host, requests.reader_tid)
    keys = thread_keys(slices.host, slices.tid)
    parts = [slices.take(~np.isin(keys, blocked.key))]
    for key in np.unique(blocked.key).tolist():
        own = slices.take(keys == key)
        own = own.take(np.argsort(own.begin_ns, kind="stable"))
        mine = np.flatnonzero(blocked.key == key)
        begin, end, call = (of[mine] for of in (blocked.begin, blocked.end, blocked.call))
        called = call >= 0
        row, *left = _subtract((own.begin_ns, own.end_ns), (begin[called], end[called]))
        of_hole, *holes = _subtract((begin[~called], end[~called]), (own.begin_ns, own.end_ns))
        owner, how, sure = (
            blocked.owner[mine],
            np.full(len(mine), Rule.BLOCKED),
            blocked.attribution[mine],
        )
        how[called] = subs.how[call[called]]
        begin, end, owner, how, sure = (
            np.append(of[called], of[~called][of_hole]) for of in (begin, end, owner, how, sure)
        )
        begin[called.sum() :], end[called.sum() :] = holes
        some = owner >= 0
        begin[some] = np.maximum(begin[some], requests.begin_ns[owner[some]])
        end[some] = np.minimum(end[some], requests.end_ns[owner[some]])
        received, ended = (
            np.sort(of[reader == key]) for of in (requests.received_ns, requests.end_ns)
        )
        table: dict[str, Any] = {
            "begin_ns": np.append(left[0], begin),
            "end_ns": np.append(left[1], end),
            "request": np.append(own.request[row], owner).astype(np.int32),
            "unanswered": np.append(
                own.unanswered[row],
                np.searchsorted(received, begin, "right") - np.searchsorted(ended, begin, "left"),
            ).astype(np.int32),
            "how": np.append(own.how[row], np.where(some, how, Rule.NONE)).astype(np.uint8),
            "attribution": np.append(
                own.attribution[row], np.where(some, sure, Certainty.DOUBTFUL)
            ).astype(np.uint8),
        }
        run, cpus = spend_thread(activity, key, table["begin_ns"], table["end_ns"])
        many = len(run)
        made = Slices(
            tid=np.full(many, key & 0xFFFFFFFF, np.int32),
            host=np.full(many, key >> 32, np.int32),
            run_ns=run,
            idle_ns=table["end_ns"] - table["begin_ns"] - run,
            cpus=cpus,
            **table,
        )
        parts.append(made.take(made.end_ns > made.begin_ns))
    joined = Slices(**Slices.join_columns(parts))
    return joined.take(np.argsort(joined.begin_ns, kind="stable"))


def own_stretches(
    endpoints: Endpoints, requests: RequestTable, subs: Subrequests, slices: Slices
) -> Slices:
    """Return slices in which a stretch that a loop ran for long is of whom it acts for then.

    Of what is short, several may have had a part.
    """
    long = (slices.request < 0) & (slices.run_ns >= BLOCKING.long)
    keys = thread_keys(slices.host, slices.tid)
    owner = np.full(len(slices), NONE, np.int64)
    for key in np.unique(keys[long]).tolist():
        mine = np.flatnonzero((slices.request < 0) & (keys == key))
        usual = float(np.median(slices.run_ns[mine]))
        mine = mine[slices.run_ns[mine] >= max(BLOCKING.long, BLOCKING.longer * usual)]
        time, whose, _ = find_departures(endpoints, requests, subs, key)
        at = np.searchsorted(time, slices.end_ns[mine])
        owner[mine] = np.where(time[at] == slices.end_ns[mine], whose[at], NONE)
    some = (owner >= 0) & (requests.received_ns[owner] <= slices.begin_ns)
    return dataclasses.replace(
        slices,
        request=np.where(some, owner, slices.request).astype(np.int32),
        how=np.where(some, Rule.BLOCKED, slices.how).astype(np.uint8),
        attribution=np.where(some, Certainty.LIKELY, slices.attribution).astype(np.uint8),
    )


def _subtract(some: tuple[I64, I64], others: tuple[I64, I64]) -> tuple[I64, I64, I64]:
    """Return what of some stretches is in none of others: which of them, begin and end.

    Both are in order of time, and neither overlap among themselves.
    """
    (begin, end), (low, high) = some, others
    first = np.searchsorted(high, begin, side="right")
    cuts = np.maximum(np.searchsorted(low, end) - first, 0)
    row = np.repeat(np.arange(len(begin)), cuts + 1)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(cuts + 1) - cuts - 1, cuts + 1)
    at = first[row] + nth
    low, high = np.append(low, 0), np.append(high, 0)
    since = np.where(nth > 0, high[np.minimum(at - 1, len(high) - 1)], begin[row])
    until = np.where(nth < cuts[row], low[np.minimum(at, len(low) - 1)], end[row])
    kept = until > since
    return row[kept], since[kept], until[kept]
