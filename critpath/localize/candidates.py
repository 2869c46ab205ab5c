"""The differences a finding may be made of: symbol by symbol, each in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from critpath.localize.matrix import Matrix
from critpath.localize.places import find_place
from critpath.localize.totals import LEAST_NORMALS, judge_totals
from critpath.model import I64, RUNNING, ColumnStatistics, Symbol

EXPLAINED = 0.9  # stop once no more than a tenth of the excess is unexplained
MOST = 10
LEAST = 0.01  # of the excess: smaller differences stay in the rest
DISCOUNT = 0.75  # own running time that is noise ranks as if it were this much of itself
MOVED = 0.5  # so much of what only moved from one symbol to another is left out
ORDINARY = 0.25  # what normal executions do as well ranks as if it were so much of itself
ENOUGH_NORMALS = LEAST_NORMALS  # to tell that
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
    abnormal : bool
    p : float
        Least p-value of its columns, NaN for none.
    """

    letter: int
    columns: I64
    net: int
    offset: int
    weight: float
    abnormal: bool
    p: float


def find_candidates(
    matrix: Matrix, statistics: ColumnStatistics, symbols: Sequence[Symbol]
) -> tuple[list[Candidate], int]:
    """Return every symbol's difference, split in its place and elsewhere; and their sum."""
    result = []
    total = 0
    enough = matrix.n >= ENOUGH_NORMALS
    beyond_all = judge_totals(matrix.totals)
    sums = np.zeros((len(matrix.values), matrix.values.shape[1] + 1), np.int64)
    np.cumsum(matrix.values, axis=1, out=sums[:, 1:])
    for letter in np.flatnonzero(matrix.totals.any(axis=0) | matrix.support.any(axis=1)).tolist():
        columns = np.flatnonzero((matrix.support[letter] > 0) | (matrix.letters[-1] == letter))
        values = matrix.values[letter, columns]
        whole = int(values.sum())
        total += whole
        beyond = bool(beyond_all[letter])
        own_run = symbols[letter].role == "" and symbols[letter].state in RUNNING
        factor = DISCOUNT if own_run and not beyond else 1.0
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
                p, odd = _verdict(matrix, statistics, letter, part, net)
                # What lies elsewhere is not odd because the symbol as a whole is.
                abnormal = odd or (beyond and 2 * net * whole >= whole * whole)
                weight = factor * (abs(net) - MOVED * abs(offset))
                if enough and not abnormal:
                    weight *= ORDINARY
                result.append(Candidate(letter, part, net, offset, weight, abnormal, p))
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


def _verdict(
    matrix: Matrix, statistics: ColumnStatistics, letter: int, columns: I64, net: int
) -> tuple[float, bool]:
    """Return the least p-value and the verdict of the columns that are about a difference.

    Those go the way that the whole of it does, and there the row has the symbol, or a gap
    where most of the others have it.
    """
    columns = columns[matrix.values[letter, columns] * np.sign(net) > 0]
    mine = matrix.letters[-1, columns]
    about = columns[(mine == letter) | ((mine < 0) & (statistics.normal_symbol[columns] == letter))]
    p = np.concatenate([statistics.p_structure[about], statistics.p_duration[about]])
    known = p[~np.isnan(p)]
    least = float(known.min()) if len(known) else float("nan")
    return least, bool(statistics.abnormal[about].any())


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
