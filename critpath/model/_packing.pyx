# cython: language_level=3
"""Reads the rows of packed tables: see `critpath.model.packing`."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

include "_packed_rows.pxi"

# What is needed at most, and how many bytes behind the rows may be read.
ROW_BYTES, OWNER_BYTES, BYTES_BEHIND = ROW, OWNER, BEHIND


cdef const char* get_starts(const char* p, int64_t[::1] start) noexcept nogil:
    cdef Py_ssize_t i
    cdef int64_t rows
    start[0] = 0
    for i in range(start.shape[0] - 1):
        rows = <uint8_t>p[0]
        p += 1
        if rows == MANY:
            rows = read(p)
            p += PART
        start[i + 1] = start[i] + rows
    return p


cdef char* put_starts(char* p, const int64_t[::1] start) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(start.shape[0] - 1):
        p = put_count(p, start[i + 1] - start[i])
    return p


def pack_rows(int64_t cut, uint8_t[::1] out, const int64_t[::1] start,
              const int64_t[::1] begin, const int64_t[::1] end, const uint8_t[::1] state,
              const int32_t[::1] detail, const int32_t[::1] cpu, const int32_t[::1] waker,
              const int64_t[::1] woken):
    """Write the rows of a table; return how many bytes they take."""
    cdef Py_ssize_t i, owner
    cdef char* p = <char*>&out[0]
    cdef int64_t last
    cdef int32_t last_cpu = -1
    cdef Row row
    with nogil:
        p = put_starts(p, start)
        for owner in range(start.shape[0] - 1):
            last = cut
            for i in range(start[owner], start[owner + 1]):
                row.begin, row.end, row.state, row.detail = begin[i], end[i], state[i], detail[i]
                row.cpu, row.waker, row.woken = cpu[i], waker[i], woken[i]
                p = put(p, &row, last, last_cpu, cut)
                last, last_cpu = row.end, row.cpu
    return p - <char*>&out[0]


def unpack_intervals(int64_t cut, const uint8_t[::1] data, int64_t[::1] start,
                     int64_t[::1] begin, int64_t[::1] end, uint8_t[::1] state,
                     int32_t[::1] detail, int32_t[::1] cpu, int32_t[::1] waker,
                     int64_t[::1] woken):
    """Read what threads did."""
    cdef Py_ssize_t i, owner
    cdef const char* p = <const char*>&data[0]
    cdef int64_t* begin_ = &begin[0]
    cdef int64_t* end_ = &end[0]
    cdef int64_t* woken_ = &woken[0]
    cdef uint8_t* state_ = &state[0]
    cdef int32_t* detail_ = &detail[0]
    cdef int32_t* cpu_ = &cpu[0]
    cdef int32_t* waker_ = &waker[0]
    cdef int64_t last
    cdef int32_t last_cpu = -1
    cdef Row row
    with nogil:
        p = get_starts(p, start)
        for owner in range(start.shape[0] - 1):
            last = cut
            for i in range(start[owner], start[owner + 1]):
                p = get(p, &row, last, last_cpu, cut)
                last, last_cpu = row.end, row.cpu
                begin_[i], end_[i], woken_[i] = row.begin, row.end, row.woken
                state_[i], detail_[i] = row.state, row.detail
                cpu_[i], waker_[i] = row.cpu, row.waker


def unpack_stolen(int64_t cut, const uint8_t[::1] data, int64_t[::1] start, int64_t[::1] begin,
                  int64_t[::1] end, uint8_t[::1] state, int32_t[::1] detail):
    """Read the interrupt work of processors."""
    cdef Py_ssize_t i, owner
    cdef const char* p = <const char*>&data[0]
    cdef int64_t* begin_ = &begin[0]
    cdef int64_t* end_ = &end[0]
    cdef uint8_t* state_ = &state[0]
    cdef int32_t* detail_ = &detail[0]
    cdef int64_t last
    cdef Row row
    with nogil:
        p = get_starts(p, start)
        for owner in range(start.shape[0] - 1):
            last = cut
            for i in range(start[owner], start[owner + 1]):
                p = get(p, &row, last, -1, cut)
                last = row.end
                begin_[i], end_[i], state_[i], detail_[i] = row.begin, row.end, row.state, row.detail


def unpack_ran(int64_t cut, const uint8_t[::1] data, int64_t[::1] start, int64_t[::1] begin,
               int64_t[::1] end, int32_t[::1] worker):
    """Read who ran: the workers stand where wakers do."""
    cdef Py_ssize_t i, owner
    cdef const char* p = <const char*>&data[0]
    cdef int64_t* begin_ = &begin[0]
    cdef int64_t* end_ = &end[0]
    cdef int32_t* worker_ = &worker[0]
    cdef int64_t last
    cdef Row row
    with nogil:
        p = get_starts(p, start)
        for owner in range(start.shape[0] - 1):
            last = cut
            for i in range(start[owner], start[owner + 1]):
                p = get(p, &row, last, -1, cut)
                last = row.end
                begin_[i], end_[i], worker_[i] = row.begin, row.end, row.waker
