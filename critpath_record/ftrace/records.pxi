# The records of a ring buffer's pages.  Nothing outside a page is ever read, whatever it says.

ctypedef struct Layout:
    int64_t commit_offset
    int64_t commit_size
    int64_t data_offset
    int64_t data_size
    int64_t page_bytes
    int64_t flags_offset
    int64_t pid_offset
    uint64_t earliest
    uint64_t latest
    int swap              # of a machine of the other byte order

# ---------------------------------------------------------------------------- the records of a page
#
# A page is a time stamp, the commit word and data: entries that begin with 5 bits of type
# or length and 27 bits of time since the entry before (the kernel's
# include/linux/ring_buffer.h and kernel/trace/ring_buffer.c).

cdef enum:
    # entry types; 1 to 28 is a length in words, 0 a length in the word that follows
    PADDING = 29
    TIME_EXTEND = 30
    TIME_STAMP = 31

    # commit word
    SIZE_MASK = 0x07FFFFFF
    MISSED_STORED = 0x40000000

    # what next_record finds
    AT_END = 0
    RECORD = 1
    DAMAGED = -1

cdef extern from "sys/mman.h" nogil:
    int madvise(void*, size_t, int)
    int MADV_DONTNEED

cdef extern from *:
    """
    #define CRITPATH_MISSED_EVENTS 0x80000000u
    #define CRITPATH_STAMP_TOP 0xf800000000000000ull
    """
    const uint32_t MISSED_EVENTS "CRITPATH_MISSED_EVENTS"
    const uint64_t STAMP_TOP "CRITPATH_STAMP_TOP"

ctypedef struct Page:
    const uint8_t* data
    int64_t limit         # bytes of data in use
    int64_t at
    uint64_t time
    uint64_t latest       # no time is later
    int swap
    const uint8_t* record
    int64_t length        # of the record, bytes
    int damaged
    int64_t missed        # events that went missing before the page; -1: some, 0: none


cdef enum:
    DROPPED_AT_ONCE = 8 << 20   # bytes; a multiple of every kernel's pages


cdef inline int64_t drop_read(const uint8_t* p, int64_t dropped, int64_t at) noexcept nogil:
    """Give back what was read of a mapped file, which counts as memory of the process until then.

    Returns up to where.  Only of a mapping of a file: of other memory the content would be gone.
    """
    if at - dropped < DROPPED_AT_ONCE:
        return dropped
    at -= at % DROPPED_AT_ONCE
    madvise(<void*>(p + dropped), at - dropped, MADV_DONTNEED)
    return at


cdef inline uint16_t load16(const uint8_t* p) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p, 2)
    return v


cdef inline uint32_t load32(const uint8_t* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v


cdef inline uint64_t load64(const uint8_t* p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return v


cdef inline uint16_t swapped16(const uint8_t* p, int swap) noexcept nogil:
    cdef uint16_t v = load16(p)
    return <uint16_t>(v >> 8 | v << 8) if swap else v


cdef inline uint32_t swapped32(const uint8_t* p, int swap) noexcept nogil:
    cdef uint32_t v = load32(p)
    return v >> 24 | v >> 8 & 0xFF00 | v << 8 & 0xFF0000 | v << 24 if swap else v


cdef inline uint64_t swapped64(const uint8_t* p, int swap) noexcept nogil:
    if swap:
        return <uint64_t>swapped32(p, 1) << 32 | swapped32(p + 4, 1)
    return load64(p)


cdef inline void store32(uint8_t* p, uint32_t v) noexcept nogil:
    memcpy(p, &v, 4)


cdef inline void store64(uint8_t* p, uint64_t v) noexcept nogil:
    memcpy(p, &v, 8)


cdef void open_page(Page* page, const Layout* of, const uint8_t* p, int64_t there) noexcept nogil:
    """Begin with a page of which `there` bytes are there."""
    cdef int64_t size, room = of.data_size
    cdef uint32_t commit
    cdef uint64_t count
    page.at, page.limit, page.missed, page.damaged = 0, 0, 0, 0
    if there < of.data_offset:
        page.damaged = 1
        return
    page.swap = of.swap
    page.time, page.latest = swapped64(p, of.swap), of.latest
    if page.time < of.earliest or page.time > of.latest:
        page.damaged = 1
        return
    page.data = p + of.data_offset
    # The low half of a long.
    commit = swapped32(p + of.commit_offset + (of.commit_size - 4 if of.swap else 0), of.swap)
    size = commit & SIZE_MASK
    if size > room:
        page.damaged = 1
        return
    if commit & MISSED_EVENTS:
        page.missed = -1
        # The number follows the data where there was room for it (an unsigned long).
        if commit & MISSED_STORED and size + of.commit_size <= min(room, there - of.data_offset):
            count = swapped32(page.data + size, of.swap)
            if of.commit_size == 8:
                count = swapped64(page.data + size, of.swap)
            if 0 < count < (1ull << 62):
                page.missed = <int64_t>count
    if size > there - of.data_offset:
        page.damaged = 1
        size = there - of.data_offset
    page.limit = size


cdef inline int next_record(Page* page) noexcept nogil:
    """Go to the next record: RECORD, AT_END, or DAMAGED for the rest of the page."""
    cdef uint32_t word, kind
    cdef uint64_t delta, stamp
    cdef int64_t left, length
    while True:
        left = page.limit - page.at
        if left == 0:
            return AT_END
        if left < 4:
            return DAMAGED
        word = swapped32(page.data + page.at, page.swap)
        kind, delta = word & 31, word >> 5
        if page.swap:  # bit-fields begin at the other end there
            kind, delta = word >> 27, word & 0x7FFFFFF
        if 1 <= kind <= 28:
            length = 4 * <int64_t>kind
            if length > left - 4:
                return DAMAGED
            page.time += delta
            page.record = page.data + page.at + 4
            page.length = length
            page.at += 4 + length
            return RECORD
        if kind == PADDING and delta == 0:
            return AT_END
        if left < 8:
            return DAMAGED
        length = swapped32(page.data + page.at + 4, page.swap)
        if kind == TIME_EXTEND:
            page.time += (<uint64_t>length << 27) + delta
            page.at += 8
            if page.time > page.latest:
                return DAMAGED
        elif kind == TIME_STAMP:
            # 59 bits; the others are those of the time so far, unless it wrapped.
            stamp = (<uint64_t>length << 27) + delta
            if page.time & STAMP_TOP:
                stamp |= page.time & STAMP_TOP
                if stamp < page.time:
                    stamp += 1ull << 59
            if stamp > page.latest:
                return DAMAGED
            page.time = stamp
            page.at += 8
        elif kind == PADDING:
            # A discarded event; a delta of 1 stands for none.
            length = (length + 3) & ~<int64_t>3
            if length < 4 or length > left - 4:
                return DAMAGED
            if delta != 1:
                page.time += delta
            page.at += 4 + length
        else:
            # The length counts its own word.
            if length < 4 or ((length + 3) & ~<int64_t>3) > left - 4:
                return DAMAGED
            page.time += delta
            page.record = page.data + page.at + 8
            page.length = length - 4
            page.at += 4 + ((length + 3) & ~<int64_t>3)
            return RECORD
