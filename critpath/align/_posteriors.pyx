"""Posterior probabilities of a pair-HMM, for all pairs of many sequences.

States: M pairs a letter of each sequence; X1, X2 put a letter of the first opposite a
gap, Y1, Y2 one of the second (short gaps and long ones).  Probabilities are plain
single-precision numbers, brought back to about 1 by powers of two every few rows; no
logarithm is taken.  Four pairs that share their first sequence run side by side in the
lanes of a vector, so that the same instructions do the work of four.
"""

from libc.math cimport frexp, ldexp, log10
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

import numpy as np

from cpython.exc cimport PyErr_NoMemory

include "_four_pairs.pxi"
include "_one_pair.pxi"

cdef enum:
    BLOCK = 24  # letters; fewer hardly make up for 1e38
    LACKS = 4   # beside what `one_pair` returns
    PAIRED = 3  # a letter with a partner makes up for so many without

# Decades.  Of the 38 lost a path wins back some by the gaps it does not have.
cdef float WORTH = 16.0
cdef float OPEN = 1.9
cdef float EXTEND = 0.1


cdef inline Py_ssize_t slots(Py_ssize_t low, Py_ssize_t high, Py_ssize_t width) noexcept nogil:
    """Return how many columns a row of the band has, with an empty one after its last."""
    return min(high - low + 2, width + 1)


cdef Py_ssize_t room_for(Py_ssize_t n, Py_ssize_t width, Py_ssize_t band, Py_ssize_t letters) noexcept nogil:
    return ((letters + 3) * width + (n + 1) * band) * sizeof(quad) + (n + 1) * LANES * sizeof(long long)


cdef int some_pairs(
    const unsigned char* x, Py_ssize_t n,
    const unsigned char** y, const Py_ssize_t* m, int pairs, Py_ssize_t least_band,
    const float* ratio, Py_ssize_t letters, Chain chain, float threshold, Found* found,
    long long* wide_cells,
) noexcept nogil:
    """Run `four_pairs` in a band that is widened until it can be trusted.

    A path outside leaves more letters unpaired than the band is wide on that side.
    It is kept if in each lane fewer letters than that, of the shorter sequence, have no
    partner of a posterior above a half.  Lanes whose result looks as if something was lost
    (see `lacks_a_block`) are run again by `one_pair`, as long as there are `wide_cells`.
    """
    cdef Py_ssize_t width = 0, low = 0, high = 0, margin = least_band
    cdef Py_ssize_t left, right
    cdef int l, result
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
            return NO_MEMORY
        for l in range(pairs):
            found[l].count = 0
            found[l].odd = False
        fine = four_pairs(
            x, n, y, m, pairs, width, left, right, ratio, letters, chain, threshold, memory, found,
        )
        free(memory)
        if not fine:
            return NO_MEMORY
        if left == -n and right == width:
            break
        for l in range(pairs):
            if unpaired(&found[l], n, m[l]) >= margin:
                fine = False
        if fine:
            break
        margin *= 4
    for l in range(pairs):
        if found[l].odd or unpaired(&found[l], n, m[l]) >= BLOCK:
            result = LACKS if found[l].odd else lacks_a_block(
                x, n, y[l], m[l], ratio, letters, &found[l]
            )
            if result == LACKS:
                result = wide_pair(
                    x, n, y[l], m[l], margin, ratio, letters, chain, threshold, &found[l], wide_cells,
                )
            if result != DONE:
                return result
    for l in range(pairs):
        trim(&found[l])
    return DONE


cdef Py_ssize_t unpaired(Found* found, Py_ssize_t n, Py_ssize_t m) noexcept nogil:
    """Return how many letters of the shorter sequence have no partner above a half."""
    cdef Py_ssize_t e, paired = 0
    for e in range(found.count):
        paired += found.entry[e].p > 0.5
    return min(n, m) - paired


cdef int lacks_a_block(
    const unsigned char* x, Py_ssize_t n, const unsigned char* y, Py_ssize_t m,
    const float* ratio, Py_ssize_t letters, Found* found,
) noexcept nogil:
    """Return LACKS if a block of letters without partners could have been paired, or DONE.

    A path lost although it wins gains 1e38 on the paths kept, with letters close together
    that these do not pair.  So both sequences have a stretch where hardly a letter has
    partners (one that could have several, as in loops, has), and a local alignment of
    what has none is worth much; or a letter has partners of more than 1 in all.
    """
    cdef float* of_x = <float*>malloc((n + m) * (sizeof(float) + 1))
    cdef float* of_y = of_x + n
    cdef unsigned char* in_x = <unsigned char*>(of_y + m)
    cdef unsigned char* in_y = in_x + n
    cdef Py_ssize_t e
    cdef int result = DONE
    if of_x == NULL:
        return NO_MEMORY
    memset(of_x, 0, (n + m) * sizeof(float))
    for e in range(found.count):
        of_x[found.entry[e].i] += found.entry[e].p
        of_y[found.entry[e].j] += found.entry[e].p
    for e in range(n + m):
        in_x[e] = of_x[e] > 0.5
        if of_x[e] > MUCH:
            result = LACKS
    if result == DONE and longest_lack(in_x, n) >= BLOCK and longest_lack(in_y, m) >= BLOCK:
        result = local_worth(x, n, in_x, y, m, in_y, ratio, letters)
    free(of_x)
    return result


