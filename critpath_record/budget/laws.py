"""The laws that decide which layers are recorded now: pure functions of what was counted.

No clock, no file, no chance but a seeded generator that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from critpath.schema.parameters.budget import ACCOUNT, CONTROL
from critpath_record.budget.account import Account

# Layers without which paths are as good as ever.
BESIDE: Final = frozenset({"stacks", "samples", "files"})


def share_fairly(demands: Sequence[float], total: float) -> list[float]:
    """Return max-min shares: everybody what they want, but none more than the level.

    The level is such that the shares add up to `total`, or to all demands if these are less.
    """
    level = find_level(demands, total)
    return [min(max(demand, 0.0), level) for demand in demands]


def find_level(demands: Sequence[float], total: float) -> float:
    """Return the largest share that anybody gets."""
    left = total
    wanted = sorted(max(demand, 0.0) for demand in demands)
    for number, demand in enumerate(wanted):
        level = left / (len(wanted) - number)
        if demand >= level:
            return level
        left -= demand
    return total


class Trim:
    """Takes out what the demands do not say: the level moves by what was not used or overspent.

    With a gain of 0.5 over the number of those who use all they get the error halves at every
    step, whoever they are; the level stays between an equal share, or half of what the demands
    say, and all.  What is overspent the account of all takes back besides: a burst, such as one
    long call, that also took the whole level away left most of the budget unused for seconds.
    """

    def __init__(self, total: float) -> None:
        self._total = total
        self.extra = 0.0

    def adjust(self, observed: float, demands: Sequence[float]) -> None:
        """Note the share of the last stretch."""
        level = find_level(demands, self._total)
        saturated = sum(demand >= level + self.extra for demand in demands)
        if saturated:
            step = CONTROL.gain / saturated * (self._total - observed)
            equal = self._total / max(len(demands), 1)
            least = max(equal, level / 2)
            self.extra = min(self._total, max(least, level + self.extra + step)) - level
        else:
            self.extra = 0.0

    def shares(self, demands: Sequence[float]) -> list[float]:
        """Return everybody's share."""
        level = find_level(demands, self._total) + self.extra
        return [min(max(demand, 0.0), level) for demand in demands]


@dataclass(frozen=True)
class Spent:
    """What was counted since the last poll, by place: a cpu each, or one for all."""

    now: float  # s
    passed: float  # s
    busy: Sequence[float]  # cpu time in which the place was not idle (s)
    cost: Sequence[float]  # cpu time because of recording (s), everything
    layers: Mapping[str, Sequence[float]]  # the part of it that is a layer's events


class Law(Protocol):
    """Decides which layers are open from now on; the first layer is the one others need."""

    def decide(self, spent: Spent, opened: frozenset[str]) -> frozenset[str]:
        """Return the layers to be open, given those that were until now."""

    def next_opening(self, rates: Sequence[float]) -> float:
        """Return in how many seconds something may open, by busy time per second and place."""


class Fair:
    """Accounts with fair shares: the default.

    Every place has an account of the whole budget, which has the last word; every layer has
    one of its share, refilled only while the layer that it needs is open.
    """

    def __init__(
        self,
        share: float,
        horizon: float,
        layers: Sequence[str],
        widths: Sequence[float],
        random: Random,
    ) -> None:
        self._share, self._layers, self._random = share, tuple(layers), random
        self.accounts = [Account(share, horizon, width) for width in widths]
        self._own = {
            name: [Account(share, horizon, width) for width in widths] for name in layers[1:]
        }
        self._demands = dict.fromkeys(layers, share)
        self._trim = Trim(share)
        self._since = self._busy = self._cost = 0.0
        self._opens_at = self._draw()

    def _draw(self) -> float:
        # An opening is moved by chance, 0.5 to 1.5 of the planned time.
        return self._random.uniform(CONTROL.filled / 3, CONTROL.filled)

    def wait_until_filled(self) -> None:
        """Open next with nearly all the credit that there can be."""
        self._opens_at = max(self._opens_at, CONTROL.refilled)

    def decide(self, spent: Spent, opened: frozenset[str]) -> frozenset[str]:
        """Return the layers to be open."""
        for account, busy, cost in zip(self.accounts, spent.busy, spent.cost, strict=True):
            account.note(spent.now, busy, cost)
        first = self._layers[0]
        self._learn(spent, opened)
        was = first in opened
        if was:
            self._refill(spent)
        if any(account.is_spent() for account in self.accounts):
            if was:
                self._opens_at = self._draw()
            return frozenset()
        if not was and not all(a.is_filled(self._opens_at) for a in self.accounts):
            return frozenset()
        found = {first}
        for name, accounts in self._own.items():
            part = 0.0 if name in opened else self._opens_at
            spare = CONTROL.spare if name in BESIDE else 0.0
            if not all(a.is_filled(spare) for a in self.accounts):
                continue  # what comes beside never closes what paths are made of
            if all(a.is_filled(part) and not a.is_spent() for a in accounts):
                found.add(name)
        return frozenset(found)

    def _refill(self, spent: Spent) -> None:
        """Let layers earn their shares, and spend, while what they need is open."""
        if not self._own:
            return
        shares = dict(
            zip(self._layers, self._trim.shares(list(self._demands.values())), strict=True)
        )
        # While the first is open it costs what it costs: the others' share is of that time.
        open_part = min(1.0, shares[self._layers[0]] / max(self._demands[self._layers[0]], 1e-9))
        for name, accounts in self._own.items():
            for place, account in enumerate(accounts):
                account.share = shares[name] / max(open_part, 1e-3)
                account.note(spent.now, spent.busy[place], spent.layers[name][place])

    def _learn(self, spent: Spent, opened: frozenset[str]) -> None:
        """Average what recording all of a layer would cost, and trim the level."""
        if len(self._layers) == 1:
            return
        weight = 1 - 0.5 ** (spent.passed / CONTROL.half_life)
        busy = max(sum(spent.busy), 1e-9)
        for name in opened & {*self._layers}:
            demand = sum(spent.layers[name]) / busy
            self._demands[name] += weight * (min(demand, 1.0) - self._demands[name])
        self._busy += sum(spent.busy)
        self._cost += sum(spent.cost)
        if spent.now - self._since >= CONTROL.adjust and self._busy > 0:
            self._trim.adjust(self._cost / self._busy, list(self._demands.values()))
            self._since, self._busy, self._cost = spent.now, 0.0, 0.0

    def next_opening(self, rates: Sequence[float]) -> float:
        """Return when every account will have what it opens at."""
        waits = [0.0]
        for account, rate in zip(self.accounts, rates, strict=True):
            missing = self._opens_at * account.size - account.credit
            # As busy as it was of late: a burst fills it before who reckons with silence looks.
            busy = max(rate, account.peak, ACCOUNT.idle * account.width)
            waits.append(missing / max(account.share * busy, 1e-9))
        return max(waits)


