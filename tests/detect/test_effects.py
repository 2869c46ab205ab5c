"""Effect sizes: what is exact in them."""

from __future__ import annotations

import numpy as np

from critpath.detect.effects import effects


def test_a_huge_outlier_leaves_the_other_columns_as_they_are():
    rng = np.random.default_rng(4)
    one = np.zeros(60, np.int64)
    normal = np.column_stack([rng.integers(1000, 1100, 60), rng.integers(1, 50, 60)])
    sample = np.column_stack([rng.integers(1040, 1140, 60), rng.integers(1, 50, 60)])
    outlier = sample.copy()
    outlier[7, 1] = 2**60
    usual, beside = (
        effects(normal, each, one, one, 1, replicates=199) for each in (sample, outlier)
    )
    assert usual.low[0] > 0
    # The rows are taken in another order only where the first column has equal ones.
    assert np.allclose([beside.low[0], beside.high[0]], [usual.low[0], usual.high[0]], rtol=0.2)
    assert beside.low[0] % 1 != 0
    assert beside.sample_mean[0] == usual.sample_mean[0]
