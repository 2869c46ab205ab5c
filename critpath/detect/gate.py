"""The gate: a max-T permutation test over every state, and every type, at once."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from critpath.detect._smallest import mark
from critpath.model import (
    F64,
    I64,
    Bool,
    column_blocks,
    draw_groups,
    mid_ranks,
    order_rows,
    row_blocks,
    student_tails,
    sum_groups,
)
from critpath.schema import notes
from critpath.schema.notes import Note
from critpath.schema.parameters.detect import GATE
from critpath.schema.parameters.shared import NORMAL, PERMUTATIONS

SLACK = 1e-9  # technical: rounding of sums must not decide whether an assignment reaches them


@dataclass(frozen=True)
class GateTest:
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


def seed(*arrays: I64) -> int:
    """Make a seed of the data, so that equal data always give equal p-values.

    Rows are put in order first: the order of executions must not matter.
    """
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        digest.update(np.asarray(array.shape, np.int64).tobytes())
        order = order_rows(array)
        for rows in row_blocks(len(order)):
            digest.update(np.ascontiguousarray(array[order[rows]]).data)
    return int.from_bytes(digest.digest(), "little")


def gate(
    normal: I64,
    sample: I64,
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
    # One order for any order of arrival: the same assignments, so the same p-values.
    ours = order_rows(normal_stratum, normal)
    theirs = order_rows(sample_stratum, sample)
    if sessions is not None:
        sessions = sessions[0][ours], sessions[1][theirs]
    if blocks is not None:
        blocks = blocks[0][ours], blocks[1][theirs]
    columns, many = normal.shape[1], len(sample)
    values = _InOrder(sample, theirs, normal, ours)
    stratum = np.concatenate([sample_stratum[theirs], normal_stratum[ours]])
    members = [np.flatnonzero(stratum == s) for s in range(int(stratum.max()) + 1)]
    chosen = [int((rows < many).sum()) for rows in members]
    rng = np.random.default_rng(seed(sample, normal))
    if blocks is None:
        family = family_of(values, members, chosen, sessions, alpha, rng)
    else:
        family = family_of_blocks(values, members, chosen, blocks, alpha)
    plan, fewest = family.plan, max(PERMUTATIONS.least_drawn, math.ceil(1 / alpha))
    drawn = min(permutations, max(fewest, PERMUTATIONS.work // max(1, sum(map(len, family.units)))))
    # As many as the test draws: with 999 the quantile that it needs is the largest one,
    # and p-values of the same data came out between 0.001 and 0.005.
    pilot = plan.every() if plan.exact else plan.drawn(rng, max(GATE.pilot, drawn))
    divisors = balance((family.sums(picked) for picked in pilot), family.divisors)
    # In canonical order the sample's executions come first in every stratum.
    found = family.sums(plan.as_given())
    observed = [t[0] / d for t, d in zip(found, divisors, strict=True)]
    reached = [np.zeros(3 * columns, np.int64) for _ in divisors]
    largest = []
    for picked in plan.every() if plan.exact else plan.drawn(rng, drawn):
        standardised = [t / d for t, d in zip(family.sums(picked), divisors, strict=True)]
        most = np.max([t.max(axis=1, initial=-np.inf) for t in standardised], axis=0)
        largest.append(most)
        ordered = np.sort(most)
        for i, value in enumerate(observed):
            reached[i] += len(ordered) - np.searchsorted(ordered, value - SLACK)
    done = np.concatenate(largest)
    shares = [r / len(done) if plan.exact else (1 + r) / (1 + len(done)) for r in reached]
    best = [share.reshape(3, columns).min(axis=0) for share in shares]
    by_stratum = np.ones((len(members), columns))
    for stratum_of, p in zip(family.singles, best[1:], strict=True):
        by_stratum[stratum_of] = p
    return GateTest(
        p_value=best[0],
        stratum_p_value=by_stratum,
        critical=float(np.quantile(done, 1 - alpha)),
        permutations=len(done),
        exact=plan.exact,
        ways=plan.ways,
        by_session=sessions is not None,
    )


class _InOrder:
    """The rows of the sample, then the normal ones, each in an order; copied as asked for."""

    def __init__(self, sample: I64, theirs: I64, normal: I64, ours: I64) -> None:
        self._sides = (sample, theirs), (normal, ours)
        self.shape = len(theirs) + len(ours), sample.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: I64) -> I64:
        (sample, theirs), (normal, ours) = self._sides
        many = int(np.searchsorted(rows, len(theirs)))  # rows ascend
        result = np.empty((len(rows), self.shape[1]), np.int64)
        result[:many] = sample[theirs[rows[:many]]]
        result[many:] = normal[ours[rows[many:] - len(theirs)]]
        return result


@dataclass(frozen=True)
class Family:
    """Scores to add up, and what their sums are divided by: over all strata, then singly."""

    units: list[F64]  # per stratum of the plan: [units, 3 * columns]
    plan: Assignments | Flips
    singles: list[int]  # strata that are tested by themselves
    places: list[int]  # of these in the plan
    divisors: list[F64]

    @cached_property
    def _totals(self) -> list[F64]:
        return [each.sum(axis=0) for each in self.units]

    def sums(self, picked: list[Picked]) -> list[F64]:
        """Add up over all strata, then in each stratum that is tested by itself."""
        parts = self.plan.sums(picked, self.units, self._totals)
        nothing = np.zeros((1, len(self.divisors[0])))
        over_all = np.asarray(np.sum(parts, axis=0)) if parts else nothing
        return [over_all, *(parts[i] for i in self.places)]


def family_of(
    values: I64 | _InOrder,
    members: list[I64],
    chosen: list[int],
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
    strata = range(len(members))
    tested = [
        s
        for s in strata
        if 0 < chosen[s] < len(members[s]) or (sessions is not None and len(members[s]))
    ]
    variance = np.zeros((len(members), 3 * values.shape[1]))
    units, picked = [], [chosen[s] for s in tested]
    whole = None if sessions is None else _Sessions(sessions, variance.shape[1])
    for i, s in enumerate(tested):
        size, fewer = len(members[s]), min(chosen[s], len(members[s]) - chosen[s])
        group = min(-(-len(values) // PERMUTATIONS.units), fewer // PERMUTATIONS.least_groups)
        if whole is None and group > 1:
            # The sample's executions are the first.
            first = draw_groups(rng, chosen[s], group)
            rest = draw_groups(rng, size - chosen[s], group) + chosen[s]
            scores, picked[i] = _grouped_scores(values[members[s]], first, rest), len(first)
            many = len(scores)
            spread = picked[i] * (many - picked[i]) / (many - 1)
            variance[s] = spread * scores.var(axis=0)
            units.append(scores)
            continue
        rows = values[members[s]]
        scores = _scores(rows, rows.mean(axis=0))
        if size > 1:
            active = ((scores > 0).any(axis=0) | (scores < 0).any(axis=0)).astype(np.float64)
            variance[s] = active * chosen[s] * (size - chosen[s]) / (size - 1)
        if whole is None:
            units.append(scores)
        else:
            whole.add(members[s], scores)
    if whole is None:
        plan = Assignments([len(u) for u in units], picked)
    else:
        units, picks = whole.in_order()
        plan = Assignments([len(units[0])], [picks])
    # A family of one stratum twice would be the same test twice; a type too small to
    # reach the level by itself would only blunt the others.
    singles = [
        s
        for s in tested
        if len(tested) > 1
        and sessions is None
        and ways([(len(members[s]) - chosen[s], chosen[s])]) * alpha >= 1
    ]
    scales = [variance.sum(axis=0), *(variance[s] for s in singles)]
    divisors = [np.sqrt(np.where(scale > 1e-12, scale, np.inf)) for scale in scales]
    return Family(units, plan, singles, [tested.index(s) for s in singles], divisors)


def family_of_blocks(
    values: I64 | _InOrder,
    members: list[I64],
    chosen: list[int],
    blocks: tuple[I64, I64],
    alpha: float,
) -> Family:
    """Score the columns, and give each block what its sample's executions exceed the others by.

    What a block shares, as a drift of the machine, cancels.  A coin chose the order within it,
    so the sign is as likely the other one where the program makes no difference.
    """
    block = np.concatenate([blocks[1], blocks[0]])
    names, block = np.unique(block, return_inverse=True)
    block = block.reshape(-1)
    units, tested = [], [s for s, rows in enumerate(members) if 0 < chosen[s] < len(rows)]
    for s in tested:
        rows = members[s]
        ours = rows < len(blocks[1])
        scores = _scores(values[rows], values[rows].mean(axis=0))
        sums, counts = np.zeros((2, len(names), scores.shape[1])), np.zeros((2, len(names), 1))
        for side, mine in enumerate((~ours, ours)):
            np.add.at(sums[side], block[rows[mine]], scores[mine])
            counts[side, :, 0] = np.bincount(block[rows[mine]], minlength=len(names))
        means = sums / np.maximum(counts, 1)
        weight = 2 * counts[0] * counts[1] / np.maximum(counts.sum(axis=0), 1)
        units.append(weight * (means[1] - means[0]))
    if units:  # how blocks are numbered must not matter
        order = order_rows(np.concatenate(units, axis=1))
        units = [unit[order] for unit in units]
    singles = [
        s
        for s, unit in zip(tested, units, strict=True)
        if len(tested) > 1 and 2.0 ** int(unit.any(axis=1).sum()) * alpha >= 1
    ]
    over_all = np.sum(units, axis=0) if units else np.zeros((1, 3 * values.shape[1]))
    squares = [over_all, *(units[tested.index(s)] for s in singles)]
    divisors = [
        np.sqrt(np.where(scale > 1e-12, scale, np.inf))
        for scale in ((unit**2).sum(axis=0) for unit in squares)
    ]
    return Family(units, Flips(len(names)), singles, [tested.index(s) for s in singles], divisors)


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


def balance(batches: Iterator[list[F64]], divisors: list[F64]) -> list[F64]:
    """Enlarge the divisors of sums whose upper tail is heavier than a normal one.

    One execution of a type among fifteen has the longest wait of them in one
    assignment of sixteen, at 3.9 standard deviations: the largest sum would mostly
    be such a one, and hide real shifts.  The assignments are drawn apart from those
    of the test, so it stays valid.
    """
    if len(divisors) < 2:  # one stratum: nothing that it could hide
        return divisors
    tails: list[list[F64]] = [[] for _ in divisors]
    for batch in batches:
        for tail, t, d in zip(tails, batch, divisors, strict=True):
            tail.append(t / d)
    balanced = []
    for tail, d in zip(tails, divisors, strict=True):
        quantiles = np.quantile(np.concatenate(tail), GATE.balanced, axis=0)
        excess = np.maximum(quantiles[0] / NORMAL.q99, quantiles[1] / NORMAL.q999)
        balanced.append(d * np.maximum(excess, 1.0))
    return balanced


def _grouped_scores(values: I64, first: I64, rest: I64) -> F64:
    """Add up the scores of groups of rows, some columns at a time: all are too large a table."""
    mean, columns = values.mean(axis=0), values.shape[1]
    result = np.empty((len(first) + len(rest), 3, columns))
    for block in column_blocks(columns):
        scores = _scores(values[:, block], mean[block])
        for place, groups in ((slice(len(first)), first), (slice(len(first), None), rest)):
            sums = sum_groups(scores, groups)
            result[place, :, block] = sums.reshape(len(groups), 3, -1)
    return result.reshape(len(result), -1)


def _scores(values: I64, mean: F64) -> F64:
    """Rank, log and tail of every column, centred, with standard deviation 1 or 0."""
    pooled = np.concatenate(
        [
            mid_ranks(values),
            np.log1p(values / np.where(mean > 0, mean, 1.0)),
            (values > np.quantile(values, GATE.tail, axis=0)).astype(np.float64),
        ],
        axis=1,
    )
    pooled -= pooled.mean(axis=0)
    scale = pooled.std(axis=0)
    np.divide(pooled, scale, out=pooled, where=scale > 1e-9)
    pooled[:, scale <= 1e-9] = 0.0
    return pooled


# Assignments of executions to the two sets, all or drawn at random.


# Units of a stratum in some assignments: their numbers [batch, picked], or where these
# would be many a mark for each that is picked [batch, units].
Picked = I64 | Bool

_CHUNK = 1 << 22  # technical: values of a batch of assignments held at once
_MANY = 600.0  # technical: logarithm of a count that is as good as infinite


def ways(counts: Sequence[tuple[int, int]]) -> float:
    """Count the assignments of executions to the two sets, within strata."""
    # Through the logarithm: the exact number has thousands of digits for large sets.
    log = sum(math.lgamma(n + m + 1) - math.lgamma(n + 1) - math.lgamma(m + 1) for n, m in counts)
    if log > _MANY:
        return math.inf
    return float(math.prod(math.comb(n + m, m) for n, m in counts))


@dataclass(frozen=True)
class Assignments:
    """Which units of each stratum take the sample's place.

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
        return ways([(n - k, k) for n, k in zip(self.sizes, self.chosen, strict=True)])

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
        choices = [
            itertools.combinations(range(n), k)
            for n, k in zip(self.sizes, self.smaller, strict=True)
        ]
        rest = itertools.product(*choices)
        while picked := list(itertools.islice(rest, self._step())):
            yield [
                np.array([parts[s] for parts in picked], np.int64).reshape(len(picked), k)
                for s, k in enumerate(self.smaller)
            ]

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


