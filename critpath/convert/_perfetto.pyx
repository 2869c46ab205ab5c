# cython: language_level=3
"""Walks through Perfetto's packets: finds ftrace's events in them and writes these as records.

Everything is bounds-checked against the message that it is in: lengths and numbers are those of a
file that anybody may have written.  Packets of other kinds are handed on as they are.
"""

include "_page_writer.pxi"

cdef enum:
    # wire types
    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5

    # fields of Trace, TracePacket, FtraceEventBundle, CompactSched and FtraceEvent
    TRACE_PACKET = 1
    PACKET_BUNDLE = 1
    PACKET_TIME = 8
    PACKET_SEQUENCE = 10
    PACKET_INTERNED = 12
    PACKET_FLAGS = 13
    PACKET_CLEARED = 41
    PACKET_DROPPED = 42
    PACKET_COMPRESSED = 50
    PACKET_CLOCK = 58
    PACKET_DEFAULTS = 59
    PACKET_FIRST = 87
    PACKET_MACHINE = 98
    PACKET_ZSTD = 133
    BUNDLE_CPU = 1
    BUNDLE_EVENT = 2
    BUNDLE_LOST = 3
    BUNDLE_COMPACT = 4
    BUNDLE_CLOCK = 5
    BUNDLE_CLOCK_TIME = 6
    BUNDLE_BOOT_TIME = 7
    BUNDLE_ERROR = 8
    BUNDLE_PREVIOUS_OLD = 9  # before version 47
    BUNDLE_PREVIOUS = 10
    BUNDLE_DESCRIPTOR = 11
    CLOCK_MONO_RAW = 4
    EVENT_TIME = 1
    EVENT_PID = 2
    EVENT_FLAGS = 5
    EVENT_GENERIC = 327
    EVENT_NEWTASK = 235      # its ID as well: pid and comm are its first fields

    # how a field of an event is written; as `perfetto_events.FieldWay`
    WAY_NUMBER = 1
    WAY_CHARS = 2
    WAY_LOCATED = 3
    WAY_REST = 4
    WAY_DEVICE = 5
    WAY_ARRAY = 6

    MOST_FIELDS = 16         # of an event, less one
    MOST_EVENTS = 1024       # numbers of events in a table; higher ones describe themselves
    MOST_NAMES = 1 << 16     # of a table of names
    SEEN = 1 << 16           # threads whose names are known, where their numbers' low bits differ
    MOST_FIXED = 512         # bytes of a record without its texts
    RECORD = 1 << 14
    COMMON = 8               # bytes that every record begins with
    NO_THREAD = -1             # who has a cpu, where nothing says
    SWITCH_BYTES = 56
    MOST_CPU = 4095

ctypedef struct Cursor:
    const uint8_t* at
    const uint8_t* end
    int bad

ctypedef struct Slot:
    int32_t way
    int32_t offset
    int32_t size

ctypedef struct Shape:
    int32_t number           # ftrace's ID; 0: not in the table
    int32_t size             # bytes without what is located
    Slot slots[MOST_FIELDS]

ctypedef struct Reader:
    # of one sequence and cpu
    int64_t running          # the thread that has the cpu, or NO_THREAD
    int32_t priority
    uint8_t name[16]
    uint64_t last            # of its events
    int lost                 # something since

ctypedef struct Seen:
    # the name that a thread had last
    int64_t tid
    uint8_t name[16]

ctypedef struct Name:
    const uint8_t* text
    int64_t length


cdef inline uint64_t read_varint(Cursor* c) noexcept nogil:
    """Read a number of at most 64 bits; `bad` where it does not end."""
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while c.at < c.end and shift < 70:
        byte = c.at[0]
        c.at += 1
        if shift < 64:
            value |= <uint64_t>(byte & 127) << shift
        if byte < 128:
            return value
        shift += 7
    c.bad = 1
    return 0


cdef inline int64_t read_length(Cursor* c) noexcept nogil:
    """Read the length of what follows; 0 and `bad` where so much is not there."""
    cdef uint64_t length = read_varint(c)
    if c.bad or length > <uint64_t>(c.end - c.at):
        c.bad = 1
        return 0
    return <int64_t>length


