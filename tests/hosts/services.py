"""The servers of the experiment, each on a host of its own: nginx, a Python application, Redis,
PostgreSQL and another HTTP server. One recording of all, and the truth beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from shop import PORTS
from spaces import Spaces, end

HERE: Final = Path(__file__).resolve().parent
HOSTS: Final = ("client", "web", "app", "redis", "postgres", "outer")
PACKAGES: Final = ("gunicorn", "uvicorn")
WORKS: Final = ("cpu", "sleep", "ioread", "iowrite", "select1", "outer", "select2", "lock")
_LATER: Final = 0.4  # s
PATTERNS: Final = (1, 2, 3, 4, 5)
_NGINX: Final = """
worker_processes 2; daemon off; pid {place}/nginx.pid; error_log {place}/nginx.log crit;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 100000; client_body_temp_path {place}/body;
  proxy_temp_path {place}/proxy; fastcgi_temp_path {place}/fastcgi;
  uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
  upstream app {{ server {app}:8000; keepalive 64; }}
  server {{ listen 8080 backlog=256;
    location / {{ proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""
_OUTER: Final = """
worker_processes 1; daemon off; pid {place}/outer.pid; error_log {place}/outer.log crit;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 100000; client_body_temp_path {place}/outer-body;
  proxy_temp_path {place}/outer-proxy; fastcgi_temp_path {place}/outer-fastcgi;
  uwsgi_temp_path {place}/outer-uwsgi; scgi_temp_path {place}/outer-scgi;
  server {{ listen 8090; location / {{ default_type text/plain; return 200 "ok\\n"; }} }}
}}
"""


def missing(python: Path) -> str:
    """Return which programs and packages there are not, "" for none."""
    needs = [name for name in ("nginx", "redis-server", "initdb", "gcc") if not find(name)]
    code = f"import {', '.join(PACKAGES)}"
    if subprocess.run([str(python), "-c", code], check=False, capture_output=True).returncode:
        needs.append(f"{' and '.join(PACKAGES)} for {python}")
    return ", ".join(needs)


def find(name: str) -> str:
    """Return a program's path, PostgreSQL's beside its version; "" if there is none."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if versions:
        return str(versions[-1])
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") or ""


class Services:
    """What serves the experiment; a context manager.

    Parameters
    ----------
    python : Path
        An interpreter with `PACKAGES`.
    delay : mapping of str to str, optional
        As `Spaces` takes it.
    """

    def __init__(self, python: Path, delay: dict[str, str] | None = None) -> None:
        self.python = python
        self.spaces = Spaces(HOSTS, delay)
        self.place = Path(tempfile.mkdtemp(prefix="critpath-hosts-", dir="/var/tmp"))
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self.place.chmod(0o755)
            self.spaces.__enter__()
            source = HERE.parents[1] / "evaluation/servers/client.c"
            words = ["gcc", "-O2", "-pthread", "-o", str(self.place / "client"), str(source)]
            subprocess.run(words, check=True)
            for number in range(8):
                (self.place / f"read-{number}").write_bytes(b"r" * 65536)
            config = _NGINX.format(place=self.place, app=self.spaces.address("app"))
            (self.place / "web.conf").write_text(config)
            (self.place / "outer.conf").write_text(_OUTER.format(place=self.place))
            self._start_all()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End everything, and remove what it left."""
        for process in reversed(self._running):
            end(process)
        self._running.clear()
        self.spaces.close()
        shutil.rmtree(self.place, ignore_errors=True)

    def _start_all(self) -> None:

        self._start("redis", find("redis-server"), "--save", "", "--protected-mode", "no")
        owner = pwd.getpwnam("postgres")
        user = owner.pw_uid, owner.pw_gid
        data = self.place / "pg"
        data.mkdir(mode=0o700)
        os.chown(data, *user)
        make = [find("initdb"), "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync"]
        subprocess.run(
            self.spaces.enter("postgres", *make, user=user),
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
        )
        with (data / "pg_hba.conf").open("a") as stream:
            stream.write("host all all all trust\n")
        settings = (
            *("listen_addresses=*", "unix_socket_directories=", "max_connections=300"),
            *("autovacuum=off", "jit=off", "fsync=off"),
        )
        options = [text for setting in settings for text in ("-c", setting)]
        self._start("postgres", find("postgres"), "-D", str(data), *options, user=user)
        self._start("outer", find("nginx"), "-c", str(self.place / "outer.conf"))
        self._start("web", find("nginx"), "-c", str(self.place / "web.conf"))

    def _start(
        self,
        name: str,
        *words: str,
        user: tuple[int, int] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a server on its host, and wait until it listens."""
        with (self.place / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                self.spaces.enter(name, *words, user=user),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.place,
                env={**os.environ, **(environment or {})},
            )
        self._running.append(process)
        code = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"
        ask = self.spaces.enter(
            "client", sys.executable, "-c", code, self.spaces.address(name), str(PORTS[name])
        )
        for _ in range(100):
            if subprocess.run(ask, check=False, capture_output=True).returncode == 0:
                return process
            if process.poll() is not None:
                break
            time.sleep(0.05)
        text = (self.place / f"{name}.log").read_text(errors="replace")
        raise RuntimeError(f"{' '.join(words)} did not start: {text[-500:]}")

    @contextlib.contextmanager
    def application(self, work: str, pattern: int, *, alike: bool = False) -> Iterator[None]:
        """Run the application that does a kind of work in a pattern; `alike`: with like calls."""
        bind = f"{self.spaces.address('app')}:{PORTS['app']}"
        tools = self.python.parent
        command = [str(tools / "gunicorn"), "-w", "1", "--threads", "40", "-b", bind]
        command += ["--keep-alive", "60", "--log-level", "error", "--worker-tmp-dir", "/dev/shm"]
        command += ["shop:wsgi"]
        if pattern > 1:
            host, _, port = bind.partition(":")
            command = [str(tools / "uvicorn"), "--host", host, "--port", port]
            command += ["--log-level", "error", "--timeout-keep-alive", "60", "shop:asgi"]
        environment = {
            **{name.upper(): self.spaces.address(name) for name in ("redis", "postgres", "outer")},
            "WORK": work,
            "PATTERN": str(pattern),
            "PYTHONPATH": str(HERE),
            **({"ALIKE": "1"} if alike else {}),
            "TRUTH": str(self.place / "truth"),
        }
        process = self._start("app", *command, environment=environment)
        try:
            yield
        finally:
            end(process)
            self._running.remove(process)

    def ask(self, connections: int, requests: int, think_us: int, output: Path) -> list[str]:
        """Return the command that asks nginx over some connections, and logs what it saw."""
        words = (PORTS["web"], connections, requests, "http", think_us, output)
        client = [str(self.place / "client"), *map(str, words)]
        # What works on after it has answered is recorded, too.
        command = ["sh", "-c", f"{shlex.join(client)} && sleep {_LATER}"]
        return [
            "env",
            f"ADDRESS={self.spaces.address('web')}",
            *self.spaces.enter("client", *command),
        ]

    def record(
        self, critpath: Sequence[str], ask: Sequence[str], to: Path, profile: str = "requests"
    ) -> None:
        """Record while a command asks; the truth goes to files beside the recording."""
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        self.forget()
        subprocess.run(
            [
                *(*critpath, "record", "--quiet", "--no-probe", "--force"),
                *("--profile", profile, "-o", str(to / "recording"), "--", *ask),
            ],
            check=True,
        )
        self.forget()
        shutil.copy(self.place / "truth", to / "truth")
        spaces = {str(tid): name for tid, name in self.spaces.threads().items()}
        addresses = {name: self.spaces.address(name) for name in HOSTS}
        inodes = {name: self.spaces.inode(name) for name in HOSTS}
        about = {"threads": spaces, "addresses": addresses, "inodes": inodes}
        (to / "hosts.json").write_text(json.dumps(about))

    def forget(self) -> None:
        """Let the application write what it noted."""
        code = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=10).read()"
        url = f"http://{self.spaces.address('app')}:{PORTS['app']}/truth"
        subprocess.run(self.spaces.enter("client", sys.executable, "-c", code, url), check=True)
