"""Whether the first cause names the function and the line: fifteen faults in five programs.

``python evaluation/locations/locations.py [--repetitions N] [--python PYTHON] [--samples]
[--only FAULT,...] [--json FILE] [--keep DIR]``: each program (``locations/``: Flask under
gunicorn, without and with psycopg on a PostgreSQL that runs for it, aiohttp, two in C built
without frame pointers) is recorded without a fault and with each
of its three, 40 executions a side, and compared as ``critpath compare`` does.  A fault counts as
found if the first cause names its function with its line: as where its thread was, where another
thread was that it waited for, or where the wait was ended (`FAULTS`, written before the first run).
By default each is recorded once; the published figures are of ten.
``--samples`` samples the Python ones instead, of any version: the line is then the one at which
the time is lost, not the one that defines the function.

Besides, ``--frames``: the stacks of sleeps (``locations/frames.c``, built with and without frame
pointers) held against what ``addr2line`` says of the addresses that the program itself writes
down; that a stripped program is said to be one; how many of all switches of its threads have
their stack; and, where ``--python`` is one from 3.12 on, whether the innermost function of its
sleeps (``locations/sleeps.py``) is that in which it says that it is.

``--alike PAIRS``: healthy executions against healthy ones of the same recordings, drawn by lot;
in at most 1 % of the pairs may the flame graph have a colour anywhere, also where changes are
tested whatever the verdict is.

Needs root, tracefs, perf, gcc, PostgreSQL, and a Python with gunicorn, flask, psycopg and aiohttp:
from 3.12 on, or any with ``--samples``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "services"))
sys.path.append(str(Path(__file__).resolve().parents[1]))
from park import find_program
from results import write_results

from critpath import flow
from critpath.detect.flame import FlameSets, build_flame
from critpath.graph.stacks import ASLEEP, find_sleeps, usual_distance
from critpath.model.stacks import SLEEP, Frame, Stacks
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.stacks import open_stacks
from critpath.read.traces import read_events
from critpath.timeline.missing_switches import repair_switches
from critpath.timeline.replay import replay
from critpath.vectors.chains import chain_times

HERE: Final = Path(__file__).resolve().parent
PROGRAMS: Final = HERE / "programs"
MARKS: Final = HERE.parent.parent / "marks"
# Fault: program, and the function in which the time is lost.
FAULTS: Final = {
    "lock": ("lock.c", "flush_log"),
    "condition": ("lock.c", "fetch_item"),
    "fsync": ("lock.c", "write_audit"),
    "helper": ("pipe.c", "compute_answer"),
    "sleep": ("pipe.c", "back_off"),
    "poll": ("pipe.c", "await_peer"),
    "shop-lock": ("shop.py", "flush_log"),
    "shop-sleep": ("shop.py", "ask_stock"),
    "shop-compute": ("shop.py", "compute_price"),
    "orders-query": ("orders.py", "find_orders"),
    "orders-row": ("orders.py", "close_books"),
    "orders-pool": ("orders.py", "build_report"),
    "feed-fsync": ("feed.py", "save_audit"),
    "feed-pool": ("feed.py", "render_page"),
    "feed-queue": ("feed.py", "fetch_item"),
}
LABELS: Final = {"serve", "ask", "order", "show"}
FLAGS: Final = {
    "without": ["-fomit-frame-pointer"],
    "with": ["-fno-omit-frame-pointer"],
}


def main() -> int:
    """Run what is asked for; return 1 if less is right than should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--samples", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--frames", action="store_true")
    parser.add_argument("--alike", type=int, default=0, metavar="PAIRS")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = chosen.keep or Path(scratch)
        place.mkdir(exist_ok=True, parents=True)
        if chosen.alike:
            return compare_alike(place, chosen.alike)
        if chosen.frames:
            return hold_frames(place) | hold_python(place, chosen.python)
        return find_faults(place, chosen)


