"""Installs wheels where nothing is installed, and takes the first answer of shipped recordings.

    python evaluation/installing/clean_rooms.py WHEELS [ROOM ...] [--whole] [--tests TEST ...]

WHEELS is what `make wheels` made. A ROOM is a Python (``python3.12``, a path) or a release of
Debian (``bookworm``), which debootstrap unpacks (root) into ``--keep``; without any, every Python
of 3.11 to 3.14 that is here. In each, pip installs the core's wheel without its cache into a new
environment, and ``critpath demo --shipped`` answers, with nothing else on PATH. ``--whole``
installs ``critpath`` into another one; ``--tests`` runs pytest there on what was installed.

Right is: the core and its answer within 30 s and 120 MB, the whole within two minutes. Seconds
include downloading. MB are what the files take on the disk, less what an environment has anyway.
Exit code 1 where an answer is not found, or more was taken; busy machines only exceed seconds.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
PYTHONS: Final = tuple(f"python3.{minor}" for minor in range(11, 15))
CORE_SECONDS, CORE_MB, WHOLE_SECONDS = 30.0, 120.0, 120.0  # issue 41
CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
INSIDE: Final = """mount -t proc proc "$1/proc"
for part in dev sys; do mount --rbind "/$part" "$1/$part"; done
exec chroot "$@\""""


class Room(NamedTuple):
    """Where Python is; `base` is what its / is outside."""

    name: str
    python: str
    prefix: tuple[str, ...] = ()
    base: Path = Path("/")


class Took(NamedTuple):
    """What a command took and said."""

    code: int
    seconds: float
    cpu: float
    said: str


def run(room: Room, command: Sequence[str], more: dict[str, str], directory: str = "/") -> Took:
    """Run a command in a room, with an environment of its own."""
    environment = {"HOME": "/tmp", "LC_ALL": "C.UTF-8", **more}  # noqa: S108 - the room's own
    settings = [f"{name}={value}" for name, value in environment.items()]
    words = [*room.prefix, "/usr/bin/env", "-i", "-C", directory, *settings, *command]
    begin = time.monotonic()
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - begin
    return Took(process.returncode, seconds, used.ru_utime + used.ru_stime, said)


