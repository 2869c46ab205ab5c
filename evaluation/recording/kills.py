"""Recorders that are killed at random moments: nothing of them stays, what they had is kept.

    python evaluation/recording/kills.py [budget] [flight] [counts] [--times 20] [--json FILE]

Beside a program that marks executions.  After each kill ``critpath doctor --clean`` must leave no
instance, program or group of that recorder, and what it recorded must be one that can be read.
Needs root; writes how many were killed and what was wrong as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from results import write_results

from critpath_marks.channels import PLACE
from critpath_record.counts import groups
from critpath_record.flight.dumps import find_dumps

CRITPATH = (sys.executable, "-P", "-m", "critpath")
INSTANCES = Path("/sys/kernel/tracing/instances")
RUN = Path("/run/critpath")
WORDS = {
    "budget": ("--overhead", "5%", "-a", "--duration", "60"),
    "flight": (
        *("--always", "--memory", "8M", "--usual", "1s", "--keep", "2s"),
        *("--overhead", "50%", "--calibrate", "off"),
    ),
    "counts": ("--recorder", "counts", "--events", "all", "--interval", "0.1"),
}
PROGRAM = """
import os
from critpath_marks import execution
a, b = os.eventfd(0), os.eventfd(0)
if os.fork() == 0:
    while True:
        os.eventfd_read(a)
        os.eventfd_write(b, 1)
number = 0
while True:
    number += 1
    with execution("common" if number % 100 else "rare", key=number):
        for _ in range(4 if number % 100 else 100):
            os.eventfd_write(a, 1)
            os.eventfd_read(b)
"""
# Of one that is killed as it begins there may be no event at all.
NOTHING = ("no run", "no complete run", "not one sched_switch event")


def critpath(*words: object) -> subprocess.CompletedProcess[str]:
    """Run critpath and return what became of it."""
    return subprocess.run(
        [*CRITPATH, *map(str, words)], capture_output=True, text=True, check=False
    )


def find_left(pid: int) -> list[str]:
    """Return what a recorder has left on this machine."""
    tops = [top for top in (INSTANCES, Path(PLACE), RUN) if top.is_dir()]
    found = [str(p) for top in tops for p in top.iterdir() if f"-{pid}-" in p.name]
    return found + [
        g.name for g in groups._walk() if "critpath-" in g.name and f"-{pid}-" in g.name
    ]


def judge(kind: str, pid: int, place: Path) -> list[str]:
    """Clean up after a kill; return what is wrong."""
    critpath("doctor", "--clean")  # what others have left is not judged here
    wrong = [f"left: {name}" for name in find_left(pid)]
    if not place.exists():
        return wrong
    recordings = find_dumps(place) if kind == "flight" else [place]
    if kind == "flight":  # half of a dump, or what was kept for the next one
        wrong += [f"left: {p.name}" for p in place.iterdir() if p.name.startswith(".")]
    for made in recordings:
        state = json.loads((made / "critpath.json").read_text())["state"]
        if state not in {"complete", "interrupted"}:
            wrong.append(f"{made.name} is {state}")
        if kind == "counts":
            continue
        done = critpath("doctor", made)
        if done.returncode and "lost" not in done.stdout:  # what was lost is said to be
            wrong.append(done.stdout + done.stderr)
        done = critpath("path", made, "--execution", "marker")
        if done.returncode and not any(text in done.stderr for text in NOTHING):
            wrong.append(done.stderr)
    return wrong


def kill_one(kind: str, place: Path, chance: random.Random) -> int:
    """Start a recorder and kill it; return its pid."""
    after = ("--", "sleep", "60") if kind == "counts" else ()
    words = [*CRITPATH, "record", "-o", str(place), *WORDS[kind], *after]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as recorder:
        time.sleep(chance.uniform(0.1, 3.0))
        if kind == "flight" and chance.random() < 0.5 and (place / "flight.json").is_file():
            recorder.send_signal(signal.SIGUSR1)
            time.sleep(chance.uniform(0.0, 0.8))
        recorder.kill()
    return recorder.pid


def main() -> int:
    """Kill, clean up and print; the exit code is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=[*WORDS], metavar="KIND", help=", ".join(WORDS))
    parser.add_argument("--times", type=int, default=20, help="kills of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)  # noqa: S311 - moments
    found = {}
    with tempfile.TemporaryDirectory(prefix="critpath-kills-") as top:
        program = subprocess.Popen([sys.executable, "-c", PROGRAM], start_new_session=True)
        try:
            for kind in asked.kinds:
                begun, wrong = 0, []
                for number in range(asked.times):
                    place = Path(top) / f"{kind}{number}"
                    pid = kill_one(kind, place, chance)
                    time.sleep(0.5)  # until the kernel has freed what was attached
                    wrong += judge(kind, pid, place)
                    begun += place.exists()  # made of what it had by then
                found[kind] = {"killed": asked.times, "begun": begun, "wrong": wrong}
                print(f"{kind}: {asked.times} killed, {begun} had begun, {len(wrong)} wrong")
        finally:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
    if asked.json:
        write_results(asked.json, found)
    for text in (text for of in found.values() for text in of["wrong"]):
        print(text)
    return int(any(of["wrong"] for of in found.values()))


if __name__ == "__main__":
    sys.exit(main())
