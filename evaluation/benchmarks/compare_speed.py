"""How long `critpath compare` takes on extracted files, beside importing scikit-learn.

    python evaluation/benchmarks/compare_speed.py [ROUNDS] [--short] [--large] [--rows FILE]

Sets are drawn: seven types of paths with optional parts, loops and interrupts; one sample
execution in twenty has a fault.  Every figure is the CPU time (user + system) of a fresh
process, the median of interleaved rounds with their range; only the ratio means anything.
Then sets too large to be asked often: types, outliers and tests of 100,000 against 100,000
executions, once, with the peak of the memory.

Before these, or alone (``--short``): elapsed and CPU seconds of the whole command, installed as a
wheel, on the two recordings of `critpath demo` as extracts, which differ, and on 1,000 against
1,000; how many processors the latter keep busy; and `critpath calibrate` of two sets of 105.
``--large [N]``: the whole command on N (100,000) against N stored executions, from two files
and from two datasets of twenty parts, beside DuckDB's scan of the files; some minutes, and 300 MB
of disk.  Of a million, 2 GB of disk.
``--rows FILE``: all of these but the sets that are judged alone, into ``scale.py``'s table.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from measuring import Installed, Row, Taken, add_rows, ratios, run, take_rows

from critpath.detect.judging import judge
from critpath.model import (
    I64,
    CompareSettings,
    CriticalPaths,
    Executions,
    PathSet,
    State,
    Symbol,
    VectorTable,
)
from critpath.model.details import NO_DETAIL, Detail
from critpath.schema.environment import Environment
from critpath.store import Dataset, save_paths
from critpath.store.writing import PathsWriter
from critpath.vectors.table import ALPHABETS, vector_table

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "lttng-guest"
MS = 1_000_000
STRINGS = ("", "worker", "helper", "kworker/0:1")
DETAILS = (NO_DETAIL, Detail(device="virtio1-req.0"), Detail(call="mutex"))
WORKER, HELPER, KWORKER = 1, 2, 3
# State, thread's name, mean (ms): what paths are made of.
PARTS = (
    (State.RUN, WORKER, 0.4),
    (State.WAIT_DISK, WORKER, 1.1),
    (State.RUN, HELPER, 0.3),
    (State.WAIT_FUTEX, WORKER, 0.5),
    (State.WAIT_TIMER, WORKER, 2.0),
    (State.WAIT_PIPE, WORKER, 0.6),
    (State.RUN, KWORKER, 0.2),
    (State.WAIT_POLL, WORKER, 0.8),
)
INTERFERENCE = ((State.IRQ, 0.02), (State.WAIT_CPU, 0.1))
FAULT = 30 * MS
SHARE_FAULTY = 0.05


@dataclass(frozen=True)
class Type:
    """A programme: a part at each place, and how often an execution has it there."""

    parts: I64
    share: np.ndarray


def types_of(lengths: Sequence[int], seed: int = 1) -> list[Type]:
    """Draw programmes of these lengths: running between waits, a few parts optional."""
    rng = np.random.default_rng(seed)
    found = []
    for length in lengths:
        parts = np.zeros(length, np.int64)
        kinds = rng.choice(np.arange(1, len(PARTS)), 3, replace=False)
        parts[1::2] = rng.choice(kinds, len(parts[1::2]))
        share = np.ones(length)
        share[rng.choice(np.arange(1, length, 2), min(6, length // 2), replace=False)] = 0.85
        found.append(Type(parts, share))
    return found


def draw(
    n: int, types: Sequence[Type], seed: int, *, faulty: bool, after: int = 5000 * MS
) -> PathSet:
    """Draw a set of executions after some time; the faulty wait for a lock before their end."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, len(types), n)
    late = rng.random(n) < (SHARE_FAULTY if faulty else 0.0)
    rows: list[np.ndarray] = []
    for k, type_ in enumerate(types):
        of = np.flatnonzero(kind == k)
        rows += [
            _rows(rng, of[first : first + 2000], type_, late) for first in range(0, len(of), 2000)
        ]
    table = np.concatenate(rows)
    table = table[np.lexsort((table[:, 1], table[:, 0]))]
    return _path_set(table, n, "sample" if faulty else "normal", after)


