"""Algorithm 2: equal to the silhouette of the merged labelling, with its corner cases."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.metrics import silhouette_score

from critpath.cluster.optics import cluster
from critpath.cluster.merging import merged_scores
from critpath.cluster.pairing import normal_space, pair
from critpath.cluster.space import stabilise
from critpath.model import Clustering, State, Symbol, VectorTable

SYMBOLS = tuple(Symbol(State.RUN, str(i)) for i in range(4))


def table(counts):
    counts = np.asarray(counts, np.int64)
    return VectorTable(SYMBOLS[: counts.shape[1]], counts, counts * 1000)


def clusters(labels):
    labels = np.asarray(labels, np.int64)
    n = len(labels)
    return Clustering(labels, labels, np.zeros(n, bool), np.arange(n), np.zeros(n), "given")


@pytest.mark.parametrize("seed", range(8))
def test_scores_equal_scikit_learn_on_the_merged_labels(seed):
    rng = np.random.default_rng(seed)
    n, size, m = int(rng.integers(8, 40)), int(rng.integers(2, 6)), int(rng.integers(1, 7))
    normal = rng.poisson(rng.integers(1, 30, 4), (n, 4))
    normal[: n // 4] = normal[0]  # duplicates, and distances of zero
    labels = np.concatenate([np.arange(size), rng.integers(0, size, n - size)])
    if seed % 2:
        labels[labels == size - 1] = 0
        labels[-1] = size - 1  # a cluster of one
    members = rng.poisson(8, (m, 4))
    scores = merged_scores(
        normal_space(table(normal), clusters(labels)),
        stabilise(members),
        np.ones(m),
        np.zeros(m, int),
    )
    space = stabilise(np.concatenate([normal, members]))
    distances = cdist(space, space)
    for k in range(size):
        merged = np.concatenate([labels, np.full(m, k)])
        expected = silhouette_score(distances, merged, metric="precomputed")
        assert scores.score[0, k] == pytest.approx(expected, abs=1e-12)


def test_every_sample_cluster_goes_to_the_type_it_came_from(simulated, healthy):
    normal, sample = simulated(healthy, 1), simulated(healthy, 2)
    order = sorted(set(normal.types))
    ours = clusters([order.index(t) for t in normal.types])
    theirs = clusters([order.index(t) for t in sample.types])
    pairs = pair(normal.table, ours, sample.table, theirs)
    assert pairs.pair.tolist() == list(range(7))
    assert not pairs.weak.any()
    assert not pairs.novel.any()


def test_one_normal_cluster_is_everybodys_partner():
    normal = table([[3, 3]] * 5)
    pairs = pair(normal, cluster(normal), table([[3, 3], [90, 0]]), clusters([0, 1]))
    assert pairs.pair.tolist() == [0, 0]
    assert np.isnan(pairs.score).all()
    assert pairs.novel.tolist() == [False, True]
    assert any("unlike every normal type" in note for note in pairs.notes)


def test_a_negative_best_score_still_pairs_and_is_weak():
    interleaved = table([[0, 0], [40, 0], [0, 0], [40, 0]])
    pairs = pair(interleaved, clusters([0, 0, 1, 1]), table([[20, 0]]), clusters([0]))
    assert pairs.score[0] <= 0
    assert pairs.weak.tolist() == [True]
    assert pairs.pair.tolist() == [0]  # a tie: the lower cluster


def test_degenerate_pairings():
    normal = table([[1, 0]])
    assert pair(normal, cluster(normal), normal, cluster(normal)).pair.tolist() == [0]
    nothing = table(np.zeros((0, 2)))
    assert len(pair(normal, cluster(normal), nothing, cluster(nothing)).pair) == 0
    with pytest.raises(ValueError, match="no normal execution"):
        pair(nothing, cluster(nothing), normal, cluster(normal))
    with pytest.raises(ValueError, match="different symbols"):
        pair(normal, cluster(normal), table([[1]]), clusters([0]))
