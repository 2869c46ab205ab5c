"""Effect sizes: how much slower, with an interval, and the least that would show."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from critpath.model import F64, I64

_REPLICATES, _LEAST_REPLICATES = 999, 199
_WORK = 50_000_000  # executions resampled in all
_CHUNK = 1 << 22
_POWER = 0.8416  # normal quantile of 80 % power
_NORMAL_975 = 1.96
_FEW = 5  # executions that cannot stand for their own spread when drawn from again


@dataclass(frozen=True)
class Effects:
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
) -> Effects:
    """Compute mix-adjusted effects and their bootstrap intervals.

    Parameters
    ----------
    normal : int64 [n, columns]
    sample : int64 [m, columns]
        Durations (ns); at least one row each.
    normal_stratum, sample_stratum : int64
        Execution types, from 0.
    random_seed : int
        Of the data; see `critpath.detect.gate.seed`.
    replicates : int, optional
        Of the bootstrap; 1 where its intervals are not looked at.

    Notes
    -----
    Percentile bootstrap (Efron 1979), 999 replicates (fewer, but 199 at the least, for
    sets of more than 50,000 executions): sample executions are resampled as one set,
    normal ones within their type.  Fewer than five sample executions have the normal
    ones' spread: 1.96 standard errors to either side.
    """
    strata = int(max(normal_stratum.max(), sample_stratum.max())) + 1
    m, columns = sample.shape
    mean = np.tile(normal.mean(axis=0), (strata, 1))
    effect = np.zeros((strata, columns))
    share = np.bincount(sample_stratum, minlength=strata) / m
    for s in np.unique(normal_stratum):
        mean[s] = normal[normal_stratum == s].mean(axis=0)
    for s in np.unique(sample_stratum):
        effect[s] = sample[sample_stratum == s].mean(axis=0) - mean[s]
    known = np.isin(np.arange(strata), normal_stratum)
    effect[~known] = 0.0
    rng = np.random.default_rng(random_seed)
    residual, excess = _summable(normal - mean[normal_stratum], sample - mean[sample_stratum])
    order = np.lexsort((*sample.T[::-1], sample_stratum))
    if replicates is None:
        replicates = int(np.clip(_WORK // max(len(normal), m), _LEAST_REPLICATES, _REPLICATES))
    kinds = (sample_stratum[order, None] == np.arange(strata)).astype(np.float64)
    both = _resampled_means(rng, np.column_stack([excess[order], kinds]), replicates)
    differences, mixes = both[:, :columns], both[:, columns:]
    for s in np.flatnonzero(known):
        rows = normal[normal_stratum == s]
        centred = residual[normal_stratum == s][np.lexsort(rows.T[::-1])]
        differences -= mixes[:, [s]] * _resampled_means(rng, centred, replicates)
    error, by_type = standard_errors(normal, sample, normal_stratum, sample_stratum)
    if m < _FEW:
        whole = sample.mean(axis=0) - _weighted(share, mean)
        low, high = whole - _NORMAL_975 * error, whole + _NORMAL_975 * error
    else:
        # What is less than a millionth of a nanosecond is left of rounding, not of a change.
        low, high = np.round(np.quantile(differences, (0.025, 0.975), axis=0), 6) + 0.0
    return Effects(
        normal_mean=_weighted(share, mean),
        sample_mean=sample.mean(axis=0),
        low=low,
        high=high,
        stratum_effect=effect,
        stratum_mean=mean,
        error=error,
        stratum_error=by_type,
        orphans=int((~known[sample_stratum]).sum()),
    )


def standard_errors(
    normal: I64, sample: I64, normal_stratum: I64, sample_stratum: I64
) -> tuple[F64, F64]:
    """Compute the standard errors of the mean differences.

    Parameters
    ----------
    normal, sample, normal_stratum, sample_stratum
        As `effects`.

    Returns
    -------
    over_all : float64 [columns]
    by_type : float64 [strata, columns]
        Of types that both sets have; 0 for the others.

    Notes
    -----
    Variances are of a type's own executions where these are five or more, else of the
    normal executions of all types about their means; a sample's is at least those.
    """
    strata = int(max(normal_stratum.max(), sample_stratum.max())) + 1
    residual = normal.astype(np.float64)
    for s in np.unique(normal_stratum):
        residual[normal_stratum == s] -= normal[normal_stratum == s].mean(axis=0)
    freedom = max(len(normal) - len(np.unique(normal_stratum)), 1)
    pooled = (residual**2).sum(axis=0) / freedom
    squared = np.zeros((strata, normal.shape[1]))
    for s in np.unique(sample_stratum):
        ours, theirs = residual[normal_stratum == s], sample[sample_stratum == s]
        usual = (ours**2).sum(axis=0) / (len(ours) - 1) if len(ours) >= _FEW else pooled
        now = theirs.var(axis=0, ddof=1) if len(theirs) >= _FEW else usual
        if len(ours):
            squared[s] = now / len(theirs) + usual / len(ours)
    share = np.bincount(sample_stratum, minlength=strata) / len(sample)
    return np.sqrt(_weighted(share**2, squared)), np.sqrt(squared)


def _weighted(weights: F64, rows: F64) -> F64:
    """Sum rows by weight, one after the other.

    A matrix product adds in an order, and rounds in places, that depend on the processor.
    """
    return np.asarray((weights[:, None] * rows).sum(axis=0), dtype=np.float64)


def _summable(*tables: F64) -> list[F64]:
    """Cut tables to as many binary digits as leave every sum of a column's rows exact.

    Whoever adds in whatever order (see `_weighted`); what is cut off is less than 2^-52 of
    the largest sum that the column can have.
    """
    largest = np.max([len(rows) * np.abs(rows).max(axis=0, initial=0.0) for rows in tables], axis=0)
    digits = 52 - np.frexp(largest)[1]
    return [np.ldexp(np.rint(np.ldexp(rows, digits)), -digits) for rows in tables]


def _resampled_means(rng: np.random.Generator, rows: F64, replicates: int) -> F64:
    """Means of bootstrap resamples [replicates, columns], bounded in memory."""
    n = len(rows)
    step = max(1, _CHUNK // n)
    result = np.empty((replicates, rows.shape[1]))
    for begin in range(0, replicates, step):
        many = min(step, replicates - begin)
        result[begin : begin + many] = rng.multinomial(n, np.full(n, 1 / n), size=many) @ rows / n
    return result


def detectable_shift(
    normal_total: I64, normal_stratum: I64, sample_stratum: I64, critical: float, floor: float
) -> float:
    """Smallest shift of the mean total that these sets would show four times in five.

    Parameters
    ----------
    normal_total : int64 [n]
        Durations of the normal executions (ns).
    normal_stratum, sample_stratum : int64
        Execution types.
    critical : float
        Standardised sum that the gate asks for.
    floor : float
        Effect floor (ns); nothing smaller is reported.

    Returns
    -------
    float
        Nanoseconds: ``(critical + 0.84)`` standard errors of the difference of
        means, from the spread of the normal set alone; at least ``floor`` and 0.84 of
        them, since a shift as large as the floor is seen below it half of the time.
    """
    m = len(sample_stratum)
    values = normal_total.astype(np.float64)
    residual = values.copy()
    for s in np.unique(normal_stratum):
        residual[normal_stratum == s] -= values[normal_stratum == s].mean()
    freedom = max(len(values) - len(np.unique(normal_stratum)), 1)
    pooled = float((residual**2).sum()) / freedom
    error = 0.0
    for s, k in zip(*np.unique(sample_stratum, return_counts=True), strict=True):
        mine = residual[normal_stratum == s]
        variance = float((mine**2).sum()) / (len(mine) - 1) if len(mine) >= 5 else pooled
        error += (k / m) ** 2 * variance * (1 / k + 1 / max(len(mine), 1))
    return max(floor + _POWER * math.sqrt(error), (critical + _POWER) * math.sqrt(error))
