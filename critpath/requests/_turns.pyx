# cython: language_level=3
"""Cuts what endpoints do into turns: a message in, and the message out that follows.

The rules are those of docs/requests.md; tests/oracle/turns.py is the plain twin.
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc

import numpy as np

include "_acts.pxi"

include "turns.pxi"

cdef enum:
    TIDS = 4194304        # Linux's PID_MAX_LIMIT

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
            begin_state(&self.states[i])

    def __dealloc__(self):
        free(self.turns)
        free(self.states)
        free(self.threads)

    cdef int keep(self, State* s, int found) except -1 nogil:
        """Write down the turn that is over, or how much longer it is."""
        cdef void* more
        cdef Py_ssize_t room
        if found & TURN_OVER:
            if self.count == self.room:
                room = 2 * self.room + 1024
                more = realloc(self.turns, room * sizeof(Turn))
                if more == NULL:
                    with gil:
                        raise MemoryError()
                self.turns, self.room = <Turn*>more, room
            s.row = self.count
            self.count += 1
        elif not found & TURN_LONGER:
            return 0
        self.turns[s.row] = s.done
        return 0

    def feed(self, const int64_t[::1] time, const uint8_t[::1] act, const int32_t[::1] tid,
             const int32_t[::1] host, const int32_t[::1] endpoint, const int64_t[::1] value,
             const int32_t[::1] peer, const uint8_t[::1] serves):
        """Take all rows of an `Activity`; of endpoints that serve, and their peers."""
        cdef Py_ssize_t i, n = time.shape[0]
        cdef State* s
        cdef Threads* thread
        cdef int64_t woken
        cdef int32_t e
        cdef int found
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
                found = 0
                if not serves[e]:
                    if act[i] == ACT_ARRIVAL:
                        s.arrived, s.arrived_by = time[i], tid[i]
                elif act[i] == ACT_OPEN:
                    s.seen = 1
                elif act[i] == ACT_ARRIVAL:
                    found = arrive(
                        s, &self.states[peer[e]] if peer[e] >= 0 else NULL, time[i], tid[i])
                elif act[i] == ACT_RECEIVE:
                    woken = -1
                    if thread != NULL and thread.woken > thread.moved:
                        woken = thread.woken
                    found = receive(s, woken, time[i], tid[i], value[i])
                elif act[i] == ACT_SEND:
                    found = send(s, time[i], tid[i], value[i])
                elif act[i] == ACT_CLOSE:
                    found = end_endpoint(s)
                self.keep(s, found)
                if thread != NULL and (act[i] == ACT_RECEIVE or act[i] == ACT_SEND):
                    thread.moved = time[i]
            for e in range(<int32_t>peer.shape[0]):
                if serves[e]:
                    self.keep(&self.states[e], end_endpoint(&self.states[e]))

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
