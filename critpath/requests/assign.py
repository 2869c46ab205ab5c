"""Who asked, where several requests are open and no certain rule tells: tokens, and assignment.

Every request is a token.  A thread's tokens wait in the order in which they became ready: received,
a result there, answered though something is still asked, or moved to a thread that was made for
them.  Who asks is decided event by event, and never again within a pass: of those that may ask this
(`transitions`), the one for which it is most probable, less what each place in the queue takes;
where it makes requests more alike, by delays rather than places.  Rules: docs/tokens.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import permutations
from typing import Final

import numpy as np

from critpath.model import F64, I32, I64, U8, Bool, Workers
from critpath.model.requests import (
    NONE,
    Act,
    Activity,
    Certainty,
    Endpoints,
    RequestTable,
    Rule,
    Subrequests,
)
from critpath.model.vectors import find_distinct
from critpath.records import dataclass
from critpath.requests._tokens import Tokens
from critpath.requests.exact import Paired, Passing, pair_calls
from critpath.requests.loops import draw_owners, read_loop
from critpath.requests.owners import Owned, process_keys, thread_keys
from critpath.requests.pools import judge_probability
from critpath.requests.statements import read_holds
from critpath.requests.transitions import (
    ANSWER,
    END,
    History,
    Transitions,
    Way,
    find_kinds,
    find_names,
    name_kinds,
    name_roots,
    translate,
)
from critpath.schema.parameters.requests import CHAINS, OWNERS, TOKENS, TRANSITIONS
from critpath.schema.parameters.shared import NORMAL

_ELSEWHERE: Final = -2  # technical: whose something is: a request of another process
# technical: of what is asked: opens a connection; the rules are sure whose it is
_OPENS, _SURE = 1, 2


class What:
    """What happens to a process's tokens; those of one moment in this order."""

    RECEIVE, RESULT, MADE, ASK, ANSWERED = range(5)


@dataclass(frozen=True, eq=False)
class Process:
    """What happens to a process's tokens, in order, and what it is asked and asks.

    Attributes
    ----------
    time : int64 [n]
    what : uint8 [n]
        `What`.
    thread, row : int32 [n]
        Threads, and rows of the other columns, count from 0; of ``MADE`` the thread is the row.
    root : int32 [requests]
        The kind that each begins with.
    asks : int32 [asks, 4]
        Kind, endpoint, request by the rules (`NONE`, or `_ELSEWHERE` for another process's), and
        `_OPENS` and `_SURE` as bits.
    requests, asked : int64
        Which rows of the recording's tables these are.
    says : uint8 [asks]
        What each says of its connection: `Holds`; empty where none has a name.
    """

    time: I64
    what: U8
    thread: I32
    row: I32
    root: I32
    asks: I32
    requests: I64
    asked: I64
    says: U8 = field(default_factory=lambda: np.zeros(0, np.uint8))

    def select(self, what: int) -> I64:
        """Return which events are so; of what is asked without those that open a connection."""
        found = self.what == what
        if what == What.ASK:
            found[found] = (self.asks[self.row[found], 3] & _OPENS) == 0
        return np.flatnonzero(found)


@dataclass(frozen=True, eq=False)
class _Run:
    """One pass: who asked what, and what all have asked at the end.

    Attributes
    ----------
    owner : int32 [asks]
    sure : float64 [asks]
    ways : sequence of tuple of int
        Every history that there is, once.
    way : int64 [requests]
        Which of them each request has.
    contradicted : int
        How often by answers.
    waits : int64
        ns from when each was ready until it asked.
    """

    owner: I32
    sure: F64
    ways: Sequence[History]
    way: I64
    contradicted: int
    waits: I64

    @cached_property
    def wait(self) -> float:
        """Return the mean logarithm of the waits: long ones show that another had asked."""
        return float(np.mean(np.log(self.waits + 1.0))) if len(self.waits) else 0.0

    @cached_property
    def times(self) -> I64:
        """Return how many requests have each of the ways."""
        found: I64 = np.bincount(self.way, minlength=len(self.ways))
        return found

    @cached_property
    def usual(self) -> Bool:
        """Return which ways are no rarity among those that begin alike."""
        most: dict[int, int] = {}
        for way, many in zip(self.ways, self.times.tolist(), strict=True):
            most[way[0]] = max(most.get(way[0], 0), many)
        return self.times * 5 >= np.array([most[way[0]] for way in self.ways], np.int64)

    @cached_property
    def even(self) -> float:
        """Return the share of requests with a usual history; what is nobody's counts against it."""
        if not len(self.way):
            return 0.0
        nobodys = int((self.owner == NONE).sum())
        # Of two that are as even, the one with fewer ways to be usual says more.
        usual = [way for way, of in zip(self.ways, self.usual.tolist(), strict=True) if of]
        more = len(usual) - len({way[0] for way in usual})
        return float(self.times[self.usual].sum()) / (len(self.way) + nobodys) - TOKENS.way * more


