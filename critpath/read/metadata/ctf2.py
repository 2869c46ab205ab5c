"""Parses CTF 2 metadata (a JSON text sequence, CTF2-SPEC-2.0) into a `TraceClass`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from critpath.read.metadata.lexer import SyntaxFault
from critpath.read.metadata.schema import (
    ArrayClass,
    ClockClass,
    EventRecordClass,
    FieldClass,
    FloatClass,
    IntegerClass,
    Member,
    Option,
    StreamClass,
    StringClass,
    StructureClass,
    TextClass,
    TraceClass,
    VariantClass,
    VarintClass,
)
from critpath.schema.environment import read_environment

RECORD_SEPARATOR = "\x1e"

# A fragment describes at most one event or stream; its JSON takes many times its size.
_MAX_FRAGMENT = 8 << 20


def parse_ctf2(text: str) -> TraceClass:
    """Parse the fragments of a CTF 2 metadata stream (JSON texts, RFC 7464).

    Reads CTF2-SPEC-2.0 and the release candidates that tracers and test traces use.
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
    """Return the UUID of a preamble (16 numbers), "" if it has none."""
    numbers = get(of, "uuid", list, [])
    if not numbers:
        return ""
    try:
        return str(uuid.UUID(bytes=bytes(numbers)))
    except (TypeError, ValueError):
        raise Ctf2Fault(f"{format_value(numbers)} is no UUID") from None


def _id(of: dict[str, Any], key: str = "id") -> int:
    number: int = get(of, key, int, 0)
    if not 0 <= number < 1 << 64:
        raise Ctf2Fault(f"the property {key!r} is {format_value(number)}")
    return number


class _Builder:
    """Takes fragments in order; each refers only to earlier ones."""

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
            read_environment(self.environment),
            self.uuid,
            version=(2, 0),
            warnings=tuple(self.warnings),
        )

    def add(self, fragment: dict[str, Any]) -> None:
        kind: str = get(fragment, "type", str)
        if fragment.get("extensions"):
            raise Ctf2Fault(f"unknown extension {format_value(fragment['extensions'])}")
        if self.begun == (kind == "preamble"):
            raise Ctf2Fault("the preamble is not the first fragment, and the only one")
        match kind:
            case "preamble":
                self._preamble(fragment)
            case "field-class-alias":
                name = get(fragment, "name", str)
                if name in self.aliases:
                    raise Ctf2Fault(f"two aliases are called {format_value(name)}")
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
                self.warnings[f"unknown metadata fragment {format_value(kind)} ignored"] = None

    def _preamble(self, of: dict[str, Any]) -> None:
        if get(of, "version", int) != 2:
            raise Ctf2Fault(f"CTF version {format_value(of['version'])} is unknown")
        self.begun = True
        self.uuid = _uuid(of)

    def _trace_class(self, of: dict[str, Any]) -> None:
        if self.seen_trace or self.streams:
            raise Ctf2Fault("the trace class is not before its streams, and the only one")
        self.seen_trace = True
        for key, value in get(of, "environment", dict, {}).items():
            whole = isinstance(value, int) and not isinstance(value, bool)
            self.environment[replace_surrogates(key)] = (
                value if whole else replace_surrogates(str(value))
            )
        self.header = self.fields.scope("packet-header", of.get("packet-header-field-class"), {})

    def _clock_class(self, of: dict[str, Any]) -> None:
        name: str = get(of, "name", str, "")
        # Release candidates know a clock by its name.
        key: str = get(of, "id", str, name)
        if key in self.clocks:
            raise Ctf2Fault(f"clock {format_value(key)} is described twice")
        frequency: int = get(of, "frequency", int)
        if not 1 <= frequency < 1 << 64:
            raise Ctf2Fault(f"the frequency is {format_value(frequency)}")
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
            raise Ctf2Fault(f"clock {format_value(clock)} is not described")
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
        raise Ctf2Fault(f"the clock's offset is {format_value(offset)}")
    return offset


# Field classes (CTF2-SPEC-2.0, chapter 5.3).

