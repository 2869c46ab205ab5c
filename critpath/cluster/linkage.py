"""Average linkage of distinct vectors, each with the number of executions that have it."""

from __future__ import annotations

import numpy as np

from critpath.errors import CritpathError
from critpath.model import F64, I64
from critpath.units import plural

# All distances are held: 200 MB of them.
_MOST_VECTORS = 5000


def average_linkage(space: F64, weight: I64) -> F64:
    """Join the two nearest clusters until one is left (average linkage, UPGMA).

    Parameters
    ----------
    space : float64 [n, symbols]
        Distinct vectors, at least two.
    weight : int64 [n]
        Executions with each.

    Returns
    -------
    float64 [n - 1, 4]
        As ``scipy.cluster.hierarchy.linkage`` returns it, the last column counting
        distinct vectors.  Distances between clusters are means over executions: the
        tree above the joins at distance 0 of all executions one by one.

    Raises
    ------
    CritpathError
        If there are more than 5,000 distinct vectors.

    Notes
    -----
    Murtagh's chain of nearest neighbours (1983), O(n^2).  scipy's own cannot start
    from clusters of more than one member.
    """
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
