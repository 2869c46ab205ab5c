"""Which sample executions are outliers of the normal cluster they are paired with.

Per column (symbols and the total) an execution has two z, of its duration and of
the logarithm of it: the deviation from its type's mean in standard deviations,
these shrunk towards those of all types.  The geometric mean of the two (0 where
either is not positive) is large only if the excess is large both absolutely and
relative to what is usual.  The score is the root of the sum of their squares.  In
simulations the largest z of the plain durations finds a little more; of the
recorded executions with known bugs it missed those of `sample-fsync`.

NormalTypes can look alike by their counts, so an execution is scored against every
type that its counts would fit, and the least score is taken: what some normal
type explains is not abnormal.  Normal executions are scored the same way.  Where
labels tell the type, only that type counts.

p-values are full conformal (Vovk, Gammerman and Shafer 2005), over all types
together: the sample execution joins the normal ones, every member of that bag is
scored against the others, and p is the share that scores at least as much.  It is
exact where all are of a kind.  Sets too large for that are scored without the
sample execution in the bag, and a note says so.  Beyond the largest reference
score the tail is a Pareto tail (Hill 1975) fitted to the top tenth, as 105 normal
executions could otherwise never convict one among eleven.  A p below ``1 / (n + 1)``
is thus extrapolated: it holds its level where tails are of one piece, as in the
simulations (docs/evaluation/alarms.md), and marks a healthy hiccup that is rarer
than one in n, which nothing in n executions tells from a fault.

The verdict is Benjamini and Hochberg's (1995) at ``level`` over the sample; and
the excess of a column must reach the floor.  Half of the level is for another way:
membership in a type whose sample executions are slower together in a column
(`shifted_columns`), slower by the floor as a whole, and more than k * std above its
mean in that column.  Twelve executions of a type that are all slower than its twelve
normal ones have each a p of 1/13 at the best, and that alone marks none.  The level
is of the type's test: where only some of a type's executions have a fault, one in
ten of the others may be marked with them.

`confirm_marks`: where no alarm says that the sample as a whole became slower, a marked execution
also has to stand out in its own recording.  Vectors are best without the time that strangers had
the cpu (`critpath.detect.machine.find_strangers`): it hides executions with a fault three times as
often as it marks others (docs/evaluation/alarms.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import Struct

from critpath.cluster._bags import score as score_bag
from critpath.cluster.pairing import normal_space, novel_limits, plausible
from critpath.model import (
    F64,
    I64,
    Bool,
    Clustering,
    ClusterPairs,
    Outliers,
    VectorTable,
    Whole,
    excess_over_types,
)
from critpath.schema import notes
from critpath.schema.notes import Note
from critpath.schema.parameters.cluster import OUTLIERS
from critpath.schema.parameters.shared import DEFAULTS, NORMAL, SPREADS
from critpath.stats.permutations import Table, count_ways, gate
from critpath.stats.rows import row_blocks
from critpath.stats.tails import benjamini_hochberg, conformal

# technical: values that exact conformal p-values may cost to compute: some ten seconds.
EXACT_LIMIT = 50_000_000
BAG_LIMIT = 4_000_000  # technical: of them at once: half a gigabyte


def find_outliers(
    normal: VectorTable,
    normal_clusters: Clustering,
    sample: VectorTable,
    sample_clusters: Clustering,
    pairs: ClusterPairs,
    *,
    k: float = DEFAULTS.outlier_k,
    level: float = DEFAULTS.outlier_level,
    floor: float = DEFAULTS.floor,
    types_known: bool = False,
) -> Outliers:
    """Judge every sample execution against its paired normal cluster (method: see the module).

    Parameters
    ----------
    normal, sample : VectorTable
        Over the same symbols; at least one normal execution.
    normal_clusters, sample_clusters : Clustering
        Of these executions.
    pairs : ClusterPairs
        Normal cluster of each sample cluster.
    k : float
        The paper's factor: a state above mean + k * std makes an outlier.
    level : float
        False discovery rate of the verdict.
    floor : float
        Least excess, as a share of the cluster's mean total, that counts.
    types_known : bool
        NormalTypes come from labels: an execution is compared with its own alone.

    Returns
    -------
    Outliers
        ``paper`` is the paper's rule (std with ddof 1; it marks a quarter to a
        half of *healthy* executions).  ``anomalous`` is the verdict.

    Raises
    ------
    ValueError
        If the tables have different symbols or there is no normal execution.
    """
    if normal.symbols != sample.symbols:
        raise ValueError("normal and sample vectors have different symbols")
    if len(normal) == 0:
        raise ValueError("no normal run to compare with")
    partner = pairs.pair[sample_clusters.labels]
    raw, observed = DurationColumns(normal), DurationColumns(sample)
    both, both_observed = BothScales(raw, raw), BothScales(observed, raw)
    types = describe_types(both, normal_clusters.labels, normal_clusters.size)
    supported = np.asarray(types.sizes[types.labels] > 1, dtype=np.bool_)
    if types_known:
        kinds = np.arange(normal_clusters.size)
        ours, theirs = types.labels[:, None] == kinds, partner[:, None] == kinds
    else:
        ours, theirs = _find_fitting(normal, normal_clusters, sample, partner)
    single = _judge_singly(types, observed, both_observed, theirs, partner, k=k, floor=floor)
    score = single.score
    p_value, beyond, exact = _p_values(types, both, ours, both_observed, partner, score, supported)
    # Single executions: the columns that made the score must carry the excess.
    alone = level * (1 - OUTLIERS.group_level)
    anomalous = benjamini_hochberg(p_value, alone) & single.carried
    together = _groups(
        raw,
        observed,
        normal_clusters.labels,
        partner,
        types.mean[:, raw.columns - 1] * floor * OUTLIERS.group_floor,
        level * OUTLIERS.group_level,
    )
    # Who is no slower as a whole only spent its time otherwise.
    anomalous |= (together & single.above & single.large).any(axis=1) & single.large[:, -1]
    return Outliers(
        score=score,
        p_value=p_value,
        anomalous=anomalous,
        paper=np.asarray(single.above[:, :-1].any(axis=1), dtype=np.bool_),
        excess=single.excess,
        symbol=np.where(single.top == len(normal.symbols), -1, single.top).astype(np.int64),
        posterior=np.full(len(score), np.nan),
        notes=(
            *_support_notes(types, partner, supported, exact=exact),
            *_lone_notes(
                int((beyond & single.large.any(axis=1) & ~anomalous).sum()),
                len(observed),
                int(supported.sum()),
                alone,
            ),
            *_novel_notes(pairs.novel[sample_clusters.labels], anomalous),
        ),
    )


def confirm_marks(
    found: Outliers, sample: VectorTable, partner: I64, session: I64 | None
) -> Outliers:
    """Keep the marks that the other executions of the same recording bear out.

    A slow hour makes all of a recording's executions stand out from those of another hour.
    So an execution has to stand out from the others of its type in its own recording, too: by
    `OUTLIERS.own` robust standard deviations of logarithms.

    Parameters
    ----------
    found : Outliers
    sample : VectorTable
        Of the executions that ``found`` is about.
    partner : int64 [sample]
        Type of each.
    session : int64 [sample] or None
        Recording of each; None where they are of one.
    """
    usual = np.maximum(sample.total - found.excess, 1).astype(np.float64)
    over = np.log(np.maximum(sample.total, 1).astype(np.float64)) - np.log(usual)
    stays = np.zeros(len(over), np.bool_)
    places = np.zeros(len(over), np.int64) if session is None else session
    for kind, place in np.unique(np.stack([partner, places]), axis=1).T.tolist():
        rows = (partner == kind) & (places == place)
        stays[rows] = _stand_out(over[rows])
    return replace(found, anomalous=found.anomalous & stays)


def _stand_out(over: F64) -> Bool:
    """Return which of a type's executions stand out, by the logarithm of what they are over."""
    if len(over) < OUTLIERS.low_support:
        return np.asarray(over > OUTLIERS.few_over, dtype=np.bool_)
    middle = float(np.median(over))
    spread = math.hypot(
        NORMAL.per_mad * float(np.median(np.abs(over - middle))), OUTLIERS.own_spread
    )
    return np.asarray(over > middle + OUTLIERS.own * spread, dtype=np.bool_)


