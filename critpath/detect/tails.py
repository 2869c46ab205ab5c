"""The slow end of two sets: a few executions that are very slow, and percentiles.

Ranks cannot tell that six of 24 executions are slower than all 24 normal ones at a level of
1 %, whatever they are slower by: the six largest of 48 are on one side in one assignment of
91.  Their size can, where the normal executions bear out what a size is: beyond the upper
tenth of them a Pareto tail (Hill 1975), whose index is its upper 95 % bound and never
lighter than `TAILS.lightest`.  The assumption is checked: where the largest normal execution is
farther out than such a tail would have it, that is a mixture, and only ranks decide.  Ranks
have a say in any case (`TAILS.ranks`): that none of 24 executions was slow is likely even where one
in ten of them is, and tells nothing of three in another 24.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from critpath.documents import PercentileEntry
from critpath.model import F64, I64
from critpath.schema.parameters.detect import TAILS
from critpath.schema.parameters.shared import NORMAL
from critpath.stats.tails import binomial_cdf, binomial_tail, hypergeometric_tail


class SlowEnd(Struct, frozen=True):
    """How improbable the slowest sample executions are among the normal ones.

    Attributes
    ----------
    p_value : float
        Adjusted for how many were taken for the slow ones.
    slow : int
        How many are.
    shown : tuple of (int, float) or None
        That many executions, slower by so many ns, would have shown; None for none.
    members : int64
        Positions of the slow sample executions.
    """

    p_value: float
    slow: int
    shown: tuple[int, float] | None
    members: I64


class _Tail(Struct, frozen=True):
    """Pareto tail of ratios in logarithms; ``index`` 0 where the assumption does not hold."""

    start: float
    index: float
    share: float
    largest: float

    def beyond(self, at: float) -> float:
        return min(1.0, self.share * math.exp(-(at - self.start) / self.index))


def slow_end(
    normal: I64, sample: I64, normal_stratum: I64, sample_stratum: I64, level: float
) -> SlowEnd:
    """Test whether some sample executions are slower than their number can be by chance."""
    ours, theirs, middle = _ratios(normal, sample, normal_stratum, sample_stratum)
    nobody = np.zeros(0, np.int64)
    if len(ours) < 2 * TAILS.least_fitted or len(theirs) < 2 * TAILS.least_slow:
        return SlowEnd(1.0, 0, None, nobody)
    tail = _fit(ours)
    order = np.argsort(-np.where(np.isfinite(theirs), theirs, -np.inf), kind="stable")
    ordered = theirs[order]
    most = int(np.isfinite(ordered).sum()) // 2
    tried = np.geomspace(TAILS.least_slow, max(most, TAILS.least_slow), TAILS.counts).astype(
        np.int64
    )
    counts = sorted({k for k in tried.tolist() if k <= most})
    best, slow = 1.0, 0
    for k in counts:
        p = _p_value(tail, len(ours), len(theirs), k, float(ordered[k - 1])) * len(counts)
        if p < best:
            best, slow = p, k
    shown = _find_shown(tail, len(ours), len(theirs), level / max(len(counts), 1))
    return SlowEnd(
        p_value=max(best, TAILS.believed) if best < 1 else 1.0,
        slow=slow,
        shown=None if shown is None else (shown[0], middle * math.expm1(shown[1])),
        members=np.sort(order[:slow]),
    )


def _ratios(
    normal: I64, sample: I64, normal_stratum: I64, sample_stratum: I64
) -> tuple[F64, F64, float]:
    """Logarithms of durations over the median of their type, NaN of unknown types."""
    theirs = np.full(len(sample), np.nan)
    ours = []
    for s in np.unique(sample_stratum):
        mine = normal[normal_stratum == s]
        if len(mine) < TAILS.least_normal:
            continue
        middle = max(float(np.median(mine)), 1.0)
        ours.append(np.log(np.maximum(mine, 1) / middle))
        rows = sample_stratum == s
        theirs[rows] = np.log(np.maximum(sample[rows], 1) / middle)
    known = np.isfinite(theirs)
    middle = float(np.median(sample[known])) if known.any() else 0.0
    return np.concatenate([np.zeros(0), *ours]), theirs, middle


def _fit(ours: F64) -> _Tail:
    ordered = np.sort(ours)
    top = max(TAILS.least_fitted, round(TAILS.fitted * len(ordered)))
    start = float(ordered[-top - 1])
    over = ordered[-top:] - start
    index = max(float(over.mean()), 1e-6)
    # The largest of so many exponential times is their number's logarithm and a little.
    holds = float(over[-1]) <= index * (math.log(top) + TAILS.farthest) or over[-1] < TAILS.lightest
    upper = max(index * (1 + NORMAL.q95 / math.sqrt(top)), TAILS.lightest)
    return _Tail(start, upper if holds else 0.0, top / len(ordered), float(ordered[-1]))


def _p_value(tail: _Tail, n: int, m: int, slow: int, least: float) -> float:
    by_rank = hypergeometric_tail(slow, m, n, slow)
    if least <= tail.largest or by_rank > TAILS.ranks:
        return 1.0
    return min(by_rank, binomial_tail(m, slow, tail.beyond(least))) if tail.index else by_rank


def _find_shown(tail: _Tail, n: int, m: int, level: float) -> tuple[int, float] | None:
    """Return how many executions would have shown, and at which ratio (a logarithm)."""
    fewest = (
        k
        for k in range(TAILS.least_slow, m // 2 + 1)
        if hypergeometric_tail(k, m, n, k) <= TAILS.ranks
    )
    slow = next(fewest, None)
    low, high = tail.largest, tail.largest + _FARTHEST_TRIED
    if slow is None or not tail.index or binomial_tail(m, slow, tail.beyond(high)) > level:
        return None
    for _ in range(60):
        at = (low + high) / 2
        enough = binomial_tail(m, slow, tail.beyond(at)) <= level
        low, high = (low, at) if enough else (at, high)
    return slow, high


# Percentiles of both sets, by label, and the gate on one of them.


_FARTHEST_TRIED = 40.0  # technical: logarithms above the tail's largest, beyond any ratio


def percentiles(
    normal: I64,
    sample: I64,
    labels: tuple[Sequence[str], Sequence[str]] | None,
    first: float | None = None,
) -> tuple[PercentileEntry, ...]:
    """Describe both sets' distributions: of all executions, and of every label.

    ``first`` is a quantile of all executions that comes before all others.
    """
    groups = [("", normal, sample)]
    named = sorted({*labels[0], *labels[1]}) if labels else []
    if labels and len(named) > 1:
        ours, theirs = np.array(labels[0], object), np.array(labels[1], object)
        groups += [(text, normal[ours == text], sample[theirs == text]) for text in named]
    usual = [compare_quantile(label, q, x, y) for label, x, y in groups for q in TAILS.quantiles]
    return (*([] if first is None else [compare_quantile("", first, normal, sample)]), *usual)


def compare_quantile(label: str, q: float, normal: I64, sample: I64) -> PercentileEntry:
    """Compare a quantile of two sets, with an interval that assumes nothing of their shapes.

    Either set's is between two of its order statistics with the probability that a binomial
    distribution says (Thompson 1936); the difference is then between the differences of these.
    """
    low, high = _bound_quantile(normal, q), _bound_quantile(sample, q)
    return PercentileEntry(
        label=label,
        name=f"p{100 * q:g}",
        q=q,
        normal=float(np.quantile(normal, q)) if len(normal) else None,
        sample=float(np.quantile(sample, q)) if len(sample) else None,
        low=None if high[0] is None or low[1] is None else high[0] - low[1],
        high=None if high[1] is None or low[0] is None else high[1] - low[0],
        executions=[len(normal), len(sample)],
        needed=_count_needed(q),
    )


def _bound_quantile(values: I64, q: float) -> tuple[float | None, float | None]:
    """Order statistics around a quantile, None where the set is too small for one."""
    ordered = np.sort(values)
    n = len(ordered)
    each = (1 - TAILS.confidence) / 4
    below = binomial_cdf(n, q)
    # P(the quantile is below the i-th smallest) = P(Bin(n, q) < i), and so on.
    lower = int(np.searchsorted(below, each, "right"))
    upper = int(np.searchsorted(below, 1 - each, "left")) + 1
    return (
        float(ordered[lower - 1]) if lower >= 1 else None,
        float(ordered[upper - 1]) if upper <= n else None,
    )


def _count_needed(q: float) -> int:
    """Return how many executions give a quantile both an upper and a lower bound."""
    each = (1 - TAILS.confidence) / 4
    return max(math.ceil(math.log(each) / math.log(max(q, 1 - q))), 1)
