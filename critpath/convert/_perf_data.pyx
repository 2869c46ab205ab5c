# cython: language_level=3
"""Goes through the records of a perf.data: the only code of its reader that runs per event.

Nothing outside of what was given is ever read, whatever a record says: one whose parts do not
fit into it is counted as malformed, and as lost.
"""

include "_page_writer.pxi"

from libc.stdlib cimport malloc

cdef enum:
    # numbers of records (include/uapi/linux/perf_event.h, tools/lib/perf/include/perf/event.h)
    SAMPLE = 9
    FINISHED_ROUND = 68
    KINDS = 256

    # words of a layout: see `perf_data.SampleLayout`
    TAKEN = 0
    TIME_AT = 1
    TID_AT = 2
    CPU_AT = 3
    FIXED = 4
    READ = 5
    CALLCHAIN = 6
    WIDTH = 8

    # read_format
    READ_ENABLED = 1
    READ_RUNNING = 2
    READ_ID = 4
    READ_GROUP = 8
    READ_LOST = 16

    THREADS_MOST = 1 << 21   # of which it is kept to which process they belong
    HEAD = 8                 # bytes of a record's header
    RAW_LEAST = 8            # bytes that every tracepoint's record has

cdef extern from *:
    """
    #define CRITPATH_PERF_LATEST 0x7fffffffffffffffull
    """
    const uint64_t LATEST "CRITPATH_PERF_LATEST"


cdef inline uint16_t take16(const uint8_t* p, int swapped) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p, 2)
    return <uint16_t>(v << 8 | v >> 8) if swapped else v


cdef inline uint32_t take32(const uint8_t* p, int swapped) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    if swapped:
        v = v << 24 | (v & 0xFF00) << 8 | (v >> 8 & 0xFF00) | v >> 24
    return v


cdef inline uint64_t take64(const uint8_t* p, int swapped) noexcept nogil:
    cdef uint64_t v
    if swapped:
        return <uint64_t>take32(p, 1) << 32 | take32(p + 4, 1)
    memcpy(&v, p, 8)
    return v


cdef inline uint64_t place_of(uint64_t key, uint64_t mask) noexcept nogil:
    return (key * 0x9E3779B97F4A7C15ull >> 20) & mask


