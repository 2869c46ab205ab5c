"""Effect sizes: what is exact in them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from critpath.detect.comparability import exchangeable
from critpath.stats.means import compare_runs, compare_runs_by_stratum, effects
from critpath.stats.permutations import gate


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


def test_the_interval_of_many_executions_is_as_wide_as_resampling_each_makes_it(override):
    rng = np.random.default_rng(5)
    sets = [rng.lognormal(10, 0.7, (n, 2)).astype(np.int64) for n in (3_100, 2_300)]
    sets[1][:, 1] = np.where(rng.random(2_300) < 0.01, 10**7, 0)
    types = [np.arange(len(each)) % 2 for each in sets]
    groups, single = (
        (override("permutations.units", units), effects(*sets, *types, 1))[1]
        for units in (500, 10_000)
    )
    assert groups.sample_mean.tolist() == single.sample_mean.tolist()
    assert np.allclose(groups.high - groups.low, single.high - single.low, rtol=0.15)
    middles = (groups.high + groups.low) / 2, (single.high + single.low) / 2
    # Of 999 draws an end varies by a twentieth of that, as of another seed.
    assert np.allclose(*middles, atol=0.1 * float((single.high - single.low).max()))


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


@pytest.mark.deep
def test_the_interval_of_runs_has_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(7)
    covered, alone = [], []
    for i in range(100):
        sets = [drawn_runs(rng, 8, 40, shift=10.0), drawn_runs(rng, 8, 40, shift=11.0)]
        values = [(1000 * each).astype(np.int64) for each, _ in sets]
        one = [np.zeros(len(each), np.int64) for each in values]
        runs = sets[0][1], sets[1][1]
        with_runs, without = (
            effects(*values, *one, i, replicates=199, runs=r) for r in (runs, None)
        )
        covered.append(with_runs.low[0] <= 1000 <= with_runs.high[0])
        alone.append(without.low[0] <= 1000 <= without.high[0])
        assert with_runs.low[0] <= without.low[0]
        assert with_runs.high[0] >= without.high[0]
    assert np.mean(covered) >= 0.92
    assert np.mean(alone) <= 0.6


def test_one_slow_run_does_not_hide_that_all_are_slower():
    ours = np.array([[1.0], [2.0], [3.0], [2.5], [1.5]])
    theirs = np.array([[5.0], [6.0], [5.5], [6.5], [900.0]])
    runs = np.arange(5)
    assert compare_runs(ours, theirs, runs, runs)[0] == pytest.approx(2 / 252)
    assert compare_runs(theirs, ours, runs, runs)[0] == 1.0


def drawn_requests(rng, runs, size, *, factor=1.0, outliers=0):
    """Return durations in ns [runs * size, 2], the total last, and their runs."""
    run = np.repeat(np.arange(runs), size)
    times = factor * rng.lognormal(0, 0.03, runs)[run] * rng.lognormal(0, 0.05, runs * size)
    times[:outliers] *= 30
    return np.rint(1e6 * np.column_stack([times / 2, times])).astype(np.int64), run


def test_one_outlier_among_the_executions_of_runs_hides_no_change():
    """All 24 take longer than all 24 before, one of them very long: three runs a side tell."""
    rng = np.random.default_rng(3)
    one = np.zeros(24, np.int64), np.zeros(24, np.int64)
    for outliers in (0, 1):
        (x, ours), (y, theirs) = (
            drawn_requests(rng, 3, 8),
            drawn_requests(rng, 3, 8, factor=1.6, outliers=outliers),
        )
        assert x[:, 1].max() < y[:, 1].min()
        assert compare_runs_by_stratum(x, y, one, (ours, theirs))[0][-1] <= 0.01


def test_few_runs_that_do_not_vary_alike_are_held_to_their_own_spread():
    ours = np.array([[1.0], [1.01], [0.99]])
    theirs = np.array([[1.1], [3.0], [1.2]])
    runs = np.arange(3)
    same = ours, theirs
    welch = stats.ttest_ind(theirs, ours, equal_var=False, alternative="greater").pvalue[0]
    assert compare_runs(ours, theirs, runs, runs, same)[0] >= 2 * welch * 0.9


def test_runs_of_outliers_are_no_change():
    rng = np.random.default_rng(5)
    found = []
    for _ in range(400):
        (x, ours), (y, theirs) = (
            drawn_requests(rng, 3, 8, outliers=int(rng.integers(0, 3))) for _ in range(2)
        )
        one = np.zeros(24, np.int64), np.zeros(24, np.int64)
        found.append(compare_runs_by_stratum(x, y, one, (ours, theirs))[0][-1])
    assert np.mean(np.array(found) <= 0.01) <= 0.02


def test_ranks_of_many_runs_are_as_scipys():
    rng = np.random.default_rng(2)
    ours, theirs = rng.normal(0, 1, (30, 1)), rng.standard_cauchy((25, 1)) + 1
    expected = stats.mannwhitneyu(
        theirs[:, 0], ours[:, 0], alternative="greater", method="asymptotic", use_continuity=False
    )
    found = compare_runs(ours, theirs, np.arange(30), np.arange(25))[0]
    welch = stats.ttest_ind(theirs[:, 0], ours[:, 0], equal_var=False, alternative="greater")
    assert found == pytest.approx(2 * min(expected.pvalue, welch.pvalue), rel=0.05)


# Blocks whose order a coin chose.


def drawn_blocks(rng, count, level, *, coin=None, shift=0):
    """Return the durations of both sets, slots in turn, and the blocks of each."""
    order = "".join(coin or rng.choice(["ABBA", "BAAB"]) for _ in range(count))
    side = np.array([which == "B" for which in order])
    values = rng.normal(100_000, 1_000, 4 * count) + level[: 4 * count] + shift * side
    rows = np.rint(values).astype(np.int64)[:, None]
    block = np.arange(4 * count) // 4
    return (rows[~side], rows[side]), (block[~side], block[side])


def p_value(sets, blocks):
    strata = [np.zeros(len(rows), np.int64) for rows in sets]
    return gate(*sets, *strata, alpha=0.01, permutations=999, blocks=blocks).p_value[0]


def test_what_comes_back_every_four_runs_is_no_change_where_a_coin_chose_the_order():
    rng = np.random.default_rng(5)
    level = 5_000 * np.tile([1.0, -1.0, -1.0, 1.0], 12)

    def alarms(coin):
        drawn = (drawn_blocks(rng, 12, rng.choice([-1, 1]) * level, coin=coin) for _ in range(300))
        return np.mean([p_value(sets, blocks) <= 0.01 for sets, blocks in drawn])

    assert alarms(None) <= 0.02
    assert alarms("ABBA") >= 0.4  # without the coin it is one, in one direction


def test_what_blocks_share_hides_no_change():
    rng = np.random.default_rng(6)
    level = np.repeat(rng.normal(0, 50_000, 16), 4)  # far more than the change
    sets, blocks = drawn_blocks(rng, 16, level, shift=10_000)
    strata = [np.zeros(len(rows), np.int64) for rows in sets]
    assert p_value(sets, blocks) <= 0.001
    by_block = effects(*sets, *strata, 1, blocks=blocks)
    by_execution = effects(*sets, *strata, 1)
    assert by_block.sample_mean - by_block.normal_mean == pytest.approx(10_000, rel=0.1)
    assert 8_500 < by_block.low[0] < by_block.high[0] < 11_500
    assert by_block.error[0] < 600
    assert by_execution.error[0] > 5_000
    # How blocks are numbered, and the order of executions, do not matter.
    other = [np.array([99 - n for n in each.tolist()]) for each in blocks]
    again = effects(*(rows[::-1] for rows in sets), *strata, 1, blocks=[b[::-1] for b in other])
    assert np.allclose([again.low, again.high], [by_block.low, by_block.high])
    assert p_value([rows[::-1] for rows in sets], [b[::-1] for b in other]) == p_value(sets, blocks)


def test_exchanging_blocks_is_counting_by_hand():
    (normal, sample), blocks = drawn_blocks(np.random.default_rng(7), 6, np.zeros(24), shift=3_000)
    means = [
        np.bincount(b, rows[:, 0]) / 2 for rows, b in zip((normal, sample), blocks, strict=True)
    ]
    assert (means[1] > means[0]).all()  # so that of 64 ways only this one reaches it
    assert p_value((normal, sample), blocks) == pytest.approx(1 / 64)
    assert p_value((sample, normal), blocks[::-1]) == 1.0


def test_few_blocks_are_no_test():
    few, many = np.arange(11), np.arange(12)
    assert exchangeable((few, few), 0.004) is None
    assert exchangeable((many, many), 0.004) is not None
    assert exchangeable((many, many + 6), 0.004) is None  # half of them have one side only
    assert exchangeable(None, 0.004) is None
