# cython: language_level=3
"""Keeps the few events of a recording that the finders of executions ask about.

The rule for switches is that of `critpath.executions.prefilter`, which says why it is enough.

What may be asked of a thread is its last switch.  While a chunk goes on that is a place in it;
what is still open at its end is copied then, once and not at every switch.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.stdint cimport INT64_MAX
from libc.string cimport memcpy, memmove, memset

from cpython.buffer cimport PyBuffer_FillInfo

import numpy as np

include "../model/_tids.pxi"
include "_actions.pxi"

cdef enum:
    FIELDS = 5    # of a switch: prev_comm, prev_tid, prev_state, next_comm, next_tid

ctypedef struct Row:
    int64_t row           # position in the recording, -1 none
    int64_t timestamp
    int32_t cpu
    int32_t event_class
    int64_t values[FIELDS]

ctypedef struct CpuState:
    # What a cpu has seen since its last switch, whose tid is that of the thread that came.
    int32_t known         # there was one
    int64_t tid
    int64_t stretch       # between which gaps it was
    Py_ssize_t asking     # the last mark since then, as a place among the kept + 1; 0: none
    int64_t asked         # between which gaps it was, and those before it that it leads to

ctypedef struct Thread:
    int64_t comm          # as last mentioned, -1 never in this life
    int32_t at            # the last mention's place in this chunk, -1: `EventFilter.last` has it
    int32_t kept          # whether it is among the rows already

ctypedef struct Host:
    Tids tids
    CpuState* cpu_states           # by cpu
    Py_ssize_t begun, ended        # gaps, by now

ctypedef struct Chunk:
    int64_t row           # of its first event
    const int64_t* timestamp
    const int32_t* cpu
    const int32_t* event_class
    const int64_t* offset
    const int64_t* values

ctypedef struct Kept:
    int64_t row
    int64_t timestamp
    int64_t offset
    int64_t current       # of a mark: the thread that had its cpu, or NOT_KNOWN; else NOT_ASKED
    int32_t cpu
    int32_t event_class
    Py_ssize_t asking     # of a mark that waits for the next switch: another one + 1


cdef enum:
    NOT_KNOWN = -1
    NOT_ASKED = -2
    IN_GAP = -1           # of stretches: in none


cdef class Values:
    """Memory of numbers, which whoever has it as an array keeps."""

    cdef int64_t* data
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        cdef Py_ssize_t bytes = self.size * sizeof(int64_t)
        PyBuffer_FillInfo(buffer, self, <void*>self.data, bytes, 0, flags)


cdef class EventFilter:
    """Takes chunks of events one after the other; the kept ones pile up."""

    cdef Kept* kept
    cdef Py_ssize_t count, room
    cdef int64_t* values
    cdef Py_ssize_t value_count, value_room
    cdef Host* hosts
    cdef Py_ssize_t host_count
    # Gaps in which nothing was recorded: those of host h from gap_start[h] to gap_start[h + 1].
    cdef const int64_t[::1] gap_start, gap_begin, gap_end
    cdef Thread* threads
    cdef Row* last               # of each thread
    cdef int32_t* some           # places of events in the chunk
    cdef Py_ssize_t some_room
    cdef int32_t* mentioned      # threads that this chunk mentions
    cdef Py_ssize_t thread_count, thread_room, mentioned_count
    cdef Chunk chunk
    cdef int64_t row

    def __init__(self, const int64_t[::1] gap_start, const int64_t[::1] gap_begin,
                 const int64_t[::1] gap_end):
        self.gap_start, self.gap_begin, self.gap_end = gap_start, gap_begin, gap_end

    def __dealloc__(self):
        cdef Py_ssize_t i
        free(self.kept)
        free(self.values)
        free(self.threads)
        free(self.last)
        free(self.mentioned)
        free(self.some)
        for i in range(self.host_count):
            free(self.hosts[i].cpu_states)
            tids_clear(&self.hosts[i].tids)
        free(self.hosts)

    cdef int put(self, int64_t row, int64_t timestamp, int32_t cpu, int32_t event_class,
                 const int64_t* values, int64_t width) except -1 nogil:
        cdef void* more
        cdef Py_ssize_t room
        cdef Kept* k
        if self.count == self.room:
            room = 2 * self.room + 1024
            more = realloc(self.kept, room * sizeof(Kept))
            if more == NULL:
                with gil:
                    raise MemoryError
            self.kept, self.room = <Kept*>more, room
        if self.value_count + width > self.value_room:
            room = 2 * self.value_room + width + 4096
            more = realloc(self.values, room * sizeof(int64_t))
            if more == NULL:
                with gil:
                    raise MemoryError
            self.values, self.value_room = <int64_t*>more, room
        k = &self.kept[self.count]
        k.row, k.timestamp, k.cpu, k.event_class = row, timestamp, cpu, event_class
        k.offset = self.value_count
        k.current, k.asking = NOT_ASKED, 0
        memcpy(self.values + self.value_count, values, width * sizeof(int64_t))
        self.value_count += width
        self.count += 1
        return 0

    cdef inline int put_row(self, const Row* r) except -1 nogil:
        return self.put(r.row, r.timestamp, r.cpu, r.event_class, r.values, FIELDS)

    cdef int put_event(self, int32_t at, int64_t width) except -1 nogil:
        """Keep an event of this chunk."""
        cdef Chunk* of = &self.chunk
        return self.put(of.row + at, of.timestamp[at], of.cpu[at], of.event_class[at],
                        of.values + of.offset[at], width)

    cdef void copy_row(self, int32_t at, Row* r) noexcept nogil:
        cdef Chunk* of = &self.chunk
        r.row, r.timestamp = of.row + at, of.timestamp[at]
        r.cpu, r.event_class = of.cpu[at], of.event_class[at]
        memcpy(r.values, of.values + of.offset[at], sizeof(r.values))

    cdef int reserve_some(self, Py_ssize_t n) except -1:
        cdef void* more
        if n > self.some_room:
            more = realloc(self.some, n * sizeof(int32_t))
            if more == NULL:
                raise MemoryError
            self.some, self.some_room = <int32_t*>more, n
        return 0

    cdef int add_hosts(self, Py_ssize_t count) except -1:
        cdef void* more
        cdef Host* host
        if count <= self.host_count:
            return 0
        more = realloc(self.hosts, count * sizeof(Host))
        if more == NULL:
            raise MemoryError
        self.hosts = <Host*>more
        while self.host_count < count:
            host = &self.hosts[self.host_count]
            # Memory of cpus that never come up is never touched.
            host.cpu_states = <CpuState*>calloc(MOST_CPUS, sizeof(CpuState))
            if host.cpu_states == NULL:
                raise MemoryError
            try:
                tids_init(&host.tids, 1)
            except MemoryError:
                free(host.cpu_states)
                tids_clear(&host.tids)
                raise
            host.begun = host.ended = 0
            self.host_count += 1
        return 0

    cdef inline CpuState* state(self, int64_t host, int32_t cpu) noexcept nogil:
        """What is known of a cpu, NULL for one that no machine has."""
        if cpu < 0 or cpu >= MOST_CPUS:
            return NULL
        return &self.hosts[host].cpu_states[cpu]

    cdef int64_t stretch(self, int64_t host, int64_t time) noexcept nogil:
        """Return between which gaps of its host a time lies, no earlier than any before."""
        cdef Host* of = &self.hosts[host]
        cdef Py_ssize_t first, gaps
        if host + 1 >= self.gap_start.shape[0]:
            return 0
        first, gaps = self.gap_start[host], self.gap_start[host + 1] - self.gap_start[host]
        while of.ended < gaps and self.gap_end[first + of.ended] <= time:
            of.ended += 1
        while of.begun < gaps and self.gap_begin[first + of.begun] <= time:
            of.begun += 1
        return IN_GAP if of.begun > of.ended else of.ended

    cdef int more_threads(self) except -1 nogil:
        cdef Py_ssize_t room = 2 * self.thread_room + 1024
        cdef void* threads = realloc(self.threads, room * sizeof(Thread))
        cdef void* last
        cdef void* mentioned
        if threads != NULL:
            self.threads = <Thread*>threads
        last = realloc(self.last, room * sizeof(Row))
        if last != NULL:
            self.last = <Row*>last
        mentioned = realloc(self.mentioned, room * sizeof(int32_t))
        if mentioned != NULL:
            self.mentioned = <int32_t*>mentioned
        if threads == NULL or last == NULL or mentioned == NULL:
            with gil:
                raise MemoryError
        self.thread_room = room
        return 0

    cdef inline int32_t thread(self, int64_t host, int64_t tid) except -1 nogil:
        cdef int32_t* number = tid_number(&self.hosts[host].tids, 0, tid)
        cdef Thread* t
        if not number[0]:
            if self.thread_count == self.thread_room:
                self.more_threads()
            t = &self.threads[self.thread_count]
            t.comm, t.at, t.kept = -1, -1, 1
            self.thread_count += 1
            number[0] = <int32_t>self.thread_count
        return number[0] - 1

    cdef int put_last(self, int32_t thread) except -1 nogil:
        """Keep the last mention of a thread, if it is not kept yet."""
        cdef Thread* t = &self.threads[thread]
        if not t.kept:
            t.kept = 1
            if t.at >= 0:
                self.put_event(t.at, FIELDS)
            else:
                self.put_row(&self.last[thread])
        return 0

    cdef int begin_life(self, int64_t host, int64_t tid) except -1 nogil:
        """End what is known of a thread's names: another life begins."""
        cdef int32_t thread
        if tid > 0:
            thread = self.thread(host, tid)
            self.put_last(thread)
            self.threads[thread].comm = -1
        return 0

    cdef inline int mention(self, int64_t host, int64_t tid, int64_t comm, int32_t at,
                            int* keep) except -1 nogil:
        cdef int32_t thread
        cdef Thread* t
        if tid <= 0:
            return 0
        thread = self.thread(host, tid)
        t = &self.threads[thread]
        if t.comm != comm:
            # Both sides of a change, and the first of all.
            self.put_last(thread)
            t.comm = comm
            keep[0] = 1
        else:
            t.kept = 0
        if t.at < 0:
            self.mentioned[self.mentioned_count] = thread
            self.mentioned_count += 1
        t.at = at
        return 0

    cdef int on_switch(self, int64_t host, int32_t at, int keep, CpuState* state,
                       int64_t width) except -1 nogil:
        cdef const int64_t* v = self.chunk.values + self.chunk.offset[at]
        self.mention(host, v[1], v[0], at, &keep)
        self.mention(host, v[4], v[3], at, &keep)
        if state != NULL:
            self.answer(state, v[1], self.stretch(host, self.chunk.timestamp[at]))
            state.known, state.tid = 1, v[4]
        if keep:
            self.put_event(at, width)
        return 0

    cdef void answer(self, CpuState* state, int64_t tid, int64_t stretch) noexcept nogil:
        """Tell the marks since a cpu's last switch which thread leaves it now."""
        cdef Kept* mark
        while state.asking:
            mark = &self.kept[state.asking - 1]
            if stretch == state.asked:
                mark.current = tid if mark.current in (NOT_KNOWN, tid) else NOT_KNOWN
            state.asking = mark.asking
        state.stretch = stretch

    cdef void on_mark(self, int64_t host, CpuState* state) noexcept nogil:
        """Tell what was kept last which thread has its cpu; the next switch may contradict."""
        cdef Kept* mark = &self.kept[self.count - 1]
        cdef int64_t stretch
        mark.current = NOT_KNOWN
        if state == NULL:
            return
        stretch = self.stretch(host, mark.timestamp)
        if stretch != state.asked:
            state.asking = 0  # no switch of theirs will come
        if stretch == IN_GAP:
            return
        if state.known and state.stretch == stretch:
            mark.current = state.tid
        mark.asking, state.asking, state.asked = state.asking, self.count, stretch

    cdef void end_chunk(self) noexcept nogil:
        """Copy the rows that may still be asked for."""
        cdef Py_ssize_t i
        cdef Thread* t
        for i in range(self.mentioned_count):
            t = &self.threads[self.mentioned[i]]
            if not t.kept:
                self.copy_row(t.at, &self.last[self.mentioned[i]])
            t.at = -1
        self.mentioned_count = 0

    def feed(self, const int64_t[::1] timestamp, const int32_t[::1] cpu,
             const int32_t[::1] event_class, const int64_t[::1] offset,
             const int64_t[::1] values, const uint8_t[::1] actions,
             const int64_t[::1] class_host, const int64_t[::1] widths):
        """Take the next events; `actions` and what follows are by class."""
        cdef Py_ssize_t n = timestamp.shape[0], asked = 0, at
        cdef int32_t i, c
        cdef int action
        cdef const int64_t* v
        cdef int64_t host
        cdef CpuState* state
        if not n:
            return
        for i in range(<int32_t>class_host.shape[0]):
            self.add_hosts(class_host[i] + 1)
        self.chunk.row = self.row + 1
        self.chunk.timestamp, self.chunk.cpu = &timestamp[0], &cpu[0]
        self.chunk.event_class, self.chunk.offset = &event_class[0], &offset[0]
        self.chunk.values = &values[0] if values.shape[0] else NULL
        self.reserve_some(n)
        with nogil:
            # Those that matter are found first, without a jump: which they are cannot be
            # predicted, and jumps that are not are most of what an event costs here.
            for i in range(<int32_t>n):
                self.some[asked] = i
                asked += actions[event_class[i]] != 0
            for at in range(asked):
                i = self.some[at]
                c = event_class[i]
                action = actions[c]
                host = class_host[c]
                state = NULL
                if action & (ACTION_MARK | ACTION_SWITCH):
                    state = self.state(host, cpu[i])
                if action & ACTION_MARK:
                    self.put_event(i, widths[c])
                    self.on_mark(host, state)
                    action &= ~ACTION_KEEP
                if action & ACTION_SWITCH:
                    self.on_switch(host, i, action & ACTION_KEEP, state, widths[c])
                    continue
                v = self.chunk.values + offset[i]
                if action & ACTION_BIRTH:
                    self.begin_life(host, v[0])
                if action & ACTION_FORK:
                    self.begin_life(host, v[2])
                if action & ACTION_KEEP:
                    self.put_event(i, widths[c])
            self.end_chunk()
            self.row += n

    @property
    def kept_count(self):
        """How many are kept by now."""
        return self.count

    def cut(self, const uint8_t[::1] aside, bint all):
        """Return the kept events of some classes, and forget them; in order of the recording.

        Parameters
        ----------
        aside : uint8 [classes]
            Which; marks that are kept for nothing else.
        all : bool
            Also those that wait for the next switch, and what comes after one of them.

        Returns
        -------
        tuple of arrays
            Position in the recording, timestamp, event_class, cpu, offset, values, current.
        """
        cdef Py_ssize_t i, h, cpu, n = 0, m = 0, at = 0, value = 0, width
        cdef int64_t bound = INT64_MAX
        cdef Kept* k
        cdef CpuState* state
        for h in range(self.host_count):
            for cpu in range(MOST_CPUS):
                state = &self.hosts[h].cpu_states[cpu]
                if all and state.asking:
                    state.asking = 0
                i = state.asking
                while i:
                    bound = min(bound, self.kept[i - 1].row)
                    i = self.kept[i - 1].asking
        for i in range(self.count):
            k = &self.kept[i]
            if aside[k.event_class] and k.row < bound:
                n += 1
                m += self.width_of(i)
        rows, timestamps = np.empty(n, np.int64), np.empty(n, np.int64)
        classes, cpus = np.empty(n, np.int32), np.empty(n, np.int32)
        offsets, currents = np.empty(n, np.int64), np.empty(n, np.int64)
        numbers = np.empty(m, np.int64)
        places = np.zeros(self.count + 1, np.int64)
        cdef int64_t[::1] row = rows, timestamp = timestamps, offset = offsets, current = currents
        cdef int64_t[::1] values = numbers, place = places
        cdef int32_t[::1] event_class = classes, of_cpu = cpus
        n = m = 0
        for i in range(self.count):
            k = &self.kept[i]
            width = self.width_of(i)
            if aside[k.event_class] and k.row < bound:
                row[n], timestamp[n], event_class[n], of_cpu[n] = (
                    k.row, k.timestamp, k.event_class, k.cpu)
                offset[n], current[n] = m, k.current
                if width:
                    memcpy(&values[m], self.values + k.offset, width * sizeof(int64_t))
                n += 1
                m += width
                continue
            # What stays moves down, and those that wait for the same switch still lead on.
            memmove(self.values + value, self.values + k.offset, width * sizeof(int64_t))
            self.kept[at] = k[0]
            self.kept[at].offset = value
            self.kept[at].asking = place[k.asking]
            at += 1
            value += width
            place[i + 1] = at
        for h in range(self.host_count):
            for cpu in range(MOST_CPUS):
                state = &self.hosts[h].cpu_states[cpu]
                if state.asking:
                    state.asking = place[state.asking]
        self.count, self.value_count = at, value
        return rows, timestamps, classes, cpus, offsets, numbers, currents

    cdef inline Py_ssize_t width_of(self, Py_ssize_t i) noexcept nogil:
        """How many values a kept event has: they lie one behind the other."""
        cdef Py_ssize_t end = self.kept[i + 1].offset if i + 1 < self.count else self.value_count
        return end - self.kept[i].offset

    def take(self):
        """Return what was kept, in order, and forget it.

        Returns
        -------
        tuple of arrays
            timestamp, cpu, event_class, offset, values, current, position in the recording.
        """
        cdef Py_ssize_t i, n
        for i in range(self.thread_count):
            self.put_last(<int32_t>i)
        n = self.count
        # A row may have been kept for more than one reason; a mark comes before what is the same.
        rows = np.empty(n, np.int64)
        cdef int64_t[::1] of = rows
        for i in range(n):
            of[i] = 2 * self.kept[i].row + (self.kept[i].current == NOT_ASKED)
        order = np.argsort(rows, kind="stable")
        rows = rows[order] >> 1
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        order, rows = order[first], rows[first]
        of = order
        n = of.shape[0]
        cdef int64_t[::1] timestamp = np.empty(n, np.int64), offset = np.empty(n, np.int64)
        cdef int64_t[::1] current = np.empty(n, np.int64)
        cdef int32_t[::1] cpu = np.empty(n, np.int32), event_class = np.empty(n, np.int32)
        for i in range(n):
            timestamp[i] = self.kept[of[i]].timestamp
            cpu[i] = self.kept[of[i]].cpu
            event_class[i] = self.kept[of[i]].event_class
            offset[i] = self.kept[of[i]].offset
            current[i] = self.kept[of[i]].current
        free(self.kept)
        self.kept, self.count, self.room = NULL, 0, 0
        cdef Values values = Values.__new__(Values)
        values.data, values.size = self.values, self.value_count
        self.values, self.value_count, self.value_room = NULL, 0, 0
        numbers = np.frombuffer(values, np.int64) if values.size else np.zeros(0, np.int64)
        return (np.asarray(timestamp), np.asarray(cpu), np.asarray(event_class),
                np.asarray(offset), numbers, np.asarray(current), rows)
