# Searches in columns in order of time, and room for tables that grow.  Included by _walk.pyx and
# _processors.pyx.

cdef inline int64_t first_from(const int64_t* times, int64_t low, int64_t high, int64_t t,
                               bint beyond) noexcept nogil:
    """Return the first place in [low, high) of t or later, ``beyond``: later; else ``high``."""
    cdef int64_t middle
    while low < high:
        middle = (low + high) >> 1
        if times[middle] < t or (beyond and times[middle] == t):
            low = middle + 1
        else:
            high = middle
    return low

# Rows of owners are columns of which [start[o], start[o + 1]) are owner o's.

cdef inline int64_t last_before(const int64_t* start, const int64_t* begin, int64_t owners,
                                int64_t owner, int64_t t, int64_t* hint) noexcept nogil:
    """Return the last row of an owner that begins before t, -1 if there is none.

    Who asks goes on from row to row: it is looked for from the row found last, in ever
    larger steps.  A hint of other columns only costs time.
    """
    cdef int64_t first, until, low, high, middle, step = 1
    if owner >= owners:
        return -1
    first = start[owner]
    until = start[owner + 1]
    if first == until:
        return -1
    middle = hint[owner]
    if middle < first:
        middle = first
    elif middle >= until:
        middle = until - 1
    # Rows up to low begin before t, those from high on do not.
    if begin[middle] < t:
        low = middle
        high = middle + 1
        while high < until and begin[high] < t:
            low = high
            high = high + step if high + step < until else until
            step <<= 1
    else:
        high = middle
        low = middle - 1
        while low >= first and begin[low] >= t:
            high = low
            low = low - step if low - step >= first - 1 else first - 1
            step <<= 1
    while high - low > 1:
        middle = (low + high) >> 1
        if begin[middle] < t:
            low = middle
        else:
            high = middle
    if low < first:
        return -1
    hint[owner] = low
    return low


cdef void* with_room(void* data, int64_t count, int64_t* capacity, int64_t first,
                     size_t item) except NULL nogil:
    """Return a table with room for one more: ``first`` of them at first, then twice as many."""
    cdef void* more
    cdef int64_t wanted
    if count < capacity[0]:
        return data
    wanted = 2 * capacity[0] if capacity[0] else first
    more = realloc(data, wanted * item)
    if more == NULL:
        with gil:
            raise MemoryError()
    capacity[0] = wanted
    return more
