"""Whether the first cause names the file or the peer: faults in a program and in real servers.

``python evaluation/locations/files.py [--repetitions N] [--keep DIR] [NAME ...]``: a program
(``locations/files.py``) writes forty times to two files and two databases (SQLite) and asks two
peers.  It is recorded with ``--files`` without a fault, once more without (a healthy pair), and
with each fault, and compared as ``critpath compare`` does.  Servers that run already are recorded
with ``-a --files`` while a client asks them: a web service in Python (``locations/web.py``),
Redis with ``appendfsync always``, PostgreSQL.  Their fault is a slow disk, that of a loop device,
which the kernel holds back, or a peer that answers late.  A second PostgreSQL, whose files have the
same names on a quick disk, is written to meanwhile.

What counts as right (`FAULTS`, `SERVERS`) was written before the first run: the first cause names,
as where the thread was or waits, first a call on a file or a peer of the fault; none names one of
the other of the two.  A healthy pair has no anomaly.  Of the faults the verdict was to be
``anomaly``; since the first run it may be ``inconclusive`` as well, and is printed: a disk that
the kernel holds back is a slower machine, as compare says then, and so are other programs.

Needs root, tracefs and bpf, as ``record --files`` does; the servers redis-server and postgresql,
and the control groups of Linux's version 1 (``blkio``) for the disk, else they are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).resolve().parents[1] / "services"))
from park import find_program

CRITPATH: Final = (sys.executable, "-P", "-m", "critpath")
MARKS: Final = Path(__file__).resolve().parents[2] / "marks"
HERE: Final = Path(__file__).resolve().parent / "programs"
LIMIT: Final = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device")
WRITES: Final = 40  # a second, of the slow disk: a commit of ext4 takes some
# Fault: what the first cause names, and what it must not name.
FAULTS: Final = {
    "audit": ("audit.log", "data.log"),
    "archive": ("archive.db", "orders.db"),
    "peer": ("127.0.0.1:{second}", "127.0.0.1:{first}"),
}


# Server and what it is asked: as above; the disk is slow, or the second peer.
SERVERS: Final = {
    "web /audit": ("audit.log", "data.log"),
    "web /archive": ("archive.db", "orders.db"),
    "web /ask": FAULTS["peer"],
    "redis": ("(appendonly.aof.1.incr.aof)", "client of"),
    # A second one has a file of that name, too, below pg_wal of its own.
    "postgres": ("(wal/000000010000000000000001)", "pg_wal/"),
}
ENVIRONMENT: Final = {**os.environ, "PYTHONPATH": str(MARKS)}


def main() -> int:
    """Run them; return 1 if less is right than should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("names", nargs="*", help=", ".join((*FAULTS, *SERVERS)))
    chosen = parser.parse_args()
    names = chosen.names or [*FAULTS, *SERVERS]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="critpath-files-", dir="/var/tmp") as scratch:
        Path(scratch).chmod(0o755)
        for number in range(chosen.repetitions):
            place = (chosen.keep or Path(scratch)) / str(number)
            place.mkdir(parents=True)
            in_program(place, [name for name in FAULTS if name in names], rows)
        if wanted := [name for name in SERVERS if name in names]:
            if shutil.which("redis-server") and shutil.which("psql") and LIMIT.exists():
                in_servers(Path(scratch), chosen.keep, wanted, chosen.repetitions, rows)
            else:
                print("servers: left out, redis-server, psql and blkio (v1) are needed")
    right = sum(row["right"] for row in rows)
    print(f"{right} of {len(rows)} are right")
    print(f"{sum(row['wrong'] for row in rows)} name the other file or peer")
    return right < 0.95 * len(rows)


def in_program(place: Path, faults: list[str], rows: list[dict[str, Any]]) -> None:
    """Record the program with and without its faults, and judge."""
    ports = [serve(), serve()]

    def take(name: str) -> None:
        command = [sys.executable, str(HERE / "files.py"), name, *map(str, ports)]
        record(place, name, "--", *command)

    wanted = ("healthy", *faults) if faults else ()
    rows += [judge(place, name, name, FAULTS.get(name), ports, take) for name in wanted]


SLOW = threading.Event()  # the second peer


def serve(*, second: bool = False) -> int:
    """Answer on a port of this machine, late if asked to; return the port."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            peer, _ = server.accept()
            with peer:
                late = peer.recv(16).startswith(b"slow") or (second and SLOW.is_set())
                time.sleep(0.03 if late else 0)
                peer.sendall(b"ok\n")

    threading.Thread(target=answer, daemon=True).start()
    return int(server.getsockname()[1])


def in_servers(
    scratch: Path, keep: Path | None, names: list[str], repetitions: int, rows: list[dict[str, Any]]
) -> None:
    """Record servers on a disk that is slow at times, and judge."""
    ports = [serve(), serve(second=True)]
    with slow_disk(scratch) as (disk, number), running(scratch, disk, ports) as at:
        for turn in range(repetitions):
            for name in names:
                place = (keep or scratch) / f"{turn} {name.replace(' /', '-')}"
                place.mkdir()

                def take(which: str, name: str = name, place: Path = place) -> None:
                    if which == "slow":
                        SLOW.set()
                        LIMIT.write_text(f"{number} {WRITES}")
                    ask(place, which, name, at)
                    LIMIT.write_text(f"{number} 0")
                    SLOW.clear()

                for which, truth in (("slow", SERVERS[name]), ("healthy", None)):
                    rows.append(judge(place, which, f"{name} {which}", truth, ports, take))


@contextlib.contextmanager
def slow_disk(scratch: Path) -> Iterator[tuple[Path, str]]:
    """Give a file system on a device of its own, and the device's number."""
    image, disk = scratch / "image", scratch / "disk"
    with image.open("wb") as file:
        file.truncate(256 << 20)
    done = subprocess.run(
        ["losetup", "-f", "--show", str(image)], check=True, capture_output=True, text=True
    )
    device = done.stdout.strip()
    try:
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
        disk.mkdir()
        subprocess.run(["mount", device, str(disk)], check=True)
        number = Path("/sys/block", Path(device).name, "dev").read_text().strip()
        try:
            yield disk, number
        finally:
            LIMIT.write_text(f"{number} 0")
            subprocess.run(["umount", str(disk)], check=True)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


