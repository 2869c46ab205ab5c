"""Judge a corpus: ``python judge.py DIR [--critpath C] [--json FILE] [CASE ...]``.

Compares every case with ``critpath compare --json`` and holds the first cause's `facts` against the
truth beside the recording (`cases.py`). Healthy pairs: in alternation, straight after each other,
ten minutes and more apart; each on the machine as it was, and with a neighbour (``stress-ng``);
and four recordings against the four that came next.

A corpus of `corpus.py --requests` is judged twice, by its marks and by its requests, which know
nothing of the marks. What is right is the same: state, thread and count by `cases.py`. Of several
kinds of requests, which the port of the one server does not tell apart, at least 80 % of a cause's
requests must be of the slower kind; which kind each was is read from the marks by its time.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).resolve().parents[1]))

from results import write_results

APART: Final = 600  # seconds between recordings "10 minutes apart"
SESSIONS: Final = 4  # recordings of a side, where several stand for one
_RISE: Final = 1.05
_OF_LABEL: Final = 0.8


@dataclass(frozen=True)
class Judged:
    """What was answered of a pair of recordings, and what it is worth."""

    case: str
    kind: str  # clear, mild, clear-seq, healthy...
    verdict: str
    right: str  # right, vague, wrong, none: of the first cause
    sentence: str
    facts: dict[str, Any] | None
    why: str
    innocents: int  # executions whose kind has no fault
    marked: int  # of them


def compare(critpath: str, normal: Path, sample: Path, *options: str) -> dict[str, Any]:
    """Return the document of an answer."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "answer.json"
        done = subprocess.run(
            [critpath, "compare", str(normal), str(sample), "--json", str(file), *options],
            capture_output=True,
            text=True,
            check=False,
        )
        if not file.exists():
            return {"verdict": f"error {done.returncode}", "error": done.stderr[-300:]}
        document: dict[str, Any] = json.loads(file.read_text())
        document["stdout"] = done.stdout
        return document


