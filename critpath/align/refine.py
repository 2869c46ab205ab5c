"""Stage 3: split the alignment at an edge of the tree, align the halves anew, keep the better."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from critpath.align.pairwise import align_profiles
from critpath.align.profiles import I8, Model, build_profile, merge_rows, sum_of_pairs
from critpath.align.tree import Tree
from critpath.model import F64, U8

LEAST_GAIN = 1e-9
WHOLE_COLUMNS = 2000  # wider alignments are refined block by block, ...
BLOCK_COLUMNS = 300  # ... each at least so wide, ...
WINDOW = 7  # ... between columns with at most one of so many around them not alike


def _splits(tree: Tree) -> list[U8]:
    """Return for every edge which leaves are below it, by rising height, right first."""
    members = tree.members()
    top = len(members) - 1
    result = []
    for i in np.argsort(tree.height, kind="stable"):
        for child in (int(tree.right[i]), int(tree.left[i])):
            # Both edges of the root split the leaves alike: one is enough.
            if tree.leaves + i == top and child == int(tree.left[i]):
                continue
            side = np.zeros(tree.leaves, np.uint8)
            side[members[child]] = 1
            result.append(side)
    return result


def work_of_pass(leaves: int, widths: Sequence[int]) -> int:
    """Return about how many cells and pairs of letters one pass looks at.

    Parameters
    ----------
    leaves : int
    widths : sequence of int
        Columns of every block that is refined on its own.
    """
    return sum(
        (2 * leaves - 3) * (width * width + leaves * leaves // 4 * width) for width in widths
    )


def cut_at_good_columns(rows: I8) -> list[tuple[int, int]]:
    """Return blocks of columns that can be refined on their own, half-open.

    Short alignments are one block.  A cut goes through a column in which all rows have
    the same letter, as they nearly do around it; both blocks contain it.
    """
    columns = rows.shape[1]
    if columns <= WHOLE_COLUMNS:
        return [(0, columns)]
    same = (rows == rows[0]).all(axis=0) & (rows[0] >= 0)
    around = np.convolve(same, np.ones(WINDOW), mode="same")
    cuts = [0]
    for column in np.flatnonzero(same & (around >= WINDOW - 1)).tolist():
        if column - cuts[-1] >= BLOCK_COLUMNS:
            cuts.append(column)
    return [
        (first, min(last + 1, columns))
        for first, last in pairwise([*cuts, columns])
        if first < last
    ]


def realign_split(rows: I8, side: U8, weights: F64, model: Model) -> I8 | None:
    """Align the two sides of a split anew.

    Parameters
    ----------
    rows : int8 [rows, columns]
    side : uint8 [rows]
        0 or 1; both occur.
    weights : float64 [rows]
    model : Model

    Returns
    -------
    int8 [rows, new columns] or None
        None if the objective does not grow.  Only pairs across the split can
        change, so only those are scored.
    """
    one, two = side == 0, side == 1
    present = rows >= 0
    in_one, in_two = present[one].any(axis=0), present[two].any(axis=0)
    halves = [
        np.ascontiguousarray(rows[np.ix_(one, in_one)]),
        np.ascontiguousarray(rows[np.ix_(two, in_two)]),
    ]
    known = np.where(in_one, np.where(in_two, 0, 1), 2).astype(np.uint8)
    profiles = [
        build_profile(half, weights[of], model) for half, of in zip(halves, (one, two), strict=True)
    ]
    _, path = align_profiles(profiles[0], profiles[1], model, known=known)
    if np.array_equal(path, known):
        return None
    merged = merge_rows(halves[0], halves[1], path)
    candidate = np.empty_like(merged)
    candidate[one] = merged[: len(halves[0])]
    candidate[two] = merged[len(halves[0]) :]
    gain = sum_of_pairs(candidate, weights, model, side) - sum_of_pairs(rows, weights, model, side)
    return candidate if gain > LEAST_GAIN else None


def refine(rows: I8, tree: Tree, weights: F64, model: Model, passes: int) -> I8:
    """Improve an alignment by tree-dependent restricted partitioning (Hirosawa et al. 1995).

    Parameters
    ----------
    rows : int8 [leaves, columns]
        In the order of the tree's leaves.
    tree : Tree
    weights : float64 [leaves]
    model : Model
    passes : int
        At most so many visits of every edge; odd ones in the opposite order.

    Returns
    -------
    int8 [leaves, columns]
        Its weighted sum of pairs is never below that of `rows`.
    """
    splits = _splits(tree)
    blocks = cut_at_good_columns(rows)
    parts = []
    for first, last in blocks:
        block = np.ascontiguousarray(rows[:, first:last])
        if not (block == block[0]).all():
            better = _refine_block(block, splits, weights, model, passes)
            # The columns of the cuts are shared with the neighbours: they have to stay.
            keeps_begin = first == 0 or np.array_equal(better[:, 0], block[:, 0])
            keeps_end = last == rows.shape[1] or np.array_equal(better[:, -1], block[:, -1])
            block = better if keeps_begin and keeps_end else block
        parts.append(block if last == rows.shape[1] else block[:, :-1])
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


def _refine_block(rows: I8, splits: list[U8], weights: F64, model: Model, passes: int) -> I8:
    seen = {rows.tobytes()}
    for number in range(passes):
        improved = False
        for side in splits if number % 2 == 0 else splits[::-1]:
            candidate = realign_split(rows, side, weights, model)
            if candidate is not None:
                rows = candidate
                improved = True
        state = rows.tobytes()
        if not improved or state in seen:
            break
        seen.add(state)
    return rows
