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

# A vector type of GCC and Clang, on every processor; Cython takes it for a number.
cdef extern from *:
    """
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

cdef enum:
    LANES = 4
    RESCALE = 4  # rows between two rescalings: ratios stay below 1e9 a row
cdef float TINY = 1e-30  # keeps what has died out from becoming denormal, and slow

cdef struct Entry:
    int i
    int j
    float p

cdef struct Found:
    Entry* entry
    Py_ssize_t count
    Py_ssize_t room

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
        room = 2 * found.room + 256
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


cdef void rescale(quad** rows, int count, Py_ssize_t width, quad top, long long* exponent) noexcept nogil:
    """Bring the largest value of each lane back to about 1, exactly."""
    cdef float* lane = <float*>&top
    cdef quad factor
    cdef float* factors = <float*>&factor
    cdef int l, power, r
    cdef Py_ssize_t j
    for l in range(LANES):
        power = 0
        if lane[l] > 0:
            frexp(lane[l], &power)
        factors[l] = <float>ldexp(1.0, -power)
        exponent[l] += power
    for r in range(count):
        for j in range(width):
            rows[r][j] = rows[r][j] * factor


cdef bint four_pairs(
    const unsigned char* x, Py_ssize_t n,
    const unsigned char** y, const Py_ssize_t* m, int pairs,
    const float* ratio, Py_ssize_t letters, Chain chain, float threshold,
    void* memory, Found* found,
) noexcept nogil:
    """Find the pairs of letters with a posterior above ``threshold``.

    ``found[l]`` receives those of lane l, last ones first.  ``memory``: see `room_for`.
    """
    cdef Py_ssize_t width = 0, i, j, c
    cdef int l
    cdef long long power[LANES]
    cdef long long base[LANES]
    for l in range(LANES):
        if m[l] > width:
            width = m[l]
    width += 2
    cdef quad* emit = <quad*>memory                   # [letters][width]
    cdef quad* kept = emit + letters * width          # [n + 1][width]
    cdef quad* x1 = kept + (n + 1) * width
    cdef quad* x2 = x1 + width
    cdef quad* leave = x2 + width
    cdef quad* above = leave + width
    cdef long long* exponent = <long long*>(above + width)   # [n + 1][LANES]
    cdef quad match = quad_of(chain.match), zero = quad_of(0.0), tiny = quad_of(TINY)
    cdef quad turn1 = quad_of(chain.turn1), turn2 = quad_of(chain.turn2)
    cdef quad stay1 = quad_of(chain.stay1), stay2 = quad_of(chain.stay2)
    cdef quad edge1 = quad_of(chain.edge1), edge2 = quad_of(chain.edge2)
    cdef quad y1, y2, diagonal, now, top, ahead, total, least, p, factor, last1, last2
    cdef quad* rows[4]
    cdef quad* row
    cdef quad* before
    cdef const quad* line
    cdef float* lane
    cdef double z[LANES]
    cdef double scale

    memset(emit, 0, letters * width * sizeof(quad))
    for c in range(letters):
        for l in range(pairs):
            for j in range(m[l]):
                (<float*>&emit[c * width + j + 1])[l] = ratio[c * letters + y[l][j]]

    # Forward.  x1, x2: the gap states times the probability of closing them.
    y1 = edge1
    y2 = edge2
    kept[0] = zero
    leave[0] = quad_of(1.0)
    for j in range(1, width):
        kept[j] = zero
        x1[j] = zero
        x2[j] = zero
        leave[j] = y1 + y2
        y1 = y1 * stay1
        y2 = y2 * stay2
    x1[0] = zero
    x2[0] = zero
    for l in range(LANES):
        power[l] = 0
        exponent[l] = 0
    for i in range(1, n + 1):
        row = kept + i * width
        before = row - width
        line = emit + x[i - 1] * width
        if i == 1:
            x1[0] = edge1
            x2[0] = edge2
        else:
            x1[0] = x1[0] * stay1
            x2[0] = x2[0] * stay2
        diagonal = leave[0]
        leave[0] = x1[0] + x2[0]
        row[0] = zero
        now = zero
        y1 = zero
        y2 = zero
        top = leave[0]
        for j in range(1, width):
            y1 = turn1 * now + stay1 * y1
            y2 = turn2 * now + stay2 * y2
            now = line[j] * diagonal + tiny
            row[j] = now
            x1[j] = turn1 * before[j] + stay1 * x1[j]
            x2[j] = turn2 * before[j] + stay2 * x2[j]
            diagonal = leave[j]
            leave[j] = match * now + ((x1[j] + x2[j]) + (y1 + y2))
            top = quad_max(top, leave[j])
        for l in range(LANES):
            exponent[i * LANES + l] = power[l]
        if i % RESCALE == 0 and i < n:
            rows[0] = x1
            rows[1] = x2
            rows[2] = leave
            rows[3] = row
            rescale(rows, 4, width, top, power)
            for l in range(LANES):
                exponent[i * LANES + l] = power[l]

    # All paths end in row n, column m of their lane.
    row = kept + n * width
    for l in range(LANES):
        z[l] = 1.0
        base[l] = exponent[n * LANES + l]
    for l in range(pairs):
        z[l] = (<float*>&row[m[l]])[l]
    # A last gap of the first sequence ends in column m of an earlier match, one of the
    # second in row n; both are sums over where the last match was.
    for l in range(pairs):
        scale = 0.0
        for j in range(1, m[l]):
            # closed form: edge * stay ** (gap - 1)
            scale += (<float*>&row[j])[l] * tail(chain, m[l] - j)
        z[l] += scale
        scale = 0.0
        for i in range(1, n):
            c = exponent[i * LANES + l] - base[l]
            scale += ldexp((<float*>&kept[i * width + m[l]])[l], <int>c) * tail(chain, n - i)
        z[l] += scale

    # Backward.  above: emission times what follows a match; x1, x2 times opening.
    least = quad_of(threshold)
    for j in range(width):
        x1[j] = zero
        x2[j] = zero
        leave[j] = zero
    for l in range(pairs):
        (<float*>&x1[m[l]])[l] = chain.edge1
        (<float*>&x2[m[l]])[l] = chain.edge2
        (<float*>&leave[m[l]])[l] = 1.0
    for l in range(LANES):
        power[l] = 0
    for i in range(n, 0, -1):
        row = kept + i * width
        line = emit + x[i - 1] * width
        lane = <float*>&factor
        for l in range(LANES):
            lane[l] = 0.0
        for l in range(pairs):
            lane[l] = <float>min(ldexp(1.0 / z[l], <int>(exponent[i * LANES + l] + power[l] - base[l])), 1e37)
        y1 = zero
        y2 = zero
        ahead = zero
        top = zero
        if i == n:
            for j in range(width - 1, 0, -1):
                now = leave[j] + (y1 + y2)
                y1 = stay1 * y1 + x1[j]
                y2 = stay2 * y2 + x2[j]
                p = (row[j] * factor) * now
                above[j] = line[j] * now
                top = quad_max(top, now)
                if quad_any_above(p, least):
                    for l in range(pairs):
                        if (<float*>&p)[l] > threshold:
                            if not push(&found[l], <int>i - 1, <int>j - 1, (<float*>&p)[l]):
                                return False
        else:
            for j in range(width - 1, 0, -1):
                now = match * ahead + ((x1[j] + x2[j]) + (y1 + y2))
                x1[j] = turn1 * ahead + stay1 * x1[j]
                x2[j] = turn2 * ahead + stay2 * x2[j]
                y1 = turn1 * ahead + stay1 * y1
                y2 = turn2 * ahead + stay2 * y2
                ahead = above[j]
                p = (row[j] * factor) * now
                above[j] = line[j] * now + tiny
                top = quad_max(top, now)
                if quad_any_above(p, least):
                    for l in range(pairs):
                        if (<float*>&p)[l] > threshold:
                            if not push(&found[l], <int>i - 1, <int>j - 1, (<float*>&p)[l]):
                                return False
        if i % RESCALE == 0:
            rows[0] = x1
            rows[1] = x2
            rows[2] = above
            rescale(rows, 3, width, top, power)
    return True


cdef double tail(Chain chain, Py_ssize_t gap) noexcept nogil:
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

    Returns
    -------
    tuple of (begin, column, value)
        With N sequences, letter i of x and sequence y: row ``r = N * offset[x] + y *
        length(x) + i``; its pairs are ``begin[r]:begin[r + 1]``, `column` the letter of
        y (rising) and `value` the posterior.
    """
    cdef Py_ssize_t count = offset.shape[0] - 1, x, y, l, t, longest = 0, row, total
    cdef Py_ssize_t alphabet = ratio.shape[0], size
    cdef int lanes
    cdef bint fine = True
    cdef Chain chain
    cdef Py_ssize_t pairs = count * (count - 1) // 2
    cdef const unsigned char* others[LANES]
    cdef Py_ssize_t m[LANES]
    cdef void* memory = NULL
    cdef Found* found = NULL
    cdef Entry* entry
    chain.match = 1 - 2 * (gaps[0] + gaps[3])
    chain.stay1 = gaps[1]
    chain.stay2 = gaps[4]
    chain.turn1 = gaps[0] * (1 - gaps[1])
    chain.turn2 = gaps[3] * (1 - gaps[4])
    chain.edge1 = gaps[2] * (1 - gaps[1])
    chain.edge2 = gaps[5] * (1 - gaps[4])
    for x in range(count):
        longest = max(longest, offset[x + 1] - offset[x])
    size = longest + 2
    size = (alphabet * size + (longest + 1) * size + 4 * size) * sizeof(quad) + (longest + 1) * LANES * 8
    begin_array = np.zeros(count * offset[count] + 1, np.int64)
    cdef long long[::1] begin = begin_array
    cdef int[::1] column
    cdef float[::1] value
    try:
        memory = malloc(size + 64)
        found = <Found*>malloc((pairs + LANES) * sizeof(Found))
        if memory == NULL or found == NULL:
            PyErr_NoMemory()
        memset(found, 0, (pairs + LANES) * sizeof(Found))
        with nogil:
            t = 0
            for x in range(count - 1):
                y = x + 1
                while y < count and fine:
                    lanes = <int>min(LANES, count - y)
                    for l in range(LANES):
                        m[l] = 0
                        others[l] = NULL
                    for l in range(lanes):
                        others[l] = &letters[offset[y + l]]
                        m[l] = offset[y + l + 1] - offset[y + l]
                    fine = four_pairs(
                        &letters[offset[x]], offset[x + 1] - offset[x], others, m, lanes,
                        &ratio[0, 0], alphabet, chain, <float>threshold, memory, &found[t],
                    )
                    y += lanes
                    t += lanes
        if not fine:
            PyErr_NoMemory()
        total = 0
        t = 0
        for x in range(count - 1):
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
        fill(found, offset, count, filled, column, value)
    finally:
        if found != NULL:
            for t in range(pairs):
                free(found[t].entry)
        free(found)
        free(memory)
    return begin_array, column_array, value_array


