"""Processes that killed recorders leave are ended, and no others."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from types import ModuleType

import pytest

from critpath.model import Manifest
from critpath_marks.sessions import new_session_name, pid_namespace
from critpath_record import cleanup, registry
from critpath_record.cleanup import find_leftovers, remove_leftovers
from critpath_record.identity import SESSION_VARIABLE
from critpath_record.manifests import write_manifest
from critpath_record.recorder import RECORDERS, Leftover
from critpath_record.registry import read_entries, register
from critpath_record.source import Taken
from tests.played.names import dead_name

STAYS = "print(flush=True); input()"
STUBBORN = f"import signal; signal.signal(15, signal.SIG_IGN); {STAYS}"
# Records itself, inside the command of the one that is dead.
RECORDS = f"""
import sys
from pathlib import Path
from critpath_marks import sessions
from critpath_record import registry
registry._ROOT = Path(sys.argv[1])
registry.register(sessions.new_session_name(), Path(sys.argv[1]) / "inner", "ftrace")
{STAYS}
"""
# Asks, from a child's child, whom it would end.
CLEANS = """
import json, os, subprocess, sys
from critpath_record import cleanup
if len(sys.argv) > 2:
    sys.exit(subprocess.call([sys.executable, "-c", *sys.argv[2:], sys.argv[1]]))
print(json.dumps([x.name for x in cleanup._find_processes({sys.argv[1]})]), flush=True)
"""


# What of ours is loaded to look for leftovers.
LOOKS = """
import sys
from pathlib import Path
from critpath_record import registry
from critpath_record.cleanup import find_leftovers
registry._ROOT = Path(sys.argv[1])  # without flights of this machine
find_leftovers()
print(*(name for name in sys.modules if name.startswith("critpath_record.")))
"""


def test_looking_for_leftovers_loads_no_recorder(tmp_path):
    looks = [sys.executable, "-P", "-c", LOOKS, str(tmp_path)]
    done = subprocess.run(looks, capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.removeprefix("critpath_record.") for name in done.stdout.split()}
    assert {"lttng.daemon", "ftrace.cleanup", "counts.groups"} <= loaded
    assert not loaded & {
        *("lttng.recorder", "ftrace.recorder", "counts.recorder", "counts.counting", "functions"),
        *("ftrace.convert", "ftrace._pages", "flight.memory", "flight.state", "messages", "bpf"),
    }


@pytest.fixture
def instances(tmp_path, monkeypatch):
    """A registry of this test's own, and what the recorders say that was left in the kernel."""
    monkeypatch.setattr(registry, "_ROOT", tmp_path / "registry")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    left = []
    monkeypatch.setattr(cleanup, "LEFTOVERS", tuple(RECORDERS.values()))
    for name, place in RECORDERS.items():
        module = ModuleType(place)
        module.find_leftovers = (lambda: left) if name == "ftrace" else list
        module.finish_killed = lambda *_: Taken()
        monkeypatch.setitem(sys.modules, place, module)
    return left


@pytest.fixture
def start():
    """Return a function that starts Python as a part of a session; it is ended afterwards."""
    started = []

    def start_python(session, code, *words):
        child = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            env={**os.environ, SESSION_VARIABLE: session},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(child)
        return child, child.stdout.readline()

    yield start_python
    for child in started:
        child.kill()
        child.communicate()


def unfinished(place, session, owner=None):
    (place / "raw").mkdir(parents=True)
    (place / "raw" / "raw.json").touch()
    empty = Manifest("recording", session, (), "", (), {"name": "ftrace"}, "", {}, {}, 0, 0)
    write_manifest(place, empty)
    register(session, place, "ftrace", owner)
    return place


@pytest.mark.usefixtures("instances")
def test_processes_of_a_killed_recorder_are_ended(tmp_path, start, monkeypatch):
    monkeypatch.setattr(cleanup, "_PATIENCE", 0.05)
    session, told = dead_name(), []
    unfinished(tmp_path / "out", session)
    children = [start(session, code)[0] for code in (STAYS, STUBBORN)]
    assert remove_leftovers(lambda leftover, _: told.append(leftover.kind))
    assert [child.wait(60) for child in children] == [-signal.SIGTERM, -signal.SIGKILL]
    assert told == ["process", "process", "recording"]
    assert (read_entries(), find_leftovers()) == ([], [])


@pytest.mark.usefixtures("instances")
def test_other_processes_are_left_alone(tmp_path, start):
    dead, ended = dead_name(), dead_name()
    unfinished(tmp_path / "out", dead)
    others = (
        ended,  # a daemon that a command started whose recording was ended properly
        new_session_name(),  # of a live recorder
        dead.replace(str(pid_namespace()), "1"),  # of a recorder elsewhere
        "critpath-1",
    )
    children = [start(session, STAYS)[0] for session in others]
    children.append(start(dead, RECORDS, str(registry._ROOT))[0])
    assert [cleanup.session_of(child.pid) for child in children] == [*others, dead]
    assert {x.kind for x in find_leftovers()} == {"recording"}
    assert remove_leftovers(lambda *_: None)
    assert [child.poll() for child in children] == [None] * len(children)


def test_a_daemon_that_keeps_the_instance_of_an_ended_recording_is_left_alone(
    instances, tmp_path, start
):
    session = dead_name()
    registry.registry_directory(create=True)
    instances.append(Leftover("instance", "i", session, lambda: None))
    start(session, STAYS)
    assert [x.kind for x in find_leftovers()] == ["instance"]
    register(session, tmp_path / "out", "ftrace")  # as of one that was killed
    assert {x.kind for x in find_leftovers()} == {"instance", "recording", "process"}


@pytest.mark.usefixtures("instances")
def test_who_cleans_is_not_cleaned_away(tmp_path, start):
    session = dead_name()
    unfinished(tmp_path / "out", session)
    _, said = start(session, CLEANS, session, CLEANS)
    assert json.loads(said) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="changes owners, which needs root")
@pytest.mark.usefixtures("played")
def test_what_a_user_put_in_the_place_of_a_killed_recording_is_left_alone(tmp_path):
    nobody = pwd.getpwnam("nobody")
    forged = unfinished(tmp_path / "out", dead_name(), (nobody.pw_uid, nobody.pw_gid))
    os.chown(forged, nobody.pw_uid, -1)
    before = (forged / "critpath.json").read_bytes()
    assert remove_leftovers(lambda *_: None)
    assert read_entries() == []
    assert (forged / "critpath.json").read_bytes() == before
    assert (forged / "critpath.json").stat().st_uid == 0
    assert sorted(p.name for p in forged.iterdir()) == ["critpath.json", "raw"]
