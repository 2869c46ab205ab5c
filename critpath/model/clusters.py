"""Execution types, their pairs, and the outliers among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from critpath.model.table import F64, I64, Bool, Column, Table, freeze_columns


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
    notes : tuple of str
    """

    labels: I64
    raw_labels: I64
    weak: Bool
    ordering: I64
    reachability: F64
    method: str
    notes: tuple[str, ...] = ()

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
    notes : tuple of str
    """

    pair: I64
    score: F64
    weak: Bool
    novel: Bool
    notes: tuple[str, ...] = ()

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
        Duration minus the paired cluster's mean (ns).
    symbol : int64 [sample]
        Symbol (column of the vectors) with the largest score, -1 for the total.
    notes : tuple of str
    """

    score: F64
    p_value: F64
    anomalous: Bool
    paper: Bool
    excess: I64
    symbol: I64
    notes: tuple[str, ...] = ()

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
