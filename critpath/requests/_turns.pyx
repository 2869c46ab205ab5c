# cython: language_level=3
"""Cuts what endpoints do into turns: a message in, and the message out that follows.

The rules are those of docs/requests.md; tests/oracle/turns.py is the plain twin.
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc

import numpy as np

include "_acts.pxi"

cdef enum:
    # Where an endpoint is in its turn
    IDLE = 0
    ARRIVED = 1
    RECEIVED = 2
    ANSWERED = 3
    # How a turn's begin is known
    BY_ARRIVAL = 0
    BY_WAKE = 1
    BY_READ = 2
    SEGMENT = 1400        # bytes of a receive that may be a part of a larger message
    TIDS = 4194304        # Linux's PID_MAX_LIMIT
    PAUSE = 5000000       # ns that nothing is sent within an answer
    APART = 200000        # ns: a header and its body come sooner after each other

ctypedef struct Turn:
    int64_t begin
    int64_t received
    int64_t answered
    int64_t end
    int64_t bytes_in
    int64_t bytes_out
    int32_t endpoint
    int32_t number
    int32_t reader
    int32_t tid
    int32_t intrusions
    int32_t how
    int32_t pauses        # within its answer

ctypedef struct Split:
    # Another thread receives while a send may go on: if it does, this is the next turn.
    int32_t by            # whose send that is, 0: there is none
    int32_t reader
    int64_t end           # of the turn before: when its answer arrived
    int64_t begin
    int64_t received
    int64_t bytes_in

ctypedef struct State:
    Turn turn
    int64_t moved         # its last receive or send
    int64_t arrived       # its last arrival
    int64_t fresh         # the last arrival since its last receive, -1 none
    int64_t later         # an arrival that is the next turn's already, -1 none
    int64_t going         # when what a send goes on with arrived
    int64_t last_bytes    # of its last receive
    Py_ssize_t complete   # row of its last turn
    int32_t arrived_by
    int32_t going_by      # whose send may go on though its answer has arrived, 0 nobody's
    Split split           # in what may be two turns
    int32_t extra         # since its last receive: data that came apart, of an unanswered turn
    int32_t incomplete
    int32_t unsolicited
    int8_t phase
    int8_t seen           # anything before its first receive
    int8_t cut            # the turn may have begun before the recording

ctypedef struct Threads:
    int64_t woken
    int64_t moved


cdef class Cutter:
    cdef Turn* turns
    cdef Py_ssize_t count, room
    cdef State* states
    cdef Threads* threads

    def __cinit__(self, Py_ssize_t endpoints, Py_ssize_t hosts):
        cdef Py_ssize_t i
        self.states = <State*>calloc(max(endpoints, 1), sizeof(State))
        # Memory of calloc that is not touched costs nothing.
        self.threads = <Threads*>calloc(max(hosts, 1) * TIDS, sizeof(Threads))
        if self.states == NULL or self.threads == NULL:
            raise MemoryError()
        for i in range(endpoints):
            self.states[i].turn.endpoint = <int32_t>i
            self.states[i].fresh, self.states[i].later = -1, -1
            self.states[i].moved, self.states[i].arrived = -1, -1

    def __dealloc__(self):
        free(self.turns)
        free(self.states)
        free(self.threads)

    cdef int complete(self, State* s) except -1 nogil:
        """Write down the endpoint's turn, which is over."""
        cdef void* more
        cdef Py_ssize_t room
        s.turn.number += 1
        if s.cut:
            s.incomplete += 1
            s.cut = 0
            s.complete = -1
            return 0
        if self.count == self.room:
            room = 2 * self.room + 1024
            more = realloc(self.turns, room * sizeof(Turn))
            if more == NULL:
                with gil:
                    raise MemoryError()
            self.turns, self.room = <Turn*>more, room
        s.complete = self.count
        self.turns[self.count] = s.turn
        self.count += 1
        return 0

    cdef int arrive(self, State* s, State* peer, int64_t t, int32_t tid) except -1 nogil:
        cdef bint apart = s.arrived >= 0 and t - s.arrived >= APART
        s.arrived, s.arrived_by, s.seen = t, tid, 1
        if (s.phase >= RECEIVED and s.going_by == 0 and peer != NULL
                and peer.arrived > s.moved and peer.arrived_by > 0):
            # Whoever asks again has had the answer: its send may go on still.
            s.going_by, s.going, s.later = peer.arrived_by, peer.arrived, t
        if s.phase == ANSWERED:
            self.complete(s)
            s.phase = IDLE
        if s.phase == IDLE:
            s.phase, s.turn.begin = ARRIVED, t
            s.extra = 0
        elif apart and s.going_by == 0:
            s.extra += 1
        s.fresh = t
        return 0

    cdef int receive(self, State* s, Threads* thread, int64_t t, int32_t tid,
                     int64_t count) except -1 nogil:
        if s.phase == ANSWERED:
            self.complete(s)
            s.phase = IDLE
            s.extra = 0
            if s.later >= 0:
                s.phase, s.turn.begin = ARRIVED, s.later
        if s.phase == RECEIVED:
            if s.split.by > 0:
                s.split.bytes_in += count
            elif s.going_by > 0 and s.going_by != tid:
                s.split.by, s.split.reader, s.split.end = s.going_by, tid, s.going
                s.split.begin, s.split.received, s.split.bytes_in = s.later, t, count
            s.turn.bytes_in += count
            if s.last_bytes < SEGMENT:
                s.turn.intrusions += s.extra
        else:
            s.turn.how = BY_ARRIVAL
            if s.phase == IDLE:
                s.cut = not s.seen
                s.turn.how, s.turn.begin = BY_READ, t
                if thread != NULL and thread.woken > max(s.moved, thread.moved):
                    s.turn.how, s.turn.begin = BY_WAKE, thread.woken
            s.turn.received, s.turn.reader = t, tid
            s.turn.bytes_in, s.turn.bytes_out = count, 0
            s.turn.intrusions = s.extra if count < SEGMENT else 0
            s.turn.pauses = 0
            s.phase = RECEIVED
        s.moved, s.last_bytes, s.seen = t, count, 1
        s.fresh, s.later, s.going_by, s.extra = -1, -1, 0, 0
        return 0

    cdef int send(self, State* s, int64_t t, int32_t tid, int64_t count) except -1 nogil:
        cdef int8_t going = s.going_by > 0 and s.going_by == tid
        if s.phase == RECEIVED and s.split.by > 0 and s.split.by == tid:
            s.turn.bytes_in -= s.split.bytes_in
            s.turn.answered, s.turn.end, s.turn.tid = s.split.end, s.split.end, tid
            s.turn.bytes_out, s.split.by = count, 0
            self.complete(s)
            s.turn.begin, s.turn.how, s.turn.received = s.split.begin, BY_ARRIVAL, s.split.received
            s.turn.reader, s.turn.bytes_in, s.turn.bytes_out = s.split.reader, s.split.bytes_in, 0
            s.turn.intrusions = s.turn.pauses = 0
            s.moved, s.extra = t, 0
            return 0
        s.split.by = 0
        if s.phase == RECEIVED and going:
            s.turn.answered, s.turn.end, s.turn.tid, s.turn.bytes_out = s.going, s.going, tid, count
            self.complete(s)
            s.phase, s.turn.begin = ARRIVED, s.later
        elif s.phase == ARRIVED and going:
            if s.complete >= 0:
                self.turns[s.complete].end, self.turns[s.complete].tid = s.going, tid
                self.turns[s.complete].bytes_out += count
        elif s.phase >= RECEIVED:
            if s.phase == RECEIVED:
                s.turn.answered, s.turn.bytes_out = t, 0
                if s.last_bytes < SEGMENT:
                    s.turn.intrusions += s.extra
                s.phase, s.later = ANSWERED, t if s.fresh == t else -1
            elif t - s.moved >= PAUSE:
                s.turn.pauses += 1
            s.turn.end, s.turn.tid = t, tid
            s.turn.bytes_out += count
        else:
            # What was sent first may answer what was asked before the recording.
            if s.seen:
                s.unsolicited += 1
            else:
                s.incomplete += 1
            s.phase = IDLE
        s.moved, s.seen, s.going_by, s.extra = t, 1, 0, 0
        return 0

    cdef int close(self, State* s) except -1 nogil:
        if s.phase == ANSWERED:
            self.complete(s)
        elif s.phase == RECEIVED:
            s.incomplete += 1
        s.phase, s.cut, s.going_by, s.split.by = IDLE, 0, 0, 0
        return 0

    def feed(self, const int64_t[::1] time, const uint8_t[::1] act, const int32_t[::1] tid,
             const int32_t[::1] host, const int32_t[::1] endpoint, const int64_t[::1] value,
             const int32_t[::1] peer, const uint8_t[::1] serves):
        """Take all rows of an `Activity`; of endpoints that serve, and their peers."""
        cdef Py_ssize_t i, n = time.shape[0]
        cdef State* s
        cdef Threads* thread
        cdef int32_t e
        with nogil:
            for i in range(n):
                e = endpoint[i]
                if act[i] == ACT_WAKE:
                    if 0 < value[i] < TIDS:
                        self.threads[<size_t>host[i] * TIDS + <size_t>value[i]].woken = time[i]
                    continue
                if e < 0:
                    continue
                s = &self.states[e]
                thread = NULL
                if 0 < tid[i] < TIDS:
                    thread = &self.threads[<size_t>host[i] * TIDS + <size_t>tid[i]]
                if not serves[e]:
                    if act[i] == ACT_ARRIVAL:
                        s.arrived, s.arrived_by = time[i], tid[i]
                elif act[i] == ACT_OPEN:
                    s.seen = 1
                elif act[i] == ACT_ARRIVAL:
                    self.arrive(
                        s, &self.states[peer[e]] if peer[e] >= 0 else NULL, time[i], tid[i])
                elif act[i] == ACT_RECEIVE:
                    self.receive(s, thread, time[i], tid[i], value[i])
                elif act[i] == ACT_SEND:
                    self.send(s, time[i], tid[i], value[i])
                elif act[i] == ACT_CLOSE:
                    self.close(s)
                if thread != NULL and (act[i] == ACT_RECEIVE or act[i] == ACT_SEND):
                    thread.moved = time[i]
            for e in range(<int32_t>peer.shape[0]):
                if serves[e]:
                    self.close(&self.states[e])

    def take_turns(self):
        """Return a row of numbers per turn, and one per endpoint; see `turns`."""
        cdef Py_ssize_t i
        cdef Turn* t
        turns = np.empty((self.count, 13), np.int64)
        cdef int64_t[:, ::1] to = turns
        for i in range(self.count):
            t = &self.turns[i]
            to[i, 0], to[i, 1], to[i, 2], to[i, 3] = t.endpoint, t.number, t.begin, t.received
            to[i, 4], to[i, 5], to[i, 6], to[i, 7] = t.answered, t.end, t.reader, t.tid
            to[i, 8], to[i, 9], to[i, 10], to[i, 11] = t.bytes_in, t.bytes_out, t.intrusions, t.how
            to[i, 12] = t.pauses
        return turns

    def take_counts(self, Py_ssize_t endpoints):
        """Return per endpoint: incomplete, unsolicited."""
        cdef Py_ssize_t i
        counts = np.empty((endpoints, 2), np.int64)
        cdef int64_t[:, ::1] to = counts
        for i in range(endpoints):
            to[i, 0], to[i, 1] = self.states[i].incomplete, self.states[i].unsolicited
        return counts
