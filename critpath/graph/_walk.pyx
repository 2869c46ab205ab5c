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
include "_columns.pxi"
include "_kinds.pxi"

cdef enum:
    LINK_WAKE = 0
    LINK_NET = 1
    LINK_HOLD = 2       # of a sleep that a timer ended, and its holder's release
    LINK_RECEIPT = 3    # of a sleep that bytes of another host ended, whoever woke the thread
    LINK_ASKED = 4      # of a wait for a processor that a thread had which it asked

# ------------------------------------ rows of a block, and of later blocks that are carried into it

# Columns of rows, those of worker w from start[w] to start[w + 1].  Of a block they are
# filled in worker by worker, from `data` (`critpath.model.OpenColumns`).
ctypedef struct Rows:
    int64_t workers
    const int64_t* start
    int64_t* begin
    int64_t* end
    uint8_t* state
    int32_t* detail
    int32_t* cpu
    int32_t* waker
    int64_t* woken
    uint8_t* filled
    int64_t base
    const char* data
    const int64_t* at


cdef void point(Rows* rows, const int64_t[::1] start, const int64_t[::1] begin,
                const int64_t[::1] end, const uint8_t[::1] state, const int32_t[::1] detail,
                const int32_t[::1] cpu, const int32_t[::1] waker,
                const int64_t[::1] woken) noexcept:
    """Point at columns, which must stay alive, and are written to only if not filled."""
    rows.workers = start.shape[0] - 1
    rows.start = &start[0]
    rows.filled = NULL
    if begin.shape[0]:
        rows.begin = <int64_t*>&begin[0]
        rows.end = <int64_t*>&end[0]
        rows.state = <uint8_t*>&state[0]
        rows.detail = <int32_t*>&detail[0]
        rows.cpu = <int32_t*>&cpu[0]
        rows.waker = <int32_t*>&waker[0]
        rows.woken = <int64_t*>&woken[0]


cdef void point_opened(Rows* rows, block) except *:
    """Point at the rows of an opened block."""
    columns, filled, base, data, at = block
    cdef uint8_t[::1] of_filled = filled
    cdef const uint8_t[::1] of_data = data
    cdef const int64_t[::1] of_at = at
    point(rows, columns[0], columns[1], columns[2], columns[3], columns[4], columns[5],
          columns[6], columns[7])
    rows.filled = &of_filled[0]
    rows.base = base
    rows.data = <const char*>&of_data[0]
    rows.at = &of_at[0]


cdef void fill(Rows* rows, int64_t worker, int64_t until) noexcept nogil:
    """Read a worker's rows up to the first that begins at ``until`` or later."""
    cdef int64_t i, last_end = rows.base
    cdef const char* p = rows.data + rows.at[worker]
    cdef Row row
    for i in range(rows.start[worker], rows.start[worker + 1]):
        p = get(p, &row, last_end)
        last_end = row.end
        rows.begin[i] = row.begin
        rows.end[i] = row.end
        rows.woken[i] = row.woken
        rows.state[i] = row.state
        rows.detail[i] = row.detail
        rows.cpu[i] = row.cpu
        rows.waker[i] = row.waker
        if row.begin >= until:
            return


def fill_begins(block, int64_t until):
    """Read of every worker of an opened block the rows that begin before a time, and one more."""
    cdef Rows rows
    cdef int64_t worker
    point_opened(&rows, block)
    with nogil:
        for worker in range(rows.workers):
            if not rows.filled[worker]:
                fill(&rows, worker, until)


