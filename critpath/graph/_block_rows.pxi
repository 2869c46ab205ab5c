# Rows of a block, and those of later blocks that are carried into it.  Included by _walk.pyx.

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
