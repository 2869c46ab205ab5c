"""OPTICS of executions of which many have equal vectors: the work is that of the distinct ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from critpath.cluster._optics import core_distances as fill_core_distances
from critpath.cluster._optics import visit
from critpath.model import F64, I64


@dataclass(frozen=True)
class Density:
    """What OPTICS says of executions, and of the distinct vectors that they have.

    Attributes
    ----------
    ordering : int64 [executions]
        Executions in order of visit.
    reachability : float64 [executions]
        Per execution (not in order of visit); inf for the first visited.
    predecessor : int64 [executions]
        The execution from which one was reached; -1 for the first.
    core : float64 [vectors]
        Distance within which ``min_samples`` executions are.
    member : int64 [executions]
        Vector of every execution.
    """

    ordering: I64
    reachability: F64
    predecessor: I64
    core: F64
    member: I64

    @property
    def entries(self) -> I64:
        """Of each vector the execution that is visited first, in order of visit."""
        _, first = np.unique(self.member[self.ordering], return_index=True)
        return self.ordering[np.sort(first)]


def core_distances(space: F64, weight: I64, min_samples: int) -> F64:
    """Distance at which the summed weight, a vector's own included, reaches min_samples.

    Parameters
    ----------
    space : float64 [n, symbols]
        Distinct vectors.
    weight : int64 [n]
        Executions with each, at least 1.
    min_samples : int
        At most the sum of the weights.

    Returns
    -------
    float64 [n]
        0 for a vector that ``min_samples`` executions have.
    """
    core = np.empty(len(space))
    fill_core_distances(_columns(space), weight.astype(np.int64), min_samples, core)
    return core


def density(space: F64, weight: I64, min_samples: int, rows: I64 | None = None) -> Density:
    """Order executions so that dense regions are runs of low reachability (OPTICS).

    Parameters
    ----------
    space : float64 [n, symbols]
        Distinct vectors.
    weight : int64 [n]
        Executions with each, at least 1.
    min_samples : int
        At least 2, at most the sum of the weights.
    rows : int64 [executions], optional
        The executions of the first vector, ascending, then those of the second, and so
        on; of equal reachabilities the lowest number goes first.  In the order of the
        vectors where not given.

    Returns
    -------
    Density
        What scikit-learn's OPTICS computes of the executions one by one, without a limit
        on distances, ties included (up to 15 columns: beyond, scikit-learn computes core
        distances by a matrix product, to fewer digits).

    Notes
    -----
    Ankerst, Breunig, Kriegel, Sander: OPTICS, SIGMOD 1999.  Equal executions share their
    reachability until they are visited, and only the first of them can be a shorter way
    to others.  So every distinct vector looks at all others once: O(n^2) time, and O(n)
    memory, as distances are computed when they are needed.
    """
    begin = np.concatenate([[0], np.cumsum(weight)]).astype(np.int64)
    total = int(begin[-1])
    rows = np.arange(total, dtype=np.int64) if rows is None else np.ascontiguousarray(rows)
    core = core_distances(space, weight, min_samples)
    found = Density(
        ordering=np.empty(total, np.int64),
        reachability=np.empty(total),
        predecessor=np.empty(total, np.int64),
        core=core,
        member=np.empty(total, np.int64),
    )
    found.member[rows] = np.repeat(np.arange(len(space)), weight)
    visit(_columns(space), core, begin, rows, found.ordering, found.reachability, found.predecessor)
    return found


def _columns(space: F64) -> F64:
    """Copy vectors column by column."""
    return np.array(space.T, dtype=np.float64, order="C", copy=True)
