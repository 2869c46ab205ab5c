"""Posteriors of many pairs made consistent, summed over columns, and the best path.

The layout of the sparse posteriors is that of `_posteriors.pair_posteriors`: letter i of
sequence x and sequence y have row ``N * offset[x] + y * length(x) + i``.
"""

from libc.stdlib cimport free, malloc, qsort, realloc

import numpy as np

from cpython.exc cimport PyErr_NoMemory


cdef inline Py_ssize_t place(
    const long long[::1] offset, Py_ssize_t count, Py_ssize_t x, Py_ssize_t y
) noexcept nogil:
    return count * offset[x] + y * (offset[x + 1] - offset[x])


def consistency(
    const long long[::1] offset,
    const long long[::1] begin,
    const int[::1] column,
    const float[::1] value,
    const long long[::1] between,
    float[::1] out,
):
    """Fill ``out`` with the posteriors as the sequences ``between`` see them.

    ``P'(x, y) = (2 P(x, y) + sum over z of P(x, z) P(z, y)) / (2 + number of z)`` for the
    pairs of letters that have a posterior already; others stay out.
    """
    cdef Py_ssize_t count = offset.shape[0] - 1, x, y, z, i, e, f, g, there, back, direct, onward
    cdef Py_ssize_t row, length, k, t, asked
    cdef float v, share
    next_array = np.array(begin)
    cdef long long[::1] next_back = next_array
    with nogil:
        for x in range(count):
            length = offset[x + 1] - offset[x]
            for y in range(x + 1, count):
                there = place(offset, count, x, y)
                back = place(offset, count, y, x)
                for e in range(begin[there], begin[there + length]):
                    out[e] = 2 * value[e]
                asked = 0
                for t in range(between.shape[0]):
                    z = between[t]
                    if z == x or z == y:
                        continue
                    asked += 1
                    direct = place(offset, count, x, z)
                    onward = place(offset, count, z, y)
                    for i in range(length):
                        row = there + i
                        for e in range(begin[direct + i], begin[direct + i + 1]):
                            v = value[e]
                            k = onward + column[e]
                            g = begin[row]
                            for f in range(begin[k], begin[k + 1]):
                                while g < begin[row + 1] and column[g] < column[f]:
                                    g += 1
                                if g == begin[row + 1]:
                                    break
                                if column[g] == column[f]:
                                    out[g] += v * value[f]
                share = <float>(1.0 / (2 + asked))
                for i in range(length):
                    for e in range(begin[there + i], begin[there + i + 1]):
                        out[e] *= share
                        f = back + column[e]
                        out[next_back[f]] = out[e]
                        next_back[f] += 1


def place_letters(
    const signed char[:, ::1] rows,
    const long long[::1] members,
    const long long[::1] offset,
    int[::1] at,
):
    """Write the column of every letter of the rows of ``members`` to ``at``."""
    cdef Py_ssize_t r, c, to
    with nogil:
        for r in range(rows.shape[0]):
            to = offset[members[r]]
            for c in range(rows.shape[1]):
                if rows[r, c] >= 0:
                    at[to] = <int>c
                    to += 1


def column_scores(
    const long long[::1] offset,
    const long long[::1] begin,
    const int[::1] column,
    const int[::1] value,
    const long long[::1] one,
    const long long[::1] two,
    const int[::1] at,
    int[:, ::1] out,
):
    """Add up the posteriors of the pairs of letters in every pair of columns.

    ``one`` and ``two`` are the sequences of the two blocks, ``at`` the column of every
    letter of all sequences in its block.
    """
    cdef Py_ssize_t count = offset.shape[0] - 1, a, b, x, y, i, e, row
    with nogil:
        for a in range(one.shape[0]):
            x = one[a]
            for b in range(two.shape[0]):
                y = two[b]
                row = place(offset, count, x, y)
                for i in range(offset[x + 1] - offset[x]):
                    for e in range(begin[row + i], begin[row + i + 1]):
                        out[at[offset[x] + i], at[offset[y] + column[e]]] += value[e]


def best_path(const int[:, ::1] scores, unsigned char[::1] path):
    """Find the path of the largest sum, gaps being free; return (sum, first step).

    ``path[first:]`` receives 0 where two columns are paired, 1 for a column of A
    opposite a gap, 2 for one of B.  Among equals 0 is preferred to 1 to 2.
    """
    cdef Py_ssize_t n = scores.shape[0], m = scores.shape[1], i, j, to = n + m
    trace_array = np.empty((n, m), np.uint8)
    row_array = np.zeros(m + 1, np.int64)
    cdef unsigned char[:, ::1] trace = trace_array
    cdef long long[::1] row = row_array
    cdef long long diagonal, left, up, best
    with nogil:
        for i in range(n):
            diagonal = 0
            left = 0
            for j in range(m):
                up = row[j + 1]
                best = diagonal + scores[i, j]
                trace[i, j] = 0
                if up > best:
                    best = up
                    trace[i, j] = 1
                if left > best:
                    best = left
                    trace[i, j] = 2
                diagonal = up
                row[j + 1] = best
                left = best
        i = n
        j = m
        while i > 0 or j > 0:
            to -= 1
            if j == 0 or (i > 0 and trace[i - 1, j - 1] == 1):
                path[to] = 1
                i -= 1
            elif i == 0 or trace[i - 1, j - 1] == 2:
                path[to] = 2
                j -= 1
            else:
                path[to] = 0
                i -= 1
                j -= 1
    return row_array[m], to


