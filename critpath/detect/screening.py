"""How often the paper's rules fire where there is nothing to find."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from critpath.detect.algorithm1 import Algorithm1
from critpath.model import I64

_SPLITS = 200
_LEAST_SPLITS = 20
_WORK = 1 << 26  # values looked at in all


def false_alarms(
    normal: I64, sample: I64, rule: Callable[[I64, I64], Algorithm1], random_seed: int
) -> float:
    """Share of random splits of all executions in which Algorithm 1 fires for a state.

    Parameters
    ----------
    normal, sample : int64 [n, columns], int64 [m, columns]
        Durations (ns); the last column, the total, is not among the paper's states.
    rule : callable
        Algorithm 1 with its settings.
    random_seed : int
        Of the data.

    Notes
    -----
    Executions of both sets change places at random, so no difference between the sets
    is left.  Where the sample really is slower, its executions make the pool more
    variable than the normal set is: the figure is then of that pool.
    """
    pool = np.concatenate([normal, sample])
    # The order of executions must not matter.
    pool = pool[np.lexsort(pool.T[::-1])]
    splits = int(np.clip(_WORK // max(pool.size, 1), _LEAST_SPLITS, _SPLITS))
    rng = np.random.default_rng(random_seed)
    alarms = 0
    for _ in range(splits):
        order = rng.permutation(len(pool))
        found = rule(pool[order[len(sample) :]], pool[order[: len(sample)]])
        fires = found.average_fires | found.probability_fires
        alarms += bool(fires[:-1].any())
    return alarms / splits
