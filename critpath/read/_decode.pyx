# cython: language_level=3
"""The native CTF decoder: packets of one stream file -> columns, without the GIL.

A compiled program (`program.py`) says what lies in a packet.  A program is a list of
steps of six 64-bit numbers; `RUN n` checks once that n bits are there, and the loads
behind it have fixed offsets into them, so that an event costs a handful of steps and
an event that is not wanted costs one addition.  No read is made outside the packet's
content or the file, whatever the trace says.
"""

import os

import numpy as np

from libc.errno cimport errno
from libc.math cimport rint
from posix.fcntl cimport O_CLOEXEC, O_RDONLY, open as open_file
from posix.unistd cimport close as close_file, pread

include "_program.pxi"
include "_block.pxi"
include "_tables.pxi"


cdef inline int64_t rounded(int64_t size, int64_t page) noexcept nogil:
    return (size + page - 1) // page * page


cdef bint uneven(int64_t whole, int64_t content) noexcept nogil:
    """Whether a packet is not its content (both in bits), rounded up to whole pages.

    These have 4, 16 or 64 KiB on the architectures that there are.
    """
    cdef int64_t size = whole >> 3, filled = (content + 7) >> 3
    return (size != rounded(filled, 4096) and size != rounded(filled, 16384)
            and size != rounded(filled, 65536))


