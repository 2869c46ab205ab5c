"""The first look beside other tools' figures of the same trace: equal, or why not.

    python evaluation/foreign/peers.py [--perf FILE] [--analyses PYTHON] [--json FILE] [TRACE ...]

``perf sched timehist`` and ``perf sched latency`` are asked of FILE, which is recorded now with
``perf sched record`` (as root) unless it is named.  ``lttng-analyses`` (PyPI, needs babeltrace 1's
Python bindings) is asked of LTTng traces, by default those of fixtures/lttng-guest; PYTHON is one
that has it.  It was written for Python 3.9: what that had in ``collections`` is put back.

What counts as equal was written down before the first run: times to 2 µs, as perf prints them;
lttng-analyses' to 2 µs or a millionth; counts exactly.  A thread whose figures differ is explained
only if the events of that thread show why; else it is "not explained".
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from critpath.model import Kind
from critpath.read import KERNEL_EVENTS, Recording

ROOT: Final = Path(__file__).resolve().parents[2]
FIXTURES: Final = ROOT / "fixtures" / "lttng-guest"
GUEST: Final = ("normal", "normal-2", "plain", "python", "sample-delay", "sample-lock")
CRITPATH: Final = Path(sys.executable).with_name("critpath")
DATA_ONLY: Final = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
US: Final = 1_000
SAME: Final = 2 * US  # ns
WORK: Final = (
    "for i in 1 2 3; do dd if=/dev/zero bs=1M count=200 2>/dev/null | gzip -1 >/dev/null & done; "
    "sleep 1; ls -lR /usr/share/doc >/dev/null; wait"
)
_LATENCY: Final = re.compile(
    r"\s+(.*):(\d+)\s+\|\s+([\d.]+) ms \|\s+(\d+) \| avg:\s+([\d.]+) ms \| max:\s+([\d.]+) ms"
)
_TIMEHIST: Final = re.compile(r"\s*(.*)\[(\d+)(?:/\d+)?\]\s+-?\d+\s+(\d+)\s+([\d.]+)\s.*\s\d+\s*$")
_EVENT: Final = re.compile(r"\s*-?\d+/(-?\d+)\s+\[(\d+)\]\s+(\d+)\.(\d{9}):\s+(sched:.*)")
_SWITCH: Final = re.compile(
    r"prev_comm=.* prev_pid=(\d+) prev_prio=-?\d+ prev_state=(\S+) ==> .*next_pid=(\d+) "
)
_WAKE: Final = re.compile(r"sched:sched_(waking|wakeup|wakeup_new):.* pid=(\d+) ")
_ANALYSES: Final = (
    "import collections, collections.abc, sys\n"
    "for name in collections.abc.__all__:\n"
    "    setattr(collections, name, getattr(collections.abc, name))\n"
    "from importlib import import_module\n"
    "module, function = sys.argv.pop(1), sys.argv.pop(1)\n"
    "getattr(import_module('lttnganalyses.cli.' + module), function)()\n"
)
_RUNS: Final = -1
_WAKES: Final = (Kind.WAKING, Kind.WAKEUP, Kind.WAKEUP_NEW)
Figures = Mapping[int, float]


def ask(*command: str | Path) -> str:
    """Return what a command prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def look(trace: Path) -> tuple[dict[str, Any], dict[int, list[dict[str, Any]]]]:
    """Return critpath's look, and the lives of each thread id."""
    document = json.loads(ask(CRITPATH, "path", trace, "--look", "--format", "json", "--quiet"))
    lives = defaultdict(list)
    for row in document["threads"]:
        lives[row["tid"]].append(row)
    return document, lives


def total(lives: Mapping[int, Sequence[Mapping[str, Any]]], key: str) -> dict[int, float]:
    """Return a figure of each thread id, of all its lives."""
    return {tid: sum(row[key] for row in rows) for tid, rows in lives.items()}


def longest(lives: Mapping[int, Sequence[Mapping[str, Any]]]) -> dict[int, float]:
    """Return the longest wait of each thread id."""
    waits = {tid: [row["worst"] for row in rows if row["worst"]] for tid, rows in lives.items()}
    return {tid: max((w["end"] - w["begin"] for w in of), default=0) for tid, of in waits.items()}


