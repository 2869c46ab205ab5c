"""What a flight recorder costs, what ``critpath top`` adds, and how long a dump closes the gates.

``python evaluation/benchmarks/flight.py`` prints the figures of docs/always-on.md; it needs root.
Turns without and with ``top`` alternate; the machine's load stands beside them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from measuring import LeftOut, Row, add_rows, take_rows

CRITPATH = (sys.executable, "-P", "-m", "critpath")
# Two threads that wake each other, and an execution of a hundred turns, each marked.
LOAD = """
import os, sys, time
from critpath_marks.marks import execution
a, b = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(a[1])
    while os.read(a[0], 1):
        os.write(b[1], b"x")
    os._exit(0)
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    with execution("checkout"):
        for _ in range(100):
            os.write(a[1], b"x")
            os.read(b[0], 1)
    time.sleep(float(sys.argv[2]))
os.close(a[1])
"""


def cpu_time(pid: int) -> float:
    """Return the seconds that a process's threads had a cpu."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in threads) / 1e9


@contextlib.contextmanager
def flying(place: Path, *options: str) -> Iterator[int]:
    """Have a flight recorder record; yield its process."""
    words = [*CRITPATH, "record", "--always", "--profile", "minimal", "--keep", "24h", *options]
    with subprocess.Popen([*words, "-o", place], stderr=subprocess.PIPE, text=True) as flight:
        assert flight.stderr is not None
        try:
            while "profile" not in (line := flight.stderr.readline()):
                if not line:
                    raise SystemExit("the flight recorder ended")
            yield flight.pid
        finally:  # it records for ever
            flight.send_signal(signal.SIGTERM)
            flight.communicate()


def measure_idle(pid: int, seconds: float) -> tuple[float, float]:
    """Return the share of a cpu that a recorder takes beside no load of ours, and its MB."""
    time.sleep(5)  # it has begun
    before, begun = cpu_time(pid), time.monotonic()
    time.sleep(seconds)
    share = (cpu_time(pid) - before) / (time.monotonic() - begun)
    status = Path(f"/proc/{pid}/status").read_text()
    return share, int(status.partition("VmRSS:")[2].split()[0]) / 1e3


def ask(place: Path, *words: str) -> dict:
    done = subprocess.run(
        [*CRITPATH, "dump", str(place), "--json", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="of a turn")
    parser.add_argument("--turns", type=int, default=4, help="without and with top, of each")
    parser.add_argument("--memory", default="256M")
    parser.add_argument("options", nargs="*", help="of the flight recorder, after --")
    take_rows(parser)
    asked = parser.parse_args()
    if os.geteuid():
        print("flight: left out, recording needs root")
        add_rows(asked.rows, [LeftOut("a flight recorder", "it needs root")])
        return
    with tempfile.TemporaryDirectory() as top:
        memory = ("--memory", asked.memory)
        with flying(Path(top) / f"idle-{os.getpid()}", *memory) as pid:  # as it is by itself
            idle, megabytes = measure_idle(pid, asked.seconds * asked.turns)
        place = Path(top) / f"flight-{os.getpid()}"
        long = asked.seconds * asked.turns * 2 + 10
        # Long enough to fill the buffers before they are moved.
        words = [sys.executable, "-c", LOAD, str(long), "0.002"]
        with (
            flying(place, *memory, "--overhead", "1000%", *asked.options) as pid,
            subprocess.Popen(words) as load,
        ):
            time.sleep(2)
            cost: dict[bool, list[float]] = {False: [], True: []}
            try:
                for turn in range(2 * asked.turns):
                    shown = turn % 2 == 1
                    words = [*CRITPATH, "top", str(place), "--json"]
                    before, begun = cpu_time(pid), time.monotonic()
                    if shown:
                        words += ["--duration", str(asked.seconds)]
                        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
                    else:
                        time.sleep(asked.seconds)
                    cost[shown].append((cpu_time(pid) - before) / (time.monotonic() - begun))
                status = ask(place, "--status")
                seconds = time.monotonic()
                ask(place)
                seconds = time.monotonic() - seconds
                after = ask(place, "--status")
            finally:
                load.terminate()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cpus")
    print(f"recorder beside no load of ours: {100 * idle:.3f} % of a cpu", end=", ")
    print(f"{megabytes:.0f} MB")
    for shown, of in cost.items():
        what = "with top" if shown else "alone"
        print(
            f"recorder {what}: {100 * statistics.median(of):.2f} % of a cpu (median of {len(of)})"
        )
    add_rows(
        asked.rows,
        [
            Row("flight_idle", "flight recorder, idle: % of a cpu", (100 * idle,), 0.1, False),
            Row("flight_memory", "the same: memory, MB", (megabytes,)),
        ],
    )
    print(f"gates closed for {1000 * after['dumps']['closed']:.0f} ms to move", end=" ")
    print(f"{status['used'] / 2**20:.0f} MiB; the dump was there after {seconds:.1f} s")


if __name__ == "__main__":
    main()
