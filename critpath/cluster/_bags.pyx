"""Scores of normal executions against types that another execution has joined."""

from libc.math cimport INFINITY, fmax, sqrt
from libc.stdint cimport uint8_t


def score(
    const double[::1] joining,
    const double[:, ::1] values,
    const double[:, ::1] left_mean,
    const double[:, ::1] left_squares,
    const double[:, ::1] left_pooled,
    const double[:, ::1] mean,
    const double[::1] size,
    const double[::1] left_size,
    const uint8_t[::1] joined,
    const long long[::1] starts,
    double freedom,
    double prior,
    double low_support,
    double least,
    double[::1] scores,
):
    """Score every execution against the nearest of the types that it fits, none of which has it.

    Parameters
    ----------
    joining : float64 [columns]
        What joins a type, in both scales, as all below: durations, then their logarithms.
    values, left_mean, left_squares, left_pooled : float64 [pairs, columns]
        Of pairs of an execution and a type without it: the execution; the type; sums of squares
        about means, of the type and of all.
    mean : float64 [pairs, columns]
        Of the type that is joined, without the execution.
    size, left_size : float64 [pairs]
        Executions of the type that is joined, and of the pair's.
    joined : bool [pairs]
        Whether the pair's type is the one that is joined.
    starts : int64 [executions]
        First pair of each.
    freedom, prior, low_support, least : float
        As `critpath.cluster.outliers` shrinks spreads.
    scores : float64 [executions]
        Filled in.
    """
    cdef Py_ssize_t pairs = values.shape[0], columns = joining.shape[0] // 2
    cdef Py_ssize_t execution = -1, pair, column, each, scale
    cdef double best = INFINITY, total, shift[2]
    cdef double floor, difference, gained, pooled, middle, squares, variance, many, squared
    cdef bint ours
    with nogil:
        for pair in range(pairs):
            if execution + 1 < starts.shape[0] and starts[execution + 1] == pair:
                if execution >= 0:
                    scores[execution] = sqrt(best)
                execution += 1
                best = INFINITY
            ours = joined[pair]
            many = left_size[pair] + ours
            # One nanosecond keeps a set without any duration finite.
            middle = left_mean[pair, columns - 1]
            if ours:
                middle = mean[pair, columns - 1] + (
                    joining[columns - 1] - mean[pair, columns - 1]
                ) / (size[pair] + 1)
            floor = fmax(least * middle, 1.0)
            total = 0.0
            for column in range(columns):
                squared = 1.0
                for scale in range(2):
                    each = column + scale * columns
                    difference = joining[each] - mean[pair, each]
                    middle = left_mean[pair, each]
                    if ours:
                        middle = mean[pair, each] + difference / (size[pair] + 1)
                    shift[scale] = values[pair, each] - middle
                    if not shift[scale] > 0:
                        break
                    gained = difference * difference * (size[pair] / (size[pair] + 1))
                    pooled = (left_pooled[pair, each] + gained) / freedom
                    variance = pooled
                    if many >= low_support:
                        squares = left_squares[pair, each] + (gained if ours else 0.0)
                        variance = (squares + prior * pooled) / (fmax(many - 1, 0) + prior)
                    squared *= variance + (least * least if scale else floor * floor)
                else:
                    total += shift[0] * shift[1] / sqrt(squared)
            best = total if total < best else best
        if execution >= 0:
            scores[execution] = sqrt(best)
