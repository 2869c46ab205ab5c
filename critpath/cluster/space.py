"""The space in which executions are compared: variance-stabilised count vectors."""

from __future__ import annotations

import numpy as np

from critpath.model import F64, I64, VectorTable


def stabilise(counts: I64) -> F64:
    """Give Poisson-like counts a variance near one, whatever their mean.

    Parameters
    ----------
    counts : int64 [n, symbols]
        Segments of each symbol.

    Returns
    -------
    float64 [n, symbols]
        ``2 * sqrt(x + 3/8)`` (Anscombe 1948).  A distance of 1 along an axis is
        one standard deviation of a count that varies as Poisson counts do.
    """
    return 2.0 * np.sqrt(counts.astype(np.float64) + 0.375)


def canonical_order(table: VectorTable) -> I64:
    """Order executions by their vectors, so that their order of arrival cannot matter.

    Returns
    -------
    int64 [n]
        Positions, by counts (first symbol first), then by durations.  Executions
        that tie are identical in both.
    """
    keys = (*table.durations.T[::-1], *table.structure.T[::-1])
    if not keys:
        return np.arange(len(table), dtype=np.int64)
    return np.lexsort(keys).astype(np.int64)


def renumber(labels: I64, order: I64) -> I64:
    """Rank clusters by size, largest first, then by their first member.

    Parameters
    ----------
    labels : int64 [n]
        Any labels >= 0.
    order : int64 [n]
        Canonical order; "first" means first in it.

    Returns
    -------
    int64 [clusters]
        The old labels in their new order: ``new = argsort(result)[old]`` if the
        old labels were 0 to K - 1.
    """
    values, first, size = np.unique(labels[order], return_index=True, return_counts=True)
    return np.asarray(values[np.lexsort((first, -size))], dtype=np.int64)


def relabel(labels: I64, ranking: I64) -> I64:
    """Replace every label by its place in the ranking; -1 stays -1."""
    result = np.full(len(labels), -1, np.int64)
    for new, old in enumerate(ranking):
        result[labels == old] = new
    return result
