"""Which changes of thread along a critical path are wakes.

A path is found backward: while a thread slept, the path is that of whoever woke it.  So
where it goes over to another thread, either the thread before fell asleep there, and the
path comes back to it by a wake; or it had fallen asleep earlier than the path saw, and the
thread before woke it.
"""

from __future__ import annotations

from typing import Any


def changes(segments: list[dict[str, Any]]) -> dict[int, bool]:
    """Return where a path changes its thread, and whether that is a wake.

    Parameters
    ----------
    segments : list of dict
        In order of time, each with its ``tid``.

    Returns
    -------
    dict of int to bool
        By the position of the first segment on the other thread.  True: the thread before
        woke it, or created it.  False: the thread before sleeps from here on, until the
        path comes back to it.
    """
    tids = [segment["tid"] for segment in segments]
    last = {tid: i for i, tid in enumerate(tids)}
    result: dict[int, bool] = {}
    sleeping: list[int] = []
    for i in range(1, len(tids)):
        before, now = tids[i - 1], tids[i]
        if before == now:
            continue
        if now in sleeping:
            result[i] = True
            del sleeping[sleeping.index(now) :]
        elif last[before] < i:
            # The path is never on the thread before again: it did not wait for this one.
            result[i] = True
        else:
            result[i] = False
            sleeping.append(before)
    return result
