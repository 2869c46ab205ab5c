"""Sends incidents to an address, beside the work: what it does not take is counted as lost."""

from __future__ import annotations

import contextlib
import queue
import threading
import urllib.request
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from critpath.errors import UsageError

_WAITING: Final = 100
_TIMEOUT: Final = 5.0  # s for one
_LAST: Final = 10.0  # s for what waits at the end
_TRIES: Final = 2


class _Refuse(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: only the address that was named is sent anything."""

    def redirect_request(self, *_: Any) -> None:
        """Return no other request."""


def check_address(text: str, what: str = "--webhook") -> str:
    """Return an address of http or https; raises UsageError that begins with `what`."""
    try:
        parts = urlsplit(text)
        known = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        known = False
    if not known or not text.isascii() or any(letter <= " " for letter in text):
        raise UsageError(
            f"{what}: no address of http or https", "such as https://alerts.example/critpath"
        )
    return text


def complete_address(text: str, path: str) -> str:
    """Return where a collector of OTLP takes something, by an address that may leave that out."""
    address = check_address(text, "otlp:URL")
    return address if urlsplit(address).path.strip("/") else address.rstrip("/") + path


class Webhook:
    """Sends texts to an address, one after the other, in a thread of its own."""

    def __init__(
        self, address: str, send: Callable[[urllib.request.Request, float], object] | None = None
    ) -> None:
        self._address = check_address(address)
        opener = urllib.request.build_opener(_Refuse)
        self._send = send or (
            lambda request, seconds: opener.open(request, timeout=seconds).close()
        )
        self._texts: queue.Queue[str | None] = queue.Queue(_WAITING)
        self._lost = self._open = 0  # open: neither sent nor lost yet
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._deliver, name="critpath-hook", daemon=True)
        self._thread.start()

    def put(self, text: str) -> None:
        """Send a JSON text when its turn comes; lost if too many wait."""
        with self._lock:
            self._open += 1
        try:
            self._texts.put_nowait(text)
        except queue.Full:
            self._end_one(lost=True)

    def take_lost(self) -> int:
        """Return how many were lost since this was asked last."""
        with self._lock:
            lost, self._lost = self._lost, 0
        return lost

    def close(self) -> None:
        """Wait a while for what is left; what is not sent then is lost."""
        with contextlib.suppress(queue.Full):
            self._texts.put(None, timeout=_LAST)
        self._thread.join(_LAST)
        with self._lock:
            self._lost, self._open = self._lost + self._open, 0

    def _end_one(self, *, lost: bool) -> None:
        with self._lock:
            self._open -= 1
            self._lost += lost

    def _deliver(self) -> None:
        while (text := self._texts.get()) is not None:
            request = urllib.request.Request(  # noqa: S310 - http or https, as checked
                self._address,
                text.encode("utf-8", "replace"),
                {"Content-Type": "application/json", "User-Agent": "critpath"},
                method="POST",
            )
            self._end_one(lost=not self._try(request))

    def _try(self, request: urllib.request.Request) -> bool:
        """Send one, twice if need be; return whether it was taken."""
        for _ in range(_TRIES):
            try:
                self._send(request, _TIMEOUT)
            except (OSError, ValueError):  # refused, too slow, no answer of HTTP
                continue
            except Exception:  # noqa: BLE001 - whatever an answer is, the next one is sent
                return False
            return True
        return False
