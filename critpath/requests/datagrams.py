"""Datagrams of UDP: to whom each goes, and what answers it.

A server's socket has many peers, and no event tells them.  But a send to this machine has the
arrival that it causes inside it, and so names both ends: each peer is a connection of its own
then.  Where the peer is elsewhere, each datagram is one; whose an answer is follows from which
are not answered yet and who received them, and is in doubt where several could be meant.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from critpath.model import I64, Bool
from critpath.model.requests import NONE, Act, Activity, Collected
from critpath.requests.endpoints import UDP, Dumped, read_dumped
from critpath.requests.endpoints import EndpointColumn as Column

_RECEIVED, _SENT = 1, 2  # technical: first, of `Column.FIRST`
# technical: datagrams of a socket without an answer; the oldest is given up
_MOST_OPEN: Final = 256
_NEAR: Final = slice(Column.LOCAL_HIGH, Column.LOCAL_PORT + 1)
_FAR: Final = slice(Column.REMOTE_HIGH, Column.REMOTE_PORT + 1)


@dataclass
class _Datagram:
    """What a server's socket received: the endpoint that it becomes, who has it, from whom."""

    endpoint: int
    tid: int
    source: int


@dataclass
class _Socket:
    """A server's socket."""

    row: int
    arrived: deque[int] = field(default_factory=deque)  # rows of the activity, not received yet
    open: list[_Datagram] = field(default_factory=list)
    last: dict[int, _Datagram] = field(default_factory=dict)  # that each thread answered
    peers: dict[int, int] = field(default_factory=dict)  # the endpoint of each known peer


def split_datagrams(collected: Collected) -> tuple[Collected, Bool]:
    """Give each peer of a server's UDP socket an endpoint; each datagram where it is not known.

    Returns
    -------
    collected : Collected
    doubtful : bool [endpoints]
        Whether the answer may be another datagram's.
    """
    table = collected.endpoints
    udp = table[:, Column.PROTOCOL] == UDP
    if not udp.any():
        return collected, np.zeros(len(table), np.bool_)
    return _Splitter(collected, udp).split_all()


