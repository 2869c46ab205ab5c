"""Posterior probabilities of a pair-HMM, for all pairs of many sequences.

States: M pairs a letter of each sequence; X1, X2 put a letter of the first opposite a
gap, Y1, Y2 one of the second (short gaps and long ones).  Probabilities are plain
single-precision numbers, brought back to about 1 by powers of two every few rows; no
logarithm is taken.  Four pairs that share their first sequence run side by side in the
lanes of a vector, so that the same instructions do the work of four.
"""

from libc.math cimport frexp, ldexp
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

import numpy as np

from cpython.exc cimport PyErr_NoMemory

include "_four_pairs.pxi"


cdef inline Py_ssize_t slots(Py_ssize_t low, Py_ssize_t high, Py_ssize_t width) noexcept nogil:
    """Return how many columns a row of the band has, with an empty one after its last."""
    return min(high - low + 2, width + 1)


cdef Py_ssize_t room_for(Py_ssize_t n, Py_ssize_t width, Py_ssize_t band, Py_ssize_t letters) noexcept nogil:
    return ((letters + 3) * width + (n + 1) * band) * sizeof(quad) + (n + 1) * LANES * sizeof(long long)


cdef bint some_pairs(
    const unsigned char* x, Py_ssize_t n,
    const unsigned char** y, const Py_ssize_t* m, int pairs, Py_ssize_t least_band,
    const float* ratio, Py_ssize_t letters, Chain chain, float threshold, Found* found,
) noexcept nogil:
    """Run `four_pairs` in a band that is widened until it can be trusted.

    A path outside leaves more letters unpaired than the band is wide on that side.
    It is kept if in each lane fewer letters than that, of the shorter sequence, have no
    partner of a posterior above a half.
    """
    cdef Py_ssize_t width = 0, low = 0, high = 0, margin = least_band, paired, e
    cdef Py_ssize_t left, right
    cdef int l
    cdef bint fine
    cdef void* memory
    for l in range(pairs):
        width = max(width, m[l])
        low = min(low, m[l] - n)
        high = max(high, m[l] - n)
    width += 2
    while True:
        left = max(low - margin, -n)
        right = min(high + margin, width)
        memory = malloc(room_for(n, width, slots(left, right, width), letters))
        if memory == NULL:
            return False
        for l in range(pairs):
            found[l].count = 0
        fine = four_pairs(
            x, n, y, m, pairs, width, left, right, ratio, letters, chain, threshold, memory, found,
        )
        free(memory)
        if not fine:
            return False
        if left == -n and right == width:
            return True
        for l in range(pairs):
            paired = 0
            for e in range(found[l].count):
                paired += found[l].entry[e].p > 0.5
            if min(n, m[l]) - paired >= margin:
                fine = False
        if fine:
            return True
        margin *= 4


cdef double edge_gap(Chain chain, Py_ssize_t gap) noexcept nogil:
    return chain.edge1 * power_of(chain.stay1, gap - 1) + chain.edge2 * power_of(chain.stay2, gap - 1)


cdef double power_of(double x, Py_ssize_t n) noexcept nogil:
    cdef double result = 1.0
    while n > 0:
        if n & 1:
            result *= x
        x *= x
        n >>= 1
    return result


