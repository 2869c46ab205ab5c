"""The execution graph of a window, for other programs: how large it is, what is critical."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np

from critpath.errors import UsageError
from critpath.graph.execution_graph import ExecutionGraph
from critpath.graph.path import walk_paths

# A graph takes about 1 kB an edge in memory and 250 bytes in a file; programs that lay
# graphs out give up long before this.
MOST_EDGES: Final = 200_000


def window_graph(graph: ExecutionGraph, begin: int, end: int, subject: int | None = None) -> Any:
    """Return the part of the graph inside a window, with the critical path marked.

    Parameters
    ----------
    graph : ExecutionGraph
    begin, end : int
        The window (ns).
    subject : int or None
        The worker whose path through the window is marked; None for no marks.

    Returns
    -------
    networkx.MultiDiGraph
        As `ExecutionGraph.to_networkx`; with a subject every edge says whether it is
        ``critical``.

    Raises
    ------
    UsageError
        If it would have more than `MOST_EDGES` edges.
    """
    most = count_edges(graph, begin, end)
    if most > MOST_EDGES:
        raise UsageError(
            f"the window has up to {most:,} edges, and a graph is written up to {MOST_EDGES:,}",
            "take a shorter one with --from and --to, or one execution's with --id",
        )
    result = graph.to_networkx(begin, end)
    if subject is not None:
        _mark(result, graph, subject, begin, end)
    return result


def count_edges(graph: ExecutionGraph, begin: int, end: int) -> int:
    """Return how many edges a window has at most: a link is one, and cuts two intervals."""
    intervals = int(np.count_nonzero((graph.end > begin) & (graph.begin < end)))
    links = int(np.count_nonzero((graph.link_time > begin) & (graph.link_time <= end)))
    births = int(np.count_nonzero((graph.born >= begin) & (graph.born <= end)))
    return intervals + 3 * (links + births)


def _mark(result: Any, graph: ExecutionGraph, subject: int, begin: int, end: int) -> None:
    _, low, high, worker, interval, _ = walk_paths(
        graph, np.array([subject]), np.array([begin]), np.array([end])
    )
    columns = (low, high, worker, interval)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    spent: dict[int, list[tuple[int, int]]] = {}
    for first, last, _, of in rows:
        spent.setdefault(of, []).append((first, last))
    # Where the path moves to another thread: the moment it leaves, the moment it arrives.
    # Time of the link itself is a segment without an interval, of the thread it leads to.
    moves = {
        ((before[2], before[1]), (after[2], after[1] if after[3] < 0 else after[0]))
        for before, after in pairwise(rows)
        if before[2] != after[2]
    }
    for source, target, data in result.edges(data=True):
        if data["kind"] == "interval":
            covering = spent.get(data["interval"], ())
            critical = any(a <= source[1] and target[1] <= b for a, b in covering)
        else:
            critical = (source, target) in moves
        data["critical"] = critical
