"""Parses ``--execution``: which windows of a recording are its executions."""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from critpath.errors import UsageError
from critpath.executions.fields import (
    CONTEXTS,
    SYNTAX,
    EventPattern,
    parse_pattern,
    split_outside_brackets,
    unescape,
)
from critpath.executions.marker import MARKER_EVENTS as MARKER_WANTED
from critpath.executions.membership import ALL_THREADS, ThreadFilter
from critpath.model import EventRequest, Kind
from critpath.model.requests import MARKERS
from critpath.units import shorten
from critpath.untrusted import check_pattern

LENGTH_LIMIT: Final = 10_000  # technical
INODE_DIGITS: Final = 20  # technical

KINDS: Final[dict[str, str]] = {
    "process": "process[,comm=NAME][,container=NAME][,ns=INUM][,cgroup_ns=INUM][,cgroup=PATH]",
    "thread": "thread[,comm=NAME][,...]",
    "marker": "marker",
    "events": "events:BEGIN,END[,key=FIELD][,label=FIELD]",
    "windows": "windows:FILE.csv",
    "requests": "requests[:port=N,comm=NAME,...]",
    "slices": "slices:MARKER[,comm=NAME][,min=DURATION][,root]",
    "slice": "slice:NAME[,comm=NAME][,min=DURATION]",
}


SIGNAL_SENT: Final = ("signal_generate", "signal:signal_generate")
_WORDS: Final = frozenset({"top", "root"})  # options without a value
PEERS: Final = ("any", "external", "local")
DOUBTFUL: Final = ("leave", "include")  # what to do with what is doubtful of requests
ASSIGN: Final = ("queues", "gap", "delays", "thread")  # how it is decided who of several asked
_UNITS: Final = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|µs|ms|s)")
_MOST_PORT: Final = 65_535  # technical

NO_LABEL = "-"  # label=-: no label, not even a text field of the begin event


class RequestFilter(Struct, frozen=True):
    """Which requests of servers are executions.

    Attributes
    ----------
    host : str
        Of several recorded together, the one that serves; "" for any.
    ports : frozenset of int
        Ports that are served; empty for any.
    comm, path : str
        Name of the serving process, path of its unix socket; "" for any.
    label, pattern : str
        What requests are called, a regular expression of that; "" for any.
    pid : int
        Of the serving process; 0 for any.
    peer : str
        ``external`` (who asks is on another machine), ``local`` or ``any``.
    top : bool
        Only requests that no other recorded request asked for, of services of which most are so.
    skip : int
        How many turns to leave out at the begin of each connection: handshakes.
    least : int
        Shortest request (ns).
    first : bool
        Where no socket listens or accepts, the side that receives first is the server.
    doubtful : bool
        What is doubtful counts as well: paths follow it.
    assign : str
        What decides who of several open requests asked: one of `ASSIGN`.
    learn : str
        A recording of the same servers, of which it is learned what requests ask; "" for none.
    sure : float
        Requests are left out of which it is less probable that all that they asked is theirs.
    client : bool
        A request lasts from its client's send to the client's last receive of the answer.
    listing : bool
        Nothing is looked for but what there is: ``requests:?``.
    """

    ports: frozenset[int] = frozenset()
    host: str = ""
    comm: str = ""
    path: str = ""
    label: str = ""
    pattern: str = ""
    pid: int = 0
    peer: str = "any"
    top: bool = False
    skip: int = 0
    least: int = 0
    first: bool = False
    doubtful: bool = False
    assign: str = ASSIGN[0]
    learn: str = ""
    sure: float = 0.0
    client: bool = False
    listing: bool = False


ALL_REQUESTS: Final = RequestFilter()


EVERY_MARKER: Final = "?"  # slices:? counts what there is of each, and nothing is extracted


