"""Two sets of executions, judged: their types, who stands out, whether one is slower."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, structs

from critpath.cluster import (
    confirm_marks,
    find_outliers,
    find_types,
    labels_are_usable,
    with_excess,
)
from critpath.detect.affected import find_affected, mark_affected
from critpath.detect.coarse import detect, name_types
from critpath.detect.comparability import find_blocks, find_runs, recorded_apart
from critpath.detect.intruders import Intruder, find_intruder
from critpath.detect.machine import (
    Trips,
    beyond_sessions,
    drop_crowded_queues,
    find_blocked_loops,
    find_crowded,
    find_limit,
    find_queue,
    find_rival,
    find_signs,
    find_strangers,
)
from critpath.detect.verdict import (
    ERROR,
    Apart,
    apply_levels,
    is_alarm,
    is_only_waiting,
    is_unconfirmed,
    may_be_faster,
    select_deciding,
    symbol_levels,
)
from critpath.detect.weather import Sides, Strangers, find_weather, list_kinds, name_rivals
from critpath.documents.base import change
from critpath.model import CompareSettings
from critpath.processes import side_by_side
from critpath.progress import COMPARING, Progress, name_place
from critpath.records import dataclass
from critpath.schema.kinds import State
from critpath.schema.notes import Note
from critpath.vectors import fold_interrupts, trips_of_both

if TYPE_CHECKING:
    from critpath.documents import SignEntry
    from critpath.model import (
        I64,
        Clustering,
        ClusterPairs,
        Detection,
        Outliers,
        PathSet,
        VectorTable,
    )
    from critpath.model.details import Detail
    from critpath.vectors import Coder


class Judgement(Struct, frozen=True, eq=False):
    """What is decided from the vectors alone, before anything is aligned."""

    normal_clusters: Clustering
    sample_clusters: Clustering
    pairs: ClusterPairs
    outliers: Outliers
    detection: Detection
    warnings: tuple[Note, ...] = ()
    apart: Apart | None = None
    mark_with_strangers: Callable[[], Outliers] | None = None

    @property
    def types(self) -> I64:
        """Of the sample's executions, as paired with normal ones."""
        return self.pairs.pair[self.sample_clusters.labels]


def judge_sets(
    sets: tuple[PathSet, PathSet],
    tables: tuple[VectorTable, VectorTable],
    coder: Coder,
    settings: CompareSettings,
    *,
    newcomers: bool,
    progress: Progress | None = None,
) -> Judgement:
    """Judge two sets by all that is known of them: whether the sample is slower, or faster.

    Parameters
    ----------
    sets, tables : tuple
        The normal set and the sample, and their vectors.
    coder : Coder
        Of these.
    settings : CompareSettings
    newcomers : bool
        New clients asked after, which are left out.
    progress : callable, optional
        Is shown what is being done.
    """
    found = _judge_one_way(sets, tables, coder, settings, progress, newcomers=newcomers)
    faster = may_be_faster(found.detection, apart=found.apart is not None)
    if faster:
        # Faster is only what would be slower if the sets were exchanged.
        back = _judge_one_way(sets[::-1], tables[::-1], coder, settings, None, newcomers=newcomers)
        faster = is_alarm(back.detection, back.apart)
    return structs.replace(found, detection=change(found.detection, faster=faster))


def _judge_one_way(
    sets: tuple[PathSet, PathSet],
    tables: tuple[VectorTable, VectorTable],
    coder: Coder,
    settings: CompareSettings,
    progress: Progress | None,
    *,
    newcomers: bool,
) -> Judgement:
    normal, sample = sets
    apart = recorded_apart(normal, sample)
    runs, blocks = (None, None) if apart else (find_runs(*sets), find_blocks(*sets))
    trips = Trips(*trips_of_both(normal, sample, coder))
    given = _Given(sets, tables, coder, trips, runs)
    # Who came with one of two recordings of different times came with the time.
    clean = given.own if apart else leave_out_strangers(sets, tables, coder, runs)
    judgement = judge(
        *tables, settings,
        labels=(normal.executions.label, sample.executions.label),
        sessions=(normal.session, sample.session), runs=runs, blocks=blocks,
        apart=settings.sessions and apart, together=not apart,
        clean=clean, progress=progress, trips=trips,
    )  # fmt: skip
    return add_rivals(judgement, given, newcomers=newcomers)


