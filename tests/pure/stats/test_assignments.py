"""Assignments: all of them once, or subsets that are equally likely; sums as if one by one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from critpath.stats.permutations import Assignments, count_ways, mark_smallest


@pytest.mark.parametrize(("n", "k"), [(5, 2), (5, 3), (6, 6), (4, 0), (1, 1), (9, 1), (9, 8)])
def test_every_subset_comes_once_and_is_added_up(n, k):
    scores = 2.0 ** np.arange(n)[:, None]
    plan = Assignments([n], [k])
    found = [plan.sums(picked, [scores])[0][:, 0] for picked in plan.every()]
    expected = [sum(2.0**i for i in c) for c in itertools.combinations(range(n), k)]
    assert sorted(np.concatenate(found)) == sorted(expected)
    assert plan.exact
    assert plan.ways == len(expected)
    assert plan.sums(plan.as_given(), [scores])[0][0, 0] == sum(2.0 ** np.arange(k))


@pytest.mark.parametrize(("n", "k"), [(5, 2), (5, 3), (60, 1), (60, 59)])
def test_drawn_subsets_are_equally_likely(n, k):
    scores = np.eye(n)
    plan = Assignments([n], [k])
    rng = np.random.default_rng(1)
    found = np.concatenate([plan.sums(p, [scores])[0] for p in plan.drawn(rng, 20_000)])
    assert found.shape == (20_000, n)
    assert (found.sum(axis=1) == k).all()
    subsets, counts = np.unique(found, axis=0, return_counts=True)
    assert len(subsets) == math.comb(n, k)
    expected = 20_000 / len(subsets)
    # Chi-square: mean d, standard deviation sqrt(2 d).
    d = len(subsets) - 1
    assert ((counts - expected) ** 2 / expected).sum() < d + 5 * math.sqrt(2 * d)


def test_strata_are_assigned_apart():
    plan = Assignments([3, 4], [1, 2])
    assert plan.ways == 3 * 6
    [picked] = plan.every()
    assert [p.shape for p in picked] == [(18, 1), (18, 2)]
    assert len({(a.tobytes(), b.tobytes()) for a, b in zip(*picked, strict=True)}) == 18


def test_more_ways_than_a_float_holds():
    assert count_ways([(50_000, 50_000)]) == math.inf
    assert count_ways([(2, 2), (3, 0)]) == 6


@pytest.mark.parametrize("unit", [1, 2**-10, 2**-24])
@pytest.mark.parametrize("n", [30, 5_001])
def test_the_smallest_are_marked_and_of_equals_the_first(n, unit):
    """Keys below 1 and beyond, with many equals and with few, on the bounds of buckets."""
    rng = np.random.default_rng(3)
    for levels in (2, 5, 1000, 2**24):
        keys = (rng.integers(0, levels, (40, n)) * unit).astype(np.float32)
        for k in (1, 7, n - 1, n):
            marked = mark_smallest(keys, k)
            order = np.argsort(keys, axis=1, kind="stable")[:, :k]
            expected = np.zeros(keys.shape, bool)
            np.put_along_axis(expected, order, True, axis=1)
            assert marked.tolist() == expected.tolist()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, -1.0, -1e-30, -3e38])
@pytest.mark.parametrize("n", [1, 2, 33, 5_001])
def test_keys_that_have_no_place_are_refused(wrong, n):
    """Wherever they stand, and however many are asked for: nothing is read beside them."""
    for row, column in ((0, 0), (2, n - 1), (1, n // 2)):
        keys = np.full((3, n), 0.5, np.float32)
        keys[row, column] = wrong
        for k in {1, n}:
            with pytest.raises(ValueError, match="finite and not negative"):
                mark_smallest(keys, k)
    everywhere = np.full((3, n), wrong, np.float32)
    with pytest.raises(ValueError, match="finite and not negative"):
        mark_smallest(everywhere, 1)


def test_a_zero_with_a_sign_and_the_largest_keys_are_some():
    keys = np.array([[3e38, -0.0, 1.0, 0.0, 2.0]], np.float32)
    assert mark_smallest(keys, 3).tolist() == [[False, True, True, True, False]]
    assert mark_smallest(keys, 5).all()
