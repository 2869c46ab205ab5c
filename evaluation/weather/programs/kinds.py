"""Programs with faults: ``python3 kinds.py NAME a|b|c``; b has what slows it, c less of it."""

from __future__ import annotations

import ctypes
import http.client
import mmap
import os
import queue
import socket
import socketserver
import subprocess
import sys
import threading
import time

MILD = sys.argv[2:3] == ["c"]
_FD = int(os.environ.get("CRITPATH_MARKER_FD", "-1"))
if "CRITPATH_RECORDER" in os.environ:
    _FD = os.open("/proc/lttng-logger", os.O_WRONLY)

_PSQL = ("psql", "-q", "-h", "/tmp/corpus-pg", "-p", "5497", "-U", "postgres")


def mark(what: str, name: str, key: int) -> None:
    """Mark the begin or end of a request."""
    if _FD >= 0:
        os.write(_FD, f"critpath:{what} {name} {key}\n".encode())


def compute(ms: float) -> int:
    """Compute a fixed amount of work, about `ms`."""
    total = 0
    for i in range(int(ms * 40_000)):
        total += i & 7
    return total


def name_thread(name: str) -> None:
    """Name the thread as the kernel knows it."""
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)


def run_herd(*, slow: bool) -> None:
    """40 threads wait for a condition; each job wakes all, or one."""
    condition, jobs, done = threading.Condition(), [0], threading.Semaphore(0)

    def wait() -> None:
        name_thread("consumer")
        while True:
            with condition:
                while not jobs[0]:
                    condition.wait()
                jobs[0] -= 1
            compute(0.3)
            done.release()

    for _ in range(40):
        threading.Thread(target=wait, daemon=True).start()
    time.sleep(0.01)
    for key in range(10):
        mark("begin", "job", key)
        with condition:
            jobs[0] += 1
            (condition.notify_all if slow else condition.notify)()
        done.acquire()
        mark("end", "job", key)
        time.sleep(0.002)


def run_compute(*, slow: bool) -> None:
    """Ten pages, whose computation takes four times as long."""
    for key in range(10):
        mark("begin", "page", key)
        compute((2.6 if MILD else 8) if slow else 2)
        mark("end", "page", key)


def run_fork(*, slow: bool) -> None:
    """Fork with 400 MB of memory, or 10 MB, touched."""
    size = ((60 if MILD else 400) if slow else 10) << 20
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, size, 4096):
        memory[at] = 1
    for key in range(8):
        mark("begin", "job", key)
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        compute(1)
        mark("end", "job", key)


def run_pinned(*, slow: bool) -> None:  # noqa: ARG001 - the hog is what changes
    """Work on cpu 1, whoever else is there."""
    os.sched_setaffinity(0, {1})
    for key in range(6):
        mark("begin", "frame", key)
        compute(4)
        mark("end", "frame", key)
        time.sleep(0.001)


def run_lanes(*, slow: bool) -> None:  # noqa: ARG001 - the hog is what changes
    """Two kinds of requests, of a process on cpu 0 and one on cpu 1."""
    lanes = []
    for cpu in (0, 1):
        ours, theirs = socket.socketpair()
        if not os.fork():
            ours.close()
            os.sched_setaffinity(0, {cpu})
            name_thread(f"lane-{'ab'[cpu]}")
            while theirs.recv(1):
                compute(2)
                theirs.send(b"x")
            os._exit(0)
        theirs.close()
        lanes.append(ours)
    os.sched_setaffinity(0, {0})
    for key in range(8):
        kind = "write" if key & 1 else "read"
        mark("begin", kind, key)
        lanes[key & 1].send(b"j")
        lanes[key & 1].recv(1)
        mark("end", kind, key)
        time.sleep(0.001)
    for lane in lanes:
        lane.close()
    for _ in lanes:
        os.wait()


def run_faults(*, slow: bool) -> None:
    """Take fresh memory for each page, or use what is there."""
    kept = bytearray(4 << 20)
    for key in range(10):
        mark("begin", "page", key)
        memory = bytearray(4 << 20) if slow else kept
        for at in range(0, len(memory), 4096):
            memory[at] = 1
        compute(0.5)
        del memory
        mark("end", "page", key)


