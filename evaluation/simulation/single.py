"""Scores of single executions, written plainly, beside the ones critpath computes.

Every p-value is conformal: the share of scores, the execution's own among them, that are
at least as large.  "largest z" is the specification's (the sample execution is in the mean
and the deviation that all are scored with); "our score" is critpath's, with the reference
scores of the normal executions among themselves, or of the whole bag.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from distributions import DELAYED, Setting, table

from critpath.cluster.outliers import find_outliers
from critpath.model import F64, I64, Bool, Clustering, ClusterPairs, Outliers
from critpath.stats.tails import benjamini_hochberg, conformal

LEVEL: Final = 0.05
SETTINGS: Final = [
    Setting(data, n, m)
    for data in (
        *("normal cv .1", "lognormal .3", "lognormal 1", "rare states", "heavy tail"),
        "rare hiccups",
    )
    for n, m in ((10, 10), (30, 10), (100, 10), (100, 30))
]


def one_type(n: int) -> Clustering:
    nothing = np.zeros(n, np.int64)
    return Clustering(nothing, nothing, np.zeros(n, np.bool_), np.arange(n), np.zeros(n), "given")


PAIR: Final = ClusterPairs(
    np.zeros(1, np.int64), np.zeros(1), np.zeros(1, np.bool_), np.zeros(1, np.bool_)
)


def judged(normal: I64, sample: I64, *, k: float = 1.5, types_known: bool = False) -> Outliers:
    """Judge executions of one type as critpath does."""
    return find_outliers(
        table(normal), one_type(len(normal)), table(sample), one_type(len(sample)), PAIR,
        k=k, level=LEVEL, types_known=types_known,
    )  # fmt: skip


def included(values: F64) -> tuple[F64, F64, F64]:
    """Deviation, variance and mean, the execution itself in them: [..., executions, columns]."""
    mean = values.mean(axis=-2, keepdims=True)
    away = values - mean
    return away, (away**2).sum(axis=-2, keepdims=True) / (values.shape[-2] - 1), mean


def excluded(values: F64) -> tuple[F64, F64, F64]:
    """Deviation, variance and mean of all others, by leaving each out in turn."""
    n = values.shape[-2]
    others = [np.delete(values, i, axis=-2) for i in range(n)]
    mean = np.stack([rest.mean(axis=-2) for rest in others], axis=-2)
    variance = np.stack([rest.var(axis=-2, ddof=1) for rest in others], axis=-2)
    return values - mean, variance, mean


def largest_z(bag: F64) -> F64:
    away, variance, mean = included(bag)
    return np.asarray((away / np.sqrt(variance + (0.05 * mean[..., -1:]) ** 2)).max(axis=-1))


def our_score(bag: F64, offset: float) -> F64:
    product = np.ones_like(bag)
    for values, in_logs in ((bag, False), (np.log(bag + offset), True)):
        away, variance, mean = excluded(values)
        least = 0.05 if in_logs else 0.05 * mean[..., -1:]
        product *= np.maximum(away / np.sqrt(variance + least**2), 0)
    return np.asarray(np.sqrt(product.sum(axis=-1)))


def p_values(normal: I64, sample: I64) -> dict[str, F64]:
    """Return p of every sample execution, by the name of the way it is computed."""
    x = np.column_stack([normal, normal.sum(axis=1)]).astype(float)
    y = np.column_stack([sample, sample.sum(axis=1)]).astype(float)
    bags = np.stack([np.concatenate([x, row[None]]) for row in y])
    offset = 0.02 * x[:, -1].mean()
    ours = our_score(bags, offset)
    alone = np.broadcast_to(our_score(x, offset), (len(y), len(x)))
    result = {}
    for name, null, score in (
        ("largest z, full conformal", *parted(largest_z(bags))),
        ("our score, normal ones among themselves", alone, ours[:, -1]),
        ("our score, full conformal", *parted(ours)),
    ):
        tied = score[:, None] - 1e-9 * np.maximum(score[:, None], 1)
        result[name] = (1 + (null >= tied).sum(axis=1)) / (1 + len(x))
        tail = [conformal(n, s[None])[0] for n, s in zip(null, score, strict=True)]
        result[f"{name}, Pareto tail"] = np.array(tail)
    return result


def parted(scores: F64) -> tuple[F64, F64]:
    return scores[:, :-1], scores[:, -1]


def marks(normal: I64, sample: I64) -> Iterator[tuple[str, F64, Bool]]:
    """Yield every way's name, its p-values and what it marks."""
    for name, p in p_values(normal, sample).items():
        yield name, p, benjamini_hochberg(p, LEVEL)
    for name, known in (("critpath, types known", True), ("critpath, types not known", False)):
        found = judged(normal, sample, types_known=known)
        yield name, found.p_value, found.anomalous


def compare(
    setting: Setting, rng: np.random.Generator, repeats: int
) -> Iterator[tuple[str, list[float]]]:
    """Yield every way's shares: healthy p <= .01 and .05, any mark, and of delayed ones."""
    sums: dict[str, F64] = {}
    faulty = max(1, setting.sample // 10)
    for _ in range(repeats):
        normal, sample = setting.pair(rng)
        slow = sample.copy()
        slow[:faulty, DELAYED] += np.int64(normal.sum(axis=1).mean())
        for name, p, marked in marks(normal, sample):
            shares = [(p <= 0.01).mean(), (p <= 0.05).mean(), marked.any()]
            sums.setdefault(name, np.zeros(5))[:3] += shares
        for name, p, marked in marks(normal, slow):
            sums[name][3:] += [(p[:faulty] <= 0.01).mean(), marked[:faulty].mean()]
    for name, total in sums.items():
        yield name, (total / repeats).tolist()
