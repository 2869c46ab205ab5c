"""Whether requests of a kind are slower than is usual for them: a sequential test of counts.

Of each block it is counted how many requests took longer than usual's 90th and 99th percentile,
and how many ended by a reset.  Blocks differ more than by chance: counts are beta-binomial, with
the dispersion of the last hour's, and as long in a row as that hour's hang together a block counts
as a part of one.  Bets on higher odds make an e-process that looks for a change at any block
(Shiryaev and Roberts); it begins anew each hour.  Alarms by chance of all kinds together are at
most so many a day, by Ville's inequality.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, NamedTuple

from critpath.schema.parameters.noticing import NOTICING

_DAY: Final = 86_400.0
_LEARN_EVERY: Final = 60  # technical: blocks between two looks at how they differ
_MOST, _RICHEST = 700.0, 1e200  # technical: of a logarithm, and of wealth
_GAIN: Final = 46.0  # technical: of a logarithm, in one block
_MOST_PEAKS: Final = 256  # technical
_NORMAL: Final = NormalDist()
_LEAST_DAYS: Final = 1 / 12  # technical: of which it is said how often something is in a day


def list_signals() -> tuple[float, ...]:
    """Return what share of requests each signal usually is of: long ones, and resets."""
    return (*(1 - q for q in NOTICING.quantiles), NOTICING.resets)


class Counts(NamedTuple):
    """Of one block: requests, and of them those of each signal."""

    requests: int
    of: tuple[int, ...]


@dataclass
class Null:
    """What is usual of one signal: its share, how blocks differ, and how many hang together."""

    share: float
    spread: float
    lasts: float = 1.0


class Counted:
    """Counts of the last blocks, in a ring."""

    def __init__(self, most: int = NOTICING.usual) -> None:
        self._most, self._width = most, len(list_signals()) + 1
        self._rows = array("I", bytes(4 * most * self._width))
        self._next = self.blocks = 0
        self.sums = [0] * self._width

    def add(self, counts: Counts) -> None:
        """Add a block; the oldest is forgotten."""
        at = self._next * self._width
        for i, new in enumerate((counts.requests, *counts.of)):
            self.sums[i] += new - self._rows[at + i]
            self._rows[at + i] = new
        self._next = (self._next + 1) % self._most
        self.blocks = min(self.blocks + 1, self._most)

    def list_rows(self) -> list[array[int]]:
        """Return the blocks, oldest first."""
        width, first = self._width, self._next if self.blocks == self._most else 0
        places = [(first + i) % self._most * width for i in range(self.blocks)]
        return [self._rows[at : at + width] for at in places]


def find_spread(requests: Sequence[int], counts: Sequence[int], share: float) -> float:
    """Return how much counts of blocks differ besides by chance: 0 for not at all, below 1.

    By Pearson's statistic; until there are many blocks it is what is taken for usual.
    """
    first, weight = NOTICING.spread
    some = [(n, x) for n, x in zip(requests, counts, strict=True) if n > 1]
    if not some:
        return float(first)
    chance = share * (1 - share)
    excess = sum((x - n * share) ** 2 / (n * chance) - 1 for n, x in some)
    pairs = sum(n - 1 for n, _ in some)
    mean = pairs / len(some)
    found = (excess + weight * first * mean) / (pairs + weight * mean)
    return min(max(found, first / 10), 0.5)


def find_lasting(requests: Sequence[int], counts: Sequence[int], null: Null) -> float:
    """Return for how many blocks what is above lasts: they tell as much as one."""
    left = [
        (x - n * null.share) / math.sqrt(n * null.share * (1 + (n - 1) * null.spread)) if n else 0.0
        for n, x in zip(requests, counts, strict=True)
    ]
    mean = sum(left) / max(len(left), 1)
    left = [r - mean for r in left]
    whole = sum(r * r for r in left)
    if whole < 1e-9 * len(left) or not left:
        return 1.0
    lasts = 1.0
    for lag in range(1, min(NOTICING.longest * 3, len(left) // 4)):
        alike = sum(a * b for a, b in zip(left, left[lag:], strict=False)) / whole
        if alike < 2 / math.sqrt(len(left)):
            break
        lasts += 2 * alike
    return min(lasts, float(NOTICING.longest))


def weigh(n: int, x: int, null: Null, odds: float) -> float:
    """Return the logarithm of how much likelier a count is where the odds are higher."""
    if not n:
        return 0.0
    share = null.share * odds / (1 + null.share * (odds - 1))
    many = 1 / null.spread - 1
    return _log_chance(n, x, share * many, (1 - share) * many) - _log_chance(
        n, x, null.share * many, (1 - null.share) * many
    )


def _log_chance(n: int, x: int, a: float, b: float) -> float:
    """Return the logarithm of a beta-binomial chance, less what is alike for all a and b."""
    g = math.lgamma
    return g(x + a) - g(a) + g(n - x + b) - g(b) + g(a + b) - g(n + a + b)


class Level:
    """By how much a percentile of some blocks is longer than usual, and is by itself.

    Logarithms of quotients: their spread is that of the last day, and what they came to by
    themselves, and went back from, is not worth to be told when it comes again.
    """

    def __init__(self) -> None:
        self.now = -math.inf
        self._mean, self._count = 0.0, NOTICING.prior_level[1]
        self._square = NOTICING.prior_level[0] ** 2
        self._peak = 0.0
        self._records: deque[tuple[int, float]] = deque()
        self._blocks = 0

    def add(self, *, over: bool, told: bool) -> None:
        """Note what it is now: beyond what is usual (`over`), and perhaps told already."""
        self._blocks += 1
        if told:
            self._peak = 0.0
            return
        self._peak = max(self._peak, self.now)
        if not over and self._peak > 0:
            while self._records and self._records[-1][1] <= self._peak:
                self._records.pop()
            self._records.append((self._blocks, self._peak))
            self._peak = 0.0
        while self._records and self._records[0][0] < self._blocks - NOTICING.adopted:
            self._records.popleft()
        # What stands out is held back: what begins to be slow is not what is usual.
        by = max(-NOTICING.cut * self._spread, min(self.now, NOTICING.cut * self._spread))
        self._count = min(self._count + 1, NOTICING.adopted)
        self._mean += (by - self._mean) / self._count
        self._square += (by * by - self._square) / self._count

    @property
    def _spread(self) -> float:
        return math.sqrt(max(self._square - self._mean**2, 1e-4))

    def find_bar(self, tests: int, a_day: float) -> float:
        """Return what it has to come to, with so many looked at, for so many alarms a day."""
        rare = a_day / (tests * NOTICING.adopted / max(NOTICING.levels))
        by_chance = self._mean + _NORMAL.inv_cdf(1 - min(rare, 0.5)) * self._spread
        record = self._records[0][1] if self._records else 0.0
        return max(by_chance, record + NOTICING.beyond)


class Kept(NamedTuple):
    """What is known of one kind, as it is written down.

    Attributes
    ----------
    sketch : list of int
        Of the last hour: buckets and how many are in each.
    counts : list of int
        Of its blocks, one after the other.
    peaks : list
        What evidence came to by itself: how many blocks ago, its logarithm, whether it was told.
    blocks, alarmed : int
    """

    sketch: list[int]
    counts: list[int]
    peaks: list[list[float]]
    blocks: int
    alarmed: int


class Watched:
    """One kind: what is usual of it, and the evidence that it is not so any more."""

    def __init__(self) -> None:
        self.counted = Counted()
        self._shares = list_signals()
        self._nulls = [Null(share, NOTICING.spread[0]) for share in self._shares]
        self._learned = 0
        self._blocks = self._age = 0  # in all, and since evidence began anew
        self._wealth: list[list[float]] = []
        self._below = 0  # blocks in a row
        self._peak = 0.0
        self._bar = math.inf
        # What evidence came to by itself: when, its logarithm, and whether it was told.
        self._peaks: deque[tuple[int, float, bool]] = deque(maxlen=_MOST_PEAKS)
        self.above = [0] * len(self._shares)  # blocks in a row
        self._waiting: list[Counts] = []  # not taken for usual yet
        self.alarmed = 0  # blocks since an alarm; 0 for none
        self.begin_anew()

    def keep(self, sketch: bytes) -> Kept:
        """Return what to write down, with a sketch of times."""
        counts = [n for row in self.counted.list_rows() for n in row]
        peaks = [[self._blocks - at, peak, float(told)] for at, peak, told in self._peaks]
        return Kept(array("I", sketch).tolist(), counts, peaks, self._blocks, self.alarmed)

    def recall(self, kept: Kept) -> None:
        """Go on from what was written down; raises ValueError, TypeError or OverflowError."""
        width = len(self._shares) + 1
        rows = [kept.counts[i : i + width] for i in range(0, len(kept.counts), width)]
        if any(len(row) < width or max(row[1:]) > row[0] for row in rows):
            raise ValueError(rows)
        for row in rows[-NOTICING.usual :]:
            self.counted.add(Counts(row[0], tuple(row[1:])))
        self._blocks, self.alarmed = int(kept.blocks), int(kept.alarmed)
        self._peaks.extend((self._blocks - int(at), float(p), bool(t)) for at, p, t in kept.peaks)
        if self.counted.blocks >= _LEARN_EVERY:
            self._learned = 1
            self._learn()

    @property
    def is_known(self) -> bool:
        """Whether it is known what is usual."""
        blocks, requests = NOTICING.fewest
        return self.counted.blocks >= blocks and self.counted.sums[0] >= requests

    def add(self, counts: Counts) -> None:
        """Take a block into account."""
        self._blocks += 1
        self.alarmed += self.alarmed > 0
        if self._learned:
            self._judge(counts)
        if not self.alarmed:
            # What begins to be slow is not usual at once.
            self._waiting.append(counts)
            if len(self._waiting) > NOTICING.sustained * 2:
                self.counted.add(self._waiting.pop(0))
                self._learned += self._learned > 0 or self.counted.blocks == _LEARN_EVERY
                if self._learned % _LEARN_EVERY == 1:
                    self._learn()

    def _learn(self) -> None:
        rows = self.counted.list_rows()
        requests = [row[0] for row in rows]
        for i, usual in enumerate(self._shares):
            counts = [row[i + 1] for row in rows]
            null = self._nulls[i]
            seen = (sum(counts) + NOTICING.prior) / (sum(requests) + NOTICING.prior / usual)
            null.share = min(max(seen, usual / 4), 0.9)
            null.spread = find_spread(requests, counts, null.share)
            null.lasts = find_lasting(requests, counts, null)

    def _judge(self, counts: Counts) -> None:
        n = counts.requests
        self._age += 1
        begin = 1 / (NOTICING.restart * len(self._shares) * len(NOTICING.alternatives))
        for i, (x, null) in enumerate(zip(counts.of, self._nulls, strict=True)):
            expected = n * null.share
            differ = math.sqrt(expected * (1 + max(n - 1, 0) * null.spread))
            self.above[i] = self.above[i] + 1 if x > expected + differ else 0
            wealth = self._wealth[i]
            for j, odds in enumerate(NOTICING.alternatives):
                gain = weigh(n, x, null, odds) / null.lasts
                wealth[j] = (wealth[j] + begin) * math.exp(max(-_MOST, min(gain, _GAIN)))
                wealth[j] = min(wealth[j], _RICHEST)
        self._peak = max(self._peak, self.evidence)
        self._below = 0 if any(self.above) else self._below + 1
        calm = self._below >= NOTICING.sustained
        if not self.alarmed and calm and (self._age > NOTICING.restart or self._peak > 0):
            self.begin_anew()

    def begin_anew(self) -> None:
        """Begin anew with evidence; what is usual stays, and what comes of chance."""
        if self._peak > 0:
            # What was told may have been no chance.
            told = self._peak >= self._bar
            self._peaks.append((self._blocks, min(self._peak, self._bar), told))
        self._age, self._peak = 0, 0.0
        self._wealth = [[0.0] * len(NOTICING.alternatives) for _ in self._shares]

    @property
    def evidence(self) -> float:
        """The logarithm of all bets' wealth, which is at most 1 on average while all is usual."""
        return math.log(max(sum(map(sum, self._wealth)), 1e-300))

    @property
    def signal(self) -> int:
        """Which signal has most evidence."""
        return max(range(len(self._shares)), key=lambda i: sum(self._wealth[i]))

    def share(self, signal: int) -> float:
        """Return the usual share of requests of a signal."""
        return self._nulls[signal].share

    @property
    def leans(self) -> bool:
        """Whether it is above what is usual for some blocks."""
        return max(self.above) >= NOTICING.sustained - 1

    def may_be_due(self) -> bool:
        """Return whether it is above what is usual for long enough."""
        known = self.is_known and not self.alarmed
        return known and self.above[self.signal] >= NOTICING.sustained

    def list_peaks(self) -> list[float]:
        """Return what evidence came to by itself in the last day: logarithms."""
        since = self._blocks - NOTICING.adopted
        return [peak for at, peak, _ in self._peaks if at >= since]

    def is_due(self, kinds: int, a_day: float, others: float = 0.0) -> bool:
        """Return whether the evidence is enough, with so many kinds and alarms a day by chance.

        `others` is what it comes to by itself in all kinds, on average.
        """
        return self.may_be_due() and self.evidence >= self._find_bar(kinds, a_day, others)

    def _find_bar(self, kinds: int, a_day: float, others: float) -> float:
        """Return what evidence has to come to.

        That of Ville's inequality, if blocks are what they are taken for.  They are not: what comes
        and goes by itself makes evidence, too, whose logarithm has an exponential tail.
        """
        first, weight = NOTICING.chance
        since = self._blocks - NOTICING.adopted
        known = [(peak, told) for at, peak, told in self._peaks if at >= since]
        peaks = [peak for peak, _ in known]
        record = max((peak for peak, told in known if not told), default=0.0)
        days = max(min(self._blocks, NOTICING.adopted) * NOTICING.block / _DAY, _LEAST_DAYS)
        mean = (sum(peaks) + weight * max(first, others)) / (len(peaks) + weight)
        by_itself = (len(peaks) + weight) / days
        hours = _DAY / (NOTICING.restart * NOTICING.block)
        self._bar = max(
            math.log(hours * kinds / a_day),
            mean * math.log(max(by_itself * kinds / a_day, math.e)),
            NOTICING.record * record,
        )
        return self._bar

    def raise_alarm(self) -> None:
        """Note that it was told: what goes on is no news, nor usual for a day."""
        self.alarmed = 1
        self._waiting.clear()

    def is_over(self) -> bool:
        """Return whether an alarm is over; evidence begins anew then."""
        if self.alarmed and self._below >= NOTICING.calm:
            self.alarmed = 0
            self.begin_anew()
            return True
        return False

    def is_adopted(self) -> bool:
        """Return whether what was told has lasted for so long that it is usual."""
        return self.alarmed > NOTICING.adopted
