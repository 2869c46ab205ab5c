"""The best assignment of some to others, and how much worse the best one without a link is.

A largest matching of pairs that cost alike, and which others there are.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from critpath.model import F64, I64, Bool
from critpath.model.requests import NONE
from critpath.requests import _matching
from critpath.schema.parameters.requests import TOKENS

IMPOSSIBLE: Final = 1e9  # technical: costs so much, or more


def match(cost: F64) -> I64:
    """Give every row a column of its own so that the costs together are least; -1 for none.

    Parameters
    ----------
    cost : float64 [n, m]
        Negative logarithms of how probable each link is.
    """
    chosen = np.full(len(cost), NONE, np.int64)
    if cost.size:
        across = len(cost) > cost.shape[1]
        bounded = np.minimum(cost.T if across else cost, IMPOSSIBLE)
        few, many = bounded.shape
        found = np.empty(few, np.int64)
        room, marks = np.empty((3, many)), np.empty((3, many), np.int64)
        _matching.assign(np.ascontiguousarray(bounded, np.float64), found, room, marks)
        each = np.arange(few)
        rows, columns = (found, each) if across else (each, found)
        some = cost[rows, columns] < IMPOSSIBLE
        chosen[rows[some]] = columns[some]
    return chosen


def match_most(of: I64, to: I64, many: int, others: int) -> tuple[I64, Bool, I64]:
    """Give as many as possible one of their own each.

    Parameters
    ----------
    of, to : int64 [pairs]
        Who may have what: below `many` and `others`.

    Returns
    -------
    chosen : int64 [many]
        -1 for none.
    certain : bool [many]
        Whether it is so in every largest matching.
    circle : int64 [many]
        Who may exchange what they have have the same.
    """
    chosen, owner = np.empty(many, np.int64), np.empty(others, np.int64)
    marks = np.empty((4, max(many, others)), np.int64)
    _matching.pair(*_arrange(of, to, many), chosen, owner, marks)
    # Who may take from whom; one more takes from who has none and has what nobody took.
    idle = np.flatnonzero(chosen < 0)
    takes = np.concatenate([of, np.full(len(idle), many)])
    gives = np.concatenate([np.where(owner[to] >= 0, owner[to], many), idle])
    circle = np.empty(many + 1, np.int64)
    ways = [_arrange(takes, gives, many + 1), _arrange(gives, takes, many + 1)]
    count = _matching.find_circles(*ways[0], circle, np.empty((5, many + 1), np.int64))
    certain = (chosen >= 0) & (np.bincount(circle, minlength=count)[circle[:many]] == 1)
    for way in ways:
        reached = np.zeros(many + 1, np.uint8)
        _matching.reach(*way, many, reached, np.empty(many + 1, np.int64))
        certain &= reached[:many] == 0
    return chosen, certain, circle[:many]


def _arrange(of: I64, to: I64, many: int) -> tuple[I64, I64]:
    """Return where the pairs of each begin, and what they are with."""
    order = np.argsort(of, kind="stable")
    return np.searchsorted(of[order], np.arange(many + 1)), to[order]


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
