"""Which of many random keys are the smallest: two passes over them, and no sorting of all."""

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memset

cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>

    #if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
    #define CRITPATH_CLONES __attribute__((target_clones("avx2", "default")))
    #else
    #define CRITPATH_CLONES
    #endif
    #define CRITPATH_BUCKETS 2048

    typedef struct { float key; int64_t at; } critpath_key;

    static int critpath_earlier(const void *left, const void *right)
    {
        const critpath_key *a = left, *b = right;
        if (a->key != b->key)
            return a->key < b->key ? -1 : 1;
        return a->at < b->at ? -1 : 1;
    }

    static inline Py_ssize_t critpath_bucket(float key)
    {
        /* A power of two: bounds of buckets are exact.  Keys from 1 on share the last. */
        float scaled = key * CRITPATH_BUCKETS;
        return scaled < CRITPATH_BUCKETS ? (Py_ssize_t)(int32_t)scaled : CRITPATH_BUCKETS - 1;
    }

    CRITPATH_CLONES static int critpath_valid(const float *restrict keys, Py_ssize_t n)
    {
        Py_ssize_t j;
        int wrong = 0;
        /* NaN is neither. */
        for (j = 0; j < n; j++)
            wrong |= !((keys[j] >= 0) & (keys[j] < INFINITY));
        return !wrong;
    }

    static void critpath_count(const float *keys, Py_ssize_t n, uint32_t *counts)
    {
        /* Two tables: what was just counted need not be waited for. */
        uint32_t *other = counts + CRITPATH_BUCKETS;
        Py_ssize_t j;
        for (j = 0; j + 1 < n; j += 2) {
            counts[critpath_bucket(keys[j])]++;
            other[critpath_bucket(keys[j + 1])]++;
        }
        if (j < n)
            counts[critpath_bucket(keys[j])]++;
    }

    CRITPATH_CLONES static void critpath_below(
        const float *restrict keys, Py_ssize_t n, float limit, uint8_t *restrict marked)
    {
        Py_ssize_t j;
        for (j = 0; j < n; j++)
            marked[j] = keys[j] < limit;
    }

    CRITPATH_CLONES static Py_ssize_t critpath_between(
        const float *restrict keys, Py_ssize_t n, float low, float high,
        critpath_key *restrict found)
    {
        Py_ssize_t first, j, many = 0;
        for (first = 0; first < n; first += 64) {
            const Py_ssize_t last = n - first < 64 ? n : first + 64;
            int any = 0;
            /* Most stretches have none. */
            for (j = first; j < last; j++)
                any |= (keys[j] >= low) & (keys[j] < high);
            if (!any)
                continue;
            for (j = first; j < last; j++) {
                found[many].key = keys[j];
                found[many].at = j;
                many += (keys[j] >= low) & (keys[j] < high);
            }
        }
        return many;
    }
    """
    ctypedef struct critpath_key:
        float key
        int64_t at
    int critpath_earlier(const void *, const void *) noexcept nogil
    bint critpath_valid(const float *, Py_ssize_t) noexcept nogil
    void critpath_count(const float *, Py_ssize_t, unsigned int *) noexcept nogil
    void critpath_below(const float *, Py_ssize_t, float, uint8_t *) noexcept nogil
    Py_ssize_t critpath_between(
        const float *, Py_ssize_t, float, float, critpath_key *
    ) noexcept nogil

cdef enum:
    BUCKETS = 2048


def mark(const float[:, ::1] keys, Py_ssize_t k, uint8_t[:, ::1] marked):
    """Mark the ``k`` smallest of every row [n], the first ones of equals.

    Parameters
    ----------
    keys : float32 [rows, n]
        None negative, infinite or NaN; O(n) time where they spread evenly over 0 to 1.
    k : int
        From 1 to n.
    marked : uint8 [rows, n]
        Filled in.

    Raises
    ------
    ValueError
        If there are not as many, or a key is negative, infinite or NaN.
    """
    cdef Py_ssize_t n = keys.shape[1], row, bucket, below, many, j
    cdef unsigned int counts[2 * BUCKETS]
    cdef float low, high
    cdef critpath_key *found
    cdef bint valid = True
    if not 1 <= k <= n:
        raise ValueError("k from 1 to n expected")
    found = <critpath_key *>malloc((n + 1) * sizeof(critpath_key))
    if found == NULL:
        raise MemoryError
    with nogil:
        for row in range(keys.shape[0]):
            # Before any is counted: a wrong one has no bucket.
            valid = critpath_valid(&keys[row, 0], n)
            if not valid:
                break
            memset(counts, 0, sizeof(counts))
            critpath_count(&keys[row, 0], n, counts)
            below, bucket = 0, 0
            while below + counts[bucket] + counts[BUCKETS + bucket] < k:
                below += counts[bucket] + counts[BUCKETS + bucket]
                bucket += 1
            low, high = <float>bucket / BUCKETS, <float>(bucket + 1) / BUCKETS
            if bucket == BUCKETS - 1:
                high = INFINITY
            critpath_below(&keys[row, 0], n, low, &marked[row, 0])
            many = critpath_between(&keys[row, 0], n, low, high, found)
            qsort(found, many, sizeof(critpath_key), critpath_earlier)
            for j in range(k - below):
                marked[row, found[j].at] = 1
    free(found)
    if not valid:
        raise ValueError("keys that are finite and not negative expected")
