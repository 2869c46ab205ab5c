"""Servers of every class as discrete events, with exact truth: who worked for which request.

What counts as right, before anything is measured:

* A **sub-request** is right if it is attributed to the request whose handler sent it.  One that is
  attributed to nobody is not right; in the calibration of certainty it does not count, as nothing
  was said of it.  A sub-request that carries messages of several requests (a shared connection)
  is right for none.
* A connect counts like a sub-request: it is of the request whose handler opened it.
* A **slice** is right for as long as the handler of its request ran in it.  Its share is of time:
  of what handlers ran in slices, how much in a slice of their own request.
* A **parent** is right if the request's own client asked for it.
* ``own + asked`` is right if it is what the handler spent outside of its calls, to the
  nanosecond.

A thread is a generator that yields operations (``("work", ns, request)``, ``("send", ...)``); the
world does one at a time, in order of time, and writes the rows a kernel would.  Clients and
backends of other machines are callbacks.  A message is ``(id, owner)``: the request that it is
where it arrives, and the request for which it was sent.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from critpath.model.requests import (
    Act,
    Activity,
    Endpoints,
    RequestTable,
    Subrequests,
)

Operation = tuple[Any, ...]
Program = Generator[Operation, Any, None]
Message = tuple[int, int]
US: Final = 1000
NOBODY: Final = -1


@dataclass
class Thread:
    """A thread, or a process of one thread."""

    tid: int
    process: int
    program: Program
    asleep: bool = False


@dataclass
class End:
    """An endpoint: what arrived and was not received, who is to be told."""

    number: int
    serves: bool | int  # -1: neither
    port: int
    local: bool
    process: int
    inbox: deque[Message] = field(default_factory=deque)
    waiter: Thread | None = None
    poll: Poll | None = None
    far: Callable[[Message], None] | None = None  # what another machine does with it
    peer: End | None = None


@dataclass
class Poll:
    """What one thread waits for at many endpoints at once, in order of arrival."""

    ready: deque[End] = field(default_factory=deque)
    arrived: deque[Any] = field(default_factory=deque)  # connections to accept
    waiter: Thread | None = None


@dataclass
class Queue:
    """A queue of jobs behind a lock, with threads that sleep until there is one."""

    jobs: deque[Any] = field(default_factory=deque)
    idle: deque[Thread] = field(default_factory=deque)


class World:
    """Time, threads and sockets."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - no secrets
        self.now = 1_000_000
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.count = itertools.count()
        self.rows: list[tuple[int, Act, int, int, int, int]] = []  # the last one: truth
        self.ends: list[End] = []
        self.threads: list[Thread] = []
        self.work: list[tuple[int, int, int, int]] = []
        self.ids = itertools.count()
        self.owners: dict[int, int] = {}  # request -> the request it was sent for

    def at(self, time: int, what: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (max(time, self.now), next(self.count), what))

    def run(self) -> None:
        while self.heap:
            time, _, what = heapq.heappop(self.heap)
            self.now = max(self.now, time)
            what()

    def row(self, act: Act, thread: Thread | None, end: End | None, value: int, of: int) -> None:
        self.now += 1
        tid = thread.tid if thread else -1
        self.rows.append((self.now, act, tid, end.number if end else -1, value, of))

    def about(self, mean_ns: float, spread: float = 0.4) -> int:
        return max(100, int(mean_ns * self.random.lognormvariate(0, spread)))

    def start(self, program: Callable[[], Program], process: int | None = None) -> Thread:
        tid = 100 + len(self.threads)
        thread = Thread(tid, process or tid, program())
        self.threads.append(thread)
        self.at(self.now, lambda: self.step(thread, None))
        return thread

    def end(self, process: int, port: int, *, serves: bool | int, local: bool) -> End:
        end = End(len(self.ends), serves, port, local, process)
        self.ends.append(end)
        return end

    # ------------------------------------------------------------------ what threads do

    def step(self, thread: Thread, result: Any) -> None:
        """Let a thread go on until its next operation, and do that."""
        try:
            operation = thread.program.send(result)
        except StopIteration:
            return
        self.do(thread, operation)

    def later(self, thread: Thread, result: Any, cost: float = 800) -> None:
        self.at(self.now + self.about(cost), lambda: self.step(thread, result))

    def do(self, thread: Thread, operation: Operation) -> None:
        getattr(self, f"do_{operation[0]}")(thread, operation)

    def do_self(self, thread: Thread, operation: Operation) -> None:
        del operation
        self.step(thread, thread)

    def do_work(self, thread: Thread, operation: Operation) -> None:
        _, ns, of = operation
        begin, spent = self.now, self.about(ns)
        if of >= 0:
            self.work.append((thread.tid, begin, begin + spent, of))
        self.at(begin + spent, lambda: self.step(thread, None))

    def do_send(self, thread: Thread, operation: Operation) -> None:
        _, end, message = operation
        if end.far is None:
            self.arrive(end.peer, message, thread)
        self.row(Act.SEND, thread, end, 100, message[0] if end.serves else message[1])
        if end.far is not None:
            end.far(message)
        self.later(thread, None, 2000)

    def arrive(self, end: End, message: Message, thread: Thread | None) -> None:
        self.row(Act.ARRIVAL, thread, end, 100, message[0] if end.serves else message[1])
        end.inbox.append(message)
        if end.poll is not None:
            if end not in end.poll.ready:
                end.poll.ready.append(end)
            self.wake(end.poll.waiter, thread)
        self.wake(end.waiter, thread)

    def do_receive(self, thread: Thread, operation: Operation) -> None:
        end = operation[1]
        if not end.inbox:
            end.waiter = thread
            self.sleep(thread, operation)
            return
        end.waiter = None
        message = end.inbox.popleft()
        self.row(Act.RECEIVE, thread, end, 100, message[0] if end.serves else message[1])
        self.later(thread, message)

    def do_poll(self, thread: Thread, operation: Operation) -> None:
        poll: Poll = operation[1]
        until = operation[2] if len(operation) > 2 else None
        late = until is not None and until <= self.now
        if not poll.ready and not poll.arrived and not late:
            poll.waiter = thread
            if until is not None:
                self.at(until, lambda: self.wake(thread, None))
            self.sleep(thread, operation)
            return
        poll.waiter = None
        ready = list(poll.ready)
        poll.ready.clear()
        self.later(thread, ready)

    def do_take(self, thread: Thread, operation: Operation) -> None:
        queue: Queue = operation[1]
        if not queue.jobs:
            if thread not in queue.idle:
                queue.idle.append(thread)
            self.sleep(thread, operation)
            return
        if thread in queue.idle:
            queue.idle.remove(thread)
        self.later(thread, queue.jobs.popleft())

    def do_put(self, thread: Thread | None, operation: Operation) -> None:
        _, queue, job = operation
        queue.jobs.append(job)
        for idle in queue.idle:
            if idle.asleep:
                self.wake(idle, thread)
                break
        if thread is not None:
            self.later(thread, None)

    def do_wait(self, thread: Thread, operation: Operation) -> None:
        flag: list[int] = operation[1]
        if flag:
            self.later(thread, None)
            return
        self.sleep(thread, operation)

    def do_wake(self, thread: Thread, operation: Operation) -> None:
        _, other, flag = operation
        flag.append(1)
        self.wake(other, thread)
        self.later(thread, None)

    def do_sleep(self, thread: Thread, operation: Operation) -> None:
        until = self.now + self.about(operation[1])
        flag: list[int] = []
        self.at(until, lambda: (flag.append(1), self.wake(thread, None))[0])  # type: ignore[func-returns-value]
        self.sleep(thread, ("wait", flag))

    def do_connect(self, thread: Thread, operation: Operation) -> None:
        _, process, target, of, poll = operation
        end = self.end(process, target.port, serves=False, local=True)
        end.poll = poll
        self.row(Act.OPEN, thread, end, 2, of)
        target.accept(end, thread)
        self.later(thread, end, 5000)

    def do_close(self, thread: Thread, operation: Operation) -> None:
        self.row(Act.CLOSE, thread, operation[1], 0, NOBODY)
        self.later(thread, None)

    def sleep(self, thread: Thread, again: Operation) -> None:
        """Give the cpu away; whoever wakes it makes it try the operation again."""
        thread.asleep = True
        self.row(Act.SLEEP, thread, None, 0, NOBODY)
        thread.again = again  # type: ignore[attr-defined]

    def wake(self, thread: Thread | None, by: Thread | None) -> None:
        if thread is None or not thread.asleep:
            return
        thread.asleep = False
        self.row(Act.WAKE, by, None, thread.tid, NOBODY)
        self.at(self.now + self.about(8000, 0.8), lambda: self.go_on(thread))

    def go_on(self, thread: Thread) -> None:
        self.row(Act.RUN, thread, None, thread.tid % 4, NOBODY)
        self.do(thread, thread.again)  # type: ignore[attr-defined]