cdef class PerfRecords:
    """Takes the samples of tracepoints out of records and writes them into pages.

    Parameters
    ----------
    pages : PageWriter
        Where they are written; closed by `close`.
    big_endian : bool
        The byte order of the file.
    """

    cdef PageWriter pages
    cdef int swapped, waiting
    cdef int32_t* layouts
    cdef int64_t layout_count
    cdef uint64_t* ids            # open addressing: an id and the number of its layout plus 1
    cdef uint64_t id_mask
    cdef int64_t id_at
    cdef uint32_t* threads        # the same: thread id, and process id
    cdef uint64_t thread_mask
    cdef uint32_t last_tid
    cdef int64_t thread_count
    cdef readonly uint64_t latest    # time of any sample so far
    cdef uint64_t round_end
    cdef int64_t kinds[KINDS]
    cdef readonly int64_t samples, others, unknown, malformed, unplaced

    def __cinit__(self, str directory, *, bint big_endian=False):
        self.pages = PageWriter(directory, big_endian=big_endian, held=True)
        self.swapped, self.waiting = big_endian, 1
        self.layouts, self.ids, self.threads = NULL, NULL, NULL
        self.id_at = -1
        self.thread_mask = 1023
        self.threads = <uint32_t*>calloc(1024, 8)
        if self.threads == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.layouts)
        free(self.ids)
        free(self.threads)

    def wait_for_layouts(self):
        """Hand on the next sample instead of taking it: its event has only now become known."""
        self.waiting = 1

    def set_layouts(self, layouts, ids, int64_t id_at):
        """Say what samples look like.

        `layouts`: words of each event's.  `ids`: pairs of an id and the number of its layout.
        `id_at`: where a sample has its id; -1 where all are of one layout, the first.
        """
        cdef int64_t number, count = len(layouts)
        cdef const uint64_t[::1] pairs = ids
        cdef uint64_t room = 16, place
        if len(layouts) % WIDTH:
            raise ValueError("layouts of another width")
        free(self.layouts)
        self.layouts = <int32_t*>malloc(max(count, 1) * 4)
        if self.layouts == NULL:
            raise MemoryError
        for number in range(count):
            self.layouts[number] = layouts[number]
        self.layout_count, self.id_at = count // WIDTH, id_at
        while room < <uint64_t>pairs.shape[0] * 2:
            room *= 2
        free(self.ids)
        self.ids, self.id_mask = <uint64_t*>calloc(room, 16), room - 1
        if self.ids == NULL:
            raise MemoryError
        for number in range(0, pairs.shape[0] - 1, 2):
            if pairs[number + 1] >= <uint64_t>self.layout_count:
                raise ValueError("an id of no layout")
            place = place_of(pairs[number], self.id_mask)
            while self.ids[2 * place + 1] and self.ids[2 * place] != pairs[number]:
                place = (place + 1) & self.id_mask
            self.ids[2 * place], self.ids[2 * place + 1] = pairs[number], pairs[number + 1] + 1
        self.waiting = 0

    def lose(self, uint32_t cpu, uint64_t time, int64_t count):
        """Note that events of a cpu were lost before `time` (0: so many are not known)."""
        self.pages.lose(cpu, time, count)

    def run(self, const uint8_t[::1] data not None, int64_t at, *, bint rounds=True,
            bint whole=True):
        """Go through records from `at` on, up to one that is not for here.

        `rounds`: what says that a round is finished stands in order with the samples.  `whole`:
        nothing follows these bytes.  Returns where it stopped, and the kind of the record there; 0
        at the end of what is whole, -1 where a record's size is none.
        """
        cdef const uint8_t* p = &data[0] if data.shape[0] else NULL
        cdef int64_t total = data.shape[0]
        cdef int kind = 0
        if at < 0:
            raise ValueError("a place before the begin")
        with nogil:
            kind = self.go(p, total, &at, rounds)
        if kind == 0 and whole and at < total:
            kind = -1
        return at, kind

    cdef int go(self, const uint8_t* p, int64_t total, int64_t* place,
                int rounds) except -2 nogil:
        cdef int64_t at = place[0], size
        cdef uint32_t kind
        while True:
            place[0] = at
            if total - at < HEAD:
                return 0
            kind, size = take32(p + at, self.swapped), take16(p + at + 6, self.swapped)
            if size < HEAD:
                return -1
            if size > total - at:
                return 0
            if kind == SAMPLE and self.waiting:
                return SAMPLE
            self.kinds[min(kind, KINDS - 1)] += 1
            if kind == SAMPLE:
                self.take(p + at, size)
            elif kind == FINISHED_ROUND and rounds:
                # What comes from now on is not earlier than what was there when the round before
                # ended.
                self.pages.flush_all(self.round_end)
                self.round_end = self.latest
            elif self.is_handed_on(kind):
                return <int>kind
            at += size

    cdef inline int is_handed_on(self, uint32_t kind) noexcept nogil:
        """Whether `perf_data` has to do with such records: it names them."""
        # LOST, COMM, THROTTLE, FORK, LOST_SAMPLES, HEADER_ATTR, TRACING_DATA, ID_INDEX, AUXTRACE,
        # THREAD_MAP, HEADER_FEATURE, COMPRESSED, COMPRESSED2
        return (kind == 2 or kind == 3 or kind == 5 or kind == 7 or kind == 13 or kind == 64
                or kind == 66 or kind == 69 or kind == 71 or kind == 73 or kind == 80 or kind == 81
                or kind == 83)

    cdef int take(self, const uint8_t* p, int64_t size) except -1 nogil:
        """Write a sample's raw data, if it is of a tracepoint."""
        cdef const int32_t* of = self.layouts
        cdef uint64_t found, key, time
        cdef uint32_t cpu, length
        cdef int64_t at
        if self.layout_count == 0:
            self.unknown += 1
            return 0
        if self.id_at >= 0:
            if self.id_at + 8 > size:
                self.malformed += 1
                return 0
            key = take64(p + self.id_at, self.swapped)
            found = place_of(key, self.id_mask)
            while self.ids[2 * found + 1] and self.ids[2 * found] != key:
                found = (found + 1) & self.id_mask
            if self.ids[2 * found + 1] == 0:
                self.unknown += 1
                return 0
            of = self.layouts + WIDTH * (self.ids[2 * found + 1] - 1)
        if not of[TAKEN]:
            self.others += 1
            return 0
        if of[FIXED] > size:
            self.malformed += 1
            return 0
        time, cpu = take64(p + of[TIME_AT], self.swapped), take32(p + of[CPU_AT], self.swapped)
        if cpu >= PAGE_MOST_CPUS:
            self.unplaced += 1
            return 0
        at = of[FIXED]
        if of[READ] >= 0:
            at = self.skip_read(p, at, size, of[READ])
        if of[CALLCHAIN] and at >= 0:
            at = self.skip_counted(p, at, size, 8)
        if at < 0 or size - at < 4 or time > LATEST:
            return self.lose_one(cpu)
        length = take32(p + at, self.swapped)
        if length < RAW_LEAST or length > size - at - 4:
            return self.lose_one(cpu)
        self.samples += 1
        if time > self.latest:
            self.latest = time
        if of[TID_AT] >= 0:
            self.note_thread(take32(p + of[TID_AT] + 4, self.swapped),
                             take32(p + of[TID_AT], self.swapped))
        return self.pages.append(cpu, time, p + at + 4, length)

    cdef int lose_one(self, uint32_t cpu) except -1 nogil:
        self.malformed += 1
        return self.pages.lose(cpu, self.latest, 1)

    cdef inline int64_t skip_counted(self, const uint8_t* p, int64_t at, int64_t size,
                                     int64_t each) noexcept nogil:
        """Return the place behind a number and as many parts; -1 if they are not there."""
        cdef uint64_t count
        if size - at < 8:
            return -1
        count = take64(p + at, self.swapped)
        if count > <uint64_t>(size - at - 8) // <uint64_t>each:
            return -1
        return at + 8 + <int64_t>count * each

    cdef inline int64_t skip_read(self, const uint8_t* p, int64_t at, int64_t size,
                                  int32_t form) noexcept nogil:
        """Return the place behind a counter's values; -1 if they are not there."""
        cdef int64_t times = 8 * (<int>((form & READ_ENABLED) != 0)
                                  + <int>((form & READ_RUNNING) != 0))
        cdef int64_t each = 8 + 8 * (<int>((form & READ_ID) != 0) + <int>((form & READ_LOST) != 0))
        cdef uint64_t count = 1
        if form & READ_GROUP:
            if size - at < 8 + times:
                return -1
            count = take64(p + at, self.swapped)
            at += 8
        at += times
        if at > size or count > <uint64_t>(size - at) // <uint64_t>each:
            return -1
        return at + <int64_t>count * each

    cdef int note_thread(self, uint32_t tid, uint32_t pid) except -1 nogil:
        """Keep the process that a thread was first seen in."""
        cdef uint64_t place
        if tid == self.last_tid or tid == 0 or tid > 0x7FFFFFFF or pid == 0 or pid > 0x7FFFFFFF:
            return 0
        self.last_tid = tid
        place = place_of(tid, self.thread_mask)
        while self.threads[2 * place]:
            if self.threads[2 * place] == tid:
                return 0
            place = (place + 1) & self.thread_mask
        if self.thread_count >= THREADS_MOST:
            return 0
        self.threads[2 * place], self.threads[2 * place + 1] = tid, pid
        self.thread_count += 1
        if 2 * self.thread_count > <int64_t>self.thread_mask:
            self.grow_threads()
        return 0

    cdef int grow_threads(self) except -1 nogil:
        cdef uint64_t mask = 2 * self.thread_mask + 1, old, place
        cdef uint32_t* more = <uint32_t*>calloc(mask + 1, 8)
        if more == NULL:
            with gil:
                raise MemoryError
        for old in range(self.thread_mask + 1):
            if self.threads[2 * old] == 0:
                continue
            place = place_of(self.threads[2 * old], mask)
            while more[2 * place]:
                place = (place + 1) & mask
            more[2 * place], more[2 * place + 1] = self.threads[2 * old], self.threads[2 * old + 1]
        free(self.threads)
        self.threads, self.thread_mask = more, mask
        return 0

    def count_kinds(self):
        """Return how many records there were of each kind that occurred; the last: and others."""
        cdef int kind
        return {kind: self.kinds[kind] for kind in range(KINDS) if self.kinds[kind]}

    def seen_threads(self):
        """Return the process of each thread that was seen."""
        cdef uint64_t place
        return {
            self.threads[2 * place]: self.threads[2 * place + 1]
            for place in range(self.thread_mask + 1) if self.threads[2 * place]
        }

    def close(self):
        """Write all that is held and return what was written: see `PageWriter.close`."""
        return self.pages.close()
