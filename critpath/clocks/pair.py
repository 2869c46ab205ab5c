"""The line of one clock against another: chosen, bounded, and cut where the clock stepped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np

from critpath.clocks.corridor import Corridor, Fit
from critpath.extras import require
from critpath.model import F64, I64
from critpath.model.clocks import ClockLine
from critpath.schema.parameters.clocks import CLOCKS

_POINTS: Final = 33  # technical: at least, at which the bound is given
_APART: Final = 2e9  # technical: ns between them, at most ...
_MOST_POINTS: Final = 4097  # technical: ... of a recording that is not longer than two hours
_MOST_KNOTS: Final = 129  # technical
_SPARE: Final = 3  # technical


@dataclass(frozen=True, eq=False)
class PairClock:
    """Clock B against clock A.

    Attributes
    ----------
    lines : tuple of ClockLine
    sure : int64 [n, 3]
        As `HostClock.sure`.
    steps : tuple of (int, int)
    """

    lines: tuple[ClockLine, ...]
    sure: I64
    steps: tuple[tuple[int, int], ...]

    @property
    def width(self) -> float:
        """How little is known: the mean of the bounds (ns)."""
        return float(np.abs(self.sure[:, 1:]).mean()) if len(self.sure) else np.inf


@dataclass(frozen=True, eq=False)
class _Stretch:
    """A time without a step, and the messages in it; times relative to the origin.

    Attributes
    ----------
    begin, end : float
        What its lines hold for.
    before, after : float
        Until when the step at its begin, and from when on the one at its end can have been.
    corridor : Corridor
    knots, values : float64
        The chosen clock, straight between knots.
    margin : float
        Its distance from the messages: half the smallest round trip.
    """

    begin: float
    end: float
    before: float
    after: float
    corridor: Corridor
    knots: F64
    values: F64
    margin: float

    def at(self, times: F64) -> F64:
        """Return the chosen clock; as its first and last lines before and after its knots."""
        of = np.clip(np.searchsorted(self.knots, times, "right") - 1, 0, len(self.knots) - 2)
        slope = np.diff(self.values) / np.diff(self.knots)
        found: F64 = self.values[of] + slope[of] * (times - self.knots[of])
        return found

    def band(self, times: F64) -> tuple[F64, F64]:
        """Return the least and most that the clock can be, the chosen one always within."""
        bend = CLOCKS.largest_bend
        low, high = self.corridor.band(times, bend)
        while np.isnan(low).any() and bend < 1:
            bend *= 4  # it bends more than clocks do
            low, high = self.corridor.band(times, bend)
        chosen = self.at(times)
        apart = float(np.diff(times).max(initial=0.0))
        # Between two of the times the clock may bend away from the straight.
        slack = bend * apart**2 / 8
        low = np.minimum(low, chosen - self.margin) - slack
        high = np.maximum(high, chosen + self.margin) + slack
        return low, high


def _find_round_trip(corridor: Corridor, drift: float) -> float:
    """Return the smallest time that a message and one back took together (ns).

    Of messages next to each other, so that neither drift nor a step counts much.
    """
    x = np.concatenate([corridor.low_x, corridor.high_x])
    y = np.concatenate([corridor.low, corridor.high]) - drift * x
    back = np.repeat([False, True], [len(corridor.low), len(corridor.high)])
    order = np.argsort(x, kind="stable")
    x, y, back = x[order], y[order], back[order]
    turns = np.flatnonzero(back[1:] != back[:-1])
    trips = np.where(back[turns], y[turns] - y[turns + 1], y[turns + 1] - y[turns])
    return float(max(trips.min(initial=np.inf), 0.0)) if len(trips) else 0.0


def align_pair(corridor: Corridor, begin: int, end: int) -> PairClock | None:
    """Choose the line between two clocks, with its bound and its steps.

    Parameters
    ----------
    corridor : Corridor
    begin, end : int
        Of the recording of clock B (ns), which the lines cover.

    Returns
    -------
    PairClock
        None without messages in both directions.
    """
    if not corridor.bounded:
        return None
    earliest, latest = corridor.span
    first = min(float(begin - corridor.origin), earliest)
    last = max(float(end - corridor.origin), latest, first + 1.0)
    stretches = _find_stretches(corridor, first, last)
    if not stretches:
        return None
    lines, steps = _make_lines(stretches, corridor)
    return PairClock(lines, _tell_bounds(stretches, corridor), steps)


# Steps.


def _find_stretches(corridor: Corridor, first: float, last: float) -> list[_Stretch]:
    """Return what lies between steps; nothing if the messages contradict each other."""
    whole = corridor.fit()
    if whole is not None and whole.margin >= 0:
        return [_straight(corridor, whole, first, last)]
    cuts = _find_cuts(corridor)
    doubts = [(_reach_back(corridor, a, b), a) for a, b in pairwise([*cuts, np.inf])]
    befores = [-np.inf, *cuts[:-1]]
    steps = [
        (back, cut)
        for (back, cut), before, after in zip(doubts, befores, [*cuts[1:], np.inf], strict=True)
        if _is_step(corridor.cut(before, back), corridor.cut(cut, after), (back + cut) / 2)
    ]
    steps, doubts = _widen(corridor, steps), _widen(corridor, doubts)
    found = _cut_at(corridor, steps, first, last) or _cut_at(corridor, doubts, first, last)
    if not found:
        return []
    drift = (found[0].values[-1] - found[0].values[0]) / (found[0].knots[-1] - found[0].knots[0])
    least = _find_round_trip(corridor, drift) / 2
    return [replace(each, margin=max(each.margin, least)) for each in found]


def _widen(corridor: Corridor, steps: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the times within which steps were, with some messages each way on either side.

    The first of them after a step may be late, so that they bound nothing, or of one direction.
    """
    found: list[tuple[float, float]] = []
    sides = (corridor.low_x, corridor.high_x)
    for begin, end in steps:
        before = [max(int(np.searchsorted(x, begin)) - _SPARE, 0) for x in sides]
        behind = [min(int(np.searchsorted(x, end, "right")) + _SPARE, len(x)) - 1 for x in sides]
        low = min(float(x[at]) for x, at in zip(sides, before, strict=True))
        high = max(float(x[at]) for x, at in zip(sides, behind, strict=True))
        if found and low <= found[-1][1]:
            low = found.pop()[0]
        found.append((min(low, begin), max(high, end)))
    return found


