"""Which values have a change: worlds drawn with exact truth (evaluation/simulation/affected.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from critpath.schema.parameters.cluster import MIXTURE
from critpath.stats.mixtures import find_changed

sys.path.append(str(Path(__file__).resolve().parents[3] / "evaluation" / "simulation"))

import affected

PACE = MIXTURE.pace


def test_those_that_have_a_change_are_told_from_the_others() -> None:
    """In drawn worlds, by kinds: what the evaluation measures with more of them holds of few."""
    worlds = list(affected.draw_worlds(7, 1, (12, 30, 100)))
    found = affected.tally_worlds(worlds)
    clear, other = found["clear"], found["not clear"]
    assert len(worlds) > 200
    assert clear.exact >= 0.8 * clear.worlds
    assert clear.within >= 0.95 * clear.worlds
    assert clear.marked >= 0.97 * clear.changed
    assert clear.wrong <= 0.03 * clear.others
    assert other.within >= 0.88 * other.worlds
    assert other.marked >= 0.9 * other.changed


@pytest.mark.parametrize("change", [0.0, 0.5, 5.0])
def test_units_and_order_do_not_matter(change: float) -> None:
    rng = np.random.default_rng(3)
    before, after = rng.normal(0, 0.2, 30), rng.normal(0, 0.2, 20)
    after[:8] += change
    one = find_changed(before, after, pace=PACE, none=0.1)
    other = find_changed(before[::-1] + 7, after[::-1] + 7, pace=PACE, none=0.1)
    assert one.posterior == pytest.approx(other.posterior[::-1], abs=1e-4)
    assert (one.low, one.high) == (other.low, other.high)
    assert one.low <= one.marked <= one.high


def test_a_number_is_told_alone_where_it_is_sure() -> None:
    """Twelve of thirty at five times, as in the demo: 12, and not 17 nor 11 to 13."""
    rng = np.random.default_rng(5)
    before, after = rng.normal(0, 0.05, 30), rng.normal(0.02, 0.05, 30)
    after[::3] += 1.6
    after[1:3] += 1.6
    found = find_changed(before, after, pace=PACE, none=0.1)
    assert (found.low, found.marked, found.high) == (12, 12, 12)


def test_all_may_have_it() -> None:
    """Whoever is faster than the slowest before has it too, where all are longer by as much."""
    rng = np.random.default_rng(6)
    before, after = rng.normal(0, 0.3, 30), rng.normal(0.7, 0.3, 30)
    found = find_changed(before, after, pace=PACE, none=0.0)
    assert after.min() < before.max()
    assert found.marked == 30


def test_nobody_has_it_where_nothing_differs() -> None:
    rng = np.random.default_rng(8)
    before, after = rng.normal(0, 0.3, 30), rng.normal(0, 0.3, 30)
    found = find_changed(before, after, pace=PACE, none=MIXTURE.none)
    assert (found.low, found.marked, found.high) == (0, 0, 0)


def test_many_values_are_counted_in_bins() -> None:
    rng = np.random.default_rng(9)
    before, after = rng.normal(0, 0.1, 5000), rng.normal(0, 0.1, 4000)
    after[:1000] += 1.0
    found = find_changed(before, after, pace=PACE, none=0.0)
    assert abs(found.marked - 1000) <= 2
    assert found.low <= 1000 <= found.high
