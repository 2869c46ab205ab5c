# Raw access to the bits of a packet, and the table of interned strings.
# Included by _decode.pyx; nothing here knows what a trace is.

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
