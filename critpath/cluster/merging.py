"""How well clusters fit normal clusters: the silhouette of everything once they are merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from critpath.cluster.cuts import relative
from critpath.cluster.distances import NormalSpace, blocks, point_sums
from critpath.model import F64, I64, Bool

# Silhouettes worked on at once: they stay in the processor's cache.
_CHUNK = 1 << 18
_TIE = 1e-12


@dataclass(frozen=True)
class Scores:
    """What merging every cluster with every normal cluster gives.

    Attributes
    ----------
    score : float64 [clusters, normal clusters]
        Mean silhouette of the normal executions and the cluster's; NaN where there is
        only one normal cluster.
    own : float64 [clusters, normal clusters]
        Mean silhouette of the cluster's own members.
    distance : float64 [clusters, normal clusters]
        Mean distance of its members to those of the normal cluster.
    """

    score: F64
    own: F64
    distance: F64


@dataclass(frozen=True)
class _Others:
    """The nearest other cluster of every normal point, and the nearest but that one."""

    nearest: I64
    mean: F64
    next_mean: F64

    def without(self, k: int) -> F64:
        """Mean distance to the nearest other cluster that is not k."""
        return np.where(self.nearest == k, self.next_mean, self.mean)


def merged_scores(home: NormalSpace, points: F64, weight: I64, cluster: I64) -> Scores:
    """Silhouettes of the merged labelling for every normal cluster as the partner.

    Parameters
    ----------
    home : NormalSpace
    points : float64 [points, symbols]
        Stabilised counts of the clusters' members.
    weight : int64 [points]
        Executions with these counts.
    cluster : int64 [points]
        From 0, ascending, none without a point.

    Returns
    -------
    Scores

    Notes
    -----
    Incremental form of Rousseeuw's silhouette (1987): merging a cluster into a normal
    one changes only that one's column of distances.  O(p (P + q)) distances for p
    points in clusters of at most q and P normal points, then O(c P K) for c clusters
    and K normal ones.
    """
    count = int(cluster[-1]) + 1 if len(cluster) else 0
    size = len(home.sizes)
    members: F64 = np.bincount(cluster, weight, count).astype(np.float64)
    sums = point_sums(points, home)
    distance = _per_cluster(sums * weight[:, None], cluster, count) / members[:, None] / home.sizes
    score, own = np.full((count, size), np.nan), np.full((count, size), np.nan)
    if size < 2 or count == 0:
        return Scores(score, own, distance)
    within = _within(points, weight, cluster, count)
    means = sums / home.sizes
    for k in range(size):
        inside = (sums[:, k] + within) / (home.sizes[k] + members[cluster] - 1)
        outside = np.delete(means, k, axis=1).min(axis=1)
        own[:, k] = np.bincount(cluster, weight * relative(inside, outside), count)
    normal = np.empty((count, size))
    for some, from_normal in _from_normal(home, points, weight, cluster, count):
        normal[some] = _normal_silhouettes(home, from_normal, members[some])
    total = home.weight.sum() + members
    return Scores((normal + own) / total[:, None], own / members[:, None], distance)


def _normal_silhouettes(home: NormalSpace, extra: F64, members: F64) -> F64:
    """Sum the normal executions' silhouettes: [clusters, normal clusters].

    ``extra`` [normal points, clusters] are summed distances to each cluster's members.
    """
    rows = np.arange(len(home.points))
    labels, sizes, sums = home.point_labels, home.sizes, home.point_sums
    own = sums[rows, labels]
    inside = own / np.maximum(sizes[labels] - 1, 1)
    others = _others(home)
    # A cluster of one has no inside: 0 by definition, unless it is merged.
    counted = np.where(sizes[labels] > 1, home.weight, 0.0)
    result = np.empty((extra.shape[1], len(sizes)))
    for k in range(len(sizes)):
        mine: Bool = labels == k
        rest = ~mine
        merged = (own[mine, None] + extra[mine]) / (sizes[k] + members - 1)
        result[:, k] = home.weight[mine] @ relative(merged, others.mean[mine, None])
        nearer = np.minimum(
            (sums[rest, k, None] + extra[rest]) / (sizes[k] + members),
            others.without(k)[rest, None],
        )
        result[:, k] += counted[rest] @ relative(inside[rest, None], nearer)
    return result


def _others(home: NormalSpace) -> _Others:
    rows = np.arange(len(home.points))
    means = home.point_sums / home.sizes
    means[rows, home.point_labels] = np.inf
    nearest = means.argmin(axis=1)
    mean = means[rows, nearest]
    means[rows, nearest] = np.inf
    return _Others(nearest.astype(np.int64), mean, means.min(axis=1))


def _per_cluster(values: F64, cluster: I64, count: int) -> F64:
    result = np.empty((count, values.shape[1]))
    for k in range(values.shape[1]):
        result[:, k] = np.bincount(cluster, values[:, k], count)
    return result


def _within(points: F64, weight: I64, cluster: I64, count: int) -> F64:
    """Sum the distances of every point to the members of its own cluster."""
    result = np.zeros(len(points))
    begin = np.searchsorted(cluster, np.arange(count + 1))
    for c in np.flatnonzero(np.diff(begin) > 1):
        first, after = int(begin[c]), int(begin[c + 1])
        mine = points[first:after]
        for rows, distance in blocks(mine, mine):
            result[first + rows.start : first + rows.stop] = distance @ weight[first:after]
    return result


def _from_normal(
    home: NormalSpace, points: F64, weight: I64, cluster: I64, count: int
) -> Iterator[tuple[slice, F64]]:
    """Sum the distances of normal points to members of some clusters at a time."""
    begin = np.searchsorted(cluster, np.arange(count + 1))
    step = max(1, _CHUNK // len(home.points))
    for first in range(0, count, step):
        some = slice(first, min(first + step, count))
        low, high = int(begin[some.start]), int(begin[some.stop])
        result = np.zeros((some.stop - some.start, len(home.points)))
        for rows, distance in blocks(points[low:high], home.points):
            of = cluster[low + rows.start : low + rows.stop] - first
            weighted = distance * weight[low + rows.start : low + rows.stop, None]
            starts = np.flatnonzero(np.diff(of, prepend=-1))
            result[of[starts]] += np.add.reduceat(weighted, starts, axis=0)
        yield some, np.ascontiguousarray(result.T)


def best_partners(scores: Scores) -> I64:
    """Return, for every cluster, the normal cluster with the largest score.

    Ties go to the larger own silhouette, then to the lowest number.
    """
    if scores.score.shape[1] < 2:
        return np.zeros(len(scores.score), np.int64)
    tied = scores.score >= scores.score.max(axis=1, keepdims=True) - _TIE
    own = np.where(tied, scores.own, -np.inf)
    best = own >= own.max(axis=1, keepdims=True) - _TIE
    return np.asarray(best.argmax(axis=1), dtype=np.int64)