def assign(
    method: str,
    activity: Activity,
    workers: Workers,
    endpoints: Endpoints,
    requests: RequestTable,
    owned: Owned,
    ways: Mapping[Way, int],
    clear: Bool | None = None,
) -> Subrequests:
    """Say of sub-requests that no rule decides whose they are, and of all how probable that is.

    Parameters
    ----------
    method : str
        One of `critpath.executions.specification.ASSIGN`: ``queues`` follows tokens where the
        certain rules left more than a few in doubt; the others take every sub-request, by one
        thing alone, for comparison.
    activity, workers, endpoints, requests
        Of the recording.
    owned : Owned
        What the rules found.
    ways : mapping
        What requests asked in another recording, and how often.
    clear : bool [subrequests], optional
        Which are made when no gap hides for whom their process works; the others stay as they are.
    """
    subrequests = owned.subrequests
    table = Tables(activity, workers, endpoints, requests, subrequests, owned.pooled, ways, clear)
    found = subrequests.request.astype(np.int64)
    sure = subrequests.probability.copy()
    if method != "queues":
        from critpath.requests.others import assign_otherwise  # noqa: PLC0415 - rarely asked for

        found, sure = assign_otherwise(method, table, found)
        return _replace(subrequests, found, sure, np.ones(len(found), np.bool_))
    changed, untold = np.zeros(len(found), np.bool_), np.zeros(len(found), np.bool_)
    pairs = {process: _pair(table, process) for process in table.passing()}
    passed = {process: of for process, of in pairs.items() if of is not None}
    for process in np.setdiff1d(table.unsure(), [*owned.followed, *passed]).tolist():
        followed = _follow(table, process)
        drawn = _follow_loop(table, process, followed)
        if drawn is not None:
            followed = drawn[:3]
            untold[drawn[0][drawn[3]]] = True
        if followed is None:
            continue
        rows, owner, probable = followed
        changed[rows] = True
        found[rows], sure[rows] = owner, probable
    made = _replace(subrequests, found, sure, changed)
    for rows, paired in passed.values():
        made = _replace_passed(made, requests, rows, paired)
    untold &= made.how != Rule.TASK
    doubtful = untold | (made.attribution == Certainty.DOUBTFUL) & (made.request >= 0)
    candidates = np.where(doubtful, table.count_open(), made.request >= 0)
    return dataclasses.replace(made, candidates=candidates.astype(np.int32))


def _replace_passed(
    subrequests: Subrequests, requests: RequestTable, rows: I64, paired: Paired
) -> Subrequests:
    """Return the table with a proxy's calls, and with the openings of connections for them."""
    told = np.isin(subrequests.how[rows], (Rule.TASK, Rule.TRACED))
    told |= (paired.owner < 0) & (subrequests.attribution[rows] == Certainty.CERTAIN)
    rows, owner = rows[~told], paired.owner[~told]
    sure, probability = paired.sure[~told], paired.probability[~told]
    opening = _find_openings(subrequests, rows)
    since = requests.received_ns[np.maximum(owner, 0)]
    mine = (owner >= 0) & (opening >= 0) & (subrequests.begin_ns[opening] >= since)
    rows, of = np.concatenate([rows, opening[mine]]), np.arange(len(rows))
    of = np.concatenate([of, of[mine]])
    rules = np.where(sure == Certainty.CERTAIN, Rule.ALONE, Rule.ORDER)
    columns = {
        "request": owner[of],
        "how": np.where(owner >= 0, rules, Rule.NONE)[of],
        "attribution": sure[of],
        "probability": probability[of],
    }
    changed = {name: getattr(subrequests, name).copy() for name in columns}
    for name, values in columns.items():
        changed[name][rows] = values
    return dataclasses.replace(subrequests, **changed)