def first_facts(document: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """Return the facts of the first cause, and its sentence."""
    if not document["causes"]:
        return None, ""
    cause = document["causes"][0]
    facts = dict(cause.get("facts") or _guess_facts(document, cause))
    labels = {e["id"]: e["label"] for e in document["executions"] if e["set"] == "sample"}
    facts["labels"] = dict(Counter(labels.get(e, "") for e in cause["executions"]))
    facts["contribution"] = cause["contribution"]
    return facts, cause["sentence"]


def _guess_facts(document: dict[str, Any], cause: dict[str, Any]) -> dict[str, Any]:
    """Return what the first finding of a cause says, for documents without facts."""
    main = document["findings"][cause["main"]]
    before = (main.get("normal_iterations") or [None])[0]
    return {
        "state": main["state"],
        "role": main["role"],
        "peer": "",
        "comm": main["comm"],
        "device": main["detail"],
        "count_before": before,
        "count_after": main.get("iterations"),
    }


def weigh(facts: dict[str, Any] | None, truth: dict[str, Any]) -> tuple[str, str]:
    """Return what the first cause is worth (right, vague or wrong) and why it is not right."""
    if facts is None:
        return "none", "no cause"
    if (facts["contribution"] or 0) <= 0:
        return "wrong", "a decrease"
    if truth["label"]:
        labels = facts["labels"]
        if labels.get(truth["label"], 0) < _OF_LABEL * sum(labels.values()):
            return "wrong", f"of {labels}, not {truth['label']}"
    reasons = []
    for answer in truth["first"]:
        reason = _miss(facts, answer)
        if not reason:
            return "right", ""
        reasons.append(reason)
    if any(not _miss(facts, answer) for answer in truth["vague"]):
        return "vague", "; ".join(reasons)
    return "wrong", "; ".join(reasons)


def _miss(facts: dict[str, Any], answer: dict[str, Any]) -> str:
    if not facts["state"].startswith(tuple(answer["states"])):
        return f"state {facts['state']}, not {'/'.join(answer['states'])}"
    named = (
        {facts["role"], facts["peer"], facts["comm"]}
        if answer["roles"] != [""]
        else {facts["role"]}
    )
    if answer["roles"] and not named & set(answer["roles"]):
        there = f"{facts['role'] or 'its own thread'} (peer {facts['peer'] or '-'})"
        return f"on {there}, not {'/'.join(answer['roles'])}"
    before, after = facts["count_before"], facts["count_after"]
    if answer["rise"] and not (after is not None and (before or 0) * _RISE < after):
        return f"count {before} -> {after}, not risen"
    if answer["device"] and answer["device"] not in json.dumps(facts):
        return f"no {answer['device']}"
    return ""


def read_truth(file: Path) -> tuple[str, dict[str, Any]]:
    """Return what kind a case is of, and what is true of it."""
    truth: dict[str, Any] = json.loads(file.read_text())
    return truth["strength"] + ("-seq" if truth["order"] == "sequential" else ""), truth


def name_kinds(document: dict[str, Any], marked: dict[str, Any]) -> None:
    """Label requests as the marks within them do."""
    kinds = [(e["set"], e["begin"], e["end"], e["label"]) for e in marked["executions"]]
    for e in document["executions"]:
        within = (k for k in kinds if k[0] == e["set"] and e["begin"] <= k[1] and k[2] <= e["end"])
        e["label"] = next(within, ("", 0, 0, "?"))[3]


def judge_fault(critpath: str, place: Path, *, requests: bool = False) -> Judged:
    """Judge a recorded case, by its marks or by its requests."""
    kind, truth = read_truth(place / "truth.json")
    options = ("--execution", truth["requests"]) if requests else ()
    kind += ", requests" if requests else ""
    document = compare(critpath, place / "normal", place / "sample", *options)
    if requests and truth["label"] and "error" not in document:
        name_kinds(document, compare(critpath, place / "normal", place / "sample"))
    if "error" in document:
        return Judged(
            place.name, kind, document["verdict"], "none", "", None, document["error"], 0, 0
        )
    facts, sentence = first_facts(document)
    right, why = weigh(facts, truth)
    others = [
        e
        for e in document["executions"]
        if e["set"] == "sample" and truth["label"] and e["label"] != truth["label"]
    ]
    if document["verdict"] != "anomaly":
        why = "; ".join(r if isinstance(r, str) else json.dumps(r) for r in document["reasons"])[
            :300
        ]
    return Judged(
        place.name,
        kind,
        document["verdict"],
        right,
        sentence,
        facts,
        why,
        len(others),
        sum(e["anomalous"] for e in others),
    )


def judge_healthy(critpath: str, kind: str, normal: Path, sample: Path) -> Judged:
    """Judge a pair of recordings of the same program."""
    name = (
        f"{normal.parent.name} {sample.parent.name}"
        if normal.parent != sample.parent
        else normal.parent.name
    )
    document = compare(critpath, normal, sample)
    if "error" in document:
        return Judged(name, kind, document["verdict"], "none", "", None, document["error"], 0, 0)
    facts, sentence = first_facts(document)
    others = [e for e in document["executions"] if e["set"] == "sample"]
    why = "; ".join(r if isinstance(r, str) else json.dumps(r) for r in document["reasons"])[:300]
    return Judged(
        name,
        kind,
        document["verdict"],
        "none",
        sentence,
        facts,
        why,
        len(others),
        sum(e["anomalous"] for e in others),
    )


def healthy_pairs(place: Path) -> Iterator[tuple[str, Path, Path]]:
    """Yield kind, normal and sample of the healthy pairs below a directory."""
    single: dict[str, list[tuple[float, bool, Path]]] = defaultdict(list)
    for file in sorted(place.glob("[!.]*/truth.json")):
        truth = json.loads(file.read_text())
        busy = " busy" if truth["busy"] else ""
        if truth["order"] == "interleaved":
            yield f"healthy alternation{busy}", file.parent / "normal", file.parent / "sample"
        else:
            single[truth["commands"][0]].append((truth["time"], truth["busy"], file.parent / "one"))
    for found in single.values():
        found.sort()
        # Two straight after each other share a number: a and b.
        for first, second in pairwise(found):
            if first[2].parent.name[:-1] == second[2].parent.name[:-1]:
                yield f"healthy straight{' busy' if second[1] else ''}", first[2], second[2]
        for i, first in enumerate(found):
            later = [x for x in found[i + 1 :] if x[0] - first[0] >= APART]
            if later:
                yield (
                    f"healthy apart{' busy' if later[0][1] or first[1] else ''}",
                    first[2],
                    later[0][2],
                )


def healthy_fours(place: Path, sets: Path) -> Iterator[tuple[str, Path, Path]]:
    """Yield kind, normal and sample of four recordings against the four that came next."""
    single: dict[str, list[tuple[float, Path]]] = defaultdict(list)
    for file in sorted(place.glob("[!.]*/truth.json")):
        truth = json.loads(file.read_text())
        if truth["order"] == "single":
            single[truth["case"].split("-one")[0]].append((truth["time"], file.parent))
    for found in single.values():
        eight = [path for _, path in sorted(found)]
        for first in range(0, len(eight) - 2 * SESSIONS + 1, 2 * SESSIONS):
            pair = sets / f"{eight[first].name}-four"
            for i, path in enumerate(eight[first : first + 2 * SESSIONS]):
                side = "normal" if i < SESSIONS else "sample"
                shutil.copytree(path / "one", pair / side / path.name)
            yield "healthy four against four", pair / "normal", pair / "sample"


def interval(count: int, of: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    if not of:
        return 0.0, 1.0
    z, share = 1.96, count / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return max(0.0, middle - half), min(1.0, middle + half)


def _share(count: int, of: int) -> str:
    low, high = interval(count, of)
    return (
        f"{count} of {of} ({100 * count / of:.0f} %, {100 * low:.0f} to {100 * high:.0f})"
        if of
        else "0 of 0"
    )


def summarize(results: list[Judged]) -> Iterator[str]:
    """Yield the tables as lines of Markdown."""
    kinds: dict[str, list[Judged]] = defaultdict(list)
    for result in results:
        kinds[result.kind].append(result)
    yield "| faults | anomaly | inconclusive | first cause right | true, no culprit | wrong |"
    yield "|---|---|---|---|---|---|"
    for kind, name in (
        ("clear", "clear, alternation"),
        ("mild", "mild, alternation"),
        ("clear-seq", "clear, one after the other"),
        ("mild-seq", "mild, one after the other"),
        ("clear, requests", "clear, by requests"),
        ("mild, requests", "mild, by requests"),
    ):
        those = kinds.get(kind, [])
        if those:
            found = [r for r in those if r.verdict == "anomaly"]
            waits = sum(r.verdict == "inconclusive" for r in those)
            worth = Counter(r.right for r in found)
            yield (
                f"| {name} | {_share(len(found), len(those))} | {waits} "
                f"| {_share(worth['right'], len(found))} | {_share(worth['vague'], len(found))} "
                f"| {_share(worth['wrong'] + worth['none'], len(found))} |"
            )
    yield ""
    yield "| healthy pairs | alarms | inconclusive | OK | executions marked |"
    yield "|---|---|---|---|---|"
    for kind in sorted(k for k in kinds if k.startswith("healthy")):
        those = kinds[kind]
        verdicts = Counter(r.verdict for r in those)
        marked, of = sum(r.marked for r in those), sum(r.innocents for r in those)
        yield (
            f"| {kind.removeprefix('healthy ')} | {_share(verdicts['anomaly'], len(those))} "
            f"| {verdicts['inconclusive']} | {verdicts['ok']} | {_share(marked, of)} |"
        )
    faulty = [r for r in results if not r.kind.startswith("healthy")]
    marked, of = sum(r.marked for r in faulty), sum(r.innocents for r in faulty)
    yield ""
    yield f"Innocent kinds of requests beside the slower one, marked: {_share(marked, of)}."


def describe(results: Iterable[Judged]) -> Iterator[str]:
    """Yield a line for each result that is not as it should be."""
    for r in results:
        if r.kind.startswith("healthy"):
            if r.verdict not in {"ok", "inconclusive"}:
                yield f"{r.kind}: {r.case}: {r.verdict}: {r.sentence or r.why}"
        elif r.verdict != "anomaly":
            yield f"{r.case} ({r.kind}): {r.verdict}: {r.why}"
        elif r.right != "right":
            yield f"{r.case} ({r.kind}): {r.right} ({r.why}): {r.sentence}"


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--critpath", default=shutil.which("critpath") or "critpath")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--no-healthy", action="store_true")
    parser.add_argument("--healthy-only", action="store_true")
    given = parser.parse_intermixed_args()
    work: list[Any] = []
    if not given.healthy_only:
        chosen = [
            f.parent
            for f in sorted(given.corpus.glob("[!.]*/truth.json"))
            if not given.names or f.parent.name in given.names
        ]
        for place in chosen:
            work.append((judge_fault, place))
            if "requests" in json.loads((place / "truth.json").read_text()):
                work.append((partial(judge_fault, requests=True), place))
    if not given.no_healthy and not given.names:
        work += [(judge_healthy, *pair) for pair in healthy_pairs(given.corpus / "healthy")]
    results: list[Judged] = []
    with tempfile.TemporaryDirectory() as sets, ThreadPoolExecutor(given.jobs) as threads:
        if not given.no_healthy and not given.names:
            work += [
                (judge_healthy, *pair)
                for pair in healthy_fours(given.corpus / "healthy", Path(sets))
            ]
        for result in threads.map(lambda w: w[0](given.critpath, *w[1:]), work):
            results.append(result)
            fine = f"{result.case}: {result.verdict} {result.right} ({result.kind})"
            print(next(describe([result]), fine), flush=True)
    print()
    for line in summarize(results):
        print(line)
    if given.json:
        write_results(given.json, [asdict(r) for r in results])
    if given.markdown:
        given.markdown.write_text("\n".join(summarize(results)) + "\n")


if __name__ == "__main__":
    main()
