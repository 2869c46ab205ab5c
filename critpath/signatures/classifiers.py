"""Labels and groups by what libraries have: linear SVM, K-means (scikit-learn), trees (SciPy)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from critpath.model import F64, I64
from critpath.schema.parameters.signatures import DRIFT
from critpath.signatures.drift import Corpus

_LINKAGE: Final = ("ward", "single", "complete", "average")


def fit_svm(corpus: Corpus) -> Any:
    """Return scikit-learn's linear SVM, one label against the rest, fitted to a corpus.

    It takes dense rows.  Its penalty C is the one that is right most often when each session is
    left out in turn.
    """
    from sklearn.svm import LinearSVC  # noqa: PLC0415 - a second, for this classifier only

    def fitted(penalty: float, some: Corpus) -> Any:
        return LinearSVC(C=penalty, dual=False).fit(some.vectors.toarray(), some.label)

    sessions = np.unique(corpus.session)
    right = dict.fromkeys(DRIFT.penalties, 0)
    several = corpus.sessions[corpus.label] > 1
    folds = _folds(corpus, sessions)
    for fold in folds if len(folds) > 1 else ():
        held = np.isin(corpus.session, fold)
        rest = corpus.take(np.flatnonzero(~held))
        judged = np.flatnonzero(held & several & np.isin(corpus.label, rest.label))
        if not len(judged) or len(np.unique(rest.label)) < 2:
            continue
        for penalty in DRIFT.penalties:
            found = fitted(penalty, rest).predict(corpus.take(judged).vectors.toarray())
            right[penalty] += int((found == corpus.label[judged]).sum())
    best = max(DRIFT.penalties, key=lambda penalty: (right[penalty], -abs(np.log10(penalty))))
    return fitted(best, corpus)


def _folds(corpus: Corpus, sessions: I64) -> list[list[int]]:
    """Return sessions to leave out together: the first of every label, the second, ..."""
    place: dict[int, int] = {}
    folds: dict[int, list[int]] = {}
    for session in sessions.tolist():
        label = int(corpus.label[corpus.session == session][0])
        place[label] = place.get(label, -1) + 1
        folds.setdefault(place[label], []).append(session)
    return list(folds.values())


def group(vectors: Any, method: str, clusters: int) -> I64:
    """Return a group for each document, -1 for none.

    Parameters
    ----------
    vectors : scipy.sparse array [documents, terms]
    method : str
        ``k-means``, ``optics``, ``ward``, ``single``, ``complete`` or ``average``.
    clusters : int
        Groups wanted; OPTICS finds how many there are.
    """
    dense = vectors.toarray()
    if method == "k-means":
        from sklearn.cluster import KMeans  # noqa: PLC0415 - as above

        found: I64 = KMeans(clusters, n_init=DRIFT.starts, random_state=0).fit_predict(dense)
        return found.astype(np.int64)
    if method == "optics":
        from sklearn.cluster import OPTICS  # noqa: PLC0415 - as above

        labelled: I64 = OPTICS(min_samples=5).fit_predict(dense)
        return labelled.astype(np.int64)
    if method not in _LINKAGE:
        raise ValueError(f"no such method: {method}")
    from scipy.cluster.hierarchy import fcluster, linkage  # noqa: PLC0415 - as above

    tree = linkage(dense, method)
    labels: I64 = fcluster(tree, clusters, "maxclust").astype(np.int64) - 1
    return labels


def find_syndromes(corpus: Corpus) -> F64:
    """Return the mean of every label's vectors, each session the same, scaled to length 1."""
    found = np.zeros((corpus.labels, corpus.terms))
    vectors = corpus.vectors
    for label in range(corpus.labels):
        sessions = np.unique(corpus.session[corpus.label == label]).tolist()
        means = [
            np.asarray(vectors[corpus.session == one].mean(axis=0)).ravel() for one in sessions
        ]
        if means:
            found[label] = np.mean(means, axis=0)
    length = np.linalg.norm(found, axis=1, keepdims=True)
    scaled: F64 = found / np.maximum(length, 1e-12)
    return scaled


def tree_of(syndromes: F64) -> Any:
    """Return the tree of labels: average linkage of 1 - cos, as SciPy has it."""
    from scipy.cluster.hierarchy import linkage  # noqa: PLC0415 - as above
    from scipy.spatial.distance import squareform  # noqa: PLC0415 - as above

    distance = 1 - np.clip(syndromes @ syndromes.T, -1, 1)
    np.fill_diagonal(distance, 0)
    return linkage(squareform((distance + distance.T) / 2, checks=False), "average")


def largest_gap(tree: Any) -> int:
    """Return how many groups there are below the largest gap between a tree's heights."""
    heights = np.append(0.0, tree[:, 2])
    at = int(np.argmax(np.diff(heights)))
    return len(heights) - at


def purity(groups: I64, labels: I64) -> float:
    """Return which share of documents are of the label that is most in their group."""
    right = 0
    for one in np.unique(groups).tolist():
        mine = labels[groups == one]
        # What is in no group is a group each.
        right += int(np.bincount(mine).max()) if one >= 0 else len(mine)
    return right / max(1, len(labels))


def adjusted_rand(groups: I64, labels: I64) -> float:
    """Return scikit-learn's adjusted Rand index."""
    from sklearn.metrics import adjusted_rand_score  # noqa: PLC0415 - as above

    return float(adjusted_rand_score(labels, groups))


def weigh_terms(vector: F64, others: F64, terms: Sequence[str], most: int) -> Mapping[str, float]:
    """Return the terms in which a syndrome exceeds the mean of all the most, and their weights."""
    order = np.argsort(-(vector - others), kind="stable")[:most].tolist()
    return {terms[at]: float(vector[at]) for at in order if vector[at] > 0}
