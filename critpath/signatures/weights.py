"""Weights: counts of a document as a vector that can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from critpath.model import F64, I64, Bool
from critpath.model.signatures import Counts, Signatures
from critpath.schema.parameters.signatures import QUIET
from critpath.units import NS_PER_S


@dataclass(frozen=True)
class Corpus:
    """How many documents a weight is judged by, and in how many each term occurs.

    Attributes
    ----------
    documents : int
    with_term : mapping of str to int
    """

    documents: int
    with_term: Mapping[str, int]


def make_corpus(counts: Counts, *, quiet_rate: float | None = None) -> Corpus:
    """Return the corpus of all documents that are neither lossy nor quiet."""
    quiet_rate = QUIET.rate if quiet_rate is None else quiet_rate
    kept = ~counts.lossy & ~find_quiet(counts, quiet_rate)
    occurs = np.bincount(
        counts.term[kept[counts.document]], minlength=len(counts.vocabulary)
    ).tolist()
    return Corpus(int(kept.sum()), dict(zip(counts.vocabulary, occurs, strict=True)))


def join_corpora(corpora: Sequence[Corpus]) -> Corpus:
    """Return the corpus of the documents of several."""
    found: Counter[str] = Counter()
    for each in corpora:
        found.update(each.with_term)
    return Corpus(sum(each.documents for each in corpora), found)


def weigh(
    counts: Counts,
    weights: str = "hellinger",
    corpus: Corpus | None = None,
    *,
    quiet_rate: float | None = None,
) -> Signatures:
    """Return the signatures of some documents.

    Parameters
    ----------
    counts : Counts
    weights : str
        Of `WEIGHTS`.
    corpus : Corpus, optional
        For those weights that need one: None for the documents themselves.
    quiet_rate : float
        Hits a second below which a document is quiet.

    Returns
    -------
    Signatures
        A document without a hit has no vector, and is quiet.
    """
    quiet_rate = QUIET.rate if quiet_rate is None else quiet_rate
    hit = ~counts.free[counts.term]
    if weights == "rate":
        hit[:] = True
    document, term, count = counts.document[hit], counts.term[hit], counts.count[hit]
    if weights in NEEDING_CORPUS:
        found = corpus or make_corpus(counts, quiet_rate=quiet_rate)
        with_term = np.array([found.with_term.get(t, 0) for t in counts.vocabulary], np.int64)
        of_corpus = (found.documents, with_term[term])
    else:
        of_corpus = (0, np.zeros(0, np.int64))
    seconds = np.maximum(counts.end - counts.begin, 1) / NS_PER_S
    weight = WEIGHTS[weights](
        count, np.maximum(counts.hits, 1)[document], seconds[document], *of_corpus
    )
    if weights != "rate":
        squares = np.bincount(document, weight**2, minlength=len(counts))
        length = np.sqrt(squares)
        weight = weight / np.where(length > 0, length, 1.0)[document]
    start = np.searchsorted(document, np.arange(len(counts) + 1)).astype(np.int64)
    return Signatures(
        vocabulary=counts.vocabulary,
        scopes=counts.scopes,
        begin=counts.begin,
        end=counts.end,
        scope=counts.scope,
        lossy=counts.lossy,
        quiet=find_quiet(counts, quiet_rate),
        hits=counts.hits,
        start=start,
        term=term,
        weight=weight,
        weights=weights,
        interval=counts.interval,
        source=counts.source,
        executions=counts.executions,
    )


def find_quiet(counts: Counts, quiet_rate: float | None = None) -> Bool:
    """Return which documents say too little to be judged.

    With multinomial counts 1 - cos is (k - 1) / (8 N) on average, for k terms that occur in N
    hits; a document is quiet where that exceeds `QUIET.scatter`, or where there are too few hits
    a second.
    """
    quiet_rate = QUIET.rate if quiet_rate is None else quiet_rate
    hit = ~counts.free[counts.term]
    occurring = np.bincount(counts.document[hit], minlength=len(counts))
    total = np.maximum(counts.hits, 1)
    seconds = np.maximum(counts.end - counts.begin, 1) / NS_PER_S
    scatter = np.maximum(occurring - 1, 0) / (8 * total)
    quiet: Bool = (
        (counts.hits == 0) | (scatter > QUIET.scatter) | (counts.hits < quiet_rate * seconds)
    )
    return quiet


def _share(count: I64, total: I64) -> F64:
    share: F64 = count / total
    return share


def _hellinger(count: I64, total: I64, _seconds: F64, _documents: int, _with: I64) -> F64:
    root: F64 = np.sqrt(_share(count, total))
    return root


def _tf(count: I64, total: I64, _seconds: F64, _documents: int, _with: I64) -> F64:
    return _share(count, total)


def _tfidf(count: I64, total: I64, _seconds: F64, documents: int, with_term: I64) -> F64:
    """As in Fmeter (Marian et al., 2012): negative where every document has the term."""
    weight: F64 = _share(count, total) * np.log(max(documents, 1) / (1 + with_term))
    return weight


def _tfidf_smooth(count: I64, total: I64, _seconds: F64, documents: int, with_term: I64) -> F64:
    """As scikit-learn's `TfidfTransformer` with its defaults."""
    weight: F64 = _share(count, total) * (np.log((1 + documents) / (1 + with_term)) + 1)
    return weight


def _rate(count: I64, _total: I64, seconds: F64, _documents: int, _with: I64) -> F64:
    """Anscombe's roots, less what a term that does not occur would have: differences stay."""
    weight: F64 = 2 * (np.sqrt(count / seconds + 3 / 8) - np.sqrt(3 / 8))
    return weight


Weight = Callable[[I64, I64, F64, int, I64], F64]
WEIGHTS: Final[Mapping[str, Weight]] = {
    "hellinger": _hellinger,
    "tf": _tf,
    "tfidf": _tfidf,
    "tfidf-smooth": _tfidf_smooth,
    "rate": _rate,
}
NEEDING_CORPUS: Final = frozenset({"tfidf", "tfidf-smooth"})
