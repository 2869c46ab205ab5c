"""Algorithm 2: which normal cluster every sample cluster belongs to."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from critpath.cluster._silhouettes import merged
from critpath.cluster.optics import relative
from critpath.cluster.space import NormalSpace, Points, distinct, normal_space, stabilise
from critpath.model import F64, I64, Bool, Clustering, ClusterPairs, VectorTable
from critpath.schema import notes
from critpath.schema.notes import Note
from critpath.schema.parameters.cluster import PAIRING
from critpath.stats.rows import quantiles

__all__ = ["NormalSpace", "normal_space", "novel_limits", "pair", "plausible"]


def pair(
    normal: VectorTable,
    normal_clusters: Clustering,
    sample: VectorTable,
    sample_clusters: Clustering,
    *,
    home: NormalSpace | None = None,
) -> ClusterPairs:
    """Pair every sample cluster with the normal cluster it fits best (Algorithm 2)."""
    if normal.symbols != sample.symbols:
        raise ValueError("normal and sample vectors have different symbols")
    if len(normal) == 0:
        raise ValueError("no normal run to pair with")
    home = home or normal_space(normal, normal_clusters)
    limits = novel_limits(home)
    labels = sample_clusters.labels
    once = distinct(labels, sample.structure)
    scores = merged_scores(
        home, stabilise(sample.structure[once.row]), once.weight, labels[once.row]
    )
    partner = best_partners(scores)
    rows = np.arange(sample_clusters.size)
    score = scores.score[rows, partner]
    weak = np.asarray(score <= 0, dtype=np.bool_)
    novel = np.asarray(scores.distance[rows, partner] > limits[partner], dtype=np.bool_)
    return ClusterPairs(partner, score, weak, novel, _notes(labels, weak, novel))


def novel_limits(home: NormalSpace) -> F64:
    """Mean distance to each cluster beyond which a member would be unheard of."""
    sizes = home.sizes[home.labels]
    own = home.point_sums[home.member, home.labels] / np.maximum(sizes - 1, 1)
    spread = np.array([own[home.labels == k].mean() for k in range(len(home.sizes))])
    spread_of = spread[home.labels]
    known = spread_of > 0
    # A cluster of 15 has no 99 % quantile; all of them together, each relative to
    # its own spread, do.
    relative = _find_novel(own[known] / spread_of[known]) if known.any() else 0.0
    quantile = [_find_novel(own[home.labels == k]) for k in range(len(spread))]
    return np.maximum(np.maximum(spread * relative, quantile), 1.0)


def _find_novel(distance: F64) -> float:
    return float(quantiles(distance[:, None], PAIRING.novel)[0][0])


def plausible(distance: F64, limits: F64, partner: I64) -> Bool:
    """Tell which normal types an execution's counts would fit."""
    rows = np.arange(len(distance))
    near = distance <= distance[rows, partner][:, None]
    return np.asarray(near | (distance <= PAIRING.wide * limits), dtype=np.bool_)


def _notes(labels: I64, weak: Bool, novel: Bool) -> tuple[Note, ...]:
    result: list[Note] = []
    if weak.any():
        result.append(notes.WeakPairs(int(weak.sum())))
    if novel.any():
        executions = int(np.isin(labels, np.flatnonzero(novel)).sum())
        result.append(notes.NovelExecutions(executions))
    return tuple(result)


# Silhouettes of sample clusters merged into normal ones.


_TIE = 1e-12  # technical


class Scores(Struct, frozen=True):
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


class _Nearest(Struct, frozen=True):
    """The nearest cluster of every point, and the nearest but that one."""

    cluster: I64
    mean: F64
    next_mean: F64

    def without(self, k: int) -> F64:
        """Mean distance to the nearest cluster that is not k."""
        return np.where(self.cluster == k, self.next_mean, self.mean)


def merged_scores(home: NormalSpace, points: F64, weight: I64, cluster: I64) -> Scores:
    """Silhouettes of the merged labelling for every normal cluster as the partner."""
    count = int(cluster[-1]) + 1 if len(cluster) else 0
    size = len(home.sizes)
    mine = Points(
        np.ascontiguousarray(points),
        weight.astype(np.float64),
        np.searchsorted(cluster, np.arange(count + 1)).astype(np.int64),
    )
    members: F64 = np.bincount(cluster, weight, count).astype(np.float64)
    score, own = np.full((count, size), np.nan), np.full((count, size), np.nan)
    if size < 2 or count == 0:
        sums = home.points.sums_from(mine.points)
        return Scores(score, own, _mean_distances(sums, home, mine, cluster, members))
    sums, normal = _merge_each(home, mine)
    within = _sum_within(mine)
    outside = _nearest(sums / home.sizes)
    for k in range(size):
        inside = (sums[:, k] + within) / (home.sizes[k] + members[cluster] - 1)
        own[:, k] = np.bincount(cluster, weight * relative(inside, outside.without(k)), count)
    total = home.sizes.sum() + members
    return Scores(
        (normal + own) / total[:, None],
        own / members[:, None],
        _mean_distances(sums, home, mine, cluster, members),
    )


def _merge_each(home: NormalSpace, mine: Points) -> tuple[F64, F64]:
    """Sum distances to the normal clusters, and the normal executions' silhouettes."""
    n, size = home.point_sums.shape
    means = home.point_sums / home.sizes
    means[np.arange(n), home.point_labels] = np.inf
    others = _nearest(means)
    # Points with the same nearest cluster together: a merge changes whole blocks or none.
    order = np.lexsort((others.cluster, home.point_labels))
    label = home.point_labels[order]
    own = home.point_sums[order, label]
    weight = home.points.weight[order]
    outside = np.array([others.without(k)[order] for k in range(size)])
    sums, silhouettes = np.zeros((len(mine.points), size)), np.zeros((len(mine.begin) - 1, size))
    merged(
        *(mine.points, mine.weight, mine.begin),
        *(home.points.points[order], weight, np.where(home.sizes[label] > 1, weight, 0.0)),
        *(home.points.begin, home.points.blocks, home.sizes),
        *(own, own / np.maximum(home.sizes[label] - 1, 1)),
        *(np.ascontiguousarray(home.point_sums[order].T), outside),
        *(home.points.tile, np.empty(2 * size), sums, silhouettes),
    )
    return sums, silhouettes


def _nearest(means: F64) -> _Nearest:
    """Find the nearest cluster, and the next, by mean distances [n, clusters]."""
    rows = np.arange(len(means))
    rest = means.copy()
    nearest = rest.argmin(axis=1)
    mean = rest[rows, nearest]
    rest[rows, nearest] = np.inf
    return _Nearest(nearest.astype(np.int64), mean, rest.min(axis=1))


def _mean_distances(sums: F64, home: NormalSpace, mine: Points, cluster: I64, members: F64) -> F64:
    """Mean distances of every cluster's members to those of the normal clusters."""
    result = np.empty((len(members), len(home.sizes)))
    for k in range(len(home.sizes)):
        result[:, k] = np.bincount(cluster, sums[:, k] * mine.weight, len(members))
    return result / members[:, None] / home.sizes


def _sum_within(mine: Points) -> F64:
    """Sum the distances of every point to the members of its own cluster."""
    result = np.zeros(len(mine.points))
    for c in np.flatnonzero(np.diff(mine.begin) > 1):
        rows = slice(int(mine.begin[c]), int(mine.begin[c + 1]))
        many = rows.stop - rows.start
        alone = Points(mine.points[rows], mine.weight[rows], np.array([0, many], np.int64))
        result[rows] = alone.sums_within()[:, 0]
    return result


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
