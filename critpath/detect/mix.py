"""Does the sample have another mix of execution types?  A finding, not a slow-down."""

from __future__ import annotations

import hashlib

import numpy as np

from critpath.model import F64, I64

_PERMUTATIONS = 9_999


def mix_shift(normal_type: I64, sample_type: I64) -> float:
    """Test whether both sets have the same shares of types.

    Parameters
    ----------
    normal_type, sample_type : int64
        Type of every execution, from 0.

    Returns
    -------
    float
        Permutation p of Pearson's chi-square (9,999 assignments, seeded by the
        counts); 1 if a set is empty or there is one type.
    """
    types = int(max(normal_type.max(initial=-1), sample_type.max(initial=-1))) + 1
    normal = np.bincount(normal_type, minlength=types)
    sample = np.bincount(sample_type, minlength=types)
    both = normal + sample
    normal, sample, both = normal[both > 0], sample[both > 0], both[both > 0]
    if not normal.sum() or not sample.sum() or len(both) < 2:
        return 1.0
    digest = hashlib.blake2b(np.stack([normal, sample]).tobytes(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(digest, "little"))
    drawn = rng.multivariate_hypergeometric(both, int(sample.sum()), size=_PERMUTATIONS)
    expected = both * (sample.sum() / both.sum())
    observed = float(_distance(sample[None, :], expected)[0])
    reached = int((_distance(drawn, expected) >= observed - 1e-9).sum())
    return (1 + reached) / (1 + _PERMUTATIONS)


def _distance(sample: I64, expected: F64) -> F64:
    # With both margins fixed the whole chi-square is proportional to this part of it.
    return np.asarray(((sample - expected) ** 2 / expected).sum(axis=1), dtype=np.float64)
