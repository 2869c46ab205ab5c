"""How often healthy executions alarm: the shipped normal recordings against themselves.

Executions of both healthy recordings are pooled, shuffled and split into a normal and a
sample set, again and again; every alarm is a false one.

    python evaluation/benchmarks/false_alarms.py [SPLITS] [SAMPLE]
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

from critpath.cluster.types import rows_of
from critpath.detect.judging import judge
from critpath.flow import extract
from critpath.model import CompareSettings, VectorTable
from critpath.vectors.table import by_thread, vector_table

# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "lttng-guest"
EXECUTION = "events:app:request_begin,app:request_end,key=id"
NORMAL = 105


def pooled() -> tuple[VectorTable, list[str]]:
    """Return the vectors and labels of every healthy execution."""
    sets = []
    with tempfile.TemporaryDirectory() as home:
        for name in ("normal", "normal-2"):
            with tarfile.open(FIXTURES / f"{name}.tar.xz") as tar:
                tar.extractall(home, **DATA_ONLY)  # noqa: S202 - archives of our own
            sets.append(extract([Path(home) / name], specification=EXECUTION))
    alphabet = by_thread(sets)
    tables = [
        vector_table(path_set, alphabet.symbols, codes)
        for path_set, codes in zip(sets, alphabet.codes, strict=True)
    ]
    columns = ("counts", "durations", "structure")
    every = [np.concatenate([getattr(t, column) for t in tables]) for column in columns]
    labels = [label for path_set in sets for label in path_set.executions.label]
    return VectorTable(alphabet.symbols, *every), labels


def main(splits: int = 100, size: int = 11) -> None:
    """Print the share of splits with a verdict of anomaly, and with a marked execution."""
    table, labels = pooled()
    rng = np.random.default_rng(1)
    alarms = marks = 0
    for _ in range(splits):
        order = rng.permutation(len(table))
        normal, sample = np.sort(order[size : size + NORMAL]), np.sort(order[:size])
        ours, theirs = rows_of(table, normal), rows_of(table, sample)
        found = judge(
            ours,
            theirs,
            CompareSettings(permutations=999),
            labels=([labels[i] for i in normal], [labels[i] for i in sample]),
            sessions=(None, None),
            screening=False,
        )
        alarms += found.detection.flagged
        marks += bool(found.outliers.anomalous.any())
    print(f"{splits} splits of healthy executions, {NORMAL} against {size}:")
    print(f"  verdict anomaly: {alarms} ({alarms / splits:.1%})")
    print(f"  an execution marked: {marks} ({marks / splits:.1%})")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
