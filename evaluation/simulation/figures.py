"""Measured rates beside the specification's, each with its standard error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_ROUNDED = 0.0005  # the specification's figures are rounded
_FAR = 2.0


@dataclass(frozen=True)
class Cell:
    """A share of simulations, and what the specification says it is.

    `repeats` and `spec_repeats` are independent simulations behind either figure; what a
    simulation contributes may itself be a share, which makes the error an upper bound.
    """

    value: float
    repeats: int
    spec: float | None = None
    spec_repeats: int = 0
    rounded: float = _ROUNDED

    @property
    def distance(self) -> float | None:
        """How many standard errors of the difference the two are apart."""
        if self.spec is None or math.isnan(self.spec):
            return None
        n, m = self.repeats, self.spec_repeats
        together = (self.value * n + self.spec * m) / (n + m)
        error = math.sqrt(together * (1 - together) * (1 / n + 1 / m))
        apart = max(0.0, abs(self.value - self.spec) - self.rounded)
        return apart / error if apart else 0.0

    @property
    def far(self) -> bool:
        return self.distance is not None and self.distance > _FAR

    def __str__(self) -> str:
        text = f"{self.value:.3f}±{error_of(self.value, self.repeats):.3f}"
        if self.distance is None:
            return text
        told = f"{self.spec:.3f}±{error_of(self.spec or 0.0, self.spec_repeats):.3f}"
        return f"{text} ({told}){' !' if self.far else ''}"


def error_of(share: float, repeats: int) -> float:
    """Binomial standard error; of a share of 0 or 1, that of one case more."""
    share = min(max(share, 1 / (repeats + 2)), 1 - 1 / (repeats + 2))
    return math.sqrt(share * (1 - share) / repeats)


def markdown(
    corner: str, columns: Sequence[str], rows: Iterable[tuple[str, Sequence[object]]]
) -> str:
    lines = [f"| {corner} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(str(cell) for cell in cells)} |" for name, cells in rows]
    return "\n".join(lines)


def verdict(cells: Iterable[Cell]) -> str:
    """Say how many cells are far from the specification's."""
    compared = [cell for cell in cells if cell.distance is not None]
    far = sum(cell.far for cell in compared)
    return (
        f"{far} of {len(compared)} cells differ from the specification by more than "
        f"{_FAR:g} standard errors of the difference (!); "
        f"{0.0455 * len(compared):.1f} would by chance alone."
    )
