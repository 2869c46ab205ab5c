"""Where the time of all executions goes, before and after, and which changes a test supports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct

from critpath.detect.comparability import exchangeable, permutable
from critpath.documents import StateEntry
from critpath.documents.base import change
from critpath.documents.pictures import FlameKind, FlameNode
from critpath.model import F64, I64, Bool, ChainTimes
from critpath.model.vectors import InCode
from critpath.schema.parameters.detect import FLAME
from critpath.schema.parameters.shared import KINDS
from critpath.stats.means import compare_runs_by_stratum
from critpath.stats.permutations import gate

Times = TypeVar("Times", I64, F64)


class FlameSets(Struct, frozen=True):
    """What is known of the executions of both sets, the normal ones first.

    Attributes
    ----------
    labels : pair of sequences of str
        What kind each is; empty where labels tell nothing.
    types : pair of int64 arrays
        Types, where there are no labels: another mix of them is no change.
    sessions : pair of int64 arrays
    runs, blocks : pair of int64 arrays or None
        See `critpath.detect.comparability`, `find_runs` and `find_blocks`.  Where there are enough
        blocks to exchange, their sides are, as the verdict's test does it, and runs do not count.
    """

    labels: tuple[Sequence[str], Sequence[str]]
    types: tuple[I64, I64]
    sessions: tuple[I64, I64]
    runs: tuple[I64, I64] | None = None
    blocks: tuple[I64, I64] | None = None


def build_flame(
    times: ChainTimes,
    sets: FlameSets,
    *,
    level: float,
    permutations: int,
    directions: Sequence[str],
    whole: StateEntry | None = None,
) -> tuple[FlameNode, ...]:
    """Build the tree: everything, kinds, what their own thread did, whom it waited for, and so on.

    Parameters
    ----------
    times : ChainTimes
    sets : FlameSets
    level : float
        At most this often is anything marked that has not changed.
    permutations : int
    directions : sequence of str
        ``more`` and ``less``: changes that the verdict leaves room for; each is tested at
        half of the level.
    whole : StateEntry
        Of the total, which marks the first node where it was found slower.

    Returns
    -------
    tuple of FlameNode
        Each behind the one above it; children add up to their parent, before and after.
        Executions of labels that only one set has are not in it.
    """
    strata, names = _strata(sets)
    counts = [np.bincount(each[each >= 0], minlength=len(names)) for each in strata]
    if not len(names) or not counts[1].sum():
        return ()
    share = counts[1] / counts[1].sum()
    means = [
        np.stack([table[rows == s].mean(axis=0) for s in range(len(names))]) * share[:, None]
        for table, rows in zip((times.normal, times.sample), strata, strict=True)
    ]
    size = [int(counts[0].sum()), int(counts[1].sum())]
    tree = _Tree(times, whole=float(max(means[0].sum(), means[1].sum())))
    if any(sets.labels):
        root = tree.add(-1, "all", "", "", means[0].sum(), means[1].sum(), size)
        grown = means[1].sum(axis=1) - means[0].sum(axis=1)
        for s in sorted(range(len(names)), key=lambda s: (-grown[s], names[s])):
            many = [int(counts[0][s]), int(counts[1][s])]
            both = means[0][s], means[1][s]
            top = tree.add(root, "label", names[s], "", both[0].sum(), both[1].sum(), many, (s, 0))
            tree.grow(top, 0, both, stratum=s)
    else:
        both = means[0].sum(axis=0), means[1].sum(axis=0)
        root = tree.add(-1, "all", "", "", both[0].sum(), both[1].sum(), size)
        tree.grow(root, 0, both, stratum=-1)
    nodes = _mark_nodes(tree, times, sets, strata, directions, level, permutations)
    if whole is None or not whole.flagged or nodes[0].after <= nodes[0].before:
        return nodes
    return change(nodes[0], change="more", p_value=whole.p_value), *nodes[1:]


def _strata(sets: FlameSets) -> tuple[tuple[I64, I64], list[str]]:
    """Return what each execution is held against, -1 for nothing, and what that is called."""
    if any(sets.labels):
        names = sorted({*sets.labels[0]} & {*sets.labels[1]})
        place = {name: i for i, name in enumerate(names)}
        ours, theirs = (np.array([place.get(t, -1) for t in each]) for each in sets.labels)
        return (ours, theirs), names
    known = np.intersect1d(*sets.types)
    ours, theirs = (np.where(np.isin(t, known), np.searchsorted(known, t), -1) for t in sets.types)
    return (ours, theirs), [""] * len(known)


class _Tree:
    """Nodes as they are added, and which column of the tests each is."""

    def __init__(self, times: ChainTimes, *, whole: float) -> None:
        self.nodes: list[FlameNode] = []
        self.tested: list[tuple[int, int]] = []  # per node, stratum (-1: all) and column
        self.least, self.change = FLAME.least_drawn * whole, FLAME.least_change * whole
        self._times = times
        place = {chain: i for i, chain in enumerate(times.chains)}
        above = [place.get(chain[:-1], 0) for chain in times.chains]
        self._below: list[list[int]] = [[] for _ in times.chains]
        for chain, parent in enumerate(above[1:], 1):
            self._below[parent].append(chain)
        self._leaves: list[list[int]] = [[] for _ in times.chains]
        for column, (chain, _) in enumerate(times.leaves):
            self._leaves[chain].append(column)
        # Columns so that those below a chain, its own and those of longer ones, are neighbours.
        self._order: list[int] = []
        self._bounds = np.zeros((len(times.chains), 2), np.int64)
        open_ones = [0]
        while open_ones:
            chain = open_ones.pop()
            if chain < 0:  # all below it have their places
                self._bounds[~chain, 1] = len(self._order)
                continue
            self._bounds[chain, 0] = len(self._order)
            self._order += self._leaves[chain]
            open_ones += [~chain, *self._below[chain]]

    def sums(self, table: Times, chains: I64 | None = None) -> Times:
        """Return what a table [..., leaves] adds up to below some chains, or all: [..., chains]."""
        bounds = self._bounds if chains is None else self._bounds[chains]
        # A column more: the last bound is one, too.
        ordered = table[..., [*self._order, *self._order[-1:]]]
        found: Times = np.add.reduceat(ordered, bounds.ravel(), axis=-1)[..., ::2]
        found[..., bounds[:, 0] == bounds[:, 1]] = 0
        return found

    def add(
        self,
        parent: int,
        kind: FlameKind,
        name: str,
        role: str,
        before: float,
        after: float,
        executions: list[int],
        at: tuple[int, int] = (-1, 0),
    ) -> int:
        """Add a node; ``at`` is its stratum, and its column in `tables`."""
        self.nodes.append(
            FlameNode(
                parent,
                kind,
                name,
                -1,
                float(before),
                float(after),
                "",
                None,
                [*executions],
                role=role,
            )
        )
        self.tested.append(at)
        return len(self.nodes) - 1

    def grow(self, parent: int, chain: int, both: tuple[F64, F64], *, stratum: int) -> None:
        """Add what is below a chain: what its last thread does, and whom that waits for."""
        self._grow(parent, chain, both, (self.sums(both[0]), self.sums(both[1])), stratum)

    def _grow(
        self,
        parent: int,
        chain: int,
        both: tuple[F64, F64],
        sums: tuple[F64, F64],
        stratum: int,
    ) -> None:
        times, many = self._times, self.nodes[parent].executions
        threads = [name for name in times.chains[chain] if not isinstance(name, InCode)]
        role = threads[-1] if threads else ""
        found: list[tuple[float, FlameKind, int, float, float]] = []
        for column in self._leaves[chain]:
            before, after = float(both[0][column]), float(both[1][column])
            found.append((max(before, after), "state", column, before, after))
        for longer in self._below[chain]:
            before, after = float(sums[0][longer]), float(sums[1][longer])
            found.append((max(before, after), "thread", longer, before, after))
        found.sort(key=lambda one: (-one[0], one[1], one[2]))
        rest = [0.0, 0.0]
        chains = len(times.chains)
        for width, kind, place, before, after in found:
            if width < self.least:
                rest[0] += before
                rest[1] += after
            elif kind == "state":
                state = times.leaves[place][1].name
                self.add(parent, kind, state, role, before, after, many, (stratum, chains + place))
            else:
                name = times.chains[place][-1]
                at = stratum, place
                if isinstance(name, InCode):
                    plain = name.function
                    node = self.add(parent, "frame", plain, role, before, after, many, at)
                else:
                    node = self.add(parent, kind, name, name, before, after, many, at)
                self._grow(node, place, both, sums, stratum)
        if any(rest):
            self.add(parent, "rest", "", role, rest[0], rest[1], many)


def _mark_nodes(
    tree: _Tree,
    times: ChainTimes,
    sets: FlameSets,
    strata: tuple[I64, I64],
    directions: Sequence[str],
    level: float,
    permutations: int,
) -> tuple[FlameNode, ...]:
    """Return the nodes with the changes that a test over all of them supports."""
    known = [rows >= 0 for rows in strata]
    leaves = [table[rows] for table, rows in zip((times.normal, times.sample), known, strict=True)]
    # What is tested must not depend on which execution is of which set.
    both = leaves[0].sum(axis=0) + leaves[1].sum(axis=0)
    pooled = np.concatenate([tree.sums(both), both])
    large = np.flatnonzero(pooled >= FLAME.least_tested * pooled[0])
    columns = np.sort(large[np.argsort(-pooled[large], kind="stable")][: FLAME.most_tested])
    chains, single = np.split(columns, [np.searchsorted(columns, len(times.chains))])
    tables = [
        np.hstack([tree.sums(table, chains), table[:, single - len(times.chains)]])
        for table in leaves
    ]
    place = {int(column): i for i, column in enumerate(columns)}
    level /= 2  # for each direction
    found = {
        direction: _test_shift(
            *(tables, strata, sets, known),
            order=(0, 1) if direction == "more" else (1, 0),
            level=level,
            permutations=permutations,
        )
        for direction in directions
    }
    result = []
    for node, (stratum, column) in zip(tree.nodes, tree.tested, strict=True):
        direction = "more" if node.after > node.before else "less"
        chosen = found.get(direction)
        if chosen is None or column not in place or node.kind == "rest":
            result.append(node)
            continue
        at = place[column]
        value = float(chosen[0][at] if stratum < 0 else chosen[1][stratum, at])
        changed = abs(node.after - node.before) >= tree.change and value <= level
        enough = node.kind == "all" or min(node.executions) >= KINDS.fewest
        result.append(
            change(
                node, p_value=min(1.0, 2 * value), change=direction if changed and enough else ""
            )
        )
    return tuple(result)


def _test_shift(
    tables: Sequence[I64],
    strata: tuple[I64, I64],
    sets: FlameSets,
    known: Sequence[Bool],
    *,
    order: tuple[int, int],
    level: float,
    permutations: int,
) -> tuple[F64, F64]:
    """Return p-values of a shift upwards from one set to the other: of all kinds, and of each."""
    one, other = order

    def take(pair: tuple[I64, I64]) -> tuple[I64, I64]:
        return pair[one][known[one]], pair[other][known[other]]

    own, (whole, _) = take(strata), permutable(*take(sets.sessions), level)
    runs, blocks = (pair and take(pair) for pair in (sets.runs, sets.blocks))
    blocks = exchangeable(blocks, level)
    ours, theirs = tables[one], tables[other]
    test = gate(
        *(ours, theirs, *own),
        alpha=level,
        permutations=permutations,
        sessions=None if blocks else whole,
        blocks=blocks,
    )
    p, by_stratum = test.p_value, test.stratum_p_value
    if runs and not blocks:
        least, least_of = compare_runs_by_stratum(ours, theirs, own, runs)
        p, by_stratum = np.maximum(p, least), np.maximum(by_stratum, least_of)
    if len(by_stratum) == 1:  # one kind: the test over all is its own
        by_stratum = p[None, :]
    return p, by_stratum
