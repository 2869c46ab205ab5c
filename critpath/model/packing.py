"""Blocks in few bytes, to be kept.

Of a row much is known from the one before: a thread's row begins where its last one ended,
and few have a waker or a detail.  So a row is its state, its length and what is not as
expected, 8 to 24 bytes, where its columns would be 37: see ``_packed_rows.pxi``.  That is
less memory to touch, which costs more than the packing.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Final
from weakref import ref

import numpy as np

from critpath.model._packing import (
    BYTES_BEHIND,
    OWNER_BYTES,
    ROW_BYTES,
    find_rows,
    pack_intervals,
    pack_ran,
    pack_stolen,
    unpack_intervals,
    unpack_ran,
    unpack_stolen,
)
from critpath.model.table import U8
from critpath.model.timelines import Block, Columns, OpenColumns
from critpath.records import dataclass

# Gives memory for a number of bytes.
Take = Callable[[int], U8]

INTERVALS, STOLEN, RAN = range(3)
_KINDS: Final[tuple[tuple[type[np.generic], ...], ...]] = (
    (np.int64, np.int64, np.int64, np.uint8, np.int32, np.int32, np.int32, np.int64),
    (np.int64, np.int64, np.int64, np.uint8, np.int32),
    (np.int64, np.int64, np.int64, np.int32),
)
_PACK: Final[tuple[Callable[..., int], ...]] = (pack_intervals, pack_stolen, pack_ran)
_UNPACK: Final[tuple[Callable[..., None], ...]] = (unpack_intervals, unpack_stolen, unpack_ran)


def _fresh(size: int) -> U8:
    return np.empty(size, np.uint8)


@dataclass(frozen=True, eq=False)
class PackedTable:
    """The rows of one table of a block.

    Attributes
    ----------
    owners, rows : int
        Threads (or processors), and the rows of all of them.
    data : uint8 [bytes]
    """

    owners: int
    rows: int
    data: U8

    def unpacked(self, table: int, base: int, scratch: Take = _fresh) -> Columns:
        """Return where the rows of each owner start, and their columns in `Block`'s order.

        Parameters
        ----------
        table : int
            ``INTERVALS``, ``STOLEN`` or ``RAN``.
        base : int
            That of the block.
        scratch : callable
            Gives the memory that they will be in.
        """
        columns = self._room(table, scratch)
        _UNPACK[table](base, self.data, *columns)
        return columns

    def opened(self, base: int, scratch: Take = _fresh) -> OpenColumns:
        """Return what threads did, to be read thread by thread.

        Parameters
        ----------
        base, scratch
            As `unpacked`.
        """
        columns = self._room(INTERVALS, scratch)
        # Never empty: native code takes the address of what is first.
        filled, at = np.zeros(self.owners + 1, np.uint8), np.zeros(self.owners + 1, np.int64)
        find_rows(self.data, columns[0], at[: self.owners])
        return OpenColumns(columns, filled, base, self.data, at)

    def _room(self, table: int, scratch: Take) -> Columns:
        """Return columns with room for the rows."""
        kinds = [np.dtype(kind) for kind in _KINDS[table]]
        sizes = [kind.itemsize * self.rows for kind in kinds]
        sizes[0] = kinds[0].itemsize * (self.owners + 1)
        room, at = scratch(sum(sizes)), 0
        columns: list[Any] = list(kinds)
        # Those of large items first, for the others' alignment.
        for place in sorted(range(len(kinds)), key=lambda place: -kinds[place].itemsize):
            columns[place] = room[at : at + sizes[place]].view(kinds[place])
            at += sizes[place]
        return tuple(columns)


@dataclass(frozen=True, eq=False)
class PackedBlock:
    """A `Block` in few bytes.

    Attributes
    ----------
    cut : int
        That of the block.
    base : int
        Times of the first row of every owner are relative to it (ns).
    tables : tuple of PackedTable
        What threads did, interrupt work, who ran.
    """

    cut: int
    base: int
    tables: tuple[PackedTable, ...]

    def __len__(self) -> int:
        return sum(table.rows for table in self.tables)

    def unpacked(self) -> Block:
        """Return the block."""
        columns = [
            column
            for kind, table in enumerate(self.tables)
            for column in table.unpacked(kind, self.base)
        ]
        return Block(self.cut, *columns)


def pack(block: Block) -> PackedBlock:
    """Return a block in few bytes; what a replay cuts is packed already."""
    tables = block.intervals(), block.stolen(), block.ran()
    return PackedBlock(
        block.cut,
        block.cut,
        tuple(_packed(table, block.cut, columns) for table, columns in enumerate(tables)),
    )


def _packed(table: int, base: int, columns: Columns) -> PackedTable:
    owners, rows = len(columns[0]) - 1, len(columns[1])
    room = np.zeros(OWNER_BYTES * owners + ROW_BYTES * rows + BYTES_BEHIND, np.uint8)
    size = _PACK[table](base, room, *columns)
    room[size:] = 0
    return PackedTable(owners, rows, room[: size + BYTES_BEHIND].copy())


class FetchedBlock:
    """A block of which each table is unpacked when it is asked for.

    Parameters
    ----------
    cut, base : int
    fetch : callable
        Returns ``INTERVALS``, ``STOLEN`` or ``RAN``.
    scratch : callable
        Gives memory for the columns.
    """

    def __init__(
        self, cut: int, base: int, fetch: Callable[[int], PackedTable], scratch: Take
    ) -> None:
        self.cut = cut
        self._base, self._fetch, self._scratch = base, fetch, scratch

    def intervals(self) -> Columns:
        """As `Block.intervals`."""
        return self._columns(INTERVALS)

    def opened(self) -> OpenColumns:
        """Return what threads did, to be read thread by thread."""
        return self._fetch(INTERVALS).opened(self._base, self._scratch)

    def stolen(self) -> Columns:
        """As `Block.stolen`."""
        return self._columns(STOLEN)

    def ran(self) -> Columns:
        """As `Block.ran`."""
        return self._columns(RAN)

    def _columns(self, table: int) -> Columns:
        return self._fetch(table).unpacked(table, self._base, self._scratch)


# ------------------------------------------------- memory for columns, used again


_PIECE: Final = 8 << 20  # technical
_LINE: Final = 64  # technical: of the cache
# technical: pieces that are kept from one recording to the next.
_KEPT: Final = 4


class _Memory:
    """Lends an array, and lends it again once nothing refers to it or to a part of it."""

    def __init__(self, array: U8) -> None:
        self._array = array
        self._lent: Callable[[], U8 | None] = lambda: None

    def __len__(self) -> int:
        return len(self._array)

    def find_lent(self) -> U8 | None:
        """Return what is lent, if somebody has it or a part of it."""
        return self._lent()

    def lend(self) -> U8:
        """Return the whole array."""
        # numpy has a part of a part refer to the first array of the chain: this one, as what is
        # below it is no array.
        lent = np.frombuffer(self._array.data, np.uint8)
        self._lent = ref(lent)
        return lent


_pieces: Final[list[_Memory]] = []
_choosing: Final = Lock()


def _find_free(memories: list[_Memory], size: int) -> _Memory | None:
    for memory in memories:
        if len(memory) >= size and memory.find_lent() is None:
            return memory
    return None


class BlockArena:
    """Hands out memory for a whole recording, from large pieces.

    A piece is free again when no array refers to it.
    """

    def __init__(self) -> None:
        self._piece = _Memory(np.empty(0, np.uint8))
        self._used = 0

    def take(self, size: int) -> U8:
        """Return some bytes, aligned for any column."""
        lent = self._piece.find_lent()
        if lent is None:
            self._used = 0
        if self._used + size > len(self._piece):
            if size > _PIECE // 4:
                return np.empty(size, np.uint8)
            self._begin()
            lent = None
        if lent is None:
            lent = self._piece.lend()
        taken = lent[self._used : self._used + size]
        self._used += -(-size // _LINE) * _LINE
        return taken

    def _begin(self) -> None:
        """Begin another piece: a free one of an earlier recording, or a new one."""
        with _choosing:
            piece = _find_free(_pieces, _PIECE)
            if piece is None:
                piece = _Memory(np.empty(_PIECE, np.uint8))
                if len(_pieces) < _KEPT:
                    _pieces.append(piece)
            self._piece = _Memory(piece.lend())
        self._used = 0


class BufferPool:
    """Hands out memory that is needed for a short time."""

    def __init__(self) -> None:
        self._memories: list[_Memory] = []

    def take(self, size: int) -> U8:
        """Return some bytes, aligned for any column."""
        memory = _find_free(self._memories, size)
        if memory is None:
            # Those that are free are too small.
            self._memories = [m for m in self._memories if m.find_lent() is not None]
            # Somewhat larger: the next will be about as large.
            memory = _Memory(np.empty(size + size // 4 + _LINE, np.uint8))
            self._memories.append(memory)
        return memory.lend()[:size]
