"""Execution types of a sample set, which is often too small to show its own types.

Measured on eleven executions of seven types (five of one, one of each other):
OPTICS merges types for every ``min_samples`` from 2 to 5, because no single
execution can be a dense group.  So density proposes and the normal types
dispose: a sample cluster whose members, each taken alone, fit different normal
types is divided between them, and noise stands alone.
"""

from __future__ import annotations

import numpy as np

from critpath.cluster.optics import cluster
from critpath.cluster.pairing import best_partner, normal_space, score_cluster
from critpath.cluster.space import canonical_order, relabel, renumber, stabilise
from critpath.model import I64, Clustering, VectorTable
from critpath.units import plural


def cluster_sample(
    sample: VectorTable,
    normal: VectorTable,
    normal_clusters: Clustering,
    *,
    method: str = "optics",
    min_samples: int = 5,
    xi: float = 0.05,
    min_cluster_fraction: float = 0.05,
) -> Clustering:
    """Find the execution types of a sample set, with the normal types as a guide.

    Parameters
    ----------
    sample, normal : VectorTable
        Over the same symbols.
    normal_clusters : Clustering
        Of the normal executions.
    method, min_samples, xi, min_cluster_fraction
        As in `critpath.cluster.optics.cluster`.

    Returns
    -------
    Clustering
        ``weak`` marks noise, each of it (executions with equal counts together) a
        cluster of its own, for Algorithm 2 to pair.

    Raises
    ------
    ValueError
        If the tables have different symbols, or as `cluster`.
    """
    if normal.symbols != sample.symbols:
        raise ValueError("normal and sample vectors have different symbols")
    found = cluster(
        sample,
        method=method,
        min_samples=min_samples,
        xi=xi,
        min_cluster_fraction=min_cluster_fraction,
    )
    n = len(sample)
    if n < 2 or found.method == "single":
        return found
    vectors, vector_of = np.unique(sample.structure, axis=0, return_inverse=True)
    vector_of = vector_of.reshape(-1)
    all_noise = bool((found.raw_labels < 0).all())
    labels = np.where(found.weak & (not all_noise), -1, found.labels)
    if all_noise:
        labels = np.full(n, -1, np.int64)
    keys = np.stack([labels, np.where(labels < 0, vector_of, -1)], axis=1)
    divided = 0
    if len(normal):
        partner = _alone(normal, normal_clusters, vectors)[vector_of]
        for c in np.unique(labels[labels >= 0]):
            divided += len(np.unique(partner[labels == c])) > 1
        keys = np.column_stack([keys, np.where(labels < 0, -1, partner)])
    parts = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    ranking = renumber(parts, canonical_order(sample))
    notes = []
    if found.weak.any():
        notes.append(
            f"{plural(int(found.weak.sum()), 'sample execution')} of {n} in no dense group: "
            "each paired on its own"
        )
    if divided:
        notes.append(
            f"{plural(int(divided), 'sample cluster')} divided: its executions fit different "
            "normal types"
        )
    return Clustering(
        labels=relabel(parts, ranking),
        raw_labels=found.raw_labels,
        weak=found.weak,
        ordering=found.ordering,
        reachability=found.reachability,
        method=found.method,
        notes=tuple(notes),
    )


def _alone(normal: VectorTable, clusters: Clustering, vectors: I64) -> I64:
    """Algorithm 2 for every vector as a cluster of one."""
    home = normal_space(normal, clusters)
    space = stabilise(vectors)
    return np.array(
        [best_partner(score_cluster(home, space[i : i + 1])) for i in range(len(space))], np.int64
    )