def run_threads(*, slow: bool) -> None:
    """Two workers, called after what they do and a number, have a job each."""

    def work(jobs: queue.SimpleQueue[float], done: queue.SimpleQueue[int]) -> None:
        name_thread(f"pool-7-thr-{threading.get_native_id() % 1000}")
        while True:
            compute(jobs.get())
            done.put(1)

    jobs: queue.SimpleQueue[float] = queue.SimpleQueue()
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    for _ in range(4):
        threading.Thread(target=work, args=(jobs, done), daemon=True).start()
    time.sleep(0.005)
    for key in range(8):
        mark("begin", "job", key)
        jobs.put((2 if MILD else 5) if slow else 1.5)
        done.get()
        mark("end", "job", key)
        time.sleep(0.002)


def run_relay(*, slow: bool) -> None:
    """Ask a server that asks a second, that asks a third, which sleeps."""
    name_thread("front")
    with socket.create_connection(("127.0.0.1", 8241)) as c:
        for key in range(6):
            mark("begin", "page", key)
            c.sendall((b"c" if MILD else b"b") if slow else b"a")
            c.recv(1)
            compute(1)
            mark("end", "page", key)
            time.sleep(0.002)


def serve_relay(name: str, port: int) -> None:
    """Serve a link of the chain; the last one sleeps when asked for b."""

    class Link(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            name_thread(name)
            onward = socket.create_connection(("127.0.0.1", port + 1)) if port < 8243 else None
            while what := self.request.recv(1):
                compute(0.4)
                if onward:
                    onward.sendall(what)
                    onward.recv(1)
                elif what != b"a":
                    time.sleep(0.02 if what == b"b" else 0.002)
                self.request.sendall(what)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    name_thread(name)
    Server(("127.0.0.1", port), Link).serve_forever()


def run_ask(path: str, port: int, count: int, label: str) -> None:
    """Ask a server of HTTP `count` times."""
    c = http.client.HTTPConnection("127.0.0.1", port)
    for key in range(count):
        mark("begin", label, key)
        c.request("GET", path)
        c.getresponse().read()
        mark("end", label, key)
        time.sleep(0.002)


def run_line(line: str, port: int) -> None:
    """Send a line to a chain of servers (tier.c), ten times."""
    with socket.create_connection(("127.0.0.1", port)) as c:
        for key in range(-3, 10):
            if key >= 0:
                mark("begin", "page", key)
            c.sendall(f"{line}\n".encode())
            c.recv(10)
            if key >= 0:
                mark("end", "page", key)
            time.sleep(0.002)


def run_mixed(*, slow: bool) -> None:  # noqa: ARG001 - the hog is what changes
    """Ask redis (on cpu 0) and nginx (on cpu 1) by turns."""
    os.sched_setaffinity(0, {0})
    cache = socket.create_connection(("127.0.0.1", 6398))
    static = http.client.HTTPConnection("127.0.0.1", 8230)
    for key in range(10):
        kind = "static" if key & 1 else "cache"
        mark("begin", kind, key)
        for _ in range(15):
            if key & 1:
                static.request("GET", "/")
                static.getresponse().read()
            else:
                cache.sendall(b"GET k\r\n")
                cache.recv(100)
        mark("end", kind, key)
        time.sleep(0.001)


def run_lock(*, slow: bool) -> None:
    """Have a row changed by psql; with b the row that another session holds."""
    change = f"update t set n=n+1 where id={2 if slow else 1}"
    subprocess.run([*_PSQL, "-c", change], check=True)


def hold_row() -> None:
    """Keep row 2 locked for 40 of each 50 ms, from a session whose client sleeps."""
    p = subprocess.Popen(
        _PSQL,
        stdin=subprocess.PIPE,
        text=True,
    )
    assert p.stdin
    name_thread("billing")
    while True:
        p.stdin.write("begin; update t set n=n+1 where id=2;\n")
        p.stdin.flush()
        time.sleep(0.04)
        p.stdin.write("commit;\n")
        p.stdin.flush()
        time.sleep(0.01)


def main() -> None:
    what, *given = sys.argv[1:]
    if what == "serve-relay":
        serve_relay(given[0], int(given[1]))
    elif what == "hold-row":
        hold_row()
    elif what == "ask":
        run_ask(given[0], int(given[1]), int(given[2]), given[3])
    elif what == "line":
        run_line(given[0], int(given[1]))
    else:
        globals()[f"run_{what}"](slow=given[0] != "a")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
