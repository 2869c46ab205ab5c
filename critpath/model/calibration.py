"""What recordings of a healthy program say of the gate that they are to feed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from critpath.units import plural, safe_text


@dataclass(frozen=True)
class Rate:
    """How often something happened, with an interval.

    Attributes
    ----------
    count, of : int
        Splits in which it happened, and splits.
    low, high : float
        95 % interval of the share.
    """

    count: int
    of: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The observed share."""
        return self.count / self.of


@dataclass(frozen=True)
class FalseAlarms:
    """Comparisons of healthy executions with healthy ones, of one kind and size.

    Attributes
    ----------
    kind : str
        ``shuffled``: the executions of all recordings mixed; ``sessions``: the sample
        from one recording, the normal set from the others.
    sample, normal : int
        Executions in each set.
    units : int
        What is independent of each other: splits if shuffled, else recordings that
        were the sample.
    alarms : Rate
        The verdict is an anomaly, by the rule and the floor in force.
    without_floor : Rate or None
        A p-value reaches the level, however small the effect; None where another rule
        than the gate decides.
    recommended : Rate or None
        Alarms with the recommended floor; None where there is none.
    marked : Rate
        At least one sample execution is marked as an outlier.
    """

    kind: str
    sample: int
    normal: int
    units: int
    alarms: Rate
    without_floor: Rate | None
    recommended: Rate | None
    marked: Rate


@dataclass(frozen=True)
class Missing:
    """A size that the recordings are too small for.

    Attributes
    ----------
    kind : str
        As `FalseAlarms`.
    sample : int
    executions : int
        How many more are needed; for ``sessions`` in one recording.
    recordings : int
        How many more recordings are needed.
    """

    kind: str
    sample: int
    executions: int
    recordings: int


@dataclass(frozen=True)
class Detectable:
    """The smallest slow-down that a comparison shows four times in five.

    Attributes
    ----------
    sample, normal : int
        Executions in each set.
    kind : str
        ``total`` (every execution longer, each state by the same share), ``rare`` (as
        ``total``, in a fifth of the executions), ``state`` (a state longer in every
        execution) or ``new`` (a state that no normal execution has).
    state : str
        The state's name, "" for the other kinds.
    mean : float
        Normal mean of what becomes longer (ns).
    shift : float or None
        Nanoseconds per execution that is hit; None if no shift would show.
    by_floor : bool
        The floor decides: more executions would not show less.
    trials : int
        Splits that it was tried on; 0 for a state whose own time is so short that the
        new state's figure is its own.
    """

    sample: int
    normal: int
    kind: str
    state: str
    mean: float
    shift: float | None
    by_floor: bool
    trials: int


@dataclass(frozen=True)
class FloorAdvice:
    """What recordings of one program differ by, and the floor that follows.

    Shares are of the mean duration.

    Attributes
    ----------
    sources : tuple of str
    executions : tuple of int
    means : tuple of float
        Mean duration of each recording (ns), another mix of types taken out.
    spread : float or None
        Standard deviation of the means; None with one recording.
    spread_high : float or None
        Upper 95 % confidence bound of it (one-sided, chi-square).
    expected : float or None
        What it would be if recordings differed by nothing but their executions.
    floor : float or None
        Recommended; None with fewer than three recordings.
    in_force : float
        What ``compare`` uses with these recordings as NORMAL.
    """

    sources: tuple[str, ...]
    executions: tuple[int, ...]
    means: tuple[float, ...]
    spread: float | None
    spread_high: float | None
    expected: float | None
    floor: float | None
    in_force: float


@dataclass(frozen=True, repr=False)
class Calibration:
    """What a gate fed with these recordings would do.

    Attributes
    ----------
    verdict : str
        ``calibrated``; ``alarming`` if healthy executions alarm more often than the
        level promises.
    reasons, warnings : tuple of str
        Sentences; the first reason is the answer.
    executions : int
    mean : float
        Mean duration (ns).
    alpha : float
    splits : int
        Asked for, per size and kind.
    permutations : int
        Of each test; fewer than `compare` does are enough to know a rate.
    false_alarms : tuple of FalseAlarms
    missing : tuple of Missing
    detectable : tuple of Detectable
    floor : FloorAdvice
    settings : mapping
    """

    verdict: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    executions: int
    mean: float
    alpha: float
    splits: int
    permutations: int
    false_alarms: tuple[FalseAlarms, ...]
    missing: tuple[Missing, ...]
    detectable: tuple[Detectable, ...]
    floor: FloorAdvice
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        lines = [f"{self.verdict.upper()}: {self.reasons[0] if self.reasons else ''}"]
        lines += self.reasons[1:]
        lines += [
            f"({plural(self.executions, 'execution')}, {plural(self.splits, 'split')} a size)"
        ]
        return "\n".join(map(safe_text, lines))