def find_faults(place: Path, chosen: argparse.Namespace) -> int:
    """Record and compare every fault, say what was found, and count it."""
    only = set(filter(None, chosen.only.split(",")))
    rows = []
    programs = {of for name, (of, _) in FAULTS.items() if name in (only or FAULTS)}
    if chosen.samples:
        programs = {program for program in programs if program.endswith(".py")}
    for number in range(chosen.repetitions):
        for program in sorted(programs):
            faults = [f for f, (of, _) in FAULTS.items() if of == program and f in (only or FAULTS)]
            where = place / f"{program}-{number}"
            where.mkdir()
            command = command_of(program, where, chosen.python)
            sources = "samples" if chosen.samples else "native,python"
            sources = sources if program.endswith(".py") else "native"
            with contextlib.ExitStack() as ending:
                if program == "orders.py":
                    command.append(ending.enter_context(serve_postgres()))
                record(where / "normal", command, sources)
                for fault in faults:
                    record(where / f"with-{fault}", [*command, fault.rpartition("-")[2]], sources)
            for fault in faults:
                rows.append(judge(where, fault, number, sampled=chosen.samples))
                print(json.dumps(rows[-1]), flush=True)
            if not chosen.keep:
                shutil.rmtree(where)
    found = sum(row["found"] for row in rows)
    print(f"{found} of {len(rows)} first causes name the function and the line")
    print(f"{sum(row['wrong_file'] for row in rows)} name a file that is not the program's")
    busy = [row for row in rows if row["state"] == "WAIT_CPU" and not row["found"]]
    if busy:  # causes come in the order of their time: that of others' cpus was more
        after = sum(row["rank"] > 1 for row in busy)
        print(f"{len(busy)} name others that had the cpus first, which took more; {after} it next")
    if chosen.json:
        write_results(chosen.json, rows)
    return found < 0.95 * len(rows)


def command_of(program: str, place: Path, python: str) -> list[str]:
    """Return how a program is started; one in C is built first."""
    source = PROGRAMS / program
    if program.endswith(".py"):
        return [python, str(source)]
    built = place / source.stem
    flags = ["-O2", "-g", "-fomit-frame-pointer", "-pthread"]
    subprocess.run(["gcc", *flags, "-o", built, source], check=True)
    return [str(built)]


@contextlib.contextmanager
def serve_postgres() -> Iterator[str]:
    """Run a PostgreSQL; yield how it is reached."""
    user: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": [], "cwd": "/"}
    with tempfile.TemporaryDirectory(prefix="critpath-", dir="/var/tmp") as place:
        shutil.chown(place, "postgres", "postgres")
        make = [find_program("initdb"), "-D", place, "-A", "trust", "-N"]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL, **user)
        sets = (f"unix_socket_directories={place}", "listen_addresses=", "autovacuum=off")
        command = [find_program("postgres"), "-D", place, *(w for s in sets for w in ("-c", s))]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, **user) as server:
            try:
                for _ in range(200):
                    if Path(place, ".s.PGSQL.5432").exists():
                        break
                    time.sleep(0.05)
                yield f"host={place} user=postgres"
            finally:
                server.send_signal(signal.SIGINT)


def critpath(*words: object, place: Path, code: int | None = 0) -> str:
    """Run critpath; return what it said on stderr."""
    command = [sys.executable, "-P", "-m", "critpath", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(MARKS)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=place
    )
    if code is not None and done.returncode != code:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stderr


def record(place: Path, command: list[str], sources: str = "native") -> None:
    """Record one run, whose requests are marked."""
    critpath(
        *("record", "--recorder", "ftrace", "--stacks", sources, "--execution", "marker"),
        *("-o", place, "--", *command),
        place=place.parent,
    )


def judge(place: Path, fault: str, number: int, *, sampled: bool) -> dict[str, Any]:
    """Compare, and say whether the first cause names the place."""
    program, function = FAULTS[fault]
    out = place / f"{fault}.json"
    critpath(
        *("compare", place / "normal", place / f"with-{fault}", "--not-own", "nap"),
        *("--json", out),
        place=place,
        code=None,
    )
    document = json.loads(out.read_text())
    # Marks of others' programs may be in the recording: the cause is the first of these executions.
    labels = {e["position"]: e["label"] for e in document["executions"] if e["set"] == "sample"}
    causes = [c for c in document["causes"] if labels[c["positions"][0]] in LABELS]
    named = [places_of(cause["facts"]) for cause in causes]
    lines = lines_of(program, function, sampled=sampled)
    right = {f"{function} (locations/{program}:{line})" for line in lines}
    first = named[0] if named else []
    files = {name.rpartition("(")[2].partition(":")[0] for name in first}
    return {
        "fault": fault,
        "repetition": number,
        "found": bool(right & {*first}),
        "rank": next((n for n, names in enumerate(named, 1) if right & {*names}), 0),
        "wrong_file": bool(files - {f"locations/{program}"}),
        "named": first,
        "state": causes[0]["facts"].get("state", "") if causes else "",
    }


