"""Effect sizes that outliers do not move: how often slower, and by what factor typically."""

from __future__ import annotations

import numpy as np

from critpath.model import F64, I64

_MOST = 500  # executions of a type a side, for the ratio of all pairs


def ordinal_effects(
    normal: I64, sample: I64, normal_stratum: I64, sample_stratum: I64
) -> tuple[F64, F64]:
    """Compute Cliff's delta and the typical ratio of every column.

    Parameters
    ----------
    normal : int64 [n, columns]
    sample : int64 [m, columns]
        Durations (ns).
    normal_stratum, sample_stratum : int64
        Execution types; executions are compared within theirs, types weighted as in the
        sample.

    Returns
    -------
    delta : float64 [columns]
        Share of the pairs in which the sample's is the longer, less the share in which
        the normal one's is (Cliff 1993): -1 to 1; 0 where no type is in both sets.
    ratio : float64 [columns]
        Hodges and Lehmann's (1963) estimate on logarithms: the median of sample over
        normal duration over all pairs; NaN where half of a type's durations are 0.
        Of types with more than 500 executions a side as many are taken, evenly over
        their order.
    """
    columns = normal.shape[1]
    delta, log, weight = np.zeros(columns), np.zeros(columns), 0.0
    for s in np.unique(sample_stratum):
        x, y = normal[normal_stratum == s], sample[sample_stratum == s]
        if not len(x):
            continue
        weight += len(y)
        x, y = np.sort(x, axis=0), np.sort(y, axis=0)
        for i in range(columns):
            below = np.searchsorted(x[:, i], y[:, i], "left").sum()
            above = len(x) * len(y) - np.searchsorted(x[:, i], y[:, i], "right").sum()
            delta[i] += len(y) * (below - above) / (len(x) * len(y))
            log[i] += len(y) * _typical(x[:, i], y[:, i])
    weight = max(weight, 1.0)
    return delta / weight, np.exp(log / weight)


def _typical(x: I64, y: I64) -> float:
    """Median logarithm of y over x, of all pairs; NaN where that is undefined."""
    if 2 * np.count_nonzero(x) <= len(x) or 2 * np.count_nonzero(y) <= len(y):
        return float("nan")
    few = [v[np.linspace(0, len(v) - 1, min(len(v), _MOST)).astype(np.int64)] for v in (x, y)]
    with np.errstate(divide="ignore"):
        logs = [np.log(v.astype(np.float64)) for v in few]
        # A duration of 0 is below, and above, whatever it is compared with.
        pairs = np.where(
            np.isneginf(logs[1])[:, None],
            -np.inf,
            np.where(np.isneginf(logs[0]), np.inf, 0.0),
        )
    finite = [np.where(np.isneginf(v), 0.0, v) for v in logs]
    middle = float(np.median(pairs + finite[1][:, None] - finite[0]))
    return middle if np.isfinite(middle) else float("nan")
