"""A web service that writes to two files, to two databases and asks two peers at each request.

``python web.py PORT QUICK SLOW FIRST SECOND``: directories of a quick and of a slow disk, and ports
of two peers.  The standard library's server; ``/audit``, ``/archive`` and ``/ask`` say
which of them.
"""

import os
import socket
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT, PEERS = int(sys.argv[1]), [int(port) for port in sys.argv[4:6]]
DATA, AUDIT = Path(sys.argv[2]), Path(sys.argv[3])
LOGS = [(place / name).open("ab", 0) for place, name in ((DATA, "data.log"), (AUDIT, "audit.log"))]
DATABASES = [DATA / "orders.db", AUDIT / "archive.db"]


def audit() -> None:
    """Append a line to both logs, and wait until they are on the disk."""
    for log in LOGS:
        log.write(b"an order was taken\n")
        os.fsync(log.fileno())


def archive() -> None:
    """Insert a row into both databases."""
    for name in DATABASES:
        with sqlite3.connect(name) as database:
            database.execute("insert into orders values (?)", ("an order",))
        database.close()


def ask() -> None:
    """Ask both peers, and wait for their answers."""
    for port in PEERS:
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(b"a question\n")
            peer.recv(16)


class Service(BaseHTTPRequestHandler):
    """What the path names is done; connections are kept."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # the answer in one piece

    def do_GET(self) -> None:
        """Answer when it is done."""
        {"/audit": audit, "/archive": archive, "/ask": ask}[self.path]()
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Write no line for each request."""


for path in DATABASES:
    with sqlite3.connect(path) as made:
        made.execute("create table orders (line)")
    made.close()
ThreadingHTTPServer(("127.0.0.1", PORT), Service).serve_forever()