def _rows(rng: np.random.Generator, of: I64, type_: Type, late: np.ndarray) -> np.ndarray:
    """Columns: execution, place, state, name, duration."""
    length, last = len(type_.parts), len(type_.parts) * 2 // 3
    present = rng.random((len(of), length)) < type_.share
    mean = np.array([part[2] for part in PARTS])[type_.parts] * MS
    duration = (mean * rng.lognormal(0, 0.3, present.shape)).astype(np.int64)
    state = np.array([part[0] for part in PARTS])[type_.parts]
    name = np.array([part[1] for part in PARTS])[type_.parts]
    at, place = np.nonzero(present)
    table = [np.column_stack([of[at], 4 * place, state[place], name[place], duration[at, place]])]
    # An interrupt or another thread comes between, and the rest runs on.
    hit = np.flatnonzero((type_.parts[place] == 0) & (rng.random(len(at)) < 0.1))
    what = rng.integers(0, len(INTERFERENCE), len(hit))
    for offset, states, means in (
        (1, np.array([s for s, _ in INTERFERENCE])[what], [m for _, m in INTERFERENCE]),
        (2, np.full(len(hit), int(State.RUN)), [0.2, 0.2]),
    ):
        spent = (np.array(means)[what] * MS * rng.lognormal(0, 0.3, len(hit))).astype(np.int64)
        names = np.full(len(hit), WORKER)
        table.append(np.column_stack([of[at[hit]], 4 * place[hit] + offset, states, names, spent]))
    slow = of[late[of]]
    waits = (FAULT * rng.lognormal(0, 0.2, len(slow))).astype(np.int64)
    ones = np.ones_like(slow)
    table.append(
        np.column_stack(
            [slow, ones * (4 * last + 3), ones * State.WAIT_FUTEX, ones * WORKER, waits]
        )
    )
    return np.concatenate(table)


def _path_set(table: np.ndarray, n: int, name: str, after: int) -> PathSet:
    start = np.searchsorted(table[:, 0], np.arange(n + 1))
    end = np.cumsum(table[:, 4]) + after + 2 * MS * table[:, 0]
    begin = end - table[:, 4]
    zeros = np.zeros(len(table), np.int64)
    # What a wait is for: the device, the lock.
    device = np.where(table[:, 2] == State.WAIT_DISK, 1, 0)
    device = np.where(table[:, 2] == State.WAIT_FUTEX, 2, device)
    return PathSet(
        executions=Executions(
            id=tuple(f"{name}-{i}" for i in range(n)),
            begin=begin[start[:-1]],
            end=end[start[1:] - 1],
            tid=np.full(n, 1200, np.int64),
            host=np.zeros(n, np.int64),
            comm=(STRINGS[WORKER],) * n,
            label=("",) * n,
        ),
        paths=CriticalPaths(
            start=start.astype(np.int64),
            begin=begin,
            end=end,
            state=table[:, 2].astype(np.uint8),
            detail=device.astype(np.int32),
            comm=table[:, 3].astype(np.int32),
            tid=1199 + table[:, 3],
            host=zeros,
            cpu=zeros.astype(np.int32),
            lossy=np.zeros(len(table), np.bool_),
            strings=STRINGS,
            details=DETAILS,
        ),
        session=np.zeros(n, np.int64),
        sources=(f"recordings/{name}",),
        specification="events:app:request_begin,app:request_end,key=id",
        losses=(),
        lossy=np.zeros(n, np.bool_),
        environment=(Environment(hostname="host", kernel_release="6.1.0"),),
        events=len(table) * 3,
    )


