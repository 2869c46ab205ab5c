"""A night of the stack: twelve faults, each once at a random moment, beside a busy neighbour.

``python night.py [--critpath C] [--python P] [--slot 80s] ...`` (root; see stack.py for what it
needs). A flight recorder and `critpath incidents` run beside the servers; nobody touches these.
Two hours would have a fault every ten minutes: --slot says how long one has here, --usual how
often what is usual is saved. The truth (`faults.py`, which is on when) is in DIR/truth.json
before anything is recorded. A table says which was noticed, when, by what line, and at which cost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "weather"))

from faults import FAULTS, Fault, end, run_busy, switched_on
from judge import weigh_sentence
from results import write_results
from stack import PORTS, Stack

HERE: Final = Path(__file__).resolve().parent
_ASKED: Final = 12.0  # s after a fault began, where somebody notices it by hand
_BEGINS: Final = (0.1, 0.3)  # of its slot
_LASTS: Final = 0.5  # of its slot
_NEIGHBOUR: Final = (0.35, 0.02)  # of a cpu, and s of one turn
_SLOWER: Final = frozenset({"anomaly", "by_machine"})


@dataclass
class Slot:
    """A fault's time, and what was said in it."""

    fault: str
    whose: str
    what: str
    on: float  # s since 1970
    off: float
    neighbour: bool
    noticed: float | None = None  # s from on to the alarm
    said: float | None = None  # s from the dump to the line
    worth: str = "missed"
    line: str = ""
    before: float = 0.0  # ms, of its kind by the client: the 99th percentile of the time before
    during: float = 0.0
    others: list[str] = field(default_factory=list)


