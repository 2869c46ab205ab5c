# Rows of timelines in few bytes.  Included by _packing.pyx, the replay that writes them, and
# walks, which read those of a thread when they come to it.
#
# A table begins with its owners, threads or processors: how many rows each has and, if any,
# how many bytes they take.  The rows follow, owner by owner.  An owner's rows are read
# without those of others.  All values survive: a row with a value that does not fit is
# written whole.
#
# A row tells when it begins only if the owner's row before it did not end then; the first one
# of an owner is told as if one had ended, nowhere, at the block's base.  So a row can be
# written as soon as it ends, and stay as it is when rows are sorted by their owners.

cdef enum:
    PART = 4      # bytes of a length, a code and the like
    WIDE = 36     # of all columns of a thread's row but the state
    ROW = 44      # of any row, at most
    MANY = 255    # so many rows of an owner, or more: the number follows
    OWNER = 9     # at most
    BEHIND = 64   # may be read behind the last row

    # A thread's row: length, cpu (2 bytes), state and flags (1 each), and what these say.
    HEAD = 8
    STATE_AT = 6
    FLAGS_AT = 7
    WOKEN = 1     # how long before the end it was woken, its waker, its detail
    GAP = 2       # how much later, or earlier, it begins than the one before it ended
    DETAIL = 4    # its detail, if nothing woke it
    WHOLE = 8     # nothing of this, but all columns as they are
    OF_WOKEN = 12

    # Interrupt work: length, gap, detail above the state.  Who ran: length, worker.
    # What does not fit: all bits of the length, or of the worker, and the columns behind.
    STOLEN_BYTES = 12
    RAN_BYTES = 8
    STATE_BITS = 8

ctypedef struct Row:
    # The first six as a whole row has them.
    int64_t begin
    int64_t end
    int64_t woken
    int32_t detail
    int32_t cpu
    int32_t waker
    uint8_t state


cdef inline void write(char* p, uint32_t value) noexcept nogil:
    memcpy(p, &value, PART)


cdef inline uint32_t read(const char* p) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, p, PART)
    return value


# Unsigned throughout: at the ends of the range times wrap around, as they do when read.

cdef inline char* put_head(char* p, uint64_t length, int32_t cpu, uint8_t state,
                           uint64_t flags) noexcept nogil:
    cdef uint64_t head = (length | <uint64_t><uint16_t>cpu << 32 | <uint64_t>state << 48
                          | flags << 56)
    memcpy(p, &head, HEAD)
    return p + HEAD


cdef inline bint fits(uint64_t length, uint64_t later, int32_t cpu) noexcept nogil:
    # Half of a gap's range is of those that begin earlier.
    return (length | later + (<uint64_t>1 << 31) | <uint64_t>((<uint32_t>cpu + <uint32_t>32768) >> 16)
            << 32) >> 32 == 0


cdef inline char* put_row(char* p, int64_t begin, int64_t end, int32_t detail, int32_t cpu,
                          uint8_t state, int64_t last_end) noexcept nogil:
    """Write the row of a thread that was not woken; ROW bytes are touched."""
    cdef uint64_t length = <uint64_t>end - <uint64_t>begin
    cdef uint64_t later = <uint64_t>begin - <uint64_t>last_end
    # Numbers, not branches: rows of all kinds stand side by side.
    cdef uint64_t has_gap = later != 0
    cdef uint64_t has_detail = detail != 0
    if not fits(length, later, cpu):
        return put_whole(p, begin, end, -1, detail, cpu, -1, state)
    p = put_head(p, length, cpu, state, GAP * has_gap | DETAIL * has_detail)
    write(p, <uint32_t>later)
    p += PART * has_gap
    write(p, <uint32_t>detail)
    return p + PART * has_detail


