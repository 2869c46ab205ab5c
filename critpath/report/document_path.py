"""One critical path as plain data (``critpath path --format json``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from critpath.model import CriticalPaths, Loss, State

PATH_FORMAT = "critpath/path/1"

_UNEXPLAINED = frozenset({State.WAIT_UNEXPLAINED.name, State.UNKNOWN.name})


def path_document(
    paths: CriticalPaths,
    index: int,
    *,
    tid: int,
    comm: str,
    losses: Sequence[Loss],
    begin: int | None = None,
    end: int | None = None,
) -> dict[str, Any]:
    """Build the document of one critical path.

    Parameters
    ----------
    paths : CriticalPaths
    index : int
        Which of the paths.
    tid, comm : int, str
        The subject: the thread whose execution the path explains.
    losses : sequence of Loss
        Losses of the recording; those that overlap the path's window count.
    begin, end : int, optional
        The window (ns); by default from the first segment to the last.

    Returns
    -------
    dict
        As in the design: times in ns, ``totals`` only of states that occur,
        ``unexplained`` the ns in WAIT_UNEXPLAINED and UNKNOWN.
    """
    first, last = int(paths.start[index]), int(paths.start[index + 1])
    segments = [
        {
            "begin": int(paths.begin[i]),
            "end": int(paths.end[i]),
            "tid": int(paths.tid[i]),
            "comm": paths.strings[paths.comm[i]],
            "state": State(int(paths.state[i])).name,
            "detail": paths.strings[paths.detail[i]],
        }
        for i in range(first, last)
    ]
    if begin is None:
        begin = int(paths.begin[first]) if segments else 0
    if end is None:
        end = int(paths.end[last - 1]) if segments else begin
    totals: dict[str, int] = {}
    for i, segment in enumerate(segments, first):
        duration = int(paths.end[i] - paths.begin[i])
        totals[segment["state"]] = totals.get(segment["state"], 0) + duration
    touching = [loss for loss in losses if loss.begin <= end and loss.end >= begin]
    return {
        "format": PATH_FORMAT,
        "subject": {"tid": int(tid), "comm": comm},
        "begin": int(begin),
        "end": int(end),
        "segments": segments,
        "totals": totals,
        "unexplained": sum(ns for state, ns in totals.items() if state in _UNEXPLAINED),
        "loss": {
            "events": sum(int(loss.events) for loss in touching),
            "packets": sum(int(loss.packets) for loss in touching),
        },
    }
