"""Who works for whom, a row at a time: the plain twin of ``critpath/requests/_owners.pyx``.

No numpy: lists, a class for what is known of a thread, of a request and of a sub-request.  It says
the rules of docs/requests.md as directly as it can; the native pass must say the same of every row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from critpath.model.requests import Act, Certainty, Rule

CERTAIN, LIKELY, DOUBTFUL = Certainty
RING = 16  # idle waits that a thread remembers since its last answer
PENDING = -2  # whose a sub-request is shows later


@dataclass(eq=False)
class Stay:
    """A request waits in a loop's queue for what it does next, between two departures."""

    request: Request
    since: int  # the last departure before
    due: int
    until: int = -1


@dataclass(eq=False)
class Request:
    """A request and what was made for it so far."""

    row: int
    begin: int
    received: int
    end: int
    reader: int
    kind: int
    client: int = -1  # the process that asks
    root: int = -1
    node: int = -1  # what it asked so far
    subs: list[Sub] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    queue: int = -1  # the thread in whose queue it is
    answered: bool = False
    counted: bool = False  # among those that its reader received


@dataclass(eq=False)
class Sub:
    """A sub-request, and by which departure it was made."""

    row: int
    begin: int
    end: int
    endpoint: int
    kind: int
    connects: bool = False
    thread: int = -1
    owner: int = -1
    how: int = Rule.NONE
    sure: int = DOUBTFUL
    departure: int = -1
    open: bool = True


@dataclass(eq=False)
class Thread:
    """What a thread has received, asked, and is to account for."""

    loop: bool = False
    answers: bool = False  # requests that another thread received
    process: int = 0
    lead: int = 0  # rounds by which results are acted on sooner than requests
    received: int = 0
    total: int = 0  # sum of the rows received and not answered: of one, its row
    asked: int = 0
    round: int = 0
    sent: bool = False
    queue: list[Stay] = field(default_factory=list)
    pending: list[Sub] = field(default_factory=list)
    asleep: bool = False
    idle: bool = False
    slept: int = -1
    awake: int = -1  # since its last idle wait
    waits: list[int] = field(default_factory=list)  # ends of idle waits since its last answer
    cut: int = -1  # its slices end here, so far
    handed: int = -1
    handed_of: int = 0  # among how many
    marked: int = -1  # loops: where the open stretch begins
    opened: int = -1  # loops: the request by whose receive it was begun
    opened_kind: int = -1


@dataclass(frozen=True)
class Slice:
    """As a row of the table; ``kind``: what was received where it is one of a loop's own steps."""

    thread: int
    begin: int
    end: int
    request: int
    unanswered: int
    how: int
    sure: int
    kind: int


