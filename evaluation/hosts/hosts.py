"""The paper's experiment: concurrent requests told apart, eight workloads in five patterns.

Run: ``python evaluation/hosts/hosts.py DIR [--judge-only] [SET ...]``, as root, with the servers
of `tests/hosts`; or on recordings of ``tests/hosts/record.py``. Of each set precision and recall
of the events of a path (mean over requests), by critpath's way and by others' (``--assign``), and
how often links are right that are called so sure. Tables go to stdout, all counts to
``DIR/hosts.json``.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Final

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "servers"))
sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "hosts"))

from results import write_results
from services import PATTERNS, WORKS
from truth import Score, judge

from critpath.executions.specification import ASSIGN

ROOT: Final = Path(__file__).resolve().parents[2]
TITLES: Final = {
    1: "synchronous",
    2: "asynchronous",
    3: "asynchronous, new thread",
    4: "asynchronous, answers first",
    5: "new thread, answers first",
    6: "asynchronous, pool of 8 threads",  # not of the paper
}
# What the paper published (precision, recall) as its best of each workload.
PUBLISHED: Final = {
    "cpu": (0.678, 0.861),
    "sleep": (0.691, 0.888),
    "ioread": (0.674, 0.880),
    "iowrite": (0.681, 0.864),
    "select1": (0.558, 0.801),
    "outer": (0.658, 0.884),
    "select2": (0.602, 0.810),
    "lock": (0.695, 0.855),
}


def main() -> None:
    """Record what is asked for, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--connections", type=int, default=12)
    parser.add_argument("--requests", type=int, default=144)
    parser.add_argument("--judge-only", action="store_true")
    parser.add_argument("names", nargs="*", help="sets, as outer:3 (default: all)")
    given = parser.parse_intermixed_args()
    names = given.names or [f"{work}:{pattern}" for pattern in PATTERNS for work in WORKS]
    if not given.judge_only:
        words = (
            str(ROOT / "tests/hosts/record.py"),
            str(given.place),
            "--python",
            str(given.python),
        )
        more = ("--connections", str(given.connections), "--requests", str(given.requests))
        subprocess.run([sys.executable, *words, *more, *names], check=True)
    find_requests = _load("evaluation/servers/judge.py").find_requests
    scores: dict[str, dict[str, Score]] = {}
    for name in names:
        recorded = given.place / f"{name.replace(':', '-')}-{given.connections}"
        if not (recorded / "recording").exists():
            print(f"{name}: not recorded")
            continue
        scores[name] = {
            method: judge(recorded, find_requests(recorded / "recording", _asked(method)))
            for method in ASSIGN
        }
        said = ", ".join(f"{m} {tell(s)}" for m, s in scores[name].items())
        print(f"{name}: {said}", flush=True)
    print_tables(scores)
    document = {
        name: {
            method: {"precision": of.mean[0], "recall": of.mean[1], "whole": of.whole}
            for method, of in each.items()
        }
        for name, each in scores.items()
    }
    write_results(given.place / "hosts.json", document)


def _asked(method: str) -> str:
    return f"requests:assign={method}"


def _load(place: str) -> ModuleType:
    """Load a module that another has the name of."""
    specification = importlib.util.spec_from_file_location("servers_judge", ROOT / place)
    if specification is None or specification.loader is None:
        raise ImportError(place)
    module = importlib.util.module_from_spec(specification)
    sys.modules["servers_judge"] = module
    specification.loader.exec_module(module)
    return module


def tell(score: Score) -> str:
    """Return precision and recall, cut, not rounded."""
    return "/".join(f"{int(share * 1000) / 1000:.3f}" for share in score.mean)


def print_tables(scores: dict[str, dict[str, Score]]) -> None:
    """Print workloads by methods, patterns by methods, and how right what is called sure is."""
    print(f"\n| workload | published | {' | '.join(ASSIGN)} |")
    print(f"|---|---|{'---|' * len(ASSIGN)}")
    for work in dict.fromkeys((*WORKS, *(name.split(":")[0] for name in scores))):
        mine = [each for name, each in scores.items() if name.split(":")[0] == work]
        if mine:
            said = "/".join(f"{share:.3f}" for share in PUBLISHED.get(work, ()))
            print(f"| {work.upper()} | {said} | {_row(mine)} |")
    print(f"| all | 0.645/0.851 | {_row([*scores.values()])} |")
    print(f"\n| pattern | {' | '.join(ASSIGN)} |\n|---|{'---|' * len(ASSIGN)}")
    for pattern in TITLES:
        mine = [each for name, each in scores.items() if name.split(":")[1] == str(pattern)]
        if mine:
            print(f"| {pattern} {TITLES[pattern]} | {_row(mine)} |")
    queues = [each["queues"] for each in scores.values()]
    if not queues:
        return
    lowest = np.min([of.mean for of in queues], axis=0)
    print(f"\nlowest of {len(queues)} sets: {lowest[0]:.3f}/{lowest[1]:.3f}")
    print(f"wholly right: {np.mean([of.whole for of in queues]):.3f}")
    pairs = [
        (p == r == 1, sure)
        for of in queues
        for p, r, sure in zip(of.precision, of.recall, of.sure, strict=True)
    ]
    sure = [right for right, probable in pairs if probable >= 0.9]
    if sure:
        print(f"wholly right of {len(sure)} that are 0.9 sure: {np.mean(sure):.3f}")
    print(f"first and last tenth differ by {np.mean([of.cascade for of in queues]):.3f}")
    print(f"exchanges that are in no table: {sum(of.missing for of in queues)}")
    print(f"exchanges begun after the recording's end: {sum(of.later for of in queues)}")
    print(f"exchanges begun before its end, ended after: {sum(of.cut for of in queues)}")
    tenths: dict[int, list[bool]] = defaultdict(list)
    for of in queues:
        for probable, right in of.links:
            tenths[min(int(probable * 10), 9)].append(right)
    print("\n| called | links | right |\n|---|---:|---:|")
    for tenth, right in sorted(tenths.items(), reverse=True):
        print(
            f"| {tenth / 10:.1f} to {tenth / 10 + 0.1:.1f} | {len(right)} | {np.mean(right):.3f} |"
        )


def _row(mine: list[dict[str, Score]]) -> str:
    """Return the cells of a row: of each method the mean over sets."""
    cells = []
    for method in ASSIGN:
        shares = np.mean([each[method].mean for each in mine], axis=0)
        cells.append("/".join(f"{int(share * 1000 + 1e-6) / 1000:.3f}" for share in shares))
    return " | ".join(cells)


if __name__ == "__main__":
    main()
