"""The fault matrix: what critpath finds of faults of known kind and strength.

``python evaluation/case_studies/faults.py [--kinds a,b] [--strengths 1,2,3] [--repetitions N]
[--healthy N] [--csv FILE] [--resume] [--json FILE]``: for each kind of fault and strength, a
healthy and a faulty version of the application (`app.c`) are recorded in alternation and
compared as ``critpath compare`` does by default; and as often, two healthy versions. One
row for each comparison goes to the CSV file as soon as it is there; ``--resume`` leaves out
what the file has.

Three types of requests are served, the affected one among them, 12 of each a side. What
counts as the right cause is `KINDS`, which was written before anything was measured.

Needs root, tracefs and a C compiler. The whole matrix takes less than an hour.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[1]))

from bench import (
    Bench,
    FirstCause,
    Options,
    RecordingError,
    bench,
    extract,
    first_cause,
    weigh,
    why_not,
)
from limits import Group, Limits, NoLimitError
from results import write_results

from critpath import flow
from critpath.errors import CritpathError
from critpath.model import PathSet

ANY: Final = "*"
# Short runs in quick alternation: what the machine does meanwhile befalls both versions.
ROUNDS: Final = 6
EXECUTIONS: Final = 6  # a run, of three types
STRENGTHS: Final = (1, 2, 3)
# Microseconds that the process may run in each period; one execution computes for 8 ms.
QUOTA_US: Final = {1: 4_000, 2: 3_000, 3: 1_500}
PERIOD_US: Final = 5_000


# How long `rival` computes. Of equal priority, it and an execution of 8 ms share the cpu.
RIVAL_MS: Final = {1: 9.5, 2: 12, 3: 18}


@dataclass(frozen=True)
class Kind:
    """A kind of fault, and what an answer must say to be right.

    Attributes
    ----------
    types : str
        Types of requests that are served; the first is affected.
    states : tuple of str
        State that most of the first cause must be in.
    thread : str
        Role of the thread that it must be on: "" for the execution's own, `ANY`.
    detail : str
        What the state's detail must begin with.
    rival : bool
        In both versions a process called `rival` computes on the same cpu.
    """

    types: str
    states: tuple[str, ...]
    thread: str = ""
    detail: str = ""
    rival: bool = False

    def is_right(self, cause: FirstCause) -> bool:
        """Tell whether a cause is what was injected."""
        return (
            cause.state in self.states
            and self.thread in {ANY, cause.thread}
            and (cause.state == "WAIT_QUOTA" or cause.detail.startswith(self.detail))
        )


KINDS: Final = {
    "sleep": Kind("compute,mix1,read", ("WAIT_TIMER",)),
    "lock": Kind("lock,mix1,read", ("RUN",), "holder"),
    "convoy": Kind("lock,mix1,read", ("RUN",), "convoy-#"),
    "fsync": Kind("write,mix1,compute", ("WAIT_DISK",), ANY),
    "reads": Kind("read,mix1,compute", ("WAIT_DISK",), ANY),
    "helper": Kind("pipe,mix2,read", ("RUN",), "helper"),
    "delay": Kind("socket,mix1,read", ("WAIT_TIMER",), "peer"),
    "retry": Kind("pipe,mix2,read", ("RUN",), "helper"),
    "intruder": Kind("compute,mix1,pipe", ("WAIT_CPU",), "", "intruder ("),
    "priority": Kind("compute,mix2,pipe", ("WAIT_CPU",), "", "rival (", rival=True),
    "quota": Kind("compute,mix2,read", ("WAIT_CPU", "WAIT_QUOTA"), "", "idle"),
}


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes
    ----------
    healthy : int
        1 if both versions are healthy.
    verdict : str
        "" where recording failed: `error` says why.
    right : int
        1 if the first cause is what was injected.
    flagged : str
        States that the verdict's test flags.
    marked, faulty, hit : int
        Sample executions that are marked, that had the fault, and both.
    normal_ms, sample_ms : float
        Mean duration of the affected type.
    """

    kind: str
    strength: int
    repetition: int
    healthy: int
    verdict: str = ""
    right: int = 0
    state: str = ""
    thread: str = ""
    detail: str = ""
    contribution_ms: float = 0.0
    share: float = 0.0
    flagged: str = ""
    marked: int = 0
    faulty: int = 0
    hit: int = 0
    normal_ms: float = 0.0
    sample_ms: float = 0.0
    seconds: float = 0.0
    sentence: str = ""
    error: str = ""

    @property
    def key(self) -> tuple[str, int, int, int]:
        """What is measured once."""
        return self.kind, self.strength, self.repetition, self.healthy


