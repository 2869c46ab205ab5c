"""How often labels are right, and what they cost: ``python labels.py DIR [accuracy|cost]``.

``accuracy``: nginx, gunicorn, PostgreSQL and Redis are asked by a client that writes down what it
asked for; recorded with ``--labels-from bytes,traceparent``, held against that.  No value of the
client's may be found anywhere in the recording.  ``cost``: Redis at saturation, with labels and
without, in pairs of random order.  Needs root, tracefs, what `evaluation/servers` needs.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from cases import PORTS, Park

SECRET: Final = "hunter2"  # noqa: S105 - what must not be found
COMMANDS: Final = (
    ("SET", f"{SECRET}:a", "x"),
    ("GET", f"{SECRET}:a"),
    ("LRANGE", f"{SECRET}:l", "0", "10"),
    ("ZRANGEBYSCORE", f"{SECRET}:z", "0", "10"),
    ("INCR", f"{SECRET}:n"),
)


def main() -> None:
    """Measure what is named."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("what", nargs="?", choices=("accuracy", "cost", "ask"), default="accuracy")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--requests", type=int, default=800, help="of each service")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    given = parser.parse_args()
    if given.what == "ask":
        ask(given.place, given.connections, given.requests)
    elif given.what == "cost":
        measure_cost(given.pairs)
    else:
        given.place.mkdir(parents=True, exist_ok=True)
        record(given.place.resolve(), given)
        judge(given.place.resolve())


# What is asked


