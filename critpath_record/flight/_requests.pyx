# cython: language_level=3
"""Follows the requests of servers in the events of their sockets, as they come and in one pass.

A turn is what the analysis says it is (`turns.pxi`); endpoints are found as `critpath.requests`
finds them, by what was seen so far.  All tables have a size that is never exceeded.
"""

from libc.math cimport ceil, log2
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

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

ctypedef struct Endpoint:
    State state
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
    cdef Py_ssize_t kind_count
    cdef uint8_t* listened    # bits, by port
    cdef bint told_listened
    cdef int64_t lives, gaps
    cdef int32_t names
    cdef int64_t time         # until when all is followed
    cdef object turns         # a list that every turn is written to, for tests
    cdef readonly int64_t hidden, forgotten, seen

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
        if (self.endpoints == NULL or self.places == NULL or self.hands == NULL
                or self.owners == NULL or self.children == NULL or self.kinds == NULL or self.listened == NULL):
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
        of.earliest, of.latest = 0, <uint64_t>1 << 62
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
        if e.serves == 1:
            if how == RESET and (e.state.phase == RECEIVED or e.state.phase == ARRIVED):
                kind = self.kind_of(e, e.state.turn.reader if e.state.phase == RECEIVED else 0)
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
        cdef Endpoint* f
        cdef Hand* hand
        if v.what == LOST:
            self.cut_open(v.time)
            return
        if not v.socket:
            self.hidden += 1
            return
        if v.family != INET and v.family != INET6 and v.family != UNIX:
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
            if v.what == RECEIVE:
                self.after(e, receive(&e.state, -1, v.time, v.tid, v.first))
            else:
                if e.owed and e.state.phase == IDLE:
                    e.owed = e.state.cut = 0  # the end of what was cut
                self.after(e, send(&e.state, v.time, v.tid, v.first))
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
        if not e.known and v.local and v.remote:
            e.local, e.remote, e.known = v.local, v.remote, 1

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

    # -------------------------------------------------------------- turns

    cdef void after(self, Endpoint* e, int found) noexcept:
        """Count what is over, and list the endpoint by what it waits for now."""
        cdef int to = UNLISTED
        if found & TURN_CUT:
            self.count_cut(e)
        if found & TURN_OVER:
            e.held = 1
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
            self.count_turn(e)

    cdef void count_cut(self, Endpoint* e) noexcept:
        cdef int32_t kind
        if not e.owed:
            kind = self.kind_of(e, e.state.turn.reader if e.state.phase >= RECEIVED else 0)
            if kind >= 0:
                self.kinds[kind].cut += 1
        e.owed = e.longer = 0

    cdef void count_turn(self, Endpoint* e) noexcept:
        cdef Turn* t = &e.state.done
        cdef int64_t took = t.end - t.begin
        cdef int32_t number = self.kind_of(e, t.tid)
        cdef Kind* k
        e.held = e.owed = 0
        if number < 0:
            return
        if self.turns is not None:
            self.turns.append(
                (e.socket, t.begin, t.end, t.tid, number, t.bytes_in, t.bytes_out))
        k = &self.kinds[number]
        k.now[bucket_of(took)] += 1
        k.count += 1
        k.took += took
        k.longer += e.longer
        k.bytes_in += t.bytes_in
        k.bytes_out += t.bytes_out
        k.seen = 1
        e.longer = 0
        if took >= k.worst:
            k.worst, k.worst_begin = took, t.begin

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
                kind = self.name(tid, e.local, e.family, other)
            except Exception:  # a name that cannot be had does not end the flight
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
                e.owed = of == OPEN_ONES
        self.gaps += 1

    # -------------------------------------------------------------- what is told

    def forget_thread(self, int32_t tid):
        """Ask for the name anew of what a thread answers: it is another's, or another program."""
        if self.owners[tid & (HANDS - 1)].tid == tid:
            self.owners[tid & (HANDS - 1)].kind = 0

    def forget_names(self, kinds=()):
        """Ask for names anew; these kinds begin with nothing."""
        self.names += 1
        for number in kinds:
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
                continue
            if e.longer or e.owed or not waits(e):
                continue
            kind = self.kind_of(e, e.state.turn.reader if e.state.phase == RECEIVED else 0)
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
                found += self.kind_of(
                    e, e.state.turn.reader if e.state.phase == RECEIVED else 0) == kind
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


def time_of(double bucket):
    """Return the time (ns) in the middle of a bucket: 1.1 % from any in it at most."""
    return <int64_t>(2 ** ((bucket + LOWEST + 0.5) / IN_OCTAVE))