def with_excess(
    found: Outliers, tables: tuple[VectorTable, VectorTable], types: tuple[I64, I64]
) -> Outliers:
    """Return outliers with their excess by other tables than those that they were judged by.

    Who is no slower as a whole by these is none.
    """
    excess = excess_over_types((tables[0].total, tables[1].total), types)
    return replace(found, excess=excess, anomalous=found.anomalous & (excess > 0))


def _p_values(
    types: NormalTypes,
    both: BothScales,
    ours: Bool,
    both_observed: BothScales,
    partner: I64,
    score: F64,
    supported: Bool,
) -> tuple[F64, Bool, bool]:
    """Return p-values, who scores beyond all others, and whether that is full conformal."""
    size = bag_size(types, ours)
    exact = size <= BAG_LIMIT and size * len(score) <= EXACT_LIMIT
    if exact:
        p_value, beyond = np.ones(len(score)), np.zeros(len(score), np.bool_)
        for i, null in bag_scores(types, both, ours, both_observed, partner):
            p_value[i] = conformal(null, score[i : i + 1])[0]
            beyond[i] = score[i] > null.max(initial=0.0)
    else:
        null = reference_scores(types, both, ours)[supported]
        p_value, beyond = conformal(null, score), score > null.max(initial=0.0)
    return p_value, beyond, exact


