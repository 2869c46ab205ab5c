"""Healthy executions are not told apart from the normal ones, whatever these are like."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from critpath.localize.columns import judge_columns
from critpath.localize.findings import judge_totals
from critpath.units import format_ns

MS = 1_000_000
COLUMNS, KINDS = 165, 10


def flagged(make, repeats=40):
    """Return how many columns are marked in each of many healthy executions."""
    result = []
    for seed in range(repeats):
        letters, durations = make(np.random.default_rng(seed))
        result.append(int(judge_columns(letters.astype(np.int32), durations).abnormal.sum()))
    return np.array(result)


def durations_of(rng, letters, sd):
    """Draw durations around a level of every column's own."""
    levels = rng.normal(0, 2, letters.shape[1])
    values = MS * np.exp(levels + rng.normal(0, sd, letters.shape))
    return np.where(letters < 0, 0, values).astype(np.int64)


def columns_with_levels(normals, sd):
    def make(rng):
        letters = np.tile(rng.integers(0, KINDS, COLUMNS), (normals + 1, 1))
        return letters, durations_of(rng, letters, sd)

    return make


def held_by(rows, holders):
    """Let in every column so many of the rows, drawn anew, have a state."""

    def make(rng):
        letters = np.full((rows, COLUMNS), -1)
        for column in range(COLUMNS):
            letters[rng.permutation(rows)[:holders], column] = rng.integers(0, KINDS)
        return letters, durations_of(rng, letters, 0.2)

    return make


def three_beside_the_last(normals, step):
    """Let the last row and three normal ones have a state in every step-th column."""

    def make(rng):
        letters = np.tile(rng.integers(0, KINDS, COLUMNS), (normals + 1, 1))
        for column in range(0, COLUMNS, step):
            letters[rng.permutation(normals)[3:], column] = -1
        return letters, durations_of(rng, letters, 0.2)

    return make


def twins(pairs, own):
    """Let rows vary in pairs: two have the same `own` states that are nobody else's."""

    def make(rng):
        letters = np.tile(rng.integers(0, KINDS, COLUMNS), (2 * pairs, 1))
        for pair in range(pairs):
            for column in rng.choice(COLUMNS, own, replace=False):
                other = (letters[2 * pair, column] + rng.integers(1, KINDS)) % KINDS
                letters[2 * pair : 2 * pair + 2, column] = other
        letters = letters[rng.permutation(2 * pairs)]
        return letters, durations_of(rng, letters, 0.3)

    return make


@pytest.mark.parametrize("normals", [3, 4, 20])
@pytest.mark.parametrize("sd", [0.2, 0.5])
def test_few_normal_executions_do_not_make_all_columns_odd(normals, sd):
    marked = flagged(columns_with_levels(normals, sd))
    assert marked.mean() <= 0.25
    assert (marked > 0).mean() <= 0.15


@pytest.mark.parametrize(
    "make",
    [
        three_beside_the_last(20, 1),
        three_beside_the_last(20, 3),
        held_by(21, 4),
        held_by(21, 5),
    ],
)
def test_states_that_few_have_are_not_odd(make):
    marked = flagged(make)
    assert marked.mean() <= 0.5
    assert (marked > 0).mean() <= 0.2


@pytest.mark.parametrize("pairs", [11, 21, 31, 51])
def test_executions_that_vary_in_pairs_are_normal(pairs):
    marked = flagged(twins(pairs, 10), 30)
    assert marked.mean() <= 0.4
    assert (marked > 0).mean() <= 0.2


def test_a_new_state_in_many_columns_stands_out_among_single_variations():
    rng = np.random.default_rng(1)
    letters, durations = twins(21, 10)(rng)
    new = rng.choice(COLUMNS, 50, replace=False)
    letters[-1, new] = KINDS
    abnormal = judge_columns(letters.astype(np.int32), durations).abnormal
    assert abnormal[new].all()


def test_a_negative_duration_counts_as_none():
    letters = np.zeros((6, 4), np.int32)
    durations = np.full(letters.shape, MS)
    durations[2, 1] = durations[5, 2] = -5000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        verdict = judge_columns(letters, durations)
        judge_totals(durations)
    assert not np.isnan(verdict.p_duration).any()
    durations[durations < 0] = 0
    assert judge_columns(letters, durations).p_duration.tolist() == verdict.p_duration.tolist()


def test_nothing_has_no_sign():
    assert [format_ns(ns) for ns in (-0.4, 0.0, -0.0, -0.6)] == ["0 ns", "0 ns", "0 ns", "-1 ns"]
    assert [format_ns(ns, sign=True) for ns in (-0.4, 0.4, 0.6)] == ["0 ns", "0 ns", "+1 ns"]
