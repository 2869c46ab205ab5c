# cython: language_level=3
"""Converts ring-buffer pages to CTF packets: the only code here that runs per event.

Nothing outside a page is ever read, whatever the page says: a record that goes beyond
it ends it, and the page is reported as damaged.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcpy, memset

import os
from array import array

cdef extern from "unistd.h" nogil:
    ssize_t posix_write "write"(int, const void*, size_t)

include "_steps.pxi"

include "records.pxi"


def list_records(const uint8_t[::1] page not None):
    """Return time and content of every record of a page as this machine's kernel writes it.

    What is behind its data may be missing; the rest of a damaged page is left out.
    """
    cdef Layout of
    cdef Page at
    of.commit_offset, of.commit_size, of.data_offset = 8, 8, 16
    of.data_size = SIZE_MASK
    of.earliest, of.latest, of.swap = 0, <uint64_t>1 << 63, 0
    found = []
    if page.shape[0] < of.data_offset:
        return found
    open_page(&at, &of, &page[0], page.shape[0])
    while next_record(&at) == RECORD:
        found.append((at.time, at.record[:at.length]))
    return found


# ------------------------------------------------------------ the program of an event over a record

cdef enum:
    # words of a program's head
    ID = 0
    NEED = 1
    FIXED = 2
    LOCATED = 3
    HEAD = 4
    WIDTH = 4


cdef inline int64_t text_length(const uint8_t* p, int64_t most) noexcept nogil:
    cdef const void* zero
    if most <= 0:
        return 0
    zero = memchr(p, 0, most)
    return most if zero == NULL else <const uint8_t*>zero - p


cdef inline void copy_elements(uint8_t* to, const uint8_t* p, int64_t size,
                               int64_t each) noexcept nogil:
    """Copy numbers of so many bytes each with their bytes in the other order; of 1: as they are."""
    cdef int64_t at = 0, i
    if each < 2:
        memcpy(to, p, size)
        return
    while at + each <= size:
        for i in range(each):
            to[at + i] = p[at + each - 1 - i]
        at += each


cdef int64_t run_steps(const int32_t* step, const uint8_t* record, int64_t length,
                       const uint8_t* beside, int64_t beside_size, int64_t* beside_at,
                       int swap, uint8_t* out) noexcept nogil:
    """Write what a program makes of a record; return the bytes written.

    The record has the bytes that the program needs, and `out` those that it may write.
    """
    cdef uint8_t* to = out
    cdef int64_t a, begin, size
    cdef uint32_t word
    cdef int32_t kind
    while True:
        kind, a = step[0], step[1]
        if kind == STEP_COPY:
            memcpy(to, record + a, step[2])
            to += step[2]
        elif kind == STEP_SWAP:
            copy_elements(to, record + a, step[2], step[3])
            to += step[2]
        elif kind == STEP_ADD32:
            store32(to, swapped32(record + a, swap) + <uint32_t>step[2])
            to += 4
        elif kind == STEP_TEXT_AT or kind == STEP_CHARS_AT or kind == STEP_SEQUENCE_AT:
            word = swapped32(record + a, swap)
            begin = min(<int64_t>(word & 0xFFFF) + step[2], length)
            size = min(<int64_t>(word >> 16), length - begin)
            if kind == STEP_SEQUENCE_AT:
                size = size // step[3] * step[3]
                store32(to, <uint32_t>(size // step[3]))
                to += 4
                copy_elements(to, record + begin, size, step[3] if swap else 1)
                to += size
            else:
                size = text_length(record + begin, size)
                if kind == STEP_TEXT_AT:
                    memcpy(to, record + begin, size)
                    to[size] = 0
                    to += size + 1
                else:
                    size = min(size, <int64_t>step[3] - 1)
                    memcpy(to, record + begin, size)
                    memset(to + size, 0, step[3] - size)
                    to += step[3]
        elif kind == STEP_TEXT_REST:
            size = text_length(record + a, length - a)
            if step[2] and size and record[a + size - 1] == 10:
                size -= 1
            memcpy(to, record + a, size)
            to[size] = 0
            to += size + 1
        elif kind == STEP_SEQUENCE_REST:
            size = length - a
            store32(to, <uint32_t>size)
            memcpy(to + 4, record + a, size)
            to += 4 + size
        elif kind == STEP_CONSTANT32:
            store32(to, <uint32_t>step[1])
            to += 4
        elif kind == STEP_BESIDE:
            if beside_at[0] + a + step[2] <= beside_size:
                memcpy(to, beside + beside_at[0] + a, step[2])
            else:
                memset(to, 0, step[2])
            to += step[2]
        elif kind == STEP_NEXT_BESIDE:
            beside_at[0] += a
        else:
            return to - out
        step += WIDTH

# ------------------------------------------------------------------------------------ packets

cdef enum:
    HEADER = 32           # packet header: magic, UUID, stream's id and instance
    CONTEXT = 52          # packet context
    EVENT = 14 + 5        # most that an event's header and context take
    CURRENT = EVENT + 4   # most that critpath_current takes
    NOBODY = -1           # who has the cpu is not known
    PACKET = 1 << 16      # a packet is written when it has become as large as this
    EXTENDED = 31
    EXTENDED_LARGE = 65535

ctypedef struct Writer:
    int descriptor
    int error
    uint8_t* out
    int64_t room
    int64_t used
    uint64_t begin        # of the packet, ns
    uint64_t last         # event
    uint64_t sequence
    uint64_t discarded
    uint32_t cpu
    int large             # kind of the event header


cdef int put_packet(Writer* w, uint64_t begin, uint64_t end) noexcept nogil:
    """Write the packet and begin the next; 0, or -1 with the error kept."""
    cdef uint8_t* p = w.out + HEADER
    cdef int64_t at = 0
    cdef ssize_t done
    store64(p, begin)
    store64(p + 8, end)
    store64(p + 16, 8 * <uint64_t>w.used)
    store64(p + 24, 8 * <uint64_t>w.used)
    store64(p + 32, w.sequence)
    store64(p + 40, w.discarded)
    store32(p + 48, w.cpu)
    while at < w.used:
        done = posix_write(w.descriptor, w.out + at, w.used - at)
        if done < 0:
            if errno == EINTR:
                continue
            w.error = errno
            return -1
        at += done
    w.sequence += 1
    w.used = HEADER + CONTEXT
    return 0


cdef inline void put_header(Writer* w, uint32_t number, uint64_t time) noexcept nogil:
    """Write an event's header: with the low bits of its time where they are enough."""
    cdef uint64_t since
    cdef uint8_t* p
    if w.used == HEADER + CONTEXT:
        w.begin = w.last = time
    since, p = time - w.last, w.out + w.used
    w.last = time
    if w.large:
        if since < (1ull << 32) and number < EXTENDED_LARGE:
            memcpy(p, &number, 2)
            store32(p + 2, <uint32_t>time)
            w.used += 6
        else:
            p[0] = p[1] = 255
            store32(p + 2, number)
            store64(p + 6, time)
            w.used += 14
    elif since < (1ull << 27) and number < EXTENDED:
        store32(p, number | <uint32_t>(time << 5))
        w.used += 4
    else:
        p[0] = EXTENDED
        store32(p + 1, number)
        store64(p + 5, time)
        w.used += 13


