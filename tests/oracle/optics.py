"""OPTICS in plain Python, of points one by one: the twin of ``critpath.cluster._optics``.

Ankerst, Breunig, Kriegel and Sander (SIGMOD 1999), with what scikit-learn settles: distances
are rounded to 15 decimals, and of equal reachabilities the lowest number goes first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def optics(
    points: Sequence[Sequence[float]], min_samples: int
) -> tuple[list[int], list[float], list[int], list[float]]:
    """Return ordering, reachability, predecessor and core distance of every point."""
    n = len(points)

    def apart(i: int, j: int) -> float:
        total = 0.0
        for a, b in zip(points[i], points[j], strict=True):
            total += (a - b) * (a - b)
        return math.sqrt(total)

    core = [rounded(sorted(apart(i, j) for j in range(n))[min_samples - 1]) for i in range(n)]
    reachability, predecessor, ordering = [math.inf] * n, [-1] * n, []
    left = list(range(n))
    while left:
        here = min(left, key=lambda i: (reachability[i], i))
        left.remove(here)
        ordering.append(here)
        for other in left:
            distance = rounded(max(apart(here, other), core[here]))
            if distance < reachability[other]:
                reachability[other], predecessor[other] = distance, here
    return ordering, reachability, predecessor, core


def rounded(value: float) -> float:
    """Round to 15 decimals as numpy does, by way of a multiple."""
    scaled = value * 1e15
    return (float(round(scaled)) if scaled < 2.0**52 else scaled) / 1e15
