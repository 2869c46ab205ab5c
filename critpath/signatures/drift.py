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

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np

from critpath.model import F64, I64, Bool
from critpath.model.signatures import take_rows
from critpath.schema.parameters.signatures import DRIFT
from critpath.signatures import _nearest
from critpath.signatures._nearest import add_nearest, lanes

# What is kept of an older critpath is of other code.
_CODE: Final = (Path(__file__), Path(_nearest.__file__))
_DENSE: Final = 1_000  # technical: terms up to which all eigenpairs are found


@dataclass(frozen=True, eq=False)
class Corpus:
    """Judged documents of several sessions of labels.

    Attributes
    ----------
    start : int64 [documents + 1]
    term : uint16 [rows]
    weight : float32 [rows]
        Vectors of length 1 over the terms, as `Signatures` has them: 6 bytes a term.
    terms : int
    label, session : int64 [documents]
    labels : int
    """

    start: I64
    term: Any
    weight: Any
    terms: int
    label: I64
    session: I64
    labels: int

    @classmethod
    def of(cls, vectors: Any, label: I64, session: I64, labels: int) -> Corpus:
        """Make a corpus of scipy's compressed rows."""
        start, weight = vectors.indptr.astype(np.int64), vectors.data.astype(np.float32)
        if vectors.shape[1] > np.iinfo(np.uint16).max:
            raise ValueError("more terms than a store has")
        term = vectors.indices.astype(np.uint16)
        return cls(start, term, weight, vectors.shape[1], label, session, labels)

    @property
    def vectors(self) -> Any:
        """The vectors as scipy.sparse.csr_array [documents, terms], made when asked for."""
        from scipy.sparse import csr_array  # noqa: PLC0415 - for searches only

        rows = (self.weight, self.term.astype(np.int32), self.start.astype(np.int32))
        return csr_array(rows, shape=(len(self), self.terms))

    def __len__(self) -> int:
        return len(self.label)

    @property
    def digest(self) -> str:
        """Hash of all that is in it, and of how it is judged."""
        found = blake2b(np.__version__.encode(), digest_size=20)
        for file in _CODE:
            found.update(file.read_bytes())
        for column in (self.start, self.term, self.weight, self.label, self.session):
            found.update(np.ascontiguousarray(column).data)
        found.update(f"{self.terms} {self.labels}".encode())
        return found.hexdigest()

    def take(self, documents: Any) -> Corpus:
        """Return some documents: indices, or a bool per document."""
        kept = np.arange(len(self))[documents]
        rows, _ = take_rows(self.start, kept)
        start = np.append(0, np.cumsum(np.diff(self.start)[kept]))
        about = (self.label[kept], self.session[kept], self.labels)
        return Corpus(start, self.term[rows], self.weight[rows], self.terms, *about)

    @cached_property
    def sessions(self) -> I64:
        """How many sessions every label has: int64 [labels]."""
        pairs = np.unique(np.stack([self.label, self.session]), axis=1)
        return np.bincount(pairs[0], minlength=self.labels)

    @cached_property
    def of_session(self) -> dict[int, I64]:
        """Documents of every session, in order."""
        order = np.argsort(self.session, kind="stable")
        found, start = np.unique(self.session[order], return_index=True)
        return dict(zip(found.tolist(), np.split(order, start[1:]), strict=True))

    @cached_property
    def of_label(self) -> list[I64]:
        """Documents of every label, in order."""
        order = np.argsort(self.label, kind="stable")
        return np.split(order, np.searchsorted(self.label[order], np.arange(1, self.labels)))


