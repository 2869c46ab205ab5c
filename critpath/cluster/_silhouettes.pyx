"""Summed distances of points to clusters, and what merging clusters does to silhouettes.

Each distance is computed once and counted for both of its points.  Points come in blocks
of one cluster, a block's coordinates column by column, so that what is worked on stays in
the first cache and a compiler can take several points at once.  Sums are made in eight
lanes, whatever the processor's vectors are: the same numbers on every machine.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <math.h>

    #if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
    #define CRITPATH_CLONES __attribute__((target_clones("avx2", "default")))
    #else
    #define CRITPATH_CLONES
    #endif
    #define CRITPATH_LANES 8

    static double critpath_lanes(const double *lanes)
    {
        return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]))
             + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
    }

    /* Distances d of a point to `many` others: returns the sum of weight[j] * d[j], and
       adds each times `mine` to other[j], which it sets if `first`. */
    CRITPATH_CLONES static double critpath_distances(
        const double *restrict point, const double *restrict x, Py_ssize_t columns,
        Py_ssize_t stride, Py_ssize_t many, const double *restrict weight, double mine,
        int first, double *restrict other, double *restrict squares)
    {
        double lanes[CRITPATH_LANES] = {0};
        Py_ssize_t j, k, whole = many - many % CRITPATH_LANES;
        for (j = 0; j < many; j++)
            squares[j] = 0.0;
        for (k = 0; k + 1 < columns; k += 2) {
            const double a = point[k], b = point[k + 1];
            const double *restrict left = x + k * stride;
            const double *restrict right = left + stride;
            for (j = 0; j < many; j++) {
                double s = left[j] - a, t = right[j] - b;
                double sum = squares[j] + s * s;
                squares[j] = sum + t * t;
            }
        }
        for (; k < columns; k++) {
            const double a = point[k];
            const double *restrict left = x + k * stride;
            for (j = 0; j < many; j++) {
                double s = left[j] - a;
                squares[j] += s * s;
            }
        }
        for (j = 0; j < many; j++)
            squares[j] = sqrt(squares[j]);
        if (first)
            for (j = 0; j < many; j++)
                other[j] = mine * squares[j];
        else
            for (j = 0; j < many; j++)
                other[j] += mine * squares[j];
        for (j = 0; j < whole; j += CRITPATH_LANES)
            for (k = 0; k < CRITPATH_LANES; k++)
                lanes[k] += weight[j + k] * squares[j + k];
        for (k = 0; j < many; j++, k++)
            lanes[k] += weight[j] * squares[j];
        return critpath_lanes(lanes);
    }

    /* Sum of weight * silhouette, where the mean distance to the own cluster is
       (own[j] + extra[j]) * share and that to the nearest other one is outside[j]. */
    CRITPATH_CLONES static double critpath_joined(
        const double *restrict own, const double *restrict extra, double share,
        const double *restrict outside, const double *restrict weight, Py_ssize_t many)
    {
        double lanes[CRITPATH_LANES] = {0};
        Py_ssize_t j, k, whole = many - many % CRITPATH_LANES;
        for (j = 0; j < whole; j += CRITPATH_LANES)
            for (k = 0; k < CRITPATH_LANES; k++) {
                double a = (own[j + k] + extra[j + k]) * share, b = outside[j + k];
                double larger = a > b ? a : b;
                lanes[k] += weight[j + k] * ((b - a) / (larger > 0 ? larger : 1.0));
            }
        for (k = 0; j < many; j++, k++) {
            double a = (own[j] + extra[j]) * share, b = outside[j];
            double larger = a > b ? a : b;
            lanes[k] += weight[j] * ((b - a) / (larger > 0 ? larger : 1.0));
        }
        return critpath_lanes(lanes);
    }

    /* The same, where another cluster is joined: (sums[j] + extra[j]) * share or
       outside[j] away, whichever is less, and the own cluster inside[j]. */
    CRITPATH_CLONES static double critpath_beside(
        const double *restrict inside, const double *restrict sums,
        const double *restrict extra, double share, const double *restrict outside,
        const double *restrict weight, Py_ssize_t many)
    {
        double lanes[CRITPATH_LANES] = {0};
        Py_ssize_t j, k, whole = many - many % CRITPATH_LANES;
        for (j = 0; j < whole; j += CRITPATH_LANES)
            for (k = 0; k < CRITPATH_LANES; k++) {
                double a = inside[j + k], b = (sums[j + k] + extra[j + k]) * share;
                double larger;
                b = b < outside[j + k] ? b : outside[j + k];
                larger = a > b ? a : b;
                lanes[k] += weight[j + k] * ((b - a) / (larger > 0 ? larger : 1.0));
            }
        for (k = 0; j < many; j++, k++) {
            double a = inside[j], b = (sums[j] + extra[j]) * share;
            double larger;
            b = b < outside[j] ? b : outside[j];
            larger = a > b ? a : b;
            lanes[k] += weight[j] * ((b - a) / (larger > 0 ? larger : 1.0));
        }
        return critpath_lanes(lanes);
    }

    static double critpath_smallest(const double *x, Py_ssize_t many)
    {
        double least = x[0];
        Py_ssize_t j;
        for (j = 1; j < many; j++)
            least = x[j] < least ? x[j] : least;
        return least;
    }
    """
    double critpath_distances(
        const double *, const double *, Py_ssize_t, Py_ssize_t, Py_ssize_t, const double *,
        double, int, double *, double *
    ) noexcept nogil
    double critpath_joined(
        const double *, const double *, double, const double *, const double *, Py_ssize_t
    ) noexcept nogil
    double critpath_beside(
        const double *, const double *, const double *, double, const double *,
        const double *, Py_ssize_t
    ) noexcept nogil
    double critpath_smallest(const double *, Py_ssize_t) noexcept nogil

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1

