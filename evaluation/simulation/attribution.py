"""How often work is attributed to the right request, by class of server.

``attribution.py [SEED]``: simulated servers with exact truth, at 1, 4, 16, 64 and 256
connections, three seeds each (tests/pure/requests/simulate.py says what counts as right). Ends
with the calibration of certainty, and with status 1 where it does not hold.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "pure" / "requests"))

import drawing
import simulate

from critpath.model.requests import Certainty
from critpath.requests.owners import find_owners

CONNECTIONS: Final = (1, 4, 16, 64, 256)
REQUESTS: Final = 600
SEEDS: Final = 3
PROMISED: Final = {Certainty.CERTAIN: 0.999, Certainty.LIKELY: 0.98}


def show_shares(seed: int, requests: int, connections: Sequence[int]) -> int:
    """Print a row for each class and number of connections; return the exit status."""
    print(f"{'class':36}{'c':>5}{'calls':>7}{'right':>8}  " + "".join(
        f"{c.name.lower():>10}{'right':>8}" for c in Certainty
    ) + f"{'slices own':>12}{'other':>8}")  # fmt: skip
    said: Counter[int] = Counter()
    right: Counter[int] = Counter()
    for name in simulate.CLASSES:
        for count in connections:
            one_said: Counter[int] = Counter()
            one_right: Counter[int] = Counter()
            many, good, own, other = 0, 0, 0.0, 0.0
            for k in range(SEEDS):
                world = simulate.simulate(name, count, requests, seed * 1000 + k)
                found = find_owners(*simulate.arguments(world, drawing))
                subs = found.subrequests
                ok = (subs.request == world.owner) & (world.owner >= 0)
                many, good = many + len(ok), good + int(ok.sum())
                for sure in Certainty:
                    mine = (subs.attribution == sure) & (subs.request >= 0)
                    one_said[sure] += int(mine.sum())
                    one_right[sure] += int(ok[mine].sum())
                a, b = simulate.count_work(world, found.slices)
                own, other = own + a / SEEDS, other + b / SEEDS
            said.update(one_said)
            right.update(one_right)
            shares = "".join(
                f"{one_said[c] / many:>10.3f}{one_right[c] / one_said[c]:>8.4f}"
                if one_said[c]
                else f"{'-':>10}{'-':>8}"
                for c in Certainty
            )
            total = f"{good / many:>8.4f}" if many else f"{'-':>8}"
            print(f"{name:36}{count:>5}{many:>7}{total}  {shares}{own:>12.3f}{other:>8.4f}")
    broken = 0
    for sure in Certainty:
        share = right[sure] / max(said[sure], 1)
        least = PROMISED.get(sure)
        note = f", promised {least}" if least else ""
        print(f"called {sure.name.lower()}: {said[sure]:,}, right {share:.5f}{note}")
        broken |= least is not None and share < least
    return int(broken)


def measure_speed(seed: int, requests: int) -> None:
    """Print how many rows a second are attributed."""
    for name in ("process per request", "loop, pooled (asyncio)"):
        world = simulate.simulate(name, 64, requests, seed)
        arguments = simulate.arguments(world, drawing)
        begin = time.process_time()
        find_owners(*arguments)
        took = time.process_time() - begin
        rows = len(world.activity)
        print(f"{name}: {rows:,} rows in {took:.2f} s, {rows / took / 1e6:.1f} M rows/s")


def main() -> int:
    """Print all of it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    fresh = int(np.random.default_rng().integers(1, 10**6))
    parser.add_argument("seed", type=int, nargs="?", default=fresh)
    parser.add_argument("--tiny", action="store_true", help="few requests, over few connections")
    given = parser.parse_args()
    print(f"seed {given.seed}")
    requests, connections = (40, CONNECTIONS[:2]) if given.tiny else (REQUESTS, CONNECTIONS)
    status = show_shares(given.seed, requests, connections)
    measure_speed(given.seed, 400 if given.tiny else 20_000)
    return status


if __name__ == "__main__":
    sys.exit(main())
