"""Traces of a simulated machine, larger than what is read of them at a time.

They are written by a program in C, which is compiled here.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import tracemalloc
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pure.flow.whole import as_a_whole, assert_same, joined

from critpath import flow
from critpath.engines import Budget
from critpath.executions import find_executions, parse_specification, prefilter
from critpath.graph import critical_path
from critpath.model import EventChunk, EventClass, Events, ExtractSettings, Kind
from critpath.model.gaps import Gaps
from critpath.read import Recording
from critpath.store import PathsWriter, writing
from critpath.text.notes import word_all
from critpath.timeline import streaming

REQUESTS = "events:app:request_begin,app:request_end,key=id"
MIB = 1 << 20


@pytest.fixture(scope="module")
def large_trace():
    file = Path(__file__).parents[3] / "evaluation" / "benchmarks" / "large_trace.py"
    spec = importlib.util.spec_from_file_location("large_trace", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("large_trace", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("options", [{"loss": 0.01}, {"missing_switches": 0.02}])
@pytest.mark.parametrize(("rows", "segments", "spills"), [(1 << 17, 0, False), (3_000, 200, True)])
def test_losses_and_missing_switches(
    large_trace, tmp_path, monkeypatch, options, rows, segments, spills
):
    recording = tmp_path / "trace"
    large_trace.generate(recording, 60_000, cpus=4, executions=60, seed=3, **options)
    paths = joined(recording, REQUESTS, monkeypatch, rows, segments, spills=spills)
    assert len(paths) > 20
    assert bool(paths.losses) == ("loss" in options)
    counted = [e for e in paths.environment if e.switches_put_in is not None]
    assert bool(counted) == ("missing_switches" in options)
    assert_same(paths, *as_a_whole(recording, REQUESTS + ",label=type"))


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
    assert any("its events were sorted" in said for said in word_all(paths.warnings))
    assert_same(paths, *as_a_whole(recording, REQUESTS + ",label=type"))


def test_switches_put_in_are_as_wide_as_their_class(large_trace, tmp_path, monkeypatch):
    """A key that is no field of the replay's own: unknown of a switch nobody wrote."""
    recording = tmp_path / "trace"
    large_trace.generate(recording, 60_000, cpus=2, executions=20, seed=3, missing_switches=0.05)
    text = "events:sched_switch,sched_switch,key=next_prio,label=-"
    paths = joined(recording, text, monkeypatch, 3_000, 0, spills=False)
    assert set(paths.executions.id) <= {"0", "20", "30", "120"}
    assert_same(paths, *as_a_whole(recording, text))


@pytest.mark.deep
def test_a_limit_far_below_the_trace(large_trace, critpath_process, peak, tmp_path):
    """A trace of 500 MB, of which 150 are kept: 32 in memory, with the least limit none."""
    recording = tmp_path / "trace"
    large_trace.generate(recording, 12_000_000, executions=1_200)
    words = ("export", "--format", "paths", recording, "--execution", REQUESTS, "--quiet", "-o")
    refused = critpath_process(*words, tmp_path / "never", "--max-memory", "1M")
    assert refused.returncode == 2
    assert not (tmp_path / "never").exists()
    # What a process takes by itself differs from machine to machine.
    least = int(re.search(r"give at least (\d+)M", refused.stderr)[1])
    written, peaks = [], []
    for limit in ("0", f"{least}M"):
        out = tmp_path / f"{limit}.parquet"
        [(code, said)], most = peak((*words, out, "--max-memory", limit))
        assert code == 0, said
        peaks.append(most)
        written.append(out.read_bytes())
    assert written[0] == written[1]
    assert peaks[1] <= least * MIB
    assert peaks[0] < 320 * MIB


def test_several_jobs_within_a_limit_write_the_same(critpath, guest, tmp_path):
    recordings = [guest(name) for name in ("sample-delay", "sample-lock", "sample-quota")]
    written = []
    for options in (("--jobs", "1"), ("--jobs", "2", "--max-memory", "16G")):
        out = tmp_path / f"{len(written)}.parquet"
        done = critpath(
            "export", "--format", "paths", *recordings, "-o", out, *options, "--execution", REQUESTS
        )
        assert done.returncode == 0, done.stderr
        written.append(out.read_bytes())
    assert written[0] == written[1]


