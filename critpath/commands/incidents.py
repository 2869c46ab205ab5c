"""``critpath incidents``: what became slower on a machine that is recorded all the time."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from critpath.commands.declared import flag, option
from critpath.commands.output import Progress, hint, make_console, warn
from critpath.commands.settings import (
    COMPARING,
    KNOWING,
    LINKING,
    READING,
    Settings,
    WrongValueError,
    as_duration,
    as_size,
)
from critpath.errors import (
    EXIT_INCONCLUSIVE,
    EXIT_OK,
    CritpathError,
    UnreadableError,
    UsageError,
)
from critpath.units import NS_PER_S

if TYPE_CHECKING:
    from critpath.documents import ComparisonDocument, IncidentDocument
    from critpath.incidents.dumps import Dump
    from critpath.incidents.looking import Looking
    from critpath.incidents.webhook import Webhook
    from critpath.model import PathSet

SETTINGS: Final = (*READING, *COMPARING, *KNOWING, *LINKING)

DIRECTORY: Final = Path("/var/lib/critpath/incidents")
_SHOW: Final = "show"
_OTLP: Final = "otlp:"  # before a collector's address
_EVERY: Final = 1.0  # s between two looks
_NICE: Final = 19
_TOP: Final = "requests:top"  # whom a client waits for: what these ask is on their paths
_TOP_OR_SO: Final = f"{_TOP},doubtful=include"
_DAYS: Final = re.compile(r"(\d{1,4})d", re.ASCII)

DESCRIPTION: Final = (
    "Hold each dump that a flight recorder (record --always) makes by itself against what is "
    "usual there, and say in a line what became slower and why; list what was found."
)


def as_since(value: str) -> int:
    """Accept how long ago (``12h``, ``7d``), or a time; return the second since 1970."""
    from critpath.incidents.times import parse_time  # noqa: PLC0415 - start-up time

    if days := _DAYS.fullmatch(value):
        return int(time.time()) - 86_400 * int(days[1])
    with contextlib.suppress(WrongValueError):
        return int(time.time() - as_duration(value))
    if second := parse_time(value):
        return second
    raise WrongValueError("how long ago, such as 12h or 7d, or a time such as 2026-11-21T04:35Z")


OPTIONS: Final = (
    option("what", "PLACE", f"directory of incidents ({DIRECTORY}), or show ID for one of them; "
        "with -o the directory of a flight recorder", nargs="*"),
    option("-o --output", "DIR", "look at the dumps of the flight recorder in PLACE, keep "
        "incidents and what is usual in DIR", Path),
    option("--since", "TIME", "list those that went on after it: 12h ago, 7d, 2026-11-21T04:35Z",
        as_since, 0),
    flag("--follow", "go on until a signal comes: look at each dump as it is made, or list each "
        "incident as it is found"),
    flag("--json", "a document in each line"),
    option("--webhook", "URL", "with -o: send each incident there, as JSON; with otlp: before "
        "it, as a line of a log to a collector of OTLP"),
    option("--quota", "SIZE", "with -o: of all incidents (256M); the oldest are removed, none with "
        "a file keep in it", as_size, 256 << 20),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Look at dumps, list incidents or show one."""
    words = arguments.what
    if words[:1] == [_SHOW] and len(words) in {2, 3} and arguments.output is None:
        return _show(words[1], Path(words[2]) if len(words) > 2 else DIRECTORY, arguments)
    if len(words) > 1 or words == [_SHOW]:
        raise UsageError(
            "incidents of several places", "critpath incidents [DIR], or critpath incidents show ID"
        )
    if arguments.output is None:
        if arguments.webhook:
            raise UsageError("--webhook without -o", "critpath incidents FLIGHT_DIR -o DIR")
        return _list(Path(words[0]) if words else DIRECTORY, arguments, settings)
    if not words:
        raise UsageError("-o without the directory of a flight", "critpath incidents DIR -o DIR")
    if arguments.since:
        raise UsageError("--since with -o", "leave it out: every dump is looked at once")
    return _look(Path(words[0]), arguments, settings)


