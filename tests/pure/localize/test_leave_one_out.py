"""The leave-one-out verdict: equal to scoring row by row, fair, and silent without grounds."""

from __future__ import annotations

import math
import statistics as by_hand

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.localize.columns import judge_columns
from critpath.schema.notes import BluntColumns, UntestableColumns

MS = 1_000_000


def surprisal(row, c, others, kinds):
    """Score what a row has in a column by the rows beside it."""
    mine, columns = row[c], len(row)
    count = sum(o[c] == mine for o in others)
    most = by_hand.median(o.count(mine) for o in [row, *others]) + 1
    everywhere = sum(min(o.count(mine), most) for o in others)
    rows = len(others)
    if mine < 0 and 2 * count >= rows:
        return None
    q = (everywhere + 1) / (rows * columns + kinds + 1)
    return -math.log2((count + q) / (rows + 1))


def deviation(values):
    middle = by_hand.median(values)
    return middle, by_hand.median([abs(v - middle) for v in values])


def robust(row, log, c, others, logs, residuals, least):
    """Score a duration by the rows beside it, by those of its column if they are `least`.

    `residuals` is what is left of every cell.
    """
    mine = row[c]
    if mine < 0:
        return None
    here = [w[c] for o, w in zip(others, logs, strict=True) if o[c] == mine]
    everywhere = [
        w[k] for o, w in zip(others, logs, strict=True) for k in range(len(row)) if o[k] == mine
    ]
    if len(everywhere) < 3:
        return None
    rest = [
        r[k]
        for o, r in zip(others, residuals, strict=True)
        for k in range(len(row))
        if o[k] == mine and r[k] is not None
    ]
    overall = max(by_hand.pstdev(everywhere), 0.05)
    within = max(math.sqrt(sum(r * r for r in rest) / len(rest)), 0.05) if rest else overall
    if len(here) < least:
        return abs(log[c] - by_hand.mean(everywhere)) / overall
    middle, mad = deviation(here)
    size = len(here)
    scale = math.sqrt((size * (1.4826 * mad) ** 2 + 5 * within**2) / (size + 5))
    return abs(log[c] - middle) / scale


def p_values(null, scores):
    known = [round(s, 9) for s in null if s is not None]
    return [
        math.nan if s is None else (1 + sum(k >= round(s, 9) for k in known)) / (1 + len(known))
        for s in scores
    ]


def slowly(letters, durations):
    """Return both rows of p-values, scored cell by cell."""
    rows = letters.tolist()
    logs = np.log(durations + 1000.0).tolist()
    n, columns = len(rows) - 1, letters.shape[1]
    kinds = max(int(letters.max()), 0) + 1
    residuals = [[None] * columns for _ in range(n)]
    for i in range(n):
        for c in range(columns):
            same = [logs[j][c] for j in range(n) if rows[j][c] == rows[i][c]]
            if rows[i][c] >= 0 and len(same) >= 3:
                residuals[i][c] = logs[i][c] - by_hand.median(same)
    nulls = [], []
    for i in range(n):
        rest = [j for j in range(n) if j != i]
        for c in range(columns):
            others = [rows[j] for j in rest]
            nulls[0].append(surprisal(rows[i], c, [*others, rows[n]], kinds))
            left = [logs[j] for j in rest], [residuals[j] for j in rest]
            nulls[1].append(robust(rows[i], logs[i], c, others, *left, 3))
    mine = [
        [surprisal(rows[n], c, rows[:n], kinds) for c in range(columns)],
        [robust(rows[n], logs[n], c, rows[:n], logs[:n], residuals, 4) for c in range(columns)],
    ]
    return [p_values(null, scores) for null, scores in zip(nulls, mine, strict=True)]


