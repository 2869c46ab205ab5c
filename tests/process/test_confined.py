"""What reads others' bytes can open nothing else: the kernel refuses, whatever they make of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from critpath.confined import is_offered

pytestmark = pytest.mark.skipif(not is_offered(), reason="this kernel confines nothing (Landlock)")

TRIES = """
import ctypes, json, os, socket, subprocess, sys
from pathlib import Path
from critpath.confined import run_confined

inside, beside, read = map(Path, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)

def call(*words):
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), "refused")

TRIES = {
    "reads what it was given": lambda: (read / "x").read_text(),
    "writes where it may": lambda: (inside / "new").write_text("y"),
    "moves where it may": lambda: (
        (inside / "a").mkdir(), (inside / "a/b").mkdir(), (inside / "a/b").rename(inside / "c")
    ),
    "imports": lambda: __import__("wave"),
    "reads elsewhere": lambda: (beside / "x").read_text(),
    "reads a user's files": lambda: Path("/etc/passwd").read_text(),
    "lists": lambda: list(beside.iterdir()),
    "writes elsewhere": lambda: (beside / "new").write_text("y"),
    "writes what it reads": lambda: (read / "x").write_text("y"),
    "cuts elsewhere": lambda: os.truncate(beside / "x", 0),
    "removes elsewhere": lambda: (beside / "x").unlink(),
    "links": lambda: (inside / "link").symlink_to("/etc"),
    "moves out": lambda: (inside / "new").rename(beside / "moved"),
    "runs": lambda: subprocess.run(["/bin/true"]),
    "talks": lambda: socket.socket(socket.AF_INET),
    "talks here": lambda: socket.socketpair(),
    "kills": lambda: os.kill(os.getppid(), 0),
    "traces": lambda: call(101, 16, os.getppid(), 0, 0),
    "gets a descriptor": lambda: call(438, os.pidfd_open(os.getpid()), 0, 0),
    "loads": lambda: call(321, 0, 0, 0),
    "mounts": lambda: call(165, 0, 0, 0, 0, 0),
    "writes to others' memory": lambda: Path(f"/proc/{os.getppid()}/mem").open("wb"),
}

def run():
    found = {}
    for name, work in TRIES.items():
        try:
            work()
            found[name] = 0
        except OSError as error:
            found[name] = error.errno
    return found

found = run_confined(run, [read], [inside])
# And it was that thread alone.
(beside / "after").write_text("y")
subprocess.run(["/bin/true"], check=True)
print(json.dumps(found))
"""
MAY = {"reads what it was given", "writes where it may", "moves where it may", "imports"}


def test_a_confined_reader_does_nothing_else(tmp_path):
    places = [tmp_path / name for name in ("inside", "beside", "read")]
    for place in places:
        place.mkdir()
        (place / "x").write_text("x")
    done = subprocess.run(
        [sys.executable, "-P", "-c", TRIES, *map(str, places)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    if (done_by := Path("/proc/sys/kernel/arch")).exists() and done_by.read_text() != "x86_64\n":
        found = {name: code for name, code in found.items() if name not in {"traces", "mounts"}}
    assert {name for name, code in found.items() if code == 0} == MAY, found
    assert (tmp_path / "beside" / "x").read_text() == "x"
