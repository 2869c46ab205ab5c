"""Drawings of threads as text, made into the tables that `find_owners` takes.

One line a thread, ``NAME  TOKENS``; a token's column is its time.

====  =====================================================================================
R1    receives request 1 (R1 again: more of it)        A1   it arrives (else just before R1)
S1    sends its answer (S1 again: more of it)            E1   it has arrived; its call ends later
ca    connects connection a                            sa   sends sub-request a (over a)
ra    receives its answer                              z    sleeps
Va    its answer arrives
!b    wakes thread b; on the line ``net``: an interrupt does
====  =====================================================================================

``a2`` in place of ``a`` is a second sub-request over connection a, ``1.2`` in place of ``1`` a
second request over connection 1.  Names of threads before a dot
are their process (``p.x`` and ``p.y``); without one all are of one process.  Below, what is to be
found: ``= a 1 own certain`` (``= a -``: nobody's) and ``| NAME FROM TO 1 own`` (``*``: shared),
times as tokens of that line or of another (``b:sa``).  ``~ a 1``: both are ends of one connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from critpath.model import Workers
from critpath.model.requests import (
    Act,
    Activity,
    Certainty,
    Endpoints,
    RequestTable,
    Rule,
    Subrequests,
)

COLUMN = 1000  # ns
TOKEN = re.compile(r"\S+")


@dataclass
class Drawing:
    """A drawing: its name, its lines, and what they come to."""

    title: str
    lines: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    subs: dict[str, str] = field(default_factory=dict)
    slices: list[str] = field(default_factory=list)
    peers: dict[str, str] = field(default_factory=dict)

    def time(self, name: str, token: str) -> int:
        """Return when a token stands on a thread's line."""
        line, _, of = token.rpartition(":")
        return next(t for word, t in self.lines[line or name] if word == of)


def read_drawings(path: Path) -> Iterator[Drawing]:
    """Yield the drawings of a file: blocks that begin with ``# title``."""
    drawing = None
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            if drawing is not None:
                yield drawing
            drawing = Drawing(line[2:])
        elif drawing is None or not line.strip():
            continue
        elif line.startswith("= "):
            sub, _, owner = line[2:].partition(" ")
            drawing.subs[sub] = owner.strip()
        elif line.startswith("~ "):
            one, other = line[2:].split()
            drawing.peers |= {one: other, other: one}
        elif line.startswith("| "):
            drawing.slices.append(line[2:])
        else:
            name, *_ = line.split(maxsplit=1)
            tokens = [(m.group(), COLUMN * m.start()) for m in TOKEN.finditer(line)]
            drawing.lines[name] = tokens[1:]
    if drawing is not None:
        yield drawing


@dataclass(frozen=True)
class Tables:
    """What `find_owners` takes, and the names that stand for rows."""

    activity: Activity
    workers: Workers
    endpoints: Endpoints
    requests: RequestTable
    subrequests: Subrequests
    numbers: list[str]  # of requests
    names: list[str]  # of sub-requests
    tids: dict[str, int]

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.activity, self.workers, self.endpoints, self.requests, self.subrequests)


def fill(table: type[Any], many: int, **known: Any) -> Any:
    """Make a table of which some columns are known; the others are -1, or doubtful."""
    columns = {}
    for column, kind in table.__annotations__.items():
        if column != "strings":
            dtype = np.uint8 if kind == "U8" else np.int32 if kind == "I32" else np.int64
            blank = Certainty.DOUBTFUL if kind == "U8" else -1
            columns[column] = np.asarray(known.get(column, np.full(many, blank)), dtype)
    return table(**columns, **{k: v for k, v in known.items() if k == "strings"})


def workers_of(processes: dict[int, int]) -> Workers:
    """Return threads, of which only the processes are known."""
    tids = sorted(processes)
    return fill(
        Workers, len(tids), host=np.zeros(len(tids)), tid=tids, pid=[processes[t] for t in tids]
    )


