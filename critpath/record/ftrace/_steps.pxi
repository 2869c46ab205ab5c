# Runs the program of an event over one record.  Included by _pages.pyx.

cdef enum:
    # critpath.record.ftrace.ctf_events.Step
    END = 0
    COPY = 1
    ADD32 = 2
    TEXT_AT = 3
    CHARS_AT = 4
    SEQUENCE_AT = 5
    TEXT_REST = 6
    SEQUENCE_REST = 7
    CONSTANT32 = 8
    BESIDE = 9
    NEXT_BESIDE = 10

    # words of a program's head
    ID = 0
    NEED = 1
    FIXED = 2
    LOCATED = 3
    HEAD = 4
    WIDTH = 4


cdef inline int64_t text_length(const uint8_t* p, int64_t most) noexcept nogil:
    cdef const void* zero
    if most <= 0:
        return 0
    zero = memchr(p, 0, most)
    return most if zero == NULL else <const uint8_t*>zero - p


cdef int64_t run_steps(const int32_t* step, const uint8_t* record, int64_t length,
                       const uint8_t* beside, int64_t beside_size, int64_t* beside_at,
                       uint8_t* out) noexcept nogil:
    """Write what a program makes of a record; return the bytes written.

    The record has the bytes that the program needs, and `out` those that it may write.
    """
    cdef uint8_t* to = out
    cdef int64_t a, begin, size
    cdef uint32_t word
    cdef int32_t kind
    while True:
        kind, a = step[0], step[1]
        if kind == COPY:
            memcpy(to, record + a, step[2])
            to += step[2]
        elif kind == ADD32:
            store32(to, load32(record + a) + <uint32_t>step[2])
            to += 4
        elif kind == TEXT_AT or kind == CHARS_AT or kind == SEQUENCE_AT:
            word = load32(record + a)
            begin = min(<int64_t>(word & 0xFFFF) + step[2], length)
            size = min(<int64_t>(word >> 16), length - begin)
            if kind == SEQUENCE_AT:
                size = size // step[3] * step[3]
                store32(to, <uint32_t>(size // step[3]))
                to += 4
                memcpy(to, record + begin, size)
                to += size
            else:
                size = text_length(record + begin, size)
                if kind == TEXT_AT:
                    memcpy(to, record + begin, size)
                    to[size] = 0
                    to += size + 1
                else:
                    size = min(size, <int64_t>step[3] - 1)
                    memcpy(to, record + begin, size)
                    memset(to + size, 0, step[3] - size)
                    to += step[3]
        elif kind == TEXT_REST:
            size = text_length(record + a, length - a)
            if step[2] and size and record[a + size - 1] == 10:
                size -= 1
            memcpy(to, record + a, size)
            to[size] = 0
            to += size + 1
        elif kind == SEQUENCE_REST:
            size = length - a
            store32(to, <uint32_t>size)
            memcpy(to + 4, record + a, size)
            to += 4 + size
        elif kind == CONSTANT32:
            store32(to, <uint32_t>step[1])
            to += 4
        elif kind == BESIDE:
            if beside_at[0] + a + step[2] <= beside_size:
                memcpy(to, beside + beside_at[0] + a, step[2])
            else:
                memset(to, 0, step[2])
            to += step[2]
        elif kind == NEXT_BESIDE:
            beside_at[0] += a
        else:
            return to - out
        step += WIDTH
