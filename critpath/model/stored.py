"""Critical paths that stay where they are stored, and are fetched as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from critpath.model.columns import I64
from critpath.model.paths import CriticalPaths, join_paths


@dataclass(frozen=True)
class Piece:
    """Consecutive paths that are fetched together: a row group of a file.

    Attributes
    ----------
    length : int
        Paths.
    load : callable
        Fetches them, checked; may raise UnreadableError.
    """

    length: int
    load: Callable[[], CriticalPaths]


class StoredPaths(CriticalPaths):
    """Paths that are in memory a piece at a time.

    They are `CriticalPaths` to whoever asks for a column: then all pieces are fetched
    and kept.  `chunks`, `map` and `take` keep only what they return, so that sets are
    compared that do not fit in memory.

    Parameters
    ----------
    pieces : sequence of Piece
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        # The dataclass's own columns stay unset until one is asked for: `__getattr__`.
        self.__dict__["pieces"] = tuple(pieces)
        self.__dict__["bounds"] = np.cumsum([0, *(piece.length for piece in pieces)])

    def __len__(self) -> int:
        return int(self.__dict__["bounds"][-1])

    def __getattr__(self, name: str) -> Any:
        if name not in _COLUMNS or "pieces" not in self.__dict__:
            raise AttributeError(name)
        whole = join_paths([piece.load() for piece in self._pieces])
        self.__dict__.update({column: getattr(whole, column) for column in _COLUMNS})
        return self.__dict__[name]

    @property
    def _pieces(self) -> tuple[Piece, ...]:
        pieces: tuple[Piece, ...] = self.__dict__["pieces"]
        return pieces

    def chunks(self) -> Iterator[CriticalPaths]:
        """Yield the pieces in order; each may be forgotten before the next is fetched."""
        for piece in self._pieces:
            yield piece.load()

    def resident(self) -> CriticalPaths:
        """Return the same paths with all their segments in memory."""
        return CriticalPaths(**{column: getattr(self, column) for column in _COLUMNS})

    def map(self, change: Callable[[CriticalPaths], CriticalPaths]) -> CriticalPaths:
        """Return paths of which every piece is changed once it is fetched."""
        return StoredPaths([Piece(p.length, partial(_changed, p, change)) for p in self._pieces])

    def keep(self, rows: I64) -> CriticalPaths:
        """Return the same paths, with some in memory."""
        result = StoredPaths(self._pieces)
        known = np.unique(np.asarray(rows, np.int64))
        result.__dict__["kept"] = known, self.take(known)
        return result

    def take(self, rows: I64) -> CriticalPaths:
        """Return some of the paths in memory; only the pieces that have them are fetched."""
        rows = np.asarray(rows, np.int64)
        if "kept" in self.__dict__ and len(self.__dict__["kept"][0]):
            known, paths = self.__dict__["kept"]
            place = np.searchsorted(known, rows)
            if np.array_equal(known[np.minimum(place, len(known) - 1)], rows):
                taken: CriticalPaths = paths.take(place)
                return taken
        bounds = self.__dict__["bounds"]
        if len(rows) and not 0 <= rows.min() <= rows.max() < bounds[-1]:
            raise IndexError("StoredPaths: no such path")
        piece_of = np.searchsorted(bounds, rows, side="right") - 1
        found, order = [], []
        for number in np.unique(piece_of).tolist():
            mine = np.flatnonzero(piece_of == number)
            found.append(self._pieces[number].load().take(rows[mine] - bounds[number]))
            order.append(mine)
        joined = join_paths(found)
        if not order:
            return joined
        back = np.empty(len(rows), np.int64)
        back[np.concatenate(order)] = np.arange(len(rows))
        return joined.take(back)


_COLUMNS = tuple(column.name for column in fields(CriticalPaths))


def _changed(piece: Piece, change: Callable[[CriticalPaths], CriticalPaths]) -> CriticalPaths:
    return change(piece.load())


def join_stored(parts: Sequence[CriticalPaths]) -> CriticalPaths:
    """Join paths; where one of the parts is stored, all stay where they are.

    Parameters
    ----------
    parts : sequence of CriticalPaths

    Returns
    -------
    CriticalPaths
        In memory, if all parts are; else a `StoredPaths`.
    """
    if not any(isinstance(part, StoredPaths) for part in parts):
        return join_paths(parts)
    pieces: list[Piece] = []
    for part in parts:
        if isinstance(part, StoredPaths):
            pieces += part._pieces  # noqa: SLF001 - of its own kind
        else:
            pieces.append(Piece(len(part), part.resident))
    return StoredPaths(pieces)
