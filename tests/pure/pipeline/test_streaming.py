"""A recording that is read as a stream gives what it gives as a whole in memory."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import resource
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from critpath.errors import UsageError
from critpath.executions.find import find_executions
from critpath.executions.specification import get_event_requests, parse_specification
from critpath.graph.critical_path import subject_workers
from critpath.graph.execution_graph import critical_paths
from critpath.graph.resources import explain_waits
from critpath.model import CriticalPaths
from critpath.pipeline import ExtractSettings, extract, extraction, limits
from critpath.pipeline import opening as sources
from critpath.pipeline.limits import Budget
from critpath.pipeline.recordings import fit_jobs
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.manifest import add_manifest, open_manifest
from critpath.read.recording import describe, read_events
from critpath.read.streaming import OutOfOrder
from critpath.timeline import blocks as spilling
from critpath.timeline.missing_switches import repair_switches
from critpath.timeline.replay import replay
from critpath.timeline.resources import ResourceEvents

REQUESTS = "events:app:request_begin,app:request_end,key=id"
MIB = 1 << 20


def as_a_whole(recording: Path, text: str):
    """The paths of a recording from all of its events, one replay, one block."""
    manifest, _ = open_manifest(recording)
    specification = parse_specification(text)
    events = read_events(recording, (*KERNEL_EVENTS, *get_event_requests(specification)))
    events = add_manifest(repair_switches(events), manifest)
    names = sorted({name for of in describe(recording) for name in of.events})
    executions = find_executions(
        events, specification, names, manifest.runs, interleaved=bool(manifest.interleaved)
    )
    timelines = replay(events)
    subjects = subject_workers(timelines.workers, executions)
    whole = critical_paths(timelines, subjects, executions.begin, executions.end)
    resources = ResourceEvents(())
    resources.feed(events, events.classes)
    disks = resources.finish(events.end)
    explained = explain_waits(_Set(whole), timelines.workers, disks, (), {}, events.strings)
    return executions, explained.paths


@dataclass(frozen=True)
class _Set:
    """What `explain_waits` wants of a set of paths."""

    paths: CriticalPaths


def assert_same(paths, executions, whole):
    assert paths.executions.id == executions.id
    assert paths.executions.comm == executions.comm
    assert paths.executions.notes == executions.notes
    assert paths.executions.incomplete == executions.incomplete
    found = paths.paths
    for column in ("start", "begin", "end", "state", "tid", "host", "cpu", "lossy"):
        np.testing.assert_array_equal(getattr(found, column), getattr(whole, column), column)
    for column in ("detail", "comm"):
        ours, theirs = (
            [of.strings[code] for code in getattr(of, column).tolist()] for of in (found, whole)
        )
        assert ours == theirs


def joined(recording: Path, text: str, monkeypatch, rows: int, segments: int, *, spills: bool):
    """The paths of a recording in blocks and groups of some size."""
    monkeypatch.setattr(Budget, "within", lambda _: Budget(rows, segments, spills=spills))
    return extract([recording], specification=text, max_memory=1 << 40)


SIZES = ((1 << 17, 0, False), (500, 0, False), (3_000, 200, True), (100, 1, True))


@pytest.mark.parametrize(("rows", "segments", "spills"), SIZES)
@pytest.mark.parametrize("name", ["normal", "sample-lock", "sample-quota"])
def test_recordings_of_the_guest(guest, monkeypatch, name, rows, segments, spills):
    paths = joined(guest(name), REQUESTS, monkeypatch, rows, segments, spills=spills)
    executions, whole = as_a_whole(guest(name), REQUESTS + ",label=type")
    assert_same(paths, executions, whole)


@pytest.mark.parametrize("text", ["thread", "process"])
@pytest.mark.parametrize(
    "name", ["public/tc-bug446190", "public/selora-namespace_live", "public/tc-scp_dest"]
)
def test_public_traces(shared, monkeypatch, name, text):
    recording = shared(name)
    paths = joined(recording, text, monkeypatch, 20_000, 5_000, spills=True)
    assert_same(paths, *as_a_whole(recording, text))


# ------------------------------------------------- what is known only behind the end


@pytest.fixture(scope="module")
def large_trace():
    file = Path(__file__).parents[3] / "evaluation" / "benchmarks" / "large_trace.py"
    spec = importlib.util.spec_from_file_location("large_trace", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("large_trace", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("options", [{}, {"loss": 0.01}, {"missing_switches": 0.02}])
@pytest.mark.parametrize(("rows", "segments", "spills"), [SIZES[0], SIZES[2]])
def test_losses_and_missing_switches(
    large_trace, tmp_path, monkeypatch, options, rows, segments, spills
):
    recording = tmp_path / "trace"
    large_trace.generate(recording, 60_000, cpus=4, executions=60, seed=3, **options)
    paths = joined(recording, REQUESTS, monkeypatch, rows, segments, spills=spills)
    assert len(paths) > 20
    assert bool(paths.losses) == ("loss" in options)
    counted = [e for e in paths.environment if "switches_put_in" in e]
    assert bool(counted) == ("missing_switches" in options)
    assert_same(paths, *as_a_whole(recording, REQUESTS + ",label=type"))


def test_events_out_of_order_are_read_as_a_whole(guest, monkeypatch):
    """One stream goes backwards: the pass ends, and all events are sorted in memory."""
    recording = guest("normal")
    before = extract([recording], specification=REQUESTS)

    class Backwards(sources.EventStream):
        def __next__(self):
            raise OutOfOrder("kernel/channel0_0")

    monkeypatch.setattr(sources, "EventStream", Backwards)
    paths = joined(recording, REQUESTS, monkeypatch, 1_000, 100, spills=True)
    assert_same(paths, before.executions, before.paths)
    [said] = [w for w in paths.warnings if "max-memory" in w]
    assert "time runs backwards within kernel/channel0_0" in said


def test_order_is_lost_while_missing_switches_are_looked_for(large_trace, tmp_path, monkeypatch):
    """A contradiction first, and two packets in the wrong order behind it."""
    recording = tmp_path / "trace"
    large_trace.generate(
        recording, 60_000, cpus=2, executions=60, seed=3, missing_switches=0.05, subbuffer=1 << 16
    )
    file = recording / "kernel" / "kernel_0"
    packets = file.read_bytes()
    size = 1 << 16
    assert len(packets) > 6 * size
    swapped = packets[4 * size : 5 * size] + packets[3 * size : 4 * size]
    file.write_bytes(packets[: 3 * size] + swapped + packets[5 * size :])
    paths = joined(recording, REQUESTS, monkeypatch, 3_000, 200, spills=True)
    assert len(paths) > 20
    assert any("its events were sorted" in said for said in paths.warnings)
    assert_same(paths, *as_a_whole(recording, REQUESTS + ",label=type"))


def test_switches_put_in_are_as_wide_as_their_class(large_trace, tmp_path, monkeypatch):
    """A key that is no field of the replay's own: unknown of a switch nobody wrote."""
    recording = tmp_path / "trace"
    large_trace.generate(recording, 60_000, cpus=2, executions=20, seed=3, missing_switches=0.05)
    text = "events:sched_switch,sched_switch,key=next_prio,label=-"
    paths = joined(recording, text, monkeypatch, 3_000, 0, spills=False)
    assert set(paths.executions.id) <= {"0", "20", "30", "120"}
    assert_same(paths, *as_a_whole(recording, text))


