"""Permutation tests: which assignments are looked at, and a max-T test over all columns at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
from msgspec import Struct

from critpath.model import F64, I64, Bool
from critpath.records import dataclass
from critpath.schema.parameters.detect import GATE
from critpath.schema.parameters.shared import NORMAL, PERMUTATIONS
from critpath.stats._columns import score, standardise
from critpath.stats._subsets import draw
from critpath.stats.rows import (
    column_blocks,
    draw_groups,
    hash_rows,
    mid_ranks,
    order_hashed,
    order_rows,
    quantiles,
    seed_hashed,
    sum_by,
    sum_groups,
    upper_quantiles,
)

Values = F64 | I64


class Table(Protocol):
    """Values by row and column: an array, or what gives the parts that are asked for."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    @property
    def dtype(self) -> Any:
        """Of the values, as numpy has it."""

    def __len__(self) -> int: ...
    def __getitem__(self, at: Any, /) -> Any: ...


SLACK = 1e-9  # technical: rounding of sums must not decide whether an assignment reaches them


class GateTest(Struct, frozen=True):
    """Outcome of the permutation test.

    Attributes
    ----------
    p_value : float64 [columns]
        Of the sums over all strata, adjusted for all columns (and all strata).
    stratum_p_value : float64 [strata, columns]
        Of each stratum by itself, adjusted in the same way; 1 where not tested.
    critical : float
        What the largest standardised sum exceeds in a share ``alpha`` of the
        assignments.
    permutations : int
        Assignments looked at.
    exact : bool
        They were all there are.
    ways : float
        How many there are (inf if beyond a float).
    by_session : bool
        Whole sessions were assigned.
    """

    p_value: F64
    stratum_p_value: F64
    critical: float
    permutations: int
    exact: bool
    ways: float
    by_session: bool


class Together(Struct, frozen=True):
    """Columns of both sets that are tested together at a level."""

    normal: Table
    sample: Table
    alpha: float


def gate(
    normal: Table,
    sample: Table,
    normal_stratum: I64,
    sample_stratum: I64,
    *,
    alpha: float,
    permutations: int,
    sessions: tuple[I64, I64] | None = None,
    blocks: tuple[I64, I64] | None = None,
) -> GateTest:
    """Test every column for a shift upwards of the sample.

    Executions change places; with ``sessions`` whole ones do, with ``blocks`` the two sides of
    each block.
    """
    found = gates(
        [Together(normal, sample, alpha)], normal_stratum, sample_stratum,
        permutations=permutations, sessions=sessions, blocks=blocks,
    )  # fmt: skip
    return found[0]


