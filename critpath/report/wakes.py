"""Which changes of thread along a document's path are wakes: as `CriticalPaths.wakes`.

A path is found backward: while a thread slept, the path is that of whoever woke it.  So,
from its end, a thread that the path is not inside of yet was followed through a wake; one
that it is inside of begins to sleep there.
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
    result: dict[int, bool] = {}
    inside = tids[-1:]
    for i in range(len(tids) - 1, 0, -1):
        before = tids[i - 1]
        if before == tids[i]:
            continue
        result[i] = before not in inside
        if result[i]:
            inside.append(before)
        else:
            del inside[inside.index(before) + 1 :]
    return dict(sorted(result.items()))
