"""Which tier became slower, and why: ``python tiers.py DIR [--healthy N] [FAULT ...]``.

nginx, gunicorn, PostgreSQL and Redis (`apps.wsgi_shop`), healthy and with seven faults, recorded
without marks and compared by ``--execution requests``. Prints what critpath names first beside the
tier and the words that a developer would look for. Healthy pairs (N) are recorded in alternation:
a fault needs other servers, and so is recorded after the healthy ones. Needs what `run.py` needs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cases import CASES, PORTS, Case, Park, gunicorn
from run import make_python

# Of each fault: what the facts of the first cause have to match, as regular expressions: the
# thread that was waited for, and the state.
FAULTS: Final = {
    "index": {"peer": "postgres", "state": "RUN|WAIT_CPU"},
    "lock": {"peer": "postgres|python"},
    "workers": {"peer": "gunicorn", "state": "QUEUED|WAIT_CPU|RUN"},
    "redis": {"peer": "redis"},
    "connect": {"peer": "postgres"},
    "fsync": {"peer": "gunicorn", "state": "WAIT_DISK"},
    "quota": {"state": "WAIT_QUOTA"},
}
_SQL: Final = """
create table plain (id int primary key, owner int, note text);
insert into plain select i, i % 400, repeat('x', 60) from generate_series(1, 60000) i;
create table indexed as select * from plain; create index on indexed (owner);
create table counters (id int primary key, n int);
insert into counters select i, 0 from generate_series(1, 50) i; vacuum analyze;
"""
_HOLD: Final = """
import sys, time, psycopg2
c = psycopg2.connect(host="127.0.0.1", port=sys.argv[1], user="postgres", dbname="postgres")
while True:
    c.cursor().execute("select n from counters for update"); time.sleep(0.008)
    c.commit(); time.sleep(0.008)
"""
_CONNECTIONS, _REQUESTS, _THINK = 4, 320, 20_000
_TURNS: Final = 8  # of each side, where two are recorded in turns


def main() -> None:
    """Record what is not there yet, and compare."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("--python", type=Path)
    parser.add_argument(
        "--critpath",
        type=shlex.split,
        default=[str(Path(sys.executable).with_name("critpath"))],
        help="how to record",
    )
    parser.add_argument("--healthy", type=int, default=20, help="healthy pairs")
    parser.add_argument("--execution", default=f"requests:port={PORTS['served']}")
    parser.add_argument("names", nargs="*", help="faults (default: all)")
    given = parser.parse_intermixed_args()
    place: Path = given.place.resolve()
    names = given.names or [*FAULTS]
    pairs = [f"healthy-{number}" for number in range(1, given.healthy + 1)]
    wanted = [n for n in ("normal", *names, *pairs) if not (place / n).exists()]
    if wanted:
        record(place, wanted, given)
    for name in names:
        print(compare(given, name, place / "normal", place / name), flush=True)
    for name in pairs:
        pair = (place / name / side for side in ("normal", "sample"))
        print(compare(given, name, *pair), flush=True)


def record(place: Path, names: list[str], given: argparse.Namespace) -> None:
    """Record the shop, healthy and with each fault."""
    place.mkdir(parents=True, exist_ok=True)
    python = given.python or make_python(place)
    with Park.opened(python) as park:
        ask_postgres(park, _SQL)
        for name in names:
            fault = name if name in FAULTS else ""
            with serving(park, fault), limited(park, fault):
                record_one(park, place / name, given.critpath, pair=name.startswith("healthy"))
            print(f"recorded {place / name}", flush=True)


def record_one(park: Park, to: Path, critpath: list[str], *, pair: bool) -> None:
    """Record the client's requests, after a few that warm the servers up; a pair in turns."""

    def client(requests: int) -> list[str]:
        words = (PORTS["served"], _CONNECTIONS, requests, "http", _THINK, park.place / "asked")
        return [str(park.place / "client"), *map(str, words)]

    subprocess.run(client(60), check=True)
    command = [*critpath, "record", "--quiet", "--force", "--profile", "requests", "-o", str(to)]
    if pair:
        turn = shlex.join(client(_REQUESTS // _TURNS))
        command += ["-n", str(_TURNS), "--interleave", turn, turn]
    else:
        command += ["--", *client(_REQUESTS)]
    subprocess.run(command, check=True)


@contextlib.contextmanager
def serving(park: Park, fault: str) -> Iterator[None]:
    """Run nginx and the shop with a fault, and beside it who holds the locks."""
    command = gunicorn("wsgi_shop", workers=1 if fault == "workers" else 4)
    shop = Case("the shop", command, environment={"FAULT": fault})
    holder = None
    if fault == "lock":
        words = [str(park.python), "-c", _HOLD, str(PORTS["postgres"])]
        holder = subprocess.Popen(words)
    try:
        with park.serving(CASES["tiers"], shop):
            yield
    finally:
        if holder is not None:
            holder.kill()
            holder.wait()


@contextlib.contextmanager
def limited(park: Park, fault: str) -> Iterator[None]:
    """Limit PostgreSQL's cpu."""
    if fault != "quota":
        yield
        return
    base = Path("/sys/fs/cgroup/cpu")
    group = (base if base.is_dir() else base.parent) / "critpath-servers"
    group.mkdir(exist_ok=True)
    backends = park.threads(park.running[1])
    try:
        if base.is_dir():
            (group / "cpu.cfs_period_us").write_text("20000\n")
            (group / "cpu.cfs_quota_us").write_text("1500\n")
        else:
            (group / "cpu.max").write_text("1500 20000\n")
        for process in backends:
            (group / "cgroup.procs").write_text(f"{process}\n")
        yield
    finally:
        # With those that were forked meanwhile.
        for process in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (group.parent / "cgroup.procs").write_text(f"{process}\n")
        with contextlib.suppress(OSError):
            group.rmdir()


def ask_postgres(park: Park, sql: str) -> None:
    """Run some SQL."""
    code = (
        "import sys, psycopg2; c = psycopg2.connect(host='127.0.0.1', port=sys.argv[1],"
        " user='postgres', dbname='postgres'); c.autocommit = True\n"
        "for s in sys.argv[2].split(';'):\n    s.strip() and c.cursor().execute(s)"
    )
    subprocess.run([str(park.python), "-c", code, str(PORTS["postgres"]), sql], check=True)


def compare(given: argparse.Namespace, name: str, normal: Path, sample: Path) -> str:
    """Return a row: what critpath names first, and whether it is what was wrong."""
    done = subprocess.run(
        [
            *(given.critpath[-1], "compare", str(normal), str(sample), "--json", "-"),
            *("--execution", given.execution),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        document = json.loads(done.stdout)
    except ValueError:
        return f"| {name} | failed ({done.returncode}): {done.stderr.strip()[-200:]} | | |"
    first = next(iter(document["causes"]), {"sentence": "", "facts": {}})
    verdict, sentence, facts = document["verdict"], first["sentence"], first["facts"]
    right = verdict == "ok"
    if name in FAULTS:
        met = (re.search(text, str(facts.get(key))) for key, text in FAULTS[name].items())
        right = verdict == "anomaly" and all(met)
    return f"| {name} | {verdict} | {'right' if right else 'wrong'} | {sentence} |"


if __name__ == "__main__":
    main()
