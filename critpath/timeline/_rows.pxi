# Tables that grow row by row, and their rows sorted into columns.  Included by _replay.pyx.
#
# Rows rather than columns while they grow: one write per interval, and half the
# memory touched for the first time, which costs more than the replay itself.

cdef extern from "sys/mman.h" nogil:
    int madvise(void*, size_t, int)
    int MADV_HUGEPAGE

cdef enum:
    LARGE = 4194304
    PAGE = 4096

ctypedef struct Interval:
    int64_t begin
    int64_t end
    int64_t woken
    int32_t worker
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

ctypedef struct Rows:
    char* data
    Py_ssize_t size
    Py_ssize_t capacity

cdef void* add_row(Rows* rows, Py_ssize_t item) except NULL nogil:
    """Return the place of a new row."""
    cdef char* more
    cdef Py_ssize_t capacity
    cdef size_t at
    if rows.size == rows.capacity:
        capacity = 2 * rows.capacity if rows.capacity else 4096
        more = <char*>realloc(rows.data, capacity * item)
        if more == NULL:
            with gil:
                raise MemoryError()
        if capacity * item >= LARGE:
            # Huge pages: touching small ones for the first time costs most.
            at = (<size_t>more + PAGE - 1) & ~<size_t>(PAGE - 1)
            madvise(<void*>at, <size_t>more + capacity * item - at, MADV_HUGEPAGE)
        rows.data = more
        rows.capacity = capacity
    rows.size += 1
    return rows.data + (rows.size - 1) * item

cdef int clear(Rows* rows) noexcept nogil:
    free(rows.data)
    rows.data = NULL
    rows.size = 0
    rows.capacity = 0
    return 0

cdef interval_columns(Rows* rows, Py_ssize_t workers):
    """Return start, begin, end, state, detail, cpu, waker, woken; sorted by worker."""
    cdef Py_ssize_t i, at, n = rows.size
    cdef Interval* row = <Interval*>rows.data
    # One block for all columns: numpy asks for huge pages from 4 MiB on.
    block = np.empty(n * 37, np.uint8)
    words = block[: 24 * n].view(np.int64)
    halves = block[24 * n : 36 * n].view(np.int32)
    out = [np.zeros(workers + 2, np.int64), words[:n], words[n : 2 * n], block[36 * n :],
           halves[:n], halves[n : 2 * n], halves[2 * n :], words[2 * n :]]
    cdef int64_t[::1] start = out[0], begin = out[1], end = out[2], woken = out[7]
    cdef uint8_t[::1] state = out[3]
    cdef int32_t[::1] detail = out[4], cpu = out[5], waker = out[6]
    with nogil:
        # Counted two places on, so that after the scatter the starts are in place.
        for i in range(n):
            start[row[i].worker + 2] += 1
        for i in range(1, workers + 1):
            start[i + 1] += start[i]
        for i in range(n):
            at = start[row[i].worker + 1]
            start[row[i].worker + 1] += 1
            begin[at] = row[i].begin
            end[at] = row[i].end
            state[at] = row[i].state
            detail[at] = row[i].detail
            cpu[at] = row[i].cpu
            waker[at] = row[i].waker
            woken[at] = row[i].woken
    clear(rows)
    out[0] = out[0][:-1]
    return out

cdef stolen_columns(Rows* rows, Py_ssize_t processors):
    """Return start, begin, end, state, detail; sorted by processor."""
    cdef Py_ssize_t i, at, n = rows.size
    cdef Stolen* row = <Stolen*>rows.data
    out = [np.zeros(processors + 2, np.int64), np.empty(n, np.int64), np.empty(n, np.int64),
           np.empty(n, np.uint8), np.empty(n, np.int32)]
    cdef int64_t[::1] start = out[0], begin = out[1], end = out[2]
    cdef uint8_t[::1] state = out[3]
    cdef int32_t[::1] detail = out[4]
    with nogil:
        for i in range(n):
            start[row[i].processor + 2] += 1
        for i in range(1, processors + 1):
            start[i + 1] += start[i]
        for i in range(n):
            at = start[row[i].processor + 1]
            start[row[i].processor + 1] += 1
            begin[at] = row[i].begin
            end[at] = row[i].end
            state[at] = row[i].state
            detail[at] = row[i].detail
    clear(rows)
    out[0] = out[0][:-1]
    return out

cdef ran_columns(Rows* rows, Py_ssize_t processors):
    """Return start, begin, end, worker; sorted by processor."""
    cdef Py_ssize_t i, at, n = rows.size
    cdef Ran* row = <Ran*>rows.data
    out = [np.zeros(processors + 2, np.int64), np.empty(n, np.int64), np.empty(n, np.int64),
           np.empty(n, np.int32)]
    cdef int64_t[::1] start = out[0], begin = out[1], end = out[2]
    cdef int32_t[::1] worker = out[3]
    with nogil:
        for i in range(n):
            start[row[i].processor + 2] += 1
        for i in range(1, processors + 1):
            start[i + 1] += start[i]
        for i in range(n):
            at = start[row[i].processor + 1]
            start[row[i].processor + 1] += 1
            begin[at] = row[i].begin
            end[at] = row[i].end
            worker[at] = row[i].worker
    clear(rows)
    out[0] = out[0][:-1]
    return out
