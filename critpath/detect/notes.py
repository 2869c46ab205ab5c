"""What a reader must know of a coarse detection, one sentence each."""

from __future__ import annotations

from dataclasses import dataclass

from critpath.detect.effects import Effects
from critpath.detect.mix import mix_shift
from critpath.model import I64, Change
from critpath.units import format_ns, format_share, plural


@dataclass(frozen=True)
class Circumstances:
    """What the sentences are made of."""

    names: tuple[str, ...]
    strata: tuple[I64, I64]
    effects: Effects
    slower: tuple[Change, ...]
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
    by_type = [c for c in about.slower if c.kind >= 0]
    notes += [
        f"type n{slow.kind} by itself: {slow.name} {format_ns(slow.effect, sign=True)} "
        f"(adjusted p = {slow.p_value:.2g})"
        for slow in sorted(by_type, key=lambda c: (c.kind, about.names.index(c.name)))
    ]
    return notes
