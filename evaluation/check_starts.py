"""Checks that every experiment starts and ends, on a tiny input: ``python check_starts.py [PART]``.

A line for each, with its seconds; PART chooses those whose path contains it. What an experiment
needs and is not here (root, a server, ../shared) is said and counted. Modules of experiments,
which have no command line, are imported. Figures of such runs mean nothing and are not shown.
Exit code 1: one failed, took five minutes, or is not listed below.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent
LONGEST: Final = 300.0  # s: it hangs, also on a busy machine
# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY: Final = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


class Start(NamedTuple):
    """How an experiment is started small.

    Words may name ``{made}``, a directory of this start, ``{once}``, where `prepare` has put the
    inputs, and ``{critpath}``. `codes` are exit codes of an experiment that has ended: some
    answer with 1 that less was found than should be, which says nothing on so little.
    """

    script: str
    words: str = ""
    needs: str = ""
    codes: tuple[int, ...] = (0,)


STARTS: Final = (
    Start("ab/ab_tables.py", "simulate --state {made} --only tails --repeats 4"),
    Start("benchmarks/added.py", "--method muscle", "shared"),
    Start("benchmarks/beats.py", "1", "kernel"),
    Start("benchmarks/clustering.py", "--tiny"),
    Start("benchmarks/compare_speed.py", "--large 100"),
    Start("benchmarks/convert_speed.py", "--rounds 1 --copies 1", "babeltrace2", (0, 1)),
    Start("benchmarks/corners.py", "--case 6"),
    Start("benchmarks/decoding_speed.py", "--rounds 1", "shared babeltrace2"),
    Start("benchmarks/enough.py", "--repeats 1 --size 10 --way 50"),
    Start("benchmarks/false_alarms.py", "1"),
    Start("benchmarks/flight.py", "--seconds 1 --turns 1 --memory 16M", "kernel"),
    Start("benchmarks/functions.py", "1 1"),
    Start("benchmarks/hosts_speed.py", "--rounds 1 --events 10e3 --requests 1e3 --seconds 1"),
    Start("benchmarks/injected.py", "--repeats 1 --normals 4 --length 40"),
    Start("benchmarks/jobs.py", "--recordings 2 --events 5000 --rounds 1 --count 10000"),
    Start("benchmarks/large_trace.py", "{made}/trace --events 5000", "cc"),
    Start("benchmarks/locations.py", "--rounds 1 --only trips --trips 500", "kernel cc"),
    Start("benchmarks/look_speed.py", "--events 5000 --rounds 1", "cc"),
    Start("benchmarks/long_paths.py", "--case easy 3 500"),
    Start("benchmarks/missing_switches.py", "", "kernel"),
    Start("benchmarks/msa.py", "--longest 100", "shared"),
    Start("benchmarks/msa_speed.py", "--tiny"),
    Start("benchmarks/mutated.py", "--replicates 1 --no-peers --tiny"),
    Start(
        "benchmarks/overhead.py",
        "--rounds 1 --requests 20 --round-trips 500 --profiles minimal",
        "kernel cc",
    ),
    Start("benchmarks/planted.py", "--families 2"),
    Start("benchmarks/real_groups.py", "normal", "shared"),
    Start("benchmarks/recording_requests.py", "--pairs 2 --requests 500", "kernel redis-server"),
    Start("benchmarks/report_page.py", "--many 5 --columns 50", "chromium"),
    Start("benchmarks/requests_speed.py", "--seconds 1 --rounds 1 --millions 0.001"),
    Start("benchmarks/scale.py", "--rounds 1 --only startup", "cc babeltrace2"),
    Start("benchmarks/scale_work.py", "{once}/trace process", "cc"),
    Start("benchmarks/signatures.py", "--rounds 1 --only operations --ways perf", "kernel cc"),
    Start("benchmarks/types_found.py", "1 1"),
    Start("benchmarks/view_frames.py", "--intervals 2000 --threads 10 --frames 20", "chromium"),
    Start("case_studies/case_study_1.py", "--repetitions 1 --json {made}/1.json", "kernel cc"),
    Start(
        "case_studies/case_study_2.py",
        "--repeats 1 --limits quota-50 --executions 4 --json {made}/2.json",
        "kernel cc",
    ),
    Start(
        "case_studies/faults.py",
        "--kinds sleep --strengths 3 --repetitions 1 --json {made}/faults.json",
        "kernel cc",
    ),
    Start("case_studies/pinned.py", "{made} --runs 2 --rounds 1", "kernel cc", (0, 1)),
    Start("case_studies/short_slice.py", "true"),
    Start("case_studies/thinned.py", "--kinds sleep --cuts 1", "kernel cc"),
    Start(
        "compare_checkouts.py",
        "--before {critpath} --after {critpath} --only detect-simulated --cache {made}",
    ),
    Start("fleet/fleet.py", "--hosts 1 --requests 300 --workers 1"),
    Start("foreign/faults.py", "--kinds sleep --runs 2", "kernel cc trace-cmd perf"),
    Start("foreign/peers.py", "--analyses none", "kernel perf"),
    Start(
        "foreign/text_speed.py",
        "--seconds 0.2 --events 9000 --largest 0 --rounds 1",
        "kernel perf",
        (0, 1),
    ),
    Start("foreign/perf_speed.py", "--events 40000 --largest 0 --rounds 1", "perf", (0, 1)),
    Start("foreign/perfetto_speed.py", "--events 20000 --largest 0 --rounds 1"),
    Start("foreign/same.py", "--runs 5", "kernel trace-cmd perf", (0, 1)),
    Start(
        "foreign/trace_dat_speed.py", "--events 40000 --largest 0 --rounds 1", "trace-cmd", (0, 1)
    ),
    Start("hosts/bridge.py", "{made} --executions 4 --connections 2", "kernel nginx cc"),
    Start("hosts/clocks.py", "--worlds 1 --seeds 1"),
    Start(
        "hosts/healthy_hosts.py",
        "{made} --turns 4 --requests 8",
        "kernel nginx redis-server import:gunicorn import:uvicorn",
    ),
    Start("hosts/hosts.py", "{once}/hosts --judge-only --connections 8 cpu:6"),
    Start("hosts/pools.py", "{once}/hosts"),
    Start("installing/clean_rooms.py", ".venv/wheel python3", "", (0, 1)),
    Start("locations/files.py", "--repetitions 1 audit", "kernel", (0, 1)),
    Start("locations/flights.py", "--only C --budgets 5% --seconds 3", "kernel perf cc", (0, 1)),
    Start("locations/locations.py", "--only lock", "kernel perf cc", (0, 1)),
    Start(
        "mutants.py",
        "--only critpath/detect/tails.py:1 --lines {once}/lines.json",
        "import:cosmic_ray",
    ),
    Start(
        "parameters.py",
        "{made} --cases normal-2 --only machine.p* --results {made}/r.json --summary {made}/s.json",
    ),
    Start(
        "night/night.py",
        "--healthy 20 --slot 20 --usual 8s --history 8s --settle 5 --faults nplus1",
        "kernel nginx redis-server import:psycopg2 import:asyncpg import:gunicorn import:aiohttp",
    ),
    Start("night/simulate.py", "--kinds 3 --hours 0.1"),
    Start("recording/dumps.py", "--seconds 6 --every 2 --rates 0", "kernel"),
    Start("recording/flight.py", "--seconds 2 --faults slow", "kernel redis-server"),
    Start("recording/gaps.py", "--gaps 7"),
    Start("recording/hints.py", "nap", "kernel", (0, 1)),
    Start("recording/kills.py", "budget --times 1 --json {made}/kills.json", "kernel"),
    Start("recording/live.py", "--seconds 2 --long 2"),
    Start("recording/many.py", "--files 50 --classes 100", "kernel"),
    Start("recording/noticing.py", "--days 1 --kinds 1 --seeds 0 --streams calm"),
    Start("recording/overhead.py", "{made} --seconds 1 --targets 5 --loads steady", "kernel"),
    Start("recording/record_faults.py", "1", "kernel cc"),
    Start("recording/recording_faults.py", "--only command", "kernel cc"),
    Start("recording/soak.py", "--seconds 1 --rate 50", "kernel"),
    Start("recording/writer_faults.py", "1 ^metrics", "cc"),
    Start(
        "results.py",
        "--to {made}/r.json --busy 1 " + str(HERE / "benchmarks/false_alarms.py") + " 1",
    ),
    Start("servers/bound.py", "{made}"),
    Start(
        "servers/brokers.py",
        "{made} list --connections 1 --messages 12",
        "kernel redis-server import:redis",
    ),
    Start("servers/calibrated.py", "--simulated 30"),
    Start("servers/calls.py", "{made}"),
    Start("servers/faults.py", "{made} --requests 60 asyncio-cpu", "kernel redis-server"),
    Start("servers/labels.py", "{made} cost --pairs 2", "kernel redis-server"),
    Start("servers/tls.py", "{made} threads --requests 20", "kernel"),
    Start(
        "servers/proxies.py",
        "{made} --requests 40 --connections 1,4 --loads idle haproxy",
        "kernel haproxy redis-server import:cheroot",
    ),
    Start("servers/streams.py", "{made} --requests 20", "kernel import:grpclib"),
    Start("servers/run.py", "{made} --judge-only asyncio"),
    Start("servers/tasks.py", "--steps 1000", "kernel"),
    Start("servers/tiers.py", "{made} --healthy 1", "kernel nginx redis-server"),
    Start("services/corpus.py", "{made} --park {made}", "park"),
    Start("services/judge.py", "{made} --json {made}/judged.json"),
    Start("services/perturb.py", "{made} --permutations 10", "corpus"),
    Start("services/run.py", "{made} --judge-only"),
    Start("weather/fit.py", "rows {made} {made}/rows.json"),
    Start("weather/healthy.py", "draw {made}"),
    Start("weather/judge.py", "{critpath} --corpus {made}"),
    Start("weather/league.py", "{made}"),
    Start("weather/record.py", "{made} --phase busy none"),
    Start("weather/smallest.py", "{made} none"),
    Start("signatures/fmeter.py", "{made}", "corpus"),
    Start("signatures/fmeter_functions.py", "{made}", "guest"),
    Start(
        "signatures/fmeter_sessions.py",
        "{made} --sessions 1 --seconds 1 --only find --events minimal",
        "kernel",
    ),
    Start("signatures/pack_known.py", "{once}/sessions {made}/known"),
    Start("simulation/affected.py", "--repeats 1 --sizes 6 12"),
    Start("simulation/attribution.py", "1 --tiny"),
    Start("simulation/budget.py", "fair --seconds 1"),
    Start("simulation/known_level.py", "2"),
    Start("simulation/simulated.py", "--table rules --repeats 2 --settings lognormal"),
    Start("simulation/whole_executions.py", "3"),
    Start("smco/smco.py", "{made} run --rounds 1 --only untouched", "plugin"),
)

# Programs and servers that experiments start, each with packages of its own.
STARTED_BY_OTHERS: Final = {
    "locations/programs/orders.py": "locations/locations.py",
    "locations/programs/shop.py": "locations/locations.py",
    "night/apps.py": "night/stack.py",
    "night/load.py": "night/night.py",
    "night/stack.py": "night/night.py",
    "servers/apps.py": "servers/run.py",
    "servers/faulty.py": "servers/faults.py",
    "services/apps.py": "services/park.py",
    "services/client.py": "services/corpus.py",
    "services/park.py": "services/run.py",
    "weather/programs/dials.py": "weather/smallest.py",
    "weather/programs/kinds.py": "weather/record.py",
}


# What no machine has by itself, or nothing shipped is made of.
MISSING: Final = {
    "corpus": "recordings of an hour, none of which are shipped",
    "guest": "a result of the guest (make test-guest)",
    "park": "servers of services/park.py, which run",
}


class Run(NamedTuple):
    """A command to run, and the exit codes with which it has ended."""

    name: str
    command: list[str]
    codes: tuple[int, ...] = (0,)


def find_scripts() -> tuple[set[str], set[str]]:
    """Return the paths of all experiments, and of the modules without a command line."""
    scripts, modules = set(), set()
    for file in HERE.rglob("*.py"):
        name = file.relative_to(HERE).as_posix()
        if 'if __name__ == "__main__":' in file.read_text(encoding="utf-8"):
            scripts.add(name)
        elif "programs" not in file.parts:
            modules.add(name)
    return scripts - {Path(__file__).name}, modules


def find_missing(need: str) -> str:
    """Return what an experiment needs and is not here, or nothing."""
    if need == "kernel":
        traced = Path("/sys/kernel/tracing/instances").is_dir()
        return "" if os.geteuid() == 0 and traced else "root and tracefs"
    if need == "shared":
        return "" if (ROOT.parent / "shared").is_dir() else "../shared"
    if need == "plugin":
        done = subprocess.run(
            ["sh", "-c", "ls $(gcc -print-file-name=plugin)/include/gcc-plugin.h"],
            capture_output=True,
            check=False,
        )
        return "headers of gcc's plugins" if done.returncode else ""
    if need.startswith("import:"):
        module = need.removeprefix("import:")
        return "" if importlib.util.find_spec(module) else module
    return MISSING.get(need, "" if shutil.which(need) else need)


def prepare(place: Path) -> None:
    """Make the inputs that experiments read: recordings, and a simulated trace."""
    (place / "hosts").mkdir()
    with tarfile.open(ROOT / "fixtures" / "hosts" / "cpu-6-8.tar.xz") as tar:
        tar.extractall(place / "hosts", **DATA_ONLY)  # noqa: S202 - an archive of our own
    for label, name in (("pg-async", "today"), ("forks", "unknown")):
        shutil.copytree(ROOT / "fixtures" / "known" / name, place / "sessions" / "1" / label)
    (place / "lines.json").write_text("{}")  # no test reaches a mutant
    if shutil.which("cc"):
        script = HERE / "benchmarks" / "large_trace.py"
        words = [sys.executable, str(script), str(place / "trace"), "--events", "5000"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def list_imports(modules: Iterable[str]) -> Iterator[Run]:
    """Return a command for each folder that has modules: they are all imported."""
    folders: dict[str, list[str]] = {}
    for name in sorted(modules):
        folder, _, file = name.rpartition("/")
        folders.setdefault(folder, []).append(file.removesuffix(".py"))
    for folder, names in folders.items():
        code = f"import sys; sys.path[0] = sys.argv[1]\nimport {', '.join(names)}"
        command = [sys.executable, "-c", code, str(HERE / folder)]
        yield Run(f"{folder}/ imports {', '.join(names)}", command)


def list_runs(starts: Iterable[Start], place: Path) -> Iterator[Run]:
    """Return what is run of experiments."""
    critpath = Path(sys.executable).with_name("critpath")
    for number, start in enumerate(starts):
        made = place / str(number)
        made.mkdir()
        words = start.words.format(made=made, once=place, critpath=critpath).split()
        yield Run(start.script, [sys.executable, str(HERE / start.script), *words], start.codes)


def run_one(run: Run) -> str:
    """Run a command as ``make`` does; return what was wrong."""
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": tools, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        run.command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            # An experiment takes away what it has made; what it started may be in its way.
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, number)
                    process.communicate(timeout=10)
            return f"NOT DONE after {LONGEST:.0f} s"
    if process.returncode in run.codes:
        return ""
    return f"FAILED with {process.returncode}:\n" + "\n".join(said.splitlines()[-8:])


def run_all(tracing: Iterable[Run], others: Iterable[Run]) -> tuple[int, int]:
    """Run two at once, of which one traces this kernel; return how many ended, and failed.

    What failed is printed once more at the end, where a long log is read.
    """
    ended: list[str] = []
    failed: list[str] = []

    def work(*queues: deque[Run]) -> None:
        for queue in queues:
            while True:
                try:
                    run = queue.popleft()
                except IndexError:
                    break
                begin = time.monotonic()
                wrong = run_one(run)
                took = time.monotonic() - begin
                line = f"{took:5.1f} s  {run.name}: {wrong or 'starts and ends'}"
                ended.append(line)
                failed.extend([line] * bool(wrong))
                print(line, flush=True)

    first, second = deque(tracing), deque(others)
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(work, first, second), threads.submit(work, second)]:
            done.result()
    print(*failed, sep="\n", end="\n" * bool(failed))
    return len(ended) - len(failed), len(failed)


def main() -> int:
    """Check what is asked for, and count."""
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    # What runs in the background ignores interrupts, and so would what it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    scripts, modules = find_scripts()
    listed = {start.script for start in STARTS} | {*STARTED_BY_OTHERS}
    for name in sorted(scripts ^ listed):
        print(f"{name}: {'is not listed in' if name in scripts else 'is only in'} check_starts.py")
    missing: Counter[str] = Counter()
    chosen: list[Start] = []
    for start in [start for start in STARTS if part in start.script]:
        lacks = [what for what in map(find_missing, start.needs.split()) if what]
        if lacks:
            print(f"         {start.script}: left out, needs {', '.join(lacks)}")
            missing[lacks[0]] += 1
        else:
            chosen.append(start)
    for name, by in STARTED_BY_OTHERS.items():
        if part in name:
            print(f"         {name}: left out, a program that {by} starts")
            missing["another that starts it"] += 1
    with tempfile.TemporaryDirectory(prefix="critpath-starts-", dir="/var/tmp") as made:
        place = Path(made)
        prepare(place)
        runs = [*zip(chosen, list_runs(chosen, place), strict=True)]
        tracing = [run for start, run in runs if "kernel" in start.needs]
        others = [run for start, run in runs if "kernel" not in start.needs]
        others += list_imports(name for name in modules if part in name)
        ended, failed = run_all(tracing, others)
    said = ", ".join(f"{what}: {count}" for what, count in missing.most_common())
    print(f"{ended} started and ended, {failed} failed, {missing.total()} left out ({said})")
    return int(failed > 0 or scripts != listed)


if __name__ == "__main__":
    sys.exit(main())
