"""From counts to open and closed layers: charges everything, asks the law, says when to look again.

The same code runs in the recorder and in the simulation: it reads no clock and opens no file.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import lt
from random import Random
from typing import Final

from critpath.schema.parameters.budget import ACCOUNT, CONTROL
from critpath_record.budget.account import SLOTS, Account, overhead_of, share_of
from critpath_record.budget.laws import BESIDE, CONTROLLERS, Fair, Law, Spent

BUSIEST, MACHINE, COMMAND = "busiest", "machine", "command"
PLACES: Final = (BUSIEST, MACHINE, COMMAND)

SOFT, TRACING_ON, OFF = "soft", "tracing_on", "off"
TRACKER: Final = "tracker"  # of LTTng: which processes a session follows

# s between two polls.  While closed never so short that looking costs what is to be saved.


@dataclass(frozen=True)
class Costs:
    """What recording costs here."""

    events: Mapping[str, float]  # ns of a recorded event, by layer
    # ns of an event that meets a closed gate, by layer and state
    closed: Mapping[str, Mapping[str, float]]
    gate: float = 30e-6  # s of cpu time to close and open softly
    off: float = 0.003  # s of cpu time to take events off and on again, of all cpus together
    interval: float = 0.0  # half of the 95 % interval of `events`, as a share of it
    measured: bool = True  # false where upper values of a table are taken
    seconds: float = 0.0  # what measuring took (s of cpu time)


@dataclass(frozen=True)
class Budget:
    """What was asked for: see `critpath record --overhead`."""

    overhead: float
    horizon: float
    controller: str = "fair"
    of: str = BUSIEST
    calibrate: str = "auto"

    @property
    def share(self) -> float:
        """The part of busy time that recording may cost."""
        return share_of(self.overhead)


@dataclass(frozen=True)
class Reading:
    """What was counted since the last poll."""

    now: float  # s
    busy: Sequence[float]  # of each cpu (s)
    events: Mapping[str, Sequence[int]]  # events recorded, by layer and cpu
    own: float = 0.0  # cpu time of the recorder's own threads (s)
    command: float = 0.0  # cpu time of the command's processes (s)
    # How long everything was open since (s), where others open and close it meanwhile
    opened: float | None = None


@dataclass(frozen=True)
class Decision:
    """Which layers are open from now on, whether the others are off, and when to look again (s).

    Something may open then, if it is expected.
    """

    open: frozenset[str]
    off: bool
    wait: float
    expected: bool = False


@dataclass
class Tally:
    """Sums over a recording, by cpu where they are of one (s)."""

    cpus: int
    busy: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    command: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    worst: float = 0.0
    worst_cpu: int = 0
    begun: float = 0.0
    last: float = 0.0
    # Slots of a tenth of a horizon: busy and cost of each cpu.
    _slots: deque[tuple[list[float], list[float]]] = field(default_factory=deque)
    _slot: int = -1

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self.busy, self.cost = [0.0] * self.cpus, [0.0] * self.cpus

    def add(self, now: float, horizon: float, busy: Sequence[float], cost: Sequence[float]) -> None:
        """Add what was counted, and look at the horizon that ends here."""
        self.begun, self.last = self.begun or now, now
        slot = int(now * SLOTS / horizon)
        if slot != self._slot or not self._slots:
            if len(self._slots) == SLOTS:
                self._look(horizon)
                self._slots.popleft()
            self._slots.append(([0.0] * self.cpus, [0.0] * self.cpus))
            self._slot = slot
        for sums, new in zip((self.busy, self.cost), (busy, cost), strict=True):
            for cpu, value in enumerate(new):
                sums[cpu] += value
        for sums, new in zip(self._slots[-1], (busy, cost), strict=True):
            for cpu, value in enumerate(new):
                sums[cpu] += value

    def _look(self, horizon: float) -> None:
        for cpu in range(self.cpus):
            busy = sum(slot[0][cpu] for slot in self._slots)
            cost = sum(slot[1][cpu] for slot in self._slots)
            if busy > ACCOUNT.idle * horizon and cost / busy > self.worst:
                self.worst, self.worst_cpu = cost / busy, cpu

    def share(self, of: str) -> float:
        """Return cost over busy time."""
        if of == COMMAND:
            return sum(self.cost) / self.command if self.command > 0 else 0.0
        if of == MACHINE:
            return sum(self.cost) / max(sum(self.busy), 1e-9)
        return max((share for share, _ in self.shares()), default=0.0)

    def shares(self) -> list[tuple[float, int]]:
        """Return the share of every cpu that was busy for long enough, and which it is.

        That is `ACCOUNT.idle` of the recording, as it is of a horizon; the busiest always counts.
        """
        least = min(ACCOUNT.idle * (self.last - self.begun), max(self.busy, default=0.0) / 2)
        return [
            (cost / busy, cpu)
            for cpu, (cost, busy) in enumerate(zip(self.cost, self.busy, strict=True))
            if busy > least
        ]


class Rates:
    """Events of a layer per second of work, by cpu, while it was open.

    Of work, as what recording takes of busy time is missing to the program: behind a closed gate
    it does more, and meets more.  The greater of two counts.  One is an average over busy time that
    is long, as that comes in ticks, later than what was counted; it does not forget a burst when
    quiet time is recorded.  The other is of what was just read: where a quiet program becomes busy
    it follows at once.
    """

    def __init__(self, cpus: int) -> None:
        self.rates = [0.0] * cpus
        self._sums = [(0.0, 0.0, 0.0)] * cpus  # events, busy time and its part for recording (s)

    def note(
        self,
        passed: float,
        part: float,
        counts: Sequence[int],
        busy: Sequence[float],
        cost: Sequence[float],
    ) -> None:
        """Add what was counted in so much time (s), of which it was open for a part."""
        for cpu, (count, had, paid) in enumerate(zip(counts, busy, cost, strict=True)):
            kept = max(0.0, 1 - part * had / CONTROL.usual)
            events, time, spent = self._sums[cpu]
            events, time, spent = (
                kept * events + count,
                kept * time + part * had,
                kept * spent + paid,
            )
            self._sums[cpu] = events, time, spent
            just = part * (min(had, passed) or passed)
            self.rates[cpu] = max(_rate(events, time, spent), _rate(count, just, paid))


def _rate(events: float, time: float, spent: float) -> float:
    return events / max(time - spent, CONTROL.least_work * time) if time > 0 else 0.0


class Lasting:
    """Whether layers may be open all the time: the last word has an account of their own.

    What is closed has to fit more easily than what is open, or it would go on and off: what it
    would cost is known of the times in which it was open.
    """

    def __init__(self, budget: Budget, widths: Sequence[float]) -> None:
        begin, go_on = (part * budget.share for part in CONTROL.lasting)
        self._most, self._horizon = begin, budget.horizon
        self._accounts = [Account(go_on, budget.horizon, width) for width in widths]
        self._sums = [(0.0, 0.0)] * len(widths)  # busy time and cost while open, fading
        self.fits = True

    def note(self, spent: Spent, cost: Sequence[float], *, is_open: bool) -> None:
        """Add what was counted."""
        for account, busy, paid in zip(self._accounts, spent.busy, cost, strict=True):
            account.note(spent.now, busy, paid)
        if is_open:
            kept = math.exp(-spent.passed / self._horizon)
            self._sums = [
                (kept * b + more, kept * c + new)
                for (b, c), more, new in zip(self._sums, spent.busy, cost, strict=True)
            ]
        if self.fits:
            self.fits = not any(account.is_spent() for account in self._accounts)
        else:
            least = ACCOUNT.idle * self._horizon
            demand = max(cost / max(busy, least) for busy, cost in self._sums)
            self.fits = demand <= self._most and all(a.is_filled(0.5) for a in self._accounts)


class Control:
    """Decides, poll by poll.

    `layers` are in order: the first is the one that others need.  Those that are `lasting` are open
    all the time while the budget allows it, and with the first one else.  Of what the recorder's
    own threads take `free` of a cpu is not charged where nobody else wants the cpus.
    """

    def __init__(
        self,
        budget: Budget,
        costs: Costs,
        layers: Sequence[str],
        cpus: int,
        seed: int,
        *,
        lasting: Collection[str] = (),
        free: float = 0.0,
    ) -> None:
        self.budget, self.costs, self.layers = budget, costs, tuple(layers)
        self.lasting = self.pinned = frozenset(lasting)  # and those that are open all the time now
        self._free, self._forgiven = free, 0.0
        self.paid = CONTROL.paid  # of what may be spent, for what was spent before
        self.kappa = CONTROL.kappa
        self.held = False  # somebody else decides, and says so by `force`
        self.spent = Spent(0.0, 0.0, [0.0] * cpus, [0.0] * cpus, {})  # since the poll before
        self.opened = self.events_cost = 0.0  # s that it was open, and what was recorded then
        self.shortest, self.longest = (
            CONTROL.shortest,
            CONTROL.open,
        )  # s between two polls while open
        self.closed = CONTROL.closed  # the same while closed
        self.tally = Tally(cpus)
        widths = [1.0] * cpus if budget.of == BUSIEST else [float(cpus)]
        self._lasting = Lasting(budget, widths)
        make = CONTROLLERS[budget.controller]
        self.law: Law = make(
            budget.share,
            budget.horizon,
            [name for name in self.layers if name not in self.lasting],
            widths,
            Random(seed),  # noqa: S311 - a coin
        )
        self._open: frozenset[str] = frozenset()
        self._off = False
        self._state = dict.fromkeys(layers, SOFT)
        self._rates = {name: Rates(cpus) for name in layers}
        self._cost_rates = [0.0] * len(widths)  # of each place
        self._busy_rates = [0.0] * cpus
        self._last: float | None = None
        self._extra = 0.0  # of calls since the last poll (s)
        self._recent = [0.0] * cpus  # busy time, of about a slot of the tally
        self._owed: dict[str, float] = {}  # of what was spent before this began (s)

    def set_state(self, layer: str, state: str) -> None:
        """Say how a layer's gate is closed where it is not off."""
        self._state[layer] = state

    def force(self, opened: frozenset[str]) -> None:
        """Say what is open, where somebody else decides."""
        if opened != self._open:
            self.charge("gate", self.costs.gate / 2)
            self._open, self._off = opened, False

    def balance(self) -> float:
        """Return what may still be spent, of the place where that is least (s)."""
        tally, share = self.tally, self.budget.share
        if self.budget.of == BUSIEST:
            least = ACCOUNT.idle * max(tally.busy, default=0.0)
            pairs = [(b, c) for b, c in zip(tally.busy, tally.cost, strict=True) if b >= least]
            return min((share * b - c for b, c in pairs), default=0.0) - self.owed
        busy = sum(tally.busy) if self.budget.of == MACHINE else tally.command
        return share * busy - sum(tally.cost) - self.owed

    def charge(self, part: str, seconds: float) -> None:
        """Charge cpu time that no count tells of."""
        self._extra += seconds
        self.tally.parts[part] = self.tally.parts.get(part, 0.0) + seconds

    def owe(self, part: str, seconds: float) -> None:
        """Charge cpu time that was spent before the first poll, in parts that the budget allows.

        No horizon of the recording holds it: in one piece it would be charged to the first one,
        and a cpu that is nearly idle would keep the gates closed for seconds to earn it.
        """
        self._owed[part] = self._owed.get(part, 0.0) + seconds

    @property
    def owed(self) -> float:
        """What was spent before the first poll and is not charged yet (s)."""
        return sum(self._owed.values())

    def settle(self) -> None:
        """Charge all that is left at the end: there is no more time to spread it over."""
        self._pay(self.owed)
        beside, self._extra = self._extra, 0.0
        for cpu, weight in enumerate(self._split_own(self.tally.busy)):
            self.tally.cost[cpu] += beside * weight

    def _pay(self, most: float) -> None:
        for part, seconds in [*self._owed.items()]:
            paid = min(seconds, most)
            most -= paid
            self.charge(part, paid)
            self._owed[part] -= paid
            if self._owed[part] <= 0:
                del self._owed[part]

    def step(self, reading: Reading) -> Decision:
        """Charge what was counted and decide what is open from now on."""
        passed = 0.0 if self._last is None else max(0.0, reading.now - self._last)
        self._last = reading.now
        layers = self._charge_layers(reading, passed)
        cpus = self.tally.cpus
        self.charge("controller", reading.own)
        if self._owed:
            self._pay(self.paid * self.budget.share * sum(reading.busy))
        kept = max(0.0, 1 - passed * SLOTS / self.budget.horizon)
        self._recent = [kept * b + a for a, b in zip(reading.busy, self._recent, strict=True)]
        if self._free:
            self._forgive(passed)
        beside, self._extra = self._extra, 0.0
        parts = self._split_own(self._recent)
        cost = [sum(of[cpu] for of in layers.values()) + beside * parts[cpu] for cpu in range(cpus)]
        self.tally.add(reading.now, self.budget.horizon, reading.busy, cost)
        self.tally.command += reading.command
        if passed > 0:
            weight = min(1.0, passed / CONTROL.old)
            for cpu, busy in enumerate(reading.busy):
                rate = min(1.0, busy / passed)
                self._busy_rates[cpu] += weight * (rate - self._busy_rates[cpu])
        self.spent = self._sum_places(reading, passed, cost, layers)
        if passed > 0 and self._is_window:
            for place, spent in enumerate(self.spent.cost):
                change = spent / passed - self._cost_rates[place]
                self._cost_rates[place] += max(weight, 0.5 if change > 0 else weight) * change
        opened = self.law.decide(self.spent, self._open)
        if self.lasting:
            opened |= self._find_lasting(opened)
        if self.held:
            return Decision(self._open, self._off, CONTROL.open if self._open else self.closed[1])
        return self._decide(opened)

    @property
    def _is_window(self) -> bool:
        """Whether what others need is open."""
        return self.layers[0] in self._open

    def _forgive(self, passed: float) -> None:
        """Charge nothing for what nobody else would have had the cpus for."""
        span = max(passed, self.budget.horizon / SLOTS)
        idle = max(0.0, 1 - sum(self._recent) / (span * self.tally.cpus))
        # Some of it is charged once a second.
        self._forgiven = min(self._forgiven + self._free * passed * idle, 2 * self._free)
        forgiven = min(self._forgiven, self._extra)
        self._forgiven, self._extra = self._forgiven - forgiven, self._extra - forgiven

    def _find_lasting(self, opened: frozenset[str]) -> frozenset[str]:
        """Return which lasting layers are open from now on, if these layers are."""
        layers = self.spent.layers
        cost = [sum(of) for of in zip(*(layers[name] for name in self.lasting), strict=True)]
        self._lasting.note(self.spent, cost, is_open=self.lasting <= self._open)
        self.pinned = self.lasting if self._lasting.fits else frozenset()
        return self.lasting if self.pinned or self.layers[0] in opened else frozenset()

    @staticmethod
    def _split_own(busy: Sequence[float]) -> list[float]:
        """Return each cpu's part of what the recorder's threads had, which run where they may.

        By how busy a cpu is at that time: a nearly idle one had little of it.  In equal parts, or
        by what it did long ago, it would owe more than it can earn and keep the gate closed for
        all.
        """
        weights = [max(b, ACCOUNT.idle * max(busy), 1e-9) for b in busy]
        total = sum(weights)
        return [weight / total for weight in weights]

    def _sum_places(
        self,
        reading: Reading,
        passed: float,
        cost: Sequence[float],
        layers: Mapping[str, Sequence[float]],
    ) -> Spent:
        if self.budget.of == BUSIEST:
            return Spent(reading.now, passed, reading.busy, cost, layers)
        busy = sum(reading.busy) if self.budget.of == MACHINE else reading.command
        sums = {name: [sum(of)] for name, of in layers.items()}
        return Spent(reading.now, passed, [busy], [sum(cost)], sums)

    def _charge_layers(self, reading: Reading, passed: float) -> dict[str, list[float]]:
        """Return what each layer cost on each cpu, recorded or met by a closed gate."""
        parts = self.tally.parts
        self.opened = passed if self._is_window else 0.0
        if reading.opened is not None:
            self.opened = min(reading.opened, passed)
        found = {
            name: [self.kappa * self.costs.events[name] * 1e-9 * n for n in reading.events[name]]
            for name in self.layers
        }
        recorded = [sum(of) for of in zip(*found.values(), strict=True)]
        # What lasts is there before an opening, too: what comes with that is compared.
        self.events_cost = sum(sum(of) for name, of in found.items() if name not in self.pinned)
        parts["events"] = parts.get("events", 0.0) + sum(recorded)
        shares = self._residuals() if not self._off else {}
        spent = [1 + sum(of) for of in zip(*shares.values(), strict=True)]
        for name, cost in found.items():
            part = 1.0 if name in self._open else 0.0
            if reading.opened is not None and passed > 0:
                part = self.opened / passed
            if part > 0:
                self._rates[name].note(passed, part, reading.events[name], reading.busy, recorded)
            if part < 1 and name in shares:
                rows = zip(shares[name], reading.busy, spent, strict=True)
                met = [(1 - part) * share * busy / all_of for share, busy, all_of in rows]
                parts["residual"] = parts.get("residual", 0.0) + sum(met)
                found[name] = [one + more for one, more in zip(cost, met, strict=True)]
        return found

    def _decide(self, opened: frozenset[str]) -> Decision:
        first = self.layers[0]
        was_off = self._off
        if first in self._open and first not in opened:
            self._off = self._is_off_worth()
            if self._off and isinstance(self.law, Fair):
                # To be on again costs a part of the credit: then there be as much as there can.
                self.law.wait_until_filled()
        if first in opened:
            self._off = False
        if opened != self._open:
            self.charge("gate", self.costs.gate / 2)
        if was_off != self._off:
            self.charge("gate", self.costs.off / 2)
        self._open = opened
        is_open = self._is_window
        wait = self.time_to_spend() if is_open else self.law.next_opening(self._place_rates())
        low, high = (self.shortest, self.longest) if is_open else self.closed
        expected = not is_open and wait <= high
        return Decision(opened, self._off, min(max(wait, low), high), expected)

    def _is_off_worth(self) -> bool:
        """Return whether closed gates would cost more, until credit is there, than to be off."""
        share = self.budget.share
        residual: float = max(sum(of) for of in zip(*self._residuals().values(), strict=True))
        if not share / CONTROL.residual < residual < share:
            return residual >= share
        # While it is earned.
        return residual * self.room()[1] / (share - residual) > self.costs.off

    def _residuals(self) -> dict[str, list[float]]:
        """Return what a closed gate costs, over the time of work, by layer and cpu."""
        found = {}
        for name in (n for n in self.layers if n not in self.pinned):
            each = self.costs.closed[name][self._state[name]] * 1e-9
            found[name] = [each * rate for rate in self._rates[name].rates]
        return found

    def _place_rates(self) -> list[float]:
        if self.budget.of == BUSIEST:
            return self._busy_rates
        return [sum(self._busy_rates)]

    def room(self) -> tuple[float, float, int]:
        """Return what may be spent at once, the most that it can be (s), and of which place."""
        if not isinstance(self.law, Fair):
            return self.balance(), self.budget.share * self.budget.horizon / 4, 0
        accounts = self.law.accounts
        place = min(range(len(accounts)), key=lambda at: accounts[at].credit / accounts[at].size)
        return accounts[place].credit, accounts[place].size, place

    def time_to_spend(self) -> float:
        """Return in how many seconds the credit is spent, at the rate seen."""
        if not isinstance(self.law, Fair):
            return 0.005
        # Of each place by its own rate: an idle cpu can spend little, and does.  To look more
        # often than this costs more than it would save.
        pairs = zip(self.law.accounts, self._cost_rates, strict=True)
        waits = [max(of.credit, of.size * CONTROL.least) / rate for of, rate in pairs if rate > 0]
        return min(waits, default=self.longest)

    def is_idle(self) -> bool:
        """Return whether no place is busy enough to be judged by its share."""
        return isinstance(self.law, Fair) and all(a.is_idle for a in self.law.accounts)

    def may_wait(self, events: Mapping[str, Sequence[int]]) -> bool:
        """Return whether so few events since the last step leave nothing to decide yet.

        A step costs several times what looking at the counts does.
        """
        weights, limits = self.may_spend()
        each = [
            sum(events[name][cpu] * weights[name] for name in weights)
            for cpu in range(self.tally.cpus)
        ]
        costs = each if self.budget.of == BUSIEST else [sum(each)]
        return bool(limits) and all(map(lt, costs, limits))

    def may_spend(self) -> tuple[dict[str, float], list[float]]:
        """Return what an event of each layer is charged, and how much may be before a decision (s).

        Of each cpu, or of all; nothing where there is something to decide in any case.
        """
        known = {*self.layers} - BESIDE
        if self.held or not isinstance(self.law, Fair) or not known <= self._open:
            return {}, []
        weights = {name: 1e-9 * self.kappa * self.costs.events[name] for name in self.layers}
        return weights, [CONTROL.few * account.credit for account in self.law.accounts]

    def counted(self, of: str = "") -> float:
        """Return the overhead that was counted."""
        return overhead_of(self.tally.share(of or self.budget.of))

    def summarize(self) -> dict[str, object]:
        """Return what a manifest says of the budget: `used` is what was counted of it."""
        budget, tally, costs = self.budget, self.tally, self.costs
        worst = max(tally.shares(), default=(0.0, 0))
        counted = self.counted()
        return {
            "target": budget.overhead,
            "horizon": budget.horizon,
            "of": budget.of,
            "controller": budget.controller,
            "counted": round(counted, 6),
            "used": round(counted / budget.overhead, 4),
            # What is charged at the end is in no horizon, nor is all of what is shorter than one.
            "worst_horizon": round(max(overhead_of(tally.worst), counted), 6),
            "worst_cpu": {"cpu": worst[1], "overhead": round(overhead_of(worst[0]), 6)},
            "busiest": round(self.counted(BUSIEST), 6),
            "machine": round(self.counted(MACHINE), 6),
            "kappa": self.kappa,
            "cost": {name: round(value, 6) for name, value in sorted(tally.parts.items())},
            "interval": round(costs.interval, 4),
            "measured": costs.measured,
        }