# Looking at dumps


def _look(flight: Path, arguments: argparse.Namespace, settings: Settings) -> int:
    """Look at every dump that is there, and with --follow at those that come."""
    if not (flight.is_dir() or arguments.follow):
        raise UnreadableError(
            f"{flight} is no directory", "name that of a flight recorder (record --always -o DIR)"
        )
    from critpath.incidents.looking import Looker  # noqa: PLC0415 - numpy and the stages
    from critpath.incidents.webhook import Webhook  # noqa: PLC0415 - start-up time

    with contextlib.ExitStack() as stack:
        umask = os.umask(0o077)
        stack.callback(os.umask, umask)
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, max(nice, _NICE))
        hook = Webhook(_address(arguments.webhook)) if arguments.webhook else None
        looker = Looker(_how(flight, arguments, settings, hook))

        def count_lost() -> None:
            if hook is not None and (lost := hook.take_lost()):
                looker.keep(lost=looker.state.lost + lost)
                hint(f"critpath: {lost} not delivered to --webhook", quiet=settings["quiet"])

        stack.callback(count_lost)
        if hook is not None:
            stack.callback(hook.close)
        stopping = stack.enter_context(_until_signal()) if arguments.follow else None
        while True:
            looker.look(stopping.is_set if stopping else lambda: False)
            count_lost()
            if stopping is None or stopping.wait(_EVERY):
                return EXIT_OK


def _address(given: str) -> str:
    from critpath.incidents.webhook import complete_address  # noqa: PLC0415 - start-up time
    from critpath.metrics.otlp import LOGS  # noqa: PLC0415 - as above

    collector = given.removeprefix(_OTLP)
    return given if collector == given else complete_address(collector, LOGS)


def _log(one: IncidentDocument, line: str) -> str:
    """Return an incident as a line of a log, by whose attributes collectors find it."""
    from critpath.incidents.times import parse_time  # noqa: PLC0415 - start-up time
    from critpath.metrics.otlp import format_log  # noqa: PLC0415 - as above

    names = ("id", "verdict", "kind", "program", "container", "known")
    attributes = {f"critpath.{name}": str(getattr(one, name)) for name in names}
    severity = "WARN" if one.verdict in {"anomaly", "by_machine"} else "INFO"
    at = parse_time(one.last) * NS_PER_S
    return format_log(line, severity, at, attributes, one.host, one.version)


def _how(
    flight: Path, arguments: argparse.Namespace, settings: Settings, hook: Webhook | None
) -> Looking:
    from critpath.incidents.looking import Looking  # noqa: PLC0415 - numpy and the stages
    from critpath.report.document import to_plain  # noqa: PLC0415 - start-up time
    from critpath.report.html import render_html  # noqa: PLC0415 - as above

    def tell(one: IncidentDocument, line: str) -> None:
        text = json.dumps(to_plain(one), sort_keys=True)
        print(text if arguments.json else line, flush=True)
        if hook is not None:
            plain = {**to_plain(one), "line": line}
            as_log = arguments.webhook.startswith(_OTLP)
            hook.put(_log(one, line) if as_log else json.dumps(plain, sort_keys=True))

    return Looking(
        flight=flight,
        directory=arguments.output,
        settings=settings.for_comparing(),
        quota=arguments.quota,
        read=partial(_read, settings=settings),
        look_up=partial(_look_up, settings=settings),
        render=lambda document, line: render_html(
            document, trace_url=settings["trace-url"], line=line
        ),
        tell=tell,
        say=lambda line: warn([line], quiet=settings["quiet"]),
    )


