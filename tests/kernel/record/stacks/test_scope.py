"""Whose stacks a recording has: those that were asked for, and never the recorder's own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from critpath.errors import UsageError
from critpath.record.counts.groups import find_root
from critpath.record.stacks.sources import find_obstacles, find_scope

pytestmark = [pytest.mark.xdist_group("kernel"), pytest.mark.long]

# Sleeps in two threads; in a third from its first line of input on.
SLEEPER = """import sys, threading, time
def sleep():
    while True:
        time.sleep(.003)
threading.Thread(target=sleep, daemon=True).start()
print(flush=True)
while sys.stdin.readline():
    threading.Thread(target=sleep, daemon=True).start()
    threading.Thread(target=sleep, daemon=True).start()
    print(flush=True)
"""
ROW = np.dtype(
    [("time", "<i8"), ("tid", "<i4"), ("woken", "<i4"), ("stack", "<i4"), ("kind", "u1")]
)


@pytest.fixture(autouse=True)
def perf():
    if obstacles := find_obstacles("native"):
        pytest.skip(obstacles[0].what)


def threads_of(pid):
    """Return the threads of a process and of what it started."""
    found = set()
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found.add(int(thread.name))
            for child in (thread / "children").read_text().split():
                found |= threads_of(int(child))
    return found


@contextlib.contextmanager
def sleeper(*before):
    command = [*before, sys.executable, "-c", SLEEPER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.kill()


def record(place, *words, meanwhile=lambda: None):
    """Record for two seconds; return the threads with stacks, the recorder's, and its manifest."""
    command = [sys.executable, "-m", "critpath", "record", "--stacks", "native"]
    command += ["--recorder", "ftrace", "-o", str(place), *words]
    own = set()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        said = ""
        while "recording for" not in said and (line := process.stderr.readline()):
            said += line
        meanwhile()
        while process.poll() is None:
            own |= threads_of(process.pid)
            time.sleep(0.02)
        said += process.stderr.read()
    if "cannot record here" in said:
        pytest.skip(said)
    assert process.returncode == 0, said
    rows = np.fromfile(place / "stacks" / "samples.bin", ROW)
    manifest = json.loads((place / "critpath.json").read_text())["recorder"]["stacks"]
    return set(rows["tid"].tolist()), own, manifest


def test_of_the_whole_machine_the_recorders_own_are_left_out(tmp_path):
    with sleeper() as process:
        found, own, manifest = record(tmp_path / "r", "-a", "--duration", "2")
        assert threads_of(process.pid) <= found | {process.pid}
    assert len(own) > 5
    assert not own & found
    assert manifest["scope"] == "machine"


@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare here")
def test_of_a_container_only_its_own_and_what_it_starts(tmp_path):
    apart = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    with sleeper() as outside, sleeper(*apart) as unshare:
        (inside,) = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()

        def start():
            unshare.stdin.write(b"\n")
            unshare.stdin.flush()
            unshare.stdout.readline()

        words = ("--container", inside, "--duration", "2")
        found, own, manifest = record(tmp_path / "r", *words, meanwhile=start)
        every = threads_of(int(inside))
        assert len(every) == 4
        assert found == every
        assert not found & (own | threads_of(outside.pid))
    assert manifest["scope"] == "processes"


def test_of_a_control_group_also_who_enters_it_later(tmp_path):
    root = find_root()
    if root is None or ":perf_event:" in Path("/proc/self/cgroup").read_text():
        pytest.skip("no control groups of version 2 for perf here")
    group = root / f"critpath-test-{os.getpid()}"
    group.mkdir()
    try:
        with sleeper() as outside, sleeper() as first, sleeper() as second:
            (group / "cgroup.procs").write_text(str(first.pid))
            both = threads_of(first.pid) | threads_of(second.pid)

            def enter():
                (group / "cgroup.procs").write_text(str(second.pid))

            words = ("-a", "--scope", f"/{group.name}", "--duration", "2")
            found, own, manifest = record(tmp_path / "r", *words, meanwhile=enter)
            assert both - {first.pid, second.pid} <= found <= both
            assert not found & (own | threads_of(outside.pid))
        assert manifest["scope"] == f"/{group.name}"
    finally:
        until = time.monotonic() + 5
        while (group / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.02)
        group.rmdir()


def test_a_command_has_its_own_unless_the_machine_is_asked_for():
    assert find_scope("", 0, command=True) == find_scope("command", 0, command=True) == {}
    assert find_scope("machine", 0, command=True) == {"machine": True}
    assert find_scope("", 0, command=False) == {"machine": True}
    for wrong in ("command", "/no-such-group"):
        with pytest.raises(UsageError):
            find_scope(wrong, 0, command=False)
    with pytest.raises(UsageError):
        find_scope("", 1, command=False)
