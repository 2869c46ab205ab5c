# cython: language_level=3
"""Finds where switches of a cpu contradict each other, and where the missing one was.

One pass over events as they come: what it keeps is a few numbers per thread and cpu, and
what happened on a cpu since its last switch.
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

import numpy as np

include "../model/_tids.pxi"
include "_kinds.pxi"

cdef enum:
    # prev_state of a switch that is put in; and while it is not known yet.
    RUNNABLE = 0
    SLEEPS = 1
    OPEN = 2

ctypedef struct Thread:
    int64_t woken         # row of its last wake, -1 none
    int32_t watched       # the first of the sightings that ask what it does next, -1 none

ctypedef struct Sighting:
    # A thread that the trace says is current, and no switch brought to its cpu.
    int64_t row
    int64_t woken         # row of the thread's last wake before
    int32_t thread
    int32_t next_on_cpu
    int32_t next_watch
    int8_t state          # in which the thread of the last switch left

ctypedef struct Stretch:
    # Rows between which a cpu was in interrupts.
    int64_t begin
    int64_t end           # -1 not yet

ctypedef struct Cpu:
    # Its last switch.
    int64_t row
    int64_t time
    int64_t tid           # to which it went
    int64_t comm
    int32_t event_class
    # Since then:
    int32_t sightings     # the first of a chain, -1 none
    int64_t depth         # of interrupts
    int64_t last_row
    Stretch* log
    Py_ssize_t logged, capacity
    int8_t incomplete     # there was no room for what happened

ctypedef struct Found:
    int64_t place
    int64_t before
    int64_t following
    int64_t before_time
    int64_t following_time
    int64_t prev_comm
    int64_t prev_tid
    int64_t next_comm
    int64_t next_tid
    int32_t sighting      # that knows the state, -1: runnable
    int32_t event_class
    int32_t host
    int32_t cpu


cdef class Search:
    """Feed it all events; then ask what it found."""

    cdef Tids tids                # thread of (host, tid), plus 1
    cdef Thread* threads
    cdef Py_ssize_t thread_count, thread_capacity
    cdef Cpu* cpus
    cdef int32_t* cpu_of          # [host * MOST_CPUS + cpu], plus 1
    cdef Py_ssize_t cpu_count, cpu_capacity
    cdef Sighting* sightings
    cdef Py_ssize_t sighting_count, sighting_capacity
    cdef Found* found
    cdef Py_ssize_t found_count, found_capacity
    cdef int64_t rows, kept, most
    cdef public int64_t written   # switches
    cdef public int64_t left      # contradictions that there was no room for

    def __cinit__(self):
        memset(&self.tids, 0, sizeof(Tids))
        self.threads = NULL
        self.cpus = NULL
        self.cpu_of = NULL
        self.cpu_count = 0
        self.sightings = NULL
        self.found = NULL

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.cpu_count):
            free(self.cpus[i].log)
        tids_clear(&self.tids)
        free(self.threads)
        free(self.cpus)
        free(self.cpu_of)
        free(self.sightings)
        free(self.found)

    def __init__(self, Py_ssize_t hosts, int64_t most):
        tids_init(&self.tids, hosts)
        self.cpu_of = <int32_t*>calloc(hosts * MOST_CPUS, sizeof(int32_t))
        if self.cpu_of == NULL:
            raise MemoryError()
        self.thread_count = self.thread_capacity = 0
        self.cpu_capacity = 0
        self.sighting_count = self.sighting_capacity = 0
        self.found_count = self.found_capacity = 0
        self.rows = self.kept = self.written = self.left = 0
        self.most = most

    cdef void* grown(self, void* data, Py_ssize_t* capacity, Py_ssize_t item) except NULL nogil:
        cdef Py_ssize_t more = 2 * capacity[0] if capacity[0] else 64
        cdef void* fresh = realloc(data, more * item)
        if fresh == NULL:
            with gil:
                raise MemoryError()
        capacity[0] = more
        return fresh

    cdef int32_t thread(self, int64_t host, int64_t tid) except -1 nogil:
        cdef int32_t* number = tid_number(&self.tids, host, tid)
        cdef Thread* t
        if not number[0]:
            if self.thread_count == self.thread_capacity:
                self.threads = <Thread*>self.grown(self.threads, &self.thread_capacity,
                                                   sizeof(Thread))
            t = &self.threads[self.thread_count]
            t.woken = -1
            t.watched = -1
            self.thread_count += 1
            number[0] = <int32_t>self.thread_count
        return number[0] - 1

    cdef int new_cpu(self, Py_ssize_t place) except -1 nogil:
        cdef Cpu* c
        if self.cpu_count == self.cpu_capacity:
            self.cpus = <Cpu*>self.grown(self.cpus, &self.cpu_capacity, sizeof(Cpu))
        c = &self.cpus[self.cpu_count]
        memset(c, 0, sizeof(Cpu))
        c.row = -1
        c.sightings = -1
        self.cpu_count += 1
        self.cpu_of[place] = <int32_t>self.cpu_count
        return 0

    cdef inline void resolve_sightings(self, int32_t thread, int8_t state) noexcept nogil:
        """Tell those who wait for it what a thread did next: it was woken, or came."""
        cdef Thread* t = &self.threads[thread]
        cdef Sighting* s
        while t.watched >= 0:
            s = &self.sightings[t.watched]
            s.state = state
            t.watched = s.next_watch

    cdef int note_interrupt(self, Cpu* c, int64_t row, int more) except -1 nogil:
        """Keep between which rows a cpu that is idle by its switches is in interrupts."""
        cdef int64_t before = c.depth
        c.depth += more
        if c.tid != 0:
            return 0
        if before <= 0 and c.depth > 0:
            if self.kept >= self.most:
                c.incomplete = 1
                return 0
            if c.logged == c.capacity:
                c.log = <Stretch*>self.grown(c.log, &c.capacity, sizeof(Stretch))
            c.log[c.logged].begin = row
            c.log[c.logged].end = -1
            c.logged += 1
            self.kept += 1
        elif before > 0 and c.depth <= 0 and not c.incomplete:
            c.log[c.logged - 1].end = row
        return 0

    cdef int64_t end_of_interrupts(self, Cpu* c, int64_t row) noexcept nogil:
        """Return the row at which a cpu leaves the interrupts that are open at a row."""
        cdef Py_ssize_t low = 0, high = c.logged, middle
        while low < high:
            middle = (low + high) // 2
            if c.log[middle].begin <= row:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return row
        if c.log[low - 1].end < 0:
            return max(row, c.last_row)
        return max(row, c.log[low - 1].end)

    cdef int note_sighting(self, Cpu* c, int64_t host, int64_t tid, int64_t row) except -1 nogil:
        """Keep which thread the trace says has the cpu, where no switch brought it there."""
        cdef int32_t thread, at, leaves
        cdef Sighting* s
        if tid == 0 or tid == c.tid:
            return 0
        thread = self.thread(host, tid)
        at = c.sightings
        while at >= 0:
            if self.sightings[at].thread == thread:
                return 0
            at = self.sightings[at].next_on_cpu
        if self.kept >= self.most:
            c.incomplete = 1
            return 0
        self.kept += 1
        leaves = self.thread(host, c.tid) if c.tid else -1
        if self.sighting_count == self.sighting_capacity:
            self.sightings = <Sighting*>self.grown(self.sightings, &self.sighting_capacity,
                                                   sizeof(Sighting))
        s = &self.sightings[self.sighting_count]
        s.row = row
        s.woken = self.threads[thread].woken
        s.thread = thread
        s.next_on_cpu = c.sightings
        c.sightings = <int32_t>self.sighting_count
        s.state = RUNNABLE
        s.next_watch = -1
        if leaves >= 0:
            s.state = OPEN
            s.next_watch = self.threads[leaves].watched
            self.threads[leaves].watched = c.sightings
        self.sighting_count += 1
        return 0

    cdef int note_contradiction(self, Cpu* c, int64_t host, int32_t cpu, int64_t row, int64_t time,
                          const int64_t* v) except -1 nogil:
        """A switch comes from another thread than the last one went to: find one between."""
        cdef int64_t place = -1, woken
        cdef int32_t thread, at
        cdef Found* f
        if v[1] == 0:
            return 0
        if c.incomplete:
            self.left += 1
            return 0
        thread = self.thread(host, v[1])
        at = c.sightings
        while at >= 0 and self.sightings[at].thread != thread:
            at = self.sightings[at].next_on_cpu
        if at >= 0:
            place = self.sightings[at].row - 1
        if c.tid == 0:
            woken = self.sightings[at].woken if at >= 0 else self.threads[thread].woken
            if woken > c.row:
                woken = self.end_of_interrupts(c, woken)
                place = min(place, woken) if at >= 0 else woken
        if place < 0:
            return 0
        if self.found_count == self.found_capacity:
            self.found = <Found*>self.grown(self.found, &self.found_capacity, sizeof(Found))
        f = &self.found[self.found_count]
        self.found_count += 1
        f.place = place
        f.before = c.row
        f.following = row
        f.before_time = c.time
        f.following_time = time
        f.prev_comm = c.comm
        f.prev_tid = c.tid
        f.next_comm = v[0]
        f.next_tid = v[1]
        f.sighting = at if c.tid else -1
        f.event_class = c.event_class
        f.host = <int32_t>host
        f.cpu = cpu
        return 0

    cdef int note_switch(self, Cpu* c, int64_t row, int64_t time, int32_t event_class,
                      const int64_t* v) noexcept nogil:
        self.kept -= c.logged
        c.row = row
        c.last_row = row
        c.time = time
        c.tid = v[4]
        c.comm = v[3]
        c.event_class = event_class
        c.sightings = -1
        c.depth = 0
        c.logged = 0
        c.incomplete = 0
        return 0

    def feed(self, const int64_t[::1] timestamp, const int32_t[::1] cpu,
             const int32_t[::1] event_class, const int64_t[::1] offset,
             const int64_t[::1] values, const uint8_t[::1] kinds, const int32_t[::1] hosts):
        """Search the next events.

        Fields of a switch are in the canonical order: ``prev_comm`` and ``prev_tid`` are 0
        and 1, ``next_comm`` and ``next_tid`` 3 and 4; the tid of others is 0.
        """
        cdef Py_ssize_t i, n = timestamp.shape[0], place
        cdef int kind
        cdef int32_t host, thread
        cdef int64_t row
        cdef Cpu* c
        cdef const int64_t* v = NULL
        with nogil:
            for i in range(n):
                kind = kinds[event_class[i]]
                host = hosts[event_class[i]]
                row = self.rows + i
                c = NULL
                if 0 <= cpu[i] < MOST_CPUS:
                    place = <Py_ssize_t>host * MOST_CPUS + cpu[i]
                    if kind == KIND_SWITCH and not self.cpu_of[place]:
                        self.new_cpu(place)
                    if self.cpu_of[place]:
                        c = &self.cpus[self.cpu_of[place] - 1]
                if kind == KIND_SWITCH:
                    v = &values[offset[i]]
                    self.written += 1
                    if c != NULL and c.row >= 0 and c.tid != v[1]:
                        self.note_contradiction(c, host, cpu[i], row, timestamp[i], v)
                    if v[4]:
                        thread = self.thread(host, v[4])
                        if self.threads[thread].watched >= 0:
                            self.resolve_sightings(thread, RUNNABLE)
                    if c != NULL:
                        self.note_switch(c, row, timestamp[i], event_class[i], v)
                    continue
                if kind == KIND_WAKING or kind == KIND_WAKEUP or kind == KIND_WAKEUP_NEW:
                    thread = self.thread(host, values[offset[i]])
                    self.threads[thread].woken = row
                    if self.threads[thread].watched >= 0:
                        self.resolve_sightings(thread, SLEEPS)
                if c == NULL:
                    continue
                if (kind == KIND_IRQ_ENTRY or kind == KIND_SOFTIRQ_ENTRY
                        or kind == KIND_TIMER_ENTRY or kind == KIND_VECTOR_ENTRY):
                    self.note_interrupt(c, row, 1)
                elif kind == KIND_IRQ_EXIT or kind == KIND_SOFTIRQ_EXIT or kind == KIND_TIMER_EXIT \
                        or kind == KIND_VECTOR_EXIT:
                    self.note_interrupt(c, row, -1)
                elif kind == KIND_CURRENT:
                    self.note_sighting(c, host, values[offset[i]], row)
                c.last_row = row
        self.rows += n

    def table(self):
        """Return what was found, a row each, in the order of the later switches.

        Columns: place, before, following, time before, time following, the five fields,
        event class, host, cpu.
        """
        cdef Py_ssize_t i, n = self.found_count
        result = np.empty((n, 13), np.int64)
        cdef int64_t[:, ::1] out = result
        cdef Found* f
        for i in range(n):
            f = &self.found[i]
            out[i, 0] = f.place
            out[i, 1] = f.before
            out[i, 2] = f.following
            out[i, 3] = f.before_time
            out[i, 4] = f.following_time
            out[i, 5] = f.prev_comm
            out[i, 6] = f.prev_tid
            out[i, 7] = RUNNABLE
            # A thread of which nothing is heard any more sleeps.
            if f.sighting >= 0 and self.sightings[f.sighting].state != RUNNABLE:
                out[i, 7] = SLEEPS
            out[i, 8] = f.next_comm
            out[i, 9] = f.next_tid
            out[i, 10] = f.event_class
            out[i, 11] = f.host
            out[i, 12] = f.cpu
        return result
