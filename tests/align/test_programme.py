"""The native dynamic programme against brute force, its twin, Biopython and itself."""

from __future__ import annotations

import numpy as np
import pytest
from Bio.Align import PairwiseAligner, substitution_matrices
from hypothesis import given, settings
from hypothesis import strategies as st

from critpath.align.programme import Gaps, solve
from critpath.errors import UsageError


def draw_problem(seed, n, m, steps=0):
    """Return random scores and position-specific gap costs; few values give many ties."""
    rng = np.random.default_rng(seed)

    def values(low, high, size):
        if steps:
            return rng.integers(int(low), int(high) + 1, size).astype(float)
        return rng.uniform(low, high, size)

    gaps = Gaps(*(values(-3, 0, size) for size in (n, n, m, m)), extend=-0.25 if not steps else -1)
    return values(-3, 4, (n, m)), gaps


def as_lists(scores, gaps):
    columns = (gaps.open_a, gaps.close_a, gaps.open_b, gaps.close_b)
    return (scores.tolist(), *(c.tolist() for c in columns), gaps.extend)


def run(scores, gaps, **settings):
    scores = np.ascontiguousarray(scores)
    return solve(lambda first, last: scores[first:last], gaps, **settings)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_score_is_the_best_of_all_paths(oracle, seed, n, m, ties):
    scores, gaps = draw_problem(seed, n, m, ties)
    problem = as_lists(scores, gaps)
    score, path = run(scores, gaps)
    best = max(oracle.path_score(p, *problem) for p in oracle.all_paths(n, m))
    assert score == pytest.approx(best, abs=1e-9)
    assert oracle.path_score(path.tolist(), *problem) == pytest.approx(score, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 25), st.integers(0, 25), st.booleans())
def test_path_is_the_twins_path(oracle, seed, n, m, ties):
    scores, gaps = draw_problem(seed, n, m, ties)
    score, path = run(scores, gaps)
    expected, expected_path = oracle.solve(*as_lists(scores, gaps))
    assert path.tolist() == expected_path
    assert score == pytest.approx(expected, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 60),
    st.integers(0, 60),
    st.integers(1, 200),
    st.booleans(),
)
def test_little_memory_gives_the_same_path(seed, n, m, block, ties):
    scores, gaps = draw_problem(seed, n, m, ties)
    score, path = run(scores, gaps)
    for trace_cells in (0, 10**6):
        again, same = run(scores, gaps, trace_cells=trace_cells, block_cells=block)
        assert again == score
        assert same.tolist() == path.tolist()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 30), st.integers(0, 30))
def test_reversed_problem_has_the_same_score(seed, n, m):
    scores, gaps = draw_problem(seed, n, m)
    backwards = Gaps(
        gaps.close_a[::-1].copy(),
        gaps.open_a[::-1].copy(),
        gaps.close_b[::-1].copy(),
        gaps.open_b[::-1].copy(),
        gaps.extend,
    )
    score, _ = run(scores, gaps)
    assert run(scores[::-1, ::-1], backwards)[0] == pytest.approx(score, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_constant_gaps_score_as_biopython_does(seed):
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 40, 2)
    scores = rng.uniform(-3, 4, (n, m))
    gap_open, extend = -3.5, -0.25
    half_a, half_b = np.full(n, gap_open / 2), np.full(m, gap_open / 2)
    score, _ = run(scores, Gaps(half_a, half_a, half_b, half_b, extend))
    letters = n + m
    matrix = np.zeros((letters, letters))
    matrix[:n, n:] = scores
    aligner = PairwiseAligner(mode="global")
    aligner.substitution_matrix = substitution_matrices.Array(
        alphabet=tuple(range(letters)), dims=2, data=matrix
    )
    aligner.open_gap_score = gap_open + extend
    aligner.extend_gap_score = extend
    theirs = aligner.score(np.arange(n, dtype=np.int32), np.arange(n, letters, dtype=np.int32))
    assert score == pytest.approx(theirs, abs=1e-9)


def test_too_many_cells_are_refused_with_what_to_do():
    scores, gaps = draw_problem(0, 20, 30)
    with pytest.raises(UsageError, match="20 and 30 segments are too long") as caught:
        run(scores, gaps, max_cells=599)
    assert "shorter executions" in caught.value.do
    assert run(scores, gaps, max_cells=600)
