"""Ranks are scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata

from critpath.model import mid_ranks


@pytest.mark.parametrize("kind", [float, np.int64])
def test_equal_values_share_the_mean_of_their_ranks(kind):
    values = np.random.default_rng(1).integers(0, 40, (100, 3)).astype(kind)
    assert mid_ranks(values).tolist() == rankdata(values, axis=0).tolist()
    assert mid_ranks(values[:1]).tolist() == [[1, 1, 1]]
    assert mid_ranks(values[:0]).shape == (0, 3)
