"""The execution graph of a window as GraphML, for networkx, Gephi, yEd or igraph."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from critpath.model import Timelines
from critpath.report.exported import thread_name
from critpath.report.palette import LOOKS
from critpath.units import safe_text


def graphml(graph: Any, timelines: Timelines) -> Iterator[bytes]:
    """Write an execution graph as GraphML.

    Parameters
    ----------
    graph : networkx.MultiDiGraph
        Nodes ``(worker, time)``, as `ExecutionGraph.to_networkx` gives it.
    timelines : Timelines
        Of the same recording: who the workers are.

    Yields
    ------
    bytes
        The file.  Nodes are called ``WORKER@TIME`` and carry ``worker``, ``time`` (ns),
        ``tid``, ``host``, ``comm``; edges carry ``kind`` (``interval``, ``wake``,
        ``net``, ``create``), ``duration`` (ns), for intervals ``state``, its ``words``,
        ``detail`` and ``interval`` (the same for the pieces of one), and ``critical``
        where it is known.
        Characters that XML has not are replaced, as in every other output.
    """
    import networkx as nx  # noqa: PLC0415 - slow to import

    result = nx.MultiDiGraph(**graph.graph)
    workers, strings = timelines.workers, [safe_text(text) for text in timelines.strings]
    for worker, time in sorted(graph):
        comm, tid = strings[workers.name[worker]], int(workers.tid[worker])
        result.add_node(
            f"{worker}@{time}",
            label=thread_name(comm, tid),
            worker=worker,
            time=time,
            tid=tid,
            host=int(workers.host[worker]),
            comm=comm,
        )
    edges = sorted(
        graph.edges(data=True), key=lambda e: (e[0][1], e[1][1], e[0], e[1], e[2]["kind"])
    )
    for source, target, data in edges:
        about = {"kind": data["kind"], "duration": data["duration"]}
        if data["kind"] == "interval":
            about |= {
                "state": data["state"],
                "words": LOOKS[data["state"]].words,
                "detail": strings[timelines.detail[data["interval"]]],
                "interval": data["interval"],
            }
        if "critical" in data:
            about["critical"] = data["critical"]
        result.add_edge("{}@{}".format(*source), "{}@{}".format(*target), **about)
    file = BytesIO()
    # The writer of the standard library: the other one is used only where lxml happens to be.
    nx.write_graphml_xml(result, file, named_key_ids=True)
    yield file.getvalue()