@dataclass(frozen=True, eq=False)
class Drift:
    """The directions in which the same thing wanders, and how little they count.

    Attributes
    ----------
    directions : float64 [terms, pairs]
    variance : float64 [pairs]
        Along each.
    smallest : float
        That of every other direction.
    """

    directions: F64
    variance: F64
    smallest: float = field(default_factory=lambda: DRIFT.smallest)

    @property
    def weight(self) -> F64:
        """What is taken off the squared distance for each squared difference along a direction."""
        weight: F64 = 1 / self.smallest - 1 / (self.variance + self.smallest)
        return weight

    def lengths(self, vectors: Any) -> F64:
        """Return the squared distance of documents to nothing."""
        along = np.asarray(vectors @ self.directions)
        lengths: F64 = _squares(vectors) / self.smallest - along**2 @ self.weight
        return lengths

    def to_labels(self, some: Any, corpus: Corpus, lengths: Any) -> F64:
        """Return the mean distances of documents to the nearest of each label.

        Parameters
        ----------
        some : scipy.sparse array [documents, terms]
        corpus : Corpus
        lengths : float32 [documents of the corpus]
            Squared distances of these to nothing.

        Returns
        -------
        float64 [documents, labels]
            Infinite for a label without documents.
        """
        found = np.empty((some.shape[0], corpus.labels))
        step = 1 if len(found) == 1 else lanes()
        queries = np.zeros((corpus.terms, step), np.float32)
        room = np.empty((step, corpus.labels, DRIFT.nearest))
        for first in range(0, len(found), step):
            rows = slice(first, first + step)
            block = (some if len(found) <= step else some[rows]).toarray().astype(np.float64)
            along = block @ self.directions
            ours = (block**2).sum(axis=1) / self.smallest - along**2 @ self.weight
            # x W W y of all y is one product: nothing has to be kept of them but their vectors.
            scaled = block / self.smallest - (along * self.weight) @ self.directions.T
            queries[:, : len(block)] = scaled.T
            add_nearest(
                *(corpus.start, corpus.term, corpus.weight, lengths, corpus.label),
                *(queries, ours, room[: len(block)], found[rows]),
            )
        return found


def _squares(vectors: Any) -> F64:
    """Return the squared lengths of sparse rows."""
    squares: F64 = np.asarray(vectors.astype(np.float64).power(2).sum(axis=1)).reshape(-1)
    return squares


def find_drift(corpus: Corpus, smallest: float | None = None) -> Drift:
    """Return how documents of the same label differ from each other.

    Parameters
    ----------
    corpus : Corpus
        With a label of several sessions the wandering is that from day to day, else only that
        within a session.
    """
    smallest = DRIFT.smallest if smallest is None else smallest
    used = np.unique(corpus.term)
    vectors = corpus.vectors if len(used) == corpus.terms else corpus.vectors[:, used]
    documents, terms = vectors.shape
    size = np.maximum(np.bincount(corpus.label, minlength=corpus.labels), 1)
    means = find_means(vectors, corpus) * np.sqrt(size)[:, None]
    if terms <= _DENSE:
        scatter = -means.T @ means
        for first in range(0, documents, _DENSE):  # dense: half of it is not 0
            block = vectors[first : first + _DENSE].toarray().astype(np.float64)
            scatter += block.T @ block
        values, found = np.linalg.eigh(scatter / max(1, documents))
    else:
        from scipy.sparse.linalg import LinearOperator, eigsh  # noqa: PLC0415 - 50 ms

        def scattered(vector: F64) -> F64:
            moved = vectors.T @ (vectors @ vector) - means.T @ (means @ vector)
            return np.asarray(moved / documents, np.float64)

        product = LinearOperator((terms, terms), matvec=scattered, dtype=np.float64)
        values, found = eigsh(product, k=DRIFT.most_pairs, v0=np.ones(terms))
    kept = np.argsort(-values, kind="stable")[: DRIFT.most_pairs]
    kept = kept[values[kept] > smallest / 10]
    directions = np.zeros((corpus.terms, len(kept)))
    directions[used] = found[:, kept]
    return Drift(directions, values[kept], smallest)


def find_means(vectors: Any, corpus: Corpus) -> F64:
    """Return the mean of every label's documents: float64 [labels, terms], 0 where it has none."""
    found = np.zeros((corpus.labels, vectors.shape[1]))
    for label, rows in enumerate(corpus.of_label):
        if len(rows):
            found[label] = np.asarray(vectors[rows].sum(axis=0, dtype=np.float64)) / len(rows)
    return found


def mean_of_nearest(distances: F64, label: I64, labels: int) -> F64:
    """Return for each row the mean distance to the nearest documents of each label.

    float64 [rows, labels]; infinite for a label without documents.
    """
    order = np.argsort(label, kind="stable")
    if labels == 1 and len(label):
        near = np.partition(distances, min(DRIFT.nearest, len(label)) - 1, axis=1)[
            :, : DRIFT.nearest
        ]
        own: F64 = near.mean(axis=1, keepdims=True)
        return own
    left = np.array(distances[:, order] if (np.diff(label) < 0).any() else distances)
    of = label[order]
    size = np.bincount(of, minlength=labels)
    some = np.flatnonzero(size)
    found = np.full((len(left), labels), np.inf)
    if not len(of):
        return found
    starts = np.searchsorted(of, some)
    total = np.zeros((len(left), len(some)))
    place = np.repeat(np.arange(len(some)), size[some])
    for number in range(min(DRIFT.nearest, int(size.max()))):
        least = np.minimum.reduceat(left, starts, axis=1)
        total += np.where(size[some] > number, least, 0.0)
        # The first of the nearest is taken out, of each row and label.
        row, column = np.nonzero(left == least[:, place])
        key = row * len(some) + place[column]
        first = np.append(True, key[1:] != key[:-1])
        left[row[first], column[first]] = np.inf
    found[:, some] = total / np.minimum(size[some], DRIFT.nearest)
    return found


