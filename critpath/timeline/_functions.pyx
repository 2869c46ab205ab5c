"""Entries and exits of functions -> spans that nest; see `functions`."""

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    ENTERS = 0
    LEAVES = 1
    ENDS = 2  # the thread does


def nest(
    const int64_t[::1] time,
    const int64_t[::1] code,
    const uint8_t[::1] what,
    int64_t last,
    int64_t first_span,
    int64_t[::1] begin,
    int64_t[::1] end,
    int64_t[::1] of,
    int64_t[::1] parent,
    int64_t[:, ::1] changes,
):
    """Nest one thread's functions; return how many spans and changes there are.

    An exit closes all that was entered since its entry: their own are missing.  One without an
    entry is left out, as the function was running when recording began.
    """
    cdef Py_ssize_t i, n = time.shape[0]
    cdef int64_t spans = 0, changed = 0, top = -1, at, now
    with nogil:
        for i in range(n):
            now = time[i]
            if what[i] == ENTERS:
                begin[spans] = now
                end[spans] = last
                of[spans] = code[i]
                parent[spans] = top
                top = spans
                spans += 1
            else:
                at = top
                if what[i] == LEAVES:
                    while at >= 0 and of[at] != code[i]:
                        at = parent[at]
                    if at < 0:
                        continue
                    at = parent[at]
                else:
                    at = -1
                while top != at:
                    end[top] = now
                    top = parent[top]
            changes[changed, 0] = now
            changes[changed, 1] = top + first_span if top >= 0 else -1
            changed += 1
        for i in range(spans):
            if parent[i] >= 0:
                parent[i] += first_span
    return spans, changed


def find_longest(
    const int64_t[:, ::1] changes,
    int64_t first,
    int64_t after,
    const int64_t[::1] kind,
    const int64_t[::1] begin,
    const int64_t[::1] end,
    int64_t[::1] tally,
    int64_t[::1] found,
):
    """Find of which kind the innermost spans are for the longest part of some stretches.

    ``kind`` is of each span, 0 or more; ``tally`` has a zero for each and gets them back.
    ``found`` becomes -1 where no span is known for at least half of a stretch.
    """
    cdef Py_ssize_t i, n = begin.shape[0]
    cdef int64_t low, high, middle, at, since, until, span, best, most, known
    with nogil:
        for i in range(n):
            low, high = first, after
            while low < high:
                middle = (low + high) // 2
                if changes[middle, 0] <= begin[i]:
                    low = middle + 1
                else:
                    high = middle
            best, most, known = -1, 0, 0
            at = low - 1
            since = begin[i]
            while True:
                until = changes[at + 1, 0] if at + 1 < after else end[i]
                if until > end[i]:
                    until = end[i]
                if at >= first:
                    span = changes[at, 1]
                    if span >= 0 and until > since:
                        known += until - since
                        tally[kind[span]] += until - since
                        if tally[kind[span]] > most:
                            most = tally[kind[span]]
                            best = kind[span]
                if until > since:
                    since = until
                at += 1
                if at >= after or changes[at, 0] >= end[i]:
                    break
            found[i] = best if 2 * known >= end[i] - begin[i] else -1
            # Back to zeros.
            at = low - 1
            while at < after and (at < low or changes[at, 0] < end[i]):
                if at >= first and changes[at, 1] >= 0:
                    tally[kind[changes[at, 1]]] = 0
                at += 1
