"""One question: how much more of those with a condition are selected, and is it chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from critpath.documents.base import number
from critpath.documents.exploration import AlsoEntry, ShareEntry, StepEntry
from critpath.errors import UsageError
from critpath.explore.combine import Candidates, find_candidates, merge_alike, pair_best
from critpath.explore.conditions import (
    check_condition,
    evaluate,
    parse_condition,
    resolve,
    settle,
    tests_of,
)
from critpath.explore.shifts import BitPlaces, count_common, judge, place_groups
from critpath.model import F64, I64, Bool
from critpath.model.exploration import (
    FEWEST,
    FEWEST_SELECTED,
    LATENCY,
    Condition,
    FactTable,
    Question,
    Ranked,
    Test,
)
from critpath.schema.parameters.explore import CONDITIONS
from critpath.text.exploring import (
    also_text,
    command_text,
    condition_text,
    describe_question,
    small_print,
)

SLOWEST: Final = "latency >= p90"


def wilson(count: int, of: int) -> ShareEntry:
    """Return a share with Wilson's interval."""
    square = CONDITIONS.z * CONDITIONS.z
    middle = (count + square / 2) / (of + square)
    half = CONDITIONS.z * math.sqrt(count * (of - count) / of + square / 4) / (of + square)
    ends = max(0.0, middle - half), min(1.0, middle + half)
    return ShareEntry(count, of, count / of, [*ends])


def newcombe(one: ShareEntry, other: ShareEntry) -> tuple[float, float, float]:
    """Return the difference of two shares with Newcombe's interval (his method 10)."""
    p1, p0 = one.share, other.share
    (low1, high1), (low0, high0) = one.interval, other.interval
    low = math.sqrt((p1 - low1) ** 2 + (high0 - p0) ** 2)
    high = math.sqrt((high1 - p1) ** 2 + (p0 - low0) ** 2)
    return p1 - p0, p1 - p0 - low, p1 - p0 + high


def log_ratio(one: ShareEntry, other: ShareEntry) -> tuple[float, float, float]:
    """Return the ratio of two shares, a half added to each count, with its log-normal interval."""
    a, b = one.count + 0.5, other.count + 0.5
    ratio = (a / (one.of + 1)) / (b / (other.of + 1))
    wide = CONDITIONS.z * math.sqrt(1 / a - 1 / (one.of + 1) + 1 / b - 1 / (other.of + 1))
    return ratio, ratio * math.exp(-wide), ratio * math.exp(wide)


def heights(found: I64, candidates: Candidates, chosen: I64) -> F64:
    """Return the standardised difference of every condition; ``chosen``: of every domain."""
    share = (chosen / np.maximum(candidates.among, 1))[candidates.domain]
    sizes, others = candidates.sizes, candidates.others
    spread = share * (1 - share) * (1 / sizes + 1 / others)
    difference = found / sizes - (chosen[candidates.domain] - found) / others
    return np.where(spread > 0, difference / np.sqrt(np.maximum(spread, 1e-300)), 0.0)


def ask(
    table: FactTable, given: Sequence[str] = (), what: str = SLOWEST, *, depth: int = 1
) -> Question:
    """Ask what the executions of a selection have in common.

    Parameters
    ----------
    table : FactTable
    given : sequence of str
        Conditions, one after the other: who is looked at (C1).
    what : str
        Who of them is selected (C2).
    depth : int
        With 2, also any two of the best conditions together.

    Returns
    -------
    Question

    Raises
    ------
    UsageError
        If a condition cannot be parsed, or no execution meets it.
    """
    within, steps = take_steps(table, given)
    condition = _read(what, table)
    selected = evaluate(condition, table, within) & within
    rows, places = order_rows(table, within, selected)
    chosen, n = int(selected.sum()), len(rows)
    used = {test.field for test in tests_of(condition)}
    families = {table.facts[field].family for field in used}
    candidates = find_candidates(table, rows, places, used, families)
    mine = selected[rows]
    found = count_common(candidates.bits, places, mine)
    of_domains = count_common(candidates.domains, places, mine)
    height = heights(found, candidates, of_domains)
    judged = np.flatnonzero(~candidates.part)
    enough = n >= FEWEST and FEWEST_SELECTED <= chosen <= n - FEWEST_SELECTED
    shifts, exact, largest = 0, False, np.zeros(0)
    if enough and len(judged):
        largest, exact = judge(
            np.ascontiguousarray(candidates.bits[judged]),
            candidates.sizes[judged],
            candidates.domain[judged],
            candidates.domains,
            places,
            mine,
            pairs=depth > 1,
        )
        shifts = len(largest) + 1
    ranked, looked = _rank(table, candidates, judged, places, mine, depth, largest)
    parts = sorted(np.flatnonzero(candidates.part).tolist(), key=lambda at: -height[at])
    question = Question(
        given=[StepEntry(step, left) for step, left in steps],
        what=what,
        bound=number(_bound(condition, table, within)),
        label=_single(table, rows),
        executions=n,
        selected=chosen,
        answer="few" if not enough else "found" if any(o.sure for o in ranked) else "nothing",
        ranked=ranked,
        parts=tuple(
            _make_ranked(table, candidates, at, (found, of_domains, height), None, known=False)
            for at in parts
        ),
        sentences=[],
        small_print=[],
        conditions=[],
        part=[],
        looked=looked,
        rare=candidates.rare,
        left_out=candidates.left_out,
        shifts=shifts,
        exact=exact,
        within=within,
        chosen=selected,
        steps=tuple(settle(_read(step, table), table) for step in given),
        asked=settle(condition, table),
    )
    question.sentences = [*describe_question(question, table)[1:]]
    question.small_print = [*small_print(question)]
    return question


