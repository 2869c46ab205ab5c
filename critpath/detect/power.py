"""The smallest slow-down that a comparison shows, found by slowing samples down."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from critpath.detect.trial import Trial
from critpath.model import F64

POWER = 0.8
_MOST = 64.0  # times the mean duration: what does not show then never will
_STEPS = 4  # halvings on a logarithmic scale: a factor of two to 4 %
_START = 1e-3  # of the mean duration, where there is no floor to start from


def smallest_shift(
    trials: Sequence[Trial], patterns: Sequence[F64], mean: float
) -> tuple[float | None, bool]:
    """Find the smallest shift that four trials in five call an anomaly.

    Parameters
    ----------
    trials : sequence of Trial
        Splits of healthy executions, of one size.
    patterns : sequence of float64 [sample executions, symbols]
        For each trial, what one nanosecond of the shift adds.
    mean : float
        Mean duration (ns).

    Returns
    -------
    shift : float or None
        Nanoseconds; None if even 64 mean durations do not show.
    by_floor : bool
        It shows as soon as it is large enough for the floor.
    """
    allowed = len(trials) - math.ceil(POWER * len(trials))
    gaps = sorted(t.lacking(p) for t, p in zip(trials, patterns, strict=True))
    least = gaps[len(trials) - allowed - 1]
    if least >= _MOST * mean:
        return None, False

    def shows(size: float) -> bool:
        misses = 0
        for trial, pattern in zip(trials, patterns, strict=True):
            misses += not trial.alarms(np.rint(pattern * size).astype(np.int64))
            if misses > allowed:
                return False
        return True

    # Rounding to whole nanoseconds must not fall below the floor.
    low = max(math.ceil(least * (1 + 1e-6)) + 1.0, _START * mean)
    if shows(low):
        return low, least > 0
    high = 2 * low
    while not shows(high):
        low, high = high, 2 * high
        if high > _MOST * mean:
            return None, False
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        if shows(middle):
            high = middle
        else:
            low = middle
    return high, False
