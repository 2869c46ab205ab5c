# cython: language_level=3
"""Reads the lines of ftrace's text and writes their events into pages.

A line is a head (who, where, when), the event's name and what its tracepoint prints.  What is
printed is taken apart by forms (`add_event`), which are texts with places for values; events
without a form by their ``key=value``, whose kinds are learned from the lines themselves.
"""

from libc.stdint cimport int8_t

include "_page_writer.pxi"

cdef extern from "string.h" nogil:
    void* memchr(const void*, int, size_t)
    int memcmp(const void*, const void*, size_t)

include "_takes.pxi"

cdef enum:
    LINE = 15 << 10    # bytes of a line: the kernel makes none longer than 8 KiB
    NAME = 100         # bytes of a name of an event or a field
    FORMS = 8
    PLACES = 16        # of a form
    PAIRS_MOST = 60    # fields by key=value; what is behind belongs to the last
    EVENTS = 4096
    FUNCTIONS = 4096
    TRIES = 32         # ends of a name that are tried
    SLOTS = 1 << 14    # of the table of names
    COMM = 15
    CPUS = PAGE_MOST_CPUS
    COMMON = 8         # bytes of a record before its fields

ctypedef struct Place:
    int kind
    int offset         # in the record
    int size
    int text           # the text behind it: where it is among all texts, and its length
    int length

ctypedef struct Form:
    int text           # before the first place
    int length
    int count
    Place places[PLACES]

ctypedef struct Pair:
    uint8_t name[NAME]
    int length
    int numeric        # every value so far was a number

ctypedef struct Event:
    uint8_t name[NAME]
    int length
    int number         # common_type; -1: of no known form, left out
    int size           # of the record without what lies behind its fields
    int flags
    int child          # FORKS: where the new thread is
    int form_count
    Form* forms
    Pair* pairs
    int pair_count
    int frozen         # pairs are as they are written; what differs changes them
    int64_t written
    int64_t left_out

ctypedef struct Head:
    const uint8_t* comm
    int comm_length
    int32_t pid
    int32_t tgid       # 0: not known
    int64_t cpu
    int flags          # common_flags; -1: not known
    int preempt
    uint64_t time
    int exact          # ns, else µs
    const uint8_t* rest

ctypedef struct Thread:
    int32_t tid
    int32_t tgid
    int born           # in the text
    int comm_length
    uint8_t comm[COMM + 1]

ctypedef struct Span:
    const uint8_t* at
    int length


cdef inline bint is_digit(uint8_t c) noexcept nogil:
    return 48 <= c <= 57


cdef inline bint is_word(uint8_t c) noexcept nogil:
    return 97 <= (c | 32) <= 122 or 48 <= c <= 57 or c == 95


cdef inline int hex_value(uint8_t c) noexcept nogil:
    if 48 <= c <= 57:
        return c - 48
    c |= 32
    return c - 87 if 97 <= c <= 102 else -1


cdef inline const uint8_t* skip_blanks(const uint8_t* p, const uint8_t* end) noexcept nogil:
    while p < end and p[0] == 32:
        p += 1
    return p


cdef const uint8_t* read_number(const uint8_t* p, const uint8_t* end, int64_t* value) noexcept nogil:
    """Read a decimal number; NULL where there is none that fits."""
    cdef int64_t v = 0
    cdef const uint8_t* begin = p
    while p < end and is_digit(p[0]):
        if p - begin >= 18:
            return NULL
        v = 10 * v + p[0] - 48
        p += 1
    if p == begin:
        return NULL
    value[0] = v
    return p


cdef const uint8_t* read_integer(const uint8_t* p, const uint8_t* end, int64_t* value) noexcept nogil:
    """Read a number with a sign, or a hexadecimal one after 0x."""
    cdef uint64_t u
    cdef const uint8_t* q
    if p < end and p[0] == 45:
        q = read_number(p + 1, end, value)
        if q != NULL:
            value[0] = -value[0]
        return q
    if end - p > 2 and p[0] == 48 and p[1] | 32 == 120:
        q = read_hexadecimal(p, end, &u)
        value[0] = <int64_t>u
        return q
    q = read_number(p, end, value)
    if q == NULL and end - p >= 19 and is_digit(p[0]):
        # Of 64 bits without a sign: the sector of what has none.
        u = 0
        q = p
        while q < end and is_digit(q[0]):
            if u > 1844674407370955161ull or (u == 1844674407370955161ull and q[0] > 53):
                return NULL
            u = 10 * u + q[0] - 48
            q += 1
        value[0] = <int64_t>u
    return q


cdef const uint8_t* read_hexadecimal(const uint8_t* p, const uint8_t* end,
                                     uint64_t* value) noexcept nogil:
    cdef uint64_t v = 0
    cdef const uint8_t* begin
    cdef int digit
    if end - p > 2 and p[0] == 48 and p[1] | 32 == 120:
        p += 2
    begin = p
    while p < end:
        digit = hex_value(p[0])
        if digit < 0:
            break
        if p - begin >= 16:
            return NULL
        v = v << 4 | <uint64_t>digit
        p += 1
    if p == begin:
        return NULL
    value[0] = v
    return p


cdef const uint8_t* read_time(const uint8_t* p, const uint8_t* end, Head* h) noexcept nogil:
    """Read seconds with six or nine digits behind the point, or µs as latency formats have them."""
    cdef int64_t whole, part
    cdef const uint8_t* q = read_number(p, end, &whole)
    cdef const uint8_t* r
    cdef int64_t digits
    if q == NULL or q >= end or whole > <int64_t>1 << 42:
        return NULL
    if q[0] == 46 and whole < <int64_t>1 << 32:
        r = read_number(q + 1, end, &part)
        if r == NULL:
            return NULL
        digits = r - q - 1
        if digits == 9:
            h.exact = 1
        elif digits == 6:
            h.exact = 0
            part *= 1000
        else:
            return NULL
        h.time = <uint64_t>(whole * <int64_t>1000000000 + part)
        return r
    if end - q >= 2 and q[0] == 117 and q[1] == 115:
        h.exact = 0
        # From the first event on: the text does not say when that was.
        h.time = <uint64_t>(<int64_t>1000000000 + whole * 1000)
        q += 2
        if q < end and q[0] != 32 and q[0] != 58:
            q += 1  # that the next took long
        return skip_blanks(q, end)
    return NULL


