"""Programs with a dial: ``python3 dials.py NAME PERCENT [K]``, eight requests; 100 % is as it was.

With K only that many of the eight are dialled.
Requests are of four sizes. What is dialled: rows of JSON, rows that SQLite reads, lines that a
child `sort` sorts, and what gunicorn computes behind nginx, which asks redis besides.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable

_FD = int(os.environ.get("CRITPATH_MARKER_FD", "-1"))
if "CRITPATH_RECORDER" in os.environ:
    _FD = os.open("/proc/lttng-logger", os.O_WRONLY)
COUNT = 8


def mark(what: str, name: str, key: int) -> None:
    """Mark the begin or end of a request."""
    if _FD >= 0:
        os.write(_FD, f"critpath:{what} {name} {key}\n".encode())


def prepare_json(most: int) -> Callable[[int], object]:
    """Have documents written and read."""
    rows = [{"id": i, "name": f"item {i}", "tags": ["a", "b", str(i)]} for i in range(most)]
    return lambda size: json.loads(json.dumps(rows[:size]))


def prepare_sqlite(most: int) -> Callable[[int], object]:
    """Have a table read and added up."""
    base = sqlite3.connect(":memory:")
    base.execute("create table t(id integer primary key, kind int, n real)")
    base.executemany("insert into t values (?, ?, ?)", ((i, i % 17, i / 3) for i in range(most)))
    question = "select kind, count(*), sum(n), max(n) from t where id < ? group by kind"
    return lambda size: base.execute(question, (size,)).fetchall()


def prepare_sort(most: int) -> Callable[[int], object]:
    """Have a child sort lines."""
    chance = random.Random(1)  # noqa: S311 - the same lines each time
    lines = [f"{chance.random():.9f} {i}\n" for i in range(most)]
    return lambda size: subprocess.run(
        ["sort", "-n"], input="".join(lines[:size]).encode(), capture_output=True, check=True
    )


def prepare_shop(_: int) -> Callable[[int], object]:
    """Have gunicorn asked through nginx: it asks redis thrice and computes."""
    server = http.client.HTTPConnection("127.0.0.1", 8230)

    def ask(size: int) -> object:
        server.request("GET", f"/shop?n=3&c={size / 1000}")
        return server.getresponse().read()

    return ask


PROGRAMS = {
    "json": (prepare_json, 1200),
    "sqlite": (prepare_sqlite, 16000),
    "sort": (prepare_sort, 8000),
    "shop": (prepare_shop, 4000),
}


def main() -> None:
    name, percent = sys.argv[1], float(sys.argv[2])
    dialled = int(sys.argv[3]) if len(sys.argv) > 3 else COUNT
    prepare, normal = PROGRAMS[name]
    # What is prepared is the same on both sides.
    answer = prepare(normal * 4)
    for key in range(-2, COUNT):
        much = percent if key * 5 % COUNT < dialled else 100
        size = int(normal * (0.85 + 0.1 * (key % 4)) * much / 100)
        if key >= 0:
            mark("begin", name, key)
        answer(size)
        if key >= 0:
            mark("end", name, key)
        time.sleep(0.001)
    os._exit(0)


if __name__ == "__main__":
    main()
