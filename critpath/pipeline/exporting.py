"""What exports need beyond critical paths: vectors of some sets, the graph of a window."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from critpath.errors import UsageError
from critpath.pipeline.extraction import read_timelines

if TYPE_CHECKING:
    from critpath.model import PathSet, Timelines, VectorTable


def vectors(path_sets: Sequence[PathSet]) -> list[VectorTable]:
    """Return the vectors of several sets, over one alphabet of states and threads."""
    from critpath.vectors.alphabet import Coder
    from critpath.vectors.table import vectors_of

    coder = Coder(path_sets, "thread")
    return [vectors_of(paths, coder) for paths in path_sets]


def choose_executions(paths: PathSet, ids: Sequence[str]) -> PathSet:
    """Return the executions of these ids; all if there is none to choose."""
    from critpath.graph.concatenate import take_executions

    if not ids:
        return paths
    wanted = set(ids)
    rows = [i for i, name in enumerate(paths.executions.id) if name in wanted]
    return take_executions(paths, np.array(rows, np.int64))


def window(
    source: Path,
    *,
    begin: int | None,
    end: int | None,
    paths: PathSet | None = None,
    reader: str = "auto",
    all_threads: bool = False,
) -> tuple[Any, Timelines]:
    """Return the execution graph of a window of a recording.

    Parameters
    ----------
    source : Path
        A recording or a CTF trace.
    begin, end : int or None
        The window (ns); None for the begin or end of the recording.
    paths : PathSet or None
        One execution: its path is marked and, where begin and end are None, its window
        is taken.
    all_threads : bool
        With a path, also the threads that have nothing to do with it.

    Returns
    -------
    graph : networkx.MultiDiGraph
        See `graph.window.window_graph`.
    timelines : Timelines
        Names of its workers, details of its intervals.

    Raises
    ------
    UsageError
        If nothing was recorded in the window, or it is too large.
    """
    from critpath.graph.execution_graph import build_graph
    from critpath.graph.subjects import subject_workers
    from critpath.graph.window import window_graph

    events, timelines = read_timelines(source, reader)
    subject = None
    if paths is not None:
        begin = int(paths.executions.begin[0]) if begin is None else begin
        end = int(paths.executions.end[0]) if end is None else end
        worker = int(subject_workers(timelines.workers, paths.executions)[0])
        subject = worker if worker >= 0 else None
    low = events.begin if begin is None else begin
    high = events.end if end is None else end
    if low >= min(high, events.end) or high <= events.begin:
        raise UsageError(
            f"nothing was recorded between {low} and {high}",
            f"the recording lasts from {events.begin} to {events.end}",
        )
    graph = build_graph(timelines)
    return window_graph(graph, low, high, subject, all_threads=all_threads), timelines
