# Events of fixed layout, decoded without their programs.  Included by _decode.pyx.
#
# Nearly all events of a kernel trace are such.  What they cost is set by jumps that are
# mispredicted and by how little the compiler can keep in registers, so that a class has
# one of a few shapes, each without a loop, and `fast_events` checks once for many events what
# need not be checked for each.

cdef extern from * nogil:
    int ctz "__builtin_ctzll"(unsigned long long)

cdef enum:
    # What is to be taken out of events of a class.
    NOTHING = 0
    ONE = 1          # one number
    TEXT_AND = 2     # a text of 16 bytes, two signed numbers of 32 bits, and one number
    TEXTS_AND = 3    # two and the same
    LOOPS = 4        # any number of both
    STRING_LAST = 5  # the same, and a null-terminated text behind the fixed part
    NOT_FAST = 6     # its program has to say
    BLOCK = 256     # events between two looks at the clock and at how much room there is
    FAST_IDS = 4096
    FAST_FIELDS = 12
    LARGEST = 4096  # bytes of an event's fixed part: that many before the end of what is
                    # there, each event is looked at by itself
    COMM = 16       # bytes of a thread's name
    NAME_BITS = 14  # far more than there are names, so that few of them meet

# A number: the 8 bytes from `at` on, of which `mask` is its own; absent fields have none.
cdef struct Number:
    int32_t at
    int32_t dst
    uint64_t mask
    uint64_t sign

cdef struct Text:
    int32_t at
    int32_t dst

# What the walk needs to know of a class.
cdef struct Stride:
    int64_t size    # bytes of contexts and payload
    int32_t row
    uint8_t wanted
    uint8_t fields
    uint8_t shape
    uint8_t unused

cdef struct Fast:
    int32_t number_count
    int32_t text_count
    int32_t string_dst  # of the text that comes last, -1 if it is not wanted
    Number numbers[FAST_FIELDS]
    Text texts[FAST_FIELDS]

# Names of threads by their 16 bytes: few are new, and hashing is most of what they cost.
cdef struct Name:
    uint64_t first
    uint64_t second
    int64_t code
    int64_t unused


cdef int64_t new_name(Strings* strings, Name* known, Name* other, uint64_t first,
                      uint64_t second) noexcept nogil:
    """The code of a name that is not where it belongs; note it there or beside it."""
    cdef uint64_t both[2]
    cdef const uint8_t* p = <const uint8_t*>both
    cdef int64_t code
    if other.first == first and other.second == second:
        return other.code
    both[0], both[1] = le64toh(first), le64toh(second)  # the other way it is the same
    code = intern(strings, p, text_length(p, COMM, 0), 0)
    if code > 0 and known.code > 0 and other.code == 0:
        known = other
    if code >= 0:
        known.first, known.second, known.code = first, second, code
    return code


cdef inline int64_t name_code(Strings* strings, Name* names, uint64_t first,
                              uint64_t second) noexcept nogil:
    """The code of a text of 16 bytes; see `Strings.short_of_memory`."""
    cdef uint64_t h = (first * <uint64_t>0x9E3779B97F4A7C15) ^ (second * <uint64_t>0xC2B2AE3D27D4EB4F)
    cdef uint64_t at = h >> (64 - NAME_BITS)
    cdef Name* known = names + at
    if known.first == first and known.second == second:
        return known.code
    return new_name(strings, known, names + (at ^ 1), first, second)


cdef inline void put_number(const uint8_t* p, const Number* of, int64_t* values) noexcept nogil:
    values[of.dst] = <int64_t>(((le64toh(raw64(p + of.at)) & of.mask) ^ of.sign) - of.sign)


cdef inline void put_narrow(const uint8_t* p, const Number* of, int64_t* values) noexcept nogil:
    values[of.dst] = <int32_t>le32toh(raw32(p + of.at))


cdef inline void put_text(const uint8_t* p, const Text* of, int64_t* values, Strings* strings,
                         Name* names) noexcept nogil:
    values[of.dst] = name_code(strings, names, le64toh(raw64(p + of.at)),
                               le64toh(raw64(p + of.at + 8)))


cdef inline uint64_t nulls(uint64_t w) noexcept nogil:
    """The top bit of the first null byte, and of some behind it."""
    return (w - <uint64_t>0x0101010101010101) & ~w & <uint64_t>0x8080808080808080


