# cython: language_level=3
"""Follows a process's tokens through its events, by the rules of docs/tokens.md.

What a token has asked is a node of a tree that all passes share.  Queues are kept by what their
tokens have asked, each in order of entering.  The plain twin is tests/oracle/tokens.py.
"""

from libc.math cimport INFINITY, exp, fmax, fmin, log
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

import numpy as np

cdef enum:
    # What happens, as in `critpath.requests.assign`
    RECEIVE = 0
    RESULT = 1
    MADE = 2
    ASK = 3
    ANSWERED = 4
    # Kinds, as in `critpath.requests.transitions`
    END = -1
    ANSWER = -2
    DEEP = 32            # of a history is counted whole there
    CANDIDATES = 64      # tokens that may ask are looked at
    UNASKED = -1
    NONE = -3            # is no kind

cdef double BROAD = 0.05  # of delays are of no kind
cdef double RANK = 2.0    # log probability that is lost by each place in the queue
cdef double FIRST = 0.85  # who is answered is the first that has all results
cdef double ALONE = 0.99  # where there is one candidate

ctypedef struct Token:
    int64_t ready
    double sure          # that what it is known to have asked is its own: a mistake goes on
    int32_t node
    int32_t thread       # in whose queue it is, -1 in none
    int32_t group
    int32_t before       # in the group
    int32_t after
    int32_t last         # what it asked last
    uint8_t received
    uint8_t answered

ctypedef struct Group:
    int32_t node
    int32_t thread
    int32_t first
    int32_t last
    int32_t before       # in the thread's queue
    int32_t after
    int32_t live         # its place among all that are not empty

ctypedef struct Node:
    int32_t parent
    int32_t kind
    int32_t depth
    int8_t fresh         # nothing was asked
    int8_t may_answer
    int8_t goes_on

ctypedef struct Head:
    int32_t token
    double weight

ctypedef struct Map:     # keys of 0 and more
    int64_t* keys
    int64_t* values
    Py_ssize_t size, used


cdef int map_make(Map* of, Py_ssize_t size) except -1:
    of.keys = <int64_t*>malloc(size * sizeof(int64_t))
    of.values = <int64_t*>malloc(size * sizeof(int64_t))
    if of.keys == NULL or of.values == NULL:
        map_free(of)
        raise MemoryError()
    of.size, of.used = size, 0
    memset(of.keys, 0xff, size * sizeof(int64_t))
    return 0


cdef void map_free(Map* of) noexcept:
    free(of.keys)
    free(of.values)
    of.keys = of.values = NULL


cdef inline Py_ssize_t map_home(const Map* of, int64_t key) noexcept nogil:
    cdef uint64_t mixed = <uint64_t>key * <uint64_t>0x9E3779B97F4A7C15
    return <Py_ssize_t>((mixed >> 29) & <uint64_t>(of.size - 1))


cdef inline Py_ssize_t map_at(const Map* of, int64_t key) noexcept nogil:
    """Return where a key is, or would be."""
    cdef Py_ssize_t at = map_home(of, key)
    while of.keys[at] >= 0 and of.keys[at] != key:
        at = (at + 1) & (of.size - 1)
    return at


cdef inline int64_t map_get(const Map* of, int64_t key) noexcept nogil:
    cdef Py_ssize_t at = map_at(of, key)
    return of.values[at] if of.keys[at] == key else -1


cdef int map_put(Map* of, int64_t key, int64_t value) except -1:
    cdef Map larger
    cdef Py_ssize_t at
    if of.used * 2 >= of.size:
        map_make(&larger, of.size * 2)
        for at in range(of.size):
            if of.keys[at] >= 0:
                map_put(&larger, of.keys[at], of.values[at])
        map_free(of)
        of[0] = larger
    at = map_at(of, key)
    of.used += of.keys[at] < 0
    of.keys[at], of.values[at] = key, value
    return 0


