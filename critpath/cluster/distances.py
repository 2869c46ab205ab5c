"""Distances of executions to clusters, each distinct vector once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from critpath.cluster.space import distinct, squared_distances, stabilise
from critpath.model import F64, I64, Clustering, VectorTable


@dataclass(frozen=True)
class NormalSpace:
    """Normal executions and their summed distances to every normal cluster.

    A point is what executions of one cluster with equal counts share.

    Attributes
    ----------
    space : float64 [n, symbols]
        Stabilised counts.
    labels : int64 [n]
    onehot : float64 [n, clusters]
    sizes : float64 [clusters]
    sums : float64 [n, clusters]
        Sum of an execution's distances to the members of a cluster.
    points : float64 [points, symbols]
    point_labels : int64 [points]
    weight : float64 [points]
        Executions.
    point_sums : float64 [points, clusters]
    """

    space: F64
    labels: I64
    onehot: F64
    sizes: F64
    sums: F64
    points: F64
    point_labels: I64
    weight: F64
    point_sums: F64


def normal_space(normal: VectorTable, clusters: Clustering) -> NormalSpace:
    """Compute what every pairing needs of the normal set, once.

    Parameters
    ----------
    normal : VectorTable
    clusters : Clustering
        Of the same executions.
    """
    labels = clusters.labels
    onehot = np.zeros((len(labels), clusters.size))
    onehot[np.arange(len(labels)), labels] = 1.0
    once = distinct(np.column_stack([labels, normal.structure]))
    points = stabilise(normal.structure[once.row])
    weight = once.weight.astype(np.float64)
    point_sums = _sums(points, points, onehot[once.row] * weight[:, None])
    return NormalSpace(
        space=stabilise(normal.structure),
        labels=labels,
        onehot=onehot,
        sizes=onehot.sum(axis=0),
        sums=point_sums[once.member],
        points=points,
        point_labels=labels[once.row],
        weight=weight,
        point_sums=point_sums,
    )


def sum_distances(left: F64, right: F64, onehot: F64) -> F64:
    """Sum the distances of every left point to each group of right points.

    Parameters
    ----------
    left : float64 [n, symbols]
    right : float64 [m, symbols]
    onehot : float64 [m, groups]
        1 where a right point is in a group, or how often it is.

    Returns
    -------
    float64 [n, groups]
        Points that are equal cost as much as one.
    """
    ours, theirs = distinct(left), distinct(right)
    share = np.zeros((len(theirs.row), onehot.shape[1]))
    for k in range(onehot.shape[1]):
        share[:, k] = np.bincount(theirs.member, onehot[:, k], len(theirs.row))
    return _sums(left[ours.row], right[theirs.row], share)[ours.member]


def point_sums(points: F64, home: NormalSpace) -> F64:
    """Sum distances of points to the members of every normal cluster: [points, clusters]."""
    share = np.zeros((len(home.points), len(home.sizes)))
    share[np.arange(len(home.points)), home.point_labels] = home.weight
    return _sums(points, home.points, share)


def _sums(left: F64, right: F64, share: F64) -> F64:
    result = np.empty((len(left), share.shape[1]))
    for rows, distance in blocks(left, right):
        result[rows] = distance @ share
    return result


def blocks(left: F64, right: F64) -> Iterator[tuple[slice, F64]]:
    """Distances of all left to all right points, as `squared_distances` yields them."""
    for rows, distance in squared_distances(left, right):
        yield rows, np.sqrt(distance, out=distance)
