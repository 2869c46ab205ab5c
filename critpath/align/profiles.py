"""Profiles of aligned rows, the scoring model, and the alignment of two profiles."""

from __future__ import annotations

from dataclasses import field

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from critpath.align import _dp
from critpath.align.dp import GRID
from critpath.model import F64, I32, I64, U8
from critpath.records import dataclass
from critpath.schema.parameters.align import PROFILES

I8 = npt.NDArray[np.int8]


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
    gap_open: float = field(default_factory=lambda: PROFILES.gap_open)
    gap_extend: float = field(default_factory=lambda: PROFILES.gap_extend)
    centre: float = field(default_factory=lambda: PROFILES.centre)


class Profile(Struct, frozen=True, eq=False):
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
    pi: float | None = None,
    gap_open: float | None = None,
    gap_extend: float | None = None,
    centre: float | None = None,
) -> Model:
    """Return the odds-ratio matrix of Felsenstein's 1981 substitution model.

    A letter is kept with probability `pi`, else drawn anew from the background
    ``q``: ``ratio[a, b] = (1 - pi) + pi * [a = b] / q[a]``, so that agreement on a
    rare letter is worth more.
    """
    pi = PROFILES.pi if pi is None else pi
    gap_open = PROFILES.gap_open if gap_open is None else gap_open
    gap_extend = PROFILES.gap_extend if gap_extend is None else gap_extend
    centre = PROFILES.centre if centre is None else centre
    background = (letters + 1) / (letters.sum() + len(letters))
    background = np.maximum(background, PROFILES.least_background)
    ratio = np.full((len(letters), len(letters)), 1 - pi)
    ratio[np.diag_indices(len(letters))] += pi / background
    return Model(ratio, np.log(ratio), gap_open, gap_extend, centre)


def build_profile(rows: I8, weights: F64, model: Model) -> Profile:
    """Summarise aligned rows."""
    columns = rows.shape[1]
    share = np.ascontiguousarray(weights / weights.sum(), np.float64)
    frequency = np.zeros((columns, len(model.ratio)))
    starts, ends = np.zeros(columns), np.zeros(columns)
    _dp.summarise(np.ascontiguousarray(rows), share, frequency, starts, ends)
    occupancy = frequency.sum(axis=1)
    frequency /= occupancy[:, None]
    half = model.gap_open / 2
    opening = (1 - starts) * half
    closing = (1 - ends) * half
    if columns:
        opening[0] = 0
        closing[-1] = 0
    return Profile(
        frequency, np.minimum(occupancy, 1), round_scores(opening), round_scores(closing)
    )


def round_scores(scores: F64) -> F64:
    """Round scores, in place, to a grid on which their sums are exact.

    What ties on paper then ties in the programme, and the rule for ties decides
    rather than the last bit of a logarithm, which differs between processors.
    """
    scores *= GRID
    np.rint(scores, out=scores)
    scores /= GRID
    return scores


class LogExpectation:
    """The log-expectation scores of two profiles, computed where they are asked for.

    Edgar 2004: the log of the expected odds ratio under both columns' letters,
    weighted by how full the columns are.
    """

    def __init__(self, a: Profile, b: Profile, model: Model) -> None:
        self.a, self.b, self.model = a, b, model
        self._frequency = np.ascontiguousarray(b.frequency.T, np.float32)
        self._full = tuple(p.occupancy.astype(np.float32) for p in (a, b))

    def __call__(
        self, first: int, last: int, low: I64 | None = None, high: I64 | None = None
    ) -> I32:
        """Return the scores of columns ``first:last`` of A; see `programme.solve`."""
        rows = last - first
        if low is None or high is None:
            low, high = np.ones(rows, np.int64), np.full(rows, len(self.b), np.int64)
        width = int((high - low).max()) + 1 if rows else 0
        # Single precision: the logarithm is most of the work, and the grid takes the noise.
        scores = np.empty((rows, width), np.float32)
        _dp.expected_ratio(
            self.a.frequency[first:last],
            self.model.ratio,
            self._frequency,
            float(np.exp(PROFILES.log_floor)),
            low,
            high,
            scores,
        )
        np.log(scores, out=scores)
        full_a, full_b = self._full
        _dp.to_grid(scores, full_a[first:last], full_b, self.model.centre, GRID, low, high)
        return scores.view(np.int32)

    def of_pairs(self, a: I64, b: I64) -> float:
        """Return the sum of the scores of some pairs of columns."""
        mix = np.einsum("ij,jk->ik", self.a.frequency[a], self.model.ratio)
        ratio = np.maximum((mix * self.b.frequency[b]).sum(axis=1), np.exp(PROFILES.log_floor))
        full = self.a.occupancy[a] * self.b.occupancy[b]
        return float(((np.log(ratio) + self.model.centre) * full).sum())


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
    """Return the weighted sum of pair scores, as if each pair stood alone."""
    return _dp.sum_of_pairs(
        np.ascontiguousarray(rows),
        np.ascontiguousarray(weights, np.float64),
        np.zeros(len(rows), np.uint8) if side is None else side,
        side is not None,
        model.log_ratio,
        model.gap_open,
        model.gap_extend,
        model.centre,
    )
