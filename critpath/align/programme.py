"""The dynamic programme of a pairwise alignment, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from critpath.align import _profile
from critpath.errors import UsageError
from critpath.model import F64, U8

F32 = npt.NDArray[np.float32]

MAX_CELLS = 400_000_000  # 20,000 x 20,000 segments
TRACE_CELLS = 64_000_000  # above: keep check-points, compute blocks of the trace twice
BLOCK_CELLS = 1_000_000  # scores computed at a time


@dataclass(frozen=True, eq=False)
class Gaps:
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


def solve(
    scores: Callable[[int, int], F32 | F64],
    gaps: Gaps,
    *,
    max_cells: int = MAX_CELLS,
    trace_cells: int = TRACE_CELLS,
    block_cells: int = BLOCK_CELLS,
) -> tuple[float, U8]:
    """Find the best global alignment under affine, position-specific gaps.

    Gotoh's recurrences with the gap's opening split into two halves.  A gap in one
    sequence may follow one in the other (B's columns first, then A's).

    Parameters
    ----------
    scores : callable
        ``scores(first, last)`` gives the scores of columns ``first:last`` of A with
        all of B, float32 or float64
        [last - first, m], C-contiguous; may be asked twice for the same ones.
    gaps : Gaps
    max_cells : int
        Refuse a programme with more cells.
    trace_cells : int
        Above this, rows of the programme are kept as check-points and the trace is
        computed again one block at a time: the same path in twice the time, with
        memory of the order of ``m * sqrt(n)``.
    block_cells : int
        Scores asked for at a time.

    Returns
    -------
    tuple of (score, path)
        ``path`` is uint8: 0 pairs two columns, 1 puts one of A opposite a gap, 2
        one of B.  Among equal scores 0 is preferred to 1 to 2.

    Raises
    ------
    UsageError
        If the programme would have more than `max_cells` cells.
    """
    n, m = len(gaps.open_a), len(gaps.open_b)
    if n * m > max_cells:
        raise UsageError(
            f"paths of {n:,} and {m:,} segments are too long to align"
            f" (at most {max_cells:,} pairs of segments)",
            "compare shorter executions (a narrower --execution), or leave the longest out",
        )
    if n == 0:
        score = m * gaps.extend + float(gaps.open_b[0] + gaps.close_b[-1] if m else 0)
        return score, np.full(m, 2, np.uint8)
    keep = n * m <= trace_cells
    block = max(1, block_cells // (m + 1))
    if not keep:
        block = min(block, max(1, int(np.sqrt(n))))
    row = np.empty((3, m + 1))
    _profile.start(gaps.open_b, gaps.extend, row)
    kept: list[U8] = []
    checkpoints: list[F64] = []

    def advance(first: int, last: int, row: F64) -> U8:
        trace = np.empty((last - first, m + 1), np.uint8)
        _profile.forward(
            scores(first, last),
            first,
            gaps.open_a,
            gaps.close_a,
            gaps.open_b,
            gaps.close_b,
            gaps.extend,
            row,
            trace,
        )
        return trace

    bounds = [(first, min(first + block, n)) for first in range(0, n, block)]
    for first, last in bounds:
        if not keep:
            checkpoints.append(row.copy())
        trace = advance(first, last, row)
        if keep:
            kept.append(trace)

    closing_b = float(gaps.close_b[-1]) if m else 0.0
    ends = [float(row[0, m]), float(row[1, m] + gaps.close_a[-1]), float(row[2, m]) + closing_b]
    score = max(ends)
    state = ends.index(score)
    path = np.empty(n + m, np.uint8)
    j, place = m, n + m
    for number in reversed(range(len(bounds))):
        first, last = bounds[number]
        trace = kept[number] if keep else advance(first, last, checkpoints[number])
        j, state, place = _profile.backtrack(trace, first, last, j, state, path, place)
    return score, path[place:]
