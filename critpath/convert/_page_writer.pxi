# Writes records into pages as the kernel lays them out, a file of them for each cpu: what
# `critpath_record.ftrace.convert` reads.  Included by the native readers of other tools' files.
#
#     pages = PageWriter(str(writer.directory), big_endian=False, held=True)
#     pages.append(cpu, time, record, length)     # from C; from Python: pages.add(cpu, time, bytes)
#     pages.lose(cpu, time, 12)                   # 12 events were lost before `time`; 0: some were
#     pages.flush_until(time)                     # nothing earlier will come any more
#     writer.take_pages(pages.close())
#
# A record is what the event's format file describes: common_type (its ID), common_flags,
# common_preempt_count, common_pid and the fields, in the byte order of the traced machine.

from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, qsort, realloc
from libc.string cimport memcpy, memset

import os

cdef extern from "unistd.h" nogil:
    ssize_t posix_write_page "write"(int, const void*, size_t)
    int posix_close_page "close"(int)

cdef extern from "fcntl.h" nogil:
    int posix_open_page "open"(const char*, int, int)
    int PAGE_FILE_FLAGS "O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW"

cdef enum:
    PAGE_WHOLE = 16384       # bytes, as `raw_writer.HEADER_PAGE` says
    PAGE_HEAD = 16
    PAGE_DATA = PAGE_WHOLE - PAGE_HEAD
    PAGE_COUNT = 8           # bytes of the number of lost events, behind the data
    PAGE_MOST_CPUS = 4096
    PAGE_LONGEST = PAGE_DATA - PAGE_COUNT - 16   # bytes of a record: with its time, and a loss
    PAGE_HELD = 64 << 20     # bytes of all that is held at most
    PAGE_EXTEND = 30
    PAGE_OPEN = 64           # files that are open at a time
    PAGE_LOST = -1           # instead of a record's length: events that were lost

cdef extern from *:
    """
    #define CRITPATH_PAGE_MISSED 0x80000000u
    #define CRITPATH_PAGE_STORED 0x40000000u
    """
    const uint32_t PAGE_MISSED "CRITPATH_PAGE_MISSED"
    const uint32_t PAGE_STORED "CRITPATH_PAGE_STORED"

ctypedef struct HeldRecord:
    uint64_t time
    int64_t at              # of its bytes; their order is that in which they came
    int64_t length          # bytes, or PAGE_LOST, with the number of events as its bytes

ctypedef struct CpuPages:
    uint8_t* page           # NULL: nothing of this cpu yet
    int64_t used            # bytes of its data
    uint64_t time           # of the last entry
    int64_t missed          # events lost before the page; 0: none, -1: so many are not known
    uint64_t first, last    # of all records
    int64_t records, late, too_long, lost
    int64_t unknown         # losses without a number, each of which counts as one
    HeldRecord* held
    int64_t held_count, held_room
    uint8_t* bytes
    int64_t bytes_used, bytes_room
    int in_order
    int file                # its descriptor plus 1; 0: not open


cdef int compare_held(const void* a, const void* b) noexcept nogil:
    cdef const HeldRecord* one = <const HeldRecord*>a
    cdef const HeldRecord* other = <const HeldRecord*>b
    if one.time != other.time:
        return -1 if one.time < other.time else 1
    return -1 if one.at < other.at else one.at > other.at  # as they came


