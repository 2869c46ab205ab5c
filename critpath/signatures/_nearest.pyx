"""Distances of documents to those of every label: the mean of the nearest of each.

Documents are rows of terms (16 bits) and weights, as scipy's compressed ones have them: 6 bytes
each, of which a search reads all, so it takes what the memory takes.  Of a document and a label no
more than the nearest are kept: no table of all distances is made.
"""

from libc.math cimport INFINITY, sqrt
from libc.stdint cimport int64_t, uint16_t

cdef enum:
    LANES = 8  # documents that are asked about at a time
    MOST = 8  # nearest

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
    #define CRITPATH_CLONES __attribute__((target_clones("avx2", "default")))
    #else
    #define CRITPATH_CLONES
    #endif

    /* The product of a row with one query: four sums, so that none waits for the one before. */
    static float critpath_one(
        const unsigned short *restrict term, const float *restrict weight, Py_ssize_t many,
        const float *restrict query)
    {
        float a = 0, b = 0, c = 0, d = 0;
        Py_ssize_t i;
        for (i = 0; i + 4 <= many; i += 4) {
            a += weight[i] * query[term[i]];
            b += weight[i + 1] * query[term[i + 1]];
            c += weight[i + 2] * query[term[i + 2]];
            d += weight[i + 3] * query[term[i + 3]];
        }
        for (; i < many; i++)
            a += weight[i] * query[term[i]];
        return (a + b) + (c + d);
    }

    /* The same with eight at once, whose weights of a term are beside each other. */
    CRITPATH_CLONES static void critpath_eight(
        const unsigned short *restrict term, const float *restrict weight, Py_ssize_t many,
        const float *restrict queries, float *restrict product)
    {
        float even[8] = {0}, odd[8] = {0};
        Py_ssize_t i;
        int k;
        for (i = 0; i + 2 <= many; i += 2) {
            const float *restrict one = queries + 8 * (Py_ssize_t)term[i];
            const float *restrict two = queries + 8 * (Py_ssize_t)term[i + 1];
            for (k = 0; k < 8; k++)
                even[k] += weight[i] * one[k];
            for (k = 0; k < 8; k++)
                odd[k] += weight[i + 1] * two[k];
        }
        if (i < many) {
            const float *restrict one = queries + 8 * (Py_ssize_t)term[i];
            for (k = 0; k < 8; k++)
                even[k] += weight[i] * one[k];
        }
        for (k = 0; k < 8; k++)
            product[k] = even[k] + odd[k];
    }
    """
    float critpath_one(const uint16_t *, const float *, Py_ssize_t, const float *) noexcept nogil
    void critpath_eight(
        const uint16_t *, const float *, Py_ssize_t, const float *, float *
    ) noexcept nogil


def lanes():
    """Return how many documents may be asked about at a time, beside one."""
    return LANES


def add_nearest(
    const int64_t[::1] start,
    const uint16_t[::1] term,
    const float[::1] weight,
    const float[::1] lengths,
    const int64_t[::1] label,
    const float[:, ::1] queries,
    const double[::1] ours,
    double[:, :, ::1] least,
    double[:, ::1] mean,
):
    """Find the mean distance to the nearest documents of each label; infinite where it has none.

    Parameters
    ----------
    start, term, weight, lengths, label
        Rows of documents, the squared length of each, and whose they are.
    queries : float32 [terms, 1 or lanes]
        What is asked about, as the drift scales it; in the lanes that are not used, 0.
    ours : float64 [asked]
        Squared length of each.
    least : float64 [asked, labels, nearest]
        Room to work in.
    mean : float64 [asked, labels]
        What is found.
    """
    cdef Py_ssize_t rows = len(label), asked = len(ours), nearest = least.shape[2]
    cdef Py_ssize_t row, first, many, at, place, found
    cdef float product[LANES]
    cdef double square, total
    cdef bint alone = queries.shape[1] == 1
    cdef double *best
    if not rows or not asked or not nearest:
        mean[:, :] = INFINITY
        return
    if queries.shape[1] not in {1, LANES} or asked > queries.shape[1]:
        raise ValueError("one document, or at most as many as there are lanes")
    with nogil:
        least[:, :, :] = INFINITY
        for row in range(rows):
            first = start[row]
            many = start[row + 1] - first
            if many == 0:
                for at in range(asked):
                    product[at] = 0
            elif alone:
                product[0] = critpath_one(&term[first], &weight[first], many, &queries[0, 0])
            else:
                critpath_eight(&term[first], &weight[first], many, &queries[0, 0], product)
            for at in range(asked):
                square = ours[at] + lengths[row] - 2.0 * product[at]
                best = &least[at, label[row], 0]
                place = nearest - 1
                if square < best[place]:
                    while place and best[place - 1] > square:
                        best[place] = best[place - 1]
                        place -= 1
                    best[place] = square
        for at in range(asked):
            for place in range(least.shape[1]):
                total = 0
                found = 0
                while found < nearest and least[at, place, found] < INFINITY:
                    square = least[at, place, found]
                    total += sqrt(square) if square > 0 else 0
                    found += 1
                mean[at, place] = total / found if found else INFINITY
