# cython: language_level=3
"""Notes what threads do with sockets and with each other, from events as they come.

A socket's kernel address is used again and again: each of its lives is an endpoint of its own.
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

import numpy as np

include "_kinds.pxi"
include "_acts.pxi"

cdef enum:
    TCP = 6
    MPTCP = 262
    UNIX = 1
    INET6 = 10
    JUST_NOW = 1000000    # ns: a thread that connects asks at once
    PEEK = 2              # MSG_PEEK: what is received stays there
    MOST_BYTES = 0x7ffff000  # that a call moves, MAX_RW_COUNT of Linux: sums do not overflow
    # States of TCP
    ESTABLISHED = 1
    SYN_SENT = 2
    SYN_RECV = 3
    CLOSED = 7
    CLOSE_WAIT = 8
    LISTEN = 10
    # Softirqs that a thread may have raised by sending to its own machine
    NET_TX = 2
    NET_RX = 3
    UNKNOWN_TID = -2      # less the number of a stretch: filled in by its first switch
    MOST_CPUS = 32768
    RUNNABLE_VALUES = 8
    DEAD = 255            # of a row: it is taken out

ctypedef struct Row:
    int64_t time
    int64_t value
    int32_t tid
    int32_t endpoint
    int32_t host
    uint8_t act

ctypedef struct Address:
    int64_t high          # 0 of IPv4
    int64_t low

ctypedef struct Endpoint:
    int64_t socket
    Address local
    Address remote
    int64_t opened
    int64_t closed        # -1 not yet
    int32_t host
    int32_t family
    int32_t protocol
    int32_t local_port
    int32_t remote_port
    int32_t opening       # 1 accepted, 2 connected, 0 not known
    int32_t first         # 1 received first, 2 sent first
    int32_t partner       # to whom its sends arrive, -1 not known
    int32_t votes
    int8_t known          # its addresses
    int8_t listens
    int8_t moved          # it received or sent
    int64_t gaps          # of its host, when something last told or agreed what its addresses are

ctypedef struct Cpu:
    int64_t tid           # who has it, -1 not known yet
    int32_t stretch       # since the recording's begin, or since a gap: see `Stretch`
    int32_t hard          # interrupts that are open
    int32_t soft          # the softirq that is open, -1 none
    int8_t by_thread      # the softirqs of networks that come next are the thread's own doing
    int8_t of_thread      # the one that is open is
    int64_t begun         # after how many gaps of its host, plus 1; 0 never

ctypedef struct Stretch:
    # Who had a cpu before the first switch of a time without gaps; -1 not known.
    int64_t first
    int8_t after_gap
    int8_t within         # an interrupt was open when it began

ctypedef struct Place:
    int64_t socket
    int32_t host
    int32_t endpoint      # plus 1; 0: free

ctypedef struct Hand:
    # The last arrival that a thread caused since its last receive or send.
    int64_t tid
    int64_t time          # of it
    int32_t host
    int32_t endpoint      # plus 1
    int8_t used
    int8_t connects       # it was at what listens: the thread connects
    int8_t left           # a packet of it went to a device since
    int64_t asleep        # the row of its sleep since, plus 1; where only such are kept
    int64_t gaps          # of its host, when this was noted


cdef inline int64_t valid(int64_t tid) noexcept nogil:
    """Return a thread's id; 0, as of who idles, for what is none."""
    return tid if 0 < tid <= 0x7FFFFFFF else 0


cdef inline size_t mix(int64_t key, int64_t host) noexcept nogil:
    cdef size_t golden = (<size_t>0x9E3779B9 << 32) | <size_t>0x7F4A7C15
    cdef size_t h = (<size_t>key + (<size_t>host << 48)) * golden
    return h ^ (h >> 29)


cdef inline bint is_renamed(const Endpoint* e, const int64_t* v) noexcept nogil:
    """Tell whether ports, of the fields of an event, are not those that an endpoint has."""
    return e.known and v[0] and v[1] and (e.local_port != v[0] or e.remote_port != v[1])


# ------------------------------------------------------------------------------ sets of threads

ctypedef struct Keys:
    int64_t* table        # key + 1; 0: a free place
    size_t mask
    size_t count


