"""The differences a finding may be made of: symbol by symbol, each in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from critpath.localize.places import find_place
from critpath.model import I32, I64, RUNNING, Bool, Symbol

EXPLAINED = 0.9  # stop once no more than a tenth of the excess is unexplained
MOST = 10
LEAST = 0.01  # of the excess: smaller differences stay in the rest
FLUCTUATION = 3.0  # standard deviations within which own running time is noise ...
DISCOUNT = 0.75  # ... and ranks as if it were this much of itself


@dataclass(frozen=True, eq=False)
class Candidate:
    """A difference in one symbol: columns, and its n-fold contribution."""

    letter: int
    columns: I64
    net: int
    weight: float


@dataclass(frozen=True, eq=False)
class Matrix:
    """The alignment as arrays; the last row is the anomalous one."""

    letters: I32
    durations: I64
    rows: I32
    n: int

    def of(self, letter: int) -> tuple[Bool, I64]:
        """Return where a letter stands, and n times its difference, per column."""
        here = self.letters == letter
        held = np.where(here, self.durations, 0)
        return here, self.n * held[-1] - held[:-1].sum(axis=0)


def find_candidates(matrix: Matrix, symbols: Sequence[Symbol]) -> tuple[list[Candidate], int]:
    """Return every symbol's difference, split in its place and elsewhere; and their sum."""
    result = []
    total = 0
    for letter in np.unique(matrix.letters[matrix.letters >= 0]).tolist():
        here, values = matrix.of(letter)
        columns = np.flatnonzero(here.any(axis=0))
        values = values[columns]
        total += int(values.sum())
        totals = np.where(here, matrix.durations, 0).sum(axis=1)
        steady = _beyond_fluctuation(totals) or symbols[letter].role != ""
        weight = 1.0 if steady or symbols[letter].state not in RUNNING else DISCOUNT
        place = find_place(values, unseen=not here[:-1].any())
        parts = [columns]
        if place is not None:
            inside = np.zeros(len(columns), bool)
            inside[slice(*place)] = True
            parts = [columns[inside], columns[~inside]]
        for part in parts:
            own = values[np.isin(columns, part)]
            result.append(Candidate(letter, part, int(own.sum()), weight))
    return result, total


def _beyond_fluctuation(totals: I64) -> bool:
    """Tell whether the last total is far outside what the others do."""
    normal = totals[:-1].astype(np.float64)
    if len(normal) < 2:
        return False
    return bool(abs(totals[-1] - normal.mean()) > FLUCTUATION * normal.std(ddof=1))


def choose(candidates: list[Candidate], net_total: int) -> list[Candidate]:
    """Take candidates by size until enough is explained; slower ones first."""
    scale = net_total
    if net_total <= 0:
        scale = max(-net_total, sum(c.net for c in candidates if c.net > 0))
    chosen: list[Candidate] = []
    rest = net_total
    ranked = sorted(
        (c for c in candidates if c.net and abs(c.net) >= LEAST * scale),
        key=lambda c: (-abs(c.net) * c.weight, c.letter, int(c.columns[0])),
    )
    for candidate in ranked:
        if len(chosen) == MOST or (chosen and abs(rest) <= (1 - EXPLAINED) * scale):
            break
        chosen.append(candidate)
        rest -= candidate.net
    return sorted(chosen, key=lambda c: c.net < 0)