FieldPath = tuple[str, ...]
Built = tuple[FieldClass, int]

_SCOPE_OF_ORIGIN: Mapping[str, str] = {
    "packet-header": "packet-header",
    "packet-context": "packet-context",
    "event-record-header": "event-header",
    "event-record-common-context": "event-common-context",
    "event-record-specific-context": "event-specific-context",
    "event-record-payload": "event-payload",
}
_TIMES = frozenset(("default-clock-timestamp", "packet-end-default-clock-timestamp"))
_NO_ORIGIN = ""

# Far beyond any tracer; they bound what aliases of aliases can grow to.
_MAX_DEPTH = 64
_MAX_FIELDS = 200_000
_MAX_VISITS = 20_000_000


class FieldBuilder:
    """Builds the structures of the scopes; ``aliases`` are field classes as written."""

    def __init__(self, aliases: Mapping[str, Any]) -> None:
        self._aliases = aliases
        self._built = 0  # where aliases stand; else the text's length bounds them
        self._in_aliases = 0
        self._visited = 0
        self._depth = 0
        self._scopes: Mapping[str, StructureClass | None] = {}
        self._clock = ""
        # For each structure being built: its path, and its members so far.
        self._frames: list[tuple[FieldPath, dict[str, FieldClass]]] = []

    def scope(
        self,
        scope: str,
        of: Any,
        scopes: Mapping[str, StructureClass | None],
        clock: str = "",
    ) -> StructureClass | None:
        """Build the structure of one scope from its field class as written.

        ``scopes`` are those decoded before it; ``clock`` is the stream's default clock.
        """
        if of is None:
            return None
        self._scopes = scopes
        self._clock = clock
        self._frames = []
        self._depth = self._in_aliases = 0
        field, _ = self._build(of, (scope,))
        if not isinstance(field, StructureClass):
            raise Ctf2Fault(f"the {scope} is no structure")
        return field

    def _build(self, of: Any, path: FieldPath) -> Built:
        self._built += self._in_aliases > 0
        self._depth += 1
        if self._built > _MAX_FIELDS:
            raise Ctf2Fault(f"more than {_MAX_FIELDS} fields by aliases")
        if self._depth > _MAX_DEPTH:
            raise Ctf2Fault(f"field classes nest deeper than {_MAX_DEPTH}")
        if isinstance(of, str):
            if of not in self._aliases:
                raise Ctf2Fault(f"unknown field class alias {format_value(of)}")
            self._in_aliases += 1
            built = self._build(self._aliases[of], path)
            self._in_aliases -= 1
        elif isinstance(of, dict):
            try:
                built = self._of_type(get(of, "type", str), of, path)
            except Ctf2Fault as fault:
                fault.place = fault.place or ".".join(path)
                raise
        else:
            raise Ctf2Fault(f"{format_value(of)} is no field class")
        self._depth -= 1
        return built

    def _of_type(self, kind: str, of: dict[str, Any], path: FieldPath) -> Built:
        built: Built
        match kind.split("-"):
            case ["fixed", "length", "floating", "point", "number"]:
                built = _float(of)
            case ["fixed", "length", *number]:
                built = self._integer("-".join(number), of)
            case ["variable", "length", *number]:
                built = self._varint("-".join(number), of), 8
            case ["null", "terminated", "string"]:
                built = StringClass(get_encoding(of)), 8
            case ["static" | "dynamic", "length", "array"]:
                built = self._array(of, path)
            case ["static" | "dynamic", "length", "string" | "blob" as what]:
                built = self._text(of, blob=what == "blob"), 8
            case ["structure"]:
                built = self._structure(of, path)
            case ["variant"]:
                built = self._variant(of, path), 1
            case ["optional"]:
                built = self._optional(of, path), 1
            case _:
                raise Ctf2Fault(f"unknown field class {format_value(kind)}")
        return built

    def _integer(self, number: str, of: dict[str, Any]) -> Built:
        if number not in _FIXED:
            raise Ctf2Fault(f"unknown field class 'fixed-length-{number[:40]}'")
        bits = get_positive(of, "length", 64)
        align = get_alignment(of, "alignment")
        roles = get_roles(of)
        big_end = is_big_endian(of)
        integer = IntegerClass(
            bits,
            number.startswith("signed"),
            big_end,
            align,
            get_display_base(of),
            mappings=get_mappings(of, "flags" if number == "bit-map" else "mappings"),
            clock=self._clock if roles & _TIMES else "",
            roles=roles,
            bit_reversed=is_bit_reversed(of, big_end),
        )
        return integer, align

    def _varint(self, number: str, of: dict[str, Any]) -> VarintClass:
        if number not in _VARIABLE:
            raise Ctf2Fault(f"unknown field class 'variable-length-{number[:40]}'")
        roles = get_roles(of)
        return VarintClass(
            number.startswith("signed"),
            get_display_base(of),
            get_mappings(of, "mappings"),
            self._clock if roles & _TIMES else "",
            roles,
        )

    def _text(self, of: dict[str, Any], *, blob: bool) -> TextClass:
        if blob:
            return TextClass(self._length(of), blob=True, roles=get_roles(of))
        return TextClass(self._length(of), encoding=get_encoding(of))

    def _array(self, of: dict[str, Any], path: FieldPath) -> Built:
        length = self._length(of)
        element, align = self._build(get(of, "element-field-class", object), path)
        align = max(align, get_alignment(of, "minimum-alignment"))
        return ArrayClass(element, length, align), align

    def _length(self, of: dict[str, Any]) -> int | FieldPath:
        if "length" in of:
            length: int = get(of, "length", int)
            if not 0 <= length < 1 << 63:
                raise Ctf2Fault(f"the length is {format_value(length)}")
            return length
        path, target = self._locate(of, "length-field-location")
        if target.signed:
            raise Ctf2Fault(f"the length {'.'.join(path)!r} is signed")
        return path

    def _structure(self, of: dict[str, Any], path: FieldPath) -> Built:
        align = get_alignment(of, "minimum-alignment")
        earlier: dict[str, FieldClass] = {}
        self._frames.append((path, earlier))
        members = []
        for member in get_objects(of, "member-classes"):
            name: str = get(member, "name", str)
            refuse_extensions(member)
            if name in earlier:
                raise Ctf2Fault(f"two members are called {format_value(name)}")
            field, its = self._build(get(member, "field-class", object), (*path, name))
            align = max(align, its)
            earlier[name] = field
            members.append(Member(name, field))
        self._frames.pop()
        return StructureClass(tuple(members), align), align

    def _variant(self, of: dict[str, Any], path: FieldPath) -> VariantClass:
        selector, _ = self._locate(of, "selector-field-location")
        options = []
        for index, option in enumerate(get_objects(of, "options")):
            refuse_extensions(option)
            name: str = get(option, "name", str, str(index))
            ranges = parse_ranges(get(option, "selector-field-ranges", list))
            field, _ = self._build(get(option, "field-class", object), path)
            options.append(Option(name, ranges, field))
        if not options:
            raise Ctf2Fault("a variant without options")
        return VariantClass(selector, tuple(options))

    def _optional(self, of: dict[str, Any], path: FieldPath) -> VariantClass:
        selector, _ = self._locate(of, "selector-field-location")
        ranges: Ranges = ()
        if "selector-field-ranges" in of:
            ranges = parse_ranges(get(of, "selector-field-ranges", list))
        field, _ = self._build(get(of, "field-class", object), path)
        return VariantClass(selector, (Option("", ranges, field),), optional=True)

    def _locate(self, of: dict[str, Any], key: str) -> tuple[FieldPath, IntegerClass | VarintClass]:
        """Return the path and class of the field at a location.

        A location without origin starts in the innermost structure, and ``null`` leads to the
        one around it; the options of variants have no step.
        """
        location = of.get(key)
        if isinstance(location, list):  # release candidates before CTF2-SPECRC-6.0
            scoped = (
                bool(location) and isinstance(location[0], str) and location[0] in _SCOPE_OF_ORIGIN
            )
            origin = location[0] if scoped else _NO_ORIGIN
            steps = location[1:] if scoped else location
        elif isinstance(location, dict):
            origin = get(location, "origin", str, _NO_ORIGIN)
            steps = get(location, "path", list)
        else:
            raise Ctf2Fault(f"the property {key!r} is {format_value(location)}")
        named = [step for step in steps if step is not None]
        if not named or len(steps) > _MAX_DEPTH or not all(isinstance(s, str) for s in named):
            raise Ctf2Fault(f"the location {format_value(location)} leads to no field")
        if origin and origin not in _SCOPE_OF_ORIGIN:
            raise Ctf2Fault(f"unknown origin {format_value(origin)}")
        found = self._walk(_SCOPE_OF_ORIGIN.get(origin, ""), steps)
        if found is None:
            raise Ctf2Fault(f"the location {format_value(location)} leads to no earlier integer")
        return found

    def _walk(
        self, scope: str, steps: list[Any]
    ) -> tuple[FieldPath, IntegerClass | VarintClass] | None:
        if not self._frames:
            return None
        if scope and self._frames[0][0] != (scope,):
            path: FieldPath = (scope,)
            target = self._descend(self._scopes.get(scope), steps)
        else:
            level = 0 if scope else len(self._frames) - 1
            while steps:
                following = self._frames[level + 1][0] if level + 1 < len(self._frames) else ()
                if steps[0] is None:
                    level -= 1
                elif following == (*self._frames[level][0], steps[0]):
                    level += 1
                else:
                    break
                if level < 0:
                    return None
                steps = steps[1:]
            path, members = self._frames[level]
            target = self._descend(members.get(steps[0]), steps[1:]) if steps else None
        return None if target is None else ((*path, *steps), target)

    def _descend(
        self, of: FieldClass | None, steps: list[str]
    ) -> IntegerClass | VarintClass | None:
        """Return the integer at the end of some steps, through any option of a variant."""
        self._visited += 1
        if self._visited > _MAX_VISITS:
            raise Ctf2Fault("locations too many and too far")
        found = None
        match of:
            case IntegerClass() | VarintClass():
                found = of if not steps else None
            case VariantClass():
                for option in of.options:
                    found = found or self._descend(option.field, steps)
            case StructureClass() if steps:
                self._visited += len(of.members)
                member = next((m for m in of.members if m.name == steps[0]), None)
                if member is not None:
                    found = self._descend(member.field, steps[1:])
        return found


