"""Execution types, their pairs, and the outliers among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from critpath.documents import DetectionEntry, StateEntry
from critpath.model.table import F64, I64, Bool, FlatTable, col
from critpath.records import dataclass
from critpath.schema.notes import Shift

if TYPE_CHECKING:
    from critpath.model.vectors import Symbol
    from critpath.schema.notes import Note


@dataclass(frozen=True, eq=False)
class Clustering(FlatTable):
    """Execution types of one set.

    Attributes
    ----------
    method : str
        ``optics`` with its parameters, or ``single`` where there was nothing to cluster.
    notes : tuple of Note
    """

    COUNTED = "position"
    ORDER = ("labels", "raw_labels", "weak", "reachability", "ordering")

    labels: I64 = field(
        metadata=col("from 0, by size then canonical first member; never noise", "cluster")
    )
    raw_labels: I64 = field(
        metadata=col("of the extraction, same numbering; none is noise", "raw_cluster", least=0)
    )
    weak: Bool = field(
        metadata=col("noise that joined its nearest cluster (or became one of its own)")
    )
    ordering: I64 = field(metadata=col("positions of runs in order of OPTICS' visit"))
    reachability: F64 = field(metadata=col("per run (not in visiting order), inf where undefined"))
    method: str
    notes: tuple[Note, ...] = ()

    @property
    def size(self) -> int:
        """Number of clusters."""
        return int(self.labels.max()) + 1 if len(self.labels) else 0


@dataclass(frozen=True, eq=False)
class ClusterPairs(FlatTable):
    """Algorithm 2: the normal cluster that each sample cluster belongs to."""

    COUNTED = "sample"

    pair: I64 = field(metadata=col("normal cluster", "normal"))
    score: F64 = field(
        metadata=col("silhouette of the merged labelling, NaN where there is one normal cluster")
    )
    weak: Bool = field(metadata=col("no candidate had a positive score: the arg max was taken"))
    novel: Bool = field(
        metadata=col("farther from its pair than the pair's own members are from each other")
    )
    notes: tuple[Note, ...] = ()


class Affected(NamedTuple):
    """How many of a kind have the change, with the 95 % interval."""

    label: str
    many: int = 0
    low: int = 0
    high: int = 0


@dataclass(frozen=True, eq=False)
class Outliers(FlatTable):
    """Which sample executions are outliers of their paired normal cluster."""

    COUNTED = "position"

    score: F64 = field(
        metadata=col(
            "how far above the normal type that explains it best: root of the sum of squares of "
            "the shrunk z of every symbol and of the total"
        )
    )
    p_value: F64 = field(metadata=col("conformal p"))
    anomalous: Bool = field(
        metadata=col(
            "the verdict: where something is slower a posterior above one half; else "
            "Benjamini-Hochberg over the p-values at half of the level, or membership in a type "
            "that is slower as a whole; both with the effect floor"
        )
    )
    paper: Bool = field(
        metadata=col("the paper's rule: any symbol above mean + k * std of the paired cluster")
    )
    excess: I64 = field(
        metadata=col(
            "duration minus the paired cluster's mean (ns); of both, in sets recorded together of"
            " which the sample is slower, without waits for a cpu that strangers had"
        )
    )
    symbol: I64 = field(
        metadata=col("column of the vectors with the largest score; none for the total", least=0)
    )
    posterior: F64 = field(
        metadata=col("probability of having the change, where something is slower; else NaN")
    )
    affected: tuple[Affected, ...] = ()
    notes: tuple[Note, ...] = ()


# Outcome of the coarse detection.


class Change(Shift, frozen=True, kw_only=True):
    """A state (or the total) that is significantly slower, over all types or in one.

    Attributes
    ----------
    floor : float
        Least effect that is flagged there (ns).
    mean : float
        Normal mean duration of the executions there (ns).
    error : float
        Standard error of the difference (ns), 0 where it is not known.
    """

    floor: float
    mean: float
    error: float = 0.0


class Rival(Struct, frozen=True):
    """A thread that had the cpu while executions waited for one (mean ns an execution)."""

    name: str
    before: float
    after: float


class Detection(DetectionEntry, kw_only=True):
    """Outcome of the coarse detection over two sets: what the document has of it, and more.

    Attributes
    ----------
    states : list of StateEntry
        One per symbol, and last the total (of the states of level ``error``).
    symbols : tuple of Symbol
        Of the states but the total.
    floor_share : float
        The floor, as a share.
    slower, slight : tuple of Change
        What the gate flags; and what is significant, but too small or too uncertain in
        its size to be flagged.  The largest first.
    remarks : tuple of Note
        What becomes ``notes`` in the document.
    """

    states: list[StateEntry]
    symbols: tuple[Symbol, ...]
    floor_share: float = 0.0
    slower: tuple[Change, ...] = ()
    slight: tuple[Change, ...] = ()
    remarks: tuple[Note, ...] = ()

    @property
    def by_symbol(self) -> Iterator[tuple[Symbol, StateEntry]]:
        """The states but the total, with their symbols."""
        return zip(self.symbols, self.states, strict=False)
