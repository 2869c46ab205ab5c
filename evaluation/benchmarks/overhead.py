"""What recording costs: the paper's overhead table, and the cost of one event.

    python evaluation/benchmarks/overhead.py [--recorder ftrace|lttng] [--rounds N] ...

Two workloads (``overhead.c``): requests of four types, as in the paper's evaluation, and
two processes that do nothing but wake each other, which is the worst case and tells what
one event costs.  Modes, interleaved, in another order every round: no tracing, the
profile `minimal`, everything (`full`), and ``perf record`` of the events of `minimal`,
where perf is there.  Figures are medians over the rounds; an overhead is the median of
the ratios to the same round's run without tracing, with the range of its middle half.

Needs root, and a C compiler or the program built before (``--workload``).  For LTTng in
the tests' guest: tests/guest/overhead.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from critpath_marks.sessions import new_session_name
from critpath_record.recorder import RECORDERS, RecorderSettings

HERE = Path(__file__).resolve().parent
PROFILES = {"minimal": "minimal", "full": "everything"}
PAPER = 4.79  # percent: Janecek, Ezzati-Jivan and Hamou-Lhadj (2022), their minimal events
PERF_EVENTS = (
    *("sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new"),
    *("sched:sched_process_fork", "sched:sched_process_exec", "sched:sched_process_exit"),
    *("irq:irq_handler_entry", "irq:irq_handler_exit", "irq:softirq_entry", "irq:softirq_exit"),
    *("timer:hrtimer_expire_entry", "timer:hrtimer_expire_exit"),
)

# A mode yields a function that tells, after the workload, how many events were recorded.
Mode = Callable[[], contextlib.AbstractContextManager[list[int]]]


def by_recorder(name: str, profile: str) -> Mode:
    """Record with one of ours."""

    @contextlib.contextmanager
    def mode() -> Iterator[list[int]]:
        events: list[int] = []
        with tempfile.TemporaryDirectory(prefix="critpath-overhead-") as place:
            settings = RecorderSettings(new_session_name(), Path(place), profile)
            recorder = importlib.import_module(RECORDERS[name]).open_recorder(settings)
            try:
                recorder.open()
                yield events
                recorder.close()
                recorded = recorder.drain(lambda _: None)
            except BaseException:
                recorder.abort()
                raise
            lost = sum(loss.events for loss in recorded.loss)
            events.append(count_events(Path(place)) + lost)

    return mode


def count_events(recording: Path) -> int:
    """Count a trace's events."""
    from critpath.read.event_names import KERNEL_EVENTS  # noqa: PLC0415 - numpy starts threads
    from critpath.read.traces import read_events  # noqa: PLC0415

    return read_events(recording / "trace", KERNEL_EVENTS[:1]).total


@contextlib.contextmanager
def by_perf() -> Iterator[list[int]]:
    """Record the same events with ``perf record``, the whole machine, on the same clock."""
    events: list[int] = []
    with tempfile.TemporaryDirectory(prefix="critpath-overhead-") as place:
        data = f"{place}/perf.data"
        chosen = [e for e in PERF_EVENTS if tracepoint(e).is_dir()]
        command = ["perf", "record", "-q", "-a", "-k", "mono", "-m", "8M", "-o", data]
        command += [part for event in chosen for part in ("-e", event)]
        ready, written = os.pipe()
        perf = subprocess.Popen(
            [*command, "--", "sh", "-c", f"echo >&{written}; exec sleep 3600"],
            pass_fds=[written],
            stderr=subprocess.DEVNULL,
        )
        os.close(written)
        os.read(ready, 1)  # the command runs: perf records
        os.close(ready)
        yield events
        perf.terminate()
        perf.wait()
        report = subprocess.run(
            ["perf", "report", "--stats", "-i", data], capture_output=True, text=True, check=True
        )
        # First of all events together, then of each kind.
        counts = re.findall(r"SAMPLE events:\s+(\d+)", report.stdout)
        events.append(int(counts[0]) if counts else 0)


def tracepoint(event: str) -> Path:
    """Return a tracepoint's directory."""
    return Path("/sys/kernel/tracing/events") / event.replace(":", "/")


@contextlib.contextmanager
def untraced() -> Iterator[list[int]]:
    """Record nothing."""
    yield [0]


