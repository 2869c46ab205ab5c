"""What counting costs, beside recording the same events and beside perf's counting events.

    python evaluation/benchmarks/signatures.py [--rounds N] [--only operations,search,...]

Every round does each operation without anything, and then under each way of counting and
recording, in an order that is drawn; figures are medians over rounds of what an operation takes
more than without in the same round.  Only ratios mean anything.  Needs root and a C compiler.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from critpath_record.counts import groups
from critpath_record.counts.attach import ProgramCounts
from critpath_record.counts.events import select_counted
from critpath_record.counts.fallback import PerfCounts

HERE = Path(__file__).resolve().parent
TRACEFS = Path("/sys/kernel/tracing")
# What starting takes with the libraries that a search needs.
STARTING = "import numpy, scipy.sparse, critpath.commands as c; c.entry()"
BATCHES = {"syscall": 200, "open": 200, "ping-pong": 150}
WAYS = ("bpf minimal", "bpf minimal + group", "bpf all", "perf", "ftrace minimal", "ftrace all")
# Added time of one way as a share of another's, by operation: the targets of the specification.
RATIOS = (
    ("counting all, against recording all", "bpf all", "ftrace all", 0.35),
    ("counting the minimum, against recording it", "bpf minimal", "ftrace minimal", 0.35),
    ("counting, against perf's counting events", "bpf minimal", "perf", 0.65),
    ("a group beside the machine, against the machine", "bpf minimal + group", "bpf minimal", 1.5),
)


def available() -> list[str]:
    """Return the kernel's events as group/event."""
    lines = (TRACEFS / "available_events").read_text().split()
    return [line.replace(":", "/", 1) for line in lines]


