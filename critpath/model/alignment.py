"""Multiple alignments of critical paths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from critpath.model.columns import I32, I64, U8, freeze_columns


@dataclass(frozen=True, eq=False)
class Loop:
    """A block of columns in which rows repeat one unit of states.

    Attributes
    ----------
    first, last : int
        Columns of the block, half-open.  Iterations stand left-justified in it: the
        i-th begins at column ``first + i * period``.
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


@dataclass(frozen=True, eq=False)
class Alignment:
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
