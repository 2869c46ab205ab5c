"""How fast requests of servers are found, compared and explored.

    python evaluation/benchmarks/requests_speed.py [--seconds 60] [--rounds 3] [--millions 1]
                                              [--recordings NORMAL SAMPLE] [--servers DIR]

Redis at 2,000 requests a second over 16 connections, recorded twice with the profile
``requests`` (or as ``--recordings`` names them): extraction by ``requests`` beside the same
executions as ``windows:``, in rounds, both as whole commands and in a warm process; the native
passes alone; what tables take in memory; `compare` of the two. Then a million made executions:
a question of ``critpath explore``, the whole command, and its page. (That a page of 20,000 opens
in 2 s is a test of `tests/process/browser`.)

``--servers``: what `../servers/run.py DIR --connections 8,16 mixed-uvicorn cheroot` recorded, too:
an event loop, whose calls are doubtful, beside threads, where they are certain.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measuring import LeftOut, Row, Taken, add_rows, ratios, run, table, take_rows

from critpath import flow
from critpath.engines.limits import Budget
from critpath.executions.specification import parse_specification
from critpath.explore.questions import facts_of
from critpath.explore.ranking import ask
from critpath.model import ExtractSettings
from critpath.read.event_names import KERNEL_EVENTS, SOCKET_EVENTS
from critpath.read.recording import Recording
from critpath.requests import owners, turns
from critpath.store import save_paths
from critpath.timeline.opening import RecordingOpener
from critpath.timeline.streaming import assume_declared, replay_stream
from critpath_record.ftrace.recorder import find_needs

sys.path.append(str(Path(__file__).resolve().parents[1] / "servers"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "pure" / "explore"))
from cases import PORTS, Park
from made import paths as made_paths

_RATE, _CONNECTIONS = 2_000, 16
_SLEEP = 350  # µs that a pause and an answer take beyond what was asked for
_CRITPATH = Path(sys.executable).with_name("critpath")
_WHAT = "latency >= p90"


def why_not() -> str:
    """Return why nothing can be recorded here."""
    wrong = [o.what for o in find_needs(None) if o.fatal]
    wrong += [f"no {name}" for name in ("redis-server", "gcc") if not shutil.which(name)]
    return "; ".join([*(["recording needs root"] if os.geteuid() else []), *wrong])


def record_redis(home: Path, seconds: float) -> list[Path]:
    """Record a server twice while it is asked at a steady rate."""
    park = Park(
        Path(tempfile.mkdtemp(prefix="critpath-servers-", dir="/var/tmp")), Path(sys.executable)
    )
    made = [home / "normal", home / "sample"]
    try:
        park.build()
        command = ("redis-server", "--port", str(PORTS["redis"]), "--save", "")
        park.start(command, "redis", {})
        think = 2 * (_CONNECTIONS * 1_000_000 // _RATE - _SLEEP)
        words = (PORTS["redis"], _CONNECTIONS, int(_RATE * seconds), "redis", think)
        client = [str(park.place / "client"), *map(str, words), str(park.place / "asked")]
        for place in made:
            options = ("--quiet", "--force", "--profile", "requests", "-o", str(place))
            subprocess.run([str(_CRITPATH), "record", *options, "--", *client], check=True)
    finally:
        park.close()
    return made


def write_windows(recording: Path, specification: str, to: Path) -> int:
    """Write requests as windows; return how many there are."""
    settings = ExtractSettings(specification=specification)
    rows: list[tuple[Any, ...]] = []
    for part in flow.extract_recording(Recording(recording), settings):
        e = part.executions
        columns = (e.begin.tolist(), e.end.tolist(), e.tid.tolist(), e.label, e.id)
        rows += zip(*columns, strict=True)
    with to.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(("begin_ns", "end_ns", "tid", "label", "id"))
        writer.writerows(rows)
    return len(rows)


def timed(work: Callable[[], Any]) -> Taken:
    """Return what something takes in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Taken(time.process_time() - cpu, time.perf_counter() - wall)


