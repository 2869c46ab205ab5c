"""Sequence weights, so that many similar rows do not drown a few others."""

from __future__ import annotations

import numpy as np

from critpath.align.tree import Tree
from critpath.model import F64


def clustalw_weights(tree: Tree) -> F64:
    """Return the weight of every leaf (Thompson, Higgins and Gibson 1994).

    Every edge shares its length among the leaves below it; a leaf's weight is the
    sum of its shares on the way to the root.  A thousandth of the mean is added, so
    that none is zero; a tree without any length, or of two leaves, weighs all alike.

    Returns
    -------
    float64 [leaves]
        Sums to 1.
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
    weights += 1e-3 * weights.mean()
    return np.asarray(weights / weights.sum())
