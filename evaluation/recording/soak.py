"""A long recording: what the recorder holds and costs meanwhile, and whether all of it is there.

    python evaluation/recording/soak.py [--seconds 3600] [--rate 1000] [--always]
    python evaluation/recording/soak.py --recordings 300

Executions are marked at a rate, each asks a child process once, and their number is counted by
the program that makes them; ``--rate 0`` only sleeps.  Memory, open files and cpu time of the
recorder are looked at every ten seconds: the last tenth of them is put beside the second.
Right is: every execution is found, or the loss is said; memory and files do not grow.  With
``--always`` it is a flight recorder, of which a dump is asked every five minutes, and ``top`` and
``known watch`` (of a store that knows five seconds of sleep) are looked at beside it.
``--recordings`` makes so many of ``true`` one after the other, in the ways of `WAYS`: right is
that each ends with 0 and leaves nothing, and that the last are as quick as the first.  Needs root.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kills import find_left

from critpath import api

CRITPATH = (sys.executable, "-P", "-m", "critpath")
LOAD = """
import os, sys, time
from critpath_marks.marks import execution
until, rate, place = time.monotonic() + float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
a, b = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(a[1])
    while os.read(a[0], 1):
        os.write(b[1], b"x")
    os._exit(0)
made, due = 0, time.monotonic()
while rate and due < until:
    with execution("checkout"):
        os.write(a[1], b"x")
        os.read(b[0], 1)
    made, due = made + 1, due + 1 / rate
    time.sleep(max(0, due - time.monotonic()))
if not rate:
    time.sleep(until - time.monotonic())
os.close(a[1])
with open(place, "w") as stream:
    stream.write(str(made))
"""
WAYS = (
    ("--profile", "minimal"),
    ("--profile", "requests", "--labels-from", "bytes"),
    ("--stacks", "native,samples"),
    ("--files",),
    ("--recorder", "counts", "--events", "all"),
)
_TICK, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_EVERY, _DUMP = 10.0, 300.0  # seconds
# processes by name, with their memory, open files and cpu time as they were looked at
Watched = dict[str, tuple[subprocess.Popen, list[tuple[float, int, float]]]]


def look_at(pid: int) -> tuple[float, int, float]:
    """Return MiB, open files and seconds of cpu time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return int(fields[21]) * _PAGE / 2**20, files, (int(fields[11]) + int(fields[12])) / _TICK


def watch(watched: Watched, ends: subprocess.Popen, ask: list[str]) -> None:
    """Look at processes every ten seconds until one has ended, and ask for dumps."""
    dumped = time.monotonic()
    while ends.poll() is None:
        for process, looks in watched.values():
            if process.poll() is None:
                looks.append(look_at(process.pid))
        if ask and time.monotonic() - dumped > _DUMP:
            dumped = time.monotonic()
            subprocess.run(ask, check=True, stdout=subprocess.DEVNULL)
        time.sleep(_EVERY)


