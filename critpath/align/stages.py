"""The three stages of MUSCLE (Edgar 2004), on distinct sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from critpath.align.kmers import choose_k, kmer_distances
from critpath.align.pairwise import align_profiles
from critpath.align.profiles import I8, Model, build_profile, merge_rows
from critpath.align.refine import cut_at_good_columns, work_of_pass
from critpath.align.refine import refine as refine_rows
from critpath.align.tree import Tree, kimura_distances, upgmb
from critpath.align.weights import clustalw_weights
from critpath.model import F64, U8


@dataclass(frozen=True, eq=False)
class _Block:
    """Aligned rows of the leaves `order`."""

    order: list[int]
    rows: I8


def align_distinct(
    sequences: Sequence[U8],
    alphabet: int,
    model: Model,
    *,
    refine: int,
    max_cells: int,
    refine_work: int,
) -> tuple[I8, Tree, tuple[str, ...]]:
    """Run the stages on distinct, non-empty sequences in canonical order.

    Parameters
    ----------
    sequences : sequence of uint8 arrays
    alphabet : int
    model : Model
    refine, max_cells, refine_work : int
        See `multiple.align`.

    Returns
    -------
    codes : int8 [sequences, columns]
        Letters, -1 for a gap.
    tree : Tree
    notes : tuple of str
    """
    lengths = [len(s) for s in sequences]
    letters = np.bincount(np.concatenate(sequences), minlength=alphabet).astype(np.int64)
    k = choose_k(letters, float(np.mean(lengths)))
    tree = upgmb(kmer_distances(sequences, alphabet, k))
    weights = clustalw_weights(tree)
    stored: dict[object, _Block] = {}
    codes = _progressive(sequences, tree, weights, model, stored, max_cells)
    if len(sequences) < 3:
        return codes, tree, ()
    better = upgmb(kimura_distances(_identity(codes)))
    if better.shapes()[-1] != tree.shapes()[-1]:
        weights = clustalw_weights(better)
        codes = _progressive(sequences, better, weights, model, stored, max_cells)
    # The same shape may still have other heights, and so other weights.
    tree, weights = better, clustalw_weights(better)
    if refine <= 0:
        return codes, tree, ()
    widths = [last - first for first, last in cut_at_good_columns(codes)]
    if work_of_pass(len(codes), widths) > refine_work:
        note = (
            f"refinement of the alignment left out: {codes.shape[0]} distinct paths in"
            f" {codes.shape[1]:,} columns would take too long"
        )
        return codes, tree, (note,)
    return refine_rows(codes, tree, weights, model, refine), tree, ()


def _progressive(
    sequences: Sequence[U8],
    tree: Tree,
    weights: F64,
    model: Model,
    stored: dict[object, _Block],
    max_cells: int,
) -> I8:
    """Align along a tree, from the leaves up; reuse and store what each node gave."""
    shapes = tree.shapes()
    blocks = [_Block([i], s.astype(np.int8)[None, :]) for i, s in enumerate(sequences)]
    for i, (left, right) in enumerate(zip(tree.left, tree.right, strict=True)):
        shape = shapes[tree.leaves + i]
        if shape not in stored:
            a, b = blocks[int(left)], blocks[int(right)]
            _, path = align_profiles(
                build_profile(a.rows, weights[a.order], model),
                build_profile(b.rows, weights[b.order], model),
                model,
                max_cells=max_cells,
            )
            stored[shape] = _Block(a.order + b.order, merge_rows(a.rows, b.rows, path))
        blocks.append(stored[shape])
    top = blocks[-1]
    result = np.empty_like(top.rows)
    result[top.order] = top.rows
    return result


def _identity(codes: I8) -> F64:
    """Return the share of equal letters over the columns where both rows have one."""
    n = len(codes)
    result = np.ones((n, n))
    present = codes >= 0
    for i in range(n - 1):
        both = present[i] & present[i + 1 :]
        equal = (both & (codes[i] == codes[i + 1 :])).sum(axis=1)
        count = both.sum(axis=1)
        share = np.where(count > 0, equal / np.maximum(count, 1), 0.0)
        result[i, i + 1 :] = result[i + 1 :, i] = share
    return result
