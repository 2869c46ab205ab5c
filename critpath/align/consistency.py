"""Multiple alignment by posterior probabilities made consistent (ProbCons, MUSCLE 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from critpath.align import _posteriors
from critpath.align.profiles import I8, Model, drop_gap_columns, merge_rows
from critpath.align.tree import Tree, kimura_distances, upgmb
from critpath.align.weights import clustalw_weights
from critpath.model import F64, I32, I64, U8

F32 = npt.NDArray[np.float32]
UNIT = 4096


@dataclass(frozen=True)
class Chain:
    open: float = 0.02
    extend: float = 0.5
    edge: float = 0.02
    long_open: float = 0.005
    long_extend: float = 0.92
    long_edge: float = 0.02
    threshold: float = 0.01
    rounds: int = 2
    weighted: bool = False
    tree: str = "ea"
    passes: int = 2
    pair_weights: bool = False


@dataclass(frozen=True, eq=False)
class Posteriors:
    offset: I64
    begin: I64
    column: I32
    value: F32

    @property
    def count(self):
        return len(self.offset) - 1


def find_posteriors(sequences, ratio, chain):
    offset = np.concatenate([[0], np.cumsum([len(s) for s in sequences])]).astype(np.int64)
    gaps = np.array([chain.open, chain.extend, chain.edge, chain.long_open, chain.long_extend, chain.long_edge])
    begin, column, value = _posteriors.pair_posteriors(
        np.concatenate(sequences), offset, ratio.astype(np.float32), gaps, chain.threshold
    )
    return Posteriors(offset, begin, column, value)


def expected_accuracy(p):
    n = p.count
    length = np.diff(p.offset)
    best = np.zeros(len(p.begin) - 1, np.float32)
    full = np.flatnonzero(np.diff(p.begin))
    if len(full):
        best[full] = np.maximum.reduceat(p.value, p.begin[full])
    owner = np.concatenate([np.repeat(np.arange(n), length[x]) + x * n for x in range(n)])
    total = np.bincount(owner, best, n * n).reshape(n, n)
    total = (total + total.T) / 2
    return total / np.minimum.outer(length, length)


def relax(p, weights):
    out = np.empty_like(p.value)
    _posteriors.consistency(p.offset, p.begin, p.column, p.value, weights, out)
    return Posteriors(p.offset, p.begin, p.column, out)


def columns_of(rows, members, offset, at):
    for row, leaf in zip(rows, members, strict=True):
        at[offset[leaf] : offset[leaf + 1]] = np.flatnonzero(row >= 0)


def align_blocks(a, la, b, lb, p, value, at):
    columns_of(a, la, p.offset, at)
    columns_of(b, lb, p.offset, at)
    scores = np.zeros((a.shape[1], b.shape[1]), np.int32)
    _posteriors.column_scores(p.offset, p.begin, p.column, value, np.array(la), np.array(lb), at, scores)
    path = np.empty(a.shape[1] + b.shape[1], np.uint8)
    score, first = _posteriors.best_path(scores, path)
    return score, merge_rows(a, b, path[first:])


def align_consistent(sequences, alphabet, model, chain=Chain(), stats=None):
    n = len(sequences)
    p = find_posteriors(sequences, model.ratio, chain)
    ea = np.clip(expected_accuracy(p), 0, 1)
    tree = upgmb(1 - ea)
    weights = clustalw_weights(tree) * n if chain.weighted else np.ones(n)
    if n > 2:
        for _ in range(chain.rounds):
            p = relax(p, weights)
        if chain.tree == "ea2":
            tree = upgmb(1 - np.clip(expected_accuracy(p), 0, 1))
    value = np.rint(p.value * UNIT).astype(np.int32)
    at = np.zeros(p.offset[-1], np.int32)
    blocks = [([i], s.astype(np.int8)[None]) for i, s in enumerate(sequences)]
    for left, right in zip(tree.left, tree.right, strict=True):
        (la, a), (lb, b) = blocks[left], blocks[right]
        _, rows = align_blocks(a, la, b, lb, p, value, at)
        blocks.append((la + lb, rows))
    members, top = blocks[-1]
    codes = np.empty_like(top)
    codes[members] = top
    if n > 2:
        codes = refine(codes, tree, p, value, at, chain.passes)
    return codes, tree, ()


def refine(codes, tree, p, value, at, passes):
    from critpath.align.refine import _splits

    splits = _splits(tree)
    for number in range(passes):
        changed = False
        for side in splits if number % 2 == 0 else splits[::-1]:
            one, two = np.flatnonzero(side == 0), np.flatnonzero(side == 1)
            a, b = drop_gap_columns(codes[one]), drop_gap_columns(codes[two])
            _, rows = align_blocks(a, one, b, two, p, value, at)
            new = np.empty_like(rows)
            new[one] = rows[: len(one)]
            new[two] = rows[len(one) :]
            if new.shape != codes.shape or not np.array_equal(new, codes):
                codes = new
                changed = True
        if not changed:
            break
    return codes
