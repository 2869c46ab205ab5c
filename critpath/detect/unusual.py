"""One number per execution: how unlike the others of its type it is."""

from __future__ import annotations

import numpy as np

from critpath.model import F64, I64, VectorTable

_SPREAD = 1.4826  # median absolute deviation of a normal distribution, to its sd
_LEAST = 0.05  # spread that is never believed to be less: share of the median total, or of a log
_OFFSET = 0.02  # added before taking logs: share of the type's median total
_SCALE = 1_000_000  # the score is kept in integers, like the durations it stands beside


def unusual(
    normal: VectorTable, sample: VectorTable, normal_type: I64, sample_type: I64
) -> tuple[I64, I64]:
    """Score every execution against all others of its type, whichever set they are in.

    A fault adds time in some state, and no single state's test knows in which.  Per
    state, and for the total, an execution has two robust z: of its duration and of
    the logarithm of it.  Their product is large only where the excess is large both
    absolutely and relative to what is usual; the score is the root of the sum.

    Medians and deviations are of normal and sample executions together: both sets
    are treated alike, so that under exchangeability the permutation test is exact,
    and a fault in less than half of them does not move its own yardstick.

    Parameters
    ----------
    normal, sample : VectorTable
        Over the same symbols.
    normal_type, sample_type : int64
        Type of every execution, from 0.

    Returns
    -------
    (int64 [normal], int64 [sample])
        Scores in millionths.
    """
    table = np.concatenate(
        [
            np.column_stack([normal.durations, normal.total]),
            np.column_stack([sample.durations, sample.total]),
        ]
    ).astype(np.float64)
    kind = np.concatenate([normal_type, sample_type])
    score = np.zeros(len(table))
    for each in np.unique(kind):
        score[kind == each] = _score(table[kind == each])
    rounded = np.rint(score * _SCALE).astype(np.int64)
    return rounded[: len(normal)], rounded[len(normal) :]


def _score(values: F64) -> F64:
    middle = np.median(values[:, -1])
    least = max(_LEAST * float(middle), 1.0)
    linear = _robust_z(values, least)
    logs = _robust_z(np.log(values + max(_OFFSET * float(middle), 1.0)), _LEAST)
    return np.asarray(np.sqrt((linear * logs).sum(axis=1)), dtype=np.float64)


def _robust_z(values: F64, least: float) -> F64:
    """Positive deviation from the median, in robust standard deviations."""
    middle = np.median(values, axis=0)
    spread = _SPREAD * np.median(np.abs(values - middle), axis=0)
    return np.asarray(np.maximum((values - middle) / np.hypot(spread, least), 0.0))