# Names of fixed- and variable-length numbers; enumerations are of release candidates.
_FIXED = frozenset(
    (
        "bit-array",
        "bit-map",
        "boolean",
        "unsigned-integer",
        "signed-integer",
        "unsigned-enumeration",
        "signed-enumeration",
    )
)
_VARIABLE = frozenset(
    ("unsigned-integer", "signed-integer", "unsigned-enumeration", "signed-enumeration")
)


def _float(of: dict[str, Any]) -> Built:
    bits = get(of, "length", int)
    if bits not in {16, 32, 64, 128}:
        raise Ctf2Fault(f"no floating-point number has {format_value(bits)} bits")
    align = get_alignment(of, "alignment")
    big_end = is_big_endian(of)
    return FloatClass(bits, big_end, align, is_bit_reversed(of, big_end)), align


# Properties of JSON objects.

Ranges = tuple[tuple[int, int], ...]
Mappings = tuple[tuple[str, Ranges], ...]

_ENCODINGS = {
    "utf-8": "utf-8",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
    "utf-32be": "utf-32-be",
    "utf-32le": "utf-32-le",
}


class Ctf2Fault(Exception):  # noqa: N818 -- internal; leaves this package as MetadataError
    """A fault in a fragment; ``place`` is the path of the field, once known."""

    place = ""

    def __str__(self) -> str:
        message = super().__str__()
        return f"{self.place}: {message}" if self.place else message


