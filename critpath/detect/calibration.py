"""Intervals of rates, and the floor that recordings of one program ask for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from critpath.detect.sessions import SIGMAS, floor_share, session_spread
from critpath.model import I64, FloorAdvice, Rate

LEAST_FLOOR = 0.05
# Two means have a distance, no spread that a floor could be set by.
LEAST_SESSIONS = 3
_LEVEL = 0.95


def rate(count: int, of: int, units: int | None = None) -> Rate:
    """Return a share with its 95 % interval.

    Parameters
    ----------
    count, of : int
    units : int, optional
        How many of them are independent; all by default.

    Notes
    -----
    Clopper and Pearson 1934.  With fewer independent units than observations, the
    same share of as many units, as Korn and Graubard (1998) do with survey data: here
    every unit counts once however often it was drawn from, so the interval errs on
    the wide side.
    """
    from scipy.stats import beta  # noqa: PLC0415 - takes half a second to import

    n = float(min(of, units or of))
    x = count / of * n
    tail = (1 - _LEVEL) / 2
    low = float(beta.ppf(tail, x, n - x + 1)) if x > 0 else 0.0
    high = float(beta.ppf(1 - tail, x + 1, n - x)) if x < n else 1.0
    return Rate(count, of, low, high)


def advise_floor(
    total: I64, stratum: I64, session: I64, sources: Sequence[str], asked: float
) -> FloorAdvice:
    """Recommend an effect floor.

    Parameters
    ----------
    total, stratum, session : int64 [n]
        Duration (ns), type and recording of every execution.
    sources : sequence of str
        Name of every recording, by its number in ``session``.
    asked : float
        The floor that the settings ask for.

    Notes
    -----
    ``max(5 %, 3 sd of the session means / mean)``, the rule that `detect` applies by
    itself where NORMAL has several sessions.  The bound of the standard deviation is
    ``sd * sqrt((S - 1) / chi-square quantile)``, for means that are normally
    distributed.  The means of equal recordings would differ as well: their standard
    deviation is then that of the executions over the root of their number.
    """
    names, counts = np.unique(session, return_counts=True)
    found = session_spread(total, stratum, session)
    mean = float(total.mean())
    spread = high = expected = None
    if len(names) > 1 and mean > 0:
        from scipy.stats import chi2  # noqa: PLC0415 - takes half a second to import

        freedom = len(names) - 1
        spread = found.share
        high = spread * math.sqrt(freedom / float(chi2.ppf(1 - _LEVEL, freedom)))
        expected = _expected(total, stratum, session) / mean
    enough = spread is not None and len(names) >= LEAST_SESSIONS
    return FloorAdvice(
        sources=tuple(sources[int(s)] for s in names),
        executions=tuple(counts.tolist()),
        means=tuple((mean + found.deviation).tolist()),
        spread=spread,
        spread_high=high,
        expected=expected,
        floor=max(LEAST_FLOOR, SIGMAS * spread) if spread is not None and enough else None,
        in_force=floor_share(asked, total, stratum, session),
    )


def _expected(total: I64, stratum: I64, session: I64) -> float:
    """Return the standard deviation that session means have by chance alone (ns)."""
    residual = total.astype(np.float64)
    for s in np.unique(stratum):
        residual[stratum == s] -= total[stratum == s].mean()
    squares, freedom, shares = 0.0, 0, []
    for s in np.unique(session):
        mine = residual[session == s]
        squares += float(((mine - mine.mean()) ** 2).sum())
        freedom += len(mine) - 1
        shares.append(1 / len(mine))
    return math.sqrt(squares / max(freedom, 1) * float(np.mean(shares)))