def cpu_of(command: Sequence[str | Path]) -> float:
    """CPU seconds of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr.decode())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def beside_the_import(rounds: int, directory: Path) -> dict[str, list[float]]:
    """Measure comparisons beside `import sklearn.cluster`: CPU seconds of every round."""
    cases = {
        "20 to 200 segments": types_of((20, 40, 60, 80, 120, 160, 200)),
        "500 segments each": types_of((500,) * 7),
    }
    commands: dict[str, list[str | Path]] = {
        "import": [sys.executable, "-c", "import sklearn.cluster"]
    }
    critpath = Path(sys.executable).with_name("critpath")
    for number, (name, types) in enumerate(cases.items()):
        files = [directory / f"{which}-{number}.parquet" for which in ("normal", "sample")]
        for file, seed, faulty in zip(files, (1, 2), (False, True), strict=True):
            save_paths(draw(1000, types, seed, faulty=faulty), file)
        commands[name] = [critpath, "compare", *files]
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            taken[name].append(cpu_of(command))
    return taken


def print_beside(taken: dict[str, list[float]]) -> None:
    """Print how often the import fits into a comparison."""
    rounds = len(taken["import"])
    print(f"| 1,000 against 1,000 executions, {rounds} rounds | CPU s | times the import |")
    print("|---|---:|---:|")
    unit = statistics.median(taken["import"])
    for name, seconds in taken.items():
        middle = statistics.median(seconds)
        spread = f"{middle:.2f} [{min(seconds):.2f} to {max(seconds):.2f}]"
        print(f"| {name} | {spread} | {middle / unit:.2f} |")


def rows_beside(taken: dict[str, list[float]]) -> list[Row]:
    """Return how often the import fits into a comparison, as rows of a table."""
    unit, *others = taken.items()
    return [
        Row(f"compare_{number}", f"compare 1,000 with 1,000, {name}: times importing scikit-learn",
            tuple(a / b for a, b in zip(seconds, unit[1], strict=True)), 10, at_least=False)
        for number, (name, seconds) in enumerate(others)
    ]  # fmt: skip


def short(rounds: int, directory: Path) -> list[Row]:
    """Print what comparisons take that somebody waits for at a prompt."""
    installed = Installed()
    names = "normal", "sample"
    demo, thousand = ([directory / f"{n}-{of}.parquet" for n in names] for of in ("demo", 1000))
    for name, file in zip(("normal", "sample-lock"), demo, strict=True):
        with tarfile.open(FIXTURES / f"{name}.tar.xz") as tar:
            tar.extractall(directory, filter="data")
        installed.run("--quiet", "export", "--format", "paths", directory / name, "-o", file)
    types = types_of((20, 24, 30, 36, 40, 50, 60))
    for seed, (name, file) in enumerate(zip(names, thousand, strict=True), 1):
        save_paths(draw(1000, types, seed, faulty=name == "sample"), file)
    few = [directory / f"{n}-105.parquet" for n in names]
    for seed, file in enumerate(few, 3):
        save_paths(draw(105, types, seed, faulty=False), file)
    taken: dict[str, list[Taken]] = {"two small extracts": [], "1,000 with 1,000": []}
    bare: list[Taken] = []
    for _ in range(rounds + 1):  # the first compiles and fills caches
        bare.append(run([installed.python, "-c", "import numpy"]))
        for name, files in zip(taken, (demo, thousand), strict=True):
            taken[name].append(installed.run("compare", *files, codes=(0, 1, 3)))
    print(f"| compare, {rounds} rounds | elapsed, s | CPU s | elapsed / CPU | import numpy |")
    print("|---|---:|---:|---:|---:|")
    for name, each in taken.items():
        walls, cpus = ([getattr(one, of) for one in each[1:]] for of in ("wall", "cpu"))
        elapsed, cpu = (
            f"{statistics.median(all_):.2f} [{min(all_):.2f} to {max(all_):.2f}]"
            for all_ in (walls, cpus)
        )
        part = statistics.median(one.wall / one.cpu for one in each[1:])
        times = statistics.median(ratios(each[1:], bare[1:]))
        print(f"| {name} | {elapsed} | {cpu} | {part:.2f} | {times:.1f} times its CPU |")
    for jobs in ("1", "auto"):
        # Processes that judge are nobody's that ends here: their CPU time is not seen.
        one = installed.run("--quiet", "calibrate", "--jobs", jobs, *few, codes=(0, 1))
        print(f"calibrate, two sets of 105, --jobs {jobs}: {one.wall:.1f} s elapsed", end="")
        print(f", {one.cpu:.1f} s CPU" if jobs == "1" else "", flush=True)
    rows = []
    for name, target in (("two small extracts", 0.45), ("1,000 with 1,000", 1.2)):
        each = taken[name][1:]
        times = statistics.median(ratios(each, bare[1:]))
        wall = statistics.median(one.wall for one in each)
        bound = f"{wall:.2f} s elapsed; {times:.1f} times the CPU of import numpy"
        found = tuple(one.cpu for one in each)
        key = "compare_short" if target < 1 else "compare_thousand"
        rows.append(
            Row(key, f"compare, {name}: CPU, s", found, target, at_least=False, bound=bound)
        )
    what = "calibrate, two sets of 105, --jobs auto: elapsed, s"
    return [*rows, Row("calibrate", what, (one.wall,), 10, at_least=False)]


def save_stored(n: int, parts: int, directory: Path) -> None:
    """Write two sets of n executions, each as a file and as a dataset of some parts."""
    types = types_of((20, 24, 30, 36, 40, 50, 60))
    for which, seed, faulty in (("normal", 1, False), ("sample", 2, True)):
        place = directory / which
        place.mkdir()
        written, last = [], 5000 * MS
        with (directory / f"{which}.parquet").open("wb") as stream, PathsWriter(stream) as writer:
            for i in range(parts):  # each after the one before, as of one recording
                part = draw(n // parts, types, 100 * seed + i, faulty=faulty, after=last)
                last = int(part.executions.end[-1])
                writer.write(part, more=i > 0)
                written.append(Dataset(place).write_part(i, [part]))
        Dataset(place).seal(written, {})


# What a segment's columns are read for at least: one figure of each.
_SCAN = """
import duckdb, sys
of = 'sum(s."end" - s."begin"), max(s.state), max(s.detail), max(s.comm), max(s.tid), max(s.host)'
of += ", max(s.cpu), bool_or(s.lossy), max(s.elsewhere_idle)"
for file in sys.argv[1:]:
    duckdb.sql(f"SELECT {of} FROM (SELECT unnest(segments) AS s FROM '{file}')").fetchall()
