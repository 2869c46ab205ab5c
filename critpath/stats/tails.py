"""Tails of distributions: what is rare, and how rare.

What every comparison needs is here without scipy's import (docs/decisions/1-dependencies.md).
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Final

import numpy as np

from critpath.model import F64, Bool
from critpath.schema.parameters.detect import TAILS
from critpath.schema.parameters.shared import NORMAL


def benjamini_hochberg(p: F64, level: float) -> Bool:
    """Select p-values at a false discovery rate (Benjamini and Hochberg 1995).

    Parameters
    ----------
    p : float64 [m]
    level : float

    Returns
    -------
    bool [m]
        Where ``scipy.stats.false_discovery_control`` is at most the level.
    """
    order = np.argsort(p)
    adjusted = p[order] * (len(p) / np.arange(1, len(p) + 1))
    adjusted[::-1] = np.minimum.accumulate(adjusted[::-1])
    selected = np.zeros(len(p), np.bool_)
    selected[order] = np.minimum(adjusted, 1.0) <= level
    return selected


_FARTHEST = 40.0  # technical


def hypergeometric_tail(above: int, m: int, n: int, least: int) -> float:
    """Return how likely at least ``least`` of ``above`` marked ones are among m of m + n.

    As ``scipy.stats.hypergeom.sf(least - 1, n + m, above, m)``, summed up from logarithms.
    """
    fewest = max(0, above - n)
    if least <= fewest:
        return 1.0
    fewest, weights = _hypergeometric(above, m, n, least)
    return float(min(1.0, weights[least - fewest :].sum() / weights.sum()))


@lru_cache(maxsize=1 << 14)  # random splits ask for a few numbers of marked ones again and again
def least_rare(above: int, m: int, n: int, level: float) -> int:
    """Return the least number whose `hypergeometric_tail` is at most a level, below 1."""
    fewest, weights = _hypergeometric(above, m, n, (above + 1) * (m + 1) // (m + n + 2))
    tails = np.cumsum(weights[::-1])[::-1] / weights.sum()
    return fewest + int(np.searchsorted(-tails, -level))


def _hypergeometric(above: int, m: int, n: int, least: int) -> tuple[int, F64]:
    """Return the least number of marked ones that counts, and how likely each from there on is.

    Not as shares of 1; with those of ``least``.
    """
    fewest, most = max(0, above - n), min(above, m)
    # The probabilities rise to the likeliest number and fall beyond it: what is forty standard
    # deviations from it adds nothing, unless what is asked for is there.
    middle = (above + 1) * (m + 1) / (m + n + 2)
    width = _FARTHEST * (1 + math.sqrt(middle))
    fewest = max(fewest, min(math.floor(middle - width), least))
    most = min(most, max(math.ceil(middle + width), least))
    count = np.arange(fewest, most, dtype=np.float64)
    # How much likelier one more is; the probabilities add up to 1.
    ratio = (above - count) * (m - count) / ((count + 1) * (n - above + count + 1))
    logs = np.concatenate([[0.0], np.cumsum(np.log(ratio))])
    return fewest, np.exp(logs - logs.max())


def student_tails(distance: F64, freedom: int) -> F64:
    """Return how likely Student's t is at least as far from 0, on either side.

    Parameters
    ----------
    distance : float64 [n]
        Not negative.
    freedom : int
        Degrees of freedom, at least 2.

    Returns
    -------
    float64 [n]
        As ``2 * scipy.special.stdtr(freedom, -distance)``, to 1e-14.

    Notes
    -----
    The finite series for whole degrees of freedom: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = np.arctan(distance / math.sqrt(freedom))
    odd = freedom % 2
    term = np.sin(angle) * np.cos(angle) ** odd
    total = term.copy()
    for i in range(2 + odd, freedom, 2):
        term *= np.cos(angle) ** 2 * ((i - 1) / i)
        total += term
    result: F64 = 1 - (2 / np.pi * (angle + total) if odd else total)
    return result