@dataclass
class Far:
    """A server of another machine, which answers after a while."""

    world: World
    port: int
    mean_ns: float = 500 * US
    spread: float = 0.6

    def accept(self, end: End, by: Thread | None) -> None:
        del by

        def answer(message: Message) -> None:
            wait = self.world.about(self.mean_ns, self.spread)
            self.world.at(self.world.now + wait, lambda: self.world.arrive(end, message, None))

        end.far = answer


@dataclass
class Near:
    """A server of this machine: its connections go to ``serve``, which is told of each."""

    world: World
    port: int
    process: int
    serve: Callable[[End, Thread | None], None]

    def accept(self, end: End, by: Thread | None) -> None:
        other = self.world.end(self.process, self.port, serves=True, local=True)
        end.peer, other.peer = other, end
        self.world.row(Act.OPEN, by, other, 1, NOBODY)
        self.serve(other, by)


@dataclass
class Clients:
    """Clients of another machine: each asks again, a little after it was answered."""

    world: World
    requests: int
    pause_ns: float = 50 * US
    left: int = 0

    def open(self, process: int, port: int) -> End:
        end = self.world.end(process, port, serves=True, local=False)
        self.world.row(Act.OPEN, None, end, 1, NOBODY)
        return end

    def keep_asking(self, end: End, depth: int = 1) -> None:
        """Ask over one connection; ``depth`` at once."""
        waiting = [0]

        def ask() -> None:
            if self.left >= self.requests:
                return
            for _ in range(depth):
                self.left += 1
                waiting[0] += 1
                self.world.arrive(end, self.new(), None)

        def answered(message: Message) -> None:
            del message
            waiting[0] -= 1
            if not waiting[0]:
                self.world.at(self.world.now + self.world.about(self.pause_ns, 1.0), ask)

        end.far = answered
        self.world.at(self.world.now + self.world.about(200 * US, 1.0), ask)

    def new(self) -> Message:
        number = next(self.world.ids)
        self.world.owners[number] = NOBODY
        return number, NOBODY


