"""Incidents: how a system differs from its own normal, in counts and in causes.

A signature names the workload, not its fault: what names a fault is the difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from critpath.model import F64, I64
from critpath.model.signatures import Counts, is_free
from critpath.schema.parameters.signatures import DRIFT
from critpath.units import NS_PER_S


@dataclass(frozen=True, eq=False)
class Side:
    """Documents as shares and as rates, over common terms: float64 [documents, terms]."""

    shares: F64
    rates: F64


def make_side(counts: Counts, terms: Sequence[str]) -> Side:
    """Return documents over some terms; what the kernel counts for a group is in the rates only."""
    place = {term: at for at, term in enumerate(terms)}
    column = np.array([place.get(term, -1) for term in counts.vocabulary], np.int64)[counts.term]
    kept = column >= 0
    dense = np.zeros((len(counts), len(terms)))
    dense[counts.document[kept], column[kept]] = counts.count[kept]
    hits = dense * [not is_free(term) for term in terms]
    total = np.maximum(hits.sum(axis=1, keepdims=True), 1)
    seconds = (np.maximum(counts.end - counts.begin, 1) / NS_PER_S)[:, None]
    return Side(np.sqrt(hits / total), 2 * np.sqrt(dense / seconds + 3 / 8))


@dataclass(frozen=True, eq=False)
class Scatter:
    """How normal documents differ from each other, of all incidents together."""

    directions: F64
    weight: F64  # what the part along each is multiplied by, less that of all others
    smallest: float
    rate_weight: float

    def difference(self, sample: Side, normal: Side) -> F64:
        """Return documents less the mean of the normal ones, scaled to length 1."""
        both = [
            np.hstack([side.shares, self.rate_weight * side.rates]) for side in (sample, normal)
        ]
        moved = both[0] - both[1].mean(axis=0)
        along = moved @ self.directions
        scaled = moved / math.sqrt(self.smallest) + (along * self.weight) @ self.directions.T
        length = np.linalg.norm(scaled, axis=1, keepdims=True)
        found: F64 = scaled / np.maximum(length, 1e-12)
        return found


def find_scatter(normals: Sequence[Side]) -> Scatter:
    """Return the scatter of normal documents about their own means.

    Products are of terms where there are fewer of these than of documents, side by side: no table
    of all documents is made then.
    """
    documents = sum(len(side.shares) for side in normals)
    length = sum(np.linalg.norm(side.shares, axis=1).sum() for side in normals)
    long = sum(np.linalg.norm(side.rates, axis=1).sum() for side in normals)
    rate_weight = float(length / max(long, 1e-12 * documents))
    squares = sum(
        (side.shares**2).sum() + ((rate_weight * side.rates) ** 2).sum() for side in normals
    )
    smallest = max(DRIFT.least_difference * float(squares) / documents, 1e-12)

    def centre(side: Side) -> F64:
        both = np.hstack([side.shares, rate_weight * side.rates])
        centred: F64 = both - both.mean(axis=0)
        return centred

    terms = normals[0].shares.shape[1] + normals[0].rates.shape[1]
    if terms < documents:
        product = np.zeros((terms, terms))
        for side in normals:
            centred = centre(side)
            product += centred.T @ centred
    else:
        centred = np.concatenate([centre(side) for side in normals])
        product = centred @ centred.T
    values, vectors = np.linalg.eigh(product / max(1, documents))
    kept = np.argsort(-values)[: DRIFT.most_pairs]
    kept = kept[values[kept] > smallest / 10]
    directions = vectors[:, kept] if terms < documents else centred.T @ vectors[:, kept]
    directions /= np.maximum(np.linalg.norm(directions, axis=0), 1e-12)
    weight = 1 / np.sqrt(values[kept] + smallest) - 1 / math.sqrt(smallest)
    return Scatter(directions, weight, smallest, rate_weight)


def weigh_causes(causes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return what a term weighs: the fewer incidents have it, the more (idf, smoothed)."""
    with_term: dict[str, int] = {}
    for one in causes:
        for term in one:
            with_term[term] = with_term.get(term, 0) + 1
    known = len(causes)
    return {term: math.log((1 + known) / (1 + n)) + 1 for term, n in with_term.items()}


def compare_causes(
    some: Mapping[str, float], others: Mapping[str, float], weight: Mapping[str, float]
) -> float:
    """Return how alike two incidents' causes are: with the threads' roles, and without.

    Roles tell faults of one program apart; without them a fault carries over to other programs.
    """
    found = [_cosine(some, others, weight, roles=roles) for roles in (True, False)]
    known = [each for each in found if each is not None]  # neither may name a thread
    return sum(known) / len(known) if known else 0.0


def has_role(term: str) -> bool:
    """Tell whether a term of a cause names a thread."""
    return "@" in term


def _cosine(
    some: Mapping[str, float],
    others: Mapping[str, float],
    weight: Mapping[str, float],
    *,
    roles: bool,
) -> float | None:
    def part(terms: Mapping[str, float]) -> dict[str, float]:
        usual = max(weight.values(), default=1.0)
        return {t: v * weight.get(t, usual) for t, v in terms.items() if has_role(t) == roles}

    a, b = part(some), part(others)
    if not a and not b:
        return None
    both = sum(a[t] * b[t] for t in a.keys() & b.keys())
    length = math.sqrt(sum(v * v for v in a.values()) * sum(v * v for v in b.values()))
    return both / length if length else 0.0


def nearest_cosine(vectors: F64, others: F64, label: I64, labels: int, nearest: int) -> F64:
    """Return for each row the mean cosine to the nearest documents of each label."""
    found = np.full((len(vectors), labels), -np.inf)
    cosine = vectors @ others.T
    for one in np.unique(label).tolist():
        mine = cosine[:, label == one]
        if mine.shape[1] > nearest:
            mine = -np.partition(-mine, nearest - 1, axis=1)[:, :nearest]
        found[:, one] = mine.mean(axis=1)
    return found
