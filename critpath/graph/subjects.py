"""Which life of which thread an execution is about."""

from __future__ import annotations

import numpy as np

from critpath.errors import UsageError
from critpath.model import I64, Executions, Timelines
from critpath.units import plural


def subject_workers(timelines: Timelines, executions: Executions) -> I64:
    """Return the worker of every execution: the life of its thread that the end falls into.

    Returns
    -------
    int64 [executions]
        -1 where the thread never appears.
    """
    workers = timelines.workers
    lives: dict[tuple[int, int], list[int]] = {}
    asked = set(zip(executions.host.tolist(), executions.tid.tolist(), strict=True))
    for index in np.flatnonzero((workers.first >= 0) & (workers.idle_cpu < 0)).tolist():
        key = (int(workers.host[index]), int(workers.tid[index]))
        if key in asked:
            lives.setdefault(key, []).append(index)
    result = np.full(len(executions), -1, np.int64)
    for i in range(len(executions)):
        key = (int(executions.host[i]), int(executions.tid[i]))
        for index in lives.get(key, ()):
            # Lives of one tid follow each other: the last that had begun by the end.
            if workers.first[index] <= executions.end[i] or result[i] < 0:
                result[i] = index
    return result


def left_out(subjects: I64, executions: Executions) -> tuple[str, ...]:
    """Say how many executions have no path, or none that tells anything."""
    unseen = int((subjects < 0).sum())
    notes = (
        (unseen, f"{plural(unseen, 'execution')} of threads without a scheduling event: UNKNOWN"),
        (
            executions.incomplete,
            f"{plural(executions.incomplete, 'execution')} incomplete, left out",
        ),
    )
    return tuple(text for count, text in notes if count)


def lives_of(
    timelines: Timelines,
    tid: int | None,
    comm: str | None,
    window: tuple[int | None, int | None],
    recorded: tuple[int, int],
) -> Executions:
    """Return the lives of threads as executions.

    Parameters
    ----------
    timelines : Timelines
    tid, comm : int or None, str or None
        Which threads; both None for all of them.
    window : tuple of (int or None, int or None)
        Begin and end (ns) instead of the first and last event of each.
    recorded : tuple of (int, int)
        Begin and end of the recording (ns).

    Raises
    ------
    UsageError
        If no thread matches, or the window lies outside the recording.
    """
    begin, end = window
    low = recorded[0] if begin is None else begin
    high = recorded[1] if end is None else end
    if low >= min(high, recorded[1]) or high <= recorded[0]:
        raise UsageError(
            f"nothing was recorded between {low} and {high}",
            f"the recording lasts from {recorded[0]} to {recorded[1]}",
        )
    workers = timelines.workers
    names = [timelines.strings[code] for code in workers.name.tolist()]
    chosen = (workers.first >= 0) & (workers.idle_cpu < 0)
    if tid is not None:
        chosen &= workers.tid == tid
    if comm is not None:
        chosen &= np.array([name == comm for name in names], bool)
    rows = np.flatnonzero(chosen)
    if not len(rows):
        raise UsageError(
            "the trace has no thread " + (f"with tid {tid}" if comm is None else f"called {comm}"),
            "critpath path TRACE without --tid or --comm shows every execution",
        )
    begins = workers.first[rows] if begin is None else np.full(len(rows), begin, np.int64)
    ends = workers.last[rows] if end is None else np.full(len(rows), end, np.int64)
    return Executions(
        id=tuple(f"{workers.tid[w]}@{b}" for w, b in zip(rows, begins.tolist(), strict=True)),
        begin=begins,
        end=np.maximum(begins, ends),
        tid=workers.tid[rows],
        host=workers.host[rows],
        comm=tuple(names[w] for w in rows.tolist()),
        label=("",) * len(rows),
    )
