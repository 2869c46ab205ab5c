"""Changes of a series: as the definition has them, at the level that is promised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.e_divisive import greatest_split

from critpath.schema.parameters.ab import TRENDS
from critpath.stats.change_points import _split, find_change_points


@given(st.lists(st.integers(-9, 9), max_size=12))
def test_the_statistic_is_that_of_the_definition(values):
    series = np.array(values, np.float64)
    found, at = _split(np.abs(series[:, None] - series[None, :]))
    wanted, _ = greatest_split(series.tolist(), TRENDS.least)
    assert max(found, 0.0) == pytest.approx(wanted, abs=1e-9)
    if wanted > 0:  # of equal ones either place is right
        assert TRENDS.least <= at <= len(values) - TRENDS.least


@pytest.mark.parametrize("steps", [(), (12,), (10, 20), (8, 30)])
def test_steps_are_found_where_they_are(steps):
    rng = np.random.default_rng(len(steps))
    series = rng.normal(0, 0.01, 40)
    for number, at in enumerate(steps):
        series[at:] += 0.1 if number % 2 == 0 else -0.2
    found = find_change_points(series)
    assert [change.at for change in found] == list(steps)
    assert all(change.p <= TRENDS.level for change in found)


def test_what_does_not_change_alarms_as_seldom_as_promised():
    # 200 series, with outliers: at 1 % more than 6 would come in 4 of 1,000 such tests.
    rng = np.random.default_rng(5)
    series = rng.standard_t(3, (200, 16))
    alarms = sum(bool(find_change_points(one)) for one in series)
    assert alarms <= 6


def test_equal_and_few_values_have_no_change():
    assert find_change_points(np.zeros(30)) == []
    for few in range(5):
        assert find_change_points(np.arange(few, dtype=float)) == []


def test_the_same_series_gives_the_same_answer():
    series = np.random.default_rng(2).normal(size=30)
    series[15:] += 3
    assert find_change_points(series) == find_change_points(series.copy())
