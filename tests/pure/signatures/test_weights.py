"""Weights: scikit-learn and plain twins are the oracles; what must not change, does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from critpath.model.signatures import Counts
from critpath.signatures.weights import NEEDING_CORPUS, WEIGHTS, find_quiet, weigh

TERMS = ("a", "b", "cg:cpu.user_ms", "d", "e")


def made(table, terms=TERMS, seconds=1.0):
    table = np.asarray(table, np.int64)
    document, term = np.nonzero(table)
    begin = np.arange(len(table)) * round(seconds * 1e9)
    return Counts(
        vocabulary=terms,
        scopes=("machine",),
        begin=begin,
        end=begin + round(seconds * 1e9),
        scope=np.zeros(len(table), np.int32),
        lossy=np.zeros(len(table), np.bool_),
        document=document.astype(np.int32),
        term=term.astype(np.int32),
        count=table[document, term],
    )


def dense(signatures):
    found = np.zeros((len(signatures), len(signatures.vocabulary)))
    found[signatures.document, signatures.term] = signatures.weight
    return found


TABLES = of_numpy.arrays(np.int64, (6, 5), elements=st.integers(0, 10**6))


@given(TABLES)
def test_weights_are_those_of_plain_twins(table):
    hits = np.delete(table, 2, axis=1)
    total = np.maximum(hits.sum(axis=1, keepdims=True), 1)
    with_term = (hits > 0).sum(axis=0)
    quiet = find_quiet(made(table), 0)
    seen = (hits[~quiet] > 0).sum(axis=0)
    plain = {
        "hellinger": np.sqrt(hits / total),
        "tf": hits / total,
        "tfidf": hits / total * np.log(max((~quiet).sum(), 1) / (1 + seen)),
    }
    assert with_term.shape == seen.shape
    for name, expected in plain.items():
        length = np.linalg.norm(expected, axis=1, keepdims=True)
        found = dense(weigh(made(table), name, quiet_rate=0))
        assert np.allclose(np.delete(found, 2, axis=1), expected / np.where(length > 0, length, 1))
        assert not found[:, 2].any()  # no event: other units


@given(TABLES)
def test_the_smooth_one_is_scikit_learns(table):
    text = pytest.importorskip("sklearn.feature_extraction.text")
    table[:, 2] = 0
    table += 1_000  # no document is quiet, and all are of the corpus
    table[:, 2] = 0
    table[:3, 4] = 0
    expected = text.TfidfTransformer().fit_transform(table).toarray()
    assert np.allclose(dense(weigh(made(table), "tfidf-smooth", quiet_rate=0)), expected)


def test_rates_are_of_everything_and_differences_of_what_occurs():
    found = dense(weigh(made([[100, 0, 50, 0, 0]], seconds=0.5), "rate"))
    expected = 2 * (np.sqrt(np.array([200, 0, 100, 0, 0]) + 3 / 8) - np.sqrt(3 / 8))
    assert np.allclose(found, expected)


@given(TABLES, st.integers(2, 1000))
def test_scaling_changes_nothing_but_quietness(table, by):
    one, many = (weigh(made(table * factor), "hellinger", quiet_rate=0) for factor in (1, by))
    assert np.allclose(dense(one), dense(many))
    assert not (many.quiet & ~one.quiet).any()


def test_another_document_changes_no_vector():
    table = np.arange(1, 31).reshape(6, 5) * 100
    alone, together = weigh(made(table[:3])), weigh(made(table))
    assert np.array_equal(dense(alone), dense(together)[:3])
    assert {"tfidf", "tfidf-smooth"} == NEEDING_CORPUS < {*WEIGHTS}


def test_terms_that_never_occur_change_no_similarity():
    table = np.arange(1, 11).reshape(2, 5) * 1000
    wide = np.insert(table, 5, 0, axis=1)
    one, other = dense(weigh(made(table))), dense(weigh(made(wide, (*TERMS, "never"))))
    assert np.isclose(one[0] @ one[1], other[0] @ other[1])


def test_little_is_quiet():
    counts = made([[0] * 5, [3, 1, 0, 1, 1], [10**6, 1, 0, 1, 1], [0, 0, 999, 0, 0]])
    assert find_quiet(counts).tolist() == [True, True, False, True]
    assert find_quiet(counts, 10**7).all()
    lengths = np.linalg.norm(dense(weigh(counts)), axis=1)
    assert np.allclose(lengths, [0, 1, 1, 0])