def _find_openings(subrequests: Subrequests, rows: I64) -> I64:
    """Return which row opened the connection of a call that is the first to go over it, or -1."""
    each, first = np.unique(subrequests.endpoint[rows], return_index=True)
    opened = np.flatnonzero(subrequests.connects == 1)
    at = np.searchsorted(each, subrequests.endpoint[opened])
    at = np.where(at < len(each), at, 0)
    met = (each[at] == subrequests.endpoint[opened]) if len(each) else at > 0
    found = np.full(len(rows), NONE, np.int64)
    found[first[at[met]]] = opened[met]
    return found


def _replace(subrequests: Subrequests, found: I64, sure: F64, changed: Bool) -> Subrequests:
    """Return the table with other owners where they were changed."""
    changed &= subrequests.how != Rule.TASK
    likely = judge_probability(sure)
    how = np.where(found >= 0, Rule.ASSIGNED, Rule.NONE)
    request = np.where(changed, found, subrequests.request).astype(np.int32)
    return dataclasses.replace(
        subrequests,
        request=request,
        candidates=(request >= 0).astype(np.int32),
        how=np.where(changed, how, subrequests.how).astype(np.uint8),
        attribution=np.where(changed, likely, subrequests.attribution).astype(np.uint8),
        probability=np.where(changed, sure, subrequests.probability),
    )


