"""How likely two letters belong together: pair-HMM posteriors, made consistent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from critpath.align import _consistency, _posteriors
from critpath.align.profiles import I8, Model, drop_gap_columns, merge_rows
from critpath.align.progressive import Tree, upgmb
from critpath.model import F64, I32, I64, U8
from critpath.records import dataclass
from critpath.schema import notes
from critpath.schema.notes import Note
from critpath.schema.parameters.align import POSTERIORS

F32 = npt.NDArray[np.float32]

MOST_ENTRIES = 12_000_000  # technical: 100 MB, and three times that on the way
CELLS = 2_600_000_000  # technical: some 20 s
WIDE_CELLS = 150_000_000  # technical: some 6 s
GRID = 4096.0  # technical: expected accuracies are multiples of its reciprocal


class TooMuchError(Exception):
    """There is too much for posteriors; says why."""

    def __init__(self, note: Note) -> None:
        super().__init__(note)
        self.note = note


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

    open: float = field(default_factory=lambda: POSTERIORS.open)
    extend: float = field(default_factory=lambda: POSTERIORS.extend)
    edge: float = field(default_factory=lambda: POSTERIORS.edge)
    long_open: float = field(default_factory=lambda: POSTERIORS.long_open)
    long_extend: float = field(default_factory=lambda: POSTERIORS.long_extend)
    long_edge: float = field(default_factory=lambda: POSTERIORS.long_edge)

    def array(self) -> F64:
        """Return the six as the native code takes them."""
        short = [self.open, self.extend, self.edge]
        return np.array([*short, self.long_open, self.long_extend, self.long_edge])


class Posteriors(Struct, frozen=True, eq=False):
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
    threshold: float | None = None,
    margin: int | None = None,
    star: bool = False,
    most: int = MOST_ENTRIES,
    wide_cells: int = WIDE_CELLS,
) -> Posteriors:
    """Find, for every pair of sequences, which letters belong together.

    Durbin et al. 1998: forward and backward sums over all alignments of two sequences
    under a pair-HMM with two kinds of gaps; a gap in one sequence is not followed at
    once by one in the other.
    """
    threshold = POSTERIORS.least if threshold is None else threshold
    margin = POSTERIORS.margin if margin is None else margin
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
        CELLS,
        wide_cells,
    )
    if found is None:
        raise TooMuchError(notes.TooUnlike(len(sequences), max(map(len, sequences))))
    return Posteriors(offset, *found)


def make_consistent(posteriors: Posteriors, *, most: int | None = None) -> Posteriors:
    """Weigh every pair of letters by how well other sequences support it.

    Do et al. 2005: the mean over sequences z of the chance that both letters are aligned
    with the same letter of z.  What was below the threshold stays out.
    """
    most = POSTERIORS.between if most is None else most
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


# Multiple alignment by consistent posteriors (ProbCons, MUSCLE 5).


UNIT = 8192.0  # technical: posteriors are summed as whole multiples of its reciprocal: exactly

# What is above these is not tried; below, `find_posteriors` may still give up.  Time
# and memory at the corners: docs/decisions/8-aligner.md.
MOST = 1_000  # technical: sums of posteriors stay below 2**31
LONGEST = 100_000  # technical
PAIR_CELLS = 1_300_000_000  # technical
TRIPLES = 70_000_000  # technical: fewer go-betweens make paths consistent where that is too many
MATRIX = 16_000_000  # technical: pairs of columns of two blocks that are all looked at


def reason_against(sequences: Sequence[U8]) -> Note | None:
    """Return why these sequences are too much for `align_consistent`, None if they are not."""
    lengths = np.array([len(s) for s in sequences], np.int64)
    total, count = int(lengths.sum()), len(lengths)
    if count <= MOST and lengths.max() <= LONGEST and total * count <= MOST_ENTRIES:
        # In the band that is tried first; each pair is in the sum twice.
        band = np.abs(lengths[:, None] - lengths) + 2 * POSTERIORS.margin + 2
        cells = lengths[:, None] * np.minimum(band, lengths)
        if (int(cells.sum()) - int(np.diag(cells).sum())) // 2 <= PAIR_CELLS:
            return None
    return notes.AlignedByProfiles(count, int(lengths.max()))


def align_consistent(
    sequences: list[U8],
    model: Model,
    *,
    gaps: GapChances | None = None,
    rounds: int | None = None,
    passes: int | None = None,
) -> tuple[I8, Tree, tuple[Note, ...]]:
    """Align sequences so that as many pairs of letters as possible are expected to be right.

    Posteriors of all pairs, made consistent; a tree of expected accuracies (UPGMB); along
    it, at every node, the alignment of the two blocks with the largest sum of posteriors
    over all pairs of letters in a column, gaps being free; then the same again for every
    row and the rest.  Pairs of rows count by how near they are, ``NEAR / (NEAR + 1 -
    expected accuracy)``: what near rows share, many distant ones do not overrule.
    """
    rounds = POSTERIORS.rounds if rounds is None else rounds
    passes = POSTERIORS.passes if passes is None else passes
    if len(sequences) == 1:
        return sequences[0].astype(np.int8)[None, :], upgmb(np.zeros((1, 1))), ()
    posteriors = find_posteriors(sequences, model.ratio, gaps or GapChances())
    doubt = 1 - expected_accuracy(posteriors)
    tree = upgmb(doubt)
    asked = min(POSTERIORS.between, TRIPLES // (int(posteriors.offset[-1]) * posteriors.count))
    for _ in range(rounds if len(sequences) > 2 and asked else 0):
        posteriors = make_consistent(posteriors, most=asked)
    columns = _Columns(posteriors, POSTERIORS.near / (POSTERIORS.near + doubt))
    codes = _progressive(sequences, tree, columns)
    if len(sequences) > 2:
        codes = _refine(codes, columns, passes)
    return codes, tree, ()


def add_row(codes: I8, sequence: U8, model: Model) -> I8 | None:
    """Align one more sequence with rows that keep their place relative to each other.

    As `align_consistent` aligns a row anew, save that no other row is asked about a pair.
    """
    rows = [row[row >= 0].astype(np.uint8) for row in codes]
    if reason_against([sequence, *rows]):
        return None
    try:
        posteriors = find_posteriors([sequence, *rows], model.ratio, GapChances(), star=True)
    except TooMuchError:
        return None
    doubt = 1 - expected_accuracy(posteriors)
    columns = _Columns(posteriors, POSTERIORS.near / (POSTERIORS.near + doubt))
    added = sequence.astype(np.int8)[None, :]
    group = np.arange(1, len(rows) + 1)
    _, path = columns.best_path(codes, group, added, np.zeros(1, np.int64))
    return merge_rows(codes, added, path)


class _Columns:
    """Finds which columns of two blocks of rows belong together."""

    def __init__(self, posteriors: Posteriors, weights: F64) -> None:
        self._of = posteriors
        weighted = posteriors.value * posteriors.by_entry(weights * UNIT)
        self._value: I32 = np.rint(weighted).astype(np.int32)
        self._at = np.empty(int(posteriors.offset[-1]), np.int32)

    def best_path(self, a: I8, members_a: I64, b: I8, members_b: I64) -> tuple[int, U8]:
        """Return the largest sum of posteriors of two blocks of rows, and its path."""
        of = self._of
        _consistency.place_letters(b, members_b, of.offset, self._at)
        n, m = a.shape[1], b.shape[1]
        path = np.empty(n + m, np.uint8)
        entries = (of.offset, of.begin, of.column, self._value)
        if n * m > MATRIX:
            score, first = _consistency.best_chain(
                *entries, np.ascontiguousarray(a), members_a, members_b, self._at, m, path
            )
        else:
            _consistency.place_letters(a, members_a, of.offset, self._at)
            scores = np.zeros((n, m), np.int32)
            _consistency.column_scores(*entries, members_a, members_b, self._at, scores)
            score, first = _consistency.best_path(scores, path)
        return score, path[first:]

    def sum_of_row(self, codes: I8, row: int) -> int:
        """Return the sum of posteriors of a row with the others as the columns are."""
        of = self._of
        _consistency.place_letters(codes, np.arange(len(codes)), of.offset, self._at)
        return _consistency.paired_sum(of.offset, of.begin, of.column, self._value, row, self._at)


def _progressive(sequences: list[U8], tree: Tree, columns: _Columns) -> I8:
    """Align along the tree, from the leaves up."""
    blocks = [(np.array([i]), s.astype(np.int8)[None, :]) for i, s in enumerate(sequences)]
    for left, right in zip(tree.left, tree.right, strict=True):
        (members_a, a), (members_b, b) = blocks[int(left)], blocks[int(right)]
        _, path = columns.best_path(a, members_a, b, members_b)
        blocks.append((np.concatenate([members_a, members_b]), merge_rows(a, b, path)))
    members, top = blocks[-1]
    codes = np.empty_like(top)
    codes[members] = top
    return codes


def _refine(codes: I8, columns: _Columns, passes: int) -> I8:
    """Align every row anew with the rest, while the sum of posteriors grows."""
    everyone = np.arange(len(codes))
    for _ in range(passes):
        improved = False
        for i in range(len(codes)):
            one, rest = everyone[i : i + 1], np.delete(everyone, i)
            a, b = drop_gap_columns(codes[one]), drop_gap_columns(codes[rest])
            score, path = columns.best_path(a, one, b, rest)
            if score > columns.sum_of_row(codes, i):
                merged = merge_rows(a, b, path)
                codes = np.empty_like(merged)
                codes[np.concatenate([one, rest])] = merged
                improved = True
        if not improved:
            break
    return codes