class Global:
    """The paper's global controller: open while the share since the begin is below the target."""

    def __init__(
        self,
        share: float,
        _horizon: float,
        layers: Sequence[str],
        widths: Sequence[float],
        _random: Random,
    ) -> None:
        self._share, self._layers = share, frozenset(layers)
        self._busy, self._cost = [0.0] * len(widths), [0.0] * len(widths)

    def decide(self, spent: Spent, _opened: frozenset[str]) -> frozenset[str]:
        """Open everything, or nothing."""
        for place, (busy, cost) in enumerate(zip(spent.busy, spent.cost, strict=True)):
            self._busy[place] += busy
            self._cost[place] += cost
        over = any(c > self._share * b for c, b in zip(self._cost, self._busy, strict=True))
        return frozenset() if over else self._layers

    def next_opening(self, rates: Sequence[float]) -> float:
        """Return when the share will have fallen to the target."""
        waits = [0.0]
        for busy, cost, rate in zip(self._busy, self._cost, rates, strict=True):
            waits.append((cost / self._share - busy) / max(rate, 0.01))
        return max(waits)


class Cascade:
    """The paper's cascade: a proportional controller a layer, an integral one above them.

    A layer that cost p in a stretch of tau stays closed for p/m - (tau + p), m its own target;
    every `CONTROL.adjust` seconds that becomes total/n + K (sum of errors).
    """

    def __init__(
        self,
        share: float,
        _horizon: float,
        layers: Sequence[str],
        widths: Sequence[float],
        _random: Random,
    ) -> None:
        self._share, self._layers, self._width = share, tuple(layers), sum(widths)
        self._gain = 0.1 if share < 0.41 else 0.5  # as the paper chose above 70 % of overhead
        self._errors = 0.0
        self._closed = dict.fromkeys(layers, 0.0)  # busy time for which each stays closed
        self._since = self._busy = self._cost = 0.0

    @property
    def own_share(self) -> float:
        """The target of each layer; never below a thousandth, as p/m has to be a time."""
        return max(self._share / len(self._layers) + self._gain * self._errors, 1e-3 * self._share)

    def decide(self, spent: Spent, opened: frozenset[str]) -> frozenset[str]:
        """Return the layers whose closed time is over."""
        busy = sum(spent.busy)
        self._busy += busy
        self._cost += sum(spent.cost)
        if spent.now - self._since >= CONTROL.adjust and self._busy > 0:
            self._errors += self._share - self._cost / self._busy
            self._since, self._busy, self._cost = spent.now, 0.0, 0.0
        for name in self._layers:
            self._closed[name] = max(0.0, self._closed[name] - busy)
            if name in opened:
                cost = sum(spent.layers[name])
                self._closed[name] = max(0.0, cost / self.own_share - busy)
        found = {name for name in self._layers if not self._closed[name]}
        # Details without what they are details of are worth nothing.
        return frozenset(found) if self._layers[0] in found else frozenset()

    def next_opening(self, rates: Sequence[float]) -> float:
        """Return when the first layer's closed time is over."""
        return self._closed[self._layers[0]] / max(sum(rates), 0.01)


# By the names of --controller.
CONTROLLERS: Final[
    Mapping[str, Callable[[float, float, Sequence[str], Sequence[float], Random], Law]]
] = {"fair": Fair, "global": Global, "cascade": Cascade}
