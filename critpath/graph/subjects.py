"""Which life of which thread an execution is about."""

from __future__ import annotations

import numpy as np

from critpath.model import I64, Executions, Timelines


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
