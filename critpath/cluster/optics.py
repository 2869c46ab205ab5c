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
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from critpath.cluster.space import (
    Density,
    blocks,
    canonical_order,
    density,
    distinct,
    relabel,
    renumber,
    squared_distances,
    stabilise,
)
from critpath.errors import CritpathError
from critpath.extras import require
from critpath.model import F64, I64, Bool, Clustering, VectorTable, Whole
from critpath.schema import notes
from critpath.schema.notes import Note
from critpath.schema.parameters.cluster import TYPES
from critpath.units import plural

# The partition with the best silhouette among many: of OPTICS's plot, or of a tree.


def best_cut(found: Density, space: F64, weight: I64, min_cluster_size: int) -> I64:
    """Cut a reachability plot at the height with the best mean silhouette."""
    entries = found.entries
    height, ordering = found.reachability[entries], found.member[entries]
    levels = np.unique(height[np.isfinite(height)])
    if len(levels) > TYPES.most_cuts:
        levels = np.unique(np.quantile(levels, np.linspace(0, 1, TYPES.most_cuts)))
    # Below all of them: every vector for itself, which several executions may have.
    partitions = []
    for level in (0.0, *levels):
        starts = height > level
        starts[0] = True
        labels = np.empty(len(height), np.int64)
        labels[ordering] = np.cumsum(starts) - 1
        partitions.append(_without_small(labels, weight, min_cluster_size))
    return _best(partitions, space, weight)


def best_tree_cut(space: F64, weight: I64, min_cluster_size: int) -> tuple[I64, I64]:
    """Cut the average linkage tree at the number of clusters with the best silhouette."""
    require("--cluster-method linkage", "stats")
    from scipy.cluster.hierarchy import fcluster, leaves_list  # noqa: PLC0415 - slow

    tree = average_linkage(space, weight)
    partitions = []
    for size in range(2, min(TYPES.most_clusters, len(space)) + 1):
        labels = fcluster(tree, size, criterion="maxclust").astype(np.int64) - 1
        partitions.append(_without_small(labels, weight, min_cluster_size))
    return _best(partitions, space, weight), leaves_list(tree).astype(np.int64)


def _without_small(labels: I64, weight: I64, min_cluster_size: int) -> I64:
    sizes = np.bincount(labels, weight)
    return np.where(sizes[labels] < min_cluster_size, -1, labels)


def _best(partitions: list[I64], space: F64, weight: I64) -> I64:
    """Return the partition with the largest mean silhouette, or one cluster if none has any."""
    several, whole = [], []
    for labels in {labels.tobytes(): labels for labels in partitions}.values():
        assigned = assign_noise(labels, space)
        values, assigned = np.unique(assigned, return_inverse=True)
        if len(values) > 1:
            several.append(labels)
            whole.append(assigned.reshape(-1).astype(np.int64))
    best, best_score = np.zeros(len(space), np.int64), TYPES.no_structure
    for labels, score in zip(several, silhouettes(space, weight, whole), strict=True):
        if score > best_score + 1e-12:
            best, best_score = labels, score
    return best


def silhouettes(space: F64, weight: I64, partitions: Sequence[I64]) -> list[float]:
    """Mean silhouette over executions of several partitions (Rousseeuw 1987)."""
    if not partitions:
        return []
    n = len(space)
    groups = [int(labels.max()) + 1 for labels in partitions]
    share = np.zeros((n, sum(groups)))  # weight, in the column of the cluster
    first = np.cumsum([0, *groups])
    for labels, column in zip(partitions, first[:-1], strict=True):
        share[np.arange(n), column + labels] = weight
    totals = np.zeros(len(partitions))
    for rows, distance in blocks(space, space):
        sums = distance @ share
        for i, labels in enumerate(partitions):
            columns = slice(first[i], first[i + 1])
            values = silhouette(sums[:, columns], share[:, columns].sum(axis=0), labels[rows])
            totals[i] += float(values @ weight[rows])
    return [float(total) for total in totals / weight.sum()]