# ------------------------------------------------------------------------- handlers


def call(world: World, end: End, of: int) -> Generator[Operation, Any, None]:
    """Ask over a connection and wait for the answer."""
    number = next(world.ids)
    world.owners[number] = of
    yield "send", end, (number, of)
    yield "receive", end


def handle(world: World, of: int, ends: list[End], calls: int) -> Generator[Operation, Any, None]:
    """Work for a request as a thread does: one thing after another."""
    yield "work", 60 * US, of
    for k in range(calls):
        yield from call(world, ends[k % len(ends)], of)
        yield "work", 30 * US, of


def asking(world: World, process: int, targets: list[Far | Near]) -> list[End]:
    """Connections that were there before the recording."""
    ends = []
    for target in targets:
        end = world.end(process, target.port, serves=False, local=True)
        target.accept(end, None)
        ends.append(end)
    return ends


# ------------------------------------------------------------------------- the classes


def process_per_request(world: World, c: int, n: int, calls: int = 1) -> None:
    """Processes that accept, read, ask the database and answer (gunicorn sync)."""
    clients, queue = Clients(world, n), Queue()
    target = Far(world, 5432)

    def worker() -> Program:
        ends = asking(world, 0, [target])
        while True:
            end = yield "take", queue
            of, _ = yield "receive", end
            yield from handle(world, of, ends, calls)
            yield "send", end, (of, NOBODY)
            yield "work", 10 * US, NOBODY
            yield "close", end

    def ask() -> None:
        if clients.left >= n:
            return
        clients.left += 1
        end = clients.open(0, 9082)
        end.far = lambda _: world.at(world.now + world.about(60 * US), ask)
        world.arrive(end, clients.new(), None)
        world.do_put(None, ("put", queue, end))

    for _ in range(4):
        world.start(worker)
    for _ in range(c):
        world.at(world.now + world.about(200 * US), ask)


def thread_pool(world: World, c: int, n: int, calls: int = 1) -> None:
    """One thread sees that there is something to read and hands the connection over (cheroot)."""
    clients, queue, poll = Clients(world, n), Queue(), Poll()
    target = Far(world, 6379, 200 * US)

    def select() -> Program:
        while True:
            for end in (yield "poll", poll):
                end.poll = None
                yield "put", queue, end

    def worker() -> Program:
        ends = asking(world, 100, [target])
        while True:
            end = yield "take", queue
            of, _ = yield "receive", end
            yield from handle(world, of, ends, calls)
            end.poll = poll
            yield "send", end, (of, NOBODY)

    world.start(select, 100)
    for _ in range(4):
        world.start(worker, 100)
    for _ in range(c):
        end = clients.open(100, 8080)
        end.poll = poll
        clients.keep_asking(end)