def _find_above(excess: F64, k: float, mean: F64, squares: F64, sizes: F64, partner: I64) -> Bool:
    """Return which columns are k standard deviations above their type's mean."""
    std = np.sqrt(squares / np.maximum(sizes - 1, 1)[:, None])
    above = excess > k * std[partner]
    above &= excess > 1e-9 * mean[partner]  # a mean's rounding is no excess
    above &= sizes[partner, None] > 1  # one execution has no standard deviation
    return np.asarray(above, dtype=np.bool_)


class _Single(Struct, frozen=True):
    """Figures of every sample execution by itself, and of each of its columns."""

    score: F64
    excess: I64  # of the total
    top: I64  # column
    carried: Bool  # a column that made the score has an excess as large as the floor
    large: Bool  # [executions, columns], as below: reaches the floor
    above: Bool  # k standard deviations above the type's mean


def _judge_singly(
    types: NormalTypes,
    observed: DurationColumns,
    both: BothScales,
    fitting: Bool,
    partner: I64,
    *,
    k: float,
    floor: float,
) -> _Single:
    """Score the sample's executions and look at their columns, some executions at a time."""
    n, columns = len(observed), observed.columns
    mean, squares = types.mean[:, :columns], types.squares[:, :columns]
    found = _Single(
        *(np.zeros(n), np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)),
        *np.zeros((2, n, columns), np.bool_),
    )
    for rows, score, z in sample_scores(types, both, fitting):
        mine = partner[rows]
        excess = observed[rows] - mean[mine]
        large = (excess >= floor * mean[mine, -1][:, None]) & (excess > 0)
        found.score[rows], found.large[rows] = score, large
        found.above[rows] = _find_above(excess, k, mean, squares, types.sizes, mine)
        found.carried[rows] = (large & (z > 0)).any(axis=1)
        found.excess[rows] = np.rint(excess[:, -1]).astype(np.int64)
        found.top[rows] = np.where(z.any(axis=1), z.argmax(axis=1), excess.argmax(axis=1))
    return found


def _find_fitting(
    normal: VectorTable, clusters: Clustering, sample: VectorTable, partner: I64
) -> tuple[Bool, Bool]:
    """Plausible types of normal and sample executions."""
    home = normal_space(normal, clusters)
    limits = novel_limits(home)
    labels = home.point_labels
    own = np.zeros_like(home.point_sums)
    own[np.arange(len(labels)), labels] = 1.0
    ours = plausible(home.point_sums / np.maximum(home.sizes - own, 1), limits, labels)
    sums, member = home.sums_of(sample.structure)
    theirs = np.zeros((len(member), len(limits)), np.bool_)
    for rows in row_blocks(len(member)):
        theirs[rows] = plausible(sums[member[rows]] / home.sizes, limits, partner[rows])
    return ours[home.member], theirs


