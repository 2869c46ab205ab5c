# cython: language_level=3
"""Merges what was decoded stream by stream into the order of time."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc, realloc

import numpy as np

include "_block.pxi"


cdef inline bint _before(const int64_t* ts, int64_t a, int64_t b) noexcept nogil:
    """Whether row a comes before row b: by time, then by stream."""
    return ts[a] < ts[b] or (ts[a] == ts[b] and a < b)


cdef struct Run:
    int64_t row
    int64_t end
    int64_t offset  # of the row's values


cdef void _sift(const int64_t* ts, Run* runs, int64_t at, int64_t count) noexcept nogil:
    cdef Run moved = runs[at]
    cdef int64_t child
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and _before(ts, runs[child + 1].row, runs[child].row):
            child += 1
        if not _before(ts, runs[child].row, moved.row):
            break
        runs[at] = runs[child]
        at = child
    runs[at] = moved


cdef void _merge(const int64_t* ts, const int64_t* place, const int64_t* widths,
                 Run* runs, int64_t count, int64_t* ts_out, int32_t* class_out,
                 int32_t* cpu_out, int64_t* offset_out) noexcept nogil:
    cdef int64_t out = 0, row, end, offset, other, i
    for i in range(count // 2 - 1, -1, -1):
        _sift(ts, runs, i, count)
    while count > 0:
        row, end, offset = runs[0].row, runs[0].end, runs[0].offset
        # The run in front goes on until the best of the others comes before it.
        other = -1
        if count > 1:
            other = runs[1].row
            if count > 2 and _before(ts, runs[2].row, other):
                other = runs[2].row
        while row < end and (other < 0 or _before(ts, row, other)):
            ts_out[out] = ts[row]
            class_out[out] = <int32_t>place[row]
            cpu_out[out] = <int32_t>(place[row] >> 32)
            offset_out[out] = offset
            offset += widths[<int32_t>place[row]]
            out += 1
            row += 1
        if row == end:
            count -= 1
            runs[0] = runs[count]
        else:
            runs[0].row, runs[0].offset = row, offset
        if count > 1:
            _sift(ts, runs, 0, count)


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


def merge(const int64_t[::1] ts, const int64_t[::1] place, const int64_t[::1] widths,
          const int64_t[::1] starts):
    """Order rows by time, rows of the same time as they stand.

    Values lie one row after the other, as many as `widths` says for the row's class.
    Returns timestamp, class, cpu and offset; a k-way merge of the runs that begin at
    `starts` with a heap, galloping while one run is ahead of all others.
    """
    cdef int64_t n = ts.shape[0], count = starts.shape[0], i, row, offset = 0
    cdef Run* runs
    # One block for all four, of which the pages were touched before.
    memory = fresh(2 * n + (n + 1) // 2 * 2)
    half = memory[2 * n:].view(np.int32)
    results = (memory[:n], half[:n], half[(n + 1) // 2 * 2:][:n], memory[n:2 * n])
    cdef int64_t[::1] ts_out = results[0]
    cdef int32_t[::1] class_out = results[1]
    cdef int32_t[::1] cpu_out = results[2]
    cdef int64_t[::1] offset_out = results[3]
    if n == 0:
        return results
    runs = <Run*>malloc(count * sizeof(Run))
    if runs == NULL:
        raise MemoryError
    with nogil:
        for i in range(count):
            runs[i].row = starts[i]
            runs[i].end = starts[i + 1] if i + 1 < count else n
            runs[i].offset = offset
            for row in range(runs[i].row, runs[i].end):
                offset += widths[<int32_t>place[row]]
        _merge(&ts[0], &place[0], &widths[0], runs, count,
               &ts_out[0], &class_out[0], &cpu_out[0], &offset_out[0])
    free(runs)
    return results
