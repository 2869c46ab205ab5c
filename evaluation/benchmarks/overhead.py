"""What recording costs: the paper's overhead table, the cost of one event, and the recorder's own.

    python evaluation/benchmarks/overhead.py [--recorder ftrace|lttng] [--rounds N] ...

Two workloads (``overhead.c``): requests of four types, as in the paper's evaluation, and
two processes that do nothing but wake each other, which is the worst case and tells what
one event costs.  Modes, interleaved, in another order every round: no tracing, the
profile `minimal`, everything (`full`), ``perf record`` and ``trace-cmd record`` of the events
of `minimal`, where they are there, and as the limit a bpf program at each of these that does
nothing.  Figures are medians over the rounds; an overhead is the median of
the ratios to the same round's run without tracing, with the range of its middle half.

Then what each tool itself takes to record a command that only tells the time: cpu time, how long
the command waits to begin, and how long it takes until the recording is there; and beside two
busy loops on every cpu (``--starved``), with a recording of the whole machine for ten seconds.

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
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from measuring import LeftOut, Row, add_rows, take_rows

from critpath_marks.sessions import new_session_name
from critpath_record import bpf
from critpath_record.recorder import RECORDERS, RecorderSettings

sys.path.append(str(Path(__file__).resolve().parents[1]))
from results import busy_loops

HERE = Path(__file__).resolve().parent
TRACEPOINTS = Path("/sys/kernel/tracing/events")
CRITPATH = (sys.executable, "-P", "-m", "critpath")
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


def chosen_events() -> list[str]:
    """Return the events that other tools are told, each with its option."""
    there = [e for e in PERF_EVENTS if (TRACEPOINTS / e.replace(":", "/")).is_dir()]
    return [part for event in there for part in ("-e", event)]


def perf_record(place: str) -> list[str]:
    """Record the same events with ``perf record``, the whole machine, on the same clock."""
    return ["perf", "record", "-q", "-a", "-k", "mono", "-m", "8M", "-o", f"{place}/perf.data"]


def trace_cmd_record(place: str) -> list[str]:
    """Do so with ``trace-cmd``, which records no event where the function tracer is dead."""
    sys.path.insert(0, str(HERE.parent / "foreign"))
    from at_once import ENABLED  # noqa: PLC0415 - not in the guest, which has no trace-cmd

    Path(place, "enabled").write_text("1", encoding="ascii")
    words = [*ENABLED, f"{place}/enabled", "trace-cmd", "record", "-q", "-C", "mono", "-b", "16384"]
    return [*words, "-o", f"{place}/trace.dat"]


def count_perf(place: str) -> int:
    """Count what perf has recorded."""
    report = subprocess.run(
        ["perf", "report", "--stats", "-i", f"{place}/perf.data"],
        capture_output=True,
        text=True,
        check=True,
    )
    # First of all events together, then of each kind.
    counts = re.findall(r"SAMPLE events:\s+(\d+)", report.stdout)
    return int(counts[0]) if counts else 0


def count_trace_cmd(place: str) -> int:
    """Count what trace-cmd has recorded."""
    words = ["trace-cmd", "report", "-i", f"{place}/trace.dat"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as report:
        assert report.stdout is not None
        return sum(block.count(b"\n") for block in iter(lambda: report.stdout.read(1 << 20), b""))


def by_tool(record: Callable[[str], list[str]], count: Callable[[str], int]) -> Mode:
    """Record with another tool, for as long as a command of it waits."""

    @contextlib.contextmanager
    def mode() -> Iterator[list[int]]:
        events: list[int] = []
        with tempfile.TemporaryDirectory(prefix="critpath-overhead-") as place:
            ready, told = os.pipe()
            waits, ends = os.pipe()
            tool = subprocess.Popen(
                [*record(place), *chosen_events(), "sh", "-c", f"echo >&{told}; read x <&{waits}"],
                pass_fds=[told, waits],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            os.close(told)
            os.close(waits)
            os.read(ready, 1)  # the command runs: the tool records
            os.close(ready)
            try:
                yield events
            finally:
                os.close(ends)
                tool.wait()
            events.append(count(place))

    return mode


@contextlib.contextmanager
def by_bpf() -> Iterator[list[int]]:
    """Let a program that does nothing run at each event: no tracer can cost less."""
    nothing = bpf.Assembler()
    nothing.set(0, 0)
    nothing.put(bpf.END)
    with contextlib.ExitStack() as stack:
        program = bpf.load(nothing.bytes(), b"nothing")
        stack.callback(os.close, program)
        for event in chosen_events()[1::2]:
            at = bpf.attach(event.partition(":")[2].encode(), program)
            stack.callback(os.close, at)
        yield [0]


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
    print(f"| {trips:,} round trips | cpu ms | overhead | events | ns an event | of the first |")
    print("|---|---:|---:|---:|---:|---:|")
    base = found["no tracing"]
    # What counts nothing has met as many as the first recorder of the same events.
    ours = next(runs for runs in found.values() if runs != base)
    for name, runs in found.items():
        values = [one[1] for one in runs]
        cpu = f"{statistics.median(values):.1f}"
        rows = zip(runs, ours, base, strict=True)
        costs = [(o[1] - b[1]) * 1e6 / (o[2] or of[2]) for o, of, b in rows]
        each = zip(runs, ours, base, strict=True)
        parts = [(o[1] - b[1]) / (of[1] - b[1]) for o, of, b in each if of[1] > b[1]]
        count = statistics.median(one[2] for one in runs)
        cost = "" if runs == base else f"{statistics.median(costs):.0f}"
        part = "" if runs == base else f"{statistics.median(parts):.2f}"
        more = overhead(values, [one[1] for one in base]) if runs != base else ""
        print(f"| {name} | {cpu} | {more} | {count:,.0f} | {cost} | {part} |")


# What a tool itself takes


def record_short(words: list[str], command: list[str]) -> tuple[float, float, float]:
    """Return cpu and elapsed milliseconds of a tool, and how long its command waited to begin."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic_ns()
    done = subprocess.run(
        [*words, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    )
    elapsed, after = time.monotonic_ns() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    began = next(int(line) for line in done.stdout.split() if line.isdecimal() and len(line) > 9)
    return cpu * 1e3, elapsed / 1e6, (began - begun) / 1e6


def own_table(
    program: str, rounds: int, tools: dict[str, Callable[[str], list[str]]], where: str = ""
) -> list[Row]:
    """Print what each tool takes for a command that only tells the time."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in tools}
    for number in range(-1, rounds):
        for name, record in tools.items():
            with tempfile.TemporaryDirectory(prefix="critpath-overhead-") as place:
                try:
                    one = record_short(record(place), [program, "now"])
                except subprocess.CalledProcessError as error:
                    print(f"{name} ended with {error.returncode}: that time is left out")
                    continue
            if number >= 0:
                found[name].append(one)
    base = next(iter(found.values()))
    found = {name: runs for name, runs in found.items() if len(runs) == len(base)}
    print("| a command that tells the time | cpu ms | of the first | waits ms | elapsed ms |")
    print("|---|---:|---:|---:|---:|")
    for name, runs in found.items():
        cpu, elapsed, waits = (statistics.median(one[i] for one in runs) for i in range(3))
        part = statistics.median(o[0] / b[0] for o, b in zip(runs, base, strict=True))
        print(f"| {name} | {cpu:.0f} | {part:.2f} | {waits:.0f} | {elapsed:.0f} |")
    cpus, _, waits = zip(*base, strict=True)
    peers = [name for name in found if found[name] is not base]
    bound = "; ".join(f"{n} {statistics.median(o[0] for o in found[n]) / 1e3:.2f}" for n in peers)
    of = f"record of a command that tells the time{where}"
    key = "own_starved" if where else "own"
    return [
        Row(key, f"{of}: CPU, s", tuple(x / 1e3 for x in cpus), 0.3, at_least=False, bound=bound),
        Row(
            f"{key}_waits", "the same: until it begins, s", tuple(x / 1e3 for x in waits), 1, False
        ),
    ]


def record_machine(seconds: float) -> float:
    """Return how long a recording of the whole machine for so many seconds takes."""
    with tempfile.TemporaryDirectory(prefix="critpath-overhead-") as place:
        words = [*CRITPATH, "record", "-a", "--duration", str(seconds), "--quiet"]
        begun = time.monotonic()
        subprocess.run([*words, "-o", f"{place}/all"], check=True)
        return time.monotonic() - begun


def measure_own(program: str, rounds: int, *, beside: bool) -> list[Row]:
    """Print what the tools themselves take, quiet and, if asked for, on a starved machine."""

    def critpath(place: str) -> list[str]:
        return [*CRITPATH, "record", "--recorder", "ftrace", "--quiet", "-o", f"{place}/r", "--"]

    tools: dict[str, Callable[[str], list[str]]] = {"critpath record": critpath}
    if shutil.which("perf"):
        tools["perf record"] = lambda place: [*perf_record(place), *chosen_events(), "--"]
    if shutil.which("trace-cmd"):
        tools["trace-cmd record"] = lambda place: [*trace_cmd_record(place), *chosen_events()]
    rows = own_table(program, rounds, tools)
    if beside:
        with busy_loops(2 * (os.cpu_count() or 1)):
            print("\nbeside two busy loops on every cpu:\n")
            rows += own_table(program, rounds, tools, " beside two busy loops on every cpu")
            took = record_machine(10)
            print(f"\ncritpath record -a --duration 10 took {took:.1f} s")
            rows.append(Row("own_machine", "record -a --duration 10 there: elapsed, s", (took,)))
    return rows


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what recording costs")
    parser.add_argument("--recorder", choices=RECORDERS, default="ftrace")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--round-trips", type=int, default=100_000)
    parser.add_argument("--profiles", default=",".join(PROFILES))
    parser.add_argument("--workload", help="the program, built before")
    parser.add_argument("--own", action="store_true", help="only what the tools themselves take")
    parser.add_argument("--starved", action="store_true", help="that on a starved machine, too")
    take_rows(parser)
    chosen = parser.parse_args()
    if os.geteuid():
        print("overhead: left out, recording needs root")
        add_rows(chosen.rows, [LeftOut("what recording takes", "it needs root")])
        return 0
    module = importlib.import_module(RECORDERS[chosen.recorder])
    wrong = [o for o in module.find_needs(None) if o.fatal]
    if wrong:
        print(f"overhead: left out, {chosen.recorder} cannot record here: {wrong[0].what}")
        add_rows(chosen.rows, [LeftOut("what recording takes", wrong[0].what)])
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
            modes["perf record, as minimal"] = by_tool(perf_record, count_perf)
        if shutil.which("trace-cmd"):
            modes["trace-cmd record, as minimal"] = by_tool(trace_cmd_record, count_trace_cmd)
        modes["bpf programs that do nothing"] = by_bpf
        print(f"kernel {os.uname().release}, {os.cpu_count()} cpus, {chosen.rounds} rounds\n")
        if chosen.own:
            add_rows(chosen.rows, measure_own(program, chosen.rounds, beside=chosen.starved))
            return 0
        served = [program, "requests", str(chosen.requests), place]
        requests_table(measure(modes, served, chosen.rounds), chosen.requests)
        print(f"\nThe paper reports {PAPER} % for its minimal events.\n")
        last = str(max(os.sched_getaffinity(0)))
        trips = [program, "pingpong", str(chosen.round_trips), last]
        event_table(measure(modes, trips, chosen.rounds), chosen.round_trips)
        if chosen.recorder == "ftrace":
            print()
            add_rows(chosen.rows, measure_own(program, chosen.rounds, beside=chosen.starved))
    return 0


if __name__ == "__main__":
    sys.exit(main())
