# cython: language_level=3
"""Replay of scheduling events: one pass, events -> intervals with wakers.

The rules are those of docs/critical-path.md (sections "states" and "rules").  The
plain-Python twin that tests compare this with is tests/oracle/replay.py.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset
from posix.stdlib cimport posix_memalign

import numpy as np

include "../model/_packed_rows.pxi"
include "../model/_tids.pxi"
include "_threads.pxi"
include "_rows.pxi"
include "_workers.pxi"
include "_intervals.pxi"

cdef enum:
    SLICE = 4096          # events between two looks at whether there is room for rows
    MOST_INTERVALS = 3    # that one event adds
    UNKNOWN_NAME = 255
    # Kinds, a bit each.
    TELL_OF_IDLE = (1 << WAKING) | (1 << WAKEUP) | (1 << WAKEUP_NEW) | (1 << CURRENT)
    KNOWN_STATES = 4352   # of a thread that leaves the cpu: those of any kernel


# Fields of an event that has none: of a chunk without values.
cdef int64_t[8] nothing
memset(nothing, 0, sizeof(nothing))
cdef int64_t NEVER_LOST = 0x7FFFFFFFFFFFFFFF


cdef class Replay(Recorder):
    """The state machine: `feed` it all events, and take the columns when it suits."""

    cdef Meaning* classes
    cdef Py_ssize_t class_count
    # What a thread woken by the irq of that name waited for, per string code.
    cdef uint8_t* irq_state
    cdef Py_ssize_t irq_names
    cdef int32_t[::1] softirq_state, softirq_detail
    cdef int64_t[:, ::1] prev_states   # per host: dead mask, stopped mask, runnable values...
    cdef int8_t* left_as               # [host * KNOWN_STATES + state]
    cdef int64_t[::1] loss_end, loss_host, loss_cpu
    cdef Py_ssize_t lost
    cdef public int64_t unplaced
    cdef public uint32_t seen          # a bit for each kind of event that came
    cdef public int64_t contradictions

    def __cinit__(self):
        self.classes = NULL
        self.class_count = 0
        self.irq_state = NULL
        self.irq_names = 0
        self.left_as = NULL

    def __dealloc__(self):
        free(self.classes)
        free(self.left_as)
        free(self.irq_state)

    def __init__(self, Py_ssize_t hosts, *, int has_waking, int has_syscalls,
                 dict details, int32_t timer_state, int32_t[::1] softirq_state,
                 int32_t[::1] softirq_detail, int64_t[:, ::1] prev_states,
                 int64_t[:, ::1] losses):
        """``losses`` has the rows end, host and cpu, in order of the ends."""
        self.populate(hosts)
        self.has_waking = has_waking
        self.has_syscalls = has_syscalls
        self.no_wake = details["no_wake"]
        self.idle_waker = details["idle_waker"]
        self.context_unknown = details["context_unknown"]
        self.timer_detail = details["hrtimer"]
        self.timer_state = timer_state
        self.softirq_state = softirq_state
        self.softirq_detail = softirq_detail
        self.prev_states = prev_states
        self.loss_end, self.loss_host, self.loss_cpu = losses[0], losses[1], losses[2]
        cdef Py_ssize_t host, state
        self.left_as = <int8_t*>malloc(max(hosts, 1) * KNOWN_STATES)
        if self.left_as == NULL:
            raise MemoryError()
        for host in range(hosts):
            for state in range(KNOWN_STATES):
                self.left_as[host * KNOWN_STATES + state] = self.leaves(host, state)
        self.lost = 0
        self.unplaced = 0
        self.seen = 0
        self.contradictions = 0

    def add_class(self, int kind, int host, int32_t detail, int32_t state, int flags):
        """Tell what the next event class means."""
        cdef Meaning* more = <Meaning*>realloc(self.classes,
                                               (self.class_count + 1) * sizeof(Meaning))
        if more == NULL:
            raise MemoryError()
        self.classes = more
        more += self.class_count
        self.class_count += 1
        more.kind = <uint8_t>kind
        more.host = host
        more.detail = detail
        more.state = state
        more.flags = <uint8_t>flags

    def name_irq(self, int32_t code, int state):
        """Tell what a thread waited for that an interrupt of a name woke."""
        cdef Py_ssize_t names
        cdef uint8_t* more
        if code >= self.irq_names:
            names = max(2 * self.irq_names, code + 1)
            more = <uint8_t*>realloc(self.irq_state, names)
            if more == NULL:
                raise MemoryError()
            memset(more + self.irq_names, UNKNOWN_NAME, names - self.irq_names)
            self.irq_state = more
            self.irq_names = names
        self.irq_state[code] = <uint8_t>state

    cdef int8_t leaves(self, Py_ssize_t host, int64_t state) noexcept nogil:
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

    cdef inline int on_switch(self, Processor* p, int64_t t, const int64_t* v) except -1 nogil:
        cdef int32_t prev, following
        cdef Worker* w
        cdef int32_t doing
        cdef int64_t state = v[2]
        prev = p.idle if v[1] == 0 else self.worker(p.host, v[1], t)
        w = &self.workers[prev]
        # Out of idle, if it can have been woken, or where the trace tells who is current, a
        # switch that is missing may be put in again.
        if p.current >= 0 and v[1] != p.current_tid and v[1] and self.seen & (
                TELL_OF_IDLE if p.current == p.idle else <uint32_t>1 << CURRENT):
            self.contradictions += 1
        w = self.touch(prev, t)
        w.name = <int32_t>v[0]
        if p.current == prev:
            self.occupied(p, t, prev)
        elif p.current >= 0 and p.current != p.idle and self.workers[p.current].doing == RUNNING:
            # Its own switch-out is missing: from its last sure moment on, nothing is known.
            self.workers[p.current].doing = LOST
        if w.doing == RUNNING and w.cpu == p.cpu:
            self.emit_run(prev, t)
        elif w.doing != NEVER and w.doing != UNBORN:
            self.emit(prev, w.since, t, S_UNKNOWN, 0, -1, -1, -1)
        # What it does from now on.
        if prev == p.idle:
            doing = RUNNABLE
        else:
            if 0 <= state < KNOWN_STATES:
                doing = self.left_as[p.host * KNOWN_STATES + state]
            else:
                doing = self.leaves(p.host, state)
            if w.exiting and doing != RUNNABLE:
                doing = DEAD
        w.doing = doing
        w.since = t
        if not w.pending:
            w.woken = -1
            w.waker = -1
        # Next.
        following = p.idle if v[4] == 0 else self.worker(p.host, v[4], t)
        w = &self.workers[following]
        if w.doing == DEAD and following != p.idle:
            following = self.reborn(p.host, v[4], t)
            w = &self.workers[following]
        self.touch(following, t)
        w.name = <int32_t>v[3]
        if following == p.idle:
            pass
        elif w.doing == RUNNABLE:
            # It queued where it left or where its wake sent it; the cpu that it then got may
            # have been another, idle or busy with something else meanwhile.
            self.emit(following, w.since, t, S_WAIT_CPU, 0, w.cpu if w.cpu >= 0 else p.cpu, -1, -1)
        elif w.doing == ASLEEP or w.doing == STOPPED:
            if w.woken >= 0 and w.pending:
                # The wake raced the switch-out: it never really slept.
                self.emit(following, w.since, t, S_WAIT_CPU, 0, w.cpu if w.cpu >= 0 else p.cpu,
                          -1, -1)
            elif w.woken >= 0:
                # Waking without wakeup: runnable from the waking on.
                self.emit_sleep(following, w.woken)
                self.emit(following, w.woken, t, S_WAIT_CPU, 0, p.cpu, -1, -1)
            else:
                self.emit_sleep(following, t)
        elif w.doing == RUNNING or w.doing == LOST or w.doing == UNBORN:
            # Since its fork, where no sched_wakeup_new says when it became runnable.
            self.emit(following, w.since, t, S_UNKNOWN, 0, -1, -1, -1)
        w.doing = RUNNING
        w.since = t
        w.cpu = p.cpu
        w.woken = -1
        w.waker = -1
        w.pending = 0
        p.current = following
        p.current_tid = v[4]
        p.since = t
        return 0

    cdef inline int on_wake(self, Processor* p, int64_t t, int64_t tid, int64_t cpu,
                            int kind) except -1 nogil:
        if tid == 0:
            return 0
        cdef int32_t index = self.worker(p.host, tid, t)
        cdef Worker* w = &self.workers[index]
        if w.doing == DEAD:
            if kind != WAKEUP_NEW:
                return 0
            index = self.reborn(p.host, tid, t)
            w = &self.workers[index]
        # A thread's life starts when it is first seen on a cpu; a wake before that tells
        # what it does from then on, not that it was there before.
        w.last = t
        if w.doing == ASLEEP or w.doing == STOPPED:
            if kind == WAKING:
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
                    w.wake_state = S_WAIT_UNEXPLAINED
                    w.wake_detail = self.context_unknown
                else:
                    self.note_wake(w, p, t)
            self.emit_sleep(index, t)
            w.doing = RUNNABLE
            w.since = t
            w.cpu = <int32_t>cpu
        elif w.doing == RUNNING:
            if kind == WAKING or not self.has_waking:
                self.note_wake(w, p, t)
                w.pending = 1
        elif w.doing == NEVER or w.doing == UNBORN:
            if kind == WAKEUP_NEW and self.persons[index].parent < 0 and p.depth == 0 \
                    and p.current >= 0 and p.current != p.idle:
                self.persons[index].parent = p.current
            if kind == WAKEUP_NEW:
                self.persons[index].born = t
            if kind != WAKING or w.doing == NEVER:
                w.doing = RUNNABLE
                w.since = t
                w.cpu = <int32_t>cpu
        return 0

    cdef int on_fork(self, Processor* p, int64_t t, const int64_t* v) except -1 nogil:
        # Idle is a thread per cpu: no one thread 0 creates anything.
        cdef int32_t parent = self.worker(p.host, v[0], t) if v[0] else -1, child
        cdef Worker* w
        cdef Person* person
        child = self.reborn(p.host, v[2], t)
        w = &self.workers[child]
        person = &self.persons[child]
        person.parent = parent
        person.born = t
        person.pid = v[3]
        w.name = <int32_t>v[5]
        w.run_state = S_RUN_USER if self.has_syscalls else S_RUN
        w.doing = UNBORN
        w.since = t
        if parent >= 0:
            self.touch(parent, t)
        if parent >= 0 and self.persons[parent].pid < 0:
            self.persons[parent].pid = v[1]
        return 0

    cdef int on_life(self, Processor* p, int64_t t, const int64_t* v, int kind) except -1 nogil:
        """A thread executes a program, ends, or was there when the recording began."""
        cdef int32_t index
        cdef Worker* w
        cdef Person* person
        if v[0] == 0:
            return 0
        index = self.worker(p.host, v[0], t)
        w = &self.workers[index]
        if kind == STATEDUMP:
            person = &self.persons[index]
            if person.pid < 0:
                person.pid = v[1]
            if w.name == 0:
                w.name = <int32_t>v[2]
            # LTTng's thread status: 5 waits for an event.
            if w.doing == NEVER and v[3] == 5:
                w.doing = ASLEEP
                w.since = t
            return 0
        self.touch(index, t)
        if kind == EXIT:
            w.exiting = 1
            if v[1]:
                w.name = <int32_t>v[1]
        return 0

    cdef int on_loss(self, int64_t end, int64_t host, int64_t cpu) except -1 nogil:
        """Nothing is sure any more about what cpus are in that lost events."""
        cdef Py_ssize_t j
        cdef Processor* p
        self.reserve_intervals(self.processor_count)
        for j in range(self.processor_count):
            p = &self.processors[j]
            if p.host == host and (cpu < 0 or p.cpu == cpu):
                p.depth = 0
                p.overflow = 0
                if p.current >= 0 and p.current != p.idle \
                        and self.workers[p.current].doing == RUNNING:
                    self.emit_run(p.current, end)
                    self.workers[p.current].since = end
                p.current = -1
        return 0

    cdef int room(self, Py_ssize_t events) except -1 nogil:
        """Reserve what some events may add."""
        self.reserve_intervals(MOST_INTERVALS * events)
        reserve(&self.stolen, events, sizeof(Stolen))
        reserve(&self.ran, events, sizeof(Ran))
        reserve(&self.net_events, events, sizeof(NetEvent))
        reserve(&self.net_sleeps, MOST_INTERVALS * events, sizeof(NetSleep))
        return 0

    def feed(self, const int64_t[::1] timestamp, const int32_t[::1] cpu,
             const int32_t[::1] event_class, const int64_t[::1] offset,
             const int64_t[::1] values, Py_ssize_t begin):
        """Replay events from one of them on.

        Returns where it stopped: at the end, or at an interrupt of a name that
        `name_irq` does not know yet.
        """
        cdef Py_ssize_t i = begin, n = timestamp.shape[0], end
        cdef const int64_t* all_values = &nothing[0]
        if values.shape[0]:
            all_values = &values[0]
        if begin >= n:
            return n
        with nogil:
            while i < n:
                end = min(i + SLICE, n)
                self.room(SLICE)
                i = self.replayed(&timestamp[0], &cpu[0], &event_class[0], &offset[0],
                                  all_values, i, end)
                if i < end:
                    break
        return i

    cdef Py_ssize_t replayed(self, const int64_t* timestamp, const int32_t* cpu,
                             const int32_t* event_class, const int64_t* offset,
                             const int64_t* values, Py_ssize_t begin,
                             Py_ssize_t end) except -1 nogil:
        cdef Py_ssize_t i
        cdef int64_t t
        cdef int kind
        cdef int32_t place, j, state
        cdef Processor* p
        cdef Worker* w
        cdef Meaning* meaning
        cdef const int64_t* v
        cdef int64_t next_loss = self.next_loss()
        for i in range(begin, end):
            meaning = &self.classes[event_class[i]]
            kind = meaning.kind
            if kind == 0:
                continue
            t = timestamp[i]
            while next_loss <= t and self.lost < self.loss_end.shape[0]:
                self.on_loss(next_loss, self.loss_host[self.lost], self.loss_cpu[self.lost])
                self.lost += 1
                # The room of this slice is still there.
                self.reserve_intervals(MOST_INTERVALS * SLICE)
                next_loss = self.next_loss()
            self.seen |= <uint32_t>1 << kind
            if cpu[i] < 0:
                self.unplaced += 1
                if kind == NET_SEND or kind == NET_RECEIVE:
                    self.net_event(NULL, t, 0)
                continue
            place = self.processor_of[<size_t>meaning.host * CPUS + <size_t>cpu[i]]
            if place == 0:
                self.new_processor(meaning.host, cpu[i], t)
                place = <int32_t>self.processor_count
            p = &self.processors[place - 1]
            v = values + offset[i]
            if kind == SYSCALL_ENTRY or kind == SYSCALL_EXIT:
                if p.current >= 0 and p.current != p.idle:
                    # It was seen when it came.
                    w = &self.workers[p.current]
                    w.last = t
                    if w.doing == RUNNING:
                        self.emit_run(p.current, t)
                        w.since = t
                    w.syscall = meaning.detail
                    w.syscall_state = <int8_t>meaning.state
                    if self.has_syscalls:
                        w.run_state = S_RUN_SYSCALL if kind == SYSCALL_ENTRY else S_RUN_USER
            elif kind == SWITCH:
                self.on_switch(p, t, v)
            elif kind == WAKING or kind == WAKEUP or kind == WAKEUP_NEW:
                if meaning.flags & HAS_SUCCESS and v[3] == 0:
                    continue
                self.on_wake(p, t, v[0], v[2] if meaning.flags & HAS_TARGET else -1, kind)
            elif kind == IRQ_ENTRY:
                j = meaning.detail
                state = meaning.state
                if meaning.flags & HAS_NAME:
                    j = <int32_t>v[1]
                    if j >= self.irq_names or self.irq_state[j] == UNKNOWN_NAME:
                        return i
                    state = self.irq_state[j]
                self.enter(p, t, C_IRQ, <int32_t>v[0], state, j, S_IRQ)
            elif kind == IRQ_EXIT:
                self.leave(p, t, C_IRQ, <int32_t>v[0])
            elif kind == SOFTIRQ_ENTRY:
                j = <int32_t>self.softirq_state.shape[0] - 1
                if 0 <= v[0] < j:
                    j = <int32_t>v[0]
                self.enter(p, t, C_SOFTIRQ, <int32_t>v[0], self.softirq_state[j],
                           self.softirq_detail[j], S_SOFTIRQ)
            elif kind == SOFTIRQ_EXIT:
                self.leave(p, t, C_SOFTIRQ, <int32_t>v[0])
            elif kind == TIMER_ENTRY:
                self.enter(p, t, C_TIMER, 0, self.timer_state, self.timer_detail, S_IRQ)
            elif kind == TIMER_EXIT:
                self.leave(p, t, C_TIMER, 0)
            elif kind == VECTOR_ENTRY:
                self.enter(p, t, C_VECTOR, meaning.detail, meaning.state, meaning.detail, S_IRQ)
            elif kind == VECTOR_EXIT:
                self.leave(p, t, C_VECTOR, meaning.detail)
            elif kind == FORK:
                self.on_fork(p, t, v)
            elif kind == EXEC or kind == EXIT or kind == STATEDUMP:
                self.on_life(p, t, v, kind)
            elif kind == NET_SEND:
                self.net_event(p, t, 0)
            elif kind == NET_RECEIVE:
                self.net_event(p, t, 1)
        return end

    cdef inline int64_t next_loss(self) noexcept nogil:
        if self.lost < self.loss_end.shape[0]:
            return self.loss_end[self.lost]
        return NEVER_LOST

    def close_all(self, int64_t end):
        """End everything that goes on at the end of the recording."""
        cdef int32_t j
        cdef Processor* p
        with nogil:
            self.room(max(self.worker_count, self.processor_count))
            for j in range(<int32_t>self.worker_count):
                if self.persons[j].idle_cpu < 0:
                    self.close(j, end)
            for j in range(<int32_t>self.processor_count):
                p = &self.processors[j]
                self.flush(p, end)
                if p.current >= 0 and end > p.since:
                    self.occupied(p, end, p.current)