class SliceFilter(Struct, frozen=True):
    """Which slices of threads are executions.

    Attributes
    ----------
    marker : str
        A key of `critpath.model.requests.MARKERS`.
    comm : str
        Name of the thread or its process; "" for any.
    least : int
        Shortest slice (ns).
    root : bool
        An execution is a slice that no other caused, with all that it led to.
    """

    marker: str = ""
    comm: str = ""
    least: int = 0
    root: bool = False

    def get_requests(self) -> tuple[EventRequest, ...]:
        """Return the events that the marker needs beyond the scheduler's."""
        if self.marker == EVERY_MARKER:
            of_each = (structs.replace(self, marker=name).get_requests() for name in MARKERS)
            return tuple(dict.fromkeys(itertools.chain.from_iterable(of_each)))
        of = MARKERS[self.marker]
        if self.marker == "signal":
            return (
                EventRequest(Kind.OTHER, of.events, (("sig",),)),
                EventRequest(Kind.OTHER, SIGNAL_SENT, (("tid", "pid"),)),
            )
        entries, exits = [], []
        for name, field in dict((*of.calls, *of.writes, *of.others)).items():
            if field:
                names = (f"syscall_entry_{name}", f"syscalls:sys_enter_{name}")
                entries.append(EventRequest(Kind.OTHER, names, ((field,),)))
            results = (f"syscall_exit_{name}", f"syscalls:sys_exit_{name}")
            exits.append(EventRequest(Kind.OTHER, results, (("ret",),)))
        return (*entries, *exits)


NO_SLICES: Final = SliceFilter()


class Specification(Struct, frozen=True):
    """A parsed ``--execution``.

    Attributes
    ----------
    kind : str
        A key of `KINDS`.
    begin, end : EventPattern or None
        For ``events``: what begins and what ends an execution.
    key, label : str
        For ``events``: the field that pairs a begin with its end, and the field with the
        kind of execution; "" where not given.  For ``slice``, the label is the slices' name.
    file : str
        For ``windows``: the CSV file.
    where : ThreadFilter
        For ``process`` and ``thread``: which of them; for ``requests``, where who serves is.
    requests : RequestFilter
        For ``requests``: which of them.
    slices : SliceFilter
        For ``slices`` and ``slice``: which of them.
    label_open : bool
        For ``events``: neither a label nor ``-`` was given, so that a text field of the
        begin event may serve (`find.add_label`).
    text : str
        As written.
    """

    kind: str
    begin: EventPattern | None = None
    end: EventPattern | None = None
    key: str = ""
    label: str = ""
    file: str = ""
    where: ThreadFilter = ALL_THREADS
    requests: RequestFilter = ALL_REQUESTS
    slices: SliceFilter = NO_SLICES
    label_open: bool = False
    text: str = ""

    @property
    def marks_alone(self) -> bool:
        """Whether executions are found in one pass over the events that it names."""
        patterns = self.begin, self.end
        return self.kind == "events" and not any(of is None or of.conditions for of in patterns)

    def get_requests(self) -> tuple[EventRequest, ...]:
        """Return the requests for events beyond the kernel's own selection.

        ``process`` and ``thread`` need only the kernel events of any critical path (with ``tid``
        and ``filename`` of the exec, ``tid`` of the exit).

        Returns
        -------
        tuple of EventRequest
            One per event name, with the fields of its conditions, the key, the label and the
            contexts that identify the thread.
        """
        if self.kind in {"marker", "slice"}:
            return MARKER_WANTED
        if self.kind == "slices":
            return self.slices.get_requests()
        if self.where:
            return self.where.get_requests()
        fields: dict[str, dict[tuple[str, ...], None]] = {}
        for pattern in (self.begin, self.end):
            if pattern is None:
                continue
            mine = fields.setdefault(pattern.name, {})
            for field in (
                *(c.field for c in pattern.conditions),
                *(f for f in (self.key, self.label) if f not in pattern.parsed),
            ):
                if field:
                    mine[field,] = None
            mine.update(dict.fromkeys(CONTEXTS))
        return tuple(
            # Names in `EventRequest` are fnmatch patterns; here a name means itself.
            EventRequest(Kind.OTHER, (glob.escape(name),), tuple(mine))
            for name, mine in fields.items()
        )