class Comparison:
    """Figures of threads by two tools, and what is known of those that differ."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def compare(
        self,
        of: tuple[str, str],
        ours: Figures,
        theirs: Figures,
        same: Callable[[float, float], bool],
        ruled: Figures,
        reasons: Mapping[str, set[int]],
    ) -> None:
        """Add a row: how many threads both have, are equal, are explained, and are not.

        A thread that differs is explained where the tool's rules give the tool's figure of the
        same events (`ruled`), and the events show for which reason that is not ours.
        """
        both = sorted({*ours} & {*theirs})
        differ = [tid for tid in both if not same(ours[tid], theirs[tid])]
        why: Counter[str] = Counter()
        unknown = []
        for tid in differ:
            known = [reason for reason, which in reasons.items() if tid in which]
            if not known or not same(ruled.get(tid, -1), theirs[tid]):
                known = ["not explained"]
                found = (ours[tid], theirs[tid], ruled.get(tid, -1))
                unknown.append(f"{tid}: {', '.join(f'{x:,.0f}' for x in found)}")
            why[known[0]] += 1
        self.rows.append(
            {
                **dict(zip(("tool", "figure"), of, strict=True)),
                "threads": len(both),
                "equal": len(both) - len(differ),
                "explained": len(differ) - why["not explained"],
                "not explained": why["not explained"],
                "why": dict(why),
                "which": unknown[:5],
            }
        )


def near(one: float, other: float) -> bool:
    """Tell whether two times are the same."""
    return abs(one - other) <= max(SAME, 1e-6 * one)


def exactly(one: float, other: float) -> bool:
    """Tell whether two counts are."""
    return one == other


# ---------------------------------------------------------------------------- perf


def record(place: Path) -> Path:
    """Record the whole machine for some seconds, wakeups included, as `latency` needs them."""
    file = place / "perf.data"
    command = ("perf", "sched", "record", "-m", "4096", "-e", "sched:sched_wakeup", "-o", file)
    ask(*command, "--", "sh", "-c", WORK)
    return file


class Rules:
    """What perf 6.1 makes of the events of a file, by the rules in its builtin-sched.c.

    ``timehist`` adds up, for the thread in a switch's header, the time since the last switch of
    its processor.  ``latency`` has a thread wait from a wake of a sleeping one, or from a switch
    in state R, until it is switched to; the header of a thread that has exited names none.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self.times: Counter[int] = Counter()
        self.turns: Counter[int] = Counter()
        self.longest: dict[int, float] = {}
        self.waits: Counter[int] = Counter()
        self.exited: set[int] = set()
        self.missing: set[int] = set()
        self.preempted: set[int] = set()
        self.first_woken: set[int] = set()
        self.first_on: set[int] = set()
        self.running: set[int] = set()
        self._last: dict[str, int] = {}
        self._on: dict[str, int] = {}
        self._since: dict[int, int | None] = {}  # it waits; None: it sleeps; _RUNS
        for line in lines:
            if (found := _EVENT.match(line)) is not None:
                self._take(int(found[1]), found[2], int(found[3] + found[4]), found[5])

    def list_waiting(self) -> set[int]:
        """Return who waits for a processor at the end."""
        return {tid for tid, since in self._since.items() if since is not None and since >= 0}

    def _take(self, header: int, cpu: str, now: int, rest: str) -> None:
        if (switch := _SWITCH.search(rest)) is not None:
            prev, state, following = int(switch[1]), switch[2], int(switch[3])
            if self._on.get(cpu, prev) != prev:
                self.missing |= {prev, self._on[cpu]}
            if cpu not in self._on:
                self.running.add(prev)
            self._on[cpu] = following
            if header < 0:
                self.exited.add(prev)
            elif cpu in self._last:
                self.times[header] += now - self._last[cpu]
            self.turns[header] += 1
            self._last[cpu] = now
            if state == "R+":
                self.preempted.add(prev)
            self._since[prev] = now if state == "R" else None
            if following not in self._since:
                self.first_on.add(following)
            since = self._since.get(following, now)
            if since is not None and since != _RUNS:
                self.waits[following] += 1
                self.longest[following] = max(self.longest.get(following, 0), now - since)
                self._since[following] = _RUNS
        elif (wake := _WAKE.search(rest)) is not None:
            tid = int(wake[2])
            if wake[1] == "waking":
                if tid not in self._since and tid not in self._on.values():
                    self.first_woken.add(tid)
            elif self._since.get(tid) is None:
                self._since[tid] = now


