"""The paper's two rules, in integers, with their corner cases."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import fisher_exact

from critpath.detect.coarse import Y_REFERENCES, _measure_sides, _Pool, algorithm1
from critpath.text.notes import word_all


def column(*values):
    return np.array(values, np.int64)[:, None]


def test_average_rule_uses_the_sample_standard_deviation():
    normal = column(10, 20, 30)  # mean 20, std 10 with ddof 1
    assert algorithm1(normal, column(36), t1=1.5).average_fires.tolist() == [True]
    found = algorithm1(normal, column(35), t1=1.5)
    assert found.average_fires.tolist() == [False]
    assert found.average_threshold == pytest.approx([35.0])


def test_one_normal_execution_skips_the_average_rule_and_says_so():
    found = algorithm1(column(10), column(10**9))
    assert found.average_threshold is None
    assert not found.average_fires.any()
    assert any("average rule skipped" in note for note in word_all(found.notes))


def test_equal_values_are_never_above_their_own_mean():
    """0.1-like means round: 3 * 33333333333333333 does not survive a float mean."""
    value = 33_333_333_333_333_333
    found = algorithm1(column(*[value] * 3), column(*[value] * 5), t2=1.5)
    assert found.normal_above.tolist() == [0]
    assert found.sample_above.tolist() == [0]
    assert not found.probability_fires.any()
    assert not found.average_fires.any()


def test_values_beyond_the_product_overflow():
    big = 4 * 10**17
    found = algorithm1(column(*[big] * 20), column(big + 1), t2=1.5)
    assert found.new_state.tolist() == [True]
    assert found.sample_above.tolist() == [1.0]


def test_a_state_never_seen_is_new_and_fires_at_once():
    found = algorithm1(column(0, 0, 0), column(0, 0, 0, 5), t2=3.0)
    assert found.new_state.tolist() == [True]
    assert found.probability_fires.tolist() == [True]
    gone = algorithm1(column(0, 4, 0), column(0, 0), t2=1.5)
    assert not gone.new_state.any()
    assert not gone.probability_fires.any()


def test_probability_rule_compares_shares():
    normal = column(1, 1, 1, 9)  # p1 = 1/4
    assert algorithm1(normal, column(1, 9, 1, 9, 1), t2=1.5).probability_fires.tolist() == [True]
    assert algorithm1(normal, column(1, 9, 1, 1), t2=1.5).probability_fires.tolist() == [False]


def test_the_pseudo_codes_reference_is_blind_to_a_shift():
    rng = np.random.default_rng(4)
    normal = np.rint(rng.lognormal(8, 0.3, (300, 1)) * 1000).astype(np.int64)
    sample = np.rint(rng.lognormal(8, 0.3, (300, 1)) * 1500).astype(np.int64)
    assert algorithm1(normal, sample, t2=1.5, y_reference="a1").probability_fires.all()
    assert not algorithm1(normal, sample, t2=1.5, y_reference="a2").probability_fires.any()


def test_auto_is_fishers_exact_test():
    rng = np.random.default_rng(8)
    normal = rng.integers(0, 9, (40, 6))
    sample = rng.integers(0, 12, (25, 6))
    found = algorithm1(normal, sample, alpha=0.2)
    for i in range(6):
        x, y = round(found.normal_above[i] * 40), round(found.sample_above[i] * 25)
        p = fisher_exact([[y, 25 - y], [x, 40 - x]], alternative="greater").pvalue
        assert found.probability_fires[i] == (p <= 0.2 / 6)


def test_a_factor_that_can_never_fire_is_said():
    found = algorithm1(column(1, 9), column(9, 9), t2=2.0, names=("RUN",))
    assert not found.probability_fires.any()
    assert any("can never fire for RUN" in note for note in word_all(found.notes))
    assert not algorithm1(column(1, 1, 9), column(9, 9), t2=2.0, names=("RUN",)).notes


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="a3"):
        algorithm1(column(1), column(1), y_reference="a3")
    with pytest.raises(ValueError, match="t2"):
        algorithm1(column(1), column(1), t2=0)
    with pytest.raises(ValueError, match="both sets"):
        algorithm1(np.zeros((0, 1), np.int64), column(1))


@pytest.mark.parametrize("reference", Y_REFERENCES)
@pytest.mark.parametrize(("many", "chosen"), [(2, 1), (9, 8), (60, 20), (301, 7)])
def test_a_split_of_a_pool_is_looked_at_as_two_sets(reference, many, chosen):
    """Without a copy of the larger side: the same counts, the same means and spreads."""
    rng = np.random.default_rng(many)
    columns = rng.integers(0, 10**9, (4, many))
    columns[1] = 5
    columns[2] *= rng.random(many) < 0.1
    mine = np.array([np.sort(rng.permutation(many)[:chosen]) for _ in range(5)])
    found = _Pool.of(columns).divide(mine, reference)
    for i, rows in enumerate(mine):
        rest = np.setdiff1d(np.arange(many), rows)
        expected = _measure_sides(columns.T[rest], columns.T[rows], reference)
        assert (found.n, found.m) == (expected.n, expected.m)
        for name in ("x", "y", "mean", "sample_mean"):
            assert getattr(found, name)[i].tolist() == getattr(expected, name).tolist()
        assert found.std[i] == pytest.approx(expected.std, rel=1e-9, abs=1e-7 * np.ptp(columns))
