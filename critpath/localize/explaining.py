"""From the executions that stand out to findings and causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct, structs

from critpath.align import RowGroup, align, choose_rows
from critpath.cluster import labels_are_usable, normal_group
from critpath.detect import ERROR, find_routes, is_throttled
from critpath.documents.base import change, number
from critpath.localize.because import explain_whole
from critpath.localize.causes import Explained, group_causes, in_order_of_causes
from critpath.localize.columns import column_statistics
from critpath.localize.counts import (
    add_meanwhile,
    charge_steps,
    count_callers,
    count_rivals,
    count_steps,
    find_chains,
)
from critpath.localize.findings import find_differences
from critpath.localize.segments import (
    find_context,
    inferred_holders,
    is_faster,
    segments_of,
    select_executions,
    stand_out_alone,
)
from critpath.model import (
    Aligned,
    CompareSettings,
)
from critpath.model.vectors import name_family
from critpath.processes import do_for_both, side_by_side
from critpath.progress import COMPARING, Progress, Stage, name_place
from critpath.schema.kinds import RUNNING, State
from critpath.schema.notes import SomeExamined
from critpath.schema.parameters.localize import FACTS
from critpath.text import notes
from critpath.text.phrases import VERDICTS
from critpath.units import plural
from critpath.vectors import Weather, trips_of_both

if TYPE_CHECKING:
    from critpath.documents import Because
    from critpath.localize.counts import StepCounts
    from critpath.localize.segments import Segments
    from critpath.model import (
        I64,
        U8,
        Alignment,
        Analysis,
        Cause,
        Charge,
        Context,
        Finding,
        PathSet,
    )
    from critpath.vectors import Coder


import math
from collections.abc import Iterable, Mapping
from statistics import fmean, stdev

from critpath.model import Cause, Finding
from critpath.schema.parameters.localize import ENOUGH
from critpath.schema.parameters.shared import EVEN, NORMAL

# From the executions that stand out to findings and causes.


def explain(
    comparison: Analysis, coder: Coder, settings: CompareSettings, tell: Progress
) -> Analysis:
    """Align executions that stand out with their normal group, and name the causes.

    As many as make the answer better: see `critpath.localize.explaining`.
    """
    chosen, left_out = select_executions(comparison, settings.explain_limit)
    counts = _count_steps(comparison, coder, chosen)
    groups = _Groups(comparison, coder, chosen, settings)
    comparison = groups.comparison
    done, findings, causes = _explain_enough(comparison, groups, counts, left_out, tell)
    aligned = [one.aligned for one in done]
    left_out += len(chosen) - len(done)
    warnings = comparison.warnings
    if left_out:
        warnings += (SomeExamined(len(done), len(done) + left_out),)
    # Many alignments have the same note.
    warnings += tuple(dict.fromkeys(note for a in aligned for note in a.alignment.notes))
    causes = add_meanwhile(
        *(causes, counts),
        lambda state, role: (
            comparison.normal.sum_beneath(state, role),
            comparison.sample.sum_beneath(state, role),
        ),
    )
    causes = _with_callers(causes, groups)
    causes = _with_route(causes, comparison)
    causes = _with_usage(causes, comparison)
    if settings.level:
        # Causes of what the verdict rests on come first.
        level = {test.state: test.level for test in comparison.detection.states}
        errors_first = sorted(causes, key=lambda c: level[findings[c.main].symbol.name] != ERROR)
        causes = tuple(errors_first)
    ordered, causes = in_order_of_causes(findings, causes)
    return structs.replace(
        comparison,
        aligned=tuple(aligned),
        findings=ordered,
        causes=causes,
        warnings=warnings,
        because=_explain_all(comparison, counts),
    )


def _explain_all(comparison: Analysis, counts: StepCounts) -> Because | None:
    """Return what the mean of all executions differs by: the types before weigh as those after."""
    detection = comparison.detection
    whole = detection.whole or (detection.states[-1] if detection.states else None)
    before, after = comparison.normal_clusters, comparison.sample_clusters
    if whole is None or not len(after.labels) or not len(before.labels):
        return None
    homes = comparison.pairs.pair[after.labels]
    many = np.bincount(before.labels, minlength=int(homes.max(initial=0)) + 1)
    now = np.bincount(homes[homes >= 0], minlength=len(many))
    weights = (now / np.maximum(many, 1))[before.labels]
    if not weights.sum():
        return None
    rows = np.flatnonzero(weights)
    of = rows, weights[rows] / weights.sum()
    return explain_whole(counts, of, float(whole.effect or 0.0), len(comparison.sample))


class _OneExplained(Struct, frozen=True, eq=False):
    """An execution that was aligned, and what of it tells of causes."""

    aligned: Aligned
    findings: tuple[Finding, ...]
    contexts: tuple[Context, ...]
    charges: tuple[Charge, ...]
    chains: Mapping[str, Mapping[tuple[str, ...], int]]


def _explain_enough(
    comparison: Analysis, groups: _Groups, counts: StepCounts, left_out: int, tell: Progress
) -> tuple[list[_OneExplained], list[Finding], tuple[Cause, ...]]:
    """Explain executions, batch by batch, until more of them would change no cause.

    Returns
    -------
    list of _OneExplained
        In the order of ``groups.chosen``.
    list of Finding
        Theirs.
    tuple of Cause
    """
    chosen = groups.chosen
    name = f"{VERDICTS[comparison.verdict]}; aligning {plural(len(chosen), 'path')}"
    stage = Stage(tell, name + name_place(4, COMPARING))
    done: dict[int, _OneExplained] = {}

    def explain_some(executions: list[int]) -> None:
        for execution in executions:
            stage.reach(len(done) / len(chosen))
            done[execution] = _explain_one(comparison, groups, counts, execution)

    found: list[Finding] = []
    causes: tuple[Cause, ...] = ()
    for batch in in_batches(chosen):
        before = causes
        side_by_side(*(partial(explain_some, some) for some in groups.halves(batch)))
        mine = [done[execution] for execution in chosen if execution in done]
        found = [finding for one in mine for finding in one.findings]
        everything = not left_out and len(mine) == len(chosen)
        causes = _name_causes(groups, counts, mine, all_of_them=everything)
        excess = {one.aligned.execution: one.aligned.excess for one in mine}
        if is_settled(before, causes, found, excess):
            break
    return [done[execution] for execution in chosen if execution in done], found, causes


def _name_causes(
    groups: _Groups, counts: StepCounts, explained: Sequence[_OneExplained], *, all_of_them: bool
) -> tuple[Cause, ...]:

    comparison = groups.comparison
    executions = [one.aligned.execution for one in explained]
    alone = stand_out_alone(comparison, executions)
    return group_causes(
        [finding for one in explained for finding in one.findings],
        [Explained(a.execution, a.excess, len(a.normals)) for a in (o.aligned for o in explained)],
        len(comparison.sample) if all_of_them else len(explained),
        contexts=[context for one in explained for context in one.contexts],
        quota=is_throttled(comparison.normal, comparison.sample),
        inferred=groups.inferred,
        flagged=() if alone else {s.state for s in comparison.detection.states if s.flagged},
        charges={one.aligned.execution: one.charges for one in explained},
        counts=counts,
        chains={one.aligned.execution: one.chains for one in explained},
        faster=not alone and is_faster(comparison),
    )


# Of what packets' way makes longer; softirqs also of those of which it is not known what they do.
_OF_PACKETS: Final = {
    (state.name, softirq)
    for state in (State.SOFTIRQ, State.WAIT_SOFTIRQ)
    for softirq in ("", "NET_RX", "NET_TX")
}


def _with_callers(causes: tuple[Cause, ...], groups: _Groups) -> tuple[Cause, ...]:
    """Add to causes through how many threads, one after the other, another is waited for."""
    result = []
    for cause in causes:
        facts = cause.facts
        if facts is not None and facts.through and cause.contribution > 0:
            pair = facts.through[-1], facts.role
            rows = sorted({row for e in cause.positions for row in groups.rows(e)[0].tolist()})
            before = fmean(groups.callers(row).get(pair, 0) for row in rows) if rows else 0.0
            sample = groups.comparison.sample
            after = fmean(groups.count_callers(sample, e).get(pair, 0) for e in cause.positions)
            facts = change(facts, through_before=number(before), through_after=number(after))
        result.append(change(cause, facts=facts))
    return tuple(result)


def _with_route(causes: tuple[Cause, ...], comparison: Analysis) -> tuple[Cause, ...]:
    """Add to causes that are of the kernel's network work which way packets take now.

    Only where that work takes longer in all: another route alone slows nothing.
    """
    found = find_routes(comparison.normal, comparison.sample)
    if not found or found[1][1] <= found[1][0]:
        return causes
    route = notes.name_route(found[0])
    return tuple(
        change(cause, facts=change(facts, route=route))
        if (facts := cause.facts)
        and cause.contribution > 0
        and (facts.state == State.NET_TRANSIT.name or (facts.state, facts.device) in _OF_PACKETS)
        else cause
        for cause in causes
    )


def _with_usage(causes: tuple[Cause, ...], comparison: Analysis) -> tuple[Cause, ...]:
    """Add to causes of runs that run longer what the kernel ran for these, and their page faults.

    Means of all runs: only of what most of them do.
    """
    if all(one.runs_recorded is None for one in comparison.sample.environment):
        return causes  # they are no runs
    sides = [
        [(one.recorded_kernel, one.recorded_faults) for one in of.environment if one.recorded_on]
        for of in (comparison.normal, comparison.sample)
    ]
    if not all(sides) or any(None in counted for side in sides for counted in side):
        return causes
    means = [np.array(side, np.float64).mean(axis=0).tolist() for side in sides]
    (kernel, faults), (kernel_now, faults_now) = means
    least = FACTS.nearly_all * len(comparison.sample)
    return tuple(
        change(
            cause,
            facts=change(
                facts,
                kernel_before=kernel,
                kernel_after=kernel_now,
                faults_before=faults,
                faults_after=faults_now,
            ),
        )
        if (facts := cause.facts)
        and not facts.role
        and State[facts.state] in RUNNING
        and len(cause.positions) >= least
        else cause
        for cause in causes
    )


def _count_steps(comparison: Analysis, coder: Coder, chosen: list[int]) -> StepCounts:
    """Count what all executions do; those to explain are held against the normal ones like them."""
    normal, sample = comparison.normal, comparison.sample
    labels = normal.executions.label, sample.executions.label
    if labels_are_usable(*labels):
        known = np.array(labels[0], dtype=object)
        rows = {name: np.flatnonzero(known == name) for name in set(labels[1])}
        groups = {execution: rows[labels[1][execution]] for execution in chosen}
    else:
        clusters = comparison.normal_clusters, comparison.sample_clusters
        homes = comparison.pairs.pair[comparison.sample_clusters.labels]
        of_home = {int(homes[e]): normal_group(*clusters, comparison.pairs, e) for e in chosen}
        groups = {e: of_home[int(homes[e])] for e in chosen}
    roles, trips, others = trips_of_both(normal, sample, coder)
    vectors = comparison.normal_vectors, comparison.sample_vectors
    before, after = do_for_both(normal, sample, Weather.of, coder)
    had = count_rivals(before), count_rivals(after)
    rivals = {name: (had[0].get(name, 0.0), had[1].get(name, 0.0)) for name in {*had[0], *had[1]}}
    program = {name_family(comm) for comm in {*sample.executions.comm}}
    return count_steps(
        *(coder.symbols, vectors, roles, (trips, others), groups, rivals),
        weather=(before, after),
        program=program,
    )


class _Groups:
    """The normal executions that each anomalous one is aligned with.

    Executions paired with one type share its normal rows.  With ``msa = add`` these
    are aligned once, each execution is added to them, and all have the same columns
    but for what they alone have.
    """

    def __init__(
        self,
        comparison: Analysis,
        coder: Coder,
        chosen: list[int],
        settings: CompareSettings,
    ) -> None:

        self.comparison, self.coder, self.settings = comparison, coder, settings
        self.chosen = chosen
        self.inferred = inferred_holders(comparison.sample)
        homes = comparison.pairs.pair[comparison.sample_clusters.labels]
        self._home = {execution: int(homes[execution]) for execution in chosen}
        self._rows: dict[int, tuple[I64, int]] = {}
        self._aligned: dict[int, RowGroup] = {}
        self._segments: dict[int, Segments] = {}
        self._callers: dict[int, dict[tuple[str, str], int]] = {}
        if chosen:
            rows = np.unique(np.concatenate([self.rows(execution)[0] for execution in chosen]))
            self.comparison = structs.replace(
                comparison,
                normal=_keeping(comparison.normal, rows),
                sample=_keeping(comparison.sample, np.array(chosen, np.int64)),
            )

    def halves(self, executions: Sequence[int]) -> list[list[int]]:
        """Return executions in two parts, none of which has a type of the other."""
        halves: list[list[int]] = [[], []]
        of_home: dict[int, list[int]] = {}
        for execution in executions:
            of_home.setdefault(self._home[execution], []).append(execution)
        for mine in sorted(of_home.values(), key=len, reverse=True):
            min(halves, key=len).extend(mine)
        return halves

    def rows(self, execution: int) -> tuple[I64, int]:
        """Return the normal executions to align with, and how many of the type are left out."""
        home = self._home[execution]
        if home not in self._rows:
            of = self.comparison
            group = normal_group(of.normal_clusters, of.sample_clusters, of.pairs, execution)
            vectors = of.normal_vectors.structure[group]
            rows = group[choose_rows(vectors, self.settings.group_limit)]
            self._rows[home] = rows, len(group) - len(rows)
        return self._rows[home]

    def align(self, execution: int) -> Alignment:
        """Align an execution, the last row, with its normal rows."""
        sample = self.comparison.sample
        mine = self._path(sample, execution)
        alphabet = len(self.comparison.normal_vectors.symbols)
        home = self._home[execution]
        if self.settings.msa == "add" and home in self._aligned:
            return self._aligned[home].add(*mine)
        rows, _ = self.rows(execution)
        sequences, durations = self._take_normal(rows)
        if self.settings.msa == "joint":
            together = [*sequences, mine[0]], [*durations, mine[1]]
            return align(*together, alphabet, method=self.settings.aligner)
        others = [self._path(sample, e)[0] for e, at in self._home.items() if at == home]
        self._aligned[home] = RowGroup(
            sequences, durations, alphabet, others=others, method=self.settings.aligner
        )
        return self._aligned[home].add(*mine)

    def _take_normal(self, rows: I64) -> tuple[list[U8], list[I64]]:
        """Return the symbols and durations of normal paths, and keep what they are beyond these."""
        group = self.comparison.normal.take(rows)
        ends = group.paths.start[1:-1]
        for place, row in enumerate(rows.tolist()):
            self._segments[row] = segments_of(group.paths, place)
        codes, durations = self.coder.codes(group), group.paths.duration
        return np.split(codes, ends), np.split(durations, ends)

    def segments(self, normal: int) -> Segments:
        """Return what a normal path, which has been aligned with, is beyond its symbols."""
        return self._segments[normal]

    def callers(self, normal: int) -> dict[tuple[str, str], int]:
        """Return what `count_callers` does of a normal path."""
        if normal not in self._callers:
            self._callers[normal] = self.count_callers(self.comparison.normal, normal)
        return self._callers[normal]

    def count_callers(self, path_set: PathSet, execution: int) -> dict[tuple[str, str], int]:
        """Return what `count_callers` does of one path."""
        one = _one(path_set, execution)
        return count_callers(one, self.coder.codes(one).tolist(), self.coder.symbols)

    def _path(self, path_set: PathSet, execution: int) -> tuple[U8, I64]:
        """Return the symbols and durations of one path."""
        one = _one(path_set, execution)
        return self.coder.codes(one), one.paths.duration


def _one(path_set: PathSet, execution: int) -> PathSet:
    """Return one execution as a set: its path is fetched if it is not in memory."""
    return path_set.take(np.array([execution], np.int64))


def _keeping(path_set: PathSet, rows: I64) -> PathSet:
    """Return a set with some of its paths in memory, which are then taken one by one."""
    return replace(path_set, paths=path_set.paths.keep(rows))


def _explain_one(
    comparison: Analysis, groups: _Groups, counts: StepCounts, execution: int
) -> _OneExplained:

    rows, left_out = groups.rows(execution)
    alignment = groups.align(execution)
    statistics = column_statistics(alignment)
    path = _one(comparison.sample, execution)
    symbols = comparison.normal_vectors.symbols
    found, unexplained = find_differences(
        (comparison.sample.executions.id[execution], execution),
        alignment,
        statistics,
        symbols,
        segments_of(path.paths, 0),
        [groups.segments(i) for i in rows.tolist()],
    )
    durations = alignment.durations
    expected = sum(int(d.sum()) for d in durations[:-1]) / len(rows)
    return _OneExplained(
        Aligned(
            execution=execution,
            normals=tuple(rows.tolist()),
            left_out=left_out,
            alignment=alignment,
            statistics=statistics,
            excess=int(durations[-1].sum()) - expected,
            unexplained=unexplained,
        ),
        tuple(found),
        tuple(find_context(path, one) for one in found),
        charge_steps(
            *(path, groups.coder.codes(path).tolist(), groups.coder.symbols),
            *(counts.risen(execution), counts.usual(execution), groups.inferred),
        ),
        find_chains(path, groups.coder.codes(path).tolist(), groups.coder.symbols),
    )


# How many executions are explained: as many as make the answer better.
#
# They are explained in batches, each of which is spread over the order of their excess; after each
# the causes are named of all so far.  They are settled when, since the batch before, the first
# cause is about the same, and so are, in the same order, all with a tenth of the excess or more
# (`ENOUGH.large`); what each of these contributes to an execution is known to within a fifth of the
# mean excess (`ENOUGH.sure`): half the width of its interval at 95 %; and the first contributes
# surely more than the second, or surely less: their difference is beyond its own interval.
#
# Executions alike are settled after two batches, 27 of them; where they are slow for many reasons,
# all of up to `CompareSettings.explain_limit` are explained.  So are 27 and fewer.


def in_batches(order: Sequence[int]) -> list[list[int]]:
    """Divide executions into batches: the first of any number of them are spread over all.

    Parameters
    ----------
    order : sequence of int
        By excess.

    Returns
    -------
    list of list of int
        The first batch has `ENOUGH.first`, and each brings the number to `ENOUGH.growth` times
        as many; the slowest is in the first.
    """
    turns = sorted(range(len(order)), key=lambda place: place * EVEN.golden % 1)
    batches, begin, end = [], 0, ENOUGH.first
    while begin < len(order):
        batches.append([order[place] for place in turns[begin:end]])
        begin, end = end, math.ceil(ENOUGH.growth * end)
    return batches


def is_settled(
    before: Sequence[Cause],
    now: Sequence[Cause],
    findings: Sequence[Finding],
    excess: Mapping[int, float],
) -> bool:
    """Tell whether explaining more executions would leave the causes as they are.

    Parameters
    ----------
    before, now : sequence of Cause
        Of a part of the executions, and of all explained so far.
    findings : sequence of Finding
        Theirs, of all explained so far.
    excess : mapping of int to float
        Every execution explained so far, and its nanoseconds over normal ones.
    """
    if not before or not now:
        return False
    parts = _contributions(now, findings, excess)
    names, mine = list(parts), [list(of.values()) for of in parts.values()]
    whole = abs(math.fsum(excess.values()))
    large = [
        0,
        *(i for i in range(1, len(mine)) if abs(math.fsum(mine[i])) >= ENOUGH.large * whole),
    ]
    if any(_half_width(mine[i]) > ENOUGH.sure * whole / len(excess) for i in large):
        return False
    if len(large) > 1:
        lead = [one - other for one, other in zip(mine[0], mine[large[1]], strict=True)]
        if abs(fmean(lead)) <= _half_width(lead):
            return False
    earlier = list(dict.fromkeys(map(_subject, before)))
    there = [name for name in earlier if name in {names[i] for i in large}]
    return earlier[0] == names[0] and there == [names[i] for i in large]


def _subject(cause: Cause) -> tuple[object, ...]:
    """Return what a cause is about, whichever of its states is new, and which more often."""
    facts = cause.facts
    about = (facts.state, facts.role, facts.peer, facts.device) if facts else ()
    return (cause.contribution > 0, *about)


def _contributions(
    causes: Sequence[Cause], findings: Sequence[Finding], executions: Iterable[int]
) -> dict[tuple[object, ...], dict[int, float]]:
    """Return by subject what causes contribute to each execution; 0 where they are not."""
    nothing = dict.fromkeys(executions, 0.0)
    result: dict[tuple[object, ...], dict[int, float]] = {}
    for cause in causes:
        mine = result.setdefault(_subject(cause), nothing.copy())
        for place in cause.findings:
            mine[findings[place].position] += findings[place].contribution
    return result


def _half_width(values: Sequence[float]) -> float:
    """Return half the width of the interval of a mean."""
    return NORMAL.q975 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
