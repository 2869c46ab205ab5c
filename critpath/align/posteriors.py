"""How likely two letters belong together: pair-HMM posteriors, made consistent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from critpath.align import _consistency, _posteriors
from critpath.model import F64, I32, I64, U8

F32 = npt.NDArray[np.float32]

THRESHOLD = 0.02  # smaller posteriors are left out
# Half the least width of the band; see `find_posteriors`.
MARGIN = 32
MOST_BETWEEN = 12
MOST_ENTRIES = 12_000_000  # 100 MB, and three times that on the way
WIDE_CELLS = 150_000_000  # some 6 s
GRID = 4096.0  # expected accuracies are multiples of its reciprocal


class TooMuchError(Exception):
    """There is too much for posteriors; says why."""


@dataclass(frozen=True)
class GapChances:
    """Chances of gaps: short ones (a few states) and long ones (iterations, phases).

    Attributes
    ----------
    open, extend, edge : float
        Chance that a gap follows a pair, that a gap goes on, and weight of a gap at
        either end, all of short gaps.
    long_open, long_extend, long_edge : float
        The same of long ones.
    """

    open: float = 0.045
    extend: float = 0.5
    edge: float = 0.04
    long_open: float = 0.015
    long_extend: float = 0.85
    long_edge: float = 0.005

    def array(self) -> F64:
        """Return the six as the native code takes them."""
        short = [self.open, self.extend, self.edge]
        return np.array([*short, self.long_open, self.long_extend, self.long_edge])


@dataclass(frozen=True, eq=False)
class Posteriors:
    """Sparse matrices of all ordered pairs of sequences, one row for every letter.

    Letter i of sequence x has, towards sequence y, row ``r = N * offset[x] + y *
    length(x) + i``; its entries are ``begin[r]:begin[r + 1]``.

    Attributes
    ----------
    offset : int64 [sequences + 1]
        Where every sequence begins when all are written one after the other.
    begin : int64 [rows + 1]
    column : int32 [entries]
        Letter of y, rising within a row.
    value : float32 [entries]
        Posterior probability that the two letters are aligned.
    """

    offset: I64
    begin: I64
    column: I32
    value: F32

    @property
    def count(self) -> int:
        """Number of sequences."""
        return len(self.offset) - 1

    def pair_of_rows(self) -> I32:
        """Return ``x * N + y`` for every row."""
        length = np.diff(self.offset)
        pairs = np.arange(self.count * self.count, dtype=np.int32)
        return np.repeat(pairs, np.repeat(length, self.count))

    def by_entry(self, of_pairs: F64) -> F32:
        """Return a figure of every pair of sequences [N, N] for every entry."""
        of_rows = of_pairs.astype(np.float32).reshape(-1)[self.pair_of_rows()]
        return np.asarray(np.repeat(of_rows, np.diff(self.begin)))


def find_posteriors(
    sequences: Sequence[U8],
    ratio: F64,
    gaps: GapChances,
    *,
    threshold: float = THRESHOLD,
    margin: int = MARGIN,
    star: bool = False,
    most: int = MOST_ENTRIES,
    wide_cells: int = WIDE_CELLS,
) -> Posteriors:
    """Find, for every pair of sequences, which letters belong together.

    Durbin et al. 1998: forward and backward sums over all alignments of two sequences
    under a pair-HMM with two kinds of gaps; a gap in one sequence is not followed at
    once by one in the other.

    Parameters
    ----------
    sequences : sequence of uint8 arrays
        At least one, none empty.
    ratio : float64 [letters, letters]
        Odds of a pair of letters against chance, see `profiles.Model`.
    gaps : GapChances
    threshold : float
        Smaller posteriors are left out.
    margin : int
        Only alignments are summed whose offset of the two sequences stays within
        `margin` of what their lengths demand.  A path outside leaves as many letters of
        both without a partner; so where `margin` letters or more of the shorter one have
        no partner of posterior above 0.5, the pair is done again with four times the margin.
        Four pairs with one sequence in common share a margin.
    star : bool
        Only pairs of the first sequence with each of the others.
    most : int
        Posteriors above the threshold at most; every pair of letters has two.
    wide_cells : int
        Cells at most of pairs that are done again in numbers of a wider range (long
        double): those in which both sequences have a stretch of some 24 letters
        with hardly a partner and such letters have a good local alignment, or a sum that
        cannot be right.  Single precision
        loses what falls 1e38 below the best path of a row, even if it wins in the end.

    Raises
    ------
    TooMuchError
        Beyond `most` or `wide_cells`, or where even the wider range is too small.
    ValueError
        If `ratio` lacks a letter.

    Notes
    -----
    Memory: for each pair done 16 bytes a cell of the band (four pairs at a time); for
    the result 8 bytes a row and 8 an entry, of which there are about one or two a row.
    """
    if max(int(s.max()) for s in sequences) >= len(ratio):
        raise ValueError(f"a letter is not below {len(ratio)}")
    offset = np.cumsum([0, *(len(s) for s in sequences)]).astype(np.int64)
    found = _posteriors.pair_posteriors(
        np.concatenate(sequences).astype(np.uint8),
        offset,
        np.ascontiguousarray(ratio, np.float32),
        gaps.array(),
        threshold,
        max(margin, 1),
        star,
        most,
        wide_cells,
    )
    if found is None:
        raise TooMuchError(
            f"{len(sequences)} distinct paths of up to {max(len(s) for s in sequences):,} segments"
            " have too little in common, or too few states, for an alignment by posteriors:"
            " aligned by profiles"
        )
    return Posteriors(offset, *found)


def make_consistent(posteriors: Posteriors, *, most: int = MOST_BETWEEN) -> Posteriors:
    """Weigh every pair of letters by how well other sequences support it.

    Do et al. 2005: the mean over sequences z of the chance that both letters are aligned
    with the same letter of z.  What was below the threshold stays out.

    Parameters
    ----------
    posteriors : Posteriors
    most : int
        At most so many sequences are asked, evenly spread over those there are.
    """
    p = posteriors
    asked = min(p.count, max(most, 1))
    between = np.arange(asked, dtype=np.int64) * p.count // asked
    value = np.empty_like(p.value)
    _consistency.consistency(p.offset, p.begin, p.column, p.value, between, value)
    return Posteriors(p.offset, p.begin, p.column, value)


def expected_accuracy(posteriors: Posteriors) -> F64:
    """Return about which share of the shorter sequence can be aligned rightly [n, n].

    The sum over its letters of their largest posterior, from both sides, halved.
    """
    p, n = posteriors, posteriors.count
    length = np.diff(p.offset)
    best = np.zeros(len(p.begin) - 1)
    full = np.flatnonzero(np.diff(p.begin))
    if len(full):
        best[full] = np.maximum.reduceat(p.value, p.begin[full])
    total = np.bincount(p.pair_of_rows(), best, n * n).reshape(n, n)
    share = (total + total.T) / 2 / np.minimum.outer(length, length)
    np.fill_diagonal(share, 1)
    return np.asarray(np.rint(np.minimum(share, 1) * GRID) / GRID)
