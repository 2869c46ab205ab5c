"""The space in which executions are compared: variance-stabilised count vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from critpath.cluster._optics import squares
from critpath.model import F64, I64, VectorTable

_CHUNK = 1 << 22  # distances held at once: 32 MiB


@dataclass(frozen=True)
class Distinct:
    """Rows of a table without repetitions.

    Attributes
    ----------
    row : int64 [v]
        Where each distinct row is first found.
    weight : int64 [v]
        How often it is found.
    member : int64 [n]
        Which distinct row each row of the table is.
    """

    row: I64
    weight: I64
    member: I64


def distinct(rows: F64 | I64) -> Distinct:
    """Find the distinct rows of a table, in ascending order, first column first.

    Parameters
    ----------
    rows : float64 or int64 [n, columns]

    Returns
    -------
    Distinct
        As ``numpy.unique`` would say, in a fraction of its time.
    """
    n = len(rows)
    order = np.lexsort(rows.T[::-1]) if rows.shape[1] else np.arange(n)
    ordered = rows[order]
    new = np.ones(n, np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = np.flatnonzero(new)
    member = np.empty(n, np.int64)
    member[order] = np.cumsum(new) - 1
    weight = np.diff(first, append=n)
    return Distinct(order[first].astype(np.int64), weight.astype(np.int64), member)


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


def squared_distances(left: F64, right: F64) -> Iterator[tuple[slice, F64]]:
    """Squared distances of all left to all right points, a few rows of them at a time.

    Parameters
    ----------
    left, right : float64 [n, symbols], float64 [m, symbols]

    Yields
    ------
    slice
        Rows of ``left``.
    float64 [rows, m]
        To be used up before the next are asked for: the array is the same.
    """
    points, columns = np.ascontiguousarray(left), np.ascontiguousarray(right.T)
    step = min(max(1, _CHUNK // max(1, len(right))), len(left))
    result = np.empty((step, len(right)))
    for begin in range(0, len(left), max(step, 1)):
        rows = slice(begin, min(begin + step, len(left)))
        part = result[: rows.stop - begin]
        squares(points[rows], columns, part)
        yield rows, part


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


def renumber(labels: I64, order: I64, weight: I64 | None = None) -> I64:
    """Rank clusters by size, largest first, then by their first member.

    Parameters
    ----------
    labels : int64 [n]
        Any labels >= 0.
    order : int64 [n]
        Canonical order; "first" means first in it.
    weight : int64 [n], optional
        Executions that each label stands for, one where not given.

    Returns
    -------
    int64 [clusters]
        The old labels in their new order: ``new = argsort(result)[old]`` if the
        old labels were 0 to K - 1.
    """
    values, first, which = np.unique(labels[order], return_index=True, return_inverse=True)
    size = np.bincount(which.reshape(-1), None if weight is None else weight[order])
    return np.asarray(values[np.lexsort((first, -size))], dtype=np.int64)


def relabel(labels: I64, ranking: I64) -> I64:
    """Replace every label by its place in the ranking; -1 stays -1."""
    place = np.full(int(ranking.max(initial=-1)) + 2, -1, np.int64)
    place[ranking] = np.arange(len(ranking))
    return place[labels]