def leave_out_strangers(
    sets: tuple[PathSet, PathSet],
    tables: tuple[VectorTable, VectorTable],
    coder: Coder,
    runs: tuple[I64, I64] | None,
) -> tuple[VectorTable, VectorTable] | None:
    """Return vectors without the time that strangers had the cpu; None where there are none."""
    strangers = find_strangers(*sets, {s.role for s in coder.symbols if s.role}, runs)
    if not strangers and runs is None:
        return None
    return _without(sets, tables, coder, lambda of: of.rival in strangers)


def _without(
    sets: tuple[PathSet, PathSet],
    tables: tuple[VectorTable, VectorTable],
    coder: Coder,
    is_stranger: Callable[[Detail], bool],
) -> tuple[VectorTable, VectorTable]:
    works = (
        partial(coder.time_without, of, table, is_stranger)
        for of, table in zip(sets, tables, strict=True)
    )
    durations = side_by_side(*works, rows=sum(map(len, sets)))
    ours, theirs = (
        table if time is None else replace(table, durations=time)
        for table, time in zip(tables, durations, strict=True)
    )
    return ours, theirs


@dataclass(frozen=True, eq=False)
class _Given:
    """Two sets, their vectors, and what is asked of them once a difference is known."""

    sets: tuple[PathSet, PathSet]
    tables: tuple[VectorTable, VectorTable]
    coder: Coder
    trips: Trips
    runs: tuple[I64, I64] | None

    @cached_property
    def strangers(self) -> Strangers:
        """Who is not of the program."""
        return Strangers.of(*self.sets, self.tables[0])

    @cached_property
    def own(self) -> tuple[VectorTable, VectorTable]:
        """Both without the time that strangers had the cpu."""
        return _without(self.sets, self.tables, self.coder, self.strangers.has)

    @property
    def labels(self) -> tuple[Sequence[str], Sequence[str]]:
        """What each execution is; of no kind where that tells too little."""
        known = tuple(of.executions.label for of in self.sets)
        usable = labels_are_usable(*known)
        ours, theirs = known if usable else (("",) * len(of) for of in self.sets)
        return ours, theirs

    def find_intruder(self, floor: float) -> Intruder | None:
        """Return the stranger that came with the sample."""
        kinds = list_kinds(self.labels)
        return find_intruder(self.tables, kinds, self.sets, self.strangers, self.runs, floor)

    def find_held_up(self) -> dict[str, float]:
        """Return how many times as long strangers made executions of each kind, by waits."""
        found = {}
        for label, *rows in list_kinds(self.labels):
            whole, own = (
                [float(t.total[of].mean()) for t, of in zip(tables, rows, strict=True)]
                for tables in (self.tables, self.own)
            )
            more = (whole[1] - own[1]) - (whole[0] - own[0])
            found[label] = 1 + max(more, 0.0) / max(whole[0], 1.0)
        return found