class _Splitter:
    def __init__(self, collected: Collected, udp: Bool) -> None:
        self._collected, self._udp = collected, udp
        self._table = collected.endpoints.copy()
        self._take_dump()
        self._connected = self._table[:, Column.REMOTE_PORT] > 0
        serves = udp & (self._table[:, Column.FIRST] == _RECEIVED) & ~self._connected
        self._sockets = {row: _Socket(row) for row in np.flatnonzero(serves).tolist()}
        self._endpoint = collected.activity.endpoint.copy()
        self._made: list[I64] = []
        self._doubtful: list[bool] = []

    def _take_dump(self) -> None:
        """Take the ends of sockets that were written down."""
        known: dict[tuple[int, int], Dumped] = {}
        for of in map(read_dumped, self._collected.dumped):
            if of.protocol == UDP and of.socket and of.local[2]:
                known.setdefault((of.host, of.socket), of)
        for row in np.flatnonzero(self._udp).tolist():
            host, socket = self._table[row, [Column.HOST, Column.SOCKET]].tolist()
            found = known.get((host, socket))
            if found is not None and not self._table[row, Column.LOCAL_PORT]:
                self._table[row, _NEAR], self._table[row, _FAR] = found.local, found.remote

    def split_all(self) -> tuple[Collected, Bool]:
        """Go through all that was received and sent, in order of time."""
        activity = self._collected.activity
        acts = (Act.ARRIVAL, Act.RECEIVE, Act.SEND)
        rows = np.flatnonzero(np.isin(activity.act, acts) & (activity.endpoint >= 0))
        columns = (activity.act, activity.host, activity.tid, activity.endpoint)
        steps = list(zip(rows.tolist(), *(c[rows].tolist() for c in columns), strict=True))
        source, target = self._find_peers(steps)
        for row, act, _, tid, endpoint in steps:
            of = self._sockets.get(endpoint)
            if of is None:
                continue
            if act == Act.ARRIVAL:
                of.arrived.append(row)
            elif act == Act.RECEIVE:
                self._receive(of, row, tid, source)
            else:
                self._answer(of, row, tid, target.get(row, NONE))
        # Nobody is at the other end of what is split.
        partner = self._table[:, Column.PARTNER]
        partner[np.isin(partner, sorted(self._sockets))] = NONE
        partner[sorted(self._sockets)] = NONE
        made = np.array(self._made, np.int64).reshape(-1, len(Column))
        doubtful = np.zeros(len(self._table) + len(made), np.bool_)
        doubtful[len(self._table) :] = self._doubtful
        split = Activity(
            *(activity.time_ns, activity.act, activity.tid, activity.host),
            *(self._endpoint, activity.value),
        )
        table = np.vstack([self._table, made])
        return replace(self._collected, activity=split, endpoints=table), doubtful

    def _find_peers(
        self, steps: list[tuple[int, int, int, int, int]]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return who sent what arrived, and where what was sent arrived; by row of the activity."""
        source: dict[int, int] = {}
        target: dict[int, int] = {}
        hand: dict[tuple[int, int], tuple[int, int]] = {}  # what a thread's send made arrive
        for row, act, host, tid, endpoint in steps:
            if act == Act.ARRIVAL:
                if tid > 0:
                    hand[host, tid] = row, endpoint
                continue
            arrival = hand.pop((host, tid), None)
            if act == Act.SEND and arrival is not None and self._udp[endpoint]:
                there, other = arrival
                if other != endpoint and self._udp[other]:
                    source[there], target[row] = endpoint, other
        return source, target

    def _make(self, of: _Socket, source: int) -> int:
        """Make an endpoint for a peer, or for one datagram."""
        row = self._table[of.row].copy()
        row[[Column.OPENING, Column.FIRST]] = 1, _RECEIVED
        row[[Column.PARTNER, Column.VOTES]] = source, int(source != NONE)
        if source != NONE and self._table[source, Column.LOCAL_PORT]:
            row[_FAR] = self._table[source, _NEAR]
            row[Column.KNOWN] = row[Column.LOCAL_PORT] > 0
        self._made.append(row)
        self._doubtful.append(False)
        return len(self._table) + len(self._made) - 1

    def _receive(self, of: _Socket, row: int, tid: int, source: dict[int, int]) -> None:
        arrival = of.arrived.popleft() if of.arrived else NONE
        peer = source.get(arrival, NONE)
        if peer == NONE:
            endpoint = self._make(of, NONE)
        else:
            if peer not in of.peers:
                of.peers[peer] = self._make(of, peer)
            endpoint = of.peers[peer]
        self._endpoint[row] = endpoint
        if arrival != NONE:
            self._endpoint[arrival] = endpoint
        of.open.append(_Datagram(endpoint, tid, peer))
        del of.open[:-_MOST_OPEN]

    def _answer(self, of: _Socket, row: int, tid: int, peer: int) -> None:
        """Find what a send answers: more of the same, where nothing else can be meant."""
        open_ones = [one for one in of.open if one.source == peer]
        chosen: _Datagram | None = None
        if peer != NONE:
            self._endpoint[row] = of.peers.get(peer, of.row)
            chosen = open_ones[0] if open_ones else None
        elif open_ones:
            mine = [one for one in open_ones if one.tid == tid]
            chosen = (mine or open_ones)[0]
            if len(mine or open_ones) > 1:
                self._doubtful[chosen.endpoint - len(self._table)] = True
            self._endpoint[row] = chosen.endpoint
        elif tid in of.last:
            self._endpoint[row] = of.last[tid].endpoint
        if chosen is not None:
            of.open.remove(chosen)
            of.last[tid] = chosen
