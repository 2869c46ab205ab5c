"""The natural experiment: what was recorded by chance against what was not."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Final

_DRAWS: Final = 2000
FEWEST: Final = 30  # of each side, below which nothing is compared


def compare_medians(
    recorded: Sequence[float], others: Sequence[float], seed: int
) -> tuple[float, float, float]:
    """Return the ratio of two medians and its 95 % interval, by bootstrap."""
    import numpy as np  # noqa: PLC0415 - nothing has it while others are recorded

    chance = np.random.default_rng(seed)
    ours, theirs = np.asarray(recorded, np.float64), np.asarray(others, np.float64)
    draws = [
        np.median(chance.choice(ours, len(ours))) / np.median(chance.choice(theirs, len(theirs)))
        for _ in range(_DRAWS)
    ]
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(np.median(ours) / np.median(theirs)), float(low), float(high)


def pool_kinds(times: Mapping[str, Mapping[bool, Sequence[float]]]) -> tuple[list[float], ...]:
    """Return recorded and other executions of all kinds, as multiples of their kind's median.

    Kinds have chances of their own: as they are, their times would tell of the mixture.
    """
    ours: list[float] = []
    others: list[float] = []
    for of in times.values():
        middle = max(statistics.median([*of[True], *of[False]]), 1e-9)
        ours += [one / middle for one in of[True]]
        others += [one / middle for one in of[False]]
    return ours, others


def compare_sides(
    recorded: Sequence[float], others: Sequence[float], seed: int, name: str
) -> dict[str, float] | None:
    """Return how much more recorded ones had, under `name`, with `low` and `high`.

    None where there are fewer than `FEWEST` of a side.
    """
    if min(len(recorded), len(others)) < FEWEST:
        return None
    found = compare_medians(recorded, others, seed)
    return {key: round(of - 1, 6) for key, of in zip((name, "low", "high"), found, strict=True)}