def reader_and_workers(world: World, c: int, n: int, calls: int = 1) -> None:
    """One thread reads, workers take from its queue, ask and answer."""
    clients, queue, poll = Clients(world, n), Queue(), Poll()
    target = Far(world, 6379, 200 * US)

    def read() -> Program:
        while True:
            for end in (yield "poll", poll):
                of, _ = yield "receive", end
                yield "put", queue, (end, of)

    def worker() -> Program:
        ends = asking(world, 100, [target])
        while True:
            end, of = yield "take", queue
            yield from handle(world, of, ends, calls)
            yield "send", end, (of, NOBODY)

    world.start(read, 100)
    for _ in range(4):
        world.start(worker, 100)
    for _ in range(c):
        end = clients.open(100, 8080)
        end.poll = poll
        clients.keep_asking(end)


def executor_pool(world: World, c: int, n: int, calls: int = 1, pool: int = 4) -> None:
    """A thread per connection; the queries run in a pool, and the thread waits for the result."""
    clients, queue = Clients(world, n), Queue()
    target = Far(world, 5432, 800 * US)

    def handler(end: End) -> Program:
        me: list[Thread] = []
        me.append((yield ("self",)))
        while True:
            of, _ = yield "receive", end
            yield "work", 40 * US, of
            flag: list[int] = []
            yield "put", queue, (of, flag, me[0])
            yield "wait", flag
            yield "work", 20 * US, of
            yield "send", end, (of, NOBODY)

    def run() -> Program:
        ends = asking(world, 100, [target])
        while True:
            of, flag, thread = yield "take", queue
            yield from handle(world, of, ends, calls)
            yield "wake", thread, flag

    for _ in range(pool):
        world.start(run, 100)
    for _ in range(c):
        end = clients.open(100, 8080)
        world.start(lambda end=end: handler(end), 100)  # type: ignore[misc]
        clients.keep_asking(end)


def own_loops(world: World, c: int, n: int, calls: int = 0) -> None:
    """Threads with a loop each over connections of their own (memcached)."""
    del calls
    clients = Clients(world, n)
    polls = [Poll() for _ in range(4)]
    for poll in polls:
        world.start(lambda poll=poll: direct_loop(world, poll, [], 0), 100)  # type: ignore[misc]
    for k in range(c):
        end = clients.open(100, 11211)
        end.poll = polls[k % 4]
        clients.keep_asking(end)


def direct_loop(world: World, poll: Poll, pool: list[End], calls: int) -> Program:
    """Do at once what can be done, as Node, nginx and redis do."""
    waiting: dict[int, tuple[End, int, int]] = {}
    while True:
        for end in (yield "poll", poll):
            got, owner = yield "receive", end
            if end.serves:
                client, of, done = end, got, 0
            else:
                pool.append(end)
                client, of, done = waiting.pop(owner)
            yield "work", 25 * US, of
            if done < calls:
                number = next(world.ids)
                world.owners[number] = of
                waiting[of] = client, of, done + 1
                yield "send", pool.pop(), (number, of)
            else:
                yield "send", client, (of, NOBODY)
            if end.inbox and end not in poll.ready:
                poll.ready.append(end)


def one_loop(world: World, c: int, n: int, calls: int = 0) -> None:
    """A loop that asks nobody (nginx static, redis)."""
    del calls
    clients, poll = Clients(world, n), Poll()
    world.start(lambda: direct_loop(world, poll, [], 0), 100)
    for _ in range(c):
        end = clients.open(100, 6379)
        end.poll = poll
        clients.keep_asking(end)


def node(world: World, c: int, n: int, calls: int = 1) -> None:
    """A loop that runs what is ready at once, over pooled connections (Node)."""
    clients, poll = Clients(world, n), Poll()
    target = Far(world, 6379, 400 * US)
    pool = asking(world, 100, [target] * (c + 1))
    for end in pool:
        end.poll = poll
    world.start(lambda: direct_loop(world, poll, pool, calls), 100)
    for _ in range(c):
        end = clients.open(100, 3000)
        end.poll = poll
        clients.keep_asking(end)


# ------------------------------------------------------------------------- asyncio

Task = Generator[Operation, Any, None]


