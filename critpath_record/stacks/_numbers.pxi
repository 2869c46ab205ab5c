"""Numbers for what occurs often, each once, by hashes that only this process knows."""

cdef struct Numbers:  # from keys, of which none is 0
    uint64_t *keys
    int32_t *values
    uint64_t size, count


cdef inline uint64_t mixed(uint64_t hash, uint64_t value) noexcept nogil:
    hash = (hash ^ value) * <uint64_t>0x9E3779B97F4A7C15
    hash ^= hash >> 29
    hash *= <uint64_t>0xBF58476D1CE4E5B9
    return hash ^ (hash >> 32)


cdef uint64_t hashed(uint64_t hash, const uint8_t *data, uint64_t size) noexcept nogil:
    cdef uint64_t word, at = 0
    while at < size:
        word = 0
        memcpy(&word, data + at, min(<uint64_t>8, size - at))
        hash = mixed(hash, word)
        at += 8
    return mixed(hash, size)


cdef int32_t *numbered(Numbers *table, uint64_t key) noexcept nogil:
    """Return where the number of a key stands, -1 if it is new; NULL without memory."""
    cdef uint64_t size, at, i
    cdef uint64_t *keys
    cdef int32_t *values
    if (table.count + 1) * 10 > table.size * 7:
        size = max(<uint64_t>256, table.size * 2)
        keys = <uint64_t *>calloc(size, sizeof(uint64_t))
        values = <int32_t *>malloc(size * sizeof(int32_t))
        if keys == NULL or values == NULL:
            free(keys)
            free(values)
            return NULL
        for i in range(table.size):
            if table.keys[i]:
                at = mixed(0, table.keys[i]) & (size - 1)
                while keys[at]:
                    at = (at + 1) & (size - 1)
                keys[at] = table.keys[i]
                values[at] = table.values[i]
        free(table.keys)
        free(table.values)
        table.keys, table.values, table.size = keys, values, size
    key += key == 0
    at = mixed(0, key) & (table.size - 1)
    while table.keys[at] and table.keys[at] != key:
        at = (at + 1) & (table.size - 1)
    if not table.keys[at]:
        table.keys[at] = key
        table.values[at] = -1
        table.count += 1
    return &table.values[at]


cdef void emptied(Numbers *table) noexcept nogil:
    free(table.keys)
    free(table.values)
    memset(table, 0, sizeof(Numbers))


cdef struct Place:
    int32_t name, file, line

cdef struct String:
    uint64_t at
    uint32_t size, kind

cdef struct Memo:
    uint64_t serial
    int64_t offset
    int32_t place

cdef struct Row:
    int64_t time
    int32_t tid, stack, number
