"""Drawn timelines as graphs: ``0: 0 R 1 B 3`` means state R from 0 to 1, B from 1 to 3."""

from __future__ import annotations

import re

import numpy as np

from critpath.graph.execution_graph import HOLD, NET, WAKE, ExecutionGraph
from critpath.model import State

LETTERS = {
    "R": State.RUN,
    "B": State.WAIT_UNEXPLAINED,
    "P": State.WAIT_CPU,
    "NET": State.WAIT_NET,
    "TIMER": State.WAIT_TIMER,
}
EXPECTED = {
    "R": State.RUN,
    "B": State.WAIT_UNEXPLAINED,
    "P": State.WAIT_CPU,
    "TIMER": State.WAIT_TIMER,
    "UNKNOWN": State.UNKNOWN,
    "NET": State.NET_TRANSIT,
    "LINK": State.WAIT_CPU,
    "SHARED": State.SHARED,
}


def intervals_of(drawing):
    """Return worker -> [(begin, end, state)] of ``0: 0 R 1 B 3; 1: 0 R 2``."""
    result = {}
    for line in drawing.split(";"):
        worker, _, course = line.strip().partition(":")
        tokens = course.split()
        times, states = tokens[::2], tokens[1::2]
        result[int(worker)] = [
            (int(a), int(b), LETTERS[s]) for a, s, b in zip(times, states, times[1:], strict=False)
        ]
    return result


def links_of(drawing):
    """Return (wake and net links, births) of ``0@1->1@3 net, ...``."""
    links, births = [], {}
    for text in filter(None, (t.strip() for t in drawing.split(","))):
        found = re.fullmatch(r"(\d+)@(\d+)->(\d+)(?:@(\d+))?(?: (net|wake|hold|create))?", text)
        source, sent, target, time, kind = found.groups()
        if kind == "create":
            births[int(target)] = (int(source), int(sent))
        else:
            code = {"net": NET, "hold": HOLD}.get(kind, WAKE)
            links.append((int(source), int(sent), int(target), int(time), code))
    return links, births


def graph_of(intervals, links, births, workers=None):
    """Return the ExecutionGraph of a drawing; workers are numbered as drawn."""
    named = {*intervals, *(k[0] for k in links), *(k[2] for k in links), *births}
    count = workers or max(named) + 1
    rows = [row for w in range(count) for row in intervals.get(w, ())]
    sizes = [len(intervals.get(w, ())) for w in range(count)]
    into = sorted(links, key=lambda k: (k[2], k[3], k[4]))
    return ExecutionGraph(
        start=np.cumsum([0, *sizes]),
        begin=np.array([r[0] for r in rows], np.int64),
        end=np.array([r[1] for r in rows], np.int64),
        state=np.array([r[2] for r in rows], np.uint8),
        link_start=np.cumsum([0, *(sum(k[2] == w for k in into) for w in range(count))]),
        link_time=np.array([k[3] for k in into], np.int64),
        link_source=np.array([k[0] for k in into], np.int64),
        link_sent=np.array([k[1] for k in into], np.int64),
        link_kind=np.array([k[4] for k in into], np.uint8),
        parent=np.array([births.get(w, (-1, -1))[0] for w in range(count)], np.int64),
        born=np.array([births.get(w, (-1, -1))[1] for w in range(count)], np.int64),
    )


def path_of(text):
    """Return [(begin, end, worker, state)] of ``0-2 R0, 2-3 UNKNOWN1``."""
    path = []
    for piece in text.split(","):
        times, _, what = piece.strip().partition(" ")
        begin, end = times.split("-")
        name, worker = re.fullmatch(r"([A-Z]+)(\d+)", what).groups()
        path.append((int(begin), int(end), int(worker), EXPECTED[name]))
    return path


def merged(path):
    """Join neighbours that differ in nothing but their time."""
    result = []
    for begin, end, worker, state in path:
        if result and result[-1][2:] == (worker, state) and result[-1][1] == begin:
            result[-1] = (result[-1][0], end, worker, state)
        else:
            result.append((begin, end, worker, state))
    return result
