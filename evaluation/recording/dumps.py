"""Dumps every few seconds of a flight recorder: none refused, and recording goes on.

``python evaluation/recording/dumps.py`` (root) flies beside a server that is asked so many
requests a second (0: an idle machine), first without dumps and then with one every ten seconds,
and prints what was refused, how much of the time was recorded, and what it cost.  With
``--pairs N`` it measures instead what a flight costs server and client: their cpu time in turns of
``--seconds`` without and with a flight, alternating which comes first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CRITPATH = (sys.executable, "-P", "-m", "critpath")
# Answers each message of each connection; and asks, by four threads, each in its own rhythm.
SERVER = """
import hashlib, selectors, socket
of = socket.create_server(("127.0.0.1", 0), backlog=64)
print(of.getsockname()[1], flush=True)
ready = selectors.DefaultSelector()
ready.register(of, selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        if key.fileobj is of:
            ready.register(of.accept()[0], selectors.EVENT_READ)
        elif asked := key.fileobj.recv(4096):
            key.fileobj.send(hashlib.sha256(asked * 400).hexdigest().encode())
        else:
            ready.unregister(key.fileobj)
            key.fileobj.close()
"""
CLIENT = """
import random, socket, sys, threading, time
port, rate, threads = int(sys.argv[1]), float(sys.argv[2]), 4
def ask(seed):
    coin, to, due = random.Random(seed), socket.create_connection(("127.0.0.1", port)), time.time()
    while True:
        due = max(due + coin.expovariate(rate / threads), time.time() - 1)
        time.sleep(max(0, due - time.time()))
        to.send(b"GET /cart" * 20)
        to.recv(4096)
for seed in range(threads):
    threading.Thread(target=ask, args=(seed,)).start()
"""


def cpu_time(pid: int) -> float:
    """Return the cpu time of a process's threads (s)."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def ask(place: Path, *words: str) -> dict:
    """Return what the flight recorder answers."""
    words = (*CRITPATH, "dump", str(place), "--json", *words)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return json.loads(done.stdout or "{}")


def fly(place: Path, asked: argparse.Namespace, every: float) -> dict:
    """Fly for some time, with a dump every so often or with none; return what became of it."""
    words = ("--always", "--overhead", asked.overhead, "--memory", asked.memory, "--usual", "0")
    flight = subprocess.Popen(
        [*CRITPATH, "record", *words, *asked.options, "-o", str(place)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert flight.stderr is not None
    line = next(line for line in flight.stderr if "profile" in line)
    begun, cpu = time.monotonic(), cpu_time(flight.pid)
    made = refused = 0
    took = []
    while (now := time.monotonic()) < begun + asked.seconds:
        due = begun + (made + refused + 1) * every if every else begun + asked.seconds
        time.sleep(max(0.0, min(due, begun + asked.seconds) - now))
        if every and time.monotonic() < begun + asked.seconds:
            at = time.monotonic()
            good = "dump" in ask(place, "--reason", "every so often")
            took.append(time.monotonic() - at)
            made, refused = made + good, refused + (not good)
    own = (cpu_time(flight.pid) - cpu) / (time.monotonic() - begun)
    status = ask(place, "--status")
    flight.terminate()
    flight.communicate()
    return {"line": line.strip(), "made": made, "refused": refused, "own": own, "took": took} | {
        key: status[key] for key in ("covers", "overhead", "dumps", "profile")
    }


def measure(place: Path, asked: argparse.Namespace, load: list[subprocess.Popen]) -> list[float]:
    """Return how much more cpu time the load took in each turn beside a flight (share)."""
    more = []
    for number in range(asked.pairs):
        spent = {}
        for flies in (False, True) if number % 2 else (True, False):
            flight = None
            if flies:
                words = ("--always", "--overhead", asked.overhead, "--memory", asked.memory)
                place_of = place.with_name(f"{place.name}-{number}")
                flight = subprocess.Popen(
                    [*CRITPATH, "record", *words, *asked.options, "-o", str(place_of)],
                    stderr=subprocess.PIPE,
                    text=True,
                )
                assert flight.stderr is not None
                next(line for line in flight.stderr if "profile" in line)
            time.sleep(2)
            before, begun = sum(cpu_time(one.pid) for one in load), time.monotonic()
            time.sleep(asked.seconds)
            took = sum(cpu_time(one.pid) for one in load) - before
            spent[flies] = took / (time.monotonic() - begun)
            if flight is not None:
                flight.terminate()
                flight.communicate()
        more.append(spent[True] / spent[False] - 1)
        print(f"  {100 * spent[False]:.1f} % of a cpu without, {100 * spent[True]:.1f} % with")
    return sorted(more)


def show(rate: float, without: dict, beside: dict) -> None:
    """Print what became of the two flights."""
    print(f"\n## {rate:g} requests/s\n{beside['line']}")
    for name, of in (("without", without), ("with", beside)):
        overhead = of["overhead"]
        print(
            f"{name} dumps: recorded {100 * of['covers']:.1f} % of the time, "
            f"{100 * overhead['counted']:.2f} % counted of {100 * overhead['target']:g} %, "
            f"recorder's threads {100 * of['own']:.2f} % of a cpu, profile {of['profile']}"
        )
    took = sorted(beside["took"]) or [0.0]
    print(
        f"dumps: {beside['made']} made, {beside['refused']} refused, "
        f"{took[len(took) // 2]:.1f} s each, {beside['dumps']['cpu']:.1f} s of cpu in all; "
        f"recorded {beside['covers'] / max(without['covers'], 1e-9):.1%} of what it is without"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="of each flight")
    parser.add_argument("--every", type=float, default=10.0, help="s from a dump to the next")
    parser.add_argument("--rates", default="0,2000", help="requests a second")
    parser.add_argument("--overhead", default="1%")
    parser.add_argument("--memory", default="64M")
    parser.add_argument("--pairs", type=int, default=0, help="turns without and with a flight")
    parser.add_argument("options", nargs="*", help="of the flight recorder, after --")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as top:
        for number, rate in enumerate(map(float, asked.rates.split(","))):
            load = []
            if rate:
                server = subprocess.Popen(
                    [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True
                )
                assert server.stdout is not None
                words = [sys.executable, "-c", CLIENT, server.stdout.readline().strip(), str(rate)]
                load = [server, subprocess.Popen(words)]
                time.sleep(1)
            if asked.pairs and load:
                place = Path(top) / f"paired-{os.getpid()}-{number}"
                more = measure(place, asked, load)
                low, middle, high = (more[len(more) * k // 4] for k in (1, 2, 3))
                print(
                    f"{rate:g} requests/s, {asked.pairs} pairs: {middle:+.1%} of the load's cpu "
                    f"time (middle half {low:+.1%} to {high:+.1%})"
                )
            if asked.pairs:
                for process in load:
                    process.kill()
                    process.wait()
                continue
            without, beside = (
                fly(Path(top) / f"dumps-{os.getpid()}-{number}-{name}", asked, every)
                for name, every in (("without", 0.0), ("with", asked.every))
            )
            for process in load:
                process.kill()
                process.wait()
            show(rate, without, beside)
    print(f"\nload {os.getloadavg()[0]:.1f} on {os.cpu_count()} cpus")


if __name__ == "__main__":
    main()
