"""How surely requests of real servers are found: ``python run.py DIR [CASE ...]``.

Starts each server (`cases.py`), asks it over 1, 4, 16 and 64 connections (`client.c`), idle and
beside a neighbour on every cpu, records that with the profile ``requests``, and compares what
critpath finds with what the client and the handlers logged (`judge.py`). The table goes to
``DIR/requests.md``, every count to ``DIR/requests.json``. Needs root, tracefs, Linux 6.3 and what
Debian and PyPI have of the servers; what is missing is skipped and said.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cases import CASES, PACKAGES, PORTS, SHARING, STREAMS, Case, Park

CONNECTIONS: Final = "1,4,16,64"
_BUSY: Final = "while True: pass"


def main() -> None:
    """Record and judge, or judge what was recorded."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("--requests", type=int, default=320, help="of each recording")
    parser.add_argument("--connections", default=CONNECTIONS, help="numbers, with commas between")
    parser.add_argument(
        "--think", type=int, default=2000, help="us at most between two requests of a connection"
    )
    parser.add_argument("--loads", default="idle,busy", help="without and with neighbours")
    parser.add_argument("--python", type=Path, help="an interpreter that has the servers' packages")
    parser.add_argument(
        "--critpath",
        type=shlex.split,
        default=[str(Path(sys.executable).with_name("critpath"))],
        help="how to record",
    )
    parser.add_argument(
        "--tasks", action="store_true", help="ask the servers' runtimes which task runs"
    )
    parser.add_argument("--labels", default="", help="as --labels-from: bytes, bytes,traceparent")
    parser.add_argument("--judge-only", action="store_true")
    parser.add_argument("--record-only", action="store_true")
    parser.add_argument("names", nargs="*", help="cases of cases.py (default: all)")
    given = parser.parse_intermixed_args()
    place: Path = given.place.resolve()
    unknown = {*given.names} - {*CASES}
    if unknown:
        sys.exit(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    names = given.names or [*CASES]
    if not given.judge_only:
        record(place, given, names)
    if given.record_only:
        return
    from judge import judge, judge_neighbours, judge_sharing

    judge_sharing(place, names)
    judge(place, [name for name in names if CASES[name].mode not in SHARING])
    judge_neighbours(place, names, given.critpath[-1])


def record(place: Path, given: argparse.Namespace, names: list[str]) -> None:
    """Record every case; the servers run meanwhile, and no longer."""
    python = given.python or make_python(place)
    with Park.opened(python, tasks=given.tasks) as park:
        for name in names:
            missing = park.missing(CASES[name])
            if missing:
                print(f"{name}: skipped, not installed: {missing}")
                continue
            for connections in map(int, given.connections.split(",")):
                with park.serving(CASES[name]):
                    for load in given.loads.split(","):
                        busy = load == "busy"
                        to = place / name / f"{connections}{'-busy' if busy else ''}"
                        with neighbour(busy=busy):
                            record_one(park, CASES[name], connections, given, to)


def record_one(
    park: Park, case: Case, connections: int, given: argparse.Namespace, to: Path
) -> None:
    """Record one number of connections; before that a few requests that warm the server up."""
    if to.exists():
        shutil.rmtree(to)
    to.mkdir(parents=True)

    def client(requests: int, output: Path) -> list[str]:
        words = (PORTS["served"], connections, requests, case.mode, given.think, output, case.depth)
        by = ["node", STREAMS, "ask"] if case.mode in SHARING else [str(park.place / "client")]
        return [*by, *map(str, words)]

    pushes = case.mode in {"ws", "sse"}
    shared = 6 if pushes else 120 if case.mode in SHARING else 0
    requests = max(0 if pushes else given.requests, shared * connections)
    warms, asks = client(max(40, 2 * connections), to / "client"), client(requests, to / "client")
    if given.labels:
        # What a statement that was prepared before says is not known: it is recorded, too.
        asks = ["sh", "-c", f"{shlex.join(warms)} && : > {park.truth} && {shlex.join(asks)}"]
    else:
        subprocess.run(warms, check=True)
    os.truncate(park.truth, 0)
    subprocess.run(
        [
            *(*given.critpath, "record", "--quiet", "--no-probe", "--force"),
            *("--profile", "requests", *["--tasks"] * given.tasks),
            *(("--labels-from", given.labels) if given.labels else ()),
            *("-o", str(to / "recording"), "--"),
            *asks,
        ],
        check=True,
    )
    shutil.copy(park.truth, to / "handlers")
    if not case.logs:
        (to / "threads").write_text(" ".join(map(str, park.threads())))
    print(f"recorded {to}", flush=True)


@contextlib.contextmanager
def neighbour(*, busy: bool) -> Iterator[None]:
    """Keep every cpu busy meanwhile."""
    count = os.cpu_count() or 1 if busy else 0
    others = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for one in others:
            one.kill()
            one.wait()


def make_python(place: Path, *more: str) -> Path:
    """Return an interpreter with the servers' packages and more, made below the directory."""
    python = place / "python/bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place / "python")], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", *PACKAGES, *more], check=True
        )
        if shutil.which("npm"):
            command = ["npm", "install", "--silent", "--prefix", str(place / "node"), "pg"]
            subprocess.run(command, check=True)
    return python


if __name__ == "__main__":
    main()
