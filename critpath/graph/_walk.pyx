# cython: language_level=3
"""Backward walk over an execution graph: the critical path as an exact partition.

The rules are those of docs/critical-path.md (section "path").  The plain-Python
twin is tests/oracle/walk.py.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc

import numpy as np

cdef enum:
    S_UNKNOWN = 0
    S_WAIT_CPU = 6
    S_WAIT_TASK = 7
    S_NET_TRANSIT = 18

    LINK_WAKE = 0
    LINK_NET = 1

    S_RUN = 1
    S_RUN_SYSCALL = 3
    S_WAIT_STOPPED = 17

ctypedef struct Segment:
    int64_t begin
    int64_t end
    int64_t worker
    int64_t interval      # -1: a link's own time, or nothing known
    int32_t state

ctypedef struct Frame:
    int64_t worker
    int64_t lo
    int64_t t
    int64_t at            # where the walk last left this worker for another
    # The last incoming link that was passed by while the worker was not waiting.
    int64_t bypassed      # link, -1 none
    int64_t bypassed_count
    int64_t bypassed_interval
    int64_t bypassed_top  # where the interval's own segment ended
    int32_t rewound


cdef class Walk:
    """Walks executions one after the other; the segments pile up in one table."""

    cdef const int64_t[::1] start, begin, end, link_start, link_time, link_source, link_sent
    cdef const uint8_t[::1] state, link_kind
    cdef const int64_t[::1] parent, born
    cdef Segment* segments
    cdef Py_ssize_t count, capacity
    cdef Frame* frames
    cdef Py_ssize_t depth, frame_capacity

    def __cinit__(self):
        self.segments = NULL
        self.frames = NULL

    def __init__(self, const int64_t[::1] start, const int64_t[::1] begin, const int64_t[::1] end,
                 const uint8_t[::1] state, const int64_t[::1] link_start,
                 const int64_t[::1] link_time, const int64_t[::1] link_source,
                 const int64_t[::1] link_sent, const uint8_t[::1] link_kind,
                 const int64_t[::1] parent, const int64_t[::1] born):
        self.start = start
        self.begin = begin
        self.end = end
        self.state = state
        self.link_start = link_start
        self.link_time = link_time
        self.link_source = link_source
        self.link_sent = link_sent
        self.link_kind = link_kind
        self.parent = parent
        self.born = born
        self.capacity = 1024
        self.count = 0
        self.segments = <Segment*>malloc(self.capacity * sizeof(Segment))
        self.frame_capacity = 64
        self.depth = 0
        self.frames = <Frame*>malloc(self.frame_capacity * sizeof(Frame))
        if self.segments == NULL or self.frames == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.segments)
        free(self.frames)

    cdef int emit(self, int64_t begin, int64_t end, int64_t worker, int64_t interval,
                  int32_t state) except -1 nogil:
        cdef Segment* more
        if end <= begin:
            return 0
        if self.count == self.capacity:
            more = <Segment*>realloc(self.segments, 2 * self.capacity * sizeof(Segment))
            if more == NULL:
                with gil:
                    raise MemoryError()
            self.segments = more
            self.capacity *= 2
        cdef Segment* s = &self.segments[self.count]
        s.begin = begin
        s.end = end
        s.worker = worker
        s.interval = interval
        s.state = state
        self.count += 1
        return 0

    cdef int push(self, int64_t worker, int64_t lo, int64_t t) except -1 nogil:
        cdef Frame* more
        if self.depth == self.frame_capacity:
            more = <Frame*>realloc(self.frames, 2 * self.frame_capacity * sizeof(Frame))
            if more == NULL:
                with gil:
                    raise MemoryError()
            self.frames = more
            self.frame_capacity *= 2
        cdef Frame* f = &self.frames[self.depth]
        f.worker = worker
        f.lo = lo
        f.t = t
        f.at = t + 1
        f.bypassed = -1
        f.rewound = 0
        self.depth += 1
        return 0

    cdef int64_t interval_before(self, int64_t worker, int64_t t) noexcept nogil:
        """Return the interval that covers just before t, -1 if there is none."""
        cdef int64_t low = self.start[worker], high = self.start[worker + 1], middle
        cdef int64_t first = low
        while low < high:
            middle = (low + high) >> 1
            if self.begin[middle] < t:
                low = middle + 1
            else:
                high = middle
        low -= 1
        if low < first or self.end[low] < t:
            return -1
        return low

    cdef int64_t link_at(self, int64_t worker, int64_t after, int64_t t) noexcept nogil:
        """Return the last link into worker with a target time in (after, t], -1 if none."""
        cdef int64_t low = self.link_start[worker], high = self.link_start[worker + 1], middle
        cdef int64_t first = low
        while low < high:
            middle = (low + high) >> 1
            if self.link_time[middle] <= t:
                low = middle + 1
            else:
                high = middle
        low -= 1
        if low < first or self.link_time[low] <= after:
            return -1
        return low

    cdef inline int waits(self, int64_t interval) noexcept nogil:
        """Whether the interval waits for something that a thread may have sent."""
        return self.state[interval] >= S_WAIT_TASK and self.state[interval] != S_WAIT_STOPPED

    cdef int follow(self, Frame* f, int64_t link, int64_t s, int64_t t) except -1 nogil:
        """Emit a link's own time and go on in its source down to ``s``."""
        cdef int64_t sent = self.link_sent[link], source = self.link_source[link]
        cdef int32_t own = S_NET_TRANSIT if self.link_kind[link] == LINK_NET else S_WAIT_CPU
        if sent > t:
            sent = t
        if sent < s:
            sent = s
        self.emit(sent, t, f.worker, -1, own)
        f.at = t
        f.t = s
        if sent > s:
            self.push(source, s, sent)
        return 0

    cdef int circular(self, int64_t source, int64_t t) noexcept nogil:
        """Whether the walk left that worker at this very moment: a zero-time cycle."""
        cdef Py_ssize_t i = self.depth - 1
        if self.frames[i].worker == source:
            return 1
        i -= 1
        while i >= 0 and self.frames[i].at == t:
            if self.frames[i].worker == source:
                return 1
            i -= 1
        return 0

    def walk(self, int64_t subject, int64_t lo, int64_t hi):
        """Append the path of ``subject`` over [lo, hi], latest segment first."""
        with nogil:
            self._walk(subject, lo, hi)

    cdef int _walk(self, int64_t subject, int64_t lo, int64_t hi) except -1 nogil:
        cdef Frame* f
        cdef int64_t e, s, t, link, sent
        self.depth = 0
        self.push(subject, lo, hi)
        while self.depth:
            f = &self.frames[self.depth - 1]
            t = f.t
            if t <= f.lo:
                self.depth -= 1
                continue
            e = self.interval_before(f.worker, t)
            if e < 0:
                if self.parent[f.worker] >= 0 and self.born[f.worker] <= t and not (
                        self.born[f.worker] == t and self.circular(self.parent[f.worker], t)):
                    # Before its birth a thread's path is its creator's, down to the end.
                    sent = self.born[f.worker] if self.born[f.worker] > f.lo else f.lo
                    self.emit(sent, t, f.worker, -1, S_WAIT_CPU)
                    f.at = t
                    f.t = f.lo
                    if sent > f.lo:
                        self.push(self.parent[f.worker], f.lo, sent)
                    continue
                # Twice through one moment of one worker, the walk would never end.
                if f.bypassed >= 0 and not f.rewound and not (
                        self.link_sent[f.bypassed] >= self.link_time[f.bypassed]
                        and self.circular(self.link_source[f.bypassed],
                                          self.link_time[f.bypassed])):
                    # What was emitted since then belongs to nobody: take the link instead.
                    self.count = f.bypassed_count
                    t = self.link_time[f.bypassed]
                    self.emit(t, f.bypassed_top, f.worker, f.bypassed_interval,
                              self.state[f.bypassed_interval])
                    f.rewound = 1
                    link = f.bypassed
                    f.bypassed = -1
                    self.follow(f, link, f.lo, t)
                    continue
                self.emit(f.lo, t, f.worker, -1, S_UNKNOWN)
                self.depth -= 1
                continue
            s = self.begin[e] if self.begin[e] > f.lo else f.lo
            link = self.link_at(f.worker, s, t)
            if link >= 0 and self.waits(e):
                # A wake inside the wait did not end it; one after the window is not known.
                if self.link_time[link] == self.end[e] and t == self.end[e]:
                    sent = self.link_sent[link]
                    if not (sent >= t and self.circular(self.link_source[link], t)):
                        self.follow(f, link, s, t)
                        continue
            elif link >= 0 and not f.rewound:
                f.bypassed = link
                f.bypassed_count = self.count
                f.bypassed_interval = e
                f.bypassed_top = t
            self.emit(s, t, f.worker, e, self.state[e])
            f.t = s
        return 0

    def take(self):
        """Return and forget the segments: begin, end, worker, interval, state."""
        cdef Py_ssize_t i, n = self.count
        out = [np.empty(n, np.int64) for _ in range(4)] + [np.empty(n, np.uint8)]
        cdef int64_t[::1] begin = out[0], end = out[1], worker = out[2], interval = out[3]
        cdef uint8_t[::1] state = out[4]
        for i in range(n):
            # The walk went backward in time.
            begin[n - 1 - i] = self.segments[i].begin
            end[n - 1 - i] = self.segments[i].end
            worker[n - 1 - i] = self.segments[i].worker
            interval[n - 1 - i] = self.segments[i].interval
            state[n - 1 - i] = <uint8_t>self.segments[i].state
        self.count = 0
        return out


