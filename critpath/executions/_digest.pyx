# cython: language_level=3
"""Picks the few events of a recording that the finders of executions ask about.

The rule for switches is that of `critpath.executions.digest`, which says why it is enough.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

import numpy as np

cdef enum:
    # What is done with the events of a class, bit by bit; `digest` has the same names.
    KEEP = 1
    MARK = 2      # who had its cpu just then is asked for
    SWITCH = 4
    BIRTH = 8     # the thread in its first field begins anew
    FORK = 16     # the thread in its third field does

    FIELDS = 5    # of a switch: prev_comm, prev_tid, prev_state, next_comm, next_tid
    MOST_CPUS = 32768

ctypedef struct Row:
    int64_t row           # position in the recording, -1 none
    int64_t timestamp
    int32_t cpu
    int32_t event_class
    int64_t values[FIELDS]

ctypedef struct Seat:
    # What a cpu has seen: its last switch, and whether the next one is asked for.
    Row last
    int32_t ask

ctypedef struct Thread:
    int64_t key           # host and tid
    int64_t comm          # as last mentioned, -1 never in this life
    int32_t kept          # whether the last mention is among the rows already
    Row last

ctypedef struct Kept:
    int64_t row
    int64_t timestamp
    int64_t offset
    int32_t cpu
    int32_t event_class


cdef class Picker:
    """Takes chunks of events one after the other; the kept ones pile up."""

    cdef Kept* kept
    cdef Py_ssize_t count, room
    cdef int64_t* values
    cdef Py_ssize_t value_count, value_room
    cdef Seat** seats            # by host and cpu, made when first used
    cdef Py_ssize_t hosts
    cdef Thread* threads
    cdef Py_ssize_t thread_count, thread_room
    cdef int32_t* slots          # open addressing, thread + 1, 0 free
    cdef size_t slot_mask
    cdef int64_t row

    def __cinit__(self):
        self.slot_mask = 4095
        self.slots = <int32_t*>calloc(self.slot_mask + 1, sizeof(int32_t))
        if self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef Py_ssize_t i
        free(self.kept)
        free(self.values)
        free(self.threads)
        free(self.slots)
        for i in range(self.hosts):
            free(self.seats[i])
        free(self.seats)

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
        memcpy(self.values + self.value_count, values, width * sizeof(int64_t))
        self.value_count += width
        self.count += 1
        return 0

    cdef inline int put_row(self, const Row* r) except -1 nogil:
        return self.put(r.row, r.timestamp, r.cpu, r.event_class, r.values, FIELDS)

    cdef Seat* seat(self, int64_t host, int32_t cpu) except? NULL nogil:
        """What is known of a cpu, NULL for one that no machine has."""
        cdef Py_ssize_t i
        cdef Seat** more
        if cpu < 0 or cpu >= MOST_CPUS:
            return NULL
        if host >= self.hosts:
            more = <Seat**>realloc(self.seats, (host + 1) * sizeof(Seat*))
            if more == NULL:
                with gil:
                    raise MemoryError
            self.seats = more
            for i in range(self.hosts, host + 1):
                # Memory of cpus that never come up is never touched: its last row is 0 where
                # others say -1, so rows count from 1 here.
                more[i] = <Seat*>calloc(MOST_CPUS, sizeof(Seat))
                if more[i] == NULL:
                    with gil:
                        raise MemoryError
                self.hosts = i + 1
        return &self.seats[host][cpu]

    cdef int widen(self) except -1 nogil:
        cdef size_t mask = 2 * self.slot_mask + 1, at
        cdef Py_ssize_t i
        cdef int32_t* slots = <int32_t*>calloc(mask + 1, sizeof(int32_t))
        if slots == NULL:
            with gil:
                raise MemoryError
        for i in range(self.thread_count):
            at = mixed(self.threads[i].key) & mask
            while slots[at]:
                at = (at + 1) & mask
            slots[at] = <int32_t>(i + 1)
        free(self.slots)
        self.slots, self.slot_mask = slots, mask
        return 0

    cdef Thread* thread(self, int64_t host, int64_t tid) except NULL nogil:
        cdef int64_t key = (host << 32) + tid
        cdef size_t at = mixed(key) & self.slot_mask
        cdef Thread* t
        cdef void* more
        while self.slots[at]:
            t = &self.threads[self.slots[at] - 1]
            if t.key == key:
                return t
            at = (at + 1) & self.slot_mask
        if self.thread_count == self.thread_room:
            self.thread_room = 2 * self.thread_room + 1024
            more = realloc(self.threads, self.thread_room * sizeof(Thread))
            if more == NULL:
                with gil:
                    raise MemoryError
            self.threads = <Thread*>more
        t = &self.threads[self.thread_count]
        t.key, t.comm, t.kept = key, -1, 1
        self.thread_count += 1
        self.slots[at] = <int32_t>self.thread_count
        if 2 * <size_t>self.thread_count > self.slot_mask:
            self.widen()
        return t

    cdef int born(self, int64_t host, int64_t tid) except -1 nogil:
        """End what is known of a thread's names: another life begins."""
        cdef Thread* t
        if tid > 0:
            t = self.thread(host, tid)
            if not t.kept:
                self.put_row(&t.last)
            t.kept, t.comm = 1, -1
        return 0

    cdef int mention(self, int64_t host, int64_t tid, int64_t comm, const Row* r,
                     int* keep) except -1 nogil:
        cdef Thread* t
        if tid <= 0:
            return 0
        t = self.thread(host, tid)
        if t.comm != comm:
            # Both sides of a change, and the first of all.
            if not t.kept:
                self.put_row(&t.last)
            t.comm = comm
            t.kept = 1
            keep[0] = 1
        else:
            t.kept = 0
        t.last = r[0]
        return 0

    def feed(self, const int64_t[::1] timestamp, const int32_t[::1] cpu,
             const int32_t[::1] event_class, const int64_t[::1] offset,
             const int64_t[::1] values, const uint8_t[::1] actions,
             const int64_t[::1] class_host, const int64_t[::1] widths):
        """Take the next events; `actions` and what follows are by class."""
        cdef Py_ssize_t i, n = timestamp.shape[0]
        cdef int32_t c
        cdef int action, keep
        cdef const int64_t* v
        cdef const int64_t* all_values = &values[0] if values.shape[0] else NULL
        cdef int64_t host
        cdef Seat* seat
        cdef Row r
        with nogil:
            for i in range(n):
                c = event_class[i]
                action = actions[c]
                if action == 0:
                    continue
                v = all_values + offset[i]
                host = class_host[c]
                seat = NULL
                if action & (MARK | SWITCH):
                    seat = self.seat(host, cpu[i])
                if action & MARK and seat != NULL:
                    if seat.last.row:
                        self.put_row(&seat.last)
                        seat.last.row = 0
                    seat.ask = 1
                if action & SWITCH:
                    r.row, r.timestamp = self.row + i + 1, timestamp[i]
                    r.cpu, r.event_class = cpu[i], c
                    memcpy(r.values, v, sizeof(r.values))
                    keep = action & KEEP
                    self.mention(host, v[1], v[0], &r, &keep)
                    self.mention(host, v[4], v[3], &r, &keep)
                    if seat != NULL:
                        if seat.ask:
                            keep = 1
                            # A mark that is a switch answers for itself, not for the next.
                            seat.ask = 0
                        seat.last = r
                        if keep:
                            seat.last.row = 0
                    if keep:
                        self.put(r.row, r.timestamp, r.cpu, c, v, widths[c])
                    continue
                if action & BIRTH:
                    self.born(host, v[0])
                if action & FORK:
                    self.born(host, v[2])
                self.put(self.row + i + 1, timestamp[i], cpu[i], c, v, widths[c])
            self.row += n

    def take(self):
        """Return timestamp, cpu, event_class, offset and values of what was kept, in order."""
        cdef Py_ssize_t i, n
        for i in range(self.thread_count):
            if not self.threads[i].kept:
                self.put_row(&self.threads[i].last)
                self.threads[i].kept = 1
        n = self.count
        rows = np.empty(n, np.int64)
        cdef int64_t[::1] of = rows
        for i in range(n):
            of[i] = self.kept[i].row
        # A row may have been kept for more than one reason.
        _, first = np.unique(rows, return_index=True)
        cdef int64_t[::1] at = first.astype(np.int64)
        n = at.shape[0]
        out = (np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.int32),
               np.empty(n, np.int64), np.empty(self.value_count, np.int64))
        cdef int64_t[::1] timestamp = out[0], offset = out[3], values = out[4]
        cdef int32_t[::1] cpu = out[1], event_class = out[2]
        for i in range(n):
            timestamp[i] = self.kept[at[i]].timestamp
            cpu[i] = self.kept[at[i]].cpu
            event_class[i] = self.kept[at[i]].event_class
            offset[i] = self.kept[at[i]].offset
        if self.value_count:
            memcpy(&values[0], self.values, self.value_count * sizeof(int64_t))
        return out


cdef inline size_t mixed(int64_t key) noexcept nogil:
    # 2^64 over the golden ratio, in two halves: Cython has no unsigned 64-bit literal.
    cdef size_t golden = (<size_t>0x9E3779B9 << 32) | <size_t>0x7F4A7C15
    cdef size_t h = <size_t>key * golden
    return h ^ (h >> 29)