def silhouette(sums: F64, sizes: F64, labels: I64) -> F64:
    """Silhouette of points of which summed distances to every cluster are known."""
    rows = np.arange(len(labels))
    inside = sums[rows, labels] / np.maximum(sizes[labels] - 1, 1)
    means = sums / sizes
    means[rows, labels] = np.inf
    values = relative(inside, means.min(axis=1))
    return np.where(sizes[labels] > 1, values, 0.0)


def relative(inside: F64, outside: F64) -> F64:
    """Give ``(outside - inside)`` relative to the larger, 0 where both are 0."""
    larger = np.maximum(inside, outside)
    return np.divide(outside - inside, larger, out=np.zeros_like(larger), where=larger > 0)


def assign_noise(raw: I64, space: F64) -> I64:
    """Send every noise point to the cluster of its nearest clustered point."""
    noise: Bool = raw < 0
    if noise.all():
        return np.zeros(len(raw), np.int64)
    labels = raw.copy()
    clustered, lost = np.flatnonzero(~noise), np.flatnonzero(noise)
    # Equal distances: the lowest label, so that the order of rows cannot decide.
    clustered = clustered[np.argsort(raw[clustered], kind="stable")]
    for rows, distance in squared_distances(space[lost], space[clustered]):
        near = distance <= distance.min(axis=1, keepdims=True) * (1 + 1e-12)
        labels[lost[rows]] = raw[clustered[near.argmax(axis=1)]]
    return labels


# Average linkage of distinct vectors with weights.


# technical: all distances are held: 200 MB of them.
_MOST_VECTORS = 5000


def average_linkage(space: F64, weight: I64) -> F64:
    """Join the two nearest clusters until one is left (average linkage, UPGMA)."""
    from scipy.spatial.distance import cdist  # noqa: PLC0415 - takes half a second to import

    n = len(space)
    if n > _MOST_VECTORS:
        raise CritpathError(
            f"average linkage of {plural(n, 'distinct execution')} needs too much memory",
            f"cluster by optics; linkage takes {_MOST_VECTORS} distinct runs at the most",
        )
    distance = cdist(space, space)
    np.fill_diagonal(distance, np.inf)
    size = weight.astype(np.float64)
    joins = np.empty((n - 1, 3))
    chain: list[int] = []
    done = np.zeros(n, np.bool_)
    for i in range(n - 1):
        if not chain:
            chain.append(int(done.argmin()))
        while True:
            last = chain[-1]
            near = int(distance[last].argmin())
            # Equal distances: back to where the chain came from, or it never ends.
            if len(chain) > 1 and distance[last, chain[-2]] <= distance[last, near]:
                near = chain[-2]
                break
            chain.append(near)
        del chain[-2:]
        joins[i] = near, last, distance[last, near]
        # The joined cluster takes the place of `near`.
        both = (size[near] * distance[near] + size[last] * distance[last]) / (
            size[near] + size[last]
        )
        size[near] += size[last]
        done[last] = True
        distance[near], distance[:, near] = both, both
        distance[near, near] = np.inf
        distance[last], distance[:, last] = np.inf, np.inf
    return _tree(joins, n)


def _tree(joins: F64, n: int) -> F64:
    """Sort joins by distance, and name clusters as scipy does."""
    tree = np.empty((n - 1, 4))
    name, size = np.arange(n), np.ones(n, np.int64)
    # A later join may contain an earlier one at the same distance: keep their order.
    for i, k in enumerate(np.argsort(joins[:, 2], kind="stable")):
        near, last = int(joins[k, 0]), int(joins[k, 1])
        one, other = sorted((name[near], name[last]))
        size[near] += size[last]
        tree[i] = one, other, joins[k, 2], size[near]
        name[near] = n + i
    return tree


class _Extraction(Struct, frozen=True):
    """Labels of vectors; order of visit and reachability of executions in canonical order."""

    labels: I64
    ordering: I64
    reachability: F64


