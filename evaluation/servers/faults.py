"""Eight faults of pools and loops: ``python faults.py DIR [FAULT ...]``; is the first cause right?

Servers of Python, Node.js, Java and Go with a real PostgreSQL, each recorded as it should be and
with a fault, beside a neighbour that keeps one cpu busy, and compared. What counts as right
(`FAULTS`) was written before the first run. A row for each fault: what critpath names first.
Needs what `run.py` needs, and of Debian libhikaricp-java, libpostgresql-jdbc-java and
golang-github-lib-pq-dev; what is missing is skipped and said.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cases import HERE, PORTS, Case, Park
from run import make_python

_JARS: Final = ":".join(
    f"/usr/share/java/{name}.jar" for name in ("HikariCP", "postgresql", "slf4j-api", "slf4j-nop")
)
_JAVA: Final = (
    *("java", "-Dsun.net.httpserver.nodelay=true", "-cp", f"{{place}}:{_JARS}"),
    *("Faulty", "{served}", "{postgres}"),
)
_UVICORN: Final = ("{bin}/uvicorn", "--port", "{served}", "--log-level", "error", "faulty:answer")
_NODE: Final = ("node", str(HERE / "faulty.js"), "{served}", "{postgres}")
_THREADS: Final = ("{python}", str(HERE / "faulty.py"), "threads", "{served}")
_GO: Final = ("{place}/faulty", "{served}", "{postgres}")
_PRICING: Final = ("{python}", str(HERE / "faulty.py"), "pricing", "{served}")
_CONNECTIONS, _REQUESTS, _THINK = 8, 400, 40_000
_BUSY: Final = "import ctypes\nctypes.CDLL(None).prctl(15, b'neighbour', 0, 0, 0)\nwhile True: pass"


@dataclass(frozen=True)
class Fault:
    """A fault of a server.

    Attributes
    ----------
    what : str
    command : tuple of str
        As of `cases.Case`.
    right : tuple of str
        Regular expressions: the sentence of the first cause matches each, whatever the case.
    label : str
        Of the requests that are compared: all, or those that have no fault of their own.
    arguments : (tuple of str, tuple of str)
        More of the command, as it should be and with the fault.
    fault : str
        What ``FAULT`` says.
    """

    what: str
    command: tuple[str, ...]
    right: tuple[str, ...]
    label: str = ""
    arguments: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    fault: str = ""


_POOL: Final = (r"connections? to postgres",)
_SIZES: Final = (("8",), ("2",))
FAULTS: Final = {
    "asyncio-blocking": Fault(
        "a call on the loop that blocks it", _UVICORN,
        (r"loop", r"block", r"pricing"), "GET /order", fault="blocking",
    ),
    "asyncio-cpu": Fault(
        "other requests compute on the loop", _UVICORN,
        (r"loop|behind other", r"GET /stock"), "GET /order", fault="cpu",
    ),
    "asyncpg-pool": Fault(
        "asyncpg has 2 connections instead of 8", _UVICORN, (*_POOL, "2"), fault="pool",
    ),
    "sqlalchemy-report": Fault(
        "a slow query holds the pool (SQLAlchemy, threads)", _THREADS,
        (*_POOL, r"select.*stocks"), "GET /order", fault="report",
    ),
    "node-pool": Fault(
        "pg has 2 connections instead of 8 (Node.js)", _NODE, (*_POOL, "2"), fault="pool",
    ),
    "node-sync": Fault(
        "pbkdf2Sync on the loop (Node.js)", _NODE,
        (r"loop|behind other", r"GET /stock"), "GET /order", fault="sync",
    ),
    "java-hikari": Fault(
        "HikariCP has 2 connections instead of 8", _JAVA, (*_POOL, "2"), arguments=_SIZES,
    ),
    "go-sql": Fault(
        "database/sql has 2 connections instead of 8", _GO, (*_POOL, "2"), arguments=_SIZES,
    ),
}  # fmt: skip


def main() -> None:
    """Record what is not there yet, and compare."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("--python", type=Path, help="an interpreter that has the servers' packages")
    parser.add_argument(
        "--critpath",
        type=shlex.split,
        default=[str(Path(sys.executable).with_name("critpath"))],
        help="how to record",
    )
    parser.add_argument("--requests", type=int, default=_REQUESTS, help="of each recording")
    parser.add_argument("--tasks", action="store_true", help="ask runtimes which task runs")
    parser.add_argument("--unlabelled", action="store_true", help="compare all, without labels")
    parser.add_argument("names", nargs="*", help="faults (default: all)")
    given = parser.parse_intermixed_args()
    place: Path = given.place.resolve()
    names = given.names or [*FAULTS]
    wanted = [name for name in names if not (place / name / "fault").exists()]
    if wanted:
        record(place, wanted, given)
    print("| fault | first cause | right | verdict |\n|---|---|---|---|")
    rows = [compare(given, name, place / name) for name in names if (place / name).exists()]
    print(f"\n{sum(rows)} of {len(rows)} first causes are right.")


