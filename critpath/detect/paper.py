"""The paper's Algorithm 1: its average rule and its probability rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from critpath.model import F64, I64, Bool, hypergeometric_tail
from critpath.text import notes

Y_REFERENCES = ("a1", "a2")


@dataclass(frozen=True)
class Algorithm1:
    """Both rules for every column; arrays are [columns], durations in ns.

    Attributes
    ----------
    normal_mean, normal_std : float64
        ``normal_std`` with ddof 1, 0 where there is one execution.
    average_threshold : float64 or None
        None where one execution gives no standard deviation.
    average_fires, probability_fires, new_state : bool
    normal_above, sample_above : float64
        The paper's p1 and p2.
    notes : tuple of str
    """

    normal_mean: F64
    normal_std: F64
    average_threshold: F64 | None
    average_fires: Bool
    normal_above: F64
    sample_above: F64
    probability_fires: Bool
    new_state: Bool
    notes: tuple[str, ...]


def algorithm1(
    normal: I64,
    sample: I64,
    *,
    t1: float = 1.5,
    t2: float | None = None,
    y_reference: str = "a1",
    alpha: float = 0.01,
    names: tuple[str, ...] = (),
) -> Algorithm1:
    """Compare the columns of two sets of executions by the paper's two rules."""
    if y_reference not in Y_REFERENCES:
        raise ValueError(f"y_reference {y_reference!r}: choose from {', '.join(Y_REFERENCES)}")
    if t1 < 0 or (t2 is not None and t2 <= 0):
        raise ValueError("t1 >= 0 and t2 > 0 expected")
    n, m = len(normal), len(sample)
    if not n or not m:
        raise ValueError("Algorithm 1 needs an execution in both sets")
    remarks = []
    mean = normal.mean(axis=0)
    std = normal.std(axis=0, ddof=1) if n > 1 else np.zeros(normal.shape[1])
    threshold = None
    average = np.zeros(normal.shape[1], np.bool_)
    if n > 1:
        threshold = mean + t1 * std
        # Rounding of the threshold is no slow-down: equal sets must not fire.
        average = sample.mean(axis=0) > threshold * (1 + 1e-12)
    else:
        remarks.append(notes.average_rule_skipped())
    x = _above(normal, normal)
    y = _above(sample, normal if y_reference == "a1" else sample)
    p1, p2 = x / n, y / m
    new_state = (x == 0) & (y > 0)
    if t2 is None:
        rising = _fisher(x, n, y, m) <= alpha / normal.shape[1]
    else:
        rising = p2 > p1 * t2
        mute = np.flatnonzero((p1 * t2 >= 1) & (x > 0))
        if len(mute):
            known = [names[i] for i in mute if i < len(names)]
            remarks.append(notes.mute_ratio(t2, known, len(mute)))
    return Algorithm1(mean, std, threshold, average, p1, p2, rising | new_state, new_state,
                      tuple(remarks))  # fmt: skip


def _above(values: I64, reference: I64) -> I64:
    """Count values above the mean of the reference, in exact integers."""
    # e * n > sum is e > floor(sum / n) for integers, where the product could overflow.
    floor = reference.sum(axis=0) // len(reference)
    return np.asarray((values > floor).sum(axis=0), dtype=np.int64)


def _fisher(x: I64, n: int, y: I64, m: int) -> F64:
    """One-sided p of Fisher's exact test that the sample's share is the larger."""
    counts = zip(x.tolist(), y.tolist(), strict=True)
    return np.array([hypergeometric_tail(a + b, m, n, b) for a, b in counts])


# False alarms of the paper's rules.


_SPLITS = 200
_LEAST_SPLITS = 20
_WORK = 1 << 26  # values looked at in all


def false_alarms(
    normal: I64, sample: I64, rule: Callable[[I64, I64], Algorithm1], random_seed: int
) -> float:
    """Share of random splits of all executions in which Algorithm 1 fires for a state."""
    pool = np.concatenate([normal, sample])
    # The order of executions must not matter.
    pool = pool[np.lexsort(pool.T[::-1])]
    splits = int(np.clip(_WORK // max(pool.size, 1), _LEAST_SPLITS, _SPLITS))
    rng = np.random.default_rng(random_seed)
    alarms = 0
    for _ in range(splits):
        order = rng.permutation(len(pool))
        found = rule(pool[order[len(sample) :]], pool[order[: len(sample)]])
        fires = found.average_fires | found.probability_fires
        alarms += bool(fires[:-1].any())
    return alarms / splits
