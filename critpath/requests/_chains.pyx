# cython: language_level=3
"""Draws whose calls are on a loop: one state of all chains after the other, as probable as they are.

A request is a chain: received, then one call after the other, then answered. A state says which
calls each chain has. Its logarithm is a sum: of every request how usual what it asked is, of every
step how many rounds of the loop it took, and less for what overtook others that were ready before.
How usual: as of an urn, the more others ask the same the more, else as its steps are usual.

Two chains exchange calls (Metropolis), so only their terms are calculated anew.  Most exchanges are
refused, and most of these by a few of the terms: what the draw leaves room for is known before, and
as each term only takes from it, the rest is not looked at once there is none.
"""

from libc.math cimport exp, log
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

import numpy as np

cdef enum:
    LONGEST = 64          # calls of a chain
    ROUNDS = 16           # that are told apart, the last for more
    DEEP = 8              # symbols of a history that decide what follows
    SLOTS = 1 << 18       # of tables of histories
    FEWER = 1 << 14       # of those of whole histories: they stay in a processor's cache
    NEAR = 12             # steps before and after one that it may have overtaken; 15 at most
    MOST_OVERTAKEN = 3    # of them that count
    WAITS = 3             # just before who waited, just as who waited, or at once
    AT_ONCE = 2

cdef double BEFORE = -14.0     # a call that begins before it can
cdef double NOBODYS = -9.0     # a call of no chain
cdef double NOTHING = -1e300   # less than any sum
cdef double ROUNDED = 1e-6     # of sums in another order

ctypedef struct Call:
    int64_t begin
    int64_t end
    int32_t wait          # how it came by its connection, of WAITS
    int32_t begin_round
    int32_t end_round
    int32_t first         # kind of the first and the last turn of this use of a connection
    int32_t last
    int32_t pool          # of connections that it takes one of

ctypedef struct Request:
    int64_t received
    int64_t answered
    int32_t received_round
    int32_t answered_round
    int32_t root

ctypedef struct Step:
    # A call's begin, or an answer: what is done at last, and since when it could be.
    int64_t since
    int32_t since_round
    int32_t due           # the round in which it would be done, or join those who wait
    int32_t before        # sorts of rounds
    int32_t after
    int32_t group         # of steps of one sort, which do not overtake; -1 none

ctypedef struct Chain:
    int32_t count
    int32_t call[LONGEST]

ctypedef struct Known:
    # A whole history: how usual its steps make it (a logarithm, and as so many requests), or how
    # many requests have it.
    uint64_t key
    double value
    double times

ctypedef struct Walked:
    # A chain as it would be: its steps, and what it asks in symbols.
    int32_t count
    Step step[LONGEST + 1]
    int32_t symbol[LONGEST + 1]
    uint64_t key          # of these
    double sum            # how usual its rounds are
    double steps          # how usual its history is by its steps, and as so many requests
    double times

ctypedef struct Held:
    # The same of a request's chain as it is, and how usual it is where so many others have it.
    uint64_t key
    Known* way
    double sum
    double steps
    double times
    double many
    double joined
    double stands         # what its steps cost how they stand, as far as is known; -1: not known


cdef extern from *:
    int count_zeros "__builtin_ctz"(unsigned int) nogil


cdef inline uint64_t mix(uint64_t x) noexcept nogil:
    x ^= x >> 33
    x *= (<uint64_t>0xFF51AFD7 << 32) | <uint64_t>0xED558CCD
    x ^= x >> 33
    x *= (<uint64_t>0xC4CEB9FE << 32) | <uint64_t>0x1A85EC53
    x ^= x >> 33
    return x | 1


cdef uint64_t context_of(const int32_t* symbol, int at, int deep) noexcept nogil:
    """Return a key for the last symbols of a history and what kind of request it is; -1: for all."""
    cdef uint64_t key = 40503 + deep
    cdef int i
    if deep >= 0:
        key = mix(key * 31 + <uint64_t>(symbol[0] + 1000))
        for i in range(at - deep, at):
            key = mix(key * 31 + <uint64_t>(symbol[i] + 1000))
    return key


cdef inline uint64_t followed_by(uint64_t key, int symbol) noexcept nogil:
    return mix(key ^ (<uint64_t>(symbol + 1000) * 2654435761U))


cdef inline Known* find_known(Known* table, size_t size, uint64_t key) noexcept nogil:
    """Return a history's place in a table, or where it has room."""
    cdef size_t at = key & (size - 1)
    while table[at].key and table[at].key != key:
        at = (at + 1) & (size - 1)
    return &table[at]


