"""The application of the experiment: eight kinds of work in five patterns of requests, and four
more (``HELD_OUT``) that nothing was developed with. Pattern 6 is a loop before a pool of threads.

``wsgi`` (pattern 1, gunicorn with threads) and ``asgi`` (2 to 6, uvicorn); environment ``WORK``,
``PATTERN``, ``REDIS``, ``POSTGRES``, ``OUTER`` (addresses), ``TRUTH``, ``ALIKE``. A request names
itself by ``X-Request-ID``, makes a call, works, and makes a call. ``GET /truth`` writes what was
noted meanwhile to a file: of each request and of each call a row, with the asking port::

    begin ID THREAD PEER_PORT TIME TIME
    call ID THREAD LOCAL_PORT TIME TIME SERVICE
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

PORTS: Final = {"web": 8080, "app": 8000, "redis": 6379, "postgres": 5432, "outer": 8090}
WORK, PATTERN = os.environ.get("WORK", "cpu"), int(os.environ.get("PATTERN", "1"))
PLACE: Final = Path(os.environ.get("TRUTH", "truth")).parent
CPU_S, SLEEP_S, LOCK_S = 0.002, 0.003, 0.001
POOL = ThreadPoolExecutor(8)  # of pattern 6; its threads keep their connections
NOTED: list[str] = []
Result = tuple[int, int, int]  # the asking port, when it was asked and answered
_LOCK = threading.Lock()
# Written down before the first of their recordings was made, with other first and last calls:
# a digest in native code; two queries one after the other; another server for every third request
# only; a sleep of 1 to 5 ms that differs from request to request.
HELD_OUT: Final = ("digest", "twice", "branch", "nap")
# What a request asks first and last; ALIKE: twice the same, which leaves only order and time.
CALLS: Final = (
    ("incr", "incr")
    if "ALIKE" in os.environ
    else ("hset", "lrange")
    if WORK in HELD_OUT
    else ("get", "set")
)
_REDIS: Final = {
    "incr": b"INCR n\r\n",
    "get": b"GET key\r\n",
    "set": b"SET key value\r\n",
    "hset": b"HSET basket item 3\r\n",
    "lrange": b"LRANGE none 0 5\r\n",
}
_GET: Final = b"GET / HTTP/1.1\r\nHost: outer\r\n\r\n"
_SQL: Final = {"select1": "select 1", "select2": "select i, 'row' from generate_series(1, 300) i"}


def note(what: str, request: int, port: int, begin: int, end: int, of: str = "") -> None:
    """Note something of a request."""
    NOTED.append(f"{what} {request} {threading.get_native_id()} {port} {begin} {end} {of}".rstrip())


def dump() -> bytes:
    """Write what was noted to the file of the truth."""
    Path(os.environ["TRUTH"]).write_text("\n".join(NOTED) + "\n")
    NOTED.clear()
    return b"ok\n"


def spin(seconds: float) -> None:
    """Use the processor for a time of this thread."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def use_disk(request: int) -> None:
    """Read a file that is in no cache, or write one through to the disk."""
    file = PLACE / f"data-{request % 8}"
    if WORK == "iowrite":
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(descriptor, b"x" * 4096)
        os.fsync(descriptor)
    else:
        descriptor = os.open(PLACE / f"read-{request % 8}", os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.read(descriptor, 65536)
    os.close(descriptor)


def nap_s(request: int) -> float:
    """Return for how long a request sleeps: 1 to 5 ms."""
    return 0.001 + (request * 2654435761 % 2**32) / 2**32 * 0.004


def calls_between(request: int) -> tuple[str, ...]:
    """Return what a request asks between its first and its last call."""
    asked = {"twice": ("select1", "select2"), "branch": ("outer",) * (request % 3 == 0)}
    alone = ("select1", "select2", "outer")
    return asked.get(WORK, (WORK,) if WORK in alone else ())


def message(work: str) -> bytes:
    """Return what is asked for a kind of work."""
    if work in _SQL:
        text = _SQL[work].encode() + b"\0"
        return b"Q" + struct.pack(">i", 4 + len(text)) + text
    return _GET if work == "outer" else _REDIS[work]


def service(work: str) -> str:
    """Return who is asked for a kind of work."""
    return "postgres" if work in _SQL else "outer" if work == "outer" else "redis"


def hello() -> bytes:
    """Return what a connection to PostgreSQL begins with."""
    words = b"user\0postgres\0database\0postgres\0\0"
    return struct.pack(">ii", 8 + len(words), 196608) + words


def answered(name: str, data: bytes) -> bool:
    """Return whether an answer is whole."""
    if name == "postgres":  # ready for the next query, at the end
        return data[-6:-1] == b"Z\0\0\0\5"
    return data.endswith(b"ok\n" if name == "outer" else b"\r\n")


# Threads: a connection of its own for each.

_own = threading.local()


def call(request: int, work: str) -> None:
    """Ask, and note it."""
    name = service(work)
    if not hasattr(_own, "ends"):
        _own.ends = {}
    if name not in _own.ends:
        _own.ends[name] = end = socket.create_connection((os.environ[name.upper()], PORTS[name]))
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if name == "postgres":
            end.sendall(hello())
            _receive(end, name)
    end = _own.ends[name]
    begin = time.monotonic_ns()
    end.sendall(message(work))
    _receive(end, name)
    note("call", request, end.getsockname()[1], begin, time.monotonic_ns(), name)


def _receive(end: socket.socket, name: str) -> None:
    data = b""
    while not answered(name, data):
        more = end.recv(65536)
        if not more:
            raise ConnectionError(name)
        data += more


def work_in_thread(request: int) -> None:
    """Make the calls of a request, and work between them."""
    call(request, CALLS[0])
    if WORK == "cpu":
        spin(CPU_S)
    elif WORK == "sleep":
        time.sleep(SLEEP_S)
    elif WORK.startswith("io"):
        use_disk(request)
    elif WORK == "lock":
        with _LOCK:
            time.sleep(LOCK_S)
    elif WORK == "digest":
        hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 3000)
    elif WORK == "nap":
        time.sleep(nap_s(request))
    for work in calls_between(request):
        call(request, work)
    call(request, CALLS[1])


