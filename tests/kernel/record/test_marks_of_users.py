"""Marks of programs whose users may not trace: who may write them, and what else they can do."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

import critpath
from critpath.executions.find import find_executions
from critpath.executions.marker import MARKER_EVENTS
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import read_events
from critpath_marks import channels
from critpath_marks.sessions import new_session_name
from critpath_record.ftrace import marks
from critpath_record.ftrace.recorder import open_recorder
from critpath_record.recorder import RecorderSettings

pytestmark = [pytest.mark.xdist_group("kernel"), pytest.mark.usefixtures("traceable")]

CRITPATH = (sys.executable, "-m", "critpath")
INSTANCES = Path("/sys/kernel/tracing/instances")
PLACE = Path(channels.PLACE)
NOBODY, OTHER = 65534, 65533


@pytest.fixture(autouse=True)
def as_root(tmp_path):
    if os.geteuid():
        pytest.skip("becomes other users, which needs root")
    tmp_path.chmod(0o755)


def as_user(uid, work):
    """Start a process of a user that does some work; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        for name in (channels.MARKER, channels.DESCRIPTOR, channels.RECORDER):
            os.environ.pop(name, None)
        channels.forget_channel()
        work()
        code = 0
    finally:
        os._exit(code)


def mark_all_the_time():
    while True:
        with critpath.execution("checkout"):
            time.sleep(0.01)


def kill(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def executions(recording):
    return find_executions(read_events(recording, (*KERNEL_EVENTS, *MARKER_EVENTS)), "marker")


def test_marks_arrive_from_the_users_who_were_told_and_the_others_are_named(tmp_path, record):
    told, other = (as_user(uid, mark_all_the_time) for uid in (NOBODY, OTHER))
    try:
        wanted = ("-a", "--duration", "2.5", "--marks-from", "nobody")
        done = record(tmp_path, "rec", "--recorder", "ftrace", *wanted)
    finally:
        kill(told, other)
    found = executions(tmp_path / "rec")
    assert {*found.label} == {"checkout"}
    assert {*found.tid.tolist()} & {told, other} == {told}  # others of this machine may mark, too
    assert "marks without access: " in done.said
    assert f"({OTHER}): record with --marks-from {OTHER}" in done.said
    facts = json.loads((tmp_path / "rec" / "critpath.json").read_text())["recorder"]
    assert facts["marks"] >= len(found) > 0
    assert f"{facts['marks']} marks seen" in done.said.replace(",", "")
    assert "--execution SPEC" not in done.said
    assert not [*PLACE.glob(f"*-{done.pid}-*")]
    assert not [*INSTANCES.glob(f"{marks.PREFIX}*-{done.pid}-*")]


def test_under_sudo_the_shells_own_line_marks(tmp_path, record):
    """A file by its name for who may open it, a descriptor for everybody."""
    line = 'for n in 1 2 3; do echo "critpath:begin job" {0}; echo "critpath:end job" {0}; done'
    ways = (">&$CRITPATH_MARKER_FD", '>"$CRITPATH_MARKER"')
    script = "; ".join(line.format(way) for way in ways)
    sudo = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY), "SUDO_USER": "nobody"}
    words = ("--recorder", "ftrace", "--", "sh", "-ec", f"{script}; id -u")
    done = record(tmp_path, "rec", *words, **sudo)
    assert done.out == f"{NOBODY}\n"
    assert executions(tmp_path / "rec").label == ("job",) * 6


def test_who_may_mark_may_do_nothing_else_and_holds_nothing_else(tmp_path):
    settings = RecorderSettings(new_session_name(), tmp_path, mark_users=(marks.EVERYBODY,))
    file = PLACE / settings.session / "trace_marker"
    ready, told = os.pipe()
    go, going = os.pipe()

    def hold():
        os.read(go, 1)
        for refused in (file, INSTANCES / settings.session / "trace_marker"):
            for flags in (os.O_RDONLY, os.O_RDWR):
                with pytest.raises(PermissionError):
                    os.open(refused, flags)
        with file.open("wb", buffering=0) as stream:
            stream.write(b"critpath:begin x\0\xff\x1b[31m")
            os.write(told, b"x")
            os.read(go, 1)

    holding = as_user(OTHER, hold)  # before: a child has all that its parent has open
    recorder = open_recorder(settings)
    recorder.open()
    instance = INSTANCES / marks.instance_name(settings.session)
    try:
        os.write(going, b"x")
        assert os.read(ready, 1) == b"x"
        recorder.close()
        result = recorder.drain(lambda _: None)
        assert result.facts["marks"] == 1
        assert [w for w in result.warnings if f"process {holding} " in w]
        assert not (INSTANCES / settings.session).exists()
        assert (instance / "tracing_on").read_text() == "0\n"
    finally:
        kill(holding)
        instance.rmdir()
    assert not file.exists()


def test_a_killed_recorder_leaves_nothing_that_cleaning_does_not_remove(tmp_path, start, wait_for):
    words = ("record", "--recorder", "ftrace", "-o", "rec", "-a", "--marks-from", "all")
    recorder = start(*CRITPATH, *words, cwd=tmp_path)
    wait_for(lambda: [*PLACE.glob(f"*-{recorder.pid}-*.ask")])
    assert len([*PLACE.glob(f"*-{recorder.pid}-*")]) == 2
    recorder.kill()
    start(*CRITPATH, "doctor", "--clean", cwd=tmp_path).end()
    assert not [*PLACE.glob(f"*-{recorder.pid}-*")]
    assert not [*INSTANCES.glob(f"*-{recorder.pid}-*")]
