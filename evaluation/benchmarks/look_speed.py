"""How long a first look takes, and in how much memory: by the clock, of the CPU, at the peak.

    python evaluation/benchmarks/look_speed.py [--events N[,N]] [--rounds R] [--perf FILE]

Traces of LTTng are made by `large_trace.py`.  FILE, a perf.data, is looked at in turns with
``perf sched timehist -s`` and ``perf sched latency``.  Wanted: 3 s for 200 MB.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from large_trace import generate
from measuring import Installed, Taken, run

MIB: Final = 1 << 20
WANTED: Final = 3.0, 200e6  # s, bytes


def size_of(trace: Path) -> int:
    """Return the bytes of a file, or of all below a directory."""
    files = [trace] if trace.is_file() else [p for p in trace.rglob("*") if p.is_file()]
    return sum(file.stat().st_size for file in files)


def measure(works: dict[str, Callable[[], Taken]], rounds: int) -> dict[str, list[Taken]]:
    """Do pieces of work in turns; the first round only warms files."""
    found: dict[str, list[Taken]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            taken = work()
            if number:
                found[name].append(taken)
    return found


def print_rows(trace: str, size: int, events: int, found: dict[str, list[Taken]]) -> None:
    """Print a row for each command: medians, the largest peak."""
    for name, taken in found.items():
        wall, cpu = (statistics.median(getattr(of, key) for of in taken) for key in ("wall", "cpu"))
        peak = max(of.peak for of in taken) / MIB
        print(
            f"| {name} | {trace} | {size / 1e6:,.0f} MB | {events:,} | {wall:.2f} s | {cpu:.2f} s "
            f"| {peak:,.0f} MiB |"
        )


def count_events(file: Path) -> int:
    """Return how many samples a perf.data has."""
    command = ("perf", "script", "-i", file, "-F", "time")
    done = subprocess.run(command, capture_output=True, check=True)
    return done.stdout.count(b"\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", default="5000000,20000000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--perf", type=Path)
    given = parser.parse_args(arguments)
    critpath = Installed()
    print("| command | trace | size | events | elapsed | of the CPU | memory |")
    print("|---|---|---|---|---|---|---|")
    for events in [int(float(text)) for text in given.events.split(",") if text]:
        with tempfile.TemporaryDirectory(prefix="critpath-look-") as place:
            trace = Path(place) / "trace"
            generate(trace, events)
            works = {"critpath path --look": lambda of=trace: critpath.run("path", of, "--look")}
            print_rows("LTTng, 8 CPUs", size_of(trace), events, measure(works, given.rounds))
    if given.perf:
        sched = ("perf", "sched")
        works = {
            "critpath path --look": lambda: critpath.run("path", given.perf, "--look"),
            "perf sched timehist -s": lambda: run([*sched, "timehist", "-s", "-i", given.perf]),
            "perf sched latency": lambda: run([*sched, "latency", "-i", given.perf]),
        }
        found = measure(works, given.rounds)
        print_rows("perf.data", size_of(given.perf), count_events(given.perf), found)


if __name__ == "__main__":
    main()
