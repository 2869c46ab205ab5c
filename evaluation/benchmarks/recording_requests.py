"""What the profile ``requests`` costs more than ``minimal``.

    python evaluation/benchmarks/recording_requests.py [--pairs N] [--python PYTHON]

Redis at saturation (``redis-benchmark``, 16 connections): cpu time of the server and its client for
each request, recorded with either profile in pairs of random order; events of their threads
for each request. Then 70 requests a second over three tiers (nginx, gunicorn, PostgreSQL;
PYTHON has gunicorn and psycopg2): the share of the machine's cpu that recording takes.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from critpath.model import EventRequest, Kind
from critpath.read.traces import read_events
from critpath_marks.sessions import new_session_name
from critpath_record.ftrace.recorder import find_needs, open_recorder
from critpath_record.recorder import RecorderSettings

sys.path.append(str(Path(__file__).resolve().parents[1] / "servers"))
from cases import CASES, PORTS, Park

_EVERYTHING = (EventRequest(Kind.OTHER, ("*",), (("tid",),)),)
_TICK = os.sysconf("SC_CLK_TCK")
_RATE, _CONNECTIONS = 70, 4


def cpu_seconds(pid: int) -> float:
    """Return a process's cpu time, to the nanosecond where the scheduler tells."""
    try:
        tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
        return sum(int(t.read_text().split()[0]) for t in tasks) / 1e9
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK


class Recorded:
    """A recording that is made while something runs."""

    def __init__(self, profile: str) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="critpath-cost-")
        settings = RecorderSettings(new_session_name(), Path(self._place.name), profile)
        self._recorder = open_recorder(settings)
        self.own = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record; what the recorder itself takes is counted."""
        try:
            self._recorder.open()
            before = time.process_time()
            yield
            self.own = time.process_time() - before
            self._recorder.close()
            self._recorder.drain(lambda _: None)
        except BaseException:
            self._recorder.abort()
            raise

    def threads_of_events(self) -> np.ndarray:
        """Return the thread of every event, and delete the recording."""
        events = read_events(Path(self._place.name) / "trace", _EVERYTHING)
        at = {i: c.fields.index("tid") for i, c in enumerate(events.classes) if "tid" in c.fields}
        offsets = np.array([at.get(i, -1) for i in range(len(events.classes))])[events.event_class]
        found = events.values[events.offset[offsets >= 0] + offsets[offsets >= 0]]
        self._place.cleanup()
        return found


def ask_redis(profile: str, server: int, requests: int) -> tuple[float, float]:
    """Return microseconds of cpu and events for each request."""
    recorded = Recorded(profile)
    words = ["redis-benchmark", "-p", str(PORTS["redis"]), "-c", "16", "-t", "incr", "-q"]
    with recorded.running():
        before = cpu_seconds(server)
        client = subprocess.Popen([*words, "-n", str(requests)], stdout=subprocess.DEVNULL)
        _, _, usage = os.wait4(client.pid, 0)
        taken = cpu_seconds(server) - before + usage.ru_utime + usage.ru_stime
    client.returncode = 0
    events = np.isin(recorded.threads_of_events(), [server, client.pid]).sum()
    return 1e6 * taken / requests, events / requests


def at_saturation(park: Park, pairs: int, requests: int) -> float:
    """Print what a request costs more; return the nanoseconds of an event."""
    server = park.running[0].pid
    rows = []
    ask_redis("minimal", server, requests)
    for _ in range(pairs):
        order = ["minimal", "requests"]
        random.shuffle(order)
        pair = {profile: ask_redis(profile, server, requests) for profile in order}
        (less, few), (more, many) = pair["minimal"], pair["requests"]
        rows.append((less, more, few, many, more - less))
    less, more, few, many, added = (list(column) for column in zip(*rows, strict=True))
    low, middle, high = statistics.quantiles(added, n=4)
    each = 1e3 * middle / (statistics.median(many) - statistics.median(few))
    print("| redis at saturation | minimal | requests | added, paired |\n|---|---:|---:|---:|")
    print(
        f"| µs of cpu a request | {statistics.median(less):.2f} | {statistics.median(more):.2f} "
        f"| {middle:+.2f} ({low:+.2f} to {high:+.2f}) |"
    )
    print(
        f"| events a request | {statistics.median(few):.1f} | {statistics.median(many):.1f} "
        f"| {each:.0f} ns each |\n"
    )
    return each


def over_tiers(park: Park, each: float, seconds: float) -> None:
    """Print the share of the machine that recording takes at a given rate."""
    recorded = Recorded("requests")
    think = int(2 * (_CONNECTIONS / _RATE - 0.012) * 1e6)  # less what an answer takes
    requests = int(_RATE * seconds)
    words = ("served", _CONNECTIONS, requests, "http", think, park.place / "asked")
    with park.serving(CASES["tiers"]), recorded.running():
        begin = time.monotonic()
        port, *others = words
        command = [str(park.place / "client"), str(PORTS[str(port)]), *map(str, others)]
        subprocess.run(command, check=True)
        lasted = time.monotonic() - begin
        known = {t for one in park.running for t in park.threads(one)}
    rows = (park.place / "asked").read_text().splitlines()
    known |= {int(line.split()[4]) for line in rows}
    threads = recorded.threads_of_events()
    own = int(np.isin(threads, sorted(known)).sum())
    machine = lasted * (os.cpu_count() or 1)
    share = (own * each * 1e-9 + recorded.own) / machine
    print(
        f"three tiers: {len(rows) / lasted:.0f} requests/s, {own / len(rows):.0f} events a request"
    )
    print(
        f"  {100 * share:.2f} % of {os.cpu_count()} cpus"
        f" (recorder {100 * recorded.own / machine:.2f} %)"
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--requests", type=int, default=30_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--python", type=Path, help="has gunicorn and psycopg2")
    given = parser.parse_args()
    wrong = [o.what for o in find_needs(None) if o.fatal]
    wrong += [f"no {n}" for n in ("redis-server", "redis-benchmark", "gcc") if not shutil.which(n)]
    if os.geteuid() or wrong:
        print(f"recording requests: left out: {'; '.join(wrong) or 'recording needs root'}")
        return 0
    python = given.python or Path(sys.executable)
    with Park.opened(python) as park:
        each = at_saturation(park, given.pairs, given.requests)
        missing = park.missing(CASES["tiers"])
        if missing or not (python.parent / "gunicorn").exists():
            print(f"three tiers: left out, there is no {missing or 'gunicorn'}: --python")
        else:
            over_tiers(park, each, given.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
