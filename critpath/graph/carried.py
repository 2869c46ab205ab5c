"""Rows of later blocks that reach back into an earlier one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from critpath.graph._walk import gather, held_over
from critpath.model import I64

# start, begin, then any other columns of the rows.
Columns = tuple[np.ndarray[Any, Any], ...]


class Carried:
    """What is carried into each block, as far as that is known.

    Parameters
    ----------
    cuts : int64 [blocks]
    kinds : sequence of numpy types
        Of the rows' columns, ``begin`` and more.
    most : int
        Bytes that are kept; beyond, those of every other block are forgotten.
    """

    def __init__(
        self, cuts: I64, kinds: Sequence[type[np.generic]], most: int = sys.maxsize
    ) -> None:
        self._cuts, self._most = cuts, most
        self._last = len(cuts) - 1
        self._known = {self._last: nothing_carried(kinds)}
        self._size = 0

    def reach(self, k: int) -> int:
        """Return the first block from ``k`` on of which it is known what is carried into it."""
        return next(j for j in range(k, self._last + 1) if j in self._known)

    def into(self, k: int) -> Columns:
        """Return what is carried into a block: the rows of later ones that begin before its cut."""
        return self._known[k]

    def carry(self, k: int, columns: Columns) -> None:
        """Keep what is carried out of a block into the one before it.

        Parameters
        ----------
        k : int
            One of which it is known what is carried into it.
        columns : tuple of arrays
            The block's rows, in order of time within each owner: where those of each
            begin, then the columns.
        """
        if k == 0 or k - 1 in self._known:
            return
        found = _held_over(columns, self._known[k], int(self._cuts[k - 1]))
        self._known[k - 1] = found
        self._size += _size(found)
        if self._size > self._most:
            for j in sorted(self._known.keys() - {k - 1, self._last})[::2]:
                self._size -= _size(self._known.pop(j))


def nothing_carried(kinds: Sequence[type[np.generic]]) -> Columns:
    """Return columns of no rows: what is carried into the last block."""
    return (np.zeros(1, np.int64), *(np.zeros(0, kind) for kind in kinds))


def _size(columns: Columns) -> int:
    return sum(column.nbytes for column in columns)


def _held_over(columns: Columns, carried: Columns, cut: int) -> Columns:
    """Return the rows, of a block's and of those carried into it, that begin before a cut."""
    start, rows = held_over(columns[0], columns[1], carried[0], carried[1], cut)
    result = [start]
    for column, more in zip(columns[1:], carried[1:], strict=True):
        taken = np.empty(len(rows), column.dtype)
        gather(column, more, rows, taken)
        result.append(taken)
    return tuple(result)
