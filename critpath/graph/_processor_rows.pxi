# Rows of processors: interrupt work, and who ran.  Included by _processors.pyx.

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
