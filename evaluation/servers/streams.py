"""Whether each stream of HTTP/2 is found as a request: ``python streams.py DIR [SERVER ...]``.

A gRPC server (``aio``: grpcio's asyncio; ``lib``: grpclib, all of it in Python; ``go``: grpc-go)
is asked for three methods over one connection, with up to ``--streams`` under way at once; each
asks a backend once, over a pool of connections.  Client and backend write down which request was
which.  Recorded with ``--labels-from bytes``; with ``--tls`` (of ``lib``) encrypted, and with
``bytes,tls``.  Judged: how many streams are a request with the right begin, end and name, and whose
the calls to the backend are.  Needs root, tracefs, and in the Python that is named by ``--python``:
grpcio, grpclib.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tls import make_certificate

_WARM: Final = 900_000  # what is asked before it is recorded
METHODS: Final = ("/shop.Orders/Get", "/shop.Orders/List", "/shop.Users/Find")
FRONT, BACK = 9461, 9462
POOL: Final = 8


class Pool:
    """Connections to the backend, each for one call at a time."""

    def __init__(self) -> None:
        self._free: asyncio.Queue[Any] = asyncio.Queue()

    async def open(self) -> None:
        """Connect all."""
        for _ in range(POOL):
            self._free.put_nowait(await asyncio.open_connection("127.0.0.1", BACK))

    async def call(self, number: bytes) -> bytes:
        """Ask the backend about a request."""
        reader, writer = pair = await self._free.get()
        writer.write(number + b"\n")
        answer = await reader.readline()
        self._free.put_nowait(pair)
        return answer


async def handle(pool: Pool, number: bytes, kind: int) -> bytes:
    """Work, ask, and work again: kinds differ in when they ask."""
    if kind == 1:
        await asyncio.sleep(0.002)
    answer = await pool.call(number)
    if kind == 2:
        await asyncio.sleep(0.001)
    return answer


async def serve_aio() -> None:
    """Serve with grpcio's asyncio."""
    import grpc

    pool = Pool()
    await pool.open()
    server = grpc.aio.server()
    for service in ("shop.Orders", "shop.Users"):
        mine = [(k, m.split("/")[2]) for k, m in enumerate(METHODS) if m.split("/")[1] == service]

        def made(kind: int) -> Any:
            async def answer(request: bytes, _: Any) -> bytes:
                return await handle(pool, request, kind)

            return grpc.unary_unary_rpc_method_handler(answer)

        handlers = {name: made(kind) for kind, name in mine}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"127.0.0.1:{FRONT}")
    await server.start()
    await server.wait_for_termination()


class Bytes:
    """A message is its bytes."""

    __content_subtype__ = "proto"

    def encode(self, message: bytes, _: Any) -> bytes:
        """Return them."""
        return message

    decode = encode


def secure(place: Path | None, *, serves: bool) -> ssl.SSLContext | None:
    """Return how a connection is encrypted by what `tls` makes, None for one in clear."""
    if place is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if serves else ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if serves:
        context.load_cert_chain(place / "certificate.pem", place / "key.pem")
    else:
        context.load_verify_locations(place / "certificate.pem")
        context.check_hostname = False
    return context


async def serve_lib(files: Path | None) -> None:
    """Serve with grpclib."""
    from grpclib.const import Cardinality, Handler
    from grpclib.server import Server

    pool = Pool()
    await pool.open()

    def made(kind: int) -> Any:
        async def answer(stream: Any) -> None:
            request = await stream.recv_message()
            await stream.send_message(await handle(pool, request, kind))

        return Handler(answer, Cardinality.UNARY_UNARY, bytes, bytes)

    class Service:
        def __mapping__(self) -> Any:
            return {method: made(kind) for kind, method in enumerate(METHODS)}

    server = Server([Service()], codec=Bytes())
    await server.start("127.0.0.1", FRONT, ssl=secure(files, serves=True))
    await server.wait_closed()


async def serve_back(place: Path) -> None:
    """Answer after a while; write down (client's port, when, which request)."""
    with place.open("w", buffering=1) as log:

        async def answer(reader: Any, writer: Any) -> None:
            port = writer.get_extra_info("peername")[1]
            while number := await reader.readline():
                log.write(f"{port} {time.monotonic_ns()} {number.decode().strip()}\n")
                await asyncio.sleep(random.expovariate(1000))
                writer.write(b"ok " + number)

        async with await asyncio.start_server(answer, "127.0.0.1", BACK) as server:
            await server.serve_forever()


