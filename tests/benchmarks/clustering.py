"""How long finding and pairing types takes, beside scikit-learn's OPTICS.

    python tests/benchmarks/clustering.py

100,000 executions of 200 distinct paths, and 5,000 executions that are all different:
types of the normal set, types of a sample of the same size, pairs.  Then OPTICS alone
against scikit-learn's on the same executions in one run, at sizes that it can bear.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.cluster import OPTICS
from sklearn.metrics import adjusted_rand_score

from critpath.cluster.optics import METHODS, cluster
from critpath.cluster.pairing import pair
from critpath.cluster.sample import cluster_sample
from critpath.cluster.space import stabilise
from critpath.model import I64, State, Symbol, VectorTable

SYMBOLS = 13
TYPES = 7


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
    """Return how long something takes, and its result."""
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def whole(name: str, normal: VectorTable, sample: VectorTable) -> None:
    """Print the times of every step of finding types."""
    paths = len(np.unique(normal.structure, axis=0))
    first, ours = seconds(lambda: cluster(normal))
    second, theirs = seconds(lambda: cluster_sample(sample, normal, ours))
    third, _ = seconds(lambda: pair(normal, ours, sample, theirs))
    steps = " | ".join(f"{step:.2f}" for step in (first, second, third, first + second + third))
    print(f"| {name} | {paths:,} | {steps} |")


def beside(name: str, normal: VectorTable) -> None:
    """Print the ratio to scikit-learn's OPTICS, and how alike the clusters are."""
    n = len(normal)
    order = np.lexsort(normal.structure.T[::-1])
    space = stabilise(normal.structure[order])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it divides by reachabilities of 0
        peer = OPTICS(min_samples=5, xi=0.05, min_cluster_size=max(5, -(-n // 20)))
        theirs, _ = seconds(lambda: peer.fit(space))
    ours, found = seconds(lambda: cluster(normal, resolution=0.0))
    same = adjusted_rand_score(peer.labels_, found.raw_labels[order])
    paths = len(np.unique(normal.structure, axis=0))
    print(f"| {name} | {paths:,} | {theirs:.2f} | {ours:.3f} | {theirs / ours:.0f} | {same:.3f} |")


def rows() -> None:
    """Print what ``scale.py`` takes into its table: ratios to scikit-learn's OPTICS."""
    cluster(few_paths(100, 20, 0))  # imports are not counted
    sets = (
        ("optics", "OPTICS of 20,000 of 1,700 paths: faster than scikit-learn", 100, 1),
        ("optics_different", "OPTICS of 5,000 different: faster than scikit-learn", 15, 3),
    )
    for key, what, target, rounds in sets:
        few = key == "optics"
        vectors = few_paths(20_000, 1_700, 1) if few else all_different(5_000, 1)
        space = stabilise(vectors.structure)
        size = max(5, -(-len(vectors) // 20))
        reached = []
        for _ in range(rounds):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it divides by reachabilities of 0
                peer = OPTICS(min_samples=5, xi=0.05, min_cluster_size=size)
                theirs, _ = seconds(lambda peer=peer, space=space: peer.fit(space))
            ours, _ = seconds(lambda vectors=vectors: cluster(vectors, resolution=0.0))
            reached.append(theirs / ours)
        row = {"key": key, "what": what, "target": target, "reached": reached}
        print(json.dumps(row), flush=True)


def main() -> None:
    """Print every table."""
    cluster(few_paths(100, 20, 0))  # imports are not counted
    print("| executions, normal and sample each | distinct | types | sample's types | pairs | s |")
    print("|---|---:|---:|---:|---:|---:|")
    whole("100,000", few_paths(100_000, 200, 1), few_paths(100_000, 200, 2))
    whole("5,000", all_different(5_000, 1), all_different(5_000, 2))
    print("\n| method | 100,000 of 200, s | 5,000 different, s |\n|---|---:|---:|")
    few, many = few_paths(100_000, 200, 1), all_different(5_000, 1)
    for method in METHODS:
        one, _ = seconds(lambda method=method: cluster(few, method=method))
        other, _ = seconds(lambda method=method: cluster(many, method=method))
        print(f"| `{method}` | {one:.2f} | {other:.2f} |")
    print("\n| executions | distinct | scikit-learn, s | critpath, s | ratio | same clusters |")
    print("|---|---:|---:|---:|---:|---:|")
    beside("3,000", few_paths(3_000, 200, 1))
    beside("3,000", all_different(3_000, 1))


if __name__ == "__main__":
    rows() if "--rows" in sys.argv[1:] else main()
