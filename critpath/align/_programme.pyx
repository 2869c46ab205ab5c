"""The inner loop of the alignment's dynamic programme, row by row, within a band.

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
    """Fill row 0 of the programme: only columns of B, all opposite one gap."""
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
    """Advance the programme over columns ``first ...`` of A, one per row of scores.

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