def take_steps(table: FactTable, given: Sequence[str]) -> tuple[Bool, tuple[tuple[str, int], ...]]:
    """Return who is left after every step, and each step with how many these are."""
    within = np.ones(len(table), np.bool_)
    steps = []
    for step in given:
        within &= evaluate(_read(step, table), table, within)
        steps.append((step, int(within.sum())))
        if not steps[-1][1]:
            raise UsageError(
                f"no {table.noun} fits {step}",
                "loosen --given; without it every label is looked at by itself",
            )
    return within, tuple(steps)


def _read(text: str, table: FactTable) -> Condition:
    condition = parse_condition(text)
    check_condition(condition, table)
    return condition


def order_rows(table: FactTable, within: Bool, selected: Bool) -> tuple[I64, BitPlaces]:
    """Return executions in the order in which a selection is turned, and their groups.

    Groups are a label's executions in one recording, in order of begin.  Where all or none of
    every recording are selected, there is but one group: the recordings one after the other.
    """
    rows = np.flatnonzero(within)
    recording, label = table.recording[rows], table.label[rows]
    if len(np.unique(recording)) > 1:
        mixed = [
            len(np.unique(selected[rows][recording == one])) > 1 for one in np.unique(recording)
        ]
        if not any(mixed):
            order = np.lexsort((rows, table.begin[rows], recording))
            return rows[order], place_groups(np.array([len(rows)], np.int64))
    order = np.lexsort((rows, table.begin[rows], label, recording))
    rows = rows[order]
    key = table.recording[rows].astype(np.int64) * (len(table.labels) + 1) + table.label[rows]
    _, lengths = np.unique(key, return_counts=True)
    return rows, place_groups(lengths.astype(np.int64))


def _rank(
    table: FactTable,
    candidates: Candidates,
    judged: I64,
    places: BitPlaces,
    selected: Bool,
    depth: int,
    largest: F64,
) -> tuple[tuple[Ranked, ...], int]:
    """Return conditions by their difference, of those that say the same one; and how many."""

    def count(of: Candidates) -> tuple[I64, I64, F64]:
        found = count_common(of.bits, places, selected)
        chosen = count_common(of.domains, places, selected)
        return found, chosen, heights(found, of, chosen)

    found, chosen, height = count(candidates)
    order = sorted(judged.tolist(), key=lambda at: -abs(height[at]))
    if depth > 1:
        base = len(candidates.tests)
        candidates = pair_best(candidates, order[: CONDITIONS.best], places)
        found, chosen, height = count(candidates)
        single = {candidates.tests[at][0]: abs(height[at]) for at in order}
        # Two together say something where they differ more than either alone.
        more = [
            at
            for at in range(base, len(candidates.tests))
            if abs(height[at]) > max(single[test] for test in candidates.tests[at]) + 1e-9
        ]
        order = sorted(order + more, key=lambda at: -abs(height[at]))
    kinds = merge_alike(candidates, order, height)
    result = []
    for at, also, known in kinds:
        p = None
        if len(largest):
            p = (1 + int((largest >= abs(height[at]) - 1e-9).sum())) / (len(largest) + 1)
        others = tuple((candidates.tests[one], other) for one, other in also)
        result.append(
            _make_ranked(
                table, candidates, at, (found, chosen, height), p, known=known, also=others
            )
        )
    result.sort(key=lambda one: -abs(one.z))
    return tuple(result), len(judged)


def _make_ranked(
    table: FactTable,
    candidates: Candidates,
    at: int,
    counted: tuple[I64, I64, F64],
    p: float | None,
    *,
    known: bool,
    also: tuple[tuple[tuple[Test, ...], bool], ...] = (),
) -> Ranked:
    found, of_domains, height = counted
    size, count = int(candidates.sizes[at]), int(found[at])
    chosen = int(of_domains[candidates.domain[at]])
    having, without = wilson(count, size), wilson(chosen - count, int(candidates.others[at]))
    tests, facts = candidates.tests[at], table.facts
    difference, *around = newcombe(having, without)
    ratio, *about = log_ratio(having, without)
    return Ranked(
        tests=tests,
        condition=command_text(tests, facts),
        words=condition_text(tests, facts),
        having=having,
        without=without,
        difference=difference,
        difference_interval=around,
        ratio=ratio,
        ratio_interval=about,
        z=float(height[at]),
        p=p,
        known=known,
        also=[AlsoEntry(command_text(one, facts), other) for one, other in also],
        also_words=also_text(also, facts),
    )


def _bound(condition: Condition, table: FactTable, within: Bool) -> float:
    if isinstance(condition, Test) and condition.field == LATENCY and condition.operator == ">=":
        return resolve(condition, table.facts[LATENCY], within)
    return math.nan


def _single(table: FactTable, rows: I64) -> str:
    labels = np.unique(table.label[rows])
    return table.labels[int(labels[0])] if len(labels) == 1 else ""
