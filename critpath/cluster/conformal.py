"""From scores to p-values, and from p-values to a verdict."""

from __future__ import annotations

import math

import numpy as np

from critpath.model import F64, Bool

_TAIL = 0.1  # share of the null scores that the tail is fitted to
_ROUNDING = 1e-9


def conformal(null: F64, score: F64) -> F64:
    """Give every score its p-value among null scores, with a Pareto tail beyond them.

    Parameters
    ----------
    null : float64 [n]
        Scores of executions known to be normal; may be empty.
    score : float64 [m]

    Returns
    -------
    float64 [m]
        ``(1 + #{null >= score}) / (1 + n)``; where no null score reaches it, the
        smaller of that and the fitted tail (twenty null scores at the least).
    """
    ordered = np.sort(null)
    n = len(ordered)
    # Equal executions must tie, whichever formula their score came from.
    tied = score - _ROUNDING * np.maximum(np.abs(score), 1.0)
    p = (1 + n - np.searchsorted(ordered, tied)) / (1 + n)
    top = max(10, round(_TAIL * n))
    if n < 2 * top or ordered[-top - 1] <= 0:
        return np.asarray(p, dtype=np.float64)
    start = ordered[-top - 1]
    hill = float(np.log(ordered[-top:] / start).mean())
    # Ten scores do not fix a tail: its upper 95 % bound, or healthy ones are convicted.
    hill *= 1 + 1.645 / math.sqrt(top)
    if hill <= 0:
        return np.asarray(p, dtype=np.float64)
    beyond = tied > ordered[-1]
    tail = top / n * (np.maximum(score, start) / start) ** (-1 / hill)
    return np.where(beyond, np.minimum(p, tail), p)


def benjamini_hochberg(p: F64, level: float) -> Bool:
    """Select p-values at a false discovery rate (Benjamini and Hochberg 1995).

    Parameters
    ----------
    p : float64 [m]
    level : float

    Returns
    -------
    bool [m]
    """
    m = len(p)
    order = np.argsort(p)
    adjusted = p[order] * (m / np.arange(1, m + 1))
    adjusted[::-1] = np.minimum.accumulate(adjusted[::-1])
    selected = np.zeros(m, np.bool_)
    selected[order] = np.minimum(adjusted, 1.0) <= level
    return selected
