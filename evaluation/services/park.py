"""The servers that the cases ask: installed ones, on ports of 127.0.0.1, all at once.

``python park.py DIR up`` starts them and returns, ``down`` ends them. What runs:
PostgreSQL, pgbouncer, two Redis (without and with ``appendfsync always``), memcached, beanstalkd,
nginx, haproxy, and applications (`apps.py`) in gunicorn, waitress and aiohttp.
"""

from __future__ import annotations

import contextlib
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

HERE: Final = Path(__file__).resolve().parent
PORTS: Final = {
    "postgres": 21001,
    "redis": 21002,
    "redis-aof": 21003,
    "memcached": 21004,
    "nginx": 21005,
    "gunicorn": 21006,
    "waitress": 21007,
    "aiohttp": 21008,
    "pgbouncer": 21009,
    "beanstalkd": 21010,
    "haproxy": 21011,
    "quota": 21012,
    "tax": 21013,
    "client": 21014,  # of `client.py --served`
}
_SERVED: Final = 200_000  # bytes of the page that nginx sends
_LIMITS: Final = (80, 200)  # requests a second
_SQL: Final = """
create table items (id int primary key, owner int, price int, note text);
insert into items select i, i % 400, i % 97, repeat('x', 60) from generate_series(1, 60000) i;
create table small as select * from items where id <= 6000;
create table indexed as select * from items; create index on indexed (owner);
create table counters (id int primary key, n int);
insert into counters select i, 0 from generate_series(1, 50) i;
create table log (id serial, t text); vacuum analyze;
"""


