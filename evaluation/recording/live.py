"""What following requests live costs: ``python live.py [--requests N]``.

Pages of a kernel's buffers are made, of keep-alive connections of many servers (8 events a request,
as loopback has), and followed as a flight recorder does: cpu time of an event and of a request,
percent of one cpu at 2,000 requests a second, and memory with all tables full.
"""

from __future__ import annotations

import argparse
import random
import resource
import struct
import time
from collections.abc import Iterator
from typing import Final

from critpath_record.flight.conditions import Condition
from critpath_record.flight.kinds import Kinds
from critpath_record.flight.live import Formats, LiveExecutions
from critpath_record.flight.noticing import RequestConditions

_HEAD: Final = struct.Struct("=QQ")
_PAGE: Final = 4080
# As Linux 6.18 has them.
_FORMATS: Final = Formats(
    5, 8, 9, 8,
    (
        (11, 2, (20, 8, 16, 18, -1, -1, -1, -1)),
        (12, 3, (28, 8, 16, 18, 20, 24, -1, -1)),
        (13, 4, (28, 8, 16, 18, 20, 24, -1, -1)),
        (14, 5, (22, 8, 20, -1, -1, -1, 16, 18)),
    ),
)  # fmt: skip
_RATE: Final = 2000  # requests a second
_FIRST_PORT: Final = 1000


def list_records(connection: int, servers: int, at: int, took: int) -> Iterator[tuple[int, bytes]]:
    """Yield what the kernel writes of one request: eight events, with their times."""
    server = connection % servers
    near, far = (1 << 40) + 2 * connection, (1 << 40) + 2 * connection + 1
    client, worker = 100_000 + connection % 50, 200_000 + server
    ports = _FIRST_PORT + server, 40_000 + connection % 20_000

    def arrival(socket: int, tid: int) -> bytes:
        return struct.pack("=HBBiqHHIQ", 11, 0, 0, tid, socket, 2, 6, 0, 0)

    def moved(event: int, socket: int, tid: int) -> bytes:
        return struct.pack("=HBBiqHHiii", event, 0, 0, tid, socket, 2, 6, 100, 0, 0)

    def of(socket: int, tid: int, mine: int, theirs: int) -> bytes:
        return struct.pack("=HBBiqHHH", 14, 0, 0, tid, socket, mine, theirs, 2).ljust(72, b"\0")

    yield at, arrival(far, client)
    yield at + 2_000, moved(13, near, client)
    yield at + 20_000, of(far, worker, *ports)
    yield at + 21_000, moved(12, far, worker)
    yield at + took, arrival(near, worker)
    yield at + took + 2_000, moved(13, far, worker)
    yield at + took + 20_000, of(near, client, *reversed(ports))
    yield at + took + 21_000, moved(12, near, client)


def make_pages(records: list[tuple[int, bytes]]) -> list[bytes]:
    """Return pages as the kernel writes them."""
    pages, data, begin, last = [], b"", records[0][0], records[0][0]
    for at, record in records:
        if len(data) + len(record) + 4 > _PAGE:
            pages.append(_HEAD.pack(begin, len(data)) + data)
            data, begin, last = b"", at, at
        data += struct.pack("=I", len(record) // 4 | (at - last) << 5) + record
        last = at
    return [*pages, _HEAD.pack(begin, len(data)) + data]


def draw_second(
    draw: random.Random, second: int, connections: int, servers: int
) -> list[list[bytes]]:
    """Return a second's pages of two cpus."""
    records: tuple[list[tuple[int, bytes]], ...] = ([], [])
    for n in range(_RATE):
        at = 1_000_000_000 * (second + 1) + n * (1_000_000_000 // _RATE)
        took = round(draw.lognormvariate(13.5, 0.6))
        connection = draw.randrange(connections)
        records[n % 2].extend(list_records(connection, servers, at, took))
    return [make_pages(sorted(of)) for of in records]


def measure(connections: int, servers: int, seconds: int) -> None:
    """Print what it takes to follow so many."""
    draw = random.Random(1)  # noqa: S311 - no secret
    kinds = Kinds(lambda tid: (tid, f"server-of-{tid}", ""))
    live = LiveExecutions(_FORMATS, kinds)
    live.requests.listen(range(_FIRST_PORT, _FIRST_PORT + servers), every=True)
    watched = RequestConditions(
        live, [Condition.parse("slower than usual"), Condition.parse("latency p99 > 1s over 30s")]
    )
    took = looked = 0
    memory = []
    for second in range(seconds):
        pages = [page for of in draw_second(draw, second, connections, servers) for page in of]
        at = 1_000_000_000 * (second + 2)
        before = time.process_time_ns()
        live.add(pages, at - 100_000_000, looks=False)
        between = time.process_time_ns()
        for _ in watched.look(at):
            pass
        took, looked = took + between - before, looked + time.process_time_ns() - between
        if second % max(seconds // 10, 1) == 0:
            memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    requests, events = _RATE * seconds, live.requests.seen
    print(
        f"{connections:,} connections, {servers:,} kinds, {seconds} s of {_RATE:,} requests a "
        f"second: {took / events:.0f} ns an event, {took / requests:.0f} ns a request, "
        f"{(took + looked) / seconds / 1e7:.2f} % of one cpu (looking at conditions "
        f"{looked / seconds / 1e7:.2f}); {live.requests.count_tables()[0]:,} endpoints, "
        f"{live.requests.forgotten:,} forgotten; "
        f"memory {', '.join(f'{mib:.0f}' for mib in memory)} MiB",
        flush=True,
    )


def main() -> None:
    """Print cost and memory of a few servers, and of full tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--long", type=int, default=120, help="seconds of full tables")
    asked = parser.parse_args()
    measure(50, 5, asked.seconds)
    measure(9_900, 1_000, asked.long)


if __name__ == "__main__":
    main()
