"""The smallest slow-down that a comparison shows, found by slowing samples down."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from critpath.detect.trial import Trial
from critpath.model import F64

POWER = 0.8
_MOST = 64.0  # times the mean duration: what does not show then never will
_STEP = 2 ** (1 / 16)  # precision: 4 %
_FAR = 16  # steps at once, until the answer is passed
_START = 1e-3  # of the mean duration, where there is no floor to start from
# A shift this little above what the floor asks for is decided by the floor.
_AT_FLOOR = 1.1


class _Asked:
    """Trials that are asked no more than needed: what shows goes on to show when larger."""

    def __init__(self, trials: Sequence[Trial], patterns: Sequence[F64], allowed: int) -> None:
        self._trials = list(zip(trials, patterns, strict=True))
        self._misses = [0.0] * len(trials)  # the largest shift that did not show
        self._shown = [math.inf] * len(trials)  # the smallest that did
        self._allowed = allowed

    def shows(self, size: float) -> bool:
        misses = sum(size <= miss for miss in self._misses)
        for k, (trial, pattern) in enumerate(self._trials):
            if misses > self._allowed:
                return False
            if self._misses[k] < size < self._shown[k]:
                if trial.alarms(np.rint(pattern * size).astype(np.int64)):
                    self._shown[k] = size
                else:
                    self._misses[k] = size
                    misses += 1
        return misses <= self._allowed


def smallest_shift(
    trials: Sequence[Trial], patterns: Sequence[F64], mean: float, *, guess: float = 0.0
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
    guess : float
        Where to look first (ns); the answer hardly depends on it.

    Returns
    -------
    shift : float or None
        Nanoseconds, 4 % at most above the smallest; None if even 64 mean durations do
        not show.
    by_floor : bool
        The floor decides: what is large enough for it is significant as well.
    """
    allowed = len(trials) - math.ceil(POWER * len(trials))
    gaps = [t.lacking(p) for t, p in zip(trials, patterns, strict=True)]
    anywhere, over_all = (sorted(each)[-allowed - 1] for each in zip(*gaps, strict=True))
    if anywhere >= _MOST * mean:
        return None, False
    # Rounding to whole nanoseconds must not fall below the floor.
    least = max(math.ceil(anywhere * (1 + 1e-6)) + 1.0, _START * mean)
    most = max(0, math.ceil(math.log(_MOST * mean / least, _STEP)))
    asked = _Asked(trials, patterns, allowed)

    def size(step: int) -> float:
        return float(least * _STEP**step)

    if not asked.shows(size(most)):
        return None, False
    # `low` does not show (below the least, nothing does), `high` does.
    low, high = -1, most
    step = min(max(0, round(math.log(guess / least, _STEP))), most - 1) if guess > least else 0
    far = 1
    while high - low > 1:
        if asked.shows(size(step)):
            high = step
            step = max(high - far, (low + high) // 2)
        else:
            low = step
            step = min(low + far, (low + high) // 2)
        step = min(max(step, low + 1), high - 1) if high - low > 1 else step
        far = min(2 * far, _FAR)
    return size(high), over_all > 0 and size(high) <= _AT_FLOOR * over_all