"""


def run_with_copies(command: Sequence[str | Path]) -> Taken:
    """Run a command; its peak is that of all its processes together, what they share once."""
    ended, most = threading.Event(), 0

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.2):
            most = max(most, sum(map(_measure_share, _list_descendants(os.getpid()))))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        taken = run(command, codes=(0, 1, 3, 4))  # each is a verdict; 4: too large to be read
    finally:
        ended.set()
        watching.join()
    return taken._replace(peak=max(taken.peak, most))


def _list_descendants(process: int) -> list[int]:
    found: list[int] = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # it ended meanwhile
            found += map(int, file.read_text().split())
    return [*found, *(each for child in found for each in _list_descendants(child))]


def _measure_share(process: int) -> int:
    """Return the bytes of a process; of pages that several share its part."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


def stored(n: int, directory: Path, *, only: int | None = None) -> list[Row]:
    """Print what the whole command takes on very many stored executions, and a scan of them.

    All ways, or the first few only.
    """
    directory = directory / "stored"
    directory.mkdir()
    apart(lambda: save_stored(n, 20, directory))
    critpath = Path(sys.executable).with_name("critpath")
    files = [directory / f"{which}.parquet" for which in ("normal", "sample")]
    print("| executions each | of | CPU s | elapsed, s | elapsed / CPU | peak MB | JSON MB |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    json_file = directory / "comparison.json"
    sets = [file.with_suffix("") for file in files]
    commands: dict[str, list[str | Path]] = {
        "DuckDB's scan of two files": [sys.executable, "-c", _SCAN, *files],
        "compare, two files": [critpath, "compare", *files],
        "compare, two files, --json": [critpath, "compare", *files, "--json", json_file],
        "report of that JSON": [critpath, "report", json_file],
        "compare, two datasets": [critpath, "compare", *sets],
    }
    found = []
    for name, command in [*commands.items()][:only]:
        taken = run_with_copies(command)
        found.append(taken)
        size = f"{json_file.stat().st_size / 1e6:.0f}" if json_file in command else "-"
        print(
            f"| {n:,} | {name} | {taken.cpu:.1f} | {taken.wall:.1f} "
            f"| {taken.wall / taken.cpu:.2f} | {taken.peak / 1e6:.0f} | {size} |",
            flush=True,
        )
    scan, ours = found[:2]
    what, million = f"compare of {n:,} with {n:,} stored", n / 1e6
    bound = f"{ours.cpu:.1f} s of CPU; DuckDB's scan of the same files {scan.wall:.1f} s"
    # What is wanted of a million; of others, in proportion.
    return [
        Row(
            "large", f"{what}: elapsed, s", (ours.wall,), 60 * million, at_least=False, bound=bound
        ),
        Row("large_peak", "the same: peak, MB", (ours.peak / 1e6,), 1_200, at_least=False),
        Row("large_cores", "the same: elapsed / CPU", (ours.wall / ours.cpu,), 0.6, at_least=False),
    ]


def tables(n: int, seed: int) -> tuple[VectorTable, VectorTable]:
    """Return the vectors of two sets of n executions."""
    types = types_of((20, 24, 30, 36, 40, 50, 60))
    sets = draw(n, types, seed, faulty=False), draw(n, types, seed + 1, faulty=True)
    alphabet = ALPHABETS[CompareSettings().alphabet](sets)
    one, other = (
        vector_table(each, alphabet.symbols, codes)
        for each, codes in zip(sets, alphabet.codes, strict=True)
    )
    return one, other


def save_tables(n: int, file: Path) -> None:
    """Write the vectors of two sets."""
    columns: dict[str, np.ndarray] = {}
    for which, each in zip("ns", tables(n, 1), strict=True):
        columns |= {f"{which}{i}": a for i, a in enumerate((each.counts, each.durations))}
        columns[f"{which}2"] = each.structure
        columns["state"] = np.array([s.state for s in each.symbols])
        columns["role"] = np.array([s.role for s in each.symbols])
    np.savez(file, **columns)


def judged(n: int, file: Path) -> None:
    """Judge two sets in this process, and print its time and the peak of its memory."""
    stored = np.load(file)
    symbols = tuple(
        Symbol(State(int(s)), str(r)) for s, r in zip(stored["state"], stored["role"], strict=True)
    )
    normal, sample = (
        VectorTable(symbols, *(stored[f"{which}{i}"] for i in range(3))) for which in "ns"
    )
    paths = len(np.unique(normal.structure, axis=0))
    began, steps = time.process_time(), []

    def told(what: str) -> None:
        steps.append((what, time.process_time()))

    nothing = (("",) * n, ("",) * n)
    done = judge(
        normal, sample, CompareSettings(), labels=nothing, sessions=(None, None), progress=told
    )
    ended = time.process_time()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"| {n:,} | {paths} | {steps[-1][1] - began:.1f} | {ended - steps[-1][1]:.1f} "
        f"| {most / 1024:.0f} | {int(done.outliers.anomalous.sum()):,} |"
    )


