"""The few statistics of scipy's that every comparison needs, without scipy's import.

``scipy.stats`` takes longer to import than a small comparison takes in all, and
``scipy.special`` a fifth of that; docs/decisions/1-dependencies.md has the figures.
tests/model/test_statistics.py holds each function against scipy's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from critpath.model.table import F64, I64, Bool


def mid_ranks(values: F64 | I64) -> F64:
    """Rank every column from 1; equal values share the mean of their ranks.

    Parameters
    ----------
    values : float64 or int64 [n, columns]

    Returns
    -------
    float64 [n, columns]
        As ``scipy.stats.rankdata``.
    """
    n, columns = values.shape
    result = np.empty((n, columns))
    for column in range(columns):
        order = np.argsort(values[:, column], kind="stable")
        ordered = values[order, column]
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        last = np.append(first[1:], n)
        result[order, column] = np.repeat((first + last + 1) / 2, last - first)
    return result


def benjamini_hochberg(p: F64, level: float) -> Bool:
    """Select p-values at a false discovery rate (Benjamini and Hochberg 1995).

    Parameters
    ----------
    p : float64 [m]
    level : float

    Returns
    -------
    bool [m]
        Where ``scipy.stats.false_discovery_control`` is at most the level.
    """
    order = np.argsort(p)
    adjusted = p[order] * (len(p) / np.arange(1, len(p) + 1))
    adjusted[::-1] = np.minimum.accumulate(adjusted[::-1])
    selected = np.zeros(len(p), np.bool_)
    selected[order] = np.minimum(adjusted, 1.0) <= level
    return selected


def hypergeometric_tail(above: int, m: int, n: int, least: int) -> float:
    """Return how likely at least ``least`` of ``above`` marked ones are among m of m + n.

    As ``scipy.stats.hypergeom.sf(least - 1, n + m, above, m)``, summed up from logarithms.
    """
    fewest, most = max(0, above - n), min(above, m)
    if least <= fewest:
        return 1.0
    count = np.arange(fewest, most, dtype=np.float64)
    # How much likelier one more is; the probabilities add up to 1.
    ratio = (above - count) * (m - count) / ((count + 1) * (n - above + count + 1))
    logs = np.concatenate([[0.0], np.cumsum(np.log(ratio))])
    weights = np.exp(logs - logs.max())
    return float(min(1.0, weights[least - fewest :].sum() / weights.sum()))


def student_tails(distance: F64, freedom: int) -> F64:
    """Return how likely Student's t is at least as far from 0, on either side.

    Parameters
    ----------
    distance : float64 [n]
        Not negative.
    freedom : int
        Degrees of freedom, at least 2.

    Returns
    -------
    float64 [n]
        As ``2 * scipy.special.stdtr(freedom, -distance)``, to 1e-14.

    Notes
    -----
    The finite series for whole degrees of freedom: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = np.arctan(distance / math.sqrt(freedom))
    odd = freedom % 2
    term = np.sin(angle) * np.cos(angle) ** odd
    total = term.copy()
    for i in range(2 + odd, freedom, 2):
        term *= np.cos(angle) ** 2 * ((i - 1) / i)
        total += term
    result: F64 = 1 - (2 / np.pi * (angle + total) if odd else total)
    return result
