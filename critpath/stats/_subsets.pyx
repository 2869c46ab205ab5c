"""Random subsets of a size: a coin for each member, then as many more or fewer as are missing."""

from libc.stdint cimport uint8_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>

    /* SplitMix64 (Steele, Lea and Flood 2014). */
    static inline uint64_t critpath_next(uint64_t *state)
    {
        uint64_t z = (*state += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

    /* Marks about `share` of 256 of n bytes; returns how many. */
    static Py_ssize_t critpath_toss(
        uint64_t *state, unsigned share, uint8_t *restrict marked, Py_ssize_t n)
    {
        Py_ssize_t j, count = 0;
        uint64_t word = 0;
        unsigned byte;
        for (j = 0; j + 8 <= n; j += 8) {
            word = critpath_next(state);
            for (byte = 0; byte < 8; byte++)
                marked[j + byte] = (uint8_t)(word >> 8 * byte);
        }
        for (word = critpath_next(state); j < n; j++, word >>= 8)
            marked[j] = (uint8_t)word;
        for (j = 0; j < n; j++) {
            marked[j] = marked[j] < share;
            count += marked[j];
        }
        return count;
    }

    static inline Py_ssize_t critpath_place(uint64_t *state, Py_ssize_t n)
    {
        return (Py_ssize_t)((double)(critpath_next(state) >> 11) * 0x1p-53 * (double)n);
    }
    """
    Py_ssize_t critpath_toss(uint64_t *, unsigned, uint8_t *, Py_ssize_t) noexcept nogil
    Py_ssize_t critpath_place(uint64_t *, Py_ssize_t) noexcept nogil


def draw(const uint64_t[::1] seeds, Py_ssize_t k, uint8_t[:, ::1] marked):
    """Mark ``k`` of the ``n`` members of every row, all subsets equally likely.

    Coins of one chance favour no subset of any size, nor does what is chosen at random to be
    marked, or not, afterwards.

    Parameters
    ----------
    seeds : uint64 [rows]
    k : int
        From 0 to n.
    marked : uint8 [rows, n]
        Filled in.

    Raises
    ------
    ValueError
        If there are not as many, or not as many seeds.
    """
    cdef Py_ssize_t n = marked.shape[1], row, count, place
    cdef uint64_t state
    cdef unsigned share
    cdef uint8_t more
    if not 0 <= k <= n or seeds.shape[0] != marked.shape[0]:
        raise ValueError("k from 0 to n and a seed for every row expected")
    if not n:
        return
    share = <unsigned>(256.0 * k / n)
    with nogil:
        for row in range(marked.shape[0]):
            state = seeds[row]
            count = critpath_toss(&state, share, &marked[row, 0], n)
            more = count < k
            while count != k:
                place = critpath_place(&state, n)
                if marked[row, place] != more:
                    marked[row, place] = more
                    count += 1 if more else -1