class LeftOut:
    """Sessions judged by the others, each without its own part in the wandering.

    Without a session the scatter is less in some of the directions that all have, and nowhere
    more than by the share of documents that is left: which bounds from below how near a label may
    be, so that few have to be looked at.
    """

    def __init__(self, corpus: Corpus, drift: Drift) -> None:
        self._corpus, self._drift = corpus, drift
        self._vectors = corpus.vectors
        self._along = np.asarray(self._vectors @ drift.directions)
        means = find_means(self._vectors, corpus)
        self._centred = self._along - (means @ drift.directions)[corpus.label]
        self._squares = _squares(self._vectors)
        largest = max((len(rows) for rows in corpus.of_session.values()), default=0)
        grown = drift.variance * len(corpus) / max(1, len(corpus) - largest)
        self._least = Drift(drift.directions, grown, drift.smallest)
        self._held: tuple[int, F64] = (-1, np.zeros((0, 0)))
        along = means @ drift.directions
        # Means as W moves them, and their squared distance to nothing.
        self._moved = means / drift.smallest - (along * self._least.weight) @ drift.directions.T
        self._lengths = (means * self._moved).sum(axis=1)
        self._least_lengths = self._least.lengths(self._vectors)
        self._radius = np.array(
            [
                self._to_means(rows, label)[:, label].max(initial=0.0)
                for label, rows in enumerate(corpus.of_label)
            ]
        )

    def metric(self, session: int) -> F64:
        """Return what the squared distance is less, by differences along the directions."""
        corpus, smallest = self._corpus, self._drift.smallest
        mine = corpus.of_session[session]
        label = int(corpus.label[mine[0]])
        if corpus.sessions[label] <= 2:
            return np.diag(self._drift.weight)
        centred = self._centred[mine]
        total = centred.sum(axis=0)
        rest = len(corpus.of_label[label]) - len(mine)
        scatter = np.diag(self._drift.variance * len(corpus)) - centred.T @ centred
        scatter -= np.outer(total, total) / rest
        scatter /= len(corpus) - len(mine)
        one = np.eye(len(scatter))
        metric: F64 = one / smallest - np.linalg.inv(scatter + smallest * one)
        return metric

    def to_labels(self, session: int, labels: I64, metric: F64) -> F64:
        """Return the mean distances of a session to the nearest of labels, less itself.

        float64 [documents of the session, labels]
        """
        corpus = self._corpus
        mine = corpus.of_session[session]
        rows = np.concatenate([corpus.of_label[one] for one in labels.tolist()])
        label = int(corpus.label[mine[0]])
        some = self._some(mine, label)
        others = self._held[1]
        if labels.tolist() != [label]:
            others = self._vectors[rows].toarray().astype(np.float64)
        ours, theirs = self._along[mine], self._along[rows]
        mixed = ours @ metric
        square = (self._squares[mine, None] + self._squares[rows] - 2 * some @ others.T) / (
            self._drift.smallest
        )
        square -= (mixed * ours).sum(axis=1)[:, None] + ((theirs @ metric) * theirs).sum(axis=1)
        square += 2 * mixed @ theirs.T
        rest = corpus.session[rows] != session
        place = np.searchsorted(labels, corpus.label[rows[rest]])
        return mean_of_nearest(np.sqrt(np.maximum(square[:, rest], 0.0)), place, len(labels))

    def at_least(self, session: int) -> F64:
        """Return how far a session is from each label at least: float64 [documents, labels]."""
        mine = self._corpus.of_session[session]
        block = self._to_means(mine, int(self._corpus.label[mine[0]]))
        lower: F64 = np.maximum(block - self._radius, 0) * (1 - 1e-6)
        return lower

    def _to_means(self, rows: I64, label: int) -> F64:
        """Return how far documents of a label are from the mean of each at least."""
        product = self._some(rows, label) @ self._moved.T
        square = self._least_lengths[rows, None] + self._lengths - 2 * product
        found: F64 = np.sqrt(np.maximum(square, 0.0))
        return found

    def _some(self, rows: I64, label: int) -> F64:
        """Return some of a label's documents, dense; the label is kept for its next session."""
        if self._held[0] != label:
            exact = self._vectors[self._corpus.of_label[label]].toarray()
            self._held = (label, exact.astype(np.float64))
        found: F64 = self._held[1][np.searchsorted(self._corpus.of_label[label], rows)]
        return found

    def nearest(self, session: int, least: F64, below: F64, metric: F64) -> tuple[I64, F64]:
        """Return which label each document is nearest to, and how far it is.

        Parameters
        ----------
        session : int
        least : float64 [documents, labels]
            How far a label is at least; infinite for one that is left out.
        below : float64 [documents]
            Only labels that are nearer count: -1 where there is none.
        metric : float64 [pairs, pairs]
        """
        label, found = np.full(len(least), -1), below.copy()
        known = np.zeros(least.shape[1], np.bool_)
        for first in (True, False):
            near = (least < found[:, None]) & ~known
            chosen = np.unique(np.argmin(np.where(near, least, np.inf), axis=1)) if first else None
            wanted = np.flatnonzero(near.any(axis=0))
            wanted = wanted if chosen is None else np.intersect1d(wanted, chosen)
            if not len(wanted):
                break
            known[wanted] = True
            distance = self.to_labels(session, wanted, metric)
            best = np.argmin(distance, axis=1)
            nearer = distance[np.arange(len(best)), best]
            better = nearer < found
            label = np.where(better, wanted[best], label)
            found = np.where(better, nearer, found)
        return label, found


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

    def level(self, wanted: float | None = None) -> float:
        """Return the p-value at which something is like nothing known."""
        wanted = DRIFT.level if wanted is None else wanted
        return wanted if len(self) >= DRIFT.few else max(wanted, DRIFT.few_level)

    def is_calibrated(self, wanted: float | None = None) -> bool:
        """Tell whether there is enough to compare with for a p-value to reach the level."""
        wanted = DRIFT.level if wanted is None else wanted
        return len(self) >= sessions_needed(self.level(wanted))


