"""Records servers on hosts of their own, with the truth: ``python record.py DIR [SET ...]``.

A set is WORK:PATTERN, as ``outer:3``; with ``:alike`` its first and last call are alike. For each,
``DIR/WORK-PATTERN-CONNECTIONS`` has ``recording`` (of the kernel that all hosts share), ``client``
and ``truth`` (who asked what for which request) and ``hosts.json`` (which thread is where). With
``--split`` ``hosts/NAME`` is what each host would have recorded, by its own clock; the clocks are
drawn from the seed and are in ``clocks.json``. Needs root, namespaces, tracefs and the servers;
says what is missing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import services
import spaces
from services import PATTERNS, WORKS, Services
from split import Clock, split

THINK: Final = 2000  # us at most between two requests of a client
_ALONE: Final = 8000  # the same, where one request comes after another


def main() -> None:
    """Record the sets that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("--connections", type=int, default=12, help="1: one after another")
    parser.add_argument("--requests", type=int, default=144)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--profile", default="requests")
    parser.add_argument("--split", type=int, metavar="SEED", help="write each host's recording")
    parser.add_argument("--pack", action="store_true", help="write SET.tar.xz beside each")
    parser.add_argument("--delay", default="", help="HOST:MEAN_US,JITTER_US,LOSS,SEED")
    parser.add_argument(
        "--critpath",
        type=shlex.split,
        default=[str(Path(sys.executable).with_name("critpath"))],
        help="how to record",
    )
    parser.add_argument("names", nargs="*", help="sets (default: all of work and patterns)")
    given = parser.parse_intermixed_args()
    lacks = spaces.missing() or services.missing(given.python)
    if lacks:
        sys.exit(f"cannot record here: {lacks}")
    every = [f"{work}:{pattern}" for pattern in PATTERNS for work in WORKS]
    host, _, late = given.delay.partition(":")
    with Services(given.python, {host: late} if host else None) as park:
        if park.spaces.how:
            print(f"packets of {host} are late by {park.spaces.how}")
        for name in given.names or every:
            work, pattern, *alike = name.split(":")
            to = given.place.resolve() / f"{name.replace(':', '-')}-{given.connections}"
            with park.application(work, int(pattern), alike=bool(alike)):
                record(park, given.critpath, to, given.connections, given.requests, given.profile)
            if given.split is not None:
                write_split(to, given.split)
            if given.pack:
                pack(to, to.with_suffix(".tar.xz"))
            print(f"recorded {to}", flush=True)


def record(
    park: Services,
    critpath: Sequence[str],
    to: Path,
    connections: int,
    requests: int,
    profile: str = "requests",
) -> None:
    """Record the application that runs, after a few requests that warm it up."""
    think = THINK if connections > 1 else _ALONE
    asked = park.place / "asked"
    subprocess.run(park.ask(connections, 3 * connections + 5, think, asked), check=True)
    time.sleep(0.2)  # what works after it has answered is done
    park.record(critpath, park.ask(connections, requests, think, asked), to, profile)
    shutil.copy(asked, to / "client")


def write_split(recorded: Path, seed: int) -> dict[str, Clock]:
    """Write what each host would have recorded; the client's clock is the kernel's."""
    clocks = draw_clocks(seed)
    shutil.rmtree(recorded / "hosts", ignore_errors=True)
    split(recorded, recorded / "hosts", clocks)
    said = {name: dataclasses.asdict(clock) for name, clock in clocks.items()}
    (recorded / "clocks.json").write_text(json.dumps(said, indent=1))
    return clocks


def pack(recorded: Path, archive: Path) -> None:
    """Write what the hosts did, and the truth, as a fixture."""
    with tempfile.TemporaryDirectory() as place:
        made = split(recorded, Path(place), {}, together="recording")["recording"]
        manifest = json.loads((made / "critpath.json").read_text())
        manifest["command"] = ["client"]
        (made / "critpath.json").write_text(json.dumps(manifest, indent=1))
        for name in ("client", "truth", "hosts.json"):
            shutil.copy(recorded / name, place)
        with tarfile.open(archive, "w:xz") as tar:
            for path in sorted(Path(place).iterdir()):
                tar.add(path, f"{recorded.name}/{path.name}")


def draw_clocks(seed: int) -> dict[str, Clock]:
    """Return clocks of all hosts but the client: some seconds off, up to 50 ppm, some wander."""
    draw = random.Random(seed)
    return {
        name: Clock(
            offset=draw.randrange(-5 * 10**9, 5 * 10**9),
            drift=draw.uniform(-5e-5, 5e-5),
            wander=draw.choice((0.0, 2e-7)),
        )
        for name in services.HOSTS[1:]
    }


if __name__ == "__main__":
    main()
