# cython: language_level=3
"""Backward walks of many executions at once, over one block of timelines after another.

The rules are those of docs/critical-path.md (section "path").  The plain-Python
twin is tests/oracle/walk.py.

A walk goes backward in time.  At time t of a worker it needs the row that covers the
moment before t; that is in the first block with cut >= t, or in a later one and then
among the rows that are carried along.  So blocks are gone through from the last to the
first, and every walk goes on in each as far as the block reaches.
"""

from libc.stdint cimport (INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t,
                          uint32_t, uint64_t)
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

import numpy as np

include "../model/_packed_rows.pxi"
include "_search.pxi"
include "_room.pxi"
include "_block_rows.pxi"
include "_courses.pxi"

cdef enum:
    S_UNKNOWN = 0
    S_WAIT_CPU = 6
    S_WAIT_TASK = 7
    S_WAIT_STOPPED = 17
    S_NET_TRANSIT = 18

    LINK_WAKE = 0
    LINK_NET = 1


cdef class Walks(Courses):
    """The walks of many executions, each as far as it has got.

    Parameters
    ----------
    cuts : int64 [blocks]
        Ascending; the last block has everything after its cut as well.
    subjects, begin, end : int64 [executions]
        A subject of -1 has one UNKNOWN segment.
    parent, born : int64 [workers]
    link_start : int64 [workers + 1]
    link_time, link_source, link_sent : int64 [links]
        Links that are not on rows, ascending within a worker.
    link_kind : uint8 [links]
    """

    cdef const int64_t[::1] cuts, link_start, link_time, link_source, link_sent, parent, born
    cdef const uint8_t[::1] link_kind
    cdef const int64_t[::1] subjects, low, high
    cdef Py_ssize_t blocks, workers
    cdef int32_t* waiting     # per block, the first walk that waits for it
    cdef int64_t* hint        # per worker, the row found last
    cdef readonly Py_ssize_t left

    def __cinit__(self):
        self.waiting = NULL
        self.hint = NULL

    def __init__(self, const int64_t[::1] cuts, const int64_t[::1] subjects,
                 const int64_t[::1] begin, const int64_t[::1] end,
                 const int64_t[::1] parent, const int64_t[::1] born,
                 const int64_t[::1] link_start, const int64_t[::1] link_time,
                 const int64_t[::1] link_source, const int64_t[::1] link_sent,
                 const uint8_t[::1] link_kind):
        cdef Py_ssize_t i
        self.cuts = cuts
        self.subjects = subjects
        self.low = begin
        self.high = end
        self.parent = parent
        self.born = born
        self.link_start = link_start
        self.link_time = link_time
        self.link_source = link_source
        self.link_sent = link_sent
        self.link_kind = link_kind
        self.workers = parent.shape[0]
        self.blocks = cuts.shape[0]
        self.left = 0
        self.begin_courses(subjects.shape[0])
        self.waiting = <int32_t*>malloc((self.blocks + 1) * sizeof(int32_t))
        self.hint = <int64_t*>calloc(self.workers + 1, sizeof(int64_t))
        if self.waiting == NULL or self.hint == NULL:
            raise MemoryError()
        for i in range(self.blocks):
            self.waiting[i] = -1
        for i in range(self.total):
            if end[i] <= begin[i]:
                continue
            if subjects[i] < 0:
                self.emit(&self.courses[i], begin[i], end[i], -1, S_UNKNOWN, 0, -1)
                continue
            self.push(&self.courses[i], subjects[i], begin[i], end[i])
            self.wait_for(i, end[i])
            self.left += 1

    def __dealloc__(self):
        free(self.waiting)
        free(self.hint)

    cdef Py_ssize_t block_of(self, int64_t t) noexcept nogil:
        """Return the first block with cut >= t, or the last."""
        return <Py_ssize_t>first_from(&self.cuts[0], 0, self.blocks - 1, t, False)

    cdef void wait_for(self, Py_ssize_t index, int64_t t) noexcept nogil:
        cdef Py_ssize_t block = self.block_of(t)
        self.courses[index].next = self.waiting[block]
        self.waiting[block] = <int32_t>index

    cdef int link_in(self, int64_t worker, Row* row, int64_t after, int64_t t,
                     Link* link) noexcept nogil:
        """Fill in the last link into worker that arrives in (after, t], a packet before a wake."""
        cdef int64_t first = self.link_start[worker], last
        cdef int found = 0
        if first < self.link_start[worker + 1]:
            last = first_from(&self.link_time[0], first, self.link_start[worker + 1], t, True) - 1
            if last >= first and self.link_time[last] > after:
                link.time = self.link_time[last]
                link.sent = self.link_sent[last]
                link.source = self.link_source[last]
                link.kind = self.link_kind[last]
                found = 1
        if row.waker >= 0 and row.end == t and not (found and link.time == t):
            link.time = t
            link.sent = row.woken
            link.source = row.waker
            link.kind = LINK_WAKE
            found = 1
        return found

    cdef int follow(self, Course* c, Link* link, int64_t s, int64_t t) except -1 nogil:
        """Emit a link's own time and go on in its source down to ``s``."""
        cdef Frame* f = &c.frames[c.depth - 1]
        cdef int64_t sent = link.sent
        if sent > t:
            sent = t
        if sent < s:
            sent = s
        self.emit(c, sent, t, f.worker, S_NET_TRANSIT if link.kind == LINK_NET else S_WAIT_CPU,
                  0, -1)
        f.at = t
        f.t = s
        if sent > s:
            self.push(c, link.source, s, sent)
        return 0

    cdef int circular(self, Course* c, int64_t source, int64_t t) noexcept nogil:
        """Whether the walk left that worker at this very moment: a zero-time cycle."""
        cdef Py_ssize_t i = c.depth - 1
        if c.frames[i].worker == source:
            return 1
        i -= 1
        while i >= 0 and c.frames[i].at == t:
            if c.frames[i].worker == source:
                return 1
            i -= 1
        return 0

    cdef int go(self, Py_ssize_t index, Rows* block, Rows* carried, int64_t after,
                int64_t until) except -1 nogil:
        """Go on with a walk as far as the rows of (after, until] take it."""
        cdef Course* c = &self.courses[index]
        cdef Frame* f
        cdef Row row
        cdef Link link
        cdef int64_t s, t, born, parent
        while c.depth:
            f = &c.frames[c.depth - 1]
            t = f.t
            if t <= f.lo:
                c.depth -= 1
                continue
            if t <= after or t > until:
                self.wait_for(index, t)
                return 0
            if not covering(block, carried, f.worker, t, self.hint, &row):
                parent = self.parent[f.worker]
                born = self.born[f.worker]
                if parent >= 0 and born <= t and not (
                        born == t and self.circular(c, parent, t)):
                    # Before its birth a thread's path is its creator's, down to the end.
                    if born < f.lo:
                        born = f.lo
                    self.emit(c, born, t, f.worker, S_WAIT_CPU, 0, -1)
                    f.at = t
                    f.t = f.lo
                    if born > f.lo:
                        self.push(c, parent, f.lo, born)
                    continue
                # Twice through one moment of one worker, the walk would never end.
                if f.has_bypassed and not f.rewound and not (
                        f.bypassed.sent >= f.bypassed.time
                        and self.circular(c, f.bypassed.source, f.bypassed.time)):
                    # What was emitted since then belongs to nobody: take the link instead.
                    self.emitted -= c.count - f.bypassed_count
                    c.count = f.bypassed_count
                    link = f.bypassed
                    self.emit(c, link.time, f.bypassed_top, f.worker, f.bypassed_state,
                              f.bypassed_detail, f.bypassed_cpu)
                    f.rewound = 1
                    f.has_bypassed = 0
                    self.follow(c, &link, f.lo, link.time)
                    continue
                self.emit(c, f.lo, t, f.worker, S_UNKNOWN, 0, -1)
                c.depth -= 1
                continue
            s = row.begin if row.begin > f.lo else f.lo
            if self.link_in(f.worker, &row, s, t, &link):
                if row.state >= S_WAIT_TASK and row.state != S_WAIT_STOPPED:
                    # A wake inside the wait did not end it; one after the window is not known.
                    if link.time == row.end and t == row.end and not (
                            link.sent >= t and self.circular(c, link.source, t)):
                        self.follow(c, &link, s, t)
                        continue
                elif not f.rewound:
                    f.has_bypassed = 1
                    f.bypassed = link
                    f.bypassed_top = t
                    f.bypassed_count = c.count
                    f.bypassed_state = row.state
                    f.bypassed_detail = row.detail
                    f.bypassed_cpu = row.cpu
            self.emit(c, s, t, f.worker, row.state, row.detail, row.cpu)
            f.t = s
        free(c.frames)
        c.frames = NULL
        c.frame_capacity = 0
        self.left -= 1
        return 0

    def waits(self, Py_ssize_t before):
        """Return the last block before one that a walk waits for, -1 if there is none."""
        cdef Py_ssize_t k = before - 1
        while k >= 0 and self.waiting[k] < 0:
            k -= 1
        return k

    def advance(self, Py_ssize_t k, block, carried):
        """Go on with the walks that wait for block ``k``.

        Parameters
        ----------
        k : int
        block : OpenColumns
            Rows that walks come to are filled in.
        carried : tuple of arrays
            start, begin, end, state, detail, cpu, waker, woken of the rows of later blocks
            that begin before its cut.
        """
        cdef Rows rows, more
        cdef int64_t after = self.cuts[k - 1] if k else INT64_MIN
        cdef int64_t until = self.cuts[k] if k < self.blocks - 1 else INT64_MAX
        cdef int32_t index = self.waiting[k], following
        if index < 0:
            return
        self.waiting[k] = -1
        point_opened(&rows, block)
        point(&more, carried[0], carried[1], carried[2], carried[3], carried[4],
              carried[5], carried[6], carried[7])
        with nogil:
            while index >= 0 and (self.most == 0 or self.emitted <= self.most):
                following = self.courses[index].next
                self.go(index, &rows, &more, after, until)
                index = following
