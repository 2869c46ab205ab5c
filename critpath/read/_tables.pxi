# What the decoder knows of a trace.  Included by _decode.pyx.

cdef enum:
    DENSE_IDS = 65536
    SLACK = 16
    WINDOW = 262144  # bytes of a file at a time: more would not stay in the cache
    FIRST_WINDOW = 16384  # where a decoder stops after some rows
    SPILL = 16       # values behind the last that a merge may copy without looking
    MOST_WAYS = 4
    MOST_PACKETS = 4194304

cdef struct Class:
    int64_t pc      # program of contexts and payload
    int64_t align   # if bits >= 0: skip by aligning and adding
    int64_t bits
    int32_t row     # index into the event classes, -1: not wanted
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

include "_fast.pxi"


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
    Start start


# What the metadata of one trace describes: programs, stream classes, event classes.
cdef struct TraceTables:
    Step* steps
    int64_t step_count
    int64_t* table
    int64_t table_count
    int64_t register_count
    Stream* streams
    int64_t stream_count
    Class* classes
    int64_t class_count
    int64_t header_pc
    int64_t header_present

# The memory through which stream files are looked at: one for all of a recording, as
# only the one being decoded needs it, so that it stays in the cache.
cdef struct SharedWindow:
    uint8_t* data
    int64_t room
    void* owner  # whose file is in it


cdef inline int flat_header(const uint8_t* buf, int64_t limit, const Stream* stream,
                            int64_t* at, uint64_t* clock, int64_t* id) noexcept nogil:
    """Decode an event header whose fields have fixed places once its selector is known."""
    cdef int64_t pos = (at[0] + stream.align - 1) & -stream.align
    cdef int64_t selector, i
    cdef uint64_t ts, mask
    cdef const Way* way = stream.ways
    if pos + stream.select_at + stream.select_bits > limit:
        return DAMAGE_OUTSIDE
    selector = <int64_t>bits_le(buf, pos + stream.select_at, stream.select_bits)
    for i in range(stream.way_count):
        if way.low <= selector and selector <= way.high:
            break
        way += 1
    else:
        return DAMAGE_BAD_OPTION
    if pos + way.bits > limit:
        return DAMAGE_OUTSIDE
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


cdef class Recording:
    """What all stream files of a recording share: interned texts, and a window."""

    cdef Strings strings
    cdef Name* names
    cdef SharedWindow shared
    cdef int64_t* widths  # values of an event, by its class's row
    cdef int64_t width_room, widest

    def __cinit__(self):
        self.strings.entry_room = 64
        self.strings.entries = <Entry*>calloc(64, sizeof(Entry))
        if self.strings.entries == NULL or not strings_grow_slots(&self.strings):
            raise MemoryError
        # Code 0 is the empty string, which `intern` never looks up.
        self.strings.count = 1
        self.names = <Name*>calloc(1 << NAME_BITS, sizeof(Name))
        if self.names == NULL:
            raise MemoryError
        self.shared.data = <uint8_t*>borrow(&self.shared.room)

    def __dealloc__(self):
        free(self.strings.bytes)
        free(self.strings.entries)
        free(self.strings.slots)
        free(self.names)
        free(self.widths)
        give_back(self.shared.data, self.shared.room)

    def code(self, const uint8_t[::1] text):
        """The code of a text in UTF-8."""
        cdef int64_t found = 0
        if text.shape[0]:
            found = intern(&self.strings, &text[0], text.shape[0], 0)
        if found < 0:
            raise MemoryError
        return found

    def texts(self, int64_t begin=0):
        """The interned strings from a code on, as (bytes, encoding)."""
        cdef int64_t i
        cdef Entry* e
        result = []
        for i in range(begin, self.strings.count):
            e = &self.strings.entries[i]
            result.append((self.strings.bytes[e.offset:e.offset + e.length] if i else b"", e.tag))
        return result

    cdef int width(self, int64_t row, int64_t values) except -1:
        """Note how many values events of a class have."""
        cdef void* p
        cdef int64_t room
        if row >= self.width_room:
            room = 2 * row + 64
            p = realloc(self.widths, room * 8)
            if p == NULL:
                raise MemoryError
            self.widths, self.width_room = <int64_t*>p, room
        self.widths[row] = values
        if values > self.widest:
            self.widest = values
        return 0


cdef class Tables:
    """What the metadata of a trace describes, as decoders need it: programs, streams, classes."""

    cdef Recording recording
    cdef TraceTables of

    def __init__(self, Recording recording, int64_t header_pc, int64_t present):
        """Begin a trace: its packet header's program, and the roles it sets."""
        self.recording = recording
        self.of.header_pc = header_pc
        self.of.header_present = present

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.of.stream_count):
            free(self.of.streams[i].dense)
            free(self.of.streams[i].wide)
            free(self.of.streams[i].start.strides)
            free(self.of.streams[i].start.table)
        free(self.of.streams)
        free(self.of.classes)
        free(self.of.steps)
        free(self.of.table)

    def steps(self, int64_t[:, ::1] steps, int64_t[:, ::1] table, int64_t registers):
        """Append to the program and its table of ranges; make room for registers."""
        cdef int64_t n = steps.shape[0], m = table.shape[0]
        cdef void* p = realloc(self.of.steps, (self.of.step_count + n + 1) * sizeof(Step))
        if p == NULL:
            raise MemoryError
        self.of.steps = <Step*>p
        if n:
            memcpy(self.of.steps + self.of.step_count, &steps[0, 0], n * sizeof(Step))
        self.of.step_count += n
        p = realloc(self.of.table, (self.of.table_count + m + 1) * 24)
        if p == NULL:
            raise MemoryError
        self.of.table = <int64_t*>p
        if m:
            memcpy(self.of.table + 3 * self.of.table_count, &table[0, 0], m * 24)
        self.of.table_count += m
        if registers > self.of.register_count:
            self.of.register_count = registers

    def stream(self, int64_t id, int64_t context_pc, int64_t header_pc, int64_t present,
               uint64_t frequency, int64_t shift, flat=None):
        """Add a stream class (counted from 0) with its clock and what to add to it in ns."""
        cdef void* p = realloc(self.of.streams, (self.of.stream_count + 1) * sizeof(Stream))
        cdef Stream* added
        if p == NULL:
            raise MemoryError
        self.of.streams = <Stream*>p
        added = &self.of.streams[self.of.stream_count]
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
            plan(&added.start, added)
        self.of.stream_count += 1

    def event_class(self, int64_t stream, int64_t id, int64_t pc, int64_t align, int64_t bits,
                    int32_t row, int32_t fields):
        """Answer what `run` asked for: an event class of a stream class."""
        cdef Stream* owner = &self.of.streams[stream]
        cdef void* p = realloc(self.of.classes, (self.of.class_count + 1) * sizeof(Class))
        if p == NULL:
            raise MemoryError
        self.of.classes = <Class*>p
        self.of.classes[self.of.class_count] = Class(pc, align, bits, row, fields)
        if 0 <= id < DENSE_IDS:
            owner.dense[id] = <int32_t>(self.of.class_count + 1)
        else:
            p = realloc(owner.wide, (owner.wide_count + 1) * 16)
            if p == NULL:
                raise MemoryError
            owner.wide = <int64_t*>p
            owner.wide[2 * owner.wide_count] = id
            owner.wide[2 * owner.wide_count + 1] = self.of.class_count
            owner.wide_count += 1
        if not learn(&owner.start, id, self.of.steps, &self.of.classes[self.of.class_count]):
            raise MemoryError
        self.of.class_count += 1
        if row >= 0:
            self.recording.width(row, fields)
