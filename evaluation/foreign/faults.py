"""The same faults recorded at once by critpath and other tools: is the answer the same?

``python evaluation/foreign/faults.py [--kinds a,b] [--runs N] [--keep DIR]``: for each fault of
`../case_studies/faults.py` and one pair without any, the application (`app.c`) is recorded before
and after on the whole machine, by ``critpath record -a``, ``trace-cmd record`` and ``perf record``
at the same time and by one clock, and what critpath recorded is written as Perfetto does; each pair
is compared by itself (``--execution process,comm=app``).  Two answers are the same if verdict and
first sentence are, less their figures: the tools stop at other times, and some do not record what
others do.

Needs root, tracefs, a C compiler, trace-cmd and perf.  Some minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# First: a `faults` is there too.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "case_studies"))
sys.path.append(str(Path(__file__).resolve().parents[1]))

from at_once import CRITPATH, PERFETTO, commands, recorded, write_perfetto
from bench import Bench, bench, why_not
from faults import KINDS, RIVAL_MS
from limits import Group, Limits

STRENGTH: Final = 3
HEALTHY: Final = "healthy"
EXECUTIONS: Final = 3  # of a run: one of each type
_FIGURE: Final = re.compile(r"[\d,.]*\d")


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
        write_perfetto(place / kind / side)
    answers = {
        name: compare(place / kind / "before" / name, place / kind / "after" / name)
        for name in (*commands(place), PERFETTO)
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