@contextlib.contextmanager
def running(scratch: Path, disk: Path, peers: list[int]) -> Iterator[dict[str, int]]:
    """Run the servers, on the slow disk what they have to write at once; give their ports."""
    with contextlib.ExitStack() as ending:
        at = {}
        for name in ("web", "redis", "postgres", "other"):
            with socket.create_server(("127.0.0.1", 0)) as free:
                at[name] = free.getsockname()[1]

        def start(name: str, *words: str, **how: Any) -> None:
            server = subprocess.Popen(
                words, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, **how
            )
            ending.callback(server.wait, 20)
            ending.callback(server.send_signal, signal.SIGINT)
            for _ in range(200):
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(("127.0.0.1", at[name])),
                ):
                    return
                time.sleep(0.05)
            sys.exit(f"{name} does not answer")

        own = scratch / "own"
        own.mkdir(mode=0o755)
        web = [sys.executable, str(HERE / "web.py"), str(at["web"]), str(own), str(disk)]
        start("web", *web, *map(str, peers))
        redis = {"port": at["redis"], "dir": disk, "save": "", "appendonly": "yes"}
        redis |= {"appendfsync": "always"}
        options = [word for key, value in redis.items() for word in (f"--{key}", str(value))]
        start("redis", find_program("redis-server"), *options)
        user: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []}
        for name, place in (("postgres", disk), ("other", own)):
            data, wal = own / name, place / "wal"
            for directory in (wal, data):
                directory.mkdir(mode=0o700)
                shutil.chown(directory, "postgres", "postgres")
            where = ["-D", str(data), *(["-X", str(wal)] if place == disk else [])]
            make = [find_program("initdb"), *where, "-A", "trust", "-N"]
            subprocess.run(make, check=True, stdout=subprocess.DEVNULL, cwd="/", **user)
            settings = ("unix_socket_directories=", "listen_addresses=127.0.0.1", "autovacuum=off")
            sets = [word for text in (f"port={at[name]}", *settings) for word in ("-c", text)]
            start(name, find_program("postgres"), "-D", str(data), *sets, cwd="/", **user)
        words = ["-h", "127.0.0.1", "-p", str(at["other"]), "-U", "postgres", "postgres"]
        busy = subprocess.Popen(
            ["psql", "-Xq", *words], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        ending.callback(busy.wait, 20)
        ending.callback(busy.kill)
        assert busy.stdin is not None
        busy.stdin.write(
            "create table many (line int);\ninsert into many values (1) \\watch 0.02\n"
        )
        busy.stdin.flush()
        yield at


def ask(place: Path, which: str, name: str, at: dict[str, int]) -> None:
    """Record the machine for some seconds, while a client asks a server over and over."""
    kind = name.split(maxsplit=1)
    client = [sys.executable, str(HERE / "ask.py"), *kind, str(at[kind[0]])]
    asking = subprocess.Popen(client, env=ENVIRONMENT)
    try:
        time.sleep(0.5)
        record(place, which, "-a", "--duration", "2")
        if asking.poll() is not None:
            sys.exit(f"the client of {name} ended")
    finally:
        asking.kill()
        asking.wait()


def record(place: Path, which: str, *options: str) -> None:
    """Record files and peers of marked requests."""
    words = [*CRITPATH, "record", "--recorder", "ftrace", "--force"]
    words += ["--files", "--execution", "marker", "-o", which, *options]
    done = subprocess.run(
        words, cwd=place, capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    if done.returncode:
        sys.exit(done.stderr)


def judge(
    place: Path,
    which: str,
    name: str,
    truth: tuple[str, str] | None,
    ports: list[int],
    take: Callable[[str], None],
) -> dict[str, Any]:
    """Record a pair, compare it, and say whether the first cause names what it should."""
    command = [*CRITPATH, "compare", "normal", which, "--json", "out.json"]
    if not (place / "normal").exists():
        take("normal")
    take(which)
    subprocess.run(command, cwd=place, capture_output=True, check=False)
    document = json.loads((place / "out.json").read_text())
    facts = document["causes"][0]["facts"] if document["causes"] else {}
    named = [one["location"] for one in facts.get("locations", ())]
    named = [text for text in (*named, facts.get("waits_at", "")) if text]
    first = "".join(named[:1])
    row = {"name": name, "verdict": document["verdict"], "named": named[:4]}
    if truth is None:
        row |= {"right": document["verdict"] != "anomaly", "wrong": False}
    else:
        of = dict(zip(("first", "second"), ports, strict=True))
        right, wrong = (text.format(**of) for text in truth)
        row |= {"right": document["verdict"] != "ok" and right in first, "wrong": wrong in first}
    print(json.dumps({**row, "load": os.getloadavg()[0]}), flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