def measure(
    built: Bench, name: str, strength: int, repetition: int, *, healthy: bool, seed: int = 0
) -> Row:
    """Record and compare one pair; whatever fails becomes a row that says so."""
    begin = time.monotonic()
    row = Row(name, strength, repetition, int(healthy))
    try:
        result = _compare(built, row, seed)
    except (RecordingError, NoLimitError, CritpathError, OSError) as error:
        result = {"error": str(error) or type(error).__name__}
    seconds = round(time.monotonic() - begin, 2)
    return Row(row.kind, row.strength, row.repetition, row.healthy, seconds=seconds, **result)


def _compare(built: Bench, row: Row, offset: int) -> dict[str, object]:
    kind = KINDS[row.kind]
    # Every version of every pair has an order of its own.
    seed = 2 * (row.repetition + 1000 * list(KINDS).index(row.kind) + 100_000 * row.strength)
    seed += 1_000_000 * row.healthy + 10_000_000 * offset
    common = {
        "types": kind.types,
        "executions": EXECUTIONS,
        **({"rival": RIVAL_MS[row.strength]} if kind.rival else {}),
    }
    with _quota(built, row) as cgroup:
        fault = {"fault": row.kind, "strength": row.strength, **cgroup}
        versions: tuple[Options, Options] = (
            {**common, "seed": seed},
            {**common, "seed": seed + 1, **({} if row.healthy else fault)},
        )
        recordings = built.record(versions, ROUNDS)
    normal, sample = map(extract, recordings)
    comparison = flow.compare(normal, sample)
    cause = first_cause(comparison)
    faulty = {r["id"] for r in _table(built.truth(1)) if r["faulty"]}
    marked = comparison.outliers.anomalous
    affected = kind.types.split(",")[0]
    return {
        "verdict": comparison.verdict,
        "right": int(kind.is_right(cause)),
        "state": cause.state,
        "thread": cause.thread,
        "detail": cause.detail,
        "contribution_ms": round(cause.contribution, 3),
        "share": round(cause.share, 3),
        "flagged": " ".join(s.state for s in comparison.detection.states if s.flagged),
        "marked": int(marked.sum()),
        "faulty": len(faulty),
        "hit": sum(i in faulty for i, m in zip(sample.executions.id, marked, strict=True) if m),
        "normal_ms": _mean(normal, affected),
        "sample_ms": _mean(sample, affected),
        "sentence": cause.sentence,
    }


@contextlib.contextmanager
def _quota(built: Bench, row: Row) -> Iterator[dict[str, object]]:
    """Yield the options of the quota's control group, none for other kinds."""
    if row.kind != "quota" or row.healthy:
        yield {}
        return
    with Group(Limits(quota=(QUOTA_US[row.strength], PERIOD_US)), "faults") as group:
        weigh(group)
        yield {"cgroup": group.places[0], "home": built.home.places[0]}


def _mean(paths: PathSet, label: str) -> float:
    executions = paths.executions
    mine = [i for i, text in enumerate(executions.label) if text == label]
    lasted = (executions.end - executions.begin)[mine]
    return round(float(lasted.mean()) / 1e6, 3) if mine else 0.0


