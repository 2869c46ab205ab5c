"""Columns of tables of many rows or of many groups: sums, deviations, ranks, medians, scores.

Of many rows without copies, of many groups in one pass.  Numbers are added in numpy's order, row
after row of several columns, so each is the same bit for bit.
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
    SHORT = 16  # values that are sorted one by one


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


cdef void _standardise(double[:, ::1] table, double[::1] means, double[::1] scales,
                       double least) noexcept nogil:
    cdef Py_ssize_t rows = table.shape[0], columns = table.shape[1], row, column
    cdef double distance
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


def standardise(double[:, ::1] table, const int64_t[::1] ends, double[::1] means,
                double[:, ::1] scales, double least):
    """Have every column's mean 0 and its deviation 1, or 0 where that is no more than `least`.

    In every group of rows, one after the other, by itself; ``ends`` is where each ends.
    """
    cdef Py_ssize_t first = 0, group
    with nogil:
        for group in range(ends.shape[0]):
            _standardise(table[first:ends[group]], means, scales[group], least)
            first = ends[group]


cdef void _sort(const double* values, int32_t* order, int32_t* room,
                Py_ssize_t rows) noexcept nogil:
    """Order rows by their values, equal ones as they are."""
    cdef Py_ssize_t first, middle, last, a, b, at, width = SHORT
    for at in range(rows):
        a, first = at, at - at % SHORT
        while a > first and values[order[a - 1]] > values[at]:
            order[a] = order[a - 1]
            a -= 1
        order[a] = <int32_t>at
    while width < rows:
        first = 0
        while first < rows:
            middle, last = min(first + width, rows), min(first + 2 * width, rows)
            a, b = first, middle
            for at in range(first, last):
                if b >= last or (a < middle and values[order[a]] <= values[order[b]]):
                    room[at] = order[a]
                    a += 1
                else:
                    room[at] = order[b]
                    b += 1
            for at in range(first, last):
                order[at] = room[at]
            first = last
        width *= 2


def score(const double[:, ::1] columns, const int64_t[::1] ends, double share,
          int32_t[:, ::1] room, double[:, ::1] pooled):
    """Rank the values of every group, divide them by its mean, and mark those above a quantile.

    Parameters
    ----------
    columns : float64 [columns, rows]
        The groups one after the other; ``ends`` is where each ends.
    share : float
        Of the quantile.
    room : int32 [2, rows]
    pooled : float64 [rows, 3 * columns]
        Filled in: ranks, shares of the mean, marks.
    """
    cdef Py_ssize_t count = columns.shape[0], column, group, first, last, rows, row, at
    cdef const double* values
    cdef int32_t* order = &room[0, 0]
    cdef double mean, part, low, high, middle
    with nogil:
        for column in range(count):
            first = 0
            for group in range(ends.shape[0]):
                values = &columns[column, first]
                rows = ends[group] - first
                _sort(values, order, &room[1, 0], rows)
                mean = 0
                for row in range(rows):
                    mean += values[row]
                mean /= rows
                if not mean > 0:
                    mean = 1
                at = <Py_ssize_t>((rows - 1) * share)
                part = (rows - 1) * share - at
                low = values[order[at]]
                high = values[order[min(at + 1, rows - 1)]]
                if part >= 0.5:
                    high = high - (high - low) * (1 - part)
                else:
                    high = low + (high - low) * part
                at = 0
                while at < rows:
                    last = at + 1
                    while last < rows and values[order[last]] == values[order[at]]:
                        last += 1
                    middle = (at + last + 1) / 2.0
                    for row in range(at, last):
                        pooled[first + order[row], column] = middle
                    at = last
                for row in range(rows):
                    pooled[first + row, count + column] = values[row] / mean
                    pooled[first + row, 2 * count + column] = values[row] > high
                first = ends[group]


cdef double _median(double* values, Py_ssize_t rows) noexcept nogil:
    """Return the median of values, which are put in another order."""
    cdef Py_ssize_t first = 0, last = rows - 1, half = rows // 2, a, b
    cdef double pivot, lower
    while first < last:
        pivot = values[half]
        a, b = first, last
        while a <= b:
            while values[a] < pivot:
                a += 1
            while values[b] > pivot:
                b -= 1
            if a <= b:
                values[a], values[b] = values[b], values[a]
                a += 1
                b -= 1
        if b < half:
            first = a
        if a > half:
            last = b
    if rows % 2:
        return values[half]
    lower = values[0]
    for a in range(1, half):
        lower = max(lower, values[a])
    return (lower + values[half]) / 2


def medians(const double[:, ::1] columns, const int64_t[::1] ends, double[::1] room,
            double[:, ::1] found):
    """Find the median of every group's values in every column.

    Parameters
    ----------
    columns : float64 [columns, rows]
        The groups one after the other; ``ends`` is where each ends.
    room : float64 [rows]
    found : float64 [columns, groups]
        Filled in.
    """
    cdef Py_ssize_t column, group, first, row
    with nogil:
        for column in range(columns.shape[0]):
            first = 0
            for group in range(ends.shape[0]):
                for row in range(ends[group] - first):
                    room[row] = columns[column, first + row]
                found[column, group] = _median(&room[0], ends[group] - first)
                first = ends[group]


def keep_largest(const double[:, :, ::1] tables, double[:, :, ::1] found):
    """Keep the largest values of every column, in order, and those found [tables, columns, k]."""
    cdef Py_ssize_t many = found.shape[2], table, row, column, at
    cdef double value
    with nogil:
        for table in range(tables.shape[0]):
            for row in range(tables.shape[1]):
                for column in range(tables.shape[2]):
                    value = tables[table, row, column]
                    if value > found[table, column, 0]:
                        at = 0
                        while at + 1 < many and found[table, column, at + 1] < value:
                            found[table, column, at] = found[table, column, at + 1]
                            at += 1
                        found[table, column, at] = value


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
