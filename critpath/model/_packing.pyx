# cython: language_level=3
"""Reads the rows of packed tables: see `critpath.model.packing`."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

include "_packed_rows.pxi"

# What is needed at most, and how many bytes behind the rows may be read.
ROW_BYTES, OWNER_BYTES, BYTES_BEHIND = ROW, OWNER, BEHIND


cdef const char* get_owners(const char* p, int64_t[::1] start) noexcept nogil:
    """Read where the rows of every owner start; return where they are."""
    cdef Py_ssize_t i
    cdef int64_t rows, size
    start[0] = 0
    for i in range(start.shape[0] - 1):
        p = get_owner(p, &rows, &size)
        start[i + 1] = start[i] + rows
    return p


def find_rows(const uint8_t[::1] data, int64_t[::1] start, int64_t[::1] at):
    """Read where the rows of every owner start, and which byte of the data the first is at."""
    cdef const char* begin = <const char*>&data[0]
    cdef const char* p = begin
    cdef Py_ssize_t i
    cdef int64_t rows, size, behind = 0
    start[0] = 0
    for i in range(at.shape[0]):
        p = get_owner(p, &rows, &size)
        start[i + 1] = start[i] + rows
        at[i] = behind
        behind += size
    for i in range(at.shape[0]):
        at[i] += p - begin


cdef char* put_owners(char* p, const int64_t[::1] start) noexcept nogil:
    cdef Py_ssize_t owner
    for owner in range(start.shape[0] - 1):
        p = put_owner(p, start[owner + 1] - start[owner])
    return p


def pack_intervals(int64_t base, uint8_t[::1] out, const int64_t[::1] start,
                   const int64_t[::1] begin, const int64_t[::1] end, const uint8_t[::1] state,
                   const int32_t[::1] detail, const int32_t[::1] cpu, const int32_t[::1] waker,
                   const int64_t[::1] woken):
    """Write what threads did; return how many bytes it takes."""
    cdef Py_ssize_t i, owner
    cdef char* own = <char*>&out[0]
    cdef char* p
    cdef char* first
    cdef int64_t last
    with nogil:
        p = put_owners(own, start)
        for owner in range(start.shape[0] - 1):
            first = p
            last = base
            for i in range(start[owner], start[owner + 1]):
                if woken[i] == -1 and waker[i] == -1:
                    p = put_row(p, begin[i], end[i], detail[i], cpu[i], state[i], last)
                else:
                    p = put_woken(p, begin[i], end[i], woken[i], detail[i], cpu[i], waker[i],
                                  state[i], last)
                last = end[i]
            own = put_size(own, start[owner + 1] - start[owner], p - first)
    return p - <char*>&out[0]


def pack_stolen(int64_t base, uint8_t[::1] out, const int64_t[::1] start,
                const int64_t[::1] begin, const int64_t[::1] end, const uint8_t[::1] state,
                const int32_t[::1] detail):
    """Write the interrupt work of processors; return how many bytes it takes."""
    cdef Py_ssize_t i, owner
    cdef char* own = <char*>&out[0]
    cdef char* p
    cdef char* first
    cdef int64_t last
    with nogil:
        p = put_owners(own, start)
        for owner in range(start.shape[0] - 1):
            first = p
            last = base
            for i in range(start[owner], start[owner + 1]):
                p = put_stolen(p, begin[i], end[i], state[i], detail[i], last)
                last = end[i]
            own = put_size(own, start[owner + 1] - start[owner], p - first)
    return p - <char*>&out[0]


def pack_ran(int64_t base, uint8_t[::1] out, const int64_t[::1] start, const int64_t[::1] begin,
             const int64_t[::1] end, const int32_t[::1] worker):
    """Write who ran on processors; return how many bytes it takes."""
    cdef Py_ssize_t i, owner
    cdef char* own = <char*>&out[0]
    cdef char* p
    cdef char* first
    cdef int64_t last
    with nogil:
        p = put_owners(own, start)
        for owner in range(start.shape[0] - 1):
            first = p
            last = base
            for i in range(start[owner], start[owner + 1]):
                p = put_ran(p, begin[i], end[i], worker[i], last)
                last = end[i]
            own = put_size(own, start[owner + 1] - start[owner], p - first)
    return p - <char*>&out[0]


def unpack_intervals(int64_t base, const uint8_t[::1] data, int64_t[::1] start,
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
    cdef Row row
    with nogil:
        p = get_owners(p, start)
        for owner in range(start.shape[0] - 1):
            last = base
            for i in range(start[owner], start[owner + 1]):
                p = get(p, &row, last)
                last = row.end
                begin_[i], end_[i], woken_[i] = row.begin, row.end, row.woken
                state_[i], detail_[i] = row.state, row.detail
                cpu_[i], waker_[i] = row.cpu, row.waker


def unpack_stolen(int64_t base, const uint8_t[::1] data, int64_t[::1] start, int64_t[::1] begin,
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
        p = get_owners(p, start)
        for owner in range(start.shape[0] - 1):
            last = base
            for i in range(start[owner], start[owner + 1]):
                p = get_stolen(p, &row, last)
                last = row.end
                begin_[i], end_[i], state_[i], detail_[i] = row.begin, row.end, row.state, row.detail


def unpack_ran(int64_t base, const uint8_t[::1] data, int64_t[::1] start, int64_t[::1] begin,
               int64_t[::1] end, int32_t[::1] worker):
    """Read who ran on processors."""
    cdef Py_ssize_t i, owner
    cdef const char* p = <const char*>&data[0]
    cdef int64_t* begin_ = &begin[0]
    cdef int64_t* end_ = &end[0]
    cdef int32_t* worker_ = &worker[0]
    cdef int64_t last
    cdef Row row
    with nogil:
        p = get_owners(p, start)
        for owner in range(start.shape[0] - 1):
            last = base
            for i in range(start[owner], start[owner + 1]):
                p = get_ran(p, &row, last)
                last = row.end
                begin_[i], end_[i], worker_[i] = row.begin, row.end, row.waker
