"""Clustering: order cannot matter, nobody is dropped, degenerate sets have an answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from critpath.cluster.optics import METHODS, cluster
from critpath.cluster.sample import cluster_sample
from critpath.model import State, Symbol, VectorTable

NAMES = [Symbol(State.RUN), Symbol(State.WAIT_DISK), Symbol(State.WAIT_TIMER)]


def table(counts, durations=None):
    counts = np.asarray(counts, np.int64)
    durations = counts * 1000 if durations is None else np.asarray(durations, np.int64)
    return VectorTable(tuple(NAMES[: counts.shape[1]]), counts, durations)


@given(
    st.lists(st.tuples(*[st.integers(0, 40)] * 3), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
    st.sampled_from(list(METHODS)),
)
@settings(max_examples=60, deadline=None, derandomize=True)
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


def test_noise_joins_its_nearest_cluster_and_is_marked():
    rng = np.random.default_rng(1)
    rows = [*rng.poisson(4, (40, 2)), *rng.poisson(100, (40, 2)), [60, 20]]
    found = cluster(table(rows))
    assert found.weak[-1]
    assert (found.weak == (found.raw_labels < 0)).all()
    assert found.labels[-1] in found.labels[:-1]
    assert any("nearest neighbour" in note for note in found.notes)


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
    ],
)
def test_degenerate_sets(method, rows):
    found = cluster(table(np.reshape(rows, (-1, 2))), method=method)
    assert len(found.labels) == len(rows)
    assert found.size == (0 if len(rows) == 0 else found.labels.max() + 1)
    assert (found.labels >= 0).all()


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
@settings(max_examples=25, deadline=None, derandomize=True)
def test_sample_clusters_do_not_depend_on_order(rows, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    normal = table([[1, 0, 0]] * 10 + [[20, 20, 0]] * 10 + [[3, 0, 9]] * 10)
    types = cluster(normal)
    one = cluster_sample(table(rows), normal, types)
    other = cluster_sample(table([rows[i] for i in order]), normal, types)
    assert (other.labels == one.labels[order]).all()