@dataclass(frozen=True, eq=False)
class Calibration:
    """How strange what is known is, judged by the other sessions of its label.

    Attributes
    ----------
    corpus : Corpus
    drift : Drift
    nearest : int64 [documents]
        The label that each is nearest to without its own session, -1 where its label has no other.
    distance : float64 [documents]
        To that label.
    spread : float64 [labels]
        How far a session usually is from the others of its label; that of a usual label where it
        has one session.
    strangeness : float64 [documents]
        To its own label; nan where that has no other session.
    """

    corpus: Corpus
    drift: Drift
    nearest: I64
    distance: F64
    spread: F64
    strangeness: F64
    usual: float = field(default=1.0)

    def pack(self) -> F64:
        """Return all but the corpus as figures in a row."""
        drift = self.drift
        parts = (self.nearest, self.distance, self.strangeness, self.spread, [self.usual])
        return np.concatenate([*parts, drift.variance, drift.directions.ravel()])

    @classmethod
    def unpack(cls, corpus: Corpus, figures: F64) -> Calibration | None:
        """Return what was packed; None where the figures are not those of such a corpus."""
        sizes = [len(corpus)] * 3 + [corpus.labels, 1]
        pairs, odd = divmod(len(figures) - sum(sizes), 1 + corpus.terms)
        if odd or not 0 <= pairs <= DRIFT.most_pairs:
            return None
        ends = np.cumsum([*sizes, pairs])
        nearest, distance, strangeness, spread, usual, variance, rest = np.split(figures, ends)
        label = nearest.astype(np.int64)
        if not (np.isin(label, np.arange(-1, corpus.labels)).all() and (spread > 0).all()):
            return None
        drift = Drift(rest.reshape(corpus.terms, pairs), variance)
        return cls(corpus, drift, label, distance, spread, strangeness, float(usual[0]))

    @cached_property
    def lengths(self) -> Any:
        """Squared distance of every document to nothing: float32 [documents]."""
        return self.drift.lengths(self.corpus.vectors).astype(np.float32)

    def to_labels(self, some: Any) -> F64:
        """Return the mean distances of documents to the nearest of each label."""
        return self.drift.to_labels(some, self.corpus, self.lengths)

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
        close = table / total > DRIFT.twins
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

    def level(self, wanted: float | None = None, *, sessions: bool = False) -> float:
        """Return the p-value at which something is like nothing known."""
        wanted = DRIFT.level if wanted is None else wanted
        return (self.medians if sessions else self.known).level(wanted)

    def is_calibrated(self, wanted: float | None = None, *, sessions: bool = False) -> bool:
        """Tell whether there is enough to compare with for a p-value to reach the level."""
        wanted = DRIFT.level if wanted is None else wanted
        return (self.medians if sessions else self.known).is_calibrated(wanted)

    def holds(self, level: float) -> bool:
        """Tell whether p-values of documents keep a level: sessions count, they are independent.

        Documents of a session may be as strange as each other: then the strangest are all of one,
        and what is known is called unknown as often as it would be the strangest of all sessions.
        """
        return len(self.medians) >= sessions_needed(level) and self.has_enough

    @property
    def has_enough(self) -> bool:
        """Most labels have so many sessions that the level is kept."""
        return float(np.median(self.corpus.sessions)) >= DRIFT.enough_sessions