def install(room: Room, place: str, words: Sequence[str]) -> tuple[Took, float]:
    """Install into a new environment; return what that took, and MB."""
    reaches = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or k.endswith("_proxy")}
    path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    done = run(room, [room.python, "-m", "venv", place], path)
    if done.code:
        return done, 0.0
    outside = room.base / place.lstrip("/")
    before = measure_disk(outside)
    options = ["--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    pip = [f"{place}/bin/pip", "install", *options, *words]
    return run(room, pip, path | reaches), measure_disk(outside) - before


def measure_disk(place: Path) -> float:
    """Return the MB that files below a directory take."""
    blocks = {(s.st_dev, s.st_ino): s.st_blocks for p in place.rglob("*") if (s := p.lstat())}
    return sum(blocks.values()) * 512 / 2**20


def answer(room: Room, place: str) -> Took:
    """Take the first answer, and tell whether it is the right one."""
    (room.base / place.lstrip("/") / "answer").mkdir()
    environment = {"PATH": f"{place}/bin"}
    command = [f"{place}/bin/critpath", "demo", "--shipped"]
    done = run(room, command, environment, f"{place}/answer")
    return done if "thread holder" in done.said else done._replace(code=done.code or 1)


def open_rooms(names: Sequence[str], keep: Path) -> list[Room]:
    """Return a room for each name; what is not to be had is said."""
    rooms = []
    for name in names or [name for name in PYTHONS if find_python(name)]:
        if python := find_python(name):
            rooms.append(Room(python_version(python), python))
        elif "python" in name or os.geteuid() or not shutil.which("debootstrap"):
            print(f"{name}: left out: not here; a release of Debian takes root and debootstrap")
        elif room := unpack(name, keep):
            rooms.append(room)
    return rooms


def find_python(name: str) -> str:
    """Return a Python's path: on PATH, or one of pyenv's; "" where it cannot run."""
    kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{name.removeprefix('python')}.*"))
    for found in (shutil.which(name), *(str(one / "bin" / "python") for one in reversed(kept))):
        if found and "python" in Path(found).name and python_version(found):
            return found
    return ""


def python_version(python: str) -> str:
    """Return "Python 3.12.1", or "" where it has no venv or cannot run."""
    script = "import ensurepip, venv, platform; print('Python', platform.python_version())"
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def unpack(suite: str, keep: Path) -> Room | None:
    """Unpack a release of Debian with its Python, or take the one that is there."""
    base = keep / suite
    if not (base / "unpacked").exists():
        shutil.rmtree(base, ignore_errors=True)
        more = "--include=python3,python3-venv"
        command = ["debootstrap", "--variant=minbase", more, suite, str(base)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{suite}: left out: {(done.stdout.strip().splitlines() or ['debootstrap'])[-1]}")
            return None
        (base / "unpacked").touch()
    # What this machine reaches registries by.
    for needed in (Path("/etc/resolv.conf"), Path("/etc/hosts"), CERTIFICATES):
        if needed.exists():
            target = base / needed.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(needed, target)
    prefix = ("unshare", "--mount", "sh", "-c", INSIDE, "sh", str(base))
    room = Room(suite, "/usr/bin/python3", prefix, base)
    said = run(room, ["/usr/bin/python3", "--version"], {}).said
    return room._replace(name=f"Debian {suite}, {said.strip()}")


def copy_tests(place: Path) -> None:
    """Copy what is committed, less what is to be tested: that is installed."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, names):
        if name.split("/")[0] not in ("critpath", "critpath_record"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name, follow_symlinks=False)


def try_room(room: Room, wheels: Path, place: str, arguments: argparse.Namespace) -> bool:
    """Print a room's rows; return whether all of it is right."""
    outside = room.base / place.lstrip("/")
    shutil.copytree(wheels, outside / "wheels")
    links = ["--find-links", f"{place}/wheels"]
    core = next(wheels.glob(f"critpath_core-*{os.uname().machine}.whl"))
    took, size = install(room, f"{place}/core", [f"{place}/wheels/{core.name}"])
    right = show(room, "core", took, f"{size:.0f}")
    if right:
        first = answer(room, f"{place}/core")
        right = show(room, "first answer", first, "")
        within = took.seconds + first.seconds <= CORE_SECONDS and size <= CORE_MB
        right = right and within
    if arguments.whole or arguments.tests:
        took, size = install(room, f"{place}/whole", ["critpath", *links])
        right &= show(room, "whole", took, f"{size:.0f}") and took.seconds <= WHOLE_SECONDS
    if arguments.tests:
        right &= run_tests(room, place, arguments.tests)
    return right


def run_tests(room: Room, place: str, tests: Sequence[str]) -> bool:
    """Run pytest on what is installed, and print what it counted."""
    outside = room.base / place.lstrip("/")
    copy_tests(outside / "tree")
    reaches = {k: v for k, v in os.environ.items() if k.startswith("PIP_")}
    pip = [f"{place}/whole/bin/pip", "install", "--quiet", "--upgrade", "pip>=25.1"]
    run(room, pip, reaches)
    pip[-2:] = ["--group", f"{place}/tree/pyproject.toml:test"]
    took = run(room, pip, reaches)
    if took.code:
        return show(room, "packages of tests", took, "")
    path = {"PATH": f"{place}/whole/bin:/usr/bin:/bin"}
    pytest = ["-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not deep", *tests]
    took = run(room, [f"{place}/whole/bin/python", *pytest], path, f"{place}/tree")
    lines = took.said.strip().splitlines() or ["nothing"]
    return show(room, lines[-1].strip("= "), took, "")


def show(room: Room, what: str, took: Took, size: str) -> bool:
    """Print a row, and all that was said where it failed."""
    print(f"| {room.name} | {what} | {took.seconds:.1f} | {took.cpu:.1f} | {size} |", flush=True)
    if took.code:
        print(re.sub(r"(?m)^", "    ", took.said.strip()), flush=True)
    return took.code == 0


def main() -> int:
    """Try each room."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", type=Path)
    parser.add_argument("rooms", nargs="*")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--tests", nargs="+", default=[])
    parser.add_argument("--keep", type=Path, default=ROOT / ".venv" / "rooms")
    arguments = parser.parse_intermixed_args()
    if not any(arguments.wheels.glob("critpath_core-*.whl")):
        print(f"left out: no wheels in {arguments.wheels}; make wheels")
        return 0
    print("| room | what | seconds | of cpu | MB |\n|---|---|---:|---:|---:|", flush=True)
    wrong = 0
    for room in open_rooms(arguments.rooms, arguments.keep.resolve()):
        above = room.base / "var" / "tmp"
        with tempfile.TemporaryDirectory(prefix="critpath-room-", dir=above) as made:
            place = f"/{Path(made).relative_to(room.base)}"
            wrong += not try_room(room, arguments.wheels, place, arguments)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
