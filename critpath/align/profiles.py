"""Profiles of aligned rows, the scoring model, and the alignment of two profiles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from critpath.align import _profile
from critpath.errors import UsageError
from critpath.model import F64, I64, U8

I8 = npt.NDArray[np.int8]

PI = 0.6  # expected share of letters that were not redrawn
GAP_OPEN = -3.5
GAP_EXTEND = -0.25
CENTRE = 0.3
LOG_FLOOR = -2.5  # least logarithm in a profile score, as in MUSCLE 3

MAX_CELLS = 400_000_000  # 20,000 x 20,000 segments
TRACE_CELLS = 64_000_000  # above: keep check-points, compute blocks of the trace twice
BLOCK_CELLS = 1_000_000  # scores computed at a time


@dataclass(frozen=True, eq=False)
class Model:
    """How letters and gaps are scored, in natural-log units.

    Attributes
    ----------
    ratio, log_ratio : float64 [letters, letters]
        Odds that two letters are the same thing rather than chance, and its log.
    gap_open, gap_extend, centre : float
        Cost of a gap, of each letter in it, and what each pair of letters earns.
    """

    ratio: F64
    log_ratio: F64
    gap_open: float = GAP_OPEN
    gap_extend: float = GAP_EXTEND
    centre: float = CENTRE


@dataclass(frozen=True, eq=False)
class Profile:
    """Columns of aligned rows, summarised.

    Attributes
    ----------
    frequency : float64 [columns, letters]
        Weighted share of each letter among the letters of a column.
    occupancy : float64 [columns]
        Weighted share of rows with a letter.
    open, close : float64 [columns]
        What a gap pays that starts (ends) opposite the column.
    """

    frequency: F64
    occupancy: F64
    open: F64
    close: F64

    def __len__(self) -> int:
        return len(self.occupancy)


def f81_model(
    letters: I64,
    *,
    pi: float = PI,
    gap_open: float = GAP_OPEN,
    gap_extend: float = GAP_EXTEND,
    centre: float = CENTRE,
) -> Model:
    """Return the odds-ratio matrix of Felsenstein's 1981 substitution model.

    A letter is kept with probability `pi`, else drawn anew from the background
    ``q``: ``ratio[a, b] = (1 - pi) + pi * [a = b] / q[a]``, so that agreement on a
    rare letter is worth more.

    Parameters
    ----------
    letters : int64 [letters]
        How often each letter occurs in all sequences.
    pi, gap_open, gap_extend, centre : float
        See `Model`.
    """
    background = (letters + 1) / (letters.sum() + len(letters))
    background = np.maximum(background, 1e-3)
    ratio = np.full((len(letters), len(letters)), 1 - pi)
    ratio[np.diag_indices(len(letters))] += pi / background
    return Model(ratio, np.log(ratio), gap_open, gap_extend, centre)


def build_profile(rows: I8, weights: F64, model: Model) -> Profile:
    """Summarise aligned rows.

    Parameters
    ----------
    rows : int8 [rows, columns]
        Letters, -1 for a gap; no column of gaps only.
    weights : float64 [rows]
        Positive; only their proportions count.
    model : Model

    Returns
    -------
    Profile
        Gap costs are position specific as in MUSCLE 3: half is paid where a gap
        opens, half where it closes, less the share of rows that have a gap opening
        (closing) there anyway.  Gaps at either end pay half.
    """
    columns = rows.shape[1]
    share = weights / weights.sum()
    letters = len(model.ratio)
    gap = rows < 0
    place = np.arange(columns) * letters + rows
    weight_of = np.broadcast_to(share[:, None], rows.shape)
    frequency = np.bincount(
        place[~gap], weights=weight_of[~gap], minlength=columns * letters
    ).reshape(columns, letters)
    occupancy = frequency.sum(axis=1)
    frequency /= occupancy[:, None]
    edge = np.zeros((len(rows), 1), bool)
    starts = gap & ~np.hstack([edge, gap[:, :-1]])
    ends = gap & ~np.hstack([gap[:, 1:], edge])
    half = model.gap_open / 2
    opening = (1 - share @ starts) * half
    closing = (1 - share @ ends) * half
    if columns:
        opening[0] = 0
        closing[-1] = 0
    return Profile(frequency, np.minimum(occupancy, 1), opening, closing)


def log_expectation(a: Profile, b: Profile, model: Model) -> F64:
    """Return the log-expectation score of every column of `a` with every one of `b`.

    Edgar 2004: the log of the expected odds ratio under both columns' letters,
    weighted by how full the columns are.

    Returns
    -------
    float64 [columns of a, columns of b]
    """
    scores = (a.frequency @ model.ratio) @ b.frequency.T
    np.maximum(scores, np.exp(LOG_FLOOR), out=scores)
    np.log(scores, out=scores)
    scores += model.centre
    scores *= a.occupancy[:, None]
    scores *= b.occupancy
    return scores


def align_profiles(
    a: Profile,
    b: Profile,
    model: Model,
    *,
    max_cells: int = MAX_CELLS,
    trace_cells: int = TRACE_CELLS,
) -> tuple[float, U8]:
    """Align two profiles optimally under affine, position-specific gaps.

    Parameters
    ----------
    a, b : Profile
    model : Model
    max_cells : int
        Refuse a programme with more cells.
    trace_cells : int
        Above this, rows of the programme are kept as check-points and the trace of
        one block at a time is computed again (the same path, twice the time,
        memory of the order of columns * sqrt(columns)).

    Returns
    -------
    tuple of (score, path)
        ``path`` is uint8: 0 pairs two columns, 1 puts one of `a` opposite a gap, 2
        one of `b`.  Among equal scores 0 is preferred to 1 to 2.

    Raises
    ------
    UsageError
        If the programme would have more than `max_cells` cells.
    """
    n, m = len(a), len(b)
    if n * m > max_cells:
        raise UsageError(
            f"paths of {n:,} and {m:,} segments are too long to align"
            f" (at most {max_cells:,} pairs of segments)",
            "compare shorter executions (a narrower --execution), or leave the longest out",
        )
    keep = n * m <= trace_cells
    block = max(1, BLOCK_CELLS // (m + 1))
    if not keep:
        block = min(block, max(1, int(np.sqrt(n))))
    row = np.empty((3, m + 1))
    _profile.start(b.open, model.gap_extend, row)
    firsts = range(0, n, block)
    kept: list[U8] = []
    checkpoints: list[F64] = []
    trace = np.empty((0, m + 1), np.uint8)

    def run(first: int, state: F64, trace: U8) -> None:
        part = Profile(
            a.frequency[first : first + block], a.occupancy[first : first + block], a.open, a.close
        )
        scores = log_expectation(part, b, model)
        _profile.forward(
            scores, first, a.open, a.close, b.open, b.close, model.gap_extend, state, trace
        )

    for first in firsts:
        size = min(block, n - first)
        if keep:
            trace = np.empty((size, m + 1), np.uint8)
            kept.append(trace)
        else:
            checkpoints.append(row.copy())
            trace = trace if len(trace) == size else np.empty((size, m + 1), np.uint8)
        run(first, row, trace)

    ends = [
        float(row[0, m]),
        float(row[1, m]) + (a.close[-1] if n else 0),
        float(row[2, m]) + (b.close[-1] if m else 0),
    ]
    score = max(ends)
    state = ends.index(score)
    path = np.empty(n + m, np.uint8)
    i, j, place = n, m, n + m
    for number in reversed(range(len(firsts))):
        first = firsts[number]
        if keep:
            trace = kept[number]
        else:
            trace = np.empty((i - first, m + 1), np.uint8)
            run(first, checkpoints[number], trace)
        j, state, place = _profile.backtrack(trace, first, i, j, state, path, place)
        i = first
    if n == 0:
        path[:] = 2
        place = 0
    return score, path[place:]


def merge_rows(a: I8, b: I8, path: U8) -> I8:
    """Return the rows of `a` above those of `b`, with gaps where the path says so."""
    result = np.full((len(a) + len(b), len(path)), -1, np.int8)
    result[: len(a), path != 2] = a
    result[len(a) :, path != 1] = b
    return result


def drop_gap_columns(rows: I8) -> I8:
    """Return the rows without the columns that are gaps only."""
    return np.ascontiguousarray(rows[:, (rows >= 0).any(axis=0)])


def sum_of_pairs(rows: I8, weights: F64, model: Model, side: U8 | None = None) -> float:
    """Return the weighted sum of pair scores, as if each pair stood alone.

    Parameters
    ----------
    rows : int8 [rows, columns]
    weights : float64 [rows]
    model : Model
    side : uint8 [rows], optional
        Count only pairs of rows with unlike values.
    """
    return _profile.sum_of_pairs(
        np.ascontiguousarray(rows),
        np.ascontiguousarray(weights, np.float64),
        np.zeros(len(rows), np.uint8) if side is None else side,
        side is not None,
        model.log_ratio,
        model.gap_open,
        model.gap_extend,
        model.centre,
    )