def test_the_other_reader(guest):
    paths = extract([guest("normal")], specification=REQUESTS, reader="babeltrace2")
    native = extract([guest("normal")], specification=REQUESTS)
    assert_same(paths, native.executions, native.paths)


# ------------------------------------------------------------------------- the limit


def run(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "critpath", *arguments],
        check=False,
        capture_output=True,
        text=True,
        **options,
    )


# A child's peak is never below what its parent had: so the parent is a small one.
WATCH = """
import os, sys
command = [sys.executable, "-m", "critpath", *sys.argv[1:]]
child = os.posix_spawn(sys.executable, command, os.environ)
_, status, used = os.wait4(child, 0)
print(used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak_of(*arguments: str) -> int:
    """Run critpath and return the most memory it had, in bytes."""
    done = subprocess.run(
        [sys.executable, "-c", WATCH, *arguments], check=True, capture_output=True, text=True
    )
    return 1024 * int(done.stdout)


def least_of(recording: Path, *options: str) -> int:
    """Return the least that critpath asks for here, in MiB: what it takes by itself differs."""
    out = recording.with_name("never")
    done = run("extract", str(recording), "-o", str(out), "--max-memory", "1M", *options)
    assert done.returncode == 2
    assert not out.exists()
    assert done.stderr.startswith("critpath: --max-memory 1M is too little")
    return int(re.search(r"give at least (\d+)M", done.stderr)[1])


@pytest.mark.long
def test_a_limit_far_below_the_trace(large_trace, tmp_path):
    """A trace of 500 MB, of which 150 are kept; the least limit leaves some 35 for them."""
    recording = tmp_path / "trace"
    large_trace.generate(recording, 12_000_000, executions=1_200)
    least = least_of(recording)
    written, peaks = [], []
    for limit in ("0", f"{least}M"):
        out = tmp_path / f"{limit}.parquet"
        command = ["extract", recording, "-o", out, "--execution", REQUESTS, "--quiet"]
        peaks.append(peak_of(*map(str, command), "--max-memory", limit))
        written.append(out.read_bytes())
    assert written[0] == written[1]
    assert peaks[1] <= least * MIB < peaks[0]


def test_what_the_process_takes_by_itself_counts(guest, tmp_path):
    """A process with 160 MB more of its own asks for 160 MB more."""
    (tmp_path / "sitecustomize.py").write_text("fat = bytearray(b'x') * (160 << 20)\n")
    path = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = ("extract", str(guest("normal")), "-o", str(tmp_path / "x"), "--max-memory", "1M")
    found = [
        int(re.search(r"give at least (\d+)M", run(*command, env=env).stderr)[1])
        for env in (None, path)
    ]
    # Rounded, and not the same on every start.
    assert abs(found[1] - found[0] - 160) <= 64


def test_several_jobs_within_a_limit_write_the_same(guest, tmp_path):
    recordings = [str(guest(name)) for name in ("normal", "sample-lock", "sample-quota")]
    written = []
    for options in (("--jobs", "1"), ("--jobs", "2", "--max-memory", "2G")):
        out = tmp_path / f"{len(written)}.parquet"
        done = run("extract", *recordings, "-o", str(out), *options, "--execution", REQUESTS)
        assert done.returncode == 0, done.stderr
        written.append(out.read_bytes())
    assert written[0] == written[1]


def test_too_little(guest, tmp_path):
    out = tmp_path / "x.parquet"
    done = run("extract", str(guest("normal")), "-o", str(out), "--max-memory", "32M")
    assert done.returncode == 2
    assert "--max-memory 32M is too little" in done.stderr
    assert re.search(r"give at least \d+M", done.stderr)
    assert not out.exists()


def test_the_least_for_several_jobs(guest):
    """Of each as much as of one alone; and as few as there is memory for, unless told."""
    recordings = [guest("normal"), guest("sample-lock")]
    settings = ExtractSettings(REQUESTS, max_memory=limits.least_room() + 8 * MIB)
    assert fit_jobs(None, recordings, settings) == 1
    with pytest.raises(UsageError, match="too little for 2 jobs") as caught:
        fit_jobs(2, recordings, settings)
    assert caught.value.do.endswith(", or --jobs 1")
    advised = int(re.search(r"\d+", caught.value.do)[0]) * MIB
    assert fit_jobs(2, recordings, replace(settings, max_memory=advised)) == 2
    # What the process takes may be less, or more, at another look.
    assert abs(advised - 2 * limits.least_room()) <= 96 * MIB


def test_no_room_for_the_temporary_file(guest, tmp_path):
    """A temporary directory without room: said, and nothing is left."""

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    out = tmp_path / "x.parquet"
    done = run(
        *("extract", str(guest("normal")), "-o", str(out), "--max-memory", "512M"),
        *("--execution", REQUESTS),
        preexec_fn=small_files,
    )
    assert done.returncode == 2
    assert "the temporary file of --max-memory" in done.stderr
    assert "TMPDIR" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_temporary_directory_that_is_named_or_none(guest, tmp_path, monkeypatch):
    """Python would take another one: one in memory perhaps, without a word."""
    out = tmp_path / "x.parquet"
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    command = ("extract", str(guest("normal")), "-o", str(out), "--execution", REQUESTS)
    done = run(*command, "--max-memory", "512M")
    assert done.returncode == 2
    assert f"the temporary file of --max-memory in {tmp_path}/nowhere: No such" in done.stderr
    assert "set TMPDIR to a directory that has room" in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert run(*command).returncode == 0


def test_a_temporary_directory_that_is_none(monkeypatch):
    def refuse(**_):
        raise OSError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(spilling.tempfile, "TemporaryFile", refuse)
    with pytest.raises(UsageError, match="No such file"):
        spilling.SpilledBlocks()


def test_the_limit_is_the_settings(monkeypatch, guest):
    seen = []
    within = Budget.within.__func__

    def watch(cls, limit):
        seen.append(limit)
        return within(cls, limit)

    monkeypatch.setattr(Budget, "within", classmethod(watch))
    settings = ExtractSettings(REQUESTS, max_memory=2048 * MIB)
    [paths] = extraction.extract_recording(guest("normal"), settings)
    assert len(paths)
    assert seen == [2048 * MIB]


def test_pieces_fit(monkeypatch):
    monkeypatch.setattr(limits, "_resident", lambda: 100 * MIB)
    small, large = Budget.within(120 * MIB), Budget.within(10_000 * MIB)
    assert small.rows < large.rows == limits.ROWS
    assert small.segments < large.segments
    assert small.spills
    assert Budget.within(0) == Budget()
    assert replace(small, segments=0) != small
