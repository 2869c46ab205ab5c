"""Healthy pairs by the hundred: ``python healthy.py record|draw|judge DIR [--critpath C] ...``.

`record` makes single recordings of programs whose work never changes (`dials.py`), two straight
after one another without a neighbour and two with one, a round for every few minutes, and in each
round one in alternation. `draw` makes pairs of them in ``DIR/pairs``, which `judge.py` judges too:

* turns: a recording in alternation whose blocks a coin hands out anew, as `record` does;
* straight: the two of one round, either first;
* apart: of two rounds, of the same weather;
* neighbour: of one round, with a neighbour on one side;
* boots: of two boots of a guest (``--boots DIR``: a result of `guest.sh` for each).

`judge` compares every pair, and prints and keeps how many alarm.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from cases import CASES, DIALS, Case
from judge import judge
from record import fill, keep_busy, record, stop_when_told
from results import write_results

WANTED: Final = 300  # pairs of each kind
SEED: Final = 38
BESIDE: Final = ("cachecli", "py-relay", "py-threads")  # of the corpus, with other threads
_FLOOR: Final = 5  # percent that medians differ by
NEIGHBOURS: Final = ("stress-ng", "indexer")


def list_programs() -> list[Case]:
    """Return what is recorded: healthy versions of cases."""
    return [*DIALS, *(case for case in CASES if case.name in BESIDE)]


def record_rounds(
    place: Path, critpath: str, rounds: range, names: list[str], only: list[str]
) -> None:
    """Record every program in each round: twice quiet, twice busy, once in alternation."""
    for number in rounds:
        for i, case in enumerate(list_programs()):
            if names and case.name not in names:
                continue
            line = fill(case.before, place)
            who = NEIGHBOURS[(number + i) % 2]
            turns = "busy" if (number + i // 2) % 2 else "quiet"
            for kind in ("quiet-a", "quiet-b", "busy-a", "busy-b", f"turns-{turns}"):
                to = place / "singles" / f"{case.name}-{number:02d}-{kind}"
                if (only and kind not in only) or (to / "truth.json").exists():
                    continue
                shutil.rmtree(to, ignore_errors=True)
                to.mkdir(parents=True)
                what = (
                    ["--interleave", line, line] if "turns" in kind else ["--", *shlex.split(line)]
                )
                begin = time.time()
                long = dataclasses.replace(case, runs=max(8, case.runs))
                try:
                    with keep_busy(place, who, really="busy" in kind):
                        load = record(
                            critpath, long if "turns" in kind else case, to / "one", *what
                        )
                except (RuntimeError, subprocess.TimeoutExpired) as problem:
                    print(f"left out: {problem}", flush=True)
                    continue
                truth = {
                    "case": case.name,
                    "round": number,
                    "recorded": kind,
                    "execution": case.execution,
                    "neighbour": who if "busy" in kind else "",
                    "load": [load],
                    "time": begin,
                }
                (to / "truth.json").write_text(json.dumps(truth, indent=1))
        print(f"round {number}: {time.strftime('%H:%M:%S')}", flush=True)


def deal_blocks(manifests: list[dict[str, Any]], coin: random.Random) -> list[dict[str, Any]]:
    """Return the manifests of a recording in alternation, its blocks dealt anew by a coin."""
    order = str(manifests[0]["order"])
    runs = {"A": iter(manifests[0]["runs"]), "B": iter(manifests[1]["runs"])}
    size = int(manifests[0]["block_runs"])
    places = [next(runs[side]) for side in order]
    swap = {"A": "B", "B": "A"}
    dealt = "".join(
        "".join(swap[s] for s in block) if coin.random() < 0.5 else block
        for block in (order[at : at + size] for at in range(0, len(order), size))
    )
    return [
        manifest
        | {
            "order": dealt,
            "runs": [
                run | {"number": n}
                for n, run in enumerate(
                    (run for run, s in zip(places, dealt, strict=True) if s == side), 1
                )
            ],
        }
        for manifest, side in zip(manifests, "AB", strict=True)
    ]


def copy_links(source: Path, target: Path) -> None:
    """Copy a recording with hard links, but its manifest."""
    shutil.copytree(source, target, copy_function=lambda a, b: Path(b).hardlink_to(a))
    manifest = target / "critpath.json"
    text = manifest.read_text()
    manifest.unlink()
    manifest.write_text(text)


def write_pair(
    to: Path, sides: tuple[Path, Path], truths: list[dict[str, Any]], **more: Any
) -> None:
    """Write a pair as `judge.py` reads it."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for name, side in zip(("normal", "sample"), sides, strict=True):
        copy_links(side, to / name)
    truth = {
        "name": to.name,
        "case": truths[0]["case"],
        "kind": "healthy",
        "execution": truths[0]["execution"],
        "what": "nothing changed",
        "right": [],
        "partly": [],
        "changed": "none",
        "whose": "nobody",
        "load": [load for truth in truths for load in truth["load"]],
        "minutes": round(abs(truths[0]["time"] - truths[-1]["time"]) / 60, 1),
        **more,
    }
    (to / "truth.json").write_text(json.dumps(truth, indent=1))


