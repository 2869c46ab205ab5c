"""The three stages of MUSCLE (Edgar 2004), on distinct sequences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from critpath.align.pairwise import align_profiles
from critpath.align.profiles import I8, Model, build_profile, merge_rows, sum_of_pairs
from critpath.model import F64, I64, U8
from critpath.schema import notes
from critpath.schema.notes import Note
from critpath.schema.parameters.align import PROFILES


class _Block(Struct, frozen=True, eq=False):
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
) -> tuple[I8, Tree, tuple[Note, ...]]:
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
    if refine <= 0:
        return codes, tree, ()
    widths = [last - first for first, last in cut_at_good_columns(codes)]
    if work_of_pass(len(codes), widths) > refine_work:
        return codes, tree, (notes.NotRefined(*codes.shape),)
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


# Stage 3: refinement by tree-dependent bipartitions.


LEAST_GAIN = 1e-9  # technical


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
    """Return about how many cells and pairs of letters one pass looks at."""
    return sum(
        (2 * leaves - 3) * (width * width + leaves * leaves // 4 * width) for width in widths
    )


def cut_at_good_columns(rows: I8) -> list[tuple[int, int]]:
    """Return blocks of columns that can be refined on their own, half-open.

    Short alignments are one block.  A cut goes through a column in which all rows have
    the same letter, as they nearly do around it; both blocks contain it.
    """
    columns = rows.shape[1]
    if columns <= PROFILES.whole_columns:
        return [(0, columns)]
    same = (rows == rows[0]).all(axis=0) & (rows[0] >= 0)
    around = np.convolve(same, np.ones(PROFILES.window), mode="same")
    cuts = [0]
    for column in np.flatnonzero(same & (around >= PROFILES.window - 1)).tolist():
        if column - cuts[-1] >= PROFILES.block_columns:
            cuts.append(column)
    return [
        (first, min(last + 1, columns))
        for first, last in pairwise([*cuts, columns])
        if first < last
    ]


def realign_split(rows: I8, side: U8, weights: F64, model: Model) -> I8 | None:
    """Align the two sides of a split anew."""
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


def refine_rows(rows: I8, tree: Tree, weights: F64, model: Model, passes: int) -> I8:
    """Improve an alignment by tree-dependent restricted partitioning (Hirosawa et al. 1995)."""
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


# Guide trees.


class Tree(Struct, frozen=True, eq=False):
    """A rooted binary tree.  Leaves are 0..n-1; node ``n + i`` was joined i-th.

    Attributes
    ----------
    left, right : int64 [n - 1]
        Children of the joined nodes; the left one has the lowest leaf.
    height : float64 [n - 1]
        Half the distance of the two children, never below that of a child.
    """

    left: I64
    right: I64
    height: F64

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return len(self.left) + 1

    def height_of(self, node: int) -> float:
        """Return a node's height, 0 for a leaf."""
        return 0.0 if node < self.leaves else float(self.height[node - self.leaves])

    def members(self) -> list[list[int]]:
        """Return the leaves below every node, ascending."""
        result = [[leaf] for leaf in range(self.leaves)]
        for left, right in zip(self.left, self.right, strict=True):
            result.append(sorted(result[left] + result[right]))
        return result

    def shapes(self) -> list[object]:
        """Return a key for every node, equal for equal subtrees of any tree."""
        result: list[object] = list(range(self.leaves))
        for left, right in zip(self.left, self.right, strict=True):
            result.append(frozenset((result[left], result[right])))
        return result


def upgmb(distances: F64) -> Tree:
    """Join the nearest clusters until one is left.

    The distance of a joined cluster is ``0.1 * mean + 0.9 * least`` of its parts'
    (MUSCLE's UPGMB).  Among equal distances the pair with the lowest leaves joins.
    """
    n = len(distances)
    work = distances.astype(np.float64)
    np.fill_diagonal(work, np.inf)
    node = list(range(n))  # of the cluster in each slot; its slot is its lowest leaf
    heights = [0.0] * n
    left, right = np.empty(n - 1, np.int64), np.empty(n - 1, np.int64)
    for step in range(n - 1):
        a, b = divmod(int(np.argmin(work)), n)  # first of equals: a < b, both lowest
        left[step], right[step] = node[a], node[b]
        heights.append(max(work[a, b] / 2, heights[node[a]], heights[node[b]]))
        joined = PROFILES.average * (work[a] + work[b]) / 2 + (1 - PROFILES.average) * np.minimum(
            work[a], work[b]
        )
        joined[a] = np.inf
        work[a] = work[:, a] = joined
        work[b] = work[:, b] = np.inf
        node[a] = n + step
    return Tree(left, right, np.array(heights[n:]))