def draw(drawing: Drawing) -> Tables:
    """Make a drawing's tables."""
    tids = {name: 10 + i for i, name in enumerate(n for n in drawing.lines if n != "net")}
    groups = {n: n.partition(".")[0] if "." in n else "" for n in tids}
    processes = {tids[n]: 1000 + sorted(set(groups.values())).index(g) for n, g in groups.items()}
    events = sorted(
        (time, name, word) for name, line in drawing.lines.items() for word, time in line
    )
    served: dict[str, dict[str, Any]] = {}
    asked: dict[str, dict[str, Any]] = {}
    ends: dict[str, int] = {}
    rows = []

    def end(key: str) -> int:
        return ends.setdefault(key.partition(".")[0], len(ends))

    for time, name, word in events:
        tid = tids.get(name, -1)
        letter, of = word[0], word[1:]
        if letter in "ARS" and letter != "S":
            request = served.setdefault(of, {"begin": time - 10})
            if letter == "A":
                request["begin"] = time
                rows.append((time, Act.ARRIVAL, tid, end(of), 1))
                continue
            request.setdefault("received", time)
            request.setdefault("reader", tid)
            rows.append((time, Act.RECEIVE, tid, end(of), 1))
        elif letter == "E":
            served[of].setdefault("answered", time)
            served[of]["arrived"] = time
        elif letter == "S":
            served[of].setdefault("answered", time)
            served[of].update(end=served[of].get("arrived", time), tid=tid)
            rows.append((time, Act.SEND, tid, end(of), 1))
        elif letter == "c":
            asked[word] = {"begin": time, "end": time, "tid": tid, "connects": 1}
            asked[word]["endpoint"] = end(of[:1])
            rows.append((time, Act.OPEN, tid, end(of[:1]), 2))
        elif letter == "s":
            asked.setdefault(of, {"begin": time, "tid": tid, "endpoint": end(of[:1])})
            rows.append((time, Act.SEND, tid, end(of[:1]), 1))
        elif letter == "r":
            asked[of]["end"] = time
            rows.append((time, Act.RECEIVE, tid, end(of[:1]), 1))
        elif letter == "z":
            rows.append((time, Act.SLEEP, tid, -1, 0))
        elif letter == "V":
            rows.append((time, Act.ARRIVAL, tid, end(of[:1]), 1))
        else:
            rows.append((time, Act.WAKE, tid, -1, tids[of]))
            rows.append((time + 1, Act.RUN, tids[of], -1, 0))
    done = sorted((k for k, r in served.items() if "end" in r), key=lambda k: served[k]["begin"])
    whole = sorted((k for k, s in asked.items() if "end" in s), key=lambda k: asked[k]["begin"])

    def column(names: list[str], of: dict[str, dict[str, Any]], key: str) -> list[int]:
        return [of[n].get(key, 0) for n in names]

    many = len(done)
    requests = fill(
        RequestTable, many, endpoint=[end(k) for k in done], turn=np.ones(many),
        service=np.ones(many), label=np.ones(many), begin_ns=column(done, served, "begin"),
        received_ns=column(done, served, "received"), answered_ns=column(done, served, "answered"),
        end_ns=column(done, served, "end"), reader_tid=column(done, served, "reader"),
        tid=column(done, served, "tid"), bytes_in=np.ones(many), strings=("", "server"),
    )  # fmt: skip
    subrequests = fill(
        Subrequests, len(whole), endpoint=column(whole, asked, "endpoint"),
        begin_ns=column(whole, asked, "begin"), end_ns=column(whole, asked, "end"),
        tid=column(whole, asked, "tid"), connects=column(whole, asked, "connects"),
    )  # fmt: skip
    count = len(ends)
    endpoints = fill(
        Endpoints, count, host=np.zeros(count), serves=[int(k.isdigit()) for k in ends],
        remote_port=[0 if k.isdigit() else 6379 for k in ends], remote_address=np.zeros(count),
        path=np.zeros(count), peer=[ends.get(drawing.peers.get(k, ""), -1) for k in ends],
    )  # fmt: skip
    time, act, tid, endpoint, value = (np.array(c) for c in zip(*sorted(rows), strict=True))
    activity = fill(
        Activity, len(rows), time_ns=time, act=act, tid=tid, host=np.zeros(len(rows)),
        endpoint=endpoint, value=value,
    )  # fmt: skip
    return Tables(
        activity, workers_of(processes), endpoints, requests, subrequests, done, whole, tids
    )


def found_subs(tables: Tables, subrequests: Subrequests) -> dict[str, str]:
    """Return what a drawing says of sub-requests: ``1 own certain``."""
    found = {}
    for name, request, how, sure in zip(
        tables.names, subrequests.request, subrequests.how, subrequests.attribution, strict=True
    ):
        words = (
            tables.numbers[request],
            Rule(how).name.lower().replace("_", "-"),
            Certainty(sure).name.lower(),
        )
        found[name] = " ".join(words) if request >= 0 else "-"
    return found
