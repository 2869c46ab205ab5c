"""Connections from before the recording, of messages that are alike: known by both ways at once.

Where the ends of a connection take turns, one number says which turn of the one end is which of the
other: a shift.  Between requests there is time, and never the same: a wrong shift has a message
arrive before it left, whatever the clocks are.  Nor may a message be missing at an end that
recorded already, or still.  So mostly one shift is left, alone or together with what is
known of other connections of the two hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from critpath.clocks.connections import NEVER, Stream
from critpath.clocks.corridor import make_corridor
from critpath.model import I64, Bool
from critpath.schema.parameters.clocks import CLOCKS

# Times of clock B, and what A's clock is ahead there at least (at most).
_Bounds = tuple[I64, I64]


@dataclass(frozen=True, eq=False)
class Turns:
    """What one end said and heard, in turns.

    Attributes
    ----------
    says : bool [n]
    size, position : int64 [n]
        Bytes of each, and of its direction up to its end.
    bound : int64 [n]
        Before when its last bytes cannot have left, or by when they were there.
    begin, end : int
        From when to when this end's host recorded for sure.
    """

    says: Bool
    size: I64
    position: I64
    bound: I64
    begin: int
    end: int

    def __len__(self) -> int:
        return len(self.says)


def make_turns(sent: Stream, got: Stream, begin: int, end: int) -> Turns:
    """Return the turns of an end by what it sent and received."""
    says = np.repeat([True, False], [len(sent), len(got)])
    order = np.argsort(np.concatenate([sent.times, got.times]), kind="stable")
    says = says[order]
    sizes, positions, bounds = (
        np.concatenate([getattr(sent, name), getattr(got, name)])[order]
        for name in ("sizes", "ends", "bound")
    )
    first = np.flatnonzero(np.concatenate([[True], says[1:] != says[:-1]]))
    last = np.append(first[1:], len(says)) - 1
    return Turns(
        *(says[first], np.add.reduceat(sizes, first), positions[last], bounds[last]),
        *(begin, end),
    )


@dataclass(frozen=True, eq=False)
class OpenConnection:
    """A connection of which it is not known which bytes are which: both ends' turns."""

    one: Turns
    other: Turns


def settle_shifts(
    connections: Sequence[OpenConnection], floor: _Bounds, ceiling: _Bounds
) -> dict[int, tuple[int, int]]:
    """Return for connections of two hosts the turn of each end that are the same one.

    Parameters
    ----------
    connections : sequence of OpenConnection
        The first end of each on host A, the other on host B.
    floor, ceiling : (int64 [n], int64 [n])
        What is known of the clocks: times of B, and what A is ahead at least, at most.

    Returns
    -------
    dict
        By the connection's place; only those of which one shift alone is possible.
    """
    found: dict[int, tuple[int, int]] = {}
    left = dict(enumerate(connections[: CLOCKS.connections]))
    left = {
        n: of
        for n, of in left.items()
        if 0 < len(of.one) <= CLOCKS.most_by_turns >= len(of.other) > 0
    }
    going = True
    while going:
        going = False
        for number, of in [*left.items()]:
            possible = _find_possible(of, floor, ceiling)
            if len(possible) != 1:
                continue
            [(shift, low, high)] = possible
            pair = _find_same(of, shift)
            alone = not (len(floor[0]) and len(ceiling[0]))
            if pair is None or (alone and _count_same(of, shift) < CLOCKS.least_turns):
                continue
            del left[number]
            found[number] = pair
            floor, ceiling = _join(floor, low), _join(ceiling, high)
            going = True
    return found


def _join(one: _Bounds, other: _Bounds) -> _Bounds:
    return np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]])


def _overlap(of: OpenConnection, shift: int) -> tuple[slice, slice]:
    """Return the turns of both ends that would be the same: of A's turn i it is B's i + shift."""
    first, last = max(0, -shift), min(len(of.one), len(of.other) - shift)
    last = max(first, last)
    return slice(first, last), slice(first + shift, last + shift)


def _fits_sizes(of: OpenConnection, shift: int) -> bool:
    here, there = _overlap(of, shift)
    if bool((of.one.says[here] == of.other.says[there]).any()):
        return False
    alike = of.one.size[here] == of.other.size[there]
    # A recording may have begun, or ended, in the middle of a turn.
    alike[0] = alike[-1] = True
    return bool(alike.all())


