"""Whether a planted change is found where it is: ``python tests/benchmarks/planted.py``.

One row of a family has three blocks of 1 to 8 states more, of states that all rows have, at random
places.  Of the segments of that row in columns that no other row has, precision is the share
that are truly its own; recall is the share of these that are there.  Families of three
generators, flat and with loops, of three degrees of divergence: rows of a tree and of a star
(`simulated`, true columns are known, so what the row has alone without being planted counts
as well), and those of the specification (`families`: only what is planted is known; what is
alone before it is planted is left out).  The row is added to the aligned others, as critpath
does, or aligned with them (``--joint``).

``--families N``: in all (100).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from itertools import product

import numpy as np
from families import LETTERS, family
from simulated import draw

from critpath.align.multiple import METHODS, Group, align

BLOCKS, LONGEST = 3, 8
LEVELS = ("low", "mid", "high")
FIRST_SEED = 700_000  # of no other benchmark


def plant(rng: np.random.Generator, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a row with blocks more, and where each segment was, -1 for what is planted."""
    was = np.arange(len(row))
    for place in rng.integers(0, len(row) + 1, BLOCKS).tolist():
        block = rng.choice(row, int(rng.integers(1, LONGEST + 1)))
        at = int(np.searchsorted(np.flatnonzero(was >= 0), place)) if place else 0
        row, was = np.insert(row, at, block), np.insert(was, at, -np.ones(len(block), int))
    return row, was


def alone(rows: list[np.ndarray], last: np.ndarray, method: str, *, joint: bool) -> np.ndarray:
    """Return which segments of the last row stand in a column of it alone."""
    times = [np.ones(len(row), np.int64) for row in (*rows, last)]
    if joint:
        aligned = align([*rows, last], times, LETTERS, method=method)
    else:
        aligned = Group(rows, times[:-1], LETTERS, method=method).add(last, times[-1])
    others = (aligned.rows[:-1] >= 0).any(axis=0)
    mine = aligned.rows[-1]
    result = np.zeros(len(last), np.bool_)
    result[mine[(mine >= 0) & ~others]] = True
    return result


def cases(number: int) -> Iterator[tuple[str, list[np.ndarray], np.ndarray, np.ndarray]]:
    """Yield families: others, a row, and its segments that are its own (-1: not known)."""
    kinds = list(product(("tree", "star", "families"), ("flat", "loop"), LEVELS))
    for i in range(number):
        history, kind, level = kinds[i % len(kinds)]
        rng = np.random.default_rng(FIRST_SEED + i)
        count, length = int(rng.integers(10, 31)), int(rng.integers(60, 301))
        if history == "families":
            paths = [p.codes for p in family(rng, count, length, level, loops=kind == "loop")]
            own = np.full(len(paths[-1]), -1)
        else:
            drawn = draw(history, kind, level, count, length, FIRST_SEED + i)
            paths = drawn.sequences
            known = {column for columns in drawn.columns[:-1] for column in columns}
            own = np.array([column not in known for column in drawn.columns[-1]], int)
        yield f"{history}, {kind}", paths[:-1], paths[-1], own


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", type=int, default=100)
    parser.add_argument("--joint", action="store_true")
    parser.add_argument("--aligner", choices=METHODS, default=METHODS[0])
    options = parser.parse_args()
    counts: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for i, (name, others, row, own) in enumerate(cases(options.families)):
        last, was = plant(np.random.default_rng(i), row)
        found = alone(others, last, options.aligner, joint=options.joint)
        truth = np.where(was < 0, 1, own[was])
        if (own < 0).any():
            before = alone(others, row, options.aligner, joint=options.joint)
            truth = np.where(was < 0, 1, np.where(before[was], -1, 0))
        sure = truth >= 0
        right = int((found & (truth == 1)).sum())
        figures = np.array([right, int((found & sure).sum()), int((truth == 1).sum())])
        counts[name].append(figures)
        counts["all"].append(figures)
    print("| families | | precision | recall | mean precision | mean recall |")
    print("|---|---:|---:|---:|---:|---:|")
    whole = counts.pop("all")
    for name, each in [*sorted(counts.items()), ("all", whole)]:
        right, found, true = np.array(each).T
        print(
            f"| {name} | {len(each)} | {right.sum() / found.sum():.3f} "
            f"| {right.sum() / true.sum():.3f} "
            f"| {np.mean(right / np.maximum(found, 1)):.3f} | {np.mean(right / true):.3f} |"
        )


if __name__ == "__main__":
    main()
