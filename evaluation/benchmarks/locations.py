"""What stacks and files cost while they are recorded, and how soon `critpath path --top` answers.

    python evaluation/benchmarks/locations.py [--rounds N] [--requests N] [--before CHECKOUT]

Two processes that only wake each other (``overhead.c``) run alone, recorded, recorded with
stacks, and with files, in alternation: the worst case, as every switch has a stack, and every sleep
a system call of a pipe.  Then Redis answers as many requests (``redis-benchmark``), recorded
without and with files.  Then requests of four types are recorded with stacks and asked where their
time went (``--requests 180000``: about a minute of them on a quiet machine; 0: not).
``--only`` runs some of the parts: also two sets of a million stacks compared, stacks unwound
beside perf's own recording of them, and twenty threads of a Python sampled, beside py-spy.

``--before`` measures only recordings with neither, by this checkout and by another one (its
``.venv/bin/critpath``), in an order that turns round by round.  Ratios are those within a round,
of the cpu time of what is recorded: their median, with an interval of 95 % for it.
Needs root, and leaves out what needs perf or redis-server where that is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from math import comb
from pathlib import Path

import numpy as np
from large_trace import EXECUTION, generate
from measuring import Taken, ratios, run

from critpath import flow
from critpath.model import State
from critpath_record.stacks.samples import SamplesSource
from critpath_record.stacks.sources import FRAMES, SAMPLES, StackRequest
from critpath_record.stacks.unwind import FORMAT, RUN, SLEEP, WAKE

HERE = Path(__file__).resolve().parent
SOONEST = 3.0  # s, of --top on a recording of a minute
SERVING = """redis-server --port 21016 --save '' --dir /tmp > /dev/null & server=$!
until redis-cli -p 21016 ping > /dev/null 2>&1; do sleep 0.05; done
begin=$(date +%s%N)
redis-benchmark -p 21016 -c 4 -n {} -t get -q > /dev/null
end=$(date +%s%N)
read used rest < /proc/$server/schedstat
kill $server; wait $server; echo $((end - begin)) $used"""
MANY, DISTINCT = 1_000_000, 20_000  # stacks of a set
LONGER = 1.3  # times, of a comparison with that many
UNWOUND, SOON = 100_000, 30.0  # stacks, and seconds in which they are unwound
THREADS, SAMPLED, SHARE = 20, 10, 0.02  # of a Python, how many seconds, and of a cpu at most
WAKERS = f"""import threading, time
def work():
    while True:
        time.sleep(0.05)
for _ in range({THREADS - 1}):
    threading.Thread(target=work, daemon=True).start()
work()"""
SLEEPERS = f"""import threading, time
for _ in range({THREADS - 1}):
    threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
time.sleep(100)"""
PARTS = "trips,redis,compare,unwind,sampler,top"
ROW_TYPE = np.dtype(
    [("time", "<i8"), ("tid", "<i4"), ("woken", "<i4"), ("stack", "<i4"), ("kind", "u1")]
)


def record(program: str, place: Path, options: list[str], command: list[str]) -> float:
    """Record a command; return the milliseconds of cpu time that it measured of itself."""
    shutil.rmtree(place, ignore_errors=True)
    line = [program, "record", "--recorder", "ftrace", "-o", str(place), *options]
    line += command if "--" in options else ["--", *command]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return own_time(done)


def own_time(done: subprocess.CompletedProcess[str]) -> float:
    """Return the milliseconds of cpu time that a command printed, after those that passed."""
    return int(done.stdout.split()[1]) / 1e6


def perf_alone(place: str) -> list[str]:
    """Return what has a command's stacks taken by perf as critpath has it do, and nothing more."""
    return [
        *("--", "perf", "record", "-q", "-N", "-k", "CLOCK_MONOTONIC", "-m", "4M"),
        *("--user-callchains", "--call-graph", "dwarf,2048", "-o", f"{place}/perf.data"),
        *("-e", "sched:sched_switch", "--filter", "prev_state != 0 && prev_state != 256"),
        *("-e", "sched:sched_waking", "-e", "cpu-clock/freq=199/u"),
    ]


def size(place: Path) -> int:
    """Return the bytes of a recording."""
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def costs(
    what: str, ways: dict[str, tuple[str, list[str]]], command: list[str], rounds: int
) -> None:
    """Print what each way of recording costs, as ratios within a round."""
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in ("alone", *ways)}
    with tempfile.TemporaryDirectory(prefix="critpath-locations-") as scratch:
        place = Path(scratch, "recording")
        for number in range(rounds):
            alone = subprocess.run(command, capture_output=True, text=True, check=True)
            found["alone"].append((own_time(alone), 0))
            turned = list(ways.items())[:: -1 if number % 2 else 1]
            for name, (program, options) in turned:
                taken = record(program, place, options, command)
                found[name].append((taken, size(place)))
    print(
        f"| {what} | cpu ms | to recorded | 95 % | MB | to recorded | 95 % |",
        "|---|---:|---:|---:|---:|---:|---:|",
        sep="\n",
    )
    for name, values in found.items():
        pairs = list(zip(values, found["recorded"], strict=True))
        shown = [
            f"{statistics.median(column):.3f} | {interval(column)}"
            for column in zip(*((t / u, m / n) for (t, m), (u, n) in pairs), strict=True)
        ]
        taken, length = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"| {name} | {taken:.0f} | {shown[0]} | {length / 1e6:.1f} | {shown[1]} |")


