"""Count and duration vectors over an alphabet of symbols."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from critpath.model.table import I64, Column, Table, freeze_columns

if TYPE_CHECKING:
    from critpath.model.kinds import State


@dataclass(frozen=True, order=True)
class Symbol:
    """One letter of the alphabet that vectors count and alignments align.

    Attributes
    ----------
    state : State
    role : str
        "" for the subject's own thread; else the thread's name with its numbers
        taken out (``kworker/u#:#``), so that the same helper is the same symbol in
        every execution.
    """

    state: State
    role: str = ""

    @property
    def name(self) -> str:
        """``STATE`` or ``STATE@role``."""
        return f"{self.state.name}@{self.role}" if self.role else self.state.name


@dataclass(frozen=True, eq=False)
class VectorTable(Table):
    """Count and duration vectors of executions, over one alphabet.

    Attributes
    ----------
    symbols : tuple of Symbol
        Columns; at most 64.
    counts : int64 [executions, symbols]
        Segments of each symbol.
    durations : int64 [executions, symbols]
        Nanoseconds in each symbol.
    structure : int64 [executions, symbols]
        Segments of each symbol once interference (interrupts, waits for the cpu) is
        taken out and neighbours are joined: what the program did, whatever else the
        machine did meanwhile.  Types of executions are found on these; the counts
        themselves where they are not given.
    """

    symbols: tuple[Symbol, ...]
    counts: I64
    durations: I64
    structure: I64 = None  # type: ignore[assignment]  # replaced below, so never None to a reader

    def __post_init__(self) -> None:
        if self.structure is None:
            object.__setattr__(self, "structure", self.counts)
        freeze_columns(self, -1, counts=np.int64, durations=np.int64, structure=np.int64)
        shape = (len(self.counts), len(self.symbols))
        if not shape == self.counts.shape == self.durations.shape == self.structure.shape:
            raise ValueError("VectorTable: executions x symbols expected")

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def total(self) -> I64:
        """Duration of every execution (ns)."""
        return np.asarray(self.durations.sum(axis=1), dtype=np.int64)

    def table_columns(self) -> dict[str, Column]:
        """Return a row per execution: ``total_ns``, then ``count_X`` and ``ns_X`` per symbol X.

        What stands for a symbol is made by `identifiers`.
        """
        result = {"total_ns": Column(self.total)}
        for code, name in enumerate(identifiers(self.symbols)):
            result[f"count_{name}"] = Column(self.counts[:, code])
            result[f"ns_{name}"] = Column(self.durations[:, code])
        return result


def identifiers(symbols: Sequence[Symbol]) -> list[str]:
    """Return a name for every symbol that no language has to quote.

    Parameters
    ----------
    symbols : sequence of Symbol

    Returns
    -------
    list of str
        ``STATE``, or ``STATE_at_role`` with one ``_`` for whatever of the role is no
        ASCII letter or digit.  They differ even where a program ignores case: the
        second of two has ``_2`` behind it.
    """
    result: list[str] = []
    taken: set[str] = set()
    for symbol in symbols:
        role = re.sub(r"[^A-Za-z0-9]+", "_", symbol.role).strip("_") or "other"
        stem = f"{symbol.state.name}_at_{role}" if symbol.role else symbol.state.name
        name, number = stem, 1
        while name.lower() in taken:
            number += 1
            name = f"{stem}_{number}"
        taken.add(name.lower())
        result.append(name)
    return result
