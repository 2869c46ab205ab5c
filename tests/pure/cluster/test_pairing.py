"""Algorithm 2: equal to the silhouette of the merged labelling, with its corner cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.metrics import silhouette_samples, silhouette_score

from critpath.cluster._silhouettes import block_size
from critpath.cluster.optics import cluster
from critpath.cluster.pairing import merged_scores, normal_space, pair
from critpath.cluster.space import distinct, stabilise
from critpath.model import Clustering, State, Symbol, VectorTable
from critpath.text.notes import word_all

BLOCK = block_size()
SYMBOLS = tuple(Symbol(State.RUN, str(i)) for i in range(4))


def table(counts):
    counts = np.asarray(counts, np.int64)
    return VectorTable(SYMBOLS[: counts.shape[1]], counts, counts * 1000)


def clusters(labels):
    labels = np.asarray(labels, np.int64)
    n = len(labels)
    return Clustering(labels, labels, np.zeros(n, bool), np.arange(n), np.zeros(n), "given")


def check_scores(normal, labels, members, cluster_of):
    """Hold every score against scikit-learn's, of executions one by one."""
    once = distinct(np.column_stack([cluster_of, members]))
    scores = merged_scores(
        normal_space(table(normal), clusters(labels)),
        stabilise(members[once.row]),
        once.weight,
        cluster_of[once.row],
    )
    for c in range(int(cluster_of.max()) + 1):
        mine = members[cluster_of == c]
        space = stabilise(np.concatenate([normal, mine]))
        distances = cdist(space, space)
        for k in range(int(labels.max()) + 1):
            merged = np.concatenate([labels, np.full(len(mine), k)])
            expected = silhouette_score(distances, merged, metric="precomputed")
            assert scores.score[c, k] == pytest.approx(expected, rel=0, abs=1e-12)
            own = silhouette_samples(distances, merged, metric="precomputed")[len(labels) :]
            assert scores.own[c, k] == pytest.approx(own.mean(), rel=0, abs=1e-12)
            apart = distances[len(labels) :, : len(labels)][:, labels == k].mean()
            assert scores.distance[c, k] == pytest.approx(apart, rel=1e-12)


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
    check_scores(normal, labels, rng.poisson(8, (m, 4)), np.zeros(m, int))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 4)), min_size=3),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1),
)
def test_scores_with_few_distinct_vectors_anywhere(normal, sample):
    """Equal vectors within a cluster, in different clusters, and in both sets."""
    normal, sample = np.array(normal), np.array(sample)
    labels = np.unique(normal[:, 2], return_inverse=True)[1].reshape(-1)
    cluster_of = np.unique(sample[:, 2], return_inverse=True)[1].reshape(-1)
    # scikit-learn wants fewer clusters than points, which the merge always gives.
    if labels.max() > 0:
        check_scores(normal[:, :2], labels, sample[:, :2], cluster_of)


@pytest.mark.parametrize("seed", range(4))
def test_clusters_of_many_points_are_scored_block_by_block(seed):
    """Points beyond a block, its edges, and merges that leave whole blocks as they are."""
    rng = np.random.default_rng(seed)
    size = BLOCK + int(rng.integers(-9, 9))
    centre = np.array([[4, 90, 4, 30], [90, 4, 4, 30], [40, 40, 4, 90]])[: 2 + seed % 2]
    labels = np.repeat(np.arange(len(centre)), [size, 2 * size + 1, 40][: len(centre)])
    normal = rng.poisson(centre[labels])
    # Small clusters far away, between the types, and one as large as a type.
    kind = np.repeat(np.arange(4), [1, 2, 5, 150])
    members = rng.poisson(
        np.array([[0, 0, 300, 0], [40, 50, 4, 30], [6, 80, 4, 40], centre[0]])[kind]
    )
    assert len(np.unique(normal, axis=0)) > 1.5 * BLOCK
    check_scores(normal, labels, members, kind)


def test_scores_do_not_depend_on_the_order_of_executions():
    rng = np.random.default_rng(3)
    normal, labels = rng.poisson(20, (700, 4)), rng.permutation(np.arange(700) % 3)
    sample, mine = rng.poisson(20, (300, 4)), rng.permutation(np.arange(300) % 5)
    one = pair(table(normal), clusters(labels), table(sample), clusters(mine))
    first, second = rng.permutation(700), rng.permutation(300)
    other = pair(
        table(normal[first]), clusters(labels[first]), table(sample[second]), clusters(mine[second])
    )
    assert one.score.tobytes() == other.score.tobytes()
    assert one.pair.tolist() == other.pair.tolist()


def test_sums_of_distances_are_those_of_every_pair():
    rng = np.random.default_rng(5)
    normal, labels = rng.integers(0, 5, (900, 3)), np.arange(900) % 3
    home = normal_space(table(normal), clusters(labels))
    onehot = (labels[:, None] == np.arange(3)).astype(float)
    space, other = stabilise(normal), rng.integers(0, 5, (60, 3))
    assert home.point_sums[home.member] == pytest.approx(cdist(space, space) @ onehot, rel=1e-12)
    sums, member = home.sums_of(other)
    assert sums[member] == pytest.approx(cdist(stabilise(other), space) @ onehot, rel=1e-12)
    assert home.sums_of(other[:0])[0].shape == (0, 3)


def test_without_symbols_nothing_is_away_from_anything():
    normal, labels = np.zeros((6, 0), np.int64), np.arange(6) % 2
    pairs = pair(table(normal), clusters(labels), table(normal[:2]), clusters([0, 1]))
    assert pairs.pair.tolist() == [0, 0]
    assert pairs.score.tolist() == [0, 0]


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
    assert any("unlike every type before" in note for note in word_all(pairs.notes))


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
    with pytest.raises(ValueError, match="no normal run"):
        pair(nothing, cluster(nothing), normal, cluster(normal))
    with pytest.raises(ValueError, match="different symbols"):
        pair(normal, cluster(normal), table([[1]]), clusters([0]))


def test_a_hundred_thousand_executions_pair_like_their_distinct_vectors():
    """Pairing 100,000 with 100,000 is no slower than pairing what differs among them."""
    rng = np.random.default_rng(0)
    kind = np.arange(60) % 3
    which = rng.integers(0, 60, 100_000)
    rows = rng.poisson(np.array([[30, 3, 0, 8], [5, 3, 0, 40], [5, 30, 9, 8]])[kind])[which]
    labels = kind[which]
    pairs = pair(table(rows), clusters(labels), table(rows), clusters(labels))
    assert pairs.pair.tolist() == [0, 1, 2]
    assert normal_space(table(rows), clusters(labels)).member.shape == (100_000,)
