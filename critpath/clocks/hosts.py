"""The clocks of all hosts against one: over pairs that exchange messages, claims, one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Final

import numpy as np

from critpath.clocks.corridor import Corridor, make_corridor
from critpath.clocks.icp import align_either_way
from critpath.clocks.pair import PairClock, align_pair
from critpath.extras import require
from critpath.model import F64, I64
from critpath.model.clocks import (
    MESSAGES,
    REFERENCE,
    SAME_KERNEL,
    SAMPLES,
    UNALIGNED,
    ClockAlignment,
    ClockFacts,
    ClockLine,
    Crossings,
    HostClock,
)
from critpath.schema.parameters.clocks import CLOCKS

# Messages by sender and receiver (positions of hosts).
Exchanged = Mapping[tuple[int, int], Crossings]
_NONE: Final = Crossings(np.zeros(0, np.int64), np.zeros(0, np.int64))
_SAME: Final = PairClock((ClockLine(0, 1, 0, 0.0),), np.zeros((1, 3), np.int64), ())


@dataclass(frozen=True, eq=False)
class _Known:
    """A host's clock against another's, and how that is known."""

    clock: PairClock
    source: str


def align_clocks(
    facts: Sequence[ClockFacts],
    exchanged: Exchanged,
    reference: int = 0,
    *,
    nearest: bool = False,
) -> ClockAlignment:
    """Put the clocks of all hosts on the line of one of them.

    Parameters
    ----------
    facts : sequence of ClockFacts
        Of every host.
    exchanged : mapping
        Messages between two hosts.
    reference : int
        Position of the host whose clock the others are expressed in.
    nearest : bool
        By `critpath.clocks.icp`, from messages alone and without bounds, for comparison.

    Returns
    -------
    ClockAlignment

    Notes
    -----
    Each pair of hosts bounds the line between its clocks (`critpath.clocks.pair`).  A host is
    expressed in the reference's time over the pairs that are known best: a maximum spanning tree by
    how surely.  Where no clock of three and more hosts stepped or bent, one linear programme
    then moves all lines to where the smallest margin of all pairs, by the pair's delay, is
    largest.  The machine that asked all hosts the time is one host more, and is left out of the
    result.
    """
    count, talk = len(facts), exchanged
    compare = _compare_nearest if nearest else _compare
    if not nearest:
        facts, exchanged = _add_asker(facts, exchanged)
    known: dict[tuple[int, int], _Known] = {}
    for a, b in combinations(range(len(facts)), 2):
        found = compare(facts, exchanged, a, b)
        if found is not None:
            known[a, b] = found
    clocks = {reference: _SAME}
    sources = {reference: REFERENCE}
    for near, far in _grow_tree(len(facts), known, reference):
        # The other way round it is found anew: a clock that stood still has no inverse.
        link = known.get((near, far)) or compare(facts, exchanged, near, far)
        if link is None:
            continue
        clocks[far] = _compose(link.clock, clocks[near])
        sources[far] = _weaker(link.source, sources[near])
    if nearest:
        facts = [replace(of, error=-1) for of in facts]
    else:
        clocks = _settle_together(facts, exchanged, reference, clocks, known)
    hosts = tuple(
        _tell(facts, reference, place, clocks.get(place), sources.get(place, UNALIGNED), talk)
        for place in range(count)
    )
    return ClockAlignment(facts[reference].host, hosts)


def _add_asker(
    facts: Sequence[ClockFacts], exchanged: Exchanged
) -> tuple[Sequence[ClockFacts], Exchanged]:
    """Add who asked the hosts the time, as the last host; what it asked are messages."""
    asked = [of.probes for of in facts if len(of.probes)]
    if not asked:
        return facts, exchanged
    here, more = len(facts), dict(exchanged)
    for place, of in enumerate(facts):
        if len(of.probes):
            left, there, back = of.probes.T
            more[here, place] = Crossings(left.copy(), there.copy())
            more[place, here] = Crossings(there.copy(), back.copy())
    times = np.concatenate(asked)[:, [0, 2]]
    kernel = next((of.asker for of in facts if len(of.probes)), "")
    return [*facts, ClockFacts("", int(times.min()), int(times.max()), kernel)], more


# How surely a clock is known over several hosts: as the least sure of the pairs.
_WEAKEST: Final = (SAMPLES, MESSAGES, SAME_KERNEL, REFERENCE)


def _weaker(one: str, other: str) -> str:
    return min(one, other, key=_WEAKEST.index)


def _tell(
    facts: Sequence[ClockFacts],
    reference: int,
    place: int,
    clock: PairClock | None,
    source: str,
    exchanged: Exchanged,
) -> HostClock:
    of = facts[place]
    to = sum(len(m) for (_, b), m in exchanged.items() if b == place)
    sent = sum(len(m) for (a, _), m in exchanged.items() if a == place)
    if clock is None:
        return HostClock(of.host, UNALIGNED, messages=(to, sent))
    host = HostClock(of.host, source, clock.lines, clock.sure, clock.steps, (to, sent))
    claimed = _claim(facts[reference], of) if source in {MESSAGES, SAMPLES} else None
    if claimed is None:
        return host
    (times, offsets), error = claimed
    low, high = host.bounds(times)
    chosen = host.offsets(times)
    held = (offsets - error <= chosen + high) & (chosen + low <= offsets + error)
    return replace(host, claim=error, claim_held=bool(held.all()))


# One pair of hosts.


def _compare(
    facts: Sequence[ClockFacts], exchanged: Exchanged, near: int, far: int
) -> _Known | None:
    """Return the clock of the host `far` against that of `near`."""
    a, b = facts[near], facts[far]
    if a.kernel and a.kernel == b.kernel:
        line = ClockLine(b.begin, max(b.end, b.begin + 1), 0, 0.0)
        ends = np.array([[b.begin, 0, 0], [b.end, 0, 0]], np.int64)
        return _Known(PairClock((line,), ends, ()), SAME_KERNEL)
    to, back = exchanged.get((near, far), _NONE), exchanged.get((far, near), _NONE)
    floor = to.arrived, to.left - to.arrived
    ceiling = back.left, back.arrived - back.left
    clock = align_pair(make_corridor(floor, ceiling), b.begin, b.end)
    claimed = _claim(a, b)
    if claimed is None:
        return None if clock is None else _Known(clock, MESSAGES)
    (times, offsets), error = claimed
    least, most = (times, offsets - error), (times, offsets + error)
    if clock is None:
        clock = align_pair(make_corridor(least, most), b.begin, b.end)
        return None if clock is None else _Known(clock, SAMPLES)
    both = make_corridor(_join(floor, least), _join(ceiling, most))
    fits = both.fit()
    if clock.steps or fits is None or fits.margin < 0:
        return _Known(clock, MESSAGES)
    closer = align_pair(both, b.begin, b.end)
    narrower = closer is not None and closer.width < clock.width
    return _Known(closer if closer is not None and narrower else clock, MESSAGES)


def _compare_nearest(
    facts: Sequence[ClockFacts], exchanged: Exchanged, near: int, far: int
) -> _Known | None:
    """Return the same by PInfer's method."""
    b = facts[far]
    if facts[near].kernel and facts[near].kernel == b.kernel:
        return _compare(facts, exchanged, near, far)
    to, back = exchanged.get((near, far), _NONE), exchanged.get((far, near), _NONE)
    clock = align_either_way(to, back, b.begin, b.end)
    return None if clock is None else _Known(clock, MESSAGES)


