"""How many events of each class a piece of a trace has, and where those asked for are."""

from libc.stdint cimport int32_t, int64_t, uint8_t


def count_classes(
    const int32_t[::1] event_class,
    const uint8_t[::1] asked,
    int64_t[::1] count,
    int64_t[::1] places,
):
    """Add up a piece in one look at it.

    Parameters
    ----------
    event_class : int32 [events]
        All below how many classes there are.
    asked : bool [classes]
        As bytes: those whose events' places are wanted.
    count : int64 [classes]
        What is added to.
    places : int64 [events]
        Room for the places, of which the first are written.

    Returns
    -------
    int
        How many places there are.
    """
    cdef Py_ssize_t at, found = 0
    cdef int32_t of
    with nogil:
        for at in range(len(event_class)):
            of = event_class[at]
            count[of] += 1
            places[found] = at  # overwritten where it is not asked for
            found += asked[of]
    return found