cdef int find_row(Rows* block, Rows* carried, int64_t worker, int64_t t, int64_t* hint,
                  Row* row) noexcept nogil:
    """Fill in the row that covers the moment before t; return whether there is one."""
    cdef int64_t i = -1, k
    cdef Rows* rows = carried
    if worker < carried.workers:
        k = carried.start[worker + 1] - 1
        while k >= carried.start[worker] and carried.begin[k] >= t:
            k -= 1
        if k >= carried.start[worker]:
            i = k
    if i < 0:
        rows = block
        if worker < block.workers and not block.filled[worker]:
            fill(block, worker, INT64_MAX)
            block.filled[worker] = 1
        i = last_before(block.start, block.begin, block.workers, worker, t, hint)
    if i < 0 or rows.end[i] < t:
        return 0
    row.begin = rows.begin[i]
    row.end = rows.end[i]
    row.state = rows.state[i]
    row.detail = rows.detail[i]
    row.cpu = rows.cpu[i]
    row.waker = rows.waker[i]
    row.woken = rows.woken[i]
    return 1


def held_over(const int64_t[::1] start, const int64_t[::1] begin, const int32_t[::1] carriers,
              const int32_t[::1] carried, const int64_t[::1] carried_begin, int64_t cut):
    """Return which rows of a block, and of those carried into it, begin before ``cut``.

    Parameters
    ----------
    start : int64 [owners + 1]
    begin : int64 array
        A block's rows, in order of time within each owner.
    carriers, carried : int32 arrays
        Owners that rows of later blocks have, ascending, and how many of each.
    carried_begin : int64 array
    cut : int

    Returns
    -------
    owners, counts : int32 arrays
        As ``carriers`` and ``carried``.
    rows : int64 array
        Rows of the block, and -1 - row for carried ones.
    """
    cdef Py_ssize_t owner, owners = start.shape[0] - 1, n = owners, found = 0, size = 0, k = 0
    cdef int64_t i, before, at = 0
    if carriers.shape[0] and carriers[carriers.shape[0] - 1] >= n:
        n = carriers[carriers.shape[0] - 1] + 1
    whose, many = np.empty(n, np.int32), np.empty(n, np.int32)
    rows = np.empty(begin.shape[0] + carried_begin.shape[0], np.int64)
    cdef int32_t[::1] whose_ = whose, many_ = many
    cdef int64_t[::1] rows_ = rows
    with nogil:
        for owner in range(n):
            before = size
            if owner < owners:
                for i in range(start[owner], start[owner + 1]):
                    if begin[i] >= cut:
                        break
                    rows_[size] = i
                    size += 1
            if k < carriers.shape[0] and carriers[k] == owner:
                for i in range(at, at + carried[k]):
                    if carried_begin[i] >= cut:
                        break
                    rows_[size] = -1 - i
                    size += 1
                at += carried[k]
                k += 1
            if size > before:
                whose_[found], many_[found] = <int32_t>owner, <int32_t>(size - before)
                found += 1
    return whose[:found].copy(), many[:found].copy(), rows[:size]


ctypedef fused Item:
    uint8_t
    int32_t
    int64_t


def gather(const Item[::1] block, const Item[::1] carried, const int64_t[::1] rows,
           Item[::1] taken):
    """Take one column of the rows that `held_over` found."""
    cdef Py_ssize_t i
    cdef int64_t row
    with nogil:
        for i in range(rows.shape[0]):
            row = rows[i]
            taken[i] = block[row] if row >= 0 else carried[-1 - row]


# -------------------------------------------------------------------------------------------- walks

cdef enum:
    FIRST_SEGMENTS = 1024
    FIRST_FRAMES = 4

ctypedef struct Link:
    int64_t time
    int64_t sent
    int64_t source
    int32_t kind
    int32_t detail        # of the row that it ends
    int32_t cpu

# All walks' are in one table: most walks have a few, of which a table each would be as dear.
ctypedef struct Segment:
    int64_t begin
    int64_t end
    int64_t after         # the walk's before it, which is later in time; -1 none
    int32_t worker
    int32_t detail
    int32_t cpu
    uint8_t state

