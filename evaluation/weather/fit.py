"""Evidence for causes, fitted: ``python fit.py rows DIR FILE`` and ``python fit.py table FILE``.

`rows` compares every fault of a corpus (`record.py`) in this process, and keeps of each cause what
is known of it before it is ranked, whether its sentence is right (`judge.py`), and its place by the
rules of `weigh_cause`. `table` fits a logistic regression whose coefficients are not negative, so
that more evidence never makes a cause less certain, to all programs but one, in turn, and divides
what the evidence adds up to into levels, of 30 causes or more each (isotonic regression): a
certainty is the share of a level's causes that are right, and is said no finer than that. It prints
how often the first cause is right by the rules and by the fit, the reliability of that certainty
in fifths, and the coefficients and levels of all programs together.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.optimize import minimize

sys.path.append(str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[1]))

from judge import weigh_sentence
from results import write_results

from critpath import flow
from critpath.localize import causes, explaining
from critpath.localize.causes import Evidence, find_evidence
from critpath.report.document import comparison_document

# Kinds whose words are no matter of the order of causes.
_BY_WORDS: Final = {"faults", "names"}


def collect(place: Path) -> list[dict[str, Any]]:
    """Compare a pair, and return the rows of its causes in the order of the rules."""
    found: list[dict[str, Any]] = []
    known: dict[int, tuple[Any, Any, Any]] = {}
    weigh, make, group = causes.weigh_cause, causes._cause, explaining.group_causes

    def weigh_too(members: Any, reason: Any, counts: Any, *rest: Any) -> Any:
        known[id(members)] = members, reason, counts
        return weigh(members, reason, counts, *rest)

    def make_too(members: Any, excess: float, reason: Any, **more: Any) -> Any:
        cause = make(members, excess, reason, **more)
        found.append({"known": known[id(members)], "excess": excess})
        return cause

    def group_too(findings: Any, executions: Any, *given: Any, **more: Any) -> Any:
        found.clear()
        known.clear()
        result = group(findings, executions, *given, **more)
        del found[: len(found) - len(result)]  # of groups before they were joined
        for row, cause in zip(found, result, strict=True):
            members = row.pop("known")
            evidence = find_evidence(
                *members,
                examined=len(executions),
                excess=row.pop("excess"),
                decisive=cause.weight.decisive,
            )
            row.update(evidence._asdict())
        return result

    truth = json.loads((place / "truth.json").read_text())
    causes.weigh_cause, causes._cause, explaining.group_causes = weigh_too, make_too, group_too
    try:
        what = "" if truth["execution"] == "process" else truth["execution"]
        sides = [flow.extract([place / side], specification=what) for side in ("normal", "sample")]
        document = comparison_document(flow.compare(*sides))
    finally:
        causes.weigh_cause, causes._cause, explaining.group_causes = weigh, make, group
    rows = []
    for row, cause in zip(found, document.causes, strict=False):
        worth = weigh_sentence(cause.sentence, truth)
        right = worth == "right" or (worth == "partly" and truth["kind"] in _BY_WORDS)
        about = {"pair": place.name, "program": truth["case"], "kind": truth["kind"]}
        about |= {"verdict": document.verdict, "right": right, "sentence": cause.sentence}
        if cause.contribution > 0:
            rows.append(about | row)
    return rows


def fit(rows: Sequence[Sequence[float]], right: Sequence[bool], weights: Sequence[float]) -> Any:
    """Return intercept and coefficients (none negative) of a logistic regression."""
    x = np.column_stack([np.ones(len(rows)), np.array(rows, float)])
    y, w = np.array(right, float), np.array(weights, float)

    def loss(b: Any) -> tuple[float, Any]:
        z = x @ b
        value = w @ (np.logaddexp(0, z) - y * z) + _RIDGE * b[1:] @ b[1:]
        slope = x.T @ (w * (1 / (1 + np.exp(-z)) - y))
        slope[1:] += 2 * _RIDGE * b[1:]
        return value, slope

    bounds = [(None, None)] + [(0, None)] * (x.shape[1] - 1)
    return minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds).x


_RIDGE: Final = 0.1


LEAST: Final = 30  # known causes that a level rests on


def find_levels(evidence: Sequence[float], right: Sequence[bool]) -> list[tuple[float, float]]:
    """Return from how much evidence on which share of the causes is right, never a lower one."""
    order = np.argsort(evidence, kind="stable")
    levels: list[list[float]] = []  # from where on, how many of them are right, how many
    for i in order:
        levels.append([float(evidence[i]), float(right[i]), 1.0])
        while len(levels) > 1 and levels[-2][1] * levels[-1][2] >= levels[-1][1] * levels[-2][2]:
            _, good, many = levels.pop()
            levels[-1][1] += good
            levels[-1][2] += many
    while len(levels) > 1 and min(level[2] for level in levels) < LEAST:
        # The smallest joins whichever beside it is most alike.
        k = min(range(len(levels)), key=lambda i: levels[i][2])
        beside = [j for j in (k - 1, k + 1) if 0 <= j < len(levels)]
        share = [good / many for _, good, many in levels]
        j = min(beside, key=lambda j: abs(share[j] - share[k]))
        _, good, many = levels.pop(max(j, k))
        levels[min(j, k)][1] += good
        levels[min(j, k)][2] += many
    # As if half a cause more were right and half a cause wrong: none is sure.
    return [(at, (good + 0.5) / (many + 1)) for at, good, many in levels]


def find_level(evidence: float, levels: Sequence[tuple[float, float]]) -> float:
    """Return the certainty of a cause."""
    return next((share for at, share in reversed(levels) if evidence >= at), levels[0][1])


def shape(row: dict[str, Any]) -> list[float]:
    """Return a row's numbers in their order."""
    return [row[name] for name in Evidence._fields]