class _Settings(Struct, frozen=True):
    min_samples: int
    xi: float
    min_cluster_size: int
    resolution: float


def cluster(
    table: VectorTable,
    *,
    method: str = "optics",
    min_samples: int = 5,
    xi: float | None = None,
    min_cluster_fraction: float | None = None,
    resolution: float = 1.0,
) -> Clustering:
    """Find the execution types of a set; no execution is left without one."""
    xi = TYPES.xi if xi is None else xi
    min_cluster_fraction = (
        TYPES.least_share if min_cluster_fraction is None else min_cluster_fraction
    )
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
    noise = int(once.weight[found.labels < 0].sum())
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
        notes=_noise_notes(noise, n),
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
        notes=() if n < 2 else (notes.SingleType(n),),
    )


def _noise_notes(noise: int, n: int) -> tuple[Note, ...]:
    if noise == n:
        return (notes.NoDenseGroup(),)
    return (notes.NoiseAssigned(noise, n),) if noise else ()


def _by_xi(counts: Whole, weight: I64, settings: _Settings) -> _Extraction:
    return _steep(stabilise(counts), weight, settings)


def _by_raw_xi(counts: Whole, weight: I64, settings: _Settings) -> _Extraction:
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


def _by_silhouette_cut(counts: Whole, weight: I64, settings: _Settings) -> _Extraction:
    space = stabilise(counts)
    found = density(space, weight, settings.min_samples)
    labels = best_cut(found, space, weight, settings.min_cluster_size)
    return _Extraction(labels, found.ordering, found.reachability)


def _by_linkage(counts: Whole, weight: I64, settings: _Settings) -> _Extraction:
    labels, leaves = best_tree_cut(stabilise(counts), weight, settings.min_cluster_size)
    place = np.empty(len(leaves), np.int64)
    place[leaves] = np.arange(len(leaves))
    ordering = np.argsort(np.repeat(place, weight), kind="stable")
    return _Extraction(labels, ordering, np.full(len(ordering), np.inf))


METHODS: dict[str, Callable[[Whole, I64, _Settings], _Extraction]] = {
    "optics": _by_xi,
    "raw": _by_raw_xi,
    "silcut": _by_silhouette_cut,
    "linkage": _by_linkage,
}


# Xi extraction from a reachability plot whose bars have widths.


class _Area(Struct):
    """A steep fall of the plot; ``between`` is the highest bar since."""

    start: int
    end: int
    between: float = 0.0


class _Plot(Struct, frozen=True):
    """Bars of a reachability plot.

    Attributes
    ----------
    height : float64 [bars + 1]
        With an infinite bar at the end.
    width : int64 [bars]
        Executions.
    vector : int64 [bars]
    reached_from : int64 [bars]
        Vector, -1 for the first bar.
    first, last : int64 [vectors]
        Bars of every vector.
    """

    height: F64
    width: I64
    vector: I64
    reached_from: I64
    first: I64
    last: I64


def _plot(found: Density, floor: float) -> _Plot:
    """Draw one bar for executions of a vector that follow each other and were reached alike."""
    vector = found.member[found.ordering]
    height = found.reachability[found.ordering]
    before = found.predecessor[found.ordering]
    new = np.ones(len(vector), np.bool_)
    new[1:] = (np.diff(vector) != 0) | (height[1:] != height[:-1]) | (np.diff(before) != 0)
    start = np.flatnonzero(new)
    vector, height, before = vector[start], height[start], before[start]
    bars = np.arange(len(start))
    first, last = np.empty_like(found.core, np.int64), np.empty_like(found.core, np.int64)
    first[vector[::-1]], last[vector] = bars[::-1], bars
    return _Plot(
        height=np.maximum(np.append(height, np.inf), floor),
        width=np.diff(start, append=len(new)),
        vector=vector,
        reached_from=np.where(before >= 0, found.member[before], -1),
        first=first,
        last=last,
    )


