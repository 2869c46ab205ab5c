"""The aligner by posteriors: the pair-HMM by enumeration, and what holds for alignments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.align import _consistency
from critpath.align.multiple import align
from critpath.align.posteriors import (
    LONGEST,
    GapChances,
    TooMuchError,
    align_consistent,
    expected_accuracy,
    find_posteriors,
    make_consistent,
    reason_against,
)
from critpath.align.profiles import f81_model
from critpath.schema.notes import AlignedByProfiles

SEQUENCES = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=12).map(lambda x: np.array(x, np.uint8)),
    min_size=1,
    max_size=7,
)
KEYWORDS = dict(find_posteriors.__kwdefaults__)


@pytest.fixture(scope="session")
def twin(load):
    return load("oracle/pair_hmm.py")


def canonical(sequences):
    keys = sorted({s.tobytes() for s in sequences}, key=lambda key: (len(key), key))
    return [np.frombuffer(key, np.uint8) for key in keys]


def model_of(sequences, alphabet):
    return f81_model(np.bincount(np.concatenate(sequences), minlength=alphabet).astype(np.int64))


def run(sequences, alphabet=6, **options):
    codes, _, _ = align_consistent(sequences, model_of(sequences, alphabet), **options)
    return codes


def dense(posteriors, x, y):
    length = np.diff(posteriors.offset)
    result = np.zeros((length[x], length[y]))
    for i in range(length[x]):
        row = posteriors.count * posteriors.offset[x] + y * length[x] + i
        here = slice(posteriors.begin[row], posteriors.begin[row + 1])
        assert (np.diff(posteriors.column[here]) > 0).all()
        result[i, posteriors.column[here]] = posteriors.value[here]
    return result


@pytest.mark.parametrize("seed", range(12))
def test_posteriors_are_those_of_all_alignments(twin, seed):
    rng = np.random.default_rng(seed)
    # More than four to one, so that lanes are full, partly full and of unlike length.
    sequences = [rng.integers(0, 4, rng.integers(1, 6)).astype(np.uint8) for _ in range(6)]
    gaps = GapChances(*rng.uniform(0.01, 0.2, 2), 0.05, *rng.uniform(0.01, 0.2, 2), 0.1)
    ratio = rng.uniform(0.1, 1, (4, 4)) + 3 * np.eye(4)
    ratio = (ratio + ratio.T) / 2
    found = find_posteriors(sequences, ratio, gaps, threshold=1e-6)
    for x in range(6):
        assert not dense(found, x, x).any()
        for y in range(6):
            if x != y:
                expected = twin.posteriors(sequences[x], sequences[y], ratio, gaps)
                assert dense(found, x, y) == pytest.approx(expected, abs=2e-6)


def test_the_two_oracles_agree(twin):
    rng = np.random.default_rng(3)
    ratio = rng.uniform(0.1, 1, (4, 4)) + 3 * np.eye(4)
    for n, m in ((1, 1), (1, 5), (5, 1), (4, 5), (5, 5)):
        x, y = rng.integers(0, 4, n), rng.integers(0, 4, m)
        expected = twin.posteriors(x, y, ratio, GapChances())
        assert twin.long_posteriors(x, y, ratio, GapChances()) == pytest.approx(expected)


def blocks(seed, *lengths, letters=10):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, letters, n).astype(np.uint8) for n in lengths]


def same_as_the_oracle(twin, x, y, letters):
    ratio = model_of([x, y], letters).ratio
    found = dense(find_posteriors([x, y], ratio, GapChances()), 0, 1)
    expected = twin.long_posteriors(x, y, ratio, GapChances())
    # Element by element of an array, pytest.approx is slow.
    np.testing.assert_allclose(found, np.where(found > 0, expected, 0), rtol=0, atol=1e-3)
    assert expected[found == 0].max() < 0.0201
    return found.sum()


@pytest.mark.parametrize("letters", [3, 10, 40])
@pytest.mark.parametrize("length", [40, 80, 300])
def test_blocks_in_swapped_order_are_not_lost(twin, length, letters):
    a, b = blocks(length, length, length, letters=letters)
    total = same_as_the_oracle(twin, np.concatenate([a, b]), np.concatenate([b, a]), letters)
    assert total > 0.9 * length


@pytest.mark.parametrize(
    "missing", [300, *(pytest.param(n, marks=pytest.mark.deep) for n in (600, 900))]
)
def test_what_follows_a_long_missing_block_is_not_lost(twin, missing):
    a, b, c = blocks(missing, 200, missing, missing)
    total = same_as_the_oracle(twin, np.concatenate([a, c]), np.concatenate([a, b, c]), 10)
    assert total > 0.99 * (200 + missing)


def test_unrelated_sequences_are_as_the_oracle_says(twin):
    same_as_the_oracle(twin, *blocks(1, 300, 420), 10)


@pytest.mark.filterwarnings("error")
def test_a_long_missing_block_leaves_the_others_in_their_place():
    rng = np.random.default_rng(8)
    whole = rng.integers(0, 10, 1000)

    def noisy(path):
        changed = rng.random(len(path)) < 0.03
        return np.where(changed, rng.integers(0, 10, len(path)), path).astype(np.uint8)

    rows = [noisy(whole) for _ in range(8)]
    rows.append(noisy(np.concatenate([whole[:200], whole[600:]])))
    aligned = align(rows, [np.ones(len(row), np.int64) for row in rows], 10)
    assert aligned.notes == ()
    place = [{int(k): c for c, k in enumerate(row) if k >= 0} for row in aligned.rows]
    origin = [*range(200), *range(600, 1000)]
    right = [place[8][k] == place[0][at] for k, at in enumerate(origin)]
    assert np.mean(right) > 0.98


@pytest.mark.parametrize("limit", [{"most": 100}, {"wide_cells": 100}])
def test_too_much_is_given_up(limit):
    a, b = blocks(5, 80, 80)
    rows = [np.concatenate([a, b]), np.concatenate([b, a])]
    with pytest.raises(TooMuchError, match="TooUnlike"):
        find_posteriors(rows, model_of(rows, 10).ratio, GapChances(), **limit)


def test_what_was_given_up_is_aligned_by_profiles_and_said(monkeypatch):
    monkeypatch.setattr(find_posteriors, "__kwdefaults__", KEYWORDS | {"most": 10})
    a, b = blocks(6, 50, 60)
    rows = [a, b, np.concatenate([a, [1, 2, 3] * 30, b]).astype(np.uint8)]
    times = [np.ones(len(row), np.int64) for row in rows]
    aligned, plain = align(rows, times, 10), align(rows, times, 10, method="muscle")
    assert aligned.notes[-1].id == "too-unlike"
    assert (aligned.rows == plain.rows).all()


def test_letters_without_odds_are_refused():
    with pytest.raises(ValueError, match="not below 3"):
        find_posteriors([np.array([0, 3], np.uint8)] * 2, np.ones((3, 3)), GapChances())


@pytest.mark.parametrize("seed", range(4))
def test_posteriors_are_chances_and_symmetric(family, seed):
    sequences = family(seed, count=6, length=150)
    found = find_posteriors(sequences, model_of(sequences, 6).ratio, GapChances())
    for p in (found, make_consistent(found)):
        for x in range(6):
            for y in range(x):
                there, back = dense(p, x, y), dense(p, y, x)
                assert (there == back.T).all()
                assert there.sum(axis=0).max() <= 1 + 1e-4
                assert there.sum(axis=1).max() <= 1 + 1e-4
    share = expected_accuracy(found)
    assert (share == share.T).all()
    assert (np.diag(share) == 1).all()
    assert share.min() >= 0
    assert share.max() <= 1


@pytest.mark.parametrize("seed", range(4))
def test_long_sequences_neither_overflow_nor_vanish(family, seed):
    sequences = family(seed, count=2, length=3000, letters=40, rate=0.1)
    found = find_posteriors(sequences, model_of(sequences, 40).ratio, GapChances())
    p = dense(found, 0, 1)
    assert np.isfinite(p).all()
    assert np.median(p.max(axis=1)) > 0.99


@pytest.mark.parametrize("shift", [10, 100, 300])
def test_the_band_is_widened_where_the_sequences_are_shifted(shift):
    # As long, but what they share is `shift` letters apart.
    rng = np.random.default_rng(shift)
    shared, head, tail = (rng.integers(0, 8, n).astype(np.uint8) for n in (400, shift, shift))
    sequences = [np.concatenate([shared, tail]), np.concatenate([head, shared])]
    ratio = model_of(sequences, 8).ratio
    narrow = dense(find_posteriors(sequences, ratio, GapChances(), margin=4), 0, 1)
    whole = dense(find_posteriors(sequences, ratio, GapChances(), margin=10_000), 0, 1)
    np.testing.assert_allclose(narrow, whole, rtol=0, atol=0.02)
    assert np.diagonal(narrow, shift)[50:350].min() > 0.9


@pytest.mark.parametrize("seed", range(4))
def test_consistency_is_the_mean_over_all_ways(family, seed):
    sequences = family(seed, count=5, length=40)
    before = find_posteriors(sequences, model_of(sequences, 6).ratio, GapChances())
    after = make_consistent(before)
    for x in range(5):
        for y in range(5):
            if x == y:
                continue
            direct = dense(before, x, y)
            total = 2 * direct
            for z in set(range(5)) - {x, y}:
                total += dense(before, x, z) @ dense(before, z, y)
            assert dense(after, x, y) == pytest.approx(np.where(direct > 0, total / 5, 0), abs=1e-6)


def test_few_may_be_asked_for_consistency(family):
    sequences = family(6, count=7, length=40)
    before = find_posteriors(sequences, model_of(sequences, 6).ratio, GapChances())
    after = make_consistent(before, most=2)  # sequences 0 and 3
    through = 2 * dense(before, 1, 2)
    for z in (0, 3):
        through += dense(before, 1, z) @ dense(before, z, 2)
    expected = np.where(dense(before, 1, 2) > 0, through / 4, 0)
    assert dense(after, 1, 2) == pytest.approx(expected, abs=1e-6)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**32))
def test_the_path_has_the_largest_sum(twin, n, m, seed):
    scores = np.random.default_rng(seed).integers(0, 9, (n, m)).astype(np.int32)
    path = np.empty(n + m, np.uint8)
    score, first = _consistency.best_path(scores, path)
    assert score == twin.best_sum(scores)
    i = j = total = 0
    for step in path[first:]:
        total += int(scores[i, j]) if step == 0 else 0
        i, j = i + (step != 2), j + (step != 1)
    assert (i, j, total) == (n, m, score)


def test_scores_of_columns_add_up_the_letters(family):
    sequences = family(1, count=4, length=25)
    p = find_posteriors(sequences, model_of(sequences, 6).ratio, GapChances())
    whole = np.rint(p.value * 1000).astype(np.int32)
    rows = [run(sequences[:2]), run(sequences[2:])]
    at = np.empty(p.offset[-1], np.int32)
    members = [np.array([0, 1]), np.array([2, 3])]
    for block, of in zip(rows, members, strict=True):
        _consistency.place_letters(block, of, p.offset, at)
    scores = np.zeros((rows[0].shape[1], rows[1].shape[1]), np.int32)
    _consistency.column_scores(p.offset, p.begin, p.column, whole, *members, at, scores)
    expected = np.zeros_like(scores)
    for a in (0, 1):
        for b in (2, 3):
            here = np.rint(dense(p, a, b) * 1000).astype(np.int32)
            across = np.flatnonzero(rows[0][a] >= 0), np.flatnonzero(rows[1][b - 2] >= 0)
            expected[np.ix_(*across)] += here
    assert (scores == expected).all()


@pytest.mark.parametrize("seed", range(6))
def test_the_chain_of_a_large_matrix_has_the_largest_sum(family, seed):
    sequences = family(seed, count=6, length=70, rate=0.4)
    p = find_posteriors(sequences, model_of(sequences, 6).ratio, GapChances())
    whole = np.rint(p.value * 1000).astype(np.int32)
    rows = [run(sequences[:3]), run(sequences[3:])]
    at = np.empty(p.offset[-1], np.int32)
    members = [np.arange(3), np.arange(3, 6)]
    for block, of in zip(rows, members, strict=True):
        _consistency.place_letters(block, of, p.offset, at)
    n, m = (block.shape[1] for block in rows)
    scores, path = np.zeros((n, m), np.int32), np.empty(n + m, np.uint8)
    entries = (p.offset, p.begin, p.column, whole)
    _consistency.column_scores(*entries, *members, at, scores)
    expected, _ = _consistency.best_path(scores, path)
    score, first = _consistency.best_chain(*entries, rows[0], *members, at, m, path)
    assert score == expected
    i = j = total = 0
    for step in path[first:]:
        total += int(scores[i, j]) if step == 0 else 0
        i, j = i + (step != 2), j + (step != 1)
    assert (i, j, total) == (n, m, score)


def test_long_paths_are_aligned_by_posteriors():
    rng = np.random.default_rng(4)
    whole = rng.integers(0, 10, 9000)
    kept = [np.flatnonzero(rng.random(9000) >= 0.01) for _ in range(4)]
    rows = []
    for at in kept:
        changed = rng.random(len(at)) < 0.03
        rows.append(np.where(changed, rng.integers(0, 10, len(at)), whole[at]).astype(np.uint8))
    aligned = align(rows, [np.ones(len(row), np.int64) for row in rows], 10)
    assert aligned.notes == ()
    place = [np.full(9000, -1), np.full(9000, -2)]
    for of, at, row in zip(place, kept, aligned.rows, strict=False):
        of[at] = np.flatnonzero(row >= 0)
    both = np.intersect1d(*kept[:2])
    assert np.mean(place[0][both] == place[1][both]) > 0.98


@given(SEQUENCES)
def test_degapped_rows_are_the_input(sequences):
    sequences = canonical(sequences)
    codes = run(sequences)
    assert codes.dtype == np.int8
    assert (codes >= 0).any(axis=0).all()
    for row, sequence in zip(codes, sequences, strict=True):
        assert row[row >= 0].tolist() == sequence.tolist()


@pytest.mark.parametrize("seed", range(8))
def test_numbering_of_letters_does_not_matter(family, seed):
    sequences = family(seed, count=7, length=50)
    other = np.random.default_rng(seed).permutation(6).astype(np.uint8)
    first, second = run(sequences), run([other[s] for s in sequences])
    assert ((first >= 0) == (second >= 0)).all()


def test_the_same_answer_every_time(family):
    sequences = family(5, count=9, length=80)
    assert (run(sequences) == run(sequences)).all()


def test_identical_rows_have_no_gaps(family):
    row = family(3, count=1, length=60)[0]
    assert run([row] * 5).shape == (5, len(row))


def test_single_deletions_are_found_where_they_are():
    whole = np.arange(20, dtype=np.uint8)  # nothing repeats: the truth is unique
    holes = [3, 7, 11, 15]
    codes = run([*(np.delete(whole, h) for h in holes), whole], alphabet=20)
    assert codes.shape == (5, 20)
    for row, hole in zip(codes, holes, strict=False):
        assert np.flatnonzero(row < 0).tolist() == [hole]


def test_refinement_never_loses_and_may_be_left_out(family):
    sequences = canonical(family(2, count=8, length=60, rate=0.4))
    for passes in (0, 1, 5):
        codes = run(sequences, passes=passes)
        assert [row[row >= 0].tolist() for row in codes] == [s.tolist() for s in sequences]


@pytest.mark.parametrize(
    ("sequences", "alphabet"),
    [
        ([[0]], 1),
        ([[0], [0, 0]], 1),
        ([[0], [1]], 2),
        ([[0] * 5, [0] * 90, [0] * 300], 1),  # no pair of letters is likelier than another
        ([[1], [0] * 200 + [1] + [0] * 200, list(range(64)) * 3], 64),
        ([[63], [0, 63], [5, 9, 63]], 64),
    ],
)
def test_degenerate_input(sequences, alphabet):
    rows = [np.array(s, np.uint8) for s in sequences]
    codes = run(rows, alphabet)
    assert [row[row >= 0].tolist() for row in codes] == sequences


def test_what_is_too_much_is_said():
    few = [np.zeros(300, np.uint8)] * 30
    assert reason_against(few) is None
    for many in ([np.zeros(LONGEST + 1, np.uint8)] * 2, [np.zeros(200, np.uint8)] * 2000):
        assert reason_against(many) == AlignedByProfiles(len(many), len(many[0]))
