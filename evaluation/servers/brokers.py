"""Whether messages are followed through brokers: ``python brokers.py DIR [KIND ...]``.

A server puts a message for each request into a queue, workers take it, work, and ask a Redis of
their own: Redis' lists and streams, RabbitMQ with pika and aio-pika, NATS, and a list by which the
server waits for the answer (``rpc``).  Server and workers write down which message was which; the
id is in the payload, where critpath does not look.  Recorded with and without ``--labels-from
bytes``; judged: which messages are found, which request each is said to come from and how surely,
how long it waited, how many were before it.  Needs root, tracefs, redis-server, rabbitmq-server,
nats-server and, in the Python named by ``--python``, pika, aio-pika, redis and nats-py.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

KINDS: Final = ("list", "stream", "rabbit", "aio", "nats", "rpc")
FRONT, REDIS, BACK, RABBIT, NATS = 9471, 9472, 9473, 9474, 9475
_ASYNC: Final = {"aio", "nats"}
QUEUE: Final = "jobs"
_WARM: Final = 900_000  # what is asked before it is recorded
_NEAR: Final = 100_000  # ns between what a program writes down and what is recorded of it


class Log:
    """Lines of what was done for which message, each written at once."""

    def __init__(self, place: str) -> None:
        self._to = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, *facts: object) -> None:
        """Write a line."""
        os.write(self._to, f"{' '.join(map(str, facts))}\n".encode())


def make_message(number: int) -> bytes:
    """Return a message: of 40 to 340 bytes, its id first."""
    draw = random.Random(number)
    return json.dumps({"id": number, "text": "x" * draw.randrange(20, 320)}).encode()


def read_number(message: bytes) -> int:
    """Return the id of a message."""
    return int(json.loads(message)["id"])


# ------------------------------------------------------------------ producers and consumers


def make_producer(kind: str) -> Callable[[int], None]:
    """Return what puts a message into the queue, with a connection for each thread."""
    own = threading.local()

    def connect() -> Callable[[bytes, int], object]:
        if kind == "rabbit":
            import pika

            where = pika.ConnectionParameters("127.0.0.1", RABBIT, heartbeat=0)
            channel = pika.BlockingConnection(where).channel()
            return lambda body, _: channel.basic_publish("", QUEUE, body)
        import redis

        to, queue = redis.Redis(port=REDIS), f"{kind}:jobs"
        if kind == "stream":
            return lambda body, _: to.xadd(queue, {"data": body})
        if kind == "list":
            return lambda body, _: to.lpush(queue, body)

        def ask(body: bytes, number: int) -> None:
            to.lpush(queue, body)
            to.brpop(f"answer:{number}")

        return ask

    def produce(number: int) -> None:
        if not hasattr(own, "put"):
            own.put = connect()
        own.put(make_message(number), number)

    return produce


def consume(kind: str, log: Log) -> None:
    """Take messages one by one, for ever."""
    import redis

    back, to = redis.Redis(port=BACK), redis.Redis(port=REDIS)

    def work(message: bytes) -> None:
        begin, number = time.monotonic_ns(), read_number(message)
        spin(0.0004 + 0.0008 * (number % 3))
        back.incr(f"a{number % 10}")
        if kind == "rpc":
            to.lpush(f"answer:{number}", b"done")
        log.write(number, threading.get_native_id(), begin, time.monotonic_ns())

    if kind == "rabbit":
        import pika

        where = pika.ConnectionParameters("127.0.0.1", RABBIT, heartbeat=0)
        channel = pika.BlockingConnection(where).channel()
        channel.queue_declare(QUEUE)
        channel.basic_qos(prefetch_count=1)

        def handle(of: Any, method: Any, _: Any, body: bytes) -> None:
            work(body)
            of.basic_ack(method.delivery_tag)

        channel.basic_consume(QUEUE, handle)
        channel.start_consuming()
    name, queue = str(os.getpid()), f"{kind}:jobs"
    with suppress(redis.ResponseError):
        if kind == "stream":
            to.xgroup_create(queue, "group", id="$", mkstream=True)
    while True:
        if kind == "stream":
            for _, found in to.xreadgroup("group", name, {queue: ">"}, count=1, block=5000):
                for number, fields in found:
                    work(fields[b"data"])
                    to.xack(queue, "group", number)
        elif found := to.brpop(queue, 5):
            work(found[1])


async def consume_async(kind: str, log: Log) -> None:
    """Take messages, up to four at once, for ever."""
    import redis.asyncio

    back = redis.asyncio.Redis(port=BACK, max_connections=4)

    async def work(message: bytes) -> None:
        begin, number = time.monotonic_ns(), read_number(message)
        spin(0.0002)
        await back.incr(f"a{number % 10}")
        spin(0.0004)
        log.write(number, threading.get_native_id(), begin, time.monotonic_ns())

    if kind == "nats":
        import nats

        of = await nats.connect(f"nats://127.0.0.1:{NATS}")

        async def take(message: Any) -> None:
            await work(message.data)

        await of.subscribe(QUEUE, "group", cb=take)
    else:
        import aio_pika

        connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{RABBIT}/")
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=4)
        queue = await channel.declare_queue(QUEUE)

        async def handle(message: Any) -> None:
            async with message.process():
                await work(message.body)

        await queue.consume(handle)
    await asyncio.Event().wait()


def spin(seconds: float) -> None:
    """Work for so long by the thread's own clock."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


