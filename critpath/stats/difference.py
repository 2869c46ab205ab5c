"""A difference taken apart, exactly: more visits, longer ones, and waits for a CPU by who had it.

Pieces of work take visits x (length x (1 + dilation) + delay) each: the dilation is waits per
nanosecond that it runs, the delay what each visit waits before it does.  What a factor brings is
the mean over all orders in which before can become after (Kitagawa 1955, Das Gupta 1993; the
Shapley value), so the parts add up, and none depends on what is named first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from critpath.schema.parameters.localize import DIFFERENCE

ByWho = tuple[float, float, float]  # the program's own threads, strangers, nobody
NONE: Final[ByWho] = (0.0, 0.0, 0.0)  # technical


class Factors(Struct, frozen=True):
    """How one side does a piece of work, on average.

    Attributes
    ----------
    visits : float
        How often.
    length : float
        How long each runs (ns).
    dilation : (float, float, float)
        Nanoseconds that it waits for a CPU for each that it runs, by who has it.
    delay : (float, float, float)
        Nanoseconds that each visit waits for a CPU before it runs, by who has it.
    """

    visits: float
    length: float
    dilation: ByWho = NONE
    delay: ByWho = NONE

    @property
    def time(self) -> float:
        """What it takes (ns)."""
        each = self.length * (1 + math.fsum(self.dilation)) + math.fsum(self.delay)
        return self.visits * each


class Parts(NamedTuple):
    """What of a difference each factor brings (ns)."""

    visits: float
    length: float
    crowding: float
    machine: float
    nobody: float


def factors_of(visits: float, running: float, cut: ByWho, woken: ByWho) -> Factors:
    """Return a side's factors from its sums: waits while it runs, and before it does."""
    if visits <= 0:  # of what runs though nobody was seen to ask for it
        visits = 1.0 if running or any(cut) or any(woken) else 0.0
    if not visits:
        return Factors(0.0, 0.0)
    if running <= 0:  # nothing that the waits could go with
        cut, woken = NONE, _add(cut, woken)
    rates = _scale(cut, 1 / running) if running > 0 else NONE
    return Factors(visits, running / visits, rates, _scale(woken, 1 / visits))


def take_apart(before: Factors, after: Factors) -> Parts:
    """Return what of the difference of a piece of work each of its factors brings."""
    before, after = _settle(before, after)
    often, long = (before.visits, after.visits), (before.length, after.length)
    visits, length = _two(often, long), _two(long, often)
    brought = []
    for rate, delay in zip(
        zip(before.dilation, after.dilation, strict=True),
        zip(before.delay, after.delay, strict=True),
        strict=True,
    ):
        visits += _three(often, long, rate) + _two(often, delay)
        length += _three(long, often, rate)
        brought.append(_three(rate, often, long) + _two(delay, often))
    return Parts(visits, length, *brought)


def add_parts(parts: Iterable[Parts]) -> Parts:
    """Return the sum of several pieces' parts."""
    several = [*parts] or [Parts(0.0, 0.0, 0.0, 0.0, 0.0)]
    return Parts(*(math.fsum(column) for column in zip(*several, strict=True)))


def round_parts(parts: Parts, whole: float) -> tuple[int, ...]:
    """Return parts as whole nanoseconds that add up to a rounded whole: the largest gives way."""
    rounded = [round(part) for part in parts]
    most = max(range(len(rounded)), key=lambda i: abs(rounded[i]))
    rounded[most] += round(whole) - sum(rounded)
    return tuple(rounded)


def _settle(before: Factors, after: Factors) -> tuple[Factors, Factors]:
    """Return both sides with what one alone cannot tell as the other has it."""
    # What is not done at all would be done as it is where it is.
    if not before.visits:
        return replace(after, visits=0.0), after
    if not after.visits:
        return before, replace(before, visits=0.0)
    if before.length <= after.length:
        return _borrow(before, after), after
    return before, _borrow(after, before)


def _borrow(short: Factors, long: Factors) -> Factors:
    """Return a side whose runs are too short to be cut with the other's dilation.

    A run below a scheduler's slice is seldom cut, and one far above is as often as the machine is
    busy: that is no change of the machine.  What it waited otherwise is its visits' delay.
    """
    if short.length and not short.length < DIFFERENCE.slice <= long.length:
        return short
    pairs = zip(short.delay, short.dilation, long.dilation, strict=True)
    delay = [wait + short.length * (mine - theirs) for wait, mine, theirs in pairs]
    return replace(short, dilation=long.dilation, delay=(delay[0], delay[1], delay[2]))


def _two(mine: tuple[float, float], other: tuple[float, float]) -> float:
    """Return what a factor brings to a product of two."""
    return (mine[1] - mine[0]) * (other[0] + other[1]) / 2


def _three(mine: tuple[float, float], *others: tuple[float, float]) -> float:
    """Return what a factor brings to a product of three."""
    (a, b), (c, d) = others
    return (mine[1] - mine[0]) * (2 * (a * c + b * d) + a * d + b * c) / 6


def _add(one: ByWho, other: ByWho) -> ByWho:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _scale(of: ByWho, by: float) -> ByWho:
    return of[0] * by, of[1] * by, of[2] * by
