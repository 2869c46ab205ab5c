"""Execution types of a sample set, which is often too small to show its own types.

Measured on eleven executions of seven types (five of one, one of each other):
OPTICS merges types for every ``min_samples`` from 2 to 5, because no single
execution can be a dense group.  So density proposes and the normal types
dispose: a sample cluster whose members, each taken alone, fit different normal
types is divided between them, and noise stands alone.
"""

from __future__ import annotations

import numpy as np

from critpath.cluster.distances import NormalSpace, normal_space
from critpath.cluster.merging import best_partners, merged_scores
from critpath.cluster.optics import cluster
from critpath.cluster.space import distinct, relabel, renumber, stabilise
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
    home: NormalSpace | None = None,
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
    home : NormalSpace, optional
        `normal_space` of the normal executions, where the caller has it.

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
    once = distinct(sample.structure)
    noise = found.raw_labels[once.row] < 0
    labels = np.where(noise, -1, found.labels[once.row])
    # What tells clusters apart: the dense group, or for noise the vector itself.
    keys = [labels, np.where(noise, np.arange(len(labels)), -1)]
    divided = 0
    if len(normal):
        home = home or normal_space(normal, normal_clusters)
        partner = _alone(home, sample.structure[once.row])
        keys.append(np.where(noise, -1, partner))
        groups = distinct(np.column_stack(keys)).row
        divided = int((np.bincount(labels[groups][labels[groups] >= 0]) > 1).sum())
    parts = distinct(np.column_stack(keys)).member
    ranking = renumber(parts, np.arange(len(parts)), once.weight)
    notes = []
    if found.weak.any():
        notes.append(
            f"{plural(int(found.weak.sum()), 'sample execution')} of {n} in no dense group: "
            "each paired on its own"
        )
    if divided:
        notes.append(
            f"{plural(divided, 'sample cluster')} divided: its executions fit different "
            "normal types"
        )
    return Clustering(
        labels=relabel(parts, ranking)[once.member],
        raw_labels=found.raw_labels,
        weak=found.weak,
        ordering=found.ordering,
        reachability=found.reachability,
        method=found.method,
        notes=tuple(notes),
    )


def _alone(home: NormalSpace, vectors: I64) -> I64:
    """Algorithm 2 for every vector as a cluster of one."""
    size = len(vectors)
    scores = merged_scores(
        home, stabilise(vectors), np.ones(size, np.int64), np.arange(size, dtype=np.int64)
    )
    return best_partners(scores)