def apart(work: Callable[[], None]) -> None:
    """Run something in a process of its own."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        work()
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("a measurement failed")


def at_scale(sizes: Sequence[int], directory: Path) -> None:
    """Print what judging sets of these sizes takes."""
    print("\n| executions each | distinct | types, outliers, s | tests, s | peak MB | marked |")
    print("|---:|---:|---:|---:|---:|---:|")
    for size in sizes:
        file = directory / f"{size}.npz"
        apart(lambda size=size, file=file: save_tables(size, file))
        apart(lambda size=size, file=file: judged(size, file))


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", nargs="?", type=int, default=3)
    parser.add_argument(
        "--large", type=int, nargs="?", const=100_000, metavar="N",
        help="this many stored executions each",
    )  # fmt: skip
    parser.add_argument("--short", action="store_true", help="commands that take under seconds")
    take_rows(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="critpath-compare-") as temporary:
        directory = Path(temporary)
        if options.rows:
            add_rows(options.rows, short(options.rounds, directory))
            beside = beside_the_import(options.rounds, directory)
            add_rows(options.rows, rows_beside(beside))
            add_rows(options.rows, stored(options.large or 100_000, directory, only=2))
        elif options.short:
            short(options.rounds, directory)
        elif options.large:
            stored(options.large, directory)
        else:
            short(options.rounds, directory)
            print_beside(beside_the_import(options.rounds, directory))
            at_scale((1_000, 10_000, 100_000), directory)


if __name__ == "__main__":
    main()
