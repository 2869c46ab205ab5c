"""The ordering of OPTICS over distinct vectors, each with the executions that have it.

All executions of a vector that are not yet visited have one reachability: one state per
vector is enough, and a visit changes the others' only the first time.  Coordinates are
kept column by column, so that a compiler can take several vectors at once; the squares
of one pair are added in the order of columns, as in scipy and in scikit-learn's trees:
the same distances to the last bit.
"""

from libc.math cimport INFINITY, fmax, rint, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
    #define CRITPATH_CLONES __attribute__((target_clones("avx2", "default")))
    #else
    #define CRITPATH_CLONES
    #endif

    /* Squared distances of a point to `many` others, column k of which is at x + k * stride. */
    CRITPATH_CLONES static void critpath_squares(
        const double *restrict point, const double *restrict x, Py_ssize_t columns,
        Py_ssize_t stride, Py_ssize_t many, double *restrict out)
    {
        Py_ssize_t j, k;
        for (j = 0; j < many; j++)
            out[j] = 0.0;
        for (k = 0; k + 1 < columns; k += 2) {
            const double a = point[k], b = point[k + 1];
            const double *restrict left = x + k * stride;
            const double *restrict right = left + stride;
            for (j = 0; j < many; j++) {
                double s = left[j] - a, t = right[j] - b;
                double sum = out[j] + s * s;
                out[j] = sum + t * t;
            }
        }
        for (; k < columns; k++) {
            const double a = point[k];
            const double *restrict left = x + k * stride;
            for (j = 0; j < many; j++) {
                double s = left[j] - a;
                out[j] += s * s;
            }
        }
    }

    /* The smallest of `many` numbers, none of them NaN. */
    CRITPATH_CLONES static double critpath_least(const double *restrict x, Py_ssize_t many)
    {
        double lanes[8], least;
        Py_ssize_t j, k;
        for (k = 0; k < 8; k++)
            lanes[k] = Py_HUGE_VAL;
        for (j = 0; j + 8 <= many; j += 8)
            for (k = 0; k < 8; k++)
                lanes[k] = x[j + k] < lanes[k] ? x[j + k] : lanes[k];
        least = lanes[0];
        for (k = 1; k < 8; k++)
            least = lanes[k] < least ? lanes[k] : least;
        for (; j < many; j++)
            least = x[j] < least ? x[j] : least;
        return least;
    }
    """
    void critpath_squares(
        const double *, const double *, Py_ssize_t, Py_ssize_t, Py_ssize_t, double *
    ) noexcept nogil
    double critpath_least(const double *, Py_ssize_t) noexcept nogil

cdef enum:
    BLOCK = 256  # vectors at once: their squares stay in the first cache
cdef double DECIMALS = 1e15  # scikit-learn rounds to as many decimals as a double has digits


cdef inline double rounded(double value) noexcept nogil:
    """Round as numpy does, in decimals."""
    # Beyond 2 ** 52 a double is whole: rint would return it.
    cdef double scaled = value * DECIMALS
    return (rint(scaled) if scaled < 4503599627370496.0 else scaled) / DECIMALS


def core_distances(
    const double[:, ::1] columns, const int64_t[::1] weight, Py_ssize_t min_samples,
    double[::1] core,
):
    """Fill in the distance at which the summed weight reaches min_samples.

    ``columns`` [symbols, n]; O(n) memory.
    """
    cdef Py_ssize_t n = columns.shape[1], symbols = columns.shape[0]
    cdef Py_ssize_t i, j, k, first, many, held, at, most = min(min_samples, n)
    cdef int64_t reached
    cdef double *point = <double *>malloc((symbols + 1) * sizeof(double))
    cdef double *near = <double *>malloc((most + 1) * sizeof(double))
    cdef int64_t *near_weight = <int64_t *>malloc((most + 1) * sizeof(int64_t))
    cdef double squares[BLOCK]
    cdef double worst
    if point == NULL or near == NULL or near_weight == NULL:
        free(point)
        free(near)
        free(near_weight)
        raise MemoryError
    with nogil:
        for i in range(n):
            core[i] = 0.0
            if weight[i] >= min_samples:
                continue
            for k in range(symbols):
                point[k] = columns[k, i]
            # The nearest vectors so far, ascending; together they are min_samples
            # executions, less than that without the last.
            held, reached, worst = 0, 0, INFINITY
            first = 0
            while first < n:
                many = min(<Py_ssize_t>BLOCK, n - first)
                critpath_squares(point, &columns[0, first], symbols, n, many, squares)
                for j in range(many):
                    if squares[j] >= worst:
                        continue
                    at = held
                    while at > 0 and near[at - 1] > squares[j]:
                        near[at], near_weight[at] = near[at - 1], near_weight[at - 1]
                        at -= 1
                    near[at], near_weight[at] = squares[j], weight[first + j]
                    reached += weight[first + j]
                    held += 1
                    while reached - near_weight[held - 1] >= min_samples:
                        held -= 1
                        reached -= near_weight[held]
                    if reached >= min_samples:
                        worst = near[held - 1]
                first += many
            core[i] = rounded(sqrt(near[held - 1]))
    free(point)
    free(near)
    free(near_weight)


cdef struct Waiting:
    # Vectors of which some execution is not yet visited, in arrays of their own.
    Py_ssize_t many, stride, symbols
    double *x  # column k at x + k * stride
    double *reach
    double *limit  # squared distances from here on cannot be an improvement
    int64_t *vector
    int64_t *next  # of the vector's executions, place in `rows`
    int64_t *row  # that execution: the earliest goes first
    int64_t *source  # execution from which the vector was reached


cdef void remove(Waiting *w, Py_ssize_t at) noexcept nogil:
    """Drop a vector; the last takes its place, as order among them does not matter."""
    cdef Py_ssize_t k, last = w.many - 1
    for k in range(w.symbols):
        w.x[k * w.stride + at] = w.x[k * w.stride + last]
    w.reach[at], w.limit[at], w.vector[at] = w.reach[last], w.limit[last], w.vector[last]
    w.next[at], w.row[at], w.source[at] = w.next[last], w.row[last], w.source[last]
    w.many = last


cdef Py_ssize_t nearest(Waiting *w) noexcept nogil:
    """Return the vector of least reachability, that with the earliest execution of equals."""
    cdef double least = critpath_least(w.reach, w.many)
    cdef Py_ssize_t j, best = -1
    for j in range(w.many):
        if w.reach[j] == least and (best < 0 or w.row[j] < w.row[best]):
            best = j
    return best


cdef void look_from(Waiting *w, double *point, double core, int64_t row) noexcept nogil:
    """Lower the reachability of all that are nearer from here."""
    cdef Py_ssize_t first = 0, many, j
    cdef double squares[BLOCK]
    cdef double distance
    while first < w.many:
        many = min(<Py_ssize_t>BLOCK, w.many - first)
        critpath_squares(point, w.x + first, w.symbols, w.stride, many, squares)
        for j in range(many):
            if squares[j] >= w.limit[first + j] or core >= w.reach[first + j]:
                continue
            distance = rounded(fmax(sqrt(squares[j]), core))
            if distance < w.reach[first + j]:
                w.reach[first + j] = distance
                # Rounding, here and of the root, is far less than that.
                w.limit[first + j] = distance * distance * (1 + 1e-9) + 1e-24
                w.source[first + j] = row
        first += many


def visit(
    double[:, ::1] columns, const double[::1] core, const int64_t[::1] begin,
    const int64_t[::1] rows, int64_t[::1] ordering, double[::1] reachability,
    int64_t[::1] predecessor,
):
    """Visit all executions in the order of OPTICS.

    Parameters
    ----------
    columns : float64 [symbols, n]
        Distinct vectors; overwritten.
    core : float64 [n]
    begin : int64 [n + 1]
        First of a vector's executions in ``rows``.
    rows : int64 [executions]
        Executions of every vector, ascending within it.
    ordering : int64 [executions]
        Filled in: executions in order of visit.
    reachability, predecessor : float64 [executions], int64 [executions]
        Filled in, per execution: inf and -1 for the first.

    Notes
    -----
    O(n^2 symbols) time; O(n symbols) memory.
    """
    cdef Py_ssize_t n = columns.shape[1], symbols = columns.shape[0]
    cdef Py_ssize_t k, j, at, done = 0, total = rows.shape[0]
    cdef int64_t vector, row, other
    cdef double level
    cdef bint first
    cdef Waiting w
    cdef double *numbers = <double *>malloc((2 * n + symbols + 1) * sizeof(double))
    cdef int64_t *integers = <int64_t *>malloc((4 * n + 1) * sizeof(int64_t))
    cdef double *point
    if numbers == NULL or integers == NULL:
        free(numbers)
        free(integers)
        raise MemoryError
    w.many, w.stride, w.symbols = n, n, symbols
    w.x = &columns[0, 0] if symbols and n else NULL
    w.reach, w.limit, point = numbers, numbers + n, numbers + 2 * n
    w.vector, w.next = integers, integers + n
    w.row, w.source = integers + 2 * n, integers + 3 * n
    with nogil:
        for j in range(n):
            w.reach[j] = w.limit[j] = INFINITY
            w.vector[j], w.next[j], w.source[j] = j, begin[j], -1
            w.row[j] = rows[begin[j]]
        while w.many:
            at = nearest(&w)
            vector, level = w.vector[at], w.reach[at]
            first = w.next[at] == begin[vector]
            row = w.row[at]
            ordering[done], reachability[row], predecessor[row] = row, level, w.source[at]
            done += 1
            w.next[at] += 1
            for k in range(symbols):
                point[k] = w.x[k * w.stride + at]
            if w.next[at] == begin[vector + 1]:
                remove(&w, at)
                if first:
                    look_from(&w, point, core[vector], row)
                continue
            w.row[at] = rows[w.next[at]]
            if first:
                look_from(&w, point, core[vector], row)
            # Equal executions follow at once, up to one that is as near and came earlier.
            level = w.reach[at]
            w.reach[at] = INFINITY
            other = -1
            if critpath_least(w.reach, w.many) <= level:
                other = w.row[nearest(&w)] if critpath_least(w.reach, w.many) == level else 0
            w.reach[at] = level
            while w.next[at] < begin[vector + 1] and (other < 0 or rows[w.next[at]] < other):
                row = rows[w.next[at]]
                ordering[done], reachability[row] = row, level
                predecessor[row] = w.source[at]
                done += 1
                w.next[at] += 1
            if w.next[at] == begin[vector + 1]:
                remove(&w, at)
            else:
                w.row[at] = rows[w.next[at]]
    free(numbers)
    free(integers)