def _groups(
    raw: DurationColumns,
    observed: DurationColumns,
    labels: I64,
    partner: I64,
    least: F64,
    level: float,
) -> Bool:
    """Columns in which an execution's whole type is slower, per execution."""
    result = np.zeros((len(observed), observed.columns), np.bool_)
    types, sizes = np.unique(partner, return_counts=True)
    types = types[sizes > 1]
    for c in types:
        mine = partner == c
        result[mine] = shifted_columns(
            _Rows(raw, np.flatnonzero(labels == c)),
            _Rows(observed, np.flatnonzero(mine)),
            alpha=level / len(types),
            floor=float(least[c]),
        )
    return result


def _support_notes(
    types: NormalTypes, partner: I64, supported: Bool, *, exact: bool
) -> tuple[Note, ...]:
    """Note where too few normal executions speak for a type, or for all."""
    result: list[Note] = []
    low, references = int((types.sizes[partner] < OUTLIERS.low_support).sum()), int(supported.sum())
    if low:
        result.append(notes.LowSupport(low, OUTLIERS.low_support))
    if not supported.all():
        result.append(notes.LoneReferences(int((~supported).sum())))
    if references < 20:
        result.append(notes.FewReferences(references))
    if not exact:
        result.append(notes.SplitConformal(len(supported), len(partner)))
    return tuple(result)


def _lone_notes(lone: int, m: int, n: int, level: float) -> tuple[Note, ...]:
    """Note that executions stand out which too few normal ones convict, and how few."""
    needed = math.ceil(m / level) - 1
    if not lone or n >= needed:
        return ()
    return (notes.BeyondReferences(lone, m, n, needed),)


def _novel_notes(novel: Bool, anomalous: Bool) -> tuple[Note, ...]:
    if not novel.any():
        return ()
    return (notes.NewType(int(novel.sum()), int((novel & anomalous).sum())),)


# Scores of executions against types.


_CHUNK = 1 << 17  # technical: values of one temporary array: they stay in the cache


class DurationColumns:
    """Durations of every symbol and, last, the total (ns), of the rows asked for."""

    def __init__(self, table: VectorTable) -> None:
        self._durations, self.total = table.durations, table.total
        self.columns = len(table.symbols) + 1

    def __len__(self) -> int:
        return len(self.total)

    def __getitem__(self, rows: Any) -> F64:
        both = np.column_stack([self._durations[rows], self.total[rows]])
        return np.asarray(both.astype(np.float64))

    def column(self, number: int) -> Whole:
        """Return a column of all rows."""
        last: Whole = self.total if number == self.columns - 1 else self._durations[:, number]
        return last


class _Rows:
    """Durations of some rows, as a table of which parts are made when they are asked for."""

    dtype = np.dtype(np.float64)

    def __init__(self, table: DurationColumns, rows: I64, columns: slice | None = None) -> None:
        self._table, self._rows = table, rows
        self._columns = range(table.columns)[columns or slice(None)]
        self.shape = len(rows), len(self._columns)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, tuple):  # some columns of all rows
            return _Rows(self._table, self._rows, at[1])
        rows = self._rows[at]
        if len(self._columns) == self._table.columns:
            return self._table[rows]
        found = np.empty((len(rows), len(self._columns)))
        for place, column in enumerate(self._columns):
            found[:, place] = self._table.column(column)[rows]
        return found


class BothScales:
    """Durations and, beside them, their logarithms: twice the columns, of the rows asked for.

    Parameters
    ----------
    values, normal : DurationColumns
        The latter those whose mean total what is added before taking logarithms comes from.
    """

    def __init__(self, values: DurationColumns, normal: DurationColumns) -> None:
        self._values = values
        self._offset = max(OUTLIERS.offset * float(normal.total.mean()), 1.0)
        self.columns = 2 * values.columns

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, rows: Any) -> F64:
        values = self._values[rows]
        return np.asarray(np.concatenate([values, np.log(values + self._offset)], axis=1))


