"""Lives of sockets: between whom they are, who serves, and who is at the other end."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final

import numpy as np

from critpath.model import I32, I64, Bool
from critpath.model.requests import NONE, Collected, Endpoints
from critpath.records import dataclass

UNIX: Final = 1  # technical
INET6: Final = 10  # technical
UDP: Final = 17  # technical
LISTEN: Final = 10  # technical
# What has neither port nor path, by its family.
NAMELESS: Final = {UNIX: "unix", 16: "netlink"}
# How it is known who serves: `Endpoints.role_how`.
HOWS: Final = ("", "accepted", "connected", "listened", "bound", "first")
ACCEPTED, CONNECTED, LISTENED, BOUND, FIRST = range(1, 6)


Ends = tuple[int, int, int]  # high and low half of an address, port


class EndpointColumn(IntEnum):
    """Columns of what `_activity.Activities.take_endpoints` returns."""

    SOCKET = 0
    HOST = 1
    FAMILY = 2
    PROTOCOL = 3
    LOCAL_HIGH = 4
    LOCAL_LOW = 5
    LOCAL_PORT = 6
    REMOTE_HIGH = 7
    REMOTE_LOW = 8
    REMOTE_PORT = 9
    OPENED = 10
    CLOSED = 11
    OPENING = 12
    FIRST = 13
    PARTNER = 14
    VOTES = 15
    KNOWN = 16
    LISTENS = 17


@dataclass(frozen=True)
class Dumped:
    """A socket that was there before: fields of `Kind.SOCKET_STATEDUMP`."""

    host: int
    socket: int  # 0 where the kernel hides it
    inode: int
    family: int
    protocol: int
    local: tuple[int, int, int]  # high and low half of the address, port
    remote: tuple[int, int, int]
    state: int
    namespace: int
    path: str
    last: bool  # read at the recording's end


class Resolver:
    """Finds out about the endpoints of one recording what their events do not tell alone."""

    def __init__(
        self,
        collected: Collected,
        end: int,
        far: I64 | None = None,
        aligned: Collection[int] = (),
    ) -> None:
        self._aligned = aligned
        self._far = np.zeros((0, 2), np.int64) if far is None else far
        self._table = collected.endpoints.copy()
        self._dumped = [read_dumped(row) for row in collected.dumped]
        self._end = end
        self._count = len(self._table)
        self._serves: I32 = np.full(self._count, NONE, np.int32)
        self._how: I32 = np.zeros(self._count, np.int32)
        self._peer: I32 = np.full(self._count, NONE, np.int32)
        self._paths = dict(collected.paths)

    def column(self, of: EndpointColumn) -> I64:
        """Return one column of the table."""
        found: I64 = self._table[:, of]
        return found

    def resolve(self, users: Sequence[frozenset[int]]) -> Endpoints:
        """Return the endpoints.

        Parameters
        ----------
        users : sequence of frozenset of int
            Processes that received or sent, of each endpoint.
        """
        self._paths |= complete_lives(self._table, self._dumped)
        self._find_peers()
        self._take_far_peers()
        self._find_roles(users)
        return self._build()

    def _find_peers(self) -> None:
        """Pair the two ends of each connection that are both on this machine."""
        keys = self._table[:, EndpointColumn.LOCAL_HIGH : EndpointColumn.REMOTE_PORT + 1].tolist()
        hosts = self.column(EndpointColumn.HOST).tolist()
        opened = self.column(EndpointColumn.OPENED).tolist()
        closed = [c if c >= 0 else self._end for c in self.column(EndpointColumn.CLOSED).tolist()]
        partner = self.column(EndpointColumn.PARTNER).tolist()
        votes = self.column(EndpointColumn.VOTES).tolist()
        # What nobody used is of another machine, on the same kernel.
        moved = self.column(EndpointColumn.FIRST) > 0
        known = self.column(EndpointColumn.KNOWN).tolist()
        by_key: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for at, key in enumerate(keys):
            if known[at]:
                by_key[hosts[at], *key].append(at)
        for at, key in enumerate(keys):
            if not known[at] or self._peer[at] != NONE:
                continue
            others = [
                other
                for other in by_key.get((hosts[at], *key[3:], *key[:3]), ())
                if other != at and opened[other] <= closed[at] and opened[at] <= closed[other]
            ]
            if others:
                # The same numbers in two network namespaces: to whom it sends tells.
                told = [o for o in others if partner[at] == o or partner[o] == at]
                free = [o for o in (*told, *others) if self._peer[o] == NONE]
                if free:
                    self._peer[at], self._peer[free[0]] = free[0], at
        elsewhere = self._find_elsewhere()
        elsewhere |= ~moved[self.column(EndpointColumn.PARTNER)]
        for at in np.flatnonzero((self._peer == NONE) & ~elsewhere).tolist():
            other = partner[at]
            if other == NONE or votes[at] < 1 or self._peer[other] != NONE:
                continue
            if partner[other] not in {at, NONE} or (known[at] and known[other]):
                continue
            self._peer[at], self._peer[other] = other, at
            self._mirror(at, other)

    def _find_elsewhere(self) -> Bool:
        """Return which ends are connected to another host of the recording, by its address."""
        table, hosts = self._table, self.column(EndpointColumn.HOST)
        found = np.zeros(self._count, np.bool_)
        if len(np.unique(hosts)) < 2:
            return found
        known = np.flatnonzero(self.column(EndpointColumn.KNOWN) == 1)
        near = slice(EndpointColumn.LOCAL_HIGH, EndpointColumn.LOCAL_PORT)
        far = slice(EndpointColumn.REMOTE_HIGH, EndpointColumn.REMOTE_PORT)
        rows, addresses = known.tolist(), table[known]
        at_host: dict[tuple[int, ...], set[int]] = defaultdict(set)
        for row, address in zip(rows, map(tuple, addresses[:, near].tolist()), strict=True):
            at_host[address].add(int(hosts[row]))
        for row, address in zip(rows, map(tuple, addresses[:, far].tolist()), strict=True):
            there = at_host.get(address, set())
            found[row] = bool(there) and int(hosts[row]) not in there
        return found

    def _take_far_peers(self) -> None:
        """Pair the ends of connections between hosts: by their bytes, else by their addresses."""
        for one, other in self._far.tolist():
            if self._peer[one] == NONE and self._peer[other] == NONE:
                self._peer[one], self._peer[other] = other, one
        aligned = np.isin(self.column(EndpointColumn.HOST), sorted(self._aligned))
        aligned &= (self._peer == NONE) & (self.column(EndpointColumn.KNOWN) == 1)
        rows = np.flatnonzero(aligned)
        keys = self._table[rows, EndpointColumn.LOCAL_HIGH : EndpointColumn.REMOTE_PORT + 1]
        by_key: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for at, key in zip(rows.tolist(), map(tuple, keys.tolist()), strict=True):
            if key[2] and key[5] and not _is_loopback(*key[:2]):
                by_key[key].append(at)
        hosts = self.column(EndpointColumn.HOST)
        for key, mine in by_key.items():
            theirs = by_key.get((*key[3:], *key[:3]), [])
            # Where addresses and ports were used again, only bytes tell.
            if len(mine) == len(theirs) == 1 and hosts[mine[0]] != hosts[theirs[0]]:
                self._peer[mine[0]] = theirs[0]

    def _mirror(self, one: int, other: int) -> None:
        """Give an endpoint without addresses those of its peer, the other way round."""
        for to, of in ((one, other), (other, one)):
            if not self._table[to, EndpointColumn.KNOWN] and self._table[of, EndpointColumn.KNOWN]:
                row, known = self._table[to], self._table[of]
                near = slice(EndpointColumn.LOCAL_HIGH, EndpointColumn.LOCAL_PORT + 1)
                far = slice(EndpointColumn.REMOTE_HIGH, EndpointColumn.REMOTE_PORT + 1)
                row[near], row[far] = known[far], known[near]
                row[EndpointColumn.KNOWN] = 1

    def _find_roles(self, users: Sequence[frozenset[int]]) -> None:
        opening = self.column(EndpointColumn.OPENING)
        self._settle(opening == 1, 1, ACCEPTED)
        self._settle(opening == 2, 0, CONNECTED)
        hosts, ports = self.column(EndpointColumn.HOST), self.column(EndpointColumn.LOCAL_PORT)
        remote = self.column(EndpointColumn.REMOTE_PORT)
        unix = self.column(EndpointColumn.FAMILY) == UNIX
        self._follow_peers()
        listened, dumped = self._find_listened()
        mine = np.array([k in listened for k in zip(hosts.tolist(), ports.tolist(), strict=True)])
        theirs = np.array(
            [k in listened for k in zip(hosts.tolist(), remote.tolist(), strict=True)]
        )
        if self._count:
            self._settle(~unix & mine & ~theirs, 1, LISTENED)
            self._settle(~unix & theirs & ~mine, 0, LISTENED)
            # Everything that listened was written down, and nothing listened here.
            complete = np.isin(hosts, sorted(dumped)) & (self.column(EndpointColumn.KNOWN) == 1)
            self._settle(~unix & complete & ~mine, 0, CONNECTED)
        bound = np.zeros(self._count, np.bool_)
        bound[list(self._paths)] = True
        self._settle(bound & unix, 1, BOUND)
        self._follow_peers()
        first = self.column(EndpointColumn.FIRST)
        self._settle(first == 1, 1, FIRST)
        self._settle(first == 2, 0, FIRST)
        # What one process says to itself is no request.
        for at in np.flatnonzero(unix & (self._serves == 1)).tolist():
            other = int(self._peer[at])
            if other != NONE and users[at] == users[other]:
                self._serves[[at, other]] = NONE
        # What serves over UDP was split into its peers: `datagrams`.
        udp = self.column(EndpointColumn.PROTOCOL) == UDP
        self._serves[udp & (opening != 1) & (first != 2)] = NONE
        # A descriptor of which nobody knows what it is: by system calls only.
        self._serves[self.column(EndpointColumn.FAMILY) == 0] = NONE
        self._serves[self.column(EndpointColumn.LISTENS) == 1] = NONE

    def _settle(self, rows: Bool, serves: int, how: int) -> None:
        """Say who serves, where that is not known yet."""
        rows = rows & (self._serves == NONE)
        self._serves[rows] = serves
        self._how[rows] = how

    def _follow_peers(self) -> None:
        """Say of the other end what follows from the one that is known."""
        for at in np.flatnonzero((self._serves == NONE) & (self._peer != NONE)).tolist():
            other = self._peer[at]
            if self._serves[other] != NONE:
                self._serves[at] = 1 - self._serves[other]
                self._how[at] = self._how[other]

    def _find_listened(self) -> tuple[set[tuple[int, int]], set[int]]:
        """Return host and port of what listens, and the hosts whose sockets were written down."""
        # Where one was accepted, somebody listens.
        accepted = self.column(EndpointColumn.OPENING) == 1
        rows = self._table[(self.column(EndpointColumn.LISTENS) == 1) | accepted]
        listened = {(int(r[EndpointColumn.HOST]), int(r[EndpointColumn.LOCAL_PORT])) for r in rows}
        tcp = [of for of in self._dumped if of.family != UNIX and of.protocol != UDP]
        listened |= {(of.host, of.local[2]) for of in tcp if of.state == LISTEN}
        # Where nothing at all listens the list may have been cut: it says nothing of who asks.
        return listened, {of.host for of in tcp if of.state == LISTEN}

    def _build(self) -> Endpoints:
        strings = {text: code for code, text in enumerate(HOWS)}

        def code(text: str) -> int:
            return strings.setdefault(text, len(strings))

        def addresses(first: EndpointColumn) -> I64:
            halves = self._table[:, first : first + 2].tolist()
            families = self.column(EndpointColumn.FAMILY).tolist()
            known = self.column(EndpointColumn.KNOWN).tolist()
            return np.array(
                [
                    code(format_address(high, low)) if known[at] and families[at] != UNIX else 0
                    for at, (high, low) in enumerate(halves)
                ],
                np.int64,
            )

        closed = self.column(EndpointColumn.CLOSED)
        local = addresses(EndpointColumn.LOCAL_HIGH)
        remote = addresses(EndpointColumn.REMOTE_HIGH)
        paths = [code(self._paths.get(at, "")) for at in range(self._count)]
        return Endpoints(
            host=self.column(EndpointColumn.HOST).astype(np.int32),
            family=self.column(EndpointColumn.FAMILY).astype(np.int32),
            local_address=local.astype(np.int32),
            local_port=self.column(EndpointColumn.LOCAL_PORT).astype(np.int32),
            remote_address=remote.astype(np.int32),
            remote_port=self.column(EndpointColumn.REMOTE_PORT).astype(np.int32),
            path=np.array(paths, np.int32),
            serves=self._serves,
            role_how=self._how,
            opened_ns=self.column(EndpointColumn.OPENED).copy(),
            closed_ns=np.where(closed >= 0, closed, self._end),
            peer=self._peer,
            strings=tuple(strings),
        )


def resolve_endpoints(
    collected: Collected,
    users: Sequence[frozenset[int]],
    end: int,
    far: I64 | None = None,
    aligned: Collection[int] = (),
) -> Endpoints:
    """Return the endpoints of a recording.

    Parameters
    ----------
    collected : Collected
    users : sequence of frozenset of int
        Processes that received or sent, of each endpoint.
    end : int
        Of the recording (ns).
    far : int64 [n, 2] or None
        Connections between hosts: rows of their two ends.
    aligned : collection of int
        Hosts whose times are of one clock.
    """
    return Resolver(collected, end, far, aligned).resolve(users)


def read_dumped(row: Iterable[int | str]) -> Dumped:
    """Return a socket that was there before, from its host and the fields of its event."""
    host, socket, sport, dport, family, saddr, daddr, *rest = row
    *halves, protocol, last, state, inode, namespace, path = rest
    numbers = [int(x) & _LOW if i % 2 else int(x) for i, x in enumerate(halves)]
    near = take_address(int(family), int(saddr), *numbers[:2])
    far = take_address(int(family), int(daddr), *numbers[2:4])
    return Dumped(
        *(int(host), int(socket), int(inode), int(family), int(protocol)),
        (*near, int(sport)),
        (*far, int(dport)),
        int(state),
        int(namespace),
        str(path or ""),
        last == 1,
    )


_LOW: Final = 2**64 - 1  # technical


def take_address(family: int, v4: int, high: int, low: int) -> tuple[int, int]:
    """Return an address's halves; an IPv4 one that is mapped into IPv6 is the IPv4 one."""
    if family != INET6:
        return 0, v4 & 0xFFFFFFFF
    if not high and (low & _LOW) >> 32 == 0xFFFF:
        return 0, low & 0xFFFFFFFF
    return high, _signed(low)


