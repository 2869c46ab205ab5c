"""Time and memory of aligning long paths: ``python evaluation/benchmarks/long_paths.py``.

Each case runs in a process of its own and reports the seconds of `align`, the most
memory the process ever had, and how many of the first row's states share a column with
the same state of its neighbour.  A path is a program: straight pieces and loops of 2 to
25 iterations, 12 states.  `easy` rows differ by 1 in 100 states; `hard` rows by 1 in 4,
so that no 12 states in a row are found unchanged in all of them; `loops` has few pieces
and iterations by the thousand, as many as it likes in every row.
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

CASES = (
    ("easy", 20, 10_000),
    ("hard", 20, 10_000),
    ("loops", 20, 10_000),
    ("easy", 20, 50_000),
    ("hard", 20, 50_000),
    ("loops", 20, 50_000),
)
LETTERS = 12


def program(rng: np.random.Generator, length: int) -> np.ndarray:
    """Return a path of straight pieces and loops of about `length` states."""
    parts: list[np.ndarray] = []
    total = 0
    while total < length:
        piece = rng.integers(0, LETTERS, rng.integers(2, 17))
        if rng.random() < 0.5:
            piece = np.tile(piece[: rng.integers(2, 7)], 2 + min(int(rng.geometric(0.15)), 23))
        parts.append(piece)
        total += len(piece)
    return np.concatenate(parts)[:length]


def mutate(rng: np.random.Generator, row: np.ndarray, rate: float) -> np.ndarray:
    """Change, drop and insert states; each a third of `rate`."""
    draw = rng.random(len(row))
    row = np.where(draw < rate / 3, rng.integers(0, LETTERS, len(row)), row)
    row = row[(draw < rate / 3) | (draw > 2 * rate / 3)]
    at = rng.integers(0, len(row) + 1, rng.binomial(len(row), rate / 3))
    return np.insert(row, at, rng.integers(0, LETTERS, len(at)))


def rows_of(kind: str, count: int, length: int) -> list[np.ndarray]:
    """Return the rows of one case."""
    rng = np.random.default_rng(length)
    if kind != "loops":
        ancestor = program(rng, length)
        rate = {"easy": 0.01, "hard": 0.25}[kind]
        return [mutate(rng, ancestor, rate).astype(np.uint8) for _ in range(count)]
    pieces = [rng.integers(0, LETTERS, 8) for _ in range(6)]
    units = [rng.integers(0, LETTERS, 4) for _ in pieces]
    result = []
    for _ in range(count):
        parts = []
        for piece, unit in zip(pieces, units, strict=True):
            mean = length // (len(unit) * len(units))
            parts += [piece, np.tile(unit, int(rng.integers(mean // 2, 3 * mean // 2)))]
        result.append(np.concatenate(parts).astype(np.uint8))
    return result


def measure(kind: str, count: int, length: int) -> str:
    """Align one case in this process."""
    rows = rows_of(kind, count, length)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    aligned = align(rows, [np.ones(len(r), np.int64) for r in rows], LETTERS)
    seconds = time.perf_counter() - begin
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    symbols = aligned.symbols
    agree = np.mean((symbols[0] == symbols[1])[symbols[0] >= 0])
    return (
        f"{kind:6} {count} x {length:6,}: {seconds:7.1f} s, {most / 1024:6.0f} MiB"
        f" ({before / 1024:.0f} before), {symbols.shape[1]:,} columns, {agree:.3f} agree,"
        f" {len(aligned.loops)} loops{''.join('; ' + note for note in word_all(aligned.notes))}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs=3, metavar=("KIND", "ROWS", "LENGTH"))
    parser.add_argument("--longest", type=int, default=50_000)
    options = parser.parse_args()
    if options.case:
        kind, count, length = options.case
        sys.stdout.write(measure(kind, int(count), int(length)) + "\n")
        return 0
    failed = 0
    for kind, count, length in CASES:
        if length <= options.longest:
            case = [sys.executable, __file__, "--case", kind, str(count), str(length)]
            failed |= subprocess.run(case, check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
