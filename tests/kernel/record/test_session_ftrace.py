"""From a command to a verdict on this machine's own kernel: two commands in turn, compared."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from critpath.read.traces import describe

pytestmark = [pytest.mark.xdist_group("kernel"), pytest.mark.usefixtures("traceable")]

CRITPATH = (sys.executable, "-m", "critpath")
INSTANCES = Path("/sys/kernel/tracing/instances")
RUNS = 12


@pytest.fixture(scope="module")
def pair(record, tmp_path_factory):
    """One sleeps for so much longer than the other that no neighbour can hide it."""
    place = tmp_path_factory.mktemp("pair")
    words = ("--recorder", "ftrace", "-n", RUNS, "--interleave", "sleep 0.01", "sleep 0.25")
    done = record(place, "pair", *words)
    assert not list(INSTANCES.glob(f"critpath-*-{done.pid}-*"))
    return place / "pair"


def manifest(recording):
    return json.loads((recording / "critpath.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("half", ["normal", "sample"])
def test_the_recording_says_what_it_is(pair, half):
    found = manifest(pair / half)
    assert found["format"] == "critpath/recording/1"
    assert found["state"] == "complete"
    assert len(found["runs"]) == RUNS
    assert {run["exit_code"] for run in found["runs"]} == {0}
    assert {run["outlived"] for run in found["runs"]} == {0}
    assert found["recorder"]["name"] == "ftrace"
    assert found["host"]["kernel"] == os.uname().release
    assert (pair / half).stat().st_mode & 0o777 == 0o700
    names = {name for trace in describe(pair / half) for name in trace.events}
    assert {"sched_switch", "sched_process_exec", "sched_process_exit"} <= names


def test_every_run_is_one_execution(pair, critpath):
    done = critpath("path", pair / "sample", "--execution", "process", "--format", "json")
    assert done.returncode == 0, done.stderr
    paths = [json.loads(line) for line in done.stdout.splitlines()]
    runs = manifest(pair / "sample")["runs"]
    assert len(paths) == RUNS
    for path, run in zip(paths, runs, strict=True):
        assert path["subject"]["tid"] == run["pid"]
        assert run["begin"] <= path["begin"] < path["end"] <= run["end"]


def test_a_sleep_is_found(pair, critpath, tmp_path):
    answer = tmp_path / "answer.json"
    done = critpath("compare", pair / "normal", pair / "sample", "--json", answer)
    assert done.returncode == 1, done.stderr
    found = json.loads(answer.read_text())
    states = {found["findings"][place]["state"] for place in found["causes"][0]["findings"]}
    assert "WAIT_TIMER" in states, found["causes"][0]["sentence"]


def test_a_daemon_outlives_its_recording_and_the_next(record, critpath, tmp_path):
    script = "sleep 300 </dev/null >/dev/null 2>&1 & echo $! >daemon"
    done = record(tmp_path, "starts", "--recorder", "ftrace", "sh", "-c", script)
    pid = int((tmp_path / "daemon").read_text())
    try:
        assert "held open by" in done.said
        record(tmp_path, "follows", "--recorder", "ftrace", "true")
        assert Path(f"/proc/{pid}").exists()
    finally:
        os.kill(pid, signal.SIGKILL)
        critpath("doctor", "--clean")


def test_killed_outright_nothing_traces_and_nothing_is_mounted(start, critpath, wait_for, tmp_path):
    """Every instance that was made, also of marks, is off at once; of files there is none."""
    wanted = ("--recorder", "ftrace", "-a", "--files", "--marks-from", "nobody", "--duration", "60")
    words = (sys.executable, "-m", "critpath", "record", *wanted, "-o", tmp_path / "rec")
    recording = start(*words, cwd=tmp_path)

    def mine() -> list[Path]:
        return [*INSTANCES.glob(f"*-{recording.pid}-*")]

    def on() -> list[str]:
        found = []
        for instance in mine():
            with contextlib.suppress(FileNotFoundError):  # it was only tried, and is gone again
                found += [instance.name] * ((instance / "tracing_on").read_text().strip() == "1")
        return found

    def mounted() -> list[str]:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        return [line for line in lines if f"-{recording.pid}-" in line]

    try:
        wait_for(lambda: len(on()) >= 2 and mounted())
    finally:
        os.kill(recording.pid, signal.SIGKILL)
    wait_for(lambda: not on() and not mounted())
    assert not [i for i in mine() if (i / "set_event").read_text().strip()]
    critpath("doctor", "--clean")
    assert not mine()
