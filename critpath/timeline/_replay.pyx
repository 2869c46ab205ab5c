# cython: language_level=3
"""Replay of scheduling events: one pass, events -> intervals with wakers.

The rules are those of docs/critical-path.md (sections "states" and "rules").  The
plain-Python twin that tests compare this with is tests/oracle/replay.py.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset
from posix.stdlib cimport posix_memalign

import numpy as np

include "../model/_packed_rows.pxi"
include "../model/_tids.pxi"
include "_kinds.pxi"
include "_rows.pxi"

cdef enum:
    # What a thread is doing now.
    NEVER = 0       # not observed yet
    RUNNING = 1
    RUNNABLE = 2
    ASLEEP = 3
    STOPPED = 4
    DEAD = 5
    LOST = 6        # observed, but an event that should have been there was not
    UNBORN = 7      # forked, not yet woken for the first time
    HIDDEN = 8      # since a gap: its first event tells what it was doing at the end of that
    OBSCURE = 9     # the same, but only a switch tells anything

    # Interrupt contexts, as the exit event must match its entry.
    C_IRQ = 1
    C_SOFTIRQ = 2
    C_TIMER = 3
    C_VECTOR = 4
    C_HIDDEN = 5    # which, a gap has hidden

    # What an event class says by the fields that it has.
    HAS_SUCCESS = 1
    HAS_TARGET = 2

    # What is known of a worker.
    SEEN = 1              # since ThreadInfo.first
    EXITING = 2
    RETRYING = 4          # its last sleep was ended by a timer, and it has run shortly since
    REFUSED = 8           # it tried to get a file lock, and has not slept since
    IN_FUTEX = 16         # it is in that system call, and the address is known

    SOON = 8              # events from now, whose threads are asked for
    MOST_INTERVALS = 3    # that one event adds
    KNOWN_STATES = 4352   # of a thread that leaves the cpu: those of any kernel

    # Kinds, a bit each.
    TELL_OF_IDLE = ((1 << KIND_WAKING) | (1 << KIND_WAKEUP) | (1 << KIND_WAKEUP_NEW)
                    | (1 << KIND_CURRENT))

ctypedef struct EventSemantics:
    # Of an event class: of system calls and vectors the qualifier, and what a thread
    # that it is about waits for (-1: unknown).
    uint8_t kind
    uint8_t flags
    int16_t qualifier     # which field has more to say than the class, -1: none
    int32_t host
    int32_t detail
    int32_t state
    # Which field has the thread that it changes, and the bits of it: none if it has none.
    int32_t thread
    int32_t thread_bits

ctypedef struct Qualifier:
    # What a field's value says: the same as a class may say.
    int32_t detail
    int32_t state

cdef int64_t NEVER_LOST = 0x7FFFFFFFFFFFFFFF

include "_threads.pxi"
include "_softirqs.pxi"
include "_packets.pxi"
include "_holders.pxi"
include "_gaps.pxi"

cdef extern from *:
    """
    #define critpath_assert(condition) _Static_assert(condition, #condition)
    """
    void static_assert "critpath_assert"(bint) noexcept nogil


cdef void check_sizes() noexcept nogil:
    """Do not compile where structs are not whole lines of the cache, or kinds have no bit."""
    static_assert(sizeof(Worker) == 64)
    static_assert(sizeof(Processor) % 64 == 0)
    static_assert(KIND_COUNT <= 64)


# What Python has to know.
CPU_LIMIT = MOST_CPUS

# Fields of an event that has none: of a chunk without values.
cdef int64_t[8] nothing
memset(nothing, 0, sizeof(nothing))


cdef class Replay:
    """The state machine: `feed` it all events, and take the columns when it suits."""

    cdef ThreadTable table
    cdef Network packets
    # Packed rows of threads as they come; the owner and the size of each (_rows.pxi).
    cdef Rows intervals, entries
    cdef bint based               # whether the first block has a base
    cdef int has_waking, has_syscalls
    cdef int32_t no_wake, idle_waker, context_unknown, timer_detail, timer_state
    cdef int64_t[::1] addresses
    cdef int64_t[:, ::1] prev_states   # per host: dead mask, stopped mask, runnable values...
    cdef int8_t* doing_by_state               # [host * KNOWN_STATES + state]
    cdef public uint64_t seen          # a bit for each kind of event that came
    cdef public int64_t contradictions
    cdef EventSemantics* classes
    cdef Py_ssize_t class_count
    # What a value of an event's qualifying field says: a number for (kind, value), plus 1.
    cdef Tids qualifier_of
    cdef Qualifier* qualifiers
    cdef Py_ssize_t qualifier_count
    cdef int32_t[::1] softirq_state, softirq_detail
    cdef int64_t[::1] loss_end, loss_host, loss_cpu
    cdef Py_ssize_t lost
    cdef int64_t[:, ::1] gaps, edges, resumed
    cdef Py_ssize_t passed, resumed_at
    cdef uint8_t[::1] closed           # of hosts
    cdef int64_t[::1] last_gap         # of hosts, -1 none
    cdef int32_t[::1] call_states      # by code of a system call
    cdef int closed_hosts
    cdef public int64_t misplaced      # first event in a gap that leaves it out
    cdef public int64_t unplaced
    cdef Softirqs softirqs
    cdef Retries retries
    cdef uint8_t[::1] has_disks        # of hosts

    def __dealloc__(self):
        free_table(&self.table)
        tids_clear(&self.qualifier_of)
        free(self.qualifiers)
        free(self.classes)
        free(self.doing_by_state)
        clear(&self.intervals)
        clear(&self.entries)
        clear(&self.packets.events)
        clear(&self.packets.sleeps)
        clear_retries(&self.retries)

    def __init__(self, Py_ssize_t hosts, *, int has_waking, int has_syscalls,
                 dict details, int32_t timer_state, int32_t[::1] softirq_state,
                 int32_t[::1] softirq_detail, int64_t[:, ::1] prev_states,
                 int64_t[:, ::1] losses, int64_t[::1] addresses, int64_t[:, ::1] gaps,
                 int64_t[:, ::1] edges, int64_t[:, ::1] resumed, int32_t[::1] call_states):
        """``losses`` has the rows end, host and cpu, in order of the ends; addresses ascend.

        ``gaps`` are as `critpath.timeline.after_gaps.gap_tables` makes them.
        """
        begin_table(&self.table, hosts)
        tids_init(&self.qualifier_of, KIND_COUNT)
        self.load_prev_states(prev_states)
        self.has_waking = has_waking
        self.has_syscalls = has_syscalls
        self.no_wake = details["no_wake"]
        self.idle_waker = details["idle_waker"]
        self.context_unknown = details["context_unknown"]
        self.timer_detail = details["hrtimer"]
        self.addresses = addresses
        self.timer_state = timer_state
        self.softirq_state = softirq_state
        self.softirq_detail = softirq_detail
        self.loss_end, self.loss_host, self.loss_cpu = losses[0], losses[1], losses[2]
        self.lost = 0
        self.gaps, self.edges, self.resumed, self.call_states = gaps, edges, resumed, call_states
        self.passed = self.resumed_at = self.closed_hosts = 0
        self.closed = np.zeros(max(hosts, 1), np.uint8)
        self.last_gap = np.full(max(hosts, 1), -1, np.int64)
        self.misplaced = NEVER_LOST
        self.unplaced = 0
        self.has_disks = np.zeros(max(hosts, 1), np.uint8)
        self.softirqs = Softirqs(
            &self.has_disks[0], &softirq_state[0], NULL, addresses.shape[0],
            details["packet from this host"], details["packet from another host"])
        if addresses.shape[0]:
            self.softirqs.addresses = &addresses[0]
        self.retries.unused = -1

    cdef int load_prev_states(self, int64_t[:, ::1] prev_states) except -1:
        """Look up once what each state says; of as many hosts as are known."""
        cdef Py_ssize_t host, state
        self.prev_states = prev_states
        self.doing_by_state = <int8_t*>malloc(max(self.table.hosts, 1) * KNOWN_STATES)
        if self.doing_by_state == NULL:
            raise MemoryError()
        for host in range(self.table.hosts):
            for state in range(KNOWN_STATES):
                self.doing_by_state[host * KNOWN_STATES + state] = self.doing_after(host, state)
        return 0

    cdef int8_t doing_after(self, Py_ssize_t host, int64_t state) noexcept nogil:
        """Return what a thread does that leaves the cpu in a state."""
        cdef Py_ssize_t i
        for i in range(2, self.prev_states.shape[1]):
            if state == self.prev_states[host, i]:
                return RUNNABLE
        if state & self.prev_states[host, 0]:
            return DEAD
        if state & self.prev_states[host, 1]:
            return STOPPED
        return ASLEEP

    def add_class(self, int kind, int host, int32_t detail, int32_t state, int qualifier,
                  bint has_success, bint has_target):
        """Add the next event class: see `critpath.timeline.replay.EventSemantics`."""
        cdef EventSemantics* more = <EventSemantics*>realloc(
            self.classes, (self.class_count + 1) * sizeof(EventSemantics))
        if more == NULL:
            raise MemoryError()
        self.classes = more
        more += self.class_count
        self.class_count += 1
        more.kind = <uint8_t>kind
        more.host = host
        more.detail = detail
        more.state = state
        more.qualifier = <int16_t>qualifier
        more.flags = HAS_SUCCESS * has_success | HAS_TARGET * has_target
        more.thread = 4 if kind == KIND_SWITCH else 0
        more.thread_bits = 0
        if (kind == KIND_SWITCH or kind == KIND_WAKING or kind == KIND_WAKEUP
                or kind == KIND_WAKEUP_NEW):
            more.thread_bits = (1 << TID_BITS) - 1

    def name_ksoftirqd(self, int64_t host, int32_t cpu, int32_t name):
        """Say what the thread is called that runs a processor's softirqs that were deferred."""
        # No thread is called by code 0, which is how a processor begins: asked for once.
        self.table.processors[self.table.processor_of[host * MOST_CPUS + cpu] - 1].ksoftirqd = (
            name or -1)

    def add_qualifier(self, int kind, int64_t value, int32_t detail, int32_t state):
        """Say what a value of the qualifying field means, in all events of a kind."""
        cdef Qualifier* more = <Qualifier*>realloc(
            self.qualifiers, (self.qualifier_count + 1) * sizeof(Qualifier))
        if more == NULL:
            raise MemoryError()
        self.qualifiers = more
        more[self.qualifier_count].detail = detail
        more[self.qualifier_count].state = state
        self.qualifier_count += 1
        tid_number(&self.qualifier_of, kind, value)[0] = <int32_t>self.qualifier_count

    cdef inline int qualify(self, const EventSemantics* of, const int64_t* v,
                            Qualifier* found) except -1 nogil:
        """Fill in what an event's qualifying field says, or its class; 0 if that is not known."""
        cdef int32_t number
        if of.qualifier < 0:
            found.detail = of.detail
            found.state = of.state
            return 1
        number = tid_number(&self.qualifier_of, of.kind, v[of.qualifier])[0]
        if number == 0:
            return 0
        found[0] = self.qualifiers[number - 1]
        return 1

    # ---------------------- intervals of threads, interrupt work of processors: written as they end

    # The rows that an event may add are reserved before it, so that adding one cannot fail.

    cdef void emit(self, int32_t worker, int64_t end, int32_t state, int32_t detail,
                   int32_t cpu) noexcept nogil:
        """End what a worker did without being woken."""
        cdef Worker* w = &self.table.workers[worker]
        cdef char* p = self.intervals.data + self.intervals.size
        if end > w.since:
            self.count_row(worker, end, put_row(p, w.since, end, detail, cpu, <uint8_t>state,
                                                 w.row_end) - p)

    cdef void emit_woken(self, int32_t worker, int64_t end, int32_t state, int32_t detail,
                         int32_t cpu, int32_t waker, int64_t woken) noexcept nogil:
        cdef Worker* w = &self.table.workers[worker]
        cdef char* p = self.intervals.data + self.intervals.size
        if end > w.since:
            self.count_row(worker, end, put_woken(p, w.since, end, woken, detail, cpu, waker,
                                                   <uint8_t>state, w.row_end) - p)

    cdef inline void count_row(self, int32_t worker, int64_t end, Py_ssize_t size) noexcept nogil:
        """Account for a row that was written behind the others."""
        cdef Worker* w = &self.table.workers[worker]
        self.intervals.size += size
        (<int64_t*>self.entries.data)[self.entries.size] = <int64_t>worker << SIZE_BITS | size
        self.entries.size += 1
        w.rows += 1
        w.row_end = end

    cdef inline void emit_cpu_interval(self, Processor* p, int64_t end,
                                       int32_t worker) noexcept nogil:
        cdef char* at = p.ran.bytes.data + p.ran.bytes.size
        count_tail(&p.ran, end, put_ran(at, p.since, end, worker, p.ran.end) - at)
        if p.net_ran >= 0:
            assign_senders(&self.packets, &self.table, p, end, worker)
        p.ran_end = end
        p.ran_worker = worker

    cdef void end_state(self, int32_t index, int64_t t) noexcept nogil:
        """End what a worker is doing at ``t``, where no event of its own explains it better."""
        cdef Worker* w = &self.table.workers[index]
        if w.doing == RUNNING:
            self.emit_run(index, t)
        elif w.doing == RUNNABLE:
            self.emit(index, t, STATE_WAIT_CPU, 0, w.cpu)
        elif w.doing == ASLEEP or w.doing == STOPPED:
            self.emit_sleep(index, t)
        elif w.doing == LOST:
            self.emit(index, t, STATE_UNKNOWN, 0, -1)
        elif w.doing >= HIDDEN:
            self.emit(index, t, STATE_NOT_RECORDED, 0, -1)

    cdef inline void emit_run(self, int32_t index, int64_t t) noexcept nogil:
        cdef Worker* w = &self.table.workers[index]
        if w.known & RETRYING:
            count_run(&self.retries, &self.table, index, t)
        self.emit(index, t, w.run_state,
                  w.syscall if w.run_state == STATE_RUN_SYSCALL else 0, w.cpu)

    cdef void emit_sleep(self, int32_t index, int64_t t) noexcept nogil:
        """End a sleep at ``t`` by the wake that was seen, or unexplained."""
        cdef Worker* w = &self.table.workers[index]
        cdef int32_t state, detail
        cdef int64_t woken
        if w.doing == STOPPED:
            self.table.infos[index].awake = t
            self.emit(index, t, STATE_WAIT_STOPPED, 0, w.cpu)
            return
        end_try(&self.retries, &self.table, index, t)
        if w.woken < 0:
            self.emit(index, t, STATE_WAIT_UNEXPLAINED, self.no_wake, w.cpu)
            return
        state = w.wake_state
        detail = w.wake_detail
        woken = w.woken
        if w.waker >= 0:
            woken -= detail
            detail = 0
        if state == STATE_WAIT_UNEXPLAINED and w.syscall and w.syscall_state >= 0:
            state = w.syscall_state
            detail = w.syscall
        elif state == STATE_WAIT_TASK and w.syscall:
            detail = w.syscall
            # A disk or network call woken by a thread is still a wait for that thread.
            if STATE_WAIT_FUTEX <= w.syscall_state <= STATE_WAIT_PIPE:
                state = w.syscall_state
        if w.run_state == STATE_NOT_RECORDED:
            state = STATE_NOT_RECORDED
        if state == STATE_WAIT_NET and w.waker < 0 and t > w.since:
            note_sleep(&self.packets, index, t, w.woken)
        self.emit_woken(index, t, state, detail, w.cpu, w.waker, woken)

    cdef inline void note_wake(self, Worker* w, Processor* p, int64_t t) noexcept nogil:
        """Remember who wakes ``w`` from the context that ``p`` is in."""
        cdef Context* top
        w.woken = t
        w.waker = -1
        if p.depth:
            top = &p.stack[p.depth - 1]
            w.wake_state = <int8_t>top.state
            w.wake_detail = top.detail
            if top.answers and top.cause.worker >= 0:
                w.wake_state = STATE_WAIT_TASK
                w.waker = top.cause.worker
                w.wake_detail = 0
                # Where it still runs, what the softirq does is its own work.
                if top.cause.worker != p.current:
                    w.wake_detail = <int32_t>min(t - top.cause.at, 0x7FFFFFFF)
            elif top.answers:
                w.wake_state = <int8_t>top.cause.state
                w.wake_detail = top.cause.detail
            name_packet(&self.softirqs, p, &w.wake_detail, w.wake_state)
        elif p.current < 0:
            w.wake_state = (STATE_NOT_RECORDED if p.hidden & NOBODY_KNOWN
                            else STATE_WAIT_UNEXPLAINED)
            w.wake_detail = 0 if p.hidden & NOBODY_KNOWN else self.context_unknown
        elif p.current == p.idle:
            w.wake_state = STATE_WAIT_UNEXPLAINED
            w.wake_detail = self.idle_waker
        else:
            w.wake_state = STATE_WAIT_TASK
            w.wake_detail = 0
            w.waker = p.current
        note_waker(&self.table, <Py_ssize_t>(w - self.table.workers), w.waker)

    cdef int32_t new_incarnation(self, int64_t host, int64_t tid, int64_t t) except -2 nogil:
        """Return a new life of a tid: the old one, if any, has ended."""
        cdef int32_t* number = tid_number(&self.table.tids, host, tid)
        cdef int32_t fresh = new_worker(&self.table, host, tid, t)
        if number[0]:
            self.end_state(number[0] - 1, t)
            self.table.workers[number[0] - 1].doing = DEAD
        number[0] = fresh + 1
        return fresh

    cdef inline void enter(self, Processor* p, int64_t t, int kind, int32_t key, int32_t state,
                           int32_t detail, int shown) noexcept nogil:
        cdef Context* top
        if p.depth == DEPTH:
            p.overflow += 1
            return
        self.emit_interrupt(p, t)
        top = &p.stack[p.depth]
        top.kind = kind
        top.key = key
        top.state = state
        top.detail = detail
        top.shown = shown
        top.answers = 0
        top.cause.known = 0
        p.depth += 1
        p.top_since = t

    cdef inline void leave(self, Processor* p, int64_t t, int kind, int32_t key) noexcept nogil:
        cdef int i
        if p.overflow:
            p.overflow -= 1
            return
        # Down to the matching entry: contexts above it have lost their exit.
        i = p.depth - 1
        while i >= 0 and not (p.stack[i].kind == kind and p.stack[i].key == key) \
                and p.stack[i].kind != C_HIDDEN:
            i -= 1
        if i < 0:
            return
        self.emit_interrupt(p, t)
        p.depth = i
        p.top_since = t

    cdef inline void emit_interrupt(self, Processor* p, int64_t t) noexcept nogil:
        cdef char* at = p.stolen.bytes.data + p.stolen.bytes.size
        if p.depth and t > p.top_since:
            count_tail(&p.stolen, t, put_stolen(at, p.top_since, t,
                                                <uint8_t>p.stack[p.depth - 1].shown,
                                                p.stack[p.depth - 1].detail, p.stolen.end) - at)
            if p.net_stolen >= 0:
                extend_interrupts(&self.packets, p, p.top_since, t)

    # ------------------------------ what an event makes of the threads and processors that it names

    cdef inline int on_switch(self, Processor* p, int64_t t, const int64_t* v) except -1 nogil:
        cdef int32_t prev, following
        cdef Worker* w
        cdef int32_t doing
        cdef int64_t state = v[2]
        prev = p.idle if v[1] == 0 else worker_of(&self.table, p.host, v[1], t)
        w = &self.table.workers[prev]
        # Out of idle, if it can have been woken, or where the trace tells who is current, a
        # switch that is missing may be put in again.
        if p.current >= 0 and v[1] != p.current_tid and v[1] and self.seen & (
                TELL_OF_IDLE if p.current == p.idle else <uint64_t>1 << KIND_CURRENT):
            self.contradictions += 1
        w = mark_seen(&self.table, prev, t)
        w.name = <int32_t>v[0]
        if p.current == prev:
            self.emit_cpu_interval(p, t, prev)
        elif (p.current >= 0 and p.current != p.idle
                and self.table.workers[p.current].doing == RUNNING):
            # Its own switch-out is missing: from its last sure moment on, nothing is known.
            self.table.workers[p.current].doing = LOST
        if w.doing == RUNNING and w.cpu == p.cpu:
            self.emit_run(prev, t)
        elif w.doing != NEVER and w.doing != UNBORN:
            self.emit(prev, t, unknown_since(self, w, p.host), 0, -1)
        # What it does from now on.
        if prev == p.idle:
            doing = RUNNABLE
        else:
            if 0 <= state < KNOWN_STATES:
                doing = self.doing_by_state[p.host * KNOWN_STATES + state]
            else:
                doing = self.doing_after(p.host, state)
            # TASK_DEAD was 64, then 128, which meant other things in other releases.
            if w.known & EXITING and doing == ASLEEP and state & 192 and not state & 3:
                doing = DEAD
        w.doing = doing
        w.since = t
        if not w.pending:
            w.woken = -1
            w.waker = -1
        # Next.
        following = p.idle if v[4] == 0 else worker_of(&self.table, p.host, v[4], t)
        w = &self.table.workers[following]
        if w.doing == DEAD and following != p.idle:
            following = self.new_incarnation(p.host, v[4], t)
            w = &self.table.workers[following]
        mark_seen(&self.table, following, t)
        w.name = <int32_t>v[3]
        if following == p.idle:
            pass
        elif w.doing == RUNNABLE:
            # It queued where it left or where its wake sent it; the cpu that it then got may
            # have been another, idle or busy with something else meanwhile.
            self.emit(following, t, STATE_WAIT_CPU, 0, w.cpu if w.cpu >= 0 else p.cpu)
        elif w.doing == ASLEEP or w.doing == STOPPED:
            if w.woken >= 0 and w.pending:
                # The wake raced the switch-out: it never really slept.
                self.emit(following, t, STATE_WAIT_CPU, 0, w.cpu if w.cpu >= 0 else p.cpu)
            elif w.woken >= 0:
                # Waking without wakeup: runnable from the waking on.
                self.emit_sleep(following, w.woken)
                w.since = w.woken
                self.emit(following, t, STATE_WAIT_CPU, 0, p.cpu)
            else:
                self.emit_sleep(following, t)
        elif w.doing == RUNNING or w.doing == LOST or w.doing >= UNBORN:
            # Since its fork, where no sched_wakeup_new says when it became runnable.
            self.emit(following, t, unknown_since(self, w, p.host), 0, -1)
        w.doing = RUNNING
        w.since = t
        w.cpu = p.cpu
        w.woken = -1
        w.waker = -1
        w.pending = 0
        p.current = following
        p.current_tid = v[4]
        p.since = t
        p.hidden &= ~NOBODY_KNOWN
        return 0

    cdef inline int on_wake(self, Processor* p, int64_t t, int64_t tid, int64_t cpu,
                            int kind) except -1 nogil:
        if tid == 0:
            return 0
        cdef int32_t index = worker_of(&self.table, p.host, tid, t)
        cdef Worker* w = &self.table.workers[index]
        # Any number, if the trace is damaged.
        if not 0 <= cpu < MOST_CPUS:
            cpu = -1
        if w.doing == DEAD:
            if kind != KIND_WAKEUP_NEW:
                return 0
            index = self.new_incarnation(p.host, tid, t)
            w = &self.table.workers[index]
        if w.doing >= HIDDEN and wake_hidden(self, index, t, <int32_t>cpu, kind, p):
            w.last = t
            return 0
        # A thread's life starts when it is first seen on a cpu; a wake before that tells
        # what it does from then on, not that it was there before.
        w.last = t
        if w.doing == ASLEEP or w.doing == STOPPED:
            if kind == KIND_WAKING:
                if w.woken < 0 or w.pending:
                    w.pending = 0
                    self.note_wake(w, p, t)
                return 0
            if w.woken < 0 or w.pending:
                if w.pending and self.has_waking:
                    # The late half of the wake that raced the switch-out.
                    return 0
                w.pending = 0
                if self.has_waking:
                    w.woken = t
                    w.waker = -1
                    w.wake_state = STATE_WAIT_UNEXPLAINED
                    w.wake_detail = self.context_unknown
                else:
                    self.note_wake(w, p, t)
            self.emit_sleep(index, t)
            w.doing = RUNNABLE
            w.since = t
            w.cpu = <int32_t>cpu
        elif w.doing == RUNNING:
            if kind == KIND_WAKING or not self.has_waking:
                self.note_wake(w, p, t)
                w.pending = 1
        elif w.doing == NEVER or w.doing == UNBORN:
            if kind == KIND_WAKEUP_NEW and self.table.infos[index].parent < 0 and p.depth == 0 \
                    and p.current >= 0 and p.current != p.idle:
                self.table.infos[index].parent = p.current
            if kind == KIND_WAKEUP_NEW:
                self.table.infos[index].born = t
            if kind != KIND_WAKING or w.doing == NEVER:
                w.doing = RUNNABLE
                w.since = self.table.infos[index].awake = t
                w.cpu = <int32_t>cpu
        return 0

    cdef int on_fork(self, Processor* p, int64_t t, const int64_t* v) except -1 nogil:
        # Idle is a thread per cpu: no one thread 0 creates anything.
        cdef int32_t parent = worker_of(&self.table, p.host, v[0], t) if v[0] else -1, child
        cdef Worker* w
        cdef ThreadInfo* info
        child = self.new_incarnation(p.host, v[2], t)
        w = &self.table.workers[child]
        info = &self.table.infos[child]
        info.parent = parent
        info.born = t
        info.pid = v[3]
        w.name = <int32_t>v[5]
        w.run_state = STATE_RUN_USER if self.has_syscalls else STATE_RUN
        w.doing = UNBORN
        w.since = t
        if parent >= 0:
            mark_seen(&self.table, parent, t)
        if parent >= 0 and self.table.infos[parent].pid < 0:
            self.table.infos[parent].pid = v[1]
        return 0

    cdef int on_life(self, Processor* p, int64_t t, const int64_t* v, int kind) except -1 nogil:
        """A thread executes a program, ends, or was there when the recording began."""
        cdef int32_t index
        cdef Worker* w
        cdef ThreadInfo* info
        if v[0] == 0:
            return 0
        index = worker_of(&self.table, p.host, v[0], t)
        w = &self.table.workers[index]
        if kind == KIND_STATEDUMP:
            info = &self.table.infos[index]
            if info.pid < 0:
                info.pid = v[1]
            if w.name == 0:
                w.name = <int32_t>v[2]
            # LTTng's thread status: 5 waits for an event.
            if w.doing == NEVER and v[3] == 5:
                w.doing = ASLEEP
                w.since = t
            return 0
        mark_seen(&self.table, index, t)
        # Linux 6.16 and later write an exit before the memory and the files are released: it may
        # sleep on the way, and lives until a switch says that it is dead.
        if kind == KIND_EXIT:
            w.known |= EXITING
            if v[1]:
                w.name = <int32_t>v[1]
        return 0

    # -------------------------------------------------------------------------- from event to event

    cdef int reserve_rows(self, Py_ssize_t events) except -1 nogil:
        """Reserve what some events may add."""
        self.reserve_intervals(MOST_INTERVALS * events)
        self.reserve_tails(events)
        reserve(&self.packets.events, events, sizeof(NetEvent))
        reserve(&self.packets.sleeps, MOST_INTERVALS * events, sizeof(NetSleep))
        reserve(&self.retries.sleeps, MOST_INTERVALS * events, sizeof(TimedSleep))
        reserve(&self.retries.timed, MOST_INTERVALS * events, sizeof(TimedLength))
        reserve(&self.retries.locks, events, sizeof(int32_t))
        return 0

    def feed(self, const int64_t[::1] timestamp, const int32_t[::1] cpu,
             const int32_t[::1] event_class, const int64_t[::1] offset,
             const int64_t[::1] values, Py_ssize_t begin):
        """Replay events from one of them on.

        Returns where it stopped: at the end, at an event with a qualifier that
        `add_qualifier` did not explain yet, or at a cpu that no machine has.
        """
        cdef Py_ssize_t i = begin, n = timestamp.shape[0], end
        cdef const int64_t* all_values = &nothing[0]
        if values.shape[0]:
            all_values = &values[0]
        if begin >= n:
            return n
        self.begin_block(timestamp[0])
        with nogil:
            while i < n:
                end = min(i + SLICE, n)
                self.reserve_rows(SLICE)
                i = self.replay_slice(&timestamp[0], &cpu[0], &event_class[0], &offset[0],
                                  all_values, max(values.shape[0], 1), i, end)
                if i < end:
                    break
        return i

    cdef inline void prefetch_thread(self, const EventSemantics* semantics,
                                     int64_t tid) noexcept nogil:
        """Ask for what is known of a thread that an event will change soon.

        Without a branch on what the event is: those would be guessed wrong once more.
        """
        cdef size_t thread = <size_t>tid & <size_t>semantics.thread_bits
        cdef int32_t* numbers = self.table.tids.pages[
            (<size_t>semantics.host << (TID_BITS - TID_PAGE_BITS)) + (thread >> TID_PAGE_BITS)]
        if numbers != NULL:
            # Of a thread that has no number yet: some line that is not needed.
            prefetch(<void*>(<char*>self.table.workers
                             + <Py_ssize_t>numbers[thread & (TID_PAGE - 1)] * sizeof(Worker)
                             - sizeof(Worker)))

    cdef Py_ssize_t replay_slice(self, const int64_t* timestamp, const int32_t* cpu,
                             const int32_t* event_class, const int64_t* offset,
                             const int64_t* values, Py_ssize_t value_count,
                             Py_ssize_t begin, Py_ssize_t end) except -1 nogil:
        cdef Py_ssize_t i, soon
        cdef int64_t t
        cdef int kind
        cdef int32_t place, j
        cdef Qualifier qualifier
        cdef Processor* p
        cdef Worker* w
        cdef EventSemantics* semantics
        cdef const int64_t* v
        cdef int64_t next_stop = pass_stops(self, timestamp[begin] if begin < end else 0)
        for i in range(begin, end):
            soon = min(i + SOON, end - 1)
            semantics = &self.classes[event_class[soon]]
            self.prefetch_thread(
                semantics, values[min(offset[soon] + semantics.thread, value_count - 1)])
            semantics = &self.classes[event_class[i]]
            kind = semantics.kind
            # Also of events that mean nothing here: the trace is damaged.
            if cpu[i] >= MOST_CPUS:
                return i
            if kind == 0:
                continue
            t = timestamp[i]
            if next_stop <= t:
                next_stop = pass_stops(self, t)
            if self.closed_hosts and is_passed_over(self, semantics.host, t, kind):
                continue
            self.seen |= <uint64_t>1 << kind
            if cpu[i] < 0:
                self.unplaced += 1
                if kind == KIND_NET_SEND or kind == KIND_NET_RECEIVE:
                    note_packet(&self.packets, &self.table, NULL, t, 0)
                elif kind == KIND_FILE_LOCK:
                    note_lock(&self.retries, &self.table, NULL, 0)
                continue
            place = self.table.processor_of[<size_t>semantics.host * MOST_CPUS + <size_t>cpu[i]]
            if place == 0:
                new_processor(&self.table, semantics.host, cpu[i], t)
                place = <int32_t>self.table.processor_count
                if self.last_gap[semantics.host] >= 0:
                    self.table.processors[place - 1].hidden = NOBODY_KNOWN
            p = &self.table.processors[place - 1]
            v = values + offset[i]
            if kind == KIND_SYSCALL_ENTRY or kind == KIND_SYSCALL_EXIT or kind == KIND_FUTEX:
                if p.current >= 0 and p.current != p.idle:
                    # It was seen when it came.
                    w = &self.table.workers[p.current]
                    w.last = t
                    if w.doing == RUNNING:
                        self.emit_run(p.current, t)
                        w.since = t
                    note_futex(&self.table, p.current, v[0] if kind == KIND_FUTEX else 0)
                    w.syscall = semantics.detail
                    w.syscall_state = <int8_t>semantics.state
                    if self.has_syscalls:
                        w.run_state = (STATE_RUN_USER if kind == KIND_SYSCALL_EXIT
                                       else STATE_RUN_SYSCALL)
            elif kind == KIND_SWITCH:
                self.on_switch(p, t, v)
            elif kind == KIND_WAKING or kind == KIND_WAKEUP or kind == KIND_WAKEUP_NEW:
                if semantics.flags & HAS_SUCCESS and v[3] == 0:
                    continue
                self.on_wake(p, t, v[0], v[2] if semantics.flags & HAS_TARGET else -1, kind)
            elif kind == KIND_IRQ_ENTRY:
                if not self.qualify(semantics, v, &qualifier):
                    return i
                self.has_disks[p.host] |= qualifier.state == STATE_WAIT_DISK
                p.interrupted = NEVER_LOST
                self.enter(p, t, C_IRQ, <int32_t>v[0], qualifier.state, qualifier.detail, STATE_IRQ)
            elif kind == KIND_IRQ_EXIT:
                self.leave(p, t, C_IRQ, <int32_t>v[0])
            elif kind == KIND_SOFTIRQ_RAISE:
                if p.ksoftirqd == 0:
                    return i
                on_raise(&self.softirqs, &self.table, p, t, v[0], v[1])
            elif kind == KIND_SOFTIRQ_ENTRY:
                if p.ksoftirqd == 0:
                    return i
                j = <int32_t>self.softirq_state.shape[0] - 1
                if 0 <= v[0] < j:
                    j = <int32_t>v[0]
                self.enter(p, t, C_SOFTIRQ, <int32_t>v[0], self.softirq_state[j],
                           self.softirq_detail[j], STATE_SOFTIRQ)
                on_softirq(&self.softirqs, &self.table, p, t, v[0])
            elif kind == KIND_SOFTIRQ_EXIT:
                self.leave(p, t, C_SOFTIRQ, <int32_t>v[0])
                after_softirq(p, t, v[0])
            elif kind == KIND_TIMER_ENTRY:
                p.interrupted = NEVER_LOST
                self.enter(p, t, C_TIMER, 0, self.timer_state, self.timer_detail, STATE_IRQ)
            elif kind == KIND_TIMER_EXIT:
                self.leave(p, t, C_TIMER, 0)
            elif kind == KIND_TIMER_FUNCTION:
                if not self.qualify(semantics, v, &qualifier):
                    return i
                name_timer(p, t, qualifier.detail)
            elif kind == KIND_VECTOR_ENTRY:
                p.interrupted = NEVER_LOST
                self.enter(p, t, C_VECTOR, semantics.detail, semantics.state, semantics.detail,
                           STATE_IRQ)
            elif kind == KIND_VECTOR_EXIT:
                self.leave(p, t, C_VECTOR, semantics.detail)
            elif kind == KIND_FORK:
                self.on_fork(p, t, v)
            elif kind == KIND_EXEC or kind == KIND_EXIT or kind == KIND_STATEDUMP:
                self.on_life(p, t, v, kind)
            elif kind == KIND_NET_SEND:
                note_packet(&self.packets, &self.table, p, t, 0)
            elif kind == KIND_NET_RECEIVE:
                note_packet(&self.packets, &self.table, p, t, 1)
                note_sender(&self.softirqs, p, v[2])
            elif kind == KIND_FILE_LOCK:
                note_lock(&self.retries, &self.table, p, v[0] == WOULD_BLOCK)
        return end

    def close_all(self, int64_t end):
        """End everything that goes on at the end of the recording."""
        cdef int32_t j
        cdef Processor* p
        with nogil:
            pass_stops(self, end - 1)
            # One row of each thread, one of each kind of each processor.
            self.reserve_intervals(self.table.worker_count)
            reserve(&self.packets.sleeps, self.table.worker_count, sizeof(NetSleep))
            reserve(&self.retries.sleeps, self.table.worker_count, sizeof(TimedSleep))
            reserve(&self.retries.timed, self.table.worker_count, sizeof(TimedLength))
            self.reserve_tails(1)
            for j in range(<int32_t>self.table.worker_count):
                if self.table.infos[j].idle_cpu < 0:
                    self.end_state(j, end)
            for j in range(<int32_t>self.table.processor_count):
                p = &self.table.processors[j]
                self.emit_interrupt(p, end)
                if p.current >= 0 and end > p.since:
                    self.emit_cpu_interval(p, end, p.current)

    # -------------------------------------------------------------------------- from block to block

    @property
    def waiting(self):
        """Rows since the last cut."""
        cdef Py_ssize_t i, rows = self.entries.size
        for i in range(self.table.processor_count):
            rows += self.table.processors[i].stolen.rows + self.table.processors[i].ran.rows
        return rows

    cdef int reserve_intervals(self, Py_ssize_t count) except -1 nogil:
        reserve(&self.intervals, ROW * count + BEHIND, 1)
        reserve(&self.entries, count, sizeof(int64_t))
        return 0

    cdef int reserve_tails(self, Py_ssize_t count) except -1 nogil:
        cdef Py_ssize_t i
        for i in range(self.table.processor_count):
            reserve(&self.table.processors[i].stolen.bytes, ROW * count + BEHIND, 1)
            reserve(&self.table.processors[i].ran.bytes, ROW * count + BEHIND, 1)
        return 0

    cdef void begin_block(self, int64_t base) noexcept nogil:
        """Have a base for the first block."""
        if not self.based:
            self.based = True
            self.table.base = base

    def packed(self, int last, int64_t cut, take, keep):
        """Return and forget the block: its base, and its tables.

        What threads did, interrupt work, who ran: of each how many owners and rows there
        are, and the rows as `critpath.model.packing` reads them.  ``take`` gives memory for
        a number of bytes to work in, ``keep`` memory that will be kept.  The next block
        has the cut for a base.
        """
        base = self.table.base
        tables = [sorted_intervals(&self.table, &self.intervals, &self.entries, take, keep),
                  joined_tails(&self.table, 0, keep), joined_tails(&self.table, 1, keep)]
        self.table.base = cut
        for i in range(self.table.worker_count):
            self.table.workers[i].row_end = cut
            self.table.workers[i].rows = 0
        for i in range(self.table.processor_count):
            forget_tail(&self.table.processors[i].stolen, last, cut)
            forget_tail(&self.table.processors[i].ran, last, cut)
        forget(&self.intervals, last)
        forget(&self.entries, last)
        return base, tables

    def forget_sleeps(self, int64_t before):
        """Forget sleeps that a packet ended before a time: no packet of later can have."""
        forget_sleeps(&self.packets, before)

    def network(self):
        """Return what `critpath.timeline.network.NetRecord` has, in its order."""
        return network_columns(&self.packets, &self.table)

    def holders(self):
        """Return what `critpath.timeline.holders.HolderRecord` has, in its order."""
        return holder_columns(&self.retries)

    def worker_table(self):
        """Return the workers' columns as a dict of arrays."""
        return worker_columns(&self.table)

    def processor_table(self):
        """Return (host, cpu) of every processor seen."""
        return tuple((self.table.processors[i].host, self.table.processors[i].cpu)
                     for i in range(self.table.processor_count))
