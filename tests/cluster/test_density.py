"""OPTICS of distinct vectors: scikit-learn's, and the same as of executions one by one."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import OPTICS, cluster_optics_xi

from critpath.cluster.density import core_distances, density
from critpath.cluster.optics import cluster
from critpath.cluster.steepness import steep_clusters
from critpath.model import State, Symbol, VectorTable


def peer(space, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, of equal rows
        return OPTICS(**parameters).fit(space)


def lattice(rows):
    """Whole numbers: their distances tie, and are exact in any order of summing."""
    return np.unique(np.array(rows, float), axis=0)


def check(space, min_samples, size, xi):
    ones = np.ones(len(space), np.int64)
    expected = peer(space, min_samples=min_samples, min_cluster_size=size, xi=xi)
    found = density(space, ones, min_samples)
    assert found.ordering.tolist() == expected.ordering_.tolist()
    assert found.predecessor.tolist() == expected.predecessor_.tolist()
    assert found.reachability == pytest.approx(expected.reachability_, rel=0, abs=1e-12)
    assert found.core == pytest.approx(expected.core_distances_, rel=0, abs=1e-12)
    labels = steep_clusters(found, ones, xi=xi, min_samples=min_samples, min_cluster_size=size)
    assert labels.tolist() == expected.labels_.tolist()


@given(
    st.lists(st.tuples(*[st.integers(0, 7)] * 3), min_size=8, max_size=70, unique=True),
    st.integers(2, 6),
    st.integers(2, 8),
    st.sampled_from([0.01, 0.05, 0.2]),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_without_repetitions_it_is_scikit_learns_with_ties(rows, min_samples, size, xi):
    check(lattice(rows), min_samples, size, xi)


@pytest.mark.parametrize("seed", range(30))
def test_without_repetitions_it_is_scikit_learns(seed):
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 6, (int(rng.integers(1, 6)), int(rng.integers(1, 14))))
    points = centres[rng.integers(0, len(centres), int(rng.integers(9, 200)))]
    points += rng.normal(size=points.shape)
    # Squares of such numbers add up exactly: scikit-learn computes core distances and
    # distances in two ways, and which is nearer must not hang on their last bits.
    check(np.round(points * 1024) / 1024, int(rng.integers(2, 9)), 5 + seed % 5, 0.05)


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 12)),
        min_size=2,
        max_size=25,
        unique_by=lambda row: row[:2],
    ),
    st.integers(2, 6),
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_core_distances_are_those_of_executions_one_by_one(rows, min_samples):
    rows = np.array(sorted(rows))
    space, weight = rows[:, :2].astype(float), rows[:, 2]
    if weight.sum() < min_samples:
        return
    every = peer(np.repeat(space, weight, axis=0), min_samples=min_samples).core_distances_
    core = core_distances(space, weight, min_samples)
    assert np.repeat(core, weight) == pytest.approx(every, rel=0, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_heavy_vectors_are_ordered_as_executions_one_by_one(seed):
    """With min_samples executions everywhere no core distances tie, and all is determined."""
    rng = np.random.default_rng(seed)
    space = rng.normal(size=(30, 3))
    weight = rng.integers(4, 12, 30)
    found = density(space, weight, 4)
    every = peer(np.repeat(space, weight, axis=0), min_samples=4)
    of = np.repeat(np.arange(30), weight)[every.ordering_]
    assert of[np.flatnonzero(np.diff(of, prepend=-1))].tolist() == found.ordering.tolist()
    plot = every.reachability_[every.ordering_]
    first = np.flatnonzero(np.diff(of, prepend=-1))
    assert plot[first] == pytest.approx(found.reachability[found.ordering], rel=0, abs=1e-12)
    assert not np.delete(plot, first).any()


@pytest.mark.parametrize("seed", range(20))
def test_clusters_of_heavy_vectors_are_those_of_executions_one_by_one(seed):
    """Bars with widths say what scikit-learn reads from a bar for every execution."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 8, (4, 2))
    space = np.repeat(centres, 8, axis=0) + rng.normal(size=(32, 2))
    weight = rng.integers(2, 7, 32)
    floor = 0.3  # scikit-learn would divide by the reachability of equal executions
    found = density(space, weight, 2)
    assert not found.core.any()
    ours = steep_clusters(found, weight, xi=0.05, min_samples=2, min_cluster_size=12, floor=floor)
    n = int(weight.sum())
    begin = np.cumsum(weight[found.ordering]) - weight[found.ordering]
    start = np.empty(32, int)
    start[found.ordering] = begin
    plot = np.full(n, floor)
    plot[begin] = np.maximum(found.reachability[found.ordering], floor)
    before = np.repeat(begin, weight[found.ordering])
    outside = found.predecessor[found.ordering]
    before[begin] = np.where(outside >= 0, start[outside], -1)
    theirs, _ = cluster_optics_xi(
        reachability=plot,
        predecessor=before,
        ordering=np.arange(n),
        min_samples=2,
        min_cluster_size=12,
        xi=0.05,
    )
    # An execution that scikit-learn separates from its equals goes where most of them are.
    for vector in range(32):
        votes = theirs[start[vector] + 1 : start[vector] + weight[vector]]
        assert ours[vector] in votes


def test_a_block_of_any_width_takes_one_step():
    space = np.array([[0.0], [10.0], [30.0], [31.0]])
    weight = np.array([10**9, 10**9, 3, 10**9])
    found = density(space, weight, 5)
    assert found.core.tolist() == [0, 0, 1, 0]
    labels = steep_clusters(found, weight, xi=0.05, min_samples=5, min_cluster_size=100, floor=1.0)
    assert labels.tolist() == [0, 1, 2, 2]


def test_repeated_vectors_are_valleys_in_the_plot():
    counts = np.repeat([[4, 1], [9, 30]], 6, axis=0)
    table = VectorTable(
        (Symbol(State.RUN), Symbol(State.WAIT_DISK)), counts, counts * 1000, counts
    )  # fmt: skip
    found = cluster(table)
    plot = found.reachability[found.ordering]
    assert plot[0] == np.inf
    assert plot[6] > 1
    assert not np.delete(plot, [0, 6]).any()
