"""The space in which executions are compared: variance-stabilised count vectors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec import Struct

from critpath.cluster._optics import core_distances as fill_core_distances
from critpath.cluster._optics import squares, visit
from critpath.cluster._silhouettes import block_size, sums_between, sums_within
from critpath.model import F64, I64, Clustering, VectorTable, Whole
from critpath.model.vectors import number_rows
from critpath.schema.parameters.cluster import TYPES
from critpath.stats.rows import order_rows

_CHUNK = 1 << 22  # technical: distances held at once: 32 MiB


class DistinctRows(Struct, frozen=True):
    """Rows of a table without repetitions.

    Attributes
    ----------
    row : int64 [v]
        Where each distinct row is first found.
    weight : int64 [v]
        How often it is found.
    member : int64 [n]
        Which distinct row each row of the table is.
    """

    row: I64
    weight: I64
    member: I64


def distinct(*tables: Whole) -> DistinctRows:
    """Find the distinct rows of tables side by side, in ascending order, first column first."""
    # Numbered column by column: sorting takes ten times as long.
    columns = [column for table in tables for column in np.atleast_2d(table.T)]
    row, member = number_rows(columns, len(tables[0]))
    return DistinctRows(row, np.bincount(member, minlength=len(row)).astype(np.int64), member)


def stabilise(counts: Whole) -> F64:
    """Give Poisson-like counts a variance near one, whatever their mean."""
    return 2.0 * np.sqrt(counts.astype(np.float64) + TYPES.anscombe)


def squared_distances(left: F64, right: F64) -> Iterator[tuple[slice, F64]]:
    """Squared distances of all left to all right points, a few rows of them at a time."""
    points, columns = np.ascontiguousarray(left), np.ascontiguousarray(right.T)
    step = min(max(1, _CHUNK // max(1, len(right))), len(left))
    result = np.empty((step, len(right)))
    for begin in range(0, len(left), max(step, 1)):
        rows = slice(begin, min(begin + step, len(left)))
        part = result[: rows.stop - begin]
        squares(points[rows], columns, part)
        yield rows, part


def canonical_order(table: VectorTable) -> I64:
    """Order executions by their vectors, so that their order of arrival cannot matter."""
    return order_rows(distinct(table.structure).member, table.durations)


def renumber(labels: I64, order: I64, weight: I64 | None = None) -> I64:
    """Rank clusters by size, largest first, then by their first member."""
    values, first, which = np.unique(labels[order], return_index=True, return_inverse=True)
    size = np.bincount(which.reshape(-1), None if weight is None else weight[order])
    return np.asarray(values[np.lexsort((first, -size))], dtype=np.int64)


def relabel(labels: I64, ranking: I64) -> I64:
    """Replace every label by its place in the ranking; -1 stays -1."""
    place = np.full(int(ranking.max(initial=-1)) + 2, -1, np.int64)
    place[ranking] = np.arange(len(ranking))
    return place[labels]


# Distances of executions to clusters.


class Points(Struct, frozen=True):
    """Points cluster by cluster, cut into blocks of one cluster.

    Attributes
    ----------
    points : float64 [n, symbols]
    weight : float64 [n]
        Executions that a point stands for.
    begin : int64 [clusters + 1]
        First point of every cluster.
    """

    points: F64
    weight: F64
    begin: I64

    @property
    def blocks(self) -> I64:
        """First point of every block: int64 [blocks + 1]."""
        inner = [np.arange(a, b, block_size()) for a, b in pairwise(self.begin)]
        return np.concatenate([*inner, self.begin[-1:]]).astype(np.int64)

    @property
    def tile(self) -> F64:
        """Room for a block, column by column."""
        return np.empty((self.points.shape[1], block_size()))

    def sums_within(self) -> F64:
        """Sum the distances of every point to the members of every cluster: [n, clusters]."""
        sums = np.zeros((len(self.points), len(self.begin) - 1))
        sums_within(self.points, self.weight, self.begin, self.blocks, self.tile, sums)
        return sums

    def sums_from(self, left: F64) -> F64:
        """Sum the distances of other points to the members of every cluster: [m, clusters]."""
        sums = np.zeros((len(left), len(self.begin) - 1))
        left = np.ascontiguousarray(left)
        sums_between(left, self.points, self.weight, self.begin, self.blocks, self.tile, sums)
        return sums


class NormalSpace(Struct, frozen=True):
    """Normal executions and their summed distances to every normal cluster.

    A point is what executions of one cluster with equal counts share.

    Attributes
    ----------
    labels : int64 [n]
    sizes : float64 [clusters]
    member : int64 [n]
        Point of every execution.
    points : Points
        Without repetitions.
    point_labels : int64 [points]
    point_sums : float64 [points, clusters]
        Sum of a point's distances to the members of a cluster.
    """

    labels: I64
    sizes: F64
    member: I64
    points: Points
    point_labels: I64
    point_sums: F64

    def sums_of(self, counts: Whole) -> tuple[F64, I64]:
        """Sum the distances of other executions to the members of every normal cluster.

        Returns
        -------
        float64 [distinct, clusters]
        int64 [m]
            Which of these is of each execution.
        """
        once = distinct(counts)
        return self.points.sums_from(stabilise(counts[once.row])), once.member


def normal_space(normal: VectorTable, clusters: Clustering) -> NormalSpace:
    """Compute what every pairing needs of the normal set, once."""
    labels = clusters.labels
    once = distinct(labels, normal.structure)
    point_labels = labels[once.row]
    points = Points(
        stabilise(normal.structure[once.row]),
        once.weight.astype(np.float64),
        np.searchsorted(point_labels, np.arange(clusters.size + 1)).astype(np.int64),
    )
    point_sums = points.sums_within()
    return NormalSpace(
        labels=labels,
        sizes=np.bincount(labels, minlength=clusters.size).astype(np.float64),
        member=once.member,
        points=points,
        point_labels=point_labels,
        point_sums=point_sums,
    )


def blocks(left: F64, right: F64) -> Iterator[tuple[slice, F64]]:
    """Distances of all left to all right points, as `squared_distances` yields them."""
    for rows, distance in squared_distances(left, right):
        yield rows, np.sqrt(distance, out=distance)


# OPTICS over distinct vectors with weights.


class Density(Struct, frozen=True):
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
    """Distance at which the summed weight, a vector's own included, reaches min_samples."""
    core = np.empty(len(space))
    fill_core_distances(_columns(space), weight.astype(np.int64), min_samples, core)
    return core


def density(space: F64, weight: I64, min_samples: int, rows: I64 | None = None) -> Density:
    """Order executions so that dense regions are runs of low reachability (OPTICS)."""
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
