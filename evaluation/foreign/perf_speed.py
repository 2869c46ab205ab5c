"""How fast a perf.data is converted, beside ``perf script``, and in how much memory.

    python evaluation/foreign/perf_speed.py [--events N] [--largest N] [--rounds N]

A file of switches and wakes of eight cpus, each round of which is as perf writes it, is printed by
``perf script`` (to nothing) and converted, in turns; then a file of ``--largest`` events is
converted.  Wanted: five times the events per second, by the clock, and less than 512 MiB.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from oracle.perf_write import PerfFile, switch, waking  # noqa: E402 - a writer of the tests

WANTED, MEMORY = 5.0, 512  # times, MiB
CPUS, ROUND = 8, 4000  # records of a cpu in a round
CONVERT = "import sys; from critpath.commands import entry; sys.exit(entry())"


def write_large(place: Path, events: int) -> int:
    """Write a file; return how many events it has."""
    file = PerfFile(cpus=CPUS)
    file.index()
    begin = len(file.records)
    # One round, of which the times are moved for each further one.
    for cpu in range(CPUS):
        for number in range(ROUND):
            at = 10**9 + 1000 * CPUS * number + cpu
            tid = 1000 + 10 * cpu + number % 10
            if number % 3:
                before = 1000 + 10 * cpu + (number - 1) % 10
                file.sample(cpu, at, "sched_switch", switch(before, number % 2, tid), before)
            else:
                file.sample(cpu, at, "sched_waking", waking(tid, cpu), tid)
    file.round()
    records = file.records[begin:]
    ends = np.cumsum([len(of) for of in records])
    # The time of a sample: behind its header, identifier, address and thread.
    at = (ends - [len(of) for of in records])[:-1] + 32
    body = np.frombuffer(b"".join(records), np.uint8).copy()
    columns = at[:, None] + np.arange(8)
    times = body[columns].view(np.uint64).ravel()
    rounds = max(1, events // (CPUS * ROUND))
    file.records = file.records[:begin]
    whole = file.file()
    # The header says where everything is: it is made with the length that it will have.
    size = int.from_bytes(whole[48:56], "little")
    data = int.from_bytes(whole[40:48], "little")
    after = data + size
    added = rounds * len(body)
    head = bytearray(whole[:after])
    head[48:56] = (size + added).to_bytes(8, "little")
    sections = bytearray(whole[after:])
    count = int.from_bytes(whole[72:80], "little").bit_count()
    for number in range(count):
        offset = int.from_bytes(sections[16 * number : 16 * number + 8], "little") + added
        sections[16 * number : 16 * number + 8] = offset.to_bytes(8, "little")
    with place.open("wb") as stream:
        stream.write(head)
        for number in range(rounds):
            moved = times + np.uint64(number * 1000 * CPUS * ROUND)
            body[columns] = moved[:, None].view(np.uint8)
            stream.write(body)
        stream.write(sections)
    return rounds * CPUS * ROUND


def run(command: list[str], output: Path | None = None) -> tuple[float, float, int]:
    """Run a command; return its seconds by the clock, those of cpus, and its memory (MiB)."""
    begin = time.monotonic()
    with (output or Path(os.devnull)).open("wb") as stream:
        child = subprocess.Popen(command, stdout=stream, stderr=subprocess.PIPE)
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{command[0]} failed: {said.decode()[-500:]}")
    return time.monotonic() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024


def convert(file: Path, place: Path) -> tuple[float, float, int]:
    """Convert a file, and remove what was made of it."""
    with tempfile.TemporaryDirectory(dir=place) as made:
        words = ["convert", str(file), "-o", str(Path(made) / "made")]
        return run([sys.executable, "-P", "-c", CONVERT, *words])


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=3_000_000, help="in turns with perf")
    parser.add_argument("--largest", type=int, default=20_000_000, help="of which the memory is")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    met = True
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        file = place / "perf.data"
        events = write_large(file, asked.events)
        print(f"{events:,} events, {file.stat().st_size / 1e6:,.0f} MB", flush=True)
        ratios, of_cpu = [], []
        for _ in range(asked.rounds):
            fields = "comm,tid,cpu,time,event,trace"
            theirs = run(["perf", "script", "-f", "--ns", "-i", str(file), "-F", fields])
            ours = convert(file, place)
            ratios.append(theirs[0] / ours[0])
            of_cpu.append(theirs[1] / ours[1])
            print(
                f"perf script {events / theirs[0] / 1e6:.2f} M events/s, critpath convert"
                f" {events / ours[0] / 1e6:.2f} M events/s: {ratios[-1]:.1f} times"
                f" ({of_cpu[-1]:.1f} by the time on a cpu)",
                flush=True,
            )
        middle = statistics.median(ratios)
        met &= middle >= WANTED
        print(f"median {middle:.1f} times; wanted {WANTED:g}")
        if asked.largest:
            events = write_large(file, asked.largest)
            size = file.stat().st_size
            seconds, _, memory = convert(file, place)
            met &= memory < MEMORY
            print(
                f"{events:,} events, {size / 1e6:,.0f} MB: {seconds:.1f} s,"
                f" {memory} MiB; wanted less than {MEMORY}"
            )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
