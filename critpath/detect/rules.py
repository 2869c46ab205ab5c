"""The rules that a verdict can rest on; to add one, write it here.

The command line reads their names, so nothing slow is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from critpath.text import notes

if TYPE_CHECKING:
    from critpath.detect.coarse import Algorithm1
    from critpath.detect.effects import Effects, Families, Flags
    from critpath.model import Bool, Detection


@dataclass(frozen=True)
class Evidence:
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


@dataclass(frozen=True)
class Rule:
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
        The sentence for what it flags, and the one for flagging nothing.
    """

    flag: Callable[[Evidence], Bool]
    permutation_test: bool = False
    floor: bool = False
    slower: Callable[[Detection], str] = notes.flagged_by_rule
    not_slower: Callable[[Detection], str] = notes.not_flagged_by_rule


def _by_gate(evidence: Evidence) -> Bool:
    """Flag what is significant and reaches the floor, over all types or within one."""
    return evidence.flags.columns


def _by_paper(evidence: Evidence) -> Bool:
    """Flag the states for which either of the paper's rules fires."""
    fires = evidence.paper.average_fires | evidence.paper.probability_fires
    fires[-1] = False  # the paper does not test the total
    return fires


RULES: Final[dict[str, Rule]] = {
    "gate": Rule(
        _by_gate,
        permutation_test=True,
        floor=True,
        slower=notes.flagged_by_gate,
        not_slower=notes.not_flagged_by_gate,
    ),
    "paper": Rule(_by_paper),
}