def extraction_rows(home: Path, recording: Path, rounds: int) -> tuple[list[Row], int]:
    """Compare both ways to the same executions; return how many these are, too."""
    requests, listed = f"requests:port={PORTS['redis']}", home / "windows.csv"
    many = write_windows(recording, requests, listed)
    wanted = {"requests": requests, "windows": f"windows:{listed}"}

    def command(which: str) -> Taken:
        out = ("--force", "-o", home / f"{which}.parquet")
        words = (
            "--quiet",
            "export",
            "--format",
            "paths",
            recording,
            "--execution",
            wanted[which],
            *out,
        )
        return run([_CRITPATH, *words])

    def warm(which: str) -> Taken:
        settings = ExtractSettings(specification=wanted[which])
        return timed(lambda: sum(map(len, flow.extract_recording(Recording(recording), settings))))

    rows = []
    for key, what, way in (
        (
            "requests_command",
            "critpath export --format paths: requests / the same windows",
            command,
        ),
        ("requests_warm", "the same in a warm process", warm),
    ):
        both = [(way("requests"), way("windows")) for _ in range(rounds)]
        found = ratios([one for one, _ in both], [other for _, other in both])
        cpu = statistics.median(one.cpu for one, _ in both)
        bound = f"{cpu:.2f} s of cpu, {1e6 * cpu / many:.1f} µs a request"
        rows.append(Row(key, what, found, 1.25, at_least=False, bound=bound))
        if peaks := tuple(one.peak / 1e6 for one, _ in both if one.peak):
            rows.append(Row("requests_peak", "the same: peak, MB", peaks, 250, at_least=False))
    return rows, many


def native_rows(recording: Path, rounds: int) -> list[Row]:
    """Time the two native passes over a recording's sockets, and weigh the tables."""
    opened = Recording(recording)
    opener = RecordingOpener(opened, (*KERNEL_EVENTS, *SOCKET_EVENTS), "auto")
    replayed = replay_stream(
        opener,
        assume_declared(opened),
        [parse_specification("requests")],
        Budget.within(0),
        complete=opened.add_manifest,
    )
    strings = replayed.events.strings.__getitem__
    found = turns.find_turns(replayed.sockets, replayed.workers, strings, end=replayed.events.end)
    activity, many = found.activity, len(found.activity)
    cut, attributed = [], []
    subrequests = owners.cut_subrequests(activity, found.endpoints)
    made = owners._Attribution(
        activity, replayed.workers, found.endpoints, found.requests, subrequests
    )
    lead = np.zeros(len(made.keys), np.int32)
    for _ in range(rounds):
        cut.append(timed(lambda: turns.cut_turns(activity, found.endpoints, 1)))
        attributed.append(timed(lambda: made._run(lead)))
    rate = [many / 1e6 / (a.cpu + b.cpu) for a, b in zip(cut, attributed, strict=True)]
    each = [width(found.endpoints), width(found.requests)]
    return [
        Row("requests_passes", "M events of sockets and threads/s, both passes", tuple(rate), 20),
        Row("requests_endpoint", "bytes an endpoint", (each[0],), 200, at_least=False),
        Row("requests_request", "bytes a request", (each[1],), 150, at_least=False),
    ]


def width(rows: Any) -> float:
    """Return the bytes of a row of a table."""
    columns = [getattr(rows, field.name) for field in dataclasses.fields(rows)]
    return float(sum(c.nbytes for c in columns if isinstance(c, np.ndarray)) / max(len(rows), 1))


