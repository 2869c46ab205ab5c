"""The alignment's inner loops: affine profile alignment and the sum of pairs.

Gap states: M pairs two columns, D puts a column of A opposite a gap, I a column
of B.  One byte of trace per cell holds the predecessor of all three:
bits 0-1 that of M, bits 2-3 that of D (0 M, 1 D, 2 I), bit 4 that of I (0 M, 1 I).
"""

from libc.math cimport INFINITY

ctypedef fused score:
    float
    double

cdef enum:
    MATCH = 0
    DELETE = 1
    INSERT = 2


def expected_ratio(
    const double[:, ::1] a,
    const double[:, ::1] ratio,
    const long long[::1] begin,
    const long long[::1] letter,
    const double[::1] share,
    float least,
    float[:, ::1] out,
):
    """Fill ``out`` with ``a @ ratio @ b.T``, at least ``least``, without BLAS.

    ``letter[begin[j]:begin[j + 1]]`` are the letters in column j of B, ``share``
    beside them; there are few in each.  (BLAS starts threads for a product this
    thin, which on a busy machine costs far more than it saves.)
    """
    cdef Py_ssize_t n = a.shape[0], letters = a.shape[1], m = out.shape[1], i, j, t, x, y
    cdef double mix[128]
    cdef double total
    with nogil:
        for i in range(n):
            for y in range(letters):
                mix[y] = 0.0
            for x in range(letters):
                if a[i, x] > 0:
                    for y in range(letters):
                        mix[y] += a[i, x] * ratio[x, y]
            for j in range(m):
                total = 0.0
                for t in range(begin[j], begin[j + 1]):
                    total += share[t] * mix[letter[t]]
                out[i, j] = <float>total if total > least else least


def start(const double[::1] open_b, double extend, double[:, ::1] row):
    """Fill row 0 of the programme: only columns of B, all opposite one gap."""
    cdef Py_ssize_t j, m = open_b.shape[0]
    with nogil:
        row[MATCH, 0] = 0.0
        row[DELETE, 0] = -INFINITY
        row[INSERT, 0] = -INFINITY
        for j in range(1, m + 1):
            row[MATCH, j] = -INFINITY
            row[DELETE, j] = -INFINITY
            if j == 1:
                row[INSERT, j] = open_b[0] + extend
            else:
                row[INSERT, j] = row[INSERT, j - 1] + extend


def forward(
    const score[:, ::1] scores,
    Py_ssize_t first,
    const double[::1] open_a,
    const double[::1] close_a,
    const double[::1] open_b,
    const double[::1] close_b,
    double extend,
    double[:, ::1] row,
    unsigned char[:, ::1] trace,
):
    """Advance the programme over columns ``first ...`` of A, one per row of scores.

    ``row`` holds M, D and I of the row before and receives those of the last one;
    ``trace[k]`` receives the predecessors of row ``first + k + 1``.
    """
    cdef Py_ssize_t m = scores.shape[1], rows = scores.shape[0], k, i, j
    cdef double m_left, i_left, m_diagonal, d_diagonal, i_diagonal
    cdef double m_above, d_above, i_above, best, other, into, close_before, close_i, opening
    cdef int step, first_step, second_step
    cdef const score* line
    cdef double* match
    cdef double* delete
    cdef double* insert
    cdef unsigned char* mark
    if rows == 0:
        return
    match = &row[MATCH, 0]
    delete = &row[DELETE, 0]
    insert = &row[INSERT, 0]
    with nogil:
        for k in range(rows):
            i = first + k
            opening = open_a[i]
            close_before = close_a[i - 1] if i > 0 else 0.0
            mark = &trace[k, 0]
            m_diagonal = match[0]
            d_diagonal = delete[0]
            i_diagonal = insert[0]
            # Column 0: only columns of A so far, all opposite one gap.
            if m_diagonal + opening >= d_diagonal:
                delete[0] = m_diagonal + opening + extend
                mark[0] = MATCH << 2
            else:
                delete[0] = d_diagonal + extend
                mark[0] = DELETE << 2
            match[0] = -INFINITY
            insert[0] = -INFINITY
            m_left = -INFINITY
            i_left = -INFINITY
            if m == 0:
                continue
            line = &scores[k, 0]
            close_i = 0.0  # I before column 0 is impossible whatever it costs
            for j in range(1, m + 1):
                m_above = match[j]
                d_above = delete[j]
                i_above = insert[j]

                # Chosen without branches: which way a cell goes is hard to foresee.
                other = d_diagonal + close_before
                first_step = other > m_diagonal
                best = other if other > m_diagonal else m_diagonal
                other = i_diagonal + close_i
                second_step = other > best
                best = (other if other > best else best) + line[j - 1]
                step = INSERT if second_step else first_step
                close_i = close_b[j - 1]

                into = m_above + opening
                first_step = d_above > into
                into = d_above if d_above > into else into
                other = i_above + close_i + opening
                second_step = other > into
                into = other if other > into else into
                step |= (INSERT << 2) if second_step else (first_step << 2)

                other = m_left + open_b[j - 1]
                step |= (i_left > other) << 4
                other = i_left if i_left > other else other
                mark[j] = <unsigned char>step

                m_diagonal = m_above
                d_diagonal = d_above
                i_diagonal = i_above
                m_left = best
                i_left = other + extend
                match[j] = best
                delete[j] = into + extend
                insert[j] = i_left


def backtrack(
    const unsigned char[:, ::1] trace,
    Py_ssize_t first,
    Py_ssize_t i,
    Py_ssize_t j,
    int state,
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
            step = trace[i - first - 1, j]
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
