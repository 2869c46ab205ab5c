"""Whose stacks a recording has: those that were asked for, and never the recorder's own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from critpath_record.counts.groups import find_root
from critpath_record.stacks.sources import find_obstacles

pytestmark = pytest.mark.usefixtures("traceable")

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


@pytest.fixture
def sleeper(start, tmp_path):
    """Return a function that starts a program of two threads that sleep."""

    def begin(*before):
        process = start(*before, sys.executable, "-c", SLEEPER, cwd=tmp_path)
        process.read_out()
        return process

    return begin


@pytest.fixture
def record_for_a_second(start, wait_for, tmp_path):
    """Return a function that records; it returns the threads with stacks, and the recorder's."""

    def record(*words, meanwhile=lambda: None):
        command = (sys.executable, "-m", "critpath", "record", "--stacks", "native")
        command += ("--recorder", "ftrace", "-o", "r", "--duration", "1")
        recorder = start(*command, *words, cwd=tmp_path)
        own = set()

        def has_ended():
            own.update(threads_of(recorder.pid))
            return recorder.process.poll() is not None

        recorder.wait_until_said("recording for")
        meanwhile()
        wait_for(has_ended)
        assert recorder.end() == 0, recorder.said
        rows = np.fromfile(tmp_path / "r" / "stacks" / "samples.bin", ROW)
        manifest = json.loads((tmp_path / "r" / "critpath.json").read_text())
        return set(rows["tid"].tolist()), own, manifest["recorder"]["stacks"]["scope"]

    return record


def test_of_the_whole_machine_the_recorders_own_are_left_out(sleeper, record_for_a_second):
    process = sleeper()
    found, own, scope = record_for_a_second("-a")
    assert threads_of(process.pid) <= found | {process.pid}
    assert len(own) > 5
    assert not own & found
    assert scope == "machine"
    process.kill()


@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare here")
def test_of_a_container_only_its_own_and_what_it_starts(sleeper, record_for_a_second):
    outside = sleeper()
    unshare = sleeper("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    [inside] = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()

    def begin_threads():
        unshare.process.stdin.write("\n")
        unshare.process.stdin.flush()
        unshare.read_out()

    found, own, scope = record_for_a_second("--container", inside, meanwhile=begin_threads)
    every = threads_of(int(inside))
    assert len(every) == 4
    assert found == every
    assert not found & (own | threads_of(outside.pid))
    assert scope == "processes"
    for each in (outside, unshare):
        each.kill()


def test_of_a_control_group_also_who_enters_it_later(sleeper, record_for_a_second, wait_for):
    root = find_root()
    if root is None or ":perf_event:" in Path("/proc/self/cgroup").read_text():
        pytest.skip("no control groups of version 2 for perf here")
    group = root / f"critpath-test-{os.getpid()}"
    group.mkdir()
    outside, first, second = (sleeper() for _ in range(3))
    try:
        (group / "cgroup.procs").write_text(str(first.pid))
        both = threads_of(first.pid) | threads_of(second.pid)

        def enter():
            (group / "cgroup.procs").write_text(str(second.pid))

        words = ("-a", "--scope", f"/{group.name}")
        found, own, scope = record_for_a_second(*words, meanwhile=enter)
        assert both - {first.pid, second.pid} <= found <= both
        assert not found & (own | threads_of(outside.pid))
        assert scope == f"/{group.name}"
    finally:
        for each in (outside, first, second):
            each.kill()
        wait_for(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()
