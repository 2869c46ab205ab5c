# cython: language_level=3
"""Numbers of what is asked for again and again: a table by hash, kept between the questions."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, qsort, realloc

import numpy as np

ctypedef struct Pair:
    int64_t first
    int64_t second


cdef inline uint64_t scatter(int64_t first, int64_t second) noexcept nogil:
    # 2^64 over the golden ratio, in two halves: Cython has no unsigned 64-bit literal.
    cdef uint64_t golden = (<uint64_t>0x9E3779B9 << 32) | <uint64_t>0x7F4A7C15
    cdef uint64_t h = ((<uint64_t>first * golden) ^ (<uint64_t>second + (<uint64_t>first >> 32)))
    h *= golden
    return h ^ (h >> 29)


cdef class Numbers:
    """Numbers pairs of integers, in the order in which they first come."""

    cdef Pair* pairs
    cdef int32_t* table          # number + 1 of a pair, 0: a free place
    cdef Py_ssize_t mask, count, room

    def __cinit__(self):
        self.pairs, self.count, self.room, self.mask = NULL, 0, 0, 255
        self.table = <int32_t*>calloc(self.mask + 1, sizeof(int32_t))
        if self.table == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.pairs)
        free(self.table)

    def __len__(self):
        return self.count

    cdef inline Py_ssize_t place(self, int64_t first, int64_t second) noexcept nogil:
        """Return where the number of a pair stands, or may be put."""
        cdef uint64_t at = scatter(first, second) & <uint64_t>self.mask
        cdef Pair* pair
        while self.table[at]:
            pair = &self.pairs[self.table[at] - 1]
            if pair.first == first and pair.second == second:
                break
            at = (at + 1) & <uint64_t>self.mask
        return <Py_ssize_t>at

    cdef int grow(self) except -1 nogil:
        """Make room for one more pair."""
        cdef Py_ssize_t i
        cdef void* more
        if self.count == self.room:
            more = realloc(self.pairs, (2 * self.room + 64) * sizeof(Pair))
            if more == NULL:
                with gil:
                    raise MemoryError()
            self.pairs, self.room = <Pair*>more, 2 * self.room + 64
        if 2 * self.count > self.mask:
            more = calloc(2 * (self.mask + 1), sizeof(int32_t))
            if more == NULL:
                with gil:
                    raise MemoryError()
            free(self.table)
            self.table, self.mask = <int32_t*>more, 2 * self.mask + 1
            for i in range(self.count):
                self.table[self.place(self.pairs[i].first, self.pairs[i].second)] = <int32_t>(i + 1)
        return 0

    def add(self, const int64_t[:] first, const int64_t[:] second):
        """Return the number of every pair; one that is new gets the next."""
        cdef Py_ssize_t i, at
        found = np.empty(first.shape[0], np.int32)
        cdef int32_t[::1] out = found
        with nogil:
            for i in range(first.shape[0]):
                at = self.place(first[i], second[i])
                if not self.table[at]:
                    self.grow()
                    at = self.place(first[i], second[i])
                    self.pairs[self.count].first = first[i]
                    self.pairs[self.count].second = second[i]
                    self.count += 1
                    self.table[at] = <int32_t>self.count
                out[i] = self.table[at] - 1
        return found

    def find(self, const int64_t[:] first, const int64_t[:] second):
        """Return the number of every pair, -1 of one that was never added."""
        cdef Py_ssize_t i
        found = np.empty(first.shape[0], np.int32)
        cdef int32_t[::1] out = found
        with nogil:
            for i in range(first.shape[0]):
                out[i] = self.table[self.place(first[i], second[i])] - 1
        return found

    def since(self, Py_ssize_t number):
        """Return the pairs from a number on: first [n], second [n]."""
        cdef Py_ssize_t i
        found = np.empty((2, max(self.count - number, 0)), np.int64)
        cdef int64_t[:, ::1] out = found
        for i in range(number, self.count):
            out[0, i - number] = self.pairs[i].first
            out[1, i - number] = self.pairs[i].second
        return found


ctypedef fused Code:
    uint8_t
    int32_t
    int64_t

ctypedef fused Meaning:
    int32_t
    int64_t


def find_used(const Code[:] codes, Py_ssize_t count):
    """Return which codes below ``count`` there are, ascending."""
    cdef Py_ssize_t i
    cdef bint good = True
    present = np.zeros(count, np.bool_)
    cdef uint8_t[::1] out = present.view(np.uint8)
    with nogil:
        for i in range(codes.shape[0]):
            if <size_t>codes[i] >= <size_t>count:
                good = False
                break
            out[codes[i]] = 1
    if not good:
        raise IndexError("a code that means nothing")
    return np.flatnonzero(present)


def translate(const Code[:] codes, const Meaning[::1] table):
    """Return what each code means: ``table[codes]``, whose indices are not made wider first."""
    cdef Py_ssize_t i
    cdef bint good = True
    meanings = np.empty(codes.shape[0], np.int32 if Meaning is int32_t else np.int64)
    cdef Meaning[::1] out = meanings
    with nogil:
        for i in range(codes.shape[0]):
            if <size_t>codes[i] >= <size_t>table.shape[0]:
                good = False
                break
            out[i] = table[codes[i]]
    if not good:
        raise IndexError("a code that means nothing")
    return meanings


def last_begun(const int32_t[::1] group, const int64_t[::1] start, const int64_t[::1] begin,
               const int64_t[:] time):
    """Return the last row of each group that has begun by a time, else its first; -1 for no group.

    Rows of group g from start[g] to start[g + 1], whose begins ascend.
    """
    cdef Py_ssize_t i
    cdef int64_t low, high, middle
    found = np.empty(group.shape[0], np.int64)
    cdef int64_t[::1] out = found
    with nogil:
        for i in range(group.shape[0]):
            if group[i] < 0:
                out[i] = -1
                continue
            low, high = start[group[i]], start[group[i] + 1]
            while low + 1 < high:
                middle = low + (high - low) // 2
                if begin[middle] <= time[i]:
                    low = middle
                else:
                    high = middle
            out[i] = low
    return found


cdef enum:
    FEW = 24  # numbers that are put in order one by one


cdef int ascend(const void* one, const void* other) noexcept nogil:
    cdef int32_t a = (<const int32_t*>one)[0], b = (<const int32_t*>other)[0]
    return (a > b) - (a < b)


cdef void sort_numbers(int32_t* values, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef int32_t moved
    if count > FEW:
        qsort(values, count, sizeof(int32_t), ascend)
        return
    for i in range(1, count):
        moved, j = values[i], i
        while j and values[j - 1] > moved:
            values[j] = values[j - 1]
            j -= 1
        values[j] = moved


def list_distinct(const int64_t[::1] start, const int32_t[::1] codes, const int32_t[::1] rank):
    """Return the ranks of the codes that each group has, each once and in order, without code 0.

    Parameters
    ----------
    start : int64 [groups + 1]
        Codes of group g are from start[g] to start[g + 1].
    codes : int32 [n]
    rank : int32 [by code]

    Returns
    -------
    tuple of arrays
        Where the ranks of each group begin [groups + 1], the ranks, and each code's place among
        its group's [n], -1 for code 0.
    """
    cdef Py_ssize_t group, i, many = start.shape[0] - 1, first, count = 0
    cdef int32_t c
    bounds = np.zeros(many + 1, np.int64)
    places = np.empty(codes.shape[0], np.int32)
    ranks = np.empty(codes.shape[0], np.int32)
    # By rank: of which group it was seen last, and where it stands among that group's.
    cdef int64_t[::1] seen = np.full(rank.shape[0], -1, np.int64), out = bounds
    cdef int32_t[::1] stands = np.zeros(rank.shape[0], np.int32), place = places, found = ranks
    with nogil:
        for group in range(many):
            first = count
            for i in range(start[group], start[group + 1]):
                if codes[i]:
                    c = rank[codes[i]]
                    if seen[c] != group:
                        seen[c] = group
                        found[count] = c
                        count += 1
            if count > first:
                sort_numbers(&found[first], count - first)
            for i in range(first, count):
                stands[found[i]] = <int32_t>(i - first)
            for i in range(start[group], start[group + 1]):
                place[i] = stands[rank[codes[i]]] if codes[i] else -1
            out[group + 1] = count
    return bounds, ranks[:count], places
