# Room of tables that grow.  Included by _walk.pyx and _processors.pyx.

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
