"""Assignments: all of them once, or subsets that are equally likely; sums as if one by one."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest

from critpath.stats._subsets import draw
from critpath.stats.permutations import (
    Assignments,
    Strata,
    Together,
    count_ways,
    family_of,
    gate,
    gates,
)


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


@pytest.mark.parametrize(("n", "k"), [(12, 5), (12, 11), (200, 100), (500, 40), (2_000, 1_500)])
def test_members_of_large_subsets_are_as_often_together_as_apart(n, k):
    """Every member, and every pair of neighbours, comes as often as chance has it."""
    marked = np.zeros((20_000, n), np.uint8)
    draw(np.random.default_rng(4).integers(0, 1 << 64, len(marked), np.uint64), k, marked)
    assert (marked.sum(axis=1) == k).all()
    for found, share in (
        (marked, k / n),
        (marked[:, 1:] & marked[:, :-1], k / n * (k - 1) / (n - 1)),
        (marked[:, 8:] & marked[:, :-8], k / n * (k - 1) / (n - 1)),
    ):
        deviation = math.sqrt(share * (1 - share) / len(marked))
        assert np.abs(found.mean(axis=0) - share).max() < 5 * deviation


def test_what_cannot_be_drawn_is_refused():
    marked = np.zeros((3, 4), np.uint8)
    for k, rows in ((-1, 3), (5, 3), (2, 2), (2, 4)):
        with pytest.raises(ValueError, match="k from 0 to n"):
            draw(np.zeros(rows, np.uint64), k, marked)
    draw(np.zeros(3, np.uint64), 4, marked)
    assert marked.all()
    draw(np.zeros(3, np.uint64), 0, marked)
    assert not marked.any()
    draw(np.zeros(3, np.uint64), 0, np.zeros((3, 0), np.uint8))


def test_tests_that_are_made_together_are_each_what_it_is_alone():
    """Where all assignments are looked at, so that none depends on chance."""
    rng = np.random.default_rng(5)
    sides = [rng.integers(0, 50, (of, 5)) for of in (7, 4)]
    strata = np.array([0, 0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 1])
    parts = [[side[:, of] for side in sides] for of in (slice(2), slice(2, 5))]
    levels = (0.3, 0.02)
    both = gates(
        [Together(*part, level) for part, level in zip(parts, levels, strict=True)],
        *strata, permutations=99,
    )  # fmt: skip
    for found, part, level in zip(both, parts, levels, strict=True):
        alone = gate(*part, *strata, alpha=level, permutations=99)
        assert alone.exact
        assert found.p_value.tolist() == alone.p_value.tolist()
        assert found.stratum_p_value.tolist() == alone.stratum_p_value.tolist()
        # Sums of columns side by side may end in another bit.
        assert found.critical == pytest.approx(alone.critical, rel=1e-12)
        assert found.permutations == alone.permutations


def test_scoring_types_takes_little_more_memory_than_their_scores():
    """Three of every value: of many types together, a copy of the values would be one too many."""
    rng = np.random.default_rng(1)
    values = rng.exponential(size=(150_000, 4))
    kind, sample = np.arange(len(values)) % 50, np.arange(len(values)) < 5_000
    strata = Strata.of(kind[~sample], kind[sample])
    tracemalloc.start()
    family = family_of(values, strata, None, 0.01, rng)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(map(len, family.units)) == len(values)
    assert most < 3.75 * values.nbytes
