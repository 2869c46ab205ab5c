"""Profiles and their scores against the formulas, written plainly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.align.dp import GRID, GapCosts, solve
from critpath.align.profiles import LogExpectation, build_profile, f81_model
from critpath.schema.parameters.align import PROFILES


def draw_rows(rng, letters, columns):
    rows = rng.integers(-1, letters, (int(rng.integers(1, 6)), columns)).astype(np.int8)
    empty = (rows < 0).all(axis=0)
    rows[0, empty] = 0
    return rows


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_profile_is_what_the_columns_hold(seed, columns):
    rng = np.random.default_rng(seed)
    rows = draw_rows(rng, 4, columns)
    weights = rng.uniform(0.1, 1, len(rows))
    model = f81_model(np.array([5, 3, 2, 1]))
    profile = build_profile(rows, weights, model)
    share = weights / weights.sum()
    for c in range(columns):
        has = rows[:, c] >= 0
        assert profile.occupancy[c] == pytest.approx(share[has].sum())
        for letter in range(4):
            part = share[rows[:, c] == letter].sum() / share[has].sum()
            assert profile.frequency[c, letter] == pytest.approx(part)
        before = rows[:, c - 1] >= 0 if c else np.ones(len(rows), bool)
        after = rows[:, c + 1] >= 0 if c + 1 < columns else np.ones(len(rows), bool)
        starts, ends = share[~has & before].sum(), share[~has & after].sum()
        opening = 0 if c == 0 else (1 - starts) * model.gap_open / 2
        closing = 0 if c + 1 == columns else (1 - ends) * model.gap_open / 2
        assert profile.open[c] == pytest.approx(opening, abs=1 / GRID)
        assert profile.close[c] == pytest.approx(closing, abs=1 / GRID)


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 9), st.sampled_from([3, 12, 64]))
def test_scores_are_the_log_of_the_expected_ratio(seed, n, m, letters):
    rng = np.random.default_rng(seed)
    model = f81_model(rng.integers(0, 50, letters))
    a, b = (
        build_profile(rows, rng.uniform(0.1, 1, len(rows)), model)
        for rows in (draw_rows(rng, letters, n), draw_rows(rng, letters, m))
    )
    ratio = a.frequency @ model.ratio @ b.frequency.T
    expected = np.log(np.maximum(ratio, np.exp(PROFILES.log_floor))) + model.centre
    expected *= np.outer(a.occupancy, b.occupancy)
    scores = LogExpectation(a, b, model)
    assert scores(0, n) / GRID == pytest.approx(expected, abs=0.51 / GRID + 1e-4)
    low = rng.integers(1, m + 1, n)
    high = np.minimum(low + rng.integers(0, 4, n), m)
    part = scores(0, n, low, high)
    for i in range(n):
        found = part[i, : high[i] - low[i] + 1]
        assert found.tolist() == scores(0, n)[i, low[i] - 1 : high[i]].tolist()
    first, second = rng.integers(0, n, 5), rng.integers(0, m, 5)
    assert scores.of_pairs(first, second) == pytest.approx(expected[first, second].sum(), abs=1e-6)


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 30))
def test_whole_numbers_and_doubles_give_the_same(seed, n, m):
    rng = np.random.default_rng(seed)
    scores = rng.integers(-9000, 20000, (n, m)).astype(np.int32)
    gaps = GapCosts(*(rng.integers(-7000, 1, k) / GRID for k in (n, n, m, m)), -0.25)
    whole = solve(lambda i, j: scores[i:j], gaps)
    double = solve(lambda i, j: scores[i:j] / GRID, gaps)
    assert whole[0] == double[0]
    assert whole[1].tolist() == double[1].tolist()
