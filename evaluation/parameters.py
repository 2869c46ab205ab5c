"""Gives each number that judges another value, and tells which recorded answers that changes.

    python evaluation/parameters.py WORK [--jobs 2] [--only GLOB] [--cases GLOB ...] [--most N]
                                    [--corpus DIR]

Every number of `critpath.schema.parameters` is halved and doubled, and what it has a part in is
answered again: recordings of ``fixtures/`` and, where they are there, of ``../shared``.  Only the
numbers that an answer reads are tried on it; recordings are read once, and again for those that
reading itself asks for.  With --corpus, pairs that weather/record.py recorded are asked as well,
whose truth says what becomes right or wrong; --most tries each change on so many cases that read
the number, drawn with a fixed seed.  WORK keeps what is unpacked, extracted and answered,
a line each: a run that was stopped goes on.  At the end two files are written:
results/parameters/answers.json, with every answer that changed, and
critpath/schema/sensitivities.json, which `compare --why` shows.

Halved and doubled is what a number has room for: of a share or probability above 0.5 the distance
from 1, of a ratio above 1 the distance from 1, of whole numbers the nearest that is another.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import io
import json
import math
import os
import random
import shutil
import sys
import tarfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest import mock

from results import RESULTS, ROOT, write_results
from weather.judge import find_verdict, read_first, weigh

from critpath.commands import main as run_critpath
from critpath.schema.parameters import Number, Parameter, list_parameters, overridden

SHARED: Final = ROOT.parent / "shared"
SENSITIVITIES: Final = ROOT / "critpath" / "schema" / "sensitivities.json"
FACTORS: Final = (0.5, 2.0)
SHARES: Final = frozenset({"share", "p", "probability", "chance", "quantile", "quantiles"})
RATIOS: Final = frozenset({"times", "ratio"})
# An answer takes a fifth of the time, and its p-values are as fine as the level needs.
_FEWER: Final = ("--permutations", "1999")
# Settings have their defaults from the start on: another is asked for as users do.
_OPTIONS: Final = {
    "defaults.alpha": "--alpha",
    "defaults.floor": "--floor",
    "defaults.outlier_level": "--outlier-level",
}
# Series of commits that are drawn: how many, from which on slower, and by how much.
COMMITS: Final = {
    "trend: a step": (24, 12, 1.03),
    "trend: a small step": (24, 12, 1.008),
    "trend: the newest": (24, 23, 1.03),
    "trend: healthy": (24, 24, 1.0),
    "trend: few": (8, 4, 1.05),
}
_REPORTED: Final = 30  # s
_FAILED: Final = 100  # exit codes from here on: critpath itself failed


@dataclass(frozen=True)
class Case:
    """A question about recordings; the command and, of a comparison, what it is of.

    Attributes
    ----------
    name : str
    archives : tuple of (Path, str)
        What is unpacked, and below which directory.
    verb : str
    sources : tuple of str
        Below the place where everything is unpacked.
    options : tuple of str
    groups : tuple of str
        Only numbers of these groups are tried; all if there are none.
    truth : Path, optional
        What is right to say of it.
    """

    name: str
    archives: tuple[tuple[Path, str], ...]
    verb: str
    sources: tuple[str, ...]
    options: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    truth: Path | None = None


def list_cases(corpus: Path | None = None) -> list[Case]:
    """Return the cases whose recordings are there."""
    guest, public = ROOT / "fixtures/lttng-guest", SHARED / "cases"
    steady, hosts = SHARED / "traces/lttng-guest", ROOT / "fixtures/hosts"

    def pair(folder: Path, normal: str, sample: str) -> Case:
        archives = tuple((folder / f"{n}.tar.xz", n) for n in (normal, sample))
        return Case(sample, archives, "compare", (f"{normal}/{normal}", f"{sample}/{sample}"))

    def reported(case: str, normal: str, sample: str, *options: str) -> Case:
        archives = ((public / case / "recordings.tar.xz", case),)
        name = f"{case}: {sample}"
        return Case(name, archives, "compare", (f"{case}/{normal}", f"{case}/{sample}"), options)

    faults = ("delay", "fsync", "lock", "quota")
    requests = ("--execution", "requests:port=8124")
    both = tuple((guest / f"{n}.tar.xz", n) for n in ("normal", "normal-2"))
    weather = sorted(corpus.resolve().glob("pairs/*/truth.json")) if corpus else []
    return [
        case
        for case in (
            *(
                Case(
                    f"weather {truth.parent.name}",
                    (),
                    "compare",
                    tuple(str(truth.parent / side) for side in ("normal", "sample")),
                    ("--execution", json.loads(truth.read_text())["execution"]),
                    truth=truth,
                )
                for truth in weather
            ),
            pair(guest, "normal", "normal-2"),
            *(pair(guest, "normal", f"sample-{fault}") for fault in faults),
            *(pair(steady, "steady-normal", f"steady-sample-{fault}") for fault in faults),
            reported("exit-after-event", "exitwork/normal", "exitwork/sample"),
            reported("forkbig-blames-neighbour", "normal", "sample", "--execution", "marker"),
            reported("herd-ok", "recordings/normal", "recordings/sample"),
            reported("nplus1-inconclusive", "before", "after", *requests),
            reported("nplus1-inconclusive", "before", "after5", *requests),
            reported("sentence-names-side-link", "normal", "sample"),
            Case(
                "memcached",
                ((ROOT / "fixtures/requests/memcached.tar.xz", "memcached"),),
                "requests",
                ("memcached/memcached",),
            ),
            *(
                Case(
                    f"hosts {name}",
                    ((hosts / f"{name}.tar.xz", f"hosts-{name}"),),
                    "requests",
                    (f"hosts-{name}/split",),
                )
                for name in ("outer-3-8", "cpu-6-8", "lock-4-8")
            ),
            Case(
                "known",
                (),
                "known search",
                tuple(str(ROOT / "fixtures/known" / n) for n in ("team.known", "today")),
            ),
            Case(
                "known: unknown",
                (),
                "known search",
                tuple(str(ROOT / "fixtures/known" / n) for n in ("team.known", "unknown")),
            ),
            Case("explore", (), "explore", (str(ROOT / "fixtures/requests/shop.paths"),)),
            *(Case(name, (), "trend", (name,), groups=("trends",)) for name in COMMITS),
            Case(
                "calibrate",
                both,
                "calibrate",
                ("normal/normal", "normal-2/normal-2"),
                ("--splits", "20"),
                ("calibration", "trials"),
            ),
        )
        if all(archive.is_file() for archive, _ in case.archives)
    ]


def unpack(case: Case, place: Path) -> None:
    """Unpack what a case is of; a recording of several hosts becomes one of each."""
    place.mkdir(parents=True, exist_ok=True)
    if case.verb == "trend" and not (place / case.name).is_dir():
        draw_commits(place / case.name, *COMMITS[case.name])
    for archive, folder in case.archives:
        if (place / folder / "whole").is_file():
            continue
        shutil.rmtree(place / folder, ignore_errors=True)
        with tarfile.open(archive) as tar:
            tar.extractall(place / folder, filter="data")
        if archive.parent.name == "hosts":
            split_hosts(place / folder / archive.name.removesuffix(".tar.xz"), place / folder)
        (place / folder / "whole").touch()


def draw_commits(place: Path, commits: int, begin: int, factor: float) -> None:
    """Keep answers of `critpath ab` of drawn times: each commit beside the first, 20 blocks."""
    from critpath.ab.judgement import Judge  # noqa: PLC0415 - numpy
    from critpath.ab.run import AbRequest, block_order  # noqa: PLC0415 - as above
    from critpath.documents import AbBlock  # noqa: PLC0415 - as above
    from critpath.report.document import to_json  # noqa: PLC0415 - as above

    request = AbRequest(
        commands=[["base"], ["commit"]],
        seed=1,
        floor=0.05,
        alpha=0.01,
        statistic="geo",
        of="time",
        slot=0,
        max_blocks=20,
        tails=[0.9],
        asked_tails=[],
        failures_are_slow=False,
    )
    rng = random.Random(1)  # noqa: S311 - no secret
    place.mkdir(parents=True)
    for commit in range(commits):
        # Builds differ by half a percent, whatever was changed; times by 3 %.
        level = math.exp(rng.gauss(0, 0.005)) * (factor if commit >= begin else 1.0)
        judge = Judge(request.plan)
        for number in range(20):
            order = block_order(commit, number)
            sides = (level if side == "B" else 1.0 for side in order)
            times = [[round(1e7 * side * math.exp(rng.gauss(0, 0.03)))] for side in sides]
            judge.add(AbBlock(order=order, times=times, run=times))
        document = judge.document(version="1", discarded=None, spent_s=1.0, stopped_by="max_blocks")
        name = f"202611{commit + 1:02}T000000Z-base..c{commit:02}.json"
        (place / name).write_text(to_json(document), encoding="utf-8")


def split_hosts(recording: Path, place: Path) -> None:
    """Make a trace of each host, whose clocks are seconds apart, of a recording of all."""
    sys.path.insert(0, str(ROOT / "tests/hosts"))
    from record import draw_clocks  # noqa: PLC0415 - beside the servers
    from split import split  # noqa: PLC0415 - as above

    made = split(recording, place / "apart", draw_clocks(3))
    (place / "split/trace").mkdir(parents=True)
    shutil.copy(made["web"] / "critpath.json", place / "split")
    for name, one in made.items():
        shutil.copytree(one / "trace", place / "split/trace" / name)


# Answers.


def run(words: Sequence[str], place: Path) -> tuple[int, str]:
    """Run a command in this process; return its exit code and what it says."""
    out = io.StringIO()
    environment = {**os.environ, "COLUMNS": "100", "XDG_CACHE_HOME": str(place / "cache")}
    with (
        mock.patch.dict(os.environ, environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        code = run_critpath(list(words))
    return code, out.getvalue()


def extract(case: Case, place: Path, target: Path) -> list[str]:
    """Extract the sources of a comparison; return where their paths are."""
    found = []
    for number, source in enumerate(case.sources):
        file = target / f"{number}.paths"
        shutil.rmtree(file, ignore_errors=True)
        options = [*case.options] if "--execution" in case.options else []
        words = [
            "export",
            "--format",
            "paths",
            str(place / source),
            "-o",
            str(file),
            "--jobs",
            "1",
            *options,
        ]
        code, _ = run(words, place)
        if code:
            raise RuntimeError(f"extract: exit code {code}")
        found.append(str(file))
    return found


def answer(
    case: Case, sources: Sequence[str], place: Path, more: Sequence[str] = ()
) -> dict[str, Any]:
    """Answer a case's question; return what is compared: see `differences`."""
    file = place / f"answer-{os.getpid()}.json"
    file.unlink(missing_ok=True)
    if case.verb == "trend":
        code, words = run(["trend", *sources, "--format", "json"], place)
        document = json.loads(words)
        found = {"code": code, **judge(case, document), "worth": None}
        return {**found, "words": _digest(document["lines"]), "all": _digest(words)}
    options = [*_FEWER, *more] if case.verb == "compare" else [*case.options]
    code, words = run([*case.verb.split(), *sources, *options, "--json", str(file)], place)
    document = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return {
        "code": code,
        **judge(case, document),
        "worth": weigh_words(case, words),
        "words": _digest(words),
        "all": _digest(document),
    }


