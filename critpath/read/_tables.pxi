# What the decoder knows of a trace.  Included by _decode.pyx.

cdef enum:
    PACKET_COLUMNS = 17
    DENSE_IDS = 65536
    SLACK = 16
    WINDOW = 262144  # bytes of a file at a time: more would not stay in the cache
    MOST_WAYS = 4
    MOST_PACKETS = 4194304

cdef struct Class:
    int64_t pc      # program of contexts and payload
    int64_t align   # if bits >= 0: skip by aligning and adding
    int64_t bits
    int32_t row     # index into the event classes, -1: nobody asked
    int32_t fields

# One way that an event header of known layout can go on behind its selector.
cdef struct Way:
    int64_t low     # values of the selector
    int64_t high
    int64_t bits    # of the whole header
    int64_t id_at   # bits from the header's begin
    int64_t id_bits
    int64_t ts_at
    int64_t ts_bits

cdef struct Stream:
    int64_t id
    int64_t context_pc
    int64_t header_pc
    int64_t present   # bit per role register
    uint64_t frequency
    int64_t shift
    int64_t align     # of the event header
    int64_t select_at
    int64_t select_bits
    int64_t way_count  # 0: the header needs its program
    Way ways[MOST_WAYS]
    int32_t* dense    # id -> class + 1
    int64_t* wide     # pairs id, class
    int64_t wide_count


cdef inline int flat_header(const uint8_t* buf, int64_t limit, const Stream* stream,
                            int64_t* at, uint64_t* clock, int64_t* id) noexcept nogil:
    """Decode an event header whose fields have fixed places once its selector is known."""
    cdef int64_t pos = (at[0] + stream.align - 1) & -stream.align
    cdef int64_t selector, i
    cdef uint64_t ts, mask
    cdef const Way* way = stream.ways
    if pos + stream.select_at + stream.select_bits > limit:
        return OUTSIDE
    selector = <int64_t>bits_le(buf, pos + stream.select_at, stream.select_bits)
    for i in range(stream.way_count):
        if way.low <= selector and selector <= way.high:
            break
        way += 1
    else:
        return BAD_OPTION
    if pos + way.bits > limit:
        return OUTSIDE
    id[0] = <int64_t>bits_le(buf, pos + way.id_at, way.id_bits)
    if way.ts_bits == 64:
        clock[0] = bits_le(buf, pos + way.ts_at, 64)
    elif way.ts_bits:
        ts = bits_le(buf, pos + way.ts_at, way.ts_bits)
        mask = ((<uint64_t>1) << way.ts_bits) - 1
        if ts < (clock[0] & mask):
            clock[0] += mask + 1
        clock[0] = (clock[0] & ~mask) | ts
    at[0] = pos + way.bits
    return OK


