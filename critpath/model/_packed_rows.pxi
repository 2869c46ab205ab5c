# Rows of timelines in few bytes.  Included by _packing.pyx, the replay that writes them, and
# walks, which read those of a thread when they come to it.
#
# A table begins with its owners, threads or processors: how many rows each has and, if any,
# how many bytes they take.  The rows follow, owner by owner.  An owner's rows are read
# without those of others.  All values survive: a row with a value that does not fit is
# written whole.

cdef enum:
    # What a row has besides its state and how long it is.
    GAP = 1       # it does not begin where the one before it ended: its end, before the cut
    WOKEN = 2
    WAKER = 4
    DETAIL = 8
    CPU = 16      # another than that of the row before it
    WHOLE = 32    # nothing of this, but all columns as they are

    PART = 4      # bytes of a length, a code and the like
    HEAD = 2      # of state and flags
    WIDE = 36     # of all columns but the state
    ROW = 38      # at most
    MANY = 255    # so many rows of an owner, or more: the number follows
    OWNER = 9     # at most
    BEHIND = 64   # may be read behind the last row

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


cdef inline char* put(char* p, const Row* row, int64_t last_end, int32_t last_cpu,
                      int64_t cut) noexcept nogil:
    """Write a row; what it lacks is overwritten by the next."""
    cdef uint64_t length = <uint64_t>row.end - <uint64_t>row.begin
    cdef uint64_t back = <uint64_t>cut - <uint64_t>row.end
    cdef uint64_t since = <uint64_t>row.end - <uint64_t>row.woken
    # Numbers, not branches: rows of all kinds stand side by side.
    cdef uint64_t gap = row.begin != last_end
    cdef uint64_t woken = row.woken != -1
    cdef uint64_t waker = row.waker != -1
    cdef uint64_t detail = row.detail != 0
    cdef uint64_t cpu = row.cpu != last_cpu
    p[0] = <char>row.state
    if (length | back * gap | since * woken) >> 32:
        p[1] = <char>WHOLE
        memcpy(p + HEAD, row, WIDE)
        return p + HEAD + WIDE
    p[1] = <char>(gap | woken << 1 | waker << 2 | detail << 3 | cpu << 4)
    write(p + HEAD, <uint32_t>length)
    p += HEAD + PART
    write(p, <uint32_t>back)
    p += gap * PART
    write(p, <uint32_t>since)
    p += woken * PART
    write(p, <uint32_t>row.waker)
    p += waker * PART
    write(p, <uint32_t>row.detail)
    p += detail * PART
    write(p, <uint32_t>row.cpu)
    p += cpu * PART
    return p


cdef inline const char* get(const char* p, Row* row, int64_t last_end, int32_t last_cpu,
                            int64_t cut) noexcept nogil:
    """Read a row."""
    cdef uint64_t flags = <uint8_t>p[1], length, end, last = <uint64_t>last_end
    # All bits of those that it has.
    cdef uint64_t gap = 0 - (flags & 1), woken = 0 - (flags >> 1 & 1)
    cdef uint32_t waker = <uint32_t>0 - <uint32_t>(flags >> 2 & 1)
    cdef uint32_t detail = <uint32_t>0 - <uint32_t>(flags >> 3 & 1)
    cdef uint32_t cpu = <uint32_t>0 - <uint32_t>(flags >> 4 & 1)
    row.state = <uint8_t>p[0]
    if flags & WHOLE:
        memcpy(row, p + HEAD, WIDE)
        return p + HEAD + WIDE
    # Unsigned, as it was written: at the ends of the range it wraps around.
    length = read(p + HEAD)
    p += HEAD + PART
    end = ((<uint64_t>cut - read(p)) & gap) | ((last + length) & ~gap)
    p += gap & PART
    row.end = <int64_t>end
    row.begin = <int64_t>(end - length)
    row.woken = <int64_t>(((end - read(p)) & woken) | ~woken)
    p += woken & PART
    row.waker = <int32_t>((read(p) & waker) | ~waker)
    p += waker & PART
    row.detail = <int32_t>(read(p) & detail)
    p += detail & PART
    row.cpu = <int32_t>((read(p) & cpu) | (<uint32_t>last_cpu & ~cpu))
    p += cpu & PART
    return p


cdef inline char* put_owner(char* p, int64_t rows) noexcept nogil:
    """Write how many rows an owner has, and leave room for how many bytes they take."""
    if rows < MANY:
        p[0] = <char>rows
        return p + 1 + PART * (rows != 0)
    p[0] = <char>MANY
    write(p + 1, <uint32_t>rows)
    return p + 1 + 2 * PART


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
