"""Hosts that say something to each other over sockets, with who sent what to whom as truth."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from critpath.clocks.connections import HostSockets
from critpath.model.requests import Act, Activity, Endpoints

US = 1000
MS = 10**6


@dataclass
class Host:
    """What happened on one host; ``clock`` is what to add to the true time for its own."""

    number: int
    clock: int = 0
    rows: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    ends: list[list[object]] = field(default_factory=list)
    lossy: list[tuple[int, int]] = field(default_factory=list)
    from_ns: int = -(10**18)

    def open(self, time, near, far, how, *, peer=-1) -> int:
        """Begin a life of a socket; ``how``: 1 accepted, 2 connected, 0 from before."""
        self.ends.append([*near, *far, time + self.clock, -1, peer])
        at = len(self.ends) - 1
        if how:
            self.put(time, Act.OPEN, at, how)
        return at

    def put(self, time, act, endpoint, value, tid=10) -> None:
        self.rows.append((time + self.clock, int(act), tid, endpoint, value))

    def close(self, time, endpoint) -> None:
        self.ends[endpoint][5] = time + self.clock
        self.put(time, Act.CLOSE, endpoint, 0)

    def sockets(self, *, end=10**12, datagram=False) -> HostSockets:
        kept = sorted(
            row
            for row in self.rows
            if row[0] >= self.from_ns and not any(a <= row[0] <= b for a, b in self.lossy)
        )
        seen = {row[3] for row in kept}
        columns = np.array(kept, np.int64).reshape(-1, 5)
        texts = ["", *sorted({str(x) for e in self.ends for x in (e[0], e[2])})]
        whole = lambda number: np.array([e[number] for e in self.ends], np.int32)  # noqa: E731
        codes = lambda number: np.array([texts.index(e[number]) for e in self.ends], np.int32)  # noqa: E731
        none = np.zeros(len(self.ends), np.int32)
        activity = Activity(
            columns[:, 0],
            columns[:, 1].astype(np.uint8),
            columns[:, 2].astype(np.int32),
            np.full(len(kept), self.number, np.int32),
            columns[:, 3].astype(np.int32),
            columns[:, 4],
        )
        closed = np.array([e[5] for e in self.ends], np.int64)
        endpoints = Endpoints(
            host=none + self.number,
            family=none + 2,
            local_address=codes(0),
            local_port=whole(1),
            remote_address=codes(2),
            remote_port=whole(3),
            path=none,
            serves=none - 1,
            role_how=none,
            opened_ns=np.array([e[4] for e in self.ends], np.int64),
            closed_ns=np.where(closed >= 0, closed, end),
            peer=whole(6),
            strings=tuple(texts),
        )
        mine = np.array([at in seen for at in range(len(self.ends))], np.bool_)
        return HostSockets(
            activity,
            endpoints,
            mine,
            self.lossy,
            self.number,
            np.full(len(mine), datagram, np.bool_),
        )


def connect(a, b, time, *, port=40_000, server=80, known=True, translated=()):
    """Return both ends of a connection from host a to b, 30 us long."""
    asks = ("10.0.0.1", port), ("10.0.0.2", server)
    serves = translated or (asks[1], asks[0])
    return (
        a.open(time, *asks, 2 if known else 0),
        b.open(time + 60 * US, *serves, 1 if known else 0),
    )


def ask(a, b, ends, time, size, answer, *, delay=30 * US):
    """Have host a ask and b answer; return when the answer had been received."""
    for sender, receiver, (source, target), much in (
        (a, b, ends, size),
        (b, a, ends[::-1], answer),
    ):
        sender.put(time, Act.SEND, source, much)
        receiver.put(time + delay, Act.RECEIVE, target, much, tid=20)
        time += 2 * delay
    return time
