"""The client of the cases: sends marked requests to the servers of `park.py`.

``python client.py REQUESTS [--count K] [--param NAME=VALUE ...] [--beside WHAT:NAME=VALUE,...]
[--cpu N] [--time]``: REQUESTS are names of functions below, joined by ``+``; each is sent K
times, in a random order, marked with its name. ``--beside`` is what runs besides, in a
process of its own: another user of the servers, or of the machine. ``--time`` prints medians.
``--served``: somebody else asks this program for each, over a connection: what is marked is then
a request of it too.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import socket
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "marks"))
sys.path.append(str(Path(__file__).resolve().parent))

from apps import hash_blocks, name_thread
from park import PORTS

from critpath_marks import execution
from critpath_marks.channels import find_channel

_WARMUP = 3


class Connections:
    """Connections to the servers, each made when it is first asked for."""

    def __init__(self) -> None:
        self.open: dict[str, object] = {}

    def _keep(self, name: str, make: Callable[[], object]):
        if name not in self.open:
            self.open[name] = make()
        return self.open[name]

    def pg(self, port: str = "postgres"):
        return self._keep(port, lambda: connect_postgres(port)).cursor()

    def redis(self, name: str = "redis"):
        import redis

        return self._keep(name, lambda: redis.Redis(port=PORTS[name]))

    def lines(self, name: str):
        """A connection of lines of text: memcached, beanstalkd."""
        return self._keep(
            name, lambda: socket.create_connection(("127.0.0.1", PORTS[name])).makefile("rwb")
        )

    def get(self, name: str, path: str) -> bytes:
        connection = self._keep(name, lambda: HTTPConnection("127.0.0.1", PORTS[name]))
        connection.request("GET", path)
        return connection.getresponse().read()

    def web(self, name: str, path: str, p: dict[str, float], *names: str) -> bytes:
        query = "&".join(f"{n}={p[n]:g}" for n in names if n in p)
        return self.get(name, f"{path}?{query}")

    def database(self) -> sqlite3.Connection:
        def make() -> sqlite3.Connection:
            base = sqlite3.connect(_SQLITE, timeout=10, isolation_level=None)
            base.execute("pragma journal_mode=delete")
            return base

        return self._keep("sqlite", make)


_SQLITE = "/var/tmp/critpath-services.sqlite"


def connect_postgres(port: str = "postgres"):
    import psycopg2

    base = psycopg2.connect(host="127.0.0.1", port=PORTS[port], user="postgres", dbname="postgres")
    base.autocommit = True
    priority = os.environ.get("CRITPATH_SERVICES_PRIORITY", "")
    if priority and port == "postgres":  # the server's session has its own
        Path(f"/proc/{base.info.backend_pid}/autogroup").write_text(priority)
    return base


# ---- requests


def pg_report(c: Connections, p: dict[str, float]) -> None:
    """Sums over a table, and lookups of one owner's items, with or without an index."""
    k = c.pg()
    k.execute("select sum(price) from items where id <= %s", (int(p.get("rows", 20000)),))
    for i in range(int(p.get("lookups", 1))):
        table = "small" if i < p.get("small", 0) else "items" if i < p.get("scan", 0) else "indexed"
        k.execute(f"select count(*) from {table} where owner = %s", (i,))


def pg_nplus1(c: Connections, p: dict[str, float]) -> None:
    k = c.pg()
    k.execute("select sum(price) from items where id <= %s", (int(p.get("rows", 5000)),))
    for i in range(int(p.get("n", 1))):
        k.execute("select note from items where id = %s", (i,))


def pg_update(c: Connections, p: dict[str, float]) -> None:
    k = c.pg()
    k.execute("select sum(price) from items where id <= %s", (int(p.get("rows", 5000)),))
    k.execute("update counters set n = n + 1 where id = 1")


