"""Families of paths as a program makes them: motifs, loops, and what differs between runs.

The generator of the specification (alignment-and-statistics.md, section 2): an ancestor of
straight motifs and of loops; a coalescent tree; substitutions, insertions and deletions of
motifs, or of whole iterations; log-normal durations that depend on the state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Rng = np.random.Generator

LETTERS = 12
SHARES = np.array([28, 24, 14, 9, 7, 5, 4, 3, 2.5, 1.5, 1.2, 0.8])
MEDIANS_US = np.array([150, 53, 240, 1015, 655, 400, 2880, 7, 8.5, 1075, 7730, 180])
SPREAD = 0.35  # of the logarithm of a state's duration
# Per site from the root to a leaf: substitutions, insertions and deletions.
RATES = {"low": (0.05, 0.01), "mid": (0.15, 0.03), "high": (0.30, 0.06)}


@dataclass(frozen=True)
class Path:
    """One execution: states and durations (ns)."""

    codes: npt.NDArray[np.uint8]
    durations: npt.NDArray[np.int64]


def family(rng: Rng, members: int, length: int, level: str, *, loops: bool) -> list[Path]:
    """Return executions that descend from one program, each with its own durations."""
    substitutions, indels = RATES[level]
    root, unit = ancestor(rng, length, loops=loops)

    def evolve(path: list[tuple[int, int]], time: float) -> list[tuple[int, int]]:
        path = list(path)
        for _ in range(rng.poisson(substitutions * time * len(path))):
            at = int(rng.integers(len(path)))
            path[at] = (_state(rng), path[at][1])
        for _ in range(rng.poisson(indels * time * len(path))):
            _insert_or_delete(rng, path, unit, loops=loops)
        return path

    leaves = descend(rng, root, members, evolve)
    return [_timed(rng, np.array([code for code, _ in leaf], np.uint8)) for leaf in leaves]


def _timed(rng: Rng, codes: npt.NDArray[np.uint8]) -> Path:
    noise = np.exp(SPREAD * rng.standard_normal(len(codes)))
    return Path(codes, np.round(1000 * MEDIANS_US[codes] * noise).astype(np.int64))


def _state(rng: Rng, unlike: int = -1) -> int:
    while True:
        state = int(rng.choice(LETTERS, p=SHARES / SHARES.sum()))
        if state != unlike:
            return state


def _motif(rng: Rng, size: int) -> list[int]:
    result: list[int] = []
    while len(result) < size:
        result.append(_state(rng, result[-1] if result else -1))
    return result


def ancestor(rng: Rng, length: int, *, loops: bool) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """Return (state, number of its loop or -1) in order, and every loop's period."""
    path: list[tuple[int, int]] = []
    unit: dict[int, int] = {}
    while len(path) < length:
        if loops and rng.random() < 0.4:
            motif = _motif(rng, int(rng.integers(2, 7)))
            number = len(unit)
            unit[number] = len(motif)
            turns = min(25, 1 + int(rng.geometric(0.2)))
            path += [(state, number) for _ in range(turns) for state in motif]
        else:
            path += [(state, -1) for state in _motif(rng, int(rng.integers(4, 17)))]
    return path, unit


def _insert_or_delete(
    rng: Rng, path: list[tuple[int, int]], unit: dict[int, int], *, loops: bool
) -> None:
    if not path:
        return
    at = int(rng.integers(len(path)))
    size = int(rng.geometric(0.4))
    if loops and rng.random() < 0.6:
        places = [i for i, (_, number) in enumerate(path) if number >= 0]
        if not places:
            return
        at = int(rng.choice(places))
        size = unit[path[at][1]]
    if rng.random() < 0.5:
        del path[at : at + size]
    elif loops and path[at][1] >= 0:
        path[at:at] = path[at : at + size]
    else:
        path[at:at] = [(state, -1) for state in _motif(rng, size)]


def descend(
    rng: Rng,
    root: list[tuple[int, int]],
    members: int,
    evolve: Callable[[list[tuple[int, int]], float], list[tuple[int, int]]],
) -> list[list[tuple[int, int]]]:
    """Return the leaves of a random coalescent tree of depth 1."""
    lineages: list[tuple[float, list[int]]] = [(0.0, [i]) for i in range(members)]
    children: dict[tuple[int, ...], list[tuple[float, list[int]]]] = {}
    height = 0.0
    while len(lineages) > 1:
        k = len(lineages)
        height += float(rng.exponential(2 / (k * (k - 1))))
        i, j = sorted(rng.choice(k, 2, replace=False).tolist())
        right, left = lineages.pop(j), lineages.pop(i)
        joined = left[1] + right[1]
        children[tuple(joined)] = [left, right]
        lineages.append((height, joined))
    leaves: list[list[tuple[int, int]]] = [[] for _ in range(members)]

    def walk(node: tuple[float, list[int]], path: list[tuple[int, int]]) -> None:
        below = children.get(tuple(node[1]))
        if below is None:
            leaves[node[1][0]] = path
            return
        for child in below:
            walk(child, evolve(path, (node[0] - child[0]) / height))

    walk(lineages[0], root)
    return leaves
