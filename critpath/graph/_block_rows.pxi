# Rows of a block, and those of later blocks that are carried into it.  Included by _walk.pyx.

# What a worker did over some time, and who ended it.
ctypedef struct Row:
    int64_t begin
    int64_t end
    int64_t woken
    int32_t detail
    int32_t cpu
    int32_t waker
    uint8_t state

# Columns of rows, those of worker w from start[w] to start[w + 1].
ctypedef struct Rows:
    int64_t workers
    const int64_t* start
    const int64_t* begin
    const int64_t* end
    const uint8_t* state
    const int32_t* detail
    const int32_t* cpu
    const int32_t* waker
    const int64_t* woken


cdef void point(Rows* rows, const int64_t[::1] start, const int64_t[::1] begin,
                const int64_t[::1] end, const uint8_t[::1] state, const int32_t[::1] detail,
                const int32_t[::1] cpu, const int32_t[::1] waker,
                const int64_t[::1] woken) noexcept:
    """Point at columns, which must stay alive."""
    rows.workers = start.shape[0] - 1
    rows.start = &start[0]
    if begin.shape[0]:
        rows.begin = &begin[0]
        rows.end = &end[0]
        rows.state = &state[0]
        rows.detail = &detail[0]
        rows.cpu = &cpu[0]
        rows.waker = &waker[0]
        rows.woken = &woken[0]


cdef int covering(Rows* block, Rows* carried, int64_t worker, int64_t t, int64_t* hint,
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


def held_over(const int64_t[::1] start, const int64_t[::1] begin,
              const int64_t[::1] carried_start, const int64_t[::1] carried_begin, int64_t cut):
    """Return which rows of a block, and of those carried into it, begin before ``cut``.

    Parameters
    ----------
    start, begin : int64 arrays
        A block's rows, in order of time within each owner.
    carried_start, carried_begin : int64 arrays
        Rows of later blocks.
    cut : int

    Returns
    -------
    start : int64 [owners + 1]
    rows : int64 array
        Rows of the block, and -1 - row for carried ones.
    """
    cdef Py_ssize_t owner, owners = start.shape[0] - 1, carriers = carried_start.shape[0] - 1
    cdef Py_ssize_t n, size = 0
    cdef int64_t i
    cdef int writing
    n = owners if owners > carriers else carriers
    starts = np.zeros(n + 1, np.int64)
    cdef int64_t[::1] into = starts, rows
    for writing in range(2):
        if writing:
            result = np.empty(size, np.int64)
            rows = result
            size = 0
        with nogil:
            for owner in range(n):
                if owner < owners:
                    for i in range(start[owner], start[owner + 1]):
                        if begin[i] >= cut:
                            break
                        if writing:
                            rows[size] = i
                        size += 1
                if owner < carriers:
                    for i in range(carried_start[owner], carried_start[owner + 1]):
                        if carried_begin[i] >= cut:
                            break
                        if writing:
                            rows[size] = -1 - i
                        size += 1
                into[owner + 1] = size
    return starts, result
