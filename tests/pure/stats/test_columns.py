"""Columns of tables in native loops: bit for bit what numpy makes of them, with copies."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from critpath.model.vectors import number_rows
from critpath.stats._columns import score, standardise
from critpath.stats.rows import medians_by, mid_ranks, quantiles, square_by, sum_by, upper_quantiles


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
    groups = np.concatenate([table, table[::-1] * 3])
    expected = []
    for each in np.split(groups, 2):
        centred = each - each.mean(axis=0)
        scale = centred.std(axis=0)
        np.divide(centred, scale, out=centred, where=scale > 1e-9)
        centred[:, scale <= 1e-9] = 0
        expected.append(centred)
    standardise(groups, np.array([rows, 2 * rows]), np.empty(4), np.empty((2, 4)), 1e-9)
    assert groups.tobytes() == np.concatenate(expected).tobytes()


@pytest.mark.parametrize("ends", [[1], [2, 3], [16, 17, 400], [33, 5000]])
def test_groups_are_scored_and_halved_as_each_by_itself(ends):
    values = _draw(ends[-1], 3, np.int64)
    values[:, 1] //= 10_000_000  # many are equal
    columns = np.ascontiguousarray(values.T.astype(np.float64))
    found = np.empty((len(values), 9))
    score(columns, np.array(ends), 0.9, np.empty((2, len(values)), np.int32), found)
    middle = medians_by(columns, np.array(ends))
    for place, (first, last) in enumerate(pairwise([0, *ends])):
        mine, scores = values[first:last], found[first:last]
        assert np.array_equal(scores[:, :3], mid_ranks(mine))
        mean = mine.mean(axis=0)
        assert scores[:, 3:6].tobytes() == (mine / np.where(mean > 0, mean, 1)).tobytes()
        assert np.array_equal(scores[:, 6:], mine > np.quantile(mine, 0.9, axis=0))
        assert np.array_equal(middle[:, place], np.median(mine, axis=0))


def test_medians_of_long_groups_are_numpy_s():
    columns = np.random.default_rng(0).normal(size=(2, 20_001))
    found = medians_by(columns, np.array([10_000, 20_001]))
    assert np.array_equal(found[:, 0], np.median(columns[:, :10_000], axis=1))
    assert np.array_equal(found[:, 1], np.median(columns[:, 10_000:], axis=1))


@pytest.mark.parametrize("rows", [1, 2, 20, 999, 5000])
@pytest.mark.parametrize("shares", [(0.99, 0.999), (0.5,), (1.0,)])
def test_quantiles_are_numpy_s_of_one_table_and_of_several(rows, shares):
    tables = np.stack([_draw(rows, 4, np.float64), _draw(rows, 4, np.float64) // 1e6])
    parts = (np.ascontiguousarray(tables[:, at : at + 300]) for at in range(0, rows, 300))
    found = upper_quantiles(parts, rows, *shares)
    for share, each in zip(shares, found, strict=True):
        assert each.tobytes() == np.quantile(tables, share, axis=1).tobytes()
        assert quantiles(tables[1], share)[0].tobytes() == each[1].tobytes()


@pytest.mark.parametrize("rows", [1, 2, 256, 257, 3000])
def test_rows_are_numbered_in_order(rows):
    table = np.random.default_rng(rows).integers(-1, 2, (rows, 5)).astype(np.int32)
    table[:, 2] = 7
    _, first, kind = np.unique(table, axis=0, return_index=True, return_inverse=True)
    found = number_rows(table.T, rows)
    assert np.array_equal(found[0], first)
    assert np.array_equal(found[1], kind.reshape(-1))


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
