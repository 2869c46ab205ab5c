"""What a flight recorder costs, what ``critpath top`` adds, and how long a dump closes the gates.

``python evaluation/benchmarks/flight.py`` prints the figures of docs/always-on.md; it needs root.
Turns without and with ``top`` alternate; the machine's load stands beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
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
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
        place = Path(top) / f"flight-{os.getpid()}"
        flight = subprocess.Popen(
            [
                *(*CRITPATH, "record", "--always", "--overhead", "1000%", "--profile", "minimal"),
                *("--memory", asked.memory, "--keep", "24h", *asked.options, "-o", place),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert flight.stderr is not None
        load = None
        try:
            while "profile" not in (line := flight.stderr.readline()):
                if not line:
                    raise SystemExit("the flight recorder ended")
            time.sleep(2)
            before, begun = cpu_time(flight.pid), time.monotonic()
            time.sleep(asked.seconds * asked.turns)
            idle = (cpu_time(flight.pid) - before) / (time.monotonic() - begun)
            memory = (
                Path(f"/proc/{flight.pid}/status").read_text().partition("VmRSS:")[2].split()[0]
            )
            long = asked.seconds * asked.turns * 2 + 10
            # Long enough to fill the buffers before they are moved.
            load = subprocess.Popen([sys.executable, "-c", LOAD, str(long), "0.002"])
            time.sleep(2)
            cost: dict[bool, list[float]] = {False: [], True: []}
            for turn in range(2 * asked.turns):
                shown = turn % 2 == 1
                words = [*CRITPATH, "top", str(place), "--json", "--duration", str(asked.seconds)]
                before, begun = cpu_time(flight.pid), time.monotonic()
                if shown:
                    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
                else:
                    time.sleep(asked.seconds)
                cost[shown].append((cpu_time(flight.pid) - before) / (time.monotonic() - begun))
            status = ask(place, "--status")
            seconds = time.monotonic()
            ask(place)
            seconds = time.monotonic() - seconds
            after = ask(place, "--status")
        finally:  # it records for ever
            flight.send_signal(signal.SIGTERM)
            flight.communicate()
            if load is not None:
                load.terminate()
                load.wait()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cpus")
    print(f"recorder beside no load of ours: {100 * idle:.3f} % of a cpu", end=", ")
    print(f"{int(memory) / 1e3:.0f} MB")
    for shown, of in cost.items():
        what = "with top" if shown else "alone"
        print(
            f"recorder {what}: {100 * statistics.median(of):.2f} % of a cpu (median of {len(of)})"
        )
    add_rows(
        asked.rows,
        [
            Row("flight_idle", "flight recorder, idle: % of a cpu", (100 * idle,), 0.1, False),
            Row("flight_memory", "the same: memory, MB", (int(memory) / 1e3,)),
        ],
    )
    print(f"gates closed for {1000 * after['dumps']['closed']:.0f} ms to move", end=" ")
    print(f"{status['used'] / 2**20:.0f} MiB; the dump was there after {seconds:.1f} s")


if __name__ == "__main__":
    main()
