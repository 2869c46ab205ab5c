"""Which line an instruction is of, by the tables of lines that Pythons have."""

cdef enum Tables:
    PAIRS, RANGES, LOCATIONS  # up to Python 3.9, 3.10, later


cdef struct Bytes:
    const uint8_t *at
    const uint8_t *end


cdef inline uint64_t varint(Bytes *data) noexcept nogil:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t one
    while data.at < data.end:
        one = data.at[0]
        if one & 0x80:  # the next entry begins
            break
        data.at += 1
        if shift < 60:
            value |= <uint64_t>(one & 63) << shift
        shift += 6
        if not one & 64:
            break
    return value


cdef int64_t line_at(
    int64_t table, const uint8_t *lines, uint32_t length, int64_t first, int64_t offset
) noexcept nogil:
    """Return the line of an instruction, at so many bytes; 0 for none."""
    cdef Bytes data
    cdef int64_t line = first, end = 0, here
    cdef uint64_t value
    cdef uint8_t entry, code
    data.at, data.end = lines, lines + length
    if table == LOCATIONS:
        while data.at < data.end:
            entry = data.at[0]
            data.at += 1
            code = (entry >> 3) & 15
            end += 2 * ((entry & 7) + 1)
            if code == 13 or code == 14:
                value = varint(&data)
                line += -<int64_t>(value >> 1) if value & 1 else <int64_t>(value >> 1)
            elif 10 <= code <= 12:
                line += code - 10
            if offset < end:
                return 0 if code == 15 else line
            while data.at < data.end and not data.at[0] & 0x80:
                data.at += 1
        return 0
    if table == RANGES:
        while data.at + 1 < data.end:
            end += data.at[0]
            here = <int8_t>data.at[1]
            data.at += 2
            if here != -128:
                line += here
            if offset < end:
                return 0 if here == -128 else line
        return 0
    while data.at + 1 < data.end:
        end += data.at[0]
        if end > offset:
            break
        line += <int8_t>data.at[1]
        data.at += 2
    return line


def find_line(int table, bytes lines, int64_t first, int64_t offset) -> int:
    """Return the line of the instruction at so many bytes, 0 for none; for tests."""
    return line_at(table, <const uint8_t *>lines, len(lines), first, offset)


