"""How right clocks of two hosts are, simulated: the table of docs/evaluation.md, and the bound.

Run: ``python evaluation/hosts/clocks.py [--worlds N]``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "pure" / "clocks"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "hosts"))

from worlds import TABLE, World, draw

from critpath.schema.parameters import overridden

OFF = (-5_000_000, 5_000_000)  # ns that PInfer's method begins off: too early, too late
ROOT = Path(__file__).resolve().parents[2]


def table(seeds: int) -> None:
    """Print the largest error anywhere and the bound of each case, medians over seeds."""
    print(
        "| simulated, 60 s, drift 50 ppm | largest error | bound in the middle | time"
        " | PInfer's, begun 5 ms early | 5 ms late |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    cases = {**{name: world for name, (world, *_) in TABLE.items()}}
    cases["100,000"] = World(messages=100_000)
    for name, world in cases.items():
        rows = []
        for seed in range(min(3, seeds) if world.messages > 10_000 else seeds):
            begin = time.perf_counter()
            found = world.align(seed)
            spent = time.perf_counter() - begin
            error, bound, outside = world.judge(found)
            theirs = [judge_nearest(world, seed, off) for off in OFF]
            rows.append((error / 1e3, bound / 1e3, spent * 1e3, outside, *theirs))
        error, bound, spent, _, *theirs = np.median(rows, axis=0)
        wrong = sum(row[3] > 0 for row in rows)
        said = f" (outside in {wrong} of {len(rows)})" if wrong else ""
        beside = " | ".join(f"{e:,.4g} µs" if np.isfinite(e) else "none" for e in theirs)
        print(
            f"| {name} | {error:.3g} µs{said} | ±{bound:.4g} µs | {spent:.0f} ms | {beside} |",
            flush=True,
        )


def judge_nearest(world: World, seed: int, off: int) -> float:
    """Return the largest error (µs) of PInfer's method that begins so far off."""
    found = world.align_nearest(seed, off)
    return np.inf if found is None else world.judge(found)[0] / 1e3


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


def recorded() -> None:
    """Print how far off the clocks of recorded hosts are, split from one kernel's recording."""
    from record import draw_clocks, write_split  # noqa: PLC0415 - needs the path above

    from critpath.clocks.align import align_traces  # noqa: PLC0415 - as above
    from critpath.progress import Stage  # noqa: PLC0415 - as above
    from critpath.read.recording import Recording  # noqa: PLC0415 - as above
    from critpath.read.traces import find_traces  # noqa: PLC0415 - as above

    for archive in sorted((ROOT / "fixtures/hosts").glob("*.tar.xz")):
        with tempfile.TemporaryDirectory() as place:
            with tarfile.open(archive) as tar:
                tar.extractall(place, filter="data")
            [made] = Path(place).iterdir()
            clocks = draw_clocks(1) if write_split(made, 1) else {}
            begin = json.loads((made / "recording/critpath.json").read_text())["begin"]
            names = ("client", *clocks)
            traces = [t for name in names for t in find_traces(made / "hosts" / name)]
            alignment, account = align_traces(
                Recording(made, traces=traces, hosts=()), Stage(None, "")
            )
            truth = np.linspace(begin, begin + 1e9, 101).astype(np.int64)
            said = []
            for of in alignment.hosts[1:]:
                own = np.asarray(clocks[of.host].show(truth, begin)).astype(np.int64)
                wrong = truth - own - of.offsets(own)
                low, high = of.bounds(own)
                outside = int(((wrong < low - 1) | (wrong > high + 1)).sum())
                said.append(
                    f"{of.host} {np.abs(wrong).max() / 1e3:.0f} of ±{of.bound / 1e3:.0f} µs"
                    + (f" (outside {outside})" if outside else "")
                    if of.aligned
                    else f"{of.host} not known"
                )
            print(f"{made.name}: {account.joined} connections,", "; ".join(said), flush=True)


def main() -> None:
    """Print the table, and how often the truth is outside the bound, with and without bends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=20, help="of each case of the table")
    arguments = parser.parse_args()
    table(arguments.seeds)
    recorded()
    said = "{} drawn worlds ({} wander): truth outside the bound in {}, no line in {}"
    print(said.format(*worlds(arguments.worlds)), flush=True)
    with overridden("clocks.largest_bend", 1e-22):
        print("clocks taken for straight:", said.format(*worlds(arguments.worlds)))


if __name__ == "__main__":
    main()
