"""Memory for the columns of blocks that is used again once nobody holds it.

Touching memory for the first time costs more than writing it, and four times as much in
small pages as in huge ones, which numpy asks for where an array is large.
"""

from __future__ import annotations

import sys
from threading import Lock
from typing import Final

import numpy as np

from critpath.model.columns import U8

_PIECE: Final = 32 << 20
_LINE: Final = 64  # of the cache
# Pieces that are kept from one recording to the next.
_KEPT: Final = 4

_pieces: Final[list[U8]] = []
_choosing: Final = Lock()


def _unheld(arrays: list[U8], size: int) -> U8 | None:
    """Return one of some arrays that has a size, and that nobody else names a part of."""
    for place in range(len(arrays)):
        # Named by the list, and by the call.
        if sys.getrefcount(arrays[place]) == _ALONE and len(arrays[place]) >= size:
            return arrays[place]
    return None


def _alone() -> int:
    arrays = [np.empty(0, np.uint8)]
    return sys.getrefcount(arrays[0])


_ALONE: Final = _alone()


class Arena:
    """Hands out memory that will be kept, from large pieces.

    It keeps no account of it, arrays do that.
    """

    def __init__(self) -> None:
        self._piece: U8 = np.empty(0, np.uint8)
        self._used = 0
        # How often a piece is named of which nobody holds a part.
        self._alone = sys.getrefcount(self._piece)

    def take(self, size: int) -> U8:
        """Return some bytes, aligned for any column."""
        if sys.getrefcount(self._piece) == self._alone:
            self._used = 0
        if self._used + size > len(self._piece):
            if size > _PIECE // 4:
                return np.empty(size, np.uint8)
            self._begin()
        taken = self._piece[self._used : self._used + size]
        self._used += -(-size // _LINE) * _LINE
        return taken

    def _begin(self) -> None:
        """Begin another piece, one of another recording that nobody holds or a new one."""
        with _choosing:
            piece = _unheld(_pieces, _PIECE)
            if piece is None:
                piece = np.empty(_PIECE, np.uint8)
                if len(_pieces) < _KEPT:
                    _pieces.append(piece)
            self._piece = piece
        del piece
        self._used = 0
        self._alone = sys.getrefcount(self._piece)


class Desk:
    """Hands out memory for what will soon be forgotten."""

    def __init__(self) -> None:
        self._arrays: list[U8] = []

    def take(self, size: int) -> U8:
        """Return some bytes, aligned for any column."""
        array = _unheld(self._arrays, size)
        if array is None:
            # Those that are free are too small.
            self._arrays = [
                self._arrays[place]
                for place in range(len(self._arrays))
                if sys.getrefcount(self._arrays[place]) != _ALONE
            ]
            # Somewhat larger: the next will be about as large.
            array = np.empty(size + size // 4 + _LINE, np.uint8)
            self._arrays.append(array)
        return array[:size]
