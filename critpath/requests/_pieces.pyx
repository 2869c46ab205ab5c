# cython: language_level=3
"""Cuts requests into pieces that one thread or state accounts for, from their ends back.

The rules are those of docs/finding-requests.md; tests/oracle/pieces.py is the plain twin.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc

import numpy as np

cdef enum:
    DEEPEST = 50         # tiers

ctypedef struct Piece:
    int64_t begin
    int64_t end
    int32_t thread
    int32_t state
    int32_t about        # of a transit: the sub-request, twice, and 1 for its answer; else -1
    int32_t row          # the request that is worked for


cdef inline Py_ssize_t first_from(const int64_t[::1] values, Py_ssize_t low, Py_ssize_t high,
                                  int64_t wanted) noexcept nogil:
    """Return the first of sorted values that is not below the wanted one."""
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


cdef class Composer:
    """The tables of a recording, by thread and by request.

    Parameters
    ----------
    times : int64 [requests, 3]
        Begin, received, end.
    threads : int32 [requests, 2]
        Who answered, who read.
    doubtful : uint8 [requests]
    first : int64 [requests + 1]
        Of each request's sub-requests, which are sorted by their ends.
    asked : int64 [subrequests, 6]
        Begin, end; when it left, was there, its answer left and was there: -1 on one host.
    asked_rows : int32 [subrequests, 4]
        Who asked, the request that it is there or -1, doubtful, of another machine.
    slice_first, sleep_first : int64 [threads + 1]
    slice_begin, slice_end, slice_request, sleeps : int64
        Of each thread, in order of time.
    loops : uint8 [threads]
    states : int32 [5]
        What is told by the thread's path, waiting for others, shared with them, far away, on its
        way between hosts.
    """

    cdef Piece* pieces
    cdef Py_ssize_t count, room
    cdef const int64_t[:, ::1] times
    cdef const int32_t[:, ::1] threads
    cdef const uint8_t[::1] doubtful
    cdef const int64_t[::1] first
    cdef const int64_t[:, ::1] asked
    cdef const int32_t[:, ::1] asked_rows
    cdef const int64_t[::1] slice_first
    cdef const int64_t[::1] slice_begin
    cdef const int64_t[::1] slice_end
    cdef const int64_t[::1] slice_request
    cdef const int64_t[::1] sleep_first
    cdef const int64_t[::1] sleeps
    cdef const uint8_t[::1] loops
    cdef int32_t walk, queued, shared, far, transit
    cdef bint in_doubt    # a request, or one that was asked for it, stays on its thread

    def __cinit__(self, const int64_t[:, ::1] times, const int32_t[:, ::1] threads,
                  const uint8_t[::1] doubtful, const int64_t[::1] first,
                  const int64_t[:, ::1] asked, const int32_t[:, ::1] asked_rows,
                  const int64_t[::1] slice_first, const int64_t[::1] slice_begin,
                  const int64_t[::1] slice_end, const int64_t[::1] slice_request,
                  const int64_t[::1] sleep_first, const int64_t[::1] sleeps,
                  const uint8_t[::1] loops, states):
        self.times, self.threads, self.doubtful = times, threads, doubtful
        self.first, self.asked, self.asked_rows = first, asked, asked_rows
        self.slice_first, self.slice_begin, self.slice_end = slice_first, slice_begin, slice_end
        self.slice_request = slice_request
        self.sleep_first, self.sleeps, self.loops = sleep_first, sleeps, loops
        self.walk, self.queued, self.shared, self.far, self.transit = states

    def __dealloc__(self):
        free(self.pieces)

    cdef int add(self, int32_t row, int32_t thread, int64_t begin, int64_t end, int32_t state,
                 int32_t about=-1) except -1 nogil:
        cdef void* more
        cdef Py_ssize_t room
        cdef Piece* piece
        if end <= begin:
            return 0
        if self.count == self.room:
            room = 2 * self.room + 1024
            more = realloc(self.pieces, room * sizeof(Piece))
            if more == NULL:
                with gil:
                    raise MemoryError()
            self.pieces, self.room = <Piece*> more, room
        piece = &self.pieces[self.count]
        piece.begin, piece.end, piece.thread, piece.state = begin, end, thread, state
        piece.about, piece.row = about, row
        self.count += 1
        return 0

    cdef bint slept(self, int32_t thread, int64_t low, int64_t high) noexcept nogil:
        """Tell whether a thread went to sleep between two times."""
        cdef Py_ssize_t last = self.sleep_first[thread + 1]
        cdef Py_ssize_t at = first_from(self.sleeps, self.sleep_first[thread], last, low)
        return at < last and self.sleeps[at] <= high

    cdef Py_ssize_t last_slice(self, int32_t thread, int64_t high) noexcept nogil:
        """Return a thread's last slice that begins before a time."""
        return first_from(
            self.slice_begin, self.slice_first[thread], self.slice_first[thread + 1], high) - 1

    cdef int wait(self, int32_t row, int32_t thread, int64_t low, int64_t high) except -1 nogil:
        """Add the time until a thread received what was there: it may serve others first."""
        cdef Py_ssize_t at = self.last_slice(thread, high)
        cdef int64_t since = 0, until = 0
        cdef bint others = False
        while at >= self.slice_first[thread] and self.slice_end[at] > low:
            if self.slice_request[at] != row:
                if not others:
                    until = min(self.slice_end[at], high)
                since, others = max(self.slice_begin[at], low), True
            at -= 1
        if others:
            # From the first of them on; before, it was not there yet.
            self.add(row, thread, until, high, self.walk)
            self.add(row, thread, since, until, self.queued)
            high = since
        self.add(row, thread, low, high, self.walk)
        return 0

    cdef int work(self, int32_t row, int32_t thread, int64_t low, int64_t high) except -1 nogil:
        """Add a stretch in which a request was worked for; others that its thread served meanwhile.

        A thread that slept since it served others was woken for this one: what woke it is told by
        its own path.
        """
        cdef Py_ssize_t at = self.last_slice(thread, high)
        cdef int64_t since, until, own = high
        while at >= self.slice_first[thread] and self.slice_end[at] > low:
            if self.slice_request[at] == row:
                own = self.slice_begin[at]
                at -= 1
                continue
            since, until = max(self.slice_begin[at], low), min(self.slice_end[at], high)
            if self.slice_request[at] >= 0 and self.slept(thread, until, min(own, high)):
                break
            self.add(row, thread, until, high, self.walk)
            self.add(row, thread, since, until,
                     self.shared if self.slice_request[at] < 0 else self.queued)
            high = own = since
            at -= 1
        self.add(row, thread, low, high, self.walk)
        return 0

    cdef int64_t cross(self, int32_t row, Py_ssize_t at, int64_t low, int64_t high,
                       int depth) except? -1 nogil:
        """Add what was asked of another host; return when it left."""
        cdef int32_t asker = self.asked_rows[at, 0], child = self.asked_rows[at, 1]
        cdef int32_t about = <int32_t> (2 * at)
        cdef int64_t left = max(self.asked[at, 2], low), answered = min(self.asked[at, 5], high)
        cdef int64_t since = max(self.asked[at, 3], left), until
        self.wait(row, asker, answered, high)
        if child < 0:
            self.add(row, asker, left, answered, self.transit, about)
            return left
        until = min(max(self.asked[at, 4], since), answered)
        self.add(row, asker, until, answered, self.transit, about + 1)
        self.settle(child, since, until, depth + 1)
        self.add(row, asker, left, since, self.transit, about)
        return left

    cdef int settle(self, int32_t row, int64_t low, int64_t high, int depth) except -1 nogil:
        """Add the pieces of a request; in doubt those of the thread that answered, whatever it asked.

        Who asked for it waited for it all the same.
        """
        cdef Py_ssize_t kept = self.count
        cdef int64_t received = min(max(self.times[row, 1], low), high)
        if not self.follow(row, low, high, depth):
            self.in_doubt, self.count = True, kept
            self.work(row, self.threads[row, 0], received, high)
            self.wait(row, self.threads[row, 1], low, received)
        return 0

    cdef bint follow(self, int32_t row, int64_t low, int64_t high, int depth) except? True nogil:
        """Add the pieces of a request between two times, the last first; False where in doubt."""
        cdef int32_t thread = self.threads[row, 0], asker, child
        cdef int64_t time = high, begin, end, since, until
        cdef int64_t received = min(max(self.times[row, 1], low), high)
        cdef Py_ssize_t at
        if self.doubtful[row] or depth > DEEPEST:
            return False
        for at in range(self.first[row + 1] - 1, self.first[row] - 1, -1):
            if self.asked_rows[at, 2]:
                return False
            begin, end = self.asked[at, 0], self.asked[at, 1]
            asker, child = self.asked_rows[at, 0], self.asked_rows[at, 1]
            # Of several at once, the one that was answered last was waited for.
            if end > time or begin < received:
                continue
            if self.asked[at, 2] >= 0:
                self.work(row, thread, end, time)
                time = self.cross(row, at, received, end, depth)
            elif child >= 0:
                since = max(self.times[child, 0], received)
                until = min(self.times[child, 2], end)
                if until <= since:
                    return False
                self.work(row, thread, end, time)
                self.wait(row, asker, until, end)
                self.settle(child, since, until, depth + 1)
                time = since
            elif self.loops[asker]:
                if not self.asked_rows[at, 3]:
                    return False
                self.work(row, thread, end, time)
                self.add(row, asker, begin, end, self.far)
                time = begin
            else:
                self.work(row, thread, begin, time)
                time = begin
            thread = asker
        self.work(row, thread, received, time)
        self.wait(row, self.threads[row, 1], low, received)
        return True

    def count_doubtful(self, const int64_t[::1] rows):
        """Return how many rows are in doubt."""
        cdef Py_ssize_t i, left = 0
        with nogil:
            for i in range(rows.shape[0]):
                self.in_doubt, self.count = False, 0
                self.settle(<int32_t> rows[i], self.times[rows[i], 0], self.times[rows[i], 2], 0)
                left += self.in_doubt
        return left

    def compose(self, const int64_t[::1] rows):
        """Return where the pieces of each row begin, and them.

        A piece is a thread, its begin and end, a state, what is on its way, and the request, or
        that which was asked for it, that was worked for.
        """
        start = np.zeros(rows.shape[0] + 1, np.int64)
        cdef int64_t[::1] begins = start
        cdef Py_ssize_t i, low, high
        cdef int32_t row
        cdef Piece kept
        self.count = 0
        with nogil:
            for i in range(rows.shape[0]):
                row, low = <int32_t> rows[i], self.count
                self.settle(row, self.times[row, 0], self.times[row, 2], 0)
                high = self.count - 1
                while low < high:
                    kept = self.pieces[low]
                    self.pieces[low], self.pieces[high] = self.pieces[high], kept
                    low += 1
                    high -= 1
                begins[i + 1] = self.count
        table = np.empty((self.count, 6), np.int64)
        cdef int64_t[:, ::1] to = table
        for i in range(self.count):
            to[i, 0], to[i, 1] = self.pieces[i].thread, self.pieces[i].begin
            to[i, 2], to[i, 3] = self.pieces[i].end, self.pieces[i].state
            to[i, 4], to[i, 5] = self.pieces[i].about, self.pieces[i].row
        return start, table