def take_memory(recording, file):
    """Extract into a file; return what is kept once runs are found, and at most after that."""
    found = flow.extract_recording(Recording(recording), ExtractSettings(REQUESTS))
    runs = 0
    tracemalloc.start()
    try:
        with file.open("wb") as stream, PathsWriter(stream) as writer:
            for number, paths in enumerate(found):
                writer.write(paths, more=number > 0)
                runs += len(paths)
                if not number:
                    del paths
                    kept, _ = tracemalloc.get_traced_memory()
                    tracemalloc.reset_peak()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return runs, kept, most


def test_memory_grows_by_what_is_kept_of_a_run_alone(large_trace, tmp_path, monkeypatch):
    # So little at a time that what is kept of a run shows.
    for module, name, size in (
        (streaming, "_HELD", 0),
        (critical_path, "MOST_CARRIED", 1 << 18),
        (critical_path, "_TOGETHER", (100, 100)),
        (writing, "GROUP_EXECUTIONS", 100),
        (prefilter, "_TOGETHER", 1_000),
    ):
        monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(Budget, "within", lambda _: Budget(16_000))
    taken = []
    for events in (300_000, 300_001, 900_000):
        recording = tmp_path / str(events)
        large_trace.generate(recording, events, executions=events // 80, seed=5)
        taken.append(take_memory(recording, tmp_path / "paths.parquet"))
    _, few, many = taken  # the first had modules to import
    kept, most = ((many[i] - few[i]) / (many[0] - few[0]) for i in (1, 2))
    assert kept < 100  # bytes a run: who, when, and what it is called
    assert most < 600  # and how threads are related that runs wait for


MARKED = EventClass("", Kind.OTHER, ("id", "vtid", "procname"), ("int", "int", "str"), "ust")
SWITCH = ("prev_comm", "prev_tid", "prev_state", "next_comm", "next_tid")
CLASSES = (
    *(replace(MARKED, name=f"app:request_{what}") for what in ("begin", "end")),
    EventClass("sched_switch", Kind.SWITCH, SWITCH, ("str", "int", "int", "str", "int")),
)


def stream_marks(runs):
    """Yield chunks of runs of a server's thread, of which eight overlap; each ends in a switch."""
    at_once, under_way = 10_000, 8
    number = np.arange(runs + under_way)
    # Begin of run n, then end of run n - 8.
    time = np.repeat(1_000 * number, 2) + np.tile([0, 500], len(number))
    kind = np.tile([0, 1], len(number))
    run = np.repeat(number, 2) - under_way * kind
    real = np.flatnonzero((run >= 0) & (run < runs))
    for first in range(0, len(real), at_once):
        some = real[first : first + at_once]
        count = len(some)
        marks = np.column_stack([run[some], np.full(count, 77), np.ones(count, np.int64)])
        yield EventChunk(
            np.append(time[some], time[some[-1]]),
            np.zeros(count + 1, np.int32),
            np.append(kind[some], 2).astype(np.int32),
            np.append(3 * np.arange(count), 3 * count),
            np.concatenate([marks.ravel(), [1, 77, 0, 1, 77]]),
        )


@pytest.mark.parametrize("runs", [10**5, 10**6])
def test_a_run_that_is_found_takes_a_hundred_bytes(runs):
    none, narrow = np.zeros(0, np.int64), np.zeros(0, np.int32)
    recording = Events(none, narrow, narrow, none, none, CLASSES, ("", "server"))
    with closing(streaming.SpilledBlocks()) as blocks:
        marks = prefilter.Prefilter([parse_specification(REQUESTS)], Gaps(), blocks.keep)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for chunk in stream_marks(runs):
                marks.feed(chunk, CLASSES)
            found = find_executions(marks.events(recording), REQUESTS)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert len(found) == runs
    assert (found.id[runs - 1], found.comm[0], found.incomplete) == (str(runs - 1), "server", 0)
    assert found.begin[:3].tolist() == [0, 1_000, 2_000]
    assert (found.duration == 8_500).all()
    assert after - before < 100 * runs
