"""What messages leave possible of the line between two clocks.

``d(t)`` is what to add to clock B's time ``t`` to have clock A's.  A message from A that left
not before ``e`` (A) and was there at ``r`` (B) says ``d(r) >= e - r``; one from B that left not
before ``e`` (B) and was there at ``r`` (A) says ``d(e) <= r - e``.  The first are the *floor*,
the others the *ceiling*; every line between them is possible, no other is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from critpath.model import F64, I64
from critpath.schema.parameters.clocks import CLOCKS

_HALVINGS: Final = 60  # technical
_PASSES: Final = 12  # technical
_MANY: Final = 4096  # technical: points of which most are below the others' hull by far
_BLOCK: Final = 32  # technical
_SAMPLED: Final = 10_000  # technical


def find_hull(x: F64, y: F64) -> tuple[F64, F64]:
    """Return the corners of the upper convex hull of points in order of `x`."""
    if len(x) > _MANY:
        x, y = _drop_low(x, y)
    if len(x) > 1 and (x[1:] == x[:-1]).any():
        starts = np.flatnonzero(np.concatenate([[True], x[1:] != x[:-1]]))
        x, y = x[starts], np.maximum.reduceat(y, starts)
    for _ in range(_PASSES):
        # A point below the chord of its neighbours is no corner, whatever else is removed.
        out = (y[1:-1] - y[:-2]) * (x[2:] - x[:-2]) > (y[2:] - y[:-2]) * (x[1:-1] - x[:-2])
        if out.all():
            return x, y
        keep = np.concatenate([[True], out, [True]])
        x, y = x[keep], y[keep]
    # Andrew's monotone chain, for what is left.
    chain: list[tuple[float, float]] = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        while len(chain) > 1:
            (p, q), (r, s) = chain[-2:]
            if (s - q) * (a - p) > (b - q) * (r - p):
                break
            chain.pop()
        chain.append((a, b))
    corners = np.array(chain, np.float64).reshape(-1, 2)
    return corners[:, 0], corners[:, 1]


def _drop_low(x: F64, y: F64) -> tuple[F64, F64]:
    """Leave out blocks of points that are below the hull of the highest of each block."""
    blocks = len(x) // _BLOCK
    whole = blocks * _BLOCK
    tops = y[:whole].reshape(blocks, _BLOCK).argmax(axis=1) + np.arange(0, whole, _BLOCK)
    some = np.concatenate([tops if tops[0] == 0 else np.concatenate([[0], tops]), [len(x) - 1]])
    some = some[: len(some) - (some[-1] == some[-2])]
    corner_x, corner = find_hull(x[some], y[some])
    # A hull is concave: over a block it is lowest at one of its ends.
    ends = np.minimum(*(np.interp(x[at:whole:_BLOCK], corner_x, corner) for at in (0, _BLOCK - 1)))
    high = y[tops] >= ends - 1.0
    keep = np.concatenate([np.repeat(high, _BLOCK), np.ones(len(x) - whole, np.bool_)])
    return x[keep], y[keep]


@dataclass(frozen=True)
class Fit:
    """The line that is farthest from floor and ceiling.

    Attributes
    ----------
    value, drift : float
        At `Corridor.origin`, less `Corridor.base`; and per ns.
    margin : float
        Its distance from both (ns); below 0 there is no line between them.
    """

    value: float
    drift: float
    margin: float


@dataclass(frozen=True, eq=False)
class Corridor:
    """Floor and ceiling of `d`, in order of time, and relative to an origin.

    Attributes
    ----------
    origin, base : int
        What to add to times and to values (ns).
    low_x, low, high_x, high : float64
    """

    origin: int
    base: int
    low_x: F64
    low: F64
    high_x: F64
    high: F64

    @property
    def bounded(self) -> bool:
        """Whether there are messages in both directions."""
        return len(self.low) > 0 and len(self.high) > 0

    @property
    def span(self) -> tuple[float, float]:
        """The first and last time at which a message bounds the line, if there are any."""
        sides = [x for x in (self.low_x, self.high_x) if len(x)]
        return float(min(x[0] for x in sides)), float(max(x[-1] for x in sides))

    @property
    def times(self) -> F64:
        """Every time at which a message bounds the line, once, in order."""
        found: F64 = np.union1d(self.low_x, self.high_x)
        return found

    def cut(self, begin: float, end: float) -> Corridor:
        """Return what is between two times, both included."""
        low = slice(*_places(self.low_x, begin, end))
        high = slice(*_places(self.high_x, begin, end))
        return Corridor(
            *(self.origin, self.base, self.low_x[low], self.low[low]),
            *(self.high_x[high], self.high[high]),
        )

    def hulls(self, bend: float = 0.0) -> Corridor:
        """Return the corners of the hulls, which leave the same lines possible.

        With a bend, what bounds lines that touch a clock whose rate changes so fast: floor
        and ceiling recede with the square of the distance in time.  Up to what is linear in
        time that is the same for every place at which they touch, and so are the corners.
        """
        x, y = find_hull(self.low_x, self.low - bend / 2 * self.low_x**2)
        v, w = find_hull(self.high_x, -self.high - bend / 2 * self.high_x**2)
        return Corridor(self.origin, self.base, x, y + bend / 2 * x**2, v, -(w + bend / 2 * v**2))

    def fit(self) -> Fit | None:
        """Return the line with the largest distance from both; None without messages both ways.

        By how much ceiling and floor are apart for a drift is concave in the drift: its
        maximum is where the messages that bound the line change sides.
        """
        if not self.bounded:
            return None
        of = self.hulls()

        def ends(drift: float) -> tuple[float, float, float]:
            low, high = of.low - drift * of.low_x, of.high - drift * of.high_x
            i, j = int(np.argmax(low)), int(np.argmin(high))
            return float(low[i]), float(high[j]), float(of.low_x[i] - of.high_x[j])

        least, most = -CLOCKS.largest_drift, CLOCKS.largest_drift
        for _ in range(_HALVINGS):
            drift = (least + most) / 2
            grows = ends(drift)[2]
            if grows == 0:
                break
            least, most = (drift, most) if grows > 0 else (least, drift)
        low, high, _ = ends(drift)
        if high >= low and abs(drift) > CLOCKS.largest_drift * (1 - 1e-6):
            # Too few messages to tell: the middle of the drifts that are possible.
            inside, outside = drift, -drift
            for _ in range(_HALVINGS):
                low, high, _ = ends(outside)
                middle = (inside + outside) / 2
                fits = ends(middle)
                if high >= low:
                    inside = outside
                    break
                inside, outside = (middle, outside) if fits[1] >= fits[0] else (inside, middle)
            drift = (drift + inside) / 2
            low, high, _ = ends(drift)
        return Fit((low + high) / 2, drift, (high - low) / 2)

    def band(self, at: F64, bend: float | None = None) -> tuple[F64, F64]:
        """Return the least and most that `d` can be at some times; NaN where nothing can.

        Parameters
        ----------
        at : float64 [n]
            Relative to the origin.
        bend : float
            By how much the drift may change in a ns.
        """
        bend = CLOCKS.largest_bend if bend is None else bend
        low, high = np.full(len(at), -np.inf), np.full(len(at), np.inf)
        if not self.bounded:
            return low, high
        of = self.hulls(bend)
        for begin in range(0, len(at), 32):
            some = slice(begin, begin + 32)
            near = of
            if bend and len(of.low) + len(of.high) > 400:
                cut = of.cut(
                    float(at[some].min()) - CLOCKS.near, float(at[some].max()) + CLOCKS.near
                )
                near = cut if cut.bounded else of
            low[some], high[some] = _band(near, at[some], bend)
        return low, high


def _places(x: F64, begin: float, end: float) -> tuple[int, int]:
    return int(np.searchsorted(x, begin)), int(np.searchsorted(x, end, "right"))


def _band(of: Corridor, at: F64, bend: float) -> tuple[F64, F64]:
    """Return least and most at some times, for the corners of hulls."""
    low_gap, high_gap = of.low_x - at[:, None], of.high_x - at[:, None]
    floor, ceiling = of.low - bend / 2 * low_gap**2, of.high + bend / 2 * high_gap**2
    rows = np.arange(len(at))

    def ends(drift: F64) -> tuple[F64, F64, F64, F64]:
        """Return floor and ceiling at the times, and how each changes with the drift."""
        low, high = floor - drift[:, None] * low_gap, ceiling - drift[:, None] * high_gap
        i, j = low.argmax(axis=1), high.argmin(axis=1)
        return low[rows, i], high[rows, j], -low_gap[rows, i], -high_gap[rows, j]

    def halve(least: F64, most: F64, side: int) -> F64:
        """Return where floor less ceiling (0), floor (1) or less the ceiling (2) is least."""
        for _ in range(_HALVINGS):
            drift = (least + most) / 2
            _, _, floor_grows, ceiling_grows = ends(drift)
            grows = (floor_grows - ceiling_grows, floor_grows, -ceiling_grows)[side]
            least, most = np.where(grows < 0, drift, least), np.where(grows < 0, most, drift)
        return (least + most) / 2

    def reach(into: F64, out: F64) -> F64:
        """Return the farthest drift from `into` towards `out` that is possible."""
        low, high, _, _ = ends(out)
        whole = low <= high
        good, bad = into.copy(), out.copy()
        for _ in range(_HALVINGS):
            drift = (good + bad) / 2
            low, high, _, _ = ends(drift)
            good, bad = np.where(low <= high, drift, good), np.where(low <= high, bad, drift)
        return np.where(whole, out, good)

    least, most = np.full(len(at), -CLOCKS.largest_drift), np.full(len(at), CLOCKS.largest_drift)
    best = halve(least, most, 0)
    low, high, _, _ = ends(best)
    possible = low <= high + 1e-3  # technical: a thousandth of a nanosecond is rounding
    first, last = reach(best, least), reach(best, most)
    lowest = ends(halve(first, last, 1))[0]
    highest = ends(halve(first, last, 2))[1]
    return np.where(possible, lowest, np.nan), np.where(possible, highest, np.nan)


def make_corridor(
    floor: tuple[I64, I64], ceiling: tuple[I64, I64], *, origin: int | None = None
) -> Corridor:
    """Return the corridor of messages.

    Parameters
    ----------
    floor, ceiling : (int64 [n], int64 [n])
        Times of clock B, and what `d` is at least (at most) at each.
    """
    (low_x, low), (high_x, high) = floor, ceiling
    every = np.concatenate([low_x, high_x])
    begin = (int(every.min()) if len(every) else 0) if origin is None else origin
    values = np.concatenate([low, high])
    few = values[:: max(len(values) // _SAMPLED, 1)]  # the middle of some is as good
    base = int(np.partition(few, len(few) // 2)[len(few) // 2]) if len(few) else 0

    def relative(x: I64, y: I64) -> tuple[F64, F64]:
        if (x[1:] < x[:-1]).any():
            order = np.argsort(x, kind="stable")
            x, y = x[order], y[order]
        return (x - begin).astype(np.float64), (y - base).astype(np.float64)

    return Corridor(begin, base, *relative(low_x, low), *relative(high_x, high))
