"""PInfer's clocks, for comparison: nearest neighbours and least squares in turns.

Xu, Ning, Zhang, Rhee and Jiang, algorithm 1 with equation 3: of one direction, without knowing
which message is which.  In turns the starting events are paired with ending events, each with the
nearest that comes after it within a window and is not taken, and the line between the clocks is
chosen that makes the squares of these delays least while none is negative; until the pairs stay.
The paper starts from clocks that are set alike (a = 1, b = 0).  Recordings count from boot, so the
first of both events are taken for one message, half a window earlier: what begins too late never
arrives.  No bound follows from it.
"""

from __future__ import annotations

import numpy as np

from critpath.clocks.corridor import find_hull
from critpath.clocks.pair import PairClock
from critpath.model import F64, I64
from critpath.model.clocks import ClockLine, Crossings
from critpath.schema.parameters.clocks import CLOCKS


def align_either_way(to: Crossings, back: Crossings, begin: int, end: int) -> PairClock | None:
    """Choose the line between two clocks by the direction that has more messages.

    Parameters
    ----------
    to, back : Crossings
        From A to B, and from B to A.
    begin, end : int
        Of the recording of clock B (ns).
    """
    if len(to) >= len(back):
        return align_nearest(to.left, to.arrived, begin, end)
    # With the signs of all times changed, what arrived at A is what leaves it.
    found = align_nearest(-back.arrived, -back.left, -end, -begin)
    if found is None:
        return None
    [line] = found.lines
    offset = -(line.offset + round(line.drift * (line.end - line.begin)))
    turned = ClockLine(-line.end, -line.begin, offset, line.drift)
    return PairClock((turned,), found.sure, found.steps)


def align_nearest(
    left: I64, arrived: I64, begin: int, end: int, *, shift: int | None = None
) -> PairClock | None:
    """Choose the line between two clocks from what left one and what arrived at the other.

    Parameters
    ----------
    left : int64 [n]
        Starting events (ns of clock A).
    arrived : int64 [m]
        Ending events (ns of clock B), in any order: which is whose is not used.
    begin, end : int
        Of the recording of clock B (ns).
    shift : int or None
        What to take first for clock B less clock A; None: that of the first of both, half a
        window earlier.

    Returns
    -------
    PairClock
        One line without a bound; None where fewer than two events find a neighbour.
    """
    if not len(left) or not len(arrived):
        return None
    starts, ends = np.sort(left), np.sort(arrived)
    first = int(ends[0] - starts[0]) - CLOCKS.window // 2 if shift is None else shift
    x = (starts - starts[0]).astype(np.float64)
    y = (ends - starts[0] - first).astype(np.float64)
    slope, value = 0.0, 0.0  # of what B is ahead of A, besides the first shift
    before = np.zeros(0, np.int64)
    for _ in range(CLOCKS.most_turns):
        pairs = _pair_nearest(x + value + slope * x, y)
        mine = np.flatnonzero(pairs >= 0)
        if len(mine) < 2:
            return None
        if np.array_equal(pairs, before):
            break
        before = pairs
        slope, value = _fit_below(x[mine], y[pairs[mine]] - x[mine])
    # t_B = t_A + first + value + slope (t_A - starts[0]): what to add at a time of B for A's.
    last = max(end, begin + 1)
    own = np.array([begin - int(starts[0]) - first, last - int(starts[0]) - first], np.float64)
    offsets = (own - value) / (1 + slope) - own
    drift = float(offsets[1] - offsets[0]) / (last - begin)
    line = ClockLine(begin, last, round(float(offsets[0])) - first, drift)
    return PairClock((line,), np.zeros((0, 3), np.int64), ())


def _pair_nearest(starts: F64, ends: F64) -> I64:
    """Return for each start the first end after it that no start before it took, -1 for none."""
    order = np.arange(len(starts))
    at = np.maximum.accumulate(np.searchsorted(ends, starts) - order) + order
    inside = np.minimum(at, len(ends) - 1)
    near = (at < len(ends)) & (ends[inside] - starts <= CLOCKS.window)
    pairs: I64 = np.where(near, at, -1)
    return pairs


def _fit_below(x: F64, y: F64) -> tuple[float, float]:
    """Return slope and value at 0 of the line by least squares that is above no point.

    Where the free line is above some, the best one touches the lower hull: at a corner, with the
    best slope through it, or along an edge.
    """
    middle, mean = x.mean(), y.mean()
    x, y = x - middle, y - mean
    xx, xy = float(x @ x), float(x @ y)
    slope = xy / xx if xx else 0.0
    if (y - slope * x).min() >= 0:
        return slope, mean - slope * middle
    corner_x, corner = find_hull(x, -y)
    corner = -corner
    edges = np.diff(corner) / np.diff(corner_x)
    # About a point (p, q): the sums of squares there follow from those about the mean.
    through = (xy + len(x) * corner_x * corner) / np.maximum(xx + len(x) * corner_x**2, 1e-300)
    slopes = np.concatenate([np.clip(through, [-np.inf, *edges], [*edges, np.inf]), edges])
    values = np.concatenate([corner - slopes[: len(corner)] * corner_x, corner[:-1]])
    values[len(corner) :] -= edges * corner_x[:-1]
    cost = slopes**2 * xx - 2 * slopes * xy + len(x) * values**2
    best = int(np.argmin(cost))
    return float(slopes[best]), float(values[best] + mean - slopes[best] * middle)