def _is_step(before: Corridor, behind: Corridor, time: float) -> bool:
    """Return whether no clock whose rate bends as clocks' do leads from the one to the other."""
    at = np.array([time])
    (low,), (high,) = before.band(at)
    (least,), (most,) = behind.band(at)
    return bool(low > most or least > high)


def _cut_at(
    corridor: Corridor, steps: list[tuple[float, float]], first: float, last: float
) -> list[_Stretch]:
    """Return the stretches between steps, each of which was at some time of a range."""
    found: list[_Stretch] = []
    edges = [(-np.inf, -np.inf), *steps, (np.inf, np.inf)]
    for (early, begin), (end, late) in pairwise(edges):
        part = corridor.cut(begin, end)
        stretch = _bent(part if part.bounded else corridor.cut(early, late))
        if stretch is None:
            return []
        found.append(stretch)
    places = [first, *map(partial(_place_step, corridor), found, found[1:], steps), last]
    doubts = [(first, first), *steps, (last, last)]
    if any(a >= b for a, b in pairwise(places)):
        return []
    return [
        replace(stretch, begin=begin, end=end, before=before[1], after=after[0])
        for stretch, (begin, end), (before, after) in zip(
            found, pairwise(places), pairwise(doubts), strict=True
        )
    ]


def _place_step(
    corridor: Corridor, before: _Stretch, behind: _Stretch, doubt: tuple[float, float]
) -> float:
    """Return where in a range of time a step contradicts the fewest messages."""
    part = corridor.cut(*doubt)
    times = part.times
    if len(times) < 2:
        return sum(doubt) / 2

    def contradicted(by: _Stretch) -> F64:
        low, high = by.at(part.low_x) < part.low, by.at(part.high_x) > part.high
        counts = np.zeros(len(times))
        np.add.at(counts, np.searchsorted(times, part.low_x), low)
        np.add.at(counts, np.searchsorted(times, part.high_x), high)
        return counts

    # After the k-th of the times: those up to it are of the first, the others of the second.
    first, second = np.cumsum(contradicted(before)), np.cumsum(contradicted(behind)[::-1])[::-1]
    return float(times[np.argmin(first[:-1] + second[1:])]) + 1.0


