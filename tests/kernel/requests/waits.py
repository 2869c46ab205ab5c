"""Does 20 pieces of work for each way of being told of one: ``waits.py pipe futex ...``."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROUNDS = 20
LIBC: Any = ctypes.CDLL(None, use_errno=True)
LIBC.msgsnd.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
LIBC.msgrcv.argtypes = [*LIBC.msgsnd.argtypes[:3], ctypes.c_long, ctypes.c_int]


class Buffer(ctypes.Structure):
    """What `semop` takes."""

    _fields_ = (("num", ctypes.c_ushort), ("op", ctypes.c_short), ("flag", ctypes.c_short))


def work(*_: object) -> None:
    """Compute for a while."""
    until = time.perf_counter() + 0.0005
    while time.perf_counter() < until:
        pass


def by_pipe() -> Any:
    """Each returns what waits, and what ends the wait."""
    reading, writing = os.pipe()
    return lambda: os.read(reading, 1), lambda _: os.write(writing, b"x")


def by_eventfd() -> Any:
    counter = os.eventfd(0)
    one = (1).to_bytes(8, sys.byteorder)
    return lambda: os.read(counter, 8), lambda _: os.write(counter, one)


def by_unix() -> Any:
    near, far = socket.socketpair()
    return lambda: far.recv(1), lambda _: near.send(b"x")


def by_semaphore() -> Any:
    made = LIBC.semget(0, 1, 0o1600)

    def change(by: int) -> None:
        LIBC.semop(made, ctypes.byref(Buffer(0, by, 0)), 1)

    atexit.register(LIBC.semctl, made, 0, 0)
    return lambda: change(-1), lambda _: change(1)


def by_queue() -> Any:
    made = LIBC.msgget(0, 0o1600)
    room, message = (ctypes.create_string_buffer(b"\x01" + bytes(63), 64) for _ in range(2))
    atexit.register(LIBC.msgctl, made, 0, None)
    return lambda: LIBC.msgrcv(made, room, 8, 0, 0), lambda _: LIBC.msgsnd(made, message, 8, 0)


def by_signal() -> Any:
    signal.signal(signal.SIGUSR1, work)
    return lambda: signal.sigtimedwait([], 0.5), lambda pid: os.kill(pid, signal.SIGUSR1)


def by_futex() -> Any:
    gate = threading.Semaphore(0)
    return gate.acquire, lambda _: gate.release()


def await_sleep(thread: int | None) -> None:
    """Return when a thread has fallen asleep over its next piece of work, not before it began."""
    asleep = 0
    while asleep < 3:  # it may sleep for another reason, for a moment
        time.sleep(0.002)
        stat = Path(f"/proc/{thread}/stat").read_text(encoding="utf-8")
        asleep = asleep + 1 if stat.rpartition(")")[2].split()[0] == "S" else 0


def main(name: str) -> None:
    """Let a process, or with futexes a thread, wait for what the first one sends it."""
    receive, send = globals()[f"by_{name}"]()

    def serve() -> None:
        Path("/proc/thread-self/comm").write_text(name, encoding="ascii")
        for _ in range(ROUNDS):
            receive()
            work()

    thread, pid = threading.Thread(target=serve), 0
    if name == "futex":
        thread.start()
    else:
        pid = os.fork()
        if pid == 0:
            serve()
            os._exit(0)
    for _ in range(ROUNDS):
        await_sleep(pid or thread.native_id)
        send(pid)
    if pid:
        os.waitpid(pid, 0)
    else:
        thread.join()


for each in sys.argv[1:]:
    main(each)
