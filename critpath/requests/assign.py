"""Who asked, where several requests are open and no certain rule tells: tokens, and assignment.

Every request is a token.  A thread's tokens wait in the order in which they became ready: received,
a result there, answered though something is still asked, or moved to a thread that was made for
them.  Who asks is decided event by event, and never again within a pass: of those that may ask this
(`transitions`), the one for which it is most probable, less what each place in the queue takes;
where it makes requests more alike, by delays rather than places.  Rules: docs/tokens.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import merge
from itertools import islice, permutations
from typing import Final

import numpy as np

from critpath.model import F64, I64, Bool, Workers
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
from critpath.requests.owners import EXCHANGED, Owned, process_keys, thread_keys
from critpath.requests.pools import judge_probability
from critpath.requests.transitions import (
    ANSWER,
    END,
    SEEN,
    History,
    Transitions,
    Way,
    find_kinds,
    name_kinds,
    translate,
)

UNSURE: Final = 0.01  # of a process's sub-requests in doubt or nobody's: its tokens are followed
_PASSES: Final = 4
_CANDIDATES: Final = 64  # tokens that may ask are looked at
_BROAD: Final = 0.05  # of delays are of no kind
_RANK: Final = 2.0  # log probability that is lost by each place in the queue, at first
_FIRST: Final = 0.85  # who is answered is the first that has all results
_LONGEST: Final = 6  # what requests ask, to try its orders
_ORDERS: Final = 6  # that are tried
_SOME: Final = 0.05  # of the requests ask it: less is no part of an order
_DRAWN: Final = 20  # requests as guessed, of whom some ask what not all do
ALIKE: Final = 0.97  # of a process's requests: nothing more is tried
ALIKE_ASKS: Final = 0.5  # at the most, where nothing shows a mistake
_WAY: Final = 0.02  # of evenness that every further usual way takes: with many, mistakes are usual
LEAST_GAIN: Final = 0.002  # of requests that are usual, to believe one pass rather than another


_Event = tuple[int, int, int, int]  # time, `_What`, thread, row


class _What:
    """What happens to a process's tokens; those of one moment in this order."""

    RECEIVE, RESULT, MADE, ASK, ANSWERED = range(5)


@dataclass
class _Token:
    """A request of which something may still be asked."""

    history: History
    ready: int = 0
    thread: int = -1  # in whose queue it is, -1 in none
    answered: bool = False
    asked: int = 0
    last: int = NONE  # sub-request
    sure: float = 1.0  # that what it is known to have asked is its own: a mistake goes on


@dataclass
class _Run:
    """One pass: who asked, and of whom else it might have been."""

    owner: dict[int, int] = field(default_factory=dict)  # of sub-requests
    sure: dict[int, float] = field(default_factory=dict)
    histories: dict[int, list[int]] = field(default_factory=dict)
    contradicted: int = 0  # by answers
    waits: list[int] = field(default_factory=list)  # ns from when it was ready until it asked

    @cached_property
    def wait(self) -> float:
        """Return the mean logarithm of the waits: long ones show that another had asked."""
        return float(np.mean(np.log(np.array(self.waits, np.float64) + 1))) if self.waits else 0.0


