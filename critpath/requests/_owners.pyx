# cython: language_level=3
"""Attributes what threads do to requests in one pass, by the rules of docs/requests.md.

State is bounded by the tables: a struct for each thread, request and sub-request, and a node for
every stay of a request in a loop's queue.  The plain twin is tests/oracle/owners.py.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memmove

import numpy as np

include "_acts.pxi"

cdef enum:
    RING = 16            # idle waits that a thread remembers since its last answer
    PENDING = -2         # whose a sub-request is shows later
    SLICE_COLUMNS = 8
    HEAL_COLUMNS = 4
    OWNER_COLUMNS = 4

ctypedef struct Request:
    int64_t begin
    int64_t received
    int64_t end
    int64_t client       # the process that asks, -1 for one that was not recorded
    int32_t reader
    int32_t kind
    int32_t root
    int32_t node
    int32_t first_sub    # its sub-requests, in order of departure
    int32_t last_sub
    int32_t first_stay
    int32_t last_stay
    int32_t queue        # the thread in whose queue it is, -1 in none
    int32_t waiting      # sub-requests without an answer
    uint8_t answered
    uint8_t counted      # among those that its reader received

ctypedef struct Sub:
    int64_t begin
    int64_t end
    int64_t departure
    int32_t endpoint
    int32_t kind
    int32_t thread
    int32_t owner
    int32_t next         # of the same request, or pending in the same thread
    uint8_t connects
    uint8_t how
    uint8_t sure
    uint8_t open

ctypedef struct Stay:
    int64_t since        # the last departure before
    int64_t until        # -1 still there
    int64_t due
    int32_t request
    int32_t next         # of the same request
    int32_t before       # in the queue
    int32_t after

ctypedef struct Thread:
    int64_t process
    int64_t slept
    int64_t awake
    int64_t cut
    int64_t marked
    int64_t total        # sum of the rows received and not answered: of one, its row
    int64_t round
    int64_t waits[RING]
    int64_t last_slice
    int32_t received
    int32_t asked
    int32_t head
    int32_t tail
    int32_t first_pending
    int32_t last_pending
    int32_t handed
    int32_t handed_of
    int32_t opened
    int32_t opened_kind
    int32_t loop         # its row of the counts of steps, -1 none
    int32_t lead
    int32_t waited
    uint8_t answers
    uint8_t asleep
    uint8_t idle
    uint8_t sent


cdef class Owners:
    """The pass over a recording's `Activity`; ``run`` may be called again with other orders.

    Parameters
    ----------
    requests : int64 [n, 4]
        Begin, received, end; the process that asks, or -1.
    request_rows : int32 [n, 2]
        Thread that read, kind.
    subrequests : int64 [m, 2]
        Begin, end.
    subrequest_rows : int32 [m, 3]
        Endpoint, kind, connects.
    threads : int64 [t, 3]
        Process, row of the loop or -1, whether it answers what others read.
    first, order : int32 [endpoints + 1], int32
        Rows of each endpoint's turns in order of time.
    serves : uint8 [endpoints]
    """

    cdef Request* requests
    cdef Sub* subs
    cdef Stay* stays
    cdef Thread* threads
    cdef int32_t* cursor
    cdef int32_t* connected
    cdef int32_t* unsent      # by endpoint: the request received last, until its answer is sent
    cdef int32_t* late        # by endpoint: whether a send of the request before goes on
    cdef int64_t* slices
    cdef int64_t* heals
    cdef int64_t* steps       # receives and steps closed, by loop and kind
    cdef Py_ssize_t request_count, sub_count, thread_count, endpoint_count, loops, kinds
    cdef Py_ssize_t stay_count, stay_room, slice_count, slice_room, heal_count, heal_room
    cdef int64_t departures
    cdef const int64_t[:, ::1] request_times
    cdef const int32_t[:, ::1] request_rows
    cdef const int64_t[:, ::1] sub_times
    cdef const int32_t[:, ::1] sub_rows
    cdef const int64_t[:, ::1] thread_rows
    cdef const int32_t[::1] first
    cdef const int32_t[::1] order
    cdef const uint8_t[::1] serves
    cdef const int32_t[:, ::1] child
    cdef const uint8_t[:, ::1] may
    cdef const int32_t[::1] given

    def __cinit__(self, const int64_t[:, ::1] requests, const int32_t[:, ::1] request_rows,
                  const int64_t[:, ::1] subrequests, const int32_t[:, ::1] subrequest_rows,
                  const int64_t[:, ::1] threads, const int32_t[::1] first,
                  const int32_t[::1] order, const uint8_t[::1] serves):
        cdef Py_ssize_t i
        self.request_times, self.request_rows = requests, request_rows
        self.sub_times, self.sub_rows = subrequests, subrequest_rows
        self.thread_rows = threads
        self.first, self.order, self.serves = first, order, serves
        self.request_count, self.sub_count = requests.shape[0], subrequests.shape[0]
        self.thread_count, self.endpoint_count = threads.shape[0], serves.shape[0]
        self.loops = self.kinds = 0
        for i in range(self.thread_count):
            self.loops = max(self.loops, threads[i, 1] + 1)
        for i in range(self.request_count):
            self.kinds = max(self.kinds, request_rows[i, 1] + 1)
        for i in range(self.sub_count):
            self.kinds = max(self.kinds, subrequest_rows[i, 1] + 1)
        self.slice_room = self.heal_room = 1024
        self.stay_room = self.request_count + self.sub_count + 1
        self.requests = <Request*> calloc(self.request_count + 1, sizeof(Request))
        self.subs = <Sub*> calloc(self.sub_count + 1, sizeof(Sub))
        self.stays = <Stay*> calloc(self.stay_room, sizeof(Stay))
        self.threads = <Thread*> calloc(self.thread_count + 1, sizeof(Thread))
        self.cursor = <int32_t*> calloc(self.endpoint_count + 1, sizeof(int32_t))
        self.connected = <int32_t*> calloc(self.endpoint_count + 1, sizeof(int32_t))
        self.unsent = <int32_t*> calloc(self.endpoint_count + 1, sizeof(int32_t))
        self.late = <int32_t*> calloc(self.endpoint_count + 1, sizeof(int32_t))
        self.slices = <int64_t*> malloc(self.slice_room * SLICE_COLUMNS * sizeof(int64_t))
        self.heals = <int64_t*> malloc(self.heal_room * HEAL_COLUMNS * sizeof(int64_t))
        self.steps = <int64_t*> calloc(2 * self.loops * self.kinds + 1, sizeof(int64_t))
        if (not self.requests or not self.subs or not self.stays or not self.threads
                or not self.cursor or not self.connected or not self.unsent or not self.late
                or not self.slices or not self.heals or not self.steps):
            raise MemoryError

    def __dealloc__(self):
        free(self.requests)
        free(self.subs)
        free(self.stays)
        free(self.threads)
        free(self.cursor)
        free(self.connected)
        free(self.unsent)
        free(self.late)
        free(self.slices)
        free(self.heals)
        free(self.steps)

    cdef void start(self, const int32_t[::1] lead, const int32_t[::1] root) noexcept nogil:
        """Forget everything that a run before found."""
        cdef Py_ssize_t i
        cdef Request* r
        cdef Sub* s
        cdef Thread* t
        for i in range(self.request_count):
            r = &self.requests[i]
            r.begin, r.received = self.request_times[i, 0], self.request_times[i, 1]
            r.end, r.client = self.request_times[i, 2], self.request_times[i, 3]
            r.reader, r.kind = self.request_rows[i, 0], self.request_rows[i, 1]
            r.root = r.node = root[i]
            r.first_sub = r.last_sub = r.first_stay = r.last_stay = r.queue = -1
            r.waiting = 0
            r.answered = r.counted = 0
        for i in range(self.sub_count):
            s = &self.subs[i]
            s.begin, s.end = self.sub_times[i, 0], self.sub_times[i, 1]
            s.endpoint, s.kind = self.sub_rows[i, 0], self.sub_rows[i, 1]
            s.connects = <uint8_t> self.sub_rows[i, 2]
            s.thread = s.owner = s.next = -1
            s.departure = -1
            s.how = RULE_NONE
            s.sure = CERTAINTY_DOUBTFUL
            s.open = not s.connects
        for i in range(self.thread_count):
            t = &self.threads[i]
            t.process, t.loop = self.thread_rows[i, 0], <int32_t> self.thread_rows[i, 1]
            t.answers = self.thread_rows[i, 2] != 0
            t.lead = lead[i]
            t.slept = t.awake = t.cut = t.marked = t.last_slice = -1
            t.total = t.round = 0
            t.received = t.asked = t.waited = t.handed_of = 0
            t.head = t.tail = t.first_pending = t.last_pending = -1
            t.handed = t.opened = t.opened_kind = -1
            t.asleep = t.idle = t.sent = 0
        for i in range(self.endpoint_count):
            self.cursor[i] = self.first[i]
            self.connected[i] = self.unsent[i] = -1
            self.late[i] = 0
        for i in range(2 * self.loops * self.kinds):
            self.steps[i] = 0
        self.stay_count = self.slice_count = self.heal_count = 0
        self.departures = 0

    # ------------------------------------------------------------------ slices

    cdef int add_slice(self, int32_t number, int64_t begin, int64_t end, int32_t request,
                       int how, int sure, int32_t kind) except -1 nogil:
        """Add a slice, within its request and after the thread's last one."""
        cdef Thread* t = &self.threads[number]
        cdef int64_t* row
        cdef void* more
        begin = max(begin, t.cut)
        if request >= 0:
            begin = max(begin, self.requests[request].begin)
            end = min(end, self.requests[request].end)
        if end <= begin:
            return 0
        t.cut = end
        if t.last_slice >= 0 and kind < 0:
            row = &self.slices[t.last_slice * SLICE_COLUMNS]
            if (row[2] == begin and row[3] == request and row[5] == how and row[7] == -1
                    and (how or row[4] == t.received)):
                row[2] = end
                row[6] = sure
                return 0
        if self.slice_count == self.slice_room:
            more = realloc(
                self.slices, 2 * self.slice_room * SLICE_COLUMNS * sizeof(int64_t))
            if not more:
                with gil:
                    raise MemoryError
            self.slices = <int64_t*> more
            self.slice_room *= 2
        t.last_slice = self.slice_count
        row = &self.slices[self.slice_count * SLICE_COLUMNS]
        row[0], row[1], row[2], row[3] = number, begin, end, request
        row[4], row[5], row[6], row[7] = t.received, how, sure, kind
        self.slice_count += 1
        return 0

    cdef int mark(self, int64_t time, int32_t number) except -1 nogil:
        """End a loop's stretch at a marker and begin another."""
        cdef Thread* t = &self.threads[number]
        if t.marked >= 0 and t.received:
            if t.received == 1:
                self.add_slice(
                    number, t.marked, time, <int32_t> t.total, RULE_ALONE, CERTAINTY_CERTAIN, -1)
            else:
                self.add_slice(number, t.marked, time, -1, RULE_NONE, CERTAINTY_DOUBTFUL, -1)
        t.marked = time
        if t.opened >= 0:
            self.steps[2 * (t.loop * self.kinds + t.opened_kind)] += 1
            t.opened = -1
        return 0

    cdef int mark_receive(self, int64_t time, int32_t number, int32_t request,
                          int32_t kind) except -1 nogil:
        """End a loop's stretch at a receive, which may begin a step of the request's own."""
        self.mark(time, number)
        self.threads[number].opened = request
        self.threads[number].opened_kind = kind
        return 0

    cdef int mark_send(self, int64_t time, int32_t number, int32_t request, int how,
                       int sure) except -1 nogil:
        """End a loop's stretch at a send: a step if a receive of the same request began it."""
        cdef Thread* t = &self.threads[number]
        t.sent = 1
        if request >= 0 and t.opened == request:
            self.steps[2 * (t.loop * self.kinds + t.opened_kind) + 1] += 1
            if t.received > 1:
                self.add_slice(number, t.marked, time, request, how, sure, t.opened_kind)
        self.mark(time, number)
        return 0

    # ------------------------------------------------------------------ what threads do

    cdef int receive(self, int64_t time, int32_t number, int32_t row) except -1 nogil:
        """A thread receives a request, or more of it."""
        cdef Thread* t = &self.threads[number]
        cdef Request* r = &self.requests[row]
        if t.loop >= 0:
            self.mark_receive(time, number, row, r.kind)
        if time != r.received or r.counted:
            return 0
        r.counted = 1
        if t.loop >= 0:
            self.enter(number, row, 0)
        else:
            t.first_pending = t.last_pending = -1
            t.cut = max(t.cut, time)
            t.waited = 0
        t.received += 1
        t.total += row
        return 0

    cdef int answer(self, int64_t time, int32_t number, int32_t row) except -1 nogil:
        """A thread sends a request's answer, or more of it."""
        cdef Thread* t = &self.threads[number]
        cdef Request* r = &self.requests[row]
        cdef Thread* reader = &self.threads[r.reader]
        cdef int64_t begin
        cdef int32_t i
        if not r.answered:
            r.answered = 1
            if reader.loop >= 0:
                self.mend(time, row)
            self.leave(row)
        if t.loop >= 0:
            self.mark_send(time, number, row, RULE_RESUME, CERTAINTY_CERTAIN)
        if time < r.end:
            return 0
        if r.reader == number:
            if t.loop < 0:
                self.add_slice(number, r.received, time, row, RULE_OWN, CERTAINTY_CERTAIN, -1)
        else:
            if t.loop < 0:
                begin = r.received
                for i in range(t.waited):
                    if t.waits[i] >= r.received:
                        begin = t.waits[i]
                        break
                self.attribute_pending(number, row, RULE_ANSWER, CERTAINTY_CERTAIN)
                self.add_slice(number, begin, time, row, RULE_ANSWER, CERTAINTY_CERTAIN, -1)
            if reader.loop < 0:
                self.add_slice(r.reader, r.received, reader.slept if reader.asleep else time,
                               row, RULE_OWN, CERTAINTY_CERTAIN, -1)
        if r.counted and reader.received:
            r.counted = 0
            reader.received -= 1
            reader.total -= row
        t.cut = max(t.cut, time)
        t.waited = 0
        return 0

    cdef int ask(self, int64_t time, int32_t number, int32_t row) except -1 nogil:
        """A thread connects or sends a sub-request, or more of it."""
        cdef Thread* t = &self.threads[number]
        cdef Sub* s = &self.subs[row]
        cdef int32_t owner
        if time != s.begin or s.thread >= 0:  # two sends may have one time
            if t.loop >= 0:
                self.mark_send(time, number, s.owner, s.how, s.sure)
            return 0
        s.thread = number
        if not s.connects:
            t.asked += 1
        owner = self.choose(number, s, self.given[row])
        if owner == PENDING:
            s.next = -1
            if t.last_pending < 0:
                t.first_pending = row
            else:
                self.subs[t.last_pending].next = row
            t.last_pending = row
            return 0
        if owner >= 0:
            self.give(row, owner)
        if t.loop >= 0:
            self.mark_send(time, number, owner, s.how, s.sure)
        return 0

    cdef int32_t choose(self, int32_t number, Sub* s, int32_t given) noexcept nogil:
        """Return for which request a sub-request is made, and note by which rule."""
        cdef Thread* t = &self.threads[number]
        cdef int32_t connect = self.connected[s.endpoint]
        cdef int32_t stay, best, row
        cdef int fit, best_fit
        self.connected[s.endpoint] = -1
        if t.loop < 0:
            if t.received != 1:
                return PENDING
            s.how, s.sure = RULE_OWN, CERTAINTY_CERTAIN
            return <int32_t> t.total
        if t.received == 1:
            self.leave(<int32_t> t.total)
            s.how, s.sure = RULE_ALONE, CERTAINTY_CERTAIN
            return <int32_t> t.total
        # What a connection is opened for is the first that goes over it: one departure.
        if connect >= 0:
            row = self.subs[connect].owner
            if row >= 0 and not self.requests[row].answered:
                self.leave(row)
                s.how, s.sure = RULE_RESUME, self.subs[connect].sure
                return row
        if given >= 0 and not self.requests[given].answered:
            self.leave(given)
            s.how, s.sure = RULE_ORDER, CERTAINTY_LIKELY
            return given
        if t.head < 0 or not t.received:
            return -1
        best = -1
        best_fit = 0
        stay = t.head
        while stay >= 0:
            fit = self.may_ask(&self.requests[self.stays[stay].request], s)
            if (best < 0 or fit > best_fit
                    or (fit == best_fit and self.stays[stay].due < self.stays[best].due)):
                best = stay
                best_fit = fit
            stay = self.stays[stay].after
        row = self.stays[best].request
        self.leave(row)
        s.how, s.sure = RULE_ORDER, CERTAINTY_LIKELY
        return row

    cdef inline int may_ask(self, Request* r, Sub* s) noexcept nogil:
        if not self.may.shape[0]:
            return 1
        return r.node >= 0 and self.may[r.node, s.kind] != 0

    cdef void give(self, int32_t row, int32_t owner) noexcept nogil:
        """Attribute a sub-request."""
        cdef Sub* s = &self.subs[row]
        cdef Request* r = &self.requests[owner]
        s.owner = owner
        s.next = -1
        self.departures += 1
        s.departure = self.departures
        if r.last_sub < 0:
            r.first_sub = row
        else:
            self.subs[r.last_sub].next = row
        r.last_sub = row
        r.waiting += s.open
        self.go_on(r, s)
        if s.connects:
            self.connected[s.endpoint] = row

    cdef inline void go_on(self, Request* r, Sub* s) noexcept nogil:
        if r.node >= 0 and not s.connects and self.child.shape[0]:
            r.node = self.child[r.node, s.kind]

    cdef int result(self, int64_t time, int32_t number, int32_t row) except -1 nogil:
        """A thread receives the answer of a sub-request, or more of it."""
        cdef Thread* t = &self.threads[number]
        cdef Sub* s = &self.subs[row]
        cdef bint last = time == s.end
        if last and s.open:
            s.open = 0
            if s.owner >= 0:
                self.requests[s.owner].waiting -= 1
            if s.thread >= 0:
                self.threads[s.thread].asked -= 1
        if t.loop >= 0:
            self.mark_receive(time, number, s.owner, s.kind)
            if last and s.owner >= 0 and not self.requests[s.owner].answered:
                self.enter(number, s.owner, t.lead)
        return 0

    cdef int sleep(self, int64_t time, int32_t number) except -1 nogil:
        cdef Thread* t = &self.threads[number]
        cdef int sure
        t.asleep = 1
        t.slept = time
        t.idle = not t.received and not t.asked
        if t.loop >= 0:
            self.mark(time, number)
            if t.received > 1:
                t.marked = -1  # nobody's callback runs until it is woken
            return 0
        if t.idle and not t.answers:
            if t.handed >= 0:
                sure = CERTAINTY_LIKELY if t.handed_of == 1 else CERTAINTY_DOUBTFUL
                self.attribute_pending(number, t.handed, RULE_HAND_OVER, sure)
                self.add_slice(number, t.awake, time, t.handed, RULE_HAND_OVER, sure, -1)
            t.first_pending = t.last_pending = -1
            t.handed = -1
        return 0

    cdef int wake(self, int64_t time, int32_t by, int32_t number) except -1 nogil:
        """A thread (or an interrupt, -1) wakes another."""
        cdef Thread* t = &self.threads[number]
        cdef Thread* waker
        cdef int32_t row
        if not t.asleep:
            return 0
        t.asleep = 0
        if t.loop >= 0 and t.marked < 0:
            t.marked = time
        if by >= 0:
            waker = &self.threads[by]
            # A thread that serves nobody itself wakes one that waits for a result.
            if (waker.loop < 0 and not waker.answers and not waker.received and t.loop < 0
                    and t.received == 1 and not t.asked and waker.process == t.process):
                row = <int32_t> t.total
                self.attribute_pending(by, row, RULE_GIVE_BACK, CERTAINTY_LIKELY)
                self.add_slice(by, max(self.requests[row].received, waker.awake), time, row,
                               RULE_GIVE_BACK, CERTAINTY_LIKELY, -1)
                waker.cut = max(waker.cut, time)
                waker.handed = -1
        if t.idle:
            t.handed, t.handed_of = -1, 0
            if by >= 0:
                waker = &self.threads[by]
                if waker.received == 1:
                    t.handed, t.handed_of = <int32_t> waker.total, 1
                elif waker.received:
                    t.handed_of = waker.received
                    if waker.head >= 0:
                        t.handed = self.stays[waker.head].request
                else:
                    t.handed, t.handed_of = waker.handed, waker.handed_of
                # Who is woken by the answer to what he asked does not work for it.
                if (t.handed >= 0 and self.requests[t.handed].client == t.process
                        and waker.process != t.process):
                    t.handed = -1
            t.awake = time
            if t.waited == RING:
                memmove(&t.waits[0], &t.waits[1], (RING - 1) * sizeof(int64_t))
                t.waited -= 1
            t.waits[t.waited] = time
            t.waited += 1
        return 0

    cdef void attribute_pending(self, int32_t number, int32_t row, int how,
                                int sure) noexcept nogil:
        """Attribute what a thread asked; what it asked before the request came is nobody's."""
        cdef Thread* t = &self.threads[number]
        cdef int32_t at = t.first_pending, after
        while at >= 0:
            after = self.subs[at].next
            if self.subs[at].begin >= self.requests[row].received:
                self.subs[at].how = how
                self.subs[at].sure = sure
                self.give(at, row)
            at = after
        t.first_pending = t.last_pending = -1

    # ------------------------------------------------------------------ queues

    cdef int enter(self, int32_t number, int32_t row, int32_t lead) except -1 nogil:
        cdef Thread* t = &self.threads[number]
        cdef Request* r = &self.requests[row]
        cdef Stay* stay
        cdef void* more
        cdef int32_t at
        self.leave(row)
        if t.sent:
            t.round += 1
            t.sent = 0
        if self.stay_count == self.stay_room:
            more = realloc(self.stays, 2 * self.stay_room * sizeof(Stay))
            if not more:
                with gil:
                    raise MemoryError
            self.stays = <Stay*> more
            self.stay_room *= 2
        at = <int32_t> self.stay_count
        self.stay_count += 1
        stay = &self.stays[at]
        stay.since, stay.until, stay.due = self.departures, -1, t.round - lead
        stay.request, stay.next = row, -1
        stay.before, stay.after = t.tail, -1
        if t.tail < 0:
            t.head = at
        else:
            self.stays[t.tail].after = at
        t.tail = at
        r.queue = number
        if r.last_stay < 0:
            r.first_stay = at
        else:
            self.stays[r.last_stay].next = at
        r.last_stay = at
        return 0

    cdef void leave(self, int32_t row) noexcept nogil:
        cdef Request* r = &self.requests[row]
        cdef Thread* t
        cdef Stay* stay
        if r.queue < 0:
            return
        t = &self.threads[r.queue]
        stay = &self.stays[r.last_stay]
        stay.until = self.departures
        if stay.before < 0:
            t.head = stay.after
        else:
            self.stays[stay.before].after = stay.after
        if stay.after < 0:
            t.tail = stay.before
        else:
            self.stays[stay.after].before = stay.before
        r.queue = -1

    # ------------------------------------------------------------------ mistakes heal

    cdef int mend(self, int64_t time, int32_t row) except -1 nogil:
        """Exchange what followed with another's: nobody is answered before what he asked is."""
        cdef Request* r = &self.requests[row]
        cdef int32_t stay, other = row
        cdef int64_t at
        cdef int64_t* heal
        cdef void* more
        if not r.waiting:
            return 0
        stay = self.threads[r.reader].head
        while stay >= 0:
            if self.stays[stay].request != row:
                at = self.parted(row, self.stays[stay].request)
                if at >= 0:
                    other = self.stays[stay].request
                    self.exchange(row, other, at)
                    break
            stay = self.stays[stay].after
        if self.heal_count == self.heal_room:
            more = realloc(self.heals, 2 * self.heal_room * HEAL_COLUMNS * sizeof(int64_t))
            if not more:
                with gil:
                    raise MemoryError
            self.heals = <int64_t*> more
            self.heal_room *= 2
        heal = &self.heals[self.heal_count * HEAL_COLUMNS]
        heal[0], heal[1], heal[2], heal[3] = time, r.reader, row, other
        self.heal_count += 1
        return 0

    cdef bint was_waiting(self, int32_t row, int64_t departure) noexcept nogil:
        """Tell whether a request was in a queue at a departure that was not its own."""
        cdef int32_t at = self.requests[row].first_stay
        while at >= 0:
            if self.stays[at].since < departure:
                if not 0 <= self.stays[at].until < departure:
                    return True
            at = self.stays[at].next
        return False

    cdef int64_t parted(self, int32_t one, int32_t other) noexcept nogil:
        """Return the last departure of one at which the other waited in the queue, too."""
        cdef int64_t best = -1
        cdef int32_t a, b, at
        cdef int turn
        for turn in range(2):
            a, b = (one, other) if turn == 0 else (other, one)
            at = self.requests[a].first_sub
            while at >= 0:
                if (self.subs[at].how == RULE_ORDER and self.subs[at].departure > best
                        and self.was_waiting(b, self.subs[at].departure)):
                    best = self.subs[at].departure
                at = self.subs[at].next
        return best

    cdef void cut_subs(self, Request* r, int64_t departure, int32_t* head,
                       int32_t* tail) noexcept nogil:
        """Take the sub-requests from a departure on out of a request's list."""
        cdef int32_t at = r.first_sub, last = -1
        head[0], tail[0] = -1, -1
        while at >= 0 and self.subs[at].departure < departure:
            last = at
            at = self.subs[at].next
        if at < 0:
            return
        head[0], tail[0] = at, r.last_sub
        r.last_sub = last
        if last < 0:
            r.first_sub = -1
        else:
            self.subs[last].next = -1

    cdef void cut_stays(self, Request* r, int64_t departure, int32_t* head,
                        int32_t* tail) noexcept nogil:
        """Take a request's stays out of its list from the last one on that began before."""
        cdef int32_t at = r.first_stay, before = -1
        while self.stays[at].next >= 0 and self.stays[self.stays[at].next].since < departure:
            before = at
            at = self.stays[at].next
        head[0], tail[0] = at, r.last_stay
        r.last_stay = before
        if before < 0:
            r.first_stay = -1
        else:
            self.stays[before].next = -1

    cdef void exchange(self, int32_t one, int32_t other, int64_t departure) noexcept nogil:
        """Give each what the other did from a departure on."""
        cdef int32_t rows[2]
        cdef int32_t sub_head[2]
        cdef int32_t sub_tail[2]
        cdef int32_t stay_head[2]
        cdef int32_t stay_tail[2]
        cdef int32_t at, queue
        cdef int64_t since
        cdef Request* r
        cdef int k
        rows[0], rows[1] = one, other
        for k in range(2):
            r = &self.requests[rows[k]]
            self.cut_subs(r, departure, &sub_head[k], &sub_tail[k])
            self.cut_stays(r, departure, &stay_head[k], &stay_tail[k])
        # In the stay at that time both were in the queue, each since its own time.
        since = self.stays[stay_head[0]].since
        self.stays[stay_head[0]].since = self.stays[stay_head[1]].since
        self.stays[stay_head[1]].since = since
        queue = self.requests[one].queue
        self.requests[one].queue = self.requests[other].queue
        self.requests[other].queue = queue
        for k in range(2):
            r = &self.requests[rows[k]]
            at = stay_head[1 - k]
            if r.last_stay < 0:
                r.first_stay = at
            else:
                self.stays[r.last_stay].next = at
            r.last_stay = stay_tail[1 - k]
            while at >= 0:
                self.stays[at].request = rows[k]
                at = self.stays[at].next
            at = sub_head[1 - k]
            if at >= 0:
                if r.last_sub < 0:
                    r.first_sub = at
                else:
                    self.subs[r.last_sub].next = at
                r.last_sub = sub_tail[1 - k]
            while at >= 0:
                self.subs[at].owner = rows[k]
                at = self.subs[at].next
        for k in range(2):
            r = &self.requests[rows[k]]
            r.node = r.root
            r.waiting = 0
            at = r.first_sub
            while at >= 0:
                r.waiting += self.subs[at].open
                self.go_on(r, &self.subs[at])
                at = self.subs[at].next

    # ------------------------------------------------------------------ the pass

    cdef int32_t turn_at(self, int32_t endpoint, int64_t time) noexcept nogil:
        """Return the endpoint's turn at a time, -1 if there is none."""
        cdef int32_t row, last = self.first[endpoint + 1]
        cdef bint serves = self.serves[endpoint]
        cdef int64_t begin, end
        while self.cursor[endpoint] < last:
            row = self.order[self.cursor[endpoint]]
            if serves:
                begin, end = self.requests[row].begin, self.requests[row].end
            else:
                begin, end = self.subs[row].begin, self.subs[row].end
            if end >= time:
                return row if begin <= time else -1
            self.cursor[endpoint] += 1
        return -1

    cdef int32_t find_answered(self, int32_t endpoint, int64_t time, int32_t row) noexcept nogil:
        """Return what a send answers: mostly the turn at its time.

        A call that sends may end after the answer has arrived, and the next request, too.
        """
        cdef int32_t unsent = self.unsent[endpoint]
        cdef bint late = self.late[endpoint]
        self.late[endpoint] = 0
        if unsent < 0 or self.requests[unsent].end > time:
            return -1 if late else row
        self.unsent[endpoint] = -1
        return unsent if self.requests[unsent].end < time else row

    cdef int receive_next(self, int32_t endpoint, int64_t time, int32_t row) except -1 nogil:
        """End the request before, whose answer another thread's call is sending still."""
        cdef int32_t unsent = self.unsent[endpoint]
        if unsent >= 0 and unsent != row and self.requests[unsent].end < time:
            self.answer(time, self.requests[unsent].reader, unsent)
            self.late[endpoint] = 1
        self.unsent[endpoint] = row
        return 0

    def run(self, const int64_t[::1] time, const uint8_t[::1] act, const int32_t[::1] thread,
            const int32_t[::1] endpoint, const int32_t[::1] woken, const int32_t[::1] lead,
            const int32_t[::1] root, const int32_t[:, ::1] child, const uint8_t[:, ::1] may,
            const int32_t[::1] given):
        """Go through everything that was done, in order of time.

        Parameters
        ----------
        time, act, thread, endpoint, woken : [n]
            `Activity` with numbers of threads.
        lead : int32 [t]
            Rounds of a loop by which results are acted on sooner than requests.
        root : int32 [n]
            Node of every request before it asked anything.
        child, may : [nodes, kinds]
            The node after a request asked, and whether it ever does; no rows: anybody may.
        given : int32 [m]
            Whose a sub-request is where its loop's queue would be asked, -1 to ask it.
        """
        cdef Py_ssize_t i
        cdef int what
        cdef int32_t row, of
        self.child, self.may, self.given = child, may, given
        with nogil:
            self.start(lead, root)
            for i in range(time.shape[0]):
                what, of = act[i], endpoint[i]
                if of >= 0:
                    row = self.turn_at(of, time[i])
                    if what == ACT_SEND and self.serves[of]:
                        row = self.find_answered(of, time[i], row)
                    if row < 0 or thread[i] < 0:
                        continue
                    if self.serves[of]:
                        if what == ACT_RECEIVE:
                            self.receive_next(of, time[i], row)
                            self.receive(time[i], thread[i], row)
                        elif what == ACT_SEND:
                            self.answer(time[i], thread[i], row)
                    elif what == ACT_OPEN or what == ACT_SEND:
                        self.ask(time[i], thread[i], row)
                    elif what == ACT_RECEIVE:
                        self.result(time[i], thread[i], row)
                elif what == ACT_SLEEP:
                    if thread[i] >= 0:
                        self.sleep(time[i], thread[i])
                elif what == ACT_WAKE and woken[i] >= 0:
                    self.wake(time[i], thread[i], woken[i])

    def take_slices(self):
        """Return thread, begin, end, request, unanswered, how, sure, kind of every slice."""
        return take(self.slices, self.slice_count, SLICE_COLUMNS)

    def take_heals(self):
        """Return time, thread, request answered and the one it was exchanged with."""
        return take(self.heals, self.heal_count, HEAL_COLUMNS)

    def take_owners(self):
        """Return request, rule, certainty and departure of every sub-request."""
        cdef int64_t[:, ::1] result = np.empty((self.sub_count, OWNER_COLUMNS), np.int64)
        cdef Py_ssize_t i
        for i in range(self.sub_count):
            result[i, 0], result[i, 1] = self.subs[i].owner, self.subs[i].how
            result[i, 2], result[i, 3] = self.subs[i].sure, self.subs[i].departure
        return np.asarray(result)

    def take_steps(self):
        """Return how many receives of each kind a loop had, and how many a send followed."""
        both = take(self.steps, self.loops * self.kinds, 2)
        shape = (self.loops, self.kinds)
        return both[:, 0].reshape(shape), both[:, 1].reshape(shape)


cdef object take(int64_t* rows, Py_ssize_t count, Py_ssize_t columns):
    cdef int64_t[:, ::1] result = np.empty((count, columns), np.int64)
    cdef Py_ssize_t i, j
    for i in range(count):
        for j in range(columns):
            result[i, j] = rows[i * columns + j]
    return np.asarray(result)