cdef class PageWriter:
    """Writes ``cpuN`` below a directory.

    Parameters
    ----------
    directory : str
    big_endian : bool
        Whether the traced machine was: the byte order of the records.
    held : bool
        Whether records of a cpu come out of order: they are held, and put in order, until
        `flush_until`.  One that is earlier than what is written already gets the last one's time,
        and is counted as late.
    """

    cdef CpuPages* cpus
    cdef bytes directory
    cdef int big_endian, held
    cdef int64_t held_bytes, cpu_count   # cpus up to the highest that has anything
    cdef int64_t open_count              # files

    def __cinit__(self, str directory, *, bint big_endian=False, bint held=False):
        self.directory = os.fsencode(directory)
        self.big_endian, self.held, self.held_bytes, self.cpu_count = big_endian, held, 0, 0
        self.cpus = <CpuPages*>calloc(PAGE_MOST_CPUS, sizeof(CpuPages))
        if self.cpus == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef int64_t cpu
        if self.cpus != NULL:
            self.close_files()
            for cpu in range(PAGE_MOST_CPUS):
                free(self.cpus[cpu].page)
                free(self.cpus[cpu].held)
                free(self.cpus[cpu].bytes)
            free(self.cpus)

    def add(self, uint32_t cpu, uint64_t time, const uint8_t[::1] record not None):
        """Append a record; see `append`."""
        self.append(cpu, time, &record[0] if record.shape[0] else NULL, record.shape[0])

    def add_loss(self, uint32_t cpu, uint64_t time, int64_t count):
        """Note a loss; see `lose`."""
        self.lose(cpu, time, count)

    cdef int append(self, int64_t cpu, uint64_t time, const uint8_t* record,
                    int64_t length) except -1 nogil:
        """Append a record of a cpu; one that is too long for a page is counted and left out."""
        cdef CpuPages* of = self.of_cpu(cpu)
        if length > PAGE_LONGEST:
            of.too_long += 1
            return 0
        if self.held:
            return self.hold(of, cpu, time, record, length)
        return self.put(of, cpu, time, record, length)

    cdef int lose(self, int64_t cpu, uint64_t time, int64_t count) except -1 nogil:
        """Note that events of a cpu were lost before `time`; a count of 0: so many is not known."""
        cdef CpuPages* of = self.of_cpu(cpu)
        count = max(count, 0)
        if self.held:
            self.hold(of, cpu, time, <const uint8_t*>&count, sizeof(count))
            of.held[of.held_count - 1].length = PAGE_LOST
            return 0
        return self.put_loss(of, cpu, time, count)

    cdef CpuPages* of_cpu(self, int64_t cpu) except NULL nogil:
        cdef CpuPages* of
        if not 0 <= cpu < PAGE_MOST_CPUS:
            with gil:
                raise ValueError(f"a cpu of the number {cpu}, and {PAGE_MOST_CPUS} are the most")
        of = &self.cpus[cpu]
        if of.page == NULL:
            of.page = <uint8_t*>calloc(1, PAGE_WHOLE)
            if of.page == NULL:
                with gil:
                    raise MemoryError
            of.in_order = 1
            self.cpu_count = max(self.cpu_count, cpu + 1)
        return of

    cdef int hold(self, CpuPages* of, int64_t cpu, uint64_t time, const uint8_t* record,
                  int64_t length) except -1 nogil:
        cdef void* more
        cdef HeldRecord* one
        if self.held_bytes > PAGE_HELD:
            # More than is held at once: what is late then is counted.
            self.flush_half()
        if of.held_count == of.held_room:
            of.held_room = 2 * of.held_room + 256
            more = realloc(of.held, of.held_room * sizeof(HeldRecord))
            if more == NULL:
                with gil:
                    raise MemoryError
            of.held = <HeldRecord*>more
        if of.bytes_used + length > of.bytes_room:
            of.bytes_room = 2 * of.bytes_room + length + 4096
            more = realloc(of.bytes, of.bytes_room)
            if more == NULL:
                with gil:
                    raise MemoryError
            of.bytes = <uint8_t*>more
        one = &of.held[of.held_count]
        one.time, one.at, one.length = time, of.bytes_used, length
        if length:
            memcpy(of.bytes + of.bytes_used, record, length)
        if of.held_count and time < of.held[of.held_count - 1].time:
            of.in_order = 0
        of.bytes_used += length
        of.held_count += 1
        self.held_bytes += length + sizeof(HeldRecord)
        return 0

    def flush_until(self, uint64_t time):
        """Write what is held up to a time, which nothing that comes later is before."""
        with nogil:
            self.flush_all(time)

    cdef int flush_half(self) except -1 nogil:
        """Write the older half of what is held."""
        cdef int64_t cpu, each
        cdef CpuPages* of
        for cpu in range(self.cpu_count):
            of = &self.cpus[cpu]
            if of.held_count:
                self.sort_held(of)
                self.flush(of, cpu, of.held[(of.held_count - 1) // 2].time)
        return 0

    cdef int flush_all(self, uint64_t time) except -1 nogil:
        cdef int64_t cpu
        for cpu in range(self.cpu_count):
            if self.cpus[cpu].held_count:
                self.sort_held(&self.cpus[cpu])
                self.flush(&self.cpus[cpu], cpu, time)
        return 0

    cdef void sort_held(self, CpuPages* of) noexcept nogil:
        """Sort by time, those of one time as they came."""
        if not of.in_order:
            qsort(of.held, of.held_count, sizeof(HeldRecord), compare_held)
            of.in_order = 1

    cdef int flush(self, CpuPages* of, int64_t cpu, uint64_t time) except -1 nogil:
        """Write what is held of a cpu, in order, up to a time."""
        cdef int64_t number = 0, left, moved = 0
        cdef HeldRecord* one
        cdef uint8_t* kept
        cdef int64_t count, size
        while number < of.held_count and of.held[number].time <= time:
            one = &of.held[number]
            size = one.length
            if size == PAGE_LOST:
                memcpy(&count, of.bytes + one.at, sizeof(count))
                self.put_loss(of, cpu, one.time, count)
                size = sizeof(count)
            else:
                self.put(of, cpu, one.time, of.bytes + one.at, size)
            self.held_bytes -= size + sizeof(HeldRecord)
            number += 1
        left = of.held_count - number
        if number == 0:
            return 0
        if left == 0:
            of.held_count = of.bytes_used = 0
            return 0
        # The bytes of those that stay are moved together; their order is no longer that of places.
        kept = <uint8_t*>realloc(NULL, max(of.bytes_used, 1))
        if kept == NULL:
            with gil:
                raise MemoryError
        for number in range(number, of.held_count):
            one = &of.held[number]
            size = sizeof(count) if one.length == PAGE_LOST else one.length
            memcpy(kept + moved, of.bytes + one.at, size)
            one.at = moved
            moved += size
            of.held[number - (of.held_count - left)] = one[0]
        free(of.bytes)
        of.bytes, of.bytes_room, of.bytes_used = kept, max(of.bytes_used, 1), moved
        of.held_count = left
        return 0

    cdef int put(self, CpuPages* of, int64_t cpu, uint64_t time, const uint8_t* record,
                 int64_t length) except -1 nogil:
        cdef int64_t padded = (max(length, 4) + 3) & ~<int64_t>3
        cdef int64_t need = 4 + padded + (4 if padded > 112 else 0)
        cdef uint64_t delta
        cdef uint8_t* to
        if of.records and time < of.last:
            time = of.last
            of.late += 1
        if of.used + need + 8 > PAGE_DATA - (PAGE_COUNT if of.missed else 0):
            self.write_page(of, cpu)
        if of.used == 0:
            self.begin_page(of, time)
        delta = time - of.time
        if delta >= 1 << 27:
            self.put_entry(of, PAGE_EXTEND, delta & 0x7FFFFFF)
            self.put_word(of, <uint32_t>(delta >> 27))
            delta = 0
        self.put_entry(of, 0 if padded > 112 else <uint32_t>(padded >> 2), delta)
        if padded > 112:
            self.put_word(of, <uint32_t>(padded + 4))
        to = of.page + PAGE_HEAD + of.used
        if length:
            memcpy(to, record, length)
        memset(to + length, 0, padded - length)
        of.used += padded
        of.time = time
        if of.records == 0:
            of.first = time
        of.last = time
        of.records += 1
        return 0

    cdef int put_loss(self, CpuPages* of, int64_t cpu, uint64_t time, int64_t count) except -1 nogil:
        """End the page: a loss stands before the next."""
        if of.used:
            self.write_page(of, cpu)
        self.begin_page(of, max(time, of.last) if of.records else time)
        if count:
            of.lost += count
            of.missed = count if of.missed <= 0 else of.missed + count
        else:
            of.lost += 1
            of.unknown += 1
            if of.missed == 0:
                of.missed = -1
        return 0

    cdef void begin_page(self, CpuPages* of, uint64_t time) noexcept nogil:
        of.time = time
        self.store(of.page, time, 8)

    cdef int write_page(self, CpuPages* of, int64_t cpu) except -1 nogil:
        """Write the page and begin an empty one."""
        cdef uint32_t commit = <uint32_t>of.used
        cdef int64_t done = 0
        cdef ssize_t now
        cdef int failed = 0
        if of.missed:
            commit |= PAGE_MISSED
        if of.missed > 0:
            commit |= PAGE_STORED
            self.store(of.page + PAGE_HEAD + of.used, of.missed, PAGE_COUNT)
        self.store(of.page + 8, commit, 8)
        done = PAGE_HEAD + of.used + (PAGE_COUNT if of.missed > 0 else 0)
        memset(of.page + done, 0, PAGE_WHOLE - done)
        done = 0
        if of.file == 0:
            self.open_file(of, cpu)
        while done < PAGE_WHOLE and not failed:
            now = posix_write_page(of.file - 1, of.page + done, PAGE_WHOLE - done)
            if now >= 0:
                done += now
            elif errno != EINTR:
                failed = errno
        if failed:
            with gil:
                raise OSError(failed, os.strerror(failed), self.name(cpu))
        of.used = of.missed = 0
        return 0

    cdef int open_file(self, CpuPages* of, int64_t cpu) except -1 nogil:
        cdef int descriptor
        cdef const char* place
        if self.open_count == PAGE_OPEN:
            self.close_files()
        with gil:
            name = os.fsencode(self.name(cpu))
            place = name
            descriptor = posix_open_page(place, PAGE_FILE_FLAGS, 0o600)
            if descriptor < 0:
                raise OSError(errno, os.strerror(errno), self.name(cpu))
        of.file = descriptor + 1
        self.open_count += 1
        return 0

    cdef void close_files(self) noexcept nogil:
        cdef int64_t cpu
        for cpu in range(self.cpu_count):
            if self.cpus[cpu].file:
                posix_close_page(self.cpus[cpu].file - 1)
                self.cpus[cpu].file = 0
        self.open_count = 0

    def name(self, int64_t cpu):
        """Return the file of a cpu."""
        return os.fsdecode(b"%s/cpu%d" % (self.directory, cpu))

    cdef void put_entry(self, CpuPages* of, uint32_t kind, uint64_t delta) noexcept nogil:
        """Put an entry's head: bit-fields are allocated from the other end where it is big."""
        if self.big_endian:
            self.put_word(of, kind << 27 | <uint32_t>delta)
        else:
            self.put_word(of, kind | <uint32_t>delta << 5)

    cdef void put_word(self, CpuPages* of, uint32_t word) noexcept nogil:
        self.store(of.page + PAGE_HEAD + of.used, word, 4)
        of.used += 4

    cdef void store(self, uint8_t* to, uint64_t value, int size) noexcept nogil:
        cdef int i
        for i in range(size):
            to[size - 1 - i if self.big_endian else i] = <uint8_t>(value >> 8 * i)

    def close(self):
        """Write all that is held and begun, and return what was written of each cpu.

        By cpu: how many records, the first and last time (ns), how many were late, how many too
        long and left out, how many events were lost, and how many of these stand for losses of an
        unknown number.
        """
        cdef int64_t cpu
        cdef CpuPages* of
        found = {}
        self.flush_all(<uint64_t>-1)
        for cpu in range(self.cpu_count):
            of = &self.cpus[cpu]
            if of.page == NULL:
                continue
            if of.used or of.missed:
                self.write_page(of, cpu)
            found[cpu] = (
                of.records, of.first, of.last, of.late, of.too_long, of.lost, of.unknown
            )
        self.close_files()
        return found