# ------------------------------------------------------------------ the server


def serve(kind: str, log: Log) -> None:
    """Put a message into the queue for each request, in a thread for each connection."""
    produce = make_producer(kind)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_GET(self) -> None:
            number, begin = int(self.path.rpartition("=")[2]), time.monotonic_ns()
            spin(0.0002)
            produce(number)
            log.write(number, threading.get_native_id(), begin, time.monotonic_ns())
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", FRONT), Handler).serve_forever()


async def serve_async(kind: str, log: Log) -> None:
    """Put a message into the queue for each request, on a loop."""
    publish: Callable[[bytes], Coroutine[Any, Any, Any]]
    if kind == "nats":
        import nats

        of = await nats.connect(f"nats://127.0.0.1:{NATS}")

        def publish(body: bytes) -> Coroutine[Any, Any, Any]:
            return of.publish(QUEUE, body)
    else:
        import aio_pika

        connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{RABBIT}/")
        channel = await connection.channel()
        await channel.declare_queue(QUEUE)

        def publish(body: bytes) -> Coroutine[Any, Any, Any]:
            return channel.default_exchange.publish(aio_pika.Message(body), QUEUE)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            number, begin = int(line.split()[1].rpartition(b"=")[2]), time.monotonic_ns()
            while (await reader.readline()).strip():
                pass
            spin(0.0002)
            await publish(make_message(number))
            log.write(number, threading.get_native_id(), begin, time.monotonic_ns())
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", FRONT)
    await server.serve_forever()