def find_program(name: str) -> str:
    """Return a program's path, PostgreSQL's beside its version."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = (
        str(versions[-1])
        if versions
        else shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    )
    if not found:
        sys.exit(f"{name} is not installed: see docs/evaluation.md, services")
    return found


def up(park: Path, python: str) -> None:
    """Start all servers below `park`; `python` is an interpreter that has their packages."""
    park.mkdir(parents=True)
    park.chmod(0o755)
    scripts = Path(python).parent
    environment = {**os.environ, "PYTHONPATH": str(HERE), "PATH": f"{scripts}:{os.environ['PATH']}"}
    environment |= {f"PORT_{name.upper().replace('-', '_')}": str(p) for name, p in PORTS.items()}

    def start(name: str, *command: str, user: str = "") -> None:
        with (park / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(
                command,
                cwd=park,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
                user=user or None,
                group=user or None,
                extra_groups=[] if user else None,
            )
        with (park / "pids").open("a") as pids:
            pids.write(f"{started.pid} {name}\n")
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORTS[name])):
                return
            if started.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"{name} did not start: {(park / f'{name}.log').read_text()[-500:]}")

    data = park / "pg"
    data.mkdir(mode=0o700)
    owner = pwd.getpwnam("postgres")
    os.chown(data, owner.pw_uid, owner.pw_gid)
    make = [find_program("initdb"), "-D", str(data), "-A", "trust", "--no-sync"]
    subprocess.run(
        make,
        check=True,
        user="postgres",
        group="postgres",
        extra_groups=[],
        stdout=subprocess.DEVNULL,
        cwd="/",
    )
    settings = {
        "port": PORTS["postgres"],
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "autovacuum": "off",
        "jit": "off",
        "max_parallel_workers_per_gather": 0,
        "shared_buffers": "64MB",
        "deadlock_timeout": "10s",
    }
    options = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
    start("postgres", find_program("postgres"), "-D", str(data), *options, user="postgres")
    _ask_postgres(python, _SQL)
    for name, extra in (
        ("redis", ["--appendonly", "no"]),
        ("redis-aof", ["--appendonly", "yes", "--appendfsync", "always"]),
    ):
        at = park / name
        at.mkdir()
        start(
            name,
            find_program("redis-server"),
            "--port",
            str(PORTS[name]),
            "--save",
            "",
            "--dir",
            str(at),
            *extra,
        )
    start(
        "memcached",
        find_program("memcached"),
        "-u",
        "root",
        "-l",
        "127.0.0.1",
        "-p",
        str(PORTS["memcached"]),
        "-t",
        "2",
    )
    start(
        "beanstalkd", find_program("beanstalkd"), "-l", "127.0.0.1", "-p", str(PORTS["beanstalkd"])
    )
    (park / "bouncer.ini").write_text(
        f"[databases]\npostgres = host=127.0.0.1 port={PORTS['postgres']} user=postgres "
        f"pool_size=1\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {PORTS['pgbouncer']}\n"
        "auth_type = any\nunix_socket_dir =\npool_mode = transaction\n"
    )
    start("pgbouncer", find_program("pgbouncer"), str(park / "bouncer.ini"), user="postgres")
    app = ["--workers", "1", "--worker-tmp-dir", "/dev/shm"]
    start(
        "gunicorn",
        str(scripts / "gunicorn"),
        *app,
        "-b",
        f"127.0.0.1:{PORTS['gunicorn']}",
        "apps:flask_app",
    )
    start(
        "quota",
        str(scripts / "gunicorn"),
        *app,
        "-b",
        f"127.0.0.1:{PORTS['quota']}",
        "apps:flask_app",
    )
    start(
        "tax",
        str(scripts / "gunicorn"),
        *app,
        "-b",
        f"127.0.0.1:{PORTS['tax']}",
        "-n",
        "tax",
        "apps:tax_app",
    )
    start(
        "waitress",
        str(scripts / "waitress-serve"),
        "--threads",
        "4",
        "--listen",
        f"127.0.0.1:{PORTS['waitress']}",
        "apps:threads_app",
    )
    start("aiohttp", python, str(HERE / "apps.py"), str(PORTS["aiohttp"]))
    start(
        "nginx",
        find_program("nginx"),
        "-e",
        str(park / "error.log"),
        "-c",
        str(_configure_nginx(park)),
    )
    (park / "haproxy.cfg").write_text(
        "global\n maxconn 100\ndefaults\n mode http\n timeout connect 5s\n"
        " timeout client 30s\n timeout server 30s\n"
        f"frontend f\n bind 127.0.0.1:{PORTS['haproxy']}\n default_backend b\n"
        f"backend b\n server s 127.0.0.1:{PORTS['nginx']} maxconn 1\n"
    )
    start("haproxy", find_program("haproxy"), "-db", "-f", str(park / "haproxy.cfg"))
    subprocess.run([python, str(HERE / "client.py"), "fill"], check=True)


def _configure_nginx(park: Path) -> Path:
    root = park / "www"
    root.mkdir()
    words = " ".join(f"word{i * 7919 % 1000} {i * 31 % 977}" for i in range(_SERVED // 10))
    (root / "page.txt").write_text(words[:_SERVED])
    (root / "short.txt").write_text(words[:20_000])
    for number in range(40):
        (root / f"part{number}.txt").write_text(words[:4_000])
    pieces = "".join(
        f"location /level{n}/ {{ alias {root}/; gzip on; gzip_types text/plain; "
        f"gzip_comp_level {n}; }}\n"
        for n in (1, 2, 4, 6, 9)
    )
    pieces += "".join(
        f"location /limit{n}/ {{ alias {root}/; limit_req zone=z{n} burst=100; }}\n"
        for n in _LIMITS
    )
    zones = "".join(
        f"limit_req_zone $binary_remote_addr zone=z{n}:1m rate={n}r/s; " for n in _LIMITS
    )
    (park / "nginx.conf").write_text(
        f"daemon off; worker_processes 1; user root; pid {park}/nginx.pid; "
        f"error_log {park}/error.log;\n"
        f"events {{ }} http {{ {zones} access_log off; sendfile on; tcp_nodelay on; "
        "keepalive_requests 100000;\n"
        f"client_body_temp_path {park}/body; proxy_temp_path {park}/proxy; "
        f"fastcgi_temp_path {park}/fcgi; "
        f"uwsgi_temp_path {park}/uwsgi; scgi_temp_path {park}/scgi;\n"
        f"server {{ listen 127.0.0.1:{PORTS['nginx']}; root {root}; {pieces}\n"
        f"location /app/ {{ proxy_pass http://127.0.0.1:{PORTS['gunicorn']}/; }} }} }}\n"
    )
    return park / "nginx.conf"


def _ask_postgres(python: str, text: str) -> None:
    ask = (
        "import psycopg2, sys; c = psycopg2.connect(host='127.0.0.1', port=int(sys.argv[1]), "
        "user='postgres', dbname='postgres'); c.autocommit = True; k = c.cursor(); "
        "[k.execute(s) for s in sys.argv[2].split(';') if s.strip()]"
    )
    for left in range(100, 0, -1):
        if (
            subprocess.run(
                [python, "-c", ask, str(PORTS["postgres"]), text],
                stderr=subprocess.DEVNULL if left > 1 else None,
                check=left == 1,
            ).returncode
            == 0
        ):
            return
        time.sleep(0.1)


def down(park: Path) -> None:
    """End what `up` started, newest first, and remove the directory."""
    pids = park / "pids"
    for line in reversed(pids.read_text().splitlines() if pids.exists() else []):
        pid, name = line.split()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if name == "postgres":
                os.kill(int(pid), signal.SIGINT)  # a fast shutdown
            else:
                os.killpg(int(pid), signal.SIGTERM)
    time.sleep(1.5)
    shutil.rmtree(park, ignore_errors=True)
    for left in Path("/var/tmp").glob("critpath-services.*"):
        left.unlink()
    for group in Path("/sys/fs/cgroup").glob("**/critpath-services"):
        group.rmdir()


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    if sys.argv[2] == "up":
        up(place, sys.argv[3] if len(sys.argv) > 3 else sys.executable)
    else:
        down(place)