def _find_cuts(corridor: Corridor) -> list[float]:
    """Return the times that the longest stretches with a line do not reach, one after another."""
    times = corridor.times
    cuts: list[float] = []
    begin = 0
    while begin < len(times) - 1:
        reached = _reach(corridor, times, begin)
        if reached >= len(times) - 1:
            break
        begin = reached + 1
        cuts.append(float(times[begin]))
    return cuts


def _fits(corridor: Corridor, begin: float, end: float) -> bool:
    fit = corridor.cut(begin, end).fit()
    return fit is None or fit.margin >= 0


def _reach(corridor: Corridor, times: F64, begin: int) -> int:
    """Return the last time up to which a line from `begin` on is possible."""
    good, step = begin, 64
    while good < len(times) - 1:
        ahead = min(good + step, len(times) - 1)
        if not _fits(corridor, times[begin], times[ahead]):
            bad = ahead
            break
        good, step = ahead, step * 2
    else:
        return good
    while bad - good > 1:
        middle = (good + bad) // 2
        if _fits(corridor, times[begin], times[middle]):
            good = middle
        else:
            bad = middle
    return good


def _reach_back(corridor: Corridor, cut: float, end: float) -> float:
    """Return the last time from which on no line up to `end` is possible."""
    times = corridor.times
    last = int(np.searchsorted(times, end)) - 1 if np.isfinite(end) else len(times) - 1
    good, step = int(np.searchsorted(times, cut)), 64
    while True:
        bad = max(good - step, 0)
        if not _fits(corridor, times[bad], times[last]):
            break
        if bad == 0:
            return float(times[0])
        good, step = bad, step * 2
    while good - bad > 1:
        middle = (good + bad) // 2
        if _fits(corridor, times[middle], times[last]):
            good = middle
        else:
            bad = middle
    return float(times[bad])


# The chosen clock between steps.


def _straight(corridor: Corridor, fit: Fit, first: float, last: float) -> _Stretch:
    ends = np.array([first, last])
    values = fit.value + fit.drift * ends
    return _Stretch(first, last, first, last, corridor, ends, values, fit.margin)


def _bent(part: Corridor) -> _Stretch | None:
    """Return a line between the messages, or the straightest clock that goes between them.

    Straight between knots, of which there are as few as possible, twice.
    """
    fit = part.fit()
    if fit is None:
        return None
    begin, end = part.span
    if fit.margin >= 0:
        return _straight(part, fit, begin, max(end, begin + 1))
    count, enough = 3, False
    while count <= _MOST_KNOTS:
        knots = np.linspace(begin, end, count)
        solved = _thread(part, knots)
        if solved is not None and (enough or count * 2 > _MOST_KNOTS):
            return _Stretch(begin, end, begin, end, part, knots, *solved)
        enough = solved is not None
        count = 2 * count - 1
    return None


