# cython: language_level=3
"""Follows the requests of servers in the events of their sockets, as they come and in one pass.

A turn is what the analysis says it is (`turns.pxi`); endpoints are found as `critpath.requests`
finds them, by what was seen so far.  All tables have a size that is never exceeded.
"""

from libc.math cimport ceil, log, log2
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

include "../ftrace/records.pxi"
include "turns.pxi"

cdef enum:
    # What an event says, as `live.WHAT` has it; of a socket from ARRIVAL on
    NOTHING = 0
    HANDED_ON = 1         # as it is
    ARRIVAL = 2
    RECEIVE = 3
    SEND = 4
    OF = 5
    STATE = 6
    LOST = 7              # events were lost before this
    BORN = 8              # a thread began another: these are in the places of FIRST and SECOND
    MESSAGE = 9           # what begins like a request was received; its label is in FIRST's place
    # Its fields, in order
    NEED = 0              # bytes of a record
    SOCKET = 1
    FAMILY = 2
    PROTOCOL = 3          # -1: none is said
    FIRST = 4             # bytes moved, or the old state
    SECOND = 5            # flags, or the new state
    LOCAL = 6
    REMOTE = 7
    FIELDS = 8
    TCP = 6
    UDP = 17
    MPTCP = 262
    UNIX = 1
    INET = 2
    INET6 = 10
    JUST_NOW = 1000000    # ns: a thread that connects asks at once
    PEEK = 2              # MSG_PEEK: what is received stays there
    MOST_BYTES = 0x7ffff000
    ESTABLISHED = 1
    SYN_SENT = 2
    SYN_RECV = 3
    CLOSED = 7
    CLOSE_WAIT = 8
    LISTEN = 10
    ANYWHERE = -1
    # How an endpoint ends, besides CLOSED
    FORGOTTEN = 0
    RESET = 1             # by either side, with what was not answered
    # Lists of endpoints
    UNLISTED = 0
    OPEN_ONES = 1         # whose request is not answered, in order of its begin
    ANSWERED_ONES = 2     # in order of their last sends
    HANDS = 65536
    SETTLED = 1000000000  # ns after which nothing more of an answer is waited for
    # Sketches: 32 buckets in each octave of ns, from 2^10 on
    BUCKETS = 1024
    IN_OCTAVE = 32
    LOWEST = 320          # the first bucket's number from 1 ns on
    # Who is asked: of a request, of a kind and in all
    MOST_ASKED = 8
    MOST_OF_KIND = 16
    ASKS = 16384
    ANYBODY = -65537      # those beyond
    # What threads ask, and whose it is shows when they answer
    PENDING = 8192
    MOST_PENDING = 64     # of a thread
    GIVEN_UP = 1000000000  # ns
    # Of a kind's requests in a block, besides the slowest
    FEW = 2
    UDP_SOCKETS = 64
    DATAGRAMS = 64        # of each that are not received, or not answered
    # Messages: as the ring of `received` has them, and labels that are remembered
    WINDOW = 64
    MESSAGE_HEAD = 8
    MESSAGE_FACTS = 24
    KNOWN = 8192
    LABELLED = 4096
    DIGITS = 3            # in a row are no word's: what they are makes no other label

ctypedef struct Event:
    int64_t time
    int64_t socket
    int64_t first
    int32_t second
    int32_t tid
    int32_t protocol
    uint16_t family
    uint16_t local
    uint16_t remote
    uint8_t what

ctypedef struct Ref:
    # A request: of an endpoint, its life, and its turn.
    int64_t life
    int32_t row           # plus 1
    int32_t number

ctypedef struct Target:
    int64_t ns            # for which it was waited
    int32_t kind          # or -1 - port
    int32_t count

ctypedef struct Asked:
    Target of[MOST_ASKED]
    int64_t until         # when what is waited for ends, so far
    int64_t queued
    int32_t count
    int8_t shared         # its thread asked for nobody knows which of several

ctypedef struct Asking:
    # What an endpoint asks for, and for whom.
    Ref owner
    int64_t begin
    int64_t pending       # number of its row among those whose owner shows later
    int8_t is_open        # nothing was received since
    int8_t counted
    int8_t loose          # it is for one of several

ctypedef struct Pending:
    int64_t number
    int64_t before        # of the same thread
    int64_t begin
    int64_t end           # -1 not yet
    int32_t kind
    int32_t tid

ctypedef struct Worker:
    # What a thread works for.
    int64_t total         # sum of the rows of what it received and did not answer: of one, its row
    int64_t unowned       # what it asked with several
    int64_t last_pending
    Ref resumed
    Ref last              # what it received last
    int32_t tid
    int32_t received
    int32_t pending
    int32_t service       # kind of what its process serves, plus 1
    int32_t names

ctypedef struct Datagram:
    int64_t begin
    int64_t source_life
    int32_t source        # row of who sent it, plus 1; 0 not known
    int32_t tid

ctypedef struct Udp:
    # A socket that serves over UDP: what arrived, and what of that is not answered.
    Datagram arrived[DATAGRAMS]
    Datagram open[DATAGRAMS]
    int64_t life
    int32_t row           # plus 1
    int32_t arrivals
    int32_t opened

ctypedef struct Known:
    uint64_t hash
    int32_t label         # plus 1
    int32_t kind          # of a pair of kind and label

ctypedef struct Row:
    # A message, as a recording keeps it.
    int64_t when
    int64_t socket
    uint32_t tid
    uint32_t size
    int32_t label
    int32_t session       # of TLS: the socket is its number

ctypedef struct Endpoint:
    State state
    Asked asked
    Asked told            # of `state.done`
    Asking asking
    int64_t doubts        # of the thread that received the open request, then
    int32_t worker        # that thread, 0 for none
    int32_t label         # of its open turn
    int32_t told_label    # of `state.done`
    int32_t udp           # plus 1
    int64_t socket
    int64_t life          # of the row: it is used again
    int64_t gaps          # how many there were when something was seen here
    int64_t partner_life
    int32_t next          # row in the same place, or the next free one, plus 1
    int32_t before, after # in its list, plus 1
    int32_t partner       # to whom its sends arrive, -1 not known
    int32_t votes
    int32_t protocol
    int32_t kind          # of its last turn, -1 not known
    int32_t kind_tid      # who answered then
    int32_t names         # how often kinds had been made anew then
    int32_t mover         # who moved anything last
    uint16_t family
    uint16_t local
    uint16_t remote
    int8_t serves         # 1, 0, -1 not known
    int8_t opening        # 1 accepted, 2 connected, 0 not known
    int8_t known          # its ports
    int8_t listens
    int8_t moved
    int8_t used
    int8_t touched        # since the last look for one to forget
    int8_t finished       # nothing comes in any more
    int8_t held           # `state.done` is not counted yet
    int8_t longer         # its open request was counted as longer than what is usual
    int8_t owed           # its open request was counted as cut
    int8_t list

ctypedef struct Hand:
    # The last arrival that a thread caused since its last receive or send.
    int64_t tid
    int64_t time
    int64_t life
    int32_t endpoint      # plus 1
    int8_t connects       # it was at what listens: the thread connects

ctypedef struct Owner:
    int32_t tid
    int32_t port
    int32_t kind          # plus 1
    int32_t names

ctypedef struct Child:
    int32_t tid
    int32_t parent

ctypedef struct Ask:
    # What a kind waited for somebody.
    int64_t count
    int64_t ns
    int32_t kind          # or -1 - port
    int32_t next          # plus 1

ctypedef struct Pick:
    int64_t begin
    int64_t end
    int32_t tid

ctypedef struct Kind:
    # Counts of all time; a block is the difference to `before`.
    uint32_t now[BUCKETS]
    uint32_t before[BUCKETS]
    int64_t count
    int64_t took          # ns
    int64_t cut
    int64_t resets
    int64_t longer        # were counted before they ended
    int64_t bytes_in
    int64_t bytes_out
    int64_t counts[7]     # of these at the last block
    int64_t worst         # ns, since it was asked last
    int64_t worst_begin
    int64_t limit         # ns that are too long for what is usual; 0 for none
    int64_t over          # open ones that were, since the last block
    int64_t queued        # ns before anybody received it
    int64_t shared        # ns of requests of which it is not known what was asked for them
    int64_t handed        # ns of what threads asked that answer nobody: for some of its requests
    Pick slowest          # since the last block
    Pick few[FEW]         # of all others
    int32_t others
    int32_t asks          # plus 1
    int8_t seen           # since the last block


