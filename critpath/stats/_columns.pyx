"""Columns of tables of very many rows, without copies: sums by group, deviations, ranks.

Numbers are added in numpy's order, row after row of several columns, so each is the same bit for
bit.
"""

from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

ctypedef fused whole:
    int32_t
    int64_t

cdef enum:
    DIGITS = 11  # bits of a key that are sorted by at a time
    BUCKETS = 1 << DIGITS
    PASSES = 3
    PLACE = 32  # bits of a key below its value


def add_by(const whole[:, :] values, const int64_t[::1] group, double[:, ::1] sums):
    """Add up the rows of every group."""
    cdef Py_ssize_t row, column
    cdef int64_t of
    with nogil:
        for row in range(values.shape[0]):
            of = group[row]
            for column in range(values.shape[1]):
                sums[of, column] += <double>values[row, column]


def add_squares(const whole[:, :] values, const int64_t[::1] group, const double[:, ::1] means,
                double[:, ::1] squares, double[::1] over_all):
    """Add up the squared distances of rows to the mean of their group: by group, and all."""
    cdef Py_ssize_t row, column
    cdef int64_t of
    cdef double distance
    with nogil:
        for row in range(values.shape[0]):
            of = group[row]
            for column in range(values.shape[1]):
                distance = <double>values[row, column] - means[of, column]
                distance = distance * distance
                squares[of, column] += distance
                over_all[column] += distance


cdef void _average(double[:, ::1] table, double[::1] means) noexcept nogil:
    """Set the mean of every column."""
    cdef Py_ssize_t row, column
    means[:] = 0
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            means[column] += table[row, column]
    for column in range(table.shape[1]):
        means[column] /= table.shape[0]


def standardise(double[:, ::1] table, double[::1] means, double[::1] scales, double least):
    """Have every column's mean 0 and its deviation 1, or 0 where that is no more than `least`."""
    cdef Py_ssize_t rows = table.shape[0], columns = table.shape[1], row, column
    cdef double distance
    with nogil:
        scales[:] = 0
        _average(table, means)
        # What is left of rounding is a mean, too.
        for row in range(rows):
            for column in range(columns):
                table[row, column] -= means[column]
        _average(table, means)
        for row in range(rows):
            for column in range(columns):
                distance = table[row, column] - means[column]
                scales[column] += distance * distance
        for column in range(columns):
            scales[column] = sqrt(scales[column] / rows)
        for row in range(rows):
            for column in range(columns):
                if scales[column] > least:
                    table[row, column] /= scales[column]
                else:
                    table[row, column] = 0


def rank(const whole[:] values, int64_t low, uint64_t[:, ::1] keys, double[:] ranks):
    """Rank numbers, the least of which is `low` and none 2^32 above it; equal ones share the mean.

    ``keys`` is room for twice as many.
    """
    cdef Py_ssize_t rows = values.shape[0], row, first, last
    cdef uint64_t counts[PASSES][BUCKETS]
    cdef uint64_t* now = &keys[0, 0]
    cdef uint64_t* then = &keys[1, 0]
    cdef uint64_t key, before, many
    cdef int step, digit
    cdef double mean
    with nogil:
        memset(counts, 0, sizeof(counts))
        for row in range(rows):
            key = <uint64_t>(<int64_t>values[row] - low)
            now[row] = key << PLACE | <uint64_t>row
            for step in range(PASSES):
                counts[step][key >> DIGITS * step & BUCKETS - 1] += 1
        for step in range(PASSES):
            if counts[step][now[0] >> (PLACE + DIGITS * step) & BUCKETS - 1] == <uint64_t>rows:
                continue
            before = 0
            for digit in range(BUCKETS):
                many = counts[step][digit]
                counts[step][digit] = before
                before += many
            for row in range(rows):
                digit = now[row] >> (PLACE + DIGITS * step) & BUCKETS - 1
                then[counts[step][digit]] = now[row]
                counts[step][digit] += 1
            now, then = then, now
        first = 0
        while first < rows:
            key = now[first] >> PLACE
            last = first + 1
            while last < rows and now[last] >> PLACE == key:
                last += 1
            mean = (first + last + 1) / 2.0
            for row in range(first, last):
                ranks[now[row] & (<uint64_t>1 << PLACE) - 1] = mean
            first = last
