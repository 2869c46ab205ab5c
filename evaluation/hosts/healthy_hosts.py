"""A healthy pair over several hosts must be OK: the same servers, recorded in turns and apart.

Run: ``python evaluation/hosts/healthy_hosts.py DIR [--python PYTHON] [--busy N] [--judge-only]``,
as root, with the servers of `tests/hosts`. Namespaces are hosts, a recording per host is made of
each turn; nothing changes between turns. Sets are of the turns as a coin ordered them (ABBA or
BAAB), and of the first half against the second, and each turn alone against the next. What must
hold was written before: in turns OK; what was recorded apart never SLOWER, and without a verdict
only for a reason that is said of the machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "hosts"))

import numpy as np
import services
import spaces
from record import record, write_split

from critpath.model.recording import HOSTS_FORMAT

CRITPATH: Final = str(Path(sys.executable).with_name("critpath"))
SEED: Final = 18


def main() -> None:
    """Record the turns and print both answers."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--turns", type=int, default=12, help="a multiple of four")
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--work", default="select1:1")
    parser.add_argument("--busy", type=int, default=0, help="processes that want a cpu besides")
    parser.add_argument("--judge-only", action="store_true")
    given = parser.parse_args()
    lacks = spaces.missing() or services.missing(given.python)
    if lacks and not given.judge_only:
        sys.exit(f"cannot record here: {lacks}")
    if not given.judge_only:
        record_turns(given)
    every = sorted((given.place / "turns").iterdir())
    draw = np.random.default_rng(SEED)
    order = "".join(str(draw.choice(("ABBA", "BAAB"))) for _ in range(len(every) // 4))
    half = len(every) // 2
    answers = {"in turns": order, "one after the other": "A" * half + "B" * half}
    for name, letters in answers.items():
        verdict, headline = judge(given.place / name.replace(" ", "-"), every, letters)
        print(f"{name}: {verdict}: {headline}", flush=True)
    verdicts: Counter[str] = Counter()
    for pair in pairwise(every):
        verdict, headline = judge(given.place / "pair", list(pair), "AB")
        verdicts[verdict] += 1
        print(f"{pair[0].name} against {pair[1].name}: {verdict}: {headline}", flush=True)
    said = ", ".join(f"{verdict} {times}" for verdict, times in sorted(verdicts.items()))
    print(f"one turn against the next: {said}")


@contextmanager
def keep_busy(count: int) -> Iterator[None]:
    """Have so many processes want a cpu nearly all the time."""
    loop = "while :; do for k in $(seq 20000); do :; done; sleep 0.02; done"
    running = [subprocess.Popen(["sh", "-c", loop]) for _ in range(count)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def record_turns(given: argparse.Namespace) -> None:
    """Record every turn, and write what each host would have recorded by its own clock."""
    work, pattern = given.work.split(":")
    with (
        keep_busy(given.busy),
        services.Services(given.python) as park,
        park.application(work, int(pattern)),
    ):
        for turn in range(given.turns):
            to = given.place.resolve() / "whole" / f"{turn:02d}"
            record(park, [CRITPATH], to, given.connections, given.requests)
    shutil.rmtree(given.place / "turns", ignore_errors=True)
    for to in sorted((given.place / "whole").iterdir()):
        write_split(to, SEED)
        shutil.move(to / "hosts", given.place / "turns" / to.name)
        hosts = [
            {"name": one.name, "recording": one.name}
            for one in sorted((given.place / "turns" / to.name).iterdir())
        ]
        listed = json.dumps({"format": HOSTS_FORMAT, "hosts": hosts})
        (given.place / "turns" / to.name / "hosts.json").write_text(listed)


def judge(place: Path, every: list[Path], letters: str) -> tuple[str, str]:
    """Return the verdict and the first line of the answer about turns with these letters."""
    shutil.rmtree(place, ignore_errors=True)
    for turn, letter in zip(every, letters, strict=True):
        shutil.copytree(turn, place / letter / turn.name)
    written = place / "answer.json"
    words = ("compare", place / "A", place / "B", "--execution", "requests:web:8080")
    done = subprocess.run(
        [CRITPATH, *map(str, words), "--json", str(written), "--quiet"],
        check=False,
        capture_output=True,
        text=True,
    )
    if not written.exists():
        return "failed", done.stderr.strip()
    return json.loads(written.read_text())["verdict"], " ".join(done.stdout.split())[:400]


if __name__ == "__main__":
    main()
