"""Judge a build on the corpus: ``python judge.py CRITPATH [--corpus DIR] [NAME ...]``.

A line for each pair (right, partly, wrong, missed, inconclusive; of healthy ones fine, alarm,
faster, machine, inconclusive), with the first sentence printed, then totals. NAME selects pairs
whose name contains it. The truth is beside each pair, written before it was recorded (`cases.py`).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

_LARGE: Final = 25  # percent
MACHINE: Final = re.compile(r"BY THE MACHINE")


@dataclass(frozen=True)
class Judged:
    """What was answered of a pair, and what it is worth."""

    name: str
    kind: str
    condition: str
    order: str
    whose: str
    verdict: str  # slower, machine, faster, ok, inconclusive, error
    worth: str
    first: str  # the verdict line and the first sentence
    code: int
    seconds: float
    effect: float | None  # of medians, of the requests that have the change, in percent
    innocents: tuple[int, int]  # of requests without the change: marked, all
    changed: tuple[int, int]  # of requests with it: marked, all
    why: str
    lines: int
    count: tuple[int, int, int] | None = None  # who has it, as told: least, number, most


def read_first(text: str) -> str:
    """Return all before the first empty line, as one line."""
    lines = text.strip().split("\n\n")[0].split("\n⚠")[0].split("\n")
    return " ".join(line.strip() for line in lines)


def find_verdict(first: str) -> str:
    """Return which of the answers it is."""
    head = first[:60]
    if MACHINE.search(first[:120]):
        return "machine"
    for word in ("SLOWER", "FASTER", "OK", "INCONCLUSIVE"):
        if re.search(rf"\b{word}\b", head):
            return word.lower()
    return "error"


def _matches(patterns: list[list[str]], text: str) -> bool:
    return any(all(re.search(p, text) for p in alternative) for alternative in patterns)


def weigh_sentence(first: str, truth: dict[str, Any]) -> str:
    """Return what a first sentence is worth."""
    never = truth.get("never") and re.search(truth["never"], first)
    if _matches(truth["right"], first):
        return "partly" if never else "right"
    if never:
        return "wrong"
    return "partly" if _matches(truth["partly"], first) else "wrong"


def weigh(verdict: str, first: str, truth: dict[str, Any]) -> str:
    """Return what an answer is worth."""
    if truth["whose"] == "nobody":
        return {"slower": "alarm", "machine": "machine", "ok": "fine"}.get(verdict, verdict)
    if verdict in {"ok", "faster", "inconclusive", "error"}:
        return {"ok": "missed"}.get(verdict, verdict)
    worth = weigh_sentence(first, truth)
    if (verdict == "machine") != (truth["whose"] == "neighbour"):
        return "partly" if truth["whose"] == "neighbour" and worth != "wrong" else "wrong"
    return worth


def weigh_exchanged(verdict: str, whose: str) -> str:
    """Return what an answer is worth if what was slower is called normal."""
    if whose == "nobody" or verdict != "faster":
        return {"slower": "alarm", "ok": "fine"}.get(verdict, verdict)
    return "right" if whose == "program" else "faster"


def judge(critpath: str, place: Path, *, exchanged: bool = False) -> Judged:
    """Compare a pair, or its sides exchanged, and judge the answer."""
    truth = json.loads((place / "truth.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answer.json"
        sides = [str(place / "normal"), str(place / "sample")]
        if exchanged:
            sides.reverse()
        what = ("--execution", truth["execution"])
        begin = time.monotonic()
        done = subprocess.run(
            [critpath, "compare", "--quiet", *sides, *what, "--json", str(file)],
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - begin
        document = json.loads(file.read_text()) if file.exists() else {"executions": []}
    first = read_first(done.stdout) or done.stderr.strip()[-200:]
    verdict = find_verdict(first)
    has = truth["changed"]
    few = re.fullmatch(r"(\d+) of (\d+)", has)
    times: dict[str, list[float]] = defaultdict(list)
    counts = {True: [0, 0], False: [0, 0]}
    for e in document["executions"]:
        changed = has == "all" or few or (has != "none" and e["label"].split()[0:1] == [has])
        if changed or has == "none":
            times[e["set"]].append(e["end"] - e["begin"])
        if e["set"] == "sample":
            counts[bool(changed)][0] += bool(e["anomalous"])
            counts[bool(changed)][1] += 1
    if few:  # which of them it is, no label tells
        counts[True][1] = round(counts[True][1] * int(few[1]) / int(few[2]))
    worth = weigh(verdict, first, truth)
    if exchanged:
        worth = weigh_exchanged(verdict, truth["whose"])
    effect = None
    if len(times) == 2:
        effect = 100 * (statistics.median(times["sample"]) / statistics.median(times["normal"]) - 1)
    return Judged(
        place.name, truth["kind"], truth["condition"], truth["order"], truth["whose"], verdict,
        worth, first, done.returncode, round(seconds, 2), effect,
        tuple(counts[False]), tuple(counts[True]), truth["what"],
        len(done.stdout.splitlines()),
        _read_count(document),
    )  # fmt: skip


def _read_count(document: dict[str, Any]) -> tuple[int, int, int] | None:
    told = document.get("outliers") or {}
    if told.get("affected") is None:
        return None
    return told["affected_low"], told["affected"], told["affected_high"]


def _of(count: int, total: int) -> str:
    return f"{count} of {total}" + (f" ({100 * count / total:.0f} %)" if total else "")


def _add(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    columns = list(zip(*pairs, strict=True)) or [(0,), (0,)]
    return sum(columns[0]), sum(columns[1])


def _group(results: list[Judged], key: Callable[[Judged], str]) -> list[tuple[str, list[Judged]]]:
    groups: dict[str, list[Judged]] = defaultdict(list)
    for r in results:
        groups[key(r)].append(r)
    return [*sorted(groups.items()), ("all", results)]


def _condition(r: Judged) -> str:
    return f"{r.condition}, {r.order}"


def summarize(results: list[Judged]) -> Iterator[str]:
    """Yield totals."""
    faults = [r for r in results if r.whose != "nobody"]
    healthy = [r for r in results if r.whose == "nobody"]
    for what, groups in (
        ("faults", _group(faults, _condition)),
        ("kinds of faults", _group(faults, lambda r: r.kind)),
    ):
        yield f"| {what} | detected | right | partly | wrong | missed | inconclusive | faster |"
        yield "|---|---|---:|---:|---:|---:|---:|---:|"
        for name, those in groups:
            w = Counter(r.worth for r in those)
            found = w["right"] + w["partly"] + w["wrong"]
            yield (
                f"| {name} | {_of(found, len(those))} | {w['right']} | {w['partly']} "
                f"| {w['wrong']} | {w['missed']} | {w['inconclusive']} | {w['faster']} |"
            )
        yield ""
    yield "| healthy pairs | alarms | by the machine | inconclusive | faster | OK |"
    yield "|---|---|---:|---:|---:|---:|"
    for name, those in _group(healthy, _condition):
        w = Counter(r.worth for r in those)
        yield (
            f"| {name} | {_of(w['alarm'], len(those))} | {w['machine']} "
            f"| {w['inconclusive']} | {w['faster']} | {w['fine']} |"
        )
    yield ""
    found = [r for r in faults if r.verdict in {"slower", "machine"}]
    yield "requests marked:"
    yield f"  in healthy pairs {_of(*_add(r.innocents for r in healthy))}"
    yield f"  innocent ones beside a fault {_of(*_add(r.innocents for r in faults))}"
    yield f"  those that have it, of what was detected {_of(*_add(r.changed for r in found))}"
    counted = [(r.count, r.changed[1]) for r in found if r.count]
    exact = sum(count[1] == truth for count, truth in counted)
    within = sum(count[0] <= truth <= count[2] for count, truth in counted)
    yield f"their number as told: exact in {_of(exact, len(counted))}"
    yield f"  within its interval in {_of(within, len(counted))}"
    ok = [r for r in faults if r.verdict == "ok"]
    large = sum((r.effect or 0) >= _LARGE for r in ok)
    yield f"OK said while medians differ by {_LARGE} % or more: {_of(large, len(ok))} misses"
    right = sum(r.worth == "right" for r in found)
    yield f"first sentence right, of detected: {_of(right, len(found))}"
    yield f"seconds: {sum(r.seconds for r in results):.0f}"


def summarize_exchanged(results: list[Judged]) -> Iterator[str]:
    """Yield totals of pairs whose sides were exchanged."""
    heads = ("faster", "ok", "inconclusive", "machine", "slower", "error")
    yield f"| exchanged | pairs | {' | '.join(heads)} |"
    yield f"|---|---:{'|---:' * len(heads)}|"
    whose = {"nobody": "healthy", "program": "faults", "neighbour": "a neighbour's faults"}
    for what, those in _group(results, lambda r: f"{whose[r.whose]}, {_condition(r)}"):
        said = Counter(r.verdict for r in those)
        yield f"| {what} | {len(those)} | {' | '.join(str(said[h]) for h in heads)} |"


def main() -> None:
    """Judge, print, and keep."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("critpath")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--corpus", type=Path, default=Path("critpath-evaluation/weather"))
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--exchanged", action="store_true", help="the sample is called normal: what is FASTER"
    )
    given = parser.parse_intermixed_args()
    results = []
    for place in sorted((given.corpus / "pairs").glob("*/")):
        truth = place / "truth.json"
        chosen = not given.names or any(n in place.name for n in given.names)
        if not chosen or not truth.exists() or "load" not in json.loads(truth.read_text()):
            continue
        r = judge(given.critpath, place, exchanged=given.exchanged)
        results.append(r)
        effect = f"{r.effect:+.0f} %" if r.effect is not None else "?"
        print(f"{r.worth:12} {r.name} ({effect}): {r.first}", flush=True)
        if r.worth in {"partly", "wrong"}:
            print(f"{'':12}   truth: {r.why}", flush=True)
    print()
    for line in summarize_exchanged(results) if given.exchanged else summarize(results):
        print(line)
    if given.json:
        given.json.write_text(json.dumps([asdict(r) for r in results], indent=1))


if __name__ == "__main__":
    sys.exit(main())
