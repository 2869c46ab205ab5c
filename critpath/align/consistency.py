"""Multiple alignment by consistent posteriors, as in ProbCons and MUSCLE 5."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critpath.align import _consistency
from critpath.align.posteriors import (
    MOST_BETWEEN,
    GapChances,
    Posteriors,
    TooMuchError,
    expected_accuracy,
    find_posteriors,
    make_consistent,
)
from critpath.align.profiles import I8, Model, drop_gap_columns, merge_rows
from critpath.align.tree import Tree, upgmb
from critpath.model import F64, I32, I64, U8

UNIT = 8192.0  # posteriors are summed as whole multiples of its reciprocal: exactly
ROUNDS = 1
PASSES = 1
NEAR = 0.1  # a pair of rows with this share of its letters in doubt counts half

# What is above these is not tried; below, `find_posteriors` may still give up.  Time
# and memory at the corners: docs/decisions/8-aligner.md.
MOST = 1_000  # sums of posteriors stay below 2**31
LONGEST = 3_000  # 16 bytes a cell where a pair has to be done without a band
PAIR_CELLS = 1_300_000_000
TRIPLES = 70_000_000


def reason_against(sequences: Sequence[U8]) -> str | None:
    """Return why these sequences are too much for `align_consistent`, None if they are not."""
    lengths = [len(s) for s in sequences]
    total, count = sum(lengths), len(lengths)
    cells = (total * total - sum(n * n for n in lengths)) // 2
    small = count <= MOST and max(lengths) <= LONGEST
    triples = total * count * min(count, MOST_BETWEEN)
    if small and cells <= PAIR_CELLS and triples <= TRIPLES:
        return None
    return (
        f"{count} distinct paths of up to {max(lengths):,} segments are too many for an"
        " alignment by posteriors: aligned by profiles"
    )


def align_consistent(
    sequences: list[U8],
    model: Model,
    *,
    gaps: GapChances | None = None,
    rounds: int = ROUNDS,
    passes: int = PASSES,
) -> tuple[I8, Tree, tuple[str, ...]]:
    """Align sequences so that as many pairs of letters as possible are expected to be right.

    Posteriors of all pairs, made consistent; a tree of expected accuracies (UPGMB); along
    it, at every node, the alignment of the two blocks with the largest sum of posteriors
    over all pairs of letters in a column, gaps being free; then the same again for every
    row and the rest.  Pairs of rows count by how near they are, ``NEAR / (NEAR + 1 -
    expected accuracy)``: what near rows share, many distant ones do not overrule.

    Parameters
    ----------
    sequences : list of uint8 arrays
        Distinct, not empty, in canonical order (by length, then content).
    model : Model
        Its odds ratios count only; letters are below their number.
    gaps : GapChances, optional
    rounds : int
        How often the posteriors are made consistent.
    passes : int
        How often every row is aligned anew at most.

    Returns
    -------
    tuple of (codes, tree, notes)
        int8 [sequences, columns], -1 for a gap; the guide tree; nothing to note.

    Raises
    ------
    TooMuchError
        See `find_posteriors`; says what to note.

    Notes
    -----
    C. B. Do, M. S. P. Mahabhashyam, M. Brudno, S. Batzoglou, ProbCons: probabilistic
    consistency-based multiple sequence alignment, Genome Research 15, 2005.
    R. C. Edgar, MUSCLE5, Nature Communications 13, 2022.
    """
    if len(sequences) == 1:
        return sequences[0].astype(np.int8)[None, :], upgmb(np.zeros((1, 1))), ()
    posteriors = find_posteriors(sequences, model.ratio, gaps or GapChances())
    doubt = 1 - expected_accuracy(posteriors)
    tree = upgmb(doubt)
    for _ in range(rounds if len(sequences) > 2 else 0):
        posteriors = make_consistent(posteriors)
    columns = _Columns(posteriors, NEAR / (NEAR + doubt))
    codes = _progressive(sequences, tree, columns)
    if len(sequences) > 2:
        codes = _refine(codes, columns, passes)
    return codes, tree, ()


def add_row(codes: I8, sequence: U8, model: Model) -> I8 | None:
    """Align one more sequence with rows that keep their place relative to each other.

    As `align_consistent` aligns a row anew, save that no other row is asked about a pair.

    Parameters
    ----------
    codes : int8 [sequences, columns]
        Letters, -1 for a gap; no row empty.
    sequence : uint8 array
        Not empty.
    model : Model

    Returns
    -------
    int8 [sequences + 1, columns] or None
        The added row last; None where that would take too long (see `reason_against` and
        `find_posteriors`).
    """
    rows = [row[row >= 0].astype(np.uint8) for row in codes]
    if len(sequence) > LONGEST or max(len(row) for row in rows) > LONGEST:
        return None
    try:
        posteriors = find_posteriors([sequence, *rows], model.ratio, GapChances(), star=True)
    except TooMuchError:
        return None
    doubt = 1 - expected_accuracy(posteriors)
    columns = _Columns(posteriors, NEAR / (NEAR + doubt))
    added = sequence.astype(np.int8)[None, :]
    group = np.arange(1, len(rows) + 1)
    _, path = _best_path(columns.scores(codes, group, added, np.zeros(1, np.int64)))
    return merge_rows(codes, added, path)


class _Columns:
    """Finds which columns of two blocks of rows belong together."""

    def __init__(self, posteriors: Posteriors, weights: F64) -> None:
        self._of = posteriors
        weighted = posteriors.value * posteriors.by_entry(weights * UNIT)
        self._value: I32 = np.rint(weighted).astype(np.int32)
        self._at = np.empty(int(posteriors.offset[-1]), np.int32)

    def scores(self, a: I8, members_a: I64, b: I8, members_b: I64) -> I32:
        """Return the sum of posteriors of every column of `a` with every one of `b`."""
        of = self._of
        _consistency.place_letters(a, members_a, of.offset, self._at)
        _consistency.place_letters(b, members_b, of.offset, self._at)
        scores = np.zeros((a.shape[1], b.shape[1]), np.int32)
        _consistency.column_scores(
            of.offset, of.begin, of.column, self._value, members_a, members_b, self._at, scores
        )
        return scores


def _best_path(scores: I32) -> tuple[int, U8]:
    path = np.empty(sum(scores.shape), np.uint8)
    score, first = _consistency.best_path(scores, path)
    return score, path[first:]


def _progressive(sequences: list[U8], tree: Tree, columns: _Columns) -> I8:
    """Align along the tree, from the leaves up."""
    blocks = [(np.array([i]), s.astype(np.int8)[None, :]) for i, s in enumerate(sequences)]
    for left, right in zip(tree.left, tree.right, strict=True):
        (members_a, a), (members_b, b) = blocks[int(left)], blocks[int(right)]
        _, path = _best_path(columns.scores(a, members_a, b, members_b))
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
            scores = columns.scores(a, one, b, rest)
            score, path = _best_path(scores)
            if score > _present_score(codes, i, rest, scores):
                merged = merge_rows(a, b, path)
                codes = np.empty_like(merged)
                codes[np.concatenate([one, rest])] = merged
                improved = True
        if not improved:
            break
    return codes


def _present_score(codes: I8, i: int, rest: I64, scores: I32) -> int:
    """Return the sum of posteriors of a row with the rest as the columns are now."""
    in_row, in_rest = codes[i] >= 0, (codes[rest] >= 0).any(axis=0)
    both = in_row & in_rest
    place, column = np.cumsum(in_row)[both] - 1, np.cumsum(in_rest)[both] - 1
    return int(scores[place, column].sum(dtype=np.int64))
