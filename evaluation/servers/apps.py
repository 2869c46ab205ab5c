"""The Python servers of the evaluation; rows of the truth are as in ``pool.c``.

WSGI: ``wsgi_postgres`` (gunicorn), ``wsgi_redis`` (cheroot: ``python apps.py cheroot PORT``).
ASGI without sub-requests: ``asgi_plain``. One loop that asks Redis over kept connections:
``python apps.py loop PORT``; environment ``KIND`` is what else it does meanwhile: ``plain``,
``sleep``, ``executor``, or ``connect`` (a connection for each request). Three kinds of requests
that ask PostgreSQL (asyncpg) and Redis (redis.asyncio) over pools: ``asgi_shop`` and
``python apps.py aiohttp PORT``. Through PgBouncer: ``wsgi_pooled``. One process accepts, others
serve what it hands over: ``python apps.py handed PORT``.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

_local = threading.local()
_ANSWER = [("Content-Type", "text/plain"), ("Content-Length", "3")]


def compute(rounds: int) -> int:
    """Compute in Python, with the interpreter's lock."""
    total = 0
    for i in range(rounds):
        total += i & 7
    return total


def log(number: int, begin: int, peer: object, asked: Iterable[str]) -> None:
    """Write a row of the truth, in one piece."""
    now = time.monotonic_ns()
    row = (number, threading.get_native_id(), begin, now, peer, *asked)
    if not hasattr(_local, "truth"):
        _local.truth = os.open(os.environ["TRUTH"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(_local.truth, (" ".join(map(str, row)) + "\n").encode())


def _number(environ: dict[str, Any]) -> int:
    return int(parse_qs(environ["QUERY_STRING"])["id"][0])


def wsgi_postgres(environ: dict[str, Any], start: Callable[..., object]) -> list[bytes]:
    """Answer after a query of this process's own connection to PostgreSQL."""
    import psycopg2

    begin = time.monotonic_ns()
    if not hasattr(_local, "database"):
        _local.database = psycopg2.connect(
            host="127.0.0.1", port=os.environ["POSTGRES"], user="postgres", dbname="postgres"
        )
        _local.database.autocommit = True
        with socket.fromfd(_local.database.fileno(), socket.AF_INET, socket.SOCK_STREAM) as copy:
            _local.port = copy.getsockname()[1]
    number = _number(environ)
    compute(5_000 + number * 7919 % 10_000)
    cursor = _local.database.cursor()
    asked = time.monotonic_ns()
    cursor.execute("select count(*) from generate_series(1, %s)", (500 + number % 2000,))
    cursor.fetchone()
    answered = time.monotonic_ns()
    log(number, begin, environ.get("REMOTE_PORT", 0), [f"{_local.port}:{asked}:{answered}"])
    start("200 OK", _ANSWER)
    return [b"ok\n"]


def wsgi_redis(environ: dict[str, Any], start: Callable[..., object]) -> list[bytes]:
    """Answer after asking Redis over this thread's own connection."""
    begin = time.monotonic_ns()
    if not hasattr(_local, "redis"):
        _local.redis = socket.create_connection(("127.0.0.1", int(os.environ["REDIS"])))
        _local.redis.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    number = _number(environ)
    compute(3_000 + number * 7919 % 10_000)
    port = _local.redis.getsockname()[1]
    asked = time.monotonic_ns()
    _local.redis.sendall(b"INCR c%d\r\n" % (number % 50))
    _local.redis.recv(100)
    log(number, begin, environ.get("REMOTE_PORT", 0), [f"{port}:{asked}:{time.monotonic_ns()}"])
    start("200 OK", _ANSWER)
    return [b"ok\n"]


def wsgi_pooled(environ: dict[str, Any], start: Callable[..., object]) -> list[bytes]:
    """Ask PostgreSQL through PgBouncer, alone or in a transaction.

    Each call is logged twice: from this process's port, and from PgBouncer's, as PostgreSQL says.
    """
    import psycopg2

    begin = time.monotonic_ns()
    if not hasattr(_local, "pooler"):
        _local.pooler = psycopg2.connect(
            host="127.0.0.1", port=os.environ["POOLER"], user="postgres", dbname="postgres"
        )
        _local.pooler.autocommit = True
        with socket.fromfd(_local.pooler.fileno(), socket.AF_INET, socket.SOCK_STREAM) as copy:
            _local.port = copy.getsockname()[1]
    number = _number(environ)
    compute(5_000)
    cursor, calls, ports = _local.pooler.cursor(), [], []
    query = "select inet_client_port(), count(*) from generate_series(1, %s)"
    for text in ((query,), ("begin", query, "commit"), (query, query))[number % 3]:
        asked = time.monotonic_ns()
        cursor.execute(text, (500 + number * 7919 % 3000,) if text == query else ())
        if text == query:
            ports.append(cursor.fetchone()[0])
        calls.append(f"{asked}:{time.monotonic_ns()}")
    ports *= len(calls) // len(ports)  # a transaction has one connection
    pairs = zip(ports, calls, strict=True)
    logged = [f"{of}:{call}" for port, call in pairs for of in (_local.port, port)]
    log(number, begin, environ.get("REMOTE_PORT", 0), logged)
    start("200 OK", _ANSWER)
    return [b"ok\n"]


def wsgi_shop(environ: dict[str, Any], start: Callable[..., object]) -> list[bytes]:
    """Ask PostgreSQL and Redis, and write a line; ``FAULT`` is what is wrong with that."""
    import psycopg2

    fault = os.environ.get("FAULT", "")
    if fault == "connect" or not hasattr(_local, "database"):
        _local.database = psycopg2.connect(
            host="127.0.0.1", port=os.environ["POSTGRES"], user="postgres", dbname="postgres"
        )
        _local.database.autocommit = True
    if not hasattr(_local, "redis"):
        _local.redis = socket.create_connection(("127.0.0.1", int(os.environ["REDIS"])))
        _local.log = os.open(os.environ["TRUTH"], os.O_WRONLY | os.O_APPEND)
    number = _number(environ)
    compute(10_000)
    cursor = _local.database.cursor()
    query = "select count(*) from indexed where owner = %s"
    if fault == "index":
        query = query.replace("indexed", "plain")
    cursor.execute(query, (number % 400,))
    cursor.execute("update counters set n = n + 1 where id = %s", (1 + number % 50,))
    slow = b"EVAL 'local x=0 for i=1,400000 do x=x+i end return x' 0\r\n"
    _local.redis.sendall(slow if fault == "redis" else b"INCR s%d\r\n" % (number % 50))
    _local.redis.recv(100)
    os.write(_local.log, b"%d served\n" % number)
    if fault == "fsync":
        os.fsync(_local.log)
    if fault == "connect":
        _local.database.close()
    start("200 OK", _ANSWER)
    return [b"ok\n"]


async def asgi_plain(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer at once, after a little work."""
    if scope["type"] != "http":
        return
    begin = time.monotonic_ns()
    number = int(parse_qs(scope["query_string"].decode())["id"][0])
    await receive()
    compute(2_000)
    log(number, begin, scope["client"][1], [])
    headers = [(name.lower().encode(), value.encode()) for name, value in _ANSWER]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok\n"})


async def asgi_slow(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer after a sleep of up to 3 ms."""
    if scope["type"] == "http":
        await asyncio.sleep(random.random() * 0.003)
    await asgi_plain(scope, receive, send)


class Loop:
    """One loop: kept connections to Redis, or one for each request."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
        self.free = asyncio.Queue()

    @staticmethod
    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to Redis."""
        return await asyncio.open_connection("127.0.0.1", int(os.environ["REDIS"]))

    async def query(self, number: int) -> str:
        """Ask Redis once."""
        if self.kind == "connect":
            reader, writer = await self.connect()
        else:
            reader, writer = await self.free.get()
        port = writer.get_extra_info("sockname")[1]
        asked = time.monotonic_ns()
        writer.write(b"INCR a%d\r\n" % (number % 50))
        await reader.readline()
        answered = time.monotonic_ns()
        if self.kind == "connect":
            writer.close()
        else:
            self.free.put_nowait((reader, writer))
        return f"{port}:{asked}:{answered}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        peer = writer.get_extra_info("peername")[1]
        while head := await reader.readuntil(b"\r\n\r\n"):
            begin = time.monotonic_ns()
            number = int(re.search(rb"id=(\d+)", head)[1])
            compute(2_000)
            asked = [await self.query(number)]
            if self.kind == "sleep":
                await asyncio.sleep(random.random() * 0.003)
            elif self.kind == "executor":
                await asyncio.get_running_loop().run_in_executor(None, compute, 3_000)
            else:
                compute(3_000)
            asked.append(await self.query(number))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")
            log(number, begin, peer, asked)

    async def run(self, port: int) -> None:
        """Listen until the process ends."""
        for _ in range(0 if self.kind == "connect" else 8):
            self.free.put_nowait(await self.connect())

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self.serve(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=256)
        await server.serve_forever()


# What requests of three kinds do: Q asks PostgreSQL, C Redis, "." computes, "-" sleeps, and "?"
# ends in seven of ten, as where a cache has the answer.
_WAYS = {
    "shop": ("QC", "CCQ", "Q.Q"),
    "orders": ("QCQ", "CQC", "CQ"),
    "cache": ("C?Q", "C?QC", "QQ"),
    "naps": ("Q-C", "C-CQ", "Q-Q"),
}


class Shop:
    """Requests of three kinds that ask PostgreSQL and Redis over pools, some twice the same.

    Their calls are of one size, only what they are called differs.  ``WAYS`` is what they do,
    ``POOL`` how many connections each pool has.
    """

    def __init__(self) -> None:
        self.pool: Any = None
        self.redis: Any = None
        self.ways = _WAYS[os.environ.get("WAYS", "shop")]
        self.size = int(os.environ.get("POOL", "8"))

    async def open(self) -> None:
        """Open both pools, with all their connections."""
        import asyncpg
        import redis.asyncio

        self.pool = await asyncpg.create_pool(
            host="127.0.0.1", port=int(os.environ["POSTGRES"]), user="postgres",
            database="postgres", min_size=self.size, max_size=self.size,
        )  # fmt: skip
        self.redis = redis.asyncio.BlockingConnectionPool(
            host="127.0.0.1",
            port=int(os.environ["REDIS"]),
            max_connections=self.size,
            timeout=60,
        )

    async def query(self, rows: int, number: int) -> str:
        """Ask PostgreSQL once; with ``COMMENTS`` it says for which trace (`client.c`)."""
        trace, of = number + 1, ("orders", "basket", "stocks")[number % 3]
        statement = f"select count(*) as {of} from generate_series(1, $1::int)"  # noqa: S608
        if "COMMENTS" in os.environ:
            statement += f" /*traceparent='00-{trace:032x}-{trace:016x}-01'*/"
        async with self.pool.acquire() as connection:
            port = connection._con._transport.get_extra_info("sockname")[1]
            asked = time.monotonic_ns()
            await connection.fetchval(statement, rows)
            return f"{port}:{asked}:{time.monotonic_ns()}"

    async def count(self, number: int) -> str:
        """Ask Redis once."""
        connection = await self.redis.get_connection()
        try:
            port = connection._writer.get_extra_info("sockname")[1]
            asked = time.monotonic_ns()
            await connection.send_command("INCR", f"a{number % 10}")
            await connection.read_response()
            return f"{port}:{asked}:{time.monotonic_ns()}"
        finally:
            await self.redis.release(connection)

    async def answer(self, number: int, begin: int, peer: int) -> None:
        """Do what a request of its kind does."""
        rows = 200 + number * 7919 % 3000
        compute(2_000)
        asked: list[str] = []
        for does in self.ways[number % 3]:
            if does == "Q":
                asked.append(await self.query(rows, number))
            elif does == "C":
                asked.append(await self.count(number))
            elif does == "-":
                await asyncio.sleep(0.002)
            elif does == ".":
                compute(1_000)
            elif number * 7919 % 10 < 7:
                break
        log(number, begin, peer, asked)


_shop = Shop()


async def asgi_shop(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer requests of `Shop` in an ASGI server."""
    if scope["type"] == "lifespan":
        await receive()
        await _shop.open()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    begin = time.monotonic_ns()
    number = int(parse_qs(scope["query_string"].decode())["id"][0])
    await receive()
    await _shop.answer(number, begin, scope["client"][1])
    headers = [(name.lower().encode(), value.encode()) for name, value in _ANSWER]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok\n"})


def serve_aiohttp(port: int) -> None:
    """Answer requests of `Shop` with aiohttp."""
    from aiohttp import web

    async def handle(request: web.Request) -> web.Response:
        begin = time.monotonic_ns()
        peer = request.transport.get_extra_info("peername")[1]
        await _shop.answer(int(request.query["id"]), begin, peer)
        return web.Response(text="ok\n")

    async def start(_: web.Application) -> None:
        await _shop.open()

    app = web.Application()
    app.on_startup.append(start)
    app.router.add_get("/{path:.*}", handle)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


class Datagrams(asyncio.DatagramProtocol):
    """Answers each datagram after a sleep: later ones overtake."""

    def connection_made(self, transport: Any) -> None:
        """Take note of what answers are sent over."""
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer one."""
        begin = time.monotonic_ns()

        def answer() -> None:
            self.transport.sendto(data, addr)
            log(int(data), begin, addr[1], [])

        asyncio.get_running_loop().call_later(random.random() * 0.003, answer)


async def serve_datagrams(port: int) -> None:
    """Serve until the process ends."""
    make = asyncio.get_running_loop().create_datagram_endpoint
    await make(Datagrams, local_addr=("127.0.0.1", port))
    await asyncio.get_running_loop().create_future()


def answer_datagrams(port: int) -> None:
    """Answer one datagram after the other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as served:
        served.bind(("127.0.0.1", port))
        while True:
            data, address = served.recvfrom(2048)
            begin = time.monotonic_ns()
            compute(3_000)
            served.sendto(data, address)
            log(int(data), begin, address[1], [])


def serve_handed(port: int, processes: int = 2) -> None:
    """Accept here, and hand each connection over to one of the processes that serve."""
    ends = []
    for _ in range(processes):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        if not os.fork():
            while True:
                _, (fd,), _, _ = socket.recv_fds(theirs, 1, 1)
                threading.Thread(target=_serve_connection, args=(socket.socket(fileno=fd),)).start()
        ends.append(ours)
    with socket.create_server(("127.0.0.1", port), backlog=256) as listening:
        for number in itertools.count():
            connection, _ = listening.accept()
            socket.send_fds(ends[number % processes], [b"x"], [connection.fileno()])
            connection.close()


def _serve_connection(connection: socket.socket) -> None:
    """Answer HTTP over one connection."""
    peer = connection.getpeername()[1]
    with connection, connection.makefile("rb") as reading:
        while head := reading.readline():
            while reading.readline().strip():
                pass
            query = head.split()[1].decode().partition("?")[2]
            said = {"QUERY_STRING": query, "REMOTE_PORT": peer}
            body = b"".join(wsgi_redis(said, lambda *_: None))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n" + body)


def main() -> None:
    """Serve what the command line names."""
    what, port = sys.argv[1], int(sys.argv[2])
    if what == "loop":
        asyncio.run(Loop(os.environ["KIND"]).run(port))
    elif what == "aiohttp":
        serve_aiohttp(port)
    elif what == "datagrams":
        asyncio.run(serve_datagrams(port))
    elif what == "datagram":
        answer_datagrams(port)
    elif what == "handed":
        serve_handed(port)
    elif what == "cheroot":
        from cheroot import wsgi

        server = wsgi.Server(("127.0.0.1", port), wsgi_redis, numthreads=8)
        server.keep_alive_conn_limit = 1000
        server.start()


if __name__ == "__main__":
    main()
