"""VectorTable -> Clustering: execution types by density (OPTICS) and its alternatives.

The paper (Janecek et al., ICPC 2022) clusters count vectors with OPTICS.  What
is added to it here, each for a measured reason (docs/decisions/4-types.md): counts
are variance-stabilised first; equal vectors are one point with a weight, in a canonical
order, because OPTICS depends on it; density is not resolved beyond the noise of
counting; executions that the extraction calls noise join the cluster of their nearest
clustered neighbour instead of dropping out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from critpath.cluster.cuts import assign_noise, best_cut, best_tree_cut
from critpath.cluster.density import density
from critpath.cluster.space import canonical_order, distinct, relabel, renumber, stabilise
from critpath.cluster.steepness import steep_clusters
from critpath.model import F64, I64, Clustering, VectorTable
from critpath.units import plural


@dataclass(frozen=True)
class _Extraction:
    """Labels of vectors; order of visit and reachability of executions in canonical order."""

    labels: I64
    ordering: I64
    reachability: F64


@dataclass(frozen=True)
class _Settings:
    min_samples: int
    xi: float
    min_cluster_size: int
    resolution: float


def cluster(
    table: VectorTable,
    *,
    method: str = "optics",
    min_samples: int = 5,
    xi: float = 0.05,
    min_cluster_fraction: float = 0.05,
    resolution: float = 1.0,
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
    resolution : float
        Heights of the reachability plot below this do not differ: a standard
        deviation of a count, or one count where counts are ``raw``.  Without it, what
        is dense beyond the noise of counting is cut into clusters.

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
    Ankerst, Breunig, Kriegel, Sander: OPTICS, SIGMOD 1999.  Executions with equal
    counts are one point with a weight (`critpath.cluster.density`), so the number of
    distinct vectors is what costs: their square in time, not in memory.
    """
    if method not in METHODS:
        raise ValueError(f"clustering method {method!r}: choose from {', '.join(METHODS)}")
    if min_samples < 2 or not 0 < xi < 1 or not 0 <= min_cluster_fraction <= 1:
        raise ValueError("min_samples >= 2, 0 < xi < 1, 0 <= min_cluster_fraction <= 1 expected")
    if not resolution >= 0:
        raise ValueError("resolution >= 0 expected")
    n = len(table)
    order = canonical_order(table)
    once = distinct(table.structure)
    if len(once.row) < 2:
        return _single(n, order)
    size = min(n, max(min_samples, math.ceil(min_cluster_fraction * n)))
    settings = _Settings(min(min_samples, n), xi, size, resolution)
    counts = table.structure[once.row]
    found = METHODS[method](counts, once.weight, settings)
    labels = assign_noise(found.labels, stabilise(counts))
    notes = _noise_notes(int(once.weight[found.labels < 0].sum()), n)
    ranking = renumber(labels, np.arange(len(counts)), once.weight)
    reachability = np.empty(n)
    reachability[order] = found.reachability
    return Clustering(
        labels=relabel(labels, ranking)[once.member],
        raw_labels=relabel(found.labels, ranking)[once.member],
        weak=(found.labels < 0)[once.member],
        ordering=order[found.ordering],
        reachability=reachability,
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


def _noise_notes(noise: int, n: int) -> tuple[str, ...]:
    if noise == n:
        return ("no group of executions is denser than the rest: one type",)
    if noise == 0:
        return ()
    moved = f"{plural(noise, 'execution')} of {n} in no dense group: "
    return (moved + "each joined the type of its nearest neighbour",)


def _by_xi(counts: I64, weight: I64, settings: _Settings) -> _Extraction:
    return _steep(stabilise(counts), weight, settings)


def _by_raw_xi(counts: I64, weight: I64, settings: _Settings) -> _Extraction:
    return _steep(counts.astype(np.float64), weight, settings)


def _steep(space: F64, weight: I64, settings: _Settings) -> _Extraction:
    found = density(space, weight, settings.min_samples)
    labels = steep_clusters(
        found,
        xi=settings.xi,
        min_samples=settings.min_samples,
        min_cluster_size=settings.min_cluster_size,
        floor=settings.resolution,
    )
    return _Extraction(labels, found.ordering, found.reachability)


def _by_silhouette_cut(counts: I64, weight: I64, settings: _Settings) -> _Extraction:
    space = stabilise(counts)
    found = density(space, weight, settings.min_samples)
    labels = best_cut(found, space, weight, settings.min_cluster_size)
    return _Extraction(labels, found.ordering, found.reachability)


def _by_linkage(counts: I64, weight: I64, settings: _Settings) -> _Extraction:
    labels, leaves = best_tree_cut(stabilise(counts), weight, settings.min_cluster_size)
    place = np.empty(len(leaves), np.int64)
    place[leaves] = np.arange(len(leaves))
    ordering = np.argsort(np.repeat(place, weight), kind="stable")
    return _Extraction(labels, ordering, np.full(len(ordering), np.inf))


METHODS: dict[str, Callable[[I64, I64, _Settings], _Extraction]] = {
    "optics": _by_xi,
    "raw": _by_raw_xi,
    "silcut": _by_silhouette_cut,
    "linkage": _by_linkage,
}