def _join(one: tuple[I64, I64], other: tuple[I64, I64]) -> tuple[I64, I64]:
    return np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]])


def _claim(a: ClockFacts, b: ClockFacts) -> tuple[tuple[I64, I64], int] | None:
    """Return times of clock b, what to add there for clock a's, and how wrong that may be.

    From time since the Unix epoch, which the operating systems say they know so well.
    """
    if min(a.error, b.error) < 0 or not len(a.samples) or not len(b.samples):
        return None
    real = b.samples[:, 1]
    inside = (real >= a.samples[0, 1]) & (real <= a.samples[-1, 1])
    times, real = b.samples[inside, 0], real[inside]
    if not len(times):
        return None
    # Clock a at that real time: between its own samples, from the nearer of which it counts on.
    near = np.clip(np.searchsorted(a.samples[:, 1], real), 1, max(len(a.samples) - 1, 1)) - 1
    theirs = a.samples[near, 0] + (real - a.samples[near, 1])
    return (times, theirs - times), a.error + b.error


# Several pairs.


def _grow_tree(
    count: int, known: Mapping[tuple[int, int], _Known], reference: int
) -> list[tuple[int, int]]:
    """Return the edges (near, far) of the tree of what is known best, from the reference on."""
    inside, order = {reference}, []
    while len(inside) < count:
        edges = [
            (of.clock.width, near, far)
            for (a, b), of in known.items()
            for near, far in ((a, b), (b, a))
            if near in inside and far not in inside
        ]
        if not edges:
            break
        _, near, far = min(edges)
        inside.add(far)
        order.append((near, far))
    return order


