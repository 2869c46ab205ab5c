# cython: language_level=3
"""Finds where the switches of a cpu contradict each other: one pass over all events."""

from libc.stdint cimport int32_t, int64_t, uint8_t

import numpy as np


def contradictions(const int32_t[::1] cpu, const int32_t[::1] event_class,
                   const int64_t[::1] offset, const int64_t[::1] values,
                   const uint8_t[::1] kinds, const int64_t[::1] class_host,
                   Py_ssize_t hosts, Py_ssize_t cpus, int switch):
    """Return pairs of rows: a switch, and the cpu's next, which is from another thread.

    Fields of a switch are in the canonical order: ``prev_tid`` is 1, ``next_tid`` 4.
    """
    cdef Py_ssize_t i, n = cpu.shape[0], place
    cdef int64_t[::1] last = np.full(hosts * cpus, -1, np.int64)
    cdef list found = []
    cdef int64_t before
    for i in range(n):
        if kinds[event_class[i]] != switch or cpu[i] < 0 or cpu[i] >= cpus:
            continue
        place = class_host[event_class[i]] * cpus + cpu[i]
        before = last[place]
        if before >= 0 and values[offset[before] + 4] != values[offset[i] + 1]:
            found.append((before, i))
        last[place] = i
    return np.array(found, np.int64).reshape(-1, 2)