def leave_out(rows: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return every cause's evidence and certainty, fitted to the other programs."""
    result = [(0.0, 0.0)] * len(rows)
    for program in sorted({r["program"] for r in rows}):
        known = [r for r in rows if r["program"] != program]
        weights, levels = fit_all(known)
        for i, row in enumerate(rows):
            if row["program"] == program:
                evidence = float(np.array(shape(row)) @ weights)
                result[i] = evidence, find_level(evidence, levels)
    return result


def fit_all(rows: list[dict[str, Any]]) -> tuple[Any, list[tuple[float, float]]]:
    """Return what evidence is worth, and the levels of what it adds up to."""
    right = [r["right"] for r in rows]
    weights = fit([shape(r) for r in rows], right, [1.0] * len(rows))[1:]
    return weights, find_levels(np.array([shape(r) for r in rows]) @ weights, right)


def tabulate(rows: list[dict[str, Any]], evidence: Sequence[float], sure: Sequence[float]) -> None:
    """Print first causes by rules and by fit, and the reliability in fifths."""
    pairs: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        pairs[row["pair"]].append(i)
    by_kind: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for places in pairs.values():
        if not any(rows[i]["right"] for i in places):
            continue
        # By evidence, ties as the rules have them.
        best = max(places, key=lambda i: (evidence[i], -i))
        one = rows[places[0]]["right"], rows[best]["right"]
        by_kind[rows[best]["kind"]].append(one)
        by_kind["all"].append(one)
    print("| kind | pairs with a right cause | first by the rules | first by the fit |")
    print("|---|---|---|---|")
    for kind, those in sorted(by_kind.items(), key=lambda x: x[0] == "all"):
        rules, fitted = (sum(one[k] for one in those) for k in (0, 1))
        print(f"| {kind} | {len(those)} | {rules} | {fitted} |")
    print("\n| certainty | causes | said | right |\n|---|---|---|---|")
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        those = [i for i, p in enumerate(sure) if low <= p < low + 0.2 or (low == 0.8 and p == 1)]
        if those:
            said = sum(sure[i] for i in those) / len(those)
            right = sum(rows[i]["right"] for i in those) / len(those)
            print(f"| {low:.0%} to {low + 0.2:.0%} | {len(those)} | {said:.0%} | {right:.0%} |")


def main() -> None:
    """Collect rows, or fit them."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("what", choices=("rows", "table"))
    parser.add_argument("given", type=Path, nargs="+")
    options = parser.parse_args()
    if options.what == "rows":
        place, file = options.given
        rows = []
        for truth in sorted(place.glob("pairs/*/truth.json")):
            if not truth.exists():
                continue  # recorded anew meanwhile
            about = json.loads(truth.read_text())
            if about["whose"] == "nobody" or "load" not in about:
                continue
            rows += collect(truth.parent)
            print(truth.parent.name, len(rows), flush=True)
        write_results(file, rows)
        return
    rows = [r for file in options.given for r in json.loads(file.read_text())["rows"]]
    tabulate(rows, *zip(*leave_out(rows), strict=True))
    weights, levels = fit_all(rows)
    print("\n" + "\n".join(f"{n} {c:.2f}" for n, c in zip(Evidence._fields, weights, strict=True)))
    print("\n".join(f"from {at:.2f} on {share:.1%}" for at, share in levels))


if __name__ == "__main__":
    main()
