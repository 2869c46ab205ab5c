"""Whose time in a symbol, over the whole path, is out of the ordinary."""

from __future__ import annotations

import numpy as np

from critpath.localize.leave_one_out import BLUR_NS, LEAST_SPREAD, LEVEL
from critpath.model import F64, I64, Bool

LEAST_NORMALS = 5  # fewer do not tell how much a total fluctuates
AS_FAR = 0.2  # of the normal rows may have a total that is as far out


def judge_totals(totals: I64) -> Bool:
    """Tell in which symbols the last row's total is beyond the others' fluctuation.

    Every row's logarithms are measured by all the other rows, the last one's as well as
    the normal ones': the distance from their mean in units of their standard deviation.
    The last row's distance has to be

    - beyond Student's two-sided quantile at 5 %, divided by the number of symbols: the
      deviation of few values is itself uncertain, and many symbols are many chances;
    - further than any distance, in any symbol, of four in five normal rows: states that
      somebody has and nobody else are no sign of a slow execution where normal ones
      have some as well.  (Asking it of all or 95 % of them would hold the level whatever
      the distribution, but one odd normal execution would hide every cause.)

    Parameters
    ----------
    totals : int64 [rows, symbols]
        Nanoseconds; the anomalous row last.

    Returns
    -------
    bool [symbols]
        Nothing with less than five normal rows.
    """
    from scipy.special import stdtrit  # noqa: PLC0415 - slow to import

    n, symbols = len(totals) - 1, totals.shape[1]
    known = np.flatnonzero(totals.any(axis=0))
    result = np.zeros(symbols, np.bool_)
    if n < LEAST_NORMALS or not len(known):
        return result
    # Rounded: equal rows have to tie whatever the last bit of their sums.
    distance = np.round(_distances(totals[:, known]), 9)
    mine, furthest = distance[-1], distance[:-1].max(axis=1)
    as_far = (furthest[:, None] >= mine).sum(axis=0)
    rare = as_far <= AS_FAR * n
    result[known] = rare & (mine > float(stdtrit(n - 1, 1 - LEVEL / (2 * len(known)))))
    return result


def _distances(totals: I64) -> F64:
    """Return how far each row's logarithm is from all the others', as Student's t."""
    logs = np.log(np.maximum(totals, 0) + BLUR_NS)
    n = len(logs) - 1
    off = logs - logs.mean(axis=0)
    # Of the other n rows: both follow from the sums over all n + 1.
    squares = (off**2).sum(axis=0) - off**2 * (n + 1) / n
    spread = np.sqrt(np.maximum(squares, 0.0) / (n - 1))
    apart = np.abs(off) * (n + 1) / n
    result: F64 = apart / (np.maximum(spread, LEAST_SPREAD) * np.sqrt(1 + 1 / n))
    return result
