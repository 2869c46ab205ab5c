"""The answer, and the settings that could change it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from critpath.model.table import Column, Rows, Table, html_table, optional, prose
from critpath.units import format_ns, plural

if TYPE_CHECKING:
    from critpath.model.clusters import Clustering, ClusterPairs, Outliers
    from critpath.model.detection import Detection
    from critpath.model.findings import Aligned, Cause, Finding
    from critpath.model.paths import PathSet
    from critpath.model.vectors import VectorTable


@dataclass(frozen=True)
class CompareSettings:
    """Everything that can change the outcome of a comparison.

    Attributes
    ----------
    rule : str
        ``gate`` or ``paper``: who decides the verdict.
    alpha : float
        Family-wise level of the gate.
    floor : float
        Least effect of interest, as a share of the normal mean.
    minimum_executions : int
        Fewest executions of either set that a verdict may rest on.
    strict_environment : bool
        Sets of other kernels, machines, processors, tracers or programs are inconclusive.
    level : tuple of (str, str)
        Patterns of states, and their levels ``off``, ``warn`` or ``error``; see
        `critpath.detect.verdict.symbol_level`.
    t1 : float
        Average rule: standard deviations.
    t2 : float or None
        Probability rule: ratio of shares; None for Fisher's exact test.
    y_reference : str
        Mean that sample executions are held against: ``a1`` (the paper's text) or
        ``a2`` (its pseudo-code).
    permutations : int
    cluster_method : str
    vector : str
        Alphabet of the vectors: ``thread`` or ``state``.
    outlier_k : float
        The paper's rule for single executions: standard deviations.
    outlier_level : float
        False discovery rate of the marked executions.
    group_limit : int
        Most normal executions that an anomalous one is aligned with.
    explain_limit : int
        Most anomalous executions that are aligned and explained.
    msa : str
        ``add`` aligns a normal group once and adds each anomalous execution to it;
        ``joint`` aligns each together with its group, as the paper does.
    aligner : str
        ``posteriors`` (pair-HMM, consistency) or ``muscle`` (the paper's, with
        log-expectation profiles).
    interrupts : bool
        The paths tell interrupt work apart; decided when they were extracted, kept
        here because a report says everything that could change its outcome.
    """

    rule: str = "gate"
    alpha: float = 0.01
    floor: float = 0.05
    minimum_executions: int = 0
    strict_environment: bool = False
    level: tuple[tuple[str, str], ...] = ()
    t1: float = 1.5
    t2: float | None = None
    y_reference: str = "a1"
    permutations: int = 9999
    cluster_method: str = "optics"
    vector: str = "thread"
    outlier_k: float = 1.5
    outlier_level: float = 0.05
    group_limit: int = 50
    explain_limit: int = 50
    msa: str = "add"
    aligner: str = "posteriors"
    interrupts: bool = True


@dataclass(frozen=True, eq=False)
class Comparison:
    """The answer: every stage's outcome for one normal and one sample set.

    Attributes
    ----------
    verdict : str
        ``ok``, ``anomaly`` or ``inconclusive``.
    reasons : tuple of str
        One sentence each: why this verdict.
    warnings : tuple of str
        What a reader must know about the input (loss, differing kernels...).
    settings : mapping
        Everything that could change the outcome, as used.
    """

    verdict: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    normal: PathSet
    sample: PathSet
    normal_vectors: VectorTable
    sample_vectors: VectorTable
    detection: Detection
    normal_clusters: Clustering
    sample_clusters: Clustering
    pairs: ClusterPairs
    outliers: Outliers
    aligned: tuple[Aligned, ...]
    findings: tuple[Finding, ...]
    causes: tuple[Cause, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def tables(self) -> dict[str, Table]:
        """Return what a data frame can hold of the answer.

        Returns
        -------
        dict of str to Table
            ``states`` (the tests), ``executions`` (of both sets, with type and
            verdict), ``findings`` and ``causes``.
        """
        return {
            "states": self.detection,
            "executions": self._executions(),
            "findings": self._findings(),
            "causes": self._causes(),
        }

    def _executions(self) -> Rows:
        sets = (self.normal.executions, self.sample.executions)
        first, count = len(sets[0]), len(sets[0]) + len(sets[1])
        clusters = np.concatenate([self.normal_clusters.labels, self.sample_clusters.labels])
        # A stage that did not run (too few executions) leaves its columns empty.
        clustered = len(clusters) == count
        judged = len(self.outliers.score) == len(sets[1])
        of_sample = np.arange(count) >= first

        def judgement(values: Any, dtype: type[np.generic]) -> Column:
            filled = np.zeros(count, dtype)
            if judged:
                filled[first:] = values
            return Column(filled, valid=of_sample & judged)

        columns = [executions.table_columns() for executions in sets]
        both = {
            name: [x for table in columns for x in table[name].values]
            for name in ("execution", "label", "comm")
        }
        times = {
            name: Column(np.concatenate([table[name].values for table in columns]))
            for name in ("begin_ns", "end_ns", "duration_ns", "tid")
        }
        return Rows(
            "Executions",
            {
                "set": Column(of_sample.astype(np.int8), ("normal", "sample")),
                "execution": Column(both["execution"]),
                "label": Column(both["label"]),
                "cluster": Column(
                    clusters if clustered else np.zeros(count, np.int64),
                    valid=np.full(count, clustered),
                ),
                **times,
                "comm": Column(both["comm"]),
                "anomalous": judgement(self.outliers.anomalous, np.bool_),
                "excess": judgement(self.outliers.excess, np.int64),
                "score": judgement(self.outliers.score, np.float64),
                "p_value": judgement(self.outliers.p_value, np.float64),
            },
        )

    def _findings(self) -> Rows:
        found, ids = self.findings, self.sample.executions.id

        def numbers(name: str, dtype: type[np.generic]) -> Column:
            return Column(np.array([getattr(f, name) for f in found], dtype))

        return Rows(
            "Findings",
            {
                "execution": Column([ids[f.execution] for f in found]),
                "rank": numbers("rank", np.int64),
                "kind": Column([f.kind for f in found]),
                "state": Column([f.symbol.state.name for f in found]),
                "role": Column([f.symbol.role for f in found]),
                "detail": Column([f.detail for f in found]),
                "tid": optional([f.tid if f.tid >= 0 else None for f in found], np.int64),
                "comm": Column([f.comm for f in found]),
                "begin_ns": numbers("begin", np.int64),
                "end_ns": numbers("end", np.int64),
                "observed": numbers("observed", np.float64),
                "expected": numbers("expected", np.float64),
                "contribution": numbers("contribution", np.float64),
                "share": numbers("share", np.float64),
                "probability": numbers("probability", np.float64),
                "abnormal": numbers("abnormal", np.bool_),
            },
        )

    def _causes(self) -> Rows:
        causes = self.causes
        return Rows(
            "Causes",
            {
                "sentence": Column([cause.sentence for cause in causes]),
                "executions": Column(np.array([len(c.executions) for c in causes], np.int64)),
                "contribution": Column(np.array([c.contribution for c in causes], np.float64)),
                "share": Column(np.array([c.share for c in causes], np.float64)),
                "minor": Column(np.array([c.minor for c in causes], np.bool_)),
            },
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict in a sentence, why, the causes, the states."""

        def listed(title: str, lines: Sequence[str]) -> str:
            items = "".join(f"<li>{prose(line)}</li>" for line in lines)
            return f"<p>{title}</p><ul>{items}</ul>" if lines else ""

        causes = [cause.sentence for cause in self.causes if not cause.minor]
        if len(causes) < len(self.causes):
            causes.append(plural(len(self.causes) - len(causes), "smaller cause"))
        # As every report begins: an anomaly is told by its largest cause, else by its reason.
        told = [c.sentence for c in self.causes[:1] if self.verdict == "anomaly"]
        told = (told or list(self.reasons))[:1]
        sentence = ": ".join([self.verdict.upper(), *told])
        return (
            f"<p><strong>{prose(sentence)}</strong></p>"
            + listed("Why", [reason for reason in self.reasons if reason not in told])
            + listed("Causes", causes)
            + listed("Warnings", self.warnings)
            + html_table("States, mean per execution", self._states())
        )

    def _states(self) -> dict[str, Column]:
        """Return the states as people read them: the total, then what is flagged, then most."""
        states = sorted(
            self.detection.states,
            # Without enough executions there is no effect to order by.
            key=lambda test: (
                test.symbol is not None,
                not test.flagged,
                -abs(test.effect) if math.isfinite(test.effect) else 0.0,
            ),
        )
        return {
            "state": Column([test.name for test in states]),
            "normal": Column([_ns(test.normal_mean) for test in states]),
            "sample": Column([_ns(test.sample_mean) for test in states]),
            "effect": Column([_ns(test.effect, sign=True) for test in states]),
            "95 % interval": Column(
                [
                    f"{_ns(test.effect_low, sign=True)} to {_ns(test.effect_high, sign=True)}"
                    for test in states
                ]
            ),
            "p": Column(np.array([test.p_value for test in states], np.float64)),
            "flagged": Column(["yes" if test.flagged else "" for test in states]),
        }


def _ns(value: float, *, sign: bool = False) -> str:
    return format_ns(value, sign=sign) if math.isfinite(value) else "-"