cdef inline int64_t thread_key(int64_t host, int64_t tid) noexcept nogil:
    return (host << 32) | (tid & 0xFFFFFFFFLL)


cdef int begin_keys(Keys* keys) except -1:
    keys.mask, keys.count = 255, 0
    keys.table = <int64_t*>calloc(keys.mask + 1, sizeof(int64_t))
    if keys.table == NULL:
        raise MemoryError()
    return 0


cdef inline size_t place_of_key(Keys* keys, int64_t key) noexcept nogil:
    cdef size_t at = mix(key, key >> 32) & keys.mask
    while keys.table[at] and keys.table[at] != key + 1:
        at = (at + 1) & keys.mask
    return at


cdef inline bint has_key(Keys* keys, int64_t key) noexcept nogil:
    return keys.table[place_of_key(keys, key)] != 0


cdef int add_key(Keys* keys, int64_t key) except -1 nogil:
    cdef size_t i, at = place_of_key(keys, key)
    cdef Keys more
    if keys.table[at]:
        return 0
    if 2 * keys.count > keys.mask:
        more.mask, more.count = 2 * keys.mask + 1, keys.count
        more.table = <int64_t*>calloc(more.mask + 1, sizeof(int64_t))
        if more.table == NULL:
            with gil:
                raise MemoryError()
        for i in range(keys.mask + 1):
            if keys.table[i]:
                more.table[place_of_key(&more, keys.table[i] - 1)] = keys.table[i]
        free(keys.table)
        keys[0] = more
        at = place_of_key(keys, key)
    keys.table[at] = key + 1
    keys.count += 1
    return 0


cdef object keys_of(Keys* keys):
    cdef size_t i, at = 0
    found = np.empty(keys.count, np.int64)
    cdef int64_t[::1] out = found
    for i in range(keys.mask + 1):
        if keys.table[i]:
            out[at] = keys.table[i] - 1
            at += 1
    return found