def _read(dump: Dump, *, settings: Settings) -> PathSet:
    """Return the paths of requests of servers, or of what is marked, which of them is there."""
    from critpath.commands.sources import extract_sources  # noqa: PLC0415 - start-up time
    from critpath.incidents.choosing import is_known  # noqa: PLC0415 - numpy
    from critpath.read import Recording  # noqa: PLC0415 - numpy

    sources, progress = [dump.path], Progress(quiet=True)
    recorded = Recording(dump.path).manifest.execution
    if settings["execution"] or recorded:
        return extract_sources(sources, settings, progress)
    first, second = ("marker", _TOP) if dump.is_of_marks else (_TOP, "marker")
    try:
        paths = extract_sources(sources, settings, progress, specification=first)
    except CritpathError as error:
        with contextlib.suppress(CritpathError):
            return extract_sources(sources, settings, progress, specification=second)
        raise error from None
    if first == _TOP and dump.trigger.kind and not is_known(paths, dump.trigger.kind):
        # After a gap a busy loop is never again seen without what the gap hides: a guess will do.
        with contextlib.suppress(CritpathError):
            more = extract_sources(sources, settings, progress, specification=_TOP_OR_SO)
            return replace(more, specification=paths.specification)
    return paths


def _look_up(
    document: ComparisonDocument, normal: Path, sample: Path, *, settings: Settings
) -> str:
    """Return what the store calls it, "" for nothing or without a store."""
    from critpath.commands.compare import look_up  # noqa: PLC0415 - start-up time

    if not settings["known"]:
        return ""
    entry = look_up(document, [normal, sample], settings)
    return entry.matches[0].label if entry.answer == "known" and entry.matches else ""


@contextlib.contextmanager
def _until_signal() -> Iterator[threading.Event]:
    """Yield what is set when a signal comes that ends."""
    stopping = threading.Event()
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.signal(number, lambda *_: stopping.set())
            stack.callback(signal.signal, number, before)
        yield stopping


# What was found


def _list(directory: Path, arguments: argparse.Namespace, settings: Settings) -> int:
    """List incidents, oldest first; with --follow also those that come."""
    from critpath.incidents.keeping import read_incidents  # noqa: PLC0415 - start-up time
    from critpath.incidents.times import parse_time  # noqa: PLC0415 - as above
    from critpath.report.document import to_plain  # noqa: PLC0415 - as above
    from critpath.text.incidents import describe_incident  # noqa: PLC0415 - as above

    shown: dict[str, int] = {}

    def note(name: str, error: UnreadableError) -> None:
        if name not in shown:
            shown[name] = 0
            warn([f"{name} cannot be read: {error.what}"], quiet=settings["quiet"])

    with _until_signal() if arguments.follow else contextlib.nullcontext() as stopping:
        while True:
            for one in read_incidents(directory, note):
                if shown.get(one.id) == one.count or parse_time(one.last) < arguments.since:
                    continue
                shown[one.id] = one.count
                plain: dict[str, Any] = to_plain(one)
                text = json.dumps(plain, sort_keys=True) if arguments.json else ""
                print(text or f"{one.id}\n  {describe_incident(one)}", flush=True)
            if stopping is None or stopping.wait(_EVERY):
                return EXIT_OK


def _show(name: str, directory: Path, arguments: argparse.Namespace) -> int:
    """Print an incident's comparison again; return the exit code that goes with it."""
    from critpath.incidents.keeping import load_comparison, load_incident  # noqa: PLC0415 - start-up time
    from critpath.report.document import to_json  # noqa: PLC0415 - as above
    from critpath.report.text import render_comparison  # noqa: PLC0415 - as above
    from critpath.text.incidents import describe_incident  # noqa: PLC0415 - as above

    place = Path(name) if os.sep in name else directory / name
    if place.is_symlink() or not place.is_dir():
        raise UnreadableError(
            f"{place} is no incident", f"critpath incidents {directory} lists them"
        )
    one = load_incident(place)
    if arguments.json:
        print(to_json(one), end="")
        return one.code
    print(describe_incident(one))
    document = load_comparison(place)
    if document is None:
        return EXIT_INCONCLUSIVE
    print()
    render_comparison(document, make_console(), places=[str(place / one.page)] if one.page else [])
    return one.code
