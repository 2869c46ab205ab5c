"""LTTng's programs as processes: a played client and a played session daemon."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from critpath.errors import CritpathError
from critpath_marks import sessions
from critpath_record.lttng import daemon, program
from critpath_record.lttng.daemon import find_leftovers
from tests.played.lttng import Machine
from tests.played.names import dead_name

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    directory = tmp_path / "machine"
    programs = directory / "bin"
    programs.mkdir(parents=True)
    for name in ("lttng", "lttng-sessiond"):
        script = programs / name
        script.write_text(
            f"#!{sys.executable} -S\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
            "from tests.played.lttng import main\nmain()\n"
        )
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PLAYED", str(directory))
    played = Machine(directory)
    yield played
    pid = played.daemon_runs()
    if pid and pid != os.getpid():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_what_the_client_prints_is_read_or_said(machine):
    machine.start_foreign_daemon()
    machine.add_session("mine")
    assert program.list_sessions() == {"mine": "/elsewhere"}
    machine.set(fails={"start": "Kernel tracer not\x1b[2J available"}, hangs=["stop"])
    with pytest.raises(program.LttngError, match="lttng start failed: Kernel tracer not") as caught:
        program.run_lttng("start", "mine")
    assert "\x1b" not in caught.value.what
    with pytest.raises(program.LttngError, match=r"lttng stop did not answer in 0 s"):
        program.run_lttng("stop", "mine", limit=0.2)


def test_a_daemon_of_a_dead_recorder_is_found_by_its_environment_and_ended(machine):
    session = dead_name()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # as a recorder has it
    try:
        pid = daemon.start_daemon(session)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert pid == machine.daemon_runs()
    assert (pid, session) in daemon.find_own_daemons()
    machine.add_session("theirs")
    [found] = [one for one in find_leftovers() if one.session == session]  # not other tests'
    assert (found.kind, found.name) == ("daemon", str(pid))
    with pytest.raises(CritpathError, match="still has sessions"):
        found.remove()
    program.run_lttng("destroy", "theirs")
    found.remove()
    assert sessions.start_time(pid) == 0
    assert not machine.daemon_runs()
    assert session not in {one.session for one in find_leftovers()}


def test_a_daemon_that_does_not_come_up_says_why(machine):
    machine.set(daemon_fails="Could not create lock file")
    with pytest.raises(CritpathError, match="did not come up: Error: Could not create lock file"):
        daemon.start_daemon(sessions.new_session_name())
