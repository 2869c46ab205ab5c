"""Two sets of executions, judged: their types, who stands out, whether one is slower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from critpath.cluster import (
    confirm_marks,
    find_outliers,
    find_types,
    labels_are_usable,
    with_excess,
)
from critpath.detect.affected import find_affected, mark_affected
from critpath.detect.coarse import detect
from critpath.detect.comparability import find_blocks, find_runs
from critpath.detect.machine import (
    Trips,
    beyond_sessions,
    find_limit,
    find_queue,
    find_rival,
    find_strangers,
)
from critpath.detect.verdict import (
    ERROR,
    Apart,
    apply_levels,
    is_alarm,
    select_deciding,
    symbol_levels,
)
from critpath.documents.base import change
from critpath.model import CompareSettings
from critpath.processes import do_for_both, side_by_side
from critpath.progress import COMPARING, Progress, name_place
from critpath.schema.kinds import State
from critpath.schema.notes import Note
from critpath.vectors import fold_interrupts, vectors_of

if TYPE_CHECKING:
    from critpath.model import (
        I64,
        Clustering,
        ClusterPairs,
        Detection,
        Outliers,
        PathSet,
        VectorTable,
        Whole,
    )
    from critpath.vectors import Coder


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


def find_runs_and_blocks(
    normal: PathSet, sample: PathSet
) -> tuple[tuple[I64, I64] | None, tuple[I64, I64] | None]:
    """Return the runs and the blocks of sets recorded together."""
    return find_runs(normal, sample), find_blocks(normal, sample)


def leave_out_strangers(
    normal: PathSet, sample: PathSet, coder: Coder, runs: tuple[I64, I64] | None
) -> tuple[VectorTable, VectorTable] | None:
    """Return vectors without the time that strangers had the cpu; None where there are none."""
    strangers = find_strangers(normal, sample, {s.role for s in coder.symbols if s.role}, runs)
    if not strangers and runs is None:
        return None
    ours, theirs = do_for_both(normal, sample, vectors_of, coder, strangers)
    return ours, theirs


def add_rivals(
    judgement: Judgement, normal: PathSet, sample: PathSet, *, newcomers: bool
) -> Judgement:
    """Add who had the cpu, what new clients did, and what a limit did, where that may matter."""
    if judgement.apart is None or not judgement.detection.flagged:
        return judgement
    rival = find_rival(normal, sample)
    detection = judgement.detection
    limit = find_limit(rival, detection, throttled=is_throttled(normal, sample))
    queue = find_queue(detection) if newcomers else ()
    return _settle_marks(
        replace(
            judgement,
            apart=replace(judgement.apart, rival=rival),
            detection=change(detection, signs=[*detection.signs, *limit, *queue]),
        )
    )


def _settle_marks(judgement: Judgement) -> Judgement:
    """Mark those that have the change, where the program became slower."""
    if not is_alarm(judgement.detection, judgement.apart):
        return judgement
    return replace(judgement, outliers=mark_affected(judgement.outliers))


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
    trips: Sequence[tuple[Sequence[str], Whole]] = (),
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
    single = judged if clean is None else (fold_interrupts(clean[0]), fold_interrupts(clean[1]))
    marking = partial(
        find_outliers, single[0], normal_clusters, single[1], sample_clusters, pairs,
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
        trips=Trips(trips[0][0], *(counts for _, counts in trips)) if trips else None,
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
    if detection.flagged and screening:
        outlying = find_affected(outlying, single, judged, types, labels, in_turns=together)
    return _settle_marks(
        Judgement(normal_clusters, sample_clusters, pairs, outlying, detection, warnings, known)
    )


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