def wsgi(environ: dict[str, Any], start: Callable[..., object]) -> list[bytes]:
    """Serve a request in a thread (pattern 1)."""
    begin = time.monotonic_ns()
    if environ["PATH_INFO"] == "/truth":
        body = dump()
    else:
        request = int(environ["HTTP_X_REQUEST_ID"])
        work_in_thread(request)
        port = int(environ["REMOTE_PORT"])
        note("begin", request, port, begin, time.monotonic_ns())
        body = b"ok\n"
    start("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


# The loop: connections that are free are used again, the last one first.

_free: dict[str, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = {}
_tasks: set[asyncio.Task[None]] = set()
_loop_lock: list[asyncio.Lock] = []


async def call_async(request: int, work: str) -> None:
    """Ask, and note it."""
    name = service(work)
    free = _free.setdefault(name, [])
    if free:
        reader, writer = free.pop()
    else:
        reader, writer = await asyncio.open_connection(os.environ[name.upper()], PORTS[name])
        if name == "postgres":
            writer.write(hello())
            await _receive_async(reader, name)
    begin = time.monotonic_ns()
    writer.write(message(work))
    await _receive_async(reader, name)
    port = writer.get_extra_info("sockname")[1]
    note("call", request, port, begin, time.monotonic_ns(), name)
    free.append((reader, writer))


async def _receive_async(reader: asyncio.StreamReader, name: str) -> None:
    data = b""
    while not answered(name, data):
        more = await reader.read(65536)
        if not more:
            raise ConnectionError(name)
        data += more


async def work_in_loop(request: int) -> None:
    """Make the calls of a request, and work between them."""
    await call_async(request, CALLS[0])
    if WORK == "cpu":
        spin(CPU_S)
    elif WORK == "sleep":
        await asyncio.sleep(SLEEP_S)
    elif WORK.startswith("io"):
        use_disk(request)
    elif WORK == "lock":
        if not _loop_lock:
            _loop_lock.append(asyncio.Lock())
        async with _loop_lock[0]:
            await asyncio.sleep(LOCK_S)
    elif WORK == "digest":
        hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 3000)
    elif WORK == "nap":
        await asyncio.sleep(nap_s(request))
    for work in calls_between(request):
        await call_async(request, work)
    await call_async(request, CALLS[1])


async def new_thread(request: int) -> None:
    """Do the work in a thread that is made for it."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def run() -> None:
        work_in_thread(request)
        for end in _own.ends.values():
            end.close()
        loop.call_soon_threadsafe(done.set_result, None)

    threading.Thread(target=run).start()
    await done


async def in_pool(request: int) -> None:
    """Do the work in a thread of the pool."""
    await asyncio.get_running_loop().run_in_executor(POOL, work_in_thread, request)


async def asgi(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[Any]],
    send: Callable[[Any], Awaitable[None]],
) -> None:
    """Serve a request by a loop (patterns 2 to 6)."""
    if scope["type"] != "http":
        return
    begin = time.monotonic_ns()
    await receive()
    work = {3: new_thread, 5: new_thread, 6: in_pool}.get(PATTERN, work_in_loop)
    body, request = b"ok\n", -1
    if scope["path"] == "/truth":
        body = dump()
    else:
        request = int(dict(scope["headers"])[b"x-request-id"])
        if PATTERN not in {4, 5}:
            await work(request)
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
    if request >= 0:
        note("begin", request, scope["client"][1], begin, time.monotonic_ns())
        if PATTERN in {4, 5}:
            task = asyncio.create_task(work(request))
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)
