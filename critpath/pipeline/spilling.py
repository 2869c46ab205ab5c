"""Blocks of a recording in a file that is gone when it is closed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from typing import IO, Final

import numpy as np

from critpath.errors import UsageError
from critpath.model import I64, Block

_COLUMNS: Final = tuple(f.name for f in fields(Block) if f.name != "cut")


class SpilledBlocks:
    """Blocks in a temporary file without a name (`critpath.model.Blocks`).

    The file is made where ``TMPDIR`` says and takes about 40 bytes an event.

    Raises
    ------
    UsageError
        If it cannot be made, or the place has no more room.
    """

    def __init__(self) -> None:
        try:
            self._file: IO[bytes] = tempfile.TemporaryFile(prefix="critpath-")  # noqa: SIM115 - closed by close()
        except OSError as error:
            raise _no_room(error) from error
        self._cuts: list[int] = []
        # Of each block: where it begins, and the type and length of each column.
        self._places: list[tuple[int, list[tuple[str, int]]]] = []

    def append(self, block: Block) -> None:
        """Write the next block."""
        columns = [getattr(block, name) for name in _COLUMNS]
        try:
            begin = self._file.seek(0, os.SEEK_END)
            for column in columns:
                self._file.write(np.ascontiguousarray(column).data)
            self._file.flush()
        except OSError as error:
            raise _no_room(error) from error
        self._cuts.append(block.cut)
        self._places.append((begin, [(c.dtype.str, len(c)) for c in columns]))

    @property
    def cuts(self) -> I64:
        """The cut of every block (ns)."""
        return np.array(self._cuts, np.int64)

    def __len__(self) -> int:
        return len(self._cuts)

    def __getitem__(self, index: int) -> Block:
        begin, columns = self._places[index]
        try:
            self._file.seek(begin)
            read = [np.fromfile(self._file, dtype, length) for dtype, length in columns]
        except OSError as error:
            raise _no_room(error) from error
        return Block(self._cuts[index], *read)

    def __iter__(self) -> Iterator[Block]:
        return (self[index] for index in range(len(self)))

    def close(self) -> None:
        """Free the file's room."""
        self._file.close()


def _no_room(error: OSError) -> UsageError:
    return UsageError(
        f"the temporary file of --max-memory in {tempfile.gettempdir()}: {error.strerror or error}",
        "set TMPDIR to a directory that has room (about 40 bytes an event)",
    )