cdef inline Py_ssize_t place(const long long[::1] offset, Py_ssize_t count, Py_ssize_t x, Py_ssize_t y) noexcept nogil:
    return count * offset[x] + y * (offset[x + 1] - offset[x])


cdef void fill(
    Found* found, const long long[::1] offset, Py_ssize_t count,
    long long[::1] filled, int[::1] column, float[::1] value,
) noexcept nogil:
    cdef Py_ssize_t x, y, l, t = 0, there, back
    cdef Entry* entry
    for x in range(count - 1):
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


def consistency(
    const long long[::1] offset,
    const long long[::1] begin,
    const int[::1] column,
    const float[::1] value,
    const double[::1] weights,
    float[::1] out,
):
    """Give every pair of letters the support it has by way of the other sequences.

    ``P'(x, y) = (w_x P(x, y) + w_y P(x, y) + sum over z of w_z P(x, z) P(z, y)) / sum of w``
    for the pairs of letters that are there.
    """
    cdef Py_ssize_t count = offset.shape[0] - 1, x, y, z, i, longest = 0, e, f, there, back
    cdef Py_ssize_t row, middle, r
    cdef double total = 0.0
    cdef float w, v
    for x in range(count):
        longest = max(longest, offset[x + 1] - offset[x])
        total += weights[x]
    sums_array = np.zeros(longest, np.float32)
    place_array = np.array(begin)
    cdef float[::1] sums = sums_array
    cdef long long[::1] next_back = place_array
    with nogil:
        for x in range(count):
            for y in range(x + 1, count):
                there = place(offset, count, x, y)
                back = place(offset, count, y, x)
                for i in range(offset[x + 1] - offset[x]):
                    row = there + i
                    if begin[row] == begin[row + 1]:
                        continue
                    w = <float>(weights[x] + weights[y])
                    for e in range(begin[row], begin[row + 1]):
                        sums[column[e]] = w * value[e]
                    for z in range(count):
                        if z == x or z == y:
                            continue
                        w = <float>weights[z]
                        r = place(offset, count, x, z) + i
                        middle = place(offset, count, z, y)
                        for e in range(begin[r], begin[r + 1]):
                            v = w * value[e]
                            for f in range(begin[middle + column[e]], begin[middle + column[e] + 1]):
                                sums[column[f]] += v * value[f]
                    for e in range(begin[row], begin[row + 1]):
                        v = sums[column[e]] / <float>total
                        out[e] = v
                        f = next_back[back + column[e]]
                        out[f] = v
                        next_back[back + column[e]] += 1
                    # What else was touched is wiped with the rest.
                    for z in range(longest):
                        sums[z] = 0.0


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