@dataclass
class Owners:
    """The pass.

    Parameters
    ----------
    requests, subs, threads : lists
        By row, and by number.
    turns : dict of int to list of int
        Rows of every endpoint's requests or sub-requests in order of time.
    serves : list of bool
        By endpoint.
    child, may : lists of lists of int
        By what a request has asked so far (``node``) and what it asks next: the node after that,
        and whether it ever does; without rows, any may ask anything.
    given : list of int
        By sub-request; -1 where the queue is asked.
    """

    requests: list[Request]
    subs: list[Sub]
    threads: list[Thread]
    turns: Mapping[int, Sequence[int]]
    serves: Sequence[bool]
    child: Sequence[Sequence[int]] = ()
    may: Sequence[Sequence[int]] = ()
    given: Sequence[int] = ()  # whose a sub-request is where its loop's queue would be asked
    slices: list[Slice] = field(default_factory=list)
    last_slice: dict[int, int] = field(default_factory=dict)
    steps: Counter[tuple[int, int]] = field(default_factory=Counter)  # receives, by loop and kind
    closed: Counter[tuple[int, int]] = field(default_factory=Counter)
    heals: list[tuple[int, int, int, int]] = field(default_factory=list)
    unsent: dict[int, Request] = field(default_factory=dict)  # received last, until answered
    late: set[int] = field(default_factory=set)  # endpoints where the send before goes on
    departures: int = 0
    connected: dict[int, int] = field(default_factory=dict)
    cursor: Counter[int] = field(default_factory=Counter)

    def run(self, rows: Iterable[tuple[int, int, int, int, int]]) -> None:
        """Go through time, act, thread, endpoint, woken thread, in order of time."""
        for time, act, number, endpoint, woken in rows:
            if endpoint >= 0:
                row = self.turn_at(endpoint, time)
                if act == Act.SEND and self.serves[endpoint]:
                    row = self.find_answered(endpoint, time, row)
                if row < 0 or number < 0:
                    continue
                if self.serves[endpoint]:
                    if act == Act.RECEIVE:
                        self.receive_next(endpoint, time, self.requests[row])
                        self.receive(time, number, self.requests[row])
                    elif act == Act.SEND:
                        self.answer(time, number, self.requests[row])
                elif act in {Act.OPEN, Act.SEND}:
                    self.ask(time, number, self.subs[row])
                elif act == Act.RECEIVE:
                    self.result(time, number, self.subs[row])
            elif act == Act.SLEEP and number >= 0:
                self.sleep(time, number)
            elif act == Act.WAKE and woken >= 0:
                self.wake(time, number, woken)

    def find_answered(self, endpoint: int, time: int, row: int) -> int:
        """Return what a send answers: its call may end after the next request has arrived."""
        unsent, late = self.unsent.get(endpoint), endpoint in self.late
        self.late.discard(endpoint)
        if unsent is None or unsent.end > time:
            return -1 if late else row
        del self.unsent[endpoint]
        return unsent.row if unsent.end < time else row

    def receive_next(self, endpoint: int, time: int, request: Request) -> None:
        """End the request before, whose answer another thread's call is sending still."""
        unsent = self.unsent.get(endpoint)
        if unsent is not None and unsent is not request and unsent.end < time:
            self.answer(time, unsent.reader, unsent)
            self.late.add(endpoint)
        self.unsent[endpoint] = request

    def turn_at(self, endpoint: int, time: int) -> int:
        """Return the endpoint's turn at a time, -1 if there is none."""
        turns = self.turns.get(endpoint, ())
        table: Sequence[Request | Sub] = self.requests if self.serves[endpoint] else self.subs
        while self.cursor[endpoint] < len(turns):
            row = turns[self.cursor[endpoint]]
            if table[row].end >= time:
                return row if table[row].begin <= time else -1
            self.cursor[endpoint] += 1
        return -1

    # ------------------------------------------------------------------ slices

    def add_slice(
        self, number: int, begin: int, end: int, request: int, how: int, sure: int, kind: int = -1
    ) -> None:
        """Add a slice, within its request and after the thread's last one."""
        thread = self.threads[number]
        begin = max(begin, thread.cut)
        if request >= 0:
            begin = max(begin, self.requests[request].begin)
            end = min(end, self.requests[request].end)
        if end <= begin:
            return
        thread.cut = end
        new = Slice(number, begin, end, request, thread.received, how, sure, kind)
        at = self.last_slice.get(number, -1)
        if at >= 0 and kind < 0:
            last = self.slices[at]
            same = (last.request, last.how, last.kind) == (request, how, -1)
            if last.end == begin and same and (how or last.unanswered == thread.received):
                self.slices[at] = Slice(
                    number, last.begin, end, request, last.unanswered, how, sure, -1
                )
                return
        self.last_slice[number] = len(self.slices)
        self.slices.append(new)

    def mark(self, time: int, number: int) -> None:
        """End a loop's stretch at a marker and begin another."""
        thread = self.threads[number]
        if thread.marked >= 0 and thread.received:
            if thread.received == 1:
                self.add_slice(number, thread.marked, time, thread.total, Rule.ALONE, CERTAIN)
            else:
                self.add_slice(number, thread.marked, time, -1, Rule.NONE, DOUBTFUL)
        thread.marked = time
        if thread.opened >= 0:
            self.steps[number, thread.opened_kind] += 1
            thread.opened = -1

    def mark_receive(self, time: int, number: int, request: int, kind: int) -> None:
        """End a loop's stretch at a receive, which may begin a step of ``request``'s own."""
        self.mark(time, number)
        thread = self.threads[number]
        thread.opened, thread.opened_kind = request, kind

    def mark_send(self, time: int, number: int, request: int, how: int, sure: int) -> None:
        """End a loop's stretch at a send: a step if a receive of the same request began it."""
        thread = self.threads[number]
        thread.sent = True
        if request >= 0 and thread.opened == request:
            self.closed[number, thread.opened_kind] += 1
            if thread.received > 1:
                kind = thread.opened_kind
                self.add_slice(number, thread.marked, time, request, how, sure, kind)
        self.mark(time, number)

    # ------------------------------------------------------------------ what threads do

    def receive(self, time: int, number: int, request: Request) -> None:
        """A thread receives a request, or more of it."""
        thread = self.threads[number]
        if thread.loop:
            self.mark_receive(time, number, request.row, request.kind)
        if time != request.received or request.counted:
            return
        request.counted = True
        if thread.loop:
            self.enter(number, request, 0)
        else:
            thread.pending = []
            thread.cut = max(thread.cut, time)
            thread.waits = []
        thread.received += 1
        thread.total += request.row

    def answer(self, time: int, number: int, request: Request) -> None:
        """A thread sends a request's answer, or more of it."""
        thread = self.threads[number]
        reader = self.threads[request.reader]
        if not request.answered:
            request.answered = True
            if reader.loop:
                self.mend(time, request)
            self.leave(request)
        if thread.loop:
            self.mark_send(time, number, request.row, Rule.RESUME, CERTAIN)
        if time < request.end:
            return
        if request.reader == number:
            if not thread.loop:
                self.add_slice(number, request.received, time, request.row, Rule.OWN, CERTAIN)
        else:
            if not thread.loop:
                since = [w for w in thread.waits if w >= request.received]
                begin = since[0] if since else request.received
                self.attribute_pending(number, request, Rule.ANSWER, CERTAIN)
                self.add_slice(number, begin, time, request.row, Rule.ANSWER, CERTAIN)
            if not reader.loop:
                until = reader.slept if reader.asleep else time
                self.add_slice(
                    request.reader, request.received, until, request.row, Rule.OWN, CERTAIN
                )
        if request.counted and reader.received:
            request.counted = False
            reader.received -= 1
            reader.total -= request.row
        thread.cut = max(thread.cut, time)
        thread.waits = []

    def ask(self, time: int, number: int, sub: Sub) -> None:
        """A thread connects or sends a sub-request, or more of it."""
        thread = self.threads[number]
        if time != sub.begin or sub.thread >= 0:  # two sends may have one time
            if thread.loop:
                self.mark_send(time, number, sub.owner, sub.how, sub.sure)
            return
        sub.thread = number
        if sub.connects:
            sub.open = False
        else:
            thread.asked += 1
        owner, how, sure = self.choose(number, sub)
        if owner == PENDING:
            thread.pending.append(sub)
            return
        if owner >= 0:
            self.give(sub, owner, how, sure)
        if thread.loop:
            self.mark_send(time, number, owner, how, sure)

    def choose(self, number: int, sub: Sub) -> tuple[int, int, int]:
        """Return for which request a sub-request is made, by which rule."""
        thread = self.threads[number]
        connect = self.connected.pop(sub.endpoint, -1)
        if not thread.loop:
            if thread.received == 1:
                return thread.total, Rule.OWN, CERTAIN
            return PENDING, Rule.NONE, DOUBTFUL
        if thread.received == 1:
            self.leave(self.requests[thread.total])
            return thread.total, Rule.ALONE, CERTAIN
        # What a connection is opened for is the first that goes over it: one departure.
        if connect >= 0:
            owner = self.subs[connect].owner
            if owner >= 0 and not self.requests[owner].answered:
                self.leave(self.requests[owner])
                return owner, Rule.RESUME, self.subs[connect].sure
        given = self.given[sub.row] if self.given else -1
        if given >= 0 and not self.requests[given].answered:
            request = self.requests[given]
        elif not thread.queue or not thread.received:
            return -1, Rule.NONE, DOUBTFUL
        else:
            fit = [s for s in thread.queue if self.may_ask(s.request, sub)]
            request = min(fit or thread.queue, key=lambda s: s.due).request
        self.leave(request)
        return request.row, Rule.ORDER, LIKELY

    def may_ask(self, request: Request, sub: Sub) -> bool:
        return not self.may or (request.node >= 0 and bool(self.may[request.node][sub.kind]))

    def give(self, sub: Sub, owner: int, how: int, sure: int) -> None:
        """Attribute a sub-request."""
        sub.owner, sub.how, sub.sure = owner, how, sure
        request = self.requests[owner]
        self.departures += 1
        sub.departure = self.departures
        request.subs.append(sub)
        self.go_on(request, sub)
        if sub.connects:
            self.connected[sub.endpoint] = sub.row

    def go_on(self, request: Request, sub: Sub) -> None:
        if request.node >= 0 and not sub.connects and self.child:
            request.node = self.child[request.node][sub.kind]

    def result(self, time: int, number: int, sub: Sub) -> None:
        """A thread receives the answer of a sub-request, or more of it."""
        thread = self.threads[number]
        last = time == sub.end
        if last and sub.open:
            sub.open = False
            if sub.thread >= 0:
                self.threads[sub.thread].asked -= 1
        if thread.loop:
            self.mark_receive(time, number, sub.owner, sub.kind)
            if last and sub.owner >= 0 and not self.requests[sub.owner].answered:
                self.enter(number, self.requests[sub.owner], thread.lead)

    def sleep(self, time: int, number: int) -> None:
        thread = self.threads[number]
        thread.asleep, thread.slept = True, time
        thread.idle = not thread.received and not thread.asked
        if thread.loop:
            self.mark(time, number)
            if thread.received > 1:
                thread.marked = -1  # nobody's callback runs until it is woken
            return
        if thread.idle and not thread.answers:
            if thread.handed >= 0:
                sure = LIKELY if thread.handed_of == 1 else DOUBTFUL
                request = self.requests[thread.handed]
                self.attribute_pending(number, request, Rule.HAND_OVER, sure)
                self.add_slice(number, thread.awake, time, request.row, Rule.HAND_OVER, sure)
            thread.pending = []
            thread.handed = -1

    def wake(self, time: int, by: int, number: int) -> None:
        """A thread (or an interrupt, -1) wakes another."""
        woken = self.threads[number]
        if not woken.asleep:
            return
        woken.asleep = False
        if woken.loop and woken.marked < 0:
            woken.marked = time
        if by >= 0 and self.gives_back(self.threads[by], woken):
            waker, request = self.threads[by], self.requests[woken.total]
            self.attribute_pending(by, request, Rule.GIVE_BACK, LIKELY)
            begin = max(request.received, waker.awake)
            self.add_slice(by, begin, time, request.row, Rule.GIVE_BACK, LIKELY)
            waker.cut = max(waker.cut, time)
            waker.handed = -1
        if woken.idle:
            woken.handed, woken.handed_of = self.works_for(by)
            # Who is woken by the answer to what he asked does not work for it.
            asks = woken.handed >= 0 and self.requests[woken.handed].client == woken.process
            if asks and self.threads[by].process != woken.process:
                woken.handed = -1
            woken.awake = time
            woken.waits = [*woken.waits, time][-RING:]

    def gives_back(self, waker: Thread, woken: Thread) -> bool:
        """Tell whether a thread that serves nobody itself wakes one that waits for a result."""
        serves = waker.loop or waker.answers or waker.received
        waits = not woken.loop and woken.received == 1 and not woken.asked
        return not serves and waits and waker.process == woken.process

    def works_for(self, number: int) -> tuple[int, int]:
        """Return the request that a thread works for now, and among how many."""
        if number < 0:
            return -1, 0
        thread = self.threads[number]
        if thread.received == 1:
            return thread.total, 1
        if thread.received:
            return (thread.queue[0].request.row if thread.queue else -1), thread.received
        return thread.handed, thread.handed_of

    def attribute_pending(self, number: int, request: Request, how: int, sure: int) -> None:
        """Attribute what a thread asked; what it asked before the request came is nobody's."""
        thread = self.threads[number]
        for sub in thread.pending:
            if sub.begin >= request.received:
                self.give(sub, request.row, how, sure)
        thread.pending = []

    # ------------------------------------------------------------------ queues

    def enter(self, number: int, request: Request, lead: int) -> None:
        self.leave(request)
        thread = self.threads[number]
        if thread.sent:
            thread.round += 1
            thread.sent = False
        stay = Stay(request, self.departures, thread.round - lead)
        request.queue = number
        request.stays.append(stay)
        thread.queue.append(stay)

    def leave(self, request: Request) -> None:
        if request.queue >= 0:
            request.stays[-1].until = self.departures
            self.threads[request.queue].queue.remove(request.stays[-1])
            request.queue = -1

    # ------------------------------------------------------------------ mistakes heal

    def mend(self, time: int, request: Request) -> None:
        """Exchange what followed with another's: nobody is answered before what he asked is."""
        if not any(s.open for s in request.subs):
            return
        for stay in self.threads[request.reader].queue:
            other = stay.request
            if other is request:
                continue
            at = self.parted(request, other)
            if at >= 0:
                self.exchange(request, other, at)
                self.heals.append((time, request.reader, request.row, other.row))
                return
        self.heals.append((time, request.reader, request.row, request.row))

    def parted(self, one: Request, other: Request) -> int:
        """Return the last departure of one at which the other waited in the queue, too."""
        best = -1
        for a, b in ((one, other), (other, one)):
            for sub in a.subs:
                if sub.how == Rule.ORDER and sub.departure > best and waited(b, sub.departure):
                    best = sub.departure
        return best

    def exchange(self, one: Request, other: Request, at: int) -> None:
        """Give each what the other did from a departure on."""
        subs, stays = [], []
        for request in (one, other):
            kept = [s for s in request.subs if s.departure < at]
            subs.append(request.subs[len(kept) :])
            request.subs = kept
            waits = [s for s in request.stays if s.since < at]
            stays.append(request.stays[len(waits) - 1 :])
            request.stays = waits[:-1]
        # In the stay at that time both were in the queue, each since its own time.
        first, second = stays[0][0], stays[1][0]
        first.since, second.since = second.since, first.since
        one.queue, other.queue = other.queue, one.queue
        for request, more, waits in ((one, subs[1], stays[1]), (other, subs[0], stays[0])):
            request.subs += more
            request.stays += waits
            for stay in waits:
                stay.request = request
            for sub in more:
                sub.owner = request.row
            request.node = request.root
            for sub in request.subs:
                self.go_on(request, sub)


def waited(request: Request, departure: int) -> bool:
    """Tell whether a request was in a queue at a departure that was not its own."""
    return any(s.since < departure and not 0 <= s.until < departure for s in request.stays)
