"""Whether requests over TLS get their names: ``python tls.py DIR [SERVER ...]``.

A server of HTTPS (``threads``: Python's ssl; ``uvicorn``; ``nginx``; ``node``) is asked by several
connections at once for some paths, each request on its own or on a connection that stays.  The
client writes down port, begin, end and path of each.  Recorded with ``--labels-from bytes,tls``;
judged: how many requests are found, have their right name, or another's.  ``cost``: what a request
costs client and server more with the probes.  Needs root, tracefs, openssl, Linux 6.6; for
``uvicorn`` a Python that has it (``--python``).
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

PORT: Final = 9471
PATHS: Final = tuple(f"/{word}/list" for word in ("cart", "users", "orders", "items", "prices"))
# ns before it asks: a request that the end of the handshake came with begins with that.
_NEAR: Final = 200_000
_KEY, _CERTIFICATE = "key.pem", "certificate.pem"
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_UVICORN: Final = """
import asyncio, uvicorn
async def app(scope, receive, send):
    await asyncio.sleep(0.001)
    head = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": b"ok"})
uvicorn.run(app, port=%d, log_level="error", lifespan="off", loop="asyncio", http="h11",
            ssl_keyfile="%s", ssl_certfile="%s")
"""
_NODE: Final = """
const fs = require("fs");
const given = { key: fs.readFileSync("%s"), cert: fs.readFileSync("%s") };
require("https").createServer(given, (_, answer) => setTimeout(() => answer.end("ok"), 1))
  .listen(%d, "127.0.0.1");
"""
_NGINX: Final = """
daemon off; pid %s/nginx.pid; error_log %s/nginx.log; worker_processes 2; events {}
http { access_log off; keepalive_requests 100000;
  server { listen 127.0.0.1:%d ssl; ssl_certificate_key %s; ssl_certificate %s;
    location / { return 200 "ok"; } } }
