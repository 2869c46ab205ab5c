"""What differs, where, and worth how much."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from critpath.model.table import F64, I32, I64, Bool, Column, Table, freeze_columns

if TYPE_CHECKING:
    from critpath.model.alignment import Alignment
    from critpath.model.kinds import State
    from critpath.model.vectors import Symbol


@dataclass(frozen=True, eq=False)
class ColumnStatistics(Table):
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
    p_structure, p_duration : float64 [columns]
        How many of the normal rows' own columns are at least as odd in their state
        and in its duration (leave-one-out).  NaN where it is unknown: no
        verdict, or a gap where the normal rows do not agree on a state.
    abnormal : bool [columns]
        The verdict: either stands out (Benjamini-Hochberg, 5 %).
    note : str
        What keeps the verdict from being given or sharp; "" for nothing.
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
    p_structure: F64
    p_duration: F64
    abnormal: Bool
    note: str = ""

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
            p_structure=np.float64,
            p_duration=np.float64,
            abnormal=np.bool_,
        )

    def table_columns(self) -> dict[str, Column]:
        """Return a row per column of the alignment."""
        gap = self.normal_symbol < 0
        return {
            "place": Column(np.arange(len(self.probability), dtype=np.int64)),
            "probability": Column(self.probability),
            "normal_symbol": Column(self.normal_symbol, valid=~gap),
            "normal_probability": Column(self.normal_probability),
            "mean": Column(self.mean),
            "std": Column(self.std),
            "contribution": Column(self.contribution),
            "abnormal_state": Column(self.abnormal_state),
            "abnormal_duration": Column(self.abnormal_duration),
            "missing": Column(self.missing),
            "p_structure": Column(self.p_structure),
            "p_duration": Column(self.p_duration),
            "abnormal": Column(self.abnormal),
        }


@dataclass(frozen=True)
class Finding:
    """One difference between an anomalous execution and its normal group.

    Attributes
    ----------
    execution : int
        Position in the sample set.
    rank : int
        From 1, by weight (see `find_differences`).
    kind : str
        ``new-state``, ``extra``, ``longer``, ``missing``, ``shorter``, ``loop-count``:
        the largest of the parts.
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
    parts : tuple of (str, Fraction)
        The contribution by kind (ns), the largest first; the sum is the contribution,
        exactly.  Parts of the other sign may be among them.
    abnormal : bool
        A column of it has the leave-one-out verdict, or the time in the symbol over the
        whole path is more than three standard deviations from the group's and at least
        half of that difference is here.  False: perhaps large, but no odder than what
        normal executions do among themselves.
    p : float
        The least p-value of its columns; NaN without a verdict.
    offset : float
        Nanoseconds by which other symbols went the other way in the same place, at
        most the contribution, with its sign: so much of it is time that only moved
        from one state to another.
    iterations : float
        How often this execution ran the loop that the finding is about; NaN for none.
    normal_iterations : (float, float)
        Mean and standard deviation of the normal group; NaN for no loop.
    longest : float
        Its longest segment in this execution (ns), 0 if it has none; NaN if not known.
    details : tuple of (str, float)
        Every qualifier of its segments in this execution, with its share of their time:
        `detail` may hold the largest part and yet not half.
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
    parts: tuple[tuple[str, Fraction], ...] = ()
    abnormal: bool = False
    p: float = float("nan")
    offset: float = 0.0
    iterations: float = float("nan")
    normal_iterations: tuple[float, float] = (float("nan"), float("nan"))
    longest: float = float("nan")
    details: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Context:
    """Where on its path a finding stands.

    Attributes
    ----------
    call : str
        System call in which the subject waited; "" if it did not, or the trace has none.
    waker : str
        Name of the thread that ended the subject's last wait; "" where it was its own.
    state : State or None
        What the subject last waited for by itself; None at the beginning, or with a waker.
    detail : str
        Its qualifier.
    """

    call: str = ""
    waker: str = ""
    state: State | None = None
    detail: str = ""


@dataclass(frozen=True)
class Member:
    """A finding in a cause.

    Attributes
    ----------
    place : int
        Position among the findings.
    finding : Finding
    context : Context
    counts_as : Symbol
        The symbol that its time counts as: its own, except for time that only moved from
        one symbol to another (`critpath.localize.causes.pair_offsetting`).
    moved : bool
        It is such time, and is not named itself.
    """

    place: int
    finding: Finding
    context: Context
    counts_as: Symbol
    moved: bool = False


@dataclass(frozen=True)
class Cause:
    """Findings of several anomalous executions that share a cause.

    Attributes
    ----------
    sentence : str
        "4 of 11 executions, +30.1 ms each: waiting for a timer in `worker-#`..."
    findings : tuple of int
        Positions in `Analysis.findings`.
    executions : tuple of int
        Positions in the sample set, ascending.
    contribution : float
        Mean contribution per execution (ns).
    share : float
        Of the whole excess: that of all executions that were explained, not only of
        these.  NaN if there is none.
    main : int
        The finding that the sentence names first.
    minor : bool
        So small a part of the whole that a summary counts it with others.
    """

    sentence: str
    findings: tuple[int, ...]
    executions: tuple[int, ...]
    contribution: float
    share: float
    main: int = 0
    minor: bool = False


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
