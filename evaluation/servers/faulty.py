"""Python servers of `faults.py`: each right, and with what ``FAULT`` names.

``uvicorn faulty:answer`` (a loop; asyncpg), ``faulty.py threads PORT`` (cheroot; SQLAlchemy and
psycopg2), ``faulty.py pricing PORT``, whom the loop asks.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

FAULT = os.environ.get("FAULT", "")
POSTGRES = os.environ.get("POSTGRES", "")
PRICING = f"http://127.0.0.1:{os.environ.get('BEHIND', '')}/price"
QUERY = "select count(*) as {what}, pg_sleep({seconds}) from generate_series(1, 500)"
ORDERS, STOCKS = (
    QUERY.format(what="orders", seconds=0.006),
    QUERY.format(what="stocks", seconds=0.006),
)
REPORT = QUERY.format(what="stocks", seconds=0.06)
CARTS = QUERY.format(what="carts", seconds=0.006)


async def ask_pricing() -> bytes:
    """Ask for a price, as asyncio does: the loop works for others meanwhile."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["BEHIND"]))
    writer.write(b"GET /price HTTP/1.0\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


class Loop:
    """Three kinds of requests of one loop."""

    def __init__(self) -> None:
        self.pool: Any = None
        self.prices = [{"id": number, "price": number * 1.1} for number in range(12_000)]

    async def open(self) -> None:
        """Open all connections."""
        import asyncpg

        many = 2 if FAULT == "pool" else 8
        self.pool = await asyncpg.create_pool(
            host="127.0.0.1", port=int(POSTGRES), user="postgres", database="postgres",
            min_size=many, max_size=many,
        )  # fmt: skip

    async def ask(self, query: str) -> None:
        """Ask PostgreSQL."""
        async with self.pool.acquire() as connection:
            await connection.fetchrow(query)

    async def answer(self, path: str) -> None:
        """Do what a request of its kind does."""
        if path == "/order":
            await self.ask(ORDERS)
        elif path == "/carts":
            await self.ask(CARTS)
            await self.ask(ORDERS)
        elif FAULT == "blocking":
            with urllib.request.urlopen(PRICING) as answer:  # noqa: ASYNC210 - the fault
                answer.read()
        elif FAULT == "cpu":
            json.loads(json.dumps(self.prices))
        elif FAULT == "pool":
            await self.ask(STOCKS)
        else:
            await ask_pricing()


_loop = Loop()


async def answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer requests in an ASGI server."""
    if scope["type"] == "lifespan":
        await receive()
        await _loop.open()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await receive()
    await _loop.answer(scope["path"])
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"3")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok\n"})


def serve_threads(port: int) -> None:
    """Answer in 16 threads that share four connections."""
    import sqlalchemy
    from cheroot import wsgi

    engine = sqlalchemy.create_engine(
        f"postgresql+psycopg2://postgres@127.0.0.1:{POSTGRES}/postgres",
        pool_size=4,
        max_overflow=0,
    )
    asks = {
        "/order": [ORDERS],
        "/carts": [CARTS, ORDERS],
        "/stock": [REPORT if FAULT == "report" else STOCKS],
    }

    def serve(environ: dict[str, Any], start: Callable[..., object]) -> list[bytes]:
        for query in asks[environ["PATH_INFO"]]:
            with engine.connect() as connection:
                connection.execute(sqlalchemy.text(query)).fetchall()
        start("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "3")])
        return [b"ok\n"]

    server = wsgi.Server(("127.0.0.1", port), serve, numthreads=16)
    server.keep_alive_conn_limit = 1000
    server.start()


async def serve_prices(port: int) -> None:
    """Answer after 15 ms, until the process ends."""
    ctypes.CDLL(None).prctl(15, b"pricing", 0, 0, 0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline():
            await asyncio.sleep(0.015)
            writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n100")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "threads":
        serve_threads(int(sys.argv[2]))
    else:
        asyncio.run(serve_prices(int(sys.argv[2])))
