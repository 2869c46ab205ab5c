"""Critical paths -> count and duration vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critpath.model import I64, INTERFERENCE, U8, PathSet, Symbol, VectorTable
from critpath.vectors.alphabet import Coder


def vector_table(path_set: PathSet, symbols: Sequence[Symbol], codes: U8) -> VectorTable:
    """Count the segments of every execution, and add up their durations.

    Counting with interference, a helper that a timer interrupts three times has run
    four times; two executions of one type then differ by what else the machine did.
    So segments are also counted without it (`VectorTable.structure`).

    Parameters
    ----------
    path_set : PathSet
    symbols : sequence of Symbol
    codes : uint8 [segments]
        Symbol of every segment of the set.

    Returns
    -------
    VectorTable
        int64 counts and nanoseconds [executions, symbols]; each execution's
        durations add up to its window exactly.
    """
    paths = path_set.paths
    path = np.repeat(np.arange(len(paths)), np.diff(paths.start))
    counts = np.zeros((len(paths), len(symbols)), np.int64)
    durations = np.zeros_like(counts)
    np.add.at(counts, (path, codes), 1)
    np.add.at(durations, (path, codes), paths.duration)
    structure = _structure(path, paths.state, codes, counts.shape)
    return VectorTable(tuple(symbols), counts, durations, structure)


def vectors_of(path_set: PathSet, coder: Coder) -> VectorTable:
    """Return the vectors of a set, with a chunk of its segments in memory at a time.

    Parameters
    ----------
    path_set : PathSet
    coder : Coder
        Of this set, and those that it is compared with.

    Returns
    -------
    VectorTable
        As `vector_table` gives it.
    """
    tables = [vector_table(chunk, coder.symbols, coder.codes(chunk)) for chunk in path_set.chunks()]
    if len(tables) == 1:
        return tables[0]
    none = np.zeros((0, len(coder.symbols)), np.int64)
    return VectorTable(
        coder.symbols,
        *(
            np.concatenate([none, *(getattr(table, name) for table in tables)])
            for name in ("counts", "durations", "structure")
        ),
    )


def _structure(path: I64, state: U8, codes: U8, shape: tuple[int, ...]) -> I64:
    """Count runs of equal symbols among the segments that are no interference."""
    kept = ~np.isin(state, [int(s) for s in INTERFERENCE])
    path, codes = path[kept], codes[kept]
    first = np.ones(len(path), bool)
    first[1:] = (path[1:] != path[:-1]) | (codes[1:] != codes[:-1])
    result = np.zeros(shape, np.int64)
    np.add.at(result, (path[first], codes[first]), 1)
    return result
