"""Sleep in many functions, and write down in which: sleeps.py FILE, a line per sleep."""

import contextlib
import os
import select
import socket
import sys
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue

ROWS = []
held, empty = threading.Lock(), SimpleQueue()
readable, _writable = os.pipe()
peer, _other = socket.socketpair()
peer.settimeout(0.0003)
poll = select.poll()
poll.register(readable, select.POLLIN)


def note(name):
    ROWS.append((threading.get_native_id(), time.monotonic_ns(), name))


def in_sleep():
    note("in_sleep")
    time.sleep(0.0002)


def in_lock():
    note("in_lock")
    held.acquire(timeout=0.0003)


def in_queue():
    note("in_queue")
    with contextlib.suppress(Empty):
        empty.get(timeout=0.0003)


def in_select():
    note("in_select")
    select.select([readable], [], [], 0.0003)


def in_long_select():
    note("in_long_select")
    select.select([readable], [], [], 0.012)


def in_poll():
    note("in_poll")
    poll.poll(1)


def in_peer():
    note("in_peer")
    with contextlib.suppress(TimeoutError):
        peer.recv(1)


def twice(site):
    site()
    site()


held.acquire()
for _ in range(100):
    for site in (in_sleep, in_lock, in_queue, in_select, in_poll, in_peer):
        twice(site)
for _ in range(25):
    twice(in_long_select)
Path(sys.argv[1]).write_text("".join(f"{tid} {at} {name}\n" for tid, at, name in ROWS))
