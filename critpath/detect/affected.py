"""Which executions of a sample have the change, kind by kind, and how many those are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Self

import numpy as np
from msgspec import Struct

from critpath.model import F64, I64, Affected, Bool, Outliers, VectorTable
from critpath.processes import in_halves
from critpath.schema.parameters.cluster import MIXTURE, TYPES
from critpath.schema.parameters.detect import EFFECTS
from critpath.schema.parameters.shared import KINDS, NORMAL
from critpath.stats.mixtures import Mixture, find_changed
from critpath.stats.rows import row_blocks, table_blocks

Tables = tuple[VectorTable, VectorTable]


def find_affected(
    found: Outliers,
    work: Tables,
    whole: Tables,
    types: tuple[I64, I64],
    labels: tuple[Sequence[str], Sequence[str]],
    *,
    in_turns: bool,
) -> Outliers:
    """Add the posterior of each execution to have the change, and how many of each kind have it.

    Parameters
    ----------
    found : Outliers
    work, whole : (VectorTable, VectorTable)
        Of both sets without the time that strangers had the cpu, and with it.
    types : (int64 array, int64 array)
        Execution types, the sample's as paired with normal ones.
    labels : (sequence of str, sequence of str)
    in_turns : bool
        The sets were recorded in turns, so that they share the machine's pace.
    """
    known = [np.array(side, dtype=object) for side in labels]
    rows = {
        name: (np.flatnonzero(known[0] == name), np.flatnonzero(known[1] == name))
        for name in sorted({*labels[1]})
    }
    rows = {name: own for name, own in rows.items() if min(map(len, own)) >= KINDS.fewest}
    sets = [_Kind.of(work, whole, types, own) for own in rows.values()]
    pace = MIXTURE.pace_in_turns if in_turns else MIXTURE.pace
    several = len(rows) > 1
    mixtures = [kind.find(*_measure_pace(sets, pace), MIXTURE.none * several) for kind in sets]
    if several and not any(mixture.marked for mixture in mixtures):  # all are slower, by as much
        mixtures = [kind.find(0.0, pace, MIXTURE.none) for kind in sets]
    posterior = np.full(len(labels[1]), np.nan)
    kinds = []
    for name, mixture, has in zip(rows, mixtures, _have_it(mixtures), strict=True):
        posterior[rows[name][1]] = mixture.posterior if has else 0.0
        kinds.append(Affected(name, *((mixture.marked, mixture.low, mixture.high) if has else ())))
    return replace(found, posterior=posterior, affected=tuple(kinds))


def _have_it(mixtures: Sequence[Mixture]) -> list[bool]:
    """Tell which kinds have the change: what others have beside it may be its consequence.

    The machine, or the kind that has the change, makes others slower as well; they have it
    themselves if that is nearly as sure.
    """
    gain = [mixture.gain for mixture in mixtures]
    return [
        mixture.marked > 0 and sure >= MIXTURE.nearly * max(gain)
        for mixture, sure in zip(mixtures, gain, strict=True)
    ]


def _measure_pace(kinds: Sequence[_Kind], usual: float) -> tuple[float, float]:
    """Return by how much most kinds differ, and by how much kinds do, in logarithms."""
    if len(kinds) < MIXTURE.few_kinds:
        return 0.0, usual
    shifts = np.array([kind.shift for kind in kinds])
    middle = float(np.median(shifts))
    apart = NORMAL.per_mad * float(np.median(np.abs(shifts - middle)))
    return middle, math.hypot(usual, apart)


def mark_affected(found: Outliers) -> Outliers:
    """Mark those that have the change; where that is not known marks stay as they are."""
    known = ~np.isnan(found.posterior)
    marks = np.where(known, found.posterior > 0.5, found.anomalous)  # technical: likelier
    return replace(found, anomalous=marks) if marks.any() else replace(found, affected=())


class _Column(NamedTuple):
    """Some time of executions in logarithms over what is usual of their type."""

    before: F64
    after: F64
    moved: F64  # of those before, how much of the machine's pace it follows

    def find(self, pace: float, apart: float, none: float) -> Mixture:
        """Return who has a change of it."""
        before = self.before + pace * self.moved
        return find_changed(before, self.after, pace=apart, none=none, moved=self.moved)


class _Kind(Struct, frozen=True, eq=False):
    """Executions of one kind: what time shows the change best is asked of it."""

    columns: list[_Column]  # of all work, of what rose, of each state
    whole: _Column | None

    @classmethod
    def of(cls, work: Tables, whole: Tables, types: tuple[I64, I64], rows: tuple[I64, I64]) -> Self:
        """Return those of some rows."""
        kinds = types[0][rows[0]], types[1][rows[1]]
        sides = [*zip(work, rows, strict=True)]

        def add_up(some: Bool) -> tuple[F64, F64]:
            before, after = (_add_columns(table, own, some) for table, own in sides)
            return before, after

        everything = np.ones(len(work[0].symbols), np.bool_)
        together = add_up(everything)
        offset = max(EFFECTS.offset * float(np.median(together[0])), 1.0)

        def compare(sides: tuple[F64, F64]) -> _Column:
            logs = [np.log(np.maximum(side, 0.0) + offset) for side in sides]
            over = _subtract_usual((logs[0], logs[1]), kinds)
            return _Column(*over, sides[0] / (np.maximum(sides[0], 0.0) + offset))

        rise, risen = _find_risen(work, rows, kinds)
        chosen = []
        if risen.any() and not risen.all():
            chosen.append(risen)
        most = np.argsort(-np.where(risen, rise, -np.inf), kind="stable")[: MIXTURE.states]
        chosen += [
            np.arange(len(risen)) == i for i in most.tolist() if risen.sum() > 1 and risen[i]
        ]
        columns = [compare(together), *(compare(add_up(some)) for some in chosen)]
        other = None
        if whole is not work:
            totals = [
                table.total[own].astype(np.float64) for table, own in zip(whole, rows, strict=True)
            ]
            other = compare((totals[0], totals[1]))
        return cls(columns, other)

    @property
    def shift(self) -> float:
        """By how much the middle of the work differs, in logarithms."""
        work = self.columns[0]
        return float(np.median(work.after) - np.median(work.before))

    def find(self, pace: float, apart: float, none: float) -> Mixture:
        """Return who has a change, by the work, else by the whole time."""
        works = [partial(of.find, pace, apart, none) for of in self.columns]
        many = len(self.columns[0].before) + len(self.columns[0].after)
        best: Mixture = max(in_halves(works, many), key=lambda found: found.gain)
        if best.gain >= MIXTURE.least_gain or self.whole is None:
            return best
        other = self.whole.find(pace, apart, none)
        return other if other.gain >= MIXTURE.least_gain else best


def _add_columns(table: VectorTable, rows: I64, some: Bool) -> F64:
    """Return the time of some rows in some states, exactly, some rows at a time."""
    sums = np.empty(len(rows))
    for block in row_blocks(len(rows)):
        sums[block] = table.durations[rows[block]].sum(axis=1, where=some)
    return sums


def _find_risen(work: Tables, rows: tuple[I64, I64], kinds: tuple[I64, I64]) -> tuple[F64, Bool]:
    """Return what states rose by, and which surely did and have a good part of all that did."""

    def compare(block: slice) -> tuple[F64, F64]:
        before, after = (
            t.durations[:, block][own].astype(np.float64) for t, own in zip(work, rows, strict=True)
        )
        over = _subtract_usual((before, after), kinds)
        error = np.sqrt(sum(side.var(axis=0) / max(len(side) - 1, 1) for side in over))
        return over[1].mean(axis=0) - over[0].mean(axis=0), error

    many = sum(map(len, rows))
    works = [partial(compare, block) for block in table_blocks(many, len(work[0].symbols))]
    found = in_halves(works, many)
    rise, error = (np.concatenate(each) for each in zip(*found, strict=True))
    sure = (rise > 0) & (rise >= MIXTURE.sure * error)
    return rise, np.asarray(sure & (rise >= MIXTURE.good_part * rise[sure].sum()), np.bool_)


def _subtract_usual(sides: tuple[F64, F64], kinds: tuple[I64, I64]) -> tuple[F64, F64]:
    """Return values less the median of their type before; of all, where it has too few."""
    before, after = (side.copy() for side in sides)
    for kind in np.unique(np.concatenate(kinds)).tolist():
        own = sides[0][kinds[0] == kind]
        usual = np.median(own if len(own) >= TYPES.least_labelled else sides[0], axis=0)
        before[kinds[0] == kind] -= usual
        after[kinds[1] == kind] -= usual
    return before, after
