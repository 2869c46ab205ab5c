"""Parses CTF 2 metadata (a JSON text sequence, CTF2-SPEC-2.0) into a `TraceClass`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

from critpath.read.ctf2_fields import FieldBuilder
from critpath.read.ctf2_properties import Ctf2Fault, clean, get, shorten
from critpath.read.records import replace
from critpath.read.schema import (
    ClockClass,
    EventRecordClass,
    StreamClass,
    StructureClass,
    TraceClass,
)
from critpath.read.tsdl_lexer import SyntaxFault

RECORD_SEPARATOR = "\x1e"

# A fragment describes at most one event or stream; its JSON takes many times its size.
_MAX_FRAGMENT = 8 << 20


def parse_ctf2(text: str) -> TraceClass:
    """Parse the fragments of a CTF 2 metadata stream.

    Reads CTF2-SPEC-2.0 and the release candidates that tracers and test traces use.

    Parameters
    ----------
    text : str
        JSON texts, each after a record separator (RFC 7464).

    Returns
    -------
    TraceClass

    Raises
    ------
    SyntaxFault
        With the line of the fragment, or of the fault in its JSON.
    """
    builder = _Builder()
    for line, fragment in _fragments(text):
        try:
            builder.add(fragment)
        except Ctf2Fault as fault:
            raise SyntaxFault(str(fault), line) from None
    if not builder.begun:
        raise SyntaxFault("no preamble", 1)
    return builder.trace()


def _fragments(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each fragment with its first line."""
    line = 1
    for part in text.split(RECORD_SEPARATOR):
        if part.strip():
            if len(part) > _MAX_FRAGMENT:
                raise SyntaxFault(f"a fragment longer than {_MAX_FRAGMENT >> 20} MiB", line)
            try:
                fragment = json.loads(part)
            except json.JSONDecodeError as error:
                raise SyntaxFault(f"no JSON: {error.msg}", line + error.lineno - 1) from None
            except RecursionError:
                raise SyntaxFault("JSON nests too deep", line) from None
            except ValueError:
                raise SyntaxFault("a number with thousands of digits", line) from None
            if not isinstance(fragment, dict):
                raise SyntaxFault("a fragment that is no JSON object", line)
            yield line, fragment
        line += part.count("\n")


def _uuid(of: dict[str, Any]) -> str:
    """Return the UUID of a preamble (16 numbers), "" where there is none."""
    numbers = get(of, "uuid", list, [])
    if not numbers:
        return ""
    try:
        return str(uuid.UUID(bytes=bytes(numbers)))
    except (TypeError, ValueError):
        raise Ctf2Fault(f"{shorten(numbers)} is no UUID") from None


def _id(of: dict[str, Any], key: str = "id") -> int:
    number: int = get(of, key, int, 0)
    if not 0 <= number < 1 << 64:
        raise Ctf2Fault(f"the property {key!r} is {shorten(number)}")
    return number


