"""Distances in units of drift: the native search and the bounds of `check`, against all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from critpath.schema.parameters.signatures import DRIFT
from critpath.signatures.difference import Side, find_scatter
from critpath.signatures.drift import Corpus, Drift, LeftOut, calibrate, find_drift, mean_of_nearest

TERMS = 24


def draw(seed: int, labels: int, sessions: int, *, spread: float, documents: int = 6) -> Corpus:
    """Draw sessions of labels: the larger the spread, the more labels look like each other."""
    rng = np.random.default_rng(seed)
    usual = rng.lognormal(0, 1, (labels, TERMS)) * (rng.random((labels, TERMS)) < 0.7)
    usual[:, 0] += 0.1  # nothing is empty
    vectors, label, session = [], [], []
    for number in range(labels * sessions):
        of = number % labels
        day = usual[of] * rng.lognormal(0, spread, TERMS)
        many = int(rng.integers(1, documents + 1))
        shares = day * rng.lognormal(0, spread / 3, (many, TERMS))
        vectors.append(np.sqrt(shares / shares.sum(axis=1, keepdims=True)))
        label += [of] * many
        session += [number] * many
    return Corpus.of(csr_array(np.concatenate(vectors)), np.array(label), np.array(session), labels)


def plain_distances(drift: Drift, some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return |W(x - y)| of all pairs as it is defined, with W as a dense matrix."""
    between = some[:, None, :] - others[None, :, :]
    metric = np.eye(some.shape[1]) / drift.smallest
    metric -= (drift.directions * drift.weight) @ drift.directions.T
    return np.sqrt(np.maximum(np.einsum("ijk,kl,ijl->ij", between, metric, between), 0))


CORPORA = st.builds(
    draw,
    st.integers(0, 10_000),
    st.integers(1, 6),
    st.integers(1, 4),
    spread=st.sampled_from([0.02, 0.2, 1.0]),
)


@given(CORPORA, st.integers(1, 19), st.integers(0, 10_000))
def test_the_search_finds_the_distances_of_all_pairs(corpus: Corpus, asked: int, seed: int) -> None:
    known = calibrate(corpus)
    some = draw(seed, asked, 1, spread=0.2, documents=1).vectors
    distances = plain_distances(known.drift, some.toarray(), corpus.vectors.toarray())
    wanted = mean_of_nearest(distances, corpus.label, corpus.labels)
    assert known.to_labels(some) == pytest.approx(wanted, abs=2e-2)


@given(CORPORA)
def test_the_nearest_of_a_session_within_the_bound_are_those_of_a_full_search(
    corpus: Corpus,
) -> None:
    left_out = LeftOut(corpus, find_drift(corpus))
    every = np.arange(corpus.labels)
    for session in corpus.of_session:
        metric = left_out.metric(session)
        full = left_out.to_labels(session, every, metric)
        least = left_out.at_least(session)
        assert (least <= full + 1e-9).all()
        none = np.full(len(least), np.inf)
        label, distance = left_out.nearest(session, least, none, metric)
        some = np.isfinite(full).any(axis=1)
        assert distance == pytest.approx(full.min(axis=1))
        chosen = np.take_along_axis(full, label[:, None], axis=1)[:, 0]
        assert chosen[some] == pytest.approx(full.min(axis=1)[some])


def test_a_corpus_keeps_six_bytes_a_term() -> None:
    corpus = draw(1, 3, 3, spread=0.2)
    assert corpus.term.itemsize + corpus.weight.itemsize == 6
    kept = corpus.take(corpus.label == 1)
    assert (kept.vectors != corpus.vectors[corpus.label == 1]).nnz == 0
    assert (kept.label == 1).all()


def test_a_label_without_documents_is_infinitely_far() -> None:
    corpus = draw(1, 2, 2, spread=0.2)
    more = Corpus(
        *(corpus.start, corpus.term, corpus.weight, corpus.terms),
        *(corpus.label, corpus.session, 3),
    )
    found = calibrate(more).to_labels(corpus.vectors)
    assert np.isinf(found[:, 2]).all()
    assert np.isfinite(found[:, :2]).all()
    assert DRIFT.nearest == 3


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(3, 8), st.integers(2, 20))
def test_the_scatter_of_normal_documents_is_the_same_by_terms_and_by_documents(
    seed: int, sides: int, terms: int, documents: int
) -> None:
    rng = np.random.default_rng(seed)
    normals = [
        Side(rng.random((documents, terms)), 9 * rng.random((documents, terms)))
        for _ in range(sides)
    ]
    scatter = find_scatter(normals)
    rows = [np.hstack([side.shares, scatter.rate_weight * side.rates]) for side in normals]
    centred = np.concatenate([each - each.mean(axis=0) for each in rows])
    smallest = 1e-3 * (np.concatenate(rows) ** 2).sum(axis=1).mean()
    assert scatter.smallest == pytest.approx(smallest)
    values, vectors = np.linalg.eigh(
        centred.T @ centred / len(centred) + smallest * np.eye(2 * terms)
    )
    wanted = (vectors / np.sqrt(values)) @ vectors.T
    found = np.eye(2 * terms) / np.sqrt(smallest)
    found += (scatter.directions * scatter.weight) @ scatter.directions.T
    # What hardly scatters is taken for what does not.
    assert found == pytest.approx(wanted, rel=0.06, abs=0.06 / np.sqrt(smallest))
