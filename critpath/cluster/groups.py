"""Evidence that several executions of one type share: a type that is slower as a whole.

One execution among fifteen normal ones needs to be far out to be told from
chance; four that are all a little slower in the same state need not.
"""

from __future__ import annotations

import hashlib
import itertools
import math

import numpy as np

from critpath.model import F64, Bool

_EXACT = 20_000
_SAMPLED = 9_999
_CHUNK = 1_000


def shifted_columns(normal: F64, sample: F64, *, alpha: float, floor: float) -> Bool:
    """Test every column of one type for a shift upwards, all columns together.

    Parameters
    ----------
    normal : float64 [n, columns]
    sample : float64 [m, columns]
        Durations (ns) of the executions of one type.
    alpha : float
        Level of the test over all columns.
    floor : float
        Least difference of means (ns).

    Returns
    -------
    bool [columns]
        All false where the sets are too small to reach ``alpha``.

    Notes
    -----
    Westfall and Young's max-T permutation test (1993) of the group sums of ranks
    and of ``log(1 + x / mean)``; every assignment of executions to the sets is
    counted where there are at most 20,000, else 9,999 drawn with a seed made of
    the data.
    """
    n, m = len(normal), len(sample)
    nothing = np.zeros(normal.shape[1], np.bool_)
    if min(n, m) == 0 or math.comb(n + m, m) * alpha < 1:
        return nothing
    pooled = np.concatenate([sample, normal])
    values = np.concatenate([_standard(_ranks(pooled)), _standard(_log(pooled))], axis=1)
    observed = values[:m].sum(axis=0) - 1e-9
    larger = np.zeros(values.shape[1])
    total = 0
    for chosen in _assignments(pooled, m):
        most = values[chosen].sum(axis=1).max(axis=1)
        larger += (most[:, None] >= observed).sum(axis=0)
        total += len(chosen)
    exact = math.comb(n + m, m) <= _EXACT
    p = larger / total if exact else (1 + larger) / (1 + total)
    p = p.reshape(2, -1).min(axis=0)
    shift = sample.mean(axis=0) - normal.mean(axis=0)
    return np.asarray((p <= alpha) & (shift >= floor), dtype=np.bool_)


def _assignments(pooled: F64, m: int) -> list[np.ndarray[tuple[int, int], np.dtype[np.int64]]]:
    """Return chunks of [assignments, m] positions that take the sample's place."""
    size = len(pooled)
    if math.comb(size, m) <= _EXACT:
        every = np.array(list(itertools.combinations(range(size), m)), np.int64)
        return np.array_split(every, max(1, len(every) // _CHUNK))
    digest = hashlib.blake2b(np.sort(pooled, axis=0).tobytes(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(digest, "little"))
    drawn = np.argsort(rng.random((_SAMPLED, size)), axis=1)[:, :m]
    return np.array_split(drawn, math.ceil(_SAMPLED / _CHUNK))


def _ranks(values: F64) -> F64:
    from scipy.stats import rankdata  # noqa: PLC0415 - takes half a second to import

    return np.asarray(rankdata(values, axis=0), dtype=np.float64)


def _log(values: F64) -> F64:
    mean = values.mean(axis=0)
    return np.asarray(np.log1p(values / np.where(mean > 0, mean, 1.0)), dtype=np.float64)


def _standard(values: F64) -> F64:
    centred = values - values.mean(axis=0)
    scale = centred.std(axis=0)
    scaled: F64 = np.divide(centred, scale, out=np.zeros_like(centred), where=scale > 1e-12)
    return scaled