def compare_perf(file: Path) -> list[dict[str, Any]]:
    """Compare with both reports of perf sched."""
    _, lives = look(file)
    script = ask("perf", "script", "--ns", "-i", file, "-F", "pid,tid,cpu,time,event,trace")
    rules = Rules(script.splitlines())
    comparison = Comparison()
    times, counts = {}, {}
    for line in ask("perf", "sched", "timehist", "-s", "-i", file).splitlines():
        if (found := _TIMEHIST.match(line)) is not None:
            counts[int(found[2])], times[int(found[2])] = int(found[3]), float(found[4]) * 1e6
    tool = "perf sched timehist"
    missing = "a switch is missing, and perf lets the thread run on"
    exits = {"perf loses the last turn of a thread that exits": rules.exited}
    runs = {"it ran when the recording began: no turn of ours": rules.running}
    reasons = {**exits, **runs, missing: rules.missing}
    ours = total(lives, "cpu")
    comparison.compare((tool, "time on a CPU"), ours, times, near, rules.times, reasons)
    ours = total(lives, "turns")
    comparison.compare((tool, "times on a CPU"), ours, counts, exactly, rules.turns, reasons)
    worst, waits = {}, {}
    for line in ask("perf", "sched", "latency", "-p", "-i", file).splitlines():
        if (found := _LATENCY.match(line)) is not None:
            waits[int(found[2])], worst[int(found[2])] = int(found[4]), float(found[6]) * 1e6
    tool = "perf sched latency"
    reasons = {
        "perf takes R+ (preempted in the kernel) for a sleep": rules.preempted,
        "perf waits for the wakeup of a thread whose first event is its waking": rules.first_woken,
        "perf counts a wait of 0 of a thread that is first seen as it gets a CPU": rules.first_on,
        missing: rules.missing,
        "still waits at the end": rules.list_waiting(),
    }
    of = (tool, "longest wait for a CPU")
    comparison.compare(of, longest(lives), worst, near, rules.longest, reasons)
    ours = total(lives, "waits")
    comparison.compare((tool, "waits for a CPU"), ours, waits, exactly, rules.waits, reasons)
    return comparison.rows


# -------------------------------------------------------------------- lttng-analyses


def analyse(python: str, module: str, function: str, trace: Path, *more: str) -> list[Any]:
    """Return the rows that a command of lttng-analyses gives of a trace."""
    text = ask(python, "-c", _ANALYSES, module, function, *more, trace)
    results = json.loads(text)["results"]
    return [row for of in results for row in of["data"] if row[0]["class"] == "process"]


def apply_rules(trace: Path) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """Return what lttng-analyses' rules find by thread: waits, the longest, and time at first.

    A wait is from the first waking or wakeup of a thread that has no processor until it gets one.
    Who leaves a processor first had it since the trace began.
    """
    events = Recording(trace).read(KERNEL_EVENTS)
    kinds = np.array([of.kind for of in events.classes])[events.event_class]
    rows = np.flatnonzero(np.isin(kinds, [Kind.SWITCH, *_WAKES]))
    columns = (events.column(rows, name) for name in ("tid", "prev_tid", "next_tid"))
    begun: dict[int, int] = {}
    last: dict[int, int] = {}
    on: dict[int, int] = {}
    counts: Counter[int] = Counter()
    worst: dict[int, int] = {}
    for now, cpu, kind, tid, prev, following in zip(
        *(of[rows].tolist() for of in (events.timestamp, events.cpu, kinds)),
        *(of.tolist() for of in columns),
        strict=True,
    ):
        if kind != Kind.SWITCH:
            if tid not in on.values():
                last.setdefault(tid, now)
            continue
        if cpu not in on:
            begun[prev] = now - events.begin
        on[cpu] = following
        if following in last:
            wait = now - last.pop(following)
            counts[following] += 1
            worst[following] = max(worst.get(following, 0), wait)
    return counts, worst, begun


