"""The same seconds recorded at once by critpath and other tools: are counts and paths the same?

    python evaluation/foreign/same.py [--runs N] [--keep DIR]

Threads that sleep, compute and wait for a lock are recorded on the whole machine by ``critpath
record -a``, ``trace-cmd record`` and ``perf record`` at the same time and by one clock. Of each
file the switches and wakes that critpath reads are held against those that the tool's own text of
it has. Then every run of the threads, as they noted it by that clock, is walked in each recording:
the same segments in the same order, with ends that differ by what lies between two tools' readings
of the clock for one event, of which each has its own. (That paths are the same to the nanosecond
where the pages are, is a test: tests/pure/convert/test_trace_dat.py.) What each tool prints with
nanoseconds is read as well, and its paths held against those of the tool's file.

Perfetto's recorder is in no package: the pages that critpath recorded are written by Perfetto's own
schema (with its compact form of switches, and without), and read back; there all paths are the same
to the nanosecond, but for what the compact form lacks.

Needs root, tracefs, trace-cmd and perf. Half a minute. Another tool: a row in `TEXTS`, and one of
`commands` in at_once.py.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np
from at_once import PERFETTO, commands, recorded, write_perfetto

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from pure.convert.perfetto_writer import (
    read_bundles,
    write_raw_as_perfetto,
)

import critpath
from critpath.model import Kind, PathSet
from critpath.read import KERNEL_EVENTS, Recording

# How a tool prints what it recorded.
TEXTS: Final = {
    "trace-cmd": ("trace-cmd", "report", "-i"),
    "perf": ("perf", "script", "-f", "-F", "event", "-i"),
}
PRINTED: Final = {
    "trace-cmd": ("trace-cmd", "report", "-t", "-i"),
    "perf": ("perf", "script", "-f", "--ns", "-i"),
}
COUNTED: Final = {Kind.SWITCH: "sched_switch", Kind.WAKING: "sched_waking"}
_EVENT: Final = re.compile(rf"\b({'|'.join(COUNTED.values())}):")
# Each run of each thread, by the clock that is recorded: begin, end, thread.
WORK: Final = textwrap.dedent(
    """
    import hashlib, sys, threading, time
    lock, rows = threading.Lock(), []
    def work(number):
        for _ in range(int(sys.argv[1])):
            begin = time.monotonic_ns()
            time.sleep(0.002)
            for _ in range(number):
                hashlib.sha256(bytes(1 << 16)).digest()
            with lock:
                time.sleep(0.001)
            rows.append((begin, time.monotonic_ns(), threading.get_native_id()))
            time.sleep(0.001)
    threads = [threading.Thread(target=work, args=(4 * n,)) for n in range(4)]
    for one in threads: one.start()
    for one in threads: one.join()
    print("begin_ns,end_ns,tid")
    for row in rows: print(*row, sep=",")
    """
)


def count_ours(recording: Path) -> Counter[str]:
    """Return how many events of a kind critpath reads."""
    events = Recording(recording).read([of for of in KERNEL_EVENTS if of.kind in COUNTED])
    found: Counter[str] = Counter()
    for number, count in enumerate(np.bincount(events.event_class).tolist()):
        found[COUNTED[events.classes[number].kind]] += count
    return found


def count_theirs(tool: str, file: Path) -> Counter[str]:
    """Return how many events of a kind a tool prints."""
    words = [*TEXTS[tool], str(file)]
    found: Counter[str] = Counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if match := _EVENT.search(line.decode("utf-8", "replace")):
                found[match[1]] += 1
    return found


def write_both(place: Path) -> dict[str, Counter[str]]:
    """Write what critpath recorded as Perfetto would; return how many events of a kind it has."""
    raw = place / "critpath" / "raw"
    counted = Counter(
        event.name
        for bundle in read_bundles(raw)
        for event in bundle.events
        if event.name in COUNTED.values()
    )
    (place / "perfetto").write_bytes(write_raw_as_perfetto(raw))
    write_perfetto(place)
    return dict.fromkeys(("perfetto", PERFETTO), counted)


def segments(paths: PathSet) -> dict[str, np.ndarray]:
    """Return the segments of every execution: state, begin and end (ns).

    Those of one state that follow each other are one: whether somebody was woken before or after
    another cpu switched is decided by less than what lies between two tools' readings.
    """
    of, found = paths.paths.resident(), {}
    whole = np.array([of.state, of.begin, of.end], np.int64).T
    for name, part in zip(paths.executions.id, np.split(whole, of.start[1:-1]), strict=True):
        first = np.flatnonzero(np.diff(part[:, 0], prepend=-1))
        last = np.append(first[1:], len(part)) - 1
        found[name] = np.column_stack([part[first, :2], part[last, 2]])
    return found


def compare(ours: PathSet, theirs: PathSet) -> str:
    """Return how many paths are the same, and by how much their times differ."""
    known, found = segments(ours), segments(theirs)
    both = [name for name in known if name in found]
    same = [
        name
        for name in both
        if len(known[name]) == len(found[name])
        and np.array_equal(known[name][:, 0], found[name][:, 0])
    ]
    apart = [np.abs(known[name][:, 1:] - found[name][:, 1:]).ravel() for name in same]
    every = np.concatenate(apart) if apart else np.zeros(1)
    return (
        f"{len(same)} of {len(both)} paths have the same segments; their ends differ by"
        f" {np.median(every):.0f} ns in the median, {np.quantile(every, 0.99) / 1e3:.1f} µs at p99,"
        f" {every.max() / 1e3:.1f} µs at most"
    )


def main() -> int:
    """Record, and print what is the same."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=60, help="of each of four threads (60)")
    parser.add_argument("--keep", type=Path, help="a directory for the recordings, kept")
    given = parser.parse_args()
    missing = [name for name in TEXTS if shutil.which(name) is None]
    if missing or not Path("/sys/kernel/tracing/events").is_dir():
        print(f"skipped: needs root, tracefs, {', '.join(missing) or 'trace-cmd, perf'}")
        return 0
    right = True
    with tempfile.TemporaryDirectory() as scratch:
        place = (given.keep or Path(scratch)) / "same"
        with recorded(place):
            words = [sys.executable, "-c", WORK, str(given.runs)]
            done = subprocess.run(words, capture_output=True, check=True)
        windows = place / "windows.csv"
        windows.write_bytes(done.stdout)
        written = write_both(place)
        names = [name for name in (*commands(place), *written) if (place / name).exists()]
        paths = {
            name: critpath.extract(place / name, execution=f"windows:{windows}") for name in names
        }
        for name in (*TEXTS, *written):
            ours = count_ours(place / name)
            theirs = written.get(name) or count_theirs(name, place / name)
            if not theirs:  # trace-cmd's names of threads may change while it saves them
                print(f"{name}: prints nothing of its own file: record again")
            # Of each cpu's first switch the compact form does not say who left.
            right &= ours == theirs or name == PERFETTO
            shown = ", ".join(f"{ours[k]:,} of {theirs[k]:,} {k}" for k in COUNTED.values())
            lost = sum(of.events for of in paths[name].losses)
            print(f"{name}: {shown}; {lost:,} events lost")
            print(f"{name}: {compare(paths['critpath'], paths[name])}")
            if name not in PRINTED:
                continue
            text = place / f"{name}.txt"
            with text.open("wb") as stream:
                words = [*PRINTED[name], str(place / name)]
                subprocess.run(words, stdout=stream, stderr=subprocess.DEVNULL, check=False)
            right &= count_ours(text) == ours
            printed = critpath.extract(text, execution=f"windows:{windows}")
            print(f"{name}'s text: {compare(paths[name], printed)}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
