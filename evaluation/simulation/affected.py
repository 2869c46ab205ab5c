"""Whether those that have a change are told from the others: drawn work, with exact truth.

``affected.py [--repeats N] [--seed S] [--sizes N ...] [--json FILE]``: sets of 6 to 400 requests
whose work is log-normal, heavy-tailed or of two modes; 10 to 100 % of them are changed by 20 % to
ten times, half by a factor and half by a time that is added; the machine's pace differs by 2 %.
Only sets count that a test finds slower (Welch's t of logarithms, or as many beyond all before).

Columns: how often the number is exact, and within its interval; which share of those that have
the change is marked, and of the others; how wide the interval is.  *Clear*: no request without
the change takes longer than one with it, so that somebody who knew both could tell them apart.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from critpath.model import F64, Bool
from critpath.schema.parameters.cluster import MIXTURE
from critpath.stats.mixtures import Mixture, find_changed

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from results import write_results

PACE: Final = 0.02
WORK: Final = ("log-normal .1", "log-normal .3", "log-normal .6", "heavy tail", "two modes")
SIZES: Final = (6, 12, 30, 100, 400)
SHARES: Final = (0.1, 0.25, 0.4, 0.7, 1.0)
CHANGES: Final = (0.2, 0.5, 1.0, 3.0, 9.0)
_FOUND: Final = 2.6  # standard errors: as a level of 0.5 %


@dataclass(frozen=True)
class World:
    """Logarithms of the work of two sets, and who of the second has the change."""

    work: str
    share: float
    change: float
    before: F64
    after: F64
    has: Bool

    @property
    def clear(self) -> bool:
        """Whether a threshold parts those with the change from the others."""
        others = self.after[~self.has]
        return not len(others) or bool(self.after[self.has].min() > others.max())

    @property
    def found(self) -> bool:
        """Whether a test would call the second set slower."""
        many = len(self.before)
        error = np.sqrt((self.before.var(ddof=1) + self.after.var(ddof=1)) / many)
        beyond = (self.after > self.before.max()).mean()
        shift = self.after.mean() - self.before.mean()
        return bool(shift > _FOUND * error or beyond >= 0.1 + 1 / many)


def draw_work(rng: np.random.Generator, work: str, n: int) -> F64:
    """Draw how long requests take."""
    if work == "heavy tail":
        hiccup = np.where(rng.random(n) < 0.05, rng.lognormal(1.5, 0.5, n), 1.0)
        return np.asarray(rng.lognormal(0, 0.2, n) * hiccup, np.float64)
    if work == "two modes":
        return np.asarray(rng.lognormal(0, 0.15, n) * np.where(rng.random(n) < 0.4, 4, 1))
    return rng.lognormal(0, float(work.split()[1]), n)


def draw_world(seed: list[int], work: str, size: int, share: float, change: float) -> World:
    """Draw a world; its change is a factor or a time that is added, by the last of the seed."""
    rng = np.random.default_rng(seed)
    before = draw_work(rng, work, size)
    after = draw_work(rng, work, size) * np.exp(rng.normal(0, PACE))
    has = np.zeros(size, np.bool_)
    has[rng.permutation(size)[: max(1, round(share * size))]] = True
    if seed[-1] % 2:
        after[has] *= 1 + change
    else:
        after[has] += change * np.median(before) * rng.lognormal(0, 0.2, int(has.sum()))
    return World(work, share, change, np.log(before), np.log(after), has)


def draw_worlds(seed: int, repeats: int, sizes: Sequence[int] = SIZES) -> Iterator[World]:
    """Draw worlds of every kind that a test would find."""
    number = 0
    for work in WORK:
        for size in sizes:
            for share in SHARES:
                for change in CHANGES:
                    for each in range(repeats):
                        number += 1
                        world = draw_world([seed, number, each], work, size, share, change)
                        if world.found:
                            yield world


@dataclass
class Tally:
    """What came of some worlds."""

    worlds: int = 0
    exact: int = 0
    within: int = 0
    changed: int = 0
    marked: int = 0
    others: int = 0
    wrong: int = 0
    width: int = 0

    def add(self, world: World, found: Mixture) -> None:
        """Count one."""
        marks, truth = found.posterior > 0.5, int(world.has.sum())
        self.worlds += 1
        self.exact += found.marked == truth
        self.within += found.low <= truth <= found.high
        self.changed += truth
        self.marked += int((marks & world.has).sum())
        self.others += int((~world.has).sum())
        self.wrong += int((marks & ~world.has).sum())
        self.width += found.high - found.low

    def row(self, name: str) -> dict[str, str]:
        """Return the row of a table."""
        return {
            "worlds": f"{name} ({self.worlds})",
            "exact": f"{self.exact / self.worlds:.0%}",
            "within the interval": f"{self.within / self.worlds:.1%}",
            "changed, marked": f"{self.marked / self.changed:.1%}",
            "others, marked": f"{self.wrong / self.others:.1%}" if self.others else "-",
            "width": f"{self.width / self.worlds:.1f}",
        }


def tally_worlds(worlds: Iterable[World]) -> dict[str, Tally]:
    """Count what comes of worlds, in all and by kinds of them."""
    by: dict[str, Callable[[World], object]] = {
        "work": lambda world: world.work,
        "size": lambda world: len(world.after),
        "share": lambda world: world.share,
        "change": lambda world: world.change,
    }
    found: defaultdict[str, Tally] = defaultdict(Tally)
    for world in worlds:
        of = "clear" if world.clear else "not clear"
        who = find_changed(world.before, world.after, pace=MIXTURE.pace, none=0.0)
        for name in ("all", of, *(f"{of}, {name} {get(world)}" for name, get in by.items())):
            found[name].add(world, who)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = tally_worlds(draw_worlds(given.seed, given.repeats, given.sizes))
    rows = [tally.row(name) for name, tally in sorted(found.items())]
    print("| " + " | ".join(rows[0]) + " |\n" + "|---" * len(rows[0]) + "|")
    for row in rows:
        print("| " + " | ".join(row.values()) + " |")
    if given.json:
        write_results(given.json, rows)


if __name__ == "__main__":
    main()
