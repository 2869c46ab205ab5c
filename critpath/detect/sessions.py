"""What recording sessions differ by: the floor they set, and whether they can be permuted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from critpath.detect.assignments import ways
from critpath.model import F64, I64

# Spread of session means that an effect must exceed; Shewhart's three sigma.
SIGMAS = 3.0


@dataclass(frozen=True)
class SessionSpread:
    """How far the means of the normal sessions lie apart.

    Attributes
    ----------
    sessions : int
    deviation : float64 [sessions]
        Mean duration of each session less the mean of its types (ns).
    share : float
        Standard deviation (ddof 1) of these, as a share of the mean duration; 0 with
        one session.
    """

    sessions: int
    deviation: F64
    share: float


def session_spread(total: I64, stratum: I64, session: I64) -> SessionSpread:
    """Measure what sessions of one program differ by.

    Parameters
    ----------
    total : int64 [n]
        Durations of normal executions (ns).
    stratum : int64 [n]
        Execution types: another mix of types is no difference between sessions.
    session : int64 [n]
    """
    names = np.unique(session)
    residual = total.astype(np.float64)
    for s in np.unique(stratum):
        residual[stratum == s] -= total[stratum == s].mean()
    means = np.array([float(residual[session == s].mean()) for s in names])
    if len(names) < 2 or not total.any():
        return SessionSpread(len(names), means, 0.0)
    return SessionSpread(
        len(names), means, float(np.std(means, ddof=1)) / float(total.mean())
    )  # fmt: skip


def floor_share(floor: float, total: I64, stratum: I64, session: I64 | None) -> float:
    """Raise the effect floor to what the normal sessions differ by among themselves.

    Parameters
    ----------
    floor : float
        Share of the normal mean duration.
    total, stratum, session
        As `session_spread`; ``session`` None if unknown.

    Returns
    -------
    float
        ``max(floor, 3 sd of the session means / mean)``.
    """
    if session is None:
        return floor
    return max(floor, SIGMAS * session_spread(total, stratum, session).share)


def permutable(
    normal: I64 | None, sample: I64 | None, level: float
) -> tuple[tuple[I64, I64] | None, str]:
    """Return the sessions if whole ones can be permuted, else why not.

    Parameters
    ----------
    normal, sample : int64 or None
        Session of every execution.
    level : float
        Least p-value that the permutations must be able to give.

    Returns
    -------
    sessions : (int64, int64) or None
    why_not : str
        "" if there is nothing to say: one of the sets is a single session.
    """
    if normal is None or sample is None:
        return None, ""
    ours, theirs = len(np.unique(normal)), len(np.unique(sample))
    if ours < 2 or theirs < 2:
        return None, ""
    if ways([(ours, theirs)]) * level < 1:
        return None, (
            f"{ours} normal and {theirs} sample sessions are too few to permute whole: "
            "executions are pooled, and the floor stands for differences between sessions"
        )
    return (normal, sample), ""
