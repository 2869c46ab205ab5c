"""The states of a store over terms that all could count, judged by each other.

What was derived from a store is kept in the user's cache directory, never in the store itself.  It
is named by the hash of all that it was made of, so it is never stale; whatever is not as it was
written, or not the user's own, is not there.  Without it everything works, slower.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np

from critpath.errors import CritpathError
from critpath.files import atomic
from critpath.model import F64, I64
from critpath.model.signatures import Counts, Entry, is_free
from critpath.schema.parameters.signatures import LOOKUP
from critpath.signatures.drift import Calibration, Corpus, calibrate
from critpath.signatures.weights import find_quiet
from critpath.text import known as words
from critpath.units import NS_PER_S
from critpath.untrusted import read_regular

_WORTH_KEEPING: Final = 4_000  # technical: documents: judging as many takes longer than a start
_MOST: Final = 16  # technical: files: a few stores, each for what few sets of events have in common
_LARGEST: Final = 256 << 20  # technical
_HASH: Final = 32  # technical: bytes of a file's hash, at its begin


@dataclass(frozen=True, eq=False)
class Library:
    """The states of a store that can be compared with something, in one space.

    Attributes
    ----------
    labels, terms : tuple of str
    entries : tuple of Entry
        Sessions of the corpus, by their numbers.
    calibration : Calibration
    comparable : tuple of Entry
        These, and those in which too little happened.
    left_out : tuple of str
    """

    labels: tuple[str, ...]
    terms: tuple[str, ...]
    entries: tuple[Entry, ...]
    calibration: Calibration
    comparable: tuple[Entry, ...]
    left_out: tuple[str, ...]

    @property
    def twins(self) -> tuple[tuple[str, ...], ...]:
        """Labels that are too alike to be told apart."""
        return tuple(tuple(self.labels[i] for i in of) for of in self.calibration.twins)


def make_library(entries: Sequence[Entry], asked: Counts | None = None) -> Library | None:
    """Put entries, and what is asked about, over the terms that all could count.

    Parameters
    ----------
    entries : sequence of Entry
    asked : Counts, optional
        Entries with which it has too few terms in common are left out.

    Returns
    -------
    Library or None
        None where nothing can be compared.
    """
    kept, left_out = find_comparable(entries, asked)
    if not kept:
        return None
    terms = common_terms([e.counts for e in kept] + ([asked] if asked is not None else []))
    labels = tuple(sorted({entry.label for entry in kept}))
    vectors: list[Any] = []
    label: list[int] = []
    session: list[int] = []
    used: list[Entry] = []
    for entry in kept:
        found, rows = make_vectors(entry.counts, terms)
        found = found if len(rows) == found.shape[0] else found[rows]
        if not len(rows):
            left_out.append(words.quiet_entry(entry.name or entry.label))
            continue
        vectors.append(found)
        label += [labels.index(entry.label)] * found.shape[0]
        session += [len(used)] * found.shape[0]
        used.append(entry)
    if not vectors:
        return None
    from scipy.sparse import vstack  # noqa: PLC0415 - start-up time

    stacked = vstack(vectors, format="csr")
    corpus = Corpus.of(stacked, np.array(label), np.array(session), len(labels))
    return Library(labels, terms, tuple(used), calibrate_once(corpus), tuple(kept), tuple(left_out))


def calibrate_once(corpus: Corpus) -> Calibration:
    """Judge every session of a corpus by the others, or take it from where that was kept."""
    if len(corpus) < _WORTH_KEEPING:
        return calibrate(corpus)
    key = corpus.digest
    kept = load_derived(key)
    found = None if kept is None else Calibration.unpack(corpus, kept)
    if found is None:
        found = calibrate(corpus)
        keep_derived(key, found.pack())
    return found


def make_vectors(counts: Counts, terms: Sequence[str]) -> tuple[Any, Any]:
    """Return square roots of shares over some terms, and which documents are judged."""
    from scipy.sparse import csr_array  # noqa: PLC0415 - start-up time

    column = _columns(counts.vocabulary, tuple(terms))[counts.term]
    kept = column >= 0
    document, column, count = counts.document[kept], column[kept], counts.count[kept]
    total = np.bincount(document, count, minlength=len(counts))
    weight = np.sqrt(count / np.maximum(total, 1)[document])
    start = np.searchsorted(document, np.arange(len(counts) + 1))
    vectors = csr_array((weight, column, start), shape=(len(counts), len(terms)))
    judged = ~counts.lossy & ~find_quiet(counts) & (total > 0)
    return vectors, np.flatnonzero(judged)


@lru_cache(maxsize=64)
def _columns(vocabulary: tuple[str, ...], terms: tuple[str, ...]) -> I64:
    """Return the place of each term of a vocabulary among others, -1 where it is not there."""
    place = {term: at for at, term in enumerate(terms)}
    return np.array([place.get(term, -1) for term in vocabulary], np.int64)


def find_comparable(
    entries: Sequence[Entry], asked: Counts | None
) -> tuple[list[Entry], list[str]]:
    """Return entries that can be compared with each other, and lines about the others.

    The vocabulary that most of the hits are of wins: that of what is asked about, else that of
    the latest entry.
    """
    if not entries:
        return [], []
    first = asked if asked is not None else max(entries, key=lambda e: e.recorded).counts
    common = frozenset(first.vocabulary)

    @cache  # entries that were counted in the same way have one vocabulary
    def both(vocabulary: tuple[str, ...], terms: frozenset[str]) -> tuple[frozenset[str], float]:
        shared = terms & frozenset(vocabulary)
        return shared, _share_of(first, shared)

    def share(entry: Entry, terms: frozenset[str]) -> float:
        shared, ours = both(entry.counts.vocabulary, terms)
        return min(_share_of(entry.counts, shared), ours)

    # Those first that have most in common: an odd one must not narrow what the others are held by.
    shares = [share(entry, common) for entry in entries]
    chosen = []
    for at in sorted(range(len(entries)), key=lambda at: -shares[at]):
        if share(entries[at], common) >= LOOKUP.comparable:
            chosen.append(at)
            common = both(entries[at].counts.vocabulary, common)[0]
    good = {at for at in chosen if share(entries[at], common) >= LOOKUP.comparable}
    kept = [entry for at, entry in enumerate(entries) if at in good]
    left_out = [
        words.not_comparable_entry(entry.name or entry.label)
        for at, entry in enumerate(entries)
        if at not in good
    ]
    return kept, left_out


def _share_of(counts: Counts, terms: frozenset[str]) -> float:
    """Return which share of the hits is of some terms; 1 where there is no hit."""
    if len(terms) == len(counts.vocabulary):  # of which they are some: these are all
        return 1.0
    inside = np.array([term in terms for term in counts.vocabulary], np.bool_)
    hit = ~counts.free[counts.term]
    total = int(counts.count[hit].sum())
    return float(counts.count[hit & inside[counts.term]].sum() / total) if total else 1.0


def common_terms(many: Sequence[Counts], *, free: bool = False) -> tuple[str, ...]:
    """Return the terms that all could count, with what the kernel counts for a group if asked."""
    common = set(many[0].vocabulary)
    for vocabulary in {counts.vocabulary for counts in many[1:]}:
        common &= set(vocabulary)
    return tuple(sorted(term for term in common if free or not is_free(term)))


def rates(counts: Counts, terms: Sequence[str]) -> F64:
    """Return how often each term happened, times a second."""
    place = {term: at for at, term in enumerate(terms)}
    column = np.array([place.get(term, -1) for term in counts.vocabulary], np.int64)[counts.term]
    kept = (column >= 0) & ~counts.lossy[counts.document]
    total = np.bincount(column[kept], counts.count[kept], minlength=len(terms))
    used = ~counts.lossy
    seconds = float((counts.end - counts.begin)[used].sum()) / NS_PER_S
    rates: F64 = total / max(seconds, 1e-9)
    return rates


# What was derived, kept.


def _directory() -> Path | None:
    """Return where the user's programs keep what they can make again; None where nowhere is."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    with suppress(RuntimeError):
        place = Path(given) if given.startswith("/") else Path.home() / ".cache"
        return place / "critpath" / "known"
    return None


def load_derived(key: str) -> F64 | None:
    """Return the figures that were kept under a key; None where there are none, or not as kept."""
    place = _directory()
    if place is None:
        return None
    try:
        content = read_regular(place / key, _LARGEST, owners={os.geteuid()}, shared=False)
    except OSError:
        return None
    if len(content) % 8 or content[:_HASH] != _hash(key, content[_HASH:]):
        return None
    return np.frombuffer(content, np.float64, offset=_HASH)


def keep_derived(key: str, figures: F64) -> None:
    """Keep figures under a key, and few others; nothing where that is not possible."""
    place = _directory()
    content = np.ascontiguousarray(figures, np.float64).tobytes()
    if place is None or len(content) > _LARGEST - _HASH:
        return
    with suppress(OSError, CritpathError):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.stat().st_uid != os.geteuid():
            return
        with atomic(place / key) as stream:
            stream.write(_hash(key, content) + content)
        kept = sorted(place.iterdir(), key=lambda file: -file.lstat().st_mtime)
        for file in kept[_MOST:]:
            file.unlink()


def _hash(key: str, content: bytes) -> bytes:
    return blake2b(key.encode() + content, digest_size=_HASH).digest()
