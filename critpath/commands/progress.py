"""Progress of long work, on a terminal only."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from critpath.units import safe_text

if TYPE_CHECKING:
    from rich.status import Status
    from rich.text import Text

DELAY = 1.0  # seconds after which work counts as long


class Progress:
    """A spinner on stderr with the latest message; silent if that is no terminal.

    Call it with a message: ``with Progress(quiet=False) as progress: progress("reading")``.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._on = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._lock = threading.Lock()
        self._message = "working"
        self._status: Status | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        if self._on:
            self._timer = threading.Timer(DELAY, self._start)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._on = False
            if self._status is not None:
                self._status.stop()
                self._status = None

    def __call__(self, message: str) -> None:
        """Show what is being done now."""
        with self._lock:
            self._message = safe_text(message)
            if self._status is not None:
                self._status.update(_text(self._message))

    def _start(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - only for long work

        with self._lock:
            if self._on:
                self._status = Console(stderr=True).status(_text(self._message))
                self._status.start()


def _text(message: str) -> Text:
    from rich.text import Text  # noqa: PLC0415 - only for long work

    return Text(message)  # not a string: that would be read as markup
