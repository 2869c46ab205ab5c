"""The execution graph: intervals of threads, and links from who caused to who waited."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from critpath.model import I64, U8, State, Timelines, freeze_columns

WAKE, NET = 0, 1


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
        ``WAKE`` or ``NET``.
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
        freeze_columns(self, len(self.begin), begin=np.int64, end=np.int64, state=np.uint8)
        freeze_columns(
            self,
            len(self.link_time),
            link_time=np.int64,
            link_source=np.int64,
            link_sent=np.int64,
            link_kind=np.uint8,
        )
        freeze_columns(self, len(self.start), start=np.int64, link_start=np.int64)
        freeze_columns(self, len(self.start) - 1, parent=np.int64, born=np.int64)

    def __len__(self) -> int:
        return len(self.start) - 1

    def to_networkx(self, begin: int, end: int, cuts: Iterable[tuple[int, int]] = ()) -> Any:
        """Return the part of the graph inside a window as a networkx graph.

        Parameters
        ----------
        begin, end : int
            The window (ns).
        cuts : iterable of (int, int)
            More moments, as (worker, time), to cut intervals at.

        Returns
        -------
        networkx.MultiDiGraph
            Nodes ``(worker, time)``.  Edges run forward in time and carry ``kind``
            (``interval``, ``wake``, ``net``, ``create``), ``state`` (its name, for
            intervals), ``interval`` (its position in the graph's columns, -1 for
            links) and ``duration`` (ns).  Intervals are cut at the window and at
            every moment a link leaves from or arrives at: the pieces of one have the
            same ``interval``.
        """
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
            kind = "net" if self.link_kind[link] == NET else "wake"
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
    ) -> None:
        graph.add_edge(
            source, target, kind=kind, state="", interval=-1, duration=target[1] - source[1]
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
        every matched packet, creation links from every fork.
    """
    owner = np.repeat(np.arange(len(timelines.workers)), np.diff(timelines.start))
    woken = np.flatnonzero(timelines.waker >= 0)
    packets = np.array(timelines.packets, np.int64).reshape(-1, 4)
    target = np.concatenate([owner[woken], packets[:, 2]])
    time = np.concatenate([timelines.end[woken], packets[:, 3]])
    source = np.concatenate([timelines.waker[woken].astype(np.int64), packets[:, 0]])
    sent = np.concatenate([timelines.woken[woken], packets[:, 1]])
    kind = np.repeat(np.array([WAKE, NET], np.uint8), [len(woken), len(packets)])
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
