"""Applications as many are written, for gunicorn, waitress and aiohttp; a query asks for the fault.

A parameter of a request (``?n=20``) stands for the change of the code that makes it slower.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import http.client
import os
import sys
import tempfile
import threading
import time

_BLOCK = bytes(4096)


def compute(ms: float) -> int:
    """Compute in Python, with the interpreter's lock, a fixed amount of work (about `ms`)."""
    total = 0
    for i in range(int(ms * 14_000)):
        total += i & 7
    return total


def hash_blocks(ms: float) -> None:
    """Compute without the interpreter's lock, a fixed amount of work."""
    for _ in range(int(ms * 300)):
        hashlib.sha256(_BLOCK).digest()


def name_thread(name: str) -> None:
    """Name the thread, as the kernel knows it."""
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)


def _port(name: str) -> int:
    return int(os.environ[f"PORT_{name}"])


class _Shop:
    """What a worker of the web application keeps open."""

    def __init__(self) -> None:
        import psycopg2
        import redis

        self.pg = psycopg2.connect(
            host="127.0.0.1", port=_port("POSTGRES"), user="postgres", dbname="postgres"
        )
        self.pg.autocommit = True
        self.cursor = self.pg.cursor()
        self.redis = redis.Redis(port=_port("REDIS"))
        self.tax = http.client.HTTPConnection("127.0.0.1", _port("TAX"))
        self.audit = tempfile.TemporaryFile(dir="/var/tmp")  # noqa: SIM115 - while it lives

    def one(self, number: int) -> object:
        self.cursor.execute("select note from items where id = %s", (number,))
        return self.cursor.fetchone()


_shop: _Shop | None = None


def _open_shop() -> _Shop:
    global _shop  # noqa: PLW0603 - one for each worker
    if _shop is None:
        _shop = _Shop()
    return _shop


def _make_flask() -> object:
    from flask import Flask, request

    app = Flask("shop")

    def number(name: str, default: float) -> float:
        return float(request.args.get(name, default))

    def spend(shop: _Shop) -> None:
        compute(number("cpu", 0))
        if number("sleep", 0):
            time.sleep(number("sleep", 0) / 1000)
        for _ in range(int(number("audit", 0))):
            os.pwrite(shop.audit.fileno(), _BLOCK, 0)
            os.fsync(shop.audit.fileno())
        for _ in range(int(number("taxes", 0))):
            shop.tax.request("GET", f"/?ms={number('tax', 1)}&sleep={number('taxsleep', 0)}")
            shop.tax.getresponse().read()

    @app.get("/list")
    def listing() -> str:
        """A list of twenty things, one query for all or one for each."""
        shop = _open_shop()
        compute(1)
        n = int(number("n", 1))
        shop.cursor.execute("select id, note from indexed where owner = 7 limit 20")
        rows = shop.cursor.fetchall()
        for i in range(n - 1):
            shop.one(i + 1)
        spend(shop)
        return str(len(rows))

    @app.get("/item")
    def item() -> str:
        """A page that a cache keeps: `rows` are what it costs to make it."""
        shop = _open_shop()
        compute(0.5)
        if not number("miss", 0):
            page = shop.redis.get("page")
        else:
            shop.cursor.execute(
                "select sum(price), count(*) from items where id <= %s",
                (int(number("rows", 5000)),),
            )
            page = str(shop.cursor.fetchone())
            shop.redis.set("page", page)
        spend(shop)
        return str(page)

    @app.get("/login")
    def login() -> str:
        shop = _open_shop()
        hash_blocks(1.5)
        shop.one(5)
        spend(shop)
        return "welcome"

    return app


def _make_tax() -> object:
    from flask import Flask, request

    app = Flask("tax")

    @app.get("/")
    def tax() -> str:
        name_thread("tax")
        compute(float(request.args.get("ms", 1)))
        time.sleep(float(request.args.get("sleep", 0)) / 1000)
        return "19 %"

    return app


class _Background:
    """A thread of the threaded application, which a query puts to work."""

    def __init__(self, name: str) -> None:
        self.lock = threading.Lock()
        self.busy = 0.0
        self.rest = 0.002
        self.holding = False
        self.until = 0.0
        threading.Thread(target=self._run, args=(name,), daemon=True).start()

    def _run(self, name: str) -> None:
        name_thread(name)
        while True:
            if time.monotonic() > self.until:
                time.sleep(0.02)
            elif self.holding:
                with self.lock:
                    hash_blocks(self.busy)
                time.sleep(self.rest)
            else:
                compute(self.busy)
                time.sleep(self.rest)


def _make_threads() -> object:
    from flask import Flask, request

    app = Flask("threads")
    threads = {"stats": _Background("stats"), "flusher": _Background("flusher")}
    threads["flusher"].holding = True

    @app.get("/work")
    def work() -> str:
        name_thread("handler")
        lock = threads["flusher"].lock
        for _ in range(int(request.args.get("steps", 4))):
            compute(float(request.args.get("cpu", 1)))
            with lock:
                compute(0.1)
        return "done"

    @app.get("/background")
    def background() -> str:
        thread = threads[request.args["thread"]]
        thread.busy = float(request.args["busy"])
        thread.rest = float(request.args["rest"]) / 1000
        thread.until = time.monotonic() + float(request.args["seconds"])
        return "it runs"

    return app


async def _serve_aiohttp(port: int) -> None:
    import redis.asyncio
    from aiohttp import web

    name_thread("aioserver")
    store = redis.asyncio.Redis(port=_port("REDIS"))
    until, busy = 0.0, 0.0

    async def work(request: web.Request) -> web.Response:
        for _ in range(int(request.query.get("n", 2))):
            await store.get("page")
        compute(float(request.query.get("cpu", 1)))
        if "retry" in request.query:
            await asyncio.sleep(float(request.query["retry"]) / 1000)
        if "thread" in request.query:
            await asyncio.to_thread(_render, float(request.query["thread"]))
        return web.Response(text="done")

    def _render(ms: float) -> None:
        name_thread("render")
        hash_blocks(ms)

    async def background(request: web.Request) -> web.Response:
        nonlocal until, busy
        busy = float(request.query["busy"])
        until = time.monotonic() + float(request.query["seconds"])
        return web.Response(text="it runs")

    async def export() -> None:
        while True:
            await asyncio.sleep(0.003 if time.monotonic() < until else 0.05)
            if time.monotonic() < until:
                time.sleep(busy / 1000)  # blocks the loop: what this case is about

    app = web.Application()
    app.add_routes([web.get("/work", work), web.get("/background", background)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await export()


if __name__ == "__main__":
    asyncio.run(_serve_aiohttp(int(sys.argv[1])))
elif "gunicorn" in sys.argv[0]:
    flask_app, tax_app = _make_flask(), _make_tax()
else:
    threads_app = _make_threads()
