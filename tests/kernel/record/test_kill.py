"""A recorder that is interrupted, ended or killed leaves nothing half-made.

``critpath record`` gets a signal at what it has just done: from the note of its session to the
trace that it writes.  Then ``critpath doctor --clean`` has to leave nothing but a recording
that can be read, or none.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from critpath_record.identity import SESSION_VARIABLE
from critpath_record.registry import registry_directory

pytestmark = [pytest.mark.xdist_group("kernel"), pytest.mark.usefixtures("traceable")]

CRITPATH = (sys.executable, "-m", "critpath", "record", "--recorder", "ftrace", "-o", "out")
INSTANCES = Path("/sys/kernel/tracing/instances")
RUNS = 12
WORK = ("sh", "-c", "sleep 0.02")


def names_of(pid):
    """Return what in tracefs and in the registry carries a recorder's sessions."""
    places = [INSTANCES, registry_directory()]
    wanted = f"-{pid}-"
    return [
        str(found)
        for place in places
        if place is not None and place.is_dir()
        for found in place.iterdir()
        if "critpath-" in found.name and wanted in found.name
    ]


def is_traced(pid):
    try:
        return any(
            (instance / "tracing_on").read_bytes().strip() == b"1"
            for instance in INSTANCES.glob(f"critpath-*-{pid}-*")
        )
    except OSError:
        return False


def has_lines(file):
    return file.exists() and file.stat().st_size > 0


# What it has just done, by what can be seen of it.
MOMENTS = {
    "it notes its session": lambda pid, _: names_of(pid),
    "it makes its instance": lambda pid, _: [*INSTANCES.glob(f"critpath-*-{pid}-*")],
    "it records": lambda pid, _: is_traced(pid),
    "a run has ended": lambda _, out: has_lines(out / "runs.jsonl"),
    "it makes the trace": lambda _, out: (out / "trace").exists(),
}


def belonging_to(session):
    """Return the processes that were started in a session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if f"{SESSION_VARIABLE}={session}".encode() in environment:
            found.append(entry.name)
    return found


def clean(critpath, pid):
    """Remove what is left, and check that nothing is of this recorder; others may be at work."""
    done = critpath("doctor", "--clean", "--json")
    left = [x for x in json.loads(done.stdout)["leftovers"] if f"-{pid}-" in x["session"]]
    assert (done.returncode in {0, 1}, left) == (True, []), done.stderr
    assert names_of(pid) == []


def check_readable(output, critpath):
    """Check that there is a whole recording or none, and return its state."""
    if not output.exists():
        return "absent"
    if not any(output.iterdir()):  # killed before the first file: as good as absent
        return "empty"
    inside = {p.name for p in output.iterdir()}
    assert inside == {"critpath.json", "trace"}, inside
    manifest = json.loads((output / "critpath.json").read_text())
    assert manifest["state"] in {"complete", "interrupted"}
    done = critpath("export", "--format", "paths", output, "-o", output.parent / "saved.parquet")
    # What Ctrl-C ended is no execution.
    if any(not run["interrupted"] for run in manifest["runs"]):
        assert done.returncode == 0, done.stderr
        assert manifest["recorder"]["event_count"] > 0
    else:
        # A recorder that was killed before the first event has recorded none.
        none = done.returncode == 4 and "holds no event" in done.stderr
        assert none or done.returncode in {0, 3}, done.stderr
    return manifest["state"]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_half_made(number, moment, start, critpath, wait_for, tmp_path):
    place = tmp_path / "here"
    place.mkdir()
    output = place / "out"
    recorder = start(*CRITPATH, "-n", RUNS, "--", *WORK, cwd=place)
    seen = MOMENTS[moment]
    wait_for(lambda: seen(recorder.pid, output) or recorder.process.poll() is not None)
    # Ctrl-C goes to the whole group, a kill to the process only.
    if number == signal.SIGINT:
        os.killpg(recorder.pid, number)
    else:
        recorder.send(number)
    code = recorder.end()
    if number != signal.SIGKILL:
        assert code in {0, 128 + number, -number}, recorder.said
        assert names_of(recorder.pid) == []  # nothing to clean: it has ended by itself
    clean(critpath, recorder.pid)
    assert {p.name for p in place.iterdir()} <= {"out"}
    state = check_readable(output, critpath)
    if number == signal.SIGKILL and moment == "a run has ended":
        assert state in {"interrupted", "complete"}
        found = json.loads((output / "critpath.json").read_text())
        assert found["runs"]
        assert not [x for x in found["warnings"] if "events may be missing at the end" in x]


def test_the_command_does_not_outlive_its_recorder(start, critpath, wait_for, tmp_path):
    """A long command ends with the recorder, what it started in the background is cleaned."""
    # Its output goes nowhere: what is left running must not keep our pipe open.
    script = f"exec >/dev/null 2>&1; sleep 300 & echo ${SESSION_VARIABLE} $$ >ready; sleep 301"
    recorder = start(*CRITPATH, "--", "sh", "-c", script, cwd=tmp_path)
    ready = tmp_path / "ready"
    wait_for(lambda: has_lines(ready) and "\n" in ready.read_text())
    session, command = ready.read_text().split()
    recorder.send(signal.SIGKILL)
    recorder.process.wait()
    wait_for(lambda: command not in belonging_to(session))
    document = json.loads(critpath("doctor", "--json").stdout)
    kinds = {x["kind"] for x in document["leftovers"] if x["session"] == session}
    # Another recorder of this machine may have been there first.
    assert kinds >= {"instance", "recording"} or names_of(recorder.pid) == []
    clean(critpath, recorder.pid)
    assert belonging_to(session) == []
    assert check_readable(tmp_path / "out", critpath) in {"interrupted", "absent"}
