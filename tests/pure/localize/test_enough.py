"""When explaining more executions would change no cause."""

from __future__ import annotations

import pytest
from pure.localize.findings import make_finding

from critpath.localize.causes import Explained, group_causes
from critpath.localize.explaining import in_batches, is_settled
from critpath.model import Cause, Finding, State, Symbol
from critpath.schema.parameters.localize import ENOUGH

MS = 1_000_000


@pytest.mark.parametrize("number", [0, 1, ENOUGH.first, ENOUGH.first + 1, 50, 333])
def test_every_execution_is_in_one_batch(number):
    order = [3 * i for i in range(number)]
    batches = in_batches(order)
    assert sorted(one for batch in batches for one in batch) == order
    assert all(batches)
    assert number == 0 or (len(batches) == 1) == (number <= ENOUGH.first)


def test_batches_are_spread_over_the_order_and_have_the_slowest():
    done: list[int] = []
    for batch in in_batches(range(200)):
        done += batch
        gaps = [b - a for a, b in zip(sorted(done), [*sorted(done)[1:], 200], strict=True)]
        assert max(gaps) <= 3 * 200 / len(done)
        assert 0 in done


def causes_of(shares: dict[State, list[float]]) -> tuple[list[Finding], tuple[Cause, ...]]:
    """Name the causes of executions that have this much of every state (ms)."""
    found = [
        make_finding(
            execution=i,
            symbol=Symbol(state),
            observed=ms * MS,
            expected=0.0,
            contribution=ms * MS,
            share=0.01,
        )
        for state, each in shares.items()
        for i, ms in enumerate(each)
        if ms
    ]
    number = len(next(iter(shares.values())))
    explained = [Explained(i, sum(each[i] for each in shares.values()) * MS, 20)
                 for i in range(number)]  # fmt: skip
    return found, group_causes(found, explained, number)


def settled(before: dict[State, list[float]], now: dict[State, list[float]]) -> bool:
    found, causes = causes_of(now)
    number = len(next(iter(now.values())))
    excess = {i: sum(each[i] for each in now.values()) * MS for i in range(number)}
    return is_settled(causes_of(before)[1], causes, found, excess)


def alike(n: int, *shares: float) -> dict[State, list[float]]:
    states = (State.WAIT_DISK, State.WAIT_TIMER, State.WAIT_PIPE)
    return {s: [ms * (1 + i % 3 / 10) for i in range(n)] for s, ms in zip(states, shares)}  # noqa: B905


def test_executions_that_are_slow_for_one_reason_are_enough():
    assert settled(alike(18, 20.0), alike(27, 20.0))
    assert settled(alike(18, 20.0, 8.0), alike(27, 20.0, 8.0))


def test_nothing_is_settled_without_a_batch_before():
    found, causes = causes_of(alike(27, 20.0))
    assert not is_settled((), causes, found, dict.fromkeys(range(27), 20.0 * MS))


def test_another_first_cause_is_not_settled():
    assert not settled(alike(18, 8.0, 20.0), alike(27, 20.0, 8.0))


def test_an_order_that_changes_behind_the_first_is_not_settled():
    assert not settled(alike(18, 20.0, 5.0, 8.0), alike(27, 20.0, 8.0, 5.0))


def test_a_cause_that_few_have_is_not_settled():
    rare = {State.WAIT_DISK: [300.0, *[0.0] * 26], State.WAIT_TIMER: [5.0] * 27}
    assert not settled(rare, rare)


def test_two_about_as_large_are_not_settled():
    n = 27
    halves = {State.WAIT_DISK: [20.0 * (i % 2) for i in range(n)],
              State.WAIT_TIMER: [20.0 * (1 - i % 2) for i in range(n)]}  # fmt: skip
    assert not settled(halves, halves)


def test_a_small_cause_does_not_matter():
    small = {State.WAIT_DISK: [20.0] * 27, State.WAIT_PIPE: [1.0 * (i == 3) for i in range(27)]}
    assert settled(alike(18, 20.0), small)
