"""Evidence that several executions of one type share: a type that is slower as a whole.

One execution among fifteen normal ones needs to be far out to be told from
chance; four that are all a little slower in the same state need not.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator

import numpy as np

from critpath.model import F64, I64, Bool, mid_ranks

_EXACT = 20_000
_SAMPLED = 9_999
_FEWEST = 999
_WORK = 10_000_000  # random numbers, where that does not leave fewer assignments than that
_CHUNK = 1 << 22  # values of a batch of assignments held at once


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
    the data; for more than 1,000 executions fewer, 999 at the least.
    """
    n, m = len(normal), len(sample)
    nothing = np.zeros(normal.shape[1], np.bool_)
    if min(n, m) == 0 or _ways(n + m, m) * alpha < 1:
        return nothing
    shift = sample.mean(axis=0) - normal.mean(axis=0)
    if not (shift >= floor).any():
        return nothing
    pooled = np.concatenate([sample, normal])
    # The order of executions must not matter, not even for the rounding of a mean.
    order = np.lexsort(pooled.T[::-1])
    pooled, in_sample = pooled[order], order < m
    values = np.concatenate([_standard(mid_ranks(pooled)), _standard(_log(pooled))], axis=1)
    observed = values[in_sample].sum(axis=0) - 1e-9 * math.sqrt(n + m)
    # Scores are centred: what the smaller set does not have, the larger one has.
    picks, sign = (m, 1.0) if m <= n else (n, -1.0)
    larger = np.zeros(values.shape[1])
    total = 0
    for batch in _assignments(pooled, picks, max(_FEWEST, math.ceil(2 / alpha))):
        most = (sign * (batch @ values)).max(axis=1)
        larger += (most[:, None] >= observed).sum(axis=0)
        total += len(batch)
    exact = _ways(n + m, m) <= _EXACT
    p = larger / total if exact else (1 + larger) / (1 + total)
    p = p.reshape(2, -1).min(axis=0)
    return np.asarray((p <= alpha) & (shift >= floor), dtype=np.bool_)


def _ways(size: int, picks: int) -> float:
    """Count the assignments; inf where there are more than anybody would count."""
    logarithm = math.lgamma(size + 1) - math.lgamma(picks + 1) - math.lgamma(size - picks + 1)
    return float(math.comb(size, picks)) if logarithm < 100 else math.inf


def _assignments(pooled: F64, picks: int, fewest: int) -> Iterator[F64]:
    """Yield batches of [assignments, executions]: 1 where one is picked."""
    size = len(pooled)
    step = max(1, _CHUNK // size)
    if _ways(size, picks) <= _EXACT:
        every = itertools.combinations(range(size), picks)
        while chosen := list(itertools.islice(every, step)):
            yield _ones(np.array(chosen, np.int64), size)
        return
    digest = hashlib.blake2b(pooled.tobytes(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(digest, "little"))
    draws = max(fewest, min(_SAMPLED, _WORK // size))
    for first in range(0, draws, step):
        keys = rng.random((min(step, draws - first), size))
        # Numbers of 53 bits are not drawn twice.
        limit = np.partition(keys, picks - 1, axis=1)[:, picks - 1 : picks]
        yield (keys <= limit).astype(np.float64)


def _ones(chosen: I64, size: int) -> F64:
    batch = np.zeros((len(chosen), size))
    np.put_along_axis(batch, chosen, 1.0, axis=1)
    return batch


def _log(values: F64) -> F64:
    mean = values.mean(axis=0)
    return np.asarray(np.log1p(values / np.where(mean > 0, mean, 1.0)), dtype=np.float64)


def _standard(values: F64) -> F64:
    centred = values - values.mean(axis=0)
    scale = centred.std(axis=0)
    scaled: F64 = np.divide(centred, scale, out=np.zeros_like(centred), where=scale > 1e-12)
    return scaled
