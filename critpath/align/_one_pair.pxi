"""Forward and backward of one pair in numbers of a wide range; part of `_posteriors`.

Of two ways to go on from one row of `four_pairs`, that which is 1e38 times less likely is
lost, even where it wins in the end: long blocks in swapped order, or one missing.  A long
double has 1e4900 on x86, more than 3,000 letters can make up for; where it is no
more than a double, a sum of zero says so.
"""

cdef extern from "<math.h>" nogil:
    long double frexpl(long double, int*)
    long double ldexpl(long double, int)

ctypedef long double wide

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
    factor = ldexpl(1, -exponent)
    power[0] += exponent
    for r in range(count):
        for j in range(first, last + 1):
            rows[r][j] = rows[r][j] * factor


cdef int one_pair(
    const unsigned char* x, Py_ssize_t n, const unsigned char* y, Py_ssize_t m,
    Py_ssize_t low, Py_ssize_t high,
    const float* ratio, Py_ssize_t letters, Chain chain, float threshold, Found* found,
) noexcept nogil:
    """Do as `four_pairs` does with one lane."""
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
            total += ldexpl(
                kept[i * band + m - max(0, i + low)] * edge_gap(chain, n - i),
                exponent[i] - exponent[n],
            )
    if not 0 < total < ldexpl(1, 1000) * ldexpl(1, 20):
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
        factor = ldexpl(1 / total, exponent[i] - exponent[n] + power)
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
            if p > threshold and not push(found, <int>i - 1, <int>j - 1, <float>min(p, <wide>1)):
                result = NO_MEMORY
        rows[0] = x1
        rows[1] = x2
        rows[2] = leave
        rescale_one(rows, 3, first, last, top, &power)
    free(kept)
    return result