cdef inline void skip_value(Cursor* c, int wire) noexcept nogil:
    cdef int64_t size
    if wire == VARINT:
        read_varint(c)
        return
    if wire == BYTES:
        size = read_length(c)
    elif wire == FIXED64:
        size = 8
    elif wire == FIXED32:
        size = 4
    else:
        c.bad = 1
        return
    if c.bad or size > c.end - c.at:
        c.bad = 1
        return
    c.at += size


cdef inline Cursor message_at(Cursor* c) noexcept nogil:
    """Take a message, or text, out of the one around it."""
    cdef Cursor inner
    cdef int64_t size = read_length(c)
    inner.at, inner.end, inner.bad = c.at, c.at + size, c.bad
    c.at += size
    return inner


cdef inline uint64_t kernel_device(uint64_t dev) noexcept nogil:
    """Return the kernel's number of a block device that is given as user space has it."""
    cdef uint64_t major = ((dev >> 8) & 0xFFF) | ((dev >> 32) & 0xFFFFF000u)
    cdef uint64_t minor = (dev & 0xFF) | ((dev >> 12) & 0xFFFFFF00u)
    return (major & 0xFFF) << 20 | (minor & 0xFFFFF)


def read_fields(const uint8_t[::1] message not None):
    """Return the fields of a message, and whether it is whole.

    Numbers as they are (of 64 bits, without sign), the rest as bytes; by wire type and number.
    """
    cdef Cursor c
    cdef uint64_t tag
    cdef const uint8_t* begin
    cdef Cursor inner
    found = []
    if message.shape[0] == 0:
        return found, True
    c.at, c.end, c.bad = &message[0], &message[0] + message.shape[0], 0
    while c.at < c.end:
        tag = read_varint(&c)
        if c.bad or not 1 <= tag >> 3 < 1 << 29:
            return found, False
        if tag & 7 == VARINT:
            value = read_varint(&c)
        elif tag & 7 == BYTES:
            inner = message_at(&c)
            value = (<const char*>inner.at)[:inner.end - inner.at] if not c.bad else b""
        else:
            begin = c.at
            skip_value(&c, tag & 7)
            value = (<const char*>begin)[:c.at - begin]
        if c.bad:
            return found, False
        found.append((<int64_t>(tag >> 3), value))
    return found, True


