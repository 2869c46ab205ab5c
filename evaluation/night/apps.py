"""The two applications of the night's stack: threads (gunicorn) and asyncio (aiohttp).

Nothing of a request tells its fault: a byte in a shared file does (`faults.py`), which costs no
system call. The applications find everything in the directory that NIGHT names.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import hashlib
import http.client
import json
import mmap
import os
import queue
import socket
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from faults import FLAGS

NIGHT = Path(os.environ["NIGHT"])
PORTS = json.loads((NIGHT / "ports.json").read_text())
_READ = 256 * 1024
_LIST = "select note from items where owner = %s limit 20"
_ONE = "select note from items where id = %s"
_DEAR = "select sum(price), max(note) from items where id <= $1"


class Flags:
    """Which faults are on."""

    def __init__(self) -> None:
        with (NIGHT / "flags").open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), len(FLAGS), access=mmap.ACCESS_READ)

    def __call__(self, name: str) -> bool:
        return self._bytes[FLAGS.index(name)] != 0


def name_thread(name: str) -> None:
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)


def compute(rounds: int) -> int:
    total = 0
    for i in range(rounds * 1000):
        total += i & 7
    return total


# Threads: a shop, in gunicorn.


class Shop:
    """What the workers of the shop share."""

    def __init__(self) -> None:
        import psycopg2
        import redis

        self.on = Flags()
        self.stock = threading.Lock()
        self.cache = redis.Redis(port=PORTS["redis"])
        self.pool: queue.Queue = queue.Queue()
        for _ in range(8):
            base = psycopg2.connect(
                host="127.0.0.1", port=PORTS["postgres"], user="postgres", dbname="postgres"
            )
            base.autocommit = True
            self.pool.put(base)
        self.buffer = mmap.mmap(-1, _READ)
        self.pictures = os.open(NIGHT / "pictures", os.O_RDONLY | os.O_DIRECT)
        self.journal = os.open(NIGHT / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.few = threading.Lock()  # a pool of one
        threading.Thread(target=self._report, daemon=True).start()

    def _report(self) -> None:
        """Hold the lock of the stock for long, again and again, while the fault is on."""
        name_thread("reports")
        while True:
            if not self.on("lock"):
                time.sleep(0.05)
                continue
            with self.stock:
                for _ in range(60):
                    hashlib.sha256(bytes(1 << 17)).digest()
                    time.sleep(0.0003)
            time.sleep(0.01)

    @contextmanager
    def base(self):
        if self.on("pool"):
            with self.few:
                yield self.few_base()
            return
        base = self.pool.get()
        try:
            yield base
        finally:
            self.pool.put(base)

    def few_base(self):
        base = self.pool.get()
        self.pool.put(base)
        return base

    def cart(self) -> bytes:
        """A cart: the session, a list, a detail, a picture, the stock."""
        session = self.cache.get("session")
        with self.base() as base:
            cursor = base.cursor()
            cursor.execute(_LIST, (7,))
            rows = cursor.fetchall()
            cursor.execute("select pg_sleep(0.012)")
            for number in range(20 if self.on("nplus1") else 1):
                cursor.execute(_ONE, (number,))
                rows += cursor.fetchall()
            compute(8)
        os.preadv(self.pictures, [self.buffer], _READ * (time.time_ns() // 1000 % 64))
        with self.stock:
            compute(1)
        if self.on("gc"):
            trash = [[number] for number in range(10_000)]
            for each in trash:
                each.append(trash)
            gc.collect(1)
        if self.on("fsync"):
            for _ in range(12):
                os.write(self.journal, bytes(4096))
                os.fsync(self.journal)
        return b"%d rows %r" % (len(rows), session)


def make_shop():
    shop: list[Shop] = []
    making = threading.Lock()

    def serve(environ, start_response):
        with making:
            if not shop:
                shop.append(Shop())
        body = shop[0].cart()
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    return serve


# asyncio: a feed, in aiohttp.


def look_up() -> bytes:
    """Ask for an address, as getaddrinfo does: a datagram to the name server and back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect(("127.0.0.1", PORTS["names"]))
        asking.settimeout(5)
        asking.send(b"rates.night.test")
        return asking.recv(512)


async def serve_feed() -> None:
    import asyncpg
    import psycopg2
    import redis.asyncio
    from aiohttp import ClientSession, web

    on = Flags()
    cache = redis.asyncio.Redis(port=PORTS["redis"])
    where = {"host": "127.0.0.1", "port": PORTS["postgres"], "user": "postgres"}
    pool = await asyncpg.create_pool(**where, database="postgres", min_size=4, max_size=4)
    direct = psycopg2.connect(**where, dbname="postgres")
    direct.autocommit = True
    session = ClientSession()
    rates = f"http://127.0.0.1:{PORTS['rates']}/"

    async def ask_rates() -> str:
        async with session.get(rates) as answer:
            if answer.status == 200:
                return await answer.text()
        await asyncio.sleep(0.05)  # as clients do that try again
        async with session.get(rates, headers={"X-Retry": "1"}) as answer:
            return await answer.text()

    async def feed(_request: web.Request) -> web.Response:
        await asyncio.to_thread(look_up)
        page = None if on("cache") else await cache.get("page")
        if page is None:
            async with pool.acquire() as base:
                page = str(await base.fetchrow(_DEAR, 40_000))
            await cache.set("page", page)
        if on("sync"):
            direct.cursor().execute("select pg_sleep(0.02)")
        else:
            async with pool.acquire() as base:
                await base.fetchrow("select note from items where id = $1", 7)
        rate = await ask_rates()
        compute(6)
        return web.Response(text=f"{rate} {page}")

    app = web.Application()
    app.add_routes([web.get("/feed", feed)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", PORTS["feed"]).start()
    await asyncio.Event().wait()


# What the feed asks: a name server, and a service of rates that fails at first.


def serve_names() -> None:
    name_thread("resolver")
    on = Flags()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        here.bind(("127.0.0.1", PORTS["names"]))
        while True:
            _, who = here.recvfrom(512)
            if on("dns"):
                time.sleep(0.015)  # it asks another one, which is far
            here.sendto(b"127.0.0.1", who)


async def serve_rates() -> None:
    from aiohttp import web

    name_thread("rates")
    on = Flags()

    async def rate(request: web.Request) -> web.Response:
        compute(1)
        failed = on("retry") and "X-Retry" not in request.headers
        return web.Response(text="1.08", status=503 if failed else 200)

    app = web.Application()
    app.add_routes([web.get("/", rate)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", PORTS["rates"]).start()
    await asyncio.Event().wait()


def ask_once(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    return connection.getresponse().read()


if __name__ == "__main__":
    if sys.argv[1] == "names":
        serve_names()
    else:
        asyncio.run({"feed": serve_feed, "rates": serve_rates}[sys.argv[1]]())
elif "gunicorn" in sys.argv[0]:
    shop_app = make_shop()
