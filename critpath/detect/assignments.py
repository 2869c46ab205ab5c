"""Assignments of executions to the two sets: all of them, or drawn at random."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from critpath.detect._smallest import mark
from critpath.model import F64, I64, Bool

# Units of a stratum in some assignments: their numbers [batch, picked], or where these
# would be many a mark for each that is picked [batch, units].
Picked = I64 | Bool

EXACT = 20_000
_CHUNK = 1 << 22  # values of a batch of assignments held at once
_MANY = 600.0  # logarithm of a count that is as good as infinite
_SPARSE = 16  # one pick in so many: adding them up is faster than a matrix product


def ways(counts: Sequence[tuple[int, int]]) -> float:
    """Count the assignments of executions to the two sets, within strata.

    Parameters
    ----------
    counts : sequence of (int, int)
        Normal and sample executions of every stratum.

    Returns
    -------
    float
        Infinite where it is beyond a float.
    """
    # Through the logarithm: the exact number has thousands of digits for large sets.
    log = sum(math.lgamma(n + m + 1) - math.lgamma(n + 1) - math.lgamma(m + 1) for n, m in counts)
    if log > _MANY:
        return math.inf
    return float(math.prod(math.comb(n + m, m) for n, m in counts))


@dataclass(frozen=True)
class Assignments:
    """Which units of each stratum take the sample's place.

    Attributes
    ----------
    sizes, chosen : sequence of int
        Units of every stratum, and how many of them are in the sample.
    """

    sizes: Sequence[int]
    chosen: Sequence[int]

    @property
    def ways(self) -> float:
        """Number of different assignments."""
        return ways([(n - k, k) for n, k in zip(self.sizes, self.chosen, strict=True)])

    @property
    def exact(self) -> bool:
        """Few enough to look at every one."""
        return self.ways <= EXACT

    @property
    def smaller(self) -> list[int]:
        """Units of the smaller side of every stratum: the side that is drawn."""
        return [min(k, n - k) for n, k in zip(self.sizes, self.chosen, strict=True)]

    def every(self) -> Iterator[list[Picked]]:
        """Yield all assignments in batches: per stratum, int64 [batch, smaller]."""
        choices = [
            itertools.combinations(range(n), k)
            for n, k in zip(self.sizes, self.smaller, strict=True)
        ]
        rest = itertools.product(*choices)
        while picked := list(itertools.islice(rest, self._step())):
            yield [
                np.array([parts[s] for parts in picked], np.int64).reshape(len(picked), k)
                for s, k in enumerate(self.smaller)
            ]

    def drawn(self, rng: np.random.Generator, count: int) -> Iterator[list[Picked]]:
        """Yield that many random assignments; strata of which much is picked are marked."""
        step = self._step()
        for begin in range(0, count, step):
            many = min(step, count - begin)
            yield [_subsets(rng, many, n, k) for n, k in zip(self.sizes, self.smaller, strict=True)]

    def sums(
        self, picked: list[Picked], scores: Sequence[F64], totals: Sequence[F64] | None = None
    ) -> list[F64]:
        """Add up, per stratum, the scores of the units in the sample.

        Parameters
        ----------
        picked : list of int64 [assignments, smaller] or bool [assignments, units]
            The smaller side of every stratum.
        scores : sequence of float64 [units, columns]
        totals : sequence of float64 [columns], optional
            Sums over all units, where many batches are asked for.

        Returns
        -------
        list of float64 [assignments, columns]
        """
        if totals is None:
            totals = [each.sum(axis=0) for each in scores]
        sides = zip(picked, scores, totals, self.sizes, self.chosen, strict=True)
        return [t - _sums(p, s) if 2 * k > n else _sums(p, s) for p, s, t, n, k in sides]

    def as_given(self) -> list[Picked]:
        """Return the assignment that has the first units of each stratum in the sample."""
        return [
            np.arange(k if 2 * k > n else 0, n if 2 * k > n else k, dtype=np.int64)[None, :]
            for n, k in zip(self.sizes, self.chosen, strict=True)
        ]

    def _step(self) -> int:
        return max(1, _CHUNK // max(1, sum(self.sizes)))


def _subsets(rng: np.random.Generator, many: int, n: int, k: int) -> Picked:
    """Draw subsets of ``k`` of ``n``, all equally likely."""
    if k * k > 2 * n:  # most draws would have a number twice
        return smallest(rng.random((many, n), dtype=np.float32), k)
    # Few of many: numbers drawn at random, and again where one came twice.
    picked = rng.integers(0, n, (many, k))
    repeat = np.arange(many)
    while len(repeat):
        ordered = np.sort(picked[repeat], axis=1)
        repeat = repeat[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
        picked[repeat] = rng.integers(0, n, (len(repeat), k))
    return picked


def smallest(keys: npt.NDArray[np.float32], k: int) -> Bool:
    """Mark the ``k`` smallest of every row, the first ones of equals.

    Parameters
    ----------
    keys : float32 [rows, n]
        None negative, infinite or NaN.
    k : int
        From 1 to n.

    Raises
    ------
    ValueError
        If any is, or there are not as many.
    """
    marked = np.empty(keys.shape, np.uint8)
    mark(keys, k, marked)
    return marked.view(np.bool_)


def _sums(picked: Picked, scores: F64) -> F64:
    if picked.dtype == np.bool_:
        return np.asarray(picked.astype(np.float64) @ scores, dtype=np.float64)
    return _sums_of(picked.astype(np.int64, copy=False), scores)


def _sums_of(picked: I64, scores: F64) -> F64:
    many, k = picked.shape
    if k * _SPARSE <= len(scores):
        total = np.zeros((many, scores.shape[1]))
        for place in range(k):
            total += scores[picked[:, place]]
        return total
    dense = np.zeros((many, len(scores)))
    np.put_along_axis(dense, picked, 1.0, axis=1)
    return np.asarray(dense @ scores, dtype=np.float64)