cdef class Chains:
    """Calls and requests of one loop, and who of these asked which."""

    cdef Call* calls
    cdef Request* requests
    cdef Chain* chains
    cdef Held* held
    cdef Step* steps          # in order of time
    cdef int32_t* groups      # of each step, close together; as many as are NEAR before and after
    cdef double* stands       # of each step what it costs how it stands among others; -1: not known
    cdef int32_t* rounds_of
    cdef int64_t* changed     # which proposal changed a step last
    cdef int32_t* at_call     # the step of each call and of each answer
    cdef int32_t* at_answer
    cdef int32_t* call_at     # and of each step the call, or behind all calls the request
    cdef uint64_t* keys
    cdef double* sums
    cdef Known* known         # of whole histories how usual their steps are
    cdef Known* ways          # and how many requests have each
    cdef double largest       # how many requests have one of these at most
    cdef double most_joined   # and what `join` is then at most
    cdef Py_ssize_t filled, kept, found
    cdef size_t room          # of `ways`
    cdef double alone
    cdef Py_ssize_t many_calls, many_requests, many_steps
    cdef int32_t kinds, roots
    cdef int32_t[::1] owner, first, candidates
    cdef double[:, :, ::1] lags
    cdef double[::1] overtaking
    cdef int32_t[:, ::1] usual
    cdef double leaves
    cdef double turns[4]
    cdef uint64_t state
    cdef int64_t proposal

    def __cinit__(self, const int64_t[:, ::1] calls, const int64_t[:, ::1] requests,
                  const int64_t[::1] order, int32_t[::1] first, int32_t[::1] candidates,
                  int32_t[::1] owner, int kinds, int roots, double alone, int seed):
        """Take tables of `Call` and `Request`, and numbers of both (calls first) in order of time.

        Of each call ``candidates`` from ``first`` on are the requests that may have asked it;
        ``alone``: how many requests count as such that ask what no other does.
        """
        cdef Py_ssize_t i, n = calls.shape[0], m = requests.shape[0]
        cdef Call* c
        cdef Request* r
        self.many_calls, self.many_requests, self.many_steps = n, m, n + m
        self.kinds, self.roots, self.owner = kinds, roots, owner
        self.first, self.candidates = first, candidates
        self.state = mix(<uint64_t>seed + 1)
        self.leaves = 1
        self.calls = <Call*>calloc(n + 1, sizeof(Call))
        self.requests = <Request*>calloc(m + 1, sizeof(Request))
        self.chains = <Chain*>calloc(m + 1, sizeof(Chain))
        self.steps = <Step*>calloc(n + m + 1, sizeof(Step))
        self.held = <Held*>calloc(m + 1, sizeof(Held))
        self.groups = <int32_t*>calloc(n + m + 2 * NEAR, sizeof(int32_t))
        self.stands = <double*>calloc(n + m + 1, sizeof(double))
        self.rounds_of = <int32_t*>calloc(n + m + 1, sizeof(int32_t))
        self.changed = <int64_t*>calloc(n + m + 1, sizeof(int64_t))
        self.at_call = <int32_t*>calloc(n + 1, sizeof(int32_t))
        self.at_answer = <int32_t*>calloc(m + 1, sizeof(int32_t))
        self.call_at = <int32_t*>calloc(n + m + 1, sizeof(int32_t))
        self.keys = <uint64_t*>calloc(SLOTS, sizeof(uint64_t))
        self.sums = <double*>calloc(SLOTS, sizeof(double))
        self.known = <Known*>calloc(FEWER, sizeof(Known))
        self.room = FEWER
        while self.room < <size_t>(4 * m):
            self.room *= 2
        self.ways = <Known*>calloc(self.room, sizeof(Known))
        self.alone = alone
        if (self.calls == NULL or self.requests == NULL or self.chains == NULL
                or self.steps == NULL or self.groups == NULL or self.rounds_of == NULL
                or self.changed == NULL or self.at_call == NULL or self.at_answer == NULL
                or self.call_at == NULL
                or self.keys == NULL or self.sums == NULL or self.known == NULL
                or self.ways == NULL or self.held == NULL or self.stands == NULL):
            raise MemoryError()
        for i in range(n + m + 2 * NEAR):
            self.groups[i] = -1
        for i in range(n):
            c = &self.calls[i]
            c.begin, c.end, c.wait = calls[i, 0], calls[i, 1], <int32_t>calls[i, 2]
            c.begin_round, c.end_round = <int32_t>calls[i, 3], <int32_t>calls[i, 4]
            c.first, c.last = <int32_t>calls[i, 5], <int32_t>calls[i, 6]
            c.pool = <int32_t>calls[i, 7]
        for i in range(m):
            r = &self.requests[i]
            r.received, r.answered = requests[i, 0], requests[i, 1]
            r.received_round, r.answered_round = <int32_t>requests[i, 2], <int32_t>requests[i, 3]
            r.root = <int32_t>requests[i, 4]
        for i in range(n + m):
            self.call_at[i] = <int32_t>order[i]
            if order[i] < n:
                self.at_call[order[i]] = <int32_t>i
                self.rounds_of[i] = self.calls[order[i]].begin_round
            else:
                self.at_answer[order[i] - n] = <int32_t>i
                self.rounds_of[i] = self.requests[order[i] - n].answered_round

    def __dealloc__(self):
        free(self.calls)
        free(self.requests)
        free(self.chains)
        free(self.steps)
        free(self.groups)
        free(self.rounds_of)
        free(self.changed)
        free(self.at_call)
        free(self.at_answer)
        free(self.call_at)
        free(self.keys)
        free(self.sums)
        free(self.known)
        free(self.ways)
        free(self.held)
        free(self.stands)

    # -------------------------------------------------------------- what is usual

    cdef double* slot(self, uint64_t key, bint make) noexcept nogil:
        """Return the sum of a key, NULL if there is none, or no room for it."""
        cdef size_t at = key & (SLOTS - 1)
        while self.keys[at] and self.keys[at] != key:
            at = (at + 1) & (SLOTS - 1)
        if not self.keys[at]:
            if not make or 2 * self.filled > SLOTS:
                return NULL
            self.keys[at], self.sums[at] = key, 0
            self.filled += 1
        return &self.sums[at]

    cdef void count(self, const int32_t* symbol, int at, int after, double times) noexcept nogil:
        """Count what followed a history, after as much of its end as decides, and less."""
        cdef int deep
        cdef uint64_t key
        cdef double* sum
        for deep in range(-1, min(at - 1, DEEP) + 1):
            key = context_of(symbol, at, deep)
            sum = self.slot(key, True)
            if sum != NULL:
                sum[0] += times
            sum = self.slot(followed_by(key, after), True)
            if sum != NULL:
                sum[0] += times

    cdef double probability(self, const int32_t* symbol, int at, int after) noexcept nogil:
        """Return how probable what follows is: each context leaves some times to the shorter."""
        cdef double found = 1.0 / (2 * self.kinds + 1)
        cdef int deep
        cdef uint64_t key
        cdef double* all
        cdef double* its
        for deep in range(-1, min(at - 1, DEEP) + 1):
            key = context_of(symbol, at, deep)
            all = self.slot(key, False)
            if all == NULL:
                break
            its = self.slot(followed_by(key, after), False)
            found = ((its[0] if its != NULL else 0.0) + self.leaves * found) / (
                all[0] + self.leaves)
        return found

    cdef void weigh(self, Walked* w) noexcept nogil:
        """Say how probable a whole history is by its steps, and as how many requests it counts."""
        cdef Known* its = find_known(self.known, FEWER, w.key)
        cdef int i
        if not its.key:
            if 2 * self.kept > FEWER:
                self.forget(False)
                its = find_known(self.known, FEWER, w.key)
            self.kept += 1
            its.key, its.value = w.key, 0
            for i in range(1, w.count + 1):
                its.value += log(self.probability(
                    w.symbol, i, w.symbol[i] if i < w.count else 2 * self.kinds))
            its.times = self.alone * exp(its.value)
        w.steps, w.times = its.value, its.times

    cdef inline double count_way(self, uint64_t key) noexcept nogil:
        """Return how many requests have a history."""
        return find_known(self.ways, self.room, key).value

    cdef inline double join(self, double steps, double times, double many) noexcept nogil:
        """Return how probable a history is among those of the others: an urn.

        As many requests as have it already, and as if some others had one as its steps are usual.
        """
        return log(many + times) if many > 0 else log(self.alone) + steps

    cdef inline double join_held(self, Held* held, double own) noexcept nogil:
        """Return the same of a request's history as it is, which is counted so often itself."""
        cdef double many = held.way.value - own
        if many != held.many:
            held.many, held.joined = many, self.join(held.steps, held.times, many)
        return held.joined

    cdef void leave(self, Py_ssize_t request) noexcept nogil:
        """Take a request's history from those that are counted."""
        if request >= 0:
            self.held[request].way.value -= 1

    cdef void enter(self, Py_ssize_t request, const Walked* w) noexcept nogil:
        """Count a request's history."""
        cdef Known* its = find_known(self.ways, self.room, w.key)
        cdef Held* held = &self.held[request]
        if not its.key:  # there is room: `sweep` counts anew before half is taken
            its.key, its.value = w.key, 0
            self.found += 1
        its.value += 1
        if its.value > self.largest:
            self.largest = its.value
            self.most_joined = log(its.value + 1 + self.alone)
        held.key, held.sum, held.steps, held.times = w.key, w.sum, w.steps, w.times
        held.way, held.many, held.stands = its, -1, -1

    cdef double count_ways(self) noexcept nogil:
        """Count the histories of all anew; return the logarithm of how probable they all are."""
        cdef Py_ssize_t i
        cdef double found = 0
        cdef Walked w
        memset(self.ways, 0, self.room * sizeof(Known))
        self.found = 0
        self.largest = -1
        for i in range(self.many_requests):
            self.walk(i, &self.chains[i], &w, NOTHING)
            self.spell(&w)
            self.weigh(&w)
            self.put(i, &self.chains[i], &w)
            found += w.sum + self.join(w.steps, w.times, self.count_way(w.key))
            self.enter(i, &w)
        for i in range(self.many_steps):
            self.stands[i] = -1
        return found

    cdef void forget(self, bint all) noexcept nogil:
        if all:
            memset(self.keys, 0, SLOTS * sizeof(uint64_t))
            self.filled = 0
        memset(self.known, 0, FEWER * sizeof(Known))
        self.kept = 0

    def guess(self, int root, asked, int after, double times):
        """Count what a request asks after some others, or that it ends."""
        cdef int32_t symbol[LONGEST]
        cdef int at = 1
        symbol[0] = -1 - root
        for one in asked[:LONGEST - 1]:
            symbol[at] = one
            at += 1
        self.count(symbol, at, after, times)

    def learn(self, double leaves):
        """Learn what is asked from the chains as they are; contexts leave as much to shorter."""
        cdef Py_ssize_t r
        cdef int i
        cdef Walked w
        self.leaves = leaves
        with nogil:
            self.forget(True)
            for r in range(self.many_requests):
                self.walk(r, &self.chains[r], &w, NOTHING)
                for i in range(1, w.count + 1):
                    self.count(w.symbol, i, w.symbol[i] if i < w.count else 2 * self.kinds, 1.0)

    def learn_from(self, Chains other):
        """Take what others have learned, of a part of the same loop."""
        memcpy(self.keys, other.keys, SLOTS * sizeof(uint64_t))
        memcpy(self.sums, other.sums, SLOTS * sizeof(double))
        self.leaves = other.leaves
        self.filled = other.filled

    def set_costs(self, double[:, :, ::1] lags, int32_t[:, ::1] usual, double[::1] overtaking,
                  double[::1] turns):
        """Set how probable rounds are, by both sorts, which are usual, and what overtaking costs.

        By group of steps; and of two in one round, as `count_rounds` counts them.
        """
        cdef int i
        self.lags, self.usual, self.overtaking = lags, usual, overtaking
        for i in range(4):
            self.turns[i] = turns[i]

    # -------------------------------------------------------------- chains

    cdef bint walk(self, Py_ssize_t number, const Chain* chain, Walked* w,
                   double least) noexcept nogil:
        """Say of a chain when each step could be taken, and sum up how usual its rounds are.

        Return whether that is as much as the least; else the rest is left.
        """
        cdef Request* r = &self.requests[number]
        cdef Call* c
        cdef int64_t since = r.received, ready = r.received
        cdef int32_t since_round = r.received_round, ready_round = r.received_round
        cdef int32_t before = self.kinds + r.root, last = before, i
        cdef Step* s
        w.count, w.sum, w.symbol[0] = chain.count + 1, 0, -1 - r.root
        for i in range(chain.count):
            c = &self.calls[chain.call[i]]
            s = &w.step[i]
            w.symbol[i + 1] = c.first
            if c.begin < ready and i:
                # At once with the one before, which is not answered yet.
                w.symbol[i + 1] += self.kinds
            else:
                since, since_round, before = ready, ready_round, last
            self.take_step(s, c, before, since, since_round)
            if c.begin < since:
                w.sum += BEFORE
                s.group = -1
            else:
                w.sum += self.lags[s.before, s.after,
                                   min(c.begin_round - since_round, ROUNDS - 1)]
            if w.sum < least:
                return False
            if c.end >= ready:
                ready, ready_round, last = c.end, c.end_round, c.last
        s = &w.step[chain.count]
        s.since, s.since_round, s.due = ready, ready_round, ready_round
        s.before, s.after = AT_ONCE * (self.kinds + self.roots) + last, self.kinds
        s.group = s.before * (self.kinds + 1) + s.after
        if r.answered < ready:
            w.sum += BEFORE
        else:
            w.sum += self.lags[s.before, s.after,
                               min(r.answered_round - ready_round, ROUNDS - 1)]
        return w.sum >= least

    cdef inline void spell(self, Walked* w) noexcept nogil:
        """Make the key of what a chain asks."""
        cdef int32_t i
        w.key = 1
        for i in range(w.count):
            w.key = mix(w.key * 33 + <uint64_t>(w.symbol[i] + 1000))

    cdef inline Py_ssize_t place_of(self, Py_ssize_t request, const Chain* chain,
                                    int32_t number) noexcept nogil:
        """Return where a step of a chain is: the answer is the last."""
        if number < chain.count:
            return self.at_call[chain.call[number]]
        return self.at_answer[request]

    cdef inline void take_step(self, Step* s, const Call* c, int32_t before, int64_t since,
                               int32_t since_round) noexcept nogil:
        """Say of a call's begin what it follows; who waits for a connection does so in turn."""
        cdef int32_t sorts = self.kinds + self.roots
        s.since, s.since_round = since, since_round
        s.before = c.wait * sorts + before
        s.due = since_round + self.usual[before, c.first]
        if c.wait == AT_ONCE:
            s.after = c.first
            s.group = s.before * (self.kinds + 1) + s.after
        else:
            s.after = c.pool
            s.group = WAITS * sorts * (self.kinds + 1) + c.wait * (self.kinds + 1) + c.pool

    cdef void put(self, Py_ssize_t request, const Chain* chain, const Walked* w) noexcept nogil:
        cdef int32_t i
        for i in range(w.count):
            self.set_step(self.place_of(request, chain, i), &w.step[i])

    cdef inline void set_step(self, Py_ssize_t at, const Step* step) noexcept nogil:
        self.steps[at] = step[0]
        self.groups[NEAR + at] = step.group

    cdef void exchange(self, Py_ssize_t request, const Chain* chain, Step* step) noexcept nogil:
        """Let the steps of a chain be so; what was there is kept instead."""
        cdef int32_t i
        cdef Py_ssize_t at
        cdef Step before
        for i in range(chain.count + 1):
            at = self.place_of(request, chain, i)
            before = self.steps[at]
            self.set_step(at, &step[i])
            step[i] = before

    cdef void forget_stands(self, Py_ssize_t request, const Chain* chain,
                            const Step* before) noexcept nogil:
        """Forget how steps stand that are near to those that changed."""
        cdef int32_t i
        cdef Py_ssize_t at, other, of
        cdef const Step* now
        for i in range(chain.count + 1):
            at = self.place_of(request, chain, i)
            now = &self.steps[at]
            if (now.since != before[i].since or now.due != before[i].due
                    or now.group != before[i].group or now.before != before[i].before
                    or now.since_round != before[i].since_round):
                for other in range(max(at - NEAR, 0), min(at + NEAR + 1, self.many_steps)):
                    self.stands[other] = -1
                    of = self.call_at[other] - self.many_calls
                    if of < 0:
                        of = self.owner[of + self.many_calls]
                    if of >= 0:
                        self.held[of].stands = -1

    cdef inline int pair(self, Py_ssize_t before, Py_ssize_t after) noexcept nogil:
        """Return which sort of pair two steps of one round are, -1 for none."""
        cdef Step* a = &self.steps[before]
        cdef Step* b = &self.steps[after]
        cdef int32_t waits = AT_ONCE * (self.kinds + self.roots)
        if self.rounds_of[before] != self.rounds_of[after] or a.group < 0 or b.group < 0:
            return -1
        return 2 * (a.since_round != b.since_round) + (a.before < waits or b.before < waits)

    cdef inline double in_turn(self, Py_ssize_t before, Py_ssize_t after) noexcept nogil:
        """Return what it costs that of two steps in one round the later was ready sooner."""
        cdef int of = self.pair(before, after)
        if of < 0 or self.steps[before].since <= self.steps[after].since:
            return 0
        return self.turns[of]

    cdef inline bint sooner(self, Py_ssize_t one, Py_ssize_t other) noexcept nogil:
        """Tell whether a step was due before another."""
        cdef Step* a = &self.steps[one]
        cdef Step* b = &self.steps[other]
        return a.due < b.due or (a.due == b.due and a.since < b.since)

    cdef double overtakes(self, Py_ssize_t request, const Chain* chain,
                          double most) noexcept nogil:
        """Return what it costs how the steps of a chain stand among others; `changed` count once.

        More than the most: it may be more than that.
        """
        cdef double found = 0
        cdef Py_ssize_t at
        cdef int32_t i
        for i in range(chain.count + 1):
            at = self.place_of(request, chain, i)
            if self.groups[NEAR + at] >= 0:
                self.changed[at] = self.proposal
                found += self.stand(at)
                if found > most + ROUNDED:
                    break
        return found

    cdef inline double stand(self, Py_ssize_t at) noexcept nogil:
        """Return what it costs how a step stands among those that are not `changed` with it."""
        cdef double found = 0
        cdef Py_ssize_t other, low = at - NEAR
        cdef int32_t group = self.groups[NEAR + at], times = 0, i
        cdef const int32_t* near = &self.groups[at]
        cdef uint32_t alike = 0
        if at and self.changed[at - 1] != self.proposal:
            found += self.in_turn(at - 1, at)
        if at + 1 < self.many_steps and self.changed[at + 1] != self.proposal:
            found += self.in_turn(at, at + 1)
        if self.overtaking[group] <= 0:
            return found
        for i in range(2 * NEAR + 1):  # no branch: which are of one group is not foreseen
            alike |= <uint32_t>(near[i] == group) << i
        while alike and times < MOST_OVERTAKEN:
            other = low + count_zeros(alike)
            alike &= alike - 1
            if self.changed[other] != self.proposal:
                times += self.sooner(at, other) if other < at else self.sooner(other, at)
        return found + self.overtaking[group] * times

    cdef double stands_of(self, Py_ssize_t request, const Chain* chain) noexcept nogil:
        """Return as much as `overtakes` at least, from what is known of each step."""
        cdef Held* held = &self.held[request]
        cdef double found = 0
        cdef Py_ssize_t at
        cdef int32_t i
        if held.stands >= 0:
            return held.stands
        for i in range(chain.count + 1):
            at = self.place_of(request, chain, i)
            if self.stands[at] < 0:
                self.stands[at] = 0
                if self.groups[NEAR + at] >= 0:
                    self.proposal += 1
                    self.changed[at] = self.proposal
                    self.stands[at] = self.stand(at)
            found += self.stands[at]
        held.stands = found
        return found

    cdef double overtake_both(self, Py_ssize_t a, const Chain* one, Py_ssize_t b,
                              const Chain* two, double most) noexcept nogil:
        """Return what it costs how the steps of one or two chains stand; or more than the most."""
        cdef double found = 0
        self.proposal += 1
        if a >= 0:
            found = self.overtakes(a, one, most)
        return found if found > most else found + self.overtakes(b, two, most - found)

    def place(self):
        """Make the chains from who is said to own each call."""
        cdef Py_ssize_t i
        cdef int32_t of
        with nogil:
            for i in range(self.many_requests):
                self.chains[i].count = 0
            for i in range(self.many_steps):
                self.steps[i].group = self.groups[NEAR + i] = -1
            for i in range(self.many_calls):
                of = self.owner[i]
                if of >= 0 and self.chains[of].count < LONGEST:
                    self.chains[of].call[self.chains[of].count] = <int32_t>i
                    self.chains[of].count += 1
                else:
                    self.owner[i] = -1
            self.forget(False)
            self.count_ways()

    def count_rounds(self, double[:, :, ::1] lags, double[:, ::1] overtaken, double[::1] turns):
        """Count rounds by both sorts; steps and overtaken ones by group; pairs in one round.

        Sorts: kinds, then roots, of each of WAITS; kinds, then the answer. ``turns``: pairs, and
        those of them in the other order, of each sort of `pair`.
        """
        cdef Py_ssize_t r, at
        cdef int32_t i
        cdef Walked w
        cdef int64_t[::1] last = np.full(overtaken.shape[0], -1, np.int64)
        cdef Step* b
        with nogil:
            for r in range(self.many_requests):
                self.walk(r, &self.chains[r], &w, NOTHING)
                for i in range(w.count):
                    at = self.rounds_of[self.place_of(r, &self.chains[r], i)]
                    at -= w.step[i].since_round
                    if w.step[i].group >= 0 and at >= 0:
                        lags[w.step[i].before, w.step[i].after, min(at, ROUNDS - 1)] += 1
            for at in range(self.many_steps):
                b = &self.steps[at]
                if b.group < 0:
                    continue
                overtaken[b.group, 0] += 1
                if last[b.group] >= 0 and self.sooner(at, last[b.group]):
                    overtaken[b.group, 1] += 1
                else:
                    last[b.group] = at
                i = self.pair(at - 1, at) if at else -1
                if i >= 0:
                    turns[2 * i] += 1
                    turns[2 * i + 1] += self.steps[at - 1].since > b.since

    # -------------------------------------------------------------- drawing

    cdef inline uint64_t draw(self) noexcept nogil:
        self.state ^= self.state << 13
        self.state ^= self.state >> 7
        self.state ^= self.state << 17
        return self.state

    cdef inline double share(self) noexcept nogil:
        return (self.draw() >> 11) * (1.0 / 9007199254740992.0)

    cdef bint splice(self, const Chain* old, int low, int high, const int32_t* more, int many,
                     Chain* made) noexcept nogil:
        """Make a chain without its calls from low to high, with others, in order of time."""
        cdef int i = 0, j = 0
        made.count = 0
        if old.count - (high - low) + many > LONGEST:
            return False
        while i < old.count or j < many:
            if i == low and i < high:
                i = high
                continue
            if j >= many or (i < old.count and old.call[i] < more[j]):
                made.call[made.count] = old.call[i]
                i += 1
            else:
                made.call[made.count] = more[j]
                j += 1
            made.count += 1
        return True

    cdef bint propose(self, int32_t call, Py_ssize_t a, Py_ssize_t b, Chain* one,
                      Chain* two) noexcept nogil:
        """Make both chains as they are after an exchange that begins with a call of the first.

        False if there is no such exchange, or a chain may not have what it would get.
        """
        cdef Chain* first = &self.chains[a]
        cdef Chain* second = &self.chains[b]
        cdef int i = 0, j = 0, low_one, high_one, low_two, high_two
        while first.call[i] != call:
            i += 1
        while j < second.count and second.call[j] < call:
            j += 1
        cdef int what = <int>(self.draw() % 6)
        low_one, high_one, low_two, high_two = i, i + 1, j, j
        if what == 1:
            high_two = j + 1
        elif what == 2:
            low_two = j - 1
        elif what == 3:
            high_one, high_two = first.count, second.count
        elif what == 4:
            low_one, low_two = 0, 0
        elif what == 5:
            high_one = min(i + 1 + <int>(self.draw() % 3), first.count)
            high_two = min(j + <int>(self.draw() % 4), second.count)
        if low_two < 0 or high_two > second.count:
            return False
        for i in range(low_one, high_one):
            if first.call[i] != call and not self.may(first.call[i], b):
                return False
        for j in range(low_two, high_two):
            if not self.may(second.call[j], a):
                return False
        return self.splice(first, low_one, high_one, &second.call[low_two], high_two - low_two,
                           one) and self.splice(
            second, low_two, high_two, &first.call[low_one], high_one - low_one, two)

    def sweep(self, double heat, int times, int32_t[::1] tally=None):
        """Propose so many exchanges for each call, at a temperature; return how many were taken.

        Then ``tally`` counts for each candidate whether the call is its.
        """
        cdef Py_ssize_t i, k, a, b, taken = 0, many
        cdef int32_t call
        cdef Chain one, two
        cdef bint keep = tally is not None
        with nogil:
            for i in range(self.many_calls * times):
                call = <int32_t>(self.draw() % <uint64_t>self.many_calls)
                many = self.first[call + 1] - self.first[call]
                if many < 1:
                    continue
                if <size_t>(2 * self.found) > self.room:
                    self.count_ways()
                b = self.candidates[self.first[call] + <Py_ssize_t>(self.draw() % <uint64_t>many)]
                a = self.owner[call]
                if a == b:
                    continue
                if a < 0:
                    if not self.splice(&self.chains[b], -1, -1, &call, 1, &two):
                        continue
                elif not self.propose(call, a, b, &one, &two):
                    continue
                taken += self.accept(a, &one, b, &two, heat * log(self.share() + 1e-300))
            if keep:
                for i in range(self.many_calls):
                    for k in range(self.first[i], self.first[i + 1]):
                        tally[k] += self.candidates[k] == self.owner[i]
        return taken

    cdef bint accept(self, Py_ssize_t a, const Chain* one, Py_ssize_t b, const Chain* two,
                     double drawn) noexcept nogil:
        """Make one or two chains so if that is not too much less probable; tell whether it is."""
        cdef Held* first = &self.held[a]
        cdef Held* second = &self.held[b]
        cdef Walked new_first, new_second
        cdef bint alike = a >= 0 and first.key == second.key
        cdef double before, after, more, least, many
        before = second.sum + self.join_held(second, 1)
        least = drawn - self.stands_of(b, &self.chains[b]) - self.most_joined - ROUNDED
        if a >= 0:
            before += first.sum + self.join_held(first, 1 + alike)
            least -= self.stands_of(a, &self.chains[a]) + self.most_joined
        else:
            before += NOBODYS
        least += before
        if not self.walk(b, two, &new_second, least):
            return False
        if a >= 0 and not self.walk(a, one, &new_first, least - new_second.sum):
            return False
        self.spell(&new_second)
        many = self.count_way(new_second.key) - (new_second.key == second.key)
        if a >= 0:
            self.spell(&new_first)
            many -= new_second.key == first.key
            many += new_second.key == new_first.key
        self.weigh(&new_second)
        after = new_second.sum + self.join(new_second.steps, new_second.times, many)
        least += self.most_joined
        if a >= 0:
            if after + new_first.sum < least:
                return False
            self.weigh(&new_first)
            many = self.count_way(new_first.key) - (new_first.key == second.key)
            many -= new_first.key == first.key
            after += new_first.sum + self.join(new_first.steps, new_first.times, many)
            least += self.most_joined
        if after < least:
            return False
        more = after - before - drawn
        more += self.overtake_both(a, &self.chains[a], b, &self.chains[b], -NOTHING)
        if more < 0:
            return False
        self.exchange(b, two, new_second.step)
        if a >= 0:
            self.exchange(a, one, new_first.step)
        if self.overtake_both(a, one, b, two, more) > more:
            self.exchange(b, two, new_second.step)
            if a >= 0:
                self.exchange(a, one, new_first.step)
            return False
        self.leave(a)
        self.leave(b)
        self.forget_stands(b, two, new_second.step)
        self.enter(b, &new_second)
        self.take(b, two)
        if a >= 0:
            self.forget_stands(a, one, new_first.step)
            self.enter(a, &new_first)
            self.take(a, one)
        return True

    cdef void take(self, Py_ssize_t request, const Chain* chain) noexcept nogil:
        """Make a chain a request's."""
        cdef int32_t i
        self.chains[request].count = chain.count
        for i in range(chain.count):
            self.chains[request].call[i] = chain.call[i]
            self.owner[chain.call[i]] = <int32_t>request

    cdef bint may(self, int32_t call, Py_ssize_t request) noexcept nogil:
        """Tell whether a request may have asked a call."""
        cdef Py_ssize_t low = self.first[call], high = self.first[call + 1], end = high, middle
        while low < high:
            middle = (low + high) >> 1
            if self.candidates[middle] < request:
                low = middle + 1
            else:
                high = middle
        return low < end and self.candidates[low] == request

    def score(self):
        """Return the logarithm of how probable the chains are, up to a constant."""
        cdef Py_ssize_t i, other
        cdef double found = self.count_ways()
        cdef int32_t times
        for i in range(self.many_calls):
            found += NOBODYS * (self.owner[i] < 0)
        for i in range(1, self.many_steps):
            found -= self.in_turn(i - 1, i)
            if self.steps[i].group < 0 or self.overtaking[self.steps[i].group] <= 0:
                continue
            times = 0
            for other in range(max(i - NEAR, 0), i):
                times += (self.steps[other].group == self.steps[i].group
                          and self.sooner(i, other))
            found -= self.overtaking[self.steps[i].group] * times
        return found
