"""How well the aligner recovers known alignments: SP and TC on ../shared/msa-bench.

Run as ``python tests/benchmarks/msa.py [--refine N] [--longest L]``.  Every figure
stands beside MUSCLE 3's on the same families.  SP: share of the reference's residue
pairs that are aligned; TC: share of the reference's columns of two or more residues
whose residues all fall into one column.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from critpath.align.multiple import align

BENCH = Path(__file__).resolve().parents[3] / "shared" / "msa-bench"
LETTERS = "ABCDEFGHIJKL"


def read_lines(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(BENCH / name, "rt") as file:
        for line in file:
            yield json.loads(line)


def columns_of(rows: list[str]) -> list[list[int]]:
    """Return the column of every residue of every row."""
    return [[c for c, letter in enumerate(row) if letter != "-"] for row in rows]


def score(reference: list[list[int]], test: list[list[int]]) -> tuple[float, float]:
    """Return SP and TC of a test alignment."""
    joint: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for ours, theirs in zip(reference, test, strict=True):
        for r, t in zip(ours, theirs, strict=True):
            joint[r][t] += 1
    pairs = kept = whole = columns = 0
    for counter in joint.values():
        size = sum(counter.values())
        if size < 2:
            continue
        columns += 1
        whole += len(counter) == 1
        pairs += size * (size - 1) // 2
        kept += sum(n * (n - 1) // 2 for n in counter.values())
    return kept / pairs, whole / columns


def measure(refine: int, longest: int) -> dict[str, tuple[float, float, float, float, float]]:
    """Return SP, TC, MUSCLE 3's SP and TC, and seconds, for every family."""
    peers = {p["name"]: p["aln"] for p in read_lines("peers.jsonl.gz") if p["tool"] == "muscle3"}
    result = {}
    for family in read_lines("families.jsonl.gz"):
        name = family["name"]
        if int(name.split("_")[1][1:]) > longest:
            continue
        ids = sorted(family["ref"])
        reference = columns_of([family["ref"][i] for i in ids])
        sequences = [
            np.array([LETTERS.index(x) for x in family["ref"][i] if x != "-"], np.uint8)
            for i in ids
        ]
        durations = [np.array(family["dur_us"][i], np.int64) * 1000 for i in ids]
        begin = time.perf_counter()
        aligned = align(sequences, durations, len(LETTERS), refine=refine)
        seconds = time.perf_counter() - begin
        ours = score(reference, [list(np.flatnonzero(row >= 0)) for row in aligned.rows])
        theirs = score(reference, columns_of([peers[name][i] for i in ids]))
        result[name] = (*ours, *theirs, seconds)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--refine", type=int, default=4)
    parser.add_argument("--longest", type=int, default=300)
    options = parser.parse_args()
    measured = measure(options.refine, options.longest)
    table: defaultdict[str, list[tuple[float, ...]]] = defaultdict(list)
    for name, row in measured.items():
        _, _, level, kind, _ = name.split("_")
        table[f"{kind} {level}"].append(row)
    lines = [f"{'families':12}   n      SP      TC   MUSCLE 3 SP      TC      s"]
    for key, rows in [*sorted(table.items()), ("all", [*measured.values()])]:
        sp, tc, their_sp, their_tc, seconds = np.mean(rows, axis=0)
        lines.append(
            f"{key:12} {len(rows):3} {sp:7.4f} {tc:7.4f}"
            f"   {their_sp:11.4f} {their_tc:7.4f} {seconds:6.2f}"
        )
    deficit, worst = min((row[0] - row[2], name) for name, row in measured.items())
    better = sum(row[0] >= row[2] for row in measured.values())
    lines.append(
        f"SP at least MUSCLE 3's in {better} of {len(measured)}; worst {deficit:+.3f} in {worst}"
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
