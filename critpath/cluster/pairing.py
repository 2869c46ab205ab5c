"""Algorithm 2: which normal cluster every sample cluster belongs to."""

from __future__ import annotations

import numpy as np

from critpath.cluster.distances import NormalSpace, normal_space
from critpath.cluster.merging import best_partners, merged_scores
from critpath.cluster.space import distinct, stabilise
from critpath.model import F64, I64, Bool, Clustering, ClusterPairs, VectorTable
from critpath.units import plural

__all__ = ["NormalSpace", "normal_space", "novel_limits", "pair", "plausible"]

_NOVEL_QUANTILE = 0.99
_NOT_MUCH = 1.25
_WIDE = 1.5


def pair(
    normal: VectorTable,
    normal_clusters: Clustering,
    sample: VectorTable,
    sample_clusters: Clustering,
    *,
    home: NormalSpace | None = None,
) -> ClusterPairs:
    """Pair every sample cluster with the normal cluster it fits best (Algorithm 2).

    Parameters
    ----------
    normal, sample : VectorTable
        Over the same symbols; at least one normal execution.
    normal_clusters, sample_clusters : Clustering
        Of these executions.
    home : NormalSpace, optional
        `normal_space` of the normal executions, where the caller has it.

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
    home = home or normal_space(normal, normal_clusters)
    limits = novel_limits(home)
    labels = sample_clusters.labels
    once = distinct(np.column_stack([labels, sample.structure]))
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
