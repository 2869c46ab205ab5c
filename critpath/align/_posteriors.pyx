"""Posterior probabilities of a pair-HMM, for all pairs of many sequences.

States: M pairs a letter of each sequence; X1, X2 put a letter of the first opposite a
gap, Y1, Y2 one of the second (short gaps and long ones).  Probabilities are plain
single-precision numbers, brought back to about 1 by powers of two every few rows; no
logarithm is taken.  Four pairs that share their first sequence run side by side in the
lanes of a vector, so that the same instructions do the work of four.
"""

from libc.math cimport frexp, ldexp, log10
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

import numpy as np

from cpython.exc cimport PyErr_NoMemory

# -------------------------------------------------------------------------- four pairs side by side

# A vector type of GCC and Clang, on every processor; Cython takes it for a number.
cdef extern from *:
    """
    #ifdef __SSE2__
    #include <xmmintrin.h>
    /* What has died out is zero at once: numbers below 1e-38 are very slow here. */
    static inline unsigned flush_tiny(void) {
        unsigned before = _mm_getcsr();
        _mm_setcsr(before | 0x8040);
        return before;
    }
    static inline void flush_as(unsigned before) { _mm_setcsr(before); }
    #else
    static inline unsigned flush_tiny(void) { return 0; }
    static inline void flush_as(unsigned before) { (void)before; }
    #endif
    typedef float quad __attribute__((vector_size(16)));
    typedef int quad_mask __attribute__((vector_size(16)));
    static inline quad quad_of(float x) { return (quad){x, x, x, x}; }
    static inline quad quad_max(quad a, quad b) {
        quad_mask m = a > b;
        return (quad)((m & (quad_mask)a) | (~m & (quad_mask)b));
    }
    static inline int quad_any_above(quad a, quad b) {
        union { quad_mask m; long long w[2]; } u;
        u.m = a > b;
        return (u.w[0] | u.w[1]) != 0;
    }
    """
    ctypedef float quad
    quad quad_of(float x) noexcept nogil
    quad quad_max(quad a, quad b) noexcept nogil
    bint quad_any_above(quad a, quad b) noexcept nogil
    unsigned flush_tiny() noexcept nogil
    void flush_as(unsigned before) noexcept nogil

cdef enum:
    LANES = 4
    RESCALE = 4  # rows between two rescalings: ratios stay below 1e9 a row

cdef float MUCH = 1.001  # no chance; more than rounding makes of one

cdef struct Entry:
    int i
    int j
    float p

cdef struct Found:
    Entry* entry
    Py_ssize_t count
    Py_ssize_t room
    bint odd  # some figure cannot be right: what mattered was lost

cdef struct Chain:
    float match
    float turn1    # open * close of a gap, short
    float turn2
    float stay1
    float stay2
    float edge1    # the same of a gap at either end
    float edge2


cdef bint push(Found* found, int i, int j, float p) noexcept nogil:
    cdef Py_ssize_t room
    cdef Entry* grown
    if found.count == found.room:
        room = 2 * found.room + 64
        grown = <Entry*>realloc(found.entry, room * sizeof(Entry))
        if grown == NULL:
            return False
        found.entry = grown
        found.room = room
    found.entry[found.count].i = i
    found.entry[found.count].j = j
    found.entry[found.count].p = p
    found.count += 1
    return True


cdef void rescale(
    quad** rows, int count, Py_ssize_t first, Py_ssize_t last, quad top, long long* power,
) noexcept nogil:
    """Bring the largest value of each lane back to about 1, exactly."""
    cdef float* lane = <float*>&top
    cdef quad factor
    cdef float* factors = <float*>&factor
    cdef int l, exponent, r
    cdef Py_ssize_t j
    for l in range(LANES):
        exponent = 0
        if lane[l] > 0:
            frexp(lane[l], &exponent)
        factors[l] = <float>ldexp(1.0, -exponent)
        power[l] += exponent
    for r in range(count):
        for j in range(first, last + 1):
            rows[r][j] = rows[r][j] * factor