cdef int local_worth(
    const unsigned char* x, Py_ssize_t n, const unsigned char* in_x,
    const unsigned char* y, Py_ssize_t m, const unsigned char* in_y,
    const float* ratio, Py_ssize_t letters,
) noexcept nogil:
    """Return LACKS if the letters not marked have a local alignment worth `WORTH` decades.

    Smith and Waterman 1981, Gotoh 1982; what is marked is skipped at no cost.
    """
    cdef Py_ssize_t i, j, others = 0
    cdef float* best = <float*>malloc((2 * m + letters * letters) * sizeof(float))
    cdef unsigned char* rest = <unsigned char*>malloc(m)
    cdef float* gap = best + m
    cdef float* worth = gap + m
    cdef const float* line
    cdef float diagonal, here, across, above
    cdef int result = DONE
    if best == NULL or rest == NULL:
        free(best)
        free(rest)
        return NO_MEMORY
    for i in range(letters * letters):
        worth[i] = <float>log10(max(ratio[i], 1e-9))
    for j in range(m):
        if not in_y[j]:
            rest[others] = y[j]
            others += 1
    memset(best, 0, 2 * m * sizeof(float))
    for i in range(n):
        if in_x[i]:
            continue
        line = worth + x[i] * letters
        diagonal = 0
        across = 0
        for j in range(others):
            here = diagonal + line[rest[j]]
            here = max(here, max(across, gap[j]))
            here = max(here, <float>0)
            diagonal = best[j]
            best[j] = here
            above = here - OPEN
            across = max(across - EXTEND, above)
            gap[j] = max(gap[j] - EXTEND, above)
            if here > WORTH:
                result = LACKS
        if result == LACKS:
            break
    free(best)
    free(rest)
    return result


cdef Py_ssize_t longest_lack(const unsigned char* paired, Py_ssize_t n) noexcept nogil:
    """Return the largest sum of a stretch: 1 for a letter alone, -PAIRED for one with a partner."""
    cdef Py_ssize_t i, here = 0, most = 0
    for i in range(n):
        here = max(0, here - PAIRED if paired[i] else here + 1)
        most = max(most, here)
    return most


cdef int wide_pair(
    const unsigned char* x, Py_ssize_t n, const unsigned char* y, Py_ssize_t m, Py_ssize_t margin,
    const float* ratio, Py_ssize_t letters, Chain chain, float threshold, Found* found,
    long long* wide_cells,
) noexcept nogil:
    """Run `one_pair` in a band, widened as by `some_pairs`."""
    cdef Py_ssize_t left, right
    cdef int result
    while True:
        left = max(min(0, m - n) - margin, -n)
        right = min(max(0, m - n) + margin, m + 2)
        wide_cells[0] -= n * slots(left, right, m + 2)
        if wide_cells[0] < 0:
            return TOO_MUCH
        found.count = 0
        result = one_pair(x, n, y, m, left, right, ratio, letters, chain, threshold, found)
        if result != DONE or (left == -n and right == m + 2) or unpaired(found, n, m) < margin:
            return result
        margin *= 4


cdef void trim(Found* found) noexcept nogil:
    """Give back what was reserved in vain."""
    cdef Entry* smaller
    if found.count and found.count < found.room:
        smaller = <Entry*>realloc(found.entry, found.count * sizeof(Entry))
        if smaller != NULL:
            found.entry = smaller
            found.room = found.count


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
    Py_ssize_t most,
    long long wide_cells,
):
    """Return the likely pairs of letters of all pairs of sequences, None if that is too much.

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
    most
        Entries of the result at most.
    wide_cells
        Cells done in numbers of a wide range at most.

    Returns
    -------
    tuple of (begin, column, value) or None
        With N sequences, letter i of x and sequence y: row ``r = N * offset[x] + y *
        length(x) + i``; its pairs are ``begin[r]:begin[r + 1]``, `column` the letter of
        y (rising) and `value` the posterior.
    """
    cdef Py_ssize_t count = offset.shape[0] - 1, x, y, l, t, total = 0
    cdef Py_ssize_t alphabet = ratio.shape[0]
    cdef int lanes
    cdef unsigned rounding
    cdef int result = DONE
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
    cdef long long[::1] begin
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
                while y < count and result == DONE:
                    lanes = <int>min(LANES, count - y)
                    for l in range(LANES):
                        m[l] = 0
                        others[l] = NULL
                    for l in range(lanes):
                        others[l] = &letters[offset[y + l]]
                        m[l] = offset[y + l + 1] - offset[y + l]
                    result = some_pairs(
                        &letters[offset[x]], offset[x + 1] - offset[x], others, m, lanes, margin,
                        &ratio[0, 0], alphabet, chain, <float>threshold, &found[t],
                        &wide_cells,
                    )
                    for l in range(lanes):
                        total += 2 * found[t + l].count
                    if result == DONE and total > most:
                        result = TOO_MUCH
                    y += lanes
                    t += lanes
            flush_as(rounding)
        if result == NO_MEMORY:
            PyErr_NoMemory()
        if result != DONE:
            return None
        begin_array = np.zeros(count * offset[count] + 1, np.int64)
        begin = begin_array
        t = 0
        for x in range(firsts):
            for y in range(x + 1, count):
                for l in range(found[t].count):
                    entry = &found[t].entry[l]
                    begin[1 + place(offset, count, x, y) + entry.i] += 1
                    begin[1 + place(offset, count, y, x) + entry.j] += 1
                t += 1
        np.cumsum(begin_array, out=begin_array)
        column_array = np.empty(total, np.int32)
        value_array = np.empty(total, np.float32)
        column = column_array
        value = value_array
        # Rows are filled by their beginnings, which end up where the next one begins.
        fill(found, offset, count, firsts, begin, column, value)
        begin_array[1:] = begin_array[:-1].copy()
        begin_array[0] = 0
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
            free(found[t].entry)
            found[t].entry = NULL
            t += 1
