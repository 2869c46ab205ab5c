"""Which executions are recorded whole, and how wrong their mean is: by what they are chosen.

Executions, 60 a second: 99 % of kind A (mean 5 ms), 1 % of kind B (40 ms), both
log-normal.  ``python evaluation/simulation/whole_executions.py`` prints the figures of
docs/overhead.md.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from critpath_record.budget.account import share_of
from critpath_record.budget.selection import Kinds

MEANS: Final = {"A": 0.005, "B": 0.040}  # s
RARE: Final = 0.01
RATE: Final = 60.0
SIGMA: Final = 0.8
COST: Final = 0.2  # of a recorded execution's time


@dataclass(frozen=True)
class Execution:
    """One execution (s)."""

    kind: str
    begin: float
    end: float

    @property
    def took(self) -> float:
        """How long it lasted."""
        return self.end - self.begin


def draw_executions(random: Random, seconds: float, sigma: float = SIGMA) -> list[Execution]:
    """Draw executions that begin by chance and may overlap."""
    found, now = [], 0.0
    while (now := now + random.expovariate(RATE)) < seconds:
        kind = "B" if random.random() < RARE else "A"
        took = random.lognormvariate(math.log(MEANS[kind]) - sigma**2 / 2, sigma)
        found.append(Execution(kind, now, now + took))
    return found


def record_windows(all_of: list[Execution], random: Random, length: float) -> list[Execution]:
    """Return those that lie whole in windows which are open for a tenth of the time."""
    kept = []
    offset = random.random() * 10 * length
    for one in all_of:
        begin = (one.begin + offset) % (10 * length)
        if begin + one.took <= length:
            kept.append(one)
    return kept


def record_begun(all_of: list[Execution], random: Random, length: float) -> list[Execution]:
    """Return those that begin in such windows, which stay open until they end."""
    offset = random.random() * 10 * length
    return [one for one in all_of if (one.begin + offset) % (10 * length) < length]


def record_by_kind(
    all_of: list[Execution], random: Random, overhead: float = 0.03
) -> list[tuple[Execution, float]]:
    """Return those that `Kinds` chooses, with their chances; the machine is always busy."""
    share = share_of(overhead)
    kinds = Kinds(share, random.randrange(1 << 30))
    kept, cost, last = [], 0.0, 0.0
    for one in all_of:
        kinds.note({one.kind: 1}, one.begin - last)
        last = one.begin
        taken, chance = kinds.toss(one.kind, share * one.begin - cost)
        if taken:
            kept.append((one, chance))
            cost += COST * one.took
            kinds.note_cost({one.kind: 1}, COST * one.took)
    return kept


def _row(
    name: str, choose: Callable[[list[Execution], Random], list[Execution]], repeats: int
) -> str:
    whole: dict[str, list[float]] = {"A": [], "B": []}
    bias: dict[str, list[float]] = {"A": [], "B": []}
    random = Random(7)  # noqa: S311 - drawn
    for _ in range(repeats):
        everything = draw_executions(random, 600.0)
        kept = choose(everything, random)
        for kind in MEANS:
            ours = [one.took for one in kept if one.kind == kind]
            every = [one.took for one in everything if one.kind == kind]
            whole[kind].append(len(ours) / len(every))
            if ours:
                bias[kind].append(statistics.fmean(ours) / statistics.fmean(every) - 1)
    parts = [f"{100 * statistics.fmean(whole[kind]):.1f} %" for kind in MEANS]
    wrong = [f"{100 * statistics.fmean(bias[kind]):+.1f} %" for kind in MEANS]
    return f"| {name} | {' | '.join(parts)} | {' / '.join(wrong)} |"


def main(repeats: int = 20) -> None:
    """Print how many are recorded whole and how wrong their mean is, by how they are chosen."""
    print("| chosen by | whole A | whole B | mean of those recorded, A / B |")
    print("|---|---:|---:|---:|")
    for length in (0.01, 0.1, 1.0):
        print(
            _row(
                f"windows of {1000 * length:g} ms",
                lambda a, r, n=length: record_windows(a, r, n),
                repeats,
            )
        )
    print(_row("begun in a window of 10 ms", lambda a, r: record_begun(a, r, 0.01), repeats))
    print(_row("kind, with a coin", lambda a, r: [one for one, _ in record_by_kind(a, r)], repeats))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