def _table(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


# ------------------------------------------------------------------------ the whole


def plan(
    kinds: Sequence[str], strengths: Sequence[int], repetitions: int, healthy: int
) -> Iterator[tuple[str, int, int, bool]]:
    """Yield what is to be measured: a repetition of everything before the next begins."""
    for repetition in range(max(repetitions, healthy)):
        for kind in kinds:
            for strength in strengths:
                if repetition < repetitions:
                    yield kind, strength, repetition, False
                if repetition < healthy:
                    yield kind, strength, repetition, True


def load(file: Path) -> list[Row]:
    """Read the rows of an earlier run; one that was cut short is left out."""
    types = {f.name: {"str": str, "int": int, "float": float}[str(f.type)] for f in fields(Row)}
    whole = [row for row in _table(file) if None not in row.values()]
    return [Row(**{k: types[k](v) for k, v in row.items()}) for row in whole]


def interval(count: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share after Clopper and Pearson, in percent."""
    from scipy.stats import binomtest  # noqa: PLC0415 - takes half a second to import

    found = binomtest(count, of).proportion_ci(0.95, method="exact")
    return 100 * found.low, 100 * found.high


def share(count: int, of: int) -> str:
    """Return a share for a table."""
    return f"{count}/{of} ({100 * count / of:.1f} %)" if of else "-"


def summary(rows: Iterable[Row]) -> dict[str, object]:
    """Return the figures of all rows: of every kind and strength, and of the targets."""
    # What failed was not detected.
    faulty = [r for r in rows if not r.healthy]
    healthy = [r for r in rows if r.healthy and not r.error]
    strongest = [r for r in faulty if r.strength == max(STRENGTHS)]
    found = [r for r in strongest if r.verdict == "anomaly"]
    alarms = [r for r in healthy if r.verdict == "anomaly"]
    return {
        "cells": {
            kind: {
                str(strength): _cell([r for r in faulty if r.key[:2] == (kind, strength)])
                for strength in STRENGTHS
            }
            for kind in KINDS
        },
        "detected": [len(found), len(strongest)],
        "right": [sum(r.right for r in found), len(found)],
        "alarms": [len(alarms), len(healthy)],
        "seconds": round(sum(r.seconds for r in rows)),
    }


def _cell(rows: list[Row]) -> dict[str, float]:
    found = [r for r in rows if r.verdict == "anomaly"]
    return {
        "of": len(rows),
        "detected": len(found),
        "right": sum(r.right for r in found),
        "normal_ms": sum(r.normal_ms for r in rows) / max(1, len(rows)),
        "sample_ms": sum(r.sample_ms for r in rows) / max(1, len(rows)),
    }


def print_tables(rows: list[Row]) -> None:
    """Print the matrix, the targets, and what went wrong."""
    figures = summary(rows)
    print("| fault | strength | affected type, ms | detected | first cause right |")
    print("|---|---:|---:|---:|---:|")
    for kind, cells in figures["cells"].items():
        for strength, cell in cells.items():
            if cell["of"]:
                times = f"{cell['normal_ms']:.1f} -> {cell['sample_ms']:.1f}"
                right = f"{cell['right']}/{cell['detected']}"
                detected = f"{cell['detected']}/{cell['of']}"
                print(f"| {kind} | {strength} | {times} | {detected} | {right} |")
    (found, strongest), (right, _), (alarms, healthy) = (
        figures[name] for name in ("detected", "right", "alarms")
    )
    print()
    if strongest:
        print(f"detected at strength 3: {share(found, strongest)}; target 100 %")
    if found:
        print(f"first cause right there: {share(right, found)}; target 95 %")
    if healthy:
        low, high = interval(alarms, healthy)
        print(
            f"false alarms among healthy pairs: {share(alarms, healthy)}, "
            f"95 % interval {low:.2f} to {high:.2f} %; target 1 %"
        )
    inconclusive = sum(r.verdict == "inconclusive" for r in rows)
    print(f"inconclusive: {inconclusive}; failed: {sum(bool(r.error) for r in rows)}")
    print(f"comparisons: {len(rows)} in {figures['seconds'] / 60:.1f} minutes")
    for row in rows:
        missed = row.strength == max(STRENGTHS) and not row.healthy and not row.right
        if row.error or missed or (row.healthy and row.verdict != "ok"):
            what = "healthy" if row.healthy else f"strength {row.strength}"
            text = row.error or f"{row.verdict}: {row.sentence or 'no cause'}"
            print(f"- {row.kind}, {what}, repetition {row.repetition}: {text}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="the fault matrix")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--strengths", default="1,2,3")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--healthy", type=int, help="healthy pairs (as many)")
    parser.add_argument("--csv", type=Path, help="one row for each comparison")
    parser.add_argument("--resume", action="store_true", help="leave out what --csv has")
    parser.add_argument("--json", type=Path, help="the figures and all rows")
    parser.add_argument("--seed", type=int, default=0, help="another one, other requests")
    given = parser.parse_args(arguments)
    kinds, strengths = given.kinds.split(","), [int(s) for s in given.strengths.split(",")]
    if wrong := [k for k in kinds if k not in KINDS] or set(strengths) - set(STRENGTHS):
        parser.error(f"not known: {wrong}")
    if given.resume and not given.csv:
        parser.error("--resume needs --csv")
    if reason := why_not():
        print(f"faults: left out, {reason}")
        return 0
    healthy = given.repetitions if given.healthy is None else given.healthy
    rows = load(given.csv) if given.resume and given.csv.exists() else []
    rows = [r for r in rows if not r.error]
    wanted = list(plan(kinds, strengths, given.repetitions, healthy))
    with bench() as built, _writer(given.csv, rows) as write:
        for number, (kind, strength, repetition, both) in enumerate(wanted, 1):
            if any(r.key == (kind, strength, repetition, int(both)) for r in rows):
                continue
            row = measure(built, kind, strength, repetition, healthy=both, seed=given.seed)
            rows.append(row)
            write(row)
            if sys.stderr.isatty():
                print(f"\r{number} of {len(wanted)} comparisons", end="", file=sys.stderr)
    print_tables(rows)
    if given.json:
        write_results(given.json, [asdict(r) for r in rows], summary=summary(rows))
    return 0


@contextlib.contextmanager
def _writer(file: Path | None, rows: Sequence[Row]) -> Iterator:
    if file is None:
        yield lambda _: None
        return
    with file.open("w", newline="") as stream:
        table = csv.DictWriter(stream, [f.name for f in fields(Row)])
        table.writeheader()

        def write(row: Row) -> None:
            table.writerow(asdict(row))
            stream.flush()

        for row in rows:
            write(row)
        yield write


if __name__ == "__main__":
    sys.exit(main())
