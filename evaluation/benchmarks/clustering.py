"""How long finding and pairing types takes, beside scikit-learn's OPTICS.

    python evaluation/benchmarks/clustering.py [ROUNDS] [--tiny]
    python evaluation/benchmarks/clustering.py --rows FILE | --large

OPTICS alone against scikit-learn's on the same executions, one after the other in this
process: ordering, reachability, predecessors and core distances have to be the same.
Then pairing against ``silhouette_score`` for every pair.  Then all of it: 100,000 executions
of 200 distinct paths, and sets of executions that are all different: types of the normal
set, types of a sample of the same size, pairs.  Figures are CPU seconds.

``--large``: the last for 100,000 executions that are all different, which takes minutes.
``--rows``: what ``scale.py`` takes into its table.  ``--tiny``: sets of a fiftieth.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np
from measuring import Row, add_rows, take_rows
from sklearn.cluster import OPTICS
from sklearn.metrics import silhouette_score

from critpath.cluster.optics import METHODS, cluster
from critpath.cluster.pairing import merged_scores, normal_space, pair
from critpath.cluster.space import Density, density, distinct, stabilise
from critpath.cluster.types import cluster_sample
from critpath.model import F64, I64, Clustering, State, Symbol, VectorTable

SYMBOLS = 13
TYPES = 7
WHOLE = (
    "| executions, normal and sample each | distinct | types | sample's types | pairs | s |\n"
    "|---|---:|---:|---:|---:|---:|"
)


class Paired(NamedTuple):
    """Seconds that pairing took, scikit-learn's for all merges, and how far scores are apart."""

    merges: int
    peer: float
    ours: float
    away: float

    @property
    def ratio(self) -> float:
        """How many times as fast."""
        return self.peer / self.ours


def table(counts: I64, rng: np.random.Generator) -> VectorTable:
    """Return counts with durations that go with them."""
    symbols = tuple(Symbol(State.RUN, f"thread-{i}") for i in range(counts.shape[1]))
    durations = counts * 1000 + rng.integers(0, 1000, counts.shape)
    return VectorTable(symbols, counts, durations)


def few_paths(n: int, paths: int, seed: int) -> VectorTable:
    """Executions of a few distinct paths, some of them far more frequent than others."""
    fixed = np.random.default_rng(1)
    mean = np.exp(fixed.normal(1.5, 1.0, (TYPES, SYMBOLS)))
    vectors = np.unique(fixed.poisson(mean[np.arange(paths * 2) % TYPES]), axis=0)
    vectors = vectors[fixed.permutation(len(vectors))[:paths]]
    share = fixed.pareto(1.0, paths) + 0.1
    rng = np.random.default_rng(seed)
    return table(vectors[rng.choice(paths, n, p=share / share.sum())], rng)


def all_different(n: int, seed: int) -> VectorTable:
    """Executions of which no two have the same counts."""
    mean = np.exp(np.random.default_rng(1).normal(2.5, 1.0, (TYPES, SYMBOLS)))
    rng = np.random.default_rng(seed)
    return table(rng.poisson(mean[np.arange(n) % TYPES]), rng)


def seconds(work: Callable[[], object]) -> tuple[float, object]:
    """Return how much CPU time something takes, and its result."""
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def whole(name: str, normal: VectorTable, sample: VectorTable) -> None:
    """Print the times of every step of finding types."""
    paths = len(np.unique(normal.structure, axis=0))
    first, ours = seconds(lambda: cluster(normal))
    second, theirs = seconds(lambda: cluster_sample(sample, normal, ours))
    third, _ = seconds(lambda: pair(normal, ours, sample, theirs))
    steps = " | ".join(f"{step:.2f}" for step in (first, second, third, first + second + third))
    print(f"| {name} | {paths:,} | {steps} |")


def ours(space: F64) -> Density:
    """OPTICS of executions in any order, however many of them are equal."""
    once = distinct(space)
    rows = np.argsort(once.member, kind="stable")
    return density(space[once.row], once.weight, 5, rows)