cdef inline char* put_woken(char* p, int64_t begin, int64_t end, int64_t woken, int32_t detail,
                            int32_t cpu, int32_t waker, uint8_t state,
                            int64_t last_end) noexcept nogil:
    """Write the row of a thread that was woken."""
    cdef uint64_t length = <uint64_t>end - <uint64_t>begin
    cdef uint64_t later = <uint64_t>begin - <uint64_t>last_end
    cdef uint64_t since = <uint64_t>end - <uint64_t>woken
    cdef uint64_t has_gap = later != 0
    if since >> 32 or not fits(length, later, cpu):
        return put_whole(p, begin, end, woken, detail, cpu, waker, state)
    p = put_head(p, length, cpu, state, WOKEN | GAP * has_gap)
    write(p, <uint32_t>since)
    write(p + PART, <uint32_t>waker)
    write(p + 2 * PART, <uint32_t>detail)
    write(p + OF_WOKEN, <uint32_t>later)
    return p + OF_WOKEN + PART * has_gap


cdef char* put_whole(char* p, int64_t begin, int64_t end, int64_t woken, int32_t detail,
                     int32_t cpu, int32_t waker, uint8_t state) noexcept nogil:
    cdef Row row
    row.begin, row.end, row.woken = begin, end, woken
    row.detail, row.cpu, row.waker = detail, cpu, waker
    p = put_head(p, 0, 0, state, WHOLE)
    memcpy(p, &row, WIDE)
    return p + WIDE


cdef inline Py_ssize_t row_bytes(const char* p) noexcept nogil:
    """Return how many bytes a thread's row takes."""
    cdef uint64_t flags = <uint8_t>p[FLAGS_AT]
    return (HEAD + OF_WOKEN * (flags & 1) + PART * ((flags >> 1 & 1) + (flags >> 2 & 1))
            + WIDE * (flags >> 3))


cdef inline const char* get(const char* p, Row* row, int64_t last_end) noexcept nogil:
    """Read a thread's row."""
    cdef uint64_t flags = <uint8_t>p[FLAGS_AT], length = read(p), begin
    # All bits of those that it has.
    cdef uint64_t woken = 0 - (flags & 1), gap = 0 - (flags >> 1 & 1)
    cdef uint32_t detail = <uint32_t>0 - <uint32_t>(flags >> 2 & 1)
    cdef const char* behind
    row.state = <uint8_t>p[STATE_AT]
    if flags & WHOLE:
        memcpy(row, p + HEAD, WIDE)
        return p + HEAD + WIDE
    row.cpu = <int32_t><int16_t>(read(p + PART) & 0xFFFF)
    p += HEAD
    behind = p + (OF_WOKEN & woken)
    begin = <uint64_t>last_end + (<uint64_t><int64_t><int32_t>read(behind) & gap)
    behind += PART & gap
    row.begin = <int64_t>begin
    row.end = <int64_t>(begin + length)
    row.woken = <int64_t>(((begin + length - read(p)) & woken) | ~woken)
    row.waker = <int32_t>((read(p + PART) & <uint32_t>woken) | ~<uint32_t>woken)
    row.detail = <int32_t>((read(p + 2 * PART) & <uint32_t>woken) | (read(behind) & detail))
    return behind + (PART & detail)


cdef inline char* put_stolen(char* p, int64_t begin, int64_t end, uint8_t state, int32_t detail,
                             int64_t last_end) noexcept nogil:
    """Write interrupt work of a processor; ROW bytes are touched."""
    cdef uint64_t length = <uint64_t>end - <uint64_t>begin
    cdef uint64_t later = <uint64_t>begin - <uint64_t>last_end
    if length >= <uint32_t>0xFFFFFFFF or later >> 32 or <uint32_t>detail >> 32 - STATE_BITS:
        write(p, <uint32_t>0xFFFFFFFF)
        memcpy(p + PART, &begin, 8)
        memcpy(p + PART + 8, &end, 8)
        write(p + PART + 16, <uint32_t>detail)
        write(p + 2 * PART + 16, state)
        return p + 3 * PART + 16
    write(p, <uint32_t>length)
    write(p + PART, <uint32_t>later)
    write(p + 2 * PART, <uint32_t>detail << STATE_BITS | state)
    return p + STOLEN_BYTES


