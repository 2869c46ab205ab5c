"""The account: credit that busy time earns and recording spends.

Its bound, whatever costs come: over any stretch with busy time b the cost is at most
``share * b + size + overshoot``, where the overshoot is what was spent between two polls.
"""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters.budget import ACCOUNT

SLOTS: Final = 10  # parts that a horizon's busy time is kept in


def share_of(overhead: float) -> float:
    """Return cost over busy time for an overhead, which is cost over time without the cost."""
    return overhead / (1 + overhead)


def overhead_of(share: float) -> float:
    """Return how much longer work takes where recording has this share of busy time."""
    return share / (1 - share) if share < 1 else float("inf")


class Account:
    """Credit of one cpu, machine, layer or command (seconds of cpu time).

    `share`: of busy time that may be spent.  `horizon`: seconds over which the budget holds.
    `width`: cpus that this is about: the least busy time that is reckoned with is `ACCOUNT.idle`.

    `unit`: what is spent in one piece if anything is, such as one call of a long function: so much
    can always be saved, or what is saved for the next one would be lost while the gate waits.
    """

    def __init__(self, share: float, horizon: float, width: float = 1.0) -> None:
        self.share, self.horizon, self.width = share, horizon, width
        self._slots = [0.0] * (2 * SLOTS)
        self._slot = self._first = -1
        self._sums = 0.0, 0.0  # of the horizon before the last one, and of the last
        self._last = self.unit = 0.0
        self.credit = self.size

    @property
    def busy(self) -> float:
        """Busy time of a horizon: the smaller of the last two, and never nothing.

        The last alone until there are two, or nothing could be saved in the first two.
        """
        before, last = self._sums
        seen = min(before, last) if self._slot - self._first >= 2 * SLOTS - 1 else last
        most = self.horizon * self.width  # polls that are late bring more into a slot
        return min(max(seen, ACCOUNT.idle * most), most)

    @property
    def peak(self) -> float:
        """Busy time per second of the busiest slot of the last two horizons."""
        return min(max(self._slots) * SLOTS / self.horizon, self.width)

    @property
    def is_idle(self) -> bool:
        """Whether it was busy for so little that it makes no difference when in a horizon."""
        seen = self._slot - self._first >= 2 * SLOTS - 1
        return seen and max(self._sums) <= ACCOUNT.idle * self.horizon * self.width

    @property
    def size(self) -> float:
        """The most credit that can be saved."""
        return max(self.share * self.busy / ACCOUNT.part, self.unit)

    def note(self, now: float, busy: float, cost: float) -> None:
        """Earn what busy time since the last poll allows, and pay for what was spent.

        A poll that comes twice has nothing to add; time that jumps back counts as none.
        """
        if self._slot < 0:
            self._slot = self._first = int(now * SLOTS / self.horizon)
            self._last = now
        passed = min(max(0.0, now - self._last), self.horizon)
        self._roll(now)
        busy = max(0.0, min(busy, (passed + 0.02) * self.width))
        self._slots[self._slot % len(self._slots)] += busy
        self._sums = self._sums[0], self._sums[1] + busy
        # Who was idle for a horizon would never have paid what others spend.
        idle = self.busy <= ACCOUNT.idle * self.horizon * self.width
        earned = self.share * (max(busy, ACCOUNT.idle * passed * self.width) if idle else busy)
        self.credit = min(self.size, self.credit + earned) - max(0.0, cost)
        self._last = max(now, self._last)

    def _roll(self, now: float) -> None:
        slot = max(int(now * SLOTS / self.horizon), self._slot)
        if slot == self._slot:
            return
        for number in range(max(self._slot + 1, slot - len(self._slots) + 1), slot + 1):
            self._slots[number % len(self._slots)] = 0.0
        self._slot = slot
        rolled = [self._slots[(slot + 1 + i) % len(self._slots)] for i in range(len(self._slots))]
        self._sums = sum(rolled[:SLOTS]), sum(rolled[SLOTS:])

    def is_spent(self) -> bool:
        """Return whether nothing more may be spent."""
        return self.credit <= 0

    def is_filled(self, part: float) -> bool:
        """Return whether this part of the most credit is there."""
        return self.credit >= part * self.size


class Allowance:
    """Cpu time that may be taken from others for something else than recording (s).

    So much of a cpu, as time passes; what is not taken is saved, up to the most.
    """

    def __init__(self, share: float, most: float) -> None:
        self._share, self._most = share, most
        self._credit = most
        self._last: float | None = None

    def credit(self, now: float) -> float:
        """Return what is left."""
        passed = max(0.0, now - self._last) if self._last is not None else 0.0
        self._credit = min(self._most, self._credit + self._share * passed)
        self._last = now
        return self._credit

    def pay(self, seconds: float) -> None:
        """Take some."""
        self._credit -= max(0.0, seconds)
