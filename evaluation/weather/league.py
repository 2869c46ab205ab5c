"""The league: what the first line of critpath and of its peers says of the same faults.

    python league.py DIR --critpath C --record   # records the faults for the peers: root
    python league.py DIR --critpath C            # judges what is there: one table

The peers, by their own programs (offcputime of libbpf-tools, ``perf sched``), watch the machine
while the two command lines of a case of `cases.py` run, as often as critpath recorded them, in the
same condition. What each says first is the largest difference of its sums, after less before:
of off-CPU time by thread name and kernel stack; of run time, wait time and delay by thread name
(``perf sched timehist``); of runtime and delay (``perf sched latency``). offwaketime cannot be
compiled here (no kernel headers): its documented sum, off-CPU time by thread name and the name of
who woke it, is made of critpath's recordings of the same case. Each is asked twice: for all of the
machine, and for the program's own threads alone (as with ``-p PID``). Numbers in names are left
out, so that threads of several runs are one. All are judged by the same patterns (`judge.py`).
Trace Compass is not here: its differential flame graph needs its graphical interface.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[1]))

from cases import CASES, Case
from judge import judge, weigh_sentence
from record import fill, keep_busy
from results import write_results

# Names of a program's own threads besides that of its file, not of the services that it asks.
OWN: Final = {
    "epollherd": ("worker",), "forkherd": ("prefork",), "py-herd": ("consumer",),
    "twokinds-jackd": ("alpha", "beta"), "py-lanes-jackd": ("lane-a", "lane-b"),
    "pool": ("wkr-#",), "py-threads": ("pool-#-thr-#",), "py-relay": ("front",),
    "py-lock": ("psql",), "pl-chain": ("sh", "nice", "sleep"), "js-pool": ("libuv-worker",),
    "js-parse": ("libuv-worker",), "js-fetch": ("libuv-worker",), "js-buffers": ("libuv-worker",),
}  # fmt: skip
_WRAPPERS: Final = ("underhog", "taskset")
# What records or stands for an idle cpu.
LEFT_OUT: Final = re.compile(r"offcputime|perf|swapper.*|critpath.*|:-#|run")
_FRAMES: Final = re.compile(r"bpf_|__bpf|__traceiter|__schedule$|schedule$|schedule_timeout$")
PREEMPTED: Final = re.compile(
    r"irqentry_exit|asm_sysvec|exit_to_user|__cond_resched|preempt_schedule"
)
CONDITIONS: Final = ("quiet", "busy")
Sums = Counter[str]


def plain(comm: str) -> str:
    """Return a thread's name without numbers that are its own."""
    return comm if comm.startswith("python3") else re.sub(r"\d+", "#", comm)


def watch(tool: str, file: Path, command: str, runs: int, environment: dict[str, str]) -> None:
    """Have a peer watch the machine while a command runs so often."""
    lines = {
        "offcputime": ["offcputime", "--stack-storage-size=16384"],
        "perf": ["perf", "sched", "record", "-a", "-o", str(file)],
    }
    with file.with_suffix(".log").open("w") as log:
        out = file.open("w") if tool == "offcputime" else log
        peer = subprocess.Popen(lines[tool], stdout=out, stderr=log, start_new_session=True)
        time.sleep(1.5)
        for _ in range(runs):
            subprocess.run(
                shlex.split(command), stdout=subprocess.DEVNULL, stderr=log, check=False,
                timeout=60, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | environment,
            )  # fmt: skip
        peer.send_signal(signal.SIGINT)
        peer.wait(60)


def record_peers(place: Path, names: list[str]) -> None:
    """Record every case for the peers, quiet and busy."""
    for i, case in enumerate(CASES):
        if names and case.name not in names:
            continue
        who = ("stress-ng", "indexer")[i % 2]
        for condition in CONDITIONS:
            to = place / "league" / f"{case.name}-{condition}"
            if (to / "done").exists():
                continue
            shutil.rmtree(to, ignore_errors=True)
            to.mkdir(parents=True)
            with keep_busy(place, who, really=condition == "busy"):
                for tool in ("offcputime", "perf"):
                    for side, line in (("before", case.before), ("after", case.after)):
                        watch(
                            tool,
                            to / f"{tool}.{side}",
                            fill(line, place),
                            case.runs,
                            case.environment,
                        )
            for side in ("before", "after"):
                digest_perf(to, side)
            (to / "done").touch()
            print(f"{time.strftime('%H:%M:%S')} {to.name}", flush=True)


