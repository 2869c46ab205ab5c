# cython: language_level=3
"""Draws whose calls are on a loop: one state of all chains after the other, as probable as they are.

A request is a chain: received, then one call after the other, then answered. A state says which
calls each chain has. Its logarithm is a sum: of every request how usual what it asked is, of every
step how many rounds of the loop it took, and less for what overtook others that were ready before.
How usual: as of an urn, the more others ask the same the more, else as its steps are usual.  Two chains exchange calls (Metropolis), so only their terms are calculated anew.
"""

from libc.math cimport exp, log
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

import numpy as np

cdef enum:
    LONGEST = 64          # calls of a chain
    ROUNDS = 16           # that are told apart, the last for more
    DEEP = 8              # symbols of a history that decide what follows
    SLOTS = 1 << 18       # of tables of histories
    FEWER = 1 << 14       # of those of whole histories: they stay in a processor's cache
    NEAR = 12             # actions before and after one, of which it is seen whether they overtook
    WAITS = 3             # just before who waited, just as who waited, or at once
    AT_ONCE = 2

cdef double BEFORE = -14.0     # a call that begins before it can
cdef double NOBODYS = -9.0     # a call of no chain

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
    # A whole history: how usual its steps make it (a logarithm), or how many requests have it.
    uint64_t key
    double value