def carve(const int64_t[::1] begin, const int64_t[::1] end, const uint8_t[::1] state,
          const int64_t[::1] processor, const int64_t[::1] stolen_start,
          const int64_t[::1] stolen_begin, const int64_t[::1] stolen_end,
          const uint8_t[::1] stolen_state, const int32_t[::1] stolen_detail):
    """Take interrupt work out of running segments.

    Returns
    -------
    list of arrays
        begin, end, source segment, state, detail; detail -1 keeps the segment's own.
    """
    cdef Py_ssize_t i, n = begin.shape[0], size = 0, capacity = 0
    cdef int64_t at, low, high, middle, until
    cdef int steal
    out = None
    cdef int64_t[::1] b, e, source
    cdef uint8_t[::1] st
    cdef int32_t[::1] d
    # Two passes: count, then write.
    cdef int writing
    for writing in range(2):
        if writing:
            out = [np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64),
                   np.empty(size, np.uint8), np.empty(size, np.int32)]
            b = out[0]
            e = out[1]
            source = out[2]
            st = out[3]
            d = out[4]
        size = 0
        with nogil:
            for i in range(n):
                at = begin[i]
                if processor[i] >= 0 and S_RUN <= state[i] <= S_RUN_SYSCALL:
                    low = stolen_start[processor[i]]
                    high = stolen_start[processor[i] + 1]
                    until = high
                    while low < high:
                        middle = (low + high) >> 1
                        if stolen_end[middle] <= at:
                            low = middle + 1
                        else:
                            high = middle
                    while low < until and stolen_begin[low] < end[i]:
                        if stolen_begin[low] > at:
                            if writing:
                                b[size] = at
                                e[size] = stolen_begin[low]
                                source[size] = i
                                st[size] = state[i]
                                d[size] = -1
                            size += 1
                            at = stolen_begin[low]
                        if writing:
                            b[size] = at
                            e[size] = stolen_end[low] if stolen_end[low] < end[i] else end[i]
                            source[size] = i
                            st[size] = stolen_state[low]
                            d[size] = stolen_detail[low]
                        size += 1
                        at = stolen_end[low] if stolen_end[low] < end[i] else end[i]
                        low += 1
                if at < end[i]:
                    if writing:
                        b[size] = at
                        e[size] = end[i]
                        source[size] = i
                        st[size] = state[i]
                        d[size] = -1
                    size += 1
    return out


