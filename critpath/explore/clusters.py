"""Types of executions, and what tells each from the others of its label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from critpath.cluster import cluster, distinct, rows_of
from critpath.explore.combine import find_candidates
from critpath.explore.shifts import count_common, place_groups
from critpath.model import F64, I64, VectorTable
from critpath.model.exploration import LATENCY, FactTable, Test
from critpath.schema.parameters.explore import CONDITIONS

# technical: different executions of a label; their distances are computed
LARGEST_CLUSTERED: Final = 4_000


@dataclass(frozen=True, eq=False)
class Clusters:
    """The type of every execution within its label.

    Attributes
    ----------
    number : int64 [n]
        From 1, by size within a label and through all labels; 0 for none.
    place : int64 [n]
        In which order OPTICS visited those of a label.
    reach : float64 [n]
        How far each was from those before; infinite for the first, NaN where none was looked for.
    """

    number: I64
    place: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    reach: F64 = field(default_factory=lambda: np.zeros(0))


def find_clusters(table: VectorTable, labels: Sequence[str]) -> Clusters:
    """Return the type of every execution within its label, and how they were found."""
    number, place = (np.zeros(len(table), np.int64) for _ in range(2))
    reach = np.full(len(table), np.nan)
    first = 0
    for label in sorted(set(labels)):
        rows = np.flatnonzero([one == label for one in labels]).astype(np.int64)
        if len(rows) < CONDITIONS.fewest_clustered:
            continue
        mine = rows_of(table, rows)
        if len(distinct(mine.structure).row) > LARGEST_CLUSTERED:
            continue
        found = cluster(mine, min_cluster_fraction=CONDITIONS.subtype)
        place[rows[found.ordering]] = np.arange(len(rows))
        reach[rows] = found.reachability
        if found.size > 1:
            number[rows] = found.labels + 1 + first
            first += found.size
    return Clusters(number, place, reach)


def tell_apart(table: FactTable) -> Mapping[int, Test]:
    """Return of each type what tells it best from the others of its label.

    Returns
    -------
    mapping of int to Test
        A condition that more of its executions meet than of the others; types that only lack what
        others have are not in it.
    """
    if "cluster" not in table.facts:
        return {}
    number = table.facts["cluster"].values.astype(np.int64)
    result: dict[int, Test] = {}
    for label in np.unique(table.label[number > 0]).tolist():
        rows = np.flatnonzero(table.label == label)
        places = place_groups(np.array([len(rows)], np.int64))
        found = find_candidates(table, rows, places, (), (LATENCY,))
        facts = [table.facts[test.field] for (test,) in found.tests]
        for one in np.unique(number[rows]).tolist():
            mine = number[rows] == one
            count = count_common(found.bits, places, mine)
            # What all of it do, and none of the others.
            more = count / mine.sum() - (found.sizes - count) / max(int((~mine).sum()), 1)
            # Of two that tell as much, whom they met before how often they did something.
            best = [
                (-round(float(more[at]), 9), fact.kind != "text", at)
                for at, fact in enumerate(facts)
                if fact.deed and more[at] >= CONDITIONS.telling
            ]
            if one and best:
                [test] = found.tests[min(best)[-1]]
                result[int(one)] = test
    return result