def places_of(facts: dict[str, Any]) -> list[str]:
    """Return the places in the code that a cause names."""
    places = [*(one["location"] for one in facts.get("locations", ()))][:1]
    places += [facts.get("waits_at", ""), facts.get("waker_location", "")]
    return [place for place in places if place]


def lines_of(program: str, function: str, *, sampled: bool) -> Iterator[int]:
    """Yield the lines that are right: those marked; of Pythons that perf names the definition's."""
    marks = [f"/* {function} */", f"# {function}", *([] if sampled else [f"def {function}("])]
    for number, line in enumerate((PROGRAMS / program).read_text().splitlines(), 1):
        if any(mark in line for mark in marks):
            yield number


# Colours


def compare_alike(place: Path, pairs: int) -> int:
    """Compare healthy executions with healthy ones, and count flame graphs with a colour."""
    command = command_of("lock.c", place, "")
    recordings = [place / f"healthy-{number}" for number in range(8)]
    for recording in recordings:
        if not recording.exists():
            record(recording, command)
    paths = flow.extract(recordings, specification="marker")
    rng = np.random.default_rng(1)
    alarms = coloured = framed = tested = 0
    for _ in range(pairs):
        order = rng.permutation(len(paths))
        sets = [paths.take(np.sort(order[first : first + 60])) for first in (0, 60)]
        analysis = flow.compare(*sets)
        alarms += analysis.verdict == "anomaly"
        coloured += any(node.change for node in analysis.flame)
        framed += any(node.kind == "frame" for node in analysis.flame)
        nodes = build_flame(
            chain_times(*sets),
            FlameSets(((), ()), (np.zeros(60, np.int64),) * 2, (np.zeros(60, np.int64),) * 2),
            level=0.01,
            permutations=999,
            directions=("more", "less"),
        )
        tested += any(node.change for node in nodes)
    print(f"{pairs} pairs, {framed} with functions: {alarms} alarms, {coloured} with a colour")
    print(f"{tested} with one where changes are tested at 1 % whatever the verdict")
    return coloured > 0.01 * pairs


# Frames


def hold_frames(place: Path) -> int:
    """Hold stacks of sleeps against what addr2line says of the addresses the program wrote."""
    worst = 1.0
    source = PROGRAMS / "frames.c"
    for name, flags in FLAGS.items():
        program, out = place / f"frames-{name}", place / f"recording-{name}"
        command = ["gcc", "-O2", "-g", "-pthread", *flags, "-o", program, source]
        subprocess.run(command, check=True)
        written = place / f"{name}.txt"
        words = ["record", "--recorder", "ftrace", "--stacks", "native", "-o", out]
        critpath(*words, "--", program, written, place=place)
        right, total = count_right(program, written, out)
        worst = min(worst, right / max(total, 1))
        print(f"{name} frame pointers: {right} of {total} sleeps have the frames of addr2line")
        sleeps, joined, twice = count_joined(out)
        worst = min(worst, (joined - twice) / max(sleeps, 1))
        print(
            f"  {joined} of {sleeps} switches have their stack, {twice} that of another, "
            f"{lost_stacks(out)} were lost"
        )
    stripped, out = place / "frames-stripped", place / "recording-stripped"
    subprocess.run(["strip", "-o", stripped, place / "frames-without"], check=True)
    said = critpath(
        *("record", "--recorder", "ftrace", "--stacks", "native", "-o", out, "--"),
        stripped,
        place / "stripped.txt",
        place=place,
    )
    lines = [line for line in said.splitlines() if "frames-stripped" in line]
    print(f"stripped: {lines}")
    return worst < 0.98 or len(lines) != 1


