"""Decoding and the whole command on recorded traces, against babeltrace2 in the same run.

    python evaluation/benchmarks/decoding_speed.py [--rounds 7] [--only decoding,typical,...]

Traces are those of ../shared. ``scale.py`` has the same of large traces, which are simulated,
and the way to paths and vectors: in recorded ones nobody has marked executions. How it is
measured: `measuring`. Decoding has to be faster than babeltrace2 (else exit code 1); targets are
printed beside.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from measuring import (
    Installed,
    LeftOut,
    Row,
    Taken,
    add_rows,
    ratios,
    run,
    seconds_table,
    take_rows,
)

from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.streaming import EventStream, read_traces
from critpath.read.traces import find_traces, read_events
from critpath.timeline.replay import replay

TRACES: Final = Path(__file__).resolve().parents[3] / "shared" / "traces"
TRACE: Final = "public/selora-namespace_live"
EVENTS: Final = {TRACE: 728_578, "public/tc-many-threads": None}
DECODING_TARGET, COMMAND_TARGET = 50, 5
# Executions of a first run, and its target: at most so many times babeltrace2's time.
FIRST: Final = {"process": 0.5, "thread": 1.2}
PARTS: Final = ("decoding", "typical", "busiest", *FIRST)
# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY: Final = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def unpack(name: str, home: Path) -> Path:
    """Unpack a trace of ../shared, once; return its directory."""
    place = home / Path(name).name
    if not place.exists():
        with tarfile.open(TRACES / f"{name}.tar.xz") as tar:
            tar.extractall(home, **DATA_ONLY)  # noqa: S202 - archives of our own
    return place


def timed(work: Callable[[], object]) -> Taken:
    """Return what something takes in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Taken(time.process_time() - cpu, time.perf_counter() - wall)


def skim(traces: Sequence[Any]) -> None:
    """Decode, and keep nothing."""
    with EventStream(traces, KERNEL_EVENTS) as stream:
        stream.skim()


def dummy(trace: Path) -> Taken:
    """Have babeltrace2 read a trace."""
    return run(["babeltrace2", str(trace), "-o", "dummy"])


def show_decoding(name: str, home: Path, rounds: int) -> bool:
    """Print what decoding in a warm process takes; return whether babeltrace2 takes longer.

    To have merged columns in memory is measured beside decoding alone, and so is finding the
    traces and checking that their metadata is what it was.
    """
    trace = unpack(name, home)
    traces = find_traces(trace)
    events = read_traces(traces, KERNEL_EVENTS)  # imports, page cache
    assert EVENTS[name] in (None, events.total)
    peer, ours, merged, whole = [], [], [], []
    for _ in range(rounds):
        peer.append(dummy(trace))
        ours.append(timed(lambda: skim(traces)))
        merged.append(timed(lambda: read_traces(traces, KERNEL_EVENTS)))
        whole.append(timed(lambda: read_events(trace, KERNEL_EVENTS, reader="native")))
    shown = {
        "babeltrace2 -o dummy": (peer, events.total),
        "critpath, native": (ours, events.total),
        "critpath, native, to merged columns": (merged, events.total),
        "the same from the path on": (whole, events.total),
    }
    ratio = statistics.median(ratios(peer, ours))
    title = f"decoding {name} ({events.total:,} events, {len(events):,} of them decoded)"
    print(f"\n{seconds_table(title, shown)}\n  ratio {ratio:.1f} (target {DECODING_TARGET})")
    return statistics.median(ratios(peer, whole)) > 1


def show_command(which: str, home: Path, installed: Installed, rounds: int) -> None:
    """Print what ``critpath path`` of a thread takes, start-up included.

    Of a typical thread: the median of all by what they did. The busiest is measured beside it:
    there most of the time goes into printing 100,000 segments. The target is that of large
    traces; of this one start-up is most.
    """
    trace = unpack(TRACE, home)
    timelines = replay(read_events(trace, KERNEL_EVENTS))
    seen = np.flatnonzero((timelines.workers.first >= 0) & (timelines.workers.idle_cpu < 0))
    order = seen[np.argsort(np.diff(timelines.start)[seen], kind="stable")]
    tid = int(timelines.workers.tid[order[len(order) // 2 if which == "typical" else -1]])
    command = ["path", str(trace), "--tid", str(tid), "--format", "json"]
    said = subprocess.run(
        [installed.command, *command], capture_output=True, text=True, check=True
    ).stdout
    documents = [json.loads(line) for line in said.splitlines()]
    assert {document["subject"]["tid"] for document in documents} == {tid}
    segments = sum(len(document["segments"]) for document in documents)
    peer, ours = [], []
    for _ in range(rounds):
        peer.append(dummy(trace))
        ours.append(installed.run(*command))
    shown = {
        "babeltrace2 -o dummy": (peer, EVENTS[TRACE]),
        "critpath path --format json": (ours, EVENTS[TRACE]),
    }
    ratio = statistics.median(ratios(peer, ours))
    elapsed = statistics.median(ratios(peer, ours, "wall"))
    title = f"critpath path {TRACE} --tid {tid}, the {which} thread ({segments:,} segments)"
    print(f"\n{seconds_table(title, shown)}")
    target = f" (target {COMMAND_TARGET})" if which == "typical" else ""
    print(f"  ratio {ratio:.2f} of CPU time, {elapsed:.2f} of elapsed time{target}")


def show_first_run(execution: str, home: Path, installed: Installed, rounds: int) -> Row:
    """Print what ``critpath path`` of every process, or thread, takes as JSON."""
    trace = unpack(TRACE, home)
    command = ["--quiet", "path", str(trace), "--execution", execution, "--format", "json"]
    peer, ours = [], []
    for _ in range(rounds):
        peer.append(dummy(trace))
        ours.append(installed.run(*command))
    shown = {
        "babeltrace2 -o dummy": (peer, EVENTS[TRACE]),
        f"critpath path --execution {execution}": (ours, EVENTS[TRACE]),
    }
    found = ratios(ours, peer)
    print(f"\n{seconds_table(f'a first run on {TRACE}', shown)}")
    print(f"  {statistics.median(found):.2f} times (target {FIRST[execution]})")
    what = f"path --execution {execution} of {EVENTS[TRACE]:,} events: times -o dummy"
    bound = f"{statistics.median(one.cpu for one in ours):.2f} s of CPU"
    return Row(f"first_{execution}", what, found, FIRST[execution], at_least=False, bound=bound)


def main() -> int:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default=",".join(PARTS))
    take_rows(parser)
    given = parser.parse_args()
    if not TRACES.is_dir() or not shutil.which("babeltrace2"):
        why = "it needs ../shared and babeltrace2"
        print(f"decoding: left out, {why}")
        add_rows(given.rows, [LeftOut("path of a recorded trace", why)])
        return 0
    asked = given.only.split(",")
    installed, held = Installed(), True
    with tempfile.TemporaryDirectory(prefix="critpath-decoding-") as scratch:
        home = Path(scratch)
        for name in EVENTS if "decoding" in asked else ():
            held = show_decoding(name, home, given.rounds) and held
        for which in ("typical", "busiest"):
            if which in asked:
                show_command(which, home, installed, given.rounds)
        for execution in FIRST:
            if execution in asked:
                row = show_first_run(execution, home, installed, given.rounds)
                add_rows(given.rows, [row])
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
