# Tables that grow row by row, and their rows sorted into columns.  Included by _replay.pyx.
#
# Rows rather than columns while they grow: one write per interval.  Their memory is used
# again from block to block, because touching memory for the first time costs more than
# the replay itself.

cdef extern from "sys/mman.h" nogil:
    int madvise(void*, size_t, int)
    int MADV_HUGEPAGE

cdef extern from *:
    """
    #define critpath_prefetch(address) __builtin_prefetch(address)
    """
    void prefetch "critpath_prefetch"(void*) noexcept nogil

cdef enum:
    AHEAD = 12    # rows that are asked for before they are needed
    LARGE = 2097152       # a huge page
    HUGE = 67108864       # from here on memory grows where it is: to copy it takes too much
    PAGE = 4096

ctypedef struct Interval:
    int64_t begin
    int64_t end
    int64_t woken
    int32_t waker
    int32_t detail
    int16_t cpu
    uint8_t state

ctypedef struct Stolen:
    int64_t begin
    int64_t end
    int32_t processor
    int32_t detail
    uint8_t state

ctypedef struct Ran:
    int64_t begin
    int64_t end
    int32_t processor
    int32_t worker

ctypedef struct NetEvent:
    int64_t moment
    int64_t end           # of the interrupt work around it
    int32_t worker        # who was on the cpu, -1: nobody, or not known
    int32_t next_ran      # the chains that `Processor` begins, -1 none
    int32_t next_stolen

ctypedef struct NetSleep:
    int64_t woken
    int64_t end
    int32_t worker

ctypedef struct Rows:
    char* data
    Py_ssize_t size
    Py_ssize_t capacity

cdef int reserve(Rows* rows, Py_ssize_t count, Py_ssize_t item) except -1 nogil:
    """Make room for some more rows."""
    cdef void* more = NULL
    cdef Py_ssize_t capacity
    cdef size_t at, size
    if rows.size + count <= rows.capacity:
        return 0
    capacity = max(2 * rows.capacity, rows.size + count)
    if LARGE <= capacity * item < HUGE:
        # Huge pages: touching small ones for the first time costs most.
        size = (<size_t>(2 * capacity * item) + LARGE - 1) & ~<size_t>(LARGE - 1)
        capacity = <Py_ssize_t>size // item
        if posix_memalign(&more, LARGE, size):
            more = NULL
        else:
            madvise(more, size, MADV_HUGEPAGE)
            if rows.size:
                memcpy(more, rows.data, rows.size * item)
            free(rows.data)
    else:
        more = realloc(rows.data, capacity * item)
        if more != NULL and capacity * item >= HUGE:
            at = (<size_t>more + PAGE - 1) & ~<size_t>(PAGE - 1)
            madvise(<void*>at, <size_t>more + capacity * item - at, MADV_HUGEPAGE)
    if more == NULL:
        with gil:
            raise MemoryError()
    rows.data = <char*>more
    rows.capacity = capacity
    return 0

cdef int clear(Rows* rows) noexcept nogil:
    free(rows.data)
    rows.data = NULL
    rows.size = 0
    rows.capacity = 0
    return 0

cdef int forget(Rows* rows, int last) noexcept nogil:
    """Drop all rows, and after the last block their memory."""
    if last:
        clear(rows)
    rows.size = 0
    return 0

# The rows of a block into columns, by worker or processor and in order.  The order is
# found first, and the rows are then taken by it: that reads in many places and writes in
# one, and a row is one line of the cache where its columns are eight.

cdef int order_by(char* owner, Py_ssize_t item, Py_ssize_t n, int64_t* start, Py_ssize_t owners,
                  int32_t* order) noexcept nogil:
    """Sort rows by owner: where each owner's start (``owners + 2`` places of 0), and which."""
    cdef Py_ssize_t i
    cdef int32_t mine
    # Counted two places on, so that after the scatter the starts are in place.
    for i in range(n):
        start[(<int32_t*>(owner + i * item))[0] + 2] += 1
    for i in range(1, owners + 1):
        start[i + 1] += start[i]
    for i in range(n):
        mine = (<int32_t*>(owner + i * item))[0]
        order[start[mine + 1]] = <int32_t>i
        start[mine + 1] += 1
    return 0

cdef interval_columns(Rows* rows, starts, int32_t* order, take):
    """Return start, begin, end, state, detail, cpu, waker, woken; sorted by worker."""
    cdef Py_ssize_t i, n = rows.size
    cdef Interval* row = <Interval*>rows.data
    cdef Interval* one
    block = take(n * 37)
    words = block[: 24 * n].view(np.int64)
    halves = block[24 * n : 36 * n].view(np.int32)
    out = [starts[:-1], words[:n], words[n : 2 * n], block[36 * n :],
           halves[:n], halves[n : 2 * n], halves[2 * n :], words[2 * n :]]
    cdef int64_t[::1] begin = out[1], end = out[2], woken = out[7]
    cdef uint8_t[::1] state = out[3]
    cdef int32_t[::1] detail = out[4], cpu = out[5], waker = out[6]
    if n:
        with nogil:
            for i in range(n):
                if i + AHEAD < n:
                    prefetch(&row[order[i + AHEAD]])
                one = &row[order[i]]
                begin[i] = one.begin
                end[i] = one.end
                state[i] = one.state
                detail[i] = one.detail
                cpu[i] = one.cpu
                waker[i] = one.waker
                woken[i] = one.woken
    return out

cdef stolen_columns(Rows* rows, Py_ssize_t processors, int32_t* order, take):
    """Return start, begin, end, state, detail; sorted by processor."""
    cdef Py_ssize_t i, n = rows.size
    cdef Stolen* row = <Stolen*>rows.data
    cdef Stolen* one
    block = take(n * 21)
    words = block[: 16 * n].view(np.int64)
    out = [np.zeros(processors + 2, np.int64), words[:n], words[n:], block[20 * n :],
           block[16 * n : 20 * n].view(np.int32)]
    cdef int64_t[::1] start = out[0], begin = out[1], end = out[2]
    cdef uint8_t[::1] state = out[3]
    cdef int32_t[::1] detail = out[4]
    if n:
        with nogil:
            order_by(<char*>&row[0].processor, sizeof(Stolen), n, &start[0], processors, order)
            for i in range(n):
                one = &row[order[i]]
                begin[i] = one.begin
                end[i] = one.end
                state[i] = one.state
                detail[i] = one.detail
    out[0] = out[0][:-1]
    return out

cdef ran_columns(Rows* rows, Py_ssize_t processors, int32_t* order, take):
    """Return start, begin, end, worker; sorted by processor."""
    cdef Py_ssize_t i, n = rows.size
    cdef Ran* row = <Ran*>rows.data
    cdef Ran* one
    block = take(n * 20)
    words = block[: 16 * n].view(np.int64)
    out = [np.zeros(processors + 2, np.int64), words[:n], words[n:],
           block[16 * n :].view(np.int32)]
    cdef int64_t[::1] start = out[0], begin = out[1], end = out[2]
    cdef int32_t[::1] worker = out[3]
    if n:
        with nogil:
            order_by(<char*>&row[0].processor, sizeof(Ran), n, &start[0], processors, order)
            for i in range(n):
                one = &row[order[i]]
                begin[i] = one.begin
                end[i] = one.end
                worker[i] = one.worker
    out[0] = out[0][:-1]
    return out
