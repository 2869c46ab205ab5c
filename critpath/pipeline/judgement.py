"""From the vectors of two sets to types, outliers and the coarse detection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from critpath.model import (
        I64,
        Clustering,
        ClusterPairs,
        CompareSettings,
        Detection,
        Outliers,
        VectorTable,
    )


@dataclass(frozen=True, eq=False)
class Judgement:
    """What is decided from the vectors alone, before anything is aligned."""

    normal_clusters: Clustering
    sample_clusters: Clustering
    pairs: ClusterPairs
    outliers: Outliers
    detection: Detection
    warnings: tuple[str, ...] = ()


def judge(
    normal: VectorTable,
    sample: VectorTable,
    settings: CompareSettings,
    *,
    labels: tuple[Sequence[str], Sequence[str]],
    sessions: tuple[I64 | None, I64 | None],
    progress: Callable[[str], None] | None = None,
    screening: bool = True,
) -> Judgement:
    """Find the types of two sets, their outliers, and whether the sample is slower.

    Parameters
    ----------
    normal, sample : VectorTable
        Over the same symbols; at least one execution each.
    settings : CompareSettings
    labels : (sequence of str, sequence of str)
        What the program says of the type of every normal and sample execution, ""
        where it says nothing.
    sessions : (int64 array or None, int64 array or None)
        Recording session of every normal and sample execution.
    progress : callable or None
        Told what is being done.
    screening : bool
        Find out how often the paper's rules alarm.
    """
    from critpath.cluster.outliers import outliers
    from critpath.cluster.types import find_types, usable_labels
    from critpath.detect.coarse import detect
    from critpath.detect.levels import ERROR, deciding, levels_of, with_levels
    from critpath.vectors.fold import fold_interrupts

    tell = progress or (lambda _: None)
    tell("clustering")
    labelled = not usable_labels(*labels)
    normal_clusters, sample_clusters, pairs = find_types(
        normal, sample, *(labels if labelled else ((), ())), method=settings.cluster_method
    )
    judged = fold_interrupts(normal), fold_interrupts(sample)
    outlying = outliers(
        judged[0],
        normal_clusters,
        judged[1],
        sample_clusters,
        pairs,
        k=settings.outlier_k,
        level=settings.outlier_level,
        floor=settings.floor,
        types_known=labelled,
    )
    tell("testing")
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
        screening=screening,
    )
    detection = gate(normal, sample, judged=judged)
    levels = levels_of(normal.symbols, settings.level)
    if set(levels) == {ERROR}:
        return Judgement(normal_clusters, sample_clusters, pairs, outlying, detection)
    # Interrupts are folded into what is left, so that a state that is left out cannot
    # come back by that way.
    rest = deciding(normal, levels), deciding(sample, levels)
    folded = fold_interrupts(rest[0]), fold_interrupts(rest[1])
    decided = gate(*rest, judged=folded) if rest[0].symbols else None
    detection, warnings = with_levels(detection, decided, levels)
    return Judgement(normal_clusters, sample_clusters, pairs, outlying, detection, warnings)
