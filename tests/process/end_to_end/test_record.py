"""From a command to a verdict on this machine's own kernel: record twice, compare."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from critpath.record.ftrace.recorder import missing_requirements

pytestmark = pytest.mark.xdist_group("kernel")

if os.geteuid():
    pytest.skip("recording needs root", allow_module_level=True)
if wrong := [o.what for o in missing_requirements(None) if o.fatal]:
    pytest.skip(f"cannot record here: {wrong[0]}", allow_module_level=True)

RUNS = 50
LAST_CPU = str(max(os.sched_getaffinity(0)))
# Sleeps, computes a little, and writes a block to the disk.  That most of it is sleep
# keeps what neighbours do to the machine between two recordings below the gate's floor.
HEALTHY = (
    "sleep 0.03; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; "
    "dd if=/dev/zero of=block bs=16k count=1 conv=fsync status=none"
)
FSYNC = "; dd if=/dev/zero of=other bs=512k count=20 oflag=direct,dsync status=none"


def shell(script: str) -> tuple[str, ...]:
    """A command pinned to one cpu, so that what competes with it is known."""
    return "taskset", "-c", LAST_CPU, "sh", "-c", script


@contextmanager
def competitor() -> Iterator[None]:
    """Something else that wants the same cpu all the time."""
    busy = subprocess.Popen(
        ["taskset", "-c", LAST_CPU, sys.executable, "-c", "while True: pass"],
    )
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    if shutil.which("taskset") is None:
        pytest.skip("taskset (util-linux) is not installed")
    return tmp_path_factory.mktemp("recordings")


@pytest.fixture(scope="module")
def record(critpath_process, place):
    def run(name: str, script: str, *options: str) -> Path:
        # By force: a test that is repeated records anew.
        runs = ("--recorder", "ftrace", "-n", RUNS, "--warmup", 3)
        arguments = (*runs, "-o", name, "--force", *options)
        done = critpath_process("record", *arguments, "--", *shell(script), cwd=place)
        assert done.returncode == 0, done.stderr
        return place / name

    return run


@pytest.fixture(scope="module")
def normal(record) -> Path:
    return record("normal", HEALTHY)


@pytest.fixture(scope="module")
def compare(critpath, normal, place):
    def run(sample: Path) -> tuple[int, dict]:
        done = critpath("compare", normal, sample, "--json", place / "comparison.json")
        assert done.returncode < 100, done.stderr
        return done.returncode, json.loads((place / "comparison.json").read_text())

    return run


def first_cause(comparison: dict) -> tuple[str, dict]:
    """Return the first cause's sentence, and the finding of the state that most of it is in."""
    cause = comparison["causes"][0]
    findings = [comparison["findings"][place] for place in cause["findings"]]
    weight: dict[str, float] = {}
    for finding in findings:
        weight[finding["state"]] = weight.get(finding["state"], 0) + finding["contribution"]
    main = max(weight, key=weight.__getitem__)
    return cause["sentence"], next(f for f in findings if f["state"] == main)


def test_the_recording_says_what_it_is(normal):
    manifest = json.loads((normal / "critpath.json").read_text())
    assert manifest["format"] == "critpath/recording/1"
    assert manifest["state"] == "complete"
    assert len(manifest["runs"]) == RUNS
    assert {run["exit_code"] for run in manifest["runs"]} == {0}
    assert manifest["recorder"]["name"] == "ftrace"
    assert manifest["host"]["kernel"] == os.uname().release
    assert normal.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(shutil.which("babeltrace2") is None, reason="babeltrace2 is not installed")
