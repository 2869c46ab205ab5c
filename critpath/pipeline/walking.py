"""The executions of a replayed recording, walked together as far as memory allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from critpath.graph.critical_path import (
    MOST_CARRIED,
    Sweep,
    TooManySegments,
    left_out,
    overlaps_loss,
    subject_workers,
)
from critpath.model import PathSet
from critpath.pipeline.limits import too_long

if TYPE_CHECKING:
    from critpath.model import F64, CriticalPaths, Executions
    from critpath.pipeline.extraction import Replayed
    from critpath.pipeline.limits import Budget

# A first guess, in segments: a path is on one processor at a time, mostly, and interrupts
# cut its rows.
_CUTS: Final = 3
_AT_LEAST: Final = 32


def walked(
    replayed: Replayed,
    executions: Executions,
    recording: str,
    specification: str,
    budget: Budget,
    *,
    interrupts: bool,
) -> Iterator[PathSet]:
    """Yield the paths of all executions in order, in one set or several.

    Parameters
    ----------
    replayed : Replayed
    executions : Executions
        Found in its events.
    recording, specification : str
        What the sets say of themselves.
    budget : Budget
    interrupts : bool
        Take interrupt work out of running time.

    Yields
    ------
    PathSet
        Each has the facts of the whole recording.
    """
    events = replayed.events
    subjects = subject_workers(replayed.workers, executions)
    lossy = overlaps_loss(events.losses, executions.host, executions.begin, executions.end)
    notes = (*executions.notes, *left_out(subjects, executions))
    sweep = Sweep(
        replayed.blocks,
        replayed.workers,
        events.strings,
        replayed.processors,
        replayed.packets,
        events.losses,
        interrupts=interrupts,
        carried=budget.carried or MOST_CARRIED,
    )

    def together(first: int, last: int) -> tuple[slice, CriticalPaths]:
        """Walk some executions, or the first half of them, or fewer, as memory allows."""
        while True:
            rows = slice(first, last)
            windows = executions.begin[rows], executions.end[rows]
            try:
                return rows, sweep.paths(subjects[rows], *windows, most=budget.segments)
            except TooManySegments:
                last = first + (last - first) // 2

    def part(rows: slice, paths: CriticalPaths) -> PathSet:
        said = too_long(int(np.diff(paths.start).max(initial=0)), budget)
        return PathSet(
            executions=executions.rows(rows),
            paths=paths,
            session=np.zeros(len(paths), np.int64),
            sources=(recording,),
            specification=specification,
            losses=events.losses,
            lossy=lossy[rows],
            environment=(
                *events.environment,
                {"recording": recording, "clock_epoch": events.clock.epoch},
            ),
            events=events.total,
            warnings=(*events.warnings, *replayed.warnings, *notes, *said),
        )

    expected = _expected(replayed, executions)
    most = float(budget.segments)
    first = 0
    while first < len(executions) or not first:
        rows, paths = together(first, _together(expected, first, most))
        last = rows.stop
        yield part(rows, paths)
        if last >= len(executions):
            return
        # Executions differ: the next group may be twice as large at the most, and less if
        # this one has shown that as many may be too much.
        size, segments = float(expected[rows].sum()), max(len(paths.begin), 1)
        most = size * min(2.0, budget.segments / (2 * segments))
        first = last


def _expected(replayed: Replayed, executions: Executions) -> F64:
    """Return how many segments every execution may have."""
    events = replayed.events
    share = (executions.end - executions.begin) / max(events.end - events.begin, 1)
    return _AT_LEAST + share * (_CUTS * replayed.rows / max(len(replayed.processors), 1))


def _together(expected: F64, first: int, most: float) -> int:
    """Return the end of the executions that are walked together."""
    if not most:
        return len(expected)
    sums = np.cumsum(expected[first:])
    return first + max(1, int(np.searchsorted(sums, most, side="right")))