class Tables:
    """The recording's tables by process."""

    def __init__(
        self,
        activity: Activity,
        workers: Workers,
        endpoints: Endpoints,
        requests: RequestTable,
        subrequests: Subrequests,
        pooled: Bool,
        ways: Mapping[Way, int],
        clear: Bool | None = None,
    ) -> None:
        self._clear = np.ones(len(subrequests), np.bool_) if clear is None else clear
        self.activity, self.requests, self.subrequests = activity, requests, subrequests
        self.pooled, self._ways = pooled, ways
        self.endpoints = endpoints
        self._workers = workers
        readers = thread_keys(endpoints.host[requests.endpoint], requests.reader_tid)
        askers = thread_keys(endpoints.host[subrequests.endpoint], subrequests.tid)
        self.of_request = process_keys(workers, readers)
        self.of_sub = process_keys(workers, askers)

    @cached_property
    def kind(self) -> I64:
        """Return the kind of every sub-request."""
        return find_kinds(self.activity, self.endpoints, self.requests, self.subrequests)

    @cached_property
    def says(self) -> U8:
        """Return what each sub-request says of its connection; an opening nothing."""
        called = find_names(self.requests, self.subrequests)
        says: U8 = read_holds(self.requests.strings)[called]
        says[self.subrequests.connects == 1] = 0
        return says

    @cached_property
    def elsewhere(self) -> Sequence[Sequence[int]]:
        """Return what requests asked in another recording, as histories of this one."""
        if not self._ways:
            return ()
        words, _ = name_kinds(self.activity, self.endpoints, self.requests, self.subrequests)
        services = dict(zip(name_roots(self.requests), self.root.tolist(), strict=True))
        return translate(self._ways, words, services)

    @cached_property
    def kinds(self) -> int:
        """Return how many kinds of sub-requests there are."""
        return int(self.kind.max(initial=-1)) + 1

    @cached_property
    def root(self) -> I64:
        """Return the kind that every request begins with: by service, and what it is called."""
        named = (self.requests.service.astype(np.int64) << 32) + self.requests.message
        _, number = np.unique(named, return_inverse=True)
        root: I64 = self.kinds + number.reshape(-1).astype(np.int64)
        return root

    def count_open(self) -> I64:
        """Return how many requests of its process are open when each sub-request begins."""
        requests, subs = self.requests, self.subrequests
        found = np.zeros(len(subs), np.int64)
        for process in np.unique(self.of_request).tolist():
            mine, rows = self.of_request == process, self.of_sub == process
            begin = subs.begin_ns[rows]
            received = np.sort(requests.received_ns[mine])
            answered = np.sort(requests.answered_ns[mine])
            found[rows] = np.searchsorted(received, begin, side="right")
            found[rows] -= np.searchsorted(answered, begin, side="left")
        return np.maximum(found, 1)

    def unsure(self) -> list[int]:
        """Return the processes that serve, and of whose sub-requests too many are in doubt."""
        subs = self.subrequests
        found = []
        for process in np.unique(self.of_request).tolist():
            mine = self.find_asked(process)
            doubt = (subs.request[mine] < 0) | (subs.attribution[mine] == Certainty.DOUBTFUL)
            if doubt.sum() > TOKENS.unsure * len(mine):
                found.append(int(process))
        return found

    def find_asked(self, process: int) -> I64:
        """Return the calls of a process, without openings of connections."""
        mine = (self.of_sub == process) & (self.subrequests.connects == 0)
        found: I64 = np.flatnonzero(mine & ~self.pooled & self._clear)
        return found

    def passing(self) -> list[int]:
        """Return the processes that serve and may ask once for each request, not surely known."""
        doubt = (self.subrequests.connects == 0) & (
            (self.subrequests.request < 0) | (self.subrequests.attribution > Certainty.CERTAIN)
        )
        served = np.unique(self.of_request)
        found: list[int] = np.intersect1d(served, self.of_sub[doubt & self._clear]).tolist()
        return found

    def process(self, process: int) -> Process:
        """Return what happens to a process's tokens."""
        requests, subs, activity = self.requests, self.subrequests, self.activity
        rows = np.flatnonzero(self.of_request == process)
        asked = np.flatnonzero((self.of_sub == process) & self._clear)
        host = process >> 32
        made = np.flatnonzero(
            (activity.act == Act.CREATE) & (activity.host == host) & (activity.tid >= 0)
        )
        makers = thread_keys(activity.host[made], activity.tid[made])
        made = made[process_keys(self._workers, makers) == process]
        results = np.flatnonzero(subs.connects[asked] == 0)
        receiver = self._receivers(asked[results])
        each, all_asked = np.arange(len(rows)), np.arange(len(asked))
        parts = (
            (What.RECEIVE, requests.received_ns[rows], requests.reader_tid[rows], each),
            (What.ANSWERED, requests.answered_ns[rows], requests.tid[rows], each),
            (What.ASK, subs.begin_ns[asked], subs.tid[asked], all_asked),
            (What.RESULT, subs.end_ns[asked[results]], receiver, results),
            (What.MADE, activity.time_ns[made], activity.tid[made], activity.value[made]),
        )
        what = np.repeat(
            np.array([of for of, *_ in parts], np.uint8), [len(times) for _, times, _, _ in parts]
        )
        time, tid, row = (
            np.concatenate([part[column] for part in parts]).astype(np.int64)
            for column in (1, 2, 3)
        )
        order = np.lexsort((row, tid, what, time))
        time, what, tid, row = time[order], what[order], tid[order], row[order]
        makes = what == What.MADE
        _, thread = np.unique(np.concatenate([tid, row[makes]]), return_inverse=True)
        row[makes] = thread[len(tid) :]
        ruled = subs.request[asked].astype(np.int64)
        at = np.searchsorted(rows, ruled)
        known = (ruled >= 0) & (np.append(rows, NONE)[at] == ruled)
        sure = (subs.attribution[asked] == Certainty.CERTAIN) | self.pooled[asked]
        _, endpoint = np.unique(subs.endpoint[asked], return_inverse=True)
        columns = (
            self.kind[asked],
            endpoint,
            np.where(known, at, np.where(ruled < 0, NONE, _ELSEWHERE)),
            _OPENS * (subs.connects[asked] == 1) + _SURE * sure,
        )
        return Process(
            time,
            what,
            thread[: len(tid)].astype(np.int32),
            row.astype(np.int32),
            self.root[rows].astype(np.int32),
            np.ascontiguousarray(np.stack(columns, axis=1), np.int32),
            rows,
            asked,
            self.says[asked],
        )

    def _receivers(self, asked: I64) -> I64:
        """Return who received the results of sub-requests."""
        activity, subs = self.activity, self.subrequests
        at = subs.endpoint[asked]
        rows = np.flatnonzero((activity.act == Act.RECEIVE) & np.isin(activity.endpoint, at))
        # Results behind what was received, sorted by endpoint and time: the last before is its.
        ends = np.concatenate([activity.endpoint[rows], at])
        times = np.concatenate([activity.time_ns[rows], subs.end_ns[asked]])
        order = np.lexsort((times, ends))
        received = order < len(rows)
        last = np.maximum.accumulate(np.where(received, np.arange(len(order)), -1))
        tid = subs.tid[asked].astype(np.int64)
        mine, before = order[~received], order[last[~received]]
        its = (last[~received] >= 0) & (ends[before] == ends[mine]) & (times[before] == times[mine])
        tid[mine[its] - len(rows)] = activity.tid[rows[before[its]]]
        return tid


