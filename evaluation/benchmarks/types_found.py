"""How well the types of executions are found where they are known, by simulation.

    python evaluation/benchmarks/types_found.py [REPEATS [TABLES]]

First the table of transforms and extractions: 100 executions of 3 types, counts that vary
as Poisson counts do, whose rates vary by 22 % (and by 10 %) from one execution to the next.
Then what repetitions do to OPTICS: six types of few distinct vectors.  Then seven types,
of which one is rarer and rarer.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable

import numpy as np
from sklearn.cluster import OPTICS
from sklearn.metrics import adjusted_rand_score

from critpath.cluster.optics import assign_noise, cluster
from critpath.cluster.space import stabilise
from critpath.model import I64, State, Symbol, VectorTable

Found = tuple[I64, I64]  # labels with noise assigned, and without
Method = Callable[[I64], Found]

# Agreement, clusters, noise and purity of a prototype of ours on types that were not kept.
PROTOTYPE = {
    "raw, least 10 %": ".669 2.7 .45 .83",
    "optics, least 10 %": ".871 2.85 .36 .93",
    "optics, least 5 executions": ".815 3.4 .51 .94",
    "silcut, least 10 %": ".929 3.0 .40 .975",
    "linkage, least 10 %": ".931 3.05 0 .97",
}

# Mean counts: run, read, lock, timer, helper, journal, retry.
SIX = np.array(
    [
        [1, 0, 0, 0, 0, 0, 0.05],
        [33, 32, 0, 0, 0, 0, 0.05],
        [9, 8, 0, 0, 1, 0, 0.1],
        [3, 0, 2, 0, 0, 0, 0.2],
        [2, 0, 0, 1, 0, 0, 0.1],
        [5, 0, 0, 0, 0, 4, 0.2],
    ]
)


def three_types(rng: np.random.Generator, variation: float) -> tuple[I64, I64]:
    """100 executions; types differ in all of ten symbols, by a factor of 2.2 typically."""
    base = np.exp(rng.normal(np.log(6), 1.5, 10))
    rates = base * np.exp(rng.normal(0, 0.8, (3, 10)))
    types = np.arange(100) % 3
    varied = rates[types] * np.exp(rng.normal(-(variation**2) / 2, variation, (100, 10)))
    return rng.poisson(varied), types


def six_types(rng: np.random.Generator, types: I64, *, poisson: bool = False) -> I64:
    """Counts with many repetitions.

    Reads sometimes find their page in memory, anything that happens at all sometimes
    happens once more, retries are rare; or all counts vary as Poisson counts do.
    """
    mean = SIX[types]
    if poisson:
        return rng.poisson(mean)
    counts = np.floor(mean).astype(np.int64)
    counts[:, 1] = rng.binomial(counts[:, 1], 0.92)
    return counts + rng.poisson(np.where(mean >= 1, 0.1, mean))


def ours(method: str, fraction: float, resolution: float = 1.0) -> Method:
    """Return critpath's clustering as a function of counts."""

    def find(counts: I64) -> Found:
        symbols = tuple(Symbol(State.RUN, str(i)) for i in range(counts.shape[1]))
        found = cluster(
            VectorTable(symbols, counts, counts),
            method=method,
            min_cluster_fraction=fraction,
            resolution=resolution,
        )
        return found.labels, found.raw_labels

    return find


def peers(fraction: float) -> Method:
    """Return scikit-learn's OPTICS of executions one by one, in canonical order."""

    def find(counts: I64) -> Found:
        n, order = len(counts), np.lexsort(counts.T[::-1])
        least = max(5, int(np.ceil(fraction * n)))
        space = stabilise(counts[order])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it divides by reachabilities of 0
            raw = OPTICS(min_samples=5, xi=0.05, min_cluster_size=least).fit(space).labels_
        raw = raw.astype(np.int64)
        back = np.argsort(order)
        return assign_noise(raw, space)[back], raw[back]

    return find


def purity(types: I64, labels: I64) -> float:
    """Share of executions whose type is the most frequent one of their cluster."""
    return sum(np.bincount(types[labels == c]).max() for c in np.unique(labels)) / len(types)