@contextlib.contextmanager
def counting(events: str, *, group: bool = False, perf: bool = False) -> Iterator[None]:
    """Count meanwhile."""
    own = groups.make_group(f"critpath-bench-{os.getpid()}") if group else None
    counted = select_counted(events, available())
    source = PerfCounts(counted, own) if perf else ProgramCounts(counted, own)
    try:
        if own is not None:
            (own.path / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        source.close()
        if own is not None:
            groups.remove_group(own.path)


@contextlib.contextmanager
def recording(events: str) -> Iterator[None]:
    """Record the same events in an instance of tracefs, over and over in its buffers."""
    place = TRACEFS / "instances" / f"critpath-bench-{os.getpid()}"
    place.mkdir()
    try:
        (place / "trace_clock").write_text("mono")
        (place / "buffer_size_kb").write_text("4096")
        chosen = [c.event.replace("/", ":") for c in select_counted(events, available())]
        groups_of = {name.partition(":")[0] for name in chosen}
        wanted = [f"{g}:*" for g in sorted(groups_of)] if events == "all" else chosen
        wanted = ["raw_syscalls:sys_enter" if w.startswith("raw") else w for w in wanted]
        events_file = os.open(place / "set_event", os.O_WRONLY)  # which does not clear it
        try:
            for name in wanted:
                os.write(events_file, f"{name}\n".encode())
        finally:
            os.close(events_file)
        if len((place / "set_event").read_text().split()) < len(wanted):
            raise SystemExit("the tracer does not record what it should")
        yield
    finally:
        with contextlib.suppress(OSError):
            (place / "set_event").write_text("")
        place.rmdir()


def ways() -> dict[str, Callable[[], AbstractContextManager[None]]]:
    """Return each way of counting or recording by name."""
    return {
        "bpf minimal": lambda: counting("minimal"),
        "bpf minimal + group": lambda: counting("minimal", group=True),
        "bpf all": lambda: counting("all"),
        "perf": lambda: counting("minimal", perf=True),
        "ftrace minimal": lambda: recording("minimal"),
        "ftrace all": lambda: recording("all"),
    }


def measure_operations(rounds: int, work: Path, chosen: Sequence[str]) -> None:
    """Print the table of added time, and the ratios that there are targets for."""
    program = work / "signatures"
    subprocess.run(["cc", "-O1", "-o", program, HERE / "signatures.c"], check=True)

    def take(operation: str) -> float:
        words = [program, operation, str(BATCHES[operation])]
        return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    added: dict[tuple[str, str], list[float]] = {}
    plain: dict[str, list[float]] = {operation: [] for operation in BATCHES}
    draw = random.Random(1)  # noqa: S311 - an order
    for _ in range(rounds):
        order = list(chosen)
        draw.shuffle(order)
        for way in order:
            before = {operation: take(operation) for operation in BATCHES}
            with ways()[way]():
                during = {operation: take(operation) for operation in BATCHES}
            after = {operation: take(operation) for operation in BATCHES}
            for operation in BATCHES:
                base = min(before[operation], after[operation])
                plain[operation].append(base)
                added.setdefault((way, operation), []).append(during[operation] - base)
    middle = {key: statistics.median(values) for key, values in added.items()}
    base = {operation: statistics.median(values) for operation, values in plain.items()}
    print("ns more per operation, median of", rounds, "rounds; load", f"{os.getloadavg()[0]:.1f}")
    print(f"{'':24}" + "".join(f"{f'{o} ({base[o]:.0f} ns)':>24}" for o in BATCHES))
    for way in chosen:
        cells = (f"+{middle[way, o]:.0f} (x{1 + middle[way, o] / base[o]:.2f})" for o in BATCHES)
        print(f"{way:24}" + "".join(f"{cell:>24}" for cell in cells))
    for what, one, other, target in (r for r in RATIOS if {r[1], r[2]} <= {*chosen}):
        for operation in BATCHES:
            pairs = zip(added[one, operation], added[other, operation], strict=True)
            ratio = statistics.median(a / b for a, b in pairs if b > 0)
            held = "held" if ratio <= target else "MISSED"
            print(f"{what}: {operation}: {ratio:.2f} (target <= {target}) {held}")


def measure_recorder() -> None:
    """Print what attaching, reading and writing take."""
    for events in ("minimal", "broad", "all"):
        begin = time.perf_counter()
        source = ProgramCounts(select_counted(events, available()), None)
        attached = time.perf_counter()
        source.read()
        cpu = time.thread_time()
        times = 50
        for _ in range(times):
            source.read()
            source.count_misses()
        each = (time.thread_time() - cpu) / times
        closing = time.perf_counter()
        source.close()
        gone = time.perf_counter()
        took = attached - begin + gone - closing
        print(
            f"{events}: attach {attached - begin:.2f} s, detach {gone - closing:.2f} s (target of "
            f"both <= 3 s) {'held' if took <= 3 else 'MISSED'}; a reading {1e3 * each:.2f} ms of "
            f"cpu: {each:.2%} of one at 1 s"
        )
        many = object.__new__(ProgramCounts)
        many.__dict__.update(source.__dict__)
        many._cpus = 128
        many._rows = [bytes(many._row * 128)]
        cpu = time.thread_time()
        for _ in range(10):
            many.read()
        each = (time.thread_time() - cpu) / 10
        print(
            f"{events}, 128 cpus simulated: {1e3 * each:.2f} ms: {each:.2%} of one cpu at 1 s "
            f"(target <= 1 %) {'held' if each <= 0.01 else 'MISSED'}"
        )
    with tempfile.TemporaryDirectory() as place:
        words = [sys.executable, "-P", "-m", "critpath", "record", "-a", "--recorder", "counts"]
        words += ["--duration", "20", "--no-probe", "-o", f"{place}/rec"]
        spent: list[float] = []
        for seconds in ("2", "22"):
            words[words.index("--duration") + 1] = seconds
            before = os.times()
            subprocess.run([*words, "--force"], check=True, capture_output=True)
            now = os.times()
            spent.append(now[2] + now[3] - before[2] - before[3])
        share = (spent[1] - spent[0]) / 20
        held = "held" if share <= 0.003 else "MISSED"
        print(f"recorder's own cpu at 1 s, minimal: {share:.2%} of one (target <= 0.3 %) {held}")


def measure_trace(rounds: int, work: Path) -> None:
    """Print counting a trace into signatures against decoding it to columns."""
    from contextlib import closing  # noqa: PLC0415 - numpy is not for who counts

    import numpy as np  # noqa: PLC0415 - as said

    from critpath.read.event_names import KERNEL_EVENTS  # noqa: PLC0415 - as said
    from critpath.read.recording import Recording  # noqa: PLC0415 - as said
    from critpath.signatures.signing import run_tally, trace_requests  # noqa: PLC0415 - as said
    from critpath.timeline.opening import RecordingOpener  # noqa: PLC0415 - as said

    place = work / "trace"
    made = [sys.executable, str(HERE / "large_trace.py"), str(place), "--events", "6e6"]
    subprocess.run(made, check=True, capture_output=True)
    recording = Recording(place)

    def decode() -> float:
        begin = time.process_time()
        with closing(RecordingOpener(recording, KERNEL_EVENTS, "native")()) as stream:
            for _ in stream:
                pass
        return time.process_time() - begin

    def tally() -> float:
        begin = time.process_time()
        first = 0
        with closing(RecordingOpener(recording, trace_requests(), "native")()) as stream:
            for chunk in stream:
                first = int(chunk.timestamp[0])
                break
        starts = first + 1_000_000_000 * np.arange(100_000)
        opener = RecordingOpener(recording, trace_requests(), "native")
        run_tally(opener, (), starts, starts + 1_000_000_000, None, apart=True)
        return time.process_time() - begin

    ratios = []
    for _ in range(rounds):
        base = decode()
        ratios.append(tally() / base)
    ratio = statistics.median(ratios)
    held = "held" if ratio <= 1.2 else "MISSED"
    print(
        f"counting a trace of 6 M events, against decoding it: {ratio:.2f} (target <= 1.2) {held}"
    )


def measure_macro(rounds: int, asked: Sequence[str]) -> None:
    """Print cpu time per request or file under counting, against none, in alternation."""
    sys.path.insert(0, str(HERE.parent / "signatures"))
    import fmeter_sessions as sessions  # noqa: PLC0415 - no package

    def used(group: sessions.Group) -> int:
        words = (group.path / "cpu.stat").read_text().split()
        return int(words[words.index("usage_usec") + 1])

    def serve(group: Any) -> float:
        """Return bytes that nginx moves by its cpu time: nothing attached has a part in them."""
        before, begin = _progress(group), used(group)
        time.sleep(1)
        return (_progress(group) - before) / max(1, used(group) - begin)

    def transact(group: Any) -> float:
        """Return transactions by the server's cpu time; of sockets no bytes are counted."""
        program = max(Path("/usr/lib/postgresql").glob("*/bin")) / "pgbench"
        login = ("-h", "/tmp", "-p", str(sessions.PORT + 32), "-U", "postgres", "postgres")  # noqa: S108 - its socket
        begin = used(group)
        group.run(str(program), "-n", "-S", "-c", "4", "-t", "4000", *login)
        return 16_000 / max(1, used(group) - begin)

    programs = {"nginx": ("nginx", serve, 1.06), "postgres": ("pg-select", transact, 1.04)}
    for name in [name for name in programs if name in asked]:
        workload, find_rate, target = programs[name]
        ratios: dict[str, list[float]] = {"minimal": [], "broad": [], "all": []}
        with sessions.new_group(f"bench-{name}") as group:
            sessions.WORKLOADS[workload](group)
            if find_rate is transact:  # which runs pgbench itself
                os.killpg(group.running.pop().pid, signal.SIGTERM)
            time.sleep(2)
            for _ in range(rounds):
                for events, found in ratios.items():
                    rates = []
                    for way in ("", events):
                        with counting(way) if way else contextlib.nullcontext():
                            rates.append(find_rate(group))
                    found.append(rates[0] / rates[1])
        print_macro(name, ratios, target)


def print_macro(name: str, ratios: dict[str, list[float]], target: float | None) -> None:
    """Print medians, and how far apart the middle half of the rounds is."""
    for events, found in ratios.items():
        ratio = statistics.median(found)
        low, _, high = statistics.quantiles(found, n=4)
        aim = target if events == "minimal" else None
        held = "" if aim is None else f" (target <= {aim}) {'held' if ratio <= aim else 'MISSED'}"
        print(f"{name}, {events}: cpu per unit of work x{ratio:.3f} [{low:.3f}, {high:.3f}]{held}")


def measure_commands(rounds: int, work: Path) -> None:
    """Print cpu time of compiling, and of starting programs, under counting against none."""
    for number in range(8):
        (work / f"f{number}.c").write_text(
            "#include <stdio.h>\n#include <stdlib.h>\n"
            + "".join(f"int f{at}(int a) {{ return a * {at} + rand(); }}\n" for at in range(60))
        )
    lines = {
        "gcc": ("for f in f*.c; do gcc -O2 -c $f; done", 1.02),
        "forks and exec": ("i=0; while [ $i -lt 400 ]; do /bin/true; i=$((i + 1)); done", None),
    }
    for name, (line, target) in lines.items():
        ratios: dict[str, list[float]] = {"minimal": [], "broad": [], "all": []}
        for _ in range(rounds):
            for events, found in ratios.items():
                spent = []
                for way in ("", events):
                    with counting(way) if way else contextlib.nullcontext():
                        before = os.times()
                        subprocess.run(["sh", "-c", line], cwd=work, check=True)
                        now = os.times()
                    spent.append(now[2] + now[3] - before[2] - before[3])
                found.append(spent[1] / spent[0])
        print_macro(name, ratios, target)


def _progress(group: Any) -> int:
    """Return bytes read and written."""
    total = 0
    for pid in (group.path / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/io").read_text().split()
            total += int(words[words.index("rchar:") + 1]) + int(words[words.index("wchar:") + 1])
    return total


def draw_corpus(documents: int, labels: int = 100, sessions: int = 1_000) -> Any:
    """Draw signatures as those of all tracepoints are: a third of 338 terms in each."""
    import numpy as np  # noqa: PLC0415 - numpy is not for who counts
    from scipy.sparse import csr_array, vstack  # noqa: PLC0415 - as said

    from critpath.signatures.drift import Corpus  # noqa: PLC0415 - as said

    rng = np.random.default_rng(1)
    usual = rng.lognormal(0, 1.5, (labels, 338)) * (rng.random((labels, 338)) < 1 / 3)
    day = rng.lognormal(0, 0.15, (sessions, 338))
    session = np.arange(documents) * sessions // documents
    label = session * labels // sessions
    vectors = []
    for first in range(0, documents, 10_000):
        some = slice(first, first + 10_000)
        rates = usual[label[some]] * day[session[some]]
        counts = rng.poisson(50_000 * rates / rates.sum(axis=1, keepdims=True))
        shares = counts / counts.sum(axis=1, keepdims=True)
        vectors.append(csr_array(np.sqrt(shares).astype(np.float32)))
    return Corpus.of(vstack(vectors, format="csr"), label, session, labels)


def measure_search(rounds: int) -> None:
    """Print the search of 100,000 signatures against faiss's exact one on one thread."""
    import numpy as np  # noqa: PLC0415 - numpy is not for who counts

    from critpath.signatures.drift import find_drift  # noqa: PLC0415 - as said

    try:
        import faiss  # noqa: PLC0415 - pip install faiss-cpu, for this row only
    except ImportError:
        print("left out: search needs faiss (pip install faiss-cpu)")
        return
    faiss.omp_set_num_threads(1)
    corpus = draw_corpus(100_000)
    drift = find_drift(corpus)
    vectors = corpus.vectors
    lengths = drift.lengths(vectors).astype(np.float32)
    index = faiss.IndexFlatIP(corpus.terms)
    index.add(vectors.toarray())
    kept = (corpus.start, corpus.term, corpus.weight, corpus.label, corpus.session, lengths)
    each = sum(column.nbytes for column in kept) / len(corpus)
    print(
        f"search: {len(corpus.term) / len(corpus):.0f} terms of {corpus.terms}, {each:.0f} bytes a "
        f"signature (target <= 1,024) {'held' if each <= 1024 else 'MISSED'}"
    )
    for name, some in (("single", vectors[[5]]), ("batch of 64", vectors[::1563])):
        dense = some.toarray()
        ratios, ours = [], []
        for _ in range(3 * rounds):
            begin = time.process_time()
            drift.to_labels(some, corpus, lengths)
            between = time.process_time()
            index.search(dense, 5)
            end = time.process_time()
            ratios.append((between - begin) / (end - between))
            ours.append(1e3 * (between - begin) / len(dense))
        ratio = statistics.median(ratios)
        print(
            f"search, {name}: {statistics.median(ours):.2f} ms of cpu each, against faiss x"
            f"{ratio:.2f} (target < 1) {'held' if ratio < 1 else 'MISSED'}"
        )


def draw_store(store: Path, asked: Path, entries: int, documents: int) -> None:
    """Write a store of 50 labels, and a recording of one of them."""
    import numpy as np  # noqa: PLC0415 - numpy is not for who counts

    from critpath.known.entries import add_entry  # noqa: PLC0415 - as said
    from critpath.model.signatures import Counts  # noqa: PLC0415 - as said
    from critpath.signatures.lookup import make_entry  # noqa: PLC0415 - as said

    terms = tuple(f"sys:call{number:03}" for number in range(338))
    rng = np.random.default_rng(1)
    usual = rng.lognormal(0, 1.5, (50, 338)) * (rng.random((50, 338)) < 1 / 3)

    def draw(label: int) -> Any:
        rates = usual[label] * rng.lognormal(0, 0.15, 338)
        return rng.poisson(50_000 * rates / rates.sum(), (documents, 338))

    begin = 1_000_000_000 * np.arange(documents)
    for number in range(entries):
        table = draw(number % 50)
        document, term = np.nonzero(table)
        counts = Counts(
            *(terms, ("command",), begin, begin + 1_000_000_000),
            *(np.zeros(documents, np.int32), np.zeros(documents, np.bool_)),
            *(document.astype(np.int32), term.astype(np.int32), table[document, term]),
            interval=1_000_000_000,
            source="bpf",
        )
        add_entry(store, make_entry(f"work-{number % 50:02}", counts), None)
    shutil.copytree(HERE.parents[1] / "fixtures" / "known" / "unknown", asked)
    lines = asked / "counts" / "counts.jsonl"
    header = json.loads(lines.read_text().partition("\n")[0])
    made = [header | {"terms": terms, "scopes": ["machine"]}]
    for at, row in enumerate(draw(7).tolist()):
        counted = [[term, count] for term, count in enumerate(row) if count]
        made.append({"begin": int(begin[at]), "end": int(begin[at]) + 10**9, "counts": [counted]})
    lines.write_text("".join(json.dumps(line | {"loss": 0}) + "\n" for line in made))
    about = json.loads((asked / "critpath.json").read_text())
    about["counts"]["scope"] = "machine"
    (asked / "critpath.json").write_text(json.dumps(about))


def measure_check(words: Sequence[str | Path]) -> None:
    """Print what a check of 12,000 documents takes; without a cache."""
    process = subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"XDG_CACHE_HOME": "/dev/null", "OPENBLAS_NUM_THREADS": "1"},
    )
    _, code, used = os.wait4(process.pid, 0)
    if code:
        raise SystemExit("known check failed")
    seconds, mebibytes = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    held = "held" if seconds <= 10 and mebibytes <= 500 else "MISSED"
    print(
        f"known check, 12,000 documents: {seconds:.1f} s of cpu, {mebibytes:.0f} MB "
        f"(target <= 10 s, <= 500 MB) {held}"
    )


