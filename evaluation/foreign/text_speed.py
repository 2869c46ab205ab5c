"""How fast a text of ftrace is converted, beside the tool that prints it, and in how much memory.

    python evaluation/foreign/text_speed.py [--seconds N] [--events N] [--largest N] [--rounds N]

As root: perf records two threads that wake each other, ``perf script`` prints the file (to
nothing), and what it prints, repeated with later times up to ``--events`` lines, is converted, in
turns; then as much as ``--largest``.  Wanted: five times the events per second by the time on a
cpu, and less than 512 MiB.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from perf_speed import MEMORY, WANTED, convert, run  # noqa: E402 - beside this

EVENTS = ("sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup")
PIPES = """
import os, sys, threading, time
here, there = os.pipe(), os.pipe()
end = time.monotonic() + float(sys.argv[1])
def pass_on(source, target):
    while time.monotonic() < end:
        os.write(target, b"x")
        os.read(source, 1)
    os.write(target, b"x")
both = ((here[0], there[1]), (there[0], here[1]))
threads = [threading.Thread(target=pass_on, args=of) for of in both]
[one.start() for one in threads]
[one.join() for one in threads]
"""
_TIME = re.compile(r" (\d+)\.(\d{9}): ")


def repeat(text: Path, place: Path, most: int) -> int:
    """Write the lines of a text again and again, later each time; return how many."""
    parts, times = [], []
    for line in text.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        if found := _TIME.search(line):
            parts.append((line[: found.start() + 1], line[found.end() - 2 :]))
            times.append(int(found[1]) * 10**9 + int(found[2]))
    span = max(times) - min(times) + 1000
    rounds = max(1, most // len(parts))
    with place.open("w", encoding="utf-8") as stream:
        for number in range(rounds):
            for (head, tail), time in zip(parts, times, strict=True):
                at = time + number * span
                stream.write(f"{head}{at // 10**9}.{at % 10**9:09}{tail}")
    return rounds * len(parts)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--events", type=int, default=3_000_000, help="lines, for the speed")
    parser.add_argument("--largest", type=int, default=20_000_000, help="lines, for the memory")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    met = True
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        file, text, large = place / "perf.data", place / "perf.txt", place / "large.txt"
        names = [word for event in EVENTS for word in ("-e", event)]
        work = [sys.executable, "-P", "-c", PIPES, str(asked.seconds)]
        run(["perf", "record", "-q", "-a", "-m", "4096", "-o", str(file), *names, "--", *work])
        printing = ["perf", "script", "--ns", "-i", str(file)]
        run([*printing], text)
        events = sum(1 for _ in text.open("rb"))
        lines = repeat(text, large, asked.events)
        size = large.stat().st_size / 1e6
        print(f"perf's {events:,} events; {lines:,} lines, {size:,.0f} MB of text", flush=True)
        ratios = []
        for _ in range(asked.rounds):
            theirs, ours = run(printing), convert(large, place)
            of_clock, of_cpu = (lines / ours[at] * theirs[at] / events for at in (0, 1))
            ratios.append(of_cpu)
            print(
                f"perf script {events / theirs[1] / 1e6:.2f} M events/s, critpath convert"
                f" {lines / ours[1] / 1e6:.2f} M events/s: {of_cpu:.1f} times by the time on a"
                f" cpu, {of_clock:.1f} by the clock",
                flush=True,
            )
        met &= statistics.median(ratios) >= WANTED
        print(f"median {statistics.median(ratios):.1f} times; wanted {WANTED:g}")
        if asked.largest:
            lines = repeat(text, large, asked.largest)
            seconds, _, memory = convert(large, place)
            met &= memory < MEMORY
            print(f"{lines:,} lines: {seconds:.1f} s, {memory} MiB; wanted less than {MEMORY}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
