"""``critpath metrics``: what a running flight recorder measures, for Prometheus and collectors."""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from critpath.commands.declared import option
from critpath.commands.output import hint
from critpath.commands.settings import Settings, as_duration
from critpath.commands.walking import REQUESTS, Walker
from critpath.errors import CritpathError, UsageError
from critpath.extras import require
from critpath.incidents.webhook import Webhook, complete_address
from critpath.metrics import open_metrics, otlp
from critpath.metrics.collecting import Collected
from critpath.metrics.families import Report
from critpath.metrics.serving import Server
from critpath.units import plural, safe_text

if TYPE_CHECKING:
    from critpath_record import RunningFlight

SETTINGS: Final = ("execution", "reader", "interrupts", "max-memory")
DESCRIPTION: Final = (
    "Tell other programs what a running flight recorder (record --always) measures: latency by "
    "kind, where time goes, incidents, what recording costs, gaps."
)
_ASK: Final = 1.0  # s between two questions
_INCIDENTS: Final = 10  # looks for one at the directory of incidents
_ANSWER: Final = 10.0  # s that one may take


OPTIONS: Final = (
    option("place", "PLACE", "127.0.0.1:9464 or unix:PATH, where OpenMetrics are asked for; "
        "file:PATH, which has them; or otlp:URL of a collector, which is sent them"),
    option("directory", "DIR", "of the flight recorder (default: the one that runs)", Path,
        nargs="?"),
    option("--incidents", "DIR", "count the incidents that are kept there (critpath incidents)",
        Path),
    option("--every", "TIME", "how often a file is written, or a collector sent something (15s)",
        as_duration, 15.0),
    option("--for", "USER", "this user may read them, too (default: root and who started it)",
        dest="reader"),
)  # fmt: skip


class Sink(Protocol):
    """Where metrics go."""

    def wait(self, seconds: float) -> None:
        """Wait for so long at most, and answer requests meanwhile."""

    def close(self) -> None:
        """End."""


