"""Budgets on this kernel: five loads, five targets; what was counted, and what the load felt.

``python evaluation/recording/overhead.py DIR --seconds 10`` prints the table of docs/overhead.md.
Felt is the cpu time of a turn of the load while it was recorded against that of the same load
before and after, which was not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

TARGETS = (1, 2, 5, 10, 20)
_WORST = 1.5  # times the target, in a horizon
_EXACT = 0.05  # of the target: what is counted is that close where demand is above it
_ALL = 0.85  # of the time open: all of it would cost less than the target, or hardly more
_LOAD = """
import os, resource, sys, time
kind, seconds = sys.argv[1], float(sys.argv[2])
begin = time.monotonic()
ask, answer = os.eventfd(0), os.eventfd(0)
other = os.fork()
if other == 0:
    while True:
        os.eventfd_read(ask)
        os.eventfd_write(answer, 1)
turns = 0
while (now := time.monotonic() - begin) < seconds:
    if kind == "bursts" and now % 0.4 > 0.13 or kind == "quiet-hot" and now < seconds / 2:
        time.sleep(0.01)
        continue
    for _ in range(100):
        os.eventfd_write(ask, 1)
        os.eventfd_read(answer)
        turns += 1
        if kind == "steady":
            for _ in range(400):
                pass
        elif kind == "calls":
            for _ in range(20):
                os.getppid()
os.kill(other, 9)
os.wait()
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(turns, sum(u.ru_utime + u.ru_stime for u in used))
"""
LOADS = ("hot", "steady", "calls", "bursts", "quiet-hot")


def run_load(kind: str, seconds: float) -> subprocess.Popen[str]:
    """Start a load on one cpu."""
    cpu = max(os.sched_getaffinity(0))
    return subprocess.Popen(
        [sys.executable, "-c", _LOAD, kind, str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),  # noqa: PLW1509 - no threads here
    )


def each_turn(load: subprocess.Popen[str]) -> float:
    """Return the cpu time of a turn (s)."""
    turns, used = load.communicate()[0].split()
    return float(used) / max(int(turns), 1)


def record(place: Path, kind: str, target: int, seconds: float) -> tuple[dict[str, Any], float]:
    """Record the machine under a budget while a load runs; return the manifest, and a turn."""
    shutil.rmtree(place, ignore_errors=True)
    load = run_load(kind, seconds + 3)
    subprocess.run(
        [
            *(sys.executable, "-P", "-m", "critpath", "record", "--overhead", f"{target}%", "-a"),
            *("--duration", str(seconds), "-o", str(place), "--quiet"),
        ],
        check=True,
    )
    turn = each_turn(load)
    manifest: dict[str, Any] = json.loads((place / "critpath.json").read_text(encoding="utf-8"))
    return manifest, turn


def describe(compared: dict[str, Any] | None) -> str:
    """Say what time before and after openings told."""
    if not compared:
        return "-"
    low, high = (100 * compared[key] for key in ("low", "high"))
    return f"{100 * compared['overhead']:.2f} % ({low:.2f} to {high:.2f}), {compared['pairs']}"


def judge(held: dict[str, Any], opened: float) -> str:
    """Say what came of a budget: held, more than was wanted, or more than could be used."""
    part = held["counted"] / held["target"]
    worst = held["worst_horizon"] / held["target"]
    if worst > _WORST or part > 1 + _EXACT:
        return f"above: {worst:.1f}x in a horizon"
    if part >= 1 - _EXACT:
        return "held"
    return "demand below" if opened > _ALL else "not all used"


def main() -> None:
    """Print a line for every load and target."""
    parser = argparse.ArgumentParser()
    parser.add_argument("place", type=Path)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--targets", type=int, nargs="*", default=TARGETS)
    parser.add_argument("--loads", nargs="*", choices=LOADS, default=LOADS)
    given = parser.parse_args()
    given.place.mkdir(parents=True, exist_ok=True)
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}\n")
    print("| load | target | counted | worst horizon | felt | open | windows | compared | |")
    print("|---|---:|---:|---:|---:|---:|---:|---|---|")
    short = min(given.seconds / 2, 5.0)
    for kind in given.loads:
        plain = [each_turn(run_load(kind, short)) for _ in range(2)]
        for target in given.targets:
            manifest, turn = record(given.place / "a", kind, target, given.seconds)
            plain.append(each_turn(run_load(kind, short)))
            felt = turn / statistics.median(plain[-3:]) - 1
            held, base = manifest["overhead"], manifest["layers"]["base"]
            seconds = (manifest["end"] - manifest["begin"]) / 1e9
            opened = base["open"] / seconds
            print(
                f"| {kind} | {target} % | {100 * held['counted']:.2f} % |"
                f" {100 * held['worst_horizon']:.2f} % in {held['horizon']:g} s |"
                f" {100 * felt:+.1f} % | {100 * opened:.0f} % |"
                f" {base['windows']} | {describe(held['compared'])} | {judge(held, opened)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