def assign(
    method: str,
    activity: Activity,
    workers: Workers,
    endpoints: Endpoints,
    requests: RequestTable,
    owned: Owned,
    ways: Mapping[Way, int],
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
    """
    subrequests = owned.subrequests
    table = Tables(activity, workers, endpoints, requests, subrequests, owned.pooled, ways)
    found = subrequests.request.astype(np.int64)
    sure = subrequests.probability.copy()
    if method != "queues":
        from critpath.requests.others import assign_otherwise  # noqa: PLC0415 - rarely asked for

        found, sure = assign_otherwise(method, table, found)
        return _replace(subrequests, found, sure, np.ones(len(found), np.bool_))
    changed = np.zeros(len(found), np.bool_)
    for process in np.setdiff1d(table.unsure(), owned.followed).tolist():
        followed = _follow(table, process)
        if followed is None:
            continue
        rows, owner, probable = followed
        changed[rows] = True
        found[rows], sure[rows] = owner, probable
    return _replace(subrequests, found, sure, changed)


def _replace(subrequests: Subrequests, found: I64, sure: F64, changed: Bool) -> Subrequests:
    """Return the table with other owners where they were changed."""
    likely = judge_probability(sure)
    how = np.where(found >= 0, Rule.ASSIGNED, Rule.NONE)
    return dataclasses.replace(
        subrequests,
        request=np.where(changed, found, subrequests.request).astype(np.int32),
        how=np.where(changed, how, subrequests.how).astype(np.uint8),
        attribution=np.where(changed, likely, subrequests.attribution).astype(np.uint8),
        probability=sure,
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
    ) -> None:
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
        return find_kinds(self.activity, self.endpoints, self.subrequests)

    @cached_property
    def elsewhere(self) -> Sequence[Sequence[int]]:
        """Return what requests asked in another recording, as histories of this one."""
        words, _ = name_kinds(self.activity, self.endpoints, self.subrequests)
        codes, roots = self.requests.service.tolist(), self.roots
        services = {self.requests.strings[code]: of for code, of in zip(codes, roots, strict=True)}
        return translate(self._ways, words, services)

    # The same as lists, which are read one by one at a tenth of the time.

    @cached_property
    def asks(self) -> list[int]:
        """Return the kind of every sub-request."""
        return list(self.kind.tolist())

    @cached_property
    def roots(self) -> list[int]:
        """Return the kind that every request begins with."""
        return list(self.root.tolist())

    @cached_property
    def connects(self) -> list[bool]:
        """Return which sub-requests open connections."""
        return list((self.subrequests.connects == 1).tolist())

    @cached_property
    def ends(self) -> list[int]:
        """Return the endpoint of every sub-request."""
        return list(self.subrequests.endpoint.tolist())

    @cached_property
    def ruled(self) -> list[int]:
        """Return whose every sub-request is by the rules."""
        return list(self.subrequests.request.tolist())

    @cached_property
    def certain(self) -> list[bool]:
        """Return of which sub-requests the rules are sure, or the pool they are of is known."""
        sure = self.subrequests.attribution == Certainty.CERTAIN
        return list((sure | self.pooled).tolist())

    @cached_property
    def kinds(self) -> int:
        """Return how many kinds of sub-requests there are."""
        return int(self.kind.max(initial=-1)) + 1

    @cached_property
    def root(self) -> I64:
        """Return the kind that every request begins with: those of a process differ by service."""
        _, service = np.unique(self.requests.service, return_inverse=True)
        return self.kinds + service.reshape(-1).astype(np.int64)

    def unsure(self) -> list[int]:
        """Return the processes that serve, and of whose sub-requests too many are in doubt."""
        subs = self.subrequests
        found = []
        for process in np.unique(self.of_request).tolist():
            mine = (self.of_sub == process) & (subs.connects == 0) & ~self.pooled
            mine = np.flatnonzero(mine)
            doubt = (subs.request[mine] < 0) | (subs.attribution[mine] == Certainty.DOUBTFUL)
            if doubt.sum() > UNSURE * len(mine):
                found.append(int(process))
        return found

    def events(self, process: int) -> list[_Event]:
        """Return time, `_What`, thread and row of all that happens to a process's tokens."""
        requests, subs, activity = self.requests, self.subrequests, self.activity
        rows = np.flatnonzero(self.of_request == process)
        asked = np.flatnonzero(self.of_sub == process)
        receiver = self._receivers(asked)
        host = process >> 32
        made = np.flatnonzero(
            (activity.act == Act.CREATE) & (activity.host == host) & (activity.tid >= 0)
        )
        makers = thread_keys(activity.host[made], activity.tid[made])
        made = made[process_keys(self._workers, makers) == process]
        results = subs.connects[asked] == 0
        parts = (
            (requests.received_ns[rows], _What.RECEIVE, requests.reader_tid[rows], rows),
            (requests.answered_ns[rows], _What.ANSWERED, requests.tid[rows], rows),
            (subs.begin_ns[asked], _What.ASK, subs.tid[asked], asked),
            (subs.end_ns[asked[results]], _What.RESULT, receiver[results], asked[results]),
            (activity.time_ns[made], _What.MADE, activity.tid[made], activity.value[made]),
        )
        found = [
            (int(time), what, int(thread), int(row))
            for times, what, threads, of in parts
            for time, thread, row in zip(times.tolist(), threads.tolist(), of.tolist(), strict=True)
        ]
        found.sort()
        return found

    def _receivers(self, asked: I64) -> I64:
        """Return who received the results of sub-requests."""
        activity, subs = self.activity, self.subrequests
        at = subs.endpoint[asked]
        rows = np.flatnonzero((activity.act == Act.RECEIVE) & np.isin(activity.endpoint, at))
        columns = (activity.endpoint[rows], activity.time_ns[rows], activity.tid[rows])
        by = {(e, t): tid for e, t, tid in zip(*(c.tolist() for c in columns), strict=True)}
        asks = (subs.endpoint[asked], subs.end_ns[asked], subs.tid[asked])
        found = [by.get((e, t), tid) for e, t, tid in zip(*(c.tolist() for c in asks), strict=True)]
        return np.array(found, np.int64).reshape(-1)


class Delays:
    """How long after it was ready who asks: logarithms, normal, by what was before and is next."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], list[float]] = defaultdict(list)
        self._known: dict[tuple[int, int], tuple[float, float]] = {}

    def add(self, before: int, kind: int, delay: int) -> None:
        """Note a delay."""
        self._found[before, kind].append(math.log(max(delay, 1000)))

    def learn(self) -> None:
        """Estimate: medians, which a wrong one does not move."""
        for pair, logs in self._found.items():
            middle = float(np.median(logs))
            spread = float(np.median(np.abs(np.array(logs) - middle))) * 1.4826
            self._known[pair] = middle, max(spread, 0.1)

    def weigh(self, before: int, kind: int, delay: int) -> float:
        """Return the logarithm of the density of a delay."""
        if (before, kind) not in self._known:
            return math.log(_BROAD)
        middle, spread = self._known[before, kind]
        off = (math.log(max(delay, 1000)) - middle) / spread
        dense = math.exp(-off * off / 2) / spread
        return math.log((1 - _BROAD) * dense + _BROAD / 10)


def _follow(table: Tables, process: int) -> tuple[I64, I64, F64] | None:
    """Return a process's sub-requests, whose they are, and how probably; None: as by the rules."""
    events = table.events(process)
    later = _asks_later(table, events)
    best = _by_rules(table, events)
    even, ruled = _evenness(best), best
    for seed, several in _seeds(table, events, ruled, later=later):
        known = seed
        for _ in range(_PASSES):
            run = _Pass(table, events, known, None, later=later).run()
            known = _learned(table, [*run.histories.values()])
            found = _evenness(run)
            sooner = several and min(found, even) > ALIKE and run.wait < best.wait
            if found <= even + LEAST_GAIN and not sooner:
                break
            even, best = found, run
            if even + LEAST_GAIN >= 1 and not several:  # no other can be better
                break
        if even > ALIKE and not several:
            break
    for _ in range(_PASSES if even < ALIKE else 0):
        known = _learned(table, [*best.histories.values()])
        run = _Pass(table, events, known, _learn_delays(table, events, best), later=later).run()
        if _evenness(run) <= even + LEAST_GAIN:
            break
        even, best = _evenness(run), run
    if best is ruled:
        return None
    run = best
    if best.contradicted > EXCHANGED * len(best.histories):
        known = _learned(table, [*best.histories.values()])
        healed = _Pass(table, events, known, None, later=later, in_order=True).run()
        run = healed if _evenness(healed) + LEAST_GAIN >= even else best
    return _judge(table, run, even, later=later)


def _judge(table: Tables, run: _Run, even: float, *, later: bool) -> tuple[I64, I64, F64]:
    """Return whose sub-requests are by a pass, and how probably."""
    rows = np.array(sorted(run.owner), np.int64)
    usual = _usual(run)
    owner = np.array([run.owner[row] for row in rows.tolist()], np.int64).reshape(-1)
    probable = np.array(
        [
            run.sure[row] * (1.0 if tuple(run.histories.get(of, ())) in usual else even / 2)
            for row, of in zip(rows.tolist(), owner.tolist(), strict=True)
        ],
        np.float64,
    ).reshape(-1)
    if any(len(set(history)) < len(history) for history in usual):
        # Requests that ask the same twice are usual also where they are mixed up.
        probable = np.minimum(probable, ALIKE_ASKS)
    probable[owner < 0] = 0.0
    doubted = np.ones(len(rows), np.bool_)
    if not later:
        doubted = table.subrequests.attribution[rows] != Certainty.CERTAIN
    doubted &= ~table.pooled[rows]
    return rows[doubted], owner[doubted], probable[doubted]


def _by_rules(table: Tables, events: Sequence[_Event]) -> _Run:
    """Return what the certain rules and the queues found, as a pass would have."""
    run = _Run()
    for _, what, _, row in events:
        if what == _What.RECEIVE:
            run.histories[row] = [table.roots[row]]
        elif what == _What.ANSWERED and row in run.histories:
            run.histories[row].append(ANSWER)
        elif what == _What.ASK:
            run.owner[row] = owner = table.ruled[row]
            if owner in run.histories and not table.connects[row]:
                run.histories[owner].append(table.asks[row])
    for history in run.histories.values():
        history.append(END)
    return run


def _seeds(
    table: Tables, events: Sequence[_Event], ruled: _Run, *, later: bool
) -> Iterator[tuple[Transitions, bool]]:
    """Yield guesses of what requests ask: from those that are alone, by the rules, by counts.

    Each with whether others may look as usual: some requests ask what others do not.
    """
    if table.elsewhere:
        yield _learned(table, table.elsewhere), False
    histories = [*_learn_alone(table, events)]
    if histories:
        yield _learned(table, histories), False
    yield _learned(table, [*ruled.histories.values()]), False
    roots = {table.roots[row] for _, what, _, row in events if what == _What.RECEIVE}
    for guess, share in _orders(table, events):
        for answered in (0, len(guess)) if later else (len(guess),):
            middle = [*guess[:answered], ANSWER, *guess[answered:]]
            asked = [
                [kind for kind in middle if number < share.get(kind, 1) * _DRAWN]
                for number in range(_DRAWN)
            ]
            guessed = [[root, *each, END] for root in roots for each in asked]
            yield _learned(table, guessed), bool(share)


def _learned(table: Tables, histories: Sequence[Sequence[int]]) -> Transitions:
    known = Transitions(table.kinds)
    known.learn(histories)
    return known


def _orders(
    table: Tables, events: Sequence[_Event]
) -> Iterator[tuple[tuple[int, ...], Mapping[int, float]]]:
    """Yield orders in which requests may ask, and which share of them asks what not all do.

    Nobody asks what comes later before he has the result of what comes first, so at no time may
    there be more that have asked the later one than have the result of the earlier.
    """
    requests = max(sum(what == _What.RECEIVE for _, what, _, _ in events), 1)
    asks = Counter(
        table.asks[row]
        for _, what, _, row in events
        if what == _What.ASK and not table.connects[row]
    )
    every = [kind for kind, many in asks.items() for _ in range(round(many / requests))]
    share = {kind: many / requests for kind, many in asks.items() if kind not in every}
    share = {kind: part for kind, part in share.items() if part >= _SOME}
    every += share
    if not len(share) < len(every) <= _LONGEST:
        return
    whole = set(every) - set(share)
    lead: Counter[tuple[int, int]] = Counter()  # asked more than there were results of another
    asked: Counter[int] = Counter()
    results: Counter[int] = Counter()
    for _, what, _, row in events:
        kind = table.asks[row] if what in {_What.ASK, _What.RESULT} else -1
        if what == _What.ASK and not table.connects[row]:
            asked[kind] += 1
            for other in whole - {kind} if kind in every else ():
                lead[kind, other] += asked[kind] > results[other]
        elif what == _What.RESULT:
            results[kind] += 1
    for order in sorted(set(permutations(every)), key=lambda o: _violations(o, lead))[:_ORDERS]:
        yield order, share


def _violations(order: tuple[int, ...], lead: Mapping[tuple[int, int], int]) -> int:
    """Return how often a kind was asked before what is the first of another before it."""
    first = {kind: order.index(kind) for kind in order}
    return sum(many for (kind, other), many in lead.items() if first[other] < first[kind])


def _asks_later(table: Tables, events: Sequence[_Event]) -> bool:
    """Return whether a process asks while no request of it is unanswered: it answers first."""
    open_now = asks = orphans = 0
    for _, what, _, row in events:
        open_now += (what == _What.RECEIVE) - (what == _What.ANSWERED)
        if what == _What.ASK and not table.connects[row]:
            asks += 1
            orphans += open_now <= 0
    return orphans > UNSURE * max(asks, 1)


def _learn_alone(table: Tables, events: Sequence[_Event]) -> Sequence[Sequence[int]]:
    """Return what is asked at times at which one request is in the process; nothing of few."""
    histories: list[list[int]] = []
    current: list[int] = []
    busy, alone, answered = 0, True, True
    for _, what, _, row in events:
        if what == _What.RECEIVE:
            if current and alone and answered and busy == 0:
                histories.append([*current, END])
            alone = busy == 0 and answered
            current, answered = [table.roots[row]], False
        elif current and what == _What.ANSWERED:
            answered = True
            current.append(ANSWER)
        elif what == _What.ASK and not table.connects[row]:
            busy += 1
            current.append(table.asks[row])
        elif what == _What.RESULT:
            busy = max(0, busy - 1)
    common = Counter(map(tuple, histories))
    kept = [h for h in histories if common[tuple(h)] * SEEN >= max(common.values())]
    return kept if len(kept) >= SEEN else []


def _usual(run: _Run) -> set[tuple[int, ...]]:
    """Return the histories that are no rarity among those that begin alike."""
    counts = Counter(tuple(history) for history in run.histories.values())
    most: dict[int, int] = {}
    for history, many in counts.items():
        most[history[0]] = max(most.get(history[0], 0), many)
    return {history for history, many in counts.items() if many * 5 >= most[history[0]]}


def _evenness(run: _Run) -> float:
    """Return the share of requests with a usual history; what is nobody's counts against it."""
    if not run.histories:
        return 0.0
    usual = _usual(run)
    even = sum(tuple(history) in usual for history in run.histories.values())
    nobodys = sum(owner < 0 for owner in run.owner.values())
    # Of two that are as even, the one with fewer ways to be usual says more.
    more = len(usual) - len({history[0] for history in usual})
    return even / (len(run.histories) + nobodys) - _WAY * more


def _learn_delays(table: Tables, events: Sequence[_Event], run: _Run) -> Delays:
    """Learn delays from what was found, of those that are usual."""
    delays, usual = Delays(), _usual(run)
    ready: dict[int, tuple[int, int]] = {}
    for time, what, _, row in events:
        if what == _What.RECEIVE:
            ready[row] = time, table.roots[row]
        elif what == _What.ANSWERED and row in ready:
            ready[row] = time, ANSWER
        elif what == _What.RESULT and run.owner.get(row, -1) >= 0:
            ready[run.owner[row]] = time, table.asks[row]
        elif what == _What.ASK:
            of = run.owner.get(row, -1)
            if of in ready and tuple(run.histories.get(of, ())) in usual:
                since, before = ready.pop(of)
                delays.add(before, table.asks[row], time - since)
    delays.learn()
    return delays


class _Pass:
    """Follows a process's tokens once."""

    def __init__(
        self,
        table: Tables,
        events: Sequence[_Event],
        known: Transitions,
        delays: Delays | None,
        *,
        later: bool,
        in_order: bool = False,
    ) -> None:
        self._in_order = in_order
        self._table, self._events, self._known = table, events, known
        self._delays, self._later = delays, later
        self._tokens: dict[int, _Token] = {}
        # By what they asked, each in order of entering: taken out as often as they come in.
        self._queues: dict[int, dict[History, dict[int, int]]] = defaultdict(dict)
        # Whose a connection is until it is used, and how surely.
        self._opened: dict[int, tuple[int, float]] = {}
        self._run = _Run()

    def run(self) -> _Run:
        """Go through all events."""
        does: dict[int, Callable[[int, int, int], None]] = {
            _What.RECEIVE: self._receive,
            _What.RESULT: self._result,
            _What.MADE: self._made,
            _What.ASK: self._ask,
            _What.ANSWERED: self._answered,
        }
        for time, what, thread, row in self._events:
            does[what](time, thread, row)
        for row, token in self._tokens.items():
            self._run.histories[row] = [*token.history, END]
        return self._run

    def _enter(self, time: int, thread: int, row: int) -> None:
        token = self._tokens[row]
        self._leave(row)
        token.ready, token.thread = time, thread
        queue = self._queues[thread]
        alike = queue.get(token.history)
        if alike is None:
            alike = queue[token.history] = {}
        alike[row] = time

    def _leave(self, row: int) -> None:
        token = self._tokens[row]
        if token.thread >= 0:
            queue = self._queues[token.thread]
            alike = queue[token.history]
            del alike[row]
            if not alike:
                del queue[token.history]
            token.thread = -1

    def _receive(self, time: int, thread: int, row: int) -> None:
        self._tokens[row] = _Token((self._table.roots[row],))
        self._enter(time, thread, row)

    def _result(self, time: int, thread: int, row: int) -> None:
        owner = self._run.owner.get(row, -1)
        if owner in self._tokens:
            token = self._tokens[owner]
            if not token.answered or self._goes_on(token):
                self._enter(time, thread, owner)

    def _made(self, _: int, thread: int, made: int) -> None:
        """Move the first that has asked nothing yet to the thread that was made for it."""
        fresh = (
            next(iter(alike.items()))[::-1]
            for history, alike in self._queues[thread].items()
            if max(history[1:], default=NONE) < 0 and self._known.goes_on(history)
        )
        ready, row = min(fresh, default=(0, NONE))
        if row >= 0 and self._goes_on(self._tokens[row]):
            self._enter(ready, made, row)

    def _answered(self, time: int, thread: int, row: int) -> None:
        token = self._tokens.get(row)
        if token is None:
            return
        self._heal(row, token, thread)
        queue = token.thread
        self._leave(row)
        token.history = (*token.history, ANSWER)
        token.answered = True
        if queue >= 0 and self._goes_on(token):
            self._enter(time, queue, row)

    def _heal(self, row: int, token: _Token, thread: int) -> None:
        """Exchange what two asked last, if the answer shows that it was the other's.

        Who is answered has all results. If this one has not, the first that has was taken for it;
        with `in_order` also if another had them before.
        """
        known, table, run = self._known, self._table, self._run
        waits = token.thread >= 0 and known.may(token.history, ANSWER)
        if self._later or (waits and not self._in_order):
            return
        could = [
            next(iter(alike.items()))[::-1]
            for history, alike in self._queues[thread].items()
            if known.may(history, ANSWER)
            and (history == token.history or history[:-1] == token.history)
        ]
        first = min(could, default=(0, row))[1]
        other = self._tokens[first]
        both = token.history == other.history
        if first == row or run.owner.get(other.last) != first:
            return
        if both and (run.owner.get(token.last) != row or token.last == other.last):
            return
        if both and table.asks[token.last] != table.asks[other.last]:
            return
        run.contradicted += not waits
        mine, its = (token.ready, token.thread), (other.ready, other.thread)
        last = token.last if both else NONE
        self._leave(row)
        self._leave(first)
        token.last, other.last = other.last, last
        run.owner[token.last] = row
        if both:
            run.owner[last] = first
        else:
            token.history, other.history = other.history, token.history
            token.asked, other.asked = other.asked, token.asked
        run.sure[token.last] = token.sure = _FIRST
        self._enter(*its, row)
        if mine[1] >= 0:
            self._enter(*mine, first)

    def _goes_on(self, token: _Token) -> bool:
        """Return whether a token may ask anything more."""
        if token.answered and not self._later:
            return False
        return self._known.goes_on(token.history)

    def _ask(self, time: int, thread: int, row: int) -> None:
        table, run = self._table, self._run
        endpoint, kind = table.ends[row], table.asks[row]
        connects = table.connects[row]
        opened = self._opened.pop(endpoint, None)
        if opened is not None:
            owner, sure = opened
        elif self._is_certain(row):
            owner, sure = table.ruled[row], 1.0
        else:
            owner, sure = self._choose(time, thread, kind)
            if owner >= 0:
                run.waits.append(time - self._tokens[owner].ready)
                sure = self._tokens[owner].sure = min(sure, self._tokens[owner].sure)
        run.owner[row], run.sure[row] = owner, sure
        if owner >= 0:
            token = self._tokens[owner]
            self._leave(owner)
            if connects:
                self._opened[endpoint] = owner, sure
            else:
                token.history = (*token.history, kind)
                token.asked += 1
                token.last = row

    def _is_certain(self, row: int) -> bool:
        """Return whether the rules are sure; where answers come first, they are not to be."""
        table = self._table
        return not self._later and table.certain[row] and table.ruled[row] in self._tokens

    def _candidates(self, thread: int, kind: int) -> Iterable[tuple[int, float]]:
        """Return who may have asked this, and how probable it is for what they asked so far.

        They are of this thread, else of those that handed over to it.
        """
        queue = self._queues[thread]
        queues = [queue] if queue else [each for each in self._queues.values() if each]
        known, weights = self._known, self._known.weights[kind]
        could = []
        for each in queues:
            for history, alike in each.items():
                weight = weights.get(history)
                if weight is None:
                    weight = known.weigh(history, kind)
                if weight > -math.inf:
                    could.append((alike, weight))
        if len(could) == 1:
            alike, weight = could[0]
            return ((row, weight) for row in alike)
        lists = (
            [(at, row, weight) for row, at in islice(alike.items(), _CANDIDATES)]
            for alike, weight in could
        )
        return ((row, weight) for _, row, weight in merge(*lists))

    def _choose(self, time: int, thread: int, kind: int) -> tuple[int, float]:
        """Return the token that asks this, and how probably it is that one."""
        best, second, chosen, rank = -math.inf, -math.inf, NONE, 0.0
        rivals, tokens = [], self._tokens
        for row, usual in islice(self._candidates(thread, kind), _CANDIDATES):
            token = tokens[row]
            weight = usual - rank
            if self._delays is not None:
                weight += self._delays.weigh(token.history[-1], kind, time - token.ready)
            else:
                rank += _RANK
            rivals.append(token)
            if weight > best:
                best, second, chosen = weight, best, row
            elif weight > second:
                second = weight
        if len(rivals) < 2:
            return chosen, 0.99
        probable = 1 / (1 + math.exp(min(second - best, 50.0)))
        probable = max(probable, 0.5 / len(rivals))
        for token in rivals:  # if it was not the chosen one, it was one of these
            token.sure = min(token.sure, probable)
        return chosen, probable
