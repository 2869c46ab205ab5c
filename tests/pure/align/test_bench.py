"""The aligner on families whose true alignment is known, beside MUSCLE 3."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="module")
def measured(load):
    msa = load("evaluation/benchmarks/msa.py")
    if not msa.BENCH.exists():
        pytest.skip("../shared/msa-bench is not here")
    return msa.measure(4, 300)


def test_mean_scores_are_above_muscle_3(measured):
    sp, tc, their_sp, their_tc, _ = np.mean([*measured.values()], axis=0)
    assert len(measured) == 62
    assert sp >= 0.910
    assert tc >= 0.818
    assert sp > their_sp + 0.01
    assert tc > their_tc + 0.02


@pytest.mark.parametrize(
    ("kind", "sp", "tc"), [("low_flat", 0.997, 0.993), ("mid_flat", 0.970, 0.930)]
)
def test_easy_families_are_nearly_right(measured, kind, sp, tc):
    rows = [row for name, row in measured.items() if kind in name]
    assert len(rows) >= 10
    assert np.mean([row[0] for row in rows]) >= sp
    assert np.mean([row[1] for row in rows]) >= tc


def test_scores_of_a_drawing(load):
    msa = load("evaluation/benchmarks/msa.py")
    reference = msa.columns_of(["ab-c", "abdc", "ab--"])
    # Columns a, b of three, c of two; d stands alone. One row's b went astray.
    test = msa.columns_of(["ab-c", "abdc", "a-b-"])
    assert msa.score(reference, reference) == (1, 1)
    assert msa.score(reference, test) == (5 / 7, 2 / 3)