ctypedef struct Walked:
    # A chain as it would be: its steps, and what it asks in symbols.
    int32_t count
    int32_t at[LONGEST + 1]
    Step step[LONGEST + 1]
    int32_t symbol[LONGEST + 1]
    uint64_t key          # of these
    double sum


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
    cdef Step* steps          # in order of time
    cdef int32_t* groups      # of each step, close together
    cdef int32_t* rounds_of
    cdef int64_t* changed     # which proposal changed a step last
    cdef int32_t* at_call     # the step of each call and of each answer
    cdef int32_t* at_answer
    cdef uint64_t* keys
    cdef double* sums
    cdef Known* known         # of whole histories how usual their steps are
    cdef Known* ways          # and how many requests have each
    cdef uint64_t* way_of     # each request's; 0: none
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
    cdef double most_turns
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
        self.groups = <int32_t*>calloc(n + m + 1, sizeof(int32_t))
        self.rounds_of = <int32_t*>calloc(n + m + 1, sizeof(int32_t))
        self.changed = <int64_t*>calloc(n + m + 1, sizeof(int64_t))
        self.at_call = <int32_t*>calloc(n + 1, sizeof(int32_t))
        self.at_answer = <int32_t*>calloc(m + 1, sizeof(int32_t))
        self.keys = <uint64_t*>calloc(SLOTS, sizeof(uint64_t))
        self.sums = <double*>calloc(SLOTS, sizeof(double))
        self.known = <Known*>calloc(FEWER, sizeof(Known))
        self.room = FEWER
        while self.room < <size_t>(4 * m):
            self.room *= 2
        self.ways = <Known*>calloc(self.room, sizeof(Known))
        self.way_of = <uint64_t*>calloc(m + 1, sizeof(uint64_t))
        self.alone = alone
        if (self.calls == NULL or self.requests == NULL or self.chains == NULL
                or self.steps == NULL or self.groups == NULL or self.rounds_of == NULL
                or self.changed == NULL or self.at_call == NULL or self.at_answer == NULL
                or self.keys == NULL or self.sums == NULL or self.known == NULL
                or self.ways == NULL or self.way_of == NULL):
            raise MemoryError()
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
        free(self.keys)
        free(self.sums)
        free(self.known)
        free(self.ways)
        free(self.way_of)

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

    cdef double weigh(self, const int32_t* symbol, int count, uint64_t key) noexcept nogil:
        """Return the logarithm of how probable a whole history is, by its steps."""
        cdef Known* its = find_known(self.known, FEWER, key)
        cdef int i
        if not its.key:
            if 2 * self.kept > FEWER:
                self.forget(False)
                its = find_known(self.known, FEWER, key)
            self.kept += 1
            its.key, its.value = key, 0
            for i in range(1, count + 1):
                its.value += log(
                    self.probability(symbol, i, symbol[i] if i < count else 2 * self.kinds))
        return its.value

    cdef double join(self, const Walked* w, int more) noexcept nogil:
        """Return how probable a history is among those of the others (and so many more): an urn.

        As many requests as have it already, and as if some others had one as its steps are usual.
        """
        cdef double steps = self.weigh(w.symbol, w.count, w.key)
        cdef double many = find_known(self.ways, self.room, w.key).value + more
        return log(many + self.alone * exp(steps)) if many > 0 else log(self.alone) + steps

    cdef void leave(self, Py_ssize_t request) noexcept nogil:
        """Take a request's history from those that are counted."""
        if request >= 0 and self.way_of[request]:
            find_known(self.ways, self.room, self.way_of[request]).value -= 1
            self.way_of[request] = 0

    cdef void enter(self, Py_ssize_t request, uint64_t key) noexcept nogil:
        """Count a request's history."""
        cdef Known* its = find_known(self.ways, self.room, key)
        if not its.key:  # there is room: `sweep` counts anew before half is taken
            its.key, its.value = key, 0
            self.found += 1
        its.value += 1
        self.way_of[request] = key

    cdef double count_ways(self) noexcept nogil:
        """Count the histories of all anew; return the logarithm of how probable they all are."""
        cdef Py_ssize_t i
        cdef double found = 0
        cdef Walked w
        memset(self.ways, 0, self.room * sizeof(Known))
        self.found = 0
        for i in range(self.many_requests):
            self.walk(i, &self.chains[i], &w)
            self.put(&w)
            found += w.sum + self.join(&w, 0)
            self.enter(i, w.key)
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
                self.walk(r, &self.chains[r], &w)
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
        self.most_turns = 0
        for i in range(4):
            self.turns[i] = turns[i]
            self.most_turns = max(self.most_turns, turns[i])

    # -------------------------------------------------------------- chains

    cdef void walk(self, Py_ssize_t number, const Chain* chain, Walked* w) noexcept nogil:
        """Say of a chain when each step could be taken, and sum up how usual its rounds are."""
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
            w.at[i] = self.at_call[chain.call[i]]
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
            if c.end >= ready:
                ready, ready_round, last = c.end, c.end_round, c.last
        w.key = 1
        for i in range(w.count):
            w.key = mix(w.key * 33 + <uint64_t>(w.symbol[i] + 1000))
        s = &w.step[chain.count]
        w.at[chain.count] = self.at_answer[number]
        s.since, s.since_round, s.due = ready, ready_round, ready_round
        s.before, s.after = AT_ONCE * (self.kinds + self.roots) + last, self.kinds
        s.group = s.before * (self.kinds + 1) + s.after
        if r.answered < ready:
            w.sum += BEFORE
        else:
            w.sum += self.lags[s.before, s.after,
                               min(r.answered_round - ready_round, ROUNDS - 1)]

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

    cdef void put(self, const Walked* w) noexcept nogil:
        cdef int32_t i
        for i in range(w.count):
            self.steps[w.at[i]] = w.step[i]
            self.groups[w.at[i]] = w.step[i].group

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

    cdef double overtakes(self, const Walked* w) noexcept nogil:
        """Return what it costs how the steps of a chain stand among others; `changed` count once."""
        cdef double found = 0
        cdef Py_ssize_t at, other, low, high
        cdef int32_t i, group, times
        for i in range(w.count):
            at = w.at[i]
            group = self.steps[at].group
            if group < 0:
                continue
            self.changed[at] = self.proposal
            if at and self.changed[at - 1] != self.proposal:
                found += self.in_turn(at - 1, at)
            if at + 1 < self.many_steps and self.changed[at + 1] != self.proposal:
                found += self.in_turn(at, at + 1)
            if self.overtaking[group] <= 0:
                continue
            low, high, times = max(at - NEAR, 0), min(at + NEAR, self.many_steps - 1), 0
            for other in range(low, high + 1):
                if self.groups[other] == group and self.changed[other] != self.proposal:
                    times += self.sooner(at, other) if other < at else self.sooner(other, at)
            found += self.overtaking[group] * min(times, 3)
        return found

    cdef double weigh_both(self, Py_ssize_t a, const Walked* one, const Walked* two) noexcept nogil:
        """Return how probable one or two chains are, but for how their steps stand among others."""
        cdef double found = two.sum + self.join(two, a >= 0 and one.key == two.key)
        if a >= 0:
            found += one.sum + self.join(one, 0)
        return found

    cdef double most(self, const Walked* w) noexcept nogil:
        """Return more than `overtakes` can be."""
        cdef double found = 0
        cdef int32_t i
        for i in range(w.count):
            if w.step[i].group >= 0:
                found += 3 * max(self.overtaking[w.step[i].group], 0.0) + 2 * self.most_turns
        return found

    cdef double overtake_both(self, Py_ssize_t a, const Walked* one,
                              const Walked* two) noexcept nogil:
        """Let the steps of one or two chains be so; return what it costs how they stand."""
        if a >= 0:
            self.put(one)
        self.put(two)
        self.proposal += 1
        return self.overtakes(two) + (self.overtakes(one) if a >= 0 else 0.0)

    def place(self):
        """Make the chains from who is said to own each call."""
        cdef Py_ssize_t i
        cdef int32_t of
        with nogil:
            for i in range(self.many_requests):
                self.chains[i].count = 0
            for i in range(self.many_steps):
                self.steps[i].group = self.groups[i] = -1
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
                self.walk(r, &self.chains[r], &w)
                for i in range(w.count):
                    at = self.rounds_of[w.at[i]] - w.step[i].since_round
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
        """Make both chains as they are after an exchange that begins with a call of the first."""
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
        return self.splice(first, low_one, high_one, &second.call[low_two], high_two - low_two,
                           one) and self.splice(
            second, low_two, high_two, &first.call[low_one], high_one - low_one, two)

    def sweep(self, double heat, int times, int32_t[::1] tally=None):
        """Propose so many exchanges for each call, at a temperature; return how many were taken.

        Then ``tally`` counts for each candidate whether the call is its.
        """
        cdef Py_ssize_t i, k, a, b, taken = 0, many
        cdef int32_t call
        cdef double more
        cdef Chain one, two
        cdef Walked first, second, new_first, new_second
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
                elif not self.propose(call, a, b, &one, &two) or not self.may(&one, a) or not (
                        self.may(&two, b)):
                    continue
                if a >= 0:
                    self.walk(a, &self.chains[a], &first)
                    self.walk(a, &one, &new_first)
                self.walk(b, &self.chains[b], &second)
                self.walk(b, &two, &new_second)
                self.leave(a)
                self.leave(b)
                more = (self.weigh_both(a, &new_first, &new_second)
                        - self.weigh_both(a, &first, &second) - (NOBODYS if a < 0 else 0)
                        - heat * log(self.share() + 1e-300))
                # Mostly this says that it is not taken, whatever stands beside.
                if more + self.most(&second) + (self.most(&first) if a >= 0 else 0.0) >= 0:
                    more += self.overtake_both(a, &first, &second)
                    if more >= 0:
                        more -= self.overtake_both(a, &new_first, &new_second)
                    if more >= 0:
                        taken += 1
                        self.enter(b, new_second.key)
                        self.take(b, &two)
                        if a >= 0:
                            self.enter(a, new_first.key)
                            self.take(a, &one)
                        continue
                    if a >= 0:
                        self.put(&first)
                    else:
                        self.steps[self.at_call[call]].group = -1
                        self.groups[self.at_call[call]] = -1
                    self.put(&second)
                self.enter(b, second.key)
                if a >= 0:
                    self.enter(a, first.key)
            if keep:
                for i in range(self.many_calls):
                    for k in range(self.first[i], self.first[i + 1]):
                        tally[k] += self.candidates[k] == self.owner[i]
        return taken

    cdef void take(self, Py_ssize_t request, const Chain* chain) noexcept nogil:
        """Make a chain a request's."""
        cdef int32_t i
        self.chains[request] = chain[0]
        for i in range(chain.count):
            self.owner[chain.call[i]] = <int32_t>request

    cdef bint may(self, const Chain* chain, Py_ssize_t request) noexcept nogil:
        """Tell whether a request may have asked all calls of a chain."""
        cdef int32_t i
        cdef Py_ssize_t low, high, middle
        for i in range(chain.count):
            low, high = self.first[chain.call[i]], self.first[chain.call[i] + 1]
            while low < high:
                middle = (low + high) >> 1
                if self.candidates[middle] < request:
                    low = middle + 1
                else:
                    high = middle
            if low == self.first[chain.call[i] + 1] or self.candidates[low] != request:
                return False
        return True

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