def theirs(space: F64) -> OPTICS:
    """scikit-learn's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it divides by reachabilities of 0
        return OPTICS(min_samples=5).fit(space)


def same(found: Density, peer: OPTICS) -> str:
    """Say which of the arrays are the same: numbers to 12 decimals, all else exactly."""
    alike = (
        np.array_equal(found.ordering, peer.ordering_),
        np.allclose(found.reachability, peer.reachability_, rtol=0, atol=1e-12),
        np.array_equal(found.predecessor, peer.predecessor_),
        np.allclose(found.core[found.member], peer.core_distances_, rtol=0, atol=1e-12),
    )
    return "yes" if all(alike) else str(alike)


def temp_sibling(name: str, mine: F64, peers: F64, rounds: int) -> None:
    """Print the ratio to scikit-learn's OPTICS; of the same executions, or of fewer."""
    taken: tuple[list[float], list[float]] = ([], [])
    verdict = ""
    for _ in range(rounds):
        first, peer = seconds(lambda: theirs(peers))
        second, found = seconds(lambda: ours(mine))
        taken[0].append(first)
        taken[1].append(second)
        verdict = same(found, peer) if mine is peers else "-"
    ratios = [a / b for a, b in zip(*taken, strict=True)]
    spread = f"{median(ratios):.0f} [{min(ratios):.0f} to {max(ratios):.0f}]"
    paths = len(np.unique(mine, axis=0))
    print(
        f"| {name} | {paths:,} | {median(taken[0]):.2f} | {median(taken[1]):.3f} | {spread} "
        f"| {verdict} |",
        flush=True,
    )


def cut(each: VectorTable, clusters: int) -> Clustering:
    """Clusters of equal sizes, of executions that follow each other in order of their counts."""
    label = np.empty(len(each), np.int64)
    label[np.lexsort(each.structure.T[::-1])] = np.arange(len(each)) * clusters // len(each)
    return Clustering(
        label, label, np.zeros(len(each), bool), np.arange(len(each)), label * 0.0, "given"
    )


def pairing(sets: Sequence[VectorTable], clusters: int, asked: int, seed: int) -> Paired:
    """Pair clusters with normal ones; some of all merges are scored by scikit-learn, too."""
    normal, sample = sets
    ours, theirs = (cut(each, clusters) for each in sets)
    # The shortest of a few: one is over before a neighbour's burst is.
    fast = min(seconds(lambda: pair(normal, ours, sample, theirs))[0] for _ in range(3))
    labels = theirs.labels
    once = distinct(np.column_stack([labels, sample.structure]))
    found = merged_scores(
        normal_space(normal, ours),
        stabilise(sample.structure[once.row]),
        once.weight,
        labels[once.row],
    ).score
    rng = np.random.default_rng(seed)
    slow, away = 0.0, 0.0
    for merge in rng.choice(clusters**2, asked, replace=False).tolist():
        c, k = divmod(merge, clusters)
        mine = stabilise(sample.structure[labels == c])
        points = np.concatenate([stabilise(normal.structure), mine])
        merged = np.concatenate([ours.labels, np.full(len(mine), k)])
        taken, score = seconds(partial(silhouette_score, points, merged))
        slow, away = slow + taken / asked, max(away, abs(float(score) - found[c, k]))
    return Paired(clusters**2, slow * clusters**2, fast, away)


def pairs_beside(name: str, sets: Sequence[VectorTable]) -> None:
    """Print the ratio to ``silhouette_score`` of every pair of 20 and 20 clusters."""
    paths = len(np.unique(sets[0].structure, axis=0))
    done = pairing(sets, 20, 8, 1)
    print(
        f"| {name} | {paths:,} | {done.merges} | {done.peer:.1f} | {done.ours:.3f} "
        f"| {done.ratio:,.0f} | {done.away:.1e} |",
        flush=True,
    )


