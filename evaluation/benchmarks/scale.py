"""How fast critpath is on large traces, as ratios against peers: one table.

    python evaluation/benchmarks/scale.py [--full] [--rounds 3] [--place DIR] [--save FILE.json]
                                     [--only speed,growth,compare_speed,...]

Traces are those of ``large_trace.py``.  Measured, in interleaved rounds: decoding, and the
way to the paths and vectors of all executions, in a process that is warm (the second of
two in a row); the whole command
from a fresh process; what a bare Python, ``cat``, ``babeltrace2 -o dummy`` and the Python
bindings of babeltrace2 (3 fields of every event, on a smaller trace, per event) take; how
time and memory grow with the trace; limits of memory; jobs.  Other scripts add the rows of
what they measure (``--rows``): types, comparisons, alignment, requests, recording.  Beside
every figure: the same of the release before (``previous.json``), measured on the same kind of
machine.  The default takes some twenty minutes; ``--full`` goes to 100 M events (8 GB of disk)
and to a comparison of a million with a million, ``--only`` measures some parts.
The last column says what bounds a figure, as far as the same run has measured it; what misses
its target is bold.

A row whose feature does not exist is left out, and said to be.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from large_trace import EXECUTION, generate
from measuring import (
    Installed,
    LeftOut,
    Row,
    Taken,
    Worker,
    ratios,
    read_rows,
    run,
    seconds_table,
    table,
)

HERE: Final = Path(__file__).resolve().parent
PREVIOUS: Final = HERE / "previous.json"
# Scripts that add rows, and how they are asked; those that record come last.
CONTRIBUTORS: Final = {
    "clustering.py": (),
    "compare_speed.py": (),
    "decoding_speed.py": ("--rounds", "5", "--only", "process,thread"),
    "msa_speed.py": (),
    "requests_speed.py": (),
    "overhead.py": ("--own", "--starved", "--rounds", "7"),
    "flight.py": (),
}
OWN_PARTS: Final = ("startup", "speed", "growth", "density", "jobs")
PARTS: Final = (*OWN_PARTS, *(Path(name).stem for name in CONTRIBUTORS))
SIZES: Final = (1_000_000, 3_000_000, 10_000_000, 30_000_000)
MAIN_SIZE: Final = 10_000_000
LARGEST: Final = 100_000_000
FOR_BT2: Final = 300_000
TINY: Final = 5_000  # events; what is beside reading them
OF_AN_EXECUTION: Final = 80  # events, of a server
RECORDINGS: Final = 20
OF_A_RECORDING: Final = 5_000_000
LIMIT: Final = 320  # MiB, for --max-memory: what a process takes by itself is 120 to 160

BT2_LOOP: Final = """
import sys
sys.path.append("/usr/lib/python3/dist-packages")
import bt2
seen = 0
for message in bt2.TraceCollectionMessageIterator(sys.argv[1]):
    if type(message) is bt2._EventMessageConst:
        event = message.event
        fields = list(event.payload_field.items())[:3] if event.payload_field is not None else ()
        seen += len([int(v) if hasattr(v, "__index__") else str(v) for _, v in fields])
"""

Rows = list[Row | LeftOut]


class Bench(NamedTuple):
    """What every measurement needs."""

    home: Path
    installed: Installed
    rounds: int
    help: str

    def trace(self, events: int, seed: int = 1, executions: int | None = None) -> Path:
        """Return a trace, written unless it is there."""
        place = self.home / f"trace-{events}-{seed}-{executions or 'few'}"
        if not (place / "truth.json").exists():
            shutil.rmtree(place, ignore_errors=True)
            say(f"writing a trace of {events:,} events")
            generate(place, events, seed=seed, executions=executions)
        return place

    def extract(self, traces: Sequence[Path], *options: str, name: str = "out") -> Taken:
        """Run the whole command: traces to a file of paths."""
        out = self.home / f"{name}.parquet"
        return self.installed.run(
            *(
                "--quiet",
                "export",
                "--format",
                "paths",
                *traces,
                "--execution",
                EXECUTION,
                "--force",
                "-o",
                out,
            ),
            *options,
        )


def say(text: str) -> None:
    """Tell on stderr what is being done."""
    print(f"scale: {text}", file=sys.stderr, flush=True)


def truth(trace: Path) -> dict[str, Any]:
    """Return what was written into a trace."""
    found: dict[str, Any] = json.loads((trace / "truth.json").read_text(encoding="ascii"))
    return found


def streams(trace: Path) -> list[str]:
    """Return the files that hold a trace's events."""
    return [
        str(path)
        for path in sorted(trace.rglob("*_[0-9]*"))
        if path.suffix != ".idx" and path.is_file()
    ]


