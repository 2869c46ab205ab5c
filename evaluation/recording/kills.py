"""Recorders that are killed at random moments: nothing of them stays, what they had is kept.

    python evaluation/recording/kills.py [KIND...] [--times 6] [--json FILE]

Beside a program that marks executions.  Two seconds after each kill nothing of that recorder may
trace, be mounted or be attached; then ``critpath doctor --clean`` must leave no instance, program
or group of it, and what it recorded must be one that can be read.
Needs root; writes how many were killed and what was wrong as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from results import write_results

from critpath_marks.channels import PLACE
from critpath_record import bpf
from critpath_record.counts import groups
from critpath_record.flight.dumps import find_dumps

CRITPATH = (sys.executable, "-P", "-m", "critpath")
INSTANCES = Path("/sys/kernel/tracing/instances")
RUN = Path("/run/critpath")
WORDS = {
    "machine": ("-a", "--marks-from", "all", "--tasks"),
    "budget": ("--overhead", "5%", "-a", "--duration", "60"),
    "beside": ("-a", "--profile", "requests", "--labels-from", "bytes,tls", "--counts"),
    "files": ("-a", "--files"),
    "stacks": ("-a", "--stacks", "native,samples"),
    "functions": ("--functions",),
    "flight of all": (
        *("--always", "--memory", "16M", "--usual", "1s", "--keep", "2s", "--overhead", "50%"),
        *("--calibrate", "off", "--functions", "--stacks", "native,samples"),
        *("--labels-from", "bytes,tls", "--marks-from", "all"),
    ),
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
COMMANDS = {
    "counts": ("sleep", "60"),
    "functions": ("python", "-c", "while True: sorted(range(1000))"),
}
SLOW = {
    "beside": 8.0,
    "flight of all": 8.0,
    "functions": 8.0,
}  # s until it records, on a busy machine
SAID = ("lost", "its recorder was killed")
# Of one that is killed as it begins there may be no event at all.
NOTHING = ("no run", "no complete run", "not one sched_switch event")


def find_python() -> str:
    """Return a Python that tells of its functions, which it does from 3.12 on; "" for none here."""
    pyenv = sorted(Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python3"))
    for name in (sys.executable, "python3.14", "python3.13", "python3.12", *map(str, pyenv)):
        line = "import sys; print(sys.executable * (sys.version_info >= (3, 12)))"
        with contextlib.suppress(OSError):
            done = subprocess.run([name, "-c", line], capture_output=True, text=True, check=False)
            if found := done.stdout.strip():
                return found
    return ""


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


def find_programs(pid: int) -> set[int]:
    """Return the programs in the kernel that a process and its children hold."""
    found = set()
    for one in (pid, *children(pid)):
        with contextlib.suppress(OSError):
            for file in Path(f"/proc/{one}/fdinfo").iterdir():
                with contextlib.suppress(OSError):
                    found |= {int(n) for n in re.findall(r"prog_id:\s*(\d+)", file.read_text())}
    return found


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def list_programs() -> set[int]:
    """Return all programs that are in the kernel."""
    found, last = set(), 0
    with contextlib.suppress(OSError):
        while True:
            attributes = ctypes.create_string_buffer(struct.pack("<II", last, 0), 128)
            number = bpf._NUMBERS[platform.machine()]
            if bpf._libc().syscall(number, bpf.PROG_NEXT_ID, attributes, 128) < 0:
                return found
            (last,) = struct.unpack_from("<4xI", attributes.raw)
            found.add(last)
    return found


def find_active(pid: int, programs: set[int]) -> list[str]:
    """Return what goes on although its recorder was killed."""
    found = []
    for place in INSTANCES.glob(f"*-{pid}-*"):
        with contextlib.suppress(OSError):
            events = (place / "set_event").read_text().strip()
            if (place / "tracing_on").read_text().strip() != "0" and events:
                found.append(f"traces: {place.name}")
    mounts = Path("/proc/self/mounts").read_text()
    found += [f"mounted: {m}" for m in mounts.splitlines() if f"-{pid}-" in m]
    return found + [f"attached: program {n}" for n in programs & list_programs()]


def judge(kind: str, pid: int, place: Path) -> list[str]:
    """Clean up after a kill; return what is wrong."""
    critpath("doctor", "--clean")  # what others have left is not judged here
    wrong = [f"left: {name}" for name in find_left(pid)]
    if not place.exists():
        return wrong
    flight = kind.startswith("flight")
    recordings = find_dumps(place) if flight else [place]
    if flight:  # half of a dump, or what was kept for the next one
        wrong += [f"left: {p.name}" for p in place.iterdir() if p.name.startswith(".")]
    for made in recordings:
        state = json.loads((made / "critpath.json").read_text())["state"]
        if state not in {"complete", "interrupted"}:
            wrong.append(f"{made.name} is {state}")
        if kind == "counts":
            continue
        done = critpath("doctor", made)
        # What was lost is said to be, and that it was killed.
        if done.returncode and not any(text in done.stdout for text in SAID):
            wrong.append(done.stdout + done.stderr)
        done = critpath("path", made, "--execution", "marker")
        if done.returncode and not any(text in done.stderr for text in NOTHING):
            wrong.append(done.stderr)
    return wrong


def kill_one(kind: str, place: Path, chance: random.Random) -> tuple[int, list[str]]:
    """Start a recorder and kill it; return its pid, and what of it goes on."""
    after = ("--", *COMMANDS[kind]) if kind in COMMANDS else ()
    words = [*CRITPATH, "record", "-o", str(place), *WORDS[kind], *after]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as recorder:
        time.sleep(chance.uniform(0.1, SLOW.get(kind, 3.0)))
        if (
            kind.startswith("flight")
            and chance.random() < 0.5
            and (place / "flight.json").is_file()
        ):
            recorder.send_signal(signal.SIGUSR1)
            time.sleep(chance.uniform(0.0, 0.8))
        programs = find_programs(recorder.pid)
        recorder.kill()
    time.sleep(2)
    return recorder.pid, find_active(recorder.pid, programs)


def main() -> int:
    """Kill, clean up and print; the exit code is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=[*WORDS], metavar="KIND", help=", ".join(WORDS))
    parser.add_argument("--times", type=int, default=6, help="kills of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)  # noqa: S311 - moments
    found = {}
    with tempfile.TemporaryDirectory(prefix="critpath-kills-") as top:
        program = subprocess.Popen([sys.executable, "-c", PROGRAM], start_new_session=True)
        try:
            for kind in asked.kinds:
                if kind == "functions":
                    if not (python := find_python()):
                        print("functions: not tried, there is no Python from 3.12 on")
                        continue
                    COMMANDS[kind] = (python, *COMMANDS[kind][1:])
                begun, wrong = 0, []
                for number in range(asked.times):
                    place = Path(top) / f"{kind}{number}"
                    pid, active = kill_one(kind, place, chance)
                    wrong += active + judge(kind, pid, place)
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
