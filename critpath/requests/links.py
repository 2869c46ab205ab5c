"""How requests hang together: over tiers, over threads; and what of their time is their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from critpath.model import F64, I32, I64, U8, Bool, Workers
from critpath.model.requests import (
    ASKS,
    LINK_KINDS,
    NONE,
    Act,
    Activity,
    Certainty,
    Endpoints,
    Links,
    RequestTable,
    Slices,
    Subrequests,
)
from critpath.model.vectors import find_distinct
from critpath.records import dataclass
from critpath.requests.assign import assign
from critpath.requests.blocking import (
    Blocked,
    cut_blocked,
    find_blocked,
    own_stretches,
    settle_blocked,
)
from critpath.requests.crossings import find_previous
from critpath.requests.endpoints import NAMELESS
from critpath.requests.exact import settle_traced
from critpath.requests.left_out import Hidden
from critpath.requests.owners import (
    Owned,
    cut_subrequests,
    find_owners,
    process_keys,
    thread_keys,
)
from critpath.requests.stretches import Parts
from critpath.requests.tasks import follow_tasks
from critpath.requests.transitions import Way
from critpath.schema.parameters.requests import OWNERS, TOKENS


@dataclass(frozen=True, eq=False)
class Attributed:
    """Requests with what was done for them.

    Attributes
    ----------
    requests : RequestTable
        With ``label``, ``parent``, ``true_ns``, ``asked_ns``, ``queued_ns`` and ``threads``.
    subrequests : Subrequests
    slices : Slices
    unattributed : int64 [k]
        Sub-requests of processes that serve, for no request: rows.
    exchanged : int
        How often an answer showed that two requests of a loop had been confused.
    beside : bool [requests]
        Which may have been taken for others, of which a gap hides what they had asked.
    blocked : Blocked
        When loops slept though requests were there.
    """

    requests: RequestTable
    subrequests: Subrequests
    slices: Slices
    unattributed: I64
    exchanged: int
    beside: Bool
    blocked: Blocked


def attribute(
    activity: Activity,
    workers: Workers,
    endpoints: Endpoints,
    requests: RequestTable,
    method: str = "queues",
    ways: Mapping[Way, int] | None = None,
    parts: Parts | None = None,
) -> Attributed:
    """Find out who worked for whom, and what of every request's time was its own.

    Parameters
    ----------
    activity : Activity
    workers : Workers
    endpoints : Endpoints
    requests : RequestTable
        Turns of endpoints that serve.
    method : str
        What decides where several requests are open: `critpath.executions.specification.ASSIGN`.
    ways : mapping, optional
        What requests asked in another recording, and how often.
    parts : Parts, optional
        Of a recording with gaps: what happened between them.
    """
    subrequests = cut_subrequests(activity, endpoints)
    fed = find_fed(workers, endpoints, requests, subrequests)
    acts, asked = activity, requests
    if (fed >= 0).any():
        acts, asked = feed_activity(activity, fed), feed_requests(requests, fed)
    if parts is None:
        owned = find_owners(acts, workers, endpoints, asked, subrequests)
        if (activity.act == Act.TASK).any():
            owned = follow_tasks(activity, workers, endpoints, requests, owned)
    else:
        if acts is not activity:
            own = feed_activity(parts.activity, fed[parts.of])
            parts = dataclasses.replace(parts, activity=own)
        owned = _find_parted_owners(parts, workers, asked)
    hidden = None if parts is None else Hidden(parts, workers, endpoints, asked)
    clear = None if hidden is None else hidden.find_clear(owned.subrequests)
    joined = join_tiers(activity, endpoints, requests, owned.subrequests)
    joined = settle_traced(workers, endpoints, asked, joined)
    owned = dataclasses.replace(owned, subrequests=joined)
    assigned = assign(method, acts, workers, endpoints, asked, owned, ways or {}, clear)
    subrequests = assigned if parts is None else assigned.take(~parts.ends_in_gap(assigned))
    blocked = find_blocked(activity, endpoints, requests, subrequests, parts)
    subrequests = settle_blocked(subrequests, blocked)
    sure = (subrequests.request >= 0) & (subrequests.attribution != Certainty.DOUBTFUL)
    candidates = np.where(sure, 1, subrequests.candidates).astype(np.int32)
    subrequests = dataclasses.replace(subrequests, candidates=candidates)
    slices = cut_blocked(activity, endpoints, requests, subrequests, owned.slices, blocked)
    slices = own_stretches(endpoints, requests, subrequests, slices)
    sent = find_sent(activity, endpoints, requests, subrequests)
    requests = complete_requests(endpoints, requests, subrequests, slices, sent)
    # Processes that serve nobody ask for themselves.
    alone = (subrequests.request < 0) & (subrequests.connects == 0)
    alone[subrequests.find_untold()] = False
    nobodys = np.flatnonzero(alone)
    answerers = thread_keys(endpoints.host[requests.endpoint], requests.tid)
    serving = process_keys(workers, np.unique(answerers))
    askers = thread_keys(endpoints.host[subrequests.endpoint[nobodys]], subrequests.tid[nobodys])
    unattributed = nobodys[np.isin(process_keys(workers, askers), serving)]
    beside = np.zeros(len(requests), np.bool_)
    if hidden is not None:
        beside = hidden.find_beside(requests, subrequests)
    return Attributed(requests, subrequests, slices, unattributed, owned.exchanged, beside, blocked)


def _find_parted_owners(parts: Parts, workers: Workers, requests: RequestTable) -> Owned:
    """Find owners in each stretch between gaps; return them as of the whole recording."""
    part = parts.find(requests.endpoint, requests.begin_ns)
    activity = parts.begin_with(requests)
    subrequests = cut_subrequests(activity, parts.endpoints, parts.stretches.end[parts.stretch])
    own = dataclasses.replace(requests, endpoint=part)
    threads = parts.part_workers(workers)
    owned = find_owners(activity, threads, parts.endpoints, own, subrequests, parts)
    of, slices = owned.subrequests, owned.slices
    return dataclasses.replace(
        owned,
        subrequests=dataclasses.replace(of, endpoint=parts.of[of.endpoint].astype(np.int32)),
        slices=dataclasses.replace(slices, host=parts.stretches.host[slices.host].astype(np.int32)),
        followed=np.unique(parts.stretches.own_keys(owned.followed)),
    )


def find_fed(
    workers: Workers, endpoints: Endpoints, requests: RequestTable, subrequests: Subrequests
) -> I32:
    """Return of each endpoint that serves the loop that others read its requests for; -1 for none.

    As grpcio's asyncio does: pollers receive, the loop asks and answers.  It shows by answers that
    the one thread that asks gives while what it asked for others is under way.
    """
    host = endpoints.host[requests.endpoint]
    process = process_keys(workers, thread_keys(host, requests.reader_tid))
    rows = np.flatnonzero(subrequests.connects == 0)
    asker = thread_keys(endpoints.host[subrequests.endpoint[rows]], subrequests.tid[rows])
    of = process_keys(workers, asker)
    fed = np.full(len(endpoints), NONE, np.int32)
    for each in np.intersect1d(process, of).tolist():
        mine, asked = process == each, np.flatnonzero(of == each)
        threads, counts = np.unique(asker[asked], return_counts=True)
        loop, most = int(threads[counts.argmax()]), int(counts.max())
        if most < (1 - OWNERS.odd) * len(asked) or most < OWNERS.few:
            continue
        tid = loop & 0xFFFFFFFF
        if (requests.reader_tid[mine] == tid).mean() > OWNERS.odd:
            continue
        answered = np.sort(requests.end_ns[mine & (requests.tid == tid)])
        subs = rows[asked[asker[asked] == loop]]
        since = np.searchsorted(answered, subrequests.begin_ns[subs], side="right")
        until = np.searchsorted(answered, subrequests.end_ns[subs], side="left")
        if np.count_nonzero(until > since) > OWNERS.odd * len(subs):
            fed[np.unique(requests.endpoint[mine])] = tid
    return fed


def feed_requests(requests: RequestTable, fed: I32) -> RequestTable:
    """Return requests as if the loops had received them themselves."""
    of = fed[requests.endpoint]
    return dataclasses.replace(
        requests,
        reader_tid=np.where(of >= 0, of, requests.reader_tid).astype(np.int32),
        tid=np.where(of >= 0, of, requests.tid).astype(np.int32),
    )


def feed_activity(activity: Activity, fed: I32) -> Activity:
    """Return what was done as if the loops had received and sent themselves."""
    moves = np.isin(activity.act, (Act.RECEIVE, Act.SEND)) & (activity.endpoint >= 0)
    of = np.where(moves, fed[np.maximum(activity.endpoint, 0)], NONE)
    return dataclasses.replace(activity, tid=np.where(of >= 0, of, activity.tid).astype(np.int32))


def join_tiers(
    activity: Activity, endpoints: Endpoints, requests: RequestTable, subrequests: Subrequests
) -> Subrequests:
    """Find the request that each sub-request is where it arrives: two ends of one connection."""
    child = np.full(len(subrequests), NONE, np.int32)
    peer = endpoints.peer[subrequests.endpoint]
    order = np.lexsort((requests.end_ns, requests.endpoint))
    bounds = np.searchsorted(requests.endpoint[order], np.arange(len(endpoints) + 1))
    joined = np.flatnonzero((peer >= 0) & (subrequests.connects == 0))
    joined = joined[np.argsort(peer[joined], kind="stable")]
    far = endpoints.host[subrequests.endpoint] != endpoints.host[peer]
    # A send is recorded when its call ends: by then another machine may have received it.
    if far[joined].any():
        since = find_previous(activity, subrequests.endpoint, subrequests.begin_ns)
    for group in np.split(joined, np.flatnonzero(np.diff(peer[joined])) + 1):
        if not len(group):
            continue
        there = order[bounds[peer[group[0]]] : bounds[peer[group[0]] + 1]]
        # Turns of one endpoint come one after another: the first to end after it was sent.
        if far[group[0]]:
            at = np.searchsorted(requests.begin_ns[there], since[group], side="left")
        else:
            at = np.searchsorted(requests.end_ns[there], subrequests.begin_ns[group], side="right")
        some = at < len(there)
        rows = there[at[some]]
        met = requests.begin_ns[rows] < subrequests.end_ns[group[some]]
        child[group[some][met]] = rows[met]
    return dataclasses.replace(subrequests, child=child)


def find_sent(
    activity: Activity, endpoints: Endpoints, requests: RequestTable, subrequests: Subrequests
) -> I64:
    """Return when each sub-request was under way: where that is known, when it arrived.

    A send is recorded when its call ends; on one host it has arrived, and woken who reads, by then.
    """
    result = subrequests.begin_ns.copy()
    rows = np.flatnonzero(subrequests.child >= 0)
    child = subrequests.child[rows]
    host = endpoints.host
    here = host[subrequests.endpoint[rows]] == host[requests.endpoint[child]]
    rows, child = rows[here], child[here]
    arrived = requests.begin_ns[child]
    before = find_previous(activity, subrequests.endpoint[rows], result[rows])
    some = (arrived > before) & (arrived < result[rows])
    result[rows[some]] = arrived[some]
    return result


def complete_requests(
    endpoints: Endpoints,
    requests: RequestTable,
    subrequests: Subrequests,
    slices: Slices,
    sent: I64,
) -> RequestTable:
    """Fill in whose each request is, what it asked since then, and what of its time is its own."""
    parent = np.full(len(requests), NONE, np.int32)
    known = np.flatnonzero((subrequests.request >= 0) & (subrequests.child >= 0))
    parent[subrequests.child[known]] = subrequests.request[known]
    asked = add_asked(requests, dataclasses.replace(subrequests, begin_ns=sent))
    label, strings = name_labels(endpoints, requests, subrequests)
    of = slices.request >= 0
    _, worker = np.unique(thread_keys(slices.host[of], slices.tid[of]), return_inverse=True)
    many = int(worker.max(initial=0)) + 1
    pairs = np.unique(slices.request[of].astype(np.int64) * many + worker.reshape(-1))
    threads = np.maximum(np.bincount(pairs // many, minlength=len(requests)), 1)
    return dataclasses.replace(
        requests,
        parent=parent,
        asked_ns=asked,
        true_ns=requests.end_ns - requests.begin_ns - asked,
        queued_ns=requests.received_ns - requests.begin_ns,
        threads=threads.astype(np.int32),
        label=label,
        strings=strings,
    )


def find_missing(
    workers: Workers, endpoints: Endpoints, requests: RequestTable, subrequests: Subrequests
) -> F64:
    """Return how many sub-requests that are said to be others', or nobody's, may be each request's.

    Of one that is doubtful what is left of its probability is shared by the others that are open.
    """
    missing = np.zeros(len(requests))
    several = subrequests.candidates > 1
    rows = np.flatnonzero(several & (subrequests.connects == 0))
    if not len(rows):
        return missing
    asker = thread_keys(endpoints.host[subrequests.endpoint[rows]], subrequests.tid[rows])
    of = process_keys(workers, asker)
    reader = thread_keys(endpoints.host[requests.endpoint], requests.reader_tid)
    mine = process_keys(workers, reader)
    owner = subrequests.request[rows]
    others = subrequests.candidates[rows] - (owner >= 0)
    share = np.round((1 - subrequests.probability[rows]) / others, 6)
    for process in np.unique(of).tolist():
        at = np.flatnonzero(of == process)
        at = at[np.argsort(subrequests.begin_ns[rows[at]], kind="stable")]
        begin, sums = subrequests.begin_ns[rows[at]], np.append(0.0, np.cumsum(share[at]))
        which = np.flatnonzero(mine == process)
        first = np.searchsorted(begin, requests.received_ns[which], side="left")
        last = np.searchsorted(begin, requests.answered_ns[which], side="right")
        missing[which] = sums[np.maximum(last, first)] - sums[first]
    own = owner >= 0
    np.subtract.at(missing, owner[own], share[own])
    return np.asarray(np.round(np.maximum(missing, 0.0), 6), np.float64)


def judge_attribution(requests: int, subrequests: Subrequests, missing: F64 | None = None) -> U8:
    """Return how sure it is what each request asked: as its least sure sub-request.

    It is in doubt, too, where some that it may have asked are said to be others', or nobody's.
    """
    result = np.full(requests, Certainty.CERTAIN, np.uint8)
    known = subrequests.request >= 0
    np.maximum.at(result, subrequests.request[known], subrequests.attribution[known])
    if missing is not None:
        result[missing > TOKENS.missing] = Certainty.DOUBTFUL
    return result


def find_confidence(requests: int, subrequests: Subrequests, missing: F64 | None = None) -> F64:
    """Return how probable it is that all that each request led to is its own."""
    logs = np.zeros(requests) if missing is None else -missing
    mine = np.flatnonzero((subrequests.request >= 0) & (subrequests.connects == 0))
    # What was asked last comes first: what a child asked is known before the child counts.
    mine = mine[np.argsort(-subrequests.begin_ns[mine], kind="stable")]
    own = np.log(np.maximum(subrequests.probability[mine], 1e-12))
    columns = (own, subrequests.request[mine], subrequests.child[mine])
    for log, of, child in zip(*(column.tolist() for column in columns), strict=True):
        logs[of] += log + (logs[child] if child >= 0 else 0.0)
    result: F64 = np.exp(logs)
    return result


def add_asked(requests: RequestTable, subrequests: Subrequests) -> I64:
    """Return for how long some sub-request of each request was under way (their union)."""
    rows = np.flatnonzero((subrequests.request >= 0) & (subrequests.connects == 0))
    rows = rows[np.lexsort((subrequests.begin_ns[rows], subrequests.request[rows]))]
    of = subrequests.request[rows]
    # What is asked after the end, as by who answers first, is none of it.
    begin = np.clip(subrequests.begin_ns[rows], requests.begin_ns[of], requests.end_ns[of])
    end = np.maximum(np.minimum(subrequests.end_ns[rows], requests.end_ns[of]), begin)
    # Each request's times after those of the one before, so that one running maximum does.
    group = np.cumsum(np.diff(of, prepend=of[:1]) != 0)
    span = int((requests.end_ns - requests.begin_ns).max(initial=0)) + 1
    shift = group * span - requests.begin_ns[of]
    begin, end = begin + shift, end + shift
    before = np.concatenate([[0], np.maximum.accumulate(end)[:-1]]) if len(end) else end
    more = np.maximum(end - np.maximum(begin, before), 0)
    asked = np.zeros(len(requests), np.int64)
    np.add.at(asked, of, more)
    return asked


def find_askers(endpoints: Endpoints, requests: RequestTable, subrequests: Subrequests) -> I64:
    """Return which service asks each sub-request: its request's, or that of all it may be of.

    -1 where it is no request's.
    """
    if not len(requests):  # between gaps there may be none, and some that they asked
        return np.full(len(subrequests), NONE, np.int64)
    found = np.where(subrequests.request >= 0, requests.service[subrequests.request], NONE)
    rows = subrequests.find_untold()
    if len(rows):
        reader = thread_keys(endpoints.host[requests.endpoint], requests.reader_tid)
        keys, first = np.unique(reader, return_index=True)
        asker = thread_keys(endpoints.host[subrequests.endpoint[rows]], subrequests.tid[rows])
        at = np.minimum(np.searchsorted(keys, asker), len(keys) - 1)
        found[rows] = np.where(keys[at] == asker, requests.service[first[at]], NONE)
    return found.astype(np.int64)


def name_labels(
    endpoints: Endpoints, requests: RequestTable, subrequests: Subrequests
) -> tuple[I32, tuple[str, ...]]:
    """Return each request's label, and the strings of all.

    A label is the service, what the message is called where that is known, and who is asked.
    """
    asker = find_askers(endpoints, requests, subrequests)
    rows = np.flatnonzero((asker >= 0) & (subrequests.connects == 0))
    told = subrequests.request[rows] >= 0
    child, at = subrequests.child[rows], subrequests.endpoint[rows]
    service = np.where(child >= 0, requests.service[child], 0)
    # One that was not seen to arrive is of the service that answers at that port of this machine.
    port, here = endpoints.remote_port[at], endpoints.peer[at] >= 0
    answers: dict[int, set[int]] = {}
    for one, at_port in find_distinct(np.column_stack([service, port])[child >= 0])[0].tolist():
        answers.setdefault(at_port, set()).add(one)
    for at_port, services in answers.items():
        if len(services) == 1:
            service[(child < 0) & here & (port == at_port)] = next(iter(services))
    # What is on another machine is known by its port, or by the path of its socket.
    far = np.where(endpoints.path[at] > 0, -endpoints.path[at], endpoints.remote_port[at])
    keys = (service.astype(np.int64) << 32) + (far.astype(np.int64) + (1 << 31))
    keys, number = np.unique(keys, return_inverse=True)
    targets = zip((keys >> 32).tolist(), ((keys & 0xFFFFFFFF) - (1 << 31)).tolist(), strict=True)
    pairs = np.unique(
        subrequests.request[rows[told]].astype(np.int64) * max(len(keys), 1)
        + number.reshape(-1)[told]
    )
    # Without a port either: a unix socket whose path no event told, the kernel, or unknown.
    families = set(endpoints.family[at[(far == 0) & (service == 0)]].tolist())
    nameless = NAMELESS.get(families.pop(), "?") if len(families) == 1 else "?"
    names = [
        requests.strings[s]
        if s > 0
        else (endpoints.strings[-f] if f < 0 else f":{f}" if f else nameless)
        for s, f in targets
    ]
    asks: dict[int, tuple[int, ...]] = {}
    columns = (pairs // max(len(keys), 1)).tolist(), (pairs % max(len(keys), 1)).tolist()
    for request, target in zip(*columns, strict=True):
        asks[request] = (*asks.get(request, ()), target)
    # Where it is in doubt who asked, all that a service asks is in each of its labels.
    service_of = asker[rows]
    doubt = ~told | (subrequests.attribution[rows] == Certainty.DOUBTFUL)
    for each in np.unique(service_of[doubt]).tolist():
        mine = service_of == each
        if doubt[mine].sum() > TOKENS.doubted * mine.sum():
            every = tuple(np.unique(number.reshape(-1)[mine]).tolist())
            asks.update(dict.fromkeys(np.flatnonzero(requests.service == each).tolist(), every))
    return _write_labels(requests, asks, names)


def _write_labels(
    requests: RequestTable, asks: Mapping[int, tuple[int, ...]], names: Sequence[str]
) -> tuple[I32, tuple[str, ...]]:
    """Return labels, and the strings with them, from whom each request asks."""
    codes = {text: code for code, text in enumerate(requests.strings)}
    label = requests.service.copy()
    known: dict[tuple[int, int, tuple[int, ...]], int] = {}
    for request in {*asks, *np.flatnonzero(requests.message > 0).tolist()}:
        targets = asks.get(request, ())
        key = int(requests.service[request]), int(requests.message[request]), targets
        if key not in known:
            text = requests.strings[key[0]]
            if key[1] > 0:  # not known: 0 or less
                text += f" {requests.strings[key[1]]}"
            if targets:
                text += ASKS + ", ".join(sorted({names[t] for t in targets}))
            known[key] = codes.setdefault(text, len(codes))
        label[request] = known[key]
    return label, tuple(codes)


def find_links(
    activity: Activity,
    endpoints: Endpoints,
    requests: RequestTable,
    subrequests: Subrequests,
    slices: Slices,
) -> Links:
    """Find what leads from one slice to another: messages between tiers, wakes of helpers."""
    threads = thread_keys(slices.host, slices.tid)
    keys, number = np.unique(threads, return_inverse=True)
    order = np.lexsort((slices.begin_ns, number))
    bounds = np.searchsorted(number[order], np.arange(len(keys) + 1))

    def slice_at(thread: I64, time: I64, side: Literal["left", "right"]) -> I64:
        """Return the slice that a thread is in, or begins next; ``right``: not what ends then."""
        found = np.full(len(time), NONE, np.int64)
        place = np.searchsorted(keys, thread)
        for which in np.unique(place[place < len(keys)]).tolist():
            rows = np.flatnonzero((place == which) & (thread == keys[which]))
            mine = order[bounds[which] : bounds[which + 1]]
            at = np.searchsorted(slices.end_ns[mine], time[rows], side=side)
            some = at < len(mine)
            found[rows[some]] = mine[at[some]]
        return found

    asked = np.flatnonzero((subrequests.child >= 0) & (subrequests.request >= 0))
    child = subrequests.child[asked]
    asker = thread_keys(endpoints.host[subrequests.endpoint[asked]], subrequests.tid[asked])
    there = endpoints.host[requests.endpoint[child]]
    reader = thread_keys(there, requests.reader_tid[child])
    answerer = thread_keys(there, requests.tid[child])
    wakes = np.flatnonzero((activity.act == Act.WAKE) & (activity.tid >= 0))
    waker = thread_keys(activity.host[wakes], activity.tid[wakes])
    woken = thread_keys(activity.host[wakes], activity.value[wakes])
    time = activity.time_ns[wakes]
    parts = (
        (asker, subrequests.begin_ns[asked], reader, requests.received_ns[child], "message"),
        (answerer, requests.end_ns[child], asker, subrequests.end_ns[asked], "message"),
        (waker, time, woken, time, "wake"),
    )
    columns = []
    for from_thread, sent, to_thread, received, kind in parts:
        one = slice_at(from_thread, sent, "left")
        other = slice_at(to_thread, received, "right")
        keep = (one >= 0) & (other >= 0) & (from_thread != to_thread)
        keep[keep] = slices.begin_ns[one[keep]] <= sent[keep]
        if kind == "wake":  # only within a request does a wake say who works on
            of = slices.request[one[keep]]
            keep[keep] = (of >= 0) & (of == slices.request[other[keep]])
        code = np.full(int(keep.sum()), LINK_KINDS.index(kind))
        columns.append((one[keep], other[keep], sent[keep], received[keep], code))
    one, other, sent, received, code = (np.concatenate(c) for c in zip(*columns, strict=True))
    by = np.argsort(sent, kind="stable")
    return Links(
        from_slice=one[by].astype(np.int32),
        to_slice=other[by].astype(np.int32),
        sent_ns=sent[by],
        received_ns=received[by],
        kind=code[by].astype(np.uint8),
    )