def add_rivals(judgement: Judgement, given: _Given, *, newcomers: bool) -> Judgement:
    """Add who had the cpu, what new clients did, and what a limit did, where that may matter."""
    detection = judgement.detection
    came = None if detection.gate else given.find_intruder(detection.floor_share)
    if came is not None and not came.slower:
        detection, came = change(detection, came=came.weather), None
        judgement = structs.replace(judgement, detection=detection)
    if detection.signs:
        detection = change(detection, signs=drop_crowded_queues(*given.sets, detection))
        judgement = structs.replace(judgement, detection=detection)
    if judgement.apart is None:
        # A stranger's burst may have hit one of two sets that took turns: then no run confirms it.
        # One that comes with every run of one of them is no work of the program either.
        if detection.flagged:
            hit = is_only_waiting(detection, came.weather.effect if came else 0.0)
        else:
            hit = came is not None or is_unconfirmed(detection)
        hit = hit and detection.gate is None
        return _add_weather(judgement, given, came, in_turns=True) if hit else judgement
    if detection.flagged:
        rival = find_rival(*given.sets)
        limit = find_limit(rival, detection, throttled=is_throttled(*given.sets))
        queue = find_queue(detection) if newcomers else ()
        queue += find_blocked_loops(*given.sets, detection)
        judgement = structs.replace(
            judgement,
            apart=structs.replace(judgement.apart, rival=rival),
            detection=change(detection, signs=[*detection.signs, *limit, *queue]),
        )
        if limit or queue or (detection.signs and came is None):
            return _settle_marks(judgement)
    if detection.flagged or came is not None:
        judgement = _add_weather(judgement, given, came, in_turns=False)
    return _settle_marks(judgement)


def _settle_marks(judgement: Judgement) -> Judgement:
    """Mark those that have the change, where the program became slower."""
    if not is_alarm(judgement.detection, judgement.apart):
        return judgement
    return structs.replace(judgement, outliers=mark_affected(judgement.outliers))


def _add_weather(
    judgement: Judgement, given: _Given, came: Intruder | None, *, in_turns: bool
) -> Judgement:
    """Add what strangers did, or a sign that the program crowds itself where they did not.

    Whom strangers hit is marked, which else is no single execution's doing.  In turns the program
    is not in question: its work has been compared.
    """
    detection = judgement.detection
    signs = () if in_turns else _find_own_signs(judgement, given, came)
    if signs:
        return structs.replace(judgement, detection=change(detection, signs=[*signs]))
    mark = judgement.mark_with_strangers
    outliers = judgement.outliers
    if came is not None:
        weather = came.weather
        detection = change(detection, signs=[])  # of what it took
        if in_turns or weather.kinds:
            marked = mark() if mark else outliers
            unknown = np.full(len(came.hit), np.nan)
            outliers = replace(marked, anomalous=came.hit, posterior=unknown, affected=())
    else:
        found = find_weather(Sides(*given.tables, given.own, given.labels), detection.floor_share)
        if found is None:
            return judgement
        weather = name_rivals(found, given.sets, given.strangers)
        # Where all were hit, who was hit more is chance.
        outliers = mark() if mark and weather.kinds else outliers
    return structs.replace(
        judgement, detection=change(detection, weather=weather), outliers=outliers
    )


def _find_own_signs(
    judgement: Judgement, given: _Given, came: Intruder | None
) -> tuple[SignEntry, ...]:
    """Return signs of the program in what is left without the time that strangers had the cpu."""
    detection, own = judgement.detection, given.own
    strata = judgement.normal_clusters.labels, judgement.types
    normal, sample = (of.executions.label for of in given.sets)
    names = name_types(strata[0], (normal, sample))
    # What a state lasts longer is held against what was added without strangers.
    significant = np.array([s.p_value <= detection.alpha for s in detection.states[:-1]], np.bool_)
    floor = detection.floor_share
    share = floor * given.tables[0].total.mean() / max(own[0].total.mean(), 1.0)
    held_up = given.find_held_up() if came is not None and came.slower else None
    signs = find_signs(*own, strata, names, significant, share, given.trips, held_up)
    return signs or find_crowded(own, strata, names, floor, held_up)


