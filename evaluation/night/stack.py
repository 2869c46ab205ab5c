"""The night's servers: nginx -> gunicorn (threads), aiohttp (asyncio) -> PostgreSQL, Redis, more.

``python stack.py DIR up`` starts it below DIR and returns, ``down`` ends it; root, with Debian's
nginx, postgresql and redis-server, and of PyPI gunicorn, aiohttp, psycopg2-binary, asyncpg, redis.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[1] / "services"))

from faults import FLAGS, GROUPS
from park import find_program

HERE: Final = Path(__file__).resolve().parent
PORTS: Final = {
    "nginx": 22000, "shop": 22001, "feed": 22002, "postgres": 22003, "redis": 22004,
    "rates": 22005, "names": 22006,
}  # fmt: skip
PARENTS: Final = tuple(GROUPS / controller / "critpath-night" for controller in ("cpu", "blkio"))
_SQL: Final = """
create table items (id int primary key, owner int, price int, note text);
insert into items select i, i % 400, i % 97, repeat('x', 60) from generate_series(1, 60000) i;
create index on items (owner);
vacuum analyze items;
"""
_NGINX: Final = """
daemon off; worker_processes 1; user root; pid {night}/nginx.pid; error_log {night}/error.log;
events {{ }}
http {{ access_log off; keepalive_requests 1000000;
 client_body_temp_path {night}/body; proxy_temp_path {night}/proxy; fastcgi_temp_path {night}/fcgi;
 uwsgi_temp_path {night}/uwsgi; scgi_temp_path {night}/scgi;
 upstream shop {{ server 127.0.0.1:{shop}; keepalive 16; }}
 upstream feed {{ server 127.0.0.1:{feed}; keepalive 16; }}
 server {{ listen 127.0.0.1:{nginx}; proxy_http_version 1.1; proxy_set_header Connection "";
  location /cart {{ proxy_pass http://shop; }}
  location /feed {{ proxy_pass http://feed; }} }} }}
"""


class Stack:
    """The servers, below a directory."""

    def __init__(self, night: Path, python: str = sys.executable) -> None:
        self.night, self.python = night, python
        self._scripts = Path(python).parent
        self._environment = {**os.environ, "NIGHT": str(night), "PYTHONPATH": str(HERE)}

    def start(self, name: str, *command: object, user: str = "") -> int:
        """Start one server, and wait until it listens."""
        with (self.night / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(word) for word in command], cwd=self.night, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True, env=self._environment,
                user=user or None, group=user or None, extra_groups=[] if user else None,
            )  # fmt: skip
        with (self.night / "pids").open("a") as pids:
            pids.write(f"{process.pid} {name}\n")
        for _ in range(200):
            if name == "names":
                return process.pid
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORTS[name])):
                return process.pid
            if process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"{name} did not start: {(self.night / f'{name}.log').read_text()[-500:]}")

    def up(self) -> None:
        """Start all."""
        night = self.night
        night.mkdir(parents=True)
        night.chmod(0o755)
        (night / "ports.json").write_text(json.dumps(PORTS))
        (night / "flags").write_bytes(bytes(len(FLAGS)))
        (night / "pictures").write_bytes(os.urandom(16 << 20))
        for group in PARENTS:
            group.mkdir(exist_ok=True)
        self._start_postgres()
        (night / "redis").mkdir()
        self.start("redis", find_program("redis-server"), "--port", PORTS["redis"], "--save", "",
                   "--dir", night / "redis")  # fmt: skip
        apps = HERE / "apps.py"
        self.start("names", self.python, apps, "names")
        self.start("rates", self.python, apps, "rates")
        shop = ("-w", 1, "-k", "gthread", "--threads", 8, "--keep-alive", 75,
                "--worker-tmp-dir", "/dev/shm", "-b", f"127.0.0.1:{PORTS['shop']}")  # fmt: skip
        # By a shell, which enters the groups before it becomes the server.
        enter = "".join(f"echo $$ > {group}/cgroup.procs; " for group in PARENTS)
        self.start("shop", "sh", "-c", f'{enter} exec "$@"', "sh", self.python,
                   self._scripts / "gunicorn", *shop, "apps:shop_app")  # fmt: skip
        self.start("feed", self.python, apps, "feed")
        (night / "nginx.conf").write_text(_NGINX.format(night=night, **PORTS))
        self.start("nginx", find_program("nginx"), "-e", night / "error.log", "-c",
                   night / "nginx.conf")  # fmt: skip

    def _start_postgres(self) -> None:
        data = self.night / "pg"
        data.mkdir(mode=0o700)
        owner = pwd.getpwnam("postgres")
        os.chown(data, owner.pw_uid, owner.pw_gid)
        as_owner = {"user": "postgres", "group": "postgres", "extra_groups": []}
        make = [find_program("initdb"), "-D", str(data), "-A", "trust", "--no-sync"]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL, cwd="/", **as_owner)
        settings = {
            "port": PORTS["postgres"], "listen_addresses": "127.0.0.1", "jit": "off",
            "unix_socket_directories": "", "autovacuum": "off", "shared_buffers": "64MB",
            "max_parallel_workers_per_gather": 0, "fsync": "off",
        }  # fmt: skip
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        self.start("postgres", find_program("postgres"), "-D", data, *options, user="postgres")
        self._fill()

    def _fill(self) -> None:
        ask = (
            "import psycopg2, sys; c = psycopg2.connect(host='127.0.0.1', port=int(sys.argv[1]), "
            "user='postgres', dbname='postgres'); c.autocommit = True; k = c.cursor(); "
            "[k.execute(s) for s in sys.argv[2].split(';') if s.strip()]"
        )
        words = [self.python, "-c", ask, str(PORTS["postgres"]), _SQL]
        for left in range(100, 0, -1):
            quiet = subprocess.DEVNULL if left > 1 else None
            if subprocess.run(words, stderr=quiet, check=left == 1).returncode == 0:
                return
            time.sleep(0.1)

    def pids(self) -> dict[str, int]:
        """Return the process that was started for each server."""
        file = self.night / "pids"
        lines = file.read_text().splitlines() if file.exists() else []
        return {name: int(pid) for pid, name in (line.split() for line in lines)}

    def measure_cpu(self) -> float:
        """Return the cpu time that all servers took (s), of processes that live."""
        leaders = {str(pid) for pid in self.pids().values()}
        total = 0
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError):
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                if fields[3] in leaders or place.name in leaders:  # its session
                    total += sum(
                        int(file.read_text().split()[0])
                        for file in (place / "task").glob("*/schedstat")
                    )
        return total / 1e9

    def _wait_for_end(self) -> None:
        """Wait until the ports are free; kill what does not end."""
        for left in range(60, 0, -1):
            alive = [pid for pid in self.pids().values() if _lives(pid)]
            if not alive:
                return
            for pid in alive if left == 1 else ():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            time.sleep(0.1)

    def down(self) -> None:
        """End all, newest first, and remove the directory."""
        for name, pid in reversed(self.pids().items()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if name == "postgres":
                    os.kill(pid, signal.SIGINT)  # a fast shutdown
                else:
                    os.killpg(pid, signal.SIGTERM)
        self._wait_for_end()
        shutil.rmtree(self.night, ignore_errors=True)
        for group in PARENTS:
            with contextlib.suppress(OSError):
                group.rmdir()


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


if __name__ == "__main__":
    stack = Stack(Path(sys.argv[1]).resolve())
    if sys.argv[2] == "up":
        stack.up()
    else:
        stack.down()
