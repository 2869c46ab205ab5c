"""Asks the night's stack at a varying rate: ``python load.py PORT SECONDS FILE [--rate R]``.

Requests come as they come (open loop): the rate goes up and down, and has bursts. FILE gets a
line for each: when it ended (s since 1970), which it was, how long it took (ms), HTTP's status.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import time
from pathlib import Path

KINDS = ("cart", "feed")
_DAY = 120.0  # s in which the rate goes up and down once, as it does in a day
_BURST = (4.0, 45.0)  # s of a burst, and between two on average


class Load:
    """Connections that are kept, and what was asked over them."""

    def __init__(self, port: int, file: Path) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._file = file.open("w", buffering=1)

    async def ask(self, kind: str) -> None:
        begin, status = time.monotonic(), 0
        try:
            reader, writer = (
                self._idle.pop()
                if self._idle
                else await asyncio.open_connection("127.0.0.1", self._port)
            )
            writer.write(f"GET /{kind} HTTP/1.1\r\nHost: shop\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(None, 2)[1])
            size = next(
                (int(line[15:]) for line in head.split(b"\r\n")
                 if line.lower().startswith(b"content-length:")), 0,
            )  # fmt: skip
            await reader.readexactly(size)
            self._idle.append((reader, writer))
        except (OSError, EOFError, ValueError):
            pass
        took = 1000 * (time.monotonic() - begin)
        self._file.write(f"{time.time():.3f} {kind} {took:.2f} {status}\n")

    async def run(self, seconds: float, rate: float, seed: int) -> None:
        coin = random.Random(seed)
        begin = time.monotonic()
        burst_until, asking = 0.0, set()
        due = begin
        while due < begin + seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            now = rate * (1 + 0.4 * math.sin(2 * math.pi * (due - begin) / _DAY))
            if due < burst_until:
                now *= 1.6
            elif coin.random() < 1 / (now * _BURST[1]):
                burst_until = due + _BURST[0]
            task = asyncio.create_task(self.ask(coin.choice(KINDS)))
            asking.add(task)
            task.add_done_callback(asking.discard)
            due += coin.expovariate(now)


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("port", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rate", type=float, default=60.0, help="requests a second, on average")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    asyncio.run(Load(given.port, given.file).run(given.seconds, given.rate, given.seed))


if __name__ == "__main__":
    main()