def _find_own(of: PairClock, times: I64) -> I64:
    """Return the times of clock b that are some of clock a; several, or none, about a step."""
    found = []
    for line in of.lines:
        own = line.begin + (times - line.begin - line.offset) / (1 + line.drift)
        found.append(np.clip(np.rint(own).astype(np.int64), line.begin, line.end))
    return np.unique(np.concatenate(found)) if found else times


def _compose(inner: PairClock, outer: PairClock) -> PairClock:
    """Return clock c against a, of c against b (inner) and b against a (outer)."""
    if outer is _SAME:
        return inner
    of, via = (HostClock("", MESSAGES, x.lines, x.sure) for x in (inner, outer))
    breaks = _find_own(inner, np.array([line.begin for line in outer.lines[1:]], np.int64))
    first, last = inner.lines[0].begin, inner.lines[-1].end
    edges = np.unique([*(line.begin for line in inner.lines), *breaks.tolist(), last])
    edges = edges[(edges >= first) & (edges <= last)]
    lines = []
    for begin, end in pairwise(edges.tolist()):
        ends = np.array([begin, end - 1], np.int64)
        middle = ends + of.offsets(ends)
        offsets = middle + via.offsets(middle) - ends
        drift = float(offsets[1] - offsets[0]) / max(end - 1 - begin, 1)
        lines.append(ClockLine(begin, end, int(offsets[0]), drift))
    times = np.unique(np.concatenate([inner.sure[:, 0], _find_own(inner, outer.sure[:, 0])]))
    times = times[(times >= first) & (times <= last)]
    low, high = of.bounds(times)
    least, most = via.bounds(times + of.offsets(times))
    # A wrong time of b is one at which a's clock against b's differs by the drift, no more.
    slack = 1 + CLOCKS.largest_drift * np.maximum(-low, high)
    sure = np.column_stack(
        [
            times,
            np.floor(low + least - slack).astype(np.int64),
            np.ceil(high + most + slack).astype(np.int64),
        ]
    )
    steps = [*inner.steps]
    steps += [(int(_find_own(inner, np.array([t], np.int64))[0]), by) for t, by in outer.steps]
    return _drop_detours(PairClock(tuple(lines), sure, tuple(sorted(steps))))


def _drop_detours(of: PairClock) -> PairClock:
    """Leave out steps there and back: the host between stood still, not this one."""
    lines, steps = list(of.lines), list(of.steps)
    for (at, by), (then, back) in pairwise(of.steps):
        if abs(by + back) > abs(by) / 1000 or then - at > abs(by) or (at, by) not in steps:
            continue
        steps = [step for step in steps if step not in {(at, by), (then, back)}]
        before = [line for line in lines if line.end <= at]
        behind = [line for line in lines if line.begin >= then]
        if before and behind and before[-1].begin < then:
            lines = [*before[:-1], replace(before[-1], end=then), *behind]
    return replace(of, lines=tuple(lines), steps=tuple(steps))


