"""Which of some values have a change: a mixture of those before and of the same ones, changed.

The values before say what one without the change is like: a kernel density of their logarithms,
of which the sample's may be a little off by the machine's pace.  The change multiplies or adds,
by about as much in all that have it.  How much, how evenly, in which share and at which pace is
not estimated but averaged over (a grid of all of them, weighed by how likely it makes the
values), so the posterior of a value and the interval of their number know how unsure that is.
That all have the change is a hypothesis of its own; that none has it may be one.

The likelihood counts as of at most `MIXTURE.coarse` values (Miller and Dunson 2019): no change is
exactly of this form, and the more values there are the surer that would show.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
from msgspec import Struct

from critpath.model import F64, I64
from critpath.schema.parameters.cluster import MIXTURE

_POINTS = 256  # technical: bins that many values are counted in
_KERNELS = 120  # technical: quantiles that stand for many values before
_LEAST = 1e-4  # technical: hypotheses of less weight together add nothing
_LOGISTIC = 1.702  # technical: the normal distribution as a logistic one
_NOTHING = -300.0  # technical: the logarithm of what counts as nothing
_SURE = 1e-3  # technical: spread of a number of which nothing is unsure
_FARTHEST = 40.0  # technical: beyond it nothing is left
_ROOT = math.sqrt(2 * math.pi)


class Mixture(Struct, frozen=True, eq=False):
    """Who has a change, and how sure that is.

    Attributes
    ----------
    posterior : float64 [values]
        Of each to have the change.
    low, high : int
        Ends of the 95 % interval of how many have it.
    gain : float
        Logarithm of how much likelier the values are with a change than without.
    """

    posterior: F64
    low: int
    high: int
    gain: float

    @property
    def marked(self) -> int:
        """How many are likelier to have the change than not."""
        return int((self.posterior > 0.5).sum())  # technical: likelier than not


def find_changed(
    before: F64, after: F64, *, pace: float, none: float, moved: F64 | None = None
) -> Mixture:
    """Return who of ``after`` has a change.

    Parameters
    ----------
    before, after : float64 [n], [m]
        Logarithms, at least two and one.
    pace : float
        By how much the machine's pace makes all differ, as a standard deviation of logarithms.
    none : float
        Prior probability of no change at all.
    moved : float64 [n], optional
        How much of the pace each value before follows, 1 by default: what is 0 stays so.
    """
    values, many, place = _count_values(after, min(before.min(), after.min()))
    density = _Density.of(before, values, np.ones(len(before)) if moved is None else moved)
    apart = pace * MIXTURE.between  # so that nothing lies between paces that are tried
    usual = np.array([density.shifted(pace * off, apart) for off in MIXTURE.paces])
    of_pace = _normalise(-0.5 * np.array(MIXTURE.paces) ** 2)
    changed = density.changed()
    m = int(many.sum())
    shares = _list_shares(m)
    heat = MIXTURE.coarse / (MIXTURE.coarse + m)
    # Logarithms of weights: a share of them changed [paces, changes, shares], all, none.
    some = np.empty((len(usual), len(changed), len(shares)))
    for i, share in enumerate(shares.tolist()):
        for each, mine in zip(some, usual, strict=True):
            each[:, i] = np.log((1 - share) * mine + share * changed) @ many
    some = heat * some + of_pace[:, None, None] - math.log(max(some[0].size, 1))
    every = heat * (np.log(changed) @ many) - math.log(len(changed))
    nothing = float(np.logaddexp.reduce(heat * (np.log(usual) @ many) + of_pace))
    some += math.log1p(-MIXTURE.every)
    every += math.log(MIXTURE.every)
    whole = _add_up(some, every)
    gain = whole - nothing
    of_none = none / (none + (1 - none) * math.exp(min(gain, 700.0)))  # technical: finite
    some, every = (_exponentiate(part - whole) * (1 - of_none) for part in (some, every))
    return Mixture(*_weigh(some, every, of_none, (usual, changed, shares, many, place)), gain)


def _weigh(
    some: F64, every: F64, of_none: float, of: tuple[F64, F64, F64, F64, I64]
) -> tuple[F64, int, int]:
    """Return the posterior of each value, and the interval of how many have the change."""
    usual, changed, shares, many, place = of
    order = np.argsort(-some, axis=None, kind="stable")
    held = np.cumsum(some.ravel()[order])
    few = order[: 1 + int(np.searchsorted(held, held[-1] * (1 - _LEAST)))] if len(order) else order
    pace, change, share = np.unravel_index(few, some.shape)
    weight = some.ravel()[few]
    mine = shares[share][:, None] * changed[change]
    posterior = mine / (mine + (1 - shares[share])[:, None] * usual[pace])
    middle, spread = posterior @ many, np.sqrt((posterior * (1 - posterior)) @ many)
    m = int(many.sum())

    def at_most(number: int) -> float:
        """Return the probability of no more than that; of each number would be gigabytes."""
        if number >= m:
            return 1.0
        distance = _LOGISTIC * (middle - (number + 0.5)) / (spread + _SURE)
        below = 1 / (1 + np.exp(np.clip(distance, -_FARTHEST, _FARTHEST)))
        return float(below @ weight) + of_none

    each = np.round(weight @ posterior + every.sum(), 6)[place]
    found = int((each > 0.5).sum())  # technical: likelier than not
    if at_most(found) - (at_most(found - 1) if found else 0.0) >= MIXTURE.sure_count:
        return each, found, found
    low, high = (bisect_left(range(m + 1), end, key=at_most) for end in MIXTURE.interval)
    return each, min(low, found), min(max(high, found), m)


def _add_up(some: F64, every: F64) -> float:
    both = np.concatenate([some.ravel(), every])
    most = both.max()
    return float(most + math.log(_exponentiate(both - most).sum()))


def _exponentiate(logs: F64) -> F64:
    """Return exponentials of logarithms, of which what is nothing is not quite 0."""
    return np.asarray(np.exp(np.maximum(logs, _NOTHING)), np.float64)


def _normalise(logs: F64) -> F64:
    return np.asarray(logs - np.logaddexp.reduce(logs), np.float64)


def _list_shares(m: int) -> F64:
    """Return the shares of the values that may have the change, but for all of them."""
    if m <= MIXTURE.shares:
        return np.arange(1, m) / m
    return (np.arange(MIXTURE.shares) + 0.5) / MIXTURE.shares


def _count_values(after: F64, least: float) -> tuple[F64, F64, I64]:
    """Return the values, or the middles of bins of many; how many each stands for; whose it is."""
    if len(after) <= _POINTS:
        return after, np.ones(len(after)), np.arange(len(after))
    width = max((float(after.max()) - least) / (_POINTS - 1), 1e-9)
    number = np.rint((after - least) / width).astype(np.int64)
    bins, place, many = np.unique(number, return_inverse=True, return_counts=True)
    middles = np.asarray(least + width * bins, np.float64)
    return middles, many.astype(np.float64), np.asarray(place.reshape(-1), np.int64)


class _Density(Struct, frozen=True, eq=False):
    """Kernels of the values before, at the places where densities are asked for."""

    values: F64
    centres: F64
    moved: F64
    width: float
    elsewhere: F64  # density of what is unlike the values before
    rare: float  # its share

    @classmethod
    def of(cls, before: F64, values: F64, moved: F64) -> _Density:
        n = len(before)
        order = np.argsort(before, kind="stable")
        if n > _KERNELS:
            order = order[((np.arange(_KERNELS) + 0.5) * n / _KERNELS).astype(np.int64)]
        centres = before[order]
        middle = float(np.median(before))
        side = np.where(values > middle, MIXTURE.upwards, 1 - MIXTURE.upwards)
        spread = float(before.std(ddof=1))
        return cls(
            *(values, centres, moved[order], _choose_width(centres, spread)),
            *(side * _exponentiate(-np.abs(values - middle)), MIXTURE.rarity / (n + 1)),
        )

    def shifted(self, by: float, apart: float) -> F64:
        """Return the density of values without the change, on a machine of another pace."""
        wide = np.hypot(self.width, apart * self.moved)
        return self._with_rare(_add_kernels(self.values, self.centres + by * self.moved, wide))

    def changed(self) -> F64:
        """Return the densities of changed values [changes, values]: times as long, and longer."""
        time, middle = np.exp(self.centres), math.exp(float(np.median(self.centres)))
        found = []
        for rise in MIXTURE.least_rise * MIXTURE.step ** np.arange(MIXTURE.rises):
            for uneven in MIXTURE.uneven:
                wide = math.hypot(self.width, rise * uneven)
                found.append(_add_kernels(self.values, self.centres + rise, wide))
                added = middle * math.expm1(rise)
                both = np.hypot(self.width * time, added * uneven) / (time + added)
                wider = np.hypot(both, MIXTURE.blur)
                found.append(_add_kernels(self.values, np.log(time + added), wider))
        return self._with_rare(np.array(found))

    def _with_rare(self, density: F64) -> F64:
        return np.asarray((1 - self.rare) * density + self.rare * self.elsewhere, np.float64)


def _choose_width(centres: F64, spread: float) -> float:
    """Return the width of kernels under which each value is likeliest, by all others."""
    best, chosen = -math.inf, MIXTURE.blur
    apart = centres[:, None] - centres
    for share in MIXTURE.widths:
        width = math.hypot(share * spread, MIXTURE.blur)
        kernels = _shape_kernels(apart / width) / width
        np.fill_diagonal(kernels, 0.0)
        others = kernels.sum(axis=1) / max(len(centres) - 1, 1)
        likely = float(np.log(others + MIXTURE.least_density).sum())
        if likely > best:
            best, chosen = likely, width
    return chosen


def _add_kernels(values: F64, centres: F64, width: F64 | float) -> F64:
    kernels = _shape_kernels((values[:, None] - centres) / width) / width
    return np.asarray(kernels.mean(axis=1), np.float64)


def _shape_kernels(distance: F64) -> F64:
    """Return the normal density, a tenth of it three times as wide: tails are seldom normal."""
    squares = -0.5 * distance**2
    tails, wide = MIXTURE.tails, MIXTURE.wide
    shape = (1 - tails) * _exponentiate(squares) + tails / wide * _exponentiate(squares / wide**2)
    return np.asarray(shape / _ROOT, np.float64)