def sessions_needed(level: float) -> int:
    """Return of how many sessions one is the strangest no more often than the level."""
    return math.ceil(1 / level - 1e-9) - 1


def calibrate(corpus: Corpus) -> Calibration:
    """Judge every session of a corpus by the others.

    Where a label has three sessions and more, without the wandering of the one that is judged.
    """
    drift = find_drift(corpus)
    left_out = LeftOut(corpus, drift)
    own = np.full(len(corpus), np.nan)
    nearest = np.full(len(corpus), -1)
    distance = np.full(len(corpus), np.nan)
    far: dict[int, tuple[int, float]] = {}  # label, and how far it is from the others of it
    for one, mine in corpus.of_session.items():
        label = int(corpus.label[mine[0]])
        if corpus.sessions[label] < 2:
            continue
        metric = left_out.metric(one)
        own[mine] = left_out.to_labels(one, np.array([label]), metric)[:, 0]
        least = left_out.at_least(one)
        least[:, label] = np.inf
        other, distance[mine] = left_out.nearest(one, least, own[mine], metric)
        nearest[mine] = np.where(other < 0, label, other)
        far[one] = (label, float(np.median(own[mine])))
    usual = max(float(np.median([median for _, median in far.values()])) if far else 1.0, 1e-9)
    of_label: dict[int, dict[int, float]] = {}
    for one, (label, median) in far.items():
        of_label.setdefault(label, {})[one] = median

    def spread_of(label: int, without: int = -1) -> float:
        found = [m for one, m in of_label.get(label, {}).items() if one != without]
        return max(float(np.mean(found)), 1e-9) if found else usual

    spread = np.array([spread_of(label) for label in range(corpus.labels)])
    # A session's own distance must not make it less strange: its label's spread is without it.
    scale = np.full(len(corpus), usual)
    for one, (label, _) in far.items():
        scale[corpus.of_session[one]] = np.sqrt(spread_of(label, one) * usual)
    return Calibration(corpus, drift, nearest, distance, spread, own / scale, usual)


def strangers_of(known: Calibration, families: Sequence[Sequence[int]]) -> tuple[Bool, F64]:
    """Return which documents have a stranger's view, and their p-values as one.

    Each label is left out with its twins; what is nearest then is strange or not.
    """
    corpus = known.corpus
    family = {label: set(labels) for labels in families for label in labels}
    left_out = LeftOut(corpus, known.drift)
    strange = np.full(len(corpus), np.nan)
    strangest = known.known.values[-1] if len(known.known) else np.inf
    every = np.arange(corpus.labels)
    for one, mine in corpus.of_session.items():
        label = int(corpus.label[mine[0]])
        gone = sorted(family.get(label, {label}))
        least = left_out.at_least(one)
        least[:, gone] = np.inf
        if not np.isfinite(least).any():
            continue
        # What is stranger than all that is known is a stranger, however far it is.
        strange[mine] = np.inf
        close = (known.strange(least, every) <= strangest).any(axis=1)
        if close.any():
            least[~close] = np.inf
            below = np.full(len(mine), np.inf)
            best, distance = left_out.nearest(one, least, below, left_out.metric(one))
            strange[mine[close]] = known.strange(distance[close], best[close])
    seen = ~np.isnan(strange)
    return seen, known.p_values(np.where(seen, strange, 0.0))