def row(name: str, find: Method, sets: Iterable[tuple[I64, I64]], note: str = "") -> str:
    """Describe a method on several sets: agreement with its standard error, and more."""
    agreement, figures = [], []
    for counts, types in sets:
        labels, raw = find(counts)
        agreement.append(adjusted_rand_score(types, labels))
        figures.append((labels.max() + 1, (raw < 0).mean(), purity(types, labels)))
    error = np.std(agreement, ddof=1) / np.sqrt(len(agreement)) if len(agreement) > 1 else 0.0
    clusters, noise, pure = np.mean(figures, axis=0)
    text = f"{np.mean(agreement):.3f} +- {error:.3f} | {clusters:.2f} | {noise:.2f} | {pure:.2f}"
    return f"| {name} | {text} |" + (f" {note} |" if note else "")


def transforms(repeats: int) -> None:
    """Print the table of transforms and extractions."""
    rows = {
        "raw, least 10 %": ours("raw", 0.1),
        "optics, least 10 %": ours("optics", 0.1),
        "the same, resolution 0": ours("optics", 0.1, 0.0),
        "the same, scikit-learn's": peers(0.1),
        "optics, least 5 % (default)": ours("optics", 0.05),
        "optics, least 5 executions": ours("optics", 0.0),
        "silcut, least 10 %": ours("silcut", 0.1),
        "linkage, least 10 %": ours("linkage", 0.1),
    }
    for variation in (0.22, 0.10):
        sets = [three_types(np.random.default_rng(seed), variation) for seed in range(repeats)]
        print(f"\nRates vary by {variation:.0%}, {repeats} repeats\n")
        print("| method | agreement | clusters (3) | noise | purity | prototype |")
        print("|---|---:|---:|---:|---:|---|")
        for name, find in rows.items():
            known = PROTOTYPE.get(name, "-") if variation == 0.22 else "-"
            print(row(name, find, sets, known))


def repetitions(repeats: int) -> None:
    """Print what becomes of six types with many repetitions."""
    print("\nSix types of few distinct vectors\n")
    print("| counts | executions | method | agreement | clusters (6) | noise | purity |")
    print("|---|---:|---|---:|---:|---:|---:|")
    for name, poisson in (("few values", False), ("Poisson", True)):
        for n in (1000, 5000):
            types = np.arange(n) % 6
            sets = [
                (six_types(np.random.default_rng(seed), types, poisson=poisson), types)
                for seed in range(repeats)
            ]
            methods = {
                "least 5 executions, resolution 0": ours("optics", 0.0, 0.0),
                "least 5 executions": ours("optics", 0.0),
                "resolution 0": ours("optics", 0.05, 0.0),
                "resolution 1.12": ours("optics", 0.05, 1.118),
                "resolution 1.5": ours("optics", 0.05, 1.5),
                "least 10 %": ours("optics", 0.1),
                "default": ours("optics", 0.05),
            }
            if n == 1000:
                first = {"scikit-learn's, its defaults": peers(0.0)}
                methods = {**first, "scikit-learn's, least 5 %": peers(0.05), **methods}
            for method, find in methods.items():
                few = sets[:1] if method.startswith("scikit") else sets
                print(f"| {name} | {n:,} {row(method, find, few)}")


def rare_types(repeats: int) -> None:
    """Print how a rare type fares with either least size."""
    print("\nOne of six types rarer than the others, 600 executions of all six\n")
    print("| share of the rare type | method | agreement | clusters (6) | noise | purity |")
    print("|---:|---|---:|---:|---:|---:|")
    for share in (0.14, 0.08, 0.06, 0.03):
        sets = []
        for seed in range(repeats):
            rare = seed % 6
            others = np.delete(np.arange(6), rare)
            count = round(share * 600)
            types = np.concatenate([np.full(count, rare), others[np.arange(600 - count) % 5]])
            sets.append((six_types(np.random.default_rng(seed), types), types))
        for name, fraction in (("least 10 %", 0.1), ("least 5 % (default)", 0.05)):
            print(f"| {share:.0%} {row(name, ours('optics', fraction), sets)}")


def main(repeats: int = 40, tables: int = 3) -> None:
    """Print the first of the tables, or all."""
    transforms(repeats)
    if tables > 1:
        repetitions(max(2, repeats // 10))
    if tables > 2:
        rare_types(max(6, repeats // 4))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
