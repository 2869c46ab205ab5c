# cython: language_level=3
"""Merges the pages of several buffers of a cpu into one stream, by the times that are meant."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from array import array

include "../../critpath_record/ftrace/records.pxi"

include "_page_writer.pxi"

cdef extern from *:
    """
    static uint64_t critpath_scaled(uint64_t value, uint64_t by, unsigned shift) {
        return (uint64_t)(((unsigned __int128)value * by) >> (shift & 127));
    }
    """
    uint64_t critpath_scaled(uint64_t value, uint64_t by, unsigned shift) nogil

cdef enum:
    MOST_BUFFERS = 64
    KINDS = 1 << 16


cdef Layout layout_of(layout, bint big_endian):
    cdef Layout of
    of.commit_offset, of.commit_size, of.data_offset, of.data_size = layout
    of.page_bytes = of.data_offset + of.data_size
    of.flags_offset = of.pid_offset = 0
    of.earliest, of.latest, of.swap = 0, <uint64_t>1 << 63, big_endian
    return of


def count_kinds(const uint8_t[::1] data not None, layout, bint big_endian):
    """Return how many records of each kind the pages of a mapped file have, by kind."""
    cdef Layout of = layout_of(layout, big_endian)
    cdef Page page
    cdef int64_t at = 0, total = data.shape[0], dropped = 0
    cdef int64_t counts[KINDS]
    cdef int kind
    memset(counts, 0, sizeof(counts))
    with nogil:
        while at < total:
            open_page(&page, &of, &data[at], min(of.page_bytes, total - at))
            while page.limit and next_record(&page) == RECORD:
                if page.length >= 2:
                    counts[swapped16(page.record, of.swap)] += 1
            at += of.page_bytes
            dropped = drop_read(&data[0], dropped, min(at, total))
    return {kind: counts[kind] for kind in range(KINDS) if counts[kind]}


cdef class Merger:
    """Merges the pages of a cpu's buffers, which are in one clock.

    Parameters
    ----------
    layout : tuple of int
        Of a page offset and size of the commit word and of the data.
    big_endian : bool
    rate : tuple of int
        By what times are multiplied, then shifted to the right, then added.
    shifts : tuple of array
        Before that: when (ascending), what is added, by what is multiplied and shifted to the
        right from then on; what is added changes evenly until the next.
    """

    cdef Layout of
    cdef uint64_t multiplier
    cdef int64_t offset, shift_count
    cdef unsigned shift
    cdef const uint64_t[::1] moments, scales, fractions
    cdef const int64_t[::1] offsets

    def __init__(self, layout, *, bint big_endian, rate=(1, 0, 0), shifts=()):
        self.of = layout_of(layout, big_endian)
        self.multiplier, self.shift, self.offset = rate
        self.shift_count = len(shifts[0]) if shifts else 0
        if self.shift_count:
            self.moments, self.offsets, self.scales, self.fractions = shifts

    cdef uint64_t time_of(self, uint64_t time) noexcept nogil:
        """Return what the recorder's tool makes of a time (ns)."""
        cdef int64_t low = 0, high = self.shift_count, middle
        cdef int64_t offset
        cdef double part
        if high:
            while high - low > 1:
                middle = (low + high) // 2
                if self.moments[middle] <= time:
                    low = middle
                else:
                    high = middle
            offset = self.offsets[low]
            if low + 1 < self.shift_count and time > self.moments[low]:
                part = <double>(time - self.moments[low]) / <double>(
                    self.moments[low + 1] - self.moments[low])
                offset += <int64_t>(part * <double>(self.offsets[low + 1] - offset))
            time = critpath_scaled(time, self.scales[low], <unsigned>self.fractions[low]) + offset
        if self.multiplier != 1 or self.shift:
            time = critpath_scaled(time, self.multiplier, self.shift)
        return time + self.offset

    def merge(self, list buffers, list taken, uint32_t cpu, PageWriter pages not None):
        """Write the records of a cpu's buffers in order of time.

        `buffers`: the pages of each, of a mapped file; `taken`: of each, 1 for every kind that is taken from it.
        Returns how many records were left out, and how many pages were damaged.
        """
        cdef const uint8_t[::1] view
        cdef const uint8_t* data[MOST_BUFFERS]
        cdef const uint8_t* wanted[MOST_BUFFERS]
        cdef int64_t size[MOST_BUFFERS]
        cdef int64_t at[MOST_BUFFERS]
        cdef int64_t dropped[MOST_BUFFERS]
        cdef Page page[MOST_BUFFERS]
        cdef int there[MOST_BUFFERS]
        cdef int count = len(buffers), one, first
        cdef int64_t left_out = 0, damaged = 0
        if not 0 < count <= MOST_BUFFERS or len(taken) != count:
            raise ValueError("so many buffers are not merged")
        held = []
        for one in range(count):
            view = buffers[one]
            size[one], at[one], page[one].limit, page[one].at = view.shape[0], 0, 0, 0
            page[one].missed = dropped[one] = 0
            data[one] = &view[0] if view.shape[0] else NULL
            held.append(view)
            view = taken[one]
            if view.shape[0] != KINDS:
                raise ValueError("a number for every kind")
            wanted[one] = &view[0]
            held.append(view)
        with nogil:
            for one in range(count):
                there[one] = self.go_on(
                    &page[one], data[one], size[one], &at[one], cpu, pages, &damaged)
            while True:
                first = -1
                for one in range(count):
                    if there[one] and (first < 0 or page[one].time < page[first].time):
                        first = one
                if first < 0:
                    break
                if page[first].length >= 2 and wanted[first][
                        swapped16(page[first].record, self.of.swap)]:
                    pages.append(
                        cpu, self.time_of(page[first].time), page[first].record,
                        page[first].length)
                else:
                    left_out += 1
                # Not the page that is being read.
                dropped[first] = drop_read(
                    data[first], dropped[first], at[first] - self.of.page_bytes)
                there[first] = self.go_on(
                    &page[first], data[first], size[first], &at[first], cpu, pages, &damaged)
        return left_out, damaged

    cdef int go_on(self, Page* page, const uint8_t* data, int64_t size, int64_t* at,
                   uint32_t cpu, PageWriter pages, int64_t* damaged) except -1 nogil:
        """Go to the next record, also of the next pages; return whether there is one."""
        cdef int found
        while True:
            if page.limit:
                found = next_record(page)
                if found == RECORD:
                    return 1
                if found == DAMAGED or page.damaged:
                    damaged[0] += 1
                    pages.lose(cpu, self.time_of(page.time), 0)
                page.limit = 0
            if at[0] >= size:
                return 0
            open_page(page, &self.of, data + at[0], min(self.of.page_bytes, size - at[0]))
            at[0] += self.of.page_bytes
            if page.missed:
                pages.lose(cpu, self.time_of(page.time), max(page.missed, 0))
            if page.damaged and not page.limit:
                damaged[0] += 1
                pages.lose(cpu, 0, 0)