cdef bint four_pairs(
    const unsigned char* x, Py_ssize_t n,
    const unsigned char** y, const Py_ssize_t* m, int pairs, Py_ssize_t width,
    Py_ssize_t low, Py_ssize_t high,
    const float* ratio, Py_ssize_t letters, Chain chain, float threshold,
    void* memory, Found* found,
) noexcept nogil:
    """Find the pairs of letters with a posterior above ``threshold``.

    Only cells with ``low <= j - i <= high`` are looked at.  ``found[l]`` receives what
    lane l has, last ones first.  ``memory``: see `room_for`.
    """
    cdef Py_ssize_t i, j, c, first, last, band = slots(low, high, width)
    cdef int l
    cdef long long power[LANES]
    cdef bint occurs[256]
    cdef quad* emit = <quad*>memory                   # [letters][width]
    cdef quad* kept = emit + letters * width          # [n + 1][band]: M of row i from column max(0, i + low)
    cdef quad* x1 = kept + (n + 1) * band
    cdef quad* x2 = x1 + width
    cdef quad* leave = x2 + width
    cdef long long* exponent = <long long*>(leave + width)   # [n + 1][LANES]
    cdef quad match = quad_of(chain.match), zero = quad_of(0.0)
    cdef quad turn1 = quad_of(chain.turn1), turn2 = quad_of(chain.turn2)
    cdef quad stay1 = quad_of(chain.stay1), stay2 = quad_of(chain.stay2)
    cdef quad y1, y2, diagonal, now, top, ahead, least, p, factor
    cdef quad* rows[4]
    cdef quad* row
    cdef quad* before
    cdef const quad* line
    cdef float* lane
    cdef double z[LANES]
    cdef double total
    cdef float chance

    memset(occurs, 0, sizeof(occurs))
    for i in range(n):
        occurs[x[i]] = True
    for c in range(letters):
        if occurs[c]:
            memset(emit + c * width, 0, width * sizeof(quad))
            for l in range(pairs):
                for j in range(m[l]):
                    (<float*>&emit[c * width + j + 1])[l] = ratio[c * letters + y[l][j]]

    # Forward.  x1, x2, y1, y2: the gap states times the probability of closing them;
    # leave: all that may go on to a match.
    y1 = quad_of(chain.edge1)
    y2 = quad_of(chain.edge2)
    leave[0] = quad_of(1.0)
    for j in range(1, width):
        leave[j] = y1 + y2
        y1 = y1 * stay1
        y2 = y2 * stay2
    memset(x1, 0, 2 * width * sizeof(quad))
    memset(kept, 0, band * sizeof(quad))
    memset(power, 0, sizeof(power))
    x1[0] = quad_of(chain.edge1)
    x2[0] = quad_of(chain.edge2)
    for i in range(1, n + 1):
        row = kept + i * band - max(0, i + low)
        before = kept + (i - 1) * band - max(0, i - 1 + low)
        line = emit + x[i - 1] * width
        first = max(1, i + low)
        last = min(width - 1, i + high)
        diagonal = leave[first - 1]
        top = zero
        if first == 1:
            if i > 1:
                x1[0] = x1[0] * stay1
                x2[0] = x2[0] * stay2
            leave[0] = x1[0] + x2[0]
            top = leave[0]
            if low + i <= 0:
                row[0] = zero
        now = zero
        y1 = zero
        y2 = zero
        for j in range(first, last + 1):
            y1 = turn1 * now + stay1 * y1
            y2 = turn2 * now + stay2 * y2
            now = line[j] * diagonal
            row[j] = now
            x1[j] = turn1 * before[j] + stay1 * x1[j]
            x2[j] = turn2 * before[j] + stay2 * x2[j]
            diagonal = leave[j]
            leave[j] = match * now + ((x1[j] + x2[j]) + (y1 + y2))
            top = quad_max(top, leave[j])
        row[last + 1] = zero
        if i % RESCALE == 0 and i < n:
            rows[0] = x1
            rows[1] = x2
            rows[2] = leave
            rows[3] = row
            rescale(rows, 4, first - 1, last, top, power)
        for l in range(LANES):
            exponent[i * LANES + l] = power[l]

    # Every path has its last match in row n or in the last column of its lane.
    for l in range(LANES):
        z[l] = 1.0
    row = kept + n * band - max(0, n + low)
    for l in range(pairs):
        total = (<float*>&row[m[l]])[l]
        for j in range(max(1, n + low), m[l]):
            total += (<float*>&row[j])[l] * edge_gap(chain, m[l] - j)
        for i in range(max(1, m[l] - high), n):
            if i + low <= m[l]:
                total += ldexp(
                    (<float*>&kept[i * band + m[l] - max(0, i + low)])[l] * edge_gap(chain, n - i),
                    <int>(exponent[i * LANES + l] - exponent[n * LANES + l]),
                )
        if 0 < total < 1e300:
            z[l] = 1 / total
        else:
            found[l].odd = True

    # Backward.  leave: emission times all that may follow a match.
    least = quad_of(threshold)
    memset(x1, 0, 3 * width * sizeof(quad))
    for l in range(pairs):
        (<float*>&x1[m[l]])[l] = chain.edge1
        (<float*>&x2[m[l]])[l] = chain.edge2
    memset(power, 0, sizeof(power))
    for i in range(n, 0, -1):
        row = kept + i * band - max(0, i + low)
        line = emit + x[i - 1] * width
        first = max(1, i + low)
        last = min(width - 1, i + high)
        lane = <float*>&factor
        for l in range(LANES):
            lane[l] = <float>min(
                ldexp(z[l], <int>(exponent[i * LANES + l] - exponent[n * LANES + l] + power[l])), 1e37
            )
        y1 = zero
        y2 = zero
        ahead = leave[last + 1] if last < width - 1 else zero
        top = zero
        for j in range(last, first - 1, -1):
            now = match * ahead + ((x1[j] + x2[j]) + (y1 + y2))
            if i == n:
                # The path ends here; x1 and x2 hold a last gap of the other kind.
                now = y1 + y2
                for l in range(pairs):
                    if j == m[l]:
                        (<float*>&now)[l] += 1
                y1 = stay1 * y1 + x1[j]
                y2 = stay2 * y2 + x2[j]
            else:
                x1[j] = turn1 * ahead + stay1 * x1[j]
                x2[j] = turn2 * ahead + stay2 * x2[j]
                y1 = turn1 * ahead + stay1 * y1
                y2 = turn2 * ahead + stay2 * y2
            ahead = leave[j]
            leave[j] = line[j] * now
            top = quad_max(top, now)
            p = (row[j] * factor) * now
            if quad_any_above(p, least):
                for l in range(pairs):
                    chance = (<float*>&p)[l]
                    if chance > threshold:
                        if chance > 1:
                            found[l].odd = found[l].odd or chance > MUCH
                            chance = 1
                        if not push(&found[l], <int>i - 1, <int>j - 1, chance):
                            return False
        if i % RESCALE == 0:
            rows[0] = x1
            rows[1] = x2
            rows[2] = leave
            rescale(rows, 3, first, last, top, power)
    return True
