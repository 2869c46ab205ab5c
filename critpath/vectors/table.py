"""Critical paths -> count and duration vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critpath.model import U8, PathSet, Symbol, VectorTable


def vector_table(path_set: PathSet, symbols: Sequence[Symbol], codes: U8) -> VectorTable:
    """Count the segments of every execution, and add up their durations.

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
    return VectorTable(tuple(symbols), counts, durations)
