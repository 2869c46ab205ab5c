"""Distances in units of how the same thing differs from day to day, and how sure an answer is.

Documents are vectors of square roots of shares (`hellinger`).  With S the covariance of documents
about the mean of their label, all labels and sessions pooled, the distance of x and y is
|W(x - y)| with W = (S + e I)^(-1/2): a direction in which the same thing wanders counts little.
Of S the largest eigenpairs (u, l) decide, so that, without a dense matrix,

    |W(x - y)|^2 = |x - y|^2 / e - sum_j (1/e - 1/(l_j + e)) (u_j.(x - y))^2

The p-value is conformal (Vovk, Gammerman and Shafer, 2005), calibrated across sessions: a stored
document is as strange as it is to its label's *other* sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from critpath.model import F64, I64, Bool

SMALLEST: Final = 0.001  # e: variance of a direction in which nothing was seen to wander
NEAREST: Final = 3  # documents that speak for a label
LEVEL: Final = 0.01
_FEW_LEVEL: Final = 0.05  # where there are fewer than so many to compare with
_FEW: Final = 200
# Sessions of most labels below which an answer near the level is inconclusive.
ENOUGH_SESSIONS: Final = 3
TWINS: Final = 0.05  # share of documents that are nearest to another label
_MOST_PAIRS: Final = 64  # eigenpairs
_DENSE: Final = 1_000  # terms up to which all eigenpairs are found
_BLOCK: Final = 1 << 24  # distances that are in memory at a time


@dataclass(frozen=True, eq=False)
class Corpus:
    """Judged documents of several sessions of labels.

    Attributes
    ----------
    vectors : scipy.sparse.csr_array [documents, terms]
        Of length 1.
    label, session : int64 [documents]
    labels : int
    """

    vectors: Any
    label: I64
    session: I64
    labels: int

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: Any) -> Corpus:
        """Return some documents."""
        return Corpus(self.vectors[rows], self.label[rows], self.session[rows], self.labels)

    @cached_property
    def sessions(self) -> I64:
        """How many sessions every label has: int64 [labels]."""
        pairs = np.unique(np.stack([self.label, self.session]), axis=1)
        return np.bincount(pairs[0], minlength=self.labels)


@dataclass(frozen=True, eq=False)
class Drift:
    """The directions in which the same thing wanders, and how little they count.

    Attributes
    ----------
    directions : float64 [terms, pairs]
    weight : float64 [pairs]
        What is taken off the squared distance for each squared difference along it.
    smallest : float
    """

    directions: F64
    weight: F64
    smallest: float = SMALLEST

    def project(self, vectors: Any) -> F64:
        """Return documents along the directions, scaled: float64 [documents, pairs]."""
        along: F64 = np.asarray(vectors @ self.directions) * np.sqrt(self.weight)
        return along

    def distances(self, some: Any, others: Any) -> Iterator[tuple[slice, F64]]:
        """Yield the distances of some documents to all others, block by block."""
        ours, theirs = self.project(some), self.project(others)
        squares = np.asarray(some.multiply(some).sum(axis=1)).ravel()
        other_squares = np.asarray(others.multiply(others).sum(axis=1)).ravel()
        turned = others.T.tocsc()
        step = max(1, _BLOCK // max(1, others.shape[0]))
        for first in range(0, some.shape[0], step):
            rows = slice(first, first + step)
            product = (some[rows] @ turned).toarray()
            square = (squares[rows, None] + other_squares - 2 * product) / self.smallest
            mine = ours[rows]
            square -= (mine**2).sum(axis=1)[:, None] + (theirs**2).sum(axis=1)
            square += 2 * (mine @ theirs.T)
            yield rows, np.sqrt(np.maximum(square, 0.0))


def find_drift(corpus: Corpus, smallest: float = SMALLEST) -> Drift:
    """Return how documents of the same label differ from each other.

    Parameters
    ----------
    corpus : Corpus
        With a label of several sessions the wandering is that from day to day, else only that
        within a session.
    """
    centred = _centre(corpus)
    return _drift_of(centred, smallest)


def _centre(corpus: Corpus) -> Any:
    """Return documents less the mean of their label, of the terms that occur: dense."""
    from scipy.sparse import csr_array  # noqa: PLC0415 - 0.1 s that only searches need

    ones = csr_array(
        (np.ones(len(corpus)), (corpus.label, np.arange(len(corpus)))),
        shape=(corpus.labels, len(corpus)),
    )
    size = np.maximum(np.bincount(corpus.label, minlength=corpus.labels), 1)
    means = (ones @ corpus.vectors).toarray() / size[:, None]
    dense = corpus.vectors.toarray()
    dense -= means[corpus.label]
    return dense


def _drift_of(centred: F64, smallest: float) -> Drift:
    documents, terms = centred.shape
    used = np.flatnonzero(np.abs(centred).max(axis=0, initial=0.0) > 0)
    if not len(used):
        return Drift(np.zeros((terms, 0)), np.zeros(0), smallest)
    small = centred[:, used]
    if min(len(used), documents) <= _DENSE:
        # The eigenvectors of the smaller of both products.
        wide = len(used) <= documents
        product = (small.T @ small if wide else small @ small.T) / max(1, documents)
        values, vectors = np.linalg.eigh(product)
        values, vectors = values[::-1], vectors[:, ::-1]
        if not wide:
            vectors = small.T @ vectors
            vectors /= np.maximum(np.linalg.norm(vectors, axis=0), 1e-12)
    else:
        from scipy.sparse.linalg import svds  # noqa: PLC0415 - as above

        _, singular, turned = svds(small, k=_MOST_PAIRS, random_state=0)
        order = np.argsort(-singular)
        values, vectors = singular[order] ** 2 / documents, turned[order].T
    kept = np.flatnonzero(values[:_MOST_PAIRS] > smallest / 10)
    directions = np.zeros((terms, len(kept)))
    directions[used] = vectors[:, kept]
    return Drift(directions, 1 / smallest - 1 / (values[kept] + smallest), smallest)


def mean_of_nearest(distances: F64, label: I64, labels: int) -> F64:
    """Return for each row the mean distance to the nearest documents of each label.

    float64 [rows, labels]; infinite for a label without documents.
    """
    found = np.full((len(distances), labels), np.inf)
    for one in np.unique(label).tolist():
        mine = distances[:, label == one]
        if mine.shape[1] > NEAREST:
            mine = np.partition(mine, NEAREST - 1, axis=1)[:, :NEAREST]
        found[:, one] = mine.mean(axis=1)
    return found


@dataclass(frozen=True, eq=False)
class Ranking:
    """How strange what is known is, in order, and so how strange anything is among it."""

    values: F64

    def __len__(self) -> int:
        return len(self.values)

    def p_values(self, strange: Any) -> F64:
        """Return how often what is known is as strange."""
        behind = len(self) - np.searchsorted(self.values, np.asarray(strange) * (1 - 1e-12))
        p: F64 = (1 + behind) / (1 + len(self))
        return p

    def level(self, wanted: float = LEVEL) -> float:
        """Return the p-value at which something is like nothing known."""
        return wanted if len(self) >= _FEW else max(wanted, _FEW_LEVEL)

    def is_calibrated(self, wanted: float = LEVEL) -> bool:
        """Tell whether there is enough to compare with for a p-value to reach the level."""
        return 1 + len(self) >= 1 / self.level(wanted)


@dataclass(frozen=True, eq=False)
class Calibration:
    """How strange what is known is, judged by the other sessions of its label.

    Attributes
    ----------
    corpus : Corpus
    drift : Drift
    nearest : int64 [documents]
        The label that each is nearest to without its own session, -1 where its label has no other.
    distances : float64 [documents, labels]
        To the labels without its own session.
    spread : float64 [labels]
        How far a session usually is from the others of its label; that of a usual label where it
        has one session.
    strangeness : float64 [documents]
        To its own label; nan where that has no other session.
    """

    corpus: Corpus
    drift: Drift
    nearest: I64
    distances: F64
    spread: F64
    strangeness: F64
    usual: float = field(default=1.0)

    @cached_property
    def known(self) -> Ranking:
        """Strangeness of all documents that could be judged, in order."""
        return Ranking(np.sort(self.strangeness[~np.isnan(self.strangeness)]))

    @cached_property
    def medians(self) -> Ranking:
        """Median strangeness of every session that could be judged, in order."""
        found = []
        for one in np.unique(self.corpus.session).tolist():
            mine = self.strangeness[self.corpus.session == one]
            if len(mine) and not np.isnan(mine).any():
                found.append(float(np.median(mine)))
        return Ranking(np.sort(np.array(found, np.float64)))

    @cached_property
    def twins(self) -> tuple[tuple[int, ...], ...]:
        """Labels that are confused with each other in more than one document of twenty."""
        judged = self.nearest >= 0
        table = np.zeros((self.corpus.labels,) * 2, np.int64)
        np.add.at(table, (self.corpus.label[judged], self.nearest[judged]), 1)
        total = np.maximum(table.sum(axis=1, keepdims=True), 1)
        close = table / total > TWINS
        group = list(range(self.corpus.labels))
        for one, other in np.argwhere(close | close.T).tolist():
            old, new = group[one], group[other]
            group = [min(old, new) if g in {old, new} else g for g in group]
        found: dict[int, list[int]] = {}
        for label, of in enumerate(group):
            found.setdefault(of, []).append(label)
        return tuple(tuple(labels) for labels in found.values() if len(labels) > 1)

    def strange(self, distances: F64, label: I64) -> F64:
        """Return how strange documents are to a label, from their distances to it."""
        scale = np.sqrt(self.spread[label] * self.usual)
        strange: F64 = distances / np.maximum(scale, 1e-12)
        return strange

    def p_values(self, strange: Any, *, sessions: bool = False) -> F64:
        """Return how often what is known is as strange: of documents, or of medians of sessions."""
        return (self.medians if sessions else self.known).p_values(strange)

    def level(self, wanted: float = LEVEL, *, sessions: bool = False) -> float:
        """Return the p-value at which something is like nothing known."""
        return (self.medians if sessions else self.known).level(wanted)

    def is_calibrated(self, wanted: float = LEVEL, *, sessions: bool = False) -> bool:
        """Tell whether there is enough to compare with for a p-value to reach the level."""
        return (self.medians if sessions else self.known).is_calibrated(wanted)

    @property
    def has_enough(self) -> bool:
        """Most labels have so many sessions that the level is kept."""
        return float(np.median(self.corpus.sessions)) >= ENOUGH_SESSIONS


def calibrate(corpus: Corpus) -> Calibration:
    """Judge every session of a corpus by the others.

    Where a label has three sessions and more, without the wandering of the one that is judged.
    """
    documents = len(corpus)
    drift = find_drift(corpus)
    distances = np.full((documents, corpus.labels), np.inf)
    own = np.full(documents, np.nan)
    for one in np.unique(corpus.session).tolist():
        mine = np.flatnonzero(corpus.session == one)
        rest = np.flatnonzero(corpus.session != one)
        if not len(rest):
            continue
        label = int(corpus.label[mine[0]])
        others = corpus.take(rest)
        used = find_drift(others) if corpus.sessions[label] > 2 else drift
        for rows, block in used.distances(corpus.vectors[mine], others.vectors):
            distances[mine[rows]] = mean_of_nearest(block, others.label, corpus.labels)
        if corpus.sessions[label] > 1:
            own[mine] = distances[mine, label]
    nearest = np.where(np.isnan(own), -1, np.argmin(distances, axis=1))
    # How far each session is from the others of its label.
    far = {
        one: (int(corpus.label[corpus.session == one][0]), float(np.median(of)))
        for one in np.unique(corpus.session).tolist()
        if not np.isnan(of := own[corpus.session == one]).any()
    }
    usual = max(float(np.median([median for _, median in far.values()])) if far else 1.0, 1e-9)

    def spread_of(label: int, without: int = -1) -> float:
        found = [median for one, (of, median) in far.items() if of == label and one != without]
        return max(float(np.mean(found)), 1e-9) if found else usual

    spread = np.array([spread_of(label) for label in range(corpus.labels)])
    # A session's own distance must not make it less strange: its label's spread is without it.
    scale = np.full(len(corpus), usual)
    for one, (label, _) in far.items():
        scale[corpus.session == one] = np.sqrt(spread_of(label, one) * usual)
    strangeness = own / scale
    return Calibration(corpus, drift, nearest, distances, spread, strangeness, usual)


def strangers_of(known: Calibration, families: Sequence[Sequence[int]]) -> tuple[Bool, F64]:
    """Return which documents have a stranger's view, and their p-values as one.

    Each label is left out with its twins; what is nearest then is strange or not.
    """
    family = {label: set(labels) for labels in families for label in labels}
    strange = np.full(len(known.corpus), np.nan)
    for label in range(known.corpus.labels):
        gone = sorted(family.get(label, {label}))
        mine = np.flatnonzero(known.corpus.label == label)
        rest = np.setdiff1d(np.arange(known.corpus.labels), gone)
        if not len(rest) or not len(mine):
            continue
        left = known.distances[np.ix_(mine, rest)]
        best = np.argmin(left, axis=1)
        finite = np.isfinite(left[np.arange(len(mine)), best])
        found = known.strange(left[np.arange(len(mine)), best], rest[best])
        strange[mine] = np.where(finite, found, np.nan)
    seen = ~np.isnan(strange)
    return seen, known.p_values(np.where(seen, strange, 0.0))
