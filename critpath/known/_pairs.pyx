"""Pairs of term and count of a document, from the JSON of an entry.

A store has millions of them.  What is not as critpath writes it is for the plain reader, which says
what is wrong.
"""

from libc.stdint cimport int64_t


def read_pairs(const unsigned char[::1] text, int64_t terms, int64_t most, int64_t[:, ::1] pairs):
    """Read ``[[term, count], ...]``, which is known to be JSON.

    Parameters
    ----------
    text : bytes
    terms, most : int
        All terms are below the one and rise, all counts are from 1 to below the other.
    pairs : int64 [rows, 2]
        Where they go.

    Returns
    -------
    int
        How many there are; -1 where they are not so, or more than there is room for.
    """
    cdef Py_ssize_t at, found = 0, length = len(text)
    cdef int64_t number = -1, term = -1, last = -1
    cdef int depth = 0
    cdef bint counting = False
    cdef unsigned char letter
    with nogil:
        for at in range(length):
            letter = text[at]
            if letter >= 48 and letter <= 57:
                if depth != 2:
                    found = -1
                    break
                number = letter - 48 + (10 * number if number > 0 else 0)
                if number >= most:
                    found = -1
                    break
            elif letter == 44:  # ,
                if depth == 2:
                    if counting or number <= last or number >= terms:
                        found = -1
                        break
                    term, number, counting = number, -1, True
            elif letter == 91:  # [
                depth += 1
                if depth > 2:
                    found = -1
                    break
                number, counting = -1, False
            elif letter == 93:  # ]
                if depth == 2:
                    if not counting or number <= 0 or found == pairs.shape[0]:
                        found = -1
                        break
                    pairs[found, 0], pairs[found, 1] = term, number
                    last = term
                    found += 1
                depth -= 1
            elif letter != 32 and letter != 9 and letter != 10 and letter != 13:
                found = -1
                break
    return found