def _thread(part: Corridor, knots: F64) -> tuple[F64, float] | None:
    """Lay a clock that is straight between knots far from floor and ceiling, in each stretch."""
    require("a clock whose rate changes", "stats")
    from scipy.optimize import linprog  # noqa: PLC0415 - half a second, for clocks that bend only
    from scipy.sparse import csr_matrix  # noqa: PLC0415

    parts = [part.cut(a, b).hulls() for a, b in pairwise(knots.tolist())]
    fits = [each.fit() for each in parts]
    if any(fit is not None and fit.margin < 0 for fit in fits):
        return None
    most = float(np.median([fit.margin for fit in fits if fit is not None] or [0.0]))
    count = len(knots)
    # Unknown: values at the knots, margins between them, bends at them.
    width = 3 * count - 3
    rows: list[F64] = []
    sides: list[F64] = []
    for number, of in enumerate(parts):
        for sign, x, y in ((1.0, of.low_x, of.low), (-1.0, of.high_x, of.high)):
            share = (x - knots[number]) / (knots[number + 1] - knots[number])
            row = np.zeros((len(x), width))
            row[:, number], row[:, number + 1] = -sign * (1 - share), -sign * share
            row[:, count + number] = 1.0
            rows.append(row)
            sides.append(-sign * y)
    slope, bend = np.zeros((count - 1, width)), np.zeros((count - 2, width))
    at = np.arange(count - 1)
    slope[at, at], slope[at, at + 1] = -1.0, 1.0
    at = at[:-1]
    bend[at, at], bend[at, at + 1], bend[at, at + 2] = 1.0, -2.0, 1.0
    other = -bend
    bend[at, 2 * count - 1 + at] = other[at, 2 * count - 1 + at] = -1.0
    reach = CLOCKS.largest_drift * np.diff(knots)
    solved = linprog(
        # What is gained in margin is worth half as much bending.
        np.concatenate([np.zeros(count), np.full(count - 1, -2.0), np.ones(count - 2)]),
        A_ub=csr_matrix(np.vstack([*rows, slope, -slope, bend, other])),
        b_ub=np.concatenate([*sides, reach, reach, np.zeros(2 * count - 4)]),
        bounds=[(None, None)] * count + [(0.0, most)] * (count - 1) + [(0.0, None)] * (count - 2),
    )
    if not solved.success:
        return None
    return solved.x[:count], float(solved.x[count : 2 * count - 1].min())


# What the result says.


def _make_lines(
    stretches: list[_Stretch], corridor: Corridor
) -> tuple[tuple[ClockLine, ...], tuple[tuple[int, int], ...]]:
    lines: list[ClockLine] = []
    steps: list[tuple[int, int]] = []
    for of in stretches:
        inner = of.knots[(of.knots > of.begin) & (of.knots < of.end)]
        if len(of.knots) == 2:
            inner = inner[:0]
        edges = np.concatenate([[of.begin], inner, [of.end]])
        values = of.at(edges)
        whole = [corridor.origin + round(edge) for edge in edges.tolist()]
        shift = [corridor.base + round(value) for value in values.tolist()]
        if lines:
            steps.append((whole[0], shift[0] - lines[-1].at(whole[0])))
        lines += [
            ClockLine(a, b, c, float(d))
            for (a, b), c, d in zip(
                pairwise(whole), shift, np.diff(values) / np.diff(edges), strict=False
            )
        ]
    return tuple(lines), tuple(steps)


def _tell_bounds(stretches: list[_Stretch], corridor: Corridor) -> I64:
    """Return the bound at points of the recording; about a step it spans both sides."""
    begin, end = stretches[0].begin, stretches[-1].end
    points = int(min(max(_POINTS, (end - begin) / _APART), _MOST_POINTS))
    grid = np.linspace(begin, end, points)
    rows = []
    for number, of in enumerate(stretches):
        edges = [of.begin, of.end, *(x for x in (of.before, of.after) if of.begin < x < of.end)]
        inner = np.concatenate([grid, of.knots])
        times = np.unique([*edges, *inner[(inner > of.begin) & (inner < of.end)]])
        low, high = of.band(times)
        for other, doubtful in (
            (number - 1, times <= of.before),
            (number + 1, times >= of.after),
        ):
            if 0 <= other < len(stretches) and doubtful.any():
                least, most = stretches[other].band(times)
                low = np.where(doubtful, np.minimum(low, least), low)
                high = np.where(doubtful, np.maximum(high, most), high)
        chosen = of.at(times)
        at = corridor.origin + np.rint(times).astype(np.int64)
        rows.append(
            np.column_stack(
                [
                    at,
                    np.floor(np.minimum(low - chosen, 0)).astype(np.int64) - 1,
                    np.ceil(np.maximum(high - chosen, 0)).astype(np.int64) + 1,
                ]
            )
        )
    return np.concatenate(rows)
