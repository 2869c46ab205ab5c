"""What adding a row to an aligned group costs against aligning all together.

``python evaluation/benchmarks/added.py [--method posteriors|muscle]``: on every family of
../shared/msa-bench with L <= 300 three rows are held out in turn.  The rest is aligned
and the row added (``add``), or all are aligned (``joint``); SP is the share of the true
pairs of that row with the others that are recovered.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict

import numpy as np
from msa import BENCH, LETTERS, columns_in, families

from critpath.align.multiple import METHODS, RowGroup, align


def pairs_kept(reference: list[list[int]], test: list[list[int]], which: int) -> tuple[int, int]:
    """Return how many true pairs of one row are in the test alignment, and how many there are."""
    kept = total = 0
    place = dict(zip(reference[which], test[which], strict=True))
    for row, (ours, theirs) in enumerate(zip(reference, test, strict=True)):
        if row != which:
            both = [(place[r], t) for r, t in zip(ours, theirs, strict=True) if r in place]
            total += len(both)
            kept += sum(mine == other for mine, other in both)
    return kept, total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", choices=METHODS, default=METHODS[0])
    method = parser.parse_args().method
    if not BENCH.is_dir():
        print("adding to a group: left out, it needs ../shared")
        return 0
    shares: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    seconds = {"add": 0.0, "joint": 0.0}
    for family in families(300):
        n = len(family.sequences)
        for which in sorted({0, n // 2, n - 1}):
            order = [*(i for i in range(n) if i != which), which]
            rows = [family.sequences[i] for i in order]
            times = [np.ones(len(row), np.int64) for row in rows]
            reference = [family.reference[i] for i in order]
            group = RowGroup(rows[:-1], times[:-1], len(LETTERS), method=method)
            begin = time.perf_counter()
            added = group.add(rows[-1], times[-1])
            seconds["add"] += time.perf_counter() - begin
            begin = time.perf_counter()
            joint = align(rows, times, len(LETTERS), method=method)
            seconds["joint"] += time.perf_counter() - begin
            found = [pairs_kept(reference, columns_in(a.rows), n - 1) for a in (added, joint)]
            pair = (found[0][0] / found[0][1], found[1][0] / found[1][1])
            for key in (family.group, "all"):
                shares[key].append(pair)
    lines = ["| | add | joint |", "|---|---:|---:|"]
    for key, pairs in sorted(shares.items()):
        add, together = np.mean(pairs, axis=0)
        lines.append(f"| {key} | {add:.4f} | {together:.4f} |")
    lines.append(f"| s, of the row alone | {seconds['add']:.2f} | {seconds['joint']:.2f} |")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
