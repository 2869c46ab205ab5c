"""Answers who may ask for metrics: on a loopback port or a unix socket, to chosen users alone."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import struct
from collections.abc import Callable, Collection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

from critpath.errors import UsageError

_PORT: Final = re.compile(r"(127\.\d{1,3}\.\d{1,3}\.\d{1,3}|localhost|):(\d{1,5})", re.ASCII)
_TIMEOUT: Final = 2.0  # s that who asks may take
_CREDENTIALS: Final = struct.Struct("3i")
_REFUSED: Final = (
    b"HTTP/1.0 403 Forbidden\r\nContent-Type: text/plain\r\n\r\n"
    b"this user may not read these metrics: critpath metrics --for USER\n"
)


class Server(HTTPServer):
    """Answers one at a time; `handle_request` returns after `timeout` s without any."""

    def __init__(
        self,
        place: str,
        users: Collection[int],
        content_type: str,
        make: Callable[[], bytes],
        *,
        tables: Path = Path("/proc/net/tcp"),
    ) -> None:
        self._users, self._tables = users, tables
        self.content_type, self.make = content_type, make
        self._path: Path | None = None
        if place.startswith("unix:"):
            self.address_family = socket.AF_UNIX
            self._path = Path(place.removeprefix("unix:"))
        bound = self._path or parse_port(place)
        super().__init__((), _Handler, bind_and_activate=False)  # type: ignore[arg-type]  # as it is given below
        try:
            self._bind(bound)
            self.server_activate()
        except OSError as error:
            self.server_close()
            raise UsageError(
                f"cannot listen on {place}: {error.strerror or error}", "name another place"
            ) from None

    def _bind(self, place: Any) -> None:
        if self._path is None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(place)
            self.server_address = self.socket.getsockname()
            return
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(self._path.lstat().st_mode) and not _answers(self._path):
                self._path.unlink()  # of one that was killed
        others = {*self._users} - {os.geteuid(), 0}
        umask = os.umask(0o111 if others else 0o177)  # who asks is looked at as well
        try:
            self.socket.bind(str(self._path))
        finally:
            os.umask(umask)
        self.server_address = str(self._path)  # type: ignore[assignment]  # of its family

    def server_close(self) -> None:
        """Listen no more."""
        bound = self._path is not None and hasattr(self, "server_address") and self.server_address
        super().server_close()
        if bound and self._path:
            self._path.unlink(missing_ok=True)

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 - its name
        """Refuse whom the kernel tells to be another user, before anything is read."""
        if self._peer(request) in self._users:
            return True
        with contextlib.suppress(OSError):
            request.send(_REFUSED, socket.MSG_DONTWAIT)
        return False

    def _peer(self, request: socket.socket) -> int | None:
        """Return whose the other end is, None where it cannot be told."""
        with contextlib.suppress(OSError, ValueError):
            if self._path is not None:
                raw = request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
                return int(_CREDENTIALS.unpack(raw)[1])
            return find_owner(self._tables.read_text("ascii"), request)
        return None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: whoever asked has gone."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _TIMEOUT
    server_version, sys_version = "critpath", ""

    def do_GET(self) -> None:
        """Answer with the metrics, under any path that is usual."""
        if self.path.partition("?")[0] not in {"/", "/metrics"}:
            self.send_error(404)
            return
        assert isinstance(self.server, Server)  # noqa: S101 - for the type checker
        content = self.server.make()
        self.send_response(200)
        self.send_header("Content-Type", self.server.content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def address_string(self) -> str:
        """Return nothing: the end of a unix socket has no address."""
        return ""

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def parse_port(place: str) -> tuple[str, int]:
    """Return a loopback address and its port; raises UsageError for any other."""
    found = _PORT.fullmatch(place)
    if found is None or not 0 <= int(found[2]) < 1 << 16:
        raise UsageError(
            f"{place} is no port of this machine alone",
            "127.0.0.1:9464, unix:PATH, file:PATH or otlp:URL",
        )
    host = found[1] if found[1] not in {"", "localhost"} else "127.0.0.1"
    return host, int(found[2])


def find_owner(table: str, request: socket.socket) -> int | None:
    """Return the user of the other end of a loopback connection, by the kernel's table."""
    wanted = [_as_listed(*request.getpeername()), _as_listed(*request.getsockname())]
    for line in table.splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == wanted:
            return int(fields[7])
    return None


def _as_listed(host: str, port: int) -> str:
    (number,) = struct.unpack("=I", socket.inet_aton(host))
    return f"{number:08X}:{port:04X}"


def _answers(path: Path) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as to:
        to.settimeout(_TIMEOUT)
        to.connect(str(path))
        return True
    return False