cdef enum:
    BLOCK = 256  # points at once


cdef void gather(
    const double[:, ::1] points, Py_ssize_t first, Py_ssize_t many, double[:, ::1] tile
) noexcept nogil:
    """Copy a block of points, column by column."""
    cdef Py_ssize_t j, k
    for j in range(many):
        for k in range(points.shape[1]):
            tile[k, j] = points[first + j, k]


def block_size():
    """Return how many points a block has at the most."""
    return BLOCK


def sums_within(
    const double[:, ::1] points, const double[::1] weight, const int64_t[::1] begin,
    const int64_t[::1] blocks, double[:, ::1] tile, double[:, ::1] sums,
):
    """Add up the distances of points [n, symbols] to the members of every cluster.

    Parameters
    ----------
    points, weight : float64 [n, symbols], float64 [n]
        Cluster by cluster; a weight is how many members a point stands for.
    begin : int64 [clusters + 1]
        First point of every cluster.
    blocks : int64 [blocks + 1]
        First point of every block; a block is of one cluster.
    tile : float64 [symbols, block_size]
        Scratch.
    sums : float64 [n, clusters]
        0 on entry; filled in.

    Notes
    -----
    O(n^2 symbols / 2) time, no memory beyond the result's.
    """
    cdef Py_ssize_t symbols = points.shape[1], clusters = begin.shape[0] - 1
    cdef Py_ssize_t b, h, i, j, at, first, many, home, last
    cdef double other[BLOCK]
    cdef double squares[BLOCK]
    cdef bint fresh
    if symbols == 0 or points.shape[0] == 0:
        return
    home = 0
    with nogil:
        for b in range(blocks.shape[0] - 1):
            with gil:
                PyErr_CheckSignals()
            first = blocks[b]
            many = blocks[b + 1] - first
            while begin[home + 1] <= first:
                home += 1
            gather(points, first, many, tile)
            for h in range(home + 1):
                last = min(first, begin[h + 1])
                fresh = True
                for i in range(begin[h], last):
                    sums[i, home] += critpath_distances(
                        &points[i, 0], &tile[0, 0], symbols, BLOCK, many, &weight[first],
                        weight[i], fresh, other, squares,
                    )
                    fresh = False
                if not fresh:
                    for j in range(many):
                        sums[first + j, h] += other[j]
            for i in range(many - 1):  # the block's own
                at = i + 1
                sums[first + i, home] += critpath_distances(
                    &points[first + i, 0], &tile[0, at], symbols, BLOCK, many - at,
                    &weight[first + at], weight[first + i], True, other, squares,
                )
                for j in range(many - at):
                    sums[first + at + j, home] += other[j]


def sums_between(
    const double[:, ::1] left, const double[:, ::1] points, const double[::1] weight,
    const int64_t[::1] begin, const int64_t[::1] blocks, double[:, ::1] tile,
    double[:, ::1] sums,
):
    """Add up the distances of left points [m, symbols] to the members of every cluster.

    As `sums_within`; ``sums`` is [m, clusters].
    """
    cdef Py_ssize_t symbols = points.shape[1]
    cdef Py_ssize_t b, i, first, many, home = 0
    cdef double other[BLOCK]
    cdef double squares[BLOCK]
    if symbols == 0 or points.shape[0] == 0:
        return
    with nogil:
        for b in range(blocks.shape[0] - 1):
            with gil:
                PyErr_CheckSignals()
            first = blocks[b]
            many = blocks[b + 1] - first
            while begin[home + 1] <= first:
                home += 1
            gather(points, first, many, tile)
            for i in range(left.shape[0]):
                sums[i, home] += critpath_distances(
                    &left[i, 0], &tile[0, 0], symbols, BLOCK, many, &weight[first],
                    1.0, True, other, squares,
                )


