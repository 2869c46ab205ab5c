# Who held a processor for how long while a path waited for it.  Included by _processors.pyx.

cdef enum:
    # In place of who ran.
    NOBODY_KNOWN = -1
    IDLE = -2


cdef class Shares(Pieces):
    """Shares of one segment's time at once, those of others are put by."""

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
    cdef readonly object ran    # uint8 [workers]: it is named in a wait
    cdef uint8_t[::1] named

    def __cinit__(self):
        self.hint_ran = self.time = self.since = NULL
        self.sharing = NULL
        self.sharing_count = 0
        self.idle_time = 0

    def __dealloc__(self):
        free(self.hint_ran)
        free(self.time)
        free(self.since)
        free(self.sharing)

    cdef int begin_shares(self, Py_ssize_t workers, Py_ssize_t processors) except -1:
        self.ran = np.zeros(workers, np.uint8)
        self.named = self.ran
        self.hint_ran = <int64_t*>calloc(processors + 1, sizeof(int64_t))
        self.time = <int64_t*>calloc(workers + 1, sizeof(int64_t))
        self.since = <int64_t*>calloc(workers + 1, sizeof(int64_t))
        self.sharing = <int32_t*>malloc((workers + 1) * sizeof(int32_t))
        if (self.hint_ran == NULL or self.time == NULL or self.since == NULL
                or self.sharing == NULL):
            raise MemoryError()
        return 0

    cdef void divide(self, int64_t processor, int64_t low, int64_t high, Ran* rows) noexcept nogil:
        """Add to the shares of those who held a processor in [low, high]."""
        cdef int64_t time
        cdef int32_t worker
        cdef int64_t i = last_before(rows.start, rows.begin, rows.processors, processor, high,
                                     self.hint_ran)
        if i < 0:
            return
        while i >= rows.start[processor] and rows.end[i] > low:
            time = ((rows.end[i] if rows.end[i] < high else high)
                    - (rows.begin[i] if rows.begin[i] > low else low))
            if time > 0:
                self.add(rows.worker[i], time, rows.begin[i])
            i -= 1

    cdef inline void add(self, int32_t worker, int64_t time, int64_t since) noexcept nogil:
        if self.time[worker] == 0:
            self.sharing[self.sharing_count] = worker
            self.sharing_count += 1
        self.time[worker] += time
        self.since[worker] = since
        if self.is_idle[worker]:
            self.idle_time += time

    cdef int32_t longest(self, int64_t length) noexcept nogil:
        """Forget the shares; return who had the largest, of equals the first to run."""
        cdef Py_ssize_t i
        cdef int32_t worker, best = NOBODY_KNOWN
        for i in range(self.sharing_count):
            worker = self.sharing[i]
            if best < 0 or self.time[worker] > self.time[best] or (
                    self.time[worker] == self.time[best]
                    and self.since[worker] < self.since[best]):
                best = worker
        for i in range(self.sharing_count):
            self.time[self.sharing[i]] = 0
        if self.idle_time >= self.held_back and <double>self.idle_time >= self.share * <double>length:
            best = IDLE
        elif best >= 0 and self.is_idle[best]:
            best = IDLE
        elif best >= 0:
            self.named[best] = 1
        self.sharing_count = 0
        self.idle_time = 0
        return best

    cdef int put_by(self, Path* path) except -1 nogil:
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
        path.idle = self.idle_time
        self.sharing_count = 0
        self.idle_time = 0
        return 0

    cdef void take_up(self, Path* path) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(path.share_count):
            self.add(path.shares[i].worker, path.shares[i].time, path.shares[i].since)
        self.idle_time = path.idle
        free(path.shares)
        path.shares = NULL
        path.share_count = 0
