"""How much more one side of an experiment by chance had than the other, by medians."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from critpath.schema.parameters.budget import NATURAL

_DRAWS: Final = 2000  # technical: of the bootstrap


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
    low, high = np.quantile(draws, (0.025, 0.975))  # technical: 95 %
    return float(np.median(ours) / np.median(theirs)), float(low), float(high)


def compare_sides(
    recorded: Sequence[float], others: Sequence[float], seed: int, name: str
) -> dict[str, float] | None:
    """Return how much more recorded ones had, under `name`, with `low` and `high`.

    None where there are fewer than `NATURAL.fewest` of a side.
    """
    if min(len(recorded), len(others)) < NATURAL.fewest:
        return None
    found = compare_medians(recorded, others, seed)
    return {key: round(of - 1, 6) for key, of in zip((name, "low", "high"), found, strict=True)}
