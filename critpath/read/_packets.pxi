# Finds the packets of a stream file: their headers, and the table of what they said.
# Included by _decode.pyx.


cdef inline int64_t rounded(int64_t size, int64_t page) noexcept nogil:
    return (size + page - 1) // page * page


cdef bint uneven(int64_t whole, int64_t content) noexcept nogil:
    """Whether a packet is not its content (both in bits), rounded up to whole pages.

    These have 4, 16 or 64 KiB on the architectures that there are.
    """
    cdef int64_t size = whole >> 3, filled = (content + 7) >> 3
    return (size != rounded(filled, 4096) and size != rounded(filled, 16384)
            and size != rounded(filled, 65536))


cdef class Packets(Window):
    """Goes from one packet of a file to the next; what is in them is others' business."""

    cdef Described* of
    cdef bint inside      # a packet
    cdef int64_t stream_index
    cdef int64_t* packets
    cdef int64_t packet_count, packet_room
    cdef int64_t* regs
    cdef int64_t regs_count
    cdef int64_t count    # rows there are
    cdef int64_t passed   # rows that were taken away

    def __dealloc__(self):
        free(self.packets)
        free(self.regs)

    def file_packets(self):
        """What was seen of every packet of the file; see `packets.Column`."""
        result = np.empty((self.packet_count, PACKET_COLUMNS), np.int64)
        cdef int64_t[:, ::1] view = result
        if self.packet_count:
            memcpy(&view[0, 0], self.packets, self.packet_count * PACKET_COLUMNS * 8)
        return result

    cdef int _prepare(self) noexcept nogil:
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

    cdef int64_t _position(self) noexcept nogil:
        """Bytes of the file that are decoded."""
        return self.at + (self.s.pos >> 3 if self.inside else 0)

    cdef int _open_packet(self) noexcept nogil:
        """Decode packet header and context; find where its content ends."""
        cdef int64_t rest = self.size - self.at, most = rest if rest < 65536 else 65536
        cdef int64_t size = most if most < self.ahead else self.ahead
        cdef int result = self._header(size)
        # A header this long is refused as going outside, which bounds what is read twice.
        if result == OUTSIDE and size < most:
            result = self._header(most)
        return result

    cdef int _header(self, int64_t size) noexcept nogil:
        """Decode a packet's header and context from some bytes of it."""
        cdef State* s = &self.s
        cdef int64_t i, present, rest = self.size - self.at, content, whole
        cdef int result
        memset(self.packet, 0, sizeof(self.packet))
        self.packet[0] = self.at
        self.packet[1] = rest
        self.packet[7] = -1
        self.packet[8] = -1
        self.packet[11] = INT64_MAX
        self.packet[12] = INT64_MIN
        self.packet[15] = self.passed + self.count
        if self.packet_count == MOST_PACKETS:
            s.pos = 0
            return TOO_MANY
        if self._fill(self.at, size) == NO_MEMORY:
            return NO_MEMORY
        s.buf = self.glass.data + (self.at - self.window_at)
        s.pos = 0
        s.limit = 8 * (self.window_at + self.window_size - self.at)
        for i in range(11):
            self.regs[i] = 0
        present = self.of.header_present
        result = execute(s, self.of.header_pc)
        if present & (1 << R_MAGIC) and (result == OK or s.pos >= 32):
            if self.regs[R_MAGIC] != <int64_t>0xC1FC1FC1:
                return BAD_MAGIC
        if result != OK:
            return result
        self.stream_index = -1
        for i in range(self.of.stream_count):
            if self.of.streams[i].id == self.regs[R_STREAM]:
                self.stream_index = i
                break
        if not present & (1 << R_STREAM) and self.of.stream_count == 1:
            self.stream_index = 0
        if self.stream_index < 0:
            return BAD_STREAM
        self.packet[8] = self.stream_index
        result = execute(s, self.of.streams[self.stream_index].context_pc)
        if result != OK:
            return result
        present |= self.of.streams[self.stream_index].present
        self.packet[16] = present
        for i in range(3, 8):
            self.packet[i] = 0
        self.packet[3] = self.regs[R_BEGIN]
        self.packet[4] = self.regs[R_END]
        self.packet[5] = self.regs[R_SEQUENCE]
        self.packet[6] = self.regs[R_DISCARDED]
        self.packet[7] = self.regs[R_CPU] if present & (1 << R_CPU) else -1
        self.packet[9] = self.regs[R_INSTANCE]
        if self.packet[7] < -1 or self.packet[7] > 0x7FFFFFFF:
            self.packet[7] = -1
        whole = 8 * rest
        content = whole
        if present & (1 << R_PACKET):
            whole = self.regs[R_PACKET]
            content = whole
            if present & (1 << R_CONTENT):
                content = self.regs[R_CONTENT]
        elif present & (1 << R_CONTENT):
            whole = content = self.regs[R_CONTENT]
        if whole <= 0 or whole % 8 != 0 or content > whole or content < s.pos:
            # A size below the header that told it: where the next packet begins is unknown.
            if whole > 0 and whole % 8 == 0 and whole >= s.pos and whole <= 8 * rest:
                self.packet[1] = whole >> 3
            return BAD_SIZE
        self.packet[1] = whole >> 3 if whole <= 8 * rest else rest
        self.packet[2] = content
        if whole > 8 * rest:
            self.packet[14] = -1  # cut off by the end of the file
        if present & (1 << R_PACKET) and present & (1 << R_CONTENT) and uneven(whole, content):
            self.packet[16] |= 1 << UNEVEN
        self.content = content if content < 8 * self.packet[1] else 8 * self.packet[1]
        self._show()
        return OK

    cdef int _close_packet(self, int damage) noexcept nogil:
        """Note the packet and go to where the next one begins."""
        cdef void* p
        if damage != OK or self.packet[14] < 0:
            self.packet[13] = damage
            self.packet[14] = -1 - self.s.pos if self.packet[14] < 0 else self.s.pos
        if self.packet_count == self.packet_room:
            self.packet_room = 2 * self.packet_room + 64
            p = realloc(self.packets, self.packet_room * PACKET_COLUMNS * 8)
            if p == NULL:
                return NO_MEMORY
            self.packets = <int64_t*>p
        memcpy(self.packets + self.packet_count * PACKET_COLUMNS, self.packet,
               sizeof(self.packet))
        self.packet_count += 1
        self.at += self.packet[1]
        self.inside = False
        return OK
