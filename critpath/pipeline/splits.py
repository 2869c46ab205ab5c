"""How healthy executions are divided into a normal and a sample set, to see what happens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from critpath.model import I64, Missing

LARGEST_NORMAL = 100
_LEAST_NORMAL = 30
_LEAST_DRAWS = 10  # of one recording, however many there are


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of a table: a normal and a sample set.

    Attributes
    ----------
    normal, sample : int64
    unit : int
        What splits have in common that are not independent: the sample's session, or
        the split's own number.
    """

    normal: I64
    sample: I64
    unit: int


def least_normal(sample: int) -> int:
    """Return the fewest normal executions that a sample of this size is held against."""
    return min(sample, _LEAST_NORMAL)


def shuffled_splits(total: int, sample: int, count: int, random_seed: int) -> list[Split]:
    """Divide the executions of all recordings at random.

    Parameters
    ----------
    total : int
        Executions there are.
    sample : int
        Executions in the sample; the normal set has the others, at most 100.
    count : int
    random_seed : int

    Returns
    -------
    list of Split
        None if there are too few executions.
    """
    if total < sample + least_normal(sample):
        return []
    rng = np.random.default_rng([random_seed, sample, 0])
    result = []
    for number in range(count):
        order = rng.permutation(total)
        normal = order[sample : sample + LARGEST_NORMAL]
        result.append(Split(np.sort(normal), np.sort(order[:sample]), number))
    return result


def session_splits(session: I64, sample: int, count: int, random_seed: int) -> list[Split]:
    """Draw the sample from one recording, and the normal set from the others.

    Parameters
    ----------
    session : int64 [executions]
    sample : int
    count : int
        Splits, but at least ten of every recording.
    random_seed : int

    Returns
    -------
    list of Split
        As many of every recording that is large enough.
    """
    rng = np.random.default_rng([random_seed, sample, 1])
    fitting = _fitting(session, sample)
    draws = max(_LEAST_DRAWS, count // max(len(fitting), 1))
    result = []
    for s in fitting:
        mine, others = np.flatnonzero(session == s), np.flatnonzero(session != s)
        for _ in range(draws):
            normal = rng.permutation(others)[:LARGEST_NORMAL]
            drawn = rng.permutation(mine)[:sample]
            result.append(Split(np.sort(normal), np.sort(drawn), s))
    return result


def _fitting(session: I64, sample: int) -> list[int]:
    """Return the recordings with enough executions, whose others have enough as well."""
    counts = np.bincount(session)
    rest = len(session) - counts
    return np.flatnonzero((counts >= sample) & (rest >= least_normal(sample))).tolist()


def missing(session: I64, sample: int) -> list[Missing]:
    """Say what the recordings lack for a size.

    Parameters
    ----------
    session : int64 [executions]
    sample : int
    """
    result = []
    lacking = sample + least_normal(sample) - len(session)
    if lacking > 0:
        result.append(Missing("shuffled", sample, lacking, 0))
    if not _fitting(session, sample):
        counts = np.bincount(session)
        recordings = max(0, 2 - len(counts))
        largest = int(counts.max(initial=0))
        # The sample's recording first; then what it is held against.
        lack = max(0, sample - largest)
        lack = lack or max(0, least_normal(sample) - (len(session) - largest))
        result.append(Missing("sessions", sample, lack, recordings))
    return result
