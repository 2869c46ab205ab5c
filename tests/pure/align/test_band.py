"""The band: what it leaves out can never score as much."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.align import pairwise, profiles
from critpath.align.dp import GapCosts, band_around, certified_half_width, is_narrow, paired, solve
from critpath.align.multiple import align
from critpath.align.pairwise import align_profiles
from critpath.align.profiles import build_profile, f81_model
from critpath.schema.parameters import overridden


def inside(band, path):
    i = j = 0
    for step in path:
        i += step != 2
        j += step != 1
        if not band.low[i] <= j <= band.high[i]:
            return False
    return True


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 6), st.integers(0, 3))
def test_certified_band_holds_every_alignment_that_scores_as_much(oracle, seed, n, m, slack):
    rng = np.random.default_rng(seed)
    scores = rng.integers(-2, 5, (n, m)).astype(float)
    gaps = GapCosts(*(rng.integers(-3, 1, size).astype(float) for size in (n, n, m, m)), -1.0)
    best, _ = solve(lambda i, j: scores[i:j], gaps)
    known = best - slack
    most_a, most_b = np.maximum(scores.max(axis=1), 0), np.maximum(scores.max(axis=0), 0)
    band = band_around(n, m, certified_half_width(known, most_a, most_b, -1.0))
    columns = (gaps.open_a, gaps.close_a, gaps.open_b, gaps.close_b)
    problem = (scores.tolist(), *(c.tolist() for c in columns), -1.0)
    for path in oracle.all_paths(n, m):
        if oracle.path_score(path, *problem) >= known:
            assert inside(band, path)


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(-6, 6), st.integers(0, 9))
def test_band_with_the_best_path_in_it_gives_that_path(seed, n, more, width):
    m = max(1, n + more)
    rng = np.random.default_rng(seed)
    scores = np.ascontiguousarray(rng.integers(-20, 2, (n, m)).astype(float))
    np.fill_diagonal(scores, 5)
    gaps = GapCosts(*(rng.integers(-3, 1, size).astype(float) for size in (n, n, m, m)), -1.0)
    score, path = solve(lambda i, j: scores[i:j], gaps)
    band = band_around(n, m, width)

    def banded(first, last, low, high):
        block = np.full((last - first, band.width), np.nan)
        for k in range(last - first):
            part = scores[first + k, low[k] - 1 : high[k]]
            block[k, : len(part)] = part
        return block

    for settings_ in ({}, {"trace_cells": 0, "block_cells": 30}):
        again, same = solve(banded, gaps, band=band, **settings_)
        assert again <= score
        if inside(band, path):
            assert again == score
            assert same.tolist() == path.tolist()


@pytest.fixture
def narrow(monkeypatch, override):
    """Bands for short profiles too."""
    override("profiles.band_from", 1)
    monkeypatch.setattr(pairwise, "HALF_WIDTH", 3)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
@pytest.mark.usefixtures("narrow")
def test_band_changes_nothing(family, rate):
    for seed in range(4):
        sequences = family(seed, count=6, length=90, rate=rate)
        durations = [np.ones(len(s), np.int64) for s in sequences]
        banded = align(sequences, durations, 6)
        with overridden("profiles.band_from", 10**9):
            whole = align(sequences, durations, 6)
        assert (banded.rows == whole.rows).all()
        assert banded.score == whole.score


@pytest.mark.usefixtures("narrow")
def test_alike_paths_need_few_cells(family, monkeypatch):
    """The claim that a band saves work, by counting cells."""
    a, b = family(1, count=2, length=300, letters=12, rate=0.02)
    model = f81_model(np.bincount(np.concatenate([a, b]), minlength=12))
    one, two = (build_profile(x.astype(np.int8)[None], np.ones(1), model) for x in (a, b))
    cells = []
    original = profiles.LogExpectation.__call__

    def counting(self, *asked):
        block = original(self, *asked)
        cells.append(block.size)
        return block

    monkeypatch.setattr(profiles.LogExpectation, "__call__", counting)
    score, path = align_profiles(one, two, model)
    assert sum(cells) < 0.4 * len(a) * len(b)
    cells.clear()
    assert align_profiles(one, two, model, known=path)[0] == score
    assert sum(cells) < 0.4 * len(a) * len(b)


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 12))
def test_a_known_path_is_worth_what_the_programme_says(seed, n, m):
    rng = np.random.default_rng(seed)
    letters = [np.ascontiguousarray(rng.integers(0, 4, (2, k)).astype(np.int8)) for k in (n, m)]
    model = f81_model(np.bincount(np.concatenate([x.ravel() for x in letters]), minlength=4))
    a, b = (build_profile(x, np.ones(2), model) for x in letters)
    score, path = align_profiles(a, b, model)
    gaps = GapCosts(a.open, a.close, b.open, b.close, model.gap_extend)
    worth = gaps.of_path(path) + profiles.LogExpectation(a, b, model).of_pairs(*paired(path))
    assert worth == pytest.approx(score, abs=1e-3)


def test_half_width_grows_with_what_is_missing():
    most = np.full(100, 2.0)
    widths = [certified_half_width(score, most, most, -0.25) for score in (200, 180, 100, -99)]
    assert widths == sorted(widths)
    assert widths[0] <= 1
    assert widths[-1] == 100
    assert is_narrow(1000, 1000, 64)
    assert not is_narrow(100, 100, 64)
