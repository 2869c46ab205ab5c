"""Multiple alignment of critical paths, in the three stages of MUSCLE (Edgar 2004)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from critpath.align.kmers import choose_k, kmer_distances
from critpath.align.profiles import (
    I8,
    Model,
    align_profiles,
    build_profile,
    f81_model,
    merge_rows,
    sum_of_pairs,
)
from critpath.align.programme import MAX_CELLS
from critpath.align.refine import refine as refine_rows
from critpath.align.refine import work_of_pass
from critpath.align.tree import Tree, kimura_distances, newick, upgmb
from critpath.align.weights import clustalw_weights
from critpath.model import F64, I32, I64, U8, Alignment

MOST_LETTERS = 127
# About 5 s a pass; MUSCLE would go on, critpath says that it did not.
REFINE_WORK = 400_000_000


@dataclass(frozen=True, eq=False)
class _Block:
    """Aligned rows of the leaves `order`."""

    order: list[int]
    rows: I8


def align(
    sequences: Sequence[U8],
    durations: Sequence[I64],
    alphabet: int,
    *,
    refine: int = 4,
    max_cells: int = MAX_CELLS,
    refine_work: int = REFINE_WORK,
) -> Alignment:
    """Align critical paths by their states.

    Stage 1: k-mer distances, UPGMB tree, progressive alignment of log-expectation
    profiles.  Stage 2: the same along the tree of Kimura distances measured in the
    first alignment; parts of the tree that did not change are not aligned again.
    Stage 3: tree-dependent restricted partitioning.

    Deviations from MUSCLE 3: an open alphabet scored by an F81 odds-ratio matrix of
    the sequences' own letter frequencies (pi 0.6, gaps -3.5 and -0.25, centre 0.3);
    one pass of stage 2; 4 of stage 3.  Identical rows are aligned once and count
    once in weights and frequencies, so another copy of a row changes nothing.

    Parameters
    ----------
    sequences : sequence of uint8 arrays
        Letters below `alphabet`; may be empty.
    durations : sequence of int64 arrays
        Nanoseconds of every letter; carried along, never looked at.
    alphabet : int
        At most 127.
    refine : int
        Passes of stage 3 at most; 0 leaves it out.
    max_cells : int
        Refuse to align two profiles with more pairs of columns than this.
    refine_work : int
        Leave stage 3 out, with a note, where a pass costs more cells than this.

    Returns
    -------
    Alignment
        Rows in the order given.  The columns do not depend on that order, nor on
        the numbering of the letters save where two letters occur at exactly the
        same counts and positions.

    Raises
    ------
    ValueError
        If lengths differ or a letter is not below `alphabet`.
    UsageError
        If paths are too long; see `programme.solve`.

    Notes
    -----
    R. C. Edgar, MUSCLE: multiple sequence alignment with high accuracy and high
    throughput, Nucleic Acids Research 32(5), 2004.
    """
    _check(sequences, durations, alphabet)
    places: dict[bytes, list[int]] = {}
    for i, sequence in enumerate(sequences):
        places.setdefault(np.asarray(sequence, np.uint8).tobytes(), []).append(i)
    empty = places.pop(b"", [])
    if not places:
        rows = np.empty((len(sequences), 0), np.int32)
        return Alignment(rows, tuple(sequences), tuple(durations), newick(None, [], empty))
    label = _canonical_labels([np.frombuffer(key, np.uint8) for key in places], alphabet)
    named = [(label[np.frombuffer(key, np.uint8)], at) for key, at in places.items()]
    named.sort(key=lambda item: (len(item[0]), item[0].tobytes()))
    distinct = [sequence for sequence, _ in named]
    copies = [at for _, at in named]
    model = f81_model(np.bincount(np.concatenate(distinct), minlength=alphabet).astype(np.int64))
    codes, tree, notes = _align_distinct(distinct, alphabet, model, refine, max_cells, refine_work)
    score = _score(codes, copies, len(empty), model)
    rows = np.full((len(sequences), codes.shape[1]), -1, np.int32)
    positions = _positions(codes)
    for i, at in enumerate(copies):
        rows[at] = positions[i]
    return Alignment(
        rows, tuple(sequences), tuple(durations), newick(tree, copies, empty), score, notes
    )


def _check(sequences: Sequence[U8], durations: Sequence[I64], alphabet: int) -> None:
    if not 0 <= alphabet <= MOST_LETTERS:
        raise ValueError(f"an alphabet of {alphabet} letters: at most {MOST_LETTERS}")
    if [len(s) for s in sequences] != [len(d) for d in durations]:
        raise ValueError("sequences and durations differ in length")
    for i, sequence in enumerate(sequences):
        if len(sequence) and int(np.max(sequence)) >= alphabet:
            raise ValueError(f"sequence {i}: letter {int(np.max(sequence))} of {alphabet}")


def _canonical_labels(sequences: Sequence[U8], alphabet: int) -> U8:
    """Return a numbering of the letters by how they occur, not by what they are called."""
    signature = np.zeros((5, alphabet), np.int64)
    for sequence in sequences:
        place = np.arange(len(sequence))
        mine = np.bincount(sequence, minlength=alphabet)
        signature[0] += mine
        signature[1] += mine * mine
        for row, weight in ((2, place), (3, place * place), (4, place * len(sequence))):
            signature[row] += np.bincount(sequence, weight, minlength=alphabet).astype(np.int64)
    label = np.empty(alphabet, np.uint8)
    # lexsort takes its last key first; the letter itself decides between equals.
    label[np.lexsort(-signature[::-1])] = np.arange(alphabet)
    return label


def _align_distinct(
    sequences: list[U8],
    alphabet: int,
    model: Model,
    passes: int,
    max_cells: int,
    refine_work: int,
) -> tuple[I8, Tree, tuple[str, ...]]:
    """Run the stages on distinct, non-empty sequences in canonical order."""
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
    if passes <= 0:
        return codes, tree, ()
    if work_of_pass(*codes.shape) > refine_work:
        note = (
            f"refinement of the alignment left out: {codes.shape[0]} distinct paths in"
            f" {codes.shape[1]:,} columns would take too long"
        )
        return codes, tree, (note,)
    return refine_rows(codes, tree, weights, model, passes), tree, ()


def _progressive(
    sequences: list[U8],
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


def _score(codes: I8, copies: list[list[int]], empty: int, model: Model) -> float:
    """Return the plain sum of pairs over all rows as given, copies and empty ones too."""
    number = np.array([len(at) for at in copies], np.float64)
    score = sum_of_pairs(codes, number, model)
    diagonal = np.diag(model.log_ratio) + model.centre
    for row, count in zip(codes, number, strict=True):
        letters = row[row >= 0]
        score += count * (count - 1) / 2 * float(diagonal[letters].sum())
        score += count * empty * len(letters) * model.gap_extend
    return float(score)


def _positions(codes: I8) -> I32:
    """Return the position of every letter in its own row, -1 for a gap."""
    present = codes >= 0
    return np.where(present, np.cumsum(present, axis=1) - 1, -1).astype(np.int32)
