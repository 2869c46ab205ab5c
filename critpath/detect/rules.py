"""The rules that a verdict can rest on; to add one, write it here.

The command line reads their names, so nothing slow is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from critpath.schema import notes

if TYPE_CHECKING:
    from critpath.detect.coarse import Algorithm1
    from critpath.detect.families import Families, Flags
    from critpath.model import Bool, Change, Detection
    from critpath.stats.means import Effects


class RuleEvidence(Struct, frozen=True):
    """What a rule decides from: the figures of every state, and last of the total.

    Attributes
    ----------
    paper : Algorithm1
    families : Families
        The permutation tests.
    effects : Effects
        Differences of the means and their intervals (ns).
    flags : Flags
        What is significant, large enough and surely above nothing.
    floor : float
        Least effect over all types that counts (ns).
    """

    paper: Algorithm1
    families: Families
    effects: Effects
    flags: Flags
    floor: float


def shift_of(change: Change) -> notes.Shift:
    """Return what is to be said of a change."""
    return notes.Shift(change.name, change.effect, change.kind, change.label, change.p_value)


def _count_flagged(detection: Detection) -> notes.Flagged:
    flagged = [state for state in detection.states if state.flagged and state.level == "error"]
    counted = sum(state.state != "total" for state in flagged)  # the total is no state
    return notes.Flagged(detection.rule, counted, counted < len(flagged))


def _flagged_by_rule(detection: Detection) -> notes.Note:
    states = [s for s in detection.states if s.flagged and s.level == "error"]
    worst = max(states, key=lambda s: s.effect)
    return notes.FlaggedByRule(worst.state, worst.effect, _count_flagged(detection))


def _not_flagged_by_rule(detection: Detection) -> notes.Note:
    return notes.NotFlaggedByRule(detection.rule)


def _flagged_by_gate(detection: Detection) -> notes.Note:
    largest = shift_of(detection.slower[0])
    return notes.FlaggedByGate(largest, detection.slow, _count_flagged(detection))


def _not_flagged_by_gate(detection: Detection) -> notes.Note:
    nearest = detection.slight[0] if detection.slight else None
    deciding = [state.level == "error" for state in detection.states]
    return notes.NotFlaggedByGate(
        alpha=detection.alpha,
        faster=_find_faster(detection),
        slight=shift_of(nearest) if nearest else None,
        floor=nearest.floor if nearest else 0.0,
        shown=_find_shown(detection),
        decides="all" if all(deciding) else "some" if any(deciding[:-1]) else "total",
    )


def _find_shown(detection: Detection) -> notes.Shown | None:
    if detection.detectable is None:
        return None
    whole = detection.whole is None
    mean = detection.states[-1].normal_mean
    few = detection.slow_shown if whole else None
    return notes.Shown(detection.detectable, mean, whole, (few.executions, few.by) if few else None)


def _find_faster(detection: Detection) -> notes.Faster | None:
    """Return by how much the sample is faster, None where that is below the floor or in doubt."""
    total = detection.states[-1]
    if detection.faster is False:
        return None
    low, high = total.effect_low, total.effect_high
    if total.level != "error" or low is None or high is None or high >= -detection.floor:
        return None
    return notes.Faster(total.effect, low, high, total.normal_mean, detection.whole is None)


class VerdictRule(Struct, frozen=True):
    """A rule for the verdict, and what else depends on it.

    Attributes
    ----------
    flag : callable
        Returns bool [symbols + 1]: the states, and last the total, that are slower.
    permutation_test : bool
        It rests on the permutation tests: sets can be too small for their level, and the
        smallest change that they show can be computed.
    floor : bool
        It asks for the effect floor.
    slower, not_slower : callable
        Say what it flags, and why it flags nothing.
    """

    flag: Callable[[RuleEvidence], Bool]
    permutation_test: bool = False
    floor: bool = False
    slower: Callable[[Detection], notes.Note] = _flagged_by_rule
    not_slower: Callable[[Detection], notes.Note] = _not_flagged_by_rule


def _by_gate(evidence: RuleEvidence) -> Bool:
    """Flag what is significant and reaches the floor, over all types or within one."""
    return evidence.flags.columns


def _by_paper(evidence: RuleEvidence) -> Bool:
    """Flag the states for which either of the paper's rules fires."""
    fires = evidence.paper.average_fires | evidence.paper.probability_fires
    fires[-1] = False  # the paper does not test the total
    return fires


RULES: Final[dict[str, VerdictRule]] = {
    "gate": VerdictRule(
        _by_gate,
        permutation_test=True,
        floor=True,
        slower=_flagged_by_gate,
        not_slower=_not_flagged_by_gate,
    ),
    "paper": VerdictRule(_by_paper),
}