def pair_posteriors(
    const unsigned char[::1] letters,
    const long long[::1] offset,
    const float[:, ::1] ratio,
    const double[::1] gaps,
    double threshold,
    Py_ssize_t margin,
    bint star,
):
    """Return the likely pairs of letters of all pairs of sequences.

    Parameters
    ----------
    letters, offset
        Sequence s is ``letters[offset[s]:offset[s + 1]]``; none is empty.
    ratio
        Odds of a pair of letters against chance.
    gaps
        Probability of opening, of extending and of opening at either end for short
        gaps, then the same for long ones.
    threshold
        Pairs of letters with a smaller posterior are left out.
    star
        Only pairs of the first sequence with every other; others have no entries together.

    Returns
    -------
    tuple of (begin, column, value)
        With N sequences, letter i of x and sequence y: row ``r = N * offset[x] + y *
        length(x) + i``; its pairs are ``begin[r]:begin[r + 1]``, `column` the letter of
        y (rising) and `value` the posterior.
    """
    cdef Py_ssize_t count = offset.shape[0] - 1, x, y, l, t, total
    cdef Py_ssize_t alphabet = ratio.shape[0]
    cdef int lanes
    cdef unsigned rounding
    cdef bint fine = True
    cdef Chain chain
    cdef Py_ssize_t firsts = min(1, count - 1) if star else count - 1
    cdef Py_ssize_t pairs = firsts * count - firsts * (firsts + 1) // 2
    cdef const unsigned char* others[LANES]
    cdef Py_ssize_t m[LANES]
    cdef Found* found = NULL
    cdef Entry* entry
    chain.match = 1 - 2 * (gaps[0] + gaps[3])
    chain.stay1 = gaps[1]
    chain.stay2 = gaps[4]
    chain.turn1 = gaps[0] * (1 - gaps[1])
    chain.turn2 = gaps[3] * (1 - gaps[4])
    chain.edge1 = gaps[2] * (1 - gaps[1])
    chain.edge2 = gaps[5] * (1 - gaps[4])
    begin_array = np.zeros(count * offset[count] + 1, np.int64)
    cdef long long[::1] begin = begin_array
    cdef int[::1] column
    cdef float[::1] value
    try:
        found = <Found*>malloc((pairs + LANES) * sizeof(Found))
        if found == NULL:
            PyErr_NoMemory()
        memset(found, 0, (pairs + LANES) * sizeof(Found))
        with nogil:
            t = 0
            rounding = flush_tiny()
            for x in range(firsts):
                y = x + 1
                while y < count and fine:
                    lanes = <int>min(LANES, count - y)
                    for l in range(LANES):
                        m[l] = 0
                        others[l] = NULL
                    for l in range(lanes):
                        others[l] = &letters[offset[y + l]]
                        m[l] = offset[y + l + 1] - offset[y + l]
                    fine = some_pairs(
                        &letters[offset[x]], offset[x + 1] - offset[x], others, m, lanes, margin,
                        &ratio[0, 0], alphabet, chain, <float>threshold, &found[t],
                    )
                    y += lanes
                    t += lanes
            flush_as(rounding)
        if not fine:
            PyErr_NoMemory()
        total = 0
        t = 0
        for x in range(firsts):
            for y in range(x + 1, count):
                for l in range(found[t].count):
                    entry = &found[t].entry[l]
                    begin[1 + place(offset, count, x, y) + entry.i] += 1
                    begin[1 + place(offset, count, y, x) + entry.j] += 1
                total += 2 * found[t].count
                t += 1
        np.cumsum(begin_array, out=begin_array)
        column_array = np.empty(total, np.int32)
        value_array = np.empty(total, np.float32)
        filled = np.array(begin_array)
        column = column_array
        value = value_array
        fill(found, offset, count, firsts, filled, column, value)
    finally:
        if found != NULL:
            for t in range(pairs):
                free(found[t].entry)
        free(found)
    return begin_array, column_array, value_array


cdef inline Py_ssize_t place(const long long[::1] offset, Py_ssize_t count, Py_ssize_t x, Py_ssize_t y) noexcept nogil:
    return count * offset[x] + y * (offset[x + 1] - offset[x])


cdef void fill(
    Found* found, const long long[::1] offset, Py_ssize_t count, Py_ssize_t firsts,
    long long[::1] filled, int[::1] column, float[::1] value,
) noexcept nogil:
    cdef Py_ssize_t x, y, l, t = 0, there, back
    cdef Entry* entry
    for x in range(firsts):
        for y in range(x + 1, count):
            there = place(offset, count, x, y)
            back = place(offset, count, y, x)
            for l in range(found[t].count - 1, -1, -1):
                entry = &found[t].entry[l]
                column[filled[there + entry.i]] = entry.j
                value[filled[there + entry.i]] = entry.p
                filled[there + entry.i] += 1
                column[filled[back + entry.j]] = entry.i
                value[filled[back + entry.j]] = entry.p
                filled[back + entry.j] += 1
            t += 1
