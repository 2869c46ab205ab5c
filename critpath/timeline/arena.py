"""Memory for the columns of blocks, taken from large pieces.

Touching memory for the first time costs more than writing it, and four times as much in
small pages as in huge ones.  Pieces are large enough for those, and one that no block
needs any more is used again.
"""

from __future__ import annotations

import sys
from typing import Final

import numpy as np

from critpath.model import U8

_PIECE: Final = 32 << 20
_LINE: Final = 64  # of the cache


class Arena:
    """Hands out memory; keeps no account of it, arrays do that."""

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
            self._piece, self._used = np.empty(_PIECE, np.uint8), 0
        taken = self._piece[self._used : self._used + size]
        self._used += -(-size // _LINE) * _LINE
        return taken
