"""Whose units of a pool are, by places in order and by the times between both ends.

Run: ``python tests/evaluation/pools.py DIR``, on recordings of pattern 6 of
``tests/hosts/record.py`` (``sleep:6``: a loop before a pool of eight threads). By squared times an
assignment is the better the more alike they are: of begins, of ends, of both, and of both as far
as each alone is told from its best exchange. ``nobody`` is what is found where pools are not looked
for. Precision/recall as in `hosts.py`, mean and lowest of all sets.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from hosts import _load, tell
from truth import judge

from critpath.model import F64, I64
from critpath.requests import pools
from critpath.requests.matching import IMPOSSIBLE, find_regrets, match

_ROUNDS: Final = 3
Way = Callable[[pools.Units, I64, I64], tuple[I64, F64]]


def by_times(begins: float, ends: float) -> Way:
    """Return a way that weighs both ends so; below 0: by how sharp they are."""

    def assign(units: pools.Units, received: I64, answered: I64) -> tuple[I64, F64]:
        fits = units.asked[:, np.newaxis] >= received
        fits &= units.result[:, np.newaxis] <= answered
        apart = (
            np.maximum(units.asked[:, np.newaxis] - received, 0) / 1e3,
            np.maximum(answered - units.done[:, np.newaxis], 0) / 1e3,
        )

        def solve(weights: tuple[float, float]) -> tuple[I64, float]:
            spread = [1e3, 1e3]
            for _ in range(_ROUNDS):
                parts = zip(weights, apart, spread, strict=True)
                cost = np.add(*(w * each**2 / of for w, each, of in parts))
                cost = np.where(fits, cost, IMPOSSIBLE)
                chosen = match(cost)
                rows = np.flatnonzero(chosen >= 0)
                some = (each[rows, chosen[rows]] for each in apart)
                spread = [float(np.sqrt(np.mean(each**2))) + 1 for each in some]
            return chosen, float(np.median(find_regrets(cost, chosen)))

        weights = begins, ends
        if begins < 0:
            sharp = solve((1, 0))[1], solve((0, 1))[1]
            weights = sharp[0] / sum(sharp), sharp[1] / sum(sharp)
        chosen = solve(weights)[0]
        return chosen, np.where(chosen >= 0, 0.5, 0.0)

    return assign


def assign_none(units: pools.Units, _: I64, __: I64) -> tuple[I64, F64]:
    """Say nothing of any unit."""
    return np.full(len(units), -1), np.zeros(len(units))


def main() -> None:
    """Print a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("place", type=Path)
    given = parser.parse_args()
    recorded = sorted(path for path in given.place.glob("*-6-*") if (path / "recording").exists())
    find_requests = _load("servers/judge.py").find_requests
    ways = {
        "nobody": assign_none,
        "begins, squared times": by_times(1, 0),
        "ends": by_times(0, 1),
        "both alike": by_times(1, 1),
        "both by sharpness": by_times(-1, -1),
        "places": pools.assign_units,
    }
    print(f"| way | mean of {len(recorded)} sets | lowest | wholly right |\n|---|---|---|---|")
    for name, way in ways.items():
        pools.assign_units = way
        scores = [judge(each, find_requests(each / "recording")) for each in recorded]
        low = np.min([score.mean for score in scores], axis=0)
        mean = np.mean([score.mean for score in scores], axis=0)
        whole = np.mean([score.whole for score in scores])
        shares = "/".join(f"{share:.3f}" for share in mean)
        print(f"| {name} | {shares} | {low[0]:.3f}/{low[1]:.3f} | {whole:.3f} |")
    print(f"\n{', '.join(f'{e.name} {tell(s)}' for e, s in zip(recorded, scores, strict=True))}")


if __name__ == "__main__":
    main()
