"""Assignments, against all that there are."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from critpath.requests.matching import IMPOSSIBLE, find_regrets, match, to_probability


def least(cost, without=None):
    """Return the least cost of all assignments, one of which may be left out."""
    rows, columns = cost.shape
    best = np.inf
    for chosen in permutations(range(columns), rows):
        if without is None or chosen[without[0]] != without[1]:
            best = min(best, sum(cost[row, to] for row, to in enumerate(chosen)))
    return best


@pytest.mark.parametrize("seed", range(40))
def test_the_best_assignment_and_what_it_costs_to_do_without_each_link(seed):
    rng = np.random.default_rng(seed)
    rows, more = int(rng.integers(1, 5)), int(rng.integers(0, 3))
    cost = rng.integers(0, 30, (rows, rows + more)).astype(np.float64)
    chosen = match(cost)
    regret = find_regrets(cost, chosen)
    assert len(set(chosen.tolist())) == rows
    best = least(cost)
    assert cost[np.arange(rows), chosen].sum() == best
    for row in range(rows):
        worse = least(cost, (row, chosen[row])) - best
        assert regret[row] == pytest.approx(worse) or (np.isinf(worse) and regret[row] > 1e8)


def test_what_is_impossible_is_nobodys():
    cost = np.array([[1.0, IMPOSSIBLE], [2.0, IMPOSSIBLE], [IMPOSSIBLE, IMPOSSIBLE]])
    chosen = match(cost)
    regret = find_regrets(cost, chosen)
    assert chosen.tolist() == [0, -1, -1]
    assert regret[0] == pytest.approx(1.0)
    assert match(np.zeros((0, 3))).tolist() == []
    assert match(np.zeros((2, 0))).tolist() == [-1, -1]


def test_a_link_is_at_least_as_probable_as_half_a_guess():
    found = to_probability(np.array([0.0, 0.0, 3.0, 1e9]), np.array([1, 4, 4, 4]))
    assert found == pytest.approx([0.5, 0.5, 0.9526, 1.0], abs=1e-3)
