"""Means of two sets: effects adjusted for strata, and how sure they are.

By executions; by runs, whose executions share what a neighbour does meanwhile; or by blocks, in
which a coin chose the order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
from msgspec import Struct

from critpath.model import F64, I64, Bool
from critpath.schema.parameters.detect import EFFECTS, GATE
from critpath.schema.parameters.shared import NORMAL, PERMUTATIONS
from critpath.stats.permutations import SLACK
from critpath.stats.rows import (
    column_blocks,
    hash_rows,
    mid_ranks,
    order_hashed,
    order_rows,
    row_blocks,
    square_by,
    sum_by,
)
from critpath.stats.tails import student_quantile, student_tails

_CHUNK = 1 << 22  # technical


class Effects(Struct, frozen=True):
    """Means adjusted to the sample's mix of types; arrays are [columns], ns.

    Attributes
    ----------
    normal_mean : float64
        Mean of the normal executions, each type with its weight in the sample.
    sample_mean, low, high : float64
        ``low`` to ``high`` is the bootstrap 95 % interval of the difference.
    stratum_effect : float64 [strata, columns]
        Difference within each type, 0 where one set has none of it.
    stratum_mean : float64 [strata, columns]
        Normal mean of each type (of all, where a type has no normal execution).
    error, stratum_error : float64 [columns], float64 [strata, columns]
        Standard errors of the differences, over all types and within each.
    orphans : int
        Sample executions of a type without normal executions.
    """

    normal_mean: F64
    sample_mean: F64
    low: F64
    high: F64
    stratum_effect: F64
    stratum_mean: F64
    error: F64
    stratum_error: F64
    orphans: int


def effects(
    normal: I64,
    sample: I64,
    normal_stratum: I64,
    sample_stratum: I64,
    random_seed: int,
    *,
    replicates: int | None = None,
    blocks: tuple[I64, I64] | None = None,
    runs: tuple[I64, I64] | None = None,
) -> Effects:
    """Compute mix-adjusted effects and their bootstrap intervals.

    With 0 ``replicates`` there are none.  With ``blocks`` these rest on how much blocks differ in
    the effect, not executions; with ``runs`` alone they are at least as wide as the runs' means
    differ (Welch's t interval).
    """
    strata = int(max(normal_stratum.max(), sample_stratum.max())) + 1
    m, columns = sample.shape
    mean, known = _means_by(normal, normal_stratum, strata)
    mean[~known] = normal.mean(axis=0)
    theirs, present = _means_by(sample, sample_stratum, strata)
    effect = np.where(present[:, None], theirs - mean, 0.0)
    share = np.bincount(sample_stratum, minlength=strata) / m
    centre, effect = effect, np.where(known[:, None], effect, 0.0)
    rng = np.random.default_rng(random_seed)
    error, by_type = standard_errors(normal, sample, normal_stratum, sample_stratum)
    replicates = EFFECTS.replicates if replicates is None else replicates
    if replicates or blocks is not None or runs is not None:
        sides = (normal, mean, normal_stratum), (sample, mean, sample_stratum)
        digits = _find_digits(*sides)
        residual, excess = (_Centred(*side, digits) for side in sides)
    if replicates:
        order = order_hashed(hash_rows(sample_stratum, sample))
        kinds = ((sample_stratum == s).astype(np.float64)[:, None] for s in range(strata))
        both = _resampled_means(rng, chain(excess.list_blocks(), kinds), order, replicates)
        differences, mixes = both[:, :columns], both[:, columns:]
        for s in np.flatnonzero(known):
            rows = np.flatnonzero(normal_stratum == s)
            rows = rows[order_hashed(hash_rows(normal[rows]))]
            mine = np.arange(len(rows))
            means = _resampled_means(rng, residual.list_blocks(rows), mine, replicates)
            differences -= mixes[:, [s]] * means
    if blocks is not None:
        kept = residual.whole, excess.whole
        parts = _block_parts(kept, (normal_stratum, sample_stratum), blocks)
        whole = np.asarray((share[:, None] * parts).sum(axis=1), np.float64)
        error, by_type = _block_errors(whole), np.where(by_type > 0, _block_errors(parts), 0.0)
        if replicates:
            differences = _resampled_means(rng, [len(whole) * whole], order_rows(whole), replicates)
    if not replicates:
        low = high = np.full(columns, np.nan)
    elif m < EFFECTS.few:
        whole = sample.mean(axis=0) - _sum_weighted(share, mean)
        low, high = whole - NORMAL.q975 * error, whole + NORMAL.q975 * error
    else:
        # What is less than a millionth of a nanosecond is left of rounding, not of a change.
        low, high = np.round(np.quantile(differences, EFFECTS.interval, axis=0), 6) + 0.0
    if runs is not None and blocks is None:
        error_of, half = _welch(
            _run_variances(residual.whole, normal_stratum, runs[0], share),
            _run_variances(excess.whole - centre[sample_stratum], sample_stratum, runs[1], share),
        )
        whole = sample.mean(axis=0) - _sum_weighted(share, mean)
        low, high = np.minimum(low, whole - half[0]), np.maximum(high, whole + half[0])
        error = np.maximum(error, error_of[0])
        by_type = np.where(by_type > 0, np.maximum(by_type, error_of[1:]), by_type)
    return Effects(
        normal_mean=_sum_weighted(share, mean),
        sample_mean=sample.mean(axis=0),
        low=low,
        high=high,
        stratum_effect=effect,
        stratum_mean=mean,
        error=error,
        stratum_error=by_type,
        orphans=int((~known[sample_stratum]).sum()),
    )


def _block_parts(rows: tuple[F64, F64], strata: tuple[I64, I64], blocks: tuple[I64, I64]) -> F64:
    """Return what each block adds to the difference within each type [blocks, strata, columns]."""
    names, block = np.unique(np.concatenate(blocks), return_inverse=True)
    block = block.reshape(-1)
    count = 1 + max(int(s.max(initial=-1)) for s in strata)
    parts = np.zeros((len(names), count, rows[0].shape[1]))
    sides = zip((-1.0, 1.0), rows, strata, np.split(block, [len(blocks[0])]), strict=True)
    for sign, values, stratum, number in sides:
        many = np.bincount(stratum, minlength=count)[stratum]
        np.add.at(parts, (number, stratum), sign * values / many[:, None])
    return parts


def _block_errors(parts: F64) -> F64:
    """Return the standard error of the sum of the blocks' parts."""
    return np.asarray(np.sqrt(len(parts)) * parts.std(axis=0, ddof=1), np.float64)


def _run_variances(centred: F64, stratum: I64, run: I64, share: F64) -> tuple[F64, int]:
    """Return variances of the means, over all types and of each [1 + strata, columns], and runs."""
    names, number = np.unique(run, return_inverse=True)
    found = np.zeros((1 + len(share), centred.shape[1]))
    over_all = np.zeros((len(names), centred.shape[1]))
    for s in np.unique(stratum):
        rows = stratum == s
        sums = sum_by(centred[rows], number.reshape(-1)[rows], len(names))
        found[1 + s] = ((sums / rows.sum()) ** 2).sum(axis=0)
        over_all += share[s] / rows.sum() * sums
    found[0] = (over_all**2).sum(axis=0)
    return len(names) / (len(names) - 1) * found, len(names)


def _welch(normal: tuple[F64, int], sample: tuple[F64, int]) -> tuple[F64, F64]:
    """Return standard errors of the difference of both sides, and halves of 95 % intervals."""
    both = normal[0] + sample[0]
    spread = sum(variance**2 / (runs - 1) for variance, runs in (normal, sample))
    freedom = np.divide(both**2, spread, out=np.full(both.shape, np.inf), where=spread > 0)
    error = np.sqrt(both)
    quantile = [student_quantile(EFFECTS.interval[1], each) for each in freedom.ravel().tolist()]
    return error, error * np.reshape(quantile, error.shape)


def standard_errors(
    normal: I64, sample: I64, normal_stratum: I64, sample_stratum: I64
) -> tuple[F64, F64]:
    """Compute the standard errors of the mean differences."""
    strata = int(max(normal_stratum.max(), sample_stratum.max())) + 1
    (before, known), (after, present) = (
        _means_by(values, stratum, strata)
        for values, stratum in ((normal, normal_stratum), (sample, sample_stratum))
    )
    squares, whole = square_by(normal, normal_stratum, before)
    squares_after, _ = square_by(sample, sample_stratum, after)
    pooled = whole / max(len(normal) - int(known.sum()), 1)
    squared = np.zeros((strata, normal.shape[1]))
    many, now_many = (
        np.bincount(stratum, minlength=strata).tolist()
        for stratum in (normal_stratum, sample_stratum)
    )
    for s in np.flatnonzero(known & present).tolist():
        usual = squares[s] / (many[s] - 1) if many[s] >= EFFECTS.few else pooled
        few = now_many[s] < EFFECTS.few
        now = usual if few else squares_after[s] / (now_many[s] - 1)
        squared[s] = now / now_many[s] + usual / many[s]
    share = np.bincount(sample_stratum, minlength=strata) / len(sample)
    return np.sqrt(_sum_weighted(share**2, squared)), np.sqrt(squared)


def _means_by(values: I64, stratum: I64, strata: int) -> tuple[F64, Bool]:
    """Return the mean row of every stratum, and which strata have rows."""
    many = np.bincount(stratum, minlength=strata)
    sums = sum_by(values, stratum, strata)
    return sums / np.maximum(many, 1)[:, None], many > 0


def _sum_weighted(weights: F64, rows: F64) -> F64:
    """Sum rows by weight, one after the other.

    A matrix product adds in an order, and rounds in places, that depend on the processor.
    """
    return np.asarray((weights[:, None] * rows).sum(axis=0), dtype=np.float64)


class _Centred:
    """Rows less the mean of their type, some columns at a time: all are too large a table.

    Cut to as many binary digits as leave every sum of a column's rows exact, whoever adds in
    whatever order (see `_resampled_means`); what is cut off is less than 2^-52 of the largest sum
    that the column can have.
    """

    def __init__(self, values: I64, mean: F64, stratum: I64, digits: I64) -> None:
        self._values, self._mean, self._stratum, self._digits = values, mean, stratum, digits

    def list_blocks(self, rows: I64 | None = None) -> Iterator[F64]:
        """Yield some columns at a time, of all rows or of some."""
        for block in column_blocks(self._values.shape[1]):
            yield self._take(block, rows)

    @property
    def whole(self) -> F64:
        """All columns."""
        return self._take(slice(0, self._values.shape[1]), None)

    def _take(self, block: slice, rows: I64 | None) -> F64:
        mean, digits = self._mean[:, block], self._digits[block]
        many = len(self._values) if rows is None else len(rows)
        result = np.empty((many, mean.shape[1]))
        for into in row_blocks(many):
            of = into if rows is None else rows[into]
            some = self._values[of, block] - mean[self._stratum[of]]
            result[into] = np.ldexp(np.rint(np.ldexp(some, digits)), -digits)
        return result


def _find_digits(*tables: tuple[I64, F64, I64]) -> I64:
    """Return how many binary digits of values, less their types' means, sums of columns have."""
    largest = []
    for values, mean, stratum in tables:
        ends = np.zeros(mean.shape[1])
        for rows in row_blocks(len(values)):
            some = values[rows] - mean[stratum[rows]]
            np.maximum(ends, some.max(axis=0), out=ends)
            np.maximum(ends, -some.min(axis=0), out=ends)
        largest.append(len(values) * ends)
    return np.asarray(52 - np.frexp(np.max(largest, axis=0))[1], np.int64)


def _resampled_means(
    rng: np.random.Generator, tables: Iterable[F64], order: I64, replicates: int
) -> F64:
    """Means of bootstrap resamples [replicates, columns], bounded in memory.

    The rows are those of all tables side by side, in this order.
    Of many rows groups that are drawn at random are resampled: their sums vary as the rows do.
    """
    n = len(order)
    size = np.ones(n)
    if n > PERMUTATIONS.units:
        first = np.linspace(0, n, PERMUTATIONS.units + 1).astype(np.int64)
        order = order[rng.permutation(n)]
        parts = [np.add.reduceat(table[order], first[:-1], axis=0) for table in tables]
        n, size = PERMUTATIONS.units, np.diff(first).astype(np.float64)
    else:
        parts = [table[order] for table in tables]
    rows = np.ascontiguousarray(np.concatenate(parts, axis=1))
    step = max(1, _CHUNK // n)
    result = np.empty((replicates, rows.shape[1]))
    for begin in range(0, replicates, step):
        many = min(step, replicates - begin)
        # How often each of n is picked, in n picks with replacement.
        picks = rng.integers(0, n, (many, n)) + n * np.arange(many)[:, None]
        picked = np.bincount(picks.ravel(), minlength=many * n).reshape(many, n).astype(np.float64)
        result[begin : begin + many] = picked @ rows / (picked @ size)[:, None]
    return result


# Tests of runs and of blocks.


def compare_runs(
    normal: F64,
    sample: F64,
    normal_run: I64,
    sample_run: I64,
    logs: tuple[F64, F64] | None = None,
) -> F64:
    """Test every column for a shift upwards between runs, of which each counts once.

    Parameters
    ----------
    normal, sample : float64 [n, columns] and [m, columns]
        Adjusted for types.
    normal_run, sample_run : int64 [n] and [m]
    logs : tuple of float64, optional
        The same in logarithms without what is far out, so that one execution spoils no run.

    Returns
    -------
    float64 [columns]
        One-sided p-values: twice the smaller of Welch's t test of the runs' means (degrees of
        freedom rounded down) and, of few runs' mean logarithms, of Student's; of more runs, or
        without logarithms, of their rank sum, which one slow run cannot spoil.
    """
    runs = normal_run, sample_run
    sides = zip((normal, sample), runs, strict=True)
    means = [_means_by_run(*each) for each in sides]
    usual = means
    if logs is not None:
        usual = [_means_by_run(*each) for each in zip(logs, runs, strict=True)]
    few = logs is not None and min(map(len, means)) < GATE.few_runs
    other = _student_tails(*usual) if few else _rank_tails(*usual)
    return np.asarray(np.minimum(1.0, 2 * np.minimum(_welch_tails(*means), other)), np.float64)


def compare_runs_by_stratum(
    normal: I64, sample: I64, strata: tuple[I64, I64], runs: tuple[I64, I64]
) -> tuple[F64, F64]:
    """Return p-values of runs over all strata [columns] and of each [strata, columns]."""
    ours, theirs = normal.astype(np.float64), sample.astype(np.float64)
    logs = take_robust_logs((normal, sample), strata)
    count = 1 + max(int(s.max(initial=-1)) for s in strata)
    by_stratum = np.ones((count, normal.shape[1]))
    for s in range(count):
        rows = strata[0] == s, strata[1] == s
        if rows[0].any():
            middle = ours[rows[0]].mean(axis=0)
            ours[rows[0]] -= middle
            theirs[rows[1]] -= middle
        if all(len(np.unique(run[row])) > 1 for run, row in zip(runs, rows, strict=True)):
            by_stratum[s] = compare_runs(
                *(ours[rows[0]], theirs[rows[1]], runs[0][rows[0]], runs[1][rows[1]]),
                logs=(logs[0][rows[0]], logs[1][rows[1]]),
            )
    return compare_runs(ours, theirs, *runs, logs=logs), by_stratum


def take_robust_logs(sides: tuple[I64, I64], strata: tuple[I64, I64]) -> tuple[F64, F64]:
    """Return logarithms over each stratum's usual ones before, without what is far out.

    Of each side and stratum what is `EFFECTS.far` robust standard deviations from the middle
    counts as that (Winsor), where more than half are not all alike.
    """
    found = take_logs(sides, strata)
    for values, stratum in zip(found, strata, strict=True):
        for s in np.unique(stratum):
            values[stratum == s] = _pull_in(values[stratum == s])
    return found


def take_logs(sides: tuple[I64, I64], strata: tuple[I64, I64]) -> tuple[F64, F64]:
    """Return logarithms over each stratum's usual ones before; the last column is the total."""
    found = np.zeros(sides[0].shape), np.zeros(sides[1].shape)
    for s in np.unique(strata[0]):
        before = sides[0][strata[0] == s]
        offset = max(EFFECTS.offset * float(np.median(before[:, -1])), 1.0)
        usual = np.median(np.log(before + offset), axis=0)
        for values, stratum, into in zip(sides, strata, found, strict=True):
            rows = stratum == s
            if rows.any():
                into[rows] = np.log(values[rows] + offset) - usual
    return found


def _pull_in(values: F64) -> F64:
    """Return columns in which what is far from the middle is as near as is still usual."""
    middle = np.median(values, axis=0)
    reach = EFFECTS.far * NORMAL.per_mad * np.median(np.abs(values - middle), axis=0)
    reach[reach <= 0] = np.inf
    return np.asarray(np.clip(values, middle - reach, middle + reach), np.float64)


def find_usual_change(
    sides: tuple[I64, I64], strata: tuple[I64, I64], runs: tuple[I64, I64] | None
) -> tuple[float, float, float] | None:
    """Return by how much the usual row took longer, as a share, and the 95 % interval of that.

    Of logarithms within strata, without what is far out, so that one row spoils no mean; by runs,
    which share what neighbours do.  None where runs are too few, or more than a tenth of the rows
    after are far above the rest, or of a stratum that had none.
    """
    if not np.isin(strata[1], strata[0]).all():
        return None
    raw, logs = take_logs(sides, strata), take_robust_logs(sides, strata)
    far = [float((one > other).mean()) for one, other in zip(raw, logs, strict=True)]
    if far[1] > far[0] + EFFECTS.few_far:
        return None
    for s in np.unique(strata[0]):
        middle = logs[0][strata[0] == s].mean()
        for values, stratum in zip(logs, strata, strict=True):
            values[stratum == s] -= middle
    places = runs or tuple(np.arange(len(side)) for side in sides)
    means = [_means_by_run(of, np.unique(run, return_inverse=True)[1].reshape(-1))
             for of, run in zip(logs, places, strict=True)]  # fmt: skip
    counts = [len(of) for of in means]
    if min(counts) < 2:
        return None
    within = [float(of.var(ddof=1)) for of in means]
    parts = [variance / count for variance, count in zip(within, counts, strict=True)]
    freedom = float(sum(counts) - 2)
    if max(within) <= GATE.alike * min(within):
        pooled = sum((c - 1) * v for c, v in zip(counts, within, strict=True)) / freedom
        variance = pooled * sum(1 / c for c in counts)
    else:
        variance = sum(parts)
        freedom = variance**2 / sum(
            of**2 / (count - 1) for of, count in zip(parts, counts, strict=True)
        )
    half = student_quantile(EFFECTS.interval[1], max(2, int(freedom))) * math.sqrt(variance)
    shift = float(means[1].mean() - means[0].mean())
    return math.expm1(shift), math.expm1(shift - half), math.expm1(shift + half)


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


def _student_tails(ours: F64, theirs: F64) -> F64:
    """Return p-values of Student's t test; of Welch's where the sides do not vary alike."""
    freedom = len(ours) + len(theirs) - 2
    within = [each.var(axis=0, ddof=1) for each in (ours, theirs)]
    pooled = ((len(ours) - 1) * within[0] + (len(theirs) - 1) * within[1]) / freedom
    error = np.sqrt(pooled * (1 / len(ours) + 1 / len(theirs)))
    shift = theirs.mean(axis=0) - ours.mean(axis=0)
    tails = student_tails(np.abs(shift) / np.where(error > 0, error, np.inf), freedom) / 2
    found = np.where(shift > 0, tails, 1 - tails)
    unlike = np.maximum(*within) > GATE.alike * np.minimum(*within)
    return np.where(unlike | (error <= 0), _welch_tails(ours, theirs), found)


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


def compare_blocks(
    normal: F64, sample: F64, blocks: tuple[I64, I64], logs: tuple[F64, F64] | None = None
) -> F64:
    """Test every column for a shift upwards within blocks, of which each counts once.

    A burst that is longer than a block cancels in it, and a coin chose whom a shorter one hits.

    Returns
    -------
    float64 [columns]
        One-sided p-values of Student's t test of the blocks' differences, with ``logs`` twice
        the smaller of theirs and of that; 1 with too few blocks.
    """
    names = np.intersect1d(*blocks)
    if len(names) < GATE.few_blocks:
        return np.ones(normal.shape[1])
    found = _block_tails((normal, sample), blocks, names)
    if logs is None:
        return found
    both = np.minimum(found, _block_tails(logs, blocks, names))
    return np.asarray(np.minimum(1.0, 2 * both), np.float64)


def _block_tails(sides: tuple[F64, F64], blocks: tuple[I64, I64], names: I64) -> F64:
    means = []
    for values, block in zip(sides, blocks, strict=True):
        rows = np.isin(block, names)
        means.append(_means_by_run(values[rows], np.searchsorted(names, block[rows])))
    found = means[1] - means[0]
    shift, error = found.mean(axis=0), found.std(axis=0, ddof=1) / math.sqrt(len(found))
    tails = student_tails(np.abs(shift) / np.where(error > 0, error, np.inf), len(found) - 1) / 2
    return np.where(error > 0, np.where(shift > 0, tails, 1 - tails), 1.0)


def _means_by_run(values: F64, run: I64) -> F64:
    sums = sum_by(values, run, int(run.max()) + 1)
    counts = np.bincount(run)[:, None]
    return np.asarray((sums / np.maximum(counts, 1))[counts[:, 0] > 0], np.float64)
