# cython: language_level=3
"""The segments of a path as JSON: of a million of them, only the times are not the same text."""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    bytes PyBytes_FromStringAndSize(const char *of, Py_ssize_t size)
    object PyUnicode_DecodeASCII(const char *of, Py_ssize_t size, const char *errors)
    char *PyBytes_AsString(object text)
    Py_ssize_t PyBytes_Size(object text)

cdef enum:
    DIGITS = 20  # of a number at most, with its sign
    MOST = 23 + 2 * DIGITS  # of a segment, but for its kind


# "00" to "99": two digits a division.
cdef char[200] PAIRS
cdef int _each
for _each in range(100):
    PAIRS[2 * _each] = 48 + _each // 10
    PAIRS[2 * _each + 1] = 48 + _each % 10


cdef inline int write_number(char *to, int64_t number) noexcept nogil:
    """Write a number in decimal; return its length."""
    cdef char digits[DIGITS]
    cdef int at = DIGITS
    cdef uint64_t rest = <uint64_t> number
    if number < 0:
        rest = -rest
    while rest >= 100:
        at -= 2
        memcpy(digits + at, PAIRS + 2 * (rest % 100), 2)
        rest //= 100
    at -= 1
    digits[at] = <char> (48 + rest % 10)
    if rest >= 10:
        at -= 1
        digits[at] = <char> (48 + rest // 10)
    if number < 0:
        at -= 1
        digits[at] = b'-'
    memcpy(to, digits + at, DIGITS - at)
    return DIGITS - at


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
    cdef char *first
    cdef char time[DIGITS]  # where a segment ends, the next begins: written once
    cdef int digits = 0
    cdef bytes text, joined
    for i in range(count):
        size += MOST + PyBytes_Size(texts[kind[i]])
    joined = PyBytes_FromStringAndSize(NULL, size)
    first = to = PyBytes_AsString(joined)
    for i in range(count):
        if i:
            memcpy(to, b', ', 2)
            to += 2
        memcpy(to, b'{"begin": ', 10)
        if not i or begin[i] != end[i - 1]:
            digits = write_number(time, begin[i])
        memcpy(to + 10, time, DIGITS)
        to += 10 + digits
        memcpy(to, b', "end": ', 9)
        digits = write_number(time, end[i])
        memcpy(to + 9, time, DIGITS)
        to += 9 + digits
        memcpy(to, b', ', 2)
        text = texts[kind[i]]
        memcpy(to + 2, PyBytes_AsString(text), PyBytes_Size(text))
        to += 2 + PyBytes_Size(text)
    return PyUnicode_DecodeASCII(first, to - first, NULL)
