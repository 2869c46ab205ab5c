"""Silhouettes with multiplicity, and the tree of average linkage with sizes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import cophenet, fcluster, linkage
from scipy.spatial.distance import cdist, squareform
from sklearn.metrics import silhouette_score

from critpath.cluster.optics import assign_noise, average_linkage, cluster, silhouettes
from critpath.errors import CritpathError
from critpath.model import State, Symbol, VectorTable


@pytest.mark.parametrize("seed", range(10))
def test_silhouettes_are_those_of_executions_one_by_one(seed):
    rng = np.random.default_rng(seed)
    space = np.unique(rng.integers(0, 8, (30, 3)), axis=0).astype(float)
    n = len(space)
    weight = rng.integers(1, 5, n)
    partitions = []
    for clusters in (2, 3, 7):
        labels = np.concatenate([np.arange(clusters), rng.integers(0, clusters, n - clusters)])
        labels[labels == 1] = 0
        labels[1], weight[1] = 1, 1  # a cluster of one
        partitions.append(labels)
    every = np.repeat(space, weight, axis=0)
    expected = [
        silhouette_score(cdist(every, every), np.repeat(labels, weight), metric="precomputed")
        for labels in partitions
    ]
    assert silhouettes(space, weight, partitions) == pytest.approx(expected, rel=0, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_the_tree_is_that_of_executions_one_by_one(seed):
    rng = np.random.default_rng(seed)
    space = rng.normal(size=(25, 3))
    weight = rng.integers(1, 6, 25)
    tree = average_linkage(space, weight)
    every = linkage(np.repeat(space, weight, axis=0), method="average")
    once = np.cumsum(weight) - 1
    expected = squareform(cophenet(every))[np.ix_(once, once)]
    assert squareform(cophenet(tree)) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    for size in (2, 5, 9):
        ours, theirs = fcluster(tree, size, "maxclust"), fcluster(every, size, "maxclust")[once]
        assert (np.equal.outer(ours, ours) == np.equal.outer(theirs, theirs)).all()


def test_the_tree_of_points_that_tie_is_a_tree():
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
    tree = average_linkage(corners, np.ones(8, int))
    assert sorted(tree[:, :2].ravel().astype(int)) == list(range(14))
    assert (np.diff(tree[:, 2]) >= 0).all()
    assert tree[-1, 3] == 8


def test_too_many_distinct_executions_for_linkage_are_refused():
    rows = np.arange(5001)[:, None]
    table = VectorTable((Symbol(State.RUN),), rows, rows)
    with pytest.raises(CritpathError, match="5,001 distinct executions"):
        cluster(table, method="linkage")


def test_noise_between_two_clusters_takes_the_lower():
    space = np.array([[0.0], [2.0], [1.0], [9.0]])
    assert assign_noise(np.array([1, 0, -1, -1]), space).tolist() == [1, 0, 0, 0]
    assert assign_noise(np.array([-1, -1]), space[:2]).tolist() == [0, 0]
