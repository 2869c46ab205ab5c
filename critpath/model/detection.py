"""Outcome of the coarse detection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from critpath.model.table import Column, Table, optional

if TYPE_CHECKING:
    from critpath.model.vectors import Symbol


@dataclass(frozen=True)
class StateTest:
    """Every test of one state (or of the total), normal set against sample set.

    Durations in ns.  ``None`` where a figure is undefined (one execution has no
    standard deviation).

    Attributes
    ----------
    symbol : Symbol or None
        None for the total latency.
    normal_mean, sample_mean, normal_std : float
    average_threshold : float or None
        Algorithm 1, average rule: mean + t1 * std of the normal set.
    average_fires, probability_fires : bool
        The paper's two rules.
    normal_above, sample_above : float
        Algorithm 1, probability rule: share of executions above the normal mean.
    probability_threshold : float or None
        The t2 in force, None for ``auto`` (Fisher's exact test).
    new_state : bool
        Never seen (or never varying) in the normal set, present in the sample.
    p_value : float
        Of the permutation test, adjusted for everything that the gate tests.
    effect : float
        sample_mean - normal_mean.
    effect_low, effect_high : float
        Bootstrap 95 % interval of the effect.
    flagged : bool
        By the rule in force.
    cliffs_delta : float
        How much more often a sample execution is the longer one of a pair than the
        shorter one, within types: -1 to 1.
    median_ratio : float or None
        Typical sample over normal duration (Hodges-Lehmann on logarithms); None where
        half of the durations of a type are 0.
    level : str
        ``error``: it decides; ``warn`` or ``off``: its figures and ``flagged`` are those
        of a test of everything, which decides nothing.
    """

    symbol: Symbol | None
    normal_mean: float
    sample_mean: float
    normal_std: float
    average_threshold: float | None
    average_fires: bool
    normal_above: float
    sample_above: float
    probability_threshold: float | None
    probability_fires: bool
    new_state: bool
    p_value: float
    effect: float
    effect_low: float
    effect_high: float
    flagged: bool
    cliffs_delta: float = 0.0
    median_ratio: float | None = None
    level: str = "error"

    @property
    def name(self) -> str:
        """The symbol's name, or ``total``."""
        return "total" if self.symbol is None else self.symbol.name


@dataclass(frozen=True)
class Change:
    """A state (or the total) that is significantly slower, over all types or in one.

    Attributes
    ----------
    name : str
        The symbol's name, or ``total``.
    kind : int
        Execution type, -1 for all of them together.
    effect : float
        Difference of the means there (ns).
    p_value : float
        Adjusted for everything that the gate tests.
    floor : float
        Least effect that is flagged there (ns).
    mean : float
        Normal mean duration of the executions there (ns).
    """

    name: str
    kind: int
    effect: float
    p_value: float
    floor: float
    mean: float


@dataclass(frozen=True)
class Detection(Table):
    """Outcome of the coarse detection over two sets.

    Attributes
    ----------
    rule : str
        ``gate`` or ``paper``: the one that decides ``flagged``.
    states : tuple of StateTest
        One per symbol, and last the total (of the states of level ``error``).
    flagged : bool
        Any state of level ``error`` flagged.
    alpha : float
        Level of the gate.
    floor : float
        Effect floor (ns) below which nothing is flagged by the gate.
    detectable : float or None
        Smallest mean shift of the total (ns) that these sets could have shown at
        ``alpha``, None if no shift could.
    permutations : int
    enough : bool
        The sets are large enough for the gate to fire at all.
    needed : int
        Executions needed in the smaller set if not ``enough``.
    paper_false_alarms : float
        Share of random splits of the same executions in which the paper's rules fire.
    slower, slight : tuple of Change
        What the gate flags; and what is significant, but too small or too uncertain in
        its size to be flagged.  The largest first.
    notes : tuple of str
    whole : StateTest or None
        The total of all states, where the last of ``states`` is that of some.
    """

    rule: str
    states: tuple[StateTest, ...]
    flagged: bool
    alpha: float
    floor: float
    detectable: float | None
    permutations: int
    enough: bool
    needed: int
    paper_false_alarms: float = 0.0
    slower: tuple[Change, ...] = ()
    slight: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    whole: StateTest | None = None

    def table_columns(self) -> dict[str, Column]:
        """Return a row per state, and last the total."""

        def floats(name: str) -> Column:
            return optional([getattr(test, name) for test in self.states], np.float64)

        def flags(name: str) -> Column:
            values: list[Any] = [getattr(test, name) for test in self.states]
            return Column(np.array(values, np.bool_))

        return {
            "state": Column([test.name for test in self.states]),
            "normal_mean": floats("normal_mean"),
            "sample_mean": floats("sample_mean"),
            "effect": floats("effect"),
            "effect_low": floats("effect_low"),
            "effect_high": floats("effect_high"),
            "p_value": floats("p_value"),
            "flagged": flags("flagged"),
            "new_state": flags("new_state"),
            "cliffs_delta": floats("cliffs_delta"),
            "median_ratio": floats("median_ratio"),
            "normal_std": floats("normal_std"),
            "average_threshold": floats("average_threshold"),
            "average_fires": flags("average_fires"),
            "normal_above": floats("normal_above"),
            "sample_above": floats("sample_above"),
            "probability_threshold": floats("probability_threshold"),
            "probability_fires": flags("probability_fires"),
        }