def _learn_delays(tokens: Tokens, run: _Run) -> Mapping[tuple[int, int], tuple[float, float]]:
    """Return how long after it was ready who asks, of those that are usual.

    Logarithms, normal, by what was before and is next: medians, which a wrong one does not move.
    """
    found = tokens.find_delays(run.owner, run.usual[run.way].view(np.uint8))
    pairs, which = find_distinct(found[:, :2])
    logs = np.log(np.maximum(found[:, 2], 1000))
    known = {}
    for number, (before, kind) in enumerate(pairs.tolist()):
        mine = logs[which == number]
        middle = float(np.median(mine))
        spread = float(np.median(np.abs(mine - middle))) * NORMAL.per_mad
        known[before, kind] = middle, max(spread, TOKENS.least_spread)
    return known


def _pair(table: Tables, process: int) -> tuple[I64, Paired] | None:
    """Return the calls of a process that passes requests on, and whose they are; None of others."""
    requests, subs = table.requests, table.subrequests
    rows, asked = np.flatnonzero(table.of_request == process), table.find_asked(process)
    reader, answerer = requests.reader_tid[rows], requests.tid[rows]
    opening = _find_openings(subs, asked)
    paired = pair_calls(
        table.activity,
        Passing(
            *(requests.received_ns[rows], requests.answered_ns[rows], requests.end_ns[rows]),
            np.where(reader == answerer, reader, NONE).astype(np.int32),
            *(subs.endpoint[asked], subs.tid[asked]),
            np.where(opening >= 0, subs.begin_ns[opening], subs.begin_ns[asked]),
            *(subs.begin_ns[asked], subs.end_ns[asked]),
        ),
    )
    if paired is None:
        return None
    owner = np.where(paired.owner >= 0, rows[paired.owner], NONE)
    return asked, dataclasses.replace(paired, owner=owner)


def _follow_loop(
    table: Tables, number: int, followed: tuple[I64, I64, F64] | None
) -> tuple[I64, I64, F64, Bool] | None:
    """Return the same of a loop that answers last, by all of it together; None of what is none.

    And of which it is not said whose they are, as that is more likely wrong than right.
    """
    process = table.process(number)
    loop = None if _asks_later(process) else read_loop(process)
    if loop is None:
        return None
    named = table.subrequests.request.astype(np.int64)
    if followed is not None:
        named[followed[0]] = followed[1]
    at = np.minimum(np.searchsorted(process.requests, named), len(process.requests) - 1)
    named = np.where(process.requests[at] == named, at, NONE)[process.asked]
    others = np.full(len(loop.calls), NONE, np.int64)
    used = np.flatnonzero(loop.use >= 0)[::-1]
    others[loop.use[used]] = named[used]  # of several messages of one use the first
    of_call, probable = draw_owners(loop, others)
    rows = np.flatnonzero((loop.use >= 0) & ((process.asks[:, 3] & _SURE) == 0))
    owner = of_call[loop.use[rows]]
    probable = probable[loop.use[rows]]
    untold = (owner >= 0) & (probable < CHAINS.told)
    told = (owner >= 0) & ~untold
    owner = np.where(told, np.append(process.requests, NONE)[owner], NONE)
    return process.asked[rows], owner, np.where(told, probable, 0.0), untold


