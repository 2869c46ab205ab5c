"""The evidence of blocks: fair bets whatever the machine does, and the order drawn by a coin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.ab.run import block_order
from critpath.schema.parameters.ab import EVIDENCE
from critpath.stats import evidence
from critpath.stats.evidence import (
    BlockEvidence,
    BoundProcess,
    Exceedances,
    ShareProcess,
    TailProcess,
    blocks_to_go,
    confidence_sequence,
    smallest_extra_share,
)

FLOOR = 0.05


def fair_orders(blocks, runs, seed=1):
    """Return [runs, blocks]: whether a block is ABBA, as the command draws it."""
    drawn = [
        [block_order(1000 * seed + run, block) == "ABBA" for block in range(blocks)]
        for run in range(runs)
    ]
    return np.array(drawn)


def blocks_of(noise, abba, factor=1.0):
    """Give each side its slots of a series of log times, [runs, blocks, 4]."""
    inner, outer = noise[:, :, 1:3], noise[:, :, [0, 3]]
    a = np.where(abba[:, :, None], outer, inner)
    b = np.where(abba[:, :, None], inner, outer) + math.log(factor)
    return np.exp(a), np.exp(b)


def run_blocks(a, b, **options):
    found = BlockEvidence(FLOOR, runs=len(a), **options)
    for block in range(a.shape[1]):
        found.add(a[:, block, :, None], b[:, block, :, None])
    return found


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=7), st.floats(-0.5, 0.5))
def test_wealth_is_a_martingale_whatever_the_sizes_are(sizes, bound):
    """Over all signs that a fair coin can give, the mean wealth is 1: exactly."""
    count = len(sizes)
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * count)).reshape(count, -1)
    process = BoundProcess(bound, 1, signs.shape[1])
    for size, sign in zip(sizes, signs, strict=True):
        process.add(bound + sign * abs(size))
    assert process.wealth.value.mean() == pytest.approx(1.0)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=7))
def test_tail_wealth_is_a_martingale(counts):
    process = TailProcess(0.9, 1.0, 2 ** len(counts))
    process.exceedances.threshold = np.ones(2 ** len(counts))
    signs = np.array(np.meshgrid(*[[0, 1]] * len(counts))).reshape(len(counts), -1)
    for count, sign in zip(counts, signs, strict=True):
        more = np.where(np.arange(4) < count, 2.0, 0.5)
        less = np.full(4, 0.5)
        b = np.where(sign[:, None], more, less)
        process.add(np.where(sign[:, None], less, more), b)
    assert process.wealth.value.mean() == pytest.approx(1.0)


@given(st.floats(0.05, 0.5), st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_share_bets_never_go_broke_and_are_fair_at_the_border(extra, differences):
    process = ShareProcess(extra)
    for difference in differences:
        process.add(difference)
    assert process.wealth.value[0] > 0
    # One bet, of a difference whose mean is the border: 1 with that chance, else 0.
    fair = ShareProcess(extra, 2)
    fair.add(np.array([1.0, 0.0]))
    assert extra * fair.wealth.value[0] + (1 - extra) * fair.wealth.value[1] == pytest.approx(1.0)


@pytest.mark.parametrize("factor", [1 + FLOOR / 2, 1.0])
def test_wrong_alarms_are_rare_at_the_border(factor):
    """600 runs of 60 blocks with slow drift and jumps: at most 1 %, and two standard errors."""
    rng = np.random.default_rng(5)
    noise = rng.normal(0, 0.05, (600, 60, 4)) + np.cumsum(
        rng.normal(0, 0.02, (600, 240)), axis=1
    ).reshape(600, 60, 4)
    a, b = blocks_of(noise, fair_orders(60, 600), factor)
    assert run_blocks(a, b).fails(100).mean() <= 0.01 + 2 * math.sqrt(0.01 * 0.99 / 600)


def test_wrong_passes_are_rare_at_the_floor():
    rng = np.random.default_rng(6)
    noise = rng.normal(0, 0.05, (600, 60, 4))
    a, b = blocks_of(noise, fair_orders(60, 600), 1 + FLOOR)
    found = run_blocks(a, b)
    assert (found.not_slower.wealth.peak >= 100).mean() <= 0.01 + 2 * math.sqrt(0.01 * 0.99 / 600)


def test_ten_per_cent_are_found_and_nothing_passes():
    rng = np.random.default_rng(7)
    orders = fair_orders(60, 200)
    noise = rng.normal(0, 0.05, (200, 60, 4))
    slower = run_blocks(*blocks_of(noise, orders, 1.1))
    same = run_blocks(*blocks_of(noise, orders))
    assert slower.fails(100).mean() >= 0.99
    assert same.passes(100).mean() >= 0.97
    assert not same.fails(100).any()


def period_4_alarms(orders):
    """Alarms of equal programs under a disturbance that comes back every four executions."""
    rng = np.random.default_rng(8)
    noise = rng.normal(0, 0.01, (*orders.shape, 4)) + 0.05 * np.array([-1, 1, 1, -1])
    return run_blocks(*blocks_of(noise, orders)).fails(100).mean()


def test_a_disturbance_of_period_4_is_no_difference():
    assert period_4_alarms(fair_orders(60, 300)) <= 0.025


def test_a_fixed_order_would_take_it_for_one():
    """A mutation of the coin: what the test before is there to notice."""
    assert period_4_alarms(np.ones((300, 60), bool)) > 0.9


def a_a_alarms(runs=800):
    """Alarms of equal programs whose noise is heavy and differs from block to block."""
    rng = np.random.default_rng(9)
    noise = 0.02 * rng.standard_t(2, (runs, 40, 4))
    a, b = blocks_of(noise, fair_orders(40, runs))
    process = BoundProcess(0.0, 1, runs)
    for block in range(a.shape[1]):
        process.add(np.log(b[:, block]).mean(axis=1) - np.log(a[:, block]).mean(axis=1))
    return (process.wealth.peak >= 20).mean()


def test_equal_programs_do_not_alarm():
    assert a_a_alarms() <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 800)


def test_a_scale_of_b_alone_would_alarm(monkeypatch):
    """A mutation of the scale: blocks in which B was the slower one do not count in it."""
    median = np.median

    def of_b(sizes, axis):
        # Sizes of blocks that spoke for B's slowness hardly count: it has used the label.
        scale = median(sizes, axis=axis)
        return np.where(current[0] > 0, 0.1 * scale, scale)

    current = [np.zeros(800)]

    class Labelled(BoundProcess):
        def add(self, d):
            current[0] = np.asarray(d)
            super().add(d)

    monkeypatch.setattr(evidence.np, "median", of_b)
    monkeypatch.setattr(f"{__name__}.BoundProcess", Labelled)
    assert a_a_alarms() > 0.05 + 2 * math.sqrt(0.05 * 0.95 / 800)


@given(st.integers(0, 2**32))
def test_the_coin_is_repeatable(seed):
    assert [block_order(seed, i) for i in range(5)] == [block_order(seed, i) for i in range(5)]


def test_the_coin_is_fair():
    drawn = fair_orders(200, 50)
    assert abs(drawn.mean() - 0.5) < 4 * 0.5 / math.sqrt(drawn.size)
    assert 0.4 < (drawn[:, 1:] == drawn[:, :-1]).mean() < 0.6


def test_equal_times_are_no_evidence():
    same = np.ones((1, 30, 2))
    found = run_blocks(same, same)
    assert found.faster.wealth.value[0] == 1.0
    assert not found.fails(100)[0]


def test_a_quarter_of_slow_executions_is_never_called_fine():
    rng = np.random.default_rng(10)
    a = np.exp(rng.normal(0, 0.02, (200, 100, 2)))
    b = np.exp(rng.normal(0, 0.02, (200, 100, 2))) + 3 * (rng.random((200, 100, 2)) < 0.25)
    found = run_blocks(a, b)
    first_fail = found.fails(100)
    assert first_fail.mean() >= 0.99
    assert found.passes(100).mean() <= 0.02


def test_the_confidence_sequence_holds_at_every_look():
    rng = np.random.default_rng(11)
    missed = 0
    for _ in range(8):
        d = rng.normal(0.02, 0.05, 60)
        for look in (20, 40):
            low, high = confidence_sequence(d[:look], 0.01)
            assert low <= np.median(d[:look]) <= high
            missed += not low <= 0.02 <= high
    assert missed == 0
    assert confidence_sequence(d[:5], 0.01) is None


def test_the_confidence_sequence_is_where_the_bets_stop():
    d = np.random.default_rng(12).normal(0.0, 0.05, 50)
    low, high = confidence_sequence(d, 0.01)
    for bound, sign, excluded in ((low - 0.001, 1, True), (low + 0.001, 1, False),
                                  (high + 0.001, -1, True), (high - 0.001, -1, False)):  # fmt: skip
        process = BoundProcess(bound, sign)
        for value in d:
            process.add(value)
        assert (process.wealth.peak[0] >= 200) == excluded


def test_the_extra_share_shrinks_with_the_blocks():
    few, many = smallest_extra_share(np.zeros(30)), smallest_extra_share(np.zeros(300))
    assert many < few <= EVIDENCE.share
    assert smallest_extra_share(np.array([])) == 1.0


def test_a_threshold_counts_only_what_comes_after_it():
    counts = Exceedances(0.5, 1.0, 2, 2)
    low, high = np.full((1, 2), 1.0), np.full((1, 2), 9.0)
    assert counts.add(low, high) is None
    assert counts.add(low, high) is None
    below, above = counts.add(low, high)
    assert (below[0], above[0]) == (0, 2)


def test_blocks_to_go():
    assert blocks_to_go([0.1 * i for i in range(20)], 100) == 28
    assert blocks_to_go([0.0, -1.0], 100) is None
    assert blocks_to_go([0.0, 10.0], 100) is None
