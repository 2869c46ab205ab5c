"""Effect sizes: what is exact in them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from critpath.detect.effects import effects
from critpath.detect.gate import compare_runs


def test_a_huge_outlier_leaves_the_other_columns_as_they_are():
    rng = np.random.default_rng(4)
    one = np.zeros(60, np.int64)
    normal = np.column_stack([rng.integers(1000, 1100, 60), rng.integers(1, 50, 60)])
    sample = np.column_stack([rng.integers(1040, 1140, 60), rng.integers(1, 50, 60)])
    outlier = sample.copy()
    outlier[7, 1] = 2**60
    usual, beside = (
        effects(normal, each, one, one, 1, replicates=199) for each in (sample, outlier)
    )
    assert usual.low[0] > 0
    # The rows are taken in another order only where the first column has equal ones.
    assert np.allclose([beside.low[0], beside.high[0]], [usual.low[0], usual.high[0]], rtol=0.2)
    assert beside.low[0] % 1 != 0
    assert beside.sample_mean[0] == usual.sample_mean[0]


# Runs whose executions share what a neighbour does.


def drawn_runs(rng, runs, size, *, shift=0.0, shared=1.0):
    """Return durations [runs * size, 1] and their runs; executions of a run share a part."""
    run = np.repeat(np.arange(runs), size)
    values = rng.normal(0, 1, runs * size) + shared * rng.standard_exponential(runs)[run] + shift
    return values[:, None], run


def test_runs_that_a_neighbour_met_are_no_change():
    rng = np.random.default_rng(1)
    sets = [(drawn_runs(rng, 5, 6), drawn_runs(rng, 5, 6)) for _ in range(400)]
    p = [compare_runs(x, y, ours, theirs)[0] for (x, ours), (y, theirs) in sets]
    assert np.mean(np.array(p) <= 0.01) <= 0.02
    found = [
        compare_runs(x, y, ours, theirs)[0]
        for (x, ours), (y, theirs) in (
            (drawn_runs(rng, 5, 6), drawn_runs(rng, 5, 6, shift=6.0)) for _ in range(100)
        )
    ]
    assert np.mean(np.array(found) <= 0.01) >= 0.9


def test_one_slow_run_does_not_hide_that_all_are_slower():
    ours = np.array([[1.0], [2.0], [3.0], [2.5], [1.5]])
    theirs = np.array([[5.0], [6.0], [5.5], [6.5], [900.0]])
    runs = np.arange(5)
    assert compare_runs(ours, theirs, runs, runs)[0] == pytest.approx(2 / 252)
    assert compare_runs(theirs, ours, runs, runs)[0] == 1.0


def test_ranks_of_many_runs_are_as_scipys():
    rng = np.random.default_rng(2)
    ours, theirs = rng.normal(0, 1, (30, 1)), rng.standard_cauchy((25, 1)) + 1
    expected = stats.mannwhitneyu(
        theirs[:, 0], ours[:, 0], alternative="greater", method="asymptotic", use_continuity=False
    )
    found = compare_runs(ours, theirs, np.arange(30), np.arange(25))[0]
    welch = stats.ttest_ind(theirs[:, 0], ours[:, 0], equal_var=False, alternative="greater")
    assert found == pytest.approx(2 * min(expected.pvalue, welch.pvalue), rel=0.05)
