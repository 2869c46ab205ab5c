# The field program: raw access to the bits of a packet, interned strings, and the steps that
# take fields out of it.  Included by _decode.pyx; nothing here knows what a trace is.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

cdef extern from "stdint.h" nogil:
    int64_t INT64_MAX
    int64_t INT64_MIN

cdef extern from "endian.h" nogil:
    uint16_t le16toh(uint16_t)
    uint32_t le32toh(uint32_t)
    uint64_t le64toh(uint64_t)
    uint16_t be16toh(uint16_t)
    uint32_t be32toh(uint32_t)
    uint64_t be64toh(uint64_t)


cdef inline uint16_t raw16(const uint8_t* p) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p, 2)
    return v


cdef inline uint32_t raw32(const uint8_t* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v


cdef inline uint64_t raw64(const uint8_t* p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return v


# Both may touch up to 9 bytes from the field's first: packet buffers end in slack.
cdef inline uint64_t bits_le(const uint8_t* buf, int64_t bit, int64_t width) noexcept nogil:
    cdef const uint8_t* p = buf + (bit >> 3)
    cdef int64_t shift = bit & 7
    cdef uint64_t v = le64toh(raw64(p)) >> shift
    if shift + width > 64:
        v |= (<uint64_t>p[8]) << (64 - shift)
    return v if width == 64 else v & (((<uint64_t>1) << width) - 1)


cdef inline uint64_t bits_be(const uint8_t* buf, int64_t bit, int64_t width) noexcept nogil:
    cdef const uint8_t* p = buf + (bit >> 3)
    cdef int64_t shift = bit & 7
    cdef uint64_t v = be64toh(raw64(p)) << shift
    if shift + width > 64:
        v |= (<uint64_t>p[8]) >> (8 - shift)
    return v >> (64 - width)


cdef inline uint64_t reverse_bits(uint64_t v, int64_t width) noexcept nogil:
    cdef uint64_t r = 0
    cdef int64_t i
    for i in range(width):
        r = (r << 1) | ((v >> i) & 1)
    return r


cdef inline int64_t sign_extend(uint64_t v, int64_t width) noexcept nogil:
    cdef int64_t shift = 64 - width
    return (<int64_t>(v << shift)) >> shift


# ------------------------------------------------------------- interned strings

cdef struct Entry:
    uint64_t hash
    int64_t offset
    int32_t length
    int32_t tag  # how to decode the bytes, see ENCODINGS


cdef struct Strings:
    uint8_t* bytes
    int64_t used
    int64_t room
    Entry* entries
    int64_t count
    int64_t entry_room
    int32_t* slots  # open addressing, code + 1, 0 is free
    int64_t slot_mask
    bint short_of_memory  # a text has no code for want of it


cdef inline uint64_t mix(uint64_t h, uint64_t w) noexcept nogil:
    h = (h ^ w) * <uint64_t>0x9E3779B97F4A7C15
    return h ^ (h >> 29)


cdef inline uint64_t tail_word(const uint8_t* p, int64_t n) noexcept nogil:
    cdef uint64_t w = 0
    memcpy(&w, p, n)
    return w


cdef bint strings_grow_slots(Strings* s) noexcept nogil:
    cdef int64_t size = (s.slot_mask + 1) * 2 if s.slots != NULL else 256
    cdef int32_t* slots = <int32_t*>calloc(size, sizeof(int32_t))
    cdef int64_t i, at
    if slots == NULL:
        return False
    for i in range(s.count):
        at = s.entries[i].hash & (size - 1)
        while slots[at] != 0:
            at = (at + 1) & (size - 1)
        slots[at] = <int32_t>(i + 1)
    free(s.slots)
    s.slots = slots
    s.slot_mask = size - 1
    return True


cdef int64_t intern(Strings* s, const uint8_t* p, int64_t n, int32_t tag) noexcept nogil:
    """The code of n bytes; 0 if there are none, -1 if memory ran out."""
    cdef uint64_t h = <uint64_t>n + (<uint64_t>tag << 32)
    cdef int64_t i = 0, at, room
    cdef Entry* e
    cdef void* grown
    if n == 0:
        return 0
    if n > 0x7FFFFFFF:
        n = 0x7FFFFFFF
    while i + 8 <= n:
        h = mix(h, raw64(p + i))
        i += 8
    if i < n:
        h = mix(h, tail_word(p + i, n - i))
    at = h & s.slot_mask
    while s.slots[at] != 0:
        e = &s.entries[s.slots[at] - 1]
        if e.hash == h and e.length == n and e.tag == tag and memcmp(s.bytes + e.offset, p, n) == 0:
            return s.slots[at] - 1
        at = (at + 1) & s.slot_mask
    if s.used + n > s.room:
        room = 2 * s.room + n + 4096
        grown = realloc(s.bytes, room)
        if grown == NULL:
            s.short_of_memory = True
            return -1
        s.bytes = <uint8_t*>grown
        s.room = room
    if s.count == s.entry_room:
        room = 2 * s.entry_room
        grown = realloc(s.entries, room * sizeof(Entry))
        if grown == NULL:
            s.short_of_memory = True
            return -1
        s.entries = <Entry*>grown
        s.entry_room = room
    memcpy(s.bytes + s.used, p, n)
    e = &s.entries[s.count]
    e.hash = h
    e.offset = s.used
    e.length = <int32_t>n
    e.tag = tag
    s.used += n
    s.count += 1
    s.slots[at] = <int32_t>s.count
    if s.count * 2 > s.slot_mask and not strings_grow_slots(s):
        s.short_of_memory = True
        return -1
    return s.count - 1


# ------------------------------------------------------------------------------------ program

include "_codes.pxi"

# What decoding comes to, beside a `Damage`.
cdef enum:
    OK = 0
    NO_MEMORY = 11
    NEED_CLASS = 100
    MORE = 101       # the window ends before the content
    FULL = 102       # as many rows as the bound allows
    NOT_OPEN = 103   # the file cannot be opened any more

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
        if op.code == CODE_RUN:
            start = s.pos
            if op.a > s.limit - start:
                return DAMAGE_OUTSIDE
            base = s.buf + (start >> 3)
            s.pos = start + op.a
        elif op.code == CODE_END:
            return OK
        elif op.code == CODE_ALIGN:
            s.pos = (s.pos + op.a - 1) & -op.a
            if s.pos > s.limit:
                return DAMAGE_OUTSIDE
        elif op.code == CODE_U8:
            s.banks[op.bank][op.dst] = base[op.a]
        elif op.code == CODE_S8:
            s.banks[op.bank][op.dst] = <signed char>base[op.a]
        elif op.code == CODE_U16:
            s.banks[op.bank][op.dst] = le16toh(raw16(base + op.a))
        elif op.code == CODE_S16:
            s.banks[op.bank][op.dst] = <short>le16toh(raw16(base + op.a))
        elif op.code == CODE_U32:
            s.banks[op.bank][op.dst] = le32toh(raw32(base + op.a))
        elif op.code == CODE_S32:
            s.banks[op.bank][op.dst] = <int32_t>le32toh(raw32(base + op.a))
        elif op.code == CODE_X64:
            s.banks[op.bank][op.dst] = <int64_t>le64toh(raw64(base + op.a))
        elif op.code == CODE_U16B:
            s.banks[op.bank][op.dst] = be16toh(raw16(base + op.a))
        elif op.code == CODE_S16B:
            s.banks[op.bank][op.dst] = <short>be16toh(raw16(base + op.a))
        elif op.code == CODE_U32B:
            s.banks[op.bank][op.dst] = be32toh(raw32(base + op.a))
        elif op.code == CODE_S32B:
            s.banks[op.bank][op.dst] = <int32_t>be32toh(raw32(base + op.a))
        elif op.code == CODE_X64B:
            s.banks[op.bank][op.dst] = <int64_t>be64toh(raw64(base + op.a))
        elif op.code == CODE_BITS or op.code == CODE_FLOAT:
            if op.c & 2:
                u = bits_be(s.buf, start + op.a, op.b)
            else:
                u = bits_le(s.buf, start + op.a, op.b)
            if op.c & 4:
                u = reverse_bits(u, op.b)
            if op.code == CODE_FLOAT:
                word = <uint32_t>u
                memcpy(&single, &word, 4)
                wide = single
                memcpy(&s.banks[op.bank][op.dst], &wide, 8)
            else:
                s.banks[op.bank][op.dst] = sign_extend(u, op.b) if op.c & 1 else <int64_t>u
        elif op.code == CODE_TEXT:
            p = base + op.a
            v = intern(s.strings, p, text_length(p, op.b, op.c), <int32_t>op.c)
            if v < 0:
                return NO_MEMORY
            s.banks[op.bank][op.dst] = v
        elif op.code == CODE_CLOCK:
            u = <uint64_t>regs[op.a]
            if op.b < 64:
                u &= ((<uint64_t>1) << op.b) - 1
                # The clock only runs forward: a smaller value means that it wrapped.
                if u < (s.clock & (((<uint64_t>1) << op.b) - 1)):
                    s.clock += (<uint64_t>1) << op.b
                s.clock = (s.clock & ~(((<uint64_t>1) << op.b) - 1)) | u
            else:
                s.clock = u
        elif op.code == CODE_COPY:
            s.banks[op.bank][op.dst] = regs[op.a]
        elif op.code == CODE_SWITCH:
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
                    return DAMAGE_BAD_OPTION
            op = s.steps + n
            continue
        elif op.code == CODE_JUMP:
            op = s.steps + op.a
            continue
        elif op.code == CODE_STRING:
            p = s.buf + (s.pos >> 3)
            n = (s.limit - s.pos) >> 3
            if n <= 0:
                return DAMAGE_OUTSIDE
            if op.a == 1:
                found = <const uint8_t*>memchr(p, 0, n)
                if found == NULL:
                    return DAMAGE_OUTSIDE
                n = found - p
            else:
                v = text_length(p, n, op.c)
                if v + op.a > n:
                    return DAMAGE_OUTSIDE
                n = v
            if op.dst >= 0:
                v = intern(s.strings, p, n, <int32_t>op.c)
                if v < 0:
                    return NO_MEMORY
                s.banks[op.bank][op.dst] = v
            s.pos += (n + op.a) << 3
        elif op.code == CODE_TEXTN:
            n = regs[op.a]
            if n < 0 or n > ((s.limit - s.pos) >> 3):
                return DAMAGE_OUTSIDE
            if op.dst >= 0:
                p = s.buf + (s.pos >> 3)
                v = intern(s.strings, p, text_length(p, n, op.c), <int32_t>op.c)
                if v < 0:
                    return NO_MEMORY
                s.banks[op.bank][op.dst] = v
            s.pos += n << 3
        elif op.code == CODE_SKIPN:
            n = regs[op.a]
            if op.b > 0:
                if n < 0 or n > (s.limit - s.pos) // op.b:
                    return DAMAGE_OUTSIDE
                s.pos += n * op.b
        elif op.code == CODE_LOOP:
            n = regs[op.b] if op.b >= 0 else op.c
            regs[op.a] = n
            if n == 0:
                op = s.steps + op.dst
                continue
            regs[op.a + 1] = s.pos
        elif op.code == CODE_NEXT:
            # An element of no bits reads nothing, so every further one is like it.
            if regs[op.a + 1] != s.pos:
                regs[op.a] -= 1
                if regs[op.a] != 0:
                    regs[op.a + 1] = s.pos
                    op = s.steps + op.dst
                    continue
        elif op.code == CODE_LEB:
            u = 0
            n = 0
            while True:
                if s.limit - s.pos < 8:
                    return DAMAGE_OUTSIDE
                v = s.buf[s.pos >> 3]
                s.pos += 8
                if n < 64:
                    u |= (<uint64_t>(v & 0x7F)) << n
                # More than 64 bits of value cannot be held by anyone.
                if n == 63 and (v & 0x7E) != (0x7E if op.a and (v & 1) else 0):
                    return DAMAGE_BAD_VARINT
                if n > 63:
                    return DAMAGE_BAD_VARINT
                n += 7
                if v < 0x80:
                    break
            if op.a and n < 64 and (v & 0x40):
                u |= (~<uint64_t>0) << n
            if op.dst >= 0:
                s.banks[op.bank][op.dst] = <int64_t>u
        elif op.code == CODE_CLEAR:
            s.banks[op.bank][op.dst] = 0
        elif op.code == CODE_UUID:
            if memcmp(base + op.a, &op.b, 16) != 0:  # b and c lie one after the other
                return DAMAGE_BAD_UUID
        else:
            return DAMAGE_BAD_SCHEMA
        op += 1
