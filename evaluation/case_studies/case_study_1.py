"""Case study 1: are types of requests found, and those with a bug, without being told?

``python evaluation/case_studies/case_study_1.py [--repetitions N] [--seed S] [--json FILE]``: about
a hundred normal executions of nine types and ten of a version with four bugs are recorded
in alternation on this machine's kernel, as in the paper's first case study, and compared.
The analysis is not told the types: what the program says of them is only held against
its answer. Once as critpath does it by default, once as the paper describes it
(clustering of the plain counts, its rule for single executions).

Needs root, tracefs and a C compiler.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[1]))

from bench import Bench, RecordingError, bench, extract, why_not, without_labels
from results import write_results

from critpath import flow
from critpath.errors import CritpathError
from critpath.model import Analysis, CompareSettings

NORMAL: Final = 99
SAMPLE: Final = 10
FAULTS: Final = "sleep,lock,fsync,helper"
PAPER_OWN: Final = 86.67  # percent: Janecek, Ezzati-Jivan and Hamou-Lhadj (2022)
WAYS: Final = {
    "critpath": CompareSettings(),
    "the paper's": CompareSettings(cluster_method="raw", rule="paper"),
}
FIGURES: Final = {
    "own": "executions in a cluster of their own type, %",
    "agreement": "adjusted Rand index",
    "clusters": "clusters (types: 9)",
    "paired": "sample clusters paired with their type, %",
    "verdict": "verdict anomaly, %",
    "faulty": "executions with a bug",
    "found": "of them marked",
    "false": "others marked",
}


def measure(built: Bench, seed: int) -> dict[str, dict[str, float]]:
    """Record both versions, and return the figures of every way to compare them.

    Raises
    ------
    RecordingError, CritpathError
    """
    recordings = built.record(
        (
            {"executions": NORMAL, "seed": 2 * seed},
            {
                "executions": SAMPLE,
                "seed": 2 * seed + 1,
                "fault": FAULTS,
                "strength": 3,
            },
        ),
        runs=1,
    )
    truth = {}
    for version in (0, 1):
        with built.truth(version).open(newline="") as stream:
            truth |= {row["id"]: (row["type"], row["faulty"]) for row in csv.DictReader(stream)}
    normal, sample = (without_labels(extract(r)) for r in recordings)
    return {
        way: figures(flow.compare(normal, sample, settings), truth)
        for way, settings in WAYS.items()
    }


def figures(comparison: Analysis, truth: dict[str, tuple[str, str]]) -> dict[str, float]:
    """Hold a comparison against the ground truth."""
    from sklearn.metrics import adjusted_rand_score  # noqa: PLC0415 - a second to import

    normal = [truth[i][0] for i in comparison.normal.executions.id]
    sample = [truth[i][0] for i in comparison.sample.executions.id]
    faulty = [bool(truth[i][1]) for i in comparison.sample.executions.id]
    ours, theirs = comparison.normal_clusters.labels, comparison.sample_clusters.labels
    names, sample_names = majority(ours.tolist(), normal), majority(theirs.tolist(), sample)
    own = [names[c] == t for c, t in zip(ours.tolist(), normal, strict=True)]
    pair = comparison.pairs.pair.tolist()
    paired = [names.get(pair[c]) == t for c, t in sample_names.items()]
    by_paper = comparison.settings["rule"] == "paper"
    outliers = comparison.outliers
    marked = (outliers.paper if by_paper else outliers.anomalous).tolist()
    return {
        "own": 100 * sum(own) / len(own),
        "agreement": float(adjusted_rand_score(normal, ours)),
        "clusters": comparison.normal_clusters.size,
        "paired": 100 * sum(paired) / len(paired),
        "verdict": 100.0 * (comparison.verdict == "anomaly"),
        "faulty": sum(faulty),
        "found": sum(m and f for m, f in zip(marked, faulty, strict=True)),
        "false": sum(m and not f for m, f in zip(marked, faulty, strict=True)),
    }


def majority(labels: Sequence[int], types: Sequence[str]) -> dict[int, str]:
    """Return the type that most of each cluster is of, the first by name of equals."""
    members: dict[int, Counter[str]] = {}
    for label, text in zip(labels, types, strict=True):
        members.setdefault(label, Counter())[text] += 1
    return {c: min(tally, key=lambda t: (-tally[t], t)) for c, tally in members.items()}


def print_table(repetitions: Sequence[dict[str, dict[str, float]]]) -> None:
    """Print means and ranges over the repetitions."""
    print(f"| {len(repetitions)} recordings: mean (range) | " + " | ".join(WAYS) + " |")
    print("|---|" + "---:|" * len(WAYS))
    for name, what in FIGURES.items():
        cells = []
        for way in WAYS:
            values = [one[way][name] for one in repetitions]
            mean, digits = sum(values) / len(values), 3 if name == "agreement" else 1
            low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
            cells.append(f"{mean:.{digits}f} ({low} to {high})")
        print(f"| {what} | " + " | ".join(cells) + " |")
    print(f"\nThe paper reports {PAPER_OWN} % in a cluster of their own type; targets: 99 % of")
    print("executions in a cluster of their own type, 100 % of sample clusters paired with it.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="case study 1")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="of the first repetition")
    parser.add_argument("--json", type=Path, help="the figures of every repetition")
    given = parser.parse_args(arguments)
    if reason := why_not():
        print(f"case study 1: left out, {reason}")
        return 0
    done = []
    with bench() as built:
        for seed in range(given.seed, given.seed + given.repetitions):
            try:
                done.append(measure(built, seed))
            except (RecordingError, CritpathError) as error:
                print(f"seed {seed} is left out: {error}", file=sys.stderr)
    if not done:
        return 1
    print_table(done)
    if given.json:
        write_results(given.json, done)
    return 0


if __name__ == "__main__":
    sys.exit(main())
