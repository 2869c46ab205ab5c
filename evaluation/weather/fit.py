"""Evidence for causes, fitted: ``python fit.py rows DIR FILE`` and ``python fit.py table FILE``.

`rows` compares every fault of a corpus (`record.py`) in this process, and keeps of each cause what
is known of it before it is ranked, whether its sentence is right (`judge.py`), and its place by the
rules of `weigh_cause`. `table` fits a logistic regression whose coefficients are not negative, so
that more evidence never makes a cause less certain, to all programs but one, in turn; it prints how
often the first cause is right by the rules and by the fit, the reliability of the fitted certainty
in fifths, and the coefficients of all programs together.
"""

from __future__ import annotations

import argparse
import json
import math
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

# How exclusive it is to those who have it, how many times as often, how many times as long over
# the pace of the rest, and whether it was observed.
TRIED: Final = ("apart", "count", "time", "observed")
ROWS: Final = (*Evidence._fields, *TRIED)
_MOST: Final = 4.0  # bits of a ratio
# Kinds whose words are no matter of the order of causes.
_BY_WORDS: Final = {"faults", "names"}


def find_bits(before: float, after: float) -> float:
    """Return how many times as much it is, in bits, between none and four."""
    if after <= 0:
        return 0.0
    return min(_MOST, max(0.0, math.log2(after / max(before, after / 2**_MOST))))


def try_rows(members: Any, reason: Any, counts: Any) -> dict[str, float]:
    """Return what may be evidence as well, and was none: its weight came out as nothing."""
    row = dict.fromkeys(TRIED, 0.0)
    positions = sorted({m.finding.position for m in members})
    symbol = reason.symbol if reason else causes.main_member(members).counts_as
    row["observed"] = float(causes.evidence_of(symbol.state) != "unseen")
    rise = causes.count_rise(members)
    if rise is not None:
        row["count"] = find_bits(rise.before, rise.after)
    elif reason is not None and reason.counts is not None:
        row["count"] = find_bits(*reason.counts)
    if counts is not None and reason is not None:
        growth = counts.growth(symbol, positions)
        apart = counts.apart(rise.step, positions) if rise is not None else growth.apart
        row["apart"] = max(0.0, 2 * apart - 1)
        totals = [t.sum(axis=1) for t in counts.times]
        before, after = float(totals[0].mean()), float(totals[1][positions].mean())
        pace = max(1.0, (after - growth.after) / max(before - growth.before, 1.0))
        row["time"] = find_bits(growth.before * pace, growth.after)
    return row


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
            tried = try_rows(*members)
            evidence = find_evidence(
                *members,
                examined=len(executions),
                excess=row.pop("excess"),
                decisive=cause.weight.decisive,
            )
            row.update(evidence._asdict())
            row.update(tried)
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


def certainty(b: Any, rows: Any) -> Any:
    """Return the fitted probability that a cause is right."""
    return 1 / (1 + np.exp(-(b[0] + np.array(rows, float) @ b[1:])))


def shape(row: dict[str, Any]) -> list[float]:
    """Return a row's numbers in their order."""
    return [row[name] for name in ROWS]


def leave_out(rows: list[dict[str, Any]]) -> list[float]:
    """Return every cause's certainty, fitted to the other programs."""
    result = [0.0] * len(rows)
    for program in sorted({r["program"] for r in rows}):
        known = [r for r in rows if r["program"] != program]
        b = fit([shape(r) for r in known], [r["right"] for r in known], [1.0] * len(known))
        mine = [i for i, r in enumerate(rows) if r["program"] == program]
        for i, p in zip(mine, certainty(b, [shape(rows[i]) for i in mine]), strict=True):
            result[i] = float(p)
    return result


def tabulate(rows: list[dict[str, Any]], sure: list[float]) -> None:
    """Print first causes by rules and by fit, and the reliability in fifths."""
    pairs: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        pairs[row["pair"]].append(i)
    by_kind: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for places in pairs.values():
        if not any(rows[i]["right"] for i in places):
            continue
        # By certainty, ties as the rules have them.
        best = max(places, key=lambda i: (sure[i], -i))
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
    sure = leave_out(rows)
    tabulate(rows, sure)
    b = fit([shape(r) for r in rows], [r["right"] for r in rows], [1.0] * len(rows))
    print("\n" + "\n".join(f"{n} {c:.2f}" for n, c in zip(("intercept", *ROWS), b, strict=True)))


if __name__ == "__main__":
    main()