@dataclass
class Pool:
    """Connections to a backend that are free; with ``grow``, one is opened where none is.

    Else who asks waits, is woken when one is given back, and waits anew if another took it.
    """

    target: Far | Near
    free: deque[End]
    grow: bool = False
    waiters: deque[tuple[Task, Operation]] = field(default_factory=deque)


class Loop:
    """A loop with a ready queue: what an event makes ready runs in its next round."""

    def __init__(self, world: World, process: int) -> None:
        self.world, self.process, self.poll = world, process, Poll()
        self.ready: deque[tuple[str, Any]] = deque()
        self.timers: list[tuple[int, int, Task]] = []
        self.waiting: dict[int, tuple[Task, int, Pool]] = {}  # asking endpoint -> who waits
        self.handler: Callable[[End, int], Task]
        self.jobs = Queue()
        self.notices: End | None = None  # by helpers, that one is done

    def add_helpers(self, many: int) -> None:
        """Start threads that do what is handed over, and tell the loop so over a socket."""
        self.notices, tells = (
            self.world.end(self.process, 0, serves=NOBODY, local=True) for _ in range(2)
        )
        self.notices.peer, tells.peer, self.notices.poll = tells, self.notices, self.poll

        def helper() -> Program:
            while True:
                task, ns, of = yield "take", self.jobs
                yield "work", ns, of
                self.ready.append(("task", (self.idle_round(task), None)))
                yield "send", tells, (NOBODY, NOBODY)

        for _ in range(many):
            self.world.start(helper, self.process)

    def program(self) -> Program:
        while True:
            if self.ready:
                self.poll_now = True
                until: int | None = self.world.now
            else:
                until = self.timers[0][0] if self.timers else None
            events = yield "poll", self.poll, until
            self.ready.extend(("event", end) for end in events)
            while self.timers and self.timers[0][0] <= self.world.now:
                self.ready.append(("task", (heapq.heappop(self.timers)[2], None)))
            for _ in range(len(self.ready)):
                what, it = self.ready.popleft()
                if what == "event":
                    yield from self.receive(it)
                    continue
                if what == "give":
                    *it, pool, end = it
                    pool.free.append(end)
                    if pool.waiters:
                        self.ready.append(("task", pool.waiters.popleft()))
                yield from self.go_on(*it)

    def receive(self, end: End) -> Generator[Operation, Any, None]:
        if not end.inbox:
            return
        got, _ = yield "receive", end
        if end is self.notices:
            return
        if end.serves:
            self.ready.append(("task", (self.handler(end, got), None)))
        elif end.number in self.waiting:
            task, hops, pool = self.waiting.pop(end.number)
            if hops:
                pool.free.append(end)
                self.ready.append(("task", (self.idle_round(task), None)))
            else:
                self.ready.append(("give", (task, None, pool, end)))

    def idle_round(self, task: Task) -> Task:
        """Reach the task a round later, as a callback that wakes another does."""
        self.ready.append(("task", (task, None)))
        return
        yield  # a generator

    def go_on(self, task: Task, again: Operation | None) -> Generator[Operation, Any, None]:
        value = None
        while True:
            try:
                operation, again = again or task.send(value), None
            except StopIteration:
                return
            value = None
            if operation[0] == "hop":
                self.ready.append(("task", (task, None)))
                return
            if operation[0] == "help":
                yield "put", self.jobs, (task, *operation[1:])
                return
            if operation[0] == "nap":
                until = self.world.now + self.world.about(operation[1], operation[2])
                heapq.heappush(self.timers, (until, next(self.world.count), task))
                return
            if operation[0] == "ask":
                _, pool, of, hops = operation
                if pool.free:
                    end = pool.free.popleft()
                elif not pool.grow:
                    pool.waiters.append((task, operation))
                    return
                else:
                    end = yield "connect", self.process, pool.target, of, self.poll
                number = next(self.world.ids)
                self.world.owners[number] = of
                self.waiting[end.number] = task, hops, pool
                yield "send", end, (number, of)
                return
            value = yield operation


