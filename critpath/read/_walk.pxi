# Walks over events of fixed layout and takes out their fields.  Included by _decode.pyx.

cdef enum:
    STOPS = 106  # an event that is not fast, or not there as a whole

# What of a decoder changes with every event.
cdef struct Going:
    int64_t pos
    uint64_t clock
    int64_t rows
    int64_t value_count
    int64_t count
    int64_t low
    int64_t high
    const uint8_t* buf  # where `pos` counts from, and where it is while walking
    const uint8_t* p


cdef bint fits(const Start* start, const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Whether an event's head and fixed part end where they must; False if it is not known."""
    cdef uint64_t id
    cdef int64_t size = start.near.size
    if end - p < size:
        return False
    id = le64toh(raw64(p)) & start.select_mask
    if id >= start.short_ids:
        size = start.wide.size
        if not size or end - p < size:
            return False
        id = le64toh(raw64(p + start.wide.id_at)) & start.wide.id_mask
    return id < start.ids and start.strides[id].size <= end - p - size


cdef int walk(const Start* start, Going* going, const uint8_t* safe, const uint8_t* end,
              int64_t most, int64_t* ts, int64_t* place, int64_t* values, int64_t cpu,
              Strings* strings, Name* names) noexcept nogil:
    """Go over events that begin at `safe` at the latest, so that they are there.

    OK if it has come to that or over as many as it may, STOPS for what is not fast.
    """
    cdef const uint8_t* p = going.p
    cdef const uint8_t* body
    cdef const uint8_t* after
    cdef const Stride* stride
    cdef const Stride* strides = start.strides
    cdef int64_t* v = values + going.value_count
    cdef uint64_t clock = going.clock, id, since
    cdef uint64_t select_mask = start.select_mask, ts_mask = start.near.ts_mask
    cdef uint64_t quick = start.quick
    # So much later each may be than the one before without a look at the clock's end.
    cdef uint64_t furthest = (start.last - clock) // BLOCK
    cdef int64_t head = start.near.size, ts_at = start.near.ts_at
    cdef int64_t ts_shift = start.near.ts_shift, align = start.align, shift = start.shift
    cdef int64_t rows = going.rows, left = most, i
    cdef const Head* wide = &start.wide
    cdef const Fast* of
    cdef int result = OK
    while left and p <= safe:
        id = le64toh(raw64(p)) & select_mask
        if id < quick:
            # The clock only runs forward: a smaller value means that it wrapped.
            since = ((le64toh(raw64(p + ts_at)) >> ts_shift) - clock) & ts_mask
            body = p + head
        else:
            result = STOPS
            if id < start.short_ids or not wide.size:
                break
            id = le64toh(raw64(p + wide.id_at)) & wide.id_mask
            if id >= start.ids:
                break
            since = ((le64toh(raw64(p + wide.ts_at)) >> wide.ts_shift) - clock) & wide.ts_mask
            body = p + wide.size
            result = OK
        stride = strides + id
        if since > furthest:
            result = STOPS
            break
        after = body + stride.size
        of = start.table + id
        if stride.shape == TEXT_AND:
            put_narrow(body, &of.numbers[0], v)
            put_narrow(body, &of.numbers[1], v)
            put_number(body, &of.numbers[2], v)
            put_text(body, &of.texts[0], v, strings, names)
        elif stride.shape == TEXTS_AND:
            put_narrow(body, &of.numbers[0], v)
            put_narrow(body, &of.numbers[1], v)
            put_number(body, &of.numbers[2], v)
            put_text(body, &of.texts[0], v, strings, names)
            put_text(body, &of.texts[1], v, strings, names)
        elif stride.shape == ONE:
            put_number(body, &of.numbers[0], v)
        elif stride.shape != NOTHING:
            if stride.shape == NOT_FAST:
                result = STOPS
                break
            for i in range(of.number_count):
                put_number(body, &of.numbers[i], v)
            for i in range(of.text_count):
                put_text(body, &of.texts[i], v, strings, names)
            if stride.shape == STRING_LAST:
                i = put_string(after, end - after, of.string_dst, v, strings, names)
                if i < 0:
                    result = STOPS
                    break
                after += i + 1
        clock += since
        ts[rows] = <int64_t>clock + shift
        place[rows] = cpu | stride.row
        rows += stride.wanted
        v += stride.fields
        left -= 1
        p = after
        if align > 1:
            p = p + (-<int64_t>(p - going.buf) & (align - 1))
            if p >= end and p != after:
                p = after  # padding that the content's end cuts
                result = STOPS
                break
    going.p, going.clock, going.rows = p, clock, rows
    going.value_count = v - values
    going.count += most - left
    return result


cdef int fast_events(const Start* start, const uint8_t* buf, int64_t limit, Going* going,
                     int64_t* ts, int64_t* place, int64_t room, int64_t* values,
                     int64_t value_room, int64_t cpu, Strings* strings,
                     Name* names) noexcept nogil:
    """Decode events up to one that is not fast, or the end of what is there or of room."""
    cdef const uint8_t* end = buf + (limit >> 3)
    cdef const uint8_t* safe = end - start.largest
    cdef int64_t at = (((going.pos + 7) >> 3) + start.align - 1) & -start.align
    cdef int64_t most, row, count = going.count
    cdef bint first
    cdef int result = OK
    if at >= limit >> 3 or not start.ids or going.clock > start.last:
        return OK
    going.buf, going.p = buf, buf + at
    while result == OK:
        # As many as there is room for whatever they are; the first one apart, whose time
        # is the least.
        most = min(min(room - going.rows, (value_room - going.value_count) // FAST_FIELDS), BLOCK)
        if most <= 0:
            break
        first = going.count == count
        if first:
            most = 1
        if going.p > safe:
            if not fits(start, going.p, end):
                break
            most = 1
        row = going.rows  # written to even if nobody asked for the event
        result = walk(start, going, safe if going.p <= safe else end, end, most, ts, place,
                      values, cpu, strings, names)
        if strings.short_of_memory:
            result = NO_MEMORY
        if going.count == count:
            break
        if first:
            going.low = min(going.low, ts[row])
    going.pos = (going.p - buf) << 3
    if going.count > count:
        going.high = max(going.high, <int64_t>going.clock + start.shift)
    return OK if result == STOPS else result
