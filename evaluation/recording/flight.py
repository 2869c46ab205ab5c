"""A flight recorder beside a real server: what it sees, what it saves, what it costs.

``python evaluation/recording/flight.py`` (root, Debian's redis-server) starts Redis and a client
with three threads, each execution of which is marked, and a flight recorder beside them.  Each
fault comes after a healthy time: the condition has to fire, and `critpath compare` of a dump of
before with one of the fault to say what it is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "marks"))

from critpath_marks import execution

CRITPATH = (sys.executable, "-P", "-m", "critpath")
KEYS = 100_000
BUSY = (sys.executable, "-c", "while True: pass")


class Redis:
    """A connection that speaks just enough of Redis's protocol."""

    def __init__(self, path: Path) -> None:
        self._own = socket.socket(socket.AF_UNIX)
        self._own.connect(str(path))
        self._lines = self._own.makefile("rb")

    def ask(self, *words: str) -> None:
        parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
        self._own.sendall(f"*{len(parts)}\r\n{''.join(parts)}".encode())
        self._read()

    def _read(self) -> None:
        line = self._lines.readline()
        if line[:1] == b"-" or not line:
            raise RuntimeError(line)
        if line[:1] == b"$" and int(line[1:]) >= 0:
            self._lines.read(int(line[1:]) + 2)
        for _ in range(int(line[1:]) if line[:1] == b"*" else 0):
            self._read()


def work(path: Path, slow: Path, seed: int) -> None:
    """Send marked checkouts, some of which look through all keys while a file is there."""
    coin, server = random.Random(seed), Redis(path)  # noqa: S311 - a load
    while True:
        with execution("checkout"):
            server.ask("GET", f"k{coin.randrange(KEYS)}")
            if coin.random() < 0.1 and slow.exists():
                server.ask("KEYS", "nothing*")
            server.ask("INCR", "orders")
        time.sleep(coin.expovariate(50))


def client(path: Path, slow: Path) -> None:
    threads = [threading.Thread(target=work, args=(path, slow, seed)) for seed in range(3)]
    for thread in threads:
        thread.start()


def cpu_time(pid: int) -> float:
    """Return the cpu time of a process's threads (s)."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def ask(place: Path, *words: str) -> dict:
    done = subprocess.run(
        [*CRITPATH, "dump", place, "--json", *words], stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


def save(place: Path, reason: str) -> str:
    """Return a dump that is made within a minute; how often it was refused is printed."""
    for refused in range(45):
        with contextlib.suppress(subprocess.CalledProcessError):
            dump: str = ask(place, "--reason", reason)["dump"]
            if refused:
                print(f"a dump ({reason}) was refused {refused} times: nothing was recorded yet")
            return dump
        time.sleep(1)
    return ""


def dumps(place: Path) -> list[Path]:
    return sorted(p for p in place.iterdir() if "-latency-" in p.name and p.name[0] != ".")


@contextlib.contextmanager
def running(*words: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def show(place: Path, asked: argparse.Namespace, fault: str, slow: Path) -> None:
    """Let a fault come after a healthy time, and print what became of it."""
    limit = f"latency checkout > {asked.limit}"
    flight = (*CRITPATH, "record", "--always", "--overhead", asked.overhead, "--memory", "64M")
    with running(*flight, "--when", limit, "-o", place) as recorder:
        assert recorder.stderr is not None
        line = next(line for line in recorder.stderr if "profile" in line)
        print(f"\n## {fault}\n{line.strip()}")
        before, begun = cpu_time(recorder.pid), time.monotonic()
        time.sleep(asked.seconds)
        used = (cpu_time(recorder.pid) - before) / (time.monotonic() - begun)
        status, early = ask(place, "--status"), len(dumps(place))
        overhead = status["overhead"]
        print(
            f"{asked.seconds:g} s healthy: recorder {100 * used:.2f} % of a cpu, overhead "
            f"{100 * overhead['counted']:.2f} % counted of {100 * overhead['target']:g} %, "
            f"recorded {100 * status['covers']:.0f} % of the time, {early} dumps by the condition"
        )
        healthy = save(place, "healthy")
        with contextlib.ExitStack() as stack:
            begun = time.monotonic()
            if fault == "slow":
                slow.touch()
                stack.callback(slow.unlink)
            else:
                for _ in range(4 * (os.cpu_count() or 1)):
                    stack.enter_context(running(*BUSY))
            while len(dumps(place)) == early and time.monotonic() < begun + 120:
                time.sleep(0.2)
            if len(dumps(place)) == early:
                print("the condition did not fire in 120 s")
            else:
                manifest = json.loads((dumps(place)[-1] / "critpath.json").read_text())
                held = (manifest["trigger"]["at"] - manifest["begin"]) / 1e9
                print(
                    f"dump {time.monotonic() - begun:.1f} s after the fault began, because of "
                    f"{manifest['trigger']['value']}; holds {held:.1f} s before the trigger"
                )
            time.sleep(asked.seconds / 2)
            faulty = save(place, fault)
        closed = ask(place, "--status")["dumps"]["closed"]
        print(f"gates closed for {1000 * closed:.0f} ms at the last dump")
    if not (healthy and faulty):
        print("no dump was made in a minute: under so small a budget nothing was recorded")
        return
    done = subprocess.run(
        [*CRITPATH, "compare", healthy, faulty],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(f"compare, exit code {done.returncode}:\n{done.stdout.partition(chr(10) * 2)[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="of healthy time")
    parser.add_argument("--limit", default="30ms", help="of a checkout, for --when")
    parser.add_argument("--overhead", default="1%")
    parser.add_argument("--faults", default="slow,neighbour")
    parser.add_argument("--client", nargs=2, type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.client:
        client(*asked.client)
        return
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        path, slow = top / "redis.sock", top / "slow"
        words = ("--port", "0", "--unixsocket", path, "--save", "", "--dir", top)
        with running("redis-server", *words):
            while not path.exists():
                time.sleep(0.1)
            fill = f"for i = 1, {KEYS} do redis.call('SET', 'k' .. i, i) end"
            Redis(path).ask("EVAL", fill, "0")
            with running(sys.executable, __file__, "--client", path, slow):
                for fault in asked.faults.split(","):
                    show(top / f"flight-{fault}-{os.getpid()}", asked, fault, slow)
    print(f"\nload {os.getloadavg()[0]:.1f} on {os.cpu_count()} cpus")


if __name__ == "__main__":
    main()