def asyncio(
    world: World,
    c: int,
    n: int,
    calls: int = 2,
    *,
    hops: int = 1,
    nap_ns: float = 0,
    nap_spread: float = 0.0,
    grow: bool = False,
    kinds: tuple[int, ...] = (),
    back: int = 0,
    targets: int = 1,
    size: int = 0,
    helpers: int = 0,
) -> None:
    """Handlers as tasks of one loop; ``kinds``: how many calls requests of each kind make.

    A pool has ``size`` connections, or one more than there are clients.  With ``helpers`` a request
    is handed over to one of so many before its last call.
    """
    clients, loop = Clients(world, n), Loop(world, 100)
    if helpers:
        loop.add_helpers(helpers)
    pools = []
    for k in range(targets):
        target = Far(world, 6379 + k, 400 * US)
        pools.append(Pool(target, deque(), grow))
        if not grow:
            pools[k].free.extend(asking(world, 100, [target] * (size or c + 1)))
            for end in pools[k].free:
                end.poll = loop.poll

    def handler(end: End, of: int) -> Task:
        for _ in range(hops - 1):
            yield ("hop",)
        yield "work", 40 * US, of
        if nap_ns:
            yield "nap", nap_ns, nap_spread
            yield "work", 5 * US, of
        for k in range(world.random.choice(kinds) if kinds else calls):
            if helpers and k == calls - 1:
                yield "help", 200 * US, of
            yield "ask", pools[k % targets], of, back
            yield "work", 30 * US, of
        yield "send", end, (of, NOBODY)

    loop.handler = handler
    world.start(loop.program, 100)
    for _ in range(c):
        end = clients.open(100, 8000)
        end.poll = loop.poll
        clients.keep_asking(end)


def two_tiers(world: World, c: int, n: int, calls: int = 1) -> None:
    """A direct loop that connects, processes behind it, a process per connection of a database."""
    clients, poll, queue = Clients(world, n), Poll(), Queue()

    def backend(end: End) -> Program:
        while True:
            of, _ = yield "receive", end
            yield "work", 150 * US, of
            yield "send", end, (of, NOBODY)

    number = itertools.count(300)
    database = Near(
        world, 5432, 0, lambda end, _: (world.start(lambda: backend(end), next(number)), None)[1]
    )
    application = Near(
        world, 9082, 0, lambda end, by: world.do_put(by and None, ("put", queue, end))
    )

    def worker() -> Program:
        ends = asking(world, 0, [database])
        while True:
            end = yield "take", queue
            of, _ = yield "receive", end
            yield from handle(world, of, ends, calls)
            yield "send", end, (of, NOBODY)
            yield "close", end

    def front() -> Program:
        waiting: dict[int, tuple[End, int]] = {}
        while True:
            for end in (yield "poll", poll):
                _got, _owner = yield "receive", end
                if end.serves:
                    yield "work", 20 * US, _got
                    other = yield "connect", 100, application, _got, poll
                    sent = next(world.ids)
                    world.owners[sent] = _got
                    waiting[other.number] = end, _got
                    yield "send", other, (sent, _got)
                else:
                    client, of = waiting.pop(end.number)
                    yield "work", 15 * US, of
                    yield "close", end
                    yield "send", client, (of, NOBODY)

    world.start(front, 100)
    for k in range(4):
        world.start(worker, 200 + k)
    for _ in range(c):
        end = clients.open(100, 80)
        end.poll = poll
        clients.keep_asking(end)


def pipelining(world: World, c: int, n: int, calls: int = 0) -> None:
    """One loop whose clients send eight requests at once."""
    del calls
    clients, poll = Clients(world, n), Poll()

    def serve() -> Program:
        while True:
            for end in (yield "poll", poll):
                batch = []
                while end.inbox:
                    got, _ = yield "receive", end
                    batch.append(got)
                for of in batch:
                    yield "work", 5 * US, of
                for of in batch:
                    yield "send", end, (of, NOBODY)

    world.start(serve, 100)
    for _ in range(c):
        end = clients.open(100, 6379)
        end.poll = poll
        clients.keep_asking(end, depth=8)


def multiplexing(world: World, c: int, n: int, calls: int = 0) -> None:
    """One loop, connections on which several requests are under way, answered in any order."""
    del calls
    clients, loop = Clients(world, n), Loop(world, 100)

    def handler(end: End, of: int) -> Task:
        yield "work", 20 * US, of
        yield "nap", 300 * US, 0.8
        yield "send", end, (of, NOBODY)

    loop.handler = handler
    world.start(loop.program, 100)
    for _ in range(c):
        end = clients.open(100, 8443)
        end.poll = loop.poll
        streams(world, clients, end)


def streams(world: World, clients: Clients, end: End) -> None:
    """Ask over three streams of one connection, each as soon as it was answered."""

    def ask() -> None:
        if clients.left < clients.requests:
            clients.left += 1
            world.arrive(end, clients.new(), None)

    end.far = lambda _: world.at(world.now + world.about(60 * US, 1.0), ask)
    for _ in range(3):
        world.at(world.now + world.about(200 * US, 1.0), ask)