cdef inline int64_t put_string(const uint8_t* p, int64_t limit, int64_t dst, int64_t* values,
                               Strings* strings, Name* names) noexcept nogil:
    """Read a null-terminated text of at most so many bytes; its length, -1 if it is longer."""
    cdef uint64_t first = le64toh(raw64(p)), second = 0, found = nulls(first)
    cdef const uint8_t* null
    cdef int64_t n, code = 0
    if found:
        n = ctz(found) >> 3
        first &= (found & -found) - 1
    else:
        second = le64toh(raw64(p + 8))
        found = nulls(second)
        n = 8 + (ctz(found) >> 3) if found else 16
        second &= (found & -found) - 1
    if n == 16:
        null = <const uint8_t*>memchr(p, 0, limit)
        if null == NULL:
            return -1
        n = null - p
        if dst >= 0:
            code = intern(strings, p, n, 0)
    elif n >= limit:
        return -1
    elif dst >= 0:
        code = name_code(strings, names, first, second)
    if dst >= 0:
        values[dst] = code
    return n


cdef bint add_number(Fast* to, int64_t at, int64_t dst, int64_t width, bint sign) noexcept nogil:
    cdef Number* n = &to.numbers[to.number_count]
    if to.number_count == FAST_FIELDS:
        return False
    n.at, n.dst = <int32_t>at, <int32_t>dst
    n.mask = (~<uint64_t>0) >> (64 - width) if width else 0
    n.sign = (<uint64_t>1) << (width - 1) if sign else 0
    to.number_count += 1
    return True


cdef bint narrow_first(Fast* to) noexcept nogil:
    """Have two signed numbers of 32 bits and then another, if there are no more."""
    cdef Number found[3]
    cdef int64_t i, narrow = 0, other = 0
    for i in range(to.number_count):
        if to.numbers[i].sign == <uint64_t>1 << 31 and narrow < 2:
            found[narrow] = to.numbers[i]
            narrow += 1
        elif other == 0:
            found[2] = to.numbers[i]
            other = 1
        else:
            return False
    if narrow == 0:
        return False
    # The same once more does no harm.
    if narrow == 1:
        found[1] = found[0]
    if other == 0:
        found[2] = found[0]
    for i in range(3):
        to.numbers[i] = found[i]
    return True


cdef inline bint is_stored(const uint64_t* stored, int64_t dst) noexcept nogil:
    """Whether an earlier field has that place: the last one is to win, and here the order is lost."""
    return stored[0] >> dst & 1


cdef bint fuse_steps(Fast* to, Stride* stride, const Step* op, uint64_t* stored) noexcept nogil:
    """Take over a program of fixed layout; False if it is none."""
    cdef int64_t width
    cdef bint run = False
    while op.code != CODE_END:
        if op.code == CODE_ALIGN:
            if run or op.a > 8:
                return False
        elif op.code == CODE_RUN:
            if run or op.a % 8 or op.a > LARGEST * 8:
                return False
            run = True
            stride.size = op.a >> 3
        elif CODE_U8 <= op.code <= CODE_X64:
            if op.bank or op.dst >= FAST_FIELDS or is_stored(stored, op.dst):
                return False
            width = (8 if op.code <= CODE_S8 else 16 if op.code <= CODE_S16
                     else 32 if op.code <= CODE_S32 else 64)
            if not add_number(to, op.a, op.dst, width,
                              op.code == CODE_S8 or op.code == CODE_S16 or op.code == CODE_S32):
                return False
            stored[0] |= (<uint64_t>1) << op.dst
        elif op.code == CODE_TEXT:
            if op.bank or op.dst >= FAST_FIELDS or op.b != COMM or op.c:
                return False
            if is_stored(stored, op.dst):
                return False
            if to.text_count == FAST_FIELDS:
                return False
            to.texts[to.text_count].at = <int32_t>op.a
            to.texts[to.text_count].dst = <int32_t>op.dst
            to.text_count += 1
            stored[0] |= (<uint64_t>1) << op.dst
        elif op.code == CODE_STRING:
            if op.a != 1 or op.c or op.dst >= FAST_FIELDS or (op.dst >= 0 and op.bank):
                return False
            if (op + 1).code != CODE_END:
                return False
            stride.shape = STRING_LAST
            to.string_dst = <int32_t>op.dst
            if op.dst >= 0:
                if is_stored(stored, op.dst):
                    return False
                stored[0] |= (<uint64_t>1) << op.dst
        else:
            return False
        op += 1
    return True


