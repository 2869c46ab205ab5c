"""Intervals, and trials that must decide as the gate itself does."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from critpath.detect.calibration import Trial, rate
from critpath.detect.coarse import detect
from critpath.model import State, Symbol, VectorTable

SYMBOLS = tuple(Symbol(s) for s in (State.RUN, State.WAIT_CPU, State.WAIT_TIMER, State.IRQ))
MEANS = np.array([4e6, 1e6, 2e6, 1e5])


@pytest.mark.parametrize(("count", "of"), [(0, 200), (1, 200), (7, 50), (200, 200)])
def test_the_interval_is_clopper_and_pearsons(count, of):
    found = rate(count, of)
    exact = binomtest(count, of).proportion_ci(0.95, method="exact")
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_observations_of_few_units_count_as_few():
    assert rate(100, 200, 2).low < 0.02
    assert rate(100, 200, 2).high > 0.98
    assert rate(0, 200, 3).high == pytest.approx(1 - 0.025 ** (1 / 3))
    assert rate(5, 20, 40) == rate(5, 20)


def tables(rng, n, strata):
    kind = rng.integers(0, strata, n)
    drawn = MEANS * rng.lognormal(0, 0.25, (n, 4)) * (1 + kind[:, None])
    return VectorTable(SYMBOLS, np.ones((n, 4), np.int64), drawn.astype(np.int64)), kind


@pytest.mark.parametrize("strata", [1, 3])
def test_a_trial_decides_as_the_gate_does(strata):
    rng = np.random.default_rng(8)
    decisions = []
    for _ in range(10):
        normal, ours = tables(rng, 60, strata)
        sample, theirs = tables(rng, 30, strata)
        trial = Trial(
            normal, sample, judged=(normal, sample), fold=np.eye(4, dtype=np.int64),
            strata=(ours, theirs), alpha=0.01, floor=0.05, permutations=499,
        )  # fmt: skip
        for column, share in ((0, 0.12), (1, 0.1), (2, 0.3), (3, 0.08)):
            shift = np.zeros((30, 4), np.int64)
            shift[:, column] = round(share * normal.total.mean())
            slower = VectorTable(SYMBOLS, sample.counts, sample.durations + shift)
            expected = detect(
                normal, slower, permutations=499, normal_type=ours, sample_type=theirs,
                screening=False,
            ).flagged  # fmt: skip
            decisions.append((trial.alarms(shift), expected))
    shown = np.array(decisions)
    # Both draw assignments at random: at the edge they may differ.
    assert (shown[:, 0] == shown[:, 1]).mean() >= 0.94
    assert 0.2 < shown[:, 1].mean() < 0.99


def test_nothing_added_is_never_shown_beyond_chance():
    rng = np.random.default_rng(9)
    alarms = 0
    for _ in range(40):
        (normal, ours), (sample, theirs) = tables(rng, 60, 1), tables(rng, 30, 1)
        trial = Trial(
            normal, sample, judged=(normal, sample), fold=np.eye(4, dtype=np.int64),
            strata=(ours, theirs), alpha=0.01, floor=0.0, permutations=599,
        )  # fmt: skip
        alarms += trial.alarms(np.zeros((30, 4), np.int64))
        assert trial.lacking(np.ones((30, 4)))[0] <= trial.lacking(np.ones((30, 4)))[1]
    assert alarms <= 3
