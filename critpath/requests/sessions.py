"""Which socket a session of TLS is of, and so which receive or send its messages were in.

Where a library of TLS was asked (``--labels-from bytes,tls``), it is known when a session's bytes
were read or written in clear, and by which thread, not which socket had them.  What a thread reads
it has received just before; what it writes it sends next.  A session has one socket, and a
socket one: those are matched of which its messages say the most, those the most whose sizes fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from critpath.model import F64, I64, Bool
from critpath.model.requests import NONE, Act, Activity, Collected, Frame, FrameFlag
from critpath.model.vectors import find_distinct
from critpath.requests.endpoints import UNIX
from critpath.requests.endpoints import EndpointColumn as Column
from critpath.schema.parameters.requests import SESSIONS

_HOSTS: Final = 1 << 32  # technical: numbers of threads are smaller


def place_sessions(collected: Collected) -> Collected:
    """Say of messages of sessions what is said of others: their socket, when and how many bytes."""
    hidden = (collected.frames[:, Frame.FLAGS] & FrameFlag.SESSION) > 0
    if not hidden.any():
        return collected
    frames = collected.frames[hidden]
    usual = collected.endpoints[:, Column.FAMILY] != UNIX  # over which nobody encrypts
    found = _find_acts(collected.activity, usual, frames)
    frames, found = frames[found >= 0], found[found >= 0]
    acts, sockets = collected.activity, collected.endpoints[:, Column.SOCKET]
    frames[:, Frame.TIME] = acts.time_ns[found]
    frames[:, Frame.LENGTH] = acts.value[found]
    frames[:, Frame.SOCKET] = sockets[acts.endpoint[found]]
    frames[:, Frame.FLAGS] &= ~int(FrameFlag.SESSION)
    streams = frames[:, Frame.STREAM] > 0
    columns = [Frame.TIME, Frame.HOST, Frame.SOCKET, Frame.HIGH, Frame.LOW, Frame.LABEL]
    messages = [
        (when, host, socket, high, low, collected.called[label])
        for when, host, socket, high, low, label in frames[~streams][:, columns].tolist()
    ]
    return replace(
        collected,
        messages=sorted([*collected.messages, *messages], key=lambda row: row[0]),
        frames=np.concatenate([collected.frames[~hidden], frames[streams]]),
    )


class _Moves:
    """Receives or sends, in order of time of whom they are of."""

    def __init__(self, rows: I64, of: I64, time: I64) -> None:
        order = np.lexsort((time, of))
        self.rows, self._of, self._time = rows[order], of[order], time[order]

    def find(self, of: I64, time: I64, *, sent: Bool, further: int = 0) -> I64:
        """Return the last until some times, or the first from then on; NONE for none."""
        if not len(self.rows):
            return np.full(len(of), NONE, np.int64)
        both = np.concatenate([self._time, time])
        times, rank = np.unique(both, return_inverse=True)
        rank = rank.reshape(-1)
        keys = self._of * len(times) + rank[: len(self._time)]
        wanted = of * len(times) + rank[len(self._time) :]
        after = np.searchsorted(keys, wanted) + further
        before = np.searchsorted(keys, wanted, side="right") - 1 - further
        at = np.where(sent, after, before)
        there = np.clip(at, 0, len(keys) - 1)
        return np.where((at == there) & (self._of[there] == of), self.rows[there], NONE)


def _find_acts(acts: Activity, usual: Bool, frames: I64) -> I64:
    """Return the receive or send that each message was in, NONE where that is not known."""
    sent = (frames[:, Frame.FLAGS] & FrameFlag.SENT) > 0
    endpoint = acts.endpoint.astype(np.int64)
    thread = _code(acts.host.astype(np.int64), acts.tid.astype(np.int64))
    session = find_distinct(frames[:, [Frame.HOST, Frame.SOCKET]])[1]
    ways = [
        (
            np.flatnonzero((acts.act == way) & (endpoint >= 0) & usual[endpoint]),
            np.flatnonzero(which),
        )
        for way, which in ((Act.RECEIVE, ~sent), (Act.SEND, sent))
    ]
    found = []
    for rows, mine in ways:
        moves = _Moves(rows, thread[rows], acts.time_ns[rows])
        for row, act, weight in _weigh_nearest(acts, moves, frames[mine]):
            found.append(np.stack([session[mine[row]], endpoint[act], weight]))
    place = _match(np.concatenate(found, axis=1), len(session))[session]
    result = np.full(len(frames), NONE, np.int64)
    for rows, mine in ways:
        moves = _Moves(rows, endpoint[rows], acts.time_ns[rows])
        some = mine[place[mine] >= 0]
        result[some] = moves.find(place[some], frames[some, Frame.TIME], sent=sent[some])
    return result


def _weigh_nearest(acts: Activity, moves: _Moves, frames: I64) -> Iterator[tuple[I64, I64, F64]]:
    """Yield messages, a receive or send of the thread of each, and how much that says."""
    threads = _code(frames[:, Frame.HOST], frames[:, Frame.TID])
    sent = (frames[:, Frame.FLAGS] & FrameFlag.SENT) > 0
    for further in range(SESSIONS.nearest):
        found = moves.find(threads, frames[:, Frame.TIME], sent=sent, further=further)
        known = np.flatnonzero(found >= 0)
        more = acts.value[found[known]] - frames[known, Frame.LENGTH]
        fits = (more >= SESSIONS.least) & (more <= SESSIONS.most)
        yield known, found[known], np.where(fits, 1.0, SESSIONS.unfit) / (1 + further)


def _code(host: I64, tid: I64) -> I64:
    return host * _HOSTS + tid


def _match(found: F64, sessions: int) -> I64:
    """Return the endpoint of each session: no two have one, and what says the most goes first.

    `found`: rows of session, endpoint and weight; NONE where two say as much.
    """
    place = np.full(sessions, NONE, np.int64)
    session, endpoint = found[:2].astype(np.int64)
    many = int(endpoint.max(initial=0)) + 1
    pairs, at = np.unique(session * many + endpoint, return_inverse=True)
    of, which = np.divmod(pairs, many)
    weight: F64 = np.round(np.bincount(at.reshape(-1), weights=found[2], minlength=len(of)), 6)
    while len(of):
        best = _is_largest(weight, of) & _is_largest(weight, which)
        if not best.any():
            break
        place[of[best]] = which[best]
        left = ~np.isin(of, of[best]) & ~np.isin(which, which[best])
        of, which, weight = of[left], which[left], weight[left]
    return place


def _is_largest(weight: F64, of: I64) -> Bool:
    """Return which weights are the largest of those of one, alone."""
    most = np.zeros(int(of.max()) + 1)
    np.maximum.at(most, of, weight)
    largest: Bool = weight == most[of]
    alone: Bool = np.bincount(of[largest], minlength=len(most))[of] == 1
    return largest & alone
