"""The alignment's inner loops: the dynamic program row by row within a band, and profiles.

Gap states: M pairs two columns, D puts a column of A opposite a gap, I a column
of B.  One byte of trace per cell holds the predecessor of all three:
bits 0-1 that of M, bits 2-3 that of D (0 M, 1 D, 2 I), bit 4 that of I (0 M, 1 I).

M and D of a row depend on the row before only, so a compiler can do several cells at
once; I is a running maximum along the row.  In C because of that, twice: whole numbers
of the scores' grid (eight at once where the processor has AVX2), and doubles.
"""

from libc.math cimport INFINITY

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
    #define CRITPATH_CLONES __attribute__((target_clones("avx2", "default")))
    #else
    #define CRITPATH_CLONES
    #endif

    /* row: M, D, I of the row before, each m + 1 wide; out: those of this row.
       Columns low..high; line[0] is the score of column base = max(low, 1);
       opening, closing: of B, one earlier than in Python (closing[j] of column j). */
    #define CRITPATH_ROW(NAME, NUMBER)                                                 \\
    CRITPATH_CLONES static void NAME(                                                  \\
        const NUMBER *restrict m0, const NUMBER *restrict d0,                          \\
        const NUMBER *restrict i0, NUMBER *restrict m1, NUMBER *restrict d1,           \\
        NUMBER *restrict i1, const NUMBER *restrict line,                              \\
        const NUMBER *restrict opening_b, const NUMBER *restrict closing_b,            \\
        NUMBER opening, NUMBER close_before, NUMBER extend, NUMBER none,               \\
        Py_ssize_t low, Py_ssize_t high, uint8_t *restrict mark)                       \\
    {                                                                                  \\
        Py_ssize_t j, base = low;                                                      \\
        NUMBER run;                                                                    \\
        if (low == 0) { /* only columns of A so far, all opposite one gap */           \\
            mark[0] = m0[0] + opening >= d0[0] ? 0 : 1 << 2;                           \\
            d1[0] = (m0[0] + opening >= d0[0] ? m0[0] + opening : d0[0]) + extend;     \\
            m1[0] = i1[0] = none;                                                      \\
            base = 1;                                                                  \\
        } else {                                                                       \\
            m1[low - 1] = d1[low - 1] = i1[low - 1] = none;                            \\
        }                                                                              \\
        mark += base - low;                                                            \\
        for (j = base; j <= high; j++) {                                               \\
            NUMBER a = m0[j - 1], b = d0[j - 1] + close_before;                        \\
            NUMBER c = i0[j - 1] + closing_b[j - 1];                                   \\
            NUMBER best = b > a ? b : a;                                               \\
            uint8_t step = b > a ? 1 : 0;                                              \\
            step = c > best ? 2 : step;                                                \\
            best = c > best ? c : best;                                                \\
            m1[j] = best + line[j - base];                                             \\
            mark[j - base] = step;                                                     \\
        }                                                                              \\
        for (j = base; j <= high; j++) {                                               \\
            NUMBER a = m0[j] + opening, b = d0[j];                                     \\
            NUMBER c = i0[j] + closing_b[j] + opening;                                 \\
            NUMBER best = b > a ? b : a;                                               \\
            uint8_t step = b > a ? 1 << 2 : 0;                                         \\
            step = c > best ? 2 << 2 : step;                                           \\
            best = c > best ? c : best;                                                \\
            d1[j] = best + extend;                                                     \\
            mark[j - base] |= step;                                                    \\
        }                                                                              \\
        for (j = base; j <= high; j++)                                                 \\
            i1[j] = m1[j - 1] + opening_b[j - 1] + extend;                             \\
        run = i1[base - 1];                                                            \\
        for (j = base; j <= high; j++) {                                               \\
            run += extend;                                                             \\
            run = run > i1[j] ? run : i1[j];                                           \\
            i1[j] = run;                                                               \\
        }                                                                              \\
        for (j = base; j <= high; j++)                                                 \\
            mark[j - base] |= i1[j - 1] > m1[j - 1] + opening_b[j - 1] ? 1 << 4 : 0;   \\
    }

    CRITPATH_ROW(critpath_row_int, int32_t)
    CRITPATH_ROW(critpath_row_double, double)

    CRITPATH_CLONES static void critpath_grid(
        float *restrict line, const float *restrict full, float mine, float centre,
        float grid, Py_ssize_t n)
    {
        /* Adding 1.5 * 2**23 rounds a float below 2**22 to the nearest whole number. */
        const float magic = 12582912.0f;
        Py_ssize_t j;
        for (j = 0; j < n; j++) {
            float value = (line[j] + centre) * mine * full[j] * grid + magic;
            int32_t whole;
            memcpy(&whole, &value, 4);
            whole -= 0x4B400000;
            memcpy(&line[j], &whole, 4);
        }
    }

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
    void critpath_row_int(
        const int* m0, const int* d0, const int* i0, int* m1, int* d1, int* i1,
        const int* line, const int* opening_b, const int* closing_b, int opening,
        int close_before, int extend, int none, Py_ssize_t low, Py_ssize_t high,
        unsigned char* mark,
    ) nogil
    void critpath_row_double(
        const double* m0, const double* d0, const double* i0, double* m1, double* d1, double* i1,
        const double* line, const double* opening_b, const double* closing_b, double opening,
        double close_before, double extend, double none, Py_ssize_t low, Py_ssize_t high,
        unsigned char* mark,
    ) nogil
    void critpath_grid(
        float* line, const float* full, float mine, float centre, float grid, Py_ssize_t n,
    ) nogil
    void critpath_add(float* to, const float* what, float times, Py_ssize_t n) nogil
    void critpath_at_least(float* to, float least, Py_ssize_t n) nogil

