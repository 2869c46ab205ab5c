"""The same faults recorded at once by critpath and other tools: is the answer the same?

``python evaluation/foreign/faults.py [--kinds a,b] [--runs N] [--keep DIR]``: for each fault of
`../case_studies/faults.py` and one pair without any, the application (`app.c`) is recorded before
and after on the whole machine, by ``critpath record -a``, ``trace-cmd record`` and ``perf record``
at the same time and by one clock; each pair is compared by itself (``--execution
process,comm=app``).  Two answers are the same if verdict and first sentence are, less their
figures: the tools stop at other times, and some do not record what others do.

Needs root, tracefs, a C compiler, trace-cmd and perf.  Some minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).resolve().parents[1] / "case_studies"))
sys.path.append(str(Path(__file__).resolve().parents[1]))

from bench import Bench, bench, why_not
from faults import KINDS, RIVAL_MS
from limits import Group, Limits

STRENGTH: Final = 3
HEALTHY: Final = "healthy"
EXECUTIONS: Final = 3  # of a run: one of each type
# What a user of each tool would ask for, so that it has what paths need.
EVENTS: Final = (
    *("sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup", "sched:sched_wakeup_new"),
    *("sched:sched_process_fork", "sched:sched_process_exec", "sched:sched_process_exit"),
    *("task:task_rename", "irq:*", "timer:hrtimer_expire_entry", "timer:hrtimer_expire_exit"),
    *("timer:timer_expire_entry", "timer:timer_expire_exit"),
    *("block:block_rq_issue", "block:block_rq_complete"),
)
CRITPATH: Final = (sys.executable, "-P", "-m", "critpath")
# trace-cmd does not record where the function tracer is dead, though events do without it: it is
# given files in place of those that it cannot write.
_ENABLED: Final = (
    *("unshare", "-m", "sh", "-c"),
    (
        "for file in /proc/sys/kernel/ftrace_enabled /sys/kernel/tracing/set_ftrace_*; do "
        'mount --bind "$0" $file; done; exec "$@"'
    ),
)
_FIGURE: Final = re.compile(r"[\d,.]*\d")


def commands(place: Path) -> dict[str, tuple[str, ...]]:
    """Return how each tool records the whole machine, into which file or directory."""
    perf = [word for event in EVENTS for word in ("-e", event)]
    cmd = [word for event in EVENTS for word in ("-e", event)]
    return {
        "critpath": (*CRITPATH, "record", "-a", "--profile", "minimal", "-o", f"{place}/critpath"),
        "trace-cmd": (
            *(*_ENABLED, f"{place}/enabled"),
            *("trace-cmd", "record", "-q", "-C", "mono", "-b", "16384"),
            *("-o", f"{place}/trace-cmd", *cmd),
        ),
        "perf": (
            *("perf", "record", "-q", "-a", "-k", "mono", "-m", "4096"),
            *("-o", f"{place}/perf", *perf),
        ),
    }


@contextlib.contextmanager
def recorded(place: Path) -> Iterator[None]:
    """Record with every tool; those that end with an error are said."""
    place.mkdir(parents=True)
    (place / "enabled").write_text("1")
    running = {}
    try:
        for name, words in commands(place).items():
            log = (place / f"{name}.log").open("wb")
            running[name] = subprocess.Popen(words, stdout=log, stderr=log)
        time.sleep(6)  # until all of them record; on a busy machine perf is late
        yield
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for name, process in running.items():
            if process.wait(120) not in {0, 130, -signal.SIGINT}:
                print(f"{name} ended with {process.returncode}: {place}/{name}.log")


def run(built: Bench, kind: str, *, faulty: bool, runs: int, seed: int) -> None:
    """Run the application so often, with or without the fault, in the quota's group if need be."""
    of = KINDS.get(kind)
    options: dict[str, object] = {
        "types": of.types if of else "compute,mix1,read",
        "executions": EXECUTIONS,
        "directory": built.data,
        "steps": built.steps,
    }
    if of and of.rival:
        options["rival"] = RIVAL_MS[STRENGTH]
    with contextlib.ExitStack() as stack:
        if faulty:
            options |= {"fault": kind, "strength": STRENGTH}
            if kind == "quota":
                group = stack.enter_context(Group(Limits(quota=(1_500, 5_000)), "faults"))
                options |= {"cgroup": group.places[0], "home": built.home.places[0]}
        for number in range(runs):
            given = {**options, "seed": seed + number}.items()
            words = [word for key, value in given for word in (f"--{key}", str(value))]
            command = built.home.command([str(built.app), *words])
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def compare(before: Path, after: Path) -> tuple[str, str]:
    """Return the verdict and the first sentence of one tool's pair."""
    words = [*CRITPATH, "compare", str(before), str(after), "--execution", "process,comm=app"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 1, 3}:
        return f"exit {done.returncode}", (done.stderr.strip().splitlines() or [""])[-1]
    lines = done.stdout.split("\n\n")[0].splitlines()
    whole = " ".join(line.strip() for line in lines)
    verdict, _, rest = whole.partition("  ")
    return verdict.strip(), rest.strip()


def alike(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Tell whether two answers are the same but for their figures."""
    return all(_FIGURE.sub("#", a) == _FIGURE.sub("#", b) for a, b in zip(one, other, strict=True))


def judge(built: Bench, place: Path, kind: str, runs: int, seed: int) -> Mapping[str, bool]:
    """Record and compare one fault; print every tool's answer."""
    for side in ("before", "after"):
        faulty = side == "after" and kind != HEALTHY
        with recorded(place / kind / side):
            run(built, kind, faulty=faulty, runs=runs, seed=seed + 1000 * (side == "after"))
    answers = {
        name: compare(place / kind / "before" / name, place / kind / "after" / name)
        for name in commands(place)
    }
    found = {}
    for name, answer in answers.items():
        found[name] = alike(answer, answers["critpath"])
        print(f"{kind:10} {name:10} {'same' if found[name] else 'OTHER':6} {' '.join(answer)}")
    sys.stdout.flush()
    return found


def main() -> int:
    """Judge all faults and print how many answers are the same."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kinds", default=",".join([*KINDS, HEALTHY]))
    parser.add_argument("--runs", type=int, default=12, help="of each side (12)")
    parser.add_argument("--keep", type=Path, help="a directory for the recordings, kept")
    given = parser.parse_args()
    missing = [name for name in ("trace-cmd", "perf") if shutil.which(name) is None]
    if why := why_not() or (f"{missing[0]} is not installed" if missing else ""):
        print(f"skipped: {why}")
        return 0
    # Whoever starts this in the background ignores what ends the recorders.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    same: dict[str, int] = {}
    kinds = given.kinds.split(",")
    with bench() as built:
        place = given.keep or built.directory / "foreign"
        for number, kind in enumerate(kinds):
            for name, is_same in judge(built, place, kind, given.runs, 10 * number).items():
                same[name] = same.get(name, 0) + is_same
            if not given.keep:
                shutil.rmtree(place / kind)
    for name, count in same.items():
        print(f"{name}: the same verdict and first sentence in {count} of {len(kinds)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
