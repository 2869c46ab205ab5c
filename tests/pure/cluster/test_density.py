"""OPTICS on distinct vectors: what scikit-learn says of all executions one by one."""

from __future__ import annotations

import importlib.util
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import OPTICS, cluster_optics_dbscan, cluster_optics_xi

from critpath.cluster.optics import cluster, steep_clusters
from critpath.cluster.space import core_distances, density, distinct, stabilise
from critpath.model import State, Symbol, VectorTable

SPEC = importlib.util.spec_from_file_location(
    "optics_twin", Path(__file__).parents[2] / "oracle" / "optics.py"
)
TWIN = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(TWIN)


def peer(space, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, of equal rows
        return OPTICS(**parameters).fit(space)


def lattice(rows):
    """Whole numbers: their distances tie, and are exact in any order of summing."""
    return np.unique(np.array(rows, float), axis=0)


def of_all(points, min_samples):
    """OPTICS of points in any order, however many of them are equal."""
    once = distinct(points)
    rows = np.argsort(once.member, kind="stable")
    found = density(points[once.row], once.weight, min_samples, rows)
    assert found.member.tolist() == once.member.tolist()
    return found


def check(space, min_samples, size, xi):
    """Hold every array, and the clusters, against scikit-learn's of all points."""
    expected = peer(space, min_samples=min_samples, min_cluster_size=size, xi=xi)
    found = of_all(space, min_samples)
    assert found.ordering.tolist() == expected.ordering_.tolist()
    assert found.predecessor.tolist() == expected.predecessor_.tolist()
    np.testing.assert_allclose(found.reachability, expected.reachability_, rtol=0, atol=1e-12)
    core = found.core[found.member]
    np.testing.assert_allclose(core, expected.core_distances_, rtol=0, atol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels, _ = cluster_optics_xi(
            reachability=found.reachability,
            predecessor=found.predecessor,
            ordering=found.ordering,
            min_samples=min_samples,
            min_cluster_size=size,
            xi=xi,
        )
    assert labels.tolist() == expected.labels_.tolist()
    eps = float(np.median(core)) + 0.5
    cut, expected_cut = (
        cluster_optics_dbscan(reachability=r, core_distances=c, ordering=o, eps=eps).tolist()
        for r, c, o in (
            (found.reachability, core, found.ordering),
            (expected.reachability_, expected.core_distances_, expected.ordering_),
        )
    )
    assert cut == expected_cut
    if len(found.core) == len(space):
        own = steep_clusters(found, xi=xi, min_samples=min_samples, min_cluster_size=size)
        assert own[found.member].tolist() == expected.labels_.tolist()


UNIQUE = (
    st.lists(st.tuples(*[st.integers(0, 7)] * 3), min_size=8, max_size=70, unique=True),
    st.integers(2, 6),
    st.integers(2, 8),
    st.sampled_from([0.01, 0.05, 0.2]),
)
REPEATED = (
    st.lists(st.tuples(*[st.integers(0, 3)] * 2), min_size=8, max_size=90),
    st.integers(2, 9),
    st.integers(2, 8),
    st.sampled_from([0.01, 0.05, 0.2]),
)


def check_in_any_order(rows, min_samples, size, xi):
    """Who is first of equals depends on where the executions stand."""
    check(np.array(rows, float), min(min_samples, len(rows)), size, xi)


@given(*UNIQUE)
def test_without_repetitions_it_is_scikit_learns_with_ties(rows, min_samples, size, xi):
    check(lattice(rows), min_samples, size, xi)


@given(*REPEATED)
def test_with_many_repetitions_it_is_scikit_learns_of_all(rows, min_samples, size, xi):
    check_in_any_order(rows, min_samples, size, xi)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.floats(-3, 3, width=16)), min_size=2, max_size=40),
    st.integers(2, 6),
)
def test_it_is_its_plain_twin_to_the_last_bit(rows, min_samples):
    points = np.array(rows + rows[::3], float) + 0.0  # -0.0 and 0.0 are equal, and one row
    expected = TWIN.optics(points.tolist(), min(min_samples, len(points)))
    found = of_all(points, min(min_samples, len(points)))
    assert found.ordering.tolist() == expected[0]
    assert found.reachability.tolist() == expected[1]
    assert found.predecessor.tolist() == expected[2]
    assert found.core[found.member].tolist() == expected[3]


@pytest.mark.parametrize("seed", range(30))
def test_without_repetitions_it_is_scikit_learns(seed):
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 6, (int(rng.integers(1, 6)), int(rng.integers(1, 14))))
    points = centres[rng.integers(0, len(centres), int(rng.integers(9, 200)))]
    points += rng.normal(size=points.shape)
    # Squares of such numbers add up exactly: scikit-learn computes core distances and
    # distances in two ways, and which is nearer must not hang on their last bits.
    check(np.round(points * 1024) / 1024, int(rng.integers(2, 9)), 5 + seed % 5, 0.05)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (2, 3))]
)
def test_counts_of_a_medium_set_are_ordered_as_by_scikit_learn(seed):
    """As the product has them: roots of counts, types, some executions unlike all others."""
    rng = np.random.default_rng(seed)
    mean = np.exp(rng.normal(0.5, 1.0, (6, 12)))
    paths = rng.poisson(mean[np.arange(300) % 6])
    share = rng.pareto(1.0, 300) + 0.05
    counts = paths[rng.choice(300, 700, p=share / share.sum())]
    counts[::50] += rng.poisson(9, (14, 12))
    assert 100 < len(np.unique(counts, axis=0)) < 300
    check(stabilise(counts), 5, 35, 0.05)


def test_memory_is_that_of_the_vectors_and_not_of_their_pairs():
    rng = np.random.default_rng(0)
    space = rng.normal(size=(4000, 6))
    tracemalloc.start()
    density(space, np.ones(4000, np.int64), 5)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4000 * 4000  # an eighth of all distances


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 12)),
        min_size=2,
        max_size=25,
        unique_by=lambda row: row[:2],
    ),
    st.integers(2, 6),
)
def test_core_distances_are_those_of_executions_one_by_one(rows, min_samples):
    rows = np.array(sorted(rows))
    space, weight = rows[:, :2].astype(float), rows[:, 2]
    if weight.sum() < min_samples:
        return
    every = peer(np.repeat(space, weight, axis=0), min_samples=min_samples).core_distances_
    core = core_distances(space, weight, min_samples)
    np.testing.assert_allclose(np.repeat(core, weight), every, rtol=0, atol=1e-12)


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
    ours = steep_clusters(found, xi=0.05, min_samples=2, min_cluster_size=12, floor=floor)
    theirs, _ = cluster_optics_xi(
        reachability=np.maximum(found.reachability, floor),
        predecessor=found.predecessor,
        ordering=found.ordering,
        min_samples=2,
        min_cluster_size=12,
        xi=0.05,
    )
    # An execution that scikit-learn separates from its equals goes where most of them are.
    for vector in range(32):
        assert ours[vector] in theirs[found.member == vector][1:]


def test_a_block_of_any_width_takes_one_step():
    space = np.array([[0.0], [10.0], [30.0], [31.0]])
    weight = np.array([10**5, 10**5, 3, 10**5])
    found = density(space, weight, 5)
    assert found.core.tolist() == [0, 0, 1, 0]
    labels = steep_clusters(found, xi=0.05, min_samples=5, min_cluster_size=100, floor=1.0)
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
