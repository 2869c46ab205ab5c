"""Measure what docs/evaluation.md says of the shipped recordings, and print it.

Run as ``.venv/bin/python docs/measure.py``.  Figures of types: `sklearn`'s adjusted Rand
index of the clusters against what the program says its executions are.
"""  # noqa: INP001 - a script beside the documents, no package

from __future__ import annotations

import csv
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
from sklearn.metrics import adjusted_rand_score

from critpath import flow
from critpath.cluster.optics import METHODS, cluster
from critpath.detect.families import score_unusualness
from critpath.model import CompareSettings, PathSet
from critpath.stats.permutations import gate
from critpath.vectors.table import ALPHABETS, fold_interrupts, vector_table

# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


FIXTURES: Final = Path(__file__).resolve().parent.parent / "fixtures" / "lttng-guest"
EXECUTION: Final = "events:app:request_begin,app:request_end,key=id"
SAMPLES: Final = ("normal-2", "sample-delay", "sample-fsync", "sample-lock", "sample-quota")


def load(place: Path, name: str, label: str = "") -> PathSet:
    """Extract one shipped recording."""
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as tar:
        tar.extractall(place, **DATA_ONLY)  # noqa: S202 - archives of our own
    return flow.extract([place / name], specification=EXECUTION + label)


def verdicts(place: Path, label: str) -> list[str]:
    """Compare every sample with the normal set, and hold the outcome against the truth."""
    normal = load(place, "normal", label)
    lines = ["| sample | verdict | with a fault | of them marked | others marked |"]
    lines.append("|---|---|---:|---:|---:|")
    for name in (*SAMPLES, "lossy"):
        result = flow.compare(normal, load(place, name, label))
        truth = {r["id"]: r for r in csv.DictReader((place / name / "truth.csv").open())}
        faulty = {i for i, row in truth.items() if row["bug"] != "none"}
        ids = result.sample.executions.id
        marked = {i for i, wrong in zip(ids, result.outliers.anomalous, strict=True) if wrong}
        counts = f"{len(faulty)} | {len(marked & faulty)} | {len(marked - faulty)}"
        lines.append(f"| {name} | {result.verdict} | {counts} |")
    return lines


def families(place: Path) -> list[str]:
    """Test the families of the gate apart, and all of their columns in one."""
    normal = load(place, "normal")
    lines = ["| sample | the whole | the states | one family of all |", "|---|---:|---:|---:|"]
    for name in SAMPLES:
        result = flow.compare(normal, load(place, name), CompareSettings(explain_limit=0))
        tables = result.normal_vectors, result.sample_vectors
        strata = (
            result.normal_clusters.labels,
            result.pairs.pair[result.sample_clusters.labels],
        )
        judged = fold_interrupts(tables[0]), fold_interrupts(tables[1])
        columns = zip(tables, score_unusualness(*judged, *strata), strict=True)
        x, y = (np.column_stack([t.durations, t.total, score]) for t, score in columns)
        cells = []
        for chosen in (slice(-2, None), slice(0, -2), slice(0, None)):
            found = gate(x[:, chosen], y[:, chosen], *strata, alpha=0.01, permutations=9999)
            cells.append(f"{min(found.p_value.min(), found.stratum_p_value.min()):.4f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def types(place: Path) -> list[str]:
    """Cluster healthy executions without their labels, and compare with these."""
    lines = ["| method | recording | types | clusters | noise | agreement |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    for name in ("normal", "normal-2"):
        paths = load(place, name, ",label=type")
        alphabet = ALPHABETS["thread"]((paths,))
        table = vector_table(paths, alphabet.symbols, alphabet.codes[0])
        truth = paths.executions.label
        for method in METHODS:
            found = cluster(table, method=method)
            noise = int((found.raw_labels < 0).sum())
            agreement = adjusted_rand_score(truth, found.labels)
            counts = f"{len(set(truth))} | {found.size} | {noise}"
            lines.append(f"| `{method}` | {name} | {counts} | {agreement:.3f} |")
    return lines


def main() -> int:
    """Print every table."""
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        tables = verdicts(here, ""), verdicts(here, ",label=-"), families(here), types(here)
    sys.stdout.write("\n\n".join("\n".join(lines) for lines in tables) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