ctypedef struct Frame:
    int64_t worker
    int64_t lo
    int64_t t
    int64_t at            # where the walk last left this worker for another
    # The last incoming link that was passed by while the worker was not waiting, and the
    # row it arrived in: by value, for the row may be in a block that is gone.
    Link bypassed
    int64_t bypassed_top  # where the row's own segment ended
    int64_t bypassed_last
    int64_t bypassed_count
    int32_t bypassed_detail
    int32_t bypassed_cpu
    uint8_t bypassed_state
    uint8_t has_bypassed
    uint8_t rewound

ctypedef struct WalkState:
    Frame* frames         # NULL: not begun, or at its end
    int64_t last          # segment of it, -1 none
    int64_t count         # of its segments
    int64_t frame_capacity
    int32_t depth
    int32_t next          # the next that waits for the same block, -1 none


cdef class Walks:
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
    askers : int64 [executions]
        The worker that asked for what the subject does, who is answered and not asked; -1 none.
    arrival_start : int64 [workers + 1]
    arrival_time, arrival_endpoint : int64 [arrivals]
        What came for loops to serve, ascending within a worker: when it woke one, or was there.
    own : int64 [executions]
        The endpoint at which the execution is served; -1 not known.
    """

    cdef const int64_t[::1] cuts, link_start, link_time, link_source, link_sent, parent, born
    cdef const uint8_t[::1] link_kind
    cdef const int64_t[::1] subjects, low, high, askers
    cdef const int64_t[::1] arrival_start, arrival_time, arrival_endpoint, own
    cdef Py_ssize_t blocks, workers
    cdef int32_t* waiting     # per block, the first walk that waits for it
    cdef int64_t* hint        # per worker, the row found last
    cdef readonly Py_ssize_t left
    cdef readonly int64_t emitted   # segments
    cdef public int64_t most        # of these: beyond, walks end at once; 0 for no limit
    cdef WalkState* walks
    cdef Segment* segments
    cdef int64_t used, room   # of these
    cdef Frame* spare         # of a walk at its end, for the next
    cdef int64_t spare_room
    cdef Py_ssize_t total

    def __cinit__(self):
        self.waiting = NULL
        self.hint = NULL
        self.walks = NULL
        self.segments = NULL
        self.spare = NULL
        self.used = self.room = self.spare_room = 0
        self.total = 0

    def __init__(self, const int64_t[::1] cuts, const int64_t[::1] subjects,
                 const int64_t[::1] begin, const int64_t[::1] end,
                 const int64_t[::1] parent, const int64_t[::1] born,
                 const int64_t[::1] link_start, const int64_t[::1] link_time,
                 const int64_t[::1] link_source, const int64_t[::1] link_sent,
                 const uint8_t[::1] link_kind, const int64_t[::1] askers,
                 const int64_t[::1] arrival_start, const int64_t[::1] arrival_time,
                 const int64_t[::1] arrival_endpoint, const int64_t[::1] own):
        cdef Py_ssize_t i
        self.askers = askers
        self.arrival_start, self.arrival_time = arrival_start, arrival_time
        self.arrival_endpoint, self.own = arrival_endpoint, own
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
        self.walks = <WalkState*>calloc(subjects.shape[0] + 1, sizeof(WalkState))
        if self.walks == NULL:
            raise MemoryError()
        self.total = subjects.shape[0]
        self.waiting = <int32_t*>malloc((self.blocks + 1) * sizeof(int32_t))
        self.hint = <int64_t*>calloc(self.workers + 1, sizeof(int64_t))
        if self.waiting == NULL or self.hint == NULL:
            raise MemoryError()
        for i in range(self.blocks):
            self.waiting[i] = -1
        for i in range(self.total):
            self.walks[i].last = -1
            if end[i] <= begin[i]:
                continue
            if subjects[i] < 0:
                self.emit(&self.walks[i], begin[i], end[i], -1, STATE_UNKNOWN, 0, -1)
                continue
            self.wait_for(i, end[i])
            self.left += 1

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.walks != NULL:
            for i in range(self.total):
                free(self.walks[i].frames)
        free(self.walks)
        free(self.segments)
        free(self.spare)
        free(self.waiting)
        free(self.hint)

    cdef int emit(self, WalkState* c, int64_t begin, int64_t end, int64_t worker, uint8_t state,
                  int32_t detail, int32_t cpu) except -1 nogil:
        cdef Segment* s
        if end <= begin:
            return 0
        self.segments = <Segment*>with_room(self.segments, self.used, &self.room, FIRST_SEGMENTS,
                                            sizeof(Segment))
        s = &self.segments[self.used]
        s.begin = begin
        s.end = end
        s.after = c.last
        s.worker = <int32_t>worker
        s.state = state
        s.detail = detail
        s.cpu = cpu
        c.last = self.used
        self.used += 1
        c.count += 1
        self.emitted += 1
        return 0

    cdef int push(self, WalkState* c, int64_t worker, int64_t lo, int64_t t) except -1 nogil:
        cdef Frame* f
        if c.frames == NULL:
            c.frames, c.frame_capacity = self.spare, self.spare_room
            self.spare, self.spare_room = NULL, 0
        c.frames = <Frame*>with_room(c.frames, c.depth, &c.frame_capacity, FIRST_FRAMES,
                                     sizeof(Frame))
        f = &c.frames[c.depth]
        f.worker = worker
        f.lo = lo
        f.t = t
        f.at = t + 1
        f.has_bypassed = 0
        f.rewound = 0
        c.depth += 1
        return 0

    cdef Py_ssize_t block_of(self, int64_t t) noexcept nogil:
        """Return the first block with cut >= t, or the last."""
        return <Py_ssize_t>first_from(&self.cuts[0], 0, self.blocks - 1, t, False)

    cdef void wait_for(self, Py_ssize_t index, int64_t t) noexcept nogil:
        cdef Py_ssize_t block = self.block_of(t)
        self.walks[index].next = self.waiting[block]
        self.waiting[block] = <int32_t>index

    cdef int link_in(self, int64_t worker, Row* row, int64_t after, int64_t t,
                     Link* link) noexcept nogil:
        """Fill in the last link into worker that arrives in (after, t], a packet before a wake."""
        cdef int64_t first = self.link_start[worker], last, told
        cdef int found = 0
        link.detail = row.detail
        link.cpu = row.cpu
        if row.state == STATE_WAIT_CPU and row.waker >= 0 and row.end == t:
            link.time = t
            link.sent = row.woken
            link.source = row.waker
            link.kind = LINK_ASKED
            return 1
        if first < self.link_start[worker + 1]:
            last = first_from(&self.link_time[0], first, self.link_start[worker + 1], t, True) - 1
            while last >= first and self.link_kind[last] == LINK_ASKED and not (
                    row.state == STATE_WAIT_CPU and row.end == self.link_time[last]):
                last -= 1
            # What bytes of another host ended, they did whoever woke the thread.
            if row.end == t:
                told = last
                while told >= first and self.link_time[told] > after and (
                        self.link_kind[told] == LINK_WAKE):
                    told -= 1
                if told >= first and self.link_time[told] > after and (
                        self.link_kind[told] == LINK_RECEIPT):
                    last = told
            if last >= first and self.link_time[last] > after:
                link.time = self.link_time[last]
                link.sent = self.link_sent[last]
                link.source = self.link_source[last]
                link.kind = self.link_kind[last]
                found = 1
        if found and link.kind == LINK_RECEIPT and row.end == t:
            return found
        if row.waker >= 0 and row.end == t and not (found and link.time == t):
            link.time = t
            link.sent = row.woken
            link.source = row.waker
            link.kind = LINK_WAKE
            found = 1
        return found

    cdef inline int is_asked(self, WalkState* c, Py_ssize_t index, const Link* link,
                             const Row* row, int64_t t) noexcept nogil:
        """Whether who has the processor was asked by this execution, and does its work."""
        return (link.time == t and row.end == t and link.sent >= self.low[index]
                and link.source != self.askers[index]
                and not self.is_circular(c, link.source, t))

    cdef int is_others(self, WalkState* c, Py_ssize_t index, int64_t worker,
                       const Link* link) noexcept nogil:
        """Whether a loop was woken by what came for it to serve, of none that the walk is of."""
        cdef int64_t time = link.time if link.kind == LINK_RECEIPT else link.sent
        cdef Py_ssize_t i = self.arrival_start[worker], last = self.arrival_start[worker + 1]
        if i == last or (link.kind != LINK_WAKE and link.kind != LINK_RECEIPT):
            return 0
        i = first_from(&self.arrival_time[0], i, last, time, False)
        if i >= last or self.arrival_time[i] != time:
            return 0
        while i < last and self.arrival_time[i] == time:
            if self.arrival_endpoint[i] == self.own[index]:
                return 0
            i += 1
        # Who is waited for has asked: the walk came from there.
        for i in range(c.depth):
            if c.frames[i].worker == link.source:
                return 0
        return 1

    cdef int follow(self, WalkState* c, Link* link, int64_t s, int64_t t) except -1 nogil:
        """Emit a link's own time and go on in its source down to ``s``."""
        cdef Frame* f = &c.frames[c.depth - 1]
        cdef int64_t sent = link.sent
        # Bytes take some time: a walk that stood still here would never end.
        if sent > t - (link.kind == LINK_RECEIPT):
            sent = t - (link.kind == LINK_RECEIPT)
        if sent < s:
            sent = s
        if link.kind == LINK_HOLD:
            # What it waited for was there, but it slept on.
            self.emit(c, sent, t, f.worker, STATE_WAIT_TIMER, link.detail, link.cpu)
        else:
            self.emit(c, sent, t, f.worker,
                      STATE_WAIT_CPU if link.kind == LINK_WAKE else STATE_NET_TRANSIT, 0, -1)
        f.at = t
        f.t = s
        if sent > s:
            self.push(c, link.source, s, sent)
        return 0

    cdef int is_circular(self, WalkState* c, int64_t source, int64_t t) noexcept nogil:
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

    cdef int continue_walk(self, Py_ssize_t index, Rows* block, Rows* carried, int64_t after,
                int64_t until) except -1 nogil:
        """Go on with a walk as far as the rows of (after, until] take it."""
        cdef WalkState* c = &self.walks[index]
        cdef Frame* f
        cdef Row row
        cdef Link link
        cdef int64_t s, t, born, parent
        if c.frames == NULL:
            self.push(c, self.subjects[index], self.low[index], self.high[index])
        while c.depth:
            f = &c.frames[c.depth - 1]
            t = f.t
            if t <= f.lo:
                c.depth -= 1
                continue
            if t <= after or t > until:
                self.wait_for(index, t)
                return 0
            if not find_row(block, carried, f.worker, t, self.hint, &row):
                parent = self.parent[f.worker]
                born = self.born[f.worker]
                if parent >= 0 and born <= t and not (
                        born == t and self.is_circular(c, parent, t)):
                    # Before its birth a thread's path is its creator's, down to the end.
                    if born < f.lo:
                        born = f.lo
                    self.emit(c, born, t, f.worker, STATE_WAIT_CPU, 0, -1)
                    f.at = t
                    f.t = f.lo
                    if born > f.lo:
                        self.push(c, parent, f.lo, born)
                    continue
                # Twice through one moment of one worker, the walk would never end.
                if f.has_bypassed and not f.rewound and not (
                        f.bypassed.sent >= f.bypassed.time
                        and self.is_circular(c, f.bypassed.source, f.bypassed.time)):
                    # Drop what was emitted since then, and take the link instead.
                    self.emitted -= c.count - f.bypassed_count
                    c.count, c.last = f.bypassed_count, f.bypassed_last
                    link = f.bypassed
                    self.emit(c, link.time, f.bypassed_top, f.worker, f.bypassed_state,
                              f.bypassed_detail, f.bypassed_cpu)
                    f.rewound = 1
                    f.has_bypassed = 0
                    self.follow(c, &link, f.lo, link.time)
                    continue
                self.emit(c, f.lo, t, f.worker, STATE_UNKNOWN, 0, -1)
                c.depth -= 1
                continue
            s = row.begin if row.begin > f.lo else f.lo
            if row.state == STATE_NOT_RECORDED:
                # It may have been anything: of another thread, nothing before it is followed.
                if c.depth > 1:
                    s = f.lo
                self.emit(c, s, t, f.worker, STATE_NOT_RECORDED, 0, row.cpu)
                f.t = s
                continue
            if self.link_in(f.worker, &row, s, t, &link):
                if link.kind == LINK_ASKED:
                    if self.is_asked(c, index, &link, &row, t):
                        link.sent = t
                        self.follow(c, &link, s, t)
                        continue
                elif row.state >= STATE_WAIT_TASK and row.state != STATE_WAIT_STOPPED:
                    if self.is_others(c, index, f.worker, &link):
                        # Until then the loop had nothing to do for any that it has in hand.
                        self.emit(c, s, t, f.worker, STATE_SHARED, 0, row.cpu)
                        f.t = s
                        continue
                    elif link.kind == LINK_RECEIPT and t == row.end:
                        # What woke it came then; the rest is how it was told.
                        self.emit(c, link.time, t, f.worker, row.state, row.detail, row.cpu)
                        self.follow(c, &link, s, link.time)
                        continue
                    # A wake inside the wait did not end it; one after the window is not known.
                    elif link.kind != LINK_RECEIPT and link.time == row.end and t == row.end and not (
                            link.sent >= t and self.is_circular(c, link.source, t)):
                        self.follow(c, &link, s, t)
                        continue
                elif not f.rewound and link.kind != LINK_RECEIPT:
                    f.has_bypassed = 1
                    f.bypassed = link
                    f.bypassed_top = t
                    f.bypassed_count, f.bypassed_last = c.count, c.last
                    f.bypassed_state = row.state
                    f.bypassed_detail = row.detail
                    f.bypassed_cpu = row.cpu
            self.emit(c, s, t, f.worker, row.state, row.detail, row.cpu)
            f.t = s
        free(self.spare)
        self.spare, self.spare_room = c.frames, c.frame_capacity
        c.frames = NULL
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
                following = self.walks[index].next
                self.continue_walk(index, &rows, &more, after, until)
                index = following

    def take(self):
        """Return and forget the segments: start, begin, end, worker, state, detail, cpu."""
        cdef Py_ssize_t i
        cdef int64_t at, of
        cdef Segment* s
        starts = np.zeros(self.total + 1, np.int64)
        cdef int64_t[::1] start = starts
        for i in range(self.total):
            start[i + 1] = start[i] + self.walks[i].count
        cdef Py_ssize_t n = start[self.total]
        out = [starts, np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int32),
               np.empty(n, np.uint8), np.empty(n, np.int32), np.empty(n, np.int32)]
        cdef int64_t[::1] begin = out[1], end = out[2]
        cdef int32_t[::1] worker = out[3], detail = out[5], cpu = out[6]
        cdef uint8_t[::1] state = out[4]
        with nogil:
            for i in range(self.total):
                # The walk went backward in time: its last segment is its path's first.
                at, of = start[i], self.walks[i].last
                while of >= 0:
                    s = &self.segments[of]
                    begin[at] = s.begin
                    end[at] = s.end
                    worker[at] = s.worker
                    state[at] = s.state
                    detail[at] = s.detail
                    cpu[at] = s.cpu
                    at += 1
                    of = s.after
                self.walks[i].last, self.walks[i].count = -1, 0
            free(self.segments)
            self.segments = NULL
            self.used = self.room = 0
        return out
