# cython: language_level=3
"""Finds in columns what belongs together: operations of endpoints, causes of wakes, whose slices.

Each question goes once over the columns, and keeps what it asks for in one table for all.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc

import numpy as np

include "_acts.pxi"


cdef class EndpointRows:
    """Some rows of an activity, found by their endpoint: of endpoint e from start[e] on.

    Parameters
    ----------
    act : uint8 [rows]
    endpoint : int32 [rows]
    kinds : int
        A bit for each `Act` that is wanted.
    """

    cdef int64_t* start
    cdef int64_t* rows
    cdef int64_t ends

    def __cinit__(self, const uint8_t[:] act, const int32_t[:] endpoint, int64_t kinds):
        cdef Py_ssize_t i
        cdef int64_t at
        self.start = self.rows = NULL
        self.ends = 0
        with nogil:
            for i in range(endpoint.shape[0]):
                if endpoint[i] >= self.ends:
                    self.ends = <int64_t>endpoint[i] + 1
        self.start = <int64_t*>calloc(self.ends + 2, sizeof(int64_t))
        if self.start == NULL:
            raise MemoryError()
        with nogil:
            for i in range(act.shape[0]):
                if endpoint[i] >= 0 and (kinds >> act[i]) & 1:
                    self.start[endpoint[i] + 2] += 1
            for i in range(2, self.ends + 2):
                self.start[i] += self.start[i - 1]
        self.rows = <int64_t*>malloc((self.start[self.ends + 1] + 1) * sizeof(int64_t))
        if self.rows == NULL:
            raise MemoryError()
        with nogil:
            for i in range(act.shape[0]):
                if endpoint[i] >= 0 and (kinds >> act[i]) & 1:
                    at = self.start[endpoint[i] + 1]
                    self.rows[at] = i
                    self.start[endpoint[i] + 1] = at + 1

    def __dealloc__(self):
        free(self.start)
        free(self.rows)

    def before(self, const int64_t[:] endpoint, const int64_t[:] row):
        """Return the last row of each endpoint before another row, -1 for none."""
        return self.find(endpoint, row, False)

    def after(self, const int64_t[:] endpoint, const int64_t[:] row):
        """Return the first row of each endpoint after another row, -1 for none."""
        return self.find(endpoint, row, True)

    cdef object find(self, const int64_t[:] endpoint, const int64_t[:] row, bint after):
        cdef Py_ssize_t i
        cdef int64_t low, high, middle, first, last
        found = np.empty(endpoint.shape[0], np.int64)
        cdef int64_t[::1] out = found
        with nogil:
            for i in range(endpoint.shape[0]):
                out[i] = -1
                if endpoint[i] < 0 or endpoint[i] >= self.ends:
                    continue
                first, last = self.start[endpoint[i]], self.start[endpoint[i] + 1]
                low, high = first, last
                while low < high:  # the first that is not before, or that is after
                    middle = (low + high) >> 1
                    if self.rows[middle] < row[i] + after:
                        low = middle + 1
                    else:
                        high = middle
                if after and low < last:
                    out[i] = self.rows[low]
                elif not after and low > first:
                    out[i] = self.rows[low - 1]
        return found


# --------------------------------------------------------------------- threads by their number

cdef class Threads:
    """Numbers threads of hosts in the order in which they come."""

    cdef int64_t* keys           # host and id in one
    cdef int32_t* table          # number + 1; 0: a free place
    cdef int64_t mask, count

    def __cinit__(self):
        self.mask, self.count = 1023, 0
        self.table = <int32_t*>calloc(self.mask + 1, sizeof(int32_t))
        self.keys = <int64_t*>malloc((self.mask + 1) * sizeof(int64_t))
        if self.table == NULL or self.keys == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.table)
        free(self.keys)

    cdef inline int64_t place(self, int64_t key) noexcept nogil:
        cdef uint64_t golden = (<uint64_t>0x9E3779B9 << 32) | <uint64_t>0x7F4A7C15
        cdef uint64_t h = <uint64_t>key * golden
        cdef int64_t at = <int64_t>((h ^ (h >> 32)) & <uint64_t>self.mask)
        while self.table[at] and self.keys[self.table[at] - 1] != key:
            at = (at + 1) & self.mask
        return at

    cdef int32_t number(self, int64_t key) except -1 nogil:
        """Return the number of a thread; one that is new gets the next."""
        cdef int64_t at = self.place(key), i
        cdef void* keys
        cdef void* table
        if self.table[at]:
            return self.table[at] - 1
        if 2 * self.count > self.mask:
            keys = realloc(self.keys, 2 * (self.mask + 1) * sizeof(int64_t))
            if keys != NULL:
                self.keys = <int64_t*>keys
            table = calloc(2 * (self.mask + 1), sizeof(int32_t))
            if keys == NULL or table == NULL:
                free(table)
                with gil:
                    raise MemoryError()
            free(self.table)
            self.table, self.mask = <int32_t*>table, 2 * self.mask + 1
            for i in range(self.count):
                self.table[self.place(self.keys[i])] = <int32_t>(i + 1)
            at = self.place(key)
        self.keys[self.count] = key
        self.count += 1
        self.table[at] = <int32_t>self.count
        return <int32_t>self.count - 1


cdef inline int64_t thread_key(int64_t host, int64_t tid) noexcept nogil:
    return (host << 32) | (tid & 0xFFFFFFFFLL)


def number_threads(const uint8_t[:] act, const int32_t[:] tid, const int32_t[:] host,
                   const int64_t[:] value, const int64_t[:] more):
    """Number the threads that do something or are woken, and some more, in order of their keys.

    Parameters
    ----------
    act, tid, host, value : uint8, int32 and int64 [rows]
        Of an activity.
    more : int64 array
        Host and id in one number.

    Returns
    -------
    keys : int64 array
        Of all threads, ascending.
    who, whom : int32 [rows]
        Who did it, and who was woken; -1 for none.
    """
    cdef Threads threads = Threads()
    cdef Py_ssize_t i
    done, woken = np.empty(act.shape[0], np.int32), np.empty(act.shape[0], np.int32)
    cdef int32_t[::1] who = done, whom = woken, place
    with nogil:
        for i in range(act.shape[0]):
            who[i] = threads.number(thread_key(host[i], tid[i])) if tid[i] >= 0 else -1
            whom[i] = -1
            if act[i] == ACT_WAKE and value[i] >= 0:
                whom[i] = threads.number(thread_key(host[i], value[i]))
        for i in range(more.shape[0]):
            threads.number(more[i])
    found = np.empty(threads.count, np.int64)
    cdef int64_t[::1] keys = found
    for i in range(threads.count):
        keys[i] = threads.keys[i]
    order = np.argsort(found)
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    place = places
    with nogil:
        for i in range(act.shape[0]):
            if who[i] >= 0:
                who[i] = place[who[i]]
            if whom[i] >= 0:
                whom[i] = place[whom[i]]
    return found[order], done, woken


# ---------------------------------------------------------------------- what came before each wake

def find_causes(const uint8_t[:] act, const int32_t[:] tid, const int32_t[:] host,
                const int32_t[:] endpoint, const int32_t[:] serves, int64_t comes):
    """Return the wakes that follow, in who wakes, something that came where a server listens.

    Parameters
    ----------
    act, tid, host, endpoint : uint8 and int32 [rows]
        Of an activity, in order of time.
    serves : int32 [endpoints]
    comes : int
        A bit for each `Act` by which something comes.

    Returns
    -------
    rows, causes : int64 arrays
    """
    cdef Threads threads = Threads()
    cdef Py_ssize_t i, count = 0, wakes = 0, room = 0, wanted
    cdef int32_t number
    cdef int64_t row
    cdef int64_t* last = NULL     # of each thread, what it did last that is no wake; -1 nothing
    cdef void* more
    with nogil:
        for i in range(act.shape[0]):
            wakes += act[i] == ACT_WAKE
    found, caused = np.empty(wakes, np.int64), np.empty(wakes, np.int64)
    cdef int64_t[::1] rows = found, causes = caused
    try:
        with nogil:
            for i in range(act.shape[0]):
                if tid[i] < 0:
                    continue
                number = threads.number(thread_key(host[i], tid[i]))
                if number >= room:
                    wanted = 2 * room + 1024
                    more = realloc(last, wanted * sizeof(int64_t))
                    if more == NULL:
                        with gil:
                            raise MemoryError()
                    last = <int64_t*>more
                    while room < wanted:
                        last[room] = -1
                        room += 1
                if act[i] != ACT_WAKE:
                    last[number] = i
                    continue
                row = last[number]
                if row < 0 or not (comes >> act[row]) & 1:
                    continue
                if 0 <= endpoint[row] < serves.shape[0] and serves[endpoint[row]] == 1:
                    rows[count], causes[count] = i, row
                    count += 1
    finally:
        free(last)
    return found[:count], caused[:count]


# ------------------------------------------------------- what slices have most of a stretch of time

def find_most(const int64_t[:] thread, const int64_t[:] begin, const int64_t[:] end,
              const int64_t[:] own, const int64_t[::1] start, const int64_t[::1] slice_begin,
              const int64_t[::1] slice_end, const int32_t[::1] request,
              const int32_t[::1] code, int64_t codes, int64_t none):
    """Return which code had most of each stretch of its thread's time, and how long that was.

    Parameters
    ----------
    thread, begin, end : int64 [stretches]
    own : int64 [stretches]
        A request whose slices do not count.
    start : int64 [threads + 1]
        Where the slices of each thread begin, which are in order and do not overlap.
    slice_begin, slice_end : int64 [slices]
    request, code : int32 [slices]
    codes : int
        There are; of equals the last has it.
    none : int
        The code of slices that do not count.

    Returns
    -------
    most, spent : int64 [stretches]
        ``none`` where no slice counts.
    """
    cdef Py_ssize_t i, j, touched
    cdef int64_t k, first, last, low, high, middle, step, of, spent, best
    cdef int64_t hint = 0
    found = np.full(thread.shape[0], none, np.int64)
    times = np.zeros(thread.shape[0], np.int64)
    sums, stamps = np.zeros(codes + 1, np.int64), np.zeros(codes + 1, np.int64)
    each = np.zeros(codes + 1, np.int64)
    cdef int64_t[::1] out = found, of_out = times, total = sums, stamp = stamps, met = each
    with nogil:
        for i in range(thread.shape[0]):
            first, last = start[thread[i]], start[thread[i] + 1]
            # The first slice that ends after the begin: near that of the stretch before.
            low, high, step = first, last, 1
            if first <= hint < last:
                if slice_end[hint] > begin[i]:
                    high = hint + 1
                    while hint - step >= first and slice_end[hint - step] > begin[i]:
                        high = hint - step + 1
                        step <<= 1
                    low = hint - step if hint - step > first else first
                else:
                    low = hint + 1
                    while hint + step < last and slice_end[hint + step] <= begin[i]:
                        low = hint + step + 1
                        step <<= 1
                    high = hint + step + 1 if hint + step < last else last
            while low < high:
                middle = (low + high) >> 1
                if slice_end[middle] > begin[i]:
                    high = middle
                else:
                    low = middle + 1
            hint = low
            touched = 0
            k = low
            while k < last and slice_begin[k] < end[i]:
                if code[k] != none and request[k] != own[i] and 0 <= code[k] < codes:
                    spent = (slice_end[k] if slice_end[k] < end[i] else end[i]) - (
                        slice_begin[k] if slice_begin[k] > begin[i] else begin[i])
                    of = code[k]
                    if stamp[of] != i + 1:
                        stamp[of], total[of] = i + 1, 0
                        met[touched] = of
                        touched += 1
                    total[of] += spent
                k += 1
            if touched:
                best = met[0]
                for j in range(1, touched):
                    of = met[j]
                    if total[of] > total[best] or (total[of] == total[best] and of > best):
                        best = of
                out[i], of_out[i] = best, total[best]
    return found, times