def interpreter_with_bt2() -> str | None:
    """Return a Python that has babeltrace2's bindings."""
    for python in ("/usr/bin/python3", sys.executable):
        code = BT2_LOOP.split("seen", maxsplit=1)[0]
        if (
            Path(python).exists()
            and not subprocess.run(
                [python, "-c", code, ""], check=False, capture_output=True
            ).returncode
        ):
            return python
    return None


def cpu(taken: Sequence[Taken]) -> float:
    """Return the median of CPU seconds."""
    return statistics.median(one.cpu for one in taken)


def wall(taken: Sequence[Taken]) -> float:
    """Return the median of elapsed seconds."""
    return statistics.median(one.wall for one in taken)


def megabytes(taken: Sequence[Taken]) -> float:
    """Return the median of the peaks, in MB."""
    return statistics.median(one.peak for one in taken) / 1e6


def bounds(taken: dict[str, list[Taken]], events: int) -> dict[str, str]:
    """Return what each figure of `speed` consists of, by what was measured beside it."""
    cat, decode, merge = (cpu(taken[name]) for name in ("cat", "decode", "merge"))
    vectors, command, start = (cpu(taken[name]) for name in ("vectors", "command", "start"))
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    decoding = (
        f"the copy out of the page cache, as cat's: {cat / decode:.0%} of it;"
        f" the rest is {max(decode - cat, 0) / events * 1e9:.0f} ns an event"
    )
    elapsed, began = wall(taken["vectors"]), wall(taken["start"])
    return {
        "decode": decoding,
        "vectors": f"decoding: {decode / vectors:.0%} of it, merging"
        f" {(merge - decode) / vectors:.0%};"
        f" the rest is {max(vectors - merge, 0) / events * 1e9:.0f} ns an event",
        "vectors_wall": f"{vectors / elapsed:.2f} cores busy, of at most 2 threads; {load}",
        "command": f"start-up (5,000 events): {start / command:.0%} of it, the work if warm"
        f" {vectors / command:.0%}",
        "command_wall": f"start-up: {began / wall(taken['command']):.0%} of it; {load}",
    }


def speed(bench: Bench, rows: Rows) -> None:
    """One trace of 10 M events: each in turn, warm, and the whole command."""
    trace = bench.trace(MAIN_SIZE)
    wrote, files, python = truth(trace), streams(trace), interpreter_with_bt2()
    small = bench.trace(FOR_BT2)
    tiny = bench.trace(TINY)
    names = ("cat", "dummy", "bt2", "decode", "merge", "vectors", "command", "start")
    taken: dict[str, list[Taken]] = {name: [] for name in names}
    worker = Worker(
        *(bench.installed.python, HERE / "scale_work.py", str(trace), EXECUTION),
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )

    def warm(piece: str) -> Taken:
        # What ran in between had the caches: once for nothing, as other programs that run
        # for seconds warm themselves.
        worker(piece)
        return worker(piece)[0]

    work: dict[str, Callable[[], Taken]] = {
        "cat": lambda: run(["sh", "-c", 'cat "$@" > /dev/null', "cat", *files]),
        "dummy": lambda: run(["babeltrace2", str(trace), "-o", "dummy"]),
        "decode": lambda: warm("decode"),
        "merge": lambda: warm("merge"),
        "vectors": lambda: warm("vectors"),
        "command": lambda: bench.extract([trace]),
        "start": lambda: bench.extract([tiny]),
    }
    if python is not None:
        work["bt2"] = lambda: run([python, "-c", BT2_LOOP, str(small)])
    say("warming up")
    work["cat"]()
    decoded = worker("decode")[1]["events"]
    worker("vectors")
    walked = worker("vectors")[1]
    assert walked["executions"] == wrote["ended"]
    for number in range(bench.rounds):
        say(f"round {number + 1} of {bench.rounds}")
        for name, one in work.items():
            taken[name].append(one())
    worker.close()
    events = wrote["events"]
    print(
        seconds_table(
            f"{events:,} events ({decoded:,} of them decoded), {wrote['bytes'] / 1e6:.0f} MB,"
            f" {walked['executions']:,} executions, {walked['segments']:,} segments",
            {
                "cat FILES > /dev/null": (taken["cat"], events),
                "babeltrace2 -o dummy": (taken["dummy"], events),
                f"bt2 in Python, 3 fields ({FOR_BT2:,} events)": (taken["bt2"], FOR_BT2),
                "critpath: decode, warm": (taken["decode"], events),
                "critpath: decode and merge, warm": (taken["merge"], events),
                "critpath: trace to paths and vectors, warm": (taken["vectors"], events),
                "critpath export --format paths, a fresh process": (taken["command"], events),
            }
            if taken["bt2"]
            else {name: (taken[name], events) for name in names if taken[name]},
        )
    )
    add = rows.append
    bound = bounds(taken, events)
    add(
        Row(
            "decode",
            "decode, warm: faster than babeltrace2 -o dummy",
            ratios(taken["dummy"], taken["decode"]),
            50,
            bound=bound["decode"],
        )
    )
    add(
        Row(
            "decode_cat",
            "decode, warm: times the time of cat",
            ratios(taken["decode"], taken["cat"]),
            3,
            at_least=False,
            bound=bound["decode"],
        )
    )
    add(
        Row(
            "merge",
            "decode and merge, warm: faster than babeltrace2 -o dummy",
            ratios(taken["dummy"], taken["merge"]),
        )
    )
    if taken["bt2"]:
        scale = MAIN_SIZE / FOR_BT2
        add(
            Row(
                "decode_bt2",
                "decode, warm: faster than bt2 in Python, per event",
                tuple(scale * r for r in ratios(taken["bt2"], taken["decode"])),
            )
        )
    else:
        add(LeftOut("decode, warm: faster than bt2 in Python", "no Python here has bt2"))
    add(
        Row(
            "vectors",
            "trace to paths and vectors, warm: faster than -o dummy",
            ratios(taken["dummy"], taken["vectors"]),
            20,
            bound=bound["vectors"],
        )
    )
    add(
        Row(
            "vectors_wall",
            "the same, elapsed time (one core decodes, one replays)",
            ratios(taken["dummy"], taken["vectors"], "wall"),
            20,
            bound=bound["vectors_wall"],
        )
    )
    add(
        Row(
            "command",
            "the whole command, fresh process: faster than -o dummy",
            ratios(taken["dummy"], taken["command"]),
            5,
            bound=bound["command"],
        )
    )
    add(
        Row(
            "command_wall",
            "the same, elapsed time",
            ratios(taken["dummy"], taken["command"], "wall"),
            bound=bound["command_wall"],
        )
    )