cdef class Packets:
    """Writes ftrace's events of packets into pages, and hands the other packets on.

    Parameters
    ----------
    pages : PageWriter
    shapes : list of (field, ID, bytes, list of (field, way, offset, size))
        Of the events that are known, by their field in FtraceEvent.
    switch, waking : (number of the field,) of these two, whose compact form is known.
    hand_on : callable (number, payload, facts)
        Called with what else a packet holds: the number of its field, its bytes, and what the packet
        says of itself: time (or None), clock (0: the sequence's default), sequence, flags.  Before,
        with 0 for the number, where what the sequence refers to begins anew (flag 1), or packets
        before it were dropped, which is the last fact.
    describe : callable (number, payload) -> bytes or None
        Called with an event that describes itself: returns its record without what is common.
    wanted : frozenset of the numbers that are handed on.
    """

    cdef PageWriter pages
    cdef Shape* shapes
    cdef Name* names
    cdef Seen* seen
    cdef Reader* readers
    cdef int64_t reader_count, reader_room
    cdef dict places         # of `readers`, by sequence and cpu
    cdef set sequences       # that were seen
    cdef object hand_on, describe
    cdef frozenset wanted
    cdef uint8_t record[RECORD + 64]
    cdef uint8_t compact[64]  # of a switch or wake in the compact form
    cdef int32_t switch_field, waking_field
    cdef int64_t unknown[MOST_EVENTS]
    cdef int64_t known[MOST_EVENTS]
    cdef readonly dict described   # how many events describe themselves and are not known, by number
    cdef readonly int64_t switches, waking, events, bundles, skipped_switches, damaged, foreign, lost
    cdef readonly int64_t clockless
    cdef public object raw_shift   # from CLOCK_MONOTONIC_RAW to CLOCK_BOOTTIME (ns), None unknown
    cdef readonly dict clocks      # bundles by the clock of ftrace that they say

    def __cinit__(self, PageWriter pages, shapes, int switch, int waking, hand_on, describe,
                  frozenset wanted):
        cdef Shape* of
        self.pages, self.hand_on, self.describe, self.wanted = pages, hand_on, describe, wanted
        self.places, self.sequences, self.described, self.clocks = {}, set(), {}, {}
        self.shapes = <Shape*>calloc(MOST_EVENTS, sizeof(Shape))
        self.names = <Name*>calloc(MOST_NAMES, sizeof(Name))
        self.seen = <Seen*>calloc(SEEN, sizeof(Seen))
        if self.shapes == NULL or self.names == NULL or self.seen == NULL:
            raise MemoryError
        for field, number, size, slots in shapes:
            if not 0 < field < MOST_EVENTS or not COMMON <= size <= MOST_FIXED:
                raise ValueError("an event that has no place")
            of = &self.shapes[field]
            of.number, of.size = number, size
            for slot, way, offset, width in slots:
                if not 0 < slot < MOST_FIELDS or not COMMON <= offset <= size - (
                        0 if way == WAY_REST else 4 if way == WAY_LOCATED else width):
                    raise ValueError("a field that has no place")
                of.slots[slot] = Slot(way, offset, width)
        if (self.shapes[switch].number == 0 or self.shapes[waking].number == 0
                or self.shapes[switch].size < 64 or self.shapes[waking].size < 36):
            raise ValueError("no switches and wakes")
        self.switch_field, self.waking_field = switch, waking

    def __dealloc__(self):
        free(self.shapes)
        free(self.names)
        free(self.seen)
        free(self.readers)

    @property
    def left_out(self):
        """Return how many events of kinds that are not known there were, by number."""
        return {i: self.unknown[i] for i in range(MOST_EVENTS) if self.unknown[i]}

    @property
    def occurred(self):
        """Return which events of the table there were, by number."""
        return {i for i in range(MOST_EVENTS) if self.known[i]}

    def feed(self, const uint8_t[::1] data not None):
        """Take whole packets from the begin of `data`; return bytes taken, and those needed.

        The latter is how many the next packet has, where `data` ends within it, or 1 where not
        even its length is there; 0 where all was taken; -1 where what follows is no packet.
        """
        cdef Cursor c, packet
        cdef const uint8_t* begin
        cdef const uint8_t* start
        cdef uint64_t tag, length
        if data.shape[0] == 0:
            return 0, 0
        start = &data[0]
        c.at, c.end, c.bad = start, start + data.shape[0], 0
        while c.at < c.end:
            begin = c.at
            tag = read_varint(&c)
            if c.bad:
                return begin - start, 1 if c.end - begin < 10 else -1
            if not 1 <= tag >> 3 < 1 << 29:
                return begin - start, -1
            if tag & 7 != BYTES:
                skip_value(&c, tag & 7)
                if c.bad:
                    return begin - start, 1 if c.end - begin < 20 else -1
                continue
            length = read_varint(&c)
            if c.bad:
                return begin - start, 1 if c.end - begin < 20 else -1
            if length > <uint64_t>(c.end - c.at):
                if length >= 1ull << 40:
                    return begin - start, -1
                return begin - start, <int64_t>length + (c.at - begin)
            packet.at, packet.end, packet.bad = c.at, c.at + length, 0
            c.at = packet.end
            if tag >> 3 == TRACE_PACKET:
                self.take_packet(&packet)
        return c.at - start, 0

    cdef int take_packet(self, Cursor* c) except -1:
        cdef uint64_t tag, field, time = 0, sequence = 0, flags = 0
        cdef uint64_t clock = 0, machine = 0
        cdef int dropped = 0, first = 0, timed = 0
        cdef int64_t count = 0, i
        cdef int64_t kinds[64]
        cdef Cursor inner
        cdef Cursor bodies[64]
        while c.at < c.end:
            tag = read_varint(c)
            if c.bad:
                break
            field = tag >> 3
            if tag & 7 == BYTES:
                inner = message_at(c)
                if not c.bad and count < 64 and (field == PACKET_BUNDLE or field in self.wanted):
                    kinds[count], bodies[count] = <int64_t>field, inner
                    count += 1
            elif tag & 7 == VARINT:
                tag = read_varint(c)
                if field == PACKET_TIME:
                    time, timed = tag, 1
                elif field == PACKET_SEQUENCE:
                    sequence = tag & 0xFFFFFFFF
                elif field == PACKET_FLAGS:
                    flags |= tag
                elif field == PACKET_CLEARED and tag:
                    flags |= 1
                elif field == PACKET_DROPPED:
                    dropped = tag != 0
                elif field == PACKET_CLOCK:
                    clock = tag
                elif field == PACKET_FIRST:
                    first = tag != 0
                elif field == PACKET_MACHINE:
                    machine = tag
            else:
                skip_value(c, tag & 7)
            if c.bad:
                break
        if c.bad:
            self.damaged += 1
            return 0
        if machine:
            self.foreign += 1
            return 0
        seen = sequence in self.sequences
        if not seen and sequence:
            if len(self.sequences) < 1 << 20:
                self.sequences.add(sequence)
        dropped = dropped and seen and not first
        if dropped:
            self.lost += 1
            self.mark_lost(sequence)
        facts = (time if timed else None, clock, sequence, flags)
        if dropped or flags & 1:
            self.hand_on(0, b"", (*facts, bool(dropped)))
        # An event refers to names and defaults of its own packet, which stand behind it.
        for early in (True, False):
            for i in range(count):
                if early != (kinds[i] == PACKET_INTERNED or kinds[i] == PACKET_DEFAULTS):
                    continue
                if kinds[i] == PACKET_BUNDLE:
                    self.take_bundle(&bodies[i], sequence)
                    continue
                inner = bodies[i]
                self.hand_on(
                    kinds[i], (<const char*>inner.at)[:inner.end - inner.at], (*facts, False))
        return 0

    cdef int mark_lost(self, uint64_t sequence) except -1:
        """Something of a sequence is missing: it may be of any cpu that it had."""
        for (of, _), place in self.places.items():
            if of == sequence:
                self.readers[<int64_t>place].lost = 1
        return 0

    def mark_all_lost(self):
        """Note that something of every cpu is missing before what comes next, or at the end."""
        cdef int64_t i
        for i in range(self.reader_count):
            self.readers[i].lost = 1

    def finish(self):
        """Note what is missing at the end of each cpu."""
        for (_, cpu), place in self.places.items():
            if self.readers[<int64_t>place].lost:
                self.pages.lose(cpu, self.readers[<int64_t>place].last, 0)
                self.readers[<int64_t>place].lost = 0

    cdef Reader* reader_of(self, uint64_t sequence, uint32_t cpu) except NULL:
        cdef void* more
        cdef Reader* of
        place = self.places.get((sequence, cpu))
        if place is None:
            if self.reader_count == self.reader_room:
                self.reader_room = 2 * self.reader_room + 64
                more = realloc(self.readers, self.reader_room * sizeof(Reader))
                if more == NULL:
                    raise MemoryError
                self.readers = <Reader*>more
            place = self.places[sequence, cpu] = self.reader_count
            of = &self.readers[self.reader_count]
            memset(of, 0, sizeof(Reader))
            of.running = NO_THREAD
            self.reader_count += 1
        return &self.readers[<int64_t>place]

    cdef int take_bundle(self, Cursor* c, uint64_t sequence) except -1:
        cdef Cursor whole = c[0], inner, compact, error
        cdef uint64_t tag, cpu = 0, clock = 0, previous = 0, value
        cdef uint64_t clock_time = 0, boot_time = 0
        cdef int64_t shift = 0
        cdef int lost = 0, has_compact = 0
        cdef Reader* of
        compact.at = compact.end = NULL
        compact.bad = 0
        while c.at < c.end:
            tag = read_varint(c)
            if tag & 7 == VARINT:
                value = read_varint(c)
                if tag >> 3 == BUNDLE_CPU:
                    cpu = value
                elif tag >> 3 == BUNDLE_LOST:
                    lost = value != 0
                elif tag >> 3 == BUNDLE_CLOCK:
                    clock = value
                elif tag >> 3 == BUNDLE_CLOCK_TIME:
                    clock_time = value
                elif tag >> 3 == BUNDLE_BOOT_TIME:
                    boot_time = value
                elif tag >> 3 == BUNDLE_PREVIOUS or tag >> 3 == BUNDLE_PREVIOUS_OLD:
                    previous = max(previous, value)
            elif tag & 7 == BYTES and tag >> 3 == BUNDLE_COMPACT:
                compact, has_compact = message_at(c), 1
            elif tag & 7 == BYTES and tag >> 3 == BUNDLE_DESCRIPTOR:
                inner = message_at(c)
                if not c.bad:
                    self.describe(0, (<const char*>inner.at)[:inner.end - inner.at])
            else:
                skip_value(c, tag & 7)
            if c.bad:
                break
        if cpu > MOST_CPU:
            self.damaged += 1
            return 0
        self.bundles += 1
        if clock:
            self.clocks[clock] = self.clocks.get(clock, 0) + 1
            if clock_time and boot_time and clock_time < 1ull << 62 and boot_time < 1ull << 62:
                shift = <int64_t>boot_time - <int64_t>clock_time
            elif clock == CLOCK_MONO_RAW and self.raw_shift is not None:
                shift = self.raw_shift
            else:
                self.clockless += 1
        of = self.reader_of(sequence, <uint32_t>cpu)
        if of.lost and 0 < previous < 1ull << 62 and previous + shift <= of.last:
            # It says what it follows: that is there, what is missing is another cpu's.
            of.lost = 0
        if of.lost:
            lost = 1
        of.lost = 0
        if lost:
            of.running = NO_THREAD
        if c.bad:
            self.damaged += 1
        self.merge(&whole, compact if has_compact else Cursor(NULL, NULL, 0), of, <int64_t>cpu,
                   shift, lost)
        if c.bad:
            # What was behind the damage is missing.
            of.lost = 1
        return 0

    cdef int merge(self, Cursor* c, Cursor compact, Reader* of, int64_t cpu, int64_t shift,
                   int lost) except -1:
        """Write the events of a bundle, the compact ones among them, in order of time."""
        cdef Cursor inner, event, switch_time, switch_state, switch_pid, switch_priority
        cdef Cursor switch_name, waking_time, waking_pid, waking_cpu, waking_priority, waking_name
        cdef Cursor waking_flags
        cdef uint64_t tag, switch_at = 0, waking_at = 0, time = 0
        cdef int64_t names = 0, length = 0
        cdef int more_switches, more_waking, more_events, damaged = 0
        cdef uint64_t never = <uint64_t>-1
        switch_time = switch_state = switch_pid = switch_priority = Cursor(NULL, NULL, 0)
        switch_name = waking_time = waking_pid = waking_cpu = Cursor(NULL, NULL, 0)
        waking_priority = waking_name = waking_flags = Cursor(NULL, NULL, 0)
        while compact.at < compact.end:
            tag = read_varint(&compact)
            if tag & 7 != BYTES:
                skip_value(&compact, tag & 7)
                if compact.bad:
                    break
                damaged = 1      # these are packed, whoever writes them
                continue
            inner = message_at(&compact)
            if compact.bad:
                break
            tag >>= 3
            if tag == 1:
                switch_time = inner
            elif tag == 2:
                switch_state = inner
            elif tag == 3:
                switch_pid = inner
            elif tag == 4:
                switch_priority = inner
            elif tag == 5:
                if names < MOST_NAMES:
                    self.names[names].text, self.names[names].length = inner.at, inner.end - inner.at
                    names += 1
            elif tag == 6:
                switch_name = inner
            elif tag == 7:
                waking_time = inner
            elif tag == 8:
                waking_pid = inner
            elif tag == 9:
                waking_cpu = inner
            elif tag == 10:
                waking_priority = inner
            elif tag == 11:
                waking_name = inner
            elif tag == 12:
                waking_flags = inner
        damaged |= compact.bad
        more_switches, more_waking = next_time(&switch_time, &switch_at), next_time(&waking_time, &waking_at)
        more_events = self.next_event(c, of, cpu, &time, &length)
        while more_switches or more_waking or more_events:
            if lost:
                # Before the first that there is again.
                tag = min(switch_at if more_switches else never, waking_at if more_waking else never,
                          time if more_events else never)
                self.pages.lose(cpu, tag + shift, 0)
                lost = 0
            if more_events and not (more_switches and switch_at < time) and not (
                    more_waking and waking_at < time):
                of.last = time + shift
                self.put(cpu, of.last, length)
                self.note_running(of)
                self.events += 1
                more_events = self.next_event(c, of, cpu, &time, &length)
                continue
            if more_switches and not (more_waking and waking_at < switch_at):
                of.last = switch_at + shift
                if self.compact_switch(of, cpu, switch_at + shift, &switch_state, &switch_pid,
                                       &switch_priority, &switch_name, names) < 0:
                    damaged, more_switches = 1, 0
                else:
                    more_switches = next_time(&switch_time, &switch_at)
            else:
                of.last = waking_at + shift
                if self.compact_waking(of, cpu, waking_at + shift, &waking_pid, &waking_cpu,
                                       &waking_priority, &waking_name, &waking_flags, names) < 0:
                    damaged, more_waking = 1, 0
                else:
                    more_waking = next_time(&waking_time, &waking_at)
        if lost:
            of.lost = 1
        if damaged or switch_time.bad or waking_time.bad:
            self.damaged += 1
            of.lost = 1
        return 0

    cdef int put(self, int64_t cpu, uint64_t time, int64_t length) except -1:
        return self.pages.append(cpu, time, self.record, length)

    cdef void note_running(self, Reader* of) noexcept:
        """Note who has the cpu after the event whose record was written."""
        cdef uint16_t number
        cdef int32_t number_of
        memcpy(&number, self.record, 2)
        if number == self.shapes[self.switch_field].number:
            of.running = <int32_t>load_word(self.record + 56)
            of.priority = <int32_t>load_word(self.record + 60)
            memcpy(of.name, self.record + 40, 16)
            self.note_name(of.running, of.name)
            self.switches += 1
        else:
            if number == self.shapes[self.waking_field].number:
                self.waking += 1
            elif number == EVENT_NEWTASK:
                self.note_name(<int32_t>load_word(self.record + 8), self.record + 12)
            number_of = <int32_t>load_word(self.record + 4)
            if number_of != of.running and number_of != NO_THREAD:
                # A switch to it is missing.
                of.running = number_of
                of.priority = 0
                self.find_name(of)

    cdef void note_name(self, int64_t tid, const uint8_t* name) noexcept:
        cdef Seen* to = &self.seen[tid & (SEEN - 1)]
        to.tid = tid
        memcpy(to.name, name, 16)

    cdef void find_name(self, Reader* of) noexcept:
        cdef Seen* at = &self.seen[of.running & (SEEN - 1)]
        if at.tid == of.running:
            memcpy(of.name, at.name, 16)
        else:
            memset(of.name, 0, 16)

    cdef int compact_switch(self, Reader* of, int64_t cpu, uint64_t time, Cursor* states, Cursor* pids,
                            Cursor* priorities, Cursor* indices, int64_t names) except -2:
        """Write a switch; -1 where its columns are not whole."""
        cdef uint64_t state = read_varint(states), index = read_varint(indices)
        cdef int32_t pid = <int32_t>read_varint(pids), priority = <int32_t>read_varint(priorities)
        cdef uint8_t* to = self.compact
        if (states.bad or indices.bad or pids.bad or priorities.bad
                or index >= <uint64_t>names):
            return -1
        memset(to, 0, 64)
        store_half(to, self.shapes[self.switch_field].number)
        store_word(to + 4, <uint32_t>of.running)
        memcpy(to + 8, of.name, 16)
        store_word(to + 24, <uint32_t>of.running)
        store_word(to + 28, <uint32_t>of.priority)
        memcpy(to + 32, &state, 8)
        memcpy(to + 40, self.names[index].text, min(self.names[index].length, 15))
        store_word(to + 56, <uint32_t>pid)
        store_word(to + 60, <uint32_t>priority)
        memcpy(of.name, to + 40, 16)
        if of.running == NO_THREAD:
            # The compact form has only who comes: of the first, nothing says who went.
            self.skipped_switches += 1
        else:
            self.pages.append(cpu, time, to, 64)
            self.known[self.switch_field] += 1
            self.switches += 1
        of.running, of.priority = pid, priority
        self.note_name(of.running, of.name)
        return 0

    cdef int compact_waking(self, Reader* of, int64_t cpu, uint64_t time, Cursor* pids, Cursor* cpus,
                            Cursor* priorities, Cursor* indices, Cursor* flags,
                            int64_t names) except -2:
        """Write a wake; -1 where its columns are not whole."""
        cdef int32_t pid = <int32_t>read_varint(pids), target = <int32_t>read_varint(cpus)
        cdef int32_t priority = <int32_t>read_varint(priorities)
        cdef uint64_t index = read_varint(indices)
        cdef uint8_t* to = self.compact
        if pids.bad or cpus.bad or priorities.bad or indices.bad or index >= <uint64_t>names:
            return -1
        memset(to, 0, 36)
        store_half(to, self.shapes[self.waking_field].number)
        if flags.at != flags.end:    # Perfetto before version 35 has none
            to[2] = <uint8_t>read_varint(flags)
        store_word(to + 4, <uint32_t>of.running)
        memcpy(to + 8, self.names[index].text, min(self.names[index].length, 15))
        store_word(to + 24, <uint32_t>pid)
        store_word(to + 28, <uint32_t>priority)
        store_word(to + 32, <uint32_t>target)
        self.pages.append(cpu, time, to, 36)
        self.known[self.waking_field] += 1
        self.waking += 1
        return 0

    cdef int next_event(self, Cursor* c, Reader* of, int64_t cpu, uint64_t* time,
                        int64_t* length) except -1:
        """Make the record of the next event of a bundle that is known; 0 where there is none."""
        cdef uint64_t tag
        cdef Cursor inner
        while c.at < c.end:
            tag = read_varint(c)
            if c.bad:
                return 0
            if tag >> 3 == BUNDLE_EVENT and tag & 7 == BYTES:
                inner = message_at(c)
                if c.bad:
                    return 0
                length[0] = self.make_record(&inner, of, time)
                if length[0]:
                    return 1
            elif tag >> 3 == BUNDLE_ERROR and tag & 7 == BYTES:
                inner = message_at(c)
                if not c.bad:
                    # A page that Perfetto could not read.
                    of.lost = 1
            else:
                skip_value(c, tag & 7)
                if c.bad:
                    return 0
        return 0

    cdef int64_t make_record(self, Cursor* c, Reader* of, uint64_t* time) except -1:
        """Make a record of an event; return its bytes, 0 where it has none."""
        cdef uint64_t tag, stamp = 0, value
        cdef int64_t field = 0, size
        cdef int32_t pid = NO_THREAD
        cdef uint8_t flags = 0
        cdef Cursor body
        body.at = body.end = NULL
        while c.at < c.end:
            tag = read_varint(c)
            if c.bad:
                break
            if tag & 7 == VARINT:
                value = read_varint(c)
                if tag >> 3 == EVENT_TIME:
                    stamp = value
                elif tag >> 3 == EVENT_PID:
                    pid = <int32_t>value
                elif tag >> 3 == EVENT_FLAGS:
                    flags = <uint8_t>value
            elif tag & 7 == BYTES:
                body, field = message_at(c), <int64_t>(tag >> 3)
            else:
                skip_value(c, tag & 7)
            if c.bad:
                break
        if c.bad or stamp == 0 or stamp >= 1ull << 62:
            self.damaged += 1
            of.lost = 1
            return 0
        if field == 0:
            return 0
        time[0] = stamp
        if field < MOST_EVENTS and self.shapes[field].number:
            size = self.fill(&body, &self.shapes[field])
            self.known[field] += 1
        elif field == EVENT_GENERIC or field >= MOST_EVENTS:
            size = self.fill_described(&body, field)
        else:
            self.unknown[field] += 1
            return 0
        if size < 0:
            self.damaged += 1
            of.lost = 1
            return 0
        if size:
            self.record[2] = flags
            store_word(self.record + 4, <uint32_t>pid)
        return size

    cdef int64_t fill_described(self, Cursor* body, int64_t field) except -2:
        """Make the record of an event that describes itself; -1 where it is damaged."""
        made = self.describe(field, (<const char*>body.at)[:body.end - body.at])
        if made is None:
            self.described[field] = self.described.get(field, 0) + 1
            return 0
        cdef const uint8_t[::1] content = made
        if not COMMON <= content.shape[0] <= RECORD:
            return -1
        memcpy(self.record, &content[0], content.shape[0])
        return content.shape[0]

    cdef int64_t fill(self, Cursor* c, const Shape* shape) noexcept:
        """Write the fields of an event after what is common; return its bytes, -1 if damaged."""
        cdef uint8_t* to = self.record
        cdef int64_t used = shape.size, length
        cdef int32_t filled[MOST_FIELDS]
        cdef uint64_t tag, value
        cdef Cursor inner
        cdef const Slot* slot
        memset(to, 0, used)
        memset(filled, 0, sizeof(filled))
        store_half(to, shape.number)
        while c.at < c.end:
            tag = read_varint(c)
            if c.bad:
                return -1
            if not 0 < tag >> 3 < MOST_FIELDS or shape.slots[tag >> 3].way == 0:
                skip_value(c, tag & 7)
                if c.bad:
                    return -1
                continue
            slot = &shape.slots[tag >> 3]
            if tag & 7 == VARINT:
                value = read_varint(c)
                if c.bad:
                    return -1
                if slot.way == WAY_NUMBER:
                    memcpy(to + slot.offset, &value, slot.size)
                elif slot.way == WAY_DEVICE:
                    store_word(to + slot.offset, <uint32_t>kernel_device(value))
                elif slot.way == WAY_ARRAY and 8 * filled[tag >> 3] < slot.size:
                    memcpy(to + slot.offset + 8 * filled[tag >> 3], &value, 8)
                    filled[tag >> 3] += 1
            elif tag & 7 == BYTES:
                inner = message_at(c)
                if c.bad:
                    return -1
                length = inner.end - inner.at
                if used >= RECORD:
                    return -1
                if slot.way == WAY_CHARS:
                    length = min(length, <int64_t>slot.size - 1)
                    memcpy(to + slot.offset, inner.at, length)
                    memset(to + slot.offset + length, 0, slot.size - length)
                elif slot.way == WAY_LOCATED:
                    length = min(length, RECORD - used - 1)
                    store_word(to + slot.offset, <uint32_t>((length + 1) << 16 | used))
                    memcpy(to + used, inner.at, length)
                    to[used + length] = 0
                    used += length + 1
                elif slot.way == WAY_REST:
                    length = min(length, RECORD - used - 1)
                    memcpy(to + used, inner.at, length)
                    to[used + length] = 0
                    used += length + 1
                elif slot.way == WAY_ARRAY:
                    while inner.at < inner.end and 8 * filled[tag >> 3] < slot.size:
                        value = read_varint(&inner)
                        if inner.bad:
                            return -1
                        memcpy(to + slot.offset + 8 * filled[tag >> 3], &value, 8)
                        filled[tag >> 3] += 1
            else:
                skip_value(c, tag & 7)
                if c.bad:
                    return -1
        return used


cdef inline int next_time(Cursor* c, uint64_t* at) noexcept nogil:
    """Go to the next of a column of times, each the distance from the one before."""
    cdef uint64_t delta
    if c.at >= c.end:
        return 0
    delta = read_varint(c)
    if c.bad or delta >= (1ull << 62) - at[0]:
        c.bad = 1
        return 0
    at[0] += delta
    return 1


cdef inline uint32_t load_word(const uint8_t* p) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, p, 4)
    return value


cdef inline void store_word(uint8_t* p, uint32_t value) noexcept nogil:
    memcpy(p, &value, 4)


cdef inline void store_half(uint8_t* p, int32_t value) noexcept nogil:
    cdef uint16_t low = <uint16_t>value
    memcpy(p, &low, 2)