@dataclass(frozen=True)
class Flips:
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


def _subsets(rng: np.random.Generator, many: int, n: int, k: int) -> Picked:
    """Draw subsets of ``k`` of ``n``, all equally likely."""
    if k * k > 2 * n:  # most draws would have a number twice
        return smallest(rng.random((many, n), dtype=np.float32), k)
    # Few of many: numbers drawn at random, and again where one came twice.
    picked = rng.integers(0, n, (many, k))
    repeat = np.arange(many)
    while len(repeat):
        ordered = np.sort(picked[repeat], axis=1)
        repeat = repeat[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
        picked[repeat] = rng.integers(0, n, (len(repeat), k))
    return picked


def smallest(keys: npt.NDArray[np.float32], k: int) -> Bool:
    """Mark the ``k`` smallest of every row, the first ones of equals."""
    marked = np.empty(keys.shape, np.uint8)
    mark(keys, k, marked)
    return marked.view(np.bool_)


def _sums(picked: Picked, scores: F64) -> F64:
    if picked.dtype == np.bool_:
        return np.asarray(picked.astype(np.float64) @ scores, dtype=np.float64)
    return _sums_of(picked.astype(np.int64, copy=False), scores)


def _sums_of(picked: I64, scores: F64) -> F64:
    many, k = picked.shape
    if k * GATE.sparse <= len(scores):
        total = np.zeros((many, scores.shape[1]))
        for place in range(k):
            total += scores[picked[:, place]]
        return total
    dense = np.zeros((many, len(scores)))
    np.put_along_axis(dense, picked, 1.0, axis=1)
    return np.asarray(dense @ scores, dtype=np.float64)


# Recording sessions: the floor they ask for, and whether they can be permuted.


@dataclass(frozen=True)
class SessionSpread:
    """How far the means of the normal sessions lie apart.

    Attributes
    ----------
    sessions : int
    deviation : float64 [sessions]
        Mean duration of each session less the mean of its types (ns).
    share : float
        Standard deviation (ddof 1) of these, as a share of the mean duration; 0 with
        one session.
    """

    sessions: int
    deviation: F64
    share: float


def session_spread(total: I64, stratum: I64, session: I64) -> SessionSpread:
    """Measure what sessions of one program differ by."""
    names = np.unique(session)
    residual = total.astype(np.float64)
    for s in np.unique(stratum):
        residual[stratum == s] -= total[stratum == s].mean()
    means = np.array([float(residual[session == s].mean()) for s in names])
    if len(names) < 2 or not total.any():
        return SessionSpread(len(names), means, 0.0)
    return SessionSpread(
        len(names), means, float(np.std(means, ddof=1)) / float(total.mean())
    )  # fmt: skip


def floor_share(floor: float, total: I64, stratum: I64, session: I64 | None) -> float:
    """Raise the effect floor to what the normal sessions differ by among themselves."""
    if session is None:
        return floor
    return max(floor, GATE.sigmas * session_spread(total, stratum, session).share)


def permutable(
    normal: I64 | None, sample: I64 | None, level: float
) -> tuple[tuple[I64, I64] | None, Note | None]:
    """Return the sessions if whole ones can be permuted, else why not."""
    if normal is None or sample is None:
        return None, None
    ours, theirs = len(np.unique(normal)), len(np.unique(sample))
    if ours < 2 or theirs < 2:
        return None, None
    if ways([(ours, theirs)]) * level < 1:
        return None, notes.FewSessions(ours, theirs)
    return (normal, sample), None


def exchangeable(blocks: tuple[I64, I64] | None, level: float) -> tuple[I64, I64] | None:
    """Return the blocks if exchanging their sides can be a test at the level."""
    if blocks is None:
        return None
    both = len(np.intersect1d(*blocks))
    return blocks if Flips(both).ways * level >= GATE.least_ways else None


# Runs of a program: their executions share what a neighbour does meanwhile.


def compare_runs(normal: F64, sample: F64, normal_run: I64, sample_run: I64) -> F64:
    """Test every column for a shift upwards between runs, of which each counts once.

    Parameters
    ----------
    normal, sample : float64 [n, columns] and [m, columns]
        Adjusted for types.
    normal_run, sample_run : int64 [n] and [m]

    Returns
    -------
    float64 [columns]
        One-sided p-values: twice the smaller of Welch's t test of the runs' means (degrees of
        freedom rounded down) and of their rank sum, which one slow run cannot spoil.
    """
    means = [_means_by_run(*each) for each in ((normal, normal_run), (sample, sample_run))]
    tails = np.minimum(_welch_tails(*means), _rank_tails(*means))
    return np.asarray(np.minimum(1.0, 2 * tails), np.float64)


def _welch_tails(ours: F64, theirs: F64) -> F64:
    errors = [each.var(axis=0, ddof=1) / len(each) for each in (ours, theirs)]
    error, shift = errors[0] + errors[1], theirs.mean(axis=0) - ours.mean(axis=0)
    result = np.where(shift > 0, 0.0, 1.0)
    for i in np.flatnonzero(error > 0):
        parts = errors[0][i] ** 2 / (len(ours) - 1) + errors[1][i] ** 2 / (len(theirs) - 1)
        freedom = max(2, int(error[i] ** 2 / parts))
        tail = student_tails(np.abs(shift[i : i + 1]) / math.sqrt(error[i]), freedom)[0] / 2
        result[i] = tail if shift[i] > 0 else 1 - tail
    return result


def _rank_tails(ours: F64, theirs: F64) -> F64:
    """Return p-values of the rank sum: exact, or by the normal distribution where many ways are."""
    n, m = len(ours), len(theirs)
    ranks = mid_ranks(np.concatenate([theirs, ours]))
    found = ranks[:m].sum(axis=0)
    if math.comb(n + m, m) <= GATE.most_ways:
        picks = np.array(list(itertools.combinations(range(n + m), m)))
        sums = ranks[picks].sum(axis=1)
        return np.asarray((sums >= found - SLACK).mean(axis=0), np.float64)
    deviation = np.sqrt(ranks.var(axis=0, ddof=1) * n * m / (n + m))
    distance = (found - m * ranks.mean(axis=0)) / np.maximum(deviation, SLACK)
    return np.array([math.erfc(d / math.sqrt(2)) / 2 for d in distance.tolist()])


def compare_blocks(normal: F64, sample: F64, blocks: tuple[I64, I64]) -> F64:
    """Test every column for a shift upwards within blocks, of which each counts once.

    A burst that is longer than a block cancels in it, and a coin chose whom a shorter one hits.

    Returns
    -------
    float64 [columns]
        One-sided p-values of Student's t test of the blocks' differences; 1 with too few blocks.
    """
    names = np.intersect1d(*blocks)
    if len(names) < GATE.few_blocks:
        return np.ones(normal.shape[1])
    means = []
    for values, block in zip((normal, sample), blocks, strict=True):
        rows = np.isin(block, names)
        means.append(_means_by_run(values[rows], np.searchsorted(names, block[rows])))
    found = means[1] - means[0]
    shift, error = found.mean(axis=0), found.std(axis=0, ddof=1) / math.sqrt(len(found))
    tails = student_tails(np.abs(shift) / np.where(error > 0, error, np.inf), len(found) - 1) / 2
    return np.where(error > 0, np.where(shift > 0, tails, 1 - tails), 1.0)


def _means_by_run(values: F64, run: I64) -> F64:
    sums = np.zeros((int(run.max()) + 1, values.shape[1]))
    np.add.at(sums, run, values)
    counts = np.bincount(run)[:, None]
    return np.asarray((sums / np.maximum(counts, 1))[counts[:, 0] > 0], np.float64)