def complete_lives(table: I64, dumped: Sequence[Dumped]) -> dict[int, str]:
    """Complete first lives of sockets that were there before, last ones of those that stay.

    Returns
    -------
    dict of int to str
        Paths of endpoints.
    """
    first: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    keys = table[:, [EndpointColumn.HOST, EndpointColumn.SOCKET]].tolist()
    for at, (host, socket) in enumerate(keys):
        first.setdefault((host, socket), at)
        last[host, socket] = at
    paths = {}
    for of in dumped:
        lives = last if of.last else first
        at = lives.get((of.host, of.socket), NONE) if of.socket else NONE
        ended = EndpointColumn.CLOSED if of.last else EndpointColumn.OPENING
        if at == NONE or table[at, ended] > 0:
            continue
        row = table[at]
        if row[EndpointColumn.FAMILY] != of.family:
            continue
        if of.path:
            paths[at] = of.path
        if not row[EndpointColumn.KNOWN] and of.local[2] and of.remote[2]:
            row[EndpointColumn.LOCAL_HIGH : EndpointColumn.LOCAL_PORT + 1] = of.local
            row[EndpointColumn.REMOTE_HIGH : EndpointColumn.REMOTE_PORT + 1] = of.remote
            row[EndpointColumn.KNOWN] = 1
    return paths


def read_ends(fields: Sequence[int]) -> tuple[Ends, Ends]:
    """Return both ends from the fields sport, dport, family, saddr, ... of an event."""
    sport, dport, family, near, far, *halves = fields
    local, remote = take_address(family, near, *halves[:2]), take_address(family, far, *halves[2:])
    return (*local, sport), (*remote, dport)


def _is_loopback(high: int, low: int) -> bool:
    """Tell whether an address means whoever asks."""
    return ipaddress.ip_address(format_address(high, low)).is_loopback


def _signed(value: int) -> int:
    value &= _LOW
    return value - (1 << 64) if value >> 63 else value


@lru_cache(1 << 16)
def format_address(high: int, low: int) -> str:
    """Return an address as people write it."""
    if not high and 0 <= low < 1 << 32:
        return str(ipaddress.IPv4Address(low))
    return str(ipaddress.IPv6Address(((high & _LOW) << 64) | (low & _LOW)))
