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
include "_rows.pxi"
include "_threads.pxi"
include "_workers.pxi"
include "_intervals.pxi"
include "_transitions.pxi"

cdef enum:
    SOON = 8              # events from now, whose threads are asked for
    MOST_INTERVALS = 3    # that one event adds
    UNKNOWN_NAME = 255


# Fields of an event that has none: of a chunk without values.
cdef int64_t[8] nothing
memset(nothing, 0, sizeof(nothing))
cdef int64_t NEVER_LOST = 0x7FFFFFFFFFFFFFFF


cdef class Replay(Transitions):
    """The state machine: `feed` it all events, and take the columns when it suits."""

    cdef Meaning* classes
    cdef Py_ssize_t class_count
    # What a thread woken by the irq of that name waited for, per string code.
    cdef uint8_t* irq_state
    cdef Py_ssize_t irq_names
    cdef int32_t[::1] softirq_state, softirq_detail
    cdef int64_t[::1] loss_end, loss_host, loss_cpu
    cdef Py_ssize_t lost
    cdef public int64_t unplaced

    def __cinit__(self):
        self.classes = NULL
        self.class_count = 0
        self.irq_state = NULL
        self.irq_names = 0

    def __dealloc__(self):
        free(self.classes)
        free(self.irq_state)

    def __init__(self, Py_ssize_t hosts, *, int has_waking, int has_syscalls,
                 dict details, int32_t timer_state, int32_t[::1] softirq_state,
                 int32_t[::1] softirq_detail, int64_t[:, ::1] prev_states,
                 int64_t[:, ::1] losses):
        """``losses`` has the rows end, host and cpu, in order of the ends."""
        self.populate(hosts)
        self.know_states(prev_states)
        self.has_waking = has_waking
        self.has_syscalls = has_syscalls
        self.no_wake = details["no_wake"]
        self.idle_waker = details["idle_waker"]
        self.context_unknown = details["context_unknown"]
        self.timer_detail = details["hrtimer"]
        self.timer_state = timer_state
        self.softirq_state = softirq_state
        self.softirq_detail = softirq_detail
        self.loss_end, self.loss_host, self.loss_cpu = losses[0], losses[1], losses[2]
        self.lost = 0
        self.unplaced = 0

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
        more.thread = 4 if kind == SWITCH else 0
        more.thread_bits = 0
        if kind == SWITCH or kind == WAKING or kind == WAKEUP or kind == WAKEUP_NEW:
            more.thread_bits = (1 << TID_BITS) - 1

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

    cdef int room(self, Py_ssize_t events) except -1 nogil:
        """Reserve what some events may add."""
        self.reserve_intervals(MOST_INTERVALS * events)
        self.reserve_tails(events)
        reserve(&self.net_events, events, sizeof(NetEvent))
        reserve(&self.net_sleeps, MOST_INTERVALS * events, sizeof(NetSleep))
        return 0

    def feed(self, const int64_t[::1] timestamp, const int32_t[::1] cpu,
             const int32_t[::1] event_class, const int64_t[::1] offset,
             const int64_t[::1] values, Py_ssize_t begin):
        """Replay events from one of them on.

        Returns where it stopped: at the end, at an interrupt of a name that `name_irq`
        does not know yet, or at a cpu that no machine has.
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
                self.room(SLICE)
                i = self.replayed(&timestamp[0], &cpu[0], &event_class[0], &offset[0],
                                  all_values, max(values.shape[0], 1), i, end)
                if i < end:
                    break
        return i

    cdef inline void expect(self, const Meaning* meaning, int64_t tid) noexcept nogil:
        """Ask for what is known of a thread that an event will change soon.

        Without a branch on what the event is: those would be guessed wrong once more.
        """
        cdef size_t thread = <size_t>tid & <size_t>meaning.thread_bits
        cdef int32_t* numbers = self.tids.pages[
            (<size_t>meaning.host << (TID_BITS - TID_PAGE_BITS)) + (thread >> TID_PAGE_BITS)]
        if numbers != NULL:
            # Of a thread that has no number yet: some line that nobody needs.
            prefetch(<void*>(<char*>self.workers
                             + <Py_ssize_t>numbers[thread & (TID_PAGE - 1)] * sizeof(Worker)
                             - sizeof(Worker)))

    cdef Py_ssize_t replayed(self, const int64_t* timestamp, const int32_t* cpu,
                             const int32_t* event_class, const int64_t* offset,
                             const int64_t* values, Py_ssize_t value_count,
                             Py_ssize_t begin, Py_ssize_t end) except -1 nogil:
        cdef Py_ssize_t i, soon
        cdef int64_t t
        cdef int kind
        cdef int32_t place, j, state
        cdef Processor* p
        cdef Worker* w
        cdef Meaning* meaning
        cdef const int64_t* v
        cdef int64_t next_loss = self.next_loss()
        for i in range(begin, end):
            soon = min(i + SOON, end - 1)
            meaning = &self.classes[event_class[soon]]
            self.expect(meaning, values[min(offset[soon] + meaning.thread, value_count - 1)])
            meaning = &self.classes[event_class[i]]
            kind = meaning.kind
            # Also of events that mean nothing here: the trace is damaged.
            if cpu[i] >= CPUS:
                return i
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
            # One row of each thread, one of each kind of each processor.
            self.reserve_intervals(self.worker_count)
            reserve(&self.net_sleeps, self.worker_count, sizeof(NetSleep))
            self.reserve_tails(1)
            for j in range(<int32_t>self.worker_count):
                if self.persons[j].idle_cpu < 0:
                    self.close(j, end)
            for j in range(<int32_t>self.processor_count):
                p = &self.processors[j]
                self.flush(p, end)
                if p.current >= 0 and end > p.since:
                    self.occupied(p, end, p.current)