def digest_perf(to: Path, side: str) -> None:
    """Keep what ``perf sched`` says of a recording, and how long it took; not the recording."""
    file, seconds = to / f"perf.{side}", {}
    for what, line in (("timehist", ["timehist"]), ("latency", ["latency"])):
        begin = time.monotonic()
        with (to / f"{what}.{side}").open("w") as out:
            subprocess.run(
                ["perf", "sched", "-i", str(file), *line], stdout=out, stderr=subprocess.DEVNULL,
                check=False, timeout=120,
            )  # fmt: skip
        seconds[what] = time.monotonic() - begin
    (to / f"seconds.{side}").write_text(json.dumps(seconds))
    file.unlink()


def add_offcpu(file: Path) -> Sums:
    """Return off-CPU microseconds by thread name and kernel stack, as a flame graph folds them."""
    sums: Sums = Counter()
    frames: list[str] = []
    comm = ""
    for line in file.read_text(errors="replace").splitlines():
        text = line.strip()
        if not text:
            continue
        if found := re.fullmatch(r"-\s+(.*) \(\d+\)", text):
            comm = plain(found[1])
        elif comm and text.isdigit():
            kernel = [f for f in frames if not _FRAMES.match(f) and f != "[unknown]"][:4]
            kernel = kernel or ["the kernel"]
            what = (
                "waiting for a CPU (preempted): " if any(map(PREEMPTED.match, kernel[:2])) else ""
            )
            sums[f"{comm}: off-CPU in {what}{' < '.join(kernel)}"] += int(text)
            frames, comm = [], ""
        else:
            frames.append(text)
    return sums


def add_timehist(file: Path) -> Sums:
    """Return microseconds by thread name: waiting, delayed, running."""
    sums: Sums = Counter()
    row = re.compile(r"\s*[\d.]+ \[\d+\]\s+(.*?)\[[-\d/]+\]\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)")
    for line in file.read_text(errors="replace").splitlines():
        if found := row.match(line):
            comm = plain(found[1])
            for what, ms in zip(_TIMES, found.groups()[1:], strict=True):
                sums[f"{comm}: {what}"] += int(float(ms) * 1000)
    return sums


_TIMES: Final = ("wait time (blocked)", "sch delay (waiting for a CPU)", "run time")


def add_latency(file: Path) -> Sums:
    """Return microseconds by task: runtime, and delay (average times switches)."""
    sums: Sums = Counter()
    row = re.compile(r"\s*(.*?):[-(\d)]+\s*\|\s*([\d.]+) ms \|\s*(\d+) \| avg:\s*([\d.]+) ms")
    for line in file.read_text(errors="replace").splitlines():
        if found := row.match(line):
            comm = plain(found[1])
            sums[f"{comm}: runtime"] += int(float(found[2]) * 1000)
            sums[f"{comm}: delay (waiting for a CPU)"] += int(
                float(found[4]) * int(found[3]) * 1000
            )
    return sums


def add_offwake(recording: Path, execution: str) -> Sums:
    """Return off-CPU microseconds by thread name and who woke it, while executions ran.

    Both sides of a recording in turns are one trace, so that what was between is left out.
    """
    from critpath import flow
    from critpath.model import State
    from critpath.timeline import read_timelines

    what = "" if execution == "process" else execution
    ran = flow.extract([recording], specification=what).executions
    windows = list(zip(ran.begin.tolist(), ran.end.tolist(), strict=True))
    _, lines = read_timelines(recording)
    comms = [plain(lines.strings[name]) for name in lines.workers.name]
    sums: Sums = Counter()
    of = [w for w in range(len(comms)) for _ in range(lines.start[w], lines.start[w + 1])]
    for at, worker in enumerate(of):
        state = State(int(lines.state[at]))
        if not state.name.startswith("WAIT") and state.name != "NET_TRANSIT":
            continue
        waker = int(lines.waker[at])
        who = f"woken by {comms[waker]}" if waker >= 0 else "woken by a timer or interrupt"
        where = "waiting for a CPU (preempted)" if state == State.WAIT_CPU else who
        if state == State.WAIT_TIMER:
            where = "in hrtimer_nanosleep, woken by a timer"
        begin, end = int(lines.begin[at]), int(lines.end[at])
        within = sum(max(0, min(end, e) - max(begin, b)) for b, e in windows)
        sums[f"{comms[worker]}: off-CPU, {where}"] += within // 1000
    return sums