def get(of: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
    """Return a property after checking its JSON type, or its default."""
    value = of.get(key, default)
    if value is None:
        raise Ctf2Fault(f"the property {key!r} is missing")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Ctf2Fault(f"the property {key!r} is {format_value(value)}")
    return replace_surrogates(value) if isinstance(value, str) else value


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON can escape."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def format_value(value: object) -> str:
    """Format a value for a message."""
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def get_positive(of: dict[str, Any], key: str, most: int) -> int:
    """Return a number of bits, at least 1."""
    value: int = get(of, key, int)
    if not 1 <= value <= most:
        raise Ctf2Fault(f"the property {key!r} is {format_value(value)}, not from 1 to {most}")
    return value


def get_alignment(of: dict[str, Any], key: str) -> int:
    """Return an alignment in bits, a power of two; 1 by default."""
    align: int = get(of, key, int, 1)
    if align < 1 or align & (align - 1) or align > 1 << 32:
        raise Ctf2Fault(f"an alignment of {format_value(align)} bits is no power of two")
    return align


def is_big_endian(of: dict[str, Any]) -> bool:
    """Return whether a fixed-length number is big-endian."""
    order: str = get(of, "byte-order", str)
    if order not in {"little-endian", "big-endian"}:
        raise Ctf2Fault(f"unknown byte order {format_value(order)}")
    return order == "big-endian"


def is_bit_reversed(of: dict[str, Any], big_end: bool) -> bool:
    """Return whether the bit order differs from the natural one of the byte order."""
    natural = "last-to-first" if big_end else "first-to-last"
    order: str = get(of, "bit-order", str, natural)
    if order not in {"first-to-last", "last-to-first"}:
        raise Ctf2Fault(f"unknown bit order {format_value(order)}")
    return order != natural


def get_display_base(of: dict[str, Any]) -> int:
    """Return the base to display an integer in."""
    base: int = get(of, "preferred-display-base", int, 10)
    if base not in {2, 8, 10, 16}:
        raise Ctf2Fault(f"no integer is shown in base {format_value(base)}")
    return base


def get_encoding(of: dict[str, Any]) -> str:
    """Return a string's encoding as Python spells it."""
    name: str = get(of, "encoding", str, "utf-8")
    if name not in _ENCODINGS:
        raise Ctf2Fault(f"unknown encoding {format_value(name)}")
    return _ENCODINGS[name]


def get_roles(of: dict[str, Any]) -> frozenset[str]:
    """Return the roles of a field class."""
    roles = get(of, "roles", list, [])
    if not all(isinstance(role, str) for role in roles):
        raise Ctf2Fault(f"the roles are {format_value(roles)}")
    return frozenset(roles)


def get_mappings(of: dict[str, Any], key: str) -> Mappings:
    """Return the mappings of an integer, or the flags of a bit map."""
    mappings = get(of, key, dict, {})
    return tuple(
        (replace_surrogates(label), parse_ranges(ranges if isinstance(ranges, list) else [ranges]))
        for label, ranges in mappings.items()
    )


def parse_ranges(ranges: list[Any]) -> Ranges:
    """Parse integer ranges, at least one."""
    result = []
    for span in ranges:
        match span:
            case [int() as low, int() as high] if -(1 << 63) <= low <= high < 1 << 64:
                result.append((int(low), int(high)))
            case _:
                raise Ctf2Fault(f"{format_value(span)} is no range")
    if not result:
        raise Ctf2Fault("no range at all")
    return tuple(result)


def get_objects(of: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return an array of objects, empty by default."""
    found = get(of, key, list, [])
    if not all(isinstance(item, dict) for item in found):
        raise Ctf2Fault(f"the property {key!r} is no array of objects")
    return found  # type: ignore[no-any-return]  # just checked, out of mypy's sight


def refuse_extensions(of: dict[str, Any]) -> None:
    """Refuse extensions, which could have changed anything (CTF2-SPEC-2.0, 5.2)."""
    if of.get("extensions"):
        raise Ctf2Fault(f"unknown extension {format_value(of['extensions'])}")
