"""Memory of another process: what the last look at it needed is read in one call of the kernel."""

cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/syscall.h>
    #include <sys/uio.h>
    #include <unistd.h>

    static long memory_read(int pid, void *into, uint64_t size, const struct iovec *from,
                            unsigned long count)
    {
        struct iovec local = {into, size};
        return syscall(SYS_process_vm_readv, (long)pid, &local, 1UL, from, count, 0UL);
    }
    """
    cdef struct iovec:
        void *iov_base
        size_t iov_len
    long memory_read(int pid, void *into, uint64_t size, const iovec *start, unsigned long count) nogil

cdef enum:
    PAGE = 4096
    PAGES = 1024          # parts of them that are read besides, in one look
    BLOCK = 256           # bytes of one, or more; what is not in the cache takes long
    ROOM = 4 << 20        # bytes of all
    GAP = 512             # bytes that are read rather than left out
    VECTORS = 1024        # pieces that the kernel reads at once
    MOST_WANTS = 1 << 18

cdef struct Want:
    uint64_t address
    uint32_t length, at  # at: number of its range

cdef struct Range:
    uint64_t address
    uint32_t length, at
    bint there

cdef struct Plan:
    # What the last look read, in its order, and what this one does.
    Want *wants
    Want *following
    uint32_t n_wants, n_following, wants_room, following_room
    Range *ranges  # all that it wanted, by address
    uint32_t n_ranges, ranges_room
    uint8_t *read
    uint64_t room

cdef struct Pages:  # parts of them that are read besides, of whichever process is looked at
    uint64_t *addresses
    uint32_t *lengths
    uint32_t *ats
    uint8_t *read
    int count
    uint32_t used
    iovec *vectors

cdef struct Memory:
    int pid
    Pages *pages
    Plan *plan
    uint64_t watched  # an address; what lies there is read before all else
    uint64_t seen[3]
    int64_t began, at  # when the plan was read, and what counts now
    uint32_t misses
    bint changed, fresh, broken  # fresh: nothing that was read before counts


cdef bint grown(void **array, uint64_t wanted, uint64_t size, uint32_t *room) noexcept nogil:
    """Make room in an array; false if there is no memory."""
    cdef uint64_t larger = max(<uint64_t>64, <uint64_t>room[0])
    cdef void *found
    if wanted <= room[0]:
        return True
    while larger < wanted:
        larger *= 2
    found = realloc(array[0], larger * size)
    if found == NULL or larger >> 32:
        return False
    array[0] = found
    room[0] = <uint32_t>larger
    return True


cdef bint pages_made(Pages *pages) noexcept nogil:
    pages.addresses = <uint64_t *>malloc(PAGES * sizeof(uint64_t))
    pages.lengths = <uint32_t *>malloc(PAGES * sizeof(uint32_t))
    pages.ats = <uint32_t *>malloc(PAGES * sizeof(uint32_t))
    pages.read = <uint8_t *>malloc(ROOM)
    pages.vectors = <iovec *>malloc(VECTORS * sizeof(iovec))
    return (
        pages.addresses and pages.lengths and pages.ats and pages.read and pages.vectors
    ) != NULL


cdef void pages_freed(Pages *pages) noexcept nogil:
    free(pages.addresses)
    free(pages.read)
    free(pages.lengths)
    free(pages.ats)
    free(pages.vectors)


cdef void plan_freed(Plan *plan) noexcept nogil:
    free(plan.wants)
    free(plan.following)
    free(plan.ranges)
    free(plan.read)


cdef int by_address(const void *a, const void *b) noexcept nogil:
    cdef uint64_t left = (<const Want *>a).address, right = (<const Want *>b).address
    return (left > right) - (left < right)


cdef bint planned(Plan *p) noexcept nogil:
    """Make ranges of what the last look wanted, near ones together; false without memory."""
    cdef uint32_t i, count = 0
    cdef uint64_t at = 0, end
    cdef Want *sorted
    cdef Range *last = NULL
    p.wants, p.following = p.following, p.wants
    p.wants_room, p.following_room = p.following_room, p.wants_room
    p.n_wants, p.n_following, p.n_ranges = p.n_following, 0, 0
    sorted = <Want *>malloc(p.n_wants * sizeof(Want) + 1)
    if sorted == NULL or not grown(
        <void **>&p.ranges, p.n_wants, sizeof(Range), &p.ranges_room
    ):
        free(sorted)
        return False
    for i in range(p.n_wants):
        sorted[i] = p.wants[i]
        sorted[i].at = i
    qsort(sorted, p.n_wants, sizeof(Want), by_address)
    for i in range(p.n_wants):
        end = sorted[i].address + sorted[i].length
        if last == NULL or sorted[i].address > last.address + last.length + GAP or (
            end - last.address > 16 * PAGE
        ):
            last = &p.ranges[count]
            last.address, last.length, last.there = sorted[i].address, 0, False
            count += 1
        last.length = <uint32_t>max(<uint64_t>last.length, end - last.address)
        p.wants[sorted[i].at].at = count - 1
    free(sorted)
    for i in range(count):
        p.ranges[i].at = <uint32_t>at
        at += p.ranges[i].length
    if at > p.room:
        free(p.read)
        p.read = <uint8_t *>malloc(2 * at)
        p.room = 2 * at if p.read else 0
        if p.read == NULL:
            return False
    p.n_ranges = count
    return True


cdef const uint8_t *in_ranges(Plan *p, uint64_t address, uint32_t length) noexcept nogil:
    cdef uint32_t low = 0, high = p.n_ranges, middle
    cdef Range *found
    while low < high:
        middle = (low + high) // 2
        if p.ranges[middle].address <= address:
            low = middle + 1
        else:
            high = middle
    if not low:
        return NULL
    found = &p.ranges[low - 1]
    if not found.there or address + length > found.address + found.length:
        return NULL
    return p.read + found.at + (address - found.address)


cdef bint begun(Memory *m, Plan *plan) noexcept nogil:
    """Begin a look: read what the last one of this plan wanted; false if the process has ended.

    If that takes long, as the cpu was another's meanwhile, when anything was so is not known: it
    is read once more.
    """
    cdef int64_t before
    cdef int attempt
    for attempt in range(2):
        before = sampler_now()
        if not fetched(m, plan):
            return False
        m.began = m.at = sampler_now()
        if m.at - before < JITTER + SLOWLY * plan.n_ranges:
            break
    return True


cdef bint fetched(Memory *m, Plan *plan) noexcept nogil:
    """Read what the last look of a plan wanted; false if the process has ended."""
    cdef uint32_t i = 0, k, count
    cdef int64_t size, got
    cdef iovec *vectors = m.pages.vectors
    cdef iovec watched
    m.plan, m.misses, m.changed, m.fresh = plan, 0, False, False
    plan.n_following = m.pages.count = m.pages.used = 0
    memset(m.seen, 0, sizeof(m.seen))
    if m.watched:
        watched.iov_base, watched.iov_len = <void *>m.watched, sizeof(m.seen)
        if memory_read(m.pid, m.seen, sizeof(m.seen), &watched, 1) < 0 and errno != EFAULT:
            return False
    while i < plan.n_ranges:
        count = min(plan.n_ranges - i, <uint32_t>VECTORS)
        size = 0
        for k in range(count):
            vectors[k].iov_base = <void *>plan.ranges[i + k].address
            vectors[k].iov_len = plan.ranges[i + k].length
            plan.ranges[i + k].there = False
            size += plan.ranges[i + k].length
        got = memory_read(m.pid, plan.read + plan.ranges[i].at, size, vectors, count)
        if got < 0 and errno != EFAULT:
            return False
        # One that is not there ends a read: go on behind it.
        got = max(got, <int64_t>0)
        for k in range(count):
            got -= plan.ranges[i + k].length
            if got < 0:
                break
            plan.ranges[i + k].there = True
        i += count if got >= 0 else k + 1
    return True


cdef bint ended(Memory *m, bint tidy) noexcept nogil:
    """End a look: the next one reads what this one did; false without memory."""
    return not (m.misses or (m.changed and tidy)) or planned(m.plan)


cdef const uint8_t *besides(Memory *m, uint64_t address, uint32_t length) noexcept nogil:
    """Return what no plan had read: a block of memory, or one that was read in this look."""
    cdef Pages *pages = m.pages
    cdef int i = pages.count - 1
    cdef uint64_t begin = address - address % BLOCK, size
    cdef int64_t got
    cdef iovec one
    while i >= 0:
        if pages.addresses[i] <= address and (
            address + length <= pages.addresses[i] + pages.lengths[i]
        ):
            return pages.read + pages.ats[i] + (address - pages.addresses[i])
        i -= 1
    size = (address + length - begin + 2 * BLOCK - 1) // BLOCK * BLOCK
    if pages.count >= PAGES or pages.used + size > ROOM:
        return NULL
    one.iov_base, one.iov_len = <void *>begin, size
    got = memory_read(m.pid, pages.read + pages.used, size, &one, 1)
    if got < <int64_t>(address + length - begin):  # the next page need not be there
        return NULL
    i = pages.count
    pages.addresses[i], pages.lengths[i], pages.ats[i] = begin, <uint32_t>got, pages.used
    pages.count += 1
    pages.used += <uint32_t>size
    return pages.read + pages.ats[i] + (address - begin)


cdef void forgotten(Memory *m) noexcept nogil:
    """Read anew from now on, whatever was read in this look."""
    m.fresh, m.at = True, sampler_now()
    m.pages.count = m.pages.used = 0


cdef const uint8_t *peek(Memory *m, uint64_t address, uint32_t length) noexcept nogil:
    """Return what lies in the process, up to a page of it; NULL if it cannot be read."""
    cdef Plan *plan = m.plan
    cdef uint32_t k = plan.n_following
    cdef const uint8_t *found
    cdef Want *want
    if address < PAGE or address >> 47 or length > PAGE or k >= MOST_WANTS:
        return NULL
    if not grown(<void **>&plan.following, k + 1, sizeof(Want), &plan.following_room):
        m.broken = True
        return NULL
    plan.following[k].address, plan.following[k].length = address, length
    plan.n_following += 1
    if not m.fresh:
        if k < plan.n_wants and plan.n_ranges:
            want = &plan.wants[k]
            if want.address == address and want.length == length and plan.ranges[want.at].there:
                return plan.read + plan.ranges[want.at].at + (
                    address - plan.ranges[want.at].address
                )
        m.changed = True
        found = in_ranges(plan, address, length)
        if found != NULL:
            return found
    m.misses += 1
    return besides(m, address, length)


cdef bint number_at(Memory *m, uint64_t address, uint64_t *into) noexcept nogil:
    cdef const uint8_t *found = peek(m, address, 8)
    if found != NULL:
        memcpy(into, found, 8)
    return found != NULL
