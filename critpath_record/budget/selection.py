"""Which runs are recorded: each by chance when it begins, whatever it will be like.

Kinds share what recording may cost fairly, so that a rare kind is not crowded out by a frequent
one.  Pure but for the seeded coin: no clock, no file.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from random import Random
from typing import Final

from critpath.errors import UsageError
from critpath.schema.parameters.budget import PROGRAMS
from critpath_record.budget.account import overhead_of, share_of
from critpath_record.budget.laws import share_fairly

_MEDIANS: Final = 201  # durations of a kind that are kept


def check_runs(share: float, runs: int) -> None:
    """Raise UsageError where nothing could be recorded: what a run costs the one before it tells.

    `share` is of busy time.
    """
    least = share_of(PROGRAMS.dearest)
    if runs == 1 and share < least:
        raise UsageError(
            f"one run under {100 * overhead_of(share):g} % cannot be recorded: what recording "
            "costs is not known before a run has ended",
            f"run it more often (-n 20), or allow more (--overhead {100 * PROGRAMS.dearest:g}%)",
        )


def check_span(share: float, seconds: float) -> None:
    """Raise UsageError where a time is so short that its budget does not even pay for looking.

    `seconds` are 0 where nobody knows.
    """
    if 0 < seconds * share < PROGRAMS.fixed:
        least = math.ceil(100 * overhead_of(min(PROGRAMS.fixed / seconds, 0.99)))
        raise UsageError(
            f"{100 * overhead_of(share):g} % of {seconds:g} s is {1000 * share * seconds:.1f} ms "
            f"of cpu time, and to look at what it costs takes {1000 * PROGRAMS.fixed:.0f} ms",
            f"record for longer (--duration {PROGRAMS.fixed / share:.1f}), or allow more "
            f"(--overhead {least}%)",
        )


class Kinds:
    """What runs of each kind cost, and the chance that the next has.

    Parameters
    ----------
    share : float
        Of busy time that recording may cost.
    seed : int
    alike : bool
        All kinds have one chance, as runs of commands that are compared with each other; else
        fair shares, as runs of a running program.
    """

    def __init__(self, share: float, seed: int, *, alike: bool = False) -> None:
        self._share, self._random = share, Random(seed)  # noqa: S311 - a coin, no secret
        self._alike = alike
        self._count: dict[str, float] = {}  # of executions, fading
        self._busy = 0.0  # cpu time that they were seen in, fading alike (s)
        self._cost: dict[str, float] = {}  # of a recorded one (s)
        self._expected: dict[str, float] = {}  # of one of a kind of which none was recorded (s)
        self._took: dict[str, deque[float]] = {}

    @property
    def known(self) -> list[str]:
        """The kinds of which it is known how long one takes."""
        return [*self._took]

    def chances(self, balance: float, scale: float = 0.0) -> Mapping[str, float]:
        """Return the chance of each kind that was seen.

        `balance` is what may still be spent (s of cpu time), below 0 what was overspent: at a debt
        of `scale`, or of what one run costs if that is more, all chances are 0.
        """
        known = [self._cost_of(kind) for kind in self._count]
        total = self._share * self._factor(balance, scale)
        demands = [
            each * count / max(self._busy, 1e-12)
            for each, count in zip(known, self._count.values(), strict=True)
        ]
        if self._alike:
            return dict.fromkeys(self._count, min(1.0, total / max(sum(demands), 1e-12)))
        shares = share_fairly(demands, total)
        return {
            kind: min(1.0, share / max(demand, 1e-12))
            for kind, share, demand in zip(self._count, shares, demands, strict=True)
        }

    def toss(self, kind: str, balance: float) -> tuple[bool, float]:
        """Return whether the next run of a kind is recorded, and the chance that it had.

        Of runs none is begun that is not paid for when it ends.
        """
        if self._alike and not self.affords(balance):
            return False, 0.0
        known = self.chances(balance)
        if kind in known or (known and self._alike):
            chance = known.get(kind, min(known.values()))
        else:  # as much as if it were all there is
            chance = min(1.0, self._share / PROGRAMS.guess) if self._factor(balance) > 0 else 0.0
        return self._random.random() < chance, chance

    def affords(self, balance: float) -> bool:
        """Return whether the dearest of the runs is paid for when it ends: it earns something, too.

        Of the first nothing is known but how much recording costs at most.
        """
        earns = self._share * self.busy_each
        if not self._count:
            return self._share >= share_of(PROGRAMS.dearest)
        dearest = max(self._cost.get(k, PROGRAMS.doubt * self._cost_of(k)) for k in self._count)
        return balance + earns >= dearest

    @property
    def busy_each(self) -> float:
        """Return the cpu time in which one was seen, on average (s)."""
        return self._busy / max(sum(self._count.values()), 1e-12)

    @property
    def cost_each(self) -> float:
        """Return what recording one costs, or is expected to (s)."""
        return max(map(self._cost_of, self._count), default=0.0)

    def expect(self, kind: str, cost: float) -> None:
        """Note what recording one of a kind will cost (s), as long as none was."""
        before = self._expected.get(kind, cost)
        self._expected[kind] = before + PROGRAMS.weight * (cost - before)

    def note(self, seen: Mapping[str, int], busy: float) -> None:
        """Learn from runs, recorded or not, in so much busy time (s)."""
        kept = PROGRAMS.kept ** sum(seen.values())
        self._count = {kind: kept * count for kind, count in self._count.items()}
        self._busy = kept * self._busy + max(0.0, busy)
        for kind, count in seen.items():
            self._count[kind] = self._count.get(kind, 0.0) + count

    def note_time(self, kind: str, took: float) -> None:
        """Learn how long one took (s)."""
        self._took.setdefault(kind, deque(maxlen=_MEDIANS)).append(took)

    def note_cost(self, recorded: Mapping[str, int], cost: float) -> None:
        """Learn what recording so many of each kind cost together (s).

        Of several kinds each is taken to have cost more, or less, by the same factor.
        """
        expected = {kind: n * self._cost_of(kind) for kind, n in recorded.items() if n > 0}
        total = sum(expected.values())
        for kind, part in expected.items():
            each = cost / recorded[kind] * (part / total if total > 0 else 1 / len(expected))
            weight = PROGRAMS.weight if kind in self._cost else 1.0
            before = self._cost.get(kind, 0.0)
            self._cost[kind] = before + weight * (each - before)

    def longest(self, kind: str) -> float:
        """Return after how long one of a kind is given up (s), 0 for never yet."""
        took = self._took.get(kind, ())
        return PROGRAMS.given_up * statistics.median(took) if len(took) >= PROGRAMS.fewest else 0.0

    def _cost_of(self, kind: str) -> float:
        """Return what recording one costs; of a kind of which none was, a guess."""
        found = self._cost.get(kind)
        if found is not None:
            return found
        return self._expected.get(kind, PROGRAMS.guess * self.busy_each)

    def _factor(self, balance: float, scale: float = 0.0) -> float:
        most = max(self._cost.values(), default=0.0)
        most = max(most, scale) if most > 0 else 0.0
        return min(PROGRAMS.most_saved, max(0.0, 1 + balance / most)) if most > 0 else 1.0
