"""Marks of programs whose users may not trace: who may write them, and what else they can do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import critpath
from critpath.errors import UsageError
from critpath.executions.find import find_executions
from critpath.executions.marker import MARKER_EVENTS
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.recording import read_events
from critpath.record.ftrace import marks
from critpath.record.ftrace.recorder import missing_requirements, open_recorder
from critpath.record.recorder import RecorderSettings
from critpath.record.user import User, mark_users
from critpath_marks import channels
from critpath_marks.sessions import new_session_name

pytestmark = pytest.mark.xdist_group("kernel")

CRITPATH = (sys.executable, "-m", "critpath")
INSTANCES = Path("/sys/kernel/tracing/instances")
PLACE = Path(channels.PLACE)
NOBODY, OTHER = 65534, 65533


@pytest.fixture(autouse=True)
def traceable(tmp_path):
    fatal = [o.what for o in missing_requirements(None) if o.fatal]
    if os.geteuid() or fatal:
        pytest.skip(f"ftrace cannot record here: {fatal[0] if fatal else 'not root'}")
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
        end(pid)


def end(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def executions(recording):
    return find_executions(read_events(recording, (*KERNEL_EVENTS, *MARKER_EVENTS)), "marker")


def record(place, *arguments, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
    return subprocess.run(
        [*CRITPATH, "record", "--recorder", "ftrace", "-o", "rec", *arguments],
        cwd=place, env={**clean, **environment},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_marks_arrive_from_the_users_who_were_told_and_the_others_are_named(tmp_path):
    told, other = (as_user(uid, mark_all_the_time) for uid in (NOBODY, OTHER))
    try:
        done = record(tmp_path, "-a", "--duration", "2.5", "--marks-from", "nobody")
    finally:
        kill(told, other)
    assert done.returncode == 0, done.stderr
    found = executions(tmp_path / "rec")
    assert len(found) > 20
    assert {*found.label} == {"checkout"}
    assert {*found.tid.tolist()} == {told}
    assert "marks without access: " in done.stderr
    assert f"({OTHER}): record with --marks-from {OTHER}" in done.stderr
    facts = json.loads((tmp_path / "rec" / "critpath.json").read_text())["recorder"]
    assert facts["marks"] >= 2 * len(found)
    assert f"{facts['marks']} marks seen" in done.stderr
    assert "--execution SPEC" not in done.stderr
    assert not [*PLACE.glob(f"*-{os.getpid()}-*")]
    assert not [*INSTANCES.glob(f"{marks.PREFIX}*")]


@pytest.mark.parametrize("who", ["", "none"])
def test_under_sudo_the_shells_own_line_marks(tmp_path, who):
    """A file by its name for who may open it, a descriptor for everybody."""
    line = 'for n in 1 2 3; do echo "critpath:begin job" {0}; echo "critpath:end job" {0}; done'
    ways = [">&$CRITPATH_MARKER_FD"] + ['>"$CRITPATH_MARKER"'] * (not who)
    script = "; ".join(line.format(way) for way in ways)
    sudo = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY), "SUDO_USER": "nobody"}
    more = ("--marks-from", who) if who else ()
    done = record(tmp_path, *more, "--", "sh", "-ec", f"{script}; id -u", **sudo)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{NOBODY}\n"
    assert executions(tmp_path / "rec").label == ("job",) * 3 * len(ways)


def test_what_others_write_is_bounded_and_its_loss_is_said(tmp_path, monkeypatch):
    most = 1 << 20
    monkeypatch.setattr(marks, "_MOST_BYTES", most)
    directory = tmp_path / "rec"
    directory.mkdir()
    session = new_session_name()
    settings = RecorderSettings(session, directory, mark_users=(marks.EVERYBODY,), keep_raw=True)
    recorder = open_recorder(settings)
    recorder.start()
    file = PLACE / session / "trace_marker"

    def flood():
        with pytest.raises(PermissionError):
            file.open("rb")
        with pytest.raises(PermissionError):
            (INSTANCES / session / "trace_marker").open("wb")
        with file.open("wb", buffering=0) as stream:
            for number in range(20_000):
                stream.write(b"critpath:begin x%d " % number + b"a" * 700)
                stream.write(b"\0\xff\x1b[31m" * 50)

    flooding = as_user(OTHER, flood)
    assert end(flooding) == 0
    recorder.stop()
    result = recorder.finish(lambda _: None)
    assert sum(loss.events for loss in result.loss) > 10_000
    pages = [p.stat().st_size for p in (directory / "raw" / "marks").glob("cpu*")]
    # What was moved until then, one buffer, and what came while it was moved.
    assert sum(pages) <= most + len(pages) * (2 << 20) + (1 << 21)
    events = read_events(directory, (*KERNEL_EVENTS, *MARKER_EVENTS))
    assert sum(loss.events for loss in events.losses) > 10_000
    assert not file.exists()


def test_who_holds_the_file_open_holds_nothing_else(tmp_path):
    settings = RecorderSettings(new_session_name(), tmp_path, mark_users=(OTHER,))
    file = PLACE / settings.session / "trace_marker"
    ready, told = os.pipe()

    def hold():
        while not os.access(file, os.W_OK):
            time.sleep(0.01)
        stream = file.open("wb", buffering=0)
        os.write(told, b"x")
        time.sleep(60)
        stream.close()

    holding = as_user(OTHER, hold)  # before: a child has all that its parent has open
    recorder = open_recorder(settings)
    recorder.start()
    instance = INSTANCES / marks.instance_name(settings.session)
    try:
        os.read(ready, 1)
        recorder.stop()
        result = recorder.finish(lambda _: None)
        assert [w for w in result.warnings if f"process {holding} " in w]
        assert not (INSTANCES / settings.session).exists()
        assert (instance / "tracing_on").read_text() == "0\n"
    finally:
        kill(holding)
        instance.rmdir()


def test_a_killed_recorder_leaves_nothing_that_cleaning_does_not_remove(tmp_path):
    recorder = subprocess.Popen(
        [*CRITPATH, "record", "--recorder", "ftrace", "-o", "rec", "-a", "--marks-from", "all"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 30
    while not [*PLACE.glob(f"*-{recorder.pid}-*.ask")] and time.monotonic() < until:
        time.sleep(0.05)
    assert len([*PLACE.glob(f"*-{recorder.pid}-*")]) == 2
    recorder.kill()
    recorder.wait()
    done = subprocess.run(
        [*CRITPATH, "doctor", "--clean"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert "removed marker critpath-" in done.stdout
    assert not [*PLACE.glob(f"*-{recorder.pid}-*")]
    assert not [*INSTANCES.glob(f"*-{recorder.pid}-*")]


def test_doctor_names_the_programs_that_mark(tmp_path):
    marking = as_user(OTHER, mark_all_the_time)
    try:
        done = subprocess.run(
            [*CRITPATH, "doctor"],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    finally:
        kill(marking)
    assert f"({OTHER}): critpath record -a --marks-from {OTHER}" in done.stdout


def test_whom_marks_are_taken_from():
    user = User(1000, 1000, (1000,), {})
    assert mark_users("", None) == mark_users("none", user) == ()
    assert mark_users("", user) == (1000,)
    assert mark_users("all", user) == (marks.EVERYBODY,)
    assert mark_users("nobody, 7", user) == (7, 1000, NOBODY)
    for wrong in ("no-such-user", "-1", "4294967295", "\u0663"):
        with pytest.raises(UsageError):
            mark_users(wrong, None)


def test_a_place_that_others_can_change_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setattr(marks, "PLACE", str(tmp_path / "marks"))
    marks.make_place()
    (tmp_path / "marks").chmod(0o777)
    with pytest.raises(critpath.CritpathError, match="can be changed by others"):
        marks.make_place()