cdef class Tables:
    """What the metadata said, as the decoder needs it: programs, streams, classes."""

    cdef State s
    cdef Strings strings
    cdef Step* steps_memory
    cdef int64_t steps_count
    cdef int64_t* table_memory
    cdef int64_t table_count
    cdef int64_t* regs
    cdef int64_t regs_count
    cdef Stream* streams
    cdef int64_t stream_count
    cdef Class* classes
    cdef int64_t class_count
    cdef int64_t header_pc
    cdef int64_t header_present

    def __cinit__(self):
        self.s.strings = &self.strings
        self.strings.entry_room = 64
        self.strings.entries = <Entry*>calloc(64, sizeof(Entry))
        if self.strings.entries == NULL or not strings_grow_slots(&self.strings):
            raise MemoryError
        # Code 0 is the empty string, which `intern` never looks up.
        self.strings.count = 1

    def __dealloc__(self):
        self._drop_trace()
        free(self.strings.bytes)
        free(self.strings.entries)
        free(self.strings.slots)
        free(self.steps_memory)
        free(self.table_memory)
        free(self.regs)

    cdef void _drop_trace(self) noexcept:
        cdef int64_t i
        for i in range(self.stream_count):
            free(self.streams[i].dense)
            free(self.streams[i].wide)
        free(self.streams)
        free(self.classes)
        self.streams = NULL
        self.classes = NULL
        self.stream_count = self.class_count = 0
        self.steps_count = self.table_count = 0

    def trace(self, int64_t header_pc, int64_t present):
        """Begin a trace: its packet header's program, and the roles it sets."""
        self._drop_trace()
        self.header_pc = header_pc
        self.header_present = present

    def steps(self, int64_t[:, ::1] steps, int64_t[:, ::1] table, int64_t registers):
        """Append to the program and its table of ranges; make room for registers."""
        cdef int64_t n = steps.shape[0], m = table.shape[0]
        cdef void* p = realloc(self.steps_memory, (self.steps_count + n + 1) * sizeof(Step))
        if p == NULL:
            raise MemoryError
        self.steps_memory = <Step*>p
        if n:
            memcpy(self.steps_memory + self.steps_count, &steps[0, 0], n * sizeof(Step))
        self.steps_count += n
        p = realloc(self.table_memory, (self.table_count + m + 1) * 24)
        if p == NULL:
            raise MemoryError
        self.table_memory = <int64_t*>p
        if m:
            memcpy(self.table_memory + 3 * self.table_count, &table[0, 0], m * 24)
        self.table_count += m
        if registers > self.regs_count:
            p = realloc(self.regs, registers * 8)
            if p == NULL:
                raise MemoryError
            self.regs = <int64_t*>p
            memset(self.regs + self.regs_count, 0, (registers - self.regs_count) * 8)
            self.regs_count = registers

    def stream(self, int64_t id, int64_t context_pc, int64_t header_pc, int64_t present,
               uint64_t frequency, int64_t shift, flat=None):
        """Add a stream class (counted from 0) with its clock and what to add to it in ns."""
        cdef void* p = realloc(self.streams, (self.stream_count + 1) * sizeof(Stream))
        cdef Stream* added
        if p == NULL:
            raise MemoryError
        self.streams = <Stream*>p
        added = &self.streams[self.stream_count]
        memset(added, 0, sizeof(Stream))
        added.id, added.context_pc = id, context_pc
        added.header_pc, added.present = header_pc, present
        added.frequency, added.shift = frequency, shift
        added.dense = <int32_t*>calloc(DENSE_IDS, sizeof(int32_t))
        if added.dense == NULL:
            raise MemoryError
        if flat is not None:
            added.align, added.select_at, added.select_bits = flat[0]
            for i, way in enumerate(flat[1]):
                low, high, bits, id_at, id_bits, ts_at, ts_bits = way
                added.ways[i] = Way(low, high, bits, id_at, id_bits, ts_at, ts_bits)
            added.way_count = len(flat[1])
        self.stream_count += 1

    def event_class(self, int64_t stream, int64_t id, int64_t pc, int64_t align, int64_t bits,
                    int32_t row, int32_t fields):
        """Answer what `run` asked for: an event class of a stream class."""
        cdef Stream* owner = &self.streams[stream]
        cdef void* p = realloc(self.classes, (self.class_count + 1) * sizeof(Class))
        if p == NULL:
            raise MemoryError
        self.classes = <Class*>p
        self.classes[self.class_count] = Class(pc, align, bits, row, fields)
        if 0 <= id < DENSE_IDS:
            owner.dense[id] = <int32_t>(self.class_count + 1)
        else:
            p = realloc(owner.wide, (owner.wide_count + 1) * 16)
            if p == NULL:
                raise MemoryError
            owner.wide = <int64_t*>p
            owner.wide[2 * owner.wide_count] = id
            owner.wide[2 * owner.wide_count + 1] = self.class_count
            owner.wide_count += 1
        self.class_count += 1

    def texts(self):
        """The interned strings as (bytes, encoding), in order of their codes."""
        cdef int64_t i
        cdef Entry* e
        result = [(b"", 0)]
        for i in range(1, self.strings.count):
            e = &self.strings.entries[i]
            result.append((self.strings.bytes[e.offset:e.offset + e.length], e.tag))
        return result
