"""Which life of which thread an execution is about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critpath.errors import UsageError
from critpath.model import I64, Executions, Workers
from critpath.units import plural


def subject_workers(workers: Workers, executions: Executions) -> I64:
    """Return the worker of every execution: the life of its thread that the end falls into.

    Returns
    -------
    int64 [executions]
        -1 where the thread never appears.
    """
    lives = np.flatnonzero((workers.first >= 0) & (workers.idle_cpu < 0))
    result = np.full(len(executions), -1, np.int64)
    if not len(lives) or not len(executions):
        return result
    of, asked = np.split(
        _numbered(
            np.concatenate([workers.host[lives], executions.host]),
            np.concatenate([workers.tid[lives], executions.tid]),
        ),
        [len(lives)],
    )
    order = np.argsort(of, kind="stable")
    lives, of = lives[order], of[order]
    first = workers.first[lives]
    # Lives of one tid follow each other: the last that had begun by the end.  A place
    # among all begins stands for a time, so that threads and times make one key.
    places = np.empty(len(lives), np.int64)
    places[np.argsort(first, kind="stable")] = np.arange(len(lives))
    keys = of * (len(lives) + 1) + places
    # In each thread's lives, the first begin from one on: ascending even if they are not.
    keys = np.minimum.accumulate(keys[::-1])[::-1]
    begun = np.searchsorted(np.sort(first), executions.end, side="right")
    found = np.searchsorted(keys, asked * (len(lives) + 1) + begun) - 1
    # Who asks for a time before all its lives has the first of them.
    of_thread = np.searchsorted(of, [asked, asked + 1])
    known = of_thread[0] < of_thread[1]
    result[known] = lives[np.maximum(found, of_thread[0])[known]]
    return result


def _numbered(host: I64, tid: I64) -> I64:
    """Return a number for every row, the same for the same thread."""
    order = np.lexsort((tid, host))
    host, tid = host[order], tid[order]
    other = np.ones(len(order), np.int64)
    other[1:] = (host[1:] != host[:-1]) | (tid[1:] != tid[:-1])
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(other)
    return number


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
    workers: Workers,
    strings: Sequence[str],
    tid: int | None,
    comm: str | None,
    window: tuple[int | None, int | None],
    recorded: tuple[int, int],
) -> Executions:
    """Return the lives of threads as executions.

    Parameters
    ----------
    workers : Workers
    strings : sequence of str
        What names are codes into.
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
    chosen = (workers.first >= 0) & (workers.idle_cpu < 0)
    if tid is not None:
        chosen &= workers.tid == tid
    if comm is not None:
        chosen &= np.array([text == comm for text in strings], bool)[workers.name]
    rows = np.flatnonzero(chosen)
    if not len(rows):
        raise UsageError(
            "the trace has no thread " + (f"with tid {tid}" if comm is None else f"called {comm}"),
            "critpath path TRACE without --tid or --comm shows every execution",
        )
    begins = workers.first[rows] if begin is None else np.full(len(rows), begin, np.int64)
    ends = workers.last[rows] if end is None else np.full(len(rows), end, np.int64)
    return Executions(
        id=tuple(
            f"{tid}@{time}"
            for tid, time in zip(workers.tid[rows].tolist(), begins.tolist(), strict=True)
        ),
        begin=begins,
        end=np.maximum(begins, ends),
        tid=workers.tid[rows],
        host=workers.host[rows],
        comm=tuple(strings[code] for code in workers.name[rows].tolist()),
        label=("",) * len(rows),
    )
