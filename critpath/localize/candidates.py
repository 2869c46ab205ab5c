"""The differences a finding may be made of: symbol by symbol, each in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from critpath.localize.matrix import Matrix
from critpath.localize.places import find_place
from critpath.model import I64, RUNNING, Symbol

EXPLAINED = 0.9  # stop once no more than a tenth of the excess is unexplained
MOST = 10
LEAST = 0.01  # of the excess: smaller differences stay in the rest
FLUCTUATION = 3.0  # standard deviations within which own running time is noise ...
DISCOUNT = 0.75  # ... and ranks as if it were this much of itself
NEAR = 2  # columns: what lies no further apart is one place


@dataclass(frozen=True, eq=False)
class Candidate:
    """A difference in one symbol.

    Attributes
    ----------
    letter : int
    columns : int64 [m]
        Where it lies: all columns there in which anyone has the symbol.
    net : int
        n times the difference (ns).
    offset : int
        n times what other symbols have less (more) in the same place, at most the net;
        with its sign.
    weight : float
        What it ranks by.
    """

    letter: int
    columns: I64
    net: int
    offset: int
    weight: float


def find_candidates(matrix: Matrix, symbols: Sequence[Symbol]) -> tuple[list[Candidate], int]:
    """Return every symbol's difference, split in its place and elsewhere; and their sum."""
    result = []
    total = 0
    sums = np.zeros((len(matrix.values), matrix.values.shape[1] + 1), np.int64)
    np.cumsum(matrix.values, axis=1, out=sums[:, 1:])
    for letter in np.flatnonzero(matrix.totals.any(axis=0) | matrix.support.any(axis=1)).tolist():
        columns = np.flatnonzero((matrix.support[letter] > 0) | (matrix.letters[-1] == letter))
        values = matrix.values[letter, columns]
        total += int(values.sum())
        steady = _beyond_fluctuation(matrix.totals[:, letter]) or symbols[letter].role != ""
        factor = 1.0 if steady or symbols[letter].state not in RUNNING else DISCOUNT
        unit = _units(matrix, letter, columns)
        place = find_place(np.add.reduceat(values, unit), unseen=not matrix.support[letter].any())
        parts = [columns]
        if place is not None:
            ends = [*unit.tolist(), len(columns)]
            first, last = ends[place[0]], ends[place[1]]
            parts = [columns[first:last], np.delete(columns, slice(first, last))]
        for part in parts:
            net = int(matrix.values[letter, part].sum())
            if net:
                offset = _offset(sums, letter, part, net)
                weight = factor * (abs(net) - abs(offset))
                result.append(Candidate(letter, part, net, offset, weight))
    return result, total


def _units(matrix: Matrix, letter: int, columns: I64) -> I64:
    """Return where units of columns begin: a loop whose iterations count is one."""
    begins = np.ones(len(columns), np.bool_)
    for loop in matrix.loops:
        inside = (columns >= loop.first) & (columns < loop.last)
        if matrix.sums[letter, columns[inside]].any():
            begins[np.flatnonzero(inside)[1:]] = False
    return np.flatnonzero(begins)


def _offset(sums: I64, letter: int, columns: I64, net: int) -> int:
    """Return by how much other symbols went the other way in the same place.

    Time that only moved, from waiting for a cpu to running on it for example, makes two
    large differences of opposite sign, of which none explains why the whole took longer.
    """
    first = max(int(columns[0]) - NEAR, 0)
    last = min(int(columns[-1]) + 1 + NEAR, sums.shape[1] - 1)
    nets = sums[:, last] - sums[:, first]
    nets[letter] = 0
    if net > 0:
        return min(net, -int(nets[nets < 0].sum()))
    return max(net, -int(nets[nets > 0].sum()))


def _beyond_fluctuation(totals: I64) -> bool:
    """Tell whether the last total is far outside what the others do."""
    normal = totals[:-1].astype(np.float64)
    if len(normal) < 2:
        return False
    return bool(abs(totals[-1] - normal.mean()) > FLUCTUATION * normal.std(ddof=1))


def choose(candidates: list[Candidate], net_total: int) -> list[Candidate]:
    """Take candidates by weight until enough is explained; slower ones first."""
    scale = net_total
    if net_total <= 0:
        scale = max(-net_total, sum(c.net for c in candidates if c.net > 0))
    chosen: list[Candidate] = []
    rest = net_total
    ranked = sorted(
        (c for c in candidates if c.net and abs(c.net) >= LEAST * scale),
        key=lambda c: (-c.weight, -abs(c.net), c.letter, int(c.columns[0])),
    )
    for candidate in ranked:
        if len(chosen) == MOST or (chosen and abs(rest) <= (1 - EXPLAINED) * scale):
            break
        chosen.append(candidate)
        rest -= candidate.net
    return sorted(chosen, key=lambda c: c.net < 0)