def read_offwake(pair: Path, execution: str, kept: Path) -> list[Sums]:
    """Return the sums of both sides of a pair, which are kept: they take longest to make."""
    if not kept.exists():
        sides = [add_offwake(pair / side, execution) for side in ("normal", "sample")]
        kept.write_text(json.dumps(sides))
    return [Counter(side) for side in json.loads(kept.read_text())]


def name_own(case: Case) -> set[str]:
    """Return the names of the threads of a case's program."""
    words = shlex.split(fill(case.after, Path()))
    while Path(words[0]).name in _WRAPPERS:
        words = words[3 if words[0] == "taskset" else 2 :]
    return {Path(words[0]).name, *OWN.get(case.name, ())}


def largest(before: Sums, after: Sums, own: set[str]) -> tuple[str, int]:
    """Return what grew most, as a line, and how many lines stand behind it."""
    grown = []
    for key in after.keys() | before.keys():
        comm = key.split(": ")[0]
        if LEFT_OUT.fullmatch(comm) or (own and comm not in own):
            continue
        grown.append((after[key] - before[key], key))
    if not grown:
        return "", 0
    rise, key = max(grown)
    return f"{key} +{rise / 1000:.1f} ms" if rise > 0 else "", len(grown)


def judge_peers(place: Path, critpath: str, names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield what each said first of each fault."""
    readers: dict[str, Callable[[Path], Sums]] = {
        "offcputime": add_offcpu, "timehist": add_timehist, "latency": add_latency,
    }  # fmt: skip
    for case in CASES:
        for condition in CONDITIONS:
            pair = place / "pairs" / f"{case.name}-{condition}-turns"
            peers = place / "league" / f"{case.name}-{condition}"
            if (names and case.name not in names) or not (peers / "done").exists():
                continue
            if not (pair / "truth.json").exists():
                continue
            truth = json.loads((pair / "truth.json").read_text())
            one = judge(critpath, pair)
            row = {"case": case.name, "kind": case.kind, "condition": condition}
            yield row | {
                "tool": "critpath", "worth": one.worth, "first": one.first,
                "seconds": one.seconds, "lines": one.lines,
            }  # fmt: skip
            for tool, read in [*readers.items(), ("offwaketime", add_offcpu)]:
                begin = time.monotonic()
                if tool == "offwaketime":
                    sums = read_offwake(pair, case.execution, peers / "offwaketime.json")
                else:
                    sums = [read(peers / f"{tool}.{side}") for side in ("before", "after")]
                seconds = time.monotonic() - begin
                if tool in {"timehist", "latency"}:
                    for side in ("before", "after"):
                        seconds += json.loads((peers / f"seconds.{side}").read_text())[tool]
                for whose, own in (("the program", name_own(case)), ("the machine", set())):
                    first, lines = largest(sums[0], sums[1], own)
                    worth = weigh_sentence(first, truth) if first else "nothing"
                    yield row | {
                        "tool": f"{tool}, {whose}",
                        "worth": worth, "first": first, "seconds": seconds, "lines": lines,
                    }  # fmt: skip


HEADS: Final = ("who", "right", "partly", "wrong", "says nothing", "seconds", "lines")


def tabulate(rows: Iterable[dict[str, Any]]) -> list[list[str]]:
    """Return the league's table, best first."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["tool"]].append(row)
    table = []
    for tool, those in groups.items():
        worth = Counter(r["worth"] for r in those)
        said = worth["right"] + worth["partly"] + worth["wrong"]
        table.append([
            tool, f"{worth['right']} of {len(those)}", f"{worth['partly']}", f"{worth['wrong']}",
            f"{len(those) - said}", f"{statistics.median(r['seconds'] for r in those):.1f}",
            f"{statistics.median(r['lines'] for r in those):.0f}",
        ])  # fmt: skip
    return sorted(table, key=lambda row: -int(row[1].split()[0]))


def main() -> None:
    """Record or judge."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("--critpath", default=shutil.which("critpath") or "critpath")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("names", nargs="*")
    given = parser.parse_intermixed_args()
    if given.record:
        record_peers(given.place.resolve(), given.names)
        return
    rows = []
    for row in judge_peers(given.place.resolve(), given.critpath, given.names):
        rows.append(row)
        print(
            f"{row['worth']:12} {row['case']}-{row['condition']} {row['tool']}: {row['first']}",
            flush=True,
        )
    print("\n| " + " | ".join(HEADS) + " |\n|" + "---|" * len(HEADS))
    for line in tabulate(rows):
        print("| " + " | ".join(line) + " |")
    if given.json:
        write_results(given.json, rows)


if __name__ == "__main__":
    main()
