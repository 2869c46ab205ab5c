# Runs a compiled program over the bits of a packet.  Included by _decode.pyx.

# Codes of a step; `program.Code` gives the same numbers names.
cdef enum:
    END = 0        # the program is through
    RUN = 1        # a bits follow; loads count from here
    ALIGN = 2      # to a multiple of a bits
    U8 = 3         # loads at byte a, least significant byte first
    S8 = 4
    U16 = 5
    S16 = 6
    U32 = 7
    S32 = 8
    X64 = 9
    U16B = 10      # most significant byte first
    S16B = 11
    U32B = 12
    S32B = 13
    X64B = 14
    BITS = 15      # b bits at bit a; c: 1 signed, 2 big-endian, 4 reversed
    FLOAT = 16     # 32 bits at bit a, as the bits of a double; c as BITS
    TEXT = 17      # b bytes of text at byte a; c encoding
    CLOCK = 18     # register a, b bits wide, updates the clock
    COPY = 19      # from register a
    SWITCH = 20    # by register a: b first row, c rows of the table; bank 1: signed; dst: else
    JUMP = 21      # to a
    STRING = 22    # null-terminated; a bytes a unit; c encoding
    TEXTN = 23     # register a bytes of text; c encoding
    SKIPN = 24     # register a times b bits
    LOOP = 25      # counter register a from register b (or c, if b < 0); dst: if none
    NEXT = 26      # counter register a (a + 1: where the element began); dst: once more
    LEB = 27       # variable-length integer; a: 1 signed
    CLEAR = 28     # 0 into dst
    UUID = 29      # 16 bytes at byte a must be b, c
    FAIL = 30      # the metadata cannot say what follows

# What was wrong with a packet; `packets.DAMAGE` has the sentences.
cdef enum:
    OK = 0
    OUTSIDE = 1      # a field does not end before the packet's content
    BAD_OPTION = 2   # no option of a variant is selected
    BAD_UUID = 3
    BAD_MAGIC = 4
    BAD_STREAM = 5   # stream class unknown
    BAD_SIZE = 6     # packet or content size impossible
    BAD_EVENT = 7    # event class unknown
    EMPTY_EVENT = 8  # an event of no bits would never end
    BAD_SCHEMA = 9
    BAD_VARINT = 10
    NO_MEMORY = 11
    IO_ERROR = 12
    TOO_MANY = 13    # more packets in a file than any tracer writes
    BEHIND = 14      # events go on behind the content
    NEED_CLASS = 100
    MORE = 101       # the window ends before the content
    FULL = 102       # as many rows as the bound allows
    NOT_OPEN = 103   # the file cannot be opened any more

# Registers with a fixed meaning; `program.Role` gives the same numbers names.
cdef enum:
    R_MAGIC = 0
    R_STREAM = 1
    R_INSTANCE = 2
    R_BEGIN = 3
    R_END = 4
    R_CONTENT = 5
    R_PACKET = 6
    R_SEQUENCE = 7
    R_DISCARDED = 8
    R_CPU = 9
    R_EVENT = 10

# Said together with the roles that a packet has: time ran backwards within it; it has no end,
# and nothing is where its content should end; it is not its content, rounded up to pages.
cdef enum:
    TURNED = 16
    UNWRITTEN = 17
    UNEVEN = 18

cdef struct Step:
    int64_t code
    int64_t bank  # 0 the event's values, 1 the registers
    int64_t dst
    int64_t a
    int64_t b
    int64_t c

cdef struct State:
    const uint8_t* buf
    int64_t pos
    int64_t limit
    uint64_t clock
    int64_t* banks[2]
    Step* steps
    int64_t* table
    Strings* strings

cdef inline int64_t text_length(const uint8_t* p, int64_t n, int64_t encoding) noexcept nogil:
    """Bytes before the first null character."""
    cdef int64_t unit = 1 if encoding == 0 else 2 if encoding <= 2 else 4
    cdef int64_t i = 0
    cdef const uint8_t* found
    if unit == 1:
        found = <const uint8_t*>memchr(p, 0, n)
        return n if found == NULL else found - p
    while i + unit <= n:
        if p[i] == 0 and p[i + 1] == 0 and (unit == 2 or (p[i + 2] == 0 and p[i + 3] == 0)):
            return i
        i += unit
    return n // unit * unit


