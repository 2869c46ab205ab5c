"""OPTICS over distinct vectors, each with the number of executions that have it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from critpath.model import F64, I64

_CHUNK = 1 << 22  # distances held at once: 32 MiB
# Distances equal but for their last bits are ties, as in scikit-learn.
_DECIMALS = int(np.finfo(np.float64).precision)


@dataclass(frozen=True)
class Density:
    """What OPTICS says of distinct vectors.

    Attributes
    ----------
    ordering : int64 [n]
        Vectors in order of visit.
    reachability : float64 [n]
        Per vector (not in order of visit); inf for the first visited.
    predecessor : int64 [n]
        The vector from which one was reached; -1 for the first.
    core : float64 [n]
        Distance within which ``min_samples`` executions are.
    """

    ordering: I64
    reachability: F64
    predecessor: I64
    core: F64


def core_distances(space: F64, weight: I64, min_samples: int) -> F64:
    """Distance at which the summed weight, a vector's own included, reaches min_samples.

    Parameters
    ----------
    space : float64 [n, symbols]
        Distinct vectors.
    weight : int64 [n]
        Executions with each, at least 1.
    min_samples : int
        At most the sum of the weights.

    Returns
    -------
    float64 [n]
        0 for a vector that ``min_samples`` executions have.
    """
    from scipy.spatial.distance import cdist  # noqa: PLC0415 - takes half a second to import

    n = len(space)
    core = np.zeros(n)
    light = np.flatnonzero(weight < min_samples)
    # Weights are at least 1: no more than this many vectors are ever needed.
    near = min(min_samples, n)
    step = max(1, _CHUNK // max(1, n))
    for begin in range(0, len(light), step):
        rows = light[begin : begin + step]
        distance = cdist(space[rows], space)
        found = np.argpartition(distance, near - 1, axis=1)[:, :near]
        distance = np.take_along_axis(distance, found, axis=1)
        nearest = np.argsort(distance, axis=1)
        distance = np.take_along_axis(distance, nearest, axis=1)
        reached = np.cumsum(weight[np.take_along_axis(found, nearest, axis=1)], axis=1)
        first = (reached >= min_samples).argmax(axis=1)
        core[rows] = distance[np.arange(len(rows)), first]
    return np.around(core, _DECIMALS)


def density(space: F64, weight: I64, min_samples: int) -> Density:
    """Order vectors so that dense regions are runs of low reachability (OPTICS).

    Parameters
    ----------
    space : float64 [n, symbols]
        Distinct vectors, at least one, in an order that does not depend on the order
        of executions: ties go to the first.
    weight : int64 [n]
        Executions with each, at least 1.
    min_samples : int
        At least 2, at most the sum of the weights.

    Returns
    -------
    Density
        With weights of 1, what scikit-learn's OPTICS computes without a limit on
        distances (but for the last bits of a distance, which it computes in two ways).
        Otherwise what it computes of the executions one by one, if those with equal
        counts are visited one after the other.

    Notes
    -----
    Ankerst, Breunig, Kriegel, Sander: OPTICS, SIGMOD 1999.  Every step looks at all
    vectors: O(n^2) time, O(n) memory, so it is the number of *distinct* vectors
    that costs.
    """
    from scipy.spatial.distance import cdist  # noqa: PLC0415 - takes half a second to import

    n = len(space)
    core = core_distances(space, weight, min_samples)
    reachability, predecessor = np.full(n, np.inf), np.full(n, -1, np.int64)
    ordering = np.empty(n, np.int64)
    # Reachability of those not yet visited; the first is visited first.
    waiting, still = np.full(n, np.inf), np.ones(n, np.bool_)
    for i in range(n):
        point = int(waiting.argmin()) if i else 0
        ordering[i] = point
        still[point], waiting[point] = False, np.inf
        distance = np.maximum(cdist(space[point : point + 1], space)[0], core[point])
        distance = np.around(distance, _DECIMALS)
        closer = np.flatnonzero((distance < reachability) & still)
        reachability[closer] = waiting[closer] = distance[closer]
        predecessor[closer] = point
    return Density(ordering, reachability, predecessor, core)
