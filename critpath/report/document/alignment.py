"""The parts of the document that hold matrices: alignments and the plane of counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from critpath.model import F64, I64, Aligned, Analysis, State, VectorTable


def aligned_document(comparison: Analysis, aligned: Aligned) -> dict[str, Any]:
    """Build the document of one anomalous execution with its normal group.

    Parameters
    ----------
    comparison : Analysis
        Where the executions and their paths are.
    aligned : Aligned
        The alignment, the anomalous execution in its last row.

    Returns
    -------
    dict
        ``rows`` hold symbol codes (-1 for a gap) and durations per column,
        ``statistics`` one value per column, ``segments`` the anomalous row's
        segments in order, each with its column.
    """
    alignment = aligned.alignment
    symbols, durations = alignment.symbols, alignment.column_durations
    normal, sample = comparison.normal.executions, comparison.sample.executions
    members = [("normal", i, normal.id[i]) for i in aligned.normals]
    members.append(("sample", aligned.execution, sample.id[aligned.execution]))
    statistics = aligned.statistics
    return {
        "execution": sample.id[aligned.execution],
        "position": int(aligned.execution),
        "columns": int(alignment.rows.shape[1]),
        "left_out": int(aligned.left_out),
        "excess": _finite(aligned.excess),
        "unexplained": _finite(aligned.unexplained),
        "score": _finite(alignment.score),
        "tree": alignment.tree,
        "rows": [
            {
                "set": which,
                "position": int(position),
                "id": name,
                "symbols": symbols[row].tolist(),
                "durations": durations[row].tolist(),
            }
            for row, (which, position, name) in enumerate(members)
        ],
        "loops": [
            {
                "first": loop.first,
                "last": loop.last,
                "period": loop.period,
                "iterations": loop.iterations.tolist(),
            }
            for loop in alignment.loops
        ],
        "statistics": {
            "probability": _finites(statistics.probability),
            "normal_symbol": statistics.normal_symbol.tolist(),
            "normal_probability": _finites(statistics.normal_probability),
            "mean": _finites(statistics.mean),
            "std": _finites(statistics.std),
            "contribution": statistics.contribution.tolist(),
            "abnormal_state": statistics.abnormal_state.tolist(),
            "abnormal_duration": statistics.abnormal_duration.tolist(),
            "missing": statistics.missing.tolist(),
            "p_structure": _finites(statistics.p_structure),
            "p_duration": _finites(statistics.p_duration),
            "abnormal": statistics.abnormal.tolist(),
        },
        "note": statistics.note,
        "segments": _segments(comparison, aligned),
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _finites(values: F64) -> list[float | None]:
    return [_finite(float(value)) for value in values]


def _segments(comparison: Analysis, aligned: Aligned) -> list[dict[str, Any]]:
    alignment = aligned.alignment
    # Stored paths have this one in memory since it was aligned.
    paths = comparison.sample.paths.take(np.array([aligned.execution], np.int64))
    durations = alignment.durations[-1]
    segment = _segment_of(durations, paths.begin, paths.end)
    begin = int(paths.begin[0]) if len(paths.begin) else 0
    ends = begin + np.cumsum(durations)
    result = []
    for column in np.flatnonzero(alignment.rows[-1] >= 0):
        item = int(alignment.rows[-1, column])
        at = int(segment[item])
        result.append(
            {
                "column": int(column),
                "begin": int(ends[item] - durations[item]),
                "end": int(ends[item]),
                "tid": int(paths.tid[at]),
                "cpu": int(paths.cpu[at]),
                "host": int(paths.host[at]),
                "comm": paths.strings[paths.comm[at]],
                "state": State(int(paths.state[at])).name,
                "detail": paths.strings[paths.detail[at]],
            }
        )
    return result


def _segment_of(durations: I64, begin: I64, end: I64) -> I64:
    """Return the path segment that every item of the aligned row comes from.

    The aligner may have joined neighbouring segments of one symbol; since both
    tile the same window, an item is where most of its time is.
    """
    if len(durations) == len(begin):
        return np.arange(len(begin), dtype=np.int64)
    ends = begin[0] + np.cumsum(durations)
    result = np.zeros(len(durations), np.int64)
    for item, (low, high) in enumerate(zip(ends - durations, ends, strict=True)):
        overlap = np.minimum(end, high) - np.maximum(begin, low)
        result[item] = int(np.argmax(overlap))
    return result


def plane_of_counts(normal: VectorTable, sample: VectorTable) -> dict[str, Any] | None:
    """Project the count vectors of both sets on their two widest directions.

    Principal components of ``2 sqrt(n + 3/8)`` (Anscombe's transform: the spread of
    a count no longer grows with it), by singular value decomposition of the pooled,
    centred table.  The sign of a direction is that of its largest loading.

    Parameters
    ----------
    normal, sample : VectorTable
        Counts [executions, symbols] over one alphabet.

    Returns
    -------
    dict or None
        ``normal`` and ``sample``: [x, y] per execution, to four decimals;
        ``explained``: share of the variance on x and on y.  None without counts.
    """
    width = max(normal.structure.shape[1], sample.structure.shape[1])
    tables = [t.structure for t in (normal, sample) if len(t) and t.structure.shape[1] == width]
    if not tables or not width:
        return None
    values = 2.0 * np.sqrt(np.concatenate(tables) + 0.375)
    values -= values.mean(axis=0)
    _, spread, directions = np.linalg.svd(values, full_matrices=False)
    points = np.zeros((len(values), 2))
    for axis, direction in enumerate(directions[:2]):
        # Rounded, so that two equally large loadings do not trade places by the last bit.
        lead = int(np.argmax(np.round(np.abs(direction), 6)))
        points[:, axis] = values @ direction * (1.0 if direction[lead] >= 0 else -1.0)
    points = np.round(points, 4) + 0.0  # -0.0 would print differently from 0.0
    energy = spread**2
    total = float(energy.sum())
    explained = [float(e) / total if total > 0 else 0.0 for e in [*energy[:2], 0.0, 0.0][:2]]
    split = len(normal) if normal.structure.shape[1] == width else 0
    return {
        "normal": points[:split].tolist(),
        "sample": points[split:].tolist(),
        "explained": [round(share, 4) for share in explained],
    }