def _fold_clean(
    clean: tuple[VectorTable, VectorTable],
    whole: tuple[VectorTable, VectorTable],
    judged: tuple[VectorTable, VectorTable],
) -> tuple[VectorTable, VectorTable]:
    """Return tables without strangers, folded; the folded whole where they are the whole."""
    ours, theirs = (
        folded if of is all_ else fold_interrupts(of)
        for of, all_, folded in zip(clean, whole, judged, strict=True)
    )
    return ours, theirs


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
    explained: bool = True,
    trips: Trips | None = None,
) -> Judgement:
    """Find the types of two sets, their outliers, and whether the sample is slower.

    ``clean`` is without the time that strangers had the cpu, which is no single execution's doing;
    in the sets as a whole it counts unless they were recorded together.  ``trips`` is how often
    the executions of either set asked whom.
    """
    tell = progress or (lambda _: None)
    tell("finding kinds" + name_place(1, COMPARING))
    labelled = labels_are_usable(*labels)
    normal_clusters, sample_clusters, pairs = find_types(
        normal, sample, *(labels if labelled else ((), ())), method=settings.cluster_method
    )
    judged = fold_interrupts(normal), fold_interrupts(sample)
    single = judged if clean is None else _fold_clean(clean, (normal, sample), judged)

    def mark(of: tuple[VectorTable, VectorTable]) -> Outliers:
        return find_outliers(
            of[0], normal_clusters, of[1], sample_clusters, pairs,
            k=settings.outlier_k, level=settings.outlier_level, floor=settings.floor,
            types_known=labelled,
        )  # fmt: skip

    tell("testing differences" + name_place(2, COMPARING))
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
        explained=explained,
        trips=trips,
    )
    own, clean = clean, clean if together else None
    detection, outlying = side_by_side(
        partial(gate, normal, sample, judged=judged, clean=clean, own=own),
        partial(mark, single),
        rows=len(normal) + len(sample),
    )
    levels = symbol_levels(normal.symbols, settings.level)
    warnings: tuple[Note, ...] = ()
    if set(levels) != {ERROR}:
        # Interrupts are folded into what is left, so that a state that is left out cannot
        # come back by that way.
        rest = select_deciding(normal, levels), select_deciding(sample, levels)
        folded = fold_interrupts(rest[0]), fold_interrupts(rest[1])
        left = own and (select_deciding(own[0], levels), select_deciding(own[1], levels))
        decided = (
            gate(*rest, judged=folded, clean=left if together else None, own=left)
            if rest[0].symbols
            else None
        )
        detection, warnings = apply_levels(detection, decided, levels)
    types = normal_clusters.labels, pairs.pair[sample_clusters.labels]
    known = _apart(normal, sample, types, sessions, settings) if apart else None
    alarm = is_alarm(detection, known)
    if not alarm:
        outlying = confirm_marks(outlying, single[1], types[1], sessions[1])
    # Who became slower may have been lucky with the cpus meanwhile.
    outlying = with_excess(outlying, single if alarm and clean is not None else judged, types)
    if detection.flagged and screening:
        outlying = find_affected(outlying, single, judged, types, labels, in_turns=together)
    judgement = Judgement(
        *(normal_clusters, sample_clusters, pairs, outlying, detection, warnings, known),
        mark_with_strangers=lambda: with_excess(mark(judged), judged, types),
    )
    return _settle_marks(judgement)


def _apart(
    normal: VectorTable,
    sample: VectorTable,
    types: tuple[I64, I64],
    sessions: tuple[I64 | None, I64 | None],
    settings: CompareSettings,
) -> Apart:
    """Hold the difference of sets of different times against what recordings differ by."""
    ours, theirs = (
        np.zeros(len(table), np.int64) if given is None else given
        for table, given in zip((normal, sample), sessions, strict=True)
    )
    slower, beyond = beyond_sessions(
        (normal.total, sample.total), types, (ours, theirs), settings.session_spread,
        settings.alpha,
    )  # fmt: skip
    return Apart(slower, beyond, (len(np.unique(ours)), len(np.unique(theirs))))


# How many switches of a set the kernel did not write: one sentence for all its recordings.


def is_throttled(normal: PathSet, sample: PathSet) -> bool:
    """Tell whether a CPU quota throttled a thread in the sample, and none in the normal set.

    Where the recording tells when, the paths say so themselves (``WAIT_QUOTA``), and who had
    the cpu is not in doubt.
    """
    if normal.quota_held or not sample.quota_held:
        return False
    return not any(State.WAIT_QUOTA in paths.state for paths in sample.paths.chunks())
