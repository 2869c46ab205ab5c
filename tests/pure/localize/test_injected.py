"""An injected difference is found: the benchmark of the same name, smaller."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "evaluation" / "benchmarks"))
from injected import repeat

REPEATS = 12


@pytest.fixture(scope="module")
def counted():
    result = Counter()
    for seed in range(REPEATS):
        result.update(repeat(seed, "low", 21, 165, loops=bool(seed % 2)))
    return result


def test_the_block_is_first_by_contribution(counted):
    assert counted["first column"] == REPEATS
    assert counted["first finding"] == REPEATS


def test_the_verdict_finds_the_block_and_the_extra_states(counted):
    assert counted["block", "loo"] >= 0.9 * REPEATS
    assert counted["all extra", "loo"] >= 0.9 * REPEATS
    assert counted["first finding is abnormal"] >= 0.9 * REPEATS


def test_healthy_executions_have_few_false_columns(counted):
    """The benchmark's hundred repeats hold 0.2; twelve scatter, and the paper's marks do not."""
    assert counted["healthy", "loo"] <= 0.5 * REPEATS
    assert counted["healthy", "paper"] >= 5 * REPEATS
