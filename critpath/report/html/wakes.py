"""Which changes of thread along a critical path are wakes.

A path is found backward: while a thread slept, the path is that of whoever woke it.  So
where it goes over to another thread, either the thread before fell asleep there, and the
path comes back to it by a wake; or it had fallen asleep earlier than the path saw, and the
thread before woke it.
"""

from __future__ import annotations

from critpath.documents import AlignedSegment


def changes(segments: list[AlignedSegment]) -> dict[int, bool]:
    """Return where a path changes its thread, and whether that is a wake.

    Parameters
    ----------
    segments : list of dict
        In order of time, each with its ``tid`` and, since there are reports that need it, ``host``.

    Returns
    -------
    dict of int to bool
        By the position of the first segment on the other thread.  True: the thread before
        woke it, or created it.  False: the thread before sleeps from here on, until the
        path comes back to it.
    """
    # Machines give the same ids to different threads.
    tids = [(segment.host, segment.tid) for segment in segments]
    result: dict[int, bool] = {}
    # From the end, where the path is the subject's own: the threads that it is inside of.
    # As `CriticalPaths.wakes`, which has the whole path.
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
