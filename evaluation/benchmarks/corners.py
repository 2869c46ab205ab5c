"""Time and memory of aligning by posteriors at its limits.

``python evaluation/benchmarks/corners.py``.
Each case runs in a process of its own: copies of one random path with a share of the states
redrawn and a third as many left out, or paths that have nothing in common.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

from critpath.align.multiple import align
from critpath.text.notes import word_all

# Paths, states in each, alphabet, share of states redrawn (1: unrelated).
CASES = (
    (51, 1000, 12, 0.2),
    (51, 1000, 12, 0.5),
    (51, 1000, 3, 0.3),
    (50, 1000, 10, 1.0),
    (17, 3000, 10, 1.0),
    (450, 16, 12, 0.3),
    (999, 5, 12, 1.0),
    (170, 180, 12, 0.1),
    (30, 6000, 10, 0.2),
    (12, 20000, 12, 0.05),
    (12, 20000, 12, 0.4),
    (6, 20000, 10, 1.0),
)


def draw(paths: int, length: int, letters: int, changed: float) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    first = rng.integers(0, letters, length).astype(np.uint8)
    rows = []
    for _ in range(paths):
        fresh = rng.integers(0, letters, length).astype(np.uint8)
        row = np.where(rng.random(length) < changed, fresh, first)
        keep = (rng.random(length) >= changed / 3) | (changed == 1)
        keep[0] = True
        rows.append(row[keep])
    return rows


def measure(paths: int, length: int, letters: int, changed: float) -> str:
    rows = draw(paths, length, letters, changed)
    begin = time.process_time()
    aligned = align(rows, [np.ones(len(row), np.int64) for row in rows], letters)
    seconds = time.process_time() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    kind = "unrelated" if changed == 1 else f"{changed:.0%} changed"
    case = f"{paths} x {length}, {letters} states, {kind}"
    return f"| {case} | {seconds:.1f} | {memory:.0f} | {'; '.join(word_all(aligned.notes))} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", type=int, choices=range(len(CASES)))
    number = parser.parse_args().case
    if number is not None:
        sys.stdout.write(measure(*CASES[number]) + "\n")
        return 0
    sys.stdout.write("| paths | CPU s | MiB | |\n|---|---:|---:|---|\n")
    sys.stdout.flush()
    for number in range(len(CASES)):
        subprocess.run([sys.executable, __file__, "--case", str(number)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
