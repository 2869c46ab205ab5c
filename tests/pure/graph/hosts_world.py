"""Hosts that ask each other, each by a clock of its own, with the truth to the nanosecond.

Every client has a thread on each host that works for nobody else, on a processor of its own: a
request goes from host to host and back.  Times are true ones until `World.events` shows each
host's by its own clock.
"""

from __future__ import annotations

import random

import numpy as np

from critpath.model import EventClass, Events, Kind, Loss
from critpath.read.event_names import KERNEL_EVENTS, SOCKET_EVENTS
from critpath.schema.environment import Environment

TEXT = {"prev_comm", "next_comm", "comm"}
KINDS = (
    *(Kind.SWITCH, Kind.WAKING, Kind.SOFTIRQ_ENTRY, Kind.SOFTIRQ_EXIT, Kind.NET_SEND),
    *(Kind.SOCKET_SEND, Kind.SOCKET_RECEIVE, Kind.SOCKET_ARRIVAL, Kind.SOCKET_STATE),
)
REQUESTS = {k: next(r for r in (*KERNEL_EVENTS, *SOCKET_EVENTS) if r.kind == k) for k in KINDS}
US = 1000


class World:
    """Events of some hosts, and for each request when it began and ended, by the first's clock."""

    def __init__(self, seed):
        self.random = random.Random(seed)  # noqa: S311 - no secrets
        draw = self.random
        self.count = draw.randint(2, 4)
        self.clocks = [(0, 0.0)] + [
            (draw.randint(-(10**9), 10**9), draw.uniform(-2e-4, 2e-4)) for _ in range(1, self.count)
        ]
        self.base = [draw.choice((5, 30, 130, 2000)) * US for _ in range(self.count)]
        self.jitter = draw.choice((0, 2, 50)) * US
        self.rows, self.requests, self.sockets = [], [], {}
        self.awake, self.free = {}, {}
        self.transit = []
        for chain in range(draw.randint(1, 3)):
            self._run_chain(chain, draw.randint(1, 12))
        self.losses = self._lose() if draw.random() < 0.3 else ()

    def _run_chain(self, chain, times):
        now = 10**9 + self.random.randint(0, 10**6)
        for host in range(self.count):
            self._put(host, now, chain, Kind.SWITCH, ("swapper", 0, 0, "t", self._tid(host, chain)))
            self.awake[host, chain] = host == 0
            if host:
                self._put(host, now + 1, chain, Kind.SWITCH, self._out(host, chain))
                self._open(host, chain, now + 2)
            self.free[host, chain] = now + 3
        now += 100 * US
        for _ in range(times):
            begin = now
            before = len(self.transit)
            now = self._ask(1, chain, now)
            self.requests.append((chain, begin, now, sum(self.transit[before:])))
            now += self.random.randint(1, 500) * US

    @staticmethod
    def _tid(host, chain):
        return 100 * (host + 1) + chain

    def _out(self, host, chain):
        return ("t", self._tid(host, chain), 1, "swapper", 0)

    def _put(self, host, time, chain, kind, fields):
        self.rows.append((host, time, chain, kind, fields))

    def _open(self, host, chain, time):
        asks, serves = (1 << 40) + host * 100 + chain, (1 << 41) + host * 100 + chain
        self.sockets[host, chain] = asks, serves
        ports = 40_000 + chain, 8000 + host
        one, other = 0x0A000001 + host - 1, 0x0A000001 + host
        far = [0, 0, 0, 0]
        self._put(
            *(host - 1, time, chain, Kind.SOCKET_STATE),
            (asks, *ports, 2, one, other, *far, 6, 7, 2),
        )
        self._put(
            *(host, time + 1, chain, Kind.SOCKET_STATE),
            (serves, *ports[::-1], 2, other, one, *far, 6, 3, 1),
        )

    def _ask(self, host, chain, now):
        """Let a host ask the next; return when it has the answer."""
        asks, serves = self.sockets[host, chain]
        sent, arrived = self._send(host - 1, chain, asks, now, host)
        received = self._receive(host, chain, serves, arrived, self.free[host, chain])
        done = received + self.random.randint(1, 300) * US
        if host + 1 < self.count and self.random.random() < 0.8:
            done = self._ask(host + 1, chain, done) + self.random.randint(1, 100) * US
        free, back = self._send(host, chain, serves, done, host)
        # It sleeps again, or is busy with what nobody asked for.
        busy = self.random.random() < 0.3
        self.awake[host, chain] = busy
        self.free[host, chain] = free + (self.random.randint(1, 900) * US if busy else 2)
        if not busy:
            self._put(host, free + 1, chain, Kind.SWITCH, self._out(host, chain))
        self.awake[host - 1, chain] = back < sent + 2 * US
        if not self.awake[host - 1, chain]:
            self._put(host - 1, sent + US, chain, Kind.SWITCH, self._out(host - 1, chain))
        return self._receive(host - 1, chain, asks, back, sent + 2 * US)

    def _send(self, host, chain, socket, now, way):
        """Return when a send is told, and when its bytes are there."""
        told = now + self.random.randint(1, 60) * US
        delay = self.base[way % self.count] + int(self.random.expovariate(1) * self.jitter)
        self._put(host, now, chain, Kind.NET_SEND, (socket, *[0] * 8))
        self._put(host, told, chain, Kind.SOCKET_SEND, (socket, 2, 6, 100, 0))
        self.transit.append(delay)
        return told, now + delay

    def _receive(self, host, chain, socket, arrived, free):
        """Return when a thread has received what arrived."""
        self._put(host, arrived - 1, chain, Kind.SOFTIRQ_ENTRY, (3,))
        self._put(host, arrived, chain, Kind.SOCKET_ARRIVAL, (socket, 2, 6))
        tid = self._tid(host, chain)
        if self.awake[host, chain]:
            self._put(host, arrived + 2, chain, Kind.SOFTIRQ_EXIT, (3,))
            now = max(arrived, free) + 5
        else:
            self._put(host, arrived + 1, chain, Kind.WAKING, (tid, "t", chain, 1))
            self._put(host, arrived + 2, chain, Kind.SOFTIRQ_EXIT, (3,))
            now = arrived + self.random.randint(1, 50) * US
            self._put(host, now, chain, Kind.SWITCH, ("swapper", 0, 0, "t", tid))
            self.awake[host, chain] = True
        self._put(host, now + US, chain, Kind.SOCKET_RECEIVE, (socket, 2, 6, 100, 0))
        return now + 2 * US

    def _lose(self):
        """Leave out what happened on a host in some stretch."""
        host = self.random.randrange(self.count)
        times = [row[1] for row in self.rows]
        begin = self.random.randint(min(times), max(times))
        end = begin + self.random.randint(1, 2000) * US
        self.rows = [r for r in self.rows if not (r[0] == host and begin <= r[1] <= end)]
        return (Loss(self.shown(host, begin), self.shown(host, end), host, -1, 1, 0, "discarded"),)

    def shown(self, host, time):
        """Return a true time by a host's clock."""
        offset, drift = self.clocks[host]
        return round(time + offset + drift * (time - 10**9))

    def events(self):
        """Return what was recorded: all hosts' events by their own clocks, merged by these."""
        rows = sorted((self.shown(r[0], r[1]), i, *r[:1], *r[2:]) for i, r in enumerate(self.rows))
        strings = ["", "swapper", "t"]
        classes = tuple(
            EventClass(
                request.names[0],
                kind,
                (names := tuple(spelled[0] for spelled in request.fields)),
                tuple("str" if name in TEXT else "int" for name in names),
                host=host,
            )
            for host in range(self.count)
            for kind, request in REQUESTS.items()
        )
        values, offset = [], []
        for *_, kind, fields in rows:
            offset.append(len(values))
            width = len(REQUESTS[kind].fields)
            coded = [strings.index(v) if isinstance(v, str) else v for v in fields]
            values += [*coded, *[0] * (width - len(coded))][:width]
        place = {kind: at for at, kind in enumerate(KINDS)}
        return Events(
            timestamp=np.array([r[0] for r in rows], np.int64),
            cpu=np.array([r[3] for r in rows], np.int32),
            event_class=np.array([r[2] * len(KINDS) + place[r[4]] for r in rows], np.int32),
            offset=np.array(offset, np.int64),
            values=np.array(values, np.int64),
            classes=classes,
            strings=tuple(strings),
            hosts=tuple(f"h{host}" for host in range(self.count)),
            losses=self.losses,
            begin=rows[0][0],
            end=rows[-1][0],
            total=len(rows),
            environment=(Environment(kernel_release="6.1.0"),),
        )