# -------------------------------------------------------------- one pair in numbers of a wide range
#
# Of two ways to go on from one row of `four_pairs`, the one that is 1e38 times less likely is
# lost, even where it wins in the end: long blocks in swapped order, or one missing.  A double has
# 1e247 below what is not rescaled; where that may be too few, a long double has 1e4900 on x86, more
# than 3,000 letters can make up for; where it is no more than a double, a sum of zero says so.

cdef extern from "<math.h>" nogil:
    long double frexpl(long double, int*)
    long double ldexpl(long double, int)

ctypedef fused wide:
    double
    long double

cdef enum:
    NO_MEMORY = 0
    DONE = 1
    LOST = 2  # no sum, be it that the range was too small
    TOO_MUCH = 3


cdef void rescale_one(
    wide** rows, int count, Py_ssize_t first, Py_ssize_t last, wide top, int* power
) noexcept nogil:
    cdef int exponent = 0, r
    cdef Py_ssize_t j
    cdef wide factor
    if top > 0:
        frexpl(top, &exponent)
    if -200 < exponent < 200:
        return
    factor = <wide>ldexpl(1, -exponent)
    power[0] += exponent
    for r in range(count):
        for j in range(first, last + 1):
            rows[r][j] = rows[r][j] * factor


cdef int one_pair(
    const unsigned char* x, Py_ssize_t n, const unsigned char* y, Py_ssize_t m,
    Py_ssize_t low, Py_ssize_t high,
    const float* ratio, Py_ssize_t letters, Chain chain, float threshold, Found* found, wide kind,
) noexcept nogil:
    """Do as `four_pairs` does with one lane, in numbers of a kind."""
    cdef Py_ssize_t width = m + 2, band = slots(low, high, width), i, j, first, last
    cdef wide* kept = <wide*>malloc(((n + 1) * band + 3 * width) * sizeof(wide) + (n + 1) * sizeof(int))
    if kept == NULL:
        return NO_MEMORY
    cdef wide* x1 = kept + (n + 1) * band
    cdef wide* x2 = x1 + width
    cdef wide* leave = x2 + width
    cdef int* exponent = <int*>(leave + width)
    cdef int power = 0, result = DONE
    cdef wide match = chain.match, turn1 = chain.turn1, turn2 = chain.turn2
    cdef wide stay1 = chain.stay1, stay2 = chain.stay2
    cdef wide y1 = chain.edge1, y2 = chain.edge2, now, diagonal, top, ahead, total, factor, p
    cdef wide* rows[4]
    cdef wide* row
    cdef wide* before
    cdef const float* line
    leave[0] = 1
    for j in range(1, width):
        leave[j] = y1 + y2
        y1 = y1 * stay1
        y2 = y2 * stay2
    memset(x1, 0, 2 * width * sizeof(wide))
    memset(kept, 0, band * sizeof(wide))
    x1[0] = chain.edge1
    x2[0] = chain.edge2
    for i in range(1, n + 1):
        row = kept + i * band - max(0, i + low)
        before = kept + (i - 1) * band - max(0, i - 1 + low)
        line = ratio + x[i - 1] * letters
        first = max(1, i + low)
        last = min(m, i + high)
        diagonal = leave[first - 1]
        top = 0
        if first == 1:
            if i > 1:
                x1[0] = x1[0] * stay1
                x2[0] = x2[0] * stay2
            leave[0] = x1[0] + x2[0]
            top = leave[0]
            if low + i <= 0:
                row[0] = 0
        now = 0
        y1 = 0
        y2 = 0
        for j in range(first, last + 1):
            y1 = turn1 * now + stay1 * y1
            y2 = turn2 * now + stay2 * y2
            now = line[y[j - 1]] * diagonal
            row[j] = now
            x1[j] = turn1 * before[j] + stay1 * x1[j]
            x2[j] = turn2 * before[j] + stay2 * x2[j]
            diagonal = leave[j]
            leave[j] = match * now + ((x1[j] + x2[j]) + (y1 + y2))
            top = max(top, leave[j])
        row[last + 1] = 0
        if i < n:
            rows[0] = x1
            rows[1] = x2
            rows[2] = leave
            rows[3] = row
            rescale_one(rows, 4, first - 1, last, top, &power)
        exponent[i] = power

    row = kept + n * band - max(0, n + low)
    total = row[m]
    for j in range(max(1, n + low), m):
        total += row[j] * edge_gap(chain, m - j)
    for i in range(max(1, m - high), n):
        if i + low <= m:
            total += <wide>ldexpl(
                kept[i * band + m - max(0, i + low)] * edge_gap(chain, n - i),
                exponent[i] - exponent[n],
            )
    if wide is double:
        if not 1e-150 < total < 1e150:
            result = LOST
    elif not 0 < total < ldexpl(1, 1000) * ldexpl(1, 20):
        result = LOST
    if result == LOST:
        free(kept)
        return LOST

    memset(x1, 0, 3 * width * sizeof(wide))
    x1[m] = chain.edge1
    x2[m] = chain.edge2
    power = 0
    for i in range(n, 0, -1):
        row = kept + i * band - max(0, i + low)
        line = ratio + x[i - 1] * letters
        first = max(1, i + low)
        last = min(m, i + high)
        factor = <wide>ldexpl(1 / total, exponent[i] - exponent[n] + power)
        if wide is double:
            if not factor < 1e240:
                result = LOST
        y1 = 0
        y2 = 0
        ahead = leave[last + 1]
        top = 0
        for j in range(last, first - 1, -1):
            now = match * ahead + ((x1[j] + x2[j]) + (y1 + y2))
            if i == n:
                now = y1 + y2
                if j == m:
                    now = now + 1
                y1 = stay1 * y1 + x1[j]
                y2 = stay2 * y2 + x2[j]
            else:
                x1[j] = turn1 * ahead + stay1 * x1[j]
                x2[j] = turn2 * ahead + stay2 * x2[j]
                y1 = turn1 * ahead + stay1 * y1
                y2 = turn2 * ahead + stay2 * y2
            ahead = leave[j]
            leave[j] = line[y[j - 1]] * now
            top = max(top, now)
            p = row[j] * factor * now
            if p > threshold:
                found.odd = found.odd or p > MUCH
                if not push(found, <int>i - 1, <int>j - 1, <float>min(p, <wide>1)):
                    result = NO_MEMORY
        rows[0] = x1
        rows[1] = x2
        rows[2] = leave
        rescale_one(rows, 3, first, last, top, &power)
    free(kept)
    return result

