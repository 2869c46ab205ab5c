"""What the gate flags: significant, large enough, and large beyond the doubt of its size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from critpath.detect.effects import Effects
from critpath.detect.families import Families
from critpath.model import F64, Bool, Change

# Normal quantile of 90 %: a mean that is this many standard errors above nothing.  Without
# it a shift that is certain but tiny in one type would count as what the chance of another,
# noisy one adds to the mean.
SURE = 1.2816


@dataclass(frozen=True)
class Flags:
    """Bool arrays: over all types [columns], in each [strata, columns]."""

    over_all: Bool
    by_type: Bool

    @property
    def columns(self) -> Bool:
        """Columns that are flagged anywhere."""
        return np.asarray(self.over_all | self.by_type.any(axis=0), dtype=np.bool_)


def large(effect: F64, error: F64, floor: F64 | float) -> Bool:
    """Tell which effects reach the floor, and are surely above nothing.

    Parameters
    ----------
    effect, error : float64
        Differences of means and their standard errors (ns).
    floor : float64 or float
        ns.
    """
    return np.asarray(
        (effect > 0) & (effect >= floor) & (effect >= SURE * error), dtype=np.bool_
    )  # fmt: skip


def flag(families: Families, effects: Effects, *, alpha: float, floor: float) -> Flags:
    """Apply the gate.

    Parameters
    ----------
    families : Families
    effects : Effects
    alpha : float
    floor : float
        Share of the normal mean duration; within a type, of that type's.
    """
    whole = effects.sample_mean - effects.normal_mean
    over_all = large(whole, effects.error, floor * effects.normal_mean[-1])
    least = floor * effects.stratum_mean[:, -1:]
    by_type = large(effects.stratum_effect, effects.stratum_error, least)
    return Flags(
        over_all & (families.p_value <= alpha), by_type & (families.stratum_p_value <= alpha)
    )


def changes(
    families: Families,
    effects: Effects,
    flags: Flags,
    names: tuple[str, ...],
    *,
    alpha: float,
    floor: float,
) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
    """Return what is flagged, and what is significant all the same; the largest first."""
    whole = effects.sample_mean - effects.normal_mean
    rows = [
        (-1, whole, families.p_value, flags.over_all, effects.normal_mean[-1]),
        *(
            (s, effects.stratum_effect[s], families.stratum_p_value[s], flags.by_type[s], mean)
            for s, mean in enumerate(effects.stratum_mean[:, -1])
        ),
    ]
    slower: list[Change] = []
    slight: list[Change] = []
    for kind, effect, p_value, flagged, mean in rows:
        for i in np.flatnonzero((p_value <= alpha) & (effect > 0)):
            change = Change(
                names[i], kind, float(effect[i]), float(p_value[i]), floor * float(mean),
                float(mean),
            )  # fmt: skip
            (slower if flagged[i] else slight).append(change)
    return tuple(_ordered(slower)), tuple(_ordered(slight))


def _ordered(found: list[Change]) -> list[Change]:
    # Over all types before one of them, if it is as large.
    return sorted(found, key=lambda c: (-c.effect, c.kind, c.name))