def kimura_distances(identity: F64) -> F64:
    """Turn shares of identical residues into distances.

    Kimura 1983, ``-ln(1 - p - p*p/5)`` with ``p = 1 - identity``, up to p = 0.75;
    then a straight line to 10 at p = 0.93, where MUSCLE has a table.
    """
    p = 1 - identity
    last, saturated = PROFILES.kimura
    near = np.minimum(p, last)
    distances = -np.log(1 - near - near * near / 5)
    at_limit = -np.log(1 - last - last * last / 5)
    far = at_limit + (np.minimum(p, saturated) - last) / (saturated - last) * (
        PROFILES.saturated - at_limit
    )
    return np.where(p > last, far, distances)


def newick(tree: Tree | None, names: Sequence[Sequence[int]], apart: Sequence[int]) -> str:
    """Write a tree in Newick form."""
    if tree is None:
        return "(" + ",".join(str(row) for row in apart) + ");" if apart else ""
    text = [
        str(rows[0]) if len(rows) == 1 else "(" + ",".join(f"{row}:0" for row in rows) + ")"
        for rows in names
    ]
    for i, (left, right) in enumerate(zip(tree.left, tree.right, strict=True)):
        top = float(tree.height[i])
        parts = [f"{text[c]}:{top - tree.height_of(c):.6g}" for c in (int(left), int(right))]
        text.append("(" + ",".join(parts) + ")")
    if apart:
        return "(" + ",".join([text[-1] + ":0", *(f"{row}:0" for row in apart)]) + ");"
    return text[-1] + ";"


# K-mer distances.


def choose_k(letters: I64, mean_length: float) -> int:
    """Return the k at which a chance match in a sequence becomes unlikely.

    ``ceil(ln(10 * mean length) / H)``, H the entropy of the letters in nats,
    between 2 and 6.
    """
    share = letters[letters > 0] / letters.sum()
    entropy = float(-(share * np.log(share)).sum())
    if entropy <= 0:
        return PROFILES.most_k
    k = int(np.ceil(np.log(10 * max(mean_length, 1)) / entropy))
    return min(max(k, PROFILES.least_k), PROFILES.most_k)


def _codes(sequence: U8, alphabet: int, k: int) -> I64:
    """Return every k-mer of a sequence as one number (64**6 < 2**63: no collisions)."""
    result = np.zeros(max(len(sequence) - k + 1, 0), np.int64)
    for offset in range(k):
        result *= alphabet
        result += sequence[offset : offset + len(result)]
    return result


def _count_shared(sequences: Sequence[U8], alphabet: int, k: int) -> I64:
    """Return for every pair how many k-mers they share, repeats counted [n, n]."""
    every = [_codes(s, alphabet, k) for s in sequences]
    owner = np.repeat(np.arange(len(every)), [len(c) for c in every])
    words, place = np.unique(np.concatenate(every), return_inverse=True)
    counts = np.zeros((len(every), len(words)), np.int32)
    np.add.at(counts, (owner, place.reshape(-1)), 1)
    # A word of one sequence only is shared with no other.
    counts = counts[:, (counts > 0).sum(axis=0) > 1]
    shared = np.empty((len(every), len(every)), np.int64)
    for i, mine in enumerate(counts):
        shared[i] = np.minimum(mine, counts).sum(axis=1)
    return shared


def kmer_distances(sequences: Sequence[U8], alphabet: int, k: int) -> F64:
    """Return ``1 - share of k-mers in common`` for every pair (Edgar 2004)."""
    lengths = np.array([len(s) for s in sequences], np.int64)
    usable = np.minimum(np.minimum.outer(lengths, lengths), k)
    distances = np.zeros(usable.shape)
    for size in np.unique(usable):
        here = usable == size
        words = np.minimum.outer(lengths, lengths) - size + 1
        shared = _count_shared(sequences, alphabet, int(size))
        distances[here] = 1 - shared[here] / words[here]
    np.fill_diagonal(distances, 0)
    return distances


# Sequence weights.


def clustalw_weights(tree: Tree) -> F64:
    """Return the weight of every leaf (Thompson, Higgins and Gibson 1994).

    Every edge shares its length among the leaves below it; a leaf's weight is the
    sum of its shares on the way to the root.  A thousandth of the mean is added, so
    that none is zero; a tree without any length, or of two leaves, weighs all alike.
    """
    n = tree.leaves
    if n <= 2:
        return np.full(n, 1 / n)
    weights = np.zeros(n)
    members = tree.members()
    for i, children in enumerate(zip(tree.left, tree.right, strict=True)):
        for child in map(int, children):
            length = float(tree.height[i]) - tree.height_of(child)
            weights[members[child]] += length / len(members[child])
    if weights.sum() <= 0:
        return np.full(n, 1 / n)
    weights += PROFILES.least_weight * weights.mean()
    return np.asarray(weights / weights.sum())
