"""Critical paths -> count and duration vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critpath.model import INTERFERENCE, U8, PathSet, Symbol, VectorTable
from critpath.vectors._count import count
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
    if codes.max(initial=0) >= max(len(symbols), 1):
        raise ValueError(f"code {codes.max()} of {len(symbols)} symbols")
    shape = (3, len(paths), len(symbols))
    counts, durations, structure = np.zeros(shape, np.int64)
    interference = np.zeros(256, np.uint8)
    interference[[int(state) for state in INTERFERENCE]] = 1
    count(
        paths.start,
        paths.begin,
        paths.end,
        paths.state,
        codes,
        interference,
        counts,
        durations,
        structure,
    )
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
