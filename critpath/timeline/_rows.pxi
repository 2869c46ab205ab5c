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
    AHEAD = 32    # rows that are asked for before they are needed
    LARGE = 2097152       # a huge page
    HUGE = 67108864       # from here on memory grows where it is: to copy it takes too much
    PAGE = 4096
    STOLEN_OWNER = 16     # where the processor stands in the row
    RAN_OWNER = 16

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

# The rows of a block, sorted and packed.  The order is found first, and the rows are then
# taken by it: that reads in many places and writes in one.

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

cdef char* put_owners(char* p, const int64_t* start, Py_ssize_t owners) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(owners):
        p = put_owner(p, start[i + 1] - start[i])
    return p

cdef char* put_intervals(char* p, const Row* rows, const int64_t* start, Py_ssize_t owners,
                         const int32_t* order, int64_t cut) noexcept nogil:
    cdef Py_ssize_t owner, i, n = start[owners]
    cdef const Row* row
    cdef const char* ahead
    cdef int64_t last_end
    cdef int32_t last_cpu
    cdef char* own = p
    cdef char* first
    p = put_owners(p, start, owners)
    for owner in range(owners):
        first = p
        last_end = cut
        last_cpu = -1
        for i in range(start[owner], start[owner + 1]):
            # A row may lie across two lines of the cache.
            ahead = <const char*>&rows[order[min(i + AHEAD, n - 1)]]
            prefetch(<void*>ahead)
            prefetch(<void*>(ahead + sizeof(Row) - 1))
            row = &rows[order[i]]
            p = put(p, row, last_end, last_cpu, cut)
            last_end = row.end
            last_cpu = row.cpu
        own = put_size(own, start[owner + 1] - start[owner], p - first)
    return p

cdef char* put_stolen(char* p, const Stolen* rows, const int64_t* start, Py_ssize_t owners,
                      const int32_t* order, int64_t cut) noexcept nogil:
    cdef Py_ssize_t owner, i
    cdef const Stolen* one
    cdef int64_t last_end
    cdef char* own = p
    cdef char* first
    cdef Row row
    row.cpu = row.waker = -1
    row.woken = -1
    p = put_owners(p, start, owners)
    for owner in range(owners):
        first = p
        last_end = cut
        for i in range(start[owner], start[owner + 1]):
            one = &rows[order[i]]
            row.begin = one.begin
            row.end = one.end
            row.state = one.state
            row.detail = one.detail
            p = put(p, &row, last_end, -1, cut)
            last_end = row.end
        own = put_size(own, start[owner + 1] - start[owner], p - first)
    return p

cdef char* put_ran(char* p, const Ran* rows, const int64_t* start, Py_ssize_t owners,
                   const int32_t* order, int64_t cut) noexcept nogil:
    cdef Py_ssize_t owner, i
    cdef const Ran* one
    cdef int64_t last_end
    cdef char* own = p
    cdef char* first
    cdef Row row
    row.state = 0
    row.detail = 0
    row.cpu = -1
    row.woken = -1
    p = put_owners(p, start, owners)
    for owner in range(owners):
        first = p
        last_end = cut
        for i in range(start[owner], start[owner + 1]):
            one = &rows[order[i]]
            row.begin = one.begin
            row.end = one.end
            row.waker = one.worker
            p = put(p, &row, last_end, -1, cut)
            last_end = row.end
        own = put_size(own, start[owner + 1] - start[owner], p - first)
    return p
