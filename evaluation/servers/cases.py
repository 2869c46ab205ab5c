"""The servers of the evaluation: how each is started, asked, and what must be found of it."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import critpath_marks

HERE: Final = Path(__file__).resolve().parent
STREAMS: Final = str(HERE / "streams.js")
PGX: Final = Path("/usr/share/gocode/src/github.com/jackc/pgx")  # golang-github-jackc-pgx-v4-dev
# Several evaluations beside each other have ports of their own.
_FIRST: Final = int(os.environ.get("SERVERS_PORT", "22001"))
_NAMES: Final = ("postgres", "redis", "behind", "served", "pooler")
PORTS: Final = {name: _FIRST + at for at, name in enumerate(_NAMES)}
PACKAGES: Final = (
    *("gunicorn", "psycopg2-binary", "cheroot", "uvicorn", "hypercorn"),
    *("aiohttp", "asyncpg", "redis", "sqlalchemy"),
)


@dataclass(frozen=True)
class Case:
    """One server, and a class of `docs/evaluation.md`'s table.

    Attributes
    ----------
    title : str
        Its class.
    command : tuple of str
        With ``{python}``, ``{bin}`` (of it), ``{place}`` and the names of `PORTS`.
    mode : str
        How `client.c` asks.
    needs : tuple of str
        Programs without which it is skipped.
    asks : str
        Whom it asks: names of `PORTS`, "" for nobody.
    environment : mapping
    behind : str
        Name of the case that it passes requests on to.
    depth : int
        Requests that are written at once, or that are under way at once on a connection.
    logs : bool
        Whether the server's own log has the truth about threads and sub-requests.
    """

    title: str
    command: tuple[str, ...]
    mode: str = "lines"
    needs: tuple[str, ...] = ()
    asks: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    behind: str = ""
    depth: int = 1
    logs: bool = True


_PYTHON: Final = ("{python}", str(HERE / "apps.py"))


def _loop(title: str, kind: str) -> Case:
    command = (*_PYTHON, "loop", "{served}")
    return Case(title, command, "http", asks="redis", environment={"KIND": kind})


def gunicorn(app: str, *, workers: int = 4) -> tuple[str, ...]:
    """Return the command of an application of `apps.py` in gunicorn."""
    logs = ("--log-level", "error", "--worker-tmp-dir", "/dev/shm")
    return ("{bin}/gunicorn", "-w", str(workers), *logs, "-b", "127.0.0.1:{served}", f"apps:{app}")


def _mixes(server: str, command: tuple[str, ...], *needs: str, **environment: str) -> Case:
    title = f"one loop, three kinds that ask twice or thrice ({server}, PostgreSQL and Redis)"
    needed, asks = ("redis-server", *needs), "postgres redis"
    return Case(title, command, "http-shop", needed, asks=asks, environment=environment)


def _answers_datagrams(
    server: str, command: tuple[str, ...], mode: str, *, logs: bool = False
) -> Case:
    needs = () if logs else (command[0],)
    return Case(f"UDP ({server})", command, mode, needs, logs=logs)


def _shares(server: str, mode: str, depth: int = 1) -> Case:
    """Return a case of `streams.js`, of nginx before it, or of hypercorn."""
    titles = {"h2": "HTTP/2", "h2s": "HTTP/2 with TLS", "https": "TLS", "ws": "WebSocket"}
    titles["sse"] = "server-sent events"
    title = f"{titles.get(mode, mode)} ({server}{f', {depth} streams' if mode[:2] == 'h2' else ''})"
    command = {
        "nginx": ("nginx", "-c", "{place}/nginx.conf"),
        "Node.js": ("node", STREAMS, "serve", "{served}", mode, "{place}/cert", "{place}/key"),
        "hypercorn": ("{bin}/hypercorn", "apps:asgi_slow", "--bind", "127.0.0.1:{served}"),
    }[server]
    behind = "node-delayed" if server == "nginx" else ""
    return Case(title, command, mode, ("node",), behind=behind, depth=depth, logs=False)


_ONE_LOOP: Final = "one loop, no sub-requests"
_UVICORN: Final = (
    *("{bin}/uvicorn", "--port", "{served}", "--log-level", "error", "apps:asgi_shop"),
)
_POOLED: Final = "one loop, kept connections"
CASES: Final = {
    "gunicorn": Case(
        "a process for each request (gunicorn sync, PostgreSQL)",
        *(gunicorn("wsgi_postgres"), "http-close"),
        asks="postgres",
    ),
    "cheroot": Case(
        "threads that read themselves (cheroot, Redis)",
        *((*_PYTHON, "cheroot", "{served}"), "http"),
        asks="redis",
    ),
    "pool": Case(
        "reader and workers by a futex queue (pool.c, Redis)",
        ("{place}/pool", "{served}", "4", "{redis}", "{truth}"),
        asks="redis",
        needs=("gcc",),
    ),
    **{
        f"java-{n}": Case(
            "a thread for each connection, work in an executor (Pool.java)",
            ("java", "-cp", "{place}", "Pool", "{served}", str(n), "{redis}", "{truth}"),
            asks="redis",
            needs=("java", "javac"),
        )
        for n in (2, 8)
    },
    "go": Case(
        "goroutines, kept connections (serve.go, Redis)",
        *(("{place}/serve", "{served}", "8", "{redis}", "{truth}"), "http"),
        asks="redis",
        needs=("go",),
    ),
    "memcached": Case(
        "threads with loops of their own (memcached)",
        ("memcached", "-u", "root", "-l", "127.0.0.1", "-p", "{served}", "-t", "4"),
        *("memcached", ("memcached",)),
        logs=False,
    ),
    "nginx": Case(
        f"{_ONE_LOOP} (nginx)",
        *(("nginx", "-c", "{place}/nginx.conf"), "http", ("nginx",)),
        logs=False,
    ),
    "redis": Case(
        f"{_ONE_LOOP} (Redis)",
        ("redis-server", "--port", "{served}", "--save", "", "--appendonly", "no"),
        *("redis", ("redis-server",)),
        logs=False,
    ),
    "uvicorn": Case(
        f"{_ONE_LOOP} (uvicorn)",
        ("{bin}/uvicorn", "--port", "{served}", "--log-level", "error", "apps:asgi_plain"),
        "http",
    ),
    "asyncio": _loop(f"{_POOLED} (asyncio)", "plain"),
    "asyncio-sleep": _loop(f"{_POOLED} (asyncio, sleeps)", "sleep"),
    "asyncio-executor": _loop(f"{_POOLED} (asyncio, executor)", "executor"),
    "node": Case(
        f"{_POOLED} (Node.js)",
        ("node", str(HERE / "loop.js"), "{served}", "8", "{redis}", "{truth}"),
        *("http", ("node",), "redis"),
    ),
    "mixed-uvicorn": _mixes("uvicorn", _UVICORN),
    "mixed-commented": _mixes("uvicorn, a traceparent in each statement", _UVICORN, COMMENTS="1"),
    "mixed-hypercorn": _mixes(
        "hypercorn", ("{bin}/hypercorn", "apps:asgi_shop", "--bind", "127.0.0.1:{served}")
    ),
    "mixed-aiohttp": _mixes("aiohttp", (*_PYTHON, "aiohttp", "{served}")),
    "mixed-node": _mixes(
        "Node.js, pg",
        ("node", str(HERE / "shop.js"), "{served}", "{postgres}", "{redis}", "{truth}"),
        "node",
    ),
    "mixed-go": _mixes(
        "Go, net/http and pgx",
        ("{place}/shop", "{served}", "{postgres}", "{redis}", "{truth}"),
        str(PGX),
    ),
    **{
        f"mixed-uvicorn-{ways}": _mixes(
            f"uvicorn: {ways}",
            _UVICORN,
            WAYS=ways if ways != "roomy" else "orders",
            POOL="64" if ways == "roomy" else "8",
        )
        for ways in ("orders", "cache", "naps", "roomy")
    },
    "asyncio-connect": _loop("one loop, connections opened meanwhile (asyncio)", "connect"),
    "tiers": Case(
        "two tiers and a database (nginx, gunicorn, PostgreSQL)",
        *(("nginx", "-c", "{place}/nginx.conf"), "http", ("nginx",)),
        asks="behind",
        behind="gunicorn",
        logs=False,
    ),
    "pipelining": Case(
        "pipelining (Redis, depth 8)",
        ("redis-server", "--port", "{served}", "--save", "", "--appendonly", "no"),
        *("redis", ("redis-server",)),
        depth=8,
        logs=False,
    ),
    "node-delayed": Case(
        f"{_ONE_LOOP}, timers (Node.js)",
        *(("node", STREAMS, "serve", "{served}", "http"), "http", ("node",)),
        logs=False,
    ),
    **{
        f"h2-{server.lower().partition('.')[0]}-{streams}": _shares(server, "h2", streams)
        for server in ("nginx", "Node.js", "hypercorn")
        for streams in (1, 2, 8)
    },
    "h2-tls-1": _shares("nginx", "h2s", 1),
    "h2-tls-8": _shares("nginx", "h2s", 8),
    "tls-nginx": _shares("nginx", "https"),
    "tls-node": _shares("Node.js", "https"),
    "dnsmasq": _answers_datagrams(
        "dnsmasq",
        (
            *("dnsmasq", "-k", "-C", "/dev/null", "-p", "{served}", "--address=/test/127.0.0.9"),
            *("--no-resolv", "--listen-address=127.0.0.1", "--bind-interfaces", "-u", "root"),
        ),
        "dns",
    ),
    "unbound": _answers_datagrams(
        "unbound", ("unbound", "-d", "-c", "{place}/unbound.conf"), "dns"
    ),
    "memcached-udp": _answers_datagrams(
        "memcached",
        (
            *("memcached", "-u", "root", "-l", "127.0.0.1", "-p", "0", "-U", "{served}"),
            *("-t", "4"),
        ),
        "udp-memcached",
    ),
    "datagram": _answers_datagrams(
        "one after the other", (*_PYTHON, "datagram", "{served}"), "udp-lines", logs=True
    ),
    "datagrams": _answers_datagrams(
        "asyncio, sleeps", (*_PYTHON, "datagrams", "{served}"), "udp-lines", logs=True
    ),
    "websocket": _shares("Node.js", "ws"),
    "events": _shares("Node.js", "sse"),
}
# What `streams.js` asks: requests share a connection, or are hidden on it, or last.
DATAGRAMS: Final = ("dns", "udp-lines", "udp-memcached")
SHARING: Final = ("h2", "h2s", "https", "ws", "sse")

_NGINX: Final = """
worker_processes 1; daemon off; pid {place}/nginx.pid; error_log {place}/nginx.log crit;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 100000;
  server {{ listen 127.0.0.1:{served} backlog=256{how}; root {place};
    location / {{ {what} }} }}
}}
"""
_KEYS: Final = "; ssl_certificate {place}/cert; ssl_certificate_key {place}/key"
_UNBOUND: Final = """
server:
  interface: 127.0.0.1@{served}
  port: {served}
  use-syslog: no
  do-daemonize: no
  username: ""
  chroot: ""
  directory: "{place}"
  pidfile: "{place}/unbound.pid"
  num-threads: 2
  local-zone: "test." redirect
  local-data: "test. A 127.0.0.9"