cdef class Pages:
    """Decodes the pages of one trace's cpus; may be used by several threads at once.

    `layout`: of a page offset and size of the commit word and of the data, size of the whole; of a
    record offset of common_flags and common_pid.  `times`: earliest and latest (ns) that are
    believed.  `starts`, `words`: programs, see `critpath_record.ftrace.ctf_events`.  `large`: which
    of LTTng's event headers is written.  `current`: id of ``critpath_current``, ftrace's ID of
    ``sched_switch`` and offset of its ``next_pid``; -1 where switches are not recorded.  `swap`:
    whether pages and records are of a machine of the other byte order.
    """

    cdef Layout layout
    cdef const int32_t[::1] starts, words
    cdef int large
    cdef int cancelled
    cdef int32_t current_id, switch_kind, next_offset

    def __init__(self, layout, times, starts, words, *, large, current=(-1, -1, -1), swap=False):
        (self.layout.commit_offset, self.layout.commit_size, self.layout.data_offset,
         self.layout.data_size, self.layout.page_bytes, self.layout.flags_offset,
         self.layout.pid_offset) = layout
        self.layout.earliest, self.layout.latest = times
        self.layout.swap = swap
        self.current_id, self.switch_kind, self.next_offset = current
        self.starts, self.words, self.large, self.cancelled = starts, words, large, 0
        if len(starts) != 1 << 16:
            raise ValueError("a program's start for every ID")

    def cancel(self):
        """Make every call that is under way return soon; what it wrote is of no use."""
        self.cancelled = 1

    def scan(self, const uint8_t[::1] data, starts, words, *, bint mapped=False):
        """Go through all pages and gather what conversion has to know before it begins.

        `data`: pages, the last of which may be cut off; `mapped`: a file's, which is dropped from
        memory as it is read.  `starts`, `words`: programs whose output is gathered.  Returns the number of records that will be events, of those of events that no
        program is for, of those that lack fields, of events that are earlier than the one before
        and are made as late; times of the first and last event (ns; 0 without); for each page that
        says so its number and how many went missing before it (-1: unknown); numbers of damaged
        pages; for each record that a program gathers its time (u64) and the output.
        """
        cdef const int32_t[::1] also = starts
        cdef const int32_t[::1] steps = words
        cdef int64_t total = data.shape[0], number = 0, at = 0, start, beside = 0
        cdef int64_t events = 0, unknown = 0, short = 0, backward = 0, size, dropped = 0
        cdef uint64_t first = 0, last = 0, time
        cdef const uint8_t* p = &data[0] if total else NULL
        cdef Page page
        cdef int found
        cdef uint16_t kind
        cdef uint8_t* out = NULL
        cdef int64_t used = 0, room = 0, need
        missed, damaged = array("q"), array("q")
        try:
            with nogil:
                while at < total and not self.cancelled:
                    size = min(self.layout.page_bytes, total - at)
                    open_page(&page, &self.layout, p + at, size)
                    if page.missed:
                        with gil:
                            missed.extend((number, page.missed))
                    found = AT_END if page.limit == 0 else RECORD
                    while found == RECORD:
                        found = next_record(&page)
                        if found != RECORD:
                            break
                        if page.length < 2:
                            short += 1
                            continue
                        kind = swapped16(page.record, self.layout.swap)
                        start = self.starts[kind]
                        if start < 0:
                            unknown += 1
                            continue
                        if page.length < self.words[start + NEED]:
                            short += 1
                            continue
                        time = page.time
                        if events and time < last:
                            time = last
                            backward += 1
                        if events == 0:
                            first = time
                        last = time
                        events += 1
                        start = also[kind]
                        if start < 0 or page.length < steps[start + NEED]:
                            continue
                        need = 8 + steps[start + FIXED] + steps[start + LOCATED] * page.length
                        if room - used < need:
                            with gil:
                                room = 2 * room + need + 4096
                                out = grown(out, room)
                        store64(out + used, time)
                        used += 8 + run_steps(
                            &steps[start + HEAD], page.record, page.length,
                            NULL, 0, &beside, self.layout.swap, out + used + 8)
                    if found == DAMAGED or page.damaged:
                        with gil:
                            damaged.append(number)
                    number += 1
                    at += size
                    if mapped:
                        dropped = drop_read(p, dropped, at)
            gathered = (<const char*>out)[:used] if used else b""
            return events, unknown, short, backward, first, last, missed, damaged, gathered
        finally:
            free(out)

    def write(self, const uint8_t[::1] data, int descriptor, bytes header, uint32_t cpu,
              span, losses, const uint8_t[::1] beside, *, bint mapped=False):
        """Convert all pages to packets; `mapped`: as of `scan`.

        `header`: of every packet.  `span`: of the recording (ns), for packets without events.
        `losses`: ascending pairs of a page's number, that of all pages for what was lost after the
        last, and of events lost before it.  `beside`: what steps take from beside the records.
        Returns how many events were written, ``critpath_current`` included; raises OSError.
        """
        cdef const int64_t[::1] lost = losses
        cdef int64_t total = data.shape[0], number = 0, at = 0, start, size, need
        cdef int64_t events = 0, next_loss = 0, waiting = 0, beside_at = 0, most = 0
        cdef int64_t beside_size = beside.shape[0], loss_count = lost.shape[0], dropped = 0
        cdef uint64_t begin = span[0], end = span[1], time
        cdef const uint8_t* p = &data[0] if total else NULL
        cdef const uint8_t* aside = &beside[0] if beside_size else NULL
        cdef Page page
        cdef Writer w
        cdef uint16_t kind
        cdef int32_t pid, running = NOBODY
        memset(&w, 0, sizeof(w))
        if len(header) != HEADER:
            raise ValueError("a packet header of another size")
        for kind_start in self.starts:
            if kind_start >= 0:
                most = max(most, self.words[kind_start + FIXED]
                           + self.words[kind_start + LOCATED] * self.layout.data_size)
        w.room = HEADER + CONTEXT + PACKET + CURRENT + EVENT + most
        w.out = grown(NULL, w.room)
        memcpy(w.out, <const char*>header, HEADER)
        w.used, w.descriptor, w.cpu, w.large = HEADER + CONTEXT, descriptor, cpu, self.large
        try:
            with nogil:
                while at < total and not self.cancelled and not w.error:
                    while next_loss < loss_count and lost[next_loss] <= number:
                        waiting += lost[next_loss + 1]
                        next_loss += 2
                    size = min(self.layout.page_bytes, total - at)
                    open_page(&page, &self.layout, p + at, size)
                    while next_record(&page) == RECORD:
                        if page.length < 2:
                            continue
                        kind = swapped16(page.record, self.layout.swap)
                        start = self.starts[kind]
                        if start < 0 or page.length < self.words[start + NEED]:
                            continue
                        time = page.time
                        if events and time < w.last:
                            time = w.last
                        if waiting:
                            if put_loss(&w, begin, time, waiting) < 0:
                                break
                            waiting = 0
                            running = NOBODY
                        need = (CURRENT + EVENT + self.words[start + FIXED]
                                + self.words[start + LOCATED] * page.length)
                        if w.used + need > w.room and put_packet(&w, w.begin, w.last) < 0:
                            break
                        pid = <int32_t>swapped32(
                            page.record + self.layout.pid_offset, self.layout.swap)
                        if kind == self.switch_kind:
                            running = <int32_t>swapped32(
                                page.record + self.next_offset, self.layout.swap)
                        else:
                            if self.current_id >= 0 and running != NOBODY and running != pid:
                                # The kernel did not write the switch to this thread.
                                put_header(&w, self.current_id, time)
                                store32(w.out + w.used, pid)
                                w.out[w.used + 4] = page.record[self.layout.flags_offset]
                                store32(w.out + w.used + 5, pid)
                                w.used += 9
                                events += 1
                            running = pid
                        put_header(&w, self.words[start + ID], time)
                        store32(w.out + w.used, pid)
                        w.out[w.used + 4] = page.record[self.layout.flags_offset]
                        w.used += 5
                        w.used += run_steps(
                            &self.words[start + HEAD], page.record, page.length,
                            aside, beside_size, &beside_at, self.layout.swap, w.out + w.used)
                        events += 1
                    if w.used >= PACKET and not w.error:
                        put_packet(&w, w.begin, w.last)
                    number += 1
                    at += size
                    if mapped:
                        dropped = drop_read(p, dropped, at)
                while next_loss < loss_count:
                    waiting += lost[next_loss + 1]
                    next_loss += 2
                if not w.error:
                    if waiting:
                        put_loss(&w, begin, max(end, w.last), waiting)
                    elif w.used > HEADER + CONTEXT:
                        put_packet(&w, w.begin, w.last)
                    elif w.sequence == 0:
                        put_packet(&w, begin, max(begin, end))
        finally:
            free(w.out)
        if w.error:
            raise OSError(w.error, os.strerror(w.error))
        return events


cdef int put_loss(Writer* w, uint64_t begin, uint64_t time, int64_t count) noexcept nogil:
    """Write a packet without events that says how many were lost since the one before.

    Readers place a loss between the ends of two packets: so it ends where the events
    begin again.  A stream that begins with a loss is given an empty packet before it.
    """
    if w.used > HEADER + CONTEXT:
        if put_packet(w, w.begin, w.last) < 0:
            return -1
    elif w.sequence == 0:
        begin = min(begin, time)
        if put_packet(w, begin, begin) < 0:
            return -1
    w.discarded += <uint64_t>count
    return put_packet(w, time, time)


cdef uint8_t* grown(uint8_t* old, int64_t size) except NULL:
    cdef uint8_t* new = <uint8_t*>realloc(old, size)
    if new == NULL:
        raise MemoryError
    return new
