# Events of fixed layout, decoded without their programs.  Included by _decode.pyx.
#
# Nearly all events of a kernel trace are such.  What they cost is set by jumps that are
# mispredicted, so that a class has one of a few shapes, each without a loop, and fields
# are the same few instructions whatever their width and sign.

cdef extern from * nogil:
    int ctz "__builtin_ctzll"(unsigned long long)

cdef enum:
    NOT_FAST = 0
    NOTHING = 1     # no values
    ONE = 2         # one number
    TEXT_AND = 3    # a text of 16 bytes and up to three numbers
    TEXTS_AND = 4   # two and three
    LOOPS = 5       # any number of both
    STRING_LAST = 6 # numbers, and a null-terminated text behind the fixed part
    FAST_IDS = 4096
    FAST_FIELDS = 12
    COMM = 16       # bytes of a thread's name
    NAME_BITS = 12

# More bytes than any file has.
cdef int64_t SLOW = <int64_t>1 << 60

# A number: the 8 bytes from `at` on, of which `mask` is its own; absent fields have none.
cdef struct Number:
    int32_t at
    int32_t dst
    uint64_t mask
    uint64_t sign

cdef struct Text:
    int32_t at
    int32_t dst

cdef struct Fast:
    int64_t size    # bytes of contexts and payload; SLOW if not known so
    int32_t shape
    int32_t row
    int32_t fields
    int32_t number_count
    int32_t text_count
    int32_t string_dst  # of the text that comes last, -1 if nobody wants it
    Number numbers[FAST_FIELDS]
    Text texts[FAST_FIELDS]

# Names of threads by their 16 bytes: few are new, and hashing is most of what they cost.
cdef struct Name:
    uint64_t first
    uint64_t second
    int64_t code
    int64_t unused


cdef int64_t new_name(Strings* strings, Name* known, uint64_t first,
                      uint64_t second) noexcept nogil:
    cdef uint64_t both[2]
    cdef const uint8_t* p = <const uint8_t*>both
    cdef int64_t code
    both[0], both[1] = le64toh(first), le64toh(second)  # the other way it is the same
    code = intern(strings, p, text_length(p, COMM, 0), 0)
    if code >= 0:
        known.first, known.second, known.code = first, second, code
    return code


cdef inline int64_t name_code(Strings* strings, Name* names, uint64_t first,
                              uint64_t second) noexcept nogil:
    """The code of a text of 16 bytes, -1 if memory ran out."""
    cdef uint64_t h = (first * <uint64_t>0x9E3779B97F4A7C15) ^ (second * <uint64_t>0xC2B2AE3D27D4EB4F)
    cdef Name* known = names + (h >> (64 - NAME_BITS))
    if known.first == first and known.second == second:
        return known.code
    return new_name(strings, known, first, second)


cdef inline void put_number(const uint8_t* p, const Number* of, int64_t* values) noexcept nogil:
    values[of.dst] = <int64_t>(((le64toh(raw64(p + of.at)) & of.mask) ^ of.sign) - of.sign)


cdef inline int64_t put_text(const uint8_t* p, const Text* of, int64_t* values, Strings* strings,
                         Name* names) noexcept nogil:
    cdef int64_t code = name_code(strings, names, le64toh(raw64(p + of.at)),
                                  le64toh(raw64(p + of.at + 8)))
    values[of.dst] = code
    return code


cdef inline uint64_t nulls(uint64_t w) noexcept nogil:
    """The top bit of the first null byte, and of some behind it."""
    return (w - <uint64_t>0x0101010101010101) & ~w & <uint64_t>0x8080808080808080


cdef inline int64_t put_string(const uint8_t* p, int64_t limit, int64_t dst, int64_t* values,
                               Strings* strings, Name* names, int64_t* length) noexcept nogil:
    """Read a null-terminated text of at most so many bytes; -2 if it does not end there."""
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
            return -2
        n = null - p
        if dst >= 0:
            code = intern(strings, p, n, 0)
    elif n >= limit:
        return -2
    elif dst >= 0:
        code = name_code(strings, names, first, second)
    if dst >= 0:
        values[dst] = code
    length[0] = n
    return code


cdef bint add_number(Fast* to, int64_t at, int64_t dst, int64_t width, bint sign) noexcept nogil:
    cdef Number* n = &to.numbers[to.number_count]
    if to.number_count == FAST_FIELDS:
        return False
    n.at, n.dst = <int32_t>at, <int32_t>dst
    n.mask = (~<uint64_t>0) >> (64 - width) if width else 0
    n.sign = (<uint64_t>1) << (width - 1) if sign else 0
    to.number_count += 1
    return True


