"""The execution graph: intervals of threads, and links from who caused to who waited."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from critpath.errors import UsageError
from critpath.extras import require
from critpath.graph._walk import Walks
from critpath.graph.critical_path import (
    NO_ARRIVALS,
    ROWS,
    empty_boundary_rows,
    sort_arrivals,
    subject_workers,
    sweep_paths,
)
from critpath.model import (
    I64,
    U8,
    BlockList,
    CriticalPaths,
    PathSet,
    State,
    Timelines,
    freeze_columns,
    make_single_block,
    open_filled,
)
from critpath.timeline import read_timelines

WAKE, NET, HOLD, RECEIPT, ASKED = 0, 1, 2, 3, 4  # technical
_NAMES: Final = ("wake", "net", "hold", "net", "asked")


@dataclass(frozen=True, eq=False)
class ExecutionGraph:
    """Intervals per worker and the links between workers.

    A vertex is a moment of a worker; an interval is the edge between two moments of
    one worker, a link the edge from a moment of one to a moment of another.

    Attributes
    ----------
    start : int64 [workers + 1]
        ``start[w]:start[w + 1]`` are the intervals of worker ``w``.
    begin, end : int64 [intervals]
    state : uint8 [intervals]
    link_start : int64 [workers + 1]
        ``link_start[w]:link_start[w + 1]`` are the links *into* worker ``w``.
    link_time : int64 [links]
        When the link arrives (ns), ascending within a worker.
    link_source : int64 [links]
        The worker it comes from.
    link_sent : int64 [links]
        When it left there (ns).
    link_kind : uint8 [links]
        ``WAKE``, ``NET``, ``HOLD``, ``RECEIPT`` or ``ASKED``.
    parent, born : int64 [workers]
        Creation links: who created the worker and when (ns), -1 if unknown.
    """

    start: I64
    begin: I64
    end: I64
    state: U8
    link_start: I64
    link_time: I64
    link_source: I64
    link_sent: I64
    link_kind: U8
    parent: I64
    born: I64

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.begin), "begin", "end", "state")
        freeze_columns(
            self, len(self.link_time), "link_time", "link_source", "link_sent", "link_kind"
        )
        freeze_columns(self, len(self.start), "start", "link_start")
        freeze_columns(self, len(self.start) - 1, "parent", "born")

    def __len__(self) -> int:
        return len(self.start) - 1

    def to_networkx(self, begin: int, end: int, cuts: Iterable[tuple[int, int]] = ()) -> Any:
        """Return the part of the graph inside a window as a networkx graph."""
        require("a graph of networkx", "graph")
        import networkx as nx  # noqa: PLC0415 - 0.2 s that only this export needs

        graph = nx.MultiDiGraph(begin=begin, end=end)
        moments: dict[int, set[int]] = {}
        for worker, moment in cuts:
            moments.setdefault(worker, set()).add(moment)
        owner = np.repeat(np.arange(len(self)), np.diff(self.link_start))
        inside = np.flatnonzero((self.link_time > begin) & (self.link_time <= end))
        for link in inside.tolist():
            source, target = int(self.link_source[link]), int(owner[link])
            sent, time = int(self.link_sent[link]), int(self.link_time[link])
            kind = _NAMES[self.link_kind[link]]
            if kind == "asked":
                # Who has the processor is followed down from there, if it was asked in time.
                self._link(graph, moments, (source, time), (target, time), kind, asked=sent)
                continue
            self._link(graph, moments, (source, max(sent, begin)), (target, time), kind)
        for worker in np.flatnonzero((self.parent >= 0) & (self.born >= begin)).tolist():
            first = self.start[worker]
            if first == self.start[worker + 1]:
                continue
            time, born = int(self.begin[first]), int(self.born[worker])
            if begin <= born <= time <= end:
                self._link(
                    graph, moments, (int(self.parent[worker]), born), (worker, time), "create"
                )
        for worker in range(len(self)):
            self._intervals(graph, worker, sorted(moments.get(worker, ())), begin, end)
        return graph

    @staticmethod
    def _link(
        graph: Any,
        moments: dict[int, set[int]],
        source: tuple[int, int],
        target: tuple[int, int],
        kind: str,
        **more: int,
    ) -> None:
        graph.add_edge(
            source, target, kind=kind, state="", interval=-1, duration=target[1] - source[1], **more
        )
        for worker, time in (source, target):
            moments.setdefault(worker, set()).add(time)

    def _intervals(self, graph: Any, worker: int, cuts: list[int], begin: int, end: int) -> None:
        of = slice(int(self.start[worker]), int(self.start[worker + 1]))
        rows = np.flatnonzero((self.end[of] > begin) & (self.begin[of] < end)) + of.start
        for row in rows.tolist():
            low, high = max(int(self.begin[row]), begin), min(int(self.end[row]), end)
            inner = cuts[bisect_right(cuts, low) : bisect_left(cuts, high)]
            times = [low, *inner, high]
            for a, b in itertools.pairwise(times):
                graph.add_edge(
                    (worker, a),
                    (worker, b),
                    kind="interval",
                    state=State(int(self.state[row])).name,
                    interval=row,
                    duration=b - a,
                )


def build_graph(timelines: Timelines) -> ExecutionGraph:
    """Link the timelines of a recording.

    Parameters
    ----------
    timelines : Timelines

    Returns
    -------
    ExecutionGraph
        Wake links from every interval that a thread ended, network links from
        every matched packet, links from holders to waits with a time-out, links from who was
        asked to who waits for its processor (``link_sent`` is when it was asked), creation
        links from every fork.
    """
    owner = np.repeat(np.arange(len(timelines.workers)), np.diff(timelines.start))
    woken = np.flatnonzero(timelines.waker >= 0)
    told = (timelines.packets, timelines.holds, timelines.receipts)
    packets = np.array([link for of in told for link in of], np.int64).reshape(-1, 4)
    target = np.concatenate([owner[woken], packets[:, 2]])
    time = np.concatenate([timelines.end[woken], packets[:, 3]])
    source = np.concatenate([timelines.waker[woken].astype(np.int64), packets[:, 0]])
    sent = np.concatenate([timelines.woken[woken], packets[:, 1]])
    sizes = [len(woken), *map(len, told)]
    kind = np.repeat(np.array([WAKE, NET, HOLD, RECEIPT], np.uint8), sizes)
    kind[: len(woken)][timelines.state[woken] == State.WAIT_CPU] = ASKED
    # At one moment a packet explains a wake by the interrupt or thread that delivered it.
    order = np.lexsort((kind, time, target)) if len(packets) else np.arange(len(woken))
    counts = np.bincount(target, minlength=len(timelines.workers))
    return ExecutionGraph(
        start=timelines.start,
        begin=timelines.begin,
        end=timelines.end,
        state=timelines.state,
        link_start=np.concatenate([[0], np.cumsum(counts)]),
        link_time=time[order],
        link_source=source[order],
        link_sent=sent[order],
        link_kind=kind[order],
        parent=timelines.workers.parent,
        born=timelines.workers.born,
    )


# Critical paths from a recording's timelines or graph as a whole.


def critical_paths(
    timelines: Timelines,
    subjects: I64,
    begin: I64,
    end: I64,
    *,
    interrupts: bool = True,
) -> CriticalPaths:
    """Extract the critical path of every execution: `sweep_paths` over one block."""
    return sweep_paths(
        BlockList([make_single_block(timelines)]),
        timelines.workers,
        timelines.strings,
        timelines.processors,
        timelines.packets,
        timelines.losses,
        subjects,
        begin,
        end,
        holds=timelines.holds,
        receipts=timelines.receipts,
        interrupts=interrupts,
    )


def walk_paths(
    graph: ExecutionGraph,
    workers: I64,
    begin: I64,
    end: I64,
    arrivals: I64 = NO_ARRIVALS,
    own: I64 | None = None,
) -> tuple[I64, I64, I64, I64, I64, U8]:
    """Walk the graph backward from the end of each execution (`Sweep.paths`)."""
    none = np.full(len(workers), -1, np.int64)
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
        none,
        *sort_arrivals(arrivals, len(graph.start) - 1),
        none if own is None else own,
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
    walks.advance(0, open_filled(rows), empty_boundary_rows(ROWS))
    start, low, high, worker, state, position, cpu = walks.take()
    interval = np.where(cpu >= 0, position, -1).astype(np.int64)
    return start, low, high, worker.astype(np.int64), interval, state


# The execution graph of a window, for other programs: how large it is, what is critical.


# technical: A graph takes about 1.5 kB an edge in memory and 550 bytes in a file; programs that
# lay graphs out give up long before this.
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
            "take a shorter one with --from and --to, or one run's with --id",
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
    return result if all_threads else _keep_near(result, {of for _, _, of, _ in rows})


def count_edges(graph: ExecutionGraph, begin: int, end: int) -> int:
    """Return how many edges a window has at most: a link is one, and cuts two intervals."""
    intervals = int(np.count_nonzero((graph.end > begin) & (graph.begin < end)))
    links = int(np.count_nonzero((graph.link_time > begin) & (graph.link_time <= end)))
    births = int(np.count_nonzero((graph.born >= begin) & (graph.born <= end)))
    return intervals + 3 * (links + births)


def _keep_near(whole: Any, on_path: set[int]) -> Any:
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
