"""Timelines of a recording in pieces, so that not all of them need be in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol

import numpy as np

from critpath.model.columns import I32, I64, U8
from critpath.model.timelines import Timelines, freeze_rows

# Where the rows of each owner start, then the columns of the rows.
Columns = tuple[np.ndarray[Any, Any], ...]


class Opened(NamedTuple):
    """What threads did, of which the rows of a thread are there once somebody reads them.

    A walk needs those of few threads of a block, and of all others the first row or two.

    Attributes
    ----------
    columns : tuple of arrays
        As `Block.intervals`; of the rows of a thread whose `filled` is 0 only ``start``
        means anything.
    filled : uint8 [threads + 1]
        Set by who reads all rows of a thread (`critpath.graph`); of others the first ones
        may be there.
    base : int
        Of the block: the first packed row of a thread is relative to it.
    data : uint8 [bytes]
        The rows, as ``_packed_rows.pxi`` has them.
    at : int64 [threads + 1]
        Which byte the first row of each thread begins at.
    """

    columns: Columns
    filled: U8
    base: int
    data: U8
    at: I64


@dataclass(frozen=True, eq=False)
class Block:
    """What threads and processors did, as far as it ended between two moments.

    The columns are those of `critpath.model.Timelines`.  Over the blocks of a
    recording the rows of one worker, and of one processor, are in order of time and
    do not overlap.  Every row of a block and of those before it ends at ``cut`` or
    earlier; a row of a later block may begin before ``cut``.  So what a worker did just
    before a time ``t`` is in the first block with ``cut >= t`` or in one after it.

    Attributes
    ----------
    cut : int
        Time of the last event before the cut (ns); of the last block, the end of the
        recording.
    start : int64 [workers known at the cut + 1]
    begin, end, woken : int64
    state : uint8
    detail, cpu, waker : int32
    stolen_start, ran_start : int64 [processors known at the cut + 1]
    stolen_begin, stolen_end, ran_begin, ran_end : int64
    stolen_state : uint8
    stolen_detail, ran_worker : int32
    """

    cut: int
    start: I64
    begin: I64
    end: I64
    state: U8
    detail: I32
    cpu: I32
    waker: I32
    woken: I64
    stolen_start: I64
    stolen_begin: I64
    stolen_end: I64
    stolen_state: U8
    stolen_detail: I32
    ran_start: I64
    ran_begin: I64
    ran_end: I64
    ran_worker: I32

    def __post_init__(self) -> None:
        freeze_rows(self)

    def __len__(self) -> int:
        return len(self.begin)

    def by_name(self) -> dict[str, Any]:
        """All columns by their names, which are those of `critpath.model.Timelines`."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "cut"}

    def intervals(self) -> Columns:
        """Return what threads did: start, begin, end, state, detail, cpu, waker, woken."""
        return (
            *(self.start, self.begin, self.end, self.state, self.detail),
            *(self.cpu, self.waker, self.woken),
        )

    def opened(self) -> Opened:
        """Return what threads did, all of it filled in."""
        return filled_in(self.intervals())

    def stolen(self) -> Columns:
        """Return interrupt work: start, begin, end, state, detail."""
        return (
            *(self.stolen_start, self.stolen_begin, self.stolen_end),
            *(self.stolen_state, self.stolen_detail),
        )

    def ran(self) -> Columns:
        """Return who ran on processors: start, begin, end, worker."""
        return self.ran_start, self.ran_begin, self.ran_end, self.ran_worker


class Tables(Protocol):
    """What walks ask of a block."""

    def opened(self) -> Opened:
        """Return what threads did, to be read thread by thread."""

    def stolen(self) -> Columns:
        """Return interrupt work, as `Block.stolen`."""

    def ran(self) -> Columns:
        """Return who ran, as `Block.ran`."""


class Blocks(Protocol):
    """The blocks of a recording in order of time; each may have to be fetched.

    Attributes
    ----------
    cuts : int64 [blocks]
        ``cut`` of every block, ascending.
    """

    @property
    def cuts(self) -> I64:
        """The cut of every block (ns)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Tables: ...


class BlockList:
    """Blocks that are all in memory.

    Parameters
    ----------
    blocks : sequence of Block
        In order of time.
    """

    def __init__(self, blocks: Sequence[Block] = ()) -> None:
        self._blocks = list(blocks)

    @property
    def cuts(self) -> I64:
        """The cut of every block (ns)."""
        return np.array([block.cut for block in self._blocks], np.int64)

    def append(self, block: Block) -> None:
        """Add the next block."""
        self._blocks.append(block)

    def close(self) -> None:
        """Forget the blocks."""
        self._blocks.clear()

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: int) -> Block:
        return self._blocks[index]

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks)


def filled_in(columns: Columns) -> Opened:
    """Return columns that are all there as an `Opened`.

    Parameters
    ----------
    columns : tuple of arrays
        As `Block.intervals`.
    """
    # As many as there are starts: one more than threads, and so never none.
    filled, at = np.ones(len(columns[0]), np.uint8), np.zeros(len(columns[0]), np.int64)
    return Opened(columns, filled, 0, np.zeros(1, np.uint8), at)


def whole_block(timelines: Timelines) -> Block:
    """Return the timelines of a recording as one block."""
    ends = (timelines.end, timelines.stolen_end, timelines.ran_end)
    columns = [field.name for field in fields(Block) if field.name != "cut"]
    return Block(
        cut=max((int(end.max()) for end in ends if len(end)), default=0),
        **{name: getattr(timelines, name) for name in columns},
    )
