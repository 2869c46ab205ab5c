"""Messages through brokers, and the jobs that they become: simulated, with the truth."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from critpath.model import State
from critpath.model.requests import (
    Act,
    Activity,
    Certainty,
    Collected,
    Endpoints,
    RequestTable,
    Slices,
    Subrequests,
)
from critpath.requests.brokers import find_delivered
from critpath.requests.endpoints import EndpointColumn
from critpath.requests.jobs import find_queue_waits, join_messages, split_jobs
from critpath.requests.streams import Streams
from critpath.requests.turns import cut_turns
from critpath.schema.parameters import overridden

BROKER = 1
# How a broker is spoken to: bytes that a message has more when it comes, sends of one message,
# bytes of what asks for the next (or acknowledges the last), what a put is answered with.
PULLED = (-11, 1, 30, 4)
PUSHED = (45, 3, 21, 0)
UNACKNOWLEDGED = (1, 1, 0, 0)


class Simulation:
    """Producers that put messages into a queue, and consumers that take and work for them."""

    def __init__(self, seed, protocol, *, producers=3, consumers=2, many=150, length=None, pace=1):
        self.more, self.pieces, self.fetch, self.answer = protocol
        self.draw = random.Random(seed)  # noqa: S311 - a simulation
        self.rows, self.number = [], count()
        self.producers, self.consumers = producers, consumers
        self.length = length or (lambda: 60 + self.draw.randrange(200))
        self.free = 0  # when the broker is
        self.queue, self.idle, self.truth, self.at = [], [], [], {}
        work = [
            (self.draw.expovariate(1e-3 * pace) * n, next(self.number), "put") for n in range(many)
        ]
        self.events = [(1000 + int(time), order, what) for time, order, what in work]
        self.events += [(n, next(self.number), ("fetch", n)) for n in range(consumers)]
        heapq.heapify(self.events)
        while self.events:
            time, _, what = heapq.heappop(self.events)
            (self.put if what == "put" else self.take)(time, what)

    def tell(self, time, act, tid, client, value=0, *, there=False):
        """Write down a row; `there` is the broker's end."""
        self.rows.append((time, int(act), tid, 2 * client + there, value))

    def transfer(self, time, client, size, *, to_broker):
        """Send and receive some bytes; return when they were received."""
        tid = 100 + client
        one, other = (tid, BROKER) if to_broker else (BROKER, tid)
        self.tell(time, Act.ARRIVAL, one, client, there=to_broker)
        self.tell(time + 2, Act.SEND, one, client, size, there=not to_broker)
        got = max(time + 10, self.free) if to_broker else time + 10 + self.draw.randrange(40)
        self.tell(got, Act.RECEIVE, other, client, size, there=to_broker)
        if to_broker:
            self.free = got + 12
        return got

    def put(self, time, _):
        client = self.draw.randrange(self.producers)
        # Who asks is answered before it asks again.
        time = max(time, self.at.get(client, 0))
        size = self.length()
        if self.pieces > 1:
            self.tell(time, Act.ARRIVAL, 100 + client, client, there=True)
            for part in (20, 22):
                self.tell(time + part, Act.SEND, 100 + client, client, part)
            self.tell(time + 50, Act.SEND, 100 + client, client, size - 42)
            got = max(time + 60, self.free)
            self.tell(got, Act.RECEIVE, BROKER, client, size, there=True)
            self.free, sent = got + 12, time + 50
        else:
            got, sent = self.transfer(time, client, size, to_broker=True), time + 2
        self.queue.append((sent, client, size))
        done = got
        if self.answer:
            done = self.transfer(got + 5, client, self.answer, to_broker=False)
        self.at[client] = done + 100
        self.hand_out(got + 20)

    def take(self, time, what):
        """Ask for the next."""
        of = what[1]
        client = self.producers + of
        if self.fetch:
            time = self.transfer(time, client, self.fetch, to_broker=True) + 3
        self.idle.append(of)
        self.hand_out(time)

    def hand_out(self, time):
        """Give the oldest message to who has waited longest."""
        while self.queue and self.idle:
            sent, by, size = self.queue.pop(0)
            of = self.idle.pop(0)
            client = self.producers + of
            got = self.transfer(time, client, size + self.more, to_broker=False)
            done = got + 200 + int(self.draw.expovariate(1 / 1500))
            if not self.fetch:
                self.rows.append((done, int(Act.SLEEP), 100 + client, None, 0))
            self.truth.append((sent, by, got, done))
            heapq.heappush(self.events, (done + 5, next(self.number), ("fetch", of)))
            time += 5

    def collect(self, names=()):
        """Return what was collected, and the endpoints."""
        self.rows.sort(key=lambda row: (row[0], row[1] != Act.ARRIVAL))
        ends = [-1 if row[3] is None else row[3] for row in self.rows]
        time, act, tid, _, value = zip(*self.rows, strict=True)
        small = np.int32
        activity = Activity(
            *(np.array(time, np.int64) * 1000, np.array(act, np.uint8), np.array(tid, small)),
            *(np.zeros(len(act), small), np.array(ends, small), np.array(value, np.int64)),
        )
        many = 2 * (self.producers + self.consumers)
        one, of = np.ones(many, small), np.arange(many, dtype=small)
        port = np.where(of % 2, 6379, 40000 + of).astype(small)
        table = np.zeros((many, len(EndpointColumn)), np.int64)
        table[:, EndpointColumn.SOCKET] = 1 + of
        endpoints = Endpoints(
            *(0 * one, 2 * one, one, port, one, port[of ^ 1], 0 * one, of % 2, one),
            *(np.zeros(many, np.int64), np.full(many, 10**12), of ^ 1),
            strings=("", "127.0.0.1"),
        )
        return Collected(activity, table, [], messages=list(names)), endpoints

    def label(self):
        """Return what the broker receives by its name: what puts and what takes."""
        return [
            (time * 1000, 0, 1 + end, 0, 0, "LPUSH" if end < 2 * self.producers else "BRPOP")
            for time, act, _, end, _ in self.rows
            if act == Act.RECEIVE and end is not None and end % 2
        ]  # fmt: skip