cdef bint read_flags(const uint8_t* p, const uint8_t* end, Head* h) noexcept nogil:
    """Read ``d..2.``: interrupts off, rescheduling wanted, in an interrupt, preemption, migration."""
    cdef int64_t count = end - p
    cdef int flags = 0
    if not 3 <= count <= 8:
        return False
    if p[0] == 100 or p[0] == 68:       # d D
        flags |= 0x01
    if p[0] == 98 or p[0] == 66 or p[0] == 68:   # b B D: softirqs off
        flags |= 0x80
    elif p[0] != 46 and p[0] != 88 and p[0] != 100:
        return False
    if p[1] == 78 or p[1] == 110 or p[1] == 76 or p[1] == 66:   # N n L B: of the thread
        flags |= 0x04
    if p[1] == 78 or p[1] == 112 or p[1] == 98 or p[1] == 66:   # N p b B: of preemption
        flags |= 0x20
    if p[2] == 104 or p[2] == 72:       # h H
        flags |= 0x08
    if p[2] == 115 or p[2] == 72:       # s H
        flags |= 0x10
    if p[2] == 122 or p[2] == 90:       # z Z: an interrupt that cannot be masked
        flags |= 0x40
        if p[2] == 90:
            flags |= 0x08
    h.flags = flags
    h.preempt = hex_value(p[3]) if count > 3 and hex_value(p[3]) >= 0 else 0
    return True


cdef bint read_from_cpu(const uint8_t* p, const uint8_t* end, Head* h) noexcept nogil:
    """Read what follows the cpu: perhaps flags, the time, a colon."""
    cdef const uint8_t* q
    p = skip_blanks(p, end)
    h.flags = -1
    h.preempt = 0
    if p < end and (not is_digit(p[0])):
        q = <const uint8_t*>memchr(p, 32, min(end - p, 12))
        if q == NULL or not read_flags(p, q, h):
            return False
        p = skip_blanks(q, end)
    q = read_time(p, end, h)
    if q == NULL or q >= end or q[0] != 58:
        return False
    h.rest = q + 1
    return True


cdef bint read_who(const uint8_t* begin, const uint8_t* p, Head* h) noexcept nogil:
    """Read backward from the cpu: perhaps the process in brackets, the thread, its name."""
    cdef const uint8_t* q
    cdef int64_t value
    while p > begin and (p - 1)[0] == 32:
        p -= 1
    h.tgid = 0
    if p > begin and (p - 1)[0] == 41:
        q = p - 1
        while q > begin and (q - 1)[0] != 40 and p - q < 16:
            q -= 1
        if q == begin or (q - 1)[0] != 40:
            return False
        if read_number(skip_blanks(q, p), p, &value) != NULL and value < 1 << 30:
            h.tgid = <int32_t>value
        p = q - 1
        while p > begin and (p - 1)[0] == 32:
            p -= 1
    q = p
    while q > begin and is_digit((q - 1)[0]):
        q -= 1
    if q == p or read_number(q, p, &value) == NULL or value >= 1 << 30:
        return False
    h.pid = <int32_t>value
    if q - begin >= 2 and (q - 1)[0] == 47 and is_digit((q - 2)[0]):
        # perf: process/thread
        p = q - 1
        q = p
        while q > begin and is_digit((q - 1)[0]):
            q -= 1
        if read_number(q, p, &value) == NULL or value >= 1 << 30:
            return False
        h.tgid = <int32_t>value
    if q == begin:
        return False
    if (q - 1)[0] == 45:
        q -= 1
    elif (q - 1)[0] == 32:
        while q > begin and (q - 1)[0] == 32:
            q -= 1
    else:
        return False
    h.comm = skip_blanks(begin, q)
    h.comm_length = <int>(q - h.comm)
    return True


cdef bint read_head(const uint8_t* begin, const uint8_t* end, Head* head) noexcept nogil:
    """Read a line's head.  A name may look like one: then the longest name that fits counts."""
    cdef const uint8_t* p = skip_blanks(begin, end)
    cdef const uint8_t* first = p
    cdef const uint8_t* q
    cdef const uint8_t* bracket
    cdef Head h
    cdef int64_t cpu
    cdef int found = 0
    while True:
        bracket = <const uint8_t*>memchr(p, 91, end - p)
        if bracket == NULL or (found and bracket - first > 64):
            break
        p = bracket + 1
        q = read_number(p, end, &cpu)
        if q == NULL or q >= end or q[0] != 93 or cpu >= CPUS:
            continue
        if not read_who(begin, bracket, &h) or not read_from_cpu(q + 1, end, &h):
            continue
        if found and h.comm_length > COMM:
            break
        h.cpu = cpu
        head[0] = h
        found = 1
    if not found:
        found = read_latency_head(first, end, head)
    if not found:
        return False
    if head.comm_length > COMM:
        # The name of a buffer stands in front of some.
        p = head.comm
        q = <const uint8_t*>memchr(p, 58, head.comm_length)
        if q != NULL and q + 1 < p + head.comm_length and q[1] == 32:
            q = skip_blanks(q + 1, p + head.comm_length)
            head.comm_length = <int>(p + head.comm_length - q)
            head.comm = q
    return True


