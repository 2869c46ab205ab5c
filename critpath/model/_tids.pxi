# Which number a thread id has: a table of pages, as kernels number threads from 1 on.  Other
# numbers go as well, the slower the larger they are.
#
# An included part, of the replay, the search for missing switches, and the prefilter.

cdef enum:
    TID_PAGE_BITS = 10
    TID_PAGE = 1024
    # Linux's PID_MAX_LIMIT: what is beyond (or negative) goes through the hash table.
    TID_BITS = 22
    TID_PAGES = 4096
    MOST_CPUS = 32768  # of a host

ctypedef struct OddTid:
    int64_t host
    int64_t tid
    int32_t number        # 0: a free place

ctypedef struct Tids:
    int32_t** pages       # [host * TID_PAGES + page]; NULL until a thread is on it
    Py_ssize_t page_count
    OddTid* odd
    Py_ssize_t odd_mask, odd_used

cdef int tids_init(Tids* tids, Py_ssize_t hosts) except -1:
    memset(tids, 0, sizeof(Tids))
    tids.page_count = hosts * TID_PAGES
    # Memory of calloc that is not touched costs nothing.
    tids.pages = <int32_t**>calloc(tids.page_count, sizeof(int32_t*))
    tids.odd_mask = 255
    tids.odd = <OddTid*>calloc(tids.odd_mask + 1, sizeof(OddTid))
    if tids.pages == NULL or tids.odd == NULL:
        raise MemoryError()
    return 0

cdef int tids_clear(Tids* tids) noexcept nogil:
    cdef Py_ssize_t i
    if tids.pages != NULL:
        for i in range(tids.page_count):
            free(tids.pages[i])
    free(tids.pages)
    free(tids.odd)
    memset(tids, 0, sizeof(Tids))
    return 0

cdef inline size_t odd_hash(int64_t host, int64_t tid) noexcept nogil:
    # 2^64 over the golden ratio, in two halves: Cython has no unsigned 64-bit literal.
    cdef size_t golden = (<size_t>0x9E3779B9 << 32) | <size_t>0x7F4A7C15
    cdef size_t h = (<size_t>tid + (<size_t>host << 40)) * golden
    return h ^ (h >> 29)

cdef OddTid* odd_place(OddTid* table, Py_ssize_t mask, int64_t host, int64_t tid) noexcept nogil:
    cdef size_t at = odd_hash(host, tid) & <size_t>mask
    while table[at].number and not (table[at].tid == tid and table[at].host == host):
        at = (at + 1) & <size_t>mask
    return &table[at]

cdef int32_t* odd_number(Tids* tids, int64_t host, int64_t tid) except NULL nogil:
    """Return where the number of a thread id stands that is no kernel's."""
    cdef OddTid* more
    cdef OddTid* place
    cdef Py_ssize_t i, mask
    if 2 * tids.odd_used > tids.odd_mask:
        mask = 2 * tids.odd_mask + 1
        more = <OddTid*>calloc(mask + 1, sizeof(OddTid))
        if more == NULL:
            with gil:
                raise MemoryError()
        for i in range(tids.odd_mask + 1):
            if tids.odd[i].number:
                odd_place(more, mask, tids.odd[i].host, tids.odd[i].tid)[0] = tids.odd[i]
        free(tids.odd)
        tids.odd = more
        tids.odd_mask = mask
    place = odd_place(tids.odd, tids.odd_mask, host, tid)
    if not place.number:
        place.host = host
        place.tid = tid
        # The caller puts a number there.
        tids.odd_used += 1
    return &place.number

cdef int32_t* new_page(Tids* tids, size_t page) except NULL nogil:
    tids.pages[page] = <int32_t*>calloc(TID_PAGE, sizeof(int32_t))
    if tids.pages[page] == NULL:
        with gil:
            raise MemoryError()
    return tids.pages[page]

cdef inline int32_t* tid_number(Tids* tids, int64_t host, int64_t tid) except NULL nogil:
    """Return where the number of a thread id stands: 0 if it has none yet.

    Holds until the next call.
    """
    cdef size_t page
    cdef int32_t* numbers
    if <uint64_t>tid >> TID_BITS:
        return odd_number(tids, host, tid)
    page = (<size_t>host << (TID_BITS - TID_PAGE_BITS)) + (<size_t>tid >> TID_PAGE_BITS)
    numbers = tids.pages[page]
    if numbers == NULL:
        numbers = new_page(tids, page)
    return numbers + (tid & (TID_PAGE - 1))
