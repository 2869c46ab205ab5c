"""Recordings to which something happens: what is lost, what is told, what the command notices.

    python evaluation/recording/recording_faults.py [--repeat N] [--seconds N] [--only CASE ...]

Every case records a command that makes numbered system calls (``numbered.c`` of
``tests/kernel/record/ftrace``), so that what is lost is known without any counter of the tracer's:
a number that was reached while it was recorded and is not in the trace.  It is lost silently if
the recording names no loss on that cpu at that time, or fewer events than are missing.  The command
writes a file afterwards and exits with 7; its time is that of its work, over the same without a
recorder.

Needs root, a C compiler, and some GB in the directory for temporary files.  Three minutes on an
idle machine; `--seconds` is how long the million events a second last.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[2] / "tests" / "kernel" / "record" / "ftrace")
)
import faulty
from faulty import Bench, Result

RATE = faulty.RATE
Case = Callable[[Bench], Result]


def cases(seconds: float) -> dict[str, tuple[str, Case]]:
    """Return name, what happens, and the case."""
    million = partial(faulty.a_million_events_a_second, seconds=seconds)
    return {
        "undisturbed": ("nothing", faulty.undisturbed),
        "disk": ("the recording fills its disk (20 MB)", faulty.full_disk),
        "filled": ("somebody else fills the disk", faulty.disk_filled_by_others),
        "removed": ("its directory is removed", faulty.output_removed),
        "before": ("tracefs is not mounted", faulty.unmounted_before),
        "meanwhile": ("tracefs is unmounted meanwhile", faulty.unmounted_meanwhile),
        "killed": ("`critpath record` gets SIGKILL", faulty.recorder_killed),
        "helper": ("its helper process gets SIGKILL", faulty.watch_killed),
        "command": ("the command gets SIGKILL", faulty.command_killed),
        "buffers": ("buffers of 4 KiB, as many events as can be", faulty.too_small_buffers),
        "load": ("20 other processes compute", faulty.at_load),
        "million": (f"a million events a second, {seconds:g} s", million),
        "short": ("10,000 short processes", faulty.short_processes),
        "two": ("two recorders at once: the first", lambda b: faulty.two_at_once(b)[0]),
        "survivor": (
            "the second of two gets SIGKILL: the first",
            lambda b: faulty.two_at_once(b, kill=True)[0],
        ),
        "victim": (
            "the second of two gets SIGKILL: the second",
            lambda b: faulty.two_at_once(b, kill=True)[1],
        ),
        "clock": ("the wall clock is set back an hour", faulty.clock_set_back),
    }


def row(what: str, found: Result, pace: float) -> str:
    """Return a line of the table."""
    seen = found.seen
    numbers = ["-"] * 5
    if seen is not None:
        numbers = [
            f"{x:,}" for x in (seen.events, seen.made, seen.found, seen.reported, seen.silent)
        ]
    return f"| {what} | {' | '.join(numbers)} | {command(found, pace)} | {recording(found)} |"


def command(found: Result, pace: float) -> str:
    """Say what the command noticed."""
    if found.own == 137:
        return "is what was killed"
    if found.code < 0:
        return "ended with its recorder"
    right = found.whole and found.wrote and found.own in {None, faulty.CODE}
    kept = f"x{found.seconds / pace:.3f}" if pace else "any number"
    return f"right, {kept}" if right else "WRONG"


def recording(found: Result) -> str:
    """Say what there is in the end."""
    if not found.state:
        return "none, said (exit 125)" if found.code == 125 else "NONE"
    kept = {
        "complete": "complete",
        "interrupted": "up to there, said",
    }.get(found.state, "NOT FINISHED")
    if "state before" in found.notes:
        kept = "up to there, said; once there is room"
    if "cleaned" in found.notes:
        kept = "up to there, said; by `doctor --clean`"
    wrong = "" if found.reads else ", UNREADABLE"
    return kept + wrong + (f", LEFT {len(found.left)}" if found.left else "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=None, metavar="CASE")
    given = parser.parse_args(arguments)
    chosen = cases(given.seconds)
    names = given.only or list(chosen)
    place = Path(tempfile.mkdtemp(prefix="critpath-faults-"))
    silent = recordings = 0
    try:
        program = faulty.build(place)
        print(
            "| what happens | events | calls made | in the trace | told as lost | lost silently |",
            end="",
        )
        print(
            " the command: results, time | the recording |\n|---|---:|---:|---:|---:|---:|---|---|",
            flush=True,
        )
        for number in range(given.repeat):
            for name in names:
                what, case = chosen[name]
                found = one(place / f"{name}-{number}", program, case)
                recordings += 1
                silent += found.seen.silent if found.seen else 0
                print(row(what, found, pace_of(name, place, program, found)), flush=True)
    finally:
        shutil.rmtree(place)
    print(f"\n{recordings} recordings, {silent} calls lost silently")
    return int(silent > 0)


def one(place: Path, program: Path, case: Case) -> Result:
    place.mkdir()
    bench = Bench(place, program)
    try:
        return case(bench)
    finally:
        bench.close()
        shutil.rmtree(place)


def pace_of(name: str, place: Path, program: Path, found: Result) -> float:
    """Return how long the same work takes without a recorder, 0 where it has no end."""
    if name == "buffers" or found.code < 0 or found.own == 137:
        return 0.0
    if name == "load":
        with faulty.load(20):
            work = partial(faulty.unrecorded, seconds=0.5, rate=250_000)
            return statistics.median(
                one(place / f"pace-{i}", program, work).seconds for i in range(3)
            )
    if name == "short":
        return one(place / "pace", program, partial(faulty.unrecorded, processes=10_000)).seconds
    # It has so many calls a second to make: the pace is what it was told, if it can be kept.
    of = round(found.seconds * 2) / 2 or 0.5
    work = partial(faulty.unrecorded, seconds=min(of, 3.0), rate=RATE)
    return one(place / "pace", program, work).seconds * of / min(of, 3.0)


if __name__ == "__main__":
    sys.exit(main())