cdef bint fuse_steps(Fast* to, const Step* op, uint64_t* stored) noexcept nogil:
    """Take over a program of fixed layout; False if it is none."""
    cdef int64_t width
    cdef bint run = False
    while op.code != END:
        if op.code == ALIGN:
            if run or op.a > 8:
                return False
        elif op.code == RUN:
            if run or op.a % 8 or op.a > 65536 * 8:
                return False
            run = True
            to.size = op.a >> 3
        elif U8 <= op.code <= X64:
            if op.bank or op.dst >= FAST_FIELDS:
                return False
            width = 8 if op.code <= S8 else 16 if op.code <= S16 else 32 if op.code <= S32 else 64
            if not add_number(to, op.a, op.dst, width,
                              op.code == S8 or op.code == S16 or op.code == S32):
                return False
            stored[0] |= (<uint64_t>1) << op.dst
        elif op.code == TEXT:
            if op.bank or op.dst >= FAST_FIELDS or op.b != COMM or op.c:
                return False
            if to.text_count == FAST_FIELDS:
                return False
            to.texts[to.text_count].at = <int32_t>op.a
            to.texts[to.text_count].dst = <int32_t>op.dst
            to.text_count += 1
            stored[0] |= (<uint64_t>1) << op.dst
        elif op.code == STRING:
            if op.a != 1 or op.c or op.dst >= FAST_FIELDS or (op.dst >= 0 and op.bank):
                return False
            if (op + 1).code != END:
                return False
            to.shape = STRING_LAST
            to.string_dst = <int32_t>op.dst
            if op.dst >= 0:
                stored[0] |= (<uint64_t>1) << op.dst
        else:
            return False
        op += 1
    return True


cdef void fuse(Fast* to, const Step* steps, const Class* of) noexcept nogil:
    """Make a class fast if its layout is fixed."""
    cdef uint64_t stored = 0
    cdef int64_t i, most
    memset(to, 0, sizeof(Fast))
    to.row, to.fields, to.string_dst = of.row, of.fields, -1
    if of.fields > FAST_FIELDS:
        to.size = SLOW
        return
    if of.bits >= 0:
        to.size = of.bits >> 3
        if of.bits % 8 or of.align > 8 or to.size > 65536:
            to.size = SLOW
            return
    elif not fuse_steps(to, steps + of.pc, &stored):
        to.size, to.shape = SLOW, NOT_FAST
        return
    # Fields that are not there are numbers of no bits.
    for i in range(of.fields):
        if not stored >> i & 1 and not add_number(to, 0, i, 0, False):
            to.size, to.shape = SLOW, NOT_FAST
            return
    if to.shape == STRING_LAST:
        return
    if to.text_count == 0 and to.number_count <= 1:
        to.shape = ONE if to.number_count else NOTHING
    elif 1 <= to.text_count <= 2 and 1 <= to.number_count <= 3:
        to.shape = TEXT_AND if to.text_count == 1 else TEXTS_AND
        # The same once more does no harm.
        for i in range(to.number_count, 3):
            to.numbers[i] = to.numbers[0]
    else:
        to.shape = LOOPS


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
    int64_t shift     # ns
    uint64_t last     # the greatest clock value that has a timestamp
    int64_t* sizes    # by id, as `Fast.size`: where the next event begins hangs on it
    Fast* table       # by id


cdef bint learn(Start* to, int64_t id, const Step* steps, const Class* of) noexcept nogil:
    """Note a class of the stream; False if memory ran out."""
    cdef int64_t i, ids = <int64_t>to.ids
    cdef void* p
    if not to.near.size or id < 0 or id >= FAST_IDS:
        return True
    if id >= ids:
        ids = id + 16
        p = realloc(to.sizes, ids * 8)
        if p == NULL:
            return False
        to.sizes = <int64_t*>p
        p = realloc(to.table, ids * sizeof(Fast))
        if p == NULL:
            return False
        to.table = <Fast*>p
        for i in range(<int64_t>to.ids, ids):
            to.sizes[i] = SLOW
        to.ids = ids
    fuse(&to.table[id], steps, of)
    to.sizes[id] = to.table[id].size
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
    to.shift = of.shift
    to.last = <uint64_t>INT64_MAX
    if of.shift > 0:
        to.last -= <uint64_t>of.shift


