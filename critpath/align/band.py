"""The band of cells that an alignment of two profiles needs to look at, with proof."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from critpath.model import F64, I64

HALF_WIDTH = 64
# A band that leaves out less than this of all cells is not worth its bookkeeping.
LEAST_SAVING = 0.3


@dataclass(frozen=True, eq=False)
class Band:
    """Cells of a dynamic programme: columns ``low[i] .. high[i]`` of its row ``i``.

    Attributes
    ----------
    low, high : int64 [n + 1]
        Both never fall; 0 and m are columns too.
    """

    low: I64
    high: I64

    @property
    def width(self) -> int:
        """Return the most cells of a row."""
        return int((self.high - self.low).max()) + 1


def band_around(n: int, m: int, half_width: int) -> Band:
    """Return the cells at most `half_width` off the diagonals through either corner."""
    rows = np.arange(n + 1, dtype=np.int64)
    return Band(
        np.maximum(rows + min(0, m - n) - half_width, 0),
        np.minimum(rows + max(0, m - n) + half_width, m),
    )


def band_along(n: int, m: int, half_width: int) -> Band:
    """Return the cells at most `half_width` off the line from corner to corner."""
    line = np.arange(n + 1, dtype=np.int64) * m // max(n, 1)
    return Band(np.maximum(line - half_width, 0), np.minimum(line + half_width, m))


def is_narrow(n: int, m: int, half_width: int) -> bool:
    """Whether a band leaves out enough cells to be worth its bookkeeping."""
    return 2 * half_width + abs(n - m) + 1 < (1 - LEAST_SAVING) * (m + 1)


def certified_half_width(score: float, most_a: F64, most_b: F64, extend: float) -> int:
    """Return a half width whose band holds every alignment that scores `score` or more.

    An alignment that leaves a band of half width w puts at least ``w + 1`` columns of
    either profile opposite gaps, so that it pairs at most ``min(n, m) - w - 1``; no
    column of a pair earns more than the most it can earn with any.

    Parameters
    ----------
    score : float
        Of an alignment that is known.
    most_a, most_b : float64 [n], [m]
        The most that each column can earn in a pair, not negative.
    extend : float
        What each column opposite a gap costs (not positive).

    Returns
    -------
    int
        ``min(n, m)`` at most: then the band leaves nothing out.
    """
    n, m = len(most_a), len(most_b)
    least = min(n, m)
    pairs = np.arange(least + 1)
    best = np.minimum(
        np.concatenate(([0.0], np.cumsum(np.sort(most_a)[::-1])))[: least + 1],
        np.concatenate(([0.0], np.cumsum(np.sort(most_b)[::-1])))[: least + 1],
    )
    bound = best + extend * (n + m - 2 * pairs)
    # Rising with the number of pairs; a hair above the sums' rounding counts as reached.
    reached = int(np.searchsorted(bound, score - 1e-6 * max(1.0, abs(score)), side="left"))
    return min(least - reached, least) if reached <= least else 0