def parse_specification(text: str) -> Specification:
    """Parse ``process``, ``thread``, ``marker``, ``requests``, ``slices:...`` and the others.

    Raises
    ------
    UsageError
        If it is none of these, with the nearest correct form.
    """
    if len(text) > LENGTH_LIMIT:
        raise UsageError(
            f"a specification of {len(text):,} characters",
            f"use at most {LENGTH_LIMIT:,}, or windows:FILE.csv",
        )
    chosen = re.match(r"\s*(process|thread)\s*,", text)
    if chosen:
        return Specification(chosen[1], where=_parse_where(text[chosen.end() :], text), text=text)
    kind, colon, rest = text.strip().partition(":")
    if kind not in KINDS:
        near = _find_near(kind, KINDS)
        shortest = " | ".join(form.partition("[")[0] for form in KINDS.values())
        forms = KINDS[near[0]] if near else shortest
        raise UsageError(
            f"not what --execution takes: {shorten(text) or '(nothing)'}", f"write {forms}"
        )
    if kind == "events":
        return _parse_events(rest, text)
    if kind == "windows":
        if not rest:
            raise UsageError("windows: names no file", f"write {KINDS['windows']}")
        return Specification(kind, file=rest, text=text)
    if kind == "requests":
        return _parse_requests(rest, text, given=bool(colon))
    if kind == "slices":
        return _parse_slices(rest, text)
    if kind == "slice":
        return _parse_named_slice(rest, text)
    if colon:
        raise UsageError(f"'{kind}' takes nothing after it, not: {shorten(rest)}", f"write {kind}")
    return Specification(kind, text=text)


_PLACES: Final = frozenset({"comm", "container", "ns", "cgroup_ns", "cgroup"})


def _find_near(name: str, known: Iterable[str]) -> list[str]:
    """Return what was meant by a name that is not known, if one is like it."""
    from difflib import get_close_matches  # noqa: PLC0415 - start-up time

    return get_close_matches(name, list(known), n=1)


def _parse_where(rest: str, text: str) -> ThreadFilter:
    given: dict[str, str] = {}
    for option in split_outside_brackets(rest, ","):
        name, equals, value = (part.strip() for part in option.partition("="))
        if name not in _PLACES or not equals or not value:
            raise UsageError(
                f"not an option of process or thread: {shorten(option) or '(nothing)'}",
                f"write {KINDS['process']}",
            )
        if name in given:
            raise UsageError(
                f"{name}= is given twice in: {shorten(text)}", f"write {KINDS['process']}"
            )
        given[name] = unescape(value)
    for name in ("ns", "cgroup_ns"):
        value = given.get(name, "0")
        if not (value.isascii() and value.isdigit() and len(value) < INODE_DIGITS):
            raise UsageError(
                f"{name}= is not the number of a namespace: {shorten(value)}",
                "take it from `lsns -t pid`, or from readlink /proc/PID/ns/pid",
            )
    return ThreadFilter(
        int(given.get("ns", 0)),
        int(given.get("cgroup_ns", 0)),
        given.get("cgroup", ""),
        given.get("comm", ""),
        given.get("container", ""),
    )


_REQUEST_OPTIONS: Final = (
    *(
        "host",
        "port",
        "comm",
        "pid",
        "path",
        "label",
        "container",
        "ns",
        "cgroup",
        "peer",
        "top",
        "skip",
    ),
    *("min", "role", "doubtful", "assign", "learn", "min_confidence", "side"),
)


_REQUEST_FORMS: Final = (
    "HOST:PORT host=NAME port=N|N comm=NAME pid=N path=PATH label=TEXT label=~REGEX "
    "container=NAME ns=INUM cgroup=PATH peer=external|local top skip=N min=DURATION role=first "
    "doubtful=include assign=queues|gap|delays|thread learn=RECORDING min_confidence=0.9 "
    "side=client, with commas between; or requests:? for what there is"
)


