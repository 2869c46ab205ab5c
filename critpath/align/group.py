"""Which members of a large normal group to align: typical first, then diverse."""

from __future__ import annotations

import numpy as np

from critpath.model import F64, I64


def choose_rows(counts: I64, limit: int) -> I64:
    """Choose at most `limit` executions that represent a group.

    The medoid (least summed Euclidean distance to all) first, then always the one
    farthest from all chosen so far.  Distances are of the square roots of the
    counts, as in the clustering.  Among equals the lexicographically least vector,
    then the lowest row, so that the choice does not depend on the order of rows
    with unlike vectors.

    Parameters
    ----------
    counts : int64 [n, k]
        Count vectors.
    limit : int
        At least 1.

    Returns
    -------
    int64 [min(n, limit)]
        Rows chosen, ascending; all where the group is not larger than `limit`.

    Raises
    ------
    ValueError
        If `limit` is below 1.
    """
    if limit < 1:
        raise ValueError(f"limit {limit}: at least one row is needed")
    n = len(counts)
    if n <= limit:
        return np.arange(n, dtype=np.int64)
    order = np.lexsort((np.arange(n), *counts.T[::-1]))
    points = np.sqrt(counts[order].astype(np.float64))
    # Many executions have the same counts: what is between these is computed once.
    new = np.ones(n, np.bool_)
    new[1:] = (points[1:] != points[:-1]).any(axis=1)
    first = np.flatnonzero(new)
    weight = np.diff(first, append=n)
    sums = np.array([_distances(points[first], point) @ weight for point in points[first]])
    chosen = [int(first[np.argmin(np.round(sums, 6))])]
    nearest = _distances(points, points[chosen[0]])
    nearest[chosen[0]] = -1
    while len(chosen) < limit:
        following = int(np.argmax(np.round(nearest, 9)))
        chosen.append(following)
        nearest = np.minimum(nearest, _distances(points, points[following]))
        nearest[chosen] = -1
    return np.sort(order[chosen]).astype(np.int64)


def _distances(points: F64, to: F64) -> F64:
    return np.asarray(np.sqrt(((points - to) ** 2).sum(axis=1)))