ctypedef fused number:
    int
    double

cdef enum:
    MATCH = 0
    DELETE = 1
    INSERT = 2

# Below every sum that occurs, with room to add to it.
NO_INT = -(1 << 30)


def to_grid(
    float[:, ::1] ratio_logs, const float[::1] full_a, const float[::1] full_b, float centre,
    float grid, const long long[::1] base, const long long[::1] last,
):
    """Turn logs of ratios into scores, in place: whole numbers where floats were.

    Row k holds columns ``base[k] .. last[k]`` (from 1) of B; ``full`` is occupancy.
    """
    cdef Py_ssize_t k
    with nogil:
        for k in range(ratio_logs.shape[0]):
            if last[k] >= base[k]:
                critpath_grid(
                    &ratio_logs[k, 0], &full_b[base[k] - 1], full_a[k], centre, grid,
                    last[k] - base[k] + 1,
                )


def start(const number[::1] opening_b, number extend, number none, number[:, ::1] row):
    """Fill row 0 of the matrix: only columns of B, all opposite one gap."""
    cdef Py_ssize_t j
    with nogil:
        row[MATCH, 0] = 0
        row[DELETE, 0] = none
        row[INSERT, 0] = none
        for j in range(1, row.shape[1]):
            row[MATCH, j] = none
            row[DELETE, j] = none
            row[INSERT, j] = extend + (opening_b[0] if j == 1 else row[INSERT, j - 1])


def forward(
    const number[:, ::1] scores,
    const number[::1] opening_a,
    const number[::1] closing_a,
    const number[::1] opening_b,
    const number[::1] closing_b,
    number extend,
    number none,
    Py_ssize_t first,
    const long long[::1] low,
    const long long[::1] high,
    number[:, ::1] row,
    number[:, ::1] spare,
    unsigned char[:, ::1] trace,
):
    """Advance the matrices over columns ``first ...`` of A, one per row of scores.

    ``row`` holds M, D and I of the row before and receives those of the last one;
    ``spare`` is as large.  ``low[i]`` and ``high[i]`` are the band of row ``i``, both
    never falling; ``trace[k]`` receives the predecessors of row ``first + k + 1``,
    from its lowest column on.  ``closing_b`` begins with a 0 before column 1.
    """
    cdef Py_ssize_t rows = scores.shape[0], width = row.shape[1], k, i, j
    cdef Py_ssize_t last = low.shape[0] - 1
    cdef number close_before
    cdef const number* before
    cdef number* now
    cdef number* other
    cdef const number* nothing = NULL
    if rows == 0:
        return
    before = &row[0, 0]
    now = &spare[0, 0]
    with nogil:
        for k in range(rows):
            i = first + k + 1
            close_before = closing_a[i - 2] if i > 1 else <number>0
            if number is int:
                critpath_row_int(
                    before, before + width, before + 2 * width, now, now + width,
                    now + 2 * width, &scores[k, 0], nothing if width == 1 else &opening_b[0],
                    &closing_b[0], opening_a[i - 1], close_before, extend, none, low[i],
                    high[i], &trace[k, 0],
                )
            else:
                critpath_row_double(
                    before, before + width, before + 2 * width, now, now + width,
                    now + 2 * width, &scores[k, 0], nothing if width == 1 else &opening_b[0],
                    &closing_b[0], opening_a[i - 1], close_before, extend, none, low[i],
                    high[i], &trace[k, 0],
                )
            if i < last:
                for j in range(high[i] + 1, high[i + 1] + 1):
                    now[j] = none
                    now[width + j] = none
                    now[2 * width + j] = none
            other = <number*>before
            before = now
            now = other
        if rows % 2:
            for j in range(3 * width):
                now[j] = before[j]


def backtrack(
    const unsigned char[:, ::1] trace,
    Py_ssize_t first,
    Py_ssize_t i,
    Py_ssize_t j,
    int state,
    const long long[::1] low,
    unsigned char[::1] path,
    Py_ssize_t place,
):
    """Follow the trace from cell (i, j) up to row ``first``; write steps backwards.

    Returns
    -------
    tuple of (j, state, place)
        Where it stopped; ``path[place:]`` is filled.
    """
    cdef unsigned char step
    with nogil:
        while i > first:
            step = trace[i - first - 1, j - low[i]]
            place -= 1
            path[place] = <unsigned char>state
            if state == MATCH:
                state = step & 3
                i -= 1
                j -= 1
            elif state == DELETE:
                state = (step >> 2) & 3
                i -= 1
            else:
                state = INSERT if step & 16 else MATCH
                j -= 1
        if i == 0:
            while j > 0:
                place -= 1
                path[place] = INSERT
                j -= 1
    return j, state, place


# ------------------------------------------------------------------------ profiles and their scores


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
