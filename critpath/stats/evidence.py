"""Evidence from blocks ABBA or BAAB of random order, which may be looked at after every block.

A block gives d, the mean log of B's times less that of A's.  If B takes a certain factor of A's
time, whatever else the machine does, a fair coin has chosen the sign of d less that factor's log.
So bets on the sign are fair, and wealth that grew to 1/alpha from 1 had a chance of alpha
at most (Ville), whenever one looks.  There is no seed here: equal blocks give equal evidence.

Every class follows many series at once, along the first axis: a run has one, a confidence
sequence one for each bound, a simulation one for each repeat.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from critpath.model import F64
from critpath.schema.parameters.ab import EVIDENCE

_GRID: Final = 33  # technical

Marks = np.ndarray[Any, np.dtype[np.bool_]]


class Wealth:
    """What bets have become: the mean over several sizes of the bet, and its peak so far."""

    def __init__(self, runs: int, bets: int) -> None:
        self._logs = np.zeros((runs, bets))
        self.value = np.ones(runs)
        self.peak = np.ones(runs)

    def grow(self, logs: F64) -> None:
        """Add the logarithms of every bet's factor, [runs, bets]."""
        self._logs += logs
        # technical: beyond it an exponential is infinite
        self.value = np.exp(np.minimum(self._logs, 700.0)).mean(axis=1)
        self.peak = np.maximum(self.peak, self.value)


class BoundProcess:
    """Evidence against "the log ratio is at most `bound`" (`sign` 1), or at least (-1)."""

    def __init__(self, bound: float | F64, sign: int = 1, runs: int = 1) -> None:
        self._bound = np.broadcast_to(np.asarray(bound, np.float64), (runs,))
        self._sign = sign
        self._sizes = np.empty((runs, 32))
        self.wealth = Wealth(runs, len(np.array(EVIDENCE.bets)))
        self.blocks = 0

    def add(self, d: float | F64) -> None:
        """Bet on one more block."""
        deviation = self._sign * (np.broadcast_to(d, self._bound.shape) - self._bound)
        if self.blocks == self._sizes.shape[1]:
            self._sizes = np.concatenate([self._sizes, np.empty_like(self._sizes)], axis=1)
        self._sizes[:, self.blocks] = np.abs(deviation)
        self.blocks += 1
        # The scale uses no label: given all |d - c| the signs stay fair.
        scale = np.median(self._sizes[:, : self.blocks], axis=1)
        with np.errstate(over="ignore"):  # beyond all floats is beyond CLIP
            x = np.divide(deviation, scale, out=np.sign(deviation), where=scale > 0)
        self.wealth.grow(
            _log_tanh_bet(
                np.clip(x, -EVIDENCE.clip, EVIDENCE.clip)[:, None] * np.array(EVIDENCE.bets)
            )
        )


def _log_tanh_bet(z: F64) -> F64:
    """Return log(1 + tanh(z)), which averages to 1 over the sign of z."""
    logs: F64 = math.log(2) - np.log1p(np.exp(-2 * z))
    return logs


class Exceedances:
    """How many more of B's executions than of A's exceed a quantile of all before them.

    B's times are divided by the factor that is allowed before they are held against it.
    """

    def __init__(self, quantile: float, allowed: float, first: int, every: int) -> None:
        self._quantile, self._allowed = quantile, allowed
        self._first, self._every = first, every
        self._seen: list[F64] = []
        self._blocks = 0
        self.threshold: F64 | None = None
        self.shares: list[tuple[F64, F64]] = []  # per block that had a threshold: A's and B's

    def add(self, a: F64, b: F64) -> tuple[F64, F64] | None:
        """Count in one block's times, [runs, executions]; None while there is no threshold."""
        b = b / self._allowed
        found = None
        if self.threshold is not None:
            over = self.threshold[:, None]
            found = (a > over).sum(axis=1).astype(np.float64), (b > over).sum(axis=1) * 1.0
            self.shares.append((found[0] / a.shape[1], found[1] / b.shape[1]))
        self._seen += [a, b]
        self._blocks += 1
        late = self._blocks - self._first
        if late >= 0 and late % self._every == 0:
            self.threshold = np.quantile(np.concatenate(self._seen, axis=1), self._quantile, axis=1)
        return found