cdef bint is_of_header(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Whether a line is of trace-cmd's or atrace's header: ``cpus=2``, ``CPU 1 is empty``."""
    cdef int64_t length = end - p
    return (
        (length >= 5 and memcmp(p, b"cpus=", 5) == 0)
        or (length >= 10 and memcmp(p, b"version = ", 10) == 0)
        or (length >= 13 and memcmp(p, b"CPU ", 4) == 0 and memcmp(end - 8, b"is empty", 8) == 0)
        or (length == 6 and memcmp(p, b"TRACE:", 6) == 0)
    )


cdef bint read_latency_head(const uint8_t* begin, const uint8_t* end, Head* h) noexcept nogil:
    """Read ``NAME-12   0d.h.. 34us``: the cpu stands before the flags."""
    cdef const uint8_t* p = begin
    cdef const uint8_t* q
    cdef int64_t cpu
    cdef int found = 0
    cdef Head one
    while p < end and (not found or p - begin <= COMM + 1):
        p = <const uint8_t*>memchr(p, 45, end - p)
        if p == NULL or p - begin > 64:
            break
        q = p + 1
        while q < end and is_digit(q[0]):
            q += 1
        if q > p + 1 and q < end and q[0] == 32 and read_who(begin, q, &one):
            q = read_number(skip_blanks(q, end), end, &cpu)
            if (q != NULL and q < end and cpu < CPUS and not is_digit(q[0])
                    and read_from_cpu(q, end, &one) and one.flags >= 0):
                one.cpu = cpu
                h[0] = one
                found = 1
        p += 1
    return found


cdef inline uint64_t hash_bytes(const uint8_t* p, int64_t length) noexcept nogil:
    cdef uint64_t first = 0, middle = 0, last = 0
    if length >= 8:
        memcpy(&first, p, 8)
        memcpy(&middle, p + (length - 8) // 2, 8)
        memcpy(&last, p + length - 8, 8)
    else:
        memcpy(&first, p, length)
    first = (first ^ <uint64_t>length) * 0x9E3779B97F4A7C15ull
    first = (first ^ middle ^ first >> 32) * 0xC2B2AE3D27D4EB4Full
    first = (first ^ last ^ first >> 29) * 0x165667B19E3779F9ull
    return first ^ first >> 32


cdef class TextParser:
    """Reads ftrace's text, a part of whole lines after the other.

    `declare`: asked once for each name of an event, with its group ("" where the text has none)
    and whether it is a system call; answers (number, size, flags, child, forms, pairs).
    """

    cdef PageWriter pages
    cdef object declare
    cdef Event* events
    cdef int event_count
    cdef int32_t* slots          # by name: event + 1
    cdef bytearray texts
    cdef const uint8_t* text
    cdef Thread* threads
    cdef int64_t thread_room, thread_count
    cdef int64_t* lost           # per cpu: before its next event; -1: so many are not known
    cdef uint64_t* last          # per cpu: the last time, with ns that keep the order
    cdef uint8_t* begun          # per cpu
    cdef uint64_t base           # µs that the last lines share
    cdef uint64_t extra
    cdef int function_count
    cdef Span* functions
    cdef int32_t* function_slots
    cdef uint8_t* record
    cdef readonly uint64_t newest
    cdef readonly int64_t lines, parsed, stacks, calls, unknown, too_long, without_flags
    cdef readonly int64_t rounded, overwritten, placed, records_of_perf
    cdef int64_t cpus_said
    cdef readonly bint changed
    cdef readonly bytes first_unknown
    cdef bint writes
    cdef list kept

    def __cinit__(self, PageWriter pages, declare):
        self.pages, self.declare, self.writes = pages, declare, pages is not None
        self.events = <Event*>calloc(EVENTS, sizeof(Event))
        self.slots = <int32_t*>calloc(SLOTS, sizeof(int32_t))
        self.lost = <int64_t*>calloc(CPUS, sizeof(int64_t))
        self.last = <uint64_t*>calloc(CPUS, sizeof(uint64_t))
        self.begun = <uint8_t*>calloc(CPUS, 1)
        self.functions = <Span*>calloc(FUNCTIONS, sizeof(Span))
        self.function_slots = <int32_t*>calloc(SLOTS, sizeof(int32_t))
        self.record = <uint8_t*>calloc(1, 4 * LINE)
        self.thread_room = 1 << 12
        self.threads = <Thread*>calloc(self.thread_room, sizeof(Thread))
        if (self.events == NULL or self.slots == NULL or self.lost == NULL or self.last == NULL
                or self.begun == NULL or self.functions == NULL or self.function_slots == NULL
                or self.record == NULL or self.threads == NULL):
            raise MemoryError
        self.texts, self.kept, self.first_unknown = bytearray(), [], b""
        self.text = NULL

    def __dealloc__(self):
        cdef int i
        if self.events != NULL:
            for i in range(self.event_count):
                free(self.events[i].forms)
                free(self.events[i].pairs)
        free(self.events)
        free(self.slots)
        free(self.lost)
        free(self.last)
        free(self.begun)
        free(self.functions)
        free(self.function_slots)
        free(self.record)
        free(self.threads)

    # --------------------------------------------------------------------------------- lines

    def feed(self, const uint8_t[::1] data not None):
        """Read lines; the last ends with the data."""
        cdef const uint8_t* p
        cdef const uint8_t* end
        cdef const uint8_t* newline
        if data.shape[0] == 0:
            return
        p = &data[0]
        end = p + data.shape[0]
        with nogil:
            while p < end:
                newline = <const uint8_t*>memchr(p, 10, end - p)
                if newline == NULL:
                    newline = end
                self.read_line(p, newline - 1 if newline > p and (newline - 1)[0] == 13 else newline)
                p = newline + 1

    cdef int read_line(self, const uint8_t* p, const uint8_t* end) except -1 nogil:
        cdef Head h
        if skip_blanks(p, end) == end:
            return 0
        self.lines += 1
        if p[0] == 35:
            return self.read_comment(p, end)
        if p[0] == 9:
            self.stacks += 1
            return 0
        if end - p > LINE:
            self.too_long += 1
            return 0
        if not read_head(p, end, &h):
            if is_of_header(p, end):
                return 0
            return self.read_other(p, end)
        return self.read_event(p, end, &h)

    cdef int read_comment(self, const uint8_t* p, const uint8_t* end) except -1 nogil:
        """Read of the header how many events were overwritten."""
        cdef int64_t inside, written, cpus
        cdef const uint8_t* q = NULL
        if end - p > 36 and memcmp(p, b"# entries-in-buffer/entries-written:", 36) == 0:
            q = skip_blanks(p + 36, end)
        elif end - p > 11 and memcmp(p, b"# latency: ", 11) == 0:
            q = <const uint8_t*>memchr(p + 1, 35, end - p - 1)
            q = q + 1 if q != NULL else NULL
        if q == NULL:
            return 0
        q = read_number(q, end, &inside)
        if q == NULL or q >= end or q[0] != 47 or self.overwritten:
            return 0
        q = read_number(q + 1, end, &written)
        if q == NULL or written <= inside:
            return 0
        self.overwritten = written - inside
        while q < end:
            q = <const uint8_t*>memchr(q, 80, end - q)   # #P:2
            if q == NULL:
                break
            q += 1
            if q < end and q[0] == 58 and read_number(q + 1, end, &cpus) != NULL and 0 < cpus < CPUS:
                self.cpus_said = cpus
        return 0

    cdef int read_other(self, const uint8_t* p, const uint8_t* end) except -1 nogil:
        """Read ``CPU:2 [LOST 12 EVENTS]`` and ``CPU:2 [12 EVENTS DROPPED]``; count what else is."""
        cdef const uint8_t* q = p
        cdef int64_t cpu, count = -1
        while q < end:
            q = <const uint8_t*>memchr(q, 67, end - q)
            if q == NULL or q - p > 64:
                break
            if end - q > 6 and memcmp(q, b"CPU:", 4) == 0:
                q = read_number(q + 4, end, &cpu)
                if q != NULL and end - q > 2 and q[0] == 32 and q[1] == 91 and cpu < CPUS:
                    q += 2
                    if end - q > 5 and memcmp(q, b"LOST ", 5) == 0:
                        q += 5
                    if is_digit(q[0]):
                        q = read_number(q, end, &count)
                        if q == NULL:
                            break
                        q += 1
                    if end - q >= 6 and memcmp(q, b"EVENTS", 6) == 0:
                        self.note_loss(cpu, count)
                        return 0
                break
            q += 1
        return self.count_unknown(p, end)

    cdef int count_unknown(self, const uint8_t* p, const uint8_t* end) except -1 nogil:
        self.unknown += 1
        if self.unknown == 1:
            with gil:
                self.first_unknown = p[:min(end - p, 80)]
        return 0

    cdef void note_loss(self, int64_t cpu, int64_t count) noexcept nogil:
        if count > 0 and count < <int64_t>1 << 50:
            self.lost[cpu] = count if self.lost[cpu] <= 0 else self.lost[cpu] + count
        elif self.lost[cpu] == 0:
            self.lost[cpu] = -1

    cdef int read_event(self, const uint8_t* line, const uint8_t* end, Head* h) except -1 nogil:
        cdef const uint8_t* p = skip_blanks(h.rest, end)
        cdef const uint8_t* name
        cdef const uint8_t* group = NULL
        cdef int64_t length, group_length = 0, count
        cdef int call = 0, at
        cdef Event* event
        name = p
        while p < end and is_digit(p[0]):
            p += 1
        if p > name and p < end and p[0] == 32:
            # perf: the period
            p = skip_blanks(p, end)
            name = p
        else:
            p = name
        while p < end and is_word(p[0]):
            p += 1
        if p + 1 < end and p[0] == 58 and is_word(p[1]):
            group, group_length = name, p - name
            p += 1
            name = p
            while p < end and (is_word(p[0]) or p[0] == 45):
                p += 1
        length = p - name
        if length > NAME - 12 or group_length > NAME:
            return self.count_unknown(line, end)
        if p < end and p[0] == 58:
            p += 1
        elif p < end and p[0] == 40 and length > 4 and memcmp(name, b"sys_", 4) == 0:
            call = 1
            p += 1
            if (end - 1)[0] == 41:
                end -= 1
        elif end - p > 4 and memcmp(p, b" -> ", 4) == 0 and length > 4 and memcmp(name, b"sys_", 4) == 0:
            call = 2
            p += 4
        elif end - p > 3 and p[0] == 32 and p[1] == 60 and p[2] == 45:
            self.calls += 1   # of the function tracer
            return 0
        elif length >= 12 and memcmp(name, b"PERF_RECORD_", 12) == 0:
            if length == 16 and memcmp(name + 12, b"LOST", 4) == 0:
                count = -1
                while p < end and not is_digit(p[0]):
                    p += 1
                read_number(p, end, &count)
                self.note_loss(h.cpu, count)
            else:
                self.records_of_perf += 1
            return 0
        elif h.flags >= 0 and p < end:
            # trace_printk: the name of a function with an offset in it
            p = name
            length = 0
        else:
            return self.count_unknown(line, end)
        if length == 1 and name[0] == 48:
            length = 0   # tracing_mark_write of old kernels
        p = skip_blanks(p, end)
        at = self.find_event(name, length, group, group_length, call, p, end)
        event = &self.events[at]
        self.parsed += 1
        self.note_thread(h.pid, h.tgid, h.comm, h.comm_length, 0)
        if h.time > self.newest:
            self.newest = h.time
        if event.flags & TREAT_NEEDS_FLAGS and h.flags < 0:
            self.without_flags += 1
            return 0
        return self.read_fields(event, p, end, h)

    cdef int read_fields(self, Event* event, const uint8_t* p, const uint8_t* end,
                         Head* h) except -1 nogil:
        cdef int64_t size = -1
        cdef int i
        cdef int32_t child
        memset(self.record, 0, event.size)
        if event.number < 0:
            event.left_out += 1
            return 0
        if event.flags & (TREAT_PAIRS | TREAT_HEX_PAIRS):
            size = self.read_pairs(event, p, end)
            if size < 0:
                return 0
        else:
            if event.flags & TREAT_MARKS:
                p = self.skip_function(p, end)
            for i in range(event.form_count):
                size = self.match(event, &event.forms[i], p, end)
                if size >= 0:
                    break
            if size < 0:
                event.left_out += 1
                return 0
        event.written += 1
        if event.flags & TREAT_FORKS:
            memcpy(&child, self.record + event.child, 4)
            self.note_thread(child, 0, NULL, 0, 1)
        if self.writes and not self.changed:
            self.write(event, size, h)
        return 0

    cdef int write(self, Event* event, int64_t size, Head* h) except -1 nogil:
        cdef uint64_t time = self.order(h)
        cdef uint16_t number = <uint16_t>event.number
        cdef int64_t cpu = h.cpu, count
        memcpy(self.record, &number, 2)
        self.record[2] = <uint8_t>max(h.flags, 0)
        self.record[3] = <uint8_t>h.preempt
        memcpy(self.record + 4, &h.pid, 4)
        if not self.begun[cpu]:
            self.begun[cpu] = 1
            if self.overwritten and cpu < self.cpus_said:
                # Nothing says whose they were.
                count = self.overwritten // self.cpus_said + (cpu < self.overwritten % self.cpus_said)
                self.note_loss(cpu, count)
                self.placed += count
        if self.lost[cpu]:
            self.pages.lose(cpu, time, max(self.lost[cpu], 0))
            self.lost[cpu] = 0
        return self.pages.append(cpu, time, self.record, size)

    cdef uint64_t order(self, Head* h) noexcept nogil:
        """Return a time by which lines of the same µs stay in the order in which they stand."""
        cdef uint64_t time = h.time
        cdef uint64_t last = self.last[h.cpu]
        if not h.exact:
            self.rounded += 1
            if time == self.base:
                if self.extra < 999:
                    self.extra += 1
                time += self.extra
            elif time > self.base:
                self.base, self.extra = time, 0
            elif last >= time and last < time + 999:
                time = last + 1
        self.last[h.cpu] = time
        return time

    # --------------------------------------------------------------------------------- names

    cdef int find_event(self, const uint8_t* name, int64_t length, const uint8_t* group,
                        int64_t group_length, int call, const uint8_t* rest,
                        const uint8_t* end) except -1 nogil:
        """Return the event of a name; one that is new is declared."""
        cdef uint8_t whole[NAME + 12]
        cdef uint64_t slot
        cdef int at
        cdef Event* event
        if call:
            # sys_read(...) is sys_enter_read, sys_read -> 0x0 is sys_exit_read
            if call == 1:
                memcpy(whole, b"sys_enter_", 10)
                memcpy(whole + 10, name + 4, length - 4)
                length += 6
            else:
                memcpy(whole, b"sys_exit_", 9)
                memcpy(whole + 9, name + 4, length - 4)
                length += 5
            name = whole
        slot = hash_bytes(name, length) & (SLOTS - 1)
        while self.slots[slot]:
            event = &self.events[self.slots[slot] - 1]
            if event.length == length and memcmp(event.name, name, length) == 0:
                return self.slots[slot] - 1
            slot = (slot + 1) & (SLOTS - 1)
        if self.event_count == EVENTS:
            return EVENTS - 1
        at = self.event_count
        event = &self.events[at]
        memcpy(event.name, name, length)
        event.length = <int>length
        event.number = -1
        event.size = COMMON
        self.event_count += 1
        self.slots[slot] = at + 1
        if at == EVENTS - 1:
            return at   # all further ones are left out, and counted
        with gil:
            self.add_event(at, name[:length], group[:group_length], rest[:end - rest])
        return at

    cdef int add_event(self, int at, bytes name, bytes group, bytes line) except -1:
        """Ask what an event is."""
        cdef Event* event = &self.events[at]
        cdef Form* form
        cdef Place* place
        event.number, event.size, event.flags, event.child, forms, pairs = self.declare(name, group, line)
        if forms:
            event.forms = <Form*>calloc(len(forms), sizeof(Form))
            if event.forms == NULL:
                raise MemoryError
            for text, places in forms[:FORMS]:
                form = &event.forms[event.form_count]
                form.text, form.length = self.add_text(text)
                for kind, offset, size, text_behind in places[:PLACES]:
                    place = &form.places[form.count]
                    place.kind, place.offset, place.size = kind, offset, size
                    place.text, place.length = self.add_text(text_behind)
                    form.count += 1
                event.form_count += 1
        if event.flags & (TREAT_PAIRS | TREAT_HEX_PAIRS):
            event.pairs = <Pair*>calloc(PAIRS_MOST, sizeof(Pair))
            if event.pairs == NULL:
                raise MemoryError
            for key, numeric in pairs:
                memcpy(event.pairs[event.pair_count].name, <const char*>key, len(key))
                event.pairs[event.pair_count].length = len(key)
                event.pairs[event.pair_count].numeric = numeric
                event.pair_count += 1
            event.frozen = bool(pairs)
        return 0

    cdef tuple add_text(self, bytes text):
        at = len(self.texts)
        self.texts += text
        # Its bytes may have moved.
        self.text = <const uint8_t*><const char*>self.texts
        return at, len(text)

    # --------------------------------------------------------------------------------- forms

    cdef int64_t match(self, Event* event, Form* form, const uint8_t* p,
                       const uint8_t* end) except -2 nogil:
        """Fill in the record; return its size, -1 if the text is of another form."""
        if end - p < form.length or memcmp(p, self.text + form.text, form.length):
            return -1
        return self.match_from(form, 0, p + form.length, end, event.size)

    cdef int64_t match_from(self, Form* form, int at, const uint8_t* p, const uint8_t* end,
                            int64_t used) except -2 nogil:
        """Match the places from `at` on; the record has `used` bytes."""
        cdef Place* place
        cdef const uint8_t* q
        cdef const uint8_t* last
        cdef int64_t value = 0, minor, size
        cdef uint64_t bits
        cdef uint32_t located
        cdef int tries = 0
        while True:
            if at == form.count:
                return used if p == end or skip_blanks(p, end) == end else -1
            place = &form.places[at]
            if place.kind == TAKE_CHARACTERS or place.kind == TAKE_TEXT or place.kind == TAKE_SKIPPED:
                break
            q = NULL
            if place.kind == TAKE_INTEGER:
                q = read_integer(p, end, &value)
            elif place.kind == TAKE_HEXADECIMAL:
                q = read_hexadecimal(p, end, &bits)
                if q == NULL and p < end and p[0] == 40:
                    # (null), (____ptrval____)
                    q = <const uint8_t*>memchr(p, 41, end - p)
                    bits = 0
                    q = q + 1 if q != NULL else NULL
                value = <int64_t>bits
            elif place.kind == TAKE_STATE or place.kind == TAKE_STATE_OF_TRACE_CMD:
                q = read_state(p, end, place.kind == TAKE_STATE_OF_TRACE_CMD, &value)
            elif place.kind == TAKE_DEVICE:
                q = read_number(p, end, &value)
                if q != NULL and q < end and q[0] == 44:
                    q = read_number(q + 1, end, &minor)
                    value = value << 20 | minor & 0xFFFFF
                else:
                    q = NULL
            elif place.kind == TAKE_FUNCTION:
                q = p
                while q < end and q[0] != 32:
                    q += 1
                value = self.number_function(p, q - p)
            elif place.kind == TAKE_HANDLED:
                q = p
                while q < end and q[0] != 32:
                    q += 1
                value = q - p == 7 and memcmp(p, b"handled", 7) == 0
            if q == NULL or end - q < place.length:
                return -1
            if memcmp(q, self.text + place.text, place.length):
                return -1
            memcpy(self.record + place.offset, &value, place.size)
            p = q + place.length
            at += 1
        # A name may have in it what stands behind it: the longest that leaves the rest its form.
        last = end - place.length
        if place.kind == TAKE_CHARACTERS and last > p + place.size - 1:
            last = p + place.size - 1
        q = last
        while q >= p and tries < TRIES:
            if place.length and memcmp(q, self.text + place.text, place.length):
                q -= 1
                continue
            if at + 1 == form.count and q + place.length != end:
                q -= 1
                continue
            tries += 1
            size = used
            if place.kind == TAKE_CHARACTERS:
                memset(self.record + place.offset, 0, place.size)
                memcpy(self.record + place.offset, p, min(q - p, place.size - 1))
            elif place.kind == TAKE_TEXT:
                located = <uint32_t>((q - p + 1) << 16 | used)
                memcpy(self.record + place.offset, &located, 4)
                memcpy(self.record + used, p, q - p)
                self.record[used + (q - p)] = 0
                size = used + (q - p) + 1
            size = self.match_from(form, at + 1, q + place.length, end, size)
            if size != -1:
                return size
            q -= 1
        if place.kind != TAKE_CHARACTERS or not place.length:
            return -1
        # Longer than the kernel's names are: cut.
        q = last + 1
        while end - q >= place.length and memcmp(q, self.text + place.text, place.length):
            q += 1
        if end - q < place.length:
            return -1
        memcpy(self.record + place.offset, p, place.size - 1)
        self.record[place.offset + place.size - 1] = 0
        return self.match_from(form, at + 1, q + place.length, end, used)

    cdef const uint8_t* skip_function(self, const uint8_t* p, const uint8_t* end) noexcept nogil:
        """Skip the name of the function that wrote a text."""
        cdef const uint8_t* q = p
        while q < end and q[0] != 32 and q[0] != 58:
            q += 1
        if q < end and q > p and q[0] == 58 and (q + 1 == end or q[1] == 32):
            return q + 2 if q + 1 < end else end
        return p

    cdef int64_t number_function(self, const uint8_t* p, int64_t length) except -1 nogil:
        """Return the number that stands for a function's name; an address is its own."""
        cdef uint64_t slot, bits
        cdef const uint8_t* slash
        cdef Span* one
        if length > 4 and p[0] == 48 and p[1] == 120 and read_hexadecimal(p, p + length, &bits) == p + length:
            return <int64_t>(bits & 0x7FFFFFFFFFFFFFFFull)
        slash = <const uint8_t*>memchr(p, 47, length)
        if slash != NULL:
            length = slash - p
        length = min(length, NAME)
        slot = hash_bytes(p, length) & (SLOTS - 1)
        while self.function_slots[slot]:
            one = &self.functions[self.function_slots[slot] - 1]
            if one.length == length and memcmp(one.at, p, length) == 0:
                return self.function_slots[slot]
            slot = (slot + 1) & (SLOTS - 1)
        if self.function_count == FUNCTIONS:
            return 0
        with gil:
            name = p[:length]
            self.kept.append(name)
            self.functions[self.function_count].at = <const uint8_t*><const char*>name
        self.functions[self.function_count].length = <int>length
        self.function_count += 1
        self.function_slots[slot] = self.function_count
        return self.function_count

    # ------------------------------------------------------------------------------ key=value

    cdef int64_t read_pairs(self, Event* event, const uint8_t* p, const uint8_t* end) except -2 nogil:
        """Fill in a record by ``key=value``; return its size, -1 if what was learned is to change.

        What stands before the first key is the value of the key "".
        """
        cdef Span keys[PAIRS_MOST + 1]
        cdef Span values[PAIRS_MOST + 1]
        cdef int count = 0, i, at, fits = 1, colons
        cdef int64_t used, value, size
        cdef uint32_t located
        cdef uint64_t bits
        cdef const uint8_t* q
        cdef uint64_t seen = 0
        colons = 0
        if event.flags & TREAT_HEX_PAIRS and memchr(p, 61, end - p) == NULL:
            colons = 1
        count = split_pairs(p, end, colons, keys, values)
        if not event.frozen:
            event.frozen = 1
            for i in range(count):
                if self.find_pair(event, &keys[i], i) < 0:
                    self.add_pair(event, &keys[i], is_value(&values[i], event.flags & TREAT_HEX_PAIRS))
            event.size = COMMON + 8 * event.pair_count
            memset(self.record, 0, event.size)
        used = event.size
        for i in range(count):
            at = self.find_pair(event, &keys[i], i)
            if at < 0:
                if event.pair_count == PAIRS_MOST:
                    event.left_out += 1
                    return -1
                # Lines before had it not.
                self.add_pair(event, &keys[i], 0)
                fits = 0
                continue
            seen |= <uint64_t>1 << at
            if event.pairs[at].numeric:
                if not is_value(&values[i], event.flags & TREAT_HEX_PAIRS):
                    event.pairs[at].numeric = 0
                    fits = 0
                    continue
                if event.flags & TREAT_HEX_PAIRS:
                    read_hexadecimal(values[i].at, values[i].at + values[i].length, &bits)
                    value = <int64_t>bits
                else:
                    read_integer(values[i].at, values[i].at + values[i].length, &value)
                memcpy(self.record + COMMON + 8 * at, &value, 8)
            else:
                size = values[i].length
                if used + size + 1 > 2 * LINE:
                    continue
                located = <uint32_t>((size + 1) << 16 | used)
                memcpy(self.record + COMMON + 8 * at, &located, 4)
                memcpy(self.record + used, values[i].at, size)
                self.record[used + size] = 0
                used += size + 1
        for at in range(event.pair_count):
            if seen >> at & 1:
                continue
            if event.pairs[at].numeric:
                event.pairs[at].numeric = 0   # missing: only a text can be empty
                fits = 0
            else:
                located = <uint32_t>(1 << 16 | used)
                memcpy(self.record + COMMON + 8 * at, &located, 4)
                self.record[used] = 0
                used += 1
        if not fits:
            self.changed = 1
            return -1
        return used

    cdef int find_pair(self, Event* event, Span* key, int near) noexcept nogil:
        cdef int i, at
        for i in range(event.pair_count):
            at = near + i
            if at >= event.pair_count:
                at -= event.pair_count
            if event.pairs[at].length == key.length and memcmp(
                    event.pairs[at].name, key.at, key.length) == 0:
                return at
        return -1

    cdef void add_pair(self, Event* event, Span* key, int numeric) noexcept nogil:
        cdef Pair* pair
        if event.pair_count == PAIRS_MOST:
            return
        pair = &event.pairs[event.pair_count]
        memcpy(pair.name, key.at, key.length)
        pair.length, pair.numeric = key.length, numeric
        event.pair_count += 1

    # -------------------------------------------------------------------------------- threads

    cdef int note_thread(self, int32_t tid, int32_t tgid, const uint8_t* comm, int length,
                         int born) except -1 nogil:
        cdef uint64_t slot
        cdef Thread* one
        if tid <= 0:
            return 0
        slot = (<uint64_t>tid * 0x9E3779B97F4A7C15ull >> 20) & (self.thread_room - 1)
        while self.threads[slot].tid:
            one = &self.threads[slot]
            if one.tid == tid:
                if tgid and not one.tgid:
                    one.tgid = tgid
                if not one.comm_length and comm != NULL and not (length == 5 and comm[0] == 60):
                    one.comm_length = min(length, COMM)
                    memcpy(one.comm, comm, one.comm_length)
                return 0
            slot = (slot + 1) & (self.thread_room - 1)
        if self.thread_count > 1 << 22:
            return 0
        one = &self.threads[slot]
        one.tid, one.tgid, one.born = tid, tgid, born
        if comm != NULL and not (length == 5 and comm[0] == 60):
            one.comm_length = min(length, COMM)
            memcpy(one.comm, comm, one.comm_length)
        self.thread_count += 1
        if 2 * self.thread_count > self.thread_room:
            self.grow_threads()
        return 0

    cdef int grow_threads(self) except -1 nogil:
        cdef int64_t room = 4 * self.thread_room, i
        cdef uint64_t slot
        cdef Thread* more = <Thread*>calloc(room, sizeof(Thread))
        if more == NULL:
            with gil:
                raise MemoryError
        for i in range(self.thread_room):
            if self.threads[i].tid:
                slot = (<uint64_t>self.threads[i].tid * 0x9E3779B97F4A7C15ull >> 20) & (room - 1)
                while more[slot].tid:
                    slot = (slot + 1) & (room - 1)
                more[slot] = self.threads[i]
        free(self.threads)
        self.threads, self.thread_room = more, room
        return 0

    # ------------------------------------------------------------------------------- what was found

    def list_threads(self):
        """Return tid, tgid and name of threads that were there before, and whose process is known."""
        cdef int64_t i
        return [
            (self.threads[i].tid, self.threads[i].tgid, self.threads[i].comm[:self.threads[i].comm_length])
            for i in range(self.thread_room)
            if self.threads[i].tid and self.threads[i].tgid and not self.threads[i].born
        ]

    def list_events(self):
        """Return of each event its name, how many were written and left out, and its pairs."""
        cdef int i, k
        return [
            (
                self.events[i].name[:self.events[i].length],
                self.events[i].written,
                self.events[i].left_out,
                [
                    (self.events[i].pairs[k].name[:self.events[i].pairs[k].length],
                     bool(self.events[i].pairs[k].numeric))
                    for k in range(self.events[i].pair_count)
                ],
            )
            for i in range(self.event_count)
        ]

    def list_functions(self):
        """Return the names that numbers from 1 on stand for."""
        return list(self.kept)

    def list_lost(self):
        """Return the cpus that lost events behind their last, and how many (-1: not known)."""
        cdef int cpu
        return [(cpu, self.lost[cpu]) for cpu in range(CPUS) if self.lost[cpu]]


cdef const uint8_t* read_state(const uint8_t* p, const uint8_t* end, int trace_cmd,
                               int64_t* value) noexcept nogil:
    """Read the letters of a state, or its number, as the bits that kernels from 4.14 on have.

    trace-cmd names bits by letters of its own.
    """
    cdef const char* letters = "SDTtZXxW" if trace_cmd else "SDTtXZPI"
    cdef const char* found
    cdef const uint8_t* q
    cdef int64_t bits = 0
    value[0] = 0
    if p < end and is_digit(p[0]):
        return read_integer(p, end, value)
    q = p
    while q < end and q[0] != 32:
        found = <const char*>memchr(letters, q[0], 8)
        if found != NULL:
            bits |= 1 << (found - letters)
        elif q[0] == 43:    # +: preempted
            bits |= 256
        elif q[0] == 120:   # x, of kernels before 4.14: dead
            bits |= 16
        elif q[0] == 75 or q[0] == 87 or q[0] == 78:   # K W N: of a sleep, beside its letter
            bits |= 128
        elif q[0] != 82 and q[0] != 124:   # R |
            return NULL
        q += 1
    if q == p:
        return NULL
    value[0] = bits
    return q


cdef bint is_value(Span* value, int hexadecimal) noexcept nogil:
    """Whether a value is a number of 64 bits; one of 16 digits is an address without 0x."""
    cdef int64_t v
    cdef uint64_t bits
    cdef const uint8_t* end = value.at + value.length
    if hexadecimal:
        return read_hexadecimal(value.at, end, &bits) == end
    if value.length == 16 and is_digit(value.at[0]) and value.at[1] | 32 != 120:
        return False
    return read_integer(value.at, end, &v) == end


cdef int split_pairs(const uint8_t* begin, const uint8_t* end, int colons, Span* keys,
                     Span* values) noexcept nogil:
    """Split ``key=value`` (``key: value,``), with what is before the first key; return how many."""
    cdef const uint8_t* p = begin
    cdef const uint8_t* q
    cdef const uint8_t* from_here = begin
    cdef uint8_t sign = 58 if colons else 61
    cdef int count = 0, opened = 0
    keys[0].at, keys[0].length = begin, 0
    while p < end:
        q = <const uint8_t*>memchr(p, sign, end - p)
        if q == NULL:
            break
        p = q + 1
        if colons and (p == end or p[0] != 32):
            continue
        if p < end and p[0] == sign:
            p += 1
            continue
        while q > from_here and (is_word((q - 1)[0]) or (q - 1)[0] == 46):
            q -= 1
        # A key begins a word, or follows a bracket.
        if p - 1 - q == 0 or p - 1 - q >= NAME or is_digit(q[0]) or q[0] == 46:
            continue
        if q > begin and (q - 1)[0] != 32 and (q - 1)[0] != 44 and (q - 1)[0] != 91 and (q - 1)[0] != 40 and (q - 1)[0] != 123:
            continue
        if count == PAIRS_MOST - 1:
            break
        end_value(keys, values, &count, from_here, q, &opened, colons)
        keys[count].at, keys[count].length = q, <int>(p - 1 - q)
        from_here = p
    end_value(keys, values, &count, from_here, end, &opened, 0)
    return count


cdef void end_value(Span* keys, Span* values, int* count, const uint8_t* p, const uint8_t* end,
                    int* opened, int colons) noexcept nogil:
    """Note the value of the last key, without blanks, a comma and brackets around pairs."""
    cdef int closing = opened[0]
    opened[0] = 0
    if colons and keys[count[0]].length:
        # key: value, TYPE key: value
        while end > p and (end - 1)[0] != 44:
            end -= 1
    if end > p and ((end - 1)[0] == 91 or (end - 1)[0] == 40 or (end - 1)[0] == 123):
        opened[0] = 1
        end -= 1
    while end > p and ((end - 1)[0] == 32 or (end - 1)[0] == 44):
        end -= 1
    if closing and end > p and ((end - 1)[0] == 93 or (end - 1)[0] == 41 or (end - 1)[0] == 125):
        end -= 1
    while p < end and p[0] == 32:
        p += 1
    if count[0] == 0 and keys[0].length == 0 and (p >= end or colons):
        return   # nothing, or a type, before the first key
    values[count[0]].at, values[count[0]].length = p, <int>max(end - p, 0)
    count[0] += 1


def count_heads(const uint8_t[::1] data not None):
    """Tell how many lines have the head of an event."""
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef const uint8_t* newline
    cdef Head h
    cdef int found = 0
    if data.shape[0] == 0:
        return 0
    p = &data[0]
    end = p + data.shape[0]
    while p < end:
        newline = <const uint8_t*>memchr(p, 10, end - p)
        if newline == NULL:
            newline = end
        if newline - p <= LINE and read_head(p, newline, &h):
            found += 1
        p = newline + 1
    return found