def ask(connections: int, first: int, many: int, rate: float) -> None:
    """Ask for each message over some connections, with pauses drawn so that the rate is met."""

    def run(own: int) -> None:
        draw = random.Random(own)
        to = http.client.HTTPConnection("127.0.0.1", FRONT)
        for number in range(first + own, first + many, connections):
            time.sleep(draw.expovariate(rate / connections))
            to.request("GET", f"/orders?id={number}")
            to.getresponse().read()

    threads = [threading.Thread(target=run, args=(own,)) for own in range(connections)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


# ------------------------------------------------------------------ recording


@contextmanager
def start_brokers(kinds: list[str], place: Path) -> Iterator[None]:
    """Start what the kinds need, each on a port of its own."""
    every = [["redis-server", "--port", str(port), "--save", ""] for port in (REDIS, BACK)]
    if "nats" in kinds:
        every.append(["nats-server", "-a", "127.0.0.1", "-p", str(NATS)])
    with ExitStack() as running:
        for command in every:
            one = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            running.callback(one.wait)
            running.callback(one.terminate)
        if {"rabbit", "aio"} & {*kinds}:
            own = place / "rabbit"
            own.mkdir(parents=True, exist_ok=True)
            environment = {
                **os.environ,
                "RABBITMQ_NODENAME": "critpath@localhost",
                "RABBITMQ_NODE_PORT": str(RABBIT),
                "RABBITMQ_DIST_PORT": "9476",
                "ERL_EPMD_PORT": "9477",
                "RABBITMQ_MNESIA_BASE": str(own),
                "RABBITMQ_LOG_BASE": str(own),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(own / "plugins"),
                "HOME": str(own),
            }
            by = next(Path("/usr/lib/rabbitmq/lib").glob("*/sbin/rabbitmq-server"))
            log = running.enter_context((own / "out").open("wb"))
            one = subprocess.Popen(
                [by], env=environment, stdout=log, stderr=log, start_new_session=True
            )
            running.callback(one.wait)
            running.callback(os.killpg, one.pid, 15)
            wait_for(RABBIT, 300)
        yield


def wait_for(port: int, seconds: float = 20) -> None:
    """Wait until somebody listens at a port."""
    import socket

    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    sys.exit(f"nobody listens at {port}")


def record(kind: str, connections: int, given: argparse.Namespace, to: Path) -> None:
    """Record one kind with one number of connections."""
    if to.exists():
        shutil.rmtree(to)
    to.mkdir(parents=True)
    me = [str(given.python), __file__]
    with ExitStack() as running:

        def start(*words: object) -> None:
            one = subprocess.Popen([*me, *map(str, words)])
            running.callback(one.wait)
            running.callback(one.terminate)

        for _ in range(given.consumers):
            start("--consume", kind, to / "workers")
        time.sleep(1.5)
        start("--serve", kind, to / "server")
        wait_for(FRONT)
        ask(connections, _WARM, 4 * connections, 400)
        time.sleep(0.5)
        words = ("--ask", connections, given.messages, given.rate)
        command = [
            *(*given.critpath, "record", "--quiet", "--no-probe", "--force"),
            *("--profile", "requests"),
            *(("--labels-from", given.labels) if given.labels else ()),
            *("-o", str(to / "recording"), "--"),
            *("sh", "-c", f"{shlex.join([*me, *map(str, words)])}; sleep .5"),
        ]
        subprocess.run(command, check=True)
    print(f"recorded {to}", flush=True)


# ------------------------------------------------------------------ judging


def judge(place: Path, each: list[tuple[str, int]]) -> None:
    """Print a row for each recording, and how probable what is said is, against what is right."""
    head = (
        "| broker | connections | messages | found | of a known request | right | waited | before |"
    )
    print(head, "|---|---:|---:|---:|---:|---:|---:|---:|", sep="\n")
    told: list[tuple[float, bool]] = []
    for kind, connections in each:
        row, mine = judge_one(kind, place / kind / str(connections))
        print(f"| {kind} | {connections} | {row} |", flush=True)
        told += mine
    print("\n| stated | messages | right |", "|---:|---:|---:|", sep="\n")
    for tenth in range(10):
        of = [right for sure, right in told if min(int(10 * sure), 9) == tenth]
        if of:
            sure = [sure for sure, _ in told if min(int(10 * sure), 9) == tenth]
            print(f"| {sum(sure) / len(sure):.2f} | {len(of)} | {sum(of) / len(of):.3f} |")


def judge_one(kind: str, place: Path) -> tuple[str, list[tuple[float, bool]]]:
    """Return a row of the table, and of each message how sure its request is, and whether right."""
    import numpy as np

    from critpath import flow
    from critpath.model import ExtractSettings

    [of] = flow.read_sketches([place / "recording"], ExtractSettings("requests"))
    requests, passed = of.requests, of.passed
    server, workers = (read_log(place / name) for name in ("server", "workers"))
    by_number = {number: (tid, begin, end) for number, tid, begin, end in workers}
    begins = sorted((begin, tid, number) for number, tid, begin, _ in server)
    # A loop works in the order in which it received; a thread's requests are told by their times.
    front = np.flatnonzero(of.endpoints.local_port[requests.endpoint] == FRONT)
    front = front[np.argsort(requests.received_ns[front], kind="stable")]
    numbers = [number for *_, number in begins if number < _WARM]
    in_order = dict(zip(front.tolist(), numbers, strict=False)) if kind in _ASYNC else {}
    told = []
    off = []
    columns = (passed.job, passed.producer, passed.probability, passed.before, passed.put_ns)
    for job, producer, sure, before, put in zip(*(c.tolist() for c in columns), strict=True):
        if producer < 0:
            continue
        since, tid = int(requests.received_ns[producer]), int(requests.tid[producer])
        ours = [n for begin, by, n in begins if begin >= since - _NEAR and by == tid]
        worked = by_number.get(in_order.get(producer, ours[0] if ours else -1))
        right = worked is not None and worked[0] == requests.tid[job]
        if worked is not None and right:
            low, high = int(requests.received_ns[job]) - _NEAR, int(requests.end_ns[job]) + _NEAR
            right = low <= worked[1] <= high
        told.append((sure, right))
        waiting = sum(
            by_number[n][1] > put for begin, _, n in begins if n in by_number and begin < put
        )
        off.append(abs(before - max(waiting - 1, 0)))
    many = sum(number < _WARM for number, *_ in workers)
    waited = passed.received_ns - passed.put_ns
    middle = f"{np.median(waited) / 1e6:.2f} ms" if len(passed) else ""
    share = f"{sum(right for _, right in told) / len(told):.3f}" if told else ""
    apart = f"{np.median(off):.0f}" if off else ""
    return f"{many} | {len(passed)} | {len(told)} | {share} | {middle} | ± {apart}", told


def read_log(place: Path) -> list[tuple[int, ...]]:
    """Return the lines of a log: message, thread, begin, end."""
    return [tuple(map(int, line.split())) for line in place.read_text().splitlines()]


def main() -> None:
    """Record and judge."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("place", nargs="?", type=Path)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)} (all)")
    parser.add_argument("--connections", default="1,4,16", help="numbers, with commas between")
    parser.add_argument("--messages", type=int, default=300, help="of each recording")
    parser.add_argument("--rate", type=float, default=400, help="requests a second")
    parser.add_argument("--consumers", type=int, default=2, help="processes that take messages")
    parser.add_argument("--labels", default="", help="as --labels-from: bytes")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--judge-only", action="store_true")
    parser.add_argument(
        "--critpath",
        type=shlex.split,
        default=[str(Path(sys.executable).with_name("critpath"))],
        help="how to record",
    )
    for role, words in (("serve", 2), ("consume", 2), ("ask", 3)):
        parser.add_argument(f"--{role}", nargs=words, help=argparse.SUPPRESS)
    given = parser.parse_intermixed_args()
    if role := given.serve or given.consume:
        kind, log = role[0], Log(role[1])
        if kind in _ASYNC:
            asyncio.run((serve_async if given.serve else consume_async)(kind, log))
        else:
            (serve if given.serve else consume)(kind, log)
        return
    if given.ask:
        connections, many, rate = given.ask
        ask(int(connections), 0, int(many), float(rate))
        return
    kinds = given.kinds or [*KINDS]
    if unknown := {*kinds} - {*KINDS}:
        sys.exit(f"no such kind: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    each = [(kind, int(n)) for kind in kinds for n in given.connections.split(",")]
    if not given.judge_only:
        with start_brokers(kinds, given.place.resolve()):
            for kind, connections in each:
                record(kind, connections, given, given.place.resolve() / kind / str(connections))
    judge(given.place, each)


if __name__ == "__main__":
    main()
