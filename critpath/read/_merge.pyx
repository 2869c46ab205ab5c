# cython: language_level=3
"""Merges what was decoded stream by stream into the order of time."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

import numpy as np


cdef inline bint _before(const int64_t* ts, int64_t a, int64_t b) noexcept nogil:
    """Whether row a comes before row b: by time, then by stream."""
    return ts[a] < ts[b] or (ts[a] == ts[b] and a < b)


cdef void _sift(const int64_t* ts, int64_t* heads, int64_t* ends, int64_t at,
                int64_t count) noexcept nogil:
    cdef int64_t head = heads[at], end = ends[at], child
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and _before(ts, heads[child + 1], heads[child]):
            child += 1
        if not _before(ts, heads[child], head):
            break
        heads[at], ends[at] = heads[child], ends[child]
        at = child
    heads[at], ends[at] = head, end


cdef void _merge(const int64_t* ts, const int64_t* place, const int64_t* offset,
                 int64_t* heads, int64_t* ends, int64_t runs,
                 int64_t* ts_out, int32_t* class_out, int32_t* cpu_out,
                 int64_t* offset_out) noexcept nogil:
    cdef int64_t out = 0, row, end, other, i
    for i in range(runs // 2 - 1, -1, -1):
        _sift(ts, heads, ends, i, runs)
    while runs > 0:
        row, end = heads[0], ends[0]
        # The run in front goes on until the best of the others comes before it.
        other = -1
        if runs > 1:
            other = heads[1]
            if runs > 2 and _before(ts, heads[2], other):
                other = heads[2]
        while row < end and (other < 0 or _before(ts, row, other)):
            ts_out[out] = ts[row]
            class_out[out] = <int32_t>place[row]
            cpu_out[out] = <int32_t>(place[row] >> 32)
            offset_out[out] = offset[row]
            out += 1
            row += 1
        if row == end:
            runs -= 1
            heads[0], ends[0] = heads[runs], ends[runs]
        else:
            heads[0] = row
        if runs > 1:
            _sift(ts, heads, ends, 0, runs)


def run_starts(const int64_t[::1] ts):
    """Rows at which a stretch of non-decreasing timestamps begins."""
    cdef int64_t n = ts.shape[0], i, found = 0
    cdef int64_t[::1] starts
    if n == 0:
        return np.zeros(0, np.int64)
    with nogil:
        for i in range(1, n):
            found += ts[i] < ts[i - 1]
    result = np.zeros(found + 1, np.int64)
    starts = result
    found = 1
    with nogil:
        for i in range(1, n):
            if ts[i] < ts[i - 1]:
                starts[found] = i
                found += 1
    return result


def merge(const int64_t[::1] ts, const int64_t[::1] place, const int64_t[::1] offset,
          const int64_t[::1] starts):
    """Order rows by time, rows of the same time as they stand.

    Returns timestamp, class, cpu and offset; a k-way merge of the runs that begin at
    `starts` with a heap, galloping while one run is ahead of all others.
    """
    cdef int64_t n = ts.shape[0], runs = starts.shape[0], i
    cdef int64_t* heads
    cdef int64_t* ends
    results = (np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.int32),
               np.empty(n, np.int64))
    cdef int64_t[::1] ts_out = results[0]
    cdef int32_t[::1] class_out = results[1]
    cdef int32_t[::1] cpu_out = results[2]
    cdef int64_t[::1] offset_out = results[3]
    if n == 0:
        return results
    heads = <int64_t*>malloc(2 * runs * sizeof(int64_t))
    if heads == NULL:
        raise MemoryError
    ends = heads + runs
    for i in range(runs):
        heads[i] = starts[i]
        ends[i] = starts[i + 1] if i + 1 < runs else n
    with nogil:
        _merge(&ts[0], &place[0], &offset[0], heads, ends, runs,
               &ts_out[0], &class_out[0], &cpu_out[0], &offset_out[0])
    free(heads)
    return results
