"""The truth of a recorded set, and how much of it was found.

A path's events are exchanges: nginx's request of the application, and what that asked. Precision is
the share of what was found that is right, recall the share of what is true that was found, each the
mean over requests.
"""

from __future__ import annotations

import bisect
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from shop import PORTS

from critpath.requests.find import FoundRequests

_NEAR = 100_000  # ns that a begin or an end may be off


@dataclass(frozen=True)
class Exchange:
    """What somebody asked for a request, from which port, of which one."""

    request: int
    port: int
    of: int
    begin: int
    end: int


def read_truth(recorded: Path) -> tuple[list[Exchange], list[Exchange]]:
    """Return what the client asked, and what the servers did."""
    rows = (line.split() for line in (recorded / "client").read_text().splitlines())
    asked = [Exchange(int(r[0]), int(r[1]), PORTS["web"], int(r[2]), int(r[3])) for r in rows]
    known = {one.request for one in asked}
    calls = []
    for line in (recorded / "truth").read_text().splitlines():
        what, request, _, port, begin, end, *of = line.split()
        if int(request) in known:
            to = PORTS["app"] if what == "begin" else PORTS[of[0]]
            # A handler that others interrupt notes its end long after its answer, when the next
            # request may be on the connection: only its begin is surely within its own.
            last = int(begin) + 1 if what == "begin" else int(end)
            calls.append(Exchange(int(request), int(port), to, int(begin), last))
    return asked, calls


def split_at_end(
    calls: Iterable[Exchange], ended: int
) -> tuple[list[Exchange], list[Exchange], list[Exchange]]:
    """Return the calls within a recording, those that its end cuts, and those begun after it."""
    within: list[Exchange] = []
    cut: list[Exchange] = []
    later: list[Exchange] = []
    for one in calls:
        (within if one.end <= ended else cut if one.begin <= ended else later).append(one)
    return within, cut, later


class _Rows:
    """Rows of a table by ports, to find the one of a moment."""

    def __init__(self, ports: Iterable[tuple[int, int]], begin: object, end: object) -> None:
        self._of: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        for row, (pair, first, last) in enumerate(
            zip(ports, begin.tolist(), end.tolist(), strict=True)
        ):
            self._of[pair].append((first, last, row))
        for each in self._of.values():
            each.sort()

    def match(self, one: Exchange) -> int:
        """Return the row with its ports that overlaps it most, -1 if none does."""
        best, most = -1, 0
        of = self._of.get((one.port, one.of), [])
        last = bisect.bisect_right(of, (one.end + _NEAR,))
        for begin, end, row in of[max(0, last - 4) : last]:
            overlap = min(end, one.end) - max(begin, one.begin)
            if overlap > most:
                best, most = row, overlap
        return best


