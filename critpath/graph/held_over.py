"""Rows of later blocks that reach back into an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from critpath.graph._walk import held_over

# start, begin, then any other columns of the rows.
Columns = tuple[np.ndarray[Any, Any], ...]


def nothing_carried(like: Sequence[type[np.generic]]) -> Columns:
    """Return columns of no rows: what is carried into the last block."""
    return (np.zeros(1, np.int64), *(np.zeros(0, dtype) for dtype in like))


def carried_over(columns: Columns, carried: Columns, cut: int) -> Columns:
    """Return what is carried into the block before one.

    Parameters
    ----------
    columns : tuple of arrays
        start, begin and more of the block's rows, in order of time within each owner.
    carried : tuple of arrays
        The same of the rows carried into it.
    cut : int
        The cut before the block.

    Returns
    -------
    tuple of arrays
        The same of all these rows that begin before the cut.
    """
    start, rows = held_over(columns[0], columns[1], carried[0], carried[1], cut)
    own = rows >= 0
    result = [start]
    for column, more in zip(columns[1:], carried[1:], strict=True):
        taken = np.empty(len(rows), column.dtype)
        taken[own] = column[rows[own]]
        taken[~own] = more[-1 - rows[~own]]
        result.append(taken)
    return tuple(result)