def steep_clusters(
    found: Density,
    *,
    xi: float,
    min_samples: int,
    min_cluster_size: int,
    floor: float = 0.0,
) -> I64:
    """Extract the innermost clusters of a reachability plot."""
    plot = _plot(found, floor)
    clusters = _xi(plot, xi, min_samples, min_cluster_size)
    labels = np.full(len(plot.vector), -1, np.int64)
    label = 0
    for start, end in clusters:
        if not (labels[start : end + 1] >= 0).any():
            labels[start : end + 1] = label
            label += 1
    # A vector with one of its bars in a cluster is in the cluster: the widest decides.
    inside = np.flatnonzero(labels >= 0)
    inside = inside[np.argsort(plot.width[inside], kind="stable")]
    result = np.full(len(found.core), -1, np.int64)
    result[plot.vector[inside]] = labels[inside]
    return result


def _xi(plot: _Plot, xi: float, min_samples: int, least: int) -> list[tuple[int, int]]:
    """Give first and last bar of every cluster, inner ones before those around them."""
    height, keep = plot.height, 1 - xi
    with np.errstate(invalid="ignore", divide="ignore"):
        # Heights of 0 (no floor, duplicates): a cliff of infinite ratio, or 0 / 0, flat.
        ratio = height[:-1] / height[1:]
    rises, falls = ratio <= keep, ratio >= 1 / keep
    up, down = ratio < 1, ratio > 1
    executions = np.concatenate([[0], np.cumsum(plot.width)])
    areas: list[_Area] = []
    clusters: list[tuple[int, int]] = []
    index, between = 0, 0.0
    for at in np.flatnonzero(rises | falls).tolist():
        if at < index:
            continue
        between = max(between, float(height[index : at + 1].max()))
        areas = _still_open(areas, between, height, keep)
        if falls[at]:
            end = _extend(falls, up, plot.width, at, min_samples)
            areas.append(_Area(at, end))
        else:
            end = _extend(rises, down, plot.width, at, min_samples)
            inner = []
            for area in areas:
                bounds = _bounds(plot, area, at, end, keep)
                if bounds is None:
                    continue
                start, stop = bounds
                size = int(executions[stop + 1] - executions[start])
                if size >= least and start <= area.end and stop >= at:
                    inner.append(bounds)
            clusters.extend(reversed(inner))
        index = end + 1
        between = float(height[index])
    return clusters


def _still_open(areas: list[_Area], between: float, height: F64, keep: float) -> list[_Area]:
    """Drop falling areas that a bar since has risen above; remember the highest for the rest."""
    if np.isinf(between):
        return []
    kept = [area for area in areas if between <= height[area.start] * keep]
    for area in kept:
        area.between = max(area.between, between)
    return kept


def _extend(steep: Bool, against: Bool, width: I64, start: int, min_samples: int) -> int:
    """Return the last steep bar of the area that begins at start."""
    flat, end = 0, start
    for i in range(start, len(steep)):
        # Within a bar wider than one execution nothing rises or falls.
        if i > start:
            flat += int(width[i]) - 1
            if flat > min_samples:
                break
        if steep[i]:
            flat, end = 0, i
        elif against[i]:
            break
        else:
            flat += 1
            if flat > min_samples:
                break
    return end


def _bounds(
    plot: _Plot, area: _Area, rise: int, rise_end: int, keep: float
) -> tuple[int, int] | None:
    """Bars of the cluster between a fall and a rise, None if there is none."""
    height = plot.height
    start, end = area.start, rise_end
    after, before = height[end + 1], height[start]
    if after * keep < area.between:
        return None
    if before * keep >= after:
        while start < area.end and height[start + 1] > after:
            start += 1
    elif after * keep >= before:
        while end > rise and height[end - 1] > before:
            end -= 1
    # The last bars must have been reached from within the cluster.
    while start < end:
        source = plot.reached_from[end]
        inside = source >= 0 and plot.last[source] >= start and plot.first[source] < end
        if height[start] > height[end] or inside:
            return start, end
        end -= 1
    return None
