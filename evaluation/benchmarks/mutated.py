"""How well mutated copies of one path are aligned: SP and TC beside MUSCLE and MAFFT.

Run as ``python evaluation/benchmarks/mutated.py [--replicates N] [--no-peers] [--speed]``.  The
second kind of families (see `simulated`): every row is changed from one template, so that no
tree joins the rows; this is what executions of one program look like.  MUSCLE 3, MUSCLE
5 and MAFFT are run on the same families where they are installed (see `peers`).
Parameters were tuned on other seeds.  ``--speed`` takes the time of 30 paths of about
300 states and of 50 of about 1,000 instead, the aligners taking turns.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import peers
from msa import columns_in, score
from simulated import LETTERS, Family, draw, draw_all

from critpath.align.multiple import METHODS, align

PEERS = ("muscle3", "muscle5", "mafft-text-fftnsi", "mafft-text-ginsi")
SIZES = [(8, 100), (20, 150), (30, 300)]
FIRST_SEED = 1_000
Rows = list[list[int]]


def by_method(method: str) -> Callable[[Family], Rows]:
    """Return a function that aligns a family by a method of ours."""

    def run(family: Family) -> Rows:
        durations = [np.zeros(len(s), np.int64) for s in family.sequences]
        return columns_in(align(family.sequences, durations, LETTERS, method=method).rows)

    return run


def by_peer(peer: str) -> Callable[[Family], Rows]:
    return lambda family: columns_in(peers.run(peer, family.sequences)[0])


def aligners(*, beside: bool) -> dict[str, Callable[[Family], Rows]]:
    """Return what there is to compare, by name."""
    result = {f"critpath {method}": by_method(method) for method in METHODS}
    for peer in PEERS if beside else ():
        if reason := peers.why_not(peer):
            sys.stdout.write(f"{peer}: left out, {reason}\n")
        else:
            result[peer] = by_peer(peer)
    return result


def take_times(runs: dict[str, Callable[[Family], Rows]]) -> None:
    """Write seconds, and how often MUSCLE 3's, of each aligner; the least of three."""
    for history, kind in (("tree", "flat"), ("tree", "loop"), ("star", "loop")):
        for rows, length in ((30, 300), (50, 1000)):
            family = draw(history, kind, "mid", rows, length, FIRST_SEED)
            least: dict[str, float] = {}
            for _ in range(3):
                for name, run in runs.items():
                    # What took long once is not asked again; MUSCLE 5 takes minutes.
                    if least.get(name, 0) > 5 or (name == "muscle5" and length > 300):
                        continue
                    begin = time.perf_counter()
                    run(family)
                    least[name] = min(least.get(name, np.inf), time.perf_counter() - begin)
            sys.stdout.write(f"{rows} x {length}, {history}, {kind}:\n")
            for name, seconds in least.items():
                ratio = f"{seconds / least['muscle3']:8.2f}" if "muscle3" in least else ""
                sys.stdout.write(f"  {name:21}{seconds:8.3f} s{ratio}\n")
            sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=2)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="the smallest size alone")
    options = parser.parse_args()
    if options.speed:
        take_times(aligners(beside=not options.no_peers))
        return 0
    families = draw_all(
        "star", FIRST_SEED, options.replicates, SIZES[:1] if options.tiny else SIZES
    )
    groups = [f"{kind} {level}" for kind in ("flat", "loop") for level in ("low", "mid", "high")]
    heads = "".join(f"{group:>13}" for group in [*groups, "all"])
    sys.stdout.write(f"{len(families)} families, SP/TC\n{'':21}{heads}{'s':>8}\n")
    for name, run in aligners(beside=not options.no_peers).items():
        table: defaultdict[str, list[tuple[float, float, float]]] = defaultdict(list)
        for family in families:
            begin = time.perf_counter()
            rows = run(family)
            seconds = time.perf_counter() - begin
            _, _, level, kind, _ = family.name.split("_")
            measured = (*score(family.columns, rows), seconds)
            table[f"{kind} {level}"].append(measured)
            table["all"].append(measured)
        means = {group: np.mean(table[group], axis=0) for group in [*groups, "all"]}
        cells = "".join(f"{m[0]:7.3f}/{m[1]:5.3f}" for m in means.values())
        sys.stdout.write(f"{name:21}{cells}{means['all'][2]:8.3f}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