CLASSES: Final[dict[str, Callable[[World, int, int], None]]] = {
    "process per request": process_per_request,
    "thread pool that reads itself": thread_pool,
    "reader and workers": reader_and_workers,
    "executor pool": executor_pool,
    "threads with own loops": own_loops,
    "one loop": one_loop,
    "direct loop, pooled (Node)": node,
    "direct loop, pooled, 3 calls": lambda w, c, n: node(w, c, n, 3),
    "loop, pooled (asyncio)": asyncio,
    "loop, a pool of 3 (asyncio)": lambda w, c, n: asyncio(w, c, n, size=3),
    "loop, a pool of 3, mixed kinds": lambda w, c, n: asyncio(w, c, n, size=3, kinds=(0, 1, 2)),
    "loop, pooled, mixed kinds": lambda w, c, n: asyncio(w, c, n, kinds=(0, 1, 2)),
    "loop, pooled, 3 hops in, 1 back": lambda w, c, n: asyncio(w, c, n, hops=3),
    "loop, two services, 3 hops in": lambda w, c, n: asyncio(w, c, n, hops=3, targets=2),
    "loop, a sleep and a call": lambda w, c, n: asyncio(w, c, n, 1, nap_ns=2e6),
    "loop, a sleep and two services": lambda w, c, n: asyncio(w, c, n, nap_ns=2e6, targets=2),
    "loop, a sleep and 2 calls": lambda w, c, n: asyncio(w, c, n, nap_ns=2e6),
    "loop, unequal sleeps": lambda w, c, n: asyncio(w, c, n, nap_ns=2e6, nap_spread=0.5),
    "loop, connections opened meanwhile": lambda w, c, n: asyncio(w, c, n, grow=True),
    "loop, two helpers between 2 calls": lambda w, c, n: asyncio(w, c, n, helpers=2),
    "two tiers and a database": two_tiers,
    "pipelining": pipelining,
    "multiplexing": multiplexing,
}


# ------------------------------------------------------------------------- tables


@dataclass(frozen=True)
class Simulated:
    """A recording with its truth: rows of the tables, where one is right."""

    activity: Activity
    endpoints: Endpoints
    requests: RequestTable
    subrequests: Subrequests
    processes: dict[int, int]
    owner: np.ndarray  # of every sub-request: row of its request, -1 for nobody's
    parent: np.ndarray  # of every request: row of the request it was asked for
    work: list[tuple[int, int, int, int]]  # tid, begin, end, row of the request


def simulate(name: str, c: int, n: int, seed: int) -> Simulated:
    """Run a server of a class at ``c`` connections until ``n`` requests were sent."""
    world = World(seed)
    CLASSES[name](world, c, n)
    world.run()
    return tabulate(world)


def fill(table: type[Any], many: int, **known: Any) -> Any:
    """Make a table of which some columns are known; the others are -1, certainty doubtful."""
    columns = {}
    for column, kind in table.__annotations__.items():
        if column == "strings":
            continue
        dtype = np.uint8 if kind == "U8" else np.int64
        blank = 2 if kind == "U8" and column != "connects" else 0 if kind == "U8" else -1
        columns[column] = np.asarray(known.get(column, np.full(many, blank)), dtype)
    return table(**columns, **({"strings": known["strings"]} if "strings" in known else {}))


def turns_of(rows: list[tuple[int, ...]], *, serves: bool) -> Iterator[dict[str, Any]]:
    """Cut one endpoint's rows into turns, as docs/requests.md has them."""
    turn: dict[str, Any] = {}
    arrived = -1
    first, last = (Act.RECEIVE, Act.SEND) if serves else (Act.SEND, Act.RECEIVE)
    for time, act, tid, _, value, of in rows:
        if act == Act.OPEN and value == 2:
            yield {"begin": time, "end": time, "tid": tid, "of": {of}, "connects": 1}
        elif act == Act.ARRIVAL and serves:
            arrived = time if arrived < 0 else arrived
        elif act == first:
            if "answered" in turn:
                yield turn
                turn = {}
            if not turn:
                turn = {"begin": arrived if serves else time, "received": time}
                turn.update(reader=tid, of=set(), bytes=0)
                turn["tid"] = tid
            turn["of"].add(of)
            turn["bytes"] += value
        elif act == last and turn:
            turn.setdefault("answered", time)
            turn["end"] = time
            arrived = -1
            if serves:
                turn["tid"] = tid
    if "answered" in turn:
        yield turn


