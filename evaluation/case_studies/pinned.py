"""Threads pinned by mistake: ``python pinned.py DIR [--runs N] [--rounds N] [--judge-only]``.

`evaluation/servers/pinned.c`: seven threads work in stages behind a barrier, all on cpu 0, though
another is idle; ``--spread`` is the fix.  Records both sides in turns, with nothing but the
scheduler's events, and holds the answers against what was written before the first run: the first
cause is a wait for a cpu, all on cpu 0, another one idle for a half of it or more; of slices the
workers' are those that wait most; and what the slow side has in common is cpu 0.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

CRITPATH: Final = (sys.executable, "-P", "-m", "critpath")
PROGRAM: Final = Path(__file__).resolve().parent.parent / "servers" / "pinned.c"
WORK: Final = ("40", "1500000")  # stages, and rounds of each: runs of 0.1 to 0.2 s
SIDES: Final = {"spread": ("--spread",), "pinned": ()}


def main() -> int:
    """Record what is not there yet, compare, explore; 0 if all is as was written before."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3, help="recordings of either side")
    parser.add_argument("--judge-only", action="store_true")
    given = parser.parse_args()
    place: Path = given.place.resolve()
    if not given.judge_only:
        record(place, given.rounds, given.runs)
    rows = judge(place)
    print("| question | answer | as expected |\n|---|---|---|")
    for question, answer, right in rows:
        print(f"| {question} | {answer} | {'yes' if right else 'NO'} |")
    return 0 if all(right for *_, right in rows) else 1


def record(place: Path, rounds: int, runs: int) -> None:
    """Record both sides in turns."""
    place.mkdir(parents=True, exist_ok=True)
    program = place / "bin" / "pinned"
    program.parent.mkdir(exist_ok=True)
    subprocess.run(["gcc", "-O2", "-pthread", "-o", str(program), str(PROGRAM)], check=True)
    for number in range(1, rounds + 1):
        for side, options in SIDES.items():
            to = place / side / str(number)
            if not to.exists():
                command = [str(program), *options, *WORK]
                critpath("record", "--quiet", "-n", runs, "-o", to, "--", *command)
    if not (place / "machine").exists():
        # As who knows nothing of the program would: all that runs, for some seconds.
        whole = [*CRITPATH, "record", "-a", "--quiet", "--duration", "6"]
        with subprocess.Popen([*whole, "-o", str(place / "machine")]) as recorder:
            while recorder.poll() is None:
                subprocess.run([str(program), *WORK], check=True)


def judge(place: Path) -> list[tuple[str, str, bool]]:
    """Return questions, their answers, and whether these are as was written before."""
    both = [place / side for side in SIDES]
    compared = json.loads(critpath("compare", *both, "--quiet", "--json", "-"))
    slices = ("--execution", "slices:wake", "--quiet", "--json", "-")
    machine = json.loads(critpath("explore", place / "machine", *slices))
    explored = json.loads(critpath("explore", *both, *slices, "--what", "set == 'sample'"))
    return [*judge_cause(compared), judge_clusters(machine), judge_condition(explored)]


def judge_cause(document: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Judge the verdict and the first cause."""
    first = next(iter(document["causes"]), {"sentence": "none", "facts": {}})
    facts, said = first["facts"], first["sentence"]
    share = facts.get("elsewhere_idle") or 0.0
    right = facts.get("state") == "WAIT_CPU" and facts.get("cpu") == 0 and share >= 0.5
    right = right and bool(re.search("all on CPU 0 while another was idle", said))
    verdict = document["verdict"]
    shown = f"{said} (another cpu idle for {100 * share:.0f} % of it)"
    return [("verdict", verdict, verdict == "anomaly"), ("first cause", shown, right)]


def judge_clusters(document: dict[str, Any]) -> tuple[str, str, bool]:
    """Judge which slices wait most for a cpu."""
    first = next(iter(document["clusters"]), {"label": "none", "executions": 0, "cpu": 0.0})
    shown = (
        f"`{first['label']}`: {first['executions']:,} of {document['executions']:,} slices of the "
        f"machine, {first['cpu'] / 1e6:.2f} ± {first['cpu_variance'] ** 0.5 / 1e6:.2f} ms each"
    )
    return "whose slices wait most for a cpu", shown, first["label"].startswith("pinned")


def judge_condition(document: dict[str, Any]) -> tuple[str, str, bool]:
    """Judge what the pinned side has in common."""
    question = document["questions"][0]
    first = next(iter(question["conditions"]), {"condition": "none", "also": [], "p": None})
    named = [first["condition"], *(one["condition"] for one in first["also"])]
    on_first = {"cpu == 0", "cpu@pinned == 0"} & set(named)
    right = bool(on_first) and first["p"] is not None and first["p"] <= 0.05
    return "what the pinned side has in common", " = ".join(named), right


def critpath(*arguments: object) -> str:
    """Run the command line; return what it printed."""
    done = subprocess.run(
        [*CRITPATH, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in {0, 1, 3}:
        raise RuntimeError(f"critpath {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
