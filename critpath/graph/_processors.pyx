# cython: language_level=3
"""What processors did during the segments of paths: interrupt work, and who ran instead.

Blocks are gone through from the last to the first, as by the walks.  Each accounts for
the time after the cut before it; what a segment that spans a cut has found so far is
kept until its begin is reached, so that nothing depends on where the cuts are.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc

import numpy as np

include "_columns.pxi"
include "_kinds.pxi"

# -------------------------------------------------- rows of processors: interrupt work, and who ran

# Columns of rows, those of processor p from start[p] to start[p + 1].
ctypedef struct Stolen:
    int64_t processors
    const int64_t* start
    const int64_t* begin
    const int64_t* end
    const uint8_t* state
    const int32_t* detail

ctypedef struct Ran:
    int64_t processors
    const int64_t* start
    const int64_t* begin
    const int64_t* end
    const int32_t* worker


cdef void point_stolen(Stolen* rows, const int64_t[::1] start, const int64_t[::1] begin,
                       const int64_t[::1] end, const uint8_t[::1] state,
                       const int32_t[::1] detail) noexcept:
    """Point at columns, which must stay alive."""
    rows.processors = start.shape[0] - 1
    rows.start = &start[0]
    if begin.shape[0]:
        rows.begin = &begin[0]
        rows.end = &end[0]
        rows.state = &state[0]
        rows.detail = &detail[0]


cdef void point_ran(Ran* rows, const int64_t[::1] start, const int64_t[::1] begin,
                    const int64_t[::1] end, const int32_t[::1] worker) noexcept:
    """Point at columns, which must stay alive."""
    rows.processors = start.shape[0] - 1
    rows.start = &start[0]
    if begin.shape[0]:
        rows.begin = &begin[0]
        rows.end = &end[0]
        rows.worker = &worker[0]


# ----------------------------------------------------------------------- what segments are cut into

cdef enum:
    FIRST_PIECES = 1024

# All paths' are in one table: most paths have a few, of which a table each would be as dear.
ctypedef struct Piece:
    int64_t begin
    int64_t end
    int64_t after         # the path's before it, which is later in time; -1 none
    int32_t worker
    int32_t detail        # of a WAIT_CPU: a worker that ran, or one of the codes below
    int32_t cpu
    uint8_t state
    int64_t elsewhere     # of a WAIT_CPU: how long another processor was idle

# How long a worker held a processor within a segment, and since when.
ctypedef struct Share:
    int64_t time
    int64_t since
    int32_t worker

ctypedef struct Path:
    Share* shares         # of the one segment that spans the last cut
    int64_t last          # piece: the earliest; -1 none
    int64_t count         # of its pieces
    int64_t next          # segment, latest first
    int64_t top           # up to where that is not accounted for
    int64_t idle
    int64_t elsewhere
    int64_t share_count

# How many processors of each host idle, in steps: those of host h from start[h] to start[h + 1].
# Up to each step's time so long some were, and so long exactly one was.
ctypedef struct Idle:
    const int64_t* start
    const int64_t* time
    const int64_t* count
    const int64_t* some
    const int64_t* one

cdef enum:
    # In place of who ran.
    NOBODY_KNOWN = -1
    IDLE = -2

# Who had so much of a wait is who it was for.
cdef double NEARLY_ALL = 0.9


cdef inline uint64_t scatter(uint64_t time) noexcept nogil:
    """Return a number that looks drawn, the same for the same time (splitmix64's last steps)."""
    time += <uint64_t>0x9E3779B97F4A7C15
    time = (time ^ (time >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    time = (time ^ (time >> 27)) * <uint64_t>0x94D049BB133111EB
    return time ^ (time >> 31)


cdef class Account:
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
        for the thread that ran.
    """

    cdef readonly int64_t pieces
    cdef public int64_t most    # of these: beyond, accounting ends at once; 0 for no limit
    cdef const int64_t[::1] start, begin, end, host
    cdef const int32_t[::1] worker, detail
    cdef int32_t[::1] cpu
    cdef const uint8_t[::1] state
    cdef Path* paths
    cdef Piece* table
    cdef int64_t used, room     # of these
    cdef Py_ssize_t total
    # Shares of one segment's time; those of others are put by.
    cdef const uint8_t[::1] is_idle
    cdef int64_t held_back
    cdef double share
    cdef int64_t* hint_ran
    # Per worker, while a segment is looked at: its share; and which have one.
    cdef int64_t* time
    cdef int64_t* since
    cdef int32_t* sharing
    cdef Py_ssize_t sharing_count
    cdef int64_t idle_time
    cdef int64_t elsewhere_time
    cdef int64_t* hint_idle
    cdef object host_of         # int64 [processors]
    cdef object steps           # what `Idle` points at, of the block that is accounted for
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
        self.paths = NULL
        self.table = NULL
        self.used = self.room = 0
        self.total = 0
        self.hint_ran = self.hint_stolen = self.hint_idle = self.time = self.since = NULL
        self.sharing = NULL
        self.sharing_count = 0
        self.idle_time = self.elsewhere_time = 0
        self.active = NULL

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
        self.paths = <Path*>calloc(start.shape[0], sizeof(Path))
        if self.paths == NULL:
            raise MemoryError()
        self.total = start.shape[0] - 1
        self.hint_ran = <int64_t*>calloc(processors + 1, sizeof(int64_t))
        self.time = <int64_t*>calloc(host.shape[0] + 1, sizeof(int64_t))
        self.since = <int64_t*>calloc(host.shape[0] + 1, sizeof(int64_t))
        self.sharing = <int32_t*>malloc((host.shape[0] + 1) * sizeof(int32_t))
        self.active = <Py_ssize_t*>malloc((self.total + 1) * sizeof(Py_ssize_t))
        self.hint_stolen = <int64_t*>calloc(processors + 1, sizeof(int64_t))
        self.hint_idle = <int64_t*>calloc(processor.shape[0] + 1, sizeof(int64_t))
        self.host_of = np.zeros(processors, np.int64)
        table = np.asarray(processor)
        self.host_of[table[table >= 0]] = np.nonzero(table >= 0)[0]
        if (self.active == NULL or self.hint_stolen == NULL or self.hint_ran == NULL
                or self.hint_idle == NULL or self.time == NULL or self.since == NULL or self.sharing == NULL):
            raise MemoryError()
        last = np.full(self.total, np.iinfo(np.int64).min, np.int64)
        cdef int64_t[::1] ends = last
        with nogil:
            for i in range(self.total):
                self.paths[i].next, self.paths[i].last = start[i + 1] - 1, -1
                if start[i + 1] > start[i]:
                    self.left += 1
                    ends[i] = self.paths[i].top = end[start[i + 1] - 1]
                self.place_delays(i)
        self.order = np.argsort(last, kind="stable")[::-1].astype(np.int64)

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.paths != NULL:
            for i in range(self.total):
                free(self.paths[i].shares)
        free(self.paths)
        free(self.table)
        free(self.hint_ran)
        free(self.time)
        free(self.since)
        free(self.sharing)
        free(self.active)
        free(self.hint_stolen)
        free(self.hint_idle)

    cdef int emit(self, Path* path, int64_t segment, int64_t begin, int64_t end, uint8_t state,
                  int32_t detail, int64_t elsewhere=0) except -1 nogil:
        """Add a piece before those there are, or to the first if they are of one kind."""
        cdef Piece* piece
        if path.last >= 0:
            piece = &self.table[path.last]
            if (piece.state == state and piece.detail == detail
                    and piece.worker == self.worker[segment] and piece.cpu == self.cpu[segment]):
                piece.begin = begin
                piece.elsewhere += elsewhere
                return 0
        self.table = <Piece*>with_room(self.table, self.used, &self.room, FIRST_PIECES,
                                       sizeof(Piece))
        piece = &self.table[self.used]
        piece.begin = begin
        piece.end = end
        piece.after = path.last
        piece.worker = self.worker[segment]
        piece.state = state
        piece.detail = detail
        piece.cpu = self.cpu[segment]
        piece.elsewhere = elsewhere
        path.last = self.used
        self.used += 1
        path.count += 1
        self.pieces += 1
        return 0

    # --------------------------------- who held a processor for how long while a path waited for it

    cdef void add_shares(self, int64_t processor, int64_t low, int64_t high,
                         Ran* rows, Idle* idle, int64_t host) noexcept nogil:
        """Add to the shares of those who held a processor in [low, high].

        What of it no other processor idled is taken from the time that some did.
        """
        cdef int64_t time, begin, end
        cdef int32_t worker
        cdef int64_t i = last_before(rows.start, rows.begin, rows.processors, processor, high,
                                     self.hint_ran)
        if i < 0:
            return
        while i >= rows.start[processor] and rows.end[i] > low:
            end = rows.end[i] if rows.end[i] < high else high
            begin = rows.begin[i] if rows.begin[i] > low else low
            time = end - begin
            if time > 0:
                self.add_share(rows.worker[i], time, rows.begin[i])
                if self.is_idle[rows.worker[i]]:
                    self.elsewhere_time -= (self.idled(idle, idle.one, host, end, 1)
                                            - self.idled(idle, idle.one, host, begin, 1))
            i -= 1

    cdef inline void add_share(self, int32_t worker, int64_t time, int64_t since) noexcept nogil:
        if self.time[worker] == 0:
            self.sharing[self.sharing_count] = worker
            self.sharing_count += 1
        self.time[worker] += time
        self.since[worker] = since
        if self.is_idle[worker]:
            self.idle_time += time

    cdef int64_t idled(self, Idle* idle, const int64_t* sums, int64_t host, int64_t t,
                       bint alone) noexcept nogil:
        """Return for how long until t any processors of a host idled, or exactly one did."""
        cdef int64_t i = last_before(idle.start, idle.time, self.processor.shape[0], host, t,
                                     self.hint_idle)
        if i < 0:  # before the host's first step, whose sums go on from the hosts before it
            i = idle.start[host]
            return sums[i] if i < idle.start[host + 1] else 0
        if idle.count[i] == 1 or (idle.count[i] > 1 and not alone):
            return sums[i] + t - idle.time[i]
        return sums[i]

    cdef void add_elsewhere(self, Idle* idle, int64_t host, int64_t low,
                            int64_t high) noexcept nogil:
        """Add for how long in [low, high] any processor of a host idled."""
        self.elsewhere_time += (self.idled(idle, idle.some, host, high, 0)
                                - self.idled(idle, idle.some, host, low, 0))

    cdef int point_idle(self, Idle* idle, int64_t after, Ran* rows, Ran* more) except -1 nogil:
        """Point at the steps of a block, which are made when its first wait is met."""
        cdef const int64_t[::1] start, time, count, some, one
        if idle.start != NULL:
            return 0
        with gil:
            self.steps = idle_steps(rows, more, self.is_idle, self.host_of,
                                    self.processor.shape[0], after)
            start, time, count, some, one = self.steps
            idle.start = &start[0]
            if time.shape[0]:
                idle.time, idle.count = &time[0], &count[0]
                idle.some, idle.one = &some[0], &one[0]
        return 0

    cdef int32_t take_rival(self, int64_t length, int64_t end) noexcept nogil:
        """Forget the shares; return whom a wait is for: over many, each has its share of them.

        Who had nearly all of the time, of equals the first to run; else who had the processor
        at a moment of it that the wait's end draws.
        """
        cdef Py_ssize_t i
        cdef int32_t worker, best = NOBODY_KNOWN
        cdef int64_t left, others = 0
        for i in range(self.sharing_count):
            worker = self.sharing[i]
            if not self.is_idle[worker]:
                others += self.time[worker]
            if best < 0 or self.time[worker] > self.time[best] or (
                    self.time[worker] == self.time[best]
                    and self.since[worker] < self.since[best]):
                best = worker
        if (self.idle_time >= self.held_back
                and <double>self.idle_time >= self.share * <double>length):
            best = IDLE
        elif best >= 0 and self.is_idle[best]:
            best = IDLE
        elif best >= 0:
            if <double>self.time[best] < NEARLY_ALL * <double>others:
                left = <int64_t>(scatter(<uint64_t>end) % <uint64_t>others)
                for i in range(self.sharing_count):  # by when they last ran, the latest first
                    worker = self.sharing[i]
                    if not self.is_idle[worker]:
                        left -= self.time[worker]
                        if left < 0:
                            best = worker
                            break
        for i in range(self.sharing_count):
            self.time[self.sharing[i]] = 0
        self.sharing_count = 0
        self.idle_time = 0
        return best

    cdef int store_shares(self, Path* path) except -1 nogil:
        """Keep the shares of a segment until its begin is reached."""
        cdef Py_ssize_t i
        cdef Share* share
        path.shares = <Share*>malloc((self.sharing_count + 1) * sizeof(Share))
        if path.shares == NULL:
            with gil:
                raise MemoryError()
        for i in range(self.sharing_count):
            share = &path.shares[i]
            share.worker = self.sharing[i]
            share.time = self.time[share.worker]
            share.since = self.since[share.worker]
            self.time[share.worker] = 0
        path.share_count = self.sharing_count
        path.idle, path.elsewhere = self.idle_time, self.elsewhere_time
        self.sharing_count = 0
        self.idle_time = self.elsewhere_time = 0
        return 0

    cdef void restore_shares(self, Path* path) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(path.share_count):
            self.add_share(path.shares[i].worker, path.shares[i].time, path.shares[i].since)
        self.idle_time, self.elsewhere_time = path.idle, path.elsewhere
        free(path.shares)
        path.shares = NULL
        path.share_count = 0

    # -------------------------------------------------------------------------- from block to block

    cdef void place_delays(self, Py_ssize_t index) noexcept nogil:
        """Let the time between waking and wakeup wait for the cpu the thread then ran on."""
        cdef int64_t i
        for i in range(self.start[index + 1] - 2, self.start[index] - 1, -1):
            if (self.cpu[i] < 0 and self.state[i] == STATE_WAIT_CPU
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

    cdef int64_t cut_interrupts(self, Path* path, int64_t segment, int64_t processor, int64_t low,
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

    cdef int account_path(self, Py_ssize_t index, int64_t after, Stolen* stolen,
                          Stolen* more_stolen, Ran* ran, Ran* more_ran,
                          Idle* idle) except -1 nogil:
        """Account for a path's time after a cut."""
        cdef Path* path = &self.paths[index]
        cdef int64_t segment = path.next, first = self.start[index]
        cdef int64_t low, at, processor, host, elsewhere
        cdef uint8_t state
        while segment >= first:
            at = path.top
            if at <= after:
                break
            low = self.begin[segment] if self.begin[segment] > after else after
            state = self.state[segment]
            if state == STATE_WAIT_CPU:
                self.waits = True
                if path.shares != NULL:
                    self.restore_shares(path)
                processor = self.processor_of(segment)
                if processor >= 0:
                    host = self.host[self.worker[segment]] if self.worker[segment] >= 0 else 0
                    self.point_idle(idle, after, ran, more_ran)
                    self.add_elsewhere(idle, host, low, at)
                    self.add_shares(processor, low, at, more_ran, idle, host)
                    self.add_shares(processor, low, at, ran, idle, host)
                if low > self.begin[segment]:
                    self.store_shares(path)
                else:
                    elsewhere, self.elsewhere_time = self.elsewhere_time, 0
                    self.emit(path, segment, low, self.end[segment], state,
                              self.take_rival(self.end[segment] - low,
                                              self.end[segment]), elsewhere)
            elif self.interrupts and STATE_RUN <= state <= STATE_RUN_SYSCALL:
                processor = self.processor_of(segment)
                if processor >= 0:
                    at = self.cut_interrupts(path, segment, processor, low, at, more_stolen)
                    if at > low:
                        at = self.cut_interrupts(path, segment, processor, low, at, stolen)
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
        cdef Idle idle
        cdef Py_ssize_t i, kept = 0, index
        idle.start = NULL
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
                if self.account_path(index, after, &s, &more_s, &r, &more_r, &idle):
                    self.active[kept] = index
                    kept += 1
                else:
                    self.left -= 1
            self.active_count = kept

    def take(self, const int32_t[::1] codes, const int64_t[::1] tid, const int32_t[::1] name):
        """Return and forget the pieces.

        Parameters
        ----------
        codes : int32 [workers + 2]
            Detail of a wait for a cpu, by who ran: idle, not known, then the workers.
        tid : int64 [workers]
        name : int32 [workers]

        Returns
        -------
        list of arrays
            start, begin, end, state, detail, comm, tid, host, cpu, elsewhere.
        """
        cdef Py_ssize_t i, n
        cdef int64_t at, of
        cdef Piece* piece
        starts = np.zeros(self.total + 1, np.int64)
        cdef int64_t[::1] start = starts
        for i in range(self.total):
            start[i + 1] = start[i] + self.paths[i].count
        n = start[self.total]
        out = [starts, np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.uint8),
               np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int64),
               np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.int64)]
        cdef int64_t[::1] begin = out[1], end = out[2], tids = out[6], hosts = out[7]
        cdef int64_t[::1] elsewhere = out[9]
        cdef uint8_t[::1] state = out[3]
        cdef int32_t[::1] detail = out[4], comm = out[5], cpu = out[8]
        with nogil:
            for i in range(self.total):
                at, of = start[i], self.paths[i].last
                while of >= 0:
                    piece = &self.table[of]
                    begin[at] = piece.begin
                    end[at] = piece.end
                    state[at] = piece.state
                    detail[at] = piece.detail
                    if piece.state == STATE_WAIT_CPU:
                        detail[at] = codes[piece.detail + 2]
                    cpu[at] = piece.cpu
                    elsewhere[at] = piece.elsewhere
                    if piece.worker >= 0:
                        comm[at] = name[piece.worker]
                        tids[at] = tid[piece.worker]
                        hosts[at] = self.host[piece.worker]
                    else:
                        comm[at] = 0
                        tids[at] = -1
                        hosts[at] = 0
                    at += 1
                    of = piece.after
                self.paths[i].last, self.paths[i].count = -1, 0
            free(self.table)
            self.table = NULL
            self.used = self.room = 0
        return out


