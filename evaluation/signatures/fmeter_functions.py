"""What kernel functions tell that tracepoints and system calls do not, and what they cost.

    tests/guest/run tests/guest/jobs/functions.sh RESULT signatures tests/guest/jobs/functions.py
    python evaluation/signatures/fmeter_functions.py RESULT/out

``signatures`` is evaluation/benchmarks/signatures.c, compiled with -static.  Two sessions of small
workloads in the emulated guest: each interval is named by its nearest centroid of the other.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
from pathlib import Path

import numpy as np

from critpath.errors import CritpathError
from critpath.flow import count_documents
from critpath.model.signatures import Counts
from critpath.signatures.signing import SignSettings
from critpath.signatures.weights import weigh

KINDS = (*("functions", "system calls", "tracepoints", "functions and system calls", "everything"),)


def kinds(term: str) -> set[str]:
    """Return the sets of terms that a term is part of."""
    if term.startswith("fn:"):
        return {"functions", "functions and system calls", "everything"}
    if term.startswith("sys:"):
        return {"system calls", "functions and system calls", "everything"}
    return set() if term.startswith("cg:") else {"tracepoints", "everything"}


def vectors(counts: Counts, vocabulary: list[str], weights: str) -> np.ndarray:
    """Return vectors of length 1 over some terms."""
    at = {term: number for number, term in enumerate(vocabulary)}
    table = np.zeros((len(counts), len(vocabulary)), np.int64)
    for document, term, count in zip(counts.document, counts.term, counts.count, strict=True):
        if counts.vocabulary[term] in at:
            table[document, at[counts.vocabulary[term]]] = count
    document, term = np.nonzero(table)
    same = Counts(
        tuple(vocabulary), counts.scopes, counts.begin, counts.end, counts.scope, counts.lossy,
        document.astype(np.int32), term.astype(np.int32), table[document, term],
    )  # fmt: skip
    signed = weigh(same, weights, quiet_rate=0)
    found = np.zeros(table.shape)
    found[signed.document, signed.term] = signed.weight
    return found[table.sum(axis=1) > 0]


def main() -> None:
    """Print accuracy across the two sessions, and what counting costs."""
    place = Path(sys.argv[1])
    exact, _ = count_documents(place / "exact", SignSettings(by="execution", scope="command"))
    counted = dict(zip((exact.vocabulary[t] for t in exact.term), exact.count, strict=True))
    shown = ("fn:kernel_clone", "fn:copy_process", "fn:do_exit", "fn:pipe_write", "fn:pipe_read")
    found = {term: int(counted.get(term, 0)) for term in (*shown, "sys:clone", "sys:write")}
    print("300 forks, 2,000 writes to a pipe:", found)
    sessions: list[dict[str, Counts]] = []
    for number in range(2):
        sessions.append({})
        for recording in sorted((place / f"session{number}").glob("*/critpath.json")):
            with contextlib.suppress(CritpathError):  # the guest's time was up
                counts, _ = count_documents(recording.parent, SignSettings(scope="command"))
                sessions[-1][recording.parent.name] = counts
    if len(sessions[1]) < len(sessions[0]):
        print("one whole session only: the first half of each recording names the second half")
        whole = sessions[0]
        sessions = [
            {name: c.take(np.arange(len(c)) * 2 < len(c)) for name, c in whole.items()},
            {name: c.take(np.arange(len(c)) * 2 >= len(c)) for name, c in whole.items()},
        ]
    labels = sorted({*sessions[0]} & {*sessions[1]})
    common = set.intersection(*({*c.vocabulary} for s in sessions for c in s.values()))
    for weights in ("hellinger", "tf"):
        for kind in KINDS:
            terms = sorted(term for term in common if kind in kinds(term))
            right = total = 0
            for train, test in ((0, 1), (1, 0)):
                centres = []
                for label in labels:
                    each = vectors(sessions[train][label], terms, weights)
                    centre = each.mean(axis=0) if len(each) else np.zeros(len(terms))
                    centres.append(centre / max(np.linalg.norm(centre), 1e-9))
                for number, label in enumerate(labels):
                    each = vectors(sessions[test][label], terms, weights)
                    named = (each @ np.array(centres).T).argmax(axis=1) if len(each) else each[:, 0]
                    right += int((named == number).sum())
                    total += len(each)
            share = right / max(total, 1)
            print(
                f"{weights}, {kind}: {len(terms)} terms, {right} of {total} intervals right "
                f"({share:.1%})"
            )
    for name, costs in json.loads((place / "costs.json").read_text()).items():
        print(f"{name}: {statistics.median(costs):.0f} ns")


if __name__ == "__main__":
    main()
