"""Messages between hosts: the bytes that one end of a connection sent and the other received.

A byte keeps its position in the stream whatever becomes of segments, so no header is needed,
and retransmissions do not matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

import numpy as np

from critpath.model import I64, Bool
from critpath.model.clocks import Crossings, join_crossings
from critpath.model.requests import Act, Activity, Endpoints

NEVER: Final = np.iinfo(np.int64).min
_TRIED: Final = 400  # receives by which two ends are put together
_AGREE: Final = 0.8  # of them have to agree on a shift
_RIVAL: Final = 0.6  # and no other may have so much of its support


@dataclass(frozen=True, eq=False)
class HostSockets:
    """What one host's threads did with sockets.

    Attributes
    ----------
    activity : Activity
    endpoints : Endpoints
    stream : bool [endpoints]
        Of TCP.
    lossy : sequence of (int, int)
        When something was lost (ns).
    """

    activity: Activity
    endpoints: Endpoints
    stream: Bool
    lossy: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, eq=False)
class HostPackets:
    """The packets that one host sent and received, where a trace has their headers.

    Attributes
    ----------
    times : int64 [n]
    received : bool [n]
    headers : int64 [n, fields]
        What a packet keeps on its way.
    """

    times: I64
    received: Bool
    headers: I64


def pair_packets(hosts: Sequence[HostPackets]) -> Mapping[tuple[int, int], Crossings]:
    """Pair packets between hosts: a packet sent again has the same headers, and is the first."""
    sent: dict[tuple[int, ...], tuple[int, int]] = {}
    for place, of in enumerate(hosts):
        rows = np.flatnonzero(~of.received)
        for key, time in zip(of.headers[rows].tolist(), of.times[rows].tolist(), strict=True):
            sent.setdefault(tuple(key), (place, time))
    found: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for place, of in enumerate(hosts):
        rows = np.flatnonzero(of.received)
        for key, time in zip(of.headers[rows].tolist(), of.times[rows].tolist(), strict=True):
            sender, left = sent.get(tuple(key), (place, 0))
            if sender != place:
                found[sender, place].append((left, time))
                del sent[tuple(key)]
    return {
        pair: Crossings(*np.ascontiguousarray(np.array(rows, np.int64).T))
        for pair, rows in found.items()
    }


@dataclass(frozen=True)
class JoinedAccount:
    """What became of the connections between hosts.

    Attributes
    ----------
    joined : int
        Connections whose two ends were found.
    unmatched : int
        Directions of them whose bytes could not be put together.
    lost : int
        Connections that were open while something was lost: they tell nothing.
    """

    joined: int = 0
    unmatched: int = 0
    lost: int = 0


@dataclass(frozen=True, eq=False)
class _Stream:
    """One direction at one end: what was sent or received, in order."""

    ends: I64  # bytes so far, with this operation
    times: I64  # earliest of a send, latest of a receive
    whole: bool  # the count begins where the connection does


class _Operations:
    """Sends and receives of one host by endpoint, each with its bound in time."""

    def __init__(self, of: HostSockets) -> None:
        activity = of.activity
        act, endpoint = activity.act, activity.endpoint.astype(np.int64)
        self._opened = np.unique(endpoint[act == Act.OPEN])
        bound = activity.time_ns.copy()
        sends, receives = act == Act.SEND, act == Act.RECEIVE
        bound[sends] = self._earliest(activity, lossy=bool(of.lossy))[sends]
        if not of.lossy:
            late = self._latest(activity)
            known = receives & (late != NEVER)
            bound[known] = late[known]
        self._parts = {}
        for act_of, mask in ((Act.SEND, sends), (Act.RECEIVE, receives)):
            rows = np.flatnonzero(mask)
            rows = rows[np.argsort(endpoint[rows], kind="stable")]
            places, starts = np.unique(endpoint[rows], return_index=True)
            parts = np.split(rows, starts[1:]) if len(places) else []
            self._parts[act_of] = dict(zip(places.tolist(), parts, strict=True))
        self._bytes, self._bound = activity.value, bound

    def stream(self, endpoint: int, act: Act) -> _Stream:
        rows = self._parts[act].get(endpoint, np.zeros(0, np.int64))
        whole = bool(np.isin(endpoint, self._opened))
        return _Stream(np.cumsum(self._bytes[rows]), self._bound[rows], whole)

    @staticmethod
    def _earliest(activity: Activity, *, lossy: bool) -> I64:
        """Return for each row before when its thread cannot have begun to send.

        When its first packet left since it last sent or received, else when it did that.  The
        thread may have slept or been preempted within the call: switches tell nothing.
        """
        wanted = (activity.act == Act.SEND) | (activity.act == Act.RECEIVE)
        if not lossy:
            wanted |= activity.act == Act.LEAVE
        rows = np.flatnonzero(wanted & (activity.tid > 0))
        key = (activity.host[rows].astype(np.int64) << 32) | activity.tid[rows].astype(np.int64)
        order = np.argsort(key, kind="stable")
        rows, key = rows[order], key[order]
        result = np.full(len(activity), NEVER)
        follows = np.flatnonzero(key[1:] == key[:-1])
        result[rows[follows + 1]] = activity.time_ns[rows[follows]]
        return result

    @staticmethod
    def _latest(activity: Activity) -> I64:
        """Return for each row when data last arrived at its endpoint, by then.

        What a receive returns was all there when the kernel last said so.
        """
        rows = np.flatnonzero(activity.endpoint >= 0)
        rows = rows[np.argsort(activity.endpoint[rows], kind="stable")]
        arrivals = np.where(activity.act[rows] == Act.ARRIVAL, np.arange(len(rows)), -1)
        last = np.maximum.accumulate(arrivals) if len(rows) else arrivals
        found = last >= 0
        found[found] = (
            activity.endpoint[rows[last[found]]] == activity.endpoint[rows[found.nonzero()[0]]]
        )
        result = np.full(len(activity), NEVER)
        result[rows[found]] = activity.time_ns[rows[last[found]]]
        return result


def find_crossings(
    hosts: Sequence[HostSockets],
) -> tuple[Mapping[tuple[int, int], Crossings], JoinedAccount]:
    """Find what hosts sent each other over TCP.

    Parameters
    ----------
    hosts : sequence of HostSockets

    Returns
    -------
    crossings : mapping of (int, int) to Crossings
        By the positions of sender and receiver.
    account : JoinedAccount
    """
    operations = [_Operations(of) for of in hosts]
    found: dict[tuple[int, int], list[Crossings]] = defaultdict(list)
    joined = unmatched = lost = 0
    for ends in _join_ends(hosts):
        joined += 1
        if any(_lost(hosts, end) for end in ends):
            lost += 1
            continue
        (a, one), (b, other) = ends
        for sender, source, receiver, target in ((a, one, b, other), (b, other, a, one)):
            sent = operations[sender].stream(source, Act.SEND)
            got = operations[receiver].stream(target, Act.RECEIVE)
            if not len(sent.ends) or not len(got.ends):
                continue
            crossed = _match(sent, got)
            if crossed is None:
                unmatched += 1
            else:
                found[sender, receiver].append(crossed)
    return {pair: join_crossings(parts) for pair, parts in found.items()}, JoinedAccount(
        joined, unmatched, lost
    )


def _join_ends(
    hosts: Sequence[HostSockets],
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the two ends (host, endpoint) of each connection between two hosts.

    Where addresses and ports were used again the first is the first, if both ends count as many.
    """
    ends: dict[tuple[object, ...], list[tuple[int, int]]] = defaultdict(list)
    for place, of in enumerate(hosts):
        table, texts = of.endpoints, of.endpoints.strings
        usable = of.stream & (table.peer < 0) & (table.local_port > 0) & (table.remote_port > 0)
        rows = np.flatnonzero(usable)
        for at in rows[np.argsort(table.opened_ns[rows], kind="stable")].tolist():
            near, far = texts[table.local_address[at]], texts[table.remote_address[at]]
            if not near or not far or _is_loopback(near) or _is_loopback(far):
                continue
            near_end = (near, int(table.local_port[at]))
            far_end = (far, int(table.remote_port[at]))
            ends[near_end, far_end].append((place, at))
    found = []
    for (here, there), mine in ends.items():
        theirs = ends.get((there, here), [])
        if repr(here) > repr(there) or len(mine) != len(theirs):
            continue
        for one, other in zip(mine, theirs, strict=True):
            if one[0] != other[0]:
                found.append((one, other))
    return found