def describe(name: str, looks: list[tuple]) -> str:
    """Say what a process held early and late, and what it cost."""
    tenth = max(1, len(looks) // 10)
    early, late = looks[tenth : 2 * tenth] or looks, looks[-tenth:]
    if len(looks) < 2:
        return f"{name}: it ended before it was looked at twice"
    held = [[statistics.median(look[i] for look in part) for part in (early, late)] for i in (0, 1)]
    cost = (looks[-1][2] - looks[tenth][2]) / (_EVERY * max(1, len(looks) - 1 - tenth))
    return (
        f"{name}: {held[0][0]:.0f} MiB early, {held[0][1]:.0f} MiB late; open files"
        f" {held[1][0]:.0f} and {held[1][1]:.0f}; {100 * cost:.2f} % of a cpu"
    )


def start_beside(top: Path, place: Path) -> Watched:
    """Start `top` of a flight recorder, and `known watch` of a store that knows sleeping."""
    slept, store = top / "slept", top / "machine.known"
    for words in (
        ["record", "--quiet", "--profile", "minimal", "-o", str(slept), "--", "sleep", "5"],
        ["known", "add", "--quiet", str(store), str(slept), "--label", "sleeping"],
    ):
        subprocess.run([*CRITPATH, *words], check=True, stdout=subprocess.DEVNULL)
    shown = {"top": ["top", "--json", str(place)], "known watch": ["known", "watch", str(store)]}
    started = {}
    for name, words in shown.items():
        with (top / name.replace(" ", "-")).open("w") as stream:
            started[name] = (subprocess.Popen([*CRITPATH, *words], stdout=stream), [])
    return started


def read_back(recording: Path) -> int:
    """Say whether it is whole, and return how many executions are found."""
    recordings = [path.parent for path in sorted(recording.glob("**/trace"))]
    begun = time.process_time()
    found = 0
    for each in recordings:
        subprocess.run([*CRITPATH, "doctor", str(each)], check=False)
        found += len(api.extract([str(each)], execution="marker").executions)
    print(f"read in {time.process_time() - begun:.1f} s of cpu time")
    return found


def record_often(top: Path, times: int) -> int:
    """Make so many recordings; print what was wrong, and seconds of the first and last tenth."""
    took, wrong = [], []
    for number in range(times):
        place, begun = top / f"rec-{number}", time.monotonic()
        words = [*CRITPATH, "record", "--quiet", *WAYS[number % len(WAYS)], "-o", str(place)]
        with subprocess.Popen([*words, "--", "true"], stdout=subprocess.DEVNULL) as recorder:
            code = recorder.wait()
        took.append(time.monotonic() - begun)
        wrong += [f"{number}: exit code {code}"] * bool(code)
        wrong += [f"{number}: left {name}" for name in find_left(recorder.pid)]
        shutil.rmtree(place, ignore_errors=True)
    tenth = max(1, times // 10)
    first, last = statistics.median(took[:tenth]), statistics.median(took[-tenth:])
    print(f"{times} recordings, {len(wrong)} wrong; {first:.2f} s each at first, {last:.2f} s last")
    print(*wrong, sep="\n")
    return int(bool(wrong))


def main() -> int:
    """Record, and print what became of it."""
    # What runs in the background ignores interrupts, and so would what it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--rate", type=float, default=1000.0, help="executions a second")
    parser.add_argument("--always", action="store_true")
    parser.add_argument("--keep", type=Path, help="a directory for the recording")
    parser.add_argument("--recordings", type=int, default=0, help="one after the other")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="critpath-soak-") as top:
        if asked.recordings:
            return record_often(Path(top), asked.recordings)
        place, made = Path(top) / "soak", Path(top) / "made"
        load = [sys.executable, "-c", LOAD, str(asked.seconds), str(asked.rate), str(made)]
        begun = time.monotonic()
        words = [*CRITPATH, "record", "--profile", "minimal", "-o", str(place)]
        ask = [*CRITPATH, "dump", str(place)] if asked.always else []
        if asked.always:
            recorder = subprocess.Popen([*words, "--always", "--overhead", "1000%"])
            time.sleep(5)
            watched: Watched = {"recorder": (recorder, []), **start_beside(Path(top), place)}
            watch(watched, subprocess.Popen(load), ask)
            subprocess.run(ask, check=True, stdout=subprocess.DEVNULL)
            for name in ("top", "known watch", "recorder"):
                watched[name][0].send_signal(signal.SIGINT if name == "top" else signal.SIGTERM)
                print(f"{name}: exit code {watched[name][0].wait()}")
        else:
            recorder = subprocess.Popen([*words, "--quiet", "--", *load])
            watched = {"recorder": (recorder, [])}
            watch(watched, recorder, ask)
        code = recorder.wait()
        print(f"{time.monotonic() - begun:.0f} s, exit code {code}, {made.read_text()} executions")
        for name, (_, looks) in watched.items():
            print(describe(name, looks))
        size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
        print(f"{size / 2**20:.0f} MiB on disk")
        print(f"{read_back(place)} executions found")
        if asked.keep:
            shutil.move(place, asked.keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