def loop_rows(home: Path, servers: Path, rounds: int) -> list[Row]:
    """Compare a loop whose calls are doubtful with threads, and with the same windows."""
    served = f"requests:port={PORTS['served']}"

    def compare(case: str) -> Taken:
        both = (servers / case / connections / "recording" for connections in ("8", "16"))
        words = ("--quiet", "compare", *both, "--execution", served)
        return run([_CRITPATH, *words], codes={0, 1, 3})

    loop = servers / "mixed-uvicorn/16/recording"
    write_windows(loop, served, home / "loop.csv")

    def extract(what: str) -> Taken:
        words = ("--quiet", "export", "--format", "paths", loop, "--execution", what, "--force")
        return run([_CRITPATH, *words, "-o", home / "loop.parquet"])

    rows = []
    for key, what, target, ways in (
        (
            "requests_loop_compare",
            "critpath compare: a loop / threads",
            1.0,
            (lambda: compare("mixed-uvicorn"), lambda: compare("cheroot")),
        ),
        (
            "requests_loop_extract",
            "critpath extract of a loop: requests / the same windows",
            1.25,
            (lambda: extract(served), lambda: extract(f"windows:{home / 'loop.csv'}")),
        ),
    ):
        taken = [tuple(way() for way in ways) for _ in range(rounds)]
        one, other = zip(*taken, strict=True)
        cpu, beside = (statistics.median(of.cpu for of in each) for each in (one, other))
        bound = f"{cpu:.1f} s of cpu; {beside:.1f}"
        rows.append(Row(key, what, ratios(one, other), target, at_least=False, bound=bound))
    return rows


def compare_row(recordings: Sequence[Path]) -> Row:
    """Time a comparison as a user waits for it; any verdict will do."""
    begin = time.perf_counter()
    words = ("--quiet", "compare", *recordings, "--execution", f"requests:port={PORTS['redis']}")
    done = subprocess.run([_CRITPATH, *words], capture_output=True, check=False, text=True)
    if done.returncode not in {0, 1, 3}:
        raise RuntimeError(done.stderr)
    took = time.perf_counter() - begin
    return Row("requests_compare", "compare of the two, s", (took,), 30, at_least=False)


def explore_rows(home: Path, executions: int) -> list[Row]:
    """Time one question about many executions, the command, and its page."""
    saved, page = home / "many.parquet", home / "page.html"
    save_paths(made_paths(executions), saved)
    facts = facts_of(flow.extract([saved], specification=None))
    question = timed(lambda: ask(facts, [], _WHAT))
    words = [_CRITPATH, "--quiet", "explore", saved, "--what", _WHAT]
    table_of, with_page = run(words), run([*words, "-o", page])
    size = page.stat().st_size / 1e6
    return [
        Row("explore_question", "explore: a question, s", (question.wall,), 3, at_least=False),
        Row(
            "explore_command",
            "the command from an extract, s",
            (table_of.wall,),
            bound=f"{table_of.cpu:.1f} s of cpu, {table_of.peak / 1e6:.0f} MB",
        ),
        Row(
            "explore_page",
            "its page, s more",
            (with_page.wall - table_of.wall,),
            10,
            at_least=False,
        ),
        Row("explore_size", "its page, MB", (size,), 6, at_least=False),
    ]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--millions", type=float, default=1.0)
    parser.add_argument("--recordings", type=Path, nargs=2)
    parser.add_argument("--servers", type=Path, help="of run.py: mixed-uvicorn and cheroot")
    take_rows(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="critpath-requests-") as made:
        home = Path(made)
        recordings, wrong = given.recordings, "" if given.recordings else why_not()
        if wrong:
            print(f"requests of a recording: left out: {wrong}")
            add_rows(given.rows, [LeftOut("requests of a recording", wrong)])
        else:
            recordings = recordings or record_redis(home, given.seconds)
            rows, many = extraction_rows(home, recordings[0], given.rounds)
            print(f"{many:,} requests of Redis")
            rows += native_rows(recordings[0], given.rounds)
            rows.append(compare_row(recordings))
            print(table(rows, {}), flush=True)
            add_rows(given.rows, rows)
        if given.servers:
            rows = loop_rows(home, given.servers, given.rounds)
            print(table(rows, {}), flush=True)
            add_rows(given.rows, rows)
        if given.millions:
            rows = explore_rows(home, int(1e6 * given.millions))
            print(table(rows, {}))
            add_rows(given.rows, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
