"""Column statistics: the paper's rule, and contributions that add up exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.localize.columns import column_statistics
from critpath.model import Alignment

MS = 1_000_000


def test_drawn_columns(drawing):
    statistics = column_statistics(
        drawing("""
            r1  d2  -   r4
            r2  d4  -   r4
            r3  d6  -   c1
            r9  -   t30 d4
        """)
    )
    assert statistics.probability.tolist() == [1, 0, 0, 0]
    assert statistics.normal_symbol.tolist() == [0, 2, -1, 0]
    assert statistics.normal_probability.tolist() == pytest.approx([1, 1, 1, 2 / 3])
    assert statistics.mean[:2].tolist() == [2 * MS, 4 * MS]
    assert statistics.std[:2].tolist() == [1 * MS, 2 * MS]
    assert np.isnan(statistics.mean[2:]).all()
    assert statistics.contribution.tolist() == [21 * MS, -12 * MS, 90 * MS, 3 * MS]
    assert statistics.abnormal_state.tolist() == [False, False, True, True]
    assert statistics.abnormal_duration.tolist() == [True, False, False, False]
    assert statistics.missing.tolist() == [False, True, False, False]


def test_probability_counts_gaps(drawing):
    statistics = column_statistics(
        drawing("""
            r1 d2
            r2 -
            r3 -
            r4 d1
        """)
    )
    assert statistics.probability.tolist() == pytest.approx([1, 1 / 3])
    gap = column_statistics(
        drawing("""
            r1 d2
            r2 -
            r3 -
            r4 -
        """)
    )
    # Where the row has a gap it is the share of normal rows that have one too.
    assert gap.probability.tolist() == pytest.approx([1, 2 / 3])


def test_thresholds_are_settings(drawing):
    alignment = drawing("""
        r10 d1
        r12 d1
        r11 t1
        r13 t1
    """)
    assert column_statistics(alignment).abnormal_duration[0]
    assert not column_statistics(alignment, k=2.5).abnormal_duration[0]
    assert not column_statistics(alignment).abnormal_state[1]
    assert column_statistics(alignment, p_min=0.5).abnormal_state[1]


def test_one_supporting_row_has_no_deviation(drawing):
    statistics = column_statistics(drawing("r1\nr90"))
    assert np.isnan(statistics.std[0])
    assert not statistics.abnormal_duration[0]


def test_a_normal_row_is_needed(drawing):
    with pytest.raises(ValueError, match="at least one normal row"):
        column_statistics(drawing("r1"))


@st.composite
def alignments(draw):
    rows = draw(st.integers(2, 6))
    columns = draw(st.integers(0, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    present = rng.random((rows, columns)) < 0.7
    positions = np.where(present, np.cumsum(present, axis=1) - 1, -1).astype(np.int32)
    sizes = present.sum(axis=1)
    return Alignment(
        positions,
        tuple(rng.integers(0, 6, n).astype(np.uint8) for n in sizes),
        tuple(rng.integers(0, 10**12, n) for n in sizes),
    )


@given(alignments())
def test_contributions_add_up_exactly(alignment):
    statistics = column_statistics(alignment)
    totals = [int(d.sum()) for d in alignment.durations]
    n = len(totals) - 1
    assert int(statistics.contribution.sum()) == n * totals[-1] - sum(totals[:-1])


@given(alignments())
def test_statistics_equal_counting_by_hand(alignment):
    statistics = column_statistics(alignment)
    letters, durations = alignment.symbols.tolist(), alignment.column_durations.tolist()
    n = len(letters) - 1
    for c in range(alignment.rows.shape[1]):
        mine = letters[-1][c]
        same = [durations[i][c] for i in range(n) if letters[i][c] == mine]
        assert statistics.probability[c] == pytest.approx(len(same) / n)
        column = [letters[i][c] for i in range(n)]
        assert column.count(statistics.normal_symbol[c]) == max(map(column.count, column))
        if mine >= 0 and len(same) > 1:
            assert statistics.mean[c] == pytest.approx(np.mean(same))
            assert statistics.std[c] == pytest.approx(np.std(same, ddof=1))
        if mine >= 0:
            assert statistics.abnormal_state[c] == (len(same) / n < 0.05)
            assert not statistics.missing[c]
