"""Clustering: order cannot matter, nobody is dropped, degenerate sets have an answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from critpath.cluster.optics import METHODS, cluster
from critpath.cluster.pairing import pair
from critpath.cluster.types import cluster_sample
from critpath.model import State, Symbol, VectorTable
from critpath.text.notes import word_all

NAMES = [Symbol(state, "") for state in State][:7]


def table(counts, durations=None):
    counts = np.asarray(counts, np.int64)
    durations = counts * 1000 if durations is None else np.asarray(durations, np.int64)
    return VectorTable(tuple(NAMES[: counts.shape[1]]), counts, durations)


# Mean counts of seven symbols: run, read, lock, timer, helper, journal, retry.
SIX_TYPES = np.array(
    [
        [1, 0, 0, 0, 0, 0, 0.05],
        [33, 32, 0, 0, 0, 0, 0.05],
        [9, 8, 0, 0, 1, 0, 0.1],
        [3, 0, 2, 0, 0, 0, 0.2],
        [2, 0, 0, 1, 0, 0, 0.1],
        [5, 0, 0, 0, 0, 4, 0.2],
    ]
)


def six_types(n, seed):
    """Return counts with many repetitions, and their types.

    Reads sometimes find their page in memory; retries are rare; anything that happens
    at all sometimes happens once more.
    """
    rng = np.random.default_rng(seed)
    types = np.arange(n) % 6
    mean = SIX_TYPES[types]
    counts = np.floor(mean).astype(int)
    counts[:, 1] = rng.binomial(counts[:, 1], 0.92)
    counts[:, -1] = 0
    return counts + rng.poisson(np.where(mean >= 1, 0.1, mean * (mean < 1))), types


@given(
    st.lists(st.tuples(*[st.integers(0, 40)] * 3), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
    st.sampled_from(list(METHODS)),
)
def test_permuting_rows_permutes_labels_and_nothing_else(rows, random, method):
    order = list(range(len(rows)))
    random.shuffle(order)
    one = cluster(table(rows), method=method)
    other = cluster(table([rows[i] for i in order]), method=method)
    assert (other.labels == one.labels[order]).all()
    assert (other.raw_labels == one.raw_labels[order]).all()
    assert (other.weak == one.weak[order]).all()
    assert (other.method, other.notes, other.size) == (one.method, one.notes, one.size)
    assert sorted(one.labels.tolist()) == sorted(other.labels.tolist())
    assert sorted(one.ordering) == order or sorted(one.ordering) == sorted(order)
    assert set(range(one.size)) == set(one.labels.tolist())  # no empty cluster, no noise
    assert not np.isnan(one.reachability).any()


def test_clusters_are_numbered_by_size_then_canonical_first_member():
    rows = [[20, 0]] * 6 + [[1, 0]] * 6 + [[0, 30]] * 10
    labels = cluster(table(rows)).labels
    assert labels.tolist() == [2] * 6 + [1] * 6 + [0] * 10


def test_seven_types_are_found_at_fifteen_of_each(simulated, healthy):
    scores = []
    for seed in range(3):
        normal = simulated(healthy, seed)
        scores.append(adjusted_rand_score(normal.types, cluster(normal.table).labels))
    assert np.mean(scores) > 0.8, scores


@pytest.mark.parametrize("n", [1000, 5000])
def test_repeated_vectors_do_not_split_types(n):
    """The trap: scikit-learn's OPTICS makes dozens of these six, one of every few repetitions."""
    counts, types = six_types(n, seed=n)
    assert len(np.unique(counts, axis=0)) > 60
    found = cluster(table(counts))
    assert found.size == 6
    assert adjusted_rand_score(types, found.labels) > 0.99


def test_types_of_a_seventh_survive(simulated, healthy):
    sizes = [cluster(simulated(healthy, seed).table).size for seed in range(6)]
    assert min(sizes) >= 7


@pytest.mark.parametrize("rare", range(6))
def test_a_type_of_every_fifteenth_execution_survives(rare):
    counts, types = six_types(1500, seed=3)
    kept = np.flatnonzero((types != rare) | (np.cumsum(types == rare) <= 90))
    found = cluster(table(counts[kept]))
    assert found.size == 6
    assert adjusted_rand_score(types[kept], found.labels) > 0.99


