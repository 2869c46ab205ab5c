"""Sets of executions as bits: how large what two have in common is, under circular shifts.

Executions stand group by group, each group from a whole word on.  A shift turns the selection of
every group within the group; what is looked for is the largest difference over all conditions
under each shift.
"""

from libc.math cimport fabs, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc

cdef extern from *:
    """
    #include <stdint.h>

    #if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
    #define CRITPATH_CLONES __attribute__((target_clones("popcnt", "default")))
    #else
    #define CRITPATH_CLONES
    #endif

    CRITPATH_CLONES static int64_t critpath_common(
        const uint64_t *left, const uint64_t *right, Py_ssize_t words)
    {
        int64_t found = 0;
        for (Py_ssize_t i = 0; i < words; i++)
            found += __builtin_popcountll(left[i] & right[i]);
        return found;
    }

    CRITPATH_CLONES static int64_t critpath_common_three(
        const uint64_t *left, const uint64_t *right, const uint64_t *third, Py_ssize_t words)
    {
        int64_t found = 0;
        for (Py_ssize_t i = 0; i < words; i++)
            found += __builtin_popcountll(left[i] & right[i] & third[i]);
        return found;
    }

    /* A group's bits, `length` of them twice in `twice`, turned by `shift`. */
    static void critpath_turn(
        const uint64_t *twice, Py_ssize_t shift, Py_ssize_t words, uint64_t *turned)
    {
        const uint64_t *from = twice + (shift >> 6);
        const int by = (int)(shift & 63);
        for (Py_ssize_t i = 0; i < words; i++)
            turned[i] = by ? (from[i] >> by) | (from[i + 1] << (64 - by)) : from[i];
    }
    """
    int64_t critpath_common(const uint64_t *left, const uint64_t *right, Py_ssize_t words) nogil
    int64_t critpath_common_three(
        const uint64_t *left, const uint64_t *right, const uint64_t *third, Py_ssize_t words
    ) nogil
    void critpath_turn(
        const uint64_t *twice, Py_ssize_t shift, Py_ssize_t words, uint64_t *turned
    ) nogil


def common(const uint64_t[:, ::1] bits, const uint64_t[::1] selected, int64_t[::1] found):
    """Fill in how many of each set are selected."""
    cdef Py_ssize_t c
    with nogil:
        for c in range(bits.shape[0]):
            found[c] = critpath_common(&bits[c, 0], &selected[0], bits.shape[1])


def common_of(const uint64_t[:, ::1] bits, Py_ssize_t first, Py_ssize_t second):
    """Return how many two sets have in common."""
    return critpath_common(&bits[first, 0], &bits[second, 0], bits.shape[1])


cdef int64_t pair_size(
    const uint64_t[:, ::1] bits, int32_t[:, ::1] known, Py_ssize_t i, Py_ssize_t j
) noexcept nogil:
    if known[i, j] < 0:
        known[i, j] = <int32_t>critpath_common(&bits[i, 0], &bits[j, 0], bits.shape[1])
        known[j, i] = known[i, j]
    return known[i, j]


cdef double height_of(
    int64_t count, int64_t size, int64_t chosen, int64_t others, double scale
) noexcept nogil:
    """The standardised difference of one set, of whose domain so many are chosen."""
    cdef double share = <double>chosen / (size + others)
    if chosen == 0 or chosen == size + others:
        return 0.0
    return fabs(<double>count / size - <double>(chosen - count) / others) * scale / sqrt(
        share * (1.0 - share)
    )


def largest_differences(
    const uint64_t[:, ::1] bits,
    const int64_t[::1] sizes,
    const double[::1] scale,
    const int64_t[::1] domain,
    const uint64_t[:, ::1] domains,
    const int64_t[::1] among,
    const uint64_t[::1] twice,
    const int64_t[::1] twice_at,
    const int64_t[::1] words_at,
    const int64_t[:, ::1] shifts,
    Py_ssize_t best,
    int64_t fewest,
    int32_t[:, ::1] pairs,
    double[::1] largest,
):
    """Fill in the largest standardised difference over all sets, for every shift.

    Parameters
    ----------
    bits, sizes, scale
        Of every set: its bits, how many, one over the standard error of its difference, less
        what depends on the share that is selected.
    domain, domains, among
        Within which executions each set is compared; their bits, and how many they are.
    twice, twice_at, words_at
        The selection, each group's bits twice one after the other; where each group begins in
        them and in a set's words.
    shifts : int64 [shifts, groups]
    best : int
        Of so many sets with the largest differences under a shift any two are looked at as well.
    fewest : int
        Smaller pairs, or such that leave out fewer, are not.
    pairs : int32 [sets, sets]
        -1, or the sizes of pairs that are known; filled in.  Not used where ``best`` is 0.
    largest : float64 [shifts]
    """
    cdef Py_ssize_t words = bits.shape[1], sets = bits.shape[0], groups = shifts.shape[1]
    cdef Py_ssize_t s, g, c, i, j, held
    cdef Py_ssize_t first, second
    cdef int64_t count, size, others, chosen
    cdef double found, most
    cdef uint64_t *turned = <uint64_t *>malloc(words * sizeof(uint64_t) + 8)
    cdef Py_ssize_t *top = <Py_ssize_t *>malloc((best + 1) * sizeof(Py_ssize_t))
    cdef double *height = <double *>malloc((best + 1) * sizeof(double))
    cdef int64_t *chosen_of = <int64_t *>malloc(domains.shape[0] * sizeof(int64_t))
    if turned == NULL or top == NULL or height == NULL or chosen_of == NULL:
        free(chosen_of)
        free(turned)
        free(top)
        free(height)
        raise MemoryError
    try:
        with nogil:
            for s in range(shifts.shape[0]):
                for g in range(groups):
                    critpath_turn(
                        &twice[twice_at[g]],
                        shifts[s, g],
                        words_at[g + 1] - words_at[g],
                        turned + words_at[g],
                    )
                most = 0.0
                held = 0
                for c in range(domains.shape[0]):
                    chosen_of[c] = critpath_common(&domains[c, 0], turned, words)
                for c in range(sets):
                    count = critpath_common(&bits[c, 0], turned, words)
                    others = among[domain[c]] - sizes[c]
                    found = height_of(count, sizes[c], chosen_of[domain[c]], others, scale[c])
                    if found > most:
                        most = found
                    if best and (held < best or found > height[held - 1]):
                        i = held if held < best else best - 1
                        while i > 0 and height[i - 1] < found:
                            height[i] = height[i - 1]
                            top[i] = top[i - 1]
                            i -= 1
                        height[i] = found
                        top[i] = c
                        if held < best:
                            held += 1
                for i in range(held):
                    for j in range(i):
                        size = pair_size(bits, pairs, top[i], top[j])
                        first, second = domain[top[i]], domain[top[j]]
                        if first == second or first == 0 or second == 0:
                            first = first if second == 0 else second
                            others, chosen = among[first] - size, chosen_of[first]
                        else:
                            others = critpath_common(
                                &domains[first, 0], &domains[second, 0], words
                            ) - size
                            chosen = critpath_common_three(
                                &domains[first, 0], &domains[second, 0], turned, words
                            )
                        if size < fewest or others < fewest:
                            continue
                        count = critpath_common_three(
                            &bits[top[i], 0], &bits[top[j], 0], turned, words
                        )
                        found = height_of(
                            count, size, chosen, others, 1.0 / sqrt(1.0 / size + 1.0 / others)
                        )
                        if found > most:
                            most = found
                largest[s] = most
    finally:
        free(chosen_of)
        free(turned)
        free(top)
        free(height)