def _is_loopback(address: str) -> bool:
    return ip_address(address).is_loopback


def _lost(hosts: Sequence[HostSockets], end: tuple[int, int]) -> bool:
    """Return whether something was lost on a host while a connection was open."""
    of, at = hosts[end[0]], end[1]
    begin, close = int(of.endpoints.opened_ns[at]), int(of.endpoints.closed_ns[at])
    return any(low <= close and begin <= high for low, high in of.lossy)


def _match(sent: _Stream, got: _Stream) -> Crossings | None:
    """Return each receive with the send of its last byte; None where that is not known."""
    shift = 0
    if not (sent.whole and got.whole):
        found = _find_shift(sent.ends, got.ends)
        if found is None:
            return None
        shift = found
    ends = got.ends + shift
    if sent.whole and got.whole and ends[-1] > sent.ends[-1]:
        return None  # sends are missing
    of = np.searchsorted(sent.ends, ends)
    known = (of < len(sent.ends)) & (ends > 0)
    left = sent.times[np.minimum(of, len(sent.ends) - 1)]
    known &= (left != NEVER) & (got.times != NEVER)
    return Crossings(left[known], got.times[known])


def _find_shift(sent: I64, got: I64) -> int | None:
    """Return what to add to positions of receives so that most end where a send does.

    None where several do as well: of messages of one size it is unknown which is which.
    """
    tried = got[: min(len(got), _TRIED)]
    near = sent[: min(len(sent), 2 * _TRIED)]
    shifts, counts = np.unique((near[:, None] - tried[None, :]).ravel(), return_counts=True)
    if len(tried) < 4 or not len(shifts):
        return None
    order = np.argsort(counts)[::-1]
    best = int(counts[order[0]])
    rival = int(counts[order[1]]) if len(order) > 1 else 0
    if best < _AGREE * len(tried) or rival > _RIVAL * best:
        return None
    return int(shifts[order[0]])