cdef inline int32_t bucket_of(int64_t ns) noexcept nogil:
    cdef int32_t at
    if ns < 1024:
        return 0
    at = <int32_t>(IN_OCTAVE * log2(<double>ns)) - LOWEST
    return at if at < BUCKETS else BUCKETS - 1


cdef inline size_t mix(int64_t key) noexcept nogil:
    cdef size_t golden = (<size_t>0x9E3779B9 << 32) | <size_t>0x7F4A7C15
    cdef size_t h = <size_t>key * golden
    return h ^ (h >> 29)


cdef class Requests:
    """Feed it pages with `add`, then `advance`; kinds are numbers that `name` gives.

    Parameters
    ----------
    formats : sequence of (int, int, sequence of int)
        Of each event: its number, what it says, and where its fields are.
    name : callable
        Of thread, port, family and the thread at the other end: a kind's number, -1 for what is
        no request.
    endpoints, kinds : int
        At most.
    """

    cdef object name
    cdef uint8_t what_of[65536]
    cdef int32_t fields[9][FIELDS]
    cdef Event* events
    cdef Event* spare
    cdef Py_ssize_t count, room
    cdef Endpoint* endpoints
    cdef int32_t* places
    cdef Py_ssize_t most, used, hand_of_clock
    cdef size_t place_mask
    cdef int32_t free_rows
    cdef int32_t first[3]
    cdef int32_t last[3]
    cdef Hand* hands
    cdef Owner* owners
    cdef Child* children
    cdef Kind* kinds
    cdef Ask* asks
    cdef int32_t ask_count, free_asks
    cdef Worker* workers
    cdef Pending* pending
    cdef int64_t pendings
    cdef Udp* udps
    cdef int64_t udp_count
    cdef Known* known         # labels of messages
    cdef Known* labelled      # kinds with labels
    cdef Row* rows
    cdef int64_t row_count, most_rows
    cdef uint64_t chance
    cdef public object find_service  # kind of what a thread's process serves, -1 for nothing
    cdef object name_message
    cdef Py_ssize_t kind_count
    cdef uint8_t* listened    # bits, by port
    cdef bint told_listened
    cdef int64_t lives, gaps
    cdef int32_t names
    cdef int64_t time         # until when all is followed
    cdef object turns         # a list that every turn is written to, for tests
    cdef readonly int64_t hidden, forgotten, seen, received, unowned, unnamed

    def __cinit__(self, formats, name, Py_ssize_t endpoints=20000, Py_ssize_t kinds=1001):
        cdef Py_ssize_t i
        self.name, self.turns = name, None
        memset(self.what_of, 0, sizeof(self.what_of))
        for number, what, fields in formats:
            self.what_of[number] = what
            for i, at in enumerate(fields):
                self.fields[<int>what][i] = at
        self.most, self.kind_count = endpoints, kinds
        self.place_mask = 1024
        while self.place_mask < <size_t>endpoints:
            self.place_mask *= 2
        self.place_mask -= 1
        self.endpoints = <Endpoint*>calloc(endpoints, sizeof(Endpoint))
        self.places = <int32_t*>calloc(self.place_mask + 1, sizeof(int32_t))
        # Memory of calloc that is not touched costs nothing.
        self.hands = <Hand*>calloc(HANDS, sizeof(Hand))
        self.owners = <Owner*>calloc(HANDS, sizeof(Owner))
        self.children = <Child*>calloc(HANDS, sizeof(Child))
        self.kinds = <Kind*>calloc(kinds, sizeof(Kind))
        self.listened = <uint8_t*>calloc(8192, 1)
        self.asks = <Ask*>calloc(ASKS, sizeof(Ask))
        self.workers = <Worker*>calloc(HANDS, sizeof(Worker))
        self.pending = <Pending*>calloc(PENDING, sizeof(Pending))
        self.udps = <Udp*>calloc(UDP_SOCKETS, sizeof(Udp))
        self.pendings, self.chance = 1, 0x2545F491
        if (self.endpoints == NULL or self.places == NULL or self.hands == NULL
                or self.owners == NULL or self.children == NULL or self.kinds == NULL
                or self.listened == NULL or self.asks == NULL or self.workers == NULL
                or self.pending == NULL or self.udps == NULL):
            raise MemoryError()

    def __dealloc__(self):
        free(self.events)
        free(self.spare)
        free(self.endpoints)
        free(self.places)
        free(self.hands)
        free(self.owners)
        free(self.children)
        free(self.kinds)
        free(self.listened)
        free(self.asks)
        free(self.workers)
        free(self.pending)
        free(self.udps)
        free(self.known)
        free(self.labelled)
        free(self.rows)

    # -------------------------------------------------------------- what comes in

    def listen(self, ports, bint every):
        """Note on which ports somebody listens; whether these are all."""
        for port in ports:
            self.set_listened(port)
        self.told_listened = every

    def keep_turns(self, rows):
        """Write every turn to a list: socket, begin, end, thread, kind, bytes in and out."""
        self.turns = rows

    def hand_on(self, int number, bint wanted):
        """Say whether events of a number are handed on, or passed over."""
        if number:
            self.what_of[number & 0xFFFF] = HANDED_ON if wanted else NOTHING

    def add(self, const uint8_t[::1] page not None):
        """Take the events of a page; return time and content of those that are others'."""
        cdef Layout of
        cdef Page at
        cdef Event* e
        cdef const uint8_t* r
        cdef const int32_t* f
        cdef int what
        found = []
        of.commit_offset, of.commit_size, of.data_offset = 8, 8, 16
        of.data_size = SIZE_MASK
        of.earliest, of.latest, of.swap = 0, <uint64_t>1 << 62, 0
        if page.shape[0] < of.data_offset:
            return found
        open_page(&at, &of, &page[0], page.shape[0])
        # Events are read where they lie; a page has no more than its bytes over 8.
        if self.make_room(page.shape[0] // 8 + 2) < 0:
            raise MemoryError()
        if at.missed:
            e = &self.events[self.count]
            memset(e, 0, sizeof(Event))
            e.what, e.time = LOST, <int64_t>at.time
            self.count += 1
        while next_record(&at) == RECORD:
            r = at.record
            if at.length < 8:
                continue
            what = self.what_of[load16(r)]
            if what == NOTHING:
                continue
            if what == HANDED_ON:
                found.append((at.time, r[:at.length]))
                continue
            f = self.fields[what]
            if at.length < f[NEED]:
                continue
            if what == BORN:
                self.note_child(<int32_t>load32(r + f[FIRST]), <int32_t>load32(r + f[SECOND]))
                continue
            e = &self.events[self.count]
            e.time, e.what = <int64_t>at.time, <uint8_t>what
            e.tid = <int32_t>load32(r + 4)
            e.socket = <int64_t>load64(r + f[SOCKET])
            e.family = load16(r + f[FAMILY])
            e.protocol = load16(r + f[PROTOCOL]) if f[PROTOCOL] >= 0 else -1
            e.first = <int32_t>load32(r + f[FIRST]) if f[FIRST] >= 0 else 0
            e.second = <int32_t>load32(r + f[SECOND]) if f[SECOND] >= 0 else 0
            e.local = load16(r + f[LOCAL]) if f[LOCAL] >= 0 else 0
            e.remote = load16(r + f[REMOTE]) if f[REMOTE] >= 0 else 0
            self.count += 1
        return found

    def keep_messages(self, name_message, Py_ssize_t most):
        """Name kinds with the labels of messages: kind and label to a kind; keep so many rows."""
        self.name_message, self.most_rows = name_message, most
        self.known = <Known*>calloc(KNOWN, sizeof(Known))
        self.labelled = <Known*>calloc(LABELLED, sizeof(Known))
        self.rows = <Row*>calloc(most, sizeof(Row))
        if self.known == NULL or self.labelled == NULL or self.rows == NULL:
            raise MemoryError()

    def add_messages(
        self, const uint8_t[::1] ring not None, uint64_t at, uint64_t end, label, bint sessions=False
    ):
        """Take what begins like a request from a kernel's ring; return how far it was read.

        The ring lies there twice, so nothing in it ends at its end.  `label` is asked for a number,
        0 for none, of socket and bytes; it is remembered but of what depends on what was before.
        """
        cdef uint64_t size = ring.shape[0] // 2, place, hashed
        cdef uint32_t head, length
        cdef int32_t number
        cdef const uint8_t* r
        cdef Known* known
        cdef Event* e
        cdef Row* row
        while at < end:
            place = at % size
            r = &ring[place]
            head = load32(r)
            length = head & 0x3FFFFFFF
            if head >> 31 or length > size - MESSAGE_HEAD:
                break
            at += (MESSAGE_HEAD + length + 7) & ~<uint64_t>7
            if head >> 30 or length < MESSAGE_FACTS + WINDOW:
                continue
            hashed = hash_message(r + MESSAGE_HEAD + MESSAGE_FACTS)
            known = &self.known[hashed & (KNOWN - 1)]
            if hashed and known.hash == hashed and known.label:
                number = known.label - 1
            else:
                number = label(
                    <int64_t>load64(r + 16),
                    (<const char*>r)[MESSAGE_HEAD + MESSAGE_FACTS:
                                     MESSAGE_HEAD + MESSAGE_FACTS + WINDOW])
                known.hash, known.label = hashed, number + 1
            if not number:
                continue
            if self.make_room(1) < 0:
                raise MemoryError()
            e = &self.events[self.count]
            memset(e, 0, sizeof(Event))
            e.what, e.time, e.socket = MESSAGE, <int64_t>load64(r + 8), <int64_t>load64(r + 16)
            e.tid, e.first, e.second = <int32_t>load32(r + 24), number, sessions
            self.count += 1
            row = &self.rows[self.row_count % self.most_rows]
            self.row_count += 1
            row.when, row.socket, row.tid = e.time, e.socket, <uint32_t>e.tid
            row.size, row.label, row.session = load32(r + 28), number, sessions
        return at

    def list_messages(self, int64_t since):
        """Yield the messages that are held since a time.

        When, socket, thread, size, label; whether the socket is a session of TLS.
        """
        cdef int64_t i
        cdef Row* row
        for i in range(max(0, self.row_count - self.most_rows), self.row_count):
            row = &self.rows[i % self.most_rows]
            if row.when >= since:
                yield (row.when, <uint64_t>row.socket, row.tid, row.size, row.label,
                       row.session != 0)

    cdef void note_child(self, int32_t parent, int32_t tid) noexcept nogil:
        self.children[tid & (HANDS - 1)].tid = tid
        self.children[tid & (HANDS - 1)].parent = parent

    def find_parent(self, int32_t tid):
        """Return who began a thread, 0 if that was not seen or was too long ago."""
        cdef Child* child = &self.children[tid & (HANDS - 1)]
        return child.parent if child.tid == tid else 0

    cdef int make_room(self, Py_ssize_t more) noexcept nogil:
        cdef Py_ssize_t room = self.room
        cdef void* made
        if self.count + more <= room:
            return 0
        while room < self.count + more:
            room = 2 * room + 4096
        made = realloc(self.events, room * sizeof(Event))
        if made == NULL:
            return -1
        self.events, self.room = <Event*>made, room
        free(self.spare)
        self.spare = NULL
        return 0

    cdef int sort(self) noexcept nogil:
        """Put events in order of time: each cpu's are, so few runs are merged."""
        cdef Py_ssize_t begin, middle, end, at, one, other
        cdef bint merged = 1
        cdef Event* to
        if self.spare == NULL:
            self.spare = <Event*>malloc(max(self.room, 1) * sizeof(Event))
            if self.spare == NULL:
                return -1
        while merged:
            merged, begin, at, to = 0, 0, 0, self.spare
            while begin < self.count:
                middle = begin + 1
                while middle < self.count and self.events[middle].time >= self.events[middle - 1].time:
                    middle += 1
                end = middle
                if end < self.count:
                    end += 1
                    while end < self.count and self.events[end].time >= self.events[end - 1].time:
                        end += 1
                one, other = begin, middle
                if begin == 0 and end == middle:
                    return 0
                while at < end:
                    if other >= end or (
                        one < middle and self.events[one].time <= self.events[other].time
                    ):
                        to[at] = self.events[one]
                        one += 1
                    else:
                        to[at] = self.events[other]
                        other += 1
                    at += 1
                merged, begin = 1, end
            self.spare, self.events = self.events, to
        return 0

    def advance(self, int64_t until):
        """Follow all events before a time: those of all cpus until then have been added."""
        cdef Py_ssize_t i = 0
        if self.sort() < 0:
            raise MemoryError()
        while i < self.count and self.events[i].time < until:
            self.follow(&self.events[i])
            i += 1
        self.seen += i
        self.count -= i
        if i and self.count:
            memcpy(self.spare, &self.events[i], self.count * sizeof(Event))
            self.events, self.spare = self.spare, self.events
        self.settle(until - SETTLED)
        self.time = until

    def cross_gap(self, int64_t time):
        """Nothing was recorded for a while that ends now: what is open is cut."""
        self.advance(time)
        self.cut_open(time)

    # -------------------------------------------------------------- tables

    cdef void set_listened(self, int port) noexcept nogil:
        self.listened[(port & 0xFFFF) >> 3] |= <uint8_t>(1 << (port & 7))

    cdef bint is_listened(self, int port) noexcept nogil:
        return self.listened[(port & 0xFFFF) >> 3] >> (port & 7) & 1

    cdef Endpoint* living(self, int64_t socket) noexcept nogil:
        """Return what a socket is now, NULL for nothing."""
        cdef int32_t at = self.places[mix(socket) & self.place_mask]
        cdef Endpoint* e
        while at:
            e = &self.endpoints[at - 1]
            if e.socket == socket:
                e.touched = 1
                if e.gaps != self.gaps:
                    self.begin_anew(e)
                return e
            at = e.next
        return NULL

    cdef void begin_anew(self, Endpoint* e) noexcept nogil:
        """Forget what was seen before a gap."""
        cdef int8_t cut = e.owed
        self.leave(e)
        e.label = 0
        memset(&e.asking, 0, sizeof(Asking))
        memset(&e.state, 0, sizeof(State))
        begin_state(&e.state)
        e.state.cut = cut
        e.gaps = self.gaps

    cdef Endpoint* begin_life(self, int64_t socket, int family, int32_t protocol) noexcept:
        cdef Endpoint* e = self.living(socket)
        cdef int32_t* place = &self.places[mix(socket) & self.place_mask]
        if e != NULL:
            self.end_life(e, FORGOTTEN)
        if self.free_rows:
            e = &self.endpoints[self.free_rows - 1]
            self.free_rows = e.next
        elif self.used < self.most:
            e = &self.endpoints[self.used]
            self.used += 1
        else:
            while True:  # those that were used since the clock's hand passed them are passed once
                e = &self.endpoints[self.hand_of_clock]
                self.hand_of_clock = (self.hand_of_clock + 1) % self.most
                if not e.touched:
                    break
                e.touched = 0
            self.forgotten += 1
            self.end_life(e, FORGOTTEN)
            self.free_rows = e.next
        memset(e, 0, sizeof(Endpoint))
        begin_state(&e.state)
        self.lives += 1
        e.socket, e.life, e.gaps = socket, self.lives, self.gaps
        e.family, e.protocol = <uint16_t>family, protocol
        e.partner, e.kind, e.serves, e.used, e.touched = -1, -1, -1, 1, 1
        e.next = place[0]
        place[0] = <int32_t>(e - self.endpoints) + 1
        return e

    cdef void end_life(self, Endpoint* e, int how) noexcept:
        """Count what is over with an endpoint, and free its row."""
        cdef int32_t kind
        cdef int32_t* at = &self.places[mix(e.socket) & self.place_mask]
        cdef int32_t row = <int32_t>(e - self.endpoints) + 1
        if e.gaps != self.gaps:
            self.begin_anew(e)
        self.leave(e)
        if e.serves == 1:
            if how == RESET and (e.state.phase == RECEIVED or e.state.phase == ARRIVED):
                kind = self.open_kind(e)
                if kind >= 0:
                    self.kinds[kind].resets += 1
            elif how == FORGOTTEN and e.state.phase == RECEIVED:
                self.count_cut(e)
            self.count_turns(e, end_endpoint(&e.state))
        self.unlist(e)
        while at[0] != row:
            at = &self.endpoints[at[0] - 1].next
        at[0] = e.next
        e.used, e.next = 0, self.free_rows
        self.free_rows = row

    cdef void unlist(self, Endpoint* e) noexcept nogil:
        if not e.list:
            return
        if e.before:
            self.endpoints[e.before - 1].after = e.after
        else:
            self.first[e.list] = e.after
        if e.after:
            self.endpoints[e.after - 1].before = e.before
        else:
            self.last[e.list] = e.before
        e.list, e.before, e.after = UNLISTED, 0, 0

    cdef void enlist(self, Endpoint* e, int to) noexcept nogil:
        cdef int32_t row = <int32_t>(e - self.endpoints) + 1
        e.list, e.before, e.after = <int8_t>to, self.last[to], 0
        if e.before:
            self.endpoints[e.before - 1].after = row
        else:
            self.first[to] = row
        self.last[to] = row

    cdef Endpoint* endpoint_of(self, int64_t socket, int family, int32_t protocol) noexcept:
        cdef Endpoint* e = self.living(socket)
        if e != NULL and e.family == family and (
            e.protocol == protocol or protocol < 0 or e.protocol < 0
        ):
            if e.protocol < 0:
                e.protocol = protocol
            return e
        return self.begin_life(socket, family, protocol)

    cdef Hand* hand_of(self, int32_t tid) noexcept nogil:
        """Return a thread's; of two with one place the older is forgotten."""
        cdef Hand* hand = &self.hands[tid & (HANDS - 1)]
        if hand.tid != tid:
            memset(hand, 0, sizeof(Hand))
            hand.tid = tid
        return hand

    cdef Endpoint* held_by(self, Hand* hand) noexcept nogil:
        cdef Endpoint* e
        if not hand.endpoint:
            return NULL
        e = &self.endpoints[hand.endpoint - 1]
        return e if e.used and e.life == hand.life else NULL

    cdef Endpoint* peer_of(self, Endpoint* e) noexcept nogil:
        cdef Endpoint* peer
        if e.partner < 0:
            return NULL
        peer = &self.endpoints[e.partner]
        return peer if peer.used and peer.life == e.partner_life else NULL

    cdef void pair(self, Endpoint* e, Endpoint* f) noexcept nogil:
        """Note to whom a send arrived: most of an endpoint arrive at its peer."""
        if (e.family == UNIX) != (f.family == UNIX):
            return
        if e.known and f.known and (e.local != f.remote or e.remote != f.local):
            return
        if self.peer_of(e) == f:
            e.votes += 1
        elif e.votes > 0 and self.peer_of(e) != NULL:
            e.votes -= 1
        else:
            e.partner, e.partner_life, e.votes = <int32_t>(f - self.endpoints), f.life, 1
        if self.peer_of(f) == NULL:
            f.partner, f.partner_life, f.votes = <int32_t>(e - self.endpoints), e.life, 0

    # -------------------------------------------------------------- events

    cdef void follow(self, Event* v) noexcept:
        cdef Endpoint* e
        cdef Hand* hand
        cdef int phase
        if v.what == LOST:
            self.cut_open(v.time)
            return
        if not v.socket:
            self.hidden += 1
            return
        if v.what == MESSAGE:
            # What a thread decrypts it has just received.
            if v.second:
                e = self.request_of(&self.worker_of(v.tid).last)
            else:
                e = self.living(v.socket)
            if e != NULL and not e.label and ARRIVED <= e.state.phase <= RECEIVED:
                e.label = <int32_t>v.first
            return
        if v.family != INET and v.family != INET6 and v.family != UNIX:
            return
        if v.what == RECEIVE:
            self.received += 1
        if v.protocol == UDP and v.family != UNIX:
            self.follow_datagram(v)
            return
        if v.what == STATE:
            self.follow_state(v)
            return
        if v.what == OF:
            e = self.endpoint_of(v.socket, v.family, -1)
            if e.known and v.local and v.remote and (
                e.local != v.local or e.remote != v.remote
            ):
                e = self.begin_life(v.socket, v.family, e.protocol)
            self.name_ports(e, v)
            return
        if v.family != UNIX and v.protocol != TCP and v.protocol != MPTCP:
            return
        e = self.endpoint_of(v.socket, v.family, v.protocol)
        if v.what == ARRIVAL:
            hand = self.hand_of(v.tid) if v.tid > 0 else NULL
            if v.family == UNIX and hand != NULL:
                e = self.connect_unix(e, hand, v.time)
            if not e.listens and e.serves != 0:
                self.after(e, arrive(&e.state, self.peer_state(e), v.time, v.tid))
            elif not e.listens:
                e.state.arrived, e.state.arrived_by = v.time, v.tid
            if hand != NULL and (not e.listens or e.family == UNIX):
                hand.endpoint, hand.life = <int32_t>(e - self.endpoints) + 1, e.life
                hand.time = v.time
            return
        if e.listens:
            if e.family != UNIX:
                return
            e = self.begin_life(v.socket, UNIX, v.protocol)
        elif e.family == UNIX and v.what == SEND and v.first > 0 and v.tid > 0:
            hand = self.hand_of(v.tid)
            if hand.connects and self.held_by(hand) != e:
                e = self.open_unix(e, 2)
            hand.connects = 0
        if v.first < 0 or (v.what == RECEIVE and v.second & PEEK) or (v.what == SEND and not v.first):
            return
        v.first = min(v.first, <int64_t>MOST_BYTES)
        if e.serves < 0 and v.first:
            self.find_role(e, v.what)
        if e.serves == 1 and v.first:
            phase = e.state.phase
            if v.what == RECEIVE:
                self.after(e, receive(&e.state, -1, v.time, v.tid, v.first))
                if phase != RECEIVED:
                    self.begin_work(e, v)
                if v.tid > 0 and self.rows != NULL:
                    self.refer(e, &self.worker_of(v.tid).last)
            else:
                if e.owed and e.state.phase == IDLE:
                    e.owed = e.state.cut = 0  # the end of what was cut
                if phase == RECEIVED:
                    self.answer(e, v.tid)
                self.after(e, send(&e.state, v.time, v.tid, v.first))
        self.move_hand(e, v)
        if e.serves == 0 and v.first:
            if v.what == SEND:
                self.ask(e, v)
            else:
                self.take_answer(e, v)

    cdef void move_hand(self, Endpoint* e, Event* v) noexcept nogil:
        """Note who moved something, and where what it sends arrived."""
        cdef Endpoint* f
        cdef Hand* hand
        e.moved, e.mover = 1, v.tid
        if v.tid > 0:
            hand = self.hand_of(v.tid)
            if v.what == SEND:
                f = self.held_by(hand)
                if f != NULL and f != e:
                    self.pair(e, f)
            hand.endpoint = hand.connects = 0

    cdef const State* peer_state(self, Endpoint* e) noexcept nogil:
        cdef Endpoint* peer = self.peer_of(e)
        return NULL if peer == NULL or peer.gaps != self.gaps else &peer.state

    cdef void name_ports(self, Endpoint* e, Event* v) noexcept nogil:
        cdef int8_t before = e.serves
        if e.known or not v.local or not v.remote:
            return
        e.local, e.remote, e.known = v.local, v.remote, 1
        if before >= 0 and not e.opening and e.family != UNIX:
            # Decided by what moved first, of a connection in whose middle recording began.
            self.find_role(e, RECEIVE if before == 1 else SEND)
            if e.serves != before:
                self.unlist(e)
                self.begin_anew(e)

    cdef void find_role(self, Endpoint* e, int what) noexcept nogil:
        """Decide who serves, as far as it is known when something moves for the first time."""
        cdef bint mine, theirs
        e.serves = e.opening == 1 if e.opening else what == RECEIVE
        if e.opening or e.family == UNIX or not e.known:
            return
        mine, theirs = self.is_listened(e.local), self.is_listened(e.remote)
        if mine != theirs:
            e.serves = mine
        elif self.told_listened and not mine:
            e.serves = 0

    cdef Endpoint* connect_unix(self, Endpoint* e, Hand* hand, int64_t time) noexcept:
        """Return the endpoint at which a thread makes data arrive: see `_activity.pyx`."""
        cdef Endpoint* f = self.held_by(hand)
        if f == e:
            return e
        if f == NULL or time - hand.time > JUST_NOW:
            hand.connects = 0
            return e
        if hand.connects or f.family != UNIX or (f.moved and not f.listens) or e.listens:
            return e
        f.listens, f.serves = 1, 0
        self.unlist(f)
        hand.connects = 1
        return self.open_unix(e, 1)

    cdef Endpoint* open_unix(self, Endpoint* e, int opening) noexcept:
        if e.moved or e.opening:
            e = self.begin_life(e.socket, UNIX, e.protocol)
        e.opening = <int8_t>opening
        self.open_endpoint(e)
        return e

    cdef void open_endpoint(self, Endpoint* e) noexcept nogil:
        e.serves = e.opening == 1
        e.state.seen = 1
        if not e.serves:
            self.unlist(e)

    cdef void follow_state(self, Event* v) noexcept:
        cdef Endpoint* e
        cdef int before = <int>v.first, now = v.second
        if v.protocol != TCP and v.protocol != MPTCP:
            return
        e = self.living(v.socket)
        if now == SYN_SENT or (now == SYN_RECV and before == LISTEN) or now == LISTEN:
            e = self.begin_life(v.socket, v.family, v.protocol)
        elif now == ESTABLISHED and before == SYN_RECV:
            if e == NULL or e.moved or e.opening:
                e = self.begin_life(v.socket, v.family, v.protocol)
        if e == NULL:
            return
        if now == LISTEN:
            e.listens, e.local, e.serves = 1, v.local, 0
            self.set_listened(v.local)
            return
        self.name_ports(e, v)
        if now == SYN_SENT:
            e.opening = 2
            self.open_endpoint(e)
        elif now == ESTABLISHED and before == SYN_RECV:
            e.opening = 1
            self.set_listened(e.local)
            self.open_endpoint(e)
        elif now == CLOSE_WAIT:
            e.finished = 1
        elif now == CLOSED:
            self.end_life(e, RESET if before == ESTABLISHED or before == CLOSE_WAIT else CLOSED)

    # -------------------------------------------------------------- who works for whom

    cdef Worker* worker_of(self, int32_t tid) noexcept nogil:
        """Return a thread's; of two with one place the older is forgotten."""
        cdef Worker* w = &self.workers[tid & (HANDS - 1)]
        if w.tid != tid:
            memset(w, 0, sizeof(Worker))
            w.tid = tid
        return w

    cdef Endpoint* request_of(self, const Ref* of) noexcept nogil:
        """Return the endpoint of a request that is not answered yet, NULL if it is."""
        cdef Endpoint* e
        if not of.row:
            return NULL
        e = &self.endpoints[of.row - 1]
        if (e.used and e.life == of.life and e.state.turn.number == of.number
                and e.gaps == self.gaps and e.state.phase == RECEIVED):
            return e
        return NULL

    cdef void refer(self, Endpoint* e, Ref* to) noexcept nogil:
        to.life, to.row = e.life, <int32_t>(e - self.endpoints) + 1
        to.number = e.state.turn.number

    cdef void begin_work(self, Endpoint* e, Event* v) noexcept nogil:
        """A thread has received a request: what it asks next is for that, if for nobody else."""
        cdef Worker* w
        self.leave(e)
        memset(&e.asked, 0, sizeof(Asked))
        e.asked.until = v.time
        if e.state.turn.how == BY_ARRIVAL:
            e.asked.queued = v.time - e.state.turn.begin
        if v.tid <= 0:
            return
        w = self.worker_of(v.tid)
        w.received += 1
        w.total += e - self.endpoints
        w.resumed.row = 0
        if w.received == 1:
            w.last_pending = w.pending = 0
        e.worker, e.doubts = v.tid, w.unowned

    cdef void leave(self, Endpoint* e) noexcept nogil:
        """The thread that received a request does not work for it any more."""
        cdef Worker* w = &self.workers[e.worker & (HANDS - 1)]
        if e.worker and w.tid == e.worker and w.received > 0:
            w.received -= 1
            w.total -= e - self.endpoints
            e.asked.shared = w.unowned != e.doubts
        e.worker = 0

    cdef void answer(self, Endpoint* e, int32_t tid) noexcept nogil:
        """A request is answered: what the thread asked since it was received was asked for it."""
        cdef Worker* w
        cdef int64_t rows[MOST_PENDING]
        cdef int64_t number
        cdef Pending* one
        cdef int many = 0
        if e.worker == tid or tid <= 0:
            self.leave(e)
            return
        self.leave(e)
        w = self.worker_of(tid)
        if not w.received:
            number = w.last_pending
            while number and many < MOST_PENDING:
                one = &self.pending[number % PENDING]
                if one.number != number or one.begin < e.state.turn.received:
                    break
                rows[many] = number
                many, number = many + 1, one.before
            while many:
                many -= 1
                one = &self.pending[rows[many] % PENDING]
                if one.end >= 0:
                    self.credit(&e.asked, one.kind, one.begin, one.end, 1)
                one.number = 0
        w.last_pending = w.pending = w.resumed.row = 0

    cdef void ask(self, Endpoint* e, Event* v) noexcept:
        """A thread asks somebody: find for which request."""
        cdef Asking* a = &e.asking
        cdef Worker* w
        cdef Endpoint* of = NULL
        cdef Pending* one
        if a.is_open or v.tid <= 0:
            return
        memset(a, 0, sizeof(Asking))
        a.is_open, a.begin = 1, v.time
        w = self.worker_of(v.tid)
        if w.received == 1 and 0 <= w.total < self.used:
            of = &self.endpoints[w.total]
            if not (of.used and of.worker == v.tid and of.state.phase == RECEIVED):
                of = NULL
        elif not w.received:
            of = self.request_of(&w.resumed)
        if of != NULL:
            self.refer(of, &a.owner)
        elif w.received:
            a.loose = 1
            w.unowned += 1
            self.unowned += 1
        else:
            if w.pending >= MOST_PENDING:
                self.give_up_pending(v.tid, w)
            one = &self.pending[self.pendings % PENDING]
            one.number, one.before, one.begin, one.end = self.pendings, w.last_pending, v.time, -1
            one.tid = v.tid
            a.pending = w.last_pending = self.pendings
            self.pendings += 1
            w.pending += 1

    cdef void take_answer(self, Endpoint* e, Event* v) noexcept:
        """Somebody has answered: until it arrived was waited for."""
        cdef Asking* a = &e.asking
        cdef Endpoint* of = self.request_of(&a.owner)
        cdef Pending* one
        cdef Worker* w
        cdef int64_t end = e.state.arrived if a.begin < e.state.arrived <= v.time else v.time
        cdef int32_t kind
        if not a.begin:
            return
        if of != NULL or a.pending or a.loose:
            kind = self.who_is_asked(e)
            if a.loose:
                self.add_loose(v.tid, kind, not a.counted, end - a.begin, 0)
            elif of != NULL:
                self.credit(&of.asked, kind, a.begin, end, not a.counted)
                w = self.worker_of(v.tid)
                if v.tid > 0 and not w.received:
                    w.resumed = a.owner
            else:
                one = &self.pending[a.pending % PENDING]
                if one.number == a.pending:
                    one.end, one.kind = end, kind
        a.is_open, a.counted, a.begin = 0, 1, end

    cdef int32_t who_is_asked(self, Endpoint* e) noexcept:
        """Return the kind that answers at the other end, without labels; else -1 - port."""
        cdef Endpoint* peer = self.peer_of(e)
        cdef int32_t kind = -1
        if peer != NULL and peer.serves == 1:
            kind = self.kind_of(peer, peer.mover)
        return kind if kind >= 0 else -1 - <int32_t>e.remote

    cdef void give_up_pending(self, int32_t tid, Worker* w) noexcept:
        """What a thread asked was for some request of its process: which does not show."""
        cdef int64_t number = w.last_pending
        cdef Pending* one
        while number:
            one = &self.pending[number % PENDING]
            if one.number != number:
                break
            self.give_up(one)
            number = one.before
        w.last_pending = w.pending = 0

    cdef void give_up(self, Pending* one) noexcept:
        if one.number and one.end >= 0:
            self.add_loose(one.tid, one.kind, 1, one.end - one.begin, 1)
            self.unowned += 1
        one.number = 0

    cdef void add_loose(self, int32_t tid, int32_t kind, int count, int64_t ns,
                        bint handed) noexcept:
        """Add what was asked for one of a service's requests to the service."""
        cdef Worker* w = self.worker_of(tid)
        cdef Target of
        cdef Kind* k
        if not w.service or w.names != self.names:
            try:
                w.service = self.find_service(tid) + 1 if self.find_service is not None else 0
            except Exception:  # as in `kind_of`
                self.unnamed += 1
                w.service = 0
            w.names = self.names
        if not 0 < w.service <= self.kind_count:
            return
        k = &self.kinds[w.service - 1]
        of.kind, of.count, of.ns = kind, count, max(ns, 0)
        if handed:
            k.handed += of.ns
        self.add_ask(k, &of)

    cdef void credit(self, Asked* to, int32_t kind, int64_t begin, int64_t end,
                     int count) noexcept nogil:
        """Add what was waited for; what is waited for at once is that which ends last."""
        cdef int32_t i = 0
        cdef Target* of
        while i < to.count and to.of[i].kind != kind:
            i += 1
        if i == MOST_ASKED:
            i -= 1
            to.of[i].kind = ANYBODY
        elif i == to.count:
            to.count += 1
            to.of[i].kind, to.of[i].ns, to.of[i].count = kind, 0, 0
        of = &to.of[i]
        of.count += count
        begin = max(begin, to.until)
        if end > begin:
            of.ns += end - begin
            to.until = end

    cdef void add_asked(self, Kind* k, Asked* of, int64_t took, bint named) noexcept nogil:
        """Add to a kind what one of its requests waited for; `named` if a service has others."""
        cdef int32_t i
        cdef int64_t left = took - min(of.queued, took)
        k.queued += took - left
        for i in range(of.count):
            left -= of.of[i].ns
            self.add_ask(k, &of.of[i])
        if of.shared and named and left > 0:
            k.shared += left

    cdef void add_ask(self, Kind* k, const Target* of) noexcept nogil:
        cdef int32_t at = self.find_ask(k, of.kind)
        if not at:
            at = self.make_ask()
            if not at:
                return
            self.asks[at - 1].kind, self.asks[at - 1].next = of.kind, k.asks
            k.asks = at
        self.asks[at - 1].count += of.count
        self.asks[at - 1].ns += of.ns

    cdef int32_t find_ask(self, Kind* k, int32_t kind) noexcept nogil:
        """Return the row of whom a kind asks, plus 1; of one too many that of all those."""
        cdef int32_t at = k.asks, others = 0, many = 0
        while at:
            if self.asks[at - 1].kind == kind:
                return at
            if self.asks[at - 1].kind == ANYBODY:
                others = at
            at, many = self.asks[at - 1].next, many + 1
        return others if many >= MOST_OF_KIND else 0

    cdef int32_t make_ask(self) noexcept nogil:
        """Return a free row, plus 1; 0 if there is none."""
        cdef int32_t at = self.free_asks
        if at:
            self.free_asks = self.asks[at - 1].next
        elif self.ask_count < ASKS:
            self.ask_count += 1
            at = self.ask_count
        else:
            return 0
        memset(&self.asks[at - 1], 0, sizeof(Ask))
        return at

    cdef void forget_asks(self, int32_t kind) noexcept nogil:
        """Forget whom a kind asked, and who asked it."""
        cdef Py_ssize_t i
        cdef int32_t* at
        cdef int32_t gone
        for i in range(self.kind_count):
            at = &self.kinds[i].asks
            while at[0]:
                if i == kind or self.asks[at[0] - 1].kind == kind:
                    gone = at[0]
                    at[0] = self.asks[gone - 1].next
                    self.asks[gone - 1].next, self.free_asks = self.free_asks, gone
                else:
                    at = &self.asks[at[0] - 1].next

    # -------------------------------------------------------------- datagrams

    cdef Udp* udp_of(self, Endpoint* e) noexcept nogil:
        """Return what a socket that serves has of datagrams; that of another one may make room."""
        cdef Udp* u
        if e.udp:
            u = &self.udps[e.udp - 1]
            if u.row == <int32_t>(e - self.endpoints) + 1 and u.life == e.life:
                return u
        e.udp = <int32_t>(self.udp_count % UDP_SOCKETS) + 1
        self.udp_count += 1
        u = &self.udps[e.udp - 1]
        u.row, u.life, u.arrivals, u.opened = <int32_t>(e - self.endpoints) + 1, e.life, 0, 0
        return u

    cdef void follow_datagram(self, Event* v) noexcept:
        """Follow a datagram as `critpath.requests.datagrams` does; the first that answers ends it."""
        cdef Endpoint* e = self.endpoint_of(v.socket, v.family, UDP)
        cdef Endpoint* f
        cdef Hand* hand = self.hand_of(v.tid) if v.tid > 0 else NULL
        cdef Udp* u
        cdef Datagram one
        memset(&one, 0, sizeof(Datagram))
        if v.what == ARRIVAL:
            e.state.arrived, one.begin = v.time, v.time
            if e.serves:
                u = self.udp_of(e)
                push(u.arrived, &u.arrivals, &one)
            if hand != NULL:
                hand.endpoint, hand.life = <int32_t>(e - self.endpoints) + 1, e.life
                hand.time = v.time
            return
        if v.what != RECEIVE and v.what != SEND or v.first <= 0 or (
                v.what == RECEIVE and v.second & PEEK):
            return
        if e.serves < 0:
            e.serves = v.what == RECEIVE
        f = self.held_by(hand) if hand != NULL and v.what == SEND else NULL
        if f != NULL and f != e and f.protocol == UDP and f.serves:
            self.note_source(self.udp_of(f), hand.time, e)
        if e.serves == 1:
            u = self.udp_of(e)
            if v.what == RECEIVE:
                one.begin = v.time
                if u.arrivals:
                    one = take(u.arrived, &u.arrivals, 0)
                one.tid = v.tid
                push(u.open, &u.opened, &one)
            elif find_asked(u, f, <int32_t>(f - self.endpoints) + 1 if f != NULL else 0, v.tid,
                            &one):
                memset(&e.told, 0, sizeof(Asked))
                self.count_request(e, self.kind_of(e, v.tid), &one.begin, v.time, v.tid, 0, v.first)
        self.move_hand(e, v)
        if e.serves == 0:
            if v.what == SEND:
                self.ask(e, v)
            else:
                self.take_answer(e, v)

    cdef void note_source(self, Udp* u, int64_t time, Endpoint* e) noexcept nogil:
        """Note who sent what arrived at a time."""
        cdef int32_t i
        for i in range(u.arrivals):
            if u.arrived[i].begin == time:
                u.arrived[i].source = <int32_t>(e - self.endpoints) + 1
                u.arrived[i].source_life = e.life
        for i in range(u.opened):
            if u.open[i].begin == time:
                u.open[i].source = <int32_t>(e - self.endpoints) + 1
                u.open[i].source_life = e.life

    # -------------------------------------------------------------- turns

    cdef void after(self, Endpoint* e, int found) noexcept:
        """Count what is over, and list the endpoint by what it waits for now."""
        cdef int to = UNLISTED
        if found & TURN_CUT:
            self.count_cut(e)
        if found & TURN_OVER:
            e.held = 1
            self.tell_turn(e)
        if e.held and not (e.state.phase == ARRIVED and e.state.going_by > 0):
            self.count_turn(e)
        if e.state.phase == ANSWERED:
            to = ANSWERED_ONES
        elif e.state.phase != IDLE:
            to = OPEN_ONES
        if to != e.list or to == ANSWERED_ONES or found & TURN_OVER:
            self.unlist(e)
            if to:
                self.enlist(e, to)

    cdef void count_turns(self, Endpoint* e, int found) noexcept:
        """Count what is over with an endpoint that ends."""
        if e.held:
            if not found & TURN_OVER:
                self.count_turn(e)
            e.held = 0
        if found & TURN_CUT:
            self.count_cut(e)
        if found & TURN_OVER:
            self.tell_turn(e)
            self.count_turn(e)

    cdef void tell_turn(self, Endpoint* e) noexcept nogil:
        """Keep of a turn that is over what the next one of its endpoint is not to change."""
        self.leave(e)
        e.told, e.told_label = e.asked, e.label
        e.label = 0

    cdef void count_cut(self, Endpoint* e) noexcept:
        cdef int32_t kind
        if not e.owed:
            kind = self.open_kind(e)
            if kind >= 0:
                self.kinds[kind].cut += 1
        e.owed = e.longer = e.label = 0

    cdef void count_turn(self, Endpoint* e) noexcept:
        cdef Turn* t = &e.state.done
        cdef int32_t number = self.kind_of(e, t.tid)
        e.held = e.owed = 0
        if number < 0:
            return
        number = self.kind_with(number, e.told_label)
        self.count_request(e, number, &t.begin, t.end, t.tid, t.bytes_in, t.bytes_out)

    cdef void count_request(self, Endpoint* e, int32_t number, const int64_t* begin, int64_t end,
                            int32_t tid, int64_t bytes_in, int64_t bytes_out) noexcept:
        cdef int64_t took = end - begin[0]
        cdef Kind* k
        cdef Pick pick
        if number < 0:
            return
        if self.turns is not None:
            self.turns.append((e.socket, begin[0], end, tid, number, bytes_in, bytes_out))
        k = &self.kinds[number]
        k.now[bucket_of(took)] += 1
        k.count += 1
        k.took += took
        k.longer += e.longer
        k.bytes_in += bytes_in
        k.bytes_out += bytes_out
        k.seen = 1
        e.longer = 0
        if took >= k.worst:
            k.worst, k.worst_begin = took, begin[0]
        pick.begin, pick.end, pick.tid = begin[0], end, tid
        self.pick(k, pick)
        self.add_asked(k, &e.told, took, e.told_label != 0)

    cdef void pick(self, Kind* k, Pick one) noexcept nogil:
        """Keep the slowest of a block, and of the others a few that chance chooses."""
        cdef Pick other = one
        cdef uint64_t at
        if not k.slowest.end or one.end - one.begin > k.slowest.end - k.slowest.begin:
            other, k.slowest = k.slowest, one
            if not other.end:
                return
        at = k.others
        if at >= FEW:  # xorshift
            self.chance ^= self.chance << 13
            self.chance ^= self.chance >> 7
            self.chance ^= self.chance << 17
            at = self.chance % <uint64_t>(k.others + 1)
        k.others += 1
        if at < FEW:
            k.few[at] = other

    def take_sample(self):
        """Return requests of the block that ends now: kind, begin, end, thread, chance to be here.

        Of each kind the slowest, and a few of the others.
        """
        cdef Py_ssize_t i
        cdef int32_t j
        cdef Kind* k
        found = []
        for i in range(1, self.kind_count):
            k = &self.kinds[i]
            if not k.slowest.end:
                continue
            found.append((i, k.slowest.begin, k.slowest.end, k.slowest.tid, 1.0))
            for j in range(min(k.others, FEW)):
                found.append((i, k.few[j].begin, k.few[j].end, k.few[j].tid,
                              min(1.0, <double>FEW / k.others)))
            k.slowest.end = k.others = 0
        return found

    cdef int32_t open_kind(self, Endpoint* e) noexcept:
        """Return the kind of what is not answered yet, as far as that is known."""
        cdef int32_t kind = self.kind_of(e, e.state.turn.reader if e.state.phase >= RECEIVED else 0)
        return self.kind_with(kind, e.label) if kind >= 0 else kind

    cdef int32_t kind_with(self, int32_t kind, int32_t label) noexcept:
        """Return the kind of what is called so at a service."""
        cdef uint64_t key = (<uint64_t>kind << 32) | <uint64_t>label
        cdef Known* known
        if not label or self.labelled == NULL:
            return kind
        key = mix(<int64_t>key) ^ <uint64_t>self.names
        known = &self.labelled[key & (LABELLED - 1)]
        if known.hash != key or not known.label:
            try:
                known.kind = self.name_message(kind, label)
            except Exception:  # as in `kind_of`
                self.unnamed += 1
                known.kind = kind
            if not 0 <= known.kind < self.kind_count:
                known.kind = 0
            known.hash, known.label = key, 1
        return known.kind

    cdef int32_t kind_of(self, Endpoint* e, int32_t tid) noexcept:
        """Return the kind of what a thread answers here; -1 for what is no request."""
        cdef Owner* owner = &self.owners[tid & (HANDS - 1)]
        cdef Endpoint* peer
        cdef int32_t other = 0, kind
        if e.names == self.names and e.kind >= 0 and (e.kind_tid == tid or tid <= 0):
            return e.kind
        if e.family != UNIX and owner.kind and (
            owner.tid == tid and owner.port == e.local and owner.names == self.names
        ):
            kind = owner.kind - 1
        else:
            if e.family == UNIX:
                peer = self.peer_of(e)
                other = peer.mover if peer != NULL and not e.opening else 0
            try:
                kind = self.name(tid, e.local, UDP if e.protocol == UDP else e.family, other)
            except Exception:  # a name that cannot be had is counted, and does not end the flight
                self.unnamed += 1
                kind = 0
            if kind >= self.kind_count:
                kind = 0
            owner.tid, owner.port, owner.kind, owner.names = tid, e.local, kind + 1, self.names
        if kind < 0:
            e.serves = 0
        else:
            e.kind, e.kind_tid, e.names = kind, tid, self.names
        return kind

    cdef void settle(self, int64_t until) noexcept:
        """Count requests whose last answer is so old that no more of it is waited for."""
        cdef Endpoint* e
        while self.first[ANSWERED_ONES]:
            e = &self.endpoints[self.first[ANSWERED_ONES] - 1]
            if e.state.moved >= until:
                return
            self.unlist(e)
            self.count_turns(e, end_endpoint(&e.state))

    cdef void cut_open(self, int64_t time) noexcept:
        """Count what is open as cut; of what was answered just now more may have been."""
        cdef Endpoint* e
        cdef int of
        for of in range(OPEN_ONES, ANSWERED_ONES + 1):
            while self.first[of]:
                e = &self.endpoints[self.first[of] - 1]
                self.unlist(e)
                if e.serves != 1:
                    continue
                if of == ANSWERED_ONES and time - e.state.moved > PAUSE:
                    self.count_turns(e, end_endpoint(&e.state))
                    continue
                if e.held:
                    self.count_turn(e)
                self.count_cut(e)
                self.leave(e)
                e.owed = of == OPEN_ONES
        self.gaps += 1

    # -------------------------------------------------------------- what is told

    def forget_thread(self, int32_t tid):
        """Ask for the name anew of what a thread answers: it is another's, or another program."""
        if self.owners[tid & (HANDS - 1)].tid == tid:
            self.owners[tid & (HANDS - 1)].kind = 0
        if self.workers[tid & (HANDS - 1)].tid == tid:
            self.workers[tid & (HANDS - 1)].tid = 0

    def forget_names(self, kinds=()):
        """Ask for names anew; these kinds begin with nothing."""
        self.names += 1
        for number in kinds:
            self.forget_asks(number)
            memset(&self.kinds[<Py_ssize_t>number], 0, sizeof(Kind))

    def set_limit(self, Py_ssize_t kind, int64_t ns):
        """Say from when on an open request of a kind counts as longer than usual."""
        self.kinds[kind].limit = ns

    def look_at_open(self, int64_t longest):
        """Note open requests that are longer than their kind's limit, each once.

        What is open for longer than `longest` is not waited for any more.
        """
        cdef int32_t at = self.first[OPEN_ONES]
        cdef Endpoint* e
        cdef int64_t age
        cdef int32_t kind
        while at:
            e = &self.endpoints[at - 1]
            at = e.after
            age = self.time - e.state.turn.begin
            if e.held and age > SETTLED:
                self.count_turn(e)
            if age > longest:
                self.unlist(e)
                self.leave(e)
                continue
            if e.longer or e.owed or not waits(e):
                continue
            kind = self.open_kind(e)
            if kind >= 0 and 0 < self.kinds[kind].limit < age:
                e.longer = 1
                self.kinds[kind].over += 1
                self.kinds[kind].seen = 1

    def count_open(self, Py_ssize_t kind, int64_t limit):
        """Return how many open requests of a kind are longer than a limit."""
        cdef int32_t at = self.first[OPEN_ONES]
        cdef Py_ssize_t found = 0
        cdef Endpoint* e
        while at:
            e = &self.endpoints[at - 1]
            at = e.after
            if self.time - e.state.turn.begin <= limit:
                break  # in order of their begins, but for what came in two pieces
            if not e.owed and waits(e):
                found += self.open_kind(e) == kind
        return found

    def take_block(self):
        """Return what was counted since the last block, of each kind that had anything.

        A tuple of its number; count, ns, cut, resets, counted when longer, bytes in and out; open
        ones that became longer than its limit; its sketch.
        """
        cdef Py_ssize_t i, j
        cdef Kind* k
        cdef int64_t counts[7]
        found = []
        for i in range(PENDING):
            if self.pending[i].number and self.pending[i].begin < self.time - GIVEN_UP:
                self.give_up(&self.pending[i])
        for i in range(self.kind_count):
            k = &self.kinds[i]
            counts[:] = [
                k.count, k.took, k.cut, k.resets, k.longer, k.bytes_in, k.bytes_out]
            if not (k.seen or counts[2] != k.counts[2] or counts[3] != k.counts[3]):
                continue
            row = [i]
            for j in range(7):
                row.append(counts[j] - k.counts[j])
                k.counts[j] = counts[j]
            row.append(k.over)
            row.append(make_sketch(k.now, k.before))
            memcpy(k.before, k.now, sizeof(k.now))
            k.over = k.seen = 0
            found.append(tuple(row))
        return found

    def read_kind(self, Py_ssize_t kind):
        """Return all that was counted of a kind: count, ns, cut, resets, and its sketch."""
        cdef Kind* k = &self.kinds[kind]
        return k.count, k.took, k.cut, k.resets, make_sketch(k.now, NULL)

    def read_time(self, Py_ssize_t kind):
        """Return where a kind's time went: ns queued, of which it is not known whose it is, ns of
        what threads asked that answer nobody, and whom it asked.

        Of these: kind, or -1 - port; how often; ns for which it was waited.
        """
        cdef Kind* k = &self.kinds[kind]
        cdef int32_t at = k.asks
        found = []
        while at:
            found.append((self.asks[at - 1].kind, self.asks[at - 1].count, self.asks[at - 1].ns))
            at = self.asks[at - 1].next
        return k.queued, k.shared, k.handed, found

    def count_longer(self, Py_ssize_t kind, int64_t limit):
        """Return how many requests of a kind there were, and how many longer than a limit."""
        cdef Kind* k = &self.kinds[kind]
        cdef int32_t at
        cdef int64_t found = 0
        for at in range(bucket_of(limit) + 1, BUCKETS):
            found += k.now[at]
        return k.count, found

    def take_worst(self, Py_ssize_t kind):
        """Return the longest request of a kind since this was asked last: ns, and its begin."""
        cdef Kind* k = &self.kinds[kind]
        found = k.worst, k.worst_begin
        k.worst = k.worst_begin = 0
        return found

    def count_tables(self):
        """Return how many endpoints are known, and how many of them wait for an answer."""
        cdef int32_t at = self.first[OPEN_ONES]
        cdef Py_ssize_t waiting = 0, free_ones = 0
        while at:
            waiting, at = waiting + 1, self.endpoints[at - 1].after
        at = self.free_rows
        while at:
            free_ones, at = free_ones + 1, self.endpoints[at - 1].next
        return self.used - free_ones, waiting


cdef void push(Datagram* to, int32_t* count, const Datagram* one) noexcept nogil:
    """Add one; the oldest is forgotten for it."""
    if count[0] == DATAGRAMS:
        take(to, count, 0)
    to[count[0]] = one[0]
    count[0] += 1


cdef Datagram take(Datagram* of, int32_t* count, int32_t at) noexcept nogil:
    cdef Datagram one = of[at]
    count[0] -= 1
    memmove(&of[at], &of[at + 1], (count[0] - at) * sizeof(Datagram))
    return one


cdef bint find_asked(Udp* u, const Endpoint* peer, int32_t row, int32_t tid,
                     Datagram* to) noexcept nogil:
    """Take the datagram that a send answers: the peer's, else one that this thread received."""
    cdef int32_t i, chosen = -1
    cdef Datagram* one
    for i in range(u.opened):
        one = &u.open[i]
        if row:
            if one.source == row and one.source_life == peer.life:
                chosen = i
                break
        elif not one.source and (chosen < 0 or (one.tid == tid and u.open[chosen].tid != tid)):
            chosen = i
    if chosen < 0:
        return 0
    to[0] = take(u.open, &u.opened, chosen)
    return 1


cdef uint64_t hash_message(const uint8_t* of) noexcept nogil:
    """Return a number of what a label is made of, 0 if that depends on what came before.

    Of HTTP that is method and path, where digits in a row are no word's.
    """
    cdef uint64_t h = <uint64_t>0xCBF29CE4 << 32, prime = (<uint64_t>0x100 << 32) | 0x1B3
    cdef int i = 0, digits = 0, spaces = 0
    cdef uint8_t c
    cdef bint path = c"A" <= of[0] <= c"Z" and c"A" <= of[1] <= c"Z"
    if (of[0] == c"P" or of[0] == c"B") and not of[1]:
        return 0
    if not (of[0] or of[1]) and of[4] == 0 and of[5] == 3 and not of[6] and not of[7]:
        return 0
    while i < WINDOW:
        c = of[i]
        i += 1
        if path and c"0" <= c <= c"9":
            digits = 1
            while i < WINDOW and c"0" <= of[i] <= c"9":
                digits, i = digits + 1, i + 1
            if digits < DIGITS:
                h = (h ^ c) * prime
                c = of[i - 1] if digits == 2 else 0
            else:
                c = 0xFF
        elif path:
            spaces += c == c" "
            if spaces == 2 or (spaces == 1 and (c == c"?" or c == c"#" or c == c";")):
                h = (h ^ c) * prime
                break
        h = (h ^ c) * prime
    return (h ^ (h >> 29)) | 1


cdef inline bint waits(const Endpoint* e) noexcept nogil:
    """Tell whether somebody waits for an answer: an end of what comes in asks for nothing."""
    return e.serves == 1 and (e.state.phase == RECEIVED or not e.finished)


cdef bytes make_sketch(const uint32_t* now, const uint32_t* before):
    """Return the buckets that have anything: of each its number and count, 4 bytes each."""
    cdef uint32_t found[2 * BUCKETS]
    cdef Py_ssize_t i, n = 0
    cdef uint32_t count
    for i in range(BUCKETS):
        count = now[i] - (before[i] if before != NULL else 0)
        if count:
            found[n], found[n + 1] = <uint32_t>i, count
            n += 2
    return (<const char*>found)[:n * sizeof(uint32_t)]


def merge(sketches):
    """Return one sketch of several."""
    cdef uint32_t counts[BUCKETS]
    cdef uint32_t at, count
    cdef Py_ssize_t i
    cdef const uint8_t[::1] of
    memset(counts, 0, sizeof(counts))
    for sketch in sketches:
        if not sketch:
            continue
        of = sketch
        for i in range(of.shape[0] // 8):
            at, count = load32(&of[8 * i]), load32(&of[8 * i + 4])
            if at < BUCKETS:
                counts[at] = min(<uint64_t>counts[at] + count, <uint64_t>0xFFFFFFFF)
    return make_sketch(counts, NULL)


def find_bucket(int64_t ns):
    """Return the bucket that a time is in."""
    return bucket_of(ns)


def count_all(sketch):
    """Return how many times a sketch has."""
    return _count(sketch, -1)


def count_over(sketch, int32_t bucket):
    """Return how many times of a sketch are in higher buckets."""
    return _count(sketch, bucket)


cdef int64_t _count(const uint8_t[::1] of, int32_t bucket) except -1:
    cdef int64_t found = 0
    cdef Py_ssize_t i
    for i in range(of.shape[0] // 8):
        if <int32_t>load32(&of[8 * i]) > bucket:
            found += load32(&of[8 * i + 4])
    return found


def find_quantile(const uint8_t[::1] of not None, double part):
    """Return the bucket of the smallest time that so large a part does not exceed, -1 for none."""
    cdef int64_t least = <int64_t>ceil(part * _count(of, -1)), found = 0
    cdef Py_ssize_t i
    for i in range(of.shape[0] // 8):
        found += load32(&of[8 * i + 4])
        if found >= least:
            return <int32_t>load32(&of[8 * i])
    return -1


def find_mean(const uint8_t[::1] of not None):
    """Return the mean of the logarithms of times, as they are from bucket to bucket; 0 for none."""
    cdef double whole = 0
    cdef Py_ssize_t i
    for i in range(of.shape[0] // 8):
        whole += <double>load32(&of[8 * i]) * load32(&of[8 * i + 4])
    return whole * log(2) / IN_OCTAVE / max(_count(of, -1), 1)


def time_of(double bucket):
    """Return the time (ns) in the middle of a bucket: 1.1 % from any in it at most."""
    return <int64_t>(2 ** ((bucket + LOWEST + 0.5) / IN_OCTAVE))
