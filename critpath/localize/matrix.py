"""An alignment as tables: who has what in which column, and what it is worth."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

import numpy as np

from critpath.model import I32, I64, Alignment, Loop

LEAST_TURNS = 2  # of a loop in the median normal row
SPREAD = 2.0  # standard deviations beyond which a number of iterations is out of the ordinary


@dataclass(frozen=True, eq=False)
class Matrix:
    """The alignment as arrays; the last row is the anomalous one.

    Attributes
    ----------
    letters : int32 [rows, columns]
    durations : int64 [rows, columns]
        Nanoseconds, 0 for a gap.
    rows : int32 [rows, columns]
        Position within the own path, -1 for a gap.
    n : int
        Normal rows.
    support, sums : int64 [letters, columns]
        How many normal rows have a letter in a column, and their time in it.
    values : int64 [letters, columns]
        n times the difference: ``n * observed - sums``.
    totals : int64 [rows, letters]
        Time in a letter over the whole path.
    loops : tuple of Loop
        Those that at least half of the normal rows run, twice or more often, and the last
        row unusually often or seldom: at least one iteration, and more than two standard
        deviations, from the mean of the normal rows.
    """

    letters: I32
    durations: I64
    rows: I32
    n: int
    support: I64
    sums: I64
    values: I64
    totals: I64
    loops: tuple[Loop, ...]

    @classmethod
    def of(cls, alignment: Alignment, interference: Collection[int] = ()) -> Self:
        """Build the tables of an alignment.

        Parameters
        ----------
        alignment : Alignment
        interference : collection of int
            Letters that only interrupt: one state and what cuts it is no loop of a program.
        """
        letters, durations = alignment.symbols, alignment.column_durations
        n, columns = len(letters) - 1, letters.shape[1]
        kinds = int(letters.max(initial=-1)) + 1
        support, sums = np.zeros((2, kinds, columns), np.int64)
        values = np.zeros((kinds, columns), np.int64)
        totals = np.zeros((n + 1, kinds), np.int64)
        for row in range(n + 1):
            places = np.flatnonzero(letters[row] >= 0)
            own, time = letters[row, places], durations[row, places]
            np.add.at(totals[row], own, time)
            if row < n:
                support[own, places] += 1
                sums[own, places] += time
            else:
                values[own, places] = n * time
        values -= sums
        unusual = tuple(
            loop
            for loop in alignment.loops
            if _unusual(loop)
            and _does_things(letters[:, loop.first : loop.last], loop, interference)
        )
        return cls(letters, durations, alignment.rows, n, support, sums, values, totals, unusual)


def _unusual(loop: Loop) -> bool:
    normal = loop.iterations[:-1].astype(np.float64)
    if not len(normal) or np.median(normal) < LEAST_TURNS:
        return False  # one iteration, or a few rows' many, are nothing to count in
    far = abs(float(loop.iterations[-1]) - normal.mean())
    sd = float(normal.std(ddof=1)) if len(normal) > 1 else 0.0
    return bool(far >= 1 and far > SPREAD * sd)


def _does_things(block: I32, loop: Loop, interference: Collection[int]) -> bool:
    """Tell whether an iteration has two states or more, interference not counted."""
    here, counts = np.unique(block[block >= 0], return_counts=True)
    in_every = here[2 * counts >= int(loop.iterations.sum())]
    return len(set(in_every.tolist()) - set(interference)) > 1
