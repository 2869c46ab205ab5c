"""Execution types of two sets: clusters, pairs, and labels where the trace has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critpath.cluster.distances import NormalSpace, normal_space
from critpath.cluster.optics import cluster
from critpath.cluster.pairing import pair
from critpath.cluster.sample import cluster_sample
from critpath.model import I64, Clustering, ClusterPairs, VectorTable
from critpath.units import plural

# Fewer normal executions of a label than this make no type of their own.
LEAST_LABELLED = 5

# Within a label only a large part is a type of its own: chance valleys of the
# reachability plot otherwise split fifteen executions of one kind into 5 and 10.
SUBTYPE = 0.4


def rows_of(table: VectorTable, rows: I64) -> VectorTable:
    """Return some executions of a table."""
    return VectorTable(
        table.symbols, table.counts[rows], table.durations[rows], table.structure[rows]
    )


def usable_labels(normal: Sequence[str], sample: Sequence[str]) -> str:
    """Return why labels cannot tell types apart, "" if they can.

    They can if there are at least two, and the normal set has enough executions of
    every label that the sample has.
    """
    if len({*normal, *sample}) < 2:
        return "there are no labels"
    for label in sorted(set(sample)):
        count = sum(1 for other in normal if other == label)
        if count < LEAST_LABELLED:
            return f"label {label!r} has {plural(count, 'normal execution')}"
    return ""


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
        Labels that `usable_labels` accepts, or nothing.
    method : str
        A clustering method.

    Returns
    -------
    normal clusters, sample clusters, pairs
    """
    if not normal_label:
        ours = cluster(normal, method=method)
        home = _home(normal, ours)
        theirs = cluster_sample(sample, normal, ours, method=method, home=home)
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
        ours = cluster(of_normal, method=method, min_cluster_fraction=SUBTYPE)
        ours_parts.append((mine, ours))
        if len(other):
            home = _home(of_normal, ours)
            theirs = cluster_sample(
                *(of_sample, of_normal, ours),
                method=method,
                min_cluster_fraction=SUBTYPE,
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
