"""Whether a planted change is found where it is: ``python evaluation/benchmarks/planted.py``.

One row of a family has three blocks of 1 to 8 states more, of states that all rows have, at random
places.  Of the segments of that row in columns that no other row has, precision is the share
that are truly its own; recall is the share of these that are there.  Families of three
generators, flat and with loops, of three degrees of divergence: rows of a tree and of a star
(`simulated`, true columns are known, so what the row has alone without being planted counts
as well), and those of the specification (`families`: only what is planted is known; what is
alone before it is planted is left out).  The row is added to the aligned others, as critpath
does, or aligned with them (``--joint``).

``--families N``: in all (100).  ``--seed N``: of the first, to tune on others.  ``--aligner``
takes a peer, too (`peers`), which aligns all rows together.

``--bound``: families of stars only, as one sees them who knows what no aligner does: the path
that all rows were changed from, and how often what is changed.  Of each segment of the row
the posterior that it is none of that path's; precision and recall at each chance asked for.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from itertools import product

import numpy as np
import peers
from families import LETTERS, family
from simulated import INDELS, SUBSTITUTIONS, Simulator, draw

from critpath.align.multiple import METHODS, RowGroup, align
from critpath.align.posteriors import GapChances, find_posteriors
from critpath.align.profiles import f81_model

BLOCKS, LONGEST = 3, 8
LEVELS = ("low", "mid", "high")
FIRST_SEED = 700_000  # of no other benchmark
KINDS = list(product(("tree", "star", "families"), ("flat", "loop"), LEVELS))
CHANCES = (0.5, 0.6, 0.7, 0.8)  # that a segment is its row's own


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
    if method not in METHODS:
        there = peers.run(method, [*rows, last])[0] >= 0
    elif joint:
        there = align([*rows, last], times, LETTERS, method=method).rows >= 0
    else:
        there = RowGroup(rows, times[:-1], LETTERS, method=method).add(last, times[-1]).rows >= 0
    return np.asarray(~there[:-1, there[-1]].any(axis=0))


def cases(
    number: int, seed: int = FIRST_SEED
) -> Iterator[tuple[str, list[np.ndarray], np.ndarray, np.ndarray]]:
    """Yield families: others, a row, and its segments that are its own (-1: not known)."""
    for i in range(number):
        history, kind, level = KINDS[i % len(KINDS)]
        rng = np.random.default_rng(seed + i)
        count, length = int(rng.integers(10, 31)), int(rng.integers(60, 301))
        if history == "families":
            paths = [p.codes for p in family(rng, count, length, level, loops=kind == "loop")]
            own = np.full(len(paths[-1]), -1)
        else:
            drawn = draw(history, kind, level, count, length, seed + i)
            paths = drawn.sequences
            known = {column for columns in drawn.columns[:-1] for column in columns}
            own = np.array([column not in known for column in drawn.columns[-1]], int)
        yield f"{history}, {kind}", paths[:-1], paths[-1], own


def print_bound(number: int, seed: int) -> None:
    """Print what can be told of rows of stars by one who knows their template and its rates."""
    seen: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for i, (name, _, row, own) in enumerate(cases(number, seed)):
        history, kind, level = KINDS[i % len(KINDS)]
        if history != "star":
            continue
        last, was = plant(np.random.default_rng(i), row)
        length = int(np.random.default_rng(seed + i).integers([10, 60], [31, 301])[1])
        sites = Simulator(seed + i, loops=kind == "loop").template(length)
        template = np.array([site.letter for site in sites], np.uint8)
        letters = np.bincount(np.concatenate([template, last]), minlength=LETTERS)
        model = f81_model(letters, pi=float(np.exp(-SUBSTITUTIONS[level])))
        gaps = GapChances(open=0.01 + INDELS[level] / 2)  # an inserted block is none of the rates'
        found = find_posteriors([last, template], model.ratio, gaps, threshold=1e-4, margin=300)
        first = found.begin[len(last) : 2 * len(last) + 1]  # rows of the pair (0, 1)
        there = np.diff(np.concatenate([[0.0], np.cumsum(found.value, dtype=float)])[first])
        both = np.array([1 - there, np.where(was < 0, 1, own[was])])
        seen[name].append(both)
        seen["all stars"].append(both)
    print("| families | chance | precision | recall |\n|---|---:|---:|---:|")
    for name, each in sorted(seen.items()):
        chance, truth = np.hstack(each)
        for least in CHANCES:
            right = int(((chance >= least) & (truth == 1)).sum())
            precision, recall = right / (chance >= least).sum(), right / truth.sum()
            print(f"| {name} | {least} | {precision:.3f} | {recall:.3f} |")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", type=int, default=100)
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--joint", action="store_true")
    parser.add_argument("--aligner", choices=(*METHODS, *peers.PEERS), default=METHODS[0])
    parser.add_argument("--bound", action="store_true")
    options = parser.parse_args()
    if options.bound:
        print_bound(options.families, options.seed)
        return
    counts: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for i, (name, others, row, own) in enumerate(cases(options.families, options.seed)):
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
