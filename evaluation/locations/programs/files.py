"""A request writes to two files, two databases and two peers; a fault slows one of each down."""

import os
import socket
import sqlite3
import sys
from pathlib import Path

import critpath_marks

FAULT, FIRST, SECOND = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
BLOCK = os.urandom(1 << 20)


def write(name: str, *, much: bool) -> None:
    """Write a line, and begin to write much and wait until it is on the disk."""
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(file, b"line\n")
    if much:
        for _ in range(8):
            os.write(file, BLOCK)
        os.fsync(file)
    os.close(file)


def insert(name: str, *, much: bool) -> None:
    """Insert a row, or many; a commit waits for the disk."""
    with sqlite3.connect(name) as database:
        database.execute("create table if not exists t (a)")
        database.executemany("insert into t values (?)", [(BLOCK if much else b"",)] * 8)
    database.close()
    Path(name).unlink()


def ask(port: int) -> None:
    """Ask a peer and wait for the answer."""
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(b"slow\n" if FAULT == "peer" and port == SECOND else b"fast\n")
        peer.recv(16)


for _ in range(40):
    with critpath_marks.execution("request"):
        for name in ("data.log", "audit.log"):
            write(name, much=FAULT == "audit" and name == "audit.log")
        for name in ("orders.db", "archive.db"):
            insert(name, much=FAULT == "archive" and name == "archive.db")
        for port in (FIRST, SECOND):
            ask(port)
