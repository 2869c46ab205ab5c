"""Who works for whom: sub-requests and slices of threads, attributed to requests.

The rules are in docs/requests.md; the pass that follows them is native (`_owners`).  Which of the
requests of a loop is next is not seen but follows from the order in which they became ready; what a
request may ask next is learned from the recording itself, and an answer shows where that was wrong.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np

from critpath.model import I32, I64, U8, Bool, Workers
from critpath.model.requests import (
    NONE,
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
from critpath.requests import _owners
from critpath.requests._finding import number_threads
from critpath.requests.pools import Pooled, find_units, judge_probability
from critpath.requests.rounds import Helpers, Pool, PoolStep, Step, follow_ends, try_orders
from critpath.requests.stretches import Parts
from critpath.schema.parameters.requests import OWNERS

NEVER: Final = np.iinfo(np.int64).max  # technical
CONNECTED: Final = 2  # technical: of an endpoint's opening
_LOW: Final = 0xFFFFFFFF  # technical: of a thread's key: its id
_MOST_NUMBERED: Final = 1 << 24  # technical: ids of all hosts that a table is made for


@dataclass(frozen=True, eq=False)
class Owned:
    """What was found.

    Attributes
    ----------
    subrequests : Subrequests
    slices : Slices
    exchanged : int
        How often an answer showed that two requests of a loop had been confused.
    followed : int64
        Processes with a loop of which it was followed what it hands over to helper threads.
    pooled : bool
        Which sub-requests threads of a pool ask for a loop that is told when they are done.
    """

    subrequests: Subrequests
    slices: Slices
    exchanged: int
    followed: I64
    pooled: Bool


def find_owners(
    activity: Activity,
    workers: Workers,
    endpoints: Endpoints,
    requests: RequestTable,
    subrequests: Subrequests,
    parts: Parts | None = None,
) -> Owned:
    """Attribute sub-requests and stretches of threads to requests.

    Parameters
    ----------
    activity : Activity
    workers : Workers
        Of the recording, for which threads are of one process.
    endpoints : Endpoints
    requests : RequestTable
        Turns at endpoints that serve.
    subrequests : Subrequests
        Turns at endpoints that ask; their columns of attribution are not read.
    parts : Parts, optional
        Of a recording with gaps: whose activity and endpoints these are.
    """
    return _Attribution(activity, workers, endpoints, requests, subrequests, parts).find()


def cut_subrequests(
    activity: Activity, endpoints: Endpoints, ends: I64 | None = None
) -> Subrequests:
    """Find the turns of endpoints that ask, and who opened their connections.

    A sub-request begins with the first send after an answer and ends with the answer's last
    receive; one without an answer is none, but for endpoints of which `ends` says when a gap began:
    it lasts until then.
    """
    moves = (activity.act == Act.SEND) | (activity.act == Act.RECEIVE)
    rows = np.flatnonzero(moves & (activity.endpoint >= 0))
    rows = rows[endpoints.serves[activity.endpoint[rows]] == 0]
    rows = rows[argsort_codes(activity.endpoint[rows], len(endpoints))]
    sends, of = activity.act[rows] == Act.SEND, activity.endpoint[rows]
    first = np.diff(of, prepend=-1) != 0
    begin = sends & (first | ~np.roll(sends, 1))
    begins = np.flatnonzero(begin)
    # The last row before the next begin, or of the endpoint, is its last receive.
    groups = np.flatnonzero(begin | first)
    stops = np.append(groups[1:], len(rows))[(np.cumsum(begin | first) - 1)[begins]]
    answered = ~sends[np.maximum(stops - 1, 0)]
    cut = np.full(len(endpoints), NEVER) if ends is None else ends
    goes_on = ~answered & (cut[of[begins]] < NEVER) & (np.append(first, True)[stops])
    answered |= goes_on
    asked = rows[begins[answered]]
    over = np.where(goes_on, cut[of[begins]], activity.time_ns[rows[stops - 1]])[answered]
    opened = np.flatnonzero(
        (activity.act == Act.OPEN) & (activity.value == CONNECTED) & (activity.tid >= 0)
    )
    opened = opened[endpoints.serves[activity.endpoint[opened]] == 0]
    both, over = np.concatenate([opened, asked]), np.concatenate([activity.time_ns[opened], over])
    order = np.argsort(activity.time_ns[both], kind="stable")
    both, over = both[order], over[order]
    many = len(both)
    return Subrequests(
        endpoint=activity.endpoint[both],
        begin_ns=activity.time_ns[both],
        end_ns=over,
        tid=activity.tid[both],
        request=np.full(many, NONE, np.int32),
        child=np.full(many, NONE, np.int32),
        how=np.full(many, Rule.NONE, np.uint8),
        attribution=np.full(many, Certainty.DOUBTFUL, np.uint8),
        connects=(activity.act[both] == Act.OPEN).astype(np.uint8),
    )


def find_targets(endpoints: Endpoints, subrequests: Subrequests) -> I64:
    """Return a number for whom each sub-request asks: an address and port, or a path."""
    asked = np.zeros(len(endpoints), np.bool_)
    asked[subrequests.endpoint] = True
    of = np.flatnonzero(asked)
    target = np.column_stack(
        [endpoints.remote_address[of], endpoints.remote_port[of], endpoints.path[of]]
    )
    number = np.zeros(len(endpoints), np.int64)
    number[of] = find_distinct(target)[1]
    return number[subrequests.endpoint]


def argsort_codes(codes: I32 | I64, many: int) -> I64:
    """Return the stable order of codes from 0 on: of few, in linear time."""
    return np.argsort(codes.astype(np.uint16) if many <= 1 << 16 else codes, kind="stable")


def thread_keys(host: I32, tid: I32 | I64) -> I64:
    """Return one number for a thread of a host."""
    keys: I64 = (host.astype(np.int64) << 32) | (tid.astype(np.int64) & 0xFFFFFFFF)
    return keys


def process_keys(workers: Workers, keys: I64) -> I64:
    """Return of threads (`thread_keys`) those of their processes; their own where none is known."""
    host, pid = workers.host.astype(np.int32), workers.pid
    threads = thread_keys(host, workers.tid)
    processes = np.where(pid > 0, thread_keys(host, pid), threads)
    order = np.argsort(threads, kind="stable")
    if not len(order):
        return keys
    last = np.searchsorted(threads[order], keys, side="right") - 1  # the latest of its lives
    of = order[np.maximum(last, 0)]
    return np.where((last >= 0) & (threads[of] == keys), processes[of], keys)


class _Attribution:
    """The tables as numbers, and the passes over them."""

    def __init__(
        self,
        activity: Activity,
        workers: Workers,
        endpoints: Endpoints,
        requests: RequestTable,
        subrequests: Subrequests,
        parts: Parts | None = None,
    ) -> None:
        self.activity, self.requests, self.subrequests = activity, requests, subrequests
        self.endpoints, self.workers, self._parts = endpoints, workers, parts
        host = endpoints.host[requests.endpoint]
        serving = [thread_keys(host, of) for of in (requests.reader_tid, requests.tid)]
        self.keys, self.thread, self.woken = number_threads(
            *(activity.act, activity.tid, activity.host, activity.value),
            np.concatenate(serving),
        )
        self._make_numbers()
        self.broken = np.zeros((0, 4), np.int64)  # what contradicts who waits for connections
        self.followed = np.zeros(len(self.keys), np.bool_)  # loops of which helpers are, too
        self.by_ends = self.followed.copy()  # loops whose order was found from both ends
        self._find_same()
        self._add_unanswered()
        self._find_kinds()
        self._make_pass()

    def _find_same(self) -> None:
        """Give threads one number through all stretches: what is usual for them is so in all."""
        keys = self.keys
        if self._parts is not None:
            keys = self._parts.stretches.own_keys(keys)
        each, self._same = np.unique(keys, return_inverse=True)
        self._same = self._same.reshape(-1)
        self._lives = len(each)

    def _sum_same(self, counts: I64) -> I64:
        """Return of each thread the sum over all stretches."""
        found: I64 = np.bincount(self._same, counts, self._lives)[self._same].astype(np.int64)
        return found

    def _make_numbers(self) -> None:
        """Make a table in which the numbers of threads are looked up, not searched for."""
        self._width = 2 + int((self.keys & _LOW).max(initial=0))
        hosts = 1 + (int(self.keys.max(initial=0)) >> 32)
        self._numbers: I64 = np.zeros(0, np.int64)
        if hosts * self._width <= _MOST_NUMBERED:
            self._numbers = np.full(hosts * self._width, len(self.keys), np.int64)
            self._numbers[self._place(self.keys)] = np.arange(len(self.keys))

    def _place(self, keys: I64) -> I64:
        return (keys >> 32) * self._width + (keys & _LOW)

    def _number(self, keys: I64) -> I64:
        """Return the numbers of threads; of those that have none, any or the first beyond."""
        if not len(self._numbers):
            found: I64 = np.searchsorted(self.keys, keys).astype(np.int64)
            return found
        known = (keys >> 32 < len(self._numbers) // self._width) & (keys & _LOW < self._width)
        places = self._place(keys)
        found = self._numbers[places if known.all() else np.where(known, places, 0)]
        return found if known.all() else np.where(known, found, len(self.keys))

    def _add_unanswered(self) -> None:
        """Make rows of requests, those that the recording's end left without an answer too.

        They wait in the queues of loops like all others, and ask.
        """
        requests, activity = self.requests, self.activity
        host = self.endpoints.host[requests.endpoint]
        reader = self._number(thread_keys(host, requests.reader_tid))
        longest = int((requests.end_ns - requests.begin_ns).max(initial=0))
        end = int(activity.time_ns[-1]) if len(activity) else 0
        after = np.full(len(self.endpoints), np.iinfo(np.int64).min)
        np.maximum.at(after, requests.endpoint, requests.end_ns)
        late = (activity.act == Act.RECEIVE) & (activity.time_ns >= end - longest)
        rows = np.flatnonzero(late & (self.thread >= 0) & (activity.endpoint >= 0))
        of = activity.endpoint[rows]
        closed = np.full(len(self.endpoints), np.iinfo(np.int64).min)
        ends = np.isin(activity.act, (Act.CLOSE, Act.FINISH)) & (activity.endpoint >= 0)
        np.maximum.at(closed, activity.endpoint[ends], activity.time_ns[ends])
        time = activity.time_ns[rows]
        rows = rows[(self.endpoints.serves[of] == 1) & (time > after[of]) & (time > closed[of])]
        _, first = np.unique(activity.endpoint[rows], return_index=True)
        rows = rows[np.sort(first)]
        time = activity.time_ns[rows]
        self.times = np.ascontiguousarray(
            np.vstack(
                [
                    np.column_stack([requests.begin_ns, requests.received_ns, requests.end_ns]),
                    np.column_stack([time, time, np.full(len(rows), end + 1)]),
                ]
            )
        )
        self.reader = np.concatenate([reader, self.thread[rows]]).astype(np.int32)
        self.at = np.concatenate([requests.endpoint, activity.endpoint[rows]])

    def _find_kinds(self) -> None:
        """Give numbers to services, sizes of requests, and what is asked."""
        requests, endpoints, many = self.requests, self.endpoints, len(self.requests)
        service = np.zeros(len(self.at), np.int64)
        service[:many] = requests.service
        size = np.zeros(len(self.at), np.int64)
        size[:many] = np.log(np.maximum(requests.bytes_in, 1)) / np.log(OWNERS.sizes)
        self.services, self.service = _rank(service)
        both = self.service * 1000 + size + 1
        each, inverse = _rank(both)
        counts = np.bincount(inverse, minlength=len(each))
        known = np.where(counts[inverse] >= OWNERS.few, both, self.service * 1000)
        _, self.root = _rank(known)
        self.asked = find_targets(endpoints, self.subrequests) + len(self.services)
        self.kinds = 1 + int(self.asked.max(initial=len(self.services) - 1))

    def _make_pass(self) -> None:
        requests, subrequests = self.requests, self.subrequests
        reader = self._same[self.reader].astype(np.int32)
        loops = find_loops(self.times, reader, self._lives)[self._same]
        self.loops = loops
        answerer = self._number(thread_keys(self.endpoints.host[requests.endpoint], requests.tid))
        answers = np.zeros(len(self.keys), np.int64)
        answers[answerer[answerer != self.reader[: len(requests)]]] = 1
        answers = np.minimum(self._sum_same(answers), 1)
        process = self.keys.copy()
        of = thread_keys(self.workers.host.astype(np.int32), self.workers.tid.astype(np.int32))
        at = self._number(of)
        there = (at < len(self.keys)) & (self.workers.pid > 0)
        there[there] &= self.keys[at[there]] == of[there]
        process[at[there]] = thread_keys(
            self.workers.host[there].astype(np.int32), self.workers.pid[there]
        )
        self.process, self.serving = process, answers > 0
        self.serving[self.reader] = True
        self.serving = self._sum_same(self.serving.astype(np.int64)) > 0
        row = np.where(loops, np.cumsum(loops) - 1, -1)
        endpoint = np.concatenate([self.at, subrequests.endpoint]).astype(np.int64)
        begin = np.concatenate([self.times[:, 0], subrequests.begin_ns])
        number = np.concatenate([np.arange(len(self.at)), np.arange(len(subrequests))])
        order = np.lexsort((begin, endpoint))
        first = np.searchsorted(endpoint[order], np.arange(len(self.endpoints) + 1))
        self.native = _owners.Owners(
            np.column_stack([self.times, self._find_clients()]),
            _columns(np.int32, self.reader, self.service),
            _columns(np.int64, subrequests.begin_ns, subrequests.end_ns),
            _columns(np.int32, subrequests.endpoint, self.asked, subrequests.connects),
            _columns(np.int64, process, row, answers),
            first.astype(np.int32),
            number[order].astype(np.int32),
            (self.endpoints.serves == 1).astype(np.uint8),
        )

    def _find_clients(self) -> I64:
        """Return the process that asks for each request, -1 where it was not recorded."""
        subs = self.subrequests
        asker = self._number(thread_keys(self.endpoints.host[subs.endpoint], subs.tid))
        known = asker < len(self.keys)
        client = np.full(len(self.endpoints) + 1, NONE, np.int64)  # the last is no peer's
        client[subs.endpoint[known]] = self.process[asker[known]]
        found: I64 = client[self.endpoints.peer[self.at]]
        return found

    def _run(self, lead: I32, learned: _Learned | None = None, given: I32 | None = None) -> I64:
        """Make the pass; return the sub-requests' owners, of which some may be given."""
        activity = self.activity
        blank = np.zeros((0, self.kinds), np.int32)
        known = np.full(len(self.subrequests), NONE, np.int32)
        if given is not None and len(given):  # nobody asks before he was received
            asked = self.subrequests.begin_ns > self.times[given, 1]
            known[asked] = given[asked]
        self.native.run(
            *(activity.time_ns, activity.act, self.thread, activity.endpoint, self.woken, lead),
            np.full(len(self.at), -1, np.int32) if learned is None else learned.root,
            blank if learned is None else learned.child,
            blank.astype(np.uint8) if learned is None else learned.may,
            known,
        )
        return self.native.take_owners()

    def find(self) -> Owned:
        """Make the passes that are needed, and the tables."""
        threads = len(self.keys)
        lead = np.zeros(threads, np.int32)
        owners = self._run(lead)
        fewest = self._count_heals()
        if fewest.any():
            best = lead.copy()
            for tried in OWNERS.leads:
                every = np.full(threads, tried, np.int32)
                learned = self._learn(self._run(every))
                self._run(every, learned)
                heals = self._count_heals()
                best[heals < fewest] = tried
                fewest = np.minimum(fewest, heals)
            owners = self._run(best)
            plain = self._count_heals()
            kept: _Learned | None = self._learn(owners)
            owners = self._run(best, kept)
            if self._count_heals().sum() > plain.sum():
                kept = None
                owners = self._run(best)
            owners, given = self._try_pools(owners, best, kept)
            owners = self._try_ends(owners, best, kept, given)
        elif self._helped.any():
            owners, _ = self._try_pools(owners, lead, None)
        return self._make_tables(owners)

    def _try_pools(self, owners: I64, lead: I32, learned: _Learned | None) -> tuple[I64, I32]:
        """Follow who waits for a connection, on loops where this is contradicted less often."""
        heals = self._count_heals()
        subs = self.subrequests
        asker = self._number(thread_keys(self.endpoints.host[subs.endpoint], subs.tid))
        given = np.full(len(subs), -1, np.int32)
        broken = np.zeros((0, 4), np.int64)
        for number in np.flatnonzero(self.loops).tolist():
            mine = np.flatnonzero(asker == number)
            if len(np.unique(self.asked[mine])) != 1:
                continue
            tried = [each for each in (self._follow_rounds(number, mine),) if each is not None]
            few = OWNERS.contradicted * np.count_nonzero(self.reader == number)
            self.followed[number] = any(len(np.unique(lost[:, 2])) <= few for _, lost in tried)
            if heals[number] > 0 and not self.followed[number]:
                tried.append(self._follow_pool(number, mine))
            if tried:
                found, lost = min(tried, key=lambda each: len(each[1]))
                given[mine] = found
                broken = np.vstack([broken, lost])
        if not (given >= 0).any():
            return owners, given
        self._run(lead, learned, given)
        with_pools = self._count_heals() + np.bincount(broken[:, 1], minlength=len(heals))
        better = (with_pools < heals) | self.followed
        given[~better[asker]] = -1
        self.broken = broken[better[broken[:, 1]]]
        return self._run(lead, learned, given), given

    def _try_ends(self, owners: I64, lead: I32, learned: _Learned | None, given: I32) -> I64:
        """Say who asked from both ends where no order held: with sleeps, it follows from answers.

        All of it stays doubtful.
        """
        subs, wrong = self.subrequests, self._count_heals()
        wrong += self._sum_same(np.bincount(self.broken[:, 1], minlength=len(wrong)))
        asker = self._number(thread_keys(self.endpoints.host[subs.endpoint], subs.tid))
        many = self._sum_same(np.bincount(self.reader, minlength=len(self.keys)))
        doubted = (wrong > OWNERS.exchanged * many) | self._find_odd(owners[:, 0])
        for number in np.flatnonzero(self.loops & ~self.followed & doubted).tolist():
            mine = np.flatnonzero(asker == number)
            if subs.connects[mine].any() or len(np.unique(self.asked[mine])) != 1:
                continue  # tokens tell apart who asks different services
            found = follow_ends(self._list_steps(number, mine))
            if found is not None:
                given[mine] = [found.get(row, -1) for row in mine.tolist()]
                self.by_ends[number] = True
        return self._run(lead, learned, given) if self.by_ends.any() else owners

    def _list_steps(self, number: int, mine: I64) -> list[tuple[int, Step, int, int]]:
        """Return what happens on a loop, as far as `follow_ends` looks at it."""
        received = np.flatnonzero(self.reader == number)
        sent = received[received < len(self.requests)]
        kinds = (
            (self.times[received, 1], Step.RECEIVE, received),
            (self.subrequests.end_ns[mine], Step.RESULT, mine),
            (self.subrequests.begin_ns[mine], Step.ASK, mine),
            (self.requests.answered_ns[sent], Step.ANSWER, sent),
        )
        return sorted(
            (time, step, row, 0)
            for times, step, of in kinds
            for time, row in zip(times.tolist(), of.tolist(), strict=True)
        )

    def _follow_pool(self, number: int, mine: I64) -> tuple[I32, I64]:
        """Return whose a loop's sub-requests are if its requests share connections to a service.

        Who finds none free waits, and is woken when one is given back; who comes to that point
        before the woken one does takes it, and the woken one waits anew.  All this follows from
        the order of receives, and how many connections are in use.  What contradicts it comes
        second, as rows of `Doubts`.
        """
        requests, subs, many = self.requests, self.subrequests, len(self.requests)
        received = np.flatnonzero(self.reader == number)
        sent = received[received < many]
        asks, connects = mine[subs.connects[mine] == 0], mine[subs.connects[mine] == 1]
        opened = np.isin(subs.endpoint[asks], subs.endpoint[connects])
        kinds = (
            (self.times[received, 1], received, PoolStep.RECEIVE),
            (requests.answered_ns[sent], sent, PoolStep.ANSWER),
            (subs.begin_ns[asks], asks, PoolStep.ASK),
            (subs.end_ns[asks], asks, PoolStep.RESULT),
            (subs.begin_ns[connects], connects, PoolStep.OPEN),
        )
        time = np.concatenate([times for times, _, _ in kinds])
        rows = np.concatenate([rows for _, rows, _ in kinds])
        steps = np.concatenate([np.full(len(rows), step) for _, rows, step in kinds])
        order = np.lexsort((steps, time))
        pool = Pool(len(np.unique(subs.endpoint[asks[~opened]])), subs.endpoint.tolist())
        broken = []
        for moment, row, step in zip(
            time[order].tolist(), rows[order].tolist(), steps[order].tolist(), strict=True
        ):
            against = pool.follow(step, row)
            if against >= 0:
                broken.append((moment, number, against, against))
        owner = np.array([pool.owner.get(row, -1) for row in mine.tolist()], np.int32)
        return owner, np.array(broken, np.int64).reshape(-1, 4)

    @cached_property
    def _helpers(self) -> Helpers:
        return Helpers(self.activity, self.endpoints, self.thread, self.woken)

    def _list_backs(self, number: int) -> I64:
        """Return when helpers were done that tell a loop so, in order."""
        threads = np.flatnonzero((self.process == self.process[number]) & ~self.serving)
        times = self._helpers.hand_backs(number, threads.tolist()).values()
        return np.sort(np.array([done for _, done in chain.from_iterable(times)], np.int64))

    @cached_property
    def _hands_over(self) -> Bool:
        """Mark loops that hand requests over to threads of their process."""
        activity, many = self.activity, len(self.keys)
        wakes = np.flatnonzero((activity.act == Act.WAKE) & (self.thread >= 0) & (self.woken >= 0))
        by, woken = self.thread[wakes], self.woken[wakes]
        helps = self.process[by] == self.process[woken]
        helps &= ~self.serving[woken] & self.loops[by]
        handed = self._sum_same(np.bincount(by[helps], minlength=many))
        all_of = self._sum_same(np.bincount(self.reader[: len(self.requests)], minlength=many))
        result: Bool = self.loops & (all_of > 0) & (handed > OWNERS.odd * all_of)
        return result

    @cached_property
    def _helped(self) -> Bool:
        """Mark those of them that the threads tell when they are done, as executors do.

        Who of them is done first, no order of the loop says, and mostly nothing contradicts it.
        """
        helped = np.zeros(len(self.keys), np.bool_)
        for number in np.flatnonzero(self._hands_over).tolist():
            helped[number] = len(self._list_backs(number)) > 0
        return self._sum_same(helped.astype(np.int64)) > 0

    def _follow_rounds(self, number: int, mine: I64) -> tuple[I32, I64] | None:
        """Return the same for a loop that hands its requests over to helpers that tell it so."""
        requests, subs, helpers = self.requests, self.subrequests, self._helpers
        back = self._list_backs(number)
        if not len(back) or subs.connects[mine].any():
            return None
        received = np.flatnonzero(self.reader == number)
        sent = received[received < len(requests)]
        since = helpers.ready_since(number)
        at, got = self.times[received, 1], subs.end_ns[mine]
        ready = np.concatenate([at, got])
        ready = np.array([since.get(time, time) for time in ready.tolist()], np.int64)
        none = np.zeros(0, np.int64)
        kinds = (
            (at, Step.RECEIVE, received, self.times[received, 0]),
            (got, Step.RESULT, mine, helpers.arrived(subs.endpoint[mine], got)),
            (ready, Step.BECOME_READY, np.concatenate([received, ~mine]), none),
            (back, Step.HAND_BACK, back, none),
            (subs.begin_ns[mine], Step.ASK, mine, none),
            (requests.answered_ns[sent], Step.ANSWER, sent, none),
        )
        rows = [
            (time, step, row, arrival)
            for times, step, of, arrived in kinds
            for time, row, arrival in zip(
                times.tolist(),
                of.tolist(),
                arrived.tolist() if len(arrived) else [0] * len(times),
                strict=True,
            )
        ]
        followed = try_orders(sorted(rows), len(np.unique(subs.endpoint[mine])))
        if followed is None:
            return None
        broken = [(time, number, against, against) for time, against in followed.broken]
        owner = np.array([followed.owner.get(row, -1) for row in mine.tolist()], np.int32)
        return owner, np.array(broken, np.int64).reshape(-1, 4)

    def _follow_pools(self) -> Pooled:
        """Say who asked where threads of a pool ask for a loop (`critpath.requests.pools`)."""
        subs = self.subrequests
        asker = self._number(thread_keys(self.endpoints.host[subs.endpoint], subs.tid))
        # (A thread that did nothing has no number.)
        aside = (subs.connects == 0) & ~np.append(self.serving, True)[asker]
        process = np.append(self.process, -1)[asker]
        pooled = Pooled(len(subs))
        for number in np.flatnonzero(self.loops).tolist():
            rows = np.flatnonzero(aside & (process == self.process[number]))
            of = {int(t): rows[asker[rows] == t] for t in np.unique(asker[rows])}
            if not of:
                continue
            asks = {t: (subs.begin_ns[mine], subs.end_ns[mine]) for t, mine in of.items()}
            received = np.flatnonzero(self.reader == number)
            received = received[np.argsort(self.times[received, 1], kind="stable")]
            found = find_units(self._helpers, number, asks)
            pooled.add(*found, of, received, self.times[received])
        return pooled

    def _count_heals(self) -> I64:
        heals = np.bincount(self.native.take_heals()[:, 1], minlength=len(self.keys))
        return self._sum_same(heals)

    def _learn(self, owners: I64) -> _Learned:
        """Learn what requests ask, and after what, from whom they were attributed to."""
        rows = np.flatnonzero((owners[:, 0] >= 0) & (self.subrequests.connects == 0))
        rows = rows[np.argsort(owners[rows, 3])]
        return _learn(owners[rows, 0], self.asked[rows], self.root, self.kinds)

    # ------------------------------------------------------------------ tables

    def _make_tables(self, owners: I64) -> Owned:
        many = len(self.requests)
        heals = self.native.take_heals()
        request, how, sure = owners[:, 0], owners[:, 1], owners[:, 2]
        contended = self._find_contended(how)
        contended = contended[np.isin(contended[:, 1], heals[:, 1])]
        odd = self._find_odd(request)
        # One mistake about who waits for a helper goes on unseen: one that is seen doubts all.
        broken = np.bincount(self.broken[:, 1], minlength=len(self.keys))
        trusted = self.followed & (self._sum_same(broken) == 0)
        odd |= self._helped & ~trusted
        doubt = Doubts(
            np.vstack([heals, contended, self.broken]),
            odd,
            self.times[:, 0],
            self.reader,
            self._same,
        )
        asker = thread_keys(self.endpoints.host[self.subrequests.endpoint], self.subrequests.tid)
        # A connection's first sub-request is as sure as its opening.
        chosen = (how == Rule.ORDER) | (how == Rule.RESUME)
        chosen[chosen] = doubt.cover(self._number(asker[chosen]), self.subrequests.begin_ns[chosen])
        sure = np.where(chosen, Certainty.DOUBTFUL, sure)
        process, wanders = self._find_wanderers()
        rows = np.flatnonzero(np.isin(process, wanders))
        only = self._find_only(process[rows], self.subrequests.begin_ns[rows])
        request[rows] = np.where(only >= 0, only, request[rows])
        how[rows[only >= 0]] = Rule.ALONE
        sure[rows] = np.where(only >= 0, Certainty.CERTAIN, Certainty.DOUBTFUL)
        pooled = self._follow_pools()
        owner, probable = pooled.owner, pooled.probability
        request, how = np.where(
            owner >= 0, (owner, np.full(len(how), Rule.ASSIGNED)), (request, how)
        )
        sure = np.where(owner >= 0, judge_probability(probable), sure)
        nobody = (request < 0) | (request >= many)
        subrequests = dataclasses.replace(
            self.subrequests,
            request=np.where(nobody, -1, request).astype(np.int32),
            how=np.where(nobody, Rule.NONE, how).astype(np.uint8),
            attribution=np.where(nobody, Certainty.DOUBTFUL, sure).astype(np.uint8),
            probability=np.zeros(0),  # by the certainty
        )
        known = np.where((owner >= 0) & ~nobody, probable, subrequests.probability)
        subrequests = dataclasses.replace(subrequests, probability=known)
        followed = np.unique(self.process[self.followed])
        slices = self._make_slices(doubt, wanders, pooled)
        return Owned(subrequests, slices, len(heals), followed, owner >= 0)

    def _find_wanderers(self) -> tuple[I64, I64]:
        """Return of sub-requests the processes, and those in which work goes from thread to thread.

        As goroutines do: what a thread received does not tell whose work it does next.
        """
        activity, subs = self.activity, self.subrequests
        asker = self._number(thread_keys(self.endpoints.host[subs.endpoint], subs.tid))
        process = np.append(self.process, -1)[asker]  # (a thread that did nothing has no number)
        asked = np.flatnonzero((subs.connects == 0) & (process >= 0))
        at = np.searchsorted(activity.time_ns, subs.end_ns[asked])
        asked, at = asked[at < len(activity)], at[at < len(activity)]  # a gap may be the end
        found = (activity.endpoint[at] == subs.endpoint[asked]) & (activity.act[at] == Act.RECEIVE)
        moved = found & (activity.tid[at] != subs.tid[asked])
        every, of = np.unique(process[asked], return_inverse=True)
        own = every if self._parts is None else self._parts.stretches.own_keys(every)
        _, same = np.unique(own, return_inverse=True)
        of_same = same.reshape(-1)[of.reshape(-1)]
        count = np.bincount(of_same, minlength=len(every))
        many = np.bincount(of_same[moved], minlength=len(every)) > OWNERS.wanders * count
        return process, every[(many & (count >= OWNERS.few))[same.reshape(-1)]]

    def _find_only(self, process: I64, time: I64) -> I64:
        """Return the only request that is under way in processes at times; -1 if it is not one."""
        only = np.full(len(time), -1, np.int64)
        for each in np.unique(process).tolist():
            mine = np.flatnonzero(process == each)
            rows = np.flatnonzero(self.process[self.reader] == each)
            rows = rows[np.argsort(self.times[rows, 0], kind="stable")]
            if not len(rows):
                continue
            begun = np.searchsorted(self.times[rows, 0], time[mine], side="right")
            ended = np.searchsorted(np.sort(self.times[rows, 2]), time[mine])
            last = rows[np.maximum(begun - 1, 0)]
            alone = (begun - ended == 1) & (self.times[last, 2] >= time[mine])
            only[mine[alone]] = last[alone]
        return only

    def _find_contended(self, how: I64) -> I64:
        """Find departures of loops that took the last free connection to a service.

        Who waits for a connection is overtaken by who asks as one is given back: the order of
        the queue says nothing then.  Rows are as those of heals, of the request that was chosen.
        """
        subs = self.subrequests
        rows = np.flatnonzero(subs.connects == 0)
        rows = rows[np.argsort(subs.begin_ns[rows], kind="stable")]
        asker = self._number(thread_keys(self.endpoints.host[subs.endpoint[rows]], subs.tid[rows]))
        request = self.native.take_owners()[:, 0]
        found = []
        groups = asker * self.kinds + self.asked[rows]
        for group in np.unique(groups[how[rows] == Rule.ORDER]).tolist():
            mine = rows[groups == group]
            begin, end = subs.begin_ns[mine], np.sort(subs.end_ns[mine])
            under_way = np.arange(1, len(mine) + 1) - np.searchsorted(end, begin, side="left")
            full = (under_way >= len(np.unique(subs.endpoint[mine]))) & (how[mine] == Rule.ORDER)
            of = request[mine[full]]
            thread = np.full(len(of), group // self.kinds)
            found.append(np.column_stack([begin[full], thread, of, of]))
        none = np.zeros((0, 4), np.int64)
        moments = np.vstack([none, *found])
        # In doubt until all that were there then are answered: until that one is, at least.
        moments[:, 0] = np.maximum(moments[:, 0], self.times[moments[:, 2], 2])
        return moments

    def _find_odd(self, request: I64) -> Bool:
        """Find loops of which too many requests ask another number of times, or are handed over."""
        rows = (request >= 0) & (self.subrequests.connects == 0)
        asked = np.bincount(request[rows], minlength=len(self.at))[: len(self.requests)]
        root, reader = self.root[: len(asked)], self.reader[: len(asked)]
        usual = np.zeros(int(root.max(initial=-1)) + 1, np.int64)
        for each in np.unique(root).tolist():
            usual[each] = np.bincount(asked[root == each]).argmax()
        odd = self._sum_same(np.bincount(reader, asked != usual[root], minlength=len(self.keys)))
        all_of = self._sum_same(np.bincount(reader, minlength=len(self.keys)))
        # Nor is the order of a loop known that hands requests over to helpers.
        # (What runs at once, as Node does, has helpers too, and is never contradicted.)
        confused = self._count_heals() > 0
        unseen = confused & ~self.followed & self._hands_over
        odd_one = (odd > OWNERS.odd * all_of) | unseen
        result: Bool = (self.loops & (all_of >= OWNERS.few) & odd_one) | self.by_ends
        return result

    def _make_slices(self, doubt: Doubts, wanders: I64, pooled: Pooled) -> Slices:
        """Make the table; steps of loops that are not direct, or in doubt, are shared.

        So is what threads do among which work wanders, while there are several requests.
        """
        slices = self.native.take_slices()
        rows = self._same[self.loops]  # of loops, whose steps these are
        receives, closed = (_sum_rows(steps, rows) for steps in self.native.take_steps())
        del self.native  # it has as much again
        direct = closed >= OWNERS.direct * receives
        row = np.cumsum(self.loops) - 1
        step = np.flatnonzero(slices[:, 7] >= 0)
        thread, kind = slices[step, 0], slices[step, 7]
        shared = ~direct[row[thread], kind] | doubt.cover(thread, slices[step, 2])
        of_answer = (kind >= len(self.services)) & (slices[step, 5] == Rule.RESUME)
        slices[step[of_answer], 6] = Certainty.LIKELY
        slices[step[shared], 3] = -1
        slices[step[shared], 5] = Rule.NONE
        slices[step[shared], 6] = Certainty.DOUBTFUL
        process = self.process[slices[:, 0]]
        rows = np.flatnonzero(np.isin(process, wanders) & (slices[:, 3] >= 0))
        ends = (self._find_only(process[rows], slices[rows, column]) for column in (1, 2))
        rows = rows[np.any([one != slices[rows, 3] for one in ends], axis=0)]
        slices[rows, 3], slices[rows, 5] = -1, Rule.NONE
        slices[rows, 6] = Certainty.DOUBTFUL
        units = pooled.slices()
        if len(units):
            slices = np.vstack([slices[~np.isin(slices[:, 0], units[:, 0])], units])
        # What the end of the recording left without an answer is no request of the table.
        kept = np.flatnonzero(slices[:, 3] < len(self.requests))
        slices = slices[kept[np.argsort(slices[kept, 1], kind="stable")]]
        run, cpus = self._spend(slices[:, 0], slices[:, 1], slices[:, 2])
        key = self.keys[slices[:, 0]]
        return Slices(
            tid=(key & 0xFFFFFFFF).astype(np.int32),
            host=(key >> 32).astype(np.int32),
            begin_ns=slices[:, 1],
            end_ns=slices[:, 2],
            request=slices[:, 3].astype(np.int32),
            unanswered=slices[:, 4].astype(np.int32),
            how=slices[:, 5].astype(np.uint8),
            attribution=slices[:, 6].astype(np.uint8),
            run_ns=run,
            idle_ns=slices[:, 2] - slices[:, 1] - run,
            cpus=cpus,
        )

    def _spend(self, thread: I64, begin: I64, end: I64) -> tuple[I64, I64]:
        """Return for how long threads ran between two times, and a bit for each of their cpus."""
        activity = self.activity
        acts = (Act.RUN, Act.SLEEP, Act.PREEMPT, Act.EXIT)
        rows = np.flatnonzero(np.isin(activity.act, acts) & (self.thread >= 0))
        rows = rows[argsort_codes(self.thread[rows], len(self.keys))]
        bounds = np.searchsorted(self.thread[rows], np.arange(len(self.keys) + 1))
        order = argsort_codes(thread, len(self.keys))
        ends = np.searchsorted(thread[order], np.arange(len(self.keys) + 1))
        run, cpus = np.zeros(len(thread), np.int64), np.zeros(len(thread), np.int64)
        for number in np.unique(thread):
            mine = rows[bounds[number] : bounds[number + 1]]
            of = order[ends[number] : ends[number + 1]]
            time, act = activity.time_ns[mine], activity.act[mine]
            if not len(mine):
                run[of] = end[of] - begin[of]  # it was never seen to stop
                continue
            bits = np.int64(1) << np.minimum(np.maximum(activity.value[mine], 0), 62)
            run[of], cpus[of] = _spend_one(time, act == Act.RUN, bits, begin[of], end[of])
        return run, cpus


class Doubts:
    """When the order of a loop's requests was seen to be wrong.

    No request is answered before a sub-request of its own is.  Where that would be, two requests
    were confused at some time since both are there; all that was chosen by order until then is
    in doubt.  A loop on which it happens often is in doubt everywhere.

    Parameters
    ----------
    moments : int64 [n, 4]
        Time, thread, the request that was answered, and the one it was exchanged with; or a
        request that was chosen where the queue says nothing, until its end.
    odd : bool [threads]
        Loops whose requests ask now one number of times and now another.
    begin : int64 [requests]
    reader : int32 [requests]
    same : int64 [threads], optional
        The number that a thread has through all stretches between gaps.
    """

    def __init__(
        self, moments: I64, odd: Bool, begin: I64, reader: I32, same: I64 | None = None
    ) -> None:
        same = np.arange(len(odd)) if same is None else same
        moved = np.bincount(same[moments[:, 1]], minlength=len(same))
        often = moved > OWNERS.exchanged * np.bincount(same[reader], minlength=len(same))
        self._begin: dict[int, I64] = {}
        self._end: dict[int, I64] = {}
        for number in np.flatnonzero(odd).tolist():
            self._begin[number] = np.array([np.iinfo(np.int64).min])
            self._end[number] = np.array([np.iinfo(np.int64).max])
        for number in np.setdiff1d(moments[:, 1], np.flatnonzero(odd)).tolist():
            mine = moments[moments[:, 1] == number]
            since = np.minimum(begin[mine[:, 2]], begin[mine[:, 3]])
            if often[same[number]]:
                since[:] = np.iinfo(np.int64).min
                mine[:, 0] = np.iinfo(np.int64).max
            # In order of time; a later one may reach back further.
            order = np.argsort(mine[:, 0], kind="stable")
            self._end[number] = mine[order, 0]
            self._begin[number] = np.minimum.accumulate(since[order][::-1])[::-1]

    def cover(self, thread: I64, time: I64) -> Bool:
        """Return which moments of threads are in doubt."""
        doubt = np.zeros(len(time), np.bool_)
        for number, end in self._end.items():
            mine = np.flatnonzero(thread == number)
            at = np.searchsorted(end, time[mine])
            inside = at < len(end)
            doubt[mine[inside]] = time[mine[inside]] >= self._begin[number][at[inside]]
        return doubt


def spend_thread(activity: Activity, key: int, begin: I64, end: I64) -> tuple[I64, I64]:
    """Return for how long a thread ran between two times, and a bit for each of its cpus."""
    acts = (Act.RUN, Act.SLEEP, Act.PREEMPT, Act.EXIT)
    mine = thread_keys(activity.host, activity.tid) == key
    rows = np.flatnonzero(mine & np.isin(activity.act, acts))
    if not len(rows) or not len(begin):
        return end - begin, np.zeros(len(begin), np.int64)  # it was never seen to stop
    bits = np.int64(1) << np.minimum(np.maximum(activity.value[rows], 0), 62)
    return _spend_one(activity.time_ns[rows], activity.act[rows] == Act.RUN, bits, begin, end)


def _spend_one(time: I64, runs: Bool, bits: I64, begin: I64, end: I64) -> tuple[I64, I64]:
    """Return the same for one thread: it runs from each of its times on, or does not."""
    before = not runs[0]  # what stops had been running
    first = min(int(time[0]), int(begin.min()))
    last = max(int(time[-1]), int(end.max()))
    time = np.concatenate([[first], time, [last]])
    runs = np.concatenate([[before], runs])
    done = np.concatenate([[0], np.cumsum(np.where(runs, np.diff(time), 0))])
    spent = []
    for moment in (begin, end):
        at = np.minimum(np.searchsorted(time, moment, side="right") - 1, len(runs) - 1)
        spent.append(done[at] + np.where(runs[at], moment - time[at], 0))
    on = np.flatnonzero(runs[1:])
    if not len(on):
        return spent[1] - spent[0], np.zeros(len(begin), np.int64)
    start = np.maximum(np.searchsorted(time[1 + on], begin, side="right") - 1, 0)
    stop = np.maximum(np.searchsorted(time[1 + on], end), start + 1)
    both = np.column_stack([start, stop]).reshape(-1)
    cpus = np.bitwise_or.reduceat(np.append(bits[on], 0), both)[::2]
    return spent[1] - spent[0], cpus


@dataclass(frozen=True)
class _Learned:
    """What requests ask, by what they asked before: a tree of histories."""

    root: I32
    child: I32
    may: U8


def _learn(request: I64, kind: I64, root: I64, kinds: int) -> _Learned:
    """Count what followed what, and keep what is not seldom.

    Parameters
    ----------
    request, kind : int64
        Of sub-requests, in order of departure.
    root : int64 [requests]
        Which requests begin alike.
    """
    order = np.argsort(request, kind="stable")
    request, kind = request[order], kind[order]
    some = np.arange(int(root.max(initial=-1)) + 1)
    nodes: dict[tuple[int, ...], int] = {(int(r),): int(r) for r in some}
    counts: list[Counter[int]] = [Counter() for _ in nodes]
    ends = np.searchsorted(request, np.arange(len(root) + 1))
    for row in range(min(len(root), OWNERS.learned_from)):
        history: tuple[int, ...] = (int(root[row]),)
        for asked in kind[ends[row] : ends[row + 1]][: OWNERS.depth].tolist():
            counts[nodes[history]][asked] += 1
            history = (*history, asked)
            if history not in nodes:
                nodes[history] = len(nodes)
                counts.append(Counter())
        counts[nodes[history]][-1] += 1
    child = np.full((len(nodes), kinds), -1, np.int32)
    may = np.zeros((len(nodes), kinds), np.uint8)
    for history, node in nodes.items():
        if len(history) > 1:
            child[nodes[history[:-1]], history[-1]] = node
        total = counts[node].total()
        for asked, many in counts[node].items():
            if asked >= 0:
                may[node, asked] = many >= OWNERS.seldom * total
    return _Learned(root.astype(np.int32), child, may)


def find_loops(times: I64, reader: I32, threads: int) -> Bool:
    """Return which threads receive a request while they owe the answer to another."""
    loops = np.zeros(threads, np.bool_)
    order = np.lexsort((times[:, 1], reader))
    bounds = np.searchsorted(reader[order], np.arange(threads + 1))
    for number in np.unique(reader):
        mine = order[bounds[number] : bounds[number + 1]]
        answered = np.maximum.accumulate(times[mine, 2])
        loops[number] = bool((times[mine[1:], 1] < answered[:-1]).any())
    return loops


def _sum_rows(counts: I64, same: I64) -> I64:
    """Return of each row the sum over all that are the same."""
    every = np.zeros((int(same.max(initial=-1)) + 1, counts.shape[1]), np.int64)
    np.add.at(every, same, counts)
    summed: I64 = every[same]
    return summed


def _rank(codes: I64) -> tuple[I64, I64]:
    """Return the numbers that there are, and the place of each among them."""
    if int(codes.max(initial=0)) > _MOST_NUMBERED:
        every, place = np.unique(codes, return_inverse=True)
        return every, place.reshape(-1)
    there = np.bincount(codes) > 0
    return np.flatnonzero(there), (np.cumsum(there) - 1)[codes]


def _columns(dtype: type[Any], *columns: np.ndarray[Any, Any]) -> Any:
    """Return columns as the native pass reads them."""
    return np.ascontiguousarray(np.column_stack(columns), dtype)