def growth(bench: Bench, rows: Rows, sizes: Sequence[int]) -> None:
    """How time and memory of the whole command grow with the trace."""
    traces = {events: bench.trace(events) for events in sizes}
    tiny = bench.trace(TINY)
    idle: list[Taken] = []
    taken: dict[int, list[Taken]] = {events: [] for events in sizes}
    for number in range(bench.rounds):
        say(f"growth, round {number + 1} of {bench.rounds}")
        idle.append(bench.extract([tiny]))
        for events, trace in traces.items():
            taken[events].append(bench.extract([trace]))
    shown = {"critpath export --format paths, 5,000 events": (idle, 5_000)}
    shown |= {f"critpath export --format paths, {n:,} events": (taken[n], n) for n in sizes}
    print(seconds_table("the whole command as traces grow", shown))
    low, high = sizes[0], sizes[-1]
    span = math.log(high / low)
    title = f"from {low // 10**6} M to {high // 10**6} M events"
    base = cpu(idle)
    each = ", ".join(f"{(cpu(taken[n]) - base) / n * 1e9:.0f}" for n in sizes)
    bound = f"ns an event, less start-up of {base:.2f} s: {each}"
    rows.append(
        Row(
            "growth",
            f"growth of CPU time {title}: exponent",
            tuple(math.log(r) / span for r in ratios(taken[high], taken[low])),
            1.05,
            at_least=False,
            bound=bound,
        )
    )
    rows.append(
        Row(
            "growth_less",
            "the same, less start-up",
            tuple(
                # A millisecond at least: start-up varies by more than 1 M events take.
                math.log(max(b.cpu - base, 1e-3) / max(a.cpu - base, 1e-3)) / span
                for a, b in zip(taken[low], taken[high], strict=True)
            ),
            1.05,
            at_least=False,
            bound=bound,
        )
    )
    for events in dict.fromkeys((MAIN_SIZE, high)):
        name = f"{events // 10**6} M events"
        peak, imports = megabytes(taken[events]), megabytes(idle)
        bound = f"{imports:.0f} of {peak:.0f} MB are there with {TINY:,} events"
        rows.append(
            Row(
                f"memory_{events}",
                f"peak memory, bytes an event, {name}, less imports",
                tuple((a.peak - b.peak) / events for a, b in zip(taken[events], idle, strict=True)),
                48,
                at_least=False,
                bound=bound,
            )
        )
        rows.append(
            Row(
                f"memory_plain_{events}",
                f"peak memory, bytes an event, {name}, plain",
                tuple(a.peak / events for a in taken[events]),
                48,
                at_least=False,
                bound=bound,
            )
        )
    limited(bench, rows, high, taken[high], idle)


