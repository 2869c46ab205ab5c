# cython: language_level=3
"""The native CTF decoder: packets of one stream file -> columns, without the GIL.

A compiled program (`program.py`) says what lies in a packet.  A program is a list of
steps of six 64-bit numbers; `RUN n` checks once that n bits are there, and the loads
behind it have fixed offsets into them, so that an event costs a handful of steps and
an event nobody asked for costs one addition.  No read is made outside the packet's
content or the file, whatever the trace says.
"""

import os

import numpy as np

include "_bits.pxi"
include "_program.pxi"
include "_block.pxi"
include "_tables.pxi"
include "_window.pxi"
include "_packets.pxi"


cdef class Decoder(Packets):
    """Decodes stream files of one recording, one at a time.

    Use: `file`, then `run` until it returns None.  When `run` returns (stream, id), that
    event class came up for the first time: answer with the tables' `event_class`, or
    with `reject`, and go on.  Without a bound, rows of file after file are gathered for
    `columns`; a decoder with a bound stops after about so many, and `ended` tells
    whether the file is through.
    """

    cdef Recording recording
    cdef Tables tables
    # output
    cdef int64_t bound
    cdef int64_t* ts
    cdef int64_t* place   # class in the low 32 bits, cpu in the high ones
    cdef int64_t room
    cdef int64_t* values
    cdef int64_t value_count, value_room
    cdef int64_t began    # where in the file this batch did
    cdef bint asking      # whether it waits for an event class
    cdef readonly bint ended
    cdef int64_t need_id

    def __init__(self, Recording recording, int64_t bound=0):
        cdef int64_t size = 0, other = 0
        self.recording = recording
        self.glass = &recording.glass
        self.s.strings = &recording.strings
        self.bound = bound
        self.ahead = FIRST_WINDOW if bound else WINDOW
        if bound:
            self.ts = <int64_t*>malloc((bound + 1) * 8)  # a merge looks one row further
            self.place = <int64_t*>malloc(bound * 8)
            self.values = <int64_t*>malloc((8 * bound + SPILL) * 8)
            if self.ts == NULL or self.place == NULL or self.values == NULL:
                raise MemoryError
            self.room, self.value_room = bound, 8 * bound
        else:
            self.ts = <int64_t*>borrow(&size)
            self.place = <int64_t*>borrow(&other)
            self.room = (size if size < other else other) // 8
            self.values = <int64_t*>borrow(&size)
            self.value_room = size // 8

    def __dealloc__(self):
        if self.bound:
            free(self.ts)
            free(self.place)
            free(self.values)
        else:
            give_back(self.ts, self.room * 8)
            give_back(self.place, self.room * 8)
            give_back(self.values, self.value_room * 8)

    def reject(self):
        """Answer that there is no such event class: the rest of the packet is lost."""
        self._close_packet(BAD_EVENT)

    def file(self, Tables tables, bytes path, int64_t size, bint keep=True):
        """Begin a stream file of a trace; unless it is kept open, each run opens it."""
        self._shut()
        self.tables = tables
        self.of = &tables.of
        self.path = path
        self.name = self.path
        self.keep = keep
        self.size = size
        self.at = 0
        self.glass.owner = NULL
        self.inside = self.ended = False
        self.s.clock = 0
        self.packet_count = 0

    def run(self):
        """Decode to the end of the file or the bound, or to a class not seen before."""
        cdef int result
        with nogil:
            result = self._decode()
        if result == NEED_CLASS:
            return self.stream_index, self.need_id
        self._raise(result)
        return None

    def skim(self):
        """Decode to the end of the file as `run` does, but keep no row: what reading costs."""
        cdef int result = OK
        with nogil:
            while result == OK and (not self.ended or self.asking):
                result = self._batch()
        if result == NEED_CLASS:
            return self.stream_index, self.need_id
        self._raise(result)
        return None

    cdef int _batch(self) noexcept nogil:
        """Run for the next rows; those of the last batch are gone then."""
        cdef int64_t used
        cdef int result
        if not self.asking:
            self.passed += self.count
            self.count = self.value_count = 0
            self.began = self._position()
        result = self._decode()
        self.asking = result == NEED_CLASS
        if not self.asking:
            # Read ahead as much as so many rows took, so that little is read twice.
            used = self._position() - self.began
            self.ahead = WINDOW
            if self.count and used < WINDOW:
                used = used * self.bound // self.count
                used += used // 16 + 512
                self.ahead = min(max(used, 4096), WINDOW)
        return result

    cdef int _decode(self) noexcept nogil:
        """Run on; close what need not stay open."""
        cdef int result = self._prepare()
        if result == OK:
            result = self._run()
        if result != NEED_CLASS and (self.ended or not self.keep):
            self._shut()
        return result

    cdef int _raise(self, int result) except -1:
        """Raise what went wrong."""
        if result == NO_MEMORY:
            raise MemoryError
        if result == NOT_OPEN:
            raise OSError(self.why, os.strerror(self.why), os.fsdecode(self.path))
        return 0

    def columns(self):
        """Give away timestamp, class | cpu << 32 and values, row after row."""
        count, values, room, value_room = self.count, self.value_count, self.room, self.value_room
        self.count = self.room = self.value_count = self.value_room = 0
        return (take(&self.ts, count, room), take(&self.place, count, room),
                take(&self.values, values, value_room))

    cdef int _run(self) noexcept nogil:
        """Decode; OK at the end of the file or with as many rows as the bound allows."""
        cdef int result = self._look()
        if result == OK and self.inside and self.window_size == 0:
            result = self._again()
        if result != OK:
            return result
        while True:
            if not self.inside:
                if self.at >= self.size:
                    self.ended = True
                    return OK
                result = self._open_packet()
                if result == NO_MEMORY:
                    return result
                if result != OK:
                    result = self._close_packet(result)
                    if result != OK:
                        return result
                    continue
                self.inside = True
            result = self._events()
            if result == MORE:
                if self.bound and 4 * self.count >= 3 * self.bound:
                    return OK
                result = self._more()
                if result == OK:
                    continue
            if result == FULL:
                return OK
            if result == NEED_CLASS or result == NO_MEMORY:
                return result
            if result == OK:
                self._unwritten()
                result = self._behind()
            result = self._close_packet(result)
            if result != OK:
                return result

    cdef void _unwritten(self) noexcept nogil:
        """Whether a packet without an end has zeros where its content should end, not events."""
        cdef int64_t wanted = 1 << R_CONTENT | 1 << R_END, last = (self.content >> 3) - 16
        cdef const uint8_t* p
        if (self.packet[16] & wanted != wanted or self.packet[4] not in (0, -1) or last < 16
                or self._fill(self.at + last, 16) != OK):
            return
        p = self.glass.data + (self.at + last - self.window_at)
        if raw64(p) == 0 and raw64(p + 8) == 0:
            self.packet[16] |= 1 << UNWRITTEN

    cdef int _behind(self) noexcept nogil:
        """Whether events go on behind the packet's content, so that its size is wrong.

        What lies there is zero where buffers are cleared.  An event's header is not, it is of
        a class that came before, and its time is between the last event's and the packet's end.
        """
        cdef Stream* stream = &self.of.streams[self.stream_index]
        cdef int64_t wanted = 1 << R_CONTENT | 1 << R_PACKET | 1 << R_END
        cdef int64_t at = self.content >> 3, left = self.packet[1] - at, pos = 0, id = 0
        cdef uint64_t clock = self.s.clock
        cdef const uint8_t* p
        if (self.packet[16] & wanted != wanted or self.packet[14] < 0 or left < 16
                or self.content & 7 or self.content != self.packet[2] or not stream.way_count):
            return OK
        if self._fill(self.at + at, 16) != OK:
            return OK
        p = self.glass.data + (self.at + at - self.window_at)
        if raw64(p) == 0 or flat_header(p, 128, stream, &pos, &clock, &id) != OK:
            return OK
        if (0 <= id < DENSE_IDS and stream.dense[id] > 0
                and self.s.clock <= clock <= <uint64_t>self.packet[4]):
            return BEHIND
        return OK

    cdef int _grow(self, int64_t values) noexcept nogil:
        """Room for one more event of that many values."""
        cdef void* p
        cdef int64_t room, least = 4 * self.bound if self.bound else 65536
        if self.count == self.room:
            room = 2 * self.room + 65536
            p = grow(self.ts, room * 8)
            if p == NULL:
                return NO_MEMORY
            self.ts = <int64_t*>p
            p = grow(self.place, room * 8)
            if p == NULL:
                return NO_MEMORY
            self.place = <int64_t*>p
            self.room = room
        if self.value_count + values > self.value_room:
            room = 2 * self.value_room + values + least
            p = grow(self.values, (room + SPILL) * 8)
            if p == NULL:
                return NO_MEMORY
            self.values = <int64_t*>p
            self.value_room = room
        return OK

    cdef inline int64_t _nanoseconds(self, Stream* of, uint64_t cycles) noexcept nogil:
        cdef uint64_t whole, part
        cdef int64_t ns
        if of.frequency != 1000000000:
            # Whole seconds apart, so that the product of the rest fits into 64 bits
            # for every clock below 18 GHz.
            whole = cycles // of.frequency
            part = cycles % of.frequency
            if whole >= <uint64_t>INT64_MAX // 1000000000:
                return INT64_MAX
            cycles = whole * 1000000000 + part * 1000000000 // of.frequency
        if cycles > <uint64_t>INT64_MAX:
            return INT64_MAX
        ns = <int64_t>cycles
        if of.shift > 0 and ns > INT64_MAX - of.shift:
            return INT64_MAX
        return ns + of.shift

    cdef int _events(self) noexcept nogil:
        """Decode events from the current position to the end of the content.

        Everything the loop changes is kept in local variables, and an event is stored
        whether it is wanted or not: only one that is makes the next go behind it.  A
        mispredicted branch costs more than everything else that is done for an event.
        """
        cdef State* s = &self.s
        cdef Stream* stream = &self.of.streams[self.stream_index]
        cdef Class* known
        cdef const uint8_t* buf = s.buf
        cdef int64_t pos = s.pos, limit = s.limit, rows = self.count, room = self.room
        cdef uint64_t clock = s.clock, before = clock
        cdef int64_t* ts = self.ts
        cdef int64_t* place = self.place
        cdef int64_t begin = pos, id, index, ns, i, count = self.packet[10]
        cdef int64_t low = self.packet[11], high = self.packet[12]
        cdef int result = OK
        cdef int64_t* regs = self.regs
        cdef bint bound = self.bound != 0
        cdef Going going
        cdef Name* names = self.recording.names
        cdef int64_t cpu = <int64_t>(<uint64_t>self.packet[7] << 32)
        cdef bint turned = False
        cdef bint direct = stream.frequency == 1000000000 and stream.shift == 0
        while pos < limit:
            if stream.start.near.size:
                # Then one event as its program says, be it because it is not fast.
                going = Going(pos, clock, rows, self.value_count, count, low, high, NULL, NULL)
                result = fast_events(&stream.start, buf, limit, &going, ts, place, room,
                                     self.values, self.value_room, cpu, s.strings, names)
                pos, clock, rows, count = going.pos, going.clock, going.rows, going.count
                self.value_count, low, high = going.value_count, going.low, going.high
                if result != OK or pos >= limit:
                    break
            if rows == room and bound:
                result = FULL
                break
            begin = pos
            before = clock
            if stream.way_count:
                result = flat_header(buf, limit, stream, &pos, &clock, &id)
                if result != OK:
                    break
            else:
                regs[R_EVENT] = 0
                s.pos, s.clock = pos, clock
                result = execute(s, stream.header_pc)
                pos, clock = s.pos, s.clock
                if result != OK:
                    break
                id = regs[R_EVENT]
            # Only a whole timestamp can; what is fast has none that does.
            turned |= clock < before
            index = -1
            if 0 <= id < DENSE_IDS:
                index = stream.dense[id] - 1
            else:
                for i in range(stream.wide_count):
                    if stream.wide[2 * i] == id:
                        index = stream.wide[2 * i + 1]
                        break
            if index < 0:
                # Decode this event again once the class is there.
                pos = begin
                clock = before
                self.need_id = id
                result = NEED_CLASS
                break
            known = &self.of.classes[index]
            if direct and clock <= <uint64_t>INT64_MAX:
                ns = <int64_t>clock
            else:
                ns = self._nanoseconds(stream, clock)
            if rows == room or self.value_count + known.fields > self.value_room:
                self.count = rows
                if self._grow(known.fields) != OK:
                    result = NO_MEMORY
                    break
                ts, place, room = self.ts, self.place, self.room
            if known.fields:
                memset(self.values + self.value_count, 0, known.fields * 8)
            if known.bits >= 0:
                pos = ((pos + known.align - 1) & -known.align) + known.bits
                if pos > limit:
                    pos = begin
                    result = OUTSIDE
                    break
            else:
                s.banks[0] = self.values + self.value_count
                s.pos, s.clock = pos, clock
                result = execute(s, known.pc)
                pos, clock = s.pos, s.clock
                if result != OK:
                    pos = begin
                    break
            if pos == begin:
                result = EMPTY_EVENT
                break
            ts[rows] = ns
            place[rows] = cpu | known.row
            rows += known.row >= 0
            self.value_count += known.fields
            count += 1
            low = ns if ns < low else low
            high = ns if ns > high else high
        if (result == OK or result == OUTSIDE) and limit < self.content:
            # An event that only the window's end cuts is decoded again, as a whole.
            if result == OUTSIDE:
                pos, clock = begin, before
            result = MORE
        s.pos, s.clock = pos, clock
        if turned:
            self.packet[16] |= 1 << TURNED
        self.count = rows
        self.packet[10] = count
        self.packet[11] = low
        self.packet[12] = high
        return result


include "_chunks.pxi"