def record(place: Path, names: list[str], given: argparse.Namespace) -> None:
    """Record each server as it should be, and with its fault."""
    place.mkdir(parents=True, exist_ok=True)
    python = given.python or make_python(place)
    with Park.opened(python, tasks=given.tasks) as park:
        for name in names:
            fault = FAULTS[name]
            if missing := build(park, fault.command):
                print(f"{name}: skipped, not installed: {missing}")
                continue
            for side, more in zip(("normal", "fault"), fault.arguments, strict=True):
                is_wrong = {"FAULT": fault.fault if side == "fault" else ""}
                served = Case(fault.what, (*fault.command, *more), environment=is_wrong)
                with neighbour(), park.serving(served, Case("prices", _PRICING)):
                    record_one(park, place / name / side, given)


def build(park: Park, command: tuple[str, ...]) -> str:
    """Compile a server that is compiled; return what is missing, "" for nothing."""
    needs = [*_JARS.split(":"), "/usr/bin/javac"] if command == _JAVA else []
    if command == _GO:
        needs = ["/usr/share/gocode/src/github.com/lib/pq", "/usr/bin/go"]
    if missing := [need for need in needs if not Path(need).exists()]:
        return ", ".join(missing)
    words: list[str] = []
    if command == _JAVA:
        words = ["javac", "-cp", _JARS, "-d", str(park.place), str(HERE / "Faulty.java")]
    elif command == _GO:
        words = ["go", "build", "-o", str(park.place / "faulty"), str(HERE / "faulty.go")]
    if words:
        paths = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "CGO_ENABLED": "0"}
        cache = {"GOCACHE": str(park.place / "go")}
        subprocess.run(words, check=True, env={**os.environ, **paths, **cache})
    return ""


def record_one(park: Park, to: Path, given: argparse.Namespace) -> None:
    """Record the client's requests, after a few that warm the server up."""
    to.mkdir(parents=True)

    def client(requests: int) -> str:
        words = (PORTS["served"], _CONNECTIONS, requests, "http-shop", _THINK, to / "client")
        return shlex.join([str(park.place / "client"), *map(str, words)])

    subprocess.run(["sh", "-c", client(60)], check=True)
    subprocess.run(
        [
            *(*given.critpath, "record", "--quiet", "--no-probe", "--profile", "requests"),
            *("--labels-from", "bytes", *["--tasks"] * given.tasks, "-o", str(to / "recording")),
            *("--", "sh", "-c", client(given.requests)),
        ],
        check=True,
    )
    print(f"recorded {to}", flush=True)


@contextlib.contextmanager
def neighbour() -> Iterator[None]:
    """Keep a cpu busy meanwhile."""
    busy = subprocess.Popen([sys.executable, "-c", _BUSY])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def compare(given: argparse.Namespace, name: str, place: Path) -> bool:
    """Print a row; tell whether the first cause is right."""
    fault = FAULTS[name]
    execution = f"requests:port={PORTS['served']}"
    if fault.label and not given.unlabelled:
        execution += f",label=~{fault.label}"
    sides = [str(place / side / "recording") for side in ("normal", "fault")]
    done = subprocess.run(
        [given.critpath[-1], "compare", "--quiet", *sides, "--json", "-", "--execution", execution],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        document = json.loads(done.stdout)
    except ValueError:
        print(f"| {name} | failed ({done.returncode}): {done.stderr.strip()[-200:]} | no | |")
        return False
    first = next(iter(document["causes"]), {"sentence": document["verdict"]})["sentence"]
    right = all(re.search(text, first, re.IGNORECASE) for text in fault.right)
    said = "yes" if right else "no"
    print(f"| {name}: {fault.what} | {first} | {said} | {document['verdict']} |", flush=True)
    return right


if __name__ == "__main__":
    main()