@dataclass
class Score:
    """How much was found.

    Attributes
    ----------
    precision, recall : list of float
        Of each request, in order of their begin.
    links : list of (float, bool)
        How probable each link was called, and whether it is right.
    sure : list of float
        How probable it was called that all of a request is right.
    missing : int
        True exchanges that no table has.
    later : int
        Those that began after the recording's end: a server that answers first works on after the
        client, with which the recording ends.  They are no part of the truth.
    cut : int
        Those that began before its end and ended after.  No table may have them whole, so they
        are no part of the truth either; there are at most as many as are under way at once.
    """

    precision: list[float] = field(default_factory=list)
    recall: list[float] = field(default_factory=list)
    links: list[tuple[float, bool]] = field(default_factory=list)
    sure: list[float] = field(default_factory=list)
    missing: int = 0
    later: int = 0
    cut: int = 0

    @property
    def mean(self) -> tuple[float, float]:
        """Return mean precision and recall."""
        return float(np.mean(self.precision)), float(np.mean(self.recall))

    @property
    def whole(self) -> float:
        """Return the share of requests that are wholly right."""
        return float(np.mean([p == r == 1 for p, r in self._pairs()]))

    @property
    def cascade(self) -> float:
        """Return by how much recall differs between the first and the last tenth."""
        tenth = max(1, len(self.recall) // 10)
        return abs(float(np.mean(self.recall[:tenth]) - np.mean(self.recall[-tenth:])))

    def _pairs(self) -> Iterator[tuple[float, float]]:
        return zip(self.precision, self.recall, strict=True)


def judge(recorded: Path, found: FoundRequests) -> Score:
    """Compare what was found in a recorded set with its truth."""
    asked, calls = read_truth(recorded)
    subs = found.subrequests
    at, served = _match_rows(found)
    request_of = np.full(len(subs), -1, np.int64)  # the truth
    ended = json.loads((recorded / "recording/critpath.json").read_text())["end"]
    calls, cut, later = split_at_end(calls, ended)
    score = Score(cut=len(cut), later=len(later))
    true: dict[int, set[int]] = {one.request: set() for one in asked}
    for one in calls:
        row = at.match(one)
        score.missing += row < 0
        true[one.request].add(row if row >= 0 else -2 - len(true[one.request]))
        if row >= 0:
            request_of[row] = one.request
    children: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero((subs.request >= 0) & (request_of >= 0)).tolist():
        children[int(subs.request[row])].append(row)
    for one in sorted(asked, key=lambda each: each.begin):
        root = served.match(one)
        tree, todo = [], [root]
        while todo:
            for row in children.get(todo.pop(), ()):
                tree.append(row)
                if subs.child[row] >= 0:
                    todo.append(int(subs.child[row]))
        right = sum(row in true[one.request] for row in tree)
        score.precision.append(right / len(tree) if tree else 1.0)
        score.recall.append(right / len(true[one.request]) if true[one.request] else 1.0)
        score.sure.append(float(np.prod(subs.probability[tree])) if tree else 0.0)
    _judge_links(found, calls, at, served, asked, score)
    return score


def _match_rows(found: FoundRequests) -> tuple[_Rows, _Rows]:
    """Return the rows of what was asked, and of what was served."""
    ends, subs, table = found.endpoints, found.subrequests, found.requests
    local, remote = ends.local_port[subs.endpoint], ends.remote_port[subs.endpoint]
    pairs = zip(local.tolist(), remote.tolist(), strict=True)
    at = _Rows(
        ((a, b) if c == 0 else (-1, b) for (a, b), c in zip(pairs, subs.connects, strict=True)),
        *(subs.begin_ns, subs.end_ns),
    )
    server = ends.remote_port[table.endpoint], ends.local_port[table.endpoint]
    served = zip(*(column.tolist() for column in server), strict=True)
    return at, _Rows(served, table.begin_ns, table.end_ns)


def _judge_links(
    found: FoundRequests,
    calls: list[Exchange],
    at: _Rows,
    served: _Rows,
    asked: list[Exchange],
    score: Score,
) -> None:
    """Note of each link how sure it was called, and whether it is right."""
    probability = found.subrequests.probability
    for row, should in _parents(calls, at, served, asked):
        parent = int(found.subrequests.request[row])
        if parent >= 0:
            score.links.append((float(probability[row]), parent == should))


def _parents(
    calls: list[Exchange], at: _Rows, served: _Rows, asked: list[Exchange]
) -> Iterator[tuple[int, int]]:
    """Yield the row of each call, and the request that it is of in truth; -1: in no table."""
    roots = {one.request: served.match(one) for one in asked}
    inner = {one.request: served.match(one) for one in calls if one.of == PORTS["app"]}
    for one in calls:
        row = at.match(one)
        if row >= 0:
            yield row, roots[one.request] if one.of == PORTS["app"] else inner.get(one.request, -1)


def find_parents(recorded: Path, found: FoundRequests) -> dict[int, int]:
    """Return of the sub-requests that have a truth the row of the request that it is."""
    asked, calls = read_truth(recorded)
    return dict(_parents(calls, *_match_rows(found), asked))