def interval(ratios: Sequence[float]) -> str:
    """Return between which of the ratios their true median lies, in 95 of 100 cases."""
    ordered, count = sorted(ratios), len(ratios)
    left = 0  # as many at either end are left out
    while 2 * sum(comb(count, k) for k in range(left + 2)) <= 0.05 * 2**count:
        left += 1
    if 0.05 * 2**count < 2:
        return "too few rounds"
    return f"{ordered[left]:.3f} to {ordered[-1 - left]:.3f}"


def answer(program: str, command: list[str], rounds: int) -> None:
    """Print how long `--top` takes of a long recording with stacks."""
    with tempfile.TemporaryDirectory(prefix="critpath-locations-") as scratch:
        place = Path(scratch, "recording")
        taken = record(program, place, ["--stacks", "native"], command)
        length = size(place) / 1e6
        print(f"\nrequests of {taken / 1e3:.0f} s of cpu time, {length:.0f} MB, with stacks:")
        for options in (["--top", "20"], []):
            walls, cpus = [], []
            for _ in range(rounds):
                before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
                subprocess.run(
                    [program, "path", str(place), *options], capture_output=True, check=True
                )
                walls.append(time.perf_counter() - begin)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                cpus.append(used)
            wall, cpu = statistics.median(walls), statistics.median(cpus)
            against = f" (wanted: {SOONEST:.0f} s)" if options else ""
            print(f"  path {' '.join(options)}: {wall:.2f} s{against}, {cpu:.2f} s of cpu")


def compare_many(program: str, rounds: int) -> None:
    """Print how much longer `compare` takes where each set has a million stacks, of 20,000."""
    with tempfile.TemporaryDirectory(prefix="critpath-locations-") as scratch:
        sets = [Path(scratch, name) for name in ("normal", "sample")]
        for seed, place in enumerate(sets):
            generate(place, events=1_000_000, cpus=8, seed=seed)
            put_stacks(place, seed)
        command = [program, "compare", *map(str, sets), "--execution", EXECUTION]
        taken: dict[bool, list[Taken]] = {True: [], False: []}
        for _ in range(rounds):
            for stacks in (True, False):
                taken[stacks].append(run(command, codes=(0, 1)))
                for place in sets:  # out of sight, and back
                    (place / "stacks").rename(place / "hidden") if stacks else (
                        (place / "hidden").rename(place / "stacks")
                    )
        length = size(sets[0] / "stacks")
    wall, cpu = (ratios(taken[True], taken[False], of) for of in ("wall", "cpu"))
    used = statistics.median(one.cpu for one in taken[False])
    print(f"\ncompare, two sets of {MANY:,} stacks ({DISTINCT:,} distinct, {length / 1e6:.0f} MB):")
    print(
        f"  {statistics.median(cpu):.2f} times the cpu ({used:.1f} s without), "
        f"{statistics.median(wall):.2f} times the time (wanted: {LONGER})"
    )


def unwind(program: str, command: list[str]) -> None:
    """Print how long stacks are unwound after a recording: what it takes longer with them."""
    with tempfile.TemporaryDirectory(prefix="critpath-locations-") as scratch:
        place = Path(scratch, "recording")
        taken = []
        for options in ([], ["--stacks", "native"]):
            words = [program, "record", "--recorder", "ftrace", "--force", *options]
            taken.append(run([*words, "-o", str(place), "--", *command]))
        count = (place / "stacks" / SAMPLES).stat().st_size // ROW_TYPE.itemsize
    wall, cpu = taken[1].wall - taken[0].wall, taken[1].cpu - taken[0].cpu
    print(f"\n{count:,} stacks are taken and unwound in {wall:.1f} s, {cpu:.1f} s of cpu")
    print(f"  {wall / count * UNWOUND:.1f} s for {UNWOUND:,} (wanted: {SOON:.0f} s)")


def sample(rounds: int) -> None:
    """Print how much of a cpu sampling takes of a Python with many threads, and py-spy beside."""
    peer = shutil.which("py-spy") or str(Path(sys.executable).with_name("py-spy"))
    for what, program in (("asleep", SLEEPERS), ("each awake 20 times a second", WAKERS)):
        shares: dict[str, list[float]] = {"critpath": [], "py-spy": []}
        for _ in range(min(rounds, 3)):
            with tempfile.TemporaryDirectory(prefix="critpath-locations-") as place:
                source = SamplesSource(StackRequest(Path(place)))
                source.open()
                with subprocess.Popen([sys.executable, "-c", program]) as sampled:
                    time.sleep(1)
                    before, count = time.process_time(), source.sampler.samples
                    time.sleep(SAMPLED)
                    used = time.process_time() - before
                    # Of as many as there should be: a busy machine leaves some out.
                    taken = (source.sampler.samples - count) / THREADS
                    shares["critpath"].append(used / taken * 200)
                    source.close()
                    facts = source.drain(lambda _: None).facts
                    left_out = f"{facts['late']} late, {facts['torn']} torn"
                    print(f"  {facts['samples']:,} samples, {left_out}")
                    if Path(peer).exists():
                        shares["py-spy"].append(run([peer, *peer_words(sampled.pid)]).cpu / SAMPLED)
                    sampled.kill()
        shown = [f"{name} {statistics.median(of):.1%}" for name, of in shares.items() if of]
        print(f"\n{THREADS} threads, {what}: {', '.join(shown)} of a cpu (wanted: {SHARE:.0%})")