def name(_, tid):
    return "redis-server" if tid == BROKER else "producer" if tid < 103 else "consumer"


def find(made, names=()):
    collected, endpoints = made.collect(names)
    return collected, endpoints, find_delivered(collected, endpoints, name)


def judge(made, collected, delivered):
    """Return of each message that was found how probable it is said to be, and whether it is."""
    time = collected.activity.time_ns
    truth = {got * 1000: sent * 1000 for sent, _, got, _ in made.truth}
    columns = (time[delivered.put], time[delivered.row], delivered.probability)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(sure, truth.get(got) == put) for put, got, sure in rows]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("protocol", [PULLED, PUSHED, UNACKNOWLEDGED], ids=lambda p: str(p[0]))
def test_who_put_it_there_is_found(protocol, seed):
    made = Simulation(seed, protocol)
    collected, _, delivered = find(made)
    told = judge(made, collected, delivered)
    assert len(told) >= 0.95 * len(made.truth)
    assert sum(right for _, right in told) >= 0.97 * len(told)


def test_what_is_stated_is_so():
    # Messages of few lengths: many could be taken for each other.
    told = []
    draw = random.Random(1)  # noqa: S311 - a simulation

    def chosen():
        return draw.choice([80, 90, 95, 99, 120])

    for seed in range(12):
        made = Simulation(
            seed,
            PULLED,
            consumers=4,
            pace=3,
            length=chosen,
        )
        collected, _, delivered = find(made)
        told += judge(made, collected, delivered)
    assert len(told) > 1000
    for low in (0.0, 0.5, 0.8, 0.9):
        mine = [(sure, right) for sure, right in told if low <= sure < low + 0.2]
        if len(mine) >= 50:
            stated = np.mean([sure for sure, _ in mine])
            assert abs(stated - np.mean([right for _, right in mine])) < 0.05


def test_messages_of_one_length_are_joined_where_names_say_what_is_put():
    made = Simulation(1, PULLED, length=lambda: 100)
    assert not len(find(made)[2])
    collected, _, delivered = find(made, made.label())
    told = judge(made, collected, delivered)
    assert len(told) >= 0.95 * len(made.truth)
    assert sum(right for _, right in told) >= 0.9 * len(told)


def test_how_many_were_before_it():
    made = Simulation(3, PULLED, pace=3)
    collected, _, delivered = find(made)
    time = collected.activity.time_ns
    truth = {}
    for sent, _, got, _ in made.truth:
        waiting = [1 for s, _, g, _ in made.truth if s < sent and g > sent]
        truth[got * 1000] = len(waiting)
    off = [
        abs(before - truth.get(got, 0))
        for got, before in zip(time[delivered.row].tolist(), delivered.before.tolist(), strict=True)
    ]
    assert max(truth.values()) > 5
    assert np.median(off) <= 1


