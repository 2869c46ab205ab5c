"""Whether dumps of a flight recorder name the slow function, and what that costs.

``python evaluation/locations/flights.py [--budgets 1%,3%] [--seconds N] [--pairs N] [--json F]``:
three servers that nobody touches (``locations/programs/served.*``: Python, C without frame
pointers, Node.js with ``--perf-basic-prof``) are asked some 200 times a second.  For each budget a
flight recorder with ``--stacks auto`` runs beside it: it saves what is usual, then a function
becomes slow, and it saves that.  Told is whether the first cause of ``critpath compare`` names the
function, for how much of the time paths and stacks were taken, what was counted, and how long a
dump took.  ``--pairs``: the machine's cpu time a request with a flight of the first budget, and
without, in turns: median of the ratios, and the middle half of them.

Needs root, tracefs, perf, gcc and node.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).resolve().parents[1]))
from results import write_results

CRITPATH: Final = (sys.executable, "-P", "-m", "critpath")
PLACE: Final = Path(__file__).resolve().parent / "programs"
PORT: Final = 7841
CLIENTS, RATE = 4, 50.0  # requests a second of each
# What each runs, and the function that becomes slow.
SERVERS: Final = {
    "Python": ((sys.executable, PLACE / "served.py"), "flush_log"),
    "C": (("served",), "flush_log"),
    "Node.js": (("node", "--perf-basic-prof", PLACE / "served.js"), "hashPassword"),
}


class Asking:
    """Clients that ask until they are told to end."""

    def __init__(self) -> None:
        self.answered, self._ending = 0, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _ask(self, number: int) -> None:
        chance = random.Random(number)  # noqa: S311 - pauses
        client = http.client.HTTPConnection("127.0.0.1", PORT)
        while not self._ending.is_set():
            client.request("GET", "/cart")
            client.getresponse().read()
            self.answered += 1
            time.sleep(chance.expovariate(RATE))

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()


@contextlib.contextmanager
def served(words: tuple[Any, ...], slow: Path) -> Iterator[Asking]:
    """Run a server, and clients that ask it."""
    command = [*map(str, words), str(PORT), str(slow)]
    server = subprocess.Popen(command, cwd=slow.parent)  # node writes a log where it works
    try:
        time.sleep(1)
        asking = Asking()
        try:
            yield asking
        finally:
            asking.end()
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def flying(place: Path, budget: str, *words: str) -> Iterator[None]:
    """Run a flight recorder until it says that it is ready, and on."""
    command = [*CRITPATH, "record", "--always", "--overhead", budget, "--usual", "0"]
    log = (place.parent / f"{place.name}.log").open("w+")
    flight = subprocess.Popen([*command, *words, "-o", str(place)], stderr=log)
    try:
        while "flight recorder: profile" not in Path(log.name).read_text():
            if flight.poll() is not None:
                sys.exit(Path(log.name).read_text())
            time.sleep(0.1)
        yield
    finally:
        flight.send_signal(signal.SIGINT)
        flight.wait()
        log.close()


def dump(place: Path, reason: str) -> tuple[Path, float]:
    begin = time.monotonic()
    command = [*CRITPATH, "dump", str(place), "--reason", reason]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return Path(done.stdout.strip()), time.monotonic() - begin


def find_function(usual: Path, after: Path, function: str) -> tuple[bool, str]:
    """Return whether the first cause names a function, and where it says that it is."""
    out = after.parent / "compared.json"
    words = ("--execution", f"requests:port={PORT}", "--json", str(out))
    command = [*CRITPATH, "compare", str(usual), str(after), *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if not out.exists():
        return False, done.stderr.split("\n", 1)[0]
    causes = json.loads(out.read_text())["causes"]
    facts = causes[0]["facts"] if causes else {}
    said = [facts.get(key) or "" for key in ("location", "waits_at", "waker_location")]
    said += [one["location"] for one in facts.get("locations") or ()]
    named = any(text.startswith(f"{function} (") for text in said)
    return named, next(filter(None, said), "no place")


def try_server(name: str, budget: str, top: Path, seconds: float) -> dict[str, Any]:
    words, function = SERVERS[name]
    slow, place = top / "slow", top / f"{name}-{budget.rstrip('%')}"
    slow.unlink(missing_ok=True)
    if name == "C":
        words = (top / "served",)
    with served(words, slow), flying(place, budget, "--stacks", "auto"):
        time.sleep(seconds)
        usual, _ = dump(place, "usual")
        slow.touch()
        time.sleep(seconds)
        after, took = dump(place, "slow")
    named, where = find_function(usual, after, function)
    manifest = json.loads((after / "critpath.json").read_text())
    covers = {layer: of["covers"] for layer, of in manifest["layers"].items()}
    found = {"program": name, "budget": budget, "named": named, "where": where, "covers": covers}
    return found | {"counted": manifest["overhead"]["counted"], "dump": round(took, 1)}


def busy_time() -> float:
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(fields[at]) for at in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")


def measure_pairs(count: int, budget: str, top: Path, seconds: float) -> list[float]:
    """Return by how much more cpu time a request takes with a flight, of each pair of turns."""
    chance, ratios = random.Random(1), []  # noqa: S311 - an order
    with served(SERVERS["Python"][0], top / "never") as asking:
        for number in range(count):
            each = {}
            for with_flight in chance.sample((True, False), 2):
                recorder = flying(top / f"pair-{number}", budget, "--stacks", "auto")
                with recorder if with_flight else contextlib.nullcontext():
                    time.sleep(2)
                    busy, answered = busy_time(), asking.answered
                    time.sleep(seconds)
                    each[with_flight] = (busy_time() - busy) / (asking.answered - answered)
            ratios.append(each[True] / each[False] - 1)
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budgets", default="1%,3%")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each state")
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--only", default=",".join(SERVERS))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    found: dict[str, Any] = {"tried": []}
    with tempfile.TemporaryDirectory(prefix="critpath-flights-") as made:
        top = Path(made)
        build = ("gcc", "-O2", "-g", "-fomit-frame-pointer", "-pthread", "-o", top / "served")
        subprocess.run([*build, PLACE / "served.c"], check=True)
        for budget in filter(None, chosen.budgets.split(",")):
            for name in chosen.only.split(","):
                row = try_server(name, budget, top, chosen.seconds)
                found["tried"].append(row)
                covers = ", ".join(f"{of} {100 * v:.0f} %" for of, v in row["covers"].items())
                print(
                    f"{budget:>4} {name:8} {'named' if row['named'] else 'NOT NAMED'}: "
                    f"{row['where']}; {covers}; counted {100 * row['counted']:.2f} %; "
                    f"dump {row['dump']} s; load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
        if chosen.pairs:
            budget = chosen.budgets.split(",")[0]
            ratios = measure_pairs(chosen.pairs, budget, top, chosen.seconds)
            found["pairs"] = ratios
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(
                f"cpu time a request at {budget}: {100 * middle:+.2f} % (middle half "
                f"{100 * low:+.2f} to {100 * high:+.2f}), {len(ratios)} pairs of "
                f"{chosen.seconds:g} s; load {os.getloadavg()[0]:.1f}"
            )
    if chosen.json:
        write_results(chosen.json, found)


if __name__ == "__main__":
    main()
