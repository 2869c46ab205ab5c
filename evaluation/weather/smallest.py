"""The smallest change that is found: ``python smallest.py DIR [--critpath C] [PROGRAM ...]``.

Programs whose requests have some percent more of the same work (`dials.py`), ten runs of eight
requests a side in alternation beside busy neighbours, are SLOWER in most of three repetitions.
Steps go down from 10 % while that holds, else up. Needs root, tracefs and what `services.sh`
starts.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from cases import DIALS, Case
from judge import Judged, judge
from record import record_pair, stop_when_told
from results import write_results

STEPS: Final = (2, 5, 10, 15, 20, 30)  # percent more
FIRST: Final = STEPS.index(10)
RUNS: Final = 10
REPETITIONS: Final = 3


def choose_step(found: list[bool]) -> int | None:
    """Return the step to try next, given whether those so far were found."""
    if not found:
        return FIRST
    if len(set(found)) > 1:
        return None
    step = FIRST - len(found) if found[0] else FIRST + len(found)
    return step if 0 <= step < len(STEPS) else None


def try_step(
    critpath: str, place: Path, case: Case, percent: int, condition: str
) -> Iterator[Judged]:
    """Record and judge every repetition of a step."""
    for number in range(REPETITIONS):
        who = ("stress-ng", "indexer")[number % 2]
        dialled = dataclasses.replace(
            case,
            name=f"{case.name}-{percent:02d}-{number}",
            after=case.small.replace("DIAL", str(100 + percent)),
            runs=RUNS,
        )
        how = {"condition": condition, "straight": False, "healthy": False, "who": who}
        record_pair(critpath, place, dialled, **how)  # type: ignore[arg-type]
        pair = place / "pairs" / f"{dialled.name}-{condition}-turns"
        yield judge(critpath, pair)


def main() -> None:
    """Find the smallest step of every program."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--critpath", default=shutil.which("critpath") or "critpath")
    parser.add_argument("--condition", choices=("busy", "quiet"), default="busy")
    parser.add_argument("--json", type=Path)
    given = parser.parse_intermixed_args()
    stop_when_told()
    rows: list[dict[str, str]] = []
    heads = ("program", "smallest found", "its medians", "steps")
    for case in DIALS:
        if given.names and case.name not in given.names:
            continue
        found: list[bool] = []
        smallest: tuple[int, float] | None = None
        steps: list[str] = []
        while (step := choose_step(found)) is not None:
            percent = STEPS[step]
            place = given.place.resolve()
            results = [*try_step(given.critpath, place, case, percent, given.condition)]
            said = Counter(one.verdict for one in results)
            found.append(2 * said["slower"] > len(results))
            effect = statistics.median(one.effect or 0.0 for one in results)
            if found[-1]:
                smallest = percent, effect
            steps.append(f"{percent} % ({effect:+.0f} %): {said['slower']} of {len(results)}")
            print(f"{case.name} {steps[-1]}: {dict(said)}", flush=True)
        told = (f"{smallest[0]} %", f"{smallest[1]:+.0f} %") if smallest else ("none", "-")
        rows.append(dict(zip(heads, (case.name, *told, "; ".join(steps)), strict=True)))
    print(f"| {' | '.join(heads)} |\n|---|{'---|' * (len(heads) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row.values())} |")
    if given.json:
        write_results(given.json, rows)


if __name__ == "__main__":
    main()
