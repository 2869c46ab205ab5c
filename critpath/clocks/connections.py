"""Connections of several hosts: what each end did, and which two ends are one connection's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from itertools import groupby
from typing import Final

import numpy as np

from critpath.model import I64, Bool
from critpath.model.requests import Act, Activity, Certainty, Endpoints
from critpath.schema.parameters.clocks import CLOCKS

NEVER: Final = np.iinfo(np.int64).min
UNIX: Final = 1  # technical
_ACCEPTED: Final = 1  # technical


@dataclass(frozen=True, eq=False)
class HostSockets:
    """What one host's threads did with sockets.

    Attributes
    ----------
    activity : Activity
        Of this host, or of several.
    endpoints : Endpoints
    mine : bool [endpoints]
        Those of this host that say who their other end is, of streams or datagrams.
    lossy : sequence of (int, int)
        When something was lost (ns).
    host : int
        Its number in both tables.
    datagram : bool [endpoints] or None
        Of UDP; None for nowhere.
    """

    activity: Activity
    endpoints: Endpoints
    mine: Bool
    lossy: Sequence[tuple[int, int]] = ()
    host: int = 0
    datagram: Bool | None = None


@dataclass(frozen=True, eq=False)
class Stream:
    """One direction at one end: what was sent or received, in order.

    Attributes
    ----------
    ends, sizes : int64 [n]
        Bytes so far, with this operation; and its own.
    part : int64 [n]
        How many losses were before it; -1 within one.
    bound, times : int64 [n]
        Earliest of a send, latest of a receive (`NEVER` where not known); when it was done.
    tid : int64 [n]
    whole, closed : bool
        Whether the count begins where the connection does, and whether its end was seen.
    """

    ends: I64
    sizes: I64
    part: I64
    bound: I64
    times: I64
    tid: I64
    whole: bool
    closed: bool

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def begin(self) -> int:
        """The position of the first byte."""
        return int(self.ends[0] - self.sizes[0])

    def take(self, rows: Bool) -> Stream:
        """Return some of the operations."""
        return Stream(
            *(self.ends[rows], self.sizes[rows], self.part[rows], self.bound[rows]),
            *(self.times[rows], self.tid[rows], self.whole, self.closed),
        )


class HostOperations:
    """Sends and receives of one host by endpoint, each with its bound in time."""

    def __init__(self, of: HostSockets) -> None:
        every = of.activity
        mine = every.host == of.host
        self._time, self._act, self._tid = every.time_ns[mine], every.act[mine], every.tid[mine]
        self._endpoint, self._value = every.endpoint[mine].astype(np.int64), every.value[mine]
        # Without whatever may have been lost, what a thread did before tells less.
        self._bound = self._earliest(leaving=not of.lossy)
        if not of.lossy:
            late = self._latest()
            known = (self._act == Act.RECEIVE) & (late != NEVER)
            self._bound[known] = late[known]
        uses = np.isin(self._act, (Act.OPEN, Act.SEND, Act.RECEIVE, Act.CLOSE))
        rows = np.flatnonzero(uses & (self._endpoint >= 0))
        self._rows = rows[np.argsort(self._endpoint[rows], kind="stable")]
        self._of = self._endpoint[self._rows]
        moves = np.isin(self._act[self._rows], (Act.SEND, Act.RECEIVE))
        self.moved: I64 = np.unique(self._of[moves])
        self._lost = _join_ranges(of.lossy)
        # From when to when it was recorded for sure.
        self.begin = int(self._time.min()) if len(self._time) else 0
        self.end = int(self._time.max()) if len(self._time) else 0

    def rows(self, endpoint: int) -> I64:
        """Return what was done at an endpoint, in order of time."""
        first, last = np.searchsorted(self._of, [endpoint, endpoint + 1])
        found: I64 = self._rows[first:last]
        return found

    def stream(self, endpoint: int, act: Act) -> Stream:
        """Return what was sent, or received, at an endpoint."""
        rows = self.rows(endpoint)
        acts = self._act[rows]
        of = rows[acts == act]
        times = self._time[of]
        part = np.zeros(len(of), np.int64)
        if len(self._lost):
            part = np.searchsorted(self._lost[:, 0], times, "right")
            inside = (part > 0) & (times <= self._lost[part - 1, 1])
            part[inside] = -1
        bound = self._time[of].copy() if act == Act.RECEIVE else self._bound[of]
        if act == Act.RECEIVE:
            bound = np.where(self._bound[of] == NEVER, bound, self._bound[of])
        return Stream(
            *(np.cumsum(self._value[of]), self._value[of], part, bound, times),
            self._tid[of].astype(np.int64),
            bool((acts == Act.OPEN).any()),
            bool((acts == Act.CLOSE).any()),
        )

    def accepted(self, endpoint: int) -> bool:
        """Return whether a connection that was opened was accepted here."""
        rows = self.rows(endpoint)
        opened = rows[self._act[rows] == Act.OPEN]
        return bool(len(opened)) and int(self._value[opened[0]]) == _ACCEPTED

    def find_turns(self, endpoint: int) -> tuple[int, ...]:
        """Return the sizes of messages, what the connecting end says first positive.

        Nothing where the connection's begin was not recorded.
        """
        rows = self.rows(endpoint)
        opened = rows[self._act[rows] == Act.OPEN]
        if not len(opened):
            return ()
        asks = not self.accepted(endpoint)
        moves = rows[np.isin(self._act[rows], (Act.SEND, Act.RECEIVE))].tolist()
        turns = groupby(moves, lambda row: bool((self._act[row] == Act.SEND) == asks))
        sizes = (
            (1 if forth else -1) * sum(int(self._value[row]) for row in turn)
            for forth, turn in turns
        )
        return tuple(size for size, _ in zip(sizes, range(CLOCKS.turns[1]), strict=False))

    def _earliest(self, *, leaving: bool) -> I64:
        """Return for each row before when its thread cannot have begun to send.

        When its first packet left since it last sent or received, else when it did that.  The
        thread may have slept or been preempted within the call: switches tell nothing.
        """
        wanted = (self._act == Act.SEND) | (self._act == Act.RECEIVE)
        result = np.full(len(self._act), NEVER)
        receives = self._act == Act.RECEIVE
        if leaving:
            wanted |= self._act == Act.LEAVE
        rows = np.flatnonzero(wanted & (self._tid > 0))
        rows = rows[np.argsort(self._tid[rows], kind="stable")]
        follows = np.flatnonzero(self._tid[rows[1:]] == self._tid[rows[:-1]])
        result[rows[follows + 1]] = self._time[rows[follows]]
        result[receives] = NEVER
        return result

    def _latest(self) -> I64:
        """Return for each row when data last arrived at its endpoint, by then.

        What a receive returns was all there when the kernel last said so.
        """
        rows = np.flatnonzero(self._endpoint >= 0)
        rows = rows[np.argsort(self._endpoint[rows], kind="stable")]
        arrivals = np.where(self._act[rows] == Act.ARRIVAL, np.arange(len(rows)), -1)
        last = np.maximum.accumulate(arrivals) if len(rows) else arrivals
        found = last >= 0
        found[found] = self._endpoint[rows[last[found]]] == self._endpoint[rows[found]]
        result = np.full(len(self._act), NEVER)
        result[rows[found]] = self._time[rows[last[found]]]
        return result


def _join_ranges(lossy: Sequence[tuple[int, int]]) -> I64:
    """Return ranges of time in order, those that touch joined."""
    joined: list[list[int]] = []
    for begin, end in sorted(lossy):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    return np.array(joined, np.int64).reshape(-1, 2)


# Which ends are one connection's.


@dataclass(frozen=True)
class Connection:
    """The two ends (place of the host, endpoint) of a connection, and how sure that is."""

    one: tuple[int, int]
    other: tuple[int, int]
    sure: Certainty = Certainty.CERTAIN


@dataclass(frozen=True)
class JoinedEnds:
    """Connections whose two ends were found.

    Attributes
    ----------
    connections : list of Connection
    translated : int
        Those whose addresses differ at both ends, joined by the sizes of messages.
    doubtful : int
        Ends that may belong to several others: they are left out.
    """

    connections: list[Connection]
    translated: int
    doubtful: int


class _Ends:
    """Ends of connections between hosts, and what is asked of them."""

    def __init__(self, hosts: Sequence[HostSockets], operations: Sequence[HostOperations]) -> None:
        self.hosts, self.operations = hosts, operations
        self.doubtful = 0

    def opened(self, end: tuple[int, int]) -> int:
        return int(self.hosts[end[0]].endpoints.opened_ns[end[1]])

    def agree(self, one: tuple[int, int], other: tuple[int, int], *, exactly: bool) -> bool:
        """Return whether an end can have received what the other sent, both ways."""
        for (a, here), (b, there) in ((one, other), (other, one)):
            sent = self.operations[a].stream(here, Act.SEND)
            got = self.operations[b].stream(there, Act.RECEIVE)
            if not (sent.whole and got.whole and sent.closed and got.closed):
                continue
            if {*sent.part.tolist(), *got.part.tolist()} - {0}:
                continue  # something was lost
            wrote, read = (int(of.ends[-1]) if len(of) else 0 for of in (sent, got))
            if read > wrote or (exactly and read != wrote):
                return False
        return True

    def whole(self, end: tuple[int, int]) -> bool:
        return self.operations[end[0]].stream(end[1], Act.SEND).whole


def join_ends(hosts: Sequence[HostSockets], operations: Sequence[HostOperations]) -> JoinedEnds:
    """Return the connections whose two ends were recorded, within and between hosts.

    By addresses and ports; where these were used again, in the order in which bytes and times of
    begin agree; where addresses were translated, by the sizes of messages.
    """
    ends = _Ends(hosts, operations)
    found, by_key, datagrams = _sort_ends(hosts, operations)
    pairs: list[tuple[tuple[int, int], tuple[int, int]]] = []
    left: list[tuple[tuple[int, int], _Key]] = []
    for key, mine in by_key.items():
        theirs = by_key.get((key[1], key[0]), [])
        if not theirs:
            left += [(end, key) for end in mine]
        elif repr(key[0]) <= repr(key[1]):
            pairs += _pair_lives(ends, mine, theirs)
    found += [Connection(*pair) for pair in _drop_crossed(ends, pairs)]
    translated = _join_translated(ends, left)
    for key, mine in datagrams.items():
        theirs = datagrams.get((key[1], key[0]), [])
        if len(mine) == len(theirs) == 1 and repr(key[0]) <= repr(key[1]):
            found.append(Connection(mine[0], theirs[0], Certainty.LIKELY))
    return JoinedEnds([*found, *translated], len(translated), ends.doubtful)


_Key = tuple[tuple[str, int], tuple[str, int]]
_ByKey = dict[_Key, list[tuple[int, int]]]


def _sort_ends(
    hosts: Sequence[HostSockets], operations: Sequence[HostOperations]
) -> tuple[list[Connection], _ByKey, _ByKey]:
    """Return connections within a host, and ends of others by their addresses and ports."""
    within: list[Connection] = []
    streams: _ByKey = defaultdict(list)
    datagrams: _ByKey = defaultdict(list)
    for place, of in enumerate(hosts):
        table, texts = of.endpoints, of.endpoints.strings
        moved = operations[place].moved
        moved = moved[of.mine[moved]]
        for at in moved[np.argsort(table.opened_ns[moved], kind="stable")].tolist():
            peer = int(table.peer[at])
            if peer >= 0:
                if at < peer or not of.mine[peer]:
                    within.append(Connection((place, at), (place, peer)))
                continue
            near, far = texts[table.local_address[at]], texts[table.remote_address[at]]
            ports = int(table.local_port[at]), int(table.remote_port[at])
            if not (near and far and all(ports)) or _is_loopback(near) or _is_loopback(far):
                continue
            into = datagrams if of.datagram is not None and of.datagram[at] else streams
            into[(near, ports[0]), (far, ports[1])].append((place, at))
    return within, dict(streams), dict(datagrams)


@lru_cache(1 << 12)
def _is_loopback(address: str) -> bool:
    return ip_address(address).is_loopback


def _pair_lives(
    ends: _Ends, mine: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Pair connections of the same addresses and ports, one after the other at both ends.

    A recording may have begun later, or have missed one: the order is shifted to where bytes
    agree and the times between their begins do.
    """
    if len(mine) == len(theirs) == 1:
        one, other = mine[0], theirs[0]
        if one[0] == other[0]:
            return []  # on one host, in namespaces of their own, and not known to be peers
        return [(one, other)] if ends.agree(one, other, exactly=False) else []
    possible = []
    for shift in range(1 - len(mine), len(theirs)):
        pairs = [
            (end, theirs[at + shift])
            for at, end in enumerate(mine)
            if 0 <= at + shift < len(theirs)
        ]
        apart = np.array([ends.opened(b) - ends.opened(a) for a, b in pairs], np.float64)
        begins = [ends.opened(a) for a, _ in pairs]
        spread = float(apart.max() - apart.min())
        if (
            len(pairs) > 1
            and spread <= CLOCKS.late + CLOCKS.unknown_drift * (begins[-1] - begins[0])
            and all(a[0] != b[0] and ends.agree(a, b, exactly=True) for a, b in pairs)
        ):
            possible.append((spread, pairs))
    possible.sort(key=lambda found: found[0])
    if not possible or (
        len(possible) > 1
        and possible[1][0] < CLOCKS.surer_order * possible[0][0] + CLOCKS.order_slack
    ):
        ends.doubtful += len(mine) + len(theirs)
        return []
    pairs = possible[0][1]
    ends.doubtful += len(mine) + len(theirs) - 2 * len(pairs)
    return pairs


