"""A fleet's recordings on an object store, extracted by dask's workers there: bytes, memory, plan.

    python fleet.py [--hosts 4] [--requests 2000] [--workers 1,2,4] [--json FILE]

Before and after of so many hosts, simulated by ``large_trace.py`` (80 events a request), lie on
moto's S3 server. A scheduler and 1, 2 and 4 workers of one thread extract both to datasets
there, and the datasets are compared. Measured: bytes that the server sent and took, its requests,
tasks, CPU seconds and peak memory of a worker; of the comparison its CPU and memory.  At the end
what that comes to for 100 hosts with 100,000 requests each, per request and host, on paper.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
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

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / name) for name in ("", "benchmarks")]

from large_trace import EXECUTION, generate  # noqa: E402
from results import write_results  # noqa: E402

OF_A_REQUEST: Final = 80  # events, of a server
FLEET: Final = 100
HOUR: Final = 100_000  # requests of a host in an hour
SIDES: Final = ("before", "after")
PATIENCE: Final = 120  # s for a process of dask's to be there, also on a busy machine
KEYS: Final = ("somebody", "whatever moto takes")


class Store:
    """moto's S3 in a thread, and how much it sends and takes."""

    def __init__(self) -> None:
        self.sent = self.taken = self.requests = 0
        self._app = create_backend_app("s3")
        self._lock = threading.Lock()
        self._server = make_server("127.0.0.1", 0, self, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.port}",
            "AWS_ACCESS_KEY_ID": KEYS[0],
            "AWS_SECRET_ACCESS_KEY": KEYS[1],
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        self.fs = fsspec.filesystem(
            "s3", endpoint_url=self.environment["AWS_ENDPOINT_URL"], key=KEYS[0], secret=KEYS[1]
        )

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
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


def main() -> None:
    """Measure, and say what it comes to for a fleet."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--requests", type=int, default=2000, help="of a host, before and after")
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = Store()
    environment = {**os.environ, **store.environment}
    store.fs.mkdir("fleet")
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        home, size = Path(name), 0
        for number in range(2 * given.hosts):
            trace = home / f"host-{number}"
            events = OF_A_REQUEST * given.requests
            generate(trace, events, executions=given.requests, seed=number + 1)
            size += sum(file.stat().st_size for file in trace.rglob("*") if file.is_file())
            side = SIDES[number // given.hosts]
            store.fs.put(f"{trace}/", f"fleet/{side}/{trace.name}/", recursive=True)
        rows = []
        for count in map(int, given.workers.split(",")):
            place = home / f"with-{count}"
            place.mkdir()
            rows.append(extract(store, count, place, environment))
            print("  ".join(f"{key}: {value:,.1f}" for key, value in rows[-1].items()), flush=True)
        last = rows[-1]["workers"]
        store.take()
        both = [f"s3://fleet/paths/{last}/{side}" for side in SIDES]
        cpu, peak = critpath(environment, "compare", *both)
        sent, _, asked = store.take()
    runs = 2 * given.hosts * given.requests
    print(f"compare: {cpu:.1f} s CPU, peak {peak:,.0f} MB, {sent / 1e6:,.1f} MB, {asked} requests")
    every, row = 2 * FLEET * HOUR / runs, rows[0]
    plan = {
        "tasks": 2 * FLEET,
        "recordings, GB": size * every / 1e9,
        "read by workers, GB": row["read, MB"] * every / 1e3,
        "written, GB": row["written, MB"] * every / 1e3,
        "CPU of workers, h": row["CPU of workers, s"] * every / 3600,
        "read by compare, GB": sent * every / 1e9,
    }
    print(f"{FLEET} hosts, {HOUR:,} requests each, before and after (on paper, linear):")
    for key, value in plan.items():
        print(f"  {key}: {value:,.1f}")
    if given.json:
        write_results(given.json, rows, plan=plan)


if __name__ == "__main__":
    main()
