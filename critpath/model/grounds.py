"""What an answer rests on: figures held against numbers, and what each cause weighs."""

from __future__ import annotations

import math

from msgspec import Struct


class Ground(Struct, frozen=True):
    """A figure that was held against a number when an answer was given.

    Attributes
    ----------
    kind : str
        ``lost``, ``executions``, ``level``, ``floor``, ``sure``, ``percentile``, ``sign``,
        ``signs`` or ``recordings``.
    name : str
        What the figure is of: a set, a state, ``total``, a percentile, or the kind of a sign.
    label : str
        The type of executions that it is of, "" for all of them.
    value, limit : float
        The figure, and what it was held against.
    unit : str
    parameter : str
        The number that the limit is, or is made of; "" if there is none.
    least : bool
        The figure has to be at least the limit; else at most.
    otherwise : str
        The verdict if this alone were the other way, "" for the same one.
    """

    kind: str
    name: str
    label: str
    value: float
    limit: float
    unit: str
    parameter: str
    least: bool
    otherwise: str = ""

    @property
    def holds(self) -> bool:
        """Whether the figure keeps to its limit."""
        return self.value >= self.limit if self.least else self.value <= self.limit


class Weight(Struct, frozen=True):
    """What a cause is ranked by.

    Attributes
    ----------
    whole : float
        What its findings come to (ns).
    told : float
        The same, as far as it tells something: what normal executions do as well, and waits for a
        cpu that all share, count in part.
    moved : float
        Half of what may only have moved from it to another (ns).
    executions : int
        That bear it out.
    seen : float
        1, or what of it counts because it was not observed.
    trust : float
        How far its executions are apart from normal ones in it: 1 where they all are.
    decisive : bool
        The verdict rests on its state, so it comes before all whose it does not rest on.
    """

    whole: float
    told: float
    moved: float
    executions: int
    seen: float
    trust: float
    decisive: bool = False

    @property
    def value(self) -> float:
        """What it weighs (ns): negative for what became faster."""
        net = self.told - self.moved
        return net * math.sqrt(self.executions) * (self.seen * self.trust if net > 0 else 1.0)
