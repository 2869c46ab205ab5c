"""Two families of hypotheses, one level: is anything slower, and in which state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from critpath.detect.gate import GateTest, gate
from critpath.detect.unusual import unusual
from critpath.model import F64, I64, VectorTable

# Share of the level that the family of the whole (the total and the unusualness) is
# tested at; the family of the states has the rest, and all of it once the whole fires.
WHOLE = 0.5


@dataclass(frozen=True)
class Families:
    """Outcome of both families; p-values are adjusted for everything that is tested.

    Attributes
    ----------
    p_value : float64 [symbols + 1]
        Over all types; the last is of the whole: the total latency and the
        unusualness of the executions, whichever is smaller.
    stratum_p_value : float64 [strata, symbols + 1]
        Of each type by itself.
    whole, states : GateTest
        As tested, not adjusted for one another.
    """

    p_value: F64
    stratum_p_value: F64
    whole: GateTest
    states: GateTest


def two_families(
    normal: I64,
    sample: I64,
    judged: tuple[VectorTable, VectorTable],
    strata: tuple[I64, I64],
    *,
    alpha: float,
    permutations: int,
    sessions: tuple[I64, I64] | None = None,
) -> Families:
    """Test the whole executions and every state of them, at one level together.

    Parameters
    ----------
    normal, sample : int64 [n, symbols + 1], int64 [m, symbols + 1]
        Durations (ns); the last column is the total.
    judged : (VectorTable, VectorTable)
        The sets as the unusualness of single executions is measured on.
    strata : (int64 [n], int64 [m])
        Execution types.
    alpha, permutations, sessions
        As `critpath.detect.gate.gate`.

    Notes
    -----
    A fault that is plain in one state can drown in the noise of the total; a fault in
    few executions moves neither much, but the score of `critpath.detect.unusual`.  In
    one family with twenty-six states that score would pay for all of them, so two
    families share the level as in Wiens's fallback procedure (2003): the whole is
    tested at half of ``alpha``, the states at the other half, or at all of it if the
    whole was rejected.  Each is a max-T permutation test, exact where executions are
    exchangeable within their types, so if nothing differs the probability of any alarm
    is at most ``alpha``.  Where something does, the whole's other members may err at
    ``alpha / 2`` besides: a state or type is named wrongly with at most 1.5 ``alpha``.
    Types that are found in each set by itself, without labels, are exchangeable only
    as far as that finds the same ones; ``critpath calibrate`` measures what is left.
    """
    scores = unusual(*judged, *strata)
    whole = gate(
        np.column_stack([normal[:, -1], scores[0]]),
        np.column_stack([sample[:, -1], scores[1]]),
        *strata,
        alpha=alpha * WHOLE,
        permutations=permutations,
        sessions=sessions,
    )
    states = gate(
        normal[:, :-1], sample[:, :-1], *strata,
        alpha=alpha * (1 - WHOLE), permutations=permutations, sessions=sessions,
    )  # fmt: skip
    first = min(float(whole.p_value.min()), float(whole.stratum_p_value.min())) / WHOLE
    return Families(
        p_value=np.append(
            _adjusted(states.p_value, first), min(1.0, float(whole.p_value.min()) / WHOLE)
        ),
        stratum_p_value=np.column_stack(
            [
                _adjusted(states.stratum_p_value, first),
                np.minimum(whole.stratum_p_value.min(axis=1) / WHOLE, 1.0),
            ]
        ),
        whole=whole,
        states=states,
    )


def _adjusted(p_value: F64, first: float) -> F64:
    """Adjust the states' p for the other family, whose least adjusted p is ``first``."""
    alone = np.minimum(p_value / (1 - WHOLE), 1.0)
    return np.asarray(np.minimum(alone, np.maximum(p_value, first)), dtype=np.float64)