cdef void map_drop(Map* of, int64_t key) noexcept nogil:
    """Take out a key that is there; what was pushed on by it goes back."""
    cdef Py_ssize_t hole = map_at(of, key), at = hole, home
    while True:
        at = (at + 1) & (of.size - 1)
        if of.keys[at] < 0:
            break
        home = map_home(of, of.keys[at])
        if ((at - home) & (of.size - 1)) >= ((at - hole) & (of.size - 1)):
            of.keys[hole], of.values[hole] = of.keys[at], of.values[at]
            hole = at
    of.keys[hole] = -1
    of.used -= 1


cdef inline int64_t both(int64_t high, int64_t low) noexcept nogil:
    return (high << 32) | low


cdef class Tokens:
    """A process's requests, what is asked in it, and its events; each may be passed over again.

    Rows of requests and of what is asked count from 0 within the process, and so do threads.

    Parameters
    ----------
    time : int64 [n]
    what : uint8 [n]
    thread, row : int32 [n]
        The row of ``MADE`` is the thread that was made.
    root : int32 [requests]
        The kind that each begins with.
    asks : int32 [asks, 4]
        Kind, endpoint, whose it is by the rules (below 0: no request of this process), and how
        that is: bit 0 that it opens a connection, bit 1 that the rules are sure.
    """

    cdef const int64_t[::1] time
    cdef const uint8_t[::1] what
    cdef const int32_t[::1] thread
    cdef const int32_t[::1] row
    cdef const int32_t[::1] root
    cdef const int32_t[:, ::1] asks
    cdef Py_ssize_t request_count, thread_count
    cdef Token* tokens
    cdef Node* nodes
    cdef Py_ssize_t node_count, node_room
    cdef Map children
    # Of one pass
    cdef Group* groups
    cdef Head* heads
    cdef int32_t* live
    cdef Py_ssize_t group_count, group_room, live_count
    cdef int32_t free_group
    cdef Map found            # the group of a thread and a node
    cdef Map weights, delays  # rows of `values`, by node or last kind, and kind
    cdef double* values
    cdef Py_ssize_t value_count, value_room
    cdef int32_t[::1] queues  # the first group of each thread
    cdef int32_t[::1] opened  # whose each connection is until it is used
    cdef double[::1] opened_sure
    cdef int32_t[::1] owner
    cdef double[::1] sure
    cdef int64_t[::1] waited  # from when who asked was ready, -1 where nobody was chosen
    cdef object known
    cdef bint by_delays, later, in_order
    cdef Py_ssize_t contradicted

    def __cinit__(self, const int64_t[::1] time, const uint8_t[::1] what,
                  const int32_t[::1] thread, const int32_t[::1] row, const int32_t[::1] root,
                  const int32_t[:, ::1] asks):
        cdef Py_ssize_t i
        self.time, self.what, self.thread, self.row = time, what, thread, row
        self.root, self.asks = root, asks
        self.request_count, self.thread_count = root.shape[0], 0
        self.tokens = <Token*>malloc(max(self.request_count, 1) * sizeof(Token))
        if self.tokens == NULL:
            raise MemoryError()
        for i in range(time.shape[0]):
            self.thread_count = max(self.thread_count, thread[i] + 1)
            if what[i] == MADE:
                self.thread_count = max(self.thread_count, row[i] + 1)
        map_make(&self.children, 64)

    def __dealloc__(self):
        free(self.tokens)
        free(self.nodes)
        map_free(&self.children)
        self.forget()

    def __len__(self):
        """Return how many events there are."""
        return self.time.shape[0]

    cdef void forget(self) noexcept:
        free(self.groups)
        free(self.heads)
        free(self.live)
        free(self.values)
        map_free(&self.found)
        map_free(&self.weights)
        map_free(&self.delays)
        self.groups, self.heads, self.live, self.values = NULL, NULL, NULL, NULL
        self.group_count = self.group_room = self.live_count = 0
        self.value_count = self.value_room = 0
        self.free_group = -1

    # Histories.

    cdef int32_t child(self, int32_t parent, int32_t kind) except -1:
        """Return the node of what was asked before and a kind; of a root for parent -1."""
        cdef int64_t key = both(parent + 1, <int64_t>kind + 2)
        cdef int64_t at = map_get(&self.children, key)
        cdef Node* grown
        cdef Node* node
        if at >= 0:
            return <int32_t>at
        if self.node_count == self.node_room:
            grown = <Node*>realloc(self.nodes, max(64, self.node_room * 2) * sizeof(Node))
            if grown == NULL:
                raise MemoryError()
            self.nodes, self.node_room = grown, max(64, self.node_room * 2)
        node = &self.nodes[self.node_count]
        node.parent, node.kind = parent, kind
        node.depth = 1 if parent < 0 else self.nodes[parent].depth + 1
        node.fresh = parent < 0 or (kind < 0 and self.nodes[parent].fresh)
        node.may_answer = node.goes_on = UNASKED
        map_put(&self.children, key, self.node_count)
        self.node_count += 1
        return <int32_t>(self.node_count - 1)

    cdef list history(self, int32_t node, int32_t most):
        """Return what a node stands for, at most so many of its last."""
        cdef list found = []
        while node >= 0 and most > 0:
            found.append(self.nodes[node].kind)
            node = self.nodes[node].parent
            most -= 1
        found.reverse()
        return found

    cdef tuple asked(self, int32_t node):
        return tuple(self.history(node, DEEP + 1))  # of a longer one only the end counts

    cdef double weigh(self, int32_t node, int32_t kind) except? -1:
        cdef int64_t key = both(node, kind), at = map_get(&self.weights, key)
        if at < 0:
            at = self.keep(self.known.weigh(self.asked(node), kind))
            map_put(&self.weights, key, at)
        return self.values[at]

    cdef int64_t keep(self, double value) except -1:
        cdef double* grown
        if self.value_count == self.value_room:
            grown = <double*>realloc(self.values, max(64, self.value_room * 2) * sizeof(double))
            if grown == NULL:
                raise MemoryError()
            self.values, self.value_room = grown, max(64, self.value_room * 2)
        self.values[self.value_count] = value
        self.value_count += 1
        return self.value_count - 1

    cdef bint may_answer(self, int32_t node) except -1:
        if self.nodes[node].may_answer == UNASKED:
            self.nodes[node].may_answer = bool(self.known.may(self.asked(node), ANSWER))
        return self.nodes[node].may_answer

    cdef bint node_goes_on(self, int32_t node) except -1:
        if self.nodes[node].goes_on == UNASKED:
            self.nodes[node].goes_on = bool(self.known.goes_on(self.asked(node)))
        return self.nodes[node].goes_on

    cdef bint goes_on(self, const Token* token) except -1:
        """Return whether a token may ask anything more."""
        if token.answered and not self.later:
            return False
        return self.node_goes_on(token.node)

    # Queues.

    cdef int32_t new_group(self, int32_t thread, int32_t node) except -1:
        cdef int32_t at = self.free_group
        cdef Py_ssize_t room
        cdef void* grown
        cdef Group* group
        if at >= 0:
            self.free_group = self.groups[at].after
        else:
            if self.group_count == self.group_room:
                room = max(64, self.group_room * 2)
                grown = realloc(self.groups, room * sizeof(Group))
                if grown == NULL:
                    raise MemoryError()
                self.groups = <Group*>grown
                grown = realloc(self.heads, room * sizeof(Head))
                if grown == NULL:
                    raise MemoryError()
                self.heads = <Head*>grown
                grown = realloc(self.live, room * sizeof(int32_t))
                if grown == NULL:
                    raise MemoryError()
                self.live, self.group_room = <int32_t*>grown, room
            at = <int32_t>self.group_count
            self.group_count += 1
        map_put(&self.found, both(thread, node), at)
        group = &self.groups[at]
        group.node, group.thread, group.first, group.last = node, thread, -1, -1
        group.before, group.after = -1, self.queues[thread]
        if group.after >= 0:
            self.groups[group.after].before = at
        self.queues[thread] = at
        group.live = <int32_t>self.live_count
        self.live[self.live_count] = at
        self.live_count += 1
        return at

    cdef void drop_group(self, int32_t at) noexcept:
        cdef Group* group = &self.groups[at]
        map_drop(&self.found, both(group.thread, group.node))
        if group.before >= 0:
            self.groups[group.before].after = group.after
        else:
            self.queues[group.thread] = group.after
        if group.after >= 0:
            self.groups[group.after].before = group.before
        self.live_count -= 1
        self.live[group.live] = self.live[self.live_count]
        self.groups[self.live[group.live]].live = group.live
        group.after = self.free_group
        self.free_group = at

    cdef int enter(self, int64_t time, int32_t thread, int32_t row) except -1:
        cdef Token* token = &self.tokens[row]
        cdef int64_t at
        cdef Group* group
        self.leave(row)
        token.ready, token.thread = time, thread
        at = map_get(&self.found, both(thread, token.node))
        if at < 0:
            at = self.new_group(thread, token.node)
        group = &self.groups[at]
        token.group, token.before, token.after = <int32_t>at, group.last, -1
        if group.last >= 0:
            self.tokens[group.last].after = row
        else:
            group.first = row
        group.last = row
        return 0

    cdef void leave(self, int32_t row) noexcept:
        cdef Token* token = &self.tokens[row]
        cdef Group* group
        if token.thread < 0:
            return
        group = &self.groups[token.group]
        if token.before >= 0:
            self.tokens[token.before].after = token.after
        else:
            group.first = token.after
        if token.after >= 0:
            self.tokens[token.after].before = token.before
        else:
            group.last = token.before
        if group.first < 0:
            self.drop_group(token.group)
        token.thread = -1

    cdef inline bint sooner(self, int32_t one, int32_t other) noexcept:
        """Return whether a token was ready before another."""
        if self.tokens[one].ready != self.tokens[other].ready:
            return self.tokens[one].ready < self.tokens[other].ready
        return one < other

    cdef void sift(self, Py_ssize_t at, Py_ssize_t many) noexcept:
        """Let a head sink to where it belongs; the first is the one that was ready first."""
        cdef Head moved = self.heads[at]
        cdef Py_ssize_t below = 2 * at + 1
        while below < many:
            if below + 1 < many and self.sooner(self.heads[below + 1].token, self.heads[below].token):
                below += 1
            if not self.sooner(self.heads[below].token, moved.token):
                break
            self.heads[at] = self.heads[below]
            at, below = below, 2 * below + 1
        self.heads[at] = moved

    # What happens.

    cdef int made(self, int32_t thread, int32_t made) except -1:
        """Move the first that has asked nothing yet to the thread that was made for it."""
        cdef int32_t at = self.queues[thread], first = -1
        while at >= 0:
            if self.nodes[self.groups[at].node].fresh and self.node_goes_on(self.groups[at].node):
                if first < 0 or self.sooner(self.groups[at].first, first):
                    first = self.groups[at].first
            at = self.groups[at].after
        if first >= 0 and self.goes_on(&self.tokens[first]):
            self.enter(self.tokens[first].ready, made, first)
        return 0

    cdef int answered(self, int64_t time, int32_t thread, int32_t row) except -1:
        cdef Token* token = &self.tokens[row]
        cdef int32_t queue
        if not token.received:
            return 0
        self.heal(row, thread)
        queue = token.thread
        self.leave(row)
        token.node = self.child(token.node, ANSWER)
        token.answered = True
        if queue >= 0 and self.goes_on(token):
            self.enter(time, queue, row)
        return 0

    cdef int heal(self, int32_t row, int32_t thread) except -1:
        """Exchange what two asked last, if the answer shows that it was the other's.

        Who is answered has all results.  If this one has not, the first that has was taken for it;
        ``in_order`` also if another had them before.
        """
        cdef Token* token = &self.tokens[row]
        cdef Token* other
        cdef bint waits = token.thread >= 0 and self.may_answer(token.node), alike
        cdef int32_t at, node, first = -1, last, its, mine
        cdef int64_t its_ready, mine_ready
        if self.later or (waits and not self.in_order):
            return 0
        at = self.queues[thread]
        while at >= 0:
            node = self.groups[at].node
            if node == token.node or self.nodes[node].parent == token.node:
                if self.may_answer(node):
                    if first < 0 or self.sooner(self.groups[at].first, first):
                        first = self.groups[at].first
            at = self.groups[at].after
        if first < 0 or first == row:
            return 0
        other = &self.tokens[first]
        alike = token.node == other.node
        if other.last < 0 or self.owner[other.last] != first:
            return 0
        if alike:
            if token.last < 0 or self.owner[token.last] != row or token.last == other.last:
                return 0
            if self.asks[token.last, 0] != self.asks[other.last, 0]:
                return 0
        self.contradicted += not waits
        mine_ready, mine = token.ready, token.thread
        its_ready, its = other.ready, other.thread
        last = token.last if alike else -1
        self.leave(row)
        self.leave(first)
        token.last, other.last = other.last, last
        self.owner[token.last] = row
        if alike:
            self.owner[last] = first
        else:
            token.node, other.node = other.node, token.node
        self.sure[token.last] = token.sure = FIRST
        self.enter(its_ready, its, row)
        if mine >= 0:
            self.enter(mine_ready, mine, first)
        return 0

    cdef int ask(self, int64_t time, int32_t thread, int32_t row) except -1:
        cdef int32_t kind = self.asks[row, 0], endpoint = self.asks[row, 1]
        cdef int32_t ruled = self.asks[row, 2], how = self.asks[row, 3], owner
        cdef double sure
        cdef Token* token
        if self.opened[endpoint] > -2:
            owner, sure = self.opened[endpoint], self.opened_sure[endpoint]
            self.opened[endpoint] = -2
        elif not self.later and how & 2 and ruled >= 0 and self.tokens[ruled].received:
            owner, sure = ruled, 1.0  # where answers come first, the rules are not to be sure
        else:
            owner = self.choose(time, thread, kind, &sure)
            if owner >= 0:
                token = &self.tokens[owner]
                self.waited[row] = time - token.ready
                sure = token.sure = fmin(sure, token.sure)
        self.owner[row], self.sure[row] = owner, sure
        if owner >= 0:
            token = &self.tokens[owner]
            self.leave(owner)
            if how & 1:
                self.opened[endpoint], self.opened_sure[endpoint] = owner, sure
            else:
                token.node = self.child(token.node, kind)
                token.last = row
        return 0

    cdef int32_t choose(self, int64_t time, int32_t thread, int32_t kind, double* sure) except -2:
        """Return the token that asks this, and how probably it is that one.

        It is of this thread, else of those that handed over to it.
        """
        cdef int32_t at = self.queues[thread], row, chosen = -1, rivals = 0
        cdef int32_t looked[CANDIDATES]
        cdef Py_ssize_t many = 0, i
        cdef double best = -INFINITY, second = -INFINITY, rank = 0.0, weight, probable
        if at >= 0:
            while at >= 0:
                many = self.add_head(at, kind, many)
                at = self.groups[at].after
        else:
            for i in range(self.live_count):
                many = self.add_head(self.live[i], kind, many)
        for i in range(many // 2 - 1, -1, -1):
            self.sift(i, many)
        while many and rivals < CANDIDATES:
            row, weight = self.heads[0].token, self.heads[0].weight
            if self.by_delays:
                weight = weight - rank + self.weigh_delay(row, kind, time)
            else:
                weight -= rank
                rank += RANK
            looked[rivals] = row
            rivals += 1
            if weight > best:
                best, second, chosen = weight, best, row
            elif weight > second:
                second = weight
            if self.tokens[row].after >= 0:
                self.heads[0].token = self.tokens[row].after
            else:
                many -= 1
                self.heads[0] = self.heads[many]
            self.sift(0, many)
        if rivals < 2:
            sure[0] = ALONE
            return chosen
        probable = fmax(1 / (1 + exp(fmin(second - best, 50.0))), 0.5 / rivals)
        for i in range(rivals):  # if it was not the chosen one, it was one of these
            self.tokens[looked[i]].sure = fmin(self.tokens[looked[i]].sure, probable)
        sure[0] = probable
        return chosen

    cdef Py_ssize_t add_head(self, int32_t at, int32_t kind, Py_ssize_t many) except -1:
        cdef double weight = self.weigh(self.groups[at].node, kind)
        if weight == -INFINITY:
            return many
        self.heads[many].token, self.heads[many].weight = self.groups[at].first, weight
        return many + 1

    cdef double weigh_delay(self, int32_t row, int32_t kind, int64_t time) noexcept:
        """Return the logarithm of the density of a delay."""
        cdef const Token* token = &self.tokens[row]
        cdef int64_t key = both(<int64_t>self.nodes[token.node].kind + 2, kind)
        cdef int64_t at = map_get(&self.delays, key)
        cdef double off, spread
        if at < 0:
            return log(BROAD)
        spread = self.values[at + 1]
        off = (log(<double>max(time - token.ready, 1000)) - self.values[at]) / spread
        return log((1 - BROAD) * (exp(-off * off / 2) / spread) + BROAD / 10)

    # Passes.

    cdef int begin(self, object known) except -1:
        cdef Py_ssize_t i, ends = 0
        self.forget()
        self.known = known
        for i in range(self.node_count):
            self.nodes[i].may_answer = self.nodes[i].goes_on = UNASKED
        memset(self.tokens, 0, self.request_count * sizeof(Token))
        for i in range(self.asks.shape[0]):
            ends = max(ends, self.asks[i, 1] + 1)
        self.queues = np.full(self.thread_count, -1, np.int32)
        self.opened = np.full(ends, -2, np.int32)
        self.opened_sure = np.zeros(ends)
        self.owner = np.full(self.asks.shape[0], -1, np.int32)
        self.sure = np.zeros(self.asks.shape[0])
        self.waited = np.full(self.asks.shape[0], -1, np.int64)
        self.contradicted = 0
        map_make(&self.found, 64)
        map_make(&self.weights, 64)
        map_make(&self.delays, 64)
        return 0

    cdef int receive(self, int32_t row) except -1:
        cdef Token* token = &self.tokens[row]
        token.received, token.sure, token.thread, token.last = True, 1.0, -1, -1
        token.node = self.child(-1, self.root[row])
        return 0

    def run(self, known, delays, bint later, bint in_order):
        """Follow tokens with a guess of what requests ask (`Transitions`).

        Parameters
        ----------
        known : Transitions
        delays : mapping of (int, int) to (float, float), or None
            Mean and spread of logarithms, by last kind and kind; None: places tell.
        later, in_order : bool

        Returns
        -------
        tuple
            Owner and probability of what is asked; the node of each request at its end; how often
            answers contradicted; ns for which each that was chosen had been ready, else -1.
        """
        cdef Py_ssize_t i
        cdef int32_t thread, row, owner
        cdef int64_t time
        self.begin(known)
        self.by_delays, self.later, self.in_order = delays is not None, later, in_order
        for (before, kind), (middle, spread) in (delays or {}).items():
            map_put(&self.delays, both(<int64_t>before + 2, kind), self.keep(middle))
            self.keep(spread)
        for i in range(self.time.shape[0]):
            time, thread, row = self.time[i], self.thread[i], self.row[i]
            if self.what[i] == RECEIVE:
                self.receive(row)
                self.enter(time, thread, row)
            elif self.what[i] == ASK:
                self.ask(time, thread, row)
            elif self.what[i] == RESULT:
                owner = self.owner[row]
                if owner >= 0:
                    if not self.tokens[owner].answered or self.goes_on(&self.tokens[owner]):
                        self.enter(time, thread, owner)
            elif self.what[i] == ANSWERED:
                self.answered(time, thread, row)
            else:
                self.made(thread, row)
        self.known = None
        return (np.asarray(self.owner), np.asarray(self.sure), self.take_nodes(),
                self.contradicted, np.asarray(self.waited))

    def run_by_rules(self):
        """Return whose what is asked is by the rules, and the node of each request at its end."""
        cdef Py_ssize_t i
        cdef int32_t row, owner
        self.begin(None)
        for i in range(self.time.shape[0]):
            row = self.row[i]
            if self.what[i] == RECEIVE:
                self.receive(row)
            elif self.what[i] == ANSWERED and self.tokens[row].received:
                self.tokens[row].node = self.child(self.tokens[row].node, ANSWER)
            elif self.what[i] == ASK:
                self.owner[row] = owner = self.asks[row, 2]
                if owner >= 0 and self.tokens[owner].received and not self.asks[row, 3] & 1:
                    self.tokens[owner].node = self.child(self.tokens[owner].node, self.asks[row, 0])
        return np.asarray(self.owner), self.take_nodes()

    def run_alone(self):
        """Return the nodes of requests that were alone in the process, as it seems."""
        cdef Py_ssize_t i
        cdef int32_t current = -1
        cdef int64_t busy = 0
        cdef bint alone = True, answered = True
        cdef list found = []
        for i in range(self.time.shape[0]):
            row = self.row[i]
            if self.what[i] == RECEIVE:
                if current >= 0 and alone and answered and busy == 0:
                    found.append(current)
                alone = busy == 0 and answered
                current, answered = self.child(-1, self.root[row]), False
            elif self.what[i] == ANSWERED and current >= 0:
                answered = True
                current = self.child(current, ANSWER)
            elif self.what[i] == ASK and not self.asks[row, 3] & 1:
                busy += 1
                current = self.child(current, self.asks[row, 0])
            elif self.what[i] == RESULT:
                busy = max(0, busy - 1)
        return np.array(found, np.int32)

    def find_delays(self, const int32_t[::1] owner, const uint8_t[::1] usual):
        """Return last kind, kind and ns before what requests asked that are usual."""
        cdef Py_ssize_t i
        cdef int32_t row, of
        cdef int64_t[::1] at = np.zeros(self.request_count, np.int64)
        cdef int32_t[::1] kind = np.full(self.request_count, NONE, np.int32)  # not ready: none
        cdef list found = []
        for i in range(self.time.shape[0]):
            row = self.row[i]
            if self.what[i] == RECEIVE:
                at[row], kind[row] = self.time[i], self.root[row]
            elif self.what[i] == ANSWERED and kind[row] > NONE:
                at[row], kind[row] = self.time[i], ANSWER
            elif self.what[i] == RESULT and owner[row] >= 0:
                at[owner[row]], kind[owner[row]] = self.time[i], self.asks[row, 0]
            elif self.what[i] == ASK:
                of = owner[row]
                if of >= 0 and kind[of] > NONE and usual[of]:
                    found.append((kind[of], self.asks[row, 0], self.time[i] - at[of]))
                    kind[of] = NONE
        return np.array(found, np.int64).reshape(-1, 3)

    def spell(self, int32_t node):
        """Return the history that a node stands for, and its end."""
        return (*self.history(node, self.nodes[node].depth), END)

    cdef object take_nodes(self):
        cdef Py_ssize_t i
        nodes = np.full(self.request_count, -1, np.int32)
        cdef int32_t[::1] of = nodes
        for i in range(self.request_count):
            if self.tokens[i].received:
                of[i] = self.tokens[i].node
        return nodes
