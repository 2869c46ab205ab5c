"""The alignment's inner loops over letters: profiles, their scores, the sum of pairs."""

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
    #define CRITPATH_CLONES __attribute__((target_clones("avx2", "default")))
    #else
    #define CRITPATH_CLONES
    #endif

    CRITPATH_CLONES static void critpath_add(
        float *restrict to, const float *restrict what, float times, Py_ssize_t n)
    {
        Py_ssize_t j;
        for (j = 0; j < n; j++) to[j] += times * what[j];
    }

    CRITPATH_CLONES static void critpath_at_least(float *to, float least, Py_ssize_t n)
    {
        Py_ssize_t j;
        for (j = 0; j < n; j++) to[j] = to[j] > least ? to[j] : least;
    }
    """
    void critpath_add(float* to, const float* what, float times, Py_ssize_t n) nogil
    void critpath_at_least(float* to, float least, Py_ssize_t n) nogil

cdef enum:
    MATCH = 0
    DELETE = 1
    INSERT = 2


def summarise(
    const signed char[:, ::1] rows,
    const double[::1] share,
    double[:, ::1] frequency,
    double[::1] gap_starts,
    double[::1] gap_ends,
):
    """Add every row's share to its letters, and where its gaps start and end.

    The outputs begin as zeros; ``frequency[c, letter]``.  Rows are added one after
    the other, so that the sums do not depend on how many columns there are.
    """
    cdef Py_ssize_t n = rows.shape[0], columns = rows.shape[1], i, c
    cdef double mine
    cdef bint gap_before, gap
    with nogil:
        for i in range(n):
            mine = share[i]
            gap_before = False
            for c in range(columns):
                gap = rows[i, c] < 0
                if not gap:
                    frequency[c, rows[i, c]] += mine
                    if gap_before:
                        gap_ends[c - 1] += mine
                elif not gap_before:
                    gap_starts[c] += mine
                gap_before = gap
            if gap_before:
                gap_ends[columns - 1] += mine


def expected_ratio(
    const double[:, ::1] a,
    const double[:, ::1] ratio,
    const float[:, ::1] b,
    float least,
    const long long[::1] low,
    const long long[::1] high,
    float[:, ::1] out,
):
    """Fill ``out`` with ``a @ ratio @ b``, at least ``least``, without BLAS.

    Row i receives columns ``low[i] .. high[i]`` (from 1, both included) of B, and 1
    beyond.  A column of B sums to 1, so what all letters have in common is added
    once, and only letters worth more go through the row: in the F81 matrix those
    that occur in the column of A.  (BLAS starts threads for a product this thin,
    which on a busy machine costs far more than it saves.)
    """
    cdef Py_ssize_t n = a.shape[0], letters = a.shape[1], i, j, x, y, begin, width
    cdef double mix[128]
    cdef double common
    with nogil:
        for i in range(n):
            for y in range(letters):
                mix[y] = 0.0
            for x in range(letters):
                if a[i, x] > 0:
                    for y in range(letters):
                        mix[y] += a[i, x] * ratio[x, y]
            common = mix[0]
            for y in range(1, letters):
                common = mix[y] if mix[y] < common else common
            begin = low[i] - 1
            width = high[i] - begin if high[i] > begin else 0
            for j in range(width):
                out[i, j] = <float>common
            for y in range(letters):
                if mix[y] > common and width:
                    critpath_add(&out[i, 0], &b[y, begin], <float>(mix[y] - common), width)
            if width:
                critpath_at_least(&out[i, 0], least, width)
            for j in range(width, out.shape[1]):
                out[i, j] = 1.0


cdef double pair_score(
    const signed char* a,
    const signed char* b,
    Py_ssize_t columns,
    Py_ssize_t length_a,
    Py_ssize_t length_b,
    const double* log_ratio,
    Py_ssize_t letters,
    double gap_open,
    double extend,
    double centre,
) noexcept nogil:
    """Score two rows as if alone: columns where both have a gap do not exist."""
    cdef double score = 0.0, half = 0.5 * gap_open
    cdef Py_ssize_t c, seen_a = 0, seen_b = 0
    cdef int state = MATCH
    for c in range(columns):
        if a[c] >= 0:
            if b[c] >= 0:
                if state == DELETE:
                    score += half  # not the last letter of A: one follows here
                elif state == INSERT:
                    score += half
                state = MATCH
                score += log_ratio[a[c] * letters + b[c]] + centre
                seen_a += 1
                seen_b += 1
            else:
                if state != DELETE:
                    if state == INSERT and seen_b < length_b:
                        score += half
                    if seen_a > 0:
                        score += half
                    state = DELETE
                score += extend
                seen_a += 1
        elif b[c] >= 0:
            if state != INSERT:
                if state == DELETE and seen_a < length_a:
                    score += half
                if seen_b > 0:
                    score += half
                state = INSERT
            score += extend
            seen_b += 1
    return score


def sum_of_pairs(
    const signed char[:, ::1] codes,
    const double[::1] weights,
    const unsigned char[::1] side,
    bint crossing,
    const double[:, ::1] log_ratio,
    double gap_open,
    double extend,
    double centre,
):
    """Weighted sum of the scores of all pairs of rows, or of those of unlike side."""
    cdef Py_ssize_t n = codes.shape[0], columns = codes.shape[1], i, j, c
    cdef double total = 0.0
    cdef Py_ssize_t letters = log_ratio.shape[0]
    cdef Py_ssize_t length_i, length_j
    if n < 2 or columns == 0:
        return 0.0
    with nogil:
        for i in range(n):
            length_i = 0
            for c in range(columns):
                length_i += codes[i, c] >= 0
            for j in range(i + 1, n):
                if crossing and side[i] == side[j]:
                    continue
                length_j = 0
                for c in range(columns):
                    length_j += codes[j, c] >= 0
                total += weights[i] * weights[j] * pair_score(
                    &codes[i, 0], &codes[j, 0], columns, length_i, length_j,
                    &log_ratio[0, 0], letters, gap_open, extend, centre,
                )
    return total