class TailProcess:
    """Evidence against "B over the allowed factor exceeds the quantile no more often than A"."""

    def __init__(self, quantile: float, allowed: float, runs: int = 1) -> None:
        self.quantile = quantile
        self.exceedances = Exceedances(quantile, allowed, EVIDENCE.tail_from, EVIDENCE.tail_every)
        self.wealth = Wealth(runs, len(np.array(EVIDENCE.tail_bets)))

    def add(self, a: F64, b: F64) -> None:
        """Bet on one more block's times, [runs, executions] of a side."""
        counted = self.exceedances.add(a, b)
        if counted is not None:
            x = counted[1] - counted[0]
            self.wealth.grow(_log_tanh_bet(x[:, None] * np.array(EVIDENCE.tail_bets)))


class ShareProcess:
    """Evidence against "B's share of slow executions is higher by `extra` or more".

    It needs only that the mean of the difference of the shares, given what was before, is so
    high.
    """

    def __init__(self, extra: float | F64, runs: int = 1) -> None:
        self._extra = np.broadcast_to(np.asarray(extra, np.float64), (runs,))[:, None]
        last = EVIDENCE.last_bet / (1 + self._extra)
        self._bets = np.concatenate(
            [np.tile(np.array(EVIDENCE.share_bets), (runs, 1)), last], axis=1
        )
        self.wealth = Wealth(runs, self._bets.shape[1])

    def add(self, difference: float | F64) -> None:
        """Bet on one more block's difference of shares, from -1 to 1."""
        found = np.broadcast_to(difference, self._extra.shape[:1])[:, None]
        self.wealth.grow(np.log1p(self._bets * (self._extra - found)))


class BlockEvidence:
    """All that is asked of the blocks, of one kind of execution and one kind of time."""

    def __init__(
        self,
        floor: float,
        *,
        statistic: str = "geo",
        tails: tuple[float, ...] = (EVIDENCE.slow,),
        runs: int = 1,
    ) -> None:
        self.floor, self.statistic = floor, statistic
        allowed = 1 + floor / 2
        self.slower = BoundProcess(math.log(allowed), 1, runs)
        self.not_slower = BoundProcess(math.log1p(floor), -1, runs)
        self.faster = BoundProcess(0.0, -1, runs)
        self.tails = [TailProcess(q, allowed, runs) for q in tails]
        self.slow = Exceedances(EVIDENCE.slow, allowed, EVIDENCE.share_every, EVIDENCE.share_every)
        self.few_slow = ShareProcess(EVIDENCE.share, runs)
        self.d: list[F64] = []
        self.extra: list[F64] = []
        self.alarm = np.ones(runs)  # the mean of the main evidence and that of the tails
        self.alarm_peak = np.ones(runs)

    @property
    def blocks(self) -> int:
        """Blocks so far."""
        return len(self.d)

    def add(self, a: F64, b: F64) -> None:
        """Take in a block: times of A and of B, [runs, slots, executions of a slot]."""
        d = block_difference(a, b, self.statistic)
        self.d.append(d)
        for process in (self.slower, self.not_slower, self.faster):
            process.add(d)
        singles = a.reshape(len(a), -1), b.reshape(len(b), -1)
        for tail in self.tails:
            tail.add(*singles)
        counted = self.slow.add(*singles)
        if counted is not None:
            share = counted[1] / singles[1].shape[1] - counted[0] / singles[0].shape[1]
            self.extra.append(share)
            self.few_slow.add(share)
        if self.tails:
            tails = np.mean([tail.wealth.value for tail in self.tails], axis=0)
            self.alarm = (self.slower.wealth.value + tails) / 2
        else:
            self.alarm = self.slower.wealth.value
        self.alarm_peak = np.maximum(self.alarm_peak, self.alarm)

    def fails(self, threshold: float) -> Marks:
        """Return which series have shown that B is slower, at some time."""
        return np.asarray(self.alarm_peak >= threshold)

    def passes(self, threshold: float) -> Marks:
        """Return which series have shown that B is not slower, and has few slow executions."""
        few = self.few_slow.wealth.peak >= 1 / EVIDENCE.share_alpha
        return np.asarray((self.not_slower.wealth.peak >= threshold) & few)


