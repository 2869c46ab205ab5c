"""What a difference is made of: more occurrences, longer ones, more iterations. Exact."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from critpath.localize.matrix import Matrix
from critpath.model import I64, Loop

NO_LOOP = (float("nan"), (float("nan"), float("nan")))


@dataclass(frozen=True)
class Attribution:
    """The parts of a difference, and the loop it is about.

    Attributes
    ----------
    parts : tuple of (kind, ns)
        The largest first; the sum is the difference.
    iterations : float
        Of the loop with the largest part; NaN for none.
    normal_iterations : (float, float)
        Mean and standard deviation (ddof 1, 0 for one row) of the normal rows.
    """

    parts: tuple[tuple[str, Fraction], ...]
    iterations: float
    normal_iterations: tuple[float, float]

    @property
    def kind(self) -> str:
        """The largest part that goes the way the whole does."""
        whole = sum(ns for _, ns in self.parts)
        return next(kind for kind, ns in self.parts if ns * whole > 0)


def attribute(matrix: Matrix, letter: int, columns: I64) -> Attribution:
    """Split one symbol's difference in some columns into its parts.

    With P the share of the n normal rows that have the symbol in a column, m the mean
    of their durations and d the anomalous row's own, the column's difference is
    ``d - P m``: an extra occurrence ``(1 - P) m`` and a longer one ``d - m`` where the
    row has the symbol (P = 0: all of d is extra), a missing one ``-P m`` where it has
    not.  An extra occurrence here and a missing one there, in the same place, are one
    that the aligner did not put beside its counterpart: they are paired off in number,
    at their mean durations, and what remains of the pairs is longer or shorter.

    In a loop that the row ran unusually often or seldom the columns stand for nothing
    (which iteration stands beside which is arbitrary).  There the iterations above the
    group's mean times the group's time per iteration are ``loop-count``, and the rest is
    longer or shorter.

    Parameters
    ----------
    matrix : Matrix
    letter : int
    columns : int64 [m]

    Returns
    -------
    Attribution
        In exact fractions of a nanosecond.
    """
    n = matrix.n
    counted = Fraction(0)
    stretched = Fraction(0)
    main: tuple[Fraction, Loop | None] = Fraction(0), None
    for loop in matrix.loops:
        inside = columns[(columns >= loop.first) & (columns < loop.last)]
        normal = int(matrix.sums[letter, inside].sum())
        if not normal:
            continue
        columns = columns[(columns < loop.first) | (columns >= loop.last)]
        turns = int(loop.iterations[:-1].sum())
        surplus = n * int(loop.iterations[-1]) - turns
        part = Fraction(surplus * normal, turns)
        counted += part
        stretched += int(matrix.values[letter, inside].sum()) - part
        if abs(part) > abs(main[0]):
            main = part, loop
    occurrence, length = _split(matrix, letter, columns)
    length += stretched
    new = not matrix.support[letter].any()
    more = ("new-state" if new else "extra") if occurrence > 0 else "missing"
    named = (
        (more, occurrence),
        ("longer" if length > 0 else "shorter", length),
        ("loop-count", counted),
    )
    parts = tuple((kind, value / n) for kind, value in named if value)
    iterations, normal_iterations = _turns(main[1])
    return Attribution(
        tuple(sorted(parts, key=lambda part: (-abs(part[1]), part[0]))),
        iterations,
        normal_iterations,
    )


def _split(matrix: Matrix, letter: int, columns: I64) -> tuple[Fraction, Fraction]:
    """Return n times what is due to the number of occurrences and to their length."""
    n = matrix.n
    here = matrix.letters[-1, columns] == letter
    own = np.where(here, matrix.durations[-1, columns], 0)
    support, sums = matrix.support[letter, columns], matrix.sums[letter, columns]
    extra = Fraction(n * int(own[here & (support == 0)].sum()))
    extra_count = n * int((here & (support == 0)).sum())
    length = Fraction(n * int(own[here & (support > 0)].sum()))
    # Columns with as many supporting rows have one denominator: no more than n fractions.
    for k in np.unique(support[here & (support > 0)]).tolist():
        alike = here & (support == k)
        time = int(sums[alike].sum())
        extra += Fraction((n - k) * time, k)
        extra_count += (n - k) * int(alike.sum())
        length -= Fraction(n * time, k)
    missing, missing_count = int(sums[~here].sum()), int(support[~here].sum())
    each = extra / extra_count if extra_count else Fraction(0)
    each_missing = Fraction(missing, missing_count) if missing_count else Fraction(0)
    pairs = min(extra_count, missing_count)
    length += pairs * (each - each_missing)
    return (extra_count - pairs) * each - (missing_count - pairs) * each_missing, length


def _turns(loop: Loop | None) -> tuple[float, tuple[float, float]]:
    if loop is None:
        return NO_LOOP
    normal = loop.iterations[:-1].astype(np.float64)
    sd = float(normal.std(ddof=1)) if len(normal) > 1 else 0.0
    return float(loop.iterations[-1]), (float(normal.mean()), sd)