cdef int execute(State* s, int64_t pc) noexcept nogil:
    cdef Step* op = s.steps + pc
    cdef const uint8_t* base = s.buf
    cdef int64_t start = 0, v, n, i
    cdef uint64_t u
    cdef const uint8_t* p
    cdef const uint8_t* found
    cdef int64_t* regs = s.banks[1]
    cdef int64_t* row
    cdef float single
    cdef double wide
    cdef uint32_t word
    while True:
        if op.code == RUN:
            start = s.pos
            if op.a > s.limit - start:
                return OUTSIDE
            base = s.buf + (start >> 3)
            s.pos = start + op.a
        elif op.code == END:
            return OK
        elif op.code == ALIGN:
            s.pos = (s.pos + op.a - 1) & -op.a
            if s.pos > s.limit:
                return OUTSIDE
        elif op.code == U8:
            s.banks[op.bank][op.dst] = base[op.a]
        elif op.code == S8:
            s.banks[op.bank][op.dst] = <signed char>base[op.a]
        elif op.code == U16:
            s.banks[op.bank][op.dst] = le16toh(raw16(base + op.a))
        elif op.code == S16:
            s.banks[op.bank][op.dst] = <short>le16toh(raw16(base + op.a))
        elif op.code == U32:
            s.banks[op.bank][op.dst] = le32toh(raw32(base + op.a))
        elif op.code == S32:
            s.banks[op.bank][op.dst] = <int32_t>le32toh(raw32(base + op.a))
        elif op.code == X64:
            s.banks[op.bank][op.dst] = <int64_t>le64toh(raw64(base + op.a))
        elif op.code == U16B:
            s.banks[op.bank][op.dst] = be16toh(raw16(base + op.a))
        elif op.code == S16B:
            s.banks[op.bank][op.dst] = <short>be16toh(raw16(base + op.a))
        elif op.code == U32B:
            s.banks[op.bank][op.dst] = be32toh(raw32(base + op.a))
        elif op.code == S32B:
            s.banks[op.bank][op.dst] = <int32_t>be32toh(raw32(base + op.a))
        elif op.code == X64B:
            s.banks[op.bank][op.dst] = <int64_t>be64toh(raw64(base + op.a))
        elif op.code == BITS or op.code == FLOAT:
            if op.c & 2:
                u = bits_be(s.buf, start + op.a, op.b)
            else:
                u = bits_le(s.buf, start + op.a, op.b)
            if op.c & 4:
                u = reverse_bits(u, op.b)
            if op.code == FLOAT:
                word = <uint32_t>u
                memcpy(&single, &word, 4)
                wide = single
                memcpy(&s.banks[op.bank][op.dst], &wide, 8)
            else:
                s.banks[op.bank][op.dst] = sign_extend(u, op.b) if op.c & 1 else <int64_t>u
        elif op.code == TEXT:
            p = base + op.a
            v = intern(s.strings, p, text_length(p, op.b, op.c), <int32_t>op.c)
            if v < 0:
                return NO_MEMORY
            s.banks[op.bank][op.dst] = v
        elif op.code == CLOCK:
            u = <uint64_t>regs[op.a]
            if op.b < 64:
                u &= ((<uint64_t>1) << op.b) - 1
                # The clock only runs forward: a smaller value means that it wrapped.
                if u < (s.clock & (((<uint64_t>1) << op.b) - 1)):
                    s.clock += (<uint64_t>1) << op.b
                s.clock = (s.clock & ~(((<uint64_t>1) << op.b) - 1)) | u
            else:
                s.clock = u
        elif op.code == COPY:
            s.banks[op.bank][op.dst] = regs[op.a]
        elif op.code == SWITCH:
            v = regs[op.a]
            row = s.table + 3 * op.b
            n = -1
            for i in range(op.c):
                if op.bank:
                    if row[0] <= v and v <= row[1]:
                        n = row[2]
                        break
                elif <uint64_t>row[0] <= <uint64_t>v and <uint64_t>v <= <uint64_t>row[1]:
                    n = row[2]
                    break
                row += 3
            if n < 0:
                n = op.dst
                if n < 0:
                    return BAD_OPTION
            op = s.steps + n
            continue
        elif op.code == JUMP:
            op = s.steps + op.a
            continue
        elif op.code == STRING:
            p = s.buf + (s.pos >> 3)
            n = (s.limit - s.pos) >> 3
            if n <= 0:
                return OUTSIDE
            if op.a == 1:
                found = <const uint8_t*>memchr(p, 0, n)
                if found == NULL:
                    return OUTSIDE
                n = found - p
            else:
                v = text_length(p, n, op.c)
                if v + op.a > n:
                    return OUTSIDE
                n = v
            if op.dst >= 0:
                v = intern(s.strings, p, n, <int32_t>op.c)
                if v < 0:
                    return NO_MEMORY
                s.banks[op.bank][op.dst] = v
            s.pos += (n + op.a) << 3
        elif op.code == TEXTN:
            n = regs[op.a]
            if n < 0 or n > ((s.limit - s.pos) >> 3):
                return OUTSIDE
            if op.dst >= 0:
                p = s.buf + (s.pos >> 3)
                v = intern(s.strings, p, text_length(p, n, op.c), <int32_t>op.c)
                if v < 0:
                    return NO_MEMORY
                s.banks[op.bank][op.dst] = v
            s.pos += n << 3
        elif op.code == SKIPN:
            n = regs[op.a]
            if op.b > 0:
                if n < 0 or n > (s.limit - s.pos) // op.b:
                    return OUTSIDE
                s.pos += n * op.b
        elif op.code == LOOP:
            n = regs[op.b] if op.b >= 0 else op.c
            regs[op.a] = n
            if n == 0:
                op = s.steps + op.dst
                continue
            regs[op.a + 1] = s.pos
        elif op.code == NEXT:
            # An element of no bits reads nothing, so every further one is like it.
            if regs[op.a + 1] != s.pos:
                regs[op.a] -= 1
                if regs[op.a] != 0:
                    regs[op.a + 1] = s.pos
                    op = s.steps + op.dst
                    continue
        elif op.code == LEB:
            u = 0
            n = 0
            while True:
                if s.limit - s.pos < 8:
                    return OUTSIDE
                v = s.buf[s.pos >> 3]
                s.pos += 8
                if n < 64:
                    u |= (<uint64_t>(v & 0x7F)) << n
                # More than 64 bits of value cannot be held by anyone.
                if n == 63 and (v & 0x7E) != (0x7E if op.a and (v & 1) else 0):
                    return BAD_VARINT
                if n > 63:
                    return BAD_VARINT
                n += 7
                if v < 0x80:
                    break
            if op.a and n < 64 and (v & 0x40):
                u |= (~<uint64_t>0) << n
            if op.dst >= 0:
                s.banks[op.bank][op.dst] = <int64_t>u
        elif op.code == CLEAR:
            s.banks[op.bank][op.dst] = 0
        elif op.code == UUID:
            if memcmp(base + op.a, &op.b, 16) != 0:  # b and c lie one after the other
                return BAD_UUID
        else:
            return BAD_SCHEMA
        op += 1
