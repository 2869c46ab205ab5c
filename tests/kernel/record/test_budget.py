"""Recordings of this kernel under a budget: of a program, of runs, and of the machine."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from critpath_marks.channels import PLACE

pytestmark = pytest.mark.usefixtures("traceable")

INSTANCES = Path("/sys/kernel/tracing/instances")
# One in ten executions asks another process far more often than the others; 0 is for ever.
# Others may mark executions meanwhile: these have names of their own.
NAMES = {kind: f"{kind}-{os.getpid()}" for kind in ("common", "rare")}
PROGRAM = """
import os, sys
from critpath_marks import execution
a, b, most, common, rare = os.eventfd(0), os.eventfd(0), int(sys.argv[1]), *sys.argv[2:]
other = os.fork()
if other == 0:
    while True:
        os.eventfd_read(a)
        os.eventfd_write(b, 1)
number = 0
while not most or number < most:
    number += 1
    with execution(common if number % 10 else rare, key=number):
        for _ in range(4 if number % 10 else 100):
            os.eventfd_write(a, 1)
            os.eventfd_read(b)
    if number == 100:
        print("busy", flush=True)
os.kill(other, 9)
"""


def words_of(most: int) -> tuple[object, ...]:
    """Return the program's command line, for so many executions."""
    return sys.executable, "-c", PROGRAM, most, *NAMES.values()


class Recorded:
    """A finished recording: its manifest, its gaps, and what was chosen."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.manifest: dict[str, Any] = json.loads((place / "critpath.json").read_text())
        self.gaps = self._rows("gaps.jsonl")
        self.chosen = self._rows("selected.jsonl")
        assert self.manifest["format"] == "critpath/recording/2"
        assert self.manifest["gaps"] == "gaps.jsonl"
        last = defaultdict(lambda: self.manifest["begin"])  # of each layer: they have their own
        for gap in self.gaps:
            ends = last[gap["layer"]], gap["begin"], gap["closed"], gap["opening"], gap["end"]
            assert [*ends] == sorted(ends)
            last[gap["layer"]] = gap["end"]
        assert max(last.values(), default=0) <= self.manifest["end"]

    def _rows(self, name: str) -> list[dict[str, Any]]:
        file = self.place / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def left_of(pid: int) -> list[Path]:
    """Return the instances, and what programs look for, that a recorder has made."""
    tops = [top for top in (INSTANCES, Path(PLACE)) if top.is_dir()]
    return [place for top in tops for place in top.iterdir() if f"-{pid}-" in place.name]


@pytest.fixture(scope="module")
def of_a_program(record, tmp_path_factory) -> Recorded:
    """Record a program that marks 1,000 executions, of which the budget allows nearly all."""
    place = tmp_path_factory.mktemp("program")
    budget = ("--overhead", "500%", "--execution", "marker")
    done = record(place, "a", *budget, "--", *words_of(1000))
    assert "% counted" in done.said
    assert not left_of(done.pid)
    return Recorded(place / "a")


def test_a_program_chooses_its_executions_and_those_are_whole(
    of_a_program: Recorded, critpath: Callable[..., Any]
) -> None:
    found, kinds = of_a_program, of_a_program.manifest["executions"]
    assert [kinds[name]["seen"] for name in NAMES.values()] == [900, 100]
    assert sum(of["selected"] for of in kinds.values()) == len(found.chosen) > 0
    assert sum(kinds[name]["selected"] for name in NAMES.values()) > 0
    assert all(of["selected"] + of["cut"] <= of["seen"] for of in kinds.values())
    assert all(0 < row["chance"] <= 1 for row in found.chosen)
    begun = [row["begin"] for row in found.chosen]
    assert not [t for t in begun for g in found.gaps if g["begin"] <= t < g["end"]]
    done = critpath(
        "export",
        "--format",
        "paths",
        found.place,
        "-o",
        found.place.parent / "p.parquet",
        "--execution",
        "marker",
    )
    assert done.returncode == 0, done.stderr
    assert "chosen by chance" in done.stderr


def test_what_was_recorded_and_what_it_cost_is_told(of_a_program: Recorded) -> None:
    manifest = of_a_program.manifest
    held, base = manifest["overhead"], manifest["layers"]["base"]
    assert (held["target"], held["chosen_by"]) == (5.0, "programs")
    assert held["counted"] > 0
    assert base["windows"] >= 1
    assert base["events"] > 1000
    assert base["open"] <= (manifest["end"] - manifest["begin"]) / 1e9
    assert of_a_program.gaps[0]["why"] == "start"
    metadata = (of_a_program.place / "trace" / "kernel" / "metadata").read_text()
    assert "critpath_gap_begin" in metadata


def test_runs_are_recorded_whole_or_not_at_all(record, tmp_path: Path) -> None:
    """With a time limit of the user's, or a run that has to wait for a cpu is given up."""
    words = ("--overhead", "20%", "-n", 10, "--timeout", "60", "--", "true")
    record(tmp_path, "r", *words)
    found = Recorded(tmp_path / "r")
    chosen, runs = {row["key"] for row in found.chosen}, found.manifest["runs"]
    assert len(runs) == 10
    for run in runs:
        inside = [g for g in found.gaps if g["begin"] < run["end"] and g["end"] > run["begin"]]
        if run["number"] in chosen:
            assert not inside
        else:
            # In one gap, edges included: it may begin within the millisecond in which events that
            # met an open gate are still written, which no path uses either.
            [gap] = inside
            assert gap["begin"] <= run["begin"]
            assert run["end"] <= gap["end"]
    counts = {"seen": 10, "selected": len(chosen), "cut": 0}
    assert found.manifest["executions"] == {"true": counts}


def test_a_recorder_that_is_killed_leaves_gaps_and_nothing_else(
    start, wait_for, critpath, tmp_path: Path
) -> None:
    """While a program opens and closes its gate."""
    program = start(*words_of(0), cwd=tmp_path)
    assert program.read_out() == "busy"
    words = ("record", "--overhead", "50%", "-a", "--duration", "600", "-o", "k")
    recorder = start(sys.executable, "-m", "critpath", *words, cwd=tmp_path)
    recorder.wait_until_said("recording for")
    journal = wait_for(lambda: next(tmp_path.rglob("gaps-journal.jsonl"), None))
    wait_for(lambda: journal.read_text().count('"opening"') > 3)
    recorder.send(signal.SIGKILL)
    recorder.process.wait()
    mine = [place for place in left_of(recorder.pid) if place.parent == INSTANCES]
    assert len(mine) >= 2  # that of the base, and of what the budget pays for by then
    wait_for(lambda: all((p / "tracing_on").read_text().strip() == "0" for p in mine))
    program.kill()
    critpath("doctor", "--clean")
    assert not left_of(recorder.pid)
    found = Recorded(tmp_path / "k")
    assert found.manifest["state"] == "interrupted"
    assert found.gaps
    names = {place.name for place in (tmp_path / "k").iterdir()}
    assert names == {"critpath.json", "gaps.jsonl", "trace"}
    # Of what was recorded by then there may be no whole execution.
    assert critpath("path", tmp_path / "k", "--execution", "marker").returncode in {0, 3}
