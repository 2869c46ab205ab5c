"""What is explained, and what its segments are."""

from __future__ import annotations

import numpy as np

from critpath.localize.segments import Segments
from critpath.model import Comparison, CriticalPaths, PathSet
from critpath.model.recording import QUOTA_HELD


def to_explain(comparison: Comparison, limit: int) -> tuple[list[int], int]:
    """Return the executions to align, most excess first, and how many are left out.

    Above the limit those are taken that are evenly spread over the order of the excess:
    the slowest alone would show what is rare, not what most have in common.
    Executions that overlap a loss are none: what it tore out of a path is no cause.
    Where the sets differ but no execution stands out alone, the slowest against
    their own type show what the difference is made of.
    """
    outliers = comparison.outliers
    whole = ~comparison.sample.lossy
    marked = np.flatnonzero(outliers.anomalous & whole)
    if not len(marked) and comparison.detection.flagged:
        marked = np.flatnonzero((outliers.excess > 0) & whole)
    order = marked[np.argsort(-outliers.excess[marked], kind="stable")].tolist()
    if len(order) <= limit:
        return order, 0
    spread = np.linspace(0, len(order) - 1, limit).round().astype(np.int64)
    return [order[i] for i in spread.tolist()], len(order) - limit


def held_back(normal: PathSet, sample: PathSet) -> bool:
    """Tell whether a CPU quota held somebody back in the sample, and nobody in the normal set."""
    normal_held, sample_held = (
        any(QUOTA_HELD in warning for warning in paths.warnings) for paths in (normal, sample)
    )
    return sample_held and not normal_held


def rows_of(paths: CriticalPaths, index: int) -> slice:
    """Return the segments of one path."""
    return slice(int(paths.start[index]), int(paths.start[index + 1]))


def segments_of(paths: CriticalPaths, index: int) -> Segments:
    """Return what the segments of one path are beyond their symbols."""
    rows = rows_of(paths, index)
    return Segments(
        begin=paths.begin[rows],
        end=paths.end[rows],
        tid=paths.tid[rows],
        comm=tuple(paths.strings[c] for c in paths.comm[rows].tolist()),
        detail=tuple(paths.strings[c] for c in paths.detail[rows].tolist()),
    )