cdef class Activities:
    """Feed it all events; then take the rows and the endpoints."""

    cdef Row* rows
    cdef Py_ssize_t count, room
    cdef Endpoint* endpoints
    cdef Py_ssize_t endpoint_count, endpoint_room
    cdef Place* places
    cdef Py_ssize_t place_mask, place_used
    cdef Hand* hands
    cdef Py_ssize_t hand_mask, hand_used
    cdef Cpu** cpus       # per host, by cpu
    cdef Stretch* stretches
    cdef Py_ssize_t stretch_count, stretch_room
    cdef int64_t[::1] gaps   # per host, how many it has had
    cdef int64_t[::1] gap_ends   # per host, when the last ended
    cdef Py_ssize_t hosts
    cdef int64_t[:, ::1] runnable
    cdef int has_raises
    cdef bint sockets     # keep nothing of what threads do to each other
    cdef bint sleeps      # but their last sleeps before they receive or send
    cdef Py_ssize_t dead, dead_most   # rows of sleeps before others; at how many they go
    cdef readonly int64_t hidden   # events of sockets whose address the kernel does not show
    cdef readonly int64_t renamed  # events that give an open socket other ends than it has

    def __cinit__(self, int64_t[:, ::1] runnable, bint sockets=False, bint sleeps=False):
        """``runnable`` has, per host, the values of prev_state of a thread that could go on."""
        cdef Py_ssize_t i
        self.sockets, self.sleeps = sockets, sleeps
        self.dead, self.dead_most = 0, 4096
        self.hosts = runnable.shape[0]
        self.runnable = runnable
        self.gaps = np.zeros(max(self.hosts, 1), np.int64)
        self.gap_ends = np.zeros(max(self.hosts, 1), np.int64)
        self.place_mask, self.hand_mask = 1023, 1023
        self.places = <Place*>calloc(self.place_mask + 1, sizeof(Place))
        self.hands = <Hand*>calloc(self.hand_mask + 1, sizeof(Hand))
        self.cpus = <Cpu**>calloc(max(self.hosts, 1), sizeof(Cpu*))
        if self.places == NULL or self.hands == NULL or self.cpus == NULL:
            raise MemoryError()
        for i in range(self.hosts):
            # Memory of calloc that is not touched costs nothing.
            self.cpus[i] = <Cpu*>calloc(MOST_CPUS, sizeof(Cpu))
            if self.cpus[i] == NULL:
                raise MemoryError()

    def __dealloc__(self):
        cdef Py_ssize_t i
        free(self.rows)
        free(self.endpoints)
        free(self.places)
        free(self.hands)
        if self.cpus != NULL:
            for i in range(self.hosts):
                free(self.cpus[i])
        free(self.cpus)
        free(self.stretches)

    # -------------------------------------------------------------- tables

    cdef int put(self, int64_t time, int act, int64_t tid, int32_t host, int32_t endpoint,
                 int64_t value) except -1 nogil:
        cdef void* more
        cdef Py_ssize_t room
        cdef Row* r
        if self.sockets and endpoint < 0 and act != ACT_LEAVE:
            if not self.sleeps or act != ACT_SLEEP:
                return 0
            self.supersede(tid, host)
        if self.count == self.room:
            room = 2 * self.room + 4096
            more = realloc(self.rows, room * sizeof(Row))
            if more == NULL:
                with gil:
                    raise MemoryError()
            self.rows, self.room = <Row*>more, room
        r = &self.rows[self.count]
        r.time, r.act, r.tid, r.host = time, <uint8_t>act, <int32_t>tid, host
        r.endpoint, r.value = endpoint, value
        self.count += 1
        return 0

    cdef int supersede(self, int64_t tid, int32_t host) except -1 nogil:
        """Let a thread's sleep take the place of the one before, since which it did nothing."""
        cdef Hand* hand
        if self.dead > self.dead_most:
            self.bury()
        hand = self.hand_of(tid, host)
        if hand.asleep:
            self.rows[hand.asleep - 1].act = DEAD
            self.dead += 1
        hand.asleep = self.count + 1
        return 0

    cdef int bury(self) except -1 nogil:
        """Take rows of superseded sleeps out, as soon as they are most of all."""
        cdef Py_ssize_t i, to = 0
        cdef Row* r
        cdef Hand* hand
        for i in range(self.count):
            r = &self.rows[i]
            if r.act == DEAD:
                continue
            if r.act == ACT_SLEEP:
                hand = self.hand_of(r.tid, r.host)
                if hand.asleep == i + 1:
                    hand.asleep = to + 1
            self.rows[to] = r[0]
            to += 1
        self.count, self.dead = to, 0
        self.dead_most = max(to, 4096)
        return 0

    cdef Place* place_of(self, int64_t socket, int32_t host) noexcept nogil:
        cdef size_t at = mix(socket, host) & <size_t>self.place_mask
        while self.places[at].endpoint and not (
            self.places[at].socket == socket and self.places[at].host == host
        ):
            at = (at + 1) & <size_t>self.place_mask
        return &self.places[at]

    cdef int grow_places(self) except -1 nogil:
        cdef Place* old = self.places
        cdef Py_ssize_t i, mask = self.place_mask
        cdef Place* p
        self.places = <Place*>calloc(2 * (mask + 1), sizeof(Place))
        if self.places == NULL:
            self.places = old
            with gil:
                raise MemoryError()
        self.place_mask = 2 * mask + 1
        for i in range(mask + 1):
            if old[i].endpoint:
                p = self.place_of(old[i].socket, old[i].host)
                p[0] = old[i]
        free(old)
        return 0

    cdef Hand* hand_of(self, int64_t tid, int32_t host) except NULL nogil:
        cdef size_t at
        cdef Hand* old
        cdef Py_ssize_t i, mask
        if 2 * self.hand_used > self.hand_mask:
            old, mask = self.hands, self.hand_mask
            self.hands = <Hand*>calloc(2 * (mask + 1), sizeof(Hand))
            if self.hands == NULL:
                self.hands = old
                with gil:
                    raise MemoryError()
            self.hand_mask = 2 * mask + 1
            for i in range(mask + 1):
                if old[i].used:
                    at = mix(old[i].tid, old[i].host) & <size_t>self.hand_mask
                    while self.hands[at].used:
                        at = (at + 1) & <size_t>self.hand_mask
                    self.hands[at] = old[i]
            free(old)
        at = mix(tid, host) & <size_t>self.hand_mask
        while self.hands[at].used and not (
            self.hands[at].tid == tid and self.hands[at].host == host
        ):
            at = (at + 1) & <size_t>self.hand_mask
        if not self.hands[at].used:
            self.hands[at].used = 1
            self.hands[at].tid, self.hands[at].host = tid, host
            self.hands[at].gaps = self.gaps[host]
            self.hand_used += 1
        elif self.hands[at].gaps != self.gaps[host]:
            memset(&self.hands[at], 0, sizeof(Hand))
            self.hands[at].used = 1
            self.hands[at].tid, self.hands[at].host = tid, host
            self.hands[at].gaps = self.gaps[host]
        return &self.hands[at]

    cdef int32_t begin_life(self, int64_t socket, int32_t host, int32_t family, int32_t protocol,
                            int64_t time) except -1 nogil:
        """Return the endpoint of a new life of a socket."""
        cdef void* more
        cdef Py_ssize_t room
        cdef Endpoint* e
        cdef Place* p
        if self.endpoint_count == self.endpoint_room:
            room = 2 * self.endpoint_room + 256
            more = realloc(self.endpoints, room * sizeof(Endpoint))
            if more == NULL:
                with gil:
                    raise MemoryError()
            self.endpoints, self.endpoint_room = <Endpoint*>more, room
        e = &self.endpoints[self.endpoint_count]
        memset(e, 0, sizeof(Endpoint))
        e.socket, e.host, e.family, e.protocol, e.opened = socket, host, family, protocol, time
        e.closed, e.partner, e.gaps = -1, -1, self.gaps[host]
        self.endpoint_count += 1
        if 2 * self.place_used > self.place_mask:
            self.grow_places()
        p = self.place_of(socket, host)
        if not p.endpoint:
            self.place_used += 1
            p.socket, p.host = socket, host
        elif self.endpoints[p.endpoint - 1].closed < 0:
            self.endpoints[p.endpoint - 1].closed = time
        p.endpoint = <int32_t>self.endpoint_count
        return <int32_t>(self.endpoint_count - 1)

    cdef int32_t living(self, int64_t socket, int32_t host) noexcept nogil:
        """Return the endpoint that a socket is now, -1 for none."""
        cdef Place* p = self.place_of(socket, host)
        if not p.endpoint or self.endpoints[p.endpoint - 1].closed >= 0:
            return -1
        return p.endpoint - 1

    cdef int32_t endpoint_of(self, int64_t socket, int32_t host, int32_t family, int32_t protocol,
                             int64_t time) except -1 nogil:
        cdef int32_t at = self.living(socket, host)
        cdef Endpoint* e
        if at >= 0:
            e = &self.endpoints[at]
            if e.family == family and (e.protocol == protocol or protocol < 0 or e.protocol < 0):
                if e.protocol < 0:
                    e.protocol = protocol
                return at
        return self.begin_life(socket, host, family, protocol, time)

    cdef void name(self, Endpoint* e, const int64_t* v) noexcept nogil:
        """Take addresses from the fields sport, dport, family, saddr, ... of an event."""
        if e.known or not v[0] or not v[1]:
            return
        e.local_port, e.remote_port = <int32_t>v[0], <int32_t>v[1]
        e.local = take_address(<int32_t>v[2], v[3], v[5], v[6])
        e.remote = take_address(<int32_t>v[2], v[4], v[7], v[8])
        e.known = 1
        e.gaps = self.gaps[e.host]

    cdef int32_t rename(self, int32_t at, const int64_t* v) except -1 nogil:
        """Return the endpoint that a socket is, of which an event tells the ports.

        A life may have ended in a gap, and another begun: what was done since is of that one.
        """
        cdef Endpoint* e = &self.endpoints[at]
        cdef int32_t old = at
        cdef Py_ssize_t i = self.count - 1
        cdef Row* r
        if not is_renamed(e, v):
            e.gaps = self.gaps[e.host]
            return at
        if e.gaps == self.gaps[e.host]:
            self.renamed += 1
            return at
        at = self.begin_life(e.socket, e.host, e.family, e.protocol, self.gap_ends[e.host])
        e = &self.endpoints[at]
        while i >= 0 and self.rows[i].time >= e.opened:
            r = &self.rows[i]
            if r.endpoint == old:
                r.endpoint = at
                if r.act == ACT_RECEIVE or r.act == ACT_SEND:
                    e.first, e.moved = 1 if r.act == ACT_RECEIVE else 2, 1
            i -= 1
        return at

    # -------------------------------------------------------------- who does it

    cdef int64_t thread_at(self, Cpu* c) noexcept nogil:
        if c.tid == -1:
            return UNKNOWN_TID - 2 * c.stretch
        return c.tid if c.tid else -1

    cdef int64_t waker_at(self, Cpu* c) noexcept nogil:
        """Return whose doing something is now: a thread's, or -1 for an interrupt's."""
        if c.hard or (c.soft >= 0 and not c.of_thread):
            return -1
        # One less where it may yet turn out that an interrupt was open.
        return self.thread_at(c) - (c.tid == -1)

    # -------------------------------------------------------------- events

    def feed(self, const int64_t[::1] timestamp, const int32_t[::1] cpu,
             const int32_t[::1] event_class, const int64_t[::1] offset,
             const int64_t[::1] values, const uint8_t[::1] kinds, const int64_t[::1] class_host):
        """Take the next events; `kinds` says of each class what it means, 0 for nothing."""
        cdef Py_ssize_t i, n = timestamp.shape[0]
        cdef int kind
        cdef int32_t host
        cdef const int64_t* v
        cdef const int64_t* every = &values[0] if values.shape[0] else NULL
        for i in range(kinds.shape[0]):
            if kinds[i] == KIND_SOFTIRQ_RAISE:
                self.has_raises = 1
        with nogil:
            for i in range(n):
                kind = kinds[event_class[i]]
                host = <int32_t>class_host[event_class[i]]
                if not kind or cpu[i] < 0 or cpu[i] >= MOST_CPUS or host >= self.hosts:
                    continue
                v = every + offset[i]
                if kind == KIND_TASKS:
                    self.put(timestamp[i], ACT_TASK, self.thread_at(self.find_cpu(host, cpu[i])),
                             host, -1, v[0])
                elif kind >= KIND_SOCKET_SEND:
                    self.feed_socket(kind, timestamp[i], cpu[i], host, v)
                else:
                    self.feed_thread(kind, timestamp[i], cpu[i], host, v)

    cdef int feed_thread(self, int kind, int64_t time, int32_t cpu, int32_t host,
                         const int64_t* v) except -1 nogil:
        cdef Cpu* c = self.find_cpu(host, cpu)
        cdef Py_ssize_t i
        cdef int64_t tid
        cdef int act
        if kind == KIND_SWITCH:
            if c.tid == -1 and self.stretches[c.stretch].first == -1:
                self.stretches[c.stretch].first = valid(v[1])
            c.tid, c.hard, c.soft, c.by_thread = valid(v[4]), 0, -1, 0
            if valid(v[1]):
                act = ACT_SLEEP
                for i in range(self.runnable.shape[1]):
                    if v[2] == self.runnable[host, i]:
                        act = ACT_PREEMPT
                self.put(time, act, v[1], host, -1, 0)
            if valid(v[4]):
                self.put(time, ACT_RUN, v[4], host, -1, cpu)
        elif kind == KIND_WAKING or kind == KIND_WAKEUP:
            self.put(time, ACT_WAKE, self.waker_at(c), host, -1, v[0])
        elif kind == KIND_NET_SEND:
            tid = self.waker_at(c)
            if tid > 0 and c.soft < 0 and not self.hand_of(tid, host).left:
                self.hand_of(tid, host).left = 1
                self.put(time, ACT_LEAVE, tid, host, -1, 0)
        elif kind == KIND_FORK:
            self.put(time, ACT_CREATE, valid(v[0]), host, -1, v[2])
        elif kind == KIND_EXIT:
            self.put(time, ACT_EXIT, valid(v[0]), host, -1, 0)
        elif kind == KIND_CURRENT:
            c.tid = valid(v[0])
        elif kind == KIND_SOFTIRQ_RAISE:
            if v[0] == NET_TX or v[0] == NET_RX:
                c.by_thread = not c.hard
        elif kind == KIND_SOFTIRQ_ENTRY:
            c.soft = <int32_t>v[0]
            c.of_thread = (v[0] == NET_TX or v[0] == NET_RX) and (
                c.by_thread or not self.has_raises
            )
        elif kind == KIND_SOFTIRQ_EXIT:
            if c.soft < 0:
                self.stretches[c.stretch].within |= c.tid == -1
            c.soft, c.of_thread = -1, 0
        elif kind == KIND_IRQ_ENTRY or kind == KIND_TIMER_ENTRY or kind == KIND_VECTOR_ENTRY:
            c.hard += 1
        elif c.hard:
            c.hard -= 1
        else:
            self.stretches[c.stretch].within |= c.tid == -1
        return 0

    cdef Cpu* find_cpu(self, int32_t host, int32_t cpu) except NULL nogil:
        cdef Cpu* c = &self.cpus[host][cpu]
        cdef Py_ssize_t room
        cdef void* more
        if c.begun != self.gaps[host] + 1:
            if self.stretch_count == self.stretch_room:
                room = 2 * self.stretch_room + 64
                more = realloc(self.stretches, room * sizeof(Stretch))
                if more == NULL:
                    with gil:
                        raise MemoryError()
                self.stretches, self.stretch_room = <Stretch*>more, room
            self.stretches[self.stretch_count] = Stretch(-1, self.gaps[host] > 0, 0)
            memset(c, 0, sizeof(Cpu))
            c.begun, c.tid, c.soft = self.gaps[host] + 1, -1, -1
            c.stretch = <int32_t>self.stretch_count
            self.stretch_count += 1
        return c

    def end_gap(self, Py_ssize_t host, int64_t time):
        """Forget who has which cpu of a host, and what its threads did last."""
        if host < self.hosts:
            self.gaps[host] += 1
            self.gap_ends[host] = time

    cdef int feed_socket(self, int kind, int64_t time, int32_t cpu, int32_t host,
                         const int64_t* v) except -1 nogil:
        cdef Cpu* c = self.find_cpu(host, cpu)
        cdef int64_t tid
        cdef int32_t at
        cdef Endpoint* e
        cdef Hand* hand
        if kind == KIND_SOCKET_STATEDUMP:
            return 0
        if not v[0]:
            self.hidden += 1
            return 0
        if kind == KIND_SOCKET_STATE:
            return self.feed_state(time, self.waker_at(c), host, v)
        if kind == KIND_SOCKET_OF:
            at = self.endpoint_of(v[0], host, <int32_t>v[3], -1, time)
            at = self.rename(at, v + 1)
            self.name(&self.endpoints[at], v + 1)
            return 0
        at = self.endpoint_of(v[0], host, <int32_t>v[1], <int32_t>v[2], time)
        if kind == KIND_SOCKET_ARRIVAL:
            tid = self.waker_at(c)
            hand = self.hand_of(tid, host) if tid > 0 else NULL
            if v[1] == UNIX and hand != NULL:
                at = self.connect_unix(at, tid, hand, time)
            e = &self.endpoints[at]
            if not e.listens:
                self.put(time, ACT_ARRIVAL, tid, host, at, 0)
            if hand != NULL and (not e.listens or e.family == UNIX):
                hand.endpoint, hand.time = at + 1, time
            return 0
        tid = self.thread_at(c)
        e = &self.endpoints[at]
        if e.listens:
            if e.family != UNIX:
                return 0
            at = self.begin_life(v[0], host, UNIX, <int32_t>v[2], time)
        elif e.family == UNIX and kind == KIND_SOCKET_SEND and v[3] > 0 and tid > 0:
            hand = self.hand_of(tid, host)
            if hand.connects and hand.endpoint - 1 != at:
                at = self.open_unix(at, 2, tid, time)
            hand.connects = 0
        e = &self.endpoints[at]
        if kind == KIND_SOCKET_RECEIVE:
            if v[4] & PEEK or v[3] < 0:
                return 0
            self.put(
                time, ACT_RECEIVE if v[3] else ACT_FINISH, tid, host, at, min(v[3], MOST_BYTES))
            if v[3] and not e.first:
                e.first = 1
        elif v[3] > 0:
            self.put(time, ACT_SEND, tid, host, at, min(v[3], MOST_BYTES))
            if not e.first:
                e.first = 2
        else:
            return 0
        e.moved = 1
        if tid > 0:
            hand = self.hand_of(tid, host)
            if kind == KIND_SOCKET_SEND and hand.endpoint and hand.endpoint - 1 != at:
                self.pair(at, hand.endpoint - 1)
            hand.endpoint = 0
            hand.left = 0
            hand.asleep = 0
            hand.connects = 0
        return 0

    cdef int32_t connect_unix(self, int32_t at, int64_t tid, Hand* hand,
                              int64_t time) except -1 nogil:
        """Return the endpoint at which a thread makes data arrive.

        Of unix sockets no event tells that one is opened or closed, and their addresses are used
        again at once.  A connection makes an arrival at what listens, and no send follows it.
        """
        cdef Endpoint* e = &self.endpoints[at]
        cdef Endpoint* f
        if hand.endpoint - 1 == at:
            return at
        if not hand.endpoint or time - hand.time > JUST_NOW:
            hand.connects = 0
            return at
        f = &self.endpoints[hand.endpoint - 1]
        if hand.connects or f.family != UNIX or (f.moved and not f.listens) or e.listens:
            return at
        f.listens = 1
        hand.connects = 1
        return self.open_unix(at, 1, tid, time)

    cdef int32_t open_unix(self, int32_t at, int32_t opening, int64_t tid,
                           int64_t time) except -1 nogil:
        """Return the endpoint that a unix socket is from now on: accepted, or connected."""
        cdef Endpoint* e = &self.endpoints[at]
        if e.moved or e.opening:
            at = self.begin_life(e.socket, e.host, UNIX, e.protocol, time)
        self.endpoints[at].opening = opening
        self.put(time, ACT_OPEN, tid, self.endpoints[at].host, at, opening)
        return at

    cdef void pair(self, int32_t sender, int32_t receiver) noexcept nogil:
        """Note to whom a send arrived: most sends of an endpoint arrive at its peer."""
        cdef Endpoint* e = &self.endpoints[sender]
        cdef Endpoint* f = &self.endpoints[receiver]
        if (e.family == 1) != (f.family == 1):
            return
        if e.partner == receiver:
            e.votes += 1
        elif e.votes > 0:
            e.votes -= 1
        else:
            e.partner, e.votes = receiver, 1

    cdef int feed_state(self, int64_t time, int64_t tid, int32_t host,
                        const int64_t* v) except -1 nogil:
        """Fields: the socket, nine of its ends, protocol, old and new state."""
        cdef int32_t protocol = <int32_t>v[10], family = <int32_t>v[3]
        cdef int64_t before = v[11], now = v[12]
        cdef int32_t at
        cdef Endpoint* e
        if protocol != TCP and protocol != MPTCP:
            return 0
        at = self.living(v[0], host)
        if now == SYN_SENT or (now == SYN_RECV and before == LISTEN) or now == LISTEN:
            at = self.begin_life(v[0], host, family, protocol, time)
        elif now == ESTABLISHED and before == SYN_RECV:
            if at < 0 or self.endpoints[at].moved or self.endpoints[at].opening:
                at = self.begin_life(v[0], host, family, protocol, time)
        if at < 0:
            return 0
        at = self.rename(at, v + 1)
        e = &self.endpoints[at]
        if now == LISTEN:
            e.listens, e.local_port = 1, <int32_t>v[1]
            e.local = take_address(family, v[4], v[6], v[7])
            return 0
        self.name(e, v + 1)
        if now == SYN_SENT:
            e.opening = 2
            self.put(time, ACT_OPEN, tid, host, at, 2)
        elif now == ESTABLISHED and before == SYN_RECV:
            e.opening = 1
            self.put(time, ACT_OPEN, tid, host, at, 1)
        elif now == CLOSE_WAIT:
            self.put(time, ACT_FINISH, tid, host, at, 0)
        elif now == CLOSED:
            e.closed = time
            if not e.listens:
                self.put(time, ACT_CLOSE, tid, host, at, 0)
        return 0

    # -------------------------------------------------------------- what was found

    cdef void name_first(self) noexcept nogil:
        """Fill in who had a cpu before its first switch; what an unknown thread did is -1's."""
        cdef Py_ssize_t i
        cdef bint hidden
        cdef Row* r
        cdef Stretch* stretch
        for i in range(self.count):
            r = &self.rows[i]
            if r.tid <= UNKNOWN_TID:
                stretch = &self.stretches[(UNKNOWN_TID - r.tid) >> 1]
                hidden = (UNKNOWN_TID - r.tid) & 1 and stretch.after_gap and stretch.within
                r.tid = <int32_t>stretch.first if stretch.first > 0 and not hidden else -1

    def find_users(self):
        """Return the threads that received or sent, each once: host and id in one number."""
        cdef Py_ssize_t i
        cdef Row* r
        cdef int64_t key, last = -1
        cdef Keys keys
        begin_keys(&keys)
        self.name_first()
        try:
            with nogil:
                for i in range(self.count):
                    r = &self.rows[i]
                    if r.act == ACT_RECEIVE or r.act == ACT_SEND:
                        key = thread_key(r.host, r.tid)
                        if key != last:
                            add_key(&keys, key)
                            last = key
            return keys_of(&keys)
        finally:
            free(keys.table)

    def keep_threads(self, const int64_t[:] threads):
        """Forget what no endpoint has, nor any of some threads did, or was woken or made by."""
        cdef Py_ssize_t i, to = 0
        cdef Row* r
        cdef Keys keys
        begin_keys(&keys)
        self.bury()
        self.name_first()
        try:
            for i in range(threads.shape[0]):
                add_key(&keys, threads[i])
            with nogil:
                for i in range(self.count):
                    r = &self.rows[i]
                    if (r.endpoint >= 0 or r.act == ACT_TASK
                            or has_key(&keys, thread_key(r.host, r.tid))
                            or ((r.act == ACT_WAKE or r.act == ACT_CREATE)
                                and has_key(&keys, thread_key(r.host, r.value)))):
                        self.rows[to] = r[0]
                        to += 1
            self.count = to
        finally:
            free(keys.table)

    def take_rows(self):
        """Return and forget time, act, tid, host, endpoint, value."""
        self.bury()
        self.name_first()
        cdef Py_ssize_t i
        cdef Row* r
        time, value = np.empty(self.count, np.int64), np.empty(self.count, np.int64)
        tid, host = np.empty(self.count, np.int32), np.empty(self.count, np.int32)
        endpoint, act = np.empty(self.count, np.int32), np.empty(self.count, np.uint8)
        cdef int64_t[::1] time_ = time, value_ = value
        cdef int32_t[::1] tid_ = tid, host_ = host, endpoint_ = endpoint
        cdef uint8_t[::1] act_ = act
        for i in range(self.count):
            r = &self.rows[i]
            time_[i], act_[i], tid_[i], host_[i] = r.time, r.act, r.tid, r.host
            endpoint_[i], value_[i] = r.endpoint, r.value
        free(self.rows)
        self.rows, self.count, self.room = NULL, 0, 0
        return time, act, tid, host, endpoint, value

    def take_endpoints(self):
        """Return a row of numbers per endpoint; see `endpoints.EndpointColumn`."""
        cdef Py_ssize_t i
        cdef Endpoint* e
        table = np.empty((self.endpoint_count, 18), np.int64)
        cdef int64_t[:, ::1] to = table
        for i in range(self.endpoint_count):
            e = &self.endpoints[i]
            to[i, 0], to[i, 1], to[i, 2], to[i, 3] = e.socket, e.host, e.family, e.protocol
            to[i, 4], to[i, 5], to[i, 6] = e.local.high, e.local.low, e.local_port
            to[i, 7], to[i, 8], to[i, 9] = e.remote.high, e.remote.low, e.remote_port
            to[i, 10], to[i, 11], to[i, 12] = e.opened, e.closed, e.opening
            to[i, 13], to[i, 14], to[i, 15] = e.first, e.partner, e.votes
            to[i, 16], to[i, 17] = e.known, e.listens
        return table


cdef inline Address take_address(int32_t family, int64_t v4, int64_t high,
                                 int64_t low) noexcept nogil:
    """Return an address; an IPv4 one that is mapped into IPv6 is the IPv4 one."""
    cdef Address a
    a.high, a.low = 0, v4 & 0xFFFFFFFFLL
    if family == INET6 and not (high == 0 and (low >> 32) == 0xFFFF):
        a.high, a.low = high, low
    elif family == INET6:
        a.low = low & 0xFFFFFFFFLL
    return a