def read_singles(place: Path, boots: Path | None) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Return every recording by its name: of this machine, and results of `guest.sh` by boots."""
    found = {}
    here = sorted((place / "singles").glob("*/truth.json"))
    for file in [*here, *(sorted(boots.glob("*/out/singles/*/truth.json")) if boots else ())]:
        truth = json.loads(file.read_text()) | {"boot": ""}
        if file not in here:
            truth |= {"boot": file.parents[3].name, "recorded": "boots"}
        found[truth["boot"] + file.parent.name] = file.parent / "one", truth
    return found


def list_pairs(found: dict[str, tuple[Path, dict[str, Any]]]) -> dict[str, list[tuple[str, str]]]:
    """Return which pairs there can be of each kind; one in turns is a recording and a number."""
    possible: dict[str, list[tuple[str, str]]] = defaultdict(list)
    of_turns = [name for name in found if "-turns-" in name]
    times = -(-WANTED // max(1, len(of_turns)))
    possible["turns"] = [(name, str(n)) for n in range(times) for name in of_turns]
    for one, other in combinations([name for name in found if name not in of_turns], 2):
        a, b = found[one][1], found[other][1]
        alike = a["recorded"].split("-")[0] == b["recorded"].split("-")[0]
        if a["case"] != b["case"] or (a["boot"] and a["boot"] == b["boot"]):
            continue
        if a["boot"] != b["boot"]:
            kind = "boots" if alike else ""
        elif a["round"] == b["round"]:
            kind = "straight" if alike else "neighbour"
        else:
            kind = "apart" if alike else ""
        if kind:
            possible[kind] += [(one, other), (other, one)]
    return possible


def draw_pairs(place: Path, boots: Path | None) -> None:
    """Make pairs of each kind: as many as wanted, or as can be."""
    found = read_singles(place, boots)
    coin = random.Random(SEED)  # noqa: S311 - who reads it may draw the same
    for kind, those in list_pairs(found).items():
        chosen = those[:WANTED] if kind == "turns" else coin.sample(those, min(WANTED, len(those)))
        for number, (one, other) in enumerate(chosen):
            to = place / "pairs" / f"healthy-{kind}-{number:03d}"
            folder, truth = found[one]
            condition = truth["recorded"].split("-")[-1 if kind == "turns" else 0]
            if kind == "turns":
                sides, truths, of = (folder / "normal", folder / "sample"), [truth], [one]
            else:
                second = found[other]
                sides, truths, of = (folder, second[0]), [truth, second[1]], [one, other]
            if kind == "neighbour":
                condition = "before" if condition == "busy" else "after"
            write_pair(to, sides, truths, order=kind, condition=condition, of=of)
            if kind == "turns" and int(other):  # the first is as it was recorded
                files = [to / side / "critpath.json" for side in ("normal", "sample")]
                manifests = [json.loads(file.read_text()) for file in files]
                for file, dealt in zip(files, deal_blocks(manifests, coin), strict=True):
                    file.write_text(json.dumps(dealt, indent=1))
        print(f"{kind}: {len(chosen)} pairs of {len(those)}", flush=True)


def judge_pairs(place: Path, critpath: str, names: list[str], to: Path | None) -> None:
    """Compare every pair that is not in the file yet; print and keep how many alarm."""
    facts: dict[str, dict[str, Any]] = {}
    if to and to.exists():
        facts = {one["name"]: one for one in json.loads(to.read_text())["pairs"]}
    for folder in sorted((place / "pairs").glob("healthy-*/")):
        if folder.name in facts or (names and not any(n in folder.name for n in names)):
            continue
        one = judge(critpath, folder)
        truth = json.loads((folder / "truth.json").read_text())
        of = " and ".join(truth["of"])
        told = {key: truth[key] for key in ("case", "load", "minutes")}
        facts[folder.name] = {**vars(one), "of": of, **told}
        if one.worth != "fine" or one.innocents[0]:
            marked = f"{one.innocents[0]} of {one.innocents[1]} marked"
            print(f"{one.worth:12} {one.name} ({of}), {marked}: {one.first}", flush=True)
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for fact in facts.values():
        for key in ("", f", {fact['condition']}", f", {fact['case']}"):
            groups[fact["order"] + key].append(fact)
    rows = [summarize_group(what, those) for what, those in sorted(groups.items())]
    print(f"\n| {' | '.join(rows[0])} |\n|---{'|---:' * (len(rows[0]) - 1)}|")
    for row in rows:
        print(f"| {' | '.join(row.values())} |")
    if to:
        write_results(to, rows, pairs=[*facts.values()])


def summarize_group(what: str, those: list[dict[str, Any]]) -> dict[str, str]:
    """Return a row of the table: how many pairs were answered how."""
    worth = Counter(one["worth"] for one in those)
    small = sum(
        one["worth"] == "inconclusive" and abs(one["effect"] or 0) < _FLOOR for one in those
    )
    marked, of = (sum(one["innocents"][i] for one in those) for i in (0, 1))
    return {
        "healthy pairs": what,
        "pairs": str(len(those)),
        "alarms": str(worth["alarm"]),
        "by the machine": str(worth["machine"]),
        "faster": str(worth["faster"]),
        "inconclusive": str(worth["inconclusive"]),
        "of them below the floor": str(small),
        "OK": str(worth["fine"]),
        "requests marked": f"{marked} of {of}",
    }


def main() -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("what", choices=("record", "draw", "judge"))
    parser.add_argument("place", type=Path)
    parser.add_argument("names", nargs="*", help="of programs, or parts of names of pairs")
    parser.add_argument("--critpath", default=shutil.which("critpath") or "critpath")
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", action="append", default=[], help="such as quiet-a")
    parser.add_argument("--boots", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_intermixed_args()
    stop_when_told()
    place = given.place.resolve()
    if given.what == "record":
        rounds = range(given.first, given.first + given.rounds)
        record_rounds(place, given.critpath, rounds, given.names, given.only)
    elif given.what == "draw":
        draw_pairs(place, given.boots)
    else:
        judge_pairs(place, given.critpath, given.names, given.json)


if __name__ == "__main__":
    main()
