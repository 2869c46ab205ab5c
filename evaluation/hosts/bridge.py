"""A container's bridge against the host's network: ``python bridge.py DIR [--executions N]``.

nginx and a client that opens connections, in network namespaces (`tests/hosts`): over loopback
(host network), and over veth and a bridge (Docker's default). Recorded in alternation, compared:
verdict, what is said of the route of packets, first causes. Needs root, namespaces, nginx and gcc.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "hosts"))

from services import find
from spaces import Spaces, missing, started

_CLIENT: Final = Path(__file__).resolve().parents[1] / "servers/client.c"
_NGINX: Final = """
worker_processes 1; daemon off; pid {place}/nginx.pid; error_log {place}/nginx.log crit;
events {{ worker_connections 1024; }}
http {{ access_log off; client_body_temp_path {place}/a; proxy_temp_path {place}/b;
  fastcgi_temp_path {place}/c; uwsgi_temp_path {place}/d; scgi_temp_path {place}/e;
  server {{ listen 8080 backlog=512; location / {{ return 200 "ok\\n"; }} }} }}
"""


def main() -> None:
    """Record what is not there, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("--executions", type=int, default=300)
    parser.add_argument("--connections", type=int, default=200, help="of each execution")
    parser.add_argument("--same", action="store_true", help="the bridge against the bridge")
    given = parser.parse_args()
    lacks = missing() or ("" if find("nginx") else "no nginx")
    if lacks:
        sys.exit(f"cannot record here: {lacks}")
    place: Path = given.place.resolve()
    if not (place / "normal").exists():
        record(place, given.executions, given.connections, same=given.same)
    critpath = str(Path(sys.executable).with_name("critpath"))
    words = [critpath, "compare", str(place / "normal"), str(place / "sample"), "--json", "-"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    print(f"verdict: {document['verdict']}")
    said = [text for text in document["warnings"] if "another route" in text]
    print(f"route: {'; '.join(said) or 'nothing is said of it'}")
    for cause in document["causes"][:5]:
        print(f"- {cause['sentence']}")


def record(place: Path, executions: int, connections: int, *, same: bool) -> None:
    """Record both, in alternation."""
    critpath = str(Path(sys.executable).with_name("critpath"))
    with (
        tempfile.TemporaryDirectory(prefix="critpath-bridge-", dir="/var/tmp") as made,
        Spaces(("client", "server")) as spaces,
    ):
        work = Path(made)
        work.chmod(0o755)
        client = work / "client"
        subprocess.run(["gcc", "-O2", "-pthread", "-o", str(client), str(_CLIENT)], check=True)
        (work / "nginx.conf").write_text(_NGINX.format(place=work))

        def ask(space: str, address: str) -> list[str]:
            words = ("8080", 1, connections, "http-close", 0, work / "asked")
            return spaces.enter(space, "env", f"ADDRESS={address}", str(client), *map(str, words))

        serve = spaces.enter("server", find("nginx"), "-c", str(work / "nginx.conf"))
        with started(serve):
            host, bridge = ask("server", "127.0.0.1"), ask("client", spaces.address("server"))
            host = bridge if same else host
            for command in (host, bridge):
                _try(command)
            recorder = [critpath, "record", "--quiet", "--profile", "network", "-o", str(place)]
            both = ("-n", str(executions), "--interleave", shlex.join(host), shlex.join(bridge))
            subprocess.run([*recorder, *both], check=True)


def _try(command: list[str]) -> None:
    """Ask until the server listens."""
    for _ in range(50):
        if subprocess.run(command, check=False, capture_output=True).returncode == 0:
            return
    raise RuntimeError(f"no answer: {' '.join(command)}")


if __name__ == "__main__":
    main()