def tabulate(world: World) -> Simulated:
    """Make the tables, and the truth as their rows."""
    world.rows.sort(key=lambda r: r[0])
    columns = list(zip(*world.rows, strict=True))
    time, act, tid, endpoint, value = (np.array(c) for c in columns[:5])
    activity = fill(
        Activity, len(time), time_ns=time, act=act, tid=tid, host=np.zeros(len(time)),
        endpoint=endpoint, value=value,
    )  # fmt: skip
    ends = world.ends
    endpoints = fill(
        Endpoints, len(ends), host=np.zeros(len(ends)), family=np.full(len(ends), 2),
        serves=np.array([e.serves for e in ends]),
        local_port=np.array([e.port if e.serves else 40000 + e.number for e in ends]),
        remote_port=np.array([50000 + e.number if e.serves else e.port for e in ends]),
        local_address=np.zeros(len(ends)), remote_address=np.zeros(len(ends)),
        path=np.zeros(len(ends)), role_how=np.zeros(len(ends)),
        peer=np.array([e.peer.number if e.peer else -1 for e in ends]),
    )  # fmt: skip
    by_end: list[list[tuple[int, ...]]] = [[] for _ in ends]
    for row in world.rows:
        if row[3] >= 0:
            by_end[row[3]].append(row)
    served: list[dict[str, Any]] = []
    asked: list[dict[str, Any]] = []
    for end in ends:
        if end.serves == NOBODY:
            continue
        found = turns_of(by_end[end.number], serves=end.serves)
        for number, turn in enumerate(found, 1):
            turn.update(endpoint=end.number, turn=number, port=end.port)
            (served if end.serves else asked).append(turn)
    served.sort(key=lambda t: t["begin"])
    asked.sort(key=lambda t: t["begin"])

    def column(turns: list[dict[str, Any]], name: str, blank: int = 0) -> np.ndarray:
        return np.array([t.get(name, blank) for t in turns], np.int64)

    ports = sorted({t["port"] for t in served})
    strings = ("", *(f"server:{p}" for p in ports))
    service = np.array([1 + ports.index(t["port"]) for t in served])
    many = len(served)
    requests = fill(
        RequestTable, many, endpoint=column(served, "endpoint"), turn=column(served, "turn"),
        service=service, label=service, begin_ns=column(served, "begin"),
        received_ns=column(served, "received"), answered_ns=column(served, "answered"),
        end_ns=column(served, "end"), reader_tid=column(served, "reader"),
        tid=column(served, "tid"), bytes_in=column(served, "bytes"),
        bytes_out=column(served, "bytes"), why=np.zeros(many), strings=strings,
    )  # fmt: skip
    subrequests = fill(
        Subrequests, len(asked), endpoint=column(asked, "endpoint"),
        begin_ns=column(asked, "begin"), end_ns=column(asked, "end"), tid=column(asked, "tid"),
        connects=column(asked, "connects"),
    )  # fmt: skip
    row_of = {of: i for i, t in enumerate(served) for of in t["of"]}

    def only(owners: set[int]) -> int:
        return row_of.get(next(iter(owners)), -1) if len(owners) == 1 else -1

    owner = np.array([only(t["of"]) for t in asked], np.int64)
    parent = np.array([only({world.owners.get(o, -1) for o in t["of"]}) for t in served], np.int64)
    work = [(tid, b, e, row_of[of]) for tid, b, e, of in world.work if of in row_of]
    processes = {t.tid: t.process for t in world.threads}
    return Simulated(activity, endpoints, requests, subrequests, processes, owner, parent, work)


def arguments(world: Simulated, drawing: Any) -> tuple[Any, ...]:
    """Return what `find_owners` takes."""
    workers = drawing.workers_of(world.processes)
    return world.activity, workers, world.endpoints, world.requests, world.subrequests


def count_work(world: Simulated, slices: Any) -> tuple[float, float]:
    """Return which shares of the handlers' time are in slices of their own, and of others."""
    own = other = total = 0
    rows = {t: np.flatnonzero(slices.tid == t) for t in np.unique(slices.tid).tolist()}
    for tid, begin, end, request in world.work:
        total += end - begin
        mine = rows.get(tid, np.zeros(0, np.int64))
        for row in mine[np.searchsorted(slices.end_ns[mine], begin, side="right") :].tolist():
            if slices.begin_ns[row] >= end:
                break
            inside = min(end, int(slices.end_ns[row])) - max(begin, int(slices.begin_ns[row]))
            own += inside * (slices.request[row] == request)
            other += inside * (slices.request[row] not in {-1, request})
    return float(own) / max(total, 1), float(other) / max(total, 1)