cdef inline const char* get_stolen(const char* p, Row* row, int64_t last_end) noexcept nogil:
    """Read interrupt work: begin, end, state and detail of a row."""
    cdef uint32_t length = read(p), both
    if length == <uint32_t>0xFFFFFFFF:
        memcpy(&row.begin, p + PART, 8)
        memcpy(&row.end, p + PART + 8, 8)
        row.detail = <int32_t>read(p + PART + 16)
        row.state = <uint8_t>read(p + 2 * PART + 16)
        return p + 3 * PART + 16
    both = read(p + 2 * PART)
    row.begin = <int64_t>(<uint64_t>last_end + read(p + PART))
    row.end = <int64_t>(<uint64_t>row.begin + length)
    row.detail = <int32_t>(both >> STATE_BITS)
    row.state = <uint8_t>both
    return p + STOLEN_BYTES


cdef inline char* put_ran(char* p, int64_t begin, int64_t end, int32_t worker,
                          int64_t last_end) noexcept nogil:
    """Write who ran on a processor; ROW bytes are touched."""
    cdef uint64_t length = <uint64_t>end - <uint64_t>begin
    if length >> 32 or begin != last_end or worker < 0:
        write(p, 0)
        write(p + PART, <uint32_t>0xFFFFFFFF)
        memcpy(p + 2 * PART, &begin, 8)
        memcpy(p + 2 * PART + 8, &end, 8)
        write(p + 2 * PART + 16, <uint32_t>worker)
        return p + 3 * PART + 16
    write(p, <uint32_t>length)
    write(p + PART, <uint32_t>worker)
    return p + RAN_BYTES


cdef inline const char* get_ran(const char* p, Row* row, int64_t last_end) noexcept nogil:
    """Read who ran: begin, end, and the worker in the waker's place."""
    cdef uint32_t worker = read(p + PART)
    if worker == <uint32_t>0xFFFFFFFF:
        memcpy(&row.begin, p + 2 * PART, 8)
        memcpy(&row.end, p + 2 * PART + 8, 8)
        row.waker = <int32_t>read(p + 2 * PART + 16)
        return p + 3 * PART + 16
    row.begin = last_end
    row.end = <int64_t>(<uint64_t>last_end + read(p))
    row.waker = <int32_t>worker
    return p + RAN_BYTES


cdef inline char* put_owner(char* p, int64_t rows) noexcept nogil:
    """Write how many rows an owner has, and leave room for how many bytes they take."""
    if rows < MANY:
        p[0] = <char>rows
        return p + 1 + PART * (rows != 0)
    p[0] = <char>MANY
    write(p + 1, <uint32_t>rows)
    return p + 1 + 2 * PART


cdef inline int64_t owner_bytes(int64_t rows) noexcept nogil:
    """Return how many bytes `put_owner` takes."""
    return 1 + PART * (rows != 0) + PART * (rows >= MANY)


cdef inline char* put_size(char* p, int64_t rows, int64_t size) noexcept nogil:
    """Write how many bytes an owner's rows take; return where the next owner is."""
    if not rows:
        return p + 1
    p += 1 if rows < MANY else 1 + PART
    write(p, <uint32_t>size)
    return p + PART


cdef inline const char* get_owner(const char* p, int64_t* rows, int64_t* size) noexcept nogil:
    """Read what `put_owner` and `put_size` wrote."""
    rows[0] = <uint8_t>p[0]
    size[0] = 0
    p += 1
    if rows[0] == MANY:
        rows[0] = read(p)
        p += PART
    if rows[0]:
        size[0] = read(p)
        p += PART
    return p