"""


def serve_threads(place: Path) -> None:
    """Answer with a thread for each connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / _CERTIFICATE, place / _KEY)

    def answer(plain: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(plain, server_side=True) as connection:
            while data := connection.recv(4096):
                assert data.endswith(b"\r\n\r\n")
                time.sleep(0.001)
                connection.sendall(_ANSWER)

    with socket.create_server(("127.0.0.1", PORT)) as listener:
        while True:
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


def ask(place: Path, connections: int, requests: int, file: str) -> None:
    """Ask with a thread for each connection; write down (port, begin, end, path)."""
    context = ssl.create_default_context(cafile=place / _CERTIFICATE)
    context.check_hostname = False
    rows: list[tuple[int, int, int, str]] = []
    left = iter(range(requests))

    def repeat(number: int) -> None:
        chosen = random.Random(number)
        client: Any = None
        for one in left:
            if client is None or chosen.random() < 0.1:  # some connections have one request only
                client = http.client.HTTPSConnection("127.0.0.1", PORT, context=context)
                client.connect()
                port = client.sock.getsockname()[1]
            path = chosen.choice(PATHS)
            begin = time.monotonic_ns()
            client.request("GET", f"{path}?number={one}")
            client.getresponse().read()
            rows.append((port, begin, time.monotonic_ns(), path))
            time.sleep(chosen.random() * 0.002)

    threads = [threading.Thread(target=repeat, args=(n,)) for n in range(connections)]
    begin = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (place / file).write_text(json.dumps([time.process_time() - begin, rows]))


def make_certificate(place: Path) -> None:
    """Make a key and a certificate."""
    place.mkdir(parents=True, exist_ok=True)
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(place / _KEY), "-out", str(place / _CERTIFICATE)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def command_of(server: str, place: Path, given: argparse.Namespace) -> list[str]:
    """Return what starts a server."""
    files = str(place / _KEY), str(place / _CERTIFICATE)
    if server == "uvicorn":
        return [str(given.python), "-c", _UVICORN % (PORT, *files)]
    if server == "node":
        return ["node", "-e", _NODE % (*files, PORT)]
    if server == "nginx":
        (place / "nginx.conf").write_text(_NGINX % (place, place, PORT, *files))
        return ["nginx", "-p", str(place), "-c", str(place / "nginx.conf")]
    return [sys.executable, str(Path(__file__).resolve()), str(place), "serve"]


@contextmanager
def serving(command: Sequence[str]) -> Iterator[int]:
    """Run a server for as long as it is needed; yield its process."""
    process = subprocess.Popen(command)
    try:
        for _ in range(100):
            with suppress(OSError), socket.create_connection(("127.0.0.1", PORT), 1):
                break
            time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()


def asking(place: Path, given: argparse.Namespace, requests: int, file: str) -> list[str]:
    """Return what asks."""
    me = [sys.executable, str(Path(__file__).resolve()), str(place), "ask", "--file", file]
    return [*me, "--connections", str(given.connections), "--requests", str(requests)]


def recording(place: Path, labels: str) -> list[str]:
    """Return what records, before what is recorded."""
    recorder = [str(Path(sys.executable).with_name("critpath")), "record", "--quiet", "--force"]
    recorder += ["--profile", "requests", "--labels-from", labels, "--no-probe"]
    return [*recorder, "--execution", "requests", "-o", str(place / "recording"), "--"]


def record(place: Path, server: str, given: argparse.Namespace) -> None:
    """Record a server while it is asked, some connections of which are there before."""
    make_certificate(place)
    with serving(command_of(server, place, given)):
        subprocess.run(asking(place, given, 20, "warm"), check=True)
        asks = asking(place, given, given.requests, "asked")
        subprocess.run([*recording(place, "bytes,tls"), *asks], check=True)


def judge(server: str, place: Path) -> dict[str, int]:
    """Return how many requests were asked, found, named, and named wrongly."""
    import numpy as np
    from judge import find_requests

    found = find_requests(place / "recording")
    table, ends = found.requests, found.endpoints
    counts: Counter[str] = Counter()
    rows = np.flatnonzero(ends.local_port[table.endpoint] == PORT)
    of_port: dict[int, list[int]] = {}
    for row in rows.tolist():
        of_port.setdefault(int(ends.remote_port[table.endpoint[row]]), []).append(row)
    for port, begin, end, path in json.loads((place / "asked").read_text())[1]:
        counts["asked"] += 1
        mine = [
            table.strings[table.message[row]]
            for row in of_port.get(port, ())
            if begin - _NEAR <= table.begin_ns[row] and table.end_ns[row] <= end
        ]
        named = next((name for name in mine if name), "")
        counts["found"] += bool(mine)
        counts["right name"] += named == f"GET {path}"
        counts["wrong name"] += named not in {"", f"GET {path}"}
    print(server, dict(counts), flush=True)
    return dict(counts)


def cpu_time(pid: int) -> float:
    """Return what a process has used (s), with its children that are there."""
    tree = {pid}
    used = 0.0
    for stat in sorted(Path("/proc").glob("[0-9]*/stat"), key=lambda p: int(p.parent.name)):
        with suppress(OSError):
            words = stat.read_text().rpartition(")")[2].split()
            if int(stat.parent.name) in tree or int(words[1]) in tree:
                tree.add(int(stat.parent.name))
                used += (int(words[11]) + int(words[12])) / 100
    return used


def measure(place: Path, given: argparse.Namespace) -> None:
    """Print what a request costs client and server, with and without the probes, in pairs."""
    from critpath_record.ftrace.decrypted import Decrypted

    with Decrypted(headers=False) as probes:
        print(f"a call that is probed: {probes.measure() * 1e6:+.1f} us")
    make_certificate(place)
    for server in given.servers:
        more = []
        with serving(command_of(server, place, given)) as pid:
            for _ in range(given.pairs):
                took = {}
                for labels in random.sample(("bytes", "bytes,tls"), 2):
                    before = cpu_time(pid)
                    asks = asking(place, given, given.requests, "cost")
                    subprocess.run([*recording(place, labels), *asks], check=True)
                    client = json.loads((place / "cost").read_text())[0]
                    took[labels] = (client + cpu_time(pid) - before) / given.requests * 1e6
                more.append((took["bytes,tls"] - took["bytes"], took["bytes"]))
        low, middle, high = statistics.quantiles([one for one, _ in more], n=4)
        usual = statistics.median(without for _, without in more)
        print(f"{server}: {middle:+.1f} us a request ({low:+.1f} to {high:+.1f}) of {usual:.0f}")


def main() -> None:
    """Record and judge what is named."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("what", nargs="*", default=("threads", "uvicorn", "nginx", "node"))
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--servers", nargs="*", default=("threads", "node"), help="of cost")
    parser.add_argument("--file", default="asked")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    given = parser.parse_args()
    place = given.place.resolve()
    for what in given.what:
        if what == "serve":
            serve_threads(place)
        elif what == "ask":
            ask(place, given.connections, given.requests, given.file)
        elif what == "cost":
            measure(place, given)
        elif what == "nginx" and shutil.which("nginx") is None:
            print("nginx: not here")
        else:
            record(place / what, what, given)
            judge(what, place / what)


if __name__ == "__main__":
    main()