def _follow(table: Tables, number: int) -> tuple[I64, I64, F64] | None:
    """Return a process's sub-requests, whose they are, and how probably; None: as by the rules."""
    process = table.process(number)
    tokens = make_tokens(process)
    later = _asks_later(process)
    owner, nodes = tokens.run_by_rules()
    nothing = np.zeros(0, np.int64)
    best = ruled = _Run(owner, np.ones(len(owner)), *_spell(tokens, nodes), 0, nothing)
    for seed, several in _seeds(table, process, tokens, ruled, later=later):
        known = seed
        for _ in range(TOKENS.passes):
            run = run_tokens(tokens, known, later=later)
            known = _learned(table, run.ways, run.times)
            sooner = several and min(run.even, best.even) > TOKENS.alike and run.wait < best.wait
            if run.even <= best.even + TOKENS.least_gain and not sooner:
                break
            best = run
            if best.even + TOKENS.least_gain >= 1 and not several:  # no other can be better
                break
        if best.even > TOKENS.alike and not several:
            break
    for _ in range(TOKENS.passes if best.even < TOKENS.alike else 0):
        known = _learned(table, best.ways, best.times)
        run = run_tokens(tokens, known, _learn_delays(tokens, best), later=later)
        if run.even <= best.even + TOKENS.least_gain:
            break
        best = run
    if best is ruled:
        return None
    run = best
    if best.contradicted > OWNERS.exchanged * len(best.way):
        known = _learned(table, best.ways, best.times)
        healed = run_tokens(tokens, known, later=later, in_order=True)
        run = healed if healed.even + TOKENS.least_gain >= best.even else best
    return _judge(table, process, run, best.even, later=later)


def make_tokens(process: Process) -> Tokens:
    """Return a process's tokens, to be followed."""
    events = (process.time, process.what, process.thread, process.row)
    return Tokens(*events, process.root, process.asks)


def run_tokens(
    tokens: Tokens,
    known: Transitions,
    delays: Mapping[tuple[int, int], tuple[float, float]] | None = None,
    *,
    later: bool,
    in_order: bool = False,
) -> _Run:
    """Follow a process's tokens once, with a guess of what requests ask."""
    owner, sure, nodes, contradicted, waited = tokens.run(known, delays, later, in_order)
    return _Run(owner, sure, *_spell(tokens, nodes), contradicted, waited[waited >= 0])


def _spell(tokens: Tokens, nodes: I32) -> tuple[Sequence[History], I64]:
    """Return every history that nodes stand for, and which of them each has."""
    different, way = np.unique(nodes, return_inverse=True)
    return [tokens.spell(node) for node in different.tolist()], way.reshape(-1).astype(np.int64)


def _judge(
    table: Tables, process: Process, run: _Run, even: float, *, later: bool
) -> tuple[I64, I64, F64]:
    """Return whose sub-requests are by a pass, and how probably."""
    rows, some = process.asked, run.owner >= 0
    owner = np.full(len(rows), NONE, np.int64)
    owner[some] = process.requests[run.owner[some]]
    probable = np.where(some, run.sure, 0.0)
    probable[some] *= np.where(run.usual[run.way[run.owner[some]]], 1.0, even / 2)
    usual = (way for way, of in zip(run.ways, run.usual.tolist(), strict=True) if of)
    if any(len(set(way)) < len(way) for way in usual):
        # Requests that ask the same twice are usual also where they are mixed up.
        probable = np.minimum(probable, TOKENS.alike_asks)
    doubted = np.ones(len(rows), np.bool_)
    if not later:
        doubted = table.subrequests.attribution[rows] != Certainty.CERTAIN
    doubted &= ~table.pooled[rows]
    return rows[doubted], owner[doubted], probable[doubted]