def judge(case: Case, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of an answer decides: a verdict, and what is named first."""
    if case.verb == "compare":
        causes = document.get("causes", [])
        facts = causes[0]["facts"] if causes else {}
        first = [facts.get(n) for n in ("kind", "state", "role", "peer")] if causes else None
        return {"verdict": document.get("verdict"), "cause": first}
    if case.verb == "requests":
        services = document.get("services", [])
        counts = [[s.get(n) for n in ("service", "requests", "sure", "calls")] for s in services]
        return {"verdict": _digest(counts), "cause": None}
    if case.verb == "known search":
        found = document.get("known", {})
        matches = found.get("matches", [])
        cause = matches[0].get("label") if matches else None
        return {"verdict": found.get("answer"), "cause": cause}
    if case.verb == "calibrate":
        return {"verdict": document.get("recommended", document.get("floor")), "cause": None}
    if case.verb == "trend":
        changes = [one["commit"] for series in document["series"] for one in series["changes"]]
        return {"verdict": [document["verdict"], changes], "cause": None}
    questions = document.get("questions", [])
    first = [q["conditions"][0].get("condition") for q in questions if q.get("conditions")]
    return {"verdict": [q.get("answer") for q in questions], "cause": first}


def weigh_words(case: Case, words: str) -> str | None:
    """Return what an answer is worth, where the truth is known."""
    if case.truth is None:
        return None
    first = read_first(words)
    return weigh(find_verdict(first), first, json.loads(case.truth.read_text()))


def _digest(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return what of an answer became another: the most that did."""
    if after.get("error") is not None or after["code"] >= _FAILED:
        return "error"
    if (before["code"], before["verdict"]) != (after["code"], after["verdict"]):
        return "verdict"
    if before["cause"] != after["cause"]:
        return "cause"
    if before["words"] != after["words"]:
        return "words"
    return "figures" if before["all"] != after["all"] else ""


# Other values.


def change(parameter: Parameter[Number], factor: float) -> Number | None:
    """Return half or twice a number, as far as it has room; None if there is no other."""
    value = parameter.declared
    changed: Number = (
        tuple(_change(one, parameter.unit, factor) for one in value)
        if isinstance(value, tuple)
        else _change(value, parameter.unit, factor)
    )
    return None if changed == value else changed


def _change(value: float, unit: str, factor: float) -> float:
    if isinstance(value, int):
        near = max(0, round(value * factor))
        return near if near != value or factor > 1 else max(0, value - 1)
    if unit in SHARES and (value > 1 / 2 or (value == 1 / 2 and factor > 1)):
        return 1 - (1 - value) / factor
    if unit in RATIOS and value > 1:
        return 1 + (value - 1) * factor
    return value * factor


@contextlib.contextmanager
def noted() -> Iterator[set[str]]:
    """Note the names of the parameters that are read meanwhile."""
    names: set[str] = set()
    read = Parameter.__get__

    def get(of: Parameter[Number], group: object, kind: type | None = None) -> Number:
        names.add(of.name)
        return read(of, group, kind)

    list_parameters()
    with mock.patch.object(Parameter, "__get__", get):
        yield names


# Every change, one after the other.


@dataclass(frozen=True)
class Plan:
    """What is known of a case: its answer, and which numbers reading and answering ask for."""

    case: Case
    sources: tuple[str, ...]
    reading: frozenset[str]
    answering: frozenset[str]
    before: Mapping[str, Any]


@cache
def plan(case: Case, work: Path) -> Plan:
    """Extract and answer a case once."""
    place = work / "recordings"
    unpack(case, place)
    sources = [str(place / s) for s in case.sources]
    reading: set[str] = set()
    if case.verb in {"compare", "calibrate"}:
        target = work / "extracted" / case.name.replace("/", "-").replace(" ", "-")
        target.mkdir(parents=True, exist_ok=True)
        with noted() as reading:
            sources = extract(case, place, target)
    with noted() as answering:
        before = answer(case, sources, place)
    if case.verb == "compare":
        answering = answering | set(_OPTIONS)
    return Plan(case, tuple(sources), frozenset(reading), frozenset(answering), before)


def attempt(case: Case, parameter: str, factor: float, work: Path) -> dict[str, Any]:
    """Answer a case with one number changed."""
    known = plan(case, work)
    value = change(list_parameters()[parameter], factor)
    row = {"case": case.name, "parameter": parameter, "factor": factor, "value": value}
    if value is None:
        return {**row, "changed": "", "same": True}
    place = work / "recordings"
    try:
        with overridden(parameter, value):
            sources: Sequence[str] = known.sources
            if parameter in known.reading:
                target = work / f"again-{os.getpid()}"
                target.mkdir(exist_ok=True)
                sources = extract(known.case, place, target)
            more = (_OPTIONS[parameter], str(value)) if parameter in _OPTIONS else ()
            after = answer(known.case, sources, place, more)
    except Exception as error:  # noqa: BLE001 - a value that the code cannot bear says so
        after = {"error": f"{type(error).__name__}: {error}"[:200]}
    changed = differences(known.before, after)
    shown = {n: after.get(n) for n in ("code", "verdict", "cause", "error", "worth") if n in after}
    if known.before["worth"] != after.get("worth"):
        shown["worth_before"] = known.before["worth"]
        changed = changed if changed in _TOLD else "sentence"
    return {**row, "changed": changed, **({"after": shown} if changed in _TOLD else {})}


_Task = tuple[Case, str, float]  # number and factor
_TOLD: Final = ("verdict", "cause", "sentence", "error")


def tasks(work: Path, only: str, cases: Sequence[str], corpus: Path | None) -> list[_Task]:
    """Return every case, number and factor that is to be tried."""
    found = []
    for case in list_cases(corpus):
        if not any(fnmatch.fnmatch(case.name, one) for one in cases):
            continue
        known = plan(case, work)
        names = sorted(known.reading | known.answering)
        print(f"{case.name}: {known.before['verdict']}, {known.before['cause']}", end=" ")
        print(f"({len(names)} numbers)", flush=True)
        found += [
            (case, parameter, factor)
            for parameter in names
            if fnmatch.fnmatch(parameter, only)
            and (not case.groups or parameter.partition(".")[0] in case.groups)
            for factor in FACTORS
        ]
    return found


def draw_tasks(found: Sequence[_Task], most: int) -> list[_Task]:
    """Return at most so many cases of each change, in the order of the cases."""
    shuffled = random.Random(1).sample(found, len(found))  # noqa: S311 - no secret
    of_change: Counter[tuple[str, float]] = Counter()
    drawn = set()
    for task in shuffled:
        of_change[task[1:]] += 1
        if of_change[task[1:]] <= most:
            drawn.add(task)
    return [task for task in found if task in drawn]


def summarize(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return, by parameter and factor, in how many answers it is read and what it changes."""
    found: dict[str, Any] = {}
    for name in sorted({row["parameter"] for row in rows}):
        mine = [row for row in rows if row["parameter"] == name]
        entry: dict[str, Any] = {"read": len({row["case"] for row in mine})}
        for factor in FACTORS:
            changed = defaultdict(list)
            tried = [row for row in mine if row["factor"] == factor]
            for row in tried:
                if row["changed"]:
                    changed[row["changed"]].append(row["case"])
            value = next((row["value"] for row in tried), None)
            entry[f"{factor:g}"] = {
                "value": value,
                **{kind: sorted(cases) for kind, cases in sorted(changed.items()) if kind in _TOLD},
                **{kind: len(cases) for kind, cases in changed.items() if kind not in _TOLD},
            }
        found[name] = entry
    return found


def main() -> None:
    """Try every change that was not tried yet, and write what they make."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="*", help="parameters, as machine.*")
    parser.add_argument("--cases", nargs="+", default=["*"], help="cases, as sample-*")
    parser.add_argument("--corpus", type=Path, help="what weather/record.py recorded")
    parser.add_argument("--most", type=int, default=sys.maxsize, help="cases of each change")
    parser.add_argument("--results", type=Path, default=RESULTS / "parameters/answers.json")
    parser.add_argument("--summary", type=Path, default=SENSITIVITIES)
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    kept = work / "answers.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.is_file() else []
    done = {(row["case"], row["parameter"], row["factor"]) for row in rows}
    tried = draw_tasks(
        tasks(work, arguments.only, arguments.cases, arguments.corpus), arguments.most
    )
    todo = [task for task in tried if (task[0].name, *task[1:]) not in done]
    began, told = time.monotonic(), 0.0
    print(f"{len(done):,} tried before, {len(todo):,} to try", flush=True)
    with ProcessPoolExecutor(arguments.jobs) as pool, kept.open("a", encoding="utf-8") as file:
        running = [pool.submit(attempt, *task, work) for task in todo]
        for number, future in enumerate(as_completed(running), 1):
            row = future.result()
            rows.append(row)
            print(json.dumps(row, ensure_ascii=False), file=file, flush=True)
            passed = time.monotonic() - began
            if passed > told + _REPORTED or number == len(todo):
                told = passed
                left = passed / number * (len(todo) - number)
                print(f"{number:,} of {len(todo):,}, {left / 60:.0f} min left", flush=True)
    rows.sort(key=lambda row: (row["parameter"], row["factor"], row["case"]))
    write_results(arguments.results, [row for row in rows if row["changed"] in _TOLD])
    summary = {"cases": sorted({row["case"] for row in rows}), "parameters": summarize(rows)}
    text = json.dumps(summary, indent=1, ensure_ascii=False) + "\n"
    arguments.summary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
