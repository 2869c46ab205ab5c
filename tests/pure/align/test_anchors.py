"""Anchors, and the ways by which long paths are aligned."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.align import pairwise, progressive
from critpath.align.multiple import align
from critpath.align.pairwise import _longest_rising, align_profiles, find_anchors
from critpath.align.profiles import build_profile, f81_model, merge_rows, sum_of_pairs
from critpath.align.progressive import kmer_distances, upgmb
from critpath.schema.parameters import overridden
from critpath.schema.parameters.align import PROFILES


@given(st.lists(st.integers(0, 30), max_size=9))
def test_longest_rising_chain_is_longest(values):
    chain = _longest_rising(values)
    assert all(a < b and values[a] < values[b] for a, b in itertools.pairwise(chain))
    best = max(
        (
            len(some)
            for size in range(len(values) + 1)
            for some in itertools.combinations(values, size)
            if all(a < b for a, b in itertools.pairwise(some))
        ),
        default=0,
    )
    assert len(chain) == best


def test_anchors_are_where_the_sequences_are_the_same():
    rng = np.random.default_rng(3)
    a = rng.integers(0, 12, 2000).astype(np.uint8)
    b = np.concatenate([a[:700], rng.integers(0, 12, 90).astype(np.uint8), a[700:]])
    x, y = find_anchors(a, b)
    assert len(x) > 40
    assert (np.diff(x) >= PROFILES.least_distance).all()
    assert (np.diff(y) >= PROFILES.least_distance).all()
    assert (y - x == np.where(x < 700, 0, 90)).all()


def test_repeated_words_and_far_ones_are_no_anchors():
    rng = np.random.default_rng(4)
    a = rng.integers(0, 12, 1000).astype(np.uint8)
    assert len(find_anchors(np.tile(a[:50], 4), np.tile(a[:50], 5))[0]) == 0
    # The second half alone is shared, half a length away.
    other = rng.integers(0, 12, 1000).astype(np.uint8)
    assert len(find_anchors(np.concatenate([a, other]), np.concatenate([other, a]))[0]) == 0
    assert len(find_anchors(a[: PROFILES.word - 1], a)[0]) == 0


@pytest.fixture
def long(monkeypatch, override):
    """Every path is long."""
    monkeypatch.setattr(pairwise, "LONG_CELLS", 100)
    override("profiles.band_from", 1)
    monkeypatch.setattr(pairwise, "HALF_WIDTH", 2)


def pair_of(a, b):
    model = f81_model(np.bincount(np.concatenate([a, b]), minlength=12))
    one, two = (build_profile(x.astype(np.int8)[None], np.ones(1), model) for x in (a, b))
    return one, two, model


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize("wide", [(), (16, 64)])
def test_between_anchors_the_result_is_the_whole_programmes(family, monkeypatch, wide):
    monkeypatch.setattr(pairwise, "WIDE_BANDS", wide)
    for seed in range(6):
        a, b = family(seed, count=2, length=600, letters=12, rate=0.05)
        one, two, model = pair_of(a, b)
        score, path = align_profiles(one, two, model)
        with monkeypatch.context() as plain, overridden("profiles.band_from", 10**9):
            plain.setattr(pairwise, "LONG_CELLS", 10**9)
            best, expected = align_profiles(one, two, model)
        assert score == pytest.approx(best, abs=1e-2)
        assert path.tolist() == expected.tolist()


@pytest.mark.usefixtures("long")
def test_a_large_shift_is_found_by_anchors(monkeypatch):
    monkeypatch.setattr(pairwise, "WIDE_BANDS", (8,))
    rng = np.random.default_rng(5)
    a = rng.integers(0, 12, 1500).astype(np.uint8)
    b = np.delete(a, np.arange(400, 520))
    one, two, model = pair_of(a, b)
    _, path = align_profiles(one, two, model)
    rows = merge_rows(a.astype(np.int8)[None], b.astype(np.int8)[None], path)
    both = (rows >= 0).all(axis=0)
    assert both.sum() == len(b)
    assert (rows[0, both] == rows[1, both]).all()


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize("rate", [0.02, 0.4])
def test_families_of_long_paths_stay_whole(family, rate):
    sequences = family(7, count=5, length=400, letters=12, rate=rate)
    durations = [np.ones(len(s), np.int64) for s in sequences]
    result = align(sequences, durations, 12)
    for row, sequence in zip(result.rows, sequences, strict=True):
        assert row[row >= 0].tolist() == list(range(len(sequence)))
    order = [3, 1, 4, 0, 2]
    again = align([sequences[i] for i in order], durations_of(durations, order), 12)
    assert result.rows[order].tolist() == again.rows.tolist()


def durations_of(durations, order):
    return [durations[i] for i in order]


def test_wide_alignments_are_refined_block_by_block(family, override):
    """Cuts are shared columns, the rows stay whole, and the objective never falls."""
    override("profiles.whole_columns", 50)
    override("profiles.block_columns", 20)
    cuts = 0
    for seed in range(6):
        sequences = family(seed, count=6, length=200, rate=0.05)
        model = f81_model(np.bincount(np.concatenate(sequences), minlength=6))
        rows = align(sequences, [np.ones(len(s), np.int64) for s in sequences], 6, refine=0)
        codes = rows.symbols.astype(np.int8)
        blocks = progressive.cut_at_good_columns(codes)
        assert [b[0] for b in blocks[1:]] == [b[1] - 1 for b in blocks[:-1]]
        assert (blocks[0][0], blocks[-1][1]) == (0, codes.shape[1])
        for first, _ in blocks[1:]:
            assert (codes[:, first] == codes[0, first]).all()
        cuts += len(blocks) - 1
        tree = upgmb(kmer_distances(sequences, 6, 3))
        weights = np.full(6, 1 / 6)
        better = progressive.refine_rows(codes, tree, weights, model, 2)
        for row, sequence in zip(better, sequences, strict=True):
            assert row[row >= 0].tolist() == sequence.tolist()
        gain = sum_of_pairs(better, weights, model) - sum_of_pairs(codes, weights, model)
        assert gain >= -1e-9
    assert cuts > 10
