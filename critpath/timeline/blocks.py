"""Blocks of a recording in a file that is gone when it is closed."""

from __future__ import annotations

import errno
import os
import tempfile
from typing import IO

import numpy as np

from critpath.errors import UsageError
from critpath.model import I64, PackedBlock
from critpath.model.packing import BufferPool, FetchedBlock, PackedTable


class SpilledBlocks:
    """Blocks in a temporary file without a name (`critpath.model.Blocks`).

    The file is made where ``TMPDIR`` says and takes 10 to 15 bytes an event.

    Raises
    ------
    UsageError
        If it cannot be made, or the place has no more room.
    """

    def __init__(self) -> None:
        # Python goes elsewhere if it cannot write where TMPDIR says: perhaps into memory.
        self._place = os.environ.get("TMPDIR", "")
        try:
            self._place = self._place or tempfile.gettempdir()
            self._file: IO[bytes] = tempfile.TemporaryFile(prefix="critpath-", dir=self._place)  # noqa: SIM115 - closed by close()
        except OSError as error:
            raise self._no_room(error) from error
        self._cuts: list[int] = []
        self._bases: list[int] = []
        # Of each table of each block: where it begins, its owners, rows and bytes.
        self._places: list[list[tuple[int, int, int, int]]] = []
        self._buffers = BufferPool()

    def append(self, block: PackedBlock) -> None:
        """Write the next block."""
        places = []
        try:
            begin = self._file.seek(0, os.SEEK_END)
            for table in block.tables:
                self._file.write(table.data.data)
                places.append((begin, table.owners, table.rows, len(table.data)))
                begin += len(table.data)
            self._file.flush()
        except OSError as error:
            raise self._no_room(error) from error
        self._cuts.append(block.cut)
        self._bases.append(block.base)
        self._places.append(places)

    @property
    def cuts(self) -> I64:
        """The cut of every block (ns)."""
        return np.array(self._cuts, np.int64)

    def __len__(self) -> int:
        return len(self._cuts)

    def __getitem__(self, index: int) -> FetchedBlock:
        places = self._places[index]
        return FetchedBlock(
            self._cuts[index],
            self._bases[index],
            lambda table: self._read(*places[table]),
            self._buffers.take,
        )

    def _read(self, begin: int, owners: int, rows: int, size: int) -> PackedTable:
        try:
            self._file.seek(begin)
            data = np.fromfile(self._file, np.uint8, size)
        except OSError as error:
            raise self._no_room(error) from error
        if len(data) != size:
            raise self._no_room(OSError(errno.EIO, os.strerror(errno.EIO)))
        return PackedTable(owners, rows, data)

    def close(self) -> None:
        """Free the file's room."""
        self._file.close()

    def _no_room(self, error: OSError) -> UsageError:
        where = f" in {self._place}" if self._place else ""
        return UsageError(
            f"the temporary file of --max-memory{where}: {error.strerror or error}",
            "set TMPDIR to a directory that has room (10 to 15 bytes an event)",
        )
