"""What a reader must know of a coarse detection, one sentence each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from critpath.detect.effects import Effects
from critpath.detect.families import Families
from critpath.detect.mix import mix_shift
from critpath.model import I64, Bool
from critpath.units import format_ns, format_share, plural


@dataclass(frozen=True)
class Circumstances:
    """What the sentences are made of; ``slower`` is bool [strata, columns]."""

    names: tuple[str, ...]
    strata: tuple[I64, I64]
    effects: Effects
    families: Families
    slower: Bool
    alpha: float
    floor: float
    asked_floor: float
    floor_share: float
    enough: bool


def describe(about: Circumstances) -> list[str]:
    """Return the sentences."""
    notes = []
    normal, sample = about.strata
    if about.floor_share > about.asked_floor:
        notes.append(
            f"effect floor raised from {format_share(about.asked_floor)} to "
            f"{format_share(about.floor_share)}: three standard deviations of the normal "
            "sessions' means"
        )
    if not about.enough:
        notes.append(
            f"{plural(len(normal), 'normal execution')} against {len(sample)}: "
            f"no difference, however large, could reach the level {about.alpha:g}"
        )
    found = about.effects
    change = float(found.sample_mean[-1] - found.normal_mean[-1])
    if change <= -about.floor and change < 0:
        notes.append(
            f"the sample is faster by {format_ns(-change)} in total; only slow-downs are anomalies"
        )
    mix = mix_shift(normal, sample)
    if mix <= about.alpha:
        notes.append(
            f"the sample has another mix of execution types (p = {mix:.2g}): "
            "a finding of its own, no slow-down"
        )
    if found.orphans:
        notes.append(
            f"{plural(found.orphans, 'sample execution')} of a type without normal "
            "executions: compared with the mean of all, not part of the test"
        )
    for stratum, column in np.argwhere(about.slower):
        effect = found.stratum_effect[stratum, column]
        p = about.families.stratum_p_value[stratum, column]
        notes.append(
            f"type {stratum} by itself: {about.names[column]} {format_ns(effect, sign=True)} "
            f"(adjusted p = {p:.2g})"
        )
    return notes
