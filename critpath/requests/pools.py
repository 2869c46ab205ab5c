"""Who asked, where a loop hands requests over to a pool of threads that ask by themselves.

What a thread of the pool asks between two moments at which it tells the loop that it is done is a
unit, and of one request: it begins after that was received and ends before it is answered.  Both
queues are first in, first out, so places in order are compared rather than times: which unit is the
how manieth to begin, which request the how manieth to be received; and so at the end.  How often
each end is out of order is measured, and it weighs the less for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from critpath.model import F64, I64, Bool
from critpath.model.requests import NONE, Certainty, Rule
from critpath.records import dataclass
from critpath.requests.matching import IMPOSSIBLE, find_regrets, match, to_probability
from critpath.schema.parameters.requests import POOLS

if TYPE_CHECKING:
    from critpath.requests.rounds import Helpers

_AT_ONCE: Final = 128  # technical: units of one assignment at most; the first half of them is kept
_NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Units:
    """What threads of a pool did, in order of the first that they asked.

    Attributes
    ----------
    thread : int64 [n]
    since : int64 [n]
        When the thread had told that the unit before was done; 0 where there is none.
    asked : int64 [n]
        When it first asked.
    result : int64 [n]
        When it had its last result.
    done : int64 [n]
        When it was done, as far as is seen.
    """

    thread: I64
    since: I64
    asked: I64
    result: I64
    done: I64

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.asked)


def find_units(
    helpers: Helpers, loop: int, asks: Mapping[int, tuple[I64, I64]]
) -> tuple[Units, Sequence[I64]]:
    """Cut what threads ask into units at the moments at which they tell a loop that they are done.

    Parameters
    ----------
    helpers : Helpers
        What the threads of the loop's process do.
    loop : int
    asks : mapping
        When each thread that may be of its pool asked, in order, and when it had the results.

    Returns
    -------
    units : Units
    groups : sequence of int64
        Which of the thread's asks are of each unit.
    """
    columns: list[tuple[int, ...]] = []
    groups: list[I64] = []
    for thread, back in helpers.hand_backs(loop, [*asks]).items():
        begin, end = asks[thread]
        told, done = np.array([*back, (_NEVER, 0)], np.int64).T
        of = np.searchsorted(told, begin)
        numbers, first = np.unique(of, return_index=True)
        parts = np.split(np.arange(len(of)), first[1:])
        for group, number in zip(parts, numbers.tolist(), strict=True):
            since = int(told[number - 1]) if number else 0
            result = int(end[group[-1]])
            asked = int(begin[group[0]])
            columns.append((thread, since, asked, result, max(int(done[number]), result)))
            groups.append(group)
    table = np.array(columns, np.int64).reshape(-1, 5)
    order = np.argsort(table[:, 2], kind="stable")
    return Units(*table[order].T), [groups[at] for at in order.tolist()]


class Pooled:
    """Whose sub-requests of pools are, how probably, and what their threads did for it.

    Parameters
    ----------
    many : int
        Sub-requests.
    """

    def __init__(self, many: int) -> None:
        self.owner = np.full(many, NONE, np.int64)  # -1: no pool asked it
        self.probability = np.zeros(many)
        self._slices = [np.zeros((0, 8), np.int64)]

    def add(
        self,
        units: Units,
        groups: Sequence[I64],
        rows: Mapping[int, I64],
        requests: I64,
        times: I64,
    ) -> None:
        """Assign the units of a loop's pool, unless its threads are made for one request each.

        Parameters
        ----------
        units, groups
            As `find_units` returns them.
        rows : mapping
            The sub-requests of each thread.
        requests : int64 [n]
            Rows of the loop's requests in order of receiving.
        times : int64 [n, 3]
            When each of them begins, is received, and ends.
        """
        if len(units) < POOLS.units * len(np.unique(units.thread)):
            return
        chosen, sure = assign_units(units, times[:, 1], times[:, 2])
        some = np.flatnonzero(chosen >= 0)
        for at in some.tolist():
            which = rows[int(units.thread[at])][groups[at]]
            self.owner[which], self.probability[which] = requests[chosen[at]], sure[at]
        begin = np.maximum(units.since[some], times[chosen[some], 1])
        end = np.minimum(units.done[some], times[chosen[some], 2])
        sure_of = judge_probability(sure[some])
        each = np.ones(len(some), np.int64)
        columns = (units.thread[some], begin, end, requests[chosen[some]], each)
        made = np.column_stack([*columns, each * Rule.ASSIGNED, sure_of, -each])
        self._slices.append(made[end > begin])

    def slices(self) -> I64:
        """Return rows as the native pass does (`_owners.Owners.take_slices`)."""
        return np.vstack(self._slices)


def judge_probability(probability: F64) -> I64:
    """Return how sure what is so probable is called."""
    return np.where(probability >= POOLS.sure, Certainty.LIKELY, Certainty.DOUBTFUL).astype(
        np.int64
    )


def assign_units(units: Units, received: I64, answered: I64) -> tuple[I64, F64]:
    """Return whose units are, and how probably.

    Parameters
    ----------
    units : Units
    received, answered : int64 [n]
        Of the requests of the loop that they are of, in order of receiving.

    Returns
    -------
    owner : int64
        Places of the requests; -1 for none.
    probability : float64
    """
    opened = np.searchsorted(received, units.result, side="right")
    closed = np.searchsorted(np.sort(answered), units.result)
    within = bool((opened <= closed).sum() <= POOLS.outside * len(units))
    ends = _Ends(units, received, answered, within=within)
    for _ in range(POOLS.rounds):
        ends.solve(min(len(units), POOLS.learned_from))
        ends.sharpen()
    return ends.solve(len(units))


class _Ends:
    """Units and requests, compared by their places among those that begin and those that end."""

    def __init__(self, units: Units, received: I64, answered: I64, *, within: bool) -> None:
        self._units, self._received, self._answered = units, received, answered
        self._within = within
        self._spread = [*POOLS.spread]
        self._apart: tuple[list[F64], ...] = ([], [])

    def sharpen(self) -> None:
        """Learn from what was assigned how far each end is out of order."""
        ends = [np.concatenate([np.zeros(1), *each]) for each in self._apart]
        roots = [float(np.sqrt(np.mean(each**2))) for each in ends]
        self._spread = [*map(max, roots, POOLS.sharpest)]

    def solve(self, many: int) -> tuple[I64, F64]:
        """Assign so many of the units, some at once; those near the edge again with the next."""
        units = self._units
        owner, sure = np.full(many, NONE), np.zeros(many)
        taken = np.zeros(len(self._received), np.bool_)
        self._apart = ([], [])
        first = begin = 0  # requests before the first are all taken, or answered
        while begin < many:
            some = np.arange(begin, min(begin + _AT_ONCE, many))
            last = int(np.searchsorted(self._received, units.asked[some[-1]], side="right"))
            could = first + np.flatnonzero(~taken[first:last])
            if self._within:
                could = could[self._answered[could] >= units.asked[some[0]]]
            could = could[-2 * _AT_ONCE :]
            first = int(could[0]) if len(could) else last
            apart, fits = self._compare(some, could)
            cost = sum((a / s) ** 2 / 2 for a, s in zip(apart, self._spread, strict=False))
            cost = np.where(fits, cost, IMPOSSIBLE)
            chosen = match(cost)
            regret = find_regrets(cost, chosen)
            kept = len(some) if some[-1] + 1 == many else len(some) // 2
            mine = np.flatnonzero(chosen[:kept] >= 0)
            for end, each in enumerate(apart):
                self._apart[end].append(each[mine, chosen[mine]])
            owner[some[mine]] = could[chosen[mine]]
            taken[could[chosen[mine]]] = True
            rivals = fits[mine].sum(axis=1)
            # One that overtakes another moves both their places, and so is counted twice.
            sure[some[mine]] = to_probability(regret[mine] / 2, rivals)
            begin += kept
        return owner, sure

    def _compare(self, units: I64, requests: I64) -> tuple[list[F64], Bool]:
        """Return how many places apart ends of units and requests are, and which are possible."""
        of = self._units
        received, answered = self._received[requests], self._answered[requests]
        possible = of.asked[units][:, np.newaxis] >= received
        apart = [_places(of.asked[units])[:, np.newaxis] - _places(received)]
        if self._within:
            possible &= of.result[units][:, np.newaxis] <= answered
            apart.append(_places(of.done[units])[:, np.newaxis] - _places(answered))
        return apart, possible


def _places(times: I64) -> F64:
    """Return the how manieth each is."""
    found = np.empty(len(times))
    found[np.argsort(times, kind="stable")] = np.arange(len(times))
    return found