class NormalTypes(Struct, frozen=True):
    """Sizes, means and sums of squares of the normal types.

    Attributes
    ----------
    labels : int64 [n]
        Type of every normal execution.
    sizes : float64 [types]
    mean, squares : float64 [types, 2 columns]
        In both scales; ``squares`` about the mean.
    """

    labels: I64
    sizes: F64
    mean: F64
    squares: F64

    @property
    def freedom(self) -> float:
        """Degrees of freedom of all types together, at least 1."""
        return max(float(self.sizes.sum()) - len(self.sizes), 1.0)


def describe_types(values: BothScales, labels: I64, types: int) -> NormalTypes:
    """Summarise normal executions."""
    mean = np.zeros((types, values.columns))
    squares = np.zeros_like(mean)
    for c in range(types):
        mine = np.flatnonzero(labels == c)
        blocks = [mine[rows] for rows in row_blocks(len(mine))]
        mean[c] = _sum_rows(values[rows] for rows in blocks) / len(mine)
        squares[c] = _sum_rows((values[rows] - mean[c]) ** 2 for rows in blocks)
    return NormalTypes(
        labels, np.bincount(labels, minlength=types).astype(np.float64), mean, squares
    )


def _sum_rows(blocks: Iterator[F64]) -> F64:
    """Add up the rows of blocks one after the other, as if they were one table."""
    total = np.zeros((0, 0))
    for block in blocks:
        total = (np.concatenate([total, block]) if len(total) else block).sum(axis=0)[None]
    return np.asarray(total[0], np.float64)


