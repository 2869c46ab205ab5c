"""From executions to what those of a selection have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from critpath.explore.clusters import Clusters, find_clusters, tell_apart
from critpath.explore.columns import find_facts
from critpath.explore.ranking import SLOWEST, ask, take_steps
from critpath.model.exploration import FEWEST, Exploration
from critpath.text.exploring import labels_left_out, quoted_text
from critpath.vectors import tables_of

if TYPE_CHECKING:
    from critpath.model import I64, PathSet
    from critpath.model.exploration import FactTable, Question

MOST_LABELS: Final = 10  # technical: asked about unasked, those of most time
SAMPLE: Final = "set == 'sample'"  # of a comparison, who is looked at unasked


def explore(
    paths: PathSet,
    *,
    given: Sequence[str] = (),
    what: str | None = None,
    depth: int = 1,
    facts: FactTable | None = None,
) -> Exploration:
    """Ask what the executions of a selection have in common.

    Parameters
    ----------
    paths : PathSet
    given : sequence of str
        Conditions, one after the other: which executions are looked at.
    what : str or None
        The condition that selects some of them; None for the slowest tenth of each label.
    depth : int
        With 2, also any two of the best conditions together.
    facts : FactTable or None
        What is known of them; None for `facts_of`.

    Returns
    -------
    Exploration
        A question, or one for each label.

    Raises
    ------
    UsageError
        If a condition cannot be parsed, or no execution meets it.
    """
    table = facts or facts_of(paths)
    if what is not None:
        return Exploration(table, (ask(table, given, what, depth=depth),))
    questions, left_out = _slowest_of_each(table, given, depth)
    return Exploration(table, tuple(questions), labels_left_out(left_out))


def facts_of(
    paths: PathSet, *, normal: int | None = None, clusters: I64 | None = None
) -> FactTable:
    """Return everything that conditions can say of some executions.

    Parameters
    ----------
    paths : PathSet
    normal : int or None
        How many of the first recordings are the normal set; None: of two the first is.
    clusters : int64 array or None
        Types that are known already, from 1; then nothing is said of what is on the paths.
    """
    if clusters is not None:
        return find_facts(paths, None, Clusters(clusters), normal=normal)
    [table] = tables_of([paths])
    known = paths.executions.requests
    labels = paths.executions.label if known is None else known.service
    known_of = find_facts(paths, table, find_clusters(table, labels), normal=normal)
    return replace(known_of, telling=tell_apart(known_of))


def _slowest_of_each(
    table: FactTable, given: Sequence[str], depth: int
) -> tuple[list[Question], list[tuple[str, int]]]:
    """Return a question per label, and the labels that too few have to be asked about."""
    within, _ = take_steps(table, given)
    labels = np.unique(table.label[within])
    if len(labels) < 2:
        return [ask(table, given, SLOWEST, depth=depth)], []
    time = np.bincount(table.label[within], (table.end - table.begin)[within])
    count = np.bincount(table.label[within])
    ordered = sorted(labels.tolist(), key=lambda code: -time[code])
    judged = [code for code in ordered if count[code] >= FEWEST] or ordered[:1]
    chosen = judged[:MOST_LABELS]
    field = "service" if "service" in table.facts else "label"
    rest = [(table.labels[code], int(count[code])) for code in ordered if code not in chosen]
    return [
        ask(
            table,
            [*given, f"{field} == {quoted_text(table.labels[code])}"],
            SLOWEST,
            depth=depth,
        )
        for code in chosen
    ], rest
