"""The dynamic programme of a pairwise alignment, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from critpath.align import _dp
from critpath.errors import UsageError
from critpath.model import F64, I32, I64, U8
from critpath.schema.parameters.align import PROFILES

F32 = npt.NDArray[np.float32]
Scores = I32 | F32 | F64

GRID = 2.0**12  # technical: whole-number scores count multiples of its reciprocal
MAX_CELLS = 3_000_000_000  # technical: 54,000 x 54,000 segments: half a minute
TRACE_CELLS = 64_000_000  # technical: above: keep check-points, compute blocks of the trace twice
BLOCK_CELLS = 131_072  # technical: scores computed at a time: they stay in the cache


class GapCosts(Struct, frozen=True, eq=False):
    """What gaps cost (all figures are added to the score, so negative).

    Attributes
    ----------
    open_a, close_a : float64 [n]
        Paid by a gap that starts (ends) opposite this column of A.
    open_b, close_b : float64 [m]
        The same for B.
    extend : float
        Paid for every column opposite a gap.
    """

    open_a: F64
    close_a: F64
    open_b: F64
    close_b: F64
    extend: float

    def of_path(self, path: U8) -> float:
        """Return what the gaps of a path cost (a path as `solve` gives it)."""
        edges = np.flatnonzero(np.diff(path)) + 1
        begins, ends = np.concatenate(([0], edges)), np.concatenate((edges, [len(path)]))
        before_a, before_b = np.cumsum(path != 2), np.cumsum(path != 1)
        cost = float(np.count_nonzero(path)) * self.extend
        for kind, before, opening, closing in (
            (1, before_a, self.open_a, self.close_a),
            (2, before_b, self.open_b, self.close_b),
        ):
            gaps = path[begins] == kind if len(path) else np.zeros(0, bool)
            cost += float(opening[before[begins[gaps]] - 1].sum())
            cost += float(closing[before[ends[gaps] - 1] - 1].sum())
        return cost


def paired(path: U8) -> tuple[I64, I64]:
    """Return the columns of either side that a path pairs."""
    both = path == 0
    return np.cumsum(path != 2)[both] - 1, np.cumsum(path != 1)[both] - 1


def solve(
    scores: Callable[..., Scores],
    gaps: GapCosts,
    *,
    band: Band | None = None,
    max_cells: int = MAX_CELLS,
    trace_cells: int = TRACE_CELLS,
    block_cells: int = BLOCK_CELLS,
) -> tuple[float, U8]:
    """Find the best global alignment under affine, position-specific gaps.

    Gotoh's recurrences with the gap's opening split into two halves.  A gap in one
    sequence may follow one in the other (B's columns first, then A's).
    """
    n, m = len(gaps.open_a), len(gaps.open_b)
    width = m + 1 if band is None else band.width
    if n * width > max_cells + n:
        raise UsageError(
            f"paths of {n:,} and {m:,} segments are too long to align"
            f" (at most {max_cells:,} pairs of segments)",
            "compare shorter runs (a narrower --execution), or leave the longest out",
        )
    if n == 0:
        score = m * gaps.extend + float(gaps.open_b[0] + gaps.close_b[-1] if m else 0)
        return score, np.full(m, 2, np.uint8)
    keep = n * width <= trace_cells
    block = max(1, block_cells // width)
    stride = block if keep else max(1, int(np.sqrt(n)))
    bounds = [(first, min(first + stride, n)) for first in range(0, n, stride)]
    programme = _Programme(scores, gaps, band, block)
    kept: list[U8] = []
    checkpoints: list[npt.NDArray[Any]] = []
    for first, last in bounds:
        if not keep:
            checkpoints.append(programme.state(first))
        trace = programme.advance(first, last)
        if keep:
            kept.append(trace)
    score, state = programme.end()
    path = np.empty(n + m, np.uint8)
    j, place = m, n + m
    for number in reversed(range(len(bounds))):
        first, last = bounds[number]
        if not keep:
            programme.restore(first, checkpoints[number])
        trace = kept[number] if keep else programme.advance(first, last)
        j, state, place = _dp.backtrack(trace, first, last, j, state, programme.low, path, place)
    return score, path[place:]


class _Programme:
    """The rows of one programme: whole numbers if the scores are, else doubles."""

    def __init__(
        self, scores: Callable[..., Scores], gaps: GapCosts, band: Band | None, block: int
    ) -> None:
        n, m = len(gaps.open_a), len(gaps.open_b)
        self.scores, self.gaps, self.banded = scores, gaps, band is not None
        self.block = block  # rows of scores asked for at a time
        self.low = np.zeros(n + 1, np.int64) if band is None else band.low
        self.high = np.full(n + 1, m, np.int64) if band is None else band.high
        self.width = m + 1 if band is None else band.width
        self.base = np.maximum(self.low, 1)
        kind = self._scores(0, 0).dtype
        whole = kind == np.int32
        self.unit = GRID if whole else 1.0
        self.none = _dp.NO_INT if whole else -np.inf
        self.columns = [
            (np.concatenate(([0.0], c)) * self.unit).astype(np.int32 if whole else np.float64)
            for c in (gaps.open_a, gaps.close_a, gaps.open_b, gaps.close_b)
        ]
        self.extend = int(gaps.extend * self.unit) if whole else gaps.extend
        self.row: npt.NDArray[Any] = np.empty((3, m + 1), self.columns[0].dtype)
        _dp.start(self.columns[2][1:], self.extend, self.none, self.row)
        self.spare = np.empty_like(self.row)

    def _scores(self, first: int, last: int) -> Scores:
        if not self.banded:
            return self.scores(first, last)
        rows = slice(first + 1, last + 1)
        return self.scores(first, last, self.base[rows], self.high[rows])

    def _live(self, first: int) -> slice:
        """Return the columns that row ``first + 1`` reads of row ``first``."""
        following = min(first + 1, len(self.high) - 1)
        return slice(max(int(self.low[first]) - 1, 0), int(self.high[following]) + 1)

    def state(self, first: int) -> npt.NDArray[Any]:
        """Return a copy of what row ``first`` holds for the next one."""
        return self.row[:, self._live(first)].copy()

    def restore(self, first: int, state: npt.NDArray[Any]) -> None:
        """Go back to row ``first``."""
        self.row[:, self._live(first)] = state

    def advance(self, first: int, last: int) -> U8:
        """Go on over columns ``first:last`` of A; return their trace."""
        trace = np.empty((last - first, self.width), np.uint8)
        open_a, close_a, open_b, close_b = self.columns
        for begin in range(first, last, self.block):
            end = min(begin + self.block, last)
            scores = self._scores(begin, end)
            if scores.dtype == np.float32:
                scores = scores.astype(np.float64)
            _dp.forward(
                scores,
                open_a[1:],
                close_a[1:],
                open_b[1:],
                close_b,
                self.extend,
                self.none,
                begin,
                self.low,
                self.high,
                self.row,
                self.spare,
                trace[begin - first : end - first],
            )
        return trace

    def end(self) -> tuple[float, int]:
        """Return the score of the last cell and the state it is reached in."""
        _, close_a, _, close_b = self.columns
        match, delete, insert = (self.row[state, -1] for state in range(3))
        ends = [float(match), float(delete + close_a[-1]), float(insert + close_b[-1])]
        score = max(ends)
        return score / self.unit, ends.index(score)


# The band of cells that an alignment has to fill.


HALF_WIDTH = 64  # technical


class Band(Struct, frozen=True, eq=False):
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
    return 2 * half_width + abs(n - m) + 1 < (1 - PROFILES.least_saving) * (m + 1)


def certified_half_width(score: float, most_a: F64, most_b: F64, extend: float) -> int:
    """Return a half width whose band holds every alignment that scores `score` or more.

    An alignment that leaves a band of half width w puts at least ``w + 1`` columns of
    either profile opposite gaps, so that it pairs at most ``min(n, m) - w - 1``; no
    column of a pair earns more than the most it can earn with any.
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
