"""Executions chosen by kind: the mean of those recorded is that of all, whatever they are like."""

from __future__ import annotations

import math
import random
import statistics
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from critpath_record.budget.account import share_of
from critpath_record.budget.selection import Kinds

sys.path.append(str(Path(__file__).resolve().parents[3] / "evaluation/simulation"))
import whole_executions as simulation


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.02, 1), st.floats(0.001, 0.1), st.floats(0, 1.2)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([0.01, 0.03, 0.1]),
    st.integers(0, 1 << 20),
)
def test_the_mean_of_those_recorded_is_that_of_all(
    drawn: list[tuple[float, float, float]], overhead: float, seed: int
) -> None:
    """Kinds of any frequency, mean and spread: 4.5 standard errors, and the budget is held."""
    chance, share = random.Random(seed), share_of(overhead)  # noqa: S311 - drawn
    kinds = Kinds(share, seed)
    names = [str(number) for number in range(len(drawn))]
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    every: dict[str, list[float]] = {name: [] for name in names}
    now = cost = 0.0
    for _ in range(1500):
        [name] = chance.choices(names, [frequency for frequency, _, _ in drawn])
        _, mean, sigma = drawn[int(name)]
        one = chance.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)
        taken, p = kinds.toss(name, share * now - cost)
        now += one
        kinds.note({name: 1}, one)
        every[name].append(one)
        if taken:
            took[name].append((one, p))
            cost += 0.2 * one
            kinds.note_cost({name: 1}, 0.2 * one)
    most = 0.2 * max(max(of, default=0.0) for of in every.values())
    assert cost <= 1.1 * share * now + 2 * most
    for name in names:
        ours = [one for one, _ in took[name]]
        if len(ours) < 100:
            continue
        spread = statistics.pstdev(every[name]) / math.sqrt(len(ours))
        off = statistics.fmean(ours) - statistics.fmean(every[name])
        assert abs(off) <= 4.5 * spread + 1e-9 * len(ours)


@pytest.fixture(scope="module")
def drawn_and_kept() -> tuple[list[simulation.Execution], list[tuple[simulation.Execution, float]]]:
    chance = random.Random(3)  # noqa: S311 - drawn
    everything = simulation.draw_executions(chance, 1500.0)
    return everything, simulation.record_by_kind(everything, chance)


def test_a_mean_over_kinds_weighs_by_the_chances(drawn_and_kept) -> None:
    """Without weights the rare kind, of which most were recorded, counts for too much."""
    everything, kept = drawn_and_kept
    truth = statistics.fmean(one.took for one in everything)
    plain = statistics.fmean(one.took for one, _ in kept)
    weighed = sum(one.took / p for one, p in kept) / sum(1 / p for _, p in kept)
    assert plain > 1.03 * truth
    assert weighed == pytest.approx(truth, rel=0.01)


def test_windows_in_time_prefer_short_ones_and_chosen_ones_are_all(drawn_and_kept) -> None:
    """The table of the specification: what windows of 10 ms miss, and a coin by kind has."""
    everything, kept = drawn_and_kept
    windows = simulation.record_windows(everything, random.Random(5), 0.01)  # noqa: S311 - drawn
    chosen = [one for one, _ in kept]

    def of(some: list[simulation.Execution], kind: str) -> tuple[float, float]:
        ours = [one.took for one in some if one.kind == kind]
        every = [one.took for one in everything if one.kind == kind]
        return len(ours) / len(every), statistics.fmean(ours) / statistics.fmean(every) - 1

    assert of(windows, "A")[1] < -0.3
    assert of(chosen, "A")[0] > 0.2
    assert of(chosen, "B")[0] > 0.6
    assert abs(of(chosen, "A")[1]) < 0.02
    assert abs(of(chosen, "B")[1]) < 0.05