def density(bench: Bench, rows: Rows, *, full: bool) -> None:
    """As many events with the executions of a server, beside those with few; and ten times."""
    few, tiny = bench.trace(MAIN_SIZE), bench.trace(TINY)
    sizes = (MAIN_SIZE // 10, MAIN_SIZE, *([LARGEST] if full else []))
    dense = {n: bench.trace(n, executions=n // OF_AN_EXECUTION) for n in sizes}
    others: list[Taken] = []
    idle: list[Taken] = []
    taken: dict[int, list[Taken]] = {n: [] for n in sizes}
    for number in range(bench.rounds):
        say(f"density, round {number + 1} of {bench.rounds}")
        idle.append(bench.extract([tiny]))
        others.append(bench.extract([few]))
        for n, trace in dense.items():
            taken[n].append(bench.extract([trace], name="dense"))
    ours, start = taken[MAIN_SIZE], cpu(idle)
    what = f"{MAIN_SIZE // 10**6} M events, {truth(dense[MAIN_SIZE])['ended']:,} executions"
    bound = f"{cpu(ours):.2f} s of cpu, {cpu(others):.2f} with {truth(few)['ended']:,}"
    rows += [
        Row("dense", f"{what}: times the CPU time of few", ratios(ours, others), 2,
            at_least=False, bound=bound),
        Row("dense_cores", "the same: CPU time of its elapsed time",
            tuple(a.cpu / a.wall for a in ours)),
    ]  # fmt: skip
    for small, large in itertools.pairwise(sizes):
        many, span = taken[large], math.log(large / small)
        ended, mega = truth(dense[large])["ended"], large // 10**6
        each = ", ".join(f"{(cpu(taken[n]) - start) / n * 1e9:.0f}" for n in (small, large))
        rows += [
            Row(f"dense_peak_{large}", f"{mega} M events, {ended:,} executions: peak memory, MB",
                tuple(a.peak / 1e6 for a in many), 320, at_least=False,
                bound=f"{megabytes(idle):.0f} MB are there with {TINY:,} events"),
            Row(f"dense_growth_{large}",
                "growth of its CPU time from a tenth, less start-up: exponent",
                tuple(math.log((b.cpu - start) / (a.cpu - start)) / span
                      for a, b in zip(taken[small], many, strict=True)), 1.02, at_least=False,
                bound=f"ns an event: {each}"),
        ]  # fmt: skip
    if full:
        many = taken[LARGEST]
        rows.append(
            Row("dense_largest", f"{LARGEST // 10**6} M events: elapsed, s",
                tuple(a.wall for a in many), 50, at_least=False,
                bound=f"{cpu(many):.1f} s of cpu")
        )  # fmt: skip


def digest(path: Path) -> str:
    """Return what tells a file from another."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def limited(
    bench: Bench, rows: Rows, events: int, free: Sequence[Taken], idle: Sequence[Taken]
) -> None:
    """The largest trace with a limit of memory far below it."""
    what = f"--max-memory {LIMIT}M, {events // 10**6} M events"
    if "--max-memory" not in bench.help:
        rows.append(LeftOut(what, "there is no --max-memory yet"))
        return
    trace = bench.trace(events)
    limit = ("--max-memory", f"{LIMIT}M")
    taken = [bench.extract([trace], *limit, name="limited") for _ in range(bench.rounds)]
    bench.extract([trace])
    same = digest(bench.home / "out.parquet") == digest(bench.home / "limited.parquet")
    there = f"{megabytes(idle):.0f} of {megabytes(taken):.0f} MB are there with {TINY:,} events"
    rows.append(
        Row(
            "limit_peak",
            f"{what}: peak, times the limit",
            tuple(a.peak / (LIMIT << 20) for a in taken),
            1,
            at_least=False,
            bound=there if same else f"ANOTHER RESULT THAN WITHOUT; {there}",
        )
    )
    rows.append(
        Row("limit_time", "the same: CPU time, times that without a limit", ratios(taken, free))
    )


def copied(bench: Bench, number: int) -> Path:
    """Return a recording of its own that takes no room: the files of one are linked."""
    trace = bench.trace(OF_A_RECORDING)
    place = bench.home / f"copy-{number}"
    if not place.exists():
        shutil.copytree(trace, place, copy_function=os.link)
    return place


def jobs(bench: Bench, rows: Rows) -> None:
    """Two jobs against one on recordings of their own."""
    what = f"--jobs 2 on {RECORDINGS} recordings of {OF_A_RECORDING:,} events, elapsed"
    if "--jobs" not in bench.help:
        rows.append(LeftOut(what, "there is no --jobs yet"))
        return
    recordings = [copied(bench, number) for number in range(RECORDINGS)]
    one, two = [], []
    for number in range(bench.rounds):
        say(f"jobs, round {number + 1} of {bench.rounds}")
        one.append(bench.extract(recordings, "--jobs", "1", name="one"))
        two.append(bench.extract(recordings, "--jobs", "2", name="two"))
    same = digest(bench.home / "one.parquet") == digest(bench.home / "two.parquet")
    load = os.getloadavg()[0]
    bound = f"load {load:.1f} on {os.cpu_count()} cores" + ("" if same else "; ANOTHER RESULT")
    rows.append(Row("jobs", what, ratios(one, two, "wall"), 1.7, bound=bound))


def start_up(bench: Bench, rows: Rows) -> None:
    """``critpath --help`` beside a Python that does nothing."""
    bare, ours = [], []
    for _ in range(max(15, bench.rounds)):
        bare.append(run([bench.installed.python, "-c", "pass"]))
        ours.append(bench.installed.run("--help"))
    each = (("help", "cpu", "CPU time", cpu), ("help_wall", "wall", "elapsed time", wall))
    for key, of, title, middle in each:
        what = f"critpath --help, times a bare Python, {title}"
        more = 1e3 * (middle(ours) - middle(bare))
        bound = f"Python's own {1e3 * middle(bare):.0f} ms; {more:.0f} ms on top"
        rows.append(Row(key, what, ratios(ours, bare, of), 1.6, at_least=False, bound=bound))


def contribute(rows: Rows, parts: Sequence[str], *, full: bool) -> None:
    """Add the rows that other scripts measure; what they print is shown."""
    for name, words in CONTRIBUTORS.items():
        script = HERE / name
        if script.stem not in parts:
            continue
        say(name)
        more = ("--large", "1000000") if full and name == "compare_speed.py" else ()
        with tempfile.NamedTemporaryFile(prefix="critpath-rows-") as file:
            command = [sys.executable, str(script), *words, *more, "--rows", file.name]
            # Beside the table, which is what is kept of a run.
            code = subprocess.run(command, check=False, stdout=sys.stderr).returncode
            rows += read_rows(Path(file.name))
        if code:
            rows.append(LeftOut(name, f"it ended with {code}"))


def parts_of(text: str) -> tuple[str, ...]:
    """Return the parts that are named."""
    parts = tuple(text.split(","))
    if unknown := [part for part in parts if part not in PARTS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(PARTS)}")
    return parts


def own(rows: Rows, options: argparse.Namespace) -> None:
    """Measure what this script measures itself, as far as it is asked for."""
    with tempfile.TemporaryDirectory(prefix="critpath-scale-") as temporary:
        place = options.place or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        installed = Installed()
        known = subprocess.run(
            [installed.command, "export", "--format", "paths", "--help"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        bench = Bench(place, installed, options.rounds, known)
        if "startup" in options.only:
            start_up(bench, rows)
        if "speed" in options.only:
            speed(bench, rows)
        if "growth" in options.only:
            growth(bench, rows, (*SIZES, LARGEST) if options.full else SIZES)
        if "density" in options.only:
            density(bench, rows, full=options.full)
        if "jobs" in options.only:
            jobs(bench, rows)


def main() -> None:
    """Measure everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="up to 100 M events")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--place", type=Path, help="directory for traces; kept")
    parser.add_argument("--save", type=Path, help="write the ratios, for the next release")
    parser.add_argument(
        "--only", type=parts_of, default=PARTS, metavar="PART,...", help=", ".join(PARTS)
    )
    options = parser.parse_args()
    if options.save and set(options.only) != set(PARTS):
        parser.error("--save needs all parts")
    missing = [name for name in ("cc", "babeltrace2") if shutil.which(name) is None]
    if missing:
        sys.exit(f"left out: {' and '.join(missing)} not installed")
    rows: Rows = []
    if set(options.only) & set(OWN_PARTS):
        own(rows, options)
    contribute(rows, options.only, full=options.full)
    before = json.loads(PREVIOUS.read_text(encoding="ascii")) if PREVIOUS.exists() else {}
    if before:
        print(f"\nbefore: {before['release']}")
    print(f"\n{table(rows, before.get('ratios', {}))}")
    if options.save:
        found = {row.key: round(row.middle, 4) for row in rows if isinstance(row, Row)}
        document = {"release": "?", "ratios": found}
        options.save.write_text(json.dumps(document, indent=1) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