def gates(
    tests: Sequence[Together],
    normal_stratum: I64,
    sample_stratum: I64,
    *,
    permutations: int,
    sessions: tuple[I64, I64] | None = None,
    blocks: tuple[I64, I64] | None = None,
) -> list[GateTest]:
    """Make several tests with the same assignments: each is what `gate` makes of its columns."""
    # One order for any order of arrival: the same assignments, so the same p-values.
    hashes = (
        hash_rows(sample_stratum, *(of.sample for of in tests)),
        hash_rows(normal_stratum, *(of.normal for of in tests)),
    )
    theirs, ours = map(order_hashed, hashes)
    if sessions is not None:
        sessions = sessions[0][ours], sessions[1][theirs]
    if blocks is not None:
        blocks = blocks[0][ours], blocks[1][theirs]
    values = _InOrder([of.sample for of in tests], theirs, [of.normal for of in tests], ours)
    strata = Strata.of(normal_stratum[ours], sample_stratum[theirs])
    rng = np.random.default_rng(seed_hashed(*hashes))
    levels = [of.alpha for of in tests]
    if blocks is None:
        family = family_of(values, strata, sessions, max(levels), rng)
    else:
        family = family_of_blocks(values, strata, blocks, max(levels))
    plan, fewest = family.plan, max(PERMUTATIONS.least_drawn, math.ceil(1 / min(levels)))
    drawn = min(permutations, max(fewest, PERMUTATIONS.work // max(1, sum(map(len, family.units)))))
    # As many as the test draws: with 999 the quantile that it needs is the largest one,
    # and p-values of the same data came out between 0.001 and 0.005.
    pilot = max(GATE.pilot, drawn)
    sums = family.summed(assign(plan, rng, pilot))
    divisors = balance(sums, count_assigned(plan, pilot), family.divisors)
    # In canonical order the sample's executions come first in every stratum.
    given = family.sums(plan.as_given())[:, 0] / divisors
    # Rank, log and tail of all columns: those of each test are some of each.
    observed = given.reshape(len(given), 3, -1)
    reached = np.zeros(observed.shape, np.int64)
    able = [np.flatnonzero([True, *(w * level >= 1 for w in family.ways)]) for level in levels]
    largest: list[list[F64]] = [[] for _ in tests]
    for each in family.summed(assign(plan, rng, drawn)):
        scores = take_largest(np.divide(each, divisors[:, None], out=each))
        for place, among, of in zip(values.places, able, largest, strict=True):
            of.append(scores[:, :, place][among].max(axis=0).max(axis=1, initial=-np.inf))
            ordered = np.sort(of[-1])
            reached[:, :, place][among] += count_reaching(ordered, observed[:, :, place][among])
    many = sum(map(len, largest[0]))
    best = np.ones((1 + len(strata.members), values.shape[1]))
    rows = np.array([0, *(1 + s for s in family.singles)])
    for place, among in zip(values.places, able, strict=True):
        shares = share_reaching(plan, reached[:, :, place][among], many)
        best[:, place][rows[among]] = shares.min(axis=1)
    return [
        GateTest(
            p_value=best[0, place],
            stratum_p_value=best[1:, place],
            critical=float(quantiles(np.concatenate(of)[:, None], 1 - test.alpha)[0][0]),
            permutations=many,
            exact=plan.exact,
            ways=plan.ways,
            by_session=sessions is not None,
        )
        for test, place, of in zip(tests, values.places, largest, strict=True)
    ]


def take_largest(sums: F64) -> F64:
    """Return the largest of the rank, log and tail of every column."""
    # One after the other: numpy takes the largest of three in ten times as long.
    many = sums.shape[-1] // 3
    both = np.maximum(sums[..., :many], sums[..., many : 2 * many])
    return np.maximum(both, sums[..., 2 * many :], out=both)


def count_reaching(ordered: F64, observed: F64) -> I64:
    """Count which of ascending sums reach each observed one."""
    return len(ordered) - np.searchsorted(ordered, observed - SLACK)


class _InOrder:
    """The rows of the sample, then the normal ones, each in an order; copied as asked for.

    Tables of several tests are side by side, each in its place.
    """

    def __init__(self, sample: list[Table], theirs: I64, normal: list[Table], ours: I64) -> None:
        self._sides = (sample, theirs), (normal, ours)
        ends = np.cumsum([table.shape[1] for table in sample]).tolist()
        self.places = [slice(*pair) for pair in pairwise([0, *ends])]
        self.shape = len(theirs) + len(ours), ends[-1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: I64) -> Values:
        return self.take(rows, slice(0, self.shape[1]))

    def take(self, rows: I64, columns: slice) -> Values:
        """Return some columns of some rows, which ascend: all would be too large a table."""
        first = self._sides[0]
        many = int(np.searchsorted(rows, len(first[1])))
        result = np.empty((len(rows), columns.stop - columns.start), first[0][0].dtype)
        picked = rows[:many], rows[many:] - len(first[1])
        for into, at, (tables, order) in zip(
            (result[:many], result[many:]), picked, self._sides, strict=True
        ):
            for place, table in zip(self.places, tables, strict=True):
                begin, end = max(place.start, columns.start), min(place.stop, columns.stop)
                if begin < end:
                    of = table[:, begin - place.start : end - place.start]
                    into[:, begin - columns.start : end - columns.start] = of[order[at]]
        return result


# Scores to add up: of executions, sessions or blocks.

_CONSTANT = 1e-9  # technical: the deviation of what differs by rounding alone
_TOGETHER: Final = 1 << 16  # technical: rows that are scored at once


class Strata(Struct, frozen=True):
    """Rows of both sets by stratum, the sample's first, and how many of each are the sample's."""

    members: list[I64]
    chosen: list[int]

    @classmethod
    def of(cls, normal: I64, sample: I64) -> Strata:
        """Return those of two sets, each execution's stratum given."""
        stratum = np.concatenate([sample, normal])
        members = [np.flatnonzero(stratum == s) for s in range(int(stratum.max()) + 1)]
        return cls(members, [int((rows < len(sample)).sum()) for rows in members])


@dataclass(frozen=True)
class Family:
    """Scores to add up, and what their sums are divided by: over all strata, then singly."""

    units: list[F64]  # per stratum of the plan: [units, 3 * columns]
    plan: Plan
    singles: list[int]  # strata that are tested by themselves
    ways: list[float]  # to exchange each of these
    places: list[int]  # of these in the plan
    divisors: F64  # [1 + singles, 3 * columns]

    @classmethod
    def of(
        cls,
        units: list[F64],
        plan: Plan,
        tested: list[int],
        singles: dict[int, float],
        scales: list[F64],
    ) -> Family:
        """Return that of scores whose sums vary by ``scales``."""
        scale = np.stack(scales)
        divisors = np.sqrt(np.where(scale > 1e-12, scale, np.inf))
        places = [tested.index(s) for s in singles]
        return cls(units, plan, [*singles], [*singles.values()], places, divisors)

    @cached_property
    def _totals(self) -> list[F64]:
        return [each.sum(axis=0) for each in self.units]

    def sums(self, picked: list[Picked]) -> F64:
        """Add up over all strata, then in each stratum that is tested by itself.

        Float64 [1 + singles, assignments, 3 * columns].
        """
        parts = self.plan.sums(picked, self.units, self._totals)
        if not parts:
            return np.zeros((1, 1, self.divisors.shape[1]))
        found = np.empty((len(self.divisors), *parts[0].shape))
        found[0] = parts[0]
        for part in parts[1:]:
            found[0] += part
        for into, place in zip(found[1:], self.places, strict=True):
            into[:] = parts[place]
        return found

    def summed(self, batches: Iterator[list[Picked]]) -> Iterator[F64]:
        """Add up so few assignments at a time that their sums stay in the processor's cache."""
        step = max(1, _CACHED // self.divisors.shape[1])
        for batch in batches:
            for begin in range(0, len(batch[0]) if self.units else 1, step):
                yield self.sums([picked[begin : begin + step] for picked in batch])


def balance(batches: Iterator[F64], many: int, divisors: F64) -> F64:
    """Enlarge the divisors of so many sums whose upper tail is heavier than a normal one.

    One execution of a type among fifteen has the longest wait of them in one
    assignment of sixteen, at 3.9 standard deviations: the largest sum would mostly
    be such a one, and hide real shifts.  The assignments are drawn apart from those
    of the test, so it stays valid.
    """
    if len(divisors) < 2:  # one stratum: nothing that it could hide
        return divisors
    tails = (np.divide(batch, divisors[:, None], out=batch) for batch in batches)
    rare, rarest = upper_quantiles(tails, many, *GATE.balanced)
    excess = np.maximum(rare / NORMAL.q99, rarest / NORMAL.q999)
    return np.asarray(divisors * np.maximum(excess, 1.0), np.float64)


def family_of(
    values: Values | _InOrder,
    strata: Strata,
    sessions: tuple[I64, I64] | None,
    alpha: float,
    rng: np.random.Generator,
) -> Family:
    """Score the columns in every stratum, and say what their sums are divided by.

    Many executions change places in groups that are drawn at random, each of one side: these
    permutations are some of those of single executions, and a group by themselves, so the test
    is as valid (Hemerik and Goeman 2018).  Its cost does not grow with the executions then; where
    a side has fewer than 200 of a kind, single executions change places.
    """
    members, chosen = strata.members, strata.chosen
    tested = [
        s
        for s in range(len(members))
        if 0 < chosen[s] < len(members[s]) or (sessions is not None and len(members[s]))
    ]
    variance = np.zeros((len(members), 3 * values.shape[1]))
    units, picked = [np.zeros((0, 0))] * len(tested), [chosen[s] for s in tested]
    whole = None if sessions is None else _Sessions(sessions, variance.shape[1])
    alone: list[int] = []  # places of strata whose executions change places one by one
    for i, s in enumerate(tested):
        size, fewer = len(members[s]), min(chosen[s], len(members[s]) - chosen[s])
        group = min(-(-len(values) // PERMUTATIONS.units), fewer // PERMUTATIONS.least_groups)
        if whole is not None or group <= 1:
            alone.append(i)
            continue
        # The sample's executions are the first.
        first = draw_groups(rng, chosen[s], group)
        rest = draw_groups(rng, size - chosen[s], group) + chosen[s]
        units[i], picked[i] = _grouped_scores(values, members[s], first, rest), len(first)
        many = len(units[i])
        spread = picked[i] * (many - picked[i]) / (many - 1)
        variance[s] = spread * units[i].var(axis=0)
    found = _score_each(values, [members[tested[i]] for i in alone])
    for i in alone:
        scores, active = next(found)
        s = tested[i]
        size = len(members[s])
        if size > 1:
            variance[s] = active * chosen[s] * (size - chosen[s]) / (size - 1)
        if whole is None:
            units[i] = scores
        else:
            whole.add(members[s], scores)
        del scores  # of very many rows not beside the next
    if whole is None:
        plan = Assignments([len(u) for u in units], picked)
    else:
        units, picks = whole.in_order()
        plan = Assignments([len(units[0])], [picks])
    # A family of one stratum twice would be the same test twice; a type too small to
    # reach the level by itself would only blunt the others.
    apart = tested if len(tested) > 1 and sessions is None else []
    ways = {s: count_ways([(len(members[s]) - chosen[s], chosen[s])]) for s in apart}
    singles = {s: many for s, many in ways.items() if many * alpha >= 1}
    scales = [variance.sum(axis=0), *(variance[s] for s in singles)]
    return Family.of(units, plan, tested, singles, scales)


def family_of_blocks(
    values: Values | _InOrder, strata: Strata, blocks: tuple[I64, I64], alpha: float
) -> Family:
    """Score the columns, and give each block what its sample's executions exceed the others by.

    What a block shares, as a drift of the machine, cancels.  A coin chose the order within it,
    so the sign is as likely the other one where the program makes no difference.
    """
    names, block = np.unique(np.concatenate([blocks[1], blocks[0]]), return_inverse=True)
    block = block.reshape(-1)
    units: list[F64] = []
    tested = [s for s, rows in enumerate(strata.members) if 0 < strata.chosen[s] < len(rows)]
    for s in tested:
        rows = strata.members[s]
        ours = rows < len(blocks[1])
        scores = _scores(values[rows], values[rows].mean(axis=0))
        sides = [block[rows[mine]] for mine in (~ours, ours)]
        sums = [
            sum_by(scores[mine], side, len(names))
            for mine, side in zip((~ours, ours), sides, strict=True)
        ]
        counts = [np.bincount(side, minlength=len(names))[:, None] for side in sides]
        means = [each / np.maximum(many, 1) for each, many in zip(sums, counts, strict=True)]
        weight = 2 * counts[0] * counts[1] / np.maximum(counts[0] + counts[1], 1)
        units.append(weight * (means[1] - means[0]))
    if units:  # how blocks are numbered must not matter
        order = order_rows(np.concatenate(units, axis=1))
        units = [unit[order] for unit in units]
    alone = zip(tested, units, strict=True) if len(tested) > 1 else ()
    ways = {s: Flips(int(unit.any(axis=1).sum())).ways for s, unit in alone}
    singles = {s: many for s, many in ways.items() if many * alpha >= 1}
    over_all = np.sum(units, axis=0) if units else np.zeros((1, 3 * values.shape[1]))
    squares = [over_all, *(units[tested.index(s)] for s in singles)]
    scales = [(unit**2).sum(axis=0) for unit in squares]
    return Family.of(units, Flips(len(names)), tested, singles, scales)


class _Sessions:
    """Sums of the scores of every session, the sample's first."""

    def __init__(self, sessions: tuple[I64, I64], columns: int) -> None:
        normal_session, sample_session = sessions
        first = int(sample_session.max()) + 1
        unit = np.concatenate([sample_session, normal_session + first])
        names, unit = np.unique(unit, return_inverse=True)
        self._unit, self._sums = unit.reshape(-1), np.zeros((len(names), columns))
        self._picks = len(np.unique(sample_session))

    def add(self, rows: I64, scores: F64) -> None:
        """Add the scores of some executions."""
        np.add.at(self._sums, self._unit[rows], scores)

    def in_order(self) -> tuple[list[F64], int]:
        """Return the sums, and how many are the sample's."""
        # How sessions are numbered must not matter.
        parts = self._sums[: self._picks], self._sums[self._picks :]
        return [np.concatenate([part[order_rows(part)] for part in parts])], self._picks


def _grouped_scores(values: Values | _InOrder, rows: I64, first: I64, rest: I64) -> F64:
    """Add up the scores of groups of rows, some columns at a time: all are too large a table."""
    columns = values.shape[1]
    result = np.empty((len(first) + len(rest), 3, columns))
    for block in column_blocks(columns):
        some = values.take(rows, block) if isinstance(values, _InOrder) else values[:, block][rows]
        wide = some.shape[1]
        # A score at a time, but of a single column: see `column_blocks`.
        kinds = [slice(kind, kind + 1) for kind in range(3)] if wide > 2 else [slice(0, 3)]
        for kind in kinds:
            scores = _scores(some, some.mean(axis=0), kind)
            for place, groups in ((slice(len(first)), first), (slice(len(first), None), rest)):
                sums = sum_groups(scores, groups)
                result[place, kind, block] = sums.reshape(len(groups), -1, wide)
    return result.reshape(len(result), -1)


def _standardise(pooled: F64, ends: I64) -> Bool:
    """Standardise the columns of groups of rows; return which vary."""
    scales = np.empty((len(ends), pooled.shape[1]))
    standardise(pooled, ends, np.empty(pooled.shape[1]), scales, _CONSTANT)
    return scales > _CONSTANT


def _score_each(values: Values | _InOrder, groups: list[I64]) -> Iterator[tuple[F64, Bool]]:
    """Score the rows of groups as `_scores`, short ones together; tell which scores vary in each.

    Of a group of very many rows a table more would be too large.
    """
    first = 0
    while first < len(groups):
        many, last = len(groups[first]), first + 1
        if many > _TOGETHER:
            yield _score_alone(values[groups[first]])
        else:
            while last < len(groups) and (many := many + len(groups[last])) <= _TOGETHER:
                last += 1
            yield from _score_together(values, groups[first:last])
        first = last


def _score_alone(rows: Values) -> tuple[F64, Bool]:
    scores = _scores(rows, rows.mean(axis=0))
    return scores, np.asarray((scores != 0).any(axis=0))


def _score_together(values: Values | _InOrder, groups: list[I64]) -> Iterator[tuple[F64, Bool]]:
    ends = np.cumsum([len(rows) for rows in groups], dtype=np.int64)
    rows, many = np.concatenate(groups), values.shape[1]
    order = np.argsort(rows, kind="stable")
    columns = np.empty((many, len(rows)))
    columns[:, order] = values[rows[order]].T
    pooled = np.empty((len(rows), 3 * many))
    score(columns, ends, GATE.tail, np.empty((2, len(rows)), np.int32), pooled)
    logs = pooled[:, many : 2 * many]
    np.log1p(logs, out=logs)
    vary = _standardise(pooled, ends)
    return zip(np.split(pooled, ends[:-1]), vary, strict=True)


def _scores(values: Values, mean: F64, kinds: slice = slice(0, 3)) -> F64:
    """Rank, log and tail of every column, or some of them, centred, with deviation 1 or 0."""
    n, columns = values.shape
    first, last = kinds.start, kinds.stop
    pooled = np.empty((n, (last - first) * columns))
    parts = {
        kind: pooled[:, (kind - first) * columns : (kind - first + 1) * columns]
        for kind in range(first, last)
    }
    if 0 in parts:
        mid_ranks(values, parts[0])
    if 1 in parts:
        np.divide(values, np.where(mean > 0, mean, 1.0), out=parts[1])
        np.log1p(parts[1], out=parts[1])
    if 2 in parts:
        parts[2][:] = values > quantiles(values, GATE.tail)[0]
    if pooled.shape[1] > 1:
        _standardise(pooled, np.array([n]))
        return pooled
    pooled -= pooled.mean(axis=0)  # numpy adds up a single column in another order
    scale = pooled.std(axis=0)
    np.divide(pooled, scale, out=pooled, where=scale > _CONSTANT)
    pooled[:, scale <= _CONSTANT] = 0.0
    return pooled


# Assignments of executions to the two sets, all or drawn at random.


# Units of a stratum in some assignments: their numbers [batch, picked], or where these
# would be many a mark for each that is picked [batch, units], which is a weight once it is `ready`.
Picked = I64 | Bool | F64

_CHUNK = 1 << 22  # technical: values of a batch of assignments held at once
_CACHED = 1 << 13  # technical: sums of them that are worked on at once
_MANY = 600.0  # technical: logarithm of a count that is as good as infinite


def count_ways(counts: Sequence[tuple[int, int]]) -> float:
    """Count the assignments of executions to the two sets, within strata."""
    return _count_ways(tuple(counts))


@lru_cache(1 << 12)  # technical: of a calibration all
def _count_ways(counts: tuple[tuple[int, int], ...]) -> float:
    # Through the logarithm: the exact number has thousands of digits for large sets.
    log = sum(math.lgamma(n + m + 1) - math.lgamma(n + 1) - math.lgamma(m + 1) for n, m in counts)
    if log > _MANY:
        return math.inf
    return float(math.prod(math.comb(n + m, m) for n, m in counts))


class Assignments(Struct, frozen=True):
    """Which units of each stratum take the sample's place; as given, the first.

    Attributes
    ----------
    sizes, chosen : sequence of int
        Units of every stratum, and how many of them are in the sample.
    """

    sizes: Sequence[int]
    chosen: Sequence[int]

    @property
    def ways(self) -> float:
        """Number of different assignments."""
        return count_ways([(n - k, k) for n, k in zip(self.sizes, self.chosen, strict=True)])

    @property
    def exact(self) -> bool:
        """Few enough to look at every one."""
        return self.ways <= PERMUTATIONS.exact

    @property
    def smaller(self) -> list[int]:
        """Units of the smaller side of every stratum: the side that is drawn."""
        return [min(k, n - k) for n, k in zip(self.sizes, self.chosen, strict=True)]

    def every(self) -> Iterator[list[Picked]]:
        """Yield all assignments in batches: per stratum, int64 [batch, smaller]."""
        choices = []
        for n, k in zip(self.sizes, self.smaller, strict=True):
            units = itertools.chain.from_iterable(itertools.combinations(range(n), k))
            choices.append(np.fromiter(units, np.int64).reshape(math.comb(n, k), k))
        many = [len(each) for each in choices]
        step = self._step()
        for begin in range(0, math.prod(many), step):
            at = np.arange(begin, min(begin + step, math.prod(many)))
            numbers = np.unravel_index(at, many) if many else ()
            yield [each[of] for each, of in zip(choices, numbers, strict=True)]

    def drawn(self, rng: np.random.Generator, count: int) -> Iterator[list[Picked]]:
        """Yield that many random assignments; strata of which much is picked are marked."""
        step = self._step()
        for begin in range(0, count, step):
            many = min(step, count - begin)
            yield [_subsets(rng, many, n, k) for n, k in zip(self.sizes, self.smaller, strict=True)]

    def sums(
        self, picked: list[Picked], scores: Sequence[F64], totals: Sequence[F64] | None = None
    ) -> list[F64]:
        """Add up, per stratum, the scores of the units in the sample."""
        if totals is None:
            totals = [each.sum(axis=0) for each in scores]
        sides = zip(picked, scores, totals, self.sizes, self.chosen, strict=True)
        return [t - _sums(p, s) if 2 * k > n else _sums(p, s) for p, s, t, n, k in sides]

    def as_given(self) -> list[Picked]:
        """Return the assignment that has the first units of each stratum in the sample."""
        return [
            np.arange(k if 2 * k > n else 0, n if 2 * k > n else k, dtype=np.int64)[None, :]
            for n, k in zip(self.sizes, self.chosen, strict=True)
        ]

    def _step(self) -> int:
        return max(1, _CHUNK // max(1, sum(self.sizes)))


class Flips(Struct, frozen=True):
    """In which blocks the sample's runs take the normal ones' places: any, as a coin falls."""

    blocks: int

    @property
    def ways(self) -> float:
        """Number of different assignments."""
        return 2.0**self.blocks if self.blocks <= _MANY else math.inf

    @property
    def exact(self) -> bool:
        """Few enough to look at every one."""
        return self.ways <= PERMUTATIONS.exact

    def every(self) -> Iterator[list[Picked]]:
        """Yield all assignments in one batch: marks of what is exchanged [batch, blocks]."""
        yield [
            (np.arange(1 << self.blocks)[:, None] >> np.arange(self.blocks) & 1).astype(np.bool_)
        ]

    def drawn(self, rng: np.random.Generator, count: int) -> Iterator[list[Picked]]:
        """Yield that many random assignments."""
        step = max(1, _CHUNK // max(1, self.blocks))
        for begin in range(0, count, step):
            yield [rng.random((min(step, count - begin), self.blocks), dtype=np.float32) < 0.5]

    def sums(
        self, picked: list[Picked], scores: Sequence[F64], _totals: Sequence[F64] | None = None
    ) -> list[F64]:
        """Add up the blocks' differences, those that are exchanged with the other sign."""
        signs = 1.0 - 2.0 * picked[0]
        return [np.asarray(signs @ each, np.float64) for each in scores]

    def as_given(self) -> list[Picked]:
        """Return the assignment that exchanges nothing."""
        return [np.zeros((1, self.blocks), np.bool_)]


Plan = Assignments | Flips


def assign(plan: Plan, rng: np.random.Generator, count: int) -> Iterator[list[Picked]]:
    """Yield what is looked at, in batches: all where these are few, or so many random ones."""
    return plan.every() if plan.exact else plan.drawn(rng, count)


def count_assigned(plan: Plan, count: int) -> int:
    """Return how many `assign` yields."""
    return int(plan.ways) if plan.exact else count


def share_reaching(plan: Plan, reached: I64, looked_at: int) -> F64:
    """Return the p-values of what so many of those looked at reach."""
    extra = 0 if plan.exact else 1  # what is observed is one of all
    return np.asarray((extra + reached) / (extra + looked_at), np.float64)


def _subsets(rng: np.random.Generator, many: int, n: int, k: int) -> Picked:
    """Draw subsets of ``k`` of ``n``, all equally likely."""
    if k * k > 2 * n:  # most draws would have a number twice
        marked = np.empty((many, n), np.uint8)
        draw(rng.integers(0, 1 << 64, many, np.uint64), k, marked)
        return marked.view(np.bool_)
    # Few of many: numbers drawn at random, and again where one came twice.
    picked = rng.integers(0, n, (many, k))
    repeat = np.arange(many if k > 1 else 0)
    while len(repeat):
        ordered = np.sort(picked[repeat], axis=1)
        repeat = repeat[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
        picked[repeat] = rng.integers(0, n, (len(repeat), k))
    return picked


def make_ready(picked: Picked, units: int) -> Picked:
    """Return what is picked as it is added up with many scores: few by number, many by weight."""
    if picked.dtype != np.int64:
        return picked.astype(np.float64, copy=False)
    many, k = picked.shape
    if k * GATE.sparse <= units:
        return picked
    weights = np.zeros((many, units))
    weights.put(np.asarray(picked + units * np.arange(many)[:, None], np.int64), 1.0)
    return weights


def _sums(picked: Picked, scores: F64) -> F64:
    picked = make_ready(picked, len(scores))
    if picked.dtype == np.float64:
        return np.asarray(picked @ scores, dtype=np.float64)
    total = np.zeros((len(picked), scores.shape[1]))
    for place in picked.T:  # an index between brackets would take ten times as long
        total += scores.take(place, axis=0)
    return total
