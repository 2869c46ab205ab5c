"""Algorithm 2: which normal cluster every sample cluster belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from critpath.cluster.space import stabilise
from critpath.model import F64, I64, Bool, Clustering, ClusterPairs, VectorTable
from critpath.units import plural

_CHUNK = 1 << 22  # distances held at once
_NOVEL_QUANTILE = 0.99
_TIE = 1e-12
_NOT_MUCH = 1.25
_WIDE = 1.5


@dataclass(frozen=True)
class NormalSpace:
    """Normal executions and their summed distances to every normal cluster.

    Attributes
    ----------
    space : float64 [n, symbols]
        Stabilised counts.
    labels : int64 [n]
    onehot : float64 [n, clusters]
    sizes : float64 [clusters]
    sums : float64 [n, clusters]
        Sum of an execution's distances to the members of a cluster.
    """

    space: F64
    labels: I64
    onehot: F64
    sizes: F64
    sums: F64


@dataclass(frozen=True)
class _Scores:
    score: F64  # [clusters], NaN where there is only one
    own: F64  # [clusters], mean silhouette of the sample cluster's own members
    distance: F64  # [clusters], mean distance of its members to the cluster


def normal_space(normal: VectorTable, clusters: Clustering) -> NormalSpace:
    """Compute what every pairing needs of the normal set, once.

    Parameters
    ----------
    normal : VectorTable
    clusters : Clustering
        Of the same executions.
    """
    space = stabilise(normal.structure)
    labels = clusters.labels
    onehot = np.zeros((len(labels), clusters.size))
    onehot[np.arange(len(labels)), labels] = 1.0
    return NormalSpace(
        space, labels, onehot, onehot.sum(axis=0), sum_distances(space, space, onehot)
    )


def sum_distances(left: F64, right: F64, onehot: F64) -> F64:
    """Sum the distances of every left point to each group of right points."""
    from scipy.spatial.distance import cdist  # noqa: PLC0415 - takes half a second to import

    result = np.empty((len(left), onehot.shape[1]))
    step = max(1, _CHUNK // max(1, len(right)))
    for begin in range(0, len(left), step):
        result[begin : begin + step] = cdist(left[begin : begin + step], right) @ onehot
    return result


def _silhouette(inside: F64, outside: F64) -> F64:
    larger = np.maximum(inside, outside)
    return np.divide(outside - inside, larger, out=np.zeros_like(larger), where=larger > 0)


def score_cluster(home: NormalSpace, members: F64) -> _Scores:
    """Silhouette of the merged labelling for every normal cluster as the partner.

    Parameters
    ----------
    home : NormalSpace
    members : float64 [m, symbols]
        Stabilised counts of one sample cluster.

    Returns
    -------
    score, own, distance : float64 [normal clusters]

    Notes
    -----
    Incremental form of Rousseeuw's silhouette (1987) over the normal executions
    and these members: merging them into a cluster changes only that cluster's
    column of distances.  O((n + m) K) per candidate after O((n + m) n d).
    """
    m, size = len(members), len(home.sizes)
    to_normal = sum_distances(members, home.space, home.onehot)  # [m, K]
    whole = np.ones((m, 1))
    from_normal = sum_distances(home.space, members, whole)[:, 0]  # [n]
    within = sum_distances(members, members, whole)[:, 0]  # [m]
    distance = to_normal.mean(axis=0) / home.sizes
    score, own = np.full(size, np.nan), np.full(size, np.nan)
    if size < 2:
        return _Scores(score, own, distance)
    rows = np.arange(len(home.labels))
    inside = home.sums[rows, home.labels] / np.maximum(home.sizes[home.labels] - 1, 1)
    means = home.sums / home.sizes
    means[rows, home.labels] = np.inf
    members_means = to_normal / home.sizes
    for k in range(size):
        mine = home.labels == k
        merged = home.sizes[k] + m
        outside = means.copy()
        outside[~mine, k] = (home.sums[~mine, k] + from_normal[~mine]) / merged
        now_inside = inside.copy()
        now_inside[mine] = (home.sums[mine, k] + from_normal[mine]) / (merged - 1)
        normal = _silhouette(now_inside, outside.min(axis=1))
        # A cluster of one has no inside: 0 by definition, unless the members joined it.
        normal[(home.sizes[home.labels] == 1) & ~mine] = 0.0
        others = members_means.copy()
        others[:, k] = np.inf
        sample = _silhouette((to_normal[:, k] + within) / (merged - 1), others.min(axis=1))
        score[k] = (normal.sum() + sample.sum()) / (len(normal) + m)
        own[k] = sample.mean()
    return _Scores(score, own, distance)


def best_partner(scores: _Scores) -> int:
    """Return the cluster with the largest score, then own silhouette, then lowest number."""
    if len(scores.score) < 2:
        return 0
    tied = scores.score >= scores.score.max() - _TIE
    own = np.where(tied, scores.own, -np.inf)
    return int(np.flatnonzero(own >= own.max() - _TIE)[0])


def pair(
    normal: VectorTable,
    normal_clusters: Clustering,
    sample: VectorTable,
    sample_clusters: Clustering,
) -> ClusterPairs:
    """Pair every sample cluster with the normal cluster it fits best (Algorithm 2).

    Parameters
    ----------
    normal, sample : VectorTable
        Over the same symbols; at least one normal execution.
    normal_clusters, sample_clusters : Clustering
        Of these executions.

    Returns
    -------
    ClusterPairs
        ``score`` equals ``sklearn.metrics.silhouette_score`` over the normal
        executions and the sample cluster, labelled as if merged.

    Raises
    ------
    ValueError
        If the tables have different symbols or there is no normal execution.

    Notes
    -----
    The paper's Algorithm 2 starts from a best score of 0, so a sample cluster
    whose every score is negative would find no partner; here it gets the best
    one and is marked ``weak``.  ``novel`` is ours: the mean distance to the
    partner exceeds what the normal types' own members show among themselves (99 %
    quantile, of the partner itself and of all types relative to their spread; and
    one standard deviation of a Poisson count at the least).
    """
    if normal.symbols != sample.symbols:
        raise ValueError("normal and sample vectors have different symbols")
    if len(normal) == 0:
        raise ValueError("no normal execution to pair with")
    home = normal_space(normal, normal_clusters)
    limits = novel_limits(home)
    space = stabilise(sample.structure)
    size = sample_clusters.size
    partner, score = np.zeros(size, np.int64), np.full(size, np.nan)
    weak, novel = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    for c in range(size):
        scores = score_cluster(home, space[sample_clusters.labels == c])
        k = best_partner(scores)
        partner[c], score[c] = k, scores.score[k]
        weak[c] = bool(scores.score[k] <= 0)
        novel[c] = bool(scores.distance[k] > limits[k])
    return ClusterPairs(partner, score, weak, novel, _notes(sample_clusters.labels, weak, novel))


def novel_limits(home: NormalSpace) -> F64:
    """Mean distance to each cluster beyond which a member would be unheard of."""
    sizes = home.sizes[home.labels]
    own = home.sums[np.arange(len(sizes)), home.labels] / np.maximum(sizes - 1, 1)
    spread = np.array([own[home.labels == k].mean() for k in range(len(home.sizes))])
    spread_of = spread[home.labels]
    known = spread_of > 0
    # A cluster of 15 has no 99 % quantile; all of them together, each relative to
    # its own spread, do.
    relative = np.quantile(own[known] / spread_of[known], _NOVEL_QUANTILE) if known.any() else 0.0
    quantile = [np.quantile(own[home.labels == k], _NOVEL_QUANTILE) for k in range(len(spread))]
    return np.maximum(np.maximum(spread * relative, quantile), 1.0)


def plausible(distance: F64, limits: F64, partner: I64) -> Bool:
    """Tell which normal types an execution's counts would fit.

    Parameters
    ----------
    distance : float64 [n, clusters]
        Mean distance to the members of each.
    limits : float64 [clusters]
        See `novel_limits`.
    partner : int64 [n]
        The type it is paired with: always plausible.

    Returns
    -------
    bool [n, clusters]
        Within one and a half times the limit, or not much farther than the partner.
    """
    rows = np.arange(len(distance))
    near = distance <= _NOT_MUCH * distance[rows, partner][:, None]
    return np.asarray(near | (distance <= _WIDE * limits), dtype=np.bool_)


def _notes(labels: I64, weak: Bool, novel: Bool) -> tuple[str, ...]:
    notes = []
    if weak.any():
        notes.append(
            f"{plural(int(weak.sum()), 'sample cluster')} with no clearly fitting normal type: "
            "paired with the nearest"
        )
    if novel.any():
        executions = int(np.isin(labels, np.flatnonzero(novel)).sum())
        notes.append(
            f"{plural(executions, 'sample execution')} unlike every normal type: "
            "compared with the nearest"
        )
    return tuple(notes)