@pytest.mark.parametrize("protocol", [PULLED, PUSHED, UNACKNOWLEDGED], ids=lambda p: str(p[0]))
def test_each_message_becomes_a_request(protocol):
    made = Simulation(2, protocol)
    collected, endpoints = made.collect()
    many, none = len(endpoints), np.zeros(len(endpoints), np.int64)
    streams, messages = split_jobs(
        Streams(collected, endpoints, np.arange(many), none, none > 0, none), name
    )
    assert set(messages.broker.values()) == {"redis-server:6379"}
    turns = cut_turns(streams.activity, streams.endpoints, 1).table
    jobs = turns[turns[:, 0] >= many]
    truth = {(got * 1000, sent * 1000) for sent, _, got, _ in made.truth}
    found = {(received, begin) for _, _, begin, received, *_ in jobs.tolist()}
    assert len(found & truth) >= 0.9 * len(truth)
    ends = {got: done for _, _, got, done in made.truth}
    late = [
        end - 1000 * ends[int(received) // 1000]
        for _, _, _, received, _, end, *_ in jobs.tolist()
        if int(received) // 1000 in ends
    ]
    assert np.median(np.abs(late)) <= 20_000
    # What brought them is nobody's turn any more: fetches were answered with messages.
    if protocol is PULLED:
        sizes = turns[turns[:, 0] < many][:, 8]
        assert (sizes == 30).sum() <= 0.1 * len(truth)


def test_an_answer_through_a_second_queue_ends_the_call_that_waits_for_it():
    draw, made = random.Random(2), Simulation(1, PULLED, many=0)  # noqa: S311 - a simulation
    made.rows.clear()
    time, asked, worker = 0, [], 3
    for _ in range(60):
        asker, size, answer = draw.randrange(2), *(60 + draw.randrange(200) for _ in range(2))
        made.transfer(time, worker, 30, to_broker=True)
        put = made.transfer(time + 100, asker, size, to_broker=True)
        done = made.transfer(put + 5, asker, 4, to_broker=False)
        made.transfer(done + 5, asker, 33, to_broker=True)
        came = made.transfer(done + 60, worker, size - 11, to_broker=False)
        back = made.transfer(came + 300, worker, answer, to_broker=True)
        made.transfer(back + 5, worker, 4, to_broker=False)
        got = made.transfer(back + 60, asker, answer - 11, to_broker=False)
        # The broker's end has answered when it sent what it was asked for.
        asked.append((2 * asker + 1, (back + 62) * 1000))
        time = got + 500
    collected, endpoints = made.collect()
    many, none = len(endpoints), np.zeros(len(endpoints), np.int64)
    streams, messages = split_jobs(
        Streams(collected, endpoints, np.arange(many), none, none > 0, none), name
    )
    # The questions are jobs, the answers are not; each was waited for in a call of its own.
    assert set(messages.put_endpoint.tolist()) == {0, 2}
    assert len(messages) >= 55
    turns = cut_turns(streams.activity, streams.endpoints, 1).table
    waits = [(at, end) for at, _, _, _, _, end, *_ in turns[turns[:, 8] == 33].tolist()]
    assert sorted(waits) == sorted(asked)


def test_an_end_may_be_of_a_message_that_was_not_found():
    draw, made = random.Random(3), Simulation(1, PULLED, many=0)  # noqa: S311 - a simulation
    made.rows.clear()
    time, worker, doubtful = 0, 3, 0
    for number in range(60):
        size = 60 + draw.randrange(200)
        put = made.transfer(time, draw.randrange(2), size, to_broker=True)
        if number == 30:  # two that nobody knows, in one receive
            made.transfer(put + 20, worker, 801, to_broker=False)
            doubtful = (time + 2) * 1000
        done = made.transfer(put + 80, worker, size + 45, to_broker=False)
        for _ in range(3 if number == 30 else 1):
            done = made.transfer(done + 300, worker, 21, to_broker=True)
        time = done + 500
    collected, endpoints = made.collect()
    many, none = len(endpoints), np.zeros(len(endpoints), np.int64)
    _, messages = split_jobs(
        Streams(collected, endpoints, np.arange(many), none, none > 0, none), name
    )
    assert len(messages) >= 55
    assert messages.put_ns[messages.probability < 0.5].tolist() == [doubtful]


def test_who_put_it_there_is_the_request_that_was_worked_for():
    made = Simulation(5, PULLED)
    collected, endpoints = made.collect()
    many, none = len(endpoints), np.zeros(len(endpoints), np.int64)
    streams, messages = split_jobs(
        Streams(collected, endpoints, np.arange(many), none, none > 0, none), name
    )
    count = len(streams.endpoints) - many
    small, large = np.zeros(1 + count, np.int32), np.zeros(1 + count, np.int64)
    at = np.arange(many - 1, len(streams.endpoints), dtype=np.int32)
    requests = RequestTable(
        *(at, small + 1, small + 1, small, large, large + 5, large + 9, large + 9),
        *(small, small, large, large, small - 1, large, large, large, small),
        *(small.astype(np.uint8), small, small, small),
        strings=("", "worker (queue of x)"),
    )
    # One request works all the time in the first producer's thread.
    zero, one = np.zeros(1, np.int32), np.zeros(1, np.int64)
    sure = np.zeros(1, np.uint8)
    slices = Slices(zero + 100, zero, one, one + 10**12, zero, zero, sure, sure, one, one, one)
    nothing = Subrequests(*(c[:0] for c in (zero, one, one, zero, zero, zero, sure, sure, sure)))
    passed = join_messages(messages, streams.endpoints, requests, nothing, slices)
    assert set(passed.producer[messages.put_tid == 100].tolist()) == {0}
    assert set(passed.producer[messages.put_tid != 100].tolist()) == {-1}
    assert (passed.attribution[passed.producer >= 0] <= Certainty.DOUBTFUL).all()
    # Of a call that goes on, only the first message is surely of its request.
    call = Subrequests(zero, one, one + 10**12, zero, zero, zero, sure, sure, sure)
    nobody = slices.take(np.zeros(0, np.int64))
    several = join_messages(messages, streams.endpoints, requests, call, nobody)
    first = messages.put_ns[messages.put_endpoint == 0].min()
    assert several.put_ns[several.producer == 0].tolist() == [first]
    waits = find_queue_waits(requests, passed)
    assert waits.state == State.WAIT_QUEUE
    assert {of.device for of in waits.details} == {"redis-server:6379"}
    before = [waits.details[code].before for code in waits.about.tolist()]
    assert before == passed.before.tolist()
    assert waits.notes[0].messages == len(passed)


@pytest.mark.parametrize("same", [True, False])
def test_an_answer_is_no_message(same):
    # A service that answers as much as it was asked, and one whose answers have lengths of theirs.
    draw, made = random.Random(4), Simulation(1, PULLED, many=0)  # noqa: S311 - a simulation
    made.rows.clear()
    for number in range(400):
        client, size = draw.randrange(5), 60 + draw.randrange(100)
        got = made.transfer(number * 100, client, size, to_broker=True)
        made.transfer(
            got + 10, client, size + 7 if same else 60 + draw.randrange(100), to_broker=False
        )
    assert len(find(made)[2]) == 0


@pytest.mark.parametrize("more", [20, 1500])
def test_answers_of_few_lengths_are_no_messages(more):
    # Numbers in paths make questions, and answers, of a few lengths: some differ by the same.
    draw, made = random.Random(5), Simulation(1, PULLED, many=0)  # noqa: S311 - a simulation
    made.rows.clear()
    turns = [(1000 * client, client) for client in range(5)]
    while len(made.rows) < 4000:
        time, client = heapq.heappop(turns)
        size = 100 + draw.choices(range(4), (1, 9, 30, 60))[0]
        got = made.transfer(time, client, size, to_broker=True)
        size = 100 + more + draw.choices(range(4), (30, 60, 9, 1))[0]
        done = made.transfer(got + 2000 + draw.randrange(8000), client, size, to_broker=False)
        heapq.heappush(turns, (done + 100, client))
    assert len(find(made)[2]) == 0


def test_nothing_of_no_recording():
    made = Simulation(1, PULLED, many=0)
    collected, endpoints = made.collect()
    empty = replace(collected, activity=collected.activity.take(slice(0, 0)))
    assert len(find_delivered(empty, endpoints, name)) == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_server_that_answers_is_no_broker(seed):
    """Its answers are as long as questions of others, but for 60 bytes: each has its own."""
    made = Simulation(seed, PULLED, many=0, consumers=1)
    time = 10_000
    for n in range(240):
        time += 400
        asked = made.transfer(time, n % 3, 60 + made.draw.randrange(12), to_broker=True)
        made.transfer(asked + 20, n % 3, 120 + made.draw.randrange(12), to_broker=False)
    assert not len(find(made)[2])
    with overridden("brokers.answered", 1.0):  # of others chance alone makes no order
        assert (len(find(made)[2]) > 100) == (seed == 0)
