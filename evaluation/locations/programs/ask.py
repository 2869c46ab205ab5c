"""Ask a server over and over, each request marked.

``python ask.py (web PATH|redis|postgres) PORT``
"""

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import critpath_marks


def of_web(path: str, port: int) -> Callable[[], object]:
    """Return what asks a web service for a path."""
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask() -> None:
        connection.request("GET", path)
        connection.getresponse().read()

    return ask


def of_redis(port: int) -> Callable[[], object]:
    """Return what sets a key of Redis."""
    connection = socket.create_connection(("127.0.0.1", port))

    def ask() -> None:
        connection.sendall(b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$4\r\nsome\r\n")
        connection.recv(64)

    return ask


def of_postgres(port: int) -> Callable[[], object]:
    """Return what inserts a row, by psql: a transaction of its own."""
    words = ["psql", "-XqAt", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "postgres"]
    psql = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    lines, answers = psql.stdin, psql.stdout
    assert lines is not None
    assert answers is not None

    def ask() -> None:
        lines.write(b"insert into orders values (1) returning 1;\n")
        answers.read(2)

    lines.write(b"create table if not exists orders (line int);\n")
    return ask


PORT = int(sys.argv[-1])
KIND = sys.argv[1]
once = (
    of_web(sys.argv[2], PORT)
    if KIND == "web"
    else {"redis": of_redis, "postgres": of_postgres}[KIND](PORT)
)
once()
while True:
    with critpath_marks.execution("request"):
        once()
    time.sleep(0.005)