def test_babeltrace2_opens_the_trace(normal):
    done = subprocess.run(
        ["babeltrace2", str(normal / "trace")], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "sched_switch" in done.stdout


def test_every_run_is_one_execution(critpath, normal):
    done = critpath("path", normal, "--execution", "process", "--format", "json")
    assert done.returncode == 0, done.stderr
    paths = [json.loads(line) for line in done.stdout.splitlines()]
    manifest = json.loads((normal / "critpath.json").read_text())
    assert len(paths) == RUNS
    for path, run in zip(paths, manifest["runs"], strict=True):
        assert path["subject"]["tid"] == run["pid"]
        assert run["begin"] <= path["begin"] < path["end"] <= run["end"]
    # One run may have lost a moment to something that no trace of this kernel shows.
    shares = [path["unexplained"] / (path["end"] - path["begin"]) for path in paths]
    assert statistics.median(shares) <= 0.02


def test_the_same_command_again_is_no_anomaly(critpath, critpath_process, place):
    """In alternation: a machine that others share becomes slower from one minute to the next."""
    command = shlex.join(shell(HEALTHY))
    recorded = critpath_process(
        *("record", "--recorder", "ftrace", "-n", RUNS, "--warmup", 3, "-o", "both"),
        *("--interleave", command, command),
        cwd=place,
    )
    assert recorded.returncode == 0, recorded.stderr
    both = place / "both"
    done = critpath("compare", both / "normal", both / "sample", "--json", place / "both.json")
    comparison = json.loads((place / "both.json").read_text())
    assert (done.returncode, comparison["verdict"]) == (0, "ok"), comparison["reasons"]


def test_a_sleep_is_found(record, compare):
    code, comparison = compare(record("sleep", HEALTHY + "; sleep 0.03"))
    sentence, finding = first_cause(comparison)
    assert code == 1
    assert finding["state"] == "WAIT_TIMER", sentence
    assert finding["comm"] == "sleep"


def causes_of(comparison) -> list[tuple[str, set[str]]]:
    """Return what is said of every cause, and the states it is made of."""
    return [
        (cause["sentence"], {comparison["findings"][place]["state"] for place in cause["findings"]})
        for cause in comparison["causes"]
    ]


def test_extra_fsyncs_are_found(record, compare):
    code, comparison = compare(record("fsync", HEALTHY + FSYNC))
    assert code == 1
    # Not the first of them where others want the cpu each time that the disk has answered.
    causes = causes_of(comparison)
    assert any("WAIT_DISK" in states for _, states in causes), causes


def test_a_competitor_for_the_cpu_is_found(record, compare):
    with competitor():
        sample = record("busy", HEALTHY)
    code, comparison = compare(sample)
    # Recorded at another time, it may be the machine's doing: named, and no alarm for certain.
    if code == 0:  # the healthy runs had no cpu for themselves either: others are at work here
        effect = next(s["effect"] for s in comparison["states"] if s["state"] == "total")
        assert effect < comparison["detection"]["detectable"]
        return
    assert code == 1 or "`python" in " ".join(comparison["reasons"])
    # Not the first of them everywhere: who has the cpu keeps the disk's answers waiting, too.
    causes = causes_of(comparison)
    assert any("WAIT_CPU" in states and "python" in text for text, states in causes), causes


def test_a_lossy_recording_is_inconclusive_and_its_loss_is_the_kernels(
    critpath_process, compare, place
):
    # Above the recorder's own priority and with the smallest buffers: it cannot keep up.
    flood = ("chrt", "-f", "50", "taskset", "-c", LAST_CPU, "dd", "if=/dev/zero", "of=/dev/null")
    small = ("--buffer-size", "4K", "--profile", "syscalls", "--keep-raw")
    arguments = ("--recorder", "ftrace", "-n", 10, *small, "-o", "lossy")
    done = critpath_process(
        "record", *arguments, "--", *flood, "bs=1", "count=30000", "status=none", cwd=place
    )
    assert done.returncode == 0, done.stderr
    assert "events were lost" in done.stderr
    manifest = json.loads((place / "lossy" / "critpath.json").read_text())
    counted = json.loads((place / "lossy" / "raw" / "stats.json").read_text())
    names = ("overrun", "commit overrun", "dropped events")
    kernel = {int(cpu): sum(stats[n] for n in names) for cpu, stats in counted.items()}
    assert {loss["cpu"]: loss["events"] for loss in manifest["loss"]} == {
        cpu: lost for cpu, lost in kernel.items() if lost
    }
    code, comparison = compare(place / "lossy")
    assert (code, comparison["verdict"]) == (3, "inconclusive"), comparison["reasons"]
