"""Scores of executions against execution types: how far above what is usual there.

Every execution is scored against the others only.  A sample execution against the normal
ones; and a normal one, to know what scores are usual, against the other normal ones and
the sample execution in question: one bag, each of its members treated alike, as exact
conformal p-values ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from critpath.model import F64, I64, Bool

LOW_SUPPORT = 5  # below this a type's own variance says nothing
_PRIOR = 5.0  # observations' worth of the pooled variance
_SHRINK = 0.05  # spread that is never believed to be less: share of the mean total, and of a log
_OFFSET = 0.02  # share of the overall mean total added before taking logs
_CHUNK = 1 << 17  # values of one temporary array: they stay in the cache


def in_both_scales(values: F64, normal: F64) -> F64:
    """Put the logarithms of durations beside them, twice the columns.

    Parameters
    ----------
    values : float64 [executions, columns]
        Durations (ns), the total last.
    normal : float64 [n, columns]
        Those of the normal executions: what is added before taking logs, so that a
        state that was never entered has one, is a share of their mean total.
    """
    offset = max(_OFFSET * float(normal[:, -1].mean()), 1.0)
    return np.asarray(np.concatenate([values, np.log(values + offset)], axis=1))


@dataclass(frozen=True)
class Types:
    """Sizes, means and sums of squares of the normal types.

    Attributes
    ----------
    labels : int64 [n]
        Type of every normal execution.
    sizes : float64 [types]
    mean, squares : float64 [types, 2 columns]
        In both scales; ``squares`` about the mean.
    """

    labels: I64
    sizes: F64
    mean: F64
    squares: F64

    @property
    def freedom(self) -> float:
        """Degrees of freedom of all types together, at least 1."""
        return max(float(self.sizes.sum()) - len(self.sizes), 1.0)


def describe_types(values: F64, labels: I64, types: int) -> Types:
    """Summarise normal executions.

    Parameters
    ----------
    values : float64 [n, 2 columns]
        See `in_both_scales`.
    labels : int64 [n]
    types : int
        How many; none of them empty.
    """
    mean = np.zeros((types, values.shape[1]))
    squares = np.zeros_like(mean)
    for c in range(types):
        mine = values[labels == c]
        mean[c] = mine.mean(axis=0)
        squares[c] = ((mine - mean[c]) ** 2).sum(axis=0)
    return Types(labels, np.bincount(labels, minlength=types).astype(np.float64), mean, squares)


def sample_scores(types: Types, values: F64, fitting: Bool) -> tuple[F64, F64]:
    """Score executions that are no part of the types.

    Parameters
    ----------
    types : Types
    values : float64 [m, 2 columns]
    fitting : bool [m, types]
        Types that an execution may be explained by, one at the least.

    Returns
    -------
    score : float64 [m]
        Root of the sum of the squares of ``z``, in the type in which that is the least.
    z : float64 [m, columns]
        Geometric mean of the shrunk z of a duration and of its logarithm, in that
        type; 0 where either is negative.
    """
    pooled = types.squares.sum(axis=0) / types.freedom
    spread = _spread(types.sizes[:, None], types.mean, types.squares, pooled)
    score, z = np.zeros(len(values)), np.zeros((len(values), values.shape[1] // 2))
    step = max(1, _CHUNK // max(1, types.mean.size))
    for first in range(0, len(values), step):
        rows = slice(first, first + step)
        every = _both((values[rows, None] - types.mean) / spread)
        scores = np.where(fitting[rows], np.sqrt(every.sum(axis=2)), np.inf)
        best = scores.argmin(axis=1)
        at = np.arange(len(best))
        score[rows], z[rows] = scores[at, best], np.sqrt(every[at, best])
    return score, z


def reference_scores(types: Types, values: F64, fitting: Bool) -> F64:
    """Score every normal execution against the other normal ones alone.

    Parameters
    ----------
    types : Types
        Of ``values``.
    values : float64 [n, 2 columns]
    fitting : bool [n, types]

    Returns
    -------
    float64 [n]
        As of `sample_scores`; meaningless for an execution alone in its type.
    """
    result = np.zeros(len(values))
    step = max(1, _CHUNK // max(1, types.mean.size))
    for first in range(0, len(values), step):
        rows = np.arange(first, min(first + step, len(values)))
        left = _leave_out(types, values, fitting, rows)
        # One degree of freedom less than the types have: the execution's own.
        pooled = left.pooled / max(types.freedom - 1, 1.0)
        spread = _spread(left.sizes[:, None], left.mean, left.squares, pooled)
        result[rows] = left.least((left.values - left.mean) / spread)
    return result


def bag_size(types: Types, fitting: Bool) -> int:
    """Count the values that `bag_scores` computes for one sample execution."""
    return int(fitting.sum()) * int(types.mean.size // len(types.mean))


def bag_scores(
    types: Types, values: F64, fitting: Bool, sample: F64, partner: I64
) -> Iterator[tuple[int, F64]]:
    """Score the normal executions anew for every sample execution that joins them.

    Parameters
    ----------
    types : Types
        Of ``values``.
    values : float64 [n, 2 columns]
    fitting : bool [n, types]
    sample : float64 [m, 2 columns]
    partner : int64 [m]
        Type that a sample execution joins.

    Yields
    ------
    int
        A sample execution; they come in no particular order.
    float64 [with company]
        Scores of the normal executions that are not alone in their type, each
        against all others and the sample execution.

    Notes
    -----
    An execution less and one more change mean and sum of squares in closed form
    (Welford 1962): O(n) for each sample execution.
    """
    left = _leave_out(types, values, fitting, np.arange(len(values)))
    step = max(1, _CHUNK // max(1, left.values.size))
    for c in np.unique(partner):
        joined = left.kind == c
        at_home = types.labels[left.row] == c
        # The type that is joined, without the execution that is scored.
        size = np.where(at_home, types.sizes[c] - 1, types.sizes[c])[:, None]
        mean = np.broadcast_to(types.mean[c], left.values.shape).copy()
        mean[at_home] = left.home_mean[at_home]
        company = types.sizes[types.labels] + (types.labels == c) > 1
        mine = np.flatnonzero(partner == c)
        for first in range(0, len(mine), step):
            batch = mine[first : first + step]
            difference = sample[batch, None] - mean
            gained = difference**2 * (size / (size + 1))
            pooled = (left.pooled + gained) / types.freedom
            means = np.where(joined[:, None], mean + difference / (size + 1), left.mean)
            squares = left.squares + np.where(joined[:, None], gained, 0.0)
            sizes = (left.sizes + joined)[:, None]
            z = (left.values - means) / _spread(sizes, means, squares, pooled)
            for number, scores in zip(batch, left.least(z), strict=True):
                yield int(number), scores[company]


@dataclass(frozen=True)
class _LeftOut:
    """Pairs of an execution and a type that it fits, the type being without it."""

    row: I64  # [pairs], from 0
    kind: I64
    values: F64  # [pairs, columns], as all below
    sizes: F64  # [pairs]
    mean: F64
    squares: F64
    pooled: F64  # sums of squares of all types
    home_mean: F64  # of the execution's own type
    starts: I64  # first pair of every execution

    def least(self, z: F64) -> F64:
        """Return the least score of every execution's pairs: [..., executions]."""
        squares = np.minimum.reduceat(_both(z).sum(axis=-1), self.starts, axis=-1)
        return np.asarray(np.sqrt(squares), dtype=np.float64)