def hold_python(place: Path, python: str) -> int:
    """Hold the functions of a Python's sleeps against those that it wrote down."""
    line = "import sys; sys.activate_stack_trampoline('perf')"
    if subprocess.run([python, "-c", line], check=False, capture_output=True).returncode:
        print(f"{python} names no functions: it is to be 3.12 or later")
        return 0
    written, out = place / "sleeps.txt", place / "recording-sleeps"
    words = ["record", "--recorder", "ftrace", "--stacks", "native,python", "-o", out]
    critpath(*words, "--", python, PROGRAMS / "sleeps.py", written, place=place)
    path = flow.extract([out], specification="thread").paths
    asleep = np.flatnonzero(np.isin(path.state, ASLEEP))
    right, count, wrong = Counter[str](), Counter[str](), Counter[str]()
    for tid, at, name in map(str.split, written.read_text().splitlines()):
        mine = asleep[(path.tid[asleep] == int(tid)) & (path.begin[asleep] >= int(at))][:1]
        codes = path.stack[mine].tolist()
        frames = path.stacks[codes[0]] if codes and codes[0] >= 0 else ()
        own = [frame.function for frame in frames if frame.file[-3:] == ".py"][:1]
        right[name] += own == [name]
        wrong[name] += own not in ([name], [])
        count[name] += 1
    # perf copies what lies in memory: of the frame of select.select most was never touched.
    brief, long = ((right.pop(n), count.pop(n)) for n in ("in_select", "in_long_select"))
    found, whole = right.total(), count.total()
    print(f"Python: {found} of {whole} sleeps have their function, besides in select.select")
    print(f"  {brief[0]} of {brief[1]} of 0.3 ms and {long[0]} of {long[1]} of 12 ms, by samples;")
    print(f"  {wrong.total()} of all have another")
    return min(found / whole, long[0] / long[1], 1 - wrong.total() / whole) < 0.99


def lost_stacks(recording: Path) -> int:
    """Return how many stacks perf could not write."""
    lost: int = json.loads((recording / "critpath.json").read_text())["recorder"]["stacks"]["lost"]
    return lost


def count_joined(recording: Path) -> tuple[int, int, int]:
    """Return how many sleeps of threads with stacks are, have theirs, and have that of another.

    Of every switch of the trace, on paths or not.
    """
    stacks = open_stacks(recording)
    if stacks is None:
        sys.exit(f"{recording}: no stacks")
    lives = replay(repair_switches(read_events(recording, KERNEL_EVENTS)))
    tid = lives.workers.tid[np.repeat(np.arange(len(lives.workers)), np.diff(lives.start))]
    # A wait that becomes another is one sleep; of the first of a thread the begin may be unknown.
    follows = np.append(False, (tid[1:] == tid[:-1]) & (lives.begin[1:] == lives.end[:-1]))
    before = np.append(False, np.isin(lives.state, ASLEEP)[:-1])
    begins = np.isin(lives.state, ASLEEP) & follows & ~before & np.isin(tid, stacks.tid)
    tid, begin = tid[begins].astype(np.int64), lives.begin[begins]
    found = find_sleeps(stacks, tid, begin, usual_distance(stacks, tid, begin))
    joined = found >= 0
    again = int(joined.sum()) - len(np.unique(found[joined]))
    return len(begin), int(joined.sum()), again


def stack_after(stacks: Stacks, tid: int, time: int) -> list[Frame]:
    """Return the frames of a thread's first sleep from a time on."""
    mine = (stacks.tid == tid) & (stacks.kind == SLEEP) & (stacks.time >= time)
    first = mine.argmax()
    stack = int(stacks.stack[first]) if mine[first] else -1
    return list(stacks.distinct[stack]) if stack >= 0 else []


def count_right(program: Path, written: Path, recording: Path) -> tuple[int, int]:
    """Return how many sleeps have the frames that they should have, and how many there are."""
    stacks = open_stacks(recording)
    if stacks is None:
        sys.exit(f"{recording}: no stacks")
    rows = [line.split() for line in written.read_text().splitlines()]
    asked = sorted({row[2] for row in rows} | {row[3] for row in rows})
    said = addr2line(program, asked)
    right = 0
    for tid, at, inner, outer in rows:
        found = stack_after(stacks, int(tid), int(at))
        places = [(f.function, f.file.rpartition("/")[2], f.line) for f in found]
        wanted = [*said[inner], *said[outer]]
        begin = next((i for i, p in enumerate(places) if p == wanted[0]), 0)
        right += places[begin : begin + len(wanted)] == wanted
    return right, len(rows)


def addr2line(program: Path, addresses: list[str]) -> dict[str, list[tuple[str, str, int]]]:
    """Return the functions, files and lines of return addresses, inlined ones first."""
    found = {}
    for address in addresses:
        command = ["addr2line", "-f", "-i", "-e", program, hex(int(address, 16) - 1)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        lines, found[address] = done.stdout.splitlines(), []
        for function, where in zip(lines[::2], lines[1::2], strict=False):
            file, _, line = where.partition(" ")[0].rpartition(":")
            found[address].append((function, file.rpartition("/")[2], int(line)))
    return found


if __name__ == "__main__":
    sys.exit(main())
