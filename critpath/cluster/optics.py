"""VectorTable -> Clustering: execution types by density (OPTICS) and its alternatives.

The paper (Janecek et al., ICPC 2022) clusters count vectors with OPTICS.  What
is added to it here, each for a measured reason (docs/evaluation.md): counts are
variance-stabilised first; rows are put into a canonical order, because OPTICS
depends on it; executions that the extraction calls noise join the cluster of
their nearest clustered neighbour instead of dropping out.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from critpath.cluster.space import canonical_order, relabel, renumber, stabilise
from critpath.model import F64, I64, Clustering, VectorTable
from critpath.units import plural

# Below this mean silhouette a partition has no structure worth naming (Kaufman
# and Rousseeuw 1990, "no substantial structure"); silhouettes cannot score one
# cluster, so the choice of a number of clusters needs a value to beat.
_NO_STRUCTURE = 0.25
_MOST_CUTS = 60
_MOST_CLUSTERS = 20


@dataclass(frozen=True)
class _Extraction:
    labels: I64
    ordering: I64
    reachability: F64


@dataclass(frozen=True)
class _Settings:
    min_samples: int
    xi: float
    min_cluster_size: int


def cluster(
    table: VectorTable,
    *,
    method: str = "optics",
    min_samples: int = 5,
    xi: float = 0.05,
    min_cluster_fraction: float = 0.05,
) -> Clustering:
    """Find the execution types of a set; no execution is left without one.

    Parameters
    ----------
    table : VectorTable
        Any number of executions, none included.
    method : str
        A key of `METHODS`: ``optics``; ``raw``, the same on plain counts (the
        paper's literal reading); ``silcut``, the OPTICS ordering cut at the
        reachability with the best silhouette; ``linkage``, average linkage with
        the number of clusters of the best silhouette.
    min_samples : int
        OPTICS's density parameter, lowered to the number of executions.
    xi : float
        Relative drop of reachability that bounds a cluster, in (0, 1).
    min_cluster_fraction : float
        Smallest cluster as a share of the set, but never below ``min_samples``.

    Returns
    -------
    Clustering
        Permuting the rows permutes ``labels``, ``raw_labels`` and ``weak``, and
        changes nothing else; executions with equal counts have equal labels.

    Raises
    ------
    ValueError
        If the method is unknown or a parameter is out of range.

    Notes
    -----
    Ankerst, Breunig, Kriegel, Sander: OPTICS, SIGMOD 1999, as implemented in
    scikit-learn.  Equal counts with different labels from the extraction (a
    boundary between duplicates) take the most frequent of them.
    """
    if method not in METHODS:
        raise ValueError(f"clustering method {method!r}: choose from {', '.join(METHODS)}")
    if min_samples < 2 or not 0 < xi < 1 or not 0 <= min_cluster_fraction <= 1:
        raise ValueError("min_samples >= 2, 0 < xi < 1, 0 <= min_cluster_fraction <= 1 expected")
    n = len(table)
    order = canonical_order(table)
    if n == 0 or bool((table.structure == table.structure[:1]).all()):
        return _single(n, order)
    size = min(n, max(min_samples, math.ceil(min_cluster_fraction * n)))
    settings = _Settings(min(min_samples, n), xi, size)
    counts = table.structure[order]
    found = METHODS[method](counts, settings)
    raw = _agree(found.labels, counts)
    labels, notes = assign_noise(raw, stabilise(counts))
    back = np.empty(n, np.int64)
    back[order] = np.arange(n)
    ranking = renumber(labels, np.arange(n))
    return Clustering(
        labels=relabel(labels, ranking)[back],
        raw_labels=relabel(raw, ranking)[back],
        weak=(raw < 0)[back],
        ordering=order[found.ordering],
        reachability=found.reachability[back],
        method=f"{method}(min_samples={settings.min_samples}, xi={xi:g}, min_cluster_size={size})",
        notes=notes,
    )


def _single(n: int, order: I64) -> Clustering:
    """One cluster of everything: nothing there to tell executions apart by."""
    return Clustering(
        labels=np.zeros(n, np.int64),
        raw_labels=np.zeros(n, np.int64),
        weak=np.zeros(n, np.bool_),
        ordering=order,
        reachability=np.full(n, np.inf),
        method="single",
        notes=() if n < 2 else (f"all {n} executions have the same counts: one type",),
    )


def _agree(labels: I64, counts: I64) -> I64:
    """Give rows with equal counts one label: the most frequent, ties to the lowest."""
    group = np.unique(counts, axis=0, return_inverse=True)[1].reshape(-1)
    votes = np.zeros((int(group.max()) + 1, int(labels.max()) + 2), np.int64)
    np.add.at(votes, (group, labels + 1), 1)
    # Noise (column 0) must win outright: a clustered duplicate is evidence of a cluster.
    best = votes[:, 1:].argmax(axis=1) if votes.shape[1] > 1 else np.zeros(len(votes), np.int64)
    clustered = votes[:, 1:].max(axis=1, initial=0) >= np.maximum(votes[:, 0], 1)
    return np.where(clustered, best, -1)[group].astype(np.int64)


def assign_noise(raw: I64, space: F64) -> tuple[I64, tuple[str, ...]]:
    """Send every noise point to the cluster of its nearest clustered point.

    Parameters
    ----------
    raw : int64 [n]
        Labels, -1 for noise.
    space : float64 [n, symbols]
        Coordinates in which "near" is measured.

    Returns
    -------
    labels : int64 [n]
        Without -1; all zero if everything was noise.
    notes : tuple of str
        How many points were moved.
    """
    noise = raw < 0
    if noise.all():
        return np.zeros(len(raw), np.int64), (
            "no group of executions is denser than the rest: one type",
        )
    if not noise.any():
        return raw, ()
    labels = raw.copy()
    clustered = np.flatnonzero(~noise)
    for i in np.flatnonzero(noise):
        distance = ((space[clustered] - space[i]) ** 2).sum(axis=1)
        # Equal distances: the lowest label, so that the order of rows cannot decide.
        nearest = distance <= distance.min() * (1 + 1e-12)
        labels[i] = raw[clustered[nearest]].min()
    moved = f"{plural(int(noise.sum()), 'execution')} of {len(raw)} in no dense group: "
    return labels, (moved + "each joined the type of its nearest neighbour",)


def _optics(space: F64, settings: _Settings) -> tuple[I64, I64, F64, I64]:
    """Run scikit-learn's OPTICS; returns xi labels, ordering, reachability, predecessors."""
    from sklearn.cluster import OPTICS  # noqa: PLC0415 - takes over a second to import

    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        # Duplicates have reachability 0, and xi divides by it; the infinite ratio is
        # the right one there (a cliff), so the warning tells nobody anything.
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)  # "all reachability values are inf"
        model = OPTICS(
            min_samples=settings.min_samples,
            xi=settings.xi,
            min_cluster_size=settings.min_cluster_size,
        ).fit(space)
    return (
        model.labels_.astype(np.int64),
        model.ordering_.astype(np.int64),
        model.reachability_.astype(np.float64),
        model.predecessor_.astype(np.int64),
    )