def pg_commits(c: Connections, p: dict[str, float]) -> None:
    k = c.pg()
    n, rows = int(p.get("commits", 1)), 12
    for _ in range(n):
        k.execute("begin")
        for _ in range(rows // n):
            k.execute("insert into log (t) values ('x')")
        k.execute("commit")


def pg_sleep(c: Connections, p: dict[str, float]) -> None:
    k = c.pg()
    k.execute("select sum(price) from items where id <= %s", (int(p.get("rows", 10000)),))
    if p.get("ms"):
        k.execute("select pg_sleep(%s)", (p["ms"] / 1000,))


def pg_connect(c: Connections, p: dict[str, float]) -> None:
    k = c.pg()
    for _ in range(int(p.get("sums", 1))):
        k.execute("select sum(price) from items where id <= %s", (int(p.get("rows", 10000)),))
    if p.get("anew"):
        with closing(connect_postgres()) as other:
            other.cursor().execute("select note from items where id = 7")
    else:
        k.execute("select note from items where id = 7")


def pg_sort(c: Connections, p: dict[str, float]) -> None:
    k = c.pg()
    k.execute(f"set work_mem = '{int(p.get('mem', 65536))}kB'")
    k.execute(
        "select note from (select note, md5(id::text) m from items where id <= %s order by m) x"
        " offset 5000 limit 1",
        (int(p.get("rows", 8000)),),
    )


def bouncer(c: Connections, p: dict[str, float]) -> None:
    k = c.pg("pgbouncer")
    for _ in range(3):
        k.execute("select sum(price) from items where id <= %s", (int(p.get("rows", 5000)),))


def redis_get(c: Connections, p: dict[str, float]) -> None:
    """Some keys, `trips` of them one by one and the others in a pipeline."""
    r = c.redis()
    trips, n = int(p.get("trips", 1)), int(p.get("keys", 60))
    for i in range(trips):
        r.get(f"k{i}")
    pipe = r.pipeline(transaction=False)
    for i in range(trips, n):
        pipe.get(f"k{i}")
    pipe.execute()


def redis_set(c: Connections, p: dict[str, float]) -> None:
    r = c.redis("redis-aof" if p.get("aof") else "redis")
    hash_blocks(p.get("cpu", 1))
    for i in range(int(p.get("keys", 3))):
        r.set(f"s{i}", "x" * 100)


def redis_script(c: Connections, p: dict[str, float]) -> None:
    c.redis().eval(
        "local s=0; for i=1,tonumber(ARGV[1]) do s=s+i%7 end; return s",
        0,
        int(p.get("loop", 100000)),
    )


def redis_job(c: Connections, p: dict[str, float]) -> None:
    r = c.redis()
    r.lpush("jobs", f"{p.get('work', 2)}")
    r.brpop("done", timeout=20)


def memcached_get(c: Connections, p: dict[str, float]) -> None:
    f = c.lines("memcached")
    n, trips = int(p.get("keys", 40)), int(p.get("trips", 1))
    size = max(1, n // trips)
    for first in range(0, n, size):
        f.write(b"get " + b" ".join(b"k%d" % i for i in range(first, first + size)) + b"\r\n")
        f.flush()
        while f.readline() != b"END\r\n":
            pass


def memcached_page(c: Connections, p: dict[str, float]) -> None:
    """A page of twelve fragments from the cache; a missing one is made from the database."""
    f = c.lines("memcached")
    miss = int(p.get("misses", 0))
    for i in range(12):
        f.write(b"get %s%d\r\n" % (b"no" if i < miss else b"k", i))
        f.flush()
        found = False
        while (line := f.readline()) != b"END\r\n":
            found = found or line.startswith(b"VALUE")
        if not found:
            k = c.pg()
            k.execute("select sum(price) from items where id <= %s", (int(p.get("rows", 2000)),))
            k.fetchone()
    hash_blocks(p.get("cpu", 1))


def beanstalk_job(c: Connections, p: dict[str, float]) -> None:
    f = c.lines("beanstalkd")

    def say(text: str, body: str = "") -> bytes:
        f.write(text.encode() + b"\r\n" + (body.encode() + b"\r\n" if body else b""))
        f.flush()
        return f.readline()

    if "beanstalkd-tubes" not in c.open:
        say("use jobs")
        say("watch done")
        c.open["beanstalkd-tubes"] = True
    body = f"{p.get('work', 2)} {p.get('sleep', 0)}"
    say(f"put 0 0 60 {len(body)}", body)
    _, number, size = say("reserve-with-timeout 20").split()
    f.read(int(size) + 2)
    say(f"delete {int(number)}")


def nginx_page(c: Connections, p: dict[str, float]) -> None:
    c.get("nginx", f"/level{int(p.get('level', 1))}/page.txt") if "plain" in p else _zipped(c, p)


def _zipped(c: Connections, p: dict[str, float]) -> None:
    connection = c._keep("nginx", lambda: HTTPConnection("127.0.0.1", PORTS["nginx"]))
    connection.request(
        "GET", f"/level{int(p.get('level', 1))}/page.txt", headers={"Accept-Encoding": "gzip"}
    )
    connection.getresponse().read()


def nginx_limit(c: Connections, p: dict[str, float]) -> None:
    for _ in range(int(p.get("before", 4))):
        _zipped(c, {"level": 1})
    for _ in range(2):
        c.get("nginx", f"/limit{int(p['limit'])}/short.txt" if p.get("limit") else "/short.txt")


def nginx_parts(c: Connections, p: dict[str, float]) -> None:
    """A page and its parts."""
    _zipped(c, {"level": 1})
    for i in range(int(p.get("parts", 4))):
        c.get("nginx", f"/part{i}.txt")


def proxied(c: Connections, p: dict[str, float]) -> None:
    c.web("nginx", "/app/list", p, "n", "cpu", "sleep", "audit", "taxes", "tax", "taxsleep")


def balanced(c: Connections, p: dict[str, float]) -> None:
    """Through haproxy, which lets one request at a time to nginx."""
    for _ in range(int(p.get("pages", 4))):
        connection = c._keep("haproxy", lambda: HTTPConnection("127.0.0.1", PORTS["haproxy"]))
        connection.request("GET", "/level1/page.txt", headers={"Accept-Encoding": "gzip"})
        connection.getresponse().read()


def listing(c: Connections, p: dict[str, float]) -> None:
    c.web("gunicorn", "/list", p, "n", "cpu", "sleep", "audit", "taxes", "tax", "taxsleep")


def item(c: Connections, p: dict[str, float]) -> None:
    c.web("gunicorn", "/item", p, "miss", "rows", "cpu", "sleep")


def login(c: Connections, p: dict[str, float]) -> None:
    c.web("gunicorn", "/login", p, "cpu", "sleep")


def limited(c: Connections, p: dict[str, float]) -> None:
    c.web("quota", "/login", p, "cpu")


def threaded(c: Connections, p: dict[str, float]) -> None:
    c.web("waitress", "/work", p, "cpu", "steps")


def looped(c: Connections, p: dict[str, float]) -> None:
    c.web("aiohttp", "/work", p, "n", "cpu", "retry", "thread")


def sqlite_insert(c: Connections, p: dict[str, float]) -> None:
    base = c.database()
    n, rows = int(p.get("commits", 1)), 12
    for _ in range(n):
        base.execute("begin immediate")
        base.executemany("insert into t (v) values (?)", [("x" * 50,)] * (rows // n))
        base.execute("commit")


def sqlite_read(c: Connections, p: dict[str, float]) -> None:
    base = c.database()
    base.execute("select sum(n) from big where id <= ?", (int(p.get("rows", 20000)),)).fetchone()
    table = "big" if p.get("scan") else "bigindexed"
    for i in range(int(p.get("lookups", 2))):
        base.execute(
            f"select count(*) from {table} where owner = ? and id <= ?",
            (i, int(p.get("scan", 40000))),
        ).fetchone()


def sqlite_write(c: Connections, p: dict[str, float]) -> None:
    base = c.database()
    hash_blocks(p.get("cpu", 3))
    base.execute("begin immediate")
    base.execute("update one set n = n + 1")
    base.execute("commit")


_pools: dict[int, ThreadPoolExecutor] = {}


def pool(c: Connections, p: dict[str, float]) -> None:
    """Eight fetches from nginx and a computation of each, by `threads` threads."""
    threads = int(p.get("threads", 8))
    if threads not in _pools:
        _pools[threads] = ThreadPoolExecutor(
            threads, initializer=name_thread, initargs=("fetcher",)
        )

    def fetch(i: int) -> None:
        time.sleep(p.get("wait", 3) / 1000)
        hash_blocks(p.get("straggler", 0) if i == 5 else 0.2)

    hash_blocks(p.get("cpu", 0))
    list(_pools[threads].map(fetch, range(8)))


# ---- what runs besides


def locker(p: dict[str, float]) -> None:
    """Another session that holds a row's lock for a while, again and again."""
    base = connect_postgres()
    k = base.cursor()
    while True:
        k.execute("begin")
        k.execute("update counters set n = n where id = 1")
        time.sleep(p["hold"] / 1000)
        k.execute("commit")
        time.sleep(p["rest"] / 1000)


def scanner(p: dict[str, float]) -> None:
    """Another client that lists all keys."""
    import redis

    r = redis.Redis(port=PORTS["redis"])
    while True:
        for _ in range(int(p.get("times", 1))):
            r.execute_command("KEYS", "nothing*")
        time.sleep(p["rest"] / 1000)


def crawler(p: dict[str, float]) -> None:
    """Another client that asks the one worker for dear pages."""
    c = Connections()
    while True:
        with suppress(OSError):
            connection = HTTPConnection("127.0.0.1", PORTS["gunicorn"])
            connection.request("GET", f"/list?cpu={p['cpu']}")
            connection.getresponse().read()
        time.sleep(p["rest"] / 1000)
    c.open.clear()


def reporter(p: dict[str, float]) -> None:
    """Another client that has pgbouncer's one connection."""
    k = connect_postgres("pgbouncer").cursor()
    while True:
        k.execute("select sum(price), max(md5(note)) from items where id <= %s", (int(p["rows"]),))
        time.sleep(p["rest"] / 1000)


def downloader(p: dict[str, float]) -> None:
    """Another client of haproxy that has nginx's one place."""
    connection = HTTPConnection("127.0.0.1", PORTS["haproxy"])
    while True:
        connection.request("GET", "/level9/page.txt", headers={"Accept-Encoding": "gzip"})
        connection.getresponse().read()
        time.sleep(p["rest"] / 1000)


def worker(p: dict[str, float]) -> None:
    """Does the jobs of Redis's list."""
    import redis

    r = redis.Redis(port=PORTS["redis"])
    while True:
        hash_blocks(float(r.brpop("jobs")[1]))
        r.lpush("done", "x")


def consumer(p: dict[str, float]) -> None:
    """Does the jobs of beanstalkd's tube."""
    f = socket.create_connection(("127.0.0.1", PORTS["beanstalkd"])).makefile("rwb")

    def say(text: bytes) -> bytes:
        f.write(text)
        f.flush()
        return f.readline()

    say(b"watch jobs\r\n")
    say(b"use done\r\n")
    while True:
        _, number, size = say(b"reserve\r\n").split()
        work, sleep = (float(x) for x in f.read(int(size) + 2).split())
        hash_blocks(work)
        if sleep:
            time.sleep(sleep / 1000)
        say(b"delete %d\r\n" % int(number))
        say(b"put 0 0 60 4\r\ndone\r\n")


def hog(p: dict[str, float]) -> None:
    """Has the cpu for `busy` of every `busy + rest` milliseconds."""
    while True:
        end = time.monotonic() + p["busy"] / 1000
        while time.monotonic() < end:
            hash_blocks(0.05)
        time.sleep(p["rest"] / 1000)


def writer(p: dict[str, float]) -> None:
    """Has SQLite's write lock for a while, again and again."""
    base = sqlite3.connect(_SQLITE, timeout=10, isolation_level=None)
    while True:
        with suppress(sqlite3.OperationalError):
            base.execute("begin immediate")
            hash_blocks(p["hold"])
            base.execute("rollback")
        time.sleep(p["rest"] / 1000)


def flusher(p: dict[str, float]) -> None:
    """Writes files to the disk, without end."""
    with Path("/var/tmp/critpath-services.flush").open("wb") as file:
        while True:
            for _ in range(int(p["blocks"])):
                os.pwrite(file.fileno(), os.urandom(1 << 20), 0)
                os.fsync(file.fileno())
            time.sleep(p["rest"] / 1000)


BESIDE = (locker, scanner, crawler, reporter, downloader, worker, consumer, hog, writer, flusher)


@contextmanager
def beside(specs: list[str]) -> Iterator[None]:
    """Run what `specs` name while the requests are sent."""
    children = []
    quota: list[int] = []
    started: list[tuple[str, str]] = []
    try:
        for spec in specs:
            what, _, rest = spec.partition(":")
            p = _read_numbers(rest.split(",")) if rest else {}
            if what == "background":
                kind = "aiohttp" if p.get("loop") else "waitress"
                thread = "flusher" if p.get("lock") else "stats"
                query = f"thread={thread}&busy={p['busy']}&rest={p.get('rest', 0)}"
                Connections().get(kind, f"/background?{query}&seconds=60")
                started.append((kind, query))
                continue
            if what == "quota":
                quota.append(1)
                _set_quota(int(p["us"]))
                continue
            if child := os.fork():
                children.append(child)
                continue
            with suppress(KeyboardInterrupt):
                name_thread(what)
                ctypes.CDLL(None).prctl(1, 15)  # ends with its parent
                if "cpu_" in p:
                    os.sched_setaffinity(0, {int(p["cpu_"])})
                {f.__name__: f for f in BESIDE}[what](p)
            os._exit(0)
        time.sleep(0.05 if specs else 0)
        yield
    finally:
        for child in children:
            os.kill(child, 15)
            os.waitpid(child, 0)
        for kind, query in started:
            Connections().get(kind, f"/background?{query}&seconds=0")
        if quota:
            _set_quota(-1)


def _set_quota(us: int) -> None:
    """Limit the cpu of the application of the port `quota`; -1: no limit."""
    group = (
        next(
            p
            for p in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
            if (p / "critpath-services").is_dir()
        )
        / "critpath-services"
    )
    if (group / "cpu.cfs_quota_us").exists():
        (group / "cpu.cfs_quota_us").write_text(f"{us}\n")
    else:
        (group / "cpu.max").write_text(f"{us if us > 0 else 'max'} 10000\n")


def _read_numbers(pairs: list[str]) -> dict[str, float]:
    return {name: float(value) for name, _, value in (pair.partition("=") for pair in pairs)}


def fill() -> None:
    """Put into the stores what the requests ask for."""
    c = Connections()
    pipe = c.redis().pipeline(transaction=False)
    for i in range(20_000):
        pipe.set(f"k{i}", f"value {i}")
    pipe.set("page", "x" * 4000)
    pipe.execute()
    f = c.lines("memcached")
    for i in range(100):
        f.write(b"set k%d 0 0 100\r\n%s\r\n" % (i, b"x" * 100))
        f.flush()
        f.readline()
    Path(_SQLITE).unlink(missing_ok=True)
    base = c.database()
    base.executescript(
        "create table t (id integer primary key, v text);"
        "create table one (n int); insert into one values (0);"
        "create table big (id integer primary key, owner int, n int);"
        "with recursive r(i) as (select 1 union all select i + 1 from r where i < 60000)"
        " insert into big select i, i % 400, i % 97 from r;"
        "create table bigindexed as select * from big; create index o on bigindexed (owner, id);"
    )


@contextmanager
def asked(order: list[str]) -> Iterator[Iterator[str]]:
    """Give what another process asks for over a connection; each is answered when it is done."""
    ready, begin = os.pipe()
    with socket.create_server(("127.0.0.1", PORTS["client"])) as listener:
        if not (asker := os.fork()):  # now: what a fork costs is over when the first is asked for
            name_thread("asker")
            with socket.create_connection(listener.getsockname()) as connection:
                os.read(ready, 1)
                for name in order:
                    connection.sendall(f"{name}\n".encode())
                    connection.recv(64)
                    time.sleep(0.001)
            os._exit(0)
        connection, _ = listener.accept()
        find_channel()  # so that the first mark costs no more than the others

        def answer() -> Iterator[str]:
            os.write(begin, b"!")
            for line in lines:
                yield line.decode().strip()
                lines.write(b"done\n")
                lines.flush()

        with connection, connection.makefile("rwb") as lines:
            yield answer()
        os.waitpid(asker, 0)


@contextmanager
def paced(order: list[str]) -> Iterator[Iterator[str]]:
    """Give one after the other, with pauses."""

    def pause() -> Iterator[str]:
        for name in order:
            yield name
            time.sleep(0.001)

    yield pause()


def main() -> int:
    if sys.argv[1] == "fill":
        fill()
        return 0
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("requests")
    parser.add_argument("--count", type=int, default=6)
    parser.add_argument("--param", action="append", default=[])
    parser.add_argument("--beside", action="append", default=[])
    parser.add_argument("--cpu", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--served", action="store_true")
    given = parser.parse_args()
    name_thread("client")
    if given.cpu is not None:
        os.sched_setaffinity(0, {given.cpu})
    order = given.requests.split("+") * given.count
    random.Random(given.seed).shuffle(order)
    params: dict[str, dict[str, float]] = {name: {} for name in order}
    for text in given.param:
        name, _, value = text.rpartition("=")
        target, _, key = name.rpartition(".")
        for each in [target] if target else list(params):
            params[each][key] = float(value)
    connections, times = Connections(), {name: [] for name in order}
    with (asked if given.served else paced)(order) as turns, beside(given.beside):
        for name in given.requests.split("+") * _WARMUP:
            globals()[name](connections, params[name])
        for name in turns:
            begin = time.monotonic()
            with execution(name):
                globals()[name](connections, params[name])
            times[name].append((time.monotonic() - begin) * 1e3)
    if given.time:
        print("  ".join(f"{name} {statistics.median(t):.2f} ms" for name, t in times.items()))
    os._exit(0)


if __name__ == "__main__":
    main()