def measure_command(rounds: int, work: Path) -> None:
    """Print what a search of 1,000 entries takes as a command, by what starting takes."""
    base = [sys.executable, "-P", "-c", STARTING]

    def take(words: Sequence[str | Path], cache: Path) -> float:
        before = os.times()
        done = subprocess.run(
            words,
            check=False,
            capture_output=True,
            env=os.environ | {"XDG_CACHE_HOME": str(cache), "OPENBLAS_NUM_THREADS": "1"},
        )
        now = os.times()
        if done.returncode:
            raise SystemExit(done.stderr.decode() + done.stdout.decode()[:2_000])
        return now[2] + now[3] - before[2] - before[3]

    for documents in (12, 60):
        store, asked = work / f"{documents}.known", work / f"asked-{documents}"
        draw_store(store, asked, 1_000, documents)
        words = [sys.executable, "-P", "-m", "critpath", "known", "search", store, asked]
        if documents == 12:
            measure_check([sys.executable, "-P", "-m", "critpath", "known", "check", store])
        ratios: dict[str, list[float]] = {"cold": [], "cached": []}
        for number in range(rounds):
            cache = work / f"cache-{documents}-{number}"
            for found in ratios.values():
                start = take([*base, "--version"], work / "none")
                found.append(take(words, cache) / start)
        for name, found in ratios.items():
            ratio, target = statistics.median(found), {"cold": 5, "cached": 2}[name]
            print(
                f"known search, 1,000 entries of {documents} documents, {name}: x{ratio:.1f} of "
                f"--version with numpy and scipy (target <= {target}) "
                f"{'held' if ratio <= target else 'MISSED'}"
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--only", default="operations,recorder,trace,nginx,postgres,commands,search,command"
    )
    parser.add_argument("--ways", default=",".join(WAYS), help="of counting and recording")
    given = parser.parse_args(arguments)
    asked = given.only.split(",")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # servers and groups are taken away
    if "search" in asked:
        measure_search(given.rounds)
    if "command" in asked:
        with tempfile.TemporaryDirectory() as place:
            measure_command(given.rounds, Path(place))
    if os.geteuid():
        print("left out: counting needs root")
        return
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        if "operations" in asked:
            measure_operations(given.rounds, work, given.ways.split(","))
        if "recorder" in asked:
            measure_recorder()
        if "trace" in asked:
            measure_trace(max(3, given.rounds // 2), work)
        if {"nginx", "postgres"} & set(asked):
            measure_macro(given.rounds, asked)
        if "commands" in asked:
            measure_commands(given.rounds, work)


if __name__ == "__main__":
    main()