cdef struct Pair:
    int i         # its columns
    int j
    int before    # the pair that its best chain comes from, -1: none


cdef int falling(const void* a, const void* b) noexcept nogil:
    return (<const int*>b)[0] - (<const int*>a)[0]


def best_chain(
    const long long[::1] offset,
    const long long[::1] begin,
    const int[::1] column,
    const int[::1] value,
    const signed char[:, ::1] a,
    const long long[::1] one,
    const long long[::1] two,
    const int[::1] at,
    Py_ssize_t m,
    unsigned char[::1] path,
):
    """Do as `column_scores` and `best_path` do where a matrix of all columns would be too large.

    Only columns with a posterior are visited: the chain of the largest sum, rising in both
    blocks, whose prefix maxima are kept in a binary indexed tree (P. Fenwick, 1994).  ``a`` has
    the rows of ``one``, ``m`` is the number of columns of the other block.  Of chains with the
    same sum another one may be found than by `best_path`.
    """
    cdef Py_ssize_t count = offset.shape[0] - 1, n = a.shape[1], i, r, t, e, row, k, to = n + m
    cdef Py_ssize_t pairs = 0, room = 0, touched, up, left, both
    cdef int j, last, winner
    cdef long long sum_, best
    cdef Pair* pair = NULL
    cdef Pair* grown
    cdef long long[::1] tree = np.zeros(m + 1, np.int64)   # largest sum of a chain
    cdef int[::1] which = np.full(m + 1, -1, np.int32)      # the pair it ends with
    cdef int[::1] scores = np.zeros(m, np.int32)
    cdef int[::1] columns = np.empty(m, np.int32)
    cdef long long[::1] letter = np.array([offset[x] for x in one], np.int64)
    with nogil:
        for i in range(n):
            touched = 0
            for r in range(one.shape[0]):
                if a[r, i] < 0:
                    continue
                k = letter[r] - offset[one[r]]
                letter[r] += 1
                for t in range(two.shape[0]):
                    row = place(offset, count, one[r], two[t]) + k
                    for e in range(begin[row], begin[row + 1]):
                        j = at[offset[two[t]] + column[e]]
                        if scores[j] == 0 and value[e] > 0:
                            columns[touched] = j
                            touched += 1
                        scores[j] += value[e]
            # From the right: a column of A is in a chain once.
            if touched:
                qsort(&columns[0], touched, sizeof(int), falling)
            if pairs + touched > room:
                room = 2 * room + touched + 1024
                grown = <Pair*>realloc(pair, room * sizeof(Pair))
                if grown == NULL:
                    room = -1
                    break
                pair = grown
            for t in range(touched):
                j = columns[t]
                best = 0
                winner = -1
                k = j
                while k > 0:
                    if tree[k] > best:
                        best = tree[k]
                        winner = which[k]
                    k &= k - 1
                sum_ = best + scores[j]
                scores[j] = 0
                pair[pairs].i = <int>i
                pair[pairs].j = j
                pair[pairs].before = winner
                k = j + 1
                while k <= m:
                    if sum_ > tree[k]:
                        tree[k] = sum_
                        which[k] = <int>pairs
                    k += k & -k
                pairs += 1
    if room < 0:
        free(pair)
        PyErr_NoMemory()
    best = 0
    last = -1
    k = m
    while k > 0:
        if tree[k] > best:
            best = tree[k]
            last = which[k]
        k &= k - 1
    # What stands between two pairs of the chain is paired from its right end, as by `best_path`.
    with nogil:
        up = n
        left = m
        while True:
            i = pair[last].i if last >= 0 else -1
            j = pair[last].j if last >= 0 else -1
            both = min(up - i - 1, left - j - 1)
            for t in range(both):
                to -= 1
                path[to] = 0
            for t in range(up - i - 1 - both):
                to -= 1
                path[to] = 1
            for t in range(left - j - 1 - both):
                to -= 1
                path[to] = 2
            if last < 0:
                break
            to -= 1
            path[to] = 0
            up = i
            left = j
            last = pair[last].before
    free(pair)
    return best, to


def paired_sum(
    const long long[::1] offset,
    const long long[::1] begin,
    const int[::1] column,
    const int[::1] value,
    Py_ssize_t one,
    const int[::1] at,
):
    """Return the sum of posteriors of a sequence's letters with those in the same columns."""
    cdef Py_ssize_t count = offset.shape[0] - 1, y, i, e, row
    cdef long long total = 0
    with nogil:
        for y in range(count):
            if y == one:
                continue
            row = place(offset, count, one, y)
            for i in range(offset[one + 1] - offset[one]):
                for e in range(begin[row + i], begin[row + i + 1]):
                    if at[offset[one] + i] == at[offset[y] + column[e]]:
                        total += value[e]
    return total