class Incidents:
    """`critpath incidents --follow`, and when it said what."""

    def __init__(self, critpath: Sequence[str], flight: Path, place: Path, log: Path) -> None:
        words = [*critpath, "incidents", flight, "-o", place, "--follow", "--json"]
        self.found: list[tuple[float, dict[str, Any]]] = []
        self._log = log.open("w")
        self.process = subprocess.Popen(
            [str(word) for word in words], stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.found.append((time.time(), json.loads(line)))

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(300)  # the dump that it looks at
        self._thread.join(10)
        self._log.close()


def measure_cpu(pid: int) -> float:
    """Return the cpu time of a process's threads, and of its children that ended (s)."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ended = (int(stat[13]) + int(stat[14])) / 100
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return ended + sum(int(file.read_text().split()[0]) for file in files) / 1e9


@contextlib.contextmanager
def running(words: Sequence[object], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen([str(word) for word in words], stdout=file, stderr=file)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(90)


class Neighbour:
    """A busy program that is nobody's fault: it takes some of a cpu while it is on."""

    def __init__(self) -> None:
        self._busy: list[subprocess.Popen[bytes]] = []
        self._stop = threading.Event()

    def switch(self, *, on: bool) -> None:
        if on and not self._busy:
            self._busy = [run_busy("neighbour")]
            self._stop = threading.Event()
            threading.Thread(
                target=self._pace, args=(self._busy[0], self._stop), daemon=True
            ).start()
        elif not on and self._busy:
            self._stop.set()
            end(self._busy)
            self._busy = []

    def _pace(self, process: subprocess.Popen[bytes], stop: threading.Event) -> None:
        """Let it run some of the time."""
        share, turn = _NEIGHBOUR
        while not stop.is_set():
            process.send_signal(signal.SIGCONT)
            time.sleep(turn * share)
            process.send_signal(signal.SIGSTOP)
            time.sleep(turn * (1 - share))


def plan(faults: Sequence[Fault], begin: float, slot: float, seed: int) -> list[Slot]:
    """Draw the order of faults, when each begins, and beside which the neighbour is busy."""
    coin = random.Random(seed)
    slots = []
    for number, fault in enumerate(coin.sample(faults, len(faults))):
        on = begin + slot * (number + coin.uniform(*_BEGINS))
        slots.append(
            Slot(fault.name, fault.whose, fault.what, on, on + slot * _LASTS, coin.random() < 0.5)
        )
    return slots


def read_times(file: Path, kinds: Sequence[str], first: float, last: float) -> list[float]:
    """Return how long the client's requests took that ended within a time (ms)."""
    rows = (line.split() for line in file.read_text().splitlines())
    return sorted(
        float(row[2]) for row in rows
        if len(row) == 4 and row[1] in kinds and first <= float(row[0]) < last
    )  # fmt: skip


def highest(times: list[float]) -> float:
    """Return the 99th percentile."""
    return times[int(0.99 * len(times))] if times else 0.0


def judge(slots: list[Slot], found: list[tuple[float, dict[str, Any]]], usual: float) -> list[str]:
    """Hold what was said against the truth; return the lines of false alarms."""
    from critpath.report.document import load_document
    from critpath.text.incidents import describe_incident

    truths = {fault.name: asdict(fault) for fault in FAULTS}
    false = []
    for said, plain in found:
        at = datetime.fromisoformat(plain["last"]).timestamp()
        line = describe_incident(load_document(json.dumps(plain).encode()))
        # Moments are whole seconds; what is usual is looked at once in a while.
        slot = next((s for s in slots if s.on - 1 <= at <= s.off + 2), None)
        late = next((s for s in slots if s.off < at <= s.off + usual + 2), None)
        if plain["verdict"] not in _SLOWER:
            if slot is not None and slot.noticed is None:
                slot.noticed, slot.said, slot.line = at - slot.on, said - made_at(plain), line
                slot.worth = "inconclusive" if plain["verdict"] == "inconclusive" else "wrong"
        elif slot is None:
            if late is None:
                false.append(line)
            else:
                late.others.append(line)
        elif slot.worth not in {"missed", "inconclusive"}:
            slot.others.append(line)
        else:
            noticed = at - slot.on
            slot.noticed = noticed if slot.noticed is None else slot.noticed
            slot.said, slot.line = said - made_at(plain), line
            slot.worth = weigh_sentence(_strip(line), truths[slot.fault])
            if (plain["verdict"] == "by_machine") != (slot.whose == "machine"):
                slot.worth = "wrong" if slot.whose == "program" else "partly"
            if datetime.fromisoformat(plain["when"]).timestamp() < slot.on - 1:
                slot.worth = "wrong"  # told as an earlier one that goes on
    return false


def made_at(plain: dict[str, Any]) -> float:
    """Return when the last dump of an incident was made, after what it has of the time after."""
    name = plain["dumps"][-1]
    return datetime.strptime(name[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _strip(line: str) -> str:
    """Return a line without its moment and kind, which name servers in any case."""
    return re.split(r"(?<=s|%): |: ", line, maxsplit=1)[-1]


def spend_night(given: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Run everything; return what was found."""
    critpath = given.critpath.split()
    stack = Stack(place / "stack", given.python)
    slots: list[Slot] = []
    flight, kept, asked = place / "flight", place / "incidents", place / "requests.txt"
    chosen = [fault for fault in FAULTS if not given.faults or fault.name in given.faults]
    always = ("record", "--always", "--overhead", given.overhead, "--usual", given.usual,
              "--keep", given.history, "--after", "10s", "--at-most", "3600/h", "--dumps", 100,
              "-o", flight)  # fmt: skip
    conditions = given.when or ["signal USR2"]
    whole = given.healthy + given.slot * len(chosen)
    neighbour = Neighbour()
    with contextlib.ExitStack() as ending:
        if given.keep:
            ending.callback(keep, place, given.keep)
        ending.callback(stack.down)
        place.chmod(0o711)  # PostgreSQL is another user's
        stack.up()
        load = (given.python, HERE / "load.py", PORTS["nginx"], whole + 10, asked,
                "--rate", given.rate, "--seed", given.seed)  # fmt: skip
        ending.enter_context(running(load, place / "load.log"))
        time.sleep(5)
        words = [
            *given.recorder.split(),
            *always,
            *(w for c in conditions for w in ("--when", c)),
            *given.more,
        ]
        recorder = ending.enter_context(running(words, place / "flight.log"))
        begin = time.time() + given.healthy
        slots = plan(chosen, begin, given.slot, given.seed)
        (place / "truth.json").write_text(json.dumps([asdict(slot) for slot in slots], indent=1))
        if given.keep:
            ending.enter_context(copying(flight, place / "dumps"))
        looking = Incidents(critpath, flight, kept, place / "incidents.log")
        ending.callback(looking.close)
        ending.callback(neighbour.switch, on=False)
        time.sleep(max(0.0, begin - time.time()) / 2)
        own = measure_cpu(recorder.pid), measure_cpu(looking.process.pid), time.monotonic()
        time.sleep(max(0.0, begin - time.time()))
        for slot in slots:
            fault = next(fault for fault in FAULTS if fault.name == slot.fault)
            neighbour.switch(on=slot.neighbour)
            time.sleep(max(0.0, slot.on - time.time()))
            with switched_on(fault, stack.night):
                if not given.when:
                    time.sleep(_ASKED)
                    recorder.send_signal(signal.SIGUSR2)
                time.sleep(max(0.0, slot.off - time.time()))
            print(f"{slot.fault} was on for {time.time() - slot.on:.0f} s", flush=True)
        time.sleep(max(0.0, begin + given.slot * len(slots) - time.time()))
        seconds = time.monotonic() - own[2]
        ask = [*given.recorder.split(), "dump", str(flight), "--status", "--json"]
        status = subprocess.run(ask, capture_output=True, text=True, check=False)
        costs = {
            "recorder": (measure_cpu(recorder.pid) - own[0]) / seconds,
            "incidents": (measure_cpu(looking.process.pid) - own[1]) / seconds,
            "status": json.loads(status.stdout) if status.returncode == 0 else status.stderr,
        }
        time.sleep(given.settle)  # the last lines
        found = list(looking.found)
    return finish(slots, found, asked, given) | {"costs": costs}


def finish(
    slots: list[Slot],
    found: list[tuple[float, dict[str, Any]]],
    asked: Path,
    given: argparse.Namespace,
) -> dict[str, Any]:
    """Return what was said of each fault, beside what clients felt of it."""
    for slot in slots:
        kinds = {"shop": ["cart"], "feed": ["feed"]}
        where = next(fault.where for fault in FAULTS if fault.name == slot.fault)
        of = kinds.get(where, ["cart", "feed"])
        slot.before = highest(read_times(asked, of, slot.on - given.slot * 0.25, slot.on))
        slot.during = highest(read_times(asked, of, slot.on + 1, slot.off))
    false = judge(slots, found, _seconds(given.usual))
    return {
        "slots": [asdict(slot) for slot in slots],
        "false": false,
        "requests": len(asked.read_text().splitlines()),
        "load": Path("/proc/loadavg").read_text().split()[0],
    }


@contextlib.contextmanager
def copying(flight: Path, where: Path) -> Iterator[None]:
    """Keep each dump as it is made, while this lasts: the flight keeps few of what is usual."""
    where.mkdir()
    over = threading.Event()

    def copy() -> None:
        while not over.wait(2):
            for dump in [p for p in flight.glob("[0-9]*-*") if not (where / p.name).exists()]:
                subprocess.run(["cp", "-al", str(dump), str(where)], check=False)

    copies = threading.Thread(target=copy)
    copies.start()
    try:
        yield
    finally:
        over.set()
        copies.join()


def look_again(given: argparse.Namespace, night: Path) -> dict[str, Any]:
    """Hold the dumps of a kept night against the truth again: one after the other, each timed."""
    slots = [Slot(**slot) for slot in json.loads((night / "truth.json").read_text())]
    found: list[tuple[float, dict[str, Any]]] = []
    with tempfile.TemporaryDirectory(prefix="critpath-again-", dir="/var/tmp") as place:
        flight, kept = Path(place) / "flight", Path(place) / "incidents"
        flight.mkdir()
        dumps = night / "dumps"
        for dump in sorted(dumps.iterdir() if dumps.is_dir() else (night / "flight").glob("2*")):
            subprocess.run(["cp", "-a", str(dump), str(flight)], check=True)
            words = [*given.critpath.split(), "incidents", str(flight), "-o", str(kept), "--json"]
            begin = time.monotonic()
            done = subprocess.run(
                [*words, *given.looking], capture_output=True, text=True, check=False
            )
            took = time.monotonic() - begin
            print(f"{took:5.1f} s  {dump.name} {done.stderr.strip()}", flush=True)
            print(done.stdout[-6000:] if given.looking else "", end="", flush=True)
            for line in done.stdout.splitlines():
                plain = json.loads(line)
                found.append((made_at(plain) + took, plain))
    return finish(slots, found, night / "requests.txt", given)


def keep(place: Path, where: Path) -> None:
    """Keep dumps and incidents, which are looked at anew with another build."""
    subprocess.run(["cp", "-a", str(place), str(where)], check=True)


def _seconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(s|min|h)", text).groups()
    return float(number) * {"s": 1, "min": 60, "h": 3600}[unit]


def show(night: dict[str, Any]) -> Iterator[str]:
    """Yield the table of a night."""
    yield "| fault | p99 before, during | noticed after | line after | worth | line |"
    yield "|---|---|---:|---:|---|---|"
    for slot in night["slots"]:
        after = "-" if slot["noticed"] is None else f"{slot['noticed']:.0f} s"
        said = "-" if slot["said"] is None else f"{slot['said']:.1f} s"
        beside = ", neighbour" if slot["neighbour"] else ""
        line = slot["line"] or "; ".join(slot["others"])
        yield (
            f"| {slot['fault']}{beside} | {slot['before']:.0f} ms, {slot['during']:.0f} ms "
            f"| {after} | {said} | {slot['worth']} | {line.replace('|', '/')} |"
        )
    yield ""
    slots = night["slots"]
    noticed = [s for s in slots if s["noticed"] is not None]
    soon = sum(s["noticed"] <= 60 for s in noticed)
    right = sum(s["worth"] == "right" for s in slots)
    quick = sum(s["said"] <= 10 for s in noticed)
    yield (
        f"{soon} of {len(slots)} noticed within 60 s, {right} first sentences right, "
        f"{quick} lines within 10 s, {len(night['false'])} false alarms"
    )
    yield from (f"false alarm: {line}" for line in night["false"])
    yield f"{night['requests']} requests, load {night['load']}"
    if "costs" not in night:
        return
    costs, status = night["costs"], night["costs"]["status"]
    parts = (f"{name} {100 * costs[name]:.2f} %" for name in ("recorder", "incidents"))
    yield f"{', '.join(parts)} of a cpu"
    if isinstance(status, dict):
        yield (
            f"overhead {100 * status['overhead']['counted']:.2f} % counted of "
            f"{100 * status['overhead']['target']:g} %, recorded {100 * status['covers']:.0f} % "
            "of the time"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--critpath", default=f"{sys.executable} -P -m critpath")
    parser.add_argument("--recorder", help="another build for the flight recorder")
    parser.add_argument("--python", default=sys.executable, help="has the servers' packages")
    parser.add_argument("--overhead", default="1%")
    parser.add_argument("--usual", default="60s")
    parser.add_argument("--history", default="40s", help="that a dump has at most")
    parser.add_argument("--slot", type=float, default=80.0, help="s of a fault with what is around")
    parser.add_argument("--healthy", type=float, default=200.0, help="s before the first")
    parser.add_argument("--settle", type=float, default=30.0, help="s for the last lines")
    parser.add_argument("--rate", type=float, default=60.0, help="requests a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--when", action="append", help="conditions; without, a signal is sent")
    parser.add_argument("--faults", type=lambda text: text.split(","), help="only these")
    parser.add_argument("--more", type=str.split, default=[], help="more options of record")
    parser.add_argument("--keep", type=Path, help="keep all of it in this directory")
    parser.add_argument("--again", type=Path, help="judge what --keep kept with this build")
    parser.add_argument("--looking", type=str.split, default=[], help="more options of incidents")
    parser.add_argument("--json", type=Path, help="write what was found there")
    given = parser.parse_args()
    given.recorder = given.recorder or given.critpath
    if given.again:
        night = look_again(given, given.again)
    else:
        with tempfile.TemporaryDirectory(prefix="critpath-night-", dir="/var/tmp") as place:
            night = spend_night(given, Path(place))
    print("\n".join(show(night)))
    if given.json:
        write_results(given.json, night)


if __name__ == "__main__":
    main()
