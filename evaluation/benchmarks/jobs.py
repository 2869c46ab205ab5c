"""Two jobs against one, on simulated recordings: ``python evaluation/benchmarks/jobs.py``.

Rounds are interleaved.  Seconds of all processes together tell, also on a machine that has
other things to do, what two jobs cost beyond one.  Each round also times two processes that
only count against one that counts as much: what the machine gives to two at all.  The
target is 1.7 times where two cores are free.
"""

from __future__ import annotations

import argparse
import ctypes
import filecmp
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

sys.path[:0] = [str(Path(__file__).resolve().parent)]

from large_trace import EXECUTION, generate  # noqa: E402

TARGET: Final = 1.7
SUBREAPER: Final = 36  # of linux/prctl.h
SPIN: Final = "sum(i * i for i in range({}))"


def timed(commands: list[list[str]]) -> tuple[float, float]:
    """Return the seconds until some processes are done, and those of all processors."""
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    running = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for command in commands]
    if any(process.wait() for process in running):
        raise SystemExit(f"failed: {commands[0]}")
    seconds = time.perf_counter() - begin
    with suppress(ChildProcessError):  # what they left behind, which comes to us
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def adopt() -> None:
    """Become the parent of what a child leaves behind, so that its seconds are counted."""
    ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, 1, 0, 0, 0)


def extract(home: Path, jobs: int) -> list[str]:
    """Return the command that extracts all recordings with so many jobs."""
    return [
        *(
            sys.executable,
            "-P",
            "-m",
            "critpath",
            "export",
            "--format",
            "paths",
            str(home / "recordings"),
            "--quiet",
        ),
        *("--execution", EXECUTION, "--force", "-o", str(home / f"jobs-{jobs}")),
        *("--jobs", str(jobs)),
    ]


def spin(count: int) -> list[str]:
    """Return a command that only counts."""
    return [sys.executable, "-c", SPIN.format(count)]


def main() -> None:
    """Generate, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=int, default=20)
    parser.add_argument("--events", type=float, default=1e6, help="of each recording")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=20_000_000, help="of what only counts")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="critpath-jobs-") as place:
        home = Path(place)
        for number in range(arguments.recordings):
            generate(home / "recordings" / f"r{number:02}", int(arguments.events), seed=number + 1)
        adopt()
        ratios, possible, times, costs = [], [], [], []
        for number in range(arguments.rounds + 1):
            one, two = timed([extract(home, 1)]), timed([extract(home, 2)])
            alone, _ = timed([spin(2 * arguments.count)])
            together, _ = timed([spin(arguments.count)] * 2)
            if number:  # the first is a warm-up
                times.append((one[0], two[0]))
                costs.append((one[1], two[1]))
                ratios.append(one[0] / two[0])
                possible.append(alone / together)
        names = sorted(file.name for file in (home / "jobs-1").iterdir())
        same = filecmp.cmpfiles(home / "jobs-1", home / "jobs-2", names, shallow=False)[0] == names
    ratio, most = statistics.median(ratios), statistics.median(possible)
    one, two = (statistics.median(column) for column in zip(*times, strict=True))
    print(
        f"{arguments.recordings} recordings of {arguments.events:,.0f} events, "
        f"{arguments.rounds} rounds"
    )
    print(f"one job {one:.2f} s, two jobs {two:.2f} s, the same bytes: {'yes' if same else 'NO'}")
    print(f"two jobs are {ratio:.2f} times as fast [{min(ratios):.2f}..{max(ratios):.2f}]")
    print(
        f"two processes that only count: {most:.2f} times "
        f"[{min(possible):.2f}..{max(possible):.2f}]"
    )
    one, two = (statistics.median(column) for column in zip(*costs, strict=True))
    print(
        f"processor seconds: one job {one:.2f}, two jobs {two:.2f} in all ({two / one:.2f} times)"
    )
    print(f"of what the machine gave: {ratio / most:.0%}; target {TARGET} with two free cores")


if __name__ == "__main__":
    main()
