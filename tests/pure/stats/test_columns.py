"""Columns of tables in native loops: bit for bit what numpy makes of them, with copies."""

from __future__ import annotations

import numpy as np
import pytest

from critpath.stats._columns import standardise
from critpath.stats.rows import mid_ranks, square_by, sum_by


def _draw(rows: int, columns: int, kind: type) -> np.ndarray:
    values = np.random.default_rng(rows).lognormal(16, 0.5, (rows, columns)).astype(kind)
    values[::3, 0] = 0  # a state that many do not have
    return values


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("rows", [1, 2, 7, 300, 5000])
def test_numbers_are_ranked_by_their_digits_as_by_sorting(rows, kind):
    values = _draw(rows, 3, kind)
    values[:, 2] -= 20_000_000
    assert np.array_equal(mid_ranks(values), mid_ranks(values.astype(np.float64)))


def test_numbers_that_are_far_apart_are_sorted():
    values = np.array([[-(2**40)], [0], [2**40], [0]])
    assert mid_ranks(values).ravel().tolist() == [1, 2.5, 4, 2.5]


@pytest.mark.parametrize("rows", [1, 7, 5000])
def test_a_table_is_standardised(rows):
    table = _draw(rows, 4, np.int64).astype(np.float64)
    table[:, 3] = 5  # nothing differs
    expected = table - table.mean(axis=0)
    scale = expected.std(axis=0)
    np.divide(expected, scale, out=expected, where=scale > 1e-9)
    expected[:, scale <= 1e-9] = 0
    standardise(table, *np.empty((2, 4)), 1e-9)
    assert table.tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("columns", [1, 3])
def test_sums_and_squares_of_groups(columns, kind):
    values = _draw(5000, columns, kind)
    code = np.random.default_rng(0).integers(0, 4, 5000)
    sums = sum_by(values, code, 6)
    assert np.array_equal(sums[:4], [values[code == c].sum(axis=0) for c in range(4)])
    assert not sums[4:].any()
    means = sums / np.maximum(np.bincount(code, minlength=6), 1)[:, None]
    squares, whole = square_by(values, code, means)
    residual = values - means[code]
    assert whole.tobytes() == (residual**2).sum(axis=0).tobytes()
    for c in range(4):
        assert squares[c].tobytes() == (residual[code == c] ** 2).sum(axis=0).tobytes()