remote-control:
  control-enable: no
"""


class Park:
    """Servers below one directory; PostgreSQL's user can get there."""

    def __init__(self, place: Path, python: Path, *, tasks: bool = False) -> None:
        self.place, self.python, self.tasks = place, python, tasks
        place.chmod(0o755)
        self.running: list[subprocess.Popen[bytes]] = []
        self.truth = place / "truth"
        self.truth.touch()

    @classmethod
    @contextlib.contextmanager
    def opened(cls, python: Path, *, tasks: bool = False) -> Iterator[Park]:
        """Make one with all that is compiled, its backends running; end and remove it."""
        place = tempfile.mkdtemp(prefix="critpath-servers-", dir="/var/tmp")
        park = cls(Path(place), python, tasks=tasks)
        try:
            park.build()
            park.start_backends()
            yield park
        finally:
            park.close()

    def missing(self, case: Case) -> str:
        """Return what the case needs and the machine lacks, "" for nothing."""
        needs = {*case.needs}
        asked = {"postgres": "initdb", "redis": "redis-server", "behind": "initdb"}
        needs |= {asked[name] for name in case.asks.split()}
        return ", ".join(sorted(name for name in needs if not _find(name)))

    def build(self) -> None:
        """Compile the client and the servers that are compiled."""
        for name in ("client", "pool"):
            source, made = HERE / f"{name}.c", self.place / name
            subprocess.run(["gcc", "-O2", "-pthread", "-o", str(made), str(source)], check=True)
        if _find("openssl"):
            words = (
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost"
            )
            to = ("-keyout", str(self.place / "key"), "-out", str(self.place / "cert"))
            command = ["openssl", *words.split(), "-subj", "/CN=localhost", *to]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        if _find("javac"):
            subprocess.run(["javac", "-d", str(self.place), str(HERE / "Pool.java")], check=True)
        if _find("go"):
            given = {"GOCACHE": str(self.place / "go"), "CGO_ENABLED": "0", **os.environ}
            given |= {"GO111MODULE": "off", "GOPATH": str(PGX.parents[3])}
            for name in ("serve", "shop")[: 1 + PGX.exists()]:
                words = ("go", "build", "-o", str(self.place / name), str(HERE / f"{name}.go"))
                subprocess.run(words, check=True, env=given)

    def start_backends(self) -> None:
        """Start PostgreSQL and Redis, where they are installed."""
        if _find("redis-server"):
            command = ("redis-server", "--port", str(PORTS["redis"]), "--save", "")
            self.start(command, "redis", {})
        if not _find("initdb"):
            return
        data = self.place / "pg"
        data.mkdir(mode=0o700)
        owner = pwd.getpwnam("postgres")
        os.chown(data, owner.pw_uid, owner.pw_gid)
        as_owner = {"user": "postgres", "group": "postgres", "extra_groups": []}
        make = [_find("initdb"), "-D", str(data), "-A", "trust", "--no-sync"]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL, cwd="/", **as_owner)
        settings = (
            *(f"port={PORTS['postgres']}", "listen_addresses=127.0.0.1", "jit=off"),
            *("unix_socket_directories=", "max_connections=200", "autovacuum=off"),
        )
        options = [text for setting in settings for text in ("-c", setting)]
        self.start((_find("postgres"), "-D", str(data), *options), "postgres", {}, **as_owner)

    @contextlib.contextmanager
    def serving(self, case: Case, behind: Case | None = None) -> Iterator[None]:
        """Run a case's server, and what is behind it: `behind` or what the case names."""
        before = len(self.running)
        what = "return 200 ok;"
        other = behind or CASES.get(case.behind)
        if other:
            text = tuple(word.replace("{served}", "{behind}") for word in other.command)
            self.start(text, "behind", other.environment)
            what = f"proxy_pass http://127.0.0.1:{PORTS['behind']};"
        ways = {"h2": " http2", "h2s": f" ssl http2{_KEYS}", "https": f" ssl{_KEYS}"}
        how = ways.get(case.mode, "").replace("{place}", str(self.place))
        config = _NGINX.format(place=self.place, what=what, how=how, **PORTS)
        (self.place / "nginx.conf").write_text(config)
        (self.place / "unbound.conf").write_text(_UNBOUND.format(place=self.place, **PORTS))
        try:
            self.start(case.command, "served", case.environment)
            yield
        finally:
            self.stop(self.running[before:])
            del self.running[before:]

    def start(
        self, command: tuple[str, ...], name: str, environment: dict[str, str], **others: object
    ) -> None:
        """Start a server and wait until it listens."""
        known = {**{n: str(port) for n, port in PORTS.items()}, "place": str(self.place)}
        known |= {"python": str(self.python), "bin": str(self.python.parent)}
        words = [word.format(truth=self.truth, **known) for word in command]
        words[0] = _find(words[0]) or words[0]
        variables = {"TRUTH": str(self.truth), "PYTHONPATH": str(HERE)}
        variables["NODE_PATH"] = str(self.python.parents[2] / "node" / "node_modules")
        variables |= {n.upper(): str(port) for n, port in PORTS.items()}
        if self.tasks:
            agents = Path(critpath_marks.__file__).parent
            variables["PYTHONPATH"] = f"{agents}/started:{HERE}"
            variables["NODE_OPTIONS"] = f"--require {agents}/tasks.js"
        with (self.place / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(
                words,
                cwd=self.place,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **variables, **environment},
                **others,
            )
        self.running.append(started)
        for _ in range(400):
            if _listens(PORTS[name]):
                return
            if started.poll() is not None:
                break
            time.sleep(0.05)
        log_text = (self.place / f"{name}.log").read_text(errors="replace")
        sys.exit(f"{' '.join(words)} did not start: {log_text[-500:]}")

    def threads(self, of: subprocess.Popen[bytes] | None = None) -> list[int]:
        """Return the threads of a server, of that which was started last by default."""
        chosen = of or self.running[-1]
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                session = int(stat.read_text(errors="replace").rpartition(")")[2].split()[3])
                if session == chosen.pid:
                    found += [int(task.name) for task in (stat.parent / "task").iterdir()]
        return found

    def stop(self, started: list[subprocess.Popen[bytes]]) -> None:
        """End servers with all their processes."""
        for one in reversed(started):
            for sign in (signal.SIGINT, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(one.pid, sign)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    one.wait(5)

    def close(self) -> None:
        """End everything and remove the directory."""
        self.stop(self.running)
        shutil.rmtree(self.place, ignore_errors=True)


def _listens(port: int) -> bool:
    """Tell whether somebody can be asked at a port, by TCP or UDP."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _find(name: str) -> str:
    """Return a program's path, PostgreSQL's beside its version; "" if there is none."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if versions:
        return str(versions[-1])
    if Path(name).is_absolute():
        return name if Path(name).exists() else ""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") or ""
