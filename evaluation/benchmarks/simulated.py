"""Families of program paths with their true alignment, drawn from a seed.

A path is straight code (motifs of 4 to 16 states) and, in ``loop`` families, about as
many states in tandem loops (a motif of 2 to 6 states, 2 to 25 iterations).  It changes
by substitutions and by insertions and deletions of one state or a few; in loop families
60 % of the latter copy or delete a whole iteration.  Every state carries the number of
its column, which copies of a path share and insertions draw anew, so that the true
alignment falls out.  Two histories:

- ``star``: every row is changed from the one template, independently;
- ``tree``: rows are the leaves of a coalescent tree of depth 1 and share what happened
  on shared branches.  This is the generator that the specification describes for
  msa-bench, with seeds of its own; parameters were tuned on it, never on msa-bench.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np

LETTERS = 12
SUBSTITUTIONS = {"low": 0.05, "mid": 0.15, "high": 0.30}
INDELS = {"low": 0.01, "mid": 0.03, "high": 0.06}


@dataclass(frozen=True)
class Site:
    """One state of a path: letter, column, and which iteration of which loop it is in."""

    letter: int
    column: int
    iteration: int = -1


@dataclass(frozen=True, eq=False)
class Family:
    """Rows and the column of every state in the true alignment."""

    name: str
    sequences: list[np.ndarray]
    columns: list[list[int]]


class Simulator:
    """Draws paths and changes them."""

    def __init__(self, seed: int, *, loops: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.loops = loops
        self.column = count()
        self.iteration = count()
        self.background = self.rng.dirichlet(np.full(LETTERS, 3.0))

    def letter(self, but: int = -1) -> int:
        while True:
            drawn = int(self.rng.choice(LETTERS, p=self.background))
            if drawn != but:
                return drawn

    def motif(self, length: int) -> list[int]:
        result: list[int] = []
        for _ in range(length):
            result.append(self.letter(result[-1] if result else -1))
        return result

    def template(self, length: int) -> list[Site]:
        path: list[Site] = []
        looped = 0
        while len(path) < length:
            if self.loops and looped * 2 <= len(path):
                motif = self.motif(int(self.rng.integers(2, 7)))
                for _ in range(min(2 + int(self.rng.geometric(0.2)), 25)):
                    number = next(self.iteration)
                    path += [Site(x, next(self.column), number) for x in motif]
                    looped += len(motif)
            else:
                motif = self.motif(int(self.rng.integers(4, 17)))
                path += [Site(x, next(self.column)) for x in motif]
        return path

    def change(self, path: list[Site], substitutions: float, indels: float) -> list[Site]:
        """Return a changed path; rates are events a state."""
        path = list(path)
        events = self.rng.poisson(len(path) * indels)
        for _ in range(events):
            at = int(self.rng.integers(len(path))) if path else 0
            looped = [i for i, site in enumerate(path) if site.iteration >= 0]
            if self.loops and looped and self.rng.random() < 0.6:
                number = path[int(self.rng.choice(looped))].iteration
                mine = [i for i, site in enumerate(path) if site.iteration == number]
                first, last = mine[0], mine[-1] + 1
                if self.rng.random() < 0.5:
                    del path[first:last]
                else:
                    fresh = next(self.iteration)
                    path[last:last] = [
                        Site(site.letter, next(self.column), fresh) for site in path[first:last]
                    ]
                continue
            size = int(self.rng.geometric(0.4))
            if self.rng.random() < 0.5:
                del path[at : at + size]
            else:
                path[at:at] = [Site(x, next(self.column)) for x in self.motif(size)]
        kept = 1 - np.exp(-substitutions)
        return [
            Site(self.letter(site.letter), site.column, site.iteration)
            if self.rng.random() < kept
            else site
            for site in path
        ]

    def star(self, rows: int, length: int, rates: tuple[float, float]) -> list[list[Site]]:
        template = self.template(length)
        return [self.change(template, *rates) for _ in range(rows)]

    def tree(self, rows: int, length: int, rates: tuple[float, float]) -> list[list[Site]]:
        """Leaves of a coalescent tree; lengths of branches are scaled to a depth of 1."""
        nodes: list[tuple[float, tuple[int, ...]]] = [(0.0, ()) for _ in range(rows)]
        alive = list(range(rows))
        time = 0.0
        while len(alive) > 1:
            time += float(self.rng.exponential(2 / (len(alive) * (len(alive) - 1))))
            pair = sorted(self.rng.choice(len(alive), 2, replace=False), reverse=True)
            children = tuple(alive.pop(i) for i in pair)
            nodes.append((time, children))
            alive.append(len(nodes) - 1)
        paths: dict[int, list[Site]] = {len(nodes) - 1: self.template(length)}
        for node in reversed(range(rows, len(nodes))):
            top, children = nodes[node]
            for child in children:
                share = (top - nodes[child][0]) / time
                paths[child] = self.change(paths[node], rates[0] * share, rates[1] * share)
        return [paths[leaf] for leaf in range(rows)]


def draw(history: str, kind: str, level: str, rows: int, length: int, seed: int) -> Family:
    """Draw one family; rows without any state are drawn again."""
    simulator = Simulator(seed, loops=kind == "loop")
    rates = (SUBSTITUTIONS[level], INDELS[level])
    paths = getattr(simulator, history)(rows, length, rates)
    return Family(
        f"n{rows:02}_L{length}_{level}_{kind}_{seed}",
        [np.array([site.letter for site in path], np.uint8) for path in paths],
        [[site.column for site in path] for path in paths],
    )


def draw_all(
    history: str, first_seed: int, replicates: int, sizes: list[tuple[int, int]]
) -> list[Family]:
    """Draw families of both kinds, all levels and the given (rows, length)."""
    result = []
    seed = first_seed
    for kind in ("flat", "loop"):
        for level in SUBSTITUTIONS:
            for rows, length in sizes:
                for _ in range(replicates):
                    result.append(draw(history, kind, level, rows, length, seed))
                    seed += 1
    return result