# -------------------------------------------------------------------------------- all pairs

cdef enum:
    BLOCK = 24  # letters; fewer hardly make up for 1e38
    LACKS = 4   # beside what `one_pair` returns
    PAIRED = 3  # a letter with a partner makes up for so many without
    HELD = 4
    MOST_ROOM = 1 << 28  # bytes for four pairs at once

# Decades.  Of the 38 lost a path wins back some by the gaps it does not have.
cdef float WORTH = 16.0
cdef float WORTH_OF_DOUBLE = 225.0
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
    long long* cells, long long* wide_cells,
) noexcept nogil:
    """Run `four_pairs` in a band that is widened until it can be trusted.

    A path outside leaves more letters unpaired than the band is wide on that side.
    It is kept if in each lane fewer letters than that, of the shorter sequence, have no
    partner of a posterior above a half.  Lanes whose result looks as if something was lost
    (see `lacks_a_block`) are run again by `one_pair`.  TOO_MUCH where no `cells` are left, or
    `wide_cells` of those of `one_pair`.
    """
    cdef Py_ssize_t width = 0, low = 0, high = 0, margin = least_band
    cdef Py_ssize_t left, right, band, room
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
        band = slots(left, right, width)
        room = room_for(n, width, band, letters)
        cells[0] -= n * band * pairs
        if cells[0] < 0 or room > MOST_ROOM:
            return TOO_MUCH
        memory = malloc(room)
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
                x, n, y[l], m[l], ratio, letters, WORTH, &found[l]
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
    """Return how many letters of a stretch of the shorter sequence have no partner above a half.

    A path that leaves the band does so in some stretch, where it is better by what has no partner
    there; letters with one, `HELD` to one without, end the stretch.
    """
    cdef Py_ssize_t e, i, here = 0, most = 0, length = min(n, m)
    cdef unsigned char* paired = <unsigned char*>calloc(length, 1)
    if paired == NULL:
        return length
    for e in range(found.count):
        if found.entry[e].p > 0.5:
            paired[found.entry[e].i if n <= m else found.entry[e].j] = 1
    for i in range(length):
        here = max(0, here - 1 if paired[i] else here + HELD)
        most = max(most, here)
    free(paired)
    return (most + HELD - 1) // HELD


