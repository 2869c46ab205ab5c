"""A server that asks another one, and its clients, for recordings of requests; logs the truth.

``served.py serve PORT BACKEND`` reads and answers on a thread per connection, and asks the
backend for every request, over a connection that each thread keeps; ``served.py back PORT``
answers on one loop; ``served.py ask PORT CONNECTIONS REQUESTS LOG`` is the client.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
import time
from pathlib import Path

HOST = "127.0.0.1"
SIZE = 64  # bytes of a message


def receive(peer: socket.socket) -> bytes:
    whole = b""
    while len(whole) < SIZE:
        part = peer.recv(SIZE - len(whole))
        if not part:
            return b""
        whole += part
    return whole


def back(port: int) -> None:
    listening = socket.create_server((HOST, port), backlog=64)
    watched = select.epoll()
    watched.register(listening, select.EPOLLIN)
    peers: dict[int, socket.socket] = {}
    while True:
        for number, _ in watched.poll():
            if number == listening.fileno():
                peer, _ = listening.accept()
                peers[peer.fileno()] = peer
                watched.register(peer, select.EPOLLIN)
                continue
            peer = peers[number]
            message = receive(peer)
            if message:
                peer.sendall(message)
            else:
                watched.unregister(peer)
                peers.pop(number).close()


def answer(peer: socket.socket, backend: int) -> None:
    with peer, socket.create_connection((HOST, backend)) as asked:
        while message := receive(peer):
            asked.sendall(message)
            peer.sendall(receive(asked))


def serve(port: int, backend: int) -> None:
    with socket.create_server((HOST, port), backlog=64) as listening:
        while True:
            peer, _ = listening.accept()
            threading.Thread(target=answer, args=(peer, backend), daemon=True).start()


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def ask(port: int, connections: int, requests: int, log: str) -> None:
    """Open the first connection, use it, and wait for a line of input before all others."""
    truth: list[dict[str, int]] = []

    def go(peer: socket.socket) -> None:
        local = peer.getsockname()[1]
        for number in range(requests):
            message = f"{number}".ljust(SIZE).encode()
            begin = time.monotonic_ns()
            peer.sendall(message)
            receive(peer)
            truth.append({"port": local, "begin": begin, "end": time.monotonic_ns()})

    peers = [socket.create_connection((HOST, port))]
    go(peers[0])
    truth.clear()
    say("ready")
    sys.stdin.readline()
    peers += [socket.create_connection((HOST, port)) for _ in range(connections - 1)]
    threads = [threading.Thread(target=go, args=(peer,)) for peer in peers]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    Path(log).write_text(json.dumps(truth), encoding="utf-8")
    say("asked")
    sys.stdin.readline()  # its connections are still there when the recording ends


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "ask":
        *numbers, name = arguments
        ask(*map(int, numbers), name)
    else:
        {"serve": serve, "back": back}[what](*map(int, arguments))