def _seeds(
    table: Tables, process: Process, tokens: Tokens, ruled: _Run, *, later: bool
) -> Iterator[tuple[Transitions, bool]]:
    """Yield guesses of what requests ask: from those that are alone, by the rules, by counts.

    Each with whether others may look as usual: some requests ask what others do not.
    """
    if table.elsewhere:
        yield _learned(table, table.elsewhere), False
    alone, times = _learn_alone(tokens)
    if alone:
        yield _learned(table, alone, times), False
    yield _learned(table, ruled.ways, ruled.times), False
    roots = set(process.root.tolist())
    for guess, share in _orders(process):
        for answered in (0, len(guess)) if later else (len(guess),):
            middle = [*guess[:answered], ANSWER, *guess[answered:]]
            asked = [
                [kind for kind in middle if number < share.get(kind, 1) * TOKENS.drawn]
                for number in range(TOKENS.drawn)
            ]
            guessed = [[root, *each, END] for root in roots for each in asked]
            yield _learned(table, guessed), bool(share)


def _learned(
    table: Tables, histories: Sequence[Sequence[int]], times: I64 | None = None
) -> Transitions:
    known = Transitions(table.kinds)
    known.learn(histories, times)
    return known


def _orders(process: Process) -> Iterator[tuple[tuple[int, ...], Mapping[int, float]]]:
    """Yield orders in which requests may ask, and which share of them asks what not all do.

    Nobody asks what comes later before he has the result of what comes first, so at no time may
    there be more that have asked the later one than have the result of the earlier.
    """
    requests = max(len(process.root), 1)
    asked, done = process.select(What.ASK), process.select(What.RESULT)
    kinds, ended = process.asks[process.row[asked], 0], process.asks[process.row[done], 0]
    asks = {
        int(kind): int(many)
        for kind, many in zip(*np.unique(kinds, return_counts=True), strict=True)
    }
    every = [kind for kind, many in asks.items() for _ in range(round(many / requests))]
    share = {kind: many / requests for kind, many in asks.items() if kind not in every}
    share = {kind: part for kind, part in share.items() if part >= TOKENS.some}
    every += share
    if not len(share) < len(every) <= TOKENS.longest:
        return
    whole = set(every) - set(share)
    lead: dict[tuple[int, int], int] = {}  # asked more than there were results of another
    for kind in set(every):
        at = asked[kinds == kind]
        for other in whole - {kind}:
            results = np.searchsorted(done[ended == other], at)
            lead[kind, other] = int((np.arange(1, len(at) + 1) > results).sum())
    for order in sorted(set(permutations(every)), key=lambda o: _violations(o, lead))[
        : TOKENS.orders
    ]:
        yield order, share


def _violations(order: tuple[int, ...], lead: Mapping[tuple[int, int], int]) -> int:
    """Return how often a kind was asked before what is the first of another before it."""
    first = {kind: order.index(kind) for kind in order}
    return sum(many for (kind, other), many in lead.items() if first[other] < first[kind])


def _asks_later(process: Process) -> bool:
    """Return whether a process asks while no request of it is unanswered: it answers first."""
    what = process.what
    unanswered = np.cumsum(what == What.RECEIVE) - np.cumsum(what == What.ANSWERED)
    asks = process.select(What.ASK)
    return int((unanswered[asks] <= 0).sum()) > TOKENS.unsure * max(len(asks), 1)


def _learn_alone(tokens: Tokens) -> tuple[Sequence[History], I64]:
    """Return what is asked at times at which one request is in the process; nothing of few."""
    nodes, times = np.unique(tokens.run_alone(), return_counts=True)
    kept = times * TRANSITIONS.seen >= times.max(initial=0)
    if times[kept].sum() < TRANSITIONS.seen:
        return [], times[:0]
    return [tokens.spell(node) for node in nodes[kept].tolist()], times[kept]
