"""Where a series changes: E-divisive, by permutations.

Matteson and James (2014), "A Nonparametric Approach for Multiple Change Point Analysis of
Multivariate Data", with distances as they are (alpha 1).  Series of commits are short: two values
make a segment, where the authors' package takes thirty.  Oracle: tests/oracle/e_divisive.py.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from msgspec import Struct

from critpath.model import F64
from critpath.schema.parameters.ab import TRENDS


class ChangePoint(Struct, frozen=True):
    """A place between two values of a series.

    `at`: the first value after it.  `p`: the chance of so great a change where there is none.
    """

    at: int
    p: float


def find_change_points(values: F64) -> list[ChangePoint]:
    """Return the changes of a series in order of place.

    The greatest comes first, then the greatest within what lies on either side, until one has a
    chance of more than `TRENDS.level`.  A series of equal values has none.
    """
    distances = np.abs(values[:, None] - values[None, :])
    ends = [0, len(values)]
    found: list[ChangePoint] = []
    drawn = np.random.default_rng(0)  # the same series gives the same answer
    while True:
        best, at = _greatest(distances, ends)
        if not at:
            break
        reached = 1
        for _ in range(TRENDS.permutations):
            # Within segments: a change that is known is none of chance's.
            order = np.concatenate([drawn.permutation(np.arange(a, b)) for a, b in pairwise(ends)])
            reached += _greatest(distances[np.ix_(order, order)], ends)[0] >= best - 1e-12
        p = reached / (1 + TRENDS.permutations)
        if p > TRENDS.level:
            break
        found.append(ChangePoint(at, p))
        ends = sorted([*ends, at])
    return sorted(found, key=lambda change: change.at)


def _greatest(distances: F64, ends: list[int]) -> tuple[float, int]:
    """Return the greatest statistic of a change within a segment, and its place; 0 for none."""
    best, place = 0.0, 0
    for begin, end in pairwise(ends):
        statistic, at = _split(distances[begin:end, begin:end])
        if statistic > best + 1e-12:
            best, place = statistic, begin + at
    return best, place


def _split(distances: F64) -> tuple[float, int]:
    """Return the greatest statistic of a segment, and how many values come before the change.

    Held against each other are the values before it, and those from it to any later place: what
    comes after may have changed again.
    """
    length, least = len(distances), TRENDS.least
    if length < 2 * least:
        return 0.0, 0
    sums = np.zeros((length + 1, length + 1))
    sums[1:, 1:] = distances.cumsum(axis=0).cumsum(axis=1)
    at = np.arange(least, length - least + 1)[:, None]
    to = np.arange(2 * least, length + 1)[None, :]
    n, m = at, to - at
    usable = m >= least
    m = np.maximum(m, least)
    square = np.diag(sums)
    before, across = square[at], sums[at, to] - square[at]
    after = square[to] - 2 * sums[at, to] + square[at]
    energy = 2 * across / (n * m) - before / (n * (n - 1)) - after / (m * (m - 1))
    statistic = np.where(usable, energy * n * m / (n + m), -1.0)
    flat = int(statistic.argmax())
    return float(statistic.flat[flat]), int(at[flat // statistic.shape[1], 0])
