"""What differs, where, and worth how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from critpath.model.columns import F64, I32, I64, Bool, freeze_columns

if TYPE_CHECKING:
    from critpath.model.alignment import Alignment
    from critpath.model.vectors import Symbol


@dataclass(frozen=True, eq=False)
class ColumnStatistics:
    """What the normal group does in every column of an alignment.

    Attributes
    ----------
    probability : float64 [columns]
        Share of normal rows with the anomalous row's symbol there (gaps count).
    normal_symbol : int32 [columns]
        Most common normal symbol, -1 for gap.
    normal_probability : float64 [columns]
        Its share.
    mean, std : float64 [columns]
        Duration of the normal rows that have the anomalous row's symbol (ns);
        where it has a gap, of those with the most common symbol.  NaN if none.
    contribution : int64 [columns]
        ``normal rows * observed - sum of normal durations``: n times the column's
        part of the excess, so that it stays an integer and sums exactly.
    abnormal_state, abnormal_duration, missing : bool [columns]
        The paper's view.
    """

    probability: F64
    normal_symbol: I32
    normal_probability: F64
    mean: F64
    std: F64
    contribution: I64
    abnormal_state: Bool
    abnormal_duration: Bool
    missing: Bool

    def __post_init__(self) -> None:
        freeze_columns(
            self,
            len(self.probability),
            probability=np.float64,
            normal_symbol=np.int32,
            normal_probability=np.float64,
            mean=np.float64,
            std=np.float64,
            contribution=np.int64,
            abnormal_state=np.bool_,
            abnormal_duration=np.bool_,
            missing=np.bool_,
        )


@dataclass(frozen=True)
class Finding:
    """One difference between an anomalous execution and its normal group.

    Attributes
    ----------
    execution : int
        Position in the sample set.
    rank : int
        From 1, by contribution.
    kind : str
        ``new-state``, ``extra``, ``longer``, ``missing``, ``shorter``.
    symbol : Symbol
    detail : str
        Qualifier of the segments (irq name, who ran instead...).
    tid, comm
        The thread the time was spent on (or would have been, for ``missing``).
    begin, end : int
        Place in the sample's trace (ns).
    columns : tuple of (int, int)
        First column and one past the last, in the execution's alignment.
    observed, expected, contribution : float
        Nanoseconds: in this execution, on average in the normal group, difference.
    share : float
        Contribution over the execution's excess; NaN if that is not positive.
    probability : float
        Share of the normal group that has this state here.
    before : str
        What the path was doing just before, for the sentence.
    """

    execution: int
    rank: int
    kind: str
    symbol: Symbol
    detail: str
    tid: int
    comm: str
    begin: int
    end: int
    columns: tuple[int, int]
    observed: float
    expected: float
    contribution: float
    share: float
    probability: float
    before: str = ""


@dataclass(frozen=True)
class Cause:
    """Findings of several anomalous executions that share a cause.

    Attributes
    ----------
    sentence : str
        "4 of 11 executions, +30.1 ms each: waiting for a timer in `worker-#`..."
    findings : tuple of int
        Positions in `Comparison.findings`.
    executions : tuple of int
        Positions in the sample set, ascending.
    contribution : float
        Mean contribution per execution (ns).
    share : float
        Of the summed excess of these executions.
    """

    sentence: str
    findings: tuple[int, ...]
    executions: tuple[int, ...]
    contribution: float
    share: float


@dataclass(frozen=True, eq=False)
class Aligned:
    """One anomalous execution aligned with its normal group.

    The anomalous execution is the last row of the alignment.
    """

    execution: int
    normals: tuple[int, ...]
    left_out: int
    alignment: Alignment
    statistics: ColumnStatistics
    excess: float
    unexplained: float
