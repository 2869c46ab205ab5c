"""From the critical paths of two sets to the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from critpath.errors import InconclusiveError
from critpath.model import CompareSettings
from critpath.pipeline.alike import require_alike_processes, with_like_clients, with_like_labels
from critpath.pipeline.progress import Progress, Stage, name_place
from critpath.processes import side_by_side
from critpath.schema.environment import add_counts
from critpath.schema.kinds import State
from critpath.schema.notes import Note, SomeExamined, SufficientRecording
from critpath.schema.parameters.detect import COMPARABILITY, FLAME
from critpath.text import notes
from critpath.text.phrases import VERDICTS
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.align.multiple import Group
    from critpath.detect.verdict import Apart
    from critpath.documents.pictures import FlameNode
    from critpath.localize.counts import StepCounts
    from critpath.localize.segments import Segments
    from critpath.model import (
        I64,
        U8,
        Aligned,
        Alignment,
        Analysis,
        Cause,
        Charge,
        Clustering,
        ClusterPairs,
        Context,
        Detection,
        Finding,
        Outliers,
        PathSet,
        VectorTable,
    )
    from critpath.vectors.table import Coder

_STAGES: Final = 4  # technical: of a comparison, for who waits


def compare(
    normal: PathSet,
    sample: PathSet,
    settings: CompareSettings | None = None,
    *,
    progress: Progress | None = None,
    flame: bool = True,
) -> Analysis:
    """Compare a sample set with a normal set; the flame graph is for files, no text has it.

    Raises
    ------
    InconclusiveError
        If a set has no execution at all.

    Notes
    -----
    Janecek, Ezzati-Jivan and Hamou-Lhadj, "Performance Anomaly Detection through
    Sequence Alignment of System-Level Traces" (ICPC 2022).  Deviations: types are
    found before the coarse detection, whose tests compare like with like, so that a
    changed mix of types is no slow-down; the verdict comes from a permutation test.
    """
    from critpath.detect.comparability import (
        doubtful_requests,
        environment_differences,
        missing_runs,
        partial_comparison_note,
        recorded_apart,
        set_warnings,
    )
    from critpath.detect.grounds import find_grounds
    from critpath.detect.verdict import decide
    from critpath.model import Analysis
    from critpath.vectors.table import Coder, vectors_of, with_like_states

    settings, tell = settings or CompareSettings(), progress or (lambda _: None)
    for name, path_set in (("normal", normal), ("sample", sample)):
        if not len(path_set):
            raise InconclusiveError(
                f"the {name} set has no execution ({path_set.specification})",
                "check --execution, or record more: at least 10 executions, better 100",
            )
    normal, sample, newcomers = with_like_clients(normal, sample)
    normal, sample, relabelled = with_like_labels(normal, sample)
    require_alike_processes(normal, sample)
    normal, sample, unlike = with_like_states(
        note_repaired_switches(normal), note_repaired_switches(sample)
    )
    # Segments may not fit in memory: they are read in chunks, later only of what is aligned.
    coder = Coder((normal, sample), settings.alphabet)
    normal_vectors, sample_vectors = _of_both(normal, sample, vectors_of, coder)
    apart = recorded_apart(normal, sample)
    runs, blocks = (None, None) if apart else _together(normal, sample)
    judgement = judge(
        normal_vectors, sample_vectors, settings,
        labels=(normal.executions.label, sample.executions.label),
        sessions=(normal.session, sample.session), runs=runs, blocks=blocks,
        apart=settings.sessions and apart, together=not apart,
        clean=_without_strangers(normal, sample, coder, runs), progress=tell,
    )  # fmt: skip
    judgement = _with_rivals(judgement, normal, sample, newcomers=bool(newcomers))
    types = judgement.pairs.pair[judgement.sample_clusters.labels]
    gaps = partial_comparison_note(judgement.normal_clusters.labels, types)
    verdict, reasons = decide(
        judgement.detection,
        judgement.outliers,
        *((normal.lossy, sample.lossy), (normal.losses, sample.losses)),
        apart=judgement.apart,
        minimum=settings.minimum_executions,
        differences=(
            *missing_runs(normal, sample),
            *doubtful_requests(normal, sample),
            *(environment_differences(normal, sample) if settings.strict_environment else ()),
        ),
        note=gaps,
    )
    result = Analysis(
        verdict=verdict,
        reasons=(*reasons, *_sufficient(verdict, normal, sample, (settings, judgement))),
        warnings=(
            *newcomers,
            *([gaps] if gaps else []),
            *relabelled,
            *judgement.warnings,
            *set_warnings(normal, sample, coder.folded),
            *(*unlike, *coder.warnings),
        ),
        normal=normal,
        sample=sample,
        normal_vectors=normal_vectors,
        sample_vectors=sample_vectors,
        detection=judgement.detection,
        normal_clusters=judgement.normal_clusters,
        sample_clusters=judgement.sample_clusters,
        pairs=judgement.pairs,
        outliers=judgement.outliers,
        **dict.fromkeys(("aligned", "findings", "causes"), ()),
        settings=asdict(settings),
        apart=judgement.apart is not None,
        grounds=find_grounds(
            *(verdict, judgement.detection, (normal.lossy, sample.lossy)),
            apart=judgement.apart,
            minimum=settings.minimum_executions,
        ),
    )
    return _explain_and_draw(result, judgement, coder, settings, tell, flame=flame)


def _explain_and_draw(
    result: Analysis,
    judgement: Judgement,
    coder: Coder,
    settings: CompareSettings,
    tell: Progress,
    *,
    flame: bool,
) -> Analysis:
    """Add what an answer has beside the verdict: causes, and where the time goes."""
    if flame:  # before threads: Python 3.11 fails if two parse modules at once, as pytest has them
        import critpath.detect.flame  # noqa: F401
    from critpath.vectors.chains import sum_waits

    # The verdict is known: what is left to do says only why.
    tell(f"{VERDICTS[result.verdict]}; adding up" + name_place(3, _STAGES))
    explained: Analysis
    explained, nodes, waits = side_by_side(
        partial(explain, result, coder, settings, tell),
        partial(_draw_flame, result, judgement, coder, settings) if flame else tuple,
        partial(sum_waits, result.normal, result.sample),
        rows=len(result.normal) + len(result.sample),
    )
    return replace(explained, flame=nodes, waits=waits)


def _of_both(normal: PathSet, sample: PathSet, work: Callable[..., Any], *given: Any) -> list[Any]:
    """Return what something gives for each of the sets, which are read side by side."""
    return side_by_side(partial(work, normal, *given), partial(work, sample, *given))


def _draw_flame(
    result: Analysis, judgement: Judgement, coder: Coder, settings: CompareSettings
) -> tuple[FlameNode, ...]:
    """Return where the time goes; changes are tested in directions that the verdict allows."""
    from critpath.cluster.types import labels_are_usable
    from critpath.detect.comparability import find_blocks, find_runs
    from critpath.detect.flame import FlameSets, build_flame
    from critpath.localize.segments import is_faster
    from critpath.vectors.chains import chain_times

    normal, sample = result.normal, result.sample
    labels = normal.executions.label, sample.executions.label
    types = judgement.normal_clusters.labels, judgement.pairs.pair[judgement.sample_clusters.labels]
    apart = judgement.apart
    # What the machine may have done to sets of different times is nothing to mark.
    sure = apart is None or 1 / (1 + apart.slower) - 1 > apart.beyond
    directions = {
        "anomaly": ("more", "less"),
        "ok": ("less",) if is_faster(result) and sure else (),
    }.get(result.verdict, ())
    return build_flame(
        chain_times(normal, sample, coder if coder.kind == "thread" else None),
        FlameSets(
            labels=labels if labels_are_usable(*labels) else ((), ()),
            types=types,
            sessions=(normal.session, sample.session),
            runs=None if apart or not directions else find_runs(normal, sample),
            blocks=None if apart or not directions else find_blocks(normal, sample),
        ),
        # Behind an alarm, whose level that of the whole tree is.
        level=FLAME.level if result.verdict == "anomaly" else settings.alpha,
        permutations=settings.permutations,
        directions=directions,
        whole=result.detection.states[-1] if result.verdict == "anomaly" else None,
    )


@dataclass(frozen=True, eq=False)
class Judgement:
    """What is decided from the vectors alone, before anything is aligned."""

    normal_clusters: Clustering
    sample_clusters: Clustering
    pairs: ClusterPairs
    outliers: Outliers
    detection: Detection
    warnings: tuple[Note, ...] = ()
    apart: Apart | None = None


def _sufficient(
    verdict: str, normal: PathSet, sample: PathSet, by: tuple[CompareSettings, Judgement]
) -> Iterator[Note]:
    """Yield what recordings under a budget should have been like to have enough executions."""
    if verdict != "inconclusive":
        return
    wanted = max(by[0].minimum_executions, by[1].detection.needed)
    for name, paths in (("normal", normal), ("sample", sample)):
        gaps = (told.gaps for told in paths.environment)
        of = [each for each in gaps if each is not None and each.overhead is not None]
        if not of or not 0 < len(paths) < wanted:
            continue
        more = wanted / len(paths)
        seen = sum(each.whole + each.partial + (each.bystander or 0) for each in of)
        seconds = sum(each.recorded_ns for each in of) / 1e9
        asked = (of[0].overhead or {}).get("target")
        target = float(asked) if isinstance(asked, int | float) else 0.0
        target = more * target if wanted <= seen else 0.0
        yield SufficientRecording(name, len(paths), seen, wanted, more * seconds, target)


def _together(
    normal: PathSet, sample: PathSet
) -> tuple[tuple[I64, I64] | None, tuple[I64, I64] | None]:
    """Return the runs and the blocks of sets recorded together."""
    from critpath.detect.comparability import find_blocks, find_runs

    return find_runs(normal, sample), find_blocks(normal, sample)


def _without_strangers(
    normal: PathSet, sample: PathSet, coder: Coder, runs: tuple[I64, I64] | None
) -> tuple[VectorTable, VectorTable] | None:
    """Return vectors without the time that strangers had the cpu; None where there are none."""
    from critpath.detect.machine import find_strangers
    from critpath.vectors.table import vectors_of

    strangers = find_strangers(normal, sample, {s.role for s in coder.symbols if s.role}, runs)
    if not strangers and runs is None:
        return None
    ours, theirs = _of_both(normal, sample, vectors_of, coder, strangers)
    return ours, theirs


def _with_rivals(
    judgement: Judgement, normal: PathSet, sample: PathSet, *, newcomers: bool
) -> Judgement:
    """Add who had the cpu, what new clients did, and what a limit did, where that may matter."""
    from critpath.detect.machine import find_limit, find_queue, find_rival
    from critpath.documents.base import change
    from critpath.localize.segments import is_throttled

    if judgement.apart is None or not judgement.detection.flagged:
        return judgement
    rival = find_rival(normal, sample)
    detection = judgement.detection
    limit = find_limit(rival, detection, told=is_throttled(normal, sample))
    queue = find_queue(detection) if newcomers else ()
    return replace(
        judgement,
        apart=replace(judgement.apart, rival=rival),
        detection=change(detection, signs=[*detection.signs, *limit, *queue]),
    )


def judge(
    normal: VectorTable,
    sample: VectorTable,
    settings: CompareSettings,
    *,
    labels: tuple[Sequence[str], Sequence[str]],
    sessions: tuple[I64 | None, I64 | None],
    apart: bool = False,
    runs: tuple[I64, I64] | None = None,
    blocks: tuple[I64, I64] | None = None,
    clean: tuple[VectorTable, VectorTable] | None = None,
    together: bool = True,
    progress: Progress | None = None,
    screening: bool = True,
) -> Judgement:
    """Find the types of two sets, their outliers, and whether the sample is slower.

    ``clean`` is without the time that strangers had the cpu, which is no single execution's doing;
    in the sets as a whole it counts unless they were recorded together.
    """
    from critpath.cluster.outliers import confirm_marks, outliers, with_excess
    from critpath.cluster.types import find_types, labels_are_usable
    from critpath.detect.coarse import detect
    from critpath.detect.verdict import (
        ERROR,
        apply_levels,
        is_alarm,
        select_deciding,
        symbol_levels,
    )
    from critpath.vectors.table import fold_interrupts

    tell = progress or (lambda _: None)
    tell("finding kinds" + name_place(1, _STAGES))
    labelled = labels_are_usable(*labels)
    normal_clusters, sample_clusters, pairs = find_types(
        normal, sample, *(labels if labelled else ((), ())), method=settings.cluster_method
    )
    judged = fold_interrupts(normal), fold_interrupts(sample)
    single = judged if clean is None else (fold_interrupts(clean[0]), fold_interrupts(clean[1]))
    marking = partial(
        outliers, single[0], normal_clusters, single[1], sample_clusters, pairs,
        k=settings.outlier_k, level=settings.outlier_level, floor=settings.floor,
        types_known=labelled,
    )  # fmt: skip
    tell("testing differences" + name_place(2, _STAGES))
    gate = partial(
        detect,
        rule=settings.rule,
        alpha=settings.alpha,
        floor=settings.floor,
        t1=settings.t1,
        t2=settings.t2,
        y_reference=settings.y_reference,
        permutations=settings.permutations,
        normal_type=normal_clusters.labels,
        sample_type=pairs.pair[sample_clusters.labels],
        normal_session=sessions[0],
        sample_session=sessions[1],
        runs=runs,
        blocks=blocks,
        labels=labels,
        percentile=settings.percentile,
        screening=screening,
    )
    clean = clean if together else None
    detection, outlying = side_by_side(
        partial(gate, normal, sample, judged=judged, clean=clean),
        marking,
        rows=len(normal) + len(sample),
    )
    levels = symbol_levels(normal.symbols, settings.level)
    warnings: tuple[Note, ...] = ()
    if set(levels) != {ERROR}:
        # Interrupts are folded into what is left, so that a state that is left out cannot
        # come back by that way.
        rest = select_deciding(normal, levels), select_deciding(sample, levels)
        folded = fold_interrupts(rest[0]), fold_interrupts(rest[1])
        left = clean and (select_deciding(clean[0], levels), select_deciding(clean[1], levels))
        decided = gate(*rest, judged=folded, clean=left) if rest[0].symbols else None
        detection, warnings = apply_levels(detection, decided, levels)
    types = normal_clusters.labels, pairs.pair[sample_clusters.labels]
    known = _apart(normal, sample, types, sessions, settings) if apart else None
    alarm = is_alarm(detection, known)
    if not alarm:
        outlying = confirm_marks(outlying, single[1], types[1], sessions[1])
    # Who became slower may have been lucky with the cpus meanwhile.
    outlying = with_excess(outlying, single if alarm and clean is not None else judged, types)
    return Judgement(normal_clusters, sample_clusters, pairs, outlying, detection, warnings, known)


def _apart(
    normal: VectorTable,
    sample: VectorTable,
    types: tuple[I64, I64],
    sessions: tuple[I64 | None, I64 | None],
    settings: CompareSettings,
) -> Apart:
    """Hold the difference of sets of different times against what recordings differ by."""
    from critpath.detect.machine import beyond_sessions
    from critpath.detect.verdict import Apart

    ours, theirs = (
        np.zeros(len(table), np.int64) if given is None else given
        for table, given in zip((normal, sample), sessions, strict=True)
    )
    slower, beyond = beyond_sessions(
        (normal.total, sample.total), types, (ours, theirs), settings.session_spread,
        settings.alpha,
    )  # fmt: skip
    return Apart(slower, beyond, (len(np.unique(ours)), len(np.unique(theirs))))


# From the executions that stand out to findings and causes.


def explain(
    comparison: Analysis, coder: Coder, settings: CompareSettings, tell: Progress
) -> Analysis:
    """Align executions that stand out with their normal group, and name the causes.

    As many as make the answer better: see `critpath.localize.enough`.
    """
    from critpath.detect.verdict import ERROR
    from critpath.localize.causes import in_order_of_causes
    from critpath.localize.counts import add_meanwhile
    from critpath.localize.segments import select_executions

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
    causes = _with_route(causes, comparison)
    if settings.level:
        # Causes of what the verdict rests on come first.
        level = {test.state: test.level for test in comparison.detection.states}
        told = sorted(causes, key=lambda c: level[findings[c.main].symbol.name] != ERROR)
        causes = tuple(told)
    ordered, causes = in_order_of_causes(findings, causes)
    return replace(
        comparison, aligned=tuple(aligned), findings=ordered, causes=causes, warnings=warnings
    )


@dataclass(frozen=True, eq=False)
class _OneExplained:
    """An execution that was aligned, and what of it tells of causes."""

    aligned: Aligned
    findings: tuple[Finding, ...]
    contexts: tuple[Context, ...]
    charges: tuple[Charge, ...]


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
    from critpath.localize.enough import in_batches, is_settled

    chosen = groups.chosen
    name = f"{VERDICTS[comparison.verdict]}; aligning {plural(len(chosen), 'path')}"
    stage = Stage(tell, name + name_place(4, _STAGES))
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
    from critpath.localize.causes import Explained, group_causes
    from critpath.localize.segments import is_faster, is_throttled
    from critpath.model.vectors import name_family

    comparison = groups.comparison
    executions = [one.aligned.execution for one in explained]
    alone = bool(executions) and comparison.outliers.anomalous[executions].all()
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
        faster=not alone and is_faster(comparison),
        program={name_family(comm) for comm in {*comparison.sample.executions.comm}},
    )


# Of what packets' way makes longer; softirqs also of those of which it is not known what they do.
_OF_PACKETS: Final = {
    (state.name, softirq)
    for state in (State.SOFTIRQ, State.WAIT_SOFTIRQ)
    for softirq in ("", "NET_RX", "NET_TX")
}


def _with_route(causes: tuple[Cause, ...], comparison: Analysis) -> tuple[Cause, ...]:
    """Add to causes that are of the kernel's network work which way packets take now.

    Only where that work takes longer in all: another route alone slows nothing.
    """
    from critpath.detect.comparability import find_routes
    from critpath.documents.base import change

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


def _count_steps(comparison: Analysis, coder: Coder, chosen: list[int]) -> StepCounts:
    """Count what all executions do; those to explain are held against the normal ones like them."""
    from critpath.cluster.types import labels_are_usable, normal_group
    from critpath.localize.counts import count_rivals, count_steps
    from critpath.vectors.table import trips_of

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
    (roles, trips), (_, others) = _of_both(normal, sample, trips_of, coder)
    vectors = comparison.normal_vectors, comparison.sample_vectors
    had = _of_both(normal, sample, count_rivals)
    rivals = {name: (had[0].get(name, 0.0), had[1].get(name, 0.0)) for name in {*had[0], *had[1]}}
    return count_steps(coder.symbols, vectors, roles, (trips, others), groups, rivals)


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
        from critpath.localize.segments import inferred_holders

        self.comparison, self.coder, self.settings = comparison, coder, settings
        self.chosen = chosen
        self.inferred = inferred_holders(comparison.sample)
        homes = comparison.pairs.pair[comparison.sample_clusters.labels]
        self._home = {execution: int(homes[execution]) for execution in chosen}
        self._rows: dict[int, tuple[I64, int]] = {}
        self._aligned: dict[int, Group] = {}
        self._segments: dict[int, Segments] = {}
        if chosen:
            rows = np.unique(np.concatenate([self.rows(execution)[0] for execution in chosen]))
            self.comparison = replace(
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
        from critpath.align.multiple import choose_rows
        from critpath.cluster.types import normal_group

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
        from critpath.align.multiple import Group, align

        normal, sample = self.comparison.normal, self.comparison.sample
        mine = self._path(sample, execution)
        alphabet = len(self.comparison.normal_vectors.symbols)
        home = self._home[execution]
        if self.settings.msa == "add" and home in self._aligned:
            return self._aligned[home].add(*mine)
        rows, _ = self.rows(execution)
        group = [self._path(normal, i) for i in rows.tolist()]
        sequences, durations = [p[0] for p in group], [p[1] for p in group]
        if self.settings.msa == "joint":
            together = [*sequences, mine[0]], [*durations, mine[1]]
            return align(*together, alphabet, method=self.settings.aligner)
        others = [self._path(sample, e)[0] for e, at in self._home.items() if at == home]
        self._aligned[home] = Group(
            sequences, durations, alphabet, others=others, method=self.settings.aligner
        )
        return self._aligned[home].add(*mine)

    def segments(self, normal: int) -> Segments:
        """Return what a normal path is beyond its symbols."""
        from critpath.localize.segments import segments_of

        if normal not in self._segments:
            one = _one(self.comparison.normal, normal)
            self._segments[normal] = segments_of(one.paths, 0)
        return self._segments[normal]

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
    from critpath.localize.columns import column_statistics
    from critpath.localize.counts import charge_steps
    from critpath.localize.findings import find_differences
    from critpath.localize.segments import find_context, segments_of
    from critpath.model import Aligned

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
    )


# How many switches of a set the kernel did not write: one sentence for all its recordings.


def note_repaired_switches(paths: PathSet) -> PathSet:
    """Return a set that says how many of its switches critpath put in.

    Parameters
    ----------
    paths : PathSet
        Of one or several recordings.

    Returns
    -------
    PathSet
        With a warning, or with a note where these are at most 5 % of all switches; the
        same object if there were none.
    """
    # A trace of anybody's may have such a key with anything as its value.
    put = add_counts(paths.environment, lambda entry: entry.switches_put_in)
    written = add_counts(paths.environment, lambda entry: entry.switches_written)
    if not put:
        return paths
    note = notes.repaired_switches(put, put + written)
    if put / (put + written) > COMPARABILITY.lossy:
        return replace(paths, warnings=(*paths.warnings, note))
    executions = replace(paths.executions, notes=(*paths.executions.notes, note))
    return replace(paths, executions=executions)
