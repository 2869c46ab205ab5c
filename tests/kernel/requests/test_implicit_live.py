"""Slices of each marker on this kernel: 20 pieces of work are 20 slices."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from critpath import flow
from critpath_record.ftrace.recorder import find_needs

if os.geteuid():
    pytest.skip("recording needs root", allow_module_level=True)
if wrong := [o.what for o in find_needs(None) if o.fatal]:
    pytest.skip(f"cannot record here: {wrong[0]}", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[3]
WAITS = Path(__file__).with_name("waits.py")
BY_CALLS = ("pipe", "eventfd", "semaphore", "queue", "futex")
# For all that a busy machine does meanwhile: with the usual 8 MiB events were lost where much else
# ran, and slices that last while events are lost are left out (17 of 20, once in 50 recordings).
ROOM = ("--buffer-size", "64M")


@pytest.fixture(scope="module")
def record(critpath_process, tmp_path_factory):
    place = tmp_path_factory.mktemp("slices")

    def run(name: str, profile: str | Path, *ways: str) -> Path:
        options = ("--recorder", "ftrace", "--no-probe", "--profile", profile, *ROOM, "-o", name)
        done = critpath_process("record", *options, "--", sys.executable, WAITS, *ways, cwd=place)
        assert done.returncode == 0, done.stderr
        assert "events were lost" not in done.stderr
        return place / name

    return run


def count(recording: Path, specification: str) -> dict[str, list[int]]:
    """Return the durations of slices by the name of their thread."""
    executions = flow.extract([recording], specification=specification).executions
    found: dict[str, list[int]] = {}
    lasting = (executions.end - executions.begin).tolist()
    for name, duration in zip(executions.comm, lasting, strict=True):
        found.setdefault(name, []).append(duration)
    return found


@pytest.fixture(scope="module")
def calls(record) -> Path:
    return record("calls", "syscalls", *BY_CALLS)


@pytest.mark.parametrize("marker", BY_CALLS)
def test_by_calls(calls, marker):
    found = count(calls, f"slices:{marker},min=400us")
    assert len(found[marker]) >= 19
    if marker != "futex":  # by which threads of an interpreter wait for its lock as well
        assert len(found.pop(marker)) <= 20
        assert not found


def test_by_nothing_but_the_scheduler(calls):
    assert {*count(calls, "slices:fork")} >= {*BY_CALLS}
    assert len(count(calls, "slices:wake,min=400us")["futex"]) >= 19
    [root] = count(calls, "slices:fork,root").values()
    assert len(root) == 1


def test_at_a_socket_of_this_machine(record):
    recording = record("sockets", "requests", "unix")
    found = count(recording, "slices:unix,min=400us")
    assert {*found} == {"unix"}
    assert 19 <= len(found["unix"]) <= 20


def test_at_signals(record, tmp_path):
    profile = tmp_path / "signals.lttng"
    minimal = (ROOT / "lttng-sessions" / "minimal.lttng").read_text(encoding="utf-8")
    one = "       <event><name>{}</name><enabled>true</enabled><type>TRACEPOINT</type></event>\n"
    more = "".join(one.format(f"signal_{what}") for what in ("generate", "deliver"))
    profile.write_text(minimal.replace("      </events>", more + "      </events>"), "utf-8")
    recording = record("signals", profile, "signal")
    found = count(recording, "slices:signal,min=400us")
    assert 19 <= len(found["signal"]) <= 20


def test_stages_behind_a_barrier(critpath_process, tmp_path):
    """Seven threads, pinned to processor 0 by mistake: all but who comes last sleep each time."""
    stages, program = 20, tmp_path / "pinned"
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    source = ROOT / "evaluation" / "servers" / "pinned.c"
    subprocess.run(["gcc", "-O1", "-pthread", "-o", program, source], check=True)
    options = ("--recorder", "ftrace", "--no-probe", "-o", "recording", "--")
    done = critpath_process("record", *options, program, stages, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    paths = flow.extract([tmp_path / "recording"], specification="slices:wake")
    executions = paths.executions
    workers = np.flatnonzero(executions.tid > executions.tid.min())
    assert len(np.unique(executions.tid[workers])) == 7
    # One of seven does not sleep; it may be that another has not gone to sleep yet.
    assert 5 * stages <= len(workers) <= 7 * stages + 7
    for chunk in paths.paths.chunks():
        own = (chunk.tid == executions.tid[chunk.path]) & np.isin(chunk.path, workers)
        assert set(chunk.cpu[own & (chunk.cpu >= 0)].tolist()) == {0}
    roots = flow.extract([tmp_path / "recording"], specification="slices:wake,root").executions
    assert len(roots) < len(executions)
