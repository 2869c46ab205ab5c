"""The verdict on totals: by definition, rarely wrong, and not without power."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from critpath.localize.findings import judge_totals

MS = 1_000_000
SYMBOLS = 10


def slowly(totals):
    """Judge row by row, each against all others."""
    logs = np.log(totals[:, totals.any(axis=0)] + 1000.0)
    distance = np.zeros(logs.shape)
    n = len(logs) - 1
    for row in range(n + 1):
        others = np.delete(logs, row, axis=0)
        sd = np.maximum(others.std(axis=0, ddof=1), 0.05)
        distance[row] = np.abs(logs[row] - others.mean(axis=0)) / sd / np.sqrt(1 + 1 / n)
    further = (distance[:-1].max(axis=1)[:, None] >= distance[-1] - 1e-9).sum(axis=0)
    quantile = t.isf(0.05 / (2 * logs.shape[1]), n - 1)
    odd = (distance[-1] > quantile) & (further <= n / 5)
    result = np.zeros(totals.shape[1], bool)
    result[totals.any(axis=0)] = odd
    return result


def healthy(rng, normals, sd):
    levels = rng.normal(0, 1.5, SYMBOLS)
    return (MS * np.exp(levels + rng.normal(0, sd, (normals + 1, SYMBOLS)))).astype(np.int64)


@pytest.mark.parametrize("normals", [5, 8, 21, 45])
def test_it_is_as_defined(normals):
    seen = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        totals = healthy(rng, normals, 0.5)
        totals[:, 3] = 0
        totals[-1, seed % SYMBOLS] *= 1 + seed
        totals[seed % normals, 5] *= 1 + 2 * (seed % 3)
        found = judge_totals(totals)
        assert found.tolist() == slowly(totals).tolist()
        seen += int(found.sum())
    assert seen


@pytest.mark.parametrize("normals", [5, 8, 20, 40])
@pytest.mark.parametrize("sd", [0.05, 0.3, 1.0])
def test_healthy_executions_are_rarely_odd(normals, sd):
    odd = [judge_totals(healthy(np.random.default_rng(s), normals, sd)).any() for s in range(300)]
    assert np.mean(odd) <= 0.1


@pytest.mark.parametrize("normals", [5, 20])
def test_symbols_that_only_one_execution_has_are_no_sign(normals):
    """Every row has one of its own, the last as well."""
    totals = np.full((normals + 1, 3), 10 * MS)
    own = np.diag(np.full(normals + 1, 5 * MS))
    assert not judge_totals(np.hstack([totals, own])).any()


def test_what_is_far_outside_is_odd_but_not_among_four():
    rng = np.random.default_rng(3)
    for normals in (5, 8, 20, 40):
        totals = healthy(rng, normals, 0.2)
        totals[-1, 4] *= 25
        assert np.flatnonzero(judge_totals(totals)).tolist() == [4]
    totals = np.full((5, 2), MS)
    totals[-1] *= 100
    assert not judge_totals(totals).any()


def test_equal_executions_tie_and_a_small_difference_is_none():
    for shape in ((6, 3), (41, 1), (1, 3), (8, 0)):
        assert not judge_totals(np.full(shape, MS)).any()
    totals = np.full((31, 3), MS)
    totals[-1] += MS // 20
    assert not judge_totals(totals).any()


def test_the_order_of_the_normal_rows_does_not_matter():
    rng = np.random.default_rng(7)
    totals = healthy(rng, 12, 0.3)
    totals[-1, 2] *= 8
    for _ in range(5):
        order = [*rng.permutation(12).tolist(), 12]
        assert judge_totals(totals[order]).tolist() == judge_totals(totals).tolist()
