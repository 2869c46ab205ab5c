"""What differs, where, and worth how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from string import ascii_lowercase, ascii_uppercase, digits
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec import field as msgspec_field

from critpath.documents import CauseEntry, FindingEntry
from critpath.extras import require
from critpath.model.details import NO_DETAIL, Detail
from critpath.model.table import (
    F64,
    I32,
    I64,
    U8,
    Bool,
    Column,
    FlatTable,
    Table,
    col,
    freeze_columns,
)
from critpath.model.vectors import Symbol
from critpath.records import dataclass
from critpath.schema.kinds import State

if TYPE_CHECKING:
    from critpath.model.grounds import Weight
    from critpath.schema.notes import Note


# A letter per symbol code, as text formats of sequences have it.  Left out is what means
# a gap, an end or an unknown letter somewhere: - . * ~ ? and the like.
LETTERS: Final = ascii_uppercase + ascii_lowercase + digits + "@%"
# A duration in one character: how many binary digits its nanoseconds have, so that each
# step is a doubling (A: 0.5 to 1 us, K: 0.5 to 1 ms, U: 0.5 to 1.1 s).
DOUBLINGS: Final = digits + ascii_uppercase + ascii_lowercase


@dataclass(frozen=True, eq=False)
class Loop(FlatTable):
    """A block of columns in which rows repeat one unit of states.

    Attributes
    ----------
    first, last : int
        Columns of the block, half-open.  Which iteration of a row stands beside which of
        another means nothing; columns between may hold what broke the loop.
    period : int
        States of one iteration.
    """

    COUNTED = "sequence"

    first: int
    last: int
    period: int
    iterations: I32 = field(metadata=col("how often the row ran it; 0 where it did not"))


@dataclass(frozen=True, eq=False)
class Alignment(Table):
    """A multiple alignment of critical paths.

    Attributes
    ----------
    rows : int32 [sequences, columns]
        Position of the segment within its own path, -1 for a gap.
    sequences : tuple of uint8 arrays
        The symbol codes of every row, degapped.
    durations : tuple of int64 arrays
        Nanoseconds of every segment of every row.
    tree : str
        Guide tree in Newick form, rows named by their index.
    score : float
        Sum-of-pairs score (natural-log units).
    notes : tuple of Note
        One line each: what the aligner left out and why.
    loops : tuple of Loop
        Blocks of columns in which states repeat, from left to right, disjoint.
    """

    rows: I32
    sequences: tuple[U8, ...]
    durations: tuple[I64, ...]
    tree: str = ""
    score: float = 0.0
    notes: tuple[Note, ...] = ()
    loops: tuple[Loop, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.sequences))
        if len(self.durations) != len(self.sequences):
            raise ValueError("Alignment: durations and sequences differ in number")

    @property
    def symbols(self) -> I32:
        """Symbol codes [sequences, columns], -1 for a gap."""
        result = np.full(self.rows.shape, -1, np.int32)
        for i, sequence in enumerate(self.sequences):
            present = self.rows[i] >= 0
            result[i, present] = sequence[self.rows[i, present]]
        return result

    @property
    def column_durations(self) -> I64:
        """Durations [sequences, columns], 0 for a gap (ns)."""
        result = np.zeros(self.rows.shape, np.int64)
        for i, durations in enumerate(self.durations):
            present = self.rows[i] >= 0
            result[i, present] = durations[self.rows[i, present]]
        return result

    def table_columns(self) -> dict[str, Column]:
        """Return a row per segment of a sequence; gaps have none.

        ``place`` is its column in the alignment.
        """
        sequence, column = np.nonzero(self.rows >= 0)
        return {
            "sequence": Column(sequence.astype(np.int64)),
            "place": Column(column.astype(np.int64)),
            "segment": Column(self.rows[sequence, column]),
            "symbol": Column(self.symbols[sequence, column]),
            "duration_ns": Column(self.column_durations[sequence, column]),
        }

    def to_biopython(self, names: Sequence[str] = (), letters: str = LETTERS) -> Any:
        """Return this alignment as Biopython has it.

        Parameters
        ----------
        names : sequence of str
            Ids of the rows; their indices, as in `tree`, if omitted.
        letters : str
            The letter of every symbol.

        Returns
        -------
        Bio.Align.Alignment
            A `SeqRecord` per row, its sequence degapped and written in `letters`, its
            letter annotation ``duration`` in `DOUBLINGS` (writers of text take one
            character a letter; nanoseconds are in `durations`).  With loops, the column
            annotation ``iteration`` numbers the iterations of every loop modulo 10, and
            each record's annotation ``iterations`` says how often it ran every loop.

        Raises
        ------
        ValueError
            If names are not one a row, or a symbol has no letter.
        """
        require("an alignment of Biopython", "alignments")
        from Bio import Align  # noqa: PLC0415 - slow to import
        from Bio.Seq import Seq  # noqa: PLC0415 - as above
        from Bio.SeqRecord import SeqRecord  # noqa: PLC0415 - as above

        if names and len(names) != len(self.sequences):
            raise ValueError(f"{len(names)} names for {len(self.sequences)} rows")
        most = max((int(np.max(s)) for s in self.sequences if len(s)), default=0)
        if most >= len(letters):
            raise ValueError(f"symbol {most}: there are letters for {len(letters)} only")
        records = []
        for i, (sequence, durations) in enumerate(zip(self.sequences, self.durations, strict=True)):
            text = "".join(letters[code] for code in sequence)
            record = SeqRecord(Seq(text), id=names[i] if names else str(i), description="")
            record.letter_annotations["duration"] = "".join(map(label_duration, durations.tolist()))
            if self.loops:
                counts = (str(int(loop.iterations[i])) for loop in self.loops)
                record.annotations["iterations"] = " ".join(counts)
            records.append(record)
        present = self.rows >= 0
        rows, columns = present.shape
        passed = np.zeros((rows, columns + 1), np.int64)
        np.cumsum(present, axis=1, out=passed[:, 1:])
        # Biopython keeps the places at which some row begins or ends a gap.
        changes = np.flatnonzero((present[:, 1:] != present[:, :-1]).any(axis=0)) + 1
        make: Any = Align.Alignment  # has no annotations
        result = make(records, passed[:, [0, *changes, *([columns] if columns else [])]])
        if self.loops:
            track = ["."] * columns
            for loop in self.loops:
                # As the row that runs it most often counts.
                there = passed[int(loop.iterations.argmax()), loop.first : loop.last]
                for column, passed_here in enumerate((there - there[0]).tolist(), loop.first):
                    track[column] = digits[(passed_here // loop.period + 1) % 10]
            result.column_annotations = {"iteration": "".join(track)}
        return result


def label_duration(duration: float) -> str:
    """Return a duration (ns) as one of `DOUBLINGS`."""
    return DOUBLINGS[min(int(duration).bit_length(), len(DOUBLINGS) - 1)]


@dataclass(frozen=True, eq=False)
class ColumnStatistics(FlatTable):
    """What the normal group does in every column of an alignment.

    Attributes
    ----------
    note : Note or None
        What keeps the verdict from being given or sharp.
    """

    COUNTED = "place"

    probability: F64 = field(
        metadata=col("share of normal rows with the anomalous row's symbol there (gaps count)")
    )
    normal_symbol: I32 = field(metadata=col("most common normal symbol; none: a gap", least=0))
    normal_probability: F64 = field(metadata=col("its share"))
    mean: F64 = field(
        metadata=col(
            "duration of the normal rows that have the anomalous row's symbol (ns); where it has a "
            "gap, of those with the most common symbol; NaN if none"
        )
    )
    std: F64 = field(metadata=col("its standard deviation"))
    contribution: I64 = field(
        metadata=col(
            "normal rows * observed - sum of normal durations: n times the column's part of the "
            "excess, so that it stays an integer and sums exactly"
        )
    )
    abnormal_state: Bool = field(metadata=col("by the paper: the state is odd"))
    abnormal_duration: Bool = field(metadata=col("by the paper: the duration is"))
    missing: Bool = field(metadata=col("by the paper: the anomalous row lacks what is usual"))
    p_structure: F64 = field(
        metadata=col(
            "how many of the normal rows' own columns are at least as odd in their state "
            "(leave-one-out); NaN where it is unknown"
        )
    )
    p_duration: F64 = field(metadata=col("likewise in its duration"))
    abnormal: Bool = field(metadata=col("the verdict: either stands out (Benjamini-Hochberg, 5 %)"))
    note: Note | None = None


class Finding(FindingEntry):
    """One difference between an anomalous execution and its normal group, and what else it tells.

    The parts of the contribution add up to it, and parts of the other sign may be among them.
    It is abnormal where a column of it has the leave-one-out verdict, or where the time in the
    symbol over the whole path is more than three standard deviations from the group's and at
    least half of that difference is here.

    Attributes
    ----------
    longest : float or None
        Its longest segment in this execution (ns), 0 if it has none; None if not known.
    qualifier : Detail
        What `detail` says.
    details : tuple of (Detail, float)
        Every detail of its segments in this execution, with its share of their time:
        `qualifier` may hold the largest part and yet not half.
    elsewhere_idle : float or None
        Of a wait for a cpu, how much of what was observed another one was idle (ns); None where
        that is not known.
    cpus : tuple of int
        Where its segments in this execution mostly are; -1 among them where that is not known.
    """

    longest: float | None = None
    qualifier: Detail = NO_DETAIL
    details: tuple[tuple[Detail, float], ...] = ()
    elsewhere_idle: float | None = 0.0
    cpus: tuple[int, ...] = ()

    @property
    def symbol(self) -> Symbol:
        """What the time is spent in."""
        return Symbol(State[self.state], self.role, self.place)


class Context(Struct, frozen=True):
    """Where on its path a finding stands.

    Attributes
    ----------
    call : str
        System call in which the subject waited; "" if it did not, or the trace has none.
    location, waker_location : mapping of str to int
        Of the finding's segments, where in the code their thread was, and where the one that
        woke it: so many nanoseconds in each place.
    waits_at : str
        Of another thread's segments, where in the code it is waited for.
    """

    call: str = ""
    location: Mapping[str, int] = msgspec_field(default_factory=dict)
    waker_location: Mapping[str, int] = msgspec_field(default_factory=dict)
    waits_at: str = ""


class Step(NamedTuple):
    """What executions do a number of times: a trip to another thread, or a wait.

    Attributes
    ----------
    state : State or None
        Of a wait; None for a trip.
    role : str
        The thread that the trip goes to, or that waits; "" for the execution's own.
    place : str
        As of `Symbol`.
    """

    state: State | None
    role: str
    place: str = ""

    @classmethod
    def of(cls, symbol: Symbol) -> Step:
        """Return what is in a state as a step."""
        return cls(symbol.state, symbol.role, symbol.place)


class Charge(Struct, frozen=True):
    """What one execution took longer because it did a step more often.

    Attributes
    ----------
    step : Step
    before, after : float
        How often normal executions do it, and how often this one does.
    content : Symbol
        What takes most time of the step itself.
    time : mapping of Symbol to float
        Nanoseconds in every symbol that the additional ones brought: the steps
        themselves, the waits for a cpu after them, what was run to prepare them.
    within : mapping of Symbol to float
        Of these the steps themselves: for a trip that thread, and those that it asks in turn.
    """

    step: Step
    before: float
    after: float
    content: Symbol
    time: Mapping[Symbol, float]
    within: Mapping[Symbol, float] = msgspec_field(default_factory=dict)


class Reason(Struct, frozen=True):
    """What of a cause is the program's doing, where it brought other time along.

    Attributes
    ----------
    symbol : Symbol
    time : float
        Nanoseconds that an execution is longer in it.
    rival : str
        Who had the cpu that was waited for and does not have it normally; "" for nobody.
    counts : (float, float) or None
        How often normal executions and these are in it, where that rose.
    """

    symbol: Symbol
    time: float
    rival: str = ""
    counts: tuple[float, float] | None = None


class Member(Struct, frozen=True):
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
    charge : Charge or None
        What was done more often and brought it about.
    """

    place: int
    finding: Finding
    context: Context
    counts_as: Symbol
    moved: bool = False
    charge: Charge | None = None


class Cause(CauseEntry):
    """Findings of several anomalous executions that share a cause, and what they are ranked by.

    Its sentence is made with the document.
    """

    weight: Weight | None = None


class Aligned(Struct, frozen=True, eq=False):
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
