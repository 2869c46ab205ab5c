"""A fleet's dumps on an object store: extracted by dask's workers there, compared; bytes, memory.

    python fleet.py [--hosts 4] [--requests 2000] [--workers 1,2,4] [--latency MS] [--json FILE]
    python fleet.py --stored 1e6 [--hosts 100] [--json FILE]

Before and after of so many hosts lie on moto's S3 server: dumps of an hour in which a recorded
server was asked so often (``recorded.py``).  A scheduler and 1, 2 and 4 workers of one thread
extract both to datasets there, and the datasets are compared.  Measured: bytes that the server sent
and took, its requests, tasks, CPU seconds and peak memory of a worker; of the comparison its CPU
and memory.  At the end what that comes to for 100 hosts with 100,000 requests each, on paper.

``--stored``: the comparison alone, of so many requests in all that were drawn from recorded
ones, a part for each host; after, waiting for a CPU takes a fifth longer.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import fsspec
from moto.server import create_backend_app
from werkzeug.serving import make_server

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from recorded import draw_paths, repeat_recording  # noqa: E402
from results import write_results  # noqa: E402

from critpath.store import Dataset  # noqa: E402

EXECUTION: Final = "requests"
SLOWER: Final = 1.2  # waiting for a CPU, after
FLEET: Final = 100
HOUR: Final = 100_000  # requests of a host in an hour
SIDES: Final = ("before", "after")
PATIENCE: Final = 120  # s for a process of dask's to be there, also on a busy machine
KEYS: Final = ("somebody", "whatever moto takes")


class Store:
    """moto's S3 in a thread, and how much it sends and takes; an answer takes so long (s)."""

    def __init__(self, latency: float = 0.0) -> None:
        os.environ["MOTO_S3_DEFAULT_KEY_BUFFER_SIZE"] = "65536"  # objects are on the disk
        self.sent = self.taken = self.requests = 0
        self._latency = latency
        self._app = create_backend_app("s3")
        self._lock = threading.Lock()
        self._server = make_server("127.0.0.1", 0, self, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.environment = {
            "AWS_CONFIG_FILE": os.devnull,  # not what the user has for another store
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.port}",
            "AWS_ACCESS_KEY_ID": KEYS[0],
            "AWS_SECRET_ACCESS_KEY": KEYS[1],
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        self.fs = fsspec.filesystem(
            "s3", endpoint_url=self.environment["AWS_ENDPOINT_URL"], key=KEYS[0], secret=KEYS[1]
        )

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if self._latency:
            time.sleep(self._latency)
        answer = b"".join(self._app(environ, start))
        with self._lock:
            self.requests += 1
            self.sent += len(answer)
            self.taken += int(environ.get("CONTENT_LENGTH") or 0)
        return [answer]

    def take(self) -> tuple[int, int, int]:
        """Return bytes sent and taken, and requests, since this was asked last."""
        found = self.sent, self.taken, self.requests
        self.sent = self.taken = self.requests = 0
        return found


def read_peak(process: int) -> tuple[float, float]:
    """Return a process's peak memory (MB) and its CPU seconds."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1e3
    times = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return peak, (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


def wait_for(condition: Callable[[], object], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for something that a process does, as long as it lives."""
    until = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None or time.monotonic() > until:
            sys.exit(f"{log.parent.name}: no answer\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)


def read_address(file: Path) -> str:
    """Return where the scheduler listens, once it has written that."""
    try:
        return json.loads(file.read_text())["address"]
    except (FileNotFoundError, ValueError):
        return ""


def start(words: list[str], place: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a process of dask's."""
    with (place / "log").open("ab") as log:
        command = [sys.executable, "-m", *words]
        return subprocess.Popen(command, cwd=place, env=environment, stdout=log, stderr=log)


def critpath(environment: dict[str, str], *words: str) -> tuple[float, float]:
    """Run a command to its end; return its CPU seconds and peak memory (MB)."""
    command = [sys.executable, "-P", "-m", "critpath", "--quiet", *words]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as running:
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode not in {0, 1, 3}:
        sys.exit(f"critpath {' '.join(words)}: {running.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3


def extract(store: Store, count: int, place: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Extract both sides by so many workers."""
    file = place / "scheduler.json"
    scheduler = ["distributed.cli.dask_scheduler", "--no-dashboard", "--host", "127.0.0.1"]
    scheduler += ["--port", "0", "--scheduler-file", str(file)]
    processes = [start(scheduler, place, environment)]
    try:
        wait_for(lambda: read_address(file), processes[0], place / "log")
        address = read_address(file)
        for number in range(count):
            home = place / f"worker-{number}"
            home.mkdir()
            words = ["distributed.cli.dask_worker", address, "--no-nanny", "--no-dashboard"]
            words += ["--nthreads", "1", "--local-directory", str(home)]
            processes.append(start(words, home, environment))
            log = home / "log"
            wait_for(lambda log=log: "Registered to" in log.read_text(), processes[-1], log)
        before = [read_peak(process.pid)[1] for process in processes[1:]]
        store.take()
        begun = time.monotonic()
        for side in SIDES:
            words = ["export", "--format", "paths", f"s3://fleet/{side}", "--execution", EXECUTION]
            words += ["-o", f"s3://fleet/paths/{count}/{side}", "--engine", f"dask:{address}"]
            critpath(environment, *words)
        elapsed = time.monotonic() - begun
        sent, taken, requests = store.take()
        peaks = [read_peak(process.pid) for process in processes[1:]]
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
    cpu = sum(after for _, after in peaks) - sum(before)
    return {
        "workers": count,
        "read, MB": sent / 1e6,
        "written, MB": taken / 1e6,
        "requests to the store": requests,
        "elapsed, s": elapsed,
        "CPU of workers, s": cpu,
        "peak of a worker, MB": max(peak for peak, _ in peaks),
    }


def put(store: Store, here: Path, there: str) -> int:
    """Put a directory on the store and remove it here; return its bytes."""
    size = sum(file.stat().st_size for file in here.rglob("*") if file.is_file())
    store.fs.put(f"{here}/", f"fleet/{there}/", recursive=True)
    shutil.rmtree(here)
    return size


def compare(store: Store, environment: dict[str, str], both: list[str]) -> dict[str, float]:
    """Compare two datasets on the store."""
    store.take()
    begun = time.monotonic()
    cpu, peak = critpath(environment, "compare", *both)
    elapsed = time.monotonic() - begun
    sent, _, asked = store.take()
    return {
        "CPU, s": cpu,
        "elapsed, s": elapsed,
        "peak, MB": peak,
        "read, MB": sent / 1e6,
        "requests to the store": asked,
    }


def word(row: dict[str, float]) -> dict[str, str]:
    """Return a row with its figures as they are shown."""
    return {
        key: f"{value:,.{0 if value >= 100 or value % 1 == 0 else 1}f}"
        for key, value in row.items()
    }


def show(row: dict[str, float]) -> str:
    """Return a row as a line."""
    return "  ".join(f"{key}: {value}" for key, value in word(row).items())


def compare_stored(store: Store, requests: int, hosts: int) -> dict[str, Any]:
    """Compare drawn requests of so many hosts."""
    size = 0
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        for number, side in enumerate(SIDES):
            place = Path(name) / side
            place.mkdir()
            dataset, slower = Dataset(place), SLOWER if side == "after" else 1.0
            parts = []
            for host in range(hosts):
                drawn = draw_paths(requests // (2 * hosts), 2 * host + number, slower=slower)
                parts.append(dataset.write_part(host, drawn))
            dataset.seal(parts, {})
            size += put(store, place, f"paths/{side}")
    print(f"{requests:,} requests of {hosts} hosts, {size / 1e6:,.0f} MB", flush=True)
    both = [f"s3://fleet/paths/{side}" for side in SIDES]
    found = compare(store, {**os.environ, **store.environment}, both)
    return {"requests compared": requests, "stored, MB": size / 1e6, **found}


def extract_fleet(
    store: Store, hosts: int, requests: int, workers: list[int]
) -> list[dict[str, str]]:
    """Extract and compare dumps of so many hosts; return rows, of which the last are the plan."""
    environment = {**os.environ, **store.environment}
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        home, size = Path(name), 0
        for number in range(2 * hosts):
            dump = home / f"host-{number}"
            repeat_recording(dump, requests, number)
            size += put(store, dump, f"{SIDES[number // hosts]}/{dump.name}")
        rows = []
        for count in workers:
            place = home / f"with-{count}"
            place.mkdir()
            rows.append(extract(store, count, place, environment))
            print(show(rows[-1]), flush=True)
    row, last = rows[0], rows[-1]["workers"]
    both = [f"s3://fleet/paths/{last}/{side}" for side in SIDES]
    runs = 2 * hosts * requests
    compared = {
        "requests compared": runs,
        "stored, MB": row["written, MB"],
        **compare(store, environment, both),
    }
    print(show(compared))
    every = 2 * FLEET * HOUR / runs
    plan = {
        "tasks": 2 * FLEET,
        "recordings, GB": size * every / 1e9,
        "read by workers, GB": row["read, MB"] * every / 1e3,
        "written, GB": row["written, MB"] * every / 1e3,
        "CPU of workers, h": row["CPU of workers, s"] * every / 3600,
        "read by compare, GB": compared["read, MB"] * every / 1e3,
    }
    print(f"{size / 1e6:,.1f} MB of dumps, {row['read, MB'] * 1e6 / size:.2f} times read")
    print(f"{FLEET} hosts, {HOUR:,} requests each, before and after (on paper, linear):")
    for key, value in word(plan).items():
        print(f"  {key}: {value}")
    return [
        *({"dumps, MB": word({"": size / 1e6})[""], **word(row)} for row in rows),
        word(compared),
        *({f"{FLEET} hosts": key, "on paper": value} for key, value in word(plan).items()),
    ]


def main() -> None:
    """Measure, and say what it comes to for a fleet."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--hosts", type=int, help="4; of --stored 100")
    parser.add_argument("--requests", type=int, default=2000, help="of a host, before and after")
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--stored", type=float, default=0, help="requests in all, compared only")
    parser.add_argument("--latency", type=float, default=0, metavar="MS", help="of an answer")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = Store(given.latency / 1e3)
    store.fs.mkdir("fleet")
    if given.stored:
        found = compare_stored(store, int(given.stored), given.hosts or FLEET)
        print(show(found))
        rows = [word(found)]
    else:
        workers = [int(count) for count in given.workers.split(",")]
        rows = extract_fleet(store, given.hosts or 4, given.requests, workers)
    if given.json:
        write_results(given.json, rows)


if __name__ == "__main__":
    main()