class _Builder:
    """Takes fragments one after the other, which name only earlier ones."""

    def __init__(self) -> None:
        self.begun = False
        self.aliases: dict[str, Any] = {}
        self.fields = FieldBuilder(self.aliases)
        self.uuid = ""
        self.header: StructureClass | None = None
        self.environment: dict[str, str | int] = {}
        self.clocks: dict[str, ClockClass] = {}
        self.streams: dict[int, StreamClass] = {}
        self.events: dict[int, dict[int, EventRecordClass]] = {}
        self.warnings: dict[str, None] = {}
        self.seen_trace = False

    def trace(self) -> TraceClass:
        streams = {
            number: replace(stream, events=self.events[number])
            for number, stream in self.streams.items()
        }
        return TraceClass(
            self.header,
            streams,
            self.clocks,
            self.environment,
            self.uuid,
            version=(2, 0),
            warnings=tuple(self.warnings),
        )

    def add(self, fragment: dict[str, Any]) -> None:
        kind: str = get(fragment, "type", str)
        if fragment.get("extensions"):
            raise Ctf2Fault(f"unknown extension {shorten(fragment['extensions'])}")
        if self.begun == (kind == "preamble"):
            raise Ctf2Fault("the preamble is not the first fragment, and the only one")
        match kind:
            case "preamble":
                self._preamble(fragment)
            case "field-class-alias":
                name = get(fragment, "name", str)
                if name in self.aliases:
                    raise Ctf2Fault(f"two aliases are called {shorten(name)}")
                self.aliases[name] = get(fragment, "field-class", object)
            case "trace-class":
                self._trace_class(fragment)
            case "clock-class":
                self._clock_class(fragment)
            case "data-stream-class":
                self._stream_class(fragment)
            case "event-record-class":
                self._event_class(fragment)
            case _:
                self.warnings[f"unknown metadata fragment {shorten(kind)} ignored"] = None

    def _preamble(self, of: dict[str, Any]) -> None:
        if get(of, "version", int) != 2:
            raise Ctf2Fault(f"CTF version {shorten(of['version'])} is unknown")
        self.begun = True
        self.uuid = _uuid(of)

    def _trace_class(self, of: dict[str, Any]) -> None:
        if self.seen_trace or self.streams:
            raise Ctf2Fault("the trace class is not before its streams, and the only one")
        self.seen_trace = True
        for key, value in get(of, "environment", dict, {}).items():
            whole = isinstance(value, int) and not isinstance(value, bool)
            self.environment[clean(key)] = value if whole else clean(str(value))
        self.header = self.fields.scope("packet-header", of.get("packet-header-field-class"), {})

    def _clock_class(self, of: dict[str, Any]) -> None:
        name: str = get(of, "name", str, "")
        # Release candidates know a clock by its name.
        key: str = get(of, "id", str, name)
        if key in self.clocks:
            raise Ctf2Fault(f"clock {shorten(key)} is described twice")
        frequency: int = get(of, "frequency", int)
        if not 1 <= frequency < 1 << 64:
            raise Ctf2Fault(f"the frequency is {shorten(frequency)}")
        offset = get(of, "offset-from-origin", dict, get(of, "offset", dict, {}))
        uid = get(of, "uid", str, "") or _uuid(of)
        self.clocks[key] = ClockClass(
            name or key,
            frequency,
            _offset(offset, "seconds"),
            _offset(offset, "cycles"),
            uid,
            of.get("origin") == "unix-epoch",
            get(of, "description", str, ""),
        )

    def _stream_class(self, of: dict[str, Any]) -> None:
        number = _id(of)
        if number in self.streams:
            raise Ctf2Fault(f"stream {number} is described twice")
        clock: str = get(of, "default-clock-class-id", str, "")
        clock = clock or get(of, "default-clock-class-name", str, "")
        if clock and clock not in self.clocks:
            raise Ctf2Fault(f"clock {shorten(clock)} is not described")
        scopes: dict[str, StructureClass | None] = {"packet-header": self.header}
        for scope, key in (
            ("packet-context", "packet-context-field-class"),
            ("event-header", "event-record-header-field-class"),
            ("event-common-context", "event-record-common-context-field-class"),
        ):
            scopes[scope] = self.fields.scope(scope, of.get(key), scopes, clock)
        self.streams[number] = StreamClass(
            number,
            scopes["packet-context"],
            scopes["event-header"],
            scopes["event-common-context"],
            clock=clock,
        )
        self.events[number] = {}

    def _event_class(self, of: dict[str, Any]) -> None:
        number = _id(of, "data-stream-class-id")
        stream = self.streams.get(number)
        if stream is None:
            raise Ctf2Fault(f"an event of stream {number}, which is not described before")
        event = _id(of)
        if event in self.events[number]:
            raise Ctf2Fault(f"event {event} of stream {number} is described twice")
        scopes: dict[str, StructureClass | None] = {
            "packet-header": self.header,
            "packet-context": stream.packet_context,
            "event-header": stream.event_header,
            "event-common-context": stream.event_context,
        }
        context = self.fields.scope(
            "event-specific-context", of.get("specific-context-field-class"), scopes
        )
        scopes["event-specific-context"] = context
        payload = self.fields.scope("event-payload", of.get("payload-field-class"), scopes)
        name = get(of, "name", str, "")
        self.events[number][event] = EventRecordClass(name, event, context, payload)


def _offset(of: dict[str, Any], key: str) -> int:
    offset: int = get(of, key, int, 0)
    if not -(1 << 63) <= offset < 1 << 64:
        raise Ctf2Fault(f"the clock's offset is {shorten(offset)}")
    return offset
