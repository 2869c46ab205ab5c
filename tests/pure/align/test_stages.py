"""k-mer distances, guide trees, weights and the choice of rows, from drawings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.align.multiple import choose_rows
from critpath.align.progressive import (
    choose_k,
    clustalw_weights,
    kimura_distances,
    kmer_distances,
    newick,
    upgmb,
)


def codes(text):
    return np.array([ord(c) - ord("a") for c in text], np.uint8)


def test_kmer_distance_counts_shared_words():
    # 3-mers abc bcd cde / bcd cde def: two of three shared
    distances = kmer_distances([codes("abcde"), codes("bcdef"), codes("ffff")], 6, 3)
    assert distances[0, 1] == pytest.approx(1 / 3)
    assert distances[0, 2] == 1
    assert (distances == distances.T).all()


def test_kmer_distance_counts_repeats_and_lowers_k_for_short_sequences():
    distances = kmer_distances([codes("aaaaa"), codes("aaa"), codes("a")], 6, 3)
    assert distances[0, 1] == 0  # one word of one
    assert distances[0, 2] == 0  # k = 1 for this pair
    distances = kmer_distances([codes("ababab"), codes("abbbbb")], 6, 2)
    assert distances[0, 1] == pytest.approx(1 - 1 / 5)


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=15), min_size=2, max_size=5),
    st.integers(1, 6),
)
def test_kmer_distance_equals_counting_by_hand(rows, k):
    sequences = [np.array(r, np.uint8) for r in rows]
    distances = kmer_distances(sequences, 4, k)
    for i in range(len(rows)):
        for j in range(i + 1, len(rows)):
            size = min(k, len(rows[i]), len(rows[j]))
            words = [
                [tuple(r[p : p + size]) for p in range(len(r) - size + 1)]
                for r in (rows[i], rows[j])
            ]
            shared = sum(min(words[0].count(w), words[1].count(w)) for w in set(words[0]))
            assert distances[i, j] == pytest.approx(1 - shared / min(map(len, words)))


def test_k_grows_with_length_and_falls_with_entropy():
    even = np.full(8, 100)
    assert choose_k(even, 10) < choose_k(even, 10000)
    assert choose_k(np.full(60, 10), 100) <= choose_k(np.full(3, 10), 100)
    assert choose_k(np.array([5, 0]), 100) == 6


def test_upgmb_joins_the_nearest_and_mixes_distances():
    distances = np.array([[0, 2, 6.0, 9], [2, 0, 8, 9], [6, 8, 0, 9], [9, 9, 9, 0]])
    tree = upgmb(distances)
    assert tree.left.tolist() == [0, 4, 5]
    assert tree.right.tolist() == [1, 2, 3]
    # 0.1 * mean(6, 8) + 0.9 * min(6, 8) = 6.1
    assert tree.height.tolist() == pytest.approx([1, 3.05, 4.5])
    assert newick(tree, [[7], [8, 9], [1], [2]], [5]) == (
        "((((7:1,(8:0,9:0):1):2.05,1:3.05):1.45,2:4.5):0,5:0);"
    )


@given(st.integers(1, 12), st.integers(0, 2**32))
def test_upgmb_heights_never_fall(n, seed):
    rng = np.random.default_rng(seed)
    distances = rng.integers(0, 5, (n, n)).astype(float)
    distances = np.triu(distances, 1) + np.triu(distances, 1).T
    tree = upgmb(distances)
    assert sorted([*tree.left, *tree.right]) == list(range(2 * n - 2))
    for i in range(n - 1):
        for child in (int(tree.left[i]), int(tree.right[i])):
            assert child < n + i
            assert tree.height[i] >= tree.height_of(child)


def test_weights_share_common_edges():
    # leaves 0 and 1 at distance 2 of each other, 2 far away
    tree = upgmb(np.array([[0, 2, 8.0], [2, 0, 8], [8, 8, 0]]))
    # edges: 1 each to the pair, 3 above the pair shared by two, 4 to leaf 2
    raw = np.array([1 + 1.5, 1 + 1.5, 4])
    raw += 1e-3 * raw.mean()
    assert clustalw_weights(tree).tolist() == pytest.approx((raw / raw.sum()).tolist())
    assert clustalw_weights(upgmb(np.zeros((2, 2)))).tolist() == [0.5, 0.5]
    assert clustalw_weights(upgmb(np.zeros((4, 4)))).tolist() == [0.25] * 4


def test_kimura_distance_rises_without_a_jump():
    identity = np.linspace(1, 0, 1001)
    distances = kimura_distances(identity)
    assert distances[0] == 0
    assert (np.diff(distances) >= 0).all()
    assert np.diff(distances).max() < 0.2
    assert distances[500] == pytest.approx(-np.log(1 - 0.5 - 0.05))
    assert distances[-1] == 10


def test_small_groups_are_taken_whole():
    assert choose_rows(np.arange(12).reshape(6, 2), 6).tolist() == [0, 1, 2, 3, 4, 5]
    assert choose_rows(np.empty((0, 3), np.int64), 2).tolist() == []
    with pytest.raises(ValueError, match="at least one"):
        choose_rows(np.zeros((2, 2), np.int64), 0)


def test_medoid_first_then_the_farthest():
    counts = np.array([[0, 0], [4, 0], [4, 0], [4, 1], [100, 0], [0, 49]])
    assert choose_rows(counts, 1).tolist() == [1]
    assert choose_rows(counts, 2).tolist() == [1, 4]
    assert choose_rows(counts, 3).tolist() == [1, 4, 5]


@given(st.integers(0, 2**32), st.integers(1, 20))
def test_choice_of_vectors_does_not_depend_on_order(seed, limit):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 6, (20, 3))
    order = rng.permutation(20)
    first = counts[choose_rows(counts, limit)]
    second = counts[order][choose_rows(counts[order], limit)]
    assert sorted(map(tuple, first)) == sorted(map(tuple, second))
    assert len(first) == limit


@pytest.mark.parametrize("seed", range(20))
def test_a_large_group_is_its_medoid_and_then_what_is_farthest(seed):
    """By the definition, one execution at a time, where many have the same counts."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(2, (60, 3))[rng.integers(0, 60, 150)]
    limit = int(rng.integers(1, 40))
    order = sorted(range(150), key=lambda i: (counts[i].tolist(), i))
    points = np.sqrt(counts[order])
    apart = np.sqrt(((points[:, None] - points) ** 2).sum(axis=2))
    chosen = [int(np.round(apart.sum(axis=1), 6).argmin())]
    while len(chosen) < limit:
        nearest = np.round(apart[chosen].min(axis=0), 9)
        nearest[chosen] = -1
        chosen.append(int(nearest.argmax()))
    assert choose_rows(counts, limit).tolist() == sorted(order[i] for i in chosen)
