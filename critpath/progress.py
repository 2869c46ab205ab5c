"""What long work tells while it goes on: its stage, how much of that is done, and the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from critpath.units import format_span

Progress = Callable[[str], None]

COMPARING: Final = 4  # technical: stages of a comparison, for who waits
_EVERY: Final = 0.1  # technical: s between two messages
_SURE: Final = 2.0  # technical: s after which the time left can be told


def name_place(number: int, total: int) -> str:
    """Return what tells who waits which of how many it is."""
    return f" ({number:,} of {total:,})"


class Stage:
    """A stage of long work.

    Parameters
    ----------
    progress : callable or None
        Told the name, and from then on what is done of it.
    name : str
    """

    def __init__(self, progress: Progress | None, name: str) -> None:
        self._tell, self._name = progress, name
        self._begin = self._told = time.monotonic()
        if progress is not None:
            progress(name)

    def reach(self, share: float) -> None:
        """Say that a share of it is done; told now and then only."""
        now = time.monotonic()
        if self._tell is None or not share or now - self._told < _EVERY:
            return
        self._told = now
        self._tell(f"{self._name}: {100 * min(share, 1):.0f} %{self._rest(share, now)}")

    def _rest(self, share: float, now: float) -> str:
        spent = now - self._begin
        if spent < _SURE or share >= 1:
            return ""
        return f", about {format_span(spent * (1 - share) / share)} left"
