"""Decoding and the whole command, each against babeltrace2 in the same run.

Run by ``make bench``.  Rounds are interleaved, so that whatever else the machine does
strikes both; figures are CPU time (user + system) of the work alone, the median of the
rounds with their range.  Only ratios mean anything, and only they are asserted.

The whole command is measured as an installed program is: an editable install would
look for changed sources on every import (about 0.1 s).  So a wheel of this tree is
built and unpacked into a temporary directory, and Python is started with ``-S`` (no
``.pth`` file, hence no editable loader) and with that directory and the dependencies'
on ``PYTHONPATH``.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from critpath.read.layout import KERNEL
from critpath.read.native import read_traces
from critpath.read.recording import find_traces, read_events
from critpath.timeline.replay import replay

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).resolve().parents[2]
TRACE = "public/selora-namespace_live"
ROUNDS = 7
DECODING_TARGET = 20
COMMAND_TARGET = 2


def of_children(command: list[str], **options) -> tuple[float, float, str]:
    """CPU and elapsed seconds of a process, and what it printed."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True, **options)
    elapsed, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, elapsed, done.stdout


def of_this(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def line(name: str, seconds: list[float], events: int) -> str:
    middle = statistics.median(seconds)
    spread = f"{1000 * min(seconds):.1f}-{1000 * max(seconds):.1f}"
    return f"{name:<34}{1000 * middle:>9.1f}{spread:>18}{events / middle / 1e6:>10.2f}"


def table(title: str, rows: list[str], verdict: str) -> None:
    head = f"{'':<34}{'ms':>9}{'range':>18}{'M ev/s':>10}"
    print("\n" + "\n".join([title, head, *rows, verdict]))


@pytest.fixture(scope="module")
def trace(shared) -> Path:
    if shutil.which("babeltrace2") is None:
        pytest.skip("babeltrace2 is not installed")
    return shared(TRACE)


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> dict[str, str]:
    """Environment in which ``python -S -m critpath`` is a wheel of this tree."""
    home = tmp_path_factory.mktemp("wheel")
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", str(home), str(ROOT)],
        env={**os.environ, "PATH": tools},
        capture_output=True,
        check=True,
    )
    (wheel,) = home.glob("critpath-*.whl")
    subprocess.run(
        [*pip, "install", "--no-deps", "--target", str(home / "site"), str(wheel)],
        capture_output=True,
        check=True,
    )
    places = [str(home / "site"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(places))}
    _, _, where = of_children(
        [sys.executable, "-S", "-c", "import critpath; print(critpath.__file__)"],
        env=environment,
        cwd=home,
    )
    assert where.startswith(str(home)), "not the wheel but the editable install was measured"
    return environment


def test_decoding_in_a_warm_process(trace):
    """Target: at least 20 times the events per second of ``babeltrace2 -o dummy``.

    Decoding is from the stream files to merged columns; finding the traces and checking
    that their metadata is what it was is measured with it on a line of its own.
    """
    traces = find_traces(trace)
    events = read_traces(traces, KERNEL)  # imports, page cache
    assert events.total == 728_578
    peer, ours, whole = [], [], []
    for _ in range(ROUNDS):
        peer.append(of_children(["babeltrace2", str(trace), "-o", "dummy"])[0])
        ours.append(of_this(lambda: read_traces(traces, KERNEL)))
        whole.append(of_this(lambda: read_events(trace, KERNEL, reader="native")))
    ratio = statistics.median(peer) / statistics.median(ours)
    table(
        f"decoding {TRACE} ({events.total:,} events, {len(events):,} of them decoded)",
        [
            line("babeltrace2 -o dummy", peer, events.total),
            line("critpath, native, merged", ours, events.total),
            line("the same from the path on", whole, events.total),
        ],
        f"ratio {ratio:.1f} (target {DECODING_TARGET}), "
        f"{statistics.median(peer) / statistics.median(whole):.1f} from the path on",
    )
    if ratio < DECODING_TARGET:
        warnings.warn(f"target {DECODING_TARGET} missed: {ratio:.1f}", stacklevel=1)


@pytest.mark.parametrize("which", ["typical", "busiest"])
def test_the_whole_command(trace, installed, tmp_path, which):
    """Target: ``critpath path``, start-up included, at least twice as fast.

    Of a typical thread: the median of all by what they did.  The busiest is printed
    beside it: there most of the time goes into printing 100,000 segments.
    """
    timelines = replay(read_events(trace, KERNEL))
    seen = np.flatnonzero((timelines.workers.first >= 0) & (timelines.workers.idle_cpu < 0))
    order = seen[np.argsort(np.diff(timelines.start)[seen], kind="stable")]
    place = len(order) // 2 if which == "typical" else -1
    tid = int(timelines.workers.tid[order[place]])
    command = [sys.executable, "-S", "-m", "critpath", "path", str(trace)]
    command += ["--tid", str(tid), "--format", "json"]
    _, _, text = of_children(command, env=installed, cwd=tmp_path)
    documents = [json.loads(text_line) for text_line in text.splitlines()]
    assert {document["subject"]["tid"] for document in documents} == {tid}
    segments = sum(len(document["segments"]) for document in documents)
    peer, ours, elapsed = [], [], []
    for _ in range(ROUNDS):
        cpu, theirs, _ = of_children(["babeltrace2", str(trace), "-o", "dummy"])
        peer.append(cpu)
        cpu, wall, _ = of_children(command, env=installed, cwd=tmp_path)
        ours.append(cpu)
        elapsed.append(theirs / wall)
    ratio = statistics.median(peer) / statistics.median(ours)
    table(
        f"critpath path {TRACE} --tid {tid}, the {which} thread ({segments:,} segments)",
        [
            line("babeltrace2 -o dummy", peer, 728_578),
            line("critpath path --format json", ours, 728_578),
        ],
        f"ratio {ratio:.2f} of CPU time, {statistics.median(elapsed):.2f} of elapsed time "
        f"(target {COMMAND_TARGET} for the typical thread)",
    )
    if which == "typical" and ratio < COMMAND_TARGET:
        warnings.warn(f"target {COMMAND_TARGET} missed: {ratio:.2f}", stacklevel=1)