def _drop_crossed(
    ends: _Ends, pairs: list[tuple[tuple[int, int], tuple[int, int]]]
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Leave out connections that began at another time than those before and behind them.

    Ports that were used again: this end is of one connection, the other of another.
    """
    hosts = {(a[0], b[0]) for a, b in pairs}
    crossed: set[tuple[tuple[int, int], tuple[int, int]]] = set()
    for between in hosts:
        timed = [
            (ends.opened(a), ends.opened(b) - ends.opened(a), (a, b))
            for a, b in pairs
            if (a[0], b[0]) == between and ends.whole(a) and ends.whole(b)
        ]
        timed.sort()
        for at, (begin, apart, pair) in enumerate(timed):
            near = [timed[i] for i in (at - 2, at - 1, at + 1, at + 2) if 0 <= i < len(timed)]
            if len(near) < 3:
                continue
            allowed = [CLOCKS.late + CLOCKS.unknown_drift * abs(begin - other[0]) for other in near]
            off = [abs(apart - other[1]) > most for other, most in zip(near, allowed, strict=True)]
            shifts = [other[1] for other in near]
            if all(off) and max(shifts) - min(shifts) <= 2 * max(allowed):
                crossed.add(pair)
    ends.doubtful += 2 * len(crossed)
    return [pair for pair in pairs if pair not in crossed]


def _join_translated(ends: _Ends, left: list[tuple[tuple[int, int], _Key]]) -> list[Connection]:
    """Join ends of which no other has the addresses: a port agrees, and the sizes of messages."""
    turns = {end: ends.operations[end[0]].find_turns(end[1]) for end, _ in left}
    ports: dict[tuple[int, int], tuple[int, int]] = {}  # of who connected, of who accepted
    accepted = {end: ends.operations[end[0]].accepted(end[1]) for end, _ in left}
    for end, (near, far) in left:
        if len(turns[end]) < CLOCKS.turns[0]:
            continue
        ports[end] = (far[1], near[1]) if accepted[end] else (near[1], far[1])
    joined: list[Connection] = []
    taken: set[tuple[int, int]] = set()
    for which in (0, 1):
        sides: dict[tuple[object, ...], tuple[list[tuple[int, int]], list[tuple[int, int]]]]
        sides = defaultdict(lambda: ([], []))
        for end, of in ports.items():
            if end not in taken:
                sides[which, of[which], turns[end]][accepted[end]].append(end)
        for asked, served in sides.values():
            if not asked or not served or (len(asked) == 1 and asked[0][0] == served[0][0]):
                continue
            if len(asked) == len(served) == 1:
                joined.append(Connection(asked[0], served[0], Certainty.LIKELY))
                taken |= {asked[0], served[0]}
            elif which:
                ends.doubtful += len(asked) + len(served)
    return joined
