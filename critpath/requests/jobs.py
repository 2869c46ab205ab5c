"""Jobs: what a program does for messages that it takes from a queue.

Each becomes a request of its own, that begins when its message was put into the queue and ends when
the next is asked for, or this one is acknowledged: so all that holds for requests holds for jobs.
Where nothing tells of an end, as with NATS, it ends when its thread has nothing left to do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from itertools import pairwise

import numpy as np

from critpath.model import F64, I32, I64, Bool, State
from critpath.model.details import Detail
from critpath.model.requests import (
    NONE,
    PROBABLE,
    Act,
    Activity,
    Certainty,
    Endpoints,
    Passed,
    RequestTable,
    Slices,
    Subrequests,
)
from critpath.model.vectors import find_distinct
from critpath.records import dataclass
from critpath.requests.brokers import Delivered, find_delivered
from critpath.requests.connections import Waits
from critpath.requests.crossings import OperationRows
from critpath.requests.endpoints import NAMELESS
from critpath.requests.endpoints import EndpointColumn as Column
from critpath.requests.owners import thread_keys
from critpath.requests.streams import Streams
from critpath.schema.notes import MessagesPassed
from critpath.schema.parameters.requests import BROKERS

# Where a row comes that is put in beside another.
_BEFORE, _SAME, _AFTER = range(3)


@dataclass(frozen=True, eq=False)
class Messages:
    """Messages that went through brokers, and the jobs that they became.

    Attributes
    ----------
    endpoint : int64 [messages]
        Of the job, at which it is a request.
    put_endpoint, put_tid, put_host, put_ns : int64 [messages]
        Who put it into the queue, over which connection, and when.
    received_ns : int64 [messages]
        When it was received.
    before : int64 [messages]
        How many were in the queue when it was put there.
    probability : float64 [messages]
        That it is the message that was put there.
    broker : mapping of int to str
        By endpoint of a job, whose queue: ``redis-server:6379``.
    """

    endpoint: I64
    put_endpoint: I64
    put_tid: I64
    put_host: I64
    put_ns: I64
    received_ns: I64
    before: I64
    probability: F64
    broker: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.endpoint)


@dataclass(slots=True)
class _Job:
    """What is done for messages that came over a connection: rows of the activity."""

    at: int  # the endpoint
    received: int
    begun: int  # where it is its turn: its receive, or the end of the one before
    messages: list[int]
    end: int = NONE
    asks_again: bool = False  # the end is a question that has an answer of its own
    mixed: bool = False  # the end may be of another message, that was not found
    sleeps: bool = False  # the end is a sleep


def split_jobs(streams: Streams, name: Callable[[int, int], str]) -> tuple[Streams, Messages]:
    """Give each job an endpoint of its own, where it is a request.

    Parameters
    ----------
    streams : Streams
        What was collected.
    name : callable
        What the process of a host's thread is called.
    """
    delivered = find_delivered(streams.collected, streams.endpoints, name)
    maker = _Maker(streams, delivered, name)
    return maker.make()


class _Maker:
    """Makes the jobs of messages, and takes what brings and ends them out of their connections."""

    def __init__(
        self, streams: Streams, delivered: Delivered, name: Callable[[int, int], str]
    ) -> None:
        self._streams, self._delivered, self._name = streams, delivered, name
        self._acts, self._endpoints = streams.activity, streams.endpoints
        self._of: dict[int, list[int]] = defaultdict(list)  # the messages of each receive
        answers = self._find_answers()
        for place, row in enumerate(delivered.row.tolist()):
            if place not in answers:
                self._of[row].append(place)
        self._jobs: list[_Job] = []
        self._fetches: list[int] = []  # rows that ask for messages, or say that they are done
        self._rows: dict[Act, OperationRows] = {}

    def _find_answers(self) -> set[int]:
        """Return the messages that a thread waits for: of who received what it put last."""
        acts = self._acts
        sent, got = self._delivered.put.tolist(), self._delivered.row.tolist()
        # A send is recorded when its call ends: what it sent may have been received by then.
        puts = [
            (min(one, other), 0, at) for at, (one, other) in enumerate(zip(sent, got, strict=True))
        ]
        steps = sorted(puts + [(row, 1, at) for at, row in enumerate(got)])
        last: dict[tuple[int, int], int] = {}  # what each thread put last, and who received it
        taker: dict[int, tuple[int, int]] = {}
        asked: dict[int, int] = {}
        answers: set[int] = set()
        if not len(self._delivered):
            return answers
        heard: dict[tuple[int, int], int] = {}  # when each thread received its last message
        served = self._find_served()
        for row, received, message in steps:
            by = row if received else sent[message]
            thread = int(acts.host[by]), int(acts.tid[by])
            if received:
                taker[message], heard[thread] = thread, row
                if asked.get(message, NONE) >= 0 and last.get(thread) == asked[message]:
                    answers.add(message)
                continue
            last[thread] = message
            # What this thread received from the one that this message goes to.
            question = _find_question(got[message], thread, taker, last, acts)
            # What it puts there for a request that it received since then answers no message.
            rows = served.get(thread, [])
            at = bisect_left(rows, row)
            if at and rows[at - 1] > heard.get(thread, NONE):
                question = NONE
            asked[message] = NONE if question in answers else question
        return answers

    def _find_served(self) -> Mapping[tuple[int, int], list[int]]:
        """Return when each thread received something of a request."""
        acts = self._acts
        rows = np.flatnonzero((acts.act == Act.RECEIVE) & (acts.endpoint >= 0))
        rows = rows[self._endpoints.serves[acts.endpoint[rows]] == 1]
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        for row, host, tid in zip(
            *(of.tolist() for of in (rows, acts.host[rows], acts.tid[rows])), strict=True
        ):
            found[host, tid].append(row)
        return found

    def make(self) -> tuple[Streams, Messages]:
        """Return all with the jobs' endpoints behind the others, and the messages."""
        if len(self._delivered):
            acts = self._acts
            self._rows = {
                act: OperationRows(acts, act) for act in (Act.ARRIVAL, Act.RECEIVE, Act.SEND)
            }
            takers = np.unique(acts.endpoint[self._delivered.row]).tolist()
            by = np.flatnonzero(np.isin(acts.act, (Act.SEND, Act.RECEIVE)))
            by = by[np.isin(acts.endpoint[by], takers)]
            by = by[np.argsort(acts.endpoint[by], kind="stable")]
            cuts = np.flatnonzero(np.diff(acts.endpoint[by])) + 1
            for rows in np.split(by, cuts):
                self._find_jobs(int(acts.endpoint[rows[0]]), rows.tolist())
        if not self._jobs:
            none = np.zeros(0, np.int64)
            nobody = Messages(none, none, none, none, none, none, none, np.zeros(0))
            return self._streams, nobody
        return self._give_endpoints(), self._list_messages()

    # ------------------------------------------------------------ which jobs there are

    def _find_jobs(self, at: int, rows: list[int]) -> None:
        """Find the jobs of one connection, whose sends and receives are given."""
        acts = self._acts
        sends = {row for row in rows if acts.act[row] == Act.SEND}
        brought = [one for one, row in pairwise(rows) if row in self._of and one in sends]
        size, _ = Counter(acts.value[brought].tolist()).most_common(1)[0] if brought else (0, 0)
        ends = [row for row in sends if acts.value[row] == size]
        came = [row for row in rows if row in self._of]
        if not came:
            return
        if len(ends) < BROKERS.ended * sum(len(self._of[row]) for row in came):
            self._find_unended(at, came)
            return
        # Who asks for each, but perhaps the first, has done the ones before.
        one_by_one = len(brought) + 1 >= len(came)
        waiting: list[_Job] = []
        following = dict(pairwise(rows))
        usual, least = int(np.mean(acts.value[came])), int(np.min(acts.value[came]))
        last, most, unknown = NONE, 1, 0  # not found and not ended yet, as many as may wait
        for before, row in pairwise([NONE, *rows]):
            if row in self._of:
                waiting += [_Job(at, row, row, [message]) for message in self._of[row]]
                most = max(most, len(waiting))
            elif row in sends and acts.value[row] == size:
                then = following.get(row, NONE)
                again = then >= 0 and then not in sends and then not in self._of
                if not again:
                    self._fetches.append(row)
                if waiting:
                    job = waiting.pop(-1 if one_by_one else 0)
                    waiting = [] if one_by_one else waiting
                    job.end, job.asks_again, job.mixed = row, again, unknown > 0
                    if job.received < last and not self._is_loop(job.received, row):
                        job.begun = last
                    last = row
                    self._jobs.append(job)
                elif unknown:
                    unknown -= 1
            elif row not in sends and (before not in sends or acts.value[before] == size):
                value = int(acts.value[row])
                unknown = min(unknown + max(value // usual, int(value >= least)), most)

    def _is_loop(self, since: int, until: int) -> bool:
        """Tell whether a thread asks several things at once between two rows of its own."""
        open_then: set[int] = set()
        for row in self._list_own(since, until):
            at = int(self._acts.endpoint[row])
            if self._acts.act[row] == Act.SEND and self._endpoints.serves[at] == 0:
                open_then.add(at)
                if len(open_then) > 1:
                    return True
            elif self._acts.act[row] == Act.RECEIVE:
                open_then.discard(at)
        return False

    def _list_own(self, since: int, until: int) -> list[int]:
        """Return the sends, receives and sleeps of a row's thread after it, up to another row."""
        acts = self._acts
        part = slice(since + 1, until)
        mine = (acts.tid[part] == acts.tid[since]) & (acts.host[part] == acts.host[since])
        mine &= np.isin(acts.act[part], (Act.SEND, Act.RECEIVE, Act.SLEEP))
        found: list[int] = (np.flatnonzero(mine) + since + 1).tolist()
        return found

    def _find_unended(self, at: int, came: list[int]) -> None:
        """Find jobs that end when their thread sleeps and has asked nothing."""
        job: _Job | None = None
        for row, following in pairwise([*came, len(self._acts)]):
            if job is None:
                job = _Job(at, row, row, [])
            job.messages += self._of[row]
            asked: set[int] = set()
            for own in self._list_own(row, following):
                act, where = self._acts.act[own], int(self._acts.endpoint[own])
                if act == Act.SEND and where != at:
                    asked.add(where)
                elif act == Act.RECEIVE:
                    asked.discard(where)
                elif act == Act.SLEEP and not asked:
                    job.end, job.sleeps = own, True
                    self._jobs.append(job)
                    job = None
                    break

    # ------------------------------------------------------------ what becomes of them

    def _give_endpoints(self) -> Streams:
        acts, many, jobs = self._acts, len(self._endpoints), self._jobs
        endpoint = acts.endpoint.copy()
        kept = np.ones(len(acts), np.bool_)
        kept[self._list_beside()] = False
        made: list[tuple[int, int, int, int, int]] = []  # row, where, act, endpoint, value
        used: set[int] = set()
        for number, job in enumerate(jobs):
            own, size = many + number, int(acts.value[job.received])
            put = int(self._delivered.put[job.messages[0]])
            here = acts.host[put] == acts.host[job.received]
            came = put if here else self._find_arrival(job)
            made.append((came, _AFTER, Act.ARRIVAL, own, 0))
            if job.begun == job.received and job.received not in used:
                endpoint[job.received], kept[job.received] = own, True
                used.add(job.received)
            else:
                made.append((job.begun, _AFTER, Act.RECEIVE, own, size))
            if job.sleeps or job.asks_again:
                made.append((job.end, _BEFORE, Act.SEND, own, 0))
            else:
                endpoint[job.end], kept[job.end] = own, True
        row, where, act, at, value = (np.array(c, np.int64) for c in zip(*made, strict=True))
        rows = np.flatnonzero(kept)
        source = np.concatenate([rows, row])
        order = np.lexsort((np.append(np.full(len(rows), _SAME), where), source))
        taken = replace(
            acts.take(source[order]),
            act=np.append(acts.act[rows], act)[order].astype(np.uint8),
            endpoint=np.append(endpoint[rows], at)[order].astype(np.int32),
            value=np.append(acts.value[rows], value)[order],
        )
        return self._extend(taken)

    def _find_arrival(self, job: _Job) -> int:
        came = self._rows[Act.ARRIVAL].before(*(np.array([n]) for n in (job.at, job.received)))
        return int(came[0]) if came[0] >= 0 else job.received

    def _list_beside(self) -> I64:
        """Return what happens at the brokers' ends, and what arrives: it is of no request.

        An answer that a request waits for stays: it ends that request's call.
        """
        acts, peer = self._acts, self._endpoints.peer.astype(np.int64)
        got = np.array(sorted(self._of), np.int64)
        asked = np.array(sorted(self._fetches), np.int64)
        arrivals, receives = self._rows[Act.ARRIVAL], self._rows[Act.RECEIVE]
        at, there = acts.endpoint[got].astype(np.int64), acts.endpoint[asked].astype(np.int64)
        came = arrivals.before(peer[there], asked)
        rows = [
            *(got, arrivals.before(at, got), self._rows[Act.SEND].before(peer[at], got)),
            *(asked, came, receives.after(peer[there], np.where(came >= 0, came, asked))),
        ]
        every = np.concatenate(rows)
        return every[every >= 0]

    def _extend(self, activity: Activity) -> Streams:
        """Return the streams with an endpoint for each job."""
        streams, many = self._streams, len(self._endpoints)
        of = np.concatenate([np.arange(many), [job.at for job in self._jobs]]).astype(np.int64)
        new = np.arange(len(of)) >= many
        table = streams.collected.endpoints[of]
        least = int(table[:, Column.SOCKET].min(initial=0))
        table[new, Column.SOCKET] = min(least, 0) - 1 - np.arange(int(new.sum()))
        ends = self._endpoints.take(of)
        number = streams.number[of].copy()
        turn: Counter[int] = Counter()
        for place, job in enumerate(self._jobs):
            turn[job.at] += 1
            number[many + place] = turn[job.at]
        return Streams(
            replace(streams.collected, activity=activity, endpoints=table),
            replace(
                ends,
                serves=np.where(new, 1, ends.serves).astype(np.int32),
                peer=np.where(new, NONE, ends.peer).astype(np.int32),
            ),
            *(streams.connection[of], number, streams.guessed[of] & ~new),
            np.where(new, 0, streams.incomplete[of]),
        )

    def _list_messages(self) -> Messages:
        acts, many = self._acts, len(self._endpoints)
        pairs = [
            (many + number, message, job.mixed)
            for number, job in enumerate(self._jobs)
            for message in job.messages
        ]
        at, which, mixed = np.array(pairs, np.int64).reshape(-1, 3).T
        put = self._delivered.put[which]
        return Messages(
            *(at, acts.endpoint[put].astype(np.int64), acts.tid[put].astype(np.int64)),
            *(acts.host[put].astype(np.int64), acts.time_ns[put]),
            *(acts.time_ns[self._delivered.row[which]], self._delivered.before[which]),
            self._delivered.probability[which] * np.where(mixed, BROKERS.mixed, 1.0),
            {many + number: self._name_broker(job.at) for number, job in enumerate(self._jobs)},
        )

    def _name_broker(self, at: int) -> str:
        """Return whose queue it is: the service, where it is seen, else the address."""
        of, peer = self._endpoints, int(self._endpoints.peer[at])
        path = of.strings[of.path[peer if peer >= 0 else at]]
        where = path or of.remote_port[at] or NAMELESS.get(int(of.family[at]), "?")
        comm = of.strings[of.remote_address[at]]
        if peer >= 0:
            row = self._rows[Act.SEND].before(np.array([peer]), np.array([len(self._acts)]))
            comm = self._name(int(self._acts.host[row[0]]), int(self._acts.tid[row[0]]))
        return f"{comm}:{where}"


def _find_question(
    received: int,
    sender: tuple[int, int],
    taker: Mapping[int, tuple[int, int]],
    last: Mapping[tuple[int, int], int],
    acts: Activity,
) -> int:
    """Return what the thread that receives a message had put last, if its sender took that."""
    thread = int(acts.host[received]), int(acts.tid[received])
    question = last.get(thread, NONE)
    return question if question >= 0 and taker.get(question) == sender != thread else NONE


def join_messages(
    messages: Messages,
    endpoints: Endpoints,
    requests: RequestTable,
    subs: Subrequests,
    slices: Slices,
) -> Passed:
    """Say of messages which request put each into its queue, and which is the work for it.

    Parameters
    ----------
    messages : Messages
    endpoints, requests, subs, slices
        Who worked for whom (`critpath.requests.links.attribute`).
    """
    job_of = np.full(len(endpoints), NONE, np.int64)
    job_of[requests.endpoint] = np.arange(len(requests))
    found = np.flatnonzero(job_of[messages.endpoint] >= 0)
    if not len(found):
        return Passed.make_empty()
    when, at = messages.put_ns[found], messages.put_endpoint[found]
    calls = np.flatnonzero(subs.connects == 0)
    row = np.append(calls, NONE)[_find_last(subs.endpoint[calls], subs.begin_ns[calls], at, when)]
    # A call goes on until it is answered: only what it began with is surely of its request.
    asked = _covers(subs.endpoint, subs, row, at, when)
    asked[asked] = _are_first(row[asked], when[asked])
    hosts, tids = (of[found].astype(np.int32) for of in (messages.put_host, messages.put_tid))
    thread = thread_keys(hosts, tids)
    worker = thread_keys(slices.host, slices.tid)
    part = _find_last(worker, slices.begin_ns, thread, when)
    within = _covers(worker, slices, part, thread, when)
    whose = np.where(within, np.append(slices.request, NONE)[part], NONE)
    # A loop may send later what a request has left with it.
    later = _find_only_received(messages, found, endpoints, requests)
    alone = ~asked & ~within & (later >= 0)
    whose = np.where(alone, later, whose)
    producer = np.where(asked, np.append(subs.request, NONE)[row], whose)
    sure = np.append(PROBABLE, 0.0)[np.append(slices.attribution, len(PROBABLE))[part]]
    sure = np.where(alone, PROBABLE[Certainty.LIKELY], np.where(within, sure, 0.0))
    link = np.where(asked, np.append(subs.probability, 0.0)[row], sure)
    probability = link * messages.probability[found]
    likely = probability >= PROBABLE[Certainty.LIKELY] ** 2
    named = [messages.broker[of] for of in messages.endpoint[found].tolist()]
    codes = {text: code for code, text in enumerate(("", *dict.fromkeys(named)))}
    return Passed(
        job=job_of[messages.endpoint[found]].astype(np.int32),
        producer=producer.astype(np.int32),
        broker=np.array([codes[name] for name in named], np.int32),
        put_ns=when,
        received_ns=messages.received_ns[found],
        before=messages.before[found].astype(np.int32),
        attribution=np.where(likely, Certainty.LIKELY, Certainty.DOUBTFUL).astype(np.uint8),
        probability=probability,
        strings=tuple(codes),
    )


def _find_only_received(
    messages: Messages, rows: I64, endpoints: Endpoints, requests: RequestTable
) -> I64:
    """Return the only request that each thread received since it last sent a message, else -1."""
    reader = thread_keys(endpoints.host[requests.endpoint], requests.reader_tid)
    hosts, tids = (of.astype(np.int32) for of in (messages.put_host, messages.put_tid))
    sender = thread_keys(hosts, tids)
    found = np.full(len(messages), NONE, np.int64)
    for thread in np.unique(sender).tolist():
        mine = np.flatnonzero(sender == thread)
        mine = mine[np.argsort(messages.put_ns[mine], kind="stable")]
        asked = np.flatnonzero(reader == thread)
        asked = asked[np.argsort(requests.received_ns[asked], kind="stable")]
        until = np.searchsorted(requests.received_ns[asked], messages.put_ns[mine])
        since = np.append(0, until[:-1])
        one = until - since == 1
        found[mine[one]] = asked[until[one] - 1]
    return found[rows]


def _are_first(call: I64, when: I64) -> Bool:
    """Tell which of the messages are the first of their call."""
    order = np.lexsort((when, call))
    first = np.ones(len(call), np.bool_)
    first[order[1:]] = call[order[1:]] != call[order[:-1]]
    return first


def _covers(key: I64 | I32, of: Subrequests | Slices, row: I64, wanted: I64, when: I64) -> Bool:
    """Return which rows are of what is wanted, of some request, and last at these times."""
    found = row >= 0
    at = row[found]
    fits = (key[at] == wanted[found]) & (of.request[at] >= 0)
    fits &= (of.begin_ns[at] <= when[found]) & (of.end_ns[at] >= when[found])
    found[found] = fits
    return found


def _find_last(key: I64 | I32, begin: I64, wanted: I64, when: I64) -> I64:
    """Return the last row of each key that begins up to a time; any other where there is none."""
    if not len(key):
        return np.full(len(wanted), NONE, np.int64)
    times = np.unique(begin)
    order = np.lexsort((begin, key))
    place = np.unique(np.append(key, wanted), return_inverse=True)[1]
    place = place.reshape(-1).astype(np.int64) * (len(times) + 1)
    rank = place[: len(key)] + np.searchsorted(times, begin) + 1
    last = place[len(key) :] + np.searchsorted(times, when, "right")
    at = np.searchsorted(rank[order], last, "right")
    found: I64 = order[np.maximum(at - 1, 0)]
    return found


def find_queue_waits(requests: RequestTable, passed: Passed) -> Waits:
    """Return when the messages of requests lay in queues, with what is said of each queue."""
    waits = np.column_stack([passed.broker, passed.before])
    each, code = find_distinct(waits)
    details = tuple(
        Detail(device=passed.strings[broker], before=before) for broker, before in each.tolist()
    )
    job = passed.job.astype(np.int64)
    notes = []
    pairs = np.column_stack([passed.broker, requests.service[job]])
    for broker, service in find_distinct(pairs)[0].tolist():
        mine = np.flatnonzero((pairs == (broker, service)).all(axis=1))
        waited = passed.received_ns[mine] - passed.put_ns[mine]
        services = [int(requests.service[row]) for row in passed.producer[mine] if row >= 0]
        whose = Counter(requests.strings[code] for code in services)
        whose[""] = len(mine) - len(services)
        said = MessagesPassed(
            service=requests.strings[service],
            broker=passed.strings[broker],
            producers=tuple(one for one in whose.most_common() if one[1]),
            messages=len(mine),
            waited_ns=float(waited.mean()),
            longest_ns=float(np.quantile(waited, 0.99)),  # technical: what is said of it
            before=float(passed.before[mine].mean()),
        )
        notes.append(said)
    return Waits(
        *(job, requests.begin_ns[job], requests.received_ns[job], code.reshape(-1), details),
        *(tuple(notes), State.WAIT_QUEUE),
    )