@st.composite
def matrices(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, columns = draw(st.integers(4, 9)), draw(st.integers(1, 9))
    kinds = draw(st.integers(1, 4))
    letters = np.where(
        rng.random((rows, columns)) < 0.8,
        rng.integers(0, kinds, columns) if draw(st.booleans()) else 0,
        rng.integers(-1, kinds, (rows, columns)),
    ).astype(np.int32)
    grain = draw(st.sampled_from([1, 1000, 10**6]))  # many equal durations, or none
    durations = rng.lognormal(13, 1, (rows, columns)).astype(np.int64) // grain * grain
    return letters, np.where(letters < 0, 0, durations)


@given(matrices())
def test_it_equals_scoring_cell_by_cell(matrix):
    verdict = judge_columns(*matrix)
    structure, duration = slowly(*matrix)
    assert verdict.p_structure.tolist() == pytest.approx(structure, nan_ok=True)
    assert verdict.p_duration.tolist() == pytest.approx(duration, nan_ok=True)


@given(matrices(), st.randoms(use_true_random=False))
def test_the_order_of_the_normal_rows_does_not_matter(matrix, random):
    order = list(range(len(matrix[0]) - 1))
    random.shuffle(order)
    order.append(len(order))
    one, other = judge_columns(*matrix), judge_columns(*(part[order] for part in matrix))
    assert one.p_structure.tolist() == pytest.approx(other.p_structure.tolist(), nan_ok=True)
    assert one.p_duration.tolist() == pytest.approx(other.p_duration.tolist(), nan_ok=True)
    assert (one.abnormal == other.abnormal).all()


@pytest.mark.parametrize("normals", [0, 1, 2])
def test_one_or_two_normals_give_no_verdict_and_that_is_said(normals):
    letters = np.zeros((normals + 1, 3), np.int32)
    verdict = judge_columns(letters, np.full(letters.shape, MS))
    assert np.isnan(verdict.p_structure).all()
    assert np.isnan(verdict.p_duration).all()
    assert not verdict.abnormal.any()
    assert verdict.note == UntestableColumns(normals)


def test_fewer_than_twenty_are_said_to_be_few():
    letters = np.zeros((20, 3), np.int32)
    assert judge_columns(letters, np.full(letters.shape, MS)).note == BluntColumns(19, 20)
    letters = np.zeros((21, 3), np.int32)
    assert judge_columns(letters, np.full(letters.shape, MS)).note is None


def test_what_is_the_same_everywhere_is_normal():
    for letter, columns in ((0, 50), (-1, 50), (0, 0)):
        letters = np.full((30, columns), letter, np.int32)
        verdict = judge_columns(letters, np.where(letters < 0, 0, MS))
        assert not verdict.abnormal.any()


def test_a_nanosecond_is_no_difference_but_a_hundredfold_is():
    letters = np.zeros((31, 40), np.int32)
    durations = np.full(letters.shape, MS)
    durations[:-1] += np.arange(30)[:, None] * 1000
    durations[-1, 3] += 1
    assert not judge_columns(letters, durations).abnormal.any()
    durations[-1, 3] *= 100
    assert np.flatnonzero(judge_columns(letters, durations).abnormal).tolist() == [3]


def test_a_missing_state_and_a_new_one_stand_out():
    letters = np.zeros((31, 40), np.int32)
    letters[-1, 5] = -1
    letters[-1, 9] = 1
    verdict = judge_columns(letters, np.where(letters < 0, 0, MS))
    assert np.flatnonzero(verdict.abnormal).tolist() == [5, 9]
    assert np.isnan(verdict.p_duration[[5, 9]]).all()


def test_the_other_side_of_an_insertion_is_not_tested():
    letters = np.zeros((31, 40), np.int32)
    letters[:, 7] = -1
    letters[4, 7] = 0
    verdict = judge_columns(letters, np.where(letters < 0, 0, MS))
    assert np.isnan(verdict.p_structure[7])


def test_equal_sets_are_rarely_told_apart():
    """At 5 % for structure and for durations about a tenth of healthy executions have a mark."""
    rng = np.random.default_rng(5)
    marked = 0
    for _ in range(100):
        letters = np.where(rng.random((26, 60)) < 0.97, 0, rng.integers(-1, 4, (26, 60)))
        durations = rng.lognormal(13, 0.5, letters.shape).astype(np.int64)
        verdict = judge_columns(letters.astype(np.int32), np.where(letters < 0, 0, durations))
        marked += bool(verdict.abnormal.any())
    assert marked <= 20  # four standard deviations above ten
