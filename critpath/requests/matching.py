"""The best assignment of some to others, and how much worse the best one without a link is."""

from __future__ import annotations

from typing import Final

import numpy as np

from critpath.model import F64, I64
from critpath.model.requests import NONE
from critpath.schema.parameters.requests import TOKENS

IMPOSSIBLE: Final = 1e9  # technical: costs so much, or more


def match(cost: F64) -> I64:
    """Give every row a column of its own so that the costs together are least; -1 for none.

    Parameters
    ----------
    cost : float64 [n, m]
        Negative logarithms of how probable each link is.
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - takes a while to load

    chosen = np.full(len(cost), NONE, np.int64)
    if cost.size:
        rows, columns = linear_sum_assignment(np.minimum(cost, IMPOSSIBLE))
        some = cost[rows, columns] < IMPOSSIBLE
        chosen[rows[some]] = columns[some]
    return chosen


def find_regrets(cost: F64, chosen: I64) -> F64:
    """Return what it costs more if a row may not have its column: the cheapest way round.

    A row takes what another has, that one what a third has, and so on, until one takes what nobody
    has or what the first had. Of the best assignment no such circle gains, so shortest ways exist.
    """
    many, columns = cost.shape
    nobody = np.full((many, many), 2 * IMPOSSIBLE)
    np.fill_diagonal(nobody, IMPOSSIBLE)
    cost = np.hstack([np.where(cost < IMPOSSIBLE, cost, 2 * IMPOSSIBLE), nobody])
    chosen = np.where(chosen >= 0, chosen, columns + np.arange(many))
    mine = cost[np.arange(many), chosen]
    free = np.ones(columns + many, np.bool_)
    free[chosen] = False
    # [a, b]: a takes what b has; the last is what nobody has, from which the way back is free.
    way = np.full((many + 1, many + 1), 2 * IMPOSSIBLE)
    way[:many, :many] = cost[:, chosen] - mine[:, np.newaxis]
    np.fill_diagonal(way, 2 * IMPOSSIBLE)
    way[:many, many] = cost[:, free].min(axis=1, initial=2 * IMPOSSIBLE) - mine
    way[many, :many] = 0.0
    for middle in range(many + 1):
        np.minimum(way, way[:, middle, np.newaxis] + way[middle], out=way)
    found: F64 = np.maximum(np.diag(way)[:many], 0.0)
    return found


def to_probability(regret: F64, candidates: I64) -> F64:
    """Return how probable links are: by the regret, at least as if half of it were a guess."""
    sure = 1 / (1 + np.exp(-np.minimum(regret, TOKENS.surest)))
    found: F64 = np.maximum(sure, 0.5 / np.maximum(candidates, 1))
    return found
