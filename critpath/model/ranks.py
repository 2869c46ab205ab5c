"""Ranks within columns: what rank tests of clusters and of whole sets start from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from critpath.model.columns import F64, I64


def mid_ranks(values: F64 | I64) -> F64:
    """Rank every column from 1; equal values share the mean of their ranks.

    Parameters
    ----------
    values : float64 or int64 [n, columns]

    Returns
    -------
    float64 [n, columns]
        As ``scipy.stats.rankdata`` says, without half a second of imports.
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
