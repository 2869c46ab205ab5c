"""The execution graph of a window, for other programs: how large it is, what is critical."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np

from critpath.errors import UsageError
from critpath.graph.execution_graph import ExecutionGraph
from critpath.graph.path import walk_paths

# A graph takes about 1.5 kB an edge in memory and 550 bytes in a file; programs that lay
# graphs out give up long before this.
MOST_EDGES: Final = 500_000

Segment = tuple[int, int, int, int]  # begin, end, worker, interval


def window_graph(
    graph: ExecutionGraph,
    begin: int,
    end: int,
    subject: int | None = None,
    *,
    all_threads: bool = False,
) -> Any:
    """Return the part of the graph inside a window, with the critical path marked.

    Parameters
    ----------
    graph : ExecutionGraph
    begin, end : int
        The window (ns).
    subject : int or None
        The worker whose path through the window is marked; None for no marks.
    all_threads : bool
        With a subject, also the threads that neither are on its path nor woke one that is.

    Returns
    -------
    networkx.MultiDiGraph
        As `ExecutionGraph.to_networkx`; with a subject every edge says whether it is
        ``critical``, and the graph's attribute ``left_out`` how many vertices and
        threads are not in it.

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
    if subject is None:
        return graph.to_networkx(begin, end)
    _, low, high, worker, interval, _ = walk_paths(
        graph, np.array([subject]), np.array([begin]), np.array([end])
    )
    columns = (low, high, worker, interval)
    rows: list[Segment] = list(zip(*(column.tolist() for column in columns), strict=True))
    # Where a thread begins to wait, its path goes on in the midst of another's interval.
    cuts = [(of, time) for first, last, of, _ in rows for time in (first, last)]
    result = graph.to_networkx(begin, end, cuts)
    _mark(result, rows)
    return result if all_threads else _near(result, {of for _, _, of, _ in rows})


def count_edges(graph: ExecutionGraph, begin: int, end: int) -> int:
    """Return how many edges a window has at most: a link is one, and cuts two intervals."""
    intervals = int(np.count_nonzero((graph.end > begin) & (graph.begin < end)))
    links = int(np.count_nonzero((graph.link_time > begin) & (graph.link_time <= end)))
    births = int(np.count_nonzero((graph.born >= begin) & (graph.born <= end)))
    return intervals + 3 * (links + births)


def _near(whole: Any, on_path: set[int]) -> Any:
    """Return the graph of the threads on a path and of those that woke, or created, one of them.

    Every link to a thread on the path is kept, so the path can still be found in it.
    """
    near = {a[0] for a, b in whole.edges() if b[0] in on_path}
    near |= on_path
    kept = [node for node in whole if node[0] in near]
    result = whole.subgraph(kept).copy()
    others = {worker for worker, _ in whole} - near
    result.graph["left_out"] = (len(whole) - len(kept), len(others))
    return result


def _mark(result: Any, rows: list[Segment]) -> None:
    spent: dict[int, list[tuple[int, int]]] = {}
    for first, last, _, of in rows:
        spent.setdefault(of, []).append((first, last))
    # The moments at which the path arrives by a link, and from whom; a link's own time is
    # a segment without an interval, of the thread that it leads to.
    arrivals = {
        (after[2], after[1] if after[3] < 0 else after[0]): before[2]
        for before, after in pairwise(rows)
        if before[2] != after[2] or after[3] < 0
    }
    for source, target, data in result.edges(data=True):
        if data["kind"] == "interval":
            covering = spent.get(data["interval"], ())
            critical = any(a <= source[1] and target[1] <= b for a, b in covering)
        else:
            # From the thread itself: who woke it did so before it had begun to wait.
            critical = arrivals.get(target) in {source[0], target[0]}
        data["critical"] = critical