def test_repetitions_share_what_is_said_of_them_and_are_visited_in_a_row():
    counts, _ = six_types(600, seed=1)
    found = cluster(table(counts))
    which = np.unique(counts, axis=0, return_inverse=True)[1].reshape(-1)
    for values in (found.labels, found.raw_labels, found.weak):
        assert len(np.unique(np.column_stack([which, values]), axis=0)) == which.max() + 1
    visits = which[found.ordering]
    assert np.count_nonzero(np.diff(visits)) == which.max()
    # Into a vector it is as far as it is; from one of its executions to the next, no more.
    plot = found.reachability[found.ordering]
    again = np.diff(visits, prepend=-1) == 0
    assert (
        plot[again] <= plot[np.maximum.accumulate(np.where(again, 0, np.arange(600)))[again]]
    ).all()
    assert np.isinf(found.reachability[found.ordering[0]])


def test_one_count_more_or_less_is_no_boundary():
    """Density within one standard deviation of a count says nothing."""
    rng = np.random.default_rng(2)
    counts = np.column_stack([rng.poisson(9, 4000), rng.poisson(100, 4000)])
    assert cluster(table(counts)).size == 1


def test_noise_joins_its_nearest_cluster_and_is_marked():
    rng = np.random.default_rng(1)
    rows = [*rng.poisson(4, (40, 2)), *rng.poisson(100, (40, 2)), [60, 20]]
    found = cluster(table(rows))
    assert found.weak[-1]
    assert (found.weak == (found.raw_labels < 0)).all()
    assert found.labels[-1] in found.labels[:-1]
    assert any("nearest neighbour" in note for note in word_all(found.notes))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((0, 2)),
        [[3, 1]],
        [[3, 1]] * 50,
        [[3, 1], [3, 2]],
        [[1, 1], [1, 1], [50, 50]],
        [[0, 0]] * 9 + [[1000, 0]],
        [[2**i, 0] for i in range(12)],
        [[3, 1]] * 10_000 + [[80, 0]],
        [[i, 0] for i in range(200)],
    ],
)
def test_degenerate_sets(method, rows):
    found = cluster(table(np.reshape(rows, (-1, 2))), method=method)
    assert len(found.labels) == len(rows)
    assert found.size == (0 if len(rows) == 0 else found.labels.max() + 1)
    assert (found.labels >= 0).all()
    assert sorted(found.ordering) == list(range(len(rows)))
    for normal in (table([[3, 1]]), table([[3, 1]] * 9 + [[90, 0]] * 9)):
        ours = cluster(normal, method=method)
        guided = cluster_sample(table(np.reshape(rows, (-1, 2))), normal, ours, method=method)
        pairs = pair(normal, ours, table(np.reshape(rows, (-1, 2))), guided)
        assert len(guided.labels) == len(rows)
        assert len(pairs.pair) == guided.size
        assert np.isnan(pairs.score).all() == (ours.size == 1 or len(rows) == 0)


def test_no_symbol_at_all_is_one_type():
    empty = VectorTable((), np.zeros((4, 0), np.int64), np.zeros((4, 0), np.int64))
    assert cluster(empty).labels.tolist() == [0, 0, 0, 0]


def test_two_identical_groups_are_two_types_without_a_warning():
    assert cluster(table([[1, 0]] * 20 + [[9, 9]] * 20)).size == 2


def test_unknown_method_and_settings_are_refused():
    with pytest.raises(ValueError, match="kmeans"):
        cluster(table([[1], [2]]), method="kmeans")
    with pytest.raises(ValueError, match="min_samples"):
        cluster(table([[1], [2]]), min_samples=1)
    with pytest.raises(ValueError, match="resolution"):
        cluster(table([[1], [2]]), resolution=-1)


def test_a_small_sample_keeps_its_types_apart(simulated, healthy, faulty):
    """Eleven executions of seven types: density alone merges them (measured)."""
    mixed_clusters = merged = 0
    for seed in range(5):
        normal = simulated(healthy, seed)
        sample = simulated(faulty("read", "none"), 100 + seed)
        types = np.array(sample.types)
        guided = cluster_sample(sample.table, normal.table, cluster(normal.table))
        alone = cluster(sample.table)
        mixed_clusters += sum(len(set(types[guided.labels == c])) > 1 for c in range(guided.size))
        merged += sum(len(set(types[alone.labels == c])) > 1 for c in range(alone.size))
    assert mixed_clusters <= 3 < merged


@given(
    st.lists(st.tuples(*[st.integers(0, 40)] * 3), min_size=1, max_size=20),
    st.randoms(use_true_random=False),
)
def test_sample_clusters_do_not_depend_on_order(rows, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    normal = table([[1, 0, 0]] * 10 + [[20, 20, 0]] * 10 + [[3, 0, 9]] * 10)
    types = cluster(normal)
    one = cluster_sample(table(rows), normal, types)
    other = cluster_sample(table([rows[i] for i in order]), normal, types)
    assert (other.labels == one.labels[order]).all()