# What of a decoder changes with every event.
cdef struct Going:
    int64_t pos
    uint64_t clock
    int64_t rows
    int64_t value_count
    int64_t count
    int64_t low
    int64_t high


cdef int fast_events(const Start* start, const uint8_t* buf, int64_t limit, Going* going,
                     int64_t* ts, int64_t* place, int64_t room, int64_t* values,
                     int64_t value_room, int64_t cpu, Strings* strings,
                     Name* names) noexcept nogil:
    """Decode events up to one that is not fast, or the end of what is there or of room."""
    cdef const uint8_t* p = buf
    cdef const uint8_t* end = buf + (limit >> 3)
    cdef const uint8_t* body
    cdef const uint8_t* after
    cdef const Fast* of
    cdef const Fast* table = start.table
    cdef const int64_t* sizes = start.sizes
    cdef int64_t* v = values + going.value_count
    cdef uint64_t clock = going.clock, id, now
    cdef uint64_t select_mask = start.select_mask, ts_mask = start.near.ts_mask
    cdef uint64_t ids = start.ids, short_ids = start.short_ids
    cdef int64_t rows = going.rows, count = going.count
    cdef int64_t head = start.near.size, ts_at = start.near.ts_at
    cdef int64_t ts_shift = start.near.ts_shift, align = start.align
    cdef const Head* wide = &start.wide
    cdef int64_t first = going.count, code = 0, length = 0, i, at = (going.pos + 7) >> 3
    cdef int result = OK
    at = (at + align - 1) & -align
    if at >= limit >> 3:
        return OK
    p = buf + at
    # As many rows as there is room for their values whatever they are.
    i = (value_room - going.value_count) // FAST_FIELDS
    if room - rows > i:
        room = rows + i
    while rows < room and end - p >= head:
        id = le64toh(raw64(p)) & select_mask
        if id < short_ids:
            now = (le64toh(raw64(p + ts_at)) >> ts_shift) & ts_mask
            # The clock only runs forward: a smaller value means that it wrapped.
            now = clock + ((now - clock) & ts_mask)
            body = p + head
        else:
            if not wide.size or end - p < wide.size:
                break
            id = le64toh(raw64(p + wide.id_at)) & wide.id_mask
            now = (le64toh(raw64(p + wide.ts_at)) >> wide.ts_shift) & wide.ts_mask
            now = clock + ((now - clock) & wide.ts_mask)
            body = p + wide.size
        if id >= ids:
            break
        if sizes[id] > end - body:
            break
        after = body + sizes[id]
        of = table + id
        if now > start.last or now < clock:
            break
        if of.shape == TEXTS_AND:
            put_number(body, &of.numbers[0], v)
            put_number(body, &of.numbers[1], v)
            put_number(body, &of.numbers[2], v)
            code = put_text(body, &of.texts[0], v, strings, names)
            code |= put_text(body, &of.texts[1], v, strings, names)
        elif of.shape == TEXT_AND:
            put_number(body, &of.numbers[0], v)
            put_number(body, &of.numbers[1], v)
            put_number(body, &of.numbers[2], v)
            code = put_text(body, &of.texts[0], v, strings, names)
        elif of.shape == ONE:
            put_number(body, &of.numbers[0], v)
        elif of.shape != NOTHING:
            for i in range(of.number_count):
                put_number(body, &of.numbers[i], v)
            for i in range(of.text_count):
                code |= put_text(body, &of.texts[i], v, strings, names)
            if of.shape == STRING_LAST:
                i = put_string(after, end - after, of.string_dst, v, strings, names, &length)
                if i == -2:
                    break
                code |= i
                after += length + 1
        if code < 0:  # of texts: memory ran out
            result = NO_MEMORY
            break
        clock = now
        ts[rows] = <int64_t>now + start.shift
        place[rows] = cpu | of.row
        rows += of.row >= 0
        v += of.fields
        if count == first:
            going.low = min(going.low, <int64_t>now + start.shift)
        count += 1
        p = after
        if align > 1:
            p = buf + ((p - buf + align - 1) & -align)
            if p >= end and p != after:
                p = after  # padding that the content's end cuts
                break
    going.pos = (p - buf) << 3
    going.clock, going.rows, going.count = clock, rows, count
    going.value_count = v - values
    if count > first:
        going.high = max(going.high, <int64_t>clock + start.shift)
    return result
