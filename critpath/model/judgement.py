"""Execution types, their pairs, and the outliers among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from critpath.model.table import F64, I64, Bool, Column, Table, freeze_columns, optional

if TYPE_CHECKING:
    from critpath.documents import PercentileEntry, SignEntry
    from critpath.model.vectors import Symbol
    from critpath.schema.notes import Note


@dataclass(frozen=True, eq=False)
class Clustering(Table):
    """Execution types of one set.

    Attributes
    ----------
    labels : int64 [n]
        Cluster of every execution, from 0, by size then canonical first member;
        never noise: see ``weak``.
    raw_labels : int64 [n]
        Labels of the extraction, -1 for noise, same numbering.
    weak : bool [n]
        Noise that joined its nearest cluster (or became one of its own).
    ordering : int64 [n]
        OPTICS ordering: positions of executions in order of visit.
    reachability : float64 [n]
        Per execution (not in visiting order), inf where undefined.
    method : str
        ``optics`` with its parameters, or ``single`` where there was nothing to cluster.
    notes : tuple of Note
    """

    labels: I64
    raw_labels: I64
    weak: Bool
    ordering: I64
    reachability: F64
    method: str
    notes: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(
            self,
            len(self.labels),
            labels=np.int64,
            raw_labels=np.int64,
            weak=np.bool_,
            ordering=np.int64,
            reachability=np.float64,
        )

    @property
    def size(self) -> int:
        """Number of clusters."""
        return int(self.labels.max()) + 1 if len(self.labels) else 0

    def table_columns(self) -> dict[str, Column]:
        """Return a row per execution."""
        return {
            "position": Column(np.arange(len(self.labels), dtype=np.int64)),
            "cluster": Column(self.labels),
            "raw_cluster": Column(self.raw_labels, valid=self.raw_labels >= 0),
            "weak": Column(self.weak),
            "reachability": Column(self.reachability),
            "ordering": Column(self.ordering),
        }


@dataclass(frozen=True, eq=False)
class ClusterPairs(Table):
    """Algorithm 2: the normal cluster that each sample cluster belongs to.

    Attributes
    ----------
    pair : int64 [sample clusters]
        Normal cluster.
    score : float64 [sample clusters]
        Silhouette of the merged labelling, NaN where there is one normal cluster.
    weak : bool [sample clusters]
        No candidate had a positive score: the arg max was taken.
    novel : bool [sample clusters]
        Farther from its pair than the pair's own members are from each other.
    notes : tuple of Note
    """

    pair: I64
    score: F64
    weak: Bool
    novel: Bool
    notes: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(
            self,
            len(self.pair),
            pair=np.int64,
            score=np.float64,
            weak=np.bool_,
            novel=np.bool_,
        )

    def table_columns(self) -> dict[str, Column]:
        """Return a row per sample cluster."""
        return {
            "sample": Column(np.arange(len(self.pair), dtype=np.int64)),
            "normal": Column(self.pair),
            "score": Column(self.score),
            "weak": Column(self.weak),
            "novel": Column(self.novel),
        }


@dataclass(frozen=True, eq=False)
class Outliers(Table):
    """Which sample executions are outliers of their paired normal cluster.

    Attributes
    ----------
    score : float64 [sample]
        How far above the normal type that explains it best: root of the sum of
        squares of the shrunk z of every symbol and of the total.
    p_value : float64 [sample]
        Conformal p.
    anomalous : bool [sample]
        The verdict: Benjamini-Hochberg over the p-values at half of the level, or membership
        in a type that is slower as a whole; both with the effect floor.
    paper : bool [sample]
        The paper's rule: any symbol above mean + k * std of the paired cluster.
    excess : int64 [sample]
        Duration minus the paired cluster's mean (ns); of both, in sets recorded together of
        which the sample is slower, without waits for a cpu that strangers had.
    symbol : int64 [sample]
        Symbol (column of the vectors) with the largest score, -1 for the total.
    notes : tuple of Note
    """

    score: F64
    p_value: F64
    anomalous: Bool
    paper: Bool
    excess: I64
    symbol: I64
    notes: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(
            self,
            len(self.score),
            score=np.float64,
            p_value=np.float64,
            anomalous=np.bool_,
            paper=np.bool_,
            excess=np.int64,
            symbol=np.int64,
        )

    def table_columns(self) -> dict[str, Column]:
        """Return a row per sample execution."""
        return {
            "position": Column(np.arange(len(self.score), dtype=np.int64)),
            "score": Column(self.score),
            "p_value": Column(self.p_value),
            "anomalous": Column(self.anomalous),
            "paper": Column(self.paper),
            "excess": Column(self.excess),
            "symbol": Column(self.symbol, valid=self.symbol >= 0),
        }


# Outcome of the coarse detection.


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
    label : str
        What the program calls the type, "" where it does not.
    error : float
        Standard error of the difference (ns), 0 where it is not known.
    """

    name: str
    kind: int
    effect: float
    p_value: float
    floor: float
    mean: float
    label: str = ""
    error: float = 0.0


@dataclass(frozen=True)
class Rival:
    """A thread that had the cpu while executions waited for one (mean ns an execution)."""

    name: str
    before: float
    after: float


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
    notes : tuple of Note
    whole : StateTest or None
        The total of all states, where the last of ``states`` is that of some.
    slow : int
        Sample executions that are slower than their number can be by chance, where no more
        than these are; 0 for none.
    slow_shown : tuple of (int, float) or None
        That many executions, slower by so many ns, would have shown, whatever the mean.
    signs : tuple of SignEntry
        That the program changed; the largest first.
    percentiles : tuple of PercentileEntry
        Of all executions, then by label.
    gate : PercentileEntry or None
        The one that decides, where one does.
    floor_share : float
        The floor, as a share.
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
    notes: tuple[Note, ...] = ()
    whole: StateTest | None = None
    slow: int = 0
    slow_shown: tuple[int, float] | None = None
    signs: tuple[SignEntry, ...] = ()
    percentiles: tuple[PercentileEntry, ...] = ()
    gate: PercentileEntry | None = None
    floor_share: float = 0.0

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