def _count_same(of: OpenConnection, shift: int) -> int:
    here, _ = _overlap(of, shift)
    return int(here.stop - here.start)


def _find_same(of: OpenConnection, shift: int) -> tuple[int, int] | None:
    """Return the first turn of which both ends have all bytes."""
    here, there = _overlap(of, shift)
    alike = np.flatnonzero(of.one.size[here] == of.other.size[there])
    return (here.start + int(alike[0]), there.start + int(alike[0])) if len(alike) else None


def _find_possible(
    of: OpenConnection, floor: _Bounds, ceiling: _Bounds
) -> list[tuple[int, _Bounds, _Bounds]]:
    """Return the shifts that no message contradicts, with what each says of the clocks; two do."""
    possible = []
    # Both ends were recorded at one time: something of what was said is at both.
    for shift in range(1 - len(of.one), len(of.other)):
        if not _fits_sizes(of, shift):
            continue
        low, high = _bounds_of(of, shift)
        least, most = _join(floor, low), _join(ceiling, high)
        if len(least[0]) and len(most[0]):
            every = np.concatenate([least[0], most[0]])
            slack = CLOCKS.largest_drift * float(every.max() - every.min())
            if least[1].max() - most[1].min() > 2 * slack:
                continue
            fit = make_corridor(least, most).fit()
            if fit is not None and fit.margin < 0:
                continue
        possible.append((shift, low, high))
        if len(possible) > 1:
            break
    return possible


def _bounds_of(of: OpenConnection, shift: int) -> tuple[_Bounds, _Bounds]:
    """Return what a shift would say of the clocks: by messages there, and by those missing."""
    a, b = of.one, of.other
    here, there = _overlap(of, shift)
    says = a.says[here]
    ours, theirs = a.bound[here], b.bound[there]
    known = (ours != NEVER) & (theirs != NEVER)
    to, back = says & known, ~says & known
    floor = [np.column_stack([theirs[to], ours[to] - theirs[to]])]
    ceiling = [np.column_stack([theirs[back], ours[back] - theirs[back]])]
    # What left before the other host recorded came before that; what came behind left later.
    before, behind = slice(0, here.start), slice(here.stop, None)
    early = a.bound[before][a.says[before]]
    floor.append(_against(early[early != NEVER], b.begin))
    late = a.bound[behind][~a.says[behind]]
    ceiling.append(_against(late[late != NEVER], b.end))
    before, behind = slice(0, there.start), slice(there.stop, None)
    early = b.bound[before][b.says[before]]
    early = early[early != NEVER]
    ceiling.append(np.column_stack([early, a.begin - early]))
    late = b.bound[behind][~b.says[behind]]
    late = late[late != NEVER]
    floor.append(np.column_stack([late, a.end - late]))
    low, high = np.concatenate(floor), np.concatenate(ceiling)
    return (low[:, 0], low[:, 1]), (high[:, 0], high[:, 1])


def _against(ours: I64, edge: int) -> I64:
    """Return what times of A say that a moment of B was after, or before."""
    return np.column_stack([np.full(len(ours), edge, np.int64), ours - edge])


def find_shifts(of: OpenConnection, pair: tuple[int, int]) -> tuple[int, int]:
    """Return what to add to positions of receives, of what A sent and of what B sent.

    Positions of a direction differ by what an end did not record; all that was sent had arrived
    when the turn `pair`, that of A and that of B, was over.
    """
    here, there = _positions(of.one, pair[0]), _positions(of.other, pair[1])
    return here[0] - there[1], there[0] - here[1]


def _positions(of: Turns, turn: int) -> tuple[int, int]:
    """Return how much an end had sent and received when a turn ended."""
    found = []
    for says in (True, False):
        rows = np.flatnonzero(of.says[: turn + 1] == says)
        if len(rows):
            found.append(int(of.position[rows[-1]]))
            continue
        later = np.flatnonzero(of.says == says)
        found.append(int(of.position[later[0]] - of.size[later[0]]) if len(later) else 0)
    return found[0], found[1]
