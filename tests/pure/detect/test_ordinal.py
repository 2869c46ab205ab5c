"""Effect sizes by order: counted by hand, of all pairs, within types."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from critpath.detect.coarse import ordinal_effects


def types(*sizes):
    return np.repeat(np.arange(len(sizes)), sizes)


def test_every_pair_counts():
    rng = np.random.default_rng(1)
    x, y = rng.integers(1, 20, (14, 1)), rng.integers(1, 25, (9, 1))
    delta, ratio = ordinal_effects(x, y, types(14), types(9))
    pairs = list(itertools.product(x[:, 0].tolist(), y[:, 0].tolist()))
    assert delta[0] == pytest.approx(sum((b > a) - (b < a) for a, b in pairs) / len(pairs))
    assert ratio[0] == pytest.approx(np.exp(np.median([np.log(b / a) for a, b in pairs])))


def test_types_are_compared_with_their_own():
    """The sample has more of the long type, and each type is a tenth slower."""
    x = np.repeat([100, 1000], [8, 2])[:, None]
    y = np.repeat([110, 1100], [2, 8])[:, None]
    delta, ratio = ordinal_effects(x, y, types(8, 2), types(2, 8))
    assert delta[0] == 1
    assert ratio[0] == pytest.approx(1.1)


def test_one_outlier_moves_neither():
    x = np.arange(100, 150)[:, None]
    y = x.copy()
    y[-1] *= 1000
    delta, ratio = ordinal_effects(x, y, types(50), types(50))
    assert abs(delta[0]) < 0.05
    assert ratio[0] == pytest.approx(1, abs=0.01)


def test_durations_of_nothing_have_no_ratio():
    x, y = np.array([[0, 5], [0, 5], [3, 0]]), np.array([[4, 5], [4, 6]])
    delta, ratio = ordinal_effects(x, y, types(3), types(2))
    assert delta[0] == 1
    assert np.isnan(ratio[0])
    assert np.isfinite(ratio[1])


def test_no_type_in_both_sets():
    delta, ratio = ordinal_effects(
        np.ones((2, 1), int), np.ones((2, 1), int), types(2), 1 + types(2)
    )
    assert delta[0] == 0
    assert ratio[0] == 1


def test_many_executions_are_thinned_evenly():
    rng = np.random.default_rng(2)
    x = rng.lognormal(12, 0.5, (3000, 1)).astype(np.int64)
    y = (rng.lognormal(12, 0.5, (3000, 1)) * 1.2).astype(np.int64)
    ratio = ordinal_effects(x, y, types(3000), types(3000))[1]
    assert ratio[0] == pytest.approx(1.2, rel=0.05)