async def ask(place: Path, streams: int, requests: int, first: int, files: Path | None) -> None:
    """Ask over one connection; write down (port, stream, which, method, begin, end)."""
    from grpclib.client import Channel, UnaryUnaryMethod

    channel = Channel("127.0.0.1", FRONT, codec=Bytes(), ssl=secure(files, serves=False))
    left = iter(range(first, first + requests))
    rows = []

    async def repeat() -> None:
        for number in left:
            method = random.choice(METHODS)
            call = UnaryUnaryMethod(channel, method, bytes, bytes)
            begin = time.monotonic_ns()
            async with call.open() as stream:
                await stream.send_message(b"%d" % number, end=True)
                of = stream._stream.id
                port = channel._protocol.connection._transport.get_extra_info("sockname")[1]
                await stream.recv_message()
            rows.append((port, of, number, method, begin, time.monotonic_ns()))
            await asyncio.sleep(random.random() * 0.002)

    await asyncio.gather(*(repeat() for _ in range(streams)))
    channel.close()
    with place.open("w") as log:
        json.dump(rows, log)


@contextmanager
def running(command: Sequence[str], port: int) -> Iterator[None]:
    """Run a server for as long as it is needed, from when it listens."""
    process = subprocess.Popen(command)
    try:
        for _ in range(1200):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()


def record(place: Path, server: str, given: argparse.Namespace) -> None:
    """Record a server while it is asked."""
    place.mkdir(parents=True, exist_ok=True)
    me = [str(given.python), str(Path(__file__).resolve()), str(place)]
    labels = "bytes"
    if given.tls:
        make_certificate(place)
        me, labels = [*me[:2], "--tls", *me[2:]], "bytes,tls"
    asks = [*me, "ask", "--streams", str(given.streams), "--requests"]
    recorder = [str(Path(sys.executable).with_name("critpath")), "record", "--quiet", "--force"]
    recorder += ["--profile", "requests", "--labels-from", labels, "--no-probe"]
    recorder += ["--execution", "requests", "-o", str(place / "recording"), "--"]
    serves = [str(given.go), str(FRONT), str(BACK)] if server == "go" else [*me, f"serve-{server}"]
    with running([*me, "back"], BACK), running(serves, FRONT):
        subprocess.run([*asks, "20", "--first", str(_WARM)], check=True)
        subprocess.run([*recorder, *asks, str(given.requests)], check=True)


def judge(server: str, place: Path) -> None:
    """Print what is right of what client and backend wrote down."""
    import numpy as np
    from judge import find_requests

    from critpath.model.requests import Certainty

    found = find_requests(place / "recording")
    table, ends, below = found.requests, found.endpoints, found.subrequests
    asked = {(p, s): rest for p, s, *rest in json.loads((place / "asked").read_text())}
    counts: Counter[str] = Counter(streams=len(asked))
    number_of: dict[int, int] = {}
    port = ends.remote_port[table.endpoint].tolist()
    for row in np.flatnonzero(ends.local_port[table.endpoint] == FRONT).tolist():
        one = asked.get((port[row], 2 * int(table.turn[row]) - 1))
        counts["found"] += 1
        if one is None:
            continue
        number_of[row], method, begin, end = one
        counts["begin and end"] += begin < table.begin_ns[row] < table.end_ns[row] < end
        counts["named"] += table.strings[table.message[row]] == f"POST {method}"
        counts["certain"] += table.boundary[row] == 0
    calls: dict[int, list[tuple[int, int]]] = {}
    for line in (place / "called").read_text().splitlines():
        at, when, number = map(int, line.split())
        calls.setdefault(at, []).append((when, number))
    for row in np.flatnonzero(below.child >= 0).tolist():
        child = int(below.child[row])
        inside = [
            n
            for when, n in calls.get(port[child], ())
            if table.begin_ns[child] <= when <= table.end_ns[child] and n < _WARM
        ]
        if ends.local_port[table.endpoint[child]] != BACK or len(inside) != 1:
            continue
        owner, sure = int(below.request[row]), Certainty(below.attribution[row]).name.lower()
        right = owner >= 0 and number_of.get(owner) == inside[0]
        counts["calls"] += 1
        counts["calls right"] += right
        if owner >= 0:
            counts[sure] += 1
            counts[f"{sure} right"] += right
            tenth = f"of {int(10 * min(below.probability[row], 0.999)) / 10:.1f}"
            counts[tenth] += 1
            counts[f"{tenth} right"] += right
    print(server, dict(sorted(counts.items())))


def main() -> None:
    """Record and judge what is named."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("what", nargs="*", default=("aio", "lib"))
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--go", type=Path, default=Path("serve-grpc"))
    given = parser.parse_args()
    place = given.place.resolve()
    files = place if given.tls else None
    parts: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "back": lambda: serve_back(place / "called"),
        "serve-aio": serve_aio,
        "serve-lib": lambda: serve_lib(files),
        "ask": lambda: ask(place / "asked", given.streams, given.requests, given.first, files),
    }
    for what in given.what:
        if what in parts:
            asyncio.run(parts[what]())
        else:
            record(place / what, what, given)
            judge(what, place / what)


if __name__ == "__main__":
    main()
