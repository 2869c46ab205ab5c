"""A difference taken apart: exact, symmetric, and the same whatever is named first."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from msgspec.structs import replace

from critpath.stats.difference import (
    Factors,
    Parts,
    add_parts,
    factors_of,
    round_parts,
    take_apart,
)

MS = 1e6
DRAWN = 500


def draw_side(rng):
    """Return factors of any size: none, as they are on one side only, and very unequal ones."""

    def some(high):
        return float(rng.choice([0.0, 1.0, rng.random()]) * high * 10.0 ** -int(rng.integers(0, 4)))

    def who(high):
        return some(high), some(high), some(high)

    return Factors(some(40), some(80 * MS), who(20), who(20 * MS))


def close(one, other):
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-3)


def test_parts_add_up_and_turn_round():
    rng = np.random.default_rng(1)
    for _ in range(DRAWN):
        before, after = draw_side(rng), draw_side(rng)
        parts = take_apart(before, after)
        scale = 1e-9 * math.fsum(map(abs, parts)) + 1e-3
        assert abs(math.fsum(parts) - (after.time - before.time)) <= scale
        back = take_apart(after, before)
        assert all(abs(a + b) <= scale for a, b in zip(parts, back, strict=True))
        assert sum(round_parts(parts, after.time - before.time)) == round(after.time - before.time)
        assert take_apart(before, before) == Parts(0, 0, 0, 0, 0)


def test_a_factor_that_does_not_change_brings_nothing():
    rng = np.random.default_rng(2)
    for _ in range(DRAWN):
        before, after = draw_side(rng), draw_side(rng)
        if not (before.visits and after.visits):
            continue
        assert take_apart(replace(before, visits=after.visits), after).visits == 0
        if before.length and after.length:
            assert take_apart(replace(before, length=after.length), after).length == 0
        same = replace(before, dilation=after.dilation, delay=after.delay)
        assert max(map(abs, take_apart(same, after)[2:])) <= 1e-3


def test_it_is_the_mean_over_all_orders_of_exchange():
    """Spelt out as it is defined, with every factor by itself (Shapley)."""
    rng = np.random.default_rng(3)
    names = ["visits", "length", 0, 1, 2]
    for _ in range(50):
        before, after = (
            Factors(
                float(rng.random() * 9 + 1), float(rng.random() * 50 * MS + 5 * MS),
                tuple(rng.random(3) * 5), tuple(rng.random(3) * MS),
            )
            for _ in range(2)
        )  # fmt: skip
        sums = dict.fromkeys(names, 0.0)
        for order in permutations(names):
            now = before
            for name in order:
                then = now
                if isinstance(name, str):
                    now = replace(now, **{name: getattr(after, name)})
                else:
                    of = {
                        key: tuple(
                            (getattr(after, key) if i == name else getattr(now, key))[i]
                            for i in range(3)
                        )
                        for key in ("dilation", "delay")
                    }
                    now = replace(now, **of)
                sums[name] += now.time - then.time
        expected = [sums[name] / math.factorial(len(names)) for name in names]
        assert take_apart(before, after) == pytest.approx(expected)


def test_who_is_called_what_changes_no_other_part():
    """Two strangers are as much as one, and pieces add up in any order."""
    rng = np.random.default_rng(4)
    for _ in range(DRAWN):
        sides = [draw_side(rng) for _ in range(2)]
        swapped = [replace(s, dilation=s.dilation[::-1], delay=s.delay[::-1]) for s in sides]
        one, other = take_apart(*sides), take_apart(*swapped)
        assert all(map(close, one[:2], other[:2]))
        assert all(map(close, one[2:], other[:1:-1]))
        assert add_parts([one, other]) == add_parts([other, one])


def test_a_computation_that_became_longer_beside_the_same_neighbours():
    """The spec's example: 35.8 -> 241 ms, waits 11.5 -> 12.0 times as long as it runs."""
    before = factors_of(1, 35.8 * MS, (0, 11.5 * 35.8 * MS, 0), (0, 0, 0))
    after = factors_of(1, 241 * MS, (0, 12.0 * 241 * MS, 0), (0, 0, 0))
    parts = take_apart(before, after)
    assert parts.length / math.fsum(parts) == pytest.approx(0.97, abs=0.01)


def test_more_visits_have_the_waits_of_their_trips():
    before = factors_of(1, 0.2 * MS, (0, 0, 0), (0, 3 * MS, 0))
    after = factors_of(20, 4 * MS, (0, 0, 0), (0, 60 * MS, 0))
    parts = take_apart(before, after)
    assert parts.visits == pytest.approx(19 * 3.2 * MS)
    assert parts.machine == pytest.approx(0, abs=1e-3)


def test_a_neighbour_and_the_programs_own_threads():
    before = factors_of(1, 10 * MS, (0, 0, 0), (0, 0, 0))
    after = factors_of(1, 10 * MS, (2 * MS, 20 * MS, 1 * MS), (0, 5 * MS, 0))
    assert take_apart(before, after) == pytest.approx(Parts(0, 0, 2 * MS, 25 * MS, 1 * MS))


@pytest.mark.parametrize("wait", [0.0, 20 * MS])
def test_a_short_run_does_not_tell_how_busy_the_machine_is(wait):
    """50 us were not cut, 30 ms are four times as long: that is what 30 ms take here."""
    before = factors_of(1, 0.05 * MS, (0, 0, 0), (0, wait, 0))
    after = factors_of(1, 30 * MS, (0, 120 * MS, 0), (0, wait, 0))
    parts = take_apart(before, after)
    assert parts.length == pytest.approx(29.95 * 5 * MS)
    assert abs(parts.machine) < 0.01 * parts.length