cdef bint fuse(Fast* to, Stride* stride, const Step* steps, const Class* of) noexcept nogil:
    """Make a class fast; False if its layout is not fixed."""
    cdef uint64_t stored = 0
    cdef int64_t i
    memset(to, 0, sizeof(Fast))
    memset(stride, 0, sizeof(Stride))
    to.string_dst = -1
    if of.fields > FAST_FIELDS:
        return False
    stride.row, stride.wanted, stride.fields = of.row, of.row >= 0, <uint8_t>of.fields
    if of.bits >= 0:
        stride.size = of.bits >> 3
        if of.bits % 8 or of.align > 8 or stride.size > LARGEST:
            return False
    elif not fuse_steps(to, stride, steps + of.pc, &stored):
        return False
    # Fields that are not there are numbers of no bits.
    for i in range(of.fields):
        if not stored >> i & 1 and not add_number(to, 0, i, 0, False):
            return False
    if stride.shape == STRING_LAST:
        return True
    if to.text_count == 0 and to.number_count <= 1:
        stride.shape = ONE if to.number_count else NOTHING
    elif 1 <= to.text_count <= 2 and narrow_first(to):
        stride.shape = TEXT_AND if to.text_count == 1 else TEXTS_AND
    else:
        stride.shape = LOOPS
    return True


# How a stream's events begin, if all that matters lies within some bytes.
cdef struct Head:
    int64_t size      # bytes; 0: there is none such
    int64_t id_at
    uint64_t id_mask
    int64_t ts_at
    int64_t ts_shift
    uint64_t ts_mask

cdef struct Start:
    int64_t align
    uint64_t select_mask
    uint64_t short_ids  # selectors below are ids, and the near head is all
    Head near
    Head wide
    uint64_t ids      # known, from 0 on
    uint64_t quick    # selectors below are such ids
    int64_t largest   # bytes of a head and an event's fixed part
    int64_t shift     # ns
    uint64_t last     # the greatest clock value that has a timestamp
    Stride* strides   # by id
    Fast* table       # by id


cdef bint learn(Start* to, int64_t id, const Step* steps, const Class* of) noexcept nogil:
    """Note a class of the stream; False if memory ran out."""
    cdef int64_t i, ids = <int64_t>to.ids
    cdef void* p
    cdef Stride* stride
    if not to.near.size or id < 0 or id >= FAST_IDS:
        return True
    if id >= ids:
        ids = id + 16
        p = realloc(to.strides, ids * sizeof(Stride))
        if p == NULL:
            return False
        to.strides = <Stride*>p
        p = realloc(to.table, ids * sizeof(Fast))
        if p == NULL:
            return False
        to.table = <Fast*>p
        for i in range(<int64_t>to.ids, ids):
            memset(&to.strides[i], 0, sizeof(Stride))
            to.strides[i].shape = NOT_FAST
        to.ids = ids
        to.quick = min(to.ids, to.short_ids)
    stride = &to.strides[id]
    if not fuse(&to.table[id], stride, steps, of):
        memset(stride, 0, sizeof(Stride))
        stride.shape = NOT_FAST
        return True
    to.largest = max(to.largest, max(to.near.size, to.wide.size) + stride.size)
    return True


cdef bint plan_head(Head* to, const Way* way) noexcept nogil:
    """Take over one way of a header; False if its fields lie otherwise."""
    if way.bits % 8 or way.bits > 256 or way.id_at % 8 or not 1 <= way.id_bits <= 32:
        return False
    if not way.ts_bits or way.ts_bits + way.ts_at % 8 > 64:
        return False
    to.size, to.id_at = way.bits >> 3, way.id_at >> 3
    to.id_mask = ((<uint64_t>1) << way.id_bits) - 1
    to.ts_at, to.ts_shift = way.ts_at >> 3, way.ts_at & 7
    to.ts_mask = (~<uint64_t>0) >> (64 - way.ts_bits)
    return True


