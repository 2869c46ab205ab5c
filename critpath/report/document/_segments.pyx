# cython: language_level=3
"""The segments of a path as JSON: of a million of them, only the times are not the same text."""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 most)
    void *PyUnicode_DATA(object text)
    char *PyBytes_AS_STRING(object text)
    Py_ssize_t PyBytes_GET_SIZE(object text)

cdef enum:
    DIGITS = 20  # of a number at most, with its sign


cdef inline char *write_number(char *to, int64_t number) noexcept nogil:
    cdef char digits[DIGITS]
    cdef int at = DIGITS
    cdef uint64_t rest = <uint64_t> number
    if number < 0:
        to[0] = b'-'
        to += 1
        rest = -rest
    while True:
        at -= 1
        digits[at] = <char> (48 + rest % 10)
        rest //= 10
        if not rest:
            break
    memcpy(to, digits + at, DIGITS - at)
    return to + DIGITS - at


cdef inline int length(int64_t number) noexcept nogil:
    cdef uint64_t rest = <uint64_t> number
    cdef int found = 1
    if number < 0:
        found += 1
        rest = -rest
    while rest >= 10:
        rest //= 10
        found += 1
    return found


def join_segments(const int64_t[::1] begin, const int64_t[::1] end, const int64_t[::1] kind,
                  list texts):
    """Return segments as objects with commas between them.

    Parameters
    ----------
    begin, end : int64 [segments]
    kind : int64 [segments]
        Which of the texts each has.
    texts : list of bytes
        ASCII: what follows the times of a segment, with its closing brace.
    """
    cdef Py_ssize_t i, size = 0, count = begin.shape[0]
    cdef char *to
    cdef object result, text
    if not count:
        return ""
    for i in range(count):
        size += 23 + length(begin[i]) + length(end[i])
        size += PyBytes_GET_SIZE(texts[kind[i]])
    result = PyUnicode_New(size - 2, 127)
    to = <char *> PyUnicode_DATA(result)
    for i in range(count):
        if i:
            memcpy(to, b', ', 2)
            to += 2
        memcpy(to, b'{"begin": ', 10)
        to = write_number(to + 10, begin[i])
        memcpy(to, b', "end": ', 9)
        to = write_number(to + 9, end[i])
        memcpy(to, b', ', 2)
        text = texts[kind[i]]
        memcpy(to + 2, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        to += 2 + PyBytes_GET_SIZE(text)
    return result
