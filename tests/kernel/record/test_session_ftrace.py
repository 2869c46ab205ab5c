"""Recordings of this machine's own kernel, where it can be traced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from critpath.read.recording import describe

pytestmark = pytest.mark.xdist_group("kernel")

CRITPATH = (sys.executable, "-m", "critpath")
INSTANCES = Path("/sys/kernel/tracing/instances")


def critpath(place, *arguments, **options):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
    return subprocess.run(
        [*CRITPATH, *arguments],
        cwd=place,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


@pytest.fixture(scope="module")
def traceable(tmp_path_factory):
    """Skip with the reason where ftrace cannot record."""
    from critpath.record.ftrace.recorder import missing_requirements  # noqa: PLC0415 - may not import elsewhere

    fatal = [o.what for o in missing_requirements(None) if o.fatal]
    if fatal:
        pytest.skip(f"ftrace cannot record here: {fatal[0]}")
    return tmp_path_factory.mktemp("ftrace")


def record(place, *arguments):
    done = critpath(place, "record", "--recorder", "ftrace", *arguments)
    assert not list(INSTANCES.glob(f"critpath-*-{os.getpid()}-*"))
    return done


def manifest(place, name):
    return json.loads((place / name / "critpath.json").read_text(encoding="utf-8"))


def test_runs_of_a_command(traceable):
    done = record(traceable, "-o", "a", "-n", "5", "sh", "-c", "sleep 0.01; exit 3")
    assert done.returncode == 3, done.stderr
    found = manifest(traceable, "a")
    assert found["state"] == "complete"
    assert len(found["runs"]) == 5
    assert {r["outlived"] for r in found["runs"]} == {0}
    names = {name for trace in describe(traceable / "a") for name in trace.events}
    assert {"sched_switch", "sched_process_exec", "sched_process_exit"} <= names
    paths = critpath(traceable, "path", "a", "--format", "json")
    assert paths.returncode == 0, paths.stderr
    lines = [json.loads(line) for line in paths.stdout.splitlines()]
    tids = {line["subject"]["tid"] for line in lines}
    assert {r["pid"] for r in found["runs"]} <= tids
    for line in lines:
        assert found["begin"] <= line["begin"] <= line["end"] <= found["end"]


def test_interleaved(traceable):
    done = record(traceable, "-o", "pair", "-n", "2", "--interleave", "sleep 0.01", "true")
    assert done.returncode == 0, done.stderr
    for name in ("normal", "sample"):
        assert len(manifest(traceable, f"pair/{name}")["runs"]) == 2
        assert describe(traceable / "pair" / name)


def kill_one(traceable, name):
    """Kill a recorder in one of its runs; return the session."""
    process = subprocess.Popen(
        [*CRITPATH, "record", "--recorder", "ftrace", "-o", name, "-n", "99", "sleep", "0.05"],
        cwd=traceable,
        stderr=subprocess.DEVNULL,
    )
    noted = traceable / name / "runs.jsonl"
    deadline = time.monotonic() + 20
    while not (noted.exists() and noted.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return manifest(traceable, name)["session"]


def test_a_killed_recorder_is_cleaned_up(traceable):
    session = kill_one(traceable, "killed")
    assert (INSTANCES / session).exists()
    done = record(traceable, "-o", "next", "true")
    assert done.returncode == 0
    assert "leftover" in done.stderr
    assert not (INSTANCES / session).exists()
    found = manifest(traceable, "killed")
    assert found["state"] == "interrupted"
    assert found["runs"]
    assert describe(traceable / "killed")


def test_finishing_by_name_has_what_the_buffers_held(traceable):
    session = kill_one(traceable, "named")
    done = critpath(traceable, "doctor", "--clean", "named")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (INSTANCES / session).exists()
    found = manifest(traceable, "named")
    assert found["state"] == "interrupted"
    assert found["recorder"]["event_count"] > 0
    assert not [x for x in found["warnings"] if "events may be missing at the end" in x]


def test_a_daemon_outlives_its_recording_and_the_next(traceable):
    script = "sleep 300 </dev/null >/dev/null 2>&1 & echo $! >daemon"
    done = record(traceable, "-o", "starts", "sh", "-c", script)
    pid = int((traceable / "daemon").read_text())
    try:
        assert "held open by" in done.stderr
        assert record(traceable, "-o", "follows", "true").returncode == 0
        assert Path(f"/proc/{pid}").exists()
    finally:
        os.kill(pid, signal.SIGKILL)
        critpath(traceable, "doctor", "--clean")