def compare_analyses(python: str, trace: Path) -> list[dict[str, Any]]:
    """Compare with cputop and schedstats."""
    document, lives = look(trace)
    span = document["end"] - document["begin"]
    comparison = Comparison()
    tool = "lttng-analyses"
    ratios = analyse(python, "cputop", "run_mi", trace, "--limit", "1000000")
    theirs = {row[0]["tid"]: row[3]["value"] * span for row in ratios}
    ours = total(lives, "cpu")
    ruled_counts, ruled, begun = apply_rules(trace)
    since = {"it ran when the trace began: they count it since then": {*begun}}
    times = {tid: time + begun.get(tid, 0) for tid, time in ours.items()}
    comparison.compare((tool, "time on a CPU"), ours, theirs, near, times, since)
    rows = analyse(python, "sched", "runstats_mi", trace, "--per-tid", "--stats")
    woken = {tid: sum(row["waits"] - row["preempted"] for row in of) for tid, of in lives.items()}
    counts = {row[0]["tid"]: row[1]["value"] for row in rows}
    reasons = {
        "woken as it left its CPU, or as it waited: no sleep of ours": {
            tid for tid, count in counts.items() if count > woken.get(tid, 0)
        },
        "still waits at the end": {tid for tid, of in lives.items() if _waits(of, document)},
    }
    of = (tool, "waits after a wake")
    comparison.compare(of, woken, counts, exactly, ruled_counts, reasons)
    worst = {row[0]["tid"]: row[4]["value"] for row in rows}
    ours = longest(lives)
    reasons = {
        "they count from the waking, critpath from the wakeup": {
            tid for tid, wait in worst.items() if wait > ours.get(tid, 0)
        },
        "the longest began as it had to leave a CPU: no wake": {
            tid for tid, of in lives.items() if sum(row["preempted"] for row in of)
        },
    }
    comparison.compare((tool, "longest wait"), ours, worst, near, ruled, reasons)
    return comparison.rows


def _waits(lives: Sequence[Mapping[str, Any]], document: Mapping[str, Any]) -> bool:
    """Tell whether a thread waits for a processor as its recording ends."""
    waits = [row["worst"] for row in lives if row["worst"]]
    return any(wait["end"] == document["end"] for wait in waits)


def unpack(place: Path) -> list[Path]:
    """Return the kernel traces of the fixtures."""
    for name in GUEST:
        with tarfile.open(FIXTURES / f"{name}.tar.xz") as tar:
            tar.extractall(place, **DATA_ONLY)  # noqa: S202 - archives of our own
    return [place / name / "trace" / "kernel" for name in GUEST]


def has_analyses(python: str) -> bool:
    """Tell whether a Python has lttng-analyses and what that needs."""
    command = (python, "-c", "import babeltrace, lttnganalyses")
    found = shutil.which(python) is not None
    return found and not subprocess.run(command, capture_output=True, check=False).returncode


def add_up(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each figure of a tool, over all traces."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        one = found.setdefault(
            (row["tool"], row["figure"]),
            {**row, "why": Counter(), "which": []}
            | dict.fromkeys(("threads", "equal", "explained", "not explained"), 0),
        )
        for key in ("threads", "equal", "explained", "not explained"):
            one[key] += row[key]
        one["why"].update(row["why"])
        one["which"] += row["which"]
    return [*found.values()]


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--perf", type=Path, help="a perf.data (default: one is recorded)")
    parser.add_argument("--analyses", default="/usr/bin/python3", help="a Python that has it")
    parser.add_argument("--json", type=Path, help="write the rows")
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE", help="of LTTng")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="critpath-peers-") as place:
        if given.perf or (os.geteuid() == 0 and not given.traces):
            rows += compare_perf(given.perf or record(Path(place)))
        if has_analyses(given.analyses):
            for trace in given.traces or unpack(Path(place)):
                rows += compare_analyses(given.analyses, trace)
        else:
            print(f"left out: lttng-analyses, which {given.analyses} has not")
    summed = add_up(rows)
    heads = ("tool", "figure", "threads", "equal", "explained", "not explained")
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for row in summed:
        print("| " + " | ".join(f"{row[head]}" for head in heads) + " |")
    for row in summed:
        for reason, count in row["why"].items():
            print(f"{row['tool']}, {row['figure']}: {count} {reason} {row['which'] or ''}")
    if given.json:
        given.json.write_text(json.dumps(summed, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