def run(mode: Mode, command: list[str]) -> tuple[float, float, int]:
    """Return elapsed and CPU milliseconds of a workload, and the events recorded."""
    with mode() as events:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return int(done.stdout.split()[0]) / 1e6, cpu * 1e3, events[0]


def measure(
    modes: dict[str, Mode], command: list[str], rounds: int
) -> dict[str, list[tuple[float, float, int]]]:
    """Run every mode in every round, each round in another order."""
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in modes}
    names = list(modes)
    for number in range(-1, rounds):  # the first warms up
        for name in names[number % len(names) :] + names[: number % len(names)]:
            one = run(modes[name], command)
            if number >= 0:
                found[name].append(one)
        print(f"\r{number + 1} of {rounds} rounds", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def overhead(values: list[float], base: list[float]) -> str:
    """Return the median of paired ratios, and the range of its middle half, in percent."""
    ratios = [100 * (v / b - 1) for v, b in zip(values, base, strict=True)]
    if len(ratios) == 1:
        return f"{ratios[0]:+.2f} %"
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:+.2f} % ({low:+.1f} to {high:+.1f})"


def requests_table(found: dict[str, list[tuple[float, float, int]]], count: int) -> None:
    """Print the paper's table."""
    print(f"| {count:,} requests | wall ms | overhead | cpu ms | overhead | events |")
    print("|---|---:|---:|---:|---:|---:|")
    base = found["no tracing"]
    for name, runs in found.items():
        cells = [name]
        for column in (0, 1):
            values = [one[column] for one in runs]
            cells.append(f"{statistics.median(values):.1f}")
            cells.append(overhead(values, [one[column] for one in base]) if runs != base else "")
        print("| " + " | ".join([*cells, f"{statistics.median(o[2] for o in runs):,.0f}"]) + " |")


def event_table(found: dict[str, list[tuple[float, float, int]]], trips: int) -> None:
    """Print what an event costs, from the ping-pong's CPU time."""
    print(f"| {trips:,} round trips | cpu ms | overhead | events | ns an event |")
    print("|---|---:|---:|---:|---:|")
    base = found["no tracing"]
    for name, runs in found.items():
        values = [one[1] for one in runs]
        count = statistics.median(one[2] for one in runs)
        costs = [(o[1] - b[1]) * 1e6 / o[2] for o, b in zip(runs, base, strict=True) if o[2]]
        cost = f"{statistics.median(costs):.0f}" if costs else ""
        more = overhead(values, [one[1] for one in base]) if runs != base else ""
        print(f"| {name} | {statistics.median(values):.1f} | {more} | {count:,.0f} | {cost} |")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what recording costs")
    parser.add_argument("--recorder", choices=RECORDERS, default="ftrace")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--round-trips", type=int, default=100_000)
    parser.add_argument("--profiles", default=",".join(PROFILES))
    parser.add_argument("--workload", help="the program, built before")
    chosen = parser.parse_args()
    if os.geteuid():
        print("overhead: left out, recording needs root")
        return 0
    module = importlib.import_module(RECORDERS[chosen.recorder])
    wrong = [o for o in module.find_needs(None) if o.fatal]
    if wrong:
        print(f"overhead: left out, {chosen.recorder} cannot record here: {wrong[0].what}")
        return 0
    with tempfile.TemporaryDirectory(prefix="critpath-overhead-") as place:
        program = chosen.workload or f"{place}/workload"
        if not chosen.workload:
            source = str(HERE / "overhead.c")
            subprocess.run(["cc", "-O1", "-o", program, source, "-lpthread"], check=True)
        modes: dict[str, Mode] = {
            "no tracing": untraced,
        }
        for profile in chosen.profiles.split(","):
            name = f"{chosen.recorder}, {PROFILES[profile]}"
            modes[name] = by_recorder(chosen.recorder, profile)
        if shutil.which("perf"):
            modes["perf record, as minimal"] = by_perf
        print(f"kernel {os.uname().release}, {os.cpu_count()} cpus, {chosen.rounds} rounds\n")
        served = [program, "requests", str(chosen.requests), place]
        requests_table(measure(modes, served, chosen.rounds), chosen.requests)
        print(f"\nThe paper reports {PAPER} % for its minimal events.\n")
        last = str(max(os.sched_getaffinity(0)))
        trips = [program, "pingpong", str(chosen.round_trips), last]
        event_table(measure(modes, trips, chosen.rounds), chosen.round_trips)
    return 0


if __name__ == "__main__":
    sys.exit(main())
