"""Distances of executions to clusters, each distinct vector once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from critpath.cluster._silhouettes import block_size, sums_between, sums_within
from critpath.cluster.space import distinct, squared_distances, stabilise
from critpath.model import F64, I64, Clustering, VectorTable


@dataclass(frozen=True)
class Points:
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


@dataclass(frozen=True)
class NormalSpace:
    """Normal executions and their summed distances to every normal cluster.

    A point is what executions of one cluster with equal counts share.

    Attributes
    ----------
    labels : int64 [n]
    sizes : float64 [clusters]
    sums : float64 [n, clusters]
        Sum of an execution's distances to the members of a cluster.
    points : Points
        Without repetitions.
    point_labels : int64 [points]
    point_sums : float64 [points, clusters]
    """

    labels: I64
    sizes: F64
    sums: F64
    points: Points
    point_labels: I64
    point_sums: F64

    def sums_of(self, counts: I64) -> F64:
        """Sum the distances of executions to the members of every normal cluster.

        Parameters
        ----------
        counts : int64 [m, symbols]
            Executions with equal counts cost as much as one.

        Returns
        -------
        float64 [m, clusters]
        """
        once = distinct(counts)
        return self.points.sums_from(stabilise(counts[once.row]))[once.member]


def normal_space(normal: VectorTable, clusters: Clustering) -> NormalSpace:
    """Compute what every pairing needs of the normal set, once.

    Parameters
    ----------
    normal : VectorTable
    clusters : Clustering
        Of the same executions; labels from 0, none without an execution.

    Notes
    -----
    Every distance of two distinct vectors once: O(P^2) time for P points, O(P) memory.
    """
    labels = clusters.labels
    once = distinct(np.column_stack([labels, normal.structure]))
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
        sums=point_sums[once.member],
        points=points,
        point_labels=point_labels,
        point_sums=point_sums,
    )


def blocks(left: F64, right: F64) -> Iterator[tuple[slice, F64]]:
    """Distances of all left to all right points, as `squared_distances` yields them."""
    for rows, distance in squared_distances(left, right):
        yield rows, np.sqrt(distance, out=distance)