cdef class Decoder:
    """Decodes stream files of one recording, one at a time.

    Use: `file`, then `run` until it returns None.  When `run` returns (stream, id), that
    event class came up for the first time: answer with the tables' `event_class`, or
    with `reject`, and go on.  Without a bound, rows of file after file are gathered for
    `columns`; a decoder with a bound stops after about so many, and `ended` tells
    whether the file is through.
    """

    cdef Recording recording
    cdef Tables tables
    # The part of a stream file that is in memory.
    cdef State s
    cdef SharedWindow* shared
    cdef bytes path
    cdef const char* name  # the path's bytes
    cdef object source     # reads what is elsewhere (size, begin); None of a file
    cdef object failure    # what it raised
    cdef bint failed
    cdef int fd            # -1: not open
    cdef int why           # it could not be opened
    cdef bint keep         # whether the file stays open between two runs
    cdef readonly int64_t size, at  # of the file; where in it the packet begins
    cdef int64_t ahead     # bytes of the file at a time
    cdef int64_t window_at, window_size
    cdef int64_t packet[PACKET_COUNT]
    cdef int64_t content  # bits of the packet's content that are in the file
    # The packet, and what was seen of those before.
    cdef TraceTables* of
    cdef bint inside      # a packet
    cdef int64_t stream_index
    cdef int64_t* packets
    cdef int64_t packet_count, packet_room
    cdef int64_t* regs
    cdef int64_t regs_count
    cdef int64_t count    # rows there are
    cdef int64_t passed   # rows that were taken away
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
    # The clock's lines against another's: begins, offsets, floors; and drifts.
    cdef const int64_t[:, ::1] lines
    cdef const double[::1] drifts
    cdef int64_t line_count, line, moved

    def __cinit__(self):
        self.fd = -1

    def __init__(self, Recording recording, int64_t bound=0):
        cdef int64_t size = 0, other = 0
        self.recording = recording
        self.shared = &recording.shared
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
        self._close_file()
        free(self.packets)
        free(self.regs)
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
        self._close_packet(DAMAGE_BAD_EVENT)

    def file(self, Tables tables, bytes path, int64_t size, bint keep=True, source=None):
        """Begin a stream file of a trace; unless it is kept open, each run opens it."""
        self._close_file()
        self.source, self.failure, self.failed = source, None, False
        self.tables = tables
        self.of = &tables.of
        self.path = path
        self.name = self.path
        self.keep = keep
        self.size = size
        self.at = 0
        self.shared.owner = NULL
        self.inside = self.ended = False
        self.s.clock = 0
        self.packet_count = 0

    def move(self, const int64_t[:, ::1] lines, const double[::1] drifts):
        """Express the times of batches in another clock (`HostClock.move`)."""
        self.lines, self.drifts, self.line_count = lines, drifts, lines.shape[0]

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
                result = self._decode_batch()
        if result == NEED_CLASS:
            return self.stream_index, self.need_id
        self._raise(result)
        return None

    cdef int _decode_batch(self) noexcept nogil:
        """Run for the next rows; those of the last batch are gone then."""
        cdef int64_t used
        cdef int result
        if not self.asking:
            self.passed += self.count
            self.count = self.value_count = self.moved = 0
            self.began = self._bytes_decoded()
        result = self._decode()
        if self.line_count:
            self._move_times()
        self.asking = result == NEED_CLASS
        if not self.asking:
            # Read ahead as much as so many rows took, so that little is read twice.
            used = self._bytes_decoded() - self.began
            self.ahead = WINDOW
            if self.count and used < WINDOW:
                used = used * self.bound // self.count
                used += used // 16 + 512
                self.ahead = min(max(used, 4096), WINDOW)
        return result

    cdef void _move_times(self) noexcept nogil:
        """Express the times of new rows in the other clock."""
        cdef int64_t i, ns, at = self.line, last = self.line_count - 1
        for i in range(self.moved, self.count):
            ns = self.ts[i]
            while at < last and ns >= self.lines[at + 1, 0]:
                at += 1
            while at > 0 and ns < self.lines[at, 0]:
                at -= 1
            ns += self.lines[at, 1] + <int64_t>rint(
                self.drifts[at] * <double>(ns - self.lines[at, 0])
            )
            self.ts[i] = ns if ns > self.lines[at, 2] else self.lines[at, 2]
        self.moved, self.line = self.count, at

    cdef int _decode(self) noexcept nogil:
        """Run on; close what need not stay open."""
        cdef int result = self._take_over_tables()
        if result == OK:
            result = self._run()
        if result != NEED_CLASS and (self.ended or not self.keep):
            self._close_file()
        return result

    cdef int _raise(self, int result) except -1:
        """Raise what went wrong."""
        if result == NO_MEMORY:
            raise MemoryError
        if self.failed:
            raise self.failure
        if result == NOT_OPEN:
            raise OSError(self.why, os.strerror(self.why), os.fsdecode(self.path))
        return 0

    def columns(self):
        """Give away timestamp, class | cpu << 32 and values, row after row."""
        count, values, room, value_room = self.count, self.value_count, self.room, self.value_room
        self.count = self.room = self.value_count = self.value_room = 0
        return (take(&self.ts, count, room), take(&self.place, count, room),
                take(&self.values, values, value_room))

    # ------------------------------------------------------- the part of the file that is in memory

    def close(self):
        """Close the file; running on opens it again."""
        self._close_file()

    cdef void _close_file(self) noexcept nogil:
        if self.fd >= 0:
            close_file(self.fd)
            self.fd = -1

    cdef int _open_file(self) noexcept nogil:
        """Open the file and take the window, which another decoder may have used meanwhile."""
        if self.failed:
            return NOT_OPEN
        if self.fd < 0 and <void*>self.source == <void*>None:
            self.fd = open_file(self.name, O_RDONLY | O_CLOEXEC)
            if self.fd < 0:
                self.why = errno
                return NOT_OPEN
        if self.shared.owner != <void*>self:
            self.shared.owner = <void*>self
            self.window_at = self.window_size = 0
        return OK

    cdef int _fill_window(self, int64_t begin, int64_t size) noexcept nogil:
        """Have some bytes of the file in the window, and slack behind them."""
        cdef int64_t done = 0, got
        cdef uint8_t* window = self.shared.data
        cdef void* p
        if begin >= self.window_at and begin + size <= self.window_at + self.window_size:
            return OK
        if size < self.ahead:
            size = self.ahead
        if size > self.size - begin:
            size = self.size - begin
        if self.window_at <= begin < self.window_at + self.window_size:
            done = self.window_at + self.window_size - begin
            memmove(window, window + (begin - self.window_at), done)
        if size + SLACK > self.shared.room:
            p = realloc(window, size + SLACK)
            if p == NULL:
                return NO_MEMORY
            self.shared.data = window = <uint8_t*>p
            self.shared.room = size + SLACK
        while done < size:
            if <void*>self.source == <void*>None:
                got = pread(self.fd, window + done, size - done, begin + done)
            else:
                got = self._fetch(window + done, size - done, begin + done)
            if got <= 0:
                break
            done += got
        memset(window + done, 0, SLACK)
        self.window_at = begin
        self.window_size = done
        return OK if done == size else DAMAGE_IO_ERROR

    cdef int64_t _fetch(self, uint8_t* to, int64_t size, int64_t begin) noexcept with gil:
        """Read a part of what is elsewhere, as `pread` does; what is raised ends the run."""
        cdef bytes found
        try:
            found = self.source(size, begin)
            if len(found) > size:
                raise ValueError("more bytes than were asked for")
            memcpy(to, <const char*>found, len(found))
            return len(found)
        except BaseException as error:
            self.failure, self.failed = error, True
            return -1

    cdef void _set_limits(self) noexcept nogil:
        """Let the steps see what of the packet's content is in the window."""
        self.s.buf = self.shared.data + (self.at - self.window_at)
        self.s.limit = 8 * (self.window_at + self.window_size - self.at)
        if self.s.limit > self.content:
            self.s.limit = self.content

    cdef int _move_window(self) noexcept nogil:
        """Move a window that was another's meanwhile to the current position."""
        cdef int64_t begin = self.at + (self.s.pos >> 3)
        cdef int64_t size = self.at + self.packet[PACKET_SIZE] - begin
        if self._fill_window(begin, size if size < self.ahead else self.ahead) == NO_MEMORY:
            return NO_MEMORY
        self._set_limits()
        return OK

    cdef int _grow_window(self) noexcept nogil:
        """Move the window to the current position; all that there is, if it cannot grow."""
        cdef int64_t begin = self.at + (self.s.pos >> 3), limit = self.s.limit
        cdef int64_t size = 2 * (self.window_at + self.window_size - begin)
        if size < self.ahead:
            size = self.ahead
        if size > self.at + self.packet[PACKET_SIZE] - begin:
            size = self.at + self.packet[PACKET_SIZE] - begin
        if self._fill_window(begin, size) == NO_MEMORY:
            return NO_MEMORY
        self._set_limits()
        if self.s.limit <= limit:
            self.content = self.s.limit
        return OK

    # -------------------------------------------------------------------------------------- packets

    def file_packets(self):
        """What was seen of every packet of the file; see `critpath.read.packet_table.Column`."""
        result = np.empty((self.packet_count, PACKET_COUNT), np.int64)
        cdef int64_t[:, ::1] view = result
        if self.packet_count:
            memcpy(&view[0, 0], self.packets, self.packet_count * PACKET_COUNT * 8)
        return result

    cdef int _take_over_tables(self) noexcept nogil:
        """Take over what the tables gained meanwhile."""
        cdef void* p
        cdef int64_t room = self.of.register_count
        if room > self.regs_count:
            p = realloc(self.regs, room * 8)
            if p == NULL:
                return NO_MEMORY
            self.regs = <int64_t*>p
            memset(self.regs + self.regs_count, 0, (room - self.regs_count) * 8)
            self.regs_count = room
        self.s.steps = self.of.steps
        self.s.table = self.of.table
        self.s.banks[1] = self.regs
        return OK

    cdef int64_t _bytes_decoded(self) noexcept nogil:
        """Bytes of the file that are decoded."""
        return self.at + (self.s.pos >> 3 if self.inside else 0)

    cdef int _open_packet(self) noexcept nogil:
        """Decode packet header and context; find where its content ends."""
        cdef int64_t rest = self.size - self.at, most = rest if rest < 65536 else 65536
        cdef int64_t size = most if most < self.ahead else self.ahead
        cdef int result = self._decode_header(size)
        # A header this long is refused as going outside, which bounds what is read twice.
        if result == DAMAGE_OUTSIDE and size < most:
            result = self._decode_header(most)
        return result

    cdef int _decode_header(self, int64_t size) noexcept nogil:
        """Decode a packet's header and context from some bytes of it."""
        cdef State* s = &self.s
        cdef int64_t i, present, rest = self.size - self.at, content, whole
        cdef int result
        memset(self.packet, 0, sizeof(self.packet))
        self.packet[PACKET_OFFSET] = self.at
        self.packet[PACKET_SIZE] = rest
        self.packet[PACKET_CPU] = -1
        self.packet[PACKET_STREAM] = -1
        self.packet[PACKET_FIRST] = INT64_MAX
        self.packet[PACKET_LAST] = INT64_MIN
        self.packet[PACKET_ROW] = self.passed + self.count
        if self.packet_count == MOST_PACKETS:
            s.pos = 0
            return DAMAGE_TOO_MANY
        if self._fill_window(self.at, size) == NO_MEMORY:
            return NO_MEMORY
        s.buf = self.shared.data + (self.at - self.window_at)
        s.pos = 0
        s.limit = 8 * (self.window_at + self.window_size - self.at)
        for i in range(ROLE_COUNT):
            self.regs[i] = 0
        present = self.of.header_present
        result = execute(s, self.of.header_pc)
        if present & (1 << ROLE_MAGIC) and (result == OK or s.pos >= 32):
            if self.regs[ROLE_MAGIC] != <int64_t>0xC1FC1FC1:
                return DAMAGE_BAD_MAGIC
        if result != OK:
            return result
        self.stream_index = -1
        for i in range(self.of.stream_count):
            if self.of.streams[i].id == self.regs[ROLE_STREAM]:
                self.stream_index = i
                break
        if not present & (1 << ROLE_STREAM) and self.of.stream_count == 1:
            self.stream_index = 0
        if self.stream_index < 0:
            return DAMAGE_BAD_STREAM
        self.packet[PACKET_STREAM] = self.stream_index
        result = execute(s, self.of.streams[self.stream_index].context_pc)
        if result != OK:
            return result
        present |= self.of.streams[self.stream_index].present
        self.packet[PACKET_PRESENT] = present
        for i in range(PACKET_BEGIN, PACKET_STREAM):
            self.packet[i] = 0
        self.packet[PACKET_BEGIN] = self.regs[ROLE_BEGIN]
        self.packet[PACKET_END] = self.regs[ROLE_END]
        self.packet[PACKET_SEQUENCE] = self.regs[ROLE_SEQUENCE]
        self.packet[PACKET_DISCARDED] = self.regs[ROLE_DISCARDED]
        self.packet[PACKET_CPU] = self.regs[ROLE_CPU] if present & (1 << ROLE_CPU) else -1
        self.packet[PACKET_INSTANCE] = self.regs[ROLE_INSTANCE]
        if self.packet[PACKET_CPU] < -1 or self.packet[PACKET_CPU] > 0x7FFFFFFF:
            self.packet[PACKET_CPU] = -1
        whole = 8 * rest
        content = whole
        if present & (1 << ROLE_PACKET):
            whole = self.regs[ROLE_PACKET]
            content = whole
            if present & (1 << ROLE_CONTENT):
                content = self.regs[ROLE_CONTENT]
        elif present & (1 << ROLE_CONTENT):
            whole = content = self.regs[ROLE_CONTENT]
        if whole <= 0 or whole % 8 != 0 or content > whole or content < s.pos:
            # The size is below that of the header: the next packet's place is unknown.
            if whole > 0 and whole % 8 == 0 and whole >= s.pos and whole <= 8 * rest:
                self.packet[PACKET_SIZE] = whole >> 3
            return DAMAGE_BAD_SIZE
        self.packet[PACKET_SIZE] = whole >> 3 if whole <= 8 * rest else rest
        self.packet[PACKET_CONTENT] = content
        if whole > 8 * rest:
            self.packet[PACKET_WHERE] = -1  # cut off by the end of the file
        if (present & (1 << ROLE_PACKET) and present & (1 << ROLE_CONTENT)
                and uneven(whole, content)):
            self.packet[PACKET_PRESENT] |= 1 << BIT_UNEVEN
        self.content = min(content, 8 * self.packet[PACKET_SIZE])
        self._set_limits()
        return OK

    cdef int _close_packet(self, int damage) noexcept nogil:
        """Note the packet and go to where the next one begins."""
        cdef void* p
        cdef bint cut
        if damage != OK or self.packet[PACKET_WHERE] < 0:
            self.packet[PACKET_DAMAGE] = damage
            cut = self.packet[PACKET_WHERE] < 0
            self.packet[PACKET_WHERE] = -1 - self.s.pos if cut else self.s.pos
        if self.packet_count == self.packet_room:
            self.packet_room = 2 * self.packet_room + 64
            p = realloc(self.packets, self.packet_room * PACKET_COUNT * 8)
            if p == NULL:
                return NO_MEMORY
            self.packets = <int64_t*>p
        memcpy(self.packets + self.packet_count * PACKET_COUNT, self.packet,
               sizeof(self.packet))
        self.packet_count += 1
        self.at += self.packet[PACKET_SIZE]
        self.inside = False
        return OK

    # --------------------------------------------------------------------------------------- events

    cdef int _run(self) noexcept nogil:
        """Decode; OK at the end of the file or with as many rows as the bound allows."""
        cdef int result = self._open_file()
        if result == OK and self.inside and self.window_size == 0:
            result = self._move_window()
        if result != OK:
            return result
        while True:
            if self.failed:
                return NOT_OPEN
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
            result = self._decode_events()
            if result == MORE:
                if self.bound and 4 * self.count >= 3 * self.bound:
                    return OK
                result = self._grow_window()
                if result == OK:
                    continue
            if result == FULL:
                return OK
            if result == NEED_CLASS or result == NO_MEMORY:
                return result
            if result == OK:
                self._check_unwritten()
                result = self._check_behind()
            result = self._close_packet(result)
            if result != OK:
                return result

    cdef void _check_unwritten(self) noexcept nogil:
        """Whether a packet without an end has zeros where its content should end, not events."""
        cdef int64_t wanted = 1 << ROLE_CONTENT | 1 << ROLE_END, last = (self.content >> 3) - 16
        cdef const uint8_t* p
        if (self.packet[PACKET_PRESENT] & wanted != wanted
                or self.packet[PACKET_END] not in (0, -1) or last < 16
                or self._fill_window(self.at + last, 16) != OK):
            return
        p = self.shared.data + (self.at + last - self.window_at)
        if raw64(p) == 0 and raw64(p + 8) == 0:
            self.packet[PACKET_PRESENT] |= 1 << BIT_UNWRITTEN

    cdef int _check_behind(self) noexcept nogil:
        """Whether events go on behind the packet's content, so that its size is wrong.

        What lies there is zero where buffers are cleared.  An event's header is not, it is of
        a class that came before, and its time is between the last event's and the packet's end.
        """
        cdef Stream* stream = &self.of.streams[self.stream_index]
        cdef int64_t wanted = 1 << ROLE_CONTENT | 1 << ROLE_PACKET | 1 << ROLE_END
        cdef int64_t at = self.content >> 3, pos = 0, id = 0
        cdef int64_t left = self.packet[PACKET_SIZE] - at
        cdef uint64_t clock = self.s.clock
        cdef const uint8_t* p
        if (self.packet[PACKET_PRESENT] & wanted != wanted or self.packet[PACKET_WHERE] < 0
                or left < 16 or self.content & 7 or self.content != self.packet[PACKET_CONTENT]
                or not stream.way_count):
            return OK
        if self._fill_window(self.at + at, 16) != OK:
            return OK
        p = self.shared.data + (self.at + at - self.window_at)
        if raw64(p) == 0 or flat_header(p, 128, stream, &pos, &clock, &id) != OK:
            return OK
        if (0 <= id < DENSE_IDS and stream.dense[id] > 0
                and self.s.clock <= clock <= <uint64_t>self.packet[PACKET_END]):
            return DAMAGE_BEHIND
        return OK

    cdef int _grow_rows(self, int64_t values) noexcept nogil:
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

    cdef inline int64_t _to_nanoseconds(self, Stream* of, uint64_t cycles) noexcept nogil:
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

    cdef int _decode_events(self) noexcept nogil:
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
        cdef int64_t begin = pos, id, index, ns, i, count = self.packet[PACKET_EVENTS]
        cdef int64_t low = self.packet[PACKET_FIRST], high = self.packet[PACKET_LAST]
        cdef int result = OK
        cdef int64_t* regs = self.regs
        cdef bint bound = self.bound != 0
        cdef Progress progress
        cdef Name* names = self.recording.names
        cdef int64_t cpu = <int64_t>(<uint64_t>self.packet[PACKET_CPU] << 32), here = cpu
        cdef bint turned = False
        cdef bint direct = stream.frequency == 1000000000 and stream.shift == 0
        while pos < limit:
            if stream.start.near.size:
                # Then one event as its program says, be it because it is not fast.
                progress = Progress(pos, clock, rows, self.value_count, count, low, high,
                                    NULL, NULL)
                result = fast_events(&stream.start, buf, limit, &progress, ts, place, room,
                                     self.values, self.value_room, cpu, s.strings, names)
                pos, clock = progress.pos, progress.clock
                rows, count = progress.rows, progress.count
                self.value_count, low, high = progress.value_count, progress.low, progress.high
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
                regs[ROLE_EVENT] = 0
                s.pos, s.clock = pos, clock
                result = execute(s, stream.header_pc)
                pos, clock = s.pos, s.clock
                if result != OK:
                    break
                id = regs[ROLE_EVENT]
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
                ns = self._to_nanoseconds(stream, clock)
            if rows == room or self.value_count + known.fields > self.value_room:
                self.count = rows
                if self._grow_rows(known.fields) != OK:
                    result = NO_MEMORY
                    break
                ts, place, room = self.ts, self.place, self.room
            if known.fields:
                memset(self.values + self.value_count, 0, known.fields * 8)
            here = cpu
            if known.bits >= 0:
                pos = ((pos + known.align - 1) & -known.align) + known.bits
                if pos > limit:
                    pos = begin
                    result = DAMAGE_OUTSIDE
                    break
            else:
                s.banks[0] = self.values + self.value_count
                s.pos, s.clock = pos, clock
                regs[ROLE_CPU] = -1
                result = execute(s, known.pc)
                pos, clock = s.pos, s.clock
                if result != OK:
                    pos = begin
                    break
                if cpu < 0:
                    # Where a packet does not say it an event may.
                    if 0 <= regs[ROLE_CPU] <= 0x7FFFFFFF:
                        here = <int64_t>(<uint64_t>regs[ROLE_CPU] << 32)
            if pos == begin:
                result = DAMAGE_EMPTY_EVENT
                break
            ts[rows] = ns
            place[rows] = here | known.row
            rows += known.row >= 0
            self.value_count += known.fields
            count += 1
            low = ns if ns < low else low
            high = ns if ns > high else high
        if (result == OK or result == DAMAGE_OUTSIDE) and limit < self.content:
            # An event that only the window's end cuts is decoded again, as a whole.
            if result == DAMAGE_OUTSIDE:
                pos, clock = begin, before
            result = MORE
        s.pos, s.clock = pos, clock
        if turned:
            self.packet[PACKET_PRESENT] |= 1 << BIT_TURNED
        self.count = rows
        self.packet[PACKET_EVENTS] = count
        self.packet[PACKET_FIRST] = low
        self.packet[PACKET_LAST] = high
        return result


include "_chunks.pxi"
