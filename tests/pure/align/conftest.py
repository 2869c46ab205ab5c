"""What the alignment's tests share: the plain-Python twins and drawn families."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="session")
def oracle(load):
    return load("oracle/align_dp.py")


def mutated(seed, count=6, length=30, letters=6, rate=0.15):
    """Mutate one random ancestor into several sequences."""
    rng = np.random.default_rng(seed)
    ancestor = rng.integers(0, letters, length)
    result = []
    for _ in range(count):
        row = ancestor[rng.random(length) > rate / 2].copy()
        changed = rng.random(len(row)) < rate
        row[changed] = rng.integers(0, letters, changed.sum())
        at = rng.integers(0, len(row) + 1)
        row = np.insert(row, at, rng.integers(0, letters, rng.integers(0, 4)))
        result.append(row.astype(np.uint8))
    return result


@pytest.fixture(scope="session")
def family():
    """Return a function that mutates one random ancestor into several sequences."""
    return mutated
