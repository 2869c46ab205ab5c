# cython: language_level=3
"""The segments of a path as JSON: of a million of them, only the times are not the same text."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import numpy as np

cdef extern from "Python.h":
    char *PyBytes_AsString(object text) except NULL
    bytearray PyByteArray_FromStringAndSize(const char *of, Py_ssize_t size)
    char *PyByteArray_AsString(object text) except NULL
    int PyByteArray_Resize(object text, Py_ssize_t size) except -1

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
                  bytes texts, const int64_t[::1] bounds):
    """Return segments as objects with commas between them.

    Parameters
    ----------
    begin, end : int64 [segments]
    kind : int64 [segments]
        Of which kind each is.
    texts : bytes
        ASCII: what follows the times of a segment, with its closing brace, kind after kind.
    bounds : int64 [kinds + 1]
        Where the text of each kind begins in these.
    """
    cdef Py_ssize_t i, size = 0, count = begin.shape[0]
    cdef int64_t length
    cdef char *to
    cdef char *first
    cdef const char *text = PyBytes_AsString(texts)
    cdef char time[DIGITS]  # where a segment ends, the next begins: written once
    cdef int digits = 0
    cdef bytearray joined
    for i in range(count):
        size += MOST + bounds[kind[i] + 1] - bounds[kind[i]]
    joined = PyByteArray_FromStringAndSize(NULL, size)
    first = to = PyByteArray_AsString(joined)
    with nogil:
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
            length = bounds[kind[i] + 1] - bounds[kind[i]]
            memcpy(to + 2, text + bounds[kind[i]], length)
            to += 2 + length
    PyByteArray_Resize(joined, to - first)
    return joined


def sum_paths(const int64_t[::1] start, const int64_t[::1] begin, const int64_t[::1] end,
              const uint8_t[::1] state, const int64_t[::1] uncertainty,
              const double[::1] confidence, const uint8_t[::1] others, int states):
    """Return what there is to say of whole paths.

    Returns
    -------
    tuple of arrays
        How often each is in each state, how long (ns), by how much times between its hosts may
        be wrong (-1: not known), and how probable the least sure part is that is its own.
    """
    cdef Py_ssize_t path, i
    seen = np.zeros((start.shape[0] - 1, states), np.int64)
    spent = np.zeros_like(seen)
    wrong = np.zeros(len(seen), np.int64)
    least = np.ones(len(seen), np.float64)
    cdef int64_t[:, ::1] counts = seen, time = spent
    cdef int64_t[::1] bound = wrong
    cdef double[::1] sure = least
    with nogil:
        for path in range(counts.shape[0]):
            for i in range(start[path], start[path + 1]):
                if state[i] < states:
                    counts[path, state[i]] += 1
                    time[path, state[i]] += end[i] - begin[i]
                if uncertainty[i] < 0:
                    bound[path] = -1
                elif bound[path] >= 0 and uncertainty[i] > bound[path]:
                    bound[path] = uncertainty[i]
                if not others[i] and confidence[i] < sure[path]:
                    sure[path] = confidence[i]
    return seen, spent, wrong, least