def merged(
    const double[:, ::1] left, const double[::1] left_weight, const int64_t[::1] left_begin,
    const double[:, ::1] points, const double[::1] weight, const double[::1] counted,
    const int64_t[::1] begin, const int64_t[::1] blocks, const double[::1] sizes,
    const double[::1] own, const double[::1] inside, const double[:, ::1] sums,
    const double[:, ::1] outside, double[:, ::1] tile, double[::1] scratch,
    double[:, ::1] left_sums, double[:, ::1] silhouettes,
):
    """Sum the silhouettes of points, for every merge of a left cluster with one of theirs.

    Parameters
    ----------
    left, left_weight, left_begin
        Points of the clusters to merge: [m, symbols], [m], [left clusters + 1].
    points, weight, begin, blocks, tile
        As in `sums_within`.
    counted : float64 [n]
        The weight; 0 for a cluster of one, which has silhouette 0 unless it is merged.
    sizes : float64 [clusters]
        Members of each cluster.
    own, inside : float64 [n]
        Sum of distances to the own cluster, and the mean without oneself.
    sums : float64 [clusters, n]
        Sums of distances of the points to every cluster.
    outside : float64 [clusters, n]
        Mean distance to the nearest cluster that is neither the own nor this one; row of
        the own cluster: to the nearest other.
    scratch : float64 [2 * clusters + 1, at least]
    left_sums : float64 [m, clusters]
        0 on entry; filled in: sums of distances of left points to every cluster.
    silhouettes : float64 [left clusters, clusters]
        0 on entry; filled in.

    Notes
    -----
    A merge changes one mean distance of every point.  Where a block's distances to the
    left cluster are all so large that the joined cluster cannot become the nearest
    other one, the block's silhouettes are what they are without the merge.
    """
    cdef Py_ssize_t symbols = points.shape[1], clusters = begin.shape[0] - 1
    cdef Py_ssize_t b, c, k, i, j, first, many, home = 0
    cdef double other[BLOCK]
    cdef double squares[BLOCK]
    cdef double members, farthest, near, value
    cdef double *reach = &scratch[0]  # members * farthest + this: beyond, nothing changes
    cdef double *unchanged = &scratch[clusters]
    if symbols == 0 or points.shape[0] == 0 or left.shape[0] == 0:
        return
    with nogil:
        for b in range(blocks.shape[0] - 1):
            with gil:
                PyErr_CheckSignals()
            first = blocks[b]
            many = blocks[b + 1] - first
            while begin[home + 1] <= first:
                home += 1
            gather(points, first, many, tile)
            farthest = 0.0
            for j in range(many):
                if outside[home, first + j] > farthest:
                    farthest = outside[home, first + j]
                other[j] = INFINITY
            value = critpath_beside(
                &inside[first], other, other, 1.0, &outside[home, first], &counted[first], many
            )
            for k in range(clusters):
                unchanged[k] = value
                reach[k] = -INFINITY
                for j in range(many):
                    near = sizes[k] * outside[home, first + j] - sums[k, first + j]
                    if outside[k, first + j] != outside[home, first + j]:
                        near = INFINITY
                    if near > reach[k]:
                        reach[k] = near
            for c in range(left_begin.shape[0] - 1):
                members = 0.0
                for i in range(left_begin[c], left_begin[c + 1]):
                    left_sums[i, home] += critpath_distances(
                        &left[i, 0], &tile[0, 0], symbols, BLOCK, many, &weight[first],
                        left_weight[i], i == left_begin[c], other, squares,
                    )
                    members += left_weight[i]
                silhouettes[c, home] += critpath_joined(
                    &own[first], other, 1.0 / (sizes[home] + members - 1),
                    &outside[home, first], &weight[first], many,
                )
                near = -1.0
                for k in range(clusters):
                    if k == home:
                        continue
                    value = members * farthest + reach[k]
                    if value > 0 and near < 0:
                        near = critpath_smallest(other, many)
                    if value <= 0 or near >= value:
                        silhouettes[c, k] += unchanged[k]
                        continue
                    silhouettes[c, k] += critpath_beside(
                        &inside[first], &sums[k, first], other, 1.0 / (sizes[k] + members),
                        &outside[k, first], &counted[first], many,
                    )
