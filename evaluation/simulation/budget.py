"""The whole loop of recording under a budget, simulated, with everything charged.

The plant has one cpu: a load says how many events happen in a second and what one truly costs.
The controller sees counts and what it believes an event costs; the simulation sums what is
true.  ``python evaluation/simulation/budget.py`` prints a table of all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from critpath_record.budget.account import overhead_of
from critpath_record.budget.control import SOFT, TRACING_ON, Budget, Control, Costs, Reading

NS: Final = 258.0
RESIDUAL: Final = 20.0
STEP: Final = 0.0005  # s
VOLUME: Final = 2500  # events after which the drain wakes the controller
TARGETS: Final = (0.01, 0.02, 0.05, 0.10, 0.20)

COSTS: Final = Costs(
    events={"base": NS}, closed={"base": {SOFT: RESIDUAL, TRACING_ON: 75.0}}, off=0.0024
)

# Events a second at a time, and the factor of what each costs.
Load = Callable[[float], tuple[float, float]]

LOADS: Final[dict[str, Load]] = {
    "steady, 200 k ev/s": lambda _: (2e5, 1.0),
    "hot, 2.1 M ev/s": lambda _: (2.1e6, 1.0),
    "bursts, 0.13 of every 0.4 s": lambda t: (2.1e6 if t % 0.4 < 0.13 else 0.0, 1.0),
    "ramp to 2 M ev/s in 20 s": lambda t: (1e5 * min(t, 20.0), 1.0),
    "true ns x2.5 every 4 s": lambda t: (1e6, 2.5 if int(t / 4) % 2 else 1.0),
    "20 s quiet, then hot": lambda t: (2.1e6 if t > 20 else 2e3, 1.0),
}


@dataclass(frozen=True)
class Outcome:
    """Overheads of a simulated recording: all, the second half, worst second, worst 10 s.

    `counted` is what the controller believes of all.
    """

    observed: float
    counted: float
    second_half: float
    worst_second: float
    worst_ten: float
    polls: float


def simulate(
    load: Load,
    overhead: float,
    controller: str = "fair",
    *,
    seconds: float = 60.0,
    seed: int = 1,
    kappa: float | None = None,
    late: Callable[[], float] = lambda: 0.0,
    idle_before: float = 0.0,
) -> Outcome:
    """Run one recording; `late` says how much later (s) than asked for each poll comes."""
    horizon = 10.0 if overhead < 0.02 else 1.0
    control = Control(Budget(overhead, horizon, controller), COSTS, ["base"], 1, seed)
    adapt = kappa is None
    control.kappa = kappa or 1.0
    opened: frozenset[str] = frozenset()
    off = False
    counted = busy_new = 0.0
    slots: list[tuple[float, float]] = []
    slot = [0.0, 0.0]
    now, due, polls = 0.0, 0.0, 0
    true_events = believed = 0.0
    while now < seconds:
        rate, factor = load(now)
        quiet = now < idle_before or rate < 1e4
        happening = rate * STEP
        # What is spent on recording is not spent on work: events come with work.
        if "base" in opened:
            each = NS * factor * 1e-9
            part = 1 / (1 + rate * each)
            counted += happening * part
            cost_new = happening * part * each
            true_events += cost_new
            believed += happening * part * NS * 1e-9
        else:
            each = 0.0 if off else RESIDUAL * 1e-9
            part = 1 / (1 + rate * each)
            cost_new = happening * part * each
        busy = 0.03 * STEP if quiet else STEP
        busy_new += busy
        slot[0] += busy
        slot[1] += cost_new
        now += STEP
        if now >= due or counted >= VOLUME:
            polls += 1
            poll_cost = 15e-6
            if adapt and believed > 0.5 * NS * 1e-9 * 1e5:
                control.kappa += 0.02 * (true_events / believed - control.kappa)
                true_events *= 0.9
                believed *= 0.9
            decision = control.step(
                Reading(now, [busy_new], {"base": [int(counted)]}, own=poll_cost)
            )
            if decision.open != opened:
                poll_cost += COSTS.gate / 2
            if decision.off != off:
                poll_cost += COSTS.off / 2
            counted = busy_new = 0.0
            opened, off = decision.open, decision.off
            due = now + decision.wait + late()
            slot[1] += poll_cost
        if len(slots) < int(now * 10):
            slots.append((slot[0], slot[1]))
            slot = [0.0, 0.0]
        half = len(slots) // 2
    return Outcome(
        _overhead(slots),
        control.counted(),
        _overhead(slots[half:]),
        _worst(slots, 10),
        _worst(slots, 100),
        polls / seconds,
    )


def _overhead(slots: list[tuple[float, float]]) -> float:
    busy, cost = (sum(column) for column in zip(*slots, strict=True))
    return overhead_of(cost / max(busy, 1e-9))


def _worst(slots: list[tuple[float, float]], length: int) -> float:
    found = 0.0
    for at in range(len(slots) - length + 1):
        part = slots[at : at + length]
        if sum(busy for busy, _ in part) > 0.05 * 0.1 * length:
            found = max(found, _overhead(part))
    return found


def main() -> None:
    """Print observed overhead, worst second and worst 10 s of every load and target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("controllers", nargs="*", default=["fair"])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each recording")
    given = parser.parse_args()
    for controller in given.controllers:
        print(f"{controller}: observed %, worst second and worst 10 s as multiples of the target")
        for name, load in LOADS.items():
            row = []
            for target in TARGETS:
                got = simulate(load, target, controller, seconds=given.seconds)
                observed = got.second_half if "quiet" in name else got.observed
                row.append(
                    f"{100 * observed:5.2f}, {got.worst_second / target:.1f},"
                    f" {got.worst_ten / target:.1f}"
                )
            print(f"{name:28s} " + " | ".join(row))


if __name__ == "__main__":
    main()