def _leave_out(types: Types, values: F64, fitting: Bool, rows: I64) -> _LeftOut:
    labels, mine = types.labels[rows], values[rows]
    rest = types.sizes[labels] - 1
    difference = mine - types.mean[labels]
    mean = types.mean[labels] - difference / np.maximum(rest, 1)[:, None]
    gone = difference**2 * ((rest + 1) / np.maximum(rest, 1))[:, None]
    row, kind = np.nonzero(fitting[rows])
    own = kind == labels[row]
    lost = gone[row]
    return _LeftOut(
        row=rows[row],
        kind=kind,
        values=mine[row],
        sizes=types.sizes[kind] - own,
        mean=np.where(own[:, None], mean[row], types.mean[kind]),
        squares=np.maximum(types.squares[kind] - np.where(own[:, None], lost, 0.0), 0.0),
        pooled=np.maximum(types.squares.sum(axis=0) - lost, 0.0),
        home_mean=mean[row],
        starts=np.flatnonzero(np.diff(row, prepend=-1)),
    )


def _spread(sizes: F64, mean: F64, squares: F64, pooled: F64) -> F64:
    """Shrink the standard deviation of a type towards that of all, and keep it off zero."""
    shrunk = (squares + _PRIOR * pooled) / (np.maximum(sizes - 1, 0) + _PRIOR)
    variance = np.where(sizes < LOW_SUPPORT, pooled, shrunk)
    # One nanosecond keeps a set without any duration finite.
    columns = mean.shape[-1] // 2
    squared = np.full(mean.shape, _SHRINK**2)
    squared[..., :columns] = np.maximum(_SHRINK * mean[..., columns - 1 : columns], 1.0) ** 2
    return np.asarray(np.sqrt(variance + squared), dtype=np.float64)


def _both(z: F64) -> F64:
    """Multiply the z of durations with those of their logarithms; 0 where one is negative."""
    columns = z.shape[-1] // 2
    high = np.maximum(z, 0.0)
    return np.asarray(high[..., :columns] * high[..., columns:])