def _settle_together(
    facts: Sequence[ClockFacts],
    exchanged: Exchanged,
    reference: int,
    clocks: dict[int, PairClock],
    known: Mapping[tuple[int, int], _Known],
) -> dict[int, PairClock]:
    """Move the lines of all hosts to where the smallest margin of all pairs is largest.

    Only where more pairs are known than the tree has, and every clock is one line.  Hosts of one
    kernel have one clock, and move together.
    """
    kernels: dict[str, int] = {}
    leader = {
        place: kernels.setdefault(facts[place].kernel, place) if facts[place].kernel else place
        for place in sorted(clocks, key=lambda place: place != reference)
    }
    pairs = [p for p, of in known.items() if of.source == MESSAGES and clocks.keys() >= {*p}]
    free = sorted({*leader.values()} - {reference})
    if (
        len(pairs) <= len(free)
        or any(len(known[pair].clock.lines) > 1 for pair in pairs)
        or any(len(clocks[place].lines) > 1 for place in leader)
    ):
        return clocks
    require("the clock of three hosts and more", "stats")
    from scipy.optimize import linprog  # noqa: PLC0415 - half a second, for three hosts and more

    lines = {place: (number, clocks[place].lines[0]) for number, place in enumerate(free)}
    column = {place: lines[of] for place, of in leader.items() if of in lines}
    width = 2 * len(free) + 1
    rows, sides = [], []
    for a, b in pairs:
        to, back = exchanged.get((a, b), _NONE), exchanged.get((b, a), _NONE)
        corridor = make_corridor(
            (to.arrived, to.left - to.arrived), (back.left, back.arrived - back.left)
        )
        delay = max(known[a, b].clock.width, 1.0)
        for row, side in _rows_of(corridor.hulls(), (a, b), column, clocks, width):
            row[-1] = delay
            rows.append(row)
            sides.append(side)
    if not rows:
        return clocks
    unit = max([1.0, *map(abs, sides)])
    solved = linprog(
        [*[0.0] * (width - 1), -1.0],
        A_ub=np.array(rows),
        b_ub=np.array(sides),
        bounds=[(-1e3 * unit, 1e3 * unit)] * (width - 1) + [(0.0, None)],
    )
    if not solved.success:
        return clocks
    moved = dict(clocks)
    for place, (number, line) in column.items():
        first, last = solved.x[2 * number : 2 * number + 2]
        own = clocks[place].lines[0]
        ends = [_share(line, own.begin), _share(line, own.end)]
        moved[place] = _move(clocks[place], *(float(first + (last - first) * at) for at in ends))
    return moved


def _share(line: ClockLine, time: int) -> float:
    """Return where in a line a time is: 0 at its begin, 1 at its end."""
    return (time - line.begin) / max(line.end - line.begin, 1)


def _rows_of(
    of: Corridor,
    pair: tuple[int, int],
    column: Mapping[int, tuple[int, ClockLine]],
    clocks: Mapping[int, PairClock],
    width: int,
) -> list[tuple[F64, float]]:
    """Return what each message allows: corrections at begin and end of each host's line.

    Unknown are, for each host, by how much to move its line's begin and its end (ns).
    """
    a, b = pair
    found = []
    hosts = {place: HostClock("", MESSAGES, clocks[place].lines) for place in pair}
    for low, x, y in ((True, of.low_x, of.low), (False, of.high_x, of.high)):
        theirs = of.origin + np.rint(x).astype(np.int64)
        ours = theirs + of.base + np.rint(y).astype(np.int64)
        # In the reference's time as it is now: a message leaves before it arrives.
        gap = (theirs + hosts[b].offsets(theirs)) - (ours + hosts[a].offsets(ours))
        for t_b, t_a, apart in zip(theirs.tolist(), ours.tolist(), gap.tolist(), strict=True):
            sign = 1.0 if low else -1.0
            row = np.zeros(width)
            for place, time, side in ((b, t_b, -sign), (a, t_a, sign)):
                if place not in column:
                    continue
                number, line = column[place]
                share = _share(line, time)
                row[2 * number] += side * (1 - share)
                row[2 * number + 1] += side * share
            found.append((row, sign * apart))
    return found


def _move(of: PairClock, begin: float, end: float) -> PairClock:
    """Return a clock with its line's begin and end moved, and the bound about it as it was."""
    line = of.lines[0]
    length = max(line.end - line.begin, 1)
    moved = replace(
        line, offset=line.offset + round(begin), drift=line.drift + (end - begin) / length
    )
    times = of.sure[:, 0]
    by = HostClock("", MESSAGES, (moved,)).offsets(times) - HostClock(
        "", MESSAGES, (line,)
    ).offsets(times)
    low = np.minimum(of.sure[:, 1] - by, 0) - 1
    high = np.maximum(of.sure[:, 2] - by, 0) + 1
    return PairClock((moved,), np.column_stack([times, low, high]), of.steps)


# Times of a host in the reference's.


def move_times(clock: HostClock, times: I64) -> I64:
    """Return times of a host (ascending) in the reference's clock; they never go back."""
    moved: I64 = np.maximum.accumulate(times + clock.offsets(times))
    return moved