def _by_xi(counts: I64, settings: _Settings) -> _Extraction:
    labels, ordering, reachability, _ = _optics(stabilise(counts), settings)
    return _Extraction(labels, ordering, reachability)


def _by_raw_xi(counts: I64, settings: _Settings) -> _Extraction:
    labels, ordering, reachability, _ = _optics(counts.astype(np.float64), settings)
    return _Extraction(labels, ordering, reachability)


def _by_silhouette_cut(counts: I64, settings: _Settings) -> _Extraction:
    space = stabilise(counts)
    _, ordering, reachability, _ = _optics(space, settings)
    levels = np.unique(reachability[np.isfinite(reachability)])
    if len(levels) > _MOST_CUTS:
        levels = np.unique(np.quantile(levels, np.linspace(0, 1, _MOST_CUTS)))
    partitions = []
    for level in levels:
        labels = _cut(reachability, ordering, float(level))
        sizes = np.bincount(labels[labels >= 0], minlength=1)
        labels[np.isin(labels, np.flatnonzero(sizes < settings.min_cluster_size))] = -1
        partitions.append(labels)
    return _Extraction(_best(partitions, space), ordering, reachability)


def _cut(reachability: F64, ordering: I64, level: float) -> I64:
    """Cut the reachability plot: a new run starts wherever it rises above the level."""
    starts = reachability[ordering] > level
    starts[0] = True
    run = np.cumsum(starts) - 1
    labels = np.empty(len(ordering), np.int64)
    labels[ordering] = run
    alone = np.bincount(run) < 2
    labels[alone[labels]] = -1
    return labels


def _by_linkage(counts: I64, settings: _Settings) -> _Extraction:
    from scipy.cluster.hierarchy import fcluster, leaves_list, linkage  # noqa: PLC0415 - slow

    space = stabilise(counts)
    tree = linkage(space, method="average")
    partitions = []
    for size in range(2, min(_MOST_CLUSTERS, len(space) - 1) + 1):
        labels = fcluster(tree, size, criterion="maxclust").astype(np.int64) - 1
        small = np.flatnonzero(np.bincount(labels) < settings.min_cluster_size)
        labels[np.isin(labels, small)] = -1
        partitions.append(labels)
    ordering = leaves_list(tree).astype(np.int64)
    return _Extraction(_best(partitions, space), ordering, np.full(len(space), np.inf))


def _best(partitions: list[I64], space: F64) -> I64:
    """Return the partition with the largest mean silhouette, or one cluster if none has any."""
    from sklearn.metrics import silhouette_score  # noqa: PLC0415 - takes over a second to import

    best, best_score = np.zeros(len(space), np.int64), _NO_STRUCTURE
    for labels in partitions:
        whole, _ = assign_noise(labels, space)
        if 2 <= len(np.unique(whole)) < len(space):
            score = float(silhouette_score(space, whole))
            if score > best_score + 1e-12:
                best, best_score = labels, score
    return best


METHODS: dict[str, Callable[[I64, _Settings], _Extraction]] = {
    "optics": _by_xi,
    "raw": _by_raw_xi,
    "silcut": _by_silhouette_cut,
    "linkage": _by_linkage,
}