def with_repeats(n: int = 5_000) -> list[VectorTable]:
    """Two sets of executions of a seventh as many paths, of which not all are drawn."""
    return [few_paths(n, n * 7 // 50, seed) for seed in (1, 2)]


def without_repeats(n: int = 5_000) -> list[VectorTable]:
    """Two sets of executions of which no two are alike."""
    return [all_different(n, seed) for seed in (1, 2)]


def rows() -> Iterator[Row]:
    """Yield what ``scale.py`` takes into its table: ratios to scikit-learn."""
    cluster(few_paths(100, 20, 0))  # imports are not counted
    many = stabilise(few_paths(20_000, 1_700, 1).structure)
    alone = np.random.default_rng(1).normal(size=(5_000, 12))
    few = stabilise(few_paths(100_000, 200, 1).structure)
    sets = (
        ("optics", "OPTICS of 20,000 of 1,700 paths: faster than scikit-learn", 100, many, many),
        (
            "optics_different",
            "OPTICS of 5,000 different: faster than scikit-learn",
            15,
            alone,
            alone,
        ),
        (
            "optics_large",
            "OPTICS of 100,000: faster than scikit-learn on 2,000",
            1,
            few,
            few[:2_000],
        ),
    )
    for key, what, target, mine, peers in sets:
        reached = []
        for _ in range(1 if key == "optics" else 3):
            first, _ = seconds(lambda peers=peers: theirs(peers))
            second, _ = seconds(lambda mine=mine: ours(mine))
            reached.append(first / second)
        yield Row(key, what, tuple(reached), target)
    what = "pairing 5,000 in 20 clusters{}: faster than silhouette_score per pair"
    for key, name, sets in (
        ("pairing", ", 10 % of them distinct", with_repeats()),
        ("pairing_different", ", all different", without_repeats()),
    ):
        done = [pairing(sets, 20, 4, seed) for seed in range(3)]
        away = max(each.away for each in done)
        # scikit-learn takes distances from a matrix product: equal points are 1e-7 apart.
        bound = "" if away < 1e-9 else f"SCORES DIFFER BY {away:.1e}"
        yield Row(key, what.format(name), tuple(each.ratio for each in done), 300, bound=bound)


def tables(rounds: int, less: int) -> None:
    """Print every table, of sets so many times smaller."""
    few_n, all_n, paths = 100_000 // less, 5_000 // less, 200 // min(less, 10)
    cluster(few_paths(100, 20, 0))  # imports are not counted
    print("| OPTICS of | distinct | scikit-learn, s | critpath, s | ratio | the same |")
    print("|---|---:|---:|---:|---:|---|")
    many = stabilise(few_paths(20_000 // less, 2_700 // less, 1).structure)
    temp_sibling("20,000 executions", many, many, 1)
    alone = np.random.default_rng(1).normal(size=(all_n, 12))
    temp_sibling("5,000, none twice", alone, alone, rounds)
    counts = stabilise(all_different(all_n, 1).structure)
    temp_sibling("5,000, counts", counts, counts, rounds)
    few = stabilise(few_paths(few_n, paths, 1).structure)
    temp_sibling("100,000; scikit-learn: 2,000 of them", few, few[: 2_000 // less], rounds)
    print(
        "\n| pairing | distinct | merges | `silhouette_score`, s | critpath, s | ratio "
        "| largest difference |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    pairs_beside("5,000 of each set, in 20 clusters each", with_repeats(all_n))
    pairs_beside("the same, no execution twice", without_repeats(all_n))
    print("\n" + WHOLE)
    whole("100,000", few_paths(few_n, paths, 1), few_paths(few_n, paths, 2))
    whole("5,000", all_different(all_n, 1), all_different(all_n, 2))
    print("\n| method | 100,000 of 200, s | 5,000 different, s |\n|---|---:|---:|")
    some, all_unlike = few_paths(few_n, paths, 1), all_different(all_n, 1)
    for method in METHODS:
        one, _ = seconds(lambda method=method: cluster(some, method=method))
        other, _ = seconds(lambda method=method: cluster(all_unlike, method=method))
        print(f"| `{method}` | {one:.2f} | {other:.2f} |")


def large() -> None:
    """Print the times of finding types among 100,000 executions of which no two are alike."""
    cluster(few_paths(100, 20, 0))  # imports are not counted
    print(WHOLE)
    whole("100,000", all_different(100_000, 1), all_different(100_000, 2))


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", type=int, nargs="?", default=3)
    take_rows(parser)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="sets of a fiftieth")
    given = parser.parse_args()
    if given.rows:
        add_rows(given.rows, rows())
    elif given.large:
        large()
    else:
        tables(given.rounds, 50 if given.tiny else 1)


if __name__ == "__main__":
    main()
