"""What a recording in turns says it can show."""

from __future__ import annotations

import math
import random

from critpath.text.foresight import describe_power


def draw_runs(spread, many, shift=0.0):
    chance = random.Random(7)  # noqa: S311 - drawn times
    times = [[], []]
    for _ in range(many):
        drift = chance.gauss(0, 1)  # that a block shares
        for side, rows in enumerate(times):
            rows.append(round(1e6 * math.exp(drift + side * shift + chance.gauss(0, spread))))
    return times


def test_what_blocks_share_hides_nothing():
    assert describe_power(*draw_runs(0.02, 30), 30) == (
        "30 blocks: a difference of whole runs of 1.5 % would show"
    )
    assert describe_power(*draw_runs(0.02, 30, shift=1.0), 30) == describe_power(
        *draw_runs(0.02, 30), 30
    )


def test_it_says_how_many_more_would_do():
    said = describe_power(*draw_runs(0.5, 15), 30)
    assert said.startswith("30 blocks: a difference of whole runs of ")
    assert "would show; record " in said
    assert said.endswith(" more: 25 % would show")


def test_nothing_is_said_of_few_blocks_or_of_runs_that_did_not_end():
    assert describe_power([5, 6, 7], [6, 7, 8], 30) == ""
    assert describe_power([0] * 20, [5] * 20, 20) == ""