cdef int lacks_a_block(
    const unsigned char* x, Py_ssize_t n, const unsigned char* y, Py_ssize_t m,
    const float* ratio, Py_ssize_t letters, float least, Found* found,
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
        result = local_worth(x, n, in_x, y, m, in_y, ratio, letters, least)
    free(of_x)
    return result


cdef int local_worth(
    const unsigned char* x, Py_ssize_t n, const unsigned char* in_x,
    const unsigned char* y, Py_ssize_t m, const unsigned char* in_y,
    const float* ratio, Py_ssize_t letters, float least,
) noexcept nogil:
    """Return LACKS if the letters not marked have a local alignment worth so many decades.

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
            if here > least:
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
    """Run `one_pair` in a band, widened as by `some_pairs`; in doubles until these are too narrow."""
    cdef Py_ssize_t left, right
    cdef int result
    cdef bint narrow = True
    while True:
        left = max(min(0, m - n) - margin, -n)
        right = min(max(0, m - n) + margin, m + 2)
        wide_cells[0] -= n * slots(left, right, m + 2)
        if wide_cells[0] < 0 or n * slots(left, right, m + 2) * <Py_ssize_t>sizeof(long double) > MOST_ROOM:
            return TOO_MUCH
        if narrow:
            found.count = 0
            found.odd = False
            result = one_pair(
                x, n, y, m, left, right, ratio, letters, chain, threshold, found, <double>0
            )
            if result == DONE:
                result = LACKS if found.odd else lacks_a_block(
                    x, n, y, m, ratio, letters, WORTH_OF_DOUBLE, found
                )
            narrow = result == DONE
        if not narrow:
            found.count = 0
            result = one_pair(
                x, n, y, m, left, right, ratio, letters, chain, threshold, found, <long double>0
            )
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
    long long cells,
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
    cells, wide_cells
        Pairs of letters looked at at most, and those in numbers of a wide range.

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
                        &cells, &wide_cells,
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
