# Row buffers: tables that grow row by row, and their packed rows sorted by owners.  Included by
# _replay.pyx.
#
# Rows are packed as they come, which is little memory to write, to sort and to copy.  It is
# used again from block to block, because touching memory for the first time costs more than
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
    LARGE = 2097152       # a huge page
    HUGE = 67108864       # from here on memory grows where it is: to copy it takes too much
    PAGE = 4096
    SLICE = 1024          # events between two looks at whether there is room for rows
    COPIED = 24           # bytes of a row that are copied without a look at how long it is
    SIZE_BITS = 8         # of the size of a row, beside its owner or its place

ctypedef struct Rows:
    char* data
    Py_ssize_t size
    Py_ssize_t capacity

ctypedef struct Tail:
    # Packed rows of one processor since the last cut.
    Rows bytes
    int64_t rows
    int64_t end           # of the last one, or the block's base

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

cdef inline void count_tail(Tail* tail, int64_t end, Py_ssize_t size) noexcept nogil:
    """Account for a row that was written behind the others."""
    tail.bytes.size += size
    tail.end = end
    tail.rows += 1


cdef void forget_tail(Tail* tail, int last, int64_t base) noexcept nogil:
    forget(&tail.bytes, last)
    tail.rows = 0
    tail.end = base


cdef char* put_sorted(char* p, const char* bytes_, const int64_t* entry, Py_ssize_t rows,
                      int32_t* start, Py_ssize_t owners, uint32_t* order) noexcept nogil:
    """Write packed rows owner by owner, with what stands before them; return the end.

    Parameters
    ----------
    p
        Room for all, and BEHIND bytes more.
    bytes_, entry
        Packed rows as they came; of each its owner, and in the low bits how long it is.
    start
        Where each owner's rows start, one place on: it is moved to the start of the next.
    order
        Room for a place per row.
    """
    cdef Py_ssize_t i, owner, size
    cdef uint32_t at = 0
    cdef const char* row
    cdef char* own = p
    cdef char* first
    for i in range(rows):
        owner = entry[i] >> SIZE_BITS
        order[start[owner + 1]] = at
        start[owner + 1] += 1
        at += <uint32_t>(entry[i] & ((1 << SIZE_BITS) - 1))
    for owner in range(owners):
        p = put_owner(p, start[owner + 1] - start[owner])
    for owner in range(owners):
        first = p
        for i in range(start[owner], start[owner + 1]):
            row = bytes_ + order[i]
            size = row_bytes(row)
            memcpy(p, row, COPIED)
            if size > COPIED:
                memcpy(p, row, ROW)
            p += size
        own = put_size(own, start[owner + 1] - start[owner], p - first)
    return p
