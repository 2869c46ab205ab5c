"""What a baseline is, and what of it both directions need to know."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from critpath.model import PathSet, State

FORMAT: Final = "critpath/baseline/1"
STATES: Final = tuple(State(code).name for code in range(len(State)))
STEP: Final = 4  # numbers per segment: kind, thread, cpu, duration
# Of any version, and even where an unfinished merge stands above it.
_MARK: Final = b'"critpath/baseline/'


@dataclass(frozen=True, eq=False)
class Session:
    """Executions that were saved together.

    Attributes
    ----------
    paths : PathSet
    recorded : tuple of str
        When each of its sources was recorded, as ``2026-11-21T04:35:27Z``, "" unknown.
    left_out : int
        Executions of the recording that are not in the baseline.
    """

    paths: PathSet
    recorded: tuple[str, ...]
    left_out: int = 0


@dataclass(frozen=True, eq=False)
class Baseline:
    """What is normal, of one or more sessions, the oldest first.

    Attributes
    ----------
    sessions : tuple of Session
    interrupts : bool
        Interrupt work was told apart from running.
    version : str
        Of the critpath that wrote it.
    """

    sessions: tuple[Session, ...]
    interrupts: bool
    version: str


def is_baseline_file(path: Path) -> bool:
    """Tell whether something says that it is a baseline; never raises."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            return _MARK in stream.read(512)
    except (OSError, ValueError):
        return False


def utf8(text: str) -> str:
    """Return text as a file in UTF-8 holds it; a trace's may be none."""
    return text.encode("utf-8", "replace").decode("utf-8")


def mean_times(paths: PathSet) -> list[tuple[str, int, int]]:
    """Return every state's time: the mean of an execution (ns, rounded down), and all of it.

    The total comes first.  The means are for whoever looks at the difference between two
    versions of a baseline; the sums tell a file that was changed by hand.
    """
    count = max(len(paths), 1)
    spent = [0] * len(STATES)
    for state in np.unique(paths.paths.state).tolist():
        spent[state] = int(paths.paths.duration[paths.paths.state == state].sum())
    named = [(name, ns // count, ns) for name, ns in zip(STATES, spent, strict=True) if ns]
    return [("total", sum(spent) // count, sum(spent)), *sorted(named)]