def who_ran(const int64_t[::1] begin, const int64_t[::1] end, const int64_t[::1] processor,
            const int64_t[::1] ran_start, const int64_t[::1] ran_begin,
            const int64_t[::1] ran_end, const int32_t[::1] ran_worker):
    """Return for every wait the worker that held its processor longest, -1 if unknown."""
    cdef Py_ssize_t i, j, k, n = begin.shape[0]
    cdef int64_t low, high, middle, until, first, overlap, best
    result = np.full(n, -1, np.int64)
    cdef int64_t[::1] answer = result
    with nogil:
        for i in range(n):
            if processor[i] < 0:
                continue
            low = ran_start[processor[i]]
            until = ran_start[processor[i] + 1]
            high = until
            while low < high:
                middle = (low + high) >> 1
                if ran_end[middle] <= begin[i]:
                    low = middle + 1
                else:
                    high = middle
            first = low
            best = 0
            # A worker may hold it several times; waits are short, so the square is small,
            # and beyond 64 occupations only single ones are compared.
            while low < until and ran_begin[low] < end[i]:
                overlap = 0
                for j in range(first if low - first < 64 else low, until):
                    if ran_begin[j] >= end[i] or j - first >= 64 and j > low:
                        break
                    if ran_worker[j] == ran_worker[low]:
                        overlap += ((ran_end[j] if ran_end[j] < end[i] else end[i])
                                    - (ran_begin[j] if ran_begin[j] > begin[i] else begin[i]))
                if overlap > best:
                    best = overlap
                    answer[i] = ran_worker[low]
                low += 1
    return result
