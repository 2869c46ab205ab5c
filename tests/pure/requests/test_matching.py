"""Assignments, against all that there are."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, maximum_bipartite_matching

from critpath.requests.matching import (
    IMPOSSIBLE,
    find_regrets,
    match,
    match_most,
    to_probability,
)


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


def test_an_assignment_is_scipys_also_of_equal_ones():
    rng = np.random.default_rng(1)
    for number in range(200):
        shape = rng.integers(1, 12, 2)
        whole = rng.integers(0, 6, shape).astype(np.float64)
        cost = whole if number % 2 else rng.normal(size=shape)
        cost[rng.random(shape) < 0.2] = IMPOSSIBLE
        rows, columns = linear_sum_assignment(cost)
        expected = np.full(len(cost), -1)
        expected[rows] = np.where(cost[rows, columns] < IMPOSSIBLE, columns, -1)
        assert match(cost).tolist() == expected.tolist()


def size_of(may):
    """Return how many pairs scipy makes."""
    graph = csr_array(may.astype(np.int8))
    return int((maximum_bipartite_matching(graph, perm_type="column") >= 0).sum())


def test_a_largest_matching_is_as_large_as_scipys_and_certain_where_every_one_is():
    rng = np.random.default_rng(2)
    for _ in range(100):
        check_matching(rng)


def check_matching(rng):
    many, others = (int(n) for n in rng.integers(1, 9, 2))
    may = rng.random((many, others)) < rng.choice([0.15, 0.3, 0.6])
    chosen, certain, circle = match_most(*np.nonzero(may), many, others)
    paired = np.flatnonzero(chosen >= 0)
    assert may[paired, chosen[paired]].all()
    assert len(set(chosen[paired].tolist())) == len(paired) == size_of(may)
    for row in paired.tolist():
        without = may.copy()
        without[row, chosen[row]] = False
        assert certain[row] == (size_of(without) < len(paired))
    assert not certain[chosen < 0].any()
    # Who takes what whom has; what nobody has is one's more, who takes from those who have none.
    owner = {int(chosen[row]): row for row in paired}
    edges = [(row, owner.get(int(to), many)) for row, to in zip(*np.nonzero(may), strict=True)]
    edges += [(many, row) for row in range(many) if chosen[row] < 0]
    graph = np.zeros((many + 1, many + 1))
    graph[tuple(np.transpose(edges).reshape(2, -1))] = 1
    expected = connected_components(csr_array(graph), connection="strong")[1][:many]
    assert (circle[:, None] == circle).tolist() == (expected[:, None] == expected).tolist()


def test_nothing_is_matched_with_nothing():
    none = np.zeros(0, np.int64)
    chosen, certain, _ = match_most(none, none, 2, 0)
    assert (chosen.tolist(), certain.tolist()) == ([-1, -1], [False, False])