def peer_words(pid: int) -> list[str]:
    """Return the arguments with which py-spy samples the same."""
    return [
        *("record", "--pid", str(pid), "--subprocesses", "--threads", "--idle", "--nonblocking"),
        *("--full-filenames", "--rate", "200", "--format", "chrometrace", "--output", os.devnull),
        *("--duration", str(SAMPLED)),
    ]


def put_stacks(place: Path, seed: int) -> None:
    """Put stacks on the paths of a trace, and as many more of other threads."""
    rng = np.random.default_rng(seed)
    path = flow.extract([place], specification=EXECUTION).paths
    waits = np.char.startswith([State(n).name for n in path.state], "WAIT_")
    rows = np.zeros(MANY, ROW_TYPE)
    rows["tid"], rows["kind"] = 2**30, RUN
    rows["time"] = rng.integers(path.begin.min(), path.end.max(), MANY)
    for kind, who, times, chosen in (
        (SLEEP, "tid", path.begin, waits),
        (WAKE, "woken", path.end, waits),
        (RUN, "tid", (path.begin + path.end) // 2, ~waits),
    ):
        free = np.flatnonzero(rows["tid"] == 2**30)[: int(chosen.sum())]
        rows["kind"][free], rows["tid"][free] = kind, 0
        rows[who][free] = path.tid[chosen][: len(free)]
        rows["time"][free] = times[chosen][: len(free)] + 1000
    rows["stack"] = rng.integers(0, DISTINCT, MANY)
    rows.sort(order="time")  # as perf writes them
    frames = [
        [f"function_{n}", f"/srv/app/module_{n % 200}.c", n % 900 + 1, "/srv/app/served", False]
        for n in range(5000)
    ]
    stacks = [[*rng.integers(0, 5000, 24).tolist()] for _ in range(DISTINCT)]
    document = {"format": FORMAT, "frames": frames, "stacks": stacks, "cut": [], "lost": 0}
    (place / "stacks").mkdir()
    (place / "stacks" / FRAMES).write_text(json.dumps(document, separators=(",", ":")))
    rows.tofile(place / "stacks" / SAMPLES)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what stacks cost")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--trips", type=int, default=30_000, help="and requests of Redis")
    parser.add_argument("--requests", type=int, default=60_000)
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--only", default=PARTS, help=f"some of {PARTS}")
    chosen = parser.parse_args()
    if os.geteuid() or not shutil.which("cc"):
        print("locations: left out, it needs root and a C compiler")
        return 0
    ours = str(Path(sys.executable).with_name("critpath"))
    with tempfile.TemporaryDirectory(prefix="critpath-locations-") as place:
        program, source = f"{place}/workload", str(HERE / "overhead.c")
        subprocess.run(["cc", "-g", "-O1", "-o", program, source, "-lpthread"], check=True)
        last = str(max(os.sched_getaffinity(0)))
        ways: dict[str, tuple[str, list[str]]] = {"recorded": (ours, [])}
        print(f"{chosen.rounds} rounds, load {os.getloadavg()[0]:.1f}")
        command = [program, "pingpong", str(chosen.trips), last]
        if chosen.before:
            ways["recorded before"] = (str(chosen.before.resolve() / ".venv/bin/critpath"), [])
            costs(f"{chosen.trips:,} round trips", ways, command, chosen.rounds)
            return 0
        files = {"with files": (ours, ["--files"])}
        perf = shutil.which("perf")
        stacks = {
            "with stacks": (ours, ["--stacks", "native"]),
            "with perf": (ours, perf_alone(place)),
        }
        ways |= stacks if perf else {}
        if "trips" in chosen.only:
            costs(f"{chosen.trips:,} round trips", {**ways, **files}, command, chosen.rounds)
        if "redis" in chosen.only and shutil.which("redis-server"):
            serving = ["sh", "-c", SERVING.format(chosen.trips)]
            ways = {"recorded": ways["recorded"], **files}
            costs(f"{chosen.trips:,} requests of Redis", ways, serving, chosen.rounds)
        if "compare" in chosen.only:
            compare_many(ours, min(chosen.rounds, 4))
        if "unwind" in chosen.only and perf:
            unwind(ours, [program, "pingpong", str(UNWOUND // 4), last])
        if "sampler" in chosen.only:
            sample(chosen.rounds)
        if "top" in chosen.only and perf and chosen.requests:
            answer(ours, [program, "requests", str(chosen.requests), place], chosen.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