def _parse_requests(rest: str, text: str, *, given: bool) -> Specification:
    if rest.strip() == "?":
        return Specification("requests", requests=RequestFilter(listing=True), text=text)
    options = split_outside_brackets(rest, ",") if given else []
    # web:8080 is short for host=web,port=8080.
    short = re.fullmatch(r"\s*([^=,:\[\]]+):(\d+)\s*", options[0]) if options else None
    if short:
        options = [f"host={short[1]}", f"port={short[2]}", *options[1:]]
    forms = f"requests, or requests: and some of {_REQUEST_FORMS}"
    values = _parse_options("requests", options, _REQUEST_OPTIONS, forms, text)

    def number(name: str, most: int) -> int:
        return _parse_number(name, values.get(name, "0"), most)

    ports = values["port"].split("|") if "port" in values else []
    label, pattern = _parse_label(values.get("label", ""), options)
    chosen = RequestFilter(
        host=values.get("host", ""),
        ports=frozenset(_parse_number("port", port.strip(), _MOST_PORT) for port in ports),
        comm=values.get("comm", ""),
        path=values.get("path", ""),
        label=label,
        pattern=pattern,
        pid=number("pid", 2**22),
        peer=_choose(values, "peer", PEERS),
        top="top" in values,
        skip=number("skip", 10**6),
        least=_parse_duration(values["min"]) if "min" in values else 0,
        first=_choose(values, "role", ("known", "first")) == "first",
        doubtful=_choose(values, "doubtful", DOUBTFUL) == "include",
        assign=_choose(values, "assign", ASSIGN),
        learn=values.get("learn", ""),
        sure=_parse_share(values.get("min_confidence", "0")),
        client=_choose(values, "side", ("server", "client")) == "client",
    )
    where = ThreadFilter(
        ns=number("ns", 2**32),
        cgroup=values.get("cgroup", ""),
        container=values.get("container", ""),
    )
    return Specification("requests", where=where, requests=chosen, text=text)


def _parse_label(label: str, options: Sequence[str]) -> tuple[str, str]:
    r"""Return a label and a regular expression, of which one is "".

    In ``label=~REGEX`` a backslash stays, but before a comma.
    """
    if not label.startswith("~"):
        return label, ""
    [raw] = [o for o in options if o.partition("=")[0].strip() == "label"]
    pattern = raw.partition("~")[2].strip().replace("\\,", ",")
    if not pattern:
        raise UsageError("label=~ has no regular expression", "write label=~GET or label=TEXT")
    check_pattern(pattern)
    return "", pattern


def _parse_options(
    kind: str, options: Sequence[str], known: tuple[str, ...], forms: str, text: str
) -> dict[str, str]:
    """Return the values of ``NAME=VALUE``, and "" of words that stand by themselves."""
    values: dict[str, str] = {}
    for at, option in enumerate(options):
        name, equals, value = (part.strip() for part in option.partition("="))
        if name not in known or (not value if name not in _WORDS else bool(equals)):
            # As of label=~x{1,3}, which ends at its comma here.
            if at and re.match(r"\s*label\s*=\s*~", options[at - 1]):
                whole = f"{options[at - 1]}\\,{option}".strip()
                raise UsageError(
                    f"a comma ends the regular expression in: {shorten(options[at - 1].strip())}",
                    f"write a comma of its own with a backslash: {shorten(whole)}",
                )
            near = _find_near(name, known)
            raise UsageError(
                f"not an option of {kind}: {shorten(option) or '(nothing)'}",
                f"did you mean {near[0]}{'' if near[0] in _WORDS else '='}?"
                if near and near[0] != name
                else f"write {forms}",
            )
        if name in values:
            raise UsageError(f"{name} is given twice in: {shorten(text)}", f"write {KINDS[kind]}")
        values[name] = unescape(value)
    return values


