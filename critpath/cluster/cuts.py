"""The partition with the best silhouette among many: of OPTICS's plot, or of a tree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critpath.cluster.space import Density, blocks, squared_distances
from critpath.errors import CritpathError
from critpath.model import F64, I64, Bool
from critpath.units import plural

# Below this mean silhouette a partition has no structure worth naming (Kaufman
# and Rousseeuw 1990, "no substantial structure"); silhouettes cannot score one
# cluster, so the choice of a number of clusters needs a value to beat.
_NO_STRUCTURE = 0.25
_MOST_CUTS = 60
_MOST_CLUSTERS = 20


def best_cut(found: Density, space: F64, weight: I64, min_cluster_size: int) -> I64:
    """Cut a reachability plot at the height with the best mean silhouette."""
    entries = found.entries
    height, ordering = found.reachability[entries], found.member[entries]
    levels = np.unique(height[np.isfinite(height)])
    if len(levels) > _MOST_CUTS:
        levels = np.unique(np.quantile(levels, np.linspace(0, 1, _MOST_CUTS)))
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
    from scipy.cluster.hierarchy import fcluster, leaves_list  # noqa: PLC0415 - slow

    tree = average_linkage(space, weight)
    partitions = []
    for size in range(2, min(_MOST_CLUSTERS, len(space)) + 1):
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
    best, best_score = np.zeros(len(space), np.int64), _NO_STRUCTURE
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


# All distances are held: 200 MB of them.
_MOST_VECTORS = 5000


def average_linkage(space: F64, weight: I64) -> F64:
    """Join the two nearest clusters until one is left (average linkage, UPGMA)."""
    from scipy.spatial.distance import cdist  # noqa: PLC0415 - takes half a second to import

    n = len(space)
    if n > _MOST_VECTORS:
        raise CritpathError(
            f"average linkage of {plural(n, 'distinct execution')} needs too much memory",
            f"cluster by optics; linkage takes {_MOST_VECTORS} distinct executions at the most",
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