@lru_cache(maxsize=1 << 12)
def student_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t at a probability above one half.

    Of 500 degrees of freedom and more by Abramowitz and Stegun, 26.7.5, to 1e-8.
    """
    if freedom >= 500:  # technical: where the series is as exact
        z, n = NormalDist().inv_cdf(probability), freedom
        parts = (
            z,
            (z**3 + z) / (4 * n),
            (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2),
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3),
        )
        return math.fsum(parts)
    rest = beta_quantile(2 * (1 - probability), freedom / 2, 0.5)
    return math.sqrt(freedom * (1 - rest) / rest)


def beta_quantile(probability: float, a: float, b: float) -> float:
    """Return the quantile of a beta distribution, as ``scipy.special.betaincinv``, to 1e-10.

    By Newton's steps, halving where one would leave what is known.
    """
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)

    def look_at(x: float) -> tuple[float, float]:
        logs = front + a * math.log(x) + b * math.log1p(-x)
        density = math.exp(logs)  # times x (1 - x)
        if x < (a + 1) / (a + b + 2):
            return density * _beta_fraction(a, b, x) / a, density
        return 1 - density * _beta_fraction(b, a, 1 - x) / b, density

    low, high, x = 0.0, 1.0, a / (a + b)
    for _ in range(200):  # technical: some ten do
        below, density = look_at(x)
        low, high = (x, high) if below < probability else (low, x)
        step = (below - probability) * x * (1 - x) / density if density > 0 else math.inf
        found = x - step if low < x - step < high else (low + high) / 2
        if abs(found - x) <= 1e-16 * x:  # technical
            break
        x = found
        if not 0 < x < 1:  # nearer to an end than numbers tell
            break
    return x


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz."""
    tiny = 1e-300  # technical: in place of 0
    upper, lower = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    result = lower
    for m in range(1, 10_000):  # technical: some root of the larger of both do
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for part in (even, odd):
            lower = 1 / (1 + part * lower or tiny)
            upper = 1 + part / upper or tiny
            result *= upper * lower
        if abs(upper * lower - 1) < 1e-16:  # technical
            break
    return result


def chi_square_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of chi-square, as ``scipy.special.chdtri`` of the rest, to 1e-12."""
    half = freedom / 2

    def below(x: float) -> float:
        # DLMF 8.7.1: a series of positive terms.
        term = total = 1 / half
        k = half
        while term > total * 1e-17:  # technical
            k += 1
            term *= x / k
            total += term
        return total * math.exp(half * math.log(x) - x - math.lgamma(half))

    low, high = 0.0, half
    while below(high) < probability:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if below(middle) < probability else (low, middle)
    return 2 * high


_FEW_TERMS: Final = 64  # technical: added up one by one; most sums have no more
_NOTHING: Final = 1e-12  # technical: what of a sum is left out


def binomial_tail(m: int, least: int, share: float) -> float:
    """Return how likely at least so many of m are, 1 where as many are to be expected."""
    if share * m >= least:
        return 1.0
    if share <= 0:
        return 0.0
    logs = math.lgamma(m + 1) - math.lgamma(least + 1) - math.lgamma(m - least + 1)
    term = math.exp(logs + least * math.log(share) + (m - least) * math.log1p(-share))
    total, first, step = term, least, _FEW_TERMS
    for at in range(least, min(m, least + step)):  # the terms only become smaller
        term *= (m - at) / (at + 1) * share / (1 - share)
        total += term
        if term < total * _NOTHING:
            return min(1.0, total)
    while (first := first + step) < m:  # the same of many at a time
        step *= 8
        k = np.arange(first, min(first + step, m))
        ratios = (m - k) / (k + 1) * share / (1 - share)
        terms = np.multiply.accumulate(np.concatenate([[term], ratios]))[1:]
        totals = np.add.accumulate(np.concatenate([[total], terms]))[1:]
        small = np.flatnonzero(terms < totals * _NOTHING)
        if len(small):
            return min(1.0, float(totals[small[0]]))
        term, total = float(terms[-1]), float(totals[-1])
    return min(1.0, total)


_LEAST_LOG = -700.0  # technical: of a probability: what is less adds nothing


def binomial_cdf(n: int, q: float) -> F64:
    """Return how likely at most 0, 1, ... n - 1 of n are."""
    k = np.arange(n)
    logs = np.cumsum(np.concatenate([[0.0], np.log((n - k) / (k + 1)) + math.log(q / (1 - q))]))
    logs += n * math.log1p(-q)
    return np.asarray(np.cumsum(np.exp(np.maximum(logs, _LEAST_LOG))), dtype=np.float64)


_ROUNDING = 1e-9  # technical


def conformal(null: F64, score: F64) -> F64:
    """Give every score its p-value among null scores, with a Pareto tail beyond them."""
    ordered = np.sort(null)
    n = len(ordered)
    # Equal executions must tie, whichever formula their score came from.
    tied = score - _ROUNDING * np.maximum(np.abs(score), 1.0)
    p = (1 + n - np.searchsorted(ordered, tied)) / (1 + n)
    top = max(10, round(TAILS.fitted * n))
    if n < 2 * top or ordered[-top - 1] <= 0 or not (tied > ordered[-1]).any():
        return np.asarray(p, dtype=np.float64)
    start = ordered[-top - 1]
    hill = float(np.log(ordered[-top:] / start).mean())
    # Ten scores do not fix a tail: its upper 95 % bound, or healthy ones are convicted.
    hill *= 1 + NORMAL.q95 / math.sqrt(top)
    if hill <= 0:
        return np.asarray(p, dtype=np.float64)
    beyond = tied > ordered[-1]
    tail = top / n * (np.maximum(score, start) / start) ** (-1 / hill)
    return np.where(beyond, np.minimum(p, tail), p)