def _parse_slices(rest: str, text: str) -> Specification:
    """Parse what follows ``slices:``: the marker first, then options."""
    marker, *options = split_outside_brackets(rest, ",")
    marker = marker.strip()
    if marker not in {*MARKERS, EVERY_MARKER}:
        near = _find_near(marker, MARKERS)
        raise UsageError(
            f"not a marker of slices: {shorten(marker) or '(nothing)'}",
            f"did you mean slices:{near[0]}?"
            if near
            else f"write slices: and one of {', '.join(MARKERS)}",
        )
    values = _parse_options("slices", options, ("comm", "min", "root"), KINDS["slices"], text)
    least = _parse_duration(values["min"]) if "min" in values else 0
    chosen = SliceFilter(marker, values.get("comm", ""), least, "root" in values)
    return Specification("slices", slices=chosen, text=text)


def _parse_named_slice(rest: str, text: str) -> Specification:
    """Parse what follows ``slice:``: the name that the program gives, then options."""
    name, *options = split_outside_brackets(rest, ",")
    name = unescape(name).strip()
    if not name:
        raise UsageError(
            "slice: has no name", f"write {KINDS['slice']}, or slice:? for what there is"
        )
    values = _parse_options("slice", options, ("comm", "min"), KINDS["slice"], text)
    least = _parse_duration(values["min"]) if "min" in values else 0
    chosen = SliceFilter("", values.get("comm", ""), least)
    return Specification("slice", slices=chosen, label=name, text=text)


def name_marker_events(specification: Specification) -> list[str]:
    """Return the names of the events that slices are found by, beside the scheduler's."""
    if specification.kind != "slices":
        return []
    wanted = specification.slices.get_requests()
    return [name for request in wanted for name in request.names]


def _choose(values: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    value = values.get(name, known[0])
    if value not in known:
        raise UsageError(
            f"{name}= is none of {', '.join(known)}: {shorten(value)}", f"write {name}={known[1]}"
        )
    return value


def _parse_number(name: str, text: str, most: int) -> int:
    # int() would also take "1_000" and other scripts' digits.
    if not (text.isascii() and text.isdigit() and len(text) < INODE_DIGITS and int(text) <= most):
        raise UsageError(
            f"{name}= is not a number of 0 to {most:,}: {shorten(text) or '(nothing)'}",
            f"write {KINDS['requests']}",
        )
    return int(text)


def _parse_share(text: str) -> float:
    if not re.fullmatch(r"0|1|[01]?\.\d{1,9}", text, re.ASCII) or float(text) > 1:
        raise UsageError(
            f"min_confidence= is not a number of 0 to 1: {shorten(text)}",
            "write min_confidence=0.9",
        )
    return float(text)


def _parse_duration(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if not found:
        raise UsageError(f"min= is not a duration: {shorten(text)}", "write min=100us or min=2.5ms")
    return round(float(found[1]) * _UNITS[found[2]])


def _parse_events(rest: str, text: str) -> Specification:
    begin_text, *others = split_outside_brackets(rest, ",")
    if not others:
        raise UsageError(f"only one event in: {shorten(text)}", SYNTAX)
    end_text, *options = others
    begin, end = parse_pattern(begin_text), parse_pattern(end_text)
    given: dict[str, str] = {}
    for option in options:
        name, equals, value = (part.strip() for part in option.partition("="))
        if name not in {"key", "label"} or not equals or not value:
            raise UsageError(f"not an option of events: {shorten(option) or '(nothing)'}", SYNTAX)
        if name in given:
            raise UsageError(f"{name}= is given twice in: {shorten(text)}", SYNTAX)
        given[name] = unescape(value)
    label = given.get("label", "")
    return Specification(
        "events",
        begin,
        end,
        given.get("key", ""),
        "" if label == NO_LABEL else label,
        label_open=not label,
        text=text,
    )