# Where a processor's rows of idle begin and end, in order of time: begins have even places.
ctypedef struct Edges:
    int64_t time          # of the next one
    int64_t next
    int64_t until


cdef int64_t collect_idle(Ran* rows, int64_t processor, const uint8_t[::1] is_idle, int64_t after,
                          int64_t[::1] edges, int64_t at) noexcept nogil:
    """Add where a processor's rows of idle begin and end; return the place behind them."""
    cdef int64_t i
    if processor >= rows.processors:
        return at
    for i in range(rows.start[processor], rows.start[processor + 1]):
        if rows.end[i] > after and is_idle[rows.worker[i]]:
            edges[at] = rows.begin[i] if rows.begin[i] > after else after
            edges[at + 1] = rows.end[i]
            at += 2
    return at


cdef void sink(Edges* heap, int64_t size, int64_t at) noexcept nogil:
    """Move an entry of a heap down to where those below it are no earlier."""
    cdef Edges moved = heap[at]
    cdef int64_t child = 2 * at + 1
    while child < size:
        if child + 1 < size and heap[child + 1].time < heap[child].time:
            child += 1
        if heap[child].time >= moved.time:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = moved


cdef int64_t add_steps(Edges* heap, int64_t size, const int64_t[::1] edges, int64_t at,
                       int64_t[::1] time, int64_t[::1] count, int64_t[::1] some,
                       int64_t[::1] one) noexcept nogil:
    """Add a host's steps, those of its processors in order of time; return the place behind."""
    cdef int64_t i, idle = 0, since = 0
    cdef int64_t of_some = some[at - 1] if at else 0, of_one = one[at - 1] if at else 0
    for i in range(size // 2 - 1, -1, -1):
        sink(heap, size, i)
    while size:
        if idle:
            of_some += heap.time - since
        if idle == 1:
            of_one += heap.time - since
        since = heap.time
        idle += -1 if heap.next & 1 else 1
        time[at], count[at], some[at], one[at] = since, idle, of_some, of_one
        at += 1
        heap.next += 1
        if heap.next < heap.until:
            heap.time = edges[heap.next]
        else:
            size -= 1
            heap[0] = heap[size]
        if size:
            sink(heap, size, 0)
    return at


cdef tuple idle_steps(Ran* rows, Ran* more, const uint8_t[::1] is_idle,
                      const int64_t[::1] host_of, int64_t hosts, int64_t after):
    """Return how many processors of each host idle, after a time.

    Returns
    -------
    tuple of int64 arrays
        start [hosts + 1], and of every step: its time, how many idle from then on, for how long
        until then some did, and exactly one did.
    """
    cdef Py_ssize_t processors = host_of.shape[0]
    cdef int64_t most = 2 * (rows.start[rows.processors] + more.start[more.processors])
    cdef int64_t p, host, size, at = 0
    columns = [np.empty(most, np.int64) for _ in range(5)]
    cdef int64_t[::1] edges = columns[0], time = columns[1], count = columns[2]
    cdef int64_t[::1] some = columns[3], one = columns[4]
    cdef int64_t[::1] run = np.zeros(processors + 1, np.int64)
    cdef int64_t[::1] start = np.zeros(hosts + 1, np.int64)
    cdef Edges* heap = <Edges*>malloc((processors + 1) * sizeof(Edges))
    if heap == NULL:
        raise MemoryError()
    with nogil:
        for p in range(processors):
            run[p + 1] = collect_idle(rows, p, is_idle, after, edges, run[p])
            run[p + 1] = collect_idle(more, p, is_idle, after, edges, run[p + 1])
        for host in range(hosts):
            size = 0
            for p in range(processors):
                if host_of[p] == host and run[p] < run[p + 1]:
                    heap[size].time, heap[size].next = edges[run[p]], run[p]
                    heap[size].until = run[p + 1]
                    size += 1
            at = add_steps(heap, size, edges, at, time, count, some, one)
            start[host + 1] = at
        free(heap)
    return start.base, *(column[:at] for column in columns[1:])


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
