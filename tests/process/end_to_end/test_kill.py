"""A recorder that is interrupted, ended or killed at any moment leaves nothing half-made.

On this machine's own kernel, as root: ``critpath record`` is hit by a signal at moments
spread over its whole life, and then ``critpath doctor --clean`` has to leave nothing but a
recording that can be read, or none.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from critpath.record import preflight
from critpath.record.identity import SESSION_VARIABLE
from critpath.record.registry import registry_directory

MOMENTS = 20
SEED = 20
RUNS = 12
# Kept alive by nothing but the recorder; found by its argument if it is not ended.
MARK = "critpath-kill-test"
WORK = f"sleep 0.02; : {MARK}-{os.getpid()}"


def _why_not() -> str:
    if os.geteuid() != 0:
        return "recording needs root"
    try:
        usable = not any(o.fatal for o in preflight.check_machine(Path.cwd()).recorders["ftrace"])
    except KeyError:
        return "there is no ftrace recorder"
    return "" if usable else "the ftrace recorder cannot record here"


pytestmark = [
    pytest.mark.xdist_group("kernel"),
    pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "can record"),
]


def start(output: Path, *options: str, command: tuple[str, ...] = ("sh", "-c", WORK)):
    """Start a recording in a process group of its own, as a shell would."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "critpath", "record", "--recorder", "ftrace"),
            *("-n", str(RUNS), "-o", str(output), *options, "--", *command),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )


def critpath(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "critpath", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def processes(mark: str) -> list[str]:
    """Return the living processes that belong to a recording of ours."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if mark in line and int(entry.name) != os.getpid():
            found.append(f"{entry.name}: {line}")
    return found


def names_of(pid: int) -> list[str]:
    """Return what in tracefs and in the registry carries a recorder's sessions."""
    places = [Path("/sys/kernel/tracing/instances"), registry_directory()]
    wanted = f"-{pid}-"
    return [
        str(found)
        for place in places
        if place is not None and place.is_dir()
        for found in place.iterdir()
        if "critpath-" in found.name and wanted in found.name
    ]


def check_nothing_is_left(pid: int, output: Path) -> None:
    assert names_of(pid) == []
    assert processes(f"{MARK}-{os.getpid()}") == []
    beside = [p.name for p in output.parent.iterdir() if p != output]
    assert beside == []


def check_readable(output: Path) -> str:
    """Check that there is a whole recording or none, and return its state."""
    if not output.exists():
        return "absent"
    if not any(output.iterdir()):  # killed before the first file: as good as absent
        return "empty"
    inside = {p.name for p in output.iterdir()}
    assert inside == {"critpath.json", "trace"}, inside
    manifest = json.loads((output / "critpath.json").read_text())
    assert manifest["state"] in {"complete", "interrupted"}
    saved = output.parent / "saved.parquet"
    done = critpath("extract", output, "-o", saved)
    # What Ctrl-C ended is no execution.
    if any(not run["interrupted"] for run in manifest["runs"]):
        assert done.returncode == 0, done.stderr
    else:
        # A recorder that was killed before the first event has recorded none.
        none = done.returncode == 4 and "holds no event" in done.stderr
        assert none or done.returncode in {0, 3}, done.stderr
    saved.unlink(missing_ok=True)
    return str(manifest["state"])


@pytest.fixture(scope="module")
def lifetime(tmp_path_factory) -> float:
    """Seconds that a recording takes that nobody disturbs."""
    output = tmp_path_factory.mktemp("undisturbed") / "out"
    begin = time.monotonic()
    recorder = start(output)
    text, _ = recorder.communicate(timeout=120)
    assert recorder.returncode == 0, text
    assert check_readable(output) == "complete"
    return time.monotonic() - begin


def moments(number: signal.Signals) -> Iterator[float]:
    """Yield shares of a lifetime: one in each twentieth of it."""
    chance = random.Random(SEED + number)  # noqa: S311 - moments, not secrets
    for i in range(MOMENTS):
        yield (i + chance.random()) / MOMENTS


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_at_any_moment_leaves_nothing_half_made(number, lifetime, tmp_path):
    states: dict[str, int] = {}
    for index, share in enumerate(moments(number)):
        place = tmp_path / str(index)
        place.mkdir()
        output = place / "out"
        recorder = start(output)
        time.sleep(share * lifetime)
        # Ctrl-C goes to the whole group, a kill to the process only.
        if number == signal.SIGINT:
            os.killpg(recorder.pid, number)
        else:
            recorder.send_signal(number)
        text, _ = recorder.communicate(timeout=60)
        where = f"moment {index} ({share * lifetime:.3f} s): {text}"
        if number != signal.SIGKILL:
            # Nothing to clean: it has ended by itself.  Python ends with 1 where the signal
            # comes before it has imported its own `site`, and nothing of ours runs yet.
            too_early = recorder.returncode == 1 and "Fatal Python error: init" in text
            assert too_early or recorder.returncode in {0, 128 + number, -number}, where
            check_nothing_is_left(recorder.pid, output)
        cleaned = critpath("doctor", "--clean")
        assert cleaned.returncode == 0, where + cleaned.stdout + cleaned.stderr
        check_nothing_is_left(recorder.pid, output)
        state = check_readable(output)
        states[state] = states.get(state, 0) + 1
    # The moments were spread over everything: before, during and, rarely, after.
    assert sum(states.values()) == MOMENTS
    assert len(states) > 1, states


@pytest.mark.parametrize("moment", [0.5, 0.8])
def test_the_command_does_not_outlive_its_recorder(moment, lifetime, tmp_path):
    """A long command ends with the recorder, what it started in the background is cleaned."""
    del lifetime
    mark = f"{MARK}-{os.getpid()}"
    # Its output goes nowhere: what is left running must not keep our pipe open.
    script = f"exec >/dev/null 2>&1; sleep 300 & sleep 301; : {mark}"
    recorder = start(tmp_path / "out", command=("sh", "-c", script))
    deadline = time.monotonic() + 30
    while not command_of(mark) or time.monotonic() < deadline - 30 + moment:
        assert time.monotonic() < deadline
        assert recorder.poll() is None
        time.sleep(0.05)
    session = next(
        value
        for variable in Path(f"/proc/{command_of(mark)}/environ").read_bytes().split(b"\0")
        if (value := variable.decode().removeprefix(SESSION_VARIABLE + "=")) != variable.decode()
    )
    recorder.kill()
    recorder.wait()
    recorder.communicate()
    time.sleep(0.2)
    assert [p for p in processes(mark) if "sh -c" in p] == []
    assert critpath("doctor").returncode == 1
    document = json.loads(critpath("doctor", "--json").stdout)
    kinds = {x["kind"] for x in document["leftovers"] if x["session"] == session}
    assert kinds >= {"instance", "recording"}
    assert critpath("doctor", "--clean").returncode == 0
    assert names_of(recorder.pid) == []
    assert belonging_to(session) == []
    assert check_readable(tmp_path / "out") in {"interrupted", "absent"}


def command_of(mark: str) -> int:
    """Return the pid of the recorded command: the recorder's child; 0 before there is one."""
    shells = [p for p in processes(mark) if "sh -c" in p and "critpath record" not in p]
    return int(shells[0].split(":")[0]) if shells else 0


def belonging_to(session: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"{SESSION_VARIABLE}={session}".encode() in environment:
                found.append(entry.name)
    return found
