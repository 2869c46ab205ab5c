"""Forward and backward of four pairs at once; part of `_posteriors`."""

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