class Clock:
    """The time, and whether it is time to end."""

    def __init__(self) -> None:
        self.ending = threading.Event()
        self.now = time.monotonic
        self.date = time.time_ns

    @contextlib.contextmanager
    def until_signal(self) -> Iterator[None]:
        """Let signals that end set `ending`."""
        with contextlib.ExitStack() as stack:
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.signal(number, lambda *_: self.ending.set())
                stack.callback(signal.signal, number, before)
            yield


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Tell until a signal comes."""
    from critpath_record import RunningFlight  # noqa: PLC0415 - start-up time

    if not arguments.place.startswith("otlp:"):
        require("OpenMetrics", "metrics")
    find = partial(RunningFlight.find, arguments.directory)
    clock = Clock()
    teller = Teller(find, arguments.incidents, settings, clock)
    with contextlib.ExitStack() as stack:
        stack.enter_context(clock.until_signal())
        sink = open_sink(arguments, teller.report, clock, teller.say)
        stack.callback(sink.close)
        due = clock.now()
        while not clock.ending.is_set():
            teller.look()
            due = max(due + _ASK, clock.now())
            while (left := due - clock.now()) > 0 and not clock.ending.is_set():
                sink.wait(left)
    return 0


class Teller:
    """Asks the flight recorder, and keeps its answers."""

    def __init__(
        self,
        find: Callable[[], RunningFlight],
        incidents: Path | None,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._find, self._incidents = find, incidents
        self._flight = find()
        self._settings, self._clock = settings, clock
        self._since = clock.date()
        self._seen = self._looks = 0
        self._session = ""
        only = settings["execution"]
        self._walker = Walker(settings, (only,) if only else (REQUESTS, "marker"))
        self.collected = Collected()

    def look(self) -> None:
        """Ask what is new; where nobody answers, that is what there is to tell."""
        try:
            self._ask()
        except (CritpathError, LookupError, TypeError, ValueError) as error:
            if self.collected.up or not self._session:
                self.say(f"{getattr(error, 'what', 'the flight recorder answers otherwise')}")
            self.collected.up = False
            with contextlib.suppress(CritpathError):
                self._flight = self._find()
        self._looks += 1
        if self._incidents is not None and self._looks % _INCIDENTS == 1:
            from critpath.incidents.keeping import read_incidents  # noqa: PLC0415 - msgspec

            with contextlib.suppress(CritpathError):  # nothing is kept there yet
                self.collected.set_incidents(read_incidents(self._incidents))

    def _ask(self) -> None:
        status = self._flight.ask({"status": True}, _ANSWER)
        if status["session"] != self._session:  # another one, which counts from the beginning
            self._session, self._seen = str(status["session"]), 0
        self.collected.set_status(status)
        answers, more, number = [], True, 0
        while more or number:
            asked = {"top": self._seen, "from": number, "walks": self._walker.take_cost()}
            answer = self._flight.ask(asked, _ANSWER)
            self._seen, more = int(answer["seen"]), bool(answer["more"])
            number = int(answer.get("next", 0))
            self.collected.add_ended(answer)
            answers += [answer] if "requests" in answer else []
        self.collected.add_requests(answers)
        self._walker.look(str(answer["dump"]))
        self.collected.walked = self._walker.shares

    def say(self, line: str) -> None:
        """Say what there is to know."""
        hint(f"critpath: {safe_text(line)}", quiet=self._settings["quiet"])

    def report(self) -> Report:
        """Return everything as it is now."""
        from critpath import __version__  # noqa: PLC0415 - start-up time

        return Report(
            families=tuple(self.collected.families()),
            since=self._since,
            now=self._clock.date(),
            host=safe_text(os.uname().nodename),
            version=__version__,
        )


# Where they go


def open_sink(
    arguments: argparse.Namespace,
    report: Callable[[], Report],
    clock: Clock,
    say: Callable[[str], None],
) -> Sink:
    """Return what a place names; raises UsageError."""
    place, reader = arguments.place, _find_user(arguments.reader)
    if place.startswith("otlp:"):
        if reader is not None:
            raise UsageError("--for with otlp:URL", "leave it out: the collector is sent them")
        hook = Webhook(complete_address(place.removeprefix("otlp:"), otlp.PATH))

        def push() -> None:
            hook.put(otlp.format_report(report()))
            if lost := hook.take_lost():
                say(f"{plural(lost, 'report')} not taken by the collector")

        return _NowAndThen(clock, arguments.every, push, hook.close)
    if place.startswith("file:"):
        file = _File(Path(place.removeprefix("file:")), reader and reader.pw_gid, report)
        file.write()
        return _NowAndThen(clock, arguments.every, file.write)
    users = {0, os.geteuid()} | ({reader.pw_uid} if reader else set())
    return _Listen(
        Server(
            *(place, users, open_metrics.CONTENT_TYPE),
            lambda: open_metrics.format_report(report()),
        )
    )


def _find_user(name: str | None) -> pwd.struct_passwd | None:
    if name is None:
        return None
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise UsageError(f"no user {safe_text(name)}", "name one of this machine") from None


class _Listen:
    """Answers who asks."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def wait(self, seconds: float) -> None:
        self._server.timeout = seconds
        self._server.handle_request()

    def close(self) -> None:
        self._server.server_close()


class _NowAndThen:
    """Hands on what there is to tell, each so many seconds."""

    def __init__(
        self,
        clock: Clock,
        every: float,
        tell: Callable[[], None],
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock, self._every, self._tell, self._end = clock, every, tell, end
        self._due = clock.now()

    def wait(self, seconds: float) -> None:
        if self._clock.now() >= self._due:
            self._due = max(self._due + self._every, self._clock.now())
            self._tell()
        self._clock.ending.wait(seconds)

    def close(self) -> None:
        self._tell()  # the last values of what grows
        self._end()


class _File:
    """Writes a file anew, whole: mode 0600, or 0640 of a group of one who may read it."""

    def __init__(self, path: Path, group: int | None, report: Callable[[], Report]) -> None:
        self._path, self._group, self._report = path, group, report

    def write(self) -> None:
        from critpath.files import atomic  # noqa: PLC0415 - start-up time

        with atomic(self._path) as stream:
            if self._group is not None:
                os.fchown(stream.fileno(), -1, self._group)
            os.fchmod(stream.fileno(), 0o600 if self._group is None else 0o640)
            stream.write(open_metrics.format_report(self._report()))
