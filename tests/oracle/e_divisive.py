"""The greatest statistic of E-divisive, by its definition: all pairs, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product


def greatest_split(values: Sequence[float], least: int) -> tuple[float, int]:
    """Return the statistic and how many values come before the change."""
    best, place = 0.0, 0
    for at in range(least, len(values) - least + 1):
        for to in range(at + least, len(values) + 1):
            x, y = values[:at], values[at:to]
            across = sum(abs(a - b) for a, b in product(x, y)) / (len(x) * len(y))
            inside = [
                sum(abs(a - b) for a, b in combinations(z, 2)) / (len(z) * (len(z) - 1) / 2)
                for z in (x, y)
            ]
            found = len(x) * len(y) / (len(x) + len(y)) * (2 * across - sum(inside))
            if found > best:
                best, place = found, at
    return best, place
