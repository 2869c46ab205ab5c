"""What reads others' bytes can open nothing else: the kernel refuses, whatever they make of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from critpath.commands.overview import READERS
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


# Loaded by every Python that a command starts: a reader that does what it likes as soon as it has
# opened what it reads.
HOSTILE = """
import json, os, socket, sys

begun = []

def connect(family, to):
    with socket.socket(family) as own:
        own.connect(to)

def try_all():
    home, place = os.environ["HOSTILE_HOME"], os.environ["HOSTILE_PLACE"]
    outside = int(os.environ["HOSTILE_OTHER"])
    tries = {
        "reads a key": lambda: open(f"{home}/.ssh/id").read(),
        "lists home": lambda: os.listdir(home),
        "reads users": lambda: open("/etc/passwd").read(),
        "reads another's memory": lambda: open(f"/proc/{outside}/environ").read(),
        "writes at home": lambda: open(f"{home}/.profile", "w").write("x"),
        "writes beside": lambda: open(f"{place}/new", "w").write("x"),
        "writes its input": lambda: open(os.environ["HOSTILE_INPUT"] + "answer.json", "r+b"),
        "removes beside": lambda: os.unlink(f"{place}/kept"),
        "renames": lambda: os.rename(f"{place}/kept", f"{place}/lost"),
        "links": lambda: os.symlink("/etc", f"{place}/link"),
        "asks the internet": lambda: connect(socket.AF_INET, ("127.0.0.1", 9)),
        "asks a service": lambda: connect(socket.AF_UNIX, os.environ["HOSTILE_SERVICE"]),
        "executes": lambda: os.execv("/bin/true", ["true"]),
        "spawns": lambda: os.posix_spawn("/bin/true", ["true"], {}),
        "signals": lambda: os.kill(outside, 0),
    }
    found = []
    for name, work in tries.items():
        try:
            work()
            found.append(name)
        except OSError as error:
            if error.errno not in {1, 13, 111}:  # where the internet may be asked, none answers
                found.append(f"{name}: {error}")
        except Exception as error:
            found.append(f"{name}: {error!r}")
    os.write(2, f"hostile {os.getpid()} {json.dumps(found)}\\n".encode())

def hear(event, given):
    if event == "open" and not begun and isinstance(given[0], str):
        # Which places are named to the kernel is no reading yet.
        inside = f"{os.path.realpath(given[0])}/".startswith(os.environ["HOSTILE_INPUT"])
        if inside and not given[2] & os.O_PATH:
            begun.append(given[0])
            try_all()

sys.addaudithook(hear)
"""
DONE_BY = {
    "compare": ("compare", "IN/rec", "IN/rec", "--html", "out.html"),
    "explore": ("explore", "IN/rec"),
    "path": ("path", "IN/rec"),
    "view": ("view", "IN/rec", "-o", "out.html"),
    "calibrate": ("calibrate", "IN/rec", "--splits", "20"),
    "trend": ("trend", "IN/answers"),
    "baseline": ("baseline", "save", "IN/rec", "-o", "out.json"),
    "convert": ("convert", "IN/trace.txt", "-o", "out"),
    "export": ("export", "IN/rec", "--format", "paths", "-o", "out"),
    "query": ("query", "IN/rec", "select count(*) from facts"),
    "requests": ("requests", "IN/rec"),
    "report": ("report", "IN/answer.json"),
    "clocks": ("clocks", "IN/rec"),
    "signature": ("signature", "IN/rec"),
    "known": ("known", "add", "team.known", "IN/rec", "--label", "x"),
    "doctor": ("doctor", "IN/rec"),
    "top": ("top", "IN/rec"),
    # Processes that read for it, also where a store is asked; another tool's file, and a tool.
    "jobs": ("compare", "IN/rec", "IN/two", "--jobs", "2"),
    "jobs, a store": ("compare", "IN/rec", "IN/two", "--jobs", "2", "--json", "memory://a/b.json"),
    "foreign": ("path", "IN/trace.txt", "--look"),
    "babeltrace": ("path", "IN/rec", "--reader", "babeltrace2"),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, guest, critpath):
    place = tmp_path_factory.mktemp("inputs")
    shutil.copytree(guest("normal"), place / "rec")
    for name in ("a", "b"):
        shutil.copytree(place / "rec", place / "two" / name)
    (place / "trace.txt").write_text(
        "# tracer: nop\n"
        "  a-11 [000] d..2. 1.000000: sched_switch: prev_comm=a prev_pid=11 prev_prio=120 "
        "prev_state=S ==> next_comm=b next_pid=12 next_prio=120\n"
    )
    (place / "answers").mkdir()
    written = place / "answers" / "20261130T042158Z-v1.4..2070c7b.json"
    assert critpath("compare", place / "rec", place / "rec", "--json", written).returncode == 0
    shutil.copy(written, place / "answer.json")
    return place


def test_every_verb_that_reads_is_tried():
    assert set(DONE_BY) >= READERS


@pytest.mark.parametrize("name", DONE_BY)
def test_a_hostile_reader_is_refused_in_every_verb(name, inputs, tmp_path):
    home, place, bad = (tmp_path / part for part in ("home", "place", "bad"))
    for one in (home / ".ssh", place, bad):
        one.mkdir(parents=True)
    (home / ".ssh" / "id").write_text("secret")
    (home / ".profile").write_text("")
    (place / "kept").write_text("")
    (bad / "sitecustomize.py").write_text(HOSTILE)
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(tmp_path / "s"))
        service.listen()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "critpath"]
            + [word.replace("IN", str(inputs)) for word in DONE_BY[name]],
            cwd=place,
            env={
                **os.environ,
                "HOME": str(home),
                "PYTHONPATH": str(bad),
                "HOSTILE_INPUT": f"{inputs}/",
                "HOSTILE_HOME": str(home),
                "HOSTILE_PLACE": str(place),
                "HOSTILE_SERVICE": str(tmp_path / "s"),
                "HOSTILE_OTHER": str(os.getpid()),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    said = [line.split(" ", 2) for line in done.stderr.splitlines() if line.startswith("hostile")]
    assert said, done.stderr
    # Libraries of stores look for names and credentials in /etc.
    assert {found for _, _, found in said} == {'["reads users"]' if "store" in name else "[]"}
    assert len({process for _, process, _ in said}) >= (3 if name.startswith("jobs") else 1)
    assert done.returncode in {0, 1, 3, {"requests": 4, "clocks": 2}.get(name)}, done.stderr
    assert {path.name for path in place.iterdir()} - {"kept"} <= {
        *("out", "out.html", "out.json", "team.known")
    }
    assert (home / ".profile").read_text() == ""


def test_a_file_that_says_which_runs_are_meant_is_read(inputs, tmp_path):
    """It is named within a word: where it lies is not among what is read anyway."""

    def ask(*execution):
        words = ["-P", "-m", "critpath", "path", str(inputs / "rec"), "--format", "json"]
        done = subprocess.run(
            [sys.executable, *words, *execution],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[0])

    of = ask()
    home = tmp_path / "home"
    home.mkdir()
    (home / "windows.csv").write_text(
        f"begin_ns,end_ns,tid,label\n{of['begin']},{of['end']},{of['subject']['tid']},x\n"
    )
    assert ask("--execution", f"windows:{home / 'windows.csv'}")["label"] == "x"
