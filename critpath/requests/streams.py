"""Streams of HTTP/2 and gRPC: each of a connection is an endpoint of its own.

Where the heads of frames were recorded (``--labels-from bytes``) it is known which streams a send
or a receive was about.  Each that was asked for and answered to its end becomes a pair of
endpoints with one turn, so that all that holds for connections holds for them.  What a
connection says of itself (settings, windows, pings) is nobody's request.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from critpath.model import I64, Bool
from critpath.model.requests import NONE, Act, Activity, Collected, Endpoints, Frame, FrameFlag
from critpath.model.vectors import find_distinct
from critpath.records import dataclass
from critpath.requests.endpoints import EndpointColumn as Column

_MOVES: Final = (Act.ARRIVAL, Act.RECEIVE, Act.SEND)
_STREAMS: Final = 1 << 32  # technical: numbers of streams are smaller


@dataclass(frozen=True, eq=False)
class Streams:
    """What was collected, with an endpoint for each end of a stream behind the connections'.

    Attributes
    ----------
    collected : Collected
    endpoints : Endpoints
    connection : int64 [endpoints]
        The endpoint whose stream each is; itself for others.
    number : int64 [endpoints]
        Which request of its connection a stream is, from 1; 0 for no stream.
    guessed : bool [endpoints]
        Of which of several arrivals it came with is not known.
    incomplete : int64 [endpoints]
        Streams of each connection that were not seen from begin to end.
    """

    collected: Collected
    endpoints: Endpoints
    connection: I64
    number: I64
    guessed: Bool
    incomplete: I64

    @property
    def activity(self) -> Activity:
        """Return what happened."""
        return self.collected.activity


def split_streams(collected: Collected, endpoints: Endpoints) -> Streams:
    """Give each stream whose frames are known endpoints of its own."""
    of = np.arange(len(endpoints), dtype=np.int64)
    none = np.zeros(len(endpoints), np.int64)
    whole = Streams(collected, endpoints, of, none, none > 0, none)
    if not len(collected.frames):
        return whole
    nodes = _Nodes(collected, endpoints)
    return nodes.make_endpoints() if nodes.whole.any() else whole


class _Nodes:
    """Ends of streams, and what was sent and received of each."""

    def __init__(self, collected: Collected, endpoints: Endpoints) -> None:
        self._collected, self._endpoints = collected, endpoints
        acts = self._acts = collected.activity
        row = find_acts(acts, collected.endpoints, collected.frames)
        serves = endpoints.serves[acts.endpoint[np.maximum(row, 0)]]
        known = np.flatnonzero((row >= 0) & (serves >= 0))
        known = known[np.argsort(row[known], kind="stable")]
        self._frames, self._row = collected.frames[known], row[known]
        flags = self._frames[:, Frame.FLAGS]
        sent = (flags & FrameFlag.SENT) > 0
        self._asks = sent == (serves[known] == 0)
        of = acts.endpoint[self._row].astype(np.int64)
        keys = of * _STREAMS + self._frames[:, Frame.STREAM]
        self._keys, self._node = np.unique(keys, return_inverse=True)
        self._node = self._node.reshape(-1)
        over = (flags & (FrameFlag.END | FrameFlag.RESET)) > 0
        begins = self._asks & ((flags & FrameFlag.HEADERS) > 0)
        self._begin = self._find_first(begins)
        self._answer = self._find_first(~self._asks)
        self._end = self._find_first(~self._asks & over)
        # One whose begin was not seen has its first frames without headers.
        last = len(acts)
        self.whole = (self._begin < self._answer) & (self._end < last)
        self.whole &= self._begin == self._find_first(self._asks)

    def _find_first(self, which: Bool) -> I64:
        """Return the first act of each node, of some frames; behind the last one for none."""
        first = np.full(len(self._keys), len(self._acts), np.int64)
        np.minimum.at(first, self._node[which], self._row[which])
        return first

    def make_endpoints(self) -> Streams:
        """Return endpoints and what happened at them."""
        acts, many = self._acts, len(self._endpoints)
        of = self._keys // _STREAMS
        is_split = np.zeros(many, np.bool_)
        is_split[of[self.whole]] = True
        incomplete = np.bincount(of[~self.whole & is_split[of]], minlength=many)
        made = np.cumsum(self.whole) - 1  # the place of each node among those that are whole
        node, row, size = self._join_messages()
        received = acts.act[row] == Act.RECEIVE
        came, guessed = self._find_arrivals(node, row)
        first = np.ones(len(node), np.bool_)  # of several that came at once
        first[1:] = (node[1:] != node[:-1]) | (came[1:] != came[:-1])
        arrives = received & first & (came >= 0)
        moved = np.isin(acts.act, _MOVES) & (acts.endpoint >= 0)
        moved &= is_split[np.maximum(acts.endpoint, 0)]
        kept = np.flatnonzero(~moved)
        source = np.concatenate([kept, came[arrives], row])
        endpoint = np.concatenate(
            [acts.endpoint[kept], many + made[node[arrives]], many + made[node]]
        )
        value = np.concatenate([acts.value[kept], acts.value[came[arrives]], size])
        order = np.lexsort((endpoint, source))
        activity = replace(
            acts.take(source[order]),
            endpoint=endpoint[order].astype(np.int32),
            value=value[order],
        )
        connection = np.concatenate([np.arange(many), of[self.whole]])
        number = np.zeros(len(connection), np.int64)
        number[many:] = (self._keys[self.whole] % _STREAMS + 1) // 2
        ends = self._endpoints.take(connection)
        peer = ends.peer.copy()
        peer[many:] = self._find_peers(made)
        unsure = np.zeros(len(connection), np.bool_)
        unsure[many:] = guessed[self.whole]
        return Streams(
            self._rename(activity, connection, made),
            replace(ends, peer=peer),
            *(connection, number, unsure),
            np.append(incomplete, np.zeros(len(connection) - many, np.int64)),
        )

    def _join_messages(self) -> tuple[I64, I64, I64]:
        """Return what belongs to the turn of each whole stream: its node, act and bytes.

        What is asked after the answer began, and sent after its end, belongs to none.
        """
        node, row = self._node, self._row
        keep = np.where(self._asks, row < self._answer[node], row <= self._end[node])
        keep &= self.whole[node]
        node, row = node[keep], row[keep]
        pairs, at = np.unique(node * (len(self._acts) + 1) + row, return_inverse=True)
        size = np.bincount(at.reshape(-1), weights=self._frames[keep, Frame.SIZE])
        return (*np.divmod(pairs, len(self._acts) + 1), size.astype(np.int64))

    def _find_arrivals(self, node: I64, row: I64) -> tuple[I64, Bool]:
        """Return the arrival that each receive is of, -1 for none; of which nodes it is guessed.

        It is that which the peer's send of the stream had inside it, where the peer is here.
        """
        acts, span = self._acts, len(self._acts) + 1
        endpoint = acts.endpoint.astype(np.int64)

        def list_keys(act: Act) -> I64:
            rows = np.flatnonzero((acts.act == act) & (acts.endpoint >= 0))
            return np.sort(endpoint[rows] * span + rows)

        arrivals, receives, sends = map(list_keys, (Act.ARRIVAL, Act.RECEIVE, Act.SEND))
        base = endpoint[row] * span
        since = _find_last(receives, base, base + row - 1)
        # What a stream began with did not arrive before its sender sent it.
        begins = np.flatnonzero((row == self._begin[node]) & (acts.act[row] == Act.RECEIVE))
        peer = self._endpoints.peer[endpoint[row[begins]]].astype(np.int64)
        sender = self._find_nodes(peer * _STREAMS + self._keys[node[begins]] % _STREAMS)
        known = (peer >= 0) & (sender >= 0)
        known[known] = self._begin[sender[known]] < len(acts)
        told, peer, sent = begins[known], peer[known], self._begin[sender[known]]
        earlier = _find_last(sends, peer * span, peer * span + sent - 1)
        since[told] = np.maximum(since[told], earlier)
        first = np.searchsorted(arrivals, base + np.maximum(since, 0), side="right")
        until = np.searchsorted(arrivals, base + row, side="right")
        at = np.where(first < until, first, until - 1)
        found = np.append(arrivals, 0)[at]
        came = np.where((at >= 0) & (found >= base), found - base, NONE)
        guessed = np.zeros(len(self._keys), np.bool_)
        guessed[node[begins[(until - first)[begins] > 1]]] = True
        guessed[node[told]] = False
        inside = _find_last(arrivals, base[told], base[told] + sent)
        right = (inside > earlier) & (acts.tid[np.maximum(inside, 0)] == acts.tid[sent])
        came[told[right]] = inside[right]
        return came, guessed

    def _find_nodes(self, keys: I64) -> I64:
        """Return the node of each endpoint and stream, -1 for none."""
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, at, NONE)

    def _find_peers(self, made: I64) -> I64:
        """Return the other end of each whole stream, -1 where that is not known whole."""
        keys = self._keys[self.whole]
        peer = self._endpoints.peer[keys // _STREAMS].astype(np.int64)
        other = self._find_nodes(peer * _STREAMS + keys % _STREAMS)
        there = (peer >= 0) & (other >= 0) & self.whole[np.maximum(other, 0)]
        return np.where(there, len(self._endpoints) + made[np.maximum(other, 0)], NONE)

    def _rename(self, activity: Activity, connection: I64, made: I64) -> Collected:
        """Return what was collected, each stream with a socket that no event has, and its label."""
        collected, many = self._collected, len(self._endpoints)
        table = collected.endpoints[connection]
        table[many:, Column.SOCKET] = -1 - np.arange(len(table) - many)
        head = (self._frames[:, Frame.FLAGS] & FrameFlag.HEADERS) > 0
        head &= self._asks & self.whole[self._node] & (self._row == self._begin[self._node])
        rows = np.flatnonzero(head)
        _, first = np.unique(self._node[rows], return_index=True)
        rows = rows[np.sort(first)]
        rest = self._frames[rows][:, [Frame.HIGH, Frame.LOW, Frame.LABEL]].tolist()
        acts = self._row[rows]
        when, host = (c[acts].tolist() for c in (self._acts.time_ns, self._acts.host))
        places = made[self._node[rows]].tolist()
        messages = [
            (time, of, -1 - place, high, low, collected.called[label])
            for time, of, place, (high, low, label) in zip(when, host, places, rest, strict=True)
        ]
        return replace(
            collected,
            activity=activity,
            endpoints=table,
            messages=[*collected.messages, *messages],
        )


def find_acts(activity: Activity, table: I64, frames: I64) -> I64:
    """Return the send or receive that each frame was in, -1 for none.

    Both have the same time but for what passes between two probes of one event.
    """
    columns = [Column.SOCKET, Column.HOST], [Frame.SOCKET, Frame.HOST]
    sockets = np.concatenate([table[:, columns[0]], frames[:, columns[1]]])
    code = find_distinct(sockets)[1]
    of_endpoint, of_frame = code[: len(table)], code[len(table) :]
    moves = np.isin(activity.act, (Act.RECEIVE, Act.SEND)) & (activity.endpoint >= 0)
    rows = np.flatnonzero(moves)
    way = 2 * of_endpoint[activity.endpoint[rows]] + (activity.act[rows] == Act.SEND)
    order = np.lexsort((activity.time_ns[rows], way))
    rows, way = rows[order], way[order]
    found = np.full(len(frames), NONE, np.int64)
    if not len(rows):
        return found
    mine = 2 * of_frame + ((frames[:, Frame.FLAGS] & FrameFlag.SENT) > 0)
    time, wanted = activity.time_ns[rows], frames[:, Frame.TIME]
    # Ranks keep both in one number, whatever the times are.
    times = np.unique(time)
    keys = way * (len(times) + 1) + np.searchsorted(times, time)
    at = np.searchsorted(keys, mine * (len(times) + 1) + np.searchsorted(times, wanted))
    nearest = np.full(len(frames), np.iinfo(np.int64).max)
    for place in (at - 1, at):
        there = np.clip(place, 0, len(rows) - 1)
        fits = (place == there) & (way[there] == mine)
        fits &= activity.value[rows[there]] == frames[:, Frame.LENGTH]
        away = np.abs(time[there] - wanted)
        better = fits & (away < nearest)
        nearest[better], found[better] = away[better], rows[there[better]]
    return found


def _find_last(keys: I64, base: I64, most: I64) -> I64:
    """Return the last of sorted keys up to some, less a base; -1 where it is below that."""
    if not len(keys):
        return np.full(len(base), NONE, np.int64)
    at = np.searchsorted(keys, most, side="right") - 1
    found = keys[np.maximum(at, 0)]
    return np.where((at >= 0) & (found >= base), found - base, NONE)
