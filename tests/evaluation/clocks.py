"""How right clocks of two hosts are, simulated: the table of docs/evaluation.md, and the bound.

Run: ``python tests/evaluation/clocks.py [--worlds N]``.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "clocks"))

from worlds import TABLE, World, draw

from critpath.clocks import pair

SEEDS = 20


def table() -> None:
    """Print the largest error anywhere and the bound of each case, medians over seeds."""
    print("| simulated, 60 s, drift 50 ppm | largest error | bound in the middle | time |")
    print("|---|---:|---:|---:|")
    cases = {**{name: world for name, (world, *_) in TABLE.items()}}
    cases["100,000"] = World(messages=100_000)
    for name, world in cases.items():
        rows = []
        for seed in range(3 if world.messages > 10_000 else SEEDS):
            begin = time.perf_counter()
            found = world.align(seed)
            spent = time.perf_counter() - begin
            error, bound, outside = world.judge(found)
            rows.append((error / 1e3, bound / 1e3, spent * 1e3, outside))
        error, bound, spent, _ = np.median(rows, axis=0)
        wrong = sum(row[3] > 0 for row in rows)
        said = f" (outside in {wrong} of {len(rows)})" if wrong else ""
        print(f"| {name} | {error:.3g} µs{said} | ±{bound:.4g} µs | {spent:.0f} ms |", flush=True)


def worlds(count: int) -> tuple[int, int, int, int]:
    """Return how many drawn worlds there are, wander, have truth outside, and have no line."""
    outside = bent = lineless = 0
    for seed in range(count):
        world = draw(seed)
        bent += world.wander > 0
        found = world.align(seed)
        if found is None:
            lineless += 1
        else:
            outside += world.judge(found)[2] > 0
    return count, bent, outside, lineless


def main() -> None:
    """Print the table, and how often the truth is outside the bound, with and without bends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=500)
    arguments = parser.parse_args()
    table()
    said = "{} drawn worlds ({} wander): truth outside the bound in {}, no line in {}"
    print(said.format(*worlds(arguments.worlds)), flush=True)
    pair.LARGEST_BEND = 1e-22
    print("clocks taken for straight:", said.format(*worlds(arguments.worlds)))


if __name__ == "__main__":
    main()