cdef void plan(Start* to, const Stream* of) noexcept nogil:
    """See whether a stream's events begin as LTTng's do, compact, large or plain."""
    cdef const Way* way = of.ways
    cdef bint always = of.way_count == 1 and way.low == 0 and way.high == 1 and of.select_bits == 1
    memset(to, 0, sizeof(Start))
    if not of.way_count or of.frequency != 1000000000 or of.align < 8 or way.id_at:
        return
    if not always and (of.select_at or way.low or of.select_bits != way.id_bits):
        return
    if not plan_head(&to.near, way):
        to.near.size = 0
        return
    to.align, to.select_mask = of.align >> 3, to.near.id_mask
    to.short_ids = to.select_mask + 1 if always else <uint64_t>way.high + 1
    if of.way_count == 2:
        way += 1
        if (<uint64_t>way.low > to.short_ids or <uint64_t>way.high < to.select_mask
                or not plan_head(&to.wide, way)):
            to.wide.size = 0
    to.largest = max(to.near.size, to.wide.size)
    to.shift = of.shift
    to.last = <uint64_t>INT64_MAX
    if of.shift > 0:
        to.last -= <uint64_t>of.shift


# --------------------------------------------------------------------------- walks over events

cdef enum:
    STOPS = 106  # an event that is not fast, or not there as a whole

# What of a decoder changes with every event.
cdef struct Progress:
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


cdef int walk(const Start* start, Progress* progress, const uint8_t* safe, const uint8_t* end,
              int64_t most, int64_t* ts, int64_t* place, int64_t* values, int64_t cpu,
              Strings* strings, Name* names) noexcept nogil:
    """Go over events that begin at `safe` at the latest, so that they are there.

    OK if it has come to that or over as many as it may, STOPS for what is not fast.
    """
    cdef const uint8_t* p = progress.p
    cdef const uint8_t* body
    cdef const uint8_t* after
    cdef const Stride* stride
    cdef const Stride* strides = start.strides
    cdef int64_t* v = values + progress.value_count
    cdef uint64_t clock = progress.clock, id, since
    cdef uint64_t select_mask = start.select_mask, ts_mask = start.near.ts_mask
    cdef uint64_t quick = start.quick
    # So much later each may be than the one before without a look at the clock's end.
    cdef uint64_t furthest = (start.last - clock) // BLOCK
    cdef int64_t head = start.near.size, ts_at = start.near.ts_at
    cdef int64_t ts_shift = start.near.ts_shift, align = start.align, shift = start.shift
    cdef int64_t rows = progress.rows, left = most, i
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
            p = p + (-<int64_t>(p - progress.buf) & (align - 1))
            if p >= end and p != after:
                p = after  # padding that the content's end cuts
                result = STOPS
                break
    progress.p, progress.clock, progress.rows = p, clock, rows
    progress.value_count = v - values
    progress.count += most - left
    return result


cdef int fast_events(const Start* start, const uint8_t* buf, int64_t limit, Progress* progress,
                     int64_t* ts, int64_t* place, int64_t room, int64_t* values,
                     int64_t value_room, int64_t cpu, Strings* strings,
                     Name* names) noexcept nogil:
    """Decode events up to one that is not fast, or the end of what is there or of room."""
    cdef const uint8_t* end = buf + (limit >> 3)
    cdef const uint8_t* safe = end - start.largest
    cdef int64_t at = (((progress.pos + 7) >> 3) + start.align - 1) & -start.align
    cdef int64_t most, row, count = progress.count
    cdef bint first
    cdef int result = OK
    if at >= limit >> 3 or not start.ids or progress.clock > start.last:
        return OK
    progress.buf, progress.p = buf, buf + at
    while result == OK:
        # As many as there is room for whatever they are; the first one apart, whose time
        # is the least.
        most = min((value_room - progress.value_count) // FAST_FIELDS, room - progress.rows)
        most = min(most, BLOCK)
        if most <= 0:
            break
        first = progress.count == count
        if first:
            most = 1
        if progress.p > safe:
            if not fits(start, progress.p, end):
                break
            most = 1
        row = progress.rows  # written to even if the event was not asked for
        result = walk(start, progress, safe if progress.p <= safe else end, end, most, ts, place,
                      values, cpu, strings, names)
        if strings.short_of_memory:
            result = NO_MEMORY
        if progress.count == count:
            break
        if first:
            progress.low = min(progress.low, ts[row])
    progress.pos = (progress.p - buf) << 3
    if progress.count > count:
        progress.high = max(progress.high, <int64_t>progress.clock + start.shift)
    return OK if result == STOPS else result
