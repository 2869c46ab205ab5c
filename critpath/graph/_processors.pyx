# cython: language_level=3
"""What processors did during the segments of paths: interrupt work, and who ran instead.

Blocks are gone through from the last to the first, as by the walks.  Each accounts for
the time after the cut before it; what a segment that spans a cut has found so far is
kept until its begin is reached, so that nothing depends on where the cuts are.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc

import numpy as np

include "_search.pxi"
include "_room.pxi"
include "_processor_rows.pxi"
include "_pieces.pxi"
include "_shares.pxi"

cdef enum:
    S_RUN = 1
    S_RUN_SYSCALL = 3
    S_WAIT_CPU = 6


cdef class Account(Shares):
    """Segments of paths, as walks found them, and what becomes of them.

    Parameters
    ----------
    start : int64 [paths + 1]
    begin, end : int64 [segments]
    worker, detail, cpu : int32 [segments]
    state : uint8 [segments]
        In order of time within a path; ``cpu`` is filled in where a delay of waking
        has that of the segment after it.
    host : int64 [workers]
    idle : uint8 [workers]
        Whether it is an idle thread.
    processor : int32 [hosts, cpus]
        -1 where there is none.
    interrupts : bool
        Take interrupt work out of running segments.
    held_back, share : int, float
        From how much idle time (ns), and from which part of its time on, a wait was not
        for whoever ran.
    """

    cdef const int32_t[:, ::1] processor
    cdef bint interrupts
    cdef Py_ssize_t begun
    cdef Py_ssize_t* active
    cdef Py_ssize_t active_count
    cdef int64_t[::1] order     # paths by their end, latest first
    cdef int64_t* hint_stolen
    cdef readonly bint waits
    cdef readonly Py_ssize_t left

    def __cinit__(self):
        self.active = NULL
        self.hint_stolen = NULL

    def __init__(self, int64_t[::1] start, int64_t[::1] begin, int64_t[::1] end,
                 int32_t[::1] worker, uint8_t[::1] state, int32_t[::1] detail,
                 int32_t[::1] cpu, const int64_t[::1] host, const uint8_t[::1] idle,
                 const int32_t[:, ::1] processor, Py_ssize_t processors, bint interrupts,
                 int64_t held_back, double share):
        cdef Py_ssize_t i
        self.start, self.begin, self.end = start, begin, end
        self.worker, self.state, self.detail, self.cpu = worker, state, detail, cpu
        self.host, self.is_idle, self.processor = host, idle, processor
        self.interrupts, self.held_back, self.share = interrupts, held_back, share
        self.waits = False
        self.left = self.begun = self.active_count = 0
        self.begin_paths(start.shape[0] - 1)
        self.begin_shares(host.shape[0], processors)
        self.active = <Py_ssize_t*>malloc((self.total + 1) * sizeof(Py_ssize_t))
        self.hint_stolen = <int64_t*>calloc(processors + 1, sizeof(int64_t))
        if self.active == NULL or self.hint_stolen == NULL:
            raise MemoryError()
        last = np.full(self.total, np.iinfo(np.int64).min, np.int64)
        cdef int64_t[::1] ends = last
        with nogil:
            for i in range(self.total):
                self.paths[i].next = start[i + 1] - 1
                if start[i + 1] > start[i]:
                    self.left += 1
                    ends[i] = self.paths[i].top = end[start[i + 1] - 1]
                self.place_delays(i)
        self.order = np.argsort(last, kind="stable")[::-1].astype(np.int64)

    def __dealloc__(self):
        free(self.active)
        free(self.hint_stolen)

    cdef void place_delays(self, Py_ssize_t index) noexcept nogil:
        """Let the time between waking and wakeup wait for the cpu the thread then ran on."""
        cdef int64_t i
        for i in range(self.start[index + 1] - 2, self.start[index] - 1, -1):
            if (self.cpu[i] < 0 and self.state[i] == S_WAIT_CPU
                    and self.worker[i] == self.worker[i + 1]):
                self.cpu[i] = self.cpu[i + 1]

    cdef int64_t processor_of(self, int64_t segment) noexcept nogil:
        cdef int64_t host = 0
        cdef int32_t cpu = self.cpu[segment]
        if cpu < 0 or cpu >= self.processor.shape[1]:
            return -1
        if self.worker[segment] >= 0:
            host = self.host[self.worker[segment]]
        if host >= self.processor.shape[0]:
            return -1
        return self.processor[host, cpu]

    cdef int64_t carve(self, Path* path, int64_t segment, int64_t processor, int64_t low,
                       int64_t at, Stolen* rows) except? -1 nogil:
        """Emit what rows of interrupt work leave and take of [low, at]; return what is left."""
        cdef int64_t begin, end
        cdef int64_t i = last_before(rows.start, rows.begin, rows.processors, processor, at,
                                     self.hint_stolen)
        if i < 0:
            return at
        while i >= rows.start[processor] and rows.end[i] > low:
            begin = rows.begin[i] if rows.begin[i] > low else low
            end = rows.end[i] if rows.end[i] < at else at
            if end > begin:
                if end < at:
                    self.emit(path, segment, end, at, self.state[segment], self.detail[segment])
                self.emit(path, segment, begin, end, rows.state[i],
                          rows.detail[i] if rows.detail[i] >= 0 else self.detail[segment])
                at = begin
            i -= 1
        return at

    cdef int go(self, Py_ssize_t index, int64_t after, Stolen* stolen, Stolen* more_stolen,
                Ran* ran, Ran* more_ran) except -1 nogil:
        """Account for a path's time after a cut."""
        cdef Path* path = &self.paths[index]
        cdef int64_t segment = path.next, first = self.start[index]
        cdef int64_t low, at, processor
        cdef uint8_t state
        while segment >= first:
            at = path.top
            if at <= after:
                break
            low = self.begin[segment] if self.begin[segment] > after else after
            state = self.state[segment]
            if state == S_WAIT_CPU:
                self.waits = True
                if path.shares != NULL:
                    self.take_up(path)
                processor = self.processor_of(segment)
                if processor >= 0:
                    self.divide(processor, low, at, more_ran)
                    self.divide(processor, low, at, ran)
                if low > self.begin[segment]:
                    self.put_by(path)
                else:
                    self.emit(path, segment, low, self.end[segment], state,
                              self.longest(self.end[segment] - low))
            elif self.interrupts and S_RUN <= state <= S_RUN_SYSCALL:
                processor = self.processor_of(segment)
                if processor >= 0:
                    at = self.carve(path, segment, processor, low, at, more_stolen)
                    if at > low:
                        at = self.carve(path, segment, processor, low, at, stolen)
                if at > low:
                    self.emit(path, segment, low, at, state, self.detail[segment])
            else:
                self.emit(path, segment, low, at, state, self.detail[segment])
            path.top = low
            if low == self.begin[segment]:
                segment -= 1
        path.next = segment
        return segment >= first

    def account(self, int64_t after, stolen, carried_stolen, ran, carried_ran):
        """Account for the time after a cut, as far as no later block has.

        Parameters
        ----------
        after : int
            The cut before the block.
        stolen, carried_stolen : tuple of arrays
            start, begin, end, state, detail: of the block, and of the rows of later
            blocks that begin before its cut.
        ran, carried_ran : tuple of arrays
            start, begin, end, worker.
        """
        cdef Stolen s, more_s
        cdef Ran r, more_r
        cdef Py_ssize_t i, kept = 0, index
        point_stolen(&s, stolen[0], stolen[1], stolen[2], stolen[3], stolen[4])
        point_stolen(&more_s, carried_stolen[0], carried_stolen[1], carried_stolen[2],
                     carried_stolen[3], carried_stolen[4])
        point_ran(&r, ran[0], ran[1], ran[2], ran[3])
        point_ran(&more_r, carried_ran[0], carried_ran[1], carried_ran[2], carried_ran[3])
        with nogil:
            while self.begun < self.total:
                index = self.order[self.begun]
                if self.paths[index].next < self.start[index] or self.paths[index].top <= after:
                    break
                self.active[self.active_count] = index
                self.active_count += 1
                self.begun += 1
            for i in range(self.active_count):
                index = self.active[i]
                if self.most and self.pieces > self.most:
                    break
                if self.go(index, after, &s, &more_s, &r, &more_r):
                    self.active[kept] = index
                    kept += 1
                else:
                    self.left -= 1
            self.active_count = kept


def untiled(const int64_t[::1] start, const int64_t[::1] begin, const int64_t[::1] end,
            const int64_t[::1] low, const int64_t[::1] high):
    """Return the first path that does not cover its window exactly, -1 if all do."""
    cdef Py_ssize_t i, j
    cdef int64_t at
    cdef bint good = True
    for i in range(start.shape[0] - 1):
        with nogil:
            at = low[i]
            for j in range(start[i], start[i + 1]):
                good = good and begin[j] == at and end[j] > at
                at = end[j]
            good = good and (at == high[i] or (start[i] == start[i + 1] and low[i] >= high[i]))
        if not good:
            return i
    return -1
