"""The two aligners on real normal groups: ../shared/traces/lttng-guest.

Run as ``python evaluation/benchmarks/real_groups.py [NAME ...]``.  Nobody knows the true
alignment of these executions.  What is measured instead: columns; columns that hold a
segment of one execution only; the variance of log durations within columns over that of
all (the same work takes alike times; degrees of freedom are allowed for, so that more
columns are no better by themselves); the share of pairs of segments in a column that are
in the same state; seconds.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np

from critpath.align.multiple import METHODS, align
from critpath.flow import compare, extract
from critpath.localize.segments import rows_of
from critpath.model import CompareSettings
from critpath.vectors.table import ALPHABETS

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces" / "lttng-guest"
SPECIFICATION = "events:app:request_begin,app:request_end,key=id"
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def aligned(method: str, sequences: list[np.ndarray], alphabet: int) -> np.ndarray:
    durations = [np.zeros(len(s), np.int64) for s in sequences]
    return align(sequences, durations, alphabet, method=method).rows >= 0


def describe(
    present: np.ndarray, sequences: list[np.ndarray], durations: list[np.ndarray]
) -> tuple[int, int, float, float]:
    """Return columns, columns of one row, variance within columns, share of like states."""
    column = np.concatenate([np.flatnonzero(row) for row in present])
    letter = np.concatenate(sequences).astype(np.int64)
    size = np.log1p(np.concatenate(durations))
    held = np.bincount(column, minlength=present.shape[1])
    mean = np.bincount(column, size) / held
    inside = ((size - mean[column]) ** 2).sum() / (len(size) - len(held))
    within = inside / size.var(ddof=1)
    same = np.bincount(column * 256 + letter)
    pairs = (held * (held - 1)).sum()
    like = (same * (same - 1)).sum() / pairs if pairs else 1.0
    return present.shape[1], int((held == 1).sum()), float(within), float(like)


def main() -> int:
    if not TRACES.is_dir():
        print("real groups: left out, they need ../shared")
        return 0
    write = sys.stdout.write
    write(f"{'group: executions, distinct, longest':40} {'aligner':12}")
    write(" columns  single   within    like       s\n")
    totals: dict[str, list[tuple[float, ...]]] = {method: [] for method in METHODS}
    for name in sys.argv[1:] or ["normal", "normal-2", "steady-normal"]:
        with tempfile.TemporaryDirectory() as directory:
            with tarfile.open(TRACES / f"{name}.tar.xz") as archive:
                archive.extractall(directory, **DATA_ONLY)  # noqa: S202 - archives of our own
            place = next(p for p in (Path(directory), Path(directory) / name) if p.is_dir())
            paths = extract([place], specification=SPECIFICATION)
            comparison = compare(paths, paths)
        segments, table = paths.paths, comparison.normal_vectors
        codes = ALPHABETS[CompareSettings().alphabet]((paths,)).codes[0]
        labels = comparison.normal_clusters.labels
        for group in np.unique(labels):
            rows = np.flatnonzero(labels == group)
            sequences = [codes[rows_of(segments, i)] for i in rows]
            durations = [segments.duration[rows_of(segments, i)] for i in rows]
            distinct = len({s.tobytes() for s in sequences})
            if distinct < 2:
                continue
            head = f"{name} {group}: {len(rows)}, {distinct}, {max(map(len, sequences))}"
            for method in METHODS:
                begin = time.perf_counter()
                present = aligned(method, sequences, len(table.symbols))
                seconds = time.perf_counter() - begin
                columns, single, within, like = describe(present, sequences, durations)
                write(
                    f"{head:40} {method:12} {columns:7} {single:7}"
                    f" {within:8.4f} {like:7.4f} {seconds:7.3f}\n"
                )
                head = ""
                totals[method].append((columns, single, within, like, seconds))
    for aligner_name, measured in totals.items():
        columns, single, within, like, seconds = np.mean(measured, axis=0)
        write(
            f"{f'mean of {len(measured)} groups':40} {aligner_name:12} {columns:7.1f} {single:7.1f}"
            f" {within:8.4f} {like:7.4f} {seconds:7.3f}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