def settle(
    series: Sequence[BlockEvidence], alpha: float, *, either: bool = False
) -> tuple[Marks, Marks]:
    """Return [series, runs] of what has shown that B is slower, and of what has shown it is not.

    One of them may fail, and all must pass, as long as not `either` may do that, too: what any of
    several can bring about each has its part of the level for.
    """
    apart = len(series) / alpha
    fails = np.stack([one.fails(apart) for one in series])
    passes = np.stack([one.passes(apart if either else 1 / alpha) for one in series])
    return fails, passes


def block_difference(a: F64, b: F64, statistic: str) -> F64:
    """Return d of a block, per series: the log ratio of B to A by the statistic.

    ``geo`` takes the mean log of the slots' mean times, ``mean`` the log of the mean time, ``min``
    the log of the least.
    """
    sides = []
    for times in (a, b):
        if statistic == "min":
            sides.append(np.log(times.min(axis=(1, 2))))
        elif statistic == "mean":
            sides.append(np.log(times.mean(axis=(1, 2))))
        else:
            sides.append(np.log(times.mean(axis=2)).mean(axis=1))
    difference: F64 = sides[1] - sides[0]
    return difference


def confidence_sequence(d: F64, alpha: float) -> tuple[float, float] | None:
    """Return all log ratios that no bet of size alpha / 2 has ever spoken against.

    It holds at every look.  None while nothing is excluded on a side.
    """
    threshold = 2 / alpha
    if len(d) < EVIDENCE.least_blocks:
        return None
    middle = float(np.median(d))
    reach = max(float(np.abs(d - middle).max()), 1e-6)
    ends = []
    for sign in (1, -1):
        # `inside` is not excluded, `outside` is.
        inside, outside = middle, middle - sign * 2 * reach
        for _ in range(20):
            if _find_excluded(d, np.array([outside]), sign, threshold)[0]:
                break
            inside, outside = outside, middle - 2 * (middle - outside)
            if abs(outside - middle) > 50:
                return None
        for _ in range(3):
            bounds = np.linspace(inside, outside, _GRID)
            first = int(np.argmax(_find_excluded(d, bounds, sign, threshold)))
            if first == 0:  # the middle itself: what is left is empty there
                outside = inside
                break
            inside, outside = float(bounds[first - 1]), float(bounds[first])
        ends.append(inside)
    return ends[0], ends[1]


def _find_excluded(d: F64, bounds: F64, sign: int, threshold: float) -> Marks:
    process = BoundProcess(bounds, sign, len(bounds))
    for value in d:
        process.add(float(value))
    return np.asarray(process.wealth.peak >= threshold)


def smallest_extra_share(extra: F64) -> float:
    """Return the smallest extra share of slow executions that is excluded; 1 for none."""
    grid = np.linspace(0.0, 1.0, 101)[1:]
    process = ShareProcess(grid, len(grid))
    for value in extra:
        process.add(float(value))
    excluded = np.flatnonzero(process.wealth.peak >= 1 / EVIDENCE.share_alpha)
    return float(grid[excluded[0]]) if len(excluded) else 1.0


def blocks_to_go(logs: list[float], threshold: float) -> int | None:
    """Return after how many more blocks evidence reaches a threshold as it grew lately."""
    if len(logs) < 2 or logs[-1] >= math.log(threshold):
        return None
    window = logs[-11:]
    growth = (window[-1] - window[0]) / (len(window) - 1)
    if growth <= 0:
        return None
    return math.ceil((math.log(threshold) - logs[-1]) / growth)
