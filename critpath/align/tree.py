"""Guide trees: joined by UPGMB, walked from the leaves up, compared, written as Newick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from critpath.model import F64, I64

# MUSCLE's mix of average and nearest neighbour when two clusters are joined.
AVERAGE_SHARE = 0.1
SATURATED = 10.0


@dataclass(frozen=True, eq=False)
class Tree:
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

    Parameters
    ----------
    distances : float64 [n, n]
        Symmetric; n >= 1.
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
        joined = AVERAGE_SHARE * (work[a] + work[b]) / 2 + (1 - AVERAGE_SHARE) * np.minimum(
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
    near = np.minimum(p, 0.75)
    distances = -np.log(1 - near - near * near / 5)
    at_limit = -np.log(1 - 0.75 - 0.75 * 0.75 / 5)
    far = at_limit + (np.minimum(p, 0.93) - 0.75) / (0.93 - 0.75) * (SATURATED - at_limit)
    return np.where(p > 0.75, far, distances)


def newick(tree: Tree | None, names: Sequence[Sequence[int]], apart: Sequence[int]) -> str:
    """Write a tree in Newick form.

    Parameters
    ----------
    tree : Tree or None
        None where no sequence has a letter.
    names : sequence of sequence of int
        The rows that each leaf stands for.
    apart : sequence of int
        Rows that took no part (empty ones); hung on the root at distance 0.
    """
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