def sample_scores(
    types: NormalTypes, values: BothScales, fitting: Bool
) -> Iterator[tuple[slice, F64, F64]]:
    """Score executions that are no part of the types: some rows at a time, also each column."""
    pooled = types.squares.sum(axis=0) / types.freedom
    spread = _shrink_spread(types.sizes[:, None], types.mean, types.squares, pooled)
    step = max(1, _CHUNK // max(1, types.mean.size))
    for first in range(0, len(values), step):
        rows = slice(first, first + step)
        every = _multiply_scales((values[rows][:, None] - types.mean) / spread)
        scores = np.where(fitting[rows], np.sqrt(every.sum(axis=2)), np.inf)
        best = scores.argmin(axis=1)
        at = np.arange(len(best))
        yield rows, scores[at, best], np.sqrt(every[at, best])


def reference_scores(types: NormalTypes, values: BothScales, fitting: Bool) -> F64:
    """Score every normal execution against the other normal ones alone."""
    result = np.zeros(len(values))
    step = max(1, _CHUNK // max(1, types.mean.size))
    for first in range(0, len(values), step):
        rows = np.arange(first, min(first + step, len(values)))
        left = _leave_out(types, values, fitting, rows)
        # One degree of freedom less than the types have: the execution's own.
        pooled = left.pooled / max(types.freedom - 1, 1.0)
        spread = _shrink_spread(left.sizes[:, None], left.mean, left.squares, pooled)
        result[rows] = left.least((left.values - left.mean) / spread)
    return result


def bag_size(types: NormalTypes, fitting: Bool) -> int:
    """Count the values that `bag_scores` computes for one sample execution."""
    return int(fitting.sum()) * int(types.mean.size // len(types.mean))


def bag_scores(
    types: NormalTypes, values: BothScales, fitting: Bool, sample: BothScales, partner: I64
) -> Iterator[tuple[int, F64]]:
    """Score the normal executions anew for every sample execution that joins them."""
    left = _leave_out(types, values, fitting, np.arange(len(values)))
    for c in np.unique(partner):
        at_home = types.labels[left.row] == c
        # The type that is joined, without the execution that is scored.
        size = np.where(at_home, types.sizes[c] - 1, types.sizes[c])
        mean = np.broadcast_to(types.mean[c], left.values.shape).copy()
        mean[at_home] = left.home_mean[at_home]
        joined = (left.kind == c).view(np.uint8)
        company = types.sizes[types.labels] + (types.labels == c) > 1
        mine = np.flatnonzero(partner == c)
        for number, joining in zip(mine.tolist(), sample[mine], strict=True):
            scores = np.empty(len(left.starts))
            score_bag(
                joining, left.values, left.mean, left.squares, left.pooled, mean, size,
                left.sizes, joined, left.starts, types.freedom, OUTLIERS.prior,
                OUTLIERS.low_support, SPREADS.least, scores,
            )  # fmt: skip
            yield number, scores[company]


class _LeftOut(Struct, frozen=True):
    """Pairs of an execution and a type that it fits, the type being without it."""

    row: I64  # [pairs], from 0
    kind: I64
    values: F64  # [pairs, columns], as all below
    sizes: F64  # [pairs]
    mean: F64
    squares: F64
    pooled: F64  # sums of squares of all types
    home_mean: F64  # of the execution's own type
    starts: I64  # first pair of every execution

    def least(self, z: F64) -> F64:
        """Return the least score of every execution's pairs: [..., executions]."""
        squares = np.minimum.reduceat(_multiply_scales(z).sum(axis=-1), self.starts, axis=-1)
        return np.asarray(np.sqrt(squares), dtype=np.float64)


def _leave_out(types: NormalTypes, values: BothScales, fitting: Bool, rows: I64) -> _LeftOut:
    labels, mine = types.labels[rows], values[rows]
    rest = types.sizes[labels] - 1
    difference = mine - types.mean[labels]
    mean = types.mean[labels] - difference / np.maximum(rest, 1)[:, None]
    gone = difference**2 * ((rest + 1) / np.maximum(rest, 1))[:, None]
    row, kind = np.nonzero(fitting[rows])
    own = kind == labels[row]
    lost = gone[row]
    return _LeftOut(
        row=rows[row],
        kind=kind,
        values=mine[row],
        sizes=types.sizes[kind] - own,
        mean=np.where(own[:, None], mean[row], types.mean[kind]),
        squares=np.maximum(types.squares[kind] - np.where(own[:, None], lost, 0.0), 0.0),
        pooled=np.maximum(types.squares.sum(axis=0) - lost, 0.0),
        home_mean=mean[row],
        starts=np.flatnonzero(np.diff(row, prepend=-1)),
    )


def _shrink_spread(sizes: F64, mean: F64, squares: F64, pooled: F64) -> F64:
    """Shrink the standard deviation of a type towards that of all, and keep it off zero."""
    shrunk = (squares + OUTLIERS.prior * pooled) / (np.maximum(sizes - 1, 0) + OUTLIERS.prior)
    variance = np.where(sizes < OUTLIERS.low_support, pooled, shrunk)
    # One nanosecond keeps a set without any duration finite.
    columns = mean.shape[-1] // 2
    squared = np.full(mean.shape, SPREADS.least**2)
    squared[..., :columns] = np.maximum(SPREADS.least * mean[..., columns - 1 : columns], 1.0) ** 2
    return np.asarray(np.sqrt(variance + squared), dtype=np.float64)


def _multiply_scales(z: F64) -> F64:
    """Multiply the z of durations with those of their logarithms; 0 where one is negative."""
    columns = z.shape[-1] // 2
    high = np.maximum(z, 0.0)
    return np.asarray(high[..., :columns] * high[..., columns:])


# NormalTypes that are slower as a whole.


def shifted_columns(normal: Table, sample: Table, *, alpha: float, floor: float) -> Bool:
    """Test every column of one type for a shift upwards, all columns together."""
    n, m = len(normal), len(sample)
    if min(n, m) == 0 or count_ways([(n, m)]) * alpha < 1:
        return np.zeros(normal.shape[1], np.bool_)
    before, after = (
        sum(of[rows].sum(axis=0) for rows in row_blocks(len(of))) / len(of)
        for of in (normal, sample)
    )
    enough = np.asarray(after - before >= floor, np.bool_)
    if not enough.any():
        return enough
    one_type = np.zeros(n, np.int64), np.zeros(m, np.int64)
    draws = max(DEFAULTS.permutations, math.ceil(2 / alpha))
    return enough & (
        gate(normal, sample, *one_type, alpha=alpha, permutations=draws).p_value <= alpha
    )
