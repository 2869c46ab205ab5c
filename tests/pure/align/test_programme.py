"""The native dynamic programme against its twin and itself.

Against brute force and Biopython it stands in test_properties.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.align.dp import GapCosts, solve
from critpath.errors import UsageError


def draw_problem(seed, n, m, steps=0):
    """Return random scores and position-specific gap costs; few values give many ties."""
    rng = np.random.default_rng(seed)

    def values(low, high, size):
        if steps:
            return rng.integers(int(low), int(high) + 1, size).astype(float)
        return rng.uniform(low, high, size)

    gaps = GapCosts(
        *(values(-3, 0, size) for size in (n, n, m, m)), extend=-0.25 if not steps else -1
    )
    return values(-3, 4, (n, m)), gaps


def as_lists(scores, gaps):
    columns = (gaps.open_a, gaps.close_a, gaps.open_b, gaps.close_b)
    return (scores.tolist(), *(c.tolist() for c in columns), gaps.extend)


def run(scores, gaps, **settings):
    scores = np.ascontiguousarray(scores)
    return solve(lambda first, last: scores[first:last], gaps, **settings)


@given(st.integers(0, 2**32), st.integers(0, 25), st.integers(0, 25), st.booleans())
def test_path_is_the_twins_path(oracle, seed, n, m, ties):
    scores, gaps = draw_problem(seed, n, m, ties)
    score, path = run(scores, gaps)
    expected, expected_path = oracle.solve(*as_lists(scores, gaps))
    assert path.tolist() == expected_path
    assert score == pytest.approx(expected, abs=1e-9)


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


def test_too_many_cells_are_refused_with_what_to_do():
    scores, gaps = draw_problem(0, 20, 30)
    with pytest.raises(UsageError, match="20 and 30 segments are too long") as caught:
        run(scores, gaps, max_cells=599)
    assert "shorter runs" in caught.value.do
    assert run(scores, gaps, max_cells=600)
