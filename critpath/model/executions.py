"""The executions of a recording: who, from when to when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from critpath.model.columns import I64, freeze_columns
from critpath.model.table import Column, Table

# Nanoseconds that the executions of a set are below in all, 73 years, so that no sum of two
# sets overflows.
MOST_TIME: Final = 2**61


@dataclass(frozen=True, eq=False)
class Executions(Table):
    """The executions of one recording: who, from when to when.

    Attributes
    ----------
    id : tuple of str
        The key's value, else ``TID@BEGIN``.
    begin, end, tid, host : int64
    comm : tuple of str
        Thread name at the begin, "" where unknown.
    label : tuple of str
        A name that the specification gives (a field, a file's column), or "".
    incomplete : int
        Begins without an end and ends without a begin: counted, never guessed.
    notes : tuple of str
        One line each: what was left out and why.
    """

    id: tuple[str, ...]
    begin: I64
    end: I64
    tid: I64
    host: I64
    comm: tuple[str, ...]
    label: tuple[str, ...]
    incomplete: int = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(
            self, len(self.id), begin=np.int64, end=np.int64, tid=np.int64, host=np.int64
        )
        if not len(self.id) == len(self.comm) == len(self.label):
            raise ValueError("Executions: text columns of unequal length")

    def __len__(self) -> int:
        return len(self.id)

    @property
    def time(self) -> int:
        """What all of them take together (ns), exactly, however much it is."""
        each = self.end - self.begin
        return (int((each >> 31).sum()) << 31) + int((each & (2**31 - 1)).sum())

    def rows(self, rows: slice) -> Executions:
        """Return consecutive executions."""
        return replace(
            self,
            id=self.id[rows],
            begin=self.begin[rows],
            end=self.end[rows],
            tid=self.tid[rows],
            host=self.host[rows],
            comm=self.comm[rows],
            label=self.label[rows],
        )

    def take(self, rows: I64) -> Executions:
        """Return some executions, in the order of their positions ``rows``."""
        chosen = rows.tolist()

        def texts(column: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(column[row] for row in chosen)

        return replace(
            self,
            id=texts(self.id),
            begin=self.begin[rows],
            end=self.end[rows],
            tid=self.tid[rows],
            host=self.host[rows],
            comm=texts(self.comm),
            label=texts(self.label),
        )

    def table_columns(self) -> dict[str, Column]:
        """Return a row per execution."""
        return {
            "execution": Column(self.id),
            "label": Column(self.label),
            "begin_ns": Column(self.begin),
            "end_ns": Column(self.end),
            "duration_ns": Column(self.end - self.begin),
            "tid": Column(self.tid, valid=self.tid >= 0),
            "comm": Column(self.comm),
            "host": Column(self.host),
        }