def ask(place: Path, connections: int, requests: int) -> None:
    """Ask both services, and write down (service, port, turn, label, trace id) of each."""
    truth: list[tuple[str, int, int, str, str]] = []
    threads = [
        threading.Thread(target=one, args=(number, requests // connections, truth))
        for one in (ask_web, ask_redis)
        for number in range(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    place.write_text(json.dumps(truth))


def ask_web(seed: int, requests: int, truth: list[tuple[str, int, int, str, str]]) -> None:
    """Ask over one connection; of an address only its words may be kept."""
    rng = random.Random(seed)
    connection = http.client.HTTPConnection("127.0.0.1", PORTS["served"])
    connection.connect()
    port = connection.sock.getsockname()[1]
    for turn in range(1, requests + 1):
        number, key = rng.randrange(10**6), uuid.UUID(int=rng.getrandbits(128))
        method, path, label = rng.choice(
            (
                ("GET", f"/users/{number}", "GET /users/:id"),
                ("GET", "/items", "GET /items"),
                ("POST", f"/orders/{key}", "POST /orders/:id"),
                ("PUT", f"/api/v2/carts/{number}/add", "PUT /api/v2/carts/:id/add"),
                ("DELETE", f"/k/{key.hex}", "DELETE /k/:id"),
            )
        )
        trace = f"{rng.getrandbits(128):032x}"
        headers = {"Accept": "*/*", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
        connection.request(method, f"{path}?id={turn}&secret={SECRET}", headers=headers)
        connection.getresponse().read()
        truth.append(("nginx", port, turn, label, trace))


def ask_redis(seed: int, requests: int, truth: list[tuple[str, int, int, str, str]]) -> None:
    """Send commands over one connection."""
    rng = random.Random(seed)
    with socket.create_connection(("127.0.0.1", PORTS["redis"])) as connection:
        port = connection.getsockname()[1]
        for turn in range(1, requests + 1):
            words = [word.encode() for word in rng.choice(COMMANDS)]
            parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
            connection.sendall(b"*%d\r\n" % len(words) + b"".join(parts))
            connection.recv(4096)
            truth.append(("redis-server", port, turn, words[0].decode(), ""))


# How often they are right


def record(place: Path, given: argparse.Namespace) -> None:
    """Record the services while they are asked."""
    import tiers

    # PostgreSQL must reach it.
    park = Park(Path(tempfile.mkdtemp(prefix="critpath-labels-", dir="/var/tmp")), given.python)
    asks = [sys.executable, str(Path(__file__).resolve()), str(place / "truth"), "ask"]
    asks += ["--connections", str(given.connections), "--requests"]
    recorder = [str(Path(sys.executable).with_name("critpath")), "record", "--quiet", "--force"]
    recorder += ["--no-probe", "--profile", "requests", "--labels-from", "bytes,traceparent"]
    recorder += ["--execution", "requests", "-o", str(place / "recording"), "--"]
    try:
        park.build()
        park.start_backends()
        tiers.ask_postgres(park, tiers._SQL)
        with tiers.serving(park, ""):
            subprocess.run([*asks, str(8 * given.connections)], check=True)
            subprocess.run([*recorder, *asks, str(given.requests)], check=True)
    finally:
        park.close()


def judge(place: Path) -> None:
    """Print how many labels and trace ids are the client's; fail if a value was kept."""
    from critpath.flow import extract

    truth = {
        (service, port, turn): (label, trace)
        for service, port, turn, label, trace in json.loads((place / "truth").read_text())
    }
    executions = extract([place / "recording"], specification="requests").executions
    facts = executions.requests
    found: Counter[str] = Counter()
    for name, service, message, trace in zip(
        executions.id, facts.service, facts.message, facts.trace_id, strict=True
    ):
        ends, _, turn = name.rpartition("#")
        port = ends.rpartition(">")[0].rpartition(":")[2]
        of = service.partition(":")[0]
        told = truth.get((of, int(port or 0), int(turn)))
        if told is not None:
            found[f"{of} requests"] += 1
            found[f"{of} labels right"] += message == told[0]
            found[f"{of} trace ids right"] += trace == told[1]
    files = (file for file in (place / "recording").rglob("*") if file.is_file())
    kept = [
        str(file)
        for file in files
        if file.name != "critpath.json" and SECRET.encode() in file.read_bytes()
    ]
    for name, count in found.items():
        print(f"{name}: {count}")
    print(f"asked: {len(truth)}; files with a value of the client's: {', '.join(kept) or 'none'}")
    if kept:
        sys.exit(1)


# What they cost


def measure_cost(pairs: int) -> None:
    """Print what labels add to a request of Redis and its client, and to the recorder."""
    park = Park(Path(tempfile.mkdtemp(prefix="critpath-labels-")), Path(sys.executable))
    try:
        park.start(("redis-server", "--port", str(PORTS["redis"]), "--save", ""), "redis", {})
        measured = []
        for _ in range(pairs):
            order = ["", "bytes"]
            random.shuffle(order)
            measured.append({labels: load(labels, park.running[0].pid) for labels in order})
    finally:
        park.close()
    take: tuple[tuple[str, Callable[[Any], float]], ...] = (
        ("server and client, us a request", lambda one: one["bytes"][0] - one[""][0]),
        ("recorder, us a request", lambda one: one["bytes"][1] - one[""][1]),
    )
    for name, difference in take:
        low, middle, high = statistics.quantiles(map(difference, measured), n=4)
        print(f"added, {name}: {middle:.2f} (quartiles {low:.2f} to {high:.2f}; {pairs} pairs)")
    rate = statistics.median(one["bytes"][2] for one in measured)
    print(f"{rate:,.0f} requests/s; messages lost: {sum(one['bytes'][3] for one in measured)}")


def load(labels: str, server: int, requests: int = 30_000) -> tuple[float, float, float, int]:
    """Record Redis at saturation; return us of cpu a request, the recorder's, rate, lost."""
    from recording_requests import cpu_seconds

    from critpath_marks.sessions import new_session_name
    from critpath_record.ftrace.recorder import open_recorder
    from critpath_record.recorder import RecorderSettings

    words = ["redis-benchmark", "-p", str(PORTS["redis"]), "-c", "16", "-t", "incr", "-q"]
    with tempfile.TemporaryDirectory() as place:
        settings = RecorderSettings(new_session_name(), Path(place), "requests", labels_from=labels)
        recorder = open_recorder(settings)
        try:
            recorder.open()
            own, before = time.process_time(), cpu_seconds(server)
            begin = time.monotonic()
            client = subprocess.Popen(
                [*words, "-r", "100000", "-n", str(requests)], stdout=subprocess.DEVNULL
            )
            _, _, usage = os.wait4(client.pid, 0)
            client.returncode = 0
            took = time.monotonic() - begin
            taken = cpu_seconds(server) - before + usage.ru_utime + usage.ru_stime
            own = time.process_time() - own
            recorder.close()
            lost = int(recorder._description.get("labels", {}).get("lost", 0))
        finally:
            recorder.abort()
    return 1e6 * taken / requests, 1e6 * own / requests, requests / took, lost


if __name__ == "__main__":
    main()
