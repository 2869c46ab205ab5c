"""Vectors without the accidents of where an interrupt struck."""

from __future__ import annotations

import numpy as np

from critpath.model import RUNNING, State, VectorTable

_INTERRUPTS = frozenset({State.IRQ, State.SOFTIRQ})


def fold_interrupts(table: VectorTable) -> VectorTable:
    """Count interrupt work as running time of the thread it interrupted.

    Which of two executions a long interrupt strikes is chance; that it made one of
    them slower is in the running time all the same.  For judging single executions.

    Parameters
    ----------
    table : VectorTable

    Returns
    -------
    VectorTable
        The same symbols; durations of IRQ and SOFTIRQ moved to the first running
        state of the same role, where there is one.
    """
    durations = table.durations.copy()
    for column, symbol in enumerate(table.symbols):
        if symbol.state not in _INTERRUPTS:
            continue
        homes = [
            i
            for i, other in enumerate(table.symbols)
            if other.state in RUNNING and other.role == symbol.role
        ]
        if homes:
            durations[:, homes[0]] += durations[:, column]
            durations[:, column] = 0
    return VectorTable(table.symbols, table.counts, np.asarray(durations), table.structure)
