"""Multiple alignments of critical paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any, Final

import numpy as np

from critpath.model.table import I32, I64, U8, Column, Table, freeze_columns

# A letter per symbol code, as text formats of sequences have it.  Left out is what means
# a gap, an end or an unknown letter somewhere: - . * ~ ? and the like.
LETTERS: Final = ascii_uppercase + ascii_lowercase + digits + "@%"
# A duration in one character: how many binary digits its nanoseconds have, so that each
# step is a doubling (A: 0.5 to 1 us, K: 0.5 to 1 ms, U: 0.5 to 1.1 s).
DOUBLINGS: Final = digits + ascii_uppercase + ascii_lowercase


@dataclass(frozen=True, eq=False)
class Loop(Table):
    """A block of columns in which rows repeat one unit of states.

    Attributes
    ----------
    first, last : int
        Columns of the block, half-open.  Which iteration of a row stands beside which of
        another means nothing; columns between may hold what broke the loop.
    period : int
        States of one iteration.
    iterations : int32 [sequences]
        How often every row ran it; 0 where it did not.
    """

    first: int
    last: int
    period: int
    iterations: I32

    def __post_init__(self) -> None:
        freeze_columns(self, -1, iterations=np.int32)

    def table_columns(self) -> dict[str, Column]:
        """Return a row per sequence."""
        return {
            "sequence": Column(np.arange(len(self.iterations), dtype=np.int64)),
            "iterations": Column(self.iterations),
        }


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
    notes : tuple of str
        One line each: what the aligner left out and why.
    loops : tuple of Loop
        Blocks of columns in which states repeat, from left to right, disjoint.
    """

    rows: I32
    sequences: tuple[U8, ...]
    durations: tuple[I64, ...]
    tree: str = ""
    score: float = 0.0
    notes: tuple[str, ...] = ()
    loops: tuple[Loop, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.sequences), rows=np.int32)
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
