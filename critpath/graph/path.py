"""Critical paths from a recording's timelines or graph as a whole."""

from __future__ import annotations

import numpy as np

from critpath.graph._walk import Walks
from critpath.graph.carried import nothing_carried
from critpath.graph.execution_graph import ExecutionGraph
from critpath.graph.sweep import ROWS, sweep_paths
from critpath.model import (
    I64,
    U8,
    BlockList,
    CriticalPaths,
    Timelines,
    filled_in,
    whole_block,
)


def critical_paths(
    timelines: Timelines,
    subjects: I64,
    begin: I64,
    end: I64,
    *,
    interrupts: bool = True,
) -> CriticalPaths:
    """Extract the critical path of every execution: `sweep_paths` over one block.

    Parameters
    ----------
    timelines : Timelines
    subjects : int64 [executions]
        Worker of each execution; -1 where the thread never appears in the trace.
    begin, end : int64 [executions]
        Windows (ns).
    interrupts : bool
        Take interrupt work out of running time, as IRQ and SOFTIRQ.
    """
    return sweep_paths(
        BlockList([whole_block(timelines)]),
        timelines.workers,
        timelines.strings,
        timelines.processors,
        timelines.packets,
        timelines.losses,
        subjects,
        begin,
        end,
        interrupts=interrupts,
    )


def walk_paths(
    graph: ExecutionGraph, workers: I64, begin: I64, end: I64
) -> tuple[I64, I64, I64, I64, I64, U8]:
    """Walk the graph backward from the end of each execution.

    Parameters
    ----------
    graph : ExecutionGraph
    workers, begin, end : int64 [executions]
        Subject and window (ns) of each execution.

    Returns
    -------
    start : int64 [executions + 1]
    begin, end, worker, interval, state : arrays [segments]
        Segments in order of time; ``interval`` is -1 for a link's own time and for
        time that no interval covers.
    """
    walks = Walks(
        np.array([np.iinfo(np.int64).max]),
        workers,
        begin,
        end,
        graph.parent,
        graph.born,
        graph.link_start,
        graph.link_time,
        graph.link_source,
        graph.link_sent,
        graph.link_kind,
    )
    size = len(graph.begin)
    # All links are in the graph's table, none on a row.  Rows have their position in
    # place of a detail, and a cpu by which to tell them from what is no row.
    rows = (
        graph.start,
        graph.begin,
        graph.end,
        graph.state,
        np.arange(size, dtype=np.int32),
        np.zeros(size, np.int32),
        np.full(size, -1, np.int32),
        np.full(size, -1, np.int64),
    )
    walks.advance(0, filled_in(rows), nothing_carried(ROWS))
    start, low, high, worker, state, position, cpu = walks.take()
    interval = np.where(cpu >= 0, position, -1).astype(np.int64)
    return start, low, high, worker.astype(np.int64), interval, state
