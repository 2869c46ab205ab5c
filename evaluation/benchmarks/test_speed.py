"""Decoding and the whole command on recorded traces, against babeltrace2 in the same run.

Run by ``make bench``; ``scale.py`` has the same of large traces, which are simulated, and the
way to paths and vectors: in recorded ones nobody has marked executions.  How it is measured:
`measuring`.  That decoding is faster than babeltrace2 is asserted; targets are printed beside.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.recording import find_traces, read_events
from critpath.read.streaming import EventStream, read_traces
from critpath.timeline.replay import replay

pytestmark = pytest.mark.benchmark

TRACE = "public/selora-namespace_live"
EVENTS = {TRACE: 728_578, "public/tc-many-threads": None}
ROUNDS = 7
DECODING_TARGET = 50
COMMAND_TARGET = 5


@pytest.fixture(scope="module")
def recorded(shared):
    if shutil.which("babeltrace2") is None:
        pytest.skip("babeltrace2 is not installed")
    return shared


@pytest.fixture(scope="module")
def installed(measuring, tmp_path_factory):
    return measuring.Installed(tmp_path_factory.mktemp("wheel"))


@pytest.mark.parametrize("name", EVENTS)
def test_decoding_in_a_warm_process(recorded, measuring, name):
    """Target: at least 50 times the events per second of ``babeltrace2 -o dummy``.

    Of decoding alone.  To have merged columns in memory is measured beside it, and so is
    finding the traces and checking that their metadata is what it was.
    """
    trace = recorded(name)
    traces = find_traces(trace)
    events = read_traces(traces, KERNEL_EVENTS)  # imports, page cache
    assert EVENTS[name] in (None, events.total)
    peer, ours, merged, whole = [], [], [], []
    for _ in range(ROUNDS):
        peer.append(measuring.run(["babeltrace2", str(trace), "-o", "dummy"]))
        ours.append(timed(measuring, lambda: skim(traces)))
        merged.append(timed(measuring, lambda: read_traces(traces, KERNEL_EVENTS)))
        whole.append(timed(measuring, lambda: read_events(trace, KERNEL_EVENTS, reader="native")))
    shown = {
        "babeltrace2 -o dummy": (peer, events.total),
        "critpath, native": (ours, events.total),
        "critpath, native, to merged columns": (merged, events.total),
        "the same from the path on": (whole, events.total),
    }
    ratio = statistics.median(measuring.ratios(peer, ours))
    title = f"decoding {name} ({events.total:,} events, {len(events):,} of them decoded)"
    print(
        f"\n{measuring.seconds_table(title, shown)}\n  ratio {ratio:.1f} (target {DECODING_TARGET})"
    )
    assert statistics.median(measuring.ratios(peer, whole)) > 1


def skim(traces):
    with EventStream(traces, KERNEL_EVENTS) as stream:
        stream.skim()


def timed(measuring, work):
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return measuring.Taken(time.process_time() - cpu, time.perf_counter() - wall)


@pytest.mark.parametrize("which", ["typical", "busiest"])
def test_the_whole_command(recorded, measuring, installed, which):
    """Target: ``critpath path``, start-up included, at least 5 times as fast.

    Of a typical thread: the median of all by what they did.  The busiest is printed
    beside it: there most of the time goes into printing 100,000 segments.  The target is
    that of large traces; of this one start-up is most.
    """
    trace: Path = recorded(TRACE)
    timelines = replay(read_events(trace, KERNEL_EVENTS))
    seen = np.flatnonzero((timelines.workers.first >= 0) & (timelines.workers.idle_cpu < 0))
    order = seen[np.argsort(np.diff(timelines.start)[seen], kind="stable")]
    place = len(order) // 2 if which == "typical" else -1
    tid = int(timelines.workers.tid[order[place]])
    command = ["path", str(trace), "--tid", str(tid), "--format", "json"]
    said = subprocess.run(
        [installed.command, *command],
        env=installed.environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    documents = [json.loads(line) for line in said.splitlines()]
    assert {document["subject"]["tid"] for document in documents} == {tid}
    segments = sum(len(document["segments"]) for document in documents)
    peer, ours = [], []
    for _ in range(ROUNDS):
        peer.append(measuring.run(["babeltrace2", str(trace), "-o", "dummy"]))
        ours.append(installed.run(*command))
    shown = {
        "babeltrace2 -o dummy": (peer, EVENTS[TRACE]),
        "critpath path --format json": (ours, EVENTS[TRACE]),
    }
    ratio = statistics.median(measuring.ratios(peer, ours))
    elapsed = statistics.median(measuring.ratios(peer, ours, "wall"))
    title = f"critpath path {TRACE} --tid {tid}, the {which} thread ({segments:,} segments)"
    print(f"\n{measuring.seconds_table(title, shown)}")
    target = f" (target {COMMAND_TARGET})" if which == "typical" else ""
    print(f"  ratio {ratio:.2f} of CPU time, {elapsed:.2f} of elapsed time{target}")


@pytest.mark.parametrize(("execution", "target"), [("process", "at least 2"), ("thread", "2 / 3")])
def test_a_first_run(recorded, measuring, installed, execution, target):
    """``critpath path`` of every process, and of every thread as JSON, beside ``-o dummy``."""
    trace: Path = recorded(TRACE)
    command = ["--quiet", "path", str(trace), "--execution", execution, "--format", "json"]
    peer, ours = [], []
    for _ in range(ROUNDS):
        peer.append(measuring.run(["babeltrace2", str(trace), "-o", "dummy"]))
        ours.append(installed.run(*command))
    shown = {
        "babeltrace2 -o dummy": (peer, EVENTS[TRACE]),
        f"critpath path --execution {execution}": (ours, EVENTS[TRACE]),
    }
    ratio = statistics.median(measuring.ratios(peer, ours))
    print(f"\n{measuring.seconds_table(f'a first run on {TRACE}', shown)}")
    print(f"  ratio {ratio:.2f} (target {target})")
