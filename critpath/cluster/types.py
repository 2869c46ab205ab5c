"""Execution types of two sets: clusters, pairs, and labels where the trace has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np

from critpath.cluster.optics import cluster
from critpath.cluster.pairing import best_partners, merged_scores, pair
from critpath.cluster.space import NormalSpace, distinct, normal_space, relabel, renumber, stabilise
from critpath.model import I64, Clustering, ClusterPairs, VectorTable, Whole
from critpath.processes import do_for_both
from critpath.schema import notes
from critpath.schema.notes import Note
from critpath.schema.parameters.cluster import TYPES


def rows_of(table: VectorTable, rows: I64) -> VectorTable:
    """Return some executions of a table."""
    return VectorTable(
        table.symbols, table.counts[rows], table.durations[rows], table.structure[rows]
    )


def labels_are_usable(normal: Sequence[str], sample: Sequence[str]) -> bool:
    """Tell whether labels can stand for types.

    They can if there are at least two, and the normal set has enough executions of
    every label that the sample has.
    """
    counts = Counter(normal)
    return len({*normal, *sample}) > 1 and all(
        counts[label] >= TYPES.least_labelled for label in set(sample)
    )


def find_types(
    normal: VectorTable,
    sample: VectorTable,
    normal_label: Sequence[str] = (),
    sample_label: Sequence[str] = (),
    *,
    method: str = "optics",
) -> tuple[Clustering, Clustering, ClusterPairs]:
    """Cluster both sets and pair every sample cluster with a normal one.

    Where labels are given, executions are clustered and paired within their label:
    what the program says of itself is surer than what counts suggest.  An execution
    of one type with a bug can look, by its counts, like a healthy one of another.

    Parameters
    ----------
    normal, sample : VectorTable
        Over the same symbols.
    normal_label, sample_label : sequence of str
        Labels that `labels_are_usable` accepts, or nothing.
    method : str
        A clustering method.

    Returns
    -------
    normal clusters, sample clusters, pairs
    """
    if not normal_label:
        ours, found = do_for_both(normal, sample, partial(cluster, method=method))
        home = _home(normal, ours)
        theirs = cluster_sample(sample, normal, ours, method=method, home=home, found=found)
        return ours, theirs, pair(normal, ours, sample, theirs, home=home)
    ours_parts: list[tuple[I64, Clustering]] = []
    theirs_parts: list[tuple[I64, Clustering]] = []
    pair_parts: list[ClusterPairs] = []
    homes: list[I64] = []
    first = 0
    for label in sorted(set(normal_label)):
        mine = np.flatnonzero([text == label for text in normal_label]).astype(np.int64)
        other = np.flatnonzero([text == label for text in sample_label]).astype(np.int64)
        of_normal, of_sample = rows_of(normal, mine), rows_of(sample, other)
        ours = cluster(of_normal, method=method, min_cluster_fraction=TYPES.subtype)
        ours_parts.append((mine, ours))
        if len(other):
            home = _home(of_normal, ours)
            theirs = cluster_sample(
                *(of_sample, of_normal, ours),
                method=method,
                min_cluster_fraction=TYPES.subtype,
                home=home,
            )
            theirs_parts.append((other, theirs))
            pair_parts.append(pair(of_normal, ours, of_sample, theirs, home=home))
            homes.append(pair_parts[-1].pair + first)
        first += ours.size
    ours, order = _join(ours_parts, len(normal))
    theirs, sample_order = _join(theirs_parts, len(sample))
    return ours, theirs, _join_pairs(np.concatenate(homes), pair_parts, order, sample_order)


def _home(normal: VectorTable, clusters: Clustering) -> NormalSpace | None:
    """Distances among normal executions: of many, once for both that need them."""
    return normal_space(normal, clusters) if len(normal) else None


def _join(parts: Sequence[tuple[I64, Clustering]], n: int) -> tuple[Clustering, I64]:
    """Join clusterings of parts of a set; return it and each old cluster's new number.

    Clusters are numbered by size, then by the order of the parts.
    """
    labels = np.zeros(n, np.int64)
    weak = np.zeros(n, bool)
    noise = np.zeros(n, bool)
    reachability = np.full(n, np.inf)
    first = 0
    for rows, part in parts:
        labels[rows] = part.labels + first
        weak[rows] = part.weak
        noise[rows] = part.raw_labels < 0
        reachability[rows] = part.reachability
        first += part.size
    sizes = np.bincount(labels, minlength=first) if n else np.zeros(first, np.int64)
    number = np.empty(first, np.int64)
    number[np.lexsort((np.arange(first), -sizes))] = np.arange(first)
    labels = number[labels]
    ordering = [rows[part.ordering] for rows, part in parts]
    notes = tuple(dict.fromkeys(note for _, part in parts for note in part.notes))
    methods = dict.fromkeys(part.method for _, part in parts)
    return (
        Clustering(
            labels=labels,
            raw_labels=np.where(noise, -1, labels),
            weak=weak,
            ordering=np.concatenate([np.zeros(0, np.int64), *ordering]),
            reachability=reachability,
            method="within labels: " + ", ".join(methods),
            notes=notes,
        ),
        number,
    )


def _join_pairs(
    pair_of: I64, parts: Sequence[ClusterPairs], order: I64, sample_order: I64
) -> ClusterPairs:
    """Renumber joined pairs as the joined clusterings are numbered."""
    back = np.argsort(sample_order)
    return ClusterPairs(
        pair=order[pair_of.astype(np.int64)][back],
        score=np.concatenate([p.score for p in parts])[back],
        weak=np.concatenate([p.weak for p in parts])[back],
        novel=np.concatenate([p.novel for p in parts])[back],
        notes=tuple(dict.fromkeys(note for p in parts for note in p.notes)),
    )


def normal_group(
    normal_clusters: Clustering, sample_clusters: Clustering, pairs: ClusterPairs, execution: int
) -> I64:
    """Return the normal executions of the type that a sample execution is paired with."""
    home = pairs.pair[sample_clusters.labels[execution]]
    return np.flatnonzero(normal_clusters.labels == home).astype(np.int64)


# Types of a sample set, which is often too small to show its own.


def cluster_sample(
    sample: VectorTable,
    normal: VectorTable,
    normal_clusters: Clustering,
    *,
    method: str = "optics",
    min_samples: int = 5,
    xi: float | None = None,
    min_cluster_fraction: float | None = None,
    home: NormalSpace | None = None,
    found: Clustering | None = None,
) -> Clustering:
    """Find the execution types of a sample set, with the normal types as a guide.

    ``found`` is what `cluster` found of it by itself.
    """
    xi = TYPES.xi if xi is None else xi
    min_cluster_fraction = (
        TYPES.least_share if min_cluster_fraction is None else min_cluster_fraction
    )
    if normal.symbols != sample.symbols:
        raise ValueError("normal and sample vectors have different symbols")
    if found is None:
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
        partner = _pair_alone(home, sample.structure[once.row])
        keys.append(np.where(noise, -1, partner))
        groups = distinct(np.column_stack(keys)).row
        divided = int((np.bincount(labels[groups][labels[groups] >= 0]) > 1).sum())
    parts = distinct(np.column_stack(keys)).member
    ranking = renumber(parts, np.arange(len(parts)), once.weight)
    remarks: list[Note] = []
    if found.weak.any():
        remarks.append(notes.NoisePaired(int(found.weak.sum()), n))
    if divided:
        remarks.append(notes.DividedClusters(divided))
    return Clustering(
        labels=relabel(parts, ranking)[once.member],
        raw_labels=found.raw_labels,
        weak=found.weak,
        ordering=found.ordering,
        reachability=found.reachability,
        method=found.method,
        notes=tuple(remarks),
    )


def _pair_alone(home: NormalSpace, vectors: Whole) -> I64:
    """Algorithm 2 for every vector as a cluster of one."""
    size = len(vectors)
    scores = merged_scores(
        home, stabilise(vectors), np.ones(size, np.int64), np.arange(size, dtype=np.int64)
    )
    return best_partners(scores)
