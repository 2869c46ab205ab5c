"""The execution graph of a window as GraphML, for networkx, Gephi, yEd or igraph.

The form is that of http://graphml.graphdrawing.org/specification.html.  networkx's own
writer builds the whole file as a tree first: ten times the time and memory of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from critpath.model import Timelines
from critpath.report.exports.exported import thread_name
from critpath.report.palette import LOOKS
from critpath.units import plural, safe_text

_NODE: Final = {
    "label": "string",
    "worker": "long",
    "time": "long",
    "tid": "long",
    "host": "long",
    "comm": "string",
}
_EDGE: Final = {
    "kind": "string",
    "duration": "long",
    "state": "string",
    "words": "string",
    "detail": "string",
    "interval": "long",
    "critical": "boolean",
    "asked": "long",
}
_GRAPH: Final = {"begin": "long", "end": "long"}
_HEAD: Final = """\
<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns \
http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">
"""


def write_window(
    source: Path, settings: Any, *, tell: Callable[[str], None], **of: Any
) -> Iterator[bytes]:
    """Return the graph of a window of a recording, which is read for it."""
    from critpath.graph import window  # noqa: PLC0415 - numpy and the stages

    if settings["max-memory"]:
        tell("graphml has the whole recording in memory: --max-memory is not heeded")
    graph, timelines = window(source, reader=settings["reader"], **of)
    vertices, threads = graph.graph.get("left_out", (0, 0))
    if vertices:
        tell(
            f"{plural(vertices, 'vertex')} of {plural(threads, 'thread')} beside the path "
            f"left out, {len(graph):,} written; --all-threads has all"
        )
    return graphml(graph, timelines)


def graphml(graph: Any, timelines: Timelines) -> Iterator[bytes]:
    """Write an execution graph as GraphML, piece by piece.

    Parameters
    ----------
    graph : networkx.MultiDiGraph
        Nodes ``(worker, time)``, as `ExecutionGraph.to_networkx` gives it.
    timelines : Timelines
        Of the same recording: who the workers are.

    Yields
    ------
    bytes
        One after the other they are the file.  Nodes are called ``WORKER@TIME`` and carry
        ``worker``, ``time`` (ns), ``tid``, ``host``, ``comm``; edges carry ``kind``
        (``interval``, ``wake``, ``net``, ``hold``, ``create``, ``asked``), ``duration`` (ns),
        for intervals ``state``, its ``words``, ``detail`` and ``interval`` (the same for the
        pieces of one), for ``asked`` when that was (``asked``, ns), and ``critical`` where it is
        known.  Characters that XML has not are replaced, as in every other output.
    """
    yield _HEAD.encode("utf-8")
    for element, keys in (("node", _NODE), ("edge", _EDGE), ("graph", _GRAPH)):
        for name, kind in keys.items():
            yield (
                f'  <key id="{element}_{name}" for="{element}" attr.name="{name}" '
                f'attr.type="{kind}"/>\n'
            ).encode("ascii")
    yield b'  <graph edgedefault="directed">\n'
    yield (_data("graph", {name: graph.graph[name] for name in _GRAPH}) + "\n").encode("ascii")
    workers, strings = timelines.workers, timelines.strings
    for worker, time in sorted(graph):
        comm, tid = strings[workers.name[worker]], int(workers.tid[worker])
        about = {
            "label": thread_name(comm, tid),
            "worker": worker,
            "time": time,
            **({"tid": tid} if tid >= 0 else {}),
            "host": int(workers.host[worker]),
            "comm": comm,
        }
        yield f'<node id="{worker}@{time}">{_data("node", about)}</node>\n'.encode()
    edges = sorted(
        graph.edges(data=True), key=lambda e: (e[0][1], e[1][1], e[0], e[1], e[2]["kind"])
    )
    for source, target, data in edges:
        ends = 'source="{}@{}" target="{}@{}"'.format(*source, *target)
        yield f"<edge {ends}>{_data('edge', _about(data, timelines))}</edge>\n".encode()
    yield b"  </graph>\n</graphml>\n"


def _about(data: dict[str, Any], timelines: Timelines) -> dict[str, str | int | bool]:
    about = {"kind": data["kind"], "duration": data["duration"]}
    if data["kind"] == "interval":
        about |= {
            "state": data["state"],
            "words": LOOKS[data["state"]].words,
            "detail": timelines.strings[timelines.detail[data["interval"]]],
            "interval": data["interval"],
        }
    return about | {name: data[name] for name in ("critical", "asked") if name in data}


def _data(element: str, about: dict[str, Any]) -> str:
    return "".join(
        f'<data key="{element}_{name}">{_text(value)}</data>' for name, value in about.items()
    )


def _text(value: str | int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return escape(safe_text(value)) if isinstance(value, str) else str(value)
